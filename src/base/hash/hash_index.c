/* SPDX-License-Identifier: Apache-2.0 */
/* Finds entries by hash (hash_index.h): open addressing with linear probing. The table is at most
 * half full, so a search ends after a few places; entries are only added, never removed one by
 * one. */
#include "base/hash/hash_index.h"

#include <string.h>

/* Places of the first table. */
enum { FIRST_PLACES = 64 };

/* Puts an entry into the first free place from its hash on; there is one. The upper half of the
 * hash is mixed in, because small tables use the lowest bits only. */
static void put_place(trmi_hash_index *index, uint64_t hash, int64_t entry) {
    uint64_t at = hash ^ hash >> 32, mask = (uint64_t)(index->place_count - 1);
    while (index->places[at & mask].entry != 0) {
        at++;
    }
    index->places[at & mask] = (trmi_hash_place){hash, entry + 1};
}

/* Doubles the places and puts the entries into them again. Returns false without memory; the index
 * is then unchanged. */
static bool grow_places(trmi_hash_index *index) {
    trmi_hash_index more = {.count = index->count,
                            .place_count =
                                index->place_count == 0 ? FIRST_PLACES : 2 * index->place_count};
    more.places = trmi_alloc((size_t)more.place_count * sizeof *more.places);
    if (more.places == NULL) {
        return false;
    }
    for (int64_t i = 0; i < index->place_count; i++) {
        if (index->places[i].entry != 0) {
            put_place(&more, index->places[i].hash, index->places[i].entry - 1);
        }
    }
    trmi_free(index->places);
    *index = more;
    return true;
}

bool trmi_hash_index_add(trmi_hash_index *index, uint64_t hash, int64_t entry) {
    if (2 * (index->count + 1) > index->place_count && !grow_places(index)) {
        return false;
    }
    put_place(index, hash, entry);
    index->count++;
    return true;
}

void trmi_hash_index_clear(trmi_hash_index *index) {
    if (index->places != NULL) {
        memset(index->places, 0, (size_t)index->place_count * sizeof *index->places);
    }
    index->count = 0;
}

void trmi_hash_index_free(trmi_hash_index *index) {
    trmi_free(index->places);
    *index = (trmi_hash_index){0};
}
