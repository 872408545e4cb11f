/* SPDX-License-Identifier: Apache-2.0 */
/* base/hash/hash_index.h: finds the entries of an array by a hash of their keys (open addressing).
 * The caller owns the entries and compares the keys:
 *
 *     uint64_t probe = 0;
 *     int64_t i;
 *     while ((i = trmi_hash_index_next(&index, hash, &probe)) >= 0 && !equal(&entries[i], key)) {
 *     }
 *     if (i < 0 && (!trmi_grow(...) || !trmi_hash_index_add(&index, hash, count++))) ... no memory
 */
#ifndef TRMI_BASE_HASH_INDEX_H
#define TRMI_BASE_HASH_INDEX_H

#include "base/memory.h"

/* A place of the table. */
typedef struct trmi_hash_place {
    uint64_t hash;
    int64_t entry; /* index of the entry + 1; 0 = free */
} trmi_hash_place;

/* A hash index; starts as {0}. */
typedef struct trmi_hash_index {
    trmi_hash_place *places;
    /* places (a power of two, at most half of them taken); entries */
    int64_t place_count, count;
} trmi_hash_index;

/* Returns the next entry with this hash, -1 = no more; *probe is 0 at the start. */
static inline int64_t trmi_hash_index_next(const trmi_hash_index *index, uint64_t hash,
                                           uint64_t *probe) {
    while (index->place_count > 0) {
        uint64_t at = (hash ^ hash >> 32) + (*probe)++;
        const trmi_hash_place *place = &index->places[at & (uint64_t)(index->place_count - 1)];
        if (place->entry == 0 || place->hash == hash) {
            return place->entry - 1;
        }
    }
    return -1;
}

/* Adds an entry. False: no memory; nothing has changed. */
bool trmi_hash_index_add(trmi_hash_index *index, uint64_t hash, int64_t entry);
/* Removes all entries and keeps the memory. */
void trmi_hash_index_clear(trmi_hash_index *index);
/* Frees the memory; the index can be used again. */
void trmi_hash_index_free(trmi_hash_index *index);

#endif
