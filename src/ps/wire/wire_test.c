/* SPDX-License-Identifier: Apache-2.0 */
/* Tests of what goes over a 16-bit wire: gradients arrive right on average, and again the same. */
#include "servers.h"

#include "trireme/ps.h"

#include <math.h>
#include <string.h>

enum { KEYS = 50, WIDTH = 16, PUSHES = 200 };

/* Pushes one gradient so often to rows of float32; `rows` are what has become of them. */
static void push_often(trm_dtype wire, bool to_nearest, float gradient, float rows[KEYS][WIDTH]) {
    trm_error err;
    trm_ps_server *server = server_start((trm_ps_server_options){.shards = 2});
    trm_ps_client *client;
    trm_ps_batch *batch;
    int32_t table;
    trm_ps_client_options co = {
        .local = &server, .servers = 1, .wire = wire, .ring_bytes = 1 << 20};
    CHECK_OK(trm_ps_client_create(&co, &client, &err), err);
    trm_table_options o = {.name = "t",
                           .width = WIDTH,
                           .seed = 5,
                           .round_to_nearest = to_nearest,
                           .learning_rate = 1,
                           .optimizer = {.kind = TRM_SGD}};
    CHECK_OK(trm_ps_client_table(client, &o, &table, &err), err);
    CHECK_OK(trm_ps_batch_create(client, &batch, &err), err);
    uint64_t keys[KEYS];
    float gradients[KEYS * WIDTH];
    for (uint64_t i = 0; i < KEYS; i++) {
        keys[i] = i * 7919;
    }
    for (int i = 0; i < KEYS * WIDTH; i++) {
        gradients[i] = -gradient;
    }
    for (int n = 0; n < PUSHES; n++) {
        trm_ps_batch_clear(batch);
        CHECK_OK(trm_ps_batch_add(batch, table, keys, KEYS, NULL, gradients, &err), err);
        CHECK_OK(trm_ps_push(batch, NULL, &err), err);
    }
    CHECK_OK(trm_ps_flush(client, &err), err);
    for (int i = 0; i < KEYS; i++) {
        CHECK_OK(trm_ps_row(client, table, keys[i], NULL, rows[i], NULL, &err), err);
    }
    trm_ps_batch_destroy(batch);
    trm_ps_client_destroy(client);
    trm_ps_server_stop(server);
}

static double mean_of(float rows[KEYS][WIDTH]) {
    double sum = 0;
    for (int i = 0; i < KEYS; i++) {
        for (int j = 0; j < WIDTH; j++) {
            sum += (double)rows[i][j];
        }
    }
    return sum / (KEYS * WIDTH) / PUSHES;
}

/* `step` is the distance of neighbours at 1: the gradient lies an eighth of it above 1. */
static void check_wire(trm_dtype wire, double step) {
    static float rows[KEYS][WIDTH], again[KEYS][WIDTH];
    double gradient = 1 + step / 8;
    push_often(wire, true, (float)gradient, rows);
    assert_true(mean_of(rows) == 1); /* to nearest: never any of the eighth */
    push_often(wire, false, (float)gradient, rows);
    /* One sum of 160,000 roundings: five standard deviations. */
    double deviation = step * sqrt(1.0 / 8 * 7 / 8 / (KEYS * WIDTH * PUSHES));
    assert_true(fabs(mean_of(rows) - gradient) < 5 * deviation);
    assert_true(rows[0][0] != rows[0][1] || rows[0][1] != rows[1][0]);
    push_often(wire, false, (float)gradient, again);
    assert_memory_equal(rows, again, sizeof rows);
}

static void gradients_are_right_on_average_and_again_the_same(void **state) {
    check_wire(TRM_BFLOAT16, 0x1p-7);
    check_wire(TRM_FLOAT16, 0x1p-10);
}

/* A batch that was pulled ahead lies in the ring until it is wanted; a table that is read
 * meanwhile, for a checkpoint, is larger than the ring. */
static void tables_are_read_while_a_batch_waits(void **state) {
    enum { ROWS = 100, CHUNKS = 60 };
    trm_error err;
    trm_ps_server *server = server_start((trm_ps_server_options){.shards = 1});
    trm_ps_client *client;
    trm_ps_batch *ahead, *reader;
    int32_t table;
    trm_ps_client_options co = {.local = &server, .servers = 1, .ring_bytes = 1 << 15};
    CHECK_OK(trm_ps_client_create(&co, &client, &err), err);
    trm_table_options o = {
        .name = "t", .width = WIDTH, .init = {.kind = TRM_ROW_INIT_UNIFORM, .scale = 1}, .seed = 3};
    CHECK_OK(trm_ps_client_table(client, &o, &table, &err), err);
    CHECK_OK(trm_ps_batch_create(client, &ahead, &err), err);
    CHECK_OK(trm_ps_batch_create(client, &reader, &err), err);
    static uint64_t keys[ROWS];
    static float rows[ROWS * WIDTH], read[ROWS * WIDTH];
    for (uint64_t i = 0; i < ROWS; i++) {
        keys[i] = i;
    }
    CHECK_OK(trm_ps_batch_add(ahead, table, keys, ROWS, rows, NULL, &err), err);
    CHECK_OK(trm_ps_pull_start(ahead, &err), err);
    for (int chunk = CHUNKS; chunk-- > 0;) {
        for (uint64_t i = 0; i < ROWS; i++) {
            keys[i] = (uint64_t)chunk * ROWS + i;
        }
        trm_ps_batch_clear(reader);
        CHECK_OK(trm_ps_batch_add(reader, table, keys, ROWS, read, NULL, &err), err);
        CHECK_OK(trm_ps_read(reader, &err), err);
    }
    CHECK_OK(trm_ps_pull_wait(ahead, &err), err);
    assert_memory_equal(rows, read, sizeof rows); /* both of keys 0 .. ROWS - 1 */
    trm_ps_batch_destroy(ahead);
    trm_ps_batch_destroy(reader);
    trm_ps_client_destroy(client);
    trm_ps_server_stop(server);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gradients_are_right_on_average_and_again_the_same),
        cmocka_unit_test(tables_are_read_while_a_batch_waits)};
    return cmocka_run_group_tests_name("ps wire", tests, NULL, NULL);
}
