/* SPDX-License-Identifier: Apache-2.0 */
/* Makes the optimiser of an executor, with a segment for each parameter that it trains
 * (exec/optimizer/update.h), and the accumulator of several batches. trm_exec_update in exec.c runs
 * the optimiser:
 *
 *      dense parameters   one pass over PARAM, GRAD and the slots, which have the same offsets
 *      tables             only the rows with gradients (exec/optimizer/update_sparse.c)
 *      factors            gradients kept as two matrices are multiplied inside the pass
 *                         (exec/optimizer/update_factors.c) */
#include "exec/exec.h"

#include "base/error.h"
#include "base/memory.h"
#include "comm/shm/shared_buffers.h"

/* Returns whether a buffer is scale or shift of a batch norm; decay_biases excludes those. */
static bool is_of_norm(const trm_program *p, int32_t buffer) {
    for (int32_t i = 0; i < p->steps_count; i++) {
        const trmi_step *s = &p->steps[i];
        bool norm = s->kind == TRMI_STEP_OP &&
                    (s->op_kind == TRMI_OP_BATCH_NORM || s->op_kind == TRMI_OP_NORM_ACT);
        if (norm && (s->inputs[1] == buffer || s->inputs[2] == buffer)) {
            return true;
        }
    }
    return false;
}

bool trmi_exec_decays(const trm_program *p, int32_t param, const trm_optimizer_options *options) {
    const trmi_buffer *b = &p->buffers[p->params[param].param_buffer];
    const trmi_partition_leaf *leaf = trmi_program_leaf(p, b->name);
    int32_t rank = leaf != NULL ? leaf->shape.rank : b->shape.rank; /* that the caller sees */
    return options->decay_all || (rank > 1 && !p->params[param].undecayed) ||
           (options->decay_biases && !is_of_norm(p, p->params[param].param_buffer));
}

/* Makes the optimiser, with a segment for each parameter that is not frozen, and the accumulator
 * where several batches are accumulated. Segments state what the optimiser needs beside offset and
 * size: weight decay (by default only for matrices and filters), table, factors. */
trm_status trmi_exec_make_update(trm_exec *exec, trm_error *err) {
    const trm_program *p = exec->program;
    int64_t count = p->arena_bytes[TRMI_ARENA_GRAD] / (int64_t)sizeof(float);
    if (exec->updated_elsewhere) {
        count = 0;
        exec->optimizer = (trm_optimizer_options){.kind = TRM_SGD}; /* no slots */
    }
    int32_t segments_count = count > 0 ? p->trained_count : 0;
    trmi_update_segment *segments;
    TRMI_TRY(TRMI_NEW_IN(err, &exec->memory, segments, segments_count + 1, "for the optimiser"));
    /* Make one segment for each parameter. */
    for (int32_t i = 0; i < segments_count; i++) {
        const trmi_buffer *b = &p->buffers[p->params[i].param_buffer];
        segments[i] = (trmi_update_segment){
            .offset = b->offset / (int64_t)sizeof(float),
            .count = b->bytes / (int64_t)sizeof(float),
            .decay = trmi_exec_decays(p, i, &exec->optimizer),
            .sparse = p->params[i].sparse_rows != 0 || p->params[i].remote,
            .rows = p->params[i].sparse_rows != 0
                        ? trm_shape_count(&p->buffers[p->params[i].sparse_ids].shape)
                        : 0,
            .width = p->params[i].sparse_rows != 0 ? b->shape.dim[1] : 0,
            .table_width = p->params[i].table ? b->shape.dim[1] : 0,
            .factors = p->params[i].factor_left != 0
                           ? trmi_as_rows(&p->buffers[p->params[i].factor_left].shape).dim[0]
                           : 0,
            .columns = b->shape.rank == 2 ? b->shape.dim[1] : 0,
        };
    }
    TRMI_TRY(
        trmi_update_create(&exec->optimizer, segments, segments_count, count, &exec->update, err));
    for (int32_t i = 0; i < segments_count; i++) {
        if (segments[i].factors > 0) {
            const trmi_buffer *left = &p->buffers[p->params[i].factor_left],
                              *right = &p->buffers[p->params[i].factor_right];
            trmi_update_factors(exec->update, i, exec->env.arena[left->arena] + left->offset,
                                exec->env.arena[right->arena] + right->offset, left->dtype);
        }
    }
    /* The accumulator lies in memory that other ranks reach, where there are other ranks. */
    if (p->training && exec->accumulate > 1) {
        size_t bytes = (size_t)p->arena_bytes[TRMI_ARENA_GRAD];
        void *memory = NULL;
        trm_status status = trmi_distribution_memory(exec, TRMI_ARENA_NONE, bytes, &memory, err);
        if (status == TRM_OK) {
            trmi_comm_fill_shared(memory, trmi_shared_resident(bytes));
        }
        exec->owns_accumulator = status == TRM_UNSUPPORTED;
        exec->accumulator = exec->owns_accumulator ? trmi_alloc(bytes) : memory;
        if (exec->accumulator == NULL) {
            return TRMI_NO_MEMORY(err, "to accumulate %.1f MB of gradients",
                                  (double)p->arena_bytes[TRMI_ARENA_GRAD] / 1e6);
        }
    }
    return TRM_OK;
}

void trmi_exec_accumulate(trm_exec *exec, int64_t begin, int64_t count) {
    const float *gradients = (const float *)(const void *)exec->env.arena[TRMI_ARENA_GRAD];
    trmi_update_accumulate(exec->accumulator + begin, gradients + begin, count,
                           1.0f / (float)exec->accumulate, exec->accumulated == 0);
}

trm_status trmi_exec_share_slots(trm_exec *exec, trm_error *err) {
    void *memory;
    if (!exec->lends_state || trmi_update_bytes(exec->update) == 0) {
        return TRM_OK;
    }
    trm_status status = trmi_distribution_memory(
        exec, TRMI_ARENA_NONE, trmi_update_lent_bytes(exec->update), &memory, err);
    if (status == TRM_OK) {
        trmi_update_lend_slots(exec->update, memory);
    }
    return status == TRM_UNSUPPORTED ? TRM_OK : status;
}
