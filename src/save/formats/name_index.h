/* SPDX-License-Identifier: Apache-2.0 */
/* save/formats/name_index.h: finds an entry of a file (tensor of safetensors, array of npz) by its
 * name, in logarithmic time. Entries are structs whose first member is `const char *name`. */
#ifndef TRMI_SAVE_NAME_INDEX_H
#define TRMI_SAVE_NAME_INDEX_H

#include "trireme/base.h"

/* The entries in the order of their names. Starts as {.count = number of entries}. */
typedef struct trmi_name_index {
    const void **sorted; /* [count] borrowed; NULL: not made yet, all names are unknown */
    int64_t count;
} trmi_name_index;

/* Indexes entries[index->count], each of `entry_bytes`, which must not move afterwards. Two entries
 * with one name are an error; its message calls them `kind` ("tensors"). `file` is for messages.
 *   errors  CORRUPT, NOMEM
 *   owns    caller: trmi_name_index_free, also after an error */
trm_status trmi_name_index_make(trmi_name_index *index, const void *entries, size_t entry_bytes,
                                const char *kind, const char *file, trm_error *err);
/* Returns the entry with this name; NULL if there is none. */
const void *trmi_name_index_find(const trmi_name_index *index, const char *name);
void trmi_name_index_free(trmi_name_index *index);

#endif
