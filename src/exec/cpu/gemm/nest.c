/* SPDX-License-Identifier: Apache-2.0 */
/* Loop nests over tensors of any strides (nest.h): elementwise operators, broadcasts and reorders.
 * trmi_nest_make sorts dimensions by the first operand's strides and merges those that are
 * contiguous in all operands, so that the inner loop is as long as possible; trmi_nest_run
 * distributes pieces of it to the threads. */
#include "exec/cpu/gemm/nest.h"

#include <string.h>
#ifdef _OPENMP
#include <omp.h>
#endif

/* Contract in nest.h. Channels-last images are stored n, h, w, c; filters of channels-last
 * convolutions h, w, i, o. Strides are in the order of the shape. */
void trmi_layout_strides(const trm_shape *shape, trmi_layout layout, bool weights,
                         int64_t *stride) {
    if (shape->rank == 4 && layout == TRMI_CHANNELS_LAST) {
        const int64_t *d = shape->dim;
        int64_t images[] = {d[1] * d[2] * d[3], 1, d[3] * d[1], d[1]};
        int64_t filters[] = {1, d[0], d[3] * d[1] * d[0], d[1] * d[0]};
        memcpy(stride, weights ? filters : images, sizeof images);
        return;
    }
    int64_t step = 1;
    for (int32_t i = shape->rank - 1; i >= 0; i--) {
        stride[i] = step;
        step *= shape->dim[i];
    }
}

void trmi_broadcast_strides(const trmi_buffer *b, const trm_shape *wide, int64_t *stride) {
    int64_t own[TRM_MAX_RANK];
    trmi_buffer_strides(b, own);
    int32_t missing = wide->rank - b->shape.rank;
    for (int32_t i = 0; i < wide->rank; i++) {
        stride[i] = i < missing || b->shape.dim[i - missing] == 1 ? 0 : own[i - missing];
    }
}

/* Exchanges two dimensions in all operands. */
static void swap_dims(trmi_nest *n, int32_t a, int32_t b) {
    int64_t d = n->dim[a];
    n->dim[a] = n->dim[b];
    n->dim[b] = d;
    for (int32_t o = 0; o < n->operands; o++) {
        int64_t s = n->stride[o][a];
        n->stride[o][a] = n->stride[o][b];
        n->stride[o][b] = s;
    }
}

/* Returns whether dimensions i and i + 1 are one contiguous dimension in every operand. */
static bool can_merge(const trmi_nest *n, int32_t i) {
    for (int32_t o = 0; o < n->operands; o++) {
        if (n->stride[o][i] != n->stride[o][i + 1] * n->dim[i + 1]) {
            return false;
        }
    }
    return true;
}

/* Contract in nest.h. Fewer and longer dimensions make a faster loop: dimensions of 1 are left
 * out, the rest is sorted, and neighbours that are contiguous in all operands become one. */
void trmi_nest_make(trmi_nest *n, const trm_shape *shape, int operands,
                    int64_t (*stride)[TRM_MAX_RANK]) {
    *n = (trmi_nest){.operands = operands};
    for (int32_t i = 0; i < shape->rank; i++) {
        if (shape->dim[i] != 1) {
            n->dim[n->rank] = shape->dim[i];
            for (int32_t o = 0; o < operands; o++) {
                n->stride[o][n->rank] = stride[o][i];
            }
            n->rank++;
        }
    }
    /* Sort by the first operand's strides, so that the inner dimension is contiguous in it. */
    for (int32_t i = 1; i < n->rank; i++) {
        for (int32_t j = i; j > 0 && n->stride[0][j - 1] < n->stride[0][j]; j--) {
            swap_dims(n, j - 1, j);
        }
    }
    /* Merge contiguous neighbours. */
    int32_t kept = 0;
    for (int32_t i = 0; i < n->rank; i++) {
        n->dim[kept] = n->dim[i];
        for (int32_t o = 0; o < operands; o++) {
            n->stride[o][kept] = n->stride[o][i];
        }
        if (kept > 0 && can_merge(n, kept - 1)) {
            n->dim[kept - 1] *= n->dim[kept];
            for (int32_t o = 0; o < operands; o++) {
                n->stride[o][kept - 1] = n->stride[o][kept];
            }
        } else {
            kept++;
        }
    }
    n->rank = kept;
    if (n->rank == 0) { /* a scalar */
        n->rank = 1;
        n->dim[0] = 1;
        for (int32_t o = 0; o < operands; o++) {
            n->stride[o][0] = 1;
        }
    }
}

/* ---- running --------------------------------------------------------------------------------- */

/* Runs work items [begin, end). Item i is piece i % pieces of inner run i / pieces. */
static void run_items(const trmi_nest *n, int64_t pieces, int64_t piece, int64_t begin, int64_t end,
                      trmi_nest_body body, const void *context) {
    int32_t inner = n->rank - 1;
    int64_t at[TRM_MAX_RANK] = {0}, run = begin / pieces, p = begin % pieces;
    /* Count the indices of the first run, as digits. */
    for (int32_t d = inner - 1; d >= 0; d--) {
        at[d] = run % n->dim[d];
        run /= n->dim[d];
    }
    for (int64_t i = begin; i < end; i++) {
        int64_t offset[TRMI_NEST_OPERANDS];
        for (int32_t o = 0; o < n->operands; o++) {
            offset[o] = p * piece * n->stride[o][inner];
            for (int32_t d = 0; d < inner; d++) {
                offset[o] += at[d] * n->stride[o][d];
            }
        }
        int64_t left = n->dim[inner] - p * piece;
        body(context, offset, left < piece ? left : piece);
        /* Go to the next piece; after the last one the indices count on. */
        if (++p == pieces) {
            p = 0;
            for (int32_t d = inner - 1; d >= 0 && ++at[d] == n->dim[d]; d--) {
                at[d] = 0;
            }
        }
    }
}

/* Contract in nest.h. Each thread takes one contiguous range of items, the same in all operators of
 * the same shape. */
void trmi_nest_run(const trmi_nest *n, int64_t piece, trmi_nest_body body, const void *context) {
    int64_t pieces = (n->dim[n->rank - 1] + piece - 1) / piece, items = pieces;
    for (int32_t d = 0; d < n->rank - 1; d++) {
        items *= n->dim[d];
    }
    if (items == 0) {
        return;
    }
    if (items == 1) { /* a parallel region would cost more than the work */
        run_items(n, pieces, piece, 0, items, body, context);
        return;
    }
#ifdef _OPENMP
#pragma omp parallel
    {
        int64_t threads = omp_get_num_threads(), me = omp_get_thread_num();
        run_items(n, pieces, piece, items * me / threads, items * (me + 1) / threads, body,
                  context);
    }
#else
    run_items(n, pieces, piece, 0, items, body, context);
#endif
}
