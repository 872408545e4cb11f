/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes of a peer: the hello, the challenge, then frames; with and without keys. */
#include "fuzz_seed.h"

#include "base/memory.h"
#include "comm/rendezvous/side.h"

#include <stdlib.h>
#include <string.h>

size_t trireme_fuzz_seed(int index, uint8_t *data, size_t capacity) {
    if (index == 0) {
        trmi_hello hello = {.version = 1, .rank = 2, .size = 4, .pid = 77, .host = "node1"};
        trmi_hello_encode(&hello, data);
        return TRMI_HELLO_BYTES;
    }
    if (index == 1) {
        uint8_t token[32] = {0}, hello[TRMI_HELLO_BYTES] = {0}, nonce[32] = {5};
        trmi_challenge_make(token, hello, nonce, data);
        return TRMI_CHALLENGE_BYTES;
    }
    /* some frames as a peer would send them */
    static const uint8_t blob[300] = {1, 2, 3};
    trmi_link link = {.fd = 99};
    for (int f = 0; f < index; f++) {
        trmi_link_put(&link, (trmi_frame_type)(1 + (f + index) % 9), f, blob,
                      (size_t)(f * 37 % 300));
    }
    size_t bytes = link.out_bytes < capacity ? link.out_bytes : capacity;
    memcpy(data, link.out, bytes);
    link.fd = -1;
    trmi_link_close(&link);
    return bytes;
}

static void frames(const uint8_t *data, size_t bytes, bool keyed) {
    trmi_link link = {.fd = -1, .keyed = keyed};
    trmi_frame frame;
    trm_error err;
    size_t seen = 0, cut = bytes / 2;
    for (int part = 0; part < 2; part++) { /* in two deliveries, as sockets do */
        if (!trmi_link_feed(&link, part ? data + cut : data, part ? bytes - cut : cut)) {
            abort();
        }
        while (trmi_link_next(&link, &frame, &err) == TRM_OK) {
            seen += TRMI_FRAME_HEADER + frame.bytes;
            if (seen > bytes || frame.type < TRMI_FRAME_PING || frame.type > TRMI_FRAME_WELCOME) {
                abort();
            }
            volatile uint8_t sum = 0;
            for (uint32_t i = 0; i < frame.bytes; i++) {
                sum ^= frame.payload[i];
            }
        }
    }
    trmi_link_close(&link);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    static const uint8_t token[32], hello_wire[TRMI_HELLO_BYTES];
    trmi_hello hello;
    uint16_t version;
    bool known;
    if (bytes >= TRMI_HELLO_BYTES && trmi_hello_decode(data, &hello) &&
        (strlen(hello.host) >= sizeof hello.host ||
         strlen(hello.address) >= sizeof hello.address)) {
        abort();
    }
    if (bytes >= TRMI_CHALLENGE_BYTES) {
        trmi_challenge_check(token, hello_wire, data, &version, &known);
    }
    frames(data, bytes, false);
    frames(data, bytes, true);
    /* a welcome of any bytes */
    static trmi_peer peers[8];
    trmi_side side = {.peers = peers};
    uint8_t nonce[32];
    trm_error err;
    if (trmi_welcome_decode(&side, data, bytes, 8, nonce, &err) == TRM_OK &&
        (side.base.rank < 1 || side.base.rank > 7)) {
        abort();
    }
    return 0;
}
