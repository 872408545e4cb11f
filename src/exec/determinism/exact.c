/* SPDX-License-Identifier: Apache-2.0 */
/* Sums in integers. With L the largest magnitudes of a sum's factors over all ranks (LARGEST,
 * ALL_REDUCE), the unit is
 *
 *      2^q,  q = exponent of L - 50 (more where over 4096 terms are added)
 *
 * and a term is rounded to whole units by itself, before anything is added: what is added
 * afterwards are 64-bit integers, whose sum no order changes and none overflows. A term keeps 50
 * bits below the largest possible one, where float32 sums keep 24 below their own size. Infinities
 * and NaN make the whole result NaN. */
#include "exec/determinism/exact.h"

#include "exec/convert.h"
#include "exec/determinism/exact_loops.h"
#include "exec/ref/ref.h"

#include "base/checked.h"
#include "base/cpu.h"
#include "base/error.h"
#include "base/memory.h"

#include <math.h>
#include <string.h>

enum { BITS = 50, FREE_TERMS = 12 };

static const trmi_exact_loops *loops(void) { return TRMI_CPU_CHOICE(&trmi_exact_loops); }

/* ---- units ----------------------------------------------------------------------------------- */

static int log2_above(double x) { /* x < 2^result */
    int exponent;
    (void)frexp(x, &exponent);
    return exponent;
}

double trmi_exact_anchor(double largest, double count) {
    return largest > 0 && isfinite(largest) ? ldexp(1.5, log2_above(largest) + log2_above(count))
                                            : 0;
}

static double bound_of(const trmi_exact *what, const float *largest) {
    double a = (double)largest[0], b = (double)largest[1];
    switch (what->kind) {
    case TRMI_OP_CONV2D:
    case TRMI_OP_CONV2D_GRAD_DATA:
    case TRMI_OP_CONV2D_GRAD_WEIGHTS:
    case TRMI_OP_LINEAR:
    case TRMI_OP_MATMUL: return a * b;
    case TRMI_OP_PAIR_DOTS: return a * a;
    case TRMI_OP_BCE_LOGITS: return a * (1 + b) + 1;
    default: return a;
    }
}

/* The exponent of the unit. */
static int unit_of(const trmi_exact *what, const float *largest) {
    double bound = bound_of(what, largest);
    int room = log2_above((double)what->terms) - FREE_TERMS;
    return (bound > 0 ? log2_above(bound) : 0) - BITS + (room > 0 ? room : 0);
}

static bool sound(const float *largest) { return isfinite(largest[0]) && isfinite(largest[1]); }

/* ---- sums ------------------------------------------------------------------------------------ */

typedef struct job {
    const trmi_exact *what;
    const float *a, *b;
    trm_tensor first, second; /* as they are */
    int64_t *sums;
    double anchor;
    const trmi_exact_loops *loops;
} job;

/* Output columns [lo, hi) of a kernel column whose input column lies inside the image. */
static void columns(int64_t out, int64_t in, int64_t stride, int64_t at, int64_t *lo, int64_t *hi) {
    *lo = at < 0 ? (-at + stride - 1) / stride : 0;
    *hi = at >= in ? 0 : trmi_min_i64(out, (in - 1 - at) / stride + 1);
}

/* One tap of a convolution: rows of x and y that it joins. */
typedef void (*tap)(const job *j, int64_t x, int64_t y, int64_t w, int64_t count);

static void add_forward(const job *j, int64_t x, int64_t y, int64_t w, int64_t count) {
    j->loops->add(j->sums + y, 1, j->a + x, j->what->attrs.conv.stride[1], (double)j->b[w],
                  j->anchor, count);
}
static void add_data(const job *j, int64_t x, int64_t y, int64_t w, int64_t count) {
    j->loops->add(j->sums + x, j->what->attrs.conv.stride[1], j->a + y, 1, (double)j->b[w],
                  j->anchor, count);
}
static void add_weights(const job *j, int64_t x, int64_t y, int64_t w, int64_t count) {
    j->sums[w] +=
        j->loops->dot(j->a + y, 1, j->b + x, j->what->attrs.conv.stride[1], j->anchor, count);
}

/* Planes n, k of y with channel c of x, for all taps. */
static void join_planes(const job *j, const trm_shape *x, const trm_shape *w, const trm_shape *y,
                        int64_t n, int64_t k, int64_t c, tap visit) {
    const trmi_attrs *a = &j->what->attrs;
    int64_t in_group = w->dim[1], group = k / (w->dim[0] / a->conv.groups),
            channel = group * in_group + c;
    int64_t x0 = (n * x->dim[1] + channel) * x->dim[2] * x->dim[3],
            y0 = (n * y->dim[1] + k) * y->dim[2] * y->dim[3];
    for (int64_t r = 0; r < w->dim[2]; r++) {
        for (int64_t s = 0; s < w->dim[3]; s++) {
            int64_t lo, hi, at = s * a->conv.dilation[1] - a->conv.pad[2];
            int64_t weight = ((k * in_group + c) * w->dim[2] + r) * w->dim[3] + s;
            columns(y->dim[3], x->dim[3], a->conv.stride[1], at, &lo, &hi);
            for (int64_t oh = 0; oh < y->dim[2] && lo < hi; oh++) {
                int64_t ih = oh * a->conv.stride[0] - a->conv.pad[0] + r * a->conv.dilation[0];
                if (ih >= 0 && ih < x->dim[2]) {
                    visit(j, x0 + ih * x->dim[3] + lo * a->conv.stride[1] + at,
                          y0 + oh * y->dim[3] + lo, weight, hi - lo);
                }
            }
        }
    }
}

static void sum_forward(const job *j) {
    const trm_shape *x = &j->first.shape, *w = &j->second.shape, *y = &j->what->shape;
#pragma omp parallel for schedule(static) collapse(2)
    for (int64_t n = 0; n < y->dim[0]; n++) {
        for (int64_t k = 0; k < y->dim[1]; k++) {
            for (int64_t c = 0; c < w->dim[1]; c++) {
                join_planes(j, x, w, y, n, k, c, add_forward);
            }
        }
    }
}

static void sum_data(const job *j) {
    const trm_shape *y = &j->first.shape, *w = &j->second.shape, *x = &j->what->shape;
    int64_t in_group = w->dim[1], out_group = w->dim[0] / j->what->attrs.conv.groups;
#pragma omp parallel for schedule(static) collapse(2)
    for (int64_t n = 0; n < x->dim[0]; n++) {
        for (int64_t channel = 0; channel < x->dim[1]; channel++) {
            int64_t group = channel / in_group;
            for (int64_t k = group * out_group; k < (group + 1) * out_group; k++) {
                join_planes(j, x, w, y, n, k, channel % in_group, add_data);
            }
        }
    }
}

static void sum_weights(const job *j) {
    const trm_shape *y = &j->first.shape, *x = &j->second.shape, *w = &j->what->shape;
#pragma omp parallel for schedule(static) collapse(2)
    for (int64_t k = 0; k < w->dim[0]; k++) {
        for (int64_t c = 0; c < w->dim[1]; c++) {
            for (int64_t n = 0; n < y->dim[0]; n++) {
                join_planes(j, x, w, y, n, k, c, add_weights);
            }
        }
    }
}

static void sum_linear(const job *j) {
    bool inputs_first = j->what->attrs.matmul.inputs_first;
    int64_t out = j->second.shape.dim[inputs_first ? 1 : 0],
            in = j->second.shape.dim[inputs_first ? 0 : 1],
            rows = trm_shape_count(&j->first.shape) / (in > 0 ? in : 1);
    int64_t next = inputs_first ? 1 : in, step = inputs_first ? out : 1; /* of the weights */
#pragma omp parallel for schedule(static) collapse(2)
    for (int64_t r = 0; r < rows; r++) {
        for (int64_t o = 0; o < out; o++) {
            j->sums[r * out + o] =
                j->loops->dot(j->a + r * in, 1, j->b + o * next, step, j->anchor, in);
        }
    }
}

static void sum_matmul(const job *j) {
    bool ta = j->what->attrs.matmul.transpose_a, tb = j->what->attrs.matmul.transpose_b;
    const trm_shape *y = &j->what->shape, *a = &j->first.shape;
    int32_t rank = y->rank;
    int64_t m = y->dim[rank - 2], n = y->dim[rank - 1], batch = 1;
    for (int32_t d = 0; d < rank - 2; d++) {
        batch *= y->dim[d];
    }
    int64_t inner = a->dim[ta ? rank - 2 : rank - 1];
#pragma omp parallel for schedule(static) collapse(2)
    for (int64_t s = 0; s < batch; s++) {
        for (int64_t i = 0; i < m; i++) {
            const float *left = j->a + s * m * inner + (ta ? i : i * inner),
                        *right = j->b + s * inner * n;
            int64_t step = ta ? m : 1, *sums = j->sums + (s * m + i) * n;
            for (int64_t o = 0; tb && o < n; o++) {
                sums[o] = j->loops->dot(left, step, right + o * inner, 1, j->anchor, inner);
            }
            for (int64_t p = 0; !tb && p < inner; p++) {
                j->loops->add(sums, 1, right + p * n, 1, (double)left[p * step], j->anchor, n);
            }
        }
    }
}

static void sum_reduce(const job *j) {
    static const float one = 1;
    const trm_shape *x = &j->first.shape;
    uint32_t axes = j->what->kind == TRMI_OP_GLOBAL_AVG_POOL ? 12 : j->what->attrs.reduce.axes;
    int32_t last = x->rank - 1;
    int64_t run = x->rank > 0 ? x->dim[last] : 1, count = trm_shape_count(x);
    for (int64_t i = 0; i < count; i += run) {
        int64_t at[TRM_MAX_RANK], to = 0;
        trmi_ref_unravel(x, i, at);
        for (int32_t d = 0; d < x->rank; d++) {
            to = axes >> d & 1 ? to : to * x->dim[d] + at[d];
        }
        if (last >= 0 && !(axes >> last & 1)) {
            j->loops->add(j->sums + to, 1, j->a + i, 1, 1, j->anchor, run);
        } else {
            j->sums[to] += j->loops->dot(j->a + i, 1, &one, 0, j->anchor, run);
        }
    }
}

static void sum_rows(const job *j) { /* EMBEDDING_GRAD */
    int64_t rows = j->what->shape.dim[0], width = j->what->shape.dim[1];
    int64_t begin = j->what->part.begin;
    for (int64_t i = 0; i < trm_shape_count(&j->second.shape); i++) {
        int64_t row = trmi_ref_get_int(&j->second, i) - begin;
        if (row >= 0 && row < rows) {
            j->loops->add(j->sums + row * width, 1, j->a + i * width, 1, 1, j->anchor, width);
        }
    }
}

static void sum_pool(const job *j) { /* MAX_POOL_GRAD, AVG_POOL_GRAD */
    const trm_shape *y = &j->first.shape, *x = &j->what->shape;
    bool most = j->what->kind == TRMI_OP_MAX_POOL_GRAD;
    for (int64_t i = 0; i < trm_shape_count(y); i++) {
        int64_t p[4];
        trmi_ref_unravel(y, i, p);
        trmi_ref_window v = trmi_ref_window_of(&j->what->attrs, x, p[2], p[3]);
        int64_t plane = p[0] * x->dim[1] + p[1];
        if (most) {
            j->loops->add(j->sums + trmi_ref_arg_max(&j->second, &v, plane), 1, j->a + i, 1, 1,
                          j->anchor, 1);
            continue;
        }
        float each = (float)((double)j->a[i] / v.size);
        for (int64_t h = v.h0; h < v.h1; h++) {
            j->loops->add(j->sums + (plane * x->dim[2] + h) * x->dim[3] + v.w0, 1, &each, 0, 1,
                          j->anchor, v.w1 - v.w0);
        }
    }
}

static void sum_pairs(const job *j) {
    const trm_shape *x = &j->first.shape;
    int64_t rows = x->dim[1], width = x->dim[2];
#pragma omp parallel for schedule(static)
    for (int64_t n = 0; n < x->dim[0]; n++) {
        const float *own = j->a + n * rows * width;
        int64_t *sums = j->sums + n * rows * (rows - 1) / 2;
        for (int64_t i = 1; i < rows; i++) {
            for (int64_t k = 0; k < i; k++) {
                *sums++ = j->loops->dot(own + i * width, 1, own + k * width, 1, j->anchor, width);
            }
        }
    }
}

static void sum_logistic(const job *j) {
    int64_t count = trm_shape_count(&j->first.shape), zero;
    memcpy(&zero, &j->anchor, sizeof zero);
    for (int64_t i = 0; i < count; i++) {
        double x = (double)j->a[i],
               value = fmax(x, 0) - x * (double)j->b[i] + log1p(exp(-fabs(x))) + j->anchor;
        int64_t bits;
        memcpy(&bits, &value, sizeof bits);
        j->sums[0] += bits - zero;
    }
}

/* ---- kernels --------------------------------------------------------------------------------- */

typedef struct bound {
    void (*sum)(const job *j);
    float *copies[2]; /* of inputs that are not float32 */
    int64_t largest;  /* index of the input with magnitudes */
} bound;

static void destroy(trmi_kernel *k) {
    bound *s = k->state;
    trmi_free(s->copies[0]);
    trmi_free(s->copies[1]);
    trmi_free(s);
}

static trm_tensor tensor_of(const trmi_kernel *k, const trmi_kernel_env *env, int i) {
    const trmi_buffer *b = trmi_kernel_input_buffer(k, i);
    return b == NULL ? (trm_tensor){.data = NULL}
                     : (trm_tensor){.data = trmi_kernel_input(k, env, i),
                                    .dtype = b->dtype,
                                    .shape = b->shape};
}

static const float *floats_of(const trm_tensor *t, float *copy) {
    if (copy == NULL) {
        return t->data;
    }
    trmi_convert_to_float(t->data, t->dtype, copy, trm_shape_count(&t->shape));
    return copy;
}

static trm_status run_sum(const trmi_kernel *k, const trmi_kernel_env *env, trm_error *err) {
    (void)err;
    const bound *s = k->state;
    const trmi_exact *what = trmi_exact_of(k->step->attrs);
    const float *largest = trmi_kernel_input(k, env, (int)s->largest);
    job j = {.what = what, .sums = trmi_kernel_output(k, env, 0), .loops = loops()};
    memset(j.sums, 0, (size_t)trm_shape_count(&what->shape) * sizeof *j.sums);
    if (!sound(largest) || bound_of(what, largest) == 0) {
        return TRM_OK;
    }
    j.first = tensor_of(k, env, 0);
    j.second = s->largest > 1 ? tensor_of(k, env, 1) : (trm_tensor){.data = NULL};
    j.a = floats_of(&j.first, s->copies[0]);
    j.b = j.second.data != NULL ? floats_of(&j.second, s->copies[1]) : NULL;
    j.anchor = ldexp(1.5, 52 + unit_of(what, largest));
    s->sum(&j);
    return TRM_OK;
}

static trm_status run_round(const trmi_kernel *k, const trmi_kernel_env *env, trm_error *err) {
    (void)err;
    const trmi_exact *what = trmi_exact_of(k->step->attrs);
    const trmi_buffer *out = trmi_kernel_output_buffer(k, 0);
    const int64_t *sums = trmi_kernel_input(k, env, 0);
    const float *largest = trmi_kernel_input(k, env, 1);
    trm_tensor bias = tensor_of(k, env, 2), y = {.data = trmi_kernel_output(k, env, 0),
                                                 .dtype = out->dtype,
                                                 .shape = out->shape};
    int64_t count = trm_shape_count(&y.shape),
            inner = what->kind == TRMI_OP_CONV2D ? y.shape.dim[2] * y.shape.dim[3] : 1;
    int64_t channels = bias.data != NULL ? trm_shape_count(&bias.shape) : 1;
    int unit = unit_of(what, largest);
    bool fine = sound(largest);
    double scale = ldexp(1, unit);
#pragma omp parallel for schedule(static) if (count > 65536)
    for (int64_t i = 0; i < count; i++) {
        double value = (double)sums[i] * scale / what->divide;
        if (bias.data != NULL) {
            value = (double)(float)value + trmi_ref_get(&bias, i / inner % channels);
        }
        trmi_ref_set(&y, i, fine ? value : NAN);
    }
    return TRM_OK;
}

static float largest_of(const trm_tensor *t) {
    float most = 0;
    for (int64_t i = 0; t->data != NULL && i < trm_shape_count(&t->shape); i++) {
        float x = t->dtype == TRM_FLOAT32 ? ((const float *)t->data)[i] : (float)trmi_ref_get(t, i);
        most = isnan(x) ? INFINITY : fmaxf(most, fabsf(x));
    }
    return most;
}

static trm_status run_largest(const trmi_kernel *k, const trmi_kernel_env *env, trm_error *err) {
    (void)err;
    trm_tensor a = tensor_of(k, env, 0), b = tensor_of(k, env, 1);
    float *out = trmi_kernel_output(k, env, 0);
    out[0] = largest_of(&a);
    out[1] = largest_of(&b);
    return TRM_OK;
}

static void (*sum_of(trmi_op_kind kind))(const job *j) {
    switch (kind) {
    case TRMI_OP_CONV2D: return sum_forward;
    case TRMI_OP_CONV2D_GRAD_DATA: return sum_data;
    case TRMI_OP_CONV2D_GRAD_WEIGHTS: return sum_weights;
    case TRMI_OP_LINEAR: return sum_linear;
    case TRMI_OP_MATMUL: return sum_matmul;
    case TRMI_OP_EMBEDDING_GRAD: return sum_rows;
    case TRMI_OP_MAX_POOL_GRAD:
    case TRMI_OP_AVG_POOL_GRAD: return sum_pool;
    case TRMI_OP_PAIR_DOTS: return sum_pairs;
    case TRMI_OP_BCE_LOGITS: return sum_logistic;
    default: return sum_reduce;
    }
}

static trm_status bind_sum(trmi_kernel *k, trm_error *err) {
    bound *s = trmi_alloc(sizeof *s);
    bool fine = s != NULL;
    k->state = s;
    k->destroy = s != NULL ? destroy : NULL;
    if (fine) {
        s->sum = sum_of(trmi_exact_of(k->step->attrs)->kind);
        s->largest = k->step->inputs_count - 1;
    }
    for (int i = 0; fine && i < s->largest && i < 2; i++) {
        const trmi_buffer *b = trmi_kernel_input_buffer(k, i);
        bool convert = b != NULL && (b->dtype == TRM_BFLOAT16 || b->dtype == TRM_FLOAT16);
        s->copies[i] =
            convert ? trmi_alloc((size_t)trm_shape_count(&b->shape) * sizeof(float)) : NULL;
        fine = !convert || s->copies[i] != NULL;
    }
    k->run = run_sum;
    return fine ? TRM_OK : TRMI_FAIL(err, TRM_NOMEM, "%s: no memory for its kernel", k->step->name);
}

trm_status trmi_exact_bind(trmi_kernel *k, trm_error *err) {
    trmi_op_kind kind = k->step->kind == TRMI_STEP_OP ? k->step->op_kind : TRMI_OP_NONE;
    if (kind == TRMI_OP_EXACT_SUM) {
        return bind_sum(k, err);
    }
    k->run = kind == TRMI_OP_EXACT_ROUND ? run_round : kind == TRMI_OP_LARGEST ? run_largest : NULL;
    return k->run != NULL ? TRM_OK : TRM_UNSUPPORTED;
}
