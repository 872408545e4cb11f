/* SPDX-License-Identifier: Apache-2.0 */
/* base/os.h: the platform table. Everything that touches files durably goes through it, so that a
 * test can be just another platform (full disk, failing fsync, a cut at the k-th call). */
#ifndef TRMI_BASE_OS_H
#define TRMI_BASE_OS_H

#include "trireme/base.h"

#include <sys/types.h>

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

/* The real thing. Functions that take a `const trmi_os *` accept NULL for it. */
const trmi_os *trmi_os_real(void);

/* Writes all bytes (short writes and EINTR repeated). */
trm_status trmi_os_write_all(const trmi_os *os, int fd, const void *data, size_t bytes,
                             const char *path, trm_error *err);
/* Atomic and durable small file: temporary name, write, fsync, rename, fsync of the directory. */
trm_status trmi_os_replace_file(const trmi_os *os, const char *path, const void *data, size_t bytes,
                                trm_error *err);
/* The error of a file that could not be created, from errno: says when it is the folder that is
 * missing. */
trm_status trmi_os_cannot_create(const char *path, trm_error *err);
/* mkdir -p. */
trm_status trmi_os_make_dirs(const trmi_os *os, const char *path, trm_error *err);
/* The same for the directory that a file is to be in. */
trm_status trmi_os_make_parent(const trmi_os *os, const char *path, trm_error *err);
/* The folder of `file`, made with mode 0700 if it is not there, can be written by this user (or
 * root) alone, or is sticky as /tmp.
 *   errors  INVALID */
trm_status trmi_os_private_dir(const char *file, trm_error *err);
trm_status trmi_os_fsync_dir(const trmi_os *os, const char *path, trm_error *err);
/* Removes a file or a whole directory tree; missing is fine. Never follows links. */
trm_status trmi_os_remove_tree(const trmi_os *os, const char *path, trm_error *err);

/* Refuses what a rename would destroy: a directory, /dev/null.   error  IO */
trm_status trmi_os_replaceable(const char *path, trm_error *err);

/* A regular file for reading, with its length. A pipe without a writer is refused, not waited for.
 *   owns  caller closes *fd */
trm_status trmi_os_open_regular(const char *path, int *fd, int64_t *bytes, trm_error *err);
/* The whole file as bytes, terminated by an extra zero byte; refuses more than `limit` bytes.
 *   owns  caller frees *out with trmi_free */
trm_status trmi_os_read_file(const char *path, size_t limit, uint8_t **out, size_t *bytes,
                             trm_error *err);

/* Monotonic and wall-clock seconds. */
double trmi_os_now(void);
double trmi_os_wall(void);

/* CPUs that this process may use: the smaller of its affinity mask and its cgroup quota, >= 1. */
int trmi_os_cpu_count(void);
/* The first number of OMP_NUM_THREADS; 0 where it is not set, or no number from 1 to 1024. */
int trmi_os_openmp_threads(void);
/* Does the environment say how OpenMP's threads wait (OMP_WAIT_POLICY, GOMP_SPINCOUNT,
 * KMP_BLOCKTIME)? */
bool trmi_os_openmp_waits(void);
/* Seconds that the calling thread has waited for a CPU while it could have run; -1 where the
 * kernel does not say. */
double trmi_os_cpu_wait(void);
/* Seconds that the calling thread may run before another one that is ready gets its CPU; 0: the
 * scheduler does not tell (Linux before 6.12, policies other than SCHED_OTHER and SCHED_BATCH). And
 * asks for so many, 0.1 to 100 ms; its share of the CPU stays what it is. False: nothing has
 * changed. */
double trmi_os_slice(void);
bool trmi_os_set_slice(double seconds);
/* Bytes of memory that this process may use: the smallest of RAM, its cgroup's limit and ulimit -v.
 */
int64_t trmi_os_memory_bytes(void);
/* Can so much more be had now? For what has no answer when it cannot: libraries that do not look
 * whether malloc gave them something, OpenMP that ends the program when a thread cannot be started.
 * Costs two system calls. */
bool trmi_os_has_room(size_t bytes);
/* Bytes of address space that starting a thread takes. */
size_t trmi_os_thread_bytes(void);
/* Resident bytes of this process: the most so far, and now. */
int64_t trmi_os_peak_bytes(void);
int64_t trmi_os_resident_bytes(void);
/* Of the resident bytes, what other processes count for that have the same shared memory: of what n
 * ranks share and touch, (n - 1) / n. 0 where the kernel does not say; milliseconds. */
int64_t trmi_os_shared_bytes(void);
/* Bytes that this process has made: its anonymous pages, and the memory files (memfd) that it has
 * open, whoever looks at them. No files: programs, libraries. */
int64_t trmi_os_own_bytes(void);
/* Gives free pages of the heap back to the system: growth of the resident bytes is then all that is
 * taken. */
void trmi_os_trim(void);
/* "$XDG_CACHE_HOME/trireme" or "$HOME/.cache/trireme", made if missing; false without either. */
bool trmi_os_cache_dir(char *path, size_t size);

#endif
