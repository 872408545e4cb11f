/* SPDX-License-Identifier: Apache-2.0 */
/* base/net/net_proof.h: builds and checks the messages of the token proof, for its two ends
 * (net_proof.c, net_acceptor.c). The format is in base/net/net.h. */
#ifndef TRMI_BASE_NET_PROOF_H
#define TRMI_BASE_NET_PROOF_H

#include "base/net/net.h"

/* The messages of one proof so far. */
typedef struct trmi_proof {
    uint8_t hello[TRMI_HELLO_HEAD + TRMI_HELLO_DETAIL_MAX];
    size_t hello_bytes;
    uint8_t challenge[TRMI_CHALLENGE_BYTES];
} trmi_proof;

/* Builds the HELLO of a connector.   errors  IO (no random bytes) */
trm_status trmi_net_hello(const trmi_credentials *mine, trmi_proof *proof, trm_error *err);
/* Checks the first `have` bytes of a HELLO. Returns why the connection is refused; or NULL, with
 * the bytes that are needed in *wanted: TRMI_HELLO_HEAD or the whole message. */
const char *trmi_net_check_hello(const trmi_proof *proof, size_t have, const trmi_credentials *mine,
                                 size_t *wanted);
/* Returns the version in a HELLO. */
uint16_t trmi_net_hello_version(const trmi_proof *proof);
/* Builds the CHALLENGE of an acceptor.   errors  IO (no random bytes) */
trm_status trmi_net_challenge(const trmi_credentials *mine, trmi_proof *proof, trm_error *err);
/* Returns whether a PROOF is right; in constant time. */
bool trmi_net_check_answer(const trmi_credentials *mine, const trmi_proof *proof,
                           const uint8_t found[TRMI_PROOF_BYTES]);
/* Fills in the session after a successful proof: peer, detail, keys. */
void trmi_net_begin_session(const trmi_credentials *mine, const trmi_proof *proof, int fd,
                            trmi_session *out);

#endif
