/* Memory for a little time: outputs of fused norms are not kept for backward; where backward first
 * reads one, NORM_ACT_APPLY makes it again from x and the saved statistics, which are kept anyway.
 *
 *      forward:   x -> NORM_ACT -> y -> conv          (y dies here)
 *      backward:  x, statistics -> NORM_ACT_APPLY -> y' -> CONV2D_GRAD_WEIGHTS, MAX_POOL_GRAD ...
 *
 * With a residual r, y' also needs r. In a chain of residual blocks every other output is kept:
 *
 *      y1 (kept) --+--> y2 = f(x2, y1) dropped --+--> y3 = f(x3, y2) kept --+--> y4 dropped ...
 *
 * and where r is the norm of a projection, which nobody else needs, r is made again first. */
#include "plan/pass.h"

#include "base/error.h"

#include <stdlib.h>

typedef struct recompute {
    trmi_pass *pass;
    bool *dropped;  /* value of `from`: backward makes it again */
    int32_t *again; /* value of `from` -> its copy in `to`, 0 = not made yet */
} recompute;

static const trmi_op *maker_of(const trm_graph *g, int32_t value) {
    return &g->ops[g->values[value].op];
}

static bool is_norm(const trm_graph *g, int32_t value) {
    return value != 0 && maker_of(g, value)->kind == TRMI_OP_NORM_ACT &&
           maker_of(g, value)->outputs[0] == value && g->values[value].shape.rank == 4;
}

static bool projection(const trm_graph *g, int32_t value) {
    return is_norm(g, value) && !maker_of(g, value)->attrs.norm.relu &&
           !maker_of(g, value)->attrs.norm.residual;
}

/* In the order of the graph, so that a residual is decided before what adds it. */
static void choose(recompute *r) {
    const trm_graph *g = r->pass->from;
    for (int64_t i = 1; i < g->ops_count; i++) {
        const trmi_op *op = &g->ops[i];
        if (!is_norm(g, op->outputs[0])) {
            continue;
        }
        int32_t residual = op->attrs.norm.residual ? op->inputs[5] : 0;
        bool available = residual == 0 || projection(g, residual) || !r->dropped[residual];
        /* A kept residual must be kept by somebody: the output of an earlier block is. */
        bool kept_anyway = residual == 0 || projection(g, residual) || is_norm(g, residual);
        r->dropped[op->outputs[0]] = op->attrs.norm.relu && available && kept_anyway;
    }
}

static int32_t make_again(recompute *r, int32_t value) {
    trmi_pass *pass = r->pass;
    const trm_graph *g = pass->from;
    if (r->again[value] != 0) {
        return r->again[value];
    }
    const trmi_op *norm = maker_of(g, value);
    int32_t inputs[6] = {pass->map[norm->inputs[0]], pass->map[norm->inputs[1]],
                         pass->map[norm->inputs[2]], pass->map[norm->outputs[1]],
                         pass->map[norm->outputs[2]], 0};
    if (norm->attrs.norm.residual) {
        int32_t residual = norm->inputs[5];
        inputs[5] = projection(g, residual) ? make_again(r, residual) : pass->map[residual];
    }
    char *name = trmi_arena_printf(&pass->to->arena, "%s.again", norm->name);
    int32_t index = trmi_pass_emit(pass, TRMI_OP_NORM_ACT_APPLY, TRMI_BACKWARD, name, inputs,
                                   norm->attrs.norm.residual ? 6 : 5, 1, &norm->attrs);
    r->again[value] = index == 0 ? 0 : pass->to->ops[index].outputs[0];
    return r->again[value];
}

/* Copies a backward operator; what it reads of dropped values is made again. */
static void copy_backward(recompute *r, const trmi_op *op) {
    trmi_pass *pass = r->pass;
    int32_t kept[8];
    int32_t count = op->inputs_count < 8 ? op->inputs_count : 8;
    for (int32_t j = 0; j < count; j++) {
        kept[j] = pass->map[op->inputs[j]];
        if (r->dropped[op->inputs[j]]) {
            int32_t copy = make_again(r, op->inputs[j]);
            pass->map[op->inputs[j]] = copy;
        }
    }
    trmi_pass_copy(pass, op);
    for (int32_t j = count - 1; j >= 0; j--) {
        pass->map[op->inputs[j]] = kept[j];
    }
}

trm_status trmi_pass_recompute(trmi_pass *pass, const trmi_plan_options *options,
                               const trmi_roots *roots, trm_error *err) {
    const trm_graph *g = pass->from;
    (void)options;
    (void)roots;
    recompute r = {.pass = pass};
    r.dropped = calloc((size_t)g->values_count, sizeof *r.dropped);
    r.again = calloc((size_t)g->values_count, sizeof *r.again);
    trm_status status = TRM_OK;
    if (r.dropped == NULL || r.again == NULL) {
        status = TRMI_FAIL(err, TRM_NOMEM, "no memory to choose what to recompute");
    } else {
        choose(&r);
        for (int64_t i = 1; i < g->ops_count; i++) {
            const trmi_op *op = &g->ops[i];
            if (op->phase == TRMI_BACKWARD) {
                copy_backward(&r, op);
            } else {
                trmi_pass_copy(pass, op);
            }
        }
    }
    free(r.dropped);
    free(r.again);
    return status;
}
