/* SPDX-License-Identifier: Apache-2.0 */
/* The acceptor: one loop over its listening sockets and its candidates, the connections that have
 * not proved the token of the job yet. The messages are in base/net/net.h.
 *
 *   accept --> candidates[64] --HELLO--> CHALLENGE sent --PROOF--> trmi_acceptor_next returns it
 *                 |
 *                 closed, and logged at most once a second: after 5 s, after a wrong byte, and the
 *                 oldest one when there is one more than 64
 *
 * All memory is taken at creation. The epoll descriptor watches the listeners, the candidates, and
 * an eventfd that trmi_acceptor_stop sets. */
#define _GNU_SOURCE /* accept4 */
#include "base/net/net_proof.h"

#include "base/error.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/os.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

/* Limits, so that strangers cannot take memory or time. */
enum {
    LISTENERS_MAX = 8, /* listening sockets */
    BACKLOG = 1024,    /* connections that the system queues for a listener */
    EVENTS = 32,       /* events of one epoll_wait */
    ACCEPTS = 16       /* connections accepted from one listener before the others' turn */
};

/* A candidate younger than this is not closed to make room for another one. */
static const double MIN_AGE_SECONDS = 0.1;

/* A connection that has not proved the token yet. fd -1: the entry is free. */
typedef struct unproved_connection {
    int fd;
    bool challenged;
    double accepted_time;
    size_t received; /* bytes received of the present message */
    trmi_proof proof;
    uint8_t answer[TRMI_PROOF_BYTES];
    char peer[TRMI_NET_NAME_BYTES];
} unproved_connection;

/* The acceptor. */
struct trmi_acceptor {
    trmi_acceptor_options options;
    char name[48];
    int epoll, stop_event;
    int fds[LISTENERS_MAX];
    int count;
    unproved_connection candidates[TRMI_UNPROVED_MAX];
    double logged_time;
    int64_t unlogged; /* connections refused since the last log line */
    char refused[TRMI_NET_NAME_BYTES + 96];
    _Atomic bool stopped;
};

/* Adds a descriptor to epoll. about: index of a listener, or LISTENERS_MAX + index of a candidate;
 * any other number for the eventfd. */
static bool add_to_epoll(const trmi_acceptor *a, int fd, uint64_t about) {
    struct epoll_event event = {.events = EPOLLIN, .data.u64 = about};
    return epoll_ctl(a->epoll, EPOLL_CTL_ADD, fd, &event) == 0;
}

/* Closes a connection and logs the reason, at most once a second. */
static void refuse_connection(trmi_acceptor *a, unproved_connection *c, const char *reason) {
    double now = trmi_os_now();
    snprintf(a->refused, sizeof a->refused, "%s: %s", c->peer, reason);
    if (now - a->logged_time >= 1) {
        char more[64] = "";
        if (a->unlogged > 0) {
            snprintf(more, sizeof more, " (and %lld others since the last such line)",
                     (long long)a->unlogged);
        }
        trmi_log(TRM_LOG_WARN, a->options.room, "%s: refused %s%s", a->options.name, a->refused,
                 more);
        a->logged_time = now;
        a->unlogged = 0;
    } else {
        a->unlogged++;
    }
    close(c->fd);
    c->fd = -1;
}

/* Returns an entry of `candidates` that is not in use; NULL: none. */
static unproved_connection *find_free_entry(trmi_acceptor *a) {
    for (int i = 0; i < TRMI_UNPROVED_MAX; i++) {
        if (a->candidates[i].fd < 0) {
            return &a->candidates[i];
        }
    }
    return NULL;
}

/* Closes the oldest candidate to make room for a waiting connection, but only when it is
 * MIN_AGE_SECONDS old, because many ranks may connect at once. Returns the free entry; NULL: not
 * yet. */
static unproved_connection *close_oldest(trmi_acceptor *a) {
    unproved_connection *oldest = &a->candidates[0];
    for (int i = 1; i < TRMI_UNPROVED_MAX; i++) {
        oldest =
            a->candidates[i].accepted_time < oldest->accepted_time ? &a->candidates[i] : oldest;
    }
    if (trmi_os_now() - oldest->accepted_time < MIN_AGE_SECONDS) {
        usleep(1000); /* the listener stays readable, so epoll would return immediately */
        return NULL;
    }
    refuse_connection(
        a, oldest,
        "too many connections wait that have not proved the job's token, this is the oldest");
    return oldest;
}

/* Returns whether a connection waits at a listener. */
static bool has_waiting_connection(int listener) {
    struct pollfd one = {.fd = listener, .events = POLLIN};
    return poll(&one, 1, 0) > 0;
}

/* Accepts one connection. False: none can be accepted now; it stays in the queue of the listener.
 */
static bool accept_connection(trmi_acceptor *a, int listener) {
    /* All places are taken: the oldest candidate gives way, but only to a connection that really
     * waits. */
    unproved_connection *c = find_free_entry(a);
    if (c == NULL) {
        c = has_waiting_connection(listener) ? close_oldest(a) : NULL;
    }
    if (c == NULL) {
        return false;
    }
    int on = 1, fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0 && (errno == EMFILE || errno == ENFILE)) {
        trmi_log(TRM_LOG_WARN, a->options.room,
                 "%s: a connection waits, no more files can be opened; raise ulimit -n",
                 a->options.name);
        usleep(50000); /* other connections may end and give files back */
    }
    if (fd < 0) {
        return false;
    }
    c->fd = fd;
    c->challenged = false;
    c->accepted_time = trmi_os_now();
    c->received = 0;
    bool is_local = trmi_net_peer(fd, c->peer);
    const char *reason =
        a->options.refuses != NULL ? a->options.refuses(a->options.context, is_local) : NULL;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    if (reason == NULL && !add_to_epoll(a, fd, LISTENERS_MAX + (uint64_t)(c - a->candidates))) {
        reason = "no memory to watch it";
    }
    if (reason != NULL) {
        refuse_connection(a, c, reason);
    }
    return true;
}

/* Sends the CHALLENGE for a complete HELLO. Returns why the connection is refused; NULL = it goes
 * on. */
static const char *send_challenge(trmi_acceptor *a, unproved_connection *c) {
    const trmi_credentials *mine = &a->options.credentials;
    c->proof.hello_bytes = c->received;
    if (trmi_net_challenge(mine, &c->proof, NULL) != TRM_OK) {
        return "the system gives no random bytes";
    }
    /* a call may send a part; a new connection has room for the rest */
    for (size_t sent = 0; sent < TRMI_CHALLENGE_BYTES;) {
        const ssize_t more = send(c->fd, c->proof.challenge + sent, TRMI_CHALLENGE_BYTES - sent,
                                  MSG_NOSIGNAL | MSG_DONTWAIT);
        if (more <= 0) {
            return "it does not read the CHALLENGE";
        }
        sent += (size_t)more;
    }
    if (trmi_net_hello_version(&c->proof) != mine->version) {
        return "another version of the protocol; install the same trireme everywhere";
    }
    c->challenged = true;
    c->received = 0;
    return NULL;
}

/* Reads what has arrived from a candidate and answers complete messages. True: the candidate has
 * proved the token and *out is its session. False: more bytes are needed, or it was refused. */
static bool read_messages(trmi_acceptor *a, unproved_connection *c, trmi_session *out) {
    const trmi_credentials *mine = &a->options.credentials;
    for (;;) {
        /* a complete HELLO is answered by the CHALLENGE */
        size_t wanted = TRMI_PROOF_BYTES;
        const char *reason =
            c->challenged ? NULL : trmi_net_check_hello(&c->proof, c->received, mine, &wanted);
        if (reason == NULL && !c->challenged && c->received == wanted) {
            reason = send_challenge(a, c);
            wanted = TRMI_PROOF_BYTES;
        }
        if (reason != NULL) {
            refuse_connection(a, c, reason);
            return false;
        }
        /* read as much of the present message as is there */
        uint8_t *into = c->challenged ? c->answer : c->proof.hello;
        ssize_t got = recv(c->fd, into + c->received, wanted - c->received, MSG_DONTWAIT);
        if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) {
            return false;
        }
        if (got <= 0) {
            refuse_connection(
                a, c,
                c->challenged
                    ? "it closed the connection when it was asked for the job's token; it may "
                      "have another one"
                    : "it closed the connection before its first message was complete");
            return false;
        }
        c->received += (size_t)got;
        /* a complete PROOF ends the proof */
        if (c->challenged && c->received == TRMI_PROOF_BYTES) {
            if (!trmi_net_check_answer(mine, &c->proof, c->answer)) {
                refuse_connection(a, c, "it has another token than this job's");
                return false;
            }
            epoll_ctl(a->epoll, EPOLL_CTL_DEL, c->fd, NULL);
            trmi_net_begin_session(mine, &c->proof, c->fd, out);
            c->fd = -1;
            return true;
        }
    }
}

/* Closes connections that exceeded TRMI_HALF_OPEN_SECONDS. Returns the seconds until the next one
 * does. */
static double close_overdue(trmi_acceptor *a, double now) {
    double next = 3600; /* no candidate: look again in an hour */
    for (int i = 0; i < TRMI_UNPROVED_MAX; i++) {
        unproved_connection *c = &a->candidates[i];
        double left = c->fd < 0 ? next : c->accepted_time + TRMI_HALF_OPEN_SECONDS - now;
        if (c->fd >= 0 && left <= 0) {
            refuse_connection(a, c, "it did not prove the job's token within 5 s");
        } else if (left < next) {
            next = left;
        }
    }
    return next;
}

/* Handles events: first those of candidates, which may free entries, then those of listeners. True:
 * *out is a session. */
static bool serve_events(trmi_acceptor *a, const struct epoll_event *events, int count,
                         trmi_session *out) {
    for (int i = 0; i < count; i++) {
        uint64_t about = events[i].data.u64;
        unproved_connection *c = about >= LISTENERS_MAX && about < LISTENERS_MAX + TRMI_UNPROVED_MAX
                                     ? &a->candidates[about - LISTENERS_MAX]
                                     : NULL;
        if (c != NULL && c->fd >= 0 && read_messages(a, c, out)) {
            return true; /* epoll reports the remaining events again */
        }
    }
    for (int i = 0; i < count; i++) {
        const uint64_t about = events[i].data.u64;
        for (int n = 0; about < LISTENERS_MAX && n < ACCEPTS; n++) {
            if (!accept_connection(a, a->fds[about])) {
                break;
            }
        }
    }
    return false;
}

/* Contract in net.h. Waits until the deadline or until a candidate is overdue, whichever
 * comes first. */
trm_status trmi_acceptor_next(trmi_acceptor *a, double timeout_seconds, trmi_session *out,
                              trm_error *err) {
    double deadline = trmi_os_now() + timeout_seconds;
    for (;;) {
        struct epoll_event events[EVENTS];
        double now = trmi_os_now(), left = deadline - now, next = close_overdue(a, now);
        double wait = left <= 0 ? 0 : next < left ? next : left;
        int count = epoll_wait(a->epoll, events, EVENTS, (int)(wait * 1e3 + 0.999));
        if (atomic_load(&a->stopped)) {
            return TRM_CANCELLED;
        }
        if (count < 0 && errno != EINTR) {
            return TRMI_FAIL_SYS(err, "%s: waiting for connections", a->options.name);
        }
        if (count > 0 && serve_events(a, events, count, out)) {
            return TRM_OK;
        }
        if (trmi_os_now() >= deadline && count <= 0) {
            return TRM_TIMEOUT;
        }
    }
}

/* Contract in net.h. The listeners belong to the acceptor at once, also if this call
 * fails. */
trm_status trmi_acceptor_create(const int *fds, int count, const trmi_acceptor_options *options,
                                trmi_acceptor **out, trm_error *err) {
    trmi_acceptor *a = trmi_alloc(sizeof *a);
    TRMI_ASSERT(count <= LISTENERS_MAX);
    if (a == NULL) {
        for (int i = 0; i < count; i++) {
            close(fds[i]);
        }
        return TRMI_NO_MEMORY(err, "to accept connections of %s", options->name);
    }
    a->options = *options;
    snprintf(a->name, sizeof a->name, "%s", options->name);
    a->options.name = a->name;
    a->count = count;
    a->epoll = epoll_create1(EPOLL_CLOEXEC);
    a->stop_event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    for (int i = 0; i < TRMI_UNPROVED_MAX; i++) {
        a->candidates[i].fd = -1;
    }
    bool good = a->epoll >= 0 && a->stop_event >= 0 && add_to_epoll(a, a->stop_event, UINT64_MAX);
    for (int i = 0; i < count; i++) {
        a->fds[i] = fds[i];
        good = good && listen(fds[i], BACKLOG) == 0 && add_to_epoll(a, fds[i], (uint64_t)i);
    }
    if (!good) {
        trm_status status = TRMI_FAIL_SYS(err, "%s: cannot listen", options->name);
        trmi_acceptor_destroy(a);
        return status;
    }
    *out = a;
    return TRM_OK;
}

int trmi_acceptor_fd(const trmi_acceptor *a) { return a->epoll; }

const char *trmi_acceptor_refused(const trmi_acceptor *a) { return a->refused; }

void trmi_acceptor_stop(trmi_acceptor *a) {
    uint64_t one = 1;
    atomic_store(&a->stopped, true);
    (void)!write(a->stop_event, &one, sizeof one);
}

/* Contract in net.h. The token is erased from memory. */
void trmi_acceptor_destroy(trmi_acceptor *a) {
    if (a == NULL) {
        return;
    }
    for (int i = 0; i < TRMI_UNPROVED_MAX; i++) {
        if (a->candidates[i].fd >= 0) {
            close(a->candidates[i].fd);
        }
    }
    for (int i = 0; i < a->count; i++) {
        close(a->fds[i]);
    }
    if (a->stop_event >= 0) {
        close(a->stop_event);
    }
    if (a->epoll >= 0) {
        close(a->epoll);
    }
    explicit_bzero(&a->options.credentials, sizeof a->options.credentials);
    trmi_free(a);
}
