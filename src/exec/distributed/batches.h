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

typedef struct trmi_batch_form {
    int32_t ranks;         /* of the job */
    int32_t graph_ranks;   /* whose samples one pass of the graph computes: 1, or all of them */
    int32_t reads;         /* parts in which a batch of the job is read: 1, or one for each rank */
    bool weights_in_place; /* an evaluation program may use the training program's parameters */
} trmi_batch_form;

/* Returns the form of batches under these options. */
trmi_batch_form trmi_batch_form_of(const trm_parallel_options *options);
/* Completes the options of a job whose dataset gives one rank's batch: each rank feeds its own
 * samples, unless the options say TRM_BATCH_OF_JOB or how inputs are cut. */
void trmi_batches_settle(trm_parallel_options *options);
/* Checks that ranks can feed the inputs of the graph as the options say.   error  INVALID */
trm_status trmi_batches_check(const trm_parallel_options *options, const trm_graph *graph,
                              trm_error *err);
/* Sets *blocks to the number of blocks that the graph's batch of `batch` samples is computed in;
 * 0 = in one piece. Fixed blocks need one row a sample in each input.
 *   error  INVALID: the block does not divide the batch */
trm_status trmi_batches_blocks(const trm_parallel_options *options, int64_t batch, int32_t *blocks,
                               trm_error *err);

#endif
