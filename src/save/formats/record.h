/* SPDX-License-Identifier: Apache-2.0 */
/* save/formats/record.h: the framing of TFRecord and event files:
 *     u64 length | masked crc32c of these 8 bytes | data | masked crc32c of the data */
#ifndef TRMI_SAVE_RECORD_H
#define TRMI_SAVE_RECORD_H

#include "base/memory.h"

enum { TRMI_RECORD_OVERHEAD = 16 };

/* Appends the framed record. */
void trmi_record_append(trmi_text *out, const void *data, size_t bytes);

/* The record at *offset of a file in memory; moves *offset behind it.
 *   errors  TRM_END at the end; TRM_CORRUPT with record number, offset and what is wrong there */
trm_status trmi_record_next(const uint8_t *file, size_t file_bytes, const char *path,
                            int64_t number, size_t *offset, const uint8_t **data, size_t *bytes,
                            trm_error *err);
/* Do the first 12 bytes frame a record? (They are a strong signature.) */
bool trmi_record_starts(const uint8_t *file, size_t file_bytes);

#endif
