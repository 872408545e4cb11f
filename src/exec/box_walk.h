/* SPDX-License-Identifier: Apache-2.0 */
/* exec/box_walk.h: a box of a tensor as loops over memory, and copies between two such boxes. */
#ifndef TRMI_EXEC_BOX_WALK_H
#define TRMI_EXEC_BOX_WALK_H

#include "trireme/dist.h"

#include "plan/lower/program.h"

/* Loops over a box, longest steps first, and where its corner lies in two tensors. */
typedef struct trmi_box_walk {
    int32_t rank;
    int64_t length[TRM_MAX_RANK], a[TRM_MAX_RANK], b[TRM_MAX_RANK], a0, b0;
} trmi_box_walk;

/* Writes the element strides of a tensor of `box` in a layout. */
void trmi_box_strides(const trmi_box *box, trmi_layout layout, bool weights,
                      int64_t stride[TRM_MAX_RANK]);
/* Returns the walk between a tensor of `of` and the packed box (or a tensor of `with`), in the
 * memory order of `of`. */
trmi_box_walk trmi_box_walk_of(const trmi_box *box, const trmi_box *of, const int64_t *stride,
                               const trmi_box *with, const int64_t *with_stride);
/* Moves the box: a's side to b's (`pack`), or b's to a's; there `reduce` puts it together with what
 * is there. */
void trmi_move_box(const trmi_box_walk *walk, char *a, char *b, trm_dtype dtype, bool pack,
                   trm_reduction reduce);
/* Copies the part `box` out of (or, with `into`, into) a whole tensor in plain layout. */
void trmi_copy_box(void *whole, const trm_shape *shape, const trmi_box *box, void *part,
                   size_t element, bool into);

#endif
