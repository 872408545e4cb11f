/* SPDX-License-Identifier: Apache-2.0 */
/* Decides about the last step of the logs when a server of a synchronous job starts.
 *
 * Each shard of each server logs and applies a step by itself. If all processes of a job die in
 * the middle of a step, some shards have logged it and others have not. The restarted workers
 * compute the batches of that step again; for the same bits they must read, from every shard,
 * the rows of the step before. A server decides by what its own shards have logged:
 *
 *     some shards have the step   No worker had an answer. The step is void where it is logged.
 *     all shards have the step    Another server may lack it. The step is held (the rows stay those
 *                                 of the step before) until each member's worker has reported.
 *
 * A member is one push of the held step. Its worker reports one of two things:
 *
 *     keeps     It will not push the batch again: the process that pushed it lives, or has left; or
 *               a new process has found that all servers have the step, or goes on after it. A new
 *               process that repeated it when this server had applied the step has its answer, and
 *               counts as the one that pushed it.
 *     repeats   A new process has pushed the batch again.
 *
 * The reports decide the step:
 *
 *     all members repeat   The step is void, and is formed again from the new pushes.
 *     a member keeps       Its push will not come again. The logged step is applied as soon as all
 *                          members have reported, and repeated pushes are dropped. If workers
 *                          compute together (TOGETHER), one such report is enough: the others may
 *                          wait in a collective with it and report nothing before it has its rows.
 *
 * At most one step is undecided: a worker reads the rows of step n from all shards of all
 * servers before it pushes its batch of step n + 1. */
#include "ps/server/server.h"

#include "base/error.h"
#include "base/log.h"
#include "base/memory.h"

/* ---- when a server starts -------------------------------------------------------------------- */

/* The last records in the logs of this server's shards. */
typedef struct log_ends {
    int64_t least, most; /* smallest and largest last step of a shard */
    bool any, all;       /* any or all shards hold a step back */
} log_ends;

/* Returns whether the held record is the synchronous step after the shard's rows; logs of other
 * modes count differently. */
static bool holds_a_step(const trmi_shard *shard) {
    return trmi_shard_held_step(shard) == shard->clock + 1;
}

/* Compares the ends of all shards' logs. */
static log_ends find_ends(const trm_ps_server *server) {
    log_ends e = {.least = INT64_MAX, .all = true};
    for (uint32_t s = 0; s < server->shards; s++) {
        const trmi_shard *shard = server->runners[s].shard;
        bool holds = holds_a_step(shard);
        int64_t end = shard->clock + holds;
        e.least = end < e.least ? end : e.least;
        e.most = end > e.most ? end : e.most;
        e.any = e.any || holds;
        e.all = e.all && holds;
    }
    return e;
}

/* Notes the members of the held step, which is undecided from now on. */
static trm_status remember_members(trm_ps_server *server, int64_t step, trm_error *err) {
    const trmi_shard *shard = server->runners[0].shard;
    uint32_t count = trmi_shard_held_ids(shard, NULL, 0);
    trmi_push_id *ids = trmi_alloc(count * sizeof *ids);
    server->last.members = trmi_alloc(count * sizeof *server->last.members);
    if (ids == NULL || server->last.members == NULL) {
        trmi_free(ids);
        return TRMI_NO_MEMORY(err, "for the last step of the logs");
    }
    (void)trmi_shard_held_ids(shard, ids, count);
    for (uint32_t i = 0; i < count; i++) {
        server->last.members[i] = (trmi_last_member){.id = ids[i]};
    }
    trmi_free(ids);
    server->last.count = count;
    server->last.step = step;
    return TRM_OK;
}

/* Contract in server.h. A step can be undecided only with several servers: the log of a single
 * server is complete or not. */
trm_status trmi_last_step_open(trm_ps_server *server, int64_t *pushes, trm_error *err) {
    const bool synchronous = server->options.mode == TRM_PS_SYNC;
    const log_ends e = find_ends(server);
    server->summed_step = synchronous && e.any ? e.most : 0;
    if (synchronous && e.any && e.most > e.least + 1) {
        return TRMI_FAIL(
            err, TRM_CORRUPT,
            "server %d: the logs of its shards end with steps %lld to %lld, one step apart at most "
            "expected: records are lost. Move %s/log away to go back to snapshot %u",
            server->options.server, (long long)e.least, (long long)e.most, server->folder,
            server->last_snapshot);
    }
    if (synchronous && server->options.servers > 1 && e.all && e.most == e.least) {
        return remember_members(server, e.most, err);
    }
    for (uint32_t s = 0; s < server->shards; s++) {
        trmi_shard *shard = server->runners[s].shard;
        bool counts =
            !synchronous || !holds_a_step(shard) || trmi_shard_held_step(shard) == e.least;
        TRMI_TRY(counts ? trmi_shard_apply_held(shard, pushes, err)
                        : trmi_shard_void_held(shard, err));
    }
    return TRM_OK;
}

void trmi_last_step_close(trm_ps_server *server) {
    trmi_free(server->last.members);
    server->last = (trmi_last_step){0};
}

/* ---- reports of workers ---------------------------------------------------------------------- */

/* Returns the member of the undecided step that `worker` is; NULL: none, or nothing is
 * undecided. */
static trmi_last_member *find_member(const trm_ps_server *server, uint32_t worker) {
    for (uint32_t i = 0; i < server->last.count && server->last.step != 0; i++) {
        if (server->last.members[i].id.worker == worker) {
            return &server->last.members[i];
        }
    }
    return NULL;
}

/* Returns whether a message shows that its worker has pushed `step` and goes on after it: the rows
 * of that step are wanted, the gradients of the next one come, or this life began after it. */
static bool follows_step(const trmi_request *r, int64_t step) {
    return (r->header.kind == TRMI_PS_PULL && (r->header.flags & TRMI_PULL_OUTSIDE) == 0 &&
            r->header.clock >= step) ||
           (r->header.kind == TRMI_PS_PUSH && r->header.clock > step) ||
           (r->header.kind == TRMI_PS_CONTROL && r->note.value[0] == TRMI_ORDER_PUSHED &&
            r->note.value[2] >= step);
}

void trmi_last_step_note_message(trm_ps_server *server, const trmi_request *r) {
    trmi_last_member *m = find_member(server, r->header.worker);
    if (m == NULL || r->header.incarnation < m->id.incarnation) {
        return;
    }
    if (r->header.incarnation == m->id.incarnation) {
        m->is_final = true;
        server->last.together |= (r->header.flags & TRMI_PULL_TOGETHER) != 0;
    } else if (follows_step(r, server->last.step)) {
        /* of a life that began before this server was started again */
        m->is_final = true;
        m->life = r->header.incarnation;
    }
}

/* Contract in server.h. The first message of this life may have come before this call, and may have
 * been its report. */
void trmi_last_step_new_life(trm_ps_server *server, uint32_t worker, uint32_t incarnation) {
    trmi_last_member *m = find_member(server, worker);
    if (m != NULL && m->life < incarnation) {
        m->is_final = false;
    }
}

void trmi_last_step_note_complete(trm_ps_server *server, uint32_t worker, int64_t batch) {
    trmi_last_member *m = find_member(server, worker);
    if (m != NULL && batch >= server->last.step) {
        m->is_final = true;
    }
}

void trmi_last_step_left(trm_ps_server *server, uint32_t worker, uint32_t incarnation) {
    trmi_last_member *m = find_member(server, worker);
    if (m != NULL && incarnation >= m->id.incarnation) {
        m->is_final = true;
    }
}

/* Contract in server.h. A server cannot take a step back from its rows, so it starts again from
 * snapshot and logs, without the step. */
bool trmi_last_step_restart_before(trm_ps_server *server, uint32_t worker, int64_t batch) {
    const trmi_worker *w = trmi_front_find(server, worker);
    if (server->step < batch || server->last.step == batch || w == NULL || w->clock < batch ||
        server->options.servers == 1 || server->options.backup_workers > 0 || server->staging) {
        return false;
    }
    if (server->summed_step != batch) {
        return false; /* in no log, or as staged pushes: all servers have it, or will */
    }
    if (server->options.log_pushes != TRM_ON) {
        trmi_log(TRM_LOG_WARN, "ps",
                 "server %d: step %lld is not on all servers and is made again; without a log this "
                 "server cannot go back, its rows are one step ahead",
                 server->options.server, (long long)batch);
        return false;
    }
    trmi_log(TRM_LOG_WARN, "ps",
             "server %d: a worker and a server died in step %lld, which this server has applied: "
             "it starts again with the rows of the step before",
             server->options.server, (long long)batch);
    atomic_store(&server->goes_back, true);
    pthread_cond_broadcast(&server->changed);
    return true;
}

/* ---- the decision ---------------------------------------------------------------------------- */

/* Returns whether the worker has pushed the batch of the undecided step again, on all servers. */
static bool pushes_again(const trm_ps_server *server, uint32_t worker) {
    for (const trmi_request *r = server->waiting; r != NULL; r = r->next) {
        if (r->header.worker == worker && r->header.clock == server->last.step && !r->partial) {
            return true;
        }
    }
    return false;
}

/* Returns whether the worker has left or is not waited for: no message will come from it. */
static bool is_gone(const trm_ps_server *server, uint32_t worker) {
    const trmi_worker *w = trmi_front_find(server, worker);
    return w != NULL ? !w->active : server->counted && (int64_t)worker >= server->options.workers;
}

/* Returns whether the push of any member will not come again: the logged step must then be
 * applied. */
static bool any_keeps(const trm_ps_server *server) {
    bool keeps = false;
    for (uint32_t i = 0; i < server->last.count; i++) {
        keeps = keeps || server->last.members[i].is_final;
    }
    return keeps;
}

bool trmi_last_step_allows_group(const trm_ps_server *server) {
    return server->last.step == 0 || !any_keeps(server);
}

bool trmi_last_step_allows_read(const trm_ps_server *server, const trmi_request *r) {
    const trmi_last_member *m = find_member(server, r->header.worker);
    return m != NULL && r->header.incarnation > m->id.incarnation && !any_keeps(server);
}

/* Applies the held step on one shard. */
static void run_apply(trmi_shard_thread *runner, trmi_request *r) {
    trm_error err;
    if (trmi_shard_apply_held(runner->shard, NULL, &err) != TRM_OK) {
        trmi_server_fail(runner, &err);
        trmi_request_fail(r, &err);
    } else if (runner->shard->number == 0) {
        atomic_store(&runner->server->global_step, runner->shard->tick);
    }
}

/* Ends the held step, which all shards have applied. */
static void finish_apply(trmi_request *r) {
    trm_ps_server *server = r->server;
    if (r->err.status ==
        TRM_OK) { /* else perhaps in the middle of a dispatch, which holds the mutex */
        pthread_mutex_lock(&server->mutex);
        server->done_step =
            r->header.clock > server->done_step ? r->header.clock : server->done_step;
        pthread_mutex_unlock(&server->mutex);
    } else {
        trmi_log(TRM_LOG_ERROR, "ps", "server %d: the last step of the log is not applied: %s",
                 server->options.server, r->err.message);
    }
    trmi_request_forget(r);
}

/* Contract in server.h. Waits until every member has decided, and until no snapshot holds the
 * step back. */
void trmi_last_step_advance(trm_ps_server *server) {
    if (server->last.step == 0 || !any_keeps(server)) {
        return;
    }
    /* wait until all have decided */
    for (uint32_t i = 0; i < server->last.count; i++) {
        const trmi_last_member *m = &server->last.members[i];
        bool has_decided = m->is_final || server->last.together ||
                           pushes_again(server, m->id.worker) || is_gone(server, m->id.worker);
        if (!has_decided || trmi_front_holds(server, &m->id, server->last.step)) {
            return;
        }
    }
    /* the step is applied by a request of its own, on all shards */
    trmi_request *r = trmi_request_create(server);
    if (r == NULL) {
        return; /* no memory: the next message tries again */
    }
    r->header.clock = server->last.step;
    r->run = run_apply;
    r->finish = finish_apply;
    server->step = server->last.step;
    for (uint32_t i = 0; i < server->last.count; i++) {
        const trmi_push_id *id = &server->last.members[i].id;
        trmi_worker *w = trmi_front_find(server, id->worker);
        if (w != NULL) {
            w->clock = w->clock > server->step ? w->clock : server->step;
            bool is_later = w->incarnation == id->incarnation && id->sequence > w->dispatched;
            w->dispatched = is_later ? id->sequence : w->dispatched;
        }
    }
    trmi_last_step_close(server);
    pthread_cond_broadcast(&server->changed);
    trmi_request_dispatch(server, r);
}
