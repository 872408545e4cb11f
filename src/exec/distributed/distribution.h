/* SPDX-License-Identifier: Apache-2.0 */
/* exec/distributed/distribution.h: what differs between ways of training, behind one interface.
 *
 * There is one executor. It compiles a graph to a program, gives the arenas memory, binds a
 * kernel to each step and walks the array of steps. A way of training (ranks that sum
 * gradients, slices of the optimiser, a split graph, strict determinism, ...) is a table of the
 * functions below. The executor calls them at fixed points, for each active way in the order of
 * the table in ways.c; it knows none of them by name.
 *
 *      trm_exec_create             join  open  await_turn  plan  place  arena  bind  connect  deal  begin
 *      trm_exec_forward_backward   before_step  [steps and actions]  finish_backward
 *      trm_exec_update             agree  publish
 *      trm_exec_gather       gather
 *      trmi_state_part_list  hold
 *      trm_exec_destroy            close  leave
 *
 * Between the steps of the program a way runs actions: a collective that starts after the step
 * which completes a gradient, a meeting before the steps that read other ranks' memory.
 * `schedule` adds them to exec->actions, sorted by the step that they precede; a training step
 * walks both arrays once. What the executor itself does after the last step is an action, too
 * (trmi_exec_schedule).
 *
 * docs/internals/distribution.md shows how to add a way. All functions but `open` may be NULL.
 * Unless stated otherwise they are called on the thread that uses the executor, on every rank in
 * the same order, and may be collective. */
#ifndef TRMI_EXEC_DISTRIBUTED_DISTRIBUTION_H
#define TRMI_EXEC_DISTRIBUTED_DISTRIBUTION_H

#include "trireme/exec.h"

#include "exec/backend.h"
#include "plan/partition/partition.h"

/* Requests of a rank for the end of a step (trmi_exec_set_flag): to stop the training; to change
 * the ranks; to prepare for a process that waits to join. */
typedef enum trmi_exec_flag {
    TRMI_FLAG_STOP,
    TRMI_FLAG_RANKS,
    TRMI_FLAG_JOIN,
    TRMI_FLAGS
} trmi_exec_flag;

struct trmi_training;
struct trmi_mesh;

/* A run of words of a variable's memory on this rank: whether they belong to the state of the job,
 * and whether another rank has them, too. */
typedef struct trmi_hold {
    bool mine;     /* the values of this rank count */
    bool repeated; /* another rank has the same */
    int64_t end;   /* the word of the variable's memory after the run */
} trmi_hold;

/* One way of training: its functions, in the order in which the executor calls them. */
typedef struct trmi_distribution {
    const char *name;

    /* ---- creation, in this order ---- */

    /* Before any way is opened: may replace the ranks in *options by those that the ways shall see.
     * `leave` is called after all ways are closed, also for ways that are not active. */
    trm_status (*join)(trm_exec *exec, trm_exec_options *options, trm_error *err);
    void (*leave)(trm_exec *exec);
    /* Sets *active when the options ask for this way; reads and checks them, makes the way's state.
     * May change what the executor asks of back-ends (exec->kernels_from), its threads and its
     * number of blocks. Not called for ways that come later when an earlier one fails.
     *   errors  INVALID: options that do not fit each other */
    trm_status (*open)(trm_exec *exec, const trm_exec_options *options, bool *active,
                       trm_error *err);
    /* Waits until this rank may measure kernels: ranks that share CPUs measure one after the other,
     * and `connect` lets the next rank begin. */
    trm_status (*await_turn)(trm_exec *exec, trm_error *err);
    /* Tells the compiler, before the program is made, what to make of the graph (*plan). */
    trm_status (*plan)(trm_exec *exec, const trm_graph *graph, const trm_exec_options *options,
                       trmi_plan_options *plan, trm_error *err);
    /* May move buffers between arenas: the program is made, and no memory is taken yet. `plan`: the
     * options from which the program was made, with its report. */
    trm_status (*place)(trm_exec *exec, const trm_exec_options *options,
                        const trmi_plan_options *plan, trm_error *err);
    /* Takes memory for an arena of `bytes` and stores it in exec->env.arena[arena]; `close` frees
     * it. May return OK and take it in `connect`. UNSUPPORTED: another way, or else the executor,
     * takes it. The ways are asked from the last one of the table to the first, as for `bind`. */
    trm_status (*arena)(trm_exec *exec, trmi_arena_id arena, size_t bytes, trm_error *err);
    /* Returns zeroed memory that the other ranks can reach, of which no page is allocated before it
     * is used, freed in `close`. UNSUPPORTED: another way, or none, has such memory. */
    trm_status (*memory)(trm_exec *exec, size_t bytes, void **out, trm_error *err);
    /* Binds the kernel of a step. UNSUPPORTED: the back-end binds it. */
    trm_status (*bind)(trm_exec *exec, trmi_kernel *kernel, trm_error *err);
    /* Makes communicators, staging buffers and arenas that ranks have in common. Kernels are bound,
     * and arenas have the memory that `arena` took. */
    trm_status (*connect)(trm_exec *exec, const trm_exec_options *options, trm_error *err);
    /* Divides the variables among the ranks that make their initial values: clears mine[index] of
     * those that another rank makes. */
    trm_status (*deal)(trm_exec *exec, uint8_t *mine, trm_error *err);
    /* Makes the initial values equal on all ranks, and prepares what the steps need. After `begin`
     * nothing is allocated. */
    trm_status (*begin)(trm_exec *exec, trm_error *err);
    void (*close)(trm_exec *exec);

    /* ---- a step ---- */

    /* Adds this way's actions (trmi_distribution_add). Called again after
     * trmi_distribution_reschedule. */
    void (*schedule)(trm_exec *exec);
    /* Prepares a training step, before the first program step. `training`: backward follows. */
    trm_status (*before_step)(trm_exec *exec, bool training, trm_error *err);
    /* Ends a forward pass without backward. */
    trm_status (*finish_forward)(trm_exec *exec, trm_error *err);
    /* Waits, after the last program step, for all collectives that were started, also when the
     * step failed (`status`). Gradients are then those that the optimiser uses. Returns the
     * first error. */
    trm_status (*finish_backward)(trm_exec *exec, trm_status status, trm_error *err);
    /* Sets *diverged on all ranks if it is set on one: the optimiser has read the gradients, and
     * has not changed the parameters yet. */
    trm_status (*agree)(trm_exec *exec, bool *diverged, trm_error *err);
    /* Finds the lowest rank that passes `found`; *rank is -1 if none does. Collective. */
    trm_status (*first)(trm_exec *exec, bool found, int32_t *rank, trm_error *err);
    /* Sends the parameters that this rank's optimiser has changed to the other ranks. */
    trm_status (*publish)(trm_exec *exec, trm_error *err);

    /* ---- state, inputs, reports ---- */

    /* Makes parameters, states and slots whole on every rank, before they are saved. */
    trm_status (*gather)(trm_exec *exec, trm_error *err);
    /* Puts each rank's `part` of `leaf`, in plain layout, together in `whole` on every rank. */
    trm_status (*assemble)(trm_exec *exec, const trmi_partition_leaf *leaf, trm_dtype dtype,
                           const void *part, void *whole, trm_error *err);
    /* Corrects *hold, which is what the ways before this one say of the words of variable `index`
     * from word `at` of its memory on. Local. */
    void (*hold)(const trm_exec *exec, int32_t index, int64_t at, trmi_hold *hold);
    /* Sends variable `index`, or its gradient, whole from the ranks that update it to all ranks. */
    trm_status (*bring)(trm_exec *exec, int32_t index, void *data, trm_error *err);
    /* Sets *place to the memory for input `index` that callers feed, if it is not the program's
     * buffer. */
    void (*input)(trm_exec *exec, int32_t index, trm_tensor *place);
    /* Takes `data`, which the caller feeds for input `index` (NULL: the caller has written it to
     * *place). Returns false if this way does not feed the input. */
    bool (*feed)(trm_exec *exec, int32_t index, const trm_tensor *place, const void *data);
    /* Corrects the sizes in *info, which are those of one rank by itself. */
    void (*describe)(const trm_exec *exec, trm_exec_info *info);
    /* Does the same for a program without an executor (a plan that is priced). `mesh`: of a split
     * program. */
    void (*count)(const trm_exec *exec, const trm_program *program, const struct trmi_mesh *mesh,
                  struct trmi_training *training);
} trmi_distribution;

/* Active ways of an executor, at most. */
enum { TRMI_DISTRIBUTIONS_MAX = 8 };

/* The state of a way that an executor keeps. */
typedef struct trmi_way_state {
    const char *key;
    void *state;
} trmi_way_state;

/* An action of a way of training between two steps of the program. */
typedef struct trmi_action {
    int32_t before; /* the step that it precedes; steps_count: after the last */
    bool last_only; /* of accumulated batches only in the last one */
    trm_status (*run)(trm_exec *exec, int32_t item, trm_error *err);
    int32_t item;
} trmi_action;

/* ---- the executor's side: each calls the active ways in the order of the table ---- */

trm_status trmi_distribution_join(trm_exec *exec, const trmi_distribution *const *table,
                                  int32_t count, trm_exec_options *options, trm_error *err);
void trmi_distribution_leave(trm_exec *exec, const trmi_distribution *const *table, int32_t count);
/* Opens the ways of `table` that the options ask for. */
trm_status trmi_distribution_open(trm_exec *exec, const trmi_distribution *const *table,
                                  int32_t count, const trm_exec_options *options, trm_error *err);
trm_status trmi_distribution_await_turn(trm_exec *exec, trm_error *err);
trm_status trmi_distribution_plan(trm_exec *exec, const trm_graph *graph,
                                  const trm_exec_options *options, trmi_plan_options *plan,
                                  trm_error *err);
trm_status trmi_distribution_place(trm_exec *exec, const trm_exec_options *options,
                                   const trmi_plan_options *plan, trm_error *err);
/* Returns UNSUPPORTED if no way takes the arena. */
trm_status trmi_distribution_arena(trm_exec *exec, trmi_arena_id arena, size_t bytes,
                                   trm_error *err);
trm_status trmi_distribution_bind(trm_exec *exec, trmi_kernel *kernel, trm_error *err);
trm_status trmi_distribution_connect(trm_exec *exec, const trm_exec_options *options,
                                     trm_error *err);
trm_status trmi_distribution_deal(trm_exec *exec, uint8_t *mine, trm_error *err);
trm_status trmi_distribution_begin(trm_exec *exec, trm_error *err);
void trmi_distribution_close(trm_exec *exec);
trm_status trmi_distribution_before_step(trm_exec *exec, bool training, trm_error *err);
trm_status trmi_distribution_finish_forward(trm_exec *exec, trm_error *err);
trm_status trmi_distribution_finish_backward(trm_exec *exec, trm_status status, trm_error *err);
trm_status trmi_distribution_agree(trm_exec *exec, bool *diverged, trm_error *err);
/* Finds the first rank that passes `found`. *rank -1: none, or there are no other ranks. */
trm_status trmi_distribution_first(trm_exec *exec, bool found, int32_t *rank, trm_error *err);
trm_status trmi_distribution_publish(trm_exec *exec, trm_error *err);
trm_status trmi_distribution_gather(trm_exec *exec, trm_error *err);
trm_status trmi_distribution_assemble(trm_exec *exec, const trmi_partition_leaf *leaf,
                                      trm_dtype dtype, const void *part, void *whole,
                                      trm_error *err);
/* Returns what the words of variable `index` from word `at` of its memory on, of `words`, are for
 * the state of the job. One rank by itself has all of it. */
trmi_hold trmi_distribution_hold(const trm_exec *exec, int32_t index, int64_t at, int64_t words);
trm_status trmi_distribution_bring(trm_exec *exec, int32_t index, void *data, trm_error *err);
void trmi_distribution_input(trm_exec *exec, int32_t index, trm_tensor *place);
/* Offers `data`, this rank's whole batch of input `index`, to the active ways. `place`: where the
 * program reads the input. Returns true if a way has taken the data; false: the caller copies it to
 * `place`. `data` NULL: the caller writes to `place` from now on. */
bool trmi_distribution_feed(trm_exec *exec, int32_t index, const trm_tensor *place,
                            const void *data);
void trmi_distribution_describe(const trm_exec *exec, trm_exec_info *info);
void trmi_distribution_count(const trm_exec *exec, const trm_program *program,
                             const struct trmi_mesh *mesh, struct trmi_training *training);

/* ---- what ways use of the executor ---- */

/* Keeps a way's state, which its `close` frees, with the executor; trmi_distribution_state
 * returns it. `key`: the address of a variable that only this state uses. NULL: nothing is kept
 * under it. */
void trmi_distribution_keep(trm_exec *exec, const char *key, void *state);
void *trmi_distribution_state(const trm_exec *exec, const char *key);
/* Returns zeroed memory that the other ranks can reach, of which no page is allocated before it is
 * used (trmi_comm_fill_shared), freed when the ways are closed. UNSUPPORTED: this executor has no
 * other ranks. */
trm_status trmi_distribution_memory(trm_exec *exec, size_t bytes, void **out, trm_error *err);
/* Adds an action: in `schedule` only. Actions before the same step run in the order of the
 * table, then in the order in which they were added. */
void trmi_distribution_add(trm_exec *exec, trmi_action action);
/* Asks all active ways, then the executor, for their actions again. Takes no memory. */
void trmi_distribution_reschedule(trm_exec *exec);

#endif
