/* SPDX-License-Identifier: Apache-2.0 */
/* Joins the results of an attention over some keys with those over others: the weights of both are
 * their shares of the sum over all keys (online softmax, Milakov and Gimelshein 2018). */
#include "exec/cpu/ops/ops.h"

#include "base/error.h"

#include <math.h>

typedef struct join_state {
    int64_t batch, rows, heads, width;
    bool half;
} join_state;

/* Computes y = share * a + (1 - share) * b. */
static void mix_rows(const join_state *s, const void *a, const void *b, void *y, int64_t at,
                     float share) {
    float other = 1 - share;
    if (s->half) {
        for (int64_t d = at; d < at + s->width; d++) {
            ((uint16_t *)y)[d] = trmi_float_to_bf16(share * trmi_load_float(a, d, true) +
                                                    other * trmi_load_float(b, d, true));
        }
        return;
    }
    for (int64_t d = at; d < at + s->width; d++) {
        ((float *)y)[d] = share * ((const float *)a)[d] + other * ((const float *)b)[d];
    }
}

/* Joins two results of attention over different keys: each counts by its share of the sum of all
 * exponentials, which follows from both log-sum-exps. */
static trm_status run_join(const trmi_kernel *k, const trmi_kernel_env *env, trm_error *err) {
    (void)err;
    const join_state *s = k->state;
    const void *a = trmi_kernel_input(k, env, 0), *b = trmi_kernel_input(k, env, 2);
    const float *sum_a = trmi_kernel_input(k, env, 1), *sum_b = trmi_kernel_input(k, env, 3);
    void *y = trmi_kernel_output(k, env, 0);
    float *sum = trmi_kernel_output(k, env, 1);
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < s->batch * s->rows; i++) {
        int64_t sample = i / s->rows, row = i % s->rows;
        for (int64_t h = 0; h < s->heads; h++) {
            int64_t at = (sample * s->heads + h) * s->rows + row;
            float most = fmaxf(sum_a[at], sum_b[at]), weight = expf(sum_a[at] - most),
                  total = weight + expf(sum_b[at] - most);
            mix_rows(s, a, b, y, (i * s->heads + h) * s->width, weight / total);
            sum[at] = most + logf(total);
        }
    }
    return TRM_OK;
}

bool trmi_onednn_attention_join_in_place(trmi_onednn *state, const trm_graph *graph,
                                         const trmi_op *op, int input) {
    (void)state;
    return (input == 0 || input == 2) &&
           trmi_input_of(graph, op, input)->dtype == trmi_output_of(graph, op, 0)->dtype;
}

/* Binds the fast kernel: [batch, rows, heads, width], both results and the output of one type. */
trm_status trmi_onednn_bind_attention_join(trmi_backend *backend, trmi_kernel *kernel,
                                           trm_error *err) {
    (void)backend;
    const trmi_buffer *y = trmi_kernel_output_buffer(kernel, 0);
    if ((y->dtype != TRM_FLOAT32 && y->dtype != TRM_BFLOAT16) ||
        trmi_kernel_input_buffer(kernel, 0)->dtype != y->dtype ||
        trmi_kernel_input_buffer(kernel, 2)->dtype != y->dtype) {
        return trmi_memory_unsupported(kernel, err);
    }
    join_state *s = trmi_memory_state(kernel, sizeof *s, err);
    if (s == NULL) {
        return TRM_NOMEM;
    }
    *s = (join_state){.batch = y->shape.dim[0],
                      .rows = y->shape.dim[1],
                      .heads = y->shape.dim[2],
                      .width = y->shape.dim[3],
                      .half = y->dtype == TRM_BFLOAT16};
    kernel->run = run_join;
    return TRM_OK;
}
