/* SPDX-License-Identifier: Apache-2.0 */
/* exec/autoparallel/op_benchmark.h: times operators and messages on the ranks that will run them,
 * on all ranks at the same time, so that sharing of cores and memory is included:
 *
 *      rank 0   search -- "operator 7 cut by k" --> all ranks: build, barrier, run, run ...
 *               search <-- median of the slowest rank --'
 *      others   trmi_op_benchmark_serve: measure what rank 0 requests, until trmi_op_benchmark_end
 *
 * Ranks with one thread are timed by CPU seconds, which other processes hardly disturb.
 */
#ifndef TRMI_EXEC_OP_BENCHMARK_H
#define TRMI_EXEC_OP_BENCHMARK_H

#include "trireme/dist.h"
#include "trireme/exec.h"

#include "exec/autoparallel/plan_benchmark.h"
#include "exec/autoparallel/progress.h"
#include "exec/autoparallel/signs_of_life.h"
#include "plan/search/links.h"
#include "plan/partition/partition.h"

/* The settings and the state of measurements. */
typedef struct trmi_op_benchmark {
    trm_comm *comm; /* NULL: a single process */
    /* training graph whose operators are measured; the same on every rank. Borrowed */
    const trm_graph *graph;
    /* Returns the training graph of one of `micros` micro-batches, the same on every rank;
     * borrowed. NULL: operators of micro-batches are not measured */
    const trm_graph *(*part)(void *context, int32_t micros, trm_error *err);
    void *context;
    int32_t micros;                    /* operators of `part` are measured; 0: those of `graph` */
    const char *backend, *tuning_file; /* as in trm_exec_options; borrowed */
    int threads;                       /* of a rank */
    int cores;                         /* CPUs of all ranks together: trmi_op_benchmark_cores */
    /* measure the kernels of strict determinism. Inputs of the measured operator are parameters,
     * not samples in blocks, so a sum over samples is measured as one block. The same on every
     * rank */
    bool strict;
    trm_optimizer_options optimizer;
    /* graph without backward, for the benchmark of plans (exec/autoparallel/plan_benchmark.h);
     * NULL: no plans are run */
    const trm_graph *whole;
    /* options of its executor; the same on every rank. Borrowed */
    const trm_exec_options *whole_options;
    /* slow-down of the ranks' threads by other processes; 1 = none */
    double load;
    /* bytes that a rank touches in a step; determines how much is read before an operator is timed;
     * 0 = unknown: 8 MB are read */
    int64_t footprint;
    /* bytes that a rank may use for measurements; larger messages and operators are not measured;
     * 0 = no limit. The same on all ranks */
    int64_t limit;
    /* rank 0: bytes of the longest message of any plan (trmi_op_benchmark_longest); much longer
     * ones are not measured; 0 = no limit */
    int64_t reach;
    /* rank 0: seconds that the next measurement may take; 0 = no limit. The ranks compare it with
     * the slowest rank's time after each run of a program, so it is passed by one run of each at
     * most */
    double seconds;
    bool brief;        /* rank 0: one of several measurements, with fewer samples */
    const char *block; /* memory for sweeps of the caches, block_bytes; owned */
    size_t block_bytes;
    trmi_progress progress; /* rank 0: progress lines */
    /* rank 0: tells the other ranks that it is still searching; NULL: outside of a session. Owned:
     * trmi_op_benchmark_end */
    trmi_signs *signs;
    /* seconds without progress after which rank 0 counts as stuck; 0 = 300, or three deadlines of
     * an operation where those are longer */
    double patience;
    atomic_ullong done;  /* rank 0: counts what the search does, for the signs of life */
    const int32_t *stop; /* rank 0: the caller's request to end the search (base/stop.h); or NULL */
} trmi_op_benchmark;

/* The times of one operator; the same on all ranks. */
typedef struct trmi_op_benchmark_time {
    double forward, backward; /* seconds: median of the slowest rank */
    /* seconds of the optimiser for weights whose gradient stays in factors; 0: none */
    double factors;
    /* (upper - lower quartile) / median, of forward and backward together */
    double spread;
} trmi_op_benchmark_time;

/* Returns the position of the first query on the rank with the last ones, which has most work. */
static inline int64_t trmi_op_benchmark_first_query(const trm_graph *graph,
                                                    const trmi_op *attention,
                                                    const trmi_strategy *strategy) {
    return trmi_input_of(graph, attention, 0)->shape.dim[1] - strategy->local_inputs[0].dim[1];
}

/* Times operator `op` of the graph, and its gradients, on the local shapes that `letters` give.
 * Rank 0, or a single process.
 *   errors  UNSUPPORTED: the operator does not run alone; NOMEM, those of peers */
trm_status trmi_op_benchmark_measure(trmi_op_benchmark *probe, int32_t op, const trmi_mesh *mesh,
                                     const char *letters, trmi_op_benchmark_time *out,
                                     trm_error *err);
/* Measures the curves of all moves for every group size, of the optimiser, and the overhead of a
 * step, and writes them as text for trmi_links_parse. Rank 0.   owns  *out: the caller,
 * trmi_text_free */
trm_status trmi_link_benchmark(trmi_op_benchmark *probe, trmi_text *out, trm_error *err);
/* Measures probe->load, in 30 ms. Rank 0. */
trm_status trmi_op_benchmark_load(trmi_op_benchmark *probe, trm_error *err);
/* Runs the plans of `benchmark` with the graph probe->whole on all ranks. Frees the memory of
 * sweeps first. Rank 0. */
trm_status trmi_op_benchmark_plans(trmi_op_benchmark *probe, const trmi_plan_benchmark *benchmark,
                                   trmi_plan_times *out, trm_error *err);
/* Begins a session on rank 0, which sends signs of life from now on: the others wait however long
 * rank 0 searches, as long as the search counts what it does (probe->done). A search that is
 * stuck ends them with TIMEOUT, which names what it was doing.
 *   errors  NOMEM: also then rank 0 calls trmi_op_benchmark_end */
trm_status trmi_op_benchmark_lead(trmi_op_benchmark *probe, trm_error *err);
/* trmi_op_benchmark_serve measures on the other ranks what rank 0 requests, until rank 0 calls
 * trmi_op_benchmark_end. */
trm_status trmi_op_benchmark_serve(trmi_op_benchmark *probe, trm_error *err);
trm_status trmi_op_benchmark_end(trmi_op_benchmark *probe, trm_error *err);

/* Words in the first line of a description of measured links. Links whose description has other
 * words are measured anew: those of earlier versions lack curves. */
#define TRMI_LINKS_FORM "(form 9)"
/* Ends a description of links that the time limit has cut short, with the limit in seconds after
 * it. */
#define TRMI_LINKS_CUT "# cut short by the limit of "
/* Returns how many message sizes are measured within limit and reach. Descriptions with fewer sizes
 * are kept in other files. */
int trmi_link_benchmark_sizes(const trmi_op_benchmark *probe);
/* Returns about the most bytes that any plan of a training graph sends at once: the largest value,
 * or all parameters. */
int64_t trmi_op_benchmark_longest(const trm_graph *graph);
/* Estimates the latency of a message (seconds) and the seconds of a byte from a small and a
 * large all-reduce, by the model of a ring: 2 (n - 1) messages. Collective; each rank gets its
 * own times. */
trm_status trmi_link_benchmark_estimate(trm_comm *comm, double *alpha, double *beta,
                                        trm_error *err);
/* link_benchmark.c: runs the part of trmi_link_benchmark of every rank; rank 0 writes the
 * text. */
trm_status trmi_link_benchmark_run(trmi_op_benchmark *probe, trmi_text *out, trm_error *err);

/* link_benchmark_waits.c: measures trmi_links.refill and .handover where ranks share cores, in CPU
 * seconds of one rank. Collective; all ranks get the same. */
trm_status trmi_link_benchmark_waits(trmi_op_benchmark *probe, double *refill, double *handover,
                                     trm_error *err);

/* op_benchmark_factors.c: times the update of an operator's weights under a strategy, with a
 * gradient in factors of `dtype`. Collective; *seconds is this rank's time, not that of the
 * slowest. */
trm_status trmi_op_benchmark_factors(trmi_op_benchmark *probe, const trmi_strategy *strategy,
                                     trm_dtype dtype, double *seconds, trm_error *err);

/* op_benchmark_time.c: returns the time of this rank's own work: CPU seconds with one thread, else
 * wall-clock seconds. */
double trmi_op_benchmark_clock(const trmi_op_benchmark *probe);
/* Reads memory, so that the caches are in the state in which a training step leaves them for an
 * operator that touches own_bytes. Reads 1/part of the bytes that a step touches between two
 * uses. */
void trmi_op_benchmark_sweep(trmi_op_benchmark *probe, int64_t own_bytes, int part);
/* Returns how many of `count` ascending sizes fit in the limit together, with `copies` of each; at
 * least `least`. */
int trmi_op_benchmark_affords(const trmi_op_benchmark *probe, const int64_t *bytes, int count,
                              int least, int copies);
/* Sorts `count` times and returns their median; medians of operators add up to that of a step
 * better than other quantiles. *spread (may be NULL): distance of the quartiles over the median. */
double trmi_op_benchmark_usual(double *times, int32_t count, double *spread);
/* Replaces values[count] by their maximum over all ranks. Collective. */
trm_status trmi_op_benchmark_largest(const trmi_op_benchmark *probe, double *values, int32_t count,
                                     trm_error *err);
/* Writes the number of CPUs that all ranks together may use to *cores. Collective. comm NULL: those
 * of this process. */
trm_status trmi_op_benchmark_cores(trm_comm *comm, int *cores, trm_error *err);
/* Frees the memory of sweeps. */
void trmi_op_benchmark_close(trmi_op_benchmark *probe);

#endif
