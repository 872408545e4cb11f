/* SPDX-License-Identifier: Apache-2.0 */
/* Tests of what a stranger to a running job can ask its servers. */
#include "servers.h"

#include "trireme/ps.h"

#include <string.h>

enum { WIDTH = 4, SERVERS = 2 };

typedef struct job {
    trm_ps_server *server[SERVERS];
} job;

static void job_start(job *j, trm_ps_mode mode, int32_t workers) {
    servers_start(j->server, SERVERS,
                  (trm_ps_server_options){.shards = 2, .mode = mode, .workers = workers});
}

static void job_stop(job *j) {
    for (int32_t s = 0; s < SERVERS; s++) {
        trm_ps_server_stop(j->server[s]);
    }
}

static trm_ps_client *join_worker(job *j, int32_t worker) {
    trm_error err;
    trm_ps_client *client = NULL;
    trm_ps_client_options o = {
        .local = j->server, .servers = SERVERS, .worker = worker, .ring_bytes = 1 << 20};
    CHECK_OK(trm_ps_client_create(&o, &client, &err), err);
    return client;
}

static void push_row(trm_ps_client *client, int32_t table, const uint64_t *keys, int64_t count) {
    trm_error err;
    trm_ps_batch *batch;
    float gradients[16 * WIDTH];
    for (int i = 0; i < 16 * WIDTH; i++) {
        gradients[i] = 1;
    }
    CHECK_OK(trm_ps_batch_create(client, &batch, &err), err);
    CHECK_OK(trm_ps_batch_add(batch, table, keys, count, NULL, gradients, &err), err);
    CHECK_OK(trm_ps_push(batch, NULL, &err), err);
    trm_ps_batch_destroy(batch);
}

static const trm_table_options tables[] = {
    {.name = "first", .width = WIDTH, .learning_rate = 1, .optimizer = {.kind = TRM_SGD}},
    {.name = "second", .width = WIDTH, .optimizer = {.kind = TRM_ADAGRAD}, .seed = 9}};

static void declare_table(trm_ps_client *client, int32_t number[2]) {
    trm_error err;
    for (int t = 0; t < 2; t++) {
        CHECK_OK(trm_ps_client_table(client, &tables[t], &number[t], &err), err);
    }
}

static void a_stranger_learns_tables_rows_and_writers(void **state) {
    job j;
    trm_error err;
    int32_t number[2], count;
    const uint64_t keys[] = {3, 1ull << 60, 77, 1000, 5, 6, 7, 8};
    job_start(&j, TRM_PS_ASYNC, 0);
    trm_ps_client *one = join_worker(&j, 4), *two = join_worker(&j, 7),
                  *stranger = join_worker(&j, -1);
    CHECK_OK(trm_ps_client_adopt(stranger, &count, &err), err);
    assert_int_equal(count, 0);
    declare_table(one, number);
    declare_table(two, number);
    push_row(one, number[1], keys, 8);
    CHECK_OK(trm_ps_flush(one, &err), err);
    push_row(two, number[1], keys, 3);
    CHECK_OK(trm_ps_flush(two, &err), err);
    CHECK_OK(trm_ps_client_adopt(stranger, &count, &err), err);
    assert_int_equal(count, 2);
    int32_t slots;
    const trm_table_options *o = trm_ps_client_table_options(stranger, 1, &slots);
    assert_string_equal(o->name, "second");
    assert_true(o->width == WIDTH && o->optimizer.kind == TRM_ADAGRAD && o->seed == 9);
    assert_int_equal(slots, WIDTH);
    assert_null(trm_ps_client_table_options(stranger, 2, &slots));
    for (int i = 0; i < 8; i++) {
        trm_row_info info;
        trm_ps_writer writers[TRM_PS_WRITERS];
        float values[WIDTH], accumulators[WIDTH];
        int32_t writer_count = -1;
        CHECK_OK(trm_ps_audit_row(stranger, 1, keys[i], &info, values, accumulators, writers,
                                  &writer_count, &err),
                 err);
        assert_int_equal(info.count, i < 3 ? 2 : 1);
        assert_true(accumulators[0] >= (i < 3 ? 2 : 1));
        assert_int_equal(writer_count, 1);
        assert_int_equal(writers[0].worker, i < 3 ? 7 : 4);
        assert_int_equal(writers[0].sequence, 1);
        assert_int_equal(writers[0].tick, info.last_tick);
    }
    assert_int_equal(trm_ps_audit_row(stranger, 1, 4711, NULL, NULL, NULL, NULL, NULL, &err),
                     TRM_END);
    trm_ps_client_destroy(stranger);
    trm_ps_client_destroy(one);
    trm_ps_client_destroy(two);
    job_stop(&j);
}

/* In synchronous mode a sum changes a row: all whose gradients are in it are named. */
static void a_sum_has_several_writers(void **state) {
    job j;
    trm_error err;
    int32_t number[2], count, writer_count;
    const uint64_t key = 12;
    job_start(&j, TRM_PS_SYNC, 2);
    trm_ps_client *one = join_worker(&j, 0), *two = join_worker(&j, 1),
                  *stranger = join_worker(&j, -1);
    declare_table(one, number);
    declare_table(two, number);
    push_row(one, number[0], &key, 1);
    push_row(two, number[0], &key, 1);
    CHECK_OK(trm_ps_flush(one, &err), err);
    CHECK_OK(trm_ps_flush(two, &err), err);
    CHECK_OK(trm_ps_client_adopt(stranger, &count, &err), err);
    trm_row_info info;
    trm_ps_writer writers[TRM_PS_WRITERS];
    CHECK_OK(trm_ps_audit_row(stranger, 0, key, &info, NULL, NULL, writers, &writer_count, &err),
             err);
    assert_int_equal(writer_count, 2);
    assert_int_equal(writers[0].worker + writers[1].worker, 1);
    assert_true(writers[0].worker != writers[1].worker);
    trm_ps_client_destroy(stranger);
    trm_ps_client_destroy(one);
    trm_ps_client_destroy(two);
    job_stop(&j);
}

/* 2048 pushes are remembered. */
static void old_writers_are_forgotten(void **state) {
    enum { PUSHES = 2100 };
    job j;
    trm_error err;
    int32_t number[2], writer_count;
    const uint64_t old = 1, young = 2;
    job_start(&j, TRM_PS_ASYNC, 0);
    trm_ps_client *one = join_worker(&j, 0);
    declare_table(one, number);
    push_row(one, number[0], &old, 1);
    for (int i = 0; i < PUSHES; i++) {
        push_row(one, number[0], &young, 1);
    }
    CHECK_OK(trm_ps_flush(one, &err), err);
    trm_ps_writer writers[TRM_PS_WRITERS];
    CHECK_OK(trm_ps_audit_row(one, 0, old, NULL, NULL, NULL, writers, &writer_count, &err), err);
    assert_int_equal(writer_count, 0);
    CHECK_OK(trm_ps_audit_row(one, 0, young, NULL, NULL, NULL, writers, &writer_count, &err), err);
    assert_int_equal(writer_count, 1);
    assert_int_equal(writers[0].sequence, PUSHES + 1);
    trm_ps_client_destroy(one);
    job_stop(&j);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_stranger_learns_tables_rows_and_writers),
        cmocka_unit_test(a_sum_has_several_writers),
        cmocka_unit_test(old_writers_are_forgotten),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
