/* SPDX-License-Identifier: Apache-2.0 */
/* Layer norm and RMS norm, forward and backward, as the reference: two inputs besides x are scale
 * and shift (layer norm), one is the scale alone (RMS norm). */
#include "exec/ref/ref.h"

#include <math.h>

/* Mean and 1 / sqrt(mean square of x - mean + epsilon) of one row; of RMS norm the mean is 0. */
static void row_statistics(const trmi_ref_args *args, int64_t row, int64_t width, double *mean,
                           double *inv) {
    const trm_tensor *x = &args->inputs[0];
    double sum = 0, squares = 0;
    for (int64_t i = 0; i < width && args->inputs_count == 3; i++) {
        sum += trmi_ref_get(x, row * width + i);
    }
    *mean = sum / (double)width;
    for (int64_t i = 0; i < width; i++) {
        double d = trmi_ref_get(x, row * width + i) - *mean;
        squares += d * d;
    }
    *inv = 1 / sqrt(squares / (double)width + args->attrs->layer_norm.epsilon);
}

/* Runs layer norm (Ba et al. 2016: three inputs, with beta) or RMS norm (Zhang and Sennrich 2019:
 * two). Further outputs: mean (layer norm only) and 1 / standard deviation of each row. */
static trm_status run_norm(const trmi_ref_args *args) {
    const trm_tensor *x = &args->inputs[0], *gamma = &args->inputs[1];
    bool centred = args->inputs_count == 3;
    int64_t width = gamma->shape.dim[0], rows = trm_shape_count(&x->shape) / width;
    for (int64_t r = 0; r < rows; r++) {
        double mean, inv;
        row_statistics(args, r, width, &mean, &inv);
        for (int64_t i = 0; i < width; i++) {
            double y = (trmi_ref_get(x, r * width + i) - mean) * inv * trmi_ref_get(gamma, i);
            trmi_ref_set(&args->outputs[0], r * width + i,
                         centred ? y + trmi_ref_get(&args->inputs[2], i) : y);
        }
        if (centred) {
            trmi_ref_set(&args->outputs[1], r, mean);
        }
        trmi_ref_set(&args->outputs[centred ? 2 : 1], r, inv);
    }
    return TRM_OK;
}

/* Computes the gradients. With n = (x - mean) inv and g = dy gamma: dx = inv (g - mean(g) - n
 * mean(g n)), without mean(g) for RMS norm; dgamma = sum dy n, dbeta = sum dy. */
static trm_status norm_grad(const trmi_ref_args *args) {
    const trm_tensor *dy = &args->inputs[0], *x = &args->inputs[1], *gamma = &args->inputs[2];
    bool centred = args->inputs_count == 5;
    int64_t width = gamma->shape.dim[0], rows = trm_shape_count(&x->shape) / width;
    const trm_tensor *inverses = &args->inputs[centred ? 4 : 3];
    for (int64_t r = 0; r < rows; r++) {
        double mean = centred ? trmi_ref_get(&args->inputs[3], r) : 0;
        double inv = trmi_ref_get(inverses, r), sum = 0, dot = 0;
        for (int64_t i = 0; i < width; i++) {
            double g = trmi_ref_get(dy, r * width + i) * trmi_ref_get(gamma, i);
            sum += centred ? g : 0;
            dot += g * (trmi_ref_get(x, r * width + i) - mean) * inv;
        }
        for (int64_t i = 0; i < width; i++) {
            double g = trmi_ref_get(dy, r * width + i) * trmi_ref_get(gamma, i);
            double n = (trmi_ref_get(x, r * width + i) - mean) * inv;
            trmi_ref_set(&args->outputs[0], r * width + i,
                         inv * (g - (sum + n * dot) / (double)width));
        }
    }
    for (int64_t i = 0; i < width; i++) {
        double dgamma = 0, dbeta = 0;
        for (int64_t r = 0; r < rows; r++) {
            double mean = centred ? trmi_ref_get(&args->inputs[3], r) : 0;
            double d = trmi_ref_get(dy, r * width + i);
            dgamma += d * (trmi_ref_get(x, r * width + i) - mean) * trmi_ref_get(inverses, r);
            dbeta += d;
        }
        trmi_ref_set(&args->outputs[1], i, dgamma);
        if (centred) {
            trmi_ref_set(&args->outputs[2], i, dbeta);
        }
    }
    return TRM_OK;
}

trm_status trmi_ref_layer_norm(const trmi_ref_args *args, trm_error *err) {
    (void)err;
    return run_norm(args);
}
trm_status trmi_ref_rms_norm(const trmi_ref_args *args, trm_error *err) {
    (void)err;
    return run_norm(args);
}
trm_status trmi_ref_layer_norm_grad(const trmi_ref_args *args, trm_error *err) {
    (void)err;
    return norm_grad(args);
}
trm_status trmi_ref_rms_norm_grad(const trmi_ref_args *args, trm_error *err) {
    (void)err;
    return norm_grad(args);
}
