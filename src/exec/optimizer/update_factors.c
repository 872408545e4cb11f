/* SPDX-License-Identifier: Apache-2.0 */
/* Gradients in factors. The gradient of a matrix W in y = x W^T over n samples is dy^T x: the
 * product of two small matrices ("factors": n rows each). With few samples, memory traffic for the
 * whole gradient costs more than multiplying inside the update:
 *
 *      dense       write g   read g (norm)   read g, w, v   write w, v       and each write reads first
 *      in factors                            read    w, v   write w, v       n multiply-adds an element
 */
#include "exec/optimizer/update_state.h"

#include "base/checked.h"
#include "base/memory.h"
#include "exec/convert.h"
#include "plan/lower/program.h"

#include <math.h>
#include <string.h>

/* Elements of a product that a thread makes at a time; of a factor's row that stay in the L1
 * cache. */
enum { PIECE = 1 << 16, STRETCH = 512 };

/* Returns the rows of the segment's matrix; its columns are given. */
static int64_t rows_of(const trmi_update_segment *s) { return s->count / s->columns; }

/* Returns the bytes of both factors in float32. */
static size_t copy_bytes(const trmi_update_segment *s) {
    return (size_t)(s->factors * (rows_of(s) + s->columns)) * sizeof(float);
}

/* Maps memory for float32 copies of both factors. If factors are float32 already, the memory is not
 * touched and so never becomes resident. */
trm_status trmi_update_product_reserve(trmi_update *u, int32_t segment, trm_error *err) {
    const trmi_update_segment *s = &u->segments[segment];
    u->pairs[segment].copy = trmi_map(copy_bytes(s));
    return u->pairs[segment].copy != NULL ? TRM_OK
                                          : TRMI_NO_MEMORY(err, "for the factors of a gradient");
}

void trmi_update_product_free(trmi_update *u, int32_t segment) {
    if (u->pairs[segment].copy != NULL) {
        trmi_unmap(u->pairs[segment].copy, copy_bytes(&u->segments[segment]));
    }
}

/* Contract in update.h. bfloat16 is converted into a copy, because the loops read float32. */
void trmi_update_factors(trmi_update *u, int32_t segment, const void *left, const void *right,
                         trm_dtype dtype) {
    const trmi_update_segment *s = &u->segments[segment];
    trmi_update_pair *p = &u->pairs[segment];
    const bool converts = dtype != TRM_FLOAT32;
    p->given_left = left;
    p->given_right = right;
    p->dtype = dtype;
    p->left = converts ? p->copy : left;
    p->right = converts ? p->copy + s->factors * rows_of(s) : right;
}

void trmi_update_load_factors(const trmi_update *u, int32_t segment) {
    const trmi_update_segment *s = &u->segments[segment];
    const trmi_update_pair *p = &u->pairs[segment];
    if (p->dtype != TRM_FLOAT32) {
        const int64_t count = s->factors * rows_of(s);
        trmi_convert_to_float(p->given_left, p->dtype, p->copy, count);
        trmi_convert_to_float(p->given_right, p->dtype, p->copy + count, s->factors * s->columns);
    }
}

/* Returns the inner product of two arrays; computed again in double if float32 overflows. */
static double inner_product(const trmi_update *u, const float *x, const float *y, int64_t count) {
    double sum = (double)u->kernels->inner(x, y, count);
    if (isfinite(sum)) {
        return sum;
    }
    sum = 0;
    for (int64_t i = 0; i < count; i++) {
        sum += (double)x[i] * (double)y[i];
    }
    return sum;
}

/* Computes sums[a][b] = inner product of rows a and b of a factor, for b <= a, in stretches that
 * stay in the L1 cache. `rows` is [factors][length]. */
static void inner_products(const trmi_update *u, const float *rows, int64_t factors, int64_t length,
                           double sums[TRMI_FACTORS_MOST][TRMI_FACTORS_MOST]) {
    for (int64_t a = 0; a < factors; a++) {
        memset(sums[a], 0, (size_t)(a + 1) * sizeof sums[a][0]);
    }
    for (int64_t at = 0; at < length; at += STRETCH) {
        for (int64_t a = 0; a < factors; a++) {
            for (int64_t b = 0; b <= a; b++) {
                sums[a][b] += inner_product(u, rows + a * length + at, rows + b * length + at,
                                            trmi_min_i64(STRETCH, length - at));
            }
        }
    }
}

/* Contract in update_state.h. |L^T R|^2 = sum over a, b of (L L^T)[a][b] * (R R^T)[a][b]: n^2 inner
 * products take the place of the product itself. */
double trmi_update_product_squares(const trmi_update *u, int32_t segment) {
    const trmi_update_segment *s = &u->segments[segment];
    const trmi_update_pair *p = &u->pairs[segment];
    double left[TRMI_FACTORS_MOST][TRMI_FACTORS_MOST], right[TRMI_FACTORS_MOST][TRMI_FACTORS_MOST],
        sum = 0;
    inner_products(u, p->left, s->factors, rows_of(s), left);
    inner_products(u, p->right, s->factors, s->columns, right);
    for (int64_t a = 0; a < s->factors; a++) {
        for (int64_t b = 0; b <= a; b++) {
            sum += (a == b ? 1 : 2) * left[a][b] * right[a][b];
        }
    }
    /* an element of the product may then be infinite in float32 */
    bool overflows = sum > (double)__FLT_MAX__ * (double)__FLT_MAX__;
    return overflows ? INFINITY : sum < 0 ? 0 : sum;
}

/* Returns the first stretch of elements [begin, begin + count) of the product (row-major) that
 * kernels can make at once: several whole rows, or a part of one row. */
static trmi_product first_product_part(const trmi_update *u, int32_t segment, int64_t begin,
                                       int64_t count) {
    const trmi_update_segment *s = &u->segments[segment];
    const trmi_update_pair *p = &u->pairs[segment];
    int64_t row = begin / s->columns, column = begin % s->columns;
    bool whole = column == 0 && count >= s->columns;
    return (trmi_product){.left = p->left + row,
                          .right = p->right + column,
                          .left_step = rows_of(s),
                          .right_step = s->columns,
                          .factors = s->factors,
                          .rows = whole ? count / s->columns : 1,
                          .columns = whole ? s->columns : trmi_min_i64(s->columns - column, count),
                          .step = s->columns};
}

/* Contract in update_state.h. Part by part: an incomplete first row, whole rows, an incomplete last
 * one. */
void trmi_update_product_rule(const trmi_update *u, int32_t segment, const trmi_rule *rule,
                              float *parameters, int64_t offset, int64_t count) {
    int64_t first = u->segments[segment].offset, end = offset + count;
    while (offset < end) {
        trmi_product p = first_product_part(u, segment, offset - first, end - offset);
        u->kernels->product[u->options.kind](rule, &p, parameters + offset,
                                             u->slots[0] == NULL ? NULL : u->slots[0] + offset,
                                             u->slots[1] == NULL ? NULL : u->slots[1] + offset);
        offset += p.rows * p.columns;
    }
}

/* Contract in update.h. By the same parts and loops as in the update, so that the bits are the
 * same. */
void trmi_update_product(const trmi_update *u, int32_t segment, float *out) {
    int64_t count = u->segments[segment].count;
    trmi_update_load_factors(u, segment);
#pragma omp parallel for schedule(static)
    for (int64_t at = 0; at < count; at += PIECE) {
        for (int64_t begin = at, end = trmi_min_i64(at + PIECE, count); begin < end;) {
            trmi_product p = first_product_part(u, segment, begin, end - begin);
            u->kernels->multiply(&p, out + begin);
            begin += p.rows * p.columns;
        }
    }
}

void trmi_update_multiply(trmi_update *u, float *gradients) {
    for (int32_t i = 0; i < u->segments_count; i++) {
        if (u->segments[i].factors > 0) {
            trmi_update_product(u, i, gradients + u->segments[i].offset);
        }
    }
    u->multiplied = true;
}
