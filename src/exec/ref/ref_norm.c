/* SPDX-License-Identifier: Apache-2.0 */
/* Reference kernels of batch norm and its fused forms, one channel after the other, in double:
 *
 *   forward    mean and variance of x (two passes, for accuracy), y = gamma x_hat + beta, with
 *              residual and ReLU where they are fused; running statistics by the unbiased variance
 *   backward   dz = dy behind the ReLU, dx = gamma / std (dz - mean(dz) - x_hat mean(dz x_hat))
 *
 * Statistics are exchanged over ranks if the operator asks for it: moments (mean, sum of squared
 * distances, count) are combined by the update of Chan et al., never by adding squares, which would
 * lose digits. In strict mode a rank exchanges the moments of each of its blocks. */
#include "exec/ref/ref.h"

#include "base/error.h"
#include "base/memory.h"

#include <math.h>

/* The extents of a tensor [N, C, ...]: `rest` is the product of the dimensions after C. */
typedef struct extents {
    int64_t n, c, rest;
} extents;

/* Returns batch, channels and the rest of a shape as one number. */
static extents extents_of(const trm_shape *s) {
    extents e = {.n = s->dim[0], .c = s->dim[1], .rest = 1};
    for (int32_t i = 2; i < s->rank; i++) {
        e.rest *= s->dim[i];
    }
    return e;
}
/* Returns the index of an element. */
static int64_t element_index(const extents *e, int64_t n, int64_t c, int64_t r) {
    return (n * e->c + c) * e->rest + r;
}

/* Computes y = [relu] (gamma * (x - mean) * inv_std + beta [+ residual]) for one channel. */
static void normalise_channel(const trmi_ref_args *args, const extents *e, int64_t c, double mean,
                              double inv_std) {
    double gamma = trmi_ref_get(&args->inputs[1], c), beta = trmi_ref_get(&args->inputs[2], c);
    const trm_tensor *residual = args->inputs_count > 5 ? &args->inputs[5] : NULL;
    for (int64_t n = 0; n < e->n; n++) {
        for (int64_t r = 0; r < e->rest; r++) {
            int64_t i = element_index(e, n, c, r);
            double y = gamma * (trmi_ref_get(&args->inputs[0], i) - mean) * inv_std + beta;
            if (residual != NULL && residual->data != NULL) {
                y += trmi_ref_get(residual, i);
            }
            trmi_ref_set(&args->outputs[0], i, args->attrs->norm.relu && y < 0 ? 0 : y);
        }
    }
}

/* The numbers that a rank, or a block of samples, has for a channel: mean, sum of squares and
 * count, or two sums and a count. */
enum { MOMENTS = 3 };

/* Replaces the moments of this rank, or of each of its blocks, by those of all that normalise
 * together, with the update of Chan et al. 1979 for sums of squared distances. */
static trm_status combine_ranks(trmi_norm_sync *sync, double *moments, trm_error *err) {
    const double *all;
    double n = 0, mean = 0, squares = 0;
    if (sync == NULL) {
        return TRM_OK;
    }
    TRMI_TRY(sync->gather(sync, moments, MOMENTS, &all, err));
    for (int32_t r = 0; r < sync->size; r++, all += MOMENTS) {
        double delta = all[0] - mean, each = all[2];
        mean += delta * each / (n + each);
        squares += all[1] + delta * delta * n * each / (n + each);
        n += each;
    }
    moments[0] = mean;
    moments[1] = squares;
    moments[2] = n;
    return TRM_OK;
}

/* Returns the number of blocks of samples whose moments a rank has, and the room for them; one
 * without blocks. */
static int64_t blocks_of(trmi_norm_sync *sync) {
    return sync != NULL && sync->blocks > 0 ? sync->blocks : 1;
}
/* Returns where moments are written: where the exchange of blocks reads them, else own memory. */
static double *room_of(trmi_norm_sync *sync, double *own) {
    return sync != NULL && sync->blocks > 0 ? sync->values : own;
}

/* Returns the exchange of the operator's moments: that of the mesh axes along which a plan cuts its
 * samples; without such axes that of all ranks, if there is one. NULL: no exchange. */
static trmi_norm_sync *sync_of(const trmi_ref_args *args) {
    uint32_t axes = trmi_part_of(args->attrs)->sample_axes;
    trmi_norm_sync *sync = trmi_samples_sync(args->block_sync, args->sync, axes);
    return sync == NULL && axes == 0 ? args->norm_sync : sync;
}

/* Writes mean, sum of squared distances from it, and number of elements of one channel in
 * samples [begin, end): two passes, for accuracy. */
static void measure_block(const trmi_ref_args *args, const extents *e, int64_t c, int64_t begin,
                          int64_t end, double *to) {
    double sum = 0, squares = 0, count = (double)((end - begin) * e->rest);
    for (int64_t n = begin; n < end; n++) {
        for (int64_t r = 0; r < e->rest; r++) {
            sum += trmi_ref_get(&args->inputs[0], element_index(e, n, c, r));
        }
    }
    for (int64_t n = begin; n < end; n++) {
        for (int64_t r = 0; r < e->rest; r++) {
            double d = trmi_ref_get(&args->inputs[0], element_index(e, n, c, r)) - sum / count;
            squares += d * d;
        }
    }
    to[0] = sum / count;
    to[1] = squares;
    to[2] = count;
}

/* Computes mean, squared distances and number of elements of channel c over all samples that are
 * normalised together. */
static trm_status sum_moments(const trmi_ref_args *args, const extents *e, int64_t c, double *mean,
                              double *squares, double *count, trm_error *err) {
    trmi_norm_sync *sync = sync_of(args);
    double own[MOMENTS], *of = room_of(sync, own);
    int64_t blocks = blocks_of(sync);
    for (int64_t b = 0; b < blocks; b++) {
        measure_block(args, e, c, e->n * b / blocks, e->n * (b + 1) / blocks, of + MOMENTS * b);
    }
    TRMI_TRY(combine_ranks(sync, of, err));
    *mean = of[0];
    *squares = of[1];
    *count = of[2];
    return TRM_OK;
}

/* Writes the output of a channel, the statistics that backward reads, and the running statistics,
 * whose variance is the unbiased one. */
static void finish_channel(const trmi_ref_args *args, const extents *e, int64_t c, double mean,
                           double squares, double count) {
    double momentum = args->attrs->norm.momentum, variance = squares / count;
    double unbiased = count > 1 ? squares / (count - 1) : variance;
    double inv_std = 1 / sqrt(variance + args->attrs->norm.epsilon);
    trmi_ref_set(&args->outputs[1], c, mean);
    trmi_ref_set(&args->outputs[2], c, inv_std);
    /* rounded as backward reads them, which may compute the output again (NORM_ACT_APPLY) */
    normalise_channel(args, e, c, trmi_ref_get(&args->outputs[1], c),
                      trmi_ref_get(&args->outputs[2], c));
    const trm_tensor *running_mean = &args->inputs[3], *running_variance = &args->inputs[4];
    trmi_ref_set(running_mean, c, (1 - momentum) * trmi_ref_get(running_mean, c) + momentum * mean);
    trmi_ref_set(running_variance, c,
                 (1 - momentum) * trmi_ref_get(running_variance, c) + momentum * unbiased);
}

/* Runs the forward pass of training, channel by channel. */
static trm_status run_training(const trmi_ref_args *args, trm_error *err) {
    extents e = extents_of(&args->inputs[0].shape);
    for (int64_t c = 0; c < e.c; c++) {
        double mean, squares, count;
        TRMI_TRY(sum_moments(args, &e, c, &mean, &squares, &count, err));
        finish_channel(args, &e, c, mean, squares, count);
    }
    return TRM_OK;
}

/* Normalises by given statistics: inputs 3 and 4 are mean and variance or, `inverse`, mean and 1 /
 * standard deviation. */
static trm_status run_given(const trmi_ref_args *args, bool inverse) {
    extents e = extents_of(&args->inputs[0].shape);
    for (int64_t c = 0; c < e.c; c++) {
        double second = trmi_ref_get(&args->inputs[4], c);
        normalise_channel(args, &e, c, trmi_ref_get(&args->inputs[3], c),
                          inverse ? second : 1 / sqrt(second + args->attrs->norm.epsilon));
    }
    return TRM_OK;
}

trm_status trmi_ref_batch_norm(const trmi_ref_args *args, trm_error *err) {
    return run_training(args, err);
}
trm_status trmi_ref_norm_act(const trmi_ref_args *args, trm_error *err) {
    return run_training(args, err);
}
trm_status trmi_ref_batch_norm_infer(const trmi_ref_args *args, trm_error *err) {
    (void)err;
    return run_given(args, false);
}
trm_status trmi_ref_norm_act_infer(const trmi_ref_args *args, trm_error *err) {
    (void)err;
    return run_given(args, false);
}
trm_status trmi_ref_norm_act_apply(const trmi_ref_args *args, trm_error *err) {
    (void)err;
    return run_given(args, true);
}

/* Adds two sums and a count, of this rank or of each of its blocks, over all ranks that normalise
 * together. */
static trm_status add_ranks(trmi_norm_sync *sync, double *sums, trm_error *err) {
    const double *all;
    if (sync == NULL) {
        return TRM_OK;
    }
    TRMI_TRY(sync->gather(sync, sums, MOMENTS, &all, err));
    for (int i = 0; i < MOMENTS; i++) {
        sums[i] = 0;
        for (int32_t r = 0; r < sync->size; r++) {
            sums[i] += all[MOMENTS * r + i];
        }
    }
    return TRM_OK;
}

/* The operands of backward for one channel. */
typedef struct channel {
    const trm_tensor *dy, *dy2, *x, *y; /* dy2, y: may be NULL */
    extents e;
    int64_t c;
    double mean, inv_std, gamma, beta;
    bool relu;
} channel;

/* Returns dz = dy where the ReLU was positive, else 0, of element i of the channel. *k: its index;
 * *hat: the normalised x. */
static double dz_of(const channel *h, int64_t i, int64_t *k, double *hat) {
    *k = element_index(&h->e, i / h->e.rest, h->c, i % h->e.rest);
    *hat = (trmi_ref_get(h->x, *k) - h->mean) * h->inv_std;
    double dz = trmi_ref_get(h->dy, *k) + (h->dy2 != NULL ? trmi_ref_get(h->dy2, *k) : 0);
    if (h->relu) {
        double out = h->y != NULL ? trmi_ref_get(h->y, *k) : h->gamma * *hat + h->beta;
        dz = out > 0 ? dz : 0;
    }
    return dz;
}

/* Adds dz and dz * x_hat over samples [begin, end) to the two sums. */
static void sum_channel(const channel *h, int64_t begin, int64_t end, double *plain,
                        double *with_hat) {
    *plain = *with_hat = 0;
    for (int64_t i = begin * h->e.rest; i < end * h->e.rest; i++) {
        int64_t k;
        double hat, dz = dz_of(h, i, &k, &hat);
        *plain += dz;
        *with_hat += dz * hat;
    }
}

/* Writes dx = gamma * inv_std * (dz - mean(dz) - x_hat * mean(dz * x_hat)) of one channel and, if
 * there is an output for it, dz. */
static void write_channel(const trmi_ref_args *args, const channel *h, double sum, double sum_hat,
                          double count) {
    for (int64_t i = 0; i < h->e.n * h->e.rest; i++) {
        int64_t k;
        double hat, dz = dz_of(h, i, &k, &hat);
        trmi_ref_set(&args->outputs[0], k,
                     h->gamma * h->inv_std * (dz - sum / count - hat * sum_hat / count));
        if (args->outputs_count > 3) {
            trmi_ref_set(&args->outputs[3], k, dz);
        }
    }
}

/* The inputs with one value a channel. */
typedef struct channels {
    const trm_tensor *gamma, *beta;   /* beta NULL: not an input, and no ReLU mask */
    const trm_tensor *mean, *inv_std; /* of the forward pass */
} channels;

/* Sets the members of `h` that belong to channel c. */
static void take_channel(channel *h, const channels *all, int64_t c) {
    h->c = c;
    h->mean = trmi_ref_get(all->mean, c);
    h->inv_std = trmi_ref_get(all->inv_std, c);
    h->gamma = trmi_ref_get(all->gamma, c);
    h->beta = all->beta != NULL ? trmi_ref_get(all->beta, c) : 0;
}

/* Computes the gradients of a batch norm channel by channel: sums by block of samples, added
 * over the ranks where statistics are of all, then dx. */
static trm_status run_backward(const trmi_ref_args *args, const trm_tensor *y, const channels *all,
                               trm_error *err) {
    channel h = {.dy = &args->inputs[0],
                 .x = &args->inputs[1],
                 .y = y,
                 .e = extents_of(&args->inputs[1].shape),
                 .dy2 = args->inputs_count > 7 ? &args->inputs[7] : NULL,
                 .relu = all->beta != NULL && args->attrs->norm.relu};
    trmi_norm_sync *sync = sync_of(args);
    double own[MOMENTS], *sums = room_of(sync, own);
    int64_t blocks = blocks_of(sync);
    for (int64_t c = 0; c < h.e.c; c++) {
        take_channel(&h, all, c);
        for (int64_t b = 0; b < blocks; b++) {
            int64_t begin = h.e.n * b / blocks, end = h.e.n * (b + 1) / blocks;
            sum_channel(&h, begin, end, &sums[MOMENTS * b], &sums[MOMENTS * b + 1]);
            sums[MOMENTS * b + 2] = (double)((end - begin) * h.e.rest);
        }
        /* dgamma and dbeta are of this rank, as gradients are reduced later; with blocks of samples
         * they are those of all */
        double dgamma = sums[1], dbeta = sums[0];
        TRMI_TRY(add_ranks(sync, sums, err));
        bool whole = sync != NULL && sync->blocks > 0;
        trmi_ref_set(&args->outputs[1], c, whole ? sums[1] : dgamma);
        trmi_ref_set(&args->outputs[2], c, whole ? sums[0] : dbeta);
        write_channel(args, &h, sums[0], sums[1], sums[2]);
    }
    return TRM_OK;
}

trm_status trmi_ref_batch_norm_grad(const trmi_ref_args *args, trm_error *err) {
    const trm_tensor *in = args->inputs;
    return run_backward(args, NULL, &(channels){.gamma = &in[2], .mean = &in[3], .inv_std = &in[4]},
                        err);
}
trm_status trmi_ref_norm_act_grad(const trmi_ref_args *args, trm_error *err) {
    const trm_tensor *in = args->inputs;
    return run_backward(
        args, args->attrs->norm.from_y ? &in[2] : NULL,
        &(channels){.gamma = &in[3], .beta = &in[4], .mean = &in[5], .inv_std = &in[6]}, err);
}
