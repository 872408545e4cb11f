/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes of a peer: the first words of a connection, a rank's hello, then frames. */
#include "fuzz_seed.h"

#include "base/memory.h"
#include "base/net/net_proof.h"
#include "comm/rendezvous/side.h"

#include <stdlib.h>
#include <string.h>

size_t trireme_fuzz_seed(int index, uint8_t *data, size_t capacity) {
    if (index == 0) {
        trmi_hello hello = {.rank = 2, .size = 4, .pid = 77, .host = "node1"};
        trmi_hello_encode(&hello, data);
        return TRMI_HELLO_BYTES;
    }
    if (index == 1) {
        static const trmi_credentials mine = {.service = TRMI_SERVICE_RENDEZVOUS, .version = 2};
        trmi_proof proof;
        if (trmi_net_hello(&mine, &proof, NULL) != TRM_OK) {
            abort();
        }
        memcpy(data, proof.hello, proof.hello_bytes);
        return proof.hello_bytes;
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

static void read_frames(const uint8_t *data, size_t bytes) {
    trmi_link link = {.fd = -1};
    trmi_frame frame;
    trm_error err;
    size_t seen = 0, cut = bytes / 2;
    for (int part = 0; part < 2; part++) { /* in two deliveries, as sockets do */
        if (!trmi_link_feed(&link, part ? data + cut : data, part ? bytes - cut : cut)) {
            abort();
        }
        while (trmi_link_next(&link, &frame, &err) == TRM_OK) {
            seen += TRMI_FRAME_HEAD_BYTES + frame.bytes;
            if (seen > bytes || frame.type < TRMI_FRAME_PING || frame.type > TRMI_FRAME_COMMIT) {
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
    static const trmi_credentials mine = {.service = TRMI_SERVICE_RENDEZVOUS, .version = 2};
    static trmi_proof proof;
    trmi_hello hello;
    size_t wanted, have = bytes < sizeof proof.hello ? bytes : sizeof proof.hello;
    /* what is accepted must be within its bounds */
    if (trmi_hello_decode(data, bytes, &hello) && (strlen(hello.host) >= sizeof hello.host ||
                                                   strlen(hello.address) >= sizeof hello.address)) {
        abort();
    }
    memcpy(proof.hello, data, have);
    if (trmi_net_check_hello(&proof, have, &mine, &wanted) == NULL && wanted > sizeof proof.hello) {
        abort();
    }
    read_frames(data, bytes);
    /* a welcome of any bytes */
    static trmi_peer peers[8];
    trmi_side side = {.base.size = 8, .peers = peers};
    uint8_t nonce[32];
    trm_error err;
    if (trmi_welcome_decode(&side, data, bytes, 2, nonce, &err) == TRM_OK &&
        (side.base.rank < 1 || side.base.rank > 7)) {
        abort();
    }
    return 0;
}
