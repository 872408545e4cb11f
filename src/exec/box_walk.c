/* SPDX-License-Identifier: Apache-2.0 */
/* Copies boxes of tensors between a tensor and a packed buffer, or between two tensors
 * (box_walk.h). Exchanges of split programs and gathers of whole variables use it.
 *
 * A walk is the loops over the box: from the outermost to the innermost, each with a length and a
 * step on either side, in elements of the tensor's memory order. Loops of one turn are left out,
 * and neighbouring loops are joined where both sides are contiguous, so that most boxes are a few
 * calls of memcpy. A walk is made at creation; running it allocates nothing. */
#include "exec/box_walk.h"

#include "base/checked.h"
#include "comm/api/reduce.h"
#include "plan/partition/partition.h"

#include <string.h>

/* Writes the strides, in elements, of a tensor of `box` in a layout. */
void trmi_box_strides(const trmi_box *box, trmi_layout layout, bool weights,
                      int64_t stride[TRM_MAX_RANK]) {
    static const int32_t plain[] = {0, 1, 2, 3, 4, 5}, last[] = {0, 2, 3, 1},
                         last_weights[] = {2, 3, 1, 0};
    const int32_t *order =
        box->rank == 4 && layout == TRMI_CHANNELS_LAST ? (weights ? last_weights : last) : plain;
    int64_t step = 1;
    for (int32_t i = box->rank - 1; i >= 0; i--) {
        stride[order[i]] = step;
        step *= box->end[order[i]] - box->begin[order[i]];
    }
}

/* Adds a loop with its steps on both sides; loops of one turn are left out. */
static void add_loop(trmi_box_walk *w, int64_t length, int64_t a, int64_t b) {
    if (length == 1) {
        return;
    }
    w->length[w->rank] = length;
    w->a[w->rank] = a;
    w->b[w->rank++] = b;
}

/* Returns the loops that walk `box` in a tensor of `of` and in the packed box (or a tensor of
 * `with`), in the memory order of `of`.
 */
trmi_box_walk trmi_box_walk_of(const trmi_box *box, const trmi_box *of, const int64_t *stride,
                               const trmi_box *with, const int64_t *with_stride) {
    trmi_box_walk w = {.rank = 0};
    int32_t order[TRM_MAX_RANK];
    /* Sort the dimensions by their stride in `of`, the largest first (insertion sort), and find
     * where the box begins on both sides. */
    for (int32_t d = 0; d < box->rank; d++) {
        int32_t at = d;
        for (; at > 0 && stride[order[at - 1]] < stride[d]; at--) {
            order[at] = order[at - 1];
        }
        order[at] = d;
        w.a0 += (box->begin[d] - of->begin[d]) * stride[d];
        w.b0 += with != NULL ? (box->begin[d] - with->begin[d]) * with_stride[d] : 0;
    }
    /* The packed box has the same order of dimensions and no gaps. */
    int64_t packed[TRM_MAX_RANK], step = 1;
    for (int32_t i = box->rank - 1; i >= 0; i--) {
        packed[order[i]] = step;
        step *= box->end[order[i]] - box->begin[order[i]];
    }
    for (int32_t i = 0; i < box->rank; i++) {
        int32_t d = order[i];
        add_loop(&w, box->end[d] - box->begin[d], stride[d],
                 with != NULL ? with_stride[d] : packed[d]);
    }
    /* Join loops that run on in both. */
    for (int32_t i = w.rank - 2; i >= 0; i--) {
        if (w.a[i] == w.a[i + 1] * w.length[i + 1] && w.b[i] == w.b[i + 1] * w.length[i + 1]) {
            w.length[i] *= w.length[i + 1];
            w.a[i] = w.a[i + 1];
            w.b[i] = w.b[i + 1];
            memmove(&w.length[i + 1], &w.length[i + 2],
                    (size_t)(w.rank - i - 2) * sizeof w.length[0]);
            memmove(&w.a[i + 1], &w.a[i + 2], (size_t)(w.rank - i - 2) * sizeof w.a[0]);
            memmove(&w.b[i + 1], &w.b[i + 2], (size_t)(w.rank - i - 2) * sizeof w.b[0]);
            w.rank--;
        }
    }
    return w;
}

/* Computes to = to op from for `count` elements with strides. */
static void put_run(trmi_reduce_fn *reduce, char *to, int64_t to_step, const char *from,
                    int64_t from_step, int64_t count, size_t element) {
    int64_t calls = to_step == 1 && from_step == 1 ? 1 : count;
    for (int64_t i = 0; i < calls; i++) {
        char *t = to + (size_t)(i * to_step) * element;
        const void *sources[] = {t, from + (size_t)(i * from_step) * element};
        void *target = t;
        reduce(&target, 1, sources, 2, count / calls, 1);
    }
}

/* Copies the innermost run of elements. */
static void copy_run(char *to, int64_t to_step, const char *from, int64_t from_step, int64_t count,
                     size_t element) {
    if (to_step == 1 && from_step == 1) {
        memcpy(to, from, (size_t)count * element);
        return;
    }
    for (int64_t i = 0; i < count; i++) {
        memcpy(to + (size_t)(i * to_step) * element, from + (size_t)(i * from_step) * element,
               element);
    }
}

/* Copies the box from a to b (`pack`), or from b to a, where `reduce` combines it with the values
 * that are there. */
void trmi_move_box(const trmi_box_walk *w, char *a, char *b, trm_dtype dtype, bool pack,
                   trm_reduction reduce) {
    trmi_reduce_fn *put = reduce != TRM_REDUCTION_NONE ? trmi_reduce_find(dtype, reduce) : NULL;
    size_t element = trm_dtype_bytes(dtype);
    int32_t inner = w->rank - 1;
    int64_t outer = 1, run = inner < 0 ? 1 : w->length[inner];
    int64_t a_step = inner < 0 ? 1 : w->a[inner], b_step = inner < 0 ? 1 : w->b[inner];
    for (int32_t i = 0; i < inner; i++) {
        outer *= w->length[i];
    }
#pragma omp parallel for schedule(static) if (outer * run > 16384)
    for (int64_t o = 0; o < outer; o++) {
        /* Find the position of run `o`: its index in each outer loop. */
        int64_t rest = o, at = w->a0, bt = w->b0;
        for (int32_t i = inner - 1; i >= 0; i--) {
            at += rest % w->length[i] * w->a[i];
            bt += rest % w->length[i] * w->b[i];
            rest /= w->length[i];
        }
        char *x = a + (size_t)at * element, *y = b + (size_t)bt * element;
        if (put != NULL) {
            put_run(put, x, a_step, y, b_step, run, element);
        } else if (pack) {
            copy_run(y, b_step, x, a_step, run, element);
        } else {
            copy_run(x, a_step, y, b_step, run, element);
        }
    }
}

void trmi_copy_box(void *whole, const trm_shape *shape, const trmi_box *box, void *part,
                   size_t element, bool into) {
    trmi_box all = trmi_box_whole(shape);
    int64_t stride[TRM_MAX_RANK], own[TRM_MAX_RANK];
    trmi_box_strides(&all, TRMI_PLAIN, false, stride);
    trmi_box_strides(box, TRMI_PLAIN, false, own);
    if (trmi_box_count(box) == 0) {
        return;
    }
    trmi_box_walk w = trmi_box_walk_of(box, &all, stride, box, own);
    trm_dtype dtype = element == 8   ? TRM_INT64
                      : element == 4 ? TRM_INT32
                      : element == 2 ? TRM_BFLOAT16
                                     : TRM_UINT8;
    trmi_move_box(&w, whole, part, dtype, !into, TRM_REDUCTION_NONE);
}

/* Copies bytes begin to end - 1 of a tensor from `others`, or sets them to zero. */
static void fill_others(char *whole, const char *others, size_t begin, size_t end) {
    if (others != NULL) {
        memcpy(whole + begin, others + begin, end - begin);
    } else {
        memset(whole + begin, 0, end - begin);
    }
}

/* Contract in box_walk.h. A run is what the box has of a row in one piece. No run lies before its
 * place among the packed ones, so runs that are moved last first overwrite only what was moved. */
void trmi_complete_box(void *whole, const trm_shape *shape, const trmi_box *box, const void *others,
                       size_t element) {
    char *to = whole;
    int32_t last = shape->rank - 1;
    size_t inner = element;
    if (last < 0 || trm_shape_count(shape) == 0) {
        return;
    }
    /* dimensions that the box has whole belong to the elements of the one before them */
    while (last > 0 && box->end[last] - box->begin[last] == shape->dim[last]) {
        inner *= (size_t)shape->dim[last--];
    }
    const size_t row = (size_t)shape->dim[last] * inner, at = (size_t)box->begin[last] * inner,
                 run = (size_t)(box->end[last] - box->begin[last]) * inner;
    int64_t rows = 1, runs = run > 0;
    for (int32_t d = 0; d < last; d++) {
        rows *= shape->dim[d];
        runs *= box->end[d] - box->begin[d];
    }
    while (rows-- > 0) {
        bool inside = runs > 0;
        int64_t rest = rows;
        for (int32_t d = last - 1; d >= 0; d--) {
            inside = inside && rest % shape->dim[d] >= box->begin[d] &&
                     rest % shape->dim[d] < box->end[d];
            rest /= shape->dim[d];
        }
        const size_t first = (size_t)rows * row;
        if (inside) {
            memmove(to + first + at, to + (size_t)--runs * run, run);
            fill_others(to, others, first + at + run, first + row);
        }
        fill_others(to, others, first, inside ? first + at : first + row);
    }
}
