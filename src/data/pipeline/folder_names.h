/* SPDX-License-Identifier: Apache-2.0 */
/* data/pipeline/folder_names.h: the names in a folder of data, sorted: readdir has no order, and
 * labels and numbers of samples must be the same on every file system. */
#ifndef TRMI_DATA_FOLDER_NAMES_H
#define TRMI_DATA_FOLDER_NAMES_H

#include "base/memory.h"

/* A choice of the entries of a folder that are listed. Names that begin with a dot never are. */
typedef struct trmi_folder_choice {
    /* returns whether an entry of this name is wanted; NULL = all are */
    bool (*wants)(const void *context, const char *name);
    const void *context; /* for `wants` */
    bool files_only;     /* no folders (a link to a folder counts as one) */
    bool folders_only;   /* nothing but folders */
} trmi_folder_choice;

/* Lists the names in a folder.
 *   param   arena: receives the names
 *           names: [*count] written, sorted; NULL without a name
 *   errors  IO (no readable folder), NOMEM
 *   owns    caller: trmi_free(*names); the names belong to the arena */
trm_status trmi_folder_list(const char *path, const trmi_folder_choice *choice, trmi_arena *arena,
                            char ***names, int64_t *count, trm_error *err);

#endif
