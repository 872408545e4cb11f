/* SPDX-License-Identifier: Apache-2.0 */
/* Calls the active ways of training, in the order of the table (ways.c), at each place at which
 * training with ranks may differ from training without:
 *
 *   creation   open -> plan -> place, memory -> bind -> connect -> begin
 *   a step     before_step -> walk (actions) -> finish -> agree -> publish
 *   state      feed, gather, hold;   end: close
 *
 * Most hooks are called for all active ways, until one fails. Where one answer is wanted (memory of
 * an arena, the kernel of a step) the last way of the table that does not answer UNSUPPORTED gives
 * it, as it is the most special one. `finish` is called for all ways also after an error, so that
 * no collective stays open. Without ranks no way is active, and every function here returns at
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

/* Contract in distribution.h. Outer ways are opened first, because they change the options that the
 * others read. From here on only the ways that declare themselves active are called, in the order
 * of the table; `close` frees what a failed `open` has made, too. */
trm_status trmi_distribution_open(trm_exec *exec, const trmi_distribution *const *table,
                                  int32_t count, trm_exec_options *options, trm_error *err) {
    bool active[TRMI_DISTRIBUTIONS_MAX] = {false};
    trm_status status = TRM_OK;
    for (int inner = 0; inner < 2; inner++) {
        for (int32_t i = 0; i < count && status == TRM_OK; i++) {
            status = table[i]->outer == (inner == 0)
                         ? table[i]->open(exec, options, &active[i], err)
                         : TRM_OK;
        }
    }
    for (int32_t i = 0; i < count; i++) {
        if (active[i]) {
            exec->ways[exec->ways_count++] = table[i];
        }
    }
    return status;
}

trm_status trmi_distribution_plan(trm_exec *exec, const trm_graph *graph,
                                  const trm_exec_options *options, trmi_plan_options *plan,
                                  trm_error *err) {
    CALL_EACH(exec, plan, exec, graph, options, plan, err);
}

trm_status trmi_distribution_place(trm_exec *exec, trm_error *err) {
    CALL_EACH(exec, place, exec, err);
}

/* Contract in distribution.h. UNSUPPORTED: no way wants the arena elsewhere, and the executor
 * takes memory of its own; the same holds for the kernel of a step below. */
trm_status trmi_distribution_memory(trm_exec *exec, trmi_arena_id arena, size_t bytes, void **out,
                                    trm_error *err) {
    CALL_LAST(exec, memory, exec, arena, bytes, out, err);
}

trm_status trmi_distribution_bind(trm_exec *exec, trmi_kernel *kernel, trm_error *err) {
    CALL_LAST(exec, bind, exec, kernel, err);
}

trm_status trmi_distribution_connect(trm_exec *exec, const trm_exec_options *options,
                                     trm_error *err) {
    CALL_EACH(exec, connect, exec, options, err);
}

/* Contract in distribution.h. First takes the memory of the actions that the ways add, once: those
 * that change later (trmi_distribution_remove, trmi_distribution_add) allocate nothing. */
trm_status trmi_distribution_begin(trm_exec *exec, trm_error *err) {
    const trm_program *p = exec->program;
    /* Ways have one action after each step and one for each range of gradients. They and the
     * executor have a few for the whole step. */
    enum { RANGES_EACH = 5, FEW = 16 };
    const bool any = exec->ways_count > 0;
    exec->actions_room = FEW + (any ? p->steps_count + RANGES_EACH * p->params_count : 0);
    TRMI_TRY(TRMI_NEW_IN(err, &exec->memory, exec->actions, exec->actions_room,
                         "for the actions of %d steps", p->steps_count));
    CALL_EACH(exec, begin, exec, err);
}

/* Contract in distribution.h. The ways go in the reverse order in which they were opened. */
void trmi_distribution_close(trm_exec *exec) {
    for (int outer = 0; outer < 2; outer++) {
        for (int32_t i = exec->ways_count - 1; i >= 0; i--) {
            if (exec->ways[i]->outer == (outer == 1) && exec->ways[i]->close != NULL) {
                exec->ways[i]->close(exec);
            }
        }
    }
    exec->ways_count = 0;
}

/* ---- a step ---------------------------------------------------------------------------------- */

/* Contract in distribution.h. Insertion from the end: actions arrive nearly in order, and those of
 * one step keep it. */
void trmi_distribution_add(trm_exec *exec, trmi_action action) {
    TRMI_ASSERT(exec->actions_count < exec->actions_room);
    int32_t at = exec->actions_count++;
    for (; at > 0; at--) {
        const trmi_action *before = &exec->actions[at - 1];
        if (before->before < action.before ||
            (before->before == action.before && before->own <= action.own)) {
            break;
        }
        exec->actions[at] = *before;
    }
    exec->actions[at] = action;
}

void trmi_distribution_remove(trm_exec *exec,
                              trm_status (*run)(trm_exec *exec, int32_t item, trm_error *err)) {
    int32_t kept = 0;
    for (int32_t i = 0; i < exec->actions_count; i++) {
        if (exec->actions[i].run != run) {
            exec->actions[kept++] = exec->actions[i];
        }
    }
    exec->actions_count = kept;
}

trm_status trmi_distribution_before_step(trm_exec *exec, bool training, trm_error *err) {
    CALL_EACH(exec, before_step, exec, training, err);
}

/* Contract in distribution.h. All ways are called after an error too, each with the status of the
 * one before: reductions that have begun must end on every rank. */
trm_status trmi_distribution_finish(trm_exec *exec, bool training, trm_status status,
                                    trm_error *err) {
    for (int32_t i = 0; i < exec->ways_count; i++) {
        if (exec->ways[i]->finish != NULL) {
            status = exec->ways[i]->finish(exec, training, status, err);
        }
    }
    return status;
}

trm_status trmi_distribution_agree(trm_exec *exec, bool of_gradients, bool found, int32_t *first,
                                   trm_error *err) {
    *first = found ? 0 : -1;
    CALL_EACH(exec, agree, exec, of_gradients, first, err);
}

trm_status trmi_distribution_publish(trm_exec *exec, bool slots, trm_error *err) {
    CALL_EACH(exec, publish, exec, slots, err);
}

/* ---- inputs and state ------------------------------------------------------------------------ */

void trmi_distribution_input(trm_exec *exec, int32_t index, trm_tensor *place) {
    for (int32_t i = 0; i < exec->ways_count; i++) {
        if (exec->ways[i]->feed != NULL) {
            (void)exec->ways[i]->feed(exec, index, place, NULL);
        }
    }
}

/* Contract in distribution.h. The first way that takes the value over ends the search. */
bool trmi_distribution_feed(trm_exec *exec, int32_t index, const trm_tensor *place,
                            const void *data) {
    trm_tensor own = *place;
    for (int32_t i = 0; i < exec->ways_count; i++) {
        if (exec->ways[i]->feed != NULL && exec->ways[i]->feed(exec, index, &own, data)) {
            return true;
        }
    }
    return false;
}

trm_status trmi_distribution_gather(trm_exec *exec, int32_t index, const void *part, void *whole,
                                    trm_error *err) {
    CALL_EACH(exec, gather, exec, index, part, whole, err);
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
