/* SPDX-License-Identifier: Apache-2.0 */
/* ps/snapshot/cut.h: the file of one shard at one cut, written while updates go on.
 *
 *   owner thread                               writer thread
 *   begin: header, tables, windows, removed    digest, write
 *   walk a little after each task   --buffers-->
 *   rows about to change come first <--free----
 *                                              end: flush, fsync, rename
 *
 * The file is a list of blocks, each with its digest, and ends with a block that counts them: a
 * file that lost anything does not load. */
#ifndef TRMI_PS_CUT_H
#define TRMI_PS_CUT_H

#include "ps/shard/shard.h"

typedef struct trmi_cut trmi_cut;

typedef struct trmi_cut_options {
    const trmi_os *os;  /* NULL = the real one */
    const char *folder; /* exists */
    uint32_t number;    /* of the cut */
    bool differential;  /* only what changed since the cut before */
    uint32_t server, servers;
} trmi_cut_options;

/* The finished file. */
typedef struct trmi_cut_file {
    char name[64]; /* in the folder */
    int64_t bytes, rows;
    uint64_t digest; /* XXH3 of the whole file */
    double seconds;
} trmi_cut_file;

/* What a shard needs for its cuts: threads and buffers, charged to its budget. One cut at a time.
 *   errors  NOMEM */
trm_status trmi_cut_create(trmi_shard *shard, trmi_cut **out, trm_error *err);
void trmi_cut_destroy(trmi_cut *cut);
/* Owner thread: the shard's state of this moment. `done` is called once by the writer thread, with
 * TRM_OK and the file, or with the error (the file is then gone).   errors  NOMEM, INVALID (busy)
 */
trm_status trmi_cut_begin(trmi_cut *cut, const trmi_cut_options *options,
                          void (*done)(void *context, trm_status status, const trmi_cut_file *file,
                                       const trm_error *err),
                          void *context, trm_error *err);
/* Owner thread: walks about `rows` records. True when nothing is left to do. */
bool trmi_cut_walk(trmi_cut *cut, int64_t rows);
bool trmi_cut_busy(const trmi_cut *cut);

/* --- reading ---------------------------------------------------------------------------------- */

/* Which keys a loading shard wants. */
typedef struct trmi_cut_filter {
    bool (*wants)(void *context, uint32_t table, uint64_t key);
    void *context;
} trmi_cut_filter;

typedef enum trmi_cut_use {
    TRMI_CUT_LOAD,   /* checked, then loaded */
    TRMI_CUT_VERIFY, /* checked, nothing is changed */
    TRMI_CUT_LOAD_VERIFIED /* loaded; the caller has had it checked. Each block still is, before it is used. */
} trmi_cut_use;

/* Loads a file into a shard: tables it lacks are made, rows that the filter wants are put, windows
 * and counters taken over. A full file wants an empty shard; differential ones follow in their
 * order. `digest` is that of the manifest.   errors  IO, CORRUPT (block and offset), NOMEM, INVALID
 * (another table)   thread  one for each shard */
trm_status trmi_cut_load(trmi_shard *shard, const char *path, uint64_t digest,
                         const trmi_cut_filter *filter, trmi_cut_use use, int64_t *rows,
                         trm_error *err);

#endif
