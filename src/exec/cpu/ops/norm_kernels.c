/* SPDX-License-Identifier: Apache-2.0 */
/* exec/cpu/ops/norm_kernels.c: the loops of norm_kernels.h, compiled for each instruction set
 * (base/simd/isa.h).
 *
 *   training   statistics --join--> mean, m2 --> apply             forward, two passes over x
 *              gradient_sums --join--> sums  --> gradient_apply    backward, two over x and dy
 *
 * The names show how a loop is made special: `_lanes` works on n <= VL channels of a row, `_rows`
 * or `_strip` on rows, `_any` chooses whether the type is bfloat16 and whether to stream past the
 * caches, so that both are constants in the inlined loops. Only the last function of a group is
 * called from outside.
 *
 * Invariant: rows are added in the order of their addresses, whatever thread has the block; sums of
 * blocks are joined in double by norm.c. */
#include "exec/cpu/ops/norm_kernels.h"

#include "base/inline.h"
#include "base/simd/isa.h"
#include "base/simd/vec.h"

/* Prefetches an element for reading. The address may be past the end. */
TRMI_INLINE void vf_prefetch(const void *base, int64_t at, int half) {
    __builtin_prefetch((const void *)((uintptr_t)base + (uintptr_t)(at * (half ? 2 : 4))), 0, 3);
}

/* Prefetches memory that will be written. */
TRMI_INLINE void vf_prefetch_to_write(const void *base, int64_t at, int half) {
    __builtin_prefetch((const void *)((uintptr_t)base + (uintptr_t)(at * (half ? 2 : 4))), 1, 3);
}

/* ---- statistics ------------------------------------------------------------------------------ */

/* Wide rows are cut into strips of channels, which are read down the rows of a block. Hardware
 * prefetchers do not follow such strides, so each access prefetches the element AHEAD_ROWS rows
 * further on, which is still in L1 when its row is read. */
enum { AHEAD_ROWS = 16, STRIP = 256 };
enum { AHEAD = 2048 }; /* elements, where a pass goes along the rows */

/* Adds rows to the sums, eight at a time, so that sums are read and written once for eight
 * elements. */
TRMI_INLINE void statistics_lanes(const void *x, int half, int64_t row, int64_t rows,
                                  int64_t channels, int64_t c, int n, float *first, float *sum,
                                  float *square) {
    vf x0 = vf_lanes(first, c, 0, n), s = vf_lanes(sum, c, 0, n), q = vf_lanes(square, c, 0, n);
    for (int64_t r = 0; r < rows; r++) {
        int64_t at = (row + r) * channels + c;
        vf_prefetch(x, at + AHEAD_ROWS * channels, half);
        vf d = vf_sub(vf_lanes(x, at, half, n), x0);
        s = vf_add(s, d);
        q = vf_fma(d, d, q);
    }
    vf_put_lanes(sum, c, 0, n, s);
    vf_put_lanes(square, c, 0, n, q);
}

/* Adds rows [begin, end) of a strip of channels to the sums of x - first and of its square. */
TRMI_INLINE void statistics_strip(const void *x, int half, int64_t begin, int64_t end,
                                  int64_t channels, int64_t strip, float *first, float *sum,
                                  float *square) {
    int64_t width = channels - strip < STRIP ? channels - strip : STRIP;
    for (int64_t row = begin; row < end; row += 8) {
        int64_t rows = end - row < 8 ? end - row : 8;
        if (rows == 8) {
            VF_LOOP(width,
                    statistics_lanes(x, half, row, 8, channels, strip + i, VL, first, sum, square),
                    statistics_lanes(x, half, row, 8, channels, strip + i, n, first, sum, square));
        } else {
            VF_LOOP(
                width,
                statistics_lanes(x, half, row, rows, channels, strip + i, VL, first, sum, square),
                statistics_lanes(x, half, row, rows, channels, strip + i, n, first, sum, square));
        }
    }
}

/* Computes sums over rows [begin, end) of x - first and (x - first)^2 for each channel, where
 * `first` is the first row. Subtracting it keeps the sum of squares small where the mean is large
 * against the deviation, so that float32 is enough for a block; norm.c joins blocks in double. */
TRMI_INLINE void statistics_any(const void *x, int half, int64_t begin, int64_t end,
                                int64_t channels, float *first, float *sum, float *square) {
    VF_LOOP(channels, vf_put_lanes(first, i, 0, VL, vf_lanes(x, begin * channels + i, half, VL)),
            vf_put_lanes(first, i, 0, n, vf_lanes(x, begin * channels + i, half, n)));
    memset(sum, 0, (size_t)channels * sizeof *sum);
    memset(square, 0, (size_t)channels * sizeof *square);
    for (int64_t strip = 0; strip < channels; strip += STRIP) {
        statistics_strip(x, half, begin, end, channels, strip, first, sum, square);
    }
}

/* Makes the type a constant of the inlined loops. */
static void sum_statistics(const void *x, int half, int64_t begin, int64_t end, int64_t channels,
                           float *first, float *sum, float *square) {
    if (half) {
        statistics_any(x, 1, begin, end, channels, first, sum, square);
    } else {
        statistics_any(x, 0, begin, end, channels, first, sum, square);
    }
}

/* ---- forward --------------------------------------------------------------------------------- */

/* Stores a vector, past the caches if `stream` is set: an output that is larger than the caches
 * would only displace what the next operator reads. The tail of a row is always stored normally. */
TRMI_INLINE void leave_lanes(void *base, int64_t at, int half, int n, int stream, vf v) {
    if (stream && n == VL) {
        vf_stream(base, at, half, v);
    } else {
        vf_put_lanes(base, at, half, n, v);
    }
}

/* Computes y = x * scale + shift (+ residual), with ReLU, for n channels of a row. */
TRMI_INLINE void apply_lanes(const trmi_norm_forward *job, int half, int residual, int relu,
                             int stream, int64_t row, int64_t c, int n) {
    int64_t at = row * job->channels + c;
    vf_prefetch(job->x, at + AHEAD, half);
    if (residual) {
        vf_prefetch(job->residual, at + AHEAD, half);
    }
    if (!stream) {
        vf_prefetch_to_write(job->y, at + AHEAD, half);
    }
    vf y = vf_fma(vf_lanes(job->x, at, half, n), vf_lanes(job->scale, c, 0, n),
                  vf_lanes(job->shift, c, 0, n));
    if (residual) {
        y = vf_add(y, vf_lanes(job->residual, at, half, n));
    }
    if (relu) {
        y = vf_select(vf_gt(vf_zero(), y), vf_zero(), y); /* NaN passes, so that it is seen */
    }
    leave_lanes(job->y, at, half, n, stream, y);
}

/* Runs the pass over whole rows. All flags are constants here, so no branch on them is left in the
 * loop. */
TRMI_INLINE void apply_rows(const trmi_norm_forward *job, int half, int residual, int relu,
                            int stream, int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; row++) {
        VF_LOOP(job->channels, apply_lanes(job, half, residual, relu, stream, row, i, VL),
                apply_lanes(job, half, residual, relu, stream, row, i, n));
    }
}

/* Chooses whether to stream. Streamed stores are weakly ordered, so a fence ends them before other
 * threads read the rows. */
TRMI_INLINE void apply_any(const trmi_norm_forward *job, int half, int residual, int relu,
                           int64_t begin, int64_t end) {
    if (job->stream) {
        apply_rows(job, half, residual, relu, 1, begin, end);
        vf_fence();
    } else {
        apply_rows(job, half, residual, relu, 0, begin, end);
    }
}

/* Runs the pass over rows [begin, end) in the form that was compiled for this type, residual and
 * ReLU. */
static void apply_forward(const trmi_norm_forward *job, int64_t begin, int64_t end) {
    int form = (job->half ? 4 : 0) + (job->residual ? 2 : 0) + (job->relu ? 1 : 0);
    switch (form) {
    case 0: apply_any(job, 0, 0, 0, begin, end); break;
    case 1: apply_any(job, 0, 0, 1, begin, end); break;
    case 2: apply_any(job, 0, 1, 0, begin, end); break;
    case 3: apply_any(job, 0, 1, 1, begin, end); break;
    case 4: apply_any(job, 1, 0, 0, begin, end); break;
    case 5: apply_any(job, 1, 0, 1, begin, end); break;
    case 6: apply_any(job, 1, 1, 0, begin, end); break;
    default: apply_any(job, 1, 1, 1, begin, end); break;
    }
}

/* ---- backward -------------------------------------------------------------------------------- */

/* How backward finds where the ReLU was positive: there was none; from y computed again from x,
 * scale and shift; from the stored y, which it must read where a residual was added; the same, with
 * dy the sum of two gradients (dy + dy2), which saves the pass of an ADD. */
enum { MASK_NONE, MASK_FROM_X, MASK_FROM_Y, MASK_FROM_Y_OF_SUM, MASKS };

/* Returns dy where the ReLU was positive, else 0. */
TRMI_INLINE vf masked_gradient(const trmi_norm_backward *job, int half, int mask, int64_t at,
                               int64_t c, int n, vf x) {
    vf dy = vf_lanes(job->dy, at, half, n);
    if (mask == MASK_FROM_Y_OF_SUM) {
        dy = vf_add(dy, vf_lanes(job->dy2, at, half, n));
    }
    if (mask == MASK_FROM_Y || mask == MASK_FROM_Y_OF_SUM) {
        return vf_keep(vf_gt(vf_lanes(job->y, at, half, n), vf_zero()), dy);
    }
    if (mask == MASK_FROM_X) {
        vf y = vf_fma(x, vf_lanes(job->scale, c, 0, n), vf_lanes(job->shift, c, 0, n));
        return vf_keep(vf_gt(y, vf_zero()), dy);
    }
    return dy;
}

/* Prefetches what masked_gradient() and the caller read at `at`. */
TRMI_INLINE void prefetch_gradient(const trmi_norm_backward *job, int half, int mask, int64_t at) {
    vf_prefetch(job->x, at, half);
    vf_prefetch(job->dy, at, half);
    if (mask == MASK_FROM_Y || mask == MASK_FROM_Y_OF_SUM) {
        vf_prefetch(job->y, at, half);
    }
    if (mask == MASK_FROM_Y_OF_SUM) {
        vf_prefetch(job->dy2, at, half);
    }
}

/* Adds dz and dz (x - mean) of some rows to the sums of n channels, and keeps dz where the pass has
 * a place for it. */
TRMI_INLINE void sums_lanes(const trmi_norm_backward *job, int half, int mask, int stream,
                            int along, int64_t row, int64_t rows, int64_t c, int n, float *sum,
                            float *sum_x) {
    vf s = vf_lanes(sum, c, 0, n), q = vf_lanes(sum_x, c, 0, n),
       mean = vf_lanes(job->mean, c, 0, n);
    for (int64_t r = 0; r < rows; r++) {
        int64_t at = (row + r) * job->channels + c;
        prefetch_gradient(job, half, mask, at + (along ? AHEAD : AHEAD_ROWS * job->channels));
        if (job->dz && !stream) {
            vf_prefetch_to_write(job->dz, at + (along ? AHEAD : AHEAD_ROWS * job->channels), half);
        }
        vf x = vf_lanes(job->x, at, half, n);
        vf dz = masked_gradient(job, half, mask, at, c, n, x);
        s = vf_add(s, dz);
        q = vf_fma(dz, vf_sub(x, mean), q);
        if (job->dz) {
            leave_lanes(job->dz, at, half, n, stream, dz);
        }
    }
    vf_put_lanes(sum, c, 0, n, s);
    vf_put_lanes(sum_x, c, 0, n, q);
}

/* Adds rows to the sums, four at a time, so that sums are read and written once for four elements.
 * Wide rows are added one by one (`along`): their addresses in up to five tensors are powers of two
 * apart and would conflict in a few sets of L1. */
TRMI_INLINE void sums_rows(const trmi_norm_backward *job, int half, int mask, int stream, int along,
                           int64_t begin, int64_t end, float *sum, float *sum_x) {
    const int64_t most = along ? 1 : 4;
    memset(sum, 0, (size_t)job->channels * sizeof *sum);
    memset(sum_x, 0, (size_t)job->channels * sizeof *sum_x);
    for (int64_t row = begin; row < end; row += most) {
        int64_t rows = end - row < most ? end - row : most;
        if (rows == most) {
            VF_LOOP(job->channels,
                    sums_lanes(job, half, mask, stream, along, row, most, i, VL, sum, sum_x),
                    sums_lanes(job, half, mask, stream, along, row, most, i, n, sum, sum_x));
        } else {
            VF_LOOP(job->channels,
                    sums_lanes(job, half, mask, stream, along, row, rows, i, VL, sum, sum_x),
                    sums_lanes(job, half, mask, stream, along, row, rows, i, n, sum, sum_x));
        }
    }
}

/* Chooses the order of the pass. Wide rows go along the row; where dz is written too, one more
 * tensor competes for the sets of L1, so the limit is half as many channels. */
TRMI_INLINE void sums_stored(const trmi_norm_backward *job, int half, int mask, int stream,
                             int64_t begin, int64_t end, float *sum, float *sum_x) {
    if (job->channels > (job->dz != NULL ? STRIP / 2 : STRIP)) {
        sums_rows(job, half, mask, stream, 1, begin, end, sum, sum_x);
    } else {
        sums_rows(job, half, mask, stream, 0, begin, end, sum, sum_x);
    }
}

/* Chooses whether dz streams past the caches; only stores can. */
TRMI_INLINE void sums_any(const trmi_norm_backward *job, int half, int mask, int64_t begin,
                          int64_t end, float *sum, float *sum_x) {
    if (job->stream && job->dz != NULL) {
        sums_stored(job, half, mask, 1, begin, end, sum, sum_x);
        vf_fence();
    } else {
        sums_stored(job, half, mask, 0, begin, end, sum, sum_x);
    }
}

/* Returns the MASK_ of a job: the cheapest source of the sign that the job has. */
static int mask_of(const trmi_norm_backward *job) {
    return !job->relu ? MASK_NONE
           : job->dy2 ? MASK_FROM_Y_OF_SUM
           : job->y   ? MASK_FROM_Y
                      : MASK_FROM_X;
}

/* Runs the pass of the sums over rows [begin, end) in the form that was compiled for this type and
 * mask. */
static void gradient_sums(const trmi_norm_backward *job, int64_t begin, int64_t end, float *sum,
                          float *sum_x) {
    switch (mask_of(job) + (job->half ? MASKS : 0)) {
    case MASK_NONE: sums_any(job, 0, MASK_NONE, begin, end, sum, sum_x); break;
    case MASK_FROM_X: sums_any(job, 0, MASK_FROM_X, begin, end, sum, sum_x); break;
    case MASK_FROM_Y: sums_any(job, 0, MASK_FROM_Y, begin, end, sum, sum_x); break;
    case MASK_FROM_Y_OF_SUM: sums_any(job, 0, MASK_FROM_Y_OF_SUM, begin, end, sum, sum_x); break;
    case MASKS + MASK_NONE: sums_any(job, 1, MASK_NONE, begin, end, sum, sum_x); break;
    case MASKS + MASK_FROM_X: sums_any(job, 1, MASK_FROM_X, begin, end, sum, sum_x); break;
    case MASKS + MASK_FROM_Y: sums_any(job, 1, MASK_FROM_Y, begin, end, sum, sum_x); break;
    default: sums_any(job, 1, MASK_FROM_Y_OF_SUM, begin, end, sum, sum_x); break;
    }
}

/* Computes dx = dz * of_dz + x * of_x + constant for n channels of a row. */
TRMI_INLINE void gradient_lanes(const trmi_norm_backward *job, int half, int mask, int stream,
                                int64_t row, int64_t c, int n) {
    int64_t at = row * job->channels + c;
    vf_prefetch(job->x, at + AHEAD, half);
    vf_prefetch(job->dz ? job->dz : job->dy, at + AHEAD, half);
    if (!stream && job->dx != job->dy && job->dx != job->dz) {
        vf_prefetch_to_write(job->dx, at + AHEAD, half);
    }
    vf x = vf_lanes(job->x, at, half, n);
    vf dz =
        job->dz ? vf_lanes(job->dz, at, half, n) : masked_gradient(job, half, mask, at, c, n, x);
    vf dx = vf_fma(x, vf_lanes(job->of_x, c, 0, n), vf_lanes(job->constant, c, 0, n));
    leave_lanes(job->dx, at, half, n, stream, vf_fma(dz, vf_lanes(job->of_dz, c, 0, n), dx));
}

/* Runs the second pass of backward over whole rows, flags being constants. */
TRMI_INLINE void gradient_rows(const trmi_norm_backward *job, int half, int mask, int stream,
                               int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; row++) {
        VF_LOOP(job->channels, gradient_lanes(job, half, mask, stream, row, i, VL),
                gradient_lanes(job, half, mask, stream, row, i, n));
    }
}

/* Chooses whether dx streams past the caches. */
TRMI_INLINE void gradient_any(const trmi_norm_backward *job, int half, int mask, int64_t begin,
                              int64_t end) {
    if (job->stream) {
        gradient_rows(job, half, mask, 1, begin, end);
        vf_fence();
    } else {
        gradient_rows(job, half, mask, 0, begin, end);
    }
}

/* Runs the second pass of backward over rows [begin, end). If the first pass has kept dz, no mask
 * is needed any more; a job with dy2 has a residual, and so always keeps dz
 * (pass_fuse_grad_add). */
static void gradient_apply(const trmi_norm_backward *job, int64_t begin, int64_t end) {
    switch ((job->dz ? MASK_NONE : mask_of(job)) + (job->half ? 3 : 0)) {
    case 0: gradient_any(job, 0, MASK_NONE, begin, end); break;
    case 1: gradient_any(job, 0, MASK_FROM_X, begin, end); break;
    case 2: gradient_any(job, 0, MASK_FROM_Y, begin, end); break;
    case 3: gradient_any(job, 1, MASK_NONE, begin, end); break;
    case 4: gradient_any(job, 1, MASK_FROM_X, begin, end); break;
    default: gradient_any(job, 1, MASK_FROM_Y, begin, end); break;
    }
}

/* ---- blocks ---------------------------------------------------------------------------------- */

/* Adds a block's statistics, which are relative to its first row, to the mean and m2 so far. */
static void join_block(const float *first, const float *sum, const float *square, double before,
                       double count, int width, double *restrict mean, double *restrict m2) {
    double share = count / (before + count), each = 1 / count;
    for (int i = 0; i < width; i++) {
        double block_sum = (double)sum[i], block_mean = (double)first[i] + block_sum * each;
        double block_m2 = (double)square[i] - block_sum * block_sum * each;
        double delta = block_mean - mean[i];
        mean[i] += delta * share;
        m2[i] += (block_m2 > 0 ? block_m2 : 0) + delta * delta * before * share;
    }
}

/* Joins two sets of rows: mean and M2 of `count` rows with those of `before` rows. */
static void join_groups(const double *restrict group_mean, const double *restrict group_m2,
                        double before, double count, int width, double *restrict mean,
                        double *restrict m2) {
    double share = count / (before + count), both = before * share;
    for (int i = 0; i < width; i++) {
        double delta = group_mean[i] - mean[i];
        mean[i] += delta * share;
        m2[i] += group_m2[i] + delta * delta * both;
    }
}

/* Adds the float sums of a block to sums in double. */
static void join_sums(const float *one, const float *other, int width, double *restrict sum,
                      double *restrict sum_x) {
    for (int i = 0; i < width; i++) {
        sum[i] += (double)one[i];
        sum_x[i] += (double)other[i];
    }
}

const trmi_norm_kernels TRMI_FOR_ISA(trmi_norm_kernels) = {
    sum_statistics, apply_forward, gradient_sums, gradient_apply,
    join_block,     join_groups,   join_sums};
