/* SPDX-License-Identifier: Apache-2.0 */
/* exec/autoparallel/search_costs.h: what operators cost a search of plans: measured
 * (exec/autoparallel/op_benchmark.h), kept in a file, or guessed.
 *
 *      roofline --> known by key? --> measured seconds
 *                   else the roofline x what the measured operator of its kind that is nearest in
 *                   size took beyond its own */
#ifndef TRMI_EXEC_SEARCH_COSTS_H
#define TRMI_EXEC_SEARCH_COSTS_H

#include "exec/autoparallel/op_benchmark.h"
#include "plan/search/search.h"

enum { TRMI_COSTS_LOOKS = 8 };

typedef struct trmi_op_cost_entry {
    char *key;
    /* on local shapes, measured; forward < 0: cannot be by itself. Over the roofline */
    trmi_node_seconds seconds, ratio;
    double size; /* the roofline's forward seconds */
    /* in which round it was last measured; how often, and what was seen: seconds are its median */
    int look, looks;
    trmi_node_seconds seen[TRMI_COSTS_LOOKS];
} trmi_op_cost_entry;
typedef struct trmi_costs {
    trmi_arena arena;
    trmi_probe *probe;  /* NULL: nothing is measured. Borrowed */
    int threads, ranks; /* ranks that run when operators are measured; 1: one by itself */
    double flop, byte;  /* seconds, this machine's rates with `threads` */
    char oldest[12];    /* day of the oldest entry that was kept; "": all are of now */
    double factor;      /* on all: ranks that share cores, speed of the other machine */
    /* on memory traffic of what was measured or guessed for one rank by itself; at least 1 */
    double share;
    bool refresh; /* what is kept is measured again */
    /* round: what was last measured in an earlier one is measured again, up to TRMI_COSTS_LOOKS
     * times */
    int look;
    trmi_op_cost_entry *entries;
    int64_t count, capacity;
    int64_t measured, doubted; /* in this process; of these: again, because they looked wrong */
    double measure_seconds, limit_seconds;
    struct trmi_tuning *file; /* NULL: not kept */
} trmi_costs;

#define TRMI_COSTS_BUSY 1.3 /* load by others: threads take so many times as long */
#define TRMI_COSTS_REACHED                                                                         \
    0.6 /* of the register tile's rate: so much real operators reach, about */
/* How much of a gradient's bytes travels (0: float32). */
static inline double trmi_wire_part(trm_dtype wire) {
    return wire == 0 ? 1 : (double)trm_dtype_bytes(wire) / sizeof(float);
}

typedef struct trmi_costs_options {
    trmi_probe *probe;
    const char *backend, *tuning_file; /* tuning_file: a file of its own, then nothing is kept */
    int threads, ranks;
    int together; /* threads of all ranks of this machine that run at a time */
    bool refresh;
} trmi_costs_options;
trm_status trmi_costs_open(trmi_costs *costs, const trmi_costs_options *options, trm_error *err);
void trmi_costs_close(trmi_costs *costs);
/* trmi_search_costs.seconds; `context`: the costs. */
void trmi_costs_seconds(void *context, const trmi_space *space, const trmi_space_node *node,
                        const trmi_strategy *strategy, trmi_node_seconds *out);
/* Seconds to measure in: as the user has said, else those at hand, or as many as 40 steps of data
 * parallel take: what long steps are made of takes long to measure, and half measured, half guessed
 * says little. */
static inline double trmi_costs_limit(const trmi_costs *costs, double said, double step) {
    return said > 0 ? said : costs->limit_seconds > 40 * step ? costs->limit_seconds : 40 * step;
}
/* Measures what the choice uses and is not known, the largest part of the step first, as long as
 * limit_seconds last; *news: how many. */
trm_status trmi_costs_measure(trmi_costs *costs, const trmi_space *space, const trmi_choice *choice,
                              int32_t *news, trm_error *err);
/* The part of a plan's seconds of operators that was measured; the rest is scaled, or guessed. */
double trmi_costs_share_known(const trmi_costs *costs, const trmi_space *space,
                              const trmi_choice *choice);
/* Messages between the probe's ranks: kept in the cache directory, measured when missing, when the
 * machine was
 * busier then than now, or when refreshed.   owns: *text, trm_free; NULL without a probe of several ranks
 */
trm_status trmi_costs_links(trmi_costs *costs, char **text, trm_error *err);

#endif
