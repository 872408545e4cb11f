/* SPDX-License-Identifier: Apache-2.0 */
/* Tests of mapped files that are shortened: the reader gets an error with both sizes, and SIGBUS in
 * all other memory has its usual effect. */
#include "folder.h"

#include "base/mapping.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>

enum { BYTES = 5 * 4096 + 100 };

static const char *write_file(const char *name, size_t bytes) {
    const char *path = in_folder(name);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    for (size_t i = 0; i < bytes; i++) {
        fputc(7, file);
    }
    assert_int_equal(fclose(file), 0);
    return path;
}

static int64_t sum_of(const trmi_mapping *mapping) {
    int64_t sum = 0;
    for (size_t i = 0; i < mapping->bytes; i++) {
        sum += mapping->data[i];
    }
    return sum;
}

static void whole_files_are_as_read(void **state) {
    trm_error err;
    trmi_mapping mapping;
    const char *path = write_file("whole", BYTES);
    CHECK_OK(trmi_mapping_open(path, &mapping, &err), err);
    assert_int_equal(sum_of(&mapping), 7 * BYTES);
    CHECK_OK(trmi_mapping_check(&mapping, TRM_OK, &err), err);
    assert_int_equal(trmi_mapping_check(&mapping, TRM_CORRUPT, &err), TRM_CORRUPT);
    /* a longer file (a growing log) and another file with the same name are no errors */
    assert_int_equal(truncate(path, 2 * BYTES), 0);
    CHECK_OK(trmi_mapping_check(&mapping, TRM_OK, &err), err);
    assert_int_equal(rename(write_file("other", 10), path), 0);
    assert_int_equal(sum_of(&mapping), 7 * BYTES);
    CHECK_OK(trmi_mapping_check(&mapping, TRM_OK, &err), err);
    trmi_mapping_close(&mapping);
    trmi_mapping_close(&mapping);
}

static void shortened_files_are_errors(void **state) {
    static const int64_t left[] = {0, 1, 4096, 3 * 4096 + 5, BYTES - 1};
    for (size_t i = 0; i < sizeof left / sizeof *left; i++) {
        trm_error err;
        trmi_mapping mapping;
        char expected[80];
        const char *path = write_file("shortened", BYTES);
        CHECK_OK(trmi_mapping_open(path, &mapping, &err), err);
        assert_int_equal(truncate(path, left[i]), 0);
        assert_int_equal(sum_of(&mapping), 7 * left[i]);
        snprintf(expected, sizeof expected, "(found %lld bytes, expected %d)", (long long)left[i],
                 (int)BYTES);
        CHECK_FAILS(trmi_mapping_check(&mapping, TRM_OK, &err), TRM_IO, err, expected);
        CHECK_FAILS(trmi_mapping_check(&mapping, TRM_CORRUPT, &err), TRM_IO, err, path);
        trmi_mapping_close(&mapping);
    }
}

static void a_hole_in_time_is_an_error(void **state) {
    trm_error err;
    trmi_mapping mapping;
    const char *path = write_file("hole", BYTES);
    CHECK_OK(trmi_mapping_open(path, &mapping, &err), err);
    assert_int_equal(truncate(path, 4096), 0);
    assert_int_equal(mapping.data[BYTES - 1], 0);
    assert_int_equal(truncate(path, BYTES), 0);
    CHECK_FAILS(trmi_mapping_check(&mapping, TRM_OK, &err), TRM_IO, err, "shortened for a while");
    trmi_mapping_close(&mapping);
}

static void *read_all(void *argument) {
    const trmi_mapping *mapping = argument;
    return (void *)(intptr_t)(sum_of(mapping) <= 7 * (int64_t)mapping->bytes &&
                              trmi_mapping_check(mapping, TRM_OK, NULL) == TRM_IO);
}

/* More mappings than a chunk of the table has slots, each read by its own thread. */
static void many_mappings_and_threads(void **state) {
    enum { MAPPINGS = 600, READERS = 8 };
    static trmi_mapping mappings[MAPPINGS];
    trm_error err;
    const char *path = write_file("many", BYTES);
    for (int i = 0; i < MAPPINGS; i++) {
        CHECK_OK(trmi_mapping_open(path, &mappings[i], &err), err);
    }
    assert_int_equal(truncate(path, 100), 0);
    pthread_t threads[READERS];
    for (int i = 0; i < READERS; i++) {
        trmi_mapping *last = &mappings[MAPPINGS - 1 - i / 2]; /* two readers a mapping */
        assert_int_equal(pthread_create(&threads[i], NULL, read_all, last), 0);
    }
    for (int i = 0; i < READERS; i++) {
        void *good;
        assert_int_equal(pthread_join(threads[i], &good), 0);
        assert_non_null(good);
    }
    for (int i = 0; i < MAPPINGS; i++) {
        trmi_mapping_close(&mappings[i]);
    }
}

/* ---- other memory ---- */

static void say_and_leave(int number) {
    (void)number;
    _exit(41);
}

/* A page without content outside of all mappings. */
static const volatile char *broken_page(void) {
    const char *path = write_file("foreign", 4096);
    int fd = open(path, O_RDONLY);
    void *page = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, fd, 0);
    assert_true(page != MAP_FAILED);
    assert_int_equal(truncate(path, 0), 0);
    close(fd);
    return page;
}

/* Returns how a child process with a mapping ends when it reads the broken page or is sent SIGBUS.
 */
static int end_of_child(void (*before)(int), bool sent) {
    const volatile char *page = broken_page();
    const char *path = write_file("mine", BYTES);
    pid_t child = fork();
    if (child == 0) {
        trmi_mapping mapping;
        signal(SIGBUS, before);
        if (trmi_mapping_open(path, &mapping, NULL) != TRM_OK) {
            _exit(1);
        }
        if (sent) {
            raise(SIGBUS);
        } else {
            (void)*page;
        }
        _exit(0);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    munmap((void *)(uintptr_t)page, 4096);
    return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
}

/* Runs first: the child's mapping installs the handler, which replaces the one that is there. */
static void other_faults_are_passed_on(void **state) {
    assert_int_equal(end_of_child(SIG_DFL, false), -SIGBUS);
    assert_int_equal(end_of_child(SIG_DFL, true), -SIGBUS);
    assert_int_equal(end_of_child(SIG_IGN, false), -SIGBUS);
    assert_int_equal(end_of_child(SIG_IGN, true), 0);
    assert_int_equal(end_of_child(say_and_leave, false), 41);
    assert_int_equal(end_of_child(say_and_leave, true), 41);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(other_faults_are_passed_on), cmocka_unit_test(whole_files_are_as_read),
        cmocka_unit_test(shortened_files_are_errors), cmocka_unit_test(a_hole_in_time_is_an_error),
        cmocka_unit_test(many_mappings_and_threads)};
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
