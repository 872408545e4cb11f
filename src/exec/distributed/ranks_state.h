/* SPDX-License-Identifier: Apache-2.0 */
/* exec/distributed/ranks_state.h: one graph on the ranks of a communicator.
 *
 *      backward   ---[k]---[k]---[k]----------|            kernels, this thread
 *                     | bucket 0 ready  | bucket 1
 *      reduction      '--all-reduce 0---'--all-reduce 1--|  the communicator's thread
 *                                             |exposed|
 *      update                                         ---[all or own slice]--publish slices
 *
 * A bucket is a range of GRAD. Its reduction is started after the kernel of its last gradient.
 * Where the ranks' threads fill the cores, the communicator's thread would take one from a kernel:
 * one bucket then. With shard_optimizer it is a reduce-scatter: rank r keeps the slice counts[r],
 * updates it in PARAM, and the slices are gathered again. Slices end where blocks of the optimiser
 * do, so that norms, and with them all bits, are those of the whole. Cooperative gradients are
 * in such slices from the beginning. PARAM, GRAD and what travels lie in memory that
 * peers reach. */
#ifndef TRMI_EXEC_DISTRIBUTED_RANKS_STATE_H
#define TRMI_EXEC_DISTRIBUTED_RANKS_STATE_H

#include "trireme/exec.h"

#include "exec/distributed/distribution.h"
#include "plan/lower/buckets.h"

/* A range of GRAD that is reduced together. */
typedef struct trmi_range {
    int64_t begin, count; /* float32 elements of PARAM and GRAD */
    int32_t ready_step;   /* program step after which its gradients are made */
    bool always_zero;     /* zero on all ranks: nothing travels (zero_gradients.c) */
    int64_t *counts;      /* [size] slices, with shard_optimizer */
    bool summed;          /* already, on every rank: nothing travels */
    /* the ranks make their slices of it together: nothing travels (cooperative.c) */
    bool cooperative;
    trm_comm *comm; /* of all ranks; split graphs: of those that hold the same parameters */
    char name[40];  /* "gradients 2/7 fc.weight": of the first parameter, for reports */
    trm_request *request;
} trmi_range;

/* Called with what this rank looks at of each range that has come. */
typedef void trmi_range_arrived(struct trm_exec *exec, int64_t begin, int64_t count);

/* The gradients in the type in which ranges send them. */
typedef struct trmi_payload {
    char *data; /* of the gradients' first element; NULL = the gradients themselves */
    trm_dtype dtype;
    trmi_range_arrived *arrived; /* makes gradients of it; NULL = nothing to do */
} trmi_payload;

/* Numbers that are averaged over the ranks with each forward and backward: 4 floats. */
typedef struct trmi_agreed {
    float loss, flags[TRMI_FLAGS];
} trmi_agreed;

/* Seconds that this rank has waited at its meetings with the others: rank_waiting.c. */
enum { TRMI_WAITS_MOST = 1024 };
/* The waiting times of the last steps, in a ring. */
typedef struct trmi_waits {
    float seconds[TRMI_WAITS_MOST];
    int32_t count, half; /* half: of them, which go first; 0 = not yet known */
    /* of the steps, when the first of them began, and after the half */
    double begin_seconds, half_seconds;
    double total_seconds; /* of all meetings since the executor was created */
} trmi_waits;

/* The ranks that compute a cast of a parameter: each its own, this one for all, or another one. */
typedef enum trmi_cast { TRMI_CAST_NONE, TRMI_CAST_MINE, TRMI_CAST_OTHERS } trmi_cast;

/* State of an executor that exists only where there are ranks. */
typedef struct trmi_parallel {
    trm_parallel_options options; /* lists are copies */
    trm_comm *comm;
    int32_t rank, size;
    /* buckets */
    trmi_bucket_item *items; /* one a parameter */
    trmi_bucket *cut;        /* which gradients form a range together */
    trmi_range *ranges;      /* what is reduced by one collective each, in the order of backward */
    int64_t *counts;         /* [TRMI_RANGES_MOST * params * size], the ranges point into it */
    int32_t ranges_count;
    double alpha, beta; /* seconds, seconds a byte */
    int cores;          /* that all ranks have between them */
    /* seconds of a turn before it was made longer; 0: it is not longer (cpu_turns.c) */
    double own_turn;
    /* all ranks are on this host and their threads fill its cores: nothing runs beside backward */
    bool crowded;
    double *step_end;    /* [steps + 1] measured, from the start of forward */
    int32_t measured;    /* steps so far */
    uint8_t *mine;       /* by block of the optimiser */
    uint8_t *everyones;  /* by block: in no bucket */
    double *sums;        /* what of everyones is kept during an exchange */
    uint8_t *own_blocks; /* by block: of layerwise parameters; NULL = none */
    int64_t blocks;      /* of the optimiser */
    /* memory that peers reach */
    uint16_t *wire;       /* NULL: float32 as they are */
    trmi_payload payload; /* what of the gradients travels */
    trmi_agreed *agreed;
    trm_request *agreement;
    void **shared; /* owned list; a mesh of three axes alone adds eight */
    int64_t shared_count, shared_capacity;
    bool common;    /* PARAM is rank 0's memory on all ranks, each writes its slice */
    uint8_t *casts; /* by step, a trmi_cast: shared_casts.c; NULL = none */
    int32_t casts_count;
    bool valid;            /* agreed holds the last step's */
    bool cooperative_read; /* peers may still read what this rank has in COOPERATIVE */
    /* synchronised batch norm */
    trm_comm *norm_comm;      /* owned; NULL = off */
    trmi_norm_sync norm_sync; /* which kernels of batch norm call */
    double *norm_all;
    int64_t norm_capacity;
    struct trmi_split_run *split; /* split graph; NULL = none */
    trmi_waits waits;             /* for trm_exec_get_waiting */
    double predicted_end, backward_end;
} trmi_parallel;

/* The state of the way `ranks`; NULL: one rank. */
extern const char trmi_ranks_key;
/* Returns that state; NULL: no ranks. */
static inline trmi_parallel *trmi_parallel_of(const struct trm_exec *exec) {
    return trmi_distribution_state(exec, &trmi_ranks_key);
}

/* shared_casts.c: casts of parameters find their place in CAST, before memory is taken; and are
 * made by all ranks together, collectively, once all slices of PARAM are updated. */
trm_status trmi_parallel_place_casts(struct trm_exec *exec, trm_error *err);
trm_status trmi_parallel_run_casts(struct trm_exec *exec, trm_error *err);
/* Parts of split programs may differ, and with them the layout in which kernels want a parameter:
 * are the casts alike on all ranks? Where not, each rank makes its own. Collective. */
trm_status trmi_parallel_compare_casts(struct trm_exec *exec, bool *alike, trm_error *err);

/* ranks.c: ranks of a host measure one after the other: waits until this rank may. Of split
 * programs called again once their plan is known. */
trm_status trmi_parallel_await_turn(struct trm_exec *exec, trm_error *err);
/* Compares the programs of all ranks.   errors  INVALID */
trm_status trmi_parallel_check_same(struct trm_exec *exec, trm_error *err);

/* gradient_buckets.c: cuts by the options, from the predicted or (measured) rank 0's measured
 * times. */
trm_status trmi_parallel_cut(struct trm_exec *exec, bool measured, trm_error *err);
trm_status trmi_parallel_measure_link(struct trm_exec *exec, trm_error *err);
/* Marks the parameters that each rank keeps to itself: the part of each rank counts in the norm by
 * which gradients are clipped. */
trm_status trmi_parallel_mark_own_blocks(struct trm_exec *exec, trm_error *err);

/* cpu_turns.c: makes the scheduler's turns of this thread and its team longer where threads share
 * CPUs; and as long as before. */
void trmi_parallel_take_turns(struct trm_exec *exec);
void trmi_parallel_leave_turns(struct trm_exec *exec);

/* zero_gradients.c: cuts what is zero on all ranks out of the ranges, TRMI_ZEROS_MOST times a
 * parameter. */
enum { TRMI_ZEROS_MOST = 2, TRMI_RANGES_MOST = 1 + 2 * TRMI_ZEROS_MOST };
void trmi_cut_zero_gradients(struct trm_exec *exec);

/* cooperative.c: gradients that are made from all ranks' samples (plan/lower/lower_cooperative.c):
 * how many ranks make them, 0 = none. */
int32_t trmi_cooperative_ranks(const struct trm_exec *exec, const trm_exec_options *options);

/* reduction.c: adds the collectives of a training step to the executor's actions; and hooks of the
 * way `ranks` during a step (distribution.h). */
void trmi_parallel_add_actions(struct trm_exec *exec);
trm_status trmi_parallel_before_step(struct trm_exec *exec, bool training, trm_error *err);
/* Gradients of what came over the wire. */
trmi_range_arrived trmi_parallel_wire_arrived;
trm_status trmi_parallel_finish(struct trm_exec *exec, bool training, trm_status status,
                                trm_error *err);
/* rank_waiting.c: this rank has waited for the others since `begin`, which all of them do; a step
 * begins. */
void trmi_parallel_waited(trmi_parallel *parallel, double begin);
void trmi_parallel_note_step(struct trm_exec *exec);

/* ---- ranks_state.c: no communication, but for trmi_parallel_meet ---- */

/* Returns memory for PARAM, GRAD or an accumulator of gradients, which close frees; NULL: there is
 * none. */
void *trmi_parallel_memory(trmi_parallel *parallel, size_t bytes, trm_error *err);
/* Returns the same without its pages (comm/shm/shared_buffers.h). */
void *trmi_parallel_reserve(trmi_parallel *parallel, size_t bytes, trm_error *err);
/* Returns whether all ranks of a host may map rank 0's PARAM, so that no rank copies the slices of
 * others. Until they do the others have no PARAM. */
bool trmi_parallel_may_share(const struct trm_exec *exec);
/* Waits until all ranks have arrived. `what` names the reason in reports of a long wait. Counts as
 * waiting. Collective. */
trm_status trmi_parallel_meet(trmi_parallel *parallel, const char *what, trm_error *err);
/* Does each rank see gradients that others do not have, without a sum over ranks of what it
 * finds? With slices the norms are such sums. */
bool trmi_parallel_norms_differ(const struct trm_exec *exec);
/* Returns the element of a range with which this rank's slice begins. */
int64_t trmi_parallel_slice_begin(const trmi_parallel *parallel, const trmi_range *range);
/* Returns whether a parameter has a name of the options, or one below it. */
bool trmi_parallel_is_layerwise(const trmi_parallel *parallel, const char *name);
/* Returns INVALID for a name that no parameter of the program has. */
trm_status trmi_parallel_check_layerwise(const struct trm_exec *exec, trm_error *err);

#endif
