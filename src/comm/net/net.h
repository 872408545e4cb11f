/* SPDX-License-Identifier: Apache-2.0 */
/* comm/net/net.h: the network engine (schedules over a transport), and how a communicator uses it
 * together with shared memory.
 *
 *   one host                     shm
 *   several, one rank on each    net, flat
 *   several                      all-reduce, broadcast, reduce, barrier: inside the host by shm, across
 *                                hosts by net (levels.c); the other kinds: net, flat
 *   deterministic = strict       reductions: net, flat, direct: summed in rank order
 */
#ifndef TRMI_COMM_NET_H
#define TRMI_COMM_NET_H

#include "comm/api/communicator.h"
#include "comm/net/runner.h"

/* Time = rounds * alpha + bytes sent * beta + bytes summed * gamma, seconds. */
typedef struct trmi_model {
    double alpha, beta, gamma;
} trmi_model;
/* comm/schedule/calibration.h decides whether it must be. Measured between neighbours, the worst of
 * all ranks; the same on all ranks. */
trm_status trmi_model_measure(trmi_transport *transport, const trmi_exchange *exchange,
                              trmi_model *out, trm_error *err);
/* Fixed figures, for bits that do not depend on a measurement. */
trmi_model trmi_model_default(void);
double trmi_model_seconds(const trmi_model *model, trmi_algorithm algorithm,
                          trm_collective_kind kind, int32_t size, int64_t count, size_t element);

/* The override of each kind, in HCCL_ALGO's forms: "ring", "level0:NA;level1:ring",
 * "allreduce=level1:ring/allgather=bruck/others=NB". `source` is what messages call it.
 *   error INVALID naming what is legal */
typedef struct trmi_algorithms {
    trmi_algorithm of[TRM_BARRIER + 1]; /* AUTO: by cost */
} trmi_algorithms;
trm_status trmi_algorithms_parse(const char *text, const char *source, trmi_algorithms *out,
                                 trm_error *err);

enum { TRMI_CACHED_SCHEDULES = 16 };
typedef struct trmi_cached_schedule {
    trmi_schedule schedule;
    trmi_schedule_request key; /* of a kind without counts of its own; size 0: unused */
    uint64_t used;
} trmi_cached_schedule;

typedef struct trmi_net {
    trmi_engine base;
    trmi_transport *transport;
    void *plugin; /* dlopen handle */
    trmi_runner runner;
    trmi_model model;
    trmi_algorithms algorithms;
    trmi_cached_schedule cache[TRMI_CACHED_SCHEDULES];
    trmi_schedule scratch;
    uint64_t uses;
    char *wide_in, *wide_out; /* partial results of 16-bit sums and integer means */
    size_t wide_in_bytes, wide_out_bytes;
    uint64_t *messages_out, *messages_in; /* [size] so far */
    trmi_transfer **free_transfers;
    int64_t free_count, free_capacity;
} trmi_net;

/* A collective among `size` of the engine's ranks (NULL: all of them), this one being `rank` of
 * them. The result of a sum is left in `partial` elements, undivided, unless the sums came out
 * complete. */
typedef struct trmi_net_part {
    const trmi_engine_call *op; /* signature and sequence */
    trm_collective_kind kind;
    const int32_t *ranks;
    int32_t size, rank, root;
    int64_t count, total;
    const void *send;
    void *recv;
    trm_dtype dtype;
    trm_reduction reduce;
    bool background;
    uint64_t part;
} trmi_net_part;
trm_status trmi_net_play(trmi_net *net, const trmi_net_part *part, trm_error *err);

/* Takes the transport; destroys it also when it fails. `known`: the figures of the first
 * communicator, NULL for itself. */
trm_status trmi_net_create(const trmi_group *group, trmi_transport *transport, void *plugin,
                           const char *algorithm, double spin_seconds, const trmi_model *known,
                           const trmi_exchange *exchange, trmi_engine **out, trm_error *err);

/* Decides by options and hosts; makes comm->net if one is needed and fills comm->engine_text.
 * Collective over the communicator.   error INVALID, UNSUPPORTED, IO, TIMEOUT, PEER */
trm_status trmi_net_choose(trm_comm *comm, const trmi_exchange *exchange, trm_error *err);
void trmi_net_release(trm_comm *comm);
/* A collective of a communicator that has a network engine. */
trm_status trmi_net_run(trm_comm *comm, const trmi_engine_call *op, bool background,
                        trm_error *err);

/* levels.c: two levels. */
trm_status trmi_levels_create(trm_comm *comm, trm_error *err);
void trmi_levels_destroy(trm_comm *comm);
/* False for kinds that go flat. */
bool trmi_levels_apply(const trm_comm *comm, const trmi_engine_call *op);
trm_status trmi_levels_run(trm_comm *comm, const trmi_engine_call *op, bool background,
                           trm_error *err);

#endif
