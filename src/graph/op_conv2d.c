/* SPDX-License-Identifier: Apache-2.0 */
/* 2-D convolution and its two gradients.
 *
 *     x [N, C, H, W], w [O, C / groups, KH, KW], bias [O] -> y [N, O, H', W']
 *     H' = (H + pads - (dilation (KH - 1) + 1)) / stride + 1, rounded down; W' likewise
 *
 *     conv2d_grad_weights   dy, x -> dw          conv2d_grad_data   dy, w -> dx
 *     the gradient of the bias is a sum of dy over samples and positions
 *
 * The gradients carry the shape of their result as an attribute, which their inputs do not
 * determine. Extents and attributes are below 2^31, so that no sum or product in a shape rule
 * overflows. */
#include "graph/graph_ir.h"

#include "base/error.h"

/* Returns whether all values are below 2^31; sums and products of larger extents could overflow. */
static bool is_small(const int64_t *values, int count) {
    for (int i = 0; i < count; i++) {
        if (values[i] > INT32_MAX) {
            return false;
        }
    }
    return true;
}

/* Returns the extent of the output in one dimension; 0: the window does not fit. */
static int64_t out_extent(int64_t in, int64_t before, int64_t after, int64_t kernel, int64_t stride,
                          int64_t dilation) {
    int64_t window = dilation * (kernel - 1) + 1;
    int64_t room = in + before + after - window;
    return room < 0 ? 0 : room / stride + 1;
}

/* Infers x [N, C, H, W], w [O, C/groups, KH, KW], optional bias [O] -> [N, O, H', W']. */
static trm_status infer_conv(trm_graph *graph, trmi_op *op, trm_error *err) {
    const trmi_value *x = trmi_input_of(graph, op, 0), *w = trmi_input_of(graph, op, 1);
    const trmi_value *bias = trmi_input_of(graph, op, 2);
    if (x == NULL || w == NULL) {
        return TRMI_FAIL(err, TRM_INVALID, "%s: needs an image and weights", op->name);
    }
    /* The text of both operands stands in all messages. */
    char image[128], weights[128];
    trmi_value_text(graph, op->inputs[0], image, sizeof image);
    trmi_value_text(graph, op->inputs[1], weights, sizeof weights);
    if (x->shape.rank != 4 || w->shape.rank != 4 || x->dtype != w->dtype) {
        return TRMI_FAIL(err, TRM_INVALID,
                         "%s: [N,C,H,W] and [O,I,KH,KW] of one dtype expected, found %s and %s",
                         op->name, image, weights);
    }
    /* Check the attributes: groups divide the channels, and no extent computed from them
     * overflows. */
    int64_t groups = op->attrs.conv.groups;
    const int64_t *stride = op->attrs.conv.stride, *dilation = op->attrs.conv.dilation;
    const int64_t *pad = op->attrs.conv.pad;
    if (groups < 1 || w->shape.dim[1] * groups != x->shape.dim[1] ||
        w->shape.dim[0] % groups != 0) {
        return TRMI_FAIL(err, TRM_INVALID, "%s: channels of %s do not fit %s in %lld groups",
                         op->name, image, weights, (long long)groups);
    }
    if (stride[0] < 1 || stride[1] < 1 || dilation[0] < 1 || dilation[1] < 1 || pad[0] < 0 ||
        pad[1] < 0 || pad[2] < 0 || pad[3] < 0) {
        return TRMI_FAIL(err, TRM_INVALID,
                         "%s: strides and dilations of at least 1 and pads of at least 0 expected",
                         op->name);
    }
    if (!is_small(stride, 2) || !is_small(dilation, 2) || !is_small(pad, 4) ||
        !is_small(x->shape.dim + 2, 2) || !is_small(w->shape.dim + 2, 2)) {
        return TRMI_FAIL(err, TRM_INVALID,
                         "%s: a stride, dilation, pad or extent of %s or %s is beyond 2^31",
                         op->name, image, weights);
    }
    /* Output: at least one position in each dimension. */
    int64_t height =
        out_extent(x->shape.dim[2], pad[0], pad[1], w->shape.dim[2], stride[0], dilation[0]);
    int64_t width =
        out_extent(x->shape.dim[3], pad[2], pad[3], w->shape.dim[3], stride[1], dilation[1]);
    if (height < 1 || width < 1) {
        return TRMI_FAIL(err, TRM_INVALID,
                         "%s: the window of %s is larger than the padded image %s", op->name,
                         weights, image);
    }
    if (bias != NULL && (bias->shape.rank != 1 || bias->shape.dim[0] != w->shape.dim[0])) {
        return TRMI_FAIL(err, TRM_INVALID, "%s: a bias of [%lld] expected, found %s", op->name,
                         (long long)w->shape.dim[0],
                         trmi_value_text(graph, op->inputs[2], image, sizeof image));
    }
    trmi_set_output(graph, op, 0, x->dtype,
                    trm_shape_of(x->shape.dim[0], w->shape.dim[0], height, width));
    return TRM_OK;
}

/* Gradients are added below, with shapes that are already checked. */
static trm_status infer_grad(trm_graph *graph, trmi_op *op, trm_error *err) {
    (void)err;
    trmi_set_output(graph, op, 0, trmi_input_of(graph, op, 0)->dtype,
                    trm_shape_make(4, op->attrs.conv.shape));
    return TRM_OK;
}

/* Adds the gradients of image, weights and bias. The attribute `shape` gives the gradient
 * operators the shape of their result, which their inputs do not determine. */
static void grad_conv(trm_graph *graph, const trmi_op *op, const trm_node *dy, trm_node *dx) {
    trmi_attrs attrs = op->attrs;
    const trm_shape x = trmi_input_of(graph, op, 0)->shape, w = trmi_input_of(graph, op, 1)->shape;
    for (int i = 0; i < 4; i++) {
        attrs.conv.shape[i] = w.dim[i];
    }
    trm_node for_weights[] = {dy[0], {op->inputs[0]}};
    dx[1] = trmi_graph_add1(graph, TRMI_OP_CONV2D_GRAD_WEIGHTS, NULL, for_weights, 2, &attrs);
    for (int i = 0; i < 4; i++) {
        attrs.conv.shape[i] = x.dim[i];
    }
    trm_node for_data[] = {dy[0], {op->inputs[1]}};
    dx[0] = trmi_graph_add1(graph, TRMI_OP_CONV2D_GRAD_DATA, NULL, for_data, 2, &attrs);
    if (op->inputs_count > 2 && op->inputs[2] != 0) {
        trm_dtype dtype = trmi_input_of(graph, op, 2)->dtype;
        trm_node sum = trm_reduce_sum(graph, dy[0], (const int32_t[]){0, 2, 3}, 3, false);
        dx[2] = trm_cast(graph, sum, dtype);
    }
}

/* Returns FLOPs and bytes of the forward operator or of one of its gradients. */
static trmi_cost cost_conv(const trm_graph *graph, const trmi_op *op) {
    /* forward and both gradients do the same multiply-adds: |y| * C/groups * KH * KW */
    const trmi_value *a = trmi_input_of(graph, op, 0), *b = trmi_input_of(graph, op, 1);
    const trmi_value *out = trmi_output_of(graph, op, 0);
    const trm_shape *w = op->kind == TRMI_OP_CONV2D_GRAD_WEIGHTS ? &out->shape : &b->shape;
    const trm_shape *y = op->kind == TRMI_OP_CONV2D ? &out->shape : &a->shape;
    trmi_cost cost = {.flops = 2.0 * (double)trm_shape_count(y) *
                               (double)(w->dim[1] * w->dim[2] * w->dim[3])};
    const trmi_value *all[] = {a, b, out};
    for (int i = 0; i < 3; i++) {
        cost.bytes +=
            (double)trm_shape_count(&all[i]->shape) * (double)trm_dtype_bytes(all[i]->dtype);
    }
    return cost;
}

const trmi_op_def trmi_op_conv2d = {"conv2d", infer_conv, grad_conv, cost_conv};
const trmi_op_def trmi_op_conv2d_grad_data = {"conv2d_grad_data", infer_grad, NULL, cost_conv};
const trmi_op_def trmi_op_conv2d_grad_weights = {"conv2d_grad_weights", infer_grad, NULL,
                                                 cost_conv};

/* Contract in trireme/graph.h. Zero stands for the default, so {0} is a plain convolution. */
trm_node trm_conv2d(trm_graph *graph, trm_node x, trm_node weight, trm_node bias,
                    const trm_conv_options *options) {
    trmi_attrs attrs = {.conv = {.stride = {1, 1}, .dilation = {1, 1}, .groups = 1}};
    if (options != NULL) {
        for (int i = 0; i < 2; i++) {
            attrs.conv.stride[i] = options->stride[i] == 0 ? 1 : options->stride[i];
            attrs.conv.dilation[i] = options->dilation[i] == 0 ? 1 : options->dilation[i];
        }
        for (int i = 0; i < 4; i++) {
            attrs.conv.pad[i] = options->pad[i];
        }
        attrs.conv.groups = options->groups == 0 ? 1 : options->groups;
    }
    return trmi_graph_add1(graph, TRMI_OP_CONV2D, NULL, (trm_node[]){x, weight, bias},
                           bias.id == 0 ? 2 : 3, &attrs);
}
