/* SPDX-License-Identifier: Apache-2.0 */
/* tests/table_worker.h: a worker of a test's parameter servers, with one table.
 *
 *      test: w.client = ... --> worker_open --> worker_pull, worker_compute, trm_ps_push ... --> worker_leave or worker_die
 *
 * Each gradient depends on all rows of the batch, as a model's does: rows of another step on one
 * server or shard change all later rows. Momentum has slots, so that rows depend on the order of
 * steps, too. */
#ifndef TRIREME_TESTS_TABLE_WORKER_H
#define TRIREME_TESTS_TABLE_WORKER_H

#include "check.h"

#include "base/memory.h"
#include "base/os.h"
#include "ps/client/client.h"
#include "ps/shard/shard_record.h"

#include <unistd.h>

enum { WIDTH = 4, KEYS = 300, BATCH = 80 };

typedef struct table_worker {
    trm_ps_client *client;
    trm_ps_batch *batch;
    int32_t table;
    uint64_t keys[BATCH];
    float rows[BATCH * WIDTH], gradients[BATCH * WIDTH];
} table_worker;

/* Declares the table and makes the batch of the worker, whose client the test has created. */
static inline void worker_open(table_worker *w) {
    const trm_table_options options = {.name = "t",
                                       .width = WIDTH,
                                       .learning_rate = 0.1f,
                                       .optimizer = {.kind = TRM_MOMENTUM, .momentum = 0.9f},
                                       .init = {.kind = TRM_ROW_INIT_UNIFORM, .scale = 1}};
    trm_error err;
    CHECK_OK(trm_ps_client_table(w->client, &options, &w->table, &err), err);
    CHECK_OK(trm_ps_batch_create(w->client, &w->batch, &err), err);
}

/* Says goodbye to the servers. */
static inline void worker_leave(table_worker *w) {
    trm_ps_batch_destroy(w->batch);
    trm_ps_client_destroy(w->client);
}

/* Destroys the client as if the process had died: no server is told. */
static inline void worker_die(table_worker *w) {
    w->client->incarnation = 0;
    worker_leave(w);
}

/* Requests the rows of batch `step` of worker `number`. */
static inline void worker_pull(table_worker *w, int number, int64_t step) {
    trm_error err;
    for (int i = 0; i < BATCH; i++) {
        w->keys[i] = (uint64_t)(step * 37 + number * 11 + i * 3) % KEYS;
    }
    trm_ps_batch_clear(w->batch);
    CHECK_OK(trm_ps_batch_add(w->batch, w->table, w->keys, BATCH, w->rows, w->gradients, &err),
             err);
    CHECK_OK(trm_ps_pull_start(w->batch, &err), err);
}

/* Reads the rows of that batch and computes its gradients. */
static inline void worker_compute(table_worker *w, int number, int64_t step) {
    trm_error err;
    worker_pull(w, number, step);
    CHECK_OK(trm_ps_pull_wait(w->batch, &err), err);
    float mean = 0;
    for (int i = 0; i < BATCH * WIDTH; i++) {
        mean += w->rows[i] / (BATCH * WIDTH);
    }
    for (int i = 0; i < BATCH * WIDTH; i++) {
        w->gradients[i] = 0.3f * (w->rows[i] - mean) + 0.01f * (float)(i % 7 - 3);
    }
}

/* Reads all rows, outside of training. */
static inline void worker_read_all(table_worker *w, float rows[KEYS * WIDTH]) {
    uint64_t keys[KEYS];
    trm_error err;
    for (uint64_t k = 0; k < KEYS; k++) {
        keys[k] = k;
    }
    trm_ps_batch_clear(w->batch);
    CHECK_OK(trm_ps_batch_add(w->batch, w->table, keys, KEYS, rows, NULL, &err), err);
    CHECK_OK(trm_ps_read(w->batch, &err), err);
}

/* A shard of a job, to find its files. */
typedef struct job_shard {
    int server, servers, shard, shards;
} job_shard;

/* Cuts the last push off a shard's log, as if the process had died before it was written. */
static inline void lose_last_push(const char *folder, job_shard of) {
    char path[400];
    uint8_t *data;
    size_t bytes, last = 0;
    trm_error err;
    snprintf(path, sizeof path, "%s/log/server-%d-of-%d-shard-%d-of-%d-snapshot-000000.log", folder,
             of.server, of.servers, of.shard, of.shards);
    CHECK_OK(trmi_os_read_file(path, 64 << 20, &data, &bytes, &err), err);
    for (size_t at = 0; at + sizeof(trmi_record_head) <= bytes;) {
        trmi_record_head head;
        memcpy(&head, data + at, sizeof head);
        last = head.kind == TRMI_RECORD_PUSH ? at : last;
        at += sizeof head + head.body_bytes;
    }
    trmi_free(data);
    assert_true(last > 0);
    assert_int_equal(truncate(path, (off_t)last), 0);
}

#endif
