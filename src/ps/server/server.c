/* SPDX-License-Identifier: Apache-2.0 */
/* The life of a parameter server: its shards with their owner threads, start and stop (drawing and
 * order of a push in server.h; connections in server_link.c).
 *
 *       start   options -> shards -> state from the folder -> owner threads -> token, address, acceptor
 *       stop    acceptor -> connections, which feed the queues -> owner threads -> requests that still wait
 *
 * The owner thread of a shard runs its requests and writes its snapshots. */
#include "ps/server/server.h"

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
    WALK_ROWS = 2048,     /* rows of a snapshot written after each request */
    WALK_ROWS_IDLE = 8192 /* rows written while no request waits */
};

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
        return TRMI_FAIL(
            err, TRM_INVALID,
            "server %d: mode %d (0 to %d expected), staleness %d (0 or more), %d workers (1 or "
            "more), %d backup_workers (fewer than workers)",
            o.server, (int)o.mode, TRM_PS_SYNC, o.staleness, o.workers, o.backup_workers);
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
    server->acceptor_runs =
        pthread_create(&server->acceptor, NULL, trmi_server_accept_links, server) == 0;
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
    trmi_server_reap_links(server, true);
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
