/* SPDX-License-Identifier: Apache-2.0 */
/* ps/snapshot/snapshot_manifest.h: the names in a job's folder: manifests of complete snapshots,
 * which list the files of all servers, and the logs of pushes. */
#ifndef TRMI_PS_SNAPSHOT_MANIFEST_H
#define TRMI_PS_SNAPSHOT_MANIFEST_H

#include "trireme/base.h"

#include <jansson.h>

/* Largest number of a snapshot, and of a log: a server tries all numbers from the snapshot that it
 * has loaded to its newest log. */
enum { TRMI_SNAPSHOT_NUMBER_MAX = 99999999 };
/* The member "format" of a manifest. In format 1, of version 0.1, the names of files said "cut". */
enum { TRMI_SNAPSHOT_FORMAT = 2 };

/* A parsed manifest. */
typedef struct trmi_snapshot_manifest {
    json_t *root;             /* the file; owned */
    char path[400];           /* of the file, for errors */
    uint32_t snapshot;        /* number of the snapshot */
    uint32_t servers, shards; /* of the job; of each server */
    bool differential;        /* holds what changed since the snapshot before */
} trmi_snapshot_manifest;

/* Writes the path of the folder of a snapshot's files: "FOLDER/snapshot-000002". */
void trmi_snapshot_folder(const char *folder, uint32_t snapshot, char *path, size_t size);
/* Writes the path of the file of a shard in a complete snapshot. */
void trmi_snapshot_file_path(const char *folder, const trmi_snapshot_manifest *manifest,
                             uint32_t server, uint32_t shard, char *path, size_t size);
/* Writes the path of a snapshot's manifest. */
void trmi_manifest_path(const char *folder, uint32_t snapshot, char *path, size_t size);
/* Reads and checks a manifest.
 *   errors  IO, CORRUPT; UNSUPPORTED: another format
 *   owns    the caller: json_decref(out->root) */
trm_status trmi_manifest_read(const char *folder, uint32_t snapshot, trmi_snapshot_manifest *out,
                              trm_error *err);
/* Removes temporary files of manifests whose writer has died; those of living processes stay.
 * Called by the server that writes manifests, before it does. */
void trmi_manifest_tidy(const char *folder);
/* Sets *snapshot to the newest snapshot that has a manifest, 0: none.
 *   errors  IO; CORRUPT: a number above TRMI_SNAPSHOT_NUMBER_MAX */
trm_status trmi_manifest_newest(const char *folder, uint32_t *snapshot, trm_error *err);

/* The name of a shard's log: of the pushes after a snapshot, 0: from the beginning. */
typedef struct trmi_log_name {
    uint32_t server, servers, shard, shards, snapshot;
} trmi_log_name;

/* Writes the path of a log. */
void trmi_log_name_path(const char *folder, const trmi_log_name *log, char *path, size_t size);
/* Calls `use` on each log of the folder, in no order, until it fails. Files with other names are
 * left out.
 *   errors  IO, those of `use`; CORRUPT: a number above TRMI_SNAPSHOT_NUMBER_MAX; UNSUPPORTED: a log
 *           of version 0.1 */
trm_status trmi_logs_each(const char *folder,
                          trm_status (*use)(void *context, const trmi_log_name *log,
                                            const char *path, trm_error *err),
                          void *context, trm_error *err);

#endif
