/* SPDX-License-Identifier: Apache-2.0 */
/* The next batch of a dataset, and its fields to the inputs of a program. */
#include "train/model.h"

#include "base/error.h"
#include "exec/exec.h"

#include <string.h>

trm_status trmi_next_batch(trm_dataset *data, const trm_batch **out, trm_error *err) {
    trm_status status = trm_dataset_next(data, out, err);
    if (status == TRM_END) {
        status = trm_dataset_next(data, out, err);
    }
    if (status == TRM_END) {
        return TRMI_FAIL(err, TRM_INVALID, "the dataset has no batches");
    }
    return status;
}

trm_status trmi_feed(const trmi_compiled *compiled, const trm_batch *batch, trm_error *err) {
    for (int32_t i = 0; i < compiled->fields; i++) {
        const trm_tensor *to = &compiled->target[i];
        if (to->data == NULL) {
            continue;
        }
        const trm_tensor *from = &batch->fields[i].tensor;
        int64_t bytes = trm_tensor_bytes(from), room = trm_tensor_bytes(to);
        bool whole = bytes == room, fits = compiled->blocks > 0 ? whole : bytes <= room;
        if (from->dtype != to->dtype || !fits) {
            char a[96], b[96];
            return TRMI_FAIL(err, TRM_INVALID,
                             "field '%s' is %s %s, the model was compiled for %s %s",
                             batch->fields[i].name, trm_dtype_name(from->dtype),
                             trm_shape_format(&from->shape, a, sizeof a), trm_dtype_name(to->dtype),
                             trm_shape_format(&to->shape, b, sizeof b));
        }
        if (!trmi_exec_feed_input(compiled->exec, batch->fields[i].name, to,
                                  whole ? from->data : NULL)) {
            memcpy(to->data, from->data, (size_t)bytes);
            /* Behind a ragged field: always the same, so that a run has the same bits when it is
             * resumed. */
            memset((char *)to->data + bytes, 0, (size_t)(room - bytes));
        }
    }
    return TRM_OK;
}
