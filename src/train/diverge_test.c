/* SPDX-License-Identifier: Apache-2.0 */
/* Losses that run away, and such that do not. */
#include "check.h"

#include "train/diverge.h"

#include <math.h>

static int count_warnings(const double *losses, int count, trmi_course *last) {
    trmi_divergence d = {0};
    int said = 0;
    for (int i = 0; i < count; i++) {
        *last = trmi_divergence_note(&d, losses[i]);
        said += *last == TRMI_COURSE_GROWS;
    }
    return said;
}

static void growth_is_told_once(void **state) {
    double grows[200], learns[200], jumps[200], small[200], explodes[60];
    trmi_course last;
    for (int i = 0; i < 200; i++) {
        grows[i] = 2.3 + i * 0.5;
        learns[i] = 2.3 * exp(-0.02 * i) + 0.5 * (i % 7 == 0);
        jumps[i] = i == 3 ? 40 : 2.3; /* one bad batch */
        small[i] = i < 5 ? 0.001 : 0.2;
    }
    for (int i = 0; i < 60; i++) {
        explodes[i] = 2.3 * pow(4, i);
    }
    assert_int_equal(count_warnings(grows, 200, &last), 1);
    assert_int_equal(count_warnings(learns, 200, &last), 0);
    assert_int_equal(count_warnings(jumps, 200, &last), 0);
    assert_int_equal(count_warnings(small, 200, &last), 0);
    assert_int_equal(last, TRMI_COURSE_FINE);
    assert_int_equal(count_warnings(explodes, 60, &last), 1);
    assert_int_equal(last, TRMI_COURSE_LOST);
    assert_int_equal(count_warnings(explodes, 9, &last), 1); /* long before */
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(growth_is_told_once)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
