/* SPDX-License-Identifier: Apache-2.0 */
/* tests/wrapped_channel.h: a test stands between a client and one of its channels to a server.
 *
 * A test gives trmi_client_create_wrapped() a function that puts wrap_channel() around the channels
 * that matter to it. Two hooks then see each message before it is sent and each call that receives;
 * either may end the call with an error, as if the connection, or the process, had died. */
#ifndef TRIREME_TESTS_WRAPPED_CHANNEL_H
#define TRIREME_TESTS_WRAPPED_CHANNEL_H

#include "check.h"

#include "ps/wire/channel.h"
#include "ps/wire/codec.h"

#include <stdlib.h>

typedef struct wrapped_channel wrapped_channel;

typedef struct channel_hooks {
    /* Is called before a message is sent. An error withdraws the message, and the client gets it.
     */
    trm_status (*before_send)(wrapped_channel *channel, const trmi_message *m, trm_error *err);
    /* Is called before the channel receives. The client gets an error instead of a message. */
    trm_status (*before_receive)(wrapped_channel *channel, trm_error *err);
    /* Is called with what the channel has received within `timeout` seconds. */
    void (*after_receive)(wrapped_channel *channel, double timeout, trm_status status);
} channel_hooks;

struct wrapped_channel {
    trmi_channel base; /* base.peer is the inner channel's */
    trmi_channel *inner;
    channel_hooks hooks; /* each may be NULL */
    void *context;       /* the test's */
    int64_t left;        /* a number that the test may count down */
};

static trm_status wrapped_reserve(trmi_channel *channel, size_t bytes, double timeout,
                                  trmi_message *out, trm_error *err) {
    trmi_channel *inner = ((wrapped_channel *)channel)->inner;
    return inner->table->reserve(inner, bytes, timeout, out, err);
}

static trm_status wrapped_commit(trmi_channel *channel, trmi_message *m, double timeout,
                                 trm_error *err) {
    wrapped_channel *c = (wrapped_channel *)channel;
    const trm_status status =
        c->hooks.before_send != NULL ? c->hooks.before_send(c, m, err) : TRM_OK;
    if (status != TRM_OK) {
        m->bytes = 0; /* withdrawn */
        (void)!c->inner->table->commit(c->inner, m, timeout, NULL);
        return status;
    }
    return c->inner->table->commit(c->inner, m, timeout, err);
}

static trm_status wrapped_receive(trmi_channel *channel, double timeout, trmi_message *out,
                                  trm_error *err) {
    wrapped_channel *c = (wrapped_channel *)channel;
    trm_status status = c->hooks.before_receive != NULL ? c->hooks.before_receive(c, err) : TRM_OK;
    if (status == TRM_OK) {
        status = c->inner->table->receive(c->inner, timeout, out, err);
        if (c->hooks.after_receive != NULL) {
            c->hooks.after_receive(c, timeout, status);
        }
    }
    return status;
}

static void wrapped_release(trmi_channel *channel, trmi_message *m) {
    trmi_channel *inner = ((wrapped_channel *)channel)->inner;
    inner->table->release(inner, m);
}

static void wrapped_shut(trmi_channel *channel) {
    trmi_channel *inner = ((wrapped_channel *)channel)->inner;
    inner->table->shut(inner);
}

static void wrapped_destroy(trmi_channel *channel) {
    trmi_channel *inner = ((wrapped_channel *)channel)->inner;
    inner->table->destroy(inner);
    free(channel);
}

/* Wraps a channel. Each message of the client takes before_send: there is no way without a copy. */
static inline wrapped_channel *wrap_channel(trmi_channel *inner, channel_hooks hooks,
                                            void *context) {
    static const trmi_channel_table table = {
        "wrapped",       wrapped_reserve, wrapped_commit,  wrapped_receive,
        wrapped_release, wrapped_shut,    wrapped_destroy, NULL};
    wrapped_channel *c = calloc(1, sizeof *c);
    assert_non_null(c);
    c->base = *inner;
    c->base.table = &table;
    c->inner = inner;
    c->hooks = hooks;
    c->context = context;
    return c;
}

/* Returns the number of the server at the other end: a peer is named "server N (address)". */
static inline int server_of(const wrapped_channel *c) {
    return (int)strtol(c->base.peer + strlen("server "), NULL, 10);
}

/* Returns whether a message has this kind. */
static inline bool is_kind(const trmi_message *m, trmi_ps_kind kind) {
    trmi_ps_header h;
    return trmi_ps_decode_header(m->data, m->bytes, &h, NULL) == TRM_OK && h.kind == kind;
}

/* Returns whether a message is this order to a server (TRMI_PS_CONTROL). */
static inline bool is_order(const trmi_message *m, int64_t order) {
    trmi_ps_header h;
    trmi_ps_note note = {0};
    return trmi_ps_decode_header(m->data, m->bytes, &h, NULL) == TRM_OK &&
           h.kind == TRMI_PS_CONTROL &&
           trmi_ps_decode_note(m->data, m->bytes, &h, &note, NULL, NULL) == TRM_OK &&
           note.value[0] == order;
}

#endif
