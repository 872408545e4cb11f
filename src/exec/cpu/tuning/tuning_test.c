/* SPDX-License-Identifier: Apache-2.0 */
/* The tuning file (tuning.h): what a process has measured is found by the next one, beside the
 * entries of other machines and numbers of threads.
 *
 * Processes that write at the same time must lose no line. A damaged file counts as empty, and
 * without a file everything works for the life of the process. Files are in /tmp, with the
 * number of this process in their name. */
#include "check.h"

#include "exec/backend.h"
#include "exec/cpu/dnnl/onednn.h"
#include "exec/cpu/gemm/gemm_isa.h"
#include "exec/cpu/tuning/tuning.h"

#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char path[64];

static int set_path(void **state) {
    snprintf(path, sizeof path, "/tmp/trireme_tuning_%d", (int)getpid());
    unlink(path);
    return 0;
}
static int remove_files(void **state) {
    char lock[80];
    snprintf(lock, sizeof lock, "%s.lock", path);
    unlink(path);
    unlink(lock);
    return 0;
}

static trmi_tuning *open_tuning(int threads) {
    trm_error err;
    trmi_tuning *t = NULL;
    CHECK_OK(trmi_tuning_create(path, threads, "lib 1", "isa", &t, &err), err);
    return t;
}

static void expect_seconds(trmi_tuning *t, const char *problem, const char *algorithm,
                           double seconds) {
    const char *found = NULL;
    double s = -1;
    assert_true(trmi_tuning_find(t, problem, &found, &s));
    assert_string_equal(found, algorithm);
    CHECK_CLOSE(s, seconds, 1e-3);
}

static void choices_survive_a_restart(void **state) {
    trm_error err;
    const char *name;
    double s;
    trmi_tuning *t = open_tuning(2);
    assert_false(trmi_tuning_find(t, "conv a", &name, &s));
    trmi_tuning_add(t, "conv a", "direct", 0.5);
    trmi_tuning_add(t, "conv a", "gemm", 0.25);
    trmi_tuning_add(t, "conv b", "winograd4x3", 0.125);
    expect_seconds(t, "conv a", "gemm", 0.25);
    CHECK_OK(trmi_tuning_save(t, &err), err);
    trmi_tuning_destroy(t);

    t = open_tuning(2);
    assert_int_equal(trmi_tuning_count(t), 2);
    expect_seconds(t, "conv a", "gemm", 0.25);
    expect_seconds(t, "conv b", "winograd4x3", 0.125);
    trmi_tuning_destroy(t);
}

/* A guess that is guessed again is no reason to write the file. */
static void what_is_known_is_not_written(void **state) {
    trm_error err;
    trmi_tuning *t = open_tuning(2);
    trmi_tuning_add(t, "conv a", "~direct", 0.123456);
    CHECK_OK(trmi_tuning_save(t, &err), err);
    assert_int_equal(unlink(path), 0);
    trmi_tuning_add(t, "conv a", "~direct", 0.123456);
    CHECK_OK(trmi_tuning_save(t, &err), err);
    assert_int_not_equal(access(path, F_OK), 0);
    trmi_tuning_add(t, "conv a", "direct", 0.123456);
    CHECK_OK(trmi_tuning_save(t, &err), err);
    assert_int_equal(access(path, F_OK), 0);
    trmi_tuning_destroy(t);
}

/* Two processes with different thread counts write at the same time, and no line is lost. */
static void processes_merge_their_lines(void **state) {
    trm_error err;
    const char *name;
    double s;
    trmi_tuning *one = open_tuning(1), *two = open_tuning(2);
    trmi_tuning_add(one, "p", "a", 1);
    trmi_tuning_add(two, "p", "b", 2);
    CHECK_OK(trmi_tuning_save(one, &err), err);
    CHECK_OK(trmi_tuning_save(two, &err), err);
    trmi_tuning_destroy(one);
    trmi_tuning_destroy(two);
    one = open_tuning(1), two = open_tuning(2);
    expect_seconds(one, "p", "a", 1);
    expect_seconds(two, "p", "b", 2);
    assert_false(trmi_tuning_find(one, "q", &name, &s));
    trmi_tuning_destroy(one);
    trmi_tuning_destroy(two);
}

/* Processes that write over and over at the same time: no line is lost, none is damaged. */
static void concurrent_writers(void **state) {
    enum { WRITERS = 4, SAVES = 12 };
    pid_t children[WRITERS];
    for (int w = 0; w < WRITERS; w++) {
        children[w] = fork();
        assert_true(children[w] >= 0);
        if (children[w] == 0) {
            bool fine = true;
            for (int i = 0; fine && i < SAVES; i++) {
                trmi_tuning *t = NULL;
                char problem[32];
                snprintf(problem, sizeof problem, "conv %d.%d", w, i);
                fine = trmi_tuning_create(path, w % 2, "lib 1", "isa", &t, NULL) == TRM_OK;
                if (fine) {
                    trmi_tuning_add(t, problem, "gemm", 1 + w + i);
                    fine = trmi_tuning_save(t, NULL) == TRM_OK;
                }
                trmi_tuning_destroy(t);
            }
            _exit(fine ? 0 : 1);
        }
    }
    for (int w = 0; w < WRITERS; w++) {
        int status = -1;
        assert_int_equal(waitpid(children[w], &status, 0), children[w]);
        assert_int_equal(status, 0);
    }
    for (int w = 0; w < WRITERS; w++) {
        trmi_tuning *t = open_tuning(w % 2);
        assert_int_equal(trmi_tuning_count(t), WRITERS * SAVES);
        for (int i = 0; i < SAVES; i++) {
            char problem[32];
            snprintf(problem, sizeof problem, "conv %d.%d", w, i);
            expect_seconds(t, problem, "gemm", 1 + w + i);
        }
        trmi_tuning_destroy(t);
    }
}

/* Choices of another library, instruction set or number of threads are not ours. */
static void another_machine(void **state) {
    static const struct {
        int threads;
        const char *library, *isa;
    } machines[] = {
        {2, "lib 1", "isa"}, {3, "lib 1", "isa"}, {2, "lib 2", "isa"}, {2, "lib 1", "other"}};
    trm_error err;
    for (int i = 0; i < 4; i++) {
        trmi_tuning *t = NULL;
        const char *name;
        double s;
        CHECK_OK(trmi_tuning_create(path, machines[i].threads, machines[i].library, machines[i].isa,
                                    &t, &err),
                 err);
        assert_int_equal(trmi_tuning_count(t), i);
        assert_false(trmi_tuning_find(t, "p", &name, &s));
        trmi_tuning_add(t, "p", "a", 1 + i);
        CHECK_OK(trmi_tuning_save(t, &err), err);
        trmi_tuning_destroy(t);
    }
}

static void many_lines(void **state) {
    enum { LINES = 5000 };
    trm_error err;
    trmi_tuning *t = open_tuning(2);
    for (int i = 0; i < LINES; i++) {
        char problem[32];
        snprintf(problem, sizeof problem, "p%d", i);
        trmi_tuning_add(t, problem, "a", i);
    }
    CHECK_OK(trmi_tuning_save(t, &err), err);
    trmi_tuning_destroy(t);
    t = open_tuning(2);
    assert_int_equal(trmi_tuning_count(t), LINES);
    expect_seconds(t, "p0", "a", 0);
    expect_seconds(t, "p4999", "a", 4999);
    trmi_tuning_destroy(t);
}

static void damaged_is_empty(void **state) {
    static const char *const bad[] = {"",
                                      "something else\n",
                                      "trireme tuning 1\na\tb\tc\tnan\n",
                                      "trireme tuning 1\na\tb\tc\n",
                                      "trireme tuning 1\na\tb\tc\t1",
                                      "trireme tuning 1\n\tb\tc\t1\n"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        FILE *f = fopen(path, "w");
        fputs(bad[i], f);
        fclose(f);
        trm_error err;
        trmi_tuning *t = open_tuning(2);
        assert_int_equal(trmi_tuning_count(t), 0);
        trmi_tuning_add(t, "p", "a", 1);
        CHECK_OK(trmi_tuning_save(t, &err), err);
        trmi_tuning_destroy(t);
        t = open_tuning(2);
        expect_seconds(t, "p", "a", 1);
        trmi_tuning_destroy(t);
    }
}

static void without_file(void **state) {
    trm_error err;
    trmi_tuning *t = NULL;
    CHECK_OK(trmi_tuning_create("", 2, "lib", "isa", &t, &err), err);
    assert_false(trmi_tuning_has_file(t));
    trmi_tuning_add(t, "p", "a", 1);
    CHECK_OK(trmi_tuning_save(t, &err), err);
    trmi_tuning_destroy(t);
    CHECK_OK(trmi_tuning_create("/dev/null/dir/file", 2, "lib", "isa", &t, &err), err);
    trmi_tuning_add(t, "p", "a", 1);
    CHECK_FAILS(trmi_tuning_save(t, &err), TRM_IO, err, "/dev/null/dir");
    CHECK_OK(trmi_tuning_save(t, &err), err); /* tried once */
    trmi_tuning_destroy(t);
}

/* Replaces a word of the file; returns whether it was there. */
static bool replace_word(const char *file, const char *word, const char *by) {
    char text[4096] = {0};
    FILE *f = fopen(file, "r");
    assert_non_null(f);
    size_t size = fread(text, 1, sizeof text - 1, f);
    fclose(f);
    text[size] = '\0';
    char *at = strstr(text, word);
    if (at != NULL) {
        f = fopen(file, "w");
        fprintf(f, "%.*s%s%s", (int)(at - text), text, by, at + strlen(word));
        fclose(f);
    }
    return at != NULL;
}

/* Makes a back-end with the file and the choices of a run; returns what it decided. */
static bool pairs_of(const char *choices) {
    trm_error err;
    trmi_backend *backend;
    CHECK_OK(trmi_backend_onednn(1, path, &backend, &err), err);
    if (choices != NULL) {
        CHECK_OK(trmi_backend_onednn_keep(backend, choices, &err), err);
    }
    bool pairs = trmi_onednn_of(backend)->pairs;
    backend->destroy(backend);
    return pairs;
}

/* Whether layers multiply pairs of bfloat16 is read from the run's choices, else from the machine's
 * file; measured only where neither has it. */
static void pairs_are_decided_once(void **state) {
    static const char *const words[] = {"\twidened\t", "\tpairs\t"};
    char choices[80], lock[96];
    (void)state;
    snprintf(choices, sizeof choices, "%s.choices", path);
    snprintf(lock, sizeof lock, "%s.lock", choices);
    bool pairs = pairs_of(choices);
    assert_int_equal(replace_word(path, words[pairs], words[!pairs]), trmi_gemm_pairs() != NULL);
    if (trmi_gemm_pairs() == NULL) {
        assert_false(pairs);
    } else {
        assert_int_equal(pairs_of(NULL), !pairs);   /* as the file says */
        assert_int_equal(pairs_of(choices), pairs); /* as the run had it */
        assert_int_equal(unlink(choices), 0);
        assert_int_equal(pairs_of(choices), !pairs);
        assert_true(replace_word(choices, words[!pairs], words[pairs]));
        assert_int_equal(pairs_of(choices), pairs);
    }
    unlink(choices);
    unlink(lock);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(choices_survive_a_restart, set_path, remove_files),
        cmocka_unit_test_setup_teardown(what_is_known_is_not_written, set_path, remove_files),
        cmocka_unit_test_setup_teardown(processes_merge_their_lines, set_path, remove_files),
        cmocka_unit_test_setup_teardown(concurrent_writers, set_path, remove_files),
        cmocka_unit_test_setup_teardown(another_machine, set_path, remove_files),
        cmocka_unit_test_setup_teardown(many_lines, set_path, remove_files),
        cmocka_unit_test_setup_teardown(damaged_is_empty, set_path, remove_files),
        cmocka_unit_test(without_file),
        cmocka_unit_test_setup_teardown(pairs_are_decided_once, set_path, remove_files),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
