/* SPDX-License-Identifier: Apache-2.0 */
/* Tests of ps tables: against a naive map, admission, expiry, caps, the budget with eviction and
 * with spilling, 16-bit rows, shards. */
#include "row_table.h"

#include "base/cpu.h"
#include "base/memory.h"
#include "base/rng.h"

#include <math.h>
#include <unistd.h>

enum { WIDTH = 3 };

/* ---- a million operations against a naive map ------------------------------------------------ */

enum { KEYS = 60000 };

typedef struct naive {
    char there[KEYS];
    float value[KEYS][WIDTH];
} naive;

/* Neighbouring keys, keys far apart, 0 and UINT64_MAX. */
static uint64_t key_of(int64_t k) {
    return k == 0 ? 0 : k == 1 ? UINT64_MAX : k % 2 ? (uint64_t)k : trmi_mix(5, (uint64_t)k);
}

static void check_all(trmi_row_table *table, const naive *map) {
    enum { BATCH = 500 };
    static uint64_t keys[BATCH];
    static float out[BATCH][WIDTH];
    trm_error err;
    int64_t rows = 0;
    for (int64_t first = 0; first < KEYS; first += BATCH) {
        for (int64_t i = 0; i < BATCH; i++) {
            keys[i] = key_of(first + i);
            rows += map->there[first + i];
        }
        CHECK_OK(trmi_row_table_read(table, keys, BATCH, TRM_FLOAT32, out, &err), err);
        for (int64_t i = 0; i < BATCH; i++) {
            for (int j = 0; j < WIDTH; j++) {
                float expected = map->there[first + i] ? map->value[first + i][j] : 1.0f;
                assert_true(out[i][j] == expected);
            }
        }
    }
    trm_table_stats stats;
    trmi_row_table_get_stats(table, &stats);
    assert_int_equal(stats.rows, rows);
}

static void a_million_operations_match_a_naive_map(void **state) {
    naive *map = calloc(1, sizeof *map);
    trmi_account account = {.limit = INT64_MAX};
    trmi_row_table *table =
        make_at(&(trm_table_options){.width = WIDTH,
                                     .learning_rate = 1,
                                     .optimizer = {.kind = TRM_SGD},
                                     .init = {.kind = TRM_ROW_INIT_CONSTANT, .value = 1}},
                &one_shard, &account);
    enum { BATCH = 250, ROUNDS = 4000 };
    uint64_t keys[BATCH];
    float gradients[BATCH][WIDTH];
    for (uint32_t round = 1; round <= ROUNDS; round++) {
        /* A run of distinct keys, at first few of them. */
        uint32_t bound = round < ROUNDS / 2 ? KEYS / 8 : KEYS;
        uint32_t start = trmi_bounded(trmi_random_u32(1, TRMI_STREAM_TEST, round), bound);
        for (int64_t i = 0; i < BATCH; i++) {
            int64_t k = (start + i * 13) % KEYS;
            keys[i] = key_of(k);
            for (int j = 0; j < WIDTH; j++) {
                gradients[i][j] = (float)((k + round + j) % 9 - 4) * 0.125f;
                map->value[k][j] = (map->there[k] ? map->value[k][j] : 1.0f) - gradients[i][j];
            }
            map->there[k] = 1;
        }
        push_rows(table, keys, BATCH, gradients[0], round);
        for (int64_t i = 0; i < BATCH / 3; i++) {
            int64_t k = trmi_bounded(trmi_random_u32(round, TRMI_STREAM_TEST, (uint64_t)i), KEYS);
            assert_int_equal(trmi_row_table_remove(table, key_of(k)), map->there[k]);
            map->there[k] = 0;
        }
        if (round % 500 == 0) {
            check_all(table, map);
        }
    }
    assert_true(table->rows.page_count >= 1 && table->stats.created > KEYS);
    trmi_row_table_destroy(table);
    assert_int_equal(account.used, 0);
    free(map);
}

/* ---- the loop of lookup and rule, against rows that learn one by one ------------------------- */

static void learn_so(trm_optimizer_kind rule, int32_t width, const trmi_apply_kernels *kernels,
                     bool one_by_one, float *out, float *slots) {
    enum { ROWS = 3000, PUSHES = 4 };
    static uint64_t keys[ROWS];
    static float g[ROWS * 20];
    trmi_account account = {.limit = INT64_MAX};
    trmi_row_table *table =
        make_at(&(trm_table_options){.width = width,
                                     .optimizer = {.kind = rule, .weight_decay = 0.01f},
                                     .init = {TRM_ROW_INIT_UNIFORM, 0, 0.5f, 0}},
                &one_shard, &account);
    table->kernels = kernels;
    table->apply = kernels->apply[rule];
    for (uint32_t p = 1; p <= PUSHES; p++) {
        for (int64_t i = 0; i < ROWS; i++) { /* each push brings some new keys */
            keys[i] = trmi_mix(9, (uint64_t)(i * 7 % ROWS + p * 300));
            for (int32_t c = 0; c < width; c++) {
                g[i * width + c] = (float)((i + c * p) % 13 - 6) * 0.1f;
            }
        }
        for (int64_t i = 0; i < ROWS && one_by_one; i++) {
            trm_error err;
            trmi_tick tick = {p, p, 1, 1};
            table->special = true;
            CHECK_OK(
                trmi_row_table_update(table, keys + i, 1, TRM_FLOAT32, g + i * width, &tick, &err),
                err);
        }
        if (!one_by_one) {
            push_rows(table, keys, ROWS, g, p);
        }
    }
    trm_row_info info;
    for (int64_t i = 0; i < ROWS; i++, out += width) {
        assert_true(trmi_row_table_peek(table, keys[i], &info, out, slots));
        slots += table->layout.slot_count;
        assert_int_equal(info.last_tick, PUSHES);
        assert_true(info.count >= 1 && info.count <= PUSHES && info.version == info.count + 1);
    }
    trmi_row_table_destroy(table);
}

static void every_kernel_learns_as_row_by_row(void **state) {
    static float out[2][3000 * 20], slots[2][3000 * 40];
    const trmi_apply_kernels *kernels[] = {
        &trmi_apply_plain,
        trmi_apply_kernels_here(),
#if defined(__x86_64__)
        trmi_cpu()->avx2 ? &trmi_apply_avx2 : &trmi_apply_plain
#else
        &trmi_apply_plain
#endif
    };
    for (trm_optimizer_kind rule = TRM_SGD; rule <= TRM_NESTEROV; rule++) {
        for (int k = 0; k < 3 && rule != TRM_ADAM; k++) {
            for (int32_t width = 16; width <= 19; width += 3) {
                memset(slots, 0, sizeof slots);
                learn_so(rule, width, kernels[k], false, out[0], slots[0]);
                learn_so(rule, width, kernels[k], true, out[1], slots[1]);
                assert_memory_equal(out[0], out[1], 3000 * (size_t)width * sizeof(float));
                assert_memory_equal(slots[0], slots[1], sizeof slots[0]);
            }
        }
    }
}

static void pages_split_and_every_kernel_finds_all(void **state) {
    enum { ROWS = 300000, BATCH = 5000 };
    trmi_account account = {.limit = INT64_MAX};
    trmi_row_table *table = make_at(
        &(trm_table_options){.width = 16, .learning_rate = 1, .optimizer = {.kind = TRM_SGD}},
        &one_shard, &account);
    uint64_t *keys = malloc(BATCH * sizeof *keys);
    float *g = malloc(BATCH * 16 * sizeof *g);
    for (int64_t first = 0; first < ROWS; first += BATCH) {
        for (int64_t i = 0; i < BATCH; i++) {
            keys[i] = (uint64_t)(first + i);
            for (int j = 0; j < 16; j++) {
                g[i * 16 + j] = (float)-(first + i);
            }
        }
        push_rows(table, keys, BATCH, g, 1);
    }
    assert_true(table->rows.page_count > 4);
    const trmi_lookup *lookups[] = {
        &trmi_lookup_plain,
        trmi_lookup_here(),
#if defined(__x86_64__)
        trmi_cpu()->avx2 ? &trmi_lookup_avx2 : &trmi_lookup_plain
#else
        &trmi_lookup_plain
#endif
    };
    for (int l = 0; l < 3; l++) {
        table->lookup = lookups[l];
        for (int64_t n = 0; n < 100; n++) {
            int64_t count = 1 + (n * 37) % 130;
            for (int64_t i = 0; i < count; i++) {
                keys[i] =
                    trmi_bounded(trmi_random_u32((uint64_t)n, TRMI_STREAM_TEST, (uint64_t)i), ROWS);
            }
            trm_error err;
            CHECK_OK(trmi_row_table_read(table, keys, count, TRM_FLOAT32, g, &err), err);
            for (int64_t i = 0; i < count; i++) {
                assert_true(g[i * 16] == (float)keys[i] && g[i * 16 + 15] == (float)keys[i]);
            }
        }
    }
    /* Memory: 137 bytes a slot, never less than half full after the first page. */
    assert_true(account.used < (int64_t)ROWS * 290);
    trmi_row_table_destroy(table);
    free(keys);
    free(g);
}

/* ---- admission ------------------------------------------------------------------------------- */

static int pushes_until_admitted(trmi_row_table *table, uint64_t key) {
    for (int n = 1; n < 300; n++) {
        push_one(table, key, 1, (uint32_t)n);
        if (trmi_row_table_peek(table, key, NULL, NULL, NULL)) {
            return n;
        }
    }
    return 0;
}

static void admission_counts(void **state) {
    trmi_account account = {.limit = INT64_MAX};
    trm_table_options o = {
        .width = WIDTH,
        .learning_rate = 1,
        .optimizer = {.kind = TRM_SGD},
        .admission = {.kind = TRM_ADMIT_COUNT, .min_count = 5, .capacity = 1000}};
    trmi_row_table *table = make_at(&o, &one_shard, &account);
    for (uint64_t key = 0; key < 100; key++) {
        assert_int_equal(pushes_until_admitted(table, key), 5);
        float v[WIDTH];
        assert_true(trmi_row_table_peek(table, key, NULL, v, NULL));
        assert_true(v[0] == -1.0f); /* the first four gradients were dropped whole */
    }
    trmi_row_table_destroy(table);

    o.admission.kind = TRM_ADMIT_BLOOM;
    table = make_at(&o, &one_shard, &account);
    int early = 0;
    for (uint64_t key = 0; key < 1000; key++) {
        int n = pushes_until_admitted(table, key);
        assert_in_range(n, 1, 5); /* never late */
        early += n < 5;
    }
    assert_true(early < 100);
    trmi_row_table_destroy(table);

    o.admission = (trm_admission){.kind = TRM_ADMIT_PROBABILITY, .probability = 0.25};
    table = make_at(&o, &one_shard, &account);
    double sum = 0;
    for (uint64_t key = 0; key < 2000; key++) {
        sum += pushes_until_admitted(table, key);
    }
    assert_true(fabs(sum / 2000 - 4) < 0.4);
    trmi_row_table_destroy(table);
    assert_int_equal(account.used, 0);
}

/* ---- expiry and caps ------------------------------------------------------------------------- */

static void rows_expire_by_each_rule(void **state) {
    const trm_expiry rules[] = {
        {.after_ticks = 50}, {.after_seconds = 50}, {.min_score = 0.01f, .score_decay = 0.9f}};
    for (int r = 0; r < 3; r++) {
        trmi_account account = {.limit = INT64_MAX};
        trmi_row_table *table =
            make_at(&(trm_table_options){.width = WIDTH, .expiry = rules[r]}, &one_shard, &account);
        for (uint64_t key = 0; key < 500; key++) {
            push_one(table, key, 1, 1);
        }
        /* Key 7 stays in use, the others rest. */
        for (uint32_t tick = 2; tick < 40; tick++) {
            push_one(table, 7, 1, tick);
        }
        assert_int_equal(table->rows.count, 500);
        for (uint32_t tick = 40; tick < 400; tick++) {
            push_one(table, 7, 1, tick);
        }
        assert_int_equal(table->rows.count, 1);
        assert_int_equal(table->stats.expired, 499);
        assert_true(trmi_row_table_peek(table, 7, NULL, NULL, NULL));
        trmi_row_table_destroy(table);
    }
}

/* Rows with values near 0 are removed, for every type of values; rows that a push has just changed
 * stay. */
static void faint_rows_expire(void **state) {
    const trm_dtype types[] = {TRM_FLOAT32, TRM_BFLOAT16};
    for (int i = 0; i < 2; i++) {
        trmi_account account = {.limit = INT64_MAX};
        trm_table_options o = {.width = 70,
                               .dtype = types[i],
                               .round_to_nearest = true,
                               .learning_rate = 1,
                               .optimizer = {.kind = TRM_SGD},
                               .expiry = {.min_norm = 0.1f}};
        trmi_row_table *table = make_at(&o, &one_shard, &account);
        float g[70] = {0};
        for (uint64_t key = 0; key < 500; key++) {
            g[69] = key % 2 == 0 ? 0.05f : 0.5f; /* behind the first 64 */
            push_rows(table, &key, 1, g, 1);
        }
        assert_int_equal(table->rows.count, 500);
        g[69] = 0;
        for (uint32_t tick = 2; tick < 400; tick++) {
            push_rows(table, &(uint64_t){8}, 1, g, tick); /* faint, but in use */
        }
        assert_int_equal(table->rows.count, 251);
        assert_int_equal(table->stats.expired, 249);
        assert_true(trmi_row_table_peek(table, 7, NULL, NULL, NULL));
        assert_true(trmi_row_table_peek(table, 8, NULL, NULL, NULL));
        assert_false(trmi_row_table_peek(table, 6, NULL, NULL, NULL));
        trmi_row_table_destroy(table);
        assert_int_equal(account.used, 0);
    }
    trm_table_options o = {.name = "t", .width = 1, .expiry = {.min_norm = NAN}};
    trm_table_options out;
    trm_error err;
    assert_int_equal(trmi_row_table_check(&o, &out, &err), TRM_INVALID);
}

static void memory_comes_back_after_expiry(void **state) {
    trmi_account account = {.limit = INT64_MAX};
    trmi_row_table *table = make_at(
        &(trm_table_options){.width = 16, .expiry = {.after_ticks = 10}}, &one_shard, &account);
    for (uint64_t key = 0; key < 100000; key++) {
        push_one(table, key, 1, 1);
    }
    int64_t full = account.used;
    for (uint32_t tick = 2; tick < 9000; tick++) {
        push_one(table, 3, 1, tick);
    }
    assert_int_equal(table->rows.count, 1);
    assert_true(account.used < full / 2);
    trmi_row_table_destroy(table);
}

static void caps_keep_the_recent_or_the_frequent(void **state) {
    for (int policy = TRM_CAP_LRU; policy <= TRM_CAP_LFU; policy++) {
        trmi_account account = {.limit = INT64_MAX};
        trmi_row_table *table = make_at(
            &(trm_table_options){.width = WIDTH,
                                 .expiry = {.max_rows = 1000, .cap = (trm_cap_policy)policy}},
            &one_shard, &account);
        uint32_t tick = 1;
        /* Keys 0..99 often, at first only (LFU keeps them) or all the time (LRU keeps them). */
        for (int n = 0; n < 20; n++) {
            for (uint64_t key = 0; key < 100; key++) {
                push_one(table, key, 1, ++tick);
            }
        }
        for (uint64_t key = 1000; key < 6000; key++) {
            push_one(table, key, 1, ++tick);
            if (policy == TRM_CAP_LRU) {
                push_one(table, key % 100, 1, ++tick);
            }
            assert_true(table->rows.count <= 1000);
        }
        int kept = 0;
        for (uint64_t key = 0; key < 100; key++) {
            kept += trmi_row_table_peek(table, key, NULL, NULL, NULL);
        }
        assert_true(kept >= 90);
        assert_int_equal(table->stats.evicted, table->stats.created - 1000);
        trmi_row_table_destroy(table);
    }
}

/* ---- the budget ------------------------------------------------------------------------------ */

static int warnings;
static void count_warnings(void *context, trm_log_level level, const char *room, const char *line) {
    warnings += level == TRM_LOG_WARN && strstr(line, "budget") != NULL;
}

static void the_budget_is_never_exceeded_by_eviction(void **state) {
    trmi_account account = {.limit = 3 << 20};
    trm_log_set_sink(count_warnings, NULL, TRM_LOG_WARN);
    warnings = 0;
    trmi_row_table *table = make_at(&(trm_table_options){.width = 16}, &one_shard, &account);
    uint64_t keys[1000];
    float g[1000 * 16] = {0};
    for (uint32_t tick = 1; tick <= 300; tick++) {
        for (int i = 0; i < 1000; i++) {
            /* Half of every push is the same 500 keys. */
            keys[i] = i < 500 ? (uint64_t)i : (uint64_t)tick * 1000 + (uint64_t)i;
        }
        push_rows(table, keys, 1000, g, tick);
        assert_true(account.used <= account.limit);
    }
    assert_true(account.peak <= account.limit && account.peak > account.limit / 3);
    trm_table_stats stats;
    trmi_row_table_get_stats(table, &stats);
    assert_true(stats.evicted > 0 && stats.admission_level > 0 && stats.refused > 0);
    assert_true(warnings > 0);
    int kept = 0;
    for (uint64_t key = 0; key < 500; key++) {
        kept += trmi_row_table_peek(table, key, NULL, NULL, NULL);
    }
    assert_true(kept > 480); /* cold rows went, warm ones stayed */
    trm_log_set_sink(NULL, NULL, TRM_LOG_ERROR);
    trmi_row_table_destroy(table);
    assert_int_equal(account.used, 0);
}

static void spilled_rows_lose_nothing(void **state) {
    enum { ROWS = 30000 };
    trmi_account account = {.limit = 4 << 20};
    trmi_row_table_place place = {.shards = 1, .spill_folder = "/tmp"};
    trm_table_options o = {.width = 16, .learning_rate = 1, .optimizer = {.kind = TRM_SGD}};
    trmi_row_table *table = make_at(&o, &place, &account);
    float *expected = calloc(ROWS, sizeof *expected), g[100 * 16];
    uint64_t keys[100];
    for (uint32_t tick = 1; tick <= 3000; tick++) {
        for (int i = 0; i < 100; i++) {
            uint64_t start = trmi_random_u32(9, TRMI_STREAM_TEST, tick) % ROWS;
            keys[i] = (start + (uint64_t)i * 17) % ROWS;
        }
        for (int i = 0; i < 100; i++) {
            for (int j = 0; j < 16; j++) {
                g[i * 16 + j] = (float)(tick % 5);
            }
        }
        /* Only pushes that created or found their row count. */
        char there[100];
        push_rows(table, keys, 100, g, tick);
        for (int i = 0; i < 100; i++) {
            there[i] = trmi_row_table_peek(table, keys[i], NULL, NULL, NULL);
            expected[keys[i]] -= there[i] ? (float)(tick % 5) : 0;
        }
        assert_true(account.used <= account.limit);
    }
    trm_table_stats stats;
    trmi_row_table_get_stats(table, &stats);
    assert_true(stats.spilled > 1000 && stats.unspilled > 1000 && stats.spilled_rows > 1000);
    assert_int_equal(stats.evicted, 0);
    for (uint64_t key = 0; key < ROWS; key++) {
        float out[16];
        trm_error err;
        CHECK_OK(trmi_row_table_read(table, &key, 1, TRM_FLOAT32, out, &err), err);
        assert_true(out[0] == expected[key] && out[15] == expected[key]);
    }
    trmi_row_table_destroy(table);
    assert_int_equal(account.used, 0);
    free(expected);
}

/* By each rule: rows that were spilled leave like those in memory, and keys that come again begin
 * anew. */
static void spilled_rows_expire(void **state) {
    enum { ROWS = 12000, ALIVE = 100, AGE = 300 };
    const trm_expiry rules[] = {{.after_ticks = AGE},
                                {.after_seconds = AGE},
                                {.min_score = 0.01f, .score_decay = 0.98f},
                                {.max_rows = 3000}};
    for (int rule = 0; rule < 4; rule++) {
        trmi_account account = {.limit = rule == 3 ? 1 << 19 : 1 << 20};
        trmi_row_table_place place = {.shards = 1, .spill_folder = "/tmp"};
        trm_table_options o = {
            .width = 16, .learning_rate = 1, .optimizer = {.kind = TRM_SGD}, .expiry = rules[rule]};
        trmi_row_table *table = make_at(&o, &place, &account);
        trm_table_stats stats;
        float ones[ALIVE * 16];
        uint64_t keys[ALIVE];
        for (int i = 0; i < ALIVE * 16; i++) {
            ones[i] = 1;
        }
        uint32_t tick = 1;
        for (uint64_t first = 0; first < (rule == 3 ? 8 : 1) * ROWS; first += ALIVE, tick++) {
            for (uint64_t i = 0; i < ALIVE; i++) {
                keys[i] = first + i;
            }
            push_rows(table, keys, ALIVE, ones, tick);
            trmi_row_table_get_stats(table, &stats);
            assert_true(stats.rows <= (rule == 3 ? 3000 : ROWS));
        }
        assert_true(stats.spilled_rows > (rule == 3 ? 100 : 1000));
        if (rule == 3) {
            assert_int_equal(stats.rows, 3000);
            assert_true(stats.evicted > 100);
            trmi_row_table_destroy(table);
            continue;
        }
        for (uint32_t end = tick + 12 * AGE; tick < end; tick++) { /* the last 100 live on */
            push_rows(table, keys, ALIVE, ones, tick);
        }
        trmi_row_table_get_stats(table, &stats);
        assert_int_equal(stats.spilled_rows, 0);
        assert_int_equal(stats.rows, ALIVE);
        assert_false(trmi_row_table_peek(table, 5 + ROWS / 2, NULL, NULL, NULL));
        trmi_row_table_destroy(table);
        assert_int_equal(account.used, 0);
    }
}

static void a_budget_too_small_for_a_table_is_said(void **state) {
    trmi_account account = {.limit = 1500};
    trm_error err;
    trmi_row_table *table = NULL;
    trm_table_options o = {.name = "t", .width = 16};
    CHECK_FAILS(trmi_row_table_create(&o, &one_shard, &account, &table, &err), TRM_NOMEM, err,
                "no room");
    assert_int_equal(account.used, 0);
    /* Every allocation of a creation fails once. */
    account.limit = INT64_MAX;
    for (int k = 1; k < 20; k++) {
        trmi_alloc_fail_after(k);
        trm_status status = trmi_row_table_create(&o, &one_shard, &account, &table, &err);
        trmi_alloc_fail_after(0);
        if (status == TRM_OK) {
            assert_true(k > 5);
            trmi_row_table_destroy(table);
            break;
        }
        assert_int_equal(status, TRM_NOMEM);
        assert_int_equal(account.used, 0);
    }
}

static void bad_tables_are_named(void **state) {
    trm_error err;
    trm_table_options out;
    const struct {
        trm_table_options o;
        const char *text;
    } cases[] = {
        {{.width = 4}, "needs a name"},
        {{.name = "t"}, "table 't': width is 0"},
        {{.name = "t", .width = 2 << 20}, "width is 2097152"},
        {{.name = "t", .width = 4, .dtype = TRM_INT8}, "rows of int8"},
        {{.name = "t", .width = 4, .init = {.kind = (trm_row_init_kind)9}}, "initialiser 9"},
        {{.name = "t", .width = 4, .expiry = {.after_ticks = -1}}, "expiry"},
        {{.name = "t", .width = 4, .expiry = {.score_decay = NAN}}, "expiry"},
        {{.name = "t", .width = 4, .expiry = {.min_score = 0.5f}}, "min_score 0.5 has no effect"},
        {{.name = "t", .width = 4, .expiry = {.min_score = 1, .score_decay = 1}},
         "min_score 1 has no effect"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        CHECK_FAILS(trmi_row_table_check(&cases[i].o, &out, &err), TRM_INVALID, err, cases[i].text);
    }
    trmi_account account = {.limit = INT64_MAX};
    trmi_row_table *table;
    trm_table_options o = {.name = "t", .width = 4, .admission = {.kind = TRM_ADMIT_PROBABILITY}};
    CHECK_FAILS(trmi_row_table_create(&o, &one_shard, &account, &table, &err), TRM_INVALID, err,
                "probability");
    o.admission = (trm_admission){TRM_ADMIT_COUNT, .min_count = 256};
    CHECK_FAILS(trmi_row_table_create(&o, &one_shard, &account, &table, &err), TRM_INVALID, err,
                "min_count is 256");
    o.admission = (trm_admission){0};
    trmi_row_table_place nowhere = {.shards = 1, .spill_folder = "/nowhere"};
    CHECK_FAILS(trmi_row_table_create(&o, &nowhere, &account, &table, &err), TRM_IO, err,
                "/nowhere/spill-");
    assert_int_equal(account.used, 0);
}

/* ---- 16-bit rows and shards ------------------------------------------------------------------ */

static void sixteen_bit_rows_learn_small_steps(void **state) {
    /* 4000 steps of 1e-4 on a value of 1: lost to nearest rounding, kept by stochastic rounding. */
    for (int dtype = TRM_BFLOAT16; dtype <= TRM_FLOAT16; dtype++) {
        for (int nearest = 0; nearest < 2; nearest++) {
            trmi_account account = {.limit = INT64_MAX};
            trmi_row_table *table =
                make_at(&(trm_table_options){.width = 64,
                                             .dtype = (trm_dtype)dtype,
                                             .round_to_nearest = nearest == 1,
                                             .learning_rate = 1,
                                             .optimizer = {.kind = TRM_SGD},
                                             .init = {.kind = TRM_ROW_INIT_CONSTANT, .value = 1}},
                        &one_shard, &account);
            for (uint32_t tick = 1; tick <= 4000; tick++) {
                push_one(table, 5, 1e-4f, tick);
            }
            float v[64];
            double mean = 0;
            assert_true(trmi_row_table_peek(table, 5, NULL, v, NULL));
            for (int i = 0; i < 64; i++) {
                mean += (double)v[i] / 64;
            }
            assert_true(nearest ? mean > 0.95 : fabs(mean - 0.6) < 0.02);
            trmi_row_table_destroy(table);
        }
    }
}

static void rows_are_the_same_whatever_the_shards(void **state) {
    enum { ROWS = 3000, SHARDS = 5 };
    trm_table_options o = {.width = 8,
                           .dtype = TRM_BFLOAT16,
                           .seed = 11,
                           .learning_rate = 0.1f,
                           .optimizer = {.kind = TRM_ADAM},
                           .init = {.kind = TRM_ROW_INIT_NORMAL, .scale = 0.1f},
                           .admission = {.kind = TRM_ADMIT_PROBABILITY, .probability = 0.5}};
    trmi_account account = {.limit = INT64_MAX};
    trmi_row_table *one = make_at(&o, &one_shard, &account), *many[SHARDS];
    for (int s = 0; s < SHARDS; s++) {
        many[s] = make_at(&o, &(trmi_row_table_place){.shards = SHARDS}, &account);
    }
    for (uint32_t tick = 1; tick <= 20; tick++) {
        for (uint64_t n = 0; n < ROWS; n++) {
            uint64_t forward = n * 7919 % ROWS, backward = (ROWS - n) * 7919 % ROWS;
            push_one(one, forward, (float)(forward % 13) - 6, tick);
            push_one(many[trmi_shard_of_key(backward, SHARDS)], backward,
                     (float)(backward % 13) - 6, tick);
        }
    }
    int64_t rows = 0;
    for (uint64_t key = 0; key < ROWS; key++) {
        float a[8], b[8];
        trmi_row_table *shard = many[trmi_shard_of_key(key, SHARDS)];
        trm_error err;
        CHECK_OK(trmi_row_table_read(one, &key, 1, TRM_FLOAT32, a, &err), err);
        CHECK_OK(trmi_row_table_read(shard, &key, 1, TRM_FLOAT32, b, &err), err);
        assert_memory_equal(a, b, sizeof a);
    }
    for (int s = 0; s < SHARDS; s++) {
        rows += many[s]->rows.count;
        assert_true(many[s]->rows.count > ROWS / SHARDS / 2);
        trmi_row_table_destroy(many[s]);
    }
    assert_int_equal(rows, one->rows.count);
    trmi_row_table_destroy(one);
    assert_int_equal(account.used, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_million_operations_match_a_naive_map),
        cmocka_unit_test(every_kernel_learns_as_row_by_row),
        cmocka_unit_test(pages_split_and_every_kernel_finds_all),
        cmocka_unit_test(admission_counts),
        cmocka_unit_test(rows_expire_by_each_rule),
        cmocka_unit_test(faint_rows_expire),
        cmocka_unit_test(memory_comes_back_after_expiry),
        cmocka_unit_test(caps_keep_the_recent_or_the_frequent),
        cmocka_unit_test(the_budget_is_never_exceeded_by_eviction),
        cmocka_unit_test(spilled_rows_lose_nothing),
        cmocka_unit_test(spilled_rows_expire),
        cmocka_unit_test(a_budget_too_small_for_a_table_is_said),
        cmocka_unit_test(bad_tables_are_named),
        cmocka_unit_test(sixteen_bit_rows_learn_small_steps),
        cmocka_unit_test(rows_are_the_same_whatever_the_shards),
    };
    return cmocka_run_group_tests_name("ps table", tests, NULL, NULL);
}
