/* SPDX-License-Identifier: Apache-2.0 */
/* save/append.h: a file that grows by whole records, one write(2) each. */
#ifndef TRMI_SAVE_APPEND_H
#define TRMI_SAVE_APPEND_H

#include "base/os.h"
#include "save/file_out.h"

typedef struct trmi_append {
    const trmi_os *os;
    int fd;
    int64_t bytes; /* all whole records */
    char path[TRMI_PATH_BYTES];
} trmi_append;

/* Opens for appending at `keep_bytes`; what lies beyond is cut off. `exclusive`: must be new. */
trm_status trmi_append_open(trmi_append *file, const trmi_os *os, const char *path, bool exclusive,
                            int64_t keep_bytes, trm_error *err);
/* All of the record or nothing. */
trm_status trmi_append_record(trmi_append *file, const void *data, size_t bytes, trm_error *err);
trm_status trmi_append_flush(trmi_append *file, trm_error *err);
trm_status trmi_append_close(trmi_append *file, trm_error *err);

#endif
