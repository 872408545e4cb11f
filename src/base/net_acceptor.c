/* SPDX-License-Identifier: Apache-2.0 */
/* The acceptor: one loop over its listening sockets and the connections that have not proved the
 * token.
 *
 *   accept --> half[64] --HELLO--> CHALLENGE sent --PROOF--> trmi_acceptor_next hands it out
 *                 |  5 s over, wrong bytes, or one more than 64 (the oldest): closed, logged at
 * most once a second
 *
 * All memory is taken at creation. The epoll descriptor holds the listeners, the halves and the
 * bell of stop. */
#define _GNU_SOURCE /* accept4 */
#include "base/net_proof.h"

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

enum { LISTENERS_MAX = 8, BACKLOG = 1024, EVENTS = 32, ACCEPTS = 16 };

/* Seconds for which an unproved connection is not closed to make room. */
static const double YOUNG = 0.1;

/* A connection that has not proved the token yet. fd -1: the entry is free. */
typedef struct half {
    int fd;
    bool challenged;
    double since;
    size_t have; /* bytes received of the present message */
    trmi_proof proof;
    uint8_t answer[TRMI_PROOF_BYTES];
    char peer[TRMI_NET_NAME_BYTES];
} half;

/* The acceptor. */
struct trmi_acceptor {
    trmi_acceptor_options options;
    char name[48];
    int epoll, bell;
    int fds[LISTENERS_MAX];
    int count;
    half halves[TRMI_HALF_OPEN_MAX];
    double logged;
    int64_t unlogged; /* connections refused since the last log line */
    char refused[TRMI_NET_NAME_BYTES + 96];
    _Atomic bool stopped;
};

/* Adds a descriptor to epoll. about: index of a listener, or LISTENERS_MAX + index of a half; any
 * other number for the bell. */
static bool watch(const trmi_acceptor *a, int fd, uint64_t about) {
    struct epoll_event event = {.events = EPOLLIN, .data.u64 = about};
    return epoll_ctl(a->epoll, EPOLL_CTL_ADD, fd, &event) == 0;
}

/* Closes a connection and logs the reason, at most once a second. */
static void refuse(trmi_acceptor *a, half *h, const char *why) {
    double now = trmi_os_now();
    snprintf(a->refused, sizeof a->refused, "%s: %s", h->peer, why);
    if (now - a->logged >= 1) {
        char more[64] = "";
        if (a->unlogged > 0) {
            snprintf(more, sizeof more, " (and %lld others since the last such line)",
                     (long long)a->unlogged);
        }
        trmi_log(TRM_LOG_WARN, a->options.room, "%s: refused %s%s", a->options.name, a->refused,
                 more);
        a->logged = now;
        a->unlogged = 0;
    } else {
        a->unlogged++;
    }
    close(h->fd);
    h->fd = -1;
}

/* Returns a free entry; NULL: none. */
static half *free_half(trmi_acceptor *a) {
    for (int i = 0; i < TRMI_HALF_OPEN_MAX; i++) {
        if (a->halves[i].fd < 0) {
            return &a->halves[i];
        }
    }
    return NULL;
}

/* Closes the oldest unproved connection to make room for a waiting one; but only after YOUNG
 * seconds, because many ranks may connect at once. NULL: not yet. */
static half *free_oldest(trmi_acceptor *a) {
    half *oldest = &a->halves[0];
    for (int i = 1; i < TRMI_HALF_OPEN_MAX; i++) {
        oldest = a->halves[i].since < oldest->since ? &a->halves[i] : oldest;
    }
    if (trmi_os_now() - oldest->since < YOUNG) {
        usleep(1000); /* the listener stays readable, so epoll would return immediately */
        return NULL;
    }
    refuse(a, oldest,
           "too many connections wait that have not proved the job's token, this is the oldest");
    return oldest;
}

/* Returns whether a connection waits at a listener. */
static bool waits(int listener) {
    struct pollfd one = {.fd = listener, .events = POLLIN};
    return poll(&one, 1, 0) > 0;
}

/* Accepts one connection. False: none can be accepted now; it stays in the queue of the listener.
 */
static bool take_connection(trmi_acceptor *a, int listener) {
    half *h = free_half(a);
    if (h == NULL) {
        h = waits(listener) ? free_oldest(a) : NULL;
    }
    if (h == NULL) {
        return false;
    }
    int yes = 1, fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0 && (errno == EMFILE || errno == ENFILE)) {
        trmi_log(TRM_LOG_WARN, a->options.room,
                 "%s: a connection waits, no more files can be opened; raise ulimit -n",
                 a->options.name);
        usleep(50000);
    }
    if (fd < 0) {
        return false;
    }
    h->fd = fd;
    h->challenged = false;
    h->since = trmi_os_now();
    h->have = 0;
    bool is_local = trmi_net_peer(fd, h->peer);
    const char *why =
        a->options.refuses != NULL ? a->options.refuses(a->options.context, is_local) : NULL;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &yes, sizeof yes);
    if (why == NULL && !watch(a, fd, LISTENERS_MAX + (uint64_t)(h - a->halves))) {
        why = "no memory to watch it";
    }
    if (why != NULL) {
        refuse(a, h, why);
    }
    return true;
}

/* Sends the CHALLENGE for a complete HELLO. Returns why the connection is refused; NULL = it goes
 * on. */
static const char *challenge(trmi_acceptor *a, half *h) {
    const trmi_credentials *mine = &a->options.credentials;
    h->proof.hello_bytes = h->have;
    if (trmi_net_challenge(mine, &h->proof, NULL) != TRM_OK) {
        return "the system gives no random bytes";
    }
    ssize_t sent =
        send(h->fd, h->proof.challenge, TRMI_CHALLENGE_BYTES, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent != TRMI_CHALLENGE_BYTES) {
        return "it does not read the answer";
    }
    if (trmi_net_hello_version(&h->proof) != mine->version) {
        return "another version of the protocol; install the same trireme everywhere";
    }
    h->challenged = true;
    h->have = 0;
    return NULL;
}

/* Reads from one connection as far as its messages go. True: the connection has proved the token
 * and *out is its session. */
static bool hear(trmi_acceptor *a, half *h, trmi_session *out) {
    const trmi_credentials *mine = &a->options.credentials;
    for (;;) {
        /* a complete HELLO is answered by the CHALLENGE */
        size_t wanted = TRMI_PROOF_BYTES;
        const char *why =
            h->challenged ? NULL : trmi_net_check_hello(&h->proof, h->have, mine, &wanted);
        if (why == NULL && !h->challenged && h->have == wanted) {
            why = challenge(a, h);
            wanted = TRMI_PROOF_BYTES;
        }
        if (why != NULL) {
            refuse(a, h, why);
            return false;
        }
        /* read as much of the present message as is there */
        uint8_t *into = h->challenged ? h->answer : h->proof.hello;
        ssize_t got = recv(h->fd, into + h->have, wanted - h->have, MSG_DONTWAIT);
        if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) {
            return false;
        }
        if (got <= 0) {
            refuse(a, h,
                   h->challenged
                       ? "it left when it was asked for the job's token: it may have another one"
                       : "it left without a word");
            return false;
        }
        h->have += (size_t)got;
        /* a complete PROOF ends the proof */
        if (h->challenged && h->have == TRMI_PROOF_BYTES) {
            if (!trmi_net_check_answer(mine, &h->proof, h->answer)) {
                refuse(a, h, "it has another token than this job's");
                return false;
            }
            epoll_ctl(a->epoll, EPOLL_CTL_DEL, h->fd, NULL);
            trmi_net_begin_session(mine, &h->proof, h->fd, out);
            h->fd = -1;
            return true;
        }
    }
}

/* Closes connections that exceeded TRMI_HALF_OPEN_SECONDS. Returns the seconds until the next one
 * does. */
static double close_late(trmi_acceptor *a, double now) {
    double next = 3600;
    for (int i = 0; i < TRMI_HALF_OPEN_MAX; i++) {
        half *h = &a->halves[i];
        double left = h->fd < 0 ? next : h->since + TRMI_HALF_OPEN_SECONDS - now;
        if (h->fd >= 0 && left <= 0) {
            refuse(a, h, "it did not prove the job's token within 5 s");
        } else if (left < next) {
            next = left;
        }
    }
    return next;
}

/* Handles events: first unproved connections, then listeners. True: *out is a session. */
static bool serve_events(trmi_acceptor *a, const struct epoll_event *events, int count,
                         trmi_session *out) {
    for (int i = 0; i < count; i++) {
        uint64_t about = events[i].data.u64;
        half *h = about >= LISTENERS_MAX && about < LISTENERS_MAX + TRMI_HALF_OPEN_MAX
                      ? &a->halves[about - LISTENERS_MAX]
                      : NULL;
        if (h != NULL && h->fd >= 0 && hear(a, h, out)) {
            return true; /* epoll reports the remaining events again */
        }
    }
    for (int i = 0; i < count; i++) {
        const uint64_t about = events[i].data.u64;
        for (int n = 0; about < LISTENERS_MAX && n < ACCEPTS; n++) {
            if (!take_connection(a, a->fds[about])) {
                break;
            }
        }
    }
    return false;
}

trm_status trmi_acceptor_next(trmi_acceptor *a, double timeout_seconds, trmi_session *out,
                              trm_error *err) {
    double deadline = trmi_os_now() + timeout_seconds;
    for (;;) {
        struct epoll_event events[EVENTS];
        double now = trmi_os_now(), left = deadline - now, next = close_late(a, now);
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

trm_status trmi_acceptor_create(const int *fds, int count, const trmi_acceptor_options *options,
                                trmi_acceptor **out, trm_error *err) {
    trmi_acceptor *a = trmi_alloc(sizeof *a);
    TRMI_ASSERT(count <= LISTENERS_MAX);
    if (a == NULL) {
        for (int i = 0; i < count; i++) {
            close(fds[i]);
        }
        return TRMI_FAIL(err, TRM_NOMEM, "%s: no memory to accept connections", options->name);
    }
    a->options = *options;
    snprintf(a->name, sizeof a->name, "%s", options->name);
    a->options.name = a->name;
    a->count = count;
    a->epoll = epoll_create1(EPOLL_CLOEXEC);
    a->bell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    for (int i = 0; i < TRMI_HALF_OPEN_MAX; i++) {
        a->halves[i].fd = -1;
    }
    bool good = a->epoll >= 0 && a->bell >= 0 && watch(a, a->bell, UINT64_MAX);
    for (int i = 0; i < count; i++) {
        a->fds[i] = fds[i];
        good = good && listen(fds[i], BACKLOG) == 0 && watch(a, fds[i], (uint64_t)i);
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
    (void)!write(a->bell, &one, sizeof one);
}

void trmi_acceptor_destroy(trmi_acceptor *a) {
    if (a == NULL) {
        return;
    }
    for (int i = 0; i < TRMI_HALF_OPEN_MAX; i++) {
        if (a->halves[i].fd >= 0) {
            close(a->halves[i].fd);
        }
    }
    for (int i = 0; i < a->count; i++) {
        close(a->fds[i]);
    }
    if (a->bell >= 0) {
        close(a->bell);
    }
    if (a->epoll >= 0) {
        close(a->epoll);
    }
    explicit_bzero(&a->options.credentials, sizeof a->options.credentials);
    trmi_free(a);
}
