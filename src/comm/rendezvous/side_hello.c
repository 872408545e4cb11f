/* SPDX-License-Identifier: Apache-2.0 */
#include "comm/rendezvous/side_hello.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <string.h>

static const uint8_t hello_magic[8] = "TRIREME";
static const uint8_t challenge_magic[8] = "TRIRACK";

/* Hello: 0 magic, 8 version u16, 10 zeros, 12 rank, 16 size, 20 pid, 24 device, 28 zeros,
 * 32 digest, 64 key, 96 nonce, 128 host id, 160 host, 208 address, 256 zeros. */
void trmi_hello_encode(const trmi_hello *hello, uint8_t wire[TRMI_HELLO_BYTES]) {
    memset(wire, 0, TRMI_HELLO_BYTES);
    memcpy(wire, hello_magic, 8);
    wire[8] = (uint8_t)hello->version;
    wire[9] = (uint8_t)(hello->version >> 8);
    trmi_put32(wire + 12, (uint32_t)hello->rank);
    trmi_put32(wire + 16, (uint32_t)hello->size);
    trmi_put32(wire + 20, (uint32_t)hello->pid);
    trmi_put32(wire + 24, (uint32_t)hello->device);
    memcpy(wire + 32, hello->digest, 32);
    memcpy(wire + 64, hello->key, 32);
    memcpy(wire + 96, hello->nonce, 32);
    memcpy(wire + 128, hello->host_id, 32);
    memcpy(wire + 160, hello->host, TRMI_HOST_NAME_BYTES);
    memcpy(wire + 208, hello->address, TRMI_HOST_NAME_BYTES);
}

/* Text of a peer: terminated, printable. */
static void take_text(char *out, const uint8_t *wire) {
    memcpy(out, wire, TRMI_HOST_NAME_BYTES);
    out[TRMI_HOST_NAME_BYTES - 1] = '\0';
    for (char *c = out; *c != '\0'; c++) {
        *c = *c > ' ' && *c < 127 ? *c : '?';
    }
}

bool trmi_hello_decode(const uint8_t wire[TRMI_HELLO_BYTES], trmi_hello *hello) {
    memset(hello, 0, sizeof *hello);
    if (memcmp(wire, hello_magic, 8) != 0) {
        return false;
    }
    hello->version = (uint16_t)(wire[8] | wire[9] << 8);
    hello->rank = (int32_t)trmi_get32(wire + 12);
    hello->size = (int32_t)trmi_get32(wire + 16);
    hello->pid = (int32_t)trmi_get32(wire + 20);
    hello->device = (int32_t)trmi_get32(wire + 24);
    memcpy(hello->digest, wire + 32, 32);
    memcpy(hello->key, wire + 64, 32);
    memcpy(hello->nonce, wire + 96, 32);
    memcpy(hello->host_id, wire + 128, 32);
    take_text(hello->host, wire + 160);
    take_text(hello->address, wire + 208);
    return true;
}

void trmi_mac(const uint8_t key[32], const char *label, const void *a, size_t a_bytes,
              const void *b, size_t b_bytes, uint8_t out[32]) {
    uint8_t text[16 + TRMI_HELLO_BYTES + TRMI_CHALLENGE_BYTES];
    size_t used = strlen(label) + 1;
    unsigned length = 0;
    memset(out, 0, 32);
    if (used > 16 || a_bytes > TRMI_HELLO_BYTES || b_bytes > TRMI_CHALLENGE_BYTES) {
        return;
    }
    memcpy(text, label, used);
    memcpy(text + used, a, a_bytes);
    used += a_bytes;
    if (b_bytes > 0) {
        memcpy(text + used, b, b_bytes);
        used += b_bytes;
    }
    HMAC(EVP_sha256(), key, 32, text, used, out, &length);
}

/* Challenge: 0 magic, 8 version u16, 10 zeros, 16 nonce, 48 MAC. */
void trmi_challenge_make(const uint8_t token[32], const uint8_t hello[TRMI_HELLO_BYTES],
                         const uint8_t nonce[32], uint8_t wire[TRMI_CHALLENGE_BYTES]) {
    memset(wire, 0, TRMI_CHALLENGE_BYTES);
    memcpy(wire, challenge_magic, 8);
    wire[8] = TRMI_SIDE_VERSION;
    memcpy(wire + 16, nonce, 32);
    trmi_mac(token, "root", hello, TRMI_HELLO_BYTES, wire, 48, wire + 48);
}

bool trmi_challenge_check(const uint8_t token[32], const uint8_t hello[TRMI_HELLO_BYTES],
                          const uint8_t wire[TRMI_CHALLENGE_BYTES], uint16_t *version,
                          bool *known) {
    uint8_t mac[32];
    *known = memcmp(wire, challenge_magic, 8) == 0;
    *version = (uint16_t)(wire[8] | wire[9] << 8);
    trmi_mac(token, "root", hello, TRMI_HELLO_BYTES, wire, 48, mac);
    return *known && CRYPTO_memcmp(mac, wire + 48, 32) == 0;
}

void trmi_proof_make(const uint8_t token[32], const uint8_t hello[TRMI_HELLO_BYTES],
                     const uint8_t challenge[TRMI_CHALLENGE_BYTES], uint8_t proof[32]) {
    trmi_mac(token, "peer", hello, TRMI_HELLO_BYTES, challenge, TRMI_CHALLENGE_BYTES, proof);
}

bool trmi_proof_check(const uint8_t token[32], const uint8_t hello[TRMI_HELLO_BYTES],
                      const uint8_t challenge[TRMI_CHALLENGE_BYTES], const uint8_t proof[32]) {
    uint8_t mac[32];
    trmi_proof_make(token, hello, challenge, mac);
    return CRYPTO_memcmp(mac, proof, 32) == 0;
}

void trmi_link_key(trmi_link *link, bool root, bool keyed, const uint8_t token[32],
                   const uint8_t hello[TRMI_HELLO_BYTES],
                   const uint8_t challenge[TRMI_CHALLENGE_BYTES]) {
    uint8_t *to_peer = root ? link->send_key : link->recv_key;
    uint8_t *to_root = root ? link->recv_key : link->send_key;
    link->keyed = keyed;
    trmi_mac(token, "frames down", hello, TRMI_HELLO_BYTES, challenge, TRMI_CHALLENGE_BYTES,
             to_peer);
    trmi_mac(token, "frames up", hello, TRMI_HELLO_BYTES, challenge, TRMI_CHALLENGE_BYTES, to_root);
}
