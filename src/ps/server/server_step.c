/* SPDX-License-Identifier: Apache-2.0 */
/* Synchronous steps of leased samples: a two-phase commit in which server 0 decides.
 *
 *     worker                       server 1..                      server 0
 *       |--- STAGE k --------------->| logged and kept
 *       |<-- kept, at step t-1 ------|
 *       |--- STAGE k, "all have t-1" ------------------------------->| logged and kept
 *       |                            |                               | each active worker has a push here:
 *       |                            |                               | step t = these pushes, logged; their
 *       |                            |                               | samples are used; applied
 *       |<-- steps t ------------------------------------------------|
 *       |--- STEPS t, pull after k ->| applied; the pull may go
 *       |<-- rows -------------------|
 *
 * Only server 0 waits for workers, so no two servers can wait for each other. A decision of
 * server 0 is final: all shards of all other servers keep each member's push before server 0 has
 * it, and find it in their logs after any restart. All servers therefore apply the same sums in
 * the same order, whichever process dies.
 *
 * A worker carries the decided steps to the other servers until those have them. A worker that
 * requests samples gets the steps too, so that the last step of a job reaches every server.
 *
 * A staged push whose worker died before server 0 received it is in no step. It is discarded
 * once a step contains a later push of that worker; its samples have been leased again by then. */
#include "ps/shard/records.h"
#include "ps/server/server.h"

#include "base/checked.h"
#include "base/error.h"
#include "base/memory.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* Bytes of the log that are read at most, bytes from which it is written anew without old steps,
 * and members of a step. */
enum {
    STEPS_BYTES_MAX = 64 << 20,
    REWRITE_BYTES = 256 << 10,
    STEP_MEMBERS_MAX = TRMI_PS_WORKERS_MAX
};

/* A step on the wire: head, ids. In the log: head, ids, leases, digest. */
typedef struct step_head {
    int64_t step;
    uint32_t count, zero;
} step_head;

/* ---- decided steps --------------------------------------------------------------------------- */

/* Frees the arrays of a step. */
static void free_step(trmi_sync_step *s) {
    trmi_free(s->ids);
    trmi_free(s->leases);
}

/* Removes the steps that all servers have finished. */
static void prune_steps(trm_ps_server *server) {
    int64_t all = server->done_step, gone = 0;
    if (server->options.servers > 1) {
        all = trmi_min_i64(all, server->others_done_step);
    }
    while (gone < server->step_count && server->steps[gone].step <= all) {
        free_step(&server->steps[gone++]);
    }
    server->step_count -= gone;
    if (gone > 0 && server->step_count > 0) {
        memmove(server->steps, server->steps + gone,
                (size_t)server->step_count * sizeof *server->steps);
    }
}

/* Contract in server.h. The trailer is a sequence of steps as on the wire. */
void trmi_step_append_decided(const trm_ps_server *server, trmi_request *r) {
    size_t bytes = 0;
    for (int64_t i = 0; i < server->step_count && server->options.servers > 1; i++) {
        bytes += sizeof(step_head) + server->steps[i].count * sizeof(trmi_push_id);
    }
    if (bytes == 0) {
        return;
    }
    r->trailer = trmi_alloc(bytes);
    if (r->trailer == NULL) {
        TRMI_NO_MEMORY(&r->err, "for an answer that lists %lld steps",
                       (long long)server->step_count);
        return;
    }
    r->trailer_bytes = bytes;
    uint8_t *at = r->trailer;
    for (int64_t i = 0; i < server->step_count; i++) {
        const trmi_sync_step *s = &server->steps[i];
        step_head head = {s->step, s->count, 0};
        memcpy(at, &head, sizeof head);
        memcpy(at + sizeof head, s->ids, s->count * sizeof *s->ids);
        at += sizeof head + s->count * sizeof *s->ids;
    }
}

/* ---- log of decided steps -------------------------------------------------------------------- */

/* Writes the path of the log of decided steps. */
static void log_path(const trm_ps_server *server, char path[400]) {
    snprintf(path, 400, "%s/log/steps-server-%d.log", server->folder, server->options.server);
}

/* Returns the bytes of a step's log record with `count` members. */
static size_t record_bytes(uint32_t count) {
    return sizeof(step_head) + count * (sizeof(trmi_push_id) + 2 * sizeof(int64_t)) +
           sizeof(uint64_t);
}

/* Writes the log record of a step, with its digest, to `to`. */
static void write_record(const trmi_sync_step *s, uint8_t *to) {
    step_head head = {s->step, s->count, 0};
    size_t ids = s->count * sizeof *s->ids, leases = s->count * 2 * sizeof *s->leases;
    memcpy(to, &head, sizeof head);
    memcpy(to + sizeof head, s->ids, ids);
    memset(to + sizeof head + ids, 0, leases);
    if (s->leases != NULL) {
        memcpy(to + sizeof head + ids, s->leases, leases);
    }
    trmi_record_seal(to, record_bytes(s->count), sizeof(uint64_t));
}

/* Rewrites the log with only those steps that a server may still lack, and opens it for
 * appending. */
static trm_status rewrite_log(trm_ps_server *server, trm_error *err) {
    char path[400];
    size_t bytes = 0;
    for (int64_t i = 0; i < server->step_count; i++) {
        bytes += record_bytes(server->steps[i].count);
    }
    /* the file is replaced whole, so that a crash leaves either the old or the new one */
    uint8_t *data = trmi_alloc(bytes + 1), *at = data;
    if (data == NULL) {
        return TRMI_NO_MEMORY(err, "for the log of steps");
    }
    for (int64_t i = 0; i < server->step_count; i++) {
        write_record(&server->steps[i], at);
        at += record_bytes(server->steps[i].count);
    }
    log_path(server, path);
    trm_status status = trmi_os_replace_file(NULL, path, data, bytes, err);
    trmi_free(data);
    TRMI_TRY(status);
    int fd;
    TRMI_TRY(trmi_records_open(path, bytes, &fd, err));
    if (server->steps_fd >= 0) {
        close(server->steps_fd);
    }
    server->steps_fd = fd;
    server->steps_bytes = (int64_t)bytes;
    return TRM_OK;
}

/* Appends a step to the log; rewrites a long log first. */
static trm_status log_step(trm_ps_server *server, const trmi_sync_step *s, trm_error *err) {
    if (server->steps_fd < 0) {
        return TRM_OK;
    }
    if (server->steps_bytes > REWRITE_BYTES) {
        TRMI_TRY(rewrite_log(server, err));
    }
    size_t bytes = record_bytes(s->count);
    uint8_t *record = trmi_alloc(bytes);
    if (record == NULL) {
        return TRMI_NO_MEMORY(err, "to log a step");
    }
    write_record(s, record);
    trm_status status = trmi_records_append(server->steps_fd, record, bytes,
                                            server->options.log_sync, "log of steps", err);
    trmi_free(record);
    server->steps_bytes += status == TRM_OK ? (int64_t)bytes : 0;
    return status;
}

/* ---- deciding (server 0) --------------------------------------------------------------------- */

/* Removes a push from the list of staged ones. */
static void remove_staged(trm_ps_server *server, const trmi_request *r) {
    trmi_request **at = &server->staged;
    while (*at != r) {
        at = &(*at)->next;
    }
    *at = r->next;
}

/* Returns how many active or expected workers have no staged push; *have: how many have one. */
static int64_t count_missing(const trm_ps_server *server, uint32_t *have) {
    int64_t missing = trmi_max_i64(0, server->options.workers - server->worker_count);
    *have = 0;
    for (int64_t i = 0; i < server->worker_count; i++) {
        bool here = trmi_front_staged(server, &server->workers[i]) != NULL;
        *have += here;
        missing += server->workers[i].active && !here;
    }
    return missing;
}

/* Answers a push that is in a step already: its answer was lost. */
static void answer_again(const trm_ps_server *server, trmi_request *r) {
    r->note.value[1] = atomic_load(&server->global_step);
    r->note.value[2] = server->done_step;
    trmi_step_append_decided(server, r);
    trmi_request_answer(r);
}

/* Removes staged pushes that cannot be in a step any more: pushes of ended lives, repetitions of
 * pushes that are in a step, and pushes whose lease was lost. Extends the leases of the others. */
static void drop_stale_pushes(trm_ps_server *server) {
    for (trmi_request **at = &server->staged; *at != NULL;) {
        trmi_request *r = *at;
        const trmi_worker *w = trmi_front_find(server, r->header.worker);
        bool next =
            r->header.incarnation == w->incarnation && r->header.sequence == w->dispatched + 1;
        bool refused = next && trmi_server_lease_push(server, r, &r->err) != TRM_OK;
        bool over = r->header.incarnation < w->incarnation || r->header.sequence <= w->dispatched;
        if (!refused && !over) {
            at = &r->next;
            continue;
        }
        *at = r->next;
        r->finish = NULL;
        if (refused) {
            r->header.clock = 0;
            trmi_front_refuse(server, r);
            at = &server->staged; /* the worker's next push may be in the list already */
        } else if (r->header.incarnation < w->incarnation) {
            trmi_request_forget(r);
        } else {
            answer_again(server, r);
        }
    }
}

/* Answers the members of a step that all shards have applied, with the steps that other servers may
 * lack. */
static void finish_step(trmi_request *group) {
    trm_ps_server *server = group->server;
    /* after an error the caller may be a dispatch, which holds the mutex */
    if (group->err.status == TRM_OK) {
        pthread_mutex_lock(&server->mutex);
        server->done_step = trmi_max_i64(server->done_step, group->header.clock);
        prune_steps(server);
        for (uint32_t i = 0; i < group->member_count; i++) {
            trmi_step_append_decided(server, group->members[i]);
        }
        pthread_mutex_unlock(&server->mutex);
    }
    for (uint32_t i = 0; i < group->member_count; i++) {
        trmi_request *member = group->members[i];
        member->err = group->err.status != TRM_OK ? group->err : member->err;
        member->applied = true;
        member->note.value[1] = group->note.value[1];
        trmi_request_answer(member);
    }
    trmi_request_forget(group);
}

/* Creates the request that runs a step on all shards; copies `ids`. NULL without memory. */
static trmi_request *create_group(trm_ps_server *server, int64_t step, const trmi_push_id *ids,
                                  uint32_t count) {
    trmi_request *g = trmi_request_create(server);
    trmi_push_id *copy = trmi_alloc(count * sizeof *copy + 1);
    if (g == NULL || copy == NULL) {
        if (g != NULL) {
            trmi_request_forget(g);
        }
        trmi_free(copy);
        return NULL;
    }
    if (count > 0) {
        memcpy(copy, ids, count * sizeof *copy);
    }
    g->header.clock = step;
    g->ids = copy;
    g->id_count = count;
    g->run = trmi_run_step;
    g->finish = finish_step;
    return g;
}

/* Collects the next staged push of each worker into members and `s`, in order of workers, so
 * that the sum does not depend on the order of arrival. */
static void gather_members(trm_ps_server *server, trmi_request **members, trmi_sync_step *s) {
    for (int64_t i = 0; i < server->worker_count; i++) {
        trmi_request *r = trmi_front_staged(server, &server->workers[i]);
        if (r == NULL) {
            continue;
        }
        uint32_t place = s->count++;
        while (place > 0 && members[place - 1]->header.worker > r->header.worker) {
            members[place] = members[place - 1];
            place--;
        }
        members[place] = r;
    }
    for (uint32_t m = 0; m < s->count; m++) {
        const trmi_ps_header *h = &members[m]->header;
        s->ids[m] = (trmi_push_id){h->worker, h->incarnation, h->sequence};
        s->leases[2 * m] = h->extra[0];
        s->leases[2 * m + 1] = trmi_server_lease_position(server, members[m]);
    }
}

/* Marks the samples of a step's members as used. The steps keep their leases after an error, so
 * that a restart marks them. CANCELLED and INVALID count as marked: read from a log, a lease may
 * have ended long ago.
 *   errors  those of the log of leases */
static trm_status mark_samples_used(trm_ps_server *server, trmi_sync_step *s, trm_error *err) {
    for (uint32_t m = 0; s->leases != NULL && m < s->count; m++) {
        if (s->leases[2 * m] != 0) {
            trm_status status =
                trmi_lease_progress(server->leases, s->leases[2 * m], s->ids[m].worker,
                                    s->leases[2 * m + 1], trmi_os_now(), err);
            if (status != TRM_OK && status != TRM_CANCELLED && status != TRM_INVALID) {
                return status;
            }
        }
    }
    trmi_free(s->leases);
    s->leases = NULL;
    return TRM_OK;
}

/* Marks the samples of a step that is decided. If the log of leases takes no event, the server has
 * failed and its book changes no more: a lease that it took back would be lent again, although its
 * samples are in the step. A restart reads the step and marks them. */
static void use_samples_of_step(trm_ps_server *server, trmi_sync_step *s) {
    trm_error err;
    if (mark_samples_used(server, s, &err) != TRM_OK) {
        server->failed = err;
        server->book_ends = true;
    }
}

/* Makes room for one more step before its event is logged, so that taking effect cannot fail. */
static bool reserve_step(trm_ps_server *server) {
    return trmi_grow((void **)&server->steps, &server->step_capacity, server->step_count + 1,
                     sizeof *server->steps);
}

/* Decides the next step from the `have` staged pushes: logs it, marks the samples, and
 * dispatches it. Returns false without memory or if logging failed; nothing has changed then,
 * and the next push or tick tries again. */
static bool decide_step(trm_ps_server *server, uint32_t have) {
    trmi_sync_step s = {.step = server->step + 1,
                        .ids = trmi_alloc(have * sizeof *s.ids),
                        .leases = trmi_alloc(have * 2 * sizeof *s.leases)};
    /* Make the step and its request, without a change of the server. */
    trmi_request **members = trmi_alloc(have * sizeof(trmi_request *));
    trmi_request *group = NULL;
    if (s.ids != NULL && s.leases != NULL && members != NULL) {
        gather_members(server, members, &s);
        group = create_group(server, s.step, s.ids, s.count);
    }
    /* the log decides: after this condition the step is fixed */
    prune_steps(server);
    if (group == NULL || !reserve_step(server) || log_step(server, &s, &server->failed) != TRM_OK) {
        trmi_free(members);
        free_step(&s);
        if (group != NULL) {
            trmi_request_forget(group);
        }
        return false;
    }
    /* leases, members, clocks, then the shards */
    server->steps[server->step_count++] = s;
    use_samples_of_step(server, &server->steps[server->step_count - 1]);
    group->members = members;
    group->member_count = s.count;
    for (uint32_t m = 0; m < s.count; m++) {
        trmi_worker *w = trmi_front_find(server, s.ids[m].worker);
        remove_staged(server, members[m]);
        w->dispatched = s.ids[m].sequence;
        w->clock = s.step;
    }
    server->step = s.step;
    trmi_request_dispatch(server, group);
    pthread_cond_broadcast(&server->changed);
    return true;
}

/* Contract in server.h. */
trmi_request *trmi_step_advance(trm_ps_server *server) {
    uint32_t have;
    bool decides = server->options.server == 0 && !server->held && server->failed.status == TRM_OK;
    while (decides) {
        drop_stale_pushes(server);
        decides = count_missing(server, &have) <= server->options.backup_workers && have > 0 &&
                  decide_step(server, have);
    }
    return trmi_front_advance(server);
}

/* ---- pushes that wait for a step ------------------------------------------------------------- */

/* Appends a push to the staged ones. Of several copies of a push the one that arrived last is
 * kept and answered later: the connections of the earlier copies are broken. */
static void append_staged(trm_ps_server *server, trmi_request *r) {
    trmi_request **at = &server->staged;
    while (*at != NULL) {
        trmi_request *other = *at;
        if (other->header.worker == r->header.worker &&
            other->header.incarnation == r->header.incarnation &&
            other->header.sequence == r->header.sequence) {
            if (other->started > r->started) {
                trmi_request_forget(r);
                return;
            }
            *at = other->next;
            trmi_request_forget(other);
            continue;
        }
        at = &other->next;
    }
    r->next = NULL;
    *at = r;
}

/* Acts on a staged push that all shards keep: server 0 puts it into the next step; the other
 * servers answer at once. */
static void finish_staging(trmi_request *r) {
    trm_ps_server *server = r->server;
    trmi_request *ready = NULL;
    if (r->err.status != TRM_OK) {
        trmi_request_answer(r);
        return;
    }
    pthread_mutex_lock(&server->mutex);
    if (server->options.server == 0) {
        append_staged(server, r);
        ready = trmi_step_advance(server);
        r = NULL;
    } else {
        r->note.value[2] = server->done_step;
        r->applied = true;
    }
    pthread_mutex_unlock(&server->mutex);
    if (r != NULL) {
        trmi_request_answer(r);
    }
    trmi_request_start_pulls(ready);
}

/* Contract in server.h. Refuses a push while an undecided step of a job without leases exists,
 * and where server 0 has lost its log. */
void trmi_step_stage(trm_ps_server *server, trmi_request *r) {
    bool decides = server->options.server == 0;
    trmi_worker *w = trmi_front_worker(server, r->header.worker, r->header.incarnation, &r->err);
    if (w == NULL || !trmi_front_same_dtype(server, r)) {
        trmi_request_answer(r);
        return;
    }
    if (server->last.step != 0) {
        TRMI_FAIL(&r->err, TRM_INVALID,
                  "server %d: step %lld of a job that lent no samples is not finished: resume it "
                  "once as it was",
                  server->options.server, (long long)server->last.step);
        trmi_request_answer(r);
        return;
    }
    server->staging = true;
    if (decides) {
        (void)!trmi_server_away_set(server, w, false, NULL);
    }
    /* a repeated push: its step is decided */
    if (r->header.sequence <= w->dispatched) {
        answer_again(server, r);
        return;
    }
    if (decides && server->options.servers > 1 && r->header.clock > server->step) {
        TRMI_FAIL(&r->err, TRM_INVALID,
                  "server 0 is at step %lld, the others at %lld: it was started again without its "
                  "log; stop the job and "
                  "resume from its last checkpoint",
                  (long long)server->step, (long long)r->header.clock);
        trmi_request_answer(r);
        return;
    }
    if (decides) {
        server->others_done_step = trmi_max_i64(server->others_done_step, r->header.clock);
    }
    r->run = trmi_run_stage;
    r->finish = finish_staging;
    trmi_request_dispatch(server, r);
}

/* ---- steps from server 0 --------------------------------------------------------------------- */

/* Notes that pushes of a worker up to `sequence` are in steps, unless a newer life has replaced
 * that one. */
static void note_dispatched(trm_ps_server *server, uint32_t worker, uint32_t incarnation,
                            uint64_t sequence) {
    trmi_worker *w = trmi_front_worker(server, worker, incarnation, NULL);
    if (w != NULL && sequence > w->dispatched) { /* else an ended life */
        w->dispatched = sequence;
    }
}

/* Applies a decided step on a server other than 0, if it is the next one.
 *   errors  INVALID: a step is missing */
static trm_status take_step(trm_ps_server *server, const step_head *head, const trmi_push_id *ids,
                            trm_error *err) {
    if (head->step <= server->step) {
        return TRM_OK;
    }
    if (head->step != server->step + 1) {
        TRMI_FAIL(&server->failed, TRM_INVALID,
                  "server %d is at step %lld, and the next it is told of is %lld: it was started "
                  "again without its log; "
                  "stop the job and resume from its last checkpoint",
                  server->options.server, (long long)server->step, (long long)head->step);
        *err = server->failed;
        return TRM_INVALID;
    }
    trmi_request *group = create_group(server, head->step, ids, head->count);
    if (group == NULL) {
        return TRMI_NO_MEMORY(err, "for a step");
    }
    server->step = head->step;
    trmi_request_dispatch(server, group);
    for (uint32_t i = 0; i < head->count; i++) {
        note_dispatched(server, ids[i].worker, ids[i].incarnation, ids[i].sequence);
    }
    return TRM_OK;
}

/* Parses a trailer of steps and applies them in order.
 *   errors  CORRUPT, those of take_step */
static trm_status take_steps(trm_ps_server *server, const uint8_t *data, size_t bytes,
                             trm_error *err) {
    size_t at = 0;
    while (at + sizeof(step_head) <= bytes) {
        step_head head;
        memcpy(&head, data + at, sizeof head);
        at += sizeof head;
        size_t size = head.count * sizeof(trmi_push_id);
        if (head.count == 0 || head.count > STEP_MEMBERS_MAX || size > bytes - at) {
            break;
        }
        trmi_push_id *ids = trmi_alloc(size);
        if (ids == NULL) {
            return TRMI_NO_MEMORY(err, "for a step");
        }
        memcpy(ids, data + at, size);
        trm_status status = take_step(server, &head, ids, err);
        trmi_free(ids);
        TRMI_TRY(status);
        at += size;
    }
    return at == bytes ? TRM_OK
                       : TRMI_FAIL(err, TRM_CORRUPT, "steps of %zu bytes end at %zu", bytes, at);
}

/* Contract in server.h. */
void trmi_step_order(trm_ps_server *server, trmi_request *r) {
    size_t bytes = (size_t)r->header.extra[0];
    int64_t settled = r->note.value[1];
    r->note = (trmi_ps_note){0};
    if (server->options.mode != TRM_PS_SYNC) {
        TRMI_FAIL(&r->err, TRM_INVALID, "server %d is not synchronous: it has no steps",
                  server->options.server);
        return;
    }
    if (server->options.server == 0) {
        trmi_step_append_decided(server, r);
        return;
    }
    if (server->failed.status != TRM_OK) {
        r->err = server->failed;
        return;
    }
    server->staging = true;
    if (take_steps(server, r->message.data + trmi_ps_note_size(TRMI_PS_CONTROL), bytes, &r->err) ==
            TRM_OK &&
        settled > 0 && r->link->worker >= 0) {
        note_dispatched(server, r->header.worker, r->header.incarnation, (uint64_t)settled);
    }
    r->note.value[2] = server->done_step;
}

/* ---- start and end --------------------------------------------------------------------------- */

/* Applies, while the server starts, a step of the log to the shards that lack it; they keep its
 * staged pushes in their own logs. */
static trm_status restore_step(trm_ps_server *server, trmi_sync_step *s, trm_error *err) {
    bool sum = server->options.sum_gradients;
    for (uint32_t i = 0; i < server->shards; i++) {
        trmi_push push = {.ids = s->ids,
                          .id_count = s->count,
                          .time = (uint32_t)trmi_os_wall(),
                          .clock = s->step,
                          .gradient_scale = sum ? 1.0f : 1.0f / (float)s->count};
        TRMI_TRY(trmi_shard_step(server->runners[i].shard, &push, err));
    }
    for (uint32_t m = 0; m < s->count; m++) {
        note_dispatched(server, s->ids[m].worker, s->ids[m].incarnation, s->ids[m].sequence);
        trmi_worker *w = trmi_front_find(server, s->ids[m].worker);
        if (w == NULL) {
            return TRMI_NO_MEMORY(err, "for worker %u", s->ids[m].worker);
        }
        w->clock = trmi_max_i64(w->clock, s->step);
    }
    server->step = server->done_step = trmi_max_i64(server->step, s->step);
    atomic_store(&server->global_step, server->runners[0].shard->tick);
    server->staging = true;
    return TRM_OK;
}

/* Returns the size of the log record at `at`, 0 if its head is not sound. */
static size_t record_size(const uint8_t *at, size_t left) {
    step_head head;
    if (left < sizeof head) {
        return 0;
    }
    memcpy(&head, at, sizeof head);
    return head.count == 0 || head.count > STEP_MEMBERS_MAX ? 0 : record_bytes(head.count);
}

/* Applies one record of the log and keeps the step, because other servers may lack it. */
static trm_status restore_record(void *context, const uint8_t *record, size_t bytes,
                                 trm_error *err) {
    (void)bytes;
    trm_ps_server *server = context;
    step_head head;
    memcpy(&head, record, sizeof head);
    size_t ids = head.count * sizeof(trmi_push_id), leases = head.count * 2 * sizeof(int64_t);
    trmi_sync_step s = {.step = head.step,
                        .count = head.count,
                        .ids = trmi_alloc(ids),
                        .leases = trmi_alloc(leases)};
    trm_status status = TRM_NOMEM;
    if (s.ids == NULL || s.leases == NULL || !reserve_step(server)) {
        TRMI_NO_MEMORY(err, "for a step of the log");
    } else {
        /* The record has a head, the pushes, then the begin and end of each one's samples. */
        memcpy(s.ids, record + sizeof head, ids);
        memcpy(s.leases, record + sizeof head + ids, leases);
        status = restore_step(server, &s, err);
    }
    if (status == TRM_OK) {
        server->steps[server->step_count++] = s;
    } else {
        free_step(&s);
    }
    return status;
}

/* Contract in server.h. Only server 0 of a synchronous job has the log of steps. */
trm_status trmi_step_open(trm_ps_server *server, trm_error *err) {
    char path[400];
    if (server->options.server != 0 || server->options.folder == NULL ||
        server->options.mode != TRM_PS_SYNC) {
        return TRM_OK;
    }
    const trmi_record_form form = {
        .size = record_size, .check_bytes = sizeof(uint64_t), .take = restore_record};
    size_t end;
    log_path(server, path);
    TRMI_TRY(trmi_records_each(path, STEPS_BYTES_MAX, &form, server, &end, err));
    server->steps_bytes = (int64_t)end;
    return server->options.log_pushes == TRM_ON
               ? trmi_records_open(path, end, &server->steps_fd, err)
               : TRM_OK;
}

trm_status trmi_step_settle(trm_ps_server *server, trm_error *err) {
    for (int64_t i = 0; i < server->step_count; i++) {
        TRMI_TRY(mark_samples_used(server, &server->steps[i], err));
    }
    return TRM_OK;
}

/* Contract in server.h. Returns the pushes that wait for a step, to be answered. */
trmi_request *trmi_step_close(trm_ps_server *server) {
    trmi_request *waiting = server->staged;
    server->staged = NULL;
    for (int64_t i = 0; i < server->step_count; i++) {
        free_step(&server->steps[i]);
    }
    free(server->steps);
    server->steps = NULL;
    server->step_count = 0;
    if (server->steps_fd >= 0) {
        close(server->steps_fd);
        server->steps_fd = -1;
    }
    return waiting;
}
