/* SPDX-License-Identifier: Apache-2.0 */
/* save/checkpoint/manifest.h: manifest.json, the last file written into a checkpoint: what it holds
 * and the digest of every other file. It guards itself: its last line is the XXH3 of all before it.
 */
#ifndef TRMI_SAVE_MANIFEST_H
#define TRMI_SAVE_MANIFEST_H

#include "trireme/save.h"

#include "base/memory.h"
#include "save/checkpoint/digest.h"

enum {
    TRMI_MANIFEST_VERSION = 1,
    TRMI_MANIFEST_BYTES_MAX = 256 << 20,
    TRMI_MANIFEST_FILES_MAX = 100000
};
#define TRMI_MANIFEST_NAME "manifest.json"

typedef struct trmi_manifest_file {
    char *name; /* "model.safetensors" */
    trmi_digest digest;
} trmi_manifest_file;

typedef struct trmi_checkpoint_manifest {
    trm_checkpoint_info info; /* its strings are owned here */
    trmi_manifest_file *files;
    int64_t file_count;
} trmi_checkpoint_manifest;

/* The text of the manifest. `info->config_json` and `state_json` must be JSON objects. */
trm_status trmi_manifest_format(const trm_checkpoint_info *info, const trmi_manifest_file *files,
                                int64_t file_count, trmi_text *out, trm_error *err);
/* Checks the text completely. `path` is for messages. Free with trmi_manifest_free. */
trm_status trmi_manifest_parse(const char *text, size_t bytes, const char *path,
                               trmi_checkpoint_manifest *out, trm_error *err);
void trmi_manifest_free(trmi_checkpoint_manifest *manifest);

#endif
