/* SPDX-License-Identifier: Apache-2.0 */
/* Batch normalisation with residual and ReLU, on channels-last images seen as [rows, C].
 *
 *      forward:   blocks of rows -> (x0, sum, square) each -> mean, M2 by Chan et al. 1979 -> scale,
 *                 shift -> one pass that reads x [, residual] and writes y
 *      backward:  blocks -> sums of dz and dz (x - mean) -> three coefficients per channel -> one
 *                 pass that reads dy (or dz), x [, y] and writes dx
 *
 * A thread adds the blocks of a group in order and in double. Groups are then added to the first
 * group of their half of the rows, so that all threads read two sums a channel only. Blocks, groups
 * and halves depend on the shape alone: the same bits for any number of threads.
 *
 * With several ranks (norm_sync) the statistics of all ranks are gathered between the two passes.
 *
 * With blocks of samples (strict determinism) groups are parts of one block of samples; each
 * block's statistics go to all ranks, and all are joined in the order of their numbers.
 *
 *      rows   [ b b b b | b b b b : b b b b | b b b b ]   blocks, groups, halves
 *      scratch  [ groups: 2 doubles a channel | vectors: 4 floats a channel ] [ per thread: 5 floats a channel ]
 */
#include "exec/cpu/ops/norm_kernels.h"
#include "exec/cpu/dnnl/onednn.h"
#include "exec/cpu/scratch.h"

#include "base/checked.h"
#include "base/cpu.h"
#include "base/error.h"
#include "base/memory.h"

#include <math.h>
#include <string.h>
#ifdef _OPENMP
#include <omp.h>
#endif

/* Blocks at most and rows of a block at least; floats a channel in shared memory and in that of a
 * thread (worker). */
enum { BLOCKS_MAX = 128, BLOCK_ROWS_MIN = 16, PER_CHANNEL = 4, PER_THREAD = 5 };
/* Groups of blocks: their number lies between two bounds, at GROUP_ROWS rows each. Half of the
 * groups belongs to half of the threads. */
enum { HALVES = 2, GROUPS_MIN = 8, GROUPS_MAX = 64, GROUP_ROWS = 1024 };
enum { CHANNELS = 64 };           /* channels that are combined at a time */
enum { STREAM_BYTES = 16 << 20 }; /* larger outputs are stored past the caches */

typedef struct norm_state {
    const trmi_norm_kernels *kernels;
    int64_t rows, channels, block_rows, blocks, groups;
    /* blocks of samples, 0 = none; in each of them rows, blocks and groups */
    int64_t samples, samples_rows, samples_blocks, samples_groups;
    int threads, half;
} norm_state;

/* The operands of a forward run. */
typedef struct norm_forward {
    const norm_state *s;
    trmi_norm_forward pass;
    trmi_scratch scratch;
    char *shared;
    const float *gamma, *beta;
    float *running_mean, *running_var, *mean, *inv_std, *scale, *shift;
    double momentum, epsilon, count; /* of rows */
    const double *all;               /* statistics of all ranks; NULL: a single rank */
    int32_t size;
} norm_forward;

static const trmi_norm_kernels *kernels_for_cpu(void) {
    return TRMI_CPU_CHOICE_OF_FOUR(&trmi_norm_kernels);
}

/* Returns whether an operator is a gradient, whose first input is dy and not x. */
static bool is_gradient(trmi_op_kind kind) {
    return kind == TRMI_OP_BATCH_NORM_GRAD || kind == TRMI_OP_NORM_ACT_GRAD;
}

/* Sets shape, blocks and groups from a buffer. */
static void set_blocks(norm_state *s, const trmi_buffer *x, const trmi_step *step,
                       const trmi_onednn *backend) {
    s->channels = x->shape.dim[1];
    s->rows = s->channels == 0 ? 0 : trm_shape_count(&x->shape) / s->channels;
    s->block_rows = trmi_max_i64(BLOCK_ROWS_MIN, trmi_pieces(s->rows, BLOCKS_MAX));
    s->blocks = trmi_pieces(s->rows, s->block_rows);
    int64_t groups = trmi_max_i64(GROUPS_MIN, trmi_min_i64(GROUPS_MAX, s->rows / GROUP_ROWS));
    s->groups = trmi_min_i64(groups, s->blocks);
    s->threads = backend->threads;
    s->half = x->dtype == TRM_BFLOAT16;
    /* With blocks of samples the same division is made within each block, so that a sum never
     * crosses one. */
    if (step->blocks > 0) {
        s->samples = step->blocks;
        s->samples_rows = s->rows / s->samples;
        s->block_rows = trmi_max_i64(BLOCK_ROWS_MIN, trmi_pieces(s->samples_rows, BLOCKS_MAX));
        s->samples_blocks = trmi_pieces(s->samples_rows, s->block_rows);
        s->samples_groups =
            trmi_max_i64(1, trmi_min_i64(trmi_min_i64(GROUPS_MIN, s->samples_blocks),
                                         s->samples_rows / GROUP_ROWS));
        s->blocks = s->samples * s->samples_blocks;
        s->groups = s->samples * s->samples_groups;
    }
}

/* Return the bytes of shared memory (two sums of each group in double, vectors of a channel), and
 * of each thread. */
static int64_t shared_bytes(const norm_state *s) {
    return s->channels *
           (s->groups * 2 * (int64_t)sizeof(double) + PER_CHANNEL * (int64_t)sizeof(float));
}

static int64_t own_bytes(const norm_state *s) {
    return s->channels * PER_THREAD * (int64_t)sizeof(float);
}

/* Divides the scratch of a run. */
static trmi_scratch scratch_of(const trmi_kernel *k, const trmi_kernel_env *env) {
    const norm_state *s = k->state;
    return trmi_scratch_cut(trmi_kernel_scratch(k, env), trmi_kernel_scratch_bytes(k),
                            shared_bytes(s), own_bytes(s), s->threads);
}

/* Contract in onednn.h. Plain layouts are taken too, where x is a matrix [samples, channels]. */
bool trmi_onednn_norm_supports(trmi_onednn *state, const trm_graph *graph, const trmi_op *op,
                               trmi_layout layout) {
    (void)state;
    const trmi_value *x = trmi_input_of(graph, op, is_gradient(op->kind) ? 1 : 0);
    return layout == TRMI_PLAIN || (layout == TRMI_CHANNELS_LAST && x->shape.rank == 4);
}

/* Contract in onednn.h. The division into blocks and groups needs only the shape. */
int64_t trmi_onednn_norm_scratch(trmi_onednn *state, const trm_program *program,
                                 const trmi_step *step) {
    norm_state s = {0};
    set_blocks(&s, &program->buffers[step->inputs[is_gradient(step->op_kind) ? 1 : 0]], step,
               state);
    return trmi_scratch_bytes(shared_bytes(&s), own_bytes(&s), s.threads);
}

/* y may overwrite x or the residual, dx may overwrite dy: each pass reads an element before it
 * writes it. */
bool trmi_onednn_norm_in_place(trmi_onednn *state, const trm_graph *graph, const trmi_op *op,
                               int input) {
    (void)state;
    (void)graph;
    if (op->kind == TRMI_OP_NORM_ACT_GRAD || op->kind == TRMI_OP_BATCH_NORM_GRAD) {
        return input == 0;
    }
    return input == 0 || input == 5;
}

/* ---- blocks and groups ----------------------------------------------------------------------- */

/* A thread of the team: its groups [first, end), and its memory for a block's sums, scale and
 * shift. */
typedef struct worker {
    int64_t first, end;
    float *sums;          /* [3, channels] */
    float *scale, *shift; /* [channels] */
} worker;

/* Return the sums of a group, and the vectors of coefficients that lie behind all groups. */
static double *group_at(const norm_state *s, char *shared, int64_t group) {
    return (double *)(void *)shared + group * 2 * s->channels;
}

static float *vectors_of(const norm_state *s, char *shared) {
    return (float *)group_at(s, shared, s->groups);
}

/* Returns the calling thread's groups and memory. */
static worker worker_of(const norm_state *s, const trmi_scratch *scratch) {
#ifdef _OPENMP
    int64_t threads = omp_get_num_threads(), me = omp_get_thread_num();
#else
    int64_t threads = 1, me = 0;
#endif
    float *own = (float *)(void *)trmi_scratch_own(scratch, (int)me);
    return (worker){s->groups * me / threads, s->groups * (me + 1) / threads, own,
                    own + 3 * s->channels, own + 4 * s->channels};
}

/* Returns the first block of a group. With blocks of samples, groups divide each of them alike. */
static int64_t block_of_group(const norm_state *s, int64_t group) {
    if (s->samples > 0) {
        return group / s->samples_groups * s->samples_blocks +
               trmi_cut_at(s->samples_blocks, s->samples_groups, group % s->samples_groups);
    }
    return s->groups > 0 ? trmi_cut_at(s->blocks, s->groups, group) : 0;
}

/* Returns the first row of a block. */
static int64_t row_of_block(const norm_state *s, int64_t block) {
    if (s->samples > 0) {
        return block / s->samples_blocks * s->samples_rows +
               trmi_min_i64(s->samples_rows, block % s->samples_blocks * s->block_rows);
    }
    return trmi_min_i64(s->rows, block * s->block_rows);
}

/* Returns the number of rows of groups [begin, end). */
static double rows_of_groups(const norm_state *s, int64_t begin, int64_t end) {
    return (double)(row_of_block(s, block_of_group(s, end)) -
                    row_of_block(s, block_of_group(s, begin)));
}

/* Returns the first group of a half. */
static int64_t group_of_half(const norm_state *s, int half) {
    return trmi_cut_at(s->groups, HALVES, half);
}

/* Returns how many channels are combined from c on. */
static int width_at(const norm_state *s, int64_t c) {
    return (int)trmi_min_i64(CHANNELS, s->channels - c);
}

/* Calls `pass` for the rows of each block of a worker. The second pass over the same blocks goes
 * backwards, because the last blocks of the first pass are still in the caches. */
typedef void (*block_pass)(const void *job, int64_t begin, int64_t end);
static void each_block(const norm_state *s, const worker *w, bool backwards, block_pass pass,
                       const void *job) {
    int64_t first = block_of_group(s, w->first), last = block_of_group(s, w->end);
    for (int64_t i = first; i < last; i++) {
        int64_t b = backwards ? first + last - 1 - i : i;
        pass(job, row_of_block(s, b), row_of_block(s, b + 1));
    }
}

/* Adds channels [c, c + width) of a group to the sums of groups [first, group), which are in
 * `first`. */
typedef void (*group_join)(const norm_state *s, char *shared, int64_t first, int64_t group,
                           int64_t c, int width);

/* Adds the groups of each half to its first group. Called by all threads of the team. */
static void join_halves(const norm_state *s, char *shared, group_join join) {
    int64_t pieces = trmi_pieces(s->channels, CHANNELS);
    if (s->threads > HALVES) { /* else each thread has computed all groups of its half */
#pragma omp barrier
    }
#pragma omp for schedule(static)
    for (int64_t i = 0; i < HALVES * pieces; i++) {
        int64_t first = group_of_half(s, (int)(i / pieces)),
                end = group_of_half(s, (int)(i / pieces) + 1);
        int64_t c = i % pieces * CHANNELS;
        for (int64_t g = first + 1; g < end; g++) {
            join(s, shared, first, g, c, width_at(s, c));
        }
    }
}

/* Returns whether `to` is stored past the caches: it is large and consists of aligned vectors. */
static bool is_streamed(const norm_state *s, const void *to) {
    int64_t bytes = s->rows * s->channels * (s->half ? 2 : 4);
    return bytes > STREAM_BYTES && s->channels % 32 == 0 && (uintptr_t)to % 64 == 0;
}

/* ---- forward --------------------------------------------------------------------------------- */

/* Computes mean and sum of squared differences from it, of each channel, for a worker's groups. */
static void measure_groups(const norm_state *s, const worker *w, const void *x, char *shared) {
    float *first = w->sums, *sum = first + s->channels, *square = sum + s->channels;
    for (int64_t g = w->first; g < w->end; g++) {
        double *mean = group_at(s, shared, g), *m2 = mean + s->channels, n = 0;
        memset(mean, 0, (size_t)(2 * s->channels) * sizeof *mean);
        for (int64_t b = block_of_group(s, g); b < block_of_group(s, g + 1); b++) {
            int64_t begin = row_of_block(s, b), end = row_of_block(s, b + 1);
            s->kernels->statistics(x, s->half, begin, end, s->channels, first, sum, square);
            s->kernels->join(first, sum, square, n, (double)(end - begin), (int)s->channels, mean,
                             m2);
            n += (double)(end - begin);
        }
    }
}

/* Joins a group's mean and M2 with those of the groups before it (Chan et al. 1979), for `width`
 * channels from c on. */
static void join_statistics(const norm_state *s, char *shared, int64_t first, int64_t group,
                            int64_t c, int width) {
    double *to = group_at(s, shared, first) + c;
    const double *from = group_at(s, shared, group) + c;
    s->kernels->join_groups(from, from + s->channels, rows_of_groups(s, first, group),
                            rows_of_groups(s, group, group + 1), width, to, to + s->channels);
}

/* Combines the groups [first, end) to mean and m2 of all channels. */
static void combine_groups(const norm_state *s, char *shared, int64_t first, int64_t end,
                           double *mean, double *m2) {
    double n = 0;
    memset(mean, 0, (size_t)s->channels * sizeof *mean);
    memset(m2, 0, (size_t)s->channels * sizeof *m2);
    for (int64_t g = first; g < end; g++) {
        const double *from = group_at(s, shared, g);
        double rows = rows_of_groups(s, g, g + 1);
        s->kernels->join_groups(from, from + s->channels, n, rows, (int)s->channels, mean, m2);
        n += rows;
    }
}

/* Combines the two halves to mean and m2 of channels [c, c + width). */
static void combine_halves(const norm_state *s, char *shared, int64_t c, int width, double *mean,
                           double *m2) {
    double n = 0;
    for (int i = 0; i < width; i++) {
        mean[i] = m2[i] = 0;
    }
    for (int h = 0; h < HALVES; h++) {
        const double *half = group_at(s, shared, group_of_half(s, h)) + c;
        double count = rows_of_groups(s, group_of_half(s, h), group_of_half(s, h + 1));
        if (count > 0) {
            s->kernels->join_groups(half, half + s->channels, n, count, width, mean, m2);
        }
        n += count;
    }
}

/* Computes scale and shift of each channel, by which y = x * scale + shift normalises. */
static void scale_and_shift(const norm_state *s, const float *gamma, const float *beta,
                            const float *mean, const float *inv_std, float *scale, float *shift) {
    for (int64_t c = 0; c < s->channels; c++) {
        scale[c] = gamma[c] * inv_std[c];
        shift[c] = beta[c] - mean[c] * scale[c];
    }
}

/* Is the second pass of forward over one block. */
static void apply_pass(const void *job, int64_t begin, int64_t end) {
    const norm_forward *f = job;
    f->s->kernels->apply(&f->pass, begin, end);
}

/* Combines the statistics of one channel over the ranks, in rank order (Chan et al.). Each rank
 * sends [means, sums of squares, number of rows]. */
static void combine_ranks(const double *all, int64_t channels, int32_t size, int64_t c,
                          double *mean, double *m2) {
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

/* Returns the number of rows of all ranks. */
static double rows_of_all(const norm_state *s, const double *all, int32_t size) {
    double rows = all != NULL ? 0 : (double)s->rows;
    for (int32_t r = 0; all != NULL && r < size; r++) {
        rows += all[(r + 1) * (2 * s->channels + 1) - 1];
    }
    return rows;
}

/* Returns the exchange of statistics with other ranks or blocks; NULL: none. */
static trmi_norm_sync *sync_of(const trmi_attrs *attrs, const trmi_kernel_env *env) {
    uint32_t axes = trmi_part_of(attrs)->sample_axes;
    trmi_norm_sync *sync = trmi_samples_sync(env->block_sync, env->sync, axes);
    return sync == NULL && axes == 0 ? env->norm_sync : sync;
}

/* Gathers the statistics of all ranks to *all. */
static trm_status gather_statistics(const norm_state *s, char *shared, trmi_norm_sync *sync,
                                    const double **all, trm_error *err) {
    for (int64_t b = 0; b < s->samples; b++) {
        double *of = sync->values + b * (2 * s->channels + 1);
        combine_groups(s, shared, b * s->samples_groups, (b + 1) * s->samples_groups, of,
                       of + s->channels);
        of[2 * s->channels] = (double)s->samples_rows;
    }
    if (s->samples == 0) {
        combine_halves(s, shared, 0, (int)s->channels, sync->values, sync->values + s->channels);
        sync->values[2 * s->channels] = (double)s->rows;
    }
    return sync->gather(sync, sync->values, 2 * s->channels + 1, all, err);
}

/* Computes the final statistics of channels [at, at + width): mean, inverse deviation, running
 * averages, scale and shift. */
static void finish_statistics(const norm_forward *f, int64_t at, int width) {
    double m[CHANNELS], m2[CHANNELS], momentum = f->momentum, count = f->count;
    if (f->all == NULL) {
        combine_halves(f->s, f->shared, at, width, m, m2);
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
        f->running_var[c] =
            (float)((1 - momentum) * (double)f->running_var[c] + momentum * unbiased);
        f->scale[c] = f->gamma[c] * f->inv_std[c];
        f->shift[c] = f->beta[c] - f->mean[c] * f->scale[c];
    }
}

/* Computes statistics (unless those of all ranks are there) and the output, in one parallel
 * region. */
static void run_forward(const norm_forward *f) {
    const norm_state *s = f->s;
#pragma omp parallel num_threads(s->threads)
    {
        worker w = worker_of(s, &f->scratch);
        if (f->all == NULL) {
            measure_groups(s, &w, f->pass.x, f->shared);
            join_halves(s, f->shared, join_statistics);
        }
#pragma omp for schedule(static)
        for (int64_t c = 0; c < s->channels; c += CHANNELS) {
            finish_statistics(f, c, width_at(s, c));
        }
        if (f->pass.y != NULL) {
            each_block(s, &w, true, apply_pass, f);
        }
    }
}

/* Runs the forward pass of training. With several ranks the statistics are computed and gathered
 * before `run_forward`. */
static trm_status run_train(const trmi_kernel *k, const trmi_kernel_env *env, trm_error *err) {
    const norm_state *s = k->state;
    const trmi_attrs *attrs = k->step->attrs;
    const trmi_scratch scratch = scratch_of(k, env);
    char *shared = trmi_scratch_shared(&scratch);
    float *vectors = vectors_of(s, shared);
    norm_forward f = {.s = s,
                      .scratch = scratch,
                      .shared = shared,
                      .gamma = trmi_kernel_input(k, env, 1),
                      .beta = trmi_kernel_input(k, env, 2),
                      .running_mean = trmi_kernel_input(k, env, 3),
                      .running_var = trmi_kernel_input(k, env, 4),
                      .scale = vectors,
                      .shift = vectors + s->channels,
                      .mean = trmi_kernel_output(k, env, 1),
                      .inv_std = trmi_kernel_output(k, env, 2),
                      .momentum = attrs->norm.momentum,
                      .epsilon = attrs->norm.epsilon};
    /* Statistics that no backward step reads are kept in scratch. */
    f.mean = f.mean != NULL ? f.mean : vectors + 2 * s->channels;
    f.inv_std = f.inv_std != NULL ? f.inv_std : vectors + 3 * s->channels;
    f.pass = (trmi_norm_forward){.x = trmi_kernel_input(k, env, 0),
                                 .residual = trmi_kernel_input(k, env, 5),
                                 .y = trmi_kernel_output(k, env, 0),
                                 .channels = s->channels,
                                 .half = s->half,
                                 .relu = attrs->norm.relu,
                                 .scale = f.scale,
                                 .shift = f.shift};
    f.pass.stream = is_streamed(s, f.pass.y);
    /* Of several ranks each measures its own samples, and all gather the results of all. */
    trmi_norm_sync *sync = sync_of(attrs, env);
    if (sync != NULL) {
#pragma omp parallel num_threads(s->threads)
        {
            worker w = worker_of(s, &f.scratch);
            measure_groups(s, &w, f.pass.x, f.shared);
            if (s->samples == 0) {
                join_halves(s, f.shared, join_statistics);
            }
        }
        TRMI_TRY(gather_statistics(s, f.shared, sync, &f.all, err));
        f.size = f.all != NULL ? sync->size : 1;
    }
    f.count = rows_of_all(s, f.all, f.size);
    run_forward(&f);
    return TRM_OK;
}

/* Normalises by given statistics: evaluation (mean, variance), or recomputation of the output in
 * backward (mean, 1 / standard deviation). */
static trm_status run_given(const trmi_kernel *k, const trmi_kernel_env *env, trm_error *err) {
    (void)err;
    const norm_state *s = k->state;
    const float *gamma = trmi_kernel_input(k, env, 1), *beta = trmi_kernel_input(k, env, 2);
    const float *mean = trmi_kernel_input(k, env, 3), *second = trmi_kernel_input(k, env, 4);
    const trmi_scratch scratch = scratch_of(k, env);
    const float *inv_std = second;
    /* Evaluation gives a variance; the kernels multiply with 1 / standard deviation. */
    if (k->step->op_kind != TRMI_OP_NORM_ACT_APPLY) {
        float *made = vectors_of(s, trmi_scratch_shared(&scratch));
        for (int64_t c = 0; c < s->channels; c++) {
            made[c] = (float)(1 / sqrt((double)second[c] + k->step->attrs->norm.epsilon));
        }
        inv_std = made;
    }
    norm_forward f = {.s = s,
                      .pass = {.x = trmi_kernel_input(k, env, 0),
                               .residual = trmi_kernel_input(k, env, 5),
                               .y = trmi_kernel_output(k, env, 0),
                               .channels = s->channels,
                               .half = s->half,
                               .relu = k->step->attrs->norm.relu}};
    f.pass.stream = is_streamed(s, f.pass.y);
#pragma omp parallel num_threads(s->threads)
    {
        worker w = worker_of(s, &scratch);
        norm_forward mine = f;
        scale_and_shift(s, gamma, beta, mean, inv_std, w.scale, w.shift);
        mine.pass.scale = w.scale, mine.pass.shift = w.shift;
        each_block(s, &w, false, apply_pass, &mine);
    }
    return TRM_OK;
}

/* ---- backward -------------------------------------------------------------------------------- */

/* The inputs of the gradient with one value a channel: parameters, and statistics of the forward
 * pass. */
typedef struct gradient_vectors {
    const float *gamma, *beta; /* beta NULL: without ReLU, whose mask needs it */
    const float *mean, *inv_std;
} gradient_vectors;

/* Returns the vectors of channels that the two gradient operators have at different inputs. */
static gradient_vectors vectors_of_gradient(const trmi_kernel *k, const trmi_kernel_env *env) {
    if (k->step->op_kind == TRMI_OP_BATCH_NORM_GRAD) {
        return (gradient_vectors){trmi_kernel_input(k, env, 2), NULL, trmi_kernel_input(k, env, 3),
                                  trmi_kernel_input(k, env, 4)};
    }
    return (gradient_vectors){trmi_kernel_input(k, env, 3), trmi_kernel_input(k, env, 4),
                              trmi_kernel_input(k, env, 5), trmi_kernel_input(k, env, 6)};
}

/* Operands and results of a backward pass. */
typedef struct norm_backward {
    const norm_state *s;
    trmi_norm_backward pass;
    trmi_scratch scratch;
    char *shared;
    gradient_vectors v;
    float *dgamma, *dbeta, *of_dz, *of_x, *constant;
    bool masks;        /* by x * scale + shift, which each thread has for itself */
    double count;      /* of rows */
    const double *all; /* ranks' sums; NULL: this one is by itself */
    int32_t size;
} norm_backward;

/* Returns the operands of one thread. Where the ReLU's mask comes from x, each thread computes
 * scale and shift into its own memory: they are read in every row. */
static norm_backward for_worker(const norm_backward *f, const worker *w) {
    norm_backward mine = *f;
    if (f->masks) {
        scale_and_shift(f->s, f->v.gamma, f->v.beta, f->v.mean, f->v.inv_std, w->scale, w->shift);
        mine.pass.scale = w->scale, mine.pass.shift = w->shift;
    }
    return mine;
}

/* Computes the sums of dz and of dz (x - mean), of each channel, for a worker's groups. */
static void sum_groups(const norm_backward *f, const worker *w) {
    const norm_state *s = f->s;
    for (int64_t g = w->first; g < w->end; g++) {
        double *sum = group_at(s, f->shared, g), *sum_x = sum + s->channels;
        memset(sum, 0, (size_t)(2 * s->channels) * sizeof *sum);
        for (int64_t b = block_of_group(s, g); b < block_of_group(s, g + 1); b++) {
            float *one = w->sums, *other = one + s->channels;
            s->kernels->gradient_sums(&f->pass, row_of_block(s, b), row_of_block(s, b + 1), one,
                                      other);
            s->kernels->join_sums(one, other, (int)s->channels, sum, sum_x);
        }
    }
}

/* Adds a group's two sums to those of the groups before it. */
static void join_sums(const norm_state *s, char *shared, int64_t first, int64_t group, int64_t c,
                      int width) {
    double *to = group_at(s, shared, first) + c;
    const double *from = group_at(s, shared, group) + c;
    for (int i = 0; i < width; i++) {
        to[i] += from[i];
        to[s->channels + i] += from[s->channels + i];
    }
}

/* Adds the two sums of channels [c, c + width) over both halves of this rank's rows. */
static void add_halves(const norm_state *s, char *shared, int64_t c, int width, double *sum,
                       double *sum_x) {
    for (int i = 0; i < width; i++) {
        sum[i] = sum_x[i] = 0;
    }
    for (int h = 0; h < HALVES; h++) {
        int64_t first = group_of_half(s, h);
        const double *half = group_at(s, shared, first) + c;
        for (int i = 0; i < (first < group_of_half(s, h + 1) ? width : 0); i++) {
            sum[i] += half[i];
            sum_x[i] += half[s->channels + i];
        }
    }
}

/* Is the second pass of backward over one block. */
static void gradient_pass(const void *job, int64_t begin, int64_t end) {
    const norm_backward *f = job;
    f->s->kernels->gradient_apply(&f->pass, begin, end);
}

/* Adds up the sums of this rank (in strict mode: of each block of samples), and gathers those of
 * all ranks with the number of rows that they are of. */
static trm_status gather_sums(const norm_backward *f, trmi_norm_sync *sync, const double **all,
                              trm_error *err) {
    const norm_state *s = f->s;
    int64_t channels = s->channels;
    for (int64_t b = 0; b < s->samples; b++) {
        double *of = sync->values + b * (2 * channels + 1);
        memset(of, 0, (size_t)(2 * channels) * sizeof *of);
        for (int64_t g = b * s->samples_groups; g < (b + 1) * s->samples_groups; g++) {
            const double *from = group_at(s, f->shared, g);
            for (int64_t i = 0; i < 2 * channels; i++) {
                of[i] += from[i];
            }
        }
        of[2 * channels] = (double)s->samples_rows;
    }
    if (s->samples == 0) {
        add_halves(s, f->shared, 0, (int)channels, sync->values, sync->values + channels);
        sync->values[2 * channels] = (double)s->rows;
    }
    return sync->gather(sync, sync->values, 2 * channels + 1, all, err);
}

/* Adds the two sums of one channel over all ranks, or over all blocks of samples. */
static void add_all(const norm_backward *f, int64_t c, double *sum, double *sum_x) {
    *sum = *sum_x = 0;
    for (int32_t r = 0; r < f->size; r++) {
        const double *of = f->all + r * (2 * f->s->channels + 1);
        *sum += of[c];
        *sum_x += of[f->s->channels + c];
    }
}

/* Computes, for channels [at, at + width), dgamma and dbeta of this rank (gradients are reduced
 * over ranks later; with blocks of samples they are those of all), and the three coefficients of dx
 * from the sums of all ranks. */
static void finish_sums(const norm_backward *f, int64_t at, int width) {
    double sums[CHANNELS], sums_x[CHANNELS];
    for (int i = 0; f->s->samples > 0 && i < width; i++) {
        add_all(f, at + i, &sums[i], &sums_x[i]);
    }
    if (f->s->samples == 0) {
        add_halves(f->s, f->shared, at, width, sums, sums_x);
    }
    for (int i = 0; i < width; i++) {
        int64_t c = at + i;
        double sum = sums[i], sum_x = sums_x[i], inv_std = (double)f->v.inv_std[c];
        if (f->dgamma != NULL) {
            f->dgamma[c] = (float)(sum_x * inv_std);
        }
        if (f->dbeta != NULL) {
            f->dbeta[c] = (float)sum;
        }
        /* Use the sums of all ranks. */
        if (f->all != NULL) {
            add_all(f, c, &sum, &sum_x);
        }
        /* Write dx = a dz - slope (x - mean) - a sum / count as a linear function of dz and x. */
        double a = (double)f->v.gamma[c] * inv_std,
               slope = a * inv_std * inv_std * sum_x / f->count;
        f->of_dz[c] = (float)a;
        f->of_x[c] = (float)-slope;
        f->constant[c] = (float)(slope * (double)f->v.mean[c] - a * sum / f->count);
    }
}

/* Computes sums (unless those of all ranks are there), gradients and dx, in one parallel region. */
static void run_backward(const norm_backward *f) {
    const norm_state *s = f->s;
#pragma omp parallel num_threads(s->threads)
    {
        worker w = worker_of(s, &f->scratch);
        norm_backward mine = for_worker(f, &w);
        if (f->all == NULL) {
            sum_groups(&mine, &w);
            join_halves(s, f->shared, join_sums);
        }
#pragma omp for schedule(static)
        for (int64_t c = 0; c < s->channels; c += CHANNELS) {
            finish_sums(f, c, width_at(s, c));
        }
        if (f->pass.dx != NULL) {
            each_block(s, &w, true, gradient_pass, &mine);
        }
    }
}

/* Returns the operands of the backward passes. */
static trmi_norm_backward backward_of(const trmi_kernel *k, const trmi_kernel_env *env) {
    const norm_state *s = k->state;
    const trmi_attrs *attrs = k->step->attrs;
    bool fused = k->step->op_kind == TRMI_OP_NORM_ACT_GRAD;
    trmi_norm_backward pass = {.dy = trmi_kernel_input(k, env, 0),
                               .x = trmi_kernel_input(k, env, 1),
                               .y = fused && attrs->norm.from_y ? trmi_kernel_input(k, env, 2)
                                                                : NULL,
                               .dx = trmi_kernel_output(k, env, 0),
                               .dz = fused ? trmi_kernel_output(k, env, 3) : NULL,
                               .dy2 = fused ? trmi_kernel_input(k, env, 7) : NULL,
                               .channels = s->channels,
                               .half = s->half,
                               .relu = fused && attrs->norm.relu};
    pass.stream = is_streamed(s, pass.dx) && is_streamed(s, pass.dz);
    return pass;
}

/* Computes the gradients of a batch norm. With `sync` the two sums over the batch are made first
 * and gathered from all ranks (or blocks), because every element of dx depends on them;
 * run_backward then has the sums of the whole batch. */
static trm_status run_gradient(const trmi_kernel *k, const trmi_kernel_env *env, trm_error *err) {
    const norm_state *s = k->state;
    const trmi_attrs *attrs = k->step->attrs;
    const trmi_scratch scratch = scratch_of(k, env);
    char *shared = trmi_scratch_shared(&scratch);
    float *vectors = vectors_of(s, shared);
    norm_backward f = {.s = s,
                       .pass = backward_of(k, env),
                       .scratch = scratch,
                       .shared = shared,
                       .v = vectors_of_gradient(k, env),
                       .dgamma = trmi_kernel_output(k, env, 1),
                       .dbeta = trmi_kernel_output(k, env, 2),
                       .of_dz = vectors,
                       .of_x = vectors + s->channels,
                       .constant = vectors + 2 * s->channels};
    f.masks = f.pass.relu && !attrs->norm.from_y;
    f.pass.mean = f.v.mean;
    f.pass.of_dz = f.of_dz, f.pass.of_x = f.of_x, f.pass.constant = f.constant;
    /* With other ranks: send this rank's sums, then read those of all. */
    trmi_norm_sync *sync = sync_of(attrs, env);
    if (sync != NULL) {
#pragma omp parallel num_threads(s->threads)
        {
            worker w = worker_of(s, &scratch);
            norm_backward mine = for_worker(&f, &w);
            sum_groups(&mine, &w);
            if (s->samples == 0) {
                join_halves(s, f.shared, join_sums);
            }
        }
        TRMI_TRY(gather_sums(&f, sync, &f.all, err));
        f.size = f.all != NULL ? sync->size : 1;
    }
    f.count = rows_of_all(s, f.all, f.size);
    run_backward(&f);
    return TRM_OK;
}

/* ---- bind ------------------------------------------------------------------------------------ */

static void destroy_kernel(trmi_kernel *kernel) { trmi_free(kernel->state); }

/* Contract in onednn.h. Rows of channels must be contiguous: channels-last images or matrices. */
trm_status trmi_onednn_bind_norm(trmi_backend *backend, trmi_kernel *kernel, trm_error *err) {
    trmi_op_kind kind = kernel->step->op_kind;
    const trmi_buffer *x = trmi_kernel_input_buffer(kernel, is_gradient(kind) ? 1 : 0);
    bool rows = x->layout == TRMI_CHANNELS_LAST || x->shape.rank == 2;
    if (!rows || (x->dtype != TRM_FLOAT32 && x->dtype != TRM_BFLOAT16)) {
        return TRMI_FAIL(err, TRM_UNSUPPORTED, "%s: no fast norm for this layout",
                         kernel->step->name);
    }
    norm_state *s;
    TRMI_TRY(TRMI_NEW(err, s, 1, "for the kernel of %s", kernel->step->name));
    s->kernels = kernels_for_cpu();
    set_blocks(s, x, kernel->step, trmi_onednn_of(backend));
    kernel->state = s;
    kernel->destroy = destroy_kernel;
    bool train = kind == TRMI_OP_NORM_ACT || kind == TRMI_OP_BATCH_NORM;
    kernel->run = is_gradient(kind) ? run_gradient : train ? run_train : run_given;
    return TRM_OK;
}
