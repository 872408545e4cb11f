/* SPDX-License-Identifier: Apache-2.0 */
/* Returns whether a process of this host has ended. Pid and start time name a process for ever: a
 * later process with its pid has another start time. Pids mean the same in one pid name space only,
 * so the place of a process has the name space in it. */
#include "comm/rendezvous/elastic.h"

#include "base/hash/digest.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Reads state and start time from /proc/PID/stat. The name of the program, in parentheses, may
 * contain anything. Returns false if there is no such file. */
static bool read_stat(int32_t pid, char *state, uint64_t *start_time) {
    char path[48], text[1024];
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t bytes = fd >= 0 ? read(fd, text, sizeof text - 1) : -1;
    if (fd >= 0) {
        close(fd);
    }
    text[bytes > 0 ? bytes : 0] = '\0';
    /* behind the last parenthesis the fields are numbers and one letter */
    char *at = strrchr(text, ')');
    if (at == NULL || at[1] != ' ') {
        return false;
    }
    *state = at[2];
    at += 3;
    /* the state is field 3, the start time field 22 */
    for (int field = 3; field < 21 && at != NULL; field++) {
        at = strchr(at + 1, ' ');
    }
    if (at == NULL) {
        return false;
    }
    *start_time = strtoull(at, NULL, 10);
    return true;
}

void trmi_process_describe(const trm_join_options *options, trmi_member *out) {
    char text[512] = "";
    size_t used = 0;
    static const char *const links[] = {"/proc/self/ns/pid"};
    char state;
    int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    if (fd >= 0) {
        ssize_t bytes = read(fd, text, 64);
        used = bytes > 0 ? (size_t)bytes : 0;
        close(fd);
    }
    ssize_t bytes = readlink(links[0], text + used, 64);
    used += bytes > 0 ? (size_t)bytes : 0;
    if (options->host_name != NULL) { /* for tests: hosts on one machine */
        used += (size_t)snprintf(text + used, 128, "named %.100s", options->host_name);
    }
    (void)trmi_sha256(text, used, out->place);
    out->pid = (int32_t)getpid();
    if (!read_stat(out->pid, &state, &out->start_time)) {
        out->start_time = 0;
    }
}

static bool is_here(const trmi_member *me, const trmi_member *other) {
    return memcmp(me->place, other->place, sizeof me->place) == 0 && other->pid > 0;
}

bool trmi_process_is_dead(const trmi_member *me, const trmi_member *other) {
    char state;
    uint64_t start_time;
    if (!is_here(me, other)) {
        return false;
    }
    if (kill(other->pid, 0) != 0 && errno == ESRCH) {
        return true;
    }
    /* A zombie no longer runs; it waits for its parent. */
    return read_stat(other->pid, &state, &start_time) &&
           (state == 'Z' || state == 'X' ||
            (other->start_time != 0 && start_time != other->start_time));
}

bool trmi_process_is_running(const trmi_member *me, const trmi_member *other) {
    char state;
    uint64_t start_time;
    return is_here(me, other) && read_stat(other->pid, &state, &start_time) &&
           strchr("ZXTt", state) == NULL;
}

bool trmi_process_end(const trmi_member *me, const trmi_member *other) {
    if (!is_here(me, other) || other->pid == me->pid) {
        return false;
    }
    if (!trmi_process_is_dead(me, other)) {
        kill(other->pid, SIGKILL);
    }
    return true;
}
