/* SPDX-License-Identifier: Apache-2.0 */
/* The pull of one part from one server: the request, sent again after a repaired connection, and
 * its answer. Called by client.c and client_pull.c, calls neither.
 *
 *     trmi_batch_ask ----- PULL, number of the request ----> server
 *          ^                                                   |
 *          | trmi_batch_ask_again: the connection is new,      |
 *          | and the answer is still owed                      |
 *          |                                                   v
 *     trmi_batch_answer <-- rows, number of the request -----+-+
 *     trmi_batch_refused <- an error --------------------------+
 *
 * An answer finds its part by the number of the request. One that belongs to no unfinished part, or
 * comes a second time after a repeated request, is left to the caller, who releases it. An accepted
 * answer stays in the channel's memory (reply.message) or, while another pull reads on, in a copy
 * (reply.kept). If a connection breaks, what lies in its memory is forgotten and asked for
 * again. */
#include "ps/client/client.h"

#include "base/error.h"
#include "base/memory.h"

/* ---- requests -------------------------------------------------------------------------------- */

/* Contract in client.h. What the header says depends on the mode: the clock of the batch, the
 * first batch of this life, or (staged pushes) the push that must be in the rows' step. */
trm_status trmi_batch_ask(trm_ps_batch *b, trmi_part *part, trmi_server_connection *peer,
                          double deadline, trm_error *err) {
    trm_ps_client *c = b->client;
    const trmi_arrangement *a = &part->pull;
    uint32_t first = a->first[peer->number], count = a->first[peer->number + 1] - first;
    double left = deadline - trmi_os_now(), patience = b->deadline - trmi_os_now();
    trmi_ps_header header = {.kind = TRMI_PS_PULL,
                             .dtype = (uint16_t)c->options.wire,
                             .worker = c->worker,
                             .incarnation = c->incarnation,
                             .sequence = part->request,
                             .clock = b->index,
                             .section_count = count,
                             .flags = (c->reader || b->outside ? TRMI_PULL_OUTSIDE : 0) |
                                      (c->options.lost != NULL ? TRMI_PULL_TOGETHER : 0)};
    header.extra[0] = c->joined;
    /* the step that contains the push of the batch before, and the last that was decided when
     * samples were lent: a worker that had none for a while has pushed nothing */
    if (c->staging) {
        header.clock = c->steps_last;
        header.extra[0] = b->index - c->joined;
    } else if (c->mode == TRM_PS_SYNC) {
        header.extra[0] = 0;
    }
    /* The server's deadline is earlier than the client's, so that its error names the worker
     * that it waited for. */
    header.extra[1] = (int64_t)((patience > 0.6 ? patience - 0.3 : patience / 2) * 1e3);
    part->replies[peer->number].asked = trmi_os_now();
    /* the keys are written into the channel's own memory, without a copy */
    size_t bytes =
        trmi_ps_size(TRMI_PS_PULL, c->options.wire, a->sections + first, count, c->widths);
    trmi_message m;
    if (bytes == 0) {
        return TRMI_FAIL(err, TRM_INVALID, "a pull of more than 1 GB of keys: use smaller batches");
    }
    TRMI_TRY(peer->channel->table->reserve(peer->channel, bytes, left, &m, err));
    trm_status status = trmi_batch_encode(c, &header, a->sections + first, m.data, err);
    if (status != TRM_OK) {
        m.bytes = 0; /* 0 bytes: withdraws the reserved message */
        (void)!peer->channel->table->commit(peer->channel, &m, left, NULL);
        return status;
    }
    c->stats.bytes_sent += (int64_t)bytes;
    return peer->channel->table->commit(peer->channel, &m, left, err);
}

/* Returns whether the server has not answered this part. */
static bool is_owed(const trmi_part *part, const trmi_server_connection *peer) {
    return part->request != 0 && !part->done && !part->replies[peer->number].here;
}

trm_status trmi_batch_ask_again(trm_ps_batch *b, trmi_server_connection *peer, double deadline,
                                trm_error *err) {
    for (int32_t p = 0; b->pulling && p < b->asked; p++) {
        if (is_owed(&b->parts[p], peer)) {
            TRMI_TRY(trmi_batch_ask(b, &b->parts[p], peer, deadline, err));
        }
    }
    return TRM_OK;
}

double trmi_batch_owed_since(const trm_ps_batch *b, const trmi_server_connection *peer) {
    for (int32_t p = 0; b->pulling && p < b->asked; p++) {
        if (is_owed(&b->parts[p], peer)) {
            return b->parts[p].replies[peer->number].asked;
        }
    }
    return 0;
}

/* Contract in client.h. Copies (reply.kept) stay valid; only what lies in the channel's memory
 * goes. */
void trmi_batch_forget(trm_ps_batch *b, const trmi_server_connection *peer) {
    for (int32_t p = 0; b->pulling && p < b->asked; p++) {
        trmi_reply *reply = &b->parts[p].replies[peer->number];
        if (reply->message.block != NULL) {
            if (peer->channel != NULL) {
                peer->channel->table->release(peer->channel, &reply->message);
            }
            reply->message = (trmi_message){0};
            reply->here = false;
        }
    }
}

/* ---- answers --------------------------------------------------------------------------------- */

/* Contract in client.h. Copies the answer out of the channel, whose memory the server needs for
 * further answers. */
void trmi_batch_keep_answer(const trm_ps_client *c, trmi_part *part, uint32_t server) {
    trmi_reply *reply = &part->replies[server];
    trmi_message *m = &reply->message;
    trmi_channel *channel = c->peers[server].channel;
    uint8_t *copy = m->block == NULL || channel == NULL ? NULL : trmi_alloc(m->bytes);
    if (copy == NULL) {
        return;
    }
    trmi_ps_header header;
    uint32_t first = part->pull.first[server], last = part->pull.first[server + 1];
    memcpy(copy, m->data, m->bytes);
    if (trmi_ps_decode_header(copy, m->bytes, &header, NULL) != TRM_OK ||
        trmi_ps_decode_rows(copy, m->bytes, &header, c->widths, part->pull.sections + first,
                            last - first, NULL) != TRM_OK) {
        trmi_free(copy); /* cannot happen: it was decoded before */
        return;
    }
    reply->kept = copy;
    channel->table->release(channel, m);
    *m = (trmi_message){0};
}

/* Returns the unfinished part with this request number; NULL: none. */
static trmi_part *part_of(trm_ps_batch *b, uint64_t request) {
    for (int32_t p = 0; b->pulling && p < b->asked; p++) {
        if (b->parts[p].request == request && !b->parts[p].done) {
            return &b->parts[p];
        }
    }
    return NULL;
}

/* Contract in client.h. The part counts as answered, so that nothing waits for it; the error
 * decides. */
void trmi_batch_refused(trm_ps_batch *b, const trmi_server_connection *peer, uint64_t request,
                        const trm_error *why) {
    trmi_part *part = part_of(b, request);
    if (part != NULL) {
        b->err = *why;
        part->replies[peer->number].here = true;
    }
}

/* Contract in client.h. Sets *m to empty if it takes the message over. */
void trmi_batch_answer(trm_ps_batch *b, trmi_server_connection *peer, const trmi_ps_header *header,
                       trmi_message *m) {
    trm_ps_client *c = b->client;
    trmi_part *part = part_of(b, header->sequence);
    if (part == NULL || part->replies[peer->number].here) {
        return; /* of another batch, or a second answer to a repeated request */
    }
    trmi_reply *reply = &part->replies[peer->number];
    uint32_t first = part->pull.first[peer->number], last = part->pull.first[peer->number + 1];
    reply->here = true;
    trm_error err;
    /* the decoder only sets the addresses of values; the keys stay */
    if (header->dtype != c->options.wire ||
        trmi_ps_decode_rows(m->data, m->bytes, header, c->widths, part->pull.sections + first,
                            last - first, &err) != TRM_OK) {
        TRMI_FAIL(&b->err, TRM_CORRUPT, "server %d answered a pull with something else",
                  peer->number);
        return;
    }
    reply->message = *m;
    *m = (trmi_message){0};
    if (c->reading && !b->outside) {
        trmi_batch_keep_answer(c, part, (uint32_t)peer->number);
    }
}
