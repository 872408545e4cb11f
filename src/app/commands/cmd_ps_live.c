/* SPDX-License-Identifier: Apache-2.0 */
/* ps inspect HOST:PORT: the state of running parameter servers, as text, as JSON, or as metrics for
 * Prometheus (--prometheus).
 *
 * The client is none of the workers (worker -1), as an evaluator's: servers never wait for it, and
 * reading changes nothing, so that a job that trains can be looked at. Figures of a table are sums
 * over all servers; each server answers at a moment of its own, so they may differ by a step. */
#include "app/commands/cmd_ps.h"

#include "trireme/dist.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Servers and workers of a report, at most. */
enum { SERVERS_MAX = 1024, WORKERS_SHOWN = 256 };
static const double patience_seconds = 10;

/* Connects to all servers of the list `addresses`, which is split in place. */
static trm_status connect_all(const app_options *o, char *addresses, trm_ps_client **out,
                              trm_error *err) {
    const char *list[SERVERS_MAX];
    uint8_t token[TRM_TOKEN_BYTES];
    trm_ps_client_options options = {.addresses = list,
                                     .worker = -1,
                                     .timeout_seconds = patience_seconds,
                                     .ring_bytes = 1 << 20};
    for (char *rest = addresses; rest != NULL && options.servers < SERVERS_MAX;) {
        char *comma = strchr(rest, ',');
        list[options.servers++] = rest + strspn(rest, " ");
        rest = comma == NULL ? NULL : comma + 1;
        if (comma != NULL) {
            *comma = '\0';
        }
    }
    if (o->token_file != NULL) {
        trm_status status = trm_token_read(o->token_file, token, err);
        if (status != TRM_OK) {
            return status;
        }
        options.token = token;
    }
    return trm_ps_client_create(&options, out, err);
}

/* Returns the greatest lag that is counted in `lags[place]`. */
static int64_t most_of(int place) { return place < 3 ? place : (int64_t)1 << (place - 1); }

/* Puts the histogram of lags: "lag (updates between a batch's read and its push): 0: 12.5 %,
 * 1: 75.0 %, to 4: 12.5 %". */
static void put_lags(const trm_table_stats *s) {
    int64_t pushes = 0;
    for (int i = 0; i < TRM_PS_LAGS; i++) {
        pushes += s->lags[i];
    }
    /* the counts are for JSON */
    app_open_array("lags");
    for (int i = 0; i < TRM_PS_LAGS; i++) {
        app_put(app_element(s->lags[i]));
    }
    app_close();
    app_put(app_int("lag_sum", s->lag_sum, NULL));
    if (pushes == 0) {
        return;
    }
    /* the shares are for the text; the last count is of all greater lags */
    app_put(app_words("\n                                   "
                      "lag (updates between a batch's read and its push)"),
            app_real(NULL, (double)s->lag_sum / (double)pushes, " %.1f on average;"));
    for (int i = 0; i < TRM_PS_LAGS; i++) {
        bool last = i == TRM_PS_LAGS - 1;
        if (s->lags[i] > 0) {
            app_put(app_words(last    ? " over "
                              : i > 2 ? " to "
                                      : " "),
                    app_int(NULL, most_of(last ? i - 1 : i), "%d"),
                    app_real(NULL, (double)s->lags[i] / (double)pushes, ": %.1f{100} %%"));
        }
    }
}

/* Prints the statistics of one table, summed over all servers. */
static trm_status tell_table(trm_ps_client *client, int32_t number, trm_error *err) {
    int32_t slots;
    const trm_table_options *o = trm_ps_client_table_options(client, number, &slots);
    trm_table_stats s;
    trm_status status = trm_ps_table_get_stats(client, number, &s, err);
    if (status != TRM_OK) {
        return status;
    }
    app_ps_begin_table(o, s.rows, slots);
    app_put(app_int("bytes", s.bytes, NULL), app_real(NULL, (double)s.bytes, "; %.1f{1e-6} MB"),
            app_int("spilled_rows", s.spilled_rows, ", %d spilled\n"),
            app_words("                                  "),
            app_int("reads", s.reads, " %12d reads"), app_int("updates", s.updates, ", %d updates"),
            app_int("created", s.created, ", %d created"),
            app_int("refused", s.refused, ", %d refused"),
            app_int("expired", s.expired, ", %d expired"),
            app_int("evicted", s.evicted, ", %d evicted"), app_int("no_room", s.no_room, NULL));
    put_lags(&s);
    app_end();
    return TRM_OK;
}

/* Prints the workers of the job: batches, whether they are active, seconds since their last
 * message. */
static trm_status tell_workers(trm_ps_client *client, trm_error *err) {
    trm_ps_worker workers[WORKERS_SHOWN];
    int32_t count;
    trm_status status = trm_ps_workers(client, workers, WORKERS_SHOWN, &count, err);
    for (int32_t i = 0; status == TRM_OK && i < count && i < WORKERS_SHOWN; i++) {
        const trm_ps_worker *w = &workers[i];
        app_tell(APP_RESULT, NULL, NULL, app_int("worker", w->worker, "  worker %d"),
                 app_int("incarnation", w->incarnation, " (incarnation %d)"),
                 app_int("batches", w->batches, ": %d batches"),
                 app_bool("active", w->active, ", at work"),
                 app_words(w->active ? "" : ", gone or resting"),
                 app_real("silent_seconds", w->silent_seconds, ", silent for %.1f s"));
    }
    return status;
}

/* Prints one row with the push of its last change. */
static trm_status tell_row(trm_ps_client *client, int32_t number, uint64_t key, trm_error *err) {
    int32_t slot_count, writer_count = 0;
    const trm_table_options *o = trm_ps_client_table_options(client, number, &slot_count);
    float *values = calloc((size_t)o->width, sizeof *values);
    float *slots = calloc((size_t)slot_count + 1, sizeof *slots);
    trm_row_info info;
    trm_ps_writer writers[TRM_PS_WRITERS];
    trm_status status = values == NULL || slots == NULL
                            ? app_no_memory(err, "for a row")
                            : trm_ps_audit_row(client, number, key, &info, values, slots, writers,
                                               &writer_count, err);
    if (status == TRM_END) {
        status = app_ps_no_row(o->name, key, err);
    } else if (status == TRM_OK) {
        app_ps_print_row(&(app_ps_row){.table = o,
                                       .info = &info,
                                       .values = values,
                                       .slots = slots,
                                       .slot_count = slot_count,
                                       .writers = writers,
                                       .writer_count = writer_count});
    }
    free(values);
    free(slots);
    return status;
}

/* ---- for Prometheus -------------------------------------------------------------------------- */

/* A figure for Prometheus: where it is in the struct of the library. */
typedef struct metric {
    const char *name, *kind, *help;
    size_t offset; /* of an int64_t in trm_table_stats */
} metric;

/* Figures of a table; a counter only grows, a gauge may fall. */
static const metric table_metrics[] = {
    {"rows", "gauge", "rows of the table, in memory and spilled", offsetof(trm_table_stats, rows)},
    {"spilled_rows", "gauge", "of those, in the file", offsetof(trm_table_stats, spilled_rows)},
    {"bytes", "gauge", "memory of rows, index and admission", offsetof(trm_table_stats, bytes)},
    {"reads_total", "counter", "keys that were read", offsetof(trm_table_stats, reads)},
    {"read_misses_total", "counter", "of those, without a row",
     offsetof(trm_table_stats, read_misses)},
    {"updates_total", "counter", "gradients applied to rows", offsetof(trm_table_stats, updates)},
    {"created_total", "counter", "new keys let in", offsetof(trm_table_stats, created)},
    {"refused_total", "counter", "new keys not let in, or not yet",
     offsetof(trm_table_stats, refused)},
    {"expired_total", "counter", "rows that left by a rule", offsetof(trm_table_stats, expired)},
    {"evicted_total", "counter", "rows that left by the cap or the budget",
     offsetof(trm_table_stats, evicted)},
    {"no_room_total", "counter", "gradients dropped because the budget gave no row",
     offsetof(trm_table_stats, no_room)}};

/* Prints a label's value. The text exposition format is for `ps inspect ... --prometheus >
 * FILE.prom` in the node exporter's folder. Names of tables need no other escapes than these. */
static void say_label(const char *name) {
    for (; *name != '\0'; name++) {
        app_print(*name == '"' || *name == '\\' ? "\\%c" : "%c", *name);
    }
}

/* Prints the HELP and TYPE lines of a metric. */
static void say_head(const char *prefix, const char *name, const char *kind, const char *help) {
    app_print("# HELP trireme_ps_%s%s %s\n# TYPE trireme_ps_%s%s %s\n", prefix, name, help, prefix,
              name, kind);
}

/* Prints the lags of all tables as a histogram: its counts are cumulative. */
static void say_lags(trm_ps_client *client, const trm_table_stats *all, int32_t tables) {
    int32_t slots;
    say_head("table_", "lag", "histogram",
             "updates of the table between a batch's read and its push, of each server's part");
    for (int32_t t = 0; t < tables; t++) {
        int64_t below = 0;
        for (int i = 0; i < TRM_PS_LAGS; i++) {
            below += all[t].lags[i];
            app_print("trireme_ps_table_lag_bucket{table=\"");
            say_label(trm_ps_client_table_options(client, t, &slots)->name);
            if (i < TRM_PS_LAGS - 1) {
                app_print("\",le=\"%lld\"} %lld\n", (long long)most_of(i), (long long)below);
            } else {
                app_print("\",le=\"+Inf\"} %lld\n", (long long)below);
            }
        }
        app_print("trireme_ps_table_lag_sum{table=\"");
        say_label(trm_ps_client_table_options(client, t, &slots)->name);
        app_print("\"} %lld\ntrireme_ps_table_lag_count{table=\"", (long long)all[t].lag_sum);
        say_label(trm_ps_client_table_options(client, t, &slots)->name);
        app_print("\"} %lld\n", (long long)below);
    }
}

/* Prints all metrics in Prometheus's text exposition format: the job, its workers, then each
 * metric for all tables. */
static trm_status tell_prometheus(trm_ps_client *client, int32_t tables, trm_error *err) {
    trm_ps_worker workers[WORKERS_SHOWN];
    int32_t count = 0, slots;
    trm_table_stats *all = calloc((size_t)tables + 1, sizeof *all);
    trm_status status = all == NULL
                            ? app_no_memory(err, "for the metrics of %d tables", (int)tables)
                            : trm_ps_workers(client, workers, WORKERS_SHOWN, &count, err);
    for (int32_t t = 0; t < tables && status == TRM_OK; t++) {
        status = trm_ps_table_get_stats(client, t, &all[t], err);
    }
    trm_ps_client_stats stats;
    trm_ps_client_get_stats(client, &stats);
    if (status == TRM_OK) {
        /* Print the job and its workers. */
        say_head("", "global_step", "counter", "pushes applied; synchronous: batches");
        app_print("trireme_ps_global_step %lld\n", (long long)stats.global_step);
        say_head("worker_", "batches_total", "counter", "batches that the worker has finished");
        for (int32_t i = 0; i < count && i < WORKERS_SHOWN; i++) {
            app_print("trireme_ps_worker_batches_total{worker=\"%d\"} %lld\n", workers[i].worker,
                      (long long)workers[i].batches);
        }
        say_head("worker_", "active", "gauge", "0: it has ended, rests, or is silent");
        for (int32_t i = 0; i < count && i < WORKERS_SHOWN; i++) {
            app_print("trireme_ps_worker_active{worker=\"%d\"} %d\n", workers[i].worker,
                      workers[i].active);
        }
    }
    /* Print the tables, metric by metric, as the format requires. */
    for (size_t m = 0; m < sizeof table_metrics / sizeof table_metrics[0] && status == TRM_OK;
         m++) {
        say_head("table_", table_metrics[m].name, table_metrics[m].kind, table_metrics[m].help);
        for (int32_t t = 0; t < tables; t++) {
            int64_t value;
            memcpy(&value, (const char *)&all[t] + table_metrics[m].offset, sizeof value);
            app_print("trireme_ps_table_%s{table=\"", table_metrics[m].name);
            say_label(trm_ps_client_table_options(client, t, &slots)->name);
            app_print("\"} %lld\n", (long long)value);
        }
    }
    if (status == TRM_OK) {
        say_lags(client, all, tables);
    }
    free(all);
    return status;
}

/* Prints a row, the metrics, or workers and tables, by the flags. */
static trm_status print_result(trm_ps_client *client, const app_options *o, const char *servers,
                               const uint64_t *key, trm_error *err) {
    int32_t count, slots, found = -1;
    trm_status status = trm_ps_client_adopt(client, &count, err);
    if (status != TRM_OK) {
        return status;
    }
    /* Find the number of the table that --table names. */
    for (int32_t t = 0; o->table != NULL && t < count; t++) {
        found =
            strcmp(trm_ps_client_table_options(client, t, &slots)->name, o->table) == 0 ? t : found;
    }
    if (o->table != NULL && found < 0) {
        return app_fail(err, TRM_INVALID, "%s: no table '%s' among the %d that there are", servers,
                        o->table, count);
    }
    if (key != NULL) {
        return tell_row(client, found, *key, err);
    }
    if (o->prometheus) {
        return tell_prometheus(client, count, err);
    }
    trm_ps_client_stats stats;
    status = tell_workers(client, err);
    trm_ps_client_get_stats(client, &stats);
    app_print("%s: %d tables, global step %lld\n", servers, count, (long long)stats.global_step);
    for (int32_t t = 0; t < count && status == TRM_OK; t++) {
        if (found < 0 || t == found) {
            status = tell_table(client, t, err);
        }
    }
    return status;
}

/* Contract in cmd_ps.h. The list of addresses is cut in place, so it is copied first. */
trm_status app_ps_inspect_servers(app_context *app, const char *addresses, const uint64_t *key,
                                  trm_error *err) {
    const app_options *o = &app->o;
    trm_ps_client *client;
    char *copy = strdup(addresses);
    trm_status status = copy == NULL ? app_no_memory(err, "for the addresses of servers")
                                     : connect_all(o, copy, &client, err);
    if (status == TRM_OK) {
        status = print_result(client, o, addresses, key, err);
        trm_ps_client_destroy(client);
    }
    free(copy);
    return status;
}
