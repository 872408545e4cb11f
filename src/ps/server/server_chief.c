/* SPDX-License-Identifier: Apache-2.0 */
/* The chief's lease at server 0: which worker takes snapshots and ends the job.
 *
 *                requests                         requests, pushes, pulls, waits for an answer
 *       free ----------------------> held by w -------.
 *                silent for a lease      |  ^---------'
 *       held by v <----------------------'
 *                v requests
 *
 * A worker that has lost the lease is refused here, and the lock of model_dir lets only one
 * process write. A restarted server gives the last chief a full lease of time, unless it had signed
 * off. */
#include "ps/server/server.h"

#include "base/error.h"
#include "base/log.h"

static const double LEFT = 1e9; /* seconds: counts as the silence of a chief that has signed off */

/* Returns whether the chief waits for an answer of this server: it cannot send anything
 * meanwhile. */
static bool awaits_answer(const trm_ps_server *server) {
    for (const trmi_ps_link *l = server->links; l != NULL; l = l->next) {
        if (l->worker == (int32_t)server->chief.worker &&
            atomic_load(&l->incarnation) == server->chief.incarnation && !atomic_load(&l->ended) &&
            atomic_load(&l->requests) > 0) {
            return true;
        }
    }
    return false;
}

/* Returns for how long the chief has sent nothing. */
static double silent_seconds(const trm_ps_server *server, double now) {
    const trmi_chief *c = &server->chief;
    const trmi_worker *w = c->held ? trmi_front_find(server, c->worker) : NULL;
    double heard = c->heard;
    if (c->gone) {
        return LEFT;
    }
    if (w != NULL && w->incarnation == c->incarnation && w->seen > heard) {
        heard = w->seen;
    }
    return c->held && awaits_answer(server) ? 0 : now - heard;
}

/* Returns whether the sender of a request is the chief. */
static bool is_holder(const trm_ps_server *server, const trmi_request *r) {
    const trmi_chief *c = &server->chief;
    return c->held && r->header.worker == c->worker && r->header.incarnation == c->incarnation;
}

void trmi_chief_note_message(trm_ps_server *server, const trmi_request *r) {
    if (is_holder(server, r)) {
        server->chief.heard = trmi_os_now();
    }
}

/* Contract in server.h. A later life of its worker may sign off without having asked for the
 * role. */
trm_status trmi_chief_left(trm_ps_server *server, const trmi_request *r, trm_error *err) {
    const trmi_chief *c = &server->chief;
    if (!c->held || c->gone || r->header.worker != c->worker ||
        r->header.incarnation < c->incarnation) {
        return TRM_OK;
    }
    TRMI_TRY(trmi_server_chief_log(server, c->worker, c->incarnation, true, err));
    server->chief.gone = true;
    return TRM_OK;
}

bool trmi_chief_allows(const trm_ps_server *server, trmi_request *r) {
    if (!server->chief.held || is_holder(server, r)) {
        return true;
    }
    TRMI_FAIL(
        &r->err, TRM_CANCELLED,
        "worker %u is not the chief, worker %u is: checkpoints and the end of the job are its",
        r->header.worker, server->chief.worker);
    return false;
}

/* Returns whether the sender may become the chief: a new process of the same worker, the worker
 * that the job names if there is no chief, or any worker after a silence of
 * worker_timeout_seconds. */
static bool may_become_chief(const trm_ps_server *server, const trmi_request *r, double silent) {
    const trmi_chief *c = &server->chief;
    if (c->held && c->worker == r->header.worker) {
        return r->header.incarnation >= c->incarnation;
    }
    return silent > server->options.worker_timeout_seconds ||
           (!c->held && r->note.value[1] == TRM_PS_CHIEF_IS);
}

/* Makes the sender the chief and logs it. Returns true if the role has passed from another
 * worker. */
static bool grant_chief(trm_ps_server *server, trmi_request *r, double silent) {
    const trmi_chief former = server->chief;
    if ((is_holder(server, r) && !former.gone) ||
        trmi_server_chief_log(server, r->header.worker, r->header.incarnation, false, &r->err) !=
            TRM_OK) {
        return false;
    }
    server->chief = (trmi_chief){.held = true,
                                 .worker = r->header.worker,
                                 .incarnation = r->header.incarnation,
                                 .heard = trmi_os_now()};
    if (!former.held || former.worker == r->header.worker) {
        return false;
    }
    trmi_log(TRM_LOG_WARN, "ps", "worker %u is the chief now: worker %u has %s", r->header.worker,
             former.worker, silent < LEFT ? "been silent for too long" : "left");
    return true;
}

/* Contract in server.h. Refuses clients without a worker number and incarnations that have been
 * replaced. */
bool trmi_chief_order(trm_ps_server *server, trmi_request *r) {
    bool passed = false;
    double silent = silent_seconds(server, trmi_os_now());
    if (server->options.server != 0 || r->link == NULL || r->link->worker < 0) {
        TRMI_FAIL(&r->err, TRM_INVALID,
                  "server %d: only server 0 answers which worker is the chief",
                  server->options.server);
        return false;
    }
    /* a replaced process must not become chief with its worker's number */
    const trmi_worker *w = trmi_front_find(server, r->header.worker);
    if (w != NULL && r->header.incarnation < w->incarnation) {
        TRMI_FAIL(&r->err, TRM_CANCELLED,
                  "worker %u: incarnation %u has been replaced by %u: end this process",
                  r->header.worker, r->header.incarnation, w->incarnation);
        return false;
    }
    if (may_become_chief(server, r, silent)) {
        passed = grant_chief(server, r, silent);
    }
    /* Answer whether the caller is the chief, which worker is, the seconds since its last message,
     * and the time limit. */
    bool mine = is_holder(server, r);
    r->note = (trmi_ps_note){.value = {TRMI_ORDER_CHIEF, mine,
                                       server->chief.held ? (int64_t)server->chief.worker + 1 : 0,
                                       mine ? 0 : (int64_t)(silent * 1e3),
                                       (int64_t)(server->options.worker_timeout_seconds * 1e3)}};
    return passed;
}
