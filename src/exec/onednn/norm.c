/* Batch normalisation with what follows it, on channels-last images seen as [rows, C].
 *
 *      forward:   blocks of rows -> (x0, sum, square) each -> mean, M2 by Chan et al. 1979 -> scale,
 *                 shift -> one pass that reads x [, residual] and writes y
 *      backward:  blocks -> sums of dz and dz (x - mean) -> three coefficients per channel -> one
 *                 pass that reads dy (or dz), x [, y] and writes dx
 *
 * Who sums a block joins it to its group, in order and in double; only groups are read by all threads. Both depend on the
 * shape alone: the same bits for any number of threads.
 *
 *      rows   [ b b b b | b b b b | b b b b | b b b b ]   blocks, groups
 *      scratch  [ groups: 2 doubles a channel | vectors: 8 floats a channel | per thread: 3 floats a channel ] */
#include "exec/onednn/norm_kernels.h"
#include "exec/onednn/onednn.h"

#include "base/checked.h"
#include "base/cpu.h"
#include "base/error.h"
#include "base/memory.h"

#include <math.h>
#include <string.h>
#ifdef _OPENMP
#include <omp.h>
#endif

enum { BLOCKS_MAX = 128, BLOCK_ROWS_MIN = 16, PER_CHANNEL = 8, PER_THREAD = 3 };
enum { GROUPS_MIN = 8, GROUPS_MAX = 64, GROUP_ROWS = 1024 };
enum { CHANNELS = 64 }; /* combined together: the blocks' sums pass by once */
enum { STREAM_BYTES = 16 << 20 }; /* larger outputs are stored past the caches */

typedef struct norm_state {
    const trmi_norm_kernels *kernels;
    int64_t rows, channels, block_rows, blocks, groups;
    int threads, half;
} norm_state;

/* What a forward run reads and writes. */
typedef struct norm_forward {
    const norm_state *s;
    trmi_norm_forward pass;
    void *scratch;
    const float *gamma, *beta;
    float *running_mean, *running_var, *mean, *inv_std, *scale, *shift;
    double momentum, epsilon, count; /* of rows */
    const double *all;               /* ranks' statistics; NULL: this one is by itself */
    int32_t size;
} norm_forward;

static const trmi_norm_kernels *kernels_for_cpu(void) { return TRMI_CPU_CHOICE_OF_FOUR(&trmi_norm_kernels); }

static bool is_gradient(trmi_op_kind kind) {
    return kind == TRMI_OP_BATCH_NORM_GRAD || kind == TRMI_OP_NORM_ACT_GRAD;
}

/* The cut of the rows. */
static void make(norm_state *s, const trmi_buffer *x, int threads) {
    s->channels = x->shape.dim[1];
    s->rows = s->channels == 0 ? 0 : trm_shape_count(&x->shape) / s->channels;
    s->block_rows = trmi_max_i64(BLOCK_ROWS_MIN, trmi_pieces(s->rows, BLOCKS_MAX));
    s->blocks = trmi_pieces(s->rows, s->block_rows);
    int64_t groups = trmi_max_i64(GROUPS_MIN, trmi_min_i64(GROUPS_MAX, s->rows / GROUP_ROWS));
    s->groups = trmi_min_i64(groups, s->blocks);
    s->threads = threads;
    s->half = x->dtype == TRM_BFLOAT16;
}

bool trmi_onednn_norm_supports(trmi_onednn *state, const trm_graph *graph, const trmi_op *op,
                               trmi_layout layout) {
    (void)state;
    const trmi_value *x = trmi_input_of(graph, op, is_gradient(op->kind) ? 1 : 0);
    return layout == TRMI_PLAIN || (layout == TRMI_CHANNELS_LAST && x->shape.rank == 4);
}

int64_t trmi_onednn_norm_scratch(trmi_onednn *state, const trm_program *program,
                                 const trmi_step *step) {
    norm_state s = {0};
    make(&s, &program->buffers[step->inputs[is_gradient(step->op_kind) ? 1 : 0]], state->threads);
    return s.channels * (s.groups * 2 * (int64_t)sizeof(double) +
                         (PER_CHANNEL + PER_THREAD * s.threads) * (int64_t)sizeof(float));
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

/* ---- blocks and groups ------------------------------------------------------------------------------ */

/* A thread of the team: its groups, and room for a block's sums. */
typedef struct worker {
    int64_t first, end;
    float *sums;
} worker;

static double *group_at(const norm_state *s, void *scratch, int64_t group) {
    return (double *)scratch + group * 2 * s->channels;
}

static float *vectors_of(const norm_state *s, void *scratch) { return (float *)group_at(s, scratch, s->groups); }

static worker worker_of(const norm_state *s, void *scratch) {
#ifdef _OPENMP
    int64_t threads = omp_get_num_threads(), me = omp_get_thread_num();
#else
    int64_t threads = 1, me = 0;
#endif
    return (worker){s->groups * me / threads, s->groups * (me + 1) / threads,
                    vectors_of(s, scratch) + (PER_CHANNEL + PER_THREAD * me) * s->channels};
}

static int64_t block_of_group(const norm_state *s, int64_t group) {
    return s->groups > 0 ? trmi_cut_at(s->blocks, s->groups, group) : 0;
}

static int64_t row_of_block(const norm_state *s, int64_t block) {
    return trmi_min_i64(s->rows, block * s->block_rows);
}

static double rows_of_group(const norm_state *s, int64_t group) {
    return (double)(row_of_block(s, block_of_group(s, group + 1)) - row_of_block(s, block_of_group(s, group)));
}

static int width_at(const norm_state *s, int64_t c) {
    return (int)trmi_min_i64(CHANNELS, s->channels - c);
}

/* A second pass over a worker's blocks goes backwards: what the first left in its caches comes first. */
typedef void (*block_pass)(const void *job, int64_t begin, int64_t end);
static void each_block(const norm_state *s, const worker *w, bool backwards, block_pass pass, const void *job) {
    int64_t first = block_of_group(s, w->first), last = block_of_group(s, w->end);
    for (int64_t i = first; i < last; i++) {
        int64_t b = backwards ? first + last - 1 - i : i;
        pass(job, row_of_block(s, b), row_of_block(s, b + 1));
    }
}

/* May `to` be stored past the caches: large, and whole aligned vectors? */
static bool streams(const norm_state *s, const void *to) {
    int64_t bytes = s->rows * s->channels * (s->half ? 2 : 4);
    return bytes > STREAM_BYTES && s->channels % 32 == 0 && (uintptr_t)to % 64 == 0;
}

/* ---- forward -------------------------------------------------------------------------------------- */

/* A worker's groups: each channel's mean and sum of squares about it. */
static void measure_groups(const norm_state *s, const worker *w, const void *x, void *scratch) {
    float *first = w->sums, *sum = first + s->channels, *square = sum + s->channels;
    for (int64_t g = w->first; g < w->end; g++) {
        double *mean = group_at(s, scratch, g), *m2 = mean + s->channels, n = 0;
        memset(mean, 0, (size_t)(2 * s->channels) * sizeof *mean);
        for (int64_t b = block_of_group(s, g); b < block_of_group(s, g + 1); b++) {
            int64_t begin = row_of_block(s, b), end = row_of_block(s, b + 1);
            s->kernels->statistics(x, s->half, begin, end, s->channels, first, sum, square);
            s->kernels->join(first, sum, square, n, (double)(end - begin), (int)s->channels, mean, m2);
            n += (double)(end - begin);
        }
    }
}

/* Of channels c .. c + width - 1. */
static void combine_groups(const norm_state *s, void *scratch, int64_t c, int width, double *mean, double *m2) {
    double n = 0;
    for (int i = 0; i < width; i++) {
        mean[i] = m2[i] = 0;
    }
    for (int64_t g = 0; g < s->groups; g++) {
        const double *group = group_at(s, scratch, g) + c;
        double count = rows_of_group(s, g);
        s->kernels->join_groups(group, group + s->channels, n, count, width, mean, m2);
        n += count;
    }
}

static void scale_and_shift(const norm_state *s, const float *gamma, const float *beta,
                            const float *mean, const float *inv_std, float *scale, float *shift) {
    for (int64_t c = 0; c < s->channels; c++) {
        scale[c] = gamma[c] * inv_std[c];
        shift[c] = beta[c] - mean[c] * scale[c];
    }
}

static void apply_pass(const void *job, int64_t begin, int64_t end) {
    const norm_forward *f = job;
    f->s->kernels->apply(&f->pass, begin, end);
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

/* Statistics of this rank's rows to those of all. */
static trm_status gather_statistics(const norm_state *s, void *scratch, trmi_norm_sync *sync,
                                    const double **all, trm_error *err) {
    combine_groups(s, scratch, 0, (int)s->channels, sync->values, sync->values + s->channels);
    sync->values[2 * s->channels] = (double)s->rows;
    return sync->gather(sync, sync->values, 2 * s->channels + 1, all, err);
}

/* Statistics of channels c .. c + width - 1, and what is made of them. */
static void settle(const norm_forward *f, int64_t at, int width) {
    double m[CHANNELS], m2[CHANNELS], momentum = f->momentum, count = f->count;
    if (f->all == NULL) {
        combine_groups(f->s, f->scratch, at, width, m, m2);
    }
    for (int i = 0; i < width; i++) {
        int64_t c = at + i;
        if (f->all != NULL) {
            combine_ranks(f->all, f->s->channels, f->size, c, &m[i], &m2[i]);
        }
        double unbiased = count > 1 ? m2[i] / (count - 1) : m2[i];
        f->mean[c] = (float)m[i];
        f->inv_std[c] = (float)(1 / sqrt(m2[i] / count + f->epsilon));
        f->running_mean[c] = (float)((1 - momentum) * (double)f->running_mean[c] + momentum * m[i]);
        f->running_var[c] = (float)((1 - momentum) * (double)f->running_var[c] + momentum * unbiased);
        f->scale[c] = f->gamma[c] * f->inv_std[c];
        f->shift[c] = f->beta[c] - f->mean[c] * f->scale[c];
    }
}

/* With the statistics of all ranks they are there already. */
static void normalise(const norm_forward *f) {
    const norm_state *s = f->s;
#pragma omp parallel num_threads(s->threads)
    {
        worker w = worker_of(s, f->scratch);
        if (f->all == NULL) {
            measure_groups(s, &w, f->pass.x, f->scratch);
#pragma omp barrier
        }
#pragma omp for schedule(static)
        for (int64_t c = 0; c < s->channels; c += CHANNELS) {
            settle(f, c, width_at(s, c));
        }
        if (f->pass.y != NULL) {
            each_block(s, &w, true, apply_pass, f);
        }
    }
}

static trm_status run_train(const trmi_kernel *k, const trmi_env *env, trm_error *err) {
    const norm_state *s = k->state;
    const trmi_attrs *attrs = k->step->attrs;
    float *vectors = vectors_of(s, env->arena[TRMI_ARENA_SCRATCH]);
    norm_forward f = {.s = s, .scratch = env->arena[TRMI_ARENA_SCRATCH], .gamma = trmi_kernel_input(k, env, 1),
                      .beta = trmi_kernel_input(k, env, 2), .running_mean = trmi_kernel_input(k, env, 3),
                      .running_var = trmi_kernel_input(k, env, 4), .scale = vectors, .shift = vectors + s->channels,
                      .mean = trmi_kernel_output(k, env, 1), .inv_std = trmi_kernel_output(k, env, 2),
                      .momentum = attrs->norm.momentum, .epsilon = attrs->norm.epsilon};
    f.mean = f.mean != NULL ? f.mean : vectors + 2 * s->channels;
    f.inv_std = f.inv_std != NULL ? f.inv_std : vectors + 3 * s->channels;
    f.pass = (trmi_norm_forward){.x = trmi_kernel_input(k, env, 0), .residual = trmi_kernel_input(k, env, 5),
                                 .y = trmi_kernel_output(k, env, 0), .channels = s->channels, .half = s->half,
                                 .relu = attrs->norm.relu, .scale = f.scale, .shift = f.shift};
    f.pass.stream = streams(s, f.pass.y);
    trmi_norm_sync *sync = attrs->norm.sync != 0 ? env->sync[attrs->norm.sync] : env->norm_sync;
    if (sync != NULL) {
#pragma omp parallel num_threads(s->threads)
        {
            worker w = worker_of(s, f.scratch);
            measure_groups(s, &w, f.pass.x, f.scratch);
        }
        TRMI_TRY(gather_statistics(s, f.scratch, sync, &f.all, err));
        f.size = f.all != NULL ? sync->size : 1;
    }
    f.count = rows_of_all(s, f.all, f.size);
    normalise(&f);
    return TRM_OK;
}

/* Given statistics: evaluation (mean, variance) or recompute (mean, 1 / standard deviation). */
static trm_status run_given(const trmi_kernel *k, const trmi_env *env, trm_error *err) {
    (void)err;
    const norm_state *s = k->state;
    const float *gamma = trmi_kernel_input(k, env, 1), *beta = trmi_kernel_input(k, env, 2);
    const float *mean = trmi_kernel_input(k, env, 3), *second = trmi_kernel_input(k, env, 4);
    void *scratch = env->arena[TRMI_ARENA_SCRATCH];
    float *scale = vectors_of(s, scratch), *shift = scale + s->channels;
    const float *inv_std = second;
    if (k->step->op_kind != TRMI_OP_NORM_ACT_APPLY) {
        float *made = shift + s->channels;
        for (int64_t c = 0; c < s->channels; c++) {
            made[c] = (float)(1 / sqrt((double)second[c] + k->step->attrs->norm.epsilon));
        }
        inv_std = made;
    }
    scale_and_shift(s, gamma, beta, mean, inv_std, scale, shift);
    norm_forward f = {.s = s, .pass = {.x = trmi_kernel_input(k, env, 0), .residual = trmi_kernel_input(k, env, 5),
                                       .y = trmi_kernel_output(k, env, 0), .channels = s->channels, .half = s->half,
                                       .relu = k->step->attrs->norm.relu, .scale = scale, .shift = shift}};
    f.pass.stream = streams(s, f.pass.y);
#pragma omp parallel num_threads(s->threads)
    {
        worker w = worker_of(s, scratch);
        each_block(s, &w, false, apply_pass, &f);
    }
    return TRM_OK;
}

/* ---- backward ------------------------------------------------------------------------------------- */

typedef struct gradient_vectors {
    const float *gamma, *beta, *mean, *inv_std;
} gradient_vectors;

static gradient_vectors vectors_of_gradient(const trmi_kernel *k, const trmi_env *env) {
    if (k->step->op_kind == TRMI_OP_BATCH_NORM_GRAD) {
        return (gradient_vectors){trmi_kernel_input(k, env, 2), NULL, trmi_kernel_input(k, env, 3),
                                  trmi_kernel_input(k, env, 4)};
    }
    return (gradient_vectors){trmi_kernel_input(k, env, 3), trmi_kernel_input(k, env, 4),
                              trmi_kernel_input(k, env, 5), trmi_kernel_input(k, env, 6)};
}

typedef struct norm_backward {
    const norm_state *s;
    trmi_norm_backward pass;
    void *scratch;
    gradient_vectors v;
    float *dgamma, *dbeta, *of_dz, *of_x, *constant;
    double count;      /* of rows */
    const double *all; /* ranks' sums; NULL: this one is by itself */
    int32_t size;
} norm_backward;

/* A worker's groups: each channel's sums of dz and dz (x - mean). */
static void sum_groups(const norm_backward *f, const worker *w) {
    const norm_state *s = f->s;
    for (int64_t g = w->first; g < w->end; g++) {
        double *sum = group_at(s, f->scratch, g), *sum_x = sum + s->channels;
        memset(sum, 0, (size_t)(2 * s->channels) * sizeof *sum);
        for (int64_t b = block_of_group(s, g); b < block_of_group(s, g + 1); b++) {
            float *one = w->sums, *other = one + s->channels;
            s->kernels->gradient_sums(&f->pass, row_of_block(s, b), row_of_block(s, b + 1), one, other);
            s->kernels->join_sums(one, other, (int)s->channels, sum, sum_x);
        }
    }
}

/* The two sums of channels c .. c + width - 1 over this rank's groups. */
static void add_groups(const norm_state *s, void *scratch, int64_t c, int width, double *sum, double *sum_x) {
    for (int i = 0; i < width; i++) {
        sum[i] = sum_x[i] = 0;
    }
    for (int64_t g = 0; g < s->groups; g++) {
        const double *group = group_at(s, scratch, g) + c;
        for (int i = 0; i < width; i++) {
            sum[i] += group[i];
            sum_x[i] += group[s->channels + i];
        }
    }
}

static void gradient_pass(const void *job, int64_t begin, int64_t end) {
    const norm_backward *f = job;
    f->s->kernels->gradient_apply(&f->pass, begin, end);
}

static trm_status gather_sums(const norm_backward *f, trmi_norm_sync *sync, const double **all, trm_error *err) {
    int64_t channels = f->s->channels;
    add_groups(f->s, f->scratch, 0, (int)channels, sync->values, sync->values + channels);
    sync->values[2 * channels] = (double)f->s->rows;
    return sync->gather(sync, sync->values, 2 * channels + 1, all, err);
}

/* dgamma and dbeta of this rank (gradients are reduced later), and the three coefficients of dx from
 * the sums of all; of channels at .. at + width - 1. */
static void settle_sums(const norm_backward *f, int64_t at, int width) {
    double sums[CHANNELS], sums_x[CHANNELS];
    add_groups(f->s, f->scratch, at, width, sums, sums_x);
    for (int i = 0; i < width; i++) {
        int64_t c = at + i;
        double sum = sums[i], sum_x = sums_x[i], inv_std = (double)f->v.inv_std[c];
        if (f->dgamma != NULL) {
            f->dgamma[c] = (float)(sum_x * inv_std);
        }
        if (f->dbeta != NULL) {
            f->dbeta[c] = (float)sum;
        }
        for (int32_t r = 0; f->all != NULL && r < f->size; r++) {
            const double *of = f->all + r * (2 * f->s->channels + 1);
            sum = (r == 0 ? 0 : sum) + of[c];
            sum_x = (r == 0 ? 0 : sum_x) + of[f->s->channels + c];
        }
        double a = (double)f->v.gamma[c] * inv_std, slope = a * inv_std * inv_std * sum_x / f->count;
        f->of_dz[c] = (float)a;
        f->of_x[c] = (float)-slope;
        f->constant[c] = (float)(slope * (double)f->v.mean[c] - a * sum / f->count);
    }
}

/* With the sums of all ranks they are there already. */
static void differentiate(const norm_backward *f) {
    const norm_state *s = f->s;
#pragma omp parallel num_threads(s->threads)
    {
        worker w = worker_of(s, f->scratch);
        if (f->all == NULL) {
            sum_groups(f, &w);
#pragma omp barrier
        }
#pragma omp for schedule(static)
        for (int64_t c = 0; c < s->channels; c += CHANNELS) {
            settle_sums(f, c, width_at(s, c));
        }
        if (f->pass.dx != NULL) {
            each_block(s, &w, true, gradient_pass, f);
        }
    }
}

/* The passes' operands. */
static trmi_norm_backward backward_of(const trmi_kernel *k, const trmi_env *env) {
    const norm_state *s = k->state;
    const trmi_attrs *attrs = k->step->attrs;
    bool fused = k->step->op_kind == TRMI_OP_NORM_ACT_GRAD;
    trmi_norm_backward pass = {.dy = trmi_kernel_input(k, env, 0), .x = trmi_kernel_input(k, env, 1),
                               .y = fused && attrs->norm.from_y ? trmi_kernel_input(k, env, 2) : NULL,
                               .dx = trmi_kernel_output(k, env, 0), .dz = fused ? trmi_kernel_output(k, env, 3) : NULL,
                               .dy2 = fused ? trmi_kernel_input(k, env, 7) : NULL, .channels = s->channels,
                               .half = s->half, .relu = fused && attrs->norm.relu};
    pass.stream = streams(s, pass.dx) && streams(s, pass.dz);
    return pass;
}

static trm_status run_gradient(const trmi_kernel *k, const trmi_env *env, trm_error *err) {
    const norm_state *s = k->state;
    const trmi_attrs *attrs = k->step->attrs;
    void *scratch = env->arena[TRMI_ARENA_SCRATCH];
    float *scale = vectors_of(s, scratch), *shift = scale + s->channels;
    norm_backward f = {.s = s, .pass = backward_of(k, env), .scratch = scratch, .v = vectors_of_gradient(k, env),
                       .dgamma = trmi_kernel_output(k, env, 1), .dbeta = trmi_kernel_output(k, env, 2),
                       .of_dz = shift + s->channels, .of_x = shift + 2 * s->channels, .constant = shift + 3 * s->channels};
    if (f.pass.relu && !attrs->norm.from_y) {
        scale_and_shift(s, f.v.gamma, f.v.beta, f.v.mean, f.v.inv_std, scale, shift);
    }
    f.pass.scale = scale, f.pass.shift = shift, f.pass.mean = f.v.mean;
    f.pass.of_dz = f.of_dz, f.pass.of_x = f.of_x, f.pass.constant = f.constant;
    trmi_norm_sync *sync = attrs->norm.sync != 0 ? env->sync[attrs->norm.sync] : env->norm_sync;
    if (sync != NULL) {
#pragma omp parallel num_threads(s->threads)
        {
            worker w = worker_of(s, scratch);
            sum_groups(&f, &w);
        }
        TRMI_TRY(gather_sums(&f, sync, &f.all, err));
        f.size = f.all != NULL ? sync->size : 1;
    }
    f.count = rows_of_all(s, f.all, f.size);
    differentiate(&f);
    return TRM_OK;
}

/* ---- bind ------------------------------------------------------------------------------------------- */

static void destroy(trmi_kernel *kernel) { trmi_free(kernel->state); }

trm_status trmi_onednn_bind_norm(trmi_backend *backend, trmi_kernel *kernel, trm_error *err) {
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
    make(s, x, trmi_onednn_of(backend)->threads);
    kernel->state = s;
    kernel->destroy = destroy;
    bool train = kind == TRMI_OP_NORM_ACT || kind == TRMI_OP_BATCH_NORM;
    kernel->run = is_gradient(kind) ? run_gradient : train ? run_train : run_given;
    return TRM_OK;
}
