/* SPDX-License-Identifier: Apache-2.0 */
/* How far CPUs are from each other: an answer in time, on any machine, however loaded. */
#include "check.h"

#include "exec/autoparallel/line_state.h"

#include "base/os.h"

#include <sched.h>

static void an_answer_in_time(void **state) {
    (void)state;
    double begin = trmi_os_now();
    trmi_lines now = trmi_lines_now(), usual = trmi_lines_usual();
    assert_true(now >= TRMI_LINES_UNKNOWN && now <= TRMI_LINES_FAR);
    assert_true(usual >= TRMI_LINES_UNKNOWN && usual <= TRMI_LINES_FAR);
    assert_true(trmi_os_now() - begin < 10); /* each look gives up after 10 ms */
}

/* The thread that asks stays where it may be. */
static void leaves_the_caller(void **state) {
    (void)state;
    cpu_set_t before, after;
    assert_int_equal(sched_getaffinity(0, sizeof before, &before), 0);
    (void)trmi_lines_now();
    assert_int_equal(sched_getaffinity(0, sizeof after, &after), 0);
    assert_true(CPU_EQUAL(&before, &after));
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(an_answer_in_time),
                                       cmocka_unit_test(leaves_the_caller)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
