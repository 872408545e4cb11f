/* SPDX-License-Identifier: Apache-2.0 */
/* Tests of base/process.h: the text of /proc/PID/stat, this process, a zombie, a pid without a
 * process. */
#include "check.h"

#include "base/process.h"

#include <sys/wait.h>
#include <unistd.h>

#define FIELDS_5_TO_21 " 5 6 7 8 9 10 11 12 13 14 15 -16 -17 18 19 20 21 "

static void all_fields_are_read(void **state) {
    trmi_process_stat s;
    assert_true(trmi_process_parse_stat("77 (worker) S 4" FIELDS_5_TO_21 "22 23\n", &s));
    assert_string_equal(s.name, "worker");
    assert_int_equal(s.state, 'S');
    assert_int_equal(s.parent, 4);
    assert_int_equal(s.flags, 9);
    assert_int_equal(s.start_ticks, 22);
}

/* A program may be called anything, also what looks like the fields behind its name. */
static void names_may_contain_anything(void **state) {
    trmi_process_stat s;
    assert_true(
        trmi_process_parse_stat("7 (a) Z 1 2) (\n) T 4" FIELDS_5_TO_21 "1234567890123 0", &s));
    assert_string_equal(s.name, "a) Z 1 2) (\n");
    assert_int_equal(s.state, 'T');
    assert_int_equal(s.start_ticks, 1234567890123);
    assert_true(trmi_process_parse_stat("7 () R 4" FIELDS_5_TO_21 "22", &s));
    assert_string_equal(s.name, "");
    assert_true(trmi_process_parse_stat(
        "7 (0123456789012345678901234567890123456789) R 4" FIELDS_5_TO_21 "22", &s));
    assert_string_equal(s.name, "0123456789012345678901234567890");
}

static void other_texts_are_refused(void **state) {
    static const char *const texts[] = {"",
                                        "7",
                                        "7 (name",
                                        "7 )name(",
                                        "7 (name)",
                                        "7 (name) S",
                                        "7 (name) S 4 5 6 7 8 9",
                                        "7 (name) S 4" FIELDS_5_TO_21,
                                        "7 (name) S x" FIELDS_5_TO_21 "22"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        trmi_process_stat s = {.state = '?'};
        assert_false(trmi_process_parse_stat(texts[i], &s));
        assert_int_equal(s.state, '?');
    }
}

static void a_zombie_has_ended(void **state) {
    trmi_process_stat own, child, again;
    assert_true(trmi_process_read_stat(getpid(), &own));
    assert_int_equal(own.parent, getppid());
    assert_false(trmi_process_has_ended(&own));
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    pid_t pid = fork();
    if (pid == 0) {
        close(ends[1]);
        char byte;
        _exit(read(ends[0], &byte, 1) == 0 ? 0 : 1); /* waits until the test closes the pipe */
    }
    assert_true(trmi_process_read_stat(pid, &child));
    assert_false(trmi_process_has_ended(&child));
    assert_true(child.start_ticks >= own.start_ticks && child.parent == getpid());
    close(ends[0]);
    close(ends[1]);
    siginfo_t info;
    assert_int_equal(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT), 0);
    assert_true(trmi_process_read_stat(pid, &again));
    assert_true(trmi_process_has_ended(&again) && again.start_ticks == child.start_ticks);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    assert_false(trmi_process_read_stat(pid, &again));
}

static void a_place_has_the_boot_and_name_spaces(void **state) {
    char one[TRMI_PLACE_BYTES], two[TRMI_PLACE_BYTES], none[TRMI_PLACE_BYTES];
    trmi_process_write_place("pid", one);
    trmi_process_write_place("net ipc", two);
    trmi_process_write_place("", none);
    assert_non_null(strstr(one, "/pid:["));
    assert_non_null(strstr(two, "/net:["));
    assert_non_null(strstr(two, "]/ipc:["));
    assert_memory_equal(one, none, strlen(none)); /* the boot */
    assert_null(strchr(none, '/'));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_fields_are_read),
        cmocka_unit_test(names_may_contain_anything),
        cmocka_unit_test(other_texts_are_refused),
        cmocka_unit_test(a_zombie_has_ended),
        cmocka_unit_test(a_place_has_the_boot_and_name_spaces),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
