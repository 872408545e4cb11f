/* SPDX-License-Identifier: Apache-2.0 */
/* Who connects to whom: a higher rank to a lower one. Both prove that they know the job's secret
 * before anything else is said:
 *
 *   connector -> acceptor   "TRMC", version, from, to, channel, communicator, nonce
 *   acceptor -> connector   its nonce, sign(hello, nonce, 'A')
 *   connector -> acceptor   sign(hello, nonce, 'C')
 *
 * A stranger is dropped after at most 5 s, silently; the job's own ranks are awaited to the
 * deadline. */
#define _GNU_SOURCE
#include "comm/net/tcp.h"

#include "base/error.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/os.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

enum { NONCE_BYTES = 16, MAC_BYTES = 32, VERSION = 1 };
static const double handshake_seconds = 5, slice_seconds = 0.1;

typedef struct hello {
    char magic[4];
    int32_t version, from, to, channel;
    uint32_t communicator; /* the acceptor's, drawn anew for each: connections never cross */
    uint8_t nonce[NONCE_BYTES];
} hello;

typedef struct place {
    char address[64];
    uint16_t port;
    uint16_t unused;
    uint32_t communicator;
} place;

static trm_status listen_somewhere(const char *address, int *out, place *mine, trm_error *err) {
    struct addrinfo hints = {.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV | AI_PASSIVE,
                             .ai_socktype = SOCK_STREAM},
                    *found = NULL;
    if (getaddrinfo(address, "0", &hints, &found) != 0) {
        return TRMI_FAIL(err, TRM_INVALID, "'%s' is not a numeric address to listen on", address);
    }
    int fd = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    struct sockaddr_storage bound;
    socklen_t length = sizeof bound;
    trm_status status = TRM_OK;
    if (fd < 0 || bind(fd, found->ai_addr, found->ai_addrlen) != 0 || listen(fd, 1024) != 0 ||
        getsockname(fd, (struct sockaddr *)&bound, &length) != 0) {
        status = TRMI_FAIL_SYS(err, "cannot listen on %s", address);
        if (fd >= 0) {
            close(fd);
        }
    } else {
        *out = fd;
        mine->port =
            ntohs(bound.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)(void *)&bound)->sin6_port
                                              : ((struct sockaddr_in *)(void *)&bound)->sin_port);
        snprintf(mine->address, sizeof mine->address, "%s", address);
    }
    freeaddrinfo(found);
    return status;
}

/* No TCP_USER_TIMEOUT: the kernel counts a peer that is not reading yet, because it still computes
 * or is stopped, like one that is gone. Hosts that fall silent are the side channel's to find. */
static void prepare_socket(int fd) {
    int on = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
}

void trmi_tcp_close(int fd) {
    int left_ms = 5000;
    setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &left_ms, sizeof left_ms);
    close(fd);
}

/* All of `bytes`, within the deadline; false otherwise. */
static bool transfer_exactly(int fd, void *data, size_t bytes, bool write, double deadline) {
    size_t done = 0;
    while (done < bytes) {
        ssize_t moved = write ? send(fd, (char *)data + done, bytes - done, MSG_NOSIGNAL)
                              : recv(fd, (char *)data + done, bytes - done, 0);
        if (moved > 0) {
            done += (size_t)moved;
            continue;
        }
        double left = deadline - trmi_os_now();
        if ((moved == 0 && !write) || (moved < 0 && errno != EAGAIN && errno != EINTR) ||
            left <= 0) {
            return false;
        }
        struct pollfd wait = {.fd = fd, .events = write ? POLLOUT : POLLIN};
        poll(&wait, 1, (int)(left * 1000) + 1);
    }
    return true;
}

static void prove(const trmi_group *group, const hello *h, const uint8_t nonce[NONCE_BYTES],
                  char side, uint8_t mac[MAC_BYTES]) {
    uint8_t text[sizeof *h + NONCE_BYTES + 1];
    memcpy(text, h, sizeof *h);
    memcpy(text + sizeof *h, nonce, NONCE_BYTES);
    text[sizeof text - 1] = (uint8_t)side;
    group->bootstrap->table->sign(group->bootstrap, text, sizeof text, mac);
}

static bool equal_macs(const uint8_t *a, const uint8_t *b) {
    uint8_t differ = 0;
    for (int i = 0; i < MAC_BYTES; i++) {
        differ |= a[i] ^ b[i];
    }
    return differ == 0;
}

/* Waits with an eye on the job's health. */
static trm_status check_on(const trmi_group *group, double deadline, const char *what,
                           trm_error *err) {
    TRMI_TRY(group->bootstrap->table->check(group->bootstrap, err));
    if (trmi_os_now() > deadline) {
        return TRMI_FAIL(err, TRM_TIMEOUT, "rank %d waited too long for %s",
                         group->members[group->rank], what);
    }
    return TRM_OK;
}

static trm_status connect_to(const trmi_group *group, int32_t peer, int32_t channel,
                             const place *at, double deadline, int *out, trm_error *err) {
    char port[8], what[112];
    snprintf(port, sizeof port, "%u", at->port);
    snprintf(what, sizeof what, "rank %d at %s port %s", group->members[peer], at->address, port);
    struct addrinfo hints = {.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV,
                             .ai_socktype = SOCK_STREAM},
                    *found = NULL;
    if (getaddrinfo(at->address, port, &hints, &found) != 0) {
        return TRMI_FAIL(err, TRM_CORRUPT, "%s: not a numeric address", what);
    }
    int fd = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    int failed = fd < 0 ? errno : 0;
    if (fd >= 0 && connect(fd, found->ai_addr, found->ai_addrlen) != 0) {
        failed = errno;
    }
    freeaddrinfo(found);
    trm_status status = TRM_OK;
    while (failed == EINPROGRESS && (status = check_on(group, deadline, what, err)) == TRM_OK) {
        struct pollfd wait = {.fd = fd, .events = POLLOUT};
        socklen_t length = sizeof failed;
        if (poll(&wait, 1, (int)(slice_seconds * 1000)) > 0) {
            getsockopt(fd, SOL_SOCKET, SO_ERROR, &failed, &length);
        }
    }
    if (status == TRM_OK && failed != 0) {
        errno = failed;
        status = TRMI_FAIL_SYS(err, "cannot connect to %s", what);
    }
    if (status != TRM_OK) {
        if (fd >= 0) {
            close(fd);
        }
        return status;
    }
    prepare_socket(fd);
    hello h = {.magic = "TRMC",
               .version = VERSION,
               .from = group->rank,
               .to = peer,
               .channel = channel,
               .communicator = at->communicator};
    uint8_t answer[NONCE_BYTES + MAC_BYTES], expected[MAC_BYTES], mine[MAC_BYTES];
    bool good = getrandom(h.nonce, sizeof h.nonce, 0) == NONCE_BYTES &&
                transfer_exactly(fd, &h, sizeof h, true, deadline) &&
                transfer_exactly(fd, answer, sizeof answer, false, deadline);
    if (good) {
        prove(group, &h, answer, 'A', expected);
        prove(group, &h, answer, 'C', mine);
        good = equal_macs(answer + NONCE_BYTES, expected) &&
               transfer_exactly(fd, mine, sizeof mine, true, deadline);
    }
    if (!good) {
        close(fd);
        return TRMI_FAIL(err, TRM_PEER, "%s did not answer as a rank of this job", what);
    }
    *out = fd;
    return TRM_OK;
}

/* Lets in whoever proves that it belongs here; strangers are closed. True if a link was made. */
static bool let_in(const trmi_group *group, int fd, uint32_t communicator, trmi_link *links) {
    double deadline = trmi_os_now() + handshake_seconds;
    hello h;
    uint8_t answer[NONCE_BYTES + MAC_BYTES], proof[MAC_BYTES], expected[MAC_BYTES];
    prepare_socket(fd);
    bool good = transfer_exactly(fd, &h, sizeof h, false, deadline) &&
                memcmp(h.magic, "TRMC", 4) == 0 && h.version == VERSION && h.to == group->rank &&
                h.from > group->rank && h.from < group->size && h.channel >= 0 &&
                h.channel < TRMI_CHANNELS && h.communicator == communicator &&
                links[h.from * TRMI_CHANNELS + h.channel].fd < 0 &&
                getrandom(answer, NONCE_BYTES, 0) == NONCE_BYTES;
    if (good) {
        prove(group, &h, answer, 'A', answer + NONCE_BYTES);
        prove(group, &h, answer, 'C', expected);
        good = transfer_exactly(fd, answer, sizeof answer, true, deadline) &&
               transfer_exactly(fd, proof, sizeof proof, false, deadline) &&
               equal_macs(proof, expected);
    }
    if (!good) {
        trmi_log(TRM_LOG_WARN, "comm", "rank %d: a connection that is not of this job was closed",
                 group->members[group->rank]);
        close(fd);
        return false;
    }
    links[h.from * TRMI_CHANNELS + h.channel].fd = fd;
    return true;
}

static trm_status accept_all(const trmi_group *group, int listener, uint32_t communicator,
                             trmi_link *links, double deadline, trm_error *err) {
    int32_t awaited = (group->size - 1 - group->rank) * TRMI_CHANNELS;
    while (awaited > 0) {
        TRMI_TRY(check_on(group, deadline, "ranks above it to connect", err));
        struct pollfd wait = {.fd = listener, .events = POLLIN};
        if (poll(&wait, 1, (int)(slice_seconds * 1000)) <= 0) {
            continue;
        }
        int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        awaited -= fd >= 0 && let_in(group, fd, communicator, links);
    }
    return TRM_OK;
}

trm_status trmi_tcp_connect(const trmi_group *group, const trmi_exchange *exchange,
                            trmi_link *links, trm_error *err) {
    int listener = -1;
    double deadline = trmi_os_now() + group->timeout_seconds;
    place mine = {.port = 0}, *places = trmi_alloc((size_t)group->size * sizeof *places);
    if (places == NULL) {
        return TRMI_FAIL(err, TRM_NOMEM, "no memory to connect %d ranks", group->size);
    }
    trm_status status;
    TRMI_TRY_GOTO(status, listen_somewhere(group->bootstrap->address, &listener, &mine, err), done);
    if (getrandom(&mine.communicator, sizeof mine.communicator, 0) !=
        (ssize_t)sizeof mine.communicator) {
        status = TRMI_FAIL_SYS(err, "no random number for a communicator");
        goto done;
    }
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
    status = accept_all(group, listener, mine.communicator, links, deadline, err);
done:
    if (listener >= 0) {
        close(listener);
    }
    trmi_free(places);
    return status;
}
