/* SPDX-License-Identifier: Apache-2.0 */
/* comm/schedule/schedule.h: collective algorithms as data.
 *
 * A schedule is one rank's part of a collective: a list of send, receive, reduce and copy steps, in
 * rounds. Generators are pure functions of (algorithm, kind, rank, ranks, counts).
 * comm/net/runner.c runs any schedule over any transport, and schedule_test.c runs the schedules of
 * all ranks in memory and compares the result with a direct computation.
 *
 *   round:  [reduce, copy]*  [send, receive]*  [reduce, copy]*
 *           first, in order  all at once       then, in order
 *
 * Within a round no receive writes what a send of the same round reads. Messages between two ranks
 * match in the order of the lists. docs/internals/collectives.md has the rounds and the elements
 * sent of each algorithm. n is the number of ranks below. */
#ifndef TRMI_COMM_SCHEDULE_H
#define TRMI_COMM_SCHEDULE_H

#include "trireme/dist.h"

/* The algorithms. */
typedef enum trmi_algorithm {
    TRMI_ALGORITHM_AUTO = 0,
    TRMI_DIRECT,  /* every pair of ranks at once */
    TRMI_RING,    /* n - 1 rounds between neighbours of a ring */
    TRMI_HALVING, /* recursive halving and doubling; ranks beyond a power of two are folded in */
    /* log2 n rounds for any n; also used for HCCL's NB and NHR, which have the same costs */
    TRMI_BRUCK,
    TRMI_PAIRWISE, /* all-to-all with one partner in each round */
    TRMI_TREE,     /* a binomial tree */
    TRMI_PIPELINE, /* a chain of ranks through which the vector moves in pieces */
    TRMI_ALGORITHMS
} trmi_algorithm;
const char *trmi_algorithm_name(trmi_algorithm algorithm); /* for instance "ring" */
/* Returns the algorithm of a name: ours or HCCL's (mesh, H-D_R, NHR, NB, ...); AUTO for "" and
 * "auto"; -1 if the name is unknown. `length` is the length of `name`, which need not end with
 * '\0'. */
int trmi_algorithm_parse(const char *name, size_t length);

/* The three buffers of a schedule. */
typedef enum trmi_schedule_place {
    TRMI_SEND_BUFFER,
    TRMI_RECV_BUFFER,
    TRMI_TEMP_BUFFER
} trmi_schedule_place;
/* Kinds of steps. */
typedef enum trmi_schedule_step_kind {
    TRMI_SEND,
    TRMI_RECEIVE,
    TRMI_REDUCE,
    TRMI_COPY
} trmi_schedule_step_kind;

/* One step. All positions and counts are in elements. */
typedef struct trmi_schedule_step {
    trmi_schedule_step_kind kind; /* decides which members are used */
    int32_t round, peer;          /* peer: the other rank of a send or receive, else -1 */
    /* ranges of the buffers: a send reads `from`, a receive writes `to`, local steps use both */
    trmi_schedule_place from_place, to_place;
    int64_t from, to, count; /* first element in each buffer, and number of elements */
    /* REDUCE. sources == 0: to = to op from. sources == k > 0: to = from op (from + stride) op ...
     * over k vectors in order; the sum (and the mean) is complete when k is the number of ranks. */
    int32_t sources;
    int64_t stride; /* elements between two sources */
} trmi_schedule_step;

/* One rank's part of a collective. */
typedef struct trmi_schedule {
    trmi_schedule_step *steps; /* [count] in the order of their rounds */
    int64_t count, capacity;   /* length and capacity of `steps` */
    int32_t rounds;            /* number of rounds */
    int64_t temp_count;        /* length of the temporary buffer in elements */
    /* every sum is made by one step over n sources: it needs no further division or rounding */
    bool sums_complete;
    bool failed; /* there was no memory for a step */
} trmi_schedule;
/* Frees the steps, not the struct. */
void trmi_schedule_free(trmi_schedule *schedule);

/* The operation to schedule. Blocks are as in trmi_engine_call: block b starts at offsets[b] and
 * has counts[b] elements, or starts at count * b if there are no arrays. */
typedef struct trmi_schedule_request {
    trmi_algorithm algorithm;        /* never AUTO */
    trm_collective_kind kind;        /* which collective */
    int32_t rank, size, root;        /* this rank, number of ranks, root */
    int64_t count, total;            /* elements of a block or of the vector, and of all blocks */
    const int64_t *counts, *offsets; /* [size] NULL: equal blocks */
    const int64_t *send_counts, *send_offsets, *recv_counts, *recv_offsets; /* TRM_ALLTOALLV only */
    int64_t piece_count; /* pipeline: elements of a piece; 0 means 65536 */
} trmi_schedule_request;

/* Returns whether the algorithm can do this kind of collective among `size` ranks. */
bool trmi_schedule_applies(trmi_algorithm algorithm, trm_collective_kind kind, int32_t size);
/* Builds the schedule of `request` in `out`, whose memory is reused.
 *   errors  UNSUPPORTED (the algorithm does not apply), NOMEM */
trm_status trmi_schedule_make(const trmi_schedule_request *request, trmi_schedule *out,
                              trm_error *err);

/* The cost of a schedule with equal blocks: rounds, and the elements that the busiest rank sends
 * and sums. This is the table of docs/internals/collectives.md as a function. `count` is that of
 * trm_collective. */
typedef struct trmi_schedule_cost {
    int64_t rounds;       /* one after the other */
    double sent, reduced; /* elements of the busiest rank */
} trmi_schedule_cost;
trmi_schedule_cost trmi_schedule_predict(trmi_algorithm algorithm, trm_collective_kind kind,
                                         int32_t size, int64_t count, int64_t piece_count);

/* --- for generators ---
 *
 * The state of a generator: the request, the schedule that it fills, and the present round, which
 * the generator increments. */
typedef struct trmi_builder {
    const trmi_schedule_request *request; /* borrowed */
    trmi_schedule *out;                   /* gets the steps */
    int32_t rank, size, round;            /* of the request; the present round */
} trmi_builder;

/* `count` elements of a buffer, from element `at` on. */
typedef struct trmi_schedule_range {
    trmi_schedule_place place; /* which buffer */
    int64_t at, count;         /* in elements */
} trmi_schedule_range;

/* Append a step of the present round. Empty ranges add nothing. */
void trmi_add_send(trmi_builder *b, int32_t peer, trmi_schedule_range from);
void trmi_add_receive(trmi_builder *b, int32_t peer, trmi_schedule_range to);
/* Adds the step to = to op from. */
void trmi_add_reduce(trmi_builder *b, trmi_schedule_range to, trmi_schedule_place from_place,
                     int64_t from);
/* Adds the step to = sum of `sources` vectors, `stride` elements apart. */
void trmi_add_sum(trmi_builder *b, trmi_schedule_range to, trmi_schedule_place from_place,
                  int64_t from, int32_t sources, int64_t stride);
void trmi_add_copy(trmi_builder *b, trmi_schedule_range to, trmi_schedule_place from_place,
                   int64_t from);
/* Reserves `count` elements of the temporary buffer and returns the position of the first. */
int64_t trmi_take_temp(trmi_builder *b, int64_t count);

/* Return position and length of a block: of the request's blocks, or of n nearly equal parts for a
 * kind without blocks. */
int64_t trmi_block_at(const trmi_builder *b, int32_t block);
int64_t trmi_block_count(const trmi_builder *b, int32_t block);
/* Returns the range of blocks [first, first + blocks) of a vector that starts at `base` of
 * `place`. */
trmi_schedule_range trmi_blocks(const trmi_builder *b, trmi_schedule_place place, int64_t base,
                                int32_t first, int32_t blocks);
/* Returns a modulo n, never negative. */
static inline int32_t trmi_modulo(int32_t a, int32_t n) { return ((a % n) + n) % n; }
/* Returns the smallest k with 2^k >= n. */
static inline int32_t trmi_ceil_log2(int32_t n) {
    int32_t k = 0;
    while ((1 << k) < n) {
        k++;
    }
    return k;
}

/* The parts that collectives consist of. Each works on a vector of n blocks that starts at `base`
 * of `place`, and that every rank holds in full. They reserve temporary memory as needed.
 *   scatter parts   before: each rank has its own input;  after: block `rank` is the sum over all ranks
 *   gather parts    before: block `rank` is final;        after: all blocks are final
 */
void trmi_ring_scatter(trmi_builder *b, trmi_schedule_place place, int64_t base);
void trmi_ring_gather(trmi_builder *b, trmi_schedule_place place, int64_t base);
void trmi_bruck_scatter(trmi_builder *b, trmi_schedule_place place, int64_t base);
void trmi_bruck_gather(trmi_builder *b, trmi_schedule_place place, int64_t base);
void trmi_halving_scatter(trmi_builder *b, trmi_schedule_place place, int64_t base);
void trmi_doubling_gather(trmi_builder *b, trmi_schedule_place place, int64_t base);
/* Runs the direct algorithm: the input starts at `from`; the sum of this rank's block, added in
 * rank order, goes to `to`. */
void trmi_direct_scatter(trmi_builder *b, trmi_schedule_place from_place, int64_t from,
                         trmi_schedule_range to);
void trmi_direct_gather(trmi_builder *b, trmi_schedule_place place, int64_t base);

/* Along a tree or a chain, as the request's algorithm says. reduce: sums the vector at `base` of
 * `place` to rank `root`, and overwrites it on all ranks. broadcast: distributes the receive buffer
 * of `root`. */
void trmi_tree_or_chain_reduce(trmi_builder *b, trmi_schedule_place place, int64_t base,
                               int32_t root);
void trmi_tree_or_chain_broadcast(trmi_builder *b, int32_t root);

/* The generators of the kinds; they are called by trmi_schedule_make. */
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
