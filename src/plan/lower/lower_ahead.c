/* SPDX-License-Identifier: Apache-2.0 */
/* Gathers of parameters that begin in front of their place (the prefetch of ZeRO-3: Rajbhandari et
 * al., arXiv 1910.02054, and of PyTorch's FSDP). A parameter that is stored in parts is gathered by
 * an EXCHANGE step, which reads nothing that the program computes. So its messages can travel while
 * the steps in front of it compute:
 *
 *      gather w1 | linear 1 | gather w2 | linear 2                        each gather begins at its place
 *      start w1 and w2 | wait w1 | linear 1 | wait w2 | linear 2          gather w2 has ahead = 2
 *
 * Invariants: at most GATHERS_AHEAD gathers are under way. Where a gather begins depends on the
 * order of the steps only, which is the same on all ranks, so all ranks start their messages in one
 * order. */
#include "plan/passes/pass.h"

/* A program needs the memory of so many results more. With two, the messages of a large parameter
 * have the time of a small one's product, too. */
enum { GATHERS_AHEAD = 2 };

/* Returns whether a step moves a parameter between spreads. */
static bool gathers_parameter(const trm_program *p, const trmi_step *step) {
    if (step->kind != TRMI_STEP_OP || step->op_kind != TRMI_OP_EXCHANGE) {
        return false;
    }
    const trmi_box_exchange *what = trmi_exchange_of(step->attrs);
    return what->members > 1 && what->combine == TRMI_COMBINE_NONE &&
           p->buffers[trmi_buffer_root(p, step->inputs[0])].arena == TRMI_ARENA_PARAM &&
           p->buffers[step->outputs[0]].arena == TRMI_ARENA_ACTIVATION;
}

/* Contract in plan/passes/pass.h. */
void trmi_lower_ahead(trm_program *p) {
    int32_t behind[GATHERS_AHEAD] = {0}; /* the steps behind the last gathers, in turn */
    int32_t gathers = 0;
    for (int32_t s = 0; s < p->steps_count; s++) {
        if (gathers_parameter(p, &p->steps[s])) {
            int32_t *place = &behind[gathers++ % GATHERS_AHEAD];
            p->steps[s].ahead = s - *place;
            *place = s + 1;
        }
    }
}
