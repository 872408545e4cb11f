/* SPDX-License-Identifier: Apache-2.0 */
/* Requests the chief's lease from server 0 (server/server_chief.c). */
#include "ps/client/client.h"

#include "base/arguments.h"
#include "base/error.h"

/* Sends the order CHIEF and waits for the answer. */
static trm_status ask_chief(trm_ps_client *client, trm_ps_chief_claim wish, trm_error *err) {
    trmi_ps_note note = {.value = {TRMI_ORDER_CHIEF, wish}};
    return trmi_client_order(client, &client->peers[0], TRMI_PS_CONTROL, &note, NULL, NULL, 0, err);
}

/* Contract in trireme/ps.h. While this worker is the chief, the client repeats the request as a
 * sign of life (send_chief_heartbeat in client.c). */
trm_status trm_ps_chief_request(trm_ps_client *client, trm_ps_chief_claim wish,
                                double timeout_seconds, trm_ps_chief *out, trm_error *err) {
    TRMI_NEED(err, client, out);
    const double patience = client->options.timeout_seconds;
    if (client->reader) {
        return TRMI_FAIL(err, TRM_INVALID, "worker -1 only reads: it is never the chief");
    }
    client->options.timeout_seconds = timeout_seconds > 0 ? timeout_seconds : patience;
    trm_status status = ask_chief(client, wish, err);
    client->options.timeout_seconds = patience;
    TRMI_TRY(status);
    const int64_t *v = client->answer.note.value;
    *out = (trm_ps_chief){.mine = v[1] != 0,
                          .worker = (int32_t)v[2] - 1,
                          .silent_seconds = (double)v[3] * 1e-3,
                          .lease_seconds = (double)v[4] * 1e-3};
    client->chief_lease = out->mine ? out->lease_seconds : 0;
    client->chief_said = trmi_os_now();
    return TRM_OK;
}
