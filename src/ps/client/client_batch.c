/* SPDX-License-Identifier: Apache-2.0 */
/* Batches: their slices, the sections in which unique keys go to servers, and the addresses of
 * rows in messages.
 *
 *      slices        what the caller adds: a table, keys, where rows go, gradients
 *      uniques       each distinct key of the batch once (client_unique.c)
 *      arrangement   the uniques of one message, grouped by server, shard and table into sections
 *      row_of        the address of each unique's row in the received or the prepared message
 *
 * With a single shard the uniques already lie in the order of sections; then nothing is moved
 * and an address is computed from the slice's row_zero. */
#include "ps/client/client.h"

#include "base/arguments.h"
#include "base/checked.h"
#include "base/error.h"
#include "base/memory.h"

#include <stdlib.h>

/* Contract in trireme/ps.h. */
trm_status trm_ps_batch_create(trm_ps_client *client, trm_ps_batch **out, trm_error *err) {
    TRMI_NEED(err, client, out);
    trm_ps_batch *b = trmi_alloc(sizeof *b);
    if (b != NULL) {
        b->client = client;
        b->index = -1;
    }
    bool whole = b != NULL;
    for (int p = 0; p < TRMI_PARTS_MAX && whole; p++) {
        b->parts[p].replies = trmi_alloc(client->servers * sizeof(trmi_reply));
        whole = b->parts[p].replies != NULL;
    }
    if (!whole) {
        trm_ps_batch_destroy(b);
        return trmi_client_note(client, TRMI_NO_MEMORY(err, "for a batch"));
    }
    *out = b;
    return TRM_OK;
}

/* Frees the arrays of an arrangement. */
static void free_arrangement(trmi_arrangement *a) {
    free(a->keys);
    free(a->place);
    free(a->sections);
    trmi_free(a->first);
}

/* Contract in client.h. Messages are in the channels' memory and are given back. */
void trmi_part_release(trm_ps_client *client, trmi_part *part) {
    for (uint32_t s = 0; s < client->servers && part->replies != NULL; s++) {
        trmi_reply *reply = &part->replies[s];
        trmi_channel *c = client->peers[s].channel;
        if (reply->message.block != NULL && c != NULL) {
            c->table->release(c, &reply->message);
        }
        reply->message = (trmi_message){0};
        trmi_free(reply->kept);
        reply->kept = NULL;
    }
}

/* Contract in client.h. */
void trmi_batch_release(trm_ps_batch *b) {
    trm_ps_client *client = b->client;
    for (int p = 0; p < TRMI_PARTS_MAX; p++) {
        trmi_part_release(client, &b->parts[p]);
        b->parts[p].request = 0;
    }
    for (int i = 0; i < TRMI_BATCHES_MAX; i++) {
        client->batches[i] = client->batches[i] == b ? NULL : client->batches[i];
    }
    b->pulling = false;
}

/* Contract in trireme/ps.h. */
void trm_ps_batch_destroy(trm_ps_batch *b) {
    if (b == NULL) {
        return;
    }
    trmi_batch_release(b);
    for (int p = 0; p < TRMI_PARTS_MAX; p++) {
        free_arrangement(&b->parts[p].pull);
        trmi_free(b->parts[p].replies);
    }
    free_arrangement(&b->push);
    free(b->slices);
    free(b->uniques);
    free(b->distinct);
    free(b->inverse);
    free(b->unique.keys);
    free(b->unique.map);
    free(b->unique.number);
    free(b->unique.left);
    free(b->unique.inverse);
    free(b->unique.last_of);
    free((void *)b->row_of);
    free(b->sums);
    free(b->touched);
    free(b->hot);
    trmi_free(b);
}

/* Contract in trireme/ps.h. Memory is kept for the next batch. */
void trm_ps_batch_clear(trm_ps_batch *b) {
    TRMI_NEED_OR(, NULL, b);
    trmi_batch_release(b);
    b->slice_count = b->lookups = b->unique_count = 0;
    b->cut = false;
    b->blocks = (trmi_push_blocks){0};
    b->index = -1;
    b->err = (trm_error){0};
}

/* Contract in trireme/ps.h. */
trm_status trm_ps_batch_add(trm_ps_batch *b, int32_t table, const uint64_t *keys, int64_t count,
                            float *rows, const float *gradients, trm_error *err) {
    TRMI_NEED(err, b);
    if (count > 0) {
        TRMI_NEED(err, keys);
    }
    if (table < 0 || (uint32_t)table >= b->client->table_count || count < 0 ||
        b->lookups + count > INT32_MAX) {
        return TRMI_FAIL(err, TRM_INVALID,
                         "table %d of %u, %lld keys after %lld: a table of this client and at "
                         "most 2^31 keys a batch expected",
                         table, b->client->table_count, (long long)count, (long long)b->lookups);
    }
    if (b->pulling || b->cut) {
        return TRMI_FAIL(err, TRM_INVALID, "the batch has been pulled: clear it first");
    }
    if (!trmi_grow((void **)&b->slices, &b->slice_capacity, b->slice_count + 1,
                   sizeof *b->slices)) {
        return trmi_client_note(b->client, TRMI_NO_MEMORY(err, "for a slice"));
    }
    /* keys and rows stay the caller's memory: only their addresses are kept */
    b->slices[b->slice_count++] = (trmi_slice){
        .table = table,
        .keys = keys,
        .count = count,
        .rows = rows,
        .gradients = gradients,
        .first = b->lookups,
    };
    b->lookups += count;
    return TRM_OK;
}

/* ---- sections -------------------------------------------------------------------------------- */

/* Returns the kinds of sums that an arrangement has of a table: one or, in a push by blocks, the
 * sum of each node too. */
static int64_t count_sums(const trm_ps_batch *b, uint32_t mask) {
    return (mask & TRMI_WANT_PUSH) != 0 ? 1 + b->blocks.nodes : 1;
}

/* Returns what a section of a push says of its place in the tree. */
static uint32_t node_of(const trm_ps_batch *b, int64_t sum) {
    return sum > 0 ? 1 + (uint32_t)b->blocks.positions[sum - 1] : 0;
}

/* Makes room for a section of each shard, table and sum. */
static trm_status reserve_arrangement(const trm_ps_batch *b, trmi_arrangement *a, uint32_t mask,
                                      trm_error *err) {
    const trm_ps_client *c = b->client;
    int64_t groups = (int64_t)c->shards * c->servers * c->table_count * count_sums(b, mask);
    a->first = a->first != NULL ? a->first : trmi_alloc((c->servers + 1) * sizeof *a->first);
    bool there = a->first != NULL && trmi_grow((void **)&a->sections, &a->section_capacity, groups,
                                               sizeof *a->sections);
    return there ? TRM_OK : TRMI_NO_MEMORY(err, "for the sections of a batch");
}

/* Arranges without moving keys: with a single shard every table is one section, whose keys lie
 * in b->distinct. Returns false if that is not possible: several shards, cached keys, or needs
 * that differ from key to key. */
static bool arrange_in_order(trm_ps_batch *b, trmi_arrangement *a, int64_t first, int64_t end) {
    const trm_ps_client *c = b->client;
    uint32_t sections = 0;
    a->count = 0;
    if (c->shards * c->servers != 1 || ((a->mask & TRMI_CACHED) != 0 && trmi_client_has_cache(c)) ||
        (b->blocks.nodes > 1 && (a->mask & TRMI_WANT_PUSH) != 0)) {
        return false;
    }
    /* The first slice of each table stands for all of them: they share its unique keys. */
    for (int64_t s = 0; s < b->slice_count; s++) {
        trmi_slice *slice = &b->slices[s];
        const int64_t count = slice->unique_end - slice->unique_first;
        if (!slice->is_first || slice->unique_first < first || slice->unique_end > end) {
            continue;
        }
        slice->section = -1;
        if (slice->wanted == TRMI_WANT_DIFFER) {
            return false;
        }
        if (count > 0 && (slice->wanted & a->mask) == a->match) {
            slice->section = sections;
            const bool tree = slice->by_blocks && (a->mask & TRMI_WANT_PUSH) != 0;
            a->sections[sections++] = (trmi_ps_section){.table = (uint32_t)slice->table,
                                                        .node = node_of(b, tree),
                                                        .count = count,
                                                        .keys = b->distinct + slice->unique_first};
            a->count += count;
        }
    }
    /* all sections belong to the only server */
    a->first[0] = 0;
    a->first[1] = sections;
    return true;
}

/* Contract in client.h. */
trm_status trmi_batch_arrange(trm_ps_batch *b, trmi_arrangement *a, int64_t first, int64_t end,
                              uint32_t mask, uint32_t match, trm_error *err) {
    TRMI_TRY(reserve_arrangement(b, a, mask, err));
    a->mask = mask;
    a->match = match;
    a->in_order = arrange_in_order(b, a, first, end);
    return a->in_order ? TRM_OK : trmi_batch_arrange_by_shard(b, a, first, end, mask, match, err);
}

/* Returns the group of a unique: `each` groups a shard, `sums` a table. */
static inline size_t group_of(const trmi_unique *x, size_t each, size_t sums) {
    return x->shard * each + x->table * sums + (sums > 1 ? x->node : 0);
}

/* Contract in client.h. Sorts by shard, table and sum: counts, sums up, places. */
trm_status trmi_batch_arrange_by_shard(trm_ps_batch *b, trmi_arrangement *a, int64_t first,
                                       int64_t end, uint32_t mask, uint32_t match, trm_error *err) {
    const trm_ps_client *c = b->client;
    const size_t sums = (size_t)count_sums(b, mask), each = c->table_count * sums,
                 groups = (size_t)c->shards * c->servers * each;
    TRMI_TRY(reserve_arrangement(b, a, mask, err));
    if (!b->described) {
        trmi_batch_describe(b);
    }
    uint32_t *start = trmi_alloc((groups + 1) * sizeof *start);
    if (start == NULL ||
        !trmi_grow((void **)&a->keys, &a->key_capacity, end - first, sizeof *a->keys) ||
        !trmi_grow((void **)&a->place, &a->place_capacity, end - first, sizeof *a->place)) {
        trmi_free(start);
        return TRMI_NO_MEMORY(err, "for a batch of %lld keys", (long long)(end - first));
    }
    a->mask = mask;
    a->match = match;
    a->in_order = false;
    /* Count the keys of each group. */
    for (int64_t u = first; u < end; u++) {
        const trmi_unique *x = &b->uniques[u];
        /* counts by group, one place further on */
        start[group_of(x, each, sums) + 1] += (x->wanted & mask) == match;
    }
    /* Sum up: groups that have keys become sections, in ascending order of shards. */
    uint32_t sections = 0;
    memset(a->first, 0, (c->servers + 1) * sizeof *a->first);
    for (size_t g = 0; g < groups; g++) {
        uint32_t shard = (uint32_t)(g / each), count = start[g + 1];
        if (count > 0) {
            a->sections[sections++] = (trmi_ps_section){.shard = shard % c->shards,
                                                        .table = (uint32_t)(g % each / sums),
                                                        .node = node_of(b, (int64_t)(g % sums)),
                                                        .count = count,
                                                        .keys = a->keys + start[g]};
            a->first[shard / c->shards + 1]++;
        }
        /* the sum is the group's end, which is the next group's start */
        start[g + 1] += start[g];
    }
    for (uint32_t s = 0; s < c->servers; s++) {
        a->first[s + 1] += a->first[s];
    }
    /* Place the keys: start[g] moves from the group's first key to after its last. */
    a->count = start[groups];
    for (int64_t u = first; u < end; u++) {
        const trmi_unique *x = &b->uniques[u];
        if ((x->wanted & mask) == match) {
            uint32_t at = start[group_of(x, each, sums)]++;
            a->keys[at] = x->key;
            a->place[u - first] = at;
        }
    }
    trmi_free(start);
    return TRM_OK;
}

/* Sets row_zero of the slices: rows of an in-order arrangement need no address each. */
static void locate_in_order(trm_ps_batch *b, const trmi_arrangement *a, int64_t first, int64_t end,
                            size_t element, uint8_t *base) {
    for (int64_t s = 0; s < b->slice_count; s++) {
        const trmi_slice *slice = &b->slices[s];
        if (!slice->is_first || slice->section < 0 || slice->unique_first < first ||
            slice->unique_end > end) {
            continue;
        }
        const size_t row = (size_t)b->client->widths[slice->table] * element;
        uint8_t *at = base != NULL ? base : a->sections[slice->section].values;
        for (int64_t i = s; i >= 0; i = b->slices[i].next) {
            b->slices[i].row_zero = (uintptr_t)at - (uintptr_t)slice->unique_first * row;
        }
        base = base != NULL ? base + (size_t)(slice->unique_end - slice->unique_first) * row : NULL;
    }
}

/* Contract in client.h. */
trm_status trmi_batch_locate(trm_ps_batch *b, const trmi_arrangement *a, int64_t first, int64_t end,
                             size_t element, uint8_t *base, trm_error *err) {
    const trm_ps_client *c = b->client;
    if (a->in_order) {
        locate_in_order(b, a, first, end, element, base);
        return TRM_OK;
    }
    uint8_t **by_place = trmi_alloc((size_t)(a->count + 1) * sizeof *by_place);
    if (by_place == NULL) {
        return TRMI_NO_MEMORY(err, "for a batch of %lld rows", (long long)a->count);
    }
    /* Write the addresses in the order of the message, then by unique key. */
    for (uint32_t i = 0; i < a->first[c->servers]; i++) {
        const trmi_ps_section *s = &a->sections[i];
        const size_t row = (size_t)c->widths[s->table] * element;
        uint8_t *at = base != NULL ? base : s->values;
        uint8_t **out = by_place + (s->keys - a->keys);
        for (int64_t k = 0; k < s->count; k++) {
            out[k] = at + (size_t)k * row;
        }
        base = base != NULL ? base + (size_t)s->count * row : NULL;
    }
    for (int64_t u = first; u < end; u++) {
        if ((b->uniques[u].wanted & a->mask) == a->match) {
            b->row_of[u] = by_place[a->place[u - first]];
        }
    }
    /* row_zero is for rows that lie in the order of the keys; these do not */
    for (int64_t s = 0; s < b->slice_count; s++) {
        b->slices[s].row_zero = 0;
    }
    trmi_free((void *)by_place);
    return TRM_OK;
}

/* Contract in client.h. The keys are copied into the message; the values' addresses are returned
 * in `sections` for the caller to fill. */
trm_status trmi_batch_encode(const trm_ps_client *c, const trmi_ps_header *header,
                             trmi_ps_section *sections, uint8_t *data, trm_error *err) {
    trmi_ps_section *there;
    TRMI_TRY(TRMI_NEW(err, there, header->section_count + 1, "for a message of %u sections",
                      header->section_count));
    memcpy(there, sections, header->section_count * sizeof *there);
    trmi_ps_encode(header, there, c->widths, data);
    for (uint32_t i = 0; i < header->section_count; i++) {
        memcpy(there[i].keys, sections[i].keys,
               (size_t)sections[i].count * sizeof *sections[i].keys);
        sections[i].values = there[i].values;
    }
    trmi_free(there);
    return TRM_OK;
}
