/* SPDX-License-Identifier: Apache-2.0 */
/* Softmax and the fused losses (cross-entropy of softmax and of sigmoid). A row is a sample; rows
 * are shared by the threads. Sums over rows are added in double in the order of the rows, so they
 * have the same bits for any number of threads. A split program may hold a part of the classes, or
 * of the samples; then a few numbers a row, or the total, are exchanged. */
#include "exec/cpu/ops/ops.h"
#include "exec/cpu/ops/memory_kernels.h"
#include "exec/class_labels.h"

#include "base/element.h"
#include "base/error.h"
#include "base/format/half.h"

#include <math.h>

/* Elements of a task of the sigmoid loss; each task has one partial sum. */
enum { PIECE = 8192 };

/* Sizes of the logits, fixed when the kernel is bound. */
typedef struct loss_state {
    const trmi_memory_kernels *kernels;
    int64_t rows, classes; /* classes: of a row, the last dimension */
    bool half;             /* bfloat16; else float32 */
} loss_state;

/* Returns the address of a row. */
static const char *row_of(const loss_state *s, const void *base, int64_t row) {
    return (const char *)base + row * s->classes * (s->half ? 2 : 4);
}

/* ---- softmax --------------------------------------------------------------------------------- */

/* Computes a softmax over the last dimension, or its gradient. */
static trm_status run_softmax(const trmi_kernel *k, const trmi_kernel_env *env, trm_error *err) {
    (void)err;
    const loss_state *s = k->state;
    const void *a = trmi_kernel_input(k, env, 0), *b = trmi_kernel_input(k, env, 1);
    void *out = trmi_kernel_output(k, env, 0);
    bool gradient = k->step->op_kind == TRMI_OP_SOFTMAX_GRAD;
#pragma omp parallel for schedule(static)
    for (int64_t r = 0; r < s->rows; r++) {
        char *to = (char *)out + r * s->classes * (s->half ? 2 : 4);
        if (gradient) {
            s->kernels->softmax_grad(row_of(s, a, r), row_of(s, b, r), to, s->classes, s->half);
        } else {
            s->kernels->softmax(row_of(s, a, r), to, s->classes, s->half);
        }
    }
    return TRM_OK;
}

/* ---- softmax cross-entropy ------------------------------------------------------------------- */

/* Returns the column of a label among this rank's classes; -1: another rank has it. */
static int64_t column_of(const loss_state *s, const trmi_attrs *a, int32_t label) {
    int64_t column = (int64_t)label - trmi_part_of(a)->begin;
    return column >= 0 && column < s->classes ? column : -1;
}

/* Checks all labels and counts those that are not ignored.   errors  INVALID: a label */
static trm_status check_labels(const loss_state *s, const trmi_attrs *a, const int32_t *labels,
                               int64_t *counted, trm_error *err) {
    *counted = 0;
    for (int64_t r = 0; r < s->rows; r++) {
        TRMI_TRY(trmi_check_label(a, labels[r], r, trmi_all_classes(a, s->classes), err));
        *counted += !trmi_label_is_ignored(a, labels[r]);
    }
    return TRM_OK;
}

enum { PER_ROW = 3 }; /* log of the sum of exponentials, the label's logit, the sum of logits */

/* Computes the PER_ROW numbers of each row over this rank's columns. */
static void row_numbers(const loss_state *s, const trmi_attrs *a, const void *z,
                        const int32_t *labels, double *numbers) {
#pragma omp parallel for schedule(static)
    for (int64_t r = 0; r < s->rows; r++) {
        const char *row = row_of(s, z, r);
        double *of = numbers + PER_ROW * r;
        int64_t column = trmi_label_is_ignored(a, labels[r]) ? -1 : column_of(s, a, labels[r]);
        of[0] = (double)s->kernels->log_sum_exp(row, s->classes, s->half);
        of[1] = column >= 0 ? (double)trmi_load_float(row, column, s->half) : 0;
        of[2] = a->xent.label_smoothing > 0
                    ? (double)s->kernels->fold_run(row, s->classes, s->half, TRMI_REDUCE_SUM_OF)
                    : 0;
    }
}

/* Combines the numbers of each row over the ranks that hold the other classes, in rank order. */
static trm_status join_classes(const loss_state *s, trmi_norm_sync *sync, double *numbers,
                               trm_error *err) {
    const double *all;
    int64_t count = PER_ROW * s->rows;
    TRMI_TRY(sync->gather(sync, numbers, count, &all, err));
    for (int64_t r = 0; r < s->rows; r++) {
        double *of = numbers + PER_ROW * r, most = -INFINITY, sum = 0;
        of[1] = of[2] = 0;
        for (int32_t m = 0; m < sync->size; m++) {
            most = fmax(most, all[m * count + PER_ROW * r]);
        }
        for (int32_t m = 0; m < sync->size; m++) {
            const double *part = all + m * count + PER_ROW * r;
            sum += exp(part[0] - most);
            of[1] += part[1];
            of[2] += part[2];
        }
        of[0] = most + log(sum);
    }
    return TRM_OK;
}

/* Adds up the losses of rows [begin, end). */
static double add_losses(const loss_state *s, const trmi_attrs *a, const int32_t *labels,
                         const double *numbers, int64_t begin, int64_t end) {
    double total = 0, smoothing = a->xent.label_smoothing;
    for (int64_t r = begin; r < end; r++) {
        const double *of = numbers + PER_ROW * r;
        if (!trmi_label_is_ignored(a, labels[r])) {
            total += of[0] - (1 - smoothing) * of[1] -
                     smoothing * of[2] / (double)trmi_all_classes(a, s->classes);
        }
    }
    return total;
}

/* Adds up losses (sums[0]) and counted labels (sums[1]) of all ranks; in strict mode each rank
 * contributes one pair for each of its blocks of samples. */
static trm_status join_samples(const loss_state *s, const trmi_attrs *a, const int32_t *labels,
                               const double *numbers, trmi_norm_sync *sync, double sums[2],
                               trm_error *err) {
    int32_t blocks = sync->blocks > 0 ? sync->blocks : 1;
    double *own = sync->blocks > 0 ? sync->values : sums;
    const double *all;
    for (int32_t b = 0; b < blocks; b++) {
        int64_t begin = s->rows / blocks * b,
                end = b + 1 == blocks ? s->rows : begin + s->rows / blocks;
        own[2 * b] = add_losses(s, a, labels, numbers, begin, end);
        own[2 * b + 1] = 0;
        for (int64_t r = begin; r < end; r++) {
            own[2 * b + 1] += !trmi_label_is_ignored(a, labels[r]);
        }
    }
    TRMI_TRY(sync->gather(sync, own, 2, &all, err));
    sums[0] = sums[1] = 0;
    for (int32_t m = 0; m < sync->size; m++) {
        sums[0] += all[2 * m];
        sums[1] += all[2 * m + 1];
    }
    return TRM_OK;
}

/* Returns the ranks or blocks whose samples are joined; NULL: none. */
static trmi_norm_sync *sync_of(const trmi_attrs *a, const trmi_kernel_env *env) {
    return trmi_samples_sync(env->block_sync, env->sync, trmi_part_of(a)->sample_axes);
}

/* Computes the mean loss, the log-sum-exp of each row and the weight of a sample, for backward. */
static trm_status run_xent(const trmi_kernel *k, const trmi_kernel_env *env, trm_error *err) {
    const loss_state *s = k->state;
    const trmi_attrs *a = k->step->attrs;
    const int32_t *labels = trmi_kernel_input(k, env, 1);
    float *loss = trmi_kernel_output(k, env, 0), *lse = trmi_kernel_output(k, env, 1);
    float *weight = trmi_kernel_output(k, env, 2);
    double *numbers = (double *)(void *)trmi_kernel_scratch(k, env);
    const trmi_op_part *part = trmi_part_of(a);
    trmi_norm_sync *sync = sync_of(a, env);
    int64_t labelled;
    /* Compute the log-sum-exp and the logit of the label of each row, over the classes of this
     * rank, then over all. */
    TRMI_TRY(check_labels(s, a, labels, &labelled, err));
    row_numbers(s, a, trmi_kernel_input(k, env, 0), labels, numbers);
    if (part->class_axes != 0) {
        TRMI_TRY(join_classes(s, env->sync[part->class_axes], numbers, err));
    }
    for (int64_t r = 0; lse != NULL && r < s->rows; r++) {
        lse[r] = (float)numbers[PER_ROW * r];
    }
    /* The loss is the sum over the rows of all ranks, divided by the labels that count. */
    double sums[2] = {add_losses(s, a, labels, numbers, 0, s->rows), (double)labelled};
    if (sync != NULL) {
        TRMI_TRY(join_samples(s, a, labels, numbers, sync, sums, err));
    }
    double by = sums[1] > 0 ? 1.0 / sums[1] : 0;
    if (loss != NULL) {
        *loss = (float)(sums[0] * by);
    }
    if (weight != NULL) {
        *weight = (float)(part->count > 0 ? 1.0 / (double)part->count : by);
    }
    return TRM_OK;
}

/* Computes dz = scale * (softmax(z) - target) row by row, where scale is d(loss) over the number
 * of rows that count. The row's kernel treats all classes as wrong ones; the label's element is
 * corrected afterwards. A row without a label here (ignored, or its class is on another rank)
 * keeps that. */
static trm_status run_xent_grad(const trmi_kernel *k, const trmi_kernel_env *env, trm_error *err) {
    (void)err;
    const loss_state *s = k->state;
    const trmi_attrs *a = k->step->attrs;
    const void *z = trmi_kernel_input(k, env, 1);
    const int32_t *labels = trmi_kernel_input(k, env, 2);
    const float *lse = trmi_kernel_input(k, env, 3);
    /* the gradient of the loss times 1 / rows that count */
    float scale =
        *(const float *)trmi_kernel_input(k, env, 0) * *(const float *)trmi_kernel_input(k, env, 4);
    float smoothing = (float)a->xent.label_smoothing,
          off = smoothing / (float)trmi_all_classes(a, s->classes);
    void *dz = trmi_kernel_output(k, env, 0);
#pragma omp parallel for schedule(static)
    for (int64_t r = 0; r < s->rows; r++) {
        char *to = (char *)dz + r * s->classes * (s->half ? 2 : 4);
        bool skip = trmi_label_is_ignored(a, labels[r]);
        int64_t label = skip ? -1 : column_of(s, a, labels[r]);
        /* dz may overwrite z: read the label's logit first */
        float at = label < 0 ? 0 : trmi_load_float(row_of(s, z, r), label, s->half);
        s->kernels->xent_grad(row_of(s, z, r), to, s->classes, s->half, lse[r], skip ? 0 : scale,
                              off);
        if (label >= 0) {
            float p = expf(at - lse[r]);
            float value = scale * (p - off - (1 - smoothing));
            if (s->half) {
                ((uint16_t *)(void *)to)[label] = trmi_float_to_bf16(value);
            } else {
                ((float *)(void *)to)[label] = value;
            }
        }
    }
    return TRM_OK;
}

/* ---- binary cross-entropy -------------------------------------------------------------------- */

/* Returns the elements of a block of samples, or all. */
static int64_t elements_together(const loss_state *s, int32_t blocks) {
    return s->rows * s->classes / (blocks > 0 ? blocks : 1);
}

/* Computes the mean binary cross-entropy of logits. Sums are made in pieces of fixed length,
 * whatever the number of threads, and added in order; in strict mode each block of samples has
 * its own sum, and the blocks of all ranks are gathered before they are added. */
static trm_status run_bce(const trmi_kernel *k, const trmi_kernel_env *env, trm_error *err) {
    const loss_state *s = k->state;
    trmi_norm_sync *sync = env->block_sync[0];
    int32_t blocks = sync != NULL ? sync->blocks : 1, size = sync != NULL ? sync->size : 1;
    int64_t count = elements_together(s, blocks), pieces = (count + PIECE - 1) / PIECE,
            bytes = s->half ? 2 : 4;
    const char *z = trmi_kernel_input(k, env, 0), *t = trmi_kernel_input(k, env, 1);
    double *partial = (double *)(void *)trmi_kernel_scratch(k, env), total = 0;
    const double *all = partial + blocks * pieces;
#pragma omp parallel for schedule(static)
    for (int64_t p = 0; p < blocks * pieces; p++) {
        int64_t in = p % pieces * PIECE, at = p / pieces * count + in,
                n = count - in < PIECE ? count - in : PIECE;
        partial[p] = s->kernels->bce(z + at * bytes, t + at * bytes, n, s->half);
    }
    /* Sum each block, in the order of its pieces. */
    for (int32_t b = 0; b < blocks; b++) {
        double sum = 0;
        for (int64_t p = 0; p < pieces; p++) {
            sum += partial[b * pieces + p];
        }
        partial[blocks * pieces + b] = sum;
    }
    /* all ranks add the sums of all blocks in the same order */
    if (sync != NULL) {
        TRMI_TRY(sync->gather(sync, all, 1, &all, err));
    }
    for (int32_t b = 0; b < size; b++) {
        total += all[b];
    }
    *(float *)trmi_kernel_output(k, env, 0) =
        count > 0 ? (float)(total / (double)(count * size)) : 0;
    return TRM_OK;
}

/* Computes dz = d(loss) (sigmoid(z) - t) / count, where count is of the batch of all ranks if
 * the loss is. */
static trm_status run_bce_grad(const trmi_kernel *k, const trmi_kernel_env *env, trm_error *err) {
    (void)err;
    const loss_state *s = k->state;
    int64_t count = s->rows * s->classes, bytes = s->half ? 2 : 4,
            whole = trmi_part_of(k->step->attrs)->count > 0 ? trmi_part_of(k->step->attrs)->count
                                                            : count;
    const trmi_norm_sync *sync = env->block_sync[0];
    if (sync != NULL &&
        trmi_part_of(k->step->attrs)->count == 0) { /* over the blocks of all ranks */
        whole = elements_together(s, sync->blocks) * sync->size;
    }
    float scale = *(const float *)trmi_kernel_input(k, env, 0) / (float)(whole > 0 ? whole : 1);
    const char *z = trmi_kernel_input(k, env, 1), *t = trmi_kernel_input(k, env, 2);
    char *dz = trmi_kernel_output(k, env, 0);
#pragma omp parallel for schedule(static)
    for (int64_t at = 0; at < count; at += PIECE) {
        int64_t n = count - at < PIECE ? count - at : PIECE;
        s->kernels->bce_grad(z + at * bytes, t + at * bytes, dz + at * bytes, n, s->half, scale);
    }
    return TRM_OK;
}

/* ---- bind ------------------------------------------------------------------------------------ */

int64_t trmi_onednn_loss_scratch(trmi_onednn *state, const trm_program *program,
                                 const trmi_step *step) {
    (void)state;
    int64_t blocks = step->blocks > 0 ? step->blocks : 1;
    const trm_shape *z = &program->buffers[step->inputs[0]].shape;
    int64_t sums = step->op_kind == TRMI_OP_SOFTMAX_XENT ? PER_ROW * z->dim[0]
                   : step->op_kind == TRMI_OP_BCE_LOGITS ? trm_shape_count(z) / PIECE + 2 * blocks
                                                         : 0;
    return sums * (int64_t)sizeof(double);
}

/* dx may overwrite dy or y, y may overwrite x, dz may overwrite the logits: each element of a row
 * is written after its last read. */
bool trmi_onednn_loss_in_place(trmi_onednn *state, const trm_graph *graph, const trmi_op *op,
                               int input) {
    (void)state;
    bool floats = trmi_input_of(graph, op, input)->dtype == trmi_output_of(graph, op, 0)->dtype;
    switch (op->kind) {
    case TRMI_OP_SOFTMAX:
    case TRMI_OP_SOFTMAX_GRAD: return floats;
    case TRMI_OP_SOFTMAX_XENT_GRAD: return floats && input == 1;
    case TRMI_OP_BCE_LOGITS_GRAD: return floats && input >= 1;
    default: return false;
    }
}

typedef trm_status (*run_function)(const trmi_kernel *, const trmi_kernel_env *, trm_error *);
/* Returns the function that runs an operator of this file. */
static run_function run_of(trmi_op_kind kind) {
    switch (kind) {
    case TRMI_OP_SOFTMAX_XENT: return run_xent;
    case TRMI_OP_SOFTMAX_XENT_GRAD: return run_xent_grad;
    case TRMI_OP_BCE_LOGITS: return run_bce;
    case TRMI_OP_BCE_LOGITS_GRAD: return run_bce_grad;
    default: return run_softmax;
    }
}

/* Binds the kernel of a loss or softmax. Gradients have d(loss) as input 0 and z as input 1;
 * forward operators have z as input 0. */
trm_status trmi_onednn_bind_loss(trmi_backend *backend, trmi_kernel *kernel, trm_error *err) {
    (void)backend;
    trmi_op_kind kind = kernel->step->op_kind;
    bool second = kind == TRMI_OP_SOFTMAX_XENT_GRAD || kind == TRMI_OP_BCE_LOGITS_GRAD ||
                  kind == TRMI_OP_SOFTMAX_GRAD;
    const trmi_buffer *z = trmi_kernel_input_buffer(kernel, second ? 1 : 0);
    bool fast = trmi_dtype_is_fast(z->dtype);
    /* tensors as large as z must have its type; losses and sums are float32 */
    bool xent = kind == TRMI_OP_SOFTMAX_XENT || kind == TRMI_OP_SOFTMAX_XENT_GRAD;
    bool loss = kind == TRMI_OP_SOFTMAX_XENT || kind == TRMI_OP_BCE_LOGITS;
    fast = fast && (loss || trmi_kernel_output_buffer(kernel, 0)->dtype == z->dtype);
    if (!xent) {
        int other = kind == TRMI_OP_BCE_LOGITS ? 1 : kind == TRMI_OP_BCE_LOGITS_GRAD ? 2 : 0;
        fast = fast && trmi_kernel_input_buffer(kernel, other)->dtype == z->dtype;
    }
    if (second && kind != TRMI_OP_SOFTMAX_GRAD) { /* d(loss) */
        fast = fast && trmi_kernel_input_buffer(kernel, 0)->dtype == TRM_FLOAT32;
    }
    if (!fast) {
        return trmi_memory_unsupported(kernel, err);
    }
    loss_state *s = trmi_memory_state(kernel, sizeof *s, err);
    if (s == NULL) {
        return TRM_NOMEM;
    }
    int32_t rank = z->shape.rank;
    s->kernels = trmi_memory_kernels_best();
    s->half = z->dtype == TRM_BFLOAT16;
    s->classes = rank > 0 ? z->shape.dim[rank - 1] : 1;
    s->rows = s->classes > 0 ? trm_shape_count(&z->shape) / s->classes : 0;
    kernel->run = run_of(kind);
    return TRM_OK;
}
