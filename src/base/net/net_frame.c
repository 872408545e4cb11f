/* SPDX-License-Identifier: Apache-2.0 */
/* Encodes, decodes and checks the head of frames (base/net/net_frame.h). */
#include "base/net/net_frame.h"

#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

static const uint32_t frame_magic = 0x464D5254; /* "TRMF" */

void trmi_frame_encode(const trmi_frame_head *head, uint8_t wire[TRMI_FRAME_HEAD_BYTES]) {
    trmi_put32(wire, frame_magic);
    trmi_put32(wire + 4, head->service | (uint32_t)head->type << 16);
    trmi_put64(wire + 8, head->bytes);
    trmi_put64(wire + 16, head->number);
    trmi_put64(wire + 24, head->id);
    trmi_put64(wire + 32, head->signature[0]);
    trmi_put64(wire + 40, head->signature[1]);
    memset(wire + TRMI_FRAME_CHECK_AT, 0, TRMI_FRAME_CHECK_BYTES);
}

/* Contract in net_frame.h. Only form and service are checked here, the content by the check. */
bool trmi_frame_decode(const uint8_t wire[TRMI_FRAME_HEAD_BYTES], uint16_t service,
                       trmi_frame_head *out) {
    const uint32_t kind = trmi_get32(wire + 4);
    *out = (trmi_frame_head){.service = (uint16_t)kind,
                             .type = (uint16_t)(kind >> 16),
                             .bytes = trmi_get64(wire + 8),
                             .number = trmi_get64(wire + 16),
                             .id = trmi_get64(wire + 24),
                             .signature = {trmi_get64(wire + 32), trmi_get64(wire + 40)}};
    return trmi_get32(wire) == frame_magic && out->service == service;
}

void trmi_frame_write_checksum(uint8_t wire[TRMI_FRAME_HEAD_BYTES]) {
    trmi_put64(wire + TRMI_FRAME_CHECK_AT, XXH3_64bits(wire, TRMI_FRAME_CHECK_AT));
}

bool trmi_frame_sum_is_right(const uint8_t wire[TRMI_FRAME_HEAD_BYTES]) {
    return trmi_get64(wire + TRMI_FRAME_CHECK_AT) == XXH3_64bits(wire, TRMI_FRAME_CHECK_AT) &&
           trmi_get64(wire + TRMI_FRAME_CHECK_AT + 8) == 0;
}
