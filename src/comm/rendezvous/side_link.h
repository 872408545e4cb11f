/* SPDX-License-Identifier: Apache-2.0 */
/* comm/rendezvous/side_link.h: frames over one connection of the control channel.
 *
 *   bytes ->  in [ head 64 | payload ]  -> trmi_link_next -> frame   (checks magic, length, number, MAC)
 *   frame -> out [ head 64 | payload ]  -> trmi_link_flush -> bytes
 *
 * The frames are those of base/net/net_frame.h, with a MAC under the key of their direction. All
 * sockets are used without blocking. One thread at a time may use a link. */
#ifndef TRMI_COMM_SIDE_LINK_H
#define TRMI_COMM_SIDE_LINK_H

#include "base/net/net_frame.h"

/* longest payload; longer ones are refused before memory is taken */
enum { TRMI_FRAME_PAYLOAD_MAX = 64 << 20 };

/* Types of frames; their numbers are part of the protocol. */
typedef enum trmi_frame_type {
    TRMI_FRAME_PING = 1,
    TRMI_FRAME_GATHER = 2, /* to rank 0: number of the exchange, one rank's blob */
    TRMI_FRAME_RESULT = 3, /* from rank 0: number of the exchange, all blobs */
    /* from rank 0: number, trm_error; the exchange fails, the job stays healthy */
    TRMI_FRAME_FAILED = 4,
    TRMI_FRAME_POISON = 5,  /* trm_error: the job has failed */
    TRMI_FRAME_WHO = 6,     /* to rank 0: number; requests the missing ranks */
    TRMI_FRAME_MISSING = 7, /* from rank 0: number, text */
    /* the sender leaves the job in order */
    TRMI_FRAME_BYE = 8,
    TRMI_FRAME_WELCOME = 9, /* the ranks of the job, see side_peer.c */
    /* the members of the next epoch of an elastic job are decided (membership.h) */
    TRMI_FRAME_JOIN = 10,    /* to a coordinator: ballot, own entry, present list, accepted list */
    TRMI_FRAME_PROPOSE = 11, /* from it: a list */
    TRMI_FRAME_ACK = 12,     /* to it: the list is accepted */
    TRMI_FRAME_COMMIT = 13,  /* from it: the list of the next, or of a later epoch */
    TRMI_FRAME_RUNNING = 14, /* at the place of a job that runs: its key, masked, and a list */
    TRMI_FRAME_OVER =
        15 /* to a member: the ballot of its JOIN is over, a later one has begun; a list */
} trmi_frame_type;

/* A frame that has been received and checked. */
typedef struct trmi_frame {
    uint16_t type;          /* a trmi_frame_type */
    uint32_t bytes;         /* length of the payload */
    int64_t id;             /* number of an exchange; 0 for other frames */
    const uint8_t *payload; /* inside the link's buffer, valid until the next call */
} trmi_frame;

/* One connection with its buffers. */
typedef struct trmi_link {
    int fd;                             /* non-blocking socket; -1: closed */
    uint8_t send_key[32], recv_key[32]; /* HMAC keys of the two directions */
    uint64_t send_number, recv_number;  /* number of the next frame */
    uint8_t *in, *out;                  /* received bytes, and bytes to be sent */
    int64_t in_capacity, out_capacity;  /* length of the two buffers */
    size_t in_bytes, in_used;   /* bytes received, and how many of them the last frame used */
    size_t out_bytes, out_sent; /* bytes queued, and how many of them are sent */
    /* when something last came from the peer, or was last sent (trmi_os_now) */
    double heard_time, said_time;
    bool bye;      /* the peer has sent BYE */
    int warned_at; /* seconds of silence at the last warning */
} trmi_link;

/* Closes the socket and frees the buffers. */
void trmi_link_close(trmi_link *link);
/* Queues a frame; nothing is sent yet. Returns false if there is no memory. On a closed link it
 * does nothing and returns true. */
bool trmi_link_put(trmi_link *link, trmi_frame_type type, int64_t id, const void *payload,
                   size_t bytes);
/* Sends what is queued as far as the socket accepts it. Returns false (errno) if the connection is
 * lost. */
bool trmi_link_flush(trmi_link *link);
/* Receives what has arrived, at most 1 MB. Returns 1 if something came, 0 if not, and -1 if the
 * connection is lost (errno 0: the peer closed it). */
int trmi_link_fill(trmi_link *link);
/* Appends bytes as if they had been received (for tests and fuzzing). */
bool trmi_link_feed(trmi_link *link, const void *data, size_t bytes);
/* Takes the next complete frame. Returns TRM_END if there is none yet, CORRUPT if it is damaged. */
trm_status trmi_link_next(trmi_link *link, trmi_frame *frame, trm_error *err);

#endif
