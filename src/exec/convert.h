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

/* Converts `count` elements of any type to float32. */
void trmi_convert_to_float(const void *from, trm_dtype dtype, float *to, int64_t count);

#endif
