/* SPDX-License-Identifier: Apache-2.0 */
/* exec/convert.h: copies between layouts, element by element: for reading and writing variables and
 * for the reference REORDER step. The fast back-end has its own reorders. */
#ifndef TRMI_EXEC_CONVERT_H
#define TRMI_EXEC_CONVERT_H

#include "plan/lower/program.h"

/* Copies a tensor of `shape` from one layout to another; padding of BLOCKED16 is zeroed. */
void trmi_convert_layout(const void *from, trmi_layout from_layout, void *to, trmi_layout to_layout,
                         trm_dtype dtype, const trm_shape *shape, bool weights);

/* Elements of any floating dtype to float32 (dense, `count` of them). */
void trmi_convert_to_float(const void *from, trm_dtype dtype, float *to, int64_t count);

#endif
