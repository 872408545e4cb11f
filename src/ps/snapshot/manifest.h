/* SPDX-License-Identifier: Apache-2.0 */
/* ps/snapshot/manifest.h: the list of a complete cut's files. */
#ifndef TRMI_PS_MANIFEST_H
#define TRMI_PS_MANIFEST_H

#include "trireme/base.h"

#include <jansson.h>

typedef struct trmi_snapshot_manifest {
    json_t *root;
    char path[400];
    uint32_t cut, servers, shards;
    bool differential;
} trmi_snapshot_manifest;

void trmi_manifest_path(const char *folder, uint32_t cut, char *path, size_t size);
/* errors  IO, CORRUPT   owns  caller: json_decref(out->root) */
trm_status trmi_manifest_read(const char *folder, uint32_t cut, trmi_snapshot_manifest *out,
                              trm_error *err);
/* Removes what is left of manifests that were being written when their server died: those of
 * processes that live here stay. By the server that writes manifests, before it does. */
void trmi_manifest_tidy(const char *folder);
/* The newest cut that has a manifest, 0 = none.   errors  IO */
trm_status trmi_manifest_newest(const char *folder, uint32_t *cut, trm_error *err);

#endif
