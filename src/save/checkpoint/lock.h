/* SPDX-License-Identifier: Apache-2.0 */
/* save/checkpoint/lock.h: who is at work in a directory. A small file with host, pid and start
 * time, touched every few seconds. flock is not trusted on network file systems; O_EXCL and time
 * stamps are.
 *
 *   same machine and pid namespace:  alive or dead is known exactly
 *   another one:                     alive while the file was touched within 60 s (file system's
 * clock) */
#ifndef TRMI_SAVE_LOCK_H
#define TRMI_SAVE_LOCK_H

#include "base/os.h"
#include "save/file_out.h"

enum { TRMI_LOCK_BYTES = 512 };
#define TRMI_LOCK_NAME ".trireme.lock"

typedef struct trmi_lock trmi_lock;

/* Takes <dir>/.trireme.lock, waiting at most `wait_seconds` for its holder.
 *   errors  TRM_INVALID naming the holder; TRM_IO */
trm_status trmi_lock_take(const char *dir, const trmi_os *os, double wait_seconds, trmi_lock **out,
                          trm_error *err);
/* TRM_INVALID when somebody took it away. */
trm_status trmi_lock_check(const trmi_lock *lock, trm_error *err);
void trmi_lock_release(trmi_lock *lock);

/* Marks `path` (a new file) as belonging to this process; the same record as a lock. */
trm_status trmi_lock_mark(const char *path, const trmi_os *os, trm_error *err);
/* Does the process that wrote this record live, as far as can be known from here? Remote ones count
 * as living for `remote_seconds` after the last touch. */
bool trmi_lock_is_live(const char *path, double remote_seconds);

#endif
