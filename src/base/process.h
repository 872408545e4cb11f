/* SPDX-License-Identifier: Apache-2.0 */
/* base/process.h: processes of this host as the kernel describes them in /proc.
 *
 * A pid names a process only within one boot and one pid name space, and only until the process
 * has been reaped. So a process is identified by three things: the place (boot and pid name space:
 * trmi_process_write_place), the pid, and the start time. */
#ifndef TRMI_BASE_PROCESS_H
#define TRMI_BASE_PROCESS_H

#include "trireme/base.h"

/* The fields of /proc/PID/stat that the library uses (proc(5)). */
typedef struct trmi_process_stat {
    char name[32];        /* of the program, cut to its first 31 bytes; it may contain anything */
    char state;           /* field 3: 'R' runs, 'S' sleeps, 'T' or 't' stopped, ... */
    int32_t parent;       /* field 4: pid */
    uint32_t flags;       /* field 9: PF_... of the kernel */
    uint64_t start_ticks; /* field 22: start time since boot */
} trmi_process_stat;

/* Parses the content of a file /proc/PID/stat. Returns false if it has another form; *out is then
 * unchanged. */
bool trmi_process_parse_stat(const char *text, trmi_process_stat *out);
/* Reads /proc/PID/stat. Returns false if there is no such process; *out is then unchanged. */
bool trmi_process_read_stat(int64_t pid, trmi_process_stat *out);
/* Returns whether a process has ended: it is a zombie, which runs no more but waits for its parent
 * to reap it (for ever, in a container whose first process reaps no children). */
bool trmi_process_has_ended(const trmi_process_stat *stat);

enum { TRMI_PLACE_BYTES = 160 };
/* Writes "BOOT/pid:[N]" for the name space "pid", "BOOT/net:[N]/ipc:[M]" for "net ipc": the id of
 * this boot of the kernel, and the given name spaces of this process. Equal texts mean that two
 * processes share them. BOOT is "unknown" if it cannot be read; such a name space is empty. */
void trmi_process_write_place(const char *spaces, char text[TRMI_PLACE_BYTES]);

#endif
