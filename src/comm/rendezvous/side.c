/* SPDX-License-Identifier: Apache-2.0 */
/* Functions that all files of the control channel call: the name of a rank in messages, and waking
 * the service thread. */
#include "comm/rendezvous/side.h"

#include <stdio.h>
#include <unistd.h>

const char *trmi_side_name(const trmi_side *side, int32_t rank, char text[112]) {
    snprintf(text, 112, "rank %d (%s pid %d)", rank, side->peers[rank].host, side->peers[rank].pid);
    return text;
}

void trmi_side_wake(trmi_side *side) {
    uint64_t one = 1;
    if (write(side->wake_fd, &one, sizeof one) < 0) {
        return; /* the counter is full: the thread is awake anyway */
    }
}
