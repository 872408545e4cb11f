/* SPDX-License-Identifier: Apache-2.0 */
/* base/net_proof.h: the messages of the proof, for the two ends of it (net_proof.c,
 * net_acceptor.c). */
#ifndef TRMI_BASE_NET_PROOF_H
#define TRMI_BASE_NET_PROOF_H

#include "base/net.h"

/* What both ends have said. */
typedef struct trmi_proof {
    uint8_t hello[TRMI_HELLO_HEAD + TRMI_HELLO_DETAIL_MAX];
    size_t hello_bytes;
    uint8_t challenge[TRMI_CHALLENGE_BYTES];
} trmi_proof;

trm_status trmi_net_hello(const trmi_credentials *mine, trmi_proof *proof, trm_error *err);
/* The acceptor has `have` bytes of a HELLO. NULL, and how many it must have: TRMI_HELLO_HEAD or
 * all; or why it is refused. */
const char *trmi_net_check_hello(const trmi_proof *proof, size_t have, const trmi_credentials *mine,
                                 size_t *wanted);
uint16_t trmi_net_hello_version(const trmi_proof *proof);
trm_status trmi_net_challenge(const trmi_credentials *mine, trmi_proof *proof, trm_error *err);
void trmi_net_answer(const trmi_credentials *mine, const trmi_proof *proof,
                     uint8_t out[TRMI_PROOF_BYTES]);
bool trmi_net_check_answer(const trmi_credentials *mine, const trmi_proof *proof,
                           const uint8_t found[TRMI_PROOF_BYTES]);
/* Both ends know the token. */
void trmi_net_begin_session(const trmi_credentials *mine, const trmi_proof *proof, int fd,
                            trmi_session *out);

#endif
