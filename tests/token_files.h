/* SPDX-License-Identifier: Apache-2.0 */
/* Files of token ids for tests of datasets. */
#ifndef TRMI_TESTS_TOKEN_FILES_H
#define TRMI_TESTS_TOKEN_FILES_H

#include "folder.h"

#include "base/format/endian.h"

/* Writes a file in the folder of the test with the ids first, first + 1, ...: in the form of
 * nanoGPT, or with llm.c's header. */
static inline void write_ids(const char *name, bool header, int first, int count) {
    size_t begin = header ? 1024 : 0, bytes = begin + 2 * (size_t)count;
    uint8_t *data = calloc(bytes, 1);
    if (header) {
        trmi_put32(data, 20240520);
        trmi_put32(data + 4, 1);
        trmi_put32(data + 8, (uint32_t)count);
    }
    for (int i = 0; i < count; i++) {
        trmi_put16(data + begin + 2 * (size_t)i, (uint16_t)(first + i));
    }
    write_in_folder(name, data, bytes);
    free(data);
}

#endif
