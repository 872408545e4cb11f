/* SPDX-License-Identifier: Apache-2.0 */
/* Reductions over any dimensions of any layout, and global pooling.
 *
 *      x as a nest, outermost first, each dimension kept (K) or reduced (R):
 *          inner K: rows of `width` elements are added up        [R | R... K]
 *          inner R: each run of elements is folded to one        [K | K... R]
 *
 *      for each index of the outer K's:  rows --blocks--> partial[block][width] --in order--> y
 *
 * Blocks depend on the shape alone and are combined in double: the same bits for any threads. */
#include "exec/cpu/ops/ops.h"
#include "exec/cpu/ops/memory_kernels.h"
#include "exec/cpu/gemm/nest.h"

#include "base/checked.h"
#include "base/element.h"
#include "base/error.h"
#include "base/format/half.h"

#include <math.h>

enum {
    RUN = 4096,       /* elements of a run that are summed in float, at most */
    BLOCK_ROWS = 512, /* rows that are summed in float, at most */
    COLUMNS = 2048,   /* columns of one job, at most */
    JOBS = 64,        /* jobs that threads can share; with fewer, rows are cut into blocks */
    LANES = 64        /* outputs whose blocks are added side by side */
};

/* Filled by bind. */
typedef struct reduce_state {
    const trmi_memory_kernels *kernels;
    trmi_nest nest; /* operands: x, y with stride 0 where reduced */
    trmi_row_reduction what;
    bool half_x, half_y; /* bfloat16, else float32 */
    bool inner_kept;     /* the inner dimension is K, else R */
    bool strict;         /* strict determinism: blocks do not depend on what is kept */
    double scale;        /* factor of the result: 1 / count of a mean */
    int64_t kept;        /* indices of the outer K's */
    int64_t rows;        /* to fold, for each of them */
    int64_t run;         /* elements of the inner R; 1 when the inner one is K */
    int64_t runs;        /* pieces of a run of at most RUN elements; each counts as a row */
    int64_t width;       /* of the inner K; 1 when it is R */
    int64_t columns;     /* pieces of the width of at most COLUMNS elements */
    int64_t blocks;      /* parts of the rows, of block_rows rows each */
    int64_t block_rows;
} reduce_state;

/* Chooses blocks and columns of the reduction, by the shape alone. There are as many blocks of rows
 * as give JOBS jobs with the kept indices and columns, but at least 16 rows in a block, and at most
 * BLOCK_ROWS. */
static void plan_blocks(reduce_state *s) {
    const trmi_nest *n = &s->nest;
    int32_t inner = n->rank - 1;
    s->inner_kept = n->stride[1][inner] != 0;
    s->kept = s->rows = 1;
    for (int32_t d = 0; d < inner; d++) {
        *(n->stride[1][d] != 0 ? &s->kept : &s->rows) *= n->dim[d];
    }
    s->width = s->inner_kept ? n->dim[inner] : 1;
    s->run = s->inner_kept ? 1 : n->dim[inner];
    s->runs = (s->run + RUN - 1) / RUN;
    s->rows *= s->runs;
    s->columns = (s->width + COLUMNS - 1) / COLUMNS;
    int64_t others = s->strict ? 1 : trmi_max_i64(1, s->kept * s->columns);
    s->blocks = trmi_max_i64(trmi_min_i64(JOBS / others, s->rows / 16),
                             (s->rows + BLOCK_ROWS - 1) / BLOCK_ROWS);
    s->blocks = trmi_max_i64(1, s->blocks);
    s->block_rows = (s->rows + s->blocks - 1) / s->blocks;
}

/* Strict determinism: one column is summed row by row, as several side by side are. */
static void keep_last(trmi_nest *n) {
    if (n->rank == 0 || n->stride[1][n->rank - 1] == 0) {
        n->dim[n->rank] = n->stride[0][n->rank] = n->stride[1][n->rank] = 1;
        n->rank++;
    }
}

/* Makes the nest of x with y as second operand, whose strides are 0 where x is reduced. */
static void make_nest(reduce_state *s, const trmi_buffer *x, const trmi_buffer *y,
                      trmi_op_kind kind, const trmi_attrs *attrs) {
    int64_t strides[TRMI_NEST_OPERANDS][TRM_MAX_RANK], own[TRM_MAX_RANK];
    bool pool = kind == TRMI_OP_GLOBAL_AVG_POOL || kind == TRMI_OP_GLOBAL_AVG_POOL_GRAD;
    uint32_t axes = pool ? 4 | 8 : attrs->reduce.axes;
    bool keep = !pool && attrs->reduce.keep_dims;
    trmi_buffer_strides(x, strides[0]);
    trmi_buffer_strides(y, own);
    /* A reduced dimension has stride 0 in y; y may lack it (no keep_dims). */
    for (int32_t d = 0, to = 0; d < x->shape.rank; d++) {
        bool reduced = axes >> d & 1;
        strides[1][d] = reduced ? 0 : own[to];
        to += !reduced || keep;
    }
    trmi_nest_make(&s->nest, &x->shape, 2, strides);
    if (trm_shape_count(&x->shape) == 1) { /* an input of one element is kept, whatever its axes */
        s->nest.stride[1][0] = 1;
    }
    s->half_x = x->dtype == TRM_BFLOAT16;
    s->half_y = y->dtype == TRM_BFLOAT16;
    s->what = kind == TRMI_OP_REDUCE_MAX ? TRMI_REDUCE_MAX_OF : TRMI_REDUCE_SUM_OF;
    double in = (double)trm_shape_count(&x->shape), out = (double)trm_shape_count(&y->shape);
    bool mean = pool || kind == TRMI_OP_REDUCE_MEAN;
    s->scale = mean && in > 0 ? out / in : 1;
    int32_t last = x->layout == TRMI_CHANNELS_LAST && x->shape.rank == 4 ? 1 : x->shape.rank - 1;
    if (s->strict && last >= 0 && x->shape.dim[last] == 1 && !(axes >> last & 1)) {
        keep_last(&s->nest);
    }
    plan_blocks(s);
}

/* Returns the offset in operand `o` of an index over the outer dimensions: the kept ones, or the
 * reduced ones. */
static int64_t outer_offset(const trmi_nest *n, int o, bool kept, int64_t index) {
    int64_t offset = 0;
    for (int32_t d = n->rank - 2; d >= 0; d--) {
        if ((n->stride[1][d] != 0) == kept) {
            offset += index % n->dim[d] * n->stride[o][d];
            index /= n->dim[d];
        }
    }
    return offset;
}

/* Reduces the rows of one block, columns [c, c + n), to `into`[n]. */
static void fold_block(const reduce_state *s, const char *x, int64_t kept, int64_t block, int64_t c,
                       int64_t n, float *into) {
    int64_t bytes = s->half_x ? 2 : 4, base = outer_offset(&s->nest, 0, true, kept);
    int64_t end = trmi_min_i64(s->rows, (block + 1) * s->block_rows);
    double folded = s->what == TRMI_REDUCE_MAX_OF ? -INFINITY : 0;
    for (int64_t i = 0; i < n; i++) {
        into[i] = (float)folded;
    }
    /* The common case, sums of the columns of a matrix, has a kernel for all rows of the block. */
    if (s->inner_kept && s->what == TRMI_REDUCE_SUM_OF && s->nest.rank == 2 && s->kept == 1) {
        int64_t begin = block * s->block_rows, stride = s->nest.stride[0][0];
        s->kernels->sum_rows(into, x + (begin * stride + c) * bytes, stride, end - begin, n,
                             s->half_x);
        return;
    }
    /* Otherwise go row by row. If the inner dimension is kept, a row is a vector of results; if
     * not, it is part of one result. */
    for (int64_t row = block * s->block_rows; row < end; row++) {
        int64_t at = base + outer_offset(&s->nest, 0, false, row / s->runs);
        if (s->inner_kept) {
            s->kernels->fold_rows(into, x + (at + c) * bytes, n, s->half_x, s->what);
            continue;
        }
        int64_t begin = row % s->runs * RUN, count = trmi_min_i64(RUN, s->run - begin);
        float part = s->kernels->fold_run(x + (at + begin) * bytes, count, s->half_x, s->what);
        if (s->what == TRMI_REDUCE_SUM_OF) {
            folded += (double)part;
        } else {
            folded = isnan(folded) || folded > (double)part ? folded : (double)part;
        }
    }
    if (!s->inner_kept) {
        into[0] = (float)folded;
    }
}

/* Adds the parts of all blocks for contiguous float32 outputs, LANES at a time; the order of
 * additions for each output is that of `combine_blocks`. */
static void combine_sums(const reduce_state *s, const float *partial, float *y, int64_t n) {
    for (int64_t at = 0; at < n; at += LANES) {
        double sum[LANES] = {0};
        int64_t width = trmi_min_i64(LANES, n - at);
        for (int64_t b = 0; b < s->blocks; b++) {
            const float *part = partial + b * s->width + at;
            for (int64_t i = 0; i < width; i++) {
                sum[i] += (double)part[i];
            }
        }
        for (int64_t i = 0; i < width; i++) {
            y[at + i] = (float)(sum[i] * s->scale);
        }
    }
}

/* Combines the parts of all blocks, in order and in double, to columns [c, c + n) of y. */
static void combine_blocks(const reduce_state *s, const float *partial, char *y, int64_t kept,
                           int64_t c, int64_t n) {
    int64_t base = outer_offset(&s->nest, 1, true, kept);
    int64_t step = s->inner_kept ? s->nest.stride[1][s->nest.rank - 1] : 0;
    /* Contiguous sums have a loop of their own. */
    if (s->what == TRMI_REDUCE_SUM_OF && step == 1 && !s->half_y) {
        combine_sums(s, partial + kept * s->blocks * s->width + c, (float *)y + base + c, n);
        return;
    }
    /* a maximum keeps NaN */
    for (int64_t i = c; i < c + n; i++) {
        double sum = s->what == TRMI_REDUCE_MAX_OF ? -INFINITY : 0;
        for (int64_t b = 0; b < s->blocks; b++) {
            double part = (double)partial[(kept * s->blocks + b) * s->width + i];
            if (s->what == TRMI_REDUCE_SUM_OF) {
                sum += part;
            } else {
                sum = isnan(sum) || sum > part ? sum : part;
            }
        }
        float value = (float)(sum * s->scale);
        if (s->half_y) {
            ((uint16_t *)y)[base + i * step] = trmi_float_to_bf16(value);
        } else {
            ((float *)y)[base + i * step] = value;
        }
    }
}

/* Returns whether each sum has one term and the order is the same, as for images of one pixel: then
 * the reduction is a scaled copy. */
static bool nothing_to_add(const reduce_state *s) {
    return s->inner_kept && s->kept == 1 && s->rows == 1 && s->nest.rank == 1 &&
           s->nest.stride[0][0] == 1 && s->nest.stride[1][0] == 1;
}

/* Runs a reduction that only copies and scales. */
static void run_copy(const reduce_state *s, const char *x, char *y) {
    int64_t from = s->half_x ? 2 : 4, to = s->half_y ? 2 : 4;
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < s->columns; i++) {
        int64_t c = i * COLUMNS;
        s->kernels->unary[TRMI_UNARY_SCALE](x + c * from, y + c * to,
                                            trmi_min_i64(COLUMNS, s->width - c), s->half_x,
                                            s->half_y, (float)s->scale);
    }
}

/* Runs a reduction: all blocks in parallel, then the combination of their parts. */
static trm_status run_reduce(const trmi_kernel *k, const trmi_kernel_env *env, trm_error *err) {
    (void)err;
    const reduce_state *s = k->state;
    const char *x = trmi_kernel_input(k, env, 0);
    char *y = trmi_kernel_output(k, env, 0);
    float *partial = (float *)(void *)trmi_kernel_scratch(k, env);
    if (nothing_to_add(s)) {
        run_copy(s, x, trmi_kernel_output(k, env, 0));
        return TRM_OK;
    }
    int64_t jobs = s->kept * s->blocks * s->columns;
#pragma omp parallel for schedule(static)
    for (int64_t job = 0; job < jobs; job++) {
        int64_t kept = job / (s->blocks * s->columns), block = job / s->columns % s->blocks;
        int64_t c = job % s->columns * COLUMNS, n = trmi_min_i64(COLUMNS, s->width - c);
        fold_block(s, x, kept, block, c, n, partial + (kept * s->blocks + block) * s->width + c);
    }
#pragma omp parallel for schedule(static)
    for (int64_t job = 0; job < s->kept * s->columns; job++) {
        int64_t c = job % s->columns * COLUMNS;
        combine_blocks(s, partial, y, job / s->columns, c, trmi_min_i64(COLUMNS, s->width - c));
    }
    return TRM_OK;
}

/* ---- the gradient of the maximum: shared among equal ones ------------------------------------ */

/* Computes dx for one kept index: pass 0 counts the elements that equal the maximum y, pass 1
 * writes dx, dy divided by that count. */
static void max_grad_rows(const reduce_state *s, const void *dy, const void *x, const void *y,
                          void *dx, int64_t kept, int64_t c, int64_t n, float *equal) {
    const trmi_nest *nest = &s->nest;
    int64_t in = outer_offset(nest, 0, true, kept), out = outer_offset(nest, 1, true, kept);
    int64_t step = s->inner_kept ? nest->stride[1][nest->rank - 1] : 0;
    /* with the innermost dimension kept, each column has its own maximum; else the run has one */
    int64_t rows = s->rows / s->runs, count = s->inner_kept ? n : s->run;
    for (int64_t i = 0; i < n; i++) {
        equal[i] = 0;
    }
    for (int pass = 0; pass < 2; pass++) {
        for (int64_t row = 0; row < rows; row++) {
            int64_t at = in + outer_offset(nest, 0, false, row) + c;
            for (int64_t i = 0; i < count; i++) {
                int64_t column = s->inner_kept ? i : 0, to = out + (c + i) * step;
                bool wins =
                    trmi_load_float(x, at + i, s->half_x) == trmi_load_float(y, to, s->half_x);
                if (pass == 0) {
                    equal[column] += wins;
                    continue;
                }
                float value = wins ? trmi_load_float(dy, to, s->half_x) / equal[column] : 0.0f;
                if (s->half_x) {
                    ((uint16_t *)dx)[at + i] = trmi_float_to_bf16(value);
                } else {
                    ((float *)dx)[at + i] = value;
                }
            }
        }
    }
}

/* Spreads dy over the elements that equal the maximum; a job is one kept row and some columns. */
static trm_status run_max_grad(const trmi_kernel *k, const trmi_kernel_env *env, trm_error *err) {
    (void)err;
    const reduce_state *s = k->state;
    float *scratch = (float *)(void *)trmi_kernel_scratch(k, env);
#pragma omp parallel for schedule(static)
    for (int64_t job = 0; job < s->kept * s->columns; job++) {
        int64_t kept = job / s->columns, c = job % s->columns * COLUMNS;
        max_grad_rows(s, trmi_kernel_input(k, env, 0), trmi_kernel_input(k, env, 1),
                      trmi_kernel_input(k, env, 2), trmi_kernel_output(k, env, 0), kept, c,
                      trmi_min_i64(COLUMNS, s->width - c), scratch + kept * s->width + c);
    }
    return TRM_OK;
}

/* ---- the gradient of global pooling: spread -------------------------------------------------- */

/* Writes dy / count to each element of dx that was averaged. */
static trm_status run_spread(const trmi_kernel *k, const trmi_kernel_env *env, trm_error *err) {
    (void)err;
    const reduce_state *s = k->state; /* x is dx, y is dy */
    const char *dy = trmi_kernel_input(k, env, 0);
    char *dx = trmi_kernel_output(k, env, 0);
    int64_t bytes = s->half_x ? 2 : 4, rows = s->rows / s->runs;
#pragma omp parallel for schedule(static)
    for (int64_t kept = 0; kept < s->kept; kept++) {
        int64_t to = outer_offset(&s->nest, 0, true, kept),
                from = outer_offset(&s->nest, 1, true, kept);
        for (int64_t row = 0; row < rows; row++) {
            char *out = dx + (to + outer_offset(&s->nest, 0, false, row)) * bytes;
            if (s->inner_kept) {
                s->kernels->unary[TRMI_UNARY_SCALE](dy + from * bytes, out, s->width, s->half_x,
                                                    s->half_x, (float)s->scale);
                continue;
            }
            float value = trmi_load_float(dy, from, s->half_x) * (float)s->scale;
            for (int64_t i = 0; i < s->run; i++) {
                if (s->half_x) {
                    ((uint16_t *)out)[i] = trmi_float_to_bf16(value);
                } else {
                    ((float *)out)[i] = value;
                }
            }
        }
    }
    return TRM_OK;
}

/* ---- bind ------------------------------------------------------------------------------------ */

bool trmi_onednn_float_supports(trmi_onednn *state, const trm_graph *graph, const trmi_op *op,
                                trmi_layout layout) {
    (void)state;
    return layout == TRMI_PLAIN ||
           (layout == TRMI_CHANNELS_LAST && trmi_memory_fast_dtypes(graph, op));
}

/* Returns an input as one run reads it: of a sum over samples, one block of them. */
static trmi_buffer input_of(const trm_program *program, const trmi_step *step, int index) {
    trmi_buffer x = program->buffers[step->inputs[index]];
    x.shape.dim[0] = trmi_of_block(step, x.shape.dim[0]);
    return x;
}

int64_t trmi_onednn_reduce_scratch(trmi_onednn *state, const trm_program *program,
                                   const trmi_step *step) {
    bool max_grad = step->op_kind == TRMI_OP_REDUCE_MAX_GRAD;
    const trmi_buffer x = input_of(program, step, max_grad ? 1 : 0);
    const trmi_buffer *y = &program->buffers[max_grad ? step->inputs[2] : step->outputs[0]];
    reduce_state s = {.strict = state->strict};
    make_nest(&s, &x, y, step->op_kind, step->attrs);
    return s.kept * s.blocks * s.width * (int64_t)sizeof(float);
}

/* Binds a reduction, or the gradient of a maximum, which compares x with the maximum again. */
trm_status trmi_onednn_bind_reduce(trmi_backend *backend, trmi_kernel *kernel, trm_error *err) {
    trmi_op_kind kind = kernel->step->op_kind;
    bool max_grad = kind == TRMI_OP_REDUCE_MAX_GRAD;
    const trmi_buffer of_run = input_of(kernel->program, kernel->step, max_grad ? 1 : 0),
                      *x = &of_run;
    const trmi_buffer *y =
        max_grad ? trmi_kernel_input_buffer(kernel, 2) : trmi_kernel_output_buffer(kernel, 0);
    if (!trmi_dtype_is_fast(x->dtype) || !trmi_dtype_is_fast(y->dtype) ||
        (max_grad && x->dtype != y->dtype)) {
        return trmi_memory_unsupported(kernel, err);
    }
    reduce_state *s = trmi_memory_state(kernel, sizeof *s, err);
    if (s == NULL) {
        return TRM_NOMEM;
    }
    s->kernels = trmi_memory_kernels_best();
    s->strict = trmi_onednn_of(backend)->strict;
    make_nest(s, x, y, kind, kernel->step->attrs);
    kernel->by_block = kernel->step->over_samples;
    kernel->run = max_grad ? run_max_grad : run_reduce;
    return TRM_OK;
}

/* Binds the gradient of global average pooling, which spreads dy over the image. */
trm_status trmi_onednn_bind_global_pool_grad(trmi_backend *backend, trmi_kernel *kernel,
                                             trm_error *err) {
    (void)backend;
    const trmi_buffer *dy = trmi_kernel_input_buffer(kernel, 0);
    const trmi_buffer *dx = trmi_kernel_output_buffer(kernel, 0);
    if (!trmi_dtype_is_fast(dx->dtype) || dx->dtype != dy->dtype) {
        return trmi_memory_unsupported(kernel, err);
    }
    reduce_state *s = trmi_memory_state(kernel, sizeof *s, err);
    if (s == NULL) {
        return TRM_NOMEM;
    }
    s->kernels = trmi_memory_kernels_best();
    make_nest(s, dx, dy, kernel->step->op_kind, kernel->step->attrs);
    kernel->run = run_spread;
    return TRM_OK;
}
