/* SPDX-License-Identifier: Apache-2.0 */
/* Fuses operators that follow a large float32 product into it: they are applied while the sums are
 * in registers, or disappear.
 *
 *      LINEAR, KEYED_LINEAR -> RELU                   with relu
 *      MATMUL -> RELU_GRAD(., y)                      MATMUL(a, b, y)
 *      MATMUL -> SLICE of columns, SLICE of others    a MATMUL for each, of these columns of B
 *
 * Nothing is fused if another operator reads a value that would disappear. */
#include "plan/passes/pass.h"

#include "base/memory.h"

enum { ROWS_MIN = 256 }; /* fewest rows of a product; small products use other kernels */

/* State of the pass. */
typedef struct fusion {
    const trmi_pass *pass;
    const trmi_roots *roots;
    bool *kept;              /* [values] root */
    bool *skip;              /* [operators] disappears */
    bool *sliced;            /* [operators] a MATMUL that only slices read */
    int64_t *sliced_columns; /* [values] columns that slices read; -1 = another operator reads it */
} fusion;

/* Returns whether a value exists and is float32. */
static bool is_float32(const trmi_value *v) { return v != NULL && v->dtype == TRM_FLOAT32; }

/* Returns the large float32 product of this kind that made `value`; NULL: none. */
static const trmi_op *find_product(const trm_graph *g, int32_t value, trmi_op_kind kind) {
    const trmi_op *op = &g->ops[g->values[value].op];
    if (kind == TRMI_OP_LINEAR && op->kind == TRMI_OP_KEYED_LINEAR) {
        return op->attrs.matmul.relu ? NULL : op;
    }
    if (op->kind != kind || !is_float32(trmi_input_of(g, op, 0)) ||
        !is_float32(trmi_input_of(g, op, 1)) || !is_float32(&g->values[value])) {
        return NULL;
    }
    const trm_shape *shape = &g->values[value].shape;
    int64_t columns = shape->dim[shape->rank - 1];
    bool plain = kind == TRMI_OP_LINEAR
                     ? !op->attrs.matmul.relu
                     : shape->rank == 2 && !op->attrs.matmul.transpose_a && op->inputs_count == 2 &&
                           op->attrs.matmul.columns == 0;
    return plain && columns > 0 && trm_shape_count(shape) / columns >= ROWS_MIN ? op : NULL;
}

/* Returns whether a value has one reader and is no root. */
static bool has_one_reader(const fusion *f, int32_t value) {
    return f->pass->uses[value] == 1 && !f->kept[value];
}

/* Returns the product into which this ReLU, or gradient of a ReLU, is fused; NULL: none. */
static const trmi_op *find_product_before(const fusion *f, const trmi_op *op) {
    const trm_graph *g = f->pass->from;
    bool backward = op->kind == TRMI_OP_RELU_GRAD;
    if ((op->kind != TRMI_OP_RELU && !backward) || !has_one_reader(f, op->inputs[0]) ||
        g->values[op->outputs[0]].dtype != TRM_FLOAT32) {
        return NULL;
    }
    if (backward &&
        (!is_float32(trmi_input_of(g, op, 1)) ||
         !trm_shape_equal(&trmi_input_of(g, op, 1)->shape, &trmi_input_of(g, op, 0)->shape))) {
        return NULL;
    }
    return find_product(g, op->inputs[0], backward ? TRMI_OP_MATMUL : TRMI_OP_LINEAR);
}

/* Returns whether an operator slices columns of all rows. */
static bool takes_columns(const trm_graph *g, const trmi_op *op) {
    if (op->kind != TRMI_OP_SLICE) {
        return false;
    }
    const trm_shape *from = &trmi_input_of(g, op, 0)->shape;
    return from->rank == 2 && op->attrs.slice.begin[0] == 0 &&
           op->attrs.slice.size[0] == from->dim[0];
}

/* Finds the products that only slices of columns read, if these do not compute more columns in
 * total. */
static void find_slices(fusion *f) {
    const trm_graph *g = f->pass->from;
    for (int64_t i = 1; i < g->ops_count; i++) {
        const trmi_op *op = &g->ops[i];
        for (int32_t j = 0; j < op->inputs_count; j++) {
            int64_t *sliced_columns = &f->sliced_columns[op->inputs[j]];
            *sliced_columns = *sliced_columns >= 0 && takes_columns(g, op)
                                  ? *sliced_columns + op->attrs.slice.size[1]
                                  : -1;
        }
    }
    for (int64_t v = 1; v < g->values_count; v++) {
        const trmi_op *op = find_product(g, (int32_t)v, TRMI_OP_MATMUL);
        if (op != NULL && f->sliced_columns[v] > 0 && !f->kept[v] &&
            f->sliced_columns[v] <= g->values[v].shape.dim[1]) {
            f->sliced[op - g->ops] = true;
            f->skip[op - g->ops] = true;
        }
    }
}

/* Marks the roots. */
static void mark_roots(fusion *f) {
    const trmi_roots *r = f->roots;
    f->kept[r->loss] = true;
    for (int32_t i = 0; i < r->outputs_count; i++) {
        f->kept[r->outputs[i]] = true;
    }
    for (int32_t i = 0; i < r->params_count; i++) {
        f->kept[r->params[i]] = true;
        f->kept[r->grads[i]] = true;
    }
}

/* Emits `product` fused with `op`, in the place of `op`. */
static void emit_fused(trmi_pass *pass, const trmi_op *product, const trmi_op *op) {
    trmi_attrs attrs = product->attrs;
    int32_t inputs[5] = {0}, count = product->inputs_count;
    for (int32_t i = 0; i < count; i++) {
        inputs[i] = pass->map[product->inputs[i]];
    }
    if (op->kind == TRMI_OP_RELU) {
        attrs.matmul.relu = true;
    } else if (op->kind == TRMI_OP_RELU_GRAD) {
        inputs[count++] = pass->map[op->inputs[1]];
    } else {
        attrs.matmul.begin = op->attrs.slice.begin[1];
        attrs.matmul.columns = op->attrs.slice.size[1];
    }
    int32_t outputs = product->outputs_count;
    int32_t index = trmi_pass_emit(pass, product->kind, op->phase, product->name, inputs, count,
                                   outputs, &attrs);
    trmi_pass_set_origin(pass, index, product->origin);
    pass->map[op->outputs[0]] = index == 0 ? 0 : pass->to->ops[index].outputs[0];
    for (int32_t i = 1; index != 0 && i < outputs; i++) {
        pass->map[product->outputs[i]] = pass->to->ops[index].outputs[i];
    }
}

/* Marks the products that disappear, then emits all operators. */
static void emit_all(trmi_pass *pass, const fusion *f) {
    const trm_graph *g = pass->from;
    for (int64_t i = 1; i < g->ops_count; i++) {
        const trmi_op *op = &g->ops[i], *product = find_product_before(f, op);
        if (product != NULL && !f->sliced[product - g->ops]) {
            f->skip[product - g->ops] = true;
        }
    }
    for (int64_t i = 1; i < g->ops_count; i++) {
        const trmi_op *op = &g->ops[i], *product = find_product_before(f, op);
        if (op->kind == TRMI_OP_SLICE && f->sliced[g->values[op->inputs[0]].op]) {
            product = &g->ops[g->values[op->inputs[0]].op];
        }
        if (product != NULL) {
            emit_fused(pass, product, op);
        } else if (!f->skip[i]) {
            trmi_pass_copy(pass, op);
        }
    }
}

/* Contract in pass.h. Slices are found in a walk of their own, because all of them must be known
 * when their product is written. */
trm_status trmi_pass_fuse_product(trmi_pass *pass, const trmi_plan_options *options,
                                  const trmi_roots *roots, trm_error *err) {
    (void)options;
    size_t values = (size_t)pass->from->values_count, ops = (size_t)pass->from->ops_count;
    fusion f = {.pass = pass,
                .roots = roots,
                .kept = trmi_alloc(values * sizeof *f.kept),
                .skip = trmi_alloc(ops * sizeof *f.skip),
                .sliced = trmi_alloc(ops * sizeof *f.sliced),
                .sliced_columns = trmi_alloc(values * sizeof *f.sliced_columns)};
    trm_status status = TRM_OK;
    if (f.kept == NULL || f.skip == NULL || f.sliced == NULL || f.sliced_columns == NULL) {
        status = TRMI_NO_MEMORY(err, "to fuse products");
    } else {
        mark_roots(&f);
        find_slices(&f);
        emit_all(pass, &f);
    }
    trmi_free(f.kept);
    trmi_free(f.skip);
    trmi_free(f.sliced);
    trmi_free(f.sliced_columns);
    return status;
}
