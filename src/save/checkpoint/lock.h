/* SPDX-License-Identifier: Apache-2.0 */
/* save/checkpoint/lock.h: the lock of the process that writes into a directory: a small file with
 * host, pid and start time, which its owner touches every few seconds. flock() is not reliable on
 * network file systems; O_EXCL, link() and time stamps are.
 *
 *   owner on the same machine and in the same pid namespace:  whether it lives is known exactly
 *   owner elsewhere:  it counts as alive if the file was touched in the last 60 s (by the file
 *                     system's own clock)
 */
#ifndef TRMI_SAVE_LOCK_H
#define TRMI_SAVE_LOCK_H

#include "base/os.h"
#include "save/file_out.h"

enum { TRMI_LOCK_BYTES = 512 }; /* longest record */
#define TRMI_LOCK_NAME ".trireme.lock"

/* A lock that this process holds, with the thread that keeps it alive. */
typedef struct trmi_lock trmi_lock;

/* Takes <dir>/.trireme.lock, waiting up to `wait_seconds` for its owner; at least 2 s, and 60 s for
 * one that was killed and still ends. A thread then touches the file until trmi_lock_release.
 *   errors  INVALID (with the owner), IO, NOMEM
 *   param   outwait_seconds: how long to wait also for an owner elsewhere that does not touch the
 *           file, until it counts as dead (for a job that begins again after its host has died);
 *           once it touches the file, the call fails. 0 = not at all, TRMI_OUTWAIT_ALL = until it
 *           counts as dead */
#define TRMI_OUTWAIT_ALL 65.0 /* the 60 s, and a touch that came late */
trm_status trmi_lock_take(const char *dir, const trmi_os *os, double wait_seconds,
                          double outwait_seconds, trmi_lock **out, trm_error *err);
/* Checks that this process still has the lock. INVALID if another process has taken it over. */
trm_status trmi_lock_check(const trmi_lock *lock, trm_error *err);
/* Releases the lock and removes the file. NULL is allowed. */
void trmi_lock_release(trmi_lock *lock);

/* Creates `path` with this process's record, as a mark that it uses something.
 *   errors  IO (it exists) */
trm_status trmi_lock_mark(const char *path, const trmi_os *os, trm_error *err);
/* Returns whether the process that wrote the record at `path` is alive, as far as this process can
 * know. A process elsewhere counts as alive for `remote_seconds` after the last touch. */
bool trmi_lock_is_live(const char *path, double remote_seconds);

#endif
