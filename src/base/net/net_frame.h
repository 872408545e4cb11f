/* SPDX-License-Identifier: Apache-2.0 */
/* base/net/net_frame.h: the head of every message that follows the proof of base/net/net.h.
 *
 *    0  "TRMF"
 *    4  u16 service, u16 type (the service's own)
 *    8  u64 bytes of payload
 *   16  u64 number: rendezvous: of the frame, from 0 in each direction; collectives: the operation's
 *   24  u64 id: rendezvous: of the exchange; collectives: the step
 *   32  two u64 signature: collectives: of the operation; else zero
 *   48  16 bytes check
 *   64  payload
 *
 * The check is HMAC-SHA256 of the whole frame under the direction's key, cut to 16 bytes, at the
 * rendezvous; elsewhere XXH3 of the 48 bytes before it, and 8 zeros. It is computed with zeros
 * in its place. Collectives send XXH3 of the payload (8 bytes) after it. Integers are
 * little-endian. */
#ifndef TRMI_BASE_NET_FRAME_H
#define TRMI_BASE_NET_FRAME_H

#include "trireme/base.h"

#include "base/format/endian.h"

/* Bytes of the head, and place and bytes of the check in it. */
enum { TRMI_FRAME_HEAD_BYTES = 64, TRMI_FRAME_CHECK_AT = 48, TRMI_FRAME_CHECK_BYTES = 16 };

/* The fields of a head, in the byte order of this machine. */
typedef struct trmi_frame_head {
    uint16_t service, type; /* type: the service's own */
    uint64_t bytes;         /* of payload */
    /* of the frame, or of the operation; of the exchange, or of the step */
    uint64_t number, id;
    uint64_t signature[2]; /* of the operation; {0, 0} without one */
} trmi_frame_head;

/* Writes the head, with zeros for its check. */
void trmi_frame_encode(const trmi_frame_head *head, uint8_t wire[TRMI_FRAME_HEAD_BYTES]);
/* Reads the head of a frame of `service`. Returns false for other bytes. The caller compares sizes
 * with its limits and verifies the check. */
bool trmi_frame_decode(const uint8_t wire[TRMI_FRAME_HEAD_BYTES], uint16_t service,
                       trmi_frame_head *out);
/* Sets the check that needs no key (XXH3); returns whether it is right. */
void trmi_frame_write_checksum(uint8_t wire[TRMI_FRAME_HEAD_BYTES]);
bool trmi_frame_sum_is_right(const uint8_t wire[TRMI_FRAME_HEAD_BYTES]);

#endif
