/* Gradients in factors: that of a matrix W in y = x W^T over n samples is dy^T x. With few samples, making it, measuring
 * it and reading it again costs more than all else that is done to W:
 *
 *      dense       write g   read g (norm)   read g, w, v   write w, v       and each write reads first
 *      in factors                            read    w, v   write w, v       n multiply-adds an element
 */
#include "exec/update_state.h"

#include "base/error.h"
#include "base/half.h"
#include "base/memory.h"

#include <math.h>

enum { PIECE = 1 << 16 };

static int64_t rows_of(const trmi_update_segment *s) { return s->count / s->columns; }

trm_status trmi_update_product_reserve(trmi_update *u, int32_t segment, trm_error *err) {
    const trmi_update_segment *s = &u->segments[segment];
    u->pairs[segment].copy = trmi_alloc((size_t)(s->factors * (rows_of(s) + s->columns)) * sizeof(float));
    return u->pairs[segment].copy != NULL ? TRM_OK : TRMI_FAIL(err, TRM_NOMEM, "no memory for the factors of a gradient");
}

void trmi_update_factors(trmi_update *u, int32_t segment, const void *left, const void *right, trm_dtype dtype) {
    const trmi_update_segment *s = &u->segments[segment];
    trmi_update_pair *p = &u->pairs[segment];
    int64_t lefts = s->factors * rows_of(s), rights = s->factors * s->columns;
    p->left = left;
    p->right = right;
    if (left != NULL && dtype != TRM_FLOAT32) {
        for (int64_t i = 0; i < lefts; i++) {
            p->copy[i] = trmi_bf16_to_float(((const uint16_t *)left)[i]);
        }
        for (int64_t i = 0; i < rights; i++) {
            p->copy[lefts + i] = trmi_bf16_to_float(((const uint16_t *)right)[i]);
        }
        p->left = p->copy;
        p->right = p->copy + lefts;
    }
}

/* In double where float does not hold it. */
static double inner(const trmi_update *u, const float *x, const float *y, int64_t count) {
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

double trmi_update_product_squares(const trmi_update *u, int32_t segment) {
    const trmi_update_segment *s = &u->segments[segment];
    const trmi_update_pair *p = &u->pairs[segment];
    int64_t rows = rows_of(s);
    double sum = 0;
    for (int64_t a = 0; a < s->factors; a++) {
        for (int64_t b = 0; b <= a; b++) {
            double both = inner(u, p->left + a * rows, p->left + b * rows, rows) *
                          inner(u, p->right + a * s->columns, p->right + b * s->columns, s->columns);
            sum += a == b ? both : 2 * both;
        }
    }
    bool overflows = sum > (double)__FLT_MAX__ * (double)__FLT_MAX__; /* some element may be infinite */
    return overflows ? INFINITY : sum < 0 ? 0 : sum;
}

void trmi_update_product_part(const trmi_update *u, int32_t segment, int64_t begin, int64_t count, float *out) {
    const trmi_update_segment *s = &u->segments[segment];
    const trmi_update_pair *p = &u->pairs[segment];
    int64_t rows = rows_of(s);
    for (int64_t done = 0; done < count;) {
        int64_t row = (begin + done) / s->columns, column = (begin + done) % s->columns;
        int64_t run = s->columns - column < count - done ? s->columns - column : count - done;
        u->kernels->combine_rows(p->left + row, rows, p->right + column, s->columns, s->factors, run, out + done);
        done += run;
    }
}

void trmi_update_product(const trmi_update *u, int32_t segment, float *out) {
    int64_t count = u->segments[segment].count;
#pragma omp parallel for schedule(static)
    for (int64_t at = 0; at < count; at += PIECE) {
        trmi_update_product_part(u, segment, at, count - at < PIECE ? count - at : PIECE, out + at);
    }
}
