/* SPDX-License-Identifier: Apache-2.0 */
/* base/os.h: the operating system: durable files, clocks, CPUs, memory of the process
 * (os_files.c, os_linux.c). Facts about other processes are in base/process.h.
 *
 * Everything that writes files durably goes through the table trmi_os, so that tests can replace
 * it (full disk, failing fsync, a crash at the k-th call). Where the kernel does not report a
 * number, the comment of the function says what it returns instead. Times are seconds, sizes
 * bytes. Any thread may call any function. */
#ifndef TRMI_BASE_OS_H
#define TRMI_BASE_OS_H

#include "trireme/base.h"

#include <pthread.h>
#include <sys/types.h>

/* File operations of a platform. */
typedef struct trmi_os {
    void *context;
    /* POSIX contracts: -1 and errno on failure. `flags` and `mode` as open(2). */
    int (*open)(void *context, const char *path, int flags, int mode);
    ssize_t (*write)(void *context, int fd, const void *data, size_t bytes);
    int (*fsync)(void *context, int fd);
    int (*close)(void *context, int fd);
    int (*rename)(void *context, const char *from, const char *to);
    int (*mkdir)(void *context, const char *path, int mode);
    int (*unlink)(void *context, const char *path);
    int (*rmdir)(void *context, const char *path);
} trmi_os;

/* Returns the table of the real system. Functions that take a `const trmi_os *` accept NULL for it.
 */
const trmi_os *trmi_os_real(void);

/* Writes all bytes; repeats short writes and EINTR. path: for messages. */
trm_status trmi_os_write_all(const trmi_os *os, int fd, const void *data, size_t bytes,
                             const char *path, trm_error *err);
/* Replaces a small file atomically and durably: temporary name, write, fsync, rename, fsync of the
 * directory. */
trm_status trmi_os_replace_file(const trmi_os *os, const char *path, const void *data, size_t bytes,
                                trm_error *err);
/* Writes the error of a file that could not be created, from errno; the message names a missing
 * directory as such. */
trm_status trmi_os_cannot_create(const char *path, trm_error *err);
/* Makes a directory and its parents, as mkdir -p. */
trm_status trmi_os_make_dirs(const trmi_os *os, const char *path, trm_error *err);
/* Makes the directory of a file and its parents. */
trm_status trmi_os_make_parent(const trmi_os *os, const char *path, trm_error *err);
/* Checks the directory of `file`, which is made with mode 0700 if it does not exist: only this user
 * (or root) can write to it, or it is sticky, as /tmp.   errors  INVALID */
trm_status trmi_os_private_dir(const char *file, trm_error *err);
/* Flushes a directory to disk. */
trm_status trmi_os_fsync_dir(const trmi_os *os, const char *path, trm_error *err);
/* Removes a file or a directory tree; a missing one is fine. Does not follow links. */
trm_status trmi_os_remove_tree(const trmi_os *os, const char *path, trm_error *err);

/* Checks that renaming onto a path would not destroy a directory or a device.   errors  IO */
trm_status trmi_os_replaceable(const char *path, trm_error *err);
/* Checks before long work that its result can be written: contract of trm_path_check.
 *   errors  IO, INVALID */
trm_status trmi_os_check_path(const char *path, bool folder, trm_error *err);

/* Opens a regular file for reading and returns its length. Other files are refused; a pipe without
 * a writer does not block.
 *   owns    the caller closes *fd
 *   errors  IO */
trm_status trmi_os_open_regular(const char *path, int *fd, int64_t *bytes, trm_error *err);
/* Reads a whole file, with an additional zero byte at the end; refuses more than `limit` bytes.
 *   owns    the caller frees *out by trmi_free
 *   errors  IO, CORRUPT (too long), NOMEM */
trm_status trmi_os_read_file(const char *path, size_t limit, uint8_t **out, size_t *bytes,
                             trm_error *err);

/* Return monotonic time and wall-clock time, in seconds. */
double trmi_os_now(void);
double trmi_os_wall(void);
/* Returns the CPU seconds of the calling thread, which other processes do not change. */
double trmi_os_thread_now(void);
/* Makes a condition variable for trmi_os_wait: its clock is that of trmi_os_now, which goes on
 * steadily when the wall clock is set. */
void trmi_os_make_condition(pthread_cond_t *condition);
/* Waits for `condition` until `deadline` (trmi_os_now) at the latest, or for a short time without a
 * reason, as pthread_cond_timedwait. Returns false if the deadline has passed. */
bool trmi_os_wait(pthread_cond_t *condition, pthread_mutex_t *mutex, double deadline);

/* Returns the CPUs that this process may use: the smaller of its affinity mask and its cgroup
 * quota, at least 1. */
int trmi_os_cpu_count(void);
/* Returns the first number of OMP_NUM_THREADS; 0 if it is not set or not from 1 to 1024. */
int trmi_os_openmp_threads(void);
/* Returns whether the environment sets how OpenMP threads wait (OMP_WAIT_POLICY, GOMP_SPINCOUNT,
 * KMP_BLOCKTIME). */
bool trmi_os_openmp_waits(void);
/* Returns the seconds that the calling thread was runnable but had no CPU; -1 if the kernel does
 * not report it. */
double trmi_os_cpu_wait(void);
/* Return and set the time slice of the calling thread in seconds: how long it may run before
 * another runnable thread gets its CPU. 0 / false: the scheduler has no such setting (Linux before
 * 6.12, policies other than SCHED_OTHER and SCHED_BATCH). The kernel accepts 0.1 to 100 ms; the
 * share of the CPU does not change. */
double trmi_os_slice(void);
bool trmi_os_set_slice(double seconds);
/* Returns the bytes of memory that this process may use: the smallest of RAM, cgroup limit and
 * ulimit -v. */
int64_t trmi_os_memory_bytes(void);
/* Returns whether `bytes` more can be mapped now. For code that cannot handle failure: libraries
 * that do not check malloc, OpenMP, which ends the program if it cannot start a thread. Costs two
 * system calls. */
bool trmi_os_has_room(size_t bytes);
/* Returns the address space that starting a thread takes, in bytes. */
size_t trmi_os_thread_bytes(void);
/* Return the resident bytes of this process: peak, and present. */
int64_t trmi_os_peak_bytes(void);
int64_t trmi_os_resident_bytes(void);
/* Returns the resident bytes of this process that are pages of files: the code of the program and
 * of its libraries. They come when code runs for the first time. */
int64_t trmi_os_file_bytes(void);
/* Returns the part of the resident bytes that other processes account for: pages of memory files
 * that they opened and this process has mapped. 0 if the kernel does not report it. */
int64_t trmi_os_shared_bytes(void);
/* Returns the bytes that this process allocated: its anonymous pages, and the memory files (memfd)
 * that it has open, whichever process uses them. Mapped files, programs and libraries do not count.
 */
int64_t trmi_os_own_bytes(void);
/* Returns free pages of the heap to the system, so that later growth of the resident bytes shows
 * real allocations. */
void trmi_os_trim(void);
/* Writes the cache directory, "$XDG_CACHE_HOME/trireme" or "$HOME/.cache/trireme", and makes it if
 * it is missing; false if there is neither. */
bool trmi_os_cache_dir(char *path, size_t size);

#endif
