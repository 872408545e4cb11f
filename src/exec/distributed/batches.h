/* SPDX-License-Identifier: Apache-2.0 */
/* exec/distributed/batches.h: what the options of the ranks mean for a caller that feeds batches
 * and builds graphs, in words that name no way of training.
 *
 *                             graph of        a batch of the job is read
 *      data parallel          one rank's      in one part for each rank
 *      split, own samples     all ranks'      in one part for each rank
 *      split, whole batches   all ranks'      whole, by every rank */
#ifndef TRMI_EXEC_DISTRIBUTED_BATCHES_H
#define TRMI_EXEC_DISTRIBUTED_BATCHES_H

#include "trireme/exec.h"

/* How ranks read a batch, and what one pass of their graph computes. */
typedef struct trmi_batch_form {
    int32_t ranks;         /* of the job; in a pipeline those of a stage, which all stages repeat */
    int32_t graph_ranks;   /* whose samples one pass of the graph computes: 1, or all of them */
    int32_t reads;         /* parts in which a batch of the job is read: 1, or one for each rank */
    bool weights_in_place; /* an evaluation program may use the training program's parameters */
    bool together; /* the last batch of an update runs all of them: its loss is the mean of all */
} trmi_batch_form;

/* Returns the form of batches under these options. */
trmi_batch_form trmi_batch_form_of(const trm_parallel_options *options);
/* Completes the options of a job whose dataset gives one rank's batch: each rank feeds its own
 * samples, unless the options say TRM_BATCH_OF_JOB or how inputs are cut. */
void trmi_batches_settle(trm_parallel_options *options);
/* Checks that ranks can feed the inputs of the graph as the options say.   errors  INVALID */
trm_status trmi_batches_check(const trm_parallel_options *options, const trm_graph *graph,
                              trm_error *err);
/* Sets *blocks to the number of blocks that the graph's batch of `batch` samples is computed in;
 * 0 = in one piece. Fixed blocks need one row a sample in each input.
 *   errors  INVALID: the block does not divide the batch */
trm_status trmi_batches_blocks(const trm_parallel_options *options, int64_t batch, int32_t *blocks,
                               trm_error *err);

/* The blocks of samples of a rank, and the sums that it makes of them, where samples lie in fixed
 * blocks (strict determinism; not in split programs). */
typedef struct trmi_batch_blocks {
    int32_t count;       /* blocks of this rank; 0: no blocks */
    int32_t ranks, rank; /* of the job */
    /* sums of this rank that are nodes of one tree over all ranks (base/tree.h): 1, or one of each
     * block; of all ranks */
    int32_t nodes, total;
} trmi_batch_blocks;

/* Returns the blocks of an executor. */
trmi_batch_blocks trmi_batches_of_exec(const trm_exec *exec);
/* Returns the position in the tree of all ranks of this rank's sum `node`, which is that of the
 * block at position `node` if it has one of each block. */
int32_t trmi_batches_node(const trm_exec *exec, int32_t node);
/* Returns the row of a fed input at which sample `sample` of `samples` lies. */
int64_t trmi_batches_row(const trm_exec *exec, int64_t sample, int64_t samples);

#endif
