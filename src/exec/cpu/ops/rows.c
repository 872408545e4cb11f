/* SPDX-License-Identifier: Apache-2.0 */
/* Layer norm, RMS norm and rotary positions, row by row; the gradient of SwiGLU, by pieces.
 *
 * Sums for dgamma and dbeta: rows are cut into parts, by their number alone; each part has sums of
 * its own, which are added in order.
 *
 *   scratch:  [ part 0: dgamma, dbeta | part 1 ... ] */
#include "exec/cpu/ops/ops.h"
#include "exec/cpu/ops/memory_kernels.h"

#include "base/checked.h"
#include "base/element.h"
#include "base/error.h"

#include <math.h>
#include <string.h>

/* Elements of a task of SwiGLU; rows of a part at least, parts at most; columns in which the parts'
 * sums are added. */
enum { PIECE = 8192, PART_ROWS = 32, PARTS = 64, COLUMNS = 256 };

/* Filled by bind. */
typedef struct rows_state {
    const trmi_memory_kernels *kernels;
    int64_t rows, width, parts;
    bool half, centred;
    float epsilon;
    /* rotary: rows of one position, positions, and [positions, width / 2] cosines, then sines */
    int64_t each, positions;
    float turns[];
} rows_state;

/* Returns the parts of some rows. */
static int64_t parts_of(int64_t rows) {
    return trmi_max_i64(1, trmi_min_i64(PARTS, rows / PART_ROWS));
}

/* ---- norms ---- */

/* Runs a layer norm or RMS norm, and keeps mean and inverse deviation of each row for backward. */
static trm_status run_norm(const trmi_kernel *k, const trmi_kernel_env *env, trm_error *err) {
    (void)err;
    const rows_state *s = k->state;
    const trmi_row_norm n = {.gamma = trmi_kernel_input(k, env, 1),
                             .beta = s->centred ? trmi_kernel_input(k, env, 2) : NULL,
                             .width = s->width,
                             .half = s->half,
                             .epsilon = s->epsilon};
    const char *x = trmi_kernel_input(k, env, 0);
    char *y = trmi_kernel_output(k, env, 0);
    float *mean = s->centred ? trmi_kernel_output(k, env, 1) : NULL;
    float *inv = trmi_kernel_output(k, env, s->centred ? 2 : 1);
    int64_t bytes = s->width * (s->half ? 2 : 4);
#pragma omp parallel for schedule(static)
    for (int64_t r = 0; r < s->rows; r++) {
        s->kernels->row_norm(&n, x + r * bytes, y + r * bytes, s->centred ? mean + r : NULL,
                             inv + r);
    }
    return TRM_OK;
}

/* Sums of the parts, in order. */
static void add_parts(const rows_state *s, const float *sums, int vector, float *to) {
    int64_t stride = (s->centred ? 2 : 1) * s->width;
#pragma omp parallel for schedule(static)
    for (int64_t at = 0; at < s->width; at += COLUMNS) {
        int64_t n = trmi_min_i64(COLUMNS, s->width - at);
        memset(to + at, 0, (size_t)n * sizeof *to);
        s->kernels->sum_rows(to + at, sums + vector * s->width + at, stride, s->parts, n, false);
    }
}

/* Runs the gradient of a layer norm or RMS norm. Rows are divided into `parts` by their number
 * only; each part has its own sums of dgamma and dbeta, which add_parts adds in order, so that
 * the bits do not depend on the number of threads. */
static trm_status run_norm_grad(const trmi_kernel *k, const trmi_kernel_env *env, trm_error *err) {
    (void)err;
    const rows_state *s = k->state;
    const char *dy = trmi_kernel_input(k, env, 0), *x = trmi_kernel_input(k, env, 1);
    /* RMS norm has no mean and no dbeta */
    const float *mean = s->centred ? trmi_kernel_input(k, env, 3) : NULL;
    const float *inv = trmi_kernel_input(k, env, s->centred ? 4 : 3);
    char *dx = trmi_kernel_output(k, env, 0);
    float *sums = (float *)(void *)trmi_kernel_scratch(k, env);
    int64_t bytes = s->width * (s->half ? 2 : 4), vectors = s->centred ? 2 : 1;
#pragma omp parallel for schedule(static)
    for (int64_t part = 0; part < s->parts; part++) {
        float *own = sums + part * vectors * s->width;
        const trmi_row_norm n = {.gamma = trmi_kernel_input(k, env, 2),
                                 .width = s->width,
                                 .half = s->half,
                                 .dgamma = own,
                                 .dbeta = s->centred ? own + s->width : NULL};
        memset(own, 0, (size_t)(vectors * s->width) * sizeof *own);
        int64_t end = trmi_cut_at(s->rows, s->parts, part + 1);
        for (int64_t r = trmi_cut_at(s->rows, s->parts, part); r < end; r++) {
            s->kernels->row_norm_grad(&n, dy + r * bytes, x + r * bytes, dx + r * bytes,
                                      s->centred ? mean + r : NULL, inv[r]);
        }
    }
    for (int i = 0; i < vectors; i++) {
        add_parts(s, sums, i, trmi_kernel_output(k, env, 1 + i));
    }
    return TRM_OK;
}

int64_t trmi_onednn_row_norm_scratch(trmi_onednn *state, const trm_program *program,
                                     const trmi_step *step) {
    (void)state;
    bool gradient =
        step->op_kind == TRMI_OP_LAYER_NORM_GRAD || step->op_kind == TRMI_OP_RMS_NORM_GRAD;
    const trm_shape *x = &program->buffers[step->inputs[0]].shape;
    int64_t width = x->dim[x->rank - 1];
    return gradient ? 2 * 4 * width * parts_of(trm_shape_count(x) / width) : 0;
}

/* Binds layer norm, RMS norm or their gradients. The norm is over the last dimension; all others
 * together are the rows. */
trm_status trmi_onednn_bind_row_norm(trmi_backend *backend, trmi_kernel *kernel, trm_error *err) {
    (void)backend;
    trmi_op_kind kind = kernel->step->op_kind;
    bool gradient = kind == TRMI_OP_LAYER_NORM_GRAD || kind == TRMI_OP_RMS_NORM_GRAD;
    const trmi_buffer *x = trmi_kernel_input_buffer(kernel, 0);
    bool fast = trmi_dtype_is_fast(x->dtype);
    fast = fast && trmi_kernel_output_buffer(kernel, 0)->dtype == x->dtype;
    for (int i = 1; i < kernel->step->inputs_count; i++) { /* all but x and its gradients */
        fast = fast && trmi_kernel_input_buffer(kernel, i)->dtype ==
                           (gradient && i == 1 ? x->dtype : TRM_FLOAT32);
    }
    for (int i = 1; i < kernel->step->outputs_count; i++) {
        fast = fast && trmi_kernel_output_buffer(kernel, i)->dtype == TRM_FLOAT32;
    }
    if (!fast) {
        return trmi_memory_unsupported(kernel, err);
    }
    rows_state *s = trmi_memory_state(kernel, sizeof *s, err);
    if (s == NULL) {
        return TRM_NOMEM;
    }
    s->kernels = trmi_memory_kernels_best();
    s->width = x->shape.dim[x->shape.rank - 1];
    s->rows = trmi_of_block(kernel->step, trm_shape_count(&x->shape) / s->width);
    kernel->by_block = kernel->step->over_samples;
    s->parts = parts_of(s->rows);
    s->half = x->dtype == TRM_BFLOAT16;
    s->centred = kind == TRMI_OP_LAYER_NORM || kind == TRMI_OP_LAYER_NORM_GRAD;
    s->epsilon = (float)kernel->step->attrs->layer_norm.epsilon;
    kernel->run = gradient ? run_norm_grad : run_norm;
    return TRM_OK;
}

/* y over x, dx over dy or x: a row is read before its elements are written. */
bool trmi_onednn_row_norm_in_place(trmi_onednn *state, const trm_graph *graph, const trmi_op *op,
                                   int input) {
    (void)state;
    bool gradient = op->kind == TRMI_OP_LAYER_NORM_GRAD || op->kind == TRMI_OP_RMS_NORM_GRAD;
    return input < (gradient ? 2 : 1) &&
           trmi_input_of(graph, op, input)->dtype == trmi_output_of(graph, op, 0)->dtype;
}

/* ---- rotary positions ---- */

/* Turns pairs of elements by their position; in the gradient, back. Cosines and sines of the
 * positions are made at creation. */
static trm_status run_rotary(const trmi_kernel *k, const trmi_kernel_env *env, trm_error *err) {
    (void)err;
    const rows_state *s = k->state;
    const char *x = trmi_kernel_input(k, env, 0);
    char *y = trmi_kernel_output(k, env, 0);
    int64_t bytes = s->width * (s->half ? 2 : 4), half = s->width / 2;
    const float *sines = s->turns + s->positions * half;
#pragma omp parallel for schedule(static)
    for (int64_t r = 0; r < s->rows; r++) {
        int64_t at = r / s->each % s->positions * half;
        s->kernels->rotate(x + r * bytes, y + r * bytes, s->turns + at, sines + at, s->width,
                           s->half);
    }
    return TRM_OK;
}

/* Binds rotary position embedding (Su et al. 2021). Cosines and sines of all positions are
 * computed here, in double precision, so that a step only multiplies. The inverse rotation (the
 * gradient) has the other sign. */
trm_status trmi_onednn_bind_rotary(trmi_backend *backend, trmi_kernel *kernel, trm_error *err) {
    (void)backend;
    const trmi_buffer *x = trmi_kernel_input_buffer(kernel, 0);
    const trmi_attrs *a = kernel->step->attrs;
    if (!trmi_dtype_is_fast(x->dtype) || trmi_kernel_output_buffer(kernel, 0)->dtype != x->dtype) {
        return trmi_memory_unsupported(kernel, err);
    }
    int32_t rank = x->shape.rank;
    int64_t positions = x->shape.dim[1], width = x->shape.dim[rank - 1], half = width / 2;
    rows_state *s =
        trmi_memory_state(kernel, sizeof *s + (size_t)(positions * width) * sizeof(float), err);
    if (s == NULL) {
        return TRM_NOMEM;
    }
    s->kernels = trmi_memory_kernels_best();
    s->width = width;
    s->half = x->dtype == TRM_BFLOAT16;
    s->positions = positions;
    s->rows = width > 0 ? trm_shape_count(&x->shape) / width : 0;
    /* Rows of the same position follow each other, `each` at a time (heads). */
    s->each = 1;
    for (int32_t i = 2; i < rank - 1; i++) {
        s->each *= x->shape.dim[i];
    }
    /* Pair i of position t turns by t theta^(-2 i / width). Cosines first, then sines. */
    for (int64_t t = 0; t < positions; t++) {
        for (int64_t i = 0; i < half; i++) {
            double angle = (double)(a->rotary.begin + t) *
                           pow(a->rotary.theta, -2.0 * (double)i / (double)width);
            s->turns[t * half + i] = (float)cos(angle);
            s->turns[(positions + t) * half + i] =
                (float)(a->rotary.inverse ? -sin(angle) : sin(angle));
        }
    }
    kernel->run = run_rotary;
    return TRM_OK;
}

/* ---- gradient of SwiGLU ---- */

/* Computes both gradients of y = silu(gate) up from dy, gate and up, in one pass. */
static trm_status run_swiglu_grad(const trmi_kernel *k, const trmi_kernel_env *env,
                                  trm_error *err) {
    (void)err;
    const rows_state *s = k->state;
    const char *in[3];
    char *out[2];
    int64_t bytes = s->half ? 2 : 4;
    for (int i = 0; i < 3; i++) {
        in[i] = trmi_kernel_input(k, env, i);
    }
    for (int i = 0; i < 2; i++) {
        out[i] = trmi_kernel_output(k, env, i);
    }
#pragma omp parallel for schedule(static)
    for (int64_t at = 0; at < s->rows; at += PIECE) {
        s->kernels->swiglu_grad(in[0] + at * bytes, in[1] + at * bytes, in[2] + at * bytes,
                                out[0] + at * bytes, out[1] + at * bytes,
                                trmi_min_i64(PIECE, s->rows - at), s->half);
    }
    return TRM_OK;
}

/* Binds the gradient of SwiGLU; `rows` has its elements then, since rows do not matter. */
trm_status trmi_onednn_bind_swiglu_grad(trmi_backend *backend, trmi_kernel *kernel,
                                        trm_error *err) {
    (void)backend;
    const trmi_buffer *dy = trmi_kernel_input_buffer(kernel, 0);
    bool fast = trmi_dtype_is_fast(dy->dtype);
    for (int i = 1; i < 3; i++) {
        fast = fast && trmi_kernel_input_buffer(kernel, i)->dtype == dy->dtype;
    }
    rows_state *s = fast ? trmi_memory_state(kernel, sizeof *s, err) : NULL;
    if (s == NULL) {
        return fast ? TRM_NOMEM : trmi_memory_unsupported(kernel, err);
    }
    s->kernels = trmi_memory_kernels_best();
    s->rows = trm_shape_count(&dy->shape); /* elements */
    s->half = dy->dtype == TRM_BFLOAT16;
    kernel->run = run_swiglu_grad;
    return TRM_OK;
}
