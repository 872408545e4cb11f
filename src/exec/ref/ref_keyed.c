/* SPDX-License-Identifier: Apache-2.0 */
/* Reference kernels of KEYED_LINEAR (exec/cpu/ops/keyed.h) and its gradient. */
#include "exec/ref/ref.h"

#include "base/error.h"

/* Groups the samples of one field by id. out: number of groups, group of each sample, first sample
 * of each group, then zeros. */
static void group_ids(const trm_tensor *ids, int64_t field, int32_t *out) {
    int64_t samples = ids->shape.dim[0], fields = ids->shape.dim[1];
    int32_t *of = out + 1, *first = of + samples, count = 0;
    for (int64_t n = 0; n < samples; n++) {
        int32_t g = 0;
        while (g < count && trmi_ref_get_int(ids, first[g] * fields + field) !=
                                trmi_ref_get_int(ids, n * fields + field)) {
            g++;
        }
        if (g == count) {
            first[count++] = (int32_t)n;
        }
        of[n] = g;
    }
    for (int64_t g = count; g < samples; g++) {
        first[g] = 0;
    }
    out[0] = count;
}

/* Returns input `k` of sample n: first come the numbers of its rows, then its dense inputs. */
static double input_of(const trm_tensor *rows, const trm_tensor *dense, int64_t n, int64_t k) {
    int64_t own = rows->shape.dim[1] * rows->shape.dim[2];
    return k < own ? trmi_ref_get(rows, n * own + k)
                   : trmi_ref_get(dense, n * dense->shape.dim[1] + k - own);
}

/* Computes y = [relu] (W [rows of all fields, dense inputs] + bias). The second output has the
 * groups of equal ids (group_ids), for the gradient. */
trm_status trmi_ref_keyed_linear(const trmi_ref_args *args, trm_error *err) {
    (void)err;
    const trm_tensor *rows = &args->inputs[0], *ids = &args->inputs[1], *w = &args->inputs[2];
    const trm_tensor *dense = &args->inputs[3], *bias = &args->inputs[4], *y = &args->outputs[0];
    int64_t samples = rows->shape.dim[0], outputs = w->shape.dim[0], width = w->shape.dim[1];
    for (int64_t f = 0; args->outputs[1].data != NULL && f < ids->shape.dim[1]; f++) {
        group_ids(ids, f, (int32_t *)args->outputs[1].data + f * (2 * samples + 1));
    }
    for (int64_t n = 0; y->data != NULL && n < samples; n++) {
        for (int64_t o = 0; o < outputs; o++) {
            double sum = args->inputs_count > 4 && bias->data != NULL ? trmi_ref_get(bias, o) : 0;
            for (int64_t k = 0; k < width; k++) {
                sum += input_of(rows, dense, n, k) * trmi_ref_get(w, o * width + k);
            }
            trmi_ref_set(y, n * outputs + o, args->attrs->matmul.relu && sum < 0 ? 0 : sum);
        }
    }
    return TRM_OK;
}

/* Writes the gradient of a group's row, summed over its samples, at the first of them. */
static void rows_gradient(const trmi_ref_args *args, int64_t field, const int32_t *groups) {
    const trm_tensor *dy = &args->inputs[0], *w = &args->inputs[2], *out = &args->outputs[1];
    int64_t samples = out->shape.dim[0], fields = out->shape.dim[1], width = out->shape.dim[2];
    int64_t outputs = w->shape.dim[0], columns = w->shape.dim[1];
    const int32_t *of = groups + 1, *first = of + samples;
    for (int64_t n = 0; n < samples; n++) {
        for (int64_t d = 0; d < width; d++) {
            double sum = 0;
            for (int64_t m = n; first[of[n]] == n && m < samples; m++) {
                for (int64_t o = 0; of[m] == of[n] && o < outputs; o++) {
                    sum += trmi_ref_get(dy, m * outputs + o) *
                           trmi_ref_get(w, o * columns + field * width + d);
                }
            }
            trmi_ref_set(out, (n * fields + field) * width + d, sum);
        }
    }
}

/* Computes dW = dy^T [rows, dense], and the gradient of rows as a sum over the samples that share
 * an id. */
trm_status trmi_ref_keyed_linear_grad(const trmi_ref_args *args, trm_error *err) {
    (void)err;
    const trm_tensor *dy = &args->inputs[0], *rows = &args->inputs[1], *w = &args->inputs[2];
    const trm_tensor *dense = &args->inputs[3], *dw = &args->outputs[0];
    int64_t samples = rows->shape.dim[0], outputs = w->shape.dim[0], width = w->shape.dim[1];
    for (int64_t i = 0; dw->data != NULL && i < outputs * width; i++) {
        double sum = 0;
        for (int64_t n = 0; n < samples; n++) {
            sum += trmi_ref_get(dy, n * outputs + i / width) * input_of(rows, dense, n, i % width);
        }
        trmi_ref_set(dw, i, sum);
    }
    for (int64_t f = 0; args->outputs[1].data != NULL && f < rows->shape.dim[1]; f++) {
        rows_gradient(args, f, (const int32_t *)args->inputs[4].data + f * (2 * samples + 1));
    }
    return TRM_OK;
}
