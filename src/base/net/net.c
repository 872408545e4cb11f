/* SPDX-License-Identifier: Apache-2.0 */
/* Sockets with deadlines (base/net/net.h). All sockets are non-blocking; every wait is a poll() in
 * slices of look_seconds, between which the caller can stop it:
 *
 *     send, recv, connect --would block--> wait_ready: poll() for at most look_seconds
 *             ^                                |
 *             '----------- ready --------------+-- stopped() says so: CANCELLED
 *                                              '-- deadline is past: TIMEOUT
 *
 * The functions that move bytes return a status without a message; the function that the rest of
 * the library calls adds it, with the name of the peer (describe_failure). A closed connection and
 * a broken one are the same here: PEER. Writing to a closed connection raises no signal
 * (MSG_NOSIGNAL).
 *
 * The order of the file: addresses; listening and connecting; who the peer is; sending and
 * receiving. */
#define _GNU_SOURCE /* struct ucred */
#include "base/net/net.h"

#include "base/error.h"
#include "base/os.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static const double look_seconds = 0.25; /* longest time between two checks of `stopped` */

/* Contract in net.h. The last colon separates the port, because IPv6 addresses contain colons. */
trm_status trmi_net_split(const char *address, char host[64], int32_t *port, trm_error *err) {
    const char *colon = strrchr(address, ':'), *start = address;
    size_t length = colon == NULL ? 0 : (size_t)(colon - address);
    char *end = NULL;
    long number = colon == NULL ? -1 : strtol(colon + 1, &end, 10);
    /* An IPv6 address has brackets around it. */
    if (length > 2 && address[0] == '[' && address[length - 1] == ']') {
        start++;
        length -= 2;
    }
    if (length == 0 || length >= 64 || end == colon + 1 || *end != '\0' || number < 0 ||
        number > 65535) {
        return TRMI_FAIL(err, TRM_INVALID,
                         "'%.80s' is no address: HOST:PORT expected, port 0 to 65535", address);
    }
    memcpy(host, start, length);
    host[length] = '\0';
    *port = (int32_t)number;
    return TRM_OK;
}

/* Writes a socket address as numeric "host:port". */
static void format_address(const struct sockaddr_storage *address, socklen_t length,
                           char name[TRMI_NET_NAME_BYTES]) {
    char host[48] = "?", port[8] = "?";
    getnameinfo((const struct sockaddr *)address, length, host, sizeof host, port, sizeof port,
                NI_NUMERICHOST | NI_NUMERICSERV);
    host[strcspn(host, "%")] = '\0'; /* scope of a link-local address */
    snprintf(name, TRMI_NET_NAME_BYTES, strchr(host, ':') != NULL ? "[%s]:%s" : "%s:%s", host,
             port);
}

/* Resolves a host name.   errors  INVALID */
static trm_status resolve_host(const char *host, int32_t port, int flags, struct addrinfo **out,
                               trm_error *err) {
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = flags | AI_NUMERICSERV};
    char service[8];
    snprintf(service, sizeof service, "%d", port);
    int code = getaddrinfo(host, service, &hints, out);
    return code == 0 ? TRM_OK
                     : TRMI_FAIL(err, TRM_INVALID, "host name \"%.80s\" is not known (%s)", host,
                                 gai_strerror(code));
}

/* Contract in net.h. The name is read back from the socket: with port 0 the kernel has chosen
 * one. */
trm_status trmi_net_bind(const char *host, int32_t port, int *out, char name[TRMI_NET_NAME_BYTES],
                         trm_error *err) {
    struct addrinfo *found;
    struct sockaddr_storage bound;
    socklen_t length = sizeof bound;
    int yes = 1;
    TRMI_TRY(resolve_host(host, port, AI_PASSIVE, &found, err));
    int fd = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    trm_status status = TRM_OK;
    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes) != 0 ||
        bind(fd, found->ai_addr, found->ai_addrlen) != 0 ||
        getsockname(fd, (struct sockaddr *)&bound, &length) != 0) {
        status = TRMI_FAIL_SYS(err, "%s:%d: cannot listen", host, port);
    }
    freeaddrinfo(found);
    if (status != TRM_OK) {
        if (fd >= 0) {
            close(fd);
        }
        return status;
    }
    if (name != NULL) {
        format_address(&bound, length, name);
    }
    *out = fd;
    return TRM_OK;
}

/* Returns whether the caller wants to stop. */
static bool is_stopped(const trmi_wait_limit *patience) {
    return patience->stopped != NULL && patience->stopped(patience->context);
}

/* Waits until the socket is ready for `events`.
 *   errors  TIMEOUT, CANCELLED, without a message: the caller describes what it waited for */
static trm_status wait_ready(int fd, short events, const trmi_wait_limit *patience) {
    for (;;) {
        double left = patience->deadline - trmi_os_now();
        struct pollfd wait = {.fd = fd, .events = events};
        int milliseconds =
            left <= 0 ? 0 : (int)((left < look_seconds ? left : look_seconds) * 1e3 + 0.999);
        if (poll(&wait, 1, milliseconds) > 0) {
            return TRM_OK;
        }
        if (is_stopped(patience)) {
            return TRM_CANCELLED;
        }
        if (left <= 0) {
            return TRM_TIMEOUT;
        }
    }
}

/* Returns whether a socket is connected to itself: on one host, a connection to a port without a
 * listener can get that very port as its own end. */
static bool is_own_end(int fd) {
    struct sockaddr_storage here = {0}, there = {0};
    socklen_t a = sizeof here, b = sizeof there;
    return getsockname(fd, (struct sockaddr *)&here, &a) == 0 &&
           getpeername(fd, (struct sockaddr *)&there, &b) == 0 && a == b &&
           here.ss_family != AF_UNIX && memcmp(&here, &there, a) == 0;
}

/* Connects to one address. Returns 0, or errno; ECANCELED: stopped. */
static int connect_one(const struct addrinfo *to, const trmi_wait_limit *patience, int *out) {
    int fd = socket(to->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), yes = 1;
    if (fd < 0) {
        return errno;
    }
    int problem = connect(fd, to->ai_addr, to->ai_addrlen) == 0 ? 0 : errno;
    /* wait until the connection is made or refused */
    if (problem == EINPROGRESS) {
        socklen_t length = sizeof problem;
        trm_status status = wait_ready(fd, POLLOUT, patience);
        problem = status == TRM_OK ? 0 : status == TRM_CANCELLED ? ECANCELED : ETIMEDOUT;
        if (status == TRM_OK && getsockopt(fd, SOL_SOCKET, SO_ERROR, &problem, &length) != 0) {
            problem = errno;
        }
    }
    /* A socket may connect to itself, where no process listens on that local port. */
    problem = problem == 0 && is_own_end(fd) ? ECONNREFUSED : problem;
    if (problem != 0) {
        close(fd);
        return problem;
    }
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &yes, sizeof yes);
    *out = fd;
    return 0;
}

/* Contract in net.h. The error is that of the last address that was tried. */
trm_status trmi_net_connect(const char *host, int32_t port, const trmi_wait_limit *patience,
                            int *fd, trm_error *err) {
    struct addrinfo *found;
    TRMI_TRY(resolve_host(host, port, 0, &found, err));
    int problem = ECONNREFUSED;
    /* Try all addresses of the name in order. */
    for (const struct addrinfo *one = found; one != NULL && problem != 0 && problem != ECANCELED;
         one = one->ai_next) {
        problem = connect_one(one, patience, fd);
    }
    freeaddrinfo(found);
    if (problem == ECANCELED) {
        return TRMI_FAIL(err, TRM_CANCELLED, "stopped on request while connecting to %.60s:%d",
                         host, port);
    }
    if (problem == 0) {
        return TRM_OK;
    }
    TRMI_FAIL(err, TRM_PEER, "%.60s:%d: cannot connect: %s", host, port, strerror(problem));
    if (err != NULL) {
        err->sys_errno = problem;
    }
    return TRM_PEER;
}

/* Contract in net.h. With TCP_USER_TIMEOUT the system counts seconds of silence instead of probes
 * that are not answered. It takes whole seconds between probes, at most 32,767. */
void trmi_net_set_patience(int fd, double seconds) {
    const double most = 1e6, probes = 3, interval_most = 32767;
    const double limit = seconds < most ? seconds : most;
    const double interval = limit / probes < interval_most ? limit / probes : interval_most;
    const int silence_ms = (int)(limit * 1e3), every = interval > 1 ? (int)interval : 1, yes = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &silence_ms, sizeof silence_ms);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &every, sizeof every);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &every, sizeof every);
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &yes, sizeof yes);
}

/* Returns whether an address is a loopback address. */
static bool is_loopback(const struct sockaddr_storage *address) {
    if (address->ss_family == AF_INET) {
        return ntohl(((const struct sockaddr_in *)(const void *)address)->sin_addr.s_addr) >> 24 ==
               127;
    }
    const struct in6_addr *six = &((const struct sockaddr_in6 *)(const void *)address)->sin6_addr;
    return address->ss_family == AF_INET6 &&
           (IN6_IS_ADDR_LOOPBACK(six) || (IN6_IS_ADDR_V4MAPPED(six) && six->s6_addr[12] == 127));
}

/* Returns whether two addresses have the same IP address. */
static bool same_host(const struct sockaddr_storage *a, const struct sockaddr_storage *b) {
    if (a->ss_family == AF_INET && b->ss_family == AF_INET) {
        return ((const struct sockaddr_in *)(const void *)a)->sin_addr.s_addr ==
               ((const struct sockaddr_in *)(const void *)b)->sin_addr.s_addr;
    }
    return a->ss_family == AF_INET6 && b->ss_family == AF_INET6 &&
           IN6_ARE_ADDR_EQUAL(&((const struct sockaddr_in6 *)(const void *)a)->sin6_addr,
                              &((const struct sockaddr_in6 *)(const void *)b)->sin6_addr);
}

/* Contract in net.h. A connection is local if both ends are of this host, and over a unix socket if
 * the peer's user is this one or root. */
bool trmi_net_peer(int fd, char name[TRMI_NET_NAME_BYTES]) {
    struct sockaddr_storage peer = {0}, own = {0};
    socklen_t peer_bytes = sizeof peer, own_bytes = sizeof own;
    snprintf(name, TRMI_NET_NAME_BYTES, "?");
    if (getpeername(fd, (struct sockaddr *)&peer, &peer_bytes) != 0 ||
        getsockname(fd, (struct sockaddr *)&own, &own_bytes) != 0) {
        return false;
    }
    /* Of a unix socket the kernel reports the peer's process and user. */
    if (own.ss_family == AF_UNIX) {
        struct ucred who;
        socklen_t bytes = sizeof who;
        if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &bytes) != 0) {
            return false;
        }
        snprintf(name, TRMI_NET_NAME_BYTES, "pid %d of user %u", (int)who.pid, (unsigned)who.uid);
        return who.uid == geteuid() || who.uid == 0;
    }
    format_address(&peer, peer_bytes, name);
    return is_loopback(&peer) || same_host(&peer, &own);
}

/* Contract in net.h. If the socket has no name, the text is "?:?". */
void trmi_net_own(int fd, char name[TRMI_NET_NAME_BYTES]) {
    struct sockaddr_storage own = {0};
    socklen_t bytes = sizeof own;
    getsockname(fd, (struct sockaddr *)&own, &bytes);
    format_address(&own, bytes, name);
}

/* Sends or receives exactly `bytes`.   errors  PEER, TIMEOUT, CANCELLED, without a message */
static trm_status transfer_bytes(int fd, void *data, size_t bytes, bool sends,
                                 const trmi_wait_limit *patience) {
    for (size_t done = 0; done < bytes;) {
        ssize_t moved =
            sends ? send(fd, (char *)data + done, bytes - done, MSG_NOSIGNAL | MSG_DONTWAIT)
                  : recv(fd, (char *)data + done, bytes - done, MSG_DONTWAIT);
        if (moved > 0) {
            done += (size_t)moved;
        } else if (moved == 0 || (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR)) {
            return TRM_PEER;
        } else if (errno != EINTR) {
            trm_status status = wait_ready(fd, sends ? POLLOUT : POLLIN, patience);
            if (status != TRM_OK) {
                return status;
            }
        }
    }
    return TRM_OK;
}

/* Writes the message for a failed transfer. */
static trm_status describe_failure(trm_status status, int fd, const char *what, trm_error *err) {
    char name[TRMI_NET_NAME_BYTES];
    if (status == TRM_OK) {
        return TRM_OK;
    }
    trmi_net_peer(fd, name);
    return status == TRM_PEER ? TRMI_FAIL(err, status, "%s closed the connection", name)
           : status == TRM_TIMEOUT
               ? TRMI_FAIL(err, status, "%s has not %s in time", name, what)
               : TRMI_FAIL(err, status, "stopped on request while waiting for %s", name);
}

/* Contract in net.h. send() does not change the data; transfer_bytes, which also receives, wants it
 * without const. */
trm_status trmi_net_send(int fd, const void *data, size_t bytes, const trmi_wait_limit *patience,
                         trm_error *err) {
    trm_status status = transfer_bytes(fd, (void *)(uintptr_t)data, bytes, true, patience);
    return describe_failure(status, fd, "accepted the data", err);
}

trm_status trmi_net_receive(int fd, void *data, size_t bytes, const trmi_wait_limit *patience,
                            trm_error *err) {
    return describe_failure(transfer_bytes(fd, data, bytes, false, patience), fd, "answered", err);
}
