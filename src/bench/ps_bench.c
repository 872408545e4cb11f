/* SPDX-License-Identifier: Apache-2.0 */
/* bench_ps, first part: how many rows a second one core reads and updates in a table of this
 * process, beside plain loops over arrays of as many rows.
 *
 *       measure      what it does for each key of a batch               bounded by
 *       SUM          adds up the row, writes nothing                    memory latency
 *       PLAIN        copies the row from an array, no keys              the same, and the stores
 *       IN_TABLE     copies a cache line of the table's memory          the table's larger footprint
 *       READ         finds the row by its key and copies it             what pulls cost a server
 *       UPDATE       finds the row and applies row-wise Adagrad         what pushes cost a server
 *
 * Rates are ratios of neighbouring measurements (run_once), because absolute ones change with the
 * machine's load. bench_ps also begins the other forms: serving another process (bench_listen), a
 * table of a given size (ps_budget.c), a worker with its server (ps_service.c). */
#include "bench/ps_bench.h"

#include "base/checked.h"
#include "base/error.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/order.h"
#include "base/os.h"
#include "base/rng.h"
#include "ps/client/life.h"
#include "ps/table/table.h"

enum { WIDTH = 16, DISTANCE = 32, REPEATS_MAX = BENCH_REPEATS_MAX };
/* The reference gather of the published ratios: reads and sums rows of 64 bytes in a table of 4
 * GiB, with prefetches 16 rows ahead. */
enum { SUM_DISTANCE = 16, LARGE_ROWS = 1 << 20 };
static const int64_t SUM_BYTES = (int64_t)4 << 30;
/* Time limits of a server that another process measures: between two checks; without a connection
 * after the first; before the first connection. */
static const double LOOK_SECONDS = 0.2, GONE_SECONDS = 5, COME_SECONDS = 600;

enum measure { SUM, PLAIN, READ, UPDATE, IN_TABLE, MEASURES };

/* The table, the arrays beside it, and the rates of all repetitions. Everything is owned. A batch
 * has `batch` keys, and one repetition of a measure takes `calls` batches. */
typedef struct table_bench {
    int64_t rows, batch, calls;
    int32_t repeats;
    char *plain;  /* rows x 64 bytes */
    char *summed; /* sum_rows x 64 bytes */
    int64_t sum_rows;
    trmi_row_table *table;
    trmi_account account;
    uint64_t *keys;   /* one repeat's worth */
    uint32_t *places; /* of the rows that are summed */
    float *out, *gradients;
    uint32_t tick;
    double rate[MEASURES][REPEATS_MAX], insert_rate;
} table_bench;

typedef float four __attribute__((vector_size(16)));

/* Sums the rows of a batch: the bound of any gather, because nothing is written. */
static void sum_gather(const table_bench *b, const uint32_t *rows) {
    four sum[WIDTH / 4] = {{0}};
    for (int64_t i = 0; i < b->batch; i++) {
        if (i + SUM_DISTANCE < b->batch) {
            __builtin_prefetch(b->summed + 64 * (size_t)rows[i + SUM_DISTANCE]);
        }
        const four *row = (const four *)(const void *)(b->summed + 64 * (size_t)rows[i]);
        for (int k = 0; k < WIDTH / 4; k++) {
            sum[k] += row[k];
        }
    }
    memcpy(b->out, sum, sizeof sum);
}

/* Copies the same rows, one cache line each, without keys: the fastest random reads that memory
 * allows a core. */
static void plain_gather(const table_bench *b, const uint64_t *rows) {
    for (int64_t i = 0; i < DISTANCE; i++) {
        __builtin_prefetch(b->plain + 64 * rows[i]);
    }
    for (int64_t i = 0; i < b->batch; i++) {
        if (i + DISTANCE < b->batch) {
            __builtin_prefetch(b->plain + 64 * rows[i + DISTANCE]);
        }
        memcpy(b->out + i * WIDTH, b->plain + 64 * rows[i], 64);
    }
}

/* Copies cache lines at random places of the table's own memory: the cost of a table that is larger
 * than its values. */
static void gather_in_table(const table_bench *b, const uint64_t *places) {
    const trmi_rows *rows = &b->table->rows;
    /* line: the addresses that are prefetched and not copied yet, as a ring; a table computes the
     * address of a row once, too */
    const char *line[2 * DISTANCE];
    for (int64_t i = -DISTANCE; i < b->batch; i++) {
        if (i + DISTANCE < b->batch) {
            uint64_t place = trmi_key_hash(places[i + DISTANCE]);
            const trmi_directory_entry *page = trmi_rows_entry(rows, place);
            uint64_t lines = page->places * (uint64_t)rows->stride / 64;
            const char *at = page->base + 64 * ((place & UINT32_MAX) * lines >> 32);
            __builtin_prefetch(at);
            line[(uint64_t)(i + DISTANCE) % (2 * DISTANCE)] = at;
        }
        if (i >= 0) {
            memcpy(b->out + i * WIDTH, line[(uint64_t)i % (2 * DISTANCE)], 64);
        }
    }
}

/* Functions that run one batch of each measure. */
static trm_status call_sum(table_bench *b, int64_t first, trm_error *err) {
    (void)err;
    sum_gather(b, b->places + first);
    return TRM_OK;
}
static trm_status call_plain(table_bench *b, int64_t first, trm_error *err) {
    (void)err;
    plain_gather(b, b->keys + first);
    return TRM_OK;
}
static trm_status call_read(table_bench *b, int64_t first, trm_error *err) {
    return trmi_row_table_read(b->table, b->keys + first, b->batch, TRM_FLOAT32, b->out, err);
}
static trm_status call_update(table_bench *b, int64_t first, trm_error *err) {
    trmi_tick tick = {++b->tick, 0, 1, 1};
    return trmi_row_table_update(b->table, b->keys + first, b->batch, TRM_FLOAT32, b->gradients,
                                 &tick, err);
}
static trm_status call_in_table(table_bench *b, int64_t first, trm_error *err) {
    (void)err;
    gather_in_table(b, b->keys + first);
    return TRM_OK;
}

/* Runs all measures in turn, millions of rows each, so that other load of the machine affects all
 * alike. The first third of each turn is not counted, because it fills the translation caches for
 * this measure (up to a million reads in a virtual machine on small pages of the host). */
static trm_status run_once(table_bench *b, int32_t repeat, trm_error *err) {
    static trm_status (*const call[MEASURES])(table_bench * b, int64_t first,
                                              trm_error * err) = {[SUM] = call_sum,
                                                                  [PLAIN] = call_plain,
                                                                  [READ] = call_read,
                                                                  [UPDATE] = call_update,
                                                                  [IN_TABLE] = call_in_table};
    const int64_t count = b->calls * b->batch;
    /* Draw new keys each time: rows of the old ones could still be in a large cache. */
    for (int64_t i = 0; i < count; i++) {
        uint64_t random = trmi_mix((uint64_t)repeat, (uint64_t)i);
        b->keys[i] = random % (uint64_t)b->rows;
        b->places[i] = (uint32_t)((random >> 32) * (uint64_t)b->sum_rows >> 32);
    }
    for (int m = 0; m < MEASURES; m++) {
        const int64_t warm = b->calls / 3 * b->batch;
        double at = trmi_os_now();
        for (int64_t first = 0; first < count; first += b->batch) {
            at = first == warm ? trmi_os_now() : at;
            TRMI_TRY(call[m](b, first, err));
        }
        b->rate[m][repeat] = (double)(count - warm) / (trmi_os_now() - at);
    }
    return TRM_OK;
}

/* Creates all rows of the table, in order, and measures the rate. */
static trm_status fill_table(table_bench *b, trm_error *err) {
    double start = trmi_os_now();
    for (int64_t first = 0; first < b->rows; first += b->batch) {
        int64_t count = trmi_min_i64(b->batch, b->rows - first);
        for (int64_t i = 0; i < count; i++) {
            b->keys[i] = (uint64_t)(first + i);
        }
        trmi_tick tick = {++b->tick, 0, 1, 1};
        TRMI_TRY(
            trmi_row_table_update(b->table, b->keys, count, TRM_FLOAT32, b->gradients, &tick, err));
    }
    b->insert_rate = (double)b->rows / (trmi_os_now() - start);
    if (b->table->rows.count != b->rows) {
        return TRMI_FAIL(err, TRM_INTERNAL, "bench table holds %lld of %lld rows",
                         (long long)b->table->rows.count, (long long)b->rows);
    }
    return TRM_OK;
}

/* Reports the ratio of two measures, repetition by repetition: the two were taken one after the
 * other, on the same keys, so that their ratio is steadier than either of them. */
static void report_ratio(const table_bench *b, const bench_say *say, const char *name,
                         enum measure m, enum measure of) {
    double ratio[REPEATS_MAX];
    for (int32_t r = 0; r < b->repeats; r++) {
        ratio[r] = b->rate[m][r] / b->rate[of][r];
    }
    bench_say_sorted(say, name, "ratio", ratio, b->repeats);
}

/* Reports the ratios of the table's rates to the bounds, then all rates and the memory of a row. */
static void report_all(table_bench *b, const bench_say *say) {
    static const char *const names[MEASURES] = {"gather.sum", "gather.plain", "read",
                                                "update.rowwise_adagrad", "gather.in_table"};
    report_ratio(b, say, "read.of_sum", READ, SUM);
    report_ratio(b, say, "update.rowwise_adagrad.of_sum", UPDATE, SUM);
    report_ratio(b, say, "read.of_gather", READ, PLAIN);
    report_ratio(b, say, "update.rowwise_adagrad.of_gather", UPDATE, PLAIN);
    for (int m = 0; m < MEASURES; m++) {
        bench_say_sorted(say, names[m], "rows/s", b->rate[m], b->repeats);
    }
    bench_say_one(say, "gather.sum.table", "GB", (double)b->sum_rows * 64e-9);
    bench_say_one(say, "insert", "rows/s", b->insert_rate);
    bench_say_one(say, "memory", "bytes/row", (double)b->account.used / (double)b->rows);
}

/* Frees the bench; NULL members are fine, as after a bench_make that has failed. */
static void bench_free(table_bench *b) {
    trmi_row_table_destroy(b->table);
    trmi_free(b->plain);
    trmi_free(b->summed);
    trmi_free(b->places);
    trmi_free(b->keys);
    trmi_free(b->out);
    trmi_free(b->gradients);
    trmi_free(b);
}

/* Fills in the defaults, and allocates the table and the arrays that it is compared with. */
static trm_status bench_make(const bench_ps_options *options, table_bench *b, trm_error *err) {
    /* half of the memory, at 256 bytes a row: the table, the plain array, and the array of sums */
    int64_t fitting = trmi_os_memory_bytes() / 2 / 256;
    b->rows = options->rows > 0 ? options->rows : trmi_min_i64(fitting, 16 << 20);
    b->batch = options->batch > 0 ? options->batch : 65536;
    b->repeats = options->repeats > 0 ? (int32_t)trmi_min_i64(options->repeats, REPEATS_MAX) : 7;
    if (b->batch < DISTANCE || b->batch > (int64_t)1 << 30 || b->rows > (int64_t)1 << 31) {
        return TRMI_FAIL(err, TRM_INVALID,
                         "bench ps: %lld rows, batches of %lld: at most 2^31 rows "
                         "and batches of %d to 2^30 expected",
                         (long long)b->rows, (long long)b->batch, DISTANCE);
    }
    /* six million rows a measure: many more than caches hold */
    b->calls = trmi_max_i64(1, (6 << 20) / b->batch);
    b->account.limit = INT64_MAX;
    /* With few rows, or little memory, the table is as large as the others. */
    bool large = b->rows >= LARGE_ROWS && SUM_BYTES <= trmi_os_memory_bytes() / 4;
    b->sum_rows = trmi_max_i64(b->rows, large ? SUM_BYTES / 64 : 0);
    b->summed = trmi_alloc((size_t)b->sum_rows * 64);
    b->places = trmi_alloc((size_t)(b->calls * b->batch) * sizeof *b->places);
    b->plain = trmi_alloc((size_t)b->rows * 64);
    b->keys = trmi_alloc((size_t)(b->calls * b->batch) * sizeof *b->keys);
    b->out = trmi_alloc((size_t)b->batch * 64);
    b->gradients = trmi_alloc((size_t)b->batch * 64);
    if (b->plain == NULL || b->summed == NULL || b->places == NULL || b->keys == NULL ||
        b->out == NULL || b->gradients == NULL) {
        return TRMI_NO_MEMORY(err, "for %lld rows", (long long)b->rows);
    }
    for (int64_t i = 0; i < b->batch * WIDTH; i++) {
        b->gradients[i] = 1e-3f * (float)(i % 7 - 3);
    }
    trm_table_options table = {.name = "bench",
                               .width = WIDTH,
                               .optimizer = {.kind = TRM_ROWWISE_ADAGRAD},
                               .init = {TRM_ROW_INIT_UNIFORM, 0, 0.01f, 0}};
    return trmi_row_table_create(&table, &(trmi_row_table_place){.shards = 1}, &b->account,
                                 &b->table, err);
}

/* Measures one table in this process; *rows: how many it has. */
static trm_status bench_table(const bench_ps_options *options, const bench_say *say, int64_t *rows,
                              trm_error *err) {
    table_bench *b;
    TRMI_TRY(TRMI_NEW(err, b, 1, "to measure a table"));
    trm_status status;
    TRMI_TRY_GOTO(status, bench_make(options, b, err), done);
    *rows = b->rows;
    TRMI_TRY_GOTO(status, fill_table(b, err), done);
    for (int32_t r = 0; r < b->repeats; r++) {
        TRMI_TRY_GOTO(status, run_once(b, r, err), done);
    }
    report_all(b, say);
done:
    bench_free(b);
    return status;
}

/* Waits until the other end has measured and stops the server, or has disconnected without doing
 * so. */
static trm_status wait_for_measurer(trm_ps_server *server, trm_error *err) {
    const double begin = trmi_os_now();
    double here = begin; /* last time at which it was connected */
    while (trm_ps_server_wait(server, LOOK_SECONDS) != TRM_OK) {
        int64_t ever;
        const double now = trmi_os_now();
        here = trmi_server_connections(server, &ever) > 0 || ever == 0 ? now : here;
        if (now - here > GONE_SECONDS) {
            return TRMI_FAIL(err, TRM_PEER,
                             "%s: the measuring process has disconnected before the end; see its "
                             "own message for the reason",
                             trm_ps_server_address(server));
        }
        if (ever == 0 && now - begin > COME_SECONDS) {
            return TRMI_FAIL(
                err, TRM_TIMEOUT,
                "%s: no process has connected to measure for %.0f s; run bench ps --connect %s",
                trm_ps_server_address(server), COME_SECONDS, trm_ps_server_address(server));
        }
    }
    return TRM_OK;
}

/* Serves the process that calls with `connect`. */
static trm_status bench_listen(const bench_ps_options *options, trm_error *err) {
    trm_ps_server *server;
    trm_ps_server_options o = {.listen = options->listen,
                               .shards = options->shards == 0 ? 1 : options->shards,
                               .token = options->token};
    TRMI_TRY(trm_ps_server_start(&o, &server, err));
    trmi_log(TRM_LOG_INFO, "ps", "waiting at %s for bench ps --connect",
             trm_ps_server_address(server));
    trm_status status = wait_for_measurer(server, err);
    trm_ps_server_stop(server);
    return status;
}

void bench_say_sorted(const bench_say *say, const char *name, const char *unit, double *values,
                      int32_t count) {
    double median = trmi_median(values, count);
    say->report(say->context, name, unit, median, values[0], values[count - 1], count);
}

void bench_say_one(const bench_say *say, const char *name, const char *unit, double value) {
    say->report(say->context, name, unit, value, value, value, 1);
}

trm_status bench_ps(const bench_ps_options *options, bench_ps_report report, void *context,
                    trm_error *err) {
    const bench_say say = {report, context};
    /* rows of the server's tables; bench_table replaces it by the number that its own table has */
    int64_t rows = options->rows == 0 ? 2 << 20 : options->rows;
    if (options->listen != NULL) {
        return bench_listen(options, err);
    }
    if (options->table_bytes > 0) {
        return bench_ps_budget(options, &say, err);
    }
    if (options->connect == NULL) {
        TRMI_TRY(bench_table(options, &say, &rows, err));
    }
    return bench_ps_service(options, rows, &say, err);
}
