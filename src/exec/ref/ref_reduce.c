/* SPDX-License-Identifier: Apache-2.0 */
/* Reference kernels of reductions and their gradients. */
#include "exec/ref/ref.h"

#include "base/error.h"
#include "base/memory.h"

#include <math.h>

/* Returns the output element to which element `index` of x is added. */
static int64_t target_index(const trm_shape *x, uint32_t axes, int64_t index) {
    int64_t at[TRM_MAX_RANK], to = 0;
    trmi_ref_unravel(x, index, at);
    for (int32_t d = 0; d < x->rank; d++) {
        to = axes >> d & 1 ? to : to * x->dim[d] + at[d];
    }
    return to;
}

/* Computes the sums, or means, over the reduced axes, in double. */
static trm_status run_sums(const trmi_ref_args *args, bool mean, trm_error *err) {
    const trm_tensor *x = &args->inputs[0], *y = &args->outputs[0];
    int64_t count = trm_shape_count(&x->shape), outs = trm_shape_count(&y->shape);
    double *sum;
    TRMI_TRY(TRMI_NEW(err, sum, outs, "for a reference reduction"));
    for (int64_t i = 0; i < count; i++) {
        sum[target_index(&x->shape, args->attrs->reduce.axes, i)] += trmi_ref_get(x, i);
    }
    for (int64_t i = 0; i < outs; i++) {
        trmi_ref_set(y, i, mean ? sum[i] * (double)outs / (double)count : sum[i]);
    }
    trmi_free(sum);
    return TRM_OK;
}

trm_status trmi_ref_reduce_sum(const trmi_ref_args *args, trm_error *err) {
    return run_sums(args, false, err);
}
trm_status trmi_ref_reduce_mean(const trmi_ref_args *args, trm_error *err) {
    return run_sums(args, true, err);
}

/* Computes the maximum over the reduced axes; NaN if an element is NaN. */
trm_status trmi_ref_reduce_max(const trmi_ref_args *args, trm_error *err) {
    (void)err;
    const trm_tensor *x = &args->inputs[0], *y = &args->outputs[0];
    for (int64_t i = 0; i < trm_shape_count(&y->shape); i++) {
        trmi_ref_set(y, i, -INFINITY);
    }
    for (int64_t i = 0; i < trm_shape_count(&x->shape); i++) {
        int64_t to = target_index(&x->shape, args->attrs->reduce.axes, i);
        double value = trmi_ref_get(x, i);
        if (value > trmi_ref_get(y, to) || isnan(value)) {
            trmi_ref_set(y, to, value);
        }
    }
    return TRM_OK;
}

/* The gradient of a maximum goes to the elements that equal it, in equal parts: dy / (number of
 * equal elements). Other elements get 0. */
trm_status trmi_ref_reduce_max_grad(const trmi_ref_args *args, trm_error *err) {
    const trm_tensor *dy = &args->inputs[0], *x = &args->inputs[1], *y = &args->inputs[2];
    int64_t outs = trm_shape_count(&y->shape), count = trm_shape_count(&x->shape);
    uint32_t axes = args->attrs->reduce.axes;
    double *equal;
    TRMI_TRY(TRMI_NEW(err, equal, outs, "for a reference reduction"));
    for (int64_t i = 0; i < count; i++) {
        int64_t to = target_index(&x->shape, axes, i);
        equal[to] += trmi_ref_get(x, i) == trmi_ref_get(y, to);
    }
    for (int64_t i = 0; i < count; i++) {
        int64_t to = target_index(&x->shape, axes, i);
        bool wins = trmi_ref_get(x, i) == trmi_ref_get(y, to);
        trmi_ref_set(&args->outputs[0], i, wins ? trmi_ref_get(dy, to) / equal[to] : 0);
    }
    trmi_free(equal);
    return TRM_OK;
}
