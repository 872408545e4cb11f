/* SPDX-License-Identifier: Apache-2.0 */
/* Products of very few rows (narrow.h).
 *
 *      w [n, k]   each thread takes rows of w, the outputs are inner products
 *      w [k, n]   k is cut into parts, which threads take; a part adds its rows of w, each times a number
 *                 of x, to sums of its own, which are added in their order at the end
 *
 *      scratch:  [ x in float32 | sums of the parts | y in float32 ]
 *
 * With bfloat16 weights, x of the first form and the sums of the second are split into numbers of
 * even and odd index (ops/narrow_body.h), because the weights are read so. */
#include "exec/cpu/gemm/narrow.h"

#include "exec/cpu/ops/memory_kernels.h"

#include "base/checked.h"

#include <string.h>

/* Parts of k at most, rows of w in a part at least, outputs of a task, columns of y that are added
 * at a time, floats of a cache line. */
enum { PARTS = 16, PART_ROWS = 16, STRIP = 32 /* outputs a task */, COLUMNS = 256, LINE = 16 };

/* Returns the parts of k: by the shape alone, so that their sums have the same bits for any number
 * of threads. */
static int64_t parts_of(const trmi_narrow *p) {
    return trmi_max_i64(1, trmi_min_i64(PARTS, p->k / PART_ROWS));
}

/* Where the three regions of the scratch begin, in floats; each begins at a cache line. */
typedef struct regions {
    int64_t x;    /* [m, k]: bfloat16 inputs as float32 */
    int64_t sums; /* [parts, m, n]: one sum for each part of k; none if w is transposed */
    int64_t y;    /* [m, n]: the results as float32, before they become bfloat16 */
    int64_t end;  /* size of the scratch */
} regions;

/* Divides the scratch as drawn above; each region begins at a cache line. */
static regions regions_of(const trmi_narrow *p) {
    regions r = {0};
    r.sums = r.x + trmi_round_up(p->m * p->k, LINE);
    r.y = r.sums + (p->transposed ? 0 : trmi_round_up(parts_of(p) * p->m * p->n, LINE));
    r.end = r.y + trmi_round_up(p->m * p->n, LINE);
    return r;
}

int64_t trmi_narrow_scratch(const trmi_narrow *p) {
    return regions_of(p).end * (int64_t)sizeof(float);
}

/* Writes outputs [begin, end) of each row from inner products. */
static void run_outputs(const trmi_narrow *p, const float *x, const char *w, float *y,
                        int64_t begin, int64_t end) {
    int64_t row_bytes = p->k * (p->half_w ? 2 : 4);
    for (int64_t i = 0; i < p->m; i++) {
        trmi_memory_kernels_best()->dot_rows(y + i * p->n + begin, x + i * p->k,
                                             w + begin * row_bytes, end - begin, p->k, p->half_w);
    }
}

/* Sums rows [begin, end) of w, [end - begin, n], times numbers of x. Several rows of x take few
 * rows of w at a time, which stay in the caches. */
static void run_part(const trmi_narrow *p, const float *x, const char *w, float *sums,
                     int64_t begin, int64_t end) {
    int64_t row_bytes = p->n * (p->half_w ? 2 : 4);
    memset(sums, 0, (size_t)(p->m * p->n) * sizeof *sums);
    const int64_t most = p->m == 1 ? end - begin : PART_ROWS;
    for (int64_t r = begin; r < end; r += most) {
        int64_t rows = trmi_min_i64(most, end - r);
        for (int64_t i = 0; i < p->m; i++) {
            trmi_memory_kernels_best()->add_rows(sums + i * p->n, x + i * p->k + r,
                                                 w + r * row_bytes, rows, p->n, p->half_w);
        }
    }
}

/* Adds the sums of the parts for `count` outputs from `at` on, whole lines of a row, in the order
 * of the parts. */
static void add_parts(const trmi_narrow *p, float *sums, float *y, int64_t at, int64_t count) {
    int64_t all = p->m * p->n;
    for (int64_t part = 1; part < parts_of(p); part++) {
        trmi_memory_kernels_best()->fold_rows(sums + at, sums + part * all + at, count, false,
                                              TRMI_REDUCE_SUM_OF);
    }
    if (p->half_w) {
        trmi_memory_kernels_best()->join_pairs(y + at, sums + at, count);
    } else {
        memcpy(y + at, sums + at, (size_t)count * sizeof *y);
    }
}

/* Returns x in float32, as the products read it. */
static const float *read_x(const trmi_narrow *p, const void *x, float *room) {
    const int64_t count = p->m * p->k;
    if (p->transposed && p->half_w) {
        const char *from = x;
        for (int64_t i = 0; i < p->m; i++) {
            trmi_memory_kernels_best()->split_pairs(
                room + i * p->k, from + i * p->k * (p->half_x ? 2 : 4), p->k, p->half_x);
        }
        return room;
    }
    if (p->half_x) {
        trmi_memory_kernels_best()->unary[TRMI_UNARY_COPY](x, room, count, true, false, 0);
        return room;
    }
    return x;
}

/* Adds the bias, and converts to the type of y. */
static void finish_rows(const trmi_narrow *p, const float *bias, float *sums, void *y) {
    for (int64_t i = 0; bias != NULL && i < p->m; i++) {
        trmi_memory_kernels_best()->fold_rows(sums + i * p->n, bias, p->n, false,
                                              TRMI_REDUCE_SUM_OF);
    }
    if (p->half_y) {
        trmi_memory_kernels_best()->unary[TRMI_UNARY_COPY](sums, y, p->m * p->n, false, true, 0);
    }
}

/* Contract in narrow.h. Few rows of x meet a large matrix w, so that the time is that of reading
 * w once. With w transposed, threads share out the outputs; else they share out the depth, and
 * the partial sums are added in a fixed order afterwards. */
void trmi_narrow_run(const trmi_narrow *p, const void *x, const void *w, const float *bias, void *y,
                     void *scratch) {
    /* float32 copies of x and y lie in the scratch where their types need them */
    const regions r = regions_of(p);
    float *room = scratch, *sums = room + r.sums, *out = p->half_y ? room + r.y : y;
    const float *in = read_x(p, x, room + r.x);
    int64_t strips = trmi_pieces(p->n, STRIP), parts = parts_of(p), all = p->m * p->n;
    int64_t pieces = trmi_pieces(p->n, COLUMNS); /* of a row of y */
#pragma omp parallel num_threads(p->threads)
    {
        if (p->transposed) {
#pragma omp for schedule(static)
            for (int64_t i = 0; i < strips; i++) {
                run_outputs(p, in, w, out, i * STRIP, trmi_min_i64(p->n, (i + 1) * STRIP));
            }
        } else {
#pragma omp for schedule(static)
            for (int64_t i = 0; i < parts; i++) {
                run_part(p, in, w, sums + i * all, trmi_cut_at(p->k, parts, i),
                         trmi_cut_at(p->k, parts, i + 1));
            }
#pragma omp for schedule(static)
            for (int64_t i = 0; i < p->m * pieces; i++) {
                int64_t column = i % pieces * COLUMNS;
                add_parts(p, sums, out, i / pieces * p->n + column,
                          trmi_min_i64(COLUMNS, p->n - column));
            }
        }
    }
    finish_rows(p, bias, out, y);
}
