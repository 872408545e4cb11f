/* SPDX-License-Identifier: Apache-2.0 */
/* Reference kernels of PAIR_DOTS and BAG_POOL and their gradients: the operators of click models.
 *
 * They define what the operators compute: sums in double precision, in the order of the rows. In a
 * partitioned program a rank has some rows or some bags only; offsets are always those of the whole
 * tensor (trmi_op_part: begin, bag, extent), and what a rank lacks counts as zero. */
#include "exec/ref/ref.h"

#include "base/checked.h"
#include "base/error.h"

#include <inttypes.h>
#include <math.h>

/* ---- bags ------------------------------------------------------------------------------------ */

/* Finds the rows [*begin, *end) of bag number `bag` of this rank's part, as numbers in the whole
 * tensor.   errors  INVALID: offsets that descend or exceed the rows */
static trm_status bag_range(const trmi_ref_args *args, int64_t bag, int64_t rows, int64_t *begin,
                            int64_t *end, trm_error *err) {
    const trm_tensor *offsets = &args->inputs[1];
    const trmi_op_part *part = trmi_part_of(args->attrs);
    rows = part->extent > 0 ? part->extent : rows;
    bag += part->bag;
    *begin = trmi_ref_get_int(offsets, bag);
    *end = trmi_ref_get_int(offsets, bag + 1);
    if (*begin < 0 || *end < *begin || *end > rows) {
        return TRMI_FAIL(err, TRM_INVALID,
                         "bag_pool: bag %" PRId64 " from %" PRId64 " to %" PRId64 " of %" PRId64
                         " rows; offsets must ascend",
                         bag, *begin, *end, rows);
    }
    return TRM_OK;
}

/* Returns the weight of a row; without weights 1. */
static double weight_of(const trm_tensor *weights, int64_t i) {
    return weights->data == NULL ? 1 : trmi_ref_get(weights, i);
}

/* Returns by what the sum of a bag is multiplied: 1, 1 / sum of weights, or 1 / root of the sum of
 * squares; 0 for a bag without weight. */
static double bag_factor(trm_bag_pooling pooling, const trm_tensor *weights, int64_t begin,
                         int64_t end) {
    double sum = 0, squares = 0;
    for (int64_t i = begin; i < end; i++) {
        double w = weight_of(weights, i);
        sum += w;
        squares += w * w;
    }
    double over = pooling == TRM_BAG_MEAN ? sum : pooling == TRM_BAG_SQRT_N ? sqrt(squares) : 1;
    return over != 0 ? 1 / over : 0;
}

/* Returns the number, in the whole tensor, of the first row that this rank has. */
static int64_t first_row(const trmi_ref_args *args) { return trmi_part_of(args->attrs)->begin; }

/* Pools the rows of each bag: y = factor * sum of weight * row, over the rows that this rank has.
 * The factor makes a sum, a mean, or a sum over the root of the squared weights. */
trm_status trmi_ref_bag_pool(const trmi_ref_args *args, trm_error *err) {
    const trm_tensor *rows = &args->inputs[0], *weights = &args->inputs[2];
    int64_t width = rows->shape.dim[1], first = first_row(args), last = first + rows->shape.dim[0],
            begin, end;
    for (int64_t bag = 0; bag < args->outputs[0].shape.dim[0]; bag++) {
        TRMI_TRY(bag_range(args, bag, rows->shape.dim[0], &begin, &end, err));
        double factor = bag_factor(args->attrs->bag.pooling, weights, begin, end);
        for (int64_t j = 0; j < width; j++) {
            double sum = 0;
            for (int64_t i = trmi_max_i64(begin, first); i < trmi_min_i64(end, last); i++) {
                sum += weight_of(weights, i) * trmi_ref_get(rows, (i - first) * width + j);
            }
            trmi_ref_set(&args->outputs[0], bag * width + j, sum * factor);
        }
    }
    return TRM_OK;
}

/* Computes the gradient of bag_pool with respect to the rows: dx = weight * factor * dy of the
 * row's bag. Rows of no bag get 0. */
trm_status trmi_ref_bag_pool_grad(const trmi_ref_args *args, trm_error *err) {
    const trm_tensor *dy = &args->inputs[0], *weights = &args->inputs[2];
    const trm_tensor *dx = &args->outputs[0];
    int64_t width = dy->shape.dim[1], first = first_row(args), last = first + dx->shape.dim[0],
            begin, end;
    for (int64_t i = 0; i < trm_shape_count(&dx->shape); i++) {
        trmi_ref_set(dx, i, 0);
    }
    for (int64_t bag = 0; bag < dy->shape.dim[0]; bag++) {
        TRMI_TRY(bag_range(args, bag, dx->shape.dim[0], &begin, &end, err));
        double factor = bag_factor(args->attrs->bag.pooling, weights, begin, end);
        for (int64_t i = trmi_max_i64(begin, first); i < trmi_min_i64(end, last); i++) {
            for (int64_t j = 0; j < width; j++) {
                trmi_ref_set(dx, (i - first) * width + j,
                             weight_of(weights, i) * factor * trmi_ref_get(dy, bag * width + j));
            }
        }
    }
    return TRM_OK;
}

/* ---- pairs ----------------------------------------------------------------------------------- */

/* Computes the inner products of all pairs i > j of the vectors of a sample, row by row of the
 * lower triangle (the interaction of DLRM, Naumov et al. 2019). */
trm_status trmi_ref_pair_dots(const trmi_ref_args *args, trm_error *err) {
    (void)err;
    const trm_tensor *x = &args->inputs[0];
    int64_t v = x->shape.dim[1], w = x->shape.dim[2], at = 0;
    for (int64_t n = 0; n < x->shape.dim[0]; n++) {
        for (int64_t i = 1; i < v; i++) {
            for (int64_t j = 0; j < i; j++) {
                double sum = 0;
                for (int64_t k = 0; k < w; k++) {
                    sum +=
                        trmi_ref_get(x, (n * v + i) * w + k) * trmi_ref_get(x, (n * v + j) * w + k);
                }
                trmi_ref_set(&args->outputs[0], at++, sum);
            }
        }
    }
    return TRM_OK;
}

/* Computes dx_i = sum over j != i of dy(pair of i and j) * x_j. */
trm_status trmi_ref_pair_dots_grad(const trmi_ref_args *args, trm_error *err) {
    (void)err;
    const trm_tensor *dy = &args->inputs[0], *x = &args->inputs[1];
    int64_t v = x->shape.dim[1], w = x->shape.dim[2], pairs = v * (v - 1) / 2;
    for (int64_t n = 0; n < x->shape.dim[0]; n++) {
        for (int64_t i = 0; i < v; i++) {
            for (int64_t k = 0; k < w; k++) {
                double sum = 0;
                for (int64_t j = 0; j < v; j++) {
                    int64_t high = i > j ? i : j, low = i > j ? j : i;
                    if (high != low) {
                        sum += trmi_ref_get(dy, n * pairs + high * (high - 1) / 2 + low) *
                               trmi_ref_get(x, (n * v + j) * w + k);
                    }
                }
                trmi_ref_set(&args->outputs[0], (n * v + i) * w + k, sum);
            }
        }
    }
    return TRM_OK;
}
