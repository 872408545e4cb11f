/* SPDX-License-Identifier: Apache-2.0 */
/* Writes and reads the frames of TFRecord and event files (base/format/tfrecord.h). Lengths and
 * checksums are checked before data is returned. */
#include "base/format/tfrecord.h"

#include "base/format/crc32c.h"
#include "base/format/endian.h"
#include "base/error.h"

/* Returns the CRC-32C of some bytes, masked as the format requires. */
static uint32_t compute_masked_crc(const void *data, size_t bytes) {
    return trmi_crc32c_mask(trmi_crc32c(0, data, bytes));
}

void trmi_tfrecord_append(trmi_text *out, const void *data, size_t bytes) {
    uint8_t head[12], tail[4]; /* length and its checksum; checksum of the data */
    trmi_put64(head, bytes);
    trmi_put32(head + 8, compute_masked_crc(head, 8));
    trmi_put32(tail, compute_masked_crc(data, bytes));
    trmi_text_append(out, (const char *)head, sizeof head);
    trmi_text_append(out, data, bytes);
    trmi_text_append(out, (const char *)tail, sizeof tail);
}

bool trmi_tfrecord_starts(const uint8_t *file, size_t file_bytes) {
    return file_bytes >= TRMI_TFRECORD_OVERHEAD &&
           trmi_get32(file + 8) == compute_masked_crc(file, 8);
}

/* Contract in tfrecord.h. A record is: length (8 bytes, little endian), masked CRC-32C of the
 * length, data, masked CRC-32C of the data (TensorFlow's record_writer.cc). */
trm_status trmi_tfrecord_next(trmi_tfrecord_reader *reader, const uint8_t **data, size_t *bytes,
                              trm_error *err) {
    const char *name = reader->name;
    const long long number = (long long)reader->number;
    size_t at = reader->offset, left = reader->bytes - at;
    const uint8_t *head = reader->file + at, *start = head + 12;
    if (left == 0) {
        return TRM_END;
    }
    if (left < TRMI_TFRECORD_OVERHEAD) {
        return TRMI_FAIL(err, TRM_CORRUPT,
                         "%s: record %lld at offset %zu: %zu bytes are left, 16 at least expected "
                         "(cut off?)",
                         name, number, at, left);
    }
    /* A head has the checksum of the length, the length, then the checksum of the data. */
    uint32_t expected = compute_masked_crc(head, 8), crc = trmi_get32(head + 8);
    if (crc != expected) {
        return TRMI_FAIL(err, TRM_CORRUPT,
                         "%s: record %lld at offset %zu: the checksum of its length is %08x, %08x "
                         "expected; no TFRecord file, or damaged",
                         name, number, at, crc, expected);
    }
    uint64_t length = trmi_get64(head);
    if (length > left - TRMI_TFRECORD_OVERHEAD) {
        return TRMI_FAIL(err, TRM_CORRUPT,
                         "%s: record %lld at offset %zu: %llu bytes long, %zu are left (cut off?)",
                         name, number, at, (unsigned long long)length,
                         left - TRMI_TFRECORD_OVERHEAD);
    }
    if (!reader->data_unchecked) {
        expected = compute_masked_crc(start, (size_t)length);
        crc = trmi_get32(start + length);
        if (crc != expected) {
            return TRMI_FAIL(err, TRM_CORRUPT,
                             "%s: record %lld at offset %zu: the checksum of its data is %08x, "
                             "%08x expected",
                             name, number, at, crc, expected);
        }
    }
    *data = start;
    *bytes = (size_t)length;
    reader->offset = at + TRMI_TFRECORD_OVERHEAD + (size_t)length;
    reader->number++;
    return TRM_OK;
}
