/* Batch normalisation with what follows it, on channels-last images seen as [rows, C].
 *
 *      forward:   blocks of rows -> (x0, sum, square) each -> mean, M2 by Chan et al. 1979 -> scale,
 *                 shift -> one pass that reads x [, residual] and writes y
 *      backward:  blocks -> sums of dz and dz (x - mean) -> three coefficients per channel -> one
 *                 pass that reads dy (or dz), x [, y] and writes dx
 *
 * The blocks depend on the shape alone, and they are combined in order in double: the same bits for
 * any number of threads. Scratch: 3 floats a channel and block, and 8 a channel. */
#include "exec/onednn/norm_kernels.h"
#include "exec/onednn/onednn.h"

#include "base/checked.h"
#include "base/cpu.h"
#include "base/error.h"
#include "base/memory.h"

#include <math.h>

enum { BLOCKS_MAX = 128, BLOCK_ROWS_MIN = 16, PER_CHANNEL = 8 };

typedef struct norm_state {
    const trmi_norm_kernels *kernels;
    int64_t rows, channels, block_rows, blocks;
    int half;
} norm_state;

static const trmi_norm_kernels *kernels_for_cpu(void) {
#if defined(__x86_64__)
    if (trmi_cpu()->avx512) {
        return &trmi_norm_kernels_avx512;
    }
    if (trmi_cpu()->avx2) {
        return &trmi_norm_kernels_avx2;
    }
#endif
    return &trmi_norm_kernels_plain;
}

static bool is_gradient(trmi_op_kind kind) {
    return kind == TRMI_OP_BATCH_NORM_GRAD || kind == TRMI_OP_NORM_ACT_GRAD;
}

static void extents(const trm_shape *shape, int64_t *rows, int64_t *channels, int64_t *block_rows) {
    *channels = shape->dim[1];
    *rows = *channels == 0 ? 0 : trm_shape_count(shape) / *channels;
    *block_rows = trmi_max_i64(BLOCK_ROWS_MIN, (*rows + BLOCKS_MAX - 1) / BLOCKS_MAX);
}

bool trmi_onednn_norm_supports(trmi_onednn *state, const trm_graph *graph, const trmi_op *op,
                               trmi_layout layout) {
    (void)state;
    const trmi_value *x = trmi_input_of(graph, op, is_gradient(op->kind) ? 1 : 0);
    return layout == TRMI_PLAIN || (layout == TRMI_CHANNELS_LAST && x->shape.rank == 4);
}

int64_t trmi_onednn_norm_scratch(trmi_onednn *state, const trm_program *program,
                                 const trmi_step *step) {
    (void)state;
    int64_t rows, channels, block_rows;
    const trmi_buffer *x = &program->buffers[step->inputs[is_gradient(step->op_kind) ? 1 : 0]];
    extents(&x->shape, &rows, &channels, &block_rows);
    int64_t blocks = (rows + block_rows - 1) / block_rows;
    return (3 * blocks + PER_CHANNEL) * channels * (int64_t)sizeof(float);
}

/* y over x or the residual, dx over dy: each pass reads an element before it writes it. */
bool trmi_onednn_norm_in_place(trmi_onednn *state, const trm_graph *graph, const trmi_op *op,
                               int input) {
    (void)state;
    (void)graph;
    if (op->kind == TRMI_OP_NORM_ACT_GRAD || op->kind == TRMI_OP_BATCH_NORM_GRAD) {
        return input == 0;
    }
    return input == 0 || input == 5;
}

/* ---- forward -------------------------------------------------------------------------------------- */

static void combine_statistics(const norm_state *s, const float *partial, int64_t c, double *mean,
                               double *m2) {
    double n = 0;
    *mean = *m2 = 0;
    for (int64_t b = 0; b < s->blocks; b++) {
        const float *block = partial + b * 3 * s->channels;
        double count = (double)(trmi_min_i64(s->rows, (b + 1) * s->block_rows) - b * s->block_rows);
        double sum = (double)block[s->channels + c];
        double block_mean = (double)block[c] + sum / count;
        double block_m2 = (double)block[2 * s->channels + c] - sum * sum / count;
        double delta = block_mean - *mean, total = n + count;
        *mean += delta * count / total;
        *m2 += (block_m2 > 0 ? block_m2 : 0) + delta * delta * n * count / total;
        n = total;
    }
}

static void scale_and_shift(const norm_state *s, const float *gamma, const float *beta,
                            const float *mean, const float *inv_std, float *scale, float *shift) {
    for (int64_t c = 0; c < s->channels; c++) {
        scale[c] = gamma[c] * inv_std[c];
        shift[c] = beta[c] - mean[c] * scale[c];
    }
}

static void run_apply(const norm_state *s, const trmi_norm_forward *job) {
#pragma omp parallel for schedule(static)
    for (int64_t b = 0; b < s->blocks; b++) {
        s->kernels->apply(job, b * s->block_rows, trmi_min_i64(s->rows, (b + 1) * s->block_rows));
    }
}

/* Of one channel over the ranks, by their means and sums of squares, in rank order. */
static void combine_ranks(const double *all, int64_t channels, int32_t size, int64_t c, double rows,
                          double *mean, double *m2) {
    double n = 0;
    *mean = *m2 = 0;
    for (int32_t r = 0; r < size; r++) {
        const double *of = all + r * 2 * channels;
        double delta = of[c] - *mean, total = n + rows;
        *mean += delta * rows / total;
        *m2 += of[channels + c] + delta * delta * n * rows / total;
        n = total;
    }
}

/* Statistics of this rank's rows to those of all; NULL where this rank is by itself. */
static trm_status gather_statistics(const norm_state *s, const float *partial, trmi_norm_sync *sync,
                                    const double **all, trm_error *err) {
    *all = NULL;
    if (sync == NULL) {
        return TRM_OK;
    }
    for (int64_t c = 0; c < s->channels; c++) {
        combine_statistics(s, partial, c, &sync->values[c], &sync->values[s->channels + c]);
    }
    return sync->gather(sync, sync->values, 2 * s->channels, all, err);
}

static trm_status run_train(const trmi_kernel *k, const trmi_env *env, trm_error *err) {
    const norm_state *s = k->state;
    const trmi_attrs *attrs = k->step->attrs;
    const void *x = trmi_kernel_input(k, env, 0);
    const float *gamma = trmi_kernel_input(k, env, 1), *beta = trmi_kernel_input(k, env, 2);
    float *running_mean = trmi_kernel_input(k, env, 3), *running_var = trmi_kernel_input(k, env, 4);
    float *partial = (float *)env->arena[TRMI_ARENA_SCRATCH];
    float *scale = partial + 3 * s->blocks * s->channels, *shift = scale + s->channels;
    float *mean = trmi_kernel_output(k, env, 1), *inv_std = trmi_kernel_output(k, env, 2);
    mean = mean != NULL ? mean : shift + s->channels;
    inv_std = inv_std != NULL ? inv_std : shift + 2 * s->channels;
#pragma omp parallel for schedule(static)
    for (int64_t b = 0; b < s->blocks; b++) {
        float *block = partial + b * 3 * s->channels;
        s->kernels->statistics(x, s->half, b * s->block_rows,
                               trmi_min_i64(s->rows, (b + 1) * s->block_rows), s->channels, block,
                               block + s->channels, block + 2 * s->channels);
    }
    const double *all;
    TRMI_TRY(gather_statistics(s, partial, env->norm_sync, &all, err));
    int32_t size = all != NULL ? env->norm_sync->size : 1;
    double momentum = attrs->norm.momentum, count = (double)s->rows * size;
#pragma omp parallel for schedule(static)
    for (int64_t c = 0; c < s->channels; c++) {
        double m, m2;
        if (all != NULL) {
            combine_ranks(all, s->channels, size, c, (double)s->rows, &m, &m2);
        } else {
            combine_statistics(s, partial, c, &m, &m2);
        }
        double unbiased = count > 1 ? m2 / (count - 1) : m2;
        mean[c] = (float)m;
        inv_std[c] = (float)(1 / sqrt(m2 / count + attrs->norm.epsilon));
        running_mean[c] = (float)((1 - momentum) * (double)running_mean[c] + momentum * m);
        running_var[c] = (float)((1 - momentum) * (double)running_var[c] + momentum * unbiased);
    }
    scale_and_shift(s, gamma, beta, mean, inv_std, scale, shift);
    void *y = trmi_kernel_output(k, env, 0);
    if (y != NULL) {
        run_apply(s, &(trmi_norm_forward){.x = x, .residual = trmi_kernel_input(k, env, 5), .y = y,
                                          .channels = s->channels, .half = s->half,
                                          .relu = attrs->norm.relu, .scale = scale, .shift = shift});
    }
    return TRM_OK;
}

/* Given statistics: evaluation (mean, variance) or recompute (mean, 1 / standard deviation). */
static trm_status run_given(const trmi_kernel *k, const trmi_env *env, trm_error *err) {
    (void)err;
    const norm_state *s = k->state;
    const float *gamma = trmi_kernel_input(k, env, 1), *beta = trmi_kernel_input(k, env, 2);
    const float *mean = trmi_kernel_input(k, env, 3), *second = trmi_kernel_input(k, env, 4);
    float *scale = (float *)env->arena[TRMI_ARENA_SCRATCH], *shift = scale + s->channels;
    const float *inv_std = second;
    if (k->step->op_kind != TRMI_OP_NORM_ACT_APPLY) {
        float *made = shift + s->channels;
        for (int64_t c = 0; c < s->channels; c++) {
            made[c] = (float)(1 / sqrt((double)second[c] + k->step->attrs->norm.epsilon));
        }
        inv_std = made;
    }
    scale_and_shift(s, gamma, beta, mean, inv_std, scale, shift);
    run_apply(s, &(trmi_norm_forward){.x = trmi_kernel_input(k, env, 0),
                                      .residual = trmi_kernel_input(k, env, 5),
                                      .y = trmi_kernel_output(k, env, 0), .channels = s->channels,
                                      .half = s->half, .relu = k->step->attrs->norm.relu,
                                      .scale = scale, .shift = shift});
    return TRM_OK;
}

/* ---- backward ------------------------------------------------------------------------------------- */

typedef struct gradient_vectors {
    const float *gamma, *beta, *mean, *inv_std;
} gradient_vectors;

static gradient_vectors vectors_of(const trmi_kernel *k, const trmi_env *env) {
    if (k->step->op_kind == TRMI_OP_BATCH_NORM_GRAD) {
        return (gradient_vectors){trmi_kernel_input(k, env, 2), NULL, trmi_kernel_input(k, env, 3),
                                  trmi_kernel_input(k, env, 4)};
    }
    return (gradient_vectors){trmi_kernel_input(k, env, 3), trmi_kernel_input(k, env, 4),
                              trmi_kernel_input(k, env, 5), trmi_kernel_input(k, env, 6)};
}

/* The two sums of channel c over this rank's blocks. */
static void add_blocks(const norm_state *s, const float *partial, int64_t c, double *sum, double *sum_x) {
    *sum = *sum_x = 0;
    for (int64_t b = 0; b < s->blocks; b++) {
        *sum += (double)partial[b * 3 * s->channels + c];
        *sum_x += (double)partial[(b * 3 + 1) * s->channels + c];
    }
}

static trm_status gather_sums(const norm_state *s, const float *partial, trmi_norm_sync *sync,
                              const double **all, trm_error *err) {
    *all = NULL;
    if (sync == NULL) {
        return TRM_OK;
    }
    for (int64_t c = 0; c < s->channels; c++) {
        add_blocks(s, partial, c, &sync->values[c], &sync->values[s->channels + c]);
    }
    return sync->gather(sync, sync->values, 2 * s->channels, all, err);
}

static trm_status run_gradient(const trmi_kernel *k, const trmi_env *env, trm_error *err) {
    const norm_state *s = k->state;
    const trmi_attrs *attrs = k->step->attrs;
    bool fused = k->step->op_kind == TRMI_OP_NORM_ACT_GRAD;
    gradient_vectors v = vectors_of(k, env);
    float *partial = (float *)env->arena[TRMI_ARENA_SCRATCH];
    float *scale = partial + 3 * s->blocks * s->channels, *shift = scale + s->channels;
    float *of_dz = shift + s->channels, *of_x = of_dz + s->channels, *constant = of_x + s->channels;
    float *dgamma = trmi_kernel_output(k, env, 1), *dbeta = trmi_kernel_output(k, env, 2);
    if (fused && attrs->norm.relu && !attrs->norm.from_y) {
        scale_and_shift(s, v.gamma, v.beta, v.mean, v.inv_std, scale, shift);
    }
    trmi_norm_backward job = {
        .dy = trmi_kernel_input(k, env, 0), .x = trmi_kernel_input(k, env, 1),
        .y = fused && attrs->norm.from_y ? trmi_kernel_input(k, env, 2) : NULL,
        .dx = trmi_kernel_output(k, env, 0), .dz = fused ? trmi_kernel_output(k, env, 3) : NULL,
        .dy2 = fused ? trmi_kernel_input(k, env, 7) : NULL,
        .channels = s->channels, .half = s->half, .relu = fused && attrs->norm.relu,
        .scale = scale, .shift = shift, .mean = v.mean,
        .of_dz = of_dz, .of_x = of_x, .constant = constant};
#pragma omp parallel for schedule(static)
    for (int64_t b = 0; b < s->blocks; b++) {
        float *block = partial + b * 3 * s->channels;
        s->kernels->gradient_sums(&job, b * s->block_rows,
                                  trmi_min_i64(s->rows, (b + 1) * s->block_rows), block,
                                  block + s->channels);
    }
    const double *all;
    TRMI_TRY(gather_sums(s, partial, env->norm_sync, &all, err));
    int32_t size = all != NULL ? env->norm_sync->size : 1;
    double count = (double)s->rows * size;
#pragma omp parallel for schedule(static)
    for (int64_t c = 0; c < s->channels; c++) {
        double sum, sum_x, inv_std = (double)v.inv_std[c];
        add_blocks(s, partial, c, &sum, &sum_x);
        if (dgamma != NULL) { /* of this rank: gradients are reduced later */
            dgamma[c] = (float)(sum_x * inv_std);
        }
        if (dbeta != NULL) {
            dbeta[c] = (float)sum;
        }
        for (int32_t r = 0; all != NULL && r < size; r++) {
            sum = (r == 0 ? 0 : sum) + all[r * 2 * s->channels + c];
            sum_x = (r == 0 ? 0 : sum_x) + all[(r * 2 + 1) * s->channels + c];
        }
        double a = (double)v.gamma[c] * inv_std, slope = a * inv_std * inv_std * sum_x / count;
        of_dz[c] = (float)a;
        of_x[c] = (float)-slope;
        constant[c] = (float)(slope * (double)v.mean[c] - a * sum / count);
    }
    if (job.dx != NULL) {
#pragma omp parallel for schedule(static)
        for (int64_t b = 0; b < s->blocks; b++) {
            s->kernels->gradient_apply(&job, b * s->block_rows,
                                       trmi_min_i64(s->rows, (b + 1) * s->block_rows));
        }
    }
    return TRM_OK;
}

/* ---- bind ------------------------------------------------------------------------------------------- */

static void destroy(trmi_kernel *kernel) { trmi_free(kernel->state); }

trm_status trmi_onednn_bind_norm(trmi_backend *backend, trmi_kernel *kernel, trm_error *err) {
    (void)backend;
    trmi_op_kind kind = kernel->step->op_kind;
    const trmi_buffer *x = trmi_kernel_input_buffer(kernel, is_gradient(kind) ? 1 : 0);
    bool rows = x->layout == TRMI_CHANNELS_LAST || x->shape.rank == 2;
    if (!rows || (x->dtype != TRM_FLOAT32 && x->dtype != TRM_BFLOAT16)) {
        return TRMI_FAIL(err, TRM_UNSUPPORTED, "%s: no fast norm for this layout", kernel->step->name);
    }
    norm_state *s = trmi_alloc(sizeof *s);
    if (s == NULL) {
        return TRMI_FAIL(err, TRM_NOMEM, "%s: no memory for its kernel", kernel->step->name);
    }
    s->kernels = kernels_for_cpu();
    s->half = x->dtype == TRM_BFLOAT16;
    extents(&x->shape, &s->rows, &s->channels, &s->block_rows);
    s->blocks = (s->rows + s->block_rows - 1) / s->block_rows;
    kernel->state = s;
    kernel->destroy = destroy;
    bool train = kind == TRMI_OP_NORM_ACT || kind == TRMI_OP_BATCH_NORM;
    kernel->run = is_gradient(kind) ? run_gradient : train ? run_train : run_given;
    return TRM_OK;
}
