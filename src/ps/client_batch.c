/* Batches: their slices, and the unique keys of these in order of servers, shards and tables. */
#include "ps/client.h"

#include "base/checked.h"
#include "base/error.h"
#include "base/memory.h"

#include <stdlib.h>

trm_status trm_ps_batch_create(trm_ps_client *client, trm_ps_batch **out, trm_error *err) {
    trm_ps_batch *b = trmi_alloc(sizeof *b);
    if (b != NULL) {
        b->client = client;
        b->index = -1;
        b->answered = trmi_alloc(client->servers * sizeof *b->answered);
        b->answers = trmi_alloc(client->servers * sizeof *b->answers);
        b->kept = trmi_alloc(client->servers * sizeof *b->kept);
        b->asked = trmi_alloc(client->servers * sizeof *b->asked);
    }
    if (b == NULL || b->answered == NULL || b->answers == NULL || b->kept == NULL || b->asked == NULL) {
        trm_ps_batch_destroy(b);
        return TRMI_FAIL(err, TRM_NOMEM, "no memory for a batch");
    }
    *out = b;
    return TRM_OK;
}

static void free_arrangement(trmi_arrangement *a) {
    free(a->keys);
    free(a->place);
    free(a->sections);
    trmi_free(a->first);
}

/* Gives answers back to their channels; forgets the pull. */
void trmi_batch_release(trm_ps_batch *b) {
    trm_ps_client *client = b->client;
    for (uint32_t s = 0; s < client->servers; s++) {
        trmi_channel *c = client->peers[s].channel;
        if (b->answers[s].block != NULL && c != NULL) {
            c->table->release(c, &b->answers[s]);
        }
        b->answers[s] = (trmi_message){0};
        trmi_free(b->kept[s]);
        b->kept[s] = NULL;
    }
    for (int i = 0; i < TRMI_BATCHES_MAX; i++) {
        client->batches[i] = client->batches[i] == b ? NULL : client->batches[i];
    }
    b->pulling = false;
}

void trm_ps_batch_destroy(trm_ps_batch *b) {
    if (b == NULL) {
        return;
    }
    if (b->answers != NULL && b->answered != NULL && b->kept != NULL) {
        trmi_batch_release(b);
    }
    free_arrangement(&b->pull);
    free_arrangement(&b->push);
    free(b->slices);
    free(b->uniques);
    free(b->inverse);
    free(b->map);
    free(b->regions);
    free((void *)b->value_of);
    free(b->sums);
    trmi_free(b->answered);
    trmi_free(b->answers);
    trmi_free(b->kept);
    trmi_free(b->asked);
    trmi_free(b);
}

void trm_ps_batch_clear(trm_ps_batch *b) {
    trmi_batch_release(b);
    b->slice_count = b->lookups = b->unique_count = 0;
    b->deduplicated = false;
    b->index = -1;
    b->err = (trm_error){0};
}

trm_status trm_ps_batch_add(trm_ps_batch *b, int32_t table, const uint64_t *keys, int64_t count,
                            float *rows, const float *gradients, trm_error *err) {
    if (table < 0 || (uint32_t)table >= b->client->table_count || count < 0 ||
        b->lookups + count > INT32_MAX) {
        return TRMI_FAIL(err, TRM_INVALID,
                         "table %d of %u, %lld keys after %lld: a table of this client and at "
                         "most 2^31 keys a batch expected",
                         table, b->client->table_count, (long long)count, (long long)b->lookups);
    }
    if (b->pulling || b->deduplicated) {
        return TRMI_FAIL(err, TRM_INVALID, "the batch has been pulled: clear it first");
    }
    if (!trmi_grow((void **)&b->slices, &b->slice_capacity, b->slice_count + 1,
                   sizeof *b->slices)) {
        return TRMI_FAIL(err, TRM_NOMEM, "no memory for a slice");
    }
    b->slices[b->slice_count++] = (trmi_slice){table, keys, count, rows, gradients};
    b->lookups += count;
    return TRM_OK;
}

/* ---- unique keys
 * ------------------------------------------------------------------------------------- */

/* Each table gets a power of two of places, at least twice its look-ups. */
static bool reserve_uniques(trm_ps_batch *b) {
    uint32_t tables = b->client->table_count;
    if (!trmi_grow((void **)&b->regions, &b->region_capacity, tables, sizeof *b->regions)) {
        return false;
    }
    memset(b->regions, 0, tables * sizeof *b->regions);
    for (int64_t s = 0; s < b->slice_count; s++) {
        b->regions[b->slices[s].table].lookups += b->slices[s].count;
    }
    uint64_t map = 0;
    for (uint32_t t = 0; t < tables; t++) {
        uint64_t size = 64;
        while (size < 2 * (uint64_t)b->regions[t].lookups) {
            size *= 2;
        }
        b->regions[t].first = map;
        b->regions[t].mask = size - 1;
        map += b->regions[t].lookups == 0 ? 0 : size;
    }
    bool ok =
        trmi_grow((void **)&b->uniques, &b->unique_capacity, b->lookups, sizeof *b->uniques) &&
        trmi_grow((void **)&b->inverse, &b->inverse_capacity, b->lookups, sizeof *b->inverse) &&
        trmi_grow((void **)&b->value_of, &b->value_capacity, b->lookups, sizeof *b->value_of) &&
        trmi_grow((void **)&b->map, &b->map_capacity, (int64_t)map, sizeof *b->map);
    if (ok && map > 0) {
        memset(b->map, 0, map * sizeof *b->map);
    }
    return ok;
}

/* Numbers the keys of a slice from `uniques` on; returns the next number. */
static uint32_t number_keys(trm_ps_batch *b, const trmi_slice *slice, uint32_t uniques,
                            uint32_t *inverse) {
    enum { AHEAD = 12 };
    const trm_ps_client *c = b->client;
    const uint32_t shards = c->shards * c->servers;
    const trm_placement *placement = &c->tables[slice->table].placement;
    const bool hashed = placement->kind == TRM_PLACE_BY_HASH;
    const uint64_t mask = b->regions[slice->table].mask;
    uint32_t *map = b->map + b->regions[slice->table].first;
    const uint32_t wanted = (slice->rows != NULL ? TRMI_WANT_PULL : 0u) |
                            (slice->gradients != NULL ? TRMI_WANT_PUSH : 0u);
    for (int64_t i = 0; i < slice->count; i++) {
        if (mask > 1 << 13 && i + AHEAD < slice->count) {
            __builtin_prefetch(&map[trmi_key_hash(slice->keys[i + AHEAD]) & mask]);
        }
        uint64_t key = slice->keys[i], hash = trmi_key_hash(key), at = hash & mask;
        uint32_t u;
        while ((u = map[at]) != 0 && b->uniques[u - 1].key != key) {
            at = (at + 1) & mask;
        }
        if (u == 0) {
            u = map[at] = ++uniques;
            uint64_t bucket = hash >> (64 - TRMI_VIRTUAL_BUCKETS_LOG2);
            uint32_t shard = (uint32_t)(bucket * shards >> TRMI_VIRTUAL_BUCKETS_LOG2);
            if (!hashed) {
                shard = trmi_shard_of_row(placement, key, c->servers, c->shards);
            }
            b->uniques[u - 1] = (trmi_unique){
                .key = key, .table = (uint32_t)slice->table, .shard = shard, .wanted = wanted};
        } else if (b->uniques[u - 1].wanted != wanted) {
            b->uniques[u - 1].wanted |= wanted;
        }
        inverse[i] = u - 1;
    }
    return uniques;
}

trm_status trmi_batch_deduplicate(trm_ps_batch *b, trm_error *err) {
    if (b->deduplicated) {
        return TRM_OK;
    }
    if (!reserve_uniques(b)) {
        return TRMI_FAIL(err, TRM_NOMEM, "no memory for a batch of %lld keys",
                         (long long)b->lookups);
    }
    uint32_t uniques = 0, *inverse = b->inverse;
    for (int64_t s = 0; s < b->slice_count; s++) {
        uniques = number_keys(b, &b->slices[s], uniques, inverse);
        inverse += b->slices[s].count;
    }
    b->unique_count = uniques;
    b->deduplicated = true;
    return TRM_OK;
}

trm_status trmi_batch_arrange(trm_ps_batch *b, trmi_arrangement *a, uint32_t mask, uint32_t match,
                              trm_error *err) {
    const trm_ps_client *c = b->client;
    size_t tables = c->table_count, groups = (size_t)c->shards * c->servers * tables;
    uint32_t *start = trmi_alloc((groups + 1) * sizeof *start);
    a->first = a->first != NULL ? a->first : trmi_alloc((c->servers + 1) * sizeof *a->first);
    if (start == NULL || a->first == NULL ||
        !trmi_grow((void **)&a->keys, &a->key_capacity, b->unique_count, sizeof *a->keys) ||
        !trmi_grow((void **)&a->place, &a->place_capacity, b->unique_count, sizeof *a->place) ||
        !trmi_grow((void **)&a->sections, &a->section_capacity, (int64_t)groups,
                   sizeof *a->sections)) {
        trmi_free(start);
        return TRMI_FAIL(err, TRM_NOMEM, "no memory for a batch of %lld keys",
                         (long long)b->unique_count);
    }
    for (int64_t u = 0; u < b->unique_count; u++) {
        const trmi_unique *x = &b->uniques[u];
        start[x->shard * tables + x->table + 1] += (x->wanted & mask) == match;
    }
    uint32_t sections = 0;
    memset(a->first, 0, (c->servers + 1) * sizeof *a->first);
    for (size_t g = 0; g < groups; g++) {
        uint32_t shard = (uint32_t)(g / tables), count = start[g + 1];
        if (count > 0) {
            a->sections[sections++] = (trmi_ps_section){.shard = shard % c->shards,
                                                        .table = (uint32_t)(g % tables),
                                                        .count = count,
                                                        .keys = a->keys + start[g]};
            a->first[shard / c->shards + 1]++;
        }
        start[g + 1] += start[g];
    }
    for (uint32_t s = 0; s < c->servers; s++) {
        a->first[s + 1] += a->first[s];
    }
    a->count = start[groups];
    for (int64_t u = 0; u < b->unique_count; u++) {
        const trmi_unique *x = &b->uniques[u];
        if ((x->wanted & mask) == match) {
            uint32_t at = start[x->shard * tables + x->table]++;
            a->keys[at] = x->key;
            a->place[u] = at;
        }
    }
    trmi_free(start);
    return TRM_OK;
}
