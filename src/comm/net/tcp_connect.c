/* SPDX-License-Identifier: Apache-2.0 */
/* Connects the ranks of a group pairwise, once for each channel: the higher rank connects to the
 * lower one. A connection begins with the mutual proof of base/net/net.h, under a key derived from
 * the job's token. In its proof the connecting rank declares the ranks and the channel of the
 * connection (`purpose`). The accepting rank answers with one byte, WELCOME. If a connection fails
 * before that byte arrives, the connecting rank tries again, because the acceptor may have closed
 * it when it had too many unproven connections. */
#define _GNU_SOURCE
#include "comm/net/tcp.h"

#include "base/error.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/net/net.h"
#include "base/os.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { VERSION = 3, WELCOME = 1 }; /* of the handshake's content; the answer byte */
/* longest wait for one connection, between checks of the job's failure */
static const double slice_seconds = 0.1;

/* The detail of a HELLO, little-endian. */
typedef struct purpose {
    int32_t from, to, channel;
    /* random number of the accepting rank's communicator: connections of two communicators never
     * mix */
    uint32_t communicator;
} purpose;

/* The address at which a rank accepts connections; the ranks exchange it. */
typedef struct place {
    char address[TRMI_NET_NAME_BYTES]; /* "host:port" */
    uint32_t communicator;
} place;

void trmi_tcp_close(int fd) {
    int left_ms = 5000;
    setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &left_ms, sizeof left_ms);
    close(fd);
}

/* Returns the credentials of data connections. Their key is derived from the job's token, so only
 * ranks of the job have it. */
static trmi_credentials credentials_of(const trmi_group *group) {
    trmi_credentials mine = {.service = TRMI_SERVICE_COLLECTIVES, .version = VERSION};
    group->bootstrap->table->sign(group->bootstrap, "collectives", 11, mine.token);
    return mine;
}

/* Is asked while waiting: returns whether the job has failed. */
static bool is_poisoned(void *group) {
    return !trmi_bootstrap_healthy(((const trmi_group *)group)->bootstrap);
}

/* Fails if the job has failed or the deadline has passed. `what` is what the rank waits for. */
static trm_status check_on(const trmi_group *group, double deadline, const char *what,
                           trm_error *err) {
    TRMI_TRY(group->bootstrap->table->check(group->bootstrap, err));
    if (trmi_os_now() > deadline) {
        return TRMI_FAIL(err, TRM_TIMEOUT, "rank %d waited too long for %s",
                         group->members[group->rank], what);
    }
    return TRM_OK;
}

/* Makes one attempt to connect. Error PEER: the caller may try again. */
static trm_status try_connect(const trmi_group *group, const place *at, const purpose *why,
                              const trmi_wait_limit *patience, int *out, trm_error *err) {
    trmi_credentials mine = credentials_of(group);
    trmi_session session;
    char host[64];
    int32_t port;
    int fd;
    TRMI_TRY(trmi_net_split(at->address, host, &port, err));
    TRMI_TRY(trmi_net_connect(host, port, patience, &fd, err));
    mine.detail = why;
    mine.detail_bytes = sizeof *why;
    uint8_t answer = 0;
    trm_status status = trmi_net_prove_token(fd, &mine, patience, &session, err);
    status = status == TRM_OK ? trmi_net_receive(fd, &answer, 1, patience, err) : status;
    explicit_bzero(&mine, sizeof mine);
    if (status != TRM_OK) {
        close(fd);
        return status;
    }
    *out = fd;
    return TRM_OK;
}

/* Connects to one peer on one channel, with new attempts until the deadline. */
static trm_status connect_to(const trmi_group *group, int32_t peer, int32_t channel,
                             const place *at, double deadline, int *out, trm_error *err) {
    const trmi_wait_limit patience = {deadline, is_poisoned, (void *)(uintptr_t)group};
    const purpose why = {group->rank, peer, channel, at->communicator};
    char what[112];
    snprintf(what, sizeof what, "rank %d at %s", group->members[peer], at->address);
    trm_status status;
    while ((status = try_connect(group, at, &why, &patience, out, err)) == TRM_PEER) {
        TRMI_TRY(check_on(group, deadline, what, err));
        usleep(20000);
    }
    if (status == TRM_CANCELLED) {
        return check_on(group, 0, what, err);
    }
    return status == TRM_OK ? TRM_OK : trmi_error_append(err, " (%s)", what);
}

/* Accepts a proven connection into its link. Returns false if it belongs to another communicator,
 * to a link that is connected already, or if the peer has closed it. */
static bool let_in(const trmi_group *group, const trmi_session *session, uint32_t communicator,
                   trmi_tcp_link *links) {
    purpose why;
    if (session->detail_bytes != sizeof why) {
        return false;
    }
    memcpy(&why, session->detail, sizeof why);
    if (why.to != group->rank || why.from <= group->rank || why.from >= group->size ||
        why.channel < 0 || why.channel >= TRMI_CHANNELS || why.communicator != communicator ||
        links[why.from * TRMI_CHANNELS + why.channel].fd >= 0) {
        return false;
    }
    const uint8_t answer = WELCOME;
    const trmi_wait_limit at_once = {.deadline = 0};
    if (trmi_net_send(session->fd, &answer, 1, &at_once, NULL) != TRM_OK) {
        return false; /* the peer has closed it and will connect again */
    }
    links[why.from * TRMI_CHANNELS + why.channel].fd = session->fd;
    return true;
}

/* Accepts the connections of all higher ranks. */
static trm_status accept_all(const trmi_group *group, trmi_acceptor *acceptor,
                             uint32_t communicator, trmi_tcp_link *links, double deadline,
                             trm_error *err) {
    int32_t awaited = (group->size - 1 - group->rank) * TRMI_CHANNELS;
    while (awaited > 0) {
        trmi_session session;
        TRMI_TRY(check_on(group, deadline, "ranks above it to connect", err));
        trm_status status = trmi_acceptor_next(acceptor, slice_seconds, &session, err);
        if (status == TRM_TIMEOUT) {
            continue;
        }
        TRMI_TRY(status);
        if (let_in(group, &session, communicator, links)) {
            awaited--;
        } else {
            trmi_log(TRM_LOG_WARN, "comm", "rank %d: closed a connection of another communicator",
                     group->members[group->rank]);
            close(session.fd);
        }
    }
    return TRM_OK;
}

/* Opens a listening socket on the rank's address, at a free port. *mine is its place. */
static trm_status open_acceptor(const trmi_group *group, trmi_acceptor **out, place *mine,
                                trm_error *err) {
    char name[24];
    int fd;
    snprintf(name, sizeof name, "rank %d", group->members[group->rank]);
    TRMI_TRY(trmi_net_random(&mine->communicator, sizeof mine->communicator, err));
    TRMI_TRY(trmi_net_bind(group->bootstrap->address, 0, &fd, mine->address, err));
    trmi_acceptor_options options = {
        .credentials = credentials_of(group), .room = "comm", .name = name};
    trm_status status = trmi_acceptor_create(&fd, 1, &options, out, err);
    explicit_bzero(&options, sizeof options);
    return status;
}

/* Contract in tcp.h. Of two ranks the higher one connects and the lower one accepts,
 * TRMI_CHANNELS times. */
trm_status trmi_tcp_connect(const trmi_group *group, const trmi_exchange *exchange,
                            trmi_tcp_link *links, trm_error *err) {
    trmi_acceptor *acceptor = NULL;
    double deadline = trmi_os_now() + group->timeout_seconds;
    place mine = {.communicator = 0};
    place *places;
    TRMI_TRY(TRMI_NEW(err, places, group->size, "to connect %d ranks", group->size));
    trm_status status;
    /* Every rank listens before the addresses are exchanged, so no attempt comes too early. */
    TRMI_TRY_GOTO(status, open_acceptor(group, &acceptor, &mine, err), done);
    TRMI_TRY_GOTO(status, exchange->allgather(exchange->context, &mine, sizeof mine, places, err),
                  done);
    for (int32_t peer = 0; peer < group->rank; peer++) {
        places[peer].address[sizeof places[peer].address - 1] = '\0';
        for (int32_t channel = 0; channel < TRMI_CHANNELS; channel++) {
            TRMI_TRY_GOTO(status,
                          connect_to(group, peer, channel, &places[peer], deadline,
                                     &links[peer * TRMI_CHANNELS + channel].fd, err),
                          done);
        }
    }
    status = accept_all(group, acceptor, mine.communicator, links, deadline, err);
done:
    trmi_acceptor_destroy(acceptor);
    trmi_free(places);
    return status;
}
