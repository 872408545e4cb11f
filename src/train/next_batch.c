/* SPDX-License-Identifier: Apache-2.0 */
/* A batch, whatever the reader says at the end of an epoch. */
#include "train/model.h"

#include "base/error.h"

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
