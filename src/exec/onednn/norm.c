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
#ifdef _OPENMP
#include <omp.h>
#endif

enum { BLOCKS_MAX = 128, BLOCK_ROWS_MIN = 16, PER_CHANNEL = 8 };
enum { CHANNELS = 64 }; /* combined together: the blocks' sums pass by once */
enum { STREAM_BYTES = 16 << 20 }; /* larger outputs are stored past the caches */

typedef struct norm_state {
    const trmi_norm_kernels *kernels;
    int64_t rows, channels, block_rows, blocks;
    int half;
} norm_state;

static const trmi_norm_kernels *kernels_for_cpu(void) { return TRMI_CPU_CHOICE(&trmi_norm_kernels); }

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

/* Of channels c .. c + width - 1, width <= CHANNELS. */
static void combine_statistics(const norm_state *s, const float *partial, int64_t c, int width,
                               double *mean, double *m2) {
    double n = 0;
    for (int i = 0; i < width; i++) {
        mean[i] = m2[i] = 0;
    }
    for (int64_t b = 0; b < s->blocks; b++) {
        const float *first = partial + b * 3 * s->channels + c, *sum = first + s->channels;
        double count = (double)(trmi_min_i64(s->rows, (b + 1) * s->block_rows) - b * s->block_rows);
        s->kernels->join(first, sum, sum + s->channels, n, count, width, mean, m2);
        n += count;
    }
}

static int width_at(const norm_state *s, int64_t c) {
    return (int)trmi_min_i64(CHANNELS, s->channels - c);
}

/* A pass over all blocks. The second pass over the same data goes backwards in each thread: what the
 * first left in its caches comes first. */
typedef void (*block_pass)(const norm_state *s, void *context, int64_t block, int64_t begin, int64_t end);
static void each_block(const norm_state *s, bool backwards, block_pass pass, void *context) {
#pragma omp parallel
    {
#ifdef _OPENMP
        int64_t threads = omp_get_num_threads(), me = omp_get_thread_num();
#else
        int64_t threads = 1, me = 0;
#endif
        int64_t first = s->blocks * me / threads, last = s->blocks * (me + 1) / threads;
        for (int64_t i = first; i < last; i++) {
            int64_t b = backwards ? first + last - 1 - i : i;
            pass(s, context, b, b * s->block_rows, trmi_min_i64(s->rows, (b + 1) * s->block_rows));
        }
    }
}

/* May `to` be stored past the caches: large, and whole aligned vectors? */
static bool streams(const norm_state *s, const void *to) {
    int64_t bytes = s->rows * s->channels * (s->half ? 2 : 4);
    return bytes > STREAM_BYTES && s->channels % 32 == 0 && (uintptr_t)to % 64 == 0;
}

static void scale_and_shift(const norm_state *s, const float *gamma, const float *beta,
                            const float *mean, const float *inv_std, float *scale, float *shift) {
    for (int64_t c = 0; c < s->channels; c++) {
        scale[c] = gamma[c] * inv_std[c];
        shift[c] = beta[c] - mean[c] * scale[c];
    }
}

static void apply_pass(const norm_state *s, void *context, int64_t block, int64_t begin, int64_t end) {
    (void)block;
    s->kernels->apply(context, begin, end);
}

static void run_apply(const norm_state *s, trmi_norm_forward job, bool backwards) {
    job.stream = streams(s, job.y);
    each_block(s, backwards, apply_pass, &job);
}

typedef struct statistics_job {
    const void *x;
    float *partial;
} statistics_job;

static void statistics_pass(const norm_state *s, void *context, int64_t block, int64_t begin, int64_t end) {
    const statistics_job *job = context;
    float *first = job->partial + block * 3 * s->channels;
    s->kernels->statistics(job->x, s->half, begin, end, s->channels, first, first + s->channels,
                           first + 2 * s->channels);
}

/* Of one channel over the ranks, by their means and sums of squares, in rank order; each sends its count
 * of rows behind them. */
static void combine_ranks(const double *all, int64_t channels, int32_t size, int64_t c, double *mean,
                          double *m2) {
    double n = 0;
    *mean = *m2 = 0;
    for (int32_t r = 0; r < size; r++) {
        const double *of = all + r * (2 * channels + 1);
        double rows = of[2 * channels], delta = of[c] - *mean, total = n + rows;
        *mean += delta * rows / total;
        *m2 += of[channels + c] + delta * delta * n * rows / total;
        n = total;
    }
}

static double rows_of_all(const norm_state *s, const double *all, int32_t size) {
    double rows = all != NULL ? 0 : (double)s->rows;
    for (int32_t r = 0; all != NULL && r < size; r++) {
        rows += all[(r + 1) * (2 * s->channels + 1) - 1];
    }
    return rows;
}

/* Statistics of this rank's rows to those of all; NULL where this rank is by itself. */
static trm_status gather_statistics(const norm_state *s, const float *partial, trmi_norm_sync *sync,
                                    const double **all, trm_error *err) {
    *all = NULL;
    if (sync == NULL) {
        return TRM_OK;
    }
    for (int64_t c = 0; c < s->channels; c += CHANNELS) {
        combine_statistics(s, partial, c, width_at(s, c), &sync->values[c],
                           &sync->values[s->channels + c]);
    }
    sync->values[2 * s->channels] = (double)s->rows;
    return sync->gather(sync, sync->values, 2 * s->channels + 1, all, err);
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
    each_block(s, false, statistics_pass, &(statistics_job){x, partial});
    const double *all;
    trmi_norm_sync *sync = attrs->norm.sync != 0 ? env->sync[attrs->norm.sync] : env->norm_sync;
    TRMI_TRY(gather_statistics(s, partial, sync, &all, err));
    int32_t size = all != NULL ? sync->size : 1;
    double momentum = attrs->norm.momentum, count = rows_of_all(s, all, size);
#pragma omp parallel for schedule(static)
    for (int64_t at = 0; at < s->channels; at += CHANNELS) {
        double m[CHANNELS], m2[CHANNELS];
        int width = width_at(s, at);
        if (all == NULL) {
            combine_statistics(s, partial, at, width, m, m2);
        }
        for (int i = 0; i < width; i++) {
            int64_t c = at + i;
            if (all != NULL) {
                combine_ranks(all, s->channels, size, c, &m[i], &m2[i]);
            }
            double unbiased = count > 1 ? m2[i] / (count - 1) : m2[i];
            mean[c] = (float)m[i];
            inv_std[c] = (float)(1 / sqrt(m2[i] / count + attrs->norm.epsilon));
            running_mean[c] = (float)((1 - momentum) * (double)running_mean[c] + momentum * m[i]);
            running_var[c] = (float)((1 - momentum) * (double)running_var[c] + momentum * unbiased);
        }
    }
    scale_and_shift(s, gamma, beta, mean, inv_std, scale, shift);
    void *y = trmi_kernel_output(k, env, 0);
    if (y != NULL) {
        run_apply(s, (trmi_norm_forward){.x = x, .residual = trmi_kernel_input(k, env, 5), .y = y,
                                         .channels = s->channels, .half = s->half,
                                         .relu = attrs->norm.relu, .scale = scale, .shift = shift}, true);
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
    run_apply(s, (trmi_norm_forward){.x = trmi_kernel_input(k, env, 0),
                                     .residual = trmi_kernel_input(k, env, 5),
                                     .y = trmi_kernel_output(k, env, 0), .channels = s->channels,
                                     .half = s->half, .relu = k->step->attrs->norm.relu,
                                     .scale = scale, .shift = shift}, false);
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

/* The two sums of channels c .. c + width - 1 over this rank's blocks. */
static void add_blocks(const norm_state *s, const float *partial, int64_t c, int width, double *sum,
                       double *sum_x) {
    for (int i = 0; i < width; i++) {
        sum[i] = sum_x[i] = 0;
    }
    for (int64_t b = 0; b < s->blocks; b++) {
        const float *one = partial + b * 3 * s->channels + c;
        s->kernels->join_sums(one, one + s->channels, width, sum, sum_x);
    }
}

typedef struct gradient_job {
    trmi_norm_backward pass;
    float *partial;
} gradient_job;

static void sums_pass(const norm_state *s, void *context, int64_t block, int64_t begin, int64_t end) {
    const gradient_job *job = context;
    float *sum = job->partial + block * 3 * s->channels;
    s->kernels->gradient_sums(&job->pass, begin, end, sum, sum + s->channels);
}

static void gradient_pass(const norm_state *s, void *context, int64_t block, int64_t begin, int64_t end) {
    (void)block;
    s->kernels->gradient_apply(&((const gradient_job *)context)->pass, begin, end);
}

static trm_status gather_sums(const norm_state *s, const float *partial, trmi_norm_sync *sync,
                              const double **all, trm_error *err) {
    *all = NULL;
    if (sync == NULL) {
        return TRM_OK;
    }
    for (int64_t c = 0; c < s->channels; c += CHANNELS) {
        add_blocks(s, partial, c, width_at(s, c), &sync->values[c], &sync->values[s->channels + c]);
    }
    sync->values[2 * s->channels] = (double)s->rows;
    return sync->gather(sync, sync->values, 2 * s->channels + 1, all, err);
}

/* dgamma and dbeta of this rank (gradients are reduced later), and the three coefficients of dx from
 * the sums of all. */
static void finish_sums(const norm_state *s, const trmi_norm_backward *job, const gradient_vectors *v,
                        const float *partial, const double *all, int32_t size, float *dgamma,
                        float *dbeta) {
    float *of_dz = (float *)(uintptr_t)job->of_dz, *of_x = (float *)(uintptr_t)job->of_x;
    float *constant = (float *)(uintptr_t)job->constant;
    double count = rows_of_all(s, all, size);
#pragma omp parallel for schedule(static)
    for (int64_t at = 0; at < s->channels; at += CHANNELS) {
        double sums[CHANNELS], sums_x[CHANNELS];
        int width = width_at(s, at);
        add_blocks(s, partial, at, width, sums, sums_x);
        for (int i = 0; i < width; i++) {
            int64_t c = at + i;
            double sum = sums[i], sum_x = sums_x[i], inv_std = (double)v->inv_std[c];
            if (dgamma != NULL) {
                dgamma[c] = (float)(sum_x * inv_std);
            }
            if (dbeta != NULL) {
                dbeta[c] = (float)sum;
            }
            for (int32_t r = 0; all != NULL && r < size; r++) {
                const double *of = all + r * (2 * s->channels + 1);
                sum = (r == 0 ? 0 : sum) + of[c];
                sum_x = (r == 0 ? 0 : sum_x) + of[s->channels + c];
            }
            double a = (double)v->gamma[c] * inv_std, slope = a * inv_std * inv_std * sum_x / count;
            of_dz[c] = (float)a;
            of_x[c] = (float)-slope;
            constant[c] = (float)(slope * (double)v->mean[c] - a * sum / count);
        }
    }
}

static trm_status run_gradient(const trmi_kernel *k, const trmi_env *env, trm_error *err) {
    const norm_state *s = k->state;
    const trmi_attrs *attrs = k->step->attrs;
    bool fused = k->step->op_kind == TRMI_OP_NORM_ACT_GRAD;
    gradient_vectors v = vectors_of(k, env);
    float *partial = (float *)env->arena[TRMI_ARENA_SCRATCH];
    float *scale = partial + 3 * s->blocks * s->channels, *shift = scale + s->channels;
    float *of_dz = shift + s->channels, *of_x = of_dz + s->channels, *constant = of_x + s->channels;
    if (fused && attrs->norm.relu && !attrs->norm.from_y) {
        scale_and_shift(s, v.gamma, v.beta, v.mean, v.inv_std, scale, shift);
    }
    gradient_job job = {
        {.dy = trmi_kernel_input(k, env, 0), .x = trmi_kernel_input(k, env, 1),
         .y = fused && attrs->norm.from_y ? trmi_kernel_input(k, env, 2) : NULL,
         .dx = trmi_kernel_output(k, env, 0), .dz = fused ? trmi_kernel_output(k, env, 3) : NULL,
         .dy2 = fused ? trmi_kernel_input(k, env, 7) : NULL,
         .channels = s->channels, .half = s->half, .relu = fused && attrs->norm.relu,
         .scale = scale, .shift = shift, .mean = v.mean,
         .of_dz = of_dz, .of_x = of_x, .constant = constant},
        partial};
    job.pass.stream = streams(s, job.pass.dx) && streams(s, job.pass.dz);
    each_block(s, false, sums_pass, &job);
    const double *all;
    trmi_norm_sync *sync = attrs->norm.sync != 0 ? env->sync[attrs->norm.sync] : env->norm_sync;
    TRMI_TRY(gather_sums(s, partial, sync, &all, err));
    finish_sums(s, &job.pass, &v, partial, all, all != NULL ? sync->size : 1,
                trmi_kernel_output(k, env, 1), trmi_kernel_output(k, env, 2));
    if (job.pass.dx != NULL) {
        each_block(s, true, gradient_pass, &job);
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
