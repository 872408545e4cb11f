/* SPDX-License-Identifier: Apache-2.0 */
/* Queries of the front that several files of the server use. In a file of their own because
 * files must not call each other in circles. */
#include "ps/server/server.h"

trmi_worker *trmi_front_find(const trm_ps_server *server, uint32_t worker) {
    for (int64_t i = 0; i < server->worker_count; i++) {
        if (server->workers[i].worker == worker) {
            return &server->workers[i];
        }
    }
    return NULL;
}

/* Contract in server.h. A synchronous step is the same on all servers, so its number alone says
 * whether its pushes belong to the snapshot. The list of the last pushes does not: a worker's later
 * life may make a batch again, and an earlier one's push may wait here. */
bool trmi_front_holds(const trm_ps_server *server, const trmi_push_id *push, int64_t clock) {
    if (!server->held) {
        return false;
    }
    if (server->options.mode == TRM_PS_SYNC) {
        return clock > server->until_step;
    }
    for (uint32_t i = 0; i < server->until_count; i++) {
        const trmi_push_id *id = &server->until[i];
        if (id->worker == push->worker && id->incarnation == push->incarnation) {
            return push->sequence > id->sequence;
        }
    }
    return true;
}
