/* SPDX-License-Identifier: Apache-2.0 */
/* The front's entries of workers: number, life (incarnation) and clock. A worker is known by its
 * number; each process that takes the number is another life of it:
 *
 *     unknown --first message--> active --silent or left--> inactive --message--> active
 *                                  |                                               clock: caught up
 *                                  '-- larger incarnation: a new life; sequences begin at 0
 *                                      smaller incarnation: refused, that process was replaced
 *
 * Entries are never removed. An inactive worker is not waited for, and when it is back its clock is
 * raised to those of the others: otherwise they would wait until it has caught up. Callers hold the
 * front's mutex. */
#include "ps/server/server.h"

#include "base/checked.h"
#include "base/error.h"
#include "base/memory.h"

/* Contract in server.h. Workers that were never heard count as expected, up to the number of the
 * options. */
int64_t trmi_front_expected_workers(const trm_ps_server *server) {
    int64_t inactive = 0;
    for (int64_t i = 0; i < server->worker_count; i++) {
        inactive += !server->workers[i].active;
    }
    return trmi_max_i64(server->options.workers, server->worker_count) - inactive;
}

/* Contract in server.h. Where all others rest, each of them may get samples and go on from its own
 * clock, so the one with the most batches counts: it would wait until this worker has made as
 * many. Clocks of other modes count steps. */
int64_t trmi_front_caught_up(const trm_ps_server *server, const trmi_worker *w) {
    int64_t slowest = INT64_MAX, most = w->clock;
    for (int64_t i = 0; i < server->worker_count; i++) {
        const trmi_worker *other = &server->workers[i];
        if (other != w && other->active) {
            slowest = trmi_min_i64(slowest, other->clock);
        } else if (!other->left && server->options.mode == TRM_PS_BOUNDED) {
            most = trmi_max_i64(most, other->clock);
        }
    }
    return slowest == INT64_MAX ? most : trmi_max_i64(w->clock, slowest);
}

/* Contract in server.h. The list has one entry for each worker without whose push a snapshot went
 * on, so it is short. */
trmi_push_id *trmi_front_find_given_up(const trm_ps_server *server, uint32_t worker) {
    for (int64_t i = 0; i < server->given_up_count; i++) {
        if (server->given_up[i].worker == worker) {
            return &server->given_up[i];
        }
    }
    return NULL;
}

/* Contract in server.h. Counts the entries that are missing: of this worker, and of each
 * worker with an open connection. */
bool trmi_front_reserve_room(trm_ps_server *server, uint32_t worker) {
    int64_t workers = trmi_front_find(server, worker) == NULL;
    int64_t given_up = trmi_front_find_given_up(server, worker) == NULL;
    for (const trmi_ps_link *l = server->links; l != NULL; l = l->next) {
        if (l->worker >= 0 && (uint32_t)l->worker != worker) {
            workers += trmi_front_find(server, (uint32_t)l->worker) == NULL;
            given_up += trmi_front_find_given_up(server, (uint32_t)l->worker) == NULL;
        }
    }
    return trmi_grow((void **)&server->workers, &server->worker_capacity,
                     server->worker_count + workers, sizeof *server->workers) &&
           trmi_grow((void **)&server->given_up, &server->given_up_capacity,
                     server->given_up_count + given_up, sizeof *server->given_up);
}

/* Contract in server.h. Sequences begin at 0 again with each life, and so does the silence after
 * which nothing waits for the worker. */
trm_status trmi_front_life(trm_ps_server *server, trmi_worker *w, uint32_t incarnation,
                           trm_error *err) {
    if (incarnation <= w->incarnation) {
        return TRM_OK;
    }
    w->incarnation = incarnation;
    w->seen = trmi_os_now();
    w->dispatched = w->begun = 0;
    w->away = w->log_failed = false;
    w->log_is_old = true;
    trmi_last_step_new_life(server, w->worker, incarnation);
    for (int k = 0; k < TRMI_READS; k++) {
        w->reads[k].clock = -1;
    }
    return server->leases == NULL ? TRM_OK : trmi_lease_drop_worker(server->leases, w->worker, err);
}

/* Contract in server.h. */
trmi_worker *trmi_front_worker(trm_ps_server *server, uint32_t worker, uint32_t incarnation,
                               trm_error *err) {
    trmi_worker *w = trmi_front_find(server, worker);
    /* a worker that is heard for the first time */
    if (w == NULL) {
        if (!trmi_grow((void **)&server->workers, &server->worker_capacity,
                       server->worker_count + 1, sizeof *w)) {
            TRMI_NO_MEMORY(err, "for worker %u", worker);
            return NULL;
        }
        w = &server->workers[server->worker_count++];
        *w = (trmi_worker){.worker = worker, .incarnation = incarnation};
        for (int k = 0; k < TRMI_READS; k++) {
            w->reads[k].clock = -1;
        }
    }
    if (incarnation < w->incarnation) {
        TRMI_FAIL(err, TRM_CANCELLED,
                  "worker %u: incarnation %u has been replaced by %u: end this process", worker,
                  incarnation, w->incarnation);
        return NULL;
    }
    if (trmi_front_life(server, w, incarnation, err) != TRM_OK) {
        return NULL;
    }
    /* it was inactive: others must not wait until it has caught up */
    if (!w->active && w->clock > 0) {
        w->clock = trmi_front_caught_up(server, w);
    }
    w->active = true;
    w->left = false;
    w->seen = trmi_os_now();
    return w;
}

void trmi_front_restore_away(trm_ps_server *server, uint32_t worker, uint32_t incarnation,
                             bool away) {
    trmi_worker *w = trmi_front_worker(server, worker, incarnation, NULL);
    if (w != NULL) { /* NULL: a life before the last push in the logs */
        w->active = !away;
        w->left = w->away = away;
        w->log_is_old = false;
    }
    if (w != NULL && away) {
        trmi_last_step_left(server, worker, incarnation);
    }
}
