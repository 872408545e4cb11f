/* SPDX-License-Identifier: Apache-2.0 */
/* comm/net/tcp.h: the TCP transport, inside.
 *
 *   frame   head of base/net_frame.h, payload, XXH3 of the payload (8 bytes)
 *   link    one connection per peer and channel; writes its queue of sends, reads its queue of receives
 */
#ifndef TRMI_COMM_TCP_H
#define TRMI_COMM_TCP_H

#include "base/net_frame.h"
#include "comm/net/transport.h"

enum {
    TRMI_FRAME_TAIL_BYTES = 8,
    TRMI_TCP_AHEAD_BYTES = 8192 /* read in one go with what is awaited */
};

typedef struct trmi_link {
    int fd;
    int32_t peer, channel;
    trmi_transfer *sends, **sends_tail;
    trmi_transfer *receives, **receives_tail;
    /* the frame that is being written: [head][payload][tail], `out_done` bytes of it are out */
    uint64_t out_done, out_hash_done;
    uint8_t out_head[TRMI_FRAME_HEAD_BYTES], out_tail[TRMI_FRAME_TAIL_BYTES];
    void *out_hash; /* XXH3_state_t */
    /* the frame that is being read; bytes read ahead lie in ahead[ahead_from, ahead_to) */
    bool head_read;
    uint64_t in_hash_done;
    void *in_hash;
    uint32_t ahead_from, ahead_to;
    uint8_t ahead[TRMI_TCP_AHEAD_BYTES];
} trmi_link;

/* tcp_connect.c: connects the group pairwise; links[peer * TRMI_CHANNELS + channel], own entries
 * unused (fd -1). Each side proves with the job's secret that it belongs to the job. */
trm_status trmi_tcp_connect(const trmi_group *group, const trmi_exchange *exchange,
                            trmi_link *links, trm_error *err);
/* What a silent peer has not taken then is kept for seconds, not minutes. */
void trmi_tcp_close(int fd);

#endif
