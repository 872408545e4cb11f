/* SPDX-License-Identifier: Apache-2.0 */
/* Snapshots of all servers, driven by the client of the chief:
 *
 *       HOLD      each server holds new pushes back and reports the last push of each worker, and its step
 *       SNAPSHOT  with the latest push of each worker on any server, and the latest step: lets pushes
 *                 up to those go, waits for them, begins to write, and releases the held pushes;
 *                 answers when the files are written
 *       RELEASE   all files of all servers exist: writes the manifest (or gives the snapshot up)
 *
 * Invariant: a server that holds is released: by SNAPSHOT, by RELEASE, or when the connection of
 * the client that holds has ended. */
#include "ps/server/server.h"
#include "ps/snapshot/snapshot_manifest.h"

#include "base/checked.h"
#include "base/error.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/os.h"

#include <stdio.h>
#include <string.h>

static const double hold_seconds =
    30; /* seconds to wait for pushes that other servers have applied already */

/* HOLD: begins to hold pushes back and answers with the last push of each worker. A push that only
 * some shards had when this server started comes again: the snapshot waits for it as for one that
 * another server has.
 *   errors  CANCELLED: not the chief; INVALID: no folder; TIMEOUT: another snapshot is under way */
void trmi_order_hold(trm_ps_server *server, trmi_request *r) {
    if (!trmi_chief_allows(server, r)) {
        return;
    }
    if (server->failed.status != TRM_OK) { /* a shard lacks a step */
        r->err = server->failed;
        return;
    }
    if (server->options.folder == NULL) {
        TRMI_FAIL(&r->err, TRM_INVALID, "server %d has no folder for checkpoints",
                  server->options.server);
        return;
    }
    /* the client of the other snapshot has gone or given up */
    if (server->held || atomic_load(&server->writing) > 0) {
        TRMI_FAIL(&r->err, TRM_TIMEOUT, "server %d: another checkpoint is being %s",
                  server->options.server, server->held ? "taken" : "written");
        return;
    }
    /* the answer lists the last push of each worker: the client combines those of all servers */
    r->trailer = trmi_alloc((size_t)server->worker_count * sizeof(trmi_push_id) + 1);
    if (r->trailer == NULL) {
        TRMI_NO_MEMORY(&r->err, "for a checkpoint");
        return;
    }
    for (int64_t i = 0; i < server->worker_count; i++) {
        const trmi_worker *w = &server->workers[i];
        const uint64_t last = w->dispatched > w->begun ? w->dispatched : w->begun;
        trmi_push_id id = {w->worker, w->incarnation, last};
        memcpy(r->trailer + (size_t)i * sizeof id, &id, sizeof id);
    }
    r->trailer_bytes = (size_t)server->worker_count * sizeof(trmi_push_id);
    /* also the newest snapshot, whether the next must be full, and the step */
    r->note.value[1] = server->newest_number;
    r->note.value[2] = server->last_snapshot_failed ||
                       server->last_snapshot < server->newest_number || server->last_snapshot == 0;
    r->note.value[3] = server->step;
    /* from here on no push is dispatched */
    server->until_step = server->step;
    server->held = true;
    server->holder = r->link;
}

/* Ends the hold and returns the requests that may go on. */
static trmi_request *release_hold(trm_ps_server *server) {
    server->held = false;
    server->holder = NULL;
    server->until = NULL;
    server->until_count = 0;
    server->until_step = 0;
    while (server->later_steps != NULL) {
        trmi_request *r = server->later_steps;
        server->later_steps = r->next;
        trmi_step_order(server, r);
        trmi_request_answer(r);
    }
    return trmi_step_advance(server);
}

/* Returns whether a request comes from the client that holds the pushes, if there is one, over any
 * connection of this life: a client that has been slow may end its snapshot when another one has
 * begun the next. Readers (worker -1) are known by their connection only. */
static bool is_of_holder(const trm_ps_server *server, const trmi_request *r) {
    const trmi_ps_link *holder = server->holder, *link = r->link;
    return holder == NULL || holder == link ||
           (holder->worker >= 0 && holder->worker == link->worker &&
            atomic_load(&holder->incarnation) == atomic_load(&link->incarnation));
}

trmi_request *trmi_order_release(trm_ps_server *server) {
    /* after SNAPSHOT, `until` is set and trmi_order_snapshot itself releases */
    return server->held && server->until == NULL ? release_hold(server) : NULL;
}

/* Returns whether the snapshot has a step that this server has not dispatched. Where pushes are
 * staged it has none: the client has brought all decided steps. */
static bool lacks_a_step(const trm_ps_server *server) {
    return server->options.mode == TRM_PS_SYNC && !server->staging &&
           server->step < server->until_step;
}

/* Handles pushes that did not come in time: an error in synchronous mode, where the snapshot
 * must be of one step on all servers, else a warning.
 *   missing  one of the pushes; NULL: none, or SYNC */
static void say_missing(const trm_ps_server *server, const trmi_push_id *missing, trmi_request *r) {
    if (lacks_a_step(server)) {
        TRMI_FAIL(&r->err, TRM_PEER,
                  "server %d is at step %lld, another server at %lld: the pushes of the steps "
                  "between have not come, "
                  "or their workers have not reported, for %.0f s: no checkpoint",
                  server->options.server, (long long)server->step, (long long)server->until_step,
                  hold_seconds);
    }
    if (missing == NULL) {
        return;
    }
    trmi_log(TRM_LOG_WARN, "ps",
             "server %d: push %llu of worker %u has not come for %.0f s: the checkpoint goes on "
             "without it",
             server->options.server, (unsigned long long)missing->sequence, missing->worker,
             hold_seconds);
}

/* Returns whether a push comes after another one of its worker. Each life counts anew. */
static bool is_later(const trmi_push_id *id, const trmi_push_id *other) {
    return id->incarnation != other->incarnation ? id->incarnation > other->incarnation
                                                 : id->sequence > other->sequence;
}

bool trmi_order_is_missing(const trm_ps_server *server, const trmi_push_id *id) {
    const trmi_worker *w = trmi_front_find(server, id->worker);
    const trmi_push_id *last = trmi_front_find_given_up(server, id->worker);
    bool is_known = w != NULL && w->incarnation >= id->incarnation;
    bool has_more = is_known && (w->incarnation > id->incarnation || w->dispatched >= id->sequence);
    return !has_more && (last == NULL || is_later(id, last)) && id->sequence > 0;
}

/* Returns the first push that is missing here, NULL: none. Synchronous steps are counted
 * instead. */
static const trmi_push_id *find_missing(const trm_ps_server *server) {
    for (uint32_t i = 0; i < server->until_count && server->options.mode != TRM_PS_SYNC; i++) {
        if (trmi_order_is_missing(server, &server->until[i])) {
            return &server->until[i];
        }
    }
    return NULL;
}

/* Records that snapshots do not wait for this push of a worker, nor for those before it. A worker
 * that is connected to other servers only takes no room that is reserved for those connected here.
 * Returns false if there is no memory: snapshots then wait. */
static bool give_up_push(trm_ps_server *server, const trmi_push_id *id) {
    trmi_push_id *at = trmi_front_find_given_up(server, id->worker);
    if (at == NULL && !trmi_front_reserve_room(server, id->worker)) {
        return false;
    }
    if (at == NULL) {
        at = &server->given_up[server->given_up_count++];
        *at = (trmi_push_id){.worker = id->worker};
    }
    *at = is_later(id, at) ? *id : *at;
    return true;
}

/* Notes the missing pushes, so that the next snapshots do not wait for them: a worker that has died
 * for good would hold all others up in each. */
static void give_up_missing(trm_ps_server *server) {
    const trmi_push_id *id;
    do {
        id = find_missing(server);
    } while (id != NULL && give_up_push(server, id));
}

void trmi_order_note_refused(trm_ps_server *server, const trmi_request *r) {
    const trmi_push_id id = {r->header.worker, r->header.incarnation, r->header.sequence};
    if (r->header.kind == TRMI_PS_PUSH && server->options.mode != TRM_PS_SYNC) {
        (void)give_up_push(server, &id);
    }
}

/* Lets the pushes up to `until` go and waits for them, at most hold_seconds, because their
 * worker may have died after it reached only some servers. The front mutex is released while
 * waiting: the client may give the snapshot up, and another one may hold the pushes then. Returns
 * whether this snapshot still does. */
static bool gather_pushes(trm_ps_server *server, const trmi_push_id *until, trmi_request *r) {
    trmi_request *ready = trmi_step_advance(server);
    pthread_mutex_unlock(&server->mutex);
    trmi_request_start_pulls(ready);
    pthread_mutex_lock(&server->mutex);
    double deadline = trmi_os_now() + hold_seconds;
    while (server->until == until) {
        const trmi_push_id *missing = find_missing(server);
        bool waits = missing != NULL || lacks_a_step(server);
        if (!waits || trmi_os_now() > deadline || atomic_load(&server->stopping)) {
            say_missing(server, missing, r);
            give_up_missing(server);
            return true;
        }
        (void)trmi_os_wait(&server->changed, &server->mutex, trmi_os_now() + 0.02);
    }
    TRMI_FAIL(&r->err, TRM_PEER, "server %d: snapshot %lld was given up", server->options.server,
              (long long)r->note.value[1]);
    return false;
}

/* Adds the file that a shard has written to the answer. */
static void snapshot_done(void *context, trm_status status, const trmi_snapshot_file *file,
                          const trm_error *err) {
    trmi_request *r = context;
    atomic_fetch_sub(&r->server->writing, 1);
    if (status != TRM_OK) {
        trmi_request_fail(r, err);
    } else {
        pthread_mutex_lock(&r->mutex);
        memcpy(r->trailer + r->trailer_bytes, file, sizeof *file);
        r->trailer_bytes += sizeof *file;
        pthread_mutex_unlock(&r->mutex);
    }
    trmi_request_finish(r);
}

/* Begins the snapshot on one shard, and a new log with it. Runs in the queue before all pushes
 * that were held back. A broken shard refuses: it lacks a push that this server counts as
 * dispatched and that other servers may have, or has half of it. */
static void run_snapshot(trmi_shard_thread *runner, trmi_request *r) {
    trm_ps_server *server = runner->server;
    uint32_t number = (uint32_t)r->note.value[1];
    char folder[300], path[400];
    trm_error err;
    trmi_snapshot_folder(server->folder, number, folder, sizeof folder);
    trmi_snapshot_options o = {.folder = folder,
                               .number = number,
                               .differential = r->note.value[2] != 0,
                               .server = (uint32_t)server->options.server,
                               .servers = (uint32_t)server->options.servers};
    trm_status status = (trm_status)runner->shard->broken.status;
    if (status != TRM_OK) {
        err = runner->shard->broken;
    } else {
        status = trmi_snapshot_begin(runner->snapshot, &o, snapshot_done, r, &err);
    }
    if (status == TRM_OK && server->options.log_pushes == TRM_ON) {
        trmi_log_path(server, runner->shard->number, number, path, sizeof path);
        trm_error log_err;
        if (trmi_shard_log_open(runner->shard, NULL, path, server->options.log_sync, &log_err) !=
                TRM_OK ||
            trmi_shard_log_held(runner->shard, &log_err) != TRM_OK ||
            trmi_server_flush_names(server, &log_err) != TRM_OK) {
            /* the snapshot will be complete, but later pushes would be lost: the shard serves no
             * more */
            trmi_request_fail(r, &log_err);
            runner->shard->broken = log_err;
        }
    }
    if (status != TRM_OK) {
        atomic_fetch_sub(&server->writing, 1);
        trmi_request_fail(r, &err);
        trmi_request_finish(r);
    }
}

/* Prepares the request of a snapshot whose pushes are gathered: run_snapshot is to run on the
 * shards. Sets r->err if it cannot be taken. */
static void prepare_snapshot(trm_ps_server *server, trmi_request *r) {
    uint32_t number = (uint32_t)r->note.value[1];
    /* a differential snapshot needs the one before it */
    bool base_is_here = number == server->last_snapshot + 1 && !server->last_snapshot_failed &&
                        server->last_snapshot > 0;
    if (r->err.status != TRM_OK) {
        return;
    }
    if (r->note.value[2] != 0 && !base_is_here) {
        TRMI_FAIL(&r->err, TRM_INVALID,
                  "server %d: no snapshot %u to be different from: take a full checkpoint",
                  server->options.server, number - 1);
        return;
    }
    server->last_snapshot = server->newest_number = number;
    server->last_snapshot_failed = true; /* until RELEASE confirms all files */
    r->run = run_snapshot;
    r->later = true;
    atomic_store(&server->writing, (int32_t)server->shards);
}

/* SNAPSHOT: collects the pushes that belong to the snapshot, then dispatches run_snapshot. */
trmi_request *trmi_order_snapshot(trm_ps_server *server, trmi_request *r) {
    uint32_t number = (uint32_t)r->note.value[1];
    size_t ids = (size_t)r->header.extra[0] / sizeof(trmi_push_id);
    char folder[300];
    trmi_snapshot_folder(server->folder, number, folder, sizeof folder);
    trmi_push_id *until = trmi_alloc((ids + 1) * sizeof *until);
    r->trailer = trmi_alloc(server->shards * sizeof(trmi_snapshot_file) + 1);
    bool holds = server->held && server->holder == r->link && server->until == NULL;
    if (!holds || number <= server->newest_number) {
        /* restarted since HOLD, or the connection to the client broke; another client may hold the
         * pushes by now */
        TRMI_FAIL(&r->err, TRM_PEER, "server %d: snapshot %u without hold, or after snapshot %u",
                  server->options.server, number, server->newest_number);
    } else if (number > TRMI_SNAPSHOT_NUMBER_MAX) {
        TRMI_FAIL(&r->err, TRM_INVALID,
                  "server %d: snapshot %u, at most %d expected: go on in a new folder",
                  server->options.server, number, TRMI_SNAPSHOT_NUMBER_MAX);
    } else if (until == NULL || r->trailer == NULL) {
        TRMI_NO_MEMORY(&r->err, "for a checkpoint");
    } else if (trmi_os_make_dirs(NULL, folder, &r->err) == TRM_OK) {
        /* let the pushes pass that belong to the snapshot, up to `until` */
        memcpy(until, r->message.data + trmi_ps_note_size(TRMI_PS_CONTROL), ids * sizeof *until);
        server->until = until;
        server->until_count = (uint32_t)ids;
        server->until_step = r->note.value[3];
        holds = gather_pushes(server, until, r);
        prepare_snapshot(server, r);
    }
    /* In every queue the snapshot comes before the pushes that were held back. */
    if (r->run != NULL && server->leases != NULL) {
        (void)!trmi_lease_mark_snapshot(server->leases, number, NULL);
    }
    if (r->run != NULL) {
        trmi_request_dispatch(server, r);
    } else {
        trmi_request_answer(r);
    }
    trmi_request *ready = holds ? release_hold(server) : NULL;
    trmi_free(until);
    return ready;
}

/* RELEASE of a complete snapshot: writes the manifest. A server that was restarted meanwhile has
 * the state of an earlier snapshot, on which its next differential file would be based; it must not
 * confirm this one. */
static void complete_snapshot(trm_ps_server *server, trmi_request *r) {
    const int64_t snapshot = r->note.value[1];
    if (snapshot != 0 && snapshot != (int64_t)server->last_snapshot) {
        TRMI_FAIL(&r->err, TRM_PEER,
                  "server %d was started again while snapshot %lld was taken: it has snapshot %u",
                  server->options.server, (long long)snapshot, server->last_snapshot);
    } else if (snapshot != 0 &&
               trmi_manifest_write(server, server->last_snapshot, r->note.value[2] != 0,
                                   (const char *)r->message.data +
                                       trmi_ps_note_size(TRMI_PS_CONTROL),
                                   (size_t)r->header.extra[0], &r->err) == TRM_OK) {
        server->last_snapshot_failed = false;
    }
}

trmi_request *trmi_order_end_snapshot(trm_ps_server *server, trmi_request *r) {
    complete_snapshot(server, r);
    return is_of_holder(server, r) ? release_hold(server) : NULL;
}
