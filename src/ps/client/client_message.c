/* SPDX-License-Identifier: Apache-2.0 */
/* Helpers for all waits and messages of a client (contracts in client.h): the limits of a wait, a
 * message on an existing connection, the form of a control request and of its answer. */
#include "ps/client/client.h"

#include "base/error.h"
#include "base/memory.h"
#include "base/os.h"

#include <string.h>

double trmi_client_deadline(const trm_ps_client *client) {
    return trmi_os_now() + client->options.timeout_seconds;
}

bool trmi_client_is_stopped(trm_ps_client *client) {
    bool asked =
        client->options.stopped != NULL && client->options.stopped(client->options.context);
    client->stop_seen = asked && client->stop_seen == 0 ? trmi_os_now() : client->stop_seen;
    return asked;
}

trm_status trmi_client_stopped(const trmi_server_connection *peer, trm_error *err) {
    return TRMI_FAIL(err, TRM_CANCELLED, "stopped on request while waiting for server %d (%s)",
                     peer->number, peer->address);
}

trm_status trmi_client_send_now(trm_ps_client *client, trmi_server_connection *peer,
                                const uint8_t *data, size_t bytes, double deadline,
                                trm_error *err) {
    client->stats.bytes_sent += (int64_t)bytes;
    return trmi_channel_send(peer->channel, data, bytes, deadline - trmi_os_now(), err);
}

uint8_t *trmi_client_encode_order(trm_ps_client *c, trmi_ps_kind kind, const trmi_ps_note *note,
                                  const trm_table_options *table, const void *trailer,
                                  size_t trailer_bytes, size_t *bytes, uint64_t *number) {
    trmi_ps_header header = {.kind = (uint16_t)kind,
                             .worker = c->worker,
                             .incarnation = c->incarnation,
                             .sequence = ++c->next_request,
                             .extra = {(int64_t)trailer_bytes}};
    size_t head = trmi_ps_note_size(kind);
    uint8_t *data = trmi_alloc(head + trailer_bytes);
    *bytes = head + trailer_bytes;
    *number = header.sequence;
    if (data != NULL) {
        trmi_ps_encode_note(&header, note, table, data);
    }
    if (data != NULL && trailer_bytes > 0) {
        memcpy(data + head, trailer, trailer_bytes);
    }
    return data;
}

trm_status trmi_client_send_order(trm_ps_client *c, trmi_server_connection *peer,
                                  const trmi_ps_note *note, const void *trailer,
                                  size_t trailer_bytes, double deadline) {
    size_t bytes;
    uint64_t number;
    uint8_t *data = trmi_client_encode_order(c, TRMI_PS_CONTROL, note, NULL, trailer, trailer_bytes,
                                             &bytes, &number);
    trm_status status = data == NULL ? TRM_NOMEM /* the caller tries again */
                                     : trmi_client_send_now(c, peer, data, bytes, deadline, NULL);
    trmi_free(data);
    return status;
}

void trmi_client_forget_answer(trmi_order_answer *answer) {
    trmi_free(answer->trailer);
    *answer = (trmi_order_answer){0};
}

void trmi_client_take_answer(trmi_server_connection *peer, const trmi_ps_header *header,
                             const trmi_ps_note *note, const uint8_t *trailer) {
    trmi_order_answer *answer = &peer->answer;
    const size_t bytes = (size_t)header->extra[0];
    trmi_client_forget_answer(answer);
    *answer = (trmi_order_answer){
        .here = true, .header = *header, .note = *note, .trailer = trmi_alloc(bytes + 1)};
    if (answer->trailer == NULL) {
        answer->header.status = TRM_NOMEM;
    } else {
        memcpy(answer->trailer, trailer, bytes);
        answer->trailer_bytes = bytes;
    }
}
