/* SPDX-License-Identifier: Apache-2.0 */
/* Finds out whether a process of this host has ended. Pid and start time name a process for ever: a
 * later process with its pid has another start time. Pids mean the same in one pid name space only,
 * so the place of a process has the name space in it. */
#include "comm/rendezvous/elastic.h"

#include "base/hash/digest.h"
#include "base/process.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

void trmi_process_describe(const trm_join_options *options, trmi_member *out) {
    char text[TRMI_PLACE_BYTES + 128];
    trmi_process_stat stat;
    trmi_process_write_place("pid", text);
    size_t used = strlen(text);
    if (options->host_name != NULL) { /* for tests: hosts on one machine */
        used += (size_t)snprintf(text + used, 128, "named %.100s", options->host_name);
    }
    (void)trmi_sha256(text, used, out->place);
    out->pid = (int32_t)getpid();
    out->start_time = trmi_process_read_stat(out->pid, &stat) ? stat.start_ticks : 0;
}

/* Returns whether another member's pid means something here. */
static bool is_here(const trmi_member *me, const trmi_member *other) {
    return memcmp(me->place, other->place, sizeof me->place) == 0 && other->pid > 0;
}

bool trmi_process_is_dead(const trmi_member *me, const trmi_member *other) {
    trmi_process_stat stat;
    if (!is_here(me, other)) {
        return false;
    }
    if (kill(other->pid, 0) != 0 && errno == ESRCH) {
        return true;
    }
    return trmi_process_read_stat(other->pid, &stat) &&
           (trmi_process_has_ended(&stat) ||
            (other->start_time != 0 && stat.start_ticks != other->start_time));
}

bool trmi_process_is_running(const trmi_member *me, const trmi_member *other) {
    trmi_process_stat stat;
    return is_here(me, other) && trmi_process_read_stat(other->pid, &stat) &&
           !trmi_process_has_ended(&stat) && stat.state != 'T' && stat.state != 't';
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
