/* SPDX-License-Identifier: Apache-2.0 */
/* The life of a request: created by its link, run by every shard, answered by the last shard.
 *
 *       trmi_request_new -> [front] -> trmi_request_dispatch -> run on each shard -> trmi_request_finish -> answer, free
 *       pull: the answer is reserved in the client's ring first, and the shards write their rows
 *       into it
 *
 * No shard waits for a client. An answer (or a pull) for which the client's ring has no room is
 * put on its link's list `late`; the link's thread tries again until worker_timeout_seconds have
 * passed. */
#include "ps/server/server.h"

#include "base/error.h"
#include "base/log.h"
#include "base/memory.h"

/* Takes a place in the queue of each shard: no queue has more items than there are places, and one
 * more for the declaration of a table (server_order.c). Returns false if there is no memory. */
static bool take_place(trm_ps_server *server) {
    int64_t places = atomic_fetch_add(&server->requests, 1) + 2;
    trm_status status = TRM_OK;
    for (uint32_t s = 0; places > TRMI_QUEUE_PLACES && s < server->shards && status == TRM_OK;
         s++) {
        status = trmi_queue_reserve(server->runners[s].queue, places);
    }
    if (status != TRM_OK) {
        atomic_fetch_sub(&server->requests, 1);
    }
    return status == TRM_OK;
}

trmi_request *trmi_request_create(trm_ps_server *server) {
    trmi_request *r = trmi_alloc(sizeof *r);
    if (r == NULL || !take_place(server)) {
        trmi_free(r);
        return NULL;
    }
    r->server = server;
    pthread_mutex_init(&r->mutex, NULL);
    return r;
}

/* Contract in server.h. Takes over the message; the link stays until its last request is freed. */
trmi_request *trmi_request_new(trmi_ps_link *link, trmi_message *message,
                               const trmi_ps_header *header) {
    trmi_request *r = trmi_request_create(link->server);
    if (r != NULL) {
        r->link = link;
        r->message = *message;
        r->header = *header;
        r->started = trmi_os_now();
        atomic_fetch_add(&link->requests, 1);
        *message = (trmi_message){0};
    }
    return r;
}

/* Contract in server.h. The counts are in r->first. */
trm_status trmi_request_decode(trm_ps_server *server, trmi_request *r, trm_error *err) {
    uint32_t count = r->header.section_count, shards = server->shards;
    if (count > r->message.bytes / sizeof(trmi_ps_wire_section)) {
        return TRMI_FAIL(err, TRM_CORRUPT, "%u sections in %zu bytes", count, r->message.bytes);
    }
    /* Lock, because the tables grow while links decode. */
    pthread_mutex_lock(&server->mutex);
    trmi_ps_shape shape = {shards, server->table_count, server->widths};
    pthread_mutex_unlock(&server->mutex);
    TRMI_TRY(TRMI_NEW(err, r->sections, count + 1, "for %u sections", count));
    TRMI_TRY(TRMI_NEW(err, r->first, shards + 1, "for %u sections", count));
    TRMI_TRY(
        trmi_ps_decode(r->message.data, r->message.bytes, &r->header, &shape, r->sections, err));
    if (trmi_ps_nodes(&r->header) > 0 &&
        (server->options.mode != TRM_PS_SYNC || server->options.backup_workers > 0 ||
         r->header.dtype != TRM_FLOAT32)) {
        return TRMI_FAIL(err, TRM_INVALID,
                         "worker %u pushes in strict determinism, which needs synchronous servers "
                         "without backup workers and float32 gradients",
                         r->header.worker);
    }
    /* sections are in ascending order of shards: count, then sum up to each shard's range */
    for (uint32_t i = 0; i < count; i++) {
        r->first[r->sections[i].shard + 1]++;
    }
    for (uint32_t s = 0; s < shards; s++) {
        r->first[s + 1] += r->first[s];
    }
    return TRM_OK;
}

/* Frees a request and releases its message; the link may be reaped after that. */
static void free_request(trmi_request *r) {
    trmi_ps_link *link = r->link;
    if (r->message.block != NULL) {
        link->channel->table->release(link->channel, &r->message);
    } else if (link == NULL) {
        trmi_free(r->message.data); /* of a push of the file of kept pushes */
    }
    pthread_mutex_destroy(&r->mutex);
    trmi_free(r->sections);
    trmi_free(r->first);
    trmi_free(r->trailer);
    trmi_free(r->members);
    trmi_free(r->ids);
    atomic_fetch_sub(&r->server->requests, 1);
    trmi_free(r);
    if (link != NULL) {
        atomic_fetch_sub(&link->requests, 1);
    }
}

void trmi_request_forget(trmi_request *r) { free_request(r); }

void trmi_request_fail(trmi_request *r, const trm_error *err) {
    pthread_mutex_lock(&r->mutex);
    if (r->err.status == TRM_OK || r->dropped) {
        r->err = *err;
    }
    pthread_mutex_unlock(&r->mutex);
}

/* ---- answers --------------------------------------------------------------------------------- */

/* Reserves room for an answer without waiting.
 *   errors  TIMEOUT: the client has no room */
static trm_status reserve_answer(trmi_ps_link *link, size_t bytes, trmi_message *out,
                                 trm_error *err) {
    pthread_mutex_lock(&link->send_mutex);
    trm_status status = link->channel->table->reserve(link->channel, bytes, 0, out, err);
    pthread_mutex_unlock(&link->send_mutex);
    return status;
}

/* Sends a reserved answer. Under send_mutex, because reserve may reuse memory that another
 * thread has committed: the client's release in its own mapping permits that, which no thread
 * sanitizer can see. */
static void commit_answer(trmi_ps_link *link, trmi_message *m) {
    pthread_mutex_lock(&link->send_mutex);
    (void)!link->channel->table->commit(link->channel, m, 0, NULL);
    pthread_mutex_unlock(&link->send_mutex);
}

/* Sends now if there is room, else leaves the request to the link's thread. A link that has
 * ended gets nothing. */
static void send_or_wait(trmi_request *r, bool (*send)(trmi_request *r)) {
    trmi_ps_link *link = r->link;
    if (send(r)) {
        return;
    }
    /* append to the link's list, unless the link has ended */
    r->send = send;
    r->next = NULL;
    pthread_mutex_lock(&link->send_mutex);
    bool ended = atomic_load(&link->ended);
    trmi_request **at = &link->late;
    while (!ended && *at != NULL) {
        at = &(*at)->next;
    }
    if (!ended) {
        *at = r;
    }
    pthread_mutex_unlock(&link->send_mutex);
    if (ended) {
        free_request(r);
    }
}

/* Contract in server.h. Sends in order; stops at the first answer without room, which goes back
 * to the front of the list. */
trm_status trmi_request_send_late(trmi_ps_link *link, bool *rest) {
    for (;;) {
        pthread_mutex_lock(&link->send_mutex);
        trmi_request *r = link->late;
        link->late = r == NULL ? NULL : r->next;
        pthread_mutex_unlock(&link->send_mutex);
        *rest = r != NULL;
        if (r == NULL) {
            return TRM_OK;
        }
        /* The lateness of the answer counts from the first try here. */
        double now = trmi_os_now(), silence = link->server->options.worker_timeout_seconds;
        r->late_since = r->late_since == 0 ? now : r->late_since;
        double waited = now - r->late_since;
        if (r->send(r)) {
            continue;
        }
        pthread_mutex_lock(&link->send_mutex);
        r->next = link->late;
        link->late = r;
        pthread_mutex_unlock(&link->send_mutex);
        if (waited > silence) {
            trmi_log(TRM_LOG_WARN, "ps",
                     "%s has not read its answers for %.1f s: cut off, it may come again",
                     link->channel->peer, waited);
            return TRM_PEER;
        }
        return TRM_OK;
    }
}

void trmi_request_drop_late(trmi_ps_link *link) {
    pthread_mutex_lock(&link->send_mutex);
    trmi_request *list = link->late;
    link->late = NULL;
    pthread_mutex_unlock(&link->send_mutex);
    while (list != NULL) {
        trmi_request *r = list;
        list = r->next;
        free_request(r);
    }
}

/* Sends error, or note and trailer, and frees the request. Returns false if there is no room, or no
 * memory, yet. */
static bool send_answer(trmi_request *r) {
    trmi_ps_link *link = r->link;
    trmi_ps_header header = {.kind = TRMI_PS_DONE,
                             .worker = r->header.worker,
                             .incarnation = r->header.incarnation,
                             .sequence = r->header.sequence,
                             .clock = r->header.clock,
                             .status = r->err.status,
                             .flags = r->header.kind};
    /* an error replaces the trailer */
    uint8_t wire[256];
    const uint8_t *trailer = r->trailer;
    header.extra[0] = (int64_t)r->trailer_bytes;
    if (r->err.status != TRM_OK) {
        trmi_error_encode(&r->err, wire);
        trailer = wire;
        header.extra[0] = sizeof wire;
    }
    trmi_message out;
    size_t note_bytes = trmi_ps_note_size(TRMI_PS_DONE);
    bool here = link != NULL && !atomic_load(&link->ended);
    trm_status status =
        here ? reserve_answer(link, note_bytes + (size_t)header.extra[0], &out, NULL) : TRM_END;
    if (status == TRM_TIMEOUT || status == TRM_NOMEM) {
        return false;
    }
    if (status == TRM_OK) {
        r->note.value[13] = r->applied;
        r->note.value[12] = r->dropped;
        trmi_ps_encode_note(&header, &r->note, NULL, out.data);
        if (header.extra[0] > 0) {
            memcpy(out.data + note_bytes, trailer, (size_t)header.extra[0]);
        }
        commit_answer(link, &out);
    }
    free_request(r);
    return true;
}

void trmi_request_answer(trmi_request *r) { send_or_wait(r, send_answer); }

/* Calls `on_applied` of a request that all shards have carried out. */
static void call_on_applied(const trmi_request *r) {
    if (r->on_applied != NULL && r->err.status == TRM_OK) {
        r->on_applied(r);
    }
}

/* Answers the pushes of a synchronous sum with the outcome of the sum. */
static void answer_members(trmi_request *group) {
    for (uint32_t i = 0; i < group->member_count; i++) {
        trmi_request *member = group->members[i];
        member->err = group->err;
        member->applied = group->applied;
        member->note.value[1] = group->note.value[1];
        call_on_applied(member);
        trmi_request_answer(member);
    }
    free_request(group);
}

/* Contract in server.h. Only the last shard gets past the first line. What follows depends on
 * the request: a function of its own, the members of a sum, an answer, or a pull whose reserved
 * answer is complete (or is returned unused after an error). */
void trmi_request_finish(trmi_request *r) {
    if (atomic_fetch_sub(&r->pending, 1) != 1) {
        return;
    }
    /* The last shard is here: the decrement orders the writes of the other shards before this
     * point. */
    if (r->finish != NULL) {
        r->finish(r);
        return;
    }
    if (r->members != NULL) {
        answer_members(r);
        return;
    }
    /* The answer to a push or an order is a note. */
    if (r->reply.block == NULL) {
        call_on_applied(r);
        trmi_request_answer(r);
        return;
    }
    /* After an error the reserved answer of a pull is withdrawn. */
    if (r->err.status != TRM_OK) {
        r->reply.bytes = 0;
        commit_answer(r->link, &r->reply);
        trmi_request_answer(r);
        return;
    }
    commit_answer(r->link, &r->reply);
    free_request(r);
}

/* Contract in server.h. The request has a place in each queue, so only a queue that is closed does
 * not take it. That shard counts as finished with an error, so that the request always ends. */
void trmi_request_dispatch(trm_ps_server *server, trmi_request *request) {
    atomic_store(&request->pending, (int32_t)server->shards);
    for (uint32_t s = 0; s < server->shards; s++) {
        trm_status status = trmi_queue_append(server->runners[s].queue, request);
        if (status != TRM_OK) {
            trm_error err;
            TRMI_FAIL(&err, status, "the server is stopping");
            trmi_request_fail(request, &err);
            trmi_request_finish(request);
        }
    }
}

/* Reserves the answer of a pull and writes its head, so that the shards fill in rows in place. */
static trm_status prepare_reply(trm_ps_server *server, trmi_request *r, trm_error *err) {
    size_t bytes = trmi_ps_size(TRMI_PS_ROWS, (trm_dtype)r->header.dtype, r->sections,
                                r->header.section_count, server->widths);
    if (bytes == 0) {
        return TRMI_FAIL(err, TRM_INVALID, "a pull whose answer is over 1 GB: use smaller batches");
    }
    trm_status status = reserve_answer(r->link, bytes, &r->reply, err);
    if (status == TRM_OK) {
        trmi_ps_header header = r->header;
        header.kind = TRMI_PS_ROWS;
        trmi_ps_encode(&header, r->sections, server->widths, r->reply.data);
    }
    return status;
}

/* Pulls the rows of this shard's sections into the reserved answer. */
static void run_pull(trmi_shard_thread *runner, trmi_request *r) {
    uint32_t s = runner->shard->number;
    trm_error err;
    if (trmi_shard_pull(runner->shard, r->sections + r->first[s], r->first[s + 1] - r->first[s],
                        (trm_dtype)r->header.dtype, &err) != TRM_OK) {
        trmi_request_fail(r, &err);
    }
}

/* Reserves the answer of a pull and dispatches it. Returns false if the client has no room yet. */
static bool begin_pull(trmi_request *r) {
    trm_error err;
    trm_status status = r->err.status != TRM_OK ? (trm_status)r->err.status
                                                : prepare_reply(r->link->server, r, &err);
    if (status == TRM_TIMEOUT && r->err.status == TRM_OK) {
        return false;
    }
    if (status != TRM_OK) {
        r->err = r->err.status != TRM_OK ? r->err : err;
        trmi_request_answer(r);
        return true;
    }
    r->run = run_pull;
    trmi_request_dispatch(r->link->server, r);
    return true;
}

/* Contract in server.h. A pull whose answer finds no room waits on its link's list. */
void trmi_request_start_pulls(trmi_request *list) {
    while (list != NULL) {
        trmi_request *r = list;
        list = r->next;
        r->next = NULL;
        send_or_wait(r, begin_pull);
    }
}

/* ---- on the shards --------------------------------------------------------------------------- */

/* Notes the outcome of a push on one shard, and publishes the global step (shard 0). */
static void note_pushed(trmi_shard_thread *runner, trmi_request *r, trm_status status, bool applied,
                        const trm_error *err) {
    if (status != TRM_OK) {
        trmi_request_fail(r, err);
        return;
    }
    if (runner->shard->number == 0) {
        atomic_store(&runner->server->global_step, runner->shard->tick);
    }
    pthread_mutex_lock(&r->mutex);
    r->applied |= applied;
    r->note.value[1] = runner->shard->tick;
    pthread_mutex_unlock(&r->mutex);
}

/* Returns the samples of a push under a lease; empty for a push without a lease or with refused
 * gradients. */
static trmi_push_mark mark_of(const trmi_request *r) {
    const trmi_ps_header *h = &r->header;
    if (h->extra[0] == 0 || r->dropped || h->samples == 0 || h->extra[1] < h->samples) {
        return (trmi_push_mark){0};
    }
    return (trmi_push_mark){h->extra[1] - h->samples, h->extra[1], h->book, 0};
}

/* Applies one push to a shard. A dropped push has no sections and only fills its worker's
 * window. */
void trmi_run_push(trmi_shard_thread *runner, trmi_request *r) {
    uint32_t s = runner->shard->number;
    trmi_push_id id = {r->header.worker, r->header.incarnation, r->header.sequence};
    trmi_push_mark mark = mark_of(r);
    mark.flags = r->dropped ? TRMI_MARK_FILLS : 0;
    trmi_push push = {.ids = &id,
                      .id_count = 1,
                      .time = (uint32_t)trmi_os_wall(),
                      .clock = r->header.clock,
                      .rate_scale = r->header.rate_scale,
                      .gradient_scale = 1,
                      .dtype = (trm_dtype)r->header.dtype,
                      .sections = r->sections + r->first[s],
                      .section_count = r->dropped ? 0 : r->first[s + 1] - r->first[s],
                      .marks = r->dropped || mark.begin < mark.end ? &mark : NULL,
                      .clocked = runner->server->options.mode != TRM_PS_ASYNC};
    bool applied = false;
    trm_error err;
    trm_status status = trmi_shard_push(runner->shard, &push, &applied, &err);
    note_pushed(runner, r, status, applied, &err);
}

/* Applies the sum of a step's members to one shard. A shard that has the step already (from its
 * log) only fills the windows. */
static trm_status push_group(trmi_shard_thread *runner, const trmi_request *group,
                             const trmi_sum_part *parts, trmi_push *push, bool *applied,
                             trm_error *err) {
    trmi_sum sum = {0};
    if (push->clock <= runner->shard->clock) {
        return trmi_shard_fill(runner->shard, push, err);
    }
    trm_status status = trmi_shard_sum(runner->shard, parts, group->member_count,
                                       (trm_dtype)group->header.dtype, &sum, err);
    if (status == TRM_OK) {
        push->sections = sum.sections;
        push->section_count = sum.count;
        status = trmi_shard_push(runner->shard, push, applied, err);
    }
    trmi_sum_free(&sum);
    return status;
}

void trmi_server_fail(trmi_shard_thread *runner, const trm_error *err) {
    trm_ps_server *server = runner->server;
    if (runner->shard->broken.status == TRM_OK) {
        runner->shard->broken = *err;
    }
    pthread_mutex_lock(&server->mutex);
    server->failed = server->failed.status == TRM_OK ? *err : server->failed;
    pthread_mutex_unlock(&server->mutex);
}

/* Runs a synchronous step on one shard: sums the members in order of workers, scales by the mean
 * or the sum, and applies the result as one push. With `again` the undecided step of the log is
 * voided first. */
void trmi_run_group(trmi_shard_thread *runner, trmi_request *group) {
    uint32_t s = runner->shard->number, count = group->member_count;
    const int64_t nodes = trmi_ps_nodes(&group->header); /* such sums are divided already */
    trm_error err;
    trmi_push_id *ids = trmi_alloc(count * sizeof *ids);
    trmi_sum_part *parts = trmi_alloc(count * sizeof *parts);
    trmi_push push = {.ids = ids,
                      .id_count = count,
                      .time = (uint32_t)trmi_os_wall(),
                      .clock = group->header.clock,
                      .rate_scale = group->header.rate_scale,
                      .gradient_scale = runner->server->options.sum_gradients || nodes > 0
                                            ? 1.0f
                                            : 1.0f / (float)count,
                      .dtype = TRM_FLOAT32,
                      .clocked = true};
    bool applied = false;
    trm_status status =
        ids == NULL || parts == NULL ? TRMI_NO_MEMORY(&err, "to sum gradients") : TRM_OK;
    if (status == TRM_OK && nodes % count != 0) {
        status =
            TRMI_FAIL(&err, TRM_INVALID,
                      "%u workers push sums of %lld blocks: each pushes the sums of a job of its "
                      "own; in strict determinism they need a communicator (parallel.comm)",
                      count, (long long)nodes);
    }
    status = status == TRM_OK && group->again ? trmi_shard_void_held(runner->shard, &err) : status;
    /* the members' sections for this shard; sums by blocks need equal numbers of nodes */
    for (uint32_t m = 0; m < count && status == TRM_OK; m++) {
        const trmi_request *member = group->members[m];
        ids[m] = (trmi_push_id){member->header.worker, member->header.incarnation,
                                member->header.sequence};
        parts[m] = (trmi_sum_part){member->sections + member->first[s],
                                   member->first[s + 1] - member->first[s], nodes};
        if (trmi_ps_nodes(&member->header) != nodes) {
            status = TRMI_FAIL(&err, TRM_INVALID,
                               "worker %u pushes sums of %lld blocks, worker %u of %lld: start all "
                               "workers with the same --deterministic and batch size",
                               member->header.worker, (long long)trmi_ps_nodes(&member->header),
                               group->header.worker, (long long)nodes);
        }
    }
    status = status == TRM_OK ? push_group(runner, group, parts, &push, &applied, &err) : status;
    /* INVALID and CANCELLED come from the pushes themselves: every shard fails alike */
    if (status != TRM_OK && status != TRM_INVALID && status != TRM_CANCELLED) {
        trmi_server_fail(runner, &err);
    }
    note_pushed(runner, group, status, applied, &err);
    trmi_free(ids);
    trmi_free(parts);
}

/* Logs and keeps a push of leased samples until its step. */
void trmi_run_stage(trmi_shard_thread *runner, trmi_request *r) {
    uint32_t s = runner->shard->number;
    trmi_push_id id = {r->header.worker, r->header.incarnation, r->header.sequence};
    trmi_push push = {.ids = &id,
                      .id_count = 1,
                      .rate_scale = r->header.rate_scale,
                      .dtype = (trm_dtype)r->header.dtype,
                      .sections = r->sections + r->first[s],
                      .section_count = r->first[s + 1] - r->first[s],
                      .form = TRMI_PUSH_STAGED};
    trm_error err;
    if (trmi_shard_stage(runner->shard, &push, &err) != TRM_OK) {
        trmi_request_fail(r, &err);
    }
}

/* Applies the sum of staged pushes as one step. A server that cannot log a decided step
 * finds the step's pushes in its log at the next start. */
void trmi_run_step(trmi_shard_thread *runner, trmi_request *r) {
    bool sum = runner->server->options.sum_gradients;
    trmi_push push = {.ids = r->ids,
                      .id_count = r->id_count,
                      .time = (uint32_t)trmi_os_wall(),
                      .clock = r->header.clock,
                      .gradient_scale = sum ? 1.0f : 1.0f / (float)r->id_count};
    trm_error err;
    trm_status status = trmi_shard_step(runner->shard, &push, &err);
    if (status != TRM_OK) {
        trmi_server_fail(runner, &err);
    }
    note_pushed(runner, r, status, true, &err);
}
