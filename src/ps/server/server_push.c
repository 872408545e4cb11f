/* SPDX-License-Identifier: Apache-2.0 */
/* When a push is applied: at once, when a snapshot no longer holds it, or as a part of a
 * synchronous step. Front mutex held. The shards then apply it (ps/shard/shard.c, trmi_shard_push).
 *
 *       trmi_front_push            an arrived push: refused, waits in server->waiting, or goes
 *       trmi_front_dispatch_pushes   waiting pushes that may go now; SYNC: as one group a step
 *       dispatch_push                  clocks advance, and all shards get it */
#include "ps/server/server.h"

#include "base/checked.h"
#include "base/error.h"
#include "base/memory.h"

/* Advances the worker's clock and last sequence by a push that goes on. Returns the clock that the
 * push has here. */
static int64_t advance_clock(trm_ps_server *server, const trmi_request *r) {
    trmi_worker *w = trmi_front_find(server, r->header.worker);
    bool is_new = r->header.incarnation == w->incarnation && r->header.sequence > w->dispatched;
    /* BOUNDED: a worker that has rested counts fewer batches than its clock here, which has caught
     * up with the others'; each of its batches advances it nevertheless */
    bool counts = is_new && server->options.mode == TRM_PS_BOUNDED && r->header.extra[0] != 0;
    w->clock = trmi_max_i64(w->clock + counts, r->header.clock);
    if (is_new) {
        w->dispatched = r->header.sequence;
    }
    pthread_cond_broadcast(&server->changed);
    return counts ? w->clock : r->header.clock;
}

/* Advances what a restart keeps, and marks the samples as used, when all shards have a push. */
static void note_applied(const trmi_request *r) {
    trm_ps_server *server = r->server;
    pthread_mutex_lock(&server->mutex);
    trmi_worker *w = trmi_front_find(server, r->header.worker);
    if (w != NULL) {
        w->done = trmi_max_i64(w->done, r->header.clock);
    }
    if (server->options.mode == TRM_PS_SYNC) {
        server->done_step = trmi_max_i64(server->done_step, r->header.clock);
    }
    trmi_server_lease_pushed(server, r);
    pthread_mutex_unlock(&server->mutex);
}

/* BOUNDED, without a lease: returns whether the push before this one is not here. It was refused,
 * by this process or by the one before, and its worker sends it in no message again. The clock of
 * this push would count the missing batch, and the worker's next life would go on behind it.
 * Without logs a server that is started again lacks pushes that it had answered, and goes on. */
static bool lacks_push_before(const trm_ps_server *server, const trmi_request *r) {
    const trmi_worker *w = trmi_front_find(server, r->header.worker);
    return server->options.mode == TRM_PS_BOUNDED && server->options.log_pushes == TRM_ON &&
           !r->dropped && r->header.extra[0] == 0 && r->header.incarnation == w->incarnation &&
           r->header.sequence > w->dispatched + 1;
}

/* Passes a push to the shards. With staleness_aware the rate is divided by 1 + lag; the scaled
 * rate is logged, so that a restart applies the same. So is the clock that the push has here: after
 * a restart the others would wait until the worker's own count has reached it again. */
static void dispatch_push(trm_ps_server *server, trmi_request *r) {
    if (lacks_push_before(server, r)) {
        TRMI_FAIL(&r->err, TRM_PEER,
                  "server %d: push %llu of worker %u follows push %llu here, those between were "
                  "refused: start the worker again, it repeats their batches",
                  server->options.server, (unsigned long long)r->header.sequence, r->header.worker,
                  (unsigned long long)trmi_front_find(server, r->header.worker)->dispatched);
        trmi_request_answer(r);
        return;
    }
    const int64_t clock = advance_clock(server, r);
    r->on_applied = r->header.kind == TRMI_PS_PUSH ? note_applied : NULL;
    int64_t lag =
        r->dropped ? 0 : trmi_lag_push(server, trmi_front_find(server, r->header.worker), r);
    if (server->options.staleness_aware) {
        r->header.rate_scale /= (float)(1 + lag);
    }
    r->header.clock = clock;
    r->run = trmi_run_push;
    trmi_request_dispatch(server, r);
}

void trmi_front_refuse(trm_ps_server *server, trmi_request *r) {
    r->dropped = true;
    dispatch_push(server, r);
}

/* Appends a push to the waiting ones. An older copy of the same push, or a push of an earlier life,
 * is removed without an answer: its connection is broken. The push takes the place of its copy, so
 * that a worker's pushes stay in their order. */
static void append_waiting(trm_ps_server *server, trmi_request *r) {
    trmi_request **at = &server->waiting, **place = NULL;
    while (*at != NULL) {
        trmi_request *other = *at;
        if (other->header.worker == r->header.worker &&
            (other->header.incarnation < r->header.incarnation ||
             other->header.sequence == r->header.sequence)) {
            place = other->header.incarnation == r->header.incarnation ? at : place;
            *at = other->next;
            trmi_request_forget(other);
            continue;
        }
        at = &other->next;
    }
    at = place == NULL ? at : place;
    r->next = *at;
    *at = r;
}

/* Returns whether a snapshot holds the push back. */
static bool is_held(const trm_ps_server *server, const trmi_request *r) {
    const trmi_push_id id = {r->header.worker, r->header.incarnation, r->header.sequence};
    return trmi_front_holds(server, &id, r->header.clock);
}

/* Returns whether a waiting push belongs to the next step, is on all servers and is not held. */
static bool is_of_next_step(const trm_ps_server *server, const trmi_request *r) {
    return r->header.clock == server->step + 1 && !r->partial && !is_held(server, r);
}

/* SYNC: if enough pushes of the next step wait, makes a group of all of them and dispatches it.
 * Returns whether it did. */
static bool form_group(trm_ps_server *server) {
    int64_t have = 0, of_inactive = 0;
    bool strict = false;
    if (server->failed.status != TRM_OK || !trmi_last_step_allows_group(server)) {
        return false;
    }
    /* Count the pushes of the next step that wait, and those whose workers are not waited for. */
    for (const trmi_request *r = server->waiting; r != NULL; r = r->next) {
        const trmi_worker *w = trmi_front_find(server, r->header.worker);
        bool next = is_of_next_step(server, r);
        have += next;
        of_inactive += next && w != NULL && !w->active;
        strict |= trmi_ps_nodes(&r->header) > 0;
    }
    /* a strict step without the blocks of a silent worker would have other bits; the last push of a
     * worker that has left, or is silent, does not stand for that of another one */
    int64_t needed =
        strict ? (server->counted ? server->options.workers : server->worker_count)
               : trmi_front_expected_workers(server) + of_inactive - server->options.backup_workers;
    if (have < trmi_max_i64(1, needed)) {
        return false;
    }
    trmi_request *group = trmi_request_create(server);
    trmi_request **members = trmi_alloc((size_t)have * sizeof(trmi_request *));
    if (group == NULL || members == NULL) {
        if (group != NULL) {
            trmi_request_forget(group);
        }
        trmi_free(members);
        return false; /* no memory: the next push tries again */
    }
    /* Move them from the waiting requests to the group. */
    for (trmi_request **at = &server->waiting; *at != NULL;) {
        trmi_request *r = *at;
        if (!is_of_next_step(server, r)) {
            at = &r->next;
            continue;
        }
        *at = r->next;
        r->on_applied = note_applied;
        (void)advance_clock(server, r);
        /* In order of workers, so that the sum does not depend on the order of arrival. */
        uint32_t place = group->member_count++;
        while (place > 0 && members[place - 1]->header.worker > r->header.worker) {
            members[place] = members[place - 1];
            place--;
        }
        members[place] = r;
    }
    group->header = members[0]->header;
    group->members = members;
    group->run = trmi_run_group;
    group->again = server->last.step != 0;
    trmi_last_step_close(server);
    server->summed_step = ++server->step;
    trmi_request_dispatch(server, group);
    return true;
}

/* SYNC: refuses waiting pushes of steps that are over: repetitions, and those of backup workers
 * that came too late. They fill their windows only. */
static void refuse_late_pushes(trm_ps_server *server) {
    for (trmi_request **at = &server->waiting; *at != NULL;) {
        trmi_request *r = *at;
        if (r->header.clock > server->step) {
            at = &r->next;
            continue;
        }
        *at = r->next;
        trmi_front_refuse(server, r);
    }
}

/* Contract in server.h. Called whenever something has changed for which a push may wait. A server
 * that goes back by a step takes no more pushes. */
void trmi_front_dispatch_pushes(trm_ps_server *server) {
    if (atomic_load(&server->goes_back)) {
        return;
    }
    if (server->options.mode == TRM_PS_SYNC) {
        trmi_last_step_advance(server);
        do {
            refuse_late_pushes(server);
        } while (form_group(server));
        return;
    }
    for (trmi_request **at = &server->waiting; *at != NULL;) {
        trmi_request *r = *at;
        if (is_held(server, r)) {
            at = &r->next;
            continue;
        }
        *at = r->next;
        dispatch_push(server, r);
    }
}

bool trmi_front_same_dtype(trm_ps_server *server, trmi_request *r) {
    server->sum_dtype = server->sum_dtype == 0 ? r->header.dtype : server->sum_dtype;
    if (server->sum_dtype != r->header.dtype) {
        TRMI_FAIL(&r->err, TRM_INVALID,
                  "worker %u sends gradients as %s, the others as %s: use one wire dtype",
                  r->header.worker, trm_dtype_name((trm_dtype)r->header.dtype),
                  trm_dtype_name((trm_dtype)server->sum_dtype));
        return false;
    }
    return true;
}

/* Contract in server.h. A push whose lease is lost is refused, which fills its window, so that
 * the worker can go on with another lease. */
void trmi_front_push(trm_ps_server *server, trmi_request *r) {
    if (trmi_front_worker(server, r->header.worker, r->header.incarnation, &r->err) == NULL) {
        trmi_request_answer(r);
        return;
    }
    trmi_worker *w = trmi_front_find(server, r->header.worker);
    (void)!trmi_server_away_set(server, w, false, NULL);
    /* A repeated push was checked when it came first. */
    if (r->header.sequence > w->dispatched &&
        trmi_server_lease_push(server, r, &r->err) != TRM_OK) {
        trmi_front_refuse(server, r);
        return;
    }
    if (server->options.mode == TRM_PS_SYNC && !trmi_front_same_dtype(server, r)) {
        trmi_request_answer(r);
        return;
    }
    /* Synchronous pushes wait for the other workers' and are applied as one step. Others are given
     * to the shards at once, unless a snapshot holds them back. */
    r->partial = server->options.mode == TRM_PS_SYNC && r->header.flags == TRMI_PUSH_PARTIAL;
    if (server->options.mode == TRM_PS_SYNC || is_held(server, r)) {
        append_waiting(server, r);
    } else {
        dispatch_push(server, r);
    }
}
