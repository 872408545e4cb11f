/* SPDX-License-Identifier: Apache-2.0 */
/* Time, CPUs and memory of this process on Linux (base/os.h), in this order:
 *
 *   time       the monotonic and the wall clock, CPU time, waits with a deadline
 *   CPUs       affinity mask and quota of the control group, OpenMP's variables, time slices
 *   memory     limits of this process, resident, peak and shared bytes
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
