/* SPDX-License-Identifier: Apache-2.0 */
/* Pushes: gradients of equal keys are summed into one message for each server, which is kept
 * until it is answered.
 *
 *       trm_ps_push    distinct keys -> sections -> messages in pending places -> sum gradients into them -> deliver
 *
 * With float32 on the wire the sums are made in place in the messages; narrower wires round a
 * copy. At most pushes_ahead pushes are unanswered at a time. */
#include "ps/client/client.h"

#include "base/arguments.h"
#include "base/checked.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/rng.h"

#include <stddef.h>

/* Finds a free pending place and makes room for a message of `bytes`. NULL without memory; a
 * free place exists, because trm_ps_push waits for one. */
static trmi_pending *take_pending(trmi_server_connection *peer, size_t bytes, trm_error *err) {
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
    TRMI_NO_MEMORY(err, "for a push of %zu bytes", bytes);
    return NULL;
}

/* Marks a unique as seen; returns true the first time. */
static inline bool mark_touched(trm_ps_batch *b, uint32_t unique) {
    const uint64_t bit = (uint64_t)1 << unique % 64;
    bool first = (b->touched[unique / 64] & bit) == 0;
    b->touched[unique / 64] |= bit;
    return first;
}

/* Adds the gradients of one slice to the sums of their uniques. Inlined with a constant width, a
 * row is a few moves. */
static inline void sum_slice(trm_ps_batch *b, const trmi_slice *slice, int32_t width) {
    enum { AHEAD = 12 };
    const trmi_apply_kernels *kernels = trmi_apply_kernels_here();
    const uint32_t *inverse = b->inverse + slice->first;
    const size_t row = (size_t)width * sizeof(float);
    for (int64_t i = 0; i < slice->count; i++) {
        if (i + AHEAD < slice->count) {
            __builtin_prefetch(trmi_batch_row(b, slice, row, inverse[i + AHEAD]), 1);
        }
        const float *g = slice->gradients + i * width;
        float *sum = (float *)(void *)trmi_batch_row(b, slice, row, inverse[i]);
        if (mark_touched(b, inverse[i])) {
            memcpy(sum, g, row);
        } else {
            kernels->add_scaled(sum, g, 1, width);
        }
    }
}

/* Sums the gradients of all slices. A slice whose keys are distinct and in the order of the message
 * is copied as a whole. */
static void sum_gradients(trm_ps_batch *b) {
    memset(b->touched, 0, (size_t)(b->unique_count / 64 + 1) * sizeof *b->touched);
    for (int64_t s = 0; s < b->slice_count; s++) {
        const trmi_slice *slice = &b->slices[s];
        const int32_t width = b->client->widths[slice->table];
        if (slice->gradients == NULL) {
            continue;
        }
        if (slice->by_blocks && b->blocks.nodes == 1) {
            trmi_batch_sum_tree(b, slice);
        } else if (slice->keys_in_order &&
                   slice->row_zero != 0) { /* distinct keys in order: one copy */
            const size_t row = (size_t)width * sizeof(float);
            memcpy(trmi_batch_row(b, slice, row, (uint32_t)slice->unique_first), slice->gradients,
                   (size_t)slice->count * row);
        } else if (width == 16) {
            sum_slice(b, slice, 16);
        } else {
            sum_slice(b, slice, width);
        }
    }
}

/* Determines where the sums go: into the messages, or into b->sums if the wire is narrower. */
static trm_status place_sums(trm_ps_batch *b, trm_error *err) {
    const trm_ps_client *c = b->client;
    const trmi_arrangement *a = &b->push;
    int64_t floats = 1;
    for (uint32_t i = 0; i < a->first[c->servers]; i++) {
        floats += a->sections[i].count * c->widths[a->sections[i].table];
    }
    bool direct = c->options.wire == TRM_FLOAT32;
    if (!direct && !trmi_grow((void **)&b->sums, &b->sum_capacity, floats, sizeof *b->sums)) {
        return TRMI_NO_MEMORY(err, "to sum gradients");
    }
    return trmi_batch_locate(b, a, 0, b->unique_count, sizeof(float),
                             direct ? NULL : (uint8_t *)b->sums, err);
}

/* Rounds the sums to the wire's 16 bits, stochastically: rounding to nearest would lose small
 * gradients push after push. The noise is a hash of table, key, worker and batch, so that a
 * restart repeats it. */
static void narrow_sums(trm_ps_batch *b) {
    const trm_ps_client *c = b->client;
    const trmi_arrangement *a = &b->push;
    const trmi_apply_kernels *kernels = trmi_apply_kernels_here();
    const float *sum = b->sums;
    for (uint32_t i = 0; i < a->first[c->servers]; i++) {
        const trmi_ps_section *s = &a->sections[i];
        int32_t width = c->widths[s->table];
        size_t row = (size_t)width * trm_dtype_bytes(c->options.wire);
        const trm_table_options *table = &c->tables[s->table];
        uint64_t push = trmi_mix(table->seed ^ 0x57495245,
                                 (uint64_t)c->worker << 40 | (uint64_t)(b->index + 1));
        for (int64_t k = 0; k < s->count; k++, sum += width) {
            uint64_t noise = trmi_mix(push, trmi_key_hash(s->keys[k])) | 1;
            kernels->store[c->options.wire](sum, width, table->round_to_nearest ? 0 : noise,
                                            s->values + (size_t)k * row);
        }
    }
}

/* Encodes the messages to all servers, without gradients, into pending places. messages[s]: the
 * place of server s. */
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
        messages[s]->lease = header.extra[0];
        TRMI_TRY(trmi_batch_encode(c, &header, sections, messages[s]->data, err));
    }
    return TRM_OK;
}

/* Encodes the messages and fills in the gradients. */
static trm_status fill_messages(trm_ps_batch *b, const trmi_ps_header *header,
                                trmi_pending **messages, trm_error *err) {
    TRMI_TRY(build_messages(b, header, messages, err));
    TRMI_TRY(place_sums(b, err));
    sum_gradients(b);
    if (b->client->options.wire != TRM_FLOAT32) {
        narrow_sums(b);
    }
    return TRM_OK;
}

/* Handles a push under a lost lease: other workers use its samples. Where clocks count batches,
 * an empty push advances this worker's clock.
 *   errors  CANCELLED */
static trm_status give_up_batch(trm_ps_batch *b, trm_error *err) {
    trm_ps_client *c = b->client;
    if (c->mode != TRM_PS_ASYNC) {
        for (int64_t i = 0; i < b->slice_count; i++) {
            b->slices[i].gradients = NULL;
        }
        b->cut = false;
        TRMI_TRY(trm_ps_push(b, NULL, err));
    }
    if (err != NULL) {
        *err = c->refused;
    }
    return TRM_CANCELLED;
}

/* Names the samples of a push in the header: those of its lease from the position of the push
 * before up to options.position.
 *   errors  INVALID: a position outside the lease */
static trm_status name_samples(trm_ps_client *c, const trm_ps_push_options *o,
                               trmi_ps_header *header, trm_error *err) {
    const trm_ps_lease *l = &o->lease;
    int64_t begin = l->id == c->pushed_lease ? c->pushed : l->begin;
    if (c->lease_samples == 0) {
        return TRMI_FAIL(err, TRM_INVALID,
                         "a push under lease %lld, which this client has not taken",
                         (long long)l->id);
    }
    if (o->position < begin || o->position > l->end || o->position - begin > UINT32_MAX) {
        return TRMI_FAIL(err, TRM_INVALID,
                         "position %lld of lease %lld: %lld, where the push before ended, to %lld "
                         "expected",
                         (long long)o->position, (long long)l->id, (long long)begin,
                         (long long)l->end);
    }
    header->extra[0] = o->position > begin ? l->id : 0;
    header->extra[1] = l->epoch * c->lease_samples + o->position;
    header->samples = (uint32_t)(o->position - begin);
    header->book = c->lease_book;
    return TRM_OK;
}

/* Sends the messages to server `first` and all later ones. */
static trm_status send_from(trm_ps_client *c, trmi_pending **messages, uint32_t first,
                            uint64_t sequence, double deadline, trm_error *err) {
    for (uint32_t s = first; s < c->servers; s++) {
        messages[s]->sequence = sequence;
        messages[s]->sent = trmi_os_now();
    }
    for (uint32_t s = first; s < c->servers; s++) {
        if (messages[s]->sequence ==
            sequence) { /* skipped if it was sent and answered while another connection was repaired */
            TRMI_TRY(trmi_client_send(c, &c->peers[s], messages[s]->data, messages[s]->bytes,
                                      deadline, err));
        }
    }
    return TRM_OK;
}

/* Returns whether pushes are marked as partial: with several synchronous servers no step
 * contains a push before all servers have it. */
static bool is_partial(const trm_ps_client *c) {
    return c->mode == TRM_PS_SYNC && !c->staging && c->servers > 1;
}

/* Delivers a push to all servers; from here on broken connections are repaired and it is sent
 * again. Only server 0 marks samples as used, so it gets a push under a lease last, when all
 * others have it. If this worker dies before, the batch is leased again: servers that have it
 * recognise its samples, and a staged push is never applied. */
static trm_status deliver_push(trm_ps_client *c, trmi_pending **messages, uint64_t sequence,
                               bool lent, double deadline, trm_error *err) {
    if (!lent || c->servers == 1) {
        TRMI_TRY(send_from(c, messages, 0, sequence, deadline, err));
        /* every server has it: tell those that hold it as partial */
        c->delivered = sequence;
        const trmi_ps_note pushed = {.value = {TRMI_ORDER_PUSHED, (int64_t)sequence}};
        for (uint32_t s = 0; s < c->servers && is_partial(c); s++) {
            if (c->peers[s].channel !=
                NULL) { /* without a connection, send_again clears the mark of the push itself */
                (void)!trmi_client_send_order(c, &c->peers[s], &pushed, NULL, 0, deadline);
            }
        }
        return TRM_OK;
    }
    /* Under a lease, send to all servers but server 0, and await their answers. */
    TRMI_TRY(send_from(c, messages, 1, sequence, deadline, err));
    for (uint32_t s = 1; s < c->servers; s++) {
        while (messages[s]->sequence == sequence) {
            TRMI_TRY(trmi_client_progress(c, &c->peers[s], deadline, err));
        }
    }
    TRMI_TRY(trmi_client_take_push_error(c, err));
    /* server 0 also learns up to which step the other servers have finished */
    if (c->staging) {
        int64_t finished = trmi_client_steps_finished(c);
        memcpy(messages[0]->data + offsetof(trmi_ps_header, clock), &finished, sizeof finished);
    }
    c->delivered = messages[0]->sequence = sequence;
    messages[0]->sent = trmi_os_now();
    return trmi_client_send(c, &c->peers[0], messages[0]->data, messages[0]->bytes, deadline, err);
}

/* Returns the factor of the tables' rates that a push carries. */
static float choose_rate_scale(const trm_ps_push_options *options) {
    if (options == NULL || options->rate_scale == 0) {
        return 1;
    }
    return options->rate_scale == TRM_NONE ? 0 : options->rate_scale;
}

/* Sends the gradients of a batch, summed by key. The order of the checks matters: nothing has
 * been sent, and no number of a push used up, until all messages exist. A push under a lease
 * that the server has refused is given up here. */
static trm_status push_batch(trm_ps_batch *batch, const trm_ps_push_options *options,
                             trm_error *err) {
    trm_ps_client *c = batch->client;
    double deadline = trmi_client_deadline(c);
    /* Nothing is sent for a client that only reads, a batch that is being pulled, or samples that
     * other workers have by now. */
    if (c->reader || batch->pulling) {
        return TRMI_FAIL(err, TRM_INVALID,
                         c->reader ? "this client (worker -1) only reads"
                                   : "wait for the pull before the push");
    }
    if (options != NULL && options->lease.id != 0 && options->lease.id == c->refused_lease) {
        return give_up_batch(batch, err);
    }
    TRMI_TRY(trmi_batch_deduplicate(batch, err));
    /* At most pushes_ahead pushes may wait for an answer of each server; an error of an earlier
     * push is returned by this call. */
    for (uint32_t s = 0; s < c->servers; s++) {
        while (trmi_client_pushes_pending(&c->peers[s]) >= c->options.pushes_ahead) {
            TRMI_TRY(trmi_client_progress(c, &c->peers[s], deadline, err));
        }
    }
    TRMI_TRY(trmi_client_take_push_error(c, err));
    /* Sums by key, in the order of servers, shards and tables. */
    if (batch->blocks.nodes > 1) {
        TRMI_TRY(trmi_batch_split_blocks(batch, err));
    }
    TRMI_TRY(trmi_batch_arrange(batch, &batch->push, 0, batch->unique_count, TRMI_WANT_PUSH,
                                TRMI_WANT_PUSH, err));
    batch->index = batch->index < 0 ? c->next_batch++ : batch->index;
    trmi_ps_header header = {.kind = c->staging ? TRMI_PS_STAGE : TRMI_PS_PUSH,
                             .dtype = (uint16_t)c->options.wire,
                             .worker = c->worker,
                             .incarnation = c->incarnation,
                             .sequence = c->next_sequence + 1,
                             .clock = c->staging ? 0 : batch->index + 1};
    header.flags = is_partial(c) ? TRMI_PUSH_PARTIAL : 0;
    header.extra[1] = batch->blocks.total;
    bool lent = options != NULL && options->lease.id != 0;
    if (lent) {
        TRMI_TRY(name_samples(c, options, &header, err));
    }
    header.rate_scale = choose_rate_scale(options);
    /* Make one message for each server. The push takes its number only when all of them exist. */
    trmi_pending **messages = trmi_alloc(c->servers * sizeof(trmi_pending *));
    trm_status status = messages == NULL ? TRMI_NO_MEMORY(err, "for a push")
                                         : fill_messages(batch, &header, messages, err);
    if (status == TRM_OK) {
        c->next_sequence++;
        c->resting = false; /* the push makes this worker active again */
        c->stats.pushes++;
        if (lent) {
            c->pushed_lease = options->lease.id;
            c->pushed = options->position;
        }
        status = deliver_push(c, messages, header.sequence, lent || c->staging, deadline, err);
    }
    trmi_free(messages);
    return status;
}

/* Contract in trireme/ps.h. */
trm_status trm_ps_push(trm_ps_batch *batch, const trm_ps_push_options *options, trm_error *err) {
    TRMI_NEED(err, batch);
    return trmi_client_note(batch->client, push_batch(batch, options, err));
}

/* Waits until all pushes are answered. */
static trm_status wait_for_answers(trm_ps_client *c, double deadline, trm_error *err) {
    for (uint32_t s = 0; s < c->servers; s++) {
        while (trmi_client_pushes_pending(&c->peers[s]) > 0) {
            TRMI_TRY(trmi_client_await_step(c, &c->peers[s], deadline, err));
        }
    }
    return trmi_client_take_push_error(c, err);
}

trm_status trm_ps_flush(trm_ps_client *client, trm_error *err) {
    TRMI_NEED(err, client);
    TRMI_TRY(trmi_client_note(client, wait_for_answers(client, trmi_client_deadline(client), err)));
    TRMI_TRY(trmi_client_note(client, trmi_client_steps_confirm(client, err)));
    client->unfinished = false;
    return TRM_OK;
}
