/* SPDX-License-Identifier: Apache-2.0 */
/* plan/shard/shard_rules.h: operators as loop nests: which loop each dimension of each tensor
 * follows.
 *
 *      conv2d     x "nchw"  w "kc"  bias "k"  ->  y "nkhw"       c is summed, h and w have windows
 *      xent       logits "nk"  labels "n"     ->  loss ""  lse "n"  weight "-"
 *
 * '-' is a dimension that no loop cuts. A loop that an output lacks is summed over: its result
 * there is partial, unless the kernel itself combines it (statistics, losses): `whole_without`. */
#ifndef TRMI_PLAN_SHARD_RULES_H
#define TRMI_PLAN_SHARD_RULES_H

#include "plan/shard/sharding.h"

enum { TRMI_LOOP_TENSORS = 8, TRMI_LOOP_DIMS = TRM_MAX_RANK + 2 };

/* One dimension's window: output rows [a, b) read input rows [a*stride - before, (b-1)*stride -
 * before + extent). */
typedef struct trmi_shard_window {
    int64_t stride, before, extent, in, out;
} trmi_shard_window;

typedef struct trmi_loops {
    char letters[TRMI_SHARD_LETTERS]; /* that may be cut */
    /* inputs beyond the last follow in[TRMI_LOOP_TENSORS - 1] */
    char in[TRMI_LOOP_TENSORS][TRMI_LOOP_DIMS];
    char out[TRMI_OP_OUTPUTS_MAX][TRMI_LOOP_DIMS];
    uint8_t without[TRMI_OP_OUTPUTS_MAX]; /* letter of an output on axes of loops that it lacks */
    /* input that is added once where 'c' is cut (bias): partial there; -1 = none */
    int32_t once;
    bool linear;  /* partial sums in, partial sums out: loop '+' */
    bool windows; /* h and w: window[0] of dimension 2, window[1] of dimension 3 */
    trmi_shard_window window[2];
    int32_t window_input; /* that is read with a halo; -1: none */
    bool window_adds;     /* output 0 is made with a halo that is added up */
    int64_t groups;       /* of a convolution: the loop 'g' is cut between groups; else 0 */
    const char *reason;   /* no loops: why */
} trmi_loops;

void trmi_loops_of(const trm_graph *graph, const trmi_op *op, trmi_loops *out);
/* Input 0's kind of tensor with the halo that `rank` needs: box of the window input. */
trmi_box trmi_window_box(const trmi_loops *loops, const trmi_mesh *mesh, const trm_shape *in,
                         const trm_shape *out, const trmi_spread *in_spread,
                         const trmi_spread *out_spread, int32_t rank);
/* Loops over which statistics of a batch norm are taken together with other ranks. */
static inline const char *trmi_norm_loops(const trm_graph *graph) {
    return graph->local_norms ? "hwuv" : "nhwuv";
}
/* Axes that the letters cut in loops h and w. */
uint32_t trmi_letters_mask(const char *letters, const char *loops);

#endif
