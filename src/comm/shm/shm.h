/* SPDX-License-Identifier: Apache-2.0 */
/* comm/shm/shm.h: internals of the engine that serves the ranks of one host.
 *
 * The group's shared segment (one memfd, mapped by every rank of the group):
 *   head          arrival counter, futex word ("bell"), number of sleeping ranks
 *   line[n]       each rank's phase counter and message counter, on cache lines of its own
 *   slot[n][2]    rank r posts operation s in slot[r][s % 2]: a header, then small data or references
 *   cell[n][n][8] messages from rank i to rank j
 *   stage[n][2]   chunks of vectors that lie in memory that peers cannot map
 *
 * Events. Every collective starts with one post and may have further phases. Each post and each
 * phase is an event at which all ranks meet: a rank arrives (from then on its data are readable)
 * and then waits until all other ranks have arrived.
 *
 * Invariants: 1. A rank rewrites a slot two posts later. In between it has waited for the next
 * post, and by then every peer has finished the operation that read the slot. 2. A rank reads or
 * writes a peer's buffer only after that peer's post and before its own last arrival of the
 * operation. In a sum made in parts, it touches a peer's buffer only for a part that it has taken
 * and not yet finished. 3. A flag is stored with release order, after the data that it announces.
 *
 * Waiting. With at least as many CPUs as ranks, a rank polls the peers' flags for a short time and
 * then sleeps on the bell. With more ranks on the host than CPUs (a "counted" group, and so are all
 * groups that are split from it: another group's rank may need the CPU), ranks count arrivals and
 * only the last one to arrive rings the bell. A waiting rank reads the counter, calls sched_yield
 * for the same short time, and then sleeps. In a counted group, a sum of vectors that all ranks can
 * reach is made in parts: each rank that has a CPU takes the next part. The operation is over once
 * all parts are summed, so a rank that arrives late has no part left to sum. */
#ifndef TRMI_COMM_SHM_H
#define TRMI_COMM_SHM_H

#include "comm/api/engine.h"
#include "comm/api/reduce.h"

#include <pthread.h>
#include <stdatomic.h>

/* Sizes of the segment and limits of a rank. */
enum {
    TRMI_SHM_SMALL_BYTES = 4096, /* vectors of at most this many bytes travel in a slot */
    /* all-reduces above this use a slot only if peers cannot reach the buffers */
    TRMI_SHM_CARRY_BYTES = 1024,
    TRMI_SHM_REGIONS = 256,      /* shared buffers of one rank, at most */
    TRMI_SHM_CELLS = 8,          /* message cells of each ordered pair of ranks */
    TRMI_SHM_CELL_BYTES = 16384, /* payload of one cell */
    TRMI_SHM_LANES = 16,         /* groups of parts of a sum, one for each CPU up to this many */
    TRMI_SHM_REPEATS = 64,       /* entries of the cache of recent all-reduces (shm_repeat.c) */
    TRMI_SHM_SPIN_LOOPS = 32     /* polls between two reads of the clock and of the failure flag */
};

/* --- Registered memory, shared by a communicator and its children ---
 *
 * One shared buffer, as its owner publishes it to the peers. */
typedef struct trmi_shm_region {
    _Atomic uint64_t generation; /* odd: in use, even: free; grows by one at each change */
    uint64_t address, bytes;     /* of the buffer in the owner's address space */
    int32_t fd;                  /* the memfd, as a descriptor of the owner */
} trmi_shm_region;

/* Identifies the process of a rank. Ranks of one process can use each other's pointers. */
typedef struct trmi_shm_process {
    int64_t pid;
    uint64_t pid_namespace; /* inode of the namespace: a pid alone is not unique on a host */
} trmi_shm_process;

/* This rank's mapping of one region of a peer. */
typedef struct trmi_shm_mapping {
    _Atomic(char *) base; /* NULL: not mapped yet */
    /* generation of the region that was mapped; another one means that the buffer was freed */
    uint64_t generation;
    size_t bytes;
} trmi_shm_mapping;

/* Memory that the first rank of a group creates and all ranks of the group map. Ranks that are
 * threads of the creator's process share its mapping; the last of them unmaps it. */
typedef struct trmi_shm_segment {
    char *data; /* start of the usable memory; equals `memory` once all ranks have mapped it */
    /* reference count of the creator's mapping; NULL: this mapping belongs to this rank alone */
    _Atomic int32_t *users;
    void *memory;        /* start of the mapping; NULL: not mapped */
    size_t memory_bytes; /* length of the mapping */
} trmi_shm_segment;

/* One rank's view of the registered memory of its host. It is reference-counted: the communicator
 * that created it and the children of that communicator hold one reference each. */
typedef struct trmi_shm_host {
    _Atomic int32_t references;
    pthread_mutex_t mutex; /* protects allocation and attaching; trmi_shm_find takes no lock */
    int32_t n, me;         /* number of ranks of the host, and this rank's index among them */
    trmi_shm_process *processes; /* [n] */
    /* [n][TRMI_SHM_REGIONS] in shared memory: published, written by the owner only */
    trmi_shm_region *regions;
    /* [TRMI_SHM_REGIONS] private: this rank's own entries, which no peer can change */
    trmi_shm_region *own;
    trmi_shm_segment segment;   /* holds `regions` */
    trmi_shm_mapping *mappings; /* [n][TRMI_SHM_REGIONS] private */
    _Atomic uint64_t changes;   /* number of changes of this rank's own regions so far */
    bool crowded;               /* all ranks of the host share fewer CPUs than they are */
} trmi_shm_host;

/* Creates the registered memory of a host. All `n` ranks of the host call it together (`exchange`
 * is their all-gather). The child of a split takes a reference to its parent's instead. *out is
 * freed by trmi_shm_host_release.
 *   errors  NOMEM, IO, PEER */
trm_status trmi_shm_host_create(int32_t n, int32_t me, const trmi_exchange *exchange,
                                trmi_shm_host **out, trm_error *err);
/* Drops one reference. The last one frees the rank's buffers and unmaps those of the peers. NULL is
 * allowed. */
void trmi_shm_host_release(trmi_shm_host *host);
/* Allocates `bytes` of memory that peers can map, rounded up to whole huge pages where that is
 * worthwhile. Returns NULL on failure (NOMEM, IO). Any thread may call it. */
void *trmi_shm_host_alloc(trmi_shm_host *host, size_t bytes, trm_error *err);
/* Frees memory from trmi_shm_host_alloc. NULL is allowed. No operation may be using the memory. */
void trmi_shm_host_free(trmi_shm_host *host, void *memory);
/* Takes memory from trmi_shm_host_alloc out of the table and leaves it mapped; the caller unmaps
 * it. Returns its size, 0 if it is not in the table. */
size_t trmi_shm_host_keep(trmi_shm_host *host, void *memory);

/* The position of a buffer in terms that peers can resolve: a region and an offset in it, or
 * (region = ADDRESS) a plain address, valid inside the same process only. */
enum { TRMI_SHM_NOWHERE = UINT32_MAX, TRMI_SHM_ADDRESS = UINT32_MAX - 1 };
/* A buffer as peers find it. */
typedef struct trmi_shm_place {
    uint32_t region;     /* index in the owner's table, NOWHERE or ADDRESS */
    uint32_t generation; /* lower 32 bits of the region's generation */
    uint64_t offset;     /* from the start of the region, or the address itself */
} trmi_shm_place;
/* Finds the shared region that contains [buffer, buffer + bytes) of this rank. The result has
 * region NOWHERE if there is none. one_process: all ranks are threads of one process, so the
 * address itself is the place. Takes no lock and is called for every operation. */
trmi_shm_place trmi_shm_find(const trmi_shm_host *host, const void *buffer, size_t bytes,
                             bool one_process);
/* Resolves a place that rank `peer` (index in `host`) has published into a pointer of this process,
 * and maps the region on first use. The range of `bytes` is checked against the region's size.
 *   errors  IO, NOMEM, CORRUPT, INVALID (the buffer has been freed) */
trm_status trmi_shm_reach(trmi_shm_host *host, int32_t peer, trmi_shm_place place, size_t bytes,
                          char **out, trm_error *err);

/* Finds the buffer of any rank, also of a peer that this rank has mapped, that contains [memory,
 * memory + bytes). *owner: index in `host`. False: no shared buffer does. */
bool trmi_shm_find_owner(trmi_shm_host *host, const void *memory, size_t bytes, int32_t *owner,
                         trmi_shm_place *place);
/* Maps the buffer at `place` of rank `owner` (index in `host`), beside what the host has mapped:
 * out->data is the place, and stays valid when the buffer, its owner or the host is gone.
 *   owns  trmi_shm_segment_release    errors  IO, NOMEM, CORRUPT, INVALID (it has been freed) */
trm_status trmi_shm_map_place(trmi_shm_host *host, int32_t owner, trmi_shm_place place,
                              size_t bytes, trmi_shm_segment *out, trm_error *err);

/* Creates `bytes` of zeroed memory that all ranks of `exchange` map. It succeeds on all ranks or
 * fails on all of them. If processes[n] is not NULL, it receives the process of each rank. */
trm_status trmi_shm_segment_create(int32_t n, int32_t me, size_t bytes,
                                   const trmi_exchange *exchange, trmi_shm_process *processes,
                                   trmi_shm_segment *out, trm_error *err);
/* Drops this rank's use of the segment and unmaps it with the last use in the process. */
void trmi_shm_segment_release(trmi_shm_segment *segment);

/* --- One group ---
 *
 * The head of the segment. Each counter has a cache line of its own, because all ranks write
 * them. */
typedef struct trmi_shm_head {
    /* number of arrivals at events so far (counted groups only) */
    _Alignas(64) _Atomic uint64_t arrivals;
    _Alignas(64) _Atomic uint64_t summed; /* number of parts of sums that are finished so far */
    _Alignas(64) _Atomic uint32_t bell;   /* futex word: incremented to wake the sleeping ranks */
    _Atomic uint32_t sleepers;            /* number of ranks that sleep on `bell` or are about to */
    struct {
        _Alignas(64) _Atomic uint64_t taken; /* number of parts of this lane taken so far */
    } lanes[TRMI_SHM_LANES];
} trmi_shm_head;

/* The flags of one rank. 128-byte alignment: CPUs prefetch cache lines in pairs. */
typedef struct trmi_shm_line {
    _Alignas(128) _Atomic uint64_t phase; /* number of phases that the rank has arrived at */
    _Atomic uint32_t left;                /* 1: the rank has destroyed its communicator */
    _Atomic int32_t cpu;                  /* CPU that the rank ran on a few events ago */
    /* futex word: incremented when a message for or from this rank has moved */
    _Alignas(64) _Atomic uint32_t mail;
    _Atomic uint32_t mail_sleeping; /* 1 while the rank sleeps on `mail` */
} trmi_shm_line;

/* Where a rank's vectors lie, for an operation that reads and writes them in place. */
typedef struct trmi_shm_references {
    trmi_shm_place send, recv;
} trmi_shm_references;

/* The header of a post: what a rank declares about its part in an operation. */
typedef struct trmi_shm_said {
    uint64_t signature[2]; /* trmi_op_sign: kind, type, reduction, root and counts */
    /* TRMI_SHM_CARRIES: the data are in the slot; TRMI_SHM_POINTS: `at` says where they are */
    uint32_t delivery;
    uint32_t spare;
    union {
        /* CARRIES: the data, if they have at most 32 bytes; more are in `payload` */
        uint8_t tiny[32];
        trmi_shm_references at; /* POINTS: places of the vectors */
    };
} trmi_shm_said;

/* One post. Its first cache line is enough for the smallest vectors (they are in it) and for the
 * largest (it refers to them). */
typedef struct trmi_shm_slot {
    _Alignas(64) _Atomic uint64_t sequence; /* number of the last operation that was posted here */
    trmi_shm_said said;
    /* small data, or for TRM_ALLTOALLV a table of trmi_shm_share by destination */
    _Alignas(64) uint8_t payload[];
} trmi_shm_slot;
enum { TRMI_SHM_CARRIES = 1, TRMI_SHM_POINTS = 2 };

/* One element of the message ring of an ordered pair of ranks (shm_message.c). Cell k serves the
 * messages number k, k + TRMI_SHM_CELLS, ... */
typedef struct trmi_shm_cell {
    /* index + 1 of the last message written, of the last one consumed */
    _Alignas(64) _Atomic uint64_t full, empty;
    uint64_t bytes, signature; /* length and type of the whole message */
    trmi_shm_place place;  /* place of the sender's buffer; NOWHERE: the data are in `payload` */
    uint64_t inline_bytes; /* number of bytes in `payload` */
    uint8_t payload[TRMI_SHM_CELL_BYTES];
} trmi_shm_cell;

/* TRM_ALLTOALLV: one block of the sender's vector: first element and number of elements. */
typedef struct trmi_shm_share {
    int64_t offset, count;
} trmi_shm_share;

/* The last resolved place of a peer's vector, so that a repeated operation skips the lookup. */
typedef struct trmi_shm_found {
    trmi_shm_place place;
    size_t bytes; /* length for which the place was checked */
    char *at;     /* pointer in this process */
} trmi_shm_found;

/* A short all-reduce as it was executed last time (shm_repeat.c). */
typedef struct trmi_shm_repeat {
    const void *send;               /* the caller's input */
    void *recv;                     /* NULL: the entry is empty */
    uint64_t signature[2], changes; /* trmi_shm_host.changes at that time */
    trmi_shm_said *said;            /* [n] the header that each rank posted */
    /* bytes of data in each slot; 0: the vectors lie in memory that all ranks reach */
    int64_t carried;
    const void **sources;   /* [n] this rank's slice in each input vector */
    void **targets;         /* [target_count] this rank's slice in each output vector */
    int32_t target_count;   /* number of output vectors that this rank writes */
    int64_t count;          /* elements of the slice */
    trmi_reduce_fn *kernel; /* for the type and reduction */
} trmi_shm_repeat;

/* The engine of one group, on one rank. */
typedef struct trmi_shm {
    trmi_engine base;         /* must be the first member */
    trmi_shm_host *host;      /* registered memory, counted */
    const int32_t *host_rank; /* [n] index in `host` of each rank of the group */
    int32_t n, me;            /* number of ranks of the group, and this rank's index */
    int32_t cpus;             /* number of CPUs that the ranks share */
    /* more ranks than CPUs, here or on the whole host: count arrivals, yield the CPU instead of
     * polling */
    bool counted;
    bool one_process; /* all ranks are threads of one process */
    bool no_direct;   /* never read peers' buffers in place (a test option): use the stages */
    int32_t spin_microseconds;       /* upper limit of the polling time */
    double spin_seconds;             /* present polling time, which adapts (shm_wait.c) */
    const trmi_reduce_table *reduce; /* kernels for this CPU */
    bool owes_ring;                 /* the bell may have to be rung for this rank's last arrivals */
    uint64_t posts, phases, events; /* number so far, on this rank: posts, phases, and their sum */
    /* number of parts so far, including those of the present sum; by lane */
    uint64_t parts, lane_parts[TRMI_SHM_LANES];
    int64_t lane_first[TRMI_SHM_LANES + 1]; /* first part of each lane in the present sum */
    trmi_shm_head *head;                    /* counters of the group */
    trmi_shm_line *lines;                   /* [n] flags of each rank */
    char *slots;                            /* [n][2] see trmi_shm_slot_of */
    size_t slot_bytes, slot_payload_bytes;  /* size of one slot, and of its payload */
    trmi_shm_cell *cells;                   /* [n][n][TRMI_SHM_CELLS] */
    char *stages;                           /* [n][2] see trmi_shm_stage_of */
    size_t stage_bytes;                     /* size of one stage */
    uint64_t pieces; /* number of pieces that two ranks have exchanged so far (staged sums) */
    uint64_t *cells_written, *cells_read; /* [n] number of cells so far, to and from each peer */
    uint32_t mail_seen; /* this rank's `mail` counter when it last went through its messages */
    trmi_shm_segment segment; /* holds head, lines, slots, cells and stages */
    const void **sources;     /* [n] scratch: input vectors of the present operation */
    void **targets;           /* [n] scratch: output vectors of the present operation */
    /* [n][2] last resolved places: the vector that a rank sends, the one that it receives into */
    trmi_shm_found *found;
    trmi_shm_repeat *repeats; /* [TRMI_SHM_REPEATS] */
    /* [n] TRM_ALLTOALLV: what each rank sends to this rank, copied out of its slot */
    trmi_shm_share *shares;
    bool *missing; /* [n] scratch: the ranks that a wait still misses */
} trmi_shm;

/* Options of the engine, equal on all ranks of the group. */
typedef struct trmi_shm_options {
    size_t staging_bytes;      /* memory of one rank for both stages */
    int32_t spin_microseconds; /* longest polling before a rank sleeps */
    bool no_direct;            /* never read peers' buffers in place */
} trmi_shm_options;

/* Creates the engine of `group`, whose ranks all live on one host. All of them call it together.
 * host_rank[group->size] gives each rank's index in `host`; the engine keeps the pointer and takes
 * a reference to `host`. *out is destroyed through its table.
 *   errors  NOMEM, IO, PEER */
trm_status trmi_shm_create(const trmi_group *group, trmi_shm_host *host, const int32_t *host_rank,
                           const trmi_shm_options *options, const trmi_exchange *exchange,
                           trmi_engine **out, trm_error *err);

/* Returns the slot in which `rank` posts operation number `sequence`. */
static inline trmi_shm_slot *trmi_shm_slot_of(const trmi_shm *shm, int32_t rank,
                                              uint64_t sequence) {
    return (trmi_shm_slot *)(void *)(shm->slots +
                                     ((size_t)rank * 2 + sequence % 2) * shm->slot_bytes);
}
/* Returns the stage of `rank` that chunk or piece number `round` uses. */
static inline char *trmi_shm_stage_of(const trmi_shm *shm, int32_t rank, uint64_t round) {
    return shm->stages + ((size_t)rank * 2 + (size_t)(round % 2)) * shm->stage_bytes;
}

/* shm_wait.c: the events.
 *
 * trmi_shm_post publishes this rank's slot of operation `posts` + 1, which the caller has filled,
 * and increments `posts`. */
void trmi_shm_post(trmi_shm *shm);
/* Waits until all ranks have posted operation `posts`. `op` names the operation in errors.
 *   errors  TIMEOUT, PEER, or the failure of the job */
trm_status trmi_shm_wait_posts(trmi_shm *shm, const trmi_engine_call *op, trm_error *err);
/* Wakes ranks that went to sleep before they could see this rank's arrivals. Called at the end of
 * an operation and before long computations. */
void trmi_shm_settle(trmi_shm *shm);
/* Sums made in parts, in groups with more ranks than CPUs. begin_parts declares that the next
 * `count` parts belong to this operation. take_part takes a part that no rank has taken, and
 * returns false when none is left; it prefers the lane of the current CPU, because that CPU's
 * caches may still hold those parts of the vectors. end_part reports that a taken part is summed.
 * parts_over is true once all parts of the operation are summed. wait_parts waits until no other
 * rank has an unfinished part. */
void trmi_shm_begin_parts(trmi_shm *shm, int64_t count);
bool trmi_shm_take_part(trmi_shm *shm, int64_t *part);
void trmi_shm_end_part(trmi_shm *shm);
bool trmi_shm_parts_over(const trmi_shm *shm);
trm_status trmi_shm_wait_parts(trmi_shm *shm, const trmi_engine_call *op, trm_error *err);
/* Arrives at the next phase, then waits until all ranks have arrived at it. */
trm_status trmi_shm_meet(trmi_shm *shm, const trmi_engine_call *op, trm_error *err);

/* shm_repeat.c: a cache of recent short all-reduces. find_repeat returns how the same `op` was
 * executed last time, or NULL if no entry matches. headers_equal returns whether all peers have
 * posted the same headers as last time (the data in the slots may differ). store_repeat stores an
 * operation after all ranks have posted; the engine's `sources` and `targets` must point at this
 * rank's slice of `count` elements. store_slot_repeat stores one whose data (`bytes` each)
 * travelled in the slots. If there is no memory for an entry, both do nothing. */
const trmi_shm_repeat *trmi_shm_find_repeat(const trmi_shm *shm, const trmi_engine_call *op);
bool trmi_shm_headers_equal(const trmi_shm *shm, const trmi_shm_repeat *repeat);
void trmi_shm_store_repeat(trmi_shm *shm, const trmi_engine_call *op, int32_t target_count,
                           int64_t count);
void trmi_shm_store_slot_repeat(trmi_shm *shm, const trmi_engine_call *op, int64_t bytes);

/* shm_collective.c and shm_message.c implement these functions of the engine's table
 * (comm/api/engine.h). */
trm_status trmi_shm_run(trmi_engine *engine, const trmi_engine_call *op, trm_error *err);
trm_status trmi_shm_progress(trmi_engine *engine, trmi_engine_message *message, trm_error *err);
void trmi_shm_idle(trmi_engine *engine, double seconds);
/* Increments the `mail` counter of `peer` and wakes it if it sleeps in trmi_shm_idle. */
void trmi_shm_ring_mail(trmi_shm *shm, int32_t peer);

#endif
