/* SPDX-License-Identifier: Apache-2.0 */
/* Control messages: tables, statistics, audits, cuts, the end. */
#include "ps/server/server.h"

#include "base/checked.h"
#include "base/error.h"
#include "base/log.h"
#include "base/memory.h"

#include <stddef.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

static const double hold_seconds = 30; /* for pushes that other servers have let through */

/* ---- tables ---------------------------------------------------------------------------------- */

typedef struct table_order {
    trmi_request request;
    const trm_table_options *options;
} table_order;

static void run_table(trmi_shard_thread *runner, trmi_request *request) {
    const table_order *order = (const table_order *)(const void *)request;
    trm_error err;
    if (trmi_shard_add_table(runner->shard, order->options, &err) != TRM_OK) {
        trmi_request_fail(request, &err);
    }
}

static bool same_table(const trm_table_options *a, const trm_table_options *b) {
    return a->width == b->width && a->dtype == b->dtype && a->seed == b->seed &&
           a->optimizer.rule == b->optimizer.rule && a->init.kind == b->init.kind &&
           a->init.stream == b->init.stream && a->admission.kind == b->admission.kind &&
           a->placement.kind == b->placement.kind && a->placement.parts == b->placement.parts &&
           a->placement.first == b->placement.first && a->placement.rows == b->placement.rows &&
           a->placement.begin == b->placement.begin && a->placement.end == b->placement.end;
}

/* Front mutex held: a table is made once, on all shards or (the server then serves no more) on
 * some. */
trm_status trmi_server_add_table(trm_ps_server *server, const trm_table_options *options,
                                 int32_t *number, trm_error *err) {
    trm_table_options checked;
    TRMI_TRY(trmi_row_table_check(options, &checked, err));
    for (uint32_t i = 0; i < server->table_count; i++) {
        if (strcmp(server->tables[i].name, checked.name) != 0) {
            continue;
        }
        *number = (int32_t)i;
        return same_table(&server->tables[i], &checked)
                   ? trmi_lag_declare(server, *number, checked.staleness, err)
                   : TRMI_FAIL(err, TRM_INVALID,
                               "table '%s': declared with width %d, rule %d; server %d has it with "
                               "width %d, rule %d (or another dtype, seed, initialiser, admission, "
                               "placement)",
                               checked.name, checked.width, (int)checked.optimizer.rule,
                               server->options.server, server->tables[i].width,
                               (int)server->tables[i].optimizer.rule);
    }
    if (server->table_count == TRMI_PS_TABLES_MAX) {
        return TRMI_FAIL(err, TRM_INVALID, "table '%s': at most %d tables", checked.name,
                         TRMI_PS_TABLES_MAX);
    }
    size_t length = strlen(checked.name) + 1;
    char *name = trmi_alloc(length);
    if (name == NULL) {
        return TRMI_FAIL(err, TRM_NOMEM, "table '%s': no memory", checked.name);
    }
    memcpy(name, checked.name, length);
    table_order order = {.options = &checked};
    order.request.run = run_table;
    pthread_mutex_init(&order.request.mutex, NULL);
    atomic_store(&order.request.pending, (int32_t)server->shards + 1);
    for (uint32_t s = 0; s < server->shards; s++) {
        if (trmi_queue_push(server->runners[s].queue, &order.request) != TRM_OK) {
            atomic_fetch_sub(&order.request.pending, 1);
        }
    }
    while (atomic_load(&order.request.pending) != 1) {
        usleep(100);
    }
    pthread_mutex_destroy(&order.request.mutex);
    if (order.request.err.status != TRM_OK) {
        /* Some shards may have it: a server that is half something serves nothing. */
        trmi_free(name);
        server->failed = order.request.err;
        return TRMI_FAIL(err, (trm_status)server->failed.status, "%s", server->failed.message);
    }
    server->widths[server->table_count] = checked.width;
    server->tables[server->table_count] = checked;
    server->tables[server->table_count].name = name;
    *number = (int32_t)server->table_count++;
    return trmi_lag_declare(server, *number, checked.staleness, err);
}

/* ---- statistics and audits ------------------------------------------------------------------- */

void trmi_table_stats_add(trm_table_stats *to, const trm_table_stats *from) {
    int64_t *a = (int64_t *)(void *)to;
    const int64_t *b = (const int64_t *)(const void *)from;
    for (size_t i = 0; i < offsetof(trm_table_stats, admission_level) / sizeof *a; i++) {
        a[i] += b[i];
    }
    to->admission_level =
        to->admission_level > from->admission_level ? to->admission_level : from->admission_level;
}

static void run_stats(trmi_shard_thread *runner, trmi_request *r) {
    trm_table_stats mine;
    trmi_row_table_get_stats(runner->shard->tables[r->note.value[1]], &mine);
    pthread_mutex_lock(&r->mutex);
    trmi_table_stats_add((trm_table_stats *)(void *)r->trailer, &mine);
    r->note.value[2] += runner->shard->account.used;
    r->note.value[3] += runner->shard->account.peak;
    r->note.value[4] += runner->shard->applied;
    r->note.value[5] += runner->shard->repeated;
    pthread_mutex_unlock(&r->mutex);
}

static void run_row(trmi_shard_thread *runner, trmi_request *r) {
    uint64_t key = (uint64_t)r->note.value[2];
    uint32_t mine =
        (uint32_t)runner->server->options.server * runner->server->shards + runner->shard->number;
    trmi_row_table *table = runner->shard->tables[r->note.value[1]];
    if (trmi_shard_of_row(&table->options.placement, key, (uint32_t)runner->server->options.servers,
                          runner->server->shards) != mine) {
        return;
    }
    trm_row_info info;
    trm_ps_writer writers[TRM_PS_WRITERS];
    size_t bytes = sizeof info + 4 * (size_t)(table->layout.width + table->layout.slot_count);
    uint8_t *out = trmi_alloc(bytes + sizeof writers);
    float *values = out == NULL ? NULL : (float *)(void *)(out + sizeof info);
    if (out != NULL &&
        trmi_row_table_peek(table, key, &info, values, values + table->layout.width)) {
        size_t count = (size_t)trmi_shard_writers(runner->shard, info.last_tick, writers);
        memcpy(out, &info, sizeof info);
        memcpy(out + bytes, writers, count * sizeof *writers);
        r->trailer = out;
        r->trailer_bytes = bytes + count * sizeof *writers;
        return;
    }
    trmi_free(out);
}

/* What a table was declared as; nothing for a number that none has. */
static void order_tables(const trm_ps_server *server, trmi_request *r) {
    int64_t number = r->note.value[1];
    r->note.value[1] = server->table_count;
    if (number < 0 || number >= (int64_t)server->table_count) {
        return;
    }
    trm_table_options options = server->tables[number];
    size_t name_bytes = strlen(options.name) + 1;
    r->trailer = trmi_alloc(sizeof options + name_bytes);
    if (r->trailer == NULL) {
        TRMI_FAIL(&r->err, TRM_NOMEM, "no memory to describe a table");
        return;
    }
    memcpy(r->trailer + sizeof options, options.name, name_bytes);
    options.name = NULL;
    memcpy(r->trailer, &options, sizeof options);
    r->trailer_bytes = sizeof options + name_bytes;
}

/* Those that push: a worker that has only joined is not yet one. */
static void order_workers(const trm_ps_server *server, trmi_request *r) {
    trm_ps_worker *out = trmi_alloc((size_t)(server->worker_count + 1) * sizeof *out);
    double now = trmi_os_now();
    if (out == NULL) {
        TRMI_FAIL(&r->err, TRM_NOMEM, "no memory for a list of workers");
        return;
    }
    for (int64_t i = 0; i < server->worker_count; i++) {
        const trmi_worker *w = &server->workers[i];
        out[i] = (trm_ps_worker){.worker = (int32_t)w->worker,
                                 .incarnation = (int32_t)w->incarnation,
                                 .batches = w->clock,
                                 .active = !w->left &&
                                           now - w->seen <= server->options.worker_timeout_seconds,
                                 .silent_seconds = now - w->seen};
    }
    r->note.value[1] = atomic_load(&server->global_step);
    r->trailer = (uint8_t *)out;
    r->trailer_bytes = (size_t)server->worker_count * sizeof *out;
}

/* ---- cuts
 * -------------------------------------------------------------------------------------------------
 */

static void order_hold(trm_ps_server *server, trmi_request *r) {
    if (!trmi_chief_allows(server, r)) {
        return;
    }
    if (server->options.folder == NULL) {
        TRMI_FAIL(&r->err, TRM_INVALID, "server %d has no folder for checkpoints",
                  server->options.server);
        return;
    }
    /* whoever asked for it has gone, or waits no more */
    if (server->held || atomic_load(&server->writing) > 0) {
        TRMI_FAIL(&r->err, TRM_TIMEOUT, "server %d: another checkpoint is being %s",
                  server->options.server, server->held ? "taken" : "written");
        return;
    }
    r->trailer = trmi_alloc((size_t)server->worker_count * sizeof(trmi_push_id) + 1);
    if (r->trailer == NULL) {
        TRMI_FAIL(&r->err, TRM_NOMEM, "no memory for a checkpoint");
        return;
    }
    for (int64_t i = 0; i < server->worker_count; i++) {
        const trmi_worker *w = &server->workers[i];
        trmi_push_id id = {w->worker, w->incarnation, w->dispatched};
        memcpy(r->trailer + (size_t)i * sizeof id, &id, sizeof id);
    }
    r->trailer_bytes = (size_t)server->worker_count * sizeof(trmi_push_id);
    r->note.value[1] = server->last_cut;
    r->note.value[2] = server->last_cut_failed || server->last_cut == 0;
    server->held = true;
    server->holder = r->link;
}

static trmi_request *release(trm_ps_server *server) {
    server->held = false;
    server->holder = NULL;
    server->until = NULL;
    server->until_count = 0;
    return trmi_step_advance(server);
}

trmi_request *trmi_order_release(trm_ps_server *server) {
    /* From CUT on `until` says how far pushes go, and its order releases them itself. */
    return server->held && server->until == NULL ? release(server) : NULL;
}

/* A checkpoint of a synchronous job is of one step on all servers, or there is none. */
static void say_missing(const trm_ps_server *server, const trmi_push_id *missing, trmi_request *r) {
    if (missing == NULL) {
        return;
    }
    if (server->options.mode == TRM_PS_SYNC) {
        TRMI_FAIL(
            &r->err, TRM_PEER,
            "server %d: push %llu of worker %u, which another server has applied, has not come "
            "for %.0f s: no checkpoint",
            server->options.server, (unsigned long long)missing->sequence, missing->worker,
            hold_seconds);
        return;
    }
    trmi_log(TRM_LOG_WARN, "ps",
             "server %d: push %llu of worker %u has not come for %.0f s: the checkpoint goes on "
             "without it",
             server->options.server, (unsigned long long)missing->sequence, missing->worker,
             hold_seconds);
}

/* Lets pushes go that other servers have let go, and waits for them; but not for ever: their worker
 * may have died half way. */
static void gather(trm_ps_server *server, trmi_request *r) {
    trmi_request *ready = trmi_step_advance(server);
    pthread_mutex_unlock(&server->mutex);
    trmi_request_pulls_go(ready);
    pthread_mutex_lock(&server->mutex);
    double deadline = trmi_os_now() + hold_seconds;
    for (;;) {
        const trmi_push_id *missing = NULL;
        /* Steps that were decided before are here: the asker has brought them. */
        for (uint32_t i = 0; i < server->until_count && !server->staging; i++) {
            const trmi_push_id *id = &server->until[i];
            for (int64_t k = 0; k < server->worker_count; k++) {
                const trmi_worker *w = &server->workers[k];
                if (w->worker == id->worker && w->incarnation == id->incarnation &&
                    w->dispatched < id->sequence) {
                    missing = id;
                }
            }
        }
        if (missing == NULL || trmi_os_now() > deadline || atomic_load(&server->stopping)) {
            say_missing(server, missing, r);
            return;
        }
        struct timespec at;
        clock_gettime(CLOCK_REALTIME, &at);
        at.tv_nsec += 20000000;
        at.tv_sec += at.tv_nsec / 1000000000;
        at.tv_nsec %= 1000000000;
        pthread_cond_timedwait(&server->changed, &server->mutex, &at);
    }
}

static void cut_done(void *context, trm_status status, const trmi_cut_file *file,
                     const trm_error *err) {
    trmi_request *r = context;
    atomic_fetch_sub(&r->server->writing, 1);
    if (status != TRM_OK) {
        trmi_request_fail(r, err);
    } else {
        pthread_mutex_lock(&r->mutex);
        memcpy(r->trailer + r->trailer_bytes, file, sizeof *file);
        r->trailer_bytes += sizeof *file;
        pthread_mutex_unlock(&r->mutex);
    }
    trmi_request_finish(r);
}

/* The log of the new generation begins with the cut. */
static void run_cut(trmi_shard_thread *runner, trmi_request *r) {
    trm_ps_server *server = runner->server;
    uint32_t number = (uint32_t)r->note.value[1];
    char folder[300], path[400];
    trm_error err;
    snprintf(folder, sizeof folder, "%s/cut-%06u", server->folder, number);
    trmi_cut_options o = {.folder = folder,
                          .number = number,
                          .differential = r->note.value[2] != 0,
                          .server = (uint32_t)server->options.server,
                          .servers = (uint32_t)server->options.servers};
    trm_status status = trmi_cut_begin(runner->cut, &o, cut_done, r, &err);
    if (status == TRM_OK && server->options.log_pushes) {
        trmi_log_path(server, runner->shard->number, number, path, sizeof path);
        trm_error log_err;
        if (trmi_shard_log_open(runner->shard, NULL, path, server->options.log_sync, &log_err) !=
            TRM_OK) {
            /* The cut will be complete, but what follows would be lost. */
            trmi_request_fail(r, &log_err);
            runner->shard->broken = log_err;
        }
    }
    if (status != TRM_OK) {
        atomic_fetch_sub(&server->writing, 1);
        trmi_request_fail(r, &err);
        trmi_request_finish(r);
    }
}

static trmi_request *order_cut(trm_ps_server *server, trmi_request *r) {
    uint32_t number = (uint32_t)r->note.value[1];
    size_t ids = (size_t)r->header.extra[0] / sizeof(trmi_push_id);
    char folder[300];
    snprintf(folder, sizeof folder, "%s/cut-%06u", server->folder, number);
    trmi_push_id *until = trmi_alloc((ids + 1) * sizeof *until);
    r->trailer = trmi_alloc(server->shards * sizeof(trmi_cut_file) + 1);
    if (!server->held || number <= server->last_cut) {
        /* Restarted, or its connection to the asker broke, since it was told to hold. */
        TRMI_FAIL(&r->err, TRM_PEER, "server %d: cut %u without hold, or after cut %u",
                  server->options.server, number, server->last_cut);
    } else if (until == NULL || r->trailer == NULL) {
        TRMI_FAIL(&r->err, TRM_NOMEM, "no memory for a checkpoint");
    } else if (trmi_os_make_dirs(NULL, folder, &r->err) == TRM_OK) {
        memcpy(until, r->message.data + trmi_ps_note_size(TRMI_PS_CONTROL), ids * sizeof *until);
        server->until = until;
        server->until_count = (uint32_t)ids;
        gather(server, r);
        bool base_is_here =
            number == server->last_cut + 1 && !server->last_cut_failed && server->last_cut > 0;
        if (r->err.status != TRM_OK) {
            /* gather says why */
        } else if (r->note.value[2] != 0 && !base_is_here) {
            TRMI_FAIL(&r->err, TRM_INVALID,
                      "server %d: no cut %u to be different from: take a full checkpoint",
                      server->options.server, number - 1);
        } else {
            server->last_cut = number;
            server->last_cut_failed = true; /* until the caller says that all is well: RELEASE */
            r->run = run_cut;
            r->later = true;
            r->server = server;
            atomic_store(&server->writing, (int32_t)server->shards);
        }
    }
    /* The cut precedes the pushes that waited behind it, in every queue. */
    if (r->run != NULL && server->leases != NULL) {
        (void)!trmi_lease_cut(server->leases, number, NULL);
    }
    if (r->run != NULL) {
        trmi_request_dispatch(server, r);
    } else {
        trmi_request_answer(r);
    }
    trmi_request *ready = release(server);
    trmi_free(until);
    return ready;
}

/* All servers have written their files: the manifest says so. One that was started again since then
 * has what it had before, from the cut before this one on: to that its next differential file would
 * belong, and nobody else's. */
static void complete_cut(trm_ps_server *server, trmi_request *r) {
    const int64_t cut = r->note.value[1];
    if (cut != 0 && cut != (int64_t)server->last_cut) {
        TRMI_FAIL(&r->err, TRM_PEER,
                  "server %d was started again while cut %lld was taken: it has cut %u",
                  server->options.server, (long long)cut, server->last_cut);
    } else if (cut != 0 && trmi_manifest_write(server, server->last_cut, r->note.value[2] != 0,
                                               (const char *)r->message.data +
                                                   trmi_ps_note_size(TRMI_PS_CONTROL),
                                               (size_t)r->header.extra[0], &r->err) == TRM_OK) {
        server->last_cut_failed = false;
    }
}

/* ---- all of them ----------------------------------------------------------------------------- */

static bool names_a_table(const trm_ps_server *server, trmi_request *r) {
    if (r->note.value[1] >= 0 && r->note.value[1] < (int64_t)server->table_count) {
        return true;
    }
    TRMI_FAIL(&r->err, TRM_INVALID, "table %lld of %u", (long long)r->note.value[1],
              server->table_count);
    return false;
}

/* Also from a worker that never pushed: it found nothing left to do. */
static void say_bye(trm_ps_server *server, const trmi_request *r) {
    if (r->link != NULL && r->link->worker >= 0) {
        (void)!trmi_front_worker(server, r->header.worker, r->header.incarnation, NULL);
    }
    if (r->note.value[1] == 0) {
        trmi_chief_left(server, r);
    }
    for (int64_t i = 0; i < server->worker_count; i++) {
        trmi_worker *w = &server->workers[i];
        if (w->worker == r->header.worker && w->incarnation == r->header.incarnation) {
            w->active = false;
            w->left = r->note.value[1] == 0;
            trmi_server_away_set(server, w, true);
            if (server->leases != NULL && r->note.value[1] == 0) {
                (void)!trmi_lease_drop_worker(server->leases, w->worker, NULL);
            }
        }
    }
}

void trmi_order_handle(trm_ps_server *server, trmi_request *r) {
    trmi_request *ready = NULL;
    bool answer = true;
    const trmi_order order = (trmi_order)r->note.value[0];
    pthread_mutex_lock(&server->mutex);
    trmi_chief_heard(server, r);
    trmi_last_step_heard(server, r);
    trmi_last_step_advance(server);
    switch (order) {
    case TRMI_ORDER_STATS:
        r->trailer_bytes = sizeof(trm_table_stats);
        r->trailer = trmi_alloc(r->trailer_bytes);
        answer = r->trailer == NULL || !names_a_table(server, r);
        if (!answer) {
            trmi_lag_tell(server, r->note.value[1], (trm_table_stats *)(void *)r->trailer);
        }
        r->run = run_stats;
        break;
    case TRMI_ORDER_ROW:
        answer = !names_a_table(server, r);
        r->run = run_row;
        break;
    case TRMI_ORDER_HOLD: order_hold(server, r); break;
    case TRMI_ORDER_CUT:
        ready = order_cut(server, r);
        answer = false;
        break;
    case TRMI_ORDER_RELEASE:
        complete_cut(server, r);
        ready = release(server);
        break;
    case TRMI_ORDER_BYE:
        say_bye(server, r);
        ready = trmi_step_advance(server);
        break;
    case TRMI_ORDER_LEASE:
        trmi_server_lease_take(server, r);
        if (server->options.mode == TRM_PS_SYNC && r->err.status == TRM_OK) {
            trmi_step_tell(server, r);
        }
        ready = trmi_step_advance(server); /* it may be waited for no more */
        break;
    case TRMI_ORDER_TABLES: order_tables(server, r); break;
    case TRMI_ORDER_STEPS:
        trmi_step_order(server, r);
        ready = trmi_step_advance(server);
        break;
    case TRMI_ORDER_STOP:
        if (trmi_chief_allows(server, r)) {
            atomic_store(&server->stop_asked, true);
            pthread_cond_broadcast(&server->changed);
        }
        break;
    case TRMI_ORDER_CHIEF:
        /* a checkpoint that the former one had begun to ask for */
        if (trmi_chief_order(server, r)) {
            ready = trmi_order_release(server);
        }
        break;
    case TRMI_ORDER_WORKERS: order_workers(server, r); break;
    case TRMI_ORDER_PUSHED:
        trmi_front_pushed(server, r);
        ready = trmi_step_advance(server);
        break;
    case TRMI_ORDER_BEGINS:
        trmi_front_begins(server, r);
        ready = trmi_step_advance(server);
        break;
    default: TRMI_FAIL(&r->err, TRM_CORRUPT, "order %lld is unknown", (long long)r->note.value[0]);
    }
    if (!answer && order != TRMI_ORDER_CUT) {
        trmi_request_dispatch(server, r);
    }
    pthread_mutex_unlock(&server->mutex);
    if (answer) {
        trmi_request_answer(r);
    }
    trmi_request_pulls_go(ready);
}
