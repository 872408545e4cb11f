/* SPDX-License-Identifier: Apache-2.0 */
/* comm/api/engine.h: what a communicator asks of the thing that moves its bytes.
 *
 *   trm_comm_run --> trmi_engine_call (checked, numbered, signed) --> engine->run
 *
 * An engine serves a group of ranks (`members` of the job), numbered 0..n-1 inside it. shm serves
 * the ranks of one host; a network engine any ranks. comm.c puts them together. */
#ifndef TRMI_COMM_ENGINE_H
#define TRMI_COMM_ENGINE_H

#include "comm/rendezvous/rendezvous.h"
#include "trireme/comm.h"

/* A collective, resolved for one rank: pointers say where data really start, in place or not.
 *   all-reduce and the like   send, recv: the rank's vector
 *   per-rank blocks           block b of a vector starts at offsets[b], counts[b] elements long */
typedef struct trmi_engine_call {
    trm_collective_kind kind;
    trm_dtype dtype;
    trm_reduction reduce;
    int32_t root;
    int32_t divisor;  /* of a mean: ranks of the whole communicator, maybe more than the group's */
    int64_t count;    /* elements of a block (or of the vector, where there are no blocks) */
    int64_t total;    /* elements of the longest vector: all blocks together */
    const void *send; /* this rank's input, NULL if it has none */
    void *recv;       /* this rank's output, NULL if it has none */
    /* Blocks of the vector that is equal on all ranks; NULL when all blocks are `count` long. */
    const int64_t *counts, *offsets;
    /* TRM_ALLTOALLV: this rank's view. */
    const int64_t *send_counts, *send_offsets, *recv_counts, *recv_offsets;
    uint64_t sequence; /* number of the operation on its communicator, from 1 */
    uint64_t signature[2];
    const char *tag; /* the caller's name of the tensor, or NULL; lives as long as the operation */
} trmi_engine_call;

/* One message of an exchange, and how far it has come. */
typedef struct trmi_engine_message {
    bool receive, done;
    int32_t rank; /* the peer, in the communicator */
    int32_t peer; /* the peer, in the engine's group */
    char *buffer;
    int64_t bytes, moved;
    uint64_t signature; /* type and count */
    uint64_t cell;      /* engine's note */
    void *handle;       /* engine's note */
    bool started;
} trmi_engine_message;

typedef struct trmi_group {
    trm_bootstrap *bootstrap;
    int32_t size, rank;
    const int32_t *members; /* [size] rank of each in the communicator, for errors */
    double timeout_seconds, report_seconds;
    trm_deterministic deterministic;
    const char *name;
} trmi_group;

/* A slow all-gather among the group while engines are being made (in lockstep on all of it). */
typedef struct trmi_exchange {
    void *context;
    trm_status (*allgather)(void *context, const void *mine, size_t bytes, void *all,
                            trm_error *err);
} trmi_exchange;

typedef struct trmi_engine trmi_engine;
typedef struct trmi_engine_table {
    const char *name;
    /* Runs one collective to its end. Waits end at the group's deadline or when the job is
     * poisoned; whoever finds a cause poisons the job. */
    trm_status (*run)(trmi_engine *engine, const trmi_engine_call *op, trm_error *err);
    /* Moves a message as far as it goes without waiting; sets message->done. Messages of one
     * direction and peer are offered in order, the next one only after the one before is done. */
    trm_status (*progress)(trmi_engine *engine, trmi_engine_message *message, trm_error *err);
    /* Gets a message under way behind those before it; sets message->started. NULL: progress does.
     */
    trm_status (*start)(trmi_engine *engine, trmi_engine_message *message, trm_error *err);
    /* Sleeps until something may have changed for messages, at most `seconds`. */
    void (*idle)(trmi_engine *engine, double seconds);
    void (*destroy)(trmi_engine *engine);
} trmi_engine_table;

struct trmi_engine {
    const trmi_engine_table *table;
    trmi_group group;
    bool background; /* run by a progress thread beside a computing one: sleep early */
};

/* Offset and length, in elements, of block `b` of the common vector. */
static inline int64_t trmi_op_offset(const trmi_engine_call *op, int32_t b) {
    return op->offsets != NULL ? op->offsets[b] : op->count * b;
}
static inline int64_t trmi_op_count(const trmi_engine_call *op, int32_t b) {
    return op->counts != NULL ? op->counts[b] : op->count;
}

/* "all-reduce #12 of 1000 float32 (sum) 'conv1'", into text; returns text. */
const char *trmi_op_format(const trmi_engine_call *op, char *text, size_t size);
/* Kind, type, reduction, root and counts in 16 bytes. */
void trmi_op_sign(trmi_engine_call *op, int32_t size);
/* An error that shows both sides; poisons the job. `member` and `signature` are the other's. */
trm_status trmi_op_mismatch(const trmi_group *group, const trmi_engine_call *op, int32_t member,
                            uint64_t sequence, const uint64_t signature[2], trm_error *err);

/* The one clock of a wait. */
typedef struct trmi_wait {
    double start;
    bool reported;
} trmi_wait;

/* Called every 50 ms or so by whoever waits: fails with the first cause if the job is poisoned,
 * with TIMEOUT (and poisons) at the deadline; logs once at the report time. `missing` marks the
 * members that are waited for, NULL if unknown; `what` names the operation. */
trm_status trmi_wait_check(trmi_wait *wait, const trmi_group *group, const bool *missing,
                           const char *what, trm_error *err);

/* Fails, and tells everyone: the first cause if there was one before this. */
trm_status trmi_group_poison(const trmi_group *group, trm_error *cause, trm_error *err);

/* The same of a peer whose memory cannot be reached: mostly because it has died, and then that is
 * the first cause, which is waited for, a second at most. `what` names the operation. */
trm_status trmi_group_unreachable(const trmi_group *group, trm_error *cause, const char *what,
                                  trm_error *err);

#endif
