/* SPDX-License-Identifier: Apache-2.0 */
/* Channels over TCP, after both ends have proved the job's token (base/net/net.h), in frames of
 * base/net/net_frame.h. The receive buffer grows with the bytes that have arrived, not with the
 * announced size.
 *
 * A client's end waits until the socket has taken a message. A server's end does not
 * (trmi_tcp_never_wait): data that the socket does not take at once is queued, and sent by the
 * thread that receives.
 *
 *        any thread   commit --> [ block ] -> [ block ] --> socket
 *        receiver     poll(input; output while data is queued; an eventfd ("bell") that signals newly queued data) */
#define _GNU_SOURCE
#include "ps/wire/channel.h"

#include "base/checked.h"
#include "base/error.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/net/net.h"
#include "base/net/net_frame.h"
#include "base/os.h"

#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

enum {
    FRAME_BYTES = TRMI_FRAME_HEAD_BYTES,
    FIRST_BYTES = 64 << 10,
    SPARE_BLOCKS = 32,
    SPARE_BYTES = 32 << 20 /* in all */
};
static const double FAREWELL_SECONDS = 2; /* seconds for the last answers of a connection */

/* A free block of message memory. Blocks are kept for later messages, as many as are under way
 * at once: allocating one anew costs more than sending it. */
typedef struct spare {
    uint8_t *data;
    size_t capacity;
} spare;

/* A message that is being sent: its frame head and its data. */
typedef struct outgoing {
    uint8_t frame[FRAME_BYTES];
    const uint8_t *data;
    size_t bytes, sent; /* bytes of frame head and data; sent so far */
} outgoing;

/* Returns a message to send, with its frame head. */
static outgoing outgoing_of(const uint8_t *data, size_t bytes) {
    outgoing o = {.data = data, .bytes = FRAME_BYTES + bytes};
    trmi_frame_encode(&(trmi_frame_head){.service = TRMI_SERVICE_PARAMETERS, .bytes = bytes},
                      o.frame);
    trmi_frame_write_checksum(o.frame);
    return o;
}

/* The head of a block, in front of the message. */
typedef struct tcp_block {
    size_t capacity;        /* bytes of the block's memory, this head included */
    struct tcp_block *next; /* in the queue of the channel */
    outgoing out;           /* the message, of which some bytes may have been sent */
    uint8_t pad[128 - 2 * sizeof(size_t) - sizeof(outgoing)];
} tcp_block;
_Static_assert(sizeof(tcp_block) % 64 == 0, "a message begins on a cache line");

/* One end of a TCP connection. */
typedef struct tcp_channel {
    trmi_channel base;
    int fd, bell; /* bell -1: commit waits for the socket (a client's end) */
    pthread_mutex_t send_mutex, spare_mutex; /* send_mutex: also over the queue */
    spare spares[SPARE_BLOCKS];              /* spare_count of them are in use */
    int spare_count;
    size_t spare_bytes;
    uint8_t frame[FRAME_BYTES];
    size_t frame_have, have, expected;
    spare in;
    tcp_block *first, **last;      /* queue of blocks to send */
    size_t held, held_most;        /* bytes reserved or queued, and their limit */
    double moved, silence_seconds; /* time at which the socket last took data, or the queue began */
} tcp_channel;

/* Returns the smallest free block of at least `bytes`; {0} if there is none. */
static spare find_spare(tcp_channel *c, size_t bytes) {
    spare found = {0};
    int best = -1;
    pthread_mutex_lock(&c->spare_mutex);
    for (int i = 0; i < c->spare_count; i++) {
        bool fits = c->spares[i].capacity >= bytes;
        best = fits && (best < 0 || c->spares[i].capacity < c->spares[best].capacity) ? i : best;
    }
    if (best >= 0) {
        found = c->spares[best];
        c->spares[best] = c->spares[--c->spare_count];
        c->spare_bytes -= found.capacity;
    }
    pthread_mutex_unlock(&c->spare_mutex);
    return found;
}

/* Returns a free block of at least `bytes`, allocated if necessary; data NULL without memory. */
static spare take_spare(tcp_channel *c, size_t bytes) {
    spare s = find_spare(c, bytes);
    if (s.data == NULL) {
        s.capacity = bytes + bytes / 4 + 64;
        s.data = trmi_alloc(s.capacity);
    }
    return s;
}

/* Keeps a block for later; if there are too many blocks or bytes, the smallest are freed. */
static void keep_spare(tcp_channel *c, spare s) {
    pthread_mutex_lock(&c->spare_mutex);
    while (s.data != NULL &&
           (c->spare_count == SPARE_BLOCKS || c->spare_bytes + s.capacity > SPARE_BYTES)) {
        int smallest = 0;
        for (int i = 1; i < c->spare_count; i++) {
            smallest = c->spares[i].capacity < c->spares[smallest].capacity ? i : smallest;
        }
        if (c->spare_count == 0 || s.capacity <= c->spares[smallest].capacity) {
            trmi_free(s.data);
            s.data = NULL;
        } else {
            c->spare_bytes -= c->spares[smallest].capacity;
            trmi_free(c->spares[smallest].data);
            c->spares[smallest] = c->spares[--c->spare_count];
        }
    }
    if (s.data != NULL) {
        c->spares[c->spare_count++] = s;
        c->spare_bytes += s.capacity;
    }
    pthread_mutex_unlock(&c->spare_mutex);
}

/* Waits until the socket is ready for `events`.
 *   errors  TIMEOUT */
static trm_status wait_ready(const tcp_channel *c, short events, double deadline,
                             double timeout_seconds, trm_error *err) {
    for (;;) {
        double left = deadline - trmi_os_now();
        if (left < 0) {
            left = 0;
        }
        struct pollfd p = {c->fd, events, 0};
        int ready = poll(&p, 1, left > 3600 ? 3600000 : (int)(left * 1e3 + 0.999));
        if (ready > 0) {
            return TRM_OK;
        }
        if (ready == 0 && deadline - trmi_os_now() <= 0) {
            return TRMI_FAIL(err, TRM_TIMEOUT, "no answer from %s for %.1f s", c->base.peer,
                             timeout_seconds);
        }
        if (ready < 0 && errno != EINTR) {
            return TRMI_FAIL_SYS(err, "waiting for %s", c->base.peer);
        }
    }
}

/* Counts `bytes` as reserved. Returns false if a server's answers to this client exceed the
 * limit; one message always fits. */
static bool reserve_bytes(tcp_channel *c, size_t bytes) {
    if (c->bell < 0) {
        return true;
    }
    pthread_mutex_lock(&c->send_mutex);
    bool fits = c->held == 0 || c->held + bytes <= c->held_most;
    c->held += fits ? bytes : 0;
    pthread_mutex_unlock(&c->send_mutex);
    return fits;
}

/* Takes back what reserve_bytes() has counted. */
static void unreserve_bytes(tcp_channel *c, size_t bytes) {
    if (c->bell >= 0) {
        pthread_mutex_lock(&c->send_mutex);
        c->held -= bytes;
        pthread_mutex_unlock(&c->send_mutex);
    }
}

/* Checks the size of a message. */
static trm_status fits_message(const trmi_channel *channel, size_t bytes, trm_error *err) {
    return bytes <= TRMI_MESSAGE_BYTES_MAX
               ? TRM_OK
               : TRMI_FAIL(err, TRM_INVALID, "a message of %zu bytes to %s: at most %d", bytes,
                           channel->peer, TRMI_MESSAGE_BYTES_MAX);
}

/* Implements trmi_channel_table.reserve: returns memory for the message after a block head. */
static trm_status tcp_reserve(trmi_channel *channel, size_t bytes, double timeout_seconds,
                              trmi_message *out, trm_error *err) {
    tcp_channel *c = (tcp_channel *)channel;
    (void)timeout_seconds;
    TRMI_TRY(fits_message(channel, bytes, err));
    if (!reserve_bytes(c, bytes)) {
        return TRMI_FAIL(err, TRM_TIMEOUT, "%s has not taken the %zu bytes that wait for it",
                         channel->peer, c->held);
    }
    spare s = take_spare(c, bytes + sizeof(tcp_block));
    if (s.data == NULL) {
        unreserve_bytes(c, bytes);
        return TRMI_NO_MEMORY(err, "for a message of %zu bytes", bytes);
    }
    tcp_block *b = (tcp_block *)(void *)s.data;
    *b = (tcp_block){.capacity = s.capacity, .out = outgoing_of(s.data + sizeof *b, bytes)};
    *out = (trmi_message){.data = s.data + sizeof *b, .bytes = bytes, .block = b};
    return TRM_OK;
}

/* Keeps the memory of a message for the next one. */
static void tcp_release(trmi_channel *channel, trmi_message *message) {
    tcp_block *b = message->block;
    keep_spare((tcp_channel *)channel, (spare){(uint8_t *)b, b->capacity});
    *message = (trmi_message){0};
}

/* Sends as much of a message as the socket takes, frame head and data in one call.
 *   errors  TRM_PENDING: it takes no more now; PEER */
static trm_status send_some(tcp_channel *c, outgoing *o, trm_error *err) {
    while (o->sent < o->bytes) {
        const size_t frame = o->sent < FRAME_BYTES ? FRAME_BYTES - o->sent : 0,
                     data = o->sent + frame - FRAME_BYTES;
        struct iovec parts[2] = {
            {(char *)o->frame + FRAME_BYTES - frame, frame},
            {(void *)(uintptr_t)(o->data + data), o->bytes - FRAME_BYTES - data}};
        struct msghdr message = {.msg_iov = parts + (frame == 0), .msg_iovlen = frame == 0 ? 1 : 2};
        ssize_t sent = sendmsg(c->fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
            return TRM_PENDING;
        }
        if (sent < 0 && errno != EINTR) {
            return TRMI_FAIL(err, TRM_PEER, "%s is gone: %s", c->base.peer, strerror(errno));
        }
        o->sent += sent > 0 ? (size_t)sent : 0;
    }
    return TRM_OK;
}

/* Sends a whole message and waits for the socket (client's end). After an error the connection
 * is shut down, because half a frame may have been sent. */
static trm_status send_all(tcp_channel *c, outgoing *o, double timeout_seconds, trm_error *err) {
    double deadline = trmi_os_now() + timeout_seconds;
    trm_status status;
    pthread_mutex_lock(&c->send_mutex);
    do {
        status = send_some(c, o, err);
    } while (status == TRM_PENDING &&
             (status = wait_ready(c, POLLOUT, deadline, timeout_seconds, err)) == TRM_OK);
    if (status != TRM_OK) {
        shutdown(c->fd, SHUT_RDWR);
    }
    pthread_mutex_unlock(&c->send_mutex);
    return status;
}

/* Sends queued blocks as far as the socket takes them.
 *   errors  PEER: gone, or it has taken nothing for too long */
static trm_status send_queue(tcp_channel *c, trm_error *err) {
    while (c->first != NULL) {
        tcp_block *b = c->first;
        size_t before = b->out.sent;
        trm_status status = send_some(c, &b->out, err);
        c->moved = b->out.sent > before ? trmi_os_now() : c->moved;
        if (status == TRM_PENDING) {
            double silent = trmi_os_now() - c->moved;
            if (silent <= c->silence_seconds) {
                return TRM_OK;
            }
            trmi_log(TRM_LOG_WARN, "ps",
                     "%s has not read its answers for %.1f s: cut off, it may come again",
                     c->base.peer, silent);
            return TRMI_FAIL(err, TRM_PEER, "%s has not read its answers for %.1f s", c->base.peer,
                             silent);
        }
        TRMI_TRY(status);
        c->first = b->next;
        c->last = c->first == NULL ? &c->first : c->last;
        c->held -= b->out.bytes - FRAME_BYTES;
        keep_spare(c, (spare){(uint8_t *)b, b->capacity});
    }
    return TRM_OK;
}

/* Appends a block to the queue. If it is the only one, it is sent at once, and the receiver is
 * signalled if a part remains. */
static trm_status enqueue_block(tcp_channel *c, tcp_block *b, trm_error *err) {
    bool alone = c->first == NULL;
    *c->last = b;
    c->last = &b->next;
    c->moved = alone ? trmi_os_now() : c->moved;
    TRMI_TRY(alone ? send_queue(c, err) : TRM_OK);
    if (alone && c->first != NULL) {
        uint64_t one = 1;
        (void)!write(c->bell, &one, sizeof one);
    }
    return TRM_OK;
}

/* Queues and sends a block (server's end). */
static trm_status enqueue_and_send(tcp_channel *c, tcp_block *b, trm_error *err) {
    pthread_mutex_lock(&c->send_mutex);
    trm_status status = enqueue_block(c, b, err);
    if (status != TRM_OK) {
        shutdown(c->fd, SHUT_RDWR);
    }
    pthread_mutex_unlock(&c->send_mutex);
    return status;
}

/* trmi_channel_table.commit: a client's end sends and waits, a server's end queues. A message of
 * no bytes is dropped. */
static trm_status tcp_commit(trmi_channel *channel, trmi_message *message, double timeout_seconds,
                             trm_error *err) {
    tcp_channel *c = (tcp_channel *)channel;
    tcp_block *b = message->block;
    trm_status status = TRM_OK;
    unreserve_bytes(c, b->out.bytes - FRAME_BYTES - message->bytes);
    b->out = outgoing_of(message->data, message->bytes);
    if (message->bytes == 0) {
        tcp_release(channel, message);
    } else if (c->bell < 0) {
        status = send_all(c, &b->out, timeout_seconds, err);
        tcp_release(channel, message);
    } else {
        status = enqueue_and_send(c, b, err);
    }
    *message = (trmi_message){0};
    return status;
}

/* trmi_channel_table.send: sends the caller's memory without a copy (client's end only). */
static trm_status tcp_send(trmi_channel *channel, const uint8_t *data, size_t bytes,
                           double timeout_seconds, trm_error *err) {
    tcp_channel *c = (tcp_channel *)channel;
    TRMI_ASSERT(c->bell < 0); /* the queue would need a copy */
    TRMI_TRY(fits_message(channel, bytes, err));
    outgoing o = outgoing_of(data, bytes);
    return send_all(c, &o, timeout_seconds, err);
}

/* Sends queued blocks; *line: some remain. */
static trm_status send_queued(tcp_channel *c, bool *line, trm_error *err) {
    pthread_mutex_lock(&c->send_mutex);
    trm_status status = send_queue(c, err);
    *line = c->first != NULL;
    if (status != TRM_OK) {
        shutdown(c->fd, SHUT_RDWR);
    }
    pthread_mutex_unlock(&c->send_mutex);
    return status;
}

/* Waits until there is input; sends queued blocks meanwhile. */
static trm_status wait_input(tcp_channel *c, double deadline, double timeout_seconds,
                             trm_error *err) {
    if (c->bell < 0) {
        return wait_ready(c, POLLIN, deadline, timeout_seconds, err);
    }
    for (;;) {
        bool line;
        TRMI_TRY(send_queued(c, &line, err));
        double left = deadline - trmi_os_now();
        struct pollfd p[2] = {{c->fd, (short)(POLLIN | (line ? POLLOUT : 0)), 0},
                              {c->bell, POLLIN, 0}};
        int ready = poll(p, 2, left > 0 ? (int)(left * 1e3 + 0.999) : 0);
        if (ready > 0 && p[1].revents != 0) {
            uint64_t rung;
            (void)!read(c->bell, &rung, sizeof rung);
        }
        if (ready > 0 && (p[0].revents & ~POLLOUT) != 0) {
            return TRM_OK;
        }
        if (trmi_os_now() >= deadline) {
            return TRMI_FAIL(err, TRM_TIMEOUT, "no answer from %s for %.1f s", c->base.peer,
                             timeout_seconds);
        }
    }
}

/* Reads available bytes into `to`.
 *   errors  TRM_PENDING: none are there; END, PEER */
static trm_status read_some(tcp_channel *c, void *to, size_t bytes, size_t *have, trm_error *err) {
    ssize_t got = recv(c->fd, to, bytes, MSG_DONTWAIT);
    if (got > 0) {
        *have += (size_t)got;
        return TRM_OK;
    }
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) {
        return TRM_PENDING;
    }
    if (got == 0 && c->frame_have == 0) {
        return TRM_END;
    }
    return got == 0 ? TRMI_FAIL(err, TRM_PEER, "%s closed in the middle of a message", c->base.peer)
                    : TRMI_FAIL(err, TRM_PEER, "%s is gone: %s", c->base.peer, strerror(errno));
}

/* Reads and checks the frame head.
 *   errors  CORRUPT: a foreign protocol or a size out of range */
static trm_status read_frame(tcp_channel *c, trm_error *err) {
    TRMI_TRY(
        read_some(c, c->frame + c->frame_have, FRAME_BYTES - c->frame_have, &c->frame_have, err));
    if (c->frame_have < FRAME_BYTES) {
        return TRM_OK;
    }
    trmi_frame_head head;
    if (!trmi_frame_decode(c->frame, TRMI_SERVICE_PARAMETERS, &head) ||
        !trmi_frame_sum_is_right(c->frame) || head.bytes == 0 ||
        head.bytes > TRMI_MESSAGE_BYTES_MAX) {
        return TRMI_FAIL(err, TRM_CORRUPT,
                         "%s sent no frame of this protocol (it claims %llu bytes, 1 to %d "
                         "expected)",
                         c->base.peer, (unsigned long long)head.bytes, TRMI_MESSAGE_BYTES_MAX);
    }
    c->expected = (size_t)head.bytes;
    c->have = 0;
    return TRM_OK;
}

/* Makes room for more of the expected message, twice the bytes that have arrived: an announced
 * size alone allocates nothing. */
static bool make_place(tcp_channel *c) {
    size_t aim = c->have < FIRST_BYTES ? FIRST_BYTES : 2 * c->have;
    aim = (aim > c->expected ? c->expected : aim) + sizeof(tcp_block);
    if (c->in.data != NULL && c->in.capacity >= aim) {
        return true;
    }
    /* a free block of the full size is used at once */
    spare larger = find_spare(c, c->expected + sizeof(tcp_block));
    larger = larger.data != NULL ? larger : take_spare(c, aim);
    if (larger.data == NULL) {
        return false;
    }
    if (c->in.data != NULL) {
        memcpy(larger.data, c->in.data, sizeof(tcp_block) + c->have);
        keep_spare(c, c->in);
    }
    c->in = larger;
    return true;
}

/* trmi_channel_table.receive: reads the frame head, then the message; keeps what has arrived
 * when time is up. */
static trm_status tcp_receive(trmi_channel *channel, double timeout_seconds, trmi_message *out,
                              trm_error *err) {
    tcp_channel *c = (tcp_channel *)channel;
    double deadline = trmi_os_now() + timeout_seconds;
    bool line;
    /* even if there is always input */
    TRMI_TRY(c->bell >= 0 ? send_queued(c, &line, err) : TRM_OK);
    for (;;) {
        trm_status status;
        /* first the frame head, which has the size, then memory, then the message */
        if (c->frame_have < FRAME_BYTES) {
            status = read_frame(c, err);
        } else if (!make_place(c)) {
            return TRMI_NO_MEMORY(err, "for a message of %zu bytes from %s", c->expected,
                                  channel->peer);
        } else {
            size_t room = c->in.capacity - sizeof(tcp_block) - c->have;
            size_t wanted = c->expected - c->have < room ? c->expected - c->have : room;
            status = read_some(c, c->in.data + sizeof(tcp_block) + c->have, wanted, &c->have, err);
        }
        if (status == TRM_PENDING) {
            status = wait_input(c, deadline, timeout_seconds, err);
        }
        TRMI_TRY(status);
        /* A message is whole: its memory goes to the caller, and the next frame begins. */
        if (c->frame_have == FRAME_BYTES && c->expected > 0 && c->have == c->expected) {
            tcp_block *b = (tcp_block *)(void *)c->in.data;
            *b = (tcp_block){.capacity = c->in.capacity};
            *out = (trmi_message){c->in.data + sizeof *b, c->expected, b};
            c->in = (spare){0};
            c->frame_have = c->expected = 0;
            return TRM_OK;
        }
    }
}

/* Sends the queue for at most FAREWELL_SECONDS, then closes the sending direction. */
static void tcp_shut(trmi_channel *channel) {
    tcp_channel *c = (tcp_channel *)channel;
    double deadline = trmi_os_now() + FAREWELL_SECONDS;
    pthread_mutex_lock(&c->send_mutex);
    while (c->first != NULL && send_queue(c, NULL) == TRM_OK && c->first != NULL &&
           trmi_os_now() < deadline) {
        (void)!wait_ready(c, POLLOUT, deadline, FAREWELL_SECONDS, NULL);
    }
    shutdown(c->fd, SHUT_WR);
    pthread_mutex_unlock(&c->send_mutex);
}

/* Closes the socket; queued blocks are dropped. */
static void tcp_destroy(trmi_channel *channel) {
    tcp_channel *c = (tcp_channel *)channel;
    close(c->fd);
    if (c->bell >= 0) {
        close(c->bell);
    }
    while (c->first != NULL) {
        tcp_block *b = c->first;
        c->first = b->next;
        trmi_free(b);
    }
    for (int i = 0; i < c->spare_count; i++) {
        trmi_free(c->spares[i].data);
    }
    trmi_free(c->in.data);
    pthread_mutex_destroy(&c->send_mutex);
    pthread_mutex_destroy(&c->spare_mutex);
    trmi_free(c);
}

static const trmi_channel_table tcp_table = {"tcp",       tcp_reserve, tcp_commit,  tcp_receive,
                                             tcp_release, tcp_shut,    tcp_destroy, tcp_send};

void trmi_tcp_patience(trmi_channel *tcp, double seconds) {
    trmi_net_set_patience(((tcp_channel *)tcp)->fd, seconds);
}

trm_status trmi_tcp_never_wait(trmi_channel *tcp, size_t bytes_most, double silence_seconds,
                               trm_error *err) {
    tcp_channel *c = (tcp_channel *)tcp;
    c->bell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    c->held_most = bytes_most;
    c->silence_seconds = silence_seconds;
    trmi_tcp_patience(tcp, silence_seconds);
    return c->bell >= 0 ? TRM_OK : TRMI_FAIL_SYS(err, "%s: no bell for its answers", tcp->peer);
}

/* Contract in channel.h. Looks into the socket without taking a byte. */
bool trmi_tcp_gone(const trmi_channel *tcp) {
    char byte;
    ssize_t got = recv(((const tcp_channel *)tcp)->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    return got == 0 || (got < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR);
}

/* Contract in channel.h. The socket belongs to the channel from here on, also after an error. */
trm_status trmi_tcp_wrap(int fd, const char *peer, trmi_channel **out, trm_error *err) {
    tcp_channel *c = trmi_alloc(sizeof *c);
    if (c == NULL) {
        close(fd);
        return TRMI_NO_MEMORY(err, "for a connection to %s", peer);
    }
    c->base.table = &tcp_table;
    c->fd = fd;
    c->bell = -1;
    c->last = &c->first;
    snprintf(c->base.peer, sizeof c->base.peer, "%s", peer);
    pthread_mutex_init(&c->send_mutex, NULL);
    pthread_mutex_init(&c->spare_mutex, NULL);
    *out = &c->base;
    return TRM_OK;
}
