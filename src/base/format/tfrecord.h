/* SPDX-License-Identifier: Apache-2.0 */
/* base/format/tfrecord.h: the framing of TFRecord and event files:
 *     u64 length | masked crc32c of these 8 bytes | data | masked crc32c of the data */
#ifndef TRMI_BASE_TFRECORD_H
#define TRMI_BASE_TFRECORD_H

#include "base/memory.h"

/* Bytes of a record beside its data. */
enum { TRMI_TFRECORD_OVERHEAD = 16 };

/* A file in memory and the offset of its next record. */
typedef struct trmi_tfrecord_reader {
    const char *name; /* for messages */
    const uint8_t *file;
    size_t bytes, offset;
    int64_t number;      /* of the record at `offset` */
    bool data_unchecked; /* only frames are checked, which reads 12 bytes of a record */
} trmi_tfrecord_reader;

/* Appends a record with its frame. */
void trmi_tfrecord_append(trmi_text *out, const void *data, size_t bytes);
/* Returns the record at the reader's offset and advances the reader.
 *   errors  END; CORRUPT with record number, offset and fault */
trm_status trmi_tfrecord_next(trmi_tfrecord_reader *reader, const uint8_t **data, size_t *bytes,
                              trm_error *err);
/* Returns whether the first 12 bytes frame a record, by their checksum. */
bool trmi_tfrecord_starts(const uint8_t *file, size_t file_bytes);

#endif
