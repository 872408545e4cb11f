/* Pulls: one request a server, and the rows from the answers to every look-up. */
#include "ps/client.h"

#include "base/error.h"
#include "base/memory.h"

static void look_in_cache(trm_ps_batch *b) {
    trm_ps_client *c = b->client;
    int64_t oldest = b->index - c->options.cache_staleness;
    for (int64_t u = 0; u < b->unique_count; u++) {
        trmi_unique *x = &b->uniques[u];
        const uint8_t *row = (x->wanted & TRMI_WANT_PULL) != 0 && c->caches[x->table] != NULL
                                 ? trmi_cache_get(c->caches[x->table], x->key, oldest)
                                 : NULL;
        if (row != NULL) {
            x->wanted |= TRMI_CACHED;
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
    header.extra[0] = c->joined;
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
    TRMI_TRY(trmi_batch_deduplicate(b, err));
    if (!b->outside) {
        b->index = b->index < 0 ? c->next_batch++ : b->index;
        look_in_cache(b);
    }
    TRMI_TRY(trmi_batch_arrange(b, &b->pull, TRMI_WANT_PULL | TRMI_CACHED, TRMI_WANT_PULL, err));
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

/* Copies an answer that will be wanted later: where it lies, it is in the way of others. */
static void keep_answer(trm_ps_batch *b, int32_t server) {
    trm_ps_client *c = b->client;
    trmi_message *m = &b->answers[server];
    trmi_channel *channel = c->peers[server].channel;
    uint8_t *copy = m->block == NULL || channel == NULL ? NULL : trmi_alloc(m->bytes);
    if (copy == NULL) {
        return;
    }
    trmi_ps_header header;
    uint32_t first = b->pull.first[server], last = b->pull.first[server + 1];
    memcpy(copy, m->data, m->bytes);
    if (trmi_ps_decode_header(copy, m->bytes, &header, NULL) != TRM_OK ||
        trmi_ps_decode_rows(copy, m->bytes, &header, c->widths, b->pull.sections + first,
                            last - first, NULL) != TRM_OK) {
        trmi_free(copy); /* cannot be: it was decoded before */
        return;
    }
    b->kept[server] = copy;
    channel->table->release(channel, m);
    *m = (trmi_message){0};
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
    if (c->reading && !b->outside) {
        keep_answer(b, peer->number);
    }
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
        if ((b->uniques[u].wanted & (TRMI_WANT_PULL | TRMI_CACHED)) == TRMI_WANT_PULL) {
            b->value_of[u] = by_place[a->place[u]];
        }
    }
    trmi_free((void *)by_place);
}

enum { ROWS_AHEAD = 12 };

/* Rows as they are. Inlined with a width that is known, a row is a few moves. */
static inline void copy_rows(const trm_ps_batch *b, const trmi_slice *slice, const uint32_t *inverse, int32_t width) {
    for (int64_t i = 0; i < slice->count; i++) {
        if (i + ROWS_AHEAD < slice->count) {
            __builtin_prefetch(b->value_of[inverse[i + ROWS_AHEAD]]);
        }
        memcpy(slice->rows + i * width, b->value_of[inverse[i]], (size_t)width * sizeof(float));
    }
}

static void convert_rows(const trm_ps_batch *b, const trmi_slice *slice, const uint32_t *inverse, int32_t width) {
    const trmi_apply_kernels *kernels = trmi_apply_kernels_here();
    trm_dtype wire = b->client->options.wire;
    for (int64_t i = 0; i < slice->count; i++) {
        if (i + ROWS_AHEAD < slice->count) {
            __builtin_prefetch(b->value_of[inverse[i + ROWS_AHEAD]]);
        }
        kernels->load[wire](b->value_of[inverse[i]], width, slice->rows + i * width);
    }
}

static void scatter(trm_ps_batch *b) {
    const trm_ps_client *c = b->client;
    const uint32_t *inverse = b->inverse;
    for (int64_t s = 0; s < b->slice_count; s++, inverse += b->slices[s - 1].count) {
        const trmi_slice *slice = &b->slices[s];
        int32_t width = c->widths[slice->table];
        if (slice->rows == NULL) {
            continue;
        }
        if (c->options.wire != TRM_FLOAT32) {
            convert_rows(b, slice, inverse, width);
        } else if (width == 16) {
            copy_rows(b, slice, inverse, 16);
        } else if (width == 1) {
            copy_rows(b, slice, inverse, 1);
        } else {
            copy_rows(b, slice, inverse, width);
        }
    }
}

static void fill_cache(trm_ps_batch *b) {
    trm_ps_client *c = b->client;
    for (int64_t u = 0; !b->outside && u < b->unique_count; u++) {
        const trmi_unique *x = &b->uniques[u];
        if ((x->wanted & (TRMI_WANT_PULL | TRMI_CACHED)) == TRMI_WANT_PULL &&
            c->caches[x->table] != NULL) {
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
        if (!b->answered[s]) {
            status = trmi_client_progress(c, &c->peers[s], deadline, err);
            s = UINT32_MAX; /* from the first again: mending takes an answer away that was there */
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
    trm_ps_client *c = b->client;
    b->outside = c->reading = true;
    for (int i = 0; i < TRMI_BATCHES_MAX; i++) {
        for (uint32_t s = 0; c->batches[i] != NULL && s < c->servers; s++) {
            keep_answer(c->batches[i], (int32_t)s);
        }
    }
    trm_status status = trm_ps_pull_start(b, err);
    if (status == TRM_OK) {
        status = trm_ps_pull_wait(b, err);
    }
    b->outside = c->reading = false;
    return status;
}
