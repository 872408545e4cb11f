/* SPDX-License-Identifier: Apache-2.0 */
/* Classes of operators (plan/search/space_class.h): the key of a class, the strategies that a space
 * has for it, and what each of them costs.
 *
 *   operator -> key --known--> class
 *                   --new----> strategies (without unusual ones on many axes; strict: those that keep blocks) -> costs
 *
 * Invariant: operators with equal keys have equal costs, so that costs are computed once for a
 * class. */
#include "plan/search/space_class.h"

#include "plan/partition/operator_loops.h"

#include "base/element.h"
#include "base/error.h"

#include <math.h>
#include <string.h>

/* Writes which costs of a parameter `op` has: those of its cast, those of its store. */
static void write_owners(const trmi_space_building *b, const trmi_op *op, int32_t value,
                         trmi_text *key) {
    const trmi_op *parameter = trmi_parameter_of(b->s->graph, value);
    if (parameter != NULL && !trmi_space_owns(b->s, op, parameter->outputs[0])) {
        trmi_text_printf(key, "/t%d%d", trmi_space_owns(b->s, op, value),
                         (int)b->s->graph->ops[b->s->owners[parameter->outputs[0]]].kind);
    }
}

/* Writes everything that the costs of a node depend on. Nodes with equal keys have equal costs. */
static void key_of(const trmi_space_building *b, const trmi_space_node *node, trmi_text *key) {
    const trm_graph *g = b->s->graph;
    const trmi_op *op = &g->ops[node->op];
    char shape[96];
    trmi_text_printf(key, "%d:", (int)op->kind);
    /* Compare kind and attributes, then inputs, outputs and gradient operators. */
    const uint8_t *attrs = (const uint8_t *)&op->attrs;
    char hex[2 * offsetof(trmi_attrs, attached)];
    for (size_t i = 0; i < sizeof hex; i++) {
        hex[i] = "0123456789abcdef"[attrs[i / 2] >> (i % 2 == 0 ? 4 : 0) & 15];
    }
    trmi_text_append(key, hex, trmi_is_leaf(op) ? 0 : sizeof hex);
    for (int32_t i = 0; i < op->inputs_count; i++) {
        const trmi_value *v = trmi_input_of(g, op, i);
        if (v != NULL) {
            const trmi_op *from = trmi_maker_of(g, op->inputs[i]);
            trmi_text_printf(key, " %s/%d/%d/%d", trm_shape_format(&v->shape, shape, sizeof shape),
                             (int)v->dtype, trmi_is_leaf(from) ? (int)from->kind : 0,
                             b->s->moving[op->inputs[i]]);
            write_owners(b, op, op->inputs[i], key);
        } else {
            trmi_text_printf(key, " -");
        }
    }
    for (int32_t i = 0; i < op->outputs_count; i++) {
        const trmi_value *v = trmi_output_of(g, op, i);
        trmi_text_printf(key, " >%s/%d", trm_shape_format(&v->shape, shape, sizeof shape),
                         (int)v->dtype);
    }
    for (int32_t i = 0; i < node->backward_count; i++) {
        const trmi_op *back = &g->ops[node->backward[i]];
        trmi_text_printf(key, " <%d:%d", (int)back->kind, (int)back->inputs_count);
    }
    /* Write how backward uses it, and its pin. */
    trmi_text_printf(key, " r%d", node->read * 4 + node->repeats * 2 + node->dropped);
    if (node->layer > 0) {
        trmi_text_printf(key, " s%d", node->layer);
    }
    if (node->pinned >= 0) {
        trmi_text_printf(key, " !%d", node->pinned);
    }
}

/* Returns the roofline seconds of `fraction` of an operator: the larger of arithmetic and memory
 * traffic. Defaults: 100 GFLOP/s, 20 GB/s. */
static double roofline_seconds(const trmi_space *s, const trm_graph *g, const trmi_op *op,
                               double fraction) {
    trmi_cost cost = trmi_op_cost(g, op);
    double flop = s->prices.flop > 0 ? s->prices.flop : 1 / 1e11,
           byte = s->prices.byte > 0 ? s->prices.byte : 1 / 2e10;
    double work = cost.flops * flop, traffic = cost.bytes * byte;
    return (work > traffic ? work : traffic) * fraction;
}

/* Returns the roofline seconds of the gradient operators of a node. They use the letters of the
 * forward strategy; where an operator has no such strategy, its whole cost times the forward
 * fraction. A weight gradient that stays in factors is excluded: the optimiser computes it. */
static double backward_of(const trmi_space *s, const trmi_space_node *node,
                          const trmi_strategy *forward) {
    double sum = 0;
    const trmi_op *made = &s->graph->ops[node->op];
    bool in_factors = trmi_partition_in_factors(s->graph, made, forward, 1);
    for (int32_t i = 0; i < node->backward_count; i++) {
        const trmi_op *op = &s->graph->ops[node->backward[i]];
        trmi_strategy own;
        if (in_factors && trm_shape_equal(&trmi_output_of(s->graph, op, 0)->shape,
                                          &trmi_input_of(s->graph, made, 1)->shape)) {
            continue; /* computed by the optimiser, see factors_of() */
        }
        bool fits = trmi_partition_strategy(s->graph, op, &s->mesh, forward->letters, &own);
        sum += roofline_seconds(s, s->graph, op, fits ? own.fraction : forward->fraction);
    }
    return sum;
}

/* Returns the seconds of updating weights whose gradient stays in factors; 0: none. It is the
 * larger of the memory traffic of parameter and slots and the arithmetic of the product of the
 * factors. */
static double factors_of(const trmi_space *s, const trmi_op *op, const trmi_strategy *strategy) {
    if (!trmi_partition_in_factors(s->graph, op, strategy, 1)) {
        return 0;
    }
    const trmi_value *weights =
        &s->graph->values[trmi_parameter_of(s->graph, op->inputs[1])->outputs[0]];
    double count = (double)trmi_spread_most(&s->mesh, &weights->shape, &strategy->inputs[1]),
           slots = s->costs.slots;
    double flop = s->costs.update_flop > 0 ? s->costs.update_flop
                  : s->prices.flop > 0     ? s->prices.flop
                                           : 1 / 1e11;
    /* passes over memory of a dense update, which also reads the gradient */
    double dense = 3 + 2 * slots;
    return fmax(s->update.byte * (2 + 2 * slots) / dense * sizeof(float),
                2 * (double)strategy->local_inputs[0].dim[0] * flop) *
           count;
}

/* Returns all roofline seconds of a node in a strategy. */
static trmi_node_seconds roofline_of(const trmi_space *s, const trmi_space_node *node,
                                     const trmi_strategy *strategy) {
    const trmi_op *op = &s->graph->ops[node->op];
    return (trmi_node_seconds){.forward = roofline_seconds(s, s->graph, op, strategy->fraction),
                               .backward = backward_of(s, node, strategy),
                               .factors = factors_of(s, op, strategy)};
}

void trmi_space_roofline(const trmi_space *s, int32_t node, int32_t i, trmi_node_seconds *out) {
    *out = roofline_of(s, &s->nodes[node], &trmi_space_class_of(s, node)->strategies[i]);
}

trmi_price_table *trmi_space_find_prices(trmi_space_building *b, const trm_shape *shape,
                                         trm_dtype dtype) {
    trmi_space *s = b->s;
    for (int64_t i = 0; i < s->prices_count; i++) {
        if (s->prices_of[i].dtype == dtype && trm_shape_equal(&s->prices_of[i].shape, shape)) {
            return &s->prices_of[i];
        }
    }
    if (!trmi_grow((void **)&s->prices_of, &s->prices_capacity, s->prices_count + 1,
                   sizeof *s->prices_of)) {
        (void)TRMI_NO_MEMORY(b->err, "for the space of plans");
        return NULL;
    }
    trmi_price_table *t = &s->prices_of[s->prices_count];
    *t = (trmi_price_table){.shape = *shape, .dtype = dtype, .no_columns = s->bounded};
    if (trmi_price_table_fill(t, &s->mesh, &s->prices, &s->arena, b->err) != TRM_OK) {
        return NULL;
    }
    s->prices_count++;
    return t;
}

/* Returns the seconds that a rank waits for halo exchanges, statistics and rings of a strategy. */
static double exchange_seconds(const trmi_space *s, const trmi_strategy *strategy,
                               const trmi_node_seconds *seconds, bool backward) {
    double sum = 0;
    for (int32_t i = 0; i < strategy->comms_count; i++) {
        sum += trmi_comm_waiting(&s->prices, &s->mesh, &strategy->comms[i], s->costs.ahead,
                                 seconds->forward);
    }
    for (int32_t i = 0; backward && i < strategy->backward_count; i++) {
        sum += trmi_comm_waiting(&s->prices, &s->mesh, &strategy->backward[i], s->costs.ahead,
                                 seconds->backward);
    }
    return sum;
}

/* Recomputing a norm takes so much of its forward time: its statistics are known, so that the input
 * is read once instead of twice. */
static const double apply_share = 2.0 / 3;

/* Computes all costs of strategy i of a class, for its first node. */
static trm_status price_strategy(trmi_space_building *b, const trmi_space_node *node,
                                 trmi_space_class *c, int32_t i) {
    trmi_space *s = b->s;
    const trmi_op *op = &s->graph->ops[node->op];
    const trmi_strategy *strategy = &c->strategies[i];
    const trmi_node_seconds roof = roofline_of(s, node, strategy);
    trmi_node_seconds seconds = roof;
    TRMI_TRY(trmi_space_go_on(s, b->err));
    /* measured seconds, where the caller has some */
    if (s->costs.seconds != NULL) {
        s->costs.seconds(s->costs.context, s, node, strategy, &seconds);
    }
    c->cooperative[i] = trmi_space_cooperative(s, node, strategy, &roof, &seconds);
    c->forward[i] = seconds.forward;
    c->backward[i] = seconds.backward;
    c->factors[i] = seconds.factors;
    c->exchange[i] = exchange_seconds(s, strategy, &seconds, node->backward_count > 0);
    /* List kept outputs; a partial sum is reduced before it is kept, and the reader's form of it
     * counts on the edge. */
    for (int32_t k = 0; k < op->outputs_count; k++) {
        bool kept = (node->read >> k & 1) && !trmi_spread_has_partial(&strategy->outputs[k]);
        c->kept[i] += kept ? trmi_space_bytes(s, op->outputs[k], &strategy->outputs[k]) : 0;
    }
    /* An operator may be recomputed, or must be by the rule of the back-end. The joined result of a
     * ring is kept. */
    bool ring = trmi_letters_mask(strategy->letters, "r") != 0;
    if ((node->repeats || node->dropped) && !ring) {
        bool kept = !trmi_spread_has_partial(&strategy->outputs[0]);
        c->saved[i] = kept ? trmi_space_bytes(s, op->outputs[0], &strategy->outputs[0]) : 0;
        c->again[i] = c->forward[i] * (op->kind == TRMI_OP_NORM_ACT ? apply_share : 1);
        c->kept[i] -= node->dropped ? c->saved[i] : 0;
        /* the edge between a sum and its layer has the time to make both again (trmi_space_sum) */
        c->backward[i] += node->dropped && node->layer == 0 ? c->again[i] : 0;
    }
    /* List the parameters that the operator reads. */
    for (int32_t k = 0; k < op->inputs_count; k++) {
        const trmi_op *parameter = trmi_parameter_of(s->graph, op->inputs[k]);
        if (parameter != NULL) {
            const trmi_value *v = trmi_output_of(s->graph, parameter, 0);
            if (!s->costs.fuse && trmi_space_find_prices(b, &v->shape, v->dtype) == NULL) {
                return TRM_NOMEM;
            }
            trmi_space_add_parameter(s, op, k, c, i);
        }
    }
    return TRM_OK;
}

/* Returns whether a strategy is kept on meshes of four axes and more: columns of images are not
 * cut, and samples are cut by the outer axes first, where hosts lie. A convolution on four axes
 * then has 341 of 1,296 strategies; the time of an elimination grows with the cube. */
static bool is_usual(const char *letters) {
    size_t samples = strspn(letters, "n");
    return strpbrk(letters + samples, "nw") == NULL;
}

/* Removes the unusual strategies of a class. */
static void leave_out(trmi_space_class *c) {
    int32_t kept = 0;
    for (int32_t i = 0; i < c->count; i++) {
        if (is_usual(c->strategies[i].letters)) {
            c->strategies[kept++] = c->strategies[i];
        }
    }
    c->count = kept;
}

/* Strict determinism: returns whether an operator and its gradients keep the order of one
 * device's sums under these letters. Products, whose gradients have other letters, are cut by
 * samples only. */
static bool is_strict(const trmi_space *s, const trmi_space_node *node, const char *letters) {
    const trm_graph *g = s->graph;
    const trmi_op *op = &g->ops[node->op];
    bool product = op->kind == TRMI_OP_LINEAR || op->kind == TRMI_OP_MATMUL;
    bool fits = trmi_partition_is_strict(g, &s->marks, s->costs.blocks, op, &s->mesh, letters) &&
                (!product || node->backward_count == 0 || strspn(letters, ".n") == strlen(letters));
    for (int32_t i = 0; i < node->backward_count && fits; i++) {
        const trmi_op *back = &g->ops[node->backward[i]];
        trmi_strategy own;
        fits = product || !trmi_partition_strategy(g, back, &s->mesh, letters, &own) ||
               trmi_partition_is_strict(g, &s->marks, s->costs.blocks, back, &s->mesh, letters);
    }
    return fits;
}

/* Removes the strategies of a class that are not strict; the replicated one remains. */
static void leave_strict(const trmi_space *s, const trmi_space_node *node, trmi_space_class *c) {
    int32_t kept = 0;
    for (int32_t i = 0; i < c->count; i++) {
        if (is_strict(s, node, c->strategies[i].letters)) {
            c->strategies[kept++] = c->strategies[i];
        }
    }
    c->count = kept;
}

/* Lists the strategies of a class and computes their costs.   errors  NOMEM and errors of
 * trmi_partition_strategies() */
static trm_status fill_class(trmi_space_building *b, const trmi_space_node *node,
                             trmi_space_class *c) {
    trmi_space *s = b->s;
    const trmi_op *op = &s->graph->ops[node->op];
    TRMI_TRY(trmi_partition_strategies(s->graph, op, &s->mesh, &s->arena, &c->strategies, &c->count,
                                       b->err));
    /* a pin leaves one strategy; many axes, or strict blocks, leave fewer */
    if (node->pinned >= 0) {
        c->strategies = &c->strategies[node->pinned];
        c->count = 1;
    } else if (s->bounded) {
        leave_out(c);
    }
    if (node->pinned < 0 && s->costs.blocks > 0) {
        leave_strict(s, node, c);
    }
    /* costs of all strategies */
    size_t n = (size_t)c->count;
    c->forward = trmi_arena_alloc(&s->arena, n * sizeof *c->forward);
    c->backward = trmi_arena_alloc(&s->arena, n * sizeof *c->backward);
    c->factors = trmi_arena_alloc(&s->arena, n * sizeof *c->factors);
    c->exchange = trmi_arena_alloc(&s->arena, n * sizeof *c->exchange);
    c->kept = trmi_arena_alloc(&s->arena, n * sizeof *c->kept);
    c->again = trmi_arena_alloc(&s->arena, n * sizeof *c->again);
    c->saved = trmi_arena_alloc(&s->arena, n * sizeof *c->saved);
    c->stores = trmi_arena_alloc(&s->arena, TRMI_STORES * n * sizeof *c->stores);
    c->slices = trmi_arena_alloc(&s->arena, n * sizeof *c->slices);
    c->cooperative = trmi_arena_alloc(&s->arena, n * sizeof *c->cooperative);
    c->repeats = node->repeats;
    if (c->forward == NULL || c->backward == NULL || c->factors == NULL || c->exchange == NULL ||
        c->kept == NULL || c->again == NULL || c->saved == NULL || c->stores == NULL ||
        c->slices == NULL || c->cooperative == NULL) {
        return TRMI_NO_MEMORY(b->err, "for the space of plans");
    }
    for (int32_t i = 0; i < c->count; i++) {
        TRMI_TRY(price_strategy(b, node, c, i));
    }
    return TRM_OK;
}

trm_status trmi_space_find_class(trmi_space_building *b, trmi_space_node *node) {
    trmi_space *s = b->s;
    trmi_text key = {0};
    key_of(b, node, &key);
    /* an operator of the same key has been priced */
    for (int64_t i = 0; !key.failed && i < s->classes_count; i++) {
        if (strcmp(s->classes[i].key, key.data) == 0) {
            node->group = (int32_t)i;
            s->classes[i].members++;
            trmi_text_free(&key);
            return TRM_OK;
        }
    }
    /* no such class yet */
    bool ok = !key.failed && trmi_grow((void **)&s->classes, &s->classes_capacity,
                                       s->classes_count + 1, sizeof *s->classes);
    trmi_space_class made = {.op = node->op, .members = 1};
    made.key = ok ? trmi_arena_strdup(&s->arena, key.data) : NULL;
    trmi_text_free(&key);
    if (made.key == NULL) {
        return TRMI_NO_MEMORY(b->err, "for the space of plans");
    }
    TRMI_TRY(fill_class(b, node, &made));
    node->group = (int32_t)s->classes_count;
    s->classes[s->classes_count++] = made;
    return TRM_OK;
}
