/* SPDX-License-Identifier: Apache-2.0 */
/* ps/snapshot/snapshot.h: writes the file of one shard in a snapshot while updates go on.
 *
 *     owner thread                               writer thread
 *     begin: header, tables, windows, removed    digest, write
 *     walk a little after each task   --buffers-->
 *     rows about to change come first <--free----
 *                                                end: flush, fsync, rename
 *
 * The file is a list of blocks, each with its digest, and ends with a block that counts them: a
 * file that lost anything does not load. */
#ifndef TRMI_PS_SNAPSHOT_H
#define TRMI_PS_SNAPSHOT_H

#include "ps/shard/shard.h"

typedef struct trmi_snapshot trmi_snapshot;

/* Options of one snapshot file: its content and its folder. */
typedef struct trmi_snapshot_options {
    const trmi_os *os;  /* NULL: the real one */
    const char *folder; /* exists */
    uint32_t number;    /* number of the snapshot */
    bool differential;  /* only rows that changed since the previous snapshot */
    uint32_t server, servers;
} trmi_snapshot_options;

/* The finished file. */
typedef struct trmi_snapshot_file {
    char name[64]; /* in the folder */
    int64_t bytes, rows;
    uint64_t digest; /* XXH3 of the whole file */
    double seconds;
} trmi_snapshot_file;

/* Creates the writer of a shard: thread and buffers, charged to its budget. One snapshot at a
 * time.
 *   errors  NOMEM */
trm_status trmi_snapshot_create(trmi_shard *shard, trmi_snapshot **out, trm_error *err);
/* Ends the writer thread and frees the buffers. NULL is accepted. */
void trmi_snapshot_destroy(trmi_snapshot *snapshot);
/* Owner thread: begins to write the shard's present state. `done` is called once by the writer
 * thread, with TRM_OK and the file, or with the error (the file is then removed).
 *   errors  NOMEM, INVALID (busy) */
trm_status trmi_snapshot_begin(trmi_snapshot *snapshot, const trmi_snapshot_options *options,
                               void (*done)(void *context, trm_status status,
                                            const trmi_snapshot_file *file, const trm_error *err),
                               void *context, trm_error *err);
/* Owner thread: saves about `rows` records. Returns true when nothing is left to do. */
bool trmi_snapshot_walk(trmi_snapshot *snapshot, int64_t rows);
/* Returns whether a snapshot is being written. */
bool trmi_snapshot_busy(const trmi_snapshot *snapshot);

/* --- reading ---------------------------------------------------------------------------------- */

/* Selects the keys that a shard loads. */
typedef struct trmi_snapshot_filter {
    /* Returns whether the row of `key` in table number `table` is loaded */
    bool (*wants)(void *context, uint32_t table, uint64_t key);
    void *context;
} trmi_snapshot_filter;

/* Uses of a file that is read. */
typedef enum trmi_snapshot_use {
    TRMI_SNAPSHOT_LOAD,   /* checked, then loaded */
    TRMI_SNAPSHOT_VERIFY, /* checked, nothing is changed */
    TRMI_SNAPSHOT_LOAD_VERIFIED /* loaded; the caller has had it checked. Each block still is, before it is used. */
} trmi_snapshot_use;

/* Loads a file into a shard: creates missing tables, stores the rows that the filter selects,
 * and takes over windows and counters. A full file needs an empty shard; differential files
 * follow in their order. `digest`: that of the manifest.
 *   errors  IO, CORRUPT (block and offset), NOMEM, INVALID (another table)
 *   threads  one for each shard */
trm_status trmi_snapshot_load(trmi_shard *shard, const char *path, uint64_t digest,
                              const trmi_snapshot_filter *filter, trmi_snapshot_use use,
                              int64_t *rows, trm_error *err);

#endif
