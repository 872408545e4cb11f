/* SPDX-License-Identifier: Apache-2.0 */
/* A client's connections: repairing them, sending again, receiving answers. client_create.c makes
 * the first connections.
 *
 * All waiting is in trmi_client_progress, which receives from one server and meanwhile serves
 * the others: it carries steps, sends the chief's sign of life, and repairs connections on which
 * a push depends. */
#include "ps/client/client.h"

#include "base/checked.h"
#include "base/error.h"
#include "base/log.h"
#include "base/memory.h"

#include <stddef.h>
#include <math.h>
#include <stdio.h>
#include <unistd.h>

static const double slice_seconds = 0.2, SAY_SECONDS = 10;
enum { BEATS = 4 }; /* signs of life of the chief in the time of one lease */
static const double stop_seconds =
    5; /* seconds to go on waiting for other workers after a requested stop */

/* ---- repairing connections ------------------------------------------------------------------- */

/* Sends this server the steps that it lacks, without waiting for an answer: other workers may
 * wait for them. */
static void send_steps_to(trm_ps_client *c, trmi_server_connection *peer, double deadline) {
    if (peer->channel == NULL || !trmi_client_steps_missing(c, peer)) {
        return;
    }
    uint64_t pushes = trmi_client_steps_settled(c);
    trmi_ps_note note = {.value = {TRMI_ORDER_STEPS, (int64_t)pushes}};
    /* after a failure, send_again carries them on the new connection */
    if (trmi_client_send_order(c, peer, &note, c->steps, c->steps_bytes, deadline) == TRM_OK) {
        peer->carried = c->steps_last;
        peer->carried_pushes = pushes;
    }
}

/* Sends all servers other than 0 the steps that they lack. */
static void send_steps(trm_ps_client *client, double deadline) {
    for (uint32_t s = 1; s < client->servers; s++) {
        send_steps_to(client, &client->peers[s], deadline);
    }
}

/* Sends the chief's sign of life to server 0 while the client waits for other servers. The
 * answer is not awaited. */
static void send_chief_heartbeat(trm_ps_client *client, double deadline) {
    trmi_server_connection *peer = &client->peers[0];
    double now = trmi_os_now();
    if (client->chief_lease == 0 || now - client->chief_said < client->chief_lease / BEATS ||
        peer->channel == NULL) {
        return;
    }
    trmi_ps_note note = {.value = {TRMI_ORDER_CHIEF, TRM_PS_CHIEF_STANDS_IN}};
    client->chief_said = now;
    (void)!trmi_client_send_order(client, peer, &note, NULL, 0, deadline);
}

/* Sends everything again that this server has not answered: steps, pushes in their order, pulls. */
static trm_status send_again(trm_ps_client *client, trmi_server_connection *peer, double deadline,
                             trm_error *err) {
    /* a new server process knows no steps: it is sent all that this worker knows */
    double now = trmi_os_now();
    peer->carried = 0;
    peer->carried_pushes = 0;
    send_steps_to(client, peer, deadline);
    /* pushes in ascending order of their numbers */
    for (uint64_t sequence = 0;;) {
        trmi_pending *next = NULL;
        for (int i = 0; i < TRMI_PUSHES_AHEAD_MAX; i++) {
            trmi_pending *p = &peer->pending[i];
            if (p->sequence > sequence && (next == NULL || p->sequence < next->sequence)) {
                next = p;
            }
        }
        if (next == NULL) {
            break;
        }
        sequence = next->sequence;
        next->sent = now;
        if (sequence <= client->delivered && !client->staging && client->mode == TRM_PS_SYNC) {
            /* all servers have this push: it is not partial any more */
            memset(next->data + offsetof(trmi_ps_header, flags), 0, sizeof(uint32_t));
        }
        client->stats.resent++;
        TRMI_TRY(trmi_client_send_now(client, peer, next->data, next->bytes, deadline, err));
    }
    /* pulls come last: the server's step or clock then contains the pushes that they may depend
     * on */
    for (int i = 0; i < TRMI_BATCHES_MAX; i++) {
        trm_ps_batch *batch = client->batches[i];
        if (batch != NULL) {
            TRMI_TRY(trmi_batch_ask_again(batch, peer, deadline, err));
        }
    }
    return TRM_OK;
}

void trmi_client_drop(trm_ps_client *client, trmi_server_connection *peer) {
    for (int i = 0; i < TRMI_BATCHES_MAX; i++) {
        if (client->batches[i] != NULL) {
            trmi_batch_forget(client->batches[i], peer);
        }
    }
    if (peer->channel != NULL) {
        peer->channel->table->destroy(peer->channel);
        peer->channel = NULL;
    }
}

/* Logs that a server is unreachable, at once and then every SAY_SECONDS. */
static void say_lost(const trm_ps_client *client, trmi_server_connection *peer, double deadline,
                     const trm_error *why) {
    const double now = trmi_os_now();
    if (now - peer->said < SAY_SECONDS || peer->address[0] == '\0') {
        return;
    }
    peer->said = now;
    trmi_log(TRM_LOG_WARN, "ps",
             "worker %u: server %d (%s) has been disconnected for %.0f s, waiting for it for %.0f "
             "s more: %s",
             client->worker, peer->number, peer->address, now - peer->lost, fmax(deadline - now, 0),
             why != NULL ? why->message : "no answer");
}

/* Returns whether this server owes an answer to a push or pull. */
static bool is_owed(const trm_ps_client *client, const trmi_server_connection *peer) {
    bool owed = trmi_client_pushes_pending(peer) > 0;
    for (int i = 0; i < TRMI_BATCHES_MAX; i++) {
        owed |= client->batches[i] != NULL && trmi_batch_owed_since(client->batches[i], peer) > 0;
    }
    return owed;
}

/* Returns whether a server may wait for a sign of this worker, although it owes the worker nothing:
 * a synchronous server that is started again does not decide on the last step of its log before
 * each of its workers has sent something (server/server_last_step.c). */
static bool may_await_report(const trm_ps_client *client, const trmi_server_connection *peer) {
    return client->mode == TRM_PS_SYNC && !client->staging && !client->reader &&
           peer->address[0] != '\0';
}

/* Sends what this server needs of the worker on a new connection: everything that it has not
 * answered, or else the last push that all servers have, as a sign of life. */
static trm_status send_what_is_awaited(trm_ps_client *client, trmi_server_connection *peer,
                                       double deadline, trm_error *err) {
    TRMI_TRY(send_again(client, peer, deadline, err));
    if (is_owed(client, peer) || !may_await_report(client, peer)) {
        return TRM_OK;
    }
    const trmi_ps_note pushed = {
        .value = {TRMI_ORDER_PUSHED, (int64_t)client->delivered, client->joined}};
    trm_status status = trmi_client_send_order(client, peer, &pushed, NULL, 0, deadline);
    return status == TRM_OK
               ? TRM_OK
               : TRMI_FAIL(err, status == TRM_NOMEM ? TRM_PEER : status,
                           "server %d (%s) gets no sign of life", peer->number, peer->address);
}

/* Repairs a connection: connects again until the deadline and sends everything unanswered again.
 * Ends early on a requested stop and when the job is over. */
static trm_status repair_connection(trm_ps_client *client, trmi_server_connection *peer,
                                    double deadline, trm_error *err) {
    trm_error cause = {0};
    trmi_client_drop(client, peer);
    peer->lost = peer->lost == 0 ? trmi_os_now() : peer->lost;
    for (;;) {
        /* Try for at most 2 s at a time, so that the checks below are made often. */
        double patience = trmi_os_now() + 2;
        trm_status status = trmi_client_connect(client, peer, false,
                                                patience < deadline ? patience : deadline, err);
        if (status == TRM_OK) {
            client->stats.reconnects++;
            peer->reconnects++;
            status = send_what_is_awaited(client, peer, deadline, err);
            if (status == TRM_OK) {
                peer->lost = peer->said = 0;
                trmi_log(TRM_LOG_INFO, "ps", "worker %u: connected to server %d again",
                         client->worker, peer->number);
                return TRM_OK;
            }
            trmi_client_drop(client, peer);
        }
        /* Other errors do not pass by waiting. The first cause is the one that is returned. */
        if (status != TRM_PEER && status != TRM_TIMEOUT && status != TRM_CORRUPT) {
            return status;
        }
        cause = cause.status == TRM_OK && err != NULL ? *err : cause;
        if (trmi_client_is_stopped(client)) {
            return trmi_client_stopped(peer, err);
        }
        if (client->options.over != NULL && client->options.over(client->options.context)) {
            return TRMI_FAIL(err, TRM_PEER, "server %d (%s) has gone, and the job is over",
                             peer->number, peer->address);
        }
        /* A chief that waits for another server must not lose its place at server 0. */
        if (peer->number != 0) {
            send_chief_heartbeat(client, deadline);
        }
        say_lost(client, peer, deadline, err);
        if (trmi_os_now() >= deadline || peer->address[0] == '\0') {
            if (err != NULL) {
                *err = cause;
            }
            return status;
        }
        usleep(50000);
    }
}

/* Contract in client.h. A broken connection is repaired once; a second failure is the caller's. */
trm_status trmi_client_send(trm_ps_client *client, trmi_server_connection *peer,
                            const uint8_t *data, size_t bytes, double deadline, trm_error *err) {
    trm_status status = peer->channel == NULL
                            ? TRM_PEER
                            : trmi_client_send_now(client, peer, data, bytes, deadline, err);
    if (status == TRM_PEER || status == TRM_TIMEOUT) {
        TRMI_TRY(repair_connection(client, peer, deadline, err));
        status = trmi_client_send_now(client, peer, data, bytes, deadline, err);
    }
    return status;
}

/* ---- answers --------------------------------------------------------------------------------- */

/* Handles the answer to a staged push: the server's finished step, or from server 0 the decided
 * steps. */
static void note_staged(trm_ps_client *client, trmi_server_connection *peer,
                        const trmi_ps_header *header, const trmi_ps_note *note,
                        const uint8_t *trailer) {
    if (header->status != TRM_OK) {
        return;
    }
    if (peer->number != 0) {
        peer->step = note->value[2];
        return;
    }
    trm_error err;
    if (trmi_client_steps_merge(client, trailer, (size_t)header->extra[0], &err) != TRM_OK &&
        client->push_err.status == TRM_OK) {
        client->push_err = err;
    }
}

/* Handles the answer to a push: frees its message, and keeps an error for the next call of the
 * user. */
static void push_answered(trm_ps_client *client, trmi_server_connection *peer,
                          const trmi_ps_header *header, const trmi_ps_note *note,
                          const trm_error *err) {
    for (int i = 0; i < TRMI_PUSHES_AHEAD_MAX; i++) {
        trmi_pending *p = &peer->pending[i];
        if (p->sequence != header->sequence || header->incarnation != client->incarnation) {
            continue;
        }
        p->sequence = 0;
        client->stats.repeated += header->status == TRM_OK && note->value[13] == 0;
        client->stats.global_step = trmi_max_i64(client->stats.global_step, note->value[1]);
        if (header->status == TRM_CANCELLED && note->value[12] != 0 && p->lease != 0) {
            client->refused_lease = p->lease;
            client->refused = *err;
        } else if (header->status != TRM_OK && client->push_err.status == TRM_OK) {
            client->push_err = *err;
        }
    }
}

/* Contract in client.h. */
trm_status trmi_client_take_push_error(trm_ps_client *c, trm_error *err) {
    if (c->push_err.status == TRM_OK) {
        return TRM_OK;
    }
    trm_status status = (trm_status)c->push_err.status;
    if (err != NULL) {
        *err = c->push_err;
    }
    c->push_err = (trm_error){0}; /* reported once */
    return status;
}

/* Handles a DONE message: the answer to a push, a refused pull, or a control request. */
static void take_done(trm_ps_client *client, trmi_server_connection *peer,
                      const trmi_ps_header *header, const trmi_message *m) {
    trmi_ps_note note;
    trm_error err = {0};
    if (trmi_ps_decode_note(m->data, m->bytes, header, &note, NULL, NULL) != TRM_OK) {
        return;
    }
    const uint8_t *trailer = m->data + trmi_ps_note_size(TRMI_PS_DONE);
    if (header->status != TRM_OK && header->extra[0] == 256) {
        trmi_error_decode(&err, trailer);
        err.status = header->status;
    }
    if (header->flags == TRMI_PS_STAGE) {
        note_staged(client, peer, header, &note, trailer);
    }
    if (header->flags == TRMI_PS_PUSH || header->flags == TRMI_PS_STAGE) {
        push_answered(client, peer, header, &note, &err);
    } else if (header->flags == TRMI_PS_PULL) {
        for (int i = 0; i < TRMI_BATCHES_MAX; i++) {
            if (client->batches[i] != NULL) {
                trmi_batch_refused(client->batches[i], peer, header->sequence, &err);
            }
        }
    } else if (header->sequence == peer->order) {
        trmi_client_take_answer(peer, header, &note,
                                trailer); /* answers to other orders are ignored */
    }
}

/* Handles one message and releases it unless a batch has taken it. */
static void take_message(trm_ps_client *client, trmi_server_connection *peer, trmi_message *m) {
    trmi_ps_header header;
    client->stats.bytes_received += (int64_t)m->bytes;
    if (trmi_ps_decode_header(m->data, m->bytes, &header, NULL) == TRM_OK) {
        if (header.kind == TRMI_PS_ROWS) {
            for (int i = 0; i < TRMI_BATCHES_MAX; i++) {
                if (client->batches[i] != NULL && m->block != NULL) {
                    trmi_batch_answer(client->batches[i], peer, &header, m);
                }
            }
        } else if (header.kind == TRMI_PS_DONE) {
            take_done(client, peer, &header, m);
        }
    }
    if (m->block != NULL) {
        peer->channel->table->release(peer->channel, m);
    }
}

/* Returns the smallest of three times, at least 0. */
static double least_of(double a, double b, double c) {
    double least = a < b ? a : b;
    least = least < c ? least : c;
    return least > 0 ? least : 0;
}

int trmi_client_pushes_pending(const trmi_server_connection *peer) {
    int count = 0;
    for (int i = 0; i < TRMI_PUSHES_AHEAD_MAX; i++) {
        count += peer->pending[i].sequence != 0;
    }
    return count;
}

/* Returns whether a push or pull has been unanswered for longer than retry_seconds: a message
 * may be lost. */
static bool is_overdue(const trm_ps_client *client, const trmi_server_connection *peer,
                       double now) {
    for (int i = 0; i < TRMI_PUSHES_AHEAD_MAX; i++) {
        if (peer->pending[i].sequence != 0 &&
            now - peer->pending[i].sent > client->options.retry_seconds) {
            return true;
        }
    }
    for (int i = 0; i < TRMI_BATCHES_MAX; i++) {
        double since =
            client->batches[i] == NULL ? 0 : trmi_batch_owed_since(client->batches[i], peer);
        if (since > 0 && now - since > client->options.retry_seconds) {
            return true;
        }
    }
    return false;
}

/* Contract in client.h. */
trm_status trmi_client_serve(trm_ps_client *client, trmi_server_connection *peer, double deadline,
                             trm_error *err) {
    trmi_message m;
    trm_status status = TRM_OK;
    while (status == TRM_OK) {
        status = peer->channel == NULL ? TRM_PEER
                                       : peer->channel->table->receive(peer->channel, 0, &m, NULL);
        if (status == TRM_OK) {
            take_message(client, peer, &m);
        }
    }
    if (status == TRM_PEER || status == TRM_END || status == TRM_CORRUPT) {
        /* Wait briefly: the server may still be starting. */
        double moment = trmi_os_now() + 0.5;
        status = repair_connection(client, peer, moment < deadline ? moment : deadline, err);
        bool is_away = status == TRM_PEER || status == TRM_TIMEOUT || status == TRM_CORRUPT;
        return is_away ? TRM_OK : status;
    }
    if (is_overdue(client, peer, trmi_os_now())) {
        /* if the connection breaks here, the next call repairs it */
        (void)!send_again(client, peer, deadline, NULL);
    }
    return TRM_OK;
}

/* Serves the other servers while the client waits for `waited`. Another server may have died with a
 * push of this worker, or wait since its start for a report of it; other workers, and through them
 * the server `waited`, are waiting for that one. */
static trm_status serve_other_servers(trm_ps_client *client, const trmi_server_connection *waited,
                                      double deadline, trm_error *err) {
    for (uint32_t s = 0; s < client->servers; s++) {
        trmi_server_connection *peer = &client->peers[s];
        if (peer == waited) {
            continue;
        }
        if (!is_owed(client, peer) &&
            (!may_await_report(client, peer) || trmi_client_is_stopped(client))) {
            continue; /* a worker that ends reports by its goodbye */
        }
        TRMI_TRY(trmi_client_serve(client, peer, deadline, err));
    }
    return TRM_OK;
}

/* Returns whether a wait for rows is given up because a stop was requested: those rows may
 * depend on other workers. */
static bool gives_up(trm_ps_client *client, double since) {
    double begin =
        trmi_client_is_stopped(client) && client->stop_seen > since ? client->stop_seen : since;
    return client->awaited != NULL && !client->awaited->outside && client->stop_seen > 0 &&
           trmi_os_now() - begin > stop_seconds;
}

/* Returns whether a server has refused the pull whose rows are awaited. */
static bool is_pull_refused(const trm_ps_client *client) {
    return client->awaited != NULL && client->awaited->err.status != TRM_OK;
}

/* Contract in client.h. Waits in slices of slice_seconds at most, so that stops, lost workers and
 * overdue messages are noticed. */
trm_status trmi_client_progress(trm_ps_client *client, trmi_server_connection *peer,
                                double deadline, trm_error *err) {
    const double begin = trmi_os_now();
    for (;;) {
        trmi_message m;
        /* each round first sends what the other servers wait for */
        send_steps(client, deadline);
        send_chief_heartbeat(client, deadline);
        double now = trmi_os_now(), left = deadline - now;
        trm_status status = TRM_PEER;
        double slice = least_of(left, slice_seconds, client->options.retry_seconds);
        if (peer->channel != NULL) {
            status = peer->channel->table->receive(peer->channel, slice, &m, err);
        }
        if (status == TRM_OK) {
            take_message(client, peer, &m);
            send_steps(client, deadline);
            return TRM_OK;
        }
        /* No message came in this slice: the wait ends if a worker of the job is lost or a stop is
         * requested. */
        if (status == TRM_TIMEOUT && client->options.lost != NULL &&
            client->options.lost(client->options.context)) {
            return TRMI_FAIL(err, TRM_PEER,
                             "another worker disconnected while this one waited for server %d",
                             peer->number);
        }
        if (status == TRM_TIMEOUT && gives_up(client, begin)) {
            return trmi_client_stopped(peer, err);
        }
        /* It also ends at the deadline; until then the other servers' answers are taken, and what
         * this server owes too long is sent again. */
        if (status == TRM_TIMEOUT) {
            if (trmi_os_now() >= deadline) {
                return TRMI_FAIL(err, TRM_TIMEOUT, "no answer from server %d (%s) for %.1f s",
                                 peer->number, peer->address, client->options.timeout_seconds);
            }
            int64_t before = peer->reconnects;
            TRMI_TRY(serve_other_servers(client, peer, deadline, err));
            if (peer->reconnects == before && is_overdue(client, peer, trmi_os_now())) {
                status = send_again(client, peer, deadline, err);
            }
        }
        if (status == TRM_PEER || status == TRM_END || status == TRM_CORRUPT) {
            /* the caller repeats what it had sent on the old connection */
            return repair_connection(client, peer, deadline, err);
        }
        if (status != TRM_OK && status != TRM_TIMEOUT) {
            return status;
        }
        if (client->push_err.status != TRM_OK || is_pull_refused(client)) {
            return TRM_OK; /* by another server: the caller may end its wait */
        }
    }
}

/* Contract in client.h. */
trm_status trmi_client_await_step(trm_ps_client *client, trmi_server_connection *peer,
                                  double deadline, trm_error *err) {
    TRMI_TRY(trmi_client_progress(client, peer, deadline, err));
    return client->mode != TRM_PS_ASYNC ? trmi_client_take_push_error(client, err) : TRM_OK;
}
