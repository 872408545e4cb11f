/* SPDX-License-Identifier: Apache-2.0 */
/* A model becomes one of an elastic job: its options are checked, and its state is made (contracts
 * in rank_changes.h).
 *
 * A way of training is refused where it belongs to a number of ranks that a job cannot keep
 * (check_ways). Variables are numbered by the order of their names (trmi_elastic_sort), because
 * ranks that come later compile other programs, in which the same variables may lie in another
 * order. A process that makes its model alone, before it has joined, gets its ranks at the next
 * change. */
#include "train/elastic_state.h"

#include "base/error.h"
#include "base/log.h"
#include "base/memory.h"
#include "comm/rendezvous/elastic.h"
#include "exec/distributed/batches.h"

#include <stdlib.h>
#include <string.h>

bool trmi_elastic_takes(const trm_model_options *options) { return options->elastic != NULL; }

/* Fails where a way of training belongs to a number of ranks. */
static trm_status check_ways(const trm_model_options *o, trm_error *err) {
    const trm_parallel_options *p = &o->exec.parallel;
    const struct {
        bool asked;
        const char *what, *instead;
    } cannot[] = {{p->layerwise_count > 0, "layerwise parameters have other values on each of them",
                   "leave them out"},
                  {o->ps.client != NULL,
                   "a job of parameter servers goes on without its workers already",
                   "leave elastic out"}};
    for (size_t i = 0; i < sizeof cannot / sizeof cannot[0]; i++) {
        if (cannot[i].asked) {
            return TRMI_FAIL(err, TRM_INVALID,
                             "an elastic job changes its number of ranks, and %s; %s",
                             cannot[i].what, cannot[i].instead);
        }
    }
    return TRM_OK;
}

trm_status trmi_elastic_settle(trm_model *model, trm_error *err) {
    const trm_model_options *o = &model->options;
    const trm_parallel_options *p = &o->exec.parallel;
    if ((unsigned)o->elastic_batch > TRM_ELASTIC_BATCH_RANK) {
        return TRMI_FAIL(err, TRM_INVALID,
                         "elastic_batch: global or rank (found %d, expected 0 or 1)",
                         (int)o->elastic_batch);
    }
    TRMI_TRY(check_ways(o, err));
    trmi_elastic_model *e;
    TRMI_TRY(TRMI_NEW(err, e, 1, "for an elastic model"));
    model->elastic = e;
    e->job = o->elastic;
    e->begun_epoch = -1;
    e->asked = *p;
    TRMI_TRY(trmi_elastic_settle_norms(model, err));
    /* A process that comes later, or makes its model alone, has no other ranks yet. Where ranks
     * have died before the job began, those that are left may not divide a split graph, a pipeline
     * or groups of batch norm: they meet when they train, and some may be spare then
     * (check_joined). */
    const bool fewer = trmi_elastic_first_ranks(e->job) != trmi_model_size(model);
    if (trmi_model_comm(model) == NULL ||
        (fewer &&
         (p->split.kind != TRM_SPLIT_NONE || p->pipeline.stages > 1 || p->sync_batch_norm > 1))) {
        model->options.exec.parallel.comm = NULL;
        e->alone = fewer;
        return trmi_elastic_fit(model, 1, err);
    }
    trmi_elastic_share_state(model);
    return TRM_OK;
}

/* Contract in elastic_state.h. Where ranks die while models are made, each survivor makes its model
 * for itself, so that none waits for a collective of ranks that are gone. */
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
    *ranks = trmi_elastic_first_ranks(options->elastic);
    trmi_log(TRM_LOG_INFO, "train",
             "%s; this rank makes its model alone and meets the others when it trains",
             err->message);
    const trm_error cause = *err;
    return trmi_elastic_stand_alone(options->elastic, &cause, err);
}

/* A variable and its number. */
typedef struct named {
    const char *name;
    int32_t index;
} named;

/* Compares variables by name. */
static int compare_names(const void *a, const void *b) {
    return strcmp(((const named *)a)->name, ((const named *)b)->name);
}

/* Contract in elastic_state.h. `begins` are words in the whole state, variable after variable. */
trm_status trmi_elastic_sort(trmi_elastic_model *e, const trm_exec *exec, trm_error *err) {
    const int32_t count = trm_exec_variable_count(exec);
    int64_t bytes = 0;
    named *names;
    if (e->sorted == NULL) {
        TRMI_TRY(TRMI_NEW(err, e->sorted, count + 1, "for the variables of an elastic model"));
        TRMI_TRY(TRMI_NEW(err, e->order, count + 1, "for the variables of an elastic model"));
        TRMI_TRY(TRMI_NEW(err, e->begins, count + 1, "for the variables of an elastic model"));
        e->variables = count;
    }
    if (count != e->variables) {
        return TRMI_FAIL(err, TRM_IO,
                         "the program for this number of ranks has %d variables, not %d", count,
                         e->variables);
    }
    TRMI_TRY(TRMI_NEW(err, names, count + 1, "for the variables of an elastic model"));
    for (int32_t i = 0; i < count; i++) {
        names[i] = (named){trm_exec_variable(exec, i).name, i};
    }
    qsort(names, (size_t)count, sizeof *names, compare_names);
    e->marked_bytes = 0;
    for (int32_t k = 0; k < count; k++) {
        trm_variable v = trm_exec_variable(exec, names[k].index);
        const trm_tensor t = {.dtype = v.dtype, .shape = v.shape};
        e->sorted[k] = names[k].index;
        e->order[names[k].index] = k;
        e->begins[k] = bytes / 4;
        bytes += trm_tensor_bytes(&t);
        e->marked_bytes += v.kind == TRM_VARIABLE_STATE ? trm_tensor_bytes(&t) : 0;
    }
    e->kept_bytes = bytes;
    trmi_free(names);
    return TRM_OK;
}

/* Checks that a rank's part of a batch can be that of any number of ranks. */
static trm_status check_parts(const trmi_elastic_model *e, int32_t parts, trm_error *err) {
    const int64_t block = e->blocks > 0 ? e->samples / e->blocks : 1;
    if (e->samples % parts != 0) {
        return TRMI_FAIL(err, TRM_INVALID,
                         "elastic_batch rank: each rank keeps its part of a batch, and %d ranks do "
                         "not divide one of %lld samples",
                         parts, (long long)e->samples);
    }
    return e->rank_samples % block == 0
               ? TRM_OK
               : TRMI_FAIL(
                     err, TRM_INVALID,
                     "elastic_batch rank: each rank keeps its part of a batch, %lld samples, "
                     "which blocks of %lld do not divide; set deterministic_block to a divisor",
                     (long long)e->rank_samples, (long long)block);
}

/* Contract in elastic_state.h. The batch of the job stays that of the ranks with which it was to
 * begin. */
trm_status trmi_elastic_open(trm_model *model, int32_t alone, trm_error *err) {
    trmi_elastic_model *e = model->elastic;
    const trm_parallel_options *p = &model->options.exec.parallel;
    const trmi_batch_form form = trmi_batch_form_of(p);
    const int32_t begun = alone > 0 ? alone : trmi_elastic_first_ranks(e->job);
    const bool fewer = begun > 0 && begun != trmi_model_size(model); /* than the job was to have */
    const int32_t reads = fewer ? trmi_elastic_reads(e, begun) : form.reads;
    e->samples = model->train.batch * reads;
    const int32_t parts = fewer ? trmi_elastic_parts(e, begun) : form.ranks;
    e->rank_samples = e->samples / parts;
    int32_t blocks = model->train.blocks * (form.ranks / form.graph_ranks);
    if (fewer) { /* the block that is chosen depends on the batch of all ranks */
        TRMI_TRY(trmi_batches_blocks(p, e->samples, &blocks, err));
    }
    e->blocks = blocks;
    if (model->options.elastic_batch == TRM_ELASTIC_BATCH_RANK) {
        model->first_ranks = parts;
        TRMI_TRY(check_parts(e, parts, err));
    }
    TRMI_TRY(trmi_elastic_sort(e, model->train.exec, err));
    e->marked = trmi_alloc((size_t)e->marked_bytes);
    return e->marked != NULL ? TRM_OK : TRMI_NO_MEMORY(err, "for an elastic model");
}

bool trmi_elastic_puts_off(trm_status status, const trm_error *why) {
    const bool goes_on = trm_elastic_can_recover(status);
    if (goes_on) {
        trmi_log(TRM_LOG_INFO, "train", "%s; this rank meets the others when it trains",
                 why->message);
    }
    return goes_on;
}

/* Contract in elastic_state.h. The thread of the copy ends first. */
void trmi_elastic_close(trm_model *model) {
    trmi_elastic_model *e = model->elastic;
    if (e != NULL) {
        trmi_elastic_await_copy(e);
        trm_comm_destroy(e->active);
        trmi_free(e->marked);
        trmi_text_free(&e->described);
        trmi_elastic_drop_whole(e);
        trmi_free(e->sorted);
        trmi_free(e->order);
        trmi_free(e->begins);
        trmi_copies_close(&e->copies);
        trmi_free(e);
        model->elastic = NULL;
    }
}

bool trmi_elastic_request_leave(trm_model *model) {
    trm_elastic_request_leave(model->elastic->job);
    return true;
}

bool trmi_elastic_is_spare(const trm_model *model) { return model->elastic->spare; }
