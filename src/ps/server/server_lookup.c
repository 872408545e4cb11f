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

/* Contract in server.h. The list has the last push of the newest life of each worker. A synchronous
 * step can contain a push of an earlier life, of which the list says nothing: its step says whether
 * it belongs to the snapshot. */
bool trmi_front_holds(const trm_ps_server *server, const trmi_push_id *push, int64_t clock) {
    const bool synchronous = server->options.mode == TRM_PS_SYNC;
    if (!server->held) {
        return false;
    }
    if (synchronous && clock > server->until_step) {
        return true;
    }
    for (uint32_t i = 0; i < server->until_count; i++) {
        const trmi_push_id *id = &server->until[i];
        if (id->worker == push->worker && id->incarnation == push->incarnation) {
            return push->sequence > id->sequence;
        }
        /* SYNC: of another life of the worker. An earlier life's push is in the step of the other
         * server; a later one makes the batch again, because that server went back by the step. */
        if (id->worker == push->worker && synchronous) {
            return false;
        }
    }
    return true;
}
