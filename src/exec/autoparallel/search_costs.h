/* SPDX-License-Identifier: Apache-2.0 */
/* exec/autoparallel/search_costs.h: the costs of operators for the search: measured
 * (exec/autoparallel/op_benchmark.h), kept in a file, or estimated.
 *
 *      key is known    --> measured seconds
 *      else            --> roofline x ratio, where the ratio is measured seconds / roofline of the
 *                          similar operator that is nearest in size */
#ifndef TRMI_EXEC_SEARCH_COSTS_H
#define TRMI_EXEC_SEARCH_COSTS_H

#include "exec/autoparallel/op_benchmark.h"
#include "plan/search/search.h"

/* Measurements of one operator that are kept, at most; its cost is their median. */
enum { TRMI_COSTS_MEASUREMENTS = 8 };

/* The cost of one operator with given local shapes. */
typedef struct trmi_op_cost_entry {
    char *key; /* operator, local shapes, types, threads, ranks (key_of); in the arena */
    /* measured on local shapes (forward < 0: the operator does not run alone); over the roofline */
    trmi_node_seconds seconds, ratio;
    double size; /* the roofline's forward seconds */
    /* round of the last measurement; number of measurements, whose median is `seconds` */
    int round, measurements;
    trmi_node_seconds seen[TRMI_COSTS_MEASUREMENTS];
} trmi_op_cost_entry;

/* All costs that this process knows. */
typedef struct trmi_costs {
    trmi_arena arena;         /* memory of the keys */
    trmi_op_benchmark *probe; /* NULL: nothing is measured. Borrowed */
    int threads, ranks;       /* of a rank; ranks that run during measurements */
    double flop, byte;        /* seconds a FLOP and a byte on this machine with `threads` */
    char oldest[12];          /* date of the oldest entry read from the file; "": none was */
    double factor;            /* of all costs: ranks that share cores, speed of another machine */
    /* factor (at least 1) of memory traffic in costs that were measured or estimated for one
     * rank */
    double share;
    bool refresh; /* ignore the file and measure again */
    /* present round: entries of earlier rounds are measured again, up to TRMI_COSTS_MEASUREMENTS
     * times */
    int round;
    trmi_op_cost_entry *entries; /* [count], owned */
    int64_t count, capacity;
    int64_t measured, doubted;           /* by this process; of these repeated as doubtful */
    double spent_seconds, limit_seconds; /* on measuring operators so far; at most */
    double said_seconds;                 /* trmi_costs_options.limit_seconds */
    bool replans;                        /* trmi_costs_options.replans */
    struct trmi_tuning *file;            /* NULL: not kept */
} trmi_costs;

/* The load (trmi_op_benchmark.load) from which the machine counts as busy; as quiet. */
#define TRMI_COSTS_BUSY 1.3
#define TRMI_COSTS_QUIET 1.1
/* The fraction of the register tile's rate that real operators reach, about. */
#define TRMI_COSTS_REACHED 0.6
/* Returns the fraction of a gradient's bytes that is sent with this wire type (0: float32). */
static inline double trmi_wire_part(trm_dtype wire) {
    return wire == 0 ? 1 : (double)trm_dtype_bytes(wire) / sizeof(float);
}

/* Options of trmi_costs_open. */
typedef struct trmi_costs_options {
    trmi_op_benchmark *probe; /* NULL: nothing is measured. Borrowed until close */
    const char *backend;      /* of trm_exec_options: a file of costs is for one; NULL: onednn */
    /* of trm_exec_options. NULL: costs are kept in the cache directory; else they are not kept */
    const char *tuning_file;
    int threads, ranks;   /* as in trmi_costs */
    int together;         /* threads of all ranks of this machine that run at once */
    bool refresh;         /* ignore the file and measure again */
    double limit_seconds; /* of measuring messages, as the user said; 0 = none */
    bool replans;         /* trm_split_options.replans */
} trmi_costs_options;
/* Opens the costs and their file, and finds the machine's rates.   errors  NOMEM */
trm_status trmi_costs_open(trmi_costs *costs, const trmi_costs_options *options, trm_error *err);
void trmi_costs_close(trmi_costs *costs);
/* Implements trmi_search_costs.seconds: replaces *out, the seconds by the roofline, by measured or
 * scaled ones. `context`: the trmi_costs. */
void trmi_costs_seconds(void *context, const trmi_space *space, const trmi_space_node *node,
                        const trmi_strategy *strategy, trmi_node_seconds *out);
/* Returns the time limit of measuring operators in seconds: the user's (`said`), else that of 500
 * data-parallel steps of `step` seconds, but 3 to 30 s, or 40 steps where those are longer. A
 * better plan of short steps saves little; operators of long steps take long to measure, and a plan
 * with costs that are half measured and half estimated is not reliable. */
double trmi_costs_limit(double said, double step);
/* Measures the operators of a plan whose costs are not known, those with the largest part of the
 * step first, until limit_seconds are used. Adds the number of new costs to *news. */
trm_status trmi_costs_measure(trmi_costs *costs, const trmi_space *space, const trmi_choice *choice,
                              int32_t *news, trm_error *err);
/* Returns the fraction of a plan's operator seconds that was measured; the rest is scaled or
 * estimated. */
double trmi_costs_share_known(const trmi_costs *costs, const trmi_space *space,
                              const trmi_choice *choice);
/* Returns in *text the description of messages between the probe's ranks: from the cache directory,
 * or measured if it is missing, was measured on a busier machine, or with `refresh`. Ranks that
 * wait for another plan (`replans`) take one of a busier machine, else that of the nearest number
 * of ranks, if there is one.
 * NULL without a probe of several ranks.   owns  *text, trm_free */
trm_status trmi_costs_links(trmi_costs *costs, char **text, trm_error *err);

#endif
