/* SPDX-License-Identifier: Apache-2.0 */
/* comm/schedule/schedule.h: collective algorithms as data.
 *
 * A schedule is one rank's part of a collective: a list of send, receive, reduce and copy steps in
 * rounds. Generators are pure functions of (algorithm, kind, rank, ranks, counts); runner.c plays
 * any schedule over any transport; schedule_test.c plays all ranks of it in memory against brute
 * force.
 *
 *   round:  [reduce, copy]*  [send, receive]*  [reduce, copy]*
 *           first in order   all at once        then in order
 *
 * Within a round no receive writes what a send of the same round reads. Messages between two ranks
 * match in the order of the lists. docs/algorithms.md states rounds and elements sent of each. */
#ifndef TRMI_COMM_SCHEDULE_H
#define TRMI_COMM_SCHEDULE_H

#include "trireme/comm.h"

typedef enum trmi_algorithm {
    TRMI_ALGORITHM_AUTO = 0,
    TRMI_DIRECT,   /* mesh: every pair at once */
    TRMI_RING,     /* n - 1 neighbours' rounds */
    TRMI_HALVING,  /* recursive halving and doubling, ranks beyond a power of two folded in */
    TRMI_BRUCK,    /* log n rounds for any n; serves NB's and NHR's names, whose costs it has */
    TRMI_PAIRWISE, /* all-to-all, one partner a round */
    TRMI_TREE,     /* binomial */
    TRMI_PIPELINE, /* a chain in pieces */
    TRMI_ALGORITHMS
} trmi_algorithm;
const char *trmi_algorithm_name(trmi_algorithm algorithm); /* "ring" */
/* From a name of ours or HCCL's (mesh, H-D_R, NHR, NB, ...); AUTO for "" and "auto", -1 if unknown.
 */
int trmi_algorithm_parse(const char *name, size_t length);

typedef enum trmi_schedule_place {
    TRMI_SEND_BUFFER,
    TRMI_RECV_BUFFER,
    TRMI_TEMP_BUFFER
} trmi_schedule_place;
typedef enum trmi_schedule_step_kind {
    TRMI_SEND,
    TRMI_RECEIVE,
    TRMI_REDUCE,
    TRMI_COPY
} trmi_schedule_step_kind;

/* Places and counts in elements. */
typedef struct trmi_schedule_step {
    trmi_schedule_step_kind kind;
    int32_t round, peer;
    trmi_schedule_place from_place, to_place;
    int64_t from, to, count;
    /* REDUCE: 0: to = to op from. k > 0: to = from op (from + stride) op ..., k vectors in order,
     * and the mean is complete when k is the number of ranks. */
    int32_t sources;
    int64_t stride;
} trmi_schedule_step;

typedef struct trmi_schedule {
    trmi_schedule_step *steps;
    int64_t count, capacity;
    int32_t rounds;
    int64_t temp_count; /* elements of the temporary buffer */
    /* sums are made by n-source steps only: nothing is left to divide or round */
    bool sums_complete;
    bool failed; /* no memory */
} trmi_schedule;
void trmi_schedule_free(trmi_schedule *schedule);

/* What is to be scheduled. As trmi_engine_call: block b starts at offsets[b], counts[b] long, or count * b.
 */
typedef struct trmi_schedule_request {
    trmi_algorithm algorithm;
    trm_collective_kind kind;
    int32_t rank, size, root;
    int64_t count, total;
    const int64_t *counts, *offsets;
    const int64_t *send_counts, *send_offsets, *recv_counts, *recv_offsets; /* all-to-allv */
    int64_t piece_count; /* pipeline: elements of a piece, 0 = 65536 */
} trmi_schedule_request;

/* True if the algorithm can do this kind among `size` ranks. */
bool trmi_schedule_applies(trmi_algorithm algorithm, trm_collective_kind kind, int32_t size);
/* Fills `out`, reusing its memory.   error UNSUPPORTED (does not apply), NOMEM */
trm_status trmi_schedule_make(const trmi_schedule_request *request, trmi_schedule *out,
                              trm_error *err);

/* Rounds, and elements that the busiest rank sends and reduces, for equal blocks: the table of
 * docs/algorithms.md as a function. `count` as in trm_collective. */
typedef struct trmi_schedule_cost {
    int64_t rounds;
    double sent, reduced;
} trmi_schedule_cost;
trmi_schedule_cost trmi_schedule_predict(trmi_algorithm algorithm, trm_collective_kind kind,
                                         int32_t size, int64_t count, int64_t piece_count);

/* --- for generators
 *  ------------------------------------------------------------------------------- */
typedef struct trmi_builder {
    const trmi_schedule_request *request;
    trmi_schedule *out;
    int32_t rank, size, round;
} trmi_builder;

typedef struct trmi_schedule_range {
    trmi_schedule_place place;
    int64_t at, count;
} trmi_schedule_range;

/* Nothing is added for empty ranges. */
void trmi_add_send(trmi_builder *b, int32_t peer, trmi_schedule_range from);
void trmi_add_receive(trmi_builder *b, int32_t peer, trmi_schedule_range to);
void trmi_add_reduce(trmi_builder *b, trmi_schedule_range to, trmi_schedule_place from_place,
                     int64_t from);
void trmi_add_sum(trmi_builder *b, trmi_schedule_range to, trmi_schedule_place from_place,
                  int64_t from, int32_t sources, int64_t stride);
void trmi_add_copy(trmi_builder *b, trmi_schedule_range to, trmi_schedule_place from_place,
                   int64_t from);
/* Takes `count` elements of temporary memory; returns their place. */
int64_t trmi_take_temp(trmi_builder *b, int64_t count);

/* Blocks of the vector: of the request, or n equal parts of an undivided one. */
int64_t trmi_block_at(const trmi_builder *b, int32_t block);
int64_t trmi_block_count(const trmi_builder *b, int32_t block);
/* Blocks [first, first + blocks) of a vector that lies at `base` of `place`. */
trmi_schedule_range trmi_blocks(const trmi_builder *b, trmi_schedule_place place, int64_t base,
                                int32_t first, int32_t blocks);
static inline int32_t trmi_modulo(int32_t a, int32_t n) { return ((a % n) + n) % n; }
static inline int32_t trmi_ceil_log2(int32_t n) {
    int32_t k = 0;
    while ((1 << k) < n) {
        k++;
    }
    return k;
}

/* The parts from which collectives are put together, each on a vector of n blocks at `base` of
 * `place`
 * that every rank holds in full; temporary memory is taken as needed.
 *   scatter parts:  before: own input everywhere; after: block `rank` is the sum over all ranks
 *   gather parts:   before: block `rank` is final; after: all blocks are */
void trmi_ring_scatter(trmi_builder *b, trmi_schedule_place place, int64_t base);
void trmi_ring_gather(trmi_builder *b, trmi_schedule_place place, int64_t base);
void trmi_bruck_scatter(trmi_builder *b, trmi_schedule_place place, int64_t base);
void trmi_bruck_gather(trmi_builder *b, trmi_schedule_place place, int64_t base);
void trmi_halving_scatter(trmi_builder *b, trmi_schedule_place place, int64_t base);
void trmi_doubling_gather(trmi_builder *b, trmi_schedule_place place, int64_t base);
/* Direct: input at `from`, sum of this rank's block to `to`, in rank order. */
void trmi_direct_scatter(trmi_builder *b, trmi_schedule_place from_place, int64_t from,
                         trmi_schedule_range to);
void trmi_direct_gather(trmi_builder *b, trmi_schedule_place place, int64_t base);

/* Along a tree or a chain, as the request's algorithm says: sums the whole vector at `base` of
 * `place` (which is changed on all ranks) to rank `root`; spreads rank `root`'s receive buffer. */
void trmi_tree_or_chain_reduce(trmi_builder *b, trmi_schedule_place place, int64_t base,
                               int32_t root);
void trmi_tree_or_chain_broadcast(trmi_builder *b, int32_t root);

/* Generators by kind. */
void trmi_make_allreduce(trmi_builder *b);
void trmi_make_reduce_scatter(trmi_builder *b);
void trmi_make_allgather(trmi_builder *b);
void trmi_make_broadcast(trmi_builder *b);
void trmi_make_reduce(trmi_builder *b);
void trmi_make_scatter(trmi_builder *b);
void trmi_make_gather(trmi_builder *b);
void trmi_make_alltoall(trmi_builder *b);
void trmi_make_barrier(trmi_builder *b);

#endif
