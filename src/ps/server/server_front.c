/* SPDX-License-Identifier: Apache-2.0 */
/* The front: decides which pulls may go on now, and when waiting pushes are looked at again
 * (server_push.c), so that all shards see the same order. Front mutex held.
 *
 *       ASYNC     everything goes at once
 *       BOUNDED   a pull waits until no active worker is more than `staleness` batches behind
 *       SYNC      pushes wait until all active workers (but backup_workers) have pushed the next batch, and are applied as
 *                 one sum; a pull waits for the step before its batch
 *
 * A snapshot holds pushes back for a moment (trmi_front_holds). Waiting pulls are in
 * server->parked, waiting pushes in server->waiting. Whatever changes clocks or workers calls
 * trmi_front_advance afterwards. */
#include "ps/server/server.h"

#include "base/checked.h"
#include "base/error.h"
#include "base/log.h"
#include "base/memory.h"

#include <math.h>
#include <stdio.h>

/* Returns the clock of the slowest active worker. *who: its number; -1: a worker that has not
 * connected yet. */
static int64_t slowest_clock(const trm_ps_server *server, int64_t *who) {
    int64_t slowest = INT64_MAX;
    *who = -1;
    for (int64_t i = 0; i < server->worker_count; i++) {
        const trmi_worker *w = &server->workers[i];
        if (w->active && w->clock < slowest) {
            slowest = w->clock;
            *who = w->worker;
        }
    }
    if (server->worker_count < server->options.workers && slowest > 0) {
        slowest = 0;
        *who = -1;
    }
    return slowest;
}

/* Returns whether the last push that a pull names is in a step. Where pushes are staged, the
 * rows must contain the worker's own last push. */
static bool has_pushed(const trm_ps_server *server, const trmi_request *r) {
    const trmi_worker *w = trmi_front_find(server, r->header.worker);
    int64_t wanted = r->header.extra[0];
    if (wanted <= 0 || (w != NULL && w->incarnation > r->header.incarnation)) {
        return true; /* an ended life: its next push gets the error */
    }
    return w != NULL && w->incarnation == r->header.incarnation &&
           w->dispatched >= (uint64_t)wanted;
}

/* Returns whether a pull may go now, by the server's mode. */
static bool may_pull(const trm_ps_server *server, const trmi_request *r) {
    int64_t who;
    if (atomic_load(&server->goes_back)) {
        return false;
    }
    if ((r->header.flags & TRMI_PULL_OUTSIDE) !=
        0) { /* a read outside of training takes the rows as they are */
        return server->last.step == 0 || r->header.worker == TRMI_PS_WORKERS_MAX - 1 ||
               trmi_last_step_allows_read(server, r);
    }
    switch (server->options.mode) {
    case TRM_PS_ASYNC: return true;
    case TRM_PS_BOUNDED:
        return slowest_clock(server, &who) >= r->header.clock - trmi_lag_bound(server, r);
    case TRM_PS_SYNC: break;
    }
    return server->step >= r->header.clock && has_pushed(server, r);
}

/* Notes that the worker is alive, and in bounded mode the batch with which its life, or its work
 * after a rest, began: a worker that joins a running job does not begin at 0. From this pull on the
 * others wait for it, because its gradients will be those of the rows that it reads now. */
static void note_pull(trm_ps_server *server, const trmi_request *r) {
    trmi_worker *w = trmi_front_find(server, r->header.worker);
    bool counts =
        server->options.mode == TRM_PS_BOUNDED && (r->header.flags & TRMI_PULL_OUTSIDE) == 0;
    if (w != NULL) {
        w->seen = r->started;
    }
    if (counts && r->header.extra[0] > 0 && (w == NULL || !w->active)) {
        w = trmi_front_worker(server, r->header.worker, r->header.incarnation, NULL);
    }
    if (counts && w != NULL) {
        w->clock = trmi_max_i64(w->clock, r->header.extra[0]);
    }
}

/* Contract in server.h. */
bool trmi_front_pull_must_wait(trm_ps_server *server, trmi_request *r) {
    note_pull(server, r);
    if (may_pull(server, r)) {
        trmi_lag_pull(server, trmi_front_find(server, r->header.worker), r);
        return false;
    }
    r->next = server->parked;
    server->parked = r;
    return true;
}

/* ---- synchronous pushes on several servers --------------------------------------------------- */

/* With several synchronous servers a push is in no step before its worker has confirmed that all
 * servers have it (order PUSHED). If the worker dies before that, its next life (order BEGINS)
 * asks all servers for the last batch that may be in a step there, and tells the other servers
 * to take the copies that the earlier life left with them. So each server forms the same steps
 * from the same pushes, and a pull reads rows of one step from all servers. The next life goes on
 * after a batch only if each server has it in its logs or keeps it (server_kept.c), because
 * no worker repeats it. */

/* Handles PUSHED: the worker's waiting pushes up to note.value[1] are on all servers. */
void trmi_front_pushed(trm_ps_server *server, const trmi_request *told) {
    const trmi_worker *w = trmi_front_find(server, told->header.worker);
    if (w == NULL || told->header.incarnation < w->incarnation) {
        return; /* an ended life */
    }
    for (trmi_request *r = server->waiting; r != NULL; r = r->next) {
        if (r->header.worker == told->header.worker &&
            r->header.incarnation == told->header.incarnation &&
            r->header.sequence <= (uint64_t)told->note.value[1]) {
            r->partial = false;
        }
    }
}

/* Keeps the copies of a batch that an ended life of a worker has left out of all steps. */
static void hold_copies(trm_ps_server *server, uint32_t worker, int64_t batch) {
    for (trmi_request *p = server->waiting; p != NULL; p = p->next) {
        if (p->header.worker == worker && p->header.clock == batch) {
            p->partial = true;
        }
    }
}

/* BEGINS, second form: lets the copies of a batch that an ended life has left be in a step.
 * Returns what this server has of the batch. A copy that cannot be kept counts as not here: the
 * worker then makes the batch again. While a step is being logged nothing is written, because the
 * file of kept pushes, which is replaced, may have pushes of that step. */
static trmi_here take_copies(trm_ps_server *server, const trmi_request *r, int64_t batch) {
    trm_error err;
    bool here = false;
    if (server->step > server->done_step) {
        return TRMI_HERE_SOON;
    }
    for (trmi_request *p = server->waiting; p != NULL; p = p->next) {
        if (p->header.worker == r->header.worker && p->header.clock == batch) {
            p->partial = false;
            p->kept = here = true;
        }
    }
    if (here && trmi_kept_write(server, &err) != TRM_OK) {
        trmi_log(TRM_LOG_WARN, "ps", "server %d: batch %lld of worker %u is made again: %s",
                 server->options.server, (long long)batch, r->header.worker, err.message);
        hold_copies(server, r->header.worker, batch);
        return TRMI_HERE_NOT;
    }
    return here || server->done_step >= batch || server->last.step >= batch ? TRMI_HERE_KEPT
                                                                            : TRMI_HERE_NOT;
}

/* BEGINS, fourth form: the batch comes again, so what an ended life has left of it must be in no
 * step, now or after a restart. */
static void give_copies_up(trm_ps_server *server, trmi_request *r, int64_t batch) {
    hold_copies(server, r->header.worker, batch);
    if (trmi_kept_remove(server, r->header.worker, batch, &r->err) == TRM_OK) {
        r->note.value[1] = trmi_last_step_restart_before(server, r->header.worker, batch);
    }
}

/* Returns the last batch of a worker that may be in a step here. */
static int64_t find_last_batch(const trm_ps_server *server, uint32_t worker) {
    int64_t last = trmi_max_i64(server->step, server->last.step);
    for (const trmi_request *p = server->waiting; p != NULL; p = p->next) {
        bool counts = p->header.worker == worker && !p->partial;
        last = counts ? trmi_max_i64(last, p->header.clock) : last;
    }
    return last;
}

/* Returns whether a connection of an earlier life of the worker is open: what the life had sent
 * before it ended may still arrive. Newer links come first. */
static bool has_earlier_connection(const trmi_request *r) {
    for (const trmi_ps_link *l = r->link->next; l != NULL; l = l->next) {
        if (l->worker == r->link->worker && l->incarnation < r->header.incarnation &&
            !atomic_load(&l->ended)) {
            return true;
        }
    }
    return false;
}

/* Handles BEGINS of a worker's new life, in its four forms (trmi_order in server.h). From here on,
 * messages of the earlier life that are still under way change nothing. The first form therefore
 * waits for them: a push that another server has applied may be among them. A server that could not
 * make a step says so: the step will not be logged. */
void trmi_front_begins(trm_ps_server *server, trmi_request *r) {
    const int64_t batch = r->note.value[1];
    if (server->failed.status != TRM_OK) {
        r->err = server->failed;
        return;
    }
    trmi_worker *w = trmi_front_find(server, r->header.worker);
    if (batch == 0 && r->note.value[3] == 0 && has_earlier_connection(r)) {
        r->note.value[2] = 1;
        return;
    }
    if (w != NULL && trmi_front_life(server, w, r->header.incarnation, &r->err) != TRM_OK) {
        return;
    }
    if (r->note.value[2] == 2) {
        give_copies_up(server, r, batch);
    } else if (r->note.value[2] != 0) {
        trmi_last_step_note_complete(server, r->header.worker, batch);
    } else {
        r->note.value[1] = batch == 0 ? find_last_batch(server, r->header.worker)
                                      : (int64_t)take_copies(server, r, batch);
    }
}

/* Contract in server.h. Pushes first: they may release pulls. */
trmi_request *trmi_front_advance(trm_ps_server *server) {
    trmi_front_dispatch_pushes(server);
    trmi_request *ready = NULL;
    for (trmi_request **at = &server->parked; *at != NULL;) {
        trmi_request *r = *at;
        if (!may_pull(server, r)) {
            at = &r->next;
            continue;
        }
        *at = r->next;
        trmi_lag_pull(server, trmi_front_find(server, r->header.worker), r);
        r->next = ready;
        ready = r;
    }
    return ready;
}

/* ---- checks by time -------------------------------------------------------------------------- */

/* Stops waiting for workers that have sent nothing for worker_timeout_seconds. */
static void drop_silent_workers(trm_ps_server *server, double now) {
    for (int64_t i = 0; i < server->worker_count; i++) {
        trmi_worker *w = &server->workers[i];
        const double silent = now - fmax(w->seen, w->greeted);
        if (w->active && silent > server->options.worker_timeout_seconds) {
            w->active = false;
            trmi_log(TRM_LOG_WARN, "ps",
                     "server %d: worker %u has been silent for %.0f s (clock %lld): no longer "
                     "waited for",
                     server->options.server, w->worker, silent, (long long)w->clock);
        }
    }
}

/* Contract in server.h. */
trmi_request *trmi_front_staged(const trm_ps_server *server, const trmi_worker *w) {
    trmi_request *r = server->staged;
    while (r != NULL && (r->header.worker != w->worker || r->header.incarnation != w->incarnation ||
                         r->header.sequence != w->dispatched + 1)) {
        r = r->next;
    }
    return r;
}

/* Server 0: returns the first active worker without a staged push; -1: one that was never seen;
 * -2: none. */
static int64_t find_missing_worker(const trm_ps_server *server) {
    for (int64_t i = 0; i < server->worker_count; i++) {
        if (server->workers[i].active && trmi_front_staged(server, &server->workers[i]) == NULL) {
            return server->workers[i].worker;
        }
    }
    return server->worker_count < server->options.workers ? -1 : -2;
}

/* Sets the error of a pull that waited too long where pushes are staged. Only server 0 waits for
 * workers; the other servers wait until a worker brings them the step. */
static void set_step_error(const trm_ps_server *server, trmi_request *r) {
    char whom[64] = "its step has not reached this server";
    int64_t who = server->options.server == 0 ? find_missing_worker(server) : -2;
    if (who != -2) {
        snprintf(whom, sizeof whom,
                 who < 0 ? "a worker not yet seen has not pushed" : "worker %lld has not pushed",
                 (long long)who);
    }
    TRMI_FAIL(&r->err, TRM_TIMEOUT,
              "server %d: worker %u waited %.1f s for the step with its push %lld: %s (at step "
              "%lld, synchronous)",
              server->options.server, r->header.worker, trmi_os_now() - r->started,
              (long long)r->header.extra[0], whom, (long long)server->step);
}

/* Sets the error of a pull that waited too long: names the slowest worker. */
static void set_pull_error(const trm_ps_server *server, trmi_request *r) {
    int64_t who;
    int64_t clock = slowest_clock(server, &who);
    char name[32];
    if (server->staging) {
        set_step_error(server, r);
        return;
    }
    snprintf(name, sizeof name, who < 0 ? "a worker not yet seen" : "worker %lld", (long long)who);
    TRMI_FAIL(&r->err, TRM_TIMEOUT,
              "server %d: worker %u waited %.1f s to begin batch %lld: %s has finished %lld%s",
              server->options.server, r->header.worker, trmi_os_now() - r->started,
              (long long)r->header.clock, name, (long long)clock,
              server->options.mode == TRM_PS_SYNC ? " (synchronous)" : "");
}

/* Contract in server.h. A pull past its deadline is returned with an error that names the
 * workers it waited for. */
trmi_request *trmi_front_tick(trm_ps_server *server, double now) {
    drop_silent_workers(server, now);
    trmi_request *ready = trmi_front_advance(server);
    for (trmi_request **at = &server->parked; *at != NULL;) {
        trmi_request *r = *at;
        if (now < r->deadline) {
            at = &r->next;
            continue;
        }
        *at = r->next;
        set_pull_error(server, r);
        r->next = ready;
        ready = r;
    }
    return ready;
}
