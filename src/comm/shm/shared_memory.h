/* SPDX-License-Identifier: Apache-2.0 */
/* comm/shm/shared_memory.h: memory that processes of one user on one host share.
 *
 *   maker   creates a memfd of mode 0600, seals its size (F_SEAL_SHRINK, GROW, SEAL), and sends
 *           its pid and descriptor to the peer
 *   peer    opens /proc/PID/fd/FD, checks that it is a sealed memfd of this user, mode 0600, with
 *           exactly the announced size, and maps it
 *
 * A memfd has no name in the file system, so a killed process leaves no file behind. The size of a
 * sealed memfd cannot shrink below its mapping, so a peer cannot cause SIGBUS. A peer may change
 * the contents at any time: code that reads a size or an offset from this memory copies the value
 * first, checks the copy and uses the copy. */
#ifndef TRMI_COMM_SHARED_MEMORY_H
#define TRMI_COMM_SHARED_MEMORY_H

#include "trireme/base.h"

/* Creates `bytes` of zeroed shared memory. `name` appears in /proc/PID/maps only. On success *fd is
 * the open memfd. The caller closes it; a mapping stays valid afterwards.
 *   errors  IO or NOMEM from the system call */
trm_status trmi_shared_create(const char *name, size_t bytes, int *fd, trm_error *err);
/* Opens the memory that process `pid` holds as descriptor `fd`, and checks that it is a sealed
 * memfd of this user with exactly `bytes`. On success *out is a new descriptor, which the caller
 * closes.
 *   errors  PEER (the process or its descriptor is gone), IO (it cannot be opened), CORRUPT
 *   (wrong kind, owner, mode, seals or size) */
trm_status trmi_shared_open(int64_t pid, int32_t fd, size_t bytes, int *out, trm_error *err);

#endif
