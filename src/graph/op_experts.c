/* SPDX-License-Identifier: Apache-2.0 */
/* Mixture of experts (Shazeer et al. 2017; Fedus et al. 2021): the largest numbers of each row, and
 * linear layers in which each row names the expert whose weights it is multiplied by.
 *
 *   x [..., C] --router--> shares --TOP_K--> weights, experts [..., K]
 *              --EXPERT_LINEAR twice or three times--> [..., K, C] --weighted sum--> [..., C]
 *
 * Router, dispatch, combination and load balance are built from these two and from ordinary
 * operators. Rows are not moved in the graph: which rows go to which expert is the kernels'
 * business, and that of a plan that cuts experts. */
#include "graph/arguments.h"
#include "graph/graph_ir.h"

#include "base/error.h"

/* Infers x [..., C] -> values [..., K], columns int32 [..., K]. */
static trm_status infer_top_k(trm_graph *graph, trmi_op *op, trm_error *err) {
    const trmi_value *x = trmi_input_of(graph, op, 0);
    int64_t k = op->attrs.top_k.k;
    char text[128] = "nothing";
    if (x == NULL || x->shape.rank < 1 || k < 1 || k > x->shape.dim[x->shape.rank - 1]) {
        return TRMI_FAIL(err, TRM_INVALID,
                         "%s: the largest %lld of each row of %s; 1 to the width of a row expected",
                         op->name, (long long)k,
                         x == NULL ? text
                                   : trmi_value_text(graph, op->inputs[0], text, sizeof text));
    }
    trm_shape shape = x->shape;
    shape.dim[shape.rank - 1] = k;
    trmi_set_output(graph, op, 0, x->dtype, shape);
    trmi_set_output(graph, op, 1, TRM_INT32, shape);
    return TRM_OK;
}

/* The gradient has all columns again; those that were not chosen are 0. */
static trm_status infer_top_k_grad(trm_graph *graph, trmi_op *op, trm_error *err) {
    (void)err;
    const trmi_value *dy = trmi_input_of(graph, op, 0);
    trm_shape shape = dy->shape;
    shape.dim[shape.rank - 1] = op->attrs.top_k.columns;
    trmi_set_output(graph, op, 0, dy->dtype, shape);
    return TRM_OK;
}

/* Returns whether `rows` has the leading dimensions of x. */
static bool same_rows(const trmi_value *x, const trmi_value *rows) {
    bool same = rows->shape.rank == x->shape.rank - 1;
    for (int32_t i = 0; same && i < rows->shape.rank; i++) {
        same = rows->shape.dim[i] == x->shape.dim[i];
    }
    return same;
}

/* Infers x [..., I], w [E, O, I], experts int32 [...] -> [..., O]; transposed: x [..., O] -> [...,
 * I]. */
static trm_status infer_linear(trm_graph *graph, trmi_op *op, trm_error *err) {
    const trmi_value *x = trmi_input_of(graph, op, 0), *w = trmi_input_of(graph, op, 1),
                     *experts = trmi_input_of(graph, op, 2);
    bool transposed = op->attrs.expert.transposed;
    char texts[3][128] = {"nothing", "nothing", "nothing"};
    if (x == NULL || w == NULL || experts == NULL || x->shape.rank < 1 || w->shape.rank != 3 ||
        x->shape.dim[x->shape.rank - 1] != w->shape.dim[transposed ? 1 : 2] ||
        experts->dtype != TRM_INT32 || !same_rows(x, experts)) {
        for (int i = 0; i < 3; i++) {
            if (op->inputs[i] != 0) {
                trmi_value_text(graph, op->inputs[i], texts[i], sizeof texts[i]);
            }
        }
        return TRMI_FAIL(
            err, TRM_INVALID,
            "%s: [..., I], weights [E, O, I] and int32 experts [...] expected, found %s, "
            "%s and %s",
            op->name, texts[0], texts[1], texts[2]);
    }
    trm_shape shape = x->shape;
    shape.dim[shape.rank - 1] = w->shape.dim[transposed ? 2 : 1];
    trmi_set_output(graph, op, 0, x->dtype, shape);
    return TRM_OK;
}

/* Infers dy [..., O], x [..., I], experts [...] -> [E, O, I], float32. */
static trm_status infer_weights(trm_graph *graph, trmi_op *op, trm_error *err) {
    (void)err;
    const trm_shape *dy = &trmi_input_of(graph, op, 0)->shape,
                    *x = &trmi_input_of(graph, op, 1)->shape;
    trmi_set_output(
        graph, op, 0, TRM_FLOAT32,
        trm_shape_of(op->attrs.expert.experts, dy->dim[dy->rank - 1], x->dim[x->rank - 1]));
    return TRM_OK;
}

/* dx = dy at the chosen columns (output 1 has their numbers), 0 elsewhere. */
static void grad_top_k(trm_graph *graph, const trmi_op *op, const trm_node *dy, trm_node *dx) {
    const trm_shape *x = &trmi_input_of(graph, op, 0)->shape;
    trmi_attrs attrs = {.top_k = {.columns = x->dim[x->rank - 1]}};
    if (dy[0].id != 0) {
        dx[0] = trmi_graph_add1(graph, TRMI_OP_TOP_K_GRAD, NULL,
                                (trm_node[]){dy[0], {op->outputs[1]}}, 2, &attrs);
    }
}

/* Builds the gradients of a layer of experts: rows by the transposed weights of their expert,
 * weights by sums over the rows of each expert. */
static void grad_linear(trm_graph *graph, const trmi_op *op, const trm_node *dy, trm_node *dx) {
    trmi_attrs data = op->attrs,
               weights = {.expert = {.experts = trmi_input_of(graph, op, 1)->shape.dim[0]}};
    trm_node x = {op->inputs[0]}, w = {op->inputs[1]}, experts = {op->inputs[2]};
    data.expert.transposed = !data.expert.transposed;
    dx[0] = trmi_graph_add1(graph, TRMI_OP_EXPERT_LINEAR, NULL, (trm_node[]){dy[0], w, experts}, 3,
                            &data);
    trm_node rows[] = {dy[0], x, experts};
    if (op->attrs.expert.transposed) {
        rows[0] = x, rows[1] = dy[0];
    }
    dx[1] = trmi_graph_add1(graph, TRMI_OP_EXPERT_GRAD_WEIGHTS, NULL, rows, 3, &weights);
}

/* Counts two operations for each row and each of its expert's weights; all tensors once. */
static trmi_cost cost_linear(const trm_graph *graph, const trmi_op *op) {
    bool weights = op->kind == TRMI_OP_EXPERT_GRAD_WEIGHTS;
    const trm_shape *w =
        weights ? &trmi_output_of(graph, op, 0)->shape : &trmi_input_of(graph, op, 1)->shape;
    trmi_cost cost = {.flops = 2.0 * (double)trm_shape_count(&trmi_input_of(graph, op, 2)->shape) *
                               (double)w->dim[1] * (double)w->dim[2]};
    for (int i = 0; i < 4; i++) {
        const trmi_value *v = i < 3 ? trmi_input_of(graph, op, i) : trmi_output_of(graph, op, 0);
        cost.bytes += (double)trm_shape_count(&v->shape) * (double)trm_dtype_bytes(v->dtype);
    }
    return cost;
}

const trmi_op_def trmi_op_top_k = {"top_k", infer_top_k, grad_top_k, NULL};
const trmi_op_def trmi_op_top_k_grad = {"top_k_grad", infer_top_k_grad, NULL, NULL};
const trmi_op_def trmi_op_expert_linear = {"expert_linear", infer_linear, grad_linear, cost_linear};
const trmi_op_def trmi_op_expert_grad_weights = {"expert_grad_weights", infer_weights, NULL,
                                                 cost_linear};

trm_node trm_top_values(trm_graph *graph, trm_node x, int64_t k, trm_node *columns) {
    TRMI_NEED_IN(graph, TRM_NO_NODE, columns);
    trmi_attrs attrs = {.top_k = {.k = k}};
    int32_t index = trmi_graph_add(graph, TRMI_OP_TOP_K, NULL, &x, 1, 2, &attrs);
    *columns = trmi_graph_node(graph, index, 1);
    return trmi_graph_node(graph, index, 0);
}

trm_node trm_expert_linear(trm_graph *graph, trm_node x, trm_node weights, trm_node experts) {
    return trmi_graph_add1(graph, TRMI_OP_EXPERT_LINEAR, NULL, (trm_node[]){x, weights, experts}, 3,
                           NULL);
}

/* E sum over experts of (share of the choices) (mean probability), both over all rows. */
static trm_node add_balance(trm_graph *graph, trm_node shares, trm_node chosen, int64_t experts) {
    int32_t last = trm_node_shape(graph, shares).rank - 1, leading[TRM_MAX_RANK];
    for (int32_t i = 0; i < last; i++) {
        leading[i] = i;
    }
    trm_node hot = trm_one_hot(graph, chosen, experts, 1, 0); /* [..., k, E] */
    trm_node load = trm_reduce_sum(graph, hot, (const int32_t[]){-2}, 1, false);
    load = last > 0 ? trm_reduce_mean(graph, load, leading, last, false) : load;
    shares = last > 0 ? trm_reduce_mean(graph, shares, leading, last, false) : shares;
    return trm_scale(graph, trm_reduce_sum(graph, trm_mul(graph, load, shares), NULL, 0, false),
                     (double)experts);
}

/* Contract in trireme/graph.h. Built of small operators: the router's k best experts with their
 * weights, each row repeated k times, two or three linear layers of the chosen experts, and the
 * weighted sum. */
trm_node trm_mixture_of_experts(trm_graph *graph, trm_node x, const trm_experts *experts,
                                trm_node *load_balance) {
    TRMI_NEED_IN(graph, TRM_NO_NODE, experts);
    const trm_experts *e = experts;
    trm_shape shape = trm_node_shape(graph, x), router = trm_node_shape(graph, e->router),
              rows = shape;
    int64_t k = e->top_k == 0 ? 2 : e->top_k;
    if (shape.rank < 1 || shape.rank >= TRM_MAX_RANK || graph->first_error.status != TRM_OK) {
        return trm_linear(graph, x, e->router, TRM_NO_NODE); /* names what is wrong */
    }
    /* The router computes the shares of all experts, the k best of them, and their weights. */
    trm_node shares = trm_softmax(graph, trm_linear(graph, x, e->router, TRM_NO_NODE)), chosen;
    trm_node weights = trm_top_values(graph, shares, k, &chosen);
    if (load_balance != NULL) {
        *load_balance = add_balance(graph, shares, chosen, router.dim[0]);
    }
    if (e->normalize != TRM_OFF) {
        weights =
            trm_div(graph, weights, trm_reduce_sum(graph, weights, (const int32_t[]){-1}, 1, true));
    }
    /* Each row comes k times: dispatch is the kernels' business. */
    rows.dim[rows.rank] = rows.dim[rows.rank - 1];
    rows.dim[rows.rank - 1] = 1;
    rows.rank++;
    trm_shape all = rows;
    all.dim[all.rank - 2] = k;
    trmi_attrs repeat = {.shape = {.shape = all}};
    trm_node row = trm_reshape(graph, x, rows);
    trm_node y = trmi_graph_add1(graph, TRMI_OP_BROADCAST, NULL, &row, 1, &repeat);
    /* The layers of the chosen experts; with a gate they are SwiGLU layers. */
    trm_node up = trm_expert_linear(graph, y, e->up, chosen);
    y = e->gate.id != 0 ? trm_swiglu(graph, trm_expert_linear(graph, y, e->gate, chosen), up)
                        : trm_gelu(graph, up, TRM_GELU_TANH);
    y = trm_expert_linear(graph, y, e->down, chosen);
    /* The weighted sum over the k experts of a row. */
    trm_shape column = trm_node_shape(graph, weights);
    column.dim[column.rank++] = 1;
    y = trm_mul(graph, y,
                trm_cast(graph, trm_reshape(graph, weights, column), trm_node_dtype(graph, y)));
    return trm_reduce_sum(graph, y, (const int32_t[]){-2}, 1, false);
}
