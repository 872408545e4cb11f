/* SPDX-License-Identifier: Apache-2.0 */
/* exec/class_labels.h: which samples and classes a cross-entropy counts; for kernels and
 * reference. */
#ifndef TRMI_EXEC_CLASS_LABELS_H
#define TRMI_EXEC_CLASS_LABELS_H

#include "plan/partition/part.h"

#include "base/error.h"

/* Returns whether a cross-entropy leaves samples with this label out. */
static inline bool trmi_label_is_ignored(const trmi_attrs *attrs, int64_t label) {
    return attrs->xent.use_ignore_index && label == attrs->xent.ignore_index;
}
/* Returns the number of all classes where the logits of this rank have `columns` of them. */
static inline int64_t trmi_all_classes(const trmi_attrs *attrs, int64_t columns) {
    int64_t extent = trmi_part_of(attrs)->extent;
    return extent > 0 ? extent : columns;
}
/* Checks the label of a sample, of `classes` classes in all. -1 is what a reader of data writes to
 * the rows that fill up a short batch.
 *   errors  INVALID: it is no class, and is not ignored */
static inline trm_status trmi_check_label(const trmi_attrs *attrs, int64_t label, int64_t sample,
                                          int64_t classes, trm_error *err) {
    if ((label >= 0 && label < classes) || trmi_label_is_ignored(attrs, label)) {
        return TRM_OK;
    }
    return TRMI_FAIL(err, TRM_INVALID, "label %lld of sample %lld: 0 to %lld expected%s",
                     (long long)label, (long long)sample, (long long)classes - 1,
                     label == -1 ? "; -1 marks a row that fills up a short batch, which a loss "
                                   "leaves out only with ignore_index -1"
                                 : "");
}

#endif
