/* SPDX-License-Identifier: Apache-2.0 */
/* Pulls: one request for each server and part of the batch, and the rows of the answers copied
 * to every lookup.
 *
 *       trm_ps_pull_start   numbers keys and sends parts, as long as their answers have room in the ring
 *       trm_ps_pull_wait    for each part: wait for all servers, find the rows, scatter them, fill the cache, release */
#include "ps/client/client.h"

#include "base/arguments.h"
#include "base/checked.h"
#include "base/error.h"
#include "base/memory.h"

/* ---- hot rows -------------------------------------------------------------------------------- */

/* Returns how many of its own batches a cached row may be old: cache_staleness, or less if the
 * table allows less. */
static int64_t find_max_age(const trm_ps_client *c, uint32_t table) {
    int32_t bound = trmi_table_bound(c->tables[table].staleness, c->options.cache_staleness);
    return bound < c->options.cache_staleness ? bound : c->options.cache_staleness;
}

/* Copies the cached rows of a part and marks their keys as cached. They are copied because a
 * later batch may overwrite them in the cache before this one is awaited. */
static trm_status copy_cached_rows(trm_ps_batch *b, const trmi_part *part, trm_error *err) {
    trm_ps_client *c = b->client;
    if (!trmi_client_has_cache(c)) {
        return TRM_OK;
    }
    if (!b->described) { /* a cache was added after the keys were numbered */
        trmi_batch_describe(b);
    }
    for (int64_t u = part->first; u < part->end; u++) {
        trmi_unique *x = &b->uniques[u];
        const uint8_t *row =
            (x->wanted & TRMI_WANT_PULL) != 0 && c->caches[x->table] != NULL
                ? trmi_cache_get(c->caches[x->table], x->key, b->index - find_max_age(c, x->table))
                : NULL;
        /* the mark of an earlier pull of this batch is void */
        x->wanted &= ~(uint32_t)TRMI_CACHED;
        if (row == NULL) {
            continue;
        }
        int64_t bytes = c->widths[x->table] * (int64_t)trm_dtype_bytes(c->options.wire);
        if (!trmi_grow((void **)&b->hot, &b->hot_capacity, b->hot_bytes + bytes, 1)) {
            return TRMI_NO_MEMORY(err, "for a batch's hot rows");
        }
        memcpy(b->hot + b->hot_bytes, row, (size_t)bytes);
        b->hot_bytes += bytes;
        x->wanted |= TRMI_CACHED;
        c->stats.cached_keys++;
    }
    return TRM_OK;
}

/* Offers the rows that were fetched for a part to the caches. */
static void offer_to_caches(trm_ps_batch *b, const trmi_part *part) {
    trm_ps_client *c = b->client;
    const bool keeps = trmi_client_has_cache(c) && !b->outside && !part->pull.in_order;
    for (int64_t u = part->first; keeps && u < part->end; u++) {
        const trmi_unique *x = &b->uniques[u];
        if ((x->wanted & (TRMI_WANT_PULL | TRMI_CACHED)) == TRMI_WANT_PULL &&
            c->caches[x->table] != NULL) {
            trmi_cache_put(c->caches[x->table], x->key, b->row_of[u], b->index);
        }
    }
}

/* ---- requests -------------------------------------------------------------------------------- */

/* Prepares the request of the next part: numbers its keys, looks into the cache, arranges the
 * rest by server. */
static trm_status prepare_part(trm_ps_batch *b, trm_error *err) {
    trm_ps_client *c = b->client;
    trmi_part *part = &b->parts[b->asked];
    if (b->numbered == b->asked) {
        trmi_batch_number_part(b);
    }
    if (!b->outside) {
        TRMI_TRY(copy_cached_rows(b, part, err));
    }
    TRMI_TRY(trmi_batch_arrange(b, &part->pull, part->first, part->end,
                                TRMI_WANT_PULL | TRMI_CACHED, TRMI_WANT_PULL, err));
    /* the bytes of rows that this part will receive */
    part->bytes = 0;
    for (uint32_t i = 0; i < part->pull.first[c->servers]; i++) {
        const trmi_ps_section *s = &part->pull.sections[i];
        part->bytes +=
            (size_t)s->count * (size_t)c->widths[s->table] * trm_dtype_bytes(c->options.wire);
    }
    part->request = ++c->next_request;
    part->done = false;
    for (uint32_t s = 0; s < c->servers; s++) {
        /* Where workers wait for each other the first part is sent even without keys: the
         * server's answer is the permission to go on. */
        bool nothing = part->pull.first[s] == part->pull.first[s + 1] &&
                       (c->mode == TRM_PS_ASYNC || b->asked > 0);
        part->replies[s] = (trmi_reply){.here = nothing};
    }
    b->asked++;
    return TRM_OK;
}

/* Sends the next part to all servers that have keys of it. */
static trm_status send_part(trm_ps_batch *b, double deadline, trm_error *err) {
    trm_ps_client *c = b->client;
    trmi_part *part = &b->parts[b->asked];
    TRMI_TRY(prepare_part(b, err));
    for (uint32_t s = 0; s < c->servers; s++) {
        if (part->replies[s].here || c->peers[s].channel == NULL) {
            continue; /* no connection: trm_ps_pull_wait repairs it and sends again */
        }
        trm_status status = trmi_batch_ask(b, part, &c->peers[s], deadline, err);
        if (status != TRM_OK && status != TRM_PEER) {
            return status;
        }
    }
    return TRM_OK;
}

/* Sends parts ahead while their answers take at most a quarter of the ring: a server whose
 * answer finds no room takes no further requests. */
static trm_status send_ahead(trm_ps_batch *b, double deadline, trm_error *err) {
    const size_t room = b->client->options.ring_bytes / 4;
    for (;;) {
        size_t under_way = 0;
        for (int32_t p = 0; p < b->asked; p++) {
            under_way += b->parts[p].done ? 0 : b->parts[p].bytes;
        }
        if (b->asked == b->part_count || under_way > room) {
            return TRM_OK;
        }
        TRMI_TRY(send_part(b, deadline, err));
    }
}

/* Takes a place for the batch and sends as many of its parts as may be under way; the rest follow
 * as answers come. */
static trm_status start_pull(trm_ps_batch *batch, trm_error *err) {
    trm_ps_client *c = batch->client;
    if (batch->pulling) {
        return TRMI_FAIL(err, TRM_INVALID, "this batch is being pulled already");
    }
    int place = 0; /* the first free place of c->batches */
    while (place < TRMI_BATCHES_MAX && c->batches[place] != NULL) {
        place++;
    }
    if (place == TRMI_BATCHES_MAX) {
        return TRMI_FAIL(err, TRM_INVALID, "at most %d pulls at a time", TRMI_BATCHES_MAX);
    }
    /* The keys are divided into parts, each with a request of its own. The batch gets its number
     * once; a pull that is repeated keeps it. */
    TRMI_TRY(trmi_batch_cut(batch, err));
    if (!batch->outside) {
        batch->index = batch->index < 0 ? c->next_batch++ : batch->index;
    }
    batch->asked = 0;
    batch->hot_bytes = 0;
    batch->err = (trm_error){0};
    batch->pulling = true;
    c->batches[place] = batch;
    batch->deadline = trmi_client_deadline(c);
    /* the first requests go out now; the rest as answers arrive */
    trm_status status = send_ahead(batch, batch->deadline, err);
    if (status != TRM_OK) {
        trmi_batch_release(batch);
    }
    return status;
}

trm_status trm_ps_pull_start(trm_ps_batch *batch, trm_error *err) {
    TRMI_NEED(err, batch);
    return trmi_client_note(batch->client, start_pull(batch, err));
}

/* ---- rows --------------------------------------------------------------------------------- */

/* Finds the address of each distinct key's row of a part, in an answer or among the cached rows.
 * *hot: bytes of cached rows used so far. */
static trm_status find_rows(trm_ps_batch *b, const trmi_part *part, size_t *hot, trm_error *err) {
    const trm_ps_client *c = b->client;
    const size_t element = trm_dtype_bytes(c->options.wire);
    const bool cached = trmi_client_has_cache(c);
    TRMI_TRY(trmi_batch_locate(b, &part->pull, part->first, part->end, element, NULL, err));
    for (int64_t u = part->first; cached && u < part->end; u++) {
        const trmi_unique *x = &b->uniques[u];
        if ((x->wanted & TRMI_CACHED) != 0) {
            b->row_of[u] = b->hot + *hot;
            *hot += (size_t)c->widths[x->table] * element;
        }
    }
    return TRM_OK;
}

/* a row is prefetched so many rows before it is copied */
enum { ROWS_AHEAD = 12 };

/* Copies float32 rows to the lookups of a slice. Inlined with a constant width, a row is a few
 * moves. */
static inline void copy_rows(const trm_ps_batch *b, const trmi_slice *slice,
                             const uint32_t *inverse, int32_t width) {
    const size_t row = (size_t)width * sizeof(float);
    for (int64_t i = 0; i < slice->count; i++) {
        if (i + ROWS_AHEAD < slice->count) {
            __builtin_prefetch(trmi_batch_row(b, slice, row, inverse[i + ROWS_AHEAD]));
        }
        memcpy(slice->rows + i * width, trmi_batch_row(b, slice, row, inverse[i]), row);
    }
}

/* Converts rows from the wire's dtype to the lookups of a slice. */
static void convert_rows(const trm_ps_batch *b, const trmi_slice *slice, const uint32_t *inverse,
                         int32_t width) {
    const trmi_apply_kernels *kernels = trmi_apply_kernels_here();
    trm_dtype wire = b->client->options.wire;
    const size_t row = (size_t)width * trm_dtype_bytes(wire);
    for (int64_t i = 0; i < slice->count; i++) {
        if (i + ROWS_AHEAD < slice->count) {
            __builtin_prefetch(trmi_batch_row(b, slice, row, inverse[i + ROWS_AHEAD]));
        }
        kernels->load[wire](trmi_batch_row(b, slice, row, inverse[i]), width,
                            slice->rows + i * width);
    }
}

/* Returns whether the rows of a slice lie in the answer exactly as they are needed. */
static bool lies_in_order(const trm_ps_batch *b, const trmi_slice *slice) {
    return slice->keys_in_order && slice->row_zero != 0 && b->client->options.wire == TRM_FLOAT32;
}

/* Copies the rows of a part to all lookups of its slices. */
static void scatter_rows(trm_ps_batch *b, int32_t part) {
    const trm_ps_client *c = b->client;
    for (int64_t s = 0; s < b->slice_count; s++) {
        const trmi_slice *slice = &b->slices[s];
        const uint32_t *inverse = b->inverse + slice->first;
        int32_t width = c->widths[slice->table];
        if (slice->rows == NULL || slice->part != part) {
            continue;
        }
        if (lies_in_order(b, slice)) {
            const size_t row = (size_t)width * sizeof(float);
            memcpy(slice->rows, trmi_batch_row(b, slice, row, (uint32_t)slice->unique_first),
                   (size_t)slice->count * row);
        } else if (c->options.wire != TRM_FLOAT32) {
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

/* Receives a message of `peer`. Rows of a batch are those of a step, rows that are read outside of
 * training are not. */
static trm_status receive_message(trm_ps_batch *b, trmi_server_connection *peer, double deadline,
                                  trm_error *err) {
    return b->outside ? trmi_client_progress(b->client, peer, deadline, err)
                      : trmi_client_await_step(b->client, peer, deadline, err);
}

/* Waits until server 0 has answered all pushes: its answers contain the steps that the other
 * servers need before they answer this pull. They may arrive after server 0's rows. */
static trm_status wait_for_step(trm_ps_batch *b, double deadline, trm_error *err) {
    trm_ps_client *c = b->client;
    while (c->staging && !b->outside && c->servers > 1 && b->err.status == TRM_OK &&
           trmi_client_pushes_pending(&c->peers[0]) > 0) {
        TRMI_TRY(receive_message(b, &c->peers[0], deadline, err));
    }
    return TRM_OK;
}

/* Receives messages until all servers have answered a part, or one has refused it: what the others
 * wait for may then never come. */
static trm_status wait_for_part(trm_ps_batch *b, const trmi_part *part, double deadline,
                                trm_error *err) {
    trm_ps_client *c = b->client;
    TRMI_TRY(wait_for_step(b, deadline, err));
    for (uint32_t s = 0; s < c->servers; s++) {
        while (!part->replies[s].here && b->err.status == TRM_OK) {
            TRMI_TRY(receive_message(b, &c->peers[s], deadline, err));
            s = 0; /* begin with the first server again: a repair may have dropped its answer */
        }
    }
    if (b->err.status != TRM_OK && err != NULL) {
        *err = b->err;
    }
    return (trm_status)b->err.status;
}

/* Completes all parts of a pull in order. */
static trm_status finish_pull(trm_ps_batch *b, trm_error *err) {
    trm_ps_client *c = b->client;
    double deadline = b->deadline = trmi_client_deadline(c);
    size_t hot = 0;
    for (int32_t p = 0; p < b->part_count; p++) {
        trmi_part *part = &b->parts[p];
        TRMI_TRY(send_ahead(b, deadline, err));
        TRMI_TRY(wait_for_part(b, part, deadline, err));
        TRMI_TRY(find_rows(b, part, &hot, err));
        scatter_rows(b, p);
        offer_to_caches(b, part);
        part->done = true;
        trmi_part_release(c, part);
    }
    c->stats.lookups += b->lookups;
    c->stats.unique_keys += b->unique_count;
    return TRM_OK;
}

trm_status trm_ps_pull_wait(trm_ps_batch *batch, trm_error *err) {
    TRMI_NEED(err, batch);
    if (!batch->pulling) {
        return TRMI_FAIL(err, TRM_INVALID, "no pull of this batch is under way");
    }
    batch->client->awaited = batch;
    trm_status status = trmi_client_note(batch->client, finish_pull(batch, err));
    batch->client->awaited = NULL;
    trmi_batch_release(batch);
    return status;
}

/* Contract in trireme/ps.h. Answers of other batches that are under way are copied out of the
 * channels first, so that they do not block this read. A worker that fails here owes its batches as
 * one that fails in a pull: the others wait for its next life. */
trm_status trm_ps_read(trm_ps_batch *batch, trm_error *err) {
    TRMI_NEED(err, batch);
    trm_ps_client *c = batch->client;
    batch->outside = c->reading = true;
    for (int i = 0; i < TRMI_BATCHES_MAX; i++) {
        for (uint32_t s = 0; c->batches[i] != NULL && s < c->servers; s++) {
            for (int32_t p = 0; p < c->batches[i]->asked; p++) {
                trmi_batch_keep_answer(c, &c->batches[i]->parts[p], s);
            }
        }
    }
    trm_status status = trm_ps_pull_start(batch, err);
    if (status == TRM_OK) {
        status = trm_ps_pull_wait(batch, err);
    }
    batch->outside = c->reading = false;
    return status;
}
