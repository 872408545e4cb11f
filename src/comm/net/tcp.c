/* SPDX-License-Identifier: Apache-2.0 */
/* The TCP transport, which is always available. tcp.h describes frames and links.
 *
 *   start: transfer --> queue of its link
 *   progress: for each link, write_some (head, payload, tail) and read_some (compare head, payload,
 *             check tail)
 *   wait: poll on the links with something to do
 *
 * All sockets are used without blocking. Heads and payloads are protected by checksums: a damaged
 * or unexpected frame ends the job. A link sends its frames in the order of its queue, so the first
 * frame that arrives belongs to the first receive. */
#define _GNU_SOURCE
#include "comm/net/tcp.h"

#include "base/checked.h"
#include "base/error.h"
#include "base/hash/xxh3.h"
#include "base/memory.h"
#include "base/net/net.h"

#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

/* payload written at a time, so that it is still in the cache after hashing */
enum { PIECE_BYTES = 1 << 18 };

/* The transport of one communicator. */
typedef struct tcp {
    trmi_transport base;  /* must be the first member */
    trmi_tcp_link *links; /* [size * TRMI_CHANNELS] */
    int32_t link_count;   /* size * TRMI_CHANNELS */
    struct pollfd *polls; /* [link_count + 1] scratch; the last one is the launcher's alarm */
} tcp;

/* --- frames --- */

/* Writes the head of a transfer's frame: service, length, tag and checksum. */
static void encode_head(const trmi_net_transfer *t, uint8_t wire[TRMI_FRAME_HEAD_BYTES]) {
    trmi_frame_encode(&(trmi_frame_head){.service = TRMI_SERVICE_COLLECTIVES,
                                         .bytes = t->bytes,
                                         .number = t->tag.sequence,
                                         .id = t->tag.step,
                                         .signature = {t->tag.signature[0], t->tag.signature[1]}},
                      wire);
    trmi_frame_write_checksum(wire);
}

/* Reads a head. Returns false if it is damaged or of another service. */
static bool decode_head(const uint8_t wire[TRMI_FRAME_HEAD_BYTES], trmi_tag *tag, uint64_t *bytes) {
    trmi_frame_head head;
    bool good = trmi_frame_decode(wire, TRMI_SERVICE_COLLECTIVES, &head);
    *tag = (trmi_tag){.sequence = head.number,
                      .signature = {head.signature[0], head.signature[1]},
                      .step = head.id};
    *bytes = head.bytes;
    return good && head.type == 0 && trmi_frame_sum_is_right(wire);
}

/* --- errors --- */

/* Returns the PEER error of a lost connection; the transport's culprit is the link's peer. */
static trm_status fail_connection(tcp *self, const trmi_tcp_link *link, const char *what,
                                  trm_error *err) {
    self->base.culprit = link->peer;
    const trmi_group *group = &self->base.group;
    return TRMI_FAIL(err, TRM_PEER, "rank %d lost its connection to rank %d: %s",
                     group->members[group->rank], group->members[link->peer], what);
}

/* Returns the CORRUPT error of a damaged frame. */
static trm_status fail_damaged(tcp *self, const trmi_tcp_link *link, const trmi_net_transfer *t,
                               const char *what, trm_error *err) {
    self->base.culprit = link->peer;
    const trmi_group *group = &self->base.group;
    return TRMI_FAIL(err, TRM_CORRUPT,
                     "rank %d received damaged bytes from rank %d (%s) in operation "
                     "%llu, step %llu: the connection is given up",
                     group->members[group->rank], group->members[link->peer], what,
                     (unsigned long long)t->tag.sequence, (unsigned long long)t->tag.step);
}

/* --- writing --- */

/* Prepares the frame of the first send in the queue. */
static void begin_send(trmi_tcp_link *link) {
    link->out_done = link->out_hash_done = 0;
    if (link->sends != NULL) {
        encode_head(link->sends, link->out_head);
        XXH3_64bits_reset(link->out_hash);
    }
}

/* Collects what is to be written next: the rest of the head, a piece of the payload, and the tail
 * if that piece is the last. The payload is hashed just before it is written. Returns the number of
 * entries in iov. */
static int gather_out(trmi_tcp_link *link, struct iovec iov[3]) {
    trmi_net_transfer *t = link->sends;
    uint64_t done = link->out_done, end = TRMI_FRAME_HEAD_BYTES + t->bytes;
    int count = 0;
    if (done < TRMI_FRAME_HEAD_BYTES) {
        iov[count++] = (struct iovec){link->out_head + done, TRMI_FRAME_HEAD_BYTES - done};
        done = TRMI_FRAME_HEAD_BYTES;
    }
    if (done < end) {
        /* Hash only what was not hashed before: a part of the last piece may be written again. */
        uint64_t at = done - TRMI_FRAME_HEAD_BYTES, piece = end - done;
        piece = piece < PIECE_BYTES ? piece : PIECE_BYTES;
        if (at + piece > link->out_hash_done) {
            trmi_xxh3_update(link->out_hash, t->data + link->out_hash_done,
                             at + piece - link->out_hash_done);
            link->out_hash_done = at + piece;
        }
        iov[count++] = (struct iovec){t->data + at, piece};
        done += piece;
    }
    if (done >= end) {
        trmi_put64(link->out_tail, XXH3_64bits_digest(link->out_hash));
        iov[count++] =
            (struct iovec){link->out_tail + (done - end), TRMI_FRAME_TAIL_BYTES - (done - end)};
    }
    return count;
}

/* Writes to the link until its queue is empty or the socket is full. */
static trm_status write_some(tcp *self, trmi_tcp_link *link, bool *moved, trm_error *err) {
    while (link->sends != NULL) {
        trmi_net_transfer *t = link->sends;
        struct iovec iov[3];
        struct msghdr message = {.msg_iov = iov, .msg_iovlen = (size_t)gather_out(link, iov)};
        ssize_t wrote = sendmsg(link->fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (wrote < 0) {
            if (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR) {
                return TRM_OK;
            }
            return fail_connection(self, link, strerror(errno), err);
        }
        *moved = true;
        link->out_done += (uint64_t)wrote;
        /* The progress of the transfer counts payload only. */
        if (link->out_done > TRMI_FRAME_HEAD_BYTES) {
            uint64_t payload = link->out_done - TRMI_FRAME_HEAD_BYTES;
            t->moved = payload < t->bytes ? payload : t->bytes;
        }
        /* The frame is complete: go on to the next. */
        if (link->out_done == TRMI_FRAME_HEAD_BYTES + t->bytes + TRMI_FRAME_TAIL_BYTES) {
            link->sends = t->next;
            if (link->sends == NULL) {
                link->sends_tail = &link->sends;
            }
            t->done = true;
            begin_send(link);
        }
    }
    return TRM_OK;
}

/* --- reading --- */

/* Returns the number of bytes that were read ahead and not used yet. */
static uint32_t read_ahead_bytes(const trmi_tcp_link *link) {
    return link->ahead_to - link->ahead_from;
}

/* Reads into `to` (`wanted` bytes, may be 0) and, in the same call, into the read-ahead buffer.
 * *got is the number of bytes in `to`. Returns PENDING if nothing has arrived. */
static trm_status read_into(tcp *self, trmi_tcp_link *link, char *to, uint64_t wanted,
                            uint64_t *got, trm_error *err) {
    /* Move what is left to the front of the buffer. */
    if (read_ahead_bytes(link) == 0) {
        link->ahead_from = link->ahead_to = 0;
    } else if (link->ahead_from > 0) {
        memmove(link->ahead, link->ahead + link->ahead_from, read_ahead_bytes(link));
        link->ahead_to -= link->ahead_from;
        link->ahead_from = 0;
    }
    struct iovec iov[2] = {{to, wanted},
                           {link->ahead + link->ahead_to, sizeof link->ahead - link->ahead_to}};
    struct msghdr message = {.msg_iov = wanted > 0 ? iov : iov + 1,
                             .msg_iovlen = wanted > 0 ? 2 : 1};
    ssize_t read_bytes = recvmsg(link->fd, &message, MSG_DONTWAIT);
    if (read_bytes < 0) {
        if (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR) {
            return TRM_PENDING;
        }
        return fail_connection(self, link, strerror(errno), err);
    }
    if (read_bytes == 0) {
        return fail_connection(self, link, "closed by that rank", err);
    }
    *got = (uint64_t)read_bytes < wanted ? (uint64_t)read_bytes : wanted;
    link->ahead_to += (uint32_t)((uint64_t)read_bytes - *got);
    return TRM_OK;
}

/* Reads until at least `bytes` (of a head or a tail) are in the read-ahead buffer. */
static trm_status read_ahead(tcp *self, trmi_tcp_link *link, uint32_t bytes, trm_error *err) {
    uint64_t none;
    while (read_ahead_bytes(link) < bytes) {
        TRMI_TRY(read_into(self, link, NULL, 0, &none, err));
    }
    return TRM_OK;
}

/* Reads the head of the next frame and compares it with the first receive in the queue. On a
 * difference, transport->expected and ->found describe it (trmi_runner_explain). */
static trm_status read_head(tcp *self, trmi_tcp_link *link, trm_error *err) {
    trmi_net_transfer *t = link->receives;
    TRMI_TRY(read_ahead(self, link, TRMI_FRAME_HEAD_BYTES, err));
    trmi_tag tag;
    uint64_t bytes;
    if (!decode_head(link->ahead + link->ahead_from, &tag, &bytes)) {
        return fail_damaged(self, link, t, "frame head", err);
    }
    link->ahead_from += TRMI_FRAME_HEAD_BYTES;
    /* The frame is of another operation or step: report both. */
    if (bytes != t->bytes || tag.sequence != t->tag.sequence || tag.step != t->tag.step ||
        tag.signature[0] != t->tag.signature[0] || tag.signature[1] != t->tag.signature[1]) {
        self->base.culprit = link->peer;
        self->base.expected = t;
        self->base.found = tag;
        self->base.found_bytes = bytes;
        return TRMI_FAIL(err, TRM_INVALID, "unexpected frame");
    }
    link->head_read = true;
    link->in_hash_done = 0;
    XXH3_64bits_reset(link->in_hash);
    return TRM_OK;
}

/* Reads payload into the transfer's buffer and hashes it. Returns PENDING if nothing more has
 * arrived, OK once the payload is complete. */
static trm_status read_payload(tcp *self, trmi_tcp_link *link, bool *moved, trm_error *err) {
    trmi_net_transfer *t = link->receives;
    while (t->moved < t->bytes) {
        uint64_t got = t->bytes - t->moved;
        /* First what was read ahead. */
        if (read_ahead_bytes(link) > 0) {
            got = got < read_ahead_bytes(link) ? got : read_ahead_bytes(link);
            memcpy(t->data + t->moved, link->ahead + link->ahead_from, got);
            link->ahead_from += (uint32_t)got;
        } else {
            uint64_t wanted = got < PIECE_BYTES ? got : PIECE_BYTES;
            bool last = wanted == got;
            if (last) {
                TRMI_TRY(read_into(self, link, t->data + t->moved, wanted, &got, err));
            } else { /* more payload follows: read nothing ahead */
                ssize_t direct = recv(link->fd, t->data + t->moved, wanted, MSG_DONTWAIT);
                if (direct < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) {
                    return TRM_PENDING;
                }
                if (direct <= 0) {
                    return fail_connection(
                        self, link, direct < 0 ? strerror(errno) : "closed by that rank", err);
                }
                got = (uint64_t)direct;
            }
        }
        trmi_xxh3_update(link->in_hash, t->data + t->moved, got);
        t->moved += got;
        *moved = true;
    }
    return TRM_OK;
}

/* Reads from the link until its queue of receives is empty or nothing has arrived (PENDING). A
 * frame's buffer is complete before its checksum is compared; a difference ends the job. */
static trm_status read_some(tcp *self, trmi_tcp_link *link, bool *moved, trm_error *err) {
    while (link->receives != NULL) {
        trmi_net_transfer *t = link->receives;
        if (!link->head_read) {
            TRMI_TRY(read_head(self, link, err));
            *moved = true;
        }
        TRMI_TRY(read_payload(self, link, moved, err));
        /* The tail is the hash of the payload. */
        TRMI_TRY(read_ahead(self, link, TRMI_FRAME_TAIL_BYTES, err));
        if (trmi_get64(link->ahead + link->ahead_from) != XXH3_64bits_digest(link->in_hash)) {
            return fail_damaged(self, link, t, "payload", err);
        }
        link->ahead_from += TRMI_FRAME_TAIL_BYTES;
        link->head_read = false;
        link->receives = t->next;
        if (link->receives == NULL) {
            link->receives_tail = &link->receives;
        }
        t->done = true;
        *moved = true;
    }
    return TRM_OK;
}

/* --- the table's functions; see comm/net/transport.h --- */

/* The functions of the transport's table (contracts in transport.h). An idle link begins to send at
 * once, in the next call of progress. */
static trm_status tcp_start(trmi_transport *transport, trmi_net_transfer *t, trm_error *err) {
    (void)err;
    tcp *self = (tcp *)(void *)transport;
    trmi_tcp_link *link = &self->links[t->peer * TRMI_CHANNELS + t->channel];
    t->next = NULL;
    t->done = false;
    t->moved = 0;
    /* A transfer goes to the end of the queue of its link and direction. */
    if (t->receive) {
        *link->receives_tail = t;
        link->receives_tail = &t->next;
        return TRM_OK;
    }
    bool first = link->sends == NULL;
    *link->sends_tail = t;
    link->sends_tail = &t->next;
    if (first) {
        begin_send(link);
    }
    return TRM_OK;
}

/* Moves what the sockets take and have, without waiting, on all links with transfers. */
static trm_status tcp_progress(trmi_transport *transport, bool *moved, trm_error *err) {
    tcp *self = (tcp *)(void *)transport;
    for (int32_t i = 0; i < self->link_count; i++) {
        trmi_tcp_link *link = &self->links[i];
        if (link->sends != NULL) {
            TRMI_TRY(write_some(self, link, moved, err));
        }
        if (link->receives != NULL) {
            trm_status status = read_some(self, link, moved, err);
            if (status != TRM_OK && status != TRM_PENDING) {
                return status;
            }
        }
    }
    return TRM_OK;
}

/* Sleeps until a socket with a transfer is ready, the job fails (alarm) or the time is over. */
static void tcp_wait(trmi_transport *transport, double seconds) {
    tcp *self = (tcp *)(void *)transport;
    nfds_t count = 0;
    for (int32_t i = 0; i < self->link_count; i++) {
        trmi_tcp_link *link = &self->links[i];
        int events = (link->sends != NULL ? POLLOUT : 0) | (link->receives != NULL ? POLLIN : 0);
        if (events != 0) {
            self->polls[count++] = (struct pollfd){.fd = link->fd, .events = (short)events};
        }
    }
    /* The launcher's alarm ends the sleep when the job fails. */
    int alarm = transport->group.bootstrap->alarm_fd;
    if (alarm >= 0) {
        self->polls[count++] = (struct pollfd){.fd = alarm, .events = POLLIN};
    }
    poll(self->polls, count, (int)(seconds * 1000) + 1);
}

/* Closes all links. Transfers that are under way are lost; peers see the end of the connection. */
static void tcp_destroy(trmi_transport *transport) {
    tcp *self = (tcp *)(void *)transport;
    for (int32_t i = 0; self->links != NULL && i < self->link_count; i++) {
        trmi_tcp_link *link = &self->links[i];
        if (link->fd >= 0) {
            trmi_tcp_close(link->fd);
        }
        XXH3_freeState(link->out_hash);
        XXH3_freeState(link->in_hash);
    }
    trmi_free(self->links);
    trmi_free(self->polls);
    trmi_free(self);
}

static const trmi_transport_table tcp_table = {
    .name = "tcp",
    .start = tcp_start,
    .progress = tcp_progress,
    .wait = tcp_wait,
    .destroy = tcp_destroy,
};

/* Contract in transport.h. Links of a rank to itself stay closed. */
trm_status trmi_tcp_create(const trmi_group *group, const trmi_exchange *exchange,
                           trmi_transport **out, trm_error *err) {
    tcp *self;
    TRMI_TRY(TRMI_NEW(err, self, 1, "for %d connections", group->size));
    /* From here on tcp_destroy frees everything. */
    self->base.table = &tcp_table;
    self->base.group = *group;
    self->base.culprit = -1;
    self->link_count = group->size * TRMI_CHANNELS;
    self->links = trmi_alloc((size_t)self->link_count * sizeof *self->links);
    self->polls = trmi_alloc((size_t)(self->link_count + 1) * sizeof *self->polls);
    bool enough = self->links != NULL && self->polls != NULL;
    for (int32_t i = 0; self->links != NULL && i < self->link_count; i++) {
        trmi_tcp_link *link = &self->links[i];
        link->fd = -1;
        link->peer = i / TRMI_CHANNELS;
        link->channel = i % TRMI_CHANNELS;
        link->sends_tail = &link->sends;
        link->receives_tail = &link->receives;
        link->out_hash = XXH3_createState();
        link->in_hash = XXH3_createState();
        enough = enough && link->out_hash != NULL && link->in_hash != NULL;
    }
    trm_status status = enough ? trmi_tcp_connect(group, exchange, self->links, err)
                               : TRMI_NO_MEMORY(err, "for %d connections", group->size);
    if (status != TRM_OK) {
        tcp_destroy(&self->base);
        return status;
    }
    *out = &self->base;
    return TRM_OK;
}
