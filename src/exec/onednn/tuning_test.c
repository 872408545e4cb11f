/* The tuning file: what was added is found, also by the next process and beside other machines. */
#include "check.h"

#include "exec/onednn/tuning.h"

#include <sys/stat.h>
#include <unistd.h>

static char path[64];

static int setup(void **state) {
    snprintf(path, sizeof path, "/tmp/trireme_tuning_%d", (int)getpid());
    unlink(path);
    return 0;
}
static int teardown(void **state) {
    unlink(path);
    return 0;
}

static trmi_tuning *opened(int threads) {
    trm_error err;
    trmi_tuning *t = NULL;
    CHECK_OK(trmi_tuning_create(path, threads, "lib 1", "isa", &t, &err), err);
    return t;
}

static void expect(trmi_tuning *t, const char *problem, const char *algorithm, double seconds) {
    const char *found = NULL;
    double s = -1;
    assert_true(trmi_tuning_find(t, problem, &found, &s));
    assert_string_equal(found, algorithm);
    CHECK_CLOSE(s, seconds, 1e-3);
}

static void survives(void **state) {
    trm_error err;
    const char *name;
    double s;
    trmi_tuning *t = opened(2);
    assert_false(trmi_tuning_find(t, "conv a", &name, &s));
    trmi_tuning_add(t, "conv a", "direct", 0.5);
    trmi_tuning_add(t, "conv a", "gemm", 0.25);
    trmi_tuning_add(t, "conv b", "winograd4x3", 0.125);
    expect(t, "conv a", "gemm", 0.25);
    CHECK_OK(trmi_tuning_save(t, &err), err);
    trmi_tuning_destroy(t);

    t = opened(2);
    assert_int_equal(trmi_tuning_count(t), 2);
    expect(t, "conv a", "gemm", 0.25);
    expect(t, "conv b", "winograd4x3", 0.125);
    trmi_tuning_destroy(t);
}

/* Two processes with different thread counts write at the same time: nobody loses a line. */
static void merges(void **state) {
    trm_error err;
    const char *name;
    double s;
    trmi_tuning *one = opened(1), *two = opened(2);
    trmi_tuning_add(one, "p", "a", 1);
    trmi_tuning_add(two, "p", "b", 2);
    CHECK_OK(trmi_tuning_save(one, &err), err);
    CHECK_OK(trmi_tuning_save(two, &err), err);
    trmi_tuning_destroy(one);
    trmi_tuning_destroy(two);
    one = opened(1), two = opened(2);
    expect(one, "p", "a", 1);
    expect(two, "p", "b", 2);
    assert_false(trmi_tuning_find(one, "q", &name, &s));
    trmi_tuning_destroy(one);
    trmi_tuning_destroy(two);
}

static void damaged_is_empty(void **state) {
    static const char *const bad[] = {"", "something else\n", "trireme tuning 1\na\tb\tc\tnan\n",
                                      "trireme tuning 1\na\tb\tc\n", "trireme tuning 1\na\tb\tc\t1",
                                      "trireme tuning 1\n\tb\tc\t1\n"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        FILE *f = fopen(path, "w");
        fputs(bad[i], f);
        fclose(f);
        trm_error err;
        trmi_tuning *t = opened(2);
        assert_int_equal(trmi_tuning_count(t), 0);
        trmi_tuning_add(t, "p", "a", 1);
        CHECK_OK(trmi_tuning_save(t, &err), err);
        trmi_tuning_destroy(t);
        t = opened(2);
        expect(t, "p", "a", 1);
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
    CHECK_OK(trmi_tuning_create("/nonexistent/dir/file", 2, "lib", "isa", &t, &err), err);
    trmi_tuning_add(t, "p", "a", 1);
    CHECK_FAILS(trmi_tuning_save(t, &err), TRM_IO, err, "/nonexistent/dir");
    CHECK_OK(trmi_tuning_save(t, &err), err); /* tried once */
    trmi_tuning_destroy(t);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(survives, setup, teardown),
        cmocka_unit_test_setup_teardown(merges, setup, teardown),
        cmocka_unit_test_setup_teardown(damaged_is_empty, setup, teardown),
        cmocka_unit_test(without_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
