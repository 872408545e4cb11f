/* SPDX-License-Identifier: Apache-2.0 */
/* Tests of pulls in parts, and beside a cache of hot rows. */
#include "servers.h"
#include "wrapped_channel.h"

#include "base/error.h"
#include "base/rng.h"
#include "ps/client/client.h"

#include <stdlib.h>

enum { SERVERS = 2, TABLES = 6, COUNT = 4000, SLICES = 9, KEYS = 3000, WIDTH_MAX = 24 };
static const int32_t widths[TABLES] = {16, 1, 8, 24, 16, 3};

typedef struct job {
    trm_ps_server *server[SERVERS];
    trm_ps_client *client;
    trm_ps_batch *batch;
    int32_t table[TABLES];
} job;

static uint64_t keys[SLICES][COUNT];
static float rows[SLICES][COUNT * WIDTH_MAX], alone[COUNT * WIDTH_MAX];

static int table_of(int slice) { return slice % TABLES; } /* the first ones have two slices */

static void start_servers(job *j, trm_ps_client_options o,
                          trmi_channel *(*wrap)(void *context, trmi_channel *channel),
                          void *context) {
    trm_error err;
    servers_start(j->server, SERVERS, (trm_ps_server_options){.shards = 2});
    o.local = j->server;
    o.servers = SERVERS;
    o.ring_bytes = 1 << 18;
    CHECK_OK(trmi_client_create_wrapped(&o, wrap, context, &j->client, &err), err);
    for (int t = 0; t < TABLES; t++) {
        char name[16];
        snprintf(name, sizeof name, "table-%d", t);
        trm_table_options to = {
            .name = name, .width = widths[t], .init = {.kind = TRM_ROW_INIT_UNIFORM, .scale = 1}};
        CHECK_OK(trm_ps_client_table(j->client, &to, &j->table[t], &err), err);
    }
    CHECK_OK(trm_ps_batch_create(j->client, &j->batch, &err), err);
}

static void stop_servers(job *j) {
    trm_ps_batch_destroy(j->batch);
    trm_ps_client_destroy(j->client);
    for (int s = 0; s < SERVERS; s++) {
        trm_ps_server_stop(j->server[s]);
    }
}

static void pull_all(job *j, uint64_t seed) {
    trm_error err;
    trm_ps_batch_clear(j->batch);
    for (int s = 0; s < SLICES; s++) {
        for (int i = 0; i < COUNT; i++) {
            keys[s][i] = trmi_mix(seed, (uint64_t)(s * COUNT + i)) % KEYS;
        }
        CHECK_OK(
            trm_ps_batch_add(j->batch, j->table[table_of(s)], keys[s], COUNT, rows[s], NULL, &err),
            err);
    }
    memset(rows, 0xFF, sizeof rows);
    CHECK_OK(trm_ps_pull_start(j->batch, &err), err);
    CHECK_OK(trm_ps_pull_wait(j->batch, &err), err);
}

/* The same, a slice at a time: too few look-ups to be cut. */
static void check_rows(job *j) {
    trm_error err;
    for (int s = 0; s < SLICES; s++) {
        trm_ps_batch_clear(j->batch);
        CHECK_OK(
            trm_ps_batch_add(j->batch, j->table[table_of(s)], keys[s], COUNT, alone, NULL, &err),
            err);
        CHECK_OK(trm_ps_read(j->batch, &err), err);
        assert_int_equal(j->batch->part_count, 1);
        assert_memory_equal(alone, rows[s],
                            (size_t)COUNT * (size_t)widths[table_of(s)] * sizeof(float));
    }
}

/* The answers together are ten times the ring: a part waits until there is room for its own. */
static void parts_give_the_rows_of_the_whole(void **state) {
    static const trm_dtype wires[] = {TRM_FLOAT32, TRM_BFLOAT16};
    for (int w = 0; w < 2; w++) {
        job j;
        start_servers(&j, (trm_ps_client_options){.wire = wires[w]}, NULL, NULL);
        for (uint64_t seed = 1; seed <= 3; seed++) {
            pull_all(&j, seed);
            assert_true(j.batch->part_count > 2);
            assert_int_equal(j.batch->asked, j.batch->part_count);
            check_rows(&j);
        }
        trm_ps_client_stats stats;
        trm_ps_client_get_stats(j.client, &stats);
        assert_int_equal(stats.lookups, 3 * 2 * SLICES * COUNT);
        stop_servers(&j);
    }
}

/* Workers that keep step read what is of one moment. */
static void synchronous_workers_pull_at_once(void **state) {
    trm_error err;
    job j = {0};
    servers_start(j.server, 1,
                  (trm_ps_server_options){.shards = 1, .mode = TRM_PS_SYNC, .workers = 1});
    trm_ps_client_options co = {.local = j.server, .servers = 1, .ring_bytes = 1 << 22};
    CHECK_OK(trm_ps_client_create(&co, &j.client, &err), err);
    trm_table_options to = {.name = "t", .width = 1};
    CHECK_OK(trm_ps_client_table(j.client, &to, &j.table[0], &err), err);
    CHECK_OK(trm_ps_batch_create(j.client, &j.batch, &err), err);
    for (int s = 0; s < SLICES; s++) {
        CHECK_OK(trm_ps_batch_add(j.batch, j.table[0], keys[s], COUNT, rows[s], NULL, &err), err);
    }
    CHECK_OK(trm_ps_pull_start(j.batch, &err), err);
    CHECK_OK(trm_ps_pull_wait(j.batch, &err), err);
    assert_int_equal(j.batch->part_count, 1);
    trm_ps_batch_destroy(j.batch);
    trm_ps_client_destroy(j.client);
    trm_ps_server_stop(j.server[0]);
}

/* ---- one shard and several ------------------------------------------------------------------- */

/* Two pushes of SLICES slices, in which keys come several times and what is wanted differs; then
 * the rows of these keys and of others. */
static void learn_rows(int32_t servers, int32_t shards, trm_dtype wire,
                       float (*out)[COUNT * WIDTH_MAX]) {
    enum { SOME = 500, PUSHES = 2 };
    static const trm_dtype dtypes[] = {TRM_FLOAT32, TRM_BFLOAT16, TRM_FLOAT16};
    static float gradients[SOME * WIDTH_MAX];
    trm_error err;
    job j = {0};
    int32_t table[TABLES];
    for (int i = 0; i < SOME * WIDTH_MAX; i++) {
        gradients[i] = 0.01f * (float)(i % 23 - 11);
    }
    servers_start(j.server, servers, (trm_ps_server_options){.shards = shards});
    trm_ps_client_options co = {
        .local = j.server, .servers = servers, .ring_bytes = 1 << 20, .wire = wire};
    CHECK_OK(trm_ps_client_create(&co, &j.client, &err), err);
    for (int t = 0; t < TABLES; t++) {
        char name[16];
        snprintf(name, sizeof name, "table-%d", t);
        trm_table_options to = {.name = name,
                                .width = widths[t],
                                .dtype = dtypes[t % 3],
                                .init = {.kind = TRM_ROW_INIT_UNIFORM, .scale = 1}};
        CHECK_OK(trm_ps_client_table(j.client, &to, &table[t], &err), err);
    }
    CHECK_OK(trm_ps_batch_create(j.client, &j.batch, &err), err);
    for (uint64_t push = 0; push <= PUSHES; push++) {
        trm_ps_batch_clear(j.batch);
        for (int s = 0; s < SLICES; s++) {
            bool pulls = push == PUSHES || s % 4 != 1, pushes = push < PUSHES && s % 5 != 2;
            for (int i = 0; i < SOME; i++) {
                keys[s][i] = trmi_mix(push, (uint64_t)(s * SOME + i)) % 400;
            }
            CHECK_OK(trm_ps_batch_add(j.batch, table[table_of(s)], keys[s], SOME,
                                      pulls ? out[s] : NULL, pushes ? gradients : NULL, &err),
                     err);
        }
        CHECK_OK(trm_ps_pull_start(j.batch, &err), err);
        CHECK_OK(trm_ps_pull_wait(j.batch, &err), err);
        CHECK_OK(push < PUSHES ? trm_ps_push(j.batch, NULL, &err) : TRM_OK, err);
        CHECK_OK(trm_ps_flush(j.client, &err), err);
    }
    trm_ps_batch_destroy(j.batch);
    trm_ps_client_destroy(j.client);
    for (int s = 0; s < servers; s++) {
        trm_ps_server_stop(j.server[s]);
    }
}

static void one_shard_gives_the_rows_of_several(void **state) {
    static const trm_dtype wires[] = {TRM_FLOAT32, TRM_BFLOAT16, TRM_FLOAT16};
    static float several[SLICES][COUNT * WIDTH_MAX];
    for (int w = 0; w < 3; w++) {
        memset(rows, 0, sizeof rows);
        learn_rows(1, 1, wires[w], rows);
        for (int split = 0; split < 2; split++) {
            memset(several, 0, sizeof several);
            learn_rows(SERVERS, 1 + 2 * split, wires[w], several);
            assert_memory_equal(several, rows, sizeof rows);
        }
    }
}

/* ---- connections that break ------------------------------------------------------------------ */

/* The peer seems gone after so many messages. */
static trm_status break_after_some(wrapped_channel *channel, trm_error *err) {
    return channel->left == 0 ? TRMI_FAIL(err, TRM_PEER, "broken by the test") : TRM_OK;
}

static void count_down(wrapped_channel *channel, double timeout, trm_status status) {
    (void)timeout;
    channel->left -= status == TRM_OK;
}

static trmi_channel *make_brittle(void *context, trmi_channel *inner) {
    const channel_hooks hooks = {.before_receive = break_after_some, .after_receive = count_down};
    wrapped_channel *c = wrap_channel(inner, hooks, NULL);
    int *lives = context;
    c->left = 9 + ++*lives % 7; /* tables are declared and two or three parts taken */
    return &c->base;
}

static void parts_are_asked_for_again(void **state) {
    int lives = 0;
    job j;
    start_servers(&j, (trm_ps_client_options){0}, make_brittle, &lives);
    for (uint64_t seed = 1; seed <= 10; seed++) {
        pull_all(&j, seed);
        check_rows(&j);
    }
    assert_true(lives > 10);
    stop_servers(&j);
}

/* ---- hot rows -------------------------------------------------------------------------------- */

/* A batch has asked, and found a row in the cache; before it is waited for, the answers of another
 * one fill the cache with rows of their own. */
static void a_hot_row_outlives_its_place(void **state) {
    enum { OTHERS = 64 };
    trm_error err;
    job j;
    start_servers(&j, (trm_ps_client_options){.cache_rows = 4, .cache_staleness = 100}, NULL, NULL);
    trm_ps_batch *other;
    CHECK_OK(trm_ps_batch_create(j.client, &other, &err), err);
    const uint64_t hot[4] = {1, 2, 3, 4};
    uint64_t others[OTHERS];
    float first[4 * 16], again[4 * 16], theirs[OTHERS * 16];
    for (int i = 0; i < OTHERS; i++) {
        others[i] = 100 + (uint64_t)i;
    }
    CHECK_OK(trm_ps_batch_add(j.batch, j.table[0], hot, 4, first, NULL, &err), err);
    CHECK_OK(trm_ps_pull_start(j.batch, &err), err);
    CHECK_OK(trm_ps_pull_wait(j.batch, &err), err);
    CHECK_OK(trm_ps_batch_add(other, j.table[0], others, OTHERS, theirs, NULL, &err), err);
    CHECK_OK(trm_ps_pull_start(other, &err), err);
    trm_ps_batch_clear(j.batch);
    CHECK_OK(trm_ps_batch_add(j.batch, j.table[0], hot, 4, again, NULL, &err), err);
    CHECK_OK(trm_ps_pull_start(j.batch, &err), err);
    CHECK_OK(trm_ps_pull_wait(other, &err), err);
    CHECK_OK(trm_ps_pull_wait(j.batch, &err), err);
    trm_ps_client_stats stats;
    trm_ps_client_get_stats(j.client, &stats);
    assert_true(stats.cached_keys > 0);
    assert_memory_equal(first, again, sizeof first);
    trm_ps_batch_destroy(other);
    stop_servers(&j);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parts_give_the_rows_of_the_whole),
        cmocka_unit_test(synchronous_workers_pull_at_once),
        cmocka_unit_test(one_shard_gives_the_rows_of_several),
        cmocka_unit_test(parts_are_asked_for_again),
        cmocka_unit_test(a_hot_row_outlives_its_place),
    };
    return cmocka_run_group_tests_name("ps pull", tests, NULL, NULL);
}
