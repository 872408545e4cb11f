/* SPDX-License-Identifier: Apache-2.0 */
/* Tests of buckets against enumeration of every division. */
#include "check.h"

#include "plan/lower/buckets.h"

#include "base/rng.h"

#include <math.h>

enum { MOST = 11 };

static double draw_number(uint64_t *counter) {
    return (double)trmi_unit_float(trmi_random_u32(5, TRMI_STREAM_TEST, (*counter)++));
}

/* Enumerates all 2^(n-1) divisions; bit i divides after item i. Divisions that ignore skipped items
 * are left out. */
static double brute_force(const trmi_bucket_item *items, int32_t n, double alpha, double beta) {
    double best = INFINITY;
    for (uint32_t cut = 0; cut < 1u << (n - 1); cut++) {
        trmi_bucket buckets[MOST];
        int32_t count = 0;
        bool fresh = true;
        for (int32_t i = 0; i < n; i++) {
            if (items[i].skip) {
                fresh = true;
                continue;
            }
            if (fresh) {
                buckets[count++] = (trmi_bucket){.first = i};
            }
            buckets[count - 1].count++;
            buckets[count - 1].bytes += items[i].bytes;
            fresh = cut >> i & 1;
        }
        best = fmin(best, trmi_buckets_end(items, buckets, count, alpha, beta));
    }
    return best;
}

static void covers_every_item_once(const trmi_bucket_item *items, int32_t n,
                                   const trmi_bucket *buckets, int32_t count) {
    int32_t at = 0;
    for (int32_t b = 0; b < count; b++) {
        int64_t bytes = 0;
        for (; items[at].skip; at++) {
        }
        assert_int_equal(buckets[b].first, at);
        assert_true(buckets[b].count > 0);
        for (int32_t i = 0; i < buckets[b].count; i++, at++) {
            assert_false(items[at].skip);
            bytes += items[at].bytes;
        }
        assert_int_equal(buckets[b].bytes, bytes);
    }
    for (; at < n; at++) {
        assert_true(items[at].skip);
    }
}

static void the_cut_is_optimal(void **state) {
    uint64_t counter = 0;
    for (int round = 0; round < 400; round++) {
        trmi_bucket_item items[MOST];
        trmi_bucket out[MOST];
        int32_t n = 1 + (int32_t)(draw_number(&counter) * MOST);
        double at = 0, alpha = draw_number(&counter) * 0.3, beta = draw_number(&counter) * 0.01,
               end;
        for (int32_t i = 0; i < n; i++) {
            at += draw_number(&counter) * 0.2;
            items[i] = (trmi_bucket_item){(int64_t)(draw_number(&counter) * 100), at,
                                          round % 2 == 1 && draw_number(&counter) < 0.2};
        }
        int32_t count = trmi_buckets_optimal(items, n, alpha, beta, out, &end);
        covers_every_item_once(items, n, out, count);
        assert_true(fabs(end - trmi_buckets_end(items, out, count, alpha, beta)) < 1e-9);
        assert_true(fabs(end - brute_force(items, n, alpha, beta)) < 1e-9);
    }
}

/* With start-up cost only, one bucket is best; without start-up cost, no gradient waits for a later
 * one. */
static void costs_of_one_kind_have_known_buckets(void **state) {
    trmi_bucket_item items[4] = {{10, 1, false}, {10, 2, false}, {10, 3, false}, {10, 4, false}};
    trmi_bucket out[4];
    assert_int_equal(trmi_buckets_optimal(items, 4, 100, 0, out, NULL), 1);
    double end;
    int32_t count = trmi_buckets_optimal(items, 4, 0, 0.01, out, &end);
    assert_true(fabs(end - 4.1) < 1e-9);
    assert_int_equal(out[count - 1].count, 1);
    assert_int_equal(trmi_buckets_optimal(items, 0, 1, 1, out, &end), 0);
}

static void fixed_and_listed_cuts(void **state) {
    trm_error err;
    trmi_bucket_item items[6] = {{4, 0, false}, {4, 1, false}, {9, 2, false},
                                 {1, 3, true},  {2, 4, false}, {2, 5, false}};
    trmi_bucket out[6];
    int32_t count = trmi_buckets_fixed(items, 6, 8, out);
    covers_every_item_once(items, 6, out, count);
    assert_int_equal(count, 3);
    assert_int_equal(out[0].count, 2);
    assert_int_equal(trmi_buckets_fixed(items, 6, 0, out), 5);
    CHECK_OK(trmi_buckets_list(items, 6, (int32_t[]){1, 5, 6}, 3, out, &count, &err), err);
    covers_every_item_once(items, 6, out, count);
    assert_int_equal(count, 4);
    assert_int_equal(out[1].first, 1);
    assert_int_equal(out[3].first, 5);
    CHECK_OK(trmi_buckets_list(items, 6, NULL, 0, out, &count, &err), err);
    assert_int_equal(count, 2);
    assert_int_equal(trmi_buckets_list(items, 6, (int32_t[]){3, 3}, 2, out, &count, &err),
                     TRM_INVALID);
    assert_int_equal(trmi_buckets_list(items, 6, (int32_t[]){0}, 1, out, &count, &err),
                     TRM_INVALID);
    CHECK_FAILS(trmi_buckets_list(items, 6, (int32_t[]){1, 7}, 2, out, &count, &err), TRM_INVALID,
                err, "there are 6");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_cut_is_optimal),
        cmocka_unit_test(costs_of_one_kind_have_known_buckets),
        cmocka_unit_test(fixed_and_listed_cuts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
