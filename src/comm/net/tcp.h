/* SPDX-License-Identifier: Apache-2.0 */
/* comm/net/tcp.h: internals of the TCP transport.
 *
 *   frame   head (base/net/net_frame.h), payload, XXH3 hash of the payload (8 bytes)
 *   link    one connection for each peer and channel; it has a queue of sends and a queue of receives
 */
#ifndef TRMI_COMM_TCP_H
#define TRMI_COMM_TCP_H

#include "base/net/net_frame.h"
#include "comm/net/transport.h"

/* Bytes of the hash behind a payload, and of what is read ahead. */
enum {
    TRMI_FRAME_TAIL_BYTES = 8,
    TRMI_TCP_AHEAD_BYTES = 8192 /* bytes that are read at once beyond what is awaited */
};

/* One connection. A connection carries frames in both directions, each direction in its own
 * order. */
typedef struct trmi_tcp_link {
    int fd;                                       /* non-blocking socket; -1: this rank itself */
    int32_t peer, channel;                        /* rank in the group, TRMI_CHANNEL_... */
    trmi_net_transfer *sends, **sends_tail;       /* queue: the first one is being written */
    trmi_net_transfer *receives, **receives_tail; /* queue: the first one is being read */
    /* The frame that is being written, [head][payload][tail]: `out_done` bytes of it are written,
     * and `out_hash_done` bytes of its payload are hashed. */
    uint64_t out_done, out_hash_done;
    /* as bytes of the wire */
    uint8_t out_head[TRMI_FRAME_HEAD_BYTES], out_tail[TRMI_FRAME_TAIL_BYTES];
    void *out_hash; /* XXH3_state_t */
    /* The frame that is being read. Bytes that were read ahead are in ahead[ahead_from,
     * ahead_to). */
    bool head_read;
    uint64_t in_hash_done;               /* bytes of the payload that are hashed */
    void *in_hash;                       /* XXH3_state_t */
    uint32_t ahead_from, ahead_to;       /* the part of `ahead` that is not used yet */
    uint8_t ahead[TRMI_TCP_AHEAD_BYTES]; /* bytes that came with an earlier read */
} trmi_tcp_link;

/* tcp_connect.c: connects the group pairwise and sets links[peer * TRMI_CHANNELS + channel].fd; the
 * entries of this rank itself keep -1. Each side proves with the job's token that it belongs to the
 * job. All ranks call it together.
 *   errors  IO, TIMEOUT, PEER, or the job's failure */
trm_status trmi_tcp_connect(const trmi_group *group, const trmi_exchange *exchange,
                            trmi_tcp_link *links, trm_error *err);
/* Closes a connection. The kernel keeps unsent data for a silent peer for 5 seconds only, instead
 * of many minutes. */
void trmi_tcp_close(int fd);

#endif
