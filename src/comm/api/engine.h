/* SPDX-License-Identifier: Apache-2.0 */
/* comm/api/engine.h: the interface between a communicator and an engine, which moves its bytes.
 *
 *   trm_comm_run --> trmi_engine_call (checked, numbered, signed) --> engine->table->run
 *
 * An engine serves a group of ranks, numbered 0 .. n-1 inside the group. The shm engine serves
 * ranks of one host, a network engine any ranks; comm.c combines them. An engine gets only checked
 * calls, but it checks everything that a peer sends.
 *
 * Failure. The first rank that finds a failure *poisons* the job: it stores the error where all
 * ranks read it. Every wait checks for it, so all ranks fail with the same first cause. */
#ifndef TRMI_COMM_ENGINE_H
#define TRMI_COMM_ENGINE_H

#include "comm/rendezvous/rendezvous.h"
#include "trireme/dist.h"

/* A collective, resolved for one rank. The pointers say where data really start; whether the
 * caller's operation was in place no longer matters.
 *   all-reduce, reduce, broadcast   send, recv: the rank's vector of `count` elements
 *   with blocks, one for each rank  block b of a vector starts at offsets[b] and has counts[b] elements
 */
typedef struct trmi_engine_call {
    trm_collective_kind kind; /* which collective */
    trm_dtype dtype;          /* of the elements */
    trm_reduction reduce;     /* NONE for kinds that do not reduce */
    int32_t root;             /* rank of the group; 0 for kinds without a root */
    /* number by which a mean divides: ranks of the whole communicator, perhaps more than the
     * group's */
    int32_t divisor;
    int64_t count;    /* elements of a block, or of the vector if there are no blocks */
    int64_t total;    /* elements of the longest vector: all blocks together */
    const void *send; /* this rank's input, NULL if it has none */
    void *recv;       /* this rank's output, NULL if it has none */
    /* [size] blocks of the vector that is equal on all ranks; NULL if all blocks have `count`
     * elements. */
    const int64_t *counts, *offsets;
    /* [size] TRM_ALLTOALLV: this rank's blocks by destination, and by source. */
    const int64_t *send_counts, *send_offsets, *recv_counts, *recv_offsets;
    uint64_t sequence; /* number of the operation on its communicator, from 1 */
    /* trmi_op_sign: must be equal on all ranks */
    uint64_t signature[2];
    const char *tag; /* the caller's name of the tensor, or NULL; lives as long as the operation */
} trmi_engine_call;

/* One message of an exchange, and its progress. */
typedef struct trmi_engine_message {
    bool receive, done;   /* direction; the message has moved completely */
    int32_t rank;         /* the peer, in the communicator */
    int32_t peer;         /* the peer, in the engine's group */
    char *buffer;         /* the caller's */
    int64_t bytes, moved; /* length of the message, and how much of it has moved */
    /* the data type; compared between sender and receiver together with `bytes` */
    uint64_t signature;
    uint64_t cell; /* for the engine's use */
    void *handle;  /* for the engine's use */
    bool started;  /* the engine has sent or posted a first part */
} trmi_engine_message;

/* The ranks that an engine serves, as seen by one of them. */
typedef struct trmi_group {
    trm_bootstrap *bootstrap; /* the job, borrowed */
    int32_t size, rank;       /* number of ranks, and this rank's index */
    const int32_t *members;   /* [size] number of each rank in the job, for errors */
    /* deadline of an operation; time after which a wait is logged */
    double timeout_seconds, report_seconds;
    trm_deterministic deterministic; /* required reproducibility of sums */
    const char *name;                /* of the communicator, for errors */
} trmi_group;

/* A slow all-gather among the group, for the creation of engines. All ranks of the group call it
 * the same number of times: `mine` of `bytes` from each rank, `all` of size * bytes in rank
 * order. */
typedef struct trmi_exchange {
    void *context; /* first argument of allgather; borrowed */
    trm_status (*allgather)(void *context, const void *mine, size_t bytes, void *all,
                            trm_error *err);
} trmi_exchange;

typedef struct trmi_engine trmi_engine;
/* The functions of a kind of engine. */
typedef struct trmi_engine_table {
    const char *name;
    /* Runs one collective to its end. A wait ends with an error at the group's deadline or when the
     * job is poisoned; the rank that finds a new failure poisons the job. */
    trm_status (*run)(trmi_engine *engine, const trmi_engine_call *op, trm_error *err);
    /* Moves a message as far as possible without waiting; sets message->done. Messages of one
     * direction and one peer are passed in order, the next only after the previous one is done. */
    trm_status (*progress)(trmi_engine *engine, trmi_engine_message *message, trm_error *err);
    /* Gets a message under way while earlier ones are not done; sets message->started. NULL: the
     * engine has no such function, progress does it. */
    trm_status (*start)(trmi_engine *engine, trmi_engine_message *message, trm_error *err);
    /* Sleeps until a message may have moved, for at most `seconds`. */
    void (*idle)(trmi_engine *engine, double seconds);
    void (*destroy)(trmi_engine *engine);
} trmi_engine_table;

/* First member of the struct of each engine. */
struct trmi_engine {
    const trmi_engine_table *table; /* functions of its kind */
    trmi_group group;               /* the ranks that it serves */
    bool background; /* called by a progress thread beside a computing caller: sleep early */
};

/* Return offset and length, in elements, of block `b` of the common vector. */
static inline int64_t trmi_op_offset(const trmi_engine_call *op, int32_t b) {
    return op->offsets != NULL ? op->offsets[b] : op->count * b;
}
/* Returns the elements of block b. */
static inline int64_t trmi_op_count(const trmi_engine_call *op, int32_t b) {
    return op->counts != NULL ? op->counts[b] : op->count;
}

/* Writes "all-reduce #12 of 1000 float32 (sum) 'conv1'" into text; returns text. */
const char *trmi_op_format(const trmi_engine_call *op, char *text, size_t size);
/* Computes op->signature: kind, type, reduction, root and counts in 16 bytes. `size` is the number
 * of ranks. Ranks compare signatures to find that they call different operations. */
void trmi_op_sign(trmi_engine_call *op, int32_t size);
/* Fails with INVALID and a message that shows both operations, and poisons the job. `member` is the
 * other rank's index in the group, `signature` and `sequence` are those of its operation. */
trm_status trmi_op_mismatch(const trmi_group *group, const trmi_engine_call *op, int32_t member,
                            uint64_t sequence, const uint64_t signature[2], trm_error *err);

/* The state of one wait. */
typedef struct trmi_wait {
    double start;  /* when the wait began (trmi_os_now); 0: not yet */
    bool reported; /* the wait was logged */
} trmi_wait;

/* Checks a wait. Waiting code calls it about every 50 ms. It fails with the first cause if the job
 * is poisoned, and with TIMEOUT at the deadline (it then poisons the job). After report_seconds it
 * logs a warning once. missing[size] marks the members that the rank waits for, NULL if unknown;
 * `what` names the operation. */
trm_status trmi_wait_check(trmi_wait *wait, const trmi_group *group, const bool *missing,
                           const char *what, trm_error *err);

/* Poisons the job with `cause` and returns an error: the job's first cause if there was an earlier
 * one, otherwise `cause`. */
trm_status trmi_group_poison(const trmi_group *group, trm_error *cause, trm_error *err);

/* Poisons the job for a peer whose memory cannot be reached. The usual reason is the death of the
 * peer, which is then the real first cause: the function waits up to a second for its report before
 * it poisons the job with `cause`. `what` names the operation. */
trm_status trmi_group_unreachable(const trmi_group *group, trm_error *cause, const char *what,
                                  trm_error *err);

#endif
