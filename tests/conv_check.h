/* SPDX-License-Identifier: Apache-2.0 */
/* tests/conv_check.h: for the tests: random convolutions, a naive double-precision oracle, and
 * a step run through the back-end's own bind, or through one named algorithm. */
#ifndef TRMI_TESTS_CONV_CHECK_H
#define TRMI_TESTS_CONV_CHECK_H

#include "check.h"

#include "exec/cpu/conv/conv.h"

#include "base/format/half.h"
#include "base/memory.h"
#include "base/rng.h"

#include <math.h>
#include <omp.h>

/* The three tensors, plain layout, double; and the bias. */
typedef struct conv_data {
    double *image, *weights, *result, *bias;
} conv_data;

static uint32_t check_counter;
static inline uint32_t check_random(uint32_t bound) {
    return trmi_bounded(trmi_random_u32(7, TRMI_STREAM_TEST, check_counter++), bound);
}
static inline int64_t check_between(int64_t low, int64_t high) {
    return low + check_random((uint32_t)(high - low + 1));
}

/* Fills the sizes of the result; false when the kernel does not fit. */
static inline bool check_finish(trmi_conv_problem *p) {
    int64_t sh = p->h + p->pad[0] + p->pad[1] - (p->kh - 1) * p->dilation[0] - 1;
    int64_t sw = p->w + p->pad[2] + p->pad[3] - (p->kw - 1) * p->dilation[1] - 1;
    if (sh < 0 || sw < 0) {
        return false;
    }
    p->oh = sh / p->stride[0] + 1;
    p->ow = sw / p->stride[1] + 1;
    return true;
}

static inline trmi_conv_problem check_problem(trmi_conv_direction d, int64_t n, int64_t c,
                                              int64_t hw, int64_t o, int64_t k, int64_t s,
                                              int64_t pad) {
    trmi_conv_problem p = {.direction = d,
                           .image_type = TRM_FLOAT32,
                           .weights_type = TRM_FLOAT32,
                           .result_type = TRM_FLOAT32,
                           .layout = TRMI_CHANNELS_LAST,
                           .weights_layout = TRMI_CHANNELS_LAST,
                           .n = n,
                           .c = c,
                           .h = hw,
                           .w = hw,
                           .o = o,
                           .kh = k,
                           .kw = k,
                           .groups = 1,
                           .stride = {s, s},
                           .dilation = {1, 1},
                           .pad = {pad, pad, pad, pad}};
    check_finish(&p);
    return p;
}

/* Any legal convolution of modest size. */
static inline trmi_conv_problem check_random_problem(trmi_conv_direction d) {
    for (;;) {
        int64_t groups = check_random(4) == 0 ? check_between(2, 4) : 1;
        trmi_conv_problem p = check_problem(d, check_between(1, 5), groups * check_between(1, 40),
                                            1, groups * check_between(1, 40), 1, 1, 0);
        p.groups = groups;
        p.h = check_between(1, 13), p.w = check_between(1, 13);
        p.kh = check_between(1, 5), p.kw = check_between(1, 5);
        for (int i = 0; i < 2; i++) {
            p.stride[i] = check_between(1, 3);
            p.dilation[i] = check_random(3) == 0 ? 2 : 1;
        }
        for (int i = 0; i < 4; i++) {
            p.pad[i] = check_between(0, 3);
        }
        p.bias = d == TRMI_CONV_FORWARD && check_random(2);
        if (check_finish(&p)) {
            return p;
        }
    }
}

/* Index of element (a, b, c, d) of plain dimensions (., B, C, D). */
static inline int64_t index_of(int64_t a, int64_t b, int64_t c, int64_t d, int64_t B, int64_t C,
                               int64_t D) {
    return ((a * B + b) * C + c) * D + d;
}

/* The definition: every multiply-add of the convolution visited once, in any direction. */
static inline void check_naive(const trmi_conv_problem *p, conv_data *t) {
    int64_t ci = p->c / p->groups, oi = p->o / p->groups;
    for (int64_t n = 0; n < p->n; n++) {
        for (int64_t o = 0; o < p->o; o++) {
            for (int64_t y = 0; y < p->oh; y++) {
                for (int64_t x = 0; x < p->ow; x++) {
                    int64_t r = index_of(n, o, y, x, p->o, p->oh, p->ow);
                    double sum = p->direction == TRMI_CONV_FORWARD && p->bias ? t->bias[o] : 0;
                    for (int64_t i = 0; i < ci; i++) {
                        for (int64_t a = 0; a < p->kh; a++) {
                            for (int64_t b = 0; b < p->kw; b++) {
                                int64_t h = y * p->stride[0] - p->pad[0] + a * p->dilation[0];
                                int64_t w = x * p->stride[1] - p->pad[2] + b * p->dilation[1];
                                if (h < 0 || h >= p->h || w < 0 || w >= p->w) {
                                    continue;
                                }
                                int64_t g = o / oi,
                                        xi = index_of(n, g * ci + i, h, w, p->c, p->h, p->w);
                                int64_t wi = index_of(o, i, a, b, ci, p->kh, p->kw);
                                if (p->direction == TRMI_CONV_FORWARD) {
                                    sum += t->image[xi] * t->weights[wi];
                                } else if (p->direction == TRMI_CONV_DATA) {
                                    t->image[xi] += t->result[r] * t->weights[wi];
                                } else {
                                    t->weights[wi] += t->image[xi] * t->result[r];
                                }
                            }
                        }
                    }
                    if (p->direction == TRMI_CONV_FORWARD) {
                        t->result[r] = sum;
                    }
                }
            }
        }
    }
}

/* Index in memory of plain element i of [a, b, c, d]; channels last moves b behind (images), or
 * gives [c, d, b, a] (weights). */
static inline int64_t check_place(int64_t i, const int64_t dim[4], trmi_layout layout,
                                  bool weights) {
    if (layout == TRMI_PLAIN) {
        return i;
    }
    int64_t d = i % dim[3], c = i / dim[3] % dim[2], b = i / dim[3] / dim[2] % dim[1];
    int64_t a = i / dim[3] / dim[2] / dim[1];
    return weights ? index_of(c, d, b, a, dim[3], dim[1], dim[0])
                   : index_of(a, c, d, b, dim[2], dim[3], dim[1]);
}

static inline void check_store(const double *from, void *to, trm_dtype type, const int64_t dim[4],
                               trmi_layout layout, bool weights) {
    int64_t count = dim[0] * dim[1] * dim[2] * dim[3];
    for (int64_t i = 0; i < count; i++) {
        int64_t at = check_place(i, dim, layout, weights);
        if (type == TRM_BFLOAT16) {
            ((uint16_t *)to)[at] = trmi_float_to_bf16((float)from[i]);
        } else {
            ((float *)to)[at] = (float)from[i];
        }
    }
}

static inline void check_load(const void *from, double *to, trm_dtype type, const int64_t dim[4],
                              trmi_layout layout, bool weights) {
    int64_t count = dim[0] * dim[1] * dim[2] * dim[3];
    for (int64_t i = 0; i < count; i++) {
        int64_t at = check_place(i, dim, layout, weights);
        to[i] = type == TRM_BFLOAT16 ? (double)trmi_bf16_to_float(((const uint16_t *)from)[at])
                                     : (double)((const float *)from)[at];
    }
}

/* Values in [-1, 1), exact in the dtype. */
static inline double *check_values(int64_t count, trm_dtype type, bool random) {
    double *v = trmi_alloc((size_t)count * sizeof *v);
    for (int64_t i = 0; random && i < count; i++) {
        float f = trmi_unit_float(trmi_random_u32(8, TRMI_STREAM_TEST, check_counter++)) * 2 - 1;
        v[i] = (double)(type == TRM_BFLOAT16 ? trmi_bf16_to_float(trmi_float_to_bf16(f)) : f);
    }
    return v;
}

static inline conv_data check_make(const trmi_conv_problem *p) {
    conv_data t;
    t.image = check_values(trmi_conv_image_count(p), p->image_type, p->direction != TRMI_CONV_DATA);
    t.weights = check_values(trmi_conv_weights_count(p), p->weights_type,
                             p->direction != TRMI_CONV_WEIGHTS);
    t.result =
        check_values(trmi_conv_result_count(p), p->result_type, p->direction != TRMI_CONV_FORWARD);
    t.bias = check_values(p->o, TRM_FLOAT32, true);
    return t;
}

static inline void check_free(conv_data *t) {
    trmi_free(t->image);
    trmi_free(t->weights);
    trmi_free(t->result);
    trmi_free(t->bias);
}

/* Root-mean-square of the difference over that of the expected values. */
static inline double check_relative(const double *got, const double *want, int64_t count) {
    double d = 0, w = 0;
    for (int64_t i = 0; i < count; i++) {
        d += (got[i] - want[i]) * (got[i] - want[i]);
        w += want[i] * want[i];
    }
    return sqrt(d / (w > 0 ? w : 1));
}

/* The tensors in the layouts and dtypes of the problem, outputs filled with NaN. */
typedef struct conv_memory {
    void *image, *weights, *result;
    float *bias;
} conv_memory;

static inline conv_memory check_memory(const trmi_conv_problem *p, const conv_data *t) {
    int64_t xd[4] = {p->n, p->c, p->h, p->w}, yd[4] = {p->n, p->o, p->oh, p->ow};
    int64_t wd[4] = {p->o, p->c / p->groups, p->kh, p->kw};
    conv_memory m = {trmi_alloc((size_t)trmi_conv_image_count(p) * 4),
                     trmi_alloc((size_t)trmi_conv_weights_count(p) * 4),
                     trmi_alloc((size_t)trmi_conv_result_count(p) * 4),
                     trmi_alloc((size_t)p->o * 4)};
    check_store(t->image, m.image, p->image_type, xd, p->layout, false);
    check_store(t->weights, m.weights, p->weights_type, wd, p->weights_layout, true);
    check_store(t->result, m.result, p->result_type, yd, p->layout, false);
    for (int64_t i = 0; i < p->o; i++) {
        m.bias[i] = (float)t->bias[i];
    }
    void *out = p->direction == TRMI_CONV_FORWARD ? m.result
                : p->direction == TRMI_CONV_DATA  ? m.image
                                                  : m.weights;
    int64_t count = p->direction == TRMI_CONV_FORWARD ? trmi_conv_result_count(p)
                    : p->direction == TRMI_CONV_DATA  ? trmi_conv_image_count(p)
                                                      : trmi_conv_weights_count(p);
    trm_dtype type = p->direction == TRMI_CONV_FORWARD ? p->result_type
                     : p->direction == TRMI_CONV_DATA  ? p->image_type
                                                       : p->weights_type;
    memset(out, 0xFF, (size_t)count * trm_dtype_bytes(type));
    return m;
}

static inline void check_memory_free(conv_memory *m) {
    trmi_free(m->image);
    trmi_free(m->weights);
    trmi_free(m->result);
    trmi_free(m->bias);
}

/* Relative error of what lies in `m` against the naive result in `t`. */
static inline double check_compare(const trmi_conv_problem *p, const conv_data *t,
                                   const conv_memory *m) {
    int64_t xd[4] = {p->n, p->c, p->h, p->w}, yd[4] = {p->n, p->o, p->oh, p->ow};
    int64_t wd[4] = {p->o, p->c / p->groups, p->kh, p->kw}, count;
    double *got, error;
    if (p->direction == TRMI_CONV_FORWARD) {
        count = trmi_conv_result_count(p);
        got = trmi_alloc((size_t)count * sizeof *got);
        check_load(m->result, got, p->result_type, yd, p->layout, false);
        error = check_relative(got, t->result, count);
    } else if (p->direction == TRMI_CONV_DATA) {
        count = trmi_conv_image_count(p);
        got = trmi_alloc((size_t)count * sizeof *got);
        check_load(m->image, got, p->image_type, xd, p->layout, false);
        error = check_relative(got, t->image, count);
    } else {
        count = trmi_conv_weights_count(p);
        got = trmi_alloc((size_t)count * sizeof *got);
        check_load(m->weights, got, p->weights_type, wd, p->weights_layout, true);
        error = check_relative(got, t->weights, count);
    }
    trmi_free(got);
    return error;
}

/* ---- one algorithm --------------------------------------------------------------------------- */

static inline trmi_conv_args check_args(const conv_memory *m, char *scratch) {
    return (trmi_conv_args){.image = m->image,
                            .weights = m->weights,
                            .result = m->result,
                            .bias = m->bias,
                            .scratch = scratch};
}

/* Creates, runs and frees one algorithm; the scratch is filled with NaN first. */
static inline trm_status check_run(trmi_onednn *backend, const trmi_conv_algorithm *algorithm,
                                   const trmi_conv_problem *p, const conv_memory *m,
                                   trm_error *err) {
    void *state = NULL;
    int64_t bytes = 0;
    trm_status status = algorithm->create(algorithm, backend, p, &state, &bytes, err);
    if (status != TRM_OK) {
        return status;
    }
    char *scratch = trmi_alloc((size_t)bytes);
    memset(scratch, 0xFF, (size_t)bytes);
    trmi_conv_args args = check_args(m, scratch);
    status = algorithm->run(state, &args, err);
    trmi_free(scratch);
    algorithm->destroy(state);
    return status;
}

/* ---- a step of a program, by hand ------------------------------------------------------------ */

/* Each tensor is an arena of its own: an address as an offset from NULL is no legal sum, and clang
 * makes NULL of it. */
static inline trmi_buffer check_buffer(trm_dtype type, const int64_t dim[4], trmi_layout layout,
                                       trmi_arena_id arena) {
    return (trmi_buffer){.name = "buffer",
                         .dtype = type,
                         .shape = trm_shape_make(4, dim),
                         .layout = layout,
                         .arena = arena};
}

/* Binds and runs the problem as a step; TRM_UNSUPPORTED when the back-end has no kernel. */
static inline trm_status check_run_step(trmi_backend *backend, const trmi_conv_problem *p,
                                        const conv_memory *m, trm_error *err) {
    int64_t xd[4] = {p->n, p->c, p->h, p->w}, yd[4] = {p->n, p->o, p->oh, p->ow};
    int64_t wd[4] = {p->o, p->c / p->groups, p->kh, p->kw};
    trmi_buffer buffers[5] = {
        {0},
        check_buffer(p->image_type, xd, p->layout, TRMI_ARENA_INPUT),
        check_buffer(p->weights_type, wd, p->weights_layout, TRMI_ARENA_PARAM),
        check_buffer(p->result_type, yd, p->layout, TRMI_ARENA_ACTIVATION),
        check_buffer(TRM_FLOAT32, wd, TRMI_PLAIN, TRMI_ARENA_CONSTANT)};
    static const int32_t inputs[3][3] = {{1, 2, 0}, {3, 2, 0}, {3, 1, 0}};
    static const int32_t outputs[3] = {3, 1, 2};
    static const trmi_op_kind kinds[3] = {TRMI_OP_CONV2D, TRMI_OP_CONV2D_GRAD_DATA,
                                          TRMI_OP_CONV2D_GRAD_WEIGHTS};
    int32_t in[3] = {inputs[p->direction][0], inputs[p->direction][1], p->bias ? 4 : 0};
    trmi_attrs attrs = {0};
    memcpy(attrs.conv.stride, p->stride, sizeof p->stride);
    memcpy(attrs.conv.dilation, p->dilation, sizeof p->dilation);
    memcpy(attrs.conv.pad, p->pad, sizeof p->pad);
    attrs.conv.groups = p->groups;
    trmi_step step = {.kind = TRMI_STEP_OP,
                      .op_kind = kinds[p->direction],
                      .name = "conv",
                      .attrs = &attrs,
                      .inputs_count = p->bias ? 3 : 2,
                      .outputs_count = 1,
                      .inputs = in,
                      .outputs = &outputs[p->direction]};
    trm_program program = {
        .steps = &step, .steps_count = 1, .buffers = buffers, .buffers_count = 5};
    step.scratch_bytes = backend->target.scratch(backend->target.context, &program, &step);
    trmi_kernel kernel = {.program = &program, .step = &step};
    trm_status status = backend->bind(backend, &kernel, err);
    if (status != TRM_OK) {
        return status;
    }
    trmi_kernel_env env = {.threads = backend->target.threads};
    env.arena[TRMI_ARENA_INPUT] = m->image;
    env.arena[TRMI_ARENA_PARAM] = m->weights;
    env.arena[TRMI_ARENA_ACTIVATION] = m->result;
    env.arena[TRMI_ARENA_CONSTANT] = (char *)m->bias;
    env.arena[TRMI_ARENA_SCRATCH] = trmi_alloc((size_t)step.scratch_bytes);
    status = kernel.run(&kernel, &env, err);
    trmi_free(env.arena[TRMI_ARENA_SCRATCH]);
    kernel.destroy(&kernel);
    return status;
}

#endif
