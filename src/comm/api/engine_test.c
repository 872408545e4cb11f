/* SPDX-License-Identifier: Apache-2.0 */
/* How a wait at its deadline names the ranks that it waits for: each by its whole number. */
#include "check.h"

#include "comm/api/engine.h"
#include "comm/rendezvous/rendezvous.h"

#include "base/os.h"

enum { RANKS = 40 };

static trm_status check_health(trm_bootstrap *bootstrap, trm_error *err) {
    (void)bootstrap, (void)err;
    return TRM_OK;
}

static void ignore_poison(trm_bootstrap *bootstrap, const trm_error *cause) {
    (void)bootstrap, (void)cause;
}

/* Waits in a group whose member i is rank `first` + i, for `count` members from number `from` on,
 * and expects the error "rank R waited 1.0 s for NAMES in sum". */
static void check_names(int32_t first, int from, int count, const char *names) {
    static const trmi_bootstrap_table table = {.check = check_health, .poison = ignore_poison};
    trm_bootstrap bootstrap = {.table = &table, .size = RANKS};
    int32_t members[RANKS];
    bool missing[RANKS] = {false};
    char expected[200];
    for (int i = 0; i < RANKS; i++) {
        members[i] = first + i;
        missing[i] = i >= from && i < from + count;
    }
    const trmi_group group = {.bootstrap = &bootstrap, .size = RANKS, .members = members};
    trmi_wait wait = {.start = trmi_os_now() - 1};
    trm_error err;
    assert_int_equal(trmi_wait_check(&wait, &group, missing, "sum", &err), TRM_TIMEOUT);
    snprintf(expected, sizeof expected, "rank %d waited 1.0 s for %s in sum", first, names);
    assert_string_equal(err.message, expected);
}

static void missing_ranks_are_named_by_whole_numbers(void **state) {
    (void)state;
    check_names(0, 0, 0, "its peers");
    check_names(0, 3, 1, "rank 3");
    check_names(0, 38, 2, "ranks 38, 39");
    check_names(0, 10, 15, "ranks 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24");
    check_names(0, 10, 17, "ranks 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, ...");
    check_names(1000, 1, 39,
                "ranks 1001, 1002, 1003, 1004, 1005, 1006, 1007, 1008, 1009, 1010, ...");
    check_names(2147483600, 1, 39,
                "ranks 2147483601, 2147483602, 2147483603, 2147483604, 2147483605, ...");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(missing_ranks_are_named_by_whole_numbers)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
