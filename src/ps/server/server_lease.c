/* SPDX-License-Identifier: Apache-2.0 */
/* The book of leases on server 0 and its log, FOLDER/leases.log. Only server 0 lends samples.
 *
 *   lend -> log the event -> take effect -> answer           restart: replay the log, then answer
 *
 * An event is logged before it takes effect, so that a server that is started again lends no sample
 * twice and knows which are used. Where pushes are not logged, the rows go back to the last
 * snapshot, and so does the book: what was lent later is lent again. In synchronous mode lending
 * also decides which workers a step waits for. */
#include "ps/shard/records.h"
#include "ps/server/server.h"

#include "base/checked.h"
#include "base/error.h"
#include "base/log.h"
#include "base/memory.h"

#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

/* Bytes of the log that are read, at most. */
enum { LOG_BYTES_MAX = 1 << 30 };

/* Writes the path of the log. */
static void log_path(const trm_ps_server *server, char path[300]) {
    snprintf(path, 300, "%s/leases.log", server->folder);
}

/* Appends an event to the log; called by the book before the event takes effect.
 *   errors  IO, NOSPACE; the error of the server after a step that could not mark its samples */
static trm_status record_event(void *context, const trmi_lease_event *event, trm_error *err) {
    trm_ps_server *server = context;
    if (server->book_ends) {
        return TRMI_FAIL(err, (trm_status)server->failed.status, "%s", server->failed.message);
    }
    trmi_lease_event e = *event;
    trmi_record_seal(&e, sizeof e, sizeof e.check);
    return trmi_records_append(server->lease_fd, &e, sizeof e, server->options.log_sync,
                               "leases.log", err);
}

/* State of reading the log: events so far, and how many of them count. */
typedef struct reading {
    const trm_ps_server *server;
    int64_t at, until;
} reading;

/* Finds the event of the last snapshot: first pass, if pushes are not logged. */
static trm_status find_snapshot(void *context, const uint8_t *record, size_t bytes,
                                trm_error *err) {
    (void)err;
    reading *c = context;
    trmi_lease_event e;
    memcpy(&e, record, bytes);
    c->at++;
    c->until = e.kind == TRMI_LEASE_SNAPSHOT && e.id == (int64_t)c->server->last_snapshot
                   ? c->at
                   : c->until;
    return TRM_OK;
}

/* Applies the events that count. */
static trm_status take_event(void *context, const uint8_t *record, size_t bytes, trm_error *err) {
    reading *c = context;
    trmi_lease_event e;
    memcpy(&e, record, bytes);
    return c->at++ < c->until ? trmi_lease_replay(c->server->leases, &e, err) : TRM_END;
}

/* Replays the log. If pushes are not logged, the pushes after the last snapshot are lost, so the
 * events after it do not count either: their samples are used again. */
static trm_status replay_log(const trm_ps_server *server, const char *path, size_t *end,
                             trm_error *err) {
    const trmi_record_form form = {
        .bytes = sizeof(trmi_lease_event), .check_bytes = sizeof(uint64_t), .take = take_event};
    trmi_record_form search = form;
    search.take = find_snapshot;
    reading c = {server, 0, 0};
    if (server->options.log_pushes == TRM_ON) {
        c.until = INT64_MAX;
    } else {
        TRMI_TRY(trmi_records_each(path, LOG_BYTES_MAX, &search, &c, end, err));
    }
    c.at = 0;
    return trmi_records_each(path, LOG_BYTES_MAX, &form, &c, end, err);
}

/* Contract in server.h. Only server 0 has the book. Without logs of pushes the book goes back to
 * the last snapshot, as the rows do. */
trm_status trmi_server_lease_open(trm_ps_server *server, trm_error *err) {
    server->lease_fd = -1;
    if (server->options.server != 0) {
        return TRM_OK;
    }
    TRMI_TRY(trmi_lease_book_create(record_event, server, &server->leases, err));
    if (server->options.folder == NULL) {
        return TRM_OK;
    }
    char path[300];
    log_path(server, path);
    size_t end;
    TRMI_TRY(replay_log(server, path, &end, err));
    return trmi_records_open(path, end, &server->lease_fd, err);
}

void trmi_server_lease_close(trm_ps_server *server) {
    trmi_lease_book_destroy(server->leases);
    if (server->leases != NULL && server->lease_fd >= 0) {
        close(server->lease_fd);
    }
}

/* Contract in server.h. In synchronous mode only workers with samples are waited for, so the
 * worker becomes active or inactive here. */
void trmi_server_lease_take(trm_ps_server *server, trmi_request *r) {
    trm_ps_lease_options o = {r->note.value[1], r->note.value[2],
                              r->note.value[3], (double)r->note.value[4] * 1e-3,
                              r->note.value[6], r->note.value[7]};
    trm_ps_lease lease = {0};
    if (server->leases == NULL) {
        TRMI_FAIL(&r->err, TRM_INVALID, "server %d lends no samples, server 0 does",
                  server->options.server);
        return;
    }
    const trmi_worker *known = trmi_front_find(server, r->header.worker);
    const bool inactive =
        known != NULL && known->incarnation == r->header.incarnation && !known->active;
    const bool rested =
        (inactive || r->note.value[8] != 0) && server->options.mode == TRM_PS_BOUNDED;
    trmi_worker *w = trmi_front_worker(server, r->header.worker, r->header.incarnation, &r->err);
    if (w == NULL) {
        return;
    }
    /* a bounded worker that had no samples becomes active with its next pull, on all servers */
    w->active = !rested;
    /* a lease whose answer was lost: the worker does not know it */
    trm_status status =
        trmi_lease_drop_after(server->leases, r->header.worker, r->note.value[5], &r->err);
    if (status != TRM_OK) {
        return;
    }
    /* a synchronous worker without samples is away: steps do not wait for it */
    status = trmi_lease_take(server->leases, &o, r->header.worker, trmi_os_now(), &lease, &r->err);
    if (server->options.mode == TRM_PS_SYNC) {
        w->active = status == TRM_OK;
        (void)!trmi_server_away_set(server, w, !w->active, NULL);
    }
    /* BOUNDED: a worker that has rested, or whose life begins, counts its batches from here */
    const bool begins = rested || w->dispatched == 0;
    const int64_t first =
        begins && server->options.mode == TRM_PS_BOUNDED ? trmi_front_caught_up(server, w) : 0;
    int64_t samples;
    r->note = (trmi_ps_note){.value = {TRMI_ORDER_LEASE, lease.id, lease.epoch, lease.begin,
                                       lease.end, status > 0 ? status : 0,
                                       trmi_lease_number(server->leases, &samples), first}};
}

int64_t trmi_server_lease_position(const trm_ps_server *server, const trmi_request *r) {
    int64_t samples;
    (void)trmi_lease_number(server->leases, &samples);
    int64_t end = r->header.extra[1];
    return samples < 1 || end < 1 ? end : (end - 1) % samples + 1;
}

/* Contract in server.h. Samples are marked as used only when all shards have the push. If a
 * process dies in between, the batch is repeated, and the shards that have it recognise its
 * samples. */
trm_status trmi_server_lease_push(trm_ps_server *server, const trmi_request *r, trm_error *err) {
    if (server->leases == NULL || r->header.extra[0] == 0) {
        return TRM_OK;
    }
    return trmi_lease_check(server->leases, r->header.extra[0], r->header.worker,
                            trmi_server_lease_position(server, r), trmi_os_now(), err);
}

/* Contract in server.h. Samples of a lease are used in order; a push that failed before leaves a
 * gap, and the worker loses the lease, so that the samples of the gap are lent again. */
void trmi_server_lease_pushed(trm_ps_server *server, const trmi_request *r) {
    if (server->leases == NULL || r->header.extra[0] == 0 || r->dropped ||
        r->err.status != TRM_OK) {
        return;
    }
    const int64_t id = r->header.extra[0], end = trmi_server_lease_position(server, r);
    if (trmi_lease_give_up_gap(server->leases, id, end - r->header.samples)) {
        trmi_log(TRM_LOG_WARN, "ps",
                 "server %d: worker %u has lost lease %lld: its push before sample %lld has failed",
                 server->options.server, r->header.worker, (long long)id,
                 (long long)(end - r->header.samples));
        return;
    }
    /* a lease that was lost meanwhile: the batch is repeated, and every shard recognises it */
    (void)!trmi_lease_progress(server->leases, id, r->header.worker, end, trmi_os_now(), NULL);
}
