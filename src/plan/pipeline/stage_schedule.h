/* SPDX-License-Identifier: Apache-2.0 */
/* plan/pipeline/stage_schedule.h: the order in which the ranks of a pipeline run micro-batches, as
 * data.
 *
 *      4 micro-batches on 2 stages, 1F1B         F0 = forward of micro-batch 0, B0 = its backward
 *
 *      rank 0    F0 F1 .. B0 F2 B1 F3 B2 .. B3
 *      rank 1       F0 B0 F1 B1 F2 B2 F3 B3
 *
 * The forward operators are cut into virtual stages 0, 1, ...: chunk c of the rank of stage s is
 * virtual stage c * stages + s. A schedule is an array of actions for each rank. trmi_pipeline_run
 * plays it: checks that it ends, counts the micro-batches in flight, and predicts its time.
 *
 * Invariants: each rank runs each forward and each backward of its chunks once, micro-batches in
 * order. Whether a schedule ends, and when, does not depend on the order in which the player takes
 * the ranks. */
#ifndef TRMI_PLAN_PIPELINE_STAGE_SCHEDULE_H
#define TRMI_PLAN_PIPELINE_STAGE_SCHEDULE_H

#include "trireme/base.h"

#include <stdbool.h>
#include <stdint.h>

enum {
    TRMI_STAGES_MAX = 64,         /* ranks one after the other */
    TRMI_VIRTUAL_STAGES_MAX = 256 /* stages times chunks */
};

/* The schedules of trm_schedule (trireme/exec.h), without its default. */
typedef enum trmi_pipeline_order {
    TRMI_ORDER_1F1B,
    TRMI_ORDER_GPIPE,
    TRMI_ORDER_INTERLEAVED
} trmi_pipeline_order;

/* One action of a rank: forward or backward of one micro-batch through one of its chunks. */
typedef struct trmi_pipeline_action {
    bool backward;
    int32_t chunk, micro;
} trmi_pipeline_action;

/* A schedule: for each rank an array of `count` actions. */
typedef struct trmi_pipeline {
    int32_t stages, chunks, micros; /* chunks: of each rank */
    trmi_pipeline_order order;
    int32_t count;                 /* actions of each rank: 2 * chunks * micros */
    trmi_pipeline_action *actions; /* [stages][count]; owned */
} trmi_pipeline;

/* Makes the actions of all ranks.
 *   param   chunks: of each rank; more than 1 with TRMI_ORDER_INTERLEAVED only
 *   errors  INVALID (a number that cannot be), NOMEM
 *   owns    trmi_pipeline_free(out) */
trm_status trmi_pipeline_create(trmi_pipeline_order order, int32_t stages, int32_t chunks,
                                int32_t micros, trmi_pipeline *out, trm_error *err);
void trmi_pipeline_free(trmi_pipeline *pipeline);
/* Returns the words of a schedule: "gpipe", "1f1b", "interleaved". */
const char *trmi_pipeline_order_name(trmi_pipeline_order order);

/* A value that travels from one virtual stage to another, once for each micro-batch. Edges are in
 * the order in which an action sends them. */
typedef struct trmi_pipeline_edge {
    int32_t from, to;                /* virtual stages */
    bool from_backward, to_backward; /* the action that makes it; the action that first reads it */
    double seconds;                  /* of the message; for the prediction only */
} trmi_pipeline_edge;

/* Writes the edges of a plain chain of virtual stages: one value forward and its gradient backward
 * between neighbours. `out`: [2 * (stages * chunks - 1)]; returns their number. */
int32_t trmi_pipeline_chain(const trmi_pipeline *pipeline, trmi_pipeline_edge *out);
/* Writes the edges of the messages that rank `from` sends rank `to` in a step, in their order.
 * `out`: [edges_count * micros]; NULL: only counts. Returns their number. */
int32_t trmi_pipeline_messages(const trmi_pipeline *pipeline, const trmi_pipeline_edge *edges,
                               int32_t edges_count, int32_t from, int32_t to, int32_t *out);
/* Returns how many messages of an edge rank `rank` has room for: those on the way, or waiting for
 * the action that reads them; one message between chunks of one rank has one place. 0: the rank has
 * no part in the edge. kept, waiting: of the edge (trmi_pipeline_play) */
int32_t trmi_pipeline_slots(const trmi_pipeline *pipeline, const trmi_pipeline_edge *edge,
                            int32_t rank, int32_t kept, int32_t waiting);
/* Returns whether an action of virtual stage `stage` sends (reads) the messages of an edge. */
static inline bool trmi_pipeline_sends(const trmi_pipeline_edge *edge, int32_t stage,
                                       bool backward) {
    return edge->from == stage && edge->from_backward == backward;
}
/* Returns whether a virtual stage reads the value of an edge in this phase. */
static inline bool trmi_pipeline_reads(const trmi_pipeline_edge *edge, int32_t stage,
                                       bool backward) {
    return edge->to == stage && edge->to_backward == backward;
}

/* How often the ranks of all stages add up a few numbers around their updates, as
 * exec/distributed/stages.c does: loss and flags, then the squares of all gradients, before;
 * whether an update was refused, after. */
enum { TRMI_MEETINGS_BEFORE = 2, TRMI_MEETINGS_AFTER = 1 };

/* Inputs and results of a simulated run of a schedule. The caller provides the arrays; NULL: not
 * wanted.
 *
 * `crowding` is for ranks that share cores: the seconds of the inputs hold while all stages
 * compute. A stage that waits leaves its cores to the others, so that all times are divided by
 * stages / (stages that compute), at most by `crowding`. */
typedef struct trmi_pipeline_play {
    /* seconds of forward and of backward, [virtual stages]; NULL: 1 and 2 */
    const double *forward, *backward;
    const double *after; /* seconds of work after a rank's last action, [stages]; NULL: none */
    /* the ranks meet between the last action of all of them and the work after it, and again after
     * that work (TRMI_MEETINGS_BEFORE, _AFTER), in `meeting` seconds each time: an optimiser that
     * needs the norm of all gradients */
    bool meets;
    double meeting;
    const double *behind; /* seconds of messages after all that, [stages]; NULL: none */
    double crowding;      /* threads of all ranks / their cores; at most 1: each has its own */
    int32_t *in_flight;   /* out: [virtual stages] micro-batches between forward and backward */
    /* out: [edges] copies that the sender keeps: messages that the receiver has not asked for yet;
     * with one more the sender waits. A message is read while its micro-batch is in flight, so that
     * as many as are in flight are enough */
    int32_t *kept;
    /* out: [edges] messages that the receiver has asked for and not read yet, at most */
    int32_t *waiting;
    double *starts; /* out: [stages][count] seconds at which each action begins to compute */
    double *ends;   /* out: [stages][count] seconds at which each action has computed */
    double *done;   /* out: [stages] seconds at which a rank's work after its last action ends */
    double met;     /* out: seconds at which the ranks have met before that work */
    double seconds; /* out: of the whole schedule, with what follows the last actions */
} trmi_pipeline_play;

/* Plays a schedule. Each rank runs its actions in order; an action waits for the messages that it
 * reads, and for room to send. Between two ranks messages arrive in the order in which they are
 * sent, so that a rank that waits for one asks for those before it, too.
 *   errors  INVALID (an action twice or missing, backward before forward, micro-batches of a chunk
 *           not in order, ranks that wait for each other), NOMEM */
trm_status trmi_pipeline_run(const trmi_pipeline *pipeline, const trmi_pipeline_edge *edges,
                             int32_t edges_count, trmi_pipeline_play *play, trm_error *err);

#endif
