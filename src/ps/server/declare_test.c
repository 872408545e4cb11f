/* SPDX-License-Identifier: Apache-2.0 */
/* Tables that are declared while a shard still has a push to finish: the server answers others
 * meanwhile, and two declarations of one table give one number. */
#include "servers.h"

#include "base/error.h"
#include "ps/server/server.h"

#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

enum { SHARDS = 2, CLIENTS = 3, WIDTH = 2, KEYS = 20 };

static trm_ps_server *server;
static trm_ps_client *client[CLIENTS];

/* ---- a shard that stands still --------------------------------------------------------------- */

/* A request of one shard: no answer, and the test waits for its end. */
typedef struct probe {
    trmi_request request;
    _Atomic bool goes_on, done;
    _Atomic uint32_t tables; /* of the shard */
} probe;

static void look_at_table(trmi_shard_thread *runner, trmi_request *r) {
    probe *p = (probe *)(void *)r;
    while (!atomic_load(&p->goes_on)) {
        usleep(1000);
    }
    atomic_store(&p->tables, runner->shard->table_count);
    atomic_store(&p->done, true);
}

static void start_probe(probe *p, int shard, bool goes_on) {
    *p = (probe){.goes_on = goes_on};
    p->request.run = look_at_table;
    atomic_store(&p->request.pending, 2); /* no shard finishes it */
    assert_int_equal(trmi_queue_append(server->runners[shard].queue, &p->request), TRM_OK);
}

static void end_probe(probe *p) {
    atomic_store(&p->goes_on, true);
    while (!atomic_load(&p->done)) {
        usleep(1000);
    }
}

static void wait_for_table(int shard, uint32_t tables) {
    static probe p;
    do {
        start_probe(&p, shard, true);
        end_probe(&p);
    } while (atomic_load(&p.tables) < tables);
}

/* ---- clients --------------------------------------------------------------------------------- */

static int32_t declare_table(int number, const char *name) {
    const trm_table_options options = {
        .name = name, .width = WIDTH, .learning_rate = 1, .optimizer = {.kind = TRM_SGD}};
    int32_t table;
    trm_error err;
    CHECK_OK(trm_ps_client_table(client[number], &options, &table, &err), err);
    return table;
}

static void *declare_second(void *context) {
    const int number = (int)(intptr_t)context;
    return (void *)(intptr_t)declare_table(number, "second");
}

static void wait_for_push(void) {
    for (bool here = false; !here; usleep(1000)) {
        pthread_mutex_lock(&server->mutex);
        const trmi_worker *w = trmi_front_find(server, 0);
        here = w != NULL && w->dispatched == 1;
        pthread_mutex_unlock(&server->mutex);
    }
}

static void a_table_waits_for_a_push_without_the_front(void **state) {
    trm_error err;
    trm_ps_batch *batch;
    pthread_t thread[2];
    static probe still;
    uint64_t keys[KEYS];
    float gradients[KEYS * WIDTH] = {0};
    trm_ps_worker workers[CLIENTS];
    int32_t count;
    (void)state;
    server = server_start((trm_ps_server_options){.shards = SHARDS, .workers = 1});
    for (int n = 0; n < CLIENTS; n++) {
        const trm_ps_client_options o = {
            .local = &server, .servers = 1, .worker = n, .ring_bytes = 1 << 18};
        CHECK_OK(trm_ps_client_create(&o, &client[n], &err), err);
        assert_int_equal(declare_table(n, "first"), 0);
    }
    CHECK_OK(trm_ps_batch_create(client[0], &batch, &err), err);
    for (uint64_t k = 0; k < KEYS; k++) {
        keys[k] = k;
    }
    /* shard 0 stands still before the push, shard 1 shows when the table is queued behind it */
    start_probe(&still, 0, false);
    CHECK_OK(trm_ps_batch_add(batch, 0, keys, KEYS, NULL, gradients, &err), err);
    CHECK_OK(trm_ps_push(batch, NULL, &err), err);
    wait_for_push();
    for (int i = 0; i < 2; i++) {
        assert_int_equal(
            pthread_create(&thread[i], NULL, declare_second, (void *)(intptr_t)(1 + i)), 0);
    }
    wait_for_table(1, 2);
    /* the front answers: it is not held by the declaration */
    CHECK_OK(trm_ps_workers(client[0], workers, CLIENTS, &count, &err), err);
    assert_int_equal(count, 1);
    end_probe(&still);
    for (int i = 0; i < 2; i++) {
        void *table;
        pthread_join(thread[i], &table);
        assert_int_equal((int)(intptr_t)table, 1);
    }
    CHECK_OK(trm_ps_flush(client[0], &err), err);
    wait_for_table(0, 2);
    trm_ps_batch_destroy(batch);
    for (int n = 0; n < CLIENTS; n++) {
        trm_ps_client_destroy(client[n]);
    }
    trm_ps_server_stop(server);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_table_waits_for_a_push_without_the_front)};
    return cmocka_run_group_tests_name("ps declaration of tables", tests, NULL, NULL);
}
