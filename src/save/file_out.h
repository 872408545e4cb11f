/* SPDX-License-Identifier: Apache-2.0 */
/* save/file_out.h: a file that is written from front to back and is durable once closed. Optionally
 * it has a temporary name until then, and optionally its digest is computed while it is written. */
#ifndef TRMI_SAVE_FILE_OUT_H
#define TRMI_SAVE_FILE_OUT_H

#include "base/os.h"
#include "save/checkpoint/checkpoint_digest.h"
#include "save/path.h"

/* An open file. */
typedef struct trmi_file_out {
    const trmi_os *os;          /* the platform, for tests that inject failures */
    int fd;                     /* -1: not open */
    int64_t bytes;              /* written so far, including those in the buffer */
    trmi_digest *digest;        /* NULL: no digest */
    uint8_t *buffer;            /* collects small pieces */
    size_t used;                /* bytes in `buffer` */
    bool replaces;              /* `path` is temporary and is renamed to `final_path` by close */
    char path[TRMI_PATH_BYTES]; /* of the file while it is written */
    char final_path[TRMI_PATH_BYTES]; /* used if `replaces` */
} trmi_file_out;

/* Creates `path`, which must not exist. `digest`, if not NULL, must be started; close finishes it.
 * `os` NULL: the real platform. */
trm_status trmi_file_out_open(trmi_file_out *out, const trmi_os *os, const char *path,
                              trmi_digest *digest, trm_error *err);
/* Opens under a temporary name that close renames to `path`, replacing an existing file. */
trm_status trmi_file_out_open_replacing(trmi_file_out *out, const trmi_os *os, const char *path,
                                        trm_error *err);
/* Appends data; the caller may change them afterwards. */
trm_status trmi_file_out_write(trmi_file_out *out, const void *data, size_t bytes, trm_error *err);
/* Appends `bytes` zeros. */
trm_status trmi_file_out_zeros(trmi_file_out *out, size_t bytes, trm_error *err);
/* Writes the rest, flushes the file to the device, closes and renames it. On failure the file is
 * removed. */
trm_status trmi_file_out_close(trmi_file_out *out, trm_error *err);
/* Closes and removes the unfinished file. Does nothing after close. */
void trmi_file_out_abort(trmi_file_out *out);

#endif
