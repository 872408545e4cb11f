/* SPDX-License-Identifier: Apache-2.0 */
/* SHA-256 and HMAC by OpenSSL (digest.h says why its exit handler is left out). */
#include "base/hash/digest.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <pthread.h>
#include <string.h>

static pthread_once_t once = PTHREAD_ONCE_INIT;
/* Initialises OpenSSL without its exit handler; runs once, before any other call of OpenSSL. */
static void keep_state_at_exit(void) { OPENSSL_init_crypto(OPENSSL_INIT_NO_ATEXIT, NULL); }

bool trmi_sha256(const void *data, size_t bytes, uint8_t out[32]) {
    unsigned length = 0;
    pthread_once(&once, keep_state_at_exit);
    memset(out, 0, 32);
    return EVP_Digest(data, bytes, out, &length, EVP_sha256(), NULL) == 1;
}

bool trmi_hmac_sha256(const uint8_t key[32], const void *data, size_t bytes, uint8_t out[32]) {
    unsigned length = 0;
    pthread_once(&once, keep_state_at_exit);
    memset(out, 0, 32);
    return HMAC(EVP_sha256(), key, 32, data, bytes, out, &length) != NULL;
}

struct evp_md_ctx_st *trmi_sha256_begin(void) {
    pthread_once(&once, keep_state_at_exit);
    EVP_MD_CTX *context = EVP_MD_CTX_new();
    if (context != NULL && EVP_DigestInit_ex(context, EVP_sha256(), NULL) != 1) {
        EVP_MD_CTX_free(context);
        context = NULL;
    }
    return context;
}
