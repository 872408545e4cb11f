/* SPDX-License-Identifier: Apache-2.0 */
/* Sealed memory files: creating and opening them. The header has a drawing, and the reason for each
 * check.
 *
 * A file is sealed before another process hears of it, and its size never changes afterwards. The
 * process that opens it trusts nothing: kind, owner, mode, seals and size are checked on the
 * descriptor that is mapped, not only on the path. */
#define _GNU_SOURCE /* memfd_create, F_GET_SEALS, O_PATH */
#include "comm/shm/shared_memory.h"

#include "base/error.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* The seals of every shared memory file: its size is fixed, and so is the set of seals. */
enum { SIZE_SEALS = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL };

/* Contract in shared_memory.h. The seals are set last: the size must not change after them. */
trm_status trmi_shared_create(const char *name, size_t bytes, int *fd, trm_error *err) {
    int made = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (made < 0 || fchmod(made, 0600) != 0 || ftruncate(made, (off_t)bytes) != 0 ||
        fcntl(made, F_ADD_SEALS, SIZE_SEALS) != 0) {
        trm_status status = TRMI_FAIL_SYS(err, "no shared memory (memfd) for %zu bytes", bytes);
        if (made >= 0) {
            close(made);
        }
        return status;
    }
    *fd = made;
    return TRM_OK;
}

/* Returns NULL if the open file is sealed and has `bytes`, otherwise a text that says what is
 * wrong. */
static const char *check_file(int fd, size_t bytes, const struct stat *info) {
    int seals = fcntl(fd, F_GET_SEALS);
    return seals < 0 || (seals & SIZE_SEALS) != SIZE_SEALS ? "its size is not sealed"
           : (uint64_t)info->st_size != bytes              ? "another size was announced"
                                                           : NULL;
}

/* Returns whether the kernel refuses a look into a process of this user: it has ended, and its
 * parent has not waited for it. */
static bool is_zombie(int64_t pid, int error) {
    char path[64];
    struct stat info;
    snprintf(path, sizeof path, "/proc/%lld", (long long)pid);
    return error == EACCES && stat(path, &info) == 0 && info.st_uid == geteuid();
}

/* Contract in shared_memory.h. The descriptor is another process's, and may be replaced at any
 * time by one that this process must not open; so its type, owner and mode are checked before it
 * is opened for writing, and its size and seals afterwards. */
trm_status trmi_shared_open(int64_t pid, int32_t fd, size_t bytes, int *out, trm_error *err) {
    char path[64], own[64];
    struct stat info;
    snprintf(path, sizeof path, "/proc/%lld/fd/%d", (long long)pid, fd);
    /* Open with O_PATH first, so that a file that is not a regular file of this user (a FIFO, a
     * device) is never really opened. O_NOFOLLOW is not possible: /proc/PID/fd/FD is itself a
     * symbolic link. */
    int looked = open(path, O_PATH | O_CLOEXEC), opened = -1;
    int error = looked < 0 ? errno : 0;
    if (error == ENOENT || is_zombie(pid, error)) { /* an elastic job goes on without it */
        return TRMI_FAIL(
            err, TRM_PEER,
            "%s: the process that shares this memory has ended or has closed it, or has "
            "another pid namespace",
            path);
    }
    errno = error;
    if (looked < 0 || fstat(looked, &info) != 0) {
        trm_status status =
            TRMI_FAIL_SYS(err,
                          "%s: cannot open the shared memory of that process (processes that "
                          "share memory need one user and one pid namespace)",
                          path);
        if (looked >= 0) {
            close(looked);
        }
        return status;
    }
    const char *wrong = !S_ISREG(info.st_mode)           ? "it is no memory file"
                        : info.st_uid != geteuid()       ? "it belongs to another user"
                        : (info.st_mode & 07777) != 0600 ? "its mode is not 0600"
                                                         : NULL;
    /* Map the same file, for reading and writing. */
    if (wrong == NULL) {
        snprintf(own, sizeof own, "/proc/self/fd/%d", looked);
        opened = open(own, O_RDWR | O_CLOEXEC);
        if (opened < 0 && (errno == EMFILE || errno == ENFILE || errno == ENOMEM)) {
            trm_status status = TRMI_FAIL_SYS(err, "%s: cannot open the shared memory", path);
            close(looked);
            return status;
        }
        wrong = opened < 0 ? "it cannot be written" : check_file(opened, bytes, &info);
    }
    close(looked);
    if (wrong != NULL) {
        if (opened >= 0) {
            close(opened);
        }
        return TRMI_FAIL(err, TRM_CORRUPT,
                         "%s: not the %zu bytes of shared memory that were announced: %s", path,
                         bytes, wrong);
    }
    *out = opened;
    return TRM_OK;
}
