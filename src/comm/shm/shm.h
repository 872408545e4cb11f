/* SPDX-License-Identifier: Apache-2.0 */
/* comm/shm/shm.h: the engine of ranks on one host, inside.
 *
 *   segment (memfd, mapped by every rank of the group)
 *     head          arrivals, bell, sleepers
 *     line[n]       phase counter and mailbox bell of each rank, a cache line or two each
 *     slot[n][2]    a rank posts operation s in slot s % 2: header, then small data or references
 *     cell[n][n][8] messages from i to j
 *     stage[n][2]   chunks of buffers that peers cannot reach
 *
 * Events. Every collective starts with one post and may have phases; each post and each phase is an
 * event at which all ranks meet: a rank arrives (its data are readable), then waits for the others.
 *
 * 1. A slot is rewritten two posts later, when its writer has waited for the post between: by then
 *    every peer has finished the operation that read it.
 * 2. No rank touches a peer's buffer before that peer's post, nor after its own last arrival; nor,
 *    of a sum
 *    in parts, but for a part that it has taken and not yet summed.
 * 3. Flags are stored with release order after the data they announce.
 *
 * Waiting. With at least as many CPUs as ranks, a rank polls the others' flags for a while, then
 * sleeps on the bell. With fewer, arrivals are counted, and only the last one rings; a rank that
 * waits looks at the count and hands its CPU on (sched_yield) for as long, then sleeps. There the
 * sum of vectors that all reach is made in parts, by whoever has a CPU: the operation is over once
 * all parts are summed, and a rank that comes later has nothing left to do. */
#ifndef TRMI_COMM_SHM_H
#define TRMI_COMM_SHM_H

#include "comm/api/engine.h"
#include "comm/api/reduce.h"

#include <pthread.h>
#include <stdatomic.h>

enum {
    TRMI_SHM_SMALL_BYTES = 4096, /* what fits a slot is sent through it... */
    TRMI_SHM_CARRY_BYTES = 1024, /* ...sums beyond this only if peers cannot reach the buffers */
    TRMI_SHM_REGIONS = 256,      /* shared buffers of one rank */
    TRMI_SHM_CELLS = 8,
    TRMI_SHM_CELL_BYTES = 16384,
    TRMI_SHM_LANES = 16,     /* of parts of a sum: one a CPU, as far as they go */
    TRMI_SHM_REPEATS = 64,   /* sums that are remembered */
    TRMI_SHM_SPIN_LOOPS = 32 /* polls between looks at alarm and clock */
};

/* --- registered memory, shared by a communicator and its children --------------------------------
 */
typedef struct trmi_shm_region {
    _Atomic uint64_t generation; /* 0 = free; grows with each use of the entry */
    uint64_t address, bytes;     /* in the owner */
    int32_t fd;                  /* in the owner */
} trmi_shm_region;

typedef struct trmi_shm_process {
    int64_t pid;
    uint64_t pid_namespace; /* two ranks are threads of one process iff both are equal */
} trmi_shm_process;

typedef struct trmi_shm_mapping {
    _Atomic(char *) base;
    uint64_t generation;
    size_t bytes;
} trmi_shm_mapping;

/* Memory made by the first rank of a group and mapped by all. Ranks that are threads of its process
 * use its mapping; the last of them unmaps it. */
typedef struct trmi_shm_segment {
    char *data;
    _Atomic int32_t *users; /* of the maker's mapping; NULL for a mapping of one's own */
    void *memory;
    size_t memory_bytes;
} trmi_shm_segment;

/* One rank's view of its host's registered memory. Reference-counted: children keep it alive. */
typedef struct trmi_shm_host {
    _Atomic int32_t references;
    pthread_mutex_t mutex; /* over allocation and attaching, never over a lookup */
    int32_t n, me;
    trmi_shm_process *processes; /* [n] */
    trmi_shm_region *regions;    /* [n][REGIONS], shared: what ranks tell each other */
    trmi_shm_region *own;        /* [REGIONS], private: this rank's, by which it decides */
    trmi_shm_segment segment;
    trmi_shm_mapping *mappings; /* [n][REGIONS], private */
    _Atomic uint64_t changes;   /* of this rank's own regions */
} trmi_shm_host;

/* Collective among the `n` ranks of a host. The child of a split takes a reference instead. */
trm_status trmi_shm_host_create(int32_t n, int32_t me, const trmi_exchange *exchange,
                                trmi_shm_host **out, trm_error *err);
void trmi_shm_host_release(trmi_shm_host *host);
void *trmi_shm_host_alloc(trmi_shm_host *host, size_t bytes, trm_error *err);
void trmi_shm_host_free(trmi_shm_host *host, void *memory);

/* A place that peers can find: region and offset, or an address in the same process. */
enum { TRMI_SHM_NOWHERE = UINT32_MAX, TRMI_SHM_ADDRESS = UINT32_MAX - 1 };
typedef struct trmi_shm_place {
    uint32_t region;
    uint32_t generation;
    uint64_t offset;
} trmi_shm_place;
/* Where [buffer, buffer + bytes) of this rank lies. one_process: all ranks are threads. */
trmi_shm_place trmi_shm_find(const trmi_shm_host *host, const void *buffer, size_t bytes,
                             bool one_process);
/* This rank's pointer to rank `peer`'s place; attaches on first use.   error IO, NOMEM, CORRUPT */
trm_status trmi_shm_reach(trmi_shm_host *host, int32_t peer, trmi_shm_place place, size_t bytes,
                          char **out, trm_error *err);

/* `bytes` of zeroed memory common to the ranks of `exchange`; succeeds or fails on all of them.
 * processes[n], if not NULL, learns who the ranks are. */
trm_status trmi_shm_segment_create(int32_t n, int32_t me, size_t bytes,
                                   const trmi_exchange *exchange, trmi_shm_process *processes,
                                   trmi_shm_segment *out, trm_error *err);
void trmi_shm_segment_release(trmi_shm_segment *segment);

/* --- one group
 *  ------------------------------------------------------------------------------------ */
typedef struct trmi_shm_head {
    _Alignas(64) _Atomic uint64_t arrivals;
    _Alignas(64) _Atomic uint64_t summed; /* parts so far */
    _Alignas(64) _Atomic uint32_t bell;
    _Atomic uint32_t sleepers;
    struct {
        _Alignas(64) _Atomic uint64_t taken; /* parts so far */
    } lanes[TRMI_SHM_LANES];
} trmi_shm_head;

typedef struct trmi_shm_line {
    _Alignas(128) _Atomic uint64_t phase;
    _Atomic uint32_t left; /* 1: the rank has destroyed its communicator */
    _Atomic int32_t cpu;   /* where the rank ran some events ago */
    _Alignas(64) _Atomic uint32_t mail;
    _Atomic uint32_t mail_sleeping;
} trmi_shm_line;

typedef struct trmi_shm_references {
    trmi_shm_place send, recv;
} trmi_shm_references;

/* What a rank says of its part in an operation. */
typedef struct trmi_shm_said {
    uint64_t signature[2];
    uint32_t way; /* TRMI_SHM_CARRIES or TRMI_SHM_POINTS */
    uint32_t spare;
    union {
        uint8_t tiny[32];       /* carries: up to 32 bytes; more are in payload */
        trmi_shm_references at; /* points */
    };
} trmi_shm_said;

/* One cache line says it all for the smallest vectors and for the largest. */
typedef struct trmi_shm_slot {
    _Alignas(64) _Atomic uint64_t sequence;
    trmi_shm_said said;
    _Alignas(64) uint8_t payload[]; /* small data, or TRM_ALLTOALLV's table */
} trmi_shm_slot;
enum { TRMI_SHM_CARRIES = 1, TRMI_SHM_POINTS = 2 };

typedef struct trmi_shm_cell {
    _Alignas(64) _Atomic uint64_t full, empty; /* index + 1 once written, once consumed */
    uint64_t bytes, signature;                 /* of the whole message */
    trmi_shm_place place;                      /* of the sender's buffer, or NOWHERE: inline */
    uint64_t inline_bytes;
    uint8_t payload[TRMI_SHM_CELL_BYTES];
} trmi_shm_cell;

/* TRM_ALLTOALLV: a block of the sender's vector, in elements. */
typedef struct trmi_shm_share {
    int64_t offset, count;
} trmi_shm_share;

/* Where a peer's buffer was last reached, up to how many bytes. */
typedef struct trmi_shm_found {
    trmi_shm_place place;
    size_t bytes;
    char *at;
} trmi_shm_found;

/* A short all-reduce, as it was done last (shm_repeat.c). */
typedef struct trmi_shm_repeat {
    const void *send;
    void *recv; /* NULL: nothing is remembered here */
    uint64_t signature[2], changes;
    trmi_shm_said *said;  /* [n] what each rank posted */
    int64_t carried;      /* bytes that each slot carries; 0: the vectors lie where all reach, */
    const void **sources; /* [n], and... */
    void **targets;       /* ...[target_count] this rank's slice in them */
    int32_t target_count;
    int64_t count; /* elements of the slice */
    trmi_reduce_fn *kernel;
} trmi_shm_repeat;

typedef struct trmi_shm {
    trmi_engine base;
    trmi_shm_host *host;
    const int32_t *host_rank; /* [n] index in `host` of each rank of the group */
    int32_t n, me;
    int32_t cpus;     /* that the ranks have between them */
    bool counted;     /* more ranks than CPUs: count arrivals, yield instead of polling */
    bool one_process; /* all ranks are threads of one process */
    bool no_direct;
    int32_t spin_microseconds; /* at most */
    double spin_seconds;       /* at present */
    const trmi_reduce_table *reduce;
    bool owes_ring;                             /* an arrival may have left somebody asleep */
    uint64_t posts, phases, events;             /* so far */
    uint64_t parts, lane_parts[TRMI_SHM_LANES]; /* so far, those of the present sum included */
    int64_t lane_first[TRMI_SHM_LANES + 1];     /* of the present sum */
    trmi_shm_head *head;
    trmi_shm_line *lines;
    char *slots;
    size_t slot_bytes, slot_payload_bytes;
    trmi_shm_cell *cells;
    char *stages;
    size_t stage_bytes;                   /* one chunk */
    uint64_t *cells_written, *cells_read; /* [n] so far, to and from each peer */
    uint32_t mail_seen;                   /* this rank's mail when messages were last looked at */
    trmi_shm_segment segment;
    const void **sources;     /* [n] scratch of an operation */
    void **targets;           /* [n] */
    trmi_shm_found *found;    /* [n][2]: what each sends, where it receives */
    trmi_shm_repeat *repeats; /* [REPEATS], filled by shm_repeat.c */
    trmi_shm_share *shares;   /* [n] what each sends to this rank, copied out of its slot */
    bool *missing;            /* [n] */
} trmi_shm;

typedef struct trmi_shm_options {
    size_t staging_bytes;
    int32_t spin_microseconds;
    bool no_direct;
} trmi_shm_options;

/* The engine of `group`, whose ranks all live on one host. Takes a reference to `host`. */
trm_status trmi_shm_create(const trmi_group *group, trmi_shm_host *host, const int32_t *host_rank,
                           const trmi_shm_options *options, const trmi_exchange *exchange,
                           trmi_engine **out, trm_error *err);

static inline trmi_shm_slot *trmi_shm_slot_of(const trmi_shm *shm, int32_t rank,
                                              uint64_t sequence) {
    return (trmi_shm_slot *)(void *)(shm->slots +
                                     ((size_t)rank * 2 + sequence % 2) * shm->slot_bytes);
}
static inline char *trmi_shm_stage_of(const trmi_shm *shm, int32_t rank, int64_t round) {
    return shm->stages + ((size_t)rank * 2 + (size_t)(round % 2)) * shm->stage_bytes;
}

/* shm_wait.c: the events. post publishes the slot of operation `posts + 1`, filled by the caller.
 */
void trmi_shm_post(trmi_shm *shm);
trm_status trmi_shm_wait_posts(trmi_shm *shm, const trmi_engine_call *op, trm_error *err);
/* At the end of an operation: wakes whoever slept through this rank's arrivals. */
void trmi_shm_settle(trmi_shm *shm);
/* Sums in parts, of groups with more ranks than CPUs. begin: the next `count` parts are this
 * operation's. take: one that nobody has taken, first of those that this CPU has had before and
 * whose vectors its caches may hold; false = none is left. end_part: it is summed. wait: for those
 * of others. */
void trmi_shm_begin_parts(trmi_shm *shm, int64_t count);
bool trmi_shm_take_part(trmi_shm *shm, int64_t *part);
void trmi_shm_end_part(trmi_shm *shm);
bool trmi_shm_parts_over(const trmi_shm *shm);
trm_status trmi_shm_wait_parts(trmi_shm *shm, const trmi_engine_call *op, trm_error *err);
/* arrive, then wait */
trm_status trmi_shm_meet(trmi_shm *shm, const trmi_engine_call *op, trm_error *err);

/* shm_repeat.c: sums that are called again and again. recall: how `op` was done last, NULL if that
 * is not known. says_the_same: all peers have posted what they posted then, but for the numbers
 * that slots carry. remember: `sources` and `targets` of the engine point at this rank's slice of
 * `count` elements, and all have posted; remember_carried: all have posted `bytes` of numbers in
 * their slots. Without memory for it nothing is remembered. */
const trmi_shm_repeat *trmi_shm_recall(const trmi_shm *shm, const trmi_engine_call *op);
bool trmi_shm_says_the_same(const trmi_shm *shm, const trmi_shm_repeat *repeat);
void trmi_shm_remember(trmi_shm *shm, const trmi_engine_call *op, int32_t target_count,
                       int64_t count);
void trmi_shm_remember_carried(trmi_shm *shm, const trmi_engine_call *op, int64_t bytes);

/* shm_collective.c, shm_message.c: the engine's verbs. */
trm_status trmi_shm_run(trmi_engine *engine, const trmi_engine_call *op, trm_error *err);
trm_status trmi_shm_progress(trmi_engine *engine, trmi_engine_message *message, trm_error *err);
void trmi_shm_idle(trmi_engine *engine, double seconds);
void trmi_shm_ring_mail(trmi_shm *shm, int32_t peer);

#endif
