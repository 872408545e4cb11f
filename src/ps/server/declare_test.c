/* SPDX-License-Identifier: Apache-2.0 */
/* Tables that are declared while a shard still has a push to finish: the server answers others
 * meanwhile, and two declarations of one table give one number. A table that two workers declare
 * differently is refused, with the name of the option. */
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

/* ---- options --------------------------------------------------------------------------------- */

static const trm_table_options usual = {
    .name = "rows",
    .width = WIDTH,
    .seed = 7,
    .learning_rate = 0.1,
    .optimizer = {.kind = TRM_LAZY_ADAM, .beta1 = 0.8},
    .init = {.kind = TRM_ROW_INIT_UNIFORM, .scale = 0.5f},
    .admission = {.kind = TRM_ADMIT_COUNT},
    .expiry = {.max_rows = 1000},
    .placement = {.kind = TRM_PLACE_ROUND_ROBIN, .parts = 2, .rows = 100}};

/* Declares the table with one option changed, and expects that the server names it. */
#define CHECK_REFUSED(option, value, says)                                                         \
    do {                                                                                           \
        trm_table_options changed_ = usual;                                                        \
        changed_.option = (value);                                                                 \
        CHECK_FAILS(trm_ps_client_table(client[1], &changed_, &table, &err), TRM_INVALID, err,     \
                    "'rows': " says);                                                              \
    } while (0)

static void an_option_that_differs_is_named(void **state) {
    trm_error err;
    int32_t table;
    (void)state;
    server = server_start((trm_ps_server_options){.shards = SHARDS, .workers = 2});
    for (int n = 0; n < 2; n++) {
        const trm_ps_client_options o = {
            .local = &server, .servers = 1, .worker = n, .ring_bytes = 1 << 18};
        CHECK_OK(trm_ps_client_create(&o, &client[n], &err), err);
    }
    CHECK_OK(trm_ps_client_table(client[0], &usual, &table, &err), err);
    CHECK_REFUSED(width, 3, "width 3 declared; server 0 has it with 2");
    CHECK_REFUSED(dtype, TRM_BFLOAT16, "dtype bfloat16 declared; server 0 has it with float32");
    CHECK_REFUSED(optimizer.kind, TRM_ADAM, "optimizer adam declared; server 0 has it with lazy_");
    CHECK_REFUSED(learning_rate, 0.2, "learning_rate 0.2 declared; server 0 has it with 0.1:");
    CHECK_REFUSED(learning_rate, 0.1000001, "learning_rate 0.10000009");
    CHECK_REFUSED(optimizer.momentum, 0.5, "optimizer.momentum 0.5 declared; server 0 has it with");
    CHECK_REFUSED(optimizer.beta1, 0.9, "optimizer.beta1 0.9");
    CHECK_REFUSED(optimizer.beta2, 0.9, "optimizer.beta2 0.9");
    CHECK_REFUSED(optimizer.epsilon, 1e-6, "optimizer.epsilon 1e-06");
    CHECK_REFUSED(optimizer.weight_decay, 0.01, "optimizer.weight_decay 0.01");
    CHECK_REFUSED(optimizer.decoupled, true, "optimizer.decoupled on");
    CHECK_REFUSED(optimizer.initial_accumulator, 0.1, "optimizer.initial_accumulator 0.1");
    CHECK_REFUSED(optimizer.l1, 0.1, "optimizer.l1 0.1");
    CHECK_REFUSED(optimizer.l2, 0.1, "optimizer.l2 0.1");
    CHECK_REFUSED(optimizer.beta, 1, "optimizer.beta 1");
    CHECK_REFUSED(seed, 8, "seed 8");
    CHECK_REFUSED(round_to_nearest, true, "round_to_nearest on declared; server 0 has it with off");
    CHECK_REFUSED(init.kind, TRM_ROW_INIT_NORMAL, "init normal declared; server 0 has it with uni");
    CHECK_REFUSED(init.value, 1, "init.value 1");
    CHECK_REFUSED(init.scale, 1, "init.scale 1");
    CHECK_REFUSED(init.stream, 1, "init.stream 1");
    CHECK_REFUSED(admission.kind, TRM_ADMIT_BLOOM,
                  "admission bloom declared; server 0 has it with");
    CHECK_REFUSED(admission.min_count, 3, "admission.min_count 3 declared; server 0 has it with 2");
    CHECK_REFUSED(admission.capacity, 500, "admission.capacity 500");
    CHECK_REFUSED(admission.probability, 0.5, "admission.probability 0.5");
    CHECK_REFUSED(expiry.after_seconds, 60, "expiry.after_seconds 60");
    CHECK_REFUSED(expiry.after_ticks, 60, "expiry.after_ticks 60");
    CHECK_REFUSED(expiry.min_score, 2, "expiry.min_score 2");
    CHECK_REFUSED(expiry.score_decay, 0.5f,
                  "expiry.score_decay 0.5 declared; server 0 has it with 1");
    CHECK_REFUSED(expiry.max_rows, 0, "expiry.max_rows 0");
    CHECK_REFUSED(expiry.cap, TRM_CAP_LFU, "expiry.cap lfu declared; server 0 has it with lru");
    CHECK_REFUSED(expiry.min_norm, 0.5f, "expiry.min_norm 0.5");
    CHECK_REFUSED(placement.kind, TRM_PLACE_BY_HASH, "placement by_hash declared; server 0 has it");
    CHECK_REFUSED(placement.parts, 1, "placement.parts 1");
    CHECK_REFUSED(placement.first, 1, "placement.first 1");
    CHECK_REFUSED(placement.rows, 90, "placement.rows 90");
    /* defaults are equal to what they stand for */
    trm_table_options same = usual;
    same.dtype = TRM_FLOAT32;
    same.optimizer.beta2 = 0.999;
    same.admission.min_count = 2;
    same.admission.capacity = 1 << 20;
    same.expiry.score_decay = 1;
    CHECK_OK(trm_ps_client_table(client[1], &same, &table, &err), err);
    assert_int_equal(table, 0);
    for (int n = 0; n < 2; n++) {
        trm_ps_client_destroy(client[n]);
    }
    trm_ps_server_stop(server);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_table_waits_for_a_push_without_the_front),
                                       cmocka_unit_test(an_option_that_differs_is_named)};
    return cmocka_run_group_tests_name("ps declaration of tables", tests, NULL, NULL);
}
