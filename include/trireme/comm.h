/* SPDX-License-Identifier: Apache-2.0 */
/* trireme/comm.h: numbers between ranks.
 *
 * A communicator joins `size` ranks (processes or threads, on one host or many). Collectives are
 * called by every rank of it in the same order:
 *
 *     float *gradient = trm_comm_alloc_shared(comm, bytes, &err);     peers reach it without copies
 *     trm_comm_allreduce(comm, gradient, count, TRM_FLOAT32, TRM_REDUCTION_MEAN, &err);
 *
 * Everything else, out of place or asynchronous, is an operation described as data:
 *
 *     trm_collective op = {.kind = TRM_ALLGATHER, .send = mine, .recv = all, .count = k,
 *                          .dtype = TRM_INT64};
 *     trm_request *request;
 *     trm_comm_start(comm, &op, &request, &err);                      ... compute ...
 *     trm_request_wait(request, -1, &err);
 *
 * Operations of one communicator run in the order in which they were started. Each carries a
 * signature (sequence, kind, type, count, reduction, root) that is compared on all ranks before
 * anything is summed: ranks that disagree all get an error that shows both sides. No wait is for
 * ever: a dead rank, a stopped one or a deadline ends it, and the communicator is then poisoned:
 * every later call returns the same first cause. Recovery is a new communicator.
 *
 * Threads: one thread at a time per communicator, requests included; communicators are independent.
 */
#ifndef TRIREME_COMM_H
#define TRIREME_COMM_H

#include "trireme/base.h"
#include "trireme/cluster.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct trm_comm trm_comm;
typedef struct trm_request trm_request;

/* Part of the wire format: append only. The mean of integers is cut towards zero. */
typedef enum trm_reduction {
    TRM_REDUCTION_NONE = 0,
    TRM_REDUCTION_SUM = 1,
    TRM_REDUCTION_MEAN = 2,
    TRM_REDUCTION_PROD = 3,
    TRM_REDUCTION_MAX = 4,
    TRM_REDUCTION_MIN = 5
} trm_reduction;
TRM_API const char *trm_reduction_name(trm_reduction reduce); /* "sum" */

/* Kinds of collective. n = size of the communicator, r = rank; counts are elements.
 *                              send            recv                     uses
 *   TRM_ALLREDUCE              [count]         [count]                  reduce
 *   TRM_BROADCAST              root: [count]   [count]                  root
 *   TRM_REDUCE                 [count]         root: [count]            reduce, root
 *   TRM_ALLGATHER              [count]         [n * count]
 *   TRM_ALLGATHERV             [counts[r]]     [sum(counts)]            counts (equal on all ranks)
 *   TRM_REDUCE_SCATTER         [n * count]     [count]                  reduce
 *   TRM_REDUCE_SCATTERV        [sum(counts)]   [counts[r]]              reduce, counts (equal)
 *   TRM_SCATTER                root: [n*count] [count]                  root
 *   TRM_GATHER                 [count]         root: [n * count]        root
 *   TRM_ALLTOALL               [n * count]     [n * count]
 *   TRM_ALLTOALLV              see counts      see recv_counts          counts, recv_counts
 *   TRM_BARRIER                -               -
 * In place: send == NULL means that the rank's own data lie in recv, where they belong: all of it
 * (all-reduce, broadcast, reduce, all-to-all), or the full [n * count] or [sum(counts)] vector with
 * this rank's block at its place (all-gather, gather, scatter, reduce-scatter; the reduced block is
 * left
 * there). Otherwise send and recv must not overlap. */
typedef enum trm_collective_kind {
    TRM_COLLECTIVE_NONE = 0,
    TRM_ALLREDUCE = 1,
    TRM_BROADCAST = 2,
    TRM_REDUCE = 3,
    TRM_ALLGATHER = 4,
    TRM_ALLGATHERV = 5,
    TRM_REDUCE_SCATTER = 6,
    TRM_REDUCE_SCATTERV = 7,
    TRM_SCATTER = 8,
    TRM_GATHER = 9,
    TRM_ALLTOALL = 10,
    TRM_ALLTOALLV = 11,
    TRM_BARRIER = 12
} trm_collective_kind;
TRM_API const char *trm_collective_name(trm_collective_kind kind); /* "all-reduce" */

typedef struct trm_collective {
    trm_collective_kind kind;
    const void *send;
    void *recv;
    int64_t count; /* unused by the kinds that take counts */
    trm_dtype dtype;
    trm_reduction reduce;
    int32_t root;
    /* [n] elements for each rank; read before the call returns. Blocks lie packed in rank order
     * unless the displacements (also [n], elements) say otherwise; only TRM_ALLTOALLV takes those.
     */
    const int64_t *counts;
    const int64_t *recv_counts; /* TRM_ALLTOALLV: what each rank sends to this one */
    const int64_t *displacements;
    const int64_t *recv_displacements;
    /* names the tensor in errors and reports; first 39 characters kept; may be NULL */
    const char *tag;
} trm_collective;

/* How sums are ordered. FALSE: fastest. TRUE: equal bits from run to run with equal ranks and
 * hosts. STRICT: element by element in rank order, whatever the algorithm, chunks, hosts or
 * buffers. */
typedef enum trm_deterministic {
    TRM_DETERMINISTIC_FALSE = 0,
    TRM_DETERMINISTIC_TRUE = 1,
    TRM_DETERMINISTIC_STRICT = 2
} trm_deterministic;

/* Zero means the default. Equal on all ranks (checked at creation). */
typedef struct trm_comm_options {
    /* "auto" (shm inside a host, the network between hosts), "shm", "tcp" (sockets even inside the
     * host), "ucx", "sim", "mpi" (only in processes that mpirun or srun started: theirs is taken).
     * ucx and mpi are plug-ins. */
    const char *engine;
    /* where trireme_comm_*.so lie; NULL: beside the program, then the system's */
    const char *plugin_dir;
    /* Overrides the choice by cost, in HCCL_ALGO's form: "ring" for everything, or a list
     * "allreduce=ring/allgather=level0:NA;level1:bruck/others=NB", or "level0:NA;level1:ring".
     * Algorithms: direct (mesh), ring, halving (H-D_R), nhr, bruck (NB), pairwise, tree, pipeline;
     * NA: by cost. One that does not apply to an operation falls back to the choice by cost. NULL:
     * what HCCL_ALGO said when the job joined (trm_cluster_info.algorithm). */
    const char *algorithm;
    trm_deterministic deterministic;
    double timeout_seconds; /* an operation fails after this; default HCCL_EXEC_TIMEOUT, or 120 */
    double report_seconds;  /* a warning names operation and ranks after this; default 30 */
    size_t staging_bytes;   /* per rank, for buffers that are not shared; default 1 MB */
    /* before a waiting rank sleeps, at most; default 200 (ranks > CPUs: yielding meanwhile); -1 off
     */
    int32_t spin_microseconds;
    bool no_direct;   /* tests: never touch peers' buffers, always stage */
    const char *name; /* for reports; default "world" */
} trm_comm_options;

/* Are engine and algorithm what there is? What can be known before ranks are started.   error INVALID
 */
TRM_API TRM_MUST_USE trm_status trm_comm_check(const trm_comm_options *options, trm_error *err);

/* Joins the ranks of a bootstrap (trm_cluster_join).
 * Collective.
 *   owns    caller destroys *out before the bootstrap
 *   error   INVALID (options differ between ranks, unknown engine or algorithm), UNSUPPORTED
 *           (plug-in missing), NOMEM, IO, TIMEOUT, PEER
 *   thread  any; no thread is started until the first asynchronous operation */
TRM_API TRM_MUST_USE trm_status trm_comm_create(trm_bootstrap *bootstrap,
                                                const trm_comm_options *options, trm_comm **out,
                                                trm_error *err);
/* Waits for this rank's started operations, leaves, frees. NULL is fine. Not collective: a rank
 * that still waits for this one gets TRM_PEER. */
TRM_API void trm_comm_destroy(trm_comm *comm);

TRM_API int32_t trm_comm_rank(const trm_comm *comm);
TRM_API int32_t trm_comm_size(const trm_comm *comm);
TRM_API int32_t trm_comm_local_rank(const trm_comm *comm); /* among this host's ranks of it */
TRM_API int32_t trm_comm_local_size(const trm_comm *comm);
/* in the first communicator */
TRM_API int32_t trm_comm_world_rank(const trm_comm *comm, int32_t rank);
TRM_API trm_deterministic trm_comm_deterministic(const trm_comm *comm); /* as it was created */
TRM_API const char *trm_comm_engine(const trm_comm *comm); /* "shm", "shm+tcp", "tcp", ... */

/* Ranks that pass the same colour (>= 0) form a communicator, ordered by key, then rank; a negative
 * colour gives *out == NULL. Collective over `comm`. The child shares registered memory with it and
 * must be destroyed first. Errors and ownership as trm_comm_create. */
TRM_API TRM_MUST_USE trm_status trm_comm_split(trm_comm *comm, int32_t colour, int32_t key,
                                               trm_comm **out, trm_error *err);
/* The communicator of `ranks[count]` (of `comm`) in that order; *out == NULL on others. Collective
 * over `comm`; every rank passes the same list. */
TRM_API TRM_MUST_USE trm_status trm_comm_group(trm_comm *comm, const int32_t *ranks, int32_t count,
                                               trm_comm **out, trm_error *err);

/* Memory that all ranks of the host read and write in place: collectives on it need no copies.
 * Zeroed, 64-byte aligned, from 2 MB on in huge pages where the kernel has them. Nothing remains of
 * it after any death. Not collective.
 *   owns  freed by trm_comm_free_shared or with the last communicator
 *   NULL on lack of memory, `err` then says so   cost a system call or three: not in a step */
TRM_API void *trm_comm_alloc_shared(trm_comm *comm, size_t bytes, trm_error *err);
/* No operation on it may be running anywhere. NULL is fine. */
TRM_API void trm_comm_free_shared(trm_comm *comm, void *memory);

/* Does every rank reach rank 0's memory? All are processes of one host then. The same answer on all
 * ranks. */
TRM_API bool trm_comm_reaches_first(const trm_comm *comm);
/* Rank 0's `memory` (from trm_comm_alloc_shared; looked at on rank 0 only), as every rank can read
 * and write it:
 * one copy of what all have alike. Ranks order their accesses themselves (trm_comm_barrier).
 * Collective.
 *   out    *out; NULL on all where ranks are on several hosts, or threads of one process
 *   owns   rank 0; on the others valid until rank 0 frees it, or this rank's last communicator goes
 *   error  INVALID (memory of another kind), IO (this host's ranks cannot open each other's memory)
 */
TRM_API TRM_MUST_USE trm_status trm_comm_reach_first(trm_comm *comm, void *memory, size_t bytes,
                                                     void **out, trm_error *err);

/* Runs one collective and returns when this rank's buffers are free to use.
 *   error   INVALID (bad arguments, or ranks that disagree), PEER, TIMEOUT, NOMEM; PEER, TIMEOUT and
 *           disagreement poison the communicator
 *   cost    docs/internals/collectives.md
 */
TRM_API TRM_MUST_USE trm_status trm_comm_run(trm_comm *comm, const trm_collective *op,
                                             trm_error *err);
/* Starts it and returns at once. Buffers stay untouched by the caller until the request is done.
 *   owns  every request is given to trm_request_wait once more after TRM_PENDING or TIMEOUT */
TRM_API TRM_MUST_USE trm_status trm_comm_start(trm_comm *comm, const trm_collective *op,
                                               trm_request **request, trm_error *err);

/* The common three, in place, blocking.   error  as trm_comm_run */
TRM_API TRM_MUST_USE trm_status trm_comm_allreduce(trm_comm *comm, void *buffer, int64_t count,
                                                   trm_dtype dtype, trm_reduction reduce,
                                                   trm_error *err);
TRM_API TRM_MUST_USE trm_status trm_comm_broadcast(trm_comm *comm, void *buffer, int64_t count,
                                                   trm_dtype dtype, int32_t root, trm_error *err);
TRM_API TRM_MUST_USE trm_status trm_comm_barrier(trm_comm *comm, trm_error *err);

/* One side of a point-to-point message: count elements to or from `peer`. Messages between two
 * ranks arrive in order; count and type must agree on both sides. */
typedef struct trm_message {
    bool receive;
    int32_t peer;
    void *buffer; /* only read when sending */
    int64_t count;
    trm_dtype dtype;
    const char *tag;
} trm_message;

/* All messages of a batch progress together, so any pattern that pairs up completes. A send may
 * return before it is received. Errors as trm_comm_run. */
TRM_API TRM_MUST_USE trm_status trm_comm_exchange(trm_comm *comm, const trm_message *messages,
                                                  int32_t count, trm_error *err);
/* The same, asynchronous; consecutive batches progress together, collectives after them wait. */
TRM_API TRM_MUST_USE trm_status trm_comm_start_exchange(trm_comm *comm, const trm_message *messages,
                                                        int32_t count, trm_request **request,
                                                        trm_error *err);
TRM_API TRM_MUST_USE trm_status trm_comm_send(trm_comm *comm, const void *buffer, int64_t count,
                                              trm_dtype dtype, int32_t peer, trm_error *err);
TRM_API TRM_MUST_USE trm_status trm_comm_recv(trm_comm *comm, void *buffer, int64_t count,
                                              trm_dtype dtype, int32_t peer, trm_error *err);

/* Waits until the request is done, then frees it and returns the operation's status. With
 * timeout_seconds >= 0 it may return TRM_PENDING first: the request is then still the caller's. */
TRM_API trm_status trm_request_wait(trm_request *request, double timeout_seconds, trm_error *err);
/* True once done (trm_request_wait then returns at once). Never blocks. */
TRM_API bool trm_request_test(const trm_request *request);

/* TRM_OK, or the first cause that poisoned the communicator. Never blocks. */
TRM_API TRM_MUST_USE trm_status trm_comm_health(trm_comm *comm, trm_error *err);
/* Poisons it on purpose, on all ranks: their operations fail with `cause` (NULL: CANCELLED). */
TRM_API void trm_comm_abort(trm_comm *comm, const trm_error *cause);

#ifdef __cplusplus
}
#endif
#endif
