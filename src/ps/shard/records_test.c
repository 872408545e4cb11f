/* SPDX-License-Identifier: Apache-2.0 */
/* Small logs: torn, damaged, cut short, not there. */
#include "check.h"

#include "base/error.h"
#include "base/os.h"
#include "ps/shard/records.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

typedef struct entry {
    uint32_t value, check;
} entry;

typedef struct sum {
    uint32_t total, until;
} sum;

static trm_status add_value(void *context, const uint8_t *record, size_t bytes, trm_error *err) {
    sum *s = context;
    entry e;
    memcpy(&e, record, bytes);
    if (e.value == s->until) {
        return TRM_END;
    }
    s->total += e.value;
    return e.value != 99 ? TRM_OK : TRMI_FAIL(err, TRM_CORRUPT, "ninety-nine");
}

static const trmi_record_form form = {
    .bytes = sizeof(entry), .check_bytes = sizeof(uint32_t), .take = add_value};
static char path[64];

static void append_entry(int fd, uint32_t value, size_t bytes) {
    trm_error err;
    entry e = {.value = value};
    trmi_record_seal(&e, sizeof e, sizeof e.check);
    CHECK_OK(trmi_records_append(fd, &e, bytes, value % 2 == 0, "log", &err), err);
}

static uint32_t sum_entries(uint32_t until, size_t *end) {
    sum s = {.until = until};
    trm_error err;
    CHECK_OK(trmi_records_each(path, 1 << 20, &form, &s, end, &err), err);
    return s.total;
}

static void logs_end_where_they_are_torn(void **state) {
    trm_error err;
    size_t end;
    int fd;
    snprintf(path, sizeof path, "/tmp/ps-records-%d", (int)getpid());
    assert_int_equal(sum_entries(0, &end), 0); /* no file */
    CHECK_OK(trmi_records_open(path, end, &fd, &err), err);
    append_entry(fd, 1, sizeof(entry));
    append_entry(fd, 2, sizeof(entry));
    append_entry(fd, 4, sizeof(entry) - 1);
    close(fd);
    assert_int_equal(sum_entries(0, &end), 3);
    assert_int_equal(end, 2 * sizeof(entry));
    CHECK_OK(trmi_records_open(path, end, &fd, &err), err); /* the torn one is gone */
    append_entry(fd, 8, sizeof(entry));
    append_entry(fd, 16, sizeof(entry));
    close(fd);
    assert_int_equal(sum_entries(0, &end), 27);
    assert_int_equal(sum_entries(8, &end), 3); /* not wanted from there on */
    assert_int_equal(end, 2 * sizeof(entry));
    fd = open(path, O_WRONLY);
    assert_int_equal(pwrite(fd, "x", 1, sizeof(entry)), 1);
    assert_int_equal(sum_entries(0, &end), 1); /* damaged: what follows is of no use */
    CHECK_OK(trmi_records_open(path, end, &fd, &err), err);
    append_entry(fd, 99, sizeof(entry));
    close(fd);
    sum s = {0};
    CHECK_FAILS(trmi_records_each(path, 1 << 20, &form, &s, &end, &err), TRM_CORRUPT, err,
                "ninety-nine");
    append_entry(-1, 5, sizeof(entry)); /* no log is kept */
    unlink(path);
}

static void records_after_one_that_did_not_fit_are_read(void **state) {
    trm_error err;
    size_t end;
    int fd;
    entry e = {.value = 7};
    struct rlimit all, few;
    snprintf(path, sizeof path, "/tmp/ps-records-%d", (int)getpid());
    CHECK_OK(trmi_records_open(path, 0, &fd, &err), err);
    append_entry(fd, 1, sizeof(entry));
    trmi_record_seal(&e, sizeof e, sizeof e.check);
    signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &all);
    few = all;
    few.rlim_cur = sizeof e + 3; /* 3 bytes of the second record fit */
    setrlimit(RLIMIT_FSIZE, &few);
    assert_int_not_equal(trmi_records_append(fd, &e, sizeof e, false, "log", &err), TRM_OK);
    setrlimit(RLIMIT_FSIZE, &all);
    append_entry(fd, 2, sizeof(entry));
    close(fd);
    assert_int_equal(sum_entries(0, &end), 3);
    unlink(path);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(logs_end_where_they_are_torn),
        cmocka_unit_test(records_after_one_that_did_not_fit_are_read),
    };
    return cmocka_run_group_tests_name("ps records", tests, NULL, NULL);
}
