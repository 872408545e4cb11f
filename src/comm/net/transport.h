/* SPDX-License-Identifier: Apache-2.0 */
/* comm/net/transport.h: the interface of transports, which move bytes between ranks. Schedules
 * (runner.c) and messages run over any of them: tcp.c, plugins/ucx.c, plugins/mpi.c, and the
 * simulated network of the tests.
 *
 * A transport joins the ranks of a group pairwise by ordered channels. start() queues a transfer,
 * and progress() moves data. Each transfer carries a tag that both sides must agree on before any
 * payload is delivered.
 *
 * A plug-in is a shared object that exports `trmi_transport_plugin`, a trmi_transport_plugin_table.
 * It calls functions of the library only through the tables that it is given. */
#ifndef TRMI_COMM_TRANSPORT_H
#define TRMI_COMM_TRANSPORT_H

#include "comm/api/engine.h"

/* Collectives and messages use different channels, so that neither delays the other. */
enum { TRMI_CHANNEL_COLLECTIVE = 0, TRMI_CHANNEL_MESSAGE = 1, TRMI_CHANNELS = 2 };

/* Identifies a transfer; equal on the sending and the receiving rank. */
typedef struct trmi_tag {
    uint64_t sequence;     /* number of the operation, or of the message on its channel */
    uint64_t signature[2]; /* of the trmi_engine_call; for messages: type and bytes */
    uint64_t step;         /* number of this transfer between the two ranks in the operation */
} trmi_tag;

/* One send or receive. */
typedef struct trmi_net_transfer {
    bool receive;                   /* otherwise a send */
    bool done;                      /* set by the transport */
    int32_t peer;                   /* rank in the transport's group */
    int32_t channel;                /* TRMI_CHANNEL_... */
    char *data;                     /* the caller's buffer, used until `done` */
    uint64_t bytes;                 /* length of the payload */
    uint64_t moved;                 /* bytes delivered so far; grows while a receive is under way */
    trmi_tag tag;                   /* equal on both sides */
    struct trmi_net_transfer *next; /* for the transport's use */
    void *handle;                   /* for the transport's use */
} trmi_net_transfer;

typedef struct trmi_transport trmi_transport;
/* The functions of a kind of transport. */
typedef struct trmi_transport_table {
    const char *name;
    /* Queues a transfer. It must live until it is done or the transport is destroyed. Transfers of
     * one peer, channel and direction match in the order in which they are started. */
    trm_status (*start)(trmi_transport *transport, trmi_net_transfer *transfer, trm_error *err);
    /* Moves what can be moved without waiting; sets *moved if anything moved.
     *   errors  PEER: transport->culprit has closed its connection; CORRUPT: it has sent damaged
     *   bytes; INVALID: its tag is not the expected one, see transport->expected and ->found */
    trm_status (*progress)(trmi_transport *transport, bool *moved, trm_error *err);
    /* Sleeps until progress may move something, for at most `seconds`. */
    void (*wait)(trmi_transport *transport, double seconds);
    void (*destroy)(trmi_transport *transport);
} trmi_transport_table;

/* First member of the struct of each transport. */
struct trmi_transport {
    const trmi_transport_table *table; /* functions of its kind */
    trmi_group group;                  /* the ranks that it joins */
    int32_t culprit; /* the rank of the group that caused an error, -1 if unknown */
    /* on a tag that differs: the receive, and below: the tag and length that came */
    const trmi_net_transfer *expected;
    trmi_tag found;
    uint64_t found_bytes; /* length of the frame that came */
};

/* Creates the TCP transport of `group`. All ranks call it together.
 *   errors  IO, TIMEOUT, PEER, NOMEM */
trm_status trmi_tcp_create(const trmi_group *group, const trmi_exchange *exchange,
                           trmi_transport **out, trm_error *err);

/* Creates the simulated network of the tests (tests/lib/sim.c), for engine names "sim:...". The
 * library does not contain it: the weak symbol is NULL there. */
trm_status trmi_sim_create(const trmi_group *group, const char *text, const trmi_exchange *exchange,
                           trmi_transport **out, trm_error *err) __attribute__((weak));

/* --- plug-ins ---
 *
 * The table that a plug-in exports. */
enum { TRMI_PLUGIN_VERSION = 1 };
/* Table that a plug-in exports. */
typedef struct trmi_transport_plugin_table {
    int32_t version; /* TRMI_PLUGIN_VERSION */
    const char *name;
    trm_status (*create)(const trmi_group *group, const trmi_exchange *exchange,
                         trmi_transport **out, trm_error *err);
} trmi_transport_plugin_table;

#endif
