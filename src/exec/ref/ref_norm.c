#include "exec/ref/ref.h"

#include "base/error.h"

#include <math.h>

/* Elements of [N, C, ...]: sample-major, then channel, then the rest. */
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

/* y = [relu] (gamma * (x - mean) * inv_std + beta [+ residual]) for one channel. */
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

/* mean and sum of squares of `count` elements here -> of all ranks that normalise together. */
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

static trm_status train(const trmi_ref_args *args, trm_error *err) {
    extents e = extents_of(&args->inputs[0].shape);
    double momentum = args->attrs->norm.momentum;
    for (int64_t c = 0; c < e.c; c++) {
        double sum = 0, squares = 0, count = (double)(e.n * e.rest);
        for (int64_t n = 0; n < e.n; n++) {
            for (int64_t r = 0; r < e.rest; r++) {
                sum += trmi_ref_get(&args->inputs[0], at(&e, n, c, r));
            }
        }
        double mean = sum / count;
        for (int64_t n = 0; n < e.n; n++) {
            for (int64_t r = 0; r < e.rest; r++) {
                double d = trmi_ref_get(&args->inputs[0], at(&e, n, c, r)) - mean;
                squares += d * d;
            }
        }
        TRMI_TRY(combine_ranks(sync_of(args), &mean, &squares, &count, err));
        double variance = squares / count;
        double unbiased = count > 1 ? squares / (count - 1) : variance;
        double inv_std = 1 / sqrt(variance + args->attrs->norm.epsilon);
        normalise(args, &e, c, mean, inv_std);
        trmi_ref_set(&args->outputs[1], c, mean);
        trmi_ref_set(&args->outputs[2], c, inv_std);
        const trm_tensor *running_mean = &args->inputs[3], *running_variance = &args->inputs[4];
        trmi_ref_set(running_mean, c,
                     (1 - momentum) * trmi_ref_get(running_mean, c) + momentum * mean);
        trmi_ref_set(running_variance, c,
                     (1 - momentum) * trmi_ref_get(running_variance, c) + momentum * unbiased);
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
trm_status trmi_ref_norm_act(const trmi_ref_args *args, trm_error *err) {
    return train(args, err);
}
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
static trm_status add_ranks(trmi_norm_sync *sync, double *sum, double *sum_hat, double *count, trm_error *err) {
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

/* dx = gamma * inv_std * (dz - mean(dz) - x_hat * mean(dz * x_hat)), dz = dy behind the ReLU. */
static trm_status backward(const trmi_ref_args *args, const trm_tensor *y, const trm_tensor *gamma,
                           const trm_tensor *beta, const trm_tensor *mean,
                           const trm_tensor *inv_std, trm_error *err) {
    const trm_tensor *dy = &args->inputs[0], *x = &args->inputs[1];
    extents e = extents_of(&x->shape);
    bool relu = beta != NULL && args->attrs->norm.relu;
    const trm_tensor *dy2 = args->inputs_count > 7 ? &args->inputs[7] : NULL;
    for (int64_t c = 0; c < e.c; c++) {
        double m = trmi_ref_get(mean, c), s = trmi_ref_get(inv_std, c), g = trmi_ref_get(gamma, c);
        double sum = 0, sum_hat = 0, count = (double)(e.n * e.rest);
        for (int pass = 0; pass < 2; pass++) {
            for (int64_t i = 0; i < e.n * e.rest; i++) {
                int64_t k = at(&e, i / e.rest, c, i % e.rest);
                double hat = (trmi_ref_get(x, k) - m) * s, dz = trmi_ref_get(dy, k);
                dz += dy2 != NULL ? trmi_ref_get(dy2, k) : 0;
                if (relu) {
                    double out = y != NULL ? trmi_ref_get(y, k) : g * hat + trmi_ref_get(beta, c);
                    dz = out > 0 ? dz : 0;
                }
                if (pass == 0) {
                    sum += dz;
                    sum_hat += dz * hat;
                } else {
                    trmi_ref_set(&args->outputs[0], k,
                                 g * s * (dz - sum / count - hat * sum_hat / count));
                    if (args->outputs_count > 3) {
                        trmi_ref_set(&args->outputs[3], k, dz);
                    }
                }
            }
            if (pass == 0) { /* dgamma and dbeta are of this rank: gradients are reduced later */
                trmi_ref_set(&args->outputs[1], c, sum_hat);
                trmi_ref_set(&args->outputs[2], c, sum);
                TRMI_TRY(add_ranks(sync_of(args), &sum, &sum_hat, &count, err));
            }
        }
    }
    return TRM_OK;
}

trm_status trmi_ref_batch_norm_grad(const trmi_ref_args *args, trm_error *err) {
    return backward(args, NULL, &args->inputs[2], NULL, &args->inputs[3], &args->inputs[4],
                    err);
}
trm_status trmi_ref_norm_act_grad(const trmi_ref_args *args, trm_error *err) {
    const trm_tensor *in = args->inputs;
    return backward(args, args->attrs->norm.from_y ? &in[2] : NULL, &in[3], &in[4], &in[5], &in[6],
                    err);
}
