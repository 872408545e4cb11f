/* SPDX-License-Identifier: Apache-2.0 */
/* Items dealt to threads: each once, one's own in order, then the others' from their ends. Scratch:
 * whose it is. Sums of splits. */
#include "check.h"

#include "exec/cpu/scratch.h"
#include "exec/cpu/share.h"
#include "exec/cpu/gemm/splits.h"

#include "base/format/half.h"

#ifdef _OPENMP
#include <omp.h>
#endif

static void own_part_first_then_the_others_ends(void **state) {
    (void)state;
    trmi_share s;
    const int64_t expected[] = {4, 5, 6, 10, 9, 8, 7};
    trmi_share_begin(&s, 11, 3); /* [0..2] [3..6] [7..10] */
    assert_int_equal(trmi_share_take(&s, 1), 3);
    assert_int_equal(trmi_share_take(&s, 4), 4); /* a fourth thread joins the second */
    trmi_share_begin(&s, 11, 3);
    assert_int_equal(trmi_share_take(&s, 0), 0);
    trmi_share_begin(&s, 11, 3);
    assert_int_equal(trmi_share_take(&s, 1), 3);
    for (size_t i = 0; i < 7; i++) {
        assert_int_equal(trmi_share_take(&s, 1), expected[i]);
    }
    assert_int_equal(trmi_share_take(&s, 0), 0);
    assert_int_equal(trmi_share_take(&s, 1), 2);
    assert_int_equal(trmi_share_take(&s, 2), 1);
    assert_int_equal(trmi_share_take(&s, 0), -1);
}

static void fewer_items_than_threads(void **state) {
    (void)state;
    trmi_share s;
    trmi_share_begin(&s, 0, 4);
    assert_int_equal(trmi_share_take(&s, 3), -1);
    trmi_share_begin(&s, 1, 200);
    assert_int_equal(trmi_share_take(&s, 150), 0);
    assert_int_equal(trmi_share_take(&s, 1), -1);
}

static void each_item_once(void **state) {
    (void)state;
    enum { ITEMS = 20000, THREADS = 7 };
    static _Atomic int taken[ITEMS];
    trmi_share s;
    trmi_share_begin(&s, ITEMS, THREADS);
#pragma omp parallel num_threads(THREADS)
    {
#ifdef _OPENMP
        int me = omp_get_thread_num();
#else
        int me = 0;
#endif
        for (int64_t i; (i = trmi_share_take(&s, me)) >= 0;) {
            atomic_fetch_add(&taken[i], 1);
        }
    }
    for (int i = 0; i < ITEMS; i++) {
        assert_int_equal(atomic_load(&taken[i]), 1);
    }
}

/* For all sizes of operators, threads of the first half use scratch below the middle, and threads
 * of the second half above it. */
static void scratch_has_a_middle(void **state) {
    (void)state;
    enum { PAGE = TRMI_SCRATCH_PAGE, ALL = 64 * PAGE, SHARED = 6 * PAGE };
    static char arena[ALL];
    for (int64_t own = 1; own <= 8 * PAGE; own *= 8) {
        int64_t pages = trmi_round_up(own, PAGE);
        for (int threads = 1; threads <= 6; threads++) {
            trmi_scratch s = trmi_scratch_cut(arena, ALL, SHARED, own, threads);
            int64_t at = trmi_scratch_shared(&s) - arena;
            assert_int_equal(at, (ALL - SHARED) / 2);
            for (int t = 0; t < threads; t++) {
                int64_t begin = trmi_scratch_own(&s, t) - arena;
                assert_int_equal(begin, 2 * t < threads ? t * pages : ALL - (threads - t) * pages);
                assert_true(2 * t < threads ? begin + own <= at : begin >= at + SHARED);
            }
        }
    }
    trmi_scratch tight = trmi_scratch_cut(arena, 0, 2 * PAGE, 64, 3); /* no more than is needed */
    assert_int_equal(trmi_scratch_bytes(2 * PAGE, 64, 3), 5 * PAGE);
    assert_int_equal(trmi_scratch_own(&tight, 1) - arena, PAGE);
    assert_int_equal(trmi_scratch_shared(&tight) - arena, 2 * PAGE);
    assert_int_equal(trmi_scratch_own(&tight, 2) - arena, 4 * PAGE);
}

static void splits_are_added_once_each(void **state) {
    (void)state;
    enum { COUNT = 9001, SPLITS = 9 };
    static float sums[SPLITS * COUNT], to[COUNT];
    static uint16_t half[COUNT];
    for (int splits = 1; splits <= SPLITS; splits++) {
        for (int threads = 1; threads <= 5; threads++) {
            for (int64_t i = 0; i < (int64_t)splits * COUNT; i++) {
                sums[i] = (float)((1 << i / COUNT) * (1 + i % COUNT % 3)); /* exact in any order */
            }
#pragma omp parallel num_threads(threads)
            trmi_splits_add(trmi_gemm(), sums, splits, COUNT, threads % 2 ? (void *)to : half,
                            threads % 2 ? TRM_FLOAT32 : TRM_BFLOAT16);
            for (int64_t i = 0; i < COUNT; i++) {
                float all = (float)(((1 << splits) - 1) * (1 + i % 3));
                assert_true(threads % 2 ? to[i] == all : half[i] == trmi_float_to_bf16(all));
            }
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(own_part_first_then_the_others_ends),
        cmocka_unit_test(fewer_items_than_threads), cmocka_unit_test(each_item_once),
        cmocka_unit_test(scratch_has_a_middle), cmocka_unit_test(splits_are_added_once_each)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
