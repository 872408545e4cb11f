/* SPDX-License-Identifier: Apache-2.0 */
/* Makes and runs the optimiser of an executor.
 *
 *      dense parameters   one pass over PARAM, GRAD and the slots, which have the same offsets
 *      tables             only the rows with gradients (exec/optimizer/update_sparse.c)
 *      factors            gradients kept as two matrices are multiplied inside the pass
 *                         (exec/optimizer/update_factors.c)
 *
 * The order of an update: norms of sparse gradients, dense pass, agreement of all ranks about
 * overflow, then rows of tables and publication of the new parameters. */
#include "exec/exec.h"

#include "base/arguments.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/os.h"
#include "comm/net/reserve.h"

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
    /* One segment for each parameter. */
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
    /* The accumulator lies in memory that other ranks reach, where there are other ranks. */
    if (p->training && exec->accumulate > 1) {
        size_t bytes = (size_t)p->arena_bytes[TRMI_ARENA_GRAD];
        void *memory = NULL;
        trm_status status = trmi_distribution_memory(exec, bytes, &memory, err);
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

trm_status trmi_exec_share_slots(trm_exec *exec, trm_error *err) {
    const int64_t slots = trmi_update_slots(exec->update);
    void *memory;
    if (!exec->lends_state || slots == 0 || trmi_update_bytes(exec->update) == 0) {
        return TRM_OK;
    }
    trm_status status = trmi_distribution_memory(
        exec, (size_t)slots * trmi_update_slot_stride(exec->update), &memory, err);
    if (status == TRM_OK) {
        trmi_update_lend_slots(exec->update, memory);
    }
    return status == TRM_UNSUPPORTED ? TRM_OK : status;
}

/* Handles the sparse gradients of all tables. `prepare` true: before the dense pass, merges equal
 * ids and adds to the gradient norm, so that clipping and the overflow check include them; false:
 * after the dense pass, updates the rows. */
static trm_status update_tables(trm_exec *exec, bool prepare, double learning_rate,
                                trm_error *err) {
    const trm_program *p = exec->program;
    for (int32_t i = 0; i < p->params_count; i++) {
        const trmi_param *param = &p->params[i];
        if (param->sparse_rows == 0) {
            continue;
        }
        const trmi_buffer *ids = &p->buffers[param->sparse_ids];
        const trmi_buffer *rows = &p->buffers[param->sparse_rows];
        const void *id_data = exec->env.arena[ids->arena] + ids->offset;
        const float *row_data = (const float *)(exec->env.arena[rows->arena] + rows->offset);
        int64_t count = trm_shape_count(&ids->shape);
        int64_t width = p->buffers[param->param_buffer].shape.dim[1];
        if (prepare) {
            TRMI_TRY(trmi_update_prepare(exec->update, i, id_data, ids->dtype, row_data, count,
                                         width, err));
        } else {
            TRMI_TRY(trmi_update_sparse(exec->update, (float *)exec->env.arena[TRMI_ARENA_PARAM], i,
                                        id_data, ids->dtype, row_data, count, width, learning_rate,
                                        exec->env.step + 1, err));
        }
    }
    return TRM_OK;
}

/* Passes the addresses of a parameter's gradient factors to the optimiser. */
bool trmi_exec_set_factors(const trm_exec *exec, int32_t parameter) {
    const trm_program *p = exec->program;
    const trmi_param *param = &p->params[parameter];
    const trmi_buffer *left = &p->buffers[param->factor_left],
                      *right = &p->buffers[param->factor_right];
    if (param->factor_left != 0) {
        trmi_update_factors(exec->update, parameter, exec->env.arena[left->arena] + left->offset,
                            exec->env.arena[right->arena] + right->offset, left->dtype);
    }
    return param->factor_left != 0;
}

/* Multiplies factors into GRAD, because the caller of trm_exec_ranges reads dense gradients there.
 * The optimiser then takes them from GRAD, too. */
void trmi_exec_multiply_factors(trm_exec *exec) {
    const trm_program *p = exec->program;
    for (int32_t i = 0; exec->gradients_handed_out && i < p->params_count; i++) {
        if (trmi_exec_set_factors(exec, i)) {
            const trmi_buffer *b = &p->buffers[p->params[i].param_buffer];
            trmi_update_product(exec->update, i,
                                (float *)(void *)(exec->env.arena[TRMI_ARENA_GRAD] + b->offset));
            trmi_update_factors(exec->update, i, NULL, NULL, TRM_FLOAT32);
        }
    }
}

/* Contract in trireme/exec.h. The gradients of tables are merged first, so that clipping and the
 * search for an overflow include them; then come the dense pass, which changes nothing if it finds
 * an overflow, and the rows of the tables. All ranks agree on an overflow, so that all skip the
 * step or none. */
trm_status trm_exec_update(trm_exec *exec, double learning_rate, trm_error *err) {
    TRMI_NEED(err, exec);
    if (!exec->program->training) {
        return TRMI_FAIL(err, TRM_INVALID, "update needs a training graph and a loss");
    }
    if (exec->updated_elsewhere) {
        return TRMI_FAIL(err, TRM_INVALID, "the parameters of this executor are updated elsewhere");
    }
    if (exec->accumulator != NULL && exec->accumulated != exec->accumulate) {
        return TRMI_FAIL(err, TRM_INVALID,
                         "update after %d of %d accumulated forward_backward calls",
                         exec->accumulated, exec->accumulate);
    }
    /* Dense pass. It returns DIVERGED, and has changed nothing, if a norm is not finite. */
    double begin = trmi_os_now();
    const float *gradients = exec->accumulator != NULL
                                 ? exec->accumulator
                                 : (const float *)exec->env.arena[TRMI_ARENA_GRAD];
    for (int32_t i = 0; i < exec->program->params_count && !exec->gradients_handed_out; i++) {
        (void)trmi_exec_set_factors(exec, i);
    }
    trm_status status = update_tables(exec, true, learning_rate, err);
    if (status == TRM_OK) {
        status = trmi_update_run(exec->update, (float *)exec->env.arena[TRMI_ARENA_PARAM],
                                 gradients, learning_rate, exec->env.step + 1, err);
    }
    /* An overflow of one rank is an overflow of all, so that all ranks skip or none. */
    bool overflow = status == TRM_DIVERGED;
    TRMI_TRY(trmi_distribution_agree(exec, &overflow, err));
    status = overflow && status == TRM_OK ? TRM_DIVERGED : status;
    bool skips = (status == TRM_OK || overflow) && trmi_exec_advance_loss_scale(exec, overflow);
    if (overflow && !skips) {
        return trmi_exec_find_nonfinite(exec, err);
    }
    if (!skips) {
        TRMI_TRY(status);
        TRMI_TRY(update_tables(exec, false, learning_rate, err));
        if (exec->watcher.updated != NULL) {
            exec->watcher.updated(exec->watcher.context, exec->env.step + 1);
        }
        TRMI_TRY(trmi_distribution_publish(exec, err));
    }
    exec->accumulated = 0;
    exec->env.step++;
    exec->step_seconds += trmi_os_now() - begin;
    return TRM_OK;
}
