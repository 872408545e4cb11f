/* Items dealt to threads: each once, one's own in order, then the others' from their ends. */
#include "check.h"

#include "exec/onednn/share.h"

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

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(own_part_first_then_the_others_ends),
                                       cmocka_unit_test(fewer_items_than_threads), cmocka_unit_test(each_item_once)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
