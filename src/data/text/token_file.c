/* SPDX-License-Identifier: Apache-2.0 */
/* Files of token ids (contract in token_file.h): as nanoGPT writes them, ids alone, or as llm.c
 * does, after a header that has their number and size.
 *
 * The parser works on bytes in memory and decides the form by the first number. Numbers of a header
 * are compared with the size of the file before anything is taken. */
#include "data/text/token_file.h"

#include "trireme/data.h"

#include "base/arguments.h"
#include "base/format/endian.h"
#include "base/error.h"
#include "base/mapping.h"
#include "base/memory.h"
#include "base/os.h"

/* First numbers of llm.c's header: of files with 16-bit and with 32-bit ids, and their version. */
enum { MAGIC = 20240520, MAGIC_UINT32 = 20240801, VERSION = 1 };

/* Checks llm.c's header against the size of the file. */
static trm_status parse_header(const char *name, const uint8_t *data, size_t bytes,
                               trmi_token_file *out, trm_error *err) {
    if (bytes < TRMI_TOKEN_HEADER_BYTES) {
        return TRMI_FAIL(err, TRM_CORRUPT, "%s: %zu bytes, a header of %d expected", name, bytes,
                         TRMI_TOKEN_HEADER_BYTES);
    }
    uint32_t version = trmi_get32(data + 4), count = trmi_get32(data + 8);
    size_t expected = TRMI_TOKEN_HEADER_BYTES + (size_t)count * TRMI_TOKEN_BYTES;
    if (version != VERSION) {
        return TRMI_FAIL(err, TRM_CORRUPT, "%s: byte 4: version %u, %d expected", name, version,
                         VERSION);
    }
    if (count == 0 || count > INT32_MAX || bytes != expected) {
        return TRMI_FAIL(err, TRM_CORRUPT,
                         "%s: byte 8: %u tokens, so %zu bytes expected, the file has %zu", name,
                         count, expected, bytes);
    }
    *out = (trmi_token_file){TRMI_TOKEN_HEADER_BYTES, count, true};
    return TRM_OK;
}

/* Contract in token_file.h. Without llm.c's magic number a file is plain ids of 16 bits. */
trm_status trmi_token_file_parse(const char *name, const uint8_t *data, size_t bytes,
                                 trmi_token_file *out, trm_error *err) {
    uint32_t magic = bytes >= 4 ? trmi_get32(data) : 0;
    if (magic == MAGIC) {
        return parse_header(name, data, bytes, out, err);
    }
    if (magic == MAGIC_UINT32) {
        return TRMI_FAIL(err, TRM_UNSUPPORTED,
                         "%s: byte 0: llm.c's form with ids of 32 bits (magic %d); ids of 16 bits "
                         "(magic %d) expected",
                         name, MAGIC_UINT32, MAGIC);
    }
    if (bytes == 0 || bytes % TRMI_TOKEN_BYTES != 0) {
        return TRMI_FAIL(err, TRM_CORRUPT,
                         "%s: %zu bytes; token ids of %d bytes each, at least one, expected", name,
                         bytes, TRMI_TOKEN_BYTES);
    }
    *out = (trmi_token_file){0, (int64_t)(bytes / TRMI_TOKEN_BYTES), false};
    return TRM_OK;
}

/* Contract in trireme/data.h. After an error `tokens` has what it had before. */
trm_status trm_tokens_read(const char *path, trm_tokens *tokens, trm_error *err) {
    TRMI_NEED(err, path, tokens);
    trmi_mapping mapping;
    trmi_token_file file = {0};
    TRMI_TRY(trmi_mapping_open(path, &mapping, err));
    trm_status status = trmi_token_file_parse(path, mapping.data, mapping.bytes, &file, err);
    if (status == TRM_OK) {
        status = TRMI_GROW(err, tokens->ids, tokens->capacity, tokens->count + file.count,
                           "for the tokens of %s", path);
    }
    for (int64_t i = 0; i < file.count && status == TRM_OK; i++) {
        tokens->ids[tokens->count + i] =
            trmi_get16(mapping.data + file.offset + TRMI_TOKEN_BYTES * i);
    }
    status = trmi_mapping_check(&mapping, status, err);
    tokens->count += status == TRM_OK ? file.count : 0;
    trmi_mapping_close(&mapping);
    return status;
}

/* Contract in trireme/data.h. The file is nanoGPT's: ids alone. */
trm_status trm_tokens_write(const trm_tokens *tokens, const char *path, trm_error *err) {
    TRMI_NEED(err, tokens, path);
    uint8_t *data;
    TRMI_TRY(TRMI_NEW(err, data, TRMI_TOKEN_BYTES * tokens->count, "to write %s", path));
    for (int64_t i = 0; i < tokens->count; i++) {
        if (tokens->ids[i] < 0 || tokens->ids[i] > UINT16_MAX) {
            trmi_free(data);
            return TRMI_FAIL(err, TRM_INVALID,
                             "%s: token %lld: id %d does not fit 16 bits (0 to 65535)", path,
                             (long long)i, (int)tokens->ids[i]);
        }
        trmi_put16(data + TRMI_TOKEN_BYTES * i, (uint16_t)tokens->ids[i]);
    }
    trm_status status =
        trmi_os_replace_file(NULL, path, data, TRMI_TOKEN_BYTES * (size_t)tokens->count, err);
    trmi_free(data);
    return status;
}
