/* SPDX-License-Identifier: Apache-2.0 */
/* Tests of ps/table/rows.h: against a list of keys, where many share a home, at each size of a
 * page, with erasing between. */
#include "check.h"

#include "base/rng.h"
#include "ps/table/lookup.h"
#include "ps/table/table.h"

enum { KEYS = 3001 };

/* A tenth of the keys have one home in small pages: more than its guide names, and beyond what lies
 * close by. */
static uint64_t key_of(int64_t k) {
    static uint64_t crowd[KEYS / 10 + 1];
    static bool made;
    uint64_t candidate = 0;
    for (int64_t i = 0; !made && i <= KEYS / 10; i++) {
        do {
            candidate++;
        } while (trmi_rows_home(trmi_key_hash(candidate), 64) != 63);
        crowd[i] = candidate;
    }
    made = true;
    return k % 10 == 0 ? crowd[k / 10] : trmi_mix(3, (uint64_t)k) | (uint64_t)1 << 63;
}

static void check_all(const trmi_rows *rows, const bool *there) {
    static uint64_t keys[KEYS];
    static char *records[KEYS];
    int64_t count = 0;
    for (int64_t k = 0; k < KEYS; k++) {
        keys[k] = key_of(k);
        count += there[k];
    }
    assert_int_equal(rows->count, count);
    trmi_lookup_here()->find(rows, 1, keys, KEYS, records);
    for (int64_t k = 0; k < KEYS; k++) {
        char *record = trmi_rows_find(rows, keys[k]);
        assert_true((record != NULL) == there[k] && records[k] == record);
        if (record != NULL) {
            uint64_t found;
            memcpy(&found, record, sizeof found);
            assert_true(found == ~keys[k]);
        }
    }
    for (uint32_t p = 0; p < rows->page_count; p++) {
        for (uint32_t i = 0; i < rows->pages[p].places; i++) {
            count -= trmi_rows_at(rows, &rows->pages[p], i) != NULL;
        }
    }
    assert_int_equal(count, 0);
}

static void keys_of_one_home(void **state) {
    static bool there[KEYS];
    memset(there, 0, sizeof there);
    trmi_account account = {.limit = INT64_MAX};
    const trmi_row_layout layout = {.header_offset = 12, .guide_offset = 20, .stride = 28};
    trmi_rows rows;
    assert_true(trmi_rows_init(&rows, &account, &layout));
    for (uint64_t step = 0; step < 40000; step++) {
        int64_t k = trmi_bounded(trmi_random_u32(9, TRMI_STREAM_TEST, step), KEYS);
        uint64_t key = key_of(k), mark = ~key;
        /* it fills, and it empties */
        bool erases = step % 8000 > 5000 ? step % 5 != 0 : step % 5 == 0;
        if (there[k] || erases) {
            assert_true(trmi_rows_erase(&rows, key) == there[k]);
            there[k] = false;
        } else {
            char *record = trmi_rows_insert(&rows, key);
            assert_non_null(record);
            memcpy(record, &mark, sizeof mark);
            there[k] = true;
        }
        if (step % 2000 == 0) {
            trmi_rows_shrink(&rows, 0);
        }
        if (step % 1000 == 0) {
            check_all(&rows, there);
        }
    }
    check_all(&rows, there);
    trmi_rows_free(&rows);
    assert_int_equal(account.used, 0);
    (void)state;
}

/* A key is not at its home only if another key occupies it, for every order of insertion. */
static void homes_go_to_those_who_live_there(void **state) {
    enum { ROWS = 100000 };
    trmi_account account = {.limit = INT64_MAX};
    const trmi_row_layout layout = {.header_offset = 0, .guide_offset = 8, .stride = 64};
    trmi_rows rows;
    assert_true(trmi_rows_init(&rows, &account, &layout));
    for (uint64_t k = 0; k < ROWS; k++) {
        assert_non_null(trmi_rows_insert(&rows, trmi_mix(2, k)));
    }
    for (uint64_t k = 0; k < ROWS; k++) {
        const uint64_t hash = trmi_key_hash(trmi_mix(2, k));
        const trmi_rows_page *page = trmi_rows_page_of(&rows, trmi_mix(2, k));
        const uint32_t home = trmi_rows_home(hash, page->places);
        const char *record = trmi_rows_find(&rows, trmi_mix(2, k)),
                   *resident = trmi_rows_at(&rows, page, home);
        uint64_t key;
        assert_true(record != NULL && resident != NULL);
        memcpy(&key, resident, sizeof key);
        assert_int_equal(trmi_rows_home(trmi_key_hash(key), page->places), home);
    }
    trmi_rows_free(&rows);
    (void)state;
}

/* Pages do not grow at the same time: while the rows increase by 5 %, the memory increases by a
 * quarter at most (half, if all pages of one size grew together). The forecast is what the table
 * then has, and a table that was reserved for the rows does not grow. */
static void growth_is_spread(void **state) {
    enum { ROWS = 300000, FIRST = 60000, FORECASTS = 6 };
    trmi_account account = {.limit = INT64_MAX}, other = {.limit = INT64_MAX};
    const trmi_row_layout layout = {.header_offset = 0, .guide_offset = 8, .stride = 512};
    trmi_rows rows, reserved;
    int64_t before = 0;
    assert_true(trmi_rows_init(&rows, &account, &layout));
    for (int64_t k = 0; k < ROWS; k++) {
        assert_non_null(trmi_rows_insert(&rows, trmi_mix(3, (uint64_t)k)));
        if (k >= FIRST && k % (FIRST / 20) == 0) {
            assert_true(before == 0 || account.used < before * 5 / 4);
            before = account.used;
        }
        if ((k + 1) % (ROWS / FORECASTS) == 0) {
            const int64_t forecast = trmi_rows_forecast(&layout, k + 1);
            assert_true(forecast > account.used * 9 / 10 && forecast < account.used * 11 / 10);
        }
    }
    trmi_rows_free(&rows);
    assert_true(trmi_rows_init(&reserved, &other, &layout));
    trmi_rows_reserve(&reserved, ROWS);
    const int64_t used = other.used;
    for (int64_t k = 0; k < ROWS; k++) {
        assert_non_null(trmi_rows_insert(&reserved, trmi_mix(3, (uint64_t)k)));
    }
    assert_int_equal(other.used, used);
    for (int64_t k = 0; k < ROWS; k++) {
        assert_non_null(trmi_rows_find(&reserved, trmi_mix(3, (uint64_t)k)));
    }
    trmi_rows_free(&reserved);
    assert_int_equal(account.used, 0);
    assert_int_equal(other.used, 0);
    (void)state;
}

/* Where the budget lets a page not grow it fills to its last place, and a row that leaves makes
 * room for another. */
static void full_pages(void **state) {
    trmi_account account = {.limit = 1 << 14};
    const trmi_row_layout layout = {.header_offset = 0, .guide_offset = 8, .stride = 64};
    trmi_rows rows;
    assert_true(trmi_rows_init(&rows, &account, &layout));
    uint64_t key = 0;
    while (trmi_rows_insert(&rows, trmi_mix(1, key)) != NULL) {
        key++;
    }
    assert_true(rows.count * 64 > 1 << 12 && account.used <= account.limit);
    for (uint64_t next = key; next < key + 1000; next++) {
        char *near[TRMI_WINDOW_PLACES];
        uint64_t victim;
        int count = trmi_rows_window(&rows, trmi_mix(1, next), near);
        assert_true(count > 0 && count <= TRMI_WINDOW_PLACES);
        memcpy(&victim, near[next % (uint64_t)count], sizeof victim);
        assert_true(trmi_rows_erase(&rows, victim));
        assert_non_null(trmi_rows_insert(&rows, trmi_mix(1, next)));
        assert_non_null(trmi_rows_find(&rows, trmi_mix(1, next)));
        assert_null(trmi_rows_find(&rows, victim));
    }
    trmi_rows_free(&rows);
    (void)state;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keys_of_one_home), cmocka_unit_test(homes_go_to_those_who_live_there),
        cmocka_unit_test(growth_is_spread), cmocka_unit_test(full_pages)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
