/* SPDX-License-Identifier: Apache-2.0 */
/* Leaves: inputs, parameters, states, constants; and the initial values of parameters, which are
 * functions of (seed, name, element), so that any part of a leaf can be filled on any rank.
 *
 *   input      a field of the batch              state     what a step changes beside parameters
 *   parameter  what the optimiser changes        constant  bytes that the graph owns
 *
 * Invariants: names of leaves are unique, because checkpoints use them. The values of a parameter
 * do not depend on other parameters, on the number of ranks or on how a plan cuts it: its stream of
 * random numbers follows from its name, the counter from the index of the element in the whole
 * leaf. */
#include "graph/graph_ir.h"
#include "graph/arguments.h"

#include "base/element.h"
#include "base/error.h"
#include "base/hash/hash.h"
#include "base/rng.h"

#include <math.h>
#include <string.h>

/* Does nothing: the builder sets the shape of a leaf. */
static trm_status infer_leaf(trm_graph *graph, trmi_op *op, trm_error *err) {
    (void)graph;
    (void)op;
    (void)err;
    return TRM_OK;
}
/* A leaf costs nothing. */
static trmi_cost no_cost(const trm_graph *graph, const trmi_op *op) {
    (void)graph;
    (void)op;
    return (trmi_cost){0};
}
/* Leaves have no gradient functions. */
const trmi_op_def trmi_op_input = {.name = "input", .infer = infer_leaf, .cost = no_cost};
const trmi_op_def trmi_op_parameter = {.name = "parameter", .infer = infer_leaf, .cost = no_cost};
const trmi_op_def trmi_op_state = {.name = "state", .infer = infer_leaf, .cost = no_cost};
const trmi_op_def trmi_op_constant = {.name = "constant", .infer = infer_leaf, .cost = no_cost};

/* Returns whether a leaf has this name. */
static bool name_taken(const trm_graph *graph, const char *scoped) {
    for (int64_t i = 1; i < graph->ops_count; i++) {
        const trmi_op *op = &graph->ops[i];
        bool leaf =
            op->kind == TRMI_OP_INPUT || op->kind == TRMI_OP_PARAMETER || op->kind == TRMI_OP_STATE;
        if (leaf && strcmp(op->name, scoped) == 0) {
            return true;
        }
    }
    return false;
}

/* Adds a leaf. error (in the graph) INVALID: name taken, impossible shape or dtype */
static trm_node add_leaf(trm_graph *graph, trmi_op_kind kind, const char *name, trm_dtype dtype,
                         trm_shape shape, const trmi_attrs *attrs) {
    trm_error err;
    char text[96];
    /* names of leaves are unique: checkpoints use them */
    if (name != NULL) {
        char *scoped = trmi_arena_printf(&graph->arena, "%s%s", graph->scope, name);
        if (scoped != NULL && name_taken(graph, scoped)) {
            TRMI_FAIL(&err, TRM_INVALID,
                      "'%s' is the name of two leaves of the graph; give one another name, or "
                      "scopes of two names to what makes them",
                      scoped);
            trmi_graph_fail(graph, &err);
            return TRM_NO_NODE;
        }
    }
    if (!trmi_shape_possible(&shape) || trm_dtype_bytes(dtype) == 0) {
        TRMI_FAIL(&err, TRM_INVALID, "%s: impossible shape %s or dtype %s",
                  name ? name : "constant", trm_shape_format(&shape, text, sizeof text),
                  trm_dtype_name(dtype));
        trmi_graph_fail(graph, &err);
        return TRM_NO_NODE;
    }
    trm_node node = trmi_graph_add1(graph, kind, name, NULL, 0, attrs);
    if (node.id != 0) {
        graph->values[node.id].dtype = dtype;
        graph->values[node.id].shape = shape;
    }
    return node;
}

trm_node trm_input(trm_graph *graph, const char *name, trm_dtype dtype, trm_shape shape) {
    TRMI_NEED_IN(graph, TRM_NO_NODE, name);
    return add_leaf(graph, TRMI_OP_INPUT, name, dtype, shape, NULL);
}

trm_node trm_parameter(trm_graph *graph, const char *name, trm_shape shape, trm_init init) {
    TRMI_NEED_IN(graph, TRM_NO_NODE, name);
    trmi_attrs attrs = {.leaf = {.init = init, .trainable = true}};
    return add_leaf(graph, TRMI_OP_PARAMETER, name, TRM_FLOAT32, shape, &attrs);
}

/* Finds the operator of a parameter; NULL: the graph has an error, or keeps that of `function`. */
static trmi_op *find_parameter(trm_graph *graph, const char *function, trm_node parameter) {
    if (trm_graph_check(graph, NULL) != TRM_OK) {
        return NULL;
    }
    trmi_op *op = parameter.id > 0 && parameter.id < graph->values_count
                      ? &graph->ops[graph->values[parameter.id].op]
                      : NULL;
    if (op == NULL || op->kind != TRMI_OP_PARAMETER) {
        trm_error err;
        TRMI_FAIL(&err, TRM_INVALID, "%s: node %lld is no parameter", function,
                  (long long)parameter.id);
        trmi_graph_fail(graph, &err);
        return NULL;
    }
    return op;
}

trm_node trm_exclude_from_decay(trm_graph *graph, trm_node parameter) {
    trmi_op *op = find_parameter(graph, "exclude_from_decay", parameter);
    if (op == NULL) {
        return TRM_NO_NODE;
    }
    op->attrs.leaf.undecayed = true;
    return parameter;
}

trm_node trm_freeze(trm_graph *graph, trm_node parameter) {
    trmi_op *op = find_parameter(graph, "freeze", parameter);
    if (op == NULL) {
        return TRM_NO_NODE;
    }
    op->attrs.leaf.trainable = false;
    return parameter;
}

trm_node trm_update_all_rows(trm_graph *graph, trm_node parameter) {
    trmi_op *op = find_parameter(graph, "update_all_rows", parameter);
    if (op == NULL) {
        return TRM_NO_NODE;
    }
    op->attrs.leaf.all_rows = true;
    return parameter;
}

trm_node trm_state(trm_graph *graph, const char *name, trm_dtype dtype, trm_shape shape,
                   trm_init init) {
    TRMI_NEED_IN(graph, TRM_NO_NODE, name);
    trmi_attrs attrs = {.leaf = {.init = init}};
    return add_leaf(graph, TRMI_OP_STATE, name, dtype, shape, &attrs);
}

/* Contract in trireme/graph.h. The bytes are copied, so the caller's tensor may go. A tensor whose
 * size overflows is refused by add_leaf, with the others' message. */
trm_node trm_constant(trm_graph *graph, const trm_tensor *tensor) {
    TRMI_NEED_IN(graph, TRM_NO_NODE, tensor);
    trmi_attrs attrs = {.constant = {.bytes = trm_tensor_bytes(tensor)}};
    if (attrs.constant.bytes >= 0) {
        void *copy = trmi_arena_alloc(&graph->arena, (size_t)attrs.constant.bytes);
        if (copy == NULL) {
            trm_error err;
            TRMI_NO_MEMORY(&err, "for a constant of %lld bytes", (long long)attrs.constant.bytes);
            trmi_graph_fail(graph, &err);
            return TRM_NO_NODE;
        }
        memcpy(copy, tensor->data, (size_t)attrs.constant.bytes);
        attrs.constant.data = copy;
    }
    return add_leaf(graph, TRMI_OP_CONSTANT, NULL, tensor->dtype, tensor->shape, &attrs);
}

trm_node trm_scalar(trm_graph *graph, double value) {
    float number = (float)value;
    trm_tensor tensor = {.data = &number, .dtype = TRM_FLOAT32};
    return trm_constant(graph, &tensor);
}

/* ---- initial values ---- */

enum { NORMAL_STEPS = 1 << 26 }; /* of trm_init_normal in 1 */

/* Contract in trireme/graph.h. The deviation is kept in steps of 1 / NORMAL_STEPS, as an integer,
 * so that an initial value can be stored and compared. */
trm_init trm_init_normal(double deviation) {
    double steps = deviation >= 0 && deviation < 16 ? deviation * NORMAL_STEPS + 0.5 : 0;
    return (trm_init)(TRM_INIT_NORMAL + (int32_t)steps);
}

/* Returns the random stream of a name. */
static uint64_t name_stream(const char *name) {
    return trmi_mix(trmi_hash(TRMI_HASH_BEGIN, name, strlen(name)), TRMI_STREAM_INIT);
}

/* Computes fan_in and fan_out as torch.nn.init does: [O, I, ...kernel]. */
static void compute_fans(const trm_shape *shape, double *fan_in, double *fan_out) {
    double kernel = 1;
    for (int32_t i = 2; i < shape->rank; i++) {
        kernel *= (double)shape->dim[i];
    }
    *fan_out = shape->rank > 0 ? (double)shape->dim[0] * kernel : 1;
    *fan_in = shape->rank > 1 ? (double)shape->dim[1] * kernel : *fan_out;
}

/* Contract in graph_ir.h. He et al. 2015 and Glorot and Bengio 2010; the stream of random numbers
 * follows from the name, so it does not depend on what else the graph has. */
trmi_init_rule trmi_init_rule_of(trm_init init, const char *name, const trm_shape *shape) {
    double fan_in, fan_out;
    /* scales as in torch.nn.init; LINEAR is that of torch.nn.Linear */
    trmi_init_rule rule = {.kind = TRMI_INIT_UNIFORM, .stream = name_stream(name)};
    compute_fans(shape, &fan_in, &fan_out);
    if ((int64_t)init >= TRM_INIT_NORMAL) {
        rule.kind = TRMI_INIT_NORMAL;
        rule.scale = ((double)init - TRM_INIT_NORMAL) / NORMAL_STEPS;
        return rule;
    }
    switch (init) {
    case TRM_INIT_ZERO:
    case TRM_INIT_ONE:
        return (trmi_init_rule){.kind = TRMI_INIT_CONSTANT, .value = init == TRM_INIT_ONE};
    case TRM_INIT_HE_NORMAL_FAN_OUT:
        rule.kind = TRMI_INIT_NORMAL;
        rule.scale = sqrt(2 / fan_out);
        break;
    case TRM_INIT_HE_UNIFORM: rule.scale = sqrt(6 / fan_in); break;
    case TRM_INIT_LINEAR: rule.scale = 1 / sqrt(fan_in); break;
    case TRM_INIT_GLOROT_UNIFORM: rule.scale = sqrt(6 / (fan_in + fan_out)); break;
    case TRM_INIT_NORMAL_001:
        rule.kind = TRMI_INIT_NORMAL;
        rule.scale = 0.01;
        break;
    case TRM_INIT_NORMAL_002:
        rule.kind = TRMI_INIT_NORMAL;
        rule.scale = 0.02;
        break;
    case TRM_INIT_NORMAL: break; /* above */
    }
    return rule;
}

/* Writes elements [begin, begin + count) of a random float32 leaf to `data`, in chunks that stay in
 * the cache until they are scaled; begin is a multiple of four. Returns how many it wrote: all, or
 * none if there are so few that single blocks take less time. */
static int64_t fill_groups(const trmi_init_rule *rule, uint64_t seed, int64_t begin, int64_t count,
                           float *data) {
    enum { FEW = TRMI_NORMAL_GROUP / 4, CHUNK = 16 * TRMI_NORMAL_GROUP };
    const float scale = (float)rule->scale;
    float made[CHUNK];
    for (int64_t at = 0; at < count && count >= FEW; at += CHUNK) {
        int64_t left = count - at < CHUNK ? count - at : CHUNK,
                groups = (left + TRMI_NORMAL_GROUP - 1) / TRMI_NORMAL_GROUP;
        uint64_t block = (uint64_t)(begin + at) / 4;
        if (rule->kind == TRMI_INIT_NORMAL) {
            trmi_normal_groups(seed, rule->stream, block, groups, made);
        } else {
            trmi_uniform_groups(seed, rule->stream, block, groups, made);
        }
        for (int64_t i = 0; i < left; i++) {
            data[at + i] = scale * made[i];
        }
    }
    return count >= FEW ? count : 0;
}

/* Writes `count` equal elements to data[to ...]. */
static void fill_constant(double value, int64_t count, trm_dtype dtype, void *data, int64_t to) {
    if (dtype == TRM_FLOAT32) {
        for (int64_t i = 0; i < count; i++) {
            ((float *)data)[to + i] = (float)value;
        }
        return;
    }
    for (int64_t i = 0; i < count; i++) {
        trmi_element_set(data, dtype, to + i, (double)(float)value);
    }
}

/* Writes elements [begin, begin + count) of a leaf to data[to ...]. */
static void fill_run(const trmi_init_rule *rule, uint64_t seed, int64_t begin, int64_t count,
                     trm_dtype dtype, void *data, int64_t to) {
    if (rule->kind == TRMI_INIT_CONSTANT) {
        fill_constant(rule->value, count, dtype, data, to);
        return;
    }
    if (dtype == TRM_FLOAT32 && begin % 4 == 0) {
        int64_t made = fill_groups(rule, seed, begin, count, (float *)data + to);
        begin += made;
        count -= made;
        to += made;
    }
    /* random numbers come in blocks of four; the first and the last block may be partial */
    for (int64_t block = begin / 4; block * 4 < begin + count; block++) {
        uint32_t bits[4];
        float values[4];
        trmi_philox(seed, rule->stream, (uint64_t)block, bits);
        if (rule->kind == TRMI_INIT_NORMAL) {
            trmi_normal_pair(bits, values);
            trmi_normal_pair(bits + 2, values + 2);
        }
        for (int64_t i = 0; i < 4; i++) {
            int64_t at = block * 4 + i - begin;
            if (at >= 0 && at < count) {
                float value = rule->kind == TRMI_INIT_NORMAL
                                  ? (float)rule->scale * values[i]
                                  : (float)rule->scale * (2 * trmi_unit_float(bits[i]) - 1);
                trmi_element_set(data, dtype, to + at, (double)value);
            }
        }
    }
}

void trmi_init_fill(trm_init init, uint64_t seed, const char *name, const trm_shape *shape,
                    trm_dtype dtype, void *data) {
    trmi_init_rule rule = trmi_init_rule_of(init, name, shape);
    fill_run(&rule, seed, 0, trm_shape_count(shape), dtype, data, 0);
}

/* Contract in graph_ir.h. Each element is a function of its index in the whole leaf, so that
 * ranks with parts have the values of one device. */
void trmi_init_fill_box(trm_init init, uint64_t seed, const char *name, const trm_shape *shape,
                        const trmi_box *box, trm_dtype dtype, void *data) {
    trmi_init_rule rule = trmi_init_rule_of(init, name, shape);
    /* `last` is the dimension after which the box is whole: elements of a run are adjacent. */
    int32_t last = shape->rank - 1;
    int64_t rows = 1, inner = 1;
    for (; last > 0 && box->begin[last] == 0 && box->end[last] == shape->dim[last]; last--) {
        inner *= shape->dim[last];
    }
    int64_t run = last < 0 ? 1 : (box->end[last] - box->begin[last]) * inner;
    for (int32_t d = 0; d < last; d++) {
        rows *= box->end[d] - box->begin[d];
    }
    /* Fill one run along the last dimension after another; `begin` is its first element in the
     * whole leaf. */
    for (int64_t row = 0; row < rows; row++) {
        int64_t rest = row, begin = 0, stride = last < 0 ? 1 : shape->dim[last] * inner;
        for (int32_t d = last - 1; d >= 0; d--) {
            int64_t length = box->end[d] - box->begin[d];
            begin += (box->begin[d] + rest % length) * stride;
            rest /= length;
            stride *= shape->dim[d];
        }
        begin += last < 0 ? 0 : box->begin[last] * inner;
        fill_run(&rule, seed, begin, run, dtype, data, row * run);
    }
}
