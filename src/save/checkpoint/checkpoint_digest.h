/* SPDX-License-Identifier: Apache-2.0 */
/* save/checkpoint/checkpoint_digest.h: the digest of a file in a checkpoint: its length, an
 * XXH3-128 hash of the whole (as `xxh128sum` prints it), and a CRC-32C of each block of 4 MiB,
 * which locates damage. */
#ifndef TRMI_SAVE_CHECKPOINT_DIGEST_H
#define TRMI_SAVE_CHECKPOINT_DIGEST_H

#include "trireme/base.h"

/* Bytes of a block with a CRC of its own; characters of a hash in hex, with the '\0'. */
enum { TRMI_DIGEST_BLOCK_BYTES = 4 << 20, TRMI_DIGEST_HEX = 33 };

/* A digest, complete or being computed. */
typedef struct trmi_digest {
    int64_t bytes;                       /* length of the file */
    char xxh3[TRMI_DIGEST_HEX];          /* 32 lower-case hex digits, set by finish */
    uint32_t *block_crc;                 /* [block_count] */
    int64_t block_count, block_capacity; /* length and capacity of `block_crc` */
    void *hash;                          /* XXH3 state while the digest is computed, else NULL */
    /* the block that is not full yet */
    uint32_t open_crc;
    int64_t open_bytes; /* bytes in that block so far */
} trmi_digest;

/* Begins a digest. trmi_digest_free frees it at any time. */
trm_status trmi_digest_start(trmi_digest *digest, trm_error *err);
/* Adds data.
 *   errors  NOMEM */
trm_status trmi_digest_update(trmi_digest *digest, const void *data, size_t bytes, trm_error *err);
/* Completes the digest. */
trm_status trmi_digest_finish(trmi_digest *digest, trm_error *err);
/* Frees the digest in any state. An empty one is allowed. */
void trmi_digest_free(trmi_digest *digest);

/* Writes the XXH3-128 of a block of memory as text. */
void trmi_digest_of(const void *data, size_t bytes, char text[TRMI_DIGEST_HEX]);

/* Reads the file and compares it with the digest. It uses read(2), not a mapping, so that a failing
 * disk is an error and not a signal. CORRUPT names the first damaged block and its offset, IO the
 * offset that cannot be read. */
trm_status trmi_digest_verify(const char *path, const trmi_digest *expected, trm_error *err);

#endif
