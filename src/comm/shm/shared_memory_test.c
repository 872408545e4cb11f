/* SPDX-License-Identifier: Apache-2.0 */
/* Tests of shared memory between processes: what is not a sealed file of this user, of mode 0600
 * and of the size that was announced, is never mapped, and what is can never be cut short. */

#include "comm/shm/shared_memory.h"

#include "check.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { BYTES = 1 << 20 };

static void expect_refusal(int64_t pid, int fd, const char *why) {
    trm_error err;
    int opened;
    CHECK_FAILS(trmi_shared_open(pid, fd, BYTES, &opened, &err), TRM_CORRUPT, err, why);
}

static void both_see_the_same_bytes(void **state) {
    (void)state;
    trm_error err;
    int made, opened;
    CHECK_OK(trmi_shared_create("test", BYTES, &made, &err), err);
    CHECK_OK(trmi_shared_open(getpid(), made, BYTES, &opened, &err), err);
    assert_int_equal(pwrite(made, "words", 5, BYTES - 5), 5);
    char words[5];
    assert_int_equal(pread(opened, words, 5, BYTES - 5), 5);
    assert_memory_equal(words, "words", 5);
    close(made);
    close(opened);
}

/* A peer that has mapped the memory cannot be killed by SIGBUS. */
static void it_cannot_be_cut_short(void **state) {
    (void)state;
    trm_error err;
    int made, opened;
    CHECK_OK(trmi_shared_create("test", BYTES, &made, &err), err);
    CHECK_OK(trmi_shared_open(getpid(), made, BYTES, &opened, &err), err);
    const off_t sizes[] = {0, BYTES / 2, 2 * BYTES};
    for (int i = 0; i < 3; i++) {
        errno = 0;
        assert_true(ftruncate(made, sizes[i]) != 0 && errno == EPERM);
        errno = 0;
        assert_true(ftruncate(opened, sizes[i]) != 0 && errno == EPERM);
    }
    close(made);
    close(opened);
}

static void other_files_are_refused(void **state) {
    (void)state;
    trm_error err;
    int opened, ends[2];
    char path[] = "/dev/shm/trireme-test-XXXXXX";
    int file = mkstemp(path);
    assert_true(file >= 0 && ftruncate(file, BYTES) == 0);
    unlink(path);
    expect_refusal(getpid(), file, "its size is not sealed");
    close(file);

    int loose = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    assert_true(loose >= 0 && fchmod(loose, 0600) == 0 && ftruncate(loose, BYTES) == 0);
    expect_refusal(getpid(), loose, "its size is not sealed");
    assert_int_equal(fcntl(loose, F_ADD_SEALS, F_SEAL_GROW), 0); /* it may still become shorter */
    expect_refusal(getpid(), loose, "its size is not sealed");
    close(loose);

    int made;
    CHECK_OK(trmi_shared_create("test", BYTES / 2, &made, &err), err);
    expect_refusal(getpid(), made, "another size");
    close(made);
    CHECK_OK(trmi_shared_create("test", BYTES, &made, &err), err);
    assert_int_equal(fchmod(made, 0644), 0);
    expect_refusal(getpid(), made, "its mode is not 0600");
    close(made);

    assert_int_equal(pipe(ends), 0);
    expect_refusal(getpid(), ends[1], "no memory file");
    close(ends[0]);
    close(ends[1]);
    CHECK_FAILS(trmi_shared_open(getpid(), 100000, BYTES, &opened, &err), TRM_PEER, err,
                "has ended or has closed it");
}

/* A process that has ended, and that its parent has not waited for, is a lost peer, also for a user
 * whom the kernel does not let look into it. */
static void memory_of_a_zombie_is_lost(void **state) {
    trm_error err;
    int opened;
    siginfo_t ended;
    (void)state;
    pid_t child = fork();
    if (child == 0) {
        _exit(0);
    }
    assert_int_equal(waitid(P_PID, (id_t)child, &ended, WEXITED | WNOWAIT), 0);
    CHECK_FAILS(trmi_shared_open(child, 3, BYTES, &opened, &err), TRM_PEER, err, "has ended");
    assert_int_equal(waitpid(child, NULL, 0), child);
}

/* Needs root: a process of another user offers memory that is right in all else. */
static void another_owner_is_refused(void **state) {
    (void)state;
    if (geteuid() != 0) {
        skip();
    }
    int told[2], done[2], fd = -1;
    assert_true(pipe(told) == 0 && pipe(done) == 0);
    pid_t child = fork();
    if (child == 0) {
        if (setgid(65534) != 0 || setuid(65534) != 0 ||
            trmi_shared_create("test", BYTES, &fd, NULL) != TRM_OK) {
            fd = -1;
        }
        ssize_t moved = write(told[1], &fd, sizeof fd);
        close(done[1]);
        moved += read(done[0], &fd, 1);
        _exit(moved == sizeof fd ? 0 : 1);
    }
    assert_int_equal(read(told[0], &fd, sizeof fd), sizeof fd);
    assert_true(fd >= 0);
    expect_refusal(child, fd, "another user");
    close(done[1]);
    assert_int_equal(waitpid(child, NULL, 0), child);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(both_see_the_same_bytes),  cmocka_unit_test(it_cannot_be_cut_short),
        cmocka_unit_test(other_files_are_refused),  cmocka_unit_test(memory_of_a_zombie_is_lost),
        cmocka_unit_test(another_owner_is_refused),
    };
    return cmocka_run_group_tests_name("shared memory", tests, NULL, NULL);
}
