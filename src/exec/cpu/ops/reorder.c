/* SPDX-License-Identifier: Apache-2.0 */
/* Operators that only move elements: reorders between layouts, transposes, slices, concatenations,
 * paddings, broadcasts, one-hot. Each is one nest of copies, or one for each concatenated input.
 *
 *      inner strides (1, 1): memcpy      (1, 0): fill      (1, s): a transpose, in tiles */
#include "exec/cpu/ops/ops.h"
#include "exec/cpu/gemm/nest.h"

#include "base/element.h"
#include "base/error.h"
#include "base/format/half.h"
#include "base/memory.h"

#include <string.h>

/* Elements of a task, and sides of the tiles in which transposes are copied. */
enum { PIECE = 16384, TILE = 32 };

/* One nest of copies: the whole operator, or one input of a concatenation. */
typedef struct move_part {
    trmi_nest nest;   /* operands: out, in */
    int64_t to, from; /* first elements */
    int32_t cross;    /* tiled transpose: the dimension that is dense in `in`; -1 = none */
    int64_t cross_dim, cross_out; /* elements of it in a piece; its stride in `out` */
} move_part;

/* Filled by bind. */
typedef struct move_state {
    int64_t bytes; /* of an element */
    bool fill;     /* PAD: the value first */
    uint64_t value;
    int32_t parts_count;
    move_part parts[]; /* one an input */
} move_state;

/* A part with the addresses of this run. */
typedef struct move_job {
    const move_part *part;
    int64_t bytes; /* of an element */
    char *out;     /* the element that part->nest counts from */
    const char *in;
} move_job;

/* ---- loops ----------------------------------------------------------------------------------- */

#define STRIDED(type)                                                                              \
    do {                                                                                           \
        type *to = (type *)out;                                                                    \
        const type *from = (const type *)in;                                                       \
        for (int64_t i = 0; i < n; i++) {                                                          \
            to[i * so] = from[i * si];                                                             \
        }                                                                                          \
    } while (0)

/* Copies n elements of `bytes` bytes; so, si: strides of output and input, in elements. */
static void copy_run(char *out, int64_t so, const char *in, int64_t si, int64_t n, int64_t bytes) {
    if (so == 1 && si == 1) {
        memcpy(out, in, (size_t)(n * bytes));
    } else if (bytes == 4) {
        STRIDED(uint32_t);
    } else if (bytes == 2) {
        STRIDED(uint16_t);
    } else if (bytes == 8) {
        STRIDED(uint64_t);
    } else {
        STRIDED(uint8_t);
    }
}

/* Copies one run of the inner dimension. */
static void copy_body(const void *context, const int64_t *offset, int64_t count) {
    const move_job *job = context;
    const trmi_nest *n = &job->part->nest;
    copy_run(job->out + offset[0] * job->bytes, n->stride[0][n->rank - 1],
             job->in + offset[1] * job->bytes, n->stride[1][n->rank - 1], count, job->bytes);
}

/* Channels of a colour image. A transpose of three columns needs no tiles. */
enum { COLOURS = 3 };

/* Copies out[j * so + i] = in[i * si + j] for i < n (the inner dimension), j < m (the dimension
 * that is contiguous in `in`), in tiles. Images of three colours are unrolled instead: an inner
 * loop of three iterations costs more than its copies. */
#define TRANSPOSE(type)                                                                            \
    do {                                                                                           \
        type *to = (type *)out;                                                                    \
        const type *from = (const type *)in;                                                       \
        for (int64_t j = 0; j < (n == COLOURS ? m : 0); j++) {                                     \
            to[j * so] = from[j];                                                                  \
            to[j * so + 1] = from[si + j];                                                         \
            to[j * so + 2] = from[2 * si + j];                                                     \
        }                                                                                          \
        for (int64_t j0 = 0; j0 < (n == COLOURS ? 0 : m); j0 += TILE) {                            \
            int64_t j1 = j0 + TILE < m ? j0 + TILE : m;                                            \
            for (int64_t i0 = 0; i0 < n; i0 += TILE) {                                             \
                int64_t i1 = i0 + TILE < n ? i0 + TILE : n;                                        \
                for (int64_t j = j0; j < j1; j++) {                                                \
                    for (int64_t i = i0; i < i1; i++) {                                            \
                        to[j * so + i] = from[i * si + j];                                         \
                    }                                                                              \
                }                                                                                  \
            }                                                                                      \
        }                                                                                          \
    } while (0)

/* Moves a piece in which input and output are contiguous along different dimensions, tile by
 * tile. */
static void transpose_body(const void *context, const int64_t *offset, int64_t n) {
    const move_job *job = context;
    const trmi_nest *nest = &job->part->nest;
    char *out = job->out + offset[0] * job->bytes;
    const char *in = job->in + offset[1] * job->bytes;
    int64_t si = nest->stride[1][nest->rank - 1], so = job->part->cross_out;
    int64_t m = job->part->cross_dim;
    if (job->bytes == 4) {
        TRANSPOSE(uint32_t);
    } else if (job->bytes == 2) {
        TRANSPOSE(uint16_t);
    } else if (job->bytes == 8) {
        TRANSPOSE(uint64_t);
    } else {
        TRANSPOSE(uint8_t);
    }
}

/* Fills the output with one value, all threads together. */
static void fill_all(const move_state *s, char *out, int64_t count) {
#pragma omp parallel for schedule(static)
    for (int64_t at = 0; at < count; at += PIECE) {
        int64_t n = count - at < PIECE ? count - at : PIECE;
        copy_run(out + at * s->bytes, 1, (const char *)&s->value, 0, n, s->bytes);
    }
}

/* Moves all parts of the result (one for a reorder or a slice, several for a concatenation).
 * `fill`: places of the result that no part covers. */
static trm_status run_move(const trmi_kernel *k, const trmi_kernel_env *env, trm_error *err) {
    (void)err;
    const move_state *s = k->state;
    char *out = trmi_kernel_output(k, env, 0);
    if (s->fill) {
        fill_all(s, out, trm_shape_count(&trmi_kernel_output_buffer(k, 0)->shape));
    }
    for (int32_t i = 0; i < s->parts_count; i++) {
        const move_part *p = &s->parts[i];
        move_job job = {.part = p,
                        .bytes = s->bytes,
                        .out = out + p->to * s->bytes,
                        .in = (const char *)trmi_kernel_input(k, env, i) + p->from * s->bytes};
        trmi_nest_run(&p->nest, PIECE, p->cross >= 0 ? transpose_body : copy_body, &job);
    }
    return TRM_OK;
}

/* ---- bind ------------------------------------------------------------------------------------ */

/* Turns a strided inner copy, whose source is contiguous along another dimension, into a tiled
 * transpose of both; that dimension is removed from the nest. A long one is cut into pieces first,
 * so that there is work for all threads. */
static void find_cross(move_part *p) {
    trmi_nest *n = &p->nest;
    int32_t inner = n->rank - 1;
    p->cross = -1;
    if (n->stride[0][inner] != 1 || n->stride[1][inner] <= 1) {
        return;
    }
    /* The dimension along which the source is contiguous. */
    for (int32_t d = 0; d < inner; d++) {
        if (n->stride[1][d] == 1 && n->dim[d] > 1) {
            p->cross = d;
        }
    }
    if (p->cross < 0) {
        return;
    }
    /* The largest piece of at most 8 tiles that divides the dimension; the whole, if none does. */
    int32_t d = p->cross;
    int64_t piece = n->dim[d];
    for (int64_t cut = TILE; cut <= 8 * TILE; cut *= 2) {
        piece = n->dim[d] % cut == 0 ? cut : piece;
    }
    p->cross_dim = piece;
    p->cross_out = n->stride[0][d];
    n->dim[d] /= piece; /* the nest keeps the number of pieces */
    n->stride[0][d] *= piece;
    n->stride[1][d] *= piece;
}

/* Makes the nest of a part from shape, strides and first elements of both sides. */
static void make_part(move_part *p, const trm_shape *shape, const int64_t *out, const int64_t *in,
                      int64_t to, int64_t from) {
    int64_t strides[TRMI_NEST_OPERANDS][TRM_MAX_RANK];
    memcpy(strides[0], out, sizeof strides[0]);
    memcpy(strides[1], in, sizeof strides[1]);
    *p = (move_part){.to = to, .from = from};
    trmi_nest_make(&p->nest, shape, 2, strides);
    find_cross(p);
}

/* Returns the bits of PAD's value in the tensor's type. */
static uint64_t value_bits(trm_dtype dtype, double value) {
    uint64_t bits = 0;
    float single = (float)value;
    uint16_t narrow;
    switch (dtype) {
    case TRM_FLOAT64: memcpy(&bits, &value, sizeof value); break;
    case TRM_FLOAT32: memcpy(&bits, &single, sizeof single); break;
    case TRM_BFLOAT16:
    case TRM_FLOAT16:
        narrow = dtype == TRM_BFLOAT16 ? trmi_float_to_bf16(single) : trmi_float_to_f16(single);
        memcpy(&bits, &narrow, sizeof narrow);
        break;
    default:
        bits = (uint64_t)(int64_t)value; /* the low bytes are the integer's */
        break;
    }
    return bits;
}

/* Describes a move as parts, one for each input: the loops of the output that it fills, with
 * strides and offsets on both sides. A transposition permutes the strides of the input, a broadcast
 * has strides of 0, a slice begins inside of the input, a padding or concatenation inside of the
 * output. */
static void make_parts(move_state *s, const trmi_kernel *k) {
    const trmi_step *step = k->step;
    const trmi_attrs *a = step->attrs;
    const trmi_buffer *y = trmi_kernel_output_buffer(k, 0);
    int64_t out[TRM_MAX_RANK] = {0}, in[TRM_MAX_RANK] = {0}, permuted[TRM_MAX_RANK] = {0}, to = 0,
            from = 0;
    trmi_buffer_strides(y, out);
    for (int32_t i = 0; i < s->parts_count; i++) {
        const trmi_buffer *x = trmi_kernel_input_buffer(k, i);
        trmi_buffer_strides(x, in);
        if (step->kind == TRMI_STEP_REORDER) {
            make_part(&s->parts[i], &y->shape, out, in, 0, 0);
            continue;
        }
        switch (step->op_kind) {
        case TRMI_OP_TRANSPOSE:
            for (int32_t d = 0; d < y->shape.rank; d++) {
                permuted[d] = in[a->transpose.order[d]];
            }
            make_part(&s->parts[i], &y->shape, out, permuted, 0, 0);
            break;
        case TRMI_OP_BROADCAST:
            trmi_broadcast_strides(x, &y->shape, in);
            make_part(&s->parts[i], &y->shape, out, in, 0, 0);
            break;
        case TRMI_OP_SLICE:
            for (int32_t d = 0; d < y->shape.rank; d++) {
                from += a->slice.begin[d] * in[d];
            }
            make_part(&s->parts[i], &y->shape, out, in, 0, from);
            break;
        case TRMI_OP_PAD:
            for (int32_t d = 0; d < y->shape.rank; d++) {
                to += a->pad.before[d] * out[d];
            }
            s->fill = true;
            s->value = value_bits(y->dtype, a->pad.value);
            make_part(&s->parts[i], &x->shape, out, in, to, 0);
            break;
        default: /* CONCAT */
            make_part(&s->parts[i], &x->shape, out, in, to, 0);
            to += x->shape.dim[a->concat.axis] * out[a->concat.axis];
            break;
        }
    }
}

/* Binds all operators that only copy: reorder, transpose, broadcast, slice, pad, concatenation. */
trm_status trmi_onednn_bind_move(trmi_backend *backend, trmi_kernel *kernel, trm_error *err) {
    (void)backend;
    const trmi_step *step = kernel->step;
    const trmi_buffer *y = trmi_kernel_output_buffer(kernel, 0);
    bool known = y->layout != TRMI_BLOCKED16;
    for (int32_t i = 0; i < step->inputs_count; i++) {
        const trmi_buffer *x = trmi_kernel_input_buffer(kernel, i);
        known = known && x->layout != TRMI_BLOCKED16 && x->dtype == y->dtype;
    }
    if (!known) {
        return trmi_memory_unsupported(kernel, err);
    }
    size_t parts = (size_t)step->inputs_count;
    move_state *s = trmi_memory_state(kernel, sizeof *s + parts * sizeof(move_part), err);
    if (s == NULL) {
        return TRM_NOMEM;
    }
    s->bytes = (int64_t)trm_dtype_bytes(y->dtype);
    s->parts_count = step->inputs_count;
    make_parts(s, kernel);
    kernel->run = run_move;
    return TRM_OK;
}

/* ---- one-hot --------------------------------------------------------------------------------- */

/* Writes one row of `classes` values for each label. A rank with a part of the classes writes
 * its columns only; other labels give a row of `off`. */
static trm_status run_one_hot(const trmi_kernel *k, const trmi_kernel_env *env, trm_error *err) {
    (void)err;
    const trmi_buffer *labels = trmi_kernel_input_buffer(k, 0);
    int64_t rows = trm_shape_count(&labels->shape), classes = k->step->attrs->one_hot.classes;
    int64_t begin = trmi_part_of(k->step->attrs)->begin;
    float on = (float)k->step->attrs->one_hot.on, off = (float)k->step->attrs->one_hot.off;
    const void *ids = trmi_kernel_input(k, env, 0);
    float *y = trmi_kernel_output(k, env, 0);
#pragma omp parallel for schedule(static)
    for (int64_t r = 0; r < rows; r++) {
        int64_t label = trmi_element_id(ids, labels->dtype == TRM_INT64, r);
        for (int64_t c = 0; c < classes; c++) {
            y[r * classes + c] = off;
        }
        label -= begin;
        if (label >= 0 && label < classes) {
            y[r * classes + label] = on;
        }
    }
    return TRM_OK;
}

trm_status trmi_onednn_bind_one_hot(trmi_backend *backend, trmi_kernel *kernel, trm_error *err) {
    (void)backend;
    if (trmi_kernel_output_buffer(kernel, 0)->dtype != TRM_FLOAT32) {
        return trmi_memory_unsupported(kernel, err);
    }
    kernel->run = run_one_hot;
    return TRM_OK;
}
