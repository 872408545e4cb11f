/* SPDX-License-Identifier: Apache-2.0 */
/* save/file_out.h: a file written front to back, durable when closed; optionally under a temporary
 * name until then, and optionally with its digest taken on the way. */
#ifndef TRMI_SAVE_FILE_OUT_H
#define TRMI_SAVE_FILE_OUT_H

#include "base/os.h"
#include "save/checkpoint/digest.h"
#include "save/path.h"

typedef struct trmi_file_out {
    const trmi_os *os;
    int fd;
    int64_t bytes;       /* taken so far */
    trmi_digest *digest; /* NULL: none */
    uint8_t *buffer;     /* small pieces gather here */
    size_t used;
    bool replaces; /* `path` is temporary, `final_path` is meant */
    char path[TRMI_PATH_BYTES];
    char final_path[TRMI_PATH_BYTES];
} trmi_file_out;

/* Creates `path`, which must not exist. `digest`, if any, must be started; close finishes it. */
trm_status trmi_file_out_open(trmi_file_out *out, const trmi_os *os, const char *path,
                              trmi_digest *digest, trm_error *err);
/* As open, under a temporary name that close renames over `path`. */
trm_status trmi_file_out_open_replacing(trmi_file_out *out, const trmi_os *os, const char *path,
                                        trm_error *err);
trm_status trmi_file_out_write(trmi_file_out *out, const void *data, size_t bytes, trm_error *err);
trm_status trmi_file_out_zeros(trmi_file_out *out, size_t bytes, trm_error *err);
/* Everything written, flushed to the device, closed and renamed, or the file is removed. */
trm_status trmi_file_out_close(trmi_file_out *out, trm_error *err);
/* Closes and removes the unfinished file. Fine after close. */
void trmi_file_out_abort(trmi_file_out *out);

#endif
