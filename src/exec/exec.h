/* SPDX-License-Identifier: Apache-2.0 */
/* exec/exec.h: inside of trm_exec, shared by the files of the room.
 *
 *      graph --plan--> program --bind--> kernels        arenas: one allocation each
 *                                          |
 *      forward_backward:  for each kernel: run           update: one pass over PARAM, GRAD, SLOT
 */
#ifndef TRMI_EXEC_EXEC_H
#define TRMI_EXEC_EXEC_H

#include "trireme/exec.h"

#include "exec/backend.h"
#include "exec/distributed/distribution.h"
#include "exec/distributed/input_cuts.h"
#include "exec/optimizer/loss_scale.h"
#include "exec/optimizer/update.h"

/* Of a split graph: the whole batch as it is fed, of which this rank takes its part. */
typedef struct trmi_shard_input {
    void *data; /* a mapping of so many bytes */
    size_t bytes;
    void *own; /* what this rank feeds, where that is a part; else NULL */
    trmi_input_cut cut;
    bool taken; /* what was fed last: `data` has nothing new */
    const struct trmi_shard_leaf *leaf;
} trmi_shard_input;

typedef struct trmi_output {
    int32_t buffer;
    float *copy; /* float outputs are handed out as plain float32 */
} trmi_output;

/* Finds the plan of `training`, what `graph` becomes by `options`, for the ranks of `exec`.
 * Collective. */
typedef trm_status trmi_exec_search(trm_exec *exec, const trm_graph *graph,
                                    const trmi_plan_options *options, const trm_graph *training,
                                    trm_error *err);

/* Which back-end makes the kernels. */
typedef struct trmi_kernel_source {
    const char *backend; /* NULL: the fastest */
    int32_t blocks;      /* of samples: kernels by rule, not by time; 0 = measured choices */
    bool apart;          /* ... each block is summed by itself */
    bool others_retune;  /* another process of this host measures again what was guessed */
} trmi_kernel_source;

/* Runs the steps [begin, end). */
typedef trm_status trmi_exec_walk(trm_exec *exec, int32_t begin, int32_t end, trm_error *err);

struct trm_exec {
    trmi_exec_search *search;
    trmi_arena memory; /* names and small arrays */
    trm_program *program;
    trmi_backend *backend, *reference;
    trmi_kernel *kernels; /* one a step */
    trmi_kernel_env env;
    void *owned[TRMI_ARENAS]; /* arenas to free */
    const trm_exec *share;
    bool updated_elsewhere;
    trm_optimizer_options optimizer;
    trmi_update *update;
    int32_t threads; /* of a step (exec/threads.h) */
    int32_t accumulate, accumulated;
    float *accumulator; /* NULL when accumulate is 1 */
    bool owns_accumulator;
    trmi_output *outputs;
    trm_variable *variables;
    int32_t *variable_buffers; /* slots: the parameter's buffer */
    int32_t *variable_slots;   /* which slot, -1 = not a slot */
    /* split graphs: variables that are cut, as gathered; NULL = not yet, or not cut */
    void **wholes;
    trmi_shard_input *whole_inputs; /* split graphs: [program->inputs_count] */
    int32_t variables_count;
    trm_step_profile *profile;
    struct trmi_trace *trace; /* records each step of the program; NULL: nothing does */
    /* The ways of training that are active, in the order of the table. */
    const trmi_distribution *ways[TRMI_DISTRIBUTIONS_MAX];
    int32_t ways_count;
    struct trmi_parallel *parallel; /* of the way `ranks`; NULL: one rank */
    struct trmi_strict *strict;     /* of the way `strict_blocks`; NULL: not active */
    /* What ways ask of the executor. */
    trmi_kernel_source kernels_from;
    bool fixed_bits;      /* nothing may depend on times that were measured */
    trmi_exec_walk *walk; /* runs steps of the program */
    const uint8_t *made;  /* by step: 0 = runs; else its output is there already; NULL = all run */
    double *step_end,
        step_begin;    /* where the end of each step is noted, since step_begin; NULL: nowhere */
    const float *loss; /* of all ranks or blocks; NULL: it is the program's own */
    bool adds_up;      /* a way adds the gradients of this batch to the accumulator */
    trmi_update_exchange norms; /* of strict sums, in place of other ways'; NULL: not active */
    uint64_t parameter_seed;    /* of initial values; rank 0's where ranks have one copy of them */
    trmi_action *actions;
    int32_t actions_count, actions_room;
    /* one rank, exact or within a limit of memory: its plan; owned */
    struct trmi_shard_plan *alone;
    int64_t memory_bytes; /* the limit (exec/memory_limit.h); 0 = none */
    double create_seconds, step_seconds;
    bool scaling;
    trmi_loss_scale scale;
    float *seed; /* in CONSTANT: what backward begins with; NULL where that is always 1 */
    /* by which it begins with less: gradients are averaged over ranks where they are made
     * (parallel_joint.c); else 1 */
    float seed_share;
    int64_t overhead_bytes; /* that creation made resident outside the arenas */
    int64_t parameter_count;
    bool parameters_handed_out; /* and may change at any time: trm_exec_ranges */
    /* trm_exec_ranges: those in factors are multiplied after each backward */
    bool gradients_handed_out;
};

/* exec_create.c: trm_exec_create, handed what searches a plan (exec_open.c does). NULL: what is
 * made here needs no search, as the operators that a search measures. */
trm_status trmi_exec_create(const trm_graph *graph, const trm_exec_options *options,
                            trmi_exec_search *search, trm_exec **out, trm_error *err);
/* exec_parts.c: this rank's part of a variable, in plain layout, and where it lies in its own. */
void trmi_exec_read_part(const trm_exec *exec, int32_t index, void *data);
void trmi_exec_write_part(trm_exec *exec, int32_t index, const void *data);
void *trmi_exec_variable_address(const trm_exec *exec, int32_t index);
/* exec_variables.c */
trm_status trmi_exec_list_variables(trm_exec *exec, trm_error *err);
trm_status trmi_exec_initialise(trm_exec *exec, trm_error *err);
/* Where a parameter and its gradient are; *plain says whether as a plain array of float32. False if
 * there is no such parameter, or it has no (dense) gradient. */
bool trmi_exec_place(const trm_exec *exec, const char *name, float **values, float **gradient,
                     bool *plain);
/* exec_update.c */
/* Gradient in factors: tells the optimiser where they are; false: it is not in factors. */
bool trmi_exec_give_factors(const trm_exec *exec, int32_t parameter);
/* Where ranges were handed out: those gradients too are where all are, and the optimiser takes them
 * from there. */
void trmi_exec_multiply_factors(trm_exec *exec);
trm_status trmi_exec_make_update(trm_exec *exec, trm_error *err);
/* exec_scale.c: loss scaling. After make_update. */
trm_status trmi_exec_make_scale(trm_exec *exec, const trm_loss_scale_options *options,
                                trm_error *err);
/* Is this update to be skipped? The scale moves on. */
bool trmi_exec_skips(trm_exec *exec, bool overflow);
/* What gradients are multiplied by. */
double trmi_exec_unscale(const trm_exec *exec);
/* exec_diagnose.c: runs the steps one by one and names the first whose output is not finite. */
trm_status trmi_exec_find_nonfinite(trm_exec *exec, trm_error *err);

/* exec_run.c: runs the kernels [begin, end) in exec->env. */
trmi_exec_walk trmi_exec_run;
/* All steps of the program, and the actions between them. */
trm_status trmi_exec_walk_program(trm_exec *exec, trm_error *err);
/* exec_bind.c: a kernel for each step, into an array of as many. */
trm_status trmi_exec_bind(trm_exec *exec, trmi_kernel *kernels, trm_error *err);
/* Parameters have changed in another way than by the optimiser. */
static inline void trmi_exec_parameters_changed(trm_exec *exec) { exec->made = NULL; }
/* exec.c: `data` of a whole batch of this rank for the input `name`, whose place is `place`;
 * false: the caller writes it to its place. `data` NULL: from now on it does. */
bool trmi_exec_feed_input(trm_exec *exec, const char *name, const trm_tensor *place,
                          const void *data);
/* A flag of this rank that travels with its next step; whether any rank had raised its flag in the last step; forgets
 * both. Of one rank by itself nothing is kept. */
void trmi_exec_set_flag(trm_exec *exec, bool flag);
bool trmi_exec_flagged(const trm_exec *exec);
void trmi_exec_forget_flag(trm_exec *exec);
/* The loss of this rank's last forward. */
float trmi_exec_own_loss(const trm_exec *exec);

static inline const char *trmi_step_kind_name(const trmi_step *step) {
    return step->kind == TRMI_STEP_OP ? trmi_op_table[step->op_kind]->name : "reorder";
}

#endif
