/* SPDX-License-Identifier: Apache-2.0 */
/* Frames of the control channel: building, sending, receiving and checking them. The length that a
 * frame claims is checked before any memory is taken for it, and its MAC before it is used.
 *
 *   trmi_link_put   --> out (bytes to send) --> trmi_link_flush --> socket
 *   trmi_link_fill  <-- socket;  in (received bytes) --> trmi_link_next --> one frame
 *
 * No function waits. Each direction has a key and a count of frames, so that a frame can be neither
 * forged, repeated nor moved to the other direction. Once the service thread runs, the caller holds
 * the lock of the control channel. */
#include "comm/rendezvous/side_link.h"

#include "base/hash/digest.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/net/net.h"
#include "base/os.h"

#include <openssl/crypto.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* received in one call, at most, so that one peer cannot keep the thread busy */
enum { FILL_BYTES = 1 << 20 };

void trmi_link_close(trmi_link *link) {
    if (link->fd >= 0) {
        close(link->fd);
    }
    link->fd = -1;
    trmi_free(link->in);
    trmi_free(link->out);
    link->in = link->out = NULL;
    link->in_capacity = link->out_capacity = 0;
    link->in_bytes = link->in_used = link->out_bytes = link->out_sent = 0;
}

/* Computes the MAC of a frame whose check field contains zeros. */
static void frame_mac(const uint8_t key[32], const uint8_t *frame, size_t bytes,
                      uint8_t out[TRMI_FRAME_CHECK_BYTES]) {
    uint8_t full[32];
    (void)trmi_hmac_sha256(key, frame, bytes, full);
    memcpy(out, full, TRMI_FRAME_CHECK_BYTES);
}

/* Contract in side_link.h. Frames are numbered and authenticated with a key of this connection,
 * so that a frame can be neither changed, repeated nor left out. */
bool trmi_link_put(trmi_link *link, trmi_frame_type type, int64_t id, const void *payload,
                   size_t bytes) {
    if (link->fd < 0) {
        return true; /* no peer to send to */
    }
    /* Everything was sent: begin again at the front of the buffer. */
    if (link->out_sent > 0 && link->out_sent == link->out_bytes) {
        link->out_sent = link->out_bytes = 0;
    }
    size_t needed = link->out_bytes + TRMI_FRAME_HEAD_BYTES + bytes;
    if (!trmi_grow((void **)&link->out, &link->out_capacity, (int64_t)needed, 1)) {
        return false;
    }
    /* Write head, payload, and then the MAC of both. */
    uint8_t *frame = link->out + link->out_bytes;
    trmi_frame_encode(&(trmi_frame_head){.service = TRMI_SERVICE_RENDEZVOUS,
                                         .type = (uint16_t)type,
                                         .bytes = bytes,
                                         .number = link->send_number++,
                                         .id = (uint64_t)id},
                      frame);
    if (bytes > 0) {
        memcpy(frame + TRMI_FRAME_HEAD_BYTES, payload, bytes);
    }
    uint8_t mac[TRMI_FRAME_CHECK_BYTES];
    frame_mac(link->send_key, frame, TRMI_FRAME_HEAD_BYTES + bytes, mac);
    memcpy(frame + TRMI_FRAME_CHECK_AT, mac, sizeof mac);
    link->out_bytes = needed;
    return true;
}

bool trmi_link_flush(trmi_link *link) {
    while (link->fd >= 0 && link->out_sent < link->out_bytes) {
        ssize_t sent = send(link->fd, link->out + link->out_sent, link->out_bytes - link->out_sent,
                            MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent < 0 && errno == EINTR) {
            continue;
        }
        if (sent < 0) {
            /* A full socket is no error: the rest follows at the next call. */
            return errno == EAGAIN || errno == EWOULDBLOCK;
        }
        link->out_sent += (size_t)sent;
    }
    link->out_sent = link->out_bytes = 0;
    return true;
}

bool trmi_link_feed(trmi_link *link, const void *data, size_t bytes) {
    if (!trmi_grow((void **)&link->in, &link->in_capacity, (int64_t)(link->in_bytes + bytes), 1)) {
        return false;
    }
    if (bytes > 0) {
        memcpy(link->in + link->in_bytes, data, bytes);
        link->in_bytes += bytes;
    }
    return true;
}

/* Contract in side_link.h. Takes a limited number of bytes a call, so that one rank that sends much
 * does not keep the service thread from the others. */
int trmi_link_fill(trmi_link *link) {
    uint8_t part[65536];
    int got = 0;
    for (size_t total = 0; total < FILL_BYTES;) {
        ssize_t bytes = recv(link->fd, part, sizeof part, MSG_DONTWAIT);
        if (bytes < 0 && errno == EINTR) {
            continue;
        }
        if (bytes < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
            return got;
        }
        /* The end of the connection (errno 0) or an error. */
        if (bytes <= 0) {
            errno = bytes == 0 ? 0 : errno;
            return -1;
        }
        if (!trmi_link_feed(link, part, (size_t)bytes)) {
            errno = ENOMEM;
            return -1;
        }
        got = 1;
        total += (size_t)bytes;
    }
    return got;
}

/* Contract in side_link.h. The head is checked before the rest has arrived, so that a foreign peer
 * is found at once and no length is believed; number and MAC show frames that were lost, repeated
 * or changed. */
trm_status trmi_link_next(trmi_link *link, trmi_frame *frame, trm_error *err) {
    /* Remove the frame that the previous call returned. */
    if (link->in_used > 0) {
        memmove(link->in, link->in + link->in_used, link->in_bytes - link->in_used);
        link->in_bytes -= link->in_used;
        link->in_used = 0;
    }
    if (link->in_bytes < TRMI_FRAME_HEAD_BYTES) {
        return TRM_END;
    }
    uint8_t *wire = link->in, found[TRMI_FRAME_CHECK_BYTES], wanted[TRMI_FRAME_CHECK_BYTES];
    const unsigned long long number = link->recv_number;
    trmi_frame_head head;
    /* Check the head, before the whole frame has arrived. */
    if (!trmi_frame_decode(wire, TRMI_SERVICE_RENDEZVOUS, &head)) {
        return TRMI_FAIL(err, TRM_CORRUPT,
                         "frame %llu has another magic number (bytes %02x %02x %02x %02x)", number,
                         wire[0], wire[1], wire[2], wire[3]);
    }
    if (head.type < TRMI_FRAME_PING || head.type > TRMI_FRAME_OVER) {
        return TRMI_FAIL(err, TRM_CORRUPT, "frame %llu has unknown type %u", number, head.type);
    }
    if (head.bytes > TRMI_FRAME_PAYLOAD_MAX) {
        return TRMI_FAIL(err, TRM_CORRUPT, "frame %llu claims %llu bytes, at most %d expected",
                         number, (unsigned long long)head.bytes, TRMI_FRAME_PAYLOAD_MAX);
    }
    /* The frame numbers of a direction have no gaps: a lost or repeated frame is an error. */
    if (head.number != link->recv_number) {
        return TRMI_FAIL(err, TRM_CORRUPT, "frame %llu expected, found %llu (lost or repeated)",
                         number, (unsigned long long)head.number);
    }
    const size_t bytes = TRMI_FRAME_HEAD_BYTES + (size_t)head.bytes;
    if (link->in_bytes < bytes) {
        return TRM_END;
    }
    /* Check the MAC in constant time, so that the duration shows nothing about the right one. */
    memcpy(found, wire + TRMI_FRAME_CHECK_AT, sizeof found);
    memset(wire + TRMI_FRAME_CHECK_AT, 0, sizeof found);
    frame_mac(link->recv_key, wire, bytes, wanted);
    if (CRYPTO_memcmp(found, wanted, sizeof found) != 0) {
        return TRMI_FAIL(err, TRM_CORRUPT, "frame %llu was changed on its way (MAC differs)",
                         number);
    }
    link->recv_number++;
    link->in_used = bytes;
    *frame = (trmi_frame){.type = head.type,
                          .bytes = (uint32_t)head.bytes,
                          .id = (int64_t)head.id,
                          .payload = wire + TRMI_FRAME_HEAD_BYTES};
    return TRM_OK;
}
