/* SPDX-License-Identifier: Apache-2.0 */
/* tests/fault_os.h: a platform that fails on purpose, for the tests of this room.
 *
 *   the k-th call fails once, or it and all later ones do, or the process is killed at it, or the
 *   power is cut at it: what was not flushed is lost (files torn in half, names as before).
 */
#ifndef TRMI_TESTS_FAULT_OS_H
#define TRMI_TESTS_FAULT_OS_H

#include "check.h"

#include "base/os.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

typedef enum fault_kind {
    FAULT_NONE,
    FAULT_ONCE,
    FAULT_FROM_THEN_ON,
    FAULT_KILL,
    FAULT_POWER_CUT,
    FAULT_SHORT_WRITES
} fault_kind;

enum { FAULT_EVENTS_MAX = 512, FAULT_PATH = 400 };

/* An event that a power cut would undo. */
typedef struct fault_event {
    enum { EVENT_GONE, EVENT_CREATED, EVENT_DIRTY, EVENT_RENAMED } what; /* GONE: made durable */
    char path[FAULT_PATH];
    char from[FAULT_PATH],
        backup[FAULT_PATH]; /* RENAMED: the old name; the file that it replaced */
} fault_event;

typedef struct fault_os {
    trmi_os table;
    fault_kind kind;
    int at;    /* 1 = the first call */
    int error; /* errno of a failing call */
    int calls;
    char fd_path[1024][FAULT_PATH];
    fault_event events[FAULT_EVENTS_MAX];
    int event_count;
    char scratch[FAULT_PATH]; /* for files that a rename replaced */
} fault_os;

static void fault_parent(const char *path, char *parent) {
    snprintf(parent, FAULT_PATH, "%s", path);
    char *slash = strrchr(parent, '/');
    *(slash != NULL ? slash : parent) = '\0';
}

static void fault_remember(fault_os *os, int what, const char *path, const char *from,
                           const char *backup) {
    if (os->event_count < FAULT_EVENTS_MAX) {
        fault_event *event = &os->events[os->event_count++];
        event->what = what;
        snprintf(event->path, FAULT_PATH, "%s", path);
        snprintf(event->from, FAULT_PATH, "%s", from);
        snprintf(event->backup, FAULT_PATH, "%s", backup);
    }
}

/* Moves the events before number `count` that concern `from`, or a file below it, to `to`. */
static void fault_move(fault_os *os, int count, const char *from, const char *to) {
    size_t length = strlen(from);
    for (int i = 0; i < count; i++) {
        char *path = os->events[i].path, rest[FAULT_PATH];
        if (strncmp(path, from, length) == 0 && (path[length] == '/' || path[length] == '\0')) {
            snprintf(rest, sizeof rest, "%s", path + length);
            snprintf(path, FAULT_PATH, "%.199s%.199s", to, rest);
        }
    }
}

/* Applies a power cut: undoes all events that have not reached the device. */
static void fault_cut_power(fault_os *os) {
    for (int i = os->event_count - 1; i >= 0; i--) {
        fault_event *event = &os->events[i];
        struct stat info;
        switch (event->what) {
        case EVENT_RENAMED:
            (void)!rename(event->path, event->from);
            if (event->backup[0] != '\0') {
                (void)!rename(event->backup, event->path);
            }
            fault_move(os, i, event->path, event->from);
            break;
        case EVENT_DIRTY:
            if (stat(event->path, &info) == 0) {
                (void)!truncate(event->path, info.st_size / 2);
            }
            break;
        case EVENT_CREATED: unlink(event->path); break;
        default: break;
        }
    }
}

/* Returns whether this call fails (errno is set). */
static bool fault_now(fault_os *os) {
    os->calls++;
    if (os->at == 0 || os->calls < os->at) {
        return false;
    }
    switch (os->kind) {
    case FAULT_KILL: kill(getpid(), SIGKILL); return true;
    case FAULT_POWER_CUT:
        fault_cut_power(os);
        kill(getpid(), SIGKILL);
        return true;
    case FAULT_ONCE: errno = os->error; return os->calls == os->at;
    case FAULT_FROM_THEN_ON: errno = os->error; return true;
    default: return false;
    }
}

static int fault_open(void *context, const char *path, int flags, int mode) {
    fault_os *os = context;
    if (fault_now(os)) {
        return -1;
    }
    int fd = trmi_os_real()->open(NULL, path, flags, mode);
    if (fd >= 0 && fd < 1024) {
        snprintf(os->fd_path[fd], FAULT_PATH, "%s", path);
        if (flags & O_CREAT) {
            fault_remember(os, EVENT_CREATED, path, "", "");
        }
    }
    return fd;
}

static ssize_t fault_write(void *context, int fd, const void *data, size_t bytes) {
    fault_os *os = context;
    if (fault_now(os)) {
        return -1;
    }
    if (os->kind == FAULT_SHORT_WRITES) {
        if (os->calls % 3 == 0) {
            errno = EINTR;
            return -1;
        }
        bytes = bytes > 7 ? 7 : bytes;
    }
    fault_remember(os, EVENT_DIRTY, os->fd_path[fd], "", "");
    return trmi_os_real()->write(NULL, fd, data, bytes);
}

static int fault_fsync(void *context, int fd) {
    fault_os *os = context;
    if (fault_now(os)) {
        return -1;
    }
    const char *path = os->fd_path[fd];
    for (int i = 0; i < os->event_count; i++) {
        fault_event *event = &os->events[i];
        char parent[FAULT_PATH];
        fault_parent(event->path, parent);
        bool data = event->what == EVENT_DIRTY && strcmp(event->path, path) == 0;
        bool name = (event->what == EVENT_CREATED || event->what == EVENT_RENAMED) &&
                    strcmp(parent, path) == 0;
        if (data || name) {
            event->what = EVENT_GONE;
        }
    }
    return trmi_os_real()->fsync(NULL, fd);
}

static int fault_close(void *context, int fd) {
    fault_os *os = context;
    bool fails = fault_now(os);
    int saved = errno;
    int result = trmi_os_real()->close(NULL, fd);
    errno = fails ? saved : errno;
    return fails ? -1 : result;
}

static int fault_rename(void *context, const char *from, const char *to) {
    fault_os *os = context;
    if (fault_now(os)) {
        return -1;
    }
    char backup[FAULT_PATH] = "";
    struct stat info;
    if (os->scratch[0] != '\0' && stat(to, &info) == 0 && S_ISREG(info.st_mode)) {
        snprintf(backup, sizeof backup, "%.300s/%d", os->scratch, os->calls);
        (void)!link(to, backup);
    }
    int result = trmi_os_real()->rename(NULL, from, to);
    if (result == 0) {
        fault_move(os, os->event_count, from, to);
        fault_remember(os, EVENT_RENAMED, to, from, backup);
    }
    return result;
}

static int fault_mkdir(void *context, const char *path, int mode) {
    return fault_now(context) ? -1 : trmi_os_real()->mkdir(NULL, path, mode);
}
static int fault_unlink(void *context, const char *path) {
    return fault_now(context) ? -1 : trmi_os_real()->unlink(NULL, path);
}
static int fault_rmdir(void *context, const char *path) {
    return fault_now(context) ? -1 : trmi_os_real()->rmdir(NULL, path);
}

/* Arms `os`: fault `kind` at call `at`. `scratch`: a directory on the same file system, or "". */
static inline const trmi_os *fault_arm(fault_os *os, fault_kind kind, int at, const char *scratch) {
    memset(os, 0, sizeof *os);
    os->kind = kind;
    os->at = at;
    os->error = EIO;
    snprintf(os->scratch, sizeof os->scratch, "%s", scratch);
    os->table = (trmi_os){os,           fault_open,  fault_write,  fault_fsync, fault_close,
                          fault_rename, fault_mkdir, fault_unlink, fault_rmdir};
    return &os->table;
}

#endif
