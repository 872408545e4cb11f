/* SPDX-License-Identifier: Apache-2.0 */
/* data/text/token_file.h: files of tokens, as bytes.
 *
 *   nanoGPT   ids as uint16, little-endian, nothing else
 *   llm.c     256 int32: 20240520, version 1, count, zeros; then as nanoGPT */
#ifndef TRMI_DATA_TOKEN_FILE_H
#define TRMI_DATA_TOKEN_FILE_H

#include "trireme/base.h"

/* Bytes of llm.c's header, and of a token. */
enum { TRMI_TOKEN_HEADER_BYTES = 1024, TRMI_TOKEN_BYTES = 2 };

/* Where the ids lie in a file. */
typedef struct trmi_token_file {
    int64_t offset; /* of the first id, in bytes */
    int64_t count;
    bool has_header;
} trmi_token_file;

/* Determines which of the two formats the file has and checks sizes; `name` is for messages.
 *   errors  CORRUPT (empty, an odd size, a header that does not fit), UNSUPPORTED (llm.c's ids of
 *           uint32) */
trm_status trmi_token_file_parse(const char *name, const uint8_t *data, size_t bytes,
                                 trmi_token_file *out, trm_error *err);

#endif
