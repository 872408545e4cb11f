/* SPDX-License-Identifier: Apache-2.0 */
/* Distinct keys of a batch, table by table, in passes without branches that depend on keys:
 *
 *     1  every lookup writes its number to its key's place: the last one stays
 *     2  every lookup reads the number at its place: the last lookup of its key, or of another key (it is left over)
 *     1, 2 again with other places for the lookups left over (a few in a hundred)
 *     3  the last lookups of their keys are numbered
 *     4  all other lookups take the number of their last one
 *
 * Ascending keys, such as the rows of a dense variable, are distinct and skip all passes.
 *
 * A hash map that is searched key by key costs twice as much, because the branch "is the key
 * new?" cannot be predicted. AVX-512 runs the passes for sixteen lookups at a time
 * (unique_avx512.c). */
#include "ps/client/client.h"
#include "ps/client/unique.h"

#include "base/checked.h"
#include "base/cpu.h"
#include "base/error.h"
#include "base/memory.h"

/* Rounds of passes 1 and 2, lookups that are prefetched ahead, places up to which nothing is
 * prefetched because they stay in near caches, and lookups that are worth a thread. */
enum { ROUNDS = 4, AHEAD = 16, NEAR_PLACES = 1 << 13, PART_LOOKUPS = 1 << 13 };

/* Returns the place of a key in round `round`: a cheap hash first, then other bits of a better
 * one. */
static uint64_t place_of(const trmi_lookups *g, uint64_t key, int round) {
    return (round == 0 ? key * TRMI_FIBONACCI >> 32 : trmi_key_hash(key) >> (11 * round)) & g->mask;
}

/* Passes 1 and 2 for all lookups, as in unique.h. Prefetches only where the map is larger than
 * the caches. */
static int64_t meet_plain(const trmi_lookups *g) {
    const uint64_t *keys = g->keys;
    uint32_t *map = g->map, *inverse = g->inverse, *left = g->left;
    const uint64_t mask = g->mask;
    const bool far = mask > NEAR_PLACES;
    int64_t count = g->count, left_count = 0;
    for (int64_t i = 0; i < count; i++) {
        uint32_t place = (uint32_t)(keys[i] * TRMI_FIBONACCI >> 32 & mask);
        inverse[i] = place;
        map[place] = (uint32_t)i;
    }
    for (int64_t i = 0; i < count; i++) {
        if (far && i + AHEAD < count) {
            __builtin_prefetch(&map[inverse[i + AHEAD]]);
        }
        uint32_t last = map[inverse[i]];
        inverse[i] = last;
        left[left_count] = (uint32_t)i;
        left_count += keys[last] != keys[i];
    }
    return left_count;
}

/* Passes 1 and 2 for the `count` lookups left over, with other places. Returns how many are left
 * then. */
static int64_t next_round(const trmi_lookups *g, int64_t count, int round) {
    int64_t left_count = 0;
    for (int64_t k = 0; k < count; k++) {
        g->map[place_of(g, g->keys[g->left[k]], round)] = g->left[k];
    }
    for (int64_t k = 0; k < count; k++) {
        uint32_t i = g->left[k], last = g->map[place_of(g, g->keys[i], round)];
        g->inverse[i] = last;
        g->left[left_count] = i;
        left_count += g->keys[last] != g->keys[i];
    }
    return left_count;
}

/* Finds the last lookups of keys that share their places in every round, which happens only to keys
 * chosen for it. The arrays of pass 3 hold the distinct keys and their last lookups meanwhile. */
static void number_left_over(const trmi_lookups *g, int64_t count) {
    trmi_key_numbers numbers = {.cells = g->map, .mask = g->mask, .keys = g->distinct};
    memset(g->map, 0, (g->mask + 1) * sizeof *g->map);
    for (int64_t k = count; k-- > 0;) {
        uint32_t i = g->left[k];
        bool fresh;
        uint32_t number =
            trmi_number_key(&numbers, 8, g->keys[i], place_of(g, g->keys[i], 0), &fresh);
        g->number[number] = fresh ? i : g->number[number];
        g->inverse[i] = g->number[number];
    }
}

/* Passes 3 and 4, as in unique.h. */
static uint32_t number_plain(const trmi_lookups *g, uint32_t first) {
    uint32_t next = 0;
    for (int64_t i = 0; i < g->count; i++) {
        g->number[i] = first + next;
        g->distinct[next] = g->keys[i];
        next += g->inverse[i] == (uint32_t)i;
    }
    for (int64_t i = 0; i < g->count; i++) {
        g->inverse[i] = g->number[g->inverse[i]];
    }
    return next;
}

const trmi_unique_kernels trmi_unique_plain = {meet_plain, number_plain};

/* Returns the passes for a map of this size. AVX-512's indices are signed 32-bit numbers. */
static const trmi_unique_kernels *kernels_for(uint64_t mask) {
#if defined(__x86_64__)
    return trmi_cpu()->avx512 && mask <= INT32_MAX ? &trmi_unique_avx512 : &trmi_unique_plain;
#else
    return &trmi_unique_plain;
#endif
}

/* Returns what a slice needs its keys for. */
static uint32_t wanted_of(const trmi_slice *slice) {
    return (slice->rows != NULL ? TRMI_WANT_PULL : 0u) |
           (slice->gradients != NULL ? TRMI_WANT_PUSH : 0u);
}

/* Returns what all slices of a table need their keys for; TRMI_WANT_DIFFER if they differ. */
static uint32_t wanted_of_table(const trm_ps_batch *b, int64_t first) {
    const uint32_t wanted = wanted_of(&b->slices[first]);
    for (int64_t s = first; s >= 0; s = b->slices[s].next) {
        if (wanted_of(&b->slices[s]) != wanted) {
            return TRMI_WANT_DIFFER;
        }
    }
    return wanted;
}

/* Makes room for all arrays of a batch; returns false without memory. */
static bool reserve_arrays(trm_ps_batch *b) {
    trmi_unique_scratch *s = &b->unique;
    /* vector passes write beyond the end */
    int64_t places = 64, room = b->lookups + TRMI_UNIQUE_SLACK;
    while (places < 2 * b->lookups) {
        places *= 2;
    }
    return trmi_grow((void **)&b->uniques, &b->unique_capacity, room, sizeof *b->uniques) &&
           trmi_grow((void **)&b->distinct, &b->distinct_capacity, room, sizeof *b->distinct) &&
           trmi_grow((void **)&b->inverse, &b->inverse_capacity, room, sizeof *b->inverse) &&
           trmi_grow((void **)&b->row_of, &b->row_capacity, room, sizeof *b->row_of) &&
           trmi_grow((void **)&b->touched, &b->touched_capacity, room / 64 + 1,
                     sizeof *b->touched) &&
           trmi_grow((void **)&s->keys, &s->key_capacity, room, sizeof *s->keys) &&
           trmi_grow((void **)&s->map, &s->map_capacity, places, sizeof *s->map) &&
           trmi_grow((void **)&s->inverse, &s->inverse_capacity, room, sizeof *s->inverse) &&
           trmi_grow((void **)&s->last_of, &s->last_capacity, b->client->table_count,
                     sizeof *s->last_of) &&
           trmi_grow((void **)&s->number, &s->number_capacity, room, sizeof *s->number) &&
           trmi_grow((void **)&s->left, &s->left_capacity, room, sizeof *s->left);
}

/* Links the slices of each table into a list and sets what the table's keys are needed for. */
static void chain_slices(trm_ps_batch *b) {
    uint32_t *last_of = b->unique.last_of;
    for (uint32_t t = 0; t < b->client->table_count; t++) {
        last_of[t] = UINT32_MAX;
    }
    for (int64_t s = 0; s < b->slice_count; s++) {
        trmi_slice *slice = &b->slices[s];
        uint32_t before = last_of[slice->table];
        slice->next = -1;
        slice->unique_first = slice->unique_end = 0;
        slice->is_first = before == UINT32_MAX;
        if (!slice->is_first) {
            b->slices[before].next = s;
        }
        last_of[slice->table] = (uint32_t)s;
    }
    for (int64_t s = 0; s < b->slice_count; s++) {
        b->slices[s].wanted = b->slices[s].is_first ? wanted_of_table(b, s) : 0;
    }
}

/* Copies the keys of all slices of a table into one array. */
static void collect_keys(trm_ps_batch *b, int64_t first, trmi_lookups *g) {
    g->keys = b->unique.keys;
    g->inverse = b->unique.inverse;
    for (int64_t s = first; s >= 0; s = b->slices[s].next) {
        const trmi_slice *slice = &b->slices[s];
        memcpy(b->unique.keys + g->count, slice->keys, (size_t)slice->count * sizeof *slice->keys);
        g->count += slice->count;
    }
}

/* Copies the numbers back to the slices. */
static void give_back(trm_ps_batch *b, int64_t first, const trmi_lookups *g) {
    const uint32_t *from = g->inverse;
    for (int64_t s = first; s >= 0; s = b->slices[s].next) {
        const trmi_slice *slice = &b->slices[s];
        memcpy(b->inverse + slice->first, from, (size_t)slice->count * sizeof *from);
        from += slice->count;
    }
}

/* Returns whether the keys ascend, and are therefore distinct: mostly all rows of a dense
 * variable. Checked 64 keys at a time, so that other tables are rejected at their first keys. */
static bool keys_ascend(const uint64_t *keys, int64_t count) {
    enum { TOGETHER = 64 };
    int64_t i = 1;
    for (bool falls = false; i + TOGETHER <= count; i += TOGETHER) {
        for (int64_t k = i; k < i + TOGETHER; k++) {
            falls |= keys[k] <= keys[k - 1];
        }
        if (falls) {
            return false;
        }
    }
    for (; i < count; i++) {
        if (keys[i] <= keys[i - 1]) {
            return false;
        }
    }
    return true;
}

/* Numbers ascending keys: each lookup is a distinct key. */
static uint32_t number_in_order(const trmi_lookups *g, uint32_t first) {
    memcpy(g->distinct, g->keys, (size_t)g->count * sizeof *g->keys);
    for (int64_t i = 0; i < g->count; i++) {
        g->inverse[i] = first + (uint32_t)i;
    }
    return (uint32_t)g->count;
}

/* Numbers keys by the passes: rounds of collisions, then a table for the rest. */
static uint32_t number_by_meeting(trmi_lookups *g, uint32_t first) {
    g->mask = 63;
    while (g->mask + 1 < 2 * (uint64_t)g->count) {
        g->mask = 2 * g->mask + 1;
    }
    const trmi_unique_kernels *kernels = kernels_for(g->mask);
    int64_t left = kernels->meet(g);
    for (int round = 1; round < ROUNDS && left > 0; round++) {
        left = next_round(g, left, round);
    }
    if (left > 0) {
        number_left_over(g, left);
    }
    return kernels->number(g, first);
}

/* Numbers the keys of the table whose first slice is `first`, from `next` on; returns the next
 * free number. */
static uint32_t number_table(trm_ps_batch *b, int64_t first, uint32_t next) {
    trmi_slice *slice = &b->slices[first];
    const bool alone = slice->next < 0;
    trmi_lookups g = {.map = b->unique.map,
                      .number = b->unique.number,
                      .left = b->unique.left,
                      .distinct = b->distinct + next};
    if (alone) {
        g.keys = slice->keys;
        g.inverse = b->inverse + slice->first;
        g.count = slice->count;
    } else {
        collect_keys(b, first, &g);
    }
    slice->keys_in_order = alone && g.count > 0 && keys_ascend(g.keys, g.count);
    slice->unique_first = next;
    slice->unique_end =
        next + (slice->keys_in_order ? number_in_order(&g, next) : number_by_meeting(&g, next));
    if (!alone) {
        give_back(b, first, &g);
    }
    return (uint32_t)slice->unique_end;
}

/* ---- shards and uses of the keys ------------------------------------------------------------- */

/* Fills b->uniques for the keys of one table: shard, and what they are needed for. */
static void describe_table(trm_ps_batch *b, int64_t first) {
    const trm_ps_client *c = b->client;
    const trmi_slice *slice = &b->slices[first];
    const uint32_t shards = c->shards * c->servers, table = (uint32_t)slice->table;
    const trm_placement *placement = &c->tables[table].placement;
    const bool hashed = placement->kind == TRM_PLACE_BY_HASH,
               differ = slice->wanted == TRMI_WANT_DIFFER;
    for (int64_t u = slice->unique_first; u < slice->unique_end; u++) {
        uint64_t key = b->distinct[u];
        uint32_t shard = shards == 1 ? 0
                         : hashed    ? trmi_shard_of_key(key, shards)
                                     : trmi_shard_of_row(placement, key, c->servers, c->shards);
        b->uniques[u] = (trmi_unique){.key = key,
                                      .table = table,
                                      .shard = shard,
                                      .wanted = differ ? 0 : slice->wanted,
                                      .node = slice->by_blocks};
    }
    /* uses that differ between the table's slices are combined key by key */
    for (int64_t s = first; differ && s >= 0; s = b->slices[s].next) {
        const uint32_t wanted = wanted_of(&b->slices[s]),
                       *inverse = b->inverse + b->slices[s].first;
        for (int64_t i = 0; i < b->slices[s].count; i++) {
            b->uniques[inverse[i]].wanted |= wanted;
        }
    }
}

void trmi_batch_describe(trm_ps_batch *b) {
    for (int64_t s = 0; s < b->slice_count; s++) {
        if (b->slices[s].is_first && b->slices[s].part < b->numbered) {
            describe_table(b, s);
        }
    }
    b->described = true;
}

/* Returns whether b->uniques is not needed: a single shard has all keys, no cache, and the needs
 * are the same for all keys of a table. */
static bool goes_by_tables(const trm_ps_batch *b) {
    bool alike = b->client->shards * b->client->servers == 1 && !trmi_client_has_cache(b->client);
    for (int64_t s = 0; s < b->slice_count; s++) {
        alike &= !b->slices[s].is_first || b->slices[s].wanted != TRMI_WANT_DIFFER;
    }
    return alike;
}

/* Divides the tables into parts of about the same number of lookups. Synchronous workers get one
 * part, because all rows must be read at one moment. */
static void cut_parts(trm_ps_batch *b) {
    const int64_t most = b->client->mode == TRM_PS_SYNC ? 1 : TRMI_PARTS_MAX;
    int64_t parts = trmi_max_i64(1, trmi_min_i64(most, b->lookups / PART_LOOKUPS)), before = 0;
    for (int64_t s = 0; s < b->slice_count; s++) {
        int32_t part = (int32_t)(before * parts / trmi_max_i64(1, b->lookups));
        for (int64_t i = s; b->slices[s].is_first && i >= 0; i = b->slices[i].next) {
            b->slices[i].part = part;
            before += b->slices[i].count;
        }
    }
    b->part_count = (int32_t)parts;
    b->numbered = b->asked = 0;
    b->unique_count = 0;
}

/* Contract in client.h. Tables are chained before they are divided, because a table belongs to
 * one part. */
trm_status trmi_batch_cut(trm_ps_batch *b, trm_error *err) {
    if (b->cut) {
        return TRM_OK;
    }
    if (!reserve_arrays(b)) {
        return TRMI_NO_MEMORY(err, "for a batch of %lld keys", (long long)b->lookups);
    }
    chain_slices(b);
    cut_parts(b);
    b->described = !goes_by_tables(b);
    b->cut = true;
    return TRM_OK;
}

/* Contract in client.h. The numbers of a part follow those of the part before. */
void trmi_batch_number_part(trm_ps_batch *b) {
    trmi_part *part = &b->parts[b->numbered];
    part->first = b->unique_count;
    for (int64_t s = 0; s < b->slice_count; s++) {
        if (b->slices[s].is_first && b->slices[s].part == b->numbered) {
            b->unique_count = number_table(b, s, (uint32_t)b->unique_count);
            if (b->described) {
                describe_table(b, s);
            }
        }
    }
    part->end = b->unique_count;
    b->numbered++;
}

trm_status trmi_batch_deduplicate(trm_ps_batch *b, trm_error *err) {
    TRMI_TRY(trmi_batch_cut(b, err));
    while (b->numbered < b->part_count) {
        trmi_batch_number_part(b);
    }
    return TRM_OK;
}
