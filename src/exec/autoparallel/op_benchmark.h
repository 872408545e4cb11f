/* SPDX-License-Identifier: Apache-2.0 */
/* exec/autoparallel/op_benchmark.h: what operators and messages take on the ranks that will run them, all
 * of them at the same time:
 *
 *      rank 0   search -- "operator 7 cut by k" --> all ranks: build, barrier, run, run ... --> slowest rank's median
 *      others   trmi_probe_serve: what rank 0 asks for, until trmi_probe_end
 *
 * so that cores and memory that ranks share are in the figures. Operators are timed by CPU seconds
 * where a rank has one thread: what else the machine does counts little.
 */
#ifndef TRMI_EXEC_PROBE_H
#define TRMI_EXEC_PROBE_H

#include "trireme/dist.h"
#include "trireme/exec.h"

#include "exec/autoparallel/plan_benchmark.h"
#include "exec/autoparallel/progress.h"
#include "plan/search/links.h"
#include "plan/shard/sharding.h"

typedef struct trmi_probe {
    trm_comm *comm; /* NULL: this process by itself */
    /* its operators are measured: a training graph, the same on every rank. Borrowed */
    const trm_graph *graph;
    const char *backend, *tuning_file; /* as in trm_exec_options; borrowed */
    /* operators as programs run them whose results do not depend on the plan
     * (exec/determinism/exact.h) */
    bool exact;
    int threads; /* of a rank */
    int cores;   /* that all ranks have between them: trmi_probe_cores */
    trm_optimizer_options optimizer;
    /* what whole plans are run with (exec/autoparallel/plan_benchmark.h): NULL, or the graph before it was
     * differentiated, */
    const trm_graph *whole;
    /* and the options of its executor. The same on every rank. Borrowed */
    const trm_exec_options *whole_options;
    /* by others: how much longer the ranks' threads take than they should; 1 = the machine is ours
     */
    double load;
    /* bytes that a rank's step touches: so much is read before an operator is timed; 0 = 8 MB */
    int64_t footprint;
    /* bytes that a rank may take to measure: smaller messages, less that is swept, and operators
     * that need more are not measured; 0 = any. The same on all ranks */
    int64_t limit;
    /* rank 0: bytes of the longest message that matters (trmi_probe_longest): much longer ones are
     * not measured; 0 = any */
    int64_t reach;
    bool brief;        /* rank 0: this is one of several looks, with fewer samples */
    const char *block; /* of it, so large; owned */
    size_t block_bytes;
    trmi_progress progress; /* rank 0: what it says while it measures */
} trmi_probe;

typedef struct trmi_probe_time {
    double forward, backward; /* seconds: median, of the slowest rank */
    /* the same of the optimiser, for weights whose gradient stays in factors; 0: there are none */
    double factors;
    /* (upper - lower quartile) / median, of forward and backward together */
    double spread;
} trmi_probe_time;

/* Rank 0, or a process by itself. Operator `op` of the graph and its gradients on the local shapes
 * of `letters`.
 *   error  UNSUPPORTED (not by itself), NOMEM, those of peers */
trm_status trmi_probe_op(trmi_probe *probe, int32_t op, const trmi_mesh *mesh, const char *letters,
                         trmi_probe_time *out, trm_error *err);
/* Rank 0: curves of all moves for every group size, the optimiser, a step's overhead, as a
 * description for
 * trmi_links_parse.   owns  *out: caller, trmi_text_free */
trm_status trmi_probe_links(trmi_probe *probe, trmi_text *out, trm_error *err);
/* Rank 0: load, measured in 30 ms. */
trm_status trmi_probe_load(trmi_probe *probe, trm_error *err);
/* Rank 0: `race`'s plans, turns and times, of the probe's whole graph on its ranks. What was swept
 * with is given back first. */
trm_status trmi_probe_race(trmi_probe *probe, const trmi_race *race, trmi_race_result *out,
                           trm_error *err);
/* The other ranks, until rank 0 ends; rank 0's end, with its status: all get it. */
trm_status trmi_probe_serve(trmi_probe *probe, trm_error *err);
trm_status trmi_probe_end(trmi_probe *probe, trm_error *err);

/* How many sizes of messages are measured within the limit and the reach: fewer are curves of
 * another name. */
int trmi_probe_links_sizes(const trmi_probe *probe);
/* Bytes that plans of a training graph send at most, about: a whole value, or all parameters at
 * once. */
int64_t trmi_probe_longest(const trm_graph *graph);
/* link_benchmark.c: what every rank does for trmi_probe_links; rank 0 writes. */
trm_status trmi_probe_run_links(trmi_probe *probe, trmi_text *out, trm_error *err);

/* op_benchmark_factors.c: seconds of the update of the weights of an operator with this strategy, from a
 * gradient in factors of `dtype`. Collective, of this rank alone: not the slowest one's. */
trm_status trmi_probe_factors(trmi_probe *probe, const trmi_strategy *strategy, trm_dtype dtype,
                              double *seconds, trm_error *err);

/* op_benchmark_time.c: seconds of a rank's own work: CPU seconds with one thread. */
double trmi_probe_clock(const trmi_probe *probe);
/* Caches hold what a step leaves in them when it comes by again: less of this operator, which
 * touches own_bytes, the larger the step is. `part`: one of so many of what a step touches between
 * two uses. */
void trmi_probe_sweep(trmi_probe *probe, int64_t own_bytes, int part);
/* Of `count` rising sizes so many as `copies` of all of them together keep within the limit: at
 * least `least`. */
int trmi_probe_affords(const trmi_probe *probe, const int64_t *bytes, int count, int least,
                       int copies);
/* Median of `count` times, which are sorted: that of a step is the sum of those of its operators,
 * as quartiles are not. *spread may be NULL. */
double trmi_probe_usual(double *times, int32_t count, double *spread);
/* The largest of all ranks, element by element. */
trm_status trmi_probe_largest(const trmi_probe *probe, double *values, int32_t count,
                              trm_error *err);
/* CPUs that the ranks may use between them. Collective; NULL: this process' own. */
trm_status trmi_probe_cores(trm_comm *comm, int *cores, trm_error *err);
/* Gives back what was swept with. */
void trmi_probe_close(trmi_probe *probe);

#endif
