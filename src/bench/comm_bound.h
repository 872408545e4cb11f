/* SPDX-License-Identifier: Apache-2.0 */
/* bench/comm_bound.h: the least time that this host's memory allows an all-reduce: ranks sum into
 * each other's buffers between two bare barriers. It reads the layout of shared memory and calls
 * the kernels of sums, so it includes internal headers of comm; comm_bench.c needs none. */
#ifndef TRMI_COMM_BOUND_H
#define TRMI_COMM_BOUND_H

#include "trireme/dist.h"

/* BENCH_SUMMING: between two bare barriers every rank sums its slice of all buffers into all
 * buffers. With more ranks than CPUs one rank per CPU does so for all, while the others sleep.
 * BENCH_BARRIER: a bare barrier of all ranks. With more ranks than CPUs no sum can begin before
 * each rank has had a CPU, so the time of this barrier is added. */
typedef enum bench_bound_kind { BENCH_SUMMING, BENCH_BARRIER, BENCH_BOUNDS } bench_bound_kind;

/* A bound; NULL where it does not apply. */
typedef struct bench_bound bench_bound;
/* Prepares a bound of an operation over vectors of `vector` elements: which ranks meet and sum, the
 * shared regions, and this rank's slice. Collective. *out: NULL where the operation is no
 * all-reduce within this host, and for BENCH_BARRIER where each rank has a CPU.
 *   errors  NOMEM, those of trm_comm_run
 *   owns    caller: bench_free_bound(*out) */
trm_status bench_make_bound(trm_comm *comm, const trm_collective *op, int64_t vector,
                            bench_bound_kind kind, bench_bound **out, trm_error *err);
/* Runs the bound `times` times: meet, sum the own slice, wait for all slices. */
void bench_run_bound(bench_bound *bound, int64_t times);
/* Frees a bound that no rank runs any more. NULL is accepted. */
void bench_free_bound(trm_comm *comm, bench_bound *bound);

#endif
