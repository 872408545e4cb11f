/* Tests of how a worker numbers the distinct keys of a batch. */
#include "check.h"

#include "base/rng.h"
#include "ps/client.h"

typedef struct job {
    trm_ps_server *server;
    trm_ps_client *client;
    trm_ps_batch *batch;
    int32_t table[3];
} job;

static void job_start(job *j) {
    trm_error err;
    trm_ps_server_options so = {.shards = 3, .memory_bytes = 1 << 26};
    CHECK_OK(trm_ps_server_start(&so, &j->server, &err), err);
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
static uint64_t unshift(uint64_t y, int n) {
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
    uint64_t z = unshift(hash, 31) * inverse_of(0x94D049BB133111EBu);
    z = unshift(z, 27) * inverse_of(0xBF58476D1CE4E5B9u);
    return unshift(z, 30) - 0x9E3779B97F4A7C15u;
}

static void several_slices_ask_one_table(void **state) {
    enum { COUNT = 700 };
    job j;
    trm_error err;
    static uint64_t keys[4][COUNT];
    static float rows[COUNT * 2], gradients[COUNT * 2];
    job_start(&j);
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

/* Keys chosen so that their places are the same in every round. */
static void keys_that_all_meet(void **state) {
    enum { DISTINCT = 100, COUNT = 1000 };
    job j;
    trm_error err;
    uint64_t keys[COUNT];
    float rows[COUNT * 2];
    job_start(&j);
    for (uint64_t i = 0; i < COUNT; i++) {
        uint64_t hash = (i * 7 % DISTINCT) << 48 | 0x123456789ABCu;
        keys[i] = key_with_hash(hash);
        assert_true(trmi_key_hash(keys[i]) == hash);
    }
    trm_ps_batch_clear(j.batch);
    CHECK_OK(trm_ps_batch_add(j.batch, j.table[0], keys, COUNT, rows, NULL, &err), err);
    CHECK_OK(trmi_batch_deduplicate(j.batch, &err), err);
    assert_int_equal(j.batch->unique_count, DISTINCT);
    check_numbers(j.batch);
    job_stop(&j);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(several_slices_ask_one_table),
        cmocka_unit_test(keys_that_all_meet),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
