/* SPDX-License-Identifier: Apache-2.0 */
/* Reference kernels of convolutions: forward, data gradient and weight gradient visit the same
 * products and differ in the operand that they add to. */
#include "exec/ref/ref.h"

#include "base/error.h"
#include "base/memory.h"

/* Calls `visit` for each (output element, input element, weight element) that multiply. */
typedef void (*visit)(void *context, int64_t y, int64_t x, int64_t w);

/* Calls the visitor with the indices (y, x, w) of each product of the convolution. Forward and
 * both gradients are this one loop with different visitors. */
static void each_product(const trmi_attrs *a, const trm_shape *xs, const trm_shape *ws,
                         const trm_shape *ys, visit visitor, void *context) {
    int64_t per_group_in = ws->dim[1], per_group_out = ws->dim[0] / a->conv.groups;
    for (int64_t iy = 0; iy < trm_shape_count(ys); iy++) {
        int64_t y[4];
        trmi_ref_unravel(ys, iy, y);
        int64_t group = y[1] / per_group_out;
        for (int64_t c = 0; c < per_group_in; c++) {
            for (int64_t kh = 0; kh < ws->dim[2]; kh++) {
                for (int64_t kw = 0; kw < ws->dim[3]; kw++) {
                    /* The pixel that tap (kh, kw) reads; outside of the image it is padding, whose
                     * product is 0. */
                    int64_t h =
                        y[2] * a->conv.stride[0] - a->conv.pad[0] + kh * a->conv.dilation[0];
                    int64_t w =
                        y[3] * a->conv.stride[1] - a->conv.pad[2] + kw * a->conv.dilation[1];
                    if (h < 0 || h >= xs->dim[2] || w < 0 || w >= xs->dim[3]) {
                        continue;
                    }
                    int64_t x_at[4] = {y[0], group * per_group_in + c, h, w};
                    int64_t w_at[4] = {y[1], c, kh, kw};
                    visitor(context, iy, trmi_ref_ravel(xs, x_at), trmi_ref_ravel(ws, w_at));
                }
            }
        }
    }
}

/* A walk over all products, which adds each of them to a sum. */
typedef struct job {
    const trm_tensor *a, *b; /* factors */
    double *sum;
} job;

/* The three kernels: y is an element of the result, x one of the image, w one of the filters. */
static void add_product(void *context, int64_t y, int64_t x, int64_t w) {
    job *j = context;
    j->sum[y] += trmi_ref_get(j->a, x) * trmi_ref_get(j->b, w);
}
static void to_data(void *context, int64_t y, int64_t x, int64_t w) {
    job *j = context;
    j->sum[x] += trmi_ref_get(j->a, y) * trmi_ref_get(j->b, w);
}
static void to_weights(void *context, int64_t y, int64_t x, int64_t w) {
    job *j = context;
    j->sum[w] += trmi_ref_get(j->a, y) * trmi_ref_get(j->b, x);
}

/* Adds up all products in double precision, and then the bias. */
static trm_status run_products(const trmi_ref_args *args, const trm_shape *xs, const trm_shape *ws,
                               const trm_shape *ys, visit visitor, trm_error *err) {
    const trm_tensor *out = &args->outputs[0];
    int64_t count = trm_shape_count(&out->shape);
    job j = {.a = &args->inputs[0], .b = &args->inputs[1]};
    TRMI_TRY(TRMI_NEW(err, j.sum, count, "for a reference convolution"));
    each_product(args->attrs, xs, ws, ys, visitor, &j);
    const trm_tensor *bias = args->inputs_count > 2 ? &args->inputs[2] : NULL;
    int64_t pixels = out->shape.dim[2] * out->shape.dim[3];
    for (int64_t i = 0; i < count; i++) {
        double b = bias != NULL && bias->data != NULL
                       ? trmi_ref_get(bias, i / pixels % out->shape.dim[1])
                       : 0;
        trmi_ref_set(out, i, j.sum[i] + b);
    }
    trmi_free(j.sum);
    return TRM_OK;
}

trm_status trmi_ref_conv2d(const trmi_ref_args *args, trm_error *err) {
    return run_products(args, &args->inputs[0].shape, &args->inputs[1].shape,
                        &args->outputs[0].shape, add_product, err);
}
trm_status trmi_ref_conv2d_grad_data(const trmi_ref_args *args, trm_error *err) {
    return run_products(args, &args->outputs[0].shape, &args->inputs[1].shape,
                        &args->inputs[0].shape, to_data, err);
}
trm_status trmi_ref_conv2d_grad_weights(const trmi_ref_args *args, trm_error *err) {
    return run_products(args, &args->inputs[1].shape, &args->outputs[0].shape,
                        &args->inputs[0].shape, to_weights, err);
}
