/* SPDX-License-Identifier: Apache-2.0 */
/* save/checkpoint/checkpoint_manifest.h: manifest.json, the last file that is written into a
 * checkpoint. It has the description of the checkpoint and the digest of every other file. Its own
 * last line is the XXH3 of all text before it. */
#ifndef TRMI_SAVE_CHECKPOINT_MANIFEST_H
#define TRMI_SAVE_CHECKPOINT_MANIFEST_H

#include "trireme/io.h"

#include "base/memory.h"
#include "save/checkpoint/checkpoint_digest.h"

enum {
    /* newest version that this program reads; limits of size and number of files */
    TRMI_MANIFEST_VERSION = 1,
    TRMI_MANIFEST_BYTES_MAX = 256 << 20,
    TRMI_MANIFEST_FILES_MAX = 100000
};
#define TRMI_MANIFEST_NAME "manifest.json"

/* One file of the checkpoint. */
typedef struct trmi_manifest_file {
    char *name; /* for instance "model.safetensors" */
    trmi_digest digest;
} trmi_manifest_file;

/* A parsed manifest. */
typedef struct trmi_checkpoint_manifest {
    trm_checkpoint_info info;  /* its texts belong to the manifest */
    trmi_manifest_file *files; /* [file_count] in the order of the manifest */
    int64_t file_count;
} trmi_checkpoint_manifest;

/* Writes the text of a manifest to `out`. info->config_json and state_json must be JSON objects
 * (NULL: {}).
 *   errors  INVALID, NOMEM */
trm_status trmi_manifest_format(const trm_checkpoint_info *info, const trmi_manifest_file *files,
                                int64_t file_count, trmi_text *out, trm_error *err);
/* Parses and checks the whole text. `path` is for messages. The caller frees *out with
 * trmi_manifest_free.
 *   errors  CORRUPT, UNSUPPORTED (a newer version), NOMEM */
trm_status trmi_manifest_parse(const char *text, size_t bytes, const char *path,
                               trmi_checkpoint_manifest *out, trm_error *err);
/* Frees texts, files and digests. An empty manifest is allowed. */
void trmi_manifest_free(trmi_checkpoint_manifest *manifest);

#endif
