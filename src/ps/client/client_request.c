/* SPDX-License-Identifier: Apache-2.0 */
/* One control request to one server: it gets a number, is sent, and its answer is awaited; some are
 * sent again after a repaired connection, because the second time they change nothing.
 * client_order.c has the requests to all servers.
 *
 * Invariant: peer->answer is the answer to the request peer->order, or to none. */
#include "ps/client/client.h"

#include "base/error.h"
#include "base/memory.h"
#include "base/os.h"

#include <string.h>

/* Contract in client.h. The answer is known by the number of the order and the count of reconnects:
 * a connection that broke in between may have lost it. */
trm_status trmi_client_order_send(trm_ps_client *client, trmi_server_connection *peer,
                                  trmi_ps_kind kind, const trmi_ps_note *note,
                                  const trm_table_options *table, const void *trailer,
                                  size_t trailer_bytes, trm_error *err) {
    size_t bytes;
    uint64_t number;
    uint8_t *data = trmi_client_encode_order(client, kind, note, table, trailer, trailer_bytes,
                                             &bytes, &number);
    peer->order = 0;
    trmi_client_forget_answer(&peer->answer);
    if (data == NULL) {
        return TRMI_NO_MEMORY(err, "for a request to server %d", peer->number);
    }
    trm_status status =
        trmi_client_send(client, peer, data, bytes, trmi_client_deadline(client), err);
    trmi_free(data);
    peer->order = status == TRM_OK ? number : 0;
    peer->order_reconnects = peer->reconnects;
    return status;
}

/* Waits until the answer is in peer->answer. A repaired connection is an error (PEER), because the
 * server may or may not have carried the order out. */
static trm_status await_answer(trm_ps_client *client, trmi_server_connection *peer,
                               trm_error *err) {
    const double deadline = trmi_client_deadline(client);
    while (!peer->answer.here) {
        if (peer->reconnects != peer->order_reconnects) {
            return TRMI_FAIL(err, TRM_PEER, "server %d restarted during a request to it",
                             peer->number);
        }
        TRMI_TRY(trmi_client_progress(client, peer, deadline, err));
    }
    return TRM_OK;
}

trm_status trmi_client_order_wait(trm_ps_client *client, trmi_server_connection *peer,
                                  trm_error *err) {
    trm_status status = await_answer(client, peer, err);
    peer->order = 0;
    TRMI_TRY(status);
    trmi_client_forget_answer(&client->answer);
    client->answer = peer->answer;
    peer->answer = (trmi_order_answer){0};
    if (client->answer.header.status == TRM_OK) {
        return TRM_OK;
    }
    /* The order failed: its error is that of the server, in the server's words. */
    trm_error theirs = {0};
    if (client->answer.trailer_bytes == 256) {
        trmi_error_decode(&theirs, client->answer.trailer);
    } else if (client->answer.trailer == NULL) {
        /* the server may hold pushes for this order: the end of the connection ends the hold */
        TRMI_NO_MEMORY(&theirs, "for an answer of server %d", peer->number);
        trmi_client_drop(client, peer);
    }
    theirs.status = client->answer.header.status;
    if (err != NULL) {
        *err = theirs;
    }
    return (trm_status)theirs.status;
}

/* Contract in client.h. */
trm_status trmi_client_order(trm_ps_client *client, trmi_server_connection *peer, trmi_ps_kind kind,
                             const trmi_ps_note *note, const trm_table_options *table,
                             const void *trailer, size_t trailer_bytes, trm_error *err) {
    /* orders that may be repeated after a repaired connection: the second time they change
     * nothing */
    bool repeatable = kind == TRMI_PS_TABLE || note->value[0] == TRMI_ORDER_STATS ||
                      note->value[0] == TRMI_ORDER_ROW || note->value[0] == TRMI_ORDER_LEASE ||
                      note->value[0] == TRMI_ORDER_BYE || note->value[0] == TRMI_ORDER_WORKERS ||
                      note->value[0] == TRMI_ORDER_STEPS || note->value[0] == TRMI_ORDER_CHIEF ||
                      note->value[0] == TRMI_ORDER_BEGINS;
    double deadline = trmi_client_deadline(client);
    for (;;) {
        TRMI_TRY(
            trmi_client_order_send(client, peer, kind, note, table, trailer, trailer_bytes, err));
        trm_status status = trmi_client_order_wait(client, peer, err);
        if (status != TRM_PEER || !repeatable || trmi_os_now() >= deadline) {
            return status;
        }
    }
}
