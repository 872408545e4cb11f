/* SPDX-License-Identifier: Apache-2.0 */
/* Files that flags name: texts, plans, endings of names (contracts in app.h). */
#include "app/app.h"

#include "trireme/plan.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TEXT_MAX = 1 << 20 };

/* Contract in app.h. Reads one byte more than allowed, to notice a longer file. */
trm_status app_read_text(const char *path, char **out, trm_error *err) {
    FILE *file = fopen(path, "rb");
    if (file == NULL) {
        return app_fail(err, TRM_IO, "%.200s: %s", path, strerror(errno));
    }
    char *text = malloc(TEXT_MAX + 1);
    size_t length = text != NULL ? fread(text, 1, TEXT_MAX + 1, file) : 0;
    bool failed = ferror(file) != 0;
    fclose(file);
    if (text == NULL || failed || length > TEXT_MAX) {
        free(text);
        return text == NULL ? app_fail(err, TRM_NOMEM, "no memory for %.200s", path)
               : failed
                   ? app_fail(err, TRM_IO, "%.200s cannot be read", path)
                   : app_fail(err, TRM_CORRUPT,
                              "%.200s: larger than 1 MB, the limit for this kind of file", path);
    }
    text[length] = '\0';
    *out = text;
    return TRM_OK;
}

bool app_ends_in(const char *path, const char *ending) {
    size_t length = strlen(path), end = strlen(ending);
    return length > end && strcmp(path + length - end, ending) == 0;
}

/* Contract in app.h. The names of a plan file are kept in static memory: a process has one. */
trm_status app_take_stages(app_context *app, trm_error *err) {
    static trm_plan_info info;
    static const char *const schedules[] = {[TRM_SCHEDULE_1F1B] = "1f1b",
                                            [TRM_SCHEDULE_GPIPE] = "gpipe",
                                            [TRM_SCHEDULE_INTERLEAVED] = "interleaved"};
    app_options *o = &app->o;
    if (o->split_plan == NULL || o->stages_of_plan) {
        return TRM_OK;
    }
    trm_status status = trm_plan_read(o->split_plan, &info, NULL, err);
    if (status != TRM_OK || info.stages == 0) {
        return status;
    }
    if ((o->stages > 1 && o->stages != info.stages) ||
        (o->micro_batches > 0 && o->micro_batches != info.micro_batches) ||
        o->stage_begins != NULL || app_given(&app->parsed, "pipeline-schedule") || o->chunks > 0) {
        return app_fail(err, TRM_INVALID,
                        "%.100s has %d stages with %d micro-batches of its own: leave --stages, "
                        "--micro-batches, --pipeline-schedule, --chunks and --stage-begins away",
                        o->split_plan, info.stages, info.micro_batches);
    }
    o->stages_of_plan = true;
    o->stages = info.stages;
    o->micro_batches = info.micro_batches;
    o->chunks = info.chunks;
    o->pipeline_schedule = schedules[info.schedule];
    o->stage_begins = info.begins[0] != '\0' ? info.begins : NULL;
    o->recompute = info.recompute ? "block" : o->recompute;
    return TRM_OK;
}

trm_status app_read_plan(const char *path, char **out, trm_error *err) {
    trm_plan_info info;
    return trm_plan_read(path, &info, out, err);
}
