/* SPDX-License-Identifier: Apache-2.0 */
/* Operators of recommendation models: inner products of all pairs of rows (PAIR_DOTS) and pooling
 * of bags of embedding rows (BAG_POOL), with their gradients.
 *
 * Work is shared by samples, or by bags, so a sum is made by one thread and its bits do not depend
 * on their number. Offsets of bags come from data: they are checked in each run, before rows are
 * read. With a table that ranks have cut by keys, a rank pools the rows that it has, and the sums
 * of all ranks are added later; the factor of a mean is therefore computed from all weights of the
 * bag. */
#include "exec/cpu/ops/ops.h"
#include "exec/cpu/ops/memory_kernels.h"

#include "base/checked.h"
#include "base/element.h"
#include "base/error.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

/* Returns whether output 0 is there and it and all inputs are float32. */
static bool all_float(const trmi_kernel *k, int inputs) {
    bool real = trmi_kernel_output_buffer(k, 0) != NULL &&
                trmi_kernel_output_buffer(k, 0)->dtype == TRM_FLOAT32;
    for (int i = 0; i < inputs; i++) {
        real = real && trmi_kernel_input_buffer(k, i)->dtype == TRM_FLOAT32;
    }
    return real;
}

/* ---- pairs ----------------------------------------------------------------------------------- */

/* Computes the inner products of all pairs of rows of each sample: x [n, rows, width] to y [n,
 * pairs]. */
static trm_status run_pairs(const trmi_kernel *k, const trmi_kernel_env *env, trm_error *err) {
    (void)err;
    const trm_shape *shape = &trmi_kernel_input_buffer(k, 0)->shape;
    int64_t rows = shape->dim[1], width = shape->dim[2], pairs = rows * (rows - 1) / 2;
    const float *x = trmi_kernel_input(k, env, 0);
    float *y = trmi_kernel_output(k, env, 0);
    const trmi_memory_kernels *kernels = trmi_memory_kernels_best();
#pragma omp parallel for schedule(static)
    for (int64_t n = 0; n < shape->dim[0]; n++) {
        kernels->pair_dots(x + n * rows * width, y + n * pairs, rows, width);
    }
    return TRM_OK;
}

/* Computes dx_i = sum over j of dy(i, j) x_j, sample by sample. */
static trm_status run_pairs_grad(const trmi_kernel *k, const trmi_kernel_env *env, trm_error *err) {
    (void)err;
    const trm_shape *shape = &trmi_kernel_input_buffer(k, 1)->shape;
    int64_t rows = shape->dim[1], width = shape->dim[2], pairs = rows * (rows - 1) / 2;
    const float *dy = trmi_kernel_input(k, env, 0), *x = trmi_kernel_input(k, env, 1);
    float *dx = trmi_kernel_output(k, env, 0);
    const trmi_memory_kernels *kernels = trmi_memory_kernels_best();
#pragma omp parallel for schedule(static)
    for (int64_t n = 0; n < shape->dim[0]; n++) {
        kernels->pair_dots_grad(dy + n * pairs, x + n * rows * width, dx + n * rows * width, rows,
                                width);
    }
    return TRM_OK;
}

trm_status trmi_onednn_bind_pairs(trmi_backend *backend, trmi_kernel *kernel, trm_error *err) {
    (void)backend;
    bool backward = kernel->step->op_kind == TRMI_OP_PAIR_DOTS_GRAD;
    if (!all_float(kernel, backward ? 2 : 1) ||
        trmi_kernel_input_buffer(kernel, backward ? 1 : 0)->shape.dim[1] > TRMI_PAIRS_ROWS_MAX) {
        return trmi_memory_unsupported(kernel, err);
    }
    kernel->run = backward ? run_pairs_grad : run_pairs;
    return TRM_OK;
}

/* ---- bags ------------------------------------------------------------------------------------ */

/* This rank's part of the bags: bags [bag, bag + bags) of all; of the `global` rows it holds
 * [begin, end). */
typedef struct bag_view {
    const void *offsets;
    bool wide;
    const float *weights; /* NULL = 1 */
    int64_t bag, bags, begin, end, global, width;
    trm_bag_pooling pooling;
} bag_view;

/* Returns offset i of a bag's view, in either integer type. */
static int64_t offset_at(const bag_view *v, int64_t i) {
    return trmi_element_id(v->offsets, v->wide, v->bag + i);
}

/* Checks that offsets ascend within the rows.   errors  INVALID: a bag, with its range */
static trm_status check_offsets(const trmi_kernel *k, const bag_view *v, trm_error *err) {
    for (int64_t b = 0; b < v->bags; b++) {
        int64_t begin = offset_at(v, b), end = offset_at(v, b + 1);
        if (begin < 0 || end < begin || end > v->global) {
            return TRMI_FAIL(err, TRM_INVALID,
                             "%s: bag %" PRId64 " from %" PRId64 " to %" PRId64 " of %" PRId64
                             " rows; offsets must ascend",
                             k->step->name, v->bag + b, begin, end, v->global);
        }
    }
    return TRM_OK;
}

/* Collects what both bag kernels read. With a cut table this rank has the keys [begin, end) of
 * all. */
static bag_view view_of(const trmi_kernel *k, const trmi_kernel_env *env, const trm_shape *rows) {
    const trmi_buffer *offsets = trmi_kernel_input_buffer(k, 1);
    const trmi_attrs *attrs = k->step->attrs;
    const trmi_op_part *part = trmi_part_of(attrs);
    return (bag_view){
        .offsets = trmi_kernel_input(k, env, 1),
        .wide = offsets->dtype == TRM_INT64,
        .weights = trmi_kernel_input_buffer(k, 2) != NULL ? trmi_kernel_input(k, env, 2) : NULL,
        .bag = part->bag,
        .bags = attrs->bag.some ? attrs->bag.bags : offsets->shape.dim[0] - 1,
        .begin = part->begin,
        .end = part->begin + rows->dim[0],
        .global = part->extent > 0 ? part->extent : rows->dim[0],
        .width = rows->dim[1],
        .pooling = attrs->bag.pooling};
}

/* Returns the factor of a bag: 1, 1 / sum of weights, or 1 / root of the sum of squares; 0 for a
 * bag without weight. */
static float factor_of(const bag_view *v, int64_t begin, int64_t end) {
    double sum = 0, squares = 0;
    for (int64_t i = begin; i < end; i++) {
        double w = v->weights == NULL ? 1 : (double)v->weights[i];
        sum += w;
        squares += w * w;
    }
    double over = v->pooling == TRM_BAG_MEAN     ? sum
                  : v->pooling == TRM_BAG_SQRT_N ? sqrt(squares)
                                                 : 1;
    return over != 0 ? (float)(1 / over) : 0;
}

/* Adds the weighted rows of each bag, as far as this rank has them, and scales the sum. */
static trm_status run_bags(const trmi_kernel *k, const trmi_kernel_env *env, trm_error *err) {
    bag_view v = view_of(k, env, &trmi_kernel_input_buffer(k, 0)->shape);
    const float *rows = trmi_kernel_input(k, env, 0);
    float *y = trmi_kernel_output(k, env, 0);
    const trmi_memory_kernels *kernels = trmi_memory_kernels_best();
    TRMI_TRY(check_offsets(k, &v, err));
#pragma omp parallel for schedule(static)
    for (int64_t b = 0; b < v.bags; b++) {
        int64_t begin = offset_at(&v, b), end = offset_at(&v, b + 1);
        float *to = y + b * v.width, factor = factor_of(&v, begin, end);
        memset(to, 0, (size_t)v.width * sizeof *to);
        for (int64_t i = trmi_max_i64(begin, v.begin); i < trmi_min_i64(end, v.end); i++) {
            kernels->add_scaled(to, rows + (i - v.begin) * v.width, v.width,
                                v.weights == NULL ? 1 : v.weights[i]);
        }
        if (v.pooling != TRM_BAG_SUM) {
            kernels->unary[TRMI_UNARY_SCALE](to, to, v.width, false, false, factor);
        }
    }
    return TRM_OK;
}

/* Writes the gradient of each row of a bag: the bag's gradient times weight and factor. Rows of
 * no bag get zeros. */
static trm_status run_bags_grad(const trmi_kernel *k, const trmi_kernel_env *env, trm_error *err) {
    bag_view v = view_of(k, env, &trmi_kernel_output_buffer(k, 0)->shape);
    const float *dy = trmi_kernel_input(k, env, 0);
    float *rows = trmi_kernel_output(k, env, 0);
    const trmi_memory_kernels *kernels = trmi_memory_kernels_best();
    TRMI_TRY(check_offsets(k, &v, err));
    /* rows of bags are contiguous */
    int64_t first = trmi_min_i64(trmi_max_i64(offset_at(&v, 0), v.begin), v.end);
    int64_t last = trmi_max_i64(trmi_min_i64(offset_at(&v, v.bags), v.end), first);
    memset(rows, 0, (size_t)((first - v.begin) * v.width) * sizeof *rows);
    memset(rows + (last - v.begin) * v.width, 0, (size_t)((v.end - last) * v.width) * sizeof *rows);
#pragma omp parallel for schedule(static)
    for (int64_t b = 0; b < v.bags; b++) {
        int64_t begin = offset_at(&v, b), end = offset_at(&v, b + 1);
        float factor = factor_of(&v, begin, end);
        for (int64_t i = trmi_max_i64(begin, v.begin); i < trmi_min_i64(end, v.end); i++) {
            kernels->unary[TRMI_UNARY_SCALE](dy + b * v.width, rows + (i - v.begin) * v.width,
                                             v.width, false, false,
                                             v.weights == NULL ? factor : factor * v.weights[i]);
        }
    }
    return TRM_OK;
}

trm_status trmi_onednn_bind_bags(trmi_backend *backend, trmi_kernel *kernel, trm_error *err) {
    (void)backend;
    if (!all_float(kernel, 1) || (trmi_kernel_input_buffer(kernel, 2) != NULL &&
                                  trmi_kernel_input_buffer(kernel, 2)->dtype != TRM_FLOAT32)) {
        return trmi_memory_unsupported(kernel, err);
    }
    kernel->run = kernel->step->op_kind == TRMI_OP_BAG_POOL_GRAD ? run_bags_grad : run_bags;
    return TRM_OK;
}
