/* SPDX-License-Identifier: Apache-2.0 */
/* The lock of a directory's writer, and marks of readers, which have the same form.
 *
 *   take:  write the record to a private file, link() it to .trireme.lock
 *          exists already: read it; owner alive -> wait or fail; owner dead -> move it aside, repeat
 *   keep:  a thread touches the file every TOUCH_SECONDS
 *
 * The file appears with its record by link(), so a reader never sees an empty lock. */
#include "save/checkpoint/lock.h"

#include "base/error.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/process.h"

#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* An owner on another machine counts as dead after SILENCE_SECONDS without a touch; a living one
 * touches its file every TOUCH_SECONDS. */
#define SILENCE_SECONDS 60.0
#define TOUCH_SECONDS 5
/* A file that has no complete record is being written, or was left by a crash if it is older. */
#define PARTIAL_SECONDS 5.0
/* Shortest waits for an owner: one whose launcher was killed is killed itself within KILL_SECONDS;
 * one that was killed, but waits for the disk, ends within END_SECONDS. */
#define KILL_SECONDS 2.0
#define END_SECONDS 60.0

/* A lock that this process holds. */
struct trmi_lock {
    const trmi_os *os;            /* the platform, for tests that inject failures */
    char path[TRMI_PATH_BYTES];   /* of the lock file */
    char record[TRMI_LOCK_BYTES]; /* what the file contains: identifies this lock */
    pthread_t thread;             /* touches the file */
    pthread_mutex_t mutex;        /* protects `leaving` */
    pthread_cond_t leave;         /* signalled when the lock is released */
    bool leaving;                 /* the thread must end */
};

/* ---- the record ------------------------------------------------------------------------ */

/* The contents of a record. */
typedef struct holder {
    /* boot and pid name space: a pid identifies a process only within these */
    char machine[TRMI_PLACE_BYTES];
    char host[96]; /* name, for messages */
    long pid;      /* valid on `machine` only */
    /* start time since boot: distinguishes a process from a later one with the same pid */
    unsigned long long start_ticks;
    double since; /* Unix seconds */
} holder;

/* Returns whether SIGKILL waits for the process, which sits in a system call that it cannot leave
 * yet. */
static bool is_killed(long pid) {
    char path[64], line[256];
    bool killed = false;
    snprintf(path, sizeof path, "/proc/%ld/status", pid);
    FILE *file = fopen(path, "re");
    while (file != NULL && !killed && fgets(line, sizeof line, file) != NULL) {
        unsigned long long signals;
        killed = (sscanf(line, "SigPnd: %llx", &signals) == 1 ||
                  sscanf(line, "ShdPnd: %llx", &signals) == 1) &&
                 (signals >> (SIGKILL - 1) & 1) != 0;
    }
    if (file != NULL) {
        fclose(file);
    }
    return killed;
}

/* Writes the host's name, without blanks and slashes. */
static void write_host(char *text, size_t size) {
    if (gethostname(text, size) != 0) {
        snprintf(text, size, "unknown");
    }
    text[size - 1] = '\0';
    for (char *c = text; *c != '\0'; c++) {
        *c = *c <= ' ' || *c == '/' ? '_' : *c;
    }
}

/* Writes a record for this process. The serial number distinguishes several locks of one
 * process. */
static void write_record(char *record, size_t size) {
    static atomic_uint serial;
    char machine[TRMI_PLACE_BYTES], host[96];
    trmi_process_stat self = {0};
    trmi_process_write_place("pid", machine);
    (void)trmi_process_read_stat(getpid(), &self); /* without /proc the start time is 0 */
    write_host(host, sizeof host);
    snprintf(record, size,
             "trireme-lock 1\nhost %s\npid %ld\nstart_ticks %llu\nmachine %s\n"
             "since %.3f\nserial %u\n",
             host, (long)getpid(), (unsigned long long)self.start_ticks, machine, trmi_os_wall(),
             atomic_fetch_add(&serial, 1u));
}

/* Returns the present time by the clock of the file system that holds `path`: on a network it is
 * the server's. It creates a file and reads its time stamp. */
static double read_file_system_time(const char *path) {
    char probe[TRMI_PATH_BYTES + 32];
    snprintf(probe, sizeof probe, "%s.clock.%ld", path, (long)getpid());
    double now = trmi_os_wall();
    int fd = open(probe, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (fd >= 0) {
        struct stat info;
        if (fstat(fd, &info) == 0) {
            now = (double)info.st_mtim.tv_sec + 1e-9 * (double)info.st_mtim.tv_nsec;
        }
        close(fd);
        unlink(probe);
    }
    return now;
}

/* Reads a record and the seconds since the last touch. now: the time to compare with; negative:
 * this machine's clock. Returns false on failure; *missing: the file does not exist. */
static bool read_record(const char *path, char *record, size_t size, double now,
                        double *silent_seconds, bool *missing) {
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    *missing = fd < 0 && errno == ENOENT;
    if (fd < 0) {
        return false;
    }
    struct stat info;
    ssize_t bytes = read(fd, record, size - 1);
    bool ok = bytes >= 0 && fstat(fd, &info) == 0;
    close(fd);
    if (ok) {
        record[bytes] = '\0';
        *silent_seconds = (now < 0 ? trmi_os_wall() : now) -
                          ((double)info.st_mtim.tv_sec + 1e-9 * (double)info.st_mtim.tv_nsec);
    }
    return ok;
}

/* Parses a record. Returns false if it has another form. */
static bool parse_record(const char *record, holder *out) {
    return sscanf(record,
                  "trireme-lock 1\nhost %95s\npid %ld\nstart_ticks %llu\nmachine %159s\nsince %lf",
                  out->host, &out->pid, &out->start_ticks, out->machine, &out->since) == 5;
}

/* Returns whether pids of the owner cannot be looked up here. */
static bool is_elsewhere(const holder *owner) {
    char machine[TRMI_PLACE_BYTES];
    trmi_process_write_place("pid", machine);
    return strcmp(machine, owner->machine) != 0;
}

/* Returns whether the owner lives. silent: seconds since the last touch; patience: seconds without
 * a touch after which an owner on another machine counts as dead. *ending: it lives, but ends. */
static bool is_live(const holder *owner, double silent, double patience, bool *ending) {
    enum { EXITING = 4 }; /* PF_EXITING of the kernel */
    *ending = false;
    if (is_elsewhere(owner)) {
        return silent < patience;
    }
    if (kill((pid_t)owner->pid, 0) != 0 && errno == ESRCH) {
        return false;
    }
    trmi_process_stat stat;
    if (!trmi_process_read_stat(owner->pid, &stat)) {
        return true; /* there is no /proc, but kill() finds a process */
    }
    *ending = (stat.flags & EXITING) != 0 || is_killed(owner->pid);
    return !trmi_process_has_ended(&stat) && stat.start_ticks == owner->start_ticks;
}

/* Contract in lock.h. If in doubt the owner lives: to take a lock from a live writer would damage
 * its files, to wait too long costs only time. */
bool trmi_lock_is_live(const char *path, double remote_seconds) {
    char record[TRMI_LOCK_BYTES];
    double silent = 0;
    bool missing, ending;
    holder owner;
    if (!read_record(path, record, sizeof record, -1, &silent, &missing)) {
        return false;
    }
    /* A record that is being written is empty for a moment. */
    return parse_record(record, &owner) ? is_live(&owner, silent, remote_seconds, &ending)
                                        : silent < PARTIAL_SECONDS;
}

/* Creates a file with a record. *exists: it existed already (not an error). */
static trm_status write_new(const char *path, const trmi_os *os, const char *record, bool *exists,
                            trm_error *err) {
    int fd = os->open(os->context, path, O_WRONLY | O_CREAT | O_EXCL, 0644);
    *exists = fd < 0 && errno == EEXIST;
    if (fd < 0) {
        return *exists ? TRM_OK : TRMI_FAIL_SYS(err, "%s: cannot create", trmi_path_tail(path));
    }
    trm_status status =
        trmi_os_write_all(os, fd, record, strlen(record), trmi_path_tail(path), err);
    os->close(os->context, fd);
    if (status != TRM_OK) {
        os->unlink(os->context, path);
    }
    return status;
}

/* Creates the file with its record in it, or not at all: writes a private file, then links it. */
static trm_status create_record(const char *path, const trmi_os *os, const char *record,
                                bool *exists, trm_error *err) {
    char aside[TRMI_PATH_BYTES + 32];
    snprintf(aside, sizeof aside, "%s.new.%ld", path, (long)getpid());
    os->unlink(os->context, aside);
    TRMI_TRY(write_new(aside, os, record, exists, err));
    int failed = *exists || link(aside, path) == 0 ? 0 : errno;
    os->unlink(os->context, aside);
    *exists = *exists || failed == EEXIST;
    if (failed == 0 || failed == EEXIST) {
        return TRM_OK;
    }
    if (failed == ENOENT) {
        return TRM_PENDING; /* the present owner has removed the private file: try again */
    }
    return write_new(path, os, record, exists, err); /* the file system has no links */
}

trm_status trmi_lock_mark(const char *path, const trmi_os *os, trm_error *err) {
    char record[TRMI_LOCK_BYTES];
    bool exists;
    write_record(record, sizeof record);
    TRMI_TRY(write_new(path, os, record, &exists, err));
    return exists ? TRMI_FAIL(err, TRM_IO, "%s: exists", trmi_path_tail(path)) : TRM_OK;
}

/* ---- taking and keeping ---------------------------------------------------------------- */

/* Moves the file of a dead owner aside. If the moved file turns out to be another one, because a
 * second process has done the same in between and put its own file there, it is moved back. */
static void remove_dead_lock(trmi_lock *lock, const char *seen) {
    char aside[TRMI_PATH_BYTES + 32], record[TRMI_LOCK_BYTES];
    double silent;
    bool missing;
    snprintf(aside, sizeof aside, "%s.dead.%ld", lock->path, (long)getpid());
    if (lock->os->rename(lock->os->context, lock->path, aside) != 0) {
        return;
    }
    if (read_record(aside, record, sizeof record, -1, &silent, &missing) &&
        strcmp(record, seen) != 0 && link(aside, lock->path) != 0) {
        trmi_log(TRM_LOG_WARN, "save", "%s: two processes took over a dead lock at once",
                 trmi_path_tail(lock->path));
    }
    lock->os->unlink(lock->os->context, aside);
}

/* The owner of a lock as a process that waits for the lock sees it. */
typedef struct sighting {
    bool ending;    /* it is about to end */
    bool silent;    /* it is elsewhere, and has not touched the lock since the first sighting */
    bool seen;      /* there was a sighting of an owner elsewhere */
    double touched; /* when it had touched the lock then, by this process's clock */
} sighting;

/* Notes when an owner elsewhere has touched its lock. File systems have stamps of whole seconds, so
 * a touch is one that came TOUCH_SECONDS / 2 later. */
static void note_touch(sighting *s, double silent_seconds) {
    const double touched = trmi_os_now() - silent_seconds;
    s->silent = !s->seen || touched < s->touched + TOUCH_SECONDS / 2.0;
    s->touched = s->seen ? s->touched : touched;
    s->seen = true;
}

/* Tries to take the lock once. Returns OK (taken), PENDING (try again at once) or INVALID (another
 * process has it; `err` and *owner_seen describe it). */
static trm_status try_to_take(trmi_lock *lock, sighting *owner_seen, trm_error *err) {
    owner_seen->ending = owner_seen->silent = false;
    bool exists = false;
    /* The file does not exist: create it, which succeeds in one process only. */
    TRMI_TRY(create_record(lock->path, lock->os, lock->record, &exists, err));
    if (!exists) {
        return TRM_OK;
    }
    /* It exists: read it. */
    char record[TRMI_LOCK_BYTES] = "";
    double silent = 0;
    bool missing = false;
    holder owner = {.pid = 0, .host = "?"};
    if (!read_record(lock->path, record, sizeof record, read_file_system_time(lock->path), &silent,
                     &missing)) {
        return missing ? TRM_PENDING
                       : TRMI_FAIL_SYS(err, "%s: cannot read", trmi_path_tail(lock->path));
    }
    bool known = parse_record(record, &owner);
    /* an owner that is dead, or a part of a record that is older than PARTIAL_SECONDS */
    if (known ? !is_live(&owner, silent, SILENCE_SECONDS, &owner_seen->ending)
              : silent > PARTIAL_SECONDS) {
        if (known) {
            trmi_log(TRM_LOG_WARN, "save", "%s: taken over from pid %ld on %s, which is gone",
                     trmi_path_tail(lock->path), owner.pid, owner.host);
        }
        remove_dead_lock(lock, record);
        return TRM_PENDING;
    }
    /* The owner is alive, or elsewhere and not known to be dead. */
    if (known && is_elsewhere(&owner)) {
        note_touch(owner_seen, silent);
    }
    char since[32] = "just now";
    time_t seconds = (time_t)owner.since;
    struct tm utc;
    if (known && gmtime_r(&seconds, &utc) != NULL) {
        strftime(since, sizeof since, "%Y-%m-%d %H:%M:%SZ", &utc);
    }
    return TRMI_FAIL(err, TRM_INVALID,
                     "%s: pid %ld on %s writes here since %s (last sign of life %.0f s ago): use "
                     "another directory, or stop it",
                     trmi_path_tail(lock->path), owner.pid, owner.host, since,
                     silent > 0 ? silent : 0.0);
}

/* Touches the file until the lock is released. */
static void *touch_file(void *argument) {
    trmi_lock *lock = argument;
    pthread_mutex_lock(&lock->mutex);
    while (!lock->leaving) {
        if (!trmi_os_wait(&lock->leave, &lock->mutex, trmi_os_now() + TOUCH_SECONDS)) {
            utimensat(AT_FDCWD, lock->path, NULL, 0);
        }
    }
    pthread_mutex_unlock(&lock->mutex);
    return NULL;
}

/* Starts the thread that touches the file. */
static trm_status start_touching(trmi_lock *lock, trm_error *err) {
    pthread_mutex_init(&lock->mutex, NULL);
    trmi_os_make_condition(&lock->leave);
    int failed = pthread_create(&lock->thread, NULL, touch_file, lock);
    if (failed != 0) {
        pthread_mutex_destroy(&lock->mutex);
        pthread_cond_destroy(&lock->leave);
        return TRMI_FAIL(err, TRM_NOMEM,
                         "no memory or no right for a thread that keeps the folder's lock (%s)",
                         strerror(failed));
    }
    return TRM_OK;
}

/* The limit of waiting for an owner elsewhere has passed before the owner counts as dead. */
static trm_status fail_too_soon(const trmi_lock *lock, const sighting *owner, double waited,
                                trm_error *err) {
    return TRMI_FAIL(err, TRM_INVALID,
                     "%s: its owner, on another host, is silent, and counts as gone in %.0f s; "
                     "waited %.0f s, the "
                     "limit: start again then, or raise the limit (--start-timeout)",
                     trmi_path_tail(lock->path),
                     fmax(1, SILENCE_SECONDS - (trmi_os_now() - owner->touched)), waited);
}

/* Contract in lock.h. Waits a little for an owner that was just killed, or that is about to end,
 * even if the caller does not want to wait. */
trm_status trmi_lock_take(const char *dir, const trmi_os *os, double wait_seconds,
                          double outwait_seconds, trmi_lock **out, trm_error *err) {
    trmi_lock *lock;
    TRMI_TRY(TRMI_NEW(err, lock, 1, "for a lock"));
    lock->os = os != NULL ? os : trmi_os_real();
    trm_status status;
    TRMI_TRY_GOTO(status, trmi_path_join(lock->path, dir, TRMI_LOCK_NAME, err), failed);
    /* The record of this process, by which it recognises its own lock. */
    write_record(lock->record, sizeof lock->record);
    const double begun = trmi_os_now();
    int pending = 0;
    sighting owner = {0};
    bool told = false;
    /* Try again at once after TRM_PENDING (at most 100 times), every 0.1 s while another process
     * has the lock. */
    while ((status = try_to_take(lock, &owner, err)) != TRM_OK) {
        bool soon = status == TRM_PENDING && ++pending < 100;
        /* an owner that is waited for is taken over when the silence has lasted */
        bool waits = outwait_seconds > 0 && owner.silent;
        double limit = fmax(wait_seconds, waits          ? fmax(outwait_seconds, KILL_SECONDS)
                                          : owner.ending ? END_SECONDS
                                                         : KILL_SECONDS);
        if (waits && !told && trmi_os_now() - begun >= KILL_SECONDS) {
            trmi_log(TRM_LOG_WARN, "save",
                     "%s: its owner is on another host and may be gone; waiting until it gives a "
                     "sign of life, at most %.0f s",
                     trmi_path_tail(lock->path), fmin(limit, SILENCE_SECONDS));
            told = true;
        }
        if (!soon && (status != TRM_INVALID || trmi_os_now() - begun >= limit)) {
            if (status == TRM_PENDING) {
                status = TRMI_FAIL(err, TRM_IO, "%s: cannot be taken", trmi_path_tail(lock->path));
            } else if (waits && limit < TRMI_OUTWAIT_ALL) {
                status = fail_too_soon(lock, &owner, trmi_os_now() - begun, err);
            }
            goto failed;
        }
        nanosleep(&(struct timespec){.tv_nsec = soon ? 1000000 : 100000000}, NULL);
    }
    /* From now on the file is touched, so that other machines see that the owner is alive. */
    status = start_touching(lock, err);
    if (status != TRM_OK) {
        lock->os->unlink(lock->os->context, lock->path);
        goto failed;
    }
    *out = lock;
    return TRM_OK;
failed:
    trmi_free(lock);
    return status;
}

/* Contract in lock.h. Another process may have taken the lock over, if this one was stopped for
 * longer than its owner's touches allow, or a user has removed the folder. */
trm_status trmi_lock_check(const trmi_lock *lock, trm_error *err) {
    char record[TRMI_LOCK_BYTES] = "";
    double silent;
    bool missing;
    if (read_record(lock->path, record, sizeof record, -1, &silent, &missing) &&
        strcmp(record, lock->record) == 0) {
        return TRM_OK;
    }
    holder owner;
    if (!parse_record(record, &owner)) {
        return TRMI_FAIL(err, TRM_INVALID, "%s: the lock is gone (%s): not saving",
                         trmi_path_tail(lock->path),
                         missing ? "its file was removed" : "its file is no lock any more");
    }
    return TRMI_FAIL(err, TRM_INVALID, "%s: the lock is gone, taken by pid %ld on %s: not saving",
                     trmi_path_tail(lock->path), owner.pid, owner.host);
}

/* Contract in lock.h. The thread that touches the file ends first, because it would make the file
 * again. */
void trmi_lock_release(trmi_lock *lock) {
    if (lock == NULL) {
        return;
    }
    pthread_mutex_lock(&lock->mutex);
    lock->leaving = true;
    pthread_cond_signal(&lock->leave);
    pthread_mutex_unlock(&lock->mutex);
    pthread_join(lock->thread, NULL);
    pthread_mutex_destroy(&lock->mutex);
    pthread_cond_destroy(&lock->leave);
    /* Twice, in case the file was put back by a process that took it for another's
     * (remove_dead_lock). */
    for (int i = 0; i < 2 && trmi_lock_check(lock, NULL) == TRM_OK; i++) {
        lock->os->unlink(lock->os->context, lock->path);
    }
    trmi_free(lock);
}
