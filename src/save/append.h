/* SPDX-License-Identifier: Apache-2.0 */
/* save/append.h: a file that grows by whole records, each written with one write(2). Event files
 * and metrics use it: a reader of the growing file never sees half a record for long. */
#ifndef TRMI_SAVE_APPEND_H
#define TRMI_SAVE_APPEND_H

#include "base/os.h"
#include "save/file_out.h"

/* An open file. */
typedef struct trmi_append {
    const trmi_os *os;          /* the platform, for tests that inject failures */
    int fd;                     /* -1: closed */
    int64_t bytes;              /* length of the file, which consists of whole records */
    char path[TRMI_PATH_BYTES]; /* for messages */
} trmi_append;

/* Opens or creates `path` for appending and cuts it off at `keep_bytes`. With `exclusive` the file
 * must not exist. `os` NULL: the real platform.
 *   errors  INVALID (not a regular file), IO */
trm_status trmi_append_open(trmi_append *file, const trmi_os *os, const char *path, bool exclusive,
                            int64_t keep_bytes, trm_error *err);
/* Appends the record completely or not at all: after a short write the file is cut back. */
trm_status trmi_append_record(trmi_append *file, const void *data, size_t bytes, trm_error *err);
/* Flushes what was written to the device. */
trm_status trmi_append_flush(trmi_append *file, trm_error *err);
/* Flushes and closes. Does nothing on a closed file. */
trm_status trmi_append_close(trmi_append *file, trm_error *err);

#endif
