/* SPDX-License-Identifier: Apache-2.0 */
/* Steps of leased samples, as a worker sees them: server 0 decides which pushes are in a step,
 * and this worker carries the decision to the other servers (protocol in server/server_step.c). */
#include "ps/client/client.h"

#include "base/checked.h"
#include "base/error.h"
#include "base/memory.h"

/* Contract in client.h. The message is checked and copied; the newest one replaces older ones. */
trm_status trmi_client_steps_merge(trm_ps_client *c, const uint8_t *data, size_t bytes,
                                   trm_error *err) {
    int64_t last = 0;
    /* check all records; `last` becomes the newest step */
    for (size_t at = 0; at < bytes;) {
        uint32_t count;
        if (bytes - at < 16) {
            return TRMI_FAIL(err, TRM_CORRUPT, "steps of %zu bytes end at %zu", bytes, at);
        }
        memcpy(&last, data + at, sizeof last);
        memcpy(&count, data + at + 8, sizeof count);
        if (count > (bytes - at - 16) / sizeof(trmi_push_id)) {
            return TRMI_FAIL(err, TRM_CORRUPT, "step %lld of %u pushes in %zu bytes",
                             (long long)last, count, bytes);
        }
        at += 16 + count * sizeof(trmi_push_id);
    }
    if (last <= c->steps_last) {
        return TRM_OK; /* answers may arrive out of order */
    }
    uint8_t *copy = trmi_alloc(bytes);
    if (copy == NULL) {
        return TRMI_NO_MEMORY(err, "for steps");
    }
    memcpy(copy, data, bytes);
    trmi_free(c->steps);
    c->steps = copy;
    c->steps_bytes = bytes;
    c->steps_last = last;
    return TRM_OK;
}

uint64_t trmi_client_steps_settled(const trm_ps_client *c) {
    uint64_t least = c->delivered;
    for (int i = 0; i < TRMI_PUSHES_AHEAD_MAX; i++) {
        uint64_t sequence = c->peers[0].pending[i].sequence;
        least = sequence != 0 && sequence - 1 < least ? sequence - 1 : least;
    }
    return least;
}

bool trmi_client_steps_missing(const trm_ps_client *c, const trmi_server_connection *peer) {
    return c->staging && peer->number != 0 &&
           (peer->carried != c->steps_last || peer->carried_pushes != trmi_client_steps_settled(c));
}

int64_t trmi_client_steps_finished(const trm_ps_client *c) {
    int64_t least = INT64_MAX;
    for (uint32_t s = 1; s < c->servers; s++) {
        least = trmi_min_i64(least, c->peers[s].step);
    }
    return c->servers > 1 ? least : 0;
}
