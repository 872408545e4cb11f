/* SPDX-License-Identifier: Apache-2.0 */
/* ps/snapshot/cut.h: the snapshot file of one shard at one cut, written while updates go on.
 *
 *     owner thread                               writer thread
 *     begin: header, tables, windows, removed    digest, write
 *     walk a little after each task   --buffers-->
 *     rows about to change come first <--free----
 *                                                end: flush, fsync, rename
 *
 * The file is a list of blocks, each with its digest, and ends with a block that counts them: a
 * file that lost anything does not load. */
#ifndef TRMI_PS_CUT_H
#define TRMI_PS_CUT_H

#include "ps/shard/shard.h"

typedef struct trmi_cut trmi_cut;

/* Options of one snapshot file: its content and its folder. */
typedef struct trmi_cut_options {
    const trmi_os *os;  /* NULL: the real one */
    const char *folder; /* exists */
    uint32_t number;    /* number of the cut */
    bool differential;  /* only rows that changed since the previous cut */
    uint32_t server, servers;
} trmi_cut_options;

/* The finished file. */
typedef struct trmi_cut_file {
    char name[64]; /* in the folder */
    int64_t bytes, rows;
    uint64_t digest; /* XXH3 of the whole file */
    double seconds;
} trmi_cut_file;

/* Creates the writer of a shard: thread and buffers, charged to its budget. One snapshot at a
 * time.
 *   errors  NOMEM */
trm_status trmi_cut_create(trmi_shard *shard, trmi_cut **out, trm_error *err);
/* Ends the writer thread and frees the buffers. NULL is accepted. */
void trmi_cut_destroy(trmi_cut *cut);
/* Owner thread: begins to write the shard's present state. `done` is called once by the writer
 * thread, with TRM_OK and the file, or with the error (the file is then removed).
 *   errors  NOMEM, INVALID (busy) */
trm_status trmi_cut_begin(trmi_cut *cut, const trmi_cut_options *options,
                          void (*done)(void *context, trm_status status, const trmi_cut_file *file,
                                       const trm_error *err),
                          void *context, trm_error *err);
/* Owner thread: saves about `rows` records. Returns true when nothing is left to do. */
bool trmi_cut_walk(trmi_cut *cut, int64_t rows);
/* Returns whether a snapshot is being written. */
bool trmi_cut_busy(const trmi_cut *cut);

/* --- reading ---------------------------------------------------------------------------------- */

/* Selects the keys that a shard loads. */
typedef struct trmi_cut_filter {
    /* Returns whether the row of `key` in table number `table` is loaded */
    bool (*wants)(void *context, uint32_t table, uint64_t key);
    void *context;
} trmi_cut_filter;

/* Uses of a file that is read. */
typedef enum trmi_cut_use {
    TRMI_CUT_LOAD,   /* checked, then loaded */
    TRMI_CUT_VERIFY, /* checked, nothing is changed */
    TRMI_CUT_LOAD_VERIFIED /* loaded; the caller has had it checked. Each block still is, before it is used. */
} trmi_cut_use;

/* Loads a file into a shard: creates missing tables, stores the rows that the filter selects,
 * and takes over windows and counters. A full file needs an empty shard; differential files
 * follow in their order. `digest`: that of the manifest.
 *   errors  IO, CORRUPT (block and offset), NOMEM, INVALID (another table)
 *   thread  one for each shard */
trm_status trmi_cut_load(trmi_shard *shard, const char *path, uint64_t digest,
                         const trmi_cut_filter *filter, trmi_cut_use use, int64_t *rows,
                         trm_error *err);

#endif
