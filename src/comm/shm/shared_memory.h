/* SPDX-License-Identifier: Apache-2.0 */
/* comm/shm/shared_memory.h: memory that processes of one user on one host share.
 *
 *   maker   memfd of mode 0600, its size sealed (F_SEAL_SHRINK, GROW, SEAL), tells its peer pid and
 * descriptor
 *   peer    /proc/PID/fd/FD -> checked: a sealed memfd of this user, mode 0600, exactly the
 * announced size -> mapped
 *
 * A memfd has no name, so nothing of it is left behind; a sealed one can never become shorter than
 * its mapping, so that no peer can cause SIGBUS. What lies in it may change at any time: a size or
 * an offset that is read from it is copied first, then checked, then used from the copy. */
#ifndef TRMI_COMM_SHARED_MEMORY_H
#define TRMI_COMM_SHARED_MEMORY_H

#include "trireme/base.h"

/* Zeroed memory of `bytes`.   owns  caller closes *fd; a mapping outlives it   errors  NOMEM, IO */
trm_status trmi_shared_create(const char *name, size_t bytes, int *fd, trm_error *err);
/* The memory that process `pid` has open as `fd`, if it is such and has exactly `bytes`.
 *   owns  caller closes *out   errors  IO (cannot be opened), CORRUPT (another kind, owner, mode or
 * size) */
trm_status trmi_shared_open(int64_t pid, int32_t fd, size_t bytes, int *out, trm_error *err);

#endif
