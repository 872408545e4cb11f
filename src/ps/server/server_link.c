/* SPDX-License-Identifier: Apache-2.0 */
/* The connections of a parameter server: the acceptor thread and one thread for each connection
 * (drawing in server.h).
 *
 *       acceptor thread   accepts connections; 20 times a second advances the front, drops silent workers, reaps links
 *       link threads      greet a client, receive a message, decode it, pass it to the front or answer it
 *
 * A connection has proven the job's token before it reaches this file (base/net). No thread waits
 * for a client: an answer that finds no room is sent later by the client's own link thread. */
#include "ps/server/server.h"

#include "ps/client/life.h"

#include "base/checked.h"
#include "base/error.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/net/net.h"
#include "base/os.h"

#include <stdio.h>
#include <unistd.h>

enum {
    LINKS_MAX = 4096,
    ANSWER_BYTES = 1 << 30 /* answers to one TCP client that it has not read */
};

static const double LATE_SECONDS = 0.002; /* between attempts to send a late answer */

/* Returns the clock with which a worker joins. Bounded mode: a worker that is waited for
 * continues after its last batch; a late or silent one joins at the clock of the slowest active
 * worker, so that no worker waits until it has caught up. */
static int64_t joining_clock(trm_ps_server *server, int32_t number) {
    if (server->options.mode != TRM_PS_BOUNDED) {
        return server->options.mode == TRM_PS_SYNC ? server->done_step : 0;
    }
    /* Find this worker, and the slowest of the other active ones. */
    trmi_worker *known = NULL;
    int64_t slowest = INT64_MAX;
    for (int64_t i = 0; i < server->worker_count; i++) {
        trmi_worker *w = &server->workers[i];
        if ((int64_t)w->worker == number) {
            known = w;
        } else if (w->active) {
            slowest = trmi_min_i64(slowest, w->clock);
        }
    }
    if (known != NULL && known->active) {
        return known->done; /* continue where it was */
    }
    /* A worker beyond the job's count, or one that was silent, is late. */
    bool late = known != NULL || server->worker_count >= server->options.workers;
    int64_t clock = late && slowest != INT64_MAX ? slowest : 0;
    clock = known != NULL ? trmi_max_i64(clock, known->done) : clock;
    if (known != NULL) {
        known->clock = trmi_max_i64(clock, known->clock);
    }
    return clock;
}

/* Compares the job that a client belongs to with this server's.   errors  INVALID, with both
 * origins */
static trm_status check_job(const trm_ps_server *server, const trmi_ps_note *note, trm_error *err) {
    trmi_job_mark theirs;
    trmi_ps_get_mark(note, &theirs);
    if (server->job.origin[0] == '\0' || theirs.origin[0] == '\0' ||
        memcmp(server->job.id, theirs.id, sizeof theirs.id) == 0) {
        return TRM_OK;
    }
    TRMI_FAIL(err, TRM_INVALID, "%.75s, but %.75s: give all roles of the job the same model_dir",
              theirs.origin, server->job.origin);
    trmi_log(TRM_LOG_WARN, "ps", "server %d: refused a client: %s", server->options.server,
             err->message);
    return TRM_INVALID;
}

/* Answers HELLO. The note has: 0 worker, 1 a new life, 2 bytes of the shared-memory rings that the
 * client offers (0: none), 3 and 4 their place, 9 to 12 and the text its job. The answer has the
 * incarnation, the shards, the clock with which the worker joins, and the mode. */
static void answer_hello(trm_ps_server *server, trmi_ps_link *link, trmi_request *r,
                         trmi_channel **rings) {
    trmi_ps_note *n = &r->note;
    if (n->value[0] < -1 || n->value[0] >= TRMI_PS_WORKERS_MAX - 1) {
        TRMI_FAIL(&r->err, TRM_CORRUPT, "server %d: worker %lld, -1 to %d expected",
                  server->options.server, (long long)n->value[0], TRMI_PS_WORKERS_MAX - 2);
        return;
    }
    if (check_job(server, n, &r->err) != TRM_OK) {
        return;
    }
    /* a reader pushes nothing */
    if (n->value[0] >= 0 && !trmi_front_reserve_room(server, (uint32_t)n->value[0])) {
        TRMI_NO_MEMORY(&r->err, "for worker %lld", (long long)n->value[0]);
        return;
    }
    link->worker = (int32_t)n->value[0];
    /* A worker that begins anew gets a new life; one that reconnects keeps its own. */
    uint32_t incarnation = 0;
    bool begins = link->worker >= 0 && n->value[1] != 0;
    trmi_worker *known = begins ? trmi_front_find(server, (uint32_t)link->worker) : NULL;
    if (begins &&
        trmi_server_new_life(server, (uint32_t)link->worker, known == NULL ? 0 : known->incarnation,
                             &incarnation, &r->err) != TRM_OK) {
        return;
    }
    if (known != NULL) { /* a sign of life: the earlier life may have been silent for long */
        known->greeted = trmi_os_now();
    }
    /* rings only if this process can map the client's memory */
    const trmi_ring_place place = {n->value[3], (int32_t)n->value[4]};
    bool shared = n->value[2] > 0 && trmi_ring_accept(link->channel, place, (size_t)n->value[2],
                                                      rings, NULL) == TRM_OK;
    /* the answer takes the place of the question */
    link->welcome = true;
    int64_t clock = joining_clock(server, link->worker);
    *n = (trmi_ps_note){0};
    n->value[1] = incarnation;
    n->value[2] = server->shards;
    n->value[3] = clock;
    n->value[4] = server->options.mode;
    n->value[5] = server->options.server;
    n->value[6] = server->options.servers;
    n->value[7] = shared;
    n->value[8] = atomic_load(&server->global_step);
}

/* Handles HELLO. The answer goes over the old channel; after it the link uses the rings, if they
 * were accepted. */
static void handle_hello(trm_ps_server *server, trmi_ps_link *link, trmi_request *r) {
    trmi_channel *rings = NULL;
    if (link->welcome) {
        TRMI_FAIL(&r->err, TRM_CORRUPT, "server %d: a second HELLO", server->options.server);
    } else {
        pthread_mutex_lock(&server->mutex);
        answer_hello(server, link, r, &rings);
        pthread_mutex_unlock(&server->mutex);
    }
    trmi_request_answer(r);
    if (rings != NULL) {
        link->channel = rings;
    }
}

/* Handles a pull, push or staged push: decodes it and passes it to the front. */
static void handle_rows(trm_ps_server *server, trmi_request *r) {
    if (trmi_request_decode(server, r, &r->err) != TRM_OK) {
        pthread_mutex_lock(&server->mutex);
        trmi_order_note_refused(server, r);
        pthread_mutex_unlock(&server->mutex);
        trmi_request_answer(r);
        return;
    }
    /* the front decides: run it now, keep it, or refuse it; `ready` are pulls that may run now */
    r->deadline = r->started + (double)r->header.extra[1] * 1e-3;
    trmi_request *ready = NULL;
    pthread_mutex_lock(&server->mutex);
    if (server->failed.status != TRM_OK) {
        r->err = server->failed;
        trmi_order_note_refused(server, r);
        trmi_request_answer(r);
    } else if (r->header.kind == TRMI_PS_PULL) {
        trmi_last_step_note_message(server, r);
        ready = trmi_front_pull_must_wait(server, r) ? trmi_step_advance(server) : r;
    } else if (r->header.kind == TRMI_PS_STAGE) {
        trmi_step_stage(server, r);
        ready = trmi_step_advance(server);
    } else {
        trmi_last_step_note_message(server, r);
        trmi_front_push(server, r);
        ready = trmi_step_advance(server);
    }
    pthread_mutex_unlock(&server->mutex);
    trmi_request_start_pulls(ready);
}

/* Handles the declaration of a table. */
static void handle_table(trm_ps_server *server, trmi_request *r, const trm_table_options *options) {
    int32_t number = -1;
    pthread_mutex_lock(&server->mutex);
    trm_status status = server->failed.status == TRM_OK
                            ? trmi_server_add_table(server, options, &number, &r->err)
                            : TRM_INTERNAL;
    if (server->failed.status != TRM_OK && status != TRM_OK) {
        r->err = server->failed;
    }
    pthread_mutex_unlock(&server->mutex);
    r->note = (trmi_ps_note){0};
    r->note.value[1] = number;
    trmi_request_answer(r);
}

/* Handles one message. Returns false if the connection must end: a foreign protocol, a message
 * before HELLO, no memory. */
static bool handle_message(trm_ps_server *server, trmi_ps_link *link, trmi_message *message) {
    trmi_ps_header header;
    trm_error err;
    if (trmi_ps_decode_header(message->data, message->bytes, &header, &err) != TRM_OK ||
        (!link->welcome && header.kind != TRMI_PS_HELLO)) {
        trmi_log(TRM_LOG_ERROR, "ps", "%s: not our protocol, connection closed",
                 link->channel->peer);
        link->channel->table->release(link->channel, message);
        return false;
    }
    trmi_request *r = trmi_request_new(link, message, &header);
    if (r == NULL) {
        link->channel->table->release(link->channel, message);
        return false;
    }
    /* the connection says which worker this is; the number in the message is not trusted */
    r->header.worker = link->worker < 0 ? TRMI_PS_WORKERS_MAX - 1 : (uint32_t)link->worker;
    atomic_store(&link->incarnation, header.incarnation);
    if (header.kind == TRMI_PS_PULL || header.kind == TRMI_PS_PUSH ||
        header.kind == TRMI_PS_STAGE) {
        handle_rows(server, r);
        return true;
    }
    trm_table_options table;
    if (trmi_ps_decode_note(r->message.data, r->message.bytes, &r->header, &r->note, &table,
                            &r->err) != TRM_OK) {
        trmi_request_answer(r);
        return false;
    }
    if (header.kind == TRMI_PS_HELLO) {
        handle_hello(server, link, r);
    } else if (header.kind == TRMI_PS_TABLE) {
        handle_table(server, r, &table);
    } else {
        trmi_order_handle(server, r);
    }
    return true;
}

/* Thread of a connection: sends late answers and receives messages until the connection ends. */
static void *serve_link(void *context) {
    trmi_ps_link *link = context;
    trm_ps_server *server = link->server;
    while (!atomic_load(&server->stopping)) {
        trmi_message message;
        trm_error err;
        /* Send late answers first, so that they leave in order. */
        bool late = false;
        trm_status status = trmi_request_send_late(link, &late);
        if (status == TRM_OK) {
            status = link->channel->table->receive(link->channel, late ? LATE_SECONDS : 0.1,
                                                   &message, &err);
        }
        if (status == TRM_TIMEOUT) {
            continue;
        }
        if (status != TRM_OK || !handle_message(server, link, &message)) {
            break;
        }
    }
    atomic_store(&link->ended, true);
    trmi_request_drop_late(link);
    link->channel->table->shut(link->channel);
    return NULL;
}

/* Creates a link with its thread for a channel, which it takes over.
 *   errors  NOMEM: too many connections, or no thread */
static trm_status add_link(trm_ps_server *server, trmi_channel *channel, trm_error *err) {
    trmi_ps_link *link = trmi_alloc(sizeof *link);
    if (link == NULL) {
        channel->table->destroy(channel);
        return TRMI_NO_MEMORY(err, "for a connection");
    }
    link->server = server;
    link->channel = channel;
    link->worker = -1;
    pthread_mutex_init(&link->send_mutex, NULL);
    /* the mutex is held until the link is in the list: a local client may add one at the same
     * time */
    pthread_mutex_lock(&server->mutex);
    int count = 0;
    for (const trmi_ps_link *l = server->links; l != NULL; l = l->next) {
        count++;
    }
    if (count >= LINKS_MAX || pthread_create(&link->thread, NULL, serve_link, link) != 0) {
        pthread_mutex_unlock(&server->mutex);
        channel->table->destroy(channel);
        trmi_free(link);
        return TRMI_FAIL(err, TRM_NOMEM, "server %d: no more than %d connections",
                         server->options.server, count);
    }
    link->next = server->links;
    server->links = link;
    server->links_ever++;
    pthread_mutex_unlock(&server->mutex);
    return TRM_OK;
}

void trmi_server_reap_links(trm_ps_server *server, bool all) {
    pthread_mutex_lock(&server->mutex);
    for (trmi_ps_link **at = &server->links; *at != NULL;) {
        trmi_ps_link *link = *at;
        if (!all && (!atomic_load(&link->ended) || atomic_load(&link->requests) > 0 ||
                     server->holder == link)) {
            at = &link->next;
            continue;
        }
        *at = link->next;
        pthread_mutex_unlock(&server->mutex);
        pthread_join(link->thread, NULL);
        link->channel->table->destroy(link->channel);
        pthread_mutex_destroy(&link->send_mutex);
        trmi_free(link);
        pthread_mutex_lock(&server->mutex);
        at = &server->links;
    }
    pthread_mutex_unlock(&server->mutex);
}

/* Contract in client/life.h. */
int64_t trmi_server_connections(trm_ps_server *server, int64_t *ever) {
    int64_t count = 0;
    pthread_mutex_lock(&server->mutex);
    for (const trmi_ps_link *l = server->links; l != NULL; l = l->next) {
        count += !atomic_load(&l->ended);
    }
    *ever = server->links_ever;
    pthread_mutex_unlock(&server->mutex);
    return count;
}

/* Returns whether the client that holds pushes for a snapshot has gone, or has come again on
 * another connection: it then knows nothing of the hold, and of the end of the old connection no
 * word may come. */
static bool has_holder_gone(const trm_ps_server *server) {
    const trmi_ps_link *holder = server->holder;
    bool gone = atomic_load(&holder->ended);
    for (const trmi_ps_link *l = server->links; l != holder && !gone; l = l->next) {
        gone = holder->worker >= 0 && l->worker == holder->worker; /* newer links come first */
    }
    return gone;
}

/* Releases pushes that were held for a snapshot whose client has gone before it began. */
static void release_abandoned_snapshot(trm_ps_server *server) {
    trmi_request *ready = NULL;
    pthread_mutex_lock(&server->mutex);
    if (server->holder != NULL && server->until == NULL && has_holder_gone(server)) {
        trmi_log(TRM_LOG_WARN, "ps",
                 "server %d: worker %d has gone in the middle of a checkpoint: there is none",
                 server->options.server, server->holder->worker);
        ready = trmi_order_release(server);
    }
    pthread_mutex_unlock(&server->mutex);
    trmi_request_start_pulls(ready);
}

void *trmi_server_accept_links(void *context) {
    trm_ps_server *server = context;
    while (!atomic_load(&server->stopping)) {
        trmi_channel *channel = NULL;
        trmi_session session;
        trm_status status = TRM_TIMEOUT;
        /* a server without an address has only clients of this process: just wait */
        if (server->gate != NULL) {
            status = trmi_acceptor_next(server->gate, 0.05, &session, NULL);
        } else {
            usleep(50000);
        }
        if (status == TRM_OK) {
            status = trmi_tcp_wrap(session.fd, session.peer, &channel, NULL);
        }
        /* An answer never waits for a slow client: what the socket does not take is queued. */
        if (status == TRM_OK &&
            trmi_tcp_never_wait(channel, ANSWER_BYTES, server->options.worker_timeout_seconds,
                                NULL) != TRM_OK) {
            channel->table->destroy(channel);
        } else if (status == TRM_OK) {
            (void)!add_link(server, channel, NULL);
        }
        /* steps that failed for lack of memory are tried again */
        pthread_mutex_lock(&server->mutex);
        trmi_request *ready = trmi_step_advance(server);
        pthread_mutex_unlock(&server->mutex);
        trmi_request_start_pulls(ready);
        /* checks by time: silent workers, pulls past their deadline */
        pthread_mutex_lock(&server->mutex);
        ready = trmi_front_tick(server, trmi_os_now());
        pthread_mutex_unlock(&server->mutex);
        trmi_request_start_pulls(ready);
        release_abandoned_snapshot(server);
        trmi_server_reap_links(server, false);
    }
    return NULL;
}

trm_status trmi_server_connect_local(trm_ps_server *server, size_t ring_bytes, trmi_channel **out,
                                     trm_error *err) {
    trmi_channel *theirs, *ours;
    TRMI_TRY(trmi_channel_pair(ring_bytes, &theirs, &ours, err));
    trm_status status = add_link(server, ours, err);
    if (status != TRM_OK) {
        theirs->table->destroy(theirs);
        return status;
    }
    *out = theirs;
    return TRM_OK;
}
