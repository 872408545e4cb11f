/* SPDX-License-Identifier: Apache-2.0 */
#include "save/formats/record.h"

#include "base/crc32c.h"
#include "base/error.h"
#include "save/path.h"

#include <string.h>

static uint32_t masked(const void *data, size_t bytes) {
    return trmi_crc32c_mask(trmi_crc32c(0, data, bytes));
}

void trmi_record_append(trmi_text *out, const void *data, size_t bytes) {
    uint64_t length = bytes;
    uint32_t length_crc = masked(&length, sizeof length), data_crc = masked(data, bytes);
    trmi_text_append(out, (const char *)&length, sizeof length);
    trmi_text_append(out, (const char *)&length_crc, sizeof length_crc);
    if (bytes > 0) {
        trmi_text_append(out, data, bytes);
    }
    trmi_text_append(out, (const char *)&data_crc, sizeof data_crc);
}

bool trmi_record_starts(const uint8_t *file, size_t file_bytes) {
    uint32_t crc;
    if (file_bytes < TRMI_RECORD_OVERHEAD) {
        return false;
    }
    memcpy(&crc, file + 8, sizeof crc);
    return crc == masked(file, 8);
}

trm_status trmi_record_next(const uint8_t *file, size_t file_bytes, const char *path,
                            int64_t number, size_t *offset, const uint8_t **data, size_t *bytes,
                            trm_error *err) {
    const char *shown = trmi_path_tail(path);
    size_t at = *offset, left = file_bytes - at;
    uint64_t length;
    uint32_t crc;
    if (left == 0) {
        return TRM_END;
    }
    if (left < TRMI_RECORD_OVERHEAD) {
        return TRMI_FAIL(err, TRM_CORRUPT,
                         "%s: record %lld at offset %zu: %zu bytes are left, 16 at least expected "
                         "(cut off?)",
                         shown, (long long)number, at, left);
    }
    memcpy(&length, file + at, sizeof length);
    memcpy(&crc, file + at + 8, sizeof crc);
    if (crc != masked(file + at, 8)) {
        return TRMI_FAIL(err, TRM_CORRUPT,
                         "%s: record %lld at offset %zu: the checksum of its length is %08x, %08x "
                         "expected",
                         shown, (long long)number, at, crc, masked(file + at, 8));
    }
    if (length > left - TRMI_RECORD_OVERHEAD) {
        return TRMI_FAIL(err, TRM_CORRUPT,
                         "%s: record %lld at offset %zu: %llu bytes long, %zu are left (cut off?)",
                         shown, (long long)number, at, (unsigned long long)length,
                         left - TRMI_RECORD_OVERHEAD);
    }
    const uint8_t *start = file + at + 12;
    memcpy(&crc, start + length, sizeof crc);
    uint32_t expected = masked(start, (size_t)length);
    if (crc != expected) {
        return TRMI_FAIL(err, TRM_CORRUPT,
                         "%s: record %lld at offset %zu: the checksum of its data is %08x, %08x "
                         "expected",
                         shown, (long long)number, at, crc, expected);
    }
    *data = start;
    *bytes = (size_t)length;
    *offset = at + TRMI_RECORD_OVERHEAD + (size_t)length;
    return TRM_OK;
}
