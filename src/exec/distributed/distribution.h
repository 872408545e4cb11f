/* SPDX-License-Identifier: Apache-2.0 */
/* exec/distributed/distribution.h: what differs between ways of training, behind one interface.
 *
 * There is one executor. It compiles a graph to a program, gives the arenas memory, binds a
 * kernel to each step and walks the array of steps. A way of training (ranks that sum
 * gradients, slices of the optimiser, a split graph, strict determinism, ...) is a table of the
 * functions below. The executor calls them at fixed points, for each active way in the order of
 * the table in ways.c; it knows none of them by name.
 *
 *      trm_exec_create             open  plan  place  memory  bind  connect  begin
 *      trm_exec_forward_backward   before_step  [steps and actions]  finish
 *      trm_exec_update             agree  publish
 *      trm_exec_feed               feed
 *      trm_exec_gather             publish  gather
 *      trmi_state_part_list        hold
 *      trm_exec_destroy            close
 *
 * Between the steps of the program a way runs actions: a collective that starts after the step
 * which completes a gradient, a meeting before the steps that read other ranks' memory. `begin`
 * adds them to exec->actions, sorted by the step that they precede; a training step walks both
 * arrays once. What the executor itself does after the last step is an action, too
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
    /* The way chooses the ranks that all other ways see: it is opened before them, and closed after
     * them. Its other functions are called in the order of the table. */
    bool outer;

    /* ---- creation, in this order ---- */

    /* Sets *active when the options ask for this way; reads and checks them, makes the way's state.
     * May change the settings of the executor (exec/exec.h), and an outer way the ranks in
     * *options. Not called for ways that come later when an earlier one fails.
     *   errors  INVALID: options that do not fit each other */
    trm_status (*open)(trm_exec *exec, trm_exec_options *options, bool *active, trm_error *err);
    /* Changes the options of the compiler (*plan) before it makes the program. */
    trm_status (*plan)(trm_exec *exec, const trm_graph *graph, const trm_exec_options *options,
                       trmi_plan_options *plan, trm_error *err);
    /* May move buffers between arenas: the program is made, and no memory is taken yet. */
    trm_status (*place)(trm_exec *exec, trm_error *err);
    /* Takes zeroed memory of `bytes` for an arena, which `close` frees; *out NULL: `connect` takes
     * it. TRMI_ARENA_NONE: for another use, and in reach of the other ranks, of which no page is
     * allocated before it is used. UNSUPPORTED: another way, or else the caller, takes it. The ways
     * are asked from the last one of the table to the first, as for `bind`. */
    trm_status (*memory)(trm_exec *exec, trmi_arena_id arena, size_t bytes, void **out,
                         trm_error *err);
    /* Binds the kernel of a step. UNSUPPORTED: the back-end binds it. */
    trm_status (*bind)(trm_exec *exec, trmi_kernel *kernel, trm_error *err);
    /* Makes communicators, staging buffers and arenas that ranks have in common. Kernels are bound,
     * and arenas have the memory that `memory` took. */
    trm_status (*connect)(trm_exec *exec, const trm_exec_options *options, trm_error *err);
    /* Makes the initial values equal on all ranks, prepares what the steps need, and adds this
     * way's actions (trmi_distribution_add). After `begin` nothing is allocated. */
    trm_status (*begin)(trm_exec *exec, trm_error *err);
    void (*close)(trm_exec *exec);

    /* ---- a step ---- */

    /* Prepares a step, before the first program step. `training`: backward follows. */
    trm_status (*before_step)(trm_exec *exec, bool training, trm_error *err);
    /* Waits, after the last program step, for all collectives that were started; of a training step
     * also when it failed (`status`). Gradients are then those that the optimiser uses. Returns the
     * first error. */
    trm_status (*finish)(trm_exec *exec, bool training, trm_status status, trm_error *err);
    /* Sets *first, which is negative unless this rank has found something, to the lowest rank that
     * has, on all ranks. `of_gradients`: it was found in the gradients that the optimiser reads;
     * ranks that have the same need not ask each other, and any rank that has found it will do. */
    trm_status (*agree)(trm_exec *exec, bool of_gradients, int32_t *first, trm_error *err);
    /* Sends what this rank's optimiser has changed to the other ranks: the parameters, after each
     * update; or its `slots`, before they are saved. */
    trm_status (*publish)(trm_exec *exec, bool slots, trm_error *err);

    /* ---- inputs and state ---- */

    /* Takes `data`, which the caller feeds for input `index`, and returns true; false: the caller
     * copies it to *place. `data` NULL: sets *place to the memory to which the caller writes, if it
     * is not the program's buffer. */
    bool (*feed)(trm_exec *exec, int32_t index, trm_tensor *place, const void *data);
    /* Puts variable `index`, or its gradient, together in `whole`, plain, on every rank. `part`:
     * this rank's part of it; NULL: the part lies in `whole`. */
    trm_status (*gather)(trm_exec *exec, int32_t index, const void *part, void *whole,
                         trm_error *err);
    /* Corrects *hold, which is what the ways before this one say of the words of variable `index`
     * from word `at` of its memory on. Local. */
    void (*hold)(const trm_exec *exec, int32_t index, int64_t at, trmi_hold *hold);
} trmi_distribution;

/* Active ways of an executor, at most. */
enum { TRMI_DISTRIBUTIONS_MAX = 8 };

/* The state of a way that an executor keeps. */
typedef struct trmi_way_state {
    const char *key;
    void *state;
} trmi_way_state;

/* An action between two steps of the program. */
typedef struct trmi_action {
    int32_t before; /* the step that it precedes; steps_count: after the last */
    bool last_only; /* of accumulated batches only in the last one */
    bool own;       /* the executor's: runs after those of ways before the same step */
    trm_status (*run)(trm_exec *exec, int32_t item, trm_error *err);
    int32_t item;
} trmi_action;

/* ---- the executor's side: each calls the active ways in the order of the table ---- */

/* Opens the ways of `table` that the options ask for. */
trm_status trmi_distribution_open(trm_exec *exec, const trmi_distribution *const *table,
                                  int32_t count, trm_exec_options *options, trm_error *err);
trm_status trmi_distribution_plan(trm_exec *exec, const trm_graph *graph,
                                  const trm_exec_options *options, trmi_plan_options *plan,
                                  trm_error *err);
trm_status trmi_distribution_place(trm_exec *exec, trm_error *err);
/* Ways use it, too, for memory in reach of the other ranks (TRMI_ARENA_NONE; comm/shm's
 * trmi_comm_fill_shared allocates its pages). Returns UNSUPPORTED if no way takes the memory. */
trm_status trmi_distribution_memory(trm_exec *exec, trmi_arena_id arena, size_t bytes, void **out,
                                    trm_error *err);
trm_status trmi_distribution_bind(trm_exec *exec, trmi_kernel *kernel, trm_error *err);
trm_status trmi_distribution_connect(trm_exec *exec, const trm_exec_options *options,
                                     trm_error *err);
trm_status trmi_distribution_begin(trm_exec *exec, trm_error *err);
void trmi_distribution_close(trm_exec *exec);
trm_status trmi_distribution_before_step(trm_exec *exec, bool training, trm_error *err);
trm_status trmi_distribution_finish(trm_exec *exec, bool training, trm_status status,
                                    trm_error *err);
/* Finds the first rank that passes `found`. *first negative: none. */
trm_status trmi_distribution_agree(trm_exec *exec, bool of_gradients, bool found, int32_t *first,
                                   trm_error *err);
trm_status trmi_distribution_publish(trm_exec *exec, bool slots, trm_error *err);
/* Sets *place, the program's buffer of input `index`, to where the caller writes the input. */
void trmi_distribution_input(trm_exec *exec, int32_t index, trm_tensor *place);
/* Offers `data`, this rank's whole batch of input `index`, to the active ways. `place`: where the
 * program reads the input. Returns true if a way has taken the data; false: the caller copies it to
 * `place`. `data` NULL: the caller writes to `place` from now on. */
bool trmi_distribution_feed(trm_exec *exec, int32_t index, const trm_tensor *place,
                            const void *data);
trm_status trmi_distribution_gather(trm_exec *exec, int32_t index, const void *part, void *whole,
                                    trm_error *err);
/* Returns what the words of variable `index` from word `at` of its memory on, of `words`, are for
 * the state of the job. One rank by itself has all of it. */
trmi_hold trmi_distribution_hold(const trm_exec *exec, int32_t index, int64_t at, int64_t words);

/* ---- what ways use of the executor ---- */

/* Keeps a way's state, which its `close` frees, with the executor; trmi_distribution_state
 * returns it. `key`: the address of a variable that only this state uses. NULL: nothing is kept
 * under it. */
void trmi_distribution_keep(trm_exec *exec, const char *key, void *state);
void *trmi_distribution_state(const trm_exec *exec, const char *key);
/* Adds an action, from `begin` on. Takes no memory. Actions before the same step run in the order
 * in which they were added, those of the executor last. */
void trmi_distribution_add(trm_exec *exec, trmi_action action);
/* Removes all actions of this function. */
void trmi_distribution_remove(trm_exec *exec,
                              trm_status (*run)(trm_exec *exec, int32_t item, trm_error *err));

#endif
