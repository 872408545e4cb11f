/* SPDX-License-Identifier: Apache-2.0 */
/* The second part of bench_ps: a worker and its server at Criteo's shape (26 tables, 4096 samples
 * a batch).
 *
 *    worker (this thread) == shared memory or TCP ==> server: link, shards      pull, push
 *    the same rows, in a plain array, by a plain prefetched loop                gather, update
 *    the same rows, in row tables of this process, without a server             keyed read
 *
 * The plain loops do the work that no parameter server can avoid, so their time is the bound that
 * the ratios relate to; the keyed read separates what the hash table costs from what the link
 * costs. Client and server share the CPUs of one machine, and each measurement is taken in turns
 * with its bound, so that a change of the machine's speed affects both.
 *
 * Then, with a folder: checkpoints beside training, and starting from one. Against a server
 * elsewhere (options->connect) there is nothing to compare with, and only the client is
 * measured. */
#include "bench/ps_bench.h"

#include "base/checked.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/os.h"
#include "base/rng.h"
#include "ps/table/table.h"

#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum {
    FIELDS = 26,              /* tables; Criteo has so many categorical fields */
    WIDTH = 16,               /* floats of a row */
    BATCH = 4096,             /* samples */
    LOOKUPS = FIELDS * BATCH, /* of a batch */
    BATCHES = 8,              /* different batches of keys, used in turn */
    DISTANCE = 32             /* look-ups by which the plain loops prefetch ahead */
};

/* The worker, its server, and the plain arrays that it is compared with. Everything but the options
 * is owned. */
typedef struct service {
    const bench_ps_options *options;
    bench_say say;
    trm_ps_server *server;
    trm_ps_client *client;
    trm_ps_batch *batch;
    int32_t tables[FIELDS];
    int64_t rows;           /* of a table */
    uint64_t *keys;         /* [BATCHES][FIELDS][BATCH] */
    float *out, *gradients; /* [FIELDS][BATCH][WIDTH] */
    float *plain, *sums;    /* [FIELDS][rows][WIDTH]; [FIELDS][rows] */
    trmi_account account;
    trmi_row_table *keyed[FIELDS]; /* the same tables in this process */
} service;

/* Draws keys as skewed as click data: about a fifth of a batch's look-ups are distinct. */
static void make_keys(service *s) {
    for (int64_t i = 0; i < (int64_t)BATCHES * LOOKUPS; i++) {
        double u = (double)(trmi_mix(7, (uint64_t)i) >> 11) * 0x1p-53;
        int64_t row = (int64_t)((double)s->rows * pow(u, 33));
        s->keys[i] = (uint64_t)trmi_min_i64(row, s->rows - 1);
    }
}

/* Starts the server in this process, on a port of its own choice. Its memory limit leaves 256
 * bytes a row, more than a row takes with its share of the hash table, so that no row is
 * refused. */
static trm_status start_server(service *s, trm_error *err) {
    const bench_ps_options *o = s->options;
    trm_ps_server_options so = {.shards = o->shards == 0 ? 1 : o->shards,
                                .listen = "127.0.0.1:0",
                                .folder = o->folder,
                                .memory_bytes = s->rows * FIELDS * 256 + ((int64_t)1 << 28),
                                .log_pushes = false};
    return trm_ps_server_start(&so, &s->server, err);
}

/* Connects a client to the server of this process or to the one elsewhere. `worker`: its number;
 * -1: a client that is no worker of the job and only asks for checkpoints. */
static trm_status connect_worker(service *s, int32_t worker, trm_ps_client **out, trm_error *err) {
    const char *address =
        s->server != NULL ? trm_ps_server_address(s->server) : s->options->connect;
    trm_ps_client_options co = {.addresses = &address,
                                .servers = 1,
                                .worker = worker,
                                .wire = s->options->wire,
                                .tcp_only = s->options->tcp_only,
                                .token = s->options->token};
    return trm_ps_client_create(&co, out, err);
}

/* Declares the tables to the server of a client. */
static trm_status declare_tables(service *s, trm_ps_client *client, trm_error *err) {
    for (int f = 0; f < FIELDS; f++) {
        char name[24];
        snprintf(name, sizeof name, "field-%d", f);
        trm_table_options t = {.name = name,
                               .width = WIDTH,
                               .optimizer = {.kind = TRM_ROWWISE_ADAGRAD},
                               .init = {TRM_ROW_INIT_UNIFORM, 0, 0.01f, 0}};
        TRMI_TRY(trm_ps_client_table(client, &t, &s->tables[f], err));
    }
    return TRM_OK;
}

/* Makes s->batch batch number `number` of the keys: rows are pulled to s->out, gradients pushed. */
static trm_status add_batch(service *s, int64_t number, bool pull, bool push, trm_error *err) {
    const uint64_t *keys = s->keys + number % BATCHES * LOOKUPS;
    trm_ps_batch_clear(s->batch);
    for (int64_t f = 0; f < FIELDS; f++) {
        int64_t at = f * BATCH * WIDTH;
        TRMI_TRY(trm_ps_batch_add(s->batch, s->tables[f], keys + f * BATCH, BATCH,
                                  pull ? s->out + at : NULL, push ? s->gradients + at : NULL, err));
    }
    return TRM_OK;
}

/* Creates all rows before the measurements. */
static trm_status fill_tables(service *s, trm_error *err) {
    uint64_t *keys;
    trm_status status = TRMI_NEW(err, keys, BATCH, "for the keys of a batch");
    for (int64_t first = 0; first < s->rows && status == TRM_OK; first += BATCH) {
        int64_t count = trmi_min_i64(BATCH, s->rows - first);
        for (int64_t i = 0; i < count; i++) {
            keys[i] = (uint64_t)(first + i);
        }
        trm_ps_batch_clear(s->batch);
        for (int f = 0; f < FIELDS && status == TRM_OK; f++) {
            status = trm_ps_batch_add(s->batch, s->tables[f], keys, count, NULL,
                                      s->gradients + (int64_t)f * BATCH * WIDTH, err);
        }
        status = status == TRM_OK ? trm_ps_push(s->batch, NULL, err) : status;
    }
    trmi_free(keys);
    return status == TRM_OK ? trm_ps_flush(s->client, err) : status;
}

/* Copies the row of every look-up from the plain array: the bound of a pull. */
static void gather_plainly(const service *s, const uint64_t *keys) {
    for (int64_t f = 0; f < FIELDS; f++) {
        const float *table = s->plain + f * s->rows * WIDTH;
        const uint64_t *k = keys + f * BATCH;
        float *out = s->out + f * BATCH * WIDTH;
        for (int64_t i = 0; i < BATCH; i++) {
            if (i + DISTANCE < BATCH) {
                __builtin_prefetch(table + k[i + DISTANCE] * WIDTH);
            }
            memcpy(out + i * WIDTH, table + k[i] * WIDTH, WIDTH * sizeof *out);
        }
    }
}

/* Applies row-wise Adagrad at every look-up of the plain array: the bound of a push. */
static void update_plainly(const service *s, const uint64_t *keys) {
    for (int64_t f = 0; f < FIELDS; f++) {
        float *table = s->plain + f * s->rows * WIDTH, *sums = s->sums + f * s->rows;
        const uint64_t *k = keys + f * BATCH;
        const float *g = s->gradients + f * BATCH * WIDTH;
        for (int64_t i = 0; i < BATCH; i++, g += WIDTH) {
            if (i + DISTANCE < BATCH) {
                __builtin_prefetch(table + k[i + DISTANCE] * WIDTH, 1);
                __builtin_prefetch(sums + k[i + DISTANCE], 1);
            }
            /* one accumulator for a row: the mean square of the gradient divides the rate of all
             * its elements */
            float *row = table + k[i] * WIDTH, square = 0;
            for (int j = 0; j < WIDTH; j++) {
                square += g[j] * g[j];
            }
            float sum = sums[k[i]] += square / WIDTH;
            float rate = 0.01f / (sqrtf(sum) + 1e-10f);
            for (int j = 0; j < WIDTH; j++) {
                row[j] -= rate * g[j];
            }
        }
    }
}

/* Reads the row of every look-up in a table of this process. */
static trm_status read_keyed(service *s, const uint64_t *keys, trm_error *err) {
    for (int64_t f = 0; f < FIELDS; f++) {
        TRMI_TRY(trmi_row_table_read(s->keyed[f], keys + f * BATCH, BATCH, TRM_FLOAT32,
                                     s->out + f * BATCH * WIDTH, err));
    }
    return TRM_OK;
}

/* Creates the tables of this process, with all rows. */
static trm_status fill_keyed(service *s, trm_error *err) {
    uint64_t keys[1024];
    s->account.limit = INT64_MAX;
    for (int64_t f = 0; f < FIELDS; f++) {
        trm_table_options t = {
            .name = "keyed", .width = WIDTH, .optimizer = {.kind = TRM_ROWWISE_ADAGRAD}};
        TRMI_TRY(trmi_row_table_create(&t, &(trmi_row_table_place){.shards = 1}, &s->account,
                                       &s->keyed[f], err));
        for (int64_t first = 0; first < s->rows; first += 1024) {
            int64_t count = trmi_min_i64(1024, s->rows - first);
            for (int64_t i = 0; i < count; i++) {
                keys[i] = (uint64_t)(first + i);
            }
            trmi_tick tick = {(uint32_t)(first / 1024 + 1), 0, 1, 1};
            TRMI_TRY(trmi_row_table_update(s->keyed[f], keys, count, TRM_FLOAT32, s->gradients,
                                           &tick, err));
        }
    }
    return TRM_OK;
}

/* Measures pulls and pushes of the server beside the same work without one, in turns. Values 0 to
 * TIMES - 1 are milliseconds, the others ratios. */
static trm_status measure_service(service *s, trm_error *err) {
    enum { MEASURES = 8, TIMES = 5, ROUNDS = 3 };
    static const char *const names[MEASURES] = {
        "criteo.pull",           "criteo.push",
        "criteo.plain_gather",   "criteo.plain_update",
        "criteo.keyed_read",     "criteo.pull.of_gather",
        "criteo.push.of_update", "criteo.pull.of_keyed_read"};
    /* v: a value for each measure and repetition; of the ratios, each of one repetition, so that
     * their median is no ratio of medians taken at different times */
    double v[MEASURES][BENCH_REPEATS_MAX];
    int32_t repeats = s->options->repeats > 0 ? s->options->repeats : 15;
    repeats = repeats > BENCH_REPEATS_MAX ? BENCH_REPEATS_MAX : repeats;
    for (int32_t r = -2; r < repeats; r++) { /* two that warm up */
        double t[TIMES] = {0};
        for (int64_t n = 0; n < ROUNDS; n++) {
            /* every round takes another batch, so that the rows are not those that the caches
             * still hold */
            const int64_t number = n + (r + 2) * ROUNDS;
            const uint64_t *keys = s->keys + number % BATCHES * LOOKUPS;
            TRMI_TRY(add_batch(s, number, true, true, err));
            double at = trmi_os_now();
            TRMI_TRY(trm_ps_pull_start(s->batch, err));
            TRMI_TRY(trm_ps_pull_wait(s->batch, err));
            double now = trmi_os_now();
            t[0] += now - at;
            TRMI_TRY(trm_ps_push(s->batch, NULL, err));
            TRMI_TRY(trm_ps_flush(s->client, err));
            at = trmi_os_now();
            t[1] += at - now;
            if (s->plain != NULL) {
                gather_plainly(s, keys);
                now = trmi_os_now();
                t[2] += now - at;
                update_plainly(s, keys);
                at = trmi_os_now();
                t[3] += at - now;
                TRMI_TRY(read_keyed(s, keys, err));
                t[4] += trmi_os_now() - at;
            }
        }
        for (int m = 0; m < TIMES && r >= 0; m++) {
            v[m][r] = t[m] / ROUNDS * 1e3;
        }
        if (r >= 0 && s->plain != NULL) {
            v[5][r] = t[0] / t[2];
            v[6][r] = t[1] / t[3];
            v[7][r] = t[0] / t[4];
        }
    }
    for (int m = 0; m < (s->plain == NULL ? 2 : MEASURES); m++) {
        bench_say_sorted(&s->say, names[m], m < TIMES ? "ms" : "ratio", v[m], repeats);
    }
    trm_ps_client_stats stats;
    trm_ps_client_get_stats(s->client, &stats);
    bench_say_one(&s->say, "criteo.unique_of_lookups", "ratio",
                  (double)stats.unique_keys / (double)trmi_max_i64(1, stats.lookups));
    return TRM_OK;
}

/* A batch of Criteo's shape whose keys are all distinct, so that no look-up is shared. */
static trm_status add_distinct(service *s, trm_ps_batch *batch, uint64_t *keys, int64_t number,
                               bool push, trm_error *err) {
    trm_ps_batch_clear(batch);
    /* batch n has the BATCH rows that follow those of batch n - 1, in every table */
    const int64_t begin = number * BATCH % s->rows;
    for (int64_t f = 0; f < FIELDS; f++) {
        /* below s->rows >= BATCH, without a division, whose time would be counted */
        for (int64_t i = 0; i < BATCH; i++) {
            int64_t row = begin + i;
            keys[f * BATCH + i] = (uint64_t)(row < s->rows ? row : row - s->rows);
        }
        TRMI_TRY(trm_ps_batch_add(batch, s->tables[f], keys + f * BATCH, BATCH,
                                  push ? NULL : s->out + f * BATCH * WIDTH,
                                  push ? s->gradients + f * BATCH * WIDTH : NULL, err));
    }
    return TRM_OK;
}

/* Runs `count` pulls. Each is requested before the previous one is awaited, as by a worker that
 * computes meanwhile. */
static trm_status pull_ahead(service *s, trm_ps_batch *const batches[2], uint64_t *const keys[2],
                             int64_t count, trm_error *err) {
    for (int64_t n = 0; n <= count; n++) {
        if (n < count) {
            TRMI_TRY(add_distinct(s, batches[n % 2], keys[n % 2], n, false, err));
            TRMI_TRY(trm_ps_pull_start(batches[n % 2], err));
        }
        if (n > 0) {
            TRMI_TRY(trm_ps_pull_wait(batches[(n - 1) % 2], err));
        }
    }
    return TRM_OK;
}

/* Runs `count` pushes and waits for the last one. */
static trm_status push_ahead(service *s, trm_ps_batch *batch, uint64_t *keys, int64_t count,
                             trm_error *err) {
    for (int64_t n = 0; n < count; n++) {
        TRMI_TRY(add_distinct(s, batch, keys, n, true, err));
        TRMI_TRY(trm_ps_push(batch, NULL, err));
    }
    return trm_ps_flush(s->client, err);
}

/* Measures the rate of rows on a link, in the direction that carries more bytes. */
static trm_status measure_bytes(service *s, trm_error *err) {
    enum { AHEAD = 10, ROUNDS = 9 };
    double rate[2][ROUNDS];
    trm_ps_batch *batches[2] = {s->batch, NULL};
    uint64_t *keys[2] = {trmi_alloc(LOOKUPS * sizeof(uint64_t)),
                         trmi_alloc(LOOKUPS * sizeof(uint64_t))};
    trm_status status = keys[0] == NULL || keys[1] == NULL
                            ? TRMI_NO_MEMORY(err, "for the keys of two batches")
                            : trm_ps_batch_create(s->client, &batches[1], err);
    for (int32_t r = 0; r < ROUNDS && status == TRM_OK; r++) {
        trm_ps_client_stats before, after;
        for (int push = 0; push < 2 && status == TRM_OK; push++) {
            trm_ps_client_get_stats(s->client, &before);
            double at = trmi_os_now();
            status = push ? push_ahead(s, batches[0], keys[0], AHEAD, err)
                          : pull_ahead(s, batches, keys, AHEAD, err);
            double seconds = trmi_os_now() - at;
            trm_ps_client_get_stats(s->client, &after);
            int64_t sent = after.bytes_sent - before.bytes_sent;
            int64_t received = after.bytes_received - before.bytes_received;
            rate[push][r] = (double)(push ? sent : received) / seconds * 1e-9;
        }
    }
    trm_ps_batch_destroy(batches[1]);
    trmi_free(keys[0]);
    trmi_free(keys[1]);
    TRMI_TRY(status);
    bench_say_sorted(&s->say, "wire.pull", "GB/s", rate[0], ROUNDS);
    bench_say_sorted(&s->say, "wire.push", "GB/s", rate[1], ROUNDS);
    return TRM_OK;
}

/* ---- checkpoints ----------------------------------------------------------------------------- */

/* Measures the disk: writes and flushes that many bytes and reads them. */
static trm_status disk_rate(const char *folder, int64_t bytes, double *write_rate,
                            double *read_seconds, trm_error *err) {
    enum { PIECE = 1 << 20 };
    char path[400];
    const int length = snprintf(path, sizeof path, "%s/bench-plain", folder);
    if (length < 0 || (size_t)length >= sizeof path) {
        return TRMI_FAIL(err, TRM_INVALID, "%.60s...: a path of less than %zu letters expected",
                         folder, sizeof path - strlen("/bench-plain"));
    }
    uint8_t *piece = trmi_alloc(PIECE);
    int fd = piece == NULL ? -1 : open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd < 0) {
        trmi_free(piece);
        return TRMI_FAIL_SYS(err, "%s: cannot make the file", path);
    }
    memset(piece, 0x5A, PIECE);
    double at = trmi_os_now();
    trm_status status = TRM_OK;
    for (int64_t done = 0; done < bytes && status == TRM_OK; done += PIECE) {
        status = trmi_os_write_all(NULL, fd, piece, PIECE, path, err);
    }
    if (status == TRM_OK && fsync(fd) != 0) {
        status = TRMI_FAIL_SYS(err, "%s: cannot flush", path);
    }
    *write_rate = (double)bytes / (trmi_os_now() - at);
    at = trmi_os_now();
    for (int64_t done = 0; done < bytes && status == TRM_OK; done += PIECE) {
        status = pread(fd, piece, PIECE, done) > 0 ? TRM_OK
                                                   : TRMI_FAIL_SYS(err, "%s: cannot read", path);
    }
    *read_seconds = trmi_os_now() - at;
    close(fd);
    unlink(path);
    trmi_free(piece);
    return status;
}

/* A client of its own that takes a checkpoint on a thread while the worker trains. */
typedef struct chief {
    service *s;
    trm_ps_client *client;
    trm_ps_checkpoint_result result; /* with status and err: written by the thread before `over` */
    trm_status status;
    trm_error err;
    _Atomic bool over; /* the checkpoint has ended */
} chief;

/* Runs in a thread of its own: a checkpoint, as the chief of a job asks for one while workers
 * train. */
static void *take_checkpoint(void *context) {
    chief *c = context;
    c->status = trm_ps_checkpoint(c->client, false, &c->result, &c->err);
    atomic_store(&c->over, true);
    return NULL;
}

/* Trains `count` batches from number `from` on, or (until not NULL) until *until is set, and at
 * least `count`. *done: batches; *seconds: their time. */
static trm_status run_steps(service *s, int64_t from, int64_t count, _Atomic bool *until,
                            int64_t *done, double *seconds, trm_error *err) {
    double at = trmi_os_now();
    int64_t n = 0;
    while (n < count || (until != NULL && !atomic_load(until))) {
        TRMI_TRY(add_batch(s, from + n, true, true, err));
        TRMI_TRY(trm_ps_pull_start(s->batch, err));
        TRMI_TRY(trm_ps_pull_wait(s->batch, err));
        TRMI_TRY(trm_ps_push(s->batch, NULL, err));
        n++;
    }
    TRMI_TRY(trm_ps_flush(s->client, err));
    *seconds = trmi_os_now() - at;
    *done = n;
    return TRM_OK;
}

/* Measures a checkpoint alone, then one beside training, and a server that starts from it. */
static trm_status measure_checkpoint(service *s, trm_error *err) {
    enum { STEPS = 100, EVERY_SECONDS = 600 };
    chief c = {.s = s};
    /* quiet: seconds of STEPS batches before the checkpoint; busy: of the n batches beside it */
    double quiet, busy, write_rate = 0, read_seconds = 0;
    trm_ps_checkpoint_result alone = {0};
    int64_t n;
    pthread_t thread;
    TRMI_TRY(connect_worker(s, -1, &c.client, err));
    trm_status status = declare_tables(s, c.client, err);
    status = status == TRM_OK ? trm_ps_checkpoint(c.client, false, &alone, err) : status;
    status = status == TRM_OK ? run_steps(s, 0, STEPS, NULL, &n, &quiet, err) : status;
    if (status == TRM_OK && pthread_create(&thread, NULL, take_checkpoint, &c) != 0) {
        status = TRMI_FAIL(err, TRM_NOMEM, "bench ps: no thread");
    }
    if (status == TRM_OK) {
        status = run_steps(s, STEPS, 1, &c.over, &n, &busy, err);
        pthread_join(thread, NULL);
    }
    trm_ps_client_destroy(c.client);
    TRMI_TRY(status);
    if (c.status != TRM_OK) {
        *err = c.err;
        return c.status;
    }
    TRMI_TRY(disk_rate(s->options->folder, c.result.bytes, &write_rate, &read_seconds, err));
    /* lost: seconds that the steps beside the checkpoint took longer than as many quiet ones */
    double rate = (double)alone.bytes / alone.seconds;
    double lost = busy - (double)n * quiet / STEPS;
    bench_say_one(&s->say, "checkpoint.bytes", "GB", (double)c.result.bytes * 1e-9);
    bench_say_one(&s->say, "checkpoint.rate", "GB/s", rate * 1e-9);
    bench_say_one(&s->say, "checkpoint.disk", "GB/s", write_rate * 1e-9);
    bench_say_one(&s->say, "checkpoint.of_disk", "ratio", rate / write_rate);
    bench_say_one(&s->say, "checkpoint.rate_beside_training", "GB/s",
                  (double)c.result.bytes / c.result.seconds * 1e-9);
    bench_say_one(&s->say, "checkpoint.pushes_held", "ms", c.result.hold_seconds * 1e3);
    bench_say_one(&s->say, "checkpoint.training_beside", "ratio", 1 - lost / busy);
    bench_say_one(&s->say, "checkpoint.slows_training_every_600_s", "percent",
                  100 * lost / EVERY_SECONDS);
    /* Stops the server and starts it again from the checkpoint. */
    trm_ps_batch_destroy(s->batch);
    trm_ps_client_destroy(s->client);
    trm_ps_server_stop(s->server);
    s->batch = NULL;
    s->client = NULL;
    s->server = NULL;
    double at = trmi_os_now();
    TRMI_TRY(start_server(s, err));
    double seconds = trmi_os_now() - at;
    bench_say_one(&s->say, "restart", "s", seconds);
    bench_say_one(&s->say, "restart.plain_read", "s", read_seconds);
    bench_say_one(&s->say, "restart.beyond_read", "s", seconds - read_seconds);
    return TRM_OK;
}

/* Allocates the arrays, with gradients and keys. Against a server elsewhere nothing is compared. */
static trm_status take_memory(service *s, trm_error *err) {
    size_t floats = (size_t)LOOKUPS * WIDTH;
    bool compares = s->options->connect == NULL;
    s->keys = trmi_alloc((size_t)BATCHES * LOOKUPS * sizeof *s->keys);
    s->out = trmi_alloc(floats * sizeof *s->out);
    s->gradients = trmi_alloc(floats * sizeof *s->gradients);
    s->plain = compares ? trmi_alloc((size_t)s->rows * FIELDS * WIDTH * sizeof *s->plain) : NULL;
    s->sums = compares ? trmi_alloc((size_t)s->rows * FIELDS * sizeof *s->sums) : NULL;
    if (s->keys == NULL || s->out == NULL || s->gradients == NULL ||
        (compares && (s->plain == NULL || s->sums == NULL))) {
        return TRMI_NO_MEMORY(err, "for %lld rows", (long long)(s->rows * FIELDS));
    }
    for (size_t i = 0; i < floats; i++) {
        s->gradients[i] = 1e-3f * (float)(i % 7) - 3e-3f;
    }
    for (int64_t i = 0; compares && i < s->rows * FIELDS; i++) {
        s->plain[i * WIDTH] = s->sums[i] = 1;
    }
    make_keys(s);
    return TRM_OK;
}

/* Destroys the tables of this process. */
static void drop_keyed(service *s) {
    for (int f = 0; f < FIELDS; f++) {
        trmi_row_table_destroy(s->keyed[f]);
        s->keyed[f] = NULL;
    }
}

/* Contract in ps_bench.h. */
trm_status bench_ps_service(const bench_ps_options *options, int64_t rows, const bench_say *say,
                            trm_error *err) {
    service s = {.options = options, .say = *say};
    trm_status status;
    s.rows = trmi_max_i64(BATCH, rows / FIELDS);
    TRMI_TRY_GOTO(status, take_memory(&s, err), done);
    if (options->connect == NULL) {
        TRMI_TRY_GOTO(status, start_server(&s, err), done);
    }
    TRMI_TRY_GOTO(status, connect_worker(&s, 0, &s.client, err), done);
    TRMI_TRY_GOTO(status, declare_tables(&s, s.client, err), done);
    TRMI_TRY_GOTO(status, trm_ps_batch_create(s.client, &s.batch, err), done);
    TRMI_TRY_GOTO(status, fill_tables(&s, err), done);
    if (s.plain != NULL) {
        TRMI_TRY_GOTO(status, fill_keyed(&s, err), done);
    }
    TRMI_TRY_GOTO(status, measure_service(&s, err), done);
    drop_keyed(&s);
    TRMI_TRY_GOTO(status, measure_bytes(&s, err), done);
    if (options->folder != NULL && options->connect == NULL) {
        TRMI_TRY_GOTO(status, measure_checkpoint(&s, err), done);
    }
    if (options->connect != NULL) {
        status = trm_ps_stop_servers(s.client, err);
    }
done:
    trm_ps_batch_destroy(s.batch);
    trm_ps_client_destroy(s.client);
    trm_ps_server_stop(s.server);
    drop_keyed(&s);
    trmi_free(s.keys);
    trmi_free(s.out);
    trmi_free(s.gradients);
    trmi_free(s.plain);
    trmi_free(s.sums);
    return status;
}
