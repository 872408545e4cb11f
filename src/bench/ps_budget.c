/* SPDX-License-Identifier: Apache-2.0 */
/* Measures a large table of a parameter server within a budget of memory: `trireme bench ps
 * --budget`.
 *
 *     find_most_rows   the rows whose forecast (trmi_rows_forecast) just fits
 *     choose_shards    the number of shards that uses the budget best
 *     fill_and_train   creates all rows, trains random ones, reports memory and rates
 *
 * Server and client are in this process and speak without a network, so that the growth of the
 * process while rows are created is the table's memory. Keys come from a counter and a fixed seed:
 * each run pushes the same ones. */
#include "bench/ps_bench.h"

#include "base/checked.h"
#include "base/error.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/os.h"
#include "base/rng.h"
#include "ps/table/table.h"

#include <stdio.h>
#include <unistd.h>

enum {
    WIDTH = 16,         /* default floats of a row */
    BATCH = 65536,      /* keys of a batch of rows of that width */
    BATCH_LEAST = 1024, /* keys of a batch, at least */
    SHARDS_TRIED = 8
};

/* The table and its batches. Batches of any width have the same number of bytes. */
typedef struct form {
    int64_t rows, batch;      /* batch: keys */
    int32_t width;            /* floats of a row */
    int64_t budget, forecast; /* bytes: of the server, of the table */
} form;

/* A client that pushes batches of that form, and the memory of one batch. */
typedef struct pusher {
    trm_ps_client *client;
    int32_t table;
    const form *f;
    uint64_t *keys;         /* [batch] */
    float *out, *gradients; /* [batch, width] */
} pusher;

/* Returns the memory that this process has in RAM. */
static int64_t resident_bytes(void) {
    long pages = 0, resident = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (file != NULL) {
        if (fscanf(file, "%ld %ld", &pages, &resident) != 2) {
            resident = 0;
        }
        fclose(file);
    }
    return (int64_t)resident * sysconf(_SC_PAGESIZE);
}

/* Pushes `batches` batches. `fill`: keys 0, 1, 2 ... in order, which creates all rows; otherwise
 * random keys of existing rows, which are pulled before. */
static trm_status run_batches(const pusher *p, bool fill, int64_t batches, trm_error *err) {
    const form *f = p->f;
    trm_ps_batch *batch;
    TRMI_TRY(trm_ps_batch_create(p->client, &batch, err));
    trm_status status = TRM_OK;
    for (int64_t n = 0; n < batches && status == TRM_OK; n++) {
        for (int64_t i = 0; i < f->batch; i++) {
            int64_t at = n * f->batch + i;
            p->keys[i] = fill ? (uint64_t)trmi_min_i64(at, f->rows - 1)
                              : trmi_mix(5, (uint64_t)at) % (uint64_t)f->rows;
        }
        trm_ps_batch_clear(batch);
        status = trm_ps_batch_add(batch, p->table, p->keys, f->batch, fill ? NULL : p->out,
                                  p->gradients, err);
        if (status == TRM_OK && !fill) {
            status = trm_ps_pull_start(batch, err);
            status = status == TRM_OK ? trm_ps_pull_wait(batch, err) : status;
        }
        status = status == TRM_OK ? trm_ps_push(batch, NULL, err) : status;
    }
    status = status == TRM_OK ? trm_ps_flush(p->client, err) : status;
    trm_ps_batch_destroy(batch);
    return status;
}

/* Creates all rows, trains some batches, and reports memory and rates. */
static trm_status fill_and_train(trm_ps_client *client, const trm_table_options *t, const form *f,
                                 const bench_say *say, trm_error *err) {
    pusher p = {.client = client, .f = f};
    TRMI_TRY(trm_ps_client_table(client, t, &p.table, err));
    const int64_t floats = f->batch * f->width;
    p.gradients = trmi_alloc((size_t)floats * sizeof *p.gradients);
    p.out = trmi_alloc((size_t)floats * sizeof *p.out);
    p.keys = trmi_alloc((size_t)f->batch * sizeof *p.keys);
    trm_status status = p.gradients == NULL || p.out == NULL || p.keys == NULL
                            ? TRMI_NO_MEMORY(err, "for batches of %lld rows", (long long)f->batch)
                            : TRM_OK;
    for (int64_t i = 0; status == TRM_OK && i < floats; i++) {
        p.gradients[i] = 1e-3f * (float)(i % 7) - 3e-3f;
    }
    int64_t before = resident_bytes(), batches = (f->rows + f->batch - 1) / f->batch,
            trained = trmi_min_i64(200, 4 + batches / 4);
    double at = trmi_os_now();
    if (status == TRM_OK) {
        status = run_batches(&p, true, batches, err);
    }
    double filled = trmi_os_now() - at;
    at = trmi_os_now();
    if (status == TRM_OK) {
        status = run_batches(&p, false, trained, err);
    }
    double seconds = trmi_os_now() - at;
    trm_table_stats stats = {0};
    status = status == TRM_OK ? trm_ps_table_get_stats(client, p.table, &stats, err) : status;
    trmi_free(p.gradients);
    trmi_free(p.out);
    trmi_free(p.keys);
    TRMI_TRY(status);
    bench_say_one(say, "budget.bytes", "GB", (double)f->budget * 1e-9);
    bench_say_one(say, "budget.forecast", "GB", (double)f->forecast * 1e-9);
    bench_say_one(say, "budget.table", "GB", (double)stats.bytes * 1e-9);
    bench_say_one(say, "budget.resident", "GB", (double)(resident_bytes() - before) * 1e-9);
    bench_say_one(say, "budget.table_of_forecast", "ratio",
                  (double)stats.bytes / (double)f->forecast);
    bench_say_one(say, "budget.rows", "rows", (double)stats.rows);
    bench_say_one(say, "budget.values", "GB", (double)stats.rows * f->width * 4 * 1e-9);
    bench_say_one(say, "budget.evicted", "rows", (double)stats.evicted);
    bench_say_one(say, "budget.spilled", "rows", (double)stats.spilled);
    bench_say_one(say, "budget.fill", "rows/s", (double)(batches * f->batch) / filled);
    bench_say_one(say, "budget.train", "rows/s", (double)(trained * f->batch) / seconds);
    return TRM_OK;
}

/* Computes the memory that a table of so many rows will need on all shards, index and free places
 * included. */
static trm_status forecast_table(const trm_table_options *table, int64_t rows, int32_t shards,
                                 int64_t *bytes, trm_error *err) {
    trm_table_options checked;
    trmi_row_layout layout;
    TRMI_TRY(trmi_row_table_check(table, &checked, err));
    trmi_row_layout_make(&checked, &layout);
    *bytes = shards * trmi_rows_forecast(&layout, (rows + shards - 1) / shards);
    return TRM_OK;
}

/* Finds the most rows whose forecast is at most `bytes`, by bisection; *forecast is theirs. */
static trm_status find_most_rows(const trm_table_options *t, int64_t bytes, int32_t shards,
                                 int64_t *rows, int64_t *forecast, trm_error *err) {
    *rows = 0;
    for (int64_t step = (int64_t)1 << 36; step > 0; step /= 2) {
        TRMI_TRY(forecast_table(t, *rows + step, shards, forecast, err));
        *rows += *forecast <= bytes ? step : 0;
    }
    return forecast_table(t, *rows, shards, forecast, err);
}

/* Chooses the number of shards with which the table uses the budget best. Many pages of a shard
 * grow, or split, at the same number of rows (places_max in ps/table/rows.c), so its memory grows
 * in jumps, and where they are depends on the number of shards. */
static trm_status choose_shards(const trm_table_options *t, int64_t bytes, int32_t *shards,
                                trm_error *err) {
    int64_t rows, forecast, largest = -1;
    for (int32_t s = 1; s <= SHARDS_TRIED; s++) {
        TRMI_TRY(find_most_rows(t, bytes, s, &rows, &forecast, err));
        *shards = forecast > largest ? s : *shards;
        largest = trmi_max_i64(forecast, largest);
    }
    return TRM_OK;
}

/* Contract in ps_bench.h. The budget of the server is the forecast and a reserve of 5 % and 64 MiB,
 * unless the caller gives one. */
trm_status bench_ps_budget(const bench_ps_options *options, const bench_say *say, trm_error *err) {
    const int32_t width = options->width > 0 ? options->width : WIDTH;
    trm_table_options t = {.name = "large",
                           .width = width,
                           .dtype = TRM_FLOAT32,
                           .optimizer = {.kind = TRM_ROWWISE_ADAGRAD},
                           .init = {TRM_ROW_INIT_UNIFORM, 0, 0.01f, 0}};
    int64_t rows = 0, forecast = 0;
    int32_t shards = options->shards;
    if (shards == 0) {
        TRMI_TRY(choose_shards(&t, options->table_bytes, &shards, err));
    }
    TRMI_TRY(find_most_rows(&t, options->table_bytes, shards, &rows, &forecast, err));
    int64_t budget =
        options->memory_bytes > 0 ? options->memory_bytes : forecast + forecast / 20 + (64 << 20);
    char forecast_text[TRMI_BYTES_TEXT], budget_text[TRMI_BYTES_TEXT];
    trmi_log(TRM_LOG_INFO, "ps", "%lld rows on %d shards: %s of memory forecast, budget %s",
             (long long)rows, shards, trmi_bytes_text((double)forecast, forecast_text),
             trmi_bytes_text((double)budget, budget_text));
    trm_ps_server_options so = {
        .shards = shards, .memory_bytes = budget, .spill_folder = options->folder};
    trm_ps_server *server;
    trm_ps_client *client = NULL;
    TRMI_TRY(trm_ps_server_start(&so, &server, err));
    trm_ps_client_options co = {.local = &server, .servers = 1};
    trm_status status = trm_ps_client_create(&co, &client, err);
    if (status == TRM_OK) {
        const form f = {.rows = rows,
                        .batch = trmi_max_i64(BATCH_LEAST, (int64_t)BATCH * WIDTH / width),
                        .width = width,
                        .budget = budget,
                        .forecast = forecast};
        status = fill_and_train(client, &t, &f, say, err);
    }
    trm_ps_client_destroy(client);
    trm_ps_server_stop(server);
    return status;
}
