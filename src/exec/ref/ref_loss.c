/* SPDX-License-Identifier: Apache-2.0 */
/* Reference kernels of softmax and the losses. Each one computes in double, row by row, as the
 * formula above it says; the fast kernels are tested against these.
 *
 *   softmax      y = exp(z) / sum of exp(z)
 *   softmax_xent lse(z) - (1 - s) z_label - s mean(z), the mean over the labels that count
 *   linear_xent  the same of z = x w^T + b, with its gradients; the logits are never stored
 *   bce_logits   log(1 + exp(z)) - t z
 *
 * A rank may have some of the classes or some of the samples. What a row needs of other ranks (its
 * log-sum-exp, the label's logit) and what the mean needs (total and count) goes through the
 * exchange of the operator (trmi_norm_sync); with one rank both return at once. In strict mode the
 * samples are added by block, and the blocks in the order of the tree. */
#include "exec/ref/ref.h"
#include "exec/class_labels.h"

#include "base/error.h"
#include "base/memory.h"

#include <math.h>

/* Returns the logarithm of the sum of exponentials of a row; the largest logit is subtracted first,
 * so that no exponential overflows. */
static double log_sum_exp(const trm_tensor *z, int64_t row, int64_t classes) {
    double most = -INFINITY, sum = 0;
    for (int64_t k = 0; k < classes; k++) {
        most = fmax(most, trmi_ref_get(z, row * classes + k));
    }
    for (int64_t k = 0; k < classes; k++) {
        sum += exp(trmi_ref_get(z, row * classes + k) - most);
    }
    return most + log(sum);
}

/* Computes y = exp(z - log-sum-exp of the row). */
trm_status trmi_ref_softmax(const trmi_ref_args *args, trm_error *err) {
    (void)err;
    const trm_tensor *x = &args->inputs[0];
    int64_t classes = x->shape.dim[x->shape.rank - 1];
    for (int64_t i = 0; i < trm_shape_count(&x->shape); i++) {
        trmi_ref_set(&args->outputs[0], i,
                     exp(trmi_ref_get(x, i) - log_sum_exp(x, i / classes, classes)));
    }
    return TRM_OK;
}

/* Computes dx = y (dy - sum of dy y over the row), with y the softmax. */
trm_status trmi_ref_softmax_grad(const trmi_ref_args *args, trm_error *err) {
    (void)err;
    const trm_tensor *dy = &args->inputs[0], *y = &args->inputs[1];
    int64_t classes = y->shape.dim[y->shape.rank - 1];
    for (int64_t i = 0; i < trm_shape_count(&y->shape); i++) {
        double dot = 0;
        for (int64_t k = i / classes * classes; k < (i / classes + 1) * classes; k++) {
            dot += trmi_ref_get(dy, k) * trmi_ref_get(y, k);
        }
        trmi_ref_set(&args->outputs[0], i, trmi_ref_get(y, i) * (trmi_ref_get(dy, i) - dot));
    }
    return TRM_OK;
}

/* Computes log-sum-exp, the label's logit and the sum of logits of one row, over the columns of all
 * ranks. */
static trm_status row_numbers(const trmi_ref_args *args, int64_t r, int64_t label, double out[3],
                              trm_error *err) {
    const trm_tensor *z = &args->inputs[0];
    int64_t columns = z->shape.dim[1], column = label - trmi_part_of(args->attrs)->begin;
    uint32_t axes = trmi_part_of(args->attrs)->class_axes;
    const double *all;
    out[0] = log_sum_exp(z, r, columns);
    out[1] = column >= 0 && column < columns ? trmi_ref_get(z, r * columns + column) : 0;
    out[2] = 0;
    for (int64_t k = 0; k < columns; k++) {
        out[2] += trmi_ref_get(z, r * columns + k);
    }
    if (axes == 0) {
        return TRM_OK;
    }
    trmi_norm_sync *sync = args->sync[axes];
    TRMI_TRY(sync->gather(sync, out, 3, &all, err));
    double most = -INFINITY, sum = 0;
    out[1] = out[2] = 0;
    for (int32_t m = 0; m < sync->size; m++) {
        most = fmax(most, all[3 * m]);
        out[1] += all[3 * m + 1];
        out[2] += all[3 * m + 2];
    }
    for (int32_t m = 0; m < sync->size; m++) {
        sum += exp(all[3 * m] - most);
    }
    out[0] = most + log(sum);
    return TRM_OK;
}

/* Returns the blocks of samples that a loss is joined over, where ranks of `axes` cut samples;
 * NULL: none. */
static trmi_norm_sync *blocks_of(const trmi_ref_args *args, uint32_t axes) {
    return args->block_sync != NULL ? args->block_sync[axes] : NULL;
}

/* values: of this rank, or of each of its blocks of samples, two each: added over all. */
static trm_status add_pairs(trmi_norm_sync *sync, const double *values, double *total,
                            double *counted, trm_error *err) {
    const double *all;
    TRMI_TRY(sync->gather(sync, values, 2, &all, err));
    *total = *counted = 0;
    for (int32_t m = 0; m < sync->size; m++) {
        *total += all[2 * m];
        *counted += all[2 * m + 1];
    }
    return TRM_OK;
}

/* Adds total and number of samples over the ranks that hold the other samples. */
static trm_status join_samples(const trmi_ref_args *args, double *total, double *counted,
                               trm_error *err) {
    uint32_t axes = trmi_part_of(args->attrs)->sample_axes;
    const double own[2] = {*total, *counted};
    return axes != 0 ? add_pairs(args->sync[axes], own, total, counted, err) : TRM_OK;
}

/* Adds up losses [rows] and counts [rows] by block of samples (strict mode), and then over the
 * blocks of all ranks. */
static trm_status join_blocks(const trmi_ref_args *args, const double *losses, const double *counts,
                              double *total, double *counted, trm_error *err) {
    trmi_norm_sync *sync = blocks_of(args, trmi_part_of(args->attrs)->sample_axes);
    int64_t rows = args->inputs[0].shape.dim[0];
    for (int64_t b = 0; b < sync->blocks; b++) {
        double *sums = sync->values + 2 * b;
        sums[0] = sums[1] = 0;
        for (int64_t r = rows * b / sync->blocks; r < rows * (b + 1) / sync->blocks; r++) {
            sums[0] += losses[r];
            sums[1] += counts[r];
        }
    }
    return add_pairs(sync, sync->values, total, counted, err);
}

/* Computes loss and count of each row and adds them up. With label smoothing s (Szegedy et al.
 * 2016) target_k = (1 - s) [k = label] + s / K, so loss = lse - (1 - s) z_label - s mean(z). */
static trm_status row_losses(const trmi_ref_args *args, double *losses, double *counts,
                             double *total, double *counted, trm_error *err) {
    const trm_tensor *z = &args->inputs[0], *labels = &args->inputs[1];
    int64_t rows = z->shape.dim[0], classes = trmi_all_classes(args->attrs, z->shape.dim[1]);
    double s = args->attrs->xent.label_smoothing;
    for (int64_t r = 0; r < rows; r++) {
        int64_t label = trmi_ref_get_int(labels, r);
        bool skip = trmi_label_is_ignored(args->attrs, label);
        double row[3] = {0, 0, 0};
        TRMI_TRY(trmi_check_label(args->attrs, label, r, classes, err));
        TRMI_TRY(row_numbers(args, r, label, row, err));
        trmi_ref_set(&args->outputs[1], r, row[0]);
        losses[r] = skip ? 0 : row[0] - (1 - s) * row[1] - s * row[2] / (double)classes;
        counts[r] = !skip;
        *total += losses[r];
        *counted += counts[r];
    }
    return TRM_OK;
}

/* The mean loss over the labels that count on all ranks. Outputs for backward: log-sum-exp of each
 * row, and the weight of a sample in the mean. */
trm_status trmi_ref_softmax_xent(const trmi_ref_args *args, trm_error *err) {
    int64_t rows = args->inputs[0].shape.dim[0];
    double total = 0, counted = 0, *losses = trmi_alloc((size_t)rows * 2 * sizeof *losses),
           *counts = losses + rows;
    if (losses == NULL) {
        return TRMI_NO_MEMORY(err, "for a reference loss");
    }
    trm_status status = row_losses(args, losses, counts, &total, &counted, err);
    if (status == TRM_OK) {
        status = blocks_of(args, trmi_part_of(args->attrs)->sample_axes) != NULL
                     ? join_blocks(args, losses, counts, &total, &counted, err)
                     : join_samples(args, &total, &counted, err);
    }
    trmi_free(losses);
    TRMI_TRY(status);
    double weight = counted > 0 ? 1.0 / counted : 0;
    trmi_ref_set(&args->outputs[0], 0, total * weight);
    int64_t samples = trmi_part_of(args->attrs)->count;
    trmi_ref_set(&args->outputs[2], 0, samples > 0 ? 1.0 / (double)samples : weight);
    return TRM_OK;
}

/* Computes dz = d(loss) * weight * (softmax(z) - target), 0 for ignored labels. */
trm_status trmi_ref_softmax_xent_grad(const trmi_ref_args *args, trm_error *err) {
    (void)err;
    const trm_tensor *in = args->inputs;
    const trm_tensor *z = &in[1], *labels = &in[2];
    int64_t columns = z->shape.dim[1], classes = trmi_all_classes(args->attrs, z->shape.dim[1]);
    double scale = trmi_ref_get(&in[0], 0) * trmi_ref_get(&in[4], 0);
    double s = args->attrs->xent.label_smoothing;
    for (int64_t i = 0; i < trm_shape_count(&z->shape); i++) {
        int64_t label = trmi_ref_get_int(labels, i / columns),
                k = i % columns + trmi_part_of(args->attrs)->begin;
        double p = exp(trmi_ref_get(z, i) - trmi_ref_get(&in[3], i / columns));
        double t = s / (double)classes + (k == label ? 1 - s : 0);
        trmi_ref_set(&args->outputs[0], i,
                     trmi_label_is_ignored(args->attrs, label) ? 0 : scale * (p - t));
    }
    return TRM_OK;
}

/* ---- the linear layer and the loss in one ---- */

/* Makes the logits of row r of this rank's classes and their log_sum_exp over all ranks' classes.
 * Returns the label's logit in *at. */
static trm_status linear_row(const trmi_ref_args *args, int64_t r, double *z, double *lse,
                             double *at, trm_error *err) {
    const trm_tensor *x = &args->inputs[0], *w = &args->inputs[1];
    int64_t classes = w->shape.dim[0], width = w->shape.dim[1];
    int64_t column = trmi_ref_get_int(&args->inputs[2], r) - trmi_part_of(args->attrs)->begin;
    double most = -INFINITY, sum = 0;
    for (int64_t k = 0; k < classes; k++) {
        z[k] = args->inputs_count > 3 ? trmi_ref_get(&args->inputs[3], k) : 0;
        for (int64_t i = 0; i < width; i++) {
            z[k] += trmi_ref_get(x, r * width + i) * trmi_ref_get(w, k * width + i);
        }
        most = fmax(most, z[k]);
    }
    for (int64_t k = 0; k < classes; k++) {
        sum += exp(z[k] - most);
    }
    *lse = most + log(sum);
    *at = column >= 0 && column < classes ? z[column] : 0;
    if (trmi_part_of(args->attrs)->class_axes == 0) {
        return TRM_OK;
    }
    /* Combine with the ranks that have the other classes; one of them has the label. */
    trmi_norm_sync *sync = args->sync[trmi_part_of(args->attrs)->class_axes];
    const double own[2] = {*lse, *at}, *all;
    TRMI_TRY(sync->gather(sync, own, 2, &all, err));
    most = -INFINITY, sum = 0, *at = 0;
    for (int32_t m = 0; m < sync->size; m++) {
        most = fmax(most, all[2 * m]);
        *at += all[2 * m + 1];
    }
    for (int32_t m = 0; m < sync->size; m++) {
        sum += exp(all[2 * m] - most);
    }
    *lse = most + log(sum);
    return TRM_OK;
}

/* Writes the class with the largest logit of row r, the first of equal ones; its label in a row
 * that does not count. */
static void predict_row(const trmi_ref_args *args, int64_t r, const double *z, bool skip) {
    int64_t best = 0;
    for (int64_t k = 1; k < args->inputs[1].shape.dim[0]; k++) {
        best = z[k] > z[best] ? k : best;
    }
    trmi_ref_set(&args->outputs[1], r,
                 (double)(skip ? trmi_ref_get_int(&args->inputs[2], r) : best));
}

/* Adds row r's part of the gradients for logits z: dz = weight (softmax(z) - [k = label]). dw: of
 * the weights, then of the bias. */
static void linear_row_back(const trmi_ref_args *args, int64_t r, const double *z, double lse,
                            double weight, double *dw) {
    const trm_tensor *x = &args->inputs[0], *w = &args->inputs[1];
    int64_t classes = w->shape.dim[0], width = w->shape.dim[1];
    int64_t column = trmi_ref_get_int(&args->inputs[2], r) - trmi_part_of(args->attrs)->begin;
    for (int64_t i = 0; i < width; i++) {
        double dx = 0;
        for (int64_t k = 0; k < classes; k++) {
            double dz = weight * (exp(z[k] - lse) - (k == column ? 1 : 0));
            dx += dz * trmi_ref_get(w, k * width + i);
            dw[k * width + i] += dz * trmi_ref_get(x, r * width + i);
        }
        trmi_ref_set(&args->outputs[1], r * width + i, dx);
    }
    for (int64_t k = 0; k < classes; k++) {
        dw[classes * width + k] += weight * (exp(z[k] - lse) - (k == column ? 1 : 0));
    }
}

/* The mean over all labels that count of log(sum of exp(logits)) - logit of the label, in double,
 * and its gradients: one row at a time, as the definition says. Outputs: loss, gradient of x or
 * predictions, of the weights, of the bias. */
trm_status trmi_ref_linear_xent(const trmi_ref_args *args, trm_error *err) {
    const trm_tensor *w = &args->inputs[1], *labels = &args->inputs[2];
    int64_t classes = w->shape.dim[0], width = w->shape.dim[1];
    int64_t rows = trm_shape_count(&labels->shape);
    int64_t extent = trmi_part_of(args->attrs)->extent, all = extent > 0 ? extent : classes;
    double total = 0, counted = 0, none = 0;
    /* Check all labels and count those that are not ignored, over all ranks: `weight` of a row is
     * known before the first row is computed. */
    for (int64_t r = 0; r < rows; r++) {
        int64_t label = trmi_ref_get_int(labels, r);
        TRMI_TRY(trmi_check_label(args->attrs, label, r, all, err));
        counted += !trmi_label_is_ignored(args->attrs, label);
    }
    TRMI_TRY(join_samples(args, &none, &counted, err));
    double weight = counted > 0 ? 1 / counted : 0;
    int64_t samples = trmi_part_of(args->attrs)->count;
    double scale = samples > 0 ? 1.0 / (double)samples : weight;
    /* z: the logits of a row; dw: the gradient of the weights, then of the bias, which is zero at
     * first. */
    double *z = trmi_alloc((size_t)(2 * classes + classes * width + 1) * sizeof *z),
           *dw = z + classes;
    if (z == NULL) {
        return TRMI_NO_MEMORY(err, "for a reference loss");
    }
    bool predicts = args->attrs->xent.predicts;
    trm_status status = TRM_OK;
    /* Compute row by row: logits, loss, and either the predicted class or the gradients. */
    for (int64_t r = 0; r < rows && status == TRM_OK; r++) {
        double lse, at;
        bool skip = trmi_label_is_ignored(args->attrs, trmi_ref_get_int(labels, r));
        status = linear_row(args, r, z, &lse, &at, err);
        if (status == TRM_OK) {
            total += skip ? 0 : lse - at;
            if (predicts) {
                predict_row(args, r, z, skip);
            } else if (args->outputs_count > 1) {
                linear_row_back(args, r, z, lse, skip ? 0 : scale, dw);
            }
        }
    }
    for (int64_t i = 0; status == TRM_OK && args->outputs_count > 2 && i < classes * width; i++) {
        trmi_ref_set(&args->outputs[2], i, dw[i]);
    }
    for (int64_t k = 0; status == TRM_OK && args->outputs_count > 3 && k < classes; k++) {
        trmi_ref_set(&args->outputs[3], k, dw[classes * width + k]);
    }
    trmi_free(z);
    TRMI_TRY(status);
    TRMI_TRY(join_samples(args, &total, &none, err));
    trmi_ref_set(&args->outputs[0], 0, total * weight);
    return TRM_OK;
}

/* Adds up log(1 + exp(z)) - t z of elements [begin, end), in a form in which no exponential
 * overflows. */
static double add_logistic(const trmi_ref_args *args, int64_t begin, int64_t end) {
    double total = 0;
    for (int64_t i = begin; i < end; i++) {
        double x = trmi_ref_get(&args->inputs[0], i);
        total += fmax(x, 0) - x * trmi_ref_get(&args->inputs[1], i) + log1p(exp(-fabs(x)));
    }
    return total;
}

/* The mean of the logistic loss over all elements; in strict mode blocks of samples are summed
 * first. */
trm_status trmi_ref_bce_logits(const trmi_ref_args *args, trm_error *err) {
    trmi_norm_sync *sync = blocks_of(args, 0);
    int64_t count = trm_shape_count(&args->inputs[0].shape);
    double total = 0, whole = (double)count;
    if (sync == NULL) {
        total = add_logistic(args, 0, count);
    } else {
        const double *all;
        for (int64_t b = 0; b < sync->blocks; b++) {
            sync->values[b] =
                add_logistic(args, count * b / sync->blocks, count * (b + 1) / sync->blocks);
        }
        TRMI_TRY(sync->gather(sync, sync->values, 1, &all, err));
        for (int32_t b = 0; b < sync->size; b++) {
            total += all[b];
        }
        whole = whole / sync->blocks * sync->size;
    }
    trmi_ref_set(&args->outputs[0], 0, count > 0 ? total / whole : 0);
    return TRM_OK;
}

/* Computes dz = d(loss) / elements * (sigmoid(z) - t). Elements are those of all ranks where the
 * loss is their mean. */
trm_status trmi_ref_bce_logits_grad(const trmi_ref_args *args, trm_error *err) {
    (void)err;
    const trm_tensor *z = &args->inputs[1], *t = &args->inputs[2];
    int64_t count = trm_shape_count(&z->shape), whole = trmi_part_of(args->attrs)->count;
    const trmi_norm_sync *sync = blocks_of(args, 0);
    if (whole == 0 && sync != NULL) {
        whole = count / sync->blocks * sync->size;
    }
    whole = whole > 0 ? whole : count;
    double scale = trmi_ref_get(&args->inputs[0], 0) / (double)(whole > 0 ? whole : 1);
    for (int64_t i = 0; i < count; i++) {
        double x = trmi_ref_get(z, i);
        double p = x >= 0 ? 1 / (1 + exp(-x)) : exp(x) / (1 + exp(x));
        trmi_ref_set(&args->outputs[0], i, scale * (p - trmi_ref_get(t, i)));
    }
    return TRM_OK;
}
