/* Batches: unique keys, pulls and pushes. */
#include "ps/client.h"

#include "base/checked.h"
#include "base/error.h"
#include "base/memory.h"

#include <stdlib.h>

enum { WANT_PULL = 1, WANT_PUSH = 2, CACHED = 4 };

trm_status trm_ps_batch_create(trm_ps_client *client, trm_ps_batch **out, trm_error *err) {
    trm_ps_batch *b = trmi_alloc(sizeof *b);
    if (b != NULL) {
        b->client = client;
        b->index = -1;
        b->answered = trmi_alloc(client->servers * sizeof *b->answered);
        b->answers = trmi_alloc(client->servers * sizeof *b->answers);
        b->asked = trmi_alloc(client->servers * sizeof *b->asked);
    }
    if (b == NULL || b->answered == NULL || b->answers == NULL || b->asked == NULL) {
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
    if (b->answers != NULL && b->answered != NULL) {
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
    const uint32_t wanted =
        (slice->rows != NULL ? WANT_PULL : 0u) | (slice->gradients != NULL ? WANT_PUSH : 0u);
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

static trm_status deduplicate(trm_ps_batch *b, trm_error *err) {
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

/* Sorts the uniques with `wanted & mask` equal to `match` by (shard, table): counting sort. */
static trm_status arrange(trm_ps_batch *b, trmi_arrangement *a, uint32_t mask, uint32_t match,
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

/* ---- pull
 * ------------------------------------------------------------------------------------------------
 */

static void look_in_cache(trm_ps_batch *b) {
    trm_ps_client *c = b->client;
    int64_t oldest = b->index - c->options.cache_staleness;
    for (int64_t u = 0; u < b->unique_count; u++) {
        trmi_unique *x = &b->uniques[u];
        const uint8_t *row = (x->wanted & WANT_PULL) != 0 && c->caches[x->table] != NULL
                                 ? trmi_cache_get(c->caches[x->table], x->key, oldest)
                                 : NULL;
        if (row != NULL) {
            x->wanted |= CACHED;
            b->value_of[u] = row;
            c->stats.cached_keys++;
        }
    }
}

trm_status trmi_batch_ask(trm_ps_batch *b, trmi_peer *peer, double deadline, trm_error *err) {
    trm_ps_client *c = b->client;
    const trmi_arrangement *a = &b->pull;
    uint32_t first = a->first[peer->number], count = a->first[peer->number + 1] - first;
    double left = deadline - trmi_os_now();
    trmi_ps_header header = {.kind = TRMI_PS_PULL,
                             .dtype = (uint16_t)c->options.wire,
                             .worker = c->worker,
                             .incarnation = c->incarnation,
                             .sequence = b->request,
                             .clock = b->index,
                             .section_count = count,
                             .flags = c->reader || b->outside};
    /* The server gives up first, and says for whom it waited. */
    header.extra[1] = (int64_t)((left > 0.6 ? left - 0.3 : left / 2) * 1e3);
    b->asked[peer->number] = trmi_os_now();
    size_t bytes =
        trmi_ps_size(TRMI_PS_PULL, c->options.wire, a->sections + first, count, c->widths);
    trmi_ps_section *sections = trmi_alloc((count + 1) * sizeof *sections);
    trmi_message m;
    trm_status status = bytes == 0 || sections == NULL
                            ? TRMI_FAIL(err, bytes == 0 ? TRM_INVALID : TRM_NOMEM,
                                        "a pull of more than 1 GB of keys: use smaller batches")
                            : peer->channel->table->reserve(peer->channel, bytes, left, &m, err);
    if (status == TRM_OK) {
        memcpy(sections, a->sections + first, count * sizeof *sections);
        trmi_ps_encode(&header, sections, c->widths, m.data);
        for (uint32_t i = 0; i < count; i++) {
            memcpy(sections[i].keys, a->sections[first + i].keys,
                   (size_t)sections[i].count * sizeof *sections[i].keys);
        }
        c->stats.bytes_sent += (int64_t)bytes;
        status = peer->channel->table->commit(peer->channel, &m, left, err);
    }
    trmi_free(sections);
    return status;
}

trm_status trm_ps_pull_start(trm_ps_batch *b, trm_error *err) {
    trm_ps_client *c = b->client;
    if (b->pulling) {
        return TRMI_FAIL(err, TRM_INVALID, "this batch is being pulled already");
    }
    int place = 0;
    while (place < TRMI_BATCHES_MAX && c->batches[place] != NULL) {
        place++;
    }
    if (place == TRMI_BATCHES_MAX) {
        return TRMI_FAIL(err, TRM_INVALID, "at most %d pulls at a time", TRMI_BATCHES_MAX);
    }
    TRMI_TRY(deduplicate(b, err));
    if (!b->outside) {
        b->index = b->index < 0 ? c->next_batch++ : b->index;
        look_in_cache(b);
    }
    TRMI_TRY(arrange(b, &b->pull, WANT_PULL | CACHED, WANT_PULL, err));
    c->stats.lookups += b->lookups;
    c->stats.unique_keys += b->unique_count;
    b->request = ++c->next_request;
    b->err = (trm_error){0};
    b->pulling = true;
    c->batches[place] = b;
    double deadline = trmi_client_deadline(c);
    for (uint32_t s = 0; s < c->servers; s++) {
        /* A bound may have to be waited for even where no rows are wanted. */
        b->answered[s] = b->pull.first[s] == b->pull.first[s + 1] && c->mode == TRM_PS_ASYNC;
    }
    for (uint32_t s = 0; s < c->servers; s++) {
        if (b->answered[s]) {
            continue;
        }
        trm_status status =
            c->peers[s].channel == NULL ? TRM_PEER : trmi_batch_ask(b, &c->peers[s], deadline, err);
        if (status != TRM_OK && status != TRM_PEER) {
            trmi_batch_release(b);
            return status;
        }
        /* TRM_PEER: pull_wait mends the connection and asks again. */
    }
    return TRM_OK;
}

void trmi_batch_answer(trm_ps_batch *b, trmi_peer *peer, const trmi_ps_header *header,
                       trmi_message *m) {
    trm_ps_client *c = b->client;
    uint32_t first = b->pull.first[peer->number], last = b->pull.first[peer->number + 1];
    if (b->answered[peer->number]) {
        return; /* the answer to a repetition: ours is here already */
    }
    b->answered[peer->number] = true;
    trm_error err;
    trmi_ps_section *sections = b->pull.sections + first;
    /* The decoder points values; keys stay. */
    if (header->dtype != c->options.wire ||
        trmi_ps_decode_rows(m->data, m->bytes, header, c->widths, sections, last - first, &err) !=
            TRM_OK) {
        TRMI_FAIL(&b->err, TRM_CORRUPT, "server %d answered a pull with something else",
                  peer->number);
        return;
    }
    b->answers[peer->number] = *m;
    *m = (trmi_message){0};
}

static void find_values(trm_ps_batch *b) {
    const trm_ps_client *c = b->client;
    const trmi_arrangement *a = &b->pull;
    size_t element = trm_dtype_bytes(c->options.wire);
    const uint8_t **by_place = trmi_alloc((size_t)(a->count + 1) * sizeof *by_place);
    if (by_place == NULL) {
        TRMI_FAIL(&b->err, TRM_NOMEM, "no memory for a pull of %lld rows", (long long)a->count);
        return;
    }
    for (uint32_t i = 0; i < a->first[c->servers]; i++) {
        const trmi_ps_section *s = &a->sections[i];
        size_t row = (size_t)c->widths[s->table] * element;
        for (int64_t k = 0; k < s->count; k++) {
            by_place[s->keys - a->keys + k] = s->values + (size_t)k * row;
        }
    }
    for (int64_t u = 0; u < b->unique_count; u++) {
        if ((b->uniques[u].wanted & (WANT_PULL | CACHED)) == WANT_PULL) {
            b->value_of[u] = by_place[a->place[u]];
        }
    }
    trmi_free((void *)by_place);
}

static void scatter(trm_ps_batch *b) {
    enum { AHEAD = 12 };
    const trm_ps_client *c = b->client;
    const trmi_apply_kernels *kernels = trmi_apply_kernels_here();
    const uint32_t *inverse = b->inverse;
    for (int64_t s = 0; s < b->slice_count; s++, inverse += b->slices[s - 1].count) {
        const trmi_slice *slice = &b->slices[s];
        int32_t width = c->widths[slice->table];
        for (int64_t i = 0; slice->rows != NULL && i < slice->count; i++) {
            if (i + AHEAD < slice->count) {
                __builtin_prefetch(b->value_of[inverse[i + AHEAD]]);
            }
            kernels->load[c->options.wire](b->value_of[inverse[i]], width, slice->rows + i * width);
        }
    }
}

static void fill_cache(trm_ps_batch *b) {
    trm_ps_client *c = b->client;
    for (int64_t u = 0; c->options.cache_rows > 0 && !b->outside && u < b->unique_count; u++) {
        const trmi_unique *x = &b->uniques[u];
        if ((x->wanted & (WANT_PULL | CACHED)) == WANT_PULL && c->caches[x->table] != NULL) {
            trmi_cache_put(c->caches[x->table], x->key, b->value_of[u], b->index);
        }
    }
}

trm_status trm_ps_pull_wait(trm_ps_batch *b, trm_error *err) {
    trm_ps_client *c = b->client;
    if (!b->pulling) {
        return TRMI_FAIL(err, TRM_INVALID, "no pull of this batch is under way");
    }
    double deadline = trmi_client_deadline(c);
    trm_status status = TRM_OK;
    for (uint32_t s = 0; s < c->servers && status == TRM_OK; s++) {
        while (status == TRM_OK && !b->answered[s]) {
            status = trmi_client_progress(c, &c->peers[s], deadline, err);
        }
    }
    /* Mending one connection may have taken another server's answer away. */
    for (uint32_t s = 0; s < c->servers && status == TRM_OK; s++) {
        while (status == TRM_OK && !b->answered[s]) {
            status = trmi_client_progress(c, &c->peers[s], deadline, err);
        }
    }
    if (status == TRM_OK && b->err.status == TRM_OK) {
        find_values(b);
    }
    if (status == TRM_OK && b->err.status != TRM_OK) {
        status = (trm_status)b->err.status;
        if (err != NULL) {
            *err = b->err;
        }
    }
    if (status == TRM_OK) {
        scatter(b);
        fill_cache(b);
    }
    trmi_batch_release(b);
    return status;
}

trm_status trm_ps_read(trm_ps_batch *b, trm_error *err) {
    b->outside = true;
    trm_status status = trm_ps_pull_start(b, err);
    if (status == TRM_OK) {
        status = trm_ps_pull_wait(b, err);
    }
    b->outside = false;
    return status;
}

/* ---- push
 * ------------------------------------------------------------------------------------------------
 */

static trmi_pending *take_pending(trmi_peer *peer, size_t bytes, trm_error *err) {
    for (int i = 0; i < TRMI_PUSHES_AHEAD_MAX; i++) {
        trmi_pending *p = &peer->pending[i];
        if (p->sequence != 0) {
            continue;
        }
        if (p->capacity < bytes) {
            trmi_free(p->data);
            p->capacity = bytes + bytes / 4;
            p->data = trmi_alloc(p->capacity);
        }
        if (p->data == NULL) {
            p->capacity = 0;
            break;
        }
        return p;
    }
    TRMI_FAIL(err, TRM_NOMEM, "no memory for a push of %zu bytes", bytes);
    return NULL;
}

static int pending_count(const trmi_peer *peer) {
    int count = 0;
    for (int i = 0; i < TRMI_PUSHES_AHEAD_MAX; i++) {
        count += peer->pending[i].sequence != 0;
    }
    return count;
}

/* Adds up the gradients of equal keys: target[u] is where those of unique u go. */
static void sum_gradients(trm_ps_batch *b, float **target) {
    enum { AHEAD = 12 };
    const trm_ps_client *c = b->client;
    const trmi_apply_kernels *kernels = trmi_apply_kernels_here();
    const uint32_t *inverse = b->inverse;
    for (int64_t s = 0; s < b->slice_count; s++, inverse += b->slices[s - 1].count) {
        const trmi_slice *slice = &b->slices[s];
        int32_t width = c->widths[slice->table];
        for (int64_t i = 0; slice->gradients != NULL && i < slice->count; i++) {
            if (i + AHEAD < slice->count) {
                __builtin_prefetch(target[inverse[i + AHEAD]], 1);
            }
            uint32_t u = inverse[i];
            const float *g = slice->gradients + i * width;
            if (b->uniques[u].touched == 0) {
                b->uniques[u].touched = 1;
                memcpy(target[u], g, (size_t)width * sizeof *g);
            } else {
                kernels->add_scaled(target[u], g, 1, width);
            }
        }
    }
}

/* Where each section's sums go: into the message, or beside it when the wire is narrower. */
static trm_status place_sums(trm_ps_batch *b, float **target, float **by_place, trm_error *err) {
    const trm_ps_client *c = b->client;
    trmi_arrangement *a = &b->push;
    bool direct = c->options.wire == TRM_FLOAT32;
    int64_t floats = 0;
    for (uint32_t i = 0; i < a->first[c->servers]; i++) {
        floats += a->sections[i].count * c->widths[a->sections[i].table];
    }
    if (!direct && !trmi_grow((void **)&b->sums, &b->sum_capacity, floats, sizeof *b->sums)) {
        return TRMI_FAIL(err, TRM_NOMEM, "no memory to sum gradients");
    }
    float *at = b->sums;
    for (uint32_t i = 0; i < a->first[c->servers]; i++) {
        const trmi_ps_section *s = &a->sections[i];
        int64_t width = c->widths[s->table];
        float *from = direct ? (float *)(void *)s->values : at;
        for (int64_t k = 0; k < s->count; k++) {
            by_place[s->keys - a->keys + k] = from + k * width;
        }
        at += direct ? 0 : s->count * width;
    }
    for (int64_t u = 0; u < b->unique_count; u++) {
        b->uniques[u].touched = 0;
        if ((b->uniques[u].wanted & WANT_PUSH) != 0) {
            target[u] = by_place[a->place[u]];
        }
    }
    return TRM_OK;
}

static void narrow_sums(trm_ps_batch *b, float **by_place) {
    const trm_ps_client *c = b->client;
    const trmi_arrangement *a = &b->push;
    const trmi_apply_kernels *kernels = trmi_apply_kernels_here();
    for (uint32_t i = 0; i < a->first[c->servers]; i++) {
        const trmi_ps_section *s = &a->sections[i];
        int32_t width = c->widths[s->table];
        size_t row = (size_t)width * trm_dtype_bytes(c->options.wire);
        for (int64_t k = 0; k < s->count; k++) {
            kernels->store[c->options.wire](by_place[s->keys - a->keys + k], width, 0,
                                            s->values + (size_t)k * row);
        }
    }
}

/* Builds the messages to all servers in their pending places. */
static trm_status build_messages(trm_ps_batch *b, const trmi_ps_header *like,
                                 trmi_pending **messages, trm_error *err) {
    trm_ps_client *c = b->client;
    trmi_arrangement *a = &b->push;
    for (uint32_t s = 0; s < c->servers; s++) {
        trmi_ps_section *sections = a->sections + a->first[s];
        trmi_ps_header header = *like;
        header.section_count = a->first[s + 1] - a->first[s];
        size_t bytes =
            trmi_ps_size(TRMI_PS_PUSH, c->options.wire, sections, header.section_count, c->widths);
        if (bytes == 0) {
            return TRMI_FAIL(err, TRM_INVALID, "a push of more than 1 GB: use smaller batches");
        }
        messages[s] = take_pending(&c->peers[s], bytes, err);
        if (messages[s] == NULL) {
            return TRM_NOMEM;
        }
        messages[s]->bytes = bytes;
        /* The encoder points keys into the message; ours stay where the places are counted from. */
        trmi_ps_encode(&header, sections, c->widths, messages[s]->data);
        uint64_t *from = a->keys;
        for (uint32_t i = 0; i < a->first[s]; i++) {
            from += a->sections[i].count;
        }
        for (uint32_t i = 0; i < header.section_count; i++) {
            memcpy(sections[i].keys, from, (size_t)sections[i].count * sizeof *from);
            sections[i].keys = from;
            from += sections[i].count;
        }
    }
    return TRM_OK;
}

static trm_status fill_messages(trm_ps_batch *b, const trmi_ps_header *header,
                                trmi_pending **messages, trm_error *err) {
    size_t uniques = (size_t)b->unique_count + 1;
    float **target = trmi_alloc(uniques * sizeof(float *));
    float **by_place = trmi_alloc(uniques * sizeof(float *));
    trm_status status = target == NULL || by_place == NULL
                            ? TRMI_FAIL(err, TRM_NOMEM, "no memory for a push")
                            : build_messages(b, header, messages, err);
    if (status == TRM_OK) {
        status = place_sums(b, target, by_place, err);
    }
    if (status == TRM_OK) {
        sum_gradients(b, target);
        if (b->client->options.wire != TRM_FLOAT32) {
            narrow_sums(b, by_place);
        }
    }
    trmi_free(target);
    trmi_free(by_place);
    return status;
}

static trm_status push_failed(trm_ps_client *c, trm_error *err) {
    if (c->push_err.status == TRM_OK) {
        return TRM_OK;
    }
    trm_status status = (trm_status)c->push_err.status;
    if (err != NULL) {
        *err = c->push_err;
    }
    c->push_err = (trm_error){0}; /* told once */
    return status;
}

/* Server 0 alone knows whose a lease is: the other servers get gradients made under it after server
 * 0 has taken them. When it refuses, nobody gets them. */
static trm_status hear_of_lease(trm_ps_client *c, trmi_pending **messages, uint64_t sequence,
                                double deadline, trm_error *err) {
    while (messages[0]->sequence == sequence) {
        TRMI_TRY(trmi_client_progress(c, &c->peers[0], deadline, err));
    }
    if (c->push_err.status != TRM_CANCELLED) {
        return TRM_OK;
    }
    /* Their windows must have no hole: they get the push without its rows. */
    for (uint32_t s = 1; s < c->servers; s++) {
        trmi_ps_header header;
        TRMI_TRY(trmi_ps_decode_header(messages[s]->data, messages[s]->bytes, &header, err));
        header.section_count = 0;
        trmi_ps_encode(&header, NULL, c->widths, messages[s]->data);
        messages[s]->bytes = trmi_ps_size(TRMI_PS_PUSH, c->options.wire, NULL, 0, c->widths);
        TRMI_TRY(trmi_client_send(c, &c->peers[s], messages[s]->data, messages[s]->bytes, deadline,
                                  err));
    }
    return push_failed(c, err);
}

trm_status trm_ps_push(trm_ps_batch *b, const trm_ps_push_options *options, trm_error *err) {
    trm_ps_client *c = b->client;
    double deadline = trmi_client_deadline(c);
    if (c->reader || b->pulling) {
        return TRMI_FAIL(err, TRM_INVALID,
                         c->reader ? "this client (worker -1) only reads"
                                   : "wait for the pull before the push");
    }
    TRMI_TRY(deduplicate(b, err));
    for (uint32_t s = 0; s < c->servers; s++) {
        while (pending_count(&c->peers[s]) >= c->options.pushes_ahead) {
            TRMI_TRY(trmi_client_progress(c, &c->peers[s], deadline, err));
        }
    }
    TRMI_TRY(push_failed(c, err));
    TRMI_TRY(arrange(b, &b->push, WANT_PUSH, WANT_PUSH, err));
    b->index = b->index < 0 ? c->next_batch++ : b->index;
    trmi_ps_header header = {.kind = TRMI_PS_PUSH,
                             .dtype = (uint16_t)c->options.wire,
                             .worker = c->worker,
                             .incarnation = c->incarnation,
                             .sequence = c->next_sequence + 1,
                             .clock = b->index + 1};
    if (options != NULL) {
        header.extra[0] = options->lease.id;
        header.extra[1] = options->position;
    }
    header.rate_scale = options == NULL || options->rate_scale == 0 ? 1 : options->rate_scale;
    trmi_pending **messages = trmi_alloc(c->servers * sizeof(trmi_pending *));
    trm_status status = messages == NULL ? TRMI_FAIL(err, TRM_NOMEM, "no memory for a push")
                                         : fill_messages(b, &header, messages, err);
    if (status == TRM_OK) {
        c->next_sequence++;
        c->stats.pushes++;
        for (uint32_t s = 0; s < c->servers; s++) {
            messages[s]->sequence = header.sequence;
            messages[s]->sent = trmi_os_now();
        }
        /* From here on the push is the connection's to deliver, however often it breaks. */
        for (uint32_t s = 0; s < c->servers && status == TRM_OK; s++) {
            if (messages[s]->sequence == header.sequence) {
                status = trmi_client_send(c, &c->peers[s], messages[s]->data, messages[s]->bytes,
                                          deadline, err);
            }
            if (s == 0 && c->servers > 1 && header.extra[0] != 0 && status == TRM_OK) {
                status = hear_of_lease(c, messages, header.sequence, deadline, err);
            }
        }
    }
    trmi_free(messages);
    return status;
}

trm_status trm_ps_flush(trm_ps_client *c, trm_error *err) {
    double deadline = trmi_client_deadline(c);
    for (uint32_t s = 0; s < c->servers; s++) {
        while (pending_count(&c->peers[s]) > 0) {
            TRMI_TRY(trmi_client_progress(c, &c->peers[s], deadline, err));
        }
    }
    return push_failed(c, err);
}
