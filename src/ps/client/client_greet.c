/* SPDX-License-Identifier: Apache-2.0 */
/* Connecting to a server:
 *
 *   address, until the deadline -> proof of the token (base/net) -> HELLO -> does the server fit the job?
 *
 * Invariant: peer->channel is set only after the server has answered HELLO and fits. A stop on
 * request ends each wait within slice_seconds. */
#include "ps/client/client.h"

#include "base/checked.h"
#include "base/error.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/net/net.h"
#include "base/os.h"
#include "comm/rendezvous/token.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const double slice_seconds = 0.2;
/* share of timeout_seconds after which a silent TCP connection counts as broken */
static const double UNANSWERED = 0.25;

/* Sends HELLO on a new connection and waits for the answer. Sets client->refused_here if the
 * server answers with an error. */
static trm_status exchange_hello(trm_ps_client *client, trmi_channel *channel, trmi_ps_note *note,
                                 double deadline, trm_error *err) {
    const trmi_ps_header header = {.kind = TRMI_PS_HELLO, .worker = client->worker};
    trmi_message m;
    double timeout = deadline - trmi_os_now();
    TRMI_TRY(channel->table->reserve(channel, trmi_ps_note_size(TRMI_PS_HELLO), timeout, &m, err));
    trmi_ps_encode_note(&header, note, NULL, m.data);
    TRMI_TRY(channel->table->commit(channel, &m, timeout, err));
    trm_status status;
    /* wait in slices, so that a requested stop ends the wait */
    do {
        status = channel->table->receive(channel, timeout < slice_seconds ? timeout : slice_seconds,
                                         &m, err);
    } while (status == TRM_TIMEOUT && trmi_os_now() < deadline && !trmi_client_is_stopped(client));
    if (status == TRM_END) {
        return TRMI_FAIL(err, TRM_PEER, "%s closed the connection at once", channel->peer);
    }
    TRMI_TRY(status);
    /* decode the answer; an error in it is the server's refusal */
    trmi_ps_header answer;
    status = trmi_ps_decode_header(m.data, m.bytes, &answer, err);
    if (status == TRM_OK) {
        status = trmi_ps_decode_note(m.data, m.bytes, &answer, note, NULL, err);
    }
    if (status == TRM_OK && answer.status != TRM_OK && answer.extra[0] == 256) {
        client->refused_here = true;
        trmi_error_decode(err, m.data + trmi_ps_note_size(TRMI_PS_DONE));
        status = err->status < 0 ? (trm_status)err->status : TRM_CORRUPT;
    }
    channel->table->release(channel, &m);
    return status;
}

/* Exchanges HELLO over TCP and offers shared-memory rings to a server on the same host. If the
 * server accepts, *channel becomes the ring. */
static trm_status greet_server(trm_ps_client *client, trmi_server_connection *peer,
                               trmi_channel **channel, bool joining, trmi_ps_note *welcome,
                               double deadline, trm_error *err) {
    trmi_ring_place place;
    trmi_channel *offer = NULL;
    *welcome = (trmi_ps_note){.value = {client->options.worker, joining}};
    trmi_ps_put_mark(&client->job, welcome);
    if (peer->address[0] != '\0' && !client->options.tcp_only &&
        trmi_ring_offer(*channel, client->options.ring_bytes, &offer, &place, NULL) == TRM_OK) {
        welcome->value[2] = (int64_t)client->options.ring_bytes;
        welcome->value[3] = place.pid;
        welcome->value[4] = place.fd;
    }
    trm_status status = exchange_hello(client, *channel, welcome, deadline, err);
    bool shared = status == TRM_OK && offer != NULL && welcome->value[7] != 0;
    if (offer != NULL) {
        trmi_ring_settle(offer, *channel, shared);
        *channel = shared ? offer : *channel;
    }
    return status;
}

/* Checks the server's answer to HELLO against what this client expects, and takes over
 * incarnation, clock and mode.
 *   errors  INVALID: the server is another one than configured */
static trm_status check_welcome(trm_ps_client *client, const trmi_server_connection *peer,
                                const trmi_ps_note *note, bool joining, trm_error *err) {
    if (note->value[5] != peer->number || note->value[6] != client->servers || note->value[2] < 1 ||
        note->value[2] * note->value[6] > TRMI_PS_SHARDS_MAX ||
        (client->shards != 0 && note->value[2] != client->shards)) {
        return TRMI_FAIL(err, TRM_INVALID,
                         "server %d of %u is configured as server %lld of %lld with %lld shards "
                         "(others: %u)",
                         peer->number, client->servers, (long long)note->value[5],
                         (long long)note->value[6], (long long)note->value[2], client->shards);
    }
    client->shards = (uint32_t)note->value[2];
    client->mode = (trm_ps_mode)note->value[4];
    if (joining) {
        client->incarnation = (uint32_t)trmi_max_i64(client->incarnation, note->value[1]);
        /* The life begins with the smallest clock of all servers: a push that only some have is
         * repeated, and those recognise it. */
        client->next_batch =
            peer->number == 0 ? note->value[3] : trmi_min_i64(client->next_batch, note->value[3]);
        client->most_batches = trmi_max_i64(client->most_batches, note->value[3]);
    }
    client->stats.global_step = trmi_max_i64(client->stats.global_step, note->value[8]);
    client->peers[peer->number].step = note->value[3]; /* SYNC */
    return TRM_OK;
}

/* Finds the token: that of the options, or the one that the server has published on this host
 * (comm/rendezvous/token.h). A missing file is an error at once for a reader; a worker's server
 * may be restarting. */
static trm_status find_token(trm_ps_client *client, const char *reached, uint8_t token[32],
                             trm_error *err) {
    if (client->has_token) {
        memcpy(token, client->token, TRM_TOKEN_BYTES);
        return TRM_OK;
    }
    trm_status status = trmi_token_find(reached, token, err);
    client->refused_here |= status != TRM_OK && client->reader;
    return status == TRM_INVALID ? TRM_PEER : status;
}

/* Connects repeatedly until the deadline and proves the token.
 *   errors  as trmi_client_connect */
static trm_status reach_server(trm_ps_client *client, const trmi_server_connection *peer,
                               double deadline, trmi_channel **out, trm_error *err) {
    /* Connect; a server that is not there yet is tried until the deadline. */
    const trmi_wait_limit patience = {deadline, client->options.stopped, client->options.context};
    trmi_credentials mine = {.service = TRMI_SERVICE_PARAMETERS, .version = TRMI_PS_VERSION};
    trmi_session session;
    char host[64], reached[TRMI_NET_NAME_BYTES];
    int32_t port;
    int fd;
    trm_status status;
    TRMI_TRY(trmi_net_split(peer->address, host, &port, err));
    while ((status = trmi_net_connect(host, port, &patience, &fd, err)) == TRM_PEER &&
           trmi_os_now() < deadline && !trmi_client_is_stopped(client)) {
        usleep(50000);
    }
    if (status == TRM_PEER && trmi_client_is_stopped(client)) {
        return trmi_client_stopped(peer, err);
    }
    TRMI_TRY(status);
    /* Prove the token to each other. */
    trmi_net_peer(fd, reached);
    status = find_token(client, reached, mine.token, err);
    status = status == TRM_OK ? trmi_net_prove_token(fd, &mine, &patience, &session, err) : status;
    explicit_bzero(&mine, sizeof mine);
    if (status == TRM_INVALID) { /* a restarted server may have published another token */
        client->refused_here |= client->has_token;
        status = TRM_PEER;
    }
    if (status != TRM_OK) {
        close(fd);
        return status;
    }
    snprintf(reached, sizeof reached, "server %d (%.50s)", peer->number, peer->address);
    TRMI_TRY(trmi_tcp_wrap(fd, reached, out, err));
    trmi_tcp_patience(*out, client->options.timeout_seconds * UNANSWERED);
    return TRM_OK;
}

/* Contract in client.h. */
trm_status trmi_client_connect(trm_ps_client *client, trmi_server_connection *peer, bool joining,
                               double deadline, trm_error *err) {
    trmi_channel *channel = NULL;
    const double soonest = trmi_os_now() + 0.05;
    deadline = deadline < soonest ? soonest : deadline;
    if (peer->address[0] != '\0') {
        trm_error why = {0};
        trm_status reached = reach_server(client, peer, deadline, &channel, &why);
        if (reached != TRM_OK) {
            return TRMI_FAIL(err, reached, "server %d: %.220s", peer->number, why.message);
        }
    } else {
        TRMI_TRY(trmi_server_connect_local(client->options.local[peer->number],
                                           client->options.ring_bytes, &channel, err));
        snprintf(channel->peer, sizeof channel->peer, "server %d (this process)", peer->number);
    }
    /* greet, then accept the connection */
    trmi_ps_note welcome;
    trm_status status = greet_server(client, peer, &channel, joining, &welcome, deadline, err);
    if (status == TRM_OK) {
        status = check_welcome(client, peer, &welcome, joining, err);
    }
    if (status != TRM_OK) {
        channel->table->destroy(channel);
        return status;
    }
    peer->channel = client->wrap == NULL ? channel : client->wrap(client->wrap_context, channel);
    return TRM_OK;
}
