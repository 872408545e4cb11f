/* SPDX-License-Identifier: Apache-2.0 */
/* Tests a client that does not read its answers. No other client waits for it; it gets the answers
 * when it reads; after a long time the server closes its connection, and the client loses nothing
 * by that. */
#include "servers.h"

#include "base/error.h"
#include "ps/client/client.h"

#include <poll.h>

/* 4 MB a batch: more than sockets and rings hold */
enum { WIDTH = 256, KEYS = 4096, BATCHES = 8, TURNS = 20 };

typedef struct worker {
    trm_ps_client *client;
    trm_ps_batch *batch[BATCHES];
    int32_t table;
    float *rows;
    uint64_t keys[KEYS];
} worker;

static trm_ps_server *start_server(double worker_timeout) {
    return server_start((trm_ps_server_options){.shards = 1,
                                                .listen = "127.0.0.1:0",
                                                .workers = 2,
                                                .worker_timeout_seconds = worker_timeout});
}

static void join_worker(worker *w, const trm_ps_server *server, int number, bool tcp) {
    const char *address = trm_ps_server_address(server);
    const trm_ps_client_options o = {.addresses = &address,
                                     .servers = 1,
                                     .worker = number,
                                     .tcp_only = tcp,
                                     .ring_bytes = 16 << 20,
                                     .timeout_seconds = 60,
                                     .retry_seconds = 60};
    const trm_table_options table = {.name = "t",
                                     .width = WIDTH,
                                     .learning_rate = 1,
                                     .optimizer = {.kind = TRM_SGD},
                                     .init = {.kind = TRM_ROW_INIT_CONSTANT, .value = 3}};
    trm_error err;
    *w = (worker){.rows = calloc((size_t)BATCHES * KEYS * WIDTH, sizeof(float))};
    CHECK_OK(trm_ps_client_create(&o, &w->client, &err), err);
    CHECK_OK(trm_ps_client_table(w->client, &table, &w->table, &err), err);
    for (int i = 0; i < KEYS; i++) {
        w->keys[i] = (uint64_t)(i + 1000000 * number);
    }
}

/* Requests `batches` batches and reads no answer. */
static void ask_batches(worker *w, int batches) {
    trm_error err;
    for (int b = 0; b < batches; b++) {
        CHECK_OK(trm_ps_batch_create(w->client, &w->batch[b], &err), err);
        CHECK_OK(trm_ps_batch_add(w->batch[b], w->table, w->keys, KEYS,
                                  w->rows + (size_t)b * KEYS * WIDTH, NULL, &err),
                 err);
        CHECK_OK(trm_ps_pull_start(w->batch[b], &err), err);
    }
}

static void read_all(worker *w, int batches) {
    trm_error err;
    for (int b = 0; b < batches; b++) {
        CHECK_OK(trm_ps_pull_wait(w->batch[b], &err), err);
        for (int i = 0; i < KEYS * WIDTH; i += 4099) {
            CHECK_CLOSE(w->rows[(size_t)b * KEYS * WIDTH + (size_t)i], 3, 0);
        }
    }
}

static int64_t leave_job(worker *w) {
    trm_ps_client_stats stats;
    trm_ps_client_get_stats(w->client, &stats);
    for (int b = 0; b < BATCHES; b++) {
        trm_ps_batch_destroy(w->batch[b]);
    }
    trm_ps_client_destroy(w->client);
    free(w->rows);
    return stats.reconnects;
}

static void run_worker(worker *w) {
    trm_error err;
    float row[WIDTH], gradient[WIDTH];
    trm_ps_batch *batch;
    for (int i = 0; i < WIDTH; i++) {
        gradient[i] = 1;
    }
    CHECK_OK(trm_ps_batch_create(w->client, &batch, &err), err);
    for (int n = 0; n < TURNS; n++) {
        trm_ps_batch_clear(batch);
        CHECK_OK(trm_ps_batch_add(batch, w->table, w->keys, 1, row, gradient, &err), err);
        CHECK_OK(trm_ps_pull_start(batch, &err), err);
        CHECK_OK(trm_ps_pull_wait(batch, &err), err);
        CHECK_CLOSE(row[WIDTH - 1], 3 - n, 0);
        CHECK_OK(trm_ps_push(batch, NULL, &err), err);
    }
    CHECK_OK(trm_ps_flush(w->client, &err), err);
    trm_ps_batch_destroy(batch);
}

/* If the server let the quick client wait for the slow one, it would have closed the slow
 * connection before the quick client got its answers. */
static void nobody_waits(bool tcp) {
    trm_ps_server *server = start_server(3600);
    worker slow, quick;
    join_worker(&slow, server, 0, tcp);
    join_worker(&quick, server, 1, tcp);
    ask_batches(&slow, BATCHES);
    run_worker(&quick);
    assert_int_equal(leave_job(&quick), 0);
    read_all(&slow, BATCHES);
    assert_int_equal(leave_job(&slow), 0);
    trm_ps_server_stop(server);
}

static void nobody_waits_for_a_slow_client(void **state) {
    nobody_waits(true);
    nobody_waits(false);
}

/* After a time that no load explains the connection has ended. */
static void until_cut_off(trm_ps_server *server) {
    for (int i = 0, open = 1; open > 0 && i < 600; i++) {
        poll(NULL, 0, 100);
        open = 0;
        pthread_mutex_lock(&server->mutex);
        for (const trmi_ps_link *l = server->links; l != NULL; l = l->next) {
            open += !atomic_load(&l->ended);
        }
        pthread_mutex_unlock(&server->mutex);
    }
}

static void who_never_reads_is_cut_off(void **state) {
    for (int tcp = 0; tcp < 2; tcp++) {
        trm_ps_server *server = start_server(0.2);
        worker slow;
        join_worker(&slow, server, 0, tcp);
        ask_batches(&slow, BATCHES);
        until_cut_off(server);
        read_all(&slow, BATCHES);
        assert_true(leave_job(&slow) >= 1);
        trm_ps_server_stop(server);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nobody_waits_for_a_slow_client),
        cmocka_unit_test(who_never_reads_is_cut_off),
    };
    return cmocka_run_group_tests_name("ps slow", tests, NULL, NULL);
}
