/* SPDX-License-Identifier: Apache-2.0 */
/* comm/net/runner.h: the interpreter of schedules. It runs any schedule over any transport. */
#ifndef TRMI_COMM_RUNNER_H
#define TRMI_COMM_RUNNER_H

#include "comm/api/reduce.h"
#include "comm/schedule/schedule.h"
#include "comm/net/transport.h"

/* The interpreter of one transport, with the buffers that it reuses. */
typedef struct trmi_runner {
    trmi_transport *transport;    /* borrowed */
    double spin_seconds;          /* polling time before it sleeps */
    trmi_net_transfer *transfers; /* [transfer_capacity] the transfers of the present round */
    int64_t transfer_capacity;    /* capacity of `transfers` */
    char *temp;                   /* the schedule's temporary buffer */
    size_t temp_bytes;            /* length of `temp`, that of the largest schedule so far */
    bool *missing;                /* [group size] scratch: the peers that a round waits for */
    uint64_t *steps_out;  /* [group size] transfers so far in this operation, to each rank */
    uint64_t *steps_in;   /* [group size] and from each rank */
    const void **sources; /* [group size + 1] scratch: inputs of a sum */
} trmi_runner;

/* One run of a schedule: its buffers, whose elements have type `dtype` (the partial type, where
 * partial results travel), and its operation. */
typedef struct trmi_play {
    const trmi_schedule *schedule; /* this rank's steps */
    const trmi_engine_call *op;    /* for tags and errors */
    /* [schedule size] number of each rank of the schedule in the transport's group; NULL: the
     * same */
    const int32_t *ranks;
    const void *send;           /* input of this rank */
    void *recv;                 /* output of this rank */
    trm_dtype dtype;            /* of the elements that travel */
    trm_reduction reduce;       /* operation of two-source steps: sum for a mean */
    trm_reduction final_reduce; /* operation of steps that complete a sum */
    int32_t divisor;            /* of final_reduce, if that is a mean */
    bool background;            /* run by the progress thread: do not poll */
    uint64_t part;              /* distinguishes several runs of one operation in the tags */
} trmi_play;

/* Initialises a runner for `transport`, which it borrows.
 *   errors  NOMEM */
trm_status trmi_runner_init(trmi_runner *runner, trmi_transport *transport, trm_error *err);
void trmi_runner_free(trmi_runner *runner);
/* Runs the schedule to its end. On failure it poisons the job and returns the first cause, as
 * engine->run does. */
trm_status trmi_runner_play(trmi_runner *runner, const trmi_play *play, trm_error *err);
/* Turns a failure of transport->progress (`status`, `cause`) into an error in terms of the
 * operation (`op`, NULL for messages) and poisons the job. Returns the status of the job's first
 * cause. */
trm_status trmi_runner_explain(trmi_transport *transport, trm_status status,
                               const trmi_engine_call *op, trm_error *cause, trm_error *err);

#endif
