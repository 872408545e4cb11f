/* SPDX-License-Identifier: Apache-2.0 */
/* The form of an EXCHANGE and its staging (exchange_form.h). */
#include "exec/exchange_form.h"

#include "exec/box_walk.h"
#include "plan/partition/partition.h"

#include "base/checked.h"

/* Returns whether `parts` are the whole box, cut along its outermost dimension in memory, in
 * order. */
static bool lie_in_order(const trmi_box *parts, int32_t count, const trmi_box *whole,
                         const int64_t *stride) {
    int32_t along = -1;
    for (int32_t d = 0; d < whole->rank; d++) {
        bool outer =
            whole->end[d] - whole->begin[d] > 1 && (along < 0 || stride[d] > stride[along]);
        along = outer ? d : along;
    }
    for (int32_t m = 0; along >= 0 && m < count; m++) {
        int64_t begin = m == 0 ? whole->begin[along] : parts[m - 1].end[along];
        for (int32_t d = 0; d < whole->rank; d++) {
            bool all = parts[m].begin[d] == whole->begin[d] && parts[m].end[d] == whole->end[d];
            bool fits = d == along ? parts[m].begin[d] == begin : all;
            if (parts[m].rank != whole->rank || !fits) {
                return false;
            }
        }
    }
    return along >= 0 && parts[count - 1].end[along] == whole->end[along];
}

/* Contract in exchange_form.h. */
trm_collective_kind trmi_exchange_collective(const trmi_box_exchange *what, const trmi_buffer *in,
                                             const trmi_buffer *out) {
    bool reduces = what->combine != TRMI_COMBINE_NONE;
    const trmi_box *one = reduces ? trmi_exchange_wants(what) : trmi_exchange_has(what),
                   *all = reduces ? trmi_exchange_has(what) : trmi_exchange_wants(what);
    int64_t stride[TRM_MAX_RANK];
    bool alike =
        in->layout == out->layout && in->weights == out->weights && in->dtype == out->dtype;
    if (alike && in->layout == TRMI_PLAIN && trmi_exchange_passes_on(what)) {
        return TRM_ALLTOALLV;
    }
    bool same = what->members > 1 && alike &&
                trmi_box_equal(&what->held, &trmi_exchange_has(what)[what->self]);
    for (int32_t m = 0; same && m < what->members; m++) {
        same = trmi_box_equal(&all[m], &all[0]);
    }
    if (!same || all[0].rank < 1) {
        return TRM_COLLECTIVE_NONE;
    }
    trmi_box_strides(&all[0], in->layout, in->weights, stride);
    return lie_in_order(one, what->members, &all[0], stride)
               ? (reduces ? TRM_REDUCE_SCATTERV : TRM_ALLGATHERV)
               : TRM_COLLECTIVE_NONE;
}

/* Counts the bytes that this rank packs for the other members, and receives from them. */
static void count_packed(const trmi_box_exchange *what, trm_dtype dtype, int64_t *send,
                         int64_t *recv) {
    trmi_box both;
    *send = *recv = 0;
    for (int32_t m = 0; m < what->members; m++) {
        if (m != what->self) {
            *send += trmi_box_intersect(&trmi_exchange_has(what)[what->self],
                                        &trmi_exchange_wants(what)[m], &both)
                         ? trmi_box_count(&both)
                         : 0;
            *recv += trmi_box_intersect(&trmi_exchange_has(what)[m],
                                        &trmi_exchange_wants(what)[what->self], &both)
                         ? trmi_box_count(&both)
                         : 0;
        }
    }
    *send *= (int64_t)trm_dtype_bytes(dtype);
    *recv *= (int64_t)trm_dtype_bytes(dtype);
}

/* Contract in exchange_form.h. */
void trmi_exchange_staging(const trm_program *program, bool ordered, int64_t *send, int64_t *recv) {
    *send = *recv = 0;
    for (int32_t i = 0; i < program->steps_count; i++) {
        const trmi_step *step = &program->steps[i];
        const trmi_buffer *in = &program->buffers[step->inputs[0]],
                          *out = &program->buffers[step->outputs[0]];
        bool exchange = step->kind == TRMI_STEP_OP && step->op_kind == TRMI_OP_EXCHANGE;
        /* a deterministic sum is packed, whatever its form (run_whole in communication.c) */
        bool adds =
            ordered && exchange && trmi_exchange_of(step->attrs)->combine == TRMI_COMBINE_SUM;
        if (exchange && (adds || trmi_exchange_collective(trmi_exchange_of(step->attrs), in, out) ==
                                     TRM_COLLECTIVE_NONE)) {
            int64_t sent, received;
            count_packed(trmi_exchange_of(step->attrs), in->dtype, &sent, &received);
            *send = trmi_max_i64(*send, sent);
            *recv = trmi_max_i64(*recv, received);
        }
    }
}
