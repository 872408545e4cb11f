/* SPDX-License-Identifier: Apache-2.0 */
/* The operating system on Linux (base/os.h), in this order:
 *
 *   files      durable files through the table trmi_os: temporary file, flush, rename, flush of the
 *              folder; so readers see the old content or the new one, also after a crash
 *   folders    made level by level, private ones checked, trees removed
 *   time       the monotonic and the wall clock
 *   CPUs       affinity mask and quota of the control group, OpenMP's variables, time slices
 *   memory     limits of this process, resident, peak and shared bytes
 *
 * Functions that write files use the table, because tests replace it to make one of its calls fail
 * (tests/fault_os.h). Functions that read files use the system calls directly.
 *
 * Invariants: a file of /proc or /sys that is missing, or has another form, gives the documented
 * default, never an error. Nothing is kept between calls, so any thread may call any function. */
#define _GNU_SOURCE
#include "base/os.h"

#include "base/error.h"
#include "base/memory.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#ifdef __GLIBC__
#include <malloc.h>
#endif
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* ---- the table of the real system: each function forwards to the system call ---- */

/* The functions of the table: the system calls, with a context that they do not need. */
static int real_open(void *context, const char *path, int flags, int mode) {
    (void)context;
    return open(path, flags | O_CLOEXEC, mode);
}
static ssize_t real_write(void *context, int fd, const void *data, size_t bytes) {
    (void)context;
    return write(fd, data, bytes);
}
static int real_fsync(void *context, int fd) {
    (void)context;
    return fsync(fd);
}
static int real_close(void *context, int fd) {
    (void)context;
    return close(fd);
}
static int real_rename(void *context, const char *from, const char *to) {
    (void)context;
    return rename(from, to);
}
static int real_mkdir(void *context, const char *path, int mode) {
    (void)context;
    return mkdir(path, (mode_t)mode);
}
static int real_unlink(void *context, const char *path) {
    (void)context;
    return unlink(path);
}
static int real_rmdir(void *context, const char *path) {
    (void)context;
    return rmdir(path);
}

const trmi_os *trmi_os_real(void) {
    static const trmi_os table = {
        .open = real_open,
        .write = real_write,
        .fsync = real_fsync,
        .close = real_close,
        .rename = real_rename,
        .mkdir = real_mkdir,
        .unlink = real_unlink,
        .rmdir = real_rmdir,
    };
    return &table;
}

/* Returns the table, or that of the real system for NULL. */
static const trmi_os *choose_table(const trmi_os *os) { return os != NULL ? os : trmi_os_real(); }

/* Contract in os.h. A signal may interrupt a call, and a call may write only a part: both are
 * repeated. */
trm_status trmi_os_write_all(const trmi_os *os, int fd, const void *data, size_t bytes,
                             const char *path, trm_error *err) {
    os = choose_table(os);
    const char *next = data;
    size_t left = bytes;
    while (left > 0) {
        ssize_t wrote = os->write(os->context, fd, next, left);
        if (wrote < 0 && errno == EINTR) {
            continue;
        }
        if (wrote <= 0) {
            errno = wrote == 0 ? ENOSPC : errno;
            return TRMI_FAIL_SYS(err, "%s: cannot write %zu of %zu bytes", path, left, bytes);
        }
        next += wrote;
        left -= (size_t)wrote;
    }
    return TRM_OK;
}

/* Contract in os.h. On Linux a new or renamed file is durable only after its directory is
 * flushed. */
trm_status trmi_os_fsync_dir(const trmi_os *os, const char *path, trm_error *err) {
    os = choose_table(os);
    int fd = os->open(os->context, path, O_RDONLY | O_DIRECTORY, 0);
    if (fd < 0) {
        return TRMI_FAIL_SYS(err, "%s: cannot open the directory", path);
    }
    trm_status status = TRM_OK;
    if (os->fsync(os->context, fd) != 0) {
        status = TRMI_FAIL_SYS(err, "%s: cannot flush the directory to disk", path);
    }
    os->close(os->context, fd);
    return status;
}

/* Writes the directory of a path; "." if it has none. */
static void write_parent(const char *path, char *parent, size_t size) {
    snprintf(parent, size, "%s", path);
    char *slash = strrchr(parent, '/');
    if (slash == NULL) {
        snprintf(parent, size, ".");
    } else {
        slash[slash == parent ? 1 : 0] = '\0';
    }
}

/* Contract in os.h. ENOENT of a call that creates a file means that its folder is missing. */
trm_status trmi_os_cannot_create(const char *path, trm_error *err) {
    return TRMI_FAIL_SYS(
        err, errno == ENOENT ? "%s: cannot create, its folder must be there" : "%s: cannot create",
        path);
}

/* Writes data to the temporary file and flushes it to disk. path: the final name, for messages. */
static trm_status write_and_flush(const trmi_os *os, const char *temporary, const char *path,
                                  const void *data, size_t bytes, trm_error *err) {
    int fd = os->open(os->context, temporary, O_WRONLY | O_CREAT | O_TRUNC, 0644);
    if (fd < 0) {
        return trmi_os_cannot_create(path, err);
    }
    trm_status status = trmi_os_write_all(os, fd, data, bytes, path, err);
    if (status == TRM_OK && os->fsync(os->context, fd) != 0) {
        status = TRMI_FAIL_SYS(err, "%s: cannot flush to disk", path);
    }
    if (os->close(os->context, fd) != 0 && status == TRM_OK) {
        status = TRMI_FAIL_SYS(err, "%s: cannot close", path);
    }
    return status;
}

/* Contract in os.h. A rename would replace a device such as /dev/null by a regular file. */
trm_status trmi_os_replaceable(const char *path, trm_error *err) {
    struct stat info;
    if (stat(path, &info) != 0 || S_ISREG(info.st_mode)) {
        return TRM_OK;
    }
    return TRMI_FAIL(err, TRM_IO, "%s: %s, a file would take its place; give a file's name", path,
                     S_ISDIR(info.st_mode) ? "a directory" : "a device or pipe");
}

/* Contract in os.h. A file is made under a temporary name in its folder; a folder below the nearest
 * one that is there. */
trm_status trmi_os_check_path(const char *path, bool folder, trm_error *err) {
    char place[PATH_MAX];
    struct stat info;
    if (strlen(path) + 32 >= sizeof place) {
        return TRMI_FAIL(err, TRM_INVALID, "%.120s...: the path is too long", path);
    }
    if (!folder) {
        TRMI_TRY(trmi_os_replaceable(path, err));
        write_parent(path, place, sizeof place);
    } else {
        snprintf(place, sizeof place, "%s", path);
    }
    int there = stat(place, &info);
    while (folder && there != 0 && errno == ENOENT && strcmp(place, ".") != 0) {
        char below[PATH_MAX];
        snprintf(below, sizeof below, "%s", place);
        write_parent(below, place, sizeof place);
        there = stat(place, &info);
    }
    if (there == 0 && !S_ISDIR(info.st_mode)) {
        errno = ENOTDIR;
        there = -1;
    }
    if (there != 0 || access(place, W_OK | X_OK) != 0) {
        return folder ? TRMI_FAIL_SYS(err, "%s: cannot make the directory", path)
                      : trmi_os_cannot_create(path, err);
    }
    return TRM_OK;
}

/* Contract in os.h. Readers see the old or the new content: the data are flushed under a temporary
 * name before the rename, and the rename is flushed afterwards. */
trm_status trmi_os_replace_file(const trmi_os *os, const char *path, const void *data, size_t bytes,
                                trm_error *err) {
    os = choose_table(os);
    TRMI_TRY(trmi_os_replaceable(path, err));
    char temporary[PATH_MAX], parent[PATH_MAX];
    int length = snprintf(temporary, sizeof temporary, "%s.tmp.%ld", path, (long)getpid());
    if (length < 0 || (size_t)length >= sizeof temporary) {
        return TRMI_FAIL(err, TRM_INVALID, "%.120s...: the path is too long", path);
    }
    trm_status status = write_and_flush(os, temporary, path, data, bytes, err);
    if (status == TRM_OK && os->rename(os->context, temporary, path) != 0) {
        status = TRMI_FAIL_SYS(err, "%s: cannot rename from %s", path, temporary);
    }
    if (status != TRM_OK) {
        os->unlink(os->context, temporary);
        return status;
    }
    write_parent(path, parent, sizeof parent);
    return trmi_os_fsync_dir(os, parent, err);
}

/* Contract in os.h. Goes through the path level by level. Another process may make a level at the
 * same time (EEXIST). */
trm_status trmi_os_make_dirs(const trmi_os *os, const char *path, trm_error *err) {
    os = choose_table(os);
    char partial[PATH_MAX];
    size_t length = strlen(path);
    if (length == 0 || length >= sizeof partial) {
        return TRMI_FAIL(err, TRM_INVALID, "'%.80s': not a usable directory name", path);
    }
    memcpy(partial, path, length + 1);
    for (size_t i = 1; i <= length; i++) {
        if (partial[i] != '/' && partial[i] != '\0') {
            continue;
        }
        /* Cut the path here: `partial` is the level to make. */
        char kept = partial[i];
        partial[i] = '\0';
        struct stat info;
        bool there = stat(partial, &info) == 0;
        if (there && !S_ISDIR(info.st_mode)) {
            errno = ENOTDIR;
            return TRMI_FAIL_SYS(err, "%s: cannot make the directory", partial);
        }
        if (!there && os->mkdir(os->context, partial, 0777) != 0 && errno != EEXIST) {
            return TRMI_FAIL_SYS(err, "%s: cannot make the directory", partial);
        }
        partial[i] = kept;
    }
    return TRM_OK;
}

/* Contract in os.h. A path without a slash has its folder already. */
trm_status trmi_os_make_parent(const trmi_os *os, const char *path, trm_error *err) {
    char parent[PATH_MAX];
    const char *slash = strrchr(path, '/');
    if (slash == NULL || slash == path) {
        return TRM_OK;
    }
    if ((size_t)(slash - path) >= sizeof parent) {
        return TRMI_FAIL(err, TRM_INVALID, "'%.80s': not a usable file name", path);
    }
    memcpy(parent, path, (size_t)(slash - path));
    parent[slash - path] = '\0';
    return trmi_os_make_dirs(os, parent, err);
}

/* Contract in os.h. A folder that another user can write lets that user replace its files; the
 * sticky bit (as on /tmp) prevents that. */
trm_status trmi_os_private_dir(const char *file, trm_error *err) {
    char dir[PATH_MAX];
    struct stat info;
    write_parent(file, dir, sizeof dir);
    if (mkdir(dir, 0700) != 0 && errno != EEXIST) {
        return TRMI_FAIL(err, TRM_INVALID, "directory %s cannot be made (%s)", dir,
                         strerror(errno));
    }
    if (lstat(dir, &info) != 0 || !S_ISDIR(info.st_mode)) {
        return TRMI_FAIL(err, TRM_INVALID, "directory %s is no directory", dir);
    }
    /* The folder is shared if it is writable for the group or for all, without the sticky bit. */
    bool shared = (info.st_mode & 022) != 0 && (info.st_mode & S_ISVTX) == 0;
    if ((info.st_uid != geteuid() && info.st_uid != 0) || shared) {
        return TRMI_FAIL(
            err, TRM_INVALID,
            "directory %s can be written by others (owner %u, mode %04o); remove it or use another",
            dir, (unsigned)info.st_uid, (unsigned)(info.st_mode & 07777));
    }
    return TRM_OK;
}

/* Contract in os.h. Removes what is in a directory, then the directory. Symbolic links are removed,
 * not followed. A file that another process has removed in the meantime is no error. */
trm_status trmi_os_remove_tree(const trmi_os *os, const char *path, trm_error *err) {
    os = choose_table(os);
    struct stat info;
    if (lstat(path, &info) != 0) {
        return errno == ENOENT ? TRM_OK : TRMI_FAIL_SYS(err, "%s: cannot be examined", path);
    }
    if (!S_ISDIR(info.st_mode)) {
        return os->unlink(os->context, path) == 0 || errno == ENOENT
                   ? TRM_OK
                   : TRMI_FAIL_SYS(err, "%s: cannot remove", path);
    }
    DIR *dir = opendir(path);
    if (dir == NULL) {
        return TRMI_FAIL_SYS(err, "%s: cannot list", path);
    }
    trm_status status = TRM_OK;
    for (struct dirent *entry; status == TRM_OK && (entry = readdir(dir)) != NULL;) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) {
            continue;
        }
        char child[PATH_MAX];
        int length = snprintf(child, sizeof child, "%s/%s", path, entry->d_name);
        status = length < 0 || (size_t)length >= sizeof child
                     ? TRMI_FAIL(err, TRM_INVALID, "%.120s...: the path is too long", path)
                     : trmi_os_remove_tree(os, child, err);
    }
    closedir(dir);
    if (status == TRM_OK && os->rmdir(os->context, path) != 0 && errno != ENOENT) {
        status = TRMI_FAIL_SYS(err, "%s: cannot remove the directory", path);
    }
    return status;
}

/* Contract in os.h. The check is on the open descriptor, because the path may change in between. */
trm_status trmi_os_open_regular(const char *path, int *out, int64_t *bytes, trm_error *err) {
    /* With O_NONBLOCK opening a pipe does not wait for a writer. */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) {
        return TRMI_FAIL_SYS(err, "%s: cannot open", path);
    }
    struct stat info = {0};
    if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
        close(fd);
        /* only this errno is of use in the error */
        errno = S_ISDIR(info.st_mode) ? EISDIR : 0;
        return TRMI_FAIL(err, TRM_IO, "%s: not a regular file", path);
    }
    *out = fd;
    *bytes = (int64_t)info.st_size;
    return TRM_OK;
}

/* Contract in os.h. The size is compared with the limit before memory is taken; a zero byte follows
 * the data, so that text can be parsed. */
trm_status trmi_os_read_file(const char *path, size_t limit, uint8_t **out, size_t *bytes,
                             trm_error *err) {
    int fd;
    int64_t length;
    TRMI_TRY(trmi_os_open_regular(path, &fd, &length, err));
    trm_status status = TRM_OK;
    uint8_t *data = NULL;
    if ((uint64_t)length > limit) {
        status = TRMI_FAIL(err, TRM_CORRUPT, "%s: %lld bytes, at most %zu expected", path,
                           (long long)length, limit);
        goto done;
    }
    size_t size = (size_t)length, have = 0;
    data = trmi_alloc(size + 1);
    if (data == NULL) {
        status = TRMI_NO_MEMORY(err, "for %zu bytes of %s", size, path);
        goto done;
    }
    /* read all of it; the file may have become shorter since */
    while (have < size) {
        ssize_t got = read(fd, data + have, size - have);
        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got <= 0) {
            status =
                got < 0 ? TRMI_FAIL_SYS(err, "%s: cannot read at offset %zu", path, have)
                        : TRMI_FAIL(err, TRM_IO, "%s: ends at offset %zu of %zu", path, have, size);
            goto done;
        }
        have += (size_t)got;
    }
    data[size] = 0;
    *out = data;
    *bytes = size;
    data = NULL;
done:
    trmi_free(data);
    close(fd);
    return status;
}

/* Returns the time of a clock in seconds. */
static double clock_seconds(clockid_t clock) {
    struct timespec now;
    clock_gettime(clock, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

double trmi_os_now(void) { return clock_seconds(CLOCK_MONOTONIC); }
double trmi_os_wall(void) { return clock_seconds(CLOCK_REALTIME); }
double trmi_os_thread_now(void) { return clock_seconds(CLOCK_THREAD_CPUTIME_ID); }

void trmi_os_make_condition(pthread_cond_t *condition) {
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(condition, &monotonic);
    pthread_condattr_destroy(&monotonic);
}

bool trmi_os_wait(pthread_cond_t *condition, pthread_mutex_t *mutex, double deadline) {
    const time_t whole = (time_t)deadline;
    const struct timespec at = {.tv_sec = whole,
                                .tv_nsec = (long)((deadline - (double)whole) * 1e9)};
    return pthread_cond_timedwait(condition, mutex, &at) != ETIMEDOUT;
}

/* Reads the first line of a small file; false: not there. */
static bool read_line(const char *path, char *line, size_t size) {
    FILE *file = fopen(path, "re");
    if (file == NULL) {
        return false;
    }
    bool got = fgets(line, (int)size, file) != NULL;
    fclose(file);
    return got;
}

/* Contract in os.h. The CPUs of the affinity mask, or fewer if the control group of a container has
 * a quota of CPU time. */
int trmi_os_cpu_count(void) {
    cpu_set_t set;
    CPU_ZERO(&set);
    int count = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set)
                                                            : (int)sysconf(_SC_NPROCESSORS_ONLN);
    char line[128];
    double quota = 0, period = 0;
    if (read_line("/sys/fs/cgroup/cpu.max", line, sizeof line) &&
        sscanf(line, "%lf %lf", &quota, &period) == 2 && quota > 0 && period > 0) {
        int allowed = (int)((quota + period - 1) / period);
        count = allowed < count ? allowed : count;
    }
    return count < 1 ? 1 : count;
}

/* Contract in os.h. Of a list for nested teams ("8,2") the first number counts. */
int trmi_os_openmp_threads(void) {
    const char *text = getenv("OMP_NUM_THREADS");
    long threads = text == NULL ? 0 : strtol(text, NULL, 10);
    return threads >= 1 && threads <= 1024 ? (int)threads : 0;
}

/* Contract in os.h. These variables decide how threads wait at barriers, so the library leaves that
 * to them. */
bool trmi_os_openmp_waits(void) {
    return getenv("OMP_WAIT_POLICY") != NULL || getenv("GOMP_SPINCOUNT") != NULL ||
           getenv("KMP_BLOCKTIME") != NULL;
}

/* Contract in os.h. schedstat has the time that the thread ran and the time that it waited for a
 * CPU, in nanoseconds. */
double trmi_os_cpu_wait(void) {
    char line[128]; /* no stdio: called in training steps, which allocate nothing */
    int fd = open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC);
    ssize_t bytes = fd >= 0 ? read(fd, line, sizeof line - 1) : -1;
    if (fd >= 0) {
        close(fd);
    }
    line[bytes > 0 ? bytes : 0] = '\0';
    double ran, waited;
    return sscanf(line, "%lf %lf", &ran, &waited) == 2 ? 1e-9 * waited : -1;
}

/* Scheduling attributes as the kernel defines them; C libraries have them since 2025. */
typedef struct scheduling {
    uint32_t size, policy;
    uint64_t flags;
    int32_t nice;
    uint32_t priority;
    uint64_t runtime, deadline, period; /* nanoseconds; runtime: length of a slice */
} scheduling;

/* Reads the attributes of the calling thread. False: no time slices. */
static bool read_scheduling(scheduling *s) {
    *s = (scheduling){.size = sizeof *s};
    return syscall(SYS_sched_getattr, 0, s, sizeof *s, 0) == 0 &&
           (s->policy == SCHED_OTHER || s->policy == SCHED_BATCH);
}

/* Contract in os.h. Kernels before 6.12 do not report a slice: 0. */
double trmi_os_slice(void) {
    scheduling s;
    return read_scheduling(&s) ? 1e-9 * (double)s.runtime : 0;
}

/* Contract in os.h. Keeps the other attributes as they are. */
bool trmi_os_set_slice(double seconds) {
    scheduling s;
    if (!read_scheduling(&s) || s.runtime == 0) {
        return false;
    }
    s.runtime = (uint64_t)(1e9 * seconds + 0.5);
    return syscall(SYS_sched_setattr, 0, &s, 0) == 0;
}

/* Contract in os.h. The smallest of main memory, the limit of the control group and the limit of
 * the address space. */
int64_t trmi_os_memory_bytes(void) {
    int64_t bytes = (int64_t)sysconf(_SC_PHYS_PAGES) * (int64_t)sysconf(_SC_PAGESIZE);
    char line[128];
    long long limit = 0;
    if (read_line("/sys/fs/cgroup/memory.max", line, sizeof line) &&
        sscanf(line, "%lld", &limit) == 1 && limit > 0 && limit < bytes) {
        bytes = limit;
    }
    struct rlimit most;
    if (getrlimit(RLIMIT_AS, &most) == 0 && most.rlim_cur != RLIM_INFINITY &&
        (int64_t)most.rlim_cur < bytes) {
        bytes = (int64_t)most.rlim_cur;
    }
    return bytes;
}

/* Contract in os.h. Only asks the kernel for addresses; no page is touched. */
bool trmi_os_has_room(size_t bytes) {
    void *room = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (room == MAP_FAILED) {
        return false;
    }
    munmap(room, bytes);
    return true;
}

/* Contract in os.h. Stack and guard page by the attributes of new threads. */
size_t trmi_os_thread_bytes(void) {
    pthread_attr_t attributes;
    size_t stack = 0, guard = 0;
    if (pthread_attr_init(&attributes) == 0) {
        pthread_attr_getstacksize(&attributes, &stack);
        pthread_attr_getguardsize(&attributes, &guard);
        pthread_attr_destroy(&attributes);
    }
    /* the usual stack, if its size is not known; thread-local memory and bookkeeping */
    enum { STACK_BYTES = 8 << 20, OTHER_BYTES = 1 << 20 };
    return (stack > 0 ? stack : (size_t)STACK_BYTES) + guard + (size_t)OTHER_BYTES;
}

/* Contract in os.h. The second number of statm is the resident pages. */
int64_t trmi_os_resident_bytes(void) {
    char line[128];
    long long pages = 0;
    return read_line("/proc/self/statm", line, sizeof line) && sscanf(line, "%*d %lld", &pages) == 1
               ? pages * (int64_t)sysconf(_SC_PAGESIZE)
               : 0;
}

/* Returns the kilobytes after `label` in a file of /proc; -1: not there. */
static long long read_kilobytes(const char *path, const char *label) {
    char line[128];
    long long value = -1;
    FILE *file = fopen(path, "r");
    while (file != NULL && value < 0 && fgets(line, sizeof line, file) != NULL) {
        value = strncmp(line, label, strlen(label)) == 0 ? atoll(line + strlen(label)) : value;
    }
    if (file != NULL) {
        fclose(file);
    }
    return value;
}

/* VmHWM is preferred, because getrusage includes the process before it became this program: half a
 * gigabyte of Python under torchrun. */
int64_t trmi_os_peak_bytes(void) {
    long long peak = read_kilobytes("/proc/self/status", "VmHWM:");
    struct rusage usage;
    return peak >= 0                             ? peak * 1024
           : getrusage(RUSAGE_SELF, &usage) == 0 ? (int64_t)usage.ru_maxrss * 1024
                                                 : 0;
}

/* Contract in os.h. Pages of programs and libraries, which processes have in common. */
int64_t trmi_os_file_bytes(void) {
    long long files = read_kilobytes("/proc/self/status", "RssFile:");
    return files > 0 ? files * 1024 : 0;
}

/* Returns the bytes of the memory files that this process has open, whichever process touched
 * them. */
static int64_t memory_file_bytes(void) {
    int64_t bytes = 0;
    DIR *files = opendir("/proc/self/fd");
    for (struct dirent *entry = files != NULL ? readdir(files) : NULL; entry != NULL;
         entry = readdir(files)) {
        char name[64] = "";
        struct stat about;
        if (readlinkat(dirfd(files), entry->d_name, name, sizeof name - 1) > 0 &&
            strncmp(name, "/memfd:", 7) == 0 &&
            fstatat(dirfd(files), entry->d_name, &about, 0) == 0) {
            bytes += (int64_t)about.st_blocks * 512; /* the unit of st_blocks */
        }
    }
    if (files != NULL) {
        closedir(files);
    }
    return bytes;
}

/* Contract in os.h. RssShmem counts the shared pages that this process has touched. Its own memory
 * files are counted by memory_file_bytes, so they are subtracted. */
int64_t trmi_os_shared_bytes(void) {
    int64_t resident = read_kilobytes("/proc/self/status", "RssShmem:") * 1024;
    int64_t own = memory_file_bytes();
    return resident > own ? resident - own : 0;
}

/* Contract in os.h. Private pages, and the memory files of this process, which peers may map. */
int64_t trmi_os_own_bytes(void) {
    long long anonymous = read_kilobytes("/proc/self/status", "RssAnon:");
    return (anonymous > 0 ? anonymous * 1024 : 0) + memory_file_bytes();
}

#ifdef __GLIBC__
/* Returns whether malloc is that of the C library. With another allocator (of a sanitizer, or
 * preloaded), malloc_trim would only set up an unused heap, whose thread count is then wrong. */
static bool allocates_by_libc(void) {
    Dl_info a, b;
    void *malloc_at = dlsym(RTLD_DEFAULT, "malloc"), *trim_at = dlsym(RTLD_DEFAULT, "malloc_trim");
    return malloc_at != NULL && trim_at != NULL && dladdr(malloc_at, &a) != 0 &&
           dladdr(trim_at, &b) != 0 && a.dli_fbase == b.dli_fbase;
}
#endif

/* Contract in os.h. Only glibc has malloc_trim. */
void trmi_os_trim(void) {
#ifdef __GLIBC__
    if (allocates_by_libc()) {
        malloc_trim(0);
    }
#endif
}

/* Contract in os.h. By the XDG base directory specification: relative paths count as not set. */
bool trmi_os_cache_dir(char *path, size_t size) {
    const char *base = getenv("XDG_CACHE_HOME");
    const char *home = getenv("HOME");
    int length = -1;
    if (base != NULL && base[0] == '/') {
        length = snprintf(path, size, "%s/trireme", base);
    } else if (home != NULL && home[0] == '/') {
        length = snprintf(path, size, "%s/.cache/trireme", home);
    }
    return length > 0 && (size_t)length < size && trmi_os_make_dirs(NULL, path, NULL) == TRM_OK;
}
