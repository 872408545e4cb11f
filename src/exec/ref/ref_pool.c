/* SPDX-License-Identifier: Apache-2.0 */
/* Reference kernels of pooling and global pooling.
 *
 * They define what the operators compute. Windows are clipped to the image: padding never is the
 * maximum, and an average divides by the whole window only with count_padding. The gradient of a
 * maximum goes to one element, the first of equal ones; a NaN counts as the largest value. */
#include "exec/ref/ref.h"

#include <math.h>

/* The part of a pool's window that lies inside the image. */
typedef struct clipped_window {
    int64_t h0, h1, w0, w1;
    double size; /* what an average divides by */
} clipped_window;

/* Returns the window of output element (oh, ow). */
static clipped_window clip_window(const trmi_attrs *a, const trm_shape *x, int64_t oh, int64_t ow) {
    int64_t h = oh * a->pool.stride[0] - a->pool.pad[0],
            w = ow * a->pool.stride[1] - a->pool.pad[2];
    clipped_window v = {.h0 = h < 0 ? 0 : h, .w0 = w < 0 ? 0 : w};
    v.h1 = h + a->pool.kernel[0] > x->dim[2] ? x->dim[2] : h + a->pool.kernel[0];
    v.w1 = w + a->pool.kernel[1] > x->dim[3] ? x->dim[3] : w + a->pool.kernel[1];
    v.size = a->pool.count_padding ? (double)(a->pool.kernel[0] * a->pool.kernel[1])
                                   : (double)((v.h1 - v.h0) * (v.w1 - v.w0));
    return v;
}

/* Returns the first element of a window, in row-major order, that equals its maximum (as in
 * PyTorch). A NaN counts as the largest value. */
static int64_t find_largest(const trm_tensor *x, const clipped_window *v, int64_t plane) {
    int64_t best = -1;
    double most = -INFINITY;
    for (int64_t h = v->h0; h < v->h1; h++) {
        for (int64_t w = v->w0; w < v->w1; w++) {
            int64_t i = plane * x->shape.dim[2] * x->shape.dim[3] + h * x->shape.dim[3] + w;
            double value = trmi_ref_get(x, i);
            if (best < 0 || value > most || (isnan(value) && !isnan(most))) {
                most = value;
                best = i;
            }
        }
    }
    return best;
}

/* Sets all elements to zero; gradients are then added. */
static void clear_tensor(const trm_tensor *t) {
    for (int64_t i = 0; i < trm_shape_count(&t->shape); i++) {
        trmi_ref_set(t, i, 0);
    }
}

trm_status trmi_ref_max_pool(const trmi_ref_args *args, trm_error *err) {
    (void)err;
    const trm_tensor *x = &args->inputs[0], *y = &args->outputs[0];
    for (int64_t i = 0; i < trm_shape_count(&y->shape); i++) {
        int64_t p[4];
        trmi_ref_unravel(&y->shape, i, p);
        clipped_window v = clip_window(args->attrs, &x->shape, p[2], p[3]);
        trmi_ref_set(y, i, trmi_ref_get(x, find_largest(x, &v, p[0] * y->shape.dim[1] + p[1])));
    }
    return TRM_OK;
}

/* Adds dy of each window to the element that was its maximum. */
trm_status trmi_ref_max_pool_grad(const trmi_ref_args *args, trm_error *err) {
    (void)err;
    const trm_tensor *dy = &args->inputs[0], *x = &args->inputs[1], *dx = &args->outputs[0];
    clear_tensor(dx);
    for (int64_t i = 0; i < trm_shape_count(&dy->shape); i++) {
        int64_t p[4];
        trmi_ref_unravel(&dy->shape, i, p);
        clipped_window v = clip_window(args->attrs, &x->shape, p[2], p[3]);
        int64_t best = find_largest(x, &v, p[0] * dy->shape.dim[1] + p[1]);
        trmi_ref_set(dx, best, trmi_ref_get(dx, best) + trmi_ref_get(dy, i));
    }
    return TRM_OK;
}

/* Computes the sum of the pixels of a window over its size, which includes padding or not
 * (clip_window). */
trm_status trmi_ref_avg_pool(const trmi_ref_args *args, trm_error *err) {
    (void)err;
    const trm_tensor *x = &args->inputs[0], *y = &args->outputs[0];
    for (int64_t i = 0; i < trm_shape_count(&y->shape); i++) {
        int64_t p[4];
        trmi_ref_unravel(&y->shape, i, p);
        clipped_window v = clip_window(args->attrs, &x->shape, p[2], p[3]);
        double sum = 0;
        for (int64_t h = v.h0; h < v.h1; h++) {
            for (int64_t w = v.w0; w < v.w1; w++) {
                sum += trmi_ref_get(x, trmi_ref_ravel(&x->shape, (int64_t[]){p[0], p[1], h, w}));
            }
        }
        trmi_ref_set(y, i, sum / v.size);
    }
    return TRM_OK;
}

/* Adds dy / size to each pixel of the window. */
trm_status trmi_ref_avg_pool_grad(const trmi_ref_args *args, trm_error *err) {
    (void)err;
    const trm_tensor *dy = &args->inputs[0], *dx = &args->outputs[0];
    clear_tensor(dx);
    for (int64_t i = 0; i < trm_shape_count(&dy->shape); i++) {
        int64_t p[4];
        trmi_ref_unravel(&dy->shape, i, p);
        clipped_window v = clip_window(args->attrs, &dx->shape, p[2], p[3]);
        for (int64_t h = v.h0; h < v.h1; h++) {
            for (int64_t w = v.w0; w < v.w1; w++) {
                int64_t k = trmi_ref_ravel(&dx->shape, (int64_t[]){p[0], p[1], h, w});
                trmi_ref_set(dx, k, trmi_ref_get(dx, k) + trmi_ref_get(dy, i) / v.size);
            }
        }
    }
    return TRM_OK;
}

/* Computes the mean of all pixels of a channel. */
trm_status trmi_ref_global_avg_pool(const trmi_ref_args *args, trm_error *err) {
    (void)err;
    const trm_tensor *x = &args->inputs[0], *y = &args->outputs[0];
    int64_t pixels = x->shape.dim[2] * x->shape.dim[3];
    for (int64_t i = 0; i < trm_shape_count(&y->shape); i++) {
        double sum = 0;
        for (int64_t p = 0; p < pixels; p++) {
            sum += trmi_ref_get(x, i * pixels + p);
        }
        trmi_ref_set(y, i, sum / (double)pixels);
    }
    return TRM_OK;
}

trm_status trmi_ref_global_avg_pool_grad(const trmi_ref_args *args, trm_error *err) {
    (void)err;
    const trm_tensor *dy = &args->inputs[0], *dx = &args->outputs[0];
    int64_t pixels = dx->shape.dim[2] * dx->shape.dim[3];
    int64_t count = trmi_part_of(args->attrs)->count, whole = count > 0 ? count : pixels;
    for (int64_t i = 0; i < trm_shape_count(&dx->shape); i++) {
        trmi_ref_set(dx, i, trmi_ref_get(dy, i / pixels) / (double)whole);
    }
    return TRM_OK;
}
