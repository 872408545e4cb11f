/* SPDX-License-Identifier: Apache-2.0 */
/* A model becomes one of an elastic job: its options are checked, and its state is made (contracts in
 * rank_changes.h). */
#include "train/elastic_state.h"

#include "base/error.h"
#include "base/log.h"
#include "base/memory.h"
#include "comm/rendezvous/elastic.h"
#include "exec/distributed/batches.h"

bool trmi_elastic_takes(const trm_model_options *options) { return options->elastic != NULL; }

trm_status trmi_elastic_check(const trm_model *model, trm_error *err) {
    const trm_model_options *o = &model->options;
    const trm_parallel_options *p = &o->exec.parallel;
    if ((unsigned)o->elastic_batch > TRM_ELASTIC_BATCH_RANK) {
        return TRMI_FAIL(err, TRM_INVALID,
                         "elastic_batch: global or rank (found %d, expected 0 or 1)",
                         (int)o->elastic_batch);
    }
    const char *why = p->split.kind != TRM_SPLIT_NONE ? "a split graph (semi_auto, auto)"
                      : p->pipeline.stages > 1        ? "a pipeline"
                      : p->shard_optimizer            ? "slices of the optimiser (shard_optimizer)"
                      : p->cooperative != 0           ? "cooperative gradients"
                      : p->layerwise_count > 0        ? "layerwise parameters"
                      : p->sync_batch_norm > 1        ? "batch norm over groups of ranks"
                      : o->ps.client != NULL          ? "parameter servers"
                                                      : NULL;
    if (why != NULL) {
        return TRMI_FAIL(
            err, TRM_INVALID,
            "an elastic job trains data parallel with the whole state on each rank: %s "
            "cannot be elastic yet; leave one of the two out",
            why);
    }
    return TRM_OK;
}

trm_status trmi_elastic_go_alone(const trm_model_options *options, trm_status status,
                                 int32_t *ranks, trm_error *err) {
    trm_membership m;
    if (!trm_elastic_can_recover(status)) {
        return status;
    }
    trm_elastic_get_membership(options->elastic, &m);
    if (m.rank < 0 || m.ranks < 2) {
        return status;
    }
    *ranks = m.ranks;
    trmi_log(TRM_LOG_INFO, "train",
             "%s; this rank makes its model alone and meets the others when it trains",
             err->message);
    const trm_error cause = *err;
    return trmi_elastic_stand_alone(options->elastic, &cause, err);
}

trm_status trmi_elastic_open(trm_model *model, int32_t alone, trm_error *err) {
    trmi_elastic_model *e;
    TRMI_TRY(TRMI_NEW(err, e, 1, "for an elastic model"));
    model->elastic = e;
    e->job = model->options.elastic;
    e->begun_epoch = -1;
    int32_t shares = alone > 0 ? alone : trmi_model_shares(model);
    e->samples = model->train.batch * shares;
    e->rank_samples = model->train.batch;
    model->first_ranks = model->options.elastic_batch == TRM_ELASTIC_BATCH_RANK ? shares : 0;
    int32_t blocks = model->train.blocks * shares;
    if (alone > 0) { /* the block that is chosen depends on the batch of all ranks */
        TRMI_TRY(trmi_batches_blocks(&model->options.exec.parallel, e->samples, &blocks, err));
    }
    e->blocks = blocks;
    trm_exec *exec = model->train.exec;
    for (int32_t i = 0; i < trm_exec_variable_count(exec); i++) {
        trm_variable v = trm_exec_variable(exec, i);
        const trm_tensor t = {.dtype = v.dtype, .shape = v.shape};
        e->kept_bytes += trm_tensor_bytes(&t);
        e->marked_bytes += v.kind == TRM_VARIABLE_STATE ? trm_tensor_bytes(&t) : 0;
    }
    e->marked = trmi_alloc((size_t)e->marked_bytes);
    return e->marked != NULL ? TRM_OK : TRMI_FAIL(err, TRM_NOMEM, "no memory for an elastic model");
}

bool trmi_elastic_puts_off(trm_status status, const trm_error *why) {
    const bool goes_on = trm_elastic_can_recover(status);
    if (goes_on) {
        trmi_log(TRM_LOG_INFO, "train", "%s; this rank meets the others when it trains",
                 why->message);
    }
    return goes_on;
}

void trmi_elastic_close(trm_model *model) {
    trmi_elastic_model *e = model->elastic;
    if (e != NULL) {
        trm_comm_destroy(e->active);
        trmi_free(e->marked);
        trmi_free(e->kept);
        trmi_free(e);
        model->elastic = NULL;
    }
}

bool trmi_elastic_request_leave(trm_model *model) {
    trm_elastic_request_leave(model->elastic->job);
    return true;
}

bool trmi_elastic_is_spare(const trm_model *model) { return model->elastic->spare; }
