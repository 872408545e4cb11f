/* SPDX-License-Identifier: Apache-2.0 */
/* Messages between stages: the kernels of SEND and RECEIVE, and their staging.
 *
 *      SEND      waits until its slot is free, copies the value to it, starts the message
 *      RECEIVE   asks for the peer's messages up to its own, in the peer's order; waits; copies
 *
 * As many slots as the play of the schedule has found (plan/pipeline/stage_schedule.h) are enough:
 * no rank waits for room that only a rank that waits for it can make. */
#include "exec/distributed/stages.h"
#include "exec/exec.h"

#include "base/error.h"
#include "base/memory.h"

#include <string.h>

const char trmi_stages_key;

typedef struct message_state {
    trm_exec *exec;
    int32_t edge;
} message_state;

static bool is_local(const trmi_stages *s, const trmi_pipeline_edge *edge) {
    return edge->from % s->options.stages == edge->to % s->options.stages;
}

/* Starts the message in a slot. */
static trm_status start_message(trm_exec *exec, int32_t e, int32_t slot, bool receive,
                                trm_error *err) {
    trmi_stages *s = trmi_stages_of(exec);
    const trmi_staged *staged = exec->program->staged;
    trmi_stage_edge *edge = &s->edges[e];
    int32_t peer = receive ? staged->edges[e].from : staged->edges[e].to;
    const trm_message message = {.receive = receive,
                                 .peer = peer % s->options.stages,
                                 .buffer = edge->slots + (size_t)slot * edge->bytes,
                                 .count = staged->messages[e].count,
                                 .dtype = staged->messages[e].dtype,
                                 .tag = staged->messages[e].name};
    return trm_comm_start_exchange(s->pipe, &message, 1, &edge->requests[slot], err);
}

/* Waits for the message in a slot, if there is one. */
static trm_status finish_message(trmi_stage_edge *edge, int32_t slot, trm_error *err) {
    trm_request *request = edge->requests[slot];
    edge->requests[slot] = NULL;
    return request != NULL ? trm_request_wait(request, -1, err) : TRM_OK;
}

/* Copies a value into the edge's slot of this micro-batch and starts the message. A slot is free
 * when its last message has arrived. Between chunks of one rank the slot itself is the message. */
static trm_status run_send(const trmi_kernel *k, const trmi_kernel_env *env, trm_error *err) {
    const message_state *m = k->state;
    trmi_stages *s = trmi_stages_of(m->exec);
    trmi_stage_edge *edge = &s->edges[m->edge];
    int32_t slot = s->micro % edge->slots_count;
    TRMI_TRY(finish_message(edge, slot, err));
    memcpy(edge->slots + (size_t)slot * edge->bytes, trmi_kernel_input(k, env, 0),
           (size_t)trmi_kernel_input_buffer(k, 0)->bytes);
    return is_local(s, &m->exec->program->staged->edges[m->edge])
               ? TRM_OK
               : start_message(m->exec, m->edge, slot, false, err);
}

/* Starts to receive the messages of the peer of edge `e`, up to message `micro` of that edge. */
static trm_status ask_for(trm_exec *exec, int32_t e, int32_t micro, trm_error *err) {
    trmi_stages *s = trmi_stages_of(exec);
    trmi_stage_peer *peer = &s->peers[exec->program->staged->edges[e].from % s->options.stages];
    while (s->edges[e].asked <= micro) {
        int32_t next = peer->edges[peer->at++];
        trmi_stage_edge *edge = &s->edges[next];
        TRMI_TRY(start_message(exec, next, edge->asked++ % edge->slots_count, true, err));
    }
    return TRM_OK;
}

/* Waits for the message of this micro-batch and copies it to its buffer. */
static trm_status run_receive(const trmi_kernel *k, const trmi_kernel_env *env, trm_error *err) {
    const message_state *m = k->state;
    trmi_stages *s = trmi_stages_of(m->exec);
    trmi_stage_edge *edge = &s->edges[m->edge];
    int32_t slot = s->micro % edge->slots_count;
    if (!is_local(s, &m->exec->program->staged->edges[m->edge])) {
        TRMI_TRY(ask_for(m->exec, m->edge, s->micro, err));
        TRMI_TRY(finish_message(edge, slot, err));
    }
    memcpy(trmi_kernel_output(k, env, 0), edge->slots + (size_t)slot * edge->bytes,
           (size_t)trmi_kernel_output_buffer(k, 0)->bytes);
    return TRM_OK;
}

static void destroy_message(trmi_kernel *kernel) { trmi_free(kernel->state); }

trm_status trmi_stages_bind(trm_exec *exec, trmi_kernel *kernel, trm_error *err) {
    const trmi_step *step = kernel->step;
    bool send = step->kind == TRMI_STEP_OP && step->op_kind == TRMI_OP_SEND;
    if (!send && (step->kind != TRMI_STEP_OP || step->op_kind != TRMI_OP_RECEIVE)) {
        return TRM_UNSUPPORTED;
    }
    message_state *m;
    TRMI_TRY(TRMI_NEW(err, m, 1, "for a message"));
    *m = (message_state){.exec = exec, .edge = trmi_transfer_of(step->attrs)->edge};
    kernel->state = m;
    kernel->run = send ? run_send : run_receive;
    kernel->destroy = destroy_message;
    return TRM_OK;
}

/* ---- staging --------------------------------------------------------------------------------- */

/* Takes the memory of an edge: as many slots as the schedule has messages in flight on it. */
static trm_status open_edge(trm_exec *exec, int32_t e, trm_error *err) {
    trmi_stages *s = trmi_stages_of(exec);
    const trmi_staged *staged = exec->program->staged;
    const trmi_stage_message *m = &staged->messages[e];
    trmi_stage_edge *edge = &s->edges[e];
    edge->slots_count = trmi_stage_slots(staged, e);
    if (edge->slots_count == 0) {
        return TRM_OK;
    }
    edge->bytes = (size_t)trmi_stage_message_bytes(m);
    TRMI_TRY(TRMI_NEW_IN(err, &exec->memory, edge->requests, edge->slots_count, "for messages"));
    edge->slots = trm_comm_alloc_shared(s->pipe, edge->bytes * (size_t)edge->slots_count + 1, err);
    return edge->slots != NULL ? TRM_OK : TRM_NOMEM;
}

trm_status trmi_stages_open_messages(trm_exec *exec, trm_error *err) {
    trmi_stages *s = trmi_stages_of(exec);
    const trmi_staged *staged = exec->program->staged;
    TRMI_TRY(TRMI_NEW_IN(err, &exec->memory, s->edges, staged->edges_count + 1, "for messages"));
    TRMI_TRY(TRMI_NEW_IN(err, &exec->memory, s->peers, s->options.stages, "for messages"));
    for (int32_t e = 0; e < staged->edges_count; e++) {
        TRMI_TRY(open_edge(exec, e, err));
    }
    for (int32_t r = 0; r < s->options.stages; r++) {
        trmi_stage_peer *peer = &s->peers[r];
        peer->count = trmi_pipeline_messages(&staged->pipeline, staged->edges, staged->edges_count,
                                             r, staged->stage, NULL);
        TRMI_TRY(TRMI_NEW_IN(err, &exec->memory, peer->edges, peer->count + 1, "for messages"));
        (void)trmi_pipeline_messages(&staged->pipeline, staged->edges, staged->edges_count, r,
                                     staged->stage, peer->edges);
    }
    return TRM_OK;
}

void trmi_stages_close_messages(trm_exec *exec) {
    trmi_stages *s = trmi_stages_of(exec);
    for (int32_t e = 0; s->edges != NULL && e < exec->program->staged->edges_count; e++) {
        trm_comm_free_shared(s->pipe, s->edges[e].slots);
    }
}

trm_status trmi_stages_wait(trm_exec *exec, trm_status status, trm_error *err) {
    trmi_stages *s = trmi_stages_of(exec);
    for (int32_t e = 0; e < exec->program->staged->edges_count; e++) {
        for (int32_t slot = 0; slot < s->edges[e].slots_count; slot++) {
            trm_error later;
            trm_status ended = finish_message(&s->edges[e], slot, status == TRM_OK ? err : &later);
            status = status == TRM_OK ? ended : status;
        }
    }
    return status;
}

void trmi_stages_rewind(trm_exec *exec) {
    trmi_stages *s = trmi_stages_of(exec);
    for (int32_t e = 0; e < exec->program->staged->edges_count; e++) {
        s->edges[e].asked = 0;
    }
    for (int32_t r = 0; r < s->options.stages; r++) {
        s->peers[r].at = 0;
    }
}
