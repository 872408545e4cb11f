/* SPDX-License-Identifier: Apache-2.0 */
/* Tests of placement: TensorFlow's partitioners, where parts go, and that a checkpoint of placed
 * variables loads at another number of servers. */
#include "servers.h"

#include "base/os.h"
#include "ps/client/client.h"
#include "ps/table/row.h"

#include <unistd.h>

static void partitioners_cut_as_tensorflow_does(void **state) {
    static const struct {
        trm_partition partition;
        trm_ps_variable variable;
        int32_t parts;
    } cases[] = {
        {{TRM_PARTITION_NONE, 7, 0}, {100, 4}, 1},
        {{TRM_PARTITION_FIXED, 5, 0}, {13, 4}, 5},
        {{TRM_PARTITION_FIXED, 5, 0}, {3, 4}, 3},
        {{TRM_PARTITION_MIN_SIZE, 4, 0}, {1024, 1024}, 4},       /* 1 MiB of 256 KiB */
        {{TRM_PARTITION_MIN_SIZE, 4, 0}, {1024, 600}, 2},        /* 600 KiB */
        {{TRM_PARTITION_MIN_SIZE, 0, 0}, {1024, 1024}, 1},       /* max_parts 1 */
        {{TRM_PARTITION_MIN_SIZE, 8, 1 << 20}, {1024, 1000}, 1}, /* below the minimum */
        {{TRM_PARTITION_MAX_SIZE, 0, 1000}, {100, 100}, 10},     /* 10 rows a part */
        {{TRM_PARTITION_MAX_SIZE, 0, 1050}, {100, 100}, 10},     /* a row is not cut */
        {{TRM_PARTITION_MAX_SIZE, 3, 1000}, {100, 100}, 3},      /* max_parts wins */
        {{TRM_PARTITION_MAX_SIZE, 0, 10}, {7, 100}, 7},          /* a row is more than a part */
    };
    trm_error err;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        trm_placement p;
        CHECK_OK(trm_ps_place(&cases[i].variable, 1, &cases[i].partition, TRM_PLACE_ROUND_ROBIN, &p,
                              &err),
                 err);
        assert_int_equal(p.parts, cases[i].parts);
    }
    /* 13 rows on 5 servers: 3, 3, 3, 2, 2, in ranges. */
    trm_placement p;
    CHECK_OK(trm_ps_place(&(trm_ps_variable){13, 4}, 1, &(trm_partition){TRM_PARTITION_FIXED, 5, 0},
                          TRM_PLACE_ROUND_ROBIN, &p, &err),
             err);
    static const int32_t expected[13] = {0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 4, 4};
    for (uint64_t row = 0; row < 13; row++) {
        assert_int_equal((int32_t)trmi_shard_of_row(&p, row, 5, 1), expected[row]);
    }
    trm_placement out;
    CHECK_FAILS(trm_ps_place(&(trm_ps_variable){0, 4}, 1, NULL, TRM_PLACE_BY_SIZE, &out, &err),
                TRM_INVALID, err, "variable 0: 0 rows");
    CHECK_FAILS(trm_ps_place(&(trm_ps_variable){1, 4}, 1,
                             &(trm_partition){TRM_PARTITION_FIXED, -1, 0}, TRM_PLACE_BY_SIZE, &out,
                             &err),
                TRM_INVALID, err, "-1 parts of 0 bytes (0 or more)");
}

enum { VARIABLES = 40 };

static void round_robin_goes_round_and_sizes_are_balanced(void **state) {
    trm_ps_variable v[VARIABLES];
    trm_placement p[VARIABLES];
    trm_error err;
    for (int i = 0; i < VARIABLES; i++) {
        v[i] = (trm_ps_variable){1 + i * i % 97, 64 + 4 * (i % 5)};
    }
    CHECK_OK(trm_ps_place(v, VARIABLES, NULL, TRM_PLACE_ROUND_ROBIN, p, &err), err);
    for (int i = 0; i < VARIABLES; i++) {
        assert_int_equal((int32_t)trmi_shard_of_row(&p[i], 0, 3, 1), i % 3);
        assert_int_equal((int32_t)trmi_shard_of_row(&p[i], (uint64_t)v[i].rows - 1, 3, 1), i % 3);
    }
    /* Parts of 1000 bytes: no server has more than its share and a part at either end. */
    trm_partition parts = {TRM_PARTITION_MAX_SIZE, 0, 1000};
    CHECK_OK(trm_ps_place(v, VARIABLES, &parts, TRM_PLACE_BY_SIZE, p, &err), err);
    for (int32_t servers = 1; servers <= 7; servers++) {
        int64_t bytes[7] = {0}, total = 0;
        for (int i = 0; i < VARIABLES; i++) {
            for (int64_t row = 0; row < v[i].rows; row++) {
                int32_t server = (int32_t)trmi_shard_of_row(&p[i], (uint64_t)row, servers, 1);
                assert_in_range(server, 0, servers - 1);
                bytes[server] += v[i].row_bytes;
                total += v[i].row_bytes;
            }
        }
        for (int32_t s = 0; s < servers; s++) {
            assert_true(bytes[s] <= total / servers + 1000 && bytes[s] >= total / servers - 1000);
        }
    }
}

/* ---- on servers ------------------------------------------------------------------------------ */

enum { DENSE = 4, WIDTH = 8, STEPS = 5, WORKERS = 2 };
static const int64_t dense_rows[DENSE] = {13, 1, 40, 7};
static char folder[64];

static int64_t rows_on(const trm_ps_server *server, int32_t table) {
    int64_t rows = 0;
    for (uint32_t s = 0; s < server->shards; s++) {
        rows += server->runners[s].shard->tables[table]->rows.count;
    }
    return rows;
}

static void start_servers(int servers, trm_ps_server **server) {
    servers_start(server, servers,
                  (trm_ps_server_options){
                      .shards = 2, .folder = folder, .mode = TRM_PS_SYNC, .workers = WORKERS});
}

typedef struct one_worker {
    trm_ps_client *client;
    trm_ps_batch *batch;
    int32_t table[DENSE];
    uint64_t keys[64];
    float rows[DENSE][64 * WIDTH], gradients[DENSE][64 * WIDTH];
} one_worker;

static void join_worker(one_worker *w, int number, int servers, trm_ps_server **server,
                        trm_placement_kind kind) {
    trm_error err;
    trm_ps_variable v[DENSE];
    trm_placement p[DENSE];
    static const char *const names[DENSE] = {"a", "b", "c", "d"};
    trm_partition parts = {TRM_PARTITION_FIXED, 5, 0};
    for (int i = 0; i < DENSE; i++) {
        v[i] = (trm_ps_variable){dense_rows[i], WIDTH * 4};
    }
    CHECK_OK(trm_ps_place(v, DENSE, &parts, kind, p, &err), err);
    trm_ps_client_options o = {
        .local = server, .servers = servers, .worker = number, .ring_bytes = 1 << 20};
    CHECK_OK(trm_ps_client_create(&o, &w->client, &err), err);
    for (int i = 0; i < DENSE; i++) {
        trm_table_options t = {.name = names[i],
                               .width = WIDTH,
                               .learning_rate = 0.1f,
                               .optimizer = {.kind = TRM_MOMENTUM, .momentum = 0.9f},
                               .init = {.kind = TRM_ROW_INIT_UNIFORM, .scale = 1},
                               .placement = p[i]};
        CHECK_OK(trm_ps_client_table(w->client, &t, &w->table[i], &err), err);
    }
    CHECK_OK(trm_ps_batch_create(w->client, &w->batch, &err), err);
    for (uint64_t k = 0; k < 64; k++) {
        w->keys[k] = k;
    }
}

static void add_variables(one_worker *w, bool gradients) {
    trm_error err;
    trm_ps_batch_clear(w->batch);
    for (int i = 0; i < DENSE; i++) {
        CHECK_OK(trm_ps_batch_add(w->batch, w->table[i], w->keys, dense_rows[i], w->rows[i],
                                  gradients ? w->gradients[i] : NULL, &err),
                 err);
    }
}

static void leave_job(one_worker *w) {
    trm_ps_batch_destroy(w->batch);
    trm_ps_client_destroy(w->client);
}

static void placed_variables_train_and_move(void **state) {
    for (int kind = TRM_PLACE_ROUND_ROBIN; kind <= TRM_PLACE_BY_SIZE; kind++) {
        snprintf(folder, sizeof folder, "/tmp/ps-place-XXXXXX");
        assert_non_null(mkdtemp(folder));
        trm_ps_server *server[3];
        static one_worker w[WORKERS], reader;
        static float value[DENSE][64 * WIDTH], moment[DENSE][64 * WIDTH];
        trm_error err;
        start_servers(3, server);
        for (int i = 0; i < WORKERS; i++) {
            join_worker(&w[i], i, 3, server, (trm_placement_kind)kind);
        }
        memset(moment, 0, sizeof moment);
        for (int step = 0; step < STEPS; step++) {
            for (int i = 0; i < WORKERS; i++) {
                add_variables(&w[i], true);
                CHECK_OK(trm_ps_pull_start(w[i].batch, &err), err);
            }
            for (int i = 0; i < WORKERS; i++) {
                CHECK_OK(trm_ps_pull_wait(w[i].batch, &err), err);
                for (int d = 0; d < DENSE; d++) {
                    for (int k = 0; k < dense_rows[d] * WIDTH; k++) {
                        w[i].gradients[d][k] = w[i].rows[d][k] + 0.1f * (float)(i + step + k % 3);
                    }
                }
                CHECK_OK(trm_ps_push(w[i].batch, NULL, &err), err);
            }
            /* One device: the mean of both gradients. */
            for (int d = 0; d < DENSE; d++) {
                for (int k = 0; k < dense_rows[d] * WIDTH; k++) {
                    value[d][k] = step == 0 ? w[0].rows[d][k] : value[d][k];
                    float g = 0.5f * (w[0].gradients[d][k] + w[1].gradients[d][k]);
                    moment[d][k] = 0.9f * moment[d][k] + g;
                    value[d][k] -= 0.1f * moment[d][k];
                }
            }
        }
        for (int i = 0; i < WORKERS; i++) {
            CHECK_OK(trm_ps_flush(w[i].client, &err), err);
        }
        if (kind == TRM_PLACE_ROUND_ROBIN) { /* parts 3 3 3 2 2, 1, 8 8 8 8 8, 2 2 1 1 1 */
            static const int64_t expected[3][DENSE] = {{5, 0, 16, 3}, {5, 0, 16, 1}, {3, 1, 8, 3}};
            for (int s = 0; s < 3; s++) {
                for (int d = 0; d < DENSE; d++) {
                    assert_int_equal(rows_on(server[s], w[0].table[d]), expected[s][d]);
                }
            }
        }
        trm_ps_checkpoint_result result;
        CHECK_OK(trm_ps_checkpoint(w[0].client, false, &result, &err), err);
        for (int i = 0; i < WORKERS; i++) {
            leave_job(&w[i]);
        }
        for (int servers = 3; servers >= 1; servers--) {
            for (int s = 0; s < 3; s++) {
                trm_ps_server_stop(s < (servers == 3 ? 3 : servers + 1) ? server[s] : NULL);
            }
            start_servers(servers, server);
            join_worker(&reader, -1, servers, server, (trm_placement_kind)kind);
            add_variables(&reader, false);
            CHECK_OK(trm_ps_pull_start(reader.batch, &err), err);
            CHECK_OK(trm_ps_pull_wait(reader.batch, &err), err);
            for (int d = 0; d < DENSE; d++) {
                for (int k = 0; k < dense_rows[d] * WIDTH; k++) {
                    CHECK_CLOSE(reader.rows[d][k], value[d][k], 1e-5);
                }
            }
            leave_job(&reader);
        }
        trm_ps_server_stop(server[0]);
        CHECK_OK(trmi_os_remove_tree(NULL, folder, &err), err);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(partitioners_cut_as_tensorflow_does),
        cmocka_unit_test(round_robin_goes_round_and_sizes_are_balanced),
        cmocka_unit_test(placed_variables_train_and_move),
    };
    return cmocka_run_group_tests_name("ps place", tests, NULL, NULL);
}
