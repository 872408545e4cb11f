/* SPDX-License-Identifier: Apache-2.0 */
/* A parameter server: its threads, its connections, start and stop (drawing and order of a push
 * in server.h).
 *
 *       acceptor thread   accepts connections; 20 times a second advances the front, drops silent workers, reaps links
 *       link threads      receive a message, decode it, pass it to the front or answer it
 *       owner threads     one for each shard: run requests and write snapshots
 *
 * A connection has proven the job's token before it reaches this file (base/net). No thread
 * waits for a client: an answer that finds no room is sent later by the client's own link
 * thread. */
#include "ps/server/server.h"

#include "ps/client/life.h"

#include "base/arguments.h"
#include "base/checked.h"
#include "base/error.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/os.h"
#include "base/net/net.h"
#include "comm/cluster/cluster_addr.h"
#include "comm/rendezvous/token.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum {
    SHARDS_MAX_DEFAULT = 16,
    WALK_ROWS = 2048,      /* rows of a snapshot written after each request */
    WALK_ROWS_IDLE = 8192, /* rows written while no request waits */
    LINKS_MAX = 4096,
    ANSWER_BYTES = 1 << 30 /* answers to one TCP client that it has not read */
};

static const double LATE_SECONDS = 0.002; /* between attempts to send a late answer */

/* ---- owner threads --------------------------------------------------------------------------- */

/* Owner thread of a shard: takes requests from its queue, and writes a part of the snapshot
 * after each, or all the time while the queue is empty. A long snapshot thus delays a request by
 * a few thousand rows at most. */
static void *own_shard(void *context) {
    trmi_shard_thread *runner = context;
    for (;;) {
        void *item;
        /* do not wait for a request while a snapshot is being written */
        bool walking =
            trmi_snapshot_busy(runner->snapshot) && !trmi_snapshot_walk(runner->snapshot, 0);
        trm_status status = trmi_queue_pop(runner->queue, walking ? 0 : -1, &item);
        if (status == TRM_OK) {
            trmi_request *r = item;
            r->run(runner, r);
            if (!r->later) {
                trmi_request_finish(r);
            }
        } else if (status == TRM_END) {
            break;
        }
        /* The snapshot gets a short turn after a request, a long one while there is none. */
        if (runner->snapshot != NULL && trmi_snapshot_busy(runner->snapshot)) {
            trmi_snapshot_walk(runner->snapshot, status == TRM_OK ? WALK_ROWS : WALK_ROWS_IDLE);
        }
    }
    /* At the end, finish the snapshot under way: its client waits for the answer. */
    while (runner->snapshot != NULL && trmi_snapshot_busy(runner->snapshot) &&
           !trmi_snapshot_walk(runner->snapshot, WALK_ROWS_IDLE)) {
    }
    return NULL;
}

/* Creates a shard, its queue and, with a folder, its snapshot writer. Threads start later. */
static trm_status make_runner(trm_ps_server *server, uint32_t number, trm_error *err) {
    trmi_shard_thread *runner = &server->runners[number];
    const trm_ps_server_options *o = &server->options;
    trmi_row_table_place place = {
        .shards = (uint32_t)o->servers * server->shards,
        .spill_folder = o->spill_folder == NULL ? NULL : server->spill_folder,
        .initial = o->initial,
        .spill_bytes = o->spill_bytes == 0 ? 0 : o->spill_bytes / server->shards};
    runner->server = server;
    TRMI_TRY(
        trmi_shard_create(o->memory_bytes / server->shards, &place, number, &runner->shard, err));
    TRMI_TRY(trmi_queue_create(TRMI_QUEUE_PLACES, &runner->queue, err));
    return o->folder == NULL ? TRM_OK : trmi_snapshot_create(runner->shard, &runner->snapshot, err);
}

/* ---- a connection ---------------------------------------------------------------------------- */

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
    /* the worker is that of the connection, whatever the message claims */
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

/* Joins and frees the links that have ended and to which no request refers; with `all` every
 * link. */
static void reap_links(trm_ps_server *server, bool all) {
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

/* Acceptor thread: accepts connections and does the periodic work, at least every 50 ms. */
static void *accept_links(void *context) {
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
        reap_links(server, false);
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

/* ---- start and stop -------------------------------------------------------------------------- */

/* Takes the token of the options, or makes a random one for a loopback address, and publishes it
 * in a file of the user (comm/rendezvous/token.h) before any process can connect.
 *   errors  INVALID: another address without a token */
static trm_status make_token(trm_ps_server *server, const char *host, trm_error *err) {
    trm_error own;
    const void *given = server->options.token;
    if (given != NULL) {
        memcpy(server->token, given, sizeof server->token);
    } else if (!trmi_is_loopback(host)) {
        return TRMI_FAIL(err, TRM_INVALID,
                         "server %d: listening on %s needs the job's token: otherwise every "
                         "process that reaches the port could read and write the tables",
                         server->options.server, host);
    } else {
        TRMI_TRY(trmi_net_random(server->token, sizeof server->token, err));
    }
    if (trmi_token_publish(server->address, server->token, server->token_path, &own) == TRM_OK) {
        return TRM_OK;
    }
    server->token_path[0] = '\0';
    if (given == NULL && err != NULL) {
        *err = own;
    }
    return given == NULL ? own.status : TRM_OK; /* with a given token the file is not needed */
}

/* Binds the address, provides the token, and starts accepting. */
static trm_status listen_at(trm_ps_server *server, trm_error *err) {
    char host[64], name[24];
    int32_t port;
    int fd;
    snprintf(name, sizeof name, "server %d", server->options.server);
    TRMI_TRY(trmi_net_split(server->options.listen, host, &port, err));
    TRMI_TRY(trmi_net_bind(host, port, &fd, server->address, err));
    trm_status status = make_token(server, host, err);
    if (status != TRM_OK) {
        close(fd);
        return status;
    }
    /* peers prove the token in the acceptor, before a link exists */
    trmi_acceptor_options options = {
        .credentials = {.service = TRMI_SERVICE_PARAMETERS, .version = TRMI_PS_VERSION},
        .room = "ps",
        .name = name};
    memcpy(options.credentials.token, server->token, sizeof server->token);
    status = trmi_acceptor_create(&fd, 1, &options, &server->gate, err);
    explicit_bzero(&options, sizeof options);
    return status;
}

/* Checks the options and fills in defaults.
 *   errors  INVALID */
static trm_status check_options(const trm_ps_server_options *in, trm_ps_server_options *out,
                                trm_error *err) {
    trm_ps_server_options o = *in;
    /* 0 selects the default */
    o.servers = o.servers == 0 ? 1 : o.servers;
    o.workers = o.workers == 0 ? 1 : o.workers;
    o.shards =
        o.shards == 0 ? (int32_t)trmi_min_i64(trmi_os_cpu_count(), SHARDS_MAX_DEFAULT) : o.shards;
    o.memory_bytes = o.memory_bytes == 0 ? trmi_os_memory_bytes() / 5 * 4 : o.memory_bytes;
    o.worker_timeout_seconds = o.worker_timeout_seconds == 0 ? 60 : o.worker_timeout_seconds;
    if (o.server < 0 || o.servers < 1 || o.server >= o.servers || o.shards < 1 ||
        (int64_t)o.shards * o.servers > TRMI_PS_SHARDS_MAX) {
        return TRMI_FAIL(err, TRM_INVALID,
                         "server %d of %d with %d shards: a number below the count, and at most %d "
                         "shards in all expected",
                         o.server, o.servers, o.shards, TRMI_PS_SHARDS_MAX);
    }
    if (o.mode < TRM_PS_ASYNC || o.mode > TRM_PS_SYNC || o.staleness < 0 || o.workers < 1 ||
        o.backup_workers < 0 || o.backup_workers >= o.workers) {
        return TRMI_FAIL(err, TRM_INVALID,
                         "server %d: mode %d, staleness %d, %d workers of which %d are backup",
                         o.server, (int)o.mode, o.staleness, o.workers, o.backup_workers);
    }
    if ((o.log_pushes == TRM_ON || o.log_sync) && o.folder == NULL) {
        return TRMI_FAIL(err, TRM_INVALID, "server %d: log_pushes needs a folder", o.server);
    }
    *out = o;
    return TRM_OK;
}

/* Starts the owner threads and the acceptor. */
static trm_status start_threads(trm_ps_server *server, trm_error *err) {
    for (uint32_t s = 0; s < server->shards; s++) {
        trmi_shard_thread *runner = &server->runners[s];
        runner->started = pthread_create(&runner->thread, NULL, own_shard, runner) == 0;
        if (!runner->started) {
            return TRMI_FAIL(err, TRM_NOMEM, "server %d: cannot start thread %u",
                             server->options.server, s);
        }
    }
    server->acceptor_runs = pthread_create(&server->acceptor, NULL, accept_links, server) == 0;
    return server->acceptor_runs ? TRM_OK
                                 : TRMI_FAIL(err, TRM_NOMEM, "server %d: cannot start its acceptor",
                                             server->options.server);
}

/* Contract in trireme/ps.h. Order: shards, snapshot and logs, steps, kept pushes, away workers,
 * leases; the address is bound only when the state is complete, so that no client sees a
 * half-restored server. */
trm_status trm_ps_server_start(const trm_ps_server_options *options, trm_ps_server **out,
                               trm_error *err) {
    TRMI_NEED(err, options, out);
    trm_ps_server_options checked;
    TRMI_TRY(check_options(options, &checked, err));
    trm_ps_server *server;
    TRMI_TRY(TRMI_NEW(err, server, 1, "for a server"));
    trm_status status = TRM_OK;
    server->options = checked;
    /* the options before defaults say whether the count of workers was given */
    server->counted = options->workers > 0;
    server->shards = (uint32_t)checked.shards;
    server->away_fd = server->steps_fd = server->lock_fd = -1;
    pthread_mutex_init(&server->mutex, NULL);
    trmi_os_make_condition(&server->changed);
    snprintf(server->folder, sizeof server->folder, "%s",
             checked.folder == NULL ? "" : checked.folder);
    snprintf(server->spill_folder, sizeof server->spill_folder, "%s",
             checked.spill_folder == NULL ? "" : checked.spill_folder);
    /* memory, spill folder, shards */
    trmi_ps_make_mark(checked.job_id, checked.job_origin, &server->job);
    server->tables = trmi_alloc(TRMI_PS_TABLES_MAX * sizeof *server->tables);
    server->runners = trmi_alloc(server->shards * sizeof *server->runners);
    if (server->tables == NULL || server->runners == NULL) {
        status = TRMI_NO_MEMORY(err, "for a server");
        goto failed;
    }
    if (checked.spill_folder != NULL) {
        TRMI_TRY_GOTO(status, trmi_os_make_dirs(NULL, checked.spill_folder, err), failed);
    }
    TRMI_TRY_GOTO(status, trmi_lag_create(server, err), failed);
    for (uint32_t s = 0; s < server->shards; s++) {
        TRMI_TRY_GOTO(status, make_runner(server, s, err), failed);
    }
    /* Restore the state of an earlier process: snapshot and logs, steps, away workers, leases. */
    TRMI_TRY_GOTO(status, trmi_server_restore(server, err), failed);
    TRMI_TRY_GOTO(status, trmi_step_open(server, err), failed);
    TRMI_TRY_GOTO(status, trmi_kept_open(server, err), failed);
    server->chief.heard = trmi_os_now();
    TRMI_TRY_GOTO(status, trmi_server_away_open(server, trmi_front_restore_away, err), failed);
    TRMI_TRY_GOTO(status, trmi_server_lease_open(server, err), failed);
    TRMI_TRY_GOTO(status, trmi_step_settle(server, err), failed);
    TRMI_TRY_GOTO(status, trmi_server_flush_names(server, err), failed);
    /* from here on clients may connect */
    if (checked.listen != NULL) {
        TRMI_TRY_GOTO(status, listen_at(server, err), failed);
    }
    TRMI_TRY_GOTO(status, start_threads(server, err), failed);
    *out = server;
    return TRM_OK;
failed:
    trm_ps_server_stop(server);
    return status;
}

const char *trm_ps_server_address(const trm_ps_server *server) {
    TRMI_NEED_OR(NULL, NULL, server);
    return server->address;
}

/* Contract in trireme/ps.h: waits until the chief stops the server, at most timeout_seconds. */
trm_status trm_ps_server_wait(trm_ps_server *server, double timeout_seconds) {
    TRMI_NEED(NULL, server);
    const double until = trmi_os_now() + timeout_seconds;
    pthread_mutex_lock(&server->mutex);
    while (!atomic_load(&server->stop_asked) && !atomic_load(&server->goes_back) &&
           trmi_os_wait(&server->changed, &server->mutex, until)) {
    }
    pthread_mutex_unlock(&server->mutex);
    return atomic_load(&server->stop_asked)  ? TRM_OK
           : atomic_load(&server->goes_back) ? TRM_PENDING
                                             : TRM_TIMEOUT;
}

/* Answers a list of requests with CANCELLED. */
static void answer_all(const trm_ps_server *server, trmi_request *list) {
    while (list != NULL) {
        trmi_request *r = list;
        list = r->next;
        if (atomic_load(&server->goes_back)) {
            trmi_request_forget(r);
            continue;
        }
        TRMI_FAIL(&r->err, TRM_CANCELLED, "the server is stopping");
        trmi_request_answer(r);
    }
}

/* Frees a shard and what its thread uses; the thread has ended. */
static void free_runner(trmi_shard_thread *runner) {
    trmi_snapshot_destroy(runner->snapshot);
    trmi_queue_destroy(runner->queue);
    trmi_shard_destroy(runner->shard);
}

/* Stops and frees a server, also one that failed to start. Order: acceptor, links (they feed the
 * queues), owner threads, then the requests that still wait. */
void trm_ps_server_stop(trm_ps_server *server) {
    if (server == NULL) {
        return;
    }
    /* No new connections; requests that wait for others are answered with CANCELLED. */
    atomic_store(&server->stopping, true);
    if (server->gate != NULL) {
        trmi_acceptor_stop(server->gate);
    }
    if (server->acceptor_runs) {
        pthread_join(server->acceptor, NULL);
    }
    pthread_mutex_lock(&server->mutex);
    trmi_request *parked = server->parked, *waiting = server->waiting;
    server->parked = server->waiting = NULL;
    pthread_mutex_unlock(&server->mutex);
    answer_all(server, parked);
    answer_all(server, waiting);
    /* Links end before the owner threads, because they feed the queues. */
    for (trmi_ps_link *l = server->links; l != NULL; l = l->next) {
        while (!atomic_load(&l->ended)) {
            usleep(1000);
        }
    }
    for (uint32_t s = 0; s < server->shards && server->runners != NULL; s++) {
        trmi_shard_thread *runner = &server->runners[s];
        if (runner->queue != NULL) {
            trmi_queue_close(runner->queue);
        }
        if (runner->started) {
            pthread_join(runner->thread, NULL);
        }
    }
    for (uint32_t s = 0; s < server->shards && server->runners != NULL; s++) {
        free_runner(&server->runners[s]);
    }
    /* No thread is left. Requests that came in the meantime are answered, then all is freed. */
    answer_all(server, server->waiting);
    answer_all(server, server->parked);
    answer_all(server, server->later_steps);
    answer_all(server, trmi_step_close(server));
    reap_links(server, true);
    trmi_acceptor_destroy(server->gate);
    trmi_token_withdraw(server->token_path, server->token);
    trmi_server_lease_close(server);
    trmi_server_away_close(server);
    trmi_kept_close(server);
    trmi_server_unlock_folder(server);
    for (uint32_t i = 0; i < server->table_count; i++) {
        trmi_free((void *)(uintptr_t)server->tables[i].name);
    }
    trmi_free(server->tables);
    trmi_free(server->given_up);
    trmi_free(server->runners);
    trmi_lag_destroy(server);
    trmi_last_step_close(server);
    free(server->workers);
    pthread_cond_destroy(&server->changed);
    pthread_mutex_destroy(&server->mutex);
    trmi_free(server);
}
