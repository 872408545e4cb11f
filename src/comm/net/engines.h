/* SPDX-License-Identifier: Apache-2.0 */
/* comm/net/engines.h: the network engine (schedules over a transport), and how a communicator
 * combines it with shared memory.
 *
 *   ranks on one host            shm
 *   several hosts, one rank each net alone ("flat")
 *   several hosts                all-reduce, broadcast, reduce, barrier: inside the host over shm,
 *                                across hosts over net (levels.c); other kinds: net alone
 *   deterministic = strict       reductions: net alone, algorithm direct: summed in rank order
 *
 * engines.c decides which engines a communicator gets; net_engine.c is the engine. */
#ifndef TRMI_COMM_ENGINES_H
#define TRMI_COMM_ENGINES_H

#include "comm/api/communicator.h"
#include "comm/net/runner.h"

/* The cost model of a network: seconds = rounds * alpha + bytes sent * beta + bytes summed *
 * gamma. */
typedef struct trmi_model {
    double alpha, beta, gamma;
} trmi_model;
/* Measures the model between neighbouring ranks; *out is the worst of all ranks and the same on all
 * ranks. All ranks call it together. comm/schedule/calibration.h decides whether it is necessary.
 *   errors  NOMEM, TIMEOUT, PEER */
trm_status trmi_model_measure(trmi_transport *transport, const trmi_exchange *exchange,
                              trmi_model *out, trm_error *err);
/* Returns fixed figures, for results that must not depend on a measurement. */
trmi_model trmi_model_default(void);
/* Predicts the seconds of a collective of `count` elements of `element` bytes among `size`
 * ranks. */
double trmi_model_seconds(const trmi_model *model, trmi_algorithm algorithm,
                          trm_collective_kind kind, int32_t size, int64_t count, size_t element);

/* The algorithm that the user prescribes for each kind, parsed from the forms of HCCL_ALGO: "ring",
 * "level0:NA;level1:ring", "allreduce=level1:ring/allgather=bruck/others=NB". `source` is the name
 * of the setting, for messages.
 *   errors  INVALID, with the permitted values */
typedef struct trmi_algorithms {
    trmi_algorithm of[TRM_BARRIER + 1]; /* AUTO: the cheapest by the model */
} trmi_algorithms;
trm_status trmi_algorithms_parse(const char *text, const char *source, trmi_algorithms *out,
                                 trm_error *err);

/* Schedules that an engine keeps; a training loop needs a few, again and again. */
enum { TRMI_CACHED_SCHEDULES = 16 };
/* A schedule that was built before, by its request. */
typedef struct trmi_cached_schedule {
    trmi_schedule schedule;
    trmi_schedule_request key; /* a request without arrays of counts; size 0: the entry is unused */
    uint64_t used; /* value of trmi_net.uses at the last use: the smallest is replaced */
} trmi_cached_schedule;

/* The network engine of one communicator. */
typedef struct trmi_net {
    trmi_engine base;           /* must be the first member */
    trmi_transport *transport;  /* owned */
    void *plugin;               /* dlopen handle of the transport's plug-in, or NULL */
    trmi_runner runner;         /* runs the schedules */
    trmi_model model;           /* figures by which algorithms are compared */
    trmi_algorithms algorithms; /* prescribed by the user */
    trmi_cached_schedule cache[TRMI_CACHED_SCHEDULES]; /* schedules of recent requests */
    trmi_schedule scratch; /* for requests with arrays of counts, which are not cached */
    uint64_t uses;         /* number of look-ups in the cache so far */
    /* inputs and results in the partial type (16-bit sums, integer means) */
    char *wide_in, *wide_out;
    size_t wide_in_bytes, wide_out_bytes; /* length of the two buffers */
    /* [size] number of messages so far, to and from each peer */
    uint64_t *messages_out, *messages_in;
    trmi_net_transfer **free_transfers; /* transfers of finished messages, for reuse */
    int64_t free_count, free_capacity;  /* of free_transfers */
} trmi_net;

/* One collective among `size` of the engine's ranks. ranks[size] lists them (NULL: all), and this
 * rank is number `rank` of them. trmi_net_run_part runs it to its end. It divides the mean by
 * op->divisor, so a part of a larger operation passes TRM_REDUCTION_SUM and divides later. */
typedef struct trmi_net_part {
    const trmi_engine_call *op; /* the whole operation: signature, sequence, divisor */
    trm_collective_kind kind;   /* of this part, which may differ from op->kind */
    const int32_t *ranks;       /* [size] ranks of the group; NULL: all */
    int32_t size, rank, root;   /* number of ranks, this rank, root: as indices in `ranks` */
    int64_t count, total;       /* elements, as in trmi_engine_call */
    const void *send;           /* input; NULL: none */
    void *recv;                 /* output; NULL: none */
    trm_dtype dtype;            /* of input and output */
    trm_reduction reduce;       /* of this part */
    bool background;            /* run by the progress thread */
    uint64_t part; /* distinguishes several parts of one operation in the tags of frames */
} trmi_net_part;
trm_status trmi_net_run_part(trmi_net *net, const trmi_net_part *part, trm_error *err);

/* The parts of a network engine. */
typedef struct trmi_net_options {
    trmi_transport *transport; /* the engine takes it, also on failure */
    void *plugin;              /* dlopen handle to close at the end; NULL: none */
    const char *algorithm;     /* as trm_comm_options.algorithm */
    double spin_seconds;       /* polling before a rank sleeps */
    /* the model of the job's first communicator; NULL: this is the first one, which measures it */
    const trmi_model *known;
} trmi_net_options;
/* Creates the network engine of a group. */
trm_status trmi_net_create(const trmi_group *group, const trmi_net_options *options,
                           const trmi_exchange *exchange, trmi_engine **out, trm_error *err);

/* Chooses the engines of a communicator from its options and hosts. Creates comm->net if one is
 * needed and fills comm->engine_text. All ranks call it together.
 *   errors  INVALID, UNSUPPORTED, IO, TIMEOUT, PEER */
trm_status trmi_net_choose(trm_comm *comm, const trmi_exchange *exchange, trm_error *err);
/* Destroys what trmi_net_choose has created. */
void trmi_net_release(trm_comm *comm);
/* Runs a collective of a communicator that has a network engine, on two levels or flat. */
trm_status trmi_net_run(trm_comm *comm, const trmi_engine_call *op, bool background,
                        trm_error *err);

/* levels.c: prepares collectives on two levels. Creates the tables if some host has several
 * ranks. */
trm_status trmi_levels_create(trm_comm *comm, trm_error *err);
void trmi_levels_destroy(trm_comm *comm);
/* Returns whether a collective runs on two levels; false for kinds and options that run flat. */
bool trmi_levels_can_run(const trm_comm *comm, const trmi_engine_call *op);
trm_status trmi_levels_run(trm_comm *comm, const trmi_engine_call *op, bool background,
                           trm_error *err);

#endif
