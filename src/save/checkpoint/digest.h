/* SPDX-License-Identifier: Apache-2.0 */
/* save/checkpoint/digest.h: what a checkpoint remembers of a file: its length, one XXH3-128 of
 * everything (as `xxh128sum` prints it) and a CRC-32C of each 4 MiB block, so that damage can be
 * located. */
#ifndef TRMI_SAVE_DIGEST_H
#define TRMI_SAVE_DIGEST_H

#include "trireme/base.h"

enum { TRMI_DIGEST_BLOCK_BYTES = 4 << 20, TRMI_DIGEST_HEX = 33 };

typedef struct trmi_digest {
    int64_t bytes;
    char xxh3[TRMI_DIGEST_HEX]; /* 32 lower-case hex digits, filled by finish */
    uint32_t *block_crc;
    int64_t block_count, block_capacity;
    void *hash; /* XXH3 state, while running */
    uint32_t open_crc;
    int64_t open_bytes;
} trmi_digest;

trm_status trmi_digest_start(trmi_digest *digest, trm_error *err);
trm_status trmi_digest_update(trmi_digest *digest, const void *data, size_t bytes, trm_error *err);
trm_status trmi_digest_finish(trmi_digest *digest, trm_error *err);
void trmi_digest_free(trmi_digest *digest);

/* XXH3-128 of one block of memory, as text. */
void trmi_digest_of(const void *data, size_t bytes, char text[TRMI_DIGEST_HEX]);

/* Reads `path` (with read(2), so that a failing disk is an error and not a signal) and compares.
 * TRM_CORRUPT names the first damaged block and its offset, TRM_IO the offset that cannot be read.
 */
trm_status trmi_digest_verify(const char *path, const trmi_digest *expected, trm_error *err);

#endif
