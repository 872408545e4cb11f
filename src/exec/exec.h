/* SPDX-License-Identifier: Apache-2.0 */
/* exec/exec.h: the inside of trm_exec (the executor), shared by the files of the room. Users see
 * trireme/exec.h only.
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
#include "exec/exec_memory.h"
#include "exec/optimizer/loss_scale.h"
#include "exec/optimizer/update.h"
#include "exec/state_part.h"

/* An output of the program that the caller reads. */
typedef struct trmi_output {
    int32_t buffer;
    float *copy; /* float32 copy of a 16-bit output, for the caller; else NULL */
} trmi_output;

/* Searches a plan for the ranks of `exec`. `training`: `graph` with its backward pass, under
 * `options`. Sets the plan of the executor's shard state on all ranks. Collective. */
typedef trm_status trmi_exec_search(trm_exec *exec, const trm_graph *graph,
                                    const trmi_plan_options *options, const trm_graph *training,
                                    trm_error *err);

/* Where kernels come from. */
typedef struct trmi_kernel_source {
    const char *backend; /* NULL: the fastest */
    int32_t blocks;      /* blocks of samples: choose kernels by rule, not by time; 0 = by time */
    bool single_blocks;  /* with blocks: sum each block by itself */
    bool others_retune;  /* another rank of this host re-times guessed choices (retune_seconds) */
    /* waits until this rank may measure kernels: ranks that share CPUs measure one after the other;
     * NULL: at once */
    trm_status (*await_turn)(trm_exec *exec, trm_error *err);
} trmi_kernel_source;

/* Runs program steps [begin, end). */
typedef trm_status trmi_exec_walk(trm_exec *exec, int32_t begin, int32_t end, trm_error *err);

/* The executor. Set at creation and not changed by a step, unless a member says otherwise. */
struct trm_exec {
    trmi_exec_search *search; /* searches a plan (auto_parallel); NULL: cannot */
    trmi_arena memory;        /* holds names and small arrays */
    trm_program *program;     /* owned */
    /* owned; reference: kernels of the operators that `backend` has none for */
    trmi_backend *backend, *reference;
    trmi_kernel *kernels;            /* [program->steps_count] */
    trmi_kernel_env env;             /* what kernels get: arenas, threads, scratch */
    void *owned[TRMI_ARENAS];        /* arenas that this executor frees; else NULL */
    const trm_exec *share;           /* training executor whose parameters this one uses; or NULL */
    bool updated_elsewhere;          /* by parameter servers: no optimiser here */
    bool lends_state;                /* trm_exec_options.share_slots */
    bool initialises;                /* trm_exec_options.initialise */
    trm_optimizer_options optimizer; /* defaults filled in */
    trmi_update *update;             /* owned; NULL: nothing is trained here */
    trmi_state_watcher watcher;      /* trmi_state_watch */
    int32_t threads;                 /* of a training step (exec/threads.h) */
    int32_t accumulate, accumulated; /* batches an update sums; batches summed so far */
    float *accumulator;              /* sum of gradients, as GRAD; NULL when accumulate is 1 */
    bool owns_accumulator;
    trmi_output *outputs;      /* [program->outputs_count]; [0]: the loss */
    trm_variable *variables;   /* [variables_count] by index, as callers see them */
    int32_t *variable_buffers; /* buffer of each variable; of a slot: its parameter's buffer */
    int32_t *variable_slots;   /* slot index of each variable; -1 = not a slot */
    /* split graphs: gathered values of each cut variable; NULL = not cut, or not gathered yet */
    void **wholes;
    int32_t variables_count;
    trm_step_profile *profile; /* of trm_exec_profile; owned */
    struct trmi_trace *trace;  /* records the program steps; NULL = off */
    /* active ways of training, in the order of the table in ways.c */
    const trmi_distribution *ways[TRMI_DISTRIBUTIONS_MAX];
    int32_t ways_count;
    trmi_way_state way_states[TRMI_DISTRIBUTIONS_MAX + 1]; /* the last: key NULL */
    /* Settings that ways change, and read back. */
    trmi_kernel_source kernels_from;
    bool fixed_bits;      /* true: results must not depend on measured times */
    trmi_exec_walk *walk; /* runs program steps: trmi_exec_run, or a way's */
    /* runs forward and backward of a batch: trmi_exec_walk_program, or a way's */
    trm_status (*walk_program)(trm_exec *exec, trm_error *err);
    /* the last of the accumulated batches (a pipeline's micro-batches) runs all of them, and adds
     * their gradients up; runs of the others only keep their batches */
    bool together;
    const float *own_loss;    /* what trmi_exec_own_loss returns; NULL: the program's loss */
    const uint8_t *made;      /* [steps] nonzero = the output is valid, skip it; NULL = run all */
    const uint8_t *kept;      /* `made` after a run: trm_exec_options.keep_casts; NULL = none */
    const trm_exec *casts_of; /* this program reads its kept casts; NULL: has its own, or none */
    bool lacks_values; /* memory was missing in trm_exec_write: a variable has its old values */
    double *step_end,
        step_begin;    /* step_end[i]: seconds from step_begin to the end of step i; NULL = off */
    const float *loss; /* loss of all ranks or blocks; NULL: the program's own loss */
    bool adds_up;      /* true: a way adds gradients to the accumulator itself */
    bool raised[TRMI_FLAGS];    /* flags of this rank, for the next step (trmi_exec_set_flag) */
    trmi_update_exchange norms; /* exchange of norms in strict mode; NULL: the active way's */
    uint64_t parameter_seed;    /* seed of first values; rank 0's if ranks share parameters */
    /* ranks that have one copy of the parameters, each making its share of the first values, and
     * the number of this rank among them; 0: it has its own copy */
    int32_t copy_ranks, copy_rank;
    /* how ranks divide the memory of a program; of a partitioned one `sliced` and `one_copy` also
     * depend on the program (memory_limit.h) */
    trmi_training divided;
    trm_exec_info added;                 /* bytes beside those of one rank by itself: reported */
    trmi_action *actions;                /* run between program steps, in order */
    int32_t actions_count, actions_room; /* used; allocated */
    /* plan of a single rank (memory limit: which activations to recompute); owned */
    struct trmi_partition_plan *alone;
    int64_t memory_bytes;                /* limit a rank (exec/memory_limit.h); 0 = none */
    double create_seconds, step_seconds; /* of creation; sum over all steps */
    bool scaling;                        /* loss scaling is on */
    trmi_loss_scale scale;               /* changes with steps */
    float *seed; /* in CONSTANT: gradient of the loss, with which backward starts; NULL: always 1 */
    /* factor of the seed: 1 / ranks where cooperative gradients are averaged by it; else 1
     * (exec/distributed/cooperative.c) */
    float seed_share;
    int64_t overhead_bytes;  /* bytes outside the arenas that creation took, without code */
    int64_t file_bytes;      /* resident code of the process when creation began */
    int64_t parameter_count; /* elements, of whole parameters */
    /* trm_exec_ranges was called: the caller may change parameters at any time, ... */
    bool parameters_handed_out;
    /* ... and reads dense gradients: the range is completed after each backward */
    bool gradients_handed_out;
    /* Forward alone writes where the update reads gradients (places, factors or rows); it has done
     * so since the last backward. */
    bool forward_overwrites, gradients_overwritten;
    /* The memory of an input was given out or fed since the last backward: the inputs may be those
     * of the next batch. */
    bool inputs_given;
    /* [program->inputs_count] whether an input's memory was ever given out or fed, or no step reads
     * it; how many are read without */
    bool *inputs_known;
    int32_t inputs_unknown;
};

/* Returns the range of gradients that the update reads: the sum of accumulated batches, or GRAD. */
static inline float *trmi_exec_gradient_range(const trm_exec *exec) {
    return exec->accumulator != NULL ? exec->accumulator
                                     : (float *)(void *)exec->env.arena[TRMI_ARENA_GRAD];
}
/* exec_create.c: makes an executor; the public trm_exec_create (exec_open.c) passes the search for
 * a plan. search NULL: the options need no search, as for the operators that a search measures.
 * from: where kernels come from, until a way changes it; NULL: from options->backend.
 *   owns  *out: the caller, trm_exec_destroy    errors  those of trm_exec_create */
trm_status trmi_exec_create(const trm_graph *graph, const trm_exec_options *options,
                            trmi_exec_search *search, const trmi_kernel_source *from,
                            trm_exec **out, trm_error *err);
/* exec_variables.c: returns the address of this rank's part of variable `index`, where it has the
 * layout of the program. */
void *trmi_exec_variable_address(const trm_exec *exec, int32_t index);
/* Returns whether this rank has nothing of a variable: another stage of the pipeline has it. */
static inline bool trmi_exec_is_elsewhere(const trm_exec *exec, int32_t index) {
    return exec->variable_buffers[index] == 0;
}
/* Returns which part of a variable this rank has; NULL: it has the whole, or nothing. */
const trmi_partition_leaf *trmi_exec_cut_of(const trm_exec *exec, int32_t index);
/* Lists parameters, states and slots; then writes the first values of parameters
 * and states. Both at creation. */
trm_status trmi_exec_list_variables(trm_exec *exec, trm_error *err);
trm_status trmi_exec_initialise(trm_exec *exec, trm_error *err);
/* Returns the addresses of a parameter and of its gradient; *plain: whether their layout is plain.
 * Returns false if there is no such parameter, or it has no dense gradient. */
bool trmi_exec_find_parameter(const trm_exec *exec, const char *name, float **values,
                              float **gradient, bool *plain);
/* exec_optimizer.c: returns whether weight decay applies to parameter `param` of the program: to
 * matrices and filters that the graph does not exclude, and to others as the options say. */
bool trmi_exec_decays(const trm_program *p, int32_t param, const trm_optimizer_options *options);
/* Makes the optimiser and, where batches are accumulated, the accumulator. */
trm_status trmi_exec_make_update(trm_exec *exec, trm_error *err);
/* Adds `count` gradients of this batch from element `begin` of GRAD on, divided by the number of
 * batches, to the accumulator. */
void trmi_exec_accumulate(trm_exec *exec, int64_t begin, int64_t count);
/* Moves the slots to memory that other ranks reach, where options ask for it and there is any.
 * After the ways have begun. */
trm_status trmi_exec_share_slots(trm_exec *exec, trm_error *err);
/* exec_scale.c: starts loss scaling, if the options ask for it, and sets the seed of backward.
 * After trmi_exec_make_update. */
trm_status trmi_exec_make_scale(trm_exec *exec, const trm_loss_scale_options *options,
                                trm_error *err);
/* Advances the loss scale after a step; `overflow`: a gradient of any rank was not finite. Returns
 * whether the update is skipped. False without loss scaling. */
bool trmi_exec_advance_loss_scale(trm_exec *exec, bool overflow);
/* Returns the state of loss scaling, borrowed from the executor; NULL without loss scaling. */
static inline const trm_loss_scale_state *trmi_exec_loss_scale(const trm_exec *exec) {
    return exec->scaling ? &exec->scale.state : NULL;
}
/* Returns 1 / loss scale, the factor that turns gradients of the arenas into true ones. */
double trmi_exec_unscale(const trm_exec *exec);
/* exec_diagnose.c: repeats the step, one program step at a time, and fails with DIVERGED and the
 * name of the first whose output is not finite; in a pipeline, and where the next batch was fed on
 * any rank, of the first parameter whose gradient is not finite. Collective. */
trm_status trmi_exec_find_nonfinite(trm_exec *exec, trm_error *err);

/* exec.c: runs the kernels [begin, end) in the environment exec->env. */
trmi_exec_walk trmi_exec_run;
/* Runs all program steps and the actions between them. */
trm_status trmi_exec_walk_program(trm_exec *exec, trm_error *err);
/* Adds the executor's own action after the last program step, where batches are accumulated: it
 * adds the gradients of a batch to the accumulator. */
void trmi_exec_schedule(trm_exec *exec);
/* Completes the range of gradients now, and after each backward from now on, for a caller that
 * reads it (trm_exec_ranges). */
void trmi_exec_hand_out_gradients(trm_exec *exec);
/* Returns the loss of this rank's last forward pass; 0 without a loss. */
float trmi_exec_own_loss(const trm_exec *exec);
/* Returns whether forward alone writes into memory from which the update reads gradients:
 * activations that lie in GRAD, factors, rows of tables. After trmi_exec_make_update. */
bool trmi_exec_forward_overwrites(const trm_exec *exec);
/* Checks that the gradients of the last backward are still there.
 *   errors  INVALID */
trm_status trmi_exec_check_gradients(const trm_exec *exec, trm_error *err);
/* kept_casts.c: moves the results of parameters' casts to CAST, where they stay valid, and sets
 * exec->kept; moves them to those of exec->share, and sets exec->casts_of, if it has them all.
 * Before memory is taken.   errors  NOMEM */
trm_status trmi_exec_keep_casts(trm_exec *exec, trm_error *err);
/* Returns whether a step casts a parameter to a buffer of its own. */
bool trmi_is_parameter_cast(const trm_program *program, const trmi_step *step);
/* Must be called after parameters change in another way than by the optimiser: values that ways
 * keep of them (shared casts) are then computed again. */
static inline void trmi_exec_parameters_changed(trm_exec *exec) { exec->made = NULL; }
/* exec_inputs_outputs.c: returns the index of the program's input of this name; -1 if there is
 * none. */
int32_t trmi_exec_input_index(const trm_exec *exec, const char *name);
/* distributed/ranks_state.c: raises or clears a flag of this rank, which is combined over all ranks
 * in the next step. trmi_exec_flagged returns whether any rank had raised it in the last step;
 * trmi_exec_forget_flags clears all. With a single rank flags are not kept. */
void trmi_exec_set_flag(trm_exec *exec, trmi_exec_flag which, bool raised);
bool trmi_exec_flagged(const trm_exec *exec, trmi_exec_flag which);
void trmi_exec_forget_flags(trm_exec *exec);
/* Tells the other ranks why this rank leaves a collective out: theirs then fails with this cause.
 * Without ranks a no-op. */
void trmi_exec_abort(const trm_exec *exec, const trm_error *cause);
/* Returns whether each rank keeps this variable to itself (trm_parallel_options.layerwise). */
bool trmi_exec_is_layerwise(const trm_exec *exec, int32_t index);
/* distributed/ranks.c: adds the options of parallel training that all ranks must have in common to
 * `hash`, but no texts of plans and meshes. */
uint64_t trmi_hash_parallel(uint64_t hash, const trm_parallel_options *options);
/* Copies rank 0's states to all ranks: before an evaluation, so that all ranks
 * evaluate the model that a checkpoint would hold.   errors  those of trm_comm_run */
trm_status trmi_exec_broadcast_states(trm_exec *exec, trm_error *err);

/* Returns the operator's name of a program step, or "reorder". */
static inline const char *trmi_step_kind_name(const trmi_step *step) {
    return step->kind == TRMI_STEP_OP ? trmi_program_ops[step->op_kind]->name : "reorder";
}

#endif
