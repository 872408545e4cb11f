/* SPDX-License-Identifier: Apache-2.0 */
/* exec/convert.h: copies tensors between layouts, to read and write variables
 * and for the reference REORDER step. The fast back-end has its own reorders. */
#ifndef TRMI_EXEC_CONVERT_H
#define TRMI_EXEC_CONVERT_H

#include "plan/lower/program.h"

/* Copies a tensor of `shape` from one layout to another. `weights`: the layouts are those of
 * filters. Sets the padding of BLOCKED16 to zero. */
void trmi_convert_layout(const void *from, trmi_layout from_layout, void *to, trmi_layout to_layout,
                         trm_dtype dtype, const trm_shape *shape, bool weights);

/* Copy the value of a buffer at `at`, in the buffer's layout, to plain layout, and back. */
static inline void trmi_convert_to_plain(const trmi_buffer *b, const void *at, void *plain) {
    trmi_convert_layout(at, b->layout, plain, TRMI_PLAIN, b->dtype, &b->shape, b->weights);
}
static inline void trmi_convert_from_plain(const trmi_buffer *b, const void *plain, void *at) {
    trmi_convert_layout(plain, TRMI_PLAIN, at, b->layout, b->dtype, &b->shape, b->weights);
}

/* Converts `count` elements of any type to float32. */
void trmi_convert_to_float(const void *from, trm_dtype dtype, float *to, int64_t count);

#endif
