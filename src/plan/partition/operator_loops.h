/* SPDX-License-Identifier: Apache-2.0 */
/* plan/partition/operator_loops.h: operators as loop nests: which loop each dimension of each
 * tensor belongs to.
 *
 *      conv2d     x "nchw"  w "kc"  bias "k"  ->  y "nkhw"       c is summed, h and w have windows
 *      xent       logits "nk"  labels "n"     ->  loss ""  lse "n"  weight "-"
 *
 * '-' is a dimension that no loop cuts. A loop that an output lacks is summed over: the output is
 * partial on the axes that cut it, unless the kernel itself combines the parts (statistics,
 * losses); `without` states which. */
#ifndef TRMI_PLAN_OPERATOR_LOOPS_H
#define TRMI_PLAN_OPERATOR_LOOPS_H

#include "plan/partition/partition.h"

#include <string.h>

/* Tensors of an operator, and dimensions of a tensor with the end of the text, at most. */
enum { TRMI_LOOP_TENSORS = 8, TRMI_LOOP_DIMS = TRM_MAX_RANK + 2 };

/* The window of one dimension: output rows [a, b) read input rows [a*stride - before, (b-1)*stride
 * - before + extent). */
typedef struct trmi_partition_window {
    int64_t stride, before; /* before: padding */
    int64_t extent;         /* rows of a window, dilation included */
    int64_t in, out;        /* rows of the whole input and output */
} trmi_partition_window;

/* The loop nest of one operator. */
typedef struct trmi_loops {
    char letters[TRMI_PARTITION_LETTERS]; /* loops that may be cut */
    /* loops of the dimensions of each input; inputs beyond the last array use the last one */
    char in[TRMI_LOOP_TENSORS][TRMI_LOOP_DIMS];
    char out[TRMI_OP_OUTPUTS_MAX][TRMI_LOOP_DIMS];
    /* letter of an output on axes that cut loops that it lacks */
    uint8_t without[TRMI_OP_OUTPUTS_MAX];
    /* input that is added once where 'c' is cut (bias), and so is partial there; -1 = none */
    int32_t once;
    bool linear;   /* partial sums in give partial sums out: loop '+' */
    int32_t whole; /* input that is whole where the others are partial sums; -1 = none */
    /* loops h and w have windows: window[0] of dimension 2, window[1] of dimension 3 */
    bool windows;
    trmi_partition_window window[2];
    int32_t window_input; /* input that is read with a halo; -1: none */
    bool window_adds;     /* output 0 is made with a halo, which is then summed */
    /* groups of a convolution: loop 'g' is cut between groups; otherwise 0 */
    int64_t groups;
    const char *reason; /* why there are no loops */
} trmi_loops;

/* Computes the loop nest of an operator. */
void trmi_loops_of(const trm_graph *graph, const trmi_op *op, trmi_loops *out);
/* Returns the box of the window input that `rank` needs, halo included. in, out: shapes of both
 * sides of the window. */
trmi_box trmi_window_box(const trmi_loops *loops, const trmi_mesh *mesh, const trm_shape *in,
                         const trm_shape *out, const trmi_spread *in_spread,
                         const trmi_spread *out_spread, int32_t rank);
/* Returns the loops over which statistics of a batch norm are combined with other ranks. */
static inline const char *trmi_norm_loops(const trmi_op *norm) {
    return trmi_part_of(&norm->attrs)->own_norm ? "hwuv" : "nhwuv";
}
/* Returns the axes whose letter is one of `loops`, as bits. */
uint32_t trmi_letters_mask(const char *letters, const char *loops);
/* Returns the place in `dims` of the dimension that a letter cuts; NULL: none. A ring 'r' cuts
 * queries 'q' and keys 's' alike. */
static inline const char *trmi_dimension_of(const char *dims, char letter) {
    return letter != 'r' ? strchr(dims, letter) : strpbrk(dims, "qs");
}

#endif
