/* SPDX-License-Identifier: Apache-2.0 */
#include "comm/rendezvous/side_link.h"

#include "base/error.h"
#include "base/memory.h"
#include "base/os.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* Header: 0 magic "TRMF", 4 type u16, 6 zero u16, 8 bytes u32, 12 sequence u32, 16 id i64,
 * 24 tag[16]. */
enum { FRAME_MAGIC = 0x464D5254, TAG_AT = 24, TAG_BYTES = 16, FILL_BYTES = 1 << 20 };

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

/* Tag of a frame whose tag bytes are zero. */
static void frame_tag(const uint8_t key[32], const uint8_t *frame, size_t bytes,
                      uint8_t tag[TAG_BYTES]) {
    memset(tag, 0, TAG_BYTES);
    uint8_t full[EVP_MAX_MD_SIZE];
    unsigned length = 0;
    if (HMAC(EVP_sha256(), key, 32, frame, bytes, full, &length) != NULL) {
        memcpy(tag, full, TAG_BYTES);
    }
}

bool trmi_link_put(trmi_link *link, trmi_frame_type type, int64_t id, const void *payload,
                   size_t bytes) {
    if (link->fd < 0) {
        return true; /* nobody to tell */
    }
    if (link->out_sent > 0 && link->out_sent == link->out_bytes) {
        link->out_sent = link->out_bytes = 0;
    }
    size_t needed = link->out_bytes + TRMI_FRAME_HEADER + bytes;
    if (!trmi_grow((void **)&link->out, &link->out_capacity, (int64_t)needed, 1)) {
        return false;
    }
    uint8_t *frame = link->out + link->out_bytes;
    memset(frame, 0, TRMI_FRAME_HEADER);
    trmi_put32(frame, FRAME_MAGIC);
    frame[4] = (uint8_t)type;
    trmi_put32(frame + 8, (uint32_t)bytes);
    trmi_put32(frame + 12, link->send_sequence++);
    trmi_put64(frame + 16, (uint64_t)id);
    if (bytes > 0) {
        memcpy(frame + TRMI_FRAME_HEADER, payload, bytes);
    }
    uint8_t tag[TAG_BYTES];
    frame_tag(link->send_key, frame, TRMI_FRAME_HEADER + bytes, tag);
    memcpy(frame + TAG_AT, tag, TAG_BYTES);
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

trm_status trmi_link_next(trmi_link *link, trmi_frame *frame, trm_error *err) {
    if (link->in_used > 0) {
        memmove(link->in, link->in + link->in_used, link->in_bytes - link->in_used);
        link->in_bytes -= link->in_used;
        link->in_used = 0;
    }
    if (link->in_bytes < TRMI_FRAME_HEADER) {
        return TRM_END;
    }
    uint8_t *head = link->in;
    uint32_t bytes = trmi_get32(head + 8), sequence = trmi_get32(head + 12);
    uint16_t type = (uint16_t)(head[4] | head[5] << 8);
    if (trmi_get32(head) != FRAME_MAGIC || head[6] != 0 || head[7] != 0) {
        return TRMI_FAIL(err, TRM_CORRUPT, "frame %u is none of ours (bytes %02x %02x %02x %02x)",
                         link->recv_sequence, head[0], head[1], head[2], head[3]);
    }
    if (type < TRMI_FRAME_PING || type > TRMI_FRAME_WELCOME) {
        return TRMI_FAIL(err, TRM_CORRUPT, "frame %u has unknown type %u", link->recv_sequence,
                         type);
    }
    if (bytes > TRMI_FRAME_PAYLOAD_MAX) {
        return TRMI_FAIL(err, TRM_CORRUPT, "frame %u claims %u bytes, at most %d expected",
                         link->recv_sequence, bytes, TRMI_FRAME_PAYLOAD_MAX);
    }
    if (sequence != link->recv_sequence) {
        return TRMI_FAIL(err, TRM_CORRUPT, "frame %u expected, found %u (lost or repeated)",
                         link->recv_sequence, sequence);
    }
    if (link->in_bytes < (size_t)TRMI_FRAME_HEADER + bytes) {
        return TRM_END;
    }
    uint8_t found[TAG_BYTES], wanted[TAG_BYTES];
    memcpy(found, head + TAG_AT, TAG_BYTES);
    memset(head + TAG_AT, 0, TAG_BYTES);
    frame_tag(link->recv_key, head, TRMI_FRAME_HEADER + bytes, wanted);
    if (CRYPTO_memcmp(found, wanted, TAG_BYTES) != 0) {
        return TRMI_FAIL(err, TRM_CORRUPT, "frame %u was changed on its way (MAC differs)",
                         sequence);
    }
    link->recv_sequence++;
    link->in_used = (size_t)TRMI_FRAME_HEADER + bytes;
    *frame = (trmi_frame){.type = type,
                          .bytes = bytes,
                          .id = (int64_t)trmi_get64(head + 16),
                          .payload = head + TRMI_FRAME_HEADER};
    return TRM_OK;
}
