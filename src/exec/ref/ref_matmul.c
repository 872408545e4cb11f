/* SPDX-License-Identifier: Apache-2.0 */
/* Reference kernels of LINEAR and MATMUL. */
#include "exec/ref/ref.h"

#include "graph/rows.h"

/* y = [relu] (x W^T + bias). `inputs_first`: W is stored as [inputs, outputs]. */
trm_status trmi_ref_linear(const trmi_ref_args *args, trm_error *err) {
    (void)err;
    const trm_tensor *x = &args->inputs[0], *w = &args->inputs[1], *y = &args->outputs[0];
    const trm_tensor *bias = args->inputs_count > 2 ? &args->inputs[2] : NULL;
    bool inputs_first = args->attrs->matmul.inputs_first;
    int64_t in = w->shape.dim[inputs_first ? 0 : 1],
            out = in > 0 ? trm_shape_count(&w->shape) / in : 0;
    int64_t rows = trm_shape_count(&y->shape) / (out > 0 ? out : 1);
    for (int64_t r = 0; r < rows; r++) {
        for (int64_t o = 0; o < out; o++) {
            double sum = bias != NULL && bias->data != NULL ? trmi_ref_get(bias, o) : 0;
            for (int64_t i = 0; i < in; i++) {
                sum += trmi_ref_get(x, r * in + i) *
                       trmi_ref_get(w, inputs_first ? i * out + o : o * in + i);
            }
            trmi_ref_set(y, r * out + o, args->attrs->matmul.relu && sum < 0 ? 0 : sum);
        }
    }
    return TRM_OK;
}

/* Computes C = A B, with transposes, over batches; `rows`: all leading dimensions of A are rows
 * of one product, whose columns may begin at `begin` (a part of a cut weight). With a third
 * input, outputs are zero where that is not positive: the gradient of a ReLU. */
trm_status trmi_ref_matmul(const trmi_ref_args *args, trm_error *err) {
    (void)err;
    const trm_tensor *a = &args->inputs[0], *b = &args->inputs[1], *c = &args->outputs[0];
    bool ta = args->attrs->matmul.transpose_a, tb = args->attrs->matmul.transpose_b;
    int32_t rank = c->shape.rank;
    int64_t m = c->shape.dim[rank - 2], n = c->shape.dim[rank - 1], batch = 1;
    for (int32_t i = 0; i < rank - 2; i++) {
        batch *= c->shape.dim[i];
    }
    int64_t k = a->shape.dim[ta ? rank - 2 : rank - 1];
    int64_t width = b->shape.dim[tb ? rank - 2 : rank - 1], first = args->attrs->matmul.begin;
    if (args->attrs->matmul.rows) {
        trmi_matmul_extents all = trmi_rows_of(args->attrs, &a->shape, &b->shape);
        m = all.m, k = all.k, width = all.n, batch = 1;
        n = args->attrs->matmul.columns > 0 ? args->attrs->matmul.columns : all.n;
    }
    const trm_tensor *y = args->inputs_count > 2 ? &args->inputs[2] : NULL; /* of a ReLU */
    for (int64_t s = 0; s < batch; s++) {
        for (int64_t i = 0; i < m; i++) {
            for (int64_t j = 0; j < n; j++) {
                double sum = 0;
                for (int64_t p = 0; p < k; p++) {
                    sum += trmi_ref_get(a, s * m * k + (ta ? p * m + i : i * k + p)) *
                           trmi_ref_get(b, s * k * width +
                                               (tb ? (first + j) * k + p : p * width + first + j));
                }
                int64_t at = (s * m + i) * n + j;
                bool closed = y != NULL && y->data != NULL && trmi_ref_get(y, at) <= 0;
                trmi_ref_set(c, at, closed ? 0 : sum);
            }
        }
    }
    return TRM_OK;
}
