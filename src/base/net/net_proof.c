/* SPDX-License-Identifier: Apache-2.0 */
/* The proof of the job's token: the messages of both ends, and the dialogue of the connector
 * (trmi_net_prove_token; that of the acceptor is in net_acceptor.c). base/net/net.h has the wire
 * format and the reasons; the numbers below are its byte offsets:
 *
 *   HELLO, CHALLENGE    0 magic, 8 version, 10 service, 12 bytes of detail (HELLO), 16 nonce
 *   HELLO               48 detail
 *   CHALLENGE           48 HMAC of the acceptor
 *
 * Invariants: a field is checked as soon as it is there, and before its length is believed.
 * Each end proves that it knows the token before it sends anything else. Nonces are new for
 * each connection, and labels tell the codes of messages apart, so that no old message proves
 * anything. */
#include "base/net/net_proof.h"

#include "base/hash/digest.h"
#include "base/format/endian.h"
#include "base/error.h"

#include <openssl/crypto.h>
#include <string.h>
#include <sys/random.h>

/* Where the acceptor's code is in a CHALLENGE; it covers the bytes before. */
enum { MAC_AT = 48 };
/* the first 8 bytes of the two messages, with the zero at the end */
static const uint8_t hello_magic[8] = "TRIREME", challenge_magic[8] = "TRIRACK";

/* Contract in net.h. The label keeps the codes of different messages apart. */
void trmi_net_mac(const uint8_t key[32], const char *label, const void *a, size_t a_bytes,
                  const void *b, size_t b_bytes, uint8_t out[32]) {
    uint8_t text[16 + TRMI_HELLO_HEAD + TRMI_HELLO_DETAIL_MAX + TRMI_CHALLENGE_BYTES];
    size_t used = strlen(label) + 1;
    TRMI_ASSERT(used <= 16 && a_bytes <= TRMI_HELLO_HEAD + TRMI_HELLO_DETAIL_MAX &&
                b_bytes <= TRMI_CHALLENGE_BYTES);
    memcpy(text, label, used);
    if (a_bytes > 0) {
        memcpy(text + used, a, a_bytes);
        used += a_bytes;
    }
    if (b_bytes > 0) {
        memcpy(text + used, b, b_bytes);
        used += b_bytes;
    }
    (void)trmi_hmac_sha256(key, text, used, out);
}

trm_status trmi_net_random(void *out, size_t bytes, trm_error *err) {
    return getrandom(out, bytes, 0) == (ssize_t)bytes
               ? TRM_OK
               : TRMI_FAIL_SYS(err, "the system gives no %zu random bytes", bytes);
}

/* Contract in net_proof.h. The nonce is new for each connection, so that an old dialogue cannot be
 * replayed. */
trm_status trmi_net_hello(const trmi_credentials *mine, trmi_proof *proof, trm_error *err) {
    TRMI_ASSERT(mine->detail_bytes <= TRMI_HELLO_DETAIL_MAX);
    memset(proof, 0, sizeof *proof);
    memcpy(proof->hello, hello_magic, 8);
    trmi_put16(proof->hello + 8, mine->version);
    trmi_put16(proof->hello + 10, mine->service);
    trmi_put16(proof->hello + 12, (uint16_t)mine->detail_bytes);
    proof->hello_bytes = TRMI_HELLO_HEAD + mine->detail_bytes;
    if (mine->detail_bytes > 0) {
        memcpy(proof->hello + TRMI_HELLO_HEAD, mine->detail, mine->detail_bytes);
    }
    return trmi_net_random(proof->hello + 16, 32, err);
}

/* Contract in net_proof.h. Bytes from an unknown process: each field is checked as soon as it is
 * there, and before its length is believed. */
const char *trmi_net_check_hello(const trmi_proof *proof, size_t have, const trmi_credentials *mine,
                                 size_t *wanted) {
    const uint8_t *h = proof->hello;
    *wanted = TRMI_HELLO_HEAD;
    if (memcmp(h, hello_magic, have < 8 ? have : 8) != 0) {
        return "it does not speak this protocol";
    }
    if (have < TRMI_HELLO_HEAD) {
        return NULL;
    }
    size_t detail = (size_t)trmi_get16(h + 12);
    if (trmi_get16(h + 10) != mine->service) {
        return "it wants another service";
    }
    if (detail > TRMI_HELLO_DETAIL_MAX || trmi_get16(h + 14) != 0) {
        return "its first message is too long";
    }
    *wanted = TRMI_HELLO_HEAD + detail;
    return NULL;
}

uint16_t trmi_net_hello_version(const trmi_proof *proof) { return trmi_get16(proof->hello + 8); }

/* Computes the code, under `label`, of the HELLO and the first `challenge_bytes` of the
 * CHALLENGE. */
static void compute_mac(const trmi_credentials *mine, const trmi_proof *proof,
                        size_t challenge_bytes, const char *label, uint8_t out[32]) {
    trmi_net_mac(mine->token, label, proof->hello, proof->hello_bytes, proof->challenge,
                 challenge_bytes, out);
}

trm_status trmi_net_challenge(const trmi_credentials *mine, trmi_proof *proof, trm_error *err) {
    uint8_t *c = proof->challenge;
    memset(c, 0, TRMI_CHALLENGE_BYTES);
    memcpy(c, challenge_magic, 8);
    trmi_put16(c + 8, mine->version);
    trmi_put16(c + 10, mine->service);
    TRMI_TRY(trmi_net_random(c + 16, 32, err));
    compute_mac(mine, proof, MAC_AT, "acceptor", c + MAC_AT);
    return TRM_OK;
}

/* Computes the PROOF of a connector. */
static void compute_answer(const trmi_credentials *mine, const trmi_proof *proof,
                           uint8_t out[TRMI_PROOF_BYTES]) {
    compute_mac(mine, proof, TRMI_CHALLENGE_BYTES, "connector", out);
}

bool trmi_net_check_answer(const trmi_credentials *mine, const trmi_proof *proof,
                           const uint8_t found[TRMI_PROOF_BYTES]) {
    uint8_t expected[TRMI_PROOF_BYTES];
    compute_answer(mine, proof, expected);
    return CRYPTO_memcmp(expected, found, TRMI_PROOF_BYTES) == 0;
}

/* Contract in net_proof.h. Each direction has a key of its own, derived from the whole dialogue. */
void trmi_net_begin_session(const trmi_credentials *mine, const trmi_proof *proof, int fd,
                            trmi_session *out) {
    memset(out, 0, sizeof *out);
    out->fd = fd;
    out->is_local = trmi_net_peer(fd, out->peer);
    out->detail_bytes = proof->hello_bytes - TRMI_HELLO_HEAD;
    memcpy(out->detail, proof->hello + TRMI_HELLO_HEAD, out->detail_bytes);
    compute_mac(mine, proof, TRMI_CHALLENGE_BYTES, "frames up", out->up_key);
    compute_mac(mine, proof, TRMI_CHALLENGE_BYTES, "frames down", out->down_key);
}

/* Checks a CHALLENGE.
 *   errors  PEER (not this protocol), UNSUPPORTED (another version), INVALID (another token) */
static trm_status check_challenge(const trmi_credentials *mine, const trmi_proof *proof,
                                  const char *peer, trm_error *err) {
    uint8_t mac[32];
    const uint8_t *c = proof->challenge;
    if (memcmp(c, challenge_magic, 8) != 0 || trmi_get16(c + 10) != mine->service) {
        return TRMI_FAIL(err, TRM_PEER,
                         "%s does not speak this protocol: another program listens there", peer);
    }
    if (trmi_get16(c + 8) != mine->version) {
        return TRMI_FAIL(err, TRM_UNSUPPORTED,
                         "%s speaks protocol version %u, this process version %u; install the same "
                         "trireme everywhere",
                         peer, trmi_get16(c + 8), mine->version);
    }
    compute_mac(mine, proof, MAC_AT, "acceptor", mac);
    return CRYPTO_memcmp(mac, c + MAC_AT, sizeof mac) == 0
               ? TRM_OK
               : TRMI_FAIL(err, TRM_INVALID, "%s does not know this job's token: the tokens differ",
                           peer);
}

/* Contract in net.h. HELLO, CHALLENGE, PROOF: both ends prove that they know the token before
 * either sends anything else. */
trm_status trmi_net_prove_token(int fd, const trmi_credentials *mine,
                                const trmi_wait_limit *patience, trmi_session *out,
                                trm_error *err) {
    trmi_proof proof;
    uint8_t answer[TRMI_PROOF_BYTES];
    char peer[TRMI_NET_NAME_BYTES];
    trmi_net_peer(fd, peer);
    TRMI_TRY(trmi_net_hello(mine, &proof, err));
    trm_status status = trmi_net_send(fd, proof.hello, proof.hello_bytes, patience, err);
    if (status == TRM_OK) {
        status = trmi_net_receive(fd, proof.challenge, TRMI_CHALLENGE_BYTES, patience, err);
    }
    if (status == TRM_OK) {
        TRMI_TRY(check_challenge(mine, &proof, peer, err));
        compute_answer(mine, &proof, answer);
        status = trmi_net_send(fd, answer, sizeof answer, patience, err);
    }
    if (status == TRM_TIMEOUT || status == TRM_PEER) {
        return TRMI_FAIL(err, TRM_PEER, "%s does not answer as a process of this job would", peer);
    }
    TRMI_TRY(status);
    trmi_net_begin_session(mine, &proof, fd, out);
    return TRM_OK;
}
