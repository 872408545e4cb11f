/* SPDX-License-Identifier: Apache-2.0 */
/* Reference kernels of operators that only move elements: reshape, broadcast, transpose, concat,
 * slice, pad, one-hot.
 *
 * They define what the operators compute. Elements are moved as numbers through trmi_ref_get and
 * trmi_ref_set, so every type works, and an element is never rounded: it keeps its type. */
#include "exec/ref/ref.h"

trm_status trmi_ref_reshape(const trmi_ref_args *args, trm_error *err) {
    (void)err;
    for (int64_t i = 0; i < trm_shape_count(&args->outputs[0].shape); i++) {
        trmi_ref_set(&args->outputs[0], i, trmi_ref_get(&args->inputs[0], i));
    }
    return TRM_OK;
}

trm_status trmi_ref_broadcast(const trmi_ref_args *args, trm_error *err) {
    (void)err;
    const trm_tensor *x = &args->inputs[0], *y = &args->outputs[0];
    for (int64_t i = 0; i < trm_shape_count(&y->shape); i++) {
        int64_t at[TRM_MAX_RANK];
        trmi_ref_unravel(&y->shape, i, at);
        trmi_ref_set(y, i, trmi_ref_get(x, trmi_ref_broadcast_index(&x->shape, &y->shape, at)));
    }
    return TRM_OK;
}

/* Dimension d of y is dimension order[d] of x. */
trm_status trmi_ref_transpose(const trmi_ref_args *args, trm_error *err) {
    (void)err;
    const trm_tensor *x = &args->inputs[0], *y = &args->outputs[0];
    for (int64_t i = 0; i < trm_shape_count(&y->shape); i++) {
        int64_t to[TRM_MAX_RANK], from[TRM_MAX_RANK] = {0};
        trmi_ref_unravel(&y->shape, i, to);
        for (int32_t d = 0; d < y->shape.rank; d++) {
            from[args->attrs->transpose.order[d]] = to[d];
        }
        trmi_ref_set(y, i, trmi_ref_get(x, trmi_ref_ravel(&x->shape, from)));
    }
    return TRM_OK;
}

/* Writes the inputs one after the other along the axis. */
trm_status trmi_ref_concat(const trmi_ref_args *args, trm_error *err) {
    (void)err;
    const trm_tensor *y = &args->outputs[0];
    int32_t axis = args->attrs->concat.axis;
    int64_t begin = 0;
    for (int32_t j = 0; j < args->inputs_count; j++) {
        const trm_tensor *x = &args->inputs[j];
        for (int64_t i = 0; i < trm_shape_count(&x->shape); i++) {
            int64_t at[TRM_MAX_RANK];
            trmi_ref_unravel(&x->shape, i, at);
            at[axis] += begin;
            trmi_ref_set(y, trmi_ref_ravel(&y->shape, at), trmi_ref_get(x, i));
        }
        begin += x->shape.dim[axis];
    }
    return TRM_OK;
}

/* Copies the box that begins at `begin` and has the shape of y. */
trm_status trmi_ref_slice(const trmi_ref_args *args, trm_error *err) {
    (void)err;
    const trm_tensor *x = &args->inputs[0], *y = &args->outputs[0];
    for (int64_t i = 0; i < trm_shape_count(&y->shape); i++) {
        int64_t at[TRM_MAX_RANK];
        trmi_ref_unravel(&y->shape, i, at);
        for (int32_t d = 0; d < y->shape.rank; d++) {
            at[d] += args->attrs->slice.begin[d];
        }
        trmi_ref_set(y, i, trmi_ref_get(x, trmi_ref_ravel(&x->shape, at)));
    }
    return TRM_OK;
}

/* Places x at `before` in y and fills the rest with the value. */
trm_status trmi_ref_pad(const trmi_ref_args *args, trm_error *err) {
    (void)err;
    const trm_tensor *x = &args->inputs[0], *y = &args->outputs[0];
    for (int64_t i = 0; i < trm_shape_count(&y->shape); i++) {
        int64_t at[TRM_MAX_RANK];
        trmi_ref_unravel(&y->shape, i, at);
        bool inside = true;
        for (int32_t d = 0; d < y->shape.rank; d++) {
            at[d] -= args->attrs->pad.before[d];
            inside = inside && at[d] >= 0 && at[d] < x->shape.dim[d];
        }
        trmi_ref_set(
            y, i, inside ? trmi_ref_get(x, trmi_ref_ravel(&x->shape, at)) : args->attrs->pad.value);
    }
    return TRM_OK;
}

trm_status trmi_ref_one_hot(const trmi_ref_args *args, trm_error *err) {
    (void)err;
    int64_t classes = args->attrs->one_hot.classes;
    for (int64_t i = 0; i < trm_shape_count(&args->outputs[0].shape); i++) {
        bool hot = trmi_ref_get_int(&args->inputs[0], i / classes) ==
                   i % classes + trmi_part_of(args->attrs)->begin;
        trmi_ref_set(&args->outputs[0], i,
                     hot ? args->attrs->one_hot.on : args->attrs->one_hot.off);
    }
    return TRM_OK;
}
