/* SPDX-License-Identifier: Apache-2.0 */
/* The cache of hot rows: rows that a worker keeps for some batches instead of pulling them again. A
 * key belongs to one set of four rows. Each row has the batch at which it was fetched and a
 * count of its hits. A new row replaces the one with the fewest hits; each attempt that fails
 * lowers the counts, so that rows that were hot once do not stay for ever. */
#include "ps/client/client.h"

#include "base/error.h"
#include "base/memory.h"

enum {
    WAYS = 4,      /* rows of one set */
    HITS_MAX = 255 /* a hot row is replaced after at most so many attempts without a hit */
};

/* One cached row. */
typedef struct entry {
    uint64_t key;
    int64_t batch; /* batch at which it was fetched; -1: free */
    uint32_t hits;
} entry;

/* A cache: sets * WAYS entries with their rows. */
struct trmi_cache {
    uint64_t mask; /* sets - 1 */
    size_t row_bytes;
    entry *entries;
    uint8_t *rows;
};

/* Contract in client.h. The number of sets is a power of two, so the cache may have more rows
 * than requested. */
trm_status trmi_cache_create(int64_t rows, size_t row_bytes, trmi_cache **out, trm_error *err) {
    uint64_t sets = 1;
    while (sets * WAYS < (uint64_t)rows) {
        sets *= 2;
    }
    trmi_cache *cache = trmi_alloc(sizeof *cache);
    entry *entries = trmi_alloc(sets * WAYS * sizeof *entries);
    uint8_t *values = trmi_alloc(sets * WAYS * row_bytes);
    if (cache == NULL || entries == NULL || values == NULL) {
        trmi_free(cache);
        trmi_free(entries);
        trmi_free(values);
        return TRMI_NO_MEMORY(err, "for a cache of %lld rows", (long long)rows);
    }
    for (uint64_t i = 0; i < sets * WAYS; i++) {
        entries[i].batch = -1;
    }
    *cache = (trmi_cache){sets - 1, row_bytes, entries, values};
    *out = cache;
    return TRM_OK;
}

void trmi_cache_destroy(trmi_cache *cache) {
    if (cache != NULL) {
        trmi_free(cache->entries);
        trmi_free(cache->rows);
        trmi_free(cache);
    }
}

/* Returns the set of a key. */
static entry *find_set(trmi_cache *cache, uint64_t key) {
    return cache->entries + WAYS * (trmi_key_hash(key) & cache->mask);
}

bool trmi_client_has_cache(const trm_ps_client *client) {
    bool any = false;
    for (uint32_t t = 0; t < client->table_count; t++) {
        any |= client->caches[t] != NULL;
    }
    return any;
}

/* Contract in client.h. A row that is too old still counts a hit, because it is hot: the next
 * fetch replaces it. */
const uint8_t *trmi_cache_get(trmi_cache *cache, uint64_t key, int64_t oldest) {
    entry *set = find_set(cache, key);
    for (int i = 0; i < WAYS; i++) {
        if (set[i].batch >= 0 && set[i].key == key) {
            set[i].hits += set[i].hits < HITS_MAX;
            return set[i].batch < oldest
                       ? NULL
                       : cache->rows + (size_t)(set + i - cache->entries) * cache->row_bytes;
        }
    }
    return NULL;
}

/* Contract in client.h. Chooses the place of the same key, else a free place, else the one with
 * the fewest hits. */
void trmi_cache_put(trmi_cache *cache, uint64_t key, const uint8_t *row, int64_t batch) {
    entry *set = find_set(cache, key), *best = set;
    for (int i = 0; i < WAYS; i++) {
        if (set[i].batch >= 0 && set[i].key == key) {
            best = &set[i];
            break;
        }
        bool free_place = set[i].batch < 0;
        best = free_place || (best->batch >= 0 && set[i].hits < best->hits) ? &set[i] : best;
    }
    if (best->batch >= 0 && best->key != key) {
        for (int i = 0; i < WAYS; i++) {
            set[i].hits -= set[i].hits > 0;
        }
        if (best->hits > 0) {
            return; /* all rows of the set were used more often: the new row is not kept */
        }
    }
    best->hits = best->batch >= 0 && best->key == key ? best->hits : 0;
    best->key = key;
    best->batch = batch;
    memcpy(cache->rows + (size_t)(best - cache->entries) * cache->row_bytes, row, cache->row_bytes);
}
