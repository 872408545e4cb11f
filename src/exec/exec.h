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
#include "exec/determinism/lanes.h"
#include "exec/distributed/parallel.h"
#include "exec/optimizer/loss_scale.h"
#include "exec/optimizer/update.h"

/* Of a split graph: the whole batch as it is fed, of which this rank takes its part. */
typedef struct trmi_shard_input {
    void *data; /* a mapping of so many bytes */
    size_t bytes;
    void *own;  /* own_samples: what this rank feeds; else NULL */
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
    trmi_parallel *parallel;  /* NULL: one rank */
    trmi_lanes *lanes;        /* NULL: the batch as one */
    /* one rank, exact or within a limit of memory: its plan; owned */
    struct trmi_shard_plan *alone;
    int64_t memory_bytes; /* the limit (exec/limit.h); 0 = none */
    double create_seconds, step_seconds;
    bool scaling;
    trmi_loss_scale scale;
    float *seed; /* in CONSTANT: what backward begins with; NULL where that is always 1 */
    /* by which it begins with less: gradients are averaged over ranks where they are made
     * (parallel_joint.c); else 1 */
    float seed_share;
    int64_t overhead_bytes; /* that creation made resident outside the arenas */
    int64_t parameter_count;
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

/* exec_run.c: runs the kernels [begin, end). */
trm_status trmi_exec_run(trm_exec *exec, int32_t begin, int32_t end, trm_error *err);
/* The loss of this rank's last forward. */
float trmi_exec_own_loss(const trm_exec *exec);

static inline const char *trmi_step_kind_name(const trmi_step *step) {
    return step->kind == TRMI_STEP_OP ? trmi_op_table[step->op_kind]->name : "reorder";
}

#endif
