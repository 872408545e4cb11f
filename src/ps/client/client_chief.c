/* SPDX-License-Identifier: Apache-2.0 */
/* Requests the chief's lease from server 0 (server/server_chief.c). */
#include "ps/client/client.h"

#include "base/arguments.h"
#include "base/error.h"
#include "base/os.h"

/* Sends the order CHIEF and waits for the answer. */
static trm_status ask_chief(trm_ps_client *client, trm_ps_chief_claim wish, trm_error *err) {
    trmi_ps_note note = {.value = {TRMI_ORDER_CHIEF, wish}};
    return trmi_client_order(client, &client->peers[0], TRMI_PS_CONTROL, &note, NULL, NULL, 0, err);
}

/* Reads the answer to CHIEF. */
static trm_ps_chief read_answer(const trm_ps_client *client) {
    const int64_t *v = client->answer.note.value;
    return (trm_ps_chief){.mine = v[1] != 0,
                          .worker = (int32_t)v[2] - 1,
                          .silent_seconds = (double)v[3] * 1e-3,
                          .lease_seconds = (double)v[4] * 1e-3};
}

/* Contract in trireme/ps.h. The server may have given the lease as soon as it was asked. So a
 * worker that receives the answer later than the lease lasts (it stood still, or the server did)
 * asks again: another worker may be the chief by now. While this worker is the chief, the client
 * repeats the request as a sign of life (send_chief_heartbeat in client.c). */
trm_status trm_ps_chief_request(trm_ps_client *client, trm_ps_chief_claim wish,
                                double timeout_seconds, trm_ps_chief *out, trm_error *err) {
    TRMI_NEED(err, client, out);
    const double patience = client->options.timeout_seconds;
    if (client->reader) {
        return TRMI_FAIL(err, TRM_INVALID, "worker -1 only reads: it is never the chief");
    }
    client->options.timeout_seconds = timeout_seconds > 0 ? timeout_seconds : patience;
    trm_status status;
    double asked;
    do {
        asked = trmi_os_now();
        status = ask_chief(client, wish, err);
        *out = status == TRM_OK ? read_answer(client) : *out;
    } while (status == TRM_OK && out->mine && out->lease_seconds > 0 &&
             trmi_os_now() - asked >= out->lease_seconds);
    client->options.timeout_seconds = patience;
    TRMI_TRY(status);
    client->chief_lease = out->mine ? out->lease_seconds : 0;
    client->chief_said = asked;
    return TRM_OK;
}
