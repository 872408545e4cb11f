/* SPDX-License-Identifier: Apache-2.0 */
/* Tests of snapshots of a table, walked while its rows come, change, move and go. */
#include "row_table.h"

#include "base/rng.h"

#include <stdlib.h>

enum { SNAPSHOT_ROWS = 20000 };

/* The records that a snapshot has saved. */
typedef struct saved {
    const trmi_row_table *table;
    int times[SNAPSHOT_ROWS];   /* by key: how often it was saved (1 expected) */
    float value[SNAPSHOT_ROWS]; /* by key */
    int64_t total;
} saved;

static void save_record(void *context, const void *record) {
    saved *s = context;
    assert_non_null(record);
    uint64_t key = trmi_row_header_of(&s->table->layout, (void *)(uintptr_t)record)->key;
    assert_true(key < SNAPSHOT_ROWS);
    s->times[key]++;
    s->total++;
    memcpy(&s->value[key], record, sizeof(float));
}

/* Updates, creations, removals, spills and page growth between the steps of the walk. */
static void snapshot_under_fire(const trmi_row_table_place *place, int64_t limit) {
    trmi_account account = {.limit = limit};
    trmi_row_table *table = make_at(
        &(trm_table_options){.width = 16, .learning_rate = 1, .optimizer = {.kind = TRM_SGD}},
        place, &account);
    saved *s = calloc(1, sizeof *s);
    static float model[SNAPSHOT_ROWS];
    static char there[SNAPSHOT_ROWS];
    memset(model, 0, sizeof model);
    memset(there, 0, sizeof there);
    s->table = table;
    uint32_t tick = 1;
    for (uint32_t snapshot = 1; snapshot <= 6; snapshot++) {
        bool full = snapshot % 2 == 1;
        static char changed[SNAPSHOT_ROWS];
        memset(changed, 0, sizeof changed);
        for (int n = 0; n < 3000; n++, tick++) {
            uint64_t key = trmi_bounded(trmi_random_u32(2, TRMI_STREAM_TEST, tick),
                                        SNAPSHOT_ROWS * snapshot / 6);
            push_one(table, key, 1, tick);
            changed[key] = 1;
        }
        for (uint64_t key = 0; key < SNAPSHOT_ROWS; key++) {
            float v[16];
            there[key] = trmi_row_table_peek(table, key, NULL, v, NULL);
            model[key] = v[0];
        }
        memset(s->times, 0, sizeof s->times);
        trmi_snapshot_sink sink = {save_record, s, full ? 0 : snapshot - 1};
        trmi_row_table_begin_snapshot(table, snapshot, &sink);
        uint32_t steps = 0;
        while (!trmi_row_table_walk_snapshot(table, 50)) {
            for (int n = 0; n < 40; n++, steps++) {
                uint64_t key = trmi_bounded(trmi_random_u32(3 + snapshot, TRMI_STREAM_TEST, steps),
                                            SNAPSHOT_ROWS);
                if (n % 4 == 3) {
                    trmi_row_table_remove(table, key);
                } else {
                    push_one(table, key, 2, tick);
                }
            }
        }
        for (uint64_t key = 0; key < SNAPSHOT_ROWS; key++) {
            bool wanted = there[key] && (full || changed[key]);
            /* A differential snapshot may hold more than it must (rows that moved), never less. */
            assert_true(wanted ? s->times[key] == 1 : s->times[key] <= (there[key] && !full));
            assert_true(s->times[key] == 0 || s->value[key] == model[key]);
        }
    }
    trmi_row_table_destroy(table);
    assert_int_equal(account.used, 0);
    free(s);
}

/* A few places at a time, while keys come whose homes others have: those may not move across what
 * has been walked. */
static void snapshots_are_consistent_while_rows_move(void **state) {
    enum { KEYS = 600, SNAPSHOTS = 60 };
    trmi_account account = {.limit = INT64_MAX};
    trmi_row_table *table = make_at(
        &(trm_table_options){.width = 16, .learning_rate = 1, .optimizer = {.kind = TRM_SGD}},
        &one_shard, &account);
    saved *s = calloc(1, sizeof *s);
    uint32_t tick = 1;
    s->table = table;
    for (uint32_t snapshot = 1; snapshot <= SNAPSHOTS; snapshot++) {
        bool there[KEYS];
        for (; table->rows.count < KEYS / 2; tick++) {
            push_one(table, trmi_bounded(trmi_random_u32(4, TRMI_STREAM_TEST, tick), KEYS), 1,
                     tick);
        }
        for (uint64_t key = 0; key < KEYS; key++) {
            there[key] = trmi_row_table_peek(table, key, NULL, NULL, NULL);
        }
        memset(s->times, 0, sizeof s->times);
        trmi_snapshot_sink sink = {save_record, s, 0};
        trmi_row_table_begin_snapshot(table, snapshot, &sink);
        while (!trmi_row_table_walk_snapshot(table, 1)) {
            for (int n = 0; n < 3; n++, tick++) {
                trmi_row_table_remove(
                    table, trmi_bounded(trmi_random_u32(5, TRMI_STREAM_TEST, tick), KEYS));
                push_one(table, trmi_bounded(trmi_random_u32(6, TRMI_STREAM_TEST, tick), KEYS), 1,
                         tick);
            }
        }
        for (uint64_t key = 0; key < KEYS; key++) {
            assert_int_equal(s->times[key], there[key]);
        }
    }
    trmi_row_table_destroy(table);
    free(s);
    (void)state;
}

static void snapshots_are_consistent_while_rows_change(void **state) {
    snapshot_under_fire(&one_shard, INT64_MAX);
}
static void snapshots_are_consistent_while_rows_spill(void **state) {
    snapshot_under_fire(&(trmi_row_table_place){.shards = 1, .spill_folder = "/tmp"}, 2 << 20);
}

static void removed_keys_are_listed_for_differential_files(void **state) {
    trmi_account account = {.limit = INT64_MAX};
    trmi_row_table *table = make_at(&(trm_table_options){.width = 3}, &one_shard, &account);
    for (uint64_t key = 0; key < 1000; key++) {
        push_one(table, key, 1, 1);
    }
    /* before the first snapshot no record of removed rows is needed */
    trmi_row_table_remove(table, 1);
    trmi_row_table_begin_snapshot(table, 1, NULL);
    for (uint64_t key = 10; key < 600; key++) {
        trmi_row_table_remove(table, key);
    }
    uint64_t *keys;
    int64_t count, capacity;
    assert_true(trmi_row_table_take_removed(table, &keys, &count, &capacity));
    assert_int_equal(count, 590);
    assert_int_equal(keys[0], 10);
    trmi_account_free(&account, keys, (size_t)capacity * sizeof *keys);
    assert_true(trmi_row_table_take_removed(table, &keys, &count, &capacity));
    assert_int_equal(count, 0);
    trmi_row_table_destroy(table);
    assert_int_equal(account.used, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(snapshots_are_consistent_while_rows_change),
        cmocka_unit_test(snapshots_are_consistent_while_rows_move),
        cmocka_unit_test(snapshots_are_consistent_while_rows_spill),
        cmocka_unit_test(removed_keys_are_listed_for_differential_files),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
