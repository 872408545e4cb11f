/* SPDX-License-Identifier: Apache-2.0 */
/* Both ends prove that they know the job's token, over nonces of both. */
#include "ps/server/server.h"

#include "base/error.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>

void trmi_ps_prove(const uint8_t token[32], const char *role, const uint8_t nonces[64],
                   uint8_t mac[32]) {
    uint8_t text[64 + 32] = {0};
    unsigned length = 32;
    strncpy((char *)text, role, 31);
    memcpy(text + 32, nonces, 64);
    HMAC(EVP_sha256(), token, 32, text, sizeof text, mac, &length);
}

trm_status trmi_ps_nonce(uint8_t nonce[32], trm_error *err) {
    return RAND_bytes(nonce, 32) == 1
               ? TRM_OK
               : TRMI_FAIL(err, TRM_INTERNAL, "the system gives no random bytes");
}

bool trmi_ps_same_mac(const uint8_t a[32], const uint8_t b[32]) {
    return CRYPTO_memcmp(a, b, 32) == 0;
}
