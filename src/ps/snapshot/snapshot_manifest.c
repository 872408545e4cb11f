/* SPDX-License-Identifier: Apache-2.0 */
/* Finds and reads the manifests of a folder, and finds its logs (contracts in snapshot_manifest.h);
 * server_restore.c writes them.
 *
 * A manifest is written last, so a snapshot without one is not complete and does not exist here.
 * The folder may be written to meanwhile: names that are not the servers' are left alone, and
 * temporary files of living processes stay. */
#include "ps/snapshot/snapshot_manifest.h"

#include "base/error.h"
#include "base/memory.h"
#include "base/os.h"
#include "ps/wire/codec.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

/* Bytes of a manifest that are read, at most. */
enum { MANIFEST_BYTES_MAX = 64 << 20 };

void trmi_snapshot_folder(const char *folder, uint32_t snapshot, char *path, size_t size) {
    snprintf(path, size, "%s/snapshot-%06u", folder, snapshot);
}

void trmi_snapshot_file_path(const char *folder, const trmi_snapshot_manifest *manifest,
                             uint32_t server, uint32_t shard, char *path, size_t size) {
    snprintf(path, size, "%s/snapshot-%06u/server-%u-shard-%u.%s", folder, manifest->snapshot,
             server, shard, manifest->differential ? "delta" : "full");
}

void trmi_manifest_path(const char *folder, uint32_t snapshot, char *path, size_t size) {
    snprintf(path, size, "%s/MANIFEST-%06u.json", folder, snapshot);
}

/* Contract in snapshot_manifest.h. The name has the writer's process id; only files of processes
 * that have ended are removed. */
void trmi_manifest_tidy(const char *folder) {
    DIR *dir = opendir(folder);
    for (struct dirent *entry; dir != NULL && (entry = readdir(dir)) != NULL;) {
        char path[400];
        unsigned snapshot;
        long writer = 0;
        int length = 0;
        bool half =
            sscanf(entry->d_name, "MANIFEST-%u.json.tmp.%ld%n", &snapshot, &writer, &length) == 2 &&
            entry->d_name[length] == '\0' && writer > 0;
        if (half && kill((pid_t)writer, 0) != 0 && errno == ESRCH) {
            snprintf(path, sizeof path, "%s/%.100s", folder, entry->d_name);
            unlink(path);
        }
    }
    if (dir != NULL) {
        closedir(dir);
    }
}

/* Checks the number in a file's name.   errors  CORRUPT */
static trm_status check_number(const char *folder, const char *name, uint64_t number,
                               trm_error *err) {
    return number <= TRMI_SNAPSHOT_NUMBER_MAX
               ? TRM_OK
               : TRMI_FAIL(err, TRM_CORRUPT,
                           "%s: %.100s has the number of no snapshot (at most %d expected): move "
                           "the file away",
                           folder, name, TRMI_SNAPSHOT_NUMBER_MAX);
}

/* Contract in snapshot_manifest.h. 0: there is none. */
trm_status trmi_manifest_newest(const char *folder, uint32_t *snapshot, trm_error *err) {
    DIR *dir = opendir(folder);
    if (dir == NULL) {
        return TRMI_FAIL_SYS(err, "%s: cannot list", folder);
    }
    trm_status status = TRM_OK;
    uint64_t newest = 0, number;
    for (struct dirent *entry; status == TRM_OK && (entry = readdir(dir)) != NULL;) {
        /* compare the whole name: a temporary file has a longer one */
        int length = 0;
        if (sscanf(entry->d_name, "MANIFEST-%" SCNu64 ".json%n", &number, &length) == 1 &&
            length > 0 && entry->d_name[length] == '\0') {
            status = check_number(folder, entry->d_name, number, err);
            newest = number > newest ? number : newest;
        }
    }
    closedir(dir);
    *snapshot = (uint32_t)newest;
    return status;
}

/* Contract in snapshot_manifest.h. A manifest is valid only with one file for each shard. */
trm_status trmi_manifest_read(const char *folder, uint32_t snapshot, trmi_snapshot_manifest *out,
                              trm_error *err) {
    uint8_t *text;
    size_t bytes;
    *out = (trmi_snapshot_manifest){.snapshot = snapshot};
    trmi_manifest_path(folder, snapshot, out->path, sizeof out->path);
    TRMI_TRY(trmi_os_read_file(out->path, MANIFEST_BYTES_MAX, &text, &bytes, err));
    json_error_t why;
    out->root = json_loadb((const char *)text, bytes, JSON_REJECT_DUPLICATES, &why);
    trmi_free(text);
    json_int_t number = 0, servers = 0, shards = 0, format = 0;
    int differential = 0;
    json_t *files = NULL;
    if (json_unpack(out->root, "{s:I}", "format", &format) == 0 && format != TRMI_SNAPSHOT_FORMAT) {
        json_decref(out->root);
        out->root = NULL;
        return TRMI_FAIL(err, TRM_UNSUPPORTED,
                         "%s: format %lld (expected %d); the version of Trireme that wrote the "
                         "folder can read it",
                         out->path, (long long)format, TRMI_SNAPSHOT_FORMAT);
    }
    /* The manifest is incomplete, or of another snapshot. */
    if (out->root == NULL ||
        json_unpack(out->root, "{s:I,s:b,s:I,s:I,s:o}", "snapshot", &number, "differential",
                    &differential, "servers", &servers, "shards", &shards, "files", &files) != 0 ||
        number != snapshot || servers < 1 || shards < 1 || servers * shards > TRMI_PS_SHARDS_MAX ||
        json_array_size(files) != (size_t)(servers * shards)) {
        json_decref(out->root);
        out->root = NULL;
        return TRMI_FAIL(err, TRM_CORRUPT, "%s: not a manifest of snapshot %u", out->path,
                         snapshot);
    }
    out->differential = differential != 0;
    out->servers = (uint32_t)servers;
    out->shards = (uint32_t)shards;
    return TRM_OK;
}

void trmi_log_name_path(const char *folder, const trmi_log_name *log, char *path, size_t size) {
    snprintf(path, size, "%s/log/server-%u-of-%u-shard-%u-of-%u-snapshot-%06u.log", folder,
             log->server, log->servers, log->shard, log->shards, log->snapshot);
}

/* Checks that a file is no log of version 0.1, whose names said "cut": a server that passes over
 * its log would begin without the updates in it.   errors  UNSUPPORTED */
static trm_status check_no_older_log(const char *folder, const char *name, trm_error *err) {
    unsigned unused;
    int length = 0;
    (void)sscanf(name, "server-%u-of-%u-shard-%u-of-%u-cut-%u.log%n", &unused, &unused, &unused,
                 &unused, &unused, &length);
    return length == 0 || name[length] != '\0'
               ? TRM_OK
               : TRMI_FAIL(err, TRM_UNSUPPORTED,
                           "%s: %.100s is a log of Trireme 0.1 (expected ...-snapshot-N.log); that "
                           "version can read it",
                           folder, name);
}

/* Contract in snapshot_manifest.h. Files with other names are not the server's and are left
 * alone. */
trm_status trmi_logs_each(const char *folder,
                          trm_status (*use)(void *context, const trmi_log_name *log,
                                            const char *path, trm_error *err),
                          void *context, trm_error *err) {
    char path[300], file[400];
    snprintf(path, sizeof path, "%s/log", folder);
    DIR *dir = opendir(path);
    if (dir == NULL) {
        return TRMI_FAIL_SYS(err, "%s: cannot list", path);
    }
    trm_status status = TRM_OK;
    for (struct dirent *entry; status == TRM_OK && (entry = readdir(dir)) != NULL;) {
        trmi_log_name log;
        uint64_t number;
        int length = 0;
        if (sscanf(entry->d_name, "server-%u-of-%u-shard-%u-of-%u-snapshot-%" SCNu64 ".log%n",
                   &log.server, &log.servers, &log.shard, &log.shards, &number, &length) == 5 &&
            length > 0 && entry->d_name[length] == '\0') {
            status = check_number(path, entry->d_name, number, err);
            log.snapshot = (uint32_t)number;
            trmi_log_name_path(folder, &log, file, sizeof file);
            status = status == TRM_OK ? use(context, &log, file, err) : status;
        } else {
            status = check_no_older_log(path, entry->d_name, err);
        }
    }
    closedir(dir);
    return status;
}
