/* SPDX-License-Identifier: Apache-2.0 */
/* Linear layers y = x w^T + b and matrix products, plain or batched. Gradients are matrix products,
 * too. The plan can add a fused ReLU, a mask or a range of columns
 * (plan/passes/pass_fuse_product.c).
 *
 *   LINEAR   x [..., I], w [O, I] or, inputs_first, [I, O], bias [O] -> [..., O]
 *   MATMUL   rows     a [..., K], b [K, N] -> [..., N]; over all rows: [..., M], [..., N] -> [M, N]
 *            batches  a [..., M, K], b [..., K, N] -> [..., M, N], each side transposed or not
 *
 * Leading dimensions of MATMUL are equal here: the builder repeats what NumPy would broadcast. */
#include "graph/graph_ir.h"
#include "graph/rows.h"

#include "base/error.h"

/* Infers x [..., I], w [O, I] or, with inputs_first, [I, O], bias [O] -> [..., O]. Of w [I, A, B]
 * the outputs are two dimensions. */
static trm_status infer_linear(trm_graph *graph, trmi_op *op, trm_error *err) {
    const trmi_value *x = trmi_input_of(graph, op, 0), *w = trmi_input_of(graph, op, 1);
    const trmi_value *bias = trmi_input_of(graph, op, 2);
    if (x == NULL || w == NULL) {
        return TRMI_FAIL(err, TRM_INVALID, "%s: needs an input and weights", op->name);
    }
    char left[128], right[128];
    bool inputs_first = op->attrs.matmul.inputs_first;
    int32_t columns = w->shape.rank - 1; /* dimensions of the outputs */
    if (x->shape.rank < 1 || columns < 1 || columns > (inputs_first ? 2 : 1) ||
        x->shape.rank - 1 + columns > TRM_MAX_RANK || x->dtype != w->dtype ||
        x->shape.dim[x->shape.rank - 1] != w->shape.dim[inputs_first ? 0 : 1]) {
        return TRMI_FAIL(err, TRM_INVALID,
                         "%s: [..., I] and %s of one dtype expected, found %s and %s", op->name,
                         inputs_first ? "[I, O]" : "[O, I]",
                         trmi_value_text(graph, op->inputs[0], left, sizeof left),
                         trmi_value_text(graph, op->inputs[1], right, sizeof right));
    }
    trm_shape outputs = {.rank = columns}, shape = x->shape;
    shape.rank += columns - 1;
    for (int32_t i = 0; i < columns; i++) {
        outputs.dim[i] = w->shape.dim[inputs_first ? 1 + i : 0];
        shape.dim[x->shape.rank - 1 + i] = outputs.dim[i];
    }
    if (bias != NULL && !trm_shape_equal(&bias->shape, &outputs)) {
        char text[96];
        return TRMI_FAIL(err, TRM_INVALID, "%s: a bias of %s expected, found %s", op->name,
                         trm_shape_format(&outputs, text, sizeof text),
                         trmi_value_text(graph, op->inputs[2], left, sizeof left));
    }
    trmi_set_output(graph, op, 0, x->dtype, shape);
    return TRM_OK;
}

/* Computes rows and columns of a matrix after the optional transpose. */
static void matrix_extents(const trm_shape *s, bool transposed, int64_t *rows, int64_t *columns) {
    *rows = s->dim[s->rank - (transposed ? 1 : 2)];
    *columns = s->dim[s->rank - (transposed ? 2 : 1)];
}

/* Checks what the plan adds: a range of columns of b, and y of the ReLU whose gradient is applied
 * to the product. */
static trm_status check_fused(trm_graph *graph, trmi_op *op, int64_t columns,
                              const trm_shape *shape, trm_error *err) {
    const trmi_value *y = trmi_input_of(graph, op, 2);
    int64_t begin = op->attrs.matmul.begin, count = op->attrs.matmul.columns;
    if (begin < 0 || count < 0 || begin + count > columns) {
        return TRMI_FAIL(err, TRM_INVALID, "%s: columns %lld to %lld, at most %lld there", op->name,
                         (long long)begin, (long long)(begin + count), (long long)columns);
    }
    if (y != NULL && !trm_shape_equal(&y->shape, shape)) {
        char text[128];
        return TRMI_FAIL(err, TRM_INVALID, "%s: a mask like the product expected, found %s",
                         op->name, trmi_value_text(graph, op->inputs[2], text, sizeof text));
    }
    return TRM_OK;
}

/* Computes the shape of a product of rows: a [..., K], b [K, N] -> [..., N], or the sum over all
 * rows, a [..., M], b [..., N] -> [M, N]. The columns of one operand may be two dimensions. False:
 * the operands do not fit. */
static bool infer_rows(const trmi_attrs *attrs, const trm_shape *a, const trm_shape *b,
                       trm_shape *shape) {
    bool over = attrs->matmul.transpose_a;
    if (a->rank < 1 || b->rank < (over ? 1 : 2) || a->rank < (over ? 1 : b->rank - 1)) {
        return false;
    }
    trmi_matmul_extents r = trmi_rows_of(attrs, a, b);
    bool fits = over || attrs->matmul.transpose_b || b->rank == 2;
    *shape = (trm_shape){.rank = r.leading};
    for (int32_t i = 0; i < r.leading; i++) {
        shape->dim[i] = a->dim[i];
        fits = fits && (!over || a->dim[i] == b->dim[i]);
    }
    if (!over) {
        for (int32_t i = r.leading; i < a->rank; i++) {
            fits = fits && a->dim[i] == b->dim[i - r.leading + attrs->matmul.transpose_b];
        }
        shape->dim[shape->rank++] = r.n;
        return fits;
    }
    shape->rank = 0;
    const trm_shape *operands[] = {a, b};
    for (int o = 0; o < 2; o++) {
        for (int32_t i = r.leading; i < operands[o]->rank; i++) {
            fits = fits && shape->rank < TRM_MAX_RANK;
            shape->dim[fits ? shape->rank++ : 0] = operands[o]->dim[i];
        }
    }
    return fits;
}

/* Infers a [..., M, K], b [..., K, N] after transposes, with equal leading dimensions -> [..., M,
 * N]. */
static bool infer_batches(const trmi_attrs *attrs, const trm_shape *a, const trm_shape *b,
                          trm_shape *shape) {
    int64_t m, k, k2, n;
    bool fits = a->rank >= 2 && a->rank == b->rank;
    for (int32_t i = 0; fits && i < a->rank - 2; i++) {
        fits = a->dim[i] == b->dim[i];
    }
    if (!fits) {
        return false;
    }
    matrix_extents(a, attrs->matmul.transpose_a, &m, &k);
    matrix_extents(b, attrs->matmul.transpose_b, &k2, &n);
    *shape = *a;
    shape->dim[shape->rank - 2] = m;
    shape->dim[shape->rank - 1] = n;
    return k == k2;
}

/* The shape of a batch of products, or of one over rows; then what the plan has fused. */
static trm_status infer_matmul(trm_graph *graph, trmi_op *op, trm_error *err) {
    const trmi_value *a = trmi_input_of(graph, op, 0), *b = trmi_input_of(graph, op, 1);
    if (a == NULL || b == NULL) {
        return TRMI_FAIL(err, TRM_INVALID, "%s: needs two matrices", op->name);
    }
    trm_shape shape;
    bool fits = a->dtype == b->dtype && (op->attrs.matmul.rows ? infer_rows : infer_batches)(
                                            &op->attrs, &a->shape, &b->shape, &shape);
    if (!fits) {
        char left[128], right[128];
        return TRMI_FAIL(err, TRM_INVALID, "%s: cannot multiply %s%s by %s%s", op->name,
                         trmi_value_text(graph, op->inputs[0], left, sizeof left),
                         op->attrs.matmul.transpose_a ? "^T" : "",
                         trmi_value_text(graph, op->inputs[1], right, sizeof right),
                         op->attrs.matmul.transpose_b ? "^T" : "");
    }
    int64_t *columns = &shape.dim[shape.rank - 1], all = *columns;
    *columns = op->attrs.matmul.columns > 0 ? op->attrs.matmul.columns : all;
    trmi_set_output(graph, op, 0, a->dtype, shape);
    return check_fused(graph, op, all, &shape, err);
}

/* Returns x as a matrix: all leading dimensions become rows. */
static trm_node flatten_leading(trm_graph *graph, trm_node x) {
    trm_shape shape = trm_node_shape(graph, x);
    return shape.rank == 2 ? x : trm_reshape(graph, x, trm_shape_of(-1, shape.dim[shape.rank - 1]));
}

/* Builds the gradients of y = x w^T + b: dw = dy^T x, dx = dy w, db = sum dy; with w^T in the place
 * of w where it is [I, O]. dw comes first: an x that is computed again for it dies before there is
 * dx. */
static void grad_linear(trm_graph *graph, const trmi_op *op, const trm_node *dy, trm_node *dx) {
    trm_node x = {op->inputs[0]}, w = {op->inputs[1]};
    bool inputs_first = op->attrs.matmul.inputs_first;
    const trmi_attrs through = {.matmul = {.rows = true, .transpose_b = inputs_first}},
                     over = {.matmul = {.rows = true, .transpose_a = true}};
    dx[1] =
        trmi_graph_add1(graph, TRMI_OP_MATMUL, NULL,
                        (trm_node[]){inputs_first ? x : dy[0], inputs_first ? dy[0] : x}, 2, &over);
    dx[0] = trmi_graph_add1(graph, TRMI_OP_MATMUL, NULL, (trm_node[]){dy[0], w}, 2, &through);
    if (op->inputs_count > 2 && op->inputs[2] != 0) {
        static const int32_t leading[TRM_MAX_RANK] = {0, 1, 2, 3, 4, 5};
        trm_dtype dtype = trmi_input_of(graph, op, 2)->dtype;
        int32_t count = trm_node_shape(graph, x).rank - 1;
        trm_node sum = count > 0 ? trm_reduce_sum(graph, dy[0], leading, count, false) : dy[0];
        dx[2] = trm_cast(graph, sum, dtype);
    }
}

/* Builds the gradients of c = a' b' with a' = a or a^T: da' = dc b'^T, db' = a'^T dc. */
static void grad_matmul(trm_graph *graph, const trmi_op *op, const trm_node *dy, trm_node *dx) {
    trm_node a = {op->inputs[0]}, b = {op->inputs[1]};
    bool ta = op->attrs.matmul.transpose_a, tb = op->attrs.matmul.transpose_b;
    dx[0] = ta ? trm_matmul(graph, b, dy[0], tb, true) : trm_matmul(graph, dy[0], b, false, !tb);
    dx[1] = tb ? trm_matmul(graph, dy[0], a, true, ta) : trm_matmul(graph, a, dy[0], !ta, false);
}

/* Counts 2 x outputs x inner extent operations, and all tensors once. */
static trmi_cost cost_product(const trm_graph *graph, const trmi_op *op) {
    const trmi_value *a = trmi_input_of(graph, op, 0), *b = trmi_input_of(graph, op, 1);
    const trmi_value *y = trmi_output_of(graph, op, 0);
    int64_t rows, inner;
    bool transposed = op->kind == TRMI_OP_MATMUL && op->attrs.matmul.transpose_a;
    if (op->kind == TRMI_OP_LINEAR) {
        inner = a->shape.dim[a->shape.rank - 1];
    } else {
        matrix_extents(&a->shape, transposed, &rows, &inner);
        inner = op->attrs.matmul.rows ? trmi_rows_of(&op->attrs, &a->shape, &b->shape).k : inner;
    }
    trmi_cost cost = {.flops = 2.0 * (double)trm_shape_count(&y->shape) * (double)inner};
    const trmi_value *all[] = {a, b, y};
    for (int i = 0; i < 3; i++) {
        cost.bytes +=
            (double)trm_shape_count(&all[i]->shape) * (double)trm_dtype_bytes(all[i]->dtype);
    }
    return cost;
}

const trmi_op_def trmi_op_linear = {"linear", infer_linear, grad_linear, cost_product};
const trmi_op_def trmi_op_matmul = {"matmul", infer_matmul, grad_matmul, cost_product};

trm_node trm_linear(trm_graph *graph, trm_node x, trm_node weight, trm_node bias) {
    return trmi_graph_add1(graph, TRMI_OP_LINEAR, NULL, (trm_node[]){x, weight, bias},
                           bias.id == 0 ? 2 : 3, NULL);
}

trm_node trm_linear_by_inputs(trm_graph *graph, trm_node x, trm_node weight, trm_node bias) {
    trmi_attrs attrs = {.matmul = {.inputs_first = true}};
    return trmi_graph_add1(graph, TRMI_OP_LINEAR, NULL, (trm_node[]){x, weight, bias},
                           bias.id == 0 ? 2 : 3, &attrs);
}

/* Returns the leading dimensions that two operands have in common by NumPy's rule, followed by the
 * matrix dimensions of `own`; what does not broadcast is left as it is, for the shape rule. */
static trm_shape with_leading(const trm_shape *own, const trm_shape *other) {
    int32_t rank = own->rank > other->rank ? own->rank : other->rank;
    trm_shape wide = {.rank = rank};
    for (int32_t i = 0; i < rank; i++) {
        int64_t x = i < rank - own->rank ? 1 : own->dim[i - (rank - own->rank)];
        int64_t y = i < rank - other->rank ? 1 : other->dim[i - (rank - other->rank)];
        wide.dim[i] = i < rank - 2 && x == 1 ? y : x;
    }
    return wide;
}

/* Repeats the matrices of x along the leading dimensions that it lacks. */
static trm_node repeat_matrices(trm_graph *graph, trm_node x, const trm_shape *other) {
    trm_shape own = trm_node_shape(graph, x), wide = with_leading(&own, other);
    trmi_attrs attrs = {.shape = {.shape = wide}};
    return trm_shape_equal(&own, &wide)
               ? x
               : trmi_graph_add1(graph, TRMI_OP_BROADCAST, NULL, &x, 1, &attrs);
}

/* Contract in trireme/graph.h. A matrix for all rows of a batch becomes one large product, which is
 * faster than one small product for each matrix of the batch. */
trm_node trm_matmul(trm_graph *graph, trm_node a, trm_node b, bool transpose_a, bool transpose_b) {
    trm_shape left = trm_node_shape(graph, a), right = trm_node_shape(graph, b);
    if (left.rank > 2 && right.rank == 2 && !transpose_a) { /* one matrix for all rows of a */
        trm_shape shape = left;
        shape.dim[left.rank - 1] = right.dim[transpose_b ? 0 : 1];
        return trm_reshape(
            graph, trm_matmul(graph, flatten_leading(graph, a), b, false, transpose_b), shape);
    }
    if (left.rank >= 2 && right.rank >= 2) {
        a = repeat_matrices(graph, a, &right);
        b = repeat_matrices(graph, b, &left);
    }
    trmi_attrs attrs = {.matmul = {.transpose_a = transpose_a, .transpose_b = transpose_b}};
    return trmi_graph_add1(graph, TRMI_OP_MATMUL, NULL, (trm_node[]){a, b}, 2, &attrs);
}
