/* SPDX-License-Identifier: Apache-2.0 */
/* data vocabulary: numbers the values of each key column in the order of their first appearance
 * and writes them to a file. */
#include "app/models/models.h"

#include <stdio.h>
#include <string.h>

/* Determines the form of the data: --dataset, or the detected one. */
static trm_status kind_of(const app_context *app, char *kind, size_t size, trm_error *err) {
    trm_dataset *data;
    trm_status status = app_dataset(app, TRM_USAGE_TRAIN, false, &data, err);
    if (status != TRM_OK) {
        return status;
    }
    json_t *source = app_source_of(data);
    const char *found = json_string_value(json_object_get(source, "kind"));
    if (found == NULL) {
        status = app_no_memory(err, "to describe the data");
    } else {
        snprintf(kind, size, "%s", found);
    }
    json_decref(source);
    trm_dataset_destroy(data);
    return status;
}

/* Builds the vocabulary and writes it, unless it is a dry run. */
static trm_status make_vocabulary(app_context *app, char *kind, size_t size, trm_vocabulary **out,
                                  trm_error *err) {
    app_options *o = &app->o;
    trm_dataset_spec spec = {.kind = o->dataset, .path = o->data};
    if (o->output == NULL || o->data == NULL) {
        return app_fail(err, TRM_INVALID, "data vocabulary needs the data and --output FILE");
    }
    o->batch_size = 1;
    trm_status status = kind_of(app, kind, size, err);
    status = status == TRM_OK ? app_click_data(app, &spec, err) : status;
    if (status == TRM_OK) {
        status = trm_vocabulary_build(kind, o->data, spec.click, o->click.min_count, out, err);
    }
    return status == TRM_OK && !o->dry_run ? trm_vocabulary_save(*out, o->output, err) : status;
}

/* Runs `data vocabulary`. */
int app_run_data_vocabulary(app_context *app) {
    trm_error err;
    trm_vocabulary *v = NULL;
    char kind[32] = "";
    if (app->parsed.arguments_count > 0) {
        app->o.data = app->parsed.arguments[0];
    }
    trm_status status = make_vocabulary(app, kind, sizeof kind, &v, &err);
    if (status == TRM_OK) {
        int64_t rows = 0;
        int32_t fields = trm_vocabulary_fields(v);
        for (int32_t i = 0; i < fields; i++) {
            rows += trm_vocabulary_rows(v, i);
        }
        app_tell(APP_RESULT, "event", "data_vocabulary", app_text("path", app->o.output, "%s"),
                 app_text("kind", kind, NULL), app_int("fields", fields, ": %d fields"),
                 app_int("rows", rows, ", %d rows of the table"),
                 app_bool("dry_run", app->o.dry_run, "; nothing was written"));
    }
    trm_vocabulary_destroy(v);
    return status == TRM_OK ? 0 : app_report(&err);
}
