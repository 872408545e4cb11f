/* SPDX-License-Identifier: Apache-2.0 */
/* data/text/text_files.h: which files are read for training and which for testing. */
#ifndef TRMI_DATA_TEXT_FILES_H
#define TRMI_DATA_TEXT_FILES_H

#include "trireme/data.h"

#include "base/mapping.h"
#include "base/memory.h"

/* A file at or in the path of a dataset. */
typedef struct trmi_text_file {
    const char *path;
    bool is_read;  /* by this usage */
    bool is_split; /* its first 90 % are for training, the rest for testing */
    trmi_mapping mapping;
} trmi_text_file;

/* The files of a data set. */
typedef struct trmi_text_files {
    trmi_text_file *files; /* by name */
    int64_t count, capacity;
} trmi_text_files;

/* Finds the files of a path: a file, with its partner ("train" and "val" in their names), or all
 * files of a folder with one of the endings (".bin", NULL). Names are in the arena.
 *   owns    caller, trmi_text_files_close, on failure too
 *   errors  IO (none for this usage), NOMEM */
trm_status trmi_text_files_find(const char *path, trm_usage usage, const char *const *endings,
                                trmi_arena *arena, trmi_text_files *out, trm_error *err);
/* Maps those that are read, or all. */
trm_status trmi_text_files_map(trmi_text_files *files, bool all, trm_error *err);
void trmi_text_files_close(trmi_text_files *files);
/* Returns how many of `count` things are for training: nanoGPT's int(0.9 * count). */
int64_t trmi_text_train_count(int64_t count);
/* Return the kind of data that a file's name ends with, or that a folder has files of: "tokens",
 * "jsonl" or "text"; NULL: none. */
const char *trmi_text_kind_of_file(const char *path);
const char *trmi_text_kind_of_folder(const char *path);

#endif
