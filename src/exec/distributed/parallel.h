/* SPDX-License-Identifier: Apache-2.0 */
/* exec/distributed/parallel.h: one graph on the ranks of a communicator.
 *
 *      backward   ---[k]---[k]---[k]----------|            kernels, this thread
 *                     | bucket 0 ready  | bucket 1
 *      reduction      '--all-reduce 0---'--all-reduce 1--|  the communicator's thread
 *                                             |exposed|
 *      update                                         ---[all or own slice]--publish slices
 *
 * A bucket is a range of GRAD. Its reduction is started behind the kernel of its last gradient.
 * Where the ranks' threads fill the cores, the communicator's thread would take one from a kernel:
 * one bucket then. With shard_optimizer it is a reduce-scatter: rank r keeps the slice counts[r],
 * updates it in PARAM, and the slices are gathered again. Slices end where blocks of the optimiser
 * do, so that norms, and with them all bits, are those of the whole. Gradients that all ranks make
 * jointly are in such slices from the beginning. PARAM, GRAD and what travels lie in memory that
 * peers reach. */
#ifndef TRMI_EXEC_PARALLEL_H
#define TRMI_EXEC_PARALLEL_H

#include "trireme/exec.h"

#include "exec/backend.h"
#include "plan/lower/buckets.h"

typedef struct trmi_range {
    int64_t begin, count; /* float32 elements of PARAM and GRAD */
    int32_t ready_step;
    bool still;      /* zero on all ranks: nothing travels (parallel_still.c) */
    int64_t *counts; /* [size] slices, with shard_optimizer */
    bool summed;     /* already, on every rank: nothing travels */
    /* the ranks make their slices of it together: nothing travels (parallel_joint.c) */
    bool joint;
    trm_comm *comm; /* of all ranks; split graphs: of those that hold the same parameters */
    char name[40];  /* "gradients 2/7 fc.weight": of the first parameter, for reports */
    trm_request *request;
} trmi_range;

/* What is averaged with each forward and backward: 4 floats. */
typedef struct trmi_agreed {
    float loss, flag, spare[2];
} trmi_agreed;

/* Seconds that this rank has waited at its meetings with the others: parallel_waits.c. */
enum { TRMI_WAITS_MOST = 1024 };
typedef struct trmi_waits {
    float seconds[TRMI_WAITS_MOST];
    int32_t count, half; /* half: of them, which go first; 0 = not yet known */
    /* of the steps, when the first of them began, and behind the half */
    double begin_seconds, half_seconds;
} trmi_waits;

typedef enum trmi_cast { TRMI_CAST_NONE, TRMI_CAST_MINE, TRMI_CAST_OTHERS } trmi_cast;

typedef struct trmi_parallel {
    trm_parallel_options options; /* lists are copies */
    trm_comm *comm;
    int32_t rank, size;
    /* buckets */
    trmi_bucket_item *items; /* one a parameter */
    trmi_bucket *cut;
    trmi_range *ranges;
    int64_t *counts; /* [TRMI_RANGES_MOST * params * size], the ranges point into it */
    int32_t ranges_count;
    double alpha, beta; /* seconds, seconds a byte */
    int cores;          /* that all ranks have between them */
    /* seconds, as it was before there were longer ones; 0: there are none (parallel_slices.c) */
    double own_slice;
    /* all ranks are on this host and their threads fill its cores: nothing runs beside backward */
    bool crowded;
    double *step_end;   /* [steps + 1] measured, from the start of forward */
    int32_t measured;   /* steps so far */
    uint8_t *mine;      /* by block of the optimiser */
    uint8_t *everyones; /* by block: in no bucket */
    double *sums;       /* what of everyones is kept during an exchange */
    uint8_t *apart;     /* by block: of layerwise parameters; NULL = none */
    int64_t blocks;
    /* memory that peers reach */
    uint16_t *wire; /* NULL: float32 as they are */
    trmi_agreed *agreed;
    trm_request *agreement;
    void **shared; /* owned list; a mesh of three axes alone adds eight */
    int64_t shared_count, shared_capacity;
    bool common;         /* PARAM is rank 0's memory on all ranks, each writes its slice */
    uint64_t first_seed; /* rank 0's, where PARAM is common: initial values are its */
    uint8_t *casts;      /* by step, a trmi_cast: parallel_casts.c; NULL = none */
    int32_t casts_count;
    bool casts_fresh;           /* they are those of the parameters as they are */
    bool parameters_handed_out; /* and may change at any time: trm_exec_ranges */
    float flag;                 /* of this rank, for the next step */
    bool valid;                 /* agreed holds the last step's */
    bool joint_read;            /* peers may still read what this rank has in JOINT */
    /* synchronised batch norm */
    trm_comm *norm_comm; /* owned; NULL = off */
    trmi_norm_sync norm_sync;
    double *norm_all;
    int64_t norm_capacity;
    struct trmi_shard_run *shard; /* split graph; NULL = none */
    trmi_waits waits;
    double predicted_end, backward_end;
} trmi_parallel;

struct trm_exec;

/* Before the program is made: NULL in exec->parallel where there is one rank. Collective from here
 * on. */
trm_status trmi_parallel_open(struct trm_exec *exec, const trm_parallel_options *options,
                              trm_error *err);
/* After initial values: same program everywhere, buckets, batch-norm exchange, broadcast. */
trm_status trmi_parallel_begin(struct trm_exec *exec, trm_error *err);
void trmi_parallel_close(struct trm_exec *exec);

/* Where trmi_parallel_may_share: rank 0's PARAM becomes everybody's. */
trm_status trmi_parallel_share_parameters(struct trm_exec *exec, trm_error *err);

/* parallel_casts.c: casts of parameters find their place in CAST, before memory is taken; and are
 * made by all ranks together, collectively, once all slices of PARAM are updated. */
trm_status trmi_parallel_place_casts(struct trm_exec *exec, trm_error *err);
/* Bytes by which a rank grows when they are given that place: theirs, less the pages of ACTIVATION
 * that nobody else is in. */
int64_t trmi_parallel_casts_bytes(const trm_program *program);
trm_status trmi_parallel_run_casts(struct trm_exec *exec, trm_error *err);
/* Parts of split programs may differ, and with them the layout in which kernels want a parameter:
 * are the casts alike on all ranks? Where not, each rank makes its own. Collective. */
trm_status trmi_parallel_compare_casts(struct trm_exec *exec, bool *alike, trm_error *err);

/* Ranks of a host compile one after the other's measurements: `before` waits on all but the first,
 * which releases them in `after`. */
trm_status trmi_parallel_before_compile(struct trm_exec *exec, trm_error *err);
trm_status trmi_parallel_after_compile(struct trm_exec *exec, trm_error *err);

/* parallel_buckets.c: cuts by the options, from the predicted or (measured) rank 0's measured
 * times. */
trm_status trmi_parallel_cut(struct trm_exec *exec, bool measured, trm_error *err);
trm_status trmi_parallel_measure_link(struct trm_exec *exec, trm_error *err);
/* Parameters that each rank keeps to itself: each rank's part counts in the norm that gradients are
 * clipped by. */
trm_status trmi_parallel_set_apart(struct trm_exec *exec, trm_error *err);

/* parallel_slices.c: longer turns where threads share CPUs, for this thread and those of its team;
 * and their own again. */
void trmi_parallel_take_slices(struct trm_exec *exec);
void trmi_parallel_leave_slices(struct trm_exec *exec);

/* parallel_still.c: cuts what is zero on all ranks out of the ranges, TRMI_STILL_MOST times a
 * parameter. */
enum { TRMI_STILL_MOST = 2, TRMI_RANGES_MOST = 1 + 2 * TRMI_STILL_MOST };
void trmi_parallel_cut_still(struct trm_exec *exec);

/* parallel_joint.c: gradients that are made from all ranks' samples (plan/lower/lower_joint.c). How
 * many ranks make them, 0 = none; where each rank's part of JOINT is, before memory is taken;
 * kernels, once slices are cut. */
int32_t trmi_joint_ranks(const struct trm_exec *exec, const trm_exec_options *options);
void trmi_joint_place(struct trm_exec *exec);
/* GRAD: gradients that are made jointly are the last of it, and of those a rank has its slices
 * only. */
char *trmi_joint_gradients(struct trm_exec *exec, trm_error *err);
trm_status trmi_joint_bind(struct trm_exec *exec, trm_error *err);
/* Collective: before the first kernel that writes into JOINT, and to make the gradients behind all
 * others. */
trm_status trmi_joint_begin_step(struct trm_exec *exec, trm_error *err);
trm_status trmi_joint_run(struct trm_exec *exec, trm_error *err);

/* parallel_run.c */
trm_status trmi_parallel_forward_backward(struct trm_exec *exec, trm_error *err);
trm_status trmi_parallel_publish(struct trm_exec *exec, trm_error *err);
/* What is agreed on with each step, behind a forward by itself. */
trm_status trmi_parallel_agree(struct trm_exec *exec, trm_error *err);
/* Fills in the sums of the blocks of others: trmi_update_exchange. `context`: the exec. */
trm_status trmi_parallel_exchange(void *context, double *sums, int64_t count, trm_error *err);
/* True on every rank if any passes true. */
trm_status trmi_parallel_any(trmi_parallel *parallel, bool *flag, trm_error *err);

/* parallel_waits.c: this rank has waited for the others since `begin`, which all of them do; a step
 * begins. */
void trmi_parallel_waited(trmi_parallel *parallel, double begin);
void trmi_parallel_note_step(struct trm_exec *exec);

/* ---- parallel_state.c: nobody waits here ---- */

/* Memory for PARAM, GRAD and an accumulator of gradients; freed by close. */
void *trmi_parallel_memory(trmi_parallel *parallel, size_t bytes, trm_error *err);
/* The same without its pages (comm/net/reserve.h). */
void *trmi_parallel_reserve(trmi_parallel *parallel, size_t bytes, trm_error *err);
/* Slices of an optimiser on one host: all ranks take rank 0's PARAM, so that nobody copies slices
 * of others. Until then the others that may get it have none. */
bool trmi_parallel_may_share(const struct trm_exec *exec);
bool trmi_parallel_waits_for_first(const struct trm_exec *exec);
/* Collective: until all are here; `what` they wait for, for who reports that it lasts. Counts as
 * waiting. */
trm_status trmi_parallel_meet(trmi_parallel *parallel, const char *what, trm_error *err);
/* Does each rank look at gradients that others do not have, and does nobody add up what they find?
 * Of slices all see the sums. */
bool trmi_parallel_norms_differ(const struct trm_exec *exec);
/* Where this rank's slice of a range begins. */
int64_t trmi_parallel_slice_begin(const trmi_parallel *parallel, const trmi_range *range);
/* parallel_run.c: waits for all sums that were started, whatever happens; `status` is how it went
 * before, the first error counts. `arrived`, if not NULL, is called with what this rank looks at of
 * each range that has come. */
typedef void trmi_range_arrived(struct trm_exec *exec, int64_t begin, int64_t count);
trm_status trmi_parallel_finish(struct trm_exec *exec, trm_status status,
                                trmi_range_arrived *arrived, trm_error *err);
/* Is a parameter's gradient made by all ranks together? */
bool trmi_joint_makes(const trm_program *program, const trmi_param *param);
/* Bytes of GRAD that this rank never touches: others' slices of what is made jointly. */
int64_t trmi_parallel_untouched(const struct trm_exec *exec);
/* Bytes of slots that this rank uses: its slices, or all. */
int64_t trmi_parallel_slot_bytes(const struct trm_exec *exec);
/* Somebody has written parameters by other ways: every rank casts for itself before its next
 * forward. */
void trmi_parallel_parameters_changed(struct trm_exec *exec);
/* For the conductor: a flag that travels with the next step, and the sum of the last step's. */
void trmi_exec_set_flag(struct trm_exec *exec, bool flag);
bool trmi_exec_flagged(const struct trm_exec *exec);
void trmi_exec_forget_flag(struct trm_exec *exec);
/* A name of the options, or below one. */
bool trmi_parallel_is_layerwise(const trmi_parallel *parallel, const char *name);
/* INVALID: a name that no parameter of the program has. */
trm_status trmi_parallel_check_layerwise(const struct trm_exec *exec, trm_error *err);

#endif
