/* SPDX-License-Identifier: Apache-2.0 */
/* exec/box_walk.h: a box of a tensor as loops over memory, and copies between two such boxes. */
#ifndef TRMI_EXEC_BOX_WALK_H
#define TRMI_EXEC_BOX_WALK_H

#include "trireme/dist.h"

#include "plan/lower/program.h"

/* Nested loops over a box of two tensors a and b, those with the longest steps in a outermost.
 * Loops whose elements follow each other in both tensors are one loop. */
typedef struct trmi_box_walk {
    int32_t rank;                             /* loops; 0: the box is one element */
    int64_t length[TRM_MAX_RANK];             /* iterations of a loop */
    int64_t a[TRM_MAX_RANK], b[TRM_MAX_RANK]; /* elements from one to the next */
    int64_t a0, b0;                           /* element at which the box begins */
} trmi_box_walk;

/* Writes the element strides of a tensor of `box` in a layout. */
void trmi_box_strides(const trmi_box *box, trmi_layout layout, bool weights,
                      int64_t stride[TRM_MAX_RANK]);
/* Returns the walk between a tensor of `of` and the packed box (or a tensor of `with`), in the
 * memory order of `of`. */
trmi_box_walk trmi_box_walk_of(const trmi_box *box, const trmi_box *of, const int64_t *stride,
                               const trmi_box *with, const int64_t *with_stride);
/* Copies the box from a to b (`pack`), or from b to a; then `reduce` combines it with the values
 * that a has (TRM_REDUCTION_NONE: replaces them). */
void trmi_move_box(const trmi_box_walk *walk, char *a, char *b, trm_dtype dtype, bool pack,
                   trm_reduction reduce);
/* Copies the part `box` out of (or, with `into`, into) a whole tensor in plain layout. */
void trmi_copy_box(void *whole, const trm_shape *shape, const trmi_box *box, void *part,
                   size_t element, bool into);
/* Completes a whole tensor in plain layout in place: `whole` begins with the packed part `box`,
 * which is moved to its place; the other elements are copied from the whole tensor `others` (NULL:
 * zeros). Takes no memory. */
void trmi_complete_box(void *whole, const trm_shape *shape, const trmi_box *box, const void *others,
                       size_t element);

#endif
