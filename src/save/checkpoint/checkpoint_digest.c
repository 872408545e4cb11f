/* SPDX-License-Identifier: Apache-2.0 */
/* Digests of files: computed while a file is written, verified block by block when it is read.
 *
 * A digest has two parts. A CRC-32C for each block finds where a file is damaged; XXH3-128 over the
 * whole file identifies its content. Both find damage, not forgery. */
#include "save/checkpoint/checkpoint_digest.h"

#include "base/checked.h"
#include "base/format/crc32c.h"
#include "base/error.h"
#include "base/hash/xxh3.h"
#include "base/memory.h"
#include "save/path.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

/* Writes a hash as 32 hex digits. */
static void to_text(XXH128_hash_t hash, char text[TRMI_DIGEST_HEX]) {
    snprintf(text, TRMI_DIGEST_HEX, "%016llx%016llx", (unsigned long long)hash.high64,
             (unsigned long long)hash.low64);
}

void trmi_digest_of(const void *data, size_t bytes, char text[TRMI_DIGEST_HEX]) {
    to_text(XXH3_128bits(data, bytes), text);
}

trm_status trmi_digest_start(trmi_digest *digest, trm_error *err) {
    *digest = (trmi_digest){0};
    digest->hash = trmi_alloc(sizeof(XXH3_state_t)); /* 64-byte aligned, as XXH3 requires */
    if (digest->hash == NULL) {
        return TRMI_NO_MEMORY(err, "for a checksum");
    }
    XXH3_128bits_reset(digest->hash);
    return TRM_OK;
}

/* Stores the CRC of a full block (or of the last one). */
static trm_status close_block(trmi_digest *digest, trm_error *err) {
    TRMI_TRY(TRMI_GROW(err, digest->block_crc, digest->block_capacity, digest->block_count + 1,
                       "for the checksums of %lld blocks", (long long)digest->block_count + 1));
    digest->block_crc[digest->block_count++] = digest->open_crc;
    digest->open_crc = 0;
    digest->open_bytes = 0;
    return TRM_OK;
}

/* Contract in checkpoint_digest.h. Pieces of any size may come: a block ends where its bytes are
 * full, not where a piece does. */
trm_status trmi_digest_update(trmi_digest *digest, const void *data, size_t bytes, trm_error *err) {
    const uint8_t *next = data;
    while (bytes > 0) {
        /* Up to the end of the block. */
        size_t room = (size_t)(TRMI_DIGEST_BLOCK_BYTES - digest->open_bytes);
        size_t take = bytes < room ? bytes : room;
        trmi_xxh3_update(digest->hash, next, take);
        digest->open_crc = trmi_crc32c(digest->open_crc, next, take);
        digest->open_bytes += (int64_t)take;
        digest->bytes += (int64_t)take;
        next += take;
        bytes -= take;
        if (digest->open_bytes == TRMI_DIGEST_BLOCK_BYTES) {
            TRMI_TRY(close_block(digest, err));
        }
    }
    return TRM_OK;
}

trm_status trmi_digest_finish(trmi_digest *digest, trm_error *err) {
    if (digest->open_bytes > 0) {
        TRMI_TRY(close_block(digest, err));
    }
    to_text(XXH3_128bits_digest(digest->hash), digest->xxh3);
    trmi_free(digest->hash);
    digest->hash = NULL;
    return TRM_OK;
}

void trmi_digest_free(trmi_digest *digest) {
    trmi_free(digest->block_crc);
    trmi_free(digest->hash);
    *digest = (trmi_digest){0};
}

/* Reads up to `bytes` from the file. Returns the number read, less only at the end of the file; -1
 * and errno on failure. */
static ssize_t read_block(int fd, uint8_t *buffer, size_t bytes) {
    size_t have = 0;
    while (have < bytes) {
        ssize_t got = read(fd, buffer + have, bytes - have);
        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got <= 0) {
            return got < 0 ? -1 : (ssize_t)have;
        }
        have += (size_t)got;
    }
    return (ssize_t)have;
}

/* Compares the file's blocks with their CRCs, and the whole with its hash. buffer:
 * TRMI_DIGEST_BLOCK_BYTES.
 *   errors  CORRUPT, IO */
static trm_status verify_blocks(int fd, const char *path, uint8_t *buffer,
                                const trmi_digest *expected, trm_error *err) {
    XXH3_state_t state;
    XXH3_128bits_reset(&state);
    int64_t offset = 0;
    for (int64_t block = 0; block < expected->block_count; block++) {
        /* The last block may be shorter. */
        int64_t want = trmi_min_i64(TRMI_DIGEST_BLOCK_BYTES, expected->bytes - offset);
        ssize_t got = read_block(fd, buffer, (size_t)want);
        if (got < 0) {
            return TRMI_FAIL_SYS(err, "%s: block %lld (offset %lld) cannot be read", path,
                                 (long long)block, (long long)offset);
        }
        /* Compute the block's own checksum, for the message. */
        uint32_t crc = trmi_crc32c(0, buffer, (size_t)got);
        if (got != want || crc != expected->block_crc[block]) {
            return TRMI_FAIL(err, TRM_CORRUPT,
                             "%s: block %lld (%lld bytes at offset %lld) is damaged: crc32c %08x, "
                             "%08x expected",
                             path, (long long)block, (long long)want, (long long)offset, crc,
                             expected->block_crc[block]);
        }
        trmi_xxh3_update(&state, buffer, (size_t)got);
        offset += got;
    }
    /* The whole file. */
    char text[TRMI_DIGEST_HEX];
    to_text(XXH3_128bits_digest(&state), text);
    if (strcmp(text, expected->xxh3) != 0) {
        return TRMI_FAIL(err, TRM_CORRUPT, "%s: XXH3 is %s, %s expected", path, text,
                         expected->xxh3);
    }
    return TRM_OK;
}

/* Contract in checkpoint_digest.h. A missing file is CORRUPT and not IO, because the caller then
 * tries an older checkpoint. */
trm_status trmi_digest_verify(const char *path, const trmi_digest *expected, trm_error *err) {
    /* With O_NONBLOCK opening a FIFO does not wait. */
    const char *shown = trmi_path_tail(path);
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) {
        return errno == ENOENT ? TRMI_FAIL(err, TRM_CORRUPT, "%s: missing, %lld bytes expected",
                                           shown, (long long)expected->bytes)
                               : TRMI_FAIL_SYS(err, "%s: cannot open", shown);
    }
    trm_status status = TRM_OK;
    uint8_t *buffer = NULL;
    struct stat info;
    /* Type and length, before anything is read. */
    if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
        status = TRMI_FAIL(err, TRM_CORRUPT, "%s: not a regular file", shown);
    } else if (info.st_size != expected->bytes) {
        status = TRMI_FAIL(err, TRM_CORRUPT, "%s: %lld bytes, %lld expected", shown,
                           (long long)info.st_size, (long long)expected->bytes);
    } else if ((buffer = trmi_alloc(TRMI_DIGEST_BLOCK_BYTES)) == NULL) {
        status = TRMI_NO_MEMORY(err, "to verify %s", shown);
    } else {
        status = verify_blocks(fd, shown, buffer, expected, err);
    }
    trmi_free(buffer);
    close(fd);
    return status;
}
