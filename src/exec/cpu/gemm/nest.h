/* SPDX-License-Identifier: Apache-2.0 */
/* exec/cpu/gemm/nest.h: loop nests over tensors of any layout, by strides:
 *
 *      y [N,C,H,W] channels-last  +  b [C,1,1]      dims sorted by the first operand's strides,
 *      dim     N    H    W    C                     equal neighbours merged:
 *      y     HWC   WC    C    1          -->        NHW   C
 *      b       0    0    0    1                     C/0   1/1
 *
 * The innermost dimension goes to a kernel as (pointers, count, inner strides). */
#ifndef TRMI_EXEC_CPU_NEST_H
#define TRMI_EXEC_CPU_NEST_H

#include "exec/backend.h"

/* Operands of a nest, at most: an output and two inputs. */
enum { TRMI_NEST_OPERANDS = 3 };

/* Dimensions from the outermost to the innermost, and the strides of each operand in elements. */
typedef struct trmi_nest {
    int32_t rank, operands; /* rank >= 1; dim[rank - 1] is the inner one */
    int64_t dim[TRM_MAX_RANK];
    int64_t stride[TRMI_NEST_OPERANDS][TRM_MAX_RANK]; /* in elements; 0 = broadcast */
} trmi_nest;

/* Writes the element strides of a tensor of `shape` in `layout`, by mathematical dimension. */
void trmi_layout_strides(const trm_shape *shape, trmi_layout layout, bool weights, int64_t *stride);
/* Writes the strides of a buffer of the program. */
static inline void trmi_buffer_strides(const trmi_buffer *b, int64_t *stride) {
    trmi_layout_strides(&b->shape, b->layout, b->weights, stride);
}
/* Writes the strides by which `b` is read as if it had the shape `wide` (broadcasting). */
void trmi_broadcast_strides(const trmi_buffer *b, const trm_shape *wide, int64_t *stride);

/* Makes a nest: sorts dimensions by the strides of operand 0, drops those of one element, merges
 * contiguous ones. */
void trmi_nest_make(trmi_nest *nest, const trm_shape *shape, int operands,
                    int64_t (*stride)[TRM_MAX_RANK]);

/* Calls `body(context, offset by operand, count)` for pieces of at most `piece` inner elements,
 * from OpenMP threads. The pieces do not depend on the number of threads. */
typedef void (*trmi_nest_body)(const void *context, const int64_t *offset, int64_t count);
void trmi_nest_run(const trmi_nest *nest, int64_t piece, trmi_nest_body body, const void *context);

#endif
