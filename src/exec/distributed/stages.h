/* SPDX-License-Identifier: Apache-2.0 */
/* exec/distributed/stages.h: one rank of a pipeline (plan/pipeline/stages.h).
 *
 *      ranks of a job of 2 stages x 3      stage 0:  0 1 2      inner: the ranks of one stage, which train
 *                                          stage 1:  3 4 5      it by the other ways, as a job of their own
 *                                            pipe:   0 3, 1 4, 2 5
 *
 * forward_backward calls before the last of an update only keep their batch. The last one walks the
 * schedule: for each action it points the arenas INPUT and KEPT to the copies of the action's
 * micro-batch and walks the chunk's steps. SEND copies a value to a staging slot and starts a
 * message; RECEIVE asks for messages up to the one it needs, in the order in which the sender sends
 * them, and waits for that. */
#ifndef TRMI_EXEC_STAGES_H
#define TRMI_EXEC_STAGES_H

#include "trireme/dist.h"
#include "trireme/exec.h"

#include "exec/distributed/distribution.h"
#include "plan/pipeline/stages.h"

/* Staging of one edge on this rank. */
typedef struct trmi_stage_edge {
    char *slots; /* [slots_count] messages; NULL: this rank has no part in the edge */
    int32_t slots_count;
    size_t bytes;           /* of a message */
    trm_request **requests; /* [slots_count] of the messages in the slots; NULL = none */
    int32_t asked;          /* receiver: messages asked for in this step */
} trmi_stage_edge;

/* The order in which a peer sends: edges. */
typedef struct trmi_stage_peer {
    int32_t *edges;
    int32_t count, at;
} trmi_stage_peer;

/* Numbers that are equal on all stages after a step. */
typedef struct trmi_stage_agreement {
    float loss, flags[TRMI_FLAGS];
} trmi_stage_agreement;

typedef struct trmi_stages {
    trm_comm *world;        /* of all ranks; the caller's */
    trm_comm *inner, *pipe; /* owned: ranks of this stage; ranks with this number, of all stages */
    trmi_stage_options options;
    char *begins; /* owned copy */

    /* a step */
    int32_t micro;      /* of the action that runs */
    char *fed, *inputs; /* INPUT, as callers feed it; [micros] copies of it */
    char *kept;         /* KEPT, its first copies */
    size_t inputs_bytes;
    /* memory that other stages reach (trm_exec_options.share_slots): parameters, accumulated
     * gradients, slots */
    void *shared[3];
    int32_t shared_count;
    trmi_stage_edge *edges; /* [staged->edges_count] */
    trmi_stage_peer *peers; /* [stages] */
    double loss_sum;        /* of the micro-batches so far */
    float loss;             /* their mean */
    bool valid;             /* is `agreed` of the last step? */
    trmi_stage_agreement agreed;
} trmi_stages;

extern const char trmi_stages_key;
/* Returns the state of the way; NULL: this executor runs all stages. */
static inline trmi_stages *trmi_stages_of(const struct trm_exec *exec) {
    return trmi_distribution_state(exec, &trmi_stages_key);
}

/* stages_run.c: trm_exec.walk_program: keeps a batch, or runs the schedule. */
trm_status trmi_stages_walk(struct trm_exec *exec, trm_error *err);
/* stages_messages.c: kernels of SEND and RECEIVE; UNSUPPORTED for all else. */
trm_status trmi_stages_bind(struct trm_exec *exec, trmi_kernel *kernel, trm_error *err);
trm_status trmi_stages_open_messages(struct trm_exec *exec, trm_error *err);
void trmi_stages_close_messages(struct trm_exec *exec);
/* Waits for all messages; the first error counts. */
trm_status trmi_stages_wait(struct trm_exec *exec, trm_status status, trm_error *err);
/* Begins a step: no message is asked for. */
void trmi_stages_rewind(struct trm_exec *exec);
/* stages_variables.c. Checks that a parameter which several stages hold is TRMI_PLAIN.
 *   errors  INVALID */
trm_status trmi_stages_check_shared(const struct trm_exec *exec, trm_error *err);
/* Sends the parameters that several stages hold from the stage that updates them to the others.
 * `slots`: after slots have changed, which are nowhere but there, so that none is sent. Collective.
 *   errors  those of trm_comm_exchange */
trm_status trmi_stages_publish(struct trm_exec *exec, bool slots, trm_error *err);
/* Sends the whole of variable `index`, or its gradient, from the stage that updates it to all
 * others (trmi_distribution.gather). Collective. */
trm_status trmi_stages_gather(struct trm_exec *exec, int32_t index, const void *part, void *whole,
                              trm_error *err);
/* Corrects the hold of a variable: the values of the stage that updates it count. */
void trmi_stages_hold(const struct trm_exec *exec, int32_t index, int64_t at, trmi_hold *hold);

#endif
