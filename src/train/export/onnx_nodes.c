/* SPDX-License-Identifier: Apache-2.0 */
/* The nodes, constants and names of an ONNX file from which operators are translated (contracts in
 * onnx_nodes.h). */
#include "train/export/onnx_nodes.h"

#include "base/error.h"

#include <string.h>

const char *trmi_onnx_input_name(const trmi_onnx *x, const trmi_op *op, int i) {
    return i < op->inputs_count && op->inputs[i] != 0 ? x->names[op->inputs[i]] : "";
}

void trmi_onnx_add_named_node(trmi_onnx *x, const trmi_op *op, trmi_onnx_node *node) {
    const char *output = x->names[op->outputs[0]];
    while (node->input_count > 0 && node->inputs[node->input_count - 1][0] == '\0') {
        node->input_count--;
    }
    node->name = op->name;
    node->outputs = &output;
    node->output_count = 1;
    trmi_onnx_add_node(x->model, node);
}

void trmi_onnx_add_op_node(trmi_onnx *x, const trmi_op *op, const char *kind, int inputs,
                           const trmi_onnx_attribute *attributes, int attribute_count) {
    const char *names[8];
    int count = 0;
    while (count < inputs && count < 8) {
        names[count] = trmi_onnx_input_name(x, op, count);
        count++;
    }
    trmi_onnx_add_named_node(x, op,
                             &(trmi_onnx_node){.op = kind,
                                               .inputs = names,
                                               .input_count = count,
                                               .attributes = attributes,
                                               .attribute_count = attribute_count});
}

const char *trmi_onnx_add_constant(trmi_onnx *x, trm_dtype dtype, const trm_shape *shape,
                                   const void *data) {
    trm_tensor t = {.dtype = dtype, .shape = *shape};
    const char *name = trmi_arena_printf(&x->arena, "constant.%lld", (long long)x->constants++);
    t.data = trmi_arena_alloc(&x->arena, (size_t)trm_tensor_bytes(&t));
    if (name == NULL || t.data == NULL) {
        return NULL;
    }
    memcpy(t.data, data, (size_t)trm_tensor_bytes(&t));
    trmi_onnx_add_initializer(x->model, name, &t);
    return name;
}

const char *trmi_onnx_add_integers(trmi_onnx *x, const int64_t *values, int64_t count) {
    trm_shape shape = trm_shape_of(count);
    return trmi_onnx_add_constant(x, TRM_INT64, &shape, values);
}

const char *trmi_onnx_add_number(trmi_onnx *x, double value) {
    float f = (float)value;
    trm_shape scalar = {.rank = 0};
    return trmi_onnx_add_constant(x, TRM_FLOAT32, &scalar, &f);
}

trm_status trmi_onnx_add_with_constants(trmi_onnx *x, const trmi_op *op, const char *kind,
                                        const char *const *extra, int count, trm_error *err) {
    const char *names[8] = {trmi_onnx_input_name(x, op, 0)};
    for (int i = 0; i < count; i++) {
        if (extra[i] == NULL) {
            return TRMI_NO_MEMORY(err, "for the constants of '%s'", op->name);
        }
        names[1 + i] = extra[i];
    }
    trmi_onnx_add_named_node(
        x, op, &(trmi_onnx_node){.op = kind, .inputs = names, .input_count = 1 + count});
    return TRM_OK;
}

trm_status trmi_onnx_fail_unsupported(const trmi_op *op, trm_error *err) {
    return TRMI_FAIL(err, TRM_UNSUPPORTED, "'%s': operator %s has no form in ONNX here", op->name,
                     trmi_op_def_of(op)->name);
}

const char *trmi_onnx_name_between(trmi_onnx *x, const trmi_op *op, const char *what) {
    return trmi_arena_printf(&x->arena, "%s/%s", x->names[op->outputs[0]], what);
}

void trmi_onnx_add_step(trmi_onnx *x, const char *kind, const char *a, const char *b,
                        const char *output, const trmi_onnx_attribute *attribute) {
    const char *names[] = {a, b};
    int count = b == NULL ? 1 : 2;
    trmi_onnx_add_node(x->model, &(trmi_onnx_node){.op = kind,
                                                   .inputs = names,
                                                   .input_count = count,
                                                   .outputs = &output,
                                                   .output_count = 1,
                                                   .attributes = attribute,
                                                   .attribute_count = attribute != NULL});
}

const char *trmi_onnx_transpose_input(trmi_onnx *x, const trmi_op *op, int input,
                                      const char *what) {
    const char *name = trmi_onnx_name_between(x, op, what);
    int64_t order[TRM_MAX_RANK];
    int32_t rank = trmi_input_of(x->graph, op, input)->shape.rank;
    for (int32_t i = 0; i < rank; i++) {
        order[i] = i < rank - 2 ? i : 2 * rank - 3 - i;
    }
    const trmi_onnx_attribute perm = trmi_onnx_ints("perm", order, rank);
    if (name != NULL) {
        trmi_onnx_add_step(x, "Transpose", trmi_onnx_input_name(x, op, input), NULL, name, &perm);
    }
    return name;
}
