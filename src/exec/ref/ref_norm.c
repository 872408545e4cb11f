/* SPDX-License-Identifier: Apache-2.0 */
/* Reference kernels of batch norm and its fused forms. Statistics are exchanged over ranks if the
 * operator asks for it; in exact mode sums have the same bits for any number of ranks. */
#include "exec/determinism/exact.h"
#include "exec/ref/ref.h"

#include "base/error.h"
#include "base/memory.h"

#include <math.h>

/* The extents of a tensor [N, C, ...]: `rest` is the product of the dimensions after C. */
typedef struct extents {
    int64_t n, c, rest;
} extents;

static extents extents_of(const trm_shape *s) {
    extents e = {.n = s->dim[0], .c = s->dim[1], .rest = 1};
    for (int32_t i = 2; i < s->rank; i++) {
        e.rest *= s->dim[i];
    }
    return e;
}
static int64_t at(const extents *e, int64_t n, int64_t c, int64_t r) {
    return (n * e->c + c) * e->rest + r;
}

/* Computes y = [relu] (gamma * (x - mean) * inv_std + beta [+ residual]) for one channel. */
static void normalise(const trmi_ref_args *args, const extents *e, int64_t c, double mean,
                      double inv_std) {
    double gamma = trmi_ref_get(&args->inputs[1], c), beta = trmi_ref_get(&args->inputs[2], c);
    const trm_tensor *residual = args->inputs_count > 5 ? &args->inputs[5] : NULL;
    for (int64_t n = 0; n < e->n; n++) {
        for (int64_t r = 0; r < e->rest; r++) {
            int64_t i = at(e, n, c, r);
            double y = gamma * (trmi_ref_get(&args->inputs[0], i) - mean) * inv_std + beta;
            if (residual != NULL && residual->data != NULL) {
                y += trmi_ref_get(residual, i);
            }
            trmi_ref_set(&args->outputs[0], i, args->attrs->norm.relu && y < 0 ? 0 : y);
        }
    }
}

/* Combines mean, sum of squares and count of this rank with those of the ranks that normalise with
 * it. */
static trm_status combine_ranks(trmi_norm_sync *sync, double *mean, double *squares, double *count,
                                trm_error *err) {
    const double own[3] = {*mean, *squares, *count}, *all;
    double n = 0;
    if (sync == NULL) {
        return TRM_OK;
    }
    TRMI_TRY(sync->gather(sync, own, 3, &all, err));
    *mean = *squares = 0;
    for (int32_t r = 0; r < sync->size; r++) {
        double delta = all[3 * r] - *mean, each = all[3 * r + 2];
        *mean += delta * each / (n + each);
        *squares += all[3 * r + 1] + delta * delta * n * each / (n + each);
        n += each;
    }
    *count = n;
    return TRM_OK;
}

static trmi_norm_sync *sync_of(const trmi_ref_args *args) {
    uint32_t axes = args->attrs->norm.sync;
    return axes != 0 && args->sync != NULL ? args->sync[axes] : args->norm_sync;
}

trm_status trmi_ref_share(trmi_norm_sync *sync, double *values, int64_t largest, int64_t count,
                          trm_error *err) {
    const double *all;
    if (sync == NULL) {
        return TRM_OK;
    }
    TRMI_TRY(sync->gather(sync, values, count, &all, err));
    for (int64_t i = 0; i < count; i++) {
        values[i] = all[i];
        for (int32_t r = 1; r < sync->size; r++) {
            double value = all[r * count + i];
            values[i] = i < largest ? fmax(values[i], value) : values[i] + value;
        }
    }
    return TRM_OK;
}

/* Returns the larger magnitude; a NaN counts as infinity: the anchor is then 0, and the sum is a
 * NaN. */
static double larger(double most, double value) {
    return isnan(value) ? (double)INFINITY : fmax(most, fabs(value));
}

/* Computes means, then sums of squared distances, of all channels over all ranks, with the same
 * bits for any number of ranks. */
static trm_status exact_moments(const trmi_ref_args *args, const extents *e, double *mean,
                                double *squares, double *most, double *count, trm_error *err) {
    const trm_tensor *x = &args->inputs[0];
    int64_t elements = e->n * e->rest;
    most[e->c] = (double)elements;
    for (int64_t c = 0; c < e->c; c++) {
        for (int64_t i = 0; i < elements; i++) {
            most[c] = larger(most[c], trmi_ref_get(x, at(e, i / e->rest, c, i % e->rest)));
        }
    }
    TRMI_TRY(trmi_ref_share(sync_of(args), most, e->c, e->c + 1, err));
    *count = most[e->c];
    for (int64_t c = 0; c < e->c; c++) {
        trmi_ref_sum sum = {.anchor = trmi_exact_anchor(most[c], *count)};
        for (int64_t i = 0; i < elements; i++) {
            trmi_ref_sum_add(&sum, trmi_ref_get(x, at(e, i / e->rest, c, i % e->rest)));
        }
        mean[c] = sum.sum;
    }
    TRMI_TRY(trmi_ref_share(sync_of(args), mean, 0, e->c, err));
    for (int64_t c = 0; c < e->c; c++) {
        mean[c] /= *count;
        trmi_ref_sum square = {.anchor = trmi_exact_anchor(4 * most[c] * most[c], *count)};
        for (int64_t i = 0; i < elements; i++) {
            double d = trmi_ref_get(x, at(e, i / e->rest, c, i % e->rest)) - mean[c];
            trmi_ref_sum_add(&square, d * d);
        }
        squares[c] = square.sum;
    }
    return trmi_ref_share(sync_of(args), squares, 0, e->c, err);
}

static trm_status moments(const trmi_ref_args *args, const extents *e, int64_t c, double *mean,
                          double *squares, double *count, trm_error *err) {
    double sum = 0;
    *squares = 0;
    *count = (double)(e->n * e->rest);
    for (int64_t n = 0; n < e->n; n++) {
        for (int64_t r = 0; r < e->rest; r++) {
            sum += trmi_ref_get(&args->inputs[0], at(e, n, c, r));
        }
    }
    *mean = sum / *count;
    for (int64_t n = 0; n < e->n; n++) {
        for (int64_t r = 0; r < e->rest; r++) {
            double d = trmi_ref_get(&args->inputs[0], at(e, n, c, r)) - *mean;
            *squares += d * d;
        }
    }
    return combine_ranks(sync_of(args), mean, squares, count, err);
}

/* From the moments of a channel to its output, what backward needs, and the running statistics. */
static void finish_channel(const trmi_ref_args *args, const extents *e, int64_t c, double mean,
                           double squares, double count) {
    double momentum = args->attrs->norm.momentum, variance = squares / count;
    double unbiased = count > 1 ? squares / (count - 1) : variance;
    double inv_std = 1 / sqrt(variance + args->attrs->norm.epsilon);
    normalise(args, e, c, mean, inv_std);
    trmi_ref_set(&args->outputs[1], c, mean);
    trmi_ref_set(&args->outputs[2], c, inv_std);
    const trm_tensor *running_mean = &args->inputs[3], *running_variance = &args->inputs[4];
    trmi_ref_set(running_mean, c, (1 - momentum) * trmi_ref_get(running_mean, c) + momentum * mean);
    trmi_ref_set(running_variance, c,
                 (1 - momentum) * trmi_ref_get(running_variance, c) + momentum * unbiased);
}

static trm_status train_exact(const trmi_ref_args *args, const extents *e, trm_error *err) {
    double count, *room = trmi_alloc((size_t)(3 * e->c + 1) * sizeof *room);
    if (room == NULL) {
        return TRMI_FAIL(err, TRM_NOMEM, "no memory for a reference norm");
    }
    double *mean = room, *squares = room + e->c;
    trm_status status = exact_moments(args, e, mean, squares, room + 2 * e->c, &count, err);
    for (int64_t c = 0; status == TRM_OK && c < e->c; c++) {
        finish_channel(args, e, c, mean[c], squares[c], count);
    }
    trmi_free(room);
    return status;
}

static trm_status train(const trmi_ref_args *args, trm_error *err) {
    extents e = extents_of(&args->inputs[0].shape);
    if (args->exact) {
        return train_exact(args, &e, err);
    }
    for (int64_t c = 0; c < e.c; c++) {
        double mean, squares, count;
        TRMI_TRY(moments(args, &e, c, &mean, &squares, &count, err));
        finish_channel(args, &e, c, mean, squares, count);
    }
    return TRM_OK;
}

/* inputs 3 and 4: mean and variance, or (apply) mean and 1 / standard deviation. */
static trm_status given(const trmi_ref_args *args, bool inverse) {
    extents e = extents_of(&args->inputs[0].shape);
    for (int64_t c = 0; c < e.c; c++) {
        double second = trmi_ref_get(&args->inputs[4], c);
        normalise(args, &e, c, trmi_ref_get(&args->inputs[3], c),
                  inverse ? second : 1 / sqrt(second + args->attrs->norm.epsilon));
    }
    return TRM_OK;
}

trm_status trmi_ref_batch_norm(const trmi_ref_args *args, trm_error *err) {
    return train(args, err);
}
trm_status trmi_ref_norm_act(const trmi_ref_args *args, trm_error *err) { return train(args, err); }
trm_status trmi_ref_batch_norm_infer(const trmi_ref_args *args, trm_error *err) {
    (void)err;
    return given(args, false);
}
trm_status trmi_ref_norm_act_infer(const trmi_ref_args *args, trm_error *err) {
    (void)err;
    return given(args, false);
}
trm_status trmi_ref_norm_act_apply(const trmi_ref_args *args, trm_error *err) {
    (void)err;
    return given(args, true);
}

/* Two sums over this rank -> over all ranks that normalise together. */
static trm_status add_ranks(trmi_norm_sync *sync, double *sum, double *sum_hat, double *count,
                            trm_error *err) {
    const double own[3] = {*sum, *sum_hat, *count}, *all;
    if (sync == NULL) {
        return TRM_OK;
    }
    TRMI_TRY(sync->gather(sync, own, 3, &all, err));
    *sum = *sum_hat = *count = 0;
    for (int32_t r = 0; r < sync->size; r++) {
        *sum += all[3 * r];
        *sum_hat += all[3 * r + 1];
        *count += all[3 * r + 2];
    }
    return TRM_OK;
}

/* What backward reads of one channel. */
typedef struct channel {
    const trm_tensor *dy, *dy2, *x, *y; /* dy2, y: may be NULL */
    extents e;
    int64_t c;
    double mean, inv_std, gamma, beta;
    bool relu;
} channel;

/* x_hat of element i of the channel, and dz = dy behind the ReLU. */
static double dz_of(const channel *h, int64_t i, int64_t *k, double *hat) {
    *k = at(&h->e, i / h->e.rest, h->c, i % h->e.rest);
    *hat = (trmi_ref_get(h->x, *k) - h->mean) * h->inv_std;
    double dz = trmi_ref_get(h->dy, *k) + (h->dy2 != NULL ? trmi_ref_get(h->dy2, *k) : 0);
    if (h->relu) {
        double out = h->y != NULL ? trmi_ref_get(h->y, *k) : h->gamma * *hat + h->beta;
        dz = out > 0 ? dz : 0;
    }
    return dz;
}

static void sum_channel(const channel *h, trmi_ref_sum *plain, trmi_ref_sum *with_hat) {
    for (int64_t i = 0; i < h->e.n * h->e.rest; i++) {
        int64_t k;
        double hat, dz = dz_of(h, i, &k, &hat);
        trmi_ref_sum_add(plain, dz);
        trmi_ref_sum_add(with_hat, dz * hat);
    }
}

/* dx = gamma * inv_std * (dz - mean(dz) - x_hat * mean(dz * x_hat)), dz = dy behind the ReLU. */
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

/* What a channel has beside its elements. */
typedef struct channels {
    const trm_tensor *gamma, *beta, *mean, *inv_std;
} channels;

static void take_channel(channel *h, const channels *all, int64_t c) {
    h->c = c;
    h->mean = trmi_ref_get(all->mean, c);
    h->inv_std = trmi_ref_get(all->inv_std, c);
    h->gamma = trmi_ref_get(all->gamma, c);
    h->beta = all->beta != NULL ? trmi_ref_get(all->beta, c) : 0;
}

/* room: [2 * channels + 1] largest dz and x_hat, and the count; then [2 * channels] sums. */
static trm_status exact_sums(const trmi_ref_args *args, channel *h, const channels *all,
                             double *room, trm_error *err) {
    int64_t count = h->e.c;
    double *most = room, *sums = room + 2 * count + 1;
    most[2 * count] = (double)(h->e.n * h->e.rest);
    for (int64_t c = 0; c < count; c++) {
        take_channel(h, all, c);
        for (int64_t i = 0; i < h->e.n * h->e.rest; i++) {
            int64_t k;
            double hat;
            most[2 * c] = larger(most[2 * c], dz_of(h, i, &k, &hat));
            most[2 * c + 1] = larger(most[2 * c + 1], hat);
        }
    }
    TRMI_TRY(trmi_ref_share(sync_of(args), most, 2 * count, 2 * count + 1, err));
    for (int64_t c = 0; c < count; c++) {
        trmi_ref_sum plain = {.anchor = trmi_exact_anchor(most[2 * c], most[2 * count])};
        trmi_ref_sum with_hat = {
            .anchor = trmi_exact_anchor(most[2 * c] * most[2 * c + 1], most[2 * count])};
        take_channel(h, all, c);
        sum_channel(h, &plain, &with_hat);
        sums[2 * c] = plain.sum;
        sums[2 * c + 1] = with_hat.sum;
    }
    return trmi_ref_share(sync_of(args), sums, 0, 2 * count, err);
}

/* dgamma and dbeta are then those of all ranks. */
static trm_status backward_exact(const trmi_ref_args *args, channel *h, const channels *all,
                                 trm_error *err) {
    double *room = trmi_alloc((size_t)(4 * h->e.c + 1) * sizeof *room),
           *sums = room + 2 * h->e.c + 1;
    if (room == NULL) {
        return TRMI_FAIL(err, TRM_NOMEM, "no memory for a reference norm");
    }
    trm_status status = exact_sums(args, h, all, room, err);
    for (int64_t c = 0; status == TRM_OK && c < h->e.c; c++) {
        take_channel(h, all, c);
        trmi_ref_set(&args->outputs[1], c, sums[2 * c + 1]);
        trmi_ref_set(&args->outputs[2], c, sums[2 * c]);
        write_channel(args, h, sums[2 * c], sums[2 * c + 1], room[2 * h->e.c]);
    }
    trmi_free(room);
    return status;
}

static trm_status backward(const trmi_ref_args *args, const trm_tensor *y, const channels *all,
                           trm_error *err) {
    channel h = {.dy = &args->inputs[0],
                 .x = &args->inputs[1],
                 .y = y,
                 .e = extents_of(&args->inputs[1].shape),
                 .dy2 = args->inputs_count > 7 ? &args->inputs[7] : NULL,
                 .relu = all->beta != NULL && args->attrs->norm.relu};
    if (args->exact) {
        return backward_exact(args, &h, all, err);
    }
    for (int64_t c = 0; c < h.e.c; c++) {
        trmi_ref_sum plain = {.anchor = 0}, with_hat = {.anchor = 0};
        double count = (double)(h.e.n * h.e.rest);
        take_channel(&h, all, c);
        sum_channel(&h, &plain, &with_hat);
        /* dgamma and dbeta are of this rank: gradients are reduced later */
        trmi_ref_set(&args->outputs[1], c, with_hat.sum);
        trmi_ref_set(&args->outputs[2], c, plain.sum);
        TRMI_TRY(add_ranks(sync_of(args), &plain.sum, &with_hat.sum, &count, err));
        write_channel(args, &h, plain.sum, with_hat.sum, count);
    }
    return TRM_OK;
}

trm_status trmi_ref_batch_norm_grad(const trmi_ref_args *args, trm_error *err) {
    const trm_tensor *in = args->inputs;
    return backward(args, NULL, &(channels){.gamma = &in[2], .mean = &in[3], .inv_std = &in[4]},
                    err);
}
trm_status trmi_ref_norm_act_grad(const trmi_ref_args *args, trm_error *err) {
    const trm_tensor *in = args->inputs;
    return backward(args, args->attrs->norm.from_y ? &in[2] : NULL,
                    &(channels){.gamma = &in[3], .beta = &in[4], .mean = &in[5], .inv_std = &in[6]},
                    err);
}
