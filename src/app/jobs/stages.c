/* SPDX-License-Identifier: Apache-2.0 */
/* Stages of a pipeline for commands that train: from --stages, from the file of --plan, or those
 * that search_stages.c has found (contracts in app.h).
 *
 *      --stages N                        options and context, before the ranks meet
 *      --plan FILE                       the same, from the lines of the file
 *      auto_parallel, --stages N|auto    after the ranks have met, from the search
 *
 * Until stages are known, batch_size is the batch of a rank without stages; then it becomes that of
 * one micro-batch. The batch of all ranks stays the same. */
#include "app/commands/planning.h"
#include "app/models/models.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *app_schedule_name(trm_schedule schedule) {
    static const char *const names[] = {[TRM_SCHEDULE_1F1B] = "1f1b",
                                        [TRM_SCHEDULE_GPIPE] = "gpipe",
                                        [TRM_SCHEDULE_INTERLEAVED] = "interleaved"};
    return names[schedule];
}

/* Contract in app.h. TRM_ALL stands for "auto". */
trm_status app_read_stages(const char *text, int64_t ranks, int32_t *out, trm_error *err) {
    char *end;
    if (strcmp(text, "auto") == 0) {
        *out = TRM_ALL;
        return TRM_OK;
    }
    long stages = strtol(text, &end, 10);
    if (stages < 1 || stages > 64 || *end != '\0' || (ranks > 0 && ranks % stages)) {
        char of[64];
        snprintf(of, sizeof of, " that divides the %lld ranks (-n)", (long long)ranks);
        return app_fail(err, TRM_INVALID,
                        "--stages '%.40s': auto, or a number from 1 to 64%s, is expected", text,
                        ranks > 0 ? of : "");
    }
    *out = (int32_t)stages;
    return TRM_OK;
}

/* Reads --stages, once. In the mode auto_parallel the stages are searched.
 *   errors  INVALID */
static trm_status take_flag(app_options *o, trm_error *err) {
    int32_t stages = 0;
    bool searches = o->parallel_mode != NULL && strcmp(o->parallel_mode, "auto_parallel") == 0;
    if (o->stages_text == NULL || o->stages > 0 || o->stages_searched || o->found_plan != NULL) {
        return TRM_OK;
    }
    trm_status status = app_read_stages(o->stages_text, o->ranks, &stages, err);
    if (status == TRM_OK && stages == TRM_ALL && !searches) {
        return app_fail(err, TRM_INVALID,
                        "--stages auto: --parallel-mode auto_parallel, which searches stages, is "
                        "expected");
    }
    o->stages_searched = status == TRM_OK && searches;
    o->stages = searches ? 0 : stages;
    return status;
}

/* Contract in app.h. Not in strict mode: stages bring micro-batches, and the bits of a job without
 * options on either are those of whole batches. --context is known once the context is made. */
bool app_implies_stages(const app_context *app) {
    static const char *const own[] = {"pipeline_stages", "grad_accumulation_step", "search_mode",
                                      "dataset_strategy", "strategy_ckpt_load_file"};
    const app_options *o = &app->o;
    bool given = o->stages_text != NULL || o->plan_stages != NULL;
    /* of jobs; of plan and simulate */
    bool planned = o->found_plan != NULL || o->split_plan != NULL || o->split_mesh != NULL ||
                   o->plan_given != NULL || o->plan_mesh != NULL || o->plan_search != NULL ||
                   o->plan_validate;
    bool strict = o->deterministic != NULL && strcmp(o->deterministic, "strict") == 0;
    bool may = !given && !planned && !strict && o->elastic == NULL && o->accumulate <= 1 &&
               app->model != NULL && app->model->kind->has_blocks;
    if (app->context != NULL) {
        may = may && strcmp(trm_context_get(app->context, "deterministic"), "strict") != 0;
        for (size_t i = 0; i < sizeof own / sizeof *own && may; i++) {
            may = !trm_context_is_set(app->context, own[i]);
        }
    }
    return may;
}

/* Makes auto_parallel consider stages without --stages, too. */
static void imply_stages(app_context *app) {
    app_options *o = &app->o;
    if (app->context != NULL && o->parallel_mode != NULL &&
        strcmp(o->parallel_mode, "auto_parallel") == 0 && app_implies_stages(app)) {
        o->stages_text = "auto";
        o->stages_gain = APP_LEAST_GAIN;
        o->stages_searched = true;
    }
}

void app_take_plan(app_options *o, const trm_plan_info *info) {
    o->stages_of_plan = true;
    o->stages = info->stages;
    o->micro_batches = info->micro_batches;
    o->chunks = info->chunks;
    o->pipeline_schedule = app_schedule_name(info->schedule);
    o->stage_begins = info->begins[0] != '\0' ? info->begins : NULL;
    o->recompute = info->recompute ? "block" : o->recompute;
}

/* Contract in app.h. The names of a plan file are kept in static memory: a process has one. */
trm_status app_take_stages(app_context *app, trm_error *err) {
    static trm_plan_info info;
    app_options *o = &app->o;
    imply_stages(app);
    trm_status status = take_flag(o, err);
    if (status != TRM_OK || o->split_plan == NULL || o->stages_of_plan) {
        return status;
    }
    status = trm_plan_read(o->split_plan, &info, NULL, err);
    if (status != TRM_OK || info.stages == 0) {
        return status;
    }
    if (o->stages_searched || (o->stages > 1 && o->stages != info.stages) ||
        (o->micro_batches > 0 && o->micro_batches != info.micro_batches) ||
        o->stage_begins != NULL || app_given(&app->parsed, "pipeline-schedule") || o->chunks > 0) {
        return app_fail(err, TRM_INVALID,
                        "%.100s has %d stages with %d micro-batches of its own: leave --stages, "
                        "--micro-batches, --pipeline-schedule, --chunks and --stage-begins away",
                        o->split_plan, info.stages, info.micro_batches);
    }
    app_take_plan(o, &info);
    return TRM_OK;
}

trm_status app_set_stages(app_context *app, trm_error *err) {
    char stages[16], micros[16];
    const app_options *o = &app->o;
    snprintf(stages, sizeof stages, "%lld", (long long)o->stages);
    snprintf(micros, sizeof micros, "%lld", (long long)o->micro_batches);
    trm_status status = trm_context_set(app->context, "pipeline_stages", stages, err);
    return status == TRM_OK && o->stages_of_plan
               ? trm_context_set(app->context, "grad_accumulation_step", micros, err)
               : status;
}

void app_settle_micro_batches(app_options *o) {
    if (o->global_batch > 0) { /* app_settle_batch divides it */
        o->micro_batches_done = true;
    }
    if (o->stages_searched || o->micro_batches_done) {
        return;
    }
    if (o->stages_of_plan && !o->full_batch) {
        o->batch_size *= o->stages; /* of fewer ranks: the batch of all ranks stays the same */
        o->micro_batches_done = o->micro_batches == 1;
    }
    if (o->micro_batches > 1 && o->batch_size % o->micro_batches == 0) {
        o->batch_size /= o->micro_batches; /* app_check_pipeline refuses one that does not divide */
        o->micro_batches_done = true;
    }
}
