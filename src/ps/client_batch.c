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
    }
    bool whole = b != NULL;
    for (int p = 0; p < TRMI_PARTS_MAX && whole; p++) {
        b->parts[p].replies = trmi_alloc(client->servers * sizeof(trmi_reply));
        whole = b->parts[p].replies != NULL;
    }
    if (!whole) {
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

/* Gives all answers back; forgets the pull. */
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
    free(b->inverse);
    free(b->unique.keys);
    free(b->unique.map);
    free(b->unique.number);
    free(b->unique.left);
    free(b->unique.distinct);
    free(b->unique.inverse);
    free(b->unique.last_of);
    free((void *)b->value_of);
    free(b->sums);
    free(b->hot);
    trmi_free(b);
}

void trm_ps_batch_clear(trm_ps_batch *b) {
    trmi_batch_release(b);
    b->slice_count = b->lookups = b->unique_count = 0;
    b->cut = false;
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
    if (b->pulling || b->cut) {
        return TRMI_FAIL(err, TRM_INVALID, "the batch has been pulled: clear it first");
    }
    if (!trmi_grow((void **)&b->slices, &b->slice_capacity, b->slice_count + 1,
                   sizeof *b->slices)) {
        return TRMI_FAIL(err, TRM_NOMEM, "no memory for a slice");
    }
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

/* ---- sections
 * ---------------------------------------------------------------------------------------- */

trm_status trmi_batch_arrange(trm_ps_batch *b, trmi_arrangement *a, int64_t first, int64_t end, uint32_t mask,
                              uint32_t match, trm_error *err) {
    const trm_ps_client *c = b->client;
    size_t tables = c->table_count, groups = (size_t)c->shards * c->servers * tables;
    uint32_t *start = trmi_alloc((groups + 1) * sizeof *start);
    a->first = a->first != NULL ? a->first : trmi_alloc((c->servers + 1) * sizeof *a->first);
    if (start == NULL || a->first == NULL ||
        !trmi_grow((void **)&a->keys, &a->key_capacity, end - first, sizeof *a->keys) ||
        !trmi_grow((void **)&a->place, &a->place_capacity, end - first, sizeof *a->place) ||
        !trmi_grow((void **)&a->sections, &a->section_capacity, (int64_t)groups,
                   sizeof *a->sections)) {
        trmi_free(start);
        return TRMI_FAIL(err, TRM_NOMEM, "no memory for a batch of %lld keys",
                         (long long)(end - first));
    }
    for (int64_t u = first; u < end; u++) {
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
    for (int64_t u = first; u < end; u++) {
        const trmi_unique *x = &b->uniques[u];
        if ((x->wanted & mask) == match) {
            uint32_t at = start[x->shard * tables + x->table]++;
            a->keys[at] = x->key;
            a->place[u - first] = at;
        }
    }
    trmi_free(start);
    return TRM_OK;
}
