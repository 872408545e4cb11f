/* SPDX-License-Identifier: Apache-2.0 */
/* How an elastic job trains with another number of ranks than the user has asked for (contracts in
 * elastic_state.h). */
#include "train/elastic_state.h"

#include "base/error.h"
#include "plan/partition/partition.h"

#include <math.h>
#include <string.h>

/* Limit of measuring operators while the ranks of a job wait for another plan. */
static const double research_seconds = 0.2;

/* Returns the stages of a pipeline of `ranks` ranks: those that the user has asked for, or one a
 * rank. */
static int32_t count_stages(const trmi_elastic_model *e, int32_t ranks) {
    const int32_t stages = e->asked.pipeline.stages;
    return stages <= 1 ? 1 : stages < ranks ? stages : ranks;
}

int32_t trmi_elastic_count_active(const trm_model *model, int32_t ranks) {
    const trmi_elastic_model *e = model->elastic;
    for (; ranks > 1 && model->first_ranks == 0; ranks--) {
        const int32_t stages = count_stages(e, ranks), inner = ranks / stages;
        if (ranks % stages == 0 && e->samples % inner == 0 && e->blocks % inner == 0) {
            break;
        }
    }
    return ranks;
}

int32_t trmi_elastic_reads(const trmi_elastic_model *e, int32_t ranks) {
    const bool whole = e->asked.split.kind != TRM_SPLIT_NONE && e->asked.batch == TRM_BATCH_OF_JOB;
    return whole ? 1 : ranks / count_stages(e, ranks);
}

bool trmi_elastic_has_parts(const trm_model *model) {
    const trm_parallel_options *p = &model->options.exec.parallel;
    return p->split.kind != TRM_SPLIT_NONE || p->pipeline.stages > 1 || p->shard_optimizer;
}

/* Contract in elastic_state.h. Processes of one host have one copy of the parameters then, and the
 * state exists once, so that a change of ranks moves each word of it once. */
void trmi_elastic_share_state(trm_model *model) {
    const trm_parallel_options *asked = &model->elastic->asked;
    trm_parallel_options *p = &model->options.exec.parallel;
    const bool one_host = p->comm != NULL && trm_comm_size(p->comm) > 1 &&
                          trm_comm_can_map_root(p->comm) && asked->broadcast != TRM_OFF;
    p->shard_optimizer = asked->shard_optimizer || one_host;
    model->options.exec.share_slots = trmi_elastic_has_parts(model) ? TRM_ON : TRM_DEFAULT;
}

/* Finds the ranks that the user's mesh or plan is for; 0: any number. */
static trm_status count_mesh(const trm_split_options *split, int32_t *ranks, trm_error *err) {
    trmi_partition_plan *plan;
    trmi_mesh mesh;
    *ranks = 0;
    if (split->mesh != NULL) {
        TRMI_TRY(trmi_mesh_parse(split->mesh, &mesh, err));
        *ranks = trmi_mesh_ranks(&mesh);
    } else if (split->plan != NULL) {
        TRMI_TRY(trmi_partition_plan_parse(split->plan, strlen(split->plan), "plan", &plan, err));
        *ranks = trmi_mesh_ranks(&plan->mesh);
        trmi_partition_plan_destroy(plan);
    }
    return TRM_OK;
}

/* Sets pipeline and split graph to those for `ranks` ranks. */
static trm_status fit_ways(trm_model *model, int32_t ranks, trm_error *err) {
    const trm_parallel_options *asked = &model->elastic->asked;
    trm_parallel_options *p = &model->options.exec.parallel;
    const int32_t stages = count_stages(model->elastic, ranks);
    int32_t meshed;
    p->pipeline = asked->pipeline;
    p->split = asked->split;
    /* the other ranks wait: costs that are kept decide, and what can be measured in this time */
    p->split.trials = TRM_OFF;
    p->split.replans = true;
    p->split.measure_seconds = asked->split.measure_seconds > 0
                                   ? fmin(asked->split.measure_seconds, research_seconds)
                                   : research_seconds;
    if (stages != asked->pipeline.stages) {
        p->pipeline.stages = stages > 1 ? stages : 0;
        p->pipeline.begins = NULL;
    }
    if (ranks == stages) { /* no graph to split */
        p->split = (trm_split_options){.kind = TRM_SPLIT_NONE};
        return TRM_OK;
    }
    TRMI_TRY(count_mesh(&asked->split, &meshed, err));
    if (meshed != 0 && meshed != ranks / stages) {
        p->split.mesh = NULL;
        p->split.plan = NULL;
        p->split.kind =
            asked->split.plan != NULL && stages == 1 ? TRM_SPLIT_SEARCHED : asked->split.kind;
    }
    return TRM_OK;
}

trm_status trmi_elastic_fit(trm_model *model, int32_t ranks, trm_error *err) {
    TRMI_TRY(fit_ways(model, ranks, err));
    trmi_elastic_share_state(model);
    return TRM_OK;
}
