/* Memory for a little time: y = relu(norm(x)) is not kept for backward; where a backward operator
 * reads it, NORM_ACT_APPLY makes it again from x and the saved statistics, which are kept anyway.
 *
 *      forward:   x -> NORM_ACT -> y -> conv          (y dies here)
 *      backward:  x, statistics -> NORM_ACT_APPLY -> y' -> CONV2D_GRAD_WEIGHTS
 *
 * Not done where a residual was added: the residual would have to live instead. */
#include "plan/pass.h"

static bool worth(const trm_graph *g, const trmi_op *op) {
    return op->kind == TRMI_OP_NORM_ACT && op->attrs.norm.relu && !op->attrs.norm.residual &&
           g->values[op->outputs[0]].shape.rank == 4;
}

static int32_t apply_again(trmi_pass *pass, const trmi_op *norm) {
    const int32_t inputs[] = {pass->map[norm->inputs[0]], pass->map[norm->inputs[1]],
                              pass->map[norm->inputs[2]], pass->map[norm->outputs[1]],
                              pass->map[norm->outputs[2]]};
    char *name = trmi_arena_printf(&pass->to->arena, "%s.again", norm->name);
    int32_t index = trmi_pass_emit(pass, TRMI_OP_NORM_ACT_APPLY, TRMI_BACKWARD, name, inputs, 5, 1,
                                   &norm->attrs);
    return index == 0 ? 0 : pass->to->ops[index].outputs[0];
}

trm_status trmi_pass_recompute(trmi_pass *pass, const trmi_plan_options *options,
                               const trmi_roots *roots, trm_error *err) {
    const trm_graph *g = pass->from;
    (void)options;
    (void)roots;
    (void)err;
    for (int32_t i = 1; i < g->ops_count; i++) {
        const trmi_op *op = &g->ops[i];
        if (op->kind != TRMI_OP_CONV2D_GRAD_WEIGHTS) {
            trmi_pass_copy(pass, op);
            continue;
        }
        int32_t x = op->inputs[1];
        const trmi_op *made = &g->ops[g->values[x].op];
        int32_t kept = pass->map[x];
        if (worth(g, made)) {
            pass->map[x] = apply_again(pass, made);
        }
        trmi_pass_copy(pass, op);
        pass->map[x] = kept;
    }
    return TRM_OK;
}
