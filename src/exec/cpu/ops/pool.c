/* SPDX-License-Identifier: Apache-2.0 */
/* Maximum and average pooling over windows, channels-last. Plain images are treated as N * C images
 * of one channel.
 *
 *      forward:   one output row at a time, threads over rows
 *      gradient:  threads over (image, 32 channels); dx is summed in float32 in a ring of as many
 *                 rows as a window has, and each row is written once, when no window needs it more:
 *
 *                 rows   0  1 [2  3  4] 5  6        [window of output row 1]
 *                        ^written ^ring   ^not begun */
#include "exec/cpu/ops/ops.h"
#include "exec/cpu/ops/memory_kernels.h"

#include "base/checked.h"
#include "base/element.h"
#include "base/error.h"

#include <string.h>
#ifdef _OPENMP
#include <omp.h>
#endif

/* 32 channels: the ring of a 112-wide image and the rows it reads stay near L1. */
enum { CHANNELS = 64, CHANNELS_OF_FEW = 32, FEW_IMAGES = 8, KERNEL_ROWS_MAX = 64 };
enum { SOON = 2 }; /* rows that are prefetched before they are written */

/* Filled by bind. */
typedef struct pool_state {
    const trmi_memory_kernels *kernels;
    trmi_pool_row row; /* what is the same for all rows */
    int64_t images, height, out_height, stride_rows, pad_rows;
    int64_t bytes; /* of an element */
    int threads;
    bool max;
} pool_state;

/* Fills the state. In a layout with channels first, each channel counts as an image of one
 * channel. */
static void make_state(pool_state *s, const trmi_buffer *x, const trmi_buffer *y,
                       const trmi_attrs *a) {
    bool last = x->layout == TRMI_CHANNELS_LAST;
    s->images = x->shape.dim[0] * (last ? 1 : x->shape.dim[1]);
    s->height = x->shape.dim[2];
    s->out_height = y->shape.dim[2];
    s->stride_rows = a->pool.stride[0];
    s->pad_rows = a->pool.pad[0];
    s->row = (trmi_pool_row){.channels = last ? x->shape.dim[1] : 1,
                             .width = x->shape.dim[3],
                             .out_width = y->shape.dim[3],
                             .kernel = a->pool.kernel[1],
                             .stride = a->pool.stride[1],
                             .pad = a->pool.pad[2],
                             .kernel_rows = a->pool.kernel[0],
                             .count_padding = a->pool.count_padding,
                             .half = x->dtype == TRM_BFLOAT16};
    s->bytes = s->row.half ? 2 : 4;
}

/* Sets the rows of the window of output row `at` that lie inside the image. */
static void window_rows(const pool_state *s, int64_t at, trmi_pool_row *row) {
    int64_t h = at * s->stride_rows - s->pad_rows;
    row->first = h < 0 ? 0 : h;
    row->last = trmi_min_i64(s->height, h + row->kernel_rows);
}

/* ---- forward --------------------------------------------------------------------------------- */

/* Pools; a job is one row of the output. */
static trm_status run_pool(const trmi_kernel *k, const trmi_kernel_env *env, trm_error *err) {
    (void)err;
    const pool_state *s = k->state;
    const char *x = trmi_kernel_input(k, env, 0);
    char *y = trmi_kernel_output(k, env, 0);
    int64_t image = s->height * s->row.width * s->row.channels * s->bytes;
    int64_t out_row = s->row.out_width * s->row.channels * s->bytes;
#pragma omp parallel for schedule(static)
    for (int64_t job = 0; job < s->images * s->out_height; job++) {
        trmi_pool_row row = s->row;
        window_rows(s, job % s->out_height, &row);
        const char *in = x + job / s->out_height * image;
        if (s->max) {
            s->kernels->max_pool(&row, in, y + job * out_row);
        } else {
            s->kernels->avg_pool(&row, in, y + job * out_row);
        }
    }
    return TRM_OK;
}

/* ---- gradient -------------------------------------------------------------------------------- */

/* One image and channels [c, c + n). */
typedef struct stripe {
    const pool_state *s;
    const char *dy, *x, *y; /* of the image */
    char *dx;
    float *ring; /* kernel_rows rows of [width, n] */
    int64_t c, n;
    int64_t begun, written; /* rows of dx */
} stripe;

/* Returns the place of row h of dx in the ring. */
static float *ring_row(const stripe *t, int64_t h) {
    return t->ring + h % t->s->row.kernel_rows * t->s->row.width * t->n;
}

/* Prefetches for writing. The address may lie after the tensor; a prefetch then has no effect. */
static void prefetch_for_write(const char *row, int64_t bytes) {
    for (int64_t b = 0; b < bytes; b += 64) {
        __builtin_prefetch(row + b, 1, 3);
    }
}

/* Writes the rows below `end`, which no later window needs, from the ring to dx. Rows that no
 * window has touched are zero. */
static void write_rows(stripe *t, int64_t end) {
    const pool_state *s = t->s;
    for (; t->written < end; t->written++) {
        bool touched = t->written < t->begun;
        const float *from = touched ? ring_row(t, t->written) : NULL;
        /* A stripe of all channels is contiguous: copy the row at once. Otherwise pixel by
         * pixel. */
        if (touched && t->n == s->row.channels) {
            int64_t count = s->row.width * t->n;
            s->kernels->unary[TRMI_UNARY_COPY](from, t->dx + t->written * count * s->bytes, count,
                                               false, s->row.half, 0);
            prefetch_for_write(t->dx + (t->written + SOON) * count * s->bytes, count * s->bytes);
            continue;
        }
        for (int64_t w = 0; w < s->row.width; w++) {
            char *to =
                t->dx + ((t->written * s->row.width + w) * s->row.channels + t->c) * s->bytes;
            if (touched) {
                s->kernels->unary[TRMI_UNARY_COPY](from + w * t->n, to, t->n, false, s->row.half,
                                                   0);
            } else {
                memset(to, 0, (size_t)(t->n * s->bytes));
            }
        }
    }
    t->begun = trmi_max_i64(t->begun, t->written);
}

/* Adds the gradients of one stripe row by row. Rows of dx that later windows still reach are
 * kept in a ring of float32 sums, and written when no window reaches them any more. */
static void run_stripe(stripe *t) {
    const pool_state *s = t->s;
    int64_t out_row = s->row.out_width * s->row.channels * s->bytes;
    for (int64_t at = 0; at < s->out_height; at++) {
        trmi_pool_row row = s->row;
        window_rows(s, at, &row);
        /* Rows above this window are complete; those that it reaches first begin at zero. */
        write_rows(t, row.first);
        for (; t->begun < row.last; t->begun++) {
            memset(ring_row(t, t->begun), 0, (size_t)(s->row.width * t->n) * sizeof(float));
        }
        /* the rows of dx that this row of windows reaches */
        float *rows[KERNEL_ROWS_MAX];
        for (int64_t h = row.first; h < row.last; h++) {
            rows[h - row.first] = ring_row(t, h);
        }
        if (s->max) {
            s->kernels->max_pool_grad(&row, t->dy + at * out_row, t->x, t->y + at * out_row, rows,
                                      t->c, t->n);
        } else {
            s->kernels->avg_pool_grad(&row, t->dy + at * out_row, rows, t->c, t->n);
        }
    }
    write_rows(t, t->s->height);
}

/* Returns the channels of a stripe: all if they are few, so that rows are contiguous; fewer if
 * there are not enough images for all threads. */
static int64_t stripe_channels(const pool_state *s) {
    return trmi_min_i64(s->row.channels, s->images < FEW_IMAGES ? CHANNELS_OF_FEW : CHANNELS);
}

/* Returns the floats of a thread's ring. */
static int64_t ring_floats(const pool_state *s) {
    return trmi_round_up(s->row.kernel_rows * s->row.width * stripe_channels(s), 16);
}

/* Computes the gradient of a pooling. A job is a stripe of channels of one image: windows that
 * overlap add to the same pixels, and one thread adds them all, in the order of the windows. */
static trm_status run_pool_grad(const trmi_kernel *k, const trmi_kernel_env *env, trm_error *err) {
    (void)err;
    const pool_state *s = k->state;
    const char *dy = trmi_kernel_input(k, env, 0), *x = trmi_kernel_input(k, env, 1);
    const char *y = trmi_kernel_input(k, env, 2);
    char *dx = trmi_kernel_output(k, env, 0);
    int64_t image = s->height * s->row.width * s->row.channels * s->bytes;
    int64_t out_image = s->out_height * s->row.out_width * s->row.channels * s->bytes;
    int64_t width = stripe_channels(s), stripes = (s->row.channels + width - 1) / width;
#pragma omp parallel for schedule(static) num_threads(s->threads)
    for (int64_t job = 0; job < s->images * stripes; job++) {
        int64_t i = job / stripes, c = job % stripes * width;
        int thread = 0;
#ifdef _OPENMP
        thread = omp_get_thread_num();
#endif
        stripe t = {.s = s,
                    .dy = dy + i * out_image,
                    .dx = dx + i * image,
                    .c = c,
                    .n = trmi_min_i64(width, s->row.channels - c),
                    .ring = (float *)(void *)trmi_kernel_scratch(k, env) + thread * ring_floats(s)};
        if (s->max) {
            t.x = x + i * image;
            t.y = y + i * out_image;
        }
        run_stripe(&t);
    }
    return TRM_OK;
}

/* ---- bind ------------------------------------------------------------------------------------ */

/* Returns whether all inputs have the type of x, and the loops have that type. */
static bool same_dtypes(const trmi_kernel *kernel, const trmi_buffer *x) {
    bool same = trmi_dtype_is_fast(x->dtype);
    for (int32_t i = 0; i < kernel->step->inputs_count; i++) {
        same = same && trmi_kernel_input_buffer(kernel, i)->dtype == x->dtype;
    }
    return same;
}

/* Makes the state with what all pooling operators need; NULL: no memory. */
static pool_state *new_state(trmi_backend *backend, trmi_kernel *kernel, trm_error *err) {
    pool_state *s = trmi_memory_state(kernel, sizeof *s, err);
    if (s != NULL) {
        s->kernels = trmi_memory_kernels_best();
        s->threads = trmi_onednn_of(backend)->threads;
        trmi_op_kind kind = kernel->step->op_kind;
        s->max = kind == TRMI_OP_MAX_POOL || kind == TRMI_OP_MAX_POOL_GRAD;
    }
    return s;
}

/* Bind forward and gradient. The gradient's ring has a limited number of rows. */
trm_status trmi_onednn_bind_pool(trmi_backend *backend, trmi_kernel *kernel, trm_error *err) {
    const trmi_buffer *x = trmi_kernel_input_buffer(kernel, 0);
    const trmi_buffer *y = trmi_kernel_output_buffer(kernel, 0);
    if (!same_dtypes(kernel, x) || y->dtype != x->dtype) {
        return trmi_memory_unsupported(kernel, err);
    }
    pool_state *s = new_state(backend, kernel, err);
    if (s == NULL) {
        return TRM_NOMEM;
    }
    make_state(s, x, y, kernel->step->attrs);
    kernel->run = run_pool;
    return TRM_OK;
}

int64_t trmi_onednn_pool_grad_scratch(trmi_onednn *state, const trm_program *program,
                                      const trmi_step *step) {
    pool_state s = {0};
    make_state(&s, &program->buffers[step->outputs[0]], &program->buffers[step->inputs[0]],
               step->attrs);
    return ring_floats(&s) * state->threads * (int64_t)sizeof(float);
}

/* Windows with very many rows are left to the reference kernel, because the ring has a fixed table
 * of rows. */
bool trmi_onednn_pool_supports(trmi_onednn *state, const trm_graph *graph, const trmi_op *op,
                               trmi_layout layout) {
    return layout == TRMI_PLAIN || (op->attrs.pool.kernel[0] <= KERNEL_ROWS_MAX &&
                                    trmi_onednn_float_supports(state, graph, op, layout));
}

trm_status trmi_onednn_bind_pool_grad(trmi_backend *backend, trmi_kernel *kernel, trm_error *err) {
    const trmi_buffer *dy = trmi_kernel_input_buffer(kernel, 0);
    const trmi_buffer *dx = trmi_kernel_output_buffer(kernel, 0);
    if (!same_dtypes(kernel, dx) || kernel->step->attrs->pool.kernel[0] > KERNEL_ROWS_MAX) {
        return trmi_memory_unsupported(kernel, err);
    }
    pool_state *s = new_state(backend, kernel, err);
    if (s == NULL) {
        return TRM_NOMEM;
    }
    make_state(s, dx, dy, kernel->step->attrs);
    kernel->run = run_pool_grad;
    return TRM_OK;
}
