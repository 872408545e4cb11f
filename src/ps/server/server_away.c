/* SPDX-License-Identifier: Apache-2.0 */
/* The log of workers: which workers have left or have no samples, which incarnations were given
 * out, and the chief. A restarted server does not wait for workers that were away, and never
 * gives the same incarnation to two processes. The last record of a worker counts. The file is
 * removed when the job is over. */
#include "ps/shard/records.h"
#include "ps/server/server.h"

#include "base/checked.h"
#include "base/error.h"
#include "base/log.h"
#include "base/memory.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* Bytes of the log, at most, and values of a record: a life begins, a worker is the chief, was
 * it. */
enum { AWAY_BYTES_MAX = 64 << 20, BEGINS = 2, IS_CHIEF = 3, WAS_CHIEF = 4 };

/* One record of the log. */
typedef struct away_record {
    uint32_t worker, incarnation;
    uint32_t away;  /* 0: came back, 1: away; BEGINS, IS_CHIEF, WAS_CHIEF: it has left */
    uint32_t check; /* digest of the members before it */
} away_record;

/* Writes the path of the log. */
static void away_path(const trm_ps_server *server, char path[400]) {
    snprintf(path, 400, "%s/log/away-server-%d.log", server->folder, server->options.server);
}

/* Finds or creates the entry of a worker's lives; NULL without memory. */
static trmi_life *find_life(trm_ps_server *server, uint32_t worker) {
    for (int64_t i = 0; i < server->life_count; i++) {
        if (server->lives[i].worker == worker) {
            return &server->lives[i];
        }
    }
    if (!trmi_grow((void **)&server->lives, &server->life_capacity, server->life_count + 1,
                   sizeof *server->lives)) {
        return NULL;
    }
    server->lives[server->life_count] = (trmi_life){.worker = worker};
    return &server->lives[server->life_count++];
}

/* Appends a record to the log. */
static trm_status write_record(trm_ps_server *server, uint32_t worker, uint32_t incarnation,
                               uint32_t away, trm_error *err) {
    away_record r = {.worker = worker, .incarnation = incarnation, .away = away};
    trmi_record_seal(&r, sizeof r, sizeof r.check);
    /* With log_sync the record survives a power failure: so no incarnation is given out twice, and
     * the step that the logs end with does not wait for a worker that has left. */
    return trmi_records_append(server->away_fd, &r, sizeof r, server->options.log_sync,
                               "log of workers", err);
}

/* The receiver of the log's records. */
typedef struct log_reader {
    trm_ps_server *server;
    trmi_away_visit visit;
} log_reader;

/* Applies one record of the log. */
static trm_status restore_record(void *context, const uint8_t *record, size_t bytes,
                                 trm_error *err) {
    const log_reader *c = context;
    away_record r;
    memcpy(&r, record, bytes);
    trmi_life *life = find_life(c->server, r.worker);
    if (life == NULL) {
        return TRMI_NO_MEMORY(err, "for worker %u", r.worker);
    }
    life->incarnation = life->incarnation < r.incarnation ? r.incarnation : life->incarnation;
    if (r.away == IS_CHIEF || r.away == WAS_CHIEF) {
        c->server->chief = (trmi_chief){.held = true,
                                        .gone = r.away == WAS_CHIEF,
                                        .worker = r.worker,
                                        .incarnation = r.incarnation,
                                        .heard = trmi_os_now()};
    } else if (r.away != BEGINS) {
        c->visit(c->server, r.worker, r.incarnation, r.away != 0);
    }
    return TRM_OK;
}

/* Contract in server.h. A torn end of the log is cut off when it is opened for appending. */
trm_status trmi_server_away_open(trm_ps_server *server, trmi_away_visit visit, trm_error *err) {
    char path[400];
    server->away_fd = -1;
    if (server->options.folder == NULL) {
        return TRM_OK;
    }
    const trmi_record_form form = {
        .bytes = sizeof(away_record), .check_bytes = sizeof(uint32_t), .take = restore_record};
    log_reader c = {server, visit};
    size_t end;
    away_path(server, path);
    TRMI_TRY(trmi_records_each(path, AWAY_BYTES_MAX, &form, &c, &end, err));
    return trmi_records_open(path, end, &server->away_fd, err);
}

void trmi_server_away_close(trm_ps_server *server) {
    char path[400];
    free(server->lives);
    server->lives = NULL;
    if (server->options.folder == NULL || server->away_fd < 0) {
        return;
    }
    close(server->away_fd);
    server->away_fd = -1;
    if (atomic_load(&server->stop_asked)) { /* a continued job begins with all its workers */
        away_path(server, path);
        unlink(path);
    }
}

/* Contract in server.h. The first of several failures is written to the server's log. */
trm_status trmi_server_away_set(trm_ps_server *server, trmi_worker *w, bool away, trm_error *err) {
    /* after a failure a record that was not flushed may be there */
    if (w->away == away && !w->log_failed && !w->log_is_old) {
        return TRM_OK;
    }
    trm_error why;
    trm_status status = write_record(server, w->worker, w->incarnation, away, &why);
    if (status == TRM_OK) {
        w->away = away;
        w->log_is_old = false;
    } else if (!w->log_failed) {
        trmi_log(TRM_LOG_WARN, "ps", "server %d: %s: started again, it would %s for worker %u",
                 server->options.server, why.message, away ? "wait" : "not wait", w->worker);
    }
    w->log_failed = status != TRM_OK;
    if (status != TRM_OK && err != NULL) {
        *err = why;
    }
    return status;
}

trm_status trmi_server_new_life(trm_ps_server *server, uint32_t worker, uint32_t seen,
                                uint32_t *incarnation, trm_error *err) {
    trmi_life *life = find_life(server, worker);
    if (life == NULL) {
        return TRMI_NO_MEMORY(err, "for worker %u", worker);
    }
    uint32_t last = seen > life->incarnation ? seen : life->incarnation;
    TRMI_TRY(write_record(server, worker, last + 1, BEGINS, err));
    *incarnation = life->incarnation = last + 1;
    return TRM_OK;
}

trm_status trmi_server_chief_log(trm_ps_server *server, uint32_t worker, uint32_t incarnation,
                                 bool left, trm_error *err) {
    return write_record(server, worker, incarnation, left ? WAS_CHIEF : IS_CHIEF, err);
}
