/* SPDX-License-Identifier: Apache-2.0 */
/* trireme/distribute.h: three calls that make a training program of one's own, with or without our
 * graph, run on many ranks. On one device they have no effect.
 *
 *     trm_distribute_shard_and_rebatch(NULL, data, 256, &batch, &err);     data of this rank
 *     trm_distribute_broadcast(NULL, weights, count, 0, &err);             begin alike
 *     for (...) {
 *         ... gradients of `batch` samples ...
 *         trm_distribute_all_reduce(NULL, gradients, count, TRM_REDUCTION_MEAN, &err);
 *         ... update ...
 *     }
 *
 * NULL in the place of a trm_distribute stands for the process's own ranks. The first call with it
 * finds out from the environment which rank this is and meets the others, as trm_distribute_begin
 * does; the end of the process ends them: after exit(0) this rank has left, after any other end the
 * others are told that it failed. Programs that want to say when, or have several jobs in one
 * process, hold a trm_distribute of their own between begin and end.
 *
 * Values are plain tensors anywhere in memory; one with data NULL (a variable without a gradient)
 * is
 * passed over and stays NULL. The sizes and types of a list are the same on every rank.
 *   thread  one at a time per trm_distribute, NULL counting as one */
#ifndef TRIREME_DISTRIBUTE_H
#define TRIREME_DISTRIBUTE_H

#include "trireme/base.h"
#include "trireme/cluster.h"
#include "trireme/comm.h"
#include "trireme/data.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct trm_distribute trm_distribute;

/* Finds out from the environment which rank this is (trireme/cluster.h), and meets the others.
 *   in     flags  what a command line says, or NULL
 *   owns   caller: trm_distribute_end
 *   error  INVALID (sources that disagree), TIMEOUT and PEER (others that do not come), NOMEM */
TRM_API TRM_MUST_USE trm_status trm_distribute_begin(const trm_cluster_flags *flags,
                                                     trm_distribute **out, trm_error *err);
/* The same on a communicator that there is already (borrowed); NULL is one device. */
TRM_API TRM_MUST_USE trm_status trm_distribute_over(trm_comm *comm, trm_distribute **out,
                                                    trm_error *err);
/* NULL is accepted and does nothing. */
TRM_API void trm_distribute_end(trm_distribute *distribute);

/* With NULL where the process's ranks cannot begin: 0 of 1, and the next call that can fail says
 * why. */
TRM_API int32_t trm_distribute_rank(const trm_distribute *distribute);
TRM_API int32_t trm_distribute_size(const trm_distribute *distribute);

/* What is beneath, for what takes a communicator (trm_model_options.parallel.comm); *out is NULL on
 * one device.
 *   owns   distribute: valid until its end; with NULL until the process's
 *   error  those of trm_distribute_begin, with NULL in a first call */
TRM_API TRM_MUST_USE trm_status trm_distribute_comm(trm_distribute *distribute, trm_comm **out,
                                                    trm_error *err);

/* Every value of rank `root` on every rank, of any type.   error  INVALID, and those of trm_comm_run
 */
TRM_API TRM_MUST_USE trm_status trm_distribute_broadcast(trm_distribute *distribute,
                                                         const trm_tensor *values, int32_t count,
                                                         int32_t root, trm_error *err);
/* Replaces every value by the sum, mean, product, maximum or minimum over the ranks. Neighbours of
 * one type travel together, up to 4 MB at a time. The mean of integers is cut towards zero.
 *   error  INVALID (a reduction that there is not; lists that differ between ranks), those of
 *          trm_comm_run */
TRM_API TRM_MUST_USE trm_status trm_distribute_all_reduce(trm_distribute *distribute,
                                                          const trm_tensor *values, int32_t count,
                                                          trm_reduction reduce, trm_error *err);
/* This rank's part of a dataset: every size-th element (the first come twice where that does not
 * come
 * out even, so that no rank waits for a step that another lacks), in batches of global_batch /
 * size.
 *   in     dataset  not read yet; NULL: only the local batch size is wanted (other people's loaders)
 *   out    *local_batch
 *   error  INVALID: the number of ranks does not divide global_batch
 */
TRM_API TRM_MUST_USE trm_status trm_distribute_shard_and_rebatch(trm_distribute *distribute,
                                                                 trm_dataset *dataset,
                                                                 int64_t global_batch,
                                                                 int64_t *local_batch,
                                                                 trm_error *err);
/* The same for data in plain arrays. Of `*samples` rows of each array, those of this rank (every
 * size-th,
 * wrapped round as above) are moved to its front, in their order, so that the ranks' batches k
 * together
 * are the batch k of one process.
 *   in     arrays  each of *samples rows, in any shape; written
 *   out    *samples, *batch  in: of all ranks; out: of this rank
 *   error  INVALID: the number of ranks does not divide *batch; an array that is no *samples equal rows
 */
TRM_API TRM_MUST_USE trm_status trm_distribute_shard_arrays(trm_distribute *distribute,
                                                            const trm_tensor *arrays, int32_t count,
                                                            int64_t *samples, int64_t *batch,
                                                            trm_error *err);

/* An array as a tensor, so that a call in a program of plain arrays is one line:
 *     TRM_OR_EXIT(trm_distribute_broadcast(NULL, &TRM_FLOATS(weights, 100), 1, 0, &err)); */
#define TRM_FLOATS(pointer, count)                                                                 \
    ((trm_tensor){.data = (pointer), .dtype = TRM_FLOAT32, .shape = {.rank = 1, .dim = {(count)}}})

#ifdef __cplusplus
}
#endif
#endif
