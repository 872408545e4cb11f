/* SPDX-License-Identifier: Apache-2.0 */
/* comm/net/transport.h: bytes between ranks, as a table of functions. Schedules (runner.c) and
 * messages run over any of them: tcp.c, plugins/ucx.c, and the tests' simulated network.
 *
 * A transport joins the ranks of a group pairwise by ordered channels. What is started is a
 * transfer; nothing moves but in progress(). Each transfer carries a tag that both sides must agree
 * on before a byte of payload is delivered.
 *
 * A plug-in is a shared object that exports `trmi_transport_plugin`, a trmi_transport_plugin_table.
 * It may call nothing of the library but what the table gives it. */
#ifndef TRMI_COMM_TRANSPORT_H
#define TRMI_COMM_TRANSPORT_H

#include "comm/api/engine.h"

/* Collectives and messages have channels of their own, so that neither waits for the other. */
enum { TRMI_CHANNEL_COLLECTIVE = 0, TRMI_CHANNEL_MESSAGE = 1, TRMI_CHANNELS = 2 };

typedef struct trmi_tag {
    uint64_t sequence;     /* of the operation, or of the message on its channel */
    uint64_t signature[2]; /* trmi_engine_call's; of messages: type, bytes */
    uint64_t step;         /* number of this transfer between the two ranks in the operation */
} trmi_tag;

typedef struct trmi_transfer {
    bool receive;
    bool done;
    int32_t peer; /* of the transport's group */
    int32_t channel;
    char *data;
    uint64_t bytes;
    uint64_t moved; /* delivered so far; grows while a receive is under way */
    trmi_tag tag;
    struct trmi_transfer *next; /* the transport's */
    void *handle;               /* the transport's */
} trmi_transfer;

typedef struct trmi_transport trmi_transport;
typedef struct trmi_transport_table {
    const char *name;
    /* Takes the transfer; it must live until it is done or the transport is destroyed. Transfers of
     * one peer, channel and direction match in the order in which they are started. */
    trm_status (*start)(trmi_transport *transport, trmi_transfer *transfer, trm_error *err);
    /* Moves what can be moved without waiting. *moved is set if anything was.
     *   error  PEER: transport->culprit has closed its connection or sent damaged bytes
     *          INVALID: a tag was not what was expected, see transport->expected and ->found */
    trm_status (*progress)(trmi_transport *transport, bool *moved, trm_error *err);
    /* Sleeps until progress may move something, at most `seconds`. */
    void (*wait)(trmi_transport *transport, double seconds);
    void (*destroy)(trmi_transport *transport);
} trmi_transport_table;

struct trmi_transport {
    const trmi_transport_table *table;
    trmi_group group;
    int32_t culprit;               /* rank of the group, -1 if none */
    const trmi_transfer *expected; /* where tags differ */
    trmi_tag found;
    uint64_t found_bytes;
};

/* Collective over the group.   error IO, TIMEOUT, PEER, NOMEM */
trm_status trmi_tcp_create(const trmi_group *group, const trmi_exchange *exchange,
                           trmi_transport **out, trm_error *err);

/* The simulated network of the tests (tests/lib/sim.c), by the engine name "sim:...". The library
 * does not hold it: the symbol is NULL there. */
trm_status trmi_sim_create(const trmi_group *group, const char *text, const trmi_exchange *exchange,
                           trmi_transport **out, trm_error *err) __attribute__((weak));

/* --- plug-ins
 *  --------------------------------------------------------------------------------------- */
enum { TRMI_PLUGIN_VERSION = 1 };
typedef struct trmi_transport_plugin_table {
    int32_t version; /* TRMI_PLUGIN_VERSION */
    const char *name;
    trm_status (*create)(const trmi_group *group, const trmi_exchange *exchange,
                         trmi_transport **out, trm_error *err);
} trmi_transport_plugin_table;

#endif
