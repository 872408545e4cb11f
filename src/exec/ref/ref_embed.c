/* SPDX-License-Identifier: Apache-2.0 */
/* Reference kernels of embedding tables: lookup with checked ids, and the dense gradient; and the
 * CUSTOM operator, which calls the user's function. */
#include "exec/ref/ref.h"

#include "base/error.h"

#include <inttypes.h>

/* Copies a row of the table for each id. A rank with a part of the rows writes zeros for the ids of
 * others; the sum over the ranks is the result. */
trm_status trmi_ref_embedding(const trmi_ref_args *args, trm_error *err) {
    const trm_tensor *table = &args->inputs[0], *ids = &args->inputs[1];
    int64_t rows = table->shape.dim[0], width = table->shape.dim[1];
    const trmi_op_part *part = trmi_part_of(args->attrs);
    int64_t begin = part->begin, all = part->extent > 0 ? part->extent : rows;
    for (int64_t i = 0; i < trm_shape_count(&ids->shape); i++) {
        int64_t id = trmi_ref_get_int(ids, i), row = id - begin;
        if (id < 0 || id >= all) {
            return TRMI_FAIL(err, TRM_INVALID,
                             "embedding: id %" PRId64 " at position %" PRId64 ", 0 to %" PRId64
                             " expected",
                             id, i, all - 1);
        }
        bool here = row >= 0 && row < rows; /* else another rank's: zeros here */
        for (int64_t j = 0; j < width; j++) {
            trmi_ref_set(&args->outputs[0], i * width + j,
                         here ? trmi_ref_get(table, row * width + j) : 0);
        }
    }
    return TRM_OK;
}

/* Adds the gradient of each id to its row of the dense gradient, in the order of the ids. It begins
 * with zeros, or with the third input. */
trm_status trmi_ref_embedding_grad(const trmi_ref_args *args, trm_error *err) {
    (void)err;
    const trm_tensor *rows = &args->inputs[0], *ids = &args->inputs[1], *table = &args->outputs[0];
    int64_t width = table->shape.dim[1];
    for (int64_t i = 0; i < trm_shape_count(&table->shape); i++) {
        trmi_ref_set(table, i, args->inputs_count > 2 ? trmi_ref_get(&args->inputs[2], i) : 0);
    }
    for (int64_t i = 0; i < trm_shape_count(&ids->shape); i++) {
        int64_t id = trmi_ref_get_int(ids, i) - trmi_part_of(args->attrs)->begin;
        for (int64_t j = 0; j < width && id >= 0 && id < table->shape.dim[0]; j++) {
            trmi_ref_set(table, id * width + j,
                         trmi_ref_get(table, id * width + j) + trmi_ref_get(rows, i * width + j));
        }
    }
    return TRM_OK;
}

trm_status trmi_ref_custom(const trmi_ref_args *args, trm_error *err) {
    const trm_custom_op *op = args->attrs->custom.op;
    trm_error why = {0};
    trm_status status = op->run(op, args->inputs, args->inputs_count, args->outputs, &why);
    return status == TRM_OK ? TRM_OK : trmi_custom_failed(op, "run", status, &why, err);
}
