/* SPDX-License-Identifier: Apache-2.0 */
/* comm/rendezvous/side_hello.h: what a rank says of itself to rank 0, as the detail of its HELLO
 * (base/net.h), before either of them has proved the token. */
#ifndef TRMI_COMM_SIDE_HELLO_H
#define TRMI_COMM_SIDE_HELLO_H

#include "comm/rendezvous/side_link.h"

enum {
    TRMI_SIDE_VERSION = 3,
    TRMI_HELLO_BYTES = 208,
    TRMI_HOST_NAME_BYTES = 48,
    TRMI_WATCHER = -2
};

typedef struct trmi_hello {
    int32_t rank; /* -1: to be assigned; TRMI_WATCHER: no rank, waits for the job's end */
    int32_t size, pid, device;
    uint8_t digest[32];                 /* of the cluster description */
    uint8_t key[32];                    /* of the job */
    uint8_t host_id[32];                /* the same for ranks that can share memory */
    char host[TRMI_HOST_NAME_BYTES];    /* name for messages */
    char address[TRMI_HOST_NAME_BYTES]; /* numeric address on which peers reach this rank */
} trmi_hello;

void trmi_hello_encode(const trmi_hello *hello, uint8_t wire[TRMI_HELLO_BYTES]);
/* False when it has another length. Texts are then terminated and printable. */
bool trmi_hello_decode(const uint8_t *wire, size_t bytes, trmi_hello *hello);

#endif
