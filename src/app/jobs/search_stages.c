/* SPDX-License-Identifier: Apache-2.0 */
/* auto_parallel with --stages: the ranks of a job search stages and cuts before they make the
 * model, whose batch is that of one micro-batch (contract in app.h).
 *
 *      options of a model without stages --> planner of all ranks --> rank 0's plan on all ranks
 *                                        --> options and context, as if --plan had given them */
#include "app/models/models.h"
#include "app/commands/planning.h"

#include <stdio.h>
#include <string.h>

/* The inputs of a search, and its planner (NULL on ranks other than 0). */
typedef struct search {
    trm_dataset *data;       /* owned, like the planner */
    app_network network;     /* `model` points to it */
    trm_model_options model; /* of a model without stages */
    trm_planner *planner;
} search;

/* Prints the plan and its certificate: a line and the JSON event "plan". Rank 0. */
static void tell_found(const search *s, const trm_plan_info *plan) {
    trm_planner_info info;
    char stages[256];
    trm_planner_get_info(s->planner, &info);
    if (plan->stages > 1) {
        snprintf(stages, sizeof stages, "%d stages on mesh %s each, %d micro-batches, %s",
                 plan->stages, plan->mesh, plan->micro_batches, app_schedule_name(plan->schedule));
    } else if (plan->stages == 1) {
        snprintf(stages, sizeof stages, "one stage on mesh %s, %d micro-batches", plan->mesh,
                 plan->micro_batches);
    } else {
        snprintf(stages, sizeof stages, "no stages, mesh %s", plan->mesh);
    }
    app_tell(
        APP_PROGRESS, "event", "plan", app_text("plan", stages, "plan: %s"),
        app_int("stages", plan->stages, NULL), app_int("micro_batches", plan->micro_batches, NULL),
        app_int("chunks", plan->chunks, plan->chunks > 1 ? ", %d chunks" : NULL),
        app_bool("recompute", plan->recompute, ", recompute"),
        app_real("predicted_step_seconds", info.step_seconds, "; predicted %.4f{1e3} ms a step"),
        app_real("lower_bound", info.lower_bound, ", no plan takes less than %.4f{1e3} ms"),
        app_real("gap", info.gap, NULL),
        app_real("data_parallel_step_seconds", info.data_parallel_seconds,
                 ", data parallel %.4f{1e3} ms"),
        app_real("search_seconds", info.total_seconds, "; searched for %.1f s"));
}

/* Makes the options of the model without stages, with what the context says about ranks. */
static trm_status make_options(app_context *app, search *s, trm_error *err) {
    trm_parallel_options said;
    int32_t accumulate;
    trm_status status = app_dataset_or_random(app, &s->data, err);
    status = status == TRM_OK ? app_model_options(app, s->data, false, &s->network, &s->model, err)
                              : status;
    status = status == TRM_OK
                 ? trm_context_resolve(app->context, app_comm(app), &said, &accumulate, err)
                 : status;
    if (status == TRM_OK) {
        trm_parallel_options *p = &s->model.exec.parallel;
        p->wire = said.wire;
        p->block = said.block;
        p->sync_batch_norm = said.sync_batch_norm;
        p->shard_optimizer = said.shard_optimizer;
        p->cooperative = said.cooperative;
        p->split.search = said.split.search;
    }
    return status;
}

/* Searches on the joined ranks; *plan and o->found_plan are the same on all of them. If rank 0
 * finds no plan, it tells the other ranks, which wait for one. */
static trm_status search_plan(app_context *app, search *s, trm_plan_info *plan, trm_error *err) {
    app_options *o = &app->o;
    trm_comm *comm = app_comm(app);
    int32_t ranks = trm_comm_size(comm), local = trm_comm_local_size(comm), stages = 0;
    trm_error later;
    char *text = NULL;
    trm_status status = app_read_stages(o->stages_text, ranks, &stages, err);
    status = status == TRM_OK ? make_options(app, s, err) : status;
    if (status != TRM_OK) { /* the same on all ranks */
        return status;
    }
    bool given = app_given(&app->parsed, "pipeline-schedule"),
         measures = (o->tuning_file == NULL || o->tuning_file[0] != '\0') &&
                    (o->backend == NULL || strcmp(o->backend, "ref") != 0);
    const trm_planner_options options = {.ranks = ranks,
                                         .hosts = ranks % local == 0 ? ranks / local : 1,
                                         .stages = stages,
                                         .micro_batches = (int32_t)o->micro_batches,
                                         .chunks = (int32_t)o->chunks,
                                         .schedule = given ? o->pipeline_schedule : NULL,
                                         .stage_begins = o->stage_begins,
                                         .stages_gain = o->stages_gain,
                                         .frontier = TRM_OFF,
                                         .guess_links = !measures,
                                         .measure = measures ? TRM_ON : TRM_OFF};
    /* Rank 0 shares also an error: the other ranks wait for its plan. */
    status = trm_planner_create(&s->model, &options, &s->planner, err);
    if (status != TRM_OK && trm_comm_rank(comm) != 0) {
        return status;
    }
    trm_status shared =
        trm_planner_share(s->planner, comm, plan, &text, status == TRM_OK ? err : &later);
    if (status == TRM_OK && shared == TRM_OK) {
        o->found_plan = text; /* as long as the process */
    }
    return status == TRM_OK ? shared : status;
}

/* Sets options and context to the plan that was found. Where ranks read the whole batch,
 * --batch-size becomes that of all ranks, which micro-batches divide. */
static trm_status take_found(app_context *app, trm_plan_info *plan, trm_error *err) {
    app_options *o = &app->o;
    trm_status status = TRM_OK;
    if (!o->full_batch && !app_reads_own(app)) {
        o->batch_size = app_read_batch(app);
        o->full_batch = true;
        status = trm_context_set(app->context, "full_batch", "true", err);
    }
    /* a plan without stages trains the batch in one piece, whatever --micro-batches says */
    plan->micro_batches = plan->stages > 0 ? plan->micro_batches : 1;
    plan->stages = plan->stages > 0 ? plan->stages : 1;
    app_take_plan(o, plan);
    status = status == TRM_OK ? app_set_stages(app, err) : status;
    status = status == TRM_OK
                 ? trm_context_set(app->context, "parallel_mode", "semi_auto_parallel", err)
                 : status;
    o->accumulate = o->micro_batches;
    return status;
}

/* Contract in app.h. The plan is static, because options point into it until the process ends. */
trm_status app_search_stages(app_context *app, trm_error *err) {
    static trm_plan_info plan;
    app_options *o = &app->o;
    if (!o->stages_searched) {
        return TRM_OK;
    }
    trm_status status = TRM_OK;
    if (app_rank_count(app) > 1) {
        search s = {.planner = NULL};
        status = search_plan(app, &s, &plan, err);
        if (status == TRM_OK && app_rank(app) == 0) {
            tell_found(&s, &plan);
        }
        trm_planner_destroy(s.planner);
        trm_dataset_destroy(s.data);
    }
    o->stages_searched = false;
    if (status == TRM_OK && o->found_plan != NULL) {
        status = take_found(app, &plan, err);
    }
    app_settle_micro_batches(o);
    /* the plan's stages and micro-batches divide --global-batch, too */
    return status == TRM_OK ? app_settle_batch(app, err) : status;
}
