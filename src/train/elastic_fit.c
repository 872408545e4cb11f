/* SPDX-License-Identifier: Apache-2.0 */
/* How an elastic job trains with another number of ranks than the user has asked for (contracts in
 * elastic_state.h).
 *
 *   batch      as many parts as the user's ranks, or as the ranks that are there (--elastic-batch)
 *   norms      groups of batch norm that have equally many parts
 *   pipeline   the user's stages, or one a rank where there are fewer ranks
 *   split      the user's mesh or plan where it is for these ranks, else a plan is searched anew
 *
 * Ranks that no such division has work for are spare: they keep the job's state and wait. The other
 * ranks wait while a plan is searched, so measuring for it is limited to research_seconds. */
#include "train/elastic_state.h"

#include "base/error.h"
#include "comm/shm/shared_buffers.h"
#include "comm/rendezvous/elastic.h"
#include "data/pipeline/dataset.h"
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

/* Returns whether each group of batch norm has as many of `parts` parts of a batch as any other. */
static bool has_whole_groups(const trm_model *model, int32_t parts) {
    const trmi_elastic_model *e = model->elastic;
    const int32_t group = e->asked.sync_batch_norm;
    return model->first_ranks > 0 ? group <= 1 || parts % group == 0 || parts < group
                                  : e->norm_groups == 0 || parts % e->norm_groups == 0;
}

/* Contract in elastic_state.h. Groups must stay whole with the fewest ranks with which the job may
 * go on, since statistics over other samples would be another training. */
trm_status trmi_elastic_settle_norms(trm_model *model, trm_error *err) {
    trmi_elastic_model *e = model->elastic;
    const int32_t ranks = trmi_elastic_first_ranks(e->job), group = e->asked.sync_batch_norm;
    model->norm_ranks = group > 1 ? group : 0;
    if (ranks == 0 || group <= 1 || model->options.elastic_batch == TRM_ELASTIC_BATCH_RANK) {
        return TRM_OK; /* ranks 0: the others know it */
    }
    const int32_t parts = trmi_elastic_parts(e, ranks), groups = parts / group;
    if (parts % group != 0) {
        return TRMI_FAIL(err, TRM_INVALID,
                         "batch norm over groups of %d ranks: %d ranks do not divide", group,
                         parts);
    }
    const int32_t needed = groups * count_stages(e, ranks), least = trmi_elastic_least(e->job);
    if (least < needed) {
        return TRMI_FAIL(
            err, TRM_INVALID,
            "batch norm over groups of %d of %d ranks: %d groups need %d ranks, and the "
            "elastic job goes on with %d; set its least number of ranks to %d",
            group, parts, groups, needed, least, needed);
    }
    e->norm_groups = groups;
    return TRM_OK;
}

void trmi_elastic_group_data(const trm_model *model, trm_dataset *data, int32_t ranks) {
    const trmi_elastic_model *e = model->elastic;
    const bool grouped = e->norm_groups > 1 && ranks > 1;
    trmi_dataset_group(data, grouped ? e->norm_groups : 0, grouped ? e->asked.sync_batch_norm : 0);
}

/* Sets which ranks of a group normalise together. */
static void fit_norms(trm_model *model, int32_t ranks) {
    const trmi_elastic_model *e = model->elastic;
    const int32_t parts = trmi_elastic_parts(e, ranks), asked = e->asked.sync_batch_norm;
    if (asked > 1) {
        const int32_t group = model->first_ranks > 0 ? (asked < parts ? asked : parts)
                              : e->norm_groups > 0   ? parts / e->norm_groups
                                                     : parts;
        model->options.exec.parallel.sync_batch_norm = group >= parts ? 0
                                                       : group > 1    ? group
                                                                      : TRM_NORM_LOCAL;
    }
}

/* Contract in elastic_state.h. Takes ranks away until all divisions come out even; the others are
 * spare. */
int32_t trmi_elastic_count_active(const trm_model *model, int32_t ranks) {
    const trmi_elastic_model *e = model->elastic;
    for (; ranks > 1; ranks--) {
        const int32_t parts = trmi_elastic_parts(e, ranks);
        const bool divides = e->samples % parts == 0 && e->blocks % parts == 0;
        if (ranks % count_stages(e, ranks) == 0 && has_whole_groups(model, parts) &&
            (model->first_ranks > 0 || divides)) {
            break;
        }
    }
    return ranks;
}

int32_t trmi_elastic_parts(const trmi_elastic_model *e, int32_t ranks) {
    return ranks / count_stages(e, ranks);
}

int32_t trmi_elastic_reads(const trmi_elastic_model *e, int32_t ranks) {
    const bool whole = e->asked.split.kind != TRM_SPLIT_NONE && e->asked.batch == TRM_BATCH_OF_JOB;
    return whole ? 1 : trmi_elastic_parts(e, ranks);
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
                          trmi_comm_can_map_root(p->comm) && asked->broadcast != TRM_OFF;
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
    /* The other ranks wait: costs that are kept decide, and what can be measured in this time. */
    p->split.trials = TRM_OFF;
    p->split.replans = true;
    p->split.input_cuts = NULL; /* the tuples are for the ranks of the beginning */
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
    fit_norms(model, ranks);
    trmi_elastic_share_state(model);
    return TRM_OK;
}
