/* SPDX-License-Identifier: Apache-2.0 */
/* comm/rendezvous/side_hello.h: what a rank declares to rank 0, as the detail of its HELLO
 * (base/net/net.h). Rank 0 reads it only after the rank has proved the token. */
#ifndef TRMI_COMM_SIDE_HELLO_H
#define TRMI_COMM_SIDE_HELLO_H

#include "comm/rendezvous/side_link.h"

/* Version of the control channel, bytes of a hello and of a name, and numbers in place of a
 * rank. */
enum {
    /* of the protocol */
    TRMI_SIDE_VERSION = 4,
    TRMI_HELLO_BYTES = 208,
    TRMI_HOST_NAME_BYTES = 48,
    TRMI_WATCHER = -2,
    TRMI_HERALD = -3
};

/* What a rank says of itself. */
typedef struct trmi_hello {
    int32_t rank; /* -1: rank 0 assigns one; TRMI_WATCHER: not a rank, waits for the job's end;
                  * TRMI_HERALD: a member of the elastic job, which runs already */
    int32_t size, pid, device;
    uint8_t digest[32];                 /* of the cluster description: must be equal on all ranks */
    uint8_t key[32];                    /* of the job: must be equal on all ranks */
    uint8_t host_id[32];                /* equal for ranks that can share memory */
    char host[TRMI_HOST_NAME_BYTES];    /* name of the host, for messages */
    char address[TRMI_HOST_NAME_BYTES]; /* numeric address on which peers reach this rank */
} trmi_hello;

/* Writes the fixed form, little-endian. */
void trmi_hello_encode(const trmi_hello *hello, uint8_t wire[TRMI_HELLO_BYTES]);
/* Reads it. Returns false if the length is wrong. Texts are then terminated and printable. */
bool trmi_hello_decode(const uint8_t *wire, size_t bytes, trmi_hello *hello);

#endif
