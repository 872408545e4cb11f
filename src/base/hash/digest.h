/* SPDX-License-Identifier: Apache-2.0 */
/* base/hash/digest.h: SHA-256 and HMAC-SHA256 (FIPS 180-4, FIPS 198-1) by OpenSSL, the only place
 * of the library that makes OpenSSL's objects.
 *
 * OpenSSL frees its state in an exit handler by default. Threads of a communicator still check
 * frames while the process exits, and crashed in freed state. The first call here tells OpenSSL to
 * leave its state alone. Any thread may call these functions. */
#ifndef TRMI_BASE_DIGEST_H
#define TRMI_BASE_DIGEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct evp_md_ctx_st; /* OpenSSL's EVP_MD_CTX */

/* Computes the digest of data[bytes]. Returns false if OpenSSL fails; `out` is then zero. */
bool trmi_sha256(const void *data, size_t bytes, uint8_t out[32]);
/* Computes the code of data[bytes] with `key`. Returns false if OpenSSL fails; `out` is then
 * zero. */
bool trmi_hmac_sha256(const uint8_t key[32], const void *data, size_t bytes, uint8_t out[32]);
/* Begins a digest of several pieces: EVP_DigestUpdate, EVP_DigestFinal_ex, EVP_MD_CTX_free. Returns
 * NULL if OpenSSL fails. */
struct evp_md_ctx_st *trmi_sha256_begin(void);

#endif
