/* The book of leases on server 0, and its log beside the pushes' logs. */
#include "ps/server.h"

#include "base/error.h"
#include "base/log.h"
#include "base/memory.h"

#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

enum { LOG_BYTES_MAX = 1 << 30 };

static void log_path(const trm_ps_server *server, char path[300]) {
    snprintf(path, 300, "%s/leases.log", server->folder);
}

static uint64_t check_of(const trmi_lease_event *e) {
    return XXH3_64bits(e, offsetof(trmi_lease_event, check));
}

static trm_status record(void *context, const trmi_lease_event *event, trm_error *err) {
    trm_ps_server *server = context;
    if (server->lease_fd < 0) {
        return TRM_OK;
    }
    trmi_lease_event e = *event;
    e.check = check_of(&e);
    TRMI_TRY(trmi_os_write_all(NULL, server->lease_fd, &e, sizeof e, "leases.log", err));
    return !server->options.log_sync || fdatasync(server->lease_fd) == 0
               ? TRM_OK
               : TRMI_FAIL_SYS(err, "%s/leases.log: cannot flush", server->folder);
}

static trm_status replay(trm_ps_server *server, const char *path, trm_error *err) {
    uint8_t *data;
    size_t bytes, keep = 0;
    TRMI_TRY(trmi_os_read_file(path, LOG_BYTES_MAX, &data, &bytes, err));
    trm_status status = TRM_OK;
    /* Pushes after the cut are gone without their logs: so are their samples' marks. */
    size_t end = server->options.log_pushes ? bytes : 0;
    for (size_t at = 0; at + sizeof(trmi_lease_event) <= bytes; at += sizeof(trmi_lease_event)) {
        trmi_lease_event e;
        memcpy(&e, data + at, sizeof e);
        if (e.check != check_of(&e)) {
            break;
        }
        if (e.kind == TRMI_LEASE_CUT && e.id == (int64_t)server->last_cut &&
            !server->options.log_pushes) {
            end = at + sizeof e;
        }
    }
    for (size_t at = 0; at + sizeof(trmi_lease_event) <= end && status == TRM_OK;
         at += sizeof(trmi_lease_event)) {
        trmi_lease_event e;
        memcpy(&e, data + at, sizeof e);
        if (e.check != check_of(&e)) {
            break; /* torn */
        }
        status = trmi_lease_replay(server->leases, &e, err);
        keep = at + sizeof e;
    }
    trmi_free(data);
    if (status == TRM_OK && truncate(path, (off_t)keep) != 0) {
        status = TRMI_FAIL_SYS(err, "%s: cannot cut off a torn end", path);
    }
    return status;
}

trm_status trmi_server_lease_open(trm_ps_server *server, trm_error *err) {
    server->lease_fd = -1;
    if (server->options.server != 0) {
        return TRM_OK;
    }
    TRMI_TRY(trmi_lease_book_create(record, server, &server->leases, err));
    if (server->options.folder == NULL) {
        return TRM_OK;
    }
    char path[300];
    log_path(server, path);
    if (access(path, F_OK) == 0) {
        TRMI_TRY(replay(server, path, err));
    }
    server->lease_fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    return server->lease_fd >= 0 ? TRM_OK : TRMI_FAIL_SYS(err, "%s: cannot open", path);
}

void trmi_server_lease_close(trm_ps_server *server) {
    trmi_lease_book_destroy(server->leases);
    if (server->leases != NULL && server->lease_fd >= 0) {
        close(server->lease_fd);
    }
}

void trmi_server_lease_take(trm_ps_server *server, trmi_request *r) {
    trm_ps_lease_options o = {r->note.value[1], r->note.value[2], r->note.value[3],
                              (double)r->note.value[4] * 1e-3, r->note.value[6], r->note.value[7]};
    trm_ps_lease lease = {0};
    if (server->leases == NULL) {
        TRMI_FAIL(&r->err, TRM_INVALID, "server %d lends no samples, server 0 does",
                  server->options.server);
        return;
    }
    const trmi_worker *known = trmi_front_find(server, r->header.worker);
    bool rested = known != NULL && known->incarnation == r->header.incarnation && !known->active &&
                  server->options.mode == TRM_PS_BOUNDED;
    trmi_worker *w = trmi_front_worker(server, r->header.worker, r->header.incarnation, &r->err);
    if (w == NULL) {
        return;
    }
    w->active = !rested; /* its next push says that it is back, to every server */
    /* A lease whose answer was lost on the way: nobody knows of it. */
    trm_status status =
        trmi_lease_drop_after(server->leases, r->header.worker, r->note.value[5], &r->err);
    if (status != TRM_OK) {
        return;
    }
    status = trmi_lease_take(server->leases, &o, r->header.worker, trmi_os_now(), &lease, &r->err);
    if (server->options.mode == TRM_PS_SYNC) { /* only here are workers waited for: for those that have samples */
        w->active = status == TRM_OK;
        trmi_server_away_set(server, w, !w->active);
    }
    int64_t samples;
    r->note = (trmi_ps_note){.value = {TRMI_ORDER_LEASE, lease.id, lease.epoch, lease.begin,
                                       lease.end, status > 0 ? status : 0,
                                       trmi_lease_number(server->leases, &samples)}};
}

int64_t trmi_server_lease_position(const trm_ps_server *server, const trmi_request *r) {
    int64_t samples;
    (void)trmi_lease_number(server->leases, &samples);
    int64_t end = r->header.extra[1];
    return samples < 1 || end < 1 ? end : (end - 1) % samples + 1;
}

/* Samples are marked as used when all shards have learnt from them: what dies in between is made
 * again, and those that have it know its samples. */
trm_status trmi_server_lease_push(trm_ps_server *server, const trmi_request *r, trm_error *err) {
    if (server->leases == NULL || r->header.extra[0] == 0) {
        return TRM_OK;
    }
    return trmi_lease_check(server->leases, r->header.extra[0], r->header.worker,
                            trmi_server_lease_position(server, r), trmi_os_now(), err);
}

void trmi_server_lease_pushed(trm_ps_server *server, const trmi_request *r) {
    if (server->leases == NULL || r->header.extra[0] == 0 || r->dropped ||
        r->err.status != TRM_OK) {
        return;
    }
    /* A lease that was lost meanwhile: its batch will be made again, and every shard knows it. */
    (void)!trmi_lease_progress(server->leases, r->header.extra[0], r->header.worker,
                               trmi_server_lease_position(server, r), trmi_os_now(), NULL);
}
