/* SPDX-License-Identifier: Apache-2.0 */
/* Messages that begin before the place of their step, so that they travel while the steps
 * between compute. Two kinds of EXCHANGE:
 *
 *      a gather of a parameter that is stored in parts (the prefetch of ZeRO-3: Rajbhandari et al.,
 *      arXiv 1910.02054, and of PyTorch's FSDP) reads nothing that the program computes, or only
 *      the cast of this rank's part, which is moved to where the gather begins
 *
 *      gather w1 | linear 1 | gather w2 | linear 2                each gather begins at its place
 *      start w1 and w2 | wait w1 | linear 1 | wait w2 | linear 2  gather w2 has ahead = 2
 *
 *      a block that a ring passes on (plan/partition/emit_ring.c) begins after the step that makes
 *      it
 *
 *      keys k0 | attention with k0 | pass k0 on                   pass has ahead = 1
 *
 * Invariants: at most TRMI_GATHERS_AHEAD gathers are under way (the search prices them so,
 * plan/search/search_measure.c). Where a message begins depends on the order of the steps only,
 * which is the same on all ranks, so all ranks start their messages in one order. */
#include "plan/partition/partition.h"
#include "plan/passes/pass.h"

/* Returns the exchange of a step that brings parts of a tensor to an activation; NULL: it is
 * another step. */
static const trmi_box_exchange *exchange_of(const trm_program *p, const trmi_step *step) {
    bool exchange = step->kind == TRMI_STEP_OP && step->op_kind == TRMI_OP_EXCHANGE;
    const trmi_box_exchange *what = exchange ? trmi_exchange_of(step->attrs) : NULL;
    return exchange && what->members > 1 && what->combine == TRMI_COMBINE_NONE &&
                   p->buffers[step->outputs[0]].arena == TRMI_ARENA_ACTIVATION
               ? what
               : NULL;
}

/* Returns the last step before step s that writes its input; -1: none does. */
static int32_t maker_of(const trm_program *p, int32_t s) {
    int32_t root = trmi_buffer_root(p, p->steps[s].inputs[0]);
    for (int32_t at = s - 1; at >= 0; at--) {
        const trmi_step *before = &p->steps[at];
        for (int32_t i = 0; i < before->outputs_count; i++) {
            if (before->outputs[i] != 0 && trmi_buffer_root(p, before->outputs[i]) == root) {
                return at;
            }
        }
    }
    return -1;
}

/* Returns whether a step reads a parameter, as the rank stores it. */
static bool reads_parameter(const trm_program *p, const trmi_step *step) {
    return p->buffers[trmi_buffer_root(p, step->inputs[0])].arena == TRMI_ARENA_PARAM;
}

/* Moves step `from` forward to place `to`. Messages that begin before `to` still do. */
static void move_step(trm_program *p, int32_t from, int32_t to) {
    const trmi_step one = p->steps[from];
    for (int32_t s = from; s > to; s--) {
        p->steps[s] = p->steps[s - 1];
        p->steps[s].ahead += p->steps[s].ahead > 0 && s - 1 - p->steps[s].ahead < to;
    }
    p->steps[to] = one;
}

/* The gathers so far. */
typedef struct gathers {
    int32_t behind[TRMI_GATHERS_AHEAD]; /* the steps after the last ones, in turn */
    int32_t count;
} gathers;

/* Lets the gather at step s begin after the last but one. maker: the cast that it reads, or -1;
 * steps of forward stay before those of backward. */
static void begin_gather(trm_program *p, int32_t s, int32_t maker, gathers *g) {
    int32_t *place = &g->behind[g->count++ % TRMI_GATHERS_AHEAD], begin = *place;
    if (maker >= begin) {
        while (p->steps[begin].phase != p->steps[maker].phase) {
            begin++;
        }
        move_step(p, maker, begin);
        for (int32_t i = 0; i < TRMI_GATHERS_AHEAD; i++) {
            g->behind[i] += g->behind[i] > begin;
        }
        begin++; /* after the cast */
    }
    p->steps[s].ahead = s - begin;
    *place = s + 1;
}

/* Contract in plan/passes/pass.h. */
void trmi_lower_ahead(trm_program *p) {
    gathers all = {.count = 0};
    for (int32_t s = 0; s < p->steps_count; s++) {
        trmi_step *step = &p->steps[s];
        const trmi_box_exchange *what = exchange_of(p, step);
        int32_t maker = what != NULL ? maker_of(p, s) : -1;
        bool cast = maker >= 0 && p->steps[maker].kind == TRMI_STEP_OP &&
                    p->steps[maker].op_kind == TRMI_OP_CAST && reads_parameter(p, &p->steps[maker]);
        if (what != NULL && (cast || reads_parameter(p, step))) {
            begin_gather(p, s, cast ? maker : -1, &all);
        } else if (what != NULL && trmi_exchange_passes_on(what)) {
            step->ahead = s - (maker + 1);
        }
    }
}
