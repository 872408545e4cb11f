/* SPDX-License-Identifier: Apache-2.0 */
/* comm/rendezvous/side_link.h: frames over one connection of the side channel.
 *
 *   bytes ->  in [ head 64 | payload ]  -> trmi_link_next -> frame      (checked: magic, length,
 *   frame -> out [ head 64 | payload ]  -> trmi_link_flush -> bytes      number, MAC)
 *
 * Frames are those of base/net_frame.h, with a MAC under the key of their direction. A link belongs
 * to one thread at a time. */
#ifndef TRMI_COMM_SIDE_LINK_H
#define TRMI_COMM_SIDE_LINK_H

#include "base/net_frame.h"

enum { TRMI_FRAME_PAYLOAD_MAX = 64 << 20 };

typedef enum trmi_frame_type {
    TRMI_FRAME_PING = 1,
    TRMI_FRAME_GATHER = 2,  /* id, one rank's blob */
    TRMI_FRAME_RESULT = 3,  /* id, all blobs */
    TRMI_FRAME_FAILED = 4,  /* id, trm_error: this exchange fails, the job is not poisoned */
    TRMI_FRAME_POISON = 5,  /* trm_error */
    TRMI_FRAME_WHO = 6,     /* id: who is missing? */
    TRMI_FRAME_MISSING = 7, /* id, text */
    TRMI_FRAME_BYE = 8,
    TRMI_FRAME_WELCOME = 9 /* the job, see side_root.c */
} trmi_frame_type;

typedef struct trmi_frame {
    uint16_t type;
    uint32_t bytes;
    int64_t id;
    const uint8_t *payload; /* in the link's buffer, valid until the next call */
} trmi_frame;

typedef struct trmi_link {
    int fd; /* non-blocking; -1 when closed */
    uint8_t send_key[32], recv_key[32];
    uint64_t send_number, recv_number; /* of the next frame */
    uint8_t *in, *out;
    int64_t in_capacity, out_capacity;
    size_t in_bytes, in_used; /* received; of these consumed by the last frame */
    size_t out_bytes, out_sent;
    double heard_time, said_time;
    bool bye;      /* the peer has left in order */
    int warned_at; /* seconds of silence at the last warning */
} trmi_link;

void trmi_link_close(trmi_link *link);
/* Queues a frame. False when there is no memory. */
bool trmi_link_put(trmi_link *link, trmi_frame_type type, int64_t id, const void *payload,
                   size_t bytes);
/* Sends what is queued as far as the socket takes it. False (errno) when the connection is gone. */
bool trmi_link_flush(trmi_link *link);
/* Receives what is there, at most 1 MB. 1 got something, 0 nothing there, -1 the connection is
 * gone (errno 0: closed by the peer). */
int trmi_link_fill(trmi_link *link);
/* Adds received bytes by hand (tests, fuzzing). */
bool trmi_link_feed(trmi_link *link, const void *data, size_t bytes);
/* The next whole frame: TRM_OK, TRM_END when there is none yet, CORRUPT naming what is wrong. */
trm_status trmi_link_next(trmi_link *link, trmi_frame *frame, trm_error *err);

#endif
