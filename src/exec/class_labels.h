/* SPDX-License-Identifier: Apache-2.0 */
/* exec/class_labels.h: which samples and classes a cross-entropy counts; for kernels and
 * reference. */
#ifndef TRMI_EXEC_CLASS_LABELS_H
#define TRMI_EXEC_CLASS_LABELS_H

#include "plan/partition/part.h"

/* Returns whether a cross-entropy leaves samples with this label out. */
static inline bool trmi_label_is_ignored(const trmi_attrs *attrs, int64_t label) {
    return attrs->xent.use_ignore_index && label == attrs->xent.ignore_index;
}
/* Returns the number of all classes where the logits of this rank have `columns` of them. */
static inline int64_t trmi_all_classes(const trmi_attrs *attrs, int64_t columns) {
    int64_t extent = trmi_part_of(attrs)->extent;
    return extent > 0 ? extent : columns;
}

#endif
