/* SPDX-License-Identifier: Apache-2.0 */
/* Recomputation: saves memory for a little time. Outputs of fused norms are not kept for backward;
 * where backward first reads one, NORM_ACT_APPLY computes it again from x and the saved statistics,
 * which are kept anyway.
 *
 *      forward:   x -> NORM_ACT -> y -> conv          (y dies here)
 *      backward:  x, statistics -> NORM_ACT_APPLY -> y' -> CONV2D_GRAD_WEIGHTS, MAX_POOL_GRAD ...
 *
 * With a residual r, y' also needs r. In a chain of residual blocks every third output is kept:
 *
 *      y1 (kept) --+--> y2 = f(x2, y1) dropped --+--> y3 = f(x3, y2) dropped --+--> y4 kept ...
 *
 * If r is the norm of a projection, which no other operator reads, r is recomputed first. A
 * recomputed residual lives until the backward of its own block; in longer chains that costs more
 * memory than keeping one output.
 *
 * Norms over rows, GELU, SiLU and gated products are recomputed in the same way: their gradients
 * read their inputs, which are kept for that, so their outputs are in memory for one block at a
 * time instead of for all blocks.
 *
 *      forward:   x -> GELU -> y -> linear            (y dies here; of GPT-2's values a third does)
 *      backward:  x -> GELU -> y' -> gradient of weights;  x -> GELU_GRAD
 *
 * Where they take much memory, sums after a layer are recomputed, too, with the layer. In a block
 * of a transformer that is the sum before the second norm: one of about ten kept values, for one
 * more matrix product beside the 36 of a step.
 *
 *      forward:   x, attention a -> x + layer(a) -> norm         (the sum dies after its readers)
 *      backward:  x, a -> x + layer(a) again -> norm again, the norm's gradient
 *
 * Whether they take much is decided for the whole graph and an equal part of it on each rank,
 * before a plan cuts it, so that searches and programs decide alike. In the graph of a rank a sum
 * is recomputed where no message lies between the layer and it; else it is kept.
 *
 * These are the rules of the back-end. With trmi_plan_options.recompute, segments of the graph
 * (trm_graph_mark_segment), for instance the blocks of a transformer, are recomputed as a whole: of
 * a segment remains what operators outside of it read.
 *
 *      forward:   x0 -> segment 1 -> x1 -> segment 2 -> x2          (all but x0, x1, x2 dies)
 *      backward:  x1 -> segment 2 again, its gradients; x0 -> segment 1 again, its gradients
 *
 * Outputs of operators that are no functions of their inputs (operators of the caller, exchanges
 * between ranks, batch norm's statistics) and casts of parameters, which ranks may share, are kept
 * in segments too. A plan (plan/partition/partition.h) can override these rules for an operator:
 * keep its output, or recompute it by NORM_ACT_APPLY or by running the operator a second time. The
 * inputs of such an operator are kept (trmi_partition_repeatable), so that nothing else changes.
 *
 * An operator that runs a second time reads parameters that the plan gathers again in backward
 * (ZeRO-3) as backward gathers them: what forward has gathered is not kept for it. */
#include "plan/passes/pass.h"
#include "plan/partition/partition.h"
#include "plan/pipeline/stages.h"

#include "base/memory.h"

#include <string.h>

enum {
    CHAIN = 2,     /* most consecutive residual outputs that are not kept */
    SUMS_SHARE = 4 /* sums are recomputed if they take 1 / SUMS_SHARE of the parameters' bytes */
};

/* A parameter in parts, or a step on its way to the whole, as backward has it. */
typedef struct gathered {
    int32_t parameter; /* value of `from` */
    trm_dtype dtype;   /* of the parameter or of its cast */
    /* of the operator, the same in forward and in backward: it ends with the spread. Long names are
     * cut before that, so that those of two parameters may be equal */
    const char *name;
    int32_t value; /* of `to` */
} gathered;

/* State of the pass. */
typedef struct recompute {
    trmi_pass *pass;
    const trmi_partition_plan *plan; /* NULL: none */
    gathered *gathers;               /* [gathers_count] */
    int64_t gathers_count, gathers_capacity;
    bool *dropped;  /* [values of from] recomputed in backward */
    int32_t *again; /* [values of from] recomputed value of `to`, 0 = not emitted yet */
} recompute;

/* Returns whether a value is the image output of a fused norm. */
static bool is_norm(const trm_graph *g, int32_t value) {
    return value != 0 && trmi_maker_of(g, value)->kind == TRMI_OP_NORM_ACT &&
           trmi_maker_of(g, value)->outputs[0] == value && g->values[value].shape.rank == 4;
}

/* Returns whether a value is the norm of a projection: no ReLU, no residual. */
static bool is_projection(const trm_graph *g, int32_t value) {
    return is_norm(g, value) && !trmi_maker_of(g, value)->attrs.norm.relu &&
           !trmi_maker_of(g, value)->attrs.norm.residual;
}

/* ---- what a plan may ask for ---- */

/* Returns whether an operator is a function: the same inputs give the same bits, and it changes no
 * state. */
static bool is_function(trmi_op_kind kind) {
    switch (kind) {
    case TRMI_OP_CONV2D:
    case TRMI_OP_LINEAR:
    case TRMI_OP_MATMUL:
    case TRMI_OP_NORM_ACT: /* as NORM_ACT_APPLY */
    case TRMI_OP_MAX_POOL:
    case TRMI_OP_AVG_POOL:
    case TRMI_OP_GLOBAL_AVG_POOL:
    case TRMI_OP_ADD:
    case TRMI_OP_SUB:
    case TRMI_OP_MUL:
    case TRMI_OP_DIV:
    case TRMI_OP_RELU:
    case TRMI_OP_SIGMOID:
    case TRMI_OP_TANH:
    case TRMI_OP_EXP:
    case TRMI_OP_LOG:
    case TRMI_OP_SQRT:
    case TRMI_OP_SCALE:
    case TRMI_OP_GELU:
    case TRMI_OP_SILU:
    case TRMI_OP_SWIGLU:
    case TRMI_OP_ROTARY:
    case TRMI_OP_SOFTMAX: return true;
    default: return false;
    }
}

/* Returns whether an operator of a segment can run a second time. */
static bool is_pure(const trm_graph *g, const trmi_op *op) {
    switch (op->kind) {
    case TRMI_OP_CAST: return trmi_parameter_of(g, op->outputs[0]) == NULL;
    case TRMI_OP_NORM_ACT: return is_norm(g, op->outputs[0]);
    case TRMI_OP_LAYER_NORM:
    case TRMI_OP_RMS_NORM:
    case TRMI_OP_BATCH_NORM_INFER:
    case TRMI_OP_NORM_ACT_INFER:
    case TRMI_OP_DROPOUT: /* its mask is a function of the training step */
    case TRMI_OP_RESHAPE:
    case TRMI_OP_TRANSPOSE:
    case TRMI_OP_CONCAT:
    case TRMI_OP_SLICE:
    case TRMI_OP_PAD:
    case TRMI_OP_ONE_HOT:
    case TRMI_OP_BROADCAST:
    case TRMI_OP_REDUCE_SUM:
    case TRMI_OP_REDUCE_MEAN:
    case TRMI_OP_REDUCE_MAX:
    case TRMI_OP_ATTENTION:
    case TRMI_OP_TOP_K:
    case TRMI_OP_EXPERT_LINEAR:
    case TRMI_OP_EMBEDDING:
    case TRMI_OP_BAG_POOL:
    case TRMI_OP_PAIR_DOTS: return true;
    default: return is_function(op->kind);
    }
}

/* Returns whether a value is available in backward: a leaf, kept because backward reads it, or a
 * projection that is recomputed with its reader. */
static bool is_available(const trm_graph *g, int32_t value, const bool *read, const bool *can) {
    const trmi_op *maker = trmi_maker_of(g, value);
    return value == 0 || trmi_is_leaf(maker) || (read[value] && !can[g->values[value].op]) ||
           (is_projection(g, value) && is_available(g, maker->inputs[0], read, can));
}

/* Returns whether an operator is expensive to recompute. */
static bool is_product(trmi_op_kind kind) {
    return kind == TRMI_OP_CONV2D || kind == TRMI_OP_LINEAR || kind == TRMI_OP_MATMUL;
}

/* Returns whether an operator can be recomputed. */
static bool can_repeat(const trm_graph *g, const trmi_op *op, const bool *read, const bool *needed,
                       const bool *can) {
    bool norm = op->kind == TRMI_OP_NORM_ACT;
    bool ok = op->phase == TRMI_FORWARD && is_function(op->kind) && read[op->outputs[0]] &&
              !needed[op->outputs[0]] &&
              (norm ? is_norm(g, op->outputs[0]) : op->outputs_count == 1);
    for (int32_t k = 0; ok && k < op->inputs_count; k++) {
        ok = is_available(g, op->inputs[k], read, can);
    }
    return ok;
}

/* Decides cheap operators first: norms are recomputed rather than the convolutions before them. */
void trmi_partition_repeatable(const trm_graph *g, bool *can) {
    memset(can, 0, (size_t)g->ops_count * sizeof *can);
    /* read: [values] that backward reads */
    bool *read = trmi_alloc(2 * (size_t)g->values_count * sizeof *read);
    /* [values] read by operators that can be recomputed */
    bool *needed = read + g->values_count;
    for (int64_t i = 1; read != NULL && i < g->ops_count; i++) {
        const trmi_op *op = &g->ops[i];
        for (int32_t k = 0; op->phase == TRMI_BACKWARD && k < op->inputs_count; k++) {
            read[op->inputs[k]] = true;
        }
    }
    for (int64_t at = 1; read != NULL && at < 2 * g->ops_count; at++) {
        int64_t i = at % g->ops_count;
        const trmi_op *op = &g->ops[i];
        bool turn = i > 0 && is_product(op->kind) == (at >= g->ops_count);
        can[i] = turn ? can_repeat(g, op, read, needed, can) : can[i];
        for (int32_t k = 0; turn && can[i] && k < op->inputs_count; k++) {
            needed[op->inputs[k]] = true;
            /* a projection is recomputed, so its input is needed */
            needed[is_projection(g, op->inputs[k]) ? trmi_maker_of(g, op->inputs[k])->inputs[0]
                                                   : 0] = true;
        }
    }
    trmi_free(read);
}

/* ---- what is dropped ---- */

/* Applies the lines of a plan. They name operators of the whole graph; those of a rank have the
 * same names. */
static void apply_plan_lines(recompute *r, const trmi_partition_plan *plan) {
    const trm_graph *g = r->pass->from;
    for (int64_t i = 1; i < g->ops_count; i++) {
        const trmi_op *op = &g->ops[i];
        const trmi_partition_choice *line = op->phase == TRMI_FORWARD && is_function(op->kind)
                                                ? trmi_partition_plan_find(plan, op->name)
                                                : NULL;
        if (line != NULL && line->recompute != TRMI_RECOMPUTE_RULE) {
            r->dropped[op->outputs[0]] = line->recompute == TRMI_RECOMPUTE_YES;
        }
    }
}

/* Applies the rule to all norms, in the order of the graph, so that a residual is decided before
 * its reader. chain: [values] zeros: lengths of the chains of dropped values. */
static void drop_norms(const trm_graph *g, bool *dropped, int32_t *chain) {
    for (int64_t i = 1; i < g->ops_count; i++) {
        const trmi_op *op = &g->ops[i];
        if (!is_norm(g, op->outputs[0])) {
            continue;
        }
        int32_t residual = op->attrs.norm.residual ? op->inputs[5] : 0;
        int32_t before = residual == 0 || is_projection(g, residual) ? 0 : chain[residual];
        /* a kept residual must be available: outputs of earlier norms are */
        bool kept_anyway = residual == 0 || is_projection(g, residual) || is_norm(g, residual);
        bool drop = op->attrs.norm.relu && before < CHAIN && kept_anyway;
        dropped[op->outputs[0]] = drop;
        chain[op->outputs[0]] = drop ? before + 1 : 0;
    }
}

/* Returns whether an operator costs little beside the layer that reads its output, and its gradient
 * reads its inputs. */
static bool is_cheap(trmi_op_kind kind) {
    return kind == TRMI_OP_LAYER_NORM || kind == TRMI_OP_RMS_NORM || kind == TRMI_OP_GELU ||
           kind == TRMI_OP_SILU || kind == TRMI_OP_SWIGLU;
}

/* Drops the outputs of cheap operators all of whose inputs are in memory in backward in any case,
 * as leaves or because a gradient reads them. read: [values] zeros. */
static void drop_cheap(const trm_graph *g, bool *dropped, int32_t *read) {
    for (int64_t i = 1; i < g->ops_count; i++) {
        const trmi_op *op = &g->ops[i];
        for (int32_t k = 0; op->phase == TRMI_BACKWARD && k < op->inputs_count; k++) {
            read[op->inputs[k]] = 1;
        }
    }
    for (int64_t i = 1; i < g->ops_count; i++) {
        const trmi_op *op = &g->ops[i];
        bool drop = op->phase == TRMI_FORWARD && is_cheap(op->kind);
        for (int32_t k = 0; drop && k < op->inputs_count; k++) {
            drop = read[op->inputs[k]] != 0 || trmi_is_leaf(trmi_maker_of(g, op->inputs[k]));
        }
        dropped[op->outputs[0]] = dropped[op->outputs[0]] || drop;
    }
}

/* Returns whether a value stays in memory until backward: a leaf, or read there and not dropped. */
static bool is_kept(const trm_graph *g, int32_t value, const bool *dropped, const int32_t *read) {
    return value == 0 || trmi_is_leaf(trmi_maker_of(g, value)) ||
           (read[value] != 0 && !dropped[value]);
}

/* Returns whether a value was received from other ranks. */
static bool is_received(const trm_graph *g, int32_t value) {
    const trmi_op_kind kind = trmi_maker_of(g, value)->kind;
    return kind == TRMI_OP_EXCHANGE || kind == TRMI_OP_ALL_REDUCE;
}

/* Returns the layer whose output an ADD, and nothing else, reads, if its input and the other
 * summand are kept; NULL: none. The other summand may be what ranks have sent for this sum: then it
 * is kept in the place of the sum. readers: [values] operators that read it. */
static const trmi_op *find_summand(const trm_graph *g, const trmi_op *add, const bool *dropped,
                                   const int32_t *read, const int32_t *readers) {
    for (int32_t k = 0; k < 2 && add->kind == TRMI_OP_ADD && add->phase == TRMI_FORWARD; k++) {
        const trmi_op *layer = trmi_maker_of(g, add->inputs[k]);
        if (layer->kind == TRMI_OP_LINEAR && read[add->outputs[0]] != 0 &&
            trm_shape_equal(&trmi_input_of(g, add, k)->shape, &trmi_output_of(g, add, 0)->shape) &&
            is_kept(g, layer->inputs[0], dropped, read) &&
            (is_kept(g, add->inputs[1 - k], dropped, read) || is_received(g, add->inputs[1 - k])) &&
            readers[layer->outputs[0]] == 1) {
            return layer;
        }
    }
    return NULL;
}

/* Returns the bytes of an operator's first output. */
static int64_t output_bytes(const trm_graph *g, const trmi_op *op) {
    const trmi_value *v = trmi_output_of(g, op, 0);
    return trm_shape_count(&v->shape) * (int64_t)trm_dtype_bytes(v->dtype);
}

/* Drops sums after layers, with the layers' outputs, or none if they are little memory beside the
 * parameters (rules.ranks). No other rule drops an ADD or a LINEAR before. read: [values] not 0:
 * backward reads it; readers: zeros. Returns whether sums are dropped. */
static bool drop_sums(const trm_graph *g, trmi_again_rules rules, bool *dropped,
                      const int32_t *read, int32_t *readers) {
    int64_t bytes = 0, parameters = 0;
    for (int64_t i = 1; i < g->ops_count; i++) {
        for (int32_t k = 0; k < g->ops[i].inputs_count; k++) {
            readers[g->ops[i].inputs[k]]++;
        }
    }
    for (int64_t i = 1; i < g->ops_count; i++) {
        const trmi_op *op = &g->ops[i], *layer = find_summand(g, op, dropped, read, readers);
        if (layer != NULL) {
            dropped[op->outputs[0]] = dropped[layer->outputs[0]] = true;
            bytes += output_bytes(g, op);
        }
        parameters += op->kind == TRMI_OP_PARAMETER ? output_bytes(g, op) : 0;
    }
    const bool few = bytes == 0 || bytes * SUMS_SHARE < parameters * rules.ranks;
    for (int64_t i = 1; i < g->ops_count && few; i++) {
        const trmi_op *op = &g->ops[i];
        if (op->kind == TRMI_OP_ADD || op->kind == TRMI_OP_LINEAR) {
            dropped[op->outputs[0]] = false;
        }
    }
    return !few;
}

/* Returns the run of a pipeline in which an operator of the whole graph lies; -1: it is none of
 * that graph. */
static int32_t find_run(const trmi_stage_map *map, const trmi_op *op) {
    for (int32_t i = 0; i < map->count; i++) {
        if (strcmp(map->names[i], op->name) == 0) {
            return map->stages[i];
        }
    }
    return -1;
}

/* Keeps the sums between whose layer and readers a pipeline is cut: what is computed again there
 * would need the layer's parameters in a second stage. */
static void keep_cut_sums(const trm_graph *g, const trmi_stage_map *map, bool *dropped) {
    for (int64_t i = 1; i < g->ops_count; i++) {
        const trmi_op *op = &g->ops[i];
        for (int32_t k = 0; op->phase == TRMI_FORWARD && k < op->inputs_count; k++) {
            const trmi_op *maker = trmi_maker_of(g, op->inputs[k]);
            bool sum = dropped[op->inputs[k]] && maker->kind == TRMI_OP_ADD,
                 layer = dropped[op->inputs[k]] && maker->kind == TRMI_OP_LINEAR;
            int32_t own = sum || layer ? find_run(map, maker) : -1,
                    reader = sum || layer ? find_run(map, op) : -1;
            if (own != reader && own >= 0 && reader >= 0) {
                dropped[op->inputs[k]] = false;
                dropped[layer ? op->outputs[0] : 0] = false;
            }
        }
    }
}

/* Drops the values of segments that only operators of the same segment read. segment: [values]
 * zeros. Backward operators need no check: if the gradient of an operator reads a value of another
 * segment, the operator itself reads that value too. */
static void drop_segments(const trm_graph *g, bool *dropped, int32_t *segment) {
    for (int64_t i = 1; i < g->ops_count; i++) {
        const trmi_op *op = &g->ops[i];
        if (op->phase != TRMI_FORWARD || trmi_is_leaf(op)) {
            continue;
        }
        int32_t own = trmi_segment_of(g, op->name);
        int32_t outputs = op->kind == TRMI_OP_NORM_ACT ? 1 : op->outputs_count;
        for (int32_t k = 0; k < outputs && own != 0; k++) {
            segment[op->outputs[k]] = own;
            dropped[op->outputs[k]] = is_pure(g, op);
        }
        for (int32_t k = 0; k < op->inputs_count; k++) {
            int32_t input = op->inputs[k];
            dropped[input] = dropped[input] && (segment[input] == 0 || segment[input] == own);
        }
    }
}

/* Marks the values that the rules recompute. False: no memory. */
static bool choose_values(const trm_graph *g, trmi_again_rules rules, bool *dropped) {
    int32_t *of_value = trmi_alloc(2 * (size_t)g->values_count * sizeof *of_value);
    if (of_value != NULL && rules.cheap) {
        drop_norms(g, dropped, of_value);
        memset(of_value, 0, (size_t)g->values_count * sizeof *of_value);
        drop_cheap(g, dropped, of_value);
        if (rules.sums) {
            (void)drop_sums(g, rules, dropped, of_value, of_value + g->values_count);
        }
        memset(of_value, 0, (size_t)g->values_count * sizeof *of_value);
    }
    if (of_value != NULL && rules.segments) {
        drop_segments(g, dropped, of_value);
    }
    trmi_free(of_value);
    return of_value != NULL;
}

void trmi_partition_rule(const trm_graph *g, trmi_again_rules rules, bool *dropped) {
    bool *values = trmi_alloc((size_t)g->values_count * sizeof *values);
    bool chosen = values != NULL && choose_values(g, rules, values);
    for (int64_t i = 1; i < g->ops_count; i++) {
        dropped[i] = chosen && g->ops[i].outputs_count > 0 && values[g->ops[i].outputs[0]];
    }
    trmi_free(values);
}

/* Contract in partition.h. The cheap rules come first, because sums need what they keep. */
bool trmi_partition_sums(const trm_graph *g, int32_t ranks) {
    const size_t count = (size_t)g->values_count;
    bool *values = trmi_alloc(count * sizeof *values), large = false;
    int32_t *of_value = trmi_alloc(2 * count * sizeof *of_value);
    if (values != NULL && of_value != NULL) {
        const trmi_again_rules rules = {.cheap = true, .sums = true, .ranks = ranks};
        drop_norms(g, values, of_value);
        memset(of_value, 0, count * sizeof *of_value);
        drop_cheap(g, values, of_value);
        large = drop_sums(g, rules, values, of_value, of_value + count);
    }
    trmi_free(values);
    trmi_free(of_value);
    return large;
}

/* ---- parameters that are gathered again ---- */

/* Returns the parameter that an operator brings from its parts to its readers, it or its cast, if
 * the plan gathers it again in backward: by an exchange, or by the cast of a part. 0: none. */
static int32_t brought_parameter(const recompute *r, const trmi_op *op) {
    const trm_graph *g = r->pass->from;
    if (r->plan == NULL || (op->kind != TRMI_OP_EXCHANGE && op->kind != TRMI_OP_CAST)) {
        return 0;
    }
    while (op->kind == TRMI_OP_EXCHANGE || op->kind == TRMI_OP_CAST) {
        op = trmi_maker_of(g, op->inputs[0]);
    }
    const trmi_partition_store *store =
        op->kind == TRMI_OP_PARAMETER ? trmi_partition_plan_stored(r->plan, op->name) : NULL;
    return store != NULL && store->again ? op->outputs[0] : 0;
}

/* Returns the type of an operator's output. */
static trm_dtype dtype_of(const recompute *r, const trmi_op *op) {
    return r->pass->from->values[op->outputs[0]].dtype;
}

/* Returns the value of backward that such an operator has made of this parameter; 0: none. */
static int32_t find_gathered(const recompute *r, int32_t parameter, const trmi_op *op) {
    for (int64_t i = 0; i < r->gathers_count; i++) {
        const gathered *g = &r->gathers[i];
        if (g->parameter == parameter && g->dtype == dtype_of(r, op) &&
            strcmp(g->name, op->name) == 0) {
            return g->value;
        }
    }
    return 0;
}

/* Notes what backward has gathered. Without memory it is gathered once more. */
static void note_gathered(recompute *r, int32_t parameter, const trmi_op *op, int32_t value) {
    if (trmi_grow((void **)&r->gathers, &r->gathers_capacity, r->gathers_count + 1,
                  sizeof *r->gathers)) {
        r->gathers[r->gathers_count++] = (gathered){parameter, dtype_of(r, op), op->name, value};
    }
}

static int32_t make_again(recompute *r, int32_t value);
static int32_t run_again(recompute *r, int32_t value);

/* Returns the value of `to` that backward reads for a value: kept, or recomputed. */
static int32_t get_available(recompute *r, int32_t value) {
    return r->dropped[value] ? make_again(r, value) : r->pass->map[value];
}

/* Returns the value that an operator reads which runs a second time. */
static int32_t get_input(recompute *r, int32_t value) {
    const trmi_op *op = trmi_maker_of(r->pass->from, value);
    int32_t parameter = 0;
    if (value != 0 && !r->dropped[value] && op->phase == TRMI_FORWARD) {
        parameter = brought_parameter(r, op);
    }
    if (parameter == 0) {
        return get_available(r, value);
    }
    int32_t found = find_gathered(r, parameter, op);
    if (found == 0) {
        found = run_again(r, value);
        note_gathered(r, parameter, op, found);
    }
    return found;
}

/* Emits an operator a second time, in backward. Returns the new value; 0 after an error. */
static int32_t run_again(recompute *r, int32_t value) {
    trmi_pass *pass = r->pass;
    const trmi_op *op = trmi_maker_of(pass->from, value);
    trmi_attrs attrs = op->attrs;
    int32_t *inputs =
        trmi_arena_alloc(&pass->to->arena, (size_t)(op->inputs_count + 1) * sizeof *inputs);
    char *name = trmi_arena_printf(&pass->to->arena, "%s.again", op->name);
    if (inputs == NULL || name == NULL || !trmi_graph_own_attrs(pass->to, op->kind, &attrs)) {
        return 0;
    }
    for (int32_t i = 0; i < op->inputs_count; i++) {
        inputs[i] = get_input(r, op->inputs[i]);
    }
    int32_t index = trmi_pass_emit(pass, op->kind, TRMI_BACKWARD, name, inputs, op->inputs_count,
                                   op->outputs_count, &attrs);
    trmi_pass_set_origin(pass, index, op->name);
    if (index != 0 && op->output_dtype != TRM_DTYPE_NONE) {
        pass->to->ops[index].output_dtype = op->output_dtype;
        pass->to->values[pass->to->ops[index].outputs[0]].dtype = op->output_dtype;
    }
    for (int32_t i = 0; index != 0 && i < op->outputs_count; i++) {
        r->again[op->outputs[i]] = pass->to->ops[index].outputs[i];
    }
    return r->again[value];
}

/* Emits the recomputation of a value unless it exists already: of a norm from statistics, after its
 * residual. Returns the new value. */
static int32_t make_again(recompute *r, int32_t value) {
    trmi_pass *pass = r->pass;
    const trm_graph *g = pass->from;
    if (r->again[value] != 0) {
        return r->again[value];
    }
    const trmi_op *norm = trmi_maker_of(g, value);
    if (norm->kind != TRMI_OP_NORM_ACT) {
        return run_again(r, value);
    }
    int32_t inputs[6] = {get_available(r, norm->inputs[0]), pass->map[norm->inputs[1]],
                         pass->map[norm->inputs[2]],        pass->map[norm->outputs[1]],
                         pass->map[norm->outputs[2]],       0};
    if (norm->attrs.norm.residual) {
        int32_t residual = norm->inputs[5];
        inputs[5] =
            is_projection(g, residual) ? make_again(r, residual) : get_available(r, residual);
    }
    char *name = trmi_arena_printf(&pass->to->arena, "%s.again", norm->name);
    int32_t index = trmi_pass_emit(pass, TRMI_OP_NORM_ACT_APPLY, TRMI_BACKWARD, name, inputs,
                                   norm->attrs.norm.residual ? 6 : 5, 1, &norm->attrs);
    trmi_pass_set_origin(pass, index, norm->name);
    r->again[value] = index == 0 ? 0 : pass->to->ops[index].outputs[0];
    return r->again[value];
}

/* Copies a backward operator; dropped inputs are recomputed first. What was gathered for those is
 * not gathered once more. kept: memory for as many values as it has inputs. */
static void copy_backward(recompute *r, const trmi_op *op, int32_t *kept) {
    trmi_pass *pass = r->pass;
    const int32_t parameter = brought_parameter(r, op);
    const int32_t found = parameter != 0 ? find_gathered(r, parameter, op) : 0;
    if (found != 0) {
        pass->map[op->outputs[0]] = found;
        return;
    }
    for (int32_t j = 0; j < op->inputs_count; j++) {
        kept[j] = get_available(r, op->inputs[j]);
    }
    /* the map points to the recomputed values while the operator is copied */
    for (int32_t j = 0; j < op->inputs_count; j++) {
        int32_t before = pass->map[op->inputs[j]];
        pass->map[op->inputs[j]] = kept[j];
        kept[j] = before;
    }
    trmi_pass_copy(pass, op);
    for (int32_t j = op->inputs_count - 1; j >= 0; j--) {
        pass->map[op->inputs[j]] = kept[j];
    }
    if (parameter != 0) {
        note_gathered(r, parameter, op, pass->map[op->outputs[0]]);
    }
}

/* Returns the most inputs of an operator. */
static int32_t most_inputs(const trm_graph *g) {
    int32_t most = 0;
    for (int64_t i = 1; i < g->ops_count; i++) {
        most = g->ops[i].inputs_count > most ? g->ops[i].inputs_count : most;
    }
    return most;
}

/* Keeps the loss and the outputs. */
static void keep_roots(bool *dropped, const trmi_roots *roots) {
    dropped[roots->loss] = false;
    for (int32_t i = 0; i < roots->outputs_count; i++) {
        dropped[roots->outputs[i]] = false;
    }
}

/* Copies the forward operators whose values are dropped into backward, before their readers. The
 * choice comes from the rules, then from lines of the plan, which have precedence; roots are
 * always kept. */
trm_status trmi_pass_recompute(trmi_pass *pass, const trmi_plan_options *options,
                               const trmi_roots *roots, trm_error *err) {
    const trm_graph *g = pass->from;
    const bool rule = options->target->recompute_cheap && !options->no_recompute,
               whole = options->partition == NULL;
    const trmi_again_rules rules = {.cheap = rule,
                                    .segments = options->recompute,
                                    .sums = rule && !options->recompute &&
                                            (whole || options->large_sums),
                                    .ranks = whole ? 1 : 0};
    recompute r = {.pass = pass, .plan = options->partition};
    r.dropped = trmi_alloc((size_t)g->values_count * sizeof *r.dropped);
    r.again = trmi_alloc((size_t)g->values_count * sizeof *r.again);
    int32_t *kept = trmi_alloc(((size_t)most_inputs(g) + 1) * sizeof *kept);
    trm_status status = TRM_OK;
    if (r.dropped == NULL || r.again == NULL || kept == NULL ||
        !choose_values(g, rules, r.dropped)) {
        status = TRMI_NO_MEMORY(err, "to choose what to recompute");
    } else {
        if (rules.sums && options->runs != NULL) {
            keep_cut_sums(g, options->runs, r.dropped);
        }
        if (options->partition != NULL) {
            apply_plan_lines(&r, options->partition);
        }
        keep_roots(r.dropped, roots);
        for (int64_t i = 1; i < g->ops_count; i++) {
            const trmi_op *op = &g->ops[i];
            /* The first backward reader of a dropped value brings the operators that make it. */
            if (op->phase == TRMI_BACKWARD) {
                copy_backward(&r, op, kept);
            } else {
                trmi_pass_copy(pass, op);
            }
        }
    }
    trmi_free(r.dropped);
    trmi_free(r.again);
    trmi_free(r.gathers);
    trmi_free(kept);
    return status;
}
