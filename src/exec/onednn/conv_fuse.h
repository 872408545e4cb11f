/* exec/onednn/conv_fuse.h: per-block sums of the epilogues, and their combination in order.
 *
 *      parts:  [ block 0: first, sum, square | block 1: ... ]     each of `channels` floats
 *              (NORM_GRAD: sum, sum_x, unused)
 */
#ifndef TRMI_EXEC_ONEDNN_CONV_FUSE_H
#define TRMI_EXEC_ONEDNN_CONV_FUSE_H

#include "exec/onednn/conv.h"

typedef struct trmi_conv_parts {
    float *at;
    int64_t channels, blocks;
    const int64_t *rows; /* of each block */
} trmi_conv_parts;

/* Floats of the parts; 0 without an epilogue. */
int64_t trmi_conv_parts_floats(const trmi_conv_problem *p, int64_t channels, int64_t blocks);
/* The vectors of a block from channel `column` on. */
static inline float *trmi_conv_part(const trmi_conv_parts *p, int64_t block, int which,
                                    int64_t column) {
    return p->at + (block * 3 + which) * p->channels + column;
}
/* A finished block of sums leaves: rounded, stored, summed into its part. */
void trmi_conv_leave(const trmi_conv_problem *problem, const trmi_conv_args *args,
                     const trmi_fuse_isa *isa, const trmi_fuse_block *block,
                     const trmi_conv_parts *parts, int64_t index);
/* The whole: args->sum, args->sum_x. Inside a parallel region: shares the channels among threads. */
void trmi_conv_combine(const trmi_conv_problem *problem, const trmi_conv_args *args,
                       const trmi_conv_parts *parts);

#endif
