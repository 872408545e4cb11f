/* SPDX-License-Identifier: Apache-2.0 */
/* comm/net/runner.h: plays any schedule over any transport. */
#ifndef TRMI_COMM_RUNNER_H
#define TRMI_COMM_RUNNER_H

#include "comm/api/reduce.h"
#include "comm/schedule/schedule.h"
#include "comm/net/transport.h"

typedef struct trmi_runner {
    trmi_transport *transport;
    double spin_seconds;
    trmi_transfer *transfers;
    int64_t transfer_capacity;
    char *temp;
    size_t temp_bytes;
    bool *missing;        /* [group size] */
    uint64_t *steps_out;  /* [group size] transfers so far in this operation, to each rank */
    uint64_t *steps_in;   /* and from each */
    const void **sources; /* [group size] */
} trmi_runner;

/* What a schedule is played on. Elements are of `dtype`, in which partial results travel. */
typedef struct trmi_play {
    const trmi_schedule *schedule;
    const trmi_engine_call *op; /* for tags and errors */
    /* rank of the transport's group of each rank of the schedule; NULL: equal */
    const int32_t *ranks;
    const void *send;
    void *recv;
    trm_dtype dtype;
    trm_reduction reduce;       /* of two-source steps: sum instead of mean */
    trm_reduction final_reduce; /* of complete sums */
    int32_t divisor;
    bool background;
    uint64_t part; /* plays of one operation are told apart by it */
} trmi_play;

trm_status trmi_runner_init(trmi_runner *runner, trmi_transport *transport, trm_error *err);
void trmi_runner_free(trmi_runner *runner);
/* Plays it to the end, or fails (and poisons the job) as engine->run does. */
trm_status trmi_runner_play(trmi_runner *runner, const trmi_play *play, trm_error *err);
/* What transport->progress said, told in the terms of the operation or message; poisons the job. */
trm_status trmi_runner_explain(trmi_transport *transport, trm_status status,
                               const trmi_engine_call *op, trm_error *cause, trm_error *err);

#endif
