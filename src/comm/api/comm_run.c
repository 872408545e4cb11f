/* SPDX-License-Identifier: Apache-2.0 */
/* Runs one operation to its end, in the thread that has the engines at the moment (the caller or
 * the progress thread).
 *
 *   trmi_comm_execute --> collective: trmi_net_run, or `run` of the shm engine on one host
 *                     --> messages: trmi_comm_move_messages, trmi_comm_idle_messages, in a loop
 *
 * Before each operation the health of the job is checked, so that none starts in a poisoned job. */
#include "base/error.h"
#include "base/os.h"
#include "comm/net/engines.h"

#include <stdio.h>
#include <string.h>

/* Longest sleep between two checks of the job's failure and of the deadline. */
static const double check_seconds = 0.05;
/* Passes over the messages of an exchange between two looks at the clock. */
enum { PASSES = 16 };

/* Returns the engine that moves message `m`, and sets m->peer to the peer's index in that
 * engine. */
static trmi_engine *engine_for(trm_comm *comm, trmi_engine_message *m) {
    bool self = m->rank == comm->group.rank; /* a network transport cannot send to its own rank */
    bool local = comm->net == NULL || self || (comm->local_index[m->rank] >= 0 && !comm->net_only);
    m->peer = local ? comm->local_index[m->rank] : m->rank;
    return local ? comm->shm : comm->net;
}

/* comm->turn_sent[peer] == turn means that an earlier message to that peer is not done in this
 * turn: later ones to the same peer must wait, but may be started if the engine can queue them. */
trm_status trmi_comm_move_messages(trm_comm *comm, trm_request *request, uint32_t turn, bool *moved,
                                   trm_error *err) {
    trm_status status = TRM_OK;
    for (int64_t i = 0; i < request->message_count; i++) {
        trmi_engine_message *m = &request->messages[i];
        uint32_t *held = m->receive ? comm->turn_received : comm->turn_sent;
        if (m->done) {
            continue;
        }
        int64_t before = m->moved;
        bool started = m->started;
        trmi_engine *engine = engine_for(comm, m);
        if (held[m->rank] == turn) {
            status = TRM_PENDING;
            if (!started && engine->table->start != NULL) {
                TRMI_TRY(engine->table->start(engine, m, err));
                *moved = true;
            }
            continue;
        }
        TRMI_TRY(engine->table->progress(engine, m, err));
        *moved |= m->done || m->moved != before || m->started != started;
        if (!m->done) {
            held[m->rank] = turn;
            status = TRM_PENDING;
        }
    }
    return status;
}

/* Contract in communicator.h. Called while no message moves. An exchange may have messages in
 * shared memory and on the network; each engine can sleep only for its own. */
trm_status trmi_comm_idle_messages(trm_comm *comm, trm_request *request, trm_error *err) {
    /* Find the engines that have open messages, and the peers that this rank waits for. */
    bool local = false, remote = false;
    memset(comm->missing, 0, (size_t)comm->group.size * sizeof(bool));
    for (int64_t i = 0; i < request->message_count; i++) {
        trmi_engine_message *m = &request->messages[i];
        if (!m->done) {
            comm->missing[m->rank] = true;
            *(engine_for(comm, m) == comm->shm ? &local : &remote) = true;
        }
    }
    /* With messages in both engines neither sleep covers the other: sleep 0.5 ms at most. */
    double seconds = local && remote ? 0.0005 : check_seconds;
    if (remote) {
        comm->net->table->idle(comm->net, seconds);
    } else {
        comm->shm->table->idle(comm->shm, seconds);
    }
    /* The check reads the state of the job, so it runs once in check_seconds, or at once after a
     * failure. */
    double now = trmi_os_now();
    if (trmi_bootstrap_healthy(comm->bootstrap) && now < comm->next_check_time) {
        return TRM_OK;
    }
    comm->next_check_time = now + check_seconds;
    char what[80];
    snprintf(what, sizeof what, "an exchange of %lld messages%s%s%s",
             (long long)request->message_count, request->tag != NULL ? " '" : "",
             request->tag != NULL ? request->tag : "", request->tag != NULL ? "'" : "");
    return trmi_wait_check(&request->wait, &comm->group, comm->missing, what, err);
}

/* Moves the messages of a blocking exchange until all are done: polls while messages move and for
 * the polling time after, then sleeps. With more ranks than CPUs, and in the progress thread, the
 * polling time is 0. */
static trm_status run_messages(trm_comm *comm, trm_request *request, bool background,
                               trm_error *err) {
    double spin = background || comm->crowded ? 0 : 1e-6 * comm->options.spin_microseconds;
    double sleep_time = 0; /* time at which polling ends; 0: a message has just moved */
    for (;;) {
        bool moved = false;
        for (int i = 0; i < PASSES; i++) {
            trm_status status = trmi_comm_move_messages(comm, request, ++comm->turn, &moved, err);
            if (status != TRM_PENDING) {
                return status;
            }
        }
        if (moved) {
            sleep_time = 0;
        } else if (sleep_time == 0) {
            sleep_time = trmi_os_now() + spin;
        } else if (trmi_os_now() >= sleep_time) {
            TRMI_TRY(trmi_comm_idle_messages(comm, request, err));
        }
    }
}

trm_status trmi_comm_report_failure(trm_comm *comm, const trm_request *request, trm_error *err) {
    char what[112] = "an exchange of messages";
    trm_status status = comm->bootstrap->table->check(comm->bootstrap, err);
    if (request->kind == TRMI_WORK_COLLECTIVE) {
        trmi_op_format(&request->op, what, sizeof what);
    }
    if (status != TRM_OK && err != NULL && strstr(err->message, what) == NULL) {
        trmi_error_append(err, "; rank %d has not done %s", comm->group.members[comm->group.rank],
                          what);
    }
    return status;
}

void trmi_comm_set_trace(trm_comm *comm, trmi_trace *trace) {
    atomic_store(&comm->root->trace, trace);
}

/* Contract in communicator.h. Without a trace this costs one atomic load. */
void trmi_comm_record(trm_comm *comm, const trm_request *request, bool background,
                      const char *category, double begin) {
    trmi_trace *trace = atomic_load(&comm->root->trace);
    if (trace == NULL) {
        return;
    }
    /* The name of the event is the caller's tag, if there is one. */
    bool messages = request->kind == TRMI_WORK_MESSAGES;
    const char *tag = messages ? request->tag : request->op.tag;
    trmi_trace_event event = {.category = category,
                              .name = tag != NULL ? tag
                                      : messages  ? "messages"
                                                  : "collective",
                              .bytes = -1,
                              .begin = begin,
                              .end = trmi_os_now()};
    if (!messages) {
        event.bytes = (double)request->op.count * (double)trm_dtype_bytes(request->op.dtype);
    }
    /* Operations of the progress thread overlap with the computation, so they have a track of their
     * own. */
    if (background) {
        char track[80];
        bool root = comm == comm->root;
        snprintf(track, sizeof track, "communication%s%s", root ? "" : " ", root ? "" : comm->name);
        event.track = trmi_trace_track(trace, track);
    }
    trmi_trace_add(trace, &event);
}

/* Runs a request, without the trace. */
static trm_status run_request(trm_comm *comm, trm_request *request, bool background,
                              trm_error *err) {
    if (!trmi_bootstrap_healthy(comm->bootstrap)) {
        return trmi_comm_report_failure(comm, request, err);
    }
    comm->shm->background = background;
    if (request->kind == TRMI_WORK_MESSAGES) {
        return run_messages(comm, request, background, err);
    }
    if (comm->net != NULL) {
        return trmi_net_run(comm, &request->op, background, err);
    }
    return comm->shm->table->run(comm->shm, &request->op, err);
}

trm_status trmi_comm_execute(trm_comm *comm, trm_request *request, bool background,
                             trm_error *err) {
    double begin = atomic_load(&comm->root->trace) != NULL ? trmi_os_now() : 0;
    trm_status status = run_request(comm, request, background, err);
    if (begin > 0) {
        trmi_comm_record(comm, request, background, "communication", begin);
    }
    return status;
}
