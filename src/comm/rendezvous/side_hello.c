/* SPDX-License-Identifier: Apache-2.0 */
/* What a rank says of itself when it joins (side_hello.h), to and from bytes. A peer's bytes are
 * not trusted: lengths are checked, and texts are made printable before they reach a message. */
#include "comm/rendezvous/side_hello.h"

#include <string.h>

/* Offsets: 0 rank, 4 size, 8 pid, 12 device, 16 digest, 48 key, 80 host id, 112 host, 160
 * address. */
void trmi_hello_encode(const trmi_hello *hello, uint8_t wire[TRMI_HELLO_BYTES]) {
    trmi_put32(wire, (uint32_t)hello->rank);
    trmi_put32(wire + 4, (uint32_t)hello->size);
    trmi_put32(wire + 8, (uint32_t)hello->pid);
    trmi_put32(wire + 12, (uint32_t)hello->device);
    memcpy(wire + 16, hello->digest, 32);
    memcpy(wire + 48, hello->key, 32);
    memcpy(wire + 80, hello->host_id, 32);
    memcpy(wire + 112, hello->host, TRMI_HOST_NAME_BYTES);
    memcpy(wire + 160, hello->address, TRMI_HOST_NAME_BYTES);
}

/* Copies a peer's text: terminates it and replaces characters that are not printable. */
static void take_text(char *out, const uint8_t *wire) {
    memcpy(out, wire, TRMI_HOST_NAME_BYTES);
    out[TRMI_HOST_NAME_BYTES - 1] = '\0';
    for (char *c = out; *c != '\0'; c++) {
        *c = *c > ' ' && *c < 127 ? *c : '?';
    }
}

/* Contract in side_hello.h. Numbers are taken as they are; rank 0 checks them against the job. */
bool trmi_hello_decode(const uint8_t *wire, size_t bytes, trmi_hello *hello) {
    if (bytes != TRMI_HELLO_BYTES) {
        return false;
    }
    hello->rank = (int32_t)trmi_get32(wire);
    hello->size = (int32_t)trmi_get32(wire + 4);
    hello->pid = (int32_t)trmi_get32(wire + 8);
    hello->device = (int32_t)trmi_get32(wire + 12);
    memcpy(hello->digest, wire + 16, 32);
    memcpy(hello->key, wire + 48, 32);
    memcpy(hello->host_id, wire + 80, 32);
    take_text(hello->host, wire + 112);
    take_text(hello->address, wire + 160);
    return true;
}
