/* SPDX-License-Identifier: Apache-2.0 */
/* Reference kernels of mixtures of experts: the k largest of a row and their gradient, and
 * products of each row with the weights of its expert.
 *
 * They define what the operators compute. The number of an expert is that of the whole layer; a
 * rank of a partitioned program has some of the experts, and rows of the others are zero there, so
 * that the sum over the ranks is the result. */
#include "exec/ref/ref.h"

#include "base/error.h"
#include "base/memory.h"

#include <inttypes.h>

/* Writes the k largest numbers of each row and their columns; of equal numbers the first column. */
trm_status trmi_ref_top_k(const trmi_ref_args *args, trm_error *err) {
    (void)err;
    const trm_tensor *x = &args->inputs[0];
    int64_t columns = x->shape.dim[x->shape.rank - 1], k = args->attrs->top_k.k;
    for (int64_t r = 0; r < trm_shape_count(&x->shape) / columns; r++) {
        for (int64_t i = 0; i < k; i++) {
            int64_t best = -1;
            for (int64_t c = 0; c < columns; c++) {
                /* The largest number that none of the earlier i places has. */
                bool taken = false;
                for (int64_t j = 0; j < i; j++) {
                    taken = taken || trmi_ref_get_int(&args->outputs[1], r * k + j) == c;
                }
                double value = trmi_ref_get(x, r * columns + c);
                if (!taken && (best < 0 || value > trmi_ref_get(x, r * columns + best))) {
                    best = c;
                }
            }
            trmi_ref_set(&args->outputs[0], r * k + i, trmi_ref_get(x, r * columns + best));
            ((int32_t *)args->outputs[1].data)[r * k + i] = (int32_t)best;
        }
    }
    return TRM_OK;
}

/* Computes dx, which is dy at the columns that were taken, and 0 elsewhere. */
trm_status trmi_ref_top_k_grad(const trmi_ref_args *args, trm_error *err) {
    (void)err;
    const trm_tensor *dy = &args->inputs[0];
    int64_t columns = args->attrs->top_k.columns, k = dy->shape.dim[dy->shape.rank - 1];
    for (int64_t i = 0; i < trm_shape_count(&args->outputs[0].shape); i++) {
        trmi_ref_set(&args->outputs[0], i, 0);
    }
    for (int64_t i = 0; i < trm_shape_count(&dy->shape); i++) {
        trmi_ref_set(&args->outputs[0], i / k * columns + trmi_ref_get_int(&args->inputs[1], i),
                     trmi_ref_get(dy, i));
    }
    return TRM_OK;
}

/* Finds the expert of row r among those of this rank; *expert is -1 if it is on another one.
 *   errors  INVALID: no expert has this number */
static trm_status expert_of(const trmi_ref_args *args, int64_t r, int64_t here, int64_t *expert,
                            trm_error *err) {
    const trmi_op_part *part = trmi_part_of(args->attrs);
    int64_t all = part->extent > 0 ? part->extent : here;
    int64_t id = trmi_ref_get_int(&args->inputs[2], r), at = id - part->begin;
    if (id < 0 || id >= all) {
        return TRMI_FAIL(err, TRM_INVALID,
                         "expert %" PRId64 " of row %" PRId64 ": 0 to %" PRId64 " expected", id, r,
                         all - 1);
    }
    *expert = at >= 0 && at < here ? at : -1;
    return TRM_OK;
}

/* Multiplies each row with the weights of its expert, y = W x, or W^T x (`transposed`: the gradient
 * of x). Rows whose expert is on another rank become 0. */
trm_status trmi_ref_expert_linear(const trmi_ref_args *args, trm_error *err) {
    const trm_tensor *x = &args->inputs[0], *w = &args->inputs[1];
    bool transposed = args->attrs->expert.transposed;
    int64_t outs = w->shape.dim[1], ins = w->shape.dim[2];
    int64_t from = transposed ? outs : ins, to = transposed ? ins : outs;
    for (int64_t r = 0; r < trm_shape_count(&args->inputs[2].shape); r++) {
        int64_t expert;
        TRMI_TRY(expert_of(args, r, w->shape.dim[0], &expert, err));
        for (int64_t o = 0; o < to; o++) {
            double sum = 0;
            for (int64_t i = 0; expert >= 0 && i < from; i++) {
                int64_t at = transposed ? i * ins + o : o * ins + i;
                sum += trmi_ref_get(x, r * from + i) * trmi_ref_get(w, expert * outs * ins + at);
            }
            trmi_ref_set(&args->outputs[0], r * to + o, sum);
        }
    }
    return TRM_OK;
}

/* Computes dW of each expert: the sum of dy x^T over the rows that it took. */
trm_status trmi_ref_expert_grad_weights(const trmi_ref_args *args, trm_error *err) {
    const trm_tensor *dy = &args->inputs[0], *x = &args->inputs[1], *dw = &args->outputs[0];
    int64_t outs = dw->shape.dim[1], ins = dw->shape.dim[2], count = trm_shape_count(&dw->shape);
    double *sums = trmi_alloc((size_t)count * sizeof *sums + 1);
    if (sums == NULL) {
        return TRMI_NO_MEMORY(err, "for a reference gradient");
    }
    trm_status status = TRM_OK;
    for (int64_t r = 0; status == TRM_OK && r < trm_shape_count(&args->inputs[2].shape); r++) {
        int64_t expert;
        status = expert_of(args, r, dw->shape.dim[0], &expert, err);
        for (int64_t i = 0; status == TRM_OK && expert >= 0 && i < outs * ins; i++) {
            sums[expert * outs * ins + i] +=
                trmi_ref_get(dy, r * outs + i / ins) * trmi_ref_get(x, r * ins + i % ins);
        }
    }
    for (int64_t i = 0; status == TRM_OK && i < count; i++) {
        trmi_ref_set(dw, i, sums[i]);
    }
    trmi_free(sums);
    return status;
}
