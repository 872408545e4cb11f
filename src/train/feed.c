/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the next batch of a dataset and feeds its fields to the inputs of a program (contracts
 * in model.h). */
#include "train/model.h"

#include "base/error.h"
#include "exec/exec.h"

#include <string.h>

/* Contract in model.h. The end of an epoch is skipped once; a second end means that there are no
 * batches. */
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

/* Contract in model.h. Fields that the network does not read have no target and are skipped.
 * With blocks of samples a batch fills its input. */
trm_status trmi_feed(const trmi_compiled *compiled, const trm_batch *batch, trm_error *err) {
    for (int32_t i = 0; i < compiled->fields; i++) {
        const trm_tensor *to = &compiled->target[i];
        if (to->data == NULL) {
            continue;
        }
        const trm_tensor *from = &batch->fields[i].tensor;
        int64_t bytes = trm_tensor_bytes(from), room = trm_tensor_bytes(to);
        /* A batch may have fewer samples than the input has room for, except in blocks of
         * samples. */
        bool whole = bytes == room, fits = compiled->blocks > 0 ? whole : bytes <= room;
        if (from->dtype != to->dtype || !fits) {
            char a[96], b[96];
            return TRMI_FAIL(err, TRM_INVALID,
                             "field '%s' is %s %s, the model was compiled for %s %s",
                             batch->fields[i].name, trm_dtype_name(from->dtype),
                             trm_shape_format(&from->shape, a, sizeof a), trm_dtype_name(to->dtype),
                             trm_shape_format(&to->shape, b, sizeof b));
        }
        /* A field that fills its input may be taken over by the executor without this copy
         * (trmi_exec_feed_input). */
        if (!trmi_exec_feed_input(compiled->exec, batch->fields[i].name, to,
                                  whole ? from->data : NULL)) {
            memcpy(to->data, from->data, (size_t)bytes);
            /* Zero the room behind a shorter field: its bytes must not depend on earlier
             * batches, or a resumed run would compute other bits. */
            memset((char *)to->data + bytes, 0, (size_t)(room - bytes));
        }
    }
    return TRM_OK;
}
