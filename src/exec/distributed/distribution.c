/* SPDX-License-Identifier: Apache-2.0 */
/* Calls the active ways of training, in the order of the table (ways.c), at each place at which
 * training with ranks may differ from training without:
 *
 *   creation   join -> open -> plan -> place, arena -> bind -> connect -> begin
 *   a step     before_step -> walk (actions) -> finish_forward, finish_backward -> agree -> publish
 *   state      gather, assemble, hold, bring, input, feed, describe, count;   end: close, leave
 *
 * Most hooks are called for all active ways, until one fails. Where one answer is wanted (memory of
 * an arena, the kernel of a step) the last way of the table that does not answer UNSUPPORTED gives
 * it, as it is the most special one. finish_backward is called for all ways also after an error, so
 * that no collective stays open. Without ranks no way is active, and every function here returns at
 * once.
 *
 * Invariant: nothing here knows a way by name; a way finds its state by its key. */
#include "exec/distributed/distribution.h"

#include "exec/exec.h"

#include "base/error.h"
#include "base/memory.h"

#include <string.h>

/* Calls `hook` of each active way until one fails. */
#define CALL_EACH(exec, hook, ...)                                                                 \
    for (int32_t way_ = 0; way_ < (exec)->ways_count; way_++) {                                    \
        if ((exec)->ways[way_]->hook != NULL) {                                                    \
            TRMI_TRY((exec)->ways[way_]->hook(__VA_ARGS__));                                       \
        }                                                                                          \
    }                                                                                              \
    return TRM_OK

/* The last active way of the table, the most special one, that does not answer UNSUPPORTED. */
#define CALL_LAST(exec, hook, ...)                                                                 \
    for (int32_t way_ = (exec)->ways_count - 1; way_ >= 0; way_--) {                               \
        trm_status status_ = (exec)->ways[way_]->hook != NULL                                      \
                                 ? (exec)->ways[way_]->hook(__VA_ARGS__)                           \
                                 : TRM_UNSUPPORTED;                                                \
        if (status_ != TRM_UNSUPPORTED) {                                                          \
            return status_;                                                                        \
        }                                                                                          \
    }                                                                                              \
    return TRM_UNSUPPORTED

/* ---- states ---------------------------------------------------------------------------------- */

/* Contract in distribution.h. Keys are compared by address: each way has one static string, so
 * that two ways of one name cannot meet. */
void trmi_distribution_keep(trm_exec *exec, const char *key, void *state) {
    int32_t i = 0;
    while (exec->way_states[i].key != NULL && exec->way_states[i].key != key) {
        i++;
    }
    TRMI_ASSERT(i < TRMI_DISTRIBUTIONS_MAX);
    exec->way_states[i] = (trmi_way_state){.key = key, .state = state};
}

void *trmi_distribution_state(const trm_exec *exec, const char *key) {
    for (int32_t i = 0; exec->way_states[i].key != NULL; i++) {
        if (exec->way_states[i].key == key) {
            return exec->way_states[i].state;
        }
    }
    return NULL;
}

/* ---- creation -------------------------------------------------------------------------------- */

trm_status trmi_distribution_join(trm_exec *exec, const trmi_distribution *const *table,
                                  int32_t count, trm_exec_options *options, trm_error *err) {
    for (int32_t i = 0; i < count; i++) {
        if (table[i]->join != NULL) {
            TRMI_TRY(table[i]->join(exec, options, err));
        }
    }
    return TRM_OK;
}

/* Contract in distribution.h. In reverse order: a way may use what an earlier one has joined. */
void trmi_distribution_leave(trm_exec *exec, const trmi_distribution *const *table, int32_t count) {
    for (int32_t i = count - 1; i >= 0; i--) {
        if (table[i]->leave != NULL) {
            table[i]->leave(exec);
        }
    }
}

/* Contract in distribution.h. From here on only the ways that declare themselves active are
 * called. */
trm_status trmi_distribution_open(trm_exec *exec, const trmi_distribution *const *table,
                                  int32_t count, const trm_exec_options *options, trm_error *err) {
    for (int32_t i = 0; i < count; i++) {
        bool active = false;
        trm_status status = table[i]->open(exec, options, &active, err);
        if (active) { /* `close` frees what a failed `open` has made, too */
            exec->ways[exec->ways_count++] = table[i];
        }
        TRMI_TRY(status);
    }
    return TRM_OK;
}

trm_status trmi_distribution_await_turn(trm_exec *exec, trm_error *err) {
    CALL_EACH(exec, await_turn, exec, err);
}

trm_status trmi_distribution_plan(trm_exec *exec, const trm_graph *graph,
                                  const trm_exec_options *options, trmi_plan_options *plan,
                                  trm_error *err) {
    CALL_EACH(exec, plan, exec, graph, options, plan, err);
}

trm_status trmi_distribution_place(trm_exec *exec, const trm_exec_options *options,
                                   const trmi_plan_options *plan, trm_error *err) {
    CALL_EACH(exec, place, exec, options, plan, err);
}

/* Contract in distribution.h. UNSUPPORTED: no way wants the arena elsewhere, and the executor
 * takes memory of its own; the same holds for the kernel of a step below. */
trm_status trmi_distribution_arena(trm_exec *exec, trmi_arena_id arena, size_t bytes,
                                   trm_error *err) {
    CALL_LAST(exec, arena, exec, arena, bytes, err);
}

trm_status trmi_distribution_bind(trm_exec *exec, trmi_kernel *kernel, trm_error *err) {
    CALL_LAST(exec, bind, exec, kernel, err);
}

trm_status trmi_distribution_connect(trm_exec *exec, const trm_exec_options *options,
                                     trm_error *err) {
    CALL_EACH(exec, connect, exec, options, err);
}

trm_status trmi_distribution_deal(trm_exec *exec, uint8_t *mine, trm_error *err) {
    CALL_EACH(exec, deal, exec, mine, err);
}

/* Calls the hook `begin`; a function of its own, because CALL_EACH returns. */
static trm_status begin_each(trm_exec *exec, trm_error *err) { CALL_EACH(exec, begin, exec, err); }

/* Contract in distribution.h. Takes the memory of the step's actions once: a schedule may be made
 * again when the ranks change (trmi_distribution_reschedule), and allocates nothing. */
trm_status trmi_distribution_begin(trm_exec *exec, trm_error *err) {
    const trm_program *p = exec->program;
    TRMI_TRY(begin_each(exec, err));
    /* Ways have one action after each step and one for each range of gradients. They and the
     * executor have a few for the whole step. */
    enum { RANGES_EACH = 5, FEW = 16 };
    const bool any = exec->ways_count > 0;
    exec->actions_room = FEW + (any ? p->steps_count + RANGES_EACH * p->params_count : 0);
    TRMI_TRY(TRMI_NEW_IN(err, &exec->memory, exec->actions, exec->actions_room,
                         "for the actions of %d steps", p->steps_count));
    trmi_distribution_reschedule(exec);
    return TRM_OK;
}

void trmi_distribution_close(trm_exec *exec) {
    while (exec->ways_count > 0) {
        const trmi_distribution *way = exec->ways[--exec->ways_count];
        if (way->close != NULL) {
            way->close(exec);
        }
    }
}

/* Contract in distribution.h. The first way that has such memory gives it: shared memory belongs
 * to the ranks of a host, whatever the more special ways do with it. */
trm_status trmi_distribution_memory(trm_exec *exec, size_t bytes, void **out, trm_error *err) {
    trm_status status = TRM_UNSUPPORTED;
    for (int32_t i = 0; status == TRM_UNSUPPORTED && i < exec->ways_count; i++) {
        if (exec->ways[i]->memory != NULL) {
            status = exec->ways[i]->memory(exec, bytes, out, err);
        }
    }
    return status;
}

/* ---- a step ---------------------------------------------------------------------------------- */

void trmi_distribution_add(trm_exec *exec, trmi_action action) {
    TRMI_ASSERT(exec->actions_count < exec->actions_room);
    /* insertion from the end: actions arrive nearly in order, and those of one step keep it */
    int32_t at = exec->actions_count++;
    for (; at > 0 && exec->actions[at - 1].before > action.before; at--) {
        exec->actions[at] = exec->actions[at - 1];
    }
    exec->actions[at] = action;
}

void trmi_distribution_reschedule(trm_exec *exec) {
    exec->actions_count = 0;
    for (int32_t i = 0; i < exec->ways_count; i++) {
        if (exec->ways[i]->schedule != NULL) {
            exec->ways[i]->schedule(exec);
        }
    }
    /* the executor's own actions come last, so that at one step those of the ways go first */
    exec->schedule(exec);
}

trm_status trmi_distribution_before_step(trm_exec *exec, bool training, trm_error *err) {
    CALL_EACH(exec, before_step, exec, training, err);
}

trm_status trmi_distribution_finish_forward(trm_exec *exec, trm_error *err) {
    CALL_EACH(exec, finish_forward, exec, err);
}

/* Contract in distribution.h. All ways are called after an error too, each with the status of the
 * one before: reductions that have begun must end on every rank. */
trm_status trmi_distribution_finish_backward(trm_exec *exec, trm_status status, trm_error *err) {
    for (int32_t i = 0; i < exec->ways_count; i++) {
        if (exec->ways[i]->finish_backward != NULL) {
            status = exec->ways[i]->finish_backward(exec, status, err);
        }
    }
    return status;
}

trm_status trmi_distribution_agree(trm_exec *exec, bool *diverged, trm_error *err) {
    CALL_EACH(exec, agree, exec, diverged, err);
}

trm_status trmi_distribution_first(trm_exec *exec, bool found, int32_t *rank, trm_error *err) {
    *rank = -1;
    CALL_EACH(exec, first, exec, found, rank, err);
}

trm_status trmi_distribution_publish(trm_exec *exec, trm_error *err) {
    CALL_EACH(exec, publish, exec, err);
}

/* ---- state, inputs, reports ------------------------------------------------------------------ */

trm_status trmi_distribution_gather(trm_exec *exec, trm_error *err) {
    CALL_EACH(exec, gather, exec, err);
}

trm_status trmi_distribution_assemble(trm_exec *exec, const trmi_partition_leaf *leaf,
                                      trm_dtype dtype, const void *part, void *whole,
                                      trm_error *err) {
    CALL_EACH(exec, assemble, exec, leaf, dtype, part, whole, err);
}

/* Contract in distribution.h. Begins with "this rank holds all of it"; each way narrows the
 * answer. */
trmi_hold trmi_distribution_hold(const trm_exec *exec, int32_t index, int64_t at, int64_t words) {
    trmi_hold hold = {.mine = true, .end = words};
    for (int32_t i = 0; i < exec->ways_count; i++) {
        if (exec->ways[i]->hold != NULL) {
            exec->ways[i]->hold(exec, index, at, &hold);
        }
    }
    return hold;
}

trm_status trmi_distribution_bring(trm_exec *exec, int32_t index, void *data, trm_error *err) {
    CALL_EACH(exec, bring, exec, index, data, err);
}

void trmi_distribution_input(trm_exec *exec, int32_t index, trm_tensor *place) {
    for (int32_t i = 0; i < exec->ways_count; i++) {
        if (exec->ways[i]->input != NULL) {
            exec->ways[i]->input(exec, index, place);
        }
    }
}

/* Contract in distribution.h. The first way that takes the value over ends the search. */
bool trmi_distribution_feed(trm_exec *exec, int32_t index, const trm_tensor *place,
                            const void *data) {
    for (int32_t i = 0; i < exec->ways_count; i++) {
        if (exec->ways[i]->feed != NULL && exec->ways[i]->feed(exec, index, place, data)) {
            return true;
        }
    }
    return false;
}

void trmi_distribution_describe(const trm_exec *exec, trm_exec_info *info) {
    for (int32_t i = 0; i < exec->ways_count; i++) {
        if (exec->ways[i]->describe != NULL) {
            exec->ways[i]->describe(exec, info);
        }
    }
}

void trmi_distribution_count(const trm_exec *exec, const trm_program *program,
                             const struct trmi_mesh *mesh, struct trmi_training *training) {
    for (int32_t i = 0; i < exec->ways_count; i++) {
        if (exec->ways[i]->count != NULL) {
            exec->ways[i]->count(exec, program, mesh, training);
        }
    }
}
