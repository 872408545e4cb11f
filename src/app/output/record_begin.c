/* SPDX-License-Identifier: Apache-2.0 */
/* The first line of a run's record: the event "options", with the command line, the machine and the
 * value of every option that this model reads, so that `report` can show how runs differ.
 *
 *     given      flags of the command line, as texts
 *     options    all options of the model with their values or defaults, because a default may
 *                differ between versions; options of output are left out
 *
 * Without --output there is no record. A rank that cannot write its record trains on with a
 * warning; for rank 0 that is an error, because reports begin with its file. */
#include "app/models/models.h"
#include "app/output/record.h"

#include <stddef.h>
#include <string.h>
#include <unistd.h>

/* Returns whether the flags of this group are of the model. */
static bool is_read(const app_context *app, const app_group *group) {
    return group->kind == NULL ||
           (app->model != NULL && app_is_choice(group->kind, app->model->kind->title));
}

/* Puts the value that one flag has set, or its default. */
static void put_option(const app_flag *f, const app_options *o) {
    const char *place = (const char *)o + f->offset;
    switch (f->kind) {
    case APP_BOOL: app_put(app_bool(f->name, *(const bool *)place, NULL)); break;
    case APP_INT:
    case APP_BYTES: app_put(app_int(f->name, *(const int64_t *)place, NULL)); break;
    case APP_REAL: app_put(app_real(f->name, *(const double *)place, NULL)); break;
    case APP_TEXT:
    case APP_CHOICE:
    case APP_OPTIONAL: app_put(app_text(f->name, *(const char *const *)place, NULL)); break;
    }
}

/* Returns whether an earlier group of the command has a row of this name that the model reads. */
static bool is_repeated(const app_context *app, int group, const char *name) {
    const app_flag *f;
    for (int g = 0; g < group; g++) {
        const app_group *other = app->command->groups[g];
        for (int i = 0; is_read(app, other) && (f = app_group_flag(other, i)) != NULL; i++) {
            if (strcmp(f->name, name) == 0) {
                return true;
            }
        }
    }
    return false;
}

/* Puts all options of the command, but for those of the output. */
static void put_options(const app_context *app) {
    const app_group *const *groups = app->command->groups;
    const app_flag *f;
    app_open_object("options");
    for (int g = 0; groups[g] != NULL; g++) {
        bool counts = groups[g] != &app_group_common && is_read(app, groups[g]);
        for (int i = 0; counts && (f = app_group_flag(groups[g], i)) != NULL; i++) {
            if (!is_repeated(app, g, f->name)) {
                put_option(f, &app->o);
            }
        }
    }
    app_close();
}

/* Puts an object of the texts of the flags that were given. */
static void put_given(const app_parsed *parsed) {
    app_open_object("given");
    for (int i = 0; i < parsed->given_count; i++) {
        app_put(app_text(parsed->given[i].flag->name, parsed->given[i].text, NULL));
    }
    app_close();
}

/* Contract in app.h. */
trm_status app_begin_record(const app_context *app, const char *folder, const char *role,
                            int32_t number, trm_error *err) {
    char process[64];
    char host[256] = "";
    trm_machine machine;
    if (folder == NULL || app->o.dry_run) {
        return TRM_OK;
    }
    trm_status status = app_record_open(folder, role, number, err);
    if (status != TRM_OK) {
        return status;
    }
    (void)gethostname(host, sizeof host - 1);
    trm_machine_get(&machine);
    /* one event with all options, so that a report can compare runs */
    snprintf(process, sizeof process, "%s-%d", role != NULL ? role : "", (int)number);
    app_begin(APP_RECORD, "event", "options");
    app_put(app_text("version", trm_version(), NULL), app_text("command", app->command->name, NULL),
            app_text("model", app->parsed.arguments[0], NULL),
            app_text("role", role != NULL ? process : NULL, NULL), app_text("host", host, NULL),
            app_int("cores", machine.cores, NULL), app_int("ranks", app_rank_count(app), NULL),
            app_text("unit", app->model != NULL ? app_unit(app) : NULL, NULL));
    put_given(&app->parsed);
    put_options(app);
    app_end();
    return TRM_OK;
}

/* Contract in app.h. The record of rank 0 is the run's. Another rank trains on without its own. */
trm_status app_begin_rank_record(const app_context *app, int32_t rank, trm_error *err) {
    if (app_record_is_of(rank)) {
        return TRM_OK;
    }
    trm_status status = app_begin_record(app, app->o.output, "rank", rank, err);
    if (status != TRM_OK && rank != 0) {
        app_warn("%s; reports do not have the waiting of rank %d", err->message, (int)rank);
        status = TRM_OK;
    }
    return status;
}
