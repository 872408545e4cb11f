/* SPDX-License-Identifier: Apache-2.0 */
/* comm/rendezvous/side_hello.h: the first bytes between two ranks, before any of them trusts the
 * other.
 *
 *   peer                                   rank 0
 *   hello (288 bytes) ------------------>  version ours? otherwise: challenge with its version, close
 *         <------------------ challenge (80 bytes: nonce, MAC "root" over hello and nonce)
 *   MAC right? it knows the token
 *   proof (32 bytes, MAC "peer" over hello and challenge) -->   right? it is one of us
 *
 * MACs are HMAC-SHA256 under the job's token (zeros where none is needed: unix sockets of the same
 * user, addresses of the same host). Labels differ per direction; nonces are fresh.
 */
#ifndef TRMI_COMM_SIDE_HELLO_H
#define TRMI_COMM_SIDE_HELLO_H

#include "comm/rendezvous/side_link.h"

enum {
    TRMI_SIDE_VERSION = 1,
    TRMI_HELLO_BYTES = 288,
    TRMI_CHALLENGE_BYTES = 80,
    TRMI_PROOF_BYTES = 32,
    TRMI_HOST_NAME_BYTES = 48
};

typedef struct trmi_hello {
    uint16_t version;
    int32_t rank; /* -1: to be assigned */
    int32_t size, pid, device;
    uint8_t digest[32]; /* of the cluster description */
    uint8_t key[32];    /* of the job */
    uint8_t nonce[32];
    uint8_t host_id[32];                /* the same for ranks that can share memory */
    char host[TRMI_HOST_NAME_BYTES];    /* name for messages */
    char address[TRMI_HOST_NAME_BYTES]; /* numeric address on which peers reach this rank */
} trmi_hello;

void trmi_hello_encode(const trmi_hello *hello, uint8_t wire[TRMI_HELLO_BYTES]);
/* False when the bytes are no hello of any version. Only `version` is valid when it is not ours. */
bool trmi_hello_decode(const uint8_t wire[TRMI_HELLO_BYTES], trmi_hello *hello);

/* Rank 0's answer, and whether the peer accepts it. *version is what rank 0 speaks.
 *   out   false: no challenge at all, or the MAC is not right (then *known is true) */
void trmi_challenge_make(const uint8_t token[32], const uint8_t hello[TRMI_HELLO_BYTES],
                         const uint8_t nonce[32], uint8_t wire[TRMI_CHALLENGE_BYTES]);
bool trmi_challenge_check(const uint8_t token[32], const uint8_t hello[TRMI_HELLO_BYTES],
                          const uint8_t wire[TRMI_CHALLENGE_BYTES], uint16_t *version, bool *known);
void trmi_proof_make(const uint8_t token[32], const uint8_t hello[TRMI_HELLO_BYTES],
                     const uint8_t challenge[TRMI_CHALLENGE_BYTES], uint8_t proof[32]);
bool trmi_proof_check(const uint8_t token[32], const uint8_t hello[TRMI_HELLO_BYTES],
                      const uint8_t challenge[TRMI_CHALLENGE_BYTES], const uint8_t proof[32]);
/* Keys of the frames that follow. */
void trmi_link_key(trmi_link *link, bool root, bool keyed, const uint8_t token[32],
                   const uint8_t hello[TRMI_HELLO_BYTES],
                   const uint8_t challenge[TRMI_CHALLENGE_BYTES]);
/* out = HMAC-SHA256(key, label, a, b). */
void trmi_mac(const uint8_t key[32], const char *label, const void *a, size_t a_bytes,
              const void *b, size_t b_bytes, uint8_t out[32]);

#endif
