/* SPDX-License-Identifier: Apache-2.0 */
/* The network of the simulator (sim.h): hosts 10.0.0.1 ..., and TCP as a program sees it.
 *
 *   stream --segments in flight--> peer stream --> received bytes
 *
 * Segments of a stream arrive in order, after the delay of their link; segments of different
 * streams overtake each other. On a link that is cut, segments wait and are tried again, until the
 * sender's patience (TCP_USER_TIMEOUT) ends. Acknowledgements take the way back: when that is cut,
 * the sender's window stays full, and its patience ends too. A stream that has heard nothing for
 * TCP_KEEPIDLE seconds sends probes, which draw nothing: the other host acknowledges them, or
 * answers with a reset where it knows nothing of the stream, or patience ends. */
#include "sim.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define WRAP(result, name, parameters)                                                             \
    result __real_##name parameters;                                                               \
    result __wrap_##name parameters;                                                               \
    result __wrap_##name parameters

enum {
    UNIX_PORTS = 1 << 17, /* the port of a socket at a path is this and the number of its inode */
    PATIENCE_SECONDS = 900,
    WINDOW_LEAST = 4096,
    WINDOW_MOST = 256 << 10
};

typedef struct segment {
    struct segment *next;
    int64_t arrival, sent;
    bool end; /* FIN */
    size_t bytes;
    uint8_t data[];
} segment;

struct sim_stream {
    sim_stream *peer, *next, *next_waiting; /* all streams; those of a listener */
    sim_file *file;                         /* NULL: closed, or not accepted yet */
    int host, port, peer_host, peer_port, number;
    bool connected, waiting, closed, lost, shut, ended; /* ended: the peer has sent its end */
    int error;
    int64_t patience, latest, heard; /* heard: when something last came from the other host */
    int64_t probes;                  /* interval of probes; 0: none */
    uint8_t *received;
    size_t have, taken, room, window, in_flight;
    segment *first, **last;
};

static sim_stream *streams;
static int stream_count;

/* ---- links ----------------------------------------------------------------------------------- */

static int64_t draw_delay(int from, int to) {
    double seconds = from == to ? 5e-6 : sim.delay[from][to];
    double jitter = sim_unit(DRAW_NETWORK);
    seconds *= 0.7 + jitter + (sim_random(DRAW_NETWORK, 50) == 0 ? 20 * jitter : 0);
    return (int64_t)(seconds * 1e9) + 1;
}

/* Returns until when nothing passes from one host to another; 0: it passes now. */
static int64_t blocked_until(int from, int to) {
    int64_t until = from == to ? 0 : sim.blocked_until[from][to];
    until = until > sim.now ? until : 0;
    return !sim.hosts[to].up && until < sim.now + SIM_SECOND ? sim.now + SIM_SECOND : until;
}

static int64_t retry_time(int64_t until) {
    return until + (int64_t)sim_random(DRAW_NETWORK, 200000000);
}

/* ---- streams --------------------------------------------------------------------------------- */

static sim_stream *make_stream(int host, int port, int peer_host, int peer_port) {
    sim_stream *s = calloc(1, sizeof *s);
    *s = (sim_stream){.host = host,
                      .port = port,
                      .peer_host = peer_host,
                      .peer_port = peer_port,
                      .number = ++stream_count,
                      .next = streams,
                      .patience = PATIENCE_SECONDS * SIM_SECOND};
    s->window = WINDOW_LEAST + sim_random(DRAW_NETWORK, WINDOW_MOST);
    s->last = &s->first;
    streams = s;
    return s;
}

/* Returns whether data is on its way to a stream, or not read yet. */
static bool has_data_to_read(const sim_stream *s) {
    bool has = s->have > s->taken;
    for (const segment *g = s->peer == NULL ? NULL : s->peer->first; g != NULL; g = g->next) {
        has = has || g->bytes > 0;
    }
    return has;
}

/* Ends a stream with an error that its owner sees. A reset takes with it what was not read, also
 * when the kernel of a process that has died sends it. */
static void break_stream(sim_stream *s, int error) {
    if (s->error == 0 && !s->closed) {
        sim.data_lost = sim.data_lost || (error == ECONNRESET && has_data_to_read(s));
        s->error = error;
        sim_trace(s->file == NULL ? NULL : s->file->owner, "stream %d: %s", s->number,
                  strerror(error));
        sim_file_changed(s->file);
    }
}

static void reset_arrives(void *a, uint64_t b) {
    (void)b;
    sim_stream *s = a;
    if (!s->lost && blocked_until(s->peer_host, s->host) == 0) {
        break_stream(s, s->connected ? ECONNRESET : ECONNREFUSED);
    } else if (!s->connected) { /* the request for a connection is sent again, and so is this */
        sim_at(retry_time(sim.now + SIM_SECOND), reset_arrives, s, 0);
    }
}

static void send_reset(sim_stream *to) {
    sim_at(sim.now + draw_delay(to->peer_host, to->host), reset_arrives, to, 0);
}

static void acknowledgement_arrives(void *a, uint64_t bytes) {
    sim_stream *s = a;
    int64_t until = blocked_until(s->peer_host, s->host);
    if (s->lost || s->closed) {
        return;
    }
    if (until != 0) {
        s->latest = s->latest < until ? until : s->latest;
        if (until - sim.now > s->patience) {
            break_stream(s, ETIMEDOUT);
            return;
        }
        sim_at(retry_time(until), acknowledgement_arrives, s, bytes);
        return;
    }
    s->in_flight -= bytes;
    s->heard = sim.now;
    sim_file_changed(s->file);
}

/* A stream that has heard nothing for its interval sends a probe. While data is under way, that is
 * sent again instead (segment_arrives). */
static void probe_peer(void *a, uint64_t b) {
    sim_stream *s = a;
    if (s->closed || s->lost || s->error != 0) {
        return;
    }
    if (sim.now - s->heard >= s->probes) {
        const bool passes =
            blocked_until(s->host, s->peer_host) == 0 && blocked_until(s->peer_host, s->host) == 0;
        if (passes && (s->peer->lost || s->peer->error != 0)) {
            break_stream(s, ECONNRESET);
            return;
        }
        if (!passes && s->in_flight == 0 && sim.now - s->heard >= s->patience) {
            break_stream(s, ETIMEDOUT);
            return;
        }
        s->heard = passes ? sim.now : s->heard;
    }
    const int64_t next = s->heard + s->probes;
    sim_at(next > sim.now ? next : sim.now + s->probes, probe_peer, s, b);
}

/* Hands a segment to its stream. */
static void take_segment(sim_stream *s, const segment *g) {
    if (s->have + g->bytes > s->room) {
        s->room = 2 * (s->have + g->bytes) + 4096;
        s->received = realloc(s->received, s->room);
    }
    if (g->bytes > 0) {
        memcpy(s->received + s->have, g->data, g->bytes);
    }
    s->have += g->bytes;
    s->ended |= g->end;
    s->heard = sim.now;
    sim_trace(s->file == NULL ? NULL : s->file->owner, "stream %d: %zu bytes arrive%s", s->number,
              g->bytes, g->end ? ", the last" : "");
    sim_file_changed(s->file);
}

/* The first segment in flight arrives, or is tried again later. */
static void segment_arrives(void *a, uint64_t b) {
    (void)b;
    sim_stream *s = a, *to = s->peer;
    segment *g = s->first;
    if (g == NULL || s->lost) {
        return;
    }
    int64_t until = blocked_until(s->host, to->host);
    if (until != 0) {
        if (sim.now - g->sent > s->patience) {
            break_stream(s, ETIMEDOUT);
            return;
        }
        int64_t retry = retry_time(until), ends = g->sent + s->patience + 1;
        sim_at(retry < ends || sim.now >= ends ? retry : ends, segment_arrives, s, 0);
        return;
    }
    s->first = g->next;
    s->last = s->first == NULL ? &s->first : s->last;
    if (to->lost || to->closed || to->error != 0) {
        if (g->bytes > 0 || to->lost) {
            send_reset(s);
        }
    } else {
        take_segment(to, g);
    }
    if (g->bytes > 0) {
        sim_at(sim.now + draw_delay(to->host, s->host), acknowledgement_arrives, s, g->bytes);
    }
    free(g);
    if (s->first != NULL) {
        sim_at(s->first->arrival, segment_arrives, s, 0);
    }
}

static void put_in_flight(sim_stream *s, const void *data, size_t bytes, bool end) {
    segment *g = malloc(sizeof *g + bytes);
    int64_t arrival = sim.now + draw_delay(s->host, s->peer_host) + (int64_t)bytes;
    s->latest = arrival > s->latest ? arrival : s->latest + 1;
    *g = (segment){.arrival = s->latest, .sent = sim.now, .end = end, .bytes = bytes};
    if (bytes > 0) {
        memcpy(g->data, data, bytes);
    }
    s->in_flight += bytes;
    bool alone = s->first == NULL;
    *s->last = g;
    s->last = &g->next;
    if (alone) {
        sim_at(g->arrival, segment_arrives, s, 0);
    }
}

short sim_stream_ready(const sim_stream *s) {
    short ready = 0;
    if (s->error != 0) {
        return POLLIN | POLLOUT | POLLERR | POLLHUP;
    }
    ready |= s->have > s->taken || s->ended ? POLLIN : 0;
    ready |= s->connected && s->in_flight < s->window ? POLLOUT : 0;
    ready |= s->ended && s->shut ? POLLHUP : 0;
    return ready;
}

ssize_t sim_stream_read(sim_file *file, void *data, size_t bytes, int flags) {
    sim_stream *s = file->stream;
    while (s->have == s->taken && !s->ended && s->error == 0) {
        if ((file->flags & O_NONBLOCK) != 0 || (flags & MSG_DONTWAIT) != 0) {
            errno = EAGAIN;
            return -1;
        }
        struct pollfd wait = {.fd = file->fd, .events = POLLIN};
        sim.current->polls = &wait;
        sim.current->poll_count = 1;
        sim_block(SIM_POLL, NULL, SIM_NEVER);
        sim.current->poll_count = 0;
    }
    if (s->error != 0) {
        errno = s->error;
        return -1;
    }
    size_t got = s->have - s->taken < bytes ? s->have - s->taken : bytes;
    if (got > 1 && sim_random(DRAW_NETWORK, 8) == 0) {
        got = 1 + sim_random(DRAW_NETWORK, got);
    }
    memcpy(data, s->received + s->taken, got);
    if ((flags & MSG_PEEK) == 0) {
        s->taken += got;
        if (s->taken == s->have) {
            s->taken = s->have = 0;
        }
    }
    return (ssize_t)got;
}

ssize_t sim_stream_write(sim_file *file, const void *data, size_t bytes, int flags) {
    sim_stream *s = file->stream;
    (void)flags; /* what blocks is not used: sockets of the product do not block */
    if (s->error != 0 || s->shut || !s->connected) {
        errno = s->error != 0 ? s->error : s->shut ? EPIPE : ENOTCONN;
        return -1;
    }
    if (s->in_flight >= s->window) {
        errno = EAGAIN;
        return -1;
    }
    size_t room = s->window - s->in_flight, sent = bytes < room ? bytes : room;
    if (sent > 1 && sim_random(DRAW_NETWORK, 16) == 0) {
        sent = 1 + sim_random(DRAW_NETWORK, sent);
    }
    put_in_flight(s, data, sent, false);
    return (ssize_t)sent;
}

void sim_stream_close(sim_stream *s) {
    bool unread = s->have > s->taken;
    s->file = NULL;
    if (s->connected && !s->shut && s->error == 0) {
        put_in_flight(s, NULL, 0, true);
    }
    if (s->connected && unread && s->error == 0) {
        send_reset(s->peer);
    }
    s->closed = s->shut = true;
}

void sim_network_lose(int host) {
    for (sim_stream *s = streams; s != NULL; s = s->next) {
        s->lost |= s->host == host;
    }
}

bool sim_reset_connection(void) {
    sim_stream *found = NULL;
    uint64_t seen = 0;
    for (sim_stream *s = streams; s != NULL; s = s->next) {
        if (s->file != NULL && s->connected && s->error == 0 && s->peer->file != NULL &&
            s->host != s->peer_host && sim_random(DRAW_PLAN, ++seen) == 0) {
            found = s;
        }
    }
    if (found != NULL) {
        sim_trace(NULL, "fault: stream %d is reset", found->number);
        break_stream(found, ECONNRESET);
        break_stream(found->peer, ECONNRESET);
    }
    return found != NULL;
}

void sim_break_half(int host, int peer) {
    for (sim_stream *s = streams; s != NULL; s = s->next) {
        if (s->file != NULL && s->connected && s->error == 0 && s->host == host &&
            s->peer_host == peer) {
            sim_trace(NULL, "fault: host %d loses stream %d", host, s->number);
            break_stream(s, ECONNRESET);
            return;
        }
    }
}

/* ---- connecting ------------------------------------------------------------------------------ */

static sim_file *listeners[64];

static sim_file **find_listener(int host, int port) {
    for (int i = 0; i < 64; i++) {
        if (listeners[i] != NULL && listeners[i]->owner->host == host &&
            listeners[i]->port == port) {
            return &listeners[i];
        }
    }
    return NULL;
}

void sim_listener_close(sim_file *file) {
    for (int i = 0; i < 64; i++) {
        listeners[i] = listeners[i] == file ? NULL : listeners[i];
    }
    for (sim_stream *s = file->backlog; s != NULL; s = s->next_waiting) {
        s->closed = true;
        send_reset(s->peer);
    }
}

static void connection_made(void *a, uint64_t b) {
    (void)b;
    sim_stream *s = a;
    int64_t until = blocked_until(s->peer_host, s->host);
    if (until != 0) {
        sim_at(retry_time(until), connection_made, s, 0);
    } else if (!s->closed && s->error == 0) {
        s->connected = true;
        sim_file_changed(s->file);
    }
}

/* Adds the other end of a stream to those that wait at a listener. */
static void join_backlog(sim_file **listener, sim_stream *s) {
    sim_stream *t = make_stream(s->peer_host, s->peer_port, s->host, s->port);
    t->peer = s;
    s->peer = t;
    t->connected = t->waiting = true;
    sim_stream **last = &(*listener)->backlog;
    while (*last != NULL) {
        last = &(*last)->next_waiting;
    }
    *last = t;
    sim_file_changed(*listener);
}

static void request_arrives(void *a, uint64_t b) {
    (void)b;
    sim_stream *s = a;
    int64_t until = blocked_until(s->host, s->peer_host);
    if (s->closed || s->lost) {
        return;
    }
    if (until != 0) {
        sim_at(retry_time(until), request_arrives, s, 0);
        return;
    }
    sim_file **listener = find_listener(s->peer_host, s->peer_port);
    if (listener == NULL) {
        send_reset(s);
        return;
    }
    join_backlog(listener, s);
    sim_at(sim.now + draw_delay(s->peer_host, s->host), connection_made, s, 0);
}

/* Connects to a socket at a path of this host, which takes no time. */
static int connect_unix(sim_file *file, const char *path) {
    const int here = sim.current->process->host, inode = sim_disk_inode(path);
    sim_file **listener = inode == 0 ? NULL : find_listener(here, UNIX_PORTS + inode);
    if (listener == NULL) {
        errno = inode == 0 ? ENOENT : ECONNREFUSED;
        return -1;
    }
    file->kind = KIND_STREAM;
    file->is_unix = true;
    file->stream = make_stream(here, 0, here, UNIX_PORTS + inode);
    file->stream->file = file;
    file->stream->connected = true;
    join_backlog(listener, file->stream);
    return 0;
}

/* Fills in 10.0.0.(host + 1):port. */
static void put_address(int host, int port, void *out, socklen_t *bytes) {
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    a.sin_addr.s_addr = htonl(0x0A000001u + (uint32_t)host);
    memcpy(out, &a, *bytes < sizeof a ? *bytes : sizeof a);
    *bytes = sizeof a;
}

/* Fills in the address of a unix socket without a name. */
static void put_unix(struct sockaddr *out, socklen_t *bytes) {
    out->sa_family = AF_UNIX;
    *bytes = sizeof out->sa_family;
}

/* Returns the host of an address; -1: there is none, or another one than the simulated hosts. */
static int host_of(const struct sockaddr *address) {
    const struct sockaddr_in *a = (const struct sockaddr_in *)(const void *)address;
    uint32_t ip = ntohl(a->sin_addr.s_addr);
    if (ip == 0 || ip == 0x7F000001u) {
        return sim.current->process->host;
    }
    return ip > 0x0A000000u && ip <= 0x0A000000u + SIM_HOSTS ? (int)(ip - 0x0A000001u) : -1;
}

WRAP(int, socket, (int family, int type, int protocol)) {
    if (sim.current == NULL) {
        return __real_socket(family, type, protocol);
    }
    sim_enter();
    return sim_file_new(KIND_SOCKET, type & SOCK_NONBLOCK ? O_NONBLOCK : 0)->fd;
}

static const char *path_of(const struct sockaddr *address) {
    return ((const struct sockaddr_un *)(const void *)address)->sun_path;
}

WRAP(int, bind, (int fd, const struct sockaddr *address, socklen_t bytes)) {
    (void)bytes;
    sim_enter();
    sim_file *file = sim_file_of(fd);
    if (address->sa_family == AF_UNIX) {
        const int inode = sim_disk_make_socket(path_of(address));
        file->port = UNIX_PORTS + inode;
        file->is_unix = true;
        return inode != 0 ? 0 : -1;
    }
    int host = host_of(address);
    int port = ntohs(((const struct sockaddr_in *)(const void *)address)->sin_port);
    if (host != sim.current->process->host || (port != 0 && find_listener(host, port) != NULL)) {
        errno = host != sim.current->process->host ? EADDRNOTAVAIL : EADDRINUSE;
        return -1;
    }
    file->port = port == 0 ? sim.hosts[host].next_port++ : port;
    return 0;
}

WRAP(int, listen, (int fd, int backlog)) {
    (void)backlog;
    sim_enter();
    sim_file *file = sim_file_of(fd);
    file->kind = KIND_LISTENER;
    for (int i = 0; i < 64; i++) {
        if (listeners[i] == NULL) {
            listeners[i] = file;
            return 0;
        }
    }
    errno = EADDRINUSE;
    return -1;
}

WRAP(int, accept4, (int fd, struct sockaddr *address, socklen_t *bytes, int flags)) {
    sim_enter();
    sim_file *listener = sim_file_of(fd);
    sim_stream *s = listener->backlog;
    if (s == NULL) {
        errno = EAGAIN;
        return -1;
    }
    listener->backlog = s->next_waiting;
    s->waiting = false;
    sim_file *file = sim_file_new(KIND_STREAM, flags & SOCK_NONBLOCK ? O_NONBLOCK : 0);
    file->stream = s;
    file->is_unix = listener->is_unix;
    s->file = file;
    if (address != NULL) {
        put_address(s->peer_host, s->peer_port, address, bytes);
    }
    return file->fd;
}

WRAP(int, connect, (int fd, const struct sockaddr *address, socklen_t bytes)) {
    (void)bytes;
    sim_enter();
    sim_file *file = sim_file_of(fd);
    if (address->sa_family == AF_UNIX) {
        return connect_unix(file, path_of(address));
    }
    int here = sim.current->process->host, there = host_of(address);
    if (there < 0) {
        errno = ENETUNREACH;
        return -1;
    }
    int port = ntohs(((const struct sockaddr_in *)(const void *)address)->sin_port);
    sim_stream *s = make_stream(here, sim.hosts[here].next_port++, there, port);
    file->kind = KIND_STREAM;
    file->stream = s;
    s->file = file;
    sim_at(sim.now + draw_delay(here, there), request_arrives, s, 0);
    errno = EINPROGRESS;
    return -1;
}

/* ---- the other calls ------------------------------------------------------------------------- */

WRAP(ssize_t, recv, (int fd, void *data, size_t bytes, int flags)) {
    if (sim.current == NULL || !sim_is_simulated(fd)) {
        return __real_recv(fd, data, bytes, flags);
    }
    sim_enter();
    sim_file *file = sim_file_of(fd);
    return file == NULL ? -1 : sim_stream_read(file, data, bytes, flags);
}
WRAP(ssize_t, send, (int fd, const void *data, size_t bytes, int flags)) {
    if (sim.current == NULL || !sim_is_simulated(fd)) {
        return __real_send(fd, data, bytes, flags);
    }
    sim_enter();
    sim_file *file = sim_file_of(fd);
    return file == NULL ? -1 : sim_stream_write(file, data, bytes, flags);
}
WRAP(ssize_t, sendmsg, (int fd, const struct msghdr *message, int flags)) {
    sim_enter();
    sim_file *file = sim_file_of(fd);
    ssize_t sum = 0;
    for (size_t i = 0; file != NULL && i < message->msg_iovlen; i++) {
        const struct iovec *part = &message->msg_iov[i];
        ssize_t sent =
            part->iov_len == 0 ? 0 : sim_stream_write(file, part->iov_base, part->iov_len, flags);
        if (sent < 0) {
            return sum > 0 ? sum : -1;
        }
        sum += sent;
        if ((size_t)sent < part->iov_len) {
            break;
        }
    }
    return file == NULL ? -1 : sum;
}
WRAP(int, shutdown, (int fd, int how)) {
    sim_enter();
    sim_file *file = sim_file_of(fd);
    sim_stream *s = file->stream;
    if (how != SHUT_RD && !s->shut && s->connected && s->error == 0) {
        put_in_flight(s, NULL, 0, true);
        s->shut = true;
    }
    s->ended |= how != SHUT_WR;
    sim_file_changed(file);
    return 0;
}
WRAP(int, setsockopt, (int fd, int level, int name, const void *value, socklen_t bytes)) {
    if (sim.current == NULL || !sim_is_simulated(fd)) {
        return __real_setsockopt(fd, level, name, value, bytes);
    }
    sim_file *file = sim_file_of(fd);
    if (level == IPPROTO_TCP && name == TCP_USER_TIMEOUT && file->kind == KIND_STREAM) {
        file->stream->patience = (int64_t) * (const int *)value * 1000000;
    } else if (level == IPPROTO_TCP && name == TCP_KEEPIDLE && file->kind == KIND_STREAM) {
        const bool probes = file->stream->probes != 0;
        file->stream->probes = *(const int *)value * SIM_SECOND;
        file->stream->heard = sim.now;
        if (!probes) {
            sim_at(sim.now + file->stream->probes, probe_peer, file->stream, 0);
        }
    }
    return 0;
}
WRAP(int, getsockopt, (int fd, int level, int name, void *value, socklen_t *bytes)) {
    if (sim.current == NULL || !sim_is_simulated(fd)) {
        return __real_getsockopt(fd, level, name, value, bytes);
    }
    sim_file *file = sim_file_of(fd);
    if (name == SO_PEERCRED) {
        const struct ucred peer = {.pid = 1, .uid = geteuid(), .gid = getegid()};
        memcpy(value, &peer, sizeof peer);
        return 0;
    }
    *(int *)value = name == SO_ERROR && file->kind == KIND_STREAM ? file->stream->error : 0;
    return 0;
}
WRAP(int, getsockname, (int fd, struct sockaddr *address, socklen_t *bytes)) {
    const sim_file *file = sim_file_of(fd);
    if (file->is_unix) {
        put_unix(address, bytes);
        return 0;
    }
    put_address(file->owner->host, file->kind == KIND_STREAM ? file->stream->port : file->port,
                address, bytes);
    return 0;
}
WRAP(int, getpeername, (int fd, struct sockaddr *address, socklen_t *bytes)) {
    const sim_file *file = sim_file_of(fd);
    if (file->kind != KIND_STREAM || file->stream->error != 0) {
        errno = ENOTCONN;
        return -1;
    }
    if (file->is_unix) {
        put_unix(address, bytes);
        return 0;
    }
    put_address(file->stream->peer_host, file->stream->peer_port, address, bytes);
    return 0;
}
WRAP(int, getaddrinfo,
     (const char *host, const char *service, const struct addrinfo *hints, struct addrinfo **out)) {
    if (sim.current == NULL) {
        return __real_getaddrinfo(host, service, hints, out);
    }
    struct {
        struct addrinfo info;
        struct sockaddr_in address;
    } *found = calloc(1, sizeof *found);
    found->address.sin_family = AF_INET;
    found->address.sin_port = htons((uint16_t)atoi(service));
    if (inet_pton(AF_INET, host, &found->address.sin_addr) != 1) {
        free(found);
        return EAI_NONAME;
    }
    found->info = (struct addrinfo){.ai_family = AF_INET,
                                    .ai_socktype = SOCK_STREAM,
                                    .ai_addr = (struct sockaddr *)&found->address,
                                    .ai_addrlen = sizeof found->address};
    *out = &found->info;
    return 0;
}
WRAP(void, freeaddrinfo, (struct addrinfo * found)) {
    if (sim.current == NULL) {
        __real_freeaddrinfo(found);
    } else {
        free(found);
    }
}
WRAP(int, getnameinfo,
     (const struct sockaddr *address, socklen_t bytes, char *host, socklen_t host_bytes, char *port,
      socklen_t port_bytes, int flags)) {
    (void)bytes, (void)flags;
    const struct sockaddr_in *a = (const struct sockaddr_in *)(const void *)address;
    inet_ntop(AF_INET, &a->sin_addr, host, host_bytes);
    snprintf(port, port_bytes, "%d", ntohs(a->sin_port));
    return 0;
}
