/* trireme/distribute.h: three calls that make a training program of one's own, with or without our
 * graph, run on many ranks (guide 001). On one device they have no effect.
 *
 *     trm_distribute *ranks;
 *     trm_distribute_begin(NULL, &ranks, &err);                            who am I, who are the others
 *     trm_distribute_shard_and_rebatch(ranks, data, 256, &batch, &err);    data of this rank
 *     trm_distribute_broadcast(ranks, weights, count, 0, &err);            begin alike
 *     for (...) {
 *         ... gradients of `batch` samples ...
 *         trm_distribute_all_reduce(ranks, gradients, count, TRM_REDUCE_MEAN, &err);
 *         ... update ...
 *     }
 *     trm_distribute_end(ranks);
 *
 * Values are plain tensors anywhere in memory; one with data NULL (a variable without a gradient) is
 * passed over and stays NULL. The sizes and types of a list are the same on every rank.
 *   thread  one at a time per trm_distribute
 */
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
TRM_API void trm_distribute_end(trm_distribute *distribute);

TRM_API int32_t trm_distribute_rank(const trm_distribute *distribute);
TRM_API int32_t trm_distribute_size(const trm_distribute *distribute);

/* Every value of rank `root` on every rank, of any type.   error  INVALID, and those of trm_comm_run */
TRM_API TRM_MUST_USE trm_status trm_distribute_broadcast(trm_distribute *distribute,
                                                         const trm_tensor *values, int32_t count,
                                                         int32_t root, trm_error *err);
/* Replaces every value by the sum, mean, product, maximum or minimum over the ranks. Neighbours of
 * one type travel together, up to 4 MB at a time. The mean of integers is cut towards zero.
 *   error  INVALID (a reduction that there is not; lists that differ between ranks), those of
 *          trm_comm_run */
TRM_API TRM_MUST_USE trm_status trm_distribute_all_reduce(trm_distribute *distribute,
                                                          const trm_tensor *values, int32_t count,
                                                          trm_reduce reduce, trm_error *err);
/* This rank's part of a dataset: every size-th element (the first come twice where that does not come
 * out even, so that no rank waits for a step that another lacks), in batches of global_batch / size.
 *   in     dataset  not read yet; NULL: only the local batch size is wanted (other people's loaders)
 *   out    *local_batch
 *   error  INVALID: the number of ranks does not divide global_batch */
TRM_API TRM_MUST_USE trm_status trm_distribute_shard_and_rebatch(trm_distribute *distribute,
                                                                 trm_dataset *dataset,
                                                                 int64_t global_batch,
                                                                 int64_t *local_batch, trm_error *err);

#ifdef __cplusplus
}
#endif
#endif
