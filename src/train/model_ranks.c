/* SPDX-License-Identifier: Apache-2.0 */
/* The operations of a model on several ranks: finding the communicator, sharing the data, agreeing
 * on a status, sums (contracts in model.h). With one rank every function returns at once, so
 * callers need no `if`.
 *
 * The ranks of a model are those of its options, else the one job that this process has joined: a
 * program that joins its ranks trains on all of them without naming them again. A launcher whose
 * ranks the program never joined is worth one warning, since each process would train a copy of its
 * own.
 *
 * Invariant: agree, add and broadcast are collectives. Each rank calls them at the same places,
 * also after an error of its own, which is what `agree` is for. */
#include "train/gradient_sink.h"
#include "train/model.h"

#include "trireme/dist.h"

#include "base/error.h"
#include "base/log.h"
#include "comm/api/world.h"
#include "comm/rendezvous/stragglers.h"
#include "data/pipeline/dataset.h"
#include "exec/distributed/batches.h"
#include "graph/graph_ir.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

/* Logs, once a process, that a launcher has started this process as one of several ranks but the
 * program has joined none: the model would silently train alone. */
static void warn_not_joined(void) {
    static atomic_flag warned = ATOMIC_FLAG_INIT;
    const trm_cluster_flags flags = {.table_wait_seconds = -1, .any_address = true};
    trm_cluster *cluster;
    if (atomic_flag_test_and_set(&warned) ||
        trm_cluster_from_env(&flags, NULL, NULL, &cluster, NULL) != TRM_OK) {
        return;
    }
    const trm_cluster_info *me = trm_cluster_get(cluster);
    if (me->size > 1) {
        trmi_log(TRM_LOG_WARN, "train",
                 "this process is rank %d of %d (%s), but has not joined the others: its model "
                 "trains by itself; call trm_join(&err) first, or set "
                 "parallel.stand_alone",
                 me->rank, me->size, me->source);
    }
    trm_cluster_destroy(cluster);
}

/* Contract in model.h. Order: ranks of an elastic job, ranks of the options, no ranks, the one job
 * that this process has joined. With several joined jobs the choice would be a guess, so there are
 * no ranks. */
trm_status trmi_model_find_ranks(trm_model *model, trm_error *err) {
    trm_parallel_options *p = &model->options.exec.parallel;
    trm_bootstrap *bootstrap;
    trm_comm *comm;
    if (model->options.elastic != NULL) {
        p->comm = trm_elastic_comm(model->options.elastic);
    }
    if (p->comm != NULL || p->stand_alone || model->sink->has_own_data) {
        return TRM_OK;
    }
    int32_t jobs = trmi_world_find(&bootstrap, &comm);
    if (jobs == 0) {
        warn_not_joined();
        return TRM_OK;
    }
    if (jobs > 1) {
        trmi_log(TRM_LOG_WARN, "train",
                 "this process has joined %d jobs: its model trains by itself; say with "
                 "parallel.comm which ranks it uses, or set parallel.stand_alone",
                 jobs);
        return TRM_OK;
    }
    /* The first model of the job makes its communicator; later ones use it. */
    if (comm == NULL) {
        TRMI_TRY(trm_comm_create(bootstrap, NULL, &comm, err));
        trmi_world_own(bootstrap);
    }
    p->comm = comm;
    return TRM_OK;
}

/* Contract in model.h. Training data wraps around, so that every rank has equally many batches;
 * evaluation data is padded, so that every sample counts once. */
trm_status trmi_model_share_data(const trm_model *model, trm_dataset *data, bool training,
                                 trm_error *err) {
    const trmi_batch_form form = trmi_batch_form_of(&model->options.exec.parallel);
    int32_t size = training ? form.reads : trmi_model_size(model);
    bool whole = training && trmi_model_shares(model) == 1 && model->elastic == NULL;
    /* the last rank of an elastic job gets all that others had */
    bool alone = size == 1 && model->elastic == NULL;
    if (alone || whole || model->sink->has_own_data) {
        return TRM_OK;
    }
    return trmi_dataset_share(data, size, trmi_model_rank(model) % size,
                              training ? TRM_SHARD_WRAP : TRM_SHARD_PAD, err);
}

trm_comm *trmi_model_comm(const trm_model *model) {
    trm_comm *comm = model->options.exec.parallel.comm;
    return comm != NULL && trm_comm_size(comm) > 1 ? comm : NULL;
}

trm_status trmi_model_compare_ranks(trm_model *model, double step_seconds, double data_seconds,
                                    trm_error *err) {
    trmi_stragglers **stragglers = &model->train.stragglers;
    if (*stragglers == NULL) { /* with one rank there are none */
        TRMI_TRY(trmi_stragglers_create(trmi_model_comm(model), stragglers, err));
    }
    return trmi_stragglers_step(*stragglers, step_seconds, data_seconds, err);
}

int32_t trmi_model_rank(const trm_model *model) {
    trm_comm *comm = trmi_model_comm(model);
    return comm != NULL ? trm_comm_rank(comm) : 0;
}

int32_t trmi_model_size(const trm_model *model) {
    trm_comm *comm = trmi_model_comm(model);
    return comm != NULL ? trm_comm_size(comm) : 1;
}

int32_t trmi_model_shares(const trm_model *model) {
    return trmi_batch_form_of(&model->options.exec.parallel).reads;
}

bool trmi_model_shares_weights(const trm_model *model) {
    return trmi_batch_form_of(&model->options.exec.parallel).weights_in_place;
}

/* Returns whether the graph normalises over samples. */
static bool has_batch_norm(const trm_graph *graph) {
    bool found = false;
    for (int64_t i = 1; i < graph->ops_count; i++) {
        found = found || graph->ops[i].kind == TRMI_OP_BATCH_NORM;
    }
    return found;
}

/* Contract in model.h. */
bool trmi_model_norm_samples(const trm_model *model, char *text, size_t size) {
    int32_t norm =
        model->norm_ranks > 0 ? model->norm_ranks : model->options.exec.parallel.sync_batch_norm;
    if (trmi_model_size(model) < 2 || !has_batch_norm(model->train.graph)) {
        return false;
    }
    if (norm > 1) {
        snprintf(text, size, "%d neighbouring ranks'", norm);
    } else {
        snprintf(text, size, "%s", norm == TRM_NORM_LOCAL ? "each rank's own" : "all ranks'");
    }
    return true;
}

/* Contract in model.h. One line says what a step is, because a wrong batch is the most frequent
 * mistake of jobs with ranks. */
void trmi_model_log_ranks(const trm_model *model) {
    int32_t size = trmi_model_size(model);
    if (size < 2 || model->options.evaluation_only) {
        return;
    }
    char norm[48], over[160] = "";
    if (trmi_model_norm_samples(model, norm, sizeof norm)) {
        snprintf(over, sizeof over, "; batch norm is over %s samples", norm);
    }
    /* a rank that reads the whole batch has a part of it */
    int32_t ranks = trmi_batch_form_of(&model->options.exec.parallel).ranks;
    int32_t stages = model->options.exec.parallel.pipeline.stages;
    if (stages > 1) {
        snprintf(over + strlen(over), sizeof over - strlen(over),
                 "; stage %d of %d, %d micro-batches", trmi_model_rank(model) / ranks, stages,
                 model->options.exec.accumulate);
    }
    long long all = (long long)model->train.batch * trmi_accumulate(model) *
                    (trmi_model_shares(model) == 1 ? 1 : ranks);
    trmi_log(TRM_LOG_INFO, "ranks",
             "rank %d of %d: a step has %lld samples a rank, %lld together%s",
             trmi_model_rank(model), size, all / ranks, all, over);
}

/* Contract in model.h. The maximum of x and of -x gives the largest and the smallest value in one
 * all-reduce. */
trm_status trmi_model_compare_numbers(const trm_model *model, const int64_t *numbers, int32_t count,
                                      const char *what, trmi_rank_range *out, trm_error *err) {
    int64_t values[2 * TRMI_NUMBERS_MOST];
    for (int32_t i = 0; i < count; i++) {
        values[2 * i] = numbers[i];
        values[2 * i + 1] = -numbers[i];
    }
    const trm_collective op = {.kind = TRM_ALLREDUCE,
                               .recv = values,
                               .count = 2 * count,
                               .dtype = TRM_INT64,
                               .reduce = TRM_REDUCTION_MAX,
                               .tag = what};
    TRMI_TRY(trm_comm_run(trmi_model_comm(model), &op, err));
    for (int32_t i = 0; i < count; i++) {
        out[i] = (trmi_rank_range){.least = -values[2 * i + 1], .most = values[2 * i]};
    }
    return TRM_OK;
}

/* Contract in model.h. The tag names the meeting where a rank waits too long for it. */
trm_status trmi_model_meet_at_end(const trm_model *model, trm_error *err) {
    char tag[40];
    trm_comm *comm = trmi_model_comm(model);
    const uint64_t step = trm_exec_step(model->train.exec);
    snprintf(tag, sizeof tag, "training ends after step %llu", (unsigned long long)step);
    const trm_collective op = {.kind = TRM_BARRIER, .count = (int64_t)step, .tag = tag};
    return comm != NULL ? trm_comm_run(comm, &op, err) : TRM_OK;
}

/* Contract in model.h. A rank's own error is returned first; differences between ranks are
 * errors on the ranks that succeeded. */
trm_status trmi_model_agree(const trm_model *model, trm_status status, int64_t number,
                            const char *what, trm_error *err) {
    if (trmi_model_comm(model) == NULL) {
        return status;
    }
    trmi_rank_range ranges[2]; /* of the status and of the number */
    trm_error broken = {.status = TRM_OK};
    trm_status reached = trmi_model_compare_numbers(
        model, (const int64_t[]){(int64_t)status, number}, 2, what, ranges, &broken);
    if (status != TRM_OK && status != TRM_END) {
        return status;
    }
    if (reached != TRM_OK) {
        return TRMI_FAIL(err, reached, "%s: %s", what, broken.message);
    }
    /* Compare the status of all ranks, then their number. */
    if (ranges[0].least != ranges[0].most) {
        return TRMI_FAIL(err, TRM_INVALID,
                         "%s: it succeeded on some ranks only; every rank must see the "
                         "same files",
                         what);
    }
    if (ranges[1].least != ranges[1].most) {
        return TRMI_FAIL(err, TRM_INVALID,
                         "%s: the ranks found steps from %lld to %lld; every rank must "
                         "see the same files",
                         what, (long long)ranges[1].least, (long long)ranges[1].most);
    }
    return status;
}

/* Contract in model.h. Used where ranks could answer differently, as their clocks do. */
trm_status trmi_model_broadcast_answer(const trm_model *model, bool *answer, trm_error *err) {
    trm_comm *comm = trmi_model_comm(model);
    int32_t value = *answer;
    const trm_collective op = {.kind = TRM_BROADCAST,
                               .recv = &value,
                               .count = 1,
                               .dtype = TRM_INT32,
                               .tag = "what rank 0 decides"};
    if (comm != NULL) {
        TRMI_TRY(trm_comm_run(comm, &op, err));
    }
    *answer = value != 0;
    return TRM_OK;
}

/* Sums `values` over the ranks; the tag names the operation in a message about a rank that waits
 * too long. */
static trm_status sum_over_ranks(const trm_model *model, void *values, int64_t count,
                                 trm_dtype dtype, trm_error *err) {
    const trm_collective op = {.kind = TRM_ALLREDUCE,
                               .recv = values,
                               .count = count,
                               .dtype = dtype,
                               .reduce = TRM_REDUCTION_SUM,
                               .tag = "metrics"};
    trm_comm *comm = trmi_model_comm(model);
    return comm == NULL ? TRM_OK : trm_comm_run(comm, &op, err);
}

trm_status trmi_model_add(const trm_model *model, double *values, int64_t count, trm_error *err) {
    return sum_over_ranks(model, values, count, TRM_FLOAT64, err);
}

trm_status trmi_model_add_counts(const trm_model *model, int64_t *values, int64_t count,
                                 trm_error *err) {
    return sum_over_ranks(model, values, count, TRM_INT64, err);
}
