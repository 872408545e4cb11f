/* SPDX-License-Identifier: Apache-2.0 */
/* Finding entries of a file by name (name_index.h): pointers to the entries, sorted by name, and a
 * binary search. The entries themselves keep the order of the file. Each entry begins with a
 * pointer to its name. */
#include "save/formats/name_index.h"

#include "base/error.h"
#include "base/memory.h"

#include <stdlib.h>
#include <string.h>

/* Returns the name of an entry, its first member. */
static const char *name_of(const void *entry) { return *(const char *const *)entry; }

/* Compares two entries by name. */
static int compare_names(const void *a, const void *b) {
    return strcmp(name_of(*(const void *const *)a), name_of(*(const void *const *)b));
}

/* Contract in name_index.h. Equal names are refused, because which of the two a reader gets would
 * depend on the reader. */
trm_status trmi_name_index_make(trmi_name_index *index, const void *entries, size_t entry_bytes,
                                const char *kind, const char *file, trm_error *err) {
    const int64_t count = index->count;
    TRMI_TRY(TRMI_NEW(err, index->sorted, count, "for the names in %s", file));
    for (int64_t i = 0; i < count; i++) {
        index->sorted[i] = (const char *)entries + (size_t)i * entry_bytes;
    }
    qsort(index->sorted, (size_t)count, sizeof *index->sorted, compare_names);
    for (int64_t i = 1; i < count; i++) { /* equal names are neighbours now */
        if (strcmp(name_of(index->sorted[i - 1]), name_of(index->sorted[i])) == 0) {
            return TRMI_FAIL(err, TRM_CORRUPT, "%s: two %s are called %.80s", file, kind,
                             name_of(index->sorted[i]));
        }
    }
    return TRM_OK;
}

const void *trmi_name_index_find(const trmi_name_index *index, const char *name) {
    int64_t low = 0, high = index->sorted != NULL ? index->count : 0;
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        int order = strcmp(name, name_of(index->sorted[middle]));
        if (order == 0) {
            return index->sorted[middle];
        }
        if (order < 0) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    return NULL;
}

void trmi_name_index_free(trmi_name_index *index) {
    trmi_free(index->sorted);
    *index = (trmi_name_index){0};
}
