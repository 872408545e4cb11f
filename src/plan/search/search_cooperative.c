/* SPDX-License-Identifier: Apache-2.0 */
/* Cost of cooperative gradients (plan/lower/lower_cooperative.c) in plans that cut nothing but
 * samples, as bytes that a rank reads and writes:
 *
 *      each its own    x, dy read, dW written, summed over ranks          (x + dy + dW)
 *      cooperative     x, dy of all ranks read, a slice of dW written     ranks * (x + dy) + dW / ranks
 *
 * The arithmetic is the same. The difference of the roofline times is multiplied by measured /
 * roofline time of the backward operators. */
#include "plan/passes/pass.h"
#include "plan/search/search.h"

#include <math.h>
#include <string.h>

/* Returns the bytes of a whole value. */
static double bytes_of(const trm_graph *g, int32_t value) {
    return (double)trm_shape_count(&g->values[value].shape) *
           (double)trm_dtype_bytes(g->values[value].dtype);
}

/* Returns whether every axis cuts samples, and evenly. */
static bool is_by_samples(const trmi_space *s, const trmi_op *op, const trmi_strategy *strategy) {
    int32_t ranks = trmi_mesh_ranks(&s->mesh);
    bool all = ranks > 1 && trmi_input_of(s->graph, op, 0)->shape.dim[0] % ranks == 0;
    for (const char *letter = strategy->letters; all && *letter != '\0'; letter++) {
        all = *letter == 'n';
    }
    return all;
}

/* Returns the operator that computes the gradient of a convolution's weights; NULL: none. */
static const trmi_op *gradient_of(const trmi_space *s, const trmi_space_node *node) {
    for (int32_t i = 0; i < node->backward_count; i++) {
        const trmi_op *op = &s->graph->ops[node->backward[i]];
        if (op->kind == TRMI_OP_CONV2D_GRAD_WEIGHTS) {
            return op;
        }
    }
    return NULL;
}

/* Contract in search.h. The rule by which the compiler makes a gradient cooperative is asked
 * here, too, so that the price is of the program that will run. */
trmi_cooperative_cost trmi_space_cooperative(const trmi_space *s, const trmi_space_node *node,
                                             const trmi_strategy *strategy,
                                             const trmi_node_seconds *roof,
                                             const trmi_node_seconds *seconds) {
    const trmi_op *op = &s->graph->ops[node->op], *gradient = gradient_of(s, node);
    trmi_cooperative_cost out = {.made = false};
    if (!s->costs.cooperative || op->kind != TRMI_OP_CONV2D || op->attrs.conv.groups > 1 ||
        gradient == NULL || !is_by_samples(s, op, strategy)) {
        return out;
    }
    /* The lowering decides by the bytes of x and dy of one rank and of dW, and so does the
     * space. */
    double ranks = trmi_mesh_ranks(&s->mesh), image = bytes_of(s->graph, op->inputs[0]) / ranks;
    double factors = image + bytes_of(s->graph, op->outputs[0]) / ranks;
    double weights = bytes_of(s->graph, trmi_parameter_of(s->graph, op->inputs[1])->outputs[0]);
    if (!trmi_cooperative_is_worth_it((int64_t)weights, (int64_t)factors)) {
        return out;
    }
    /* roofline of both ways, scaled by what the measured backward takes beyond its roofline */
    double flop = s->prices.flop > 0 ? s->prices.flop : 1 / 1e11,
           byte = s->prices.byte > 0 ? s->prices.byte : 1 / 2e10;
    double work = trmi_op_cost(s->graph, gradient).flops * strategy->fraction * flop,
           beyond = seconds->backward / fmax(1e-12, roof->backward);
    double own = fmax(work, (factors + weights) * byte),
           cooperative = fmax(work, (ranks * factors + weights / ranks) * byte);
    out.made = true;
    out.seconds = fmax((cooperative - own) * beyond, -seconds->backward);
    out.bytes = ranks * factors - image - (1 - 1 / ranks) * weights;
    return out;
}

/* Contract in search.h. Holds for the whole plan or not at all: ranks meet once a step, after all
 * other operators. */
bool trmi_choice_cooperative(const trmi_space *s, const trmi_choice *choice) {
    bool cooperative = s->costs.cooperative;
    for (int32_t n = 0; cooperative && n < s->nodes_count; n++) {
        const trmi_space_class *c = trmi_space_class_of(s, n);
        char letters[TRMI_PARTITION_LETTERS];
        trmi_partition_loops(s->graph, trmi_space_op(s, n), letters, NULL);
        cooperative = choice->stores[n] == TRMI_STORE_AS_READ &&
                      (strchr(letters, 'n') == NULL ||
                       is_by_samples(s, trmi_space_op(s, n), &c->strategies[choice->strategy[n]]));
    }
    return cooperative;
}
