/* SPDX-License-Identifier: Apache-2.0 */
/* bench/bench.h: the measurements of `trireme bench` other than trainings. A small library of the
 * program and the tests; libtrireme does not hold it.
 *
 * Collectives, servers and workers are measured through the public headers. Four kernels are
 * measured by themselves, beside the public functions that they are inside of, and need internal
 * headers:
 *
 *   comm_bound.c     sums in shared memory without a collective: comm/api/communicator.h, reduce.h
 *   data_bench.c     one thread of a dataset, without its queue: data/pipeline/dataset.h
 *   ps_*.c           a table of rows without a server, its forecast: ps/table/table.h
 *   ps_bench.c       a server tells how many clients it has: ps/client/life.h
 *
 * Memory, errors, clocks and random numbers are those of base. */
#ifndef TRMI_BENCH_H
#define TRMI_BENCH_H

#include "trireme/dist.h"
#include "trireme/data.h"
#include "trireme/ps.h"

/* ---- collectives (comm_bench.c) -------------------------------------------------------------- */

typedef struct bench_comm_options {
    trm_collective_kind kind; /* default TRM_ALLREDUCE */
    trm_dtype dtype;          /* default TRM_FLOAT32 */
    trm_reduction reduce;     /* default TRM_REDUCTION_SUM */
    double seconds;           /* of each size, about; default 0.3 */
    bool private_buffers;     /* buffers outside shared memory, as those of third-party programs */
    bool no_roofline;
} bench_comm_options;

/* One line of hccl_test's and nccl-tests' tables. bytes is the size of the full vector (nccl-tests'
 * convention); busbw is algbw times 2(n-1)/n for all-reduce, (n-1)/n for all-gather, reduce-scatter
 * and all-to-all, 1 for the rest. */
typedef struct bench_comm_result {
    int64_t bytes;
    int64_t repeats;
    double microseconds; /* median; the slowest rank counts */
    double minimum_microseconds, maximum_microseconds;
    double algbw_gb_s, busbw_gb_s;
    /* All-reduce inside one host: the time of a bound over the time of the all-reduce, measured
     * alternately. The bound is the time in which ranks sum into each other's buffers between two
     * bare barriers. With more ranks than CPUs one rank per CPU sums for all, and the time of a
     * bare barrier of all ranks is added. 0: there is no bound. */
    double roofline_microseconds, roofline_fraction;
    double roofline_sum_microseconds; /* its sum alone */
    int64_t wrong; /* elements that differ from the expected value, on all ranks; -1 not checked */
} bench_comm_result;

/* Measures one size, at least an element a rank where ranks have blocks of the vector. Collective;
 * the result is the same on every rank. */
TRM_MUST_USE trm_status bench_comm(trm_comm *comm, int64_t bytes, const bench_comm_options *options,
                                   bench_comm_result *result, trm_error *err);

/* ---- data (data_bench.c) --------------------------------------------------------------------- */

typedef struct bench_data_rate {
    int64_t samples;
    double microseconds_per_sample; /* median over batches of one thread's CPU time: read, decode,
                                     * transform, store */
    /* Where all samples are JPEG: libjpeg-turbo's own full decode of the same bytes to RGB, in
     * turns with the above in the same run, and the median over batches of its time over ours; 0
     * otherwise. */
    double decode_microseconds_per_sample, decode_ratio;
} bench_data_rate;
/* Runs the pipeline of an unread dataset on the calling thread for about `seconds`.
 *   errors  INVALID (it has been read), those of trm_dataset_next, NOMEM */
TRM_MUST_USE trm_status bench_dataset(trm_dataset *dataset, double seconds, bench_data_rate *out,
                                      trm_error *err);

/* ---- parameter servers (ps_bench.c) ---------------------------------------------------------- */

typedef struct bench_ps_options {
    int64_t rows;       /* 0 = as many 16 x float32 rows as half the memory, at most 16 Mi */
    int64_t batch;      /* keys a call; 0 = 65536 */
    int32_t repeats;    /* 0 = 7 */
    int32_t shards;     /* of the server; 0 = 1 */
    const char *folder; /* for checkpoints; NULL = none are measured */
    /* If not 0, only this is measured: a table of that many bytes of memory is filled and trained
     * within a budget, and rows beyond the budget are spilled to `folder`. */
    int64_t table_bytes;
    int64_t memory_bytes; /* the budget; 0 = what the table is forecast to need and 5 % more */
    int32_t width;        /* of its rows; 0 = 16 */
    /* On two hosts: one process listens until the other has measured, the other connects. */
    const char *listen, *connect;
    const void *token; /* as in trm_ps_server_options */
    trm_dtype wire;    /* 0 = float32 */
    bool tcp_only;     /* no shared memory on one host */
} bench_ps_options;

/* Called once per measurement.   name  "read", "update.rowwise_adagrad", ...
 *   median, minimum, maximum of `repeats` runs in `unit` ("rows/s", "GB/s", "ratio", ...) */
typedef void (*bench_ps_report)(void *context, const char *name, const char *unit, double median,
                                double minimum, double maximum, int32_t repeats);

/* Measures this machine: keyed reads and updates of a table far larger than the cache, and their
 * ratios to plain prefetched
 * gathers of as many rows in the same run: `gather.sum` (16 ahead, rows are summed, a table of 4
 * GiB) and the harder
 * `gather.plain` (32 ahead, rows are copied, as many as the table has); pull and push of a worker
 * at
 * Criteo's shape (26 keys, width 16, batch 4096) beside a plain gather and update of the same rows;
 * checkpoints beside training; the start of a server from one.
 *   errors  NOMEM, IO   thread  one; a server in this process has its own threads */
TRM_MUST_USE trm_status bench_ps(const bench_ps_options *options, bench_ps_report report,
                                 void *context, trm_error *err);

#endif
