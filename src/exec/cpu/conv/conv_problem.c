/* SPDX-License-Identifier: Apache-2.0 */
/* Converts an operator to a trmi_conv_problem, and computes its counts, FLOPs and tuning key. Pure.
 *
 *     direction   first operand     second operand    result
 *     FORWARD     image             weights           result
 *     DATA        result's grad     weights           image's grad
 *     WEIGHTS     result's grad     image             weights' grad
 *
 * A problem names the three tensors by what they are (image, weights, result) and not by their
 * place, so that kernels and the key need one form for the three directions. What no kernel of this
 * back-end runs (a type, a layout, sizes that do not fit) is refused here, and the operator goes to
 * the reference kernel. */
#include "exec/cpu/conv/conv.h"

#include "base/element.h"

#include <inttypes.h>
#include <stdio.h>

/* Filters and images are plain or channels last; blocked layouts are not supported. */
static bool known_layout(trmi_layout layout) {
    return layout == TRMI_PLAIN || layout == TRMI_CHANNELS_LAST;
}

/* Returns a stride or dilation, for which 0 stands for 1. */
static int64_t or_one(int64_t value) { return value == 0 ? 1 : value; }

/* Returns the size of the result along one dimension. */
static int64_t result_size(int64_t size, int64_t kernel, int64_t stride, int64_t dilation,
                           int64_t before, int64_t after) {
    int64_t span = size + before + after - ((kernel - 1) * dilation + 1);
    return span < 0 ? 0 : span / stride + 1;
}

/* Checks that the sizes of the three tensors agree. */
static bool is_consistent(const trmi_conv_problem *p, int64_t weights_inputs,
                          int64_t result_batch) {
    return p->n > 0 && p->c > 0 && p->o > 0 && p->kh > 0 && p->kw > 0 && p->oh > 0 && p->ow > 0 &&
           p->n == result_batch && p->c % p->groups == 0 && p->o % p->groups == 0 &&
           weights_inputs == p->c / p->groups &&
           p->oh == result_size(p->h, p->kh, p->stride[0], p->dilation[0], p->pad[0], p->pad[1]) &&
           p->ow == result_size(p->w, p->kw, p->stride[1], p->dilation[1], p->pad[2], p->pad[3]);
}

/* Contract in conv.h. The three directions have the same three tensors in different places:
 * `image` [n, c, h, w], `weights` [o, c, kh, kw], `result` [n, o, oh, ow]. */
bool trmi_conv_problem_of(trmi_op_kind kind, const trmi_attrs *attrs, const trmi_conv_tensor *in0,
                          const trmi_conv_tensor *in1, const trmi_conv_tensor *out, bool bias,
                          trmi_conv_problem *problem) {
    const trmi_conv_tensor *image, *weights, *result;
    trmi_conv_direction direction;
    /* Find which operand is which tensor. */
    switch (kind) {
    case TRMI_OP_CONV2D:
        direction = TRMI_CONV_FORWARD, image = in0, weights = in1, result = out;
        break;
    case TRMI_OP_CONV2D_GRAD_DATA:
        direction = TRMI_CONV_DATA, result = in0, weights = in1, image = out;
        break;
    case TRMI_OP_CONV2D_GRAD_WEIGHTS:
        direction = TRMI_CONV_WEIGHTS, result = in0, image = in1, weights = out;
        break;
    default: return false;
    }
    /* Refuse ranks, types and layouts that no kernel has; image and result have one layout. */
    if (image->shape.rank != 4 || weights->shape.rank != 4 || result->shape.rank != 4 ||
        !trmi_dtype_is_fast(image->dtype) || !trmi_dtype_is_fast(weights->dtype) ||
        !trmi_dtype_is_fast(result->dtype) || !known_layout(image->layout) ||
        !known_layout(weights->layout) || image->layout != result->layout) {
        return false;
    }
    const int64_t *x = image->shape.dim, *w = weights->shape.dim, *y = result->shape.dim;
    *problem = (trmi_conv_problem){
        .direction = direction,
        .image_type = image->dtype,
        .weights_type = weights->dtype,
        .result_type = result->dtype,
        .layout = image->layout,
        .weights_layout = weights->layout,
        .n = x[0],
        .c = x[1],
        .h = x[2],
        .w = x[3],
        .o = y[1],
        .oh = y[2],
        .ow = y[3],
        .kh = w[2],
        .kw = w[3],
        .groups = or_one(attrs->conv.groups),
        .bias = bias,
    };
    /* Attributes that were not set are 0 and mean 1. */
    for (int i = 0; i < 2; i++) {
        problem->stride[i] = or_one(attrs->conv.stride[i]);
        problem->dilation[i] = or_one(attrs->conv.dilation[i]);
    }
    for (int i = 0; i < 4; i++) {
        problem->pad[i] = attrs->conv.pad[i];
    }
    return w[0] == problem->o && is_consistent(problem, w[1], y[0]);
}

int64_t trmi_conv_image_count(const trmi_conv_problem *p) { return p->n * p->c * p->h * p->w; }
int64_t trmi_conv_result_count(const trmi_conv_problem *p) { return p->n * p->o * p->oh * p->ow; }
int64_t trmi_conv_weights_count(const trmi_conv_problem *p) {
    return p->o * (p->c / p->groups) * p->kh * p->kw;
}

/* Contract in conv.h. A multiplication and an addition for each result, tap and channel of its
 * group. */
double trmi_conv_flops(const trmi_conv_problem *p) {
    return 2.0 * (double)trmi_conv_result_count(p) * (double)(p->c / p->groups * p->kh * p->kw);
}

/* Returns the number of (output position, tap) pairs along dimension d that lie inside the
 * image. */
static double count_meetings(const trmi_conv_problem *p, int d) {
    int64_t out = d == 0 ? p->oh : p->ow, in = d == 0 ? p->h : p->w, taps = d == 0 ? p->kh : p->kw;
    int64_t count = 0;
    for (int64_t i = 0; i < out; i++) {
        for (int64_t t = 0; t < taps; t++) {
            int64_t at = i * p->stride[d] - p->pad[2 * d] + t * p->dilation[d];
            count += at >= 0 && at < in;
        }
    }
    return (double)count;
}

double trmi_conv_work(const trmi_conv_problem *p) {
    return 2.0 * (double)(p->n * p->o * (p->c / p->groups)) * count_meetings(p, 0) *
           count_meetings(p, 1);
}

/* Returns the character of a type in keys. */
static char type_character(trm_dtype dtype) { return dtype == TRM_BFLOAT16 ? 'b' : 'f'; }

/* Contract in conv.h. The key has all that a time depends on but the machine; an entry of a tuning
 * file is found by the same text only. */
const char *trmi_conv_key(const trmi_conv_problem *p, char *text, size_t size) {
    static const char *const directions[] = {"fwd", "data", "weights"};
    snprintf(text, size,
             "conv %s %s%s%s %c%c%c n%" PRId64 " c%" PRId64 " %" PRId64 "x%" PRId64 " o%" PRId64
             " k%" PRId64 "x%" PRId64 " s%" PRId64 "x%" PRId64 " d%" PRId64 "x%" PRId64 " p%" PRId64
             ",%" PRId64 ",%" PRId64 ",%" PRId64 " g%" PRId64,
             directions[p->direction], p->layout == TRMI_PLAIN ? "nchw" : "nhwc",
             p->weights_layout == TRMI_PLAIN ? "-oihw" : "-hwio", p->bias ? "-bias" : "",
             type_character(p->image_type), type_character(p->weights_type),
             type_character(p->result_type), p->n, p->c, p->h, p->w, p->o, p->kh, p->kw,
             p->stride[0], p->stride[1], p->dilation[0], p->dilation[1], p->pad[0], p->pad[1],
             p->pad[2], p->pad[3], p->groups);
    return text;
}
