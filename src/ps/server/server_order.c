/* SPDX-License-Identifier: Apache-2.0 */
/* Carries out control messages: tables, statistics, audits of rows, the end of the job; those of
 * snapshots are in server_snapshot.c. trmi_order_handle is the dispatcher; the order numbers and
 * their arguments are in server.h (trmi_order).
 *
 *   link thread -> trmi_order_handle --answered here-------------------> client
 *                                    --all shards (run_table, run_stats)--> the last one answers
 *                                    --kept until a snapshot is written */
#include "ps/server/server.h"
#include "ps/snapshot/snapshot_manifest.h"
#include "ps/wire/table_wire.h"

#include "base/checked.h"
#include "base/error.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/os.h"

#include <stddef.h>
#include <stdio.h>
#include <unistd.h>

/* ---- tables ---------------------------------------------------------------------------------- */

/* A request on the stack that declares a table on all shards. */
typedef struct table_order {
    trmi_request request;
    const trm_table_options *options;
} table_order;

/* Adds the table to one shard. */
static void run_table(trmi_shard_thread *runner, trmi_request *request) {
    const table_order *order = (const table_order *)(const void *)request;
    trm_error err;
    if (trmi_shard_add_table(runner->shard, order->options, &err) != TRM_OK) {
        trmi_request_fail(request, &err);
    }
}

/* Compares a declaration with that of the server, which another worker has made or a snapshot has.
 *   errors  INVALID: they differ; the first option that does is named */
static trm_status compare_table(const trm_ps_server *server, const trm_table_options *has,
                                const trm_table_options *declared, trm_error *err) {
    char mine[TRMI_TABLE_VALUE_TEXT], theirs[TRMI_TABLE_VALUE_TEXT];
    const char *option = trmi_row_table_difference(has, declared, mine, theirs);
    return option == NULL
               ? TRM_OK
               : TRMI_FAIL(err, TRM_INVALID,
                           "table '%.40s': %s %s declared; server %d has it with %s: all "
                           "workers, and a job that is resumed, declare a table alike",
                           has->name, option, theirs, server->options.server, mine);
}

/* Has all shards create their part of a table, and waits for them. The front mutex is released
 * meanwhile: the shards finish the requests that are queued before this one, for which they need
 * the mutex. The request lives on this stack: `pending` begins one higher than the shards, so that
 * no shard finishes it, and 1 means that all have run. `declares` lets one of them at a time have
 * its place in the queues (take_place in server_request.c). Returns the first error of a shard. */
static trm_error run_on_shards(trm_ps_server *server, const trm_table_options *options) {
    table_order order = {.options = options};
    order.request.run = run_table;
    pthread_mutex_init(&order.request.mutex, NULL);
    atomic_store(&order.request.pending, (int32_t)server->shards + 1);
    for (uint32_t s = 0; s < server->shards; s++) {
        trm_status status = trmi_queue_append(server->runners[s].queue, &order.request);
        if (status != TRM_OK) {
            trm_error err;
            TRMI_FAIL(&err, status, "the server is stopping");
            trmi_request_fail(&order.request, &err);
            atomic_fetch_sub(&order.request.pending, 1);
        }
    }
    server->declares = true;
    pthread_mutex_unlock(&server->mutex);
    while (atomic_load(&order.request.pending) != 1) {
        usleep(100);
    }
    pthread_mutex_lock(&server->mutex);
    server->declares = false;
    pthread_mutex_destroy(&order.request.mutex);
    return order.request.err;
}

/* Contract in server.h. A pull of the table comes after the answer, when all shards have it. */
trm_status trmi_server_add_table(trm_ps_server *server, const trm_table_options *options,
                                 int32_t *number, trm_error *err) {
    trm_table_options checked;
    TRMI_TRY(trmi_row_table_check(options, &checked, err));
    /* another link declares a table, perhaps this one: it ends when the shards have run it */
    while (server->declares) {
        pthread_mutex_unlock(&server->mutex);
        usleep(100);
        pthread_mutex_lock(&server->mutex);
    }
    if (server->failed.status != TRM_OK) {
        return TRMI_FAIL(err, (trm_status)server->failed.status, "%s", server->failed.message);
    }
    /* A table that exists must be declared alike by all workers. */
    for (uint32_t i = 0; i < server->table_count; i++) {
        if (strcmp(server->tables[i].name, checked.name) != 0) {
            continue;
        }
        *number = (int32_t)i;
        TRMI_TRY(compare_table(server, &server->tables[i], &checked, err));
        return trmi_lag_declare(server, *number, checked.staleness, err);
    }
    if (server->table_count == TRMI_PS_TABLES_MAX) {
        return TRMI_FAIL(err, TRM_INVALID, "table '%s': at most %d tables", checked.name,
                         TRMI_PS_TABLES_MAX);
    }
    size_t length = strlen(checked.name) + 1;
    char *name = trmi_alloc(length);
    if (name == NULL) {
        return TRMI_NO_MEMORY(err, "for table '%s'", checked.name);
    }
    memcpy(name, checked.name, length);
    const trm_error why = run_on_shards(server, &checked);
    if (why.status != TRM_OK) {
        /* Some shards may have the table: the server then refuses all requests. */
        trmi_free(name);
        server->failed = why;
        return TRMI_FAIL(err, (trm_status)why.status, "%s", why.message);
    }
    /* All shards have the table: it gets the next number. */
    server->widths[server->table_count] = checked.width;
    server->tables[server->table_count] = checked;
    server->tables[server->table_count].name = name;
    *number = (int32_t)server->table_count++;
    return trmi_lag_declare(server, *number, checked.staleness, err);
}

/* ---- statistics and audits ------------------------------------------------------------------- */

/* Contract in server.h. The counters lie before admission_level, which is a maximum. */
void trmi_table_stats_add(trm_table_stats *to, const trm_table_stats *from) {
    int64_t *a = (int64_t *)(void *)to;
    const int64_t *b = (const int64_t *)(const void *)from;
    for (size_t i = 0; i < offsetof(trm_table_stats, admission_level) / sizeof *a; i++) {
        a[i] += b[i];
    }
    to->admission_level =
        to->admission_level > from->admission_level ? to->admission_level : from->admission_level;
}

/* Makes room for statistics in the answer. Returns false without memory, which is the answer. */
static bool reserve_stats(trmi_request *r) {
    r->trailer = trmi_alloc(sizeof(trm_table_stats));
    if (r->trailer == NULL) {
        TRMI_NO_MEMORY(&r->err, "for the statistics of a table");
        return false;
    }
    r->trailer_bytes = sizeof(trm_table_stats);
    return true;
}

/* Adds the statistics of one shard to the answer. */
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

/* Writes the row of a key with its last writers into the answer, on the shard that owns the key. */
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
    if (out == NULL) {
        trm_error err;
        TRMI_NO_MEMORY(&err, "for row %llu", (unsigned long long)key);
        trmi_request_fail(r, &err);
        return;
    }
    float *values = (float *)(void *)(out + sizeof info);
    if (trmi_row_table_peek(table, key, &info, values, values + table->layout.width)) {
        size_t count = (size_t)trmi_shard_writers(runner->shard, info.last_tick, writers);
        memcpy(out, &info, sizeof info);
        memcpy(out + bytes, writers, count * sizeof *writers);
        r->trailer = out;
        r->trailer_bytes = bytes + count * sizeof *writers;
        return;
    }
    trmi_free(out);
}

/* Answers with the declaration of table note.value[1] and the number of tables; without trailer
 * if there is no such table. */
static void order_tables(const trm_ps_server *server, trmi_request *r) {
    int64_t number = r->note.value[1];
    r->note.value[1] = server->table_count;
    if (number < 0 || number >= (int64_t)server->table_count) {
        return;
    }
    const trm_table_options *table = &server->tables[number];
    trmi_ps_wire_table wire;
    size_t name_bytes = strlen(table->name) + 1;
    r->trailer = trmi_alloc(sizeof wire + name_bytes);
    if (r->trailer == NULL) {
        TRMI_NO_MEMORY(&r->err, "to describe a table");
        return;
    }
    trmi_ps_put_table(table, &wire);
    memcpy(r->trailer, &wire, sizeof wire);
    memcpy(r->trailer + sizeof wire, table->name, name_bytes);
    r->trailer_bytes = sizeof wire + name_bytes;
}

/* Answers with the list of workers that have pushed or been given samples; a worker that has
 * only connected is not in it. */
static void order_workers(const trm_ps_server *server, trmi_request *r) {
    trm_ps_worker *out = trmi_alloc((size_t)(server->worker_count + 1) * sizeof *out);
    double now = trmi_os_now();
    if (out == NULL) {
        TRMI_NO_MEMORY(&r->err, "for a list of workers");
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

/* ---- dispatch -------------------------------------------------------------------------------- */

/* Handles STEPS. Server 0 is held first and released first: a step that another worker carries to
 * a held server may be one that the snapshot of server 0 does not have, so it waits for the
 * release. The holder itself carries the steps that the snapshot has. Returns false: it waits. */
static bool order_steps(trm_ps_server *server, trmi_request *r) {
    if (server->held && server->options.server != 0 && r->link != server->holder) {
        r->next = NULL;
        trmi_request **at = &server->later_steps;
        while (*at != NULL) {
            at = &(*at)->next;
        }
        *at = r;
        return false;
    }
    trmi_step_order(server, r);
    return true;
}

/* Returns whether note.value[1] is a table; if not, sets the error. */
static bool names_a_table(const trm_ps_server *server, trmi_request *r) {
    if (r->note.value[1] >= 0 && r->note.value[1] < (int64_t)server->table_count) {
        return true;
    }
    TRMI_FAIL(&r->err, TRM_INVALID, "table %lld of %u", (long long)r->note.value[1],
              server->table_count);
    return false;
}

/* BYE: the worker is not waited for any more; for good, its leases are free too. It may come
 * from a worker that never pushed. A goodbye for good that cannot be logged is answered with the
 * error: started again, the server would wait for a worker that never comes. One of a worker that
 * rests is not: the worker says it again with its next request for samples. One that a broken
 * connection has delayed behind the worker's next push changes nothing. */
static void handle_bye(trm_ps_server *server, trmi_request *r) {
    const bool rests = r->note.value[1] != 0;
    if (r->link != NULL && r->link->worker >= 0) {
        trm_error err = {0};
        (void)!trmi_front_worker(server, r->header.worker, r->header.incarnation, &err);
        if (err.status == TRM_NOMEM) { /* CANCELLED: the life has ended */
            r->err = err;
            return;
        }
    }
    if (!rests && trmi_chief_left(server, r, &r->err) != TRM_OK) {
        return;
    }
    trmi_worker *w = trmi_front_find(server, r->header.worker);
    if (w == NULL || w->incarnation != r->header.incarnation ||
        (rests && w->dispatched > (uint64_t)r->note.value[2])) {
        return;
    }
    w->active = false;
    w->left = !rests;
    (void)!trmi_server_away_set(server, w, true, w->left ? &r->err : NULL);
    if (server->leases != NULL && w->left) {
        (void)!trmi_lease_drop_worker(server->leases, w->worker, NULL);
    }
}

/* Contract in server.h. Runs on the link's thread with the front mutex held. Three endings:
 * answered here, dispatched to the shards (run), or kept until a snapshot is written (SNAPSHOT). */
void trmi_order_handle(trm_ps_server *server, trmi_request *r) {
    trmi_request *ready = NULL;
    bool answer = true, waits = false;
    const trmi_order order = (trmi_order)r->note.value[0];
    pthread_mutex_lock(&server->mutex);
    /* Any message shows that its sender lives. */
    trmi_chief_note_message(server, r);
    trmi_last_step_note_message(server, r);
    trmi_last_step_advance(server);
    switch (order) {
    case TRMI_ORDER_STATS:
        answer = !reserve_stats(r) || !names_a_table(server, r);
        if (!answer) {
            trmi_lag_add_stats(server, r->note.value[1], (trm_table_stats *)(void *)r->trailer);
        }
        r->run = run_stats;
        break;
    case TRMI_ORDER_ROW:
        answer = !names_a_table(server, r);
        r->run = run_row;
        break;
    case TRMI_ORDER_HOLD: trmi_order_hold(server, r); break;
    case TRMI_ORDER_SNAPSHOT:
        ready = trmi_order_snapshot(server, r);
        answer = false;
        break;
    case TRMI_ORDER_RELEASE: ready = trmi_order_end_snapshot(server, r); break;
    case TRMI_ORDER_BYE:
        handle_bye(server, r);
        ready = trmi_step_advance(server);
        break;
    case TRMI_ORDER_LEASE:
        trmi_server_lease_take(server, r);
        if (server->options.mode == TRM_PS_SYNC && r->err.status == TRM_OK) {
            trmi_step_append_decided(server, r);
        }
        ready = trmi_step_advance(server); /* the worker may have become inactive */
        break;
    case TRMI_ORDER_TABLES: order_tables(server, r); break;
    case TRMI_ORDER_STEPS:
        answer = order_steps(server, r);
        waits = !answer;
        ready = trmi_step_advance(server);
        break;
    case TRMI_ORDER_STOP:
        if (trmi_chief_allows(server, r)) {
            atomic_store(&server->stop_asked, true);
            pthread_cond_broadcast(&server->changed);
        }
        break;
    case TRMI_ORDER_CHIEF:
        /* a snapshot that the former chief had begun is given up */
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
    if (!answer && !waits && order != TRMI_ORDER_SNAPSHOT) {
        trmi_request_dispatch(server, r);
    }
    pthread_mutex_unlock(&server->mutex);
    /* Without the mutex: send the answer, and start the pulls that the order has made possible. */
    if (answer) {
        trmi_request_answer(r);
    }
    trmi_request_start_pulls(ready);
}
