/* SPDX-License-Identifier: Apache-2.0 */
/* Tests of how a worker numbers the distinct keys of a batch, and arranges them for servers. */
#include "servers.h"

#include "base/cpu.h"
#include "base/memory.h"
#include "base/rng.h"
#include "ps/client/client.h"
#include "ps/client/unique.h"

#include <stdlib.h>

/* A server in this process and its only client. */
typedef struct job {
    trm_ps_server *server;
    trm_ps_client *client;
    trm_ps_batch *batch;
    int32_t table[3];
} job;

static void job_start(job *j, int32_t shards) {
    trm_error err;
    j->server = server_start((trm_ps_server_options){.shards = shards});
    trm_ps_client_options co = {.local = &j->server, .servers = 1, .ring_bytes = 1 << 20};
    CHECK_OK(trm_ps_client_create(&co, &j->client, &err), err);
    for (int t = 0; t < 3; t++) {
        const char *const names[] = {"a", "b", "c"};
        trm_table_options o = {.name = names[t], .width = 2};
        CHECK_OK(trm_ps_client_table(j->client, &o, &j->table[t], &err), err);
    }
    CHECK_OK(trm_ps_batch_create(j->client, &j->batch, &err), err);
}

static void job_stop(job *j) {
    trm_ps_batch_destroy(j->batch);
    trm_ps_client_destroy(j->client);
    trm_ps_server_stop(j->server);
}

/* Every look-up has a number whose key, table and wishes are its own; no two numbers are equal. */
static void check_numbers(const trm_ps_batch *b) {
    for (int64_t s = 0; s < b->slice_count; s++) {
        const trmi_slice *slice = &b->slices[s];
        for (int64_t i = 0; i < slice->count; i++) {
            uint32_t u = b->inverse[slice->first + i];
            assert_true(u < b->unique_count);
            const trmi_unique *x = &b->uniques[u];
            assert_true(x->key == slice->keys[i] && x->table == (uint32_t)slice->table);
            assert_true(x->shard == trmi_shard_of_key(x->key, 3));
            assert_true(slice->rows == NULL || (x->wanted & TRMI_WANT_PULL) != 0);
            assert_true(slice->gradients == NULL || (x->wanted & TRMI_WANT_PUSH) != 0);
        }
    }
    for (int64_t u = 0; u < b->unique_count; u++) {
        for (int64_t v = u + 1; v < b->unique_count; v++) {
            assert_true(b->uniques[u].key != b->uniques[v].key ||
                        b->uniques[u].table != b->uniques[v].table);
        }
    }
}

/* The inverse of trmi_key_hash: x ^ x >> n is undone by doing it again, the products by the
 * factors' inverses. */
static uint64_t undo_shift(uint64_t y, int n) {
    uint64_t x = y;
    for (int i = 0; i < 64 / n; i++) {
        x = y ^ x >> n;
    }
    return x;
}
static uint64_t inverse_of(uint64_t odd) {
    uint64_t x = odd;
    for (int i = 0; i < 6; i++) {
        x *= 2 - odd * x;
    }
    return x;
}
static uint64_t key_with_hash(uint64_t hash) {
    uint64_t z = undo_shift(hash, 31) * inverse_of(0x94D049BB133111EBu);
    z = undo_shift(z, 27) * inverse_of(0xBF58476D1CE4E5B9u);
    return undo_shift(z, 30) - 0x9E3779B97F4A7C15u;
}

static void several_slices_ask_one_table(void **state) {
    enum { COUNT = 700 };
    job j;
    trm_error err;
    static uint64_t keys[4][COUNT];
    static float rows[COUNT * 2], gradients[COUNT * 2];
    job_start(&j, 3);
    for (uint64_t s = 0; s < 4; s++) {
        for (uint64_t i = 0; i < COUNT; i++) {
            keys[s][i] = trmi_mix(s, i) % (s == 3 ? 3 : 500);
        }
    }
    for (int twice = 0; twice < 2; twice++) {
        trm_ps_batch *b = j.batch;
        trm_ps_batch_clear(b);
        CHECK_OK(trm_ps_batch_add(b, j.table[1], keys[0], COUNT, rows, NULL, &err), err);
        CHECK_OK(trm_ps_batch_add(b, j.table[0], keys[1], COUNT, rows, gradients, &err), err);
        CHECK_OK(trm_ps_batch_add(b, j.table[1], keys[2], COUNT, NULL, gradients, &err), err);
        CHECK_OK(trm_ps_batch_add(b, j.table[1], keys[3], 0, rows, NULL, &err), err);
        CHECK_OK(trm_ps_batch_add(b, j.table[2], keys[3], COUNT, rows, NULL, &err), err);
        CHECK_OK(trmi_batch_deduplicate(b, &err), err);
        check_numbers(b);
        assert_true(b->unique_count > 800 && b->unique_count <= 1003);
    }
    job_stop(&j);
}

/* Keys chosen so that their places are the same in every round: of 1000 look-ups there are 2048
 * places, the first by the product, the others by bits 11 to 43 of the hash. */
static void keys_that_all_meet(void **state) {
    enum { DISTINCT = 100, COUNT = 1000, PLACES = 2048 };
    job j;
    trm_error err;
    uint64_t keys[COUNT];
    float rows[COUNT * 2];
    int found = 0;
    job_start(&j, 3);
    for (uint64_t v = 0; found < DISTINCT; v++) {
        uint64_t key = key_with_hash((v / PLACES) << 44 | (uint64_t)0x12345678 << 11 | v % PLACES);
        if ((key * TRMI_FIBONACCI >> 32) % PLACES == 77) {
            keys[found++] = key;
        }
    }
    for (int i = DISTINCT; i < COUNT; i++) {
        keys[i] = keys[i * 7 % DISTINCT];
    }
    trm_ps_batch_clear(j.batch);
    CHECK_OK(trm_ps_batch_add(j.batch, j.table[0], keys, COUNT, rows, NULL, &err), err);
    CHECK_OK(trmi_batch_deduplicate(j.batch, &err), err);
    assert_int_equal(j.batch->unique_count, DISTINCT);
    check_numbers(j.batch);
    job_stop(&j);
}

#if defined(__x86_64__)
static void vectors_do_the_same(void **state) {
    enum { MOST = 1000, ROOM = MOST + TRMI_UNIQUE_SLACK, PLACES = 1024 };
    static uint64_t keys[MOST], distinct[2][ROOM];
    static uint32_t map[PLACES], inverse[2][ROOM], number[ROOM], left[2][ROOM];
    const trmi_unique_kernels *kernels[] = {&trmi_unique_plain, &trmi_unique_avx512};
    if (!trmi_cpu()->avx512) {
        print_message("skipped: this CPU has no AVX-512\n");
        return;
    }
    for (int64_t count = 0; count <= MOST; count += count < 40 ? 1 : 31) {
        int64_t left_count[2];
        uint32_t numbers[2];
        for (int64_t i = 0; i < count; i++) {
            keys[i] =
                trmi_mix(5, (uint64_t)(i % 3 == 0 ? i : (int64_t)(trmi_mix(6, (uint64_t)i) % 97)));
        }
        for (int k = 0; k < 2; k++) {
            const trmi_lookups l = {.keys = keys,
                                    .inverse = inverse[k],
                                    .count = count,
                                    .mask = PLACES - 1,
                                    .map = map,
                                    .number = number,
                                    .left = left[k],
                                    .distinct = distinct[k]};
            left_count[k] = kernels[k]->meet(&l);
            assert_int_equal(left_count[k], left_count[0]);
            assert_memory_equal(inverse[k], inverse[0], (size_t)count * sizeof **inverse);
            assert_memory_equal(left[k], left[0], (size_t)left_count[0] * sizeof **left);
        }
        for (int k = 0; k < 2; k++) {
            for (int64_t i = 0; i < count; i++) { /* as if nothing were left over */
                int64_t last = i;
                for (int64_t n = i + 1; n < count; n++) {
                    last = keys[n] == keys[i] ? n : last;
                }
                inverse[k][i] = (uint32_t)last;
            }
            const trmi_lookups l = {.keys = keys,
                                    .inverse = inverse[k],
                                    .count = count,
                                    .mask = PLACES - 1,
                                    .map = map,
                                    .number = number,
                                    .left = left[k],
                                    .distinct = distinct[k]};
            numbers[k] = kernels[k]->number(&l, 1234);
            assert_int_equal(numbers[k], numbers[0]);
            assert_memory_equal(inverse[k], inverse[0], (size_t)count * sizeof **inverse);
            assert_memory_equal(distinct[k], distinct[0], numbers[0] * sizeof **distinct);
        }
    }
}
#endif

/* Each unique that is wanted is in one section, of its table, and its row where that section's rows
 * are. */
static void check_arrangement(trm_ps_batch *b, const trmi_arrangement *a) {
    enum { MOST = 4000 };
    static uint8_t rows[2 * MOST];
    static int64_t unique_at[2 * MOST];
    trm_error err;
    int64_t wanted = 0, row = 0;
    memset(unique_at, 0xFF, sizeof unique_at);
    trmi_batch_describe(b);
    CHECK_OK(trmi_batch_locate(b, a, 0, b->unique_count, 1, rows, &err), err);
    for (int64_t u = 0; u < b->unique_count; u++) {
        wanted += (b->uniques[u].wanted & a->mask) == a->match;
    }
    for (int64_t s = 0; s < b->slice_count; s++) {
        const trmi_slice *slice = &b->slices[s];
        for (int64_t i = 0; i < slice->count; i++) {
            const uint32_t u = b->inverse[slice->first + i];
            if ((b->uniques[u].wanted & a->mask) == a->match) {
                unique_at[trmi_batch_row(b, slice, 2, u) - rows] = u;
            }
        }
    }
    assert_int_equal(a->count, wanted);
    for (uint32_t i = 0; i < a->first[b->client->servers]; i++) {
        const trmi_ps_section *s = &a->sections[i];
        for (int64_t k = 0; k < s->count; k++, row += 2) { /* rows of two numbers, of a byte here */
            const trmi_unique *x = &b->uniques[unique_at[row]];
            assert_true(unique_at[row] >= 0 && x->key == s->keys[k] && x->table == s->table &&
                        x->shard == s->shard);
        }
    }
    assert_int_equal(row, 2 * wanted);
}

static void one_shard_is_arranged_as_several_are(void **state) {
    enum { COUNT = 700 };
    static uint64_t keys[4][COUNT];
    static float rows[COUNT * 2], gradients[COUNT * 2];
    static const uint32_t flags[] = {TRMI_WANT_PULL, TRMI_WANT_PUSH};
    job j;
    trm_error err;
    job_start(&j, 1);
    for (uint64_t i = 0; i < 4 * COUNT; i++) {
        keys[i / COUNT][i % COUNT] = trmi_mix(7, i) % 500;
    }
    for (int differ = 0; differ < 2; differ++) {
        trm_ps_batch *b = j.batch;
        trmi_arrangement sorted = {0};
        trm_ps_batch_clear(b);
        CHECK_OK(trm_ps_batch_add(b, j.table[2], keys[0], COUNT, rows, gradients, &err), err);
        CHECK_OK(trm_ps_batch_add(b, j.table[0], keys[1], COUNT, rows, NULL, &err), err);
        CHECK_OK(trm_ps_batch_add(b, j.table[1], keys[2], 0, rows, gradients, &err), err);
        CHECK_OK(
            trm_ps_batch_add(b, j.table[2], keys[3], COUNT, rows, differ ? NULL : gradients, &err),
            err);
        CHECK_OK(trmi_batch_deduplicate(b, &err), err);
        for (int f = 0; f < 2; f++) {
            CHECK_OK(trmi_batch_arrange(b, &b->push, 0, b->unique_count, flags[f], flags[f], &err),
                     err);
            assert_true(b->push.in_order == !differ);
            check_arrangement(b, &b->push);
            CHECK_OK(trmi_batch_arrange_by_shard(b, &sorted, 0, b->unique_count, flags[f], flags[f],
                                                 &err),
                     err);
            assert_int_equal(sorted.count, b->push.count);
            check_arrangement(b, &sorted);
        }
        free(sorted.sections);
        free(sorted.keys);
        free(sorted.place);
        trmi_free(sorted.first);
    }
    job_stop(&j);
}

/* Wherever one key of `count` is no larger than the one before it, the slice is not taken for one
 * that ascends. */
static void falls_are_seen(job *j, int64_t count) {
    static uint64_t keys[200];
    static float rows[400];
    trm_error err;
    for (int64_t fall = 0; fall <= count; fall++) { /* 0: none */
        for (int64_t i = 0; i < count; i++) {
            keys[i] = (uint64_t)(10 * i + 7);
        }
        if (fall > 0 && fall < count) {
            keys[fall] = keys[fall - 1] - (uint64_t)(fall % 2);
        }
        trm_ps_batch_clear(j->batch);
        CHECK_OK(trm_ps_batch_add(j->batch, j->table[0], keys, count, rows, NULL, &err), err);
        CHECK_OK(trmi_batch_deduplicate(j->batch, &err), err);
        assert_true(j->batch->slices[0].keys_in_order == (fall == 0 || fall == count));
        assert_int_equal(j->batch->unique_count,
                         count - (fall > 0 && fall < count && fall % 2 == 0));
        check_numbers(j->batch);
    }
}

/* Rows and gradients of keys in order are those of the same keys in another one. */
static void keys_that_ascend(void **state) {
    enum { COUNT = 150 };
    static const int64_t counts[] = {1, 2, 63, 64, 65, 66, 128, 129, 130};
    static uint64_t keys[2][COUNT];
    static float rows[2][COUNT * 2], gradients[2][COUNT * 2];
    trm_error err;
    job j;
    job_start(&j, 3);
    for (size_t c = 0; c < sizeof counts / sizeof *counts; c++) {
        falls_are_seen(&j, counts[c]);
    }
    job_stop(&j);
    for (int shards = 1; shards <= 2; shards++) {
        job_start(&j, shards);
        for (int i = 0; i < COUNT; i++) {
            const int at = i * 7 % COUNT;
            keys[0][i] = keys[1][at] = (uint64_t)i * 3;
            gradients[0][2 * i] = gradients[1][2 * at] = (float)(i + 1);
            gradients[0][2 * i + 1] = gradients[1][2 * at + 1] = (float)-i;
        }
        for (int order = 0; order < 2; order++) { /* tables 0 and 1 learn the same */
            trm_ps_batch_clear(j.batch);
            CHECK_OK(trm_ps_batch_add(j.batch, j.table[order], keys[order], COUNT, NULL,
                                      gradients[order], &err),
                     err);
            CHECK_OK(trm_ps_push(j.batch, NULL, &err), err);
            trm_ps_batch_clear(j.batch);
            CHECK_OK(trm_ps_batch_add(j.batch, j.table[order], keys[1 - order], COUNT, rows[order],
                                      NULL, &err),
                     err);
            CHECK_OK(trm_ps_flush(j.client, &err), err);
            CHECK_OK(trm_ps_pull_start(j.batch, &err), err);
            CHECK_OK(trm_ps_pull_wait(j.batch, &err), err);
        }
        for (int i = 0; i < COUNT; i++) {
            assert_memory_equal(rows[1] + 2 * i, rows[0] + 2 * (i * 7 % COUNT), 2 * sizeof(float));
            assert_true(rows[1][2 * i] != 0);
        }
        job_stop(&j);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keys_that_ascend),
        cmocka_unit_test(several_slices_ask_one_table),
        cmocka_unit_test(keys_that_all_meet),
        cmocka_unit_test(one_shard_is_arranged_as_several_are),
#if defined(__x86_64__)
        cmocka_unit_test(vectors_do_the_same),
#endif
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
