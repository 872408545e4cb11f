/* SPDX-License-Identifier: Apache-2.0 */
/* graph/graph_ir.h: the graph as the other rooms read it: arrays of operators and values,
 * attributes, the table of operators, and the functions that build graphs.
 *
 *      ops:    [0 unused] [1] [2] ...          in topological order, always
 *      values: [0 absent] [1] [2] ...          the outputs of operator 3 are consecutive values
 *
 *                   inputs (value ids)                outputs (value ids)
 *      value 4 ---\                             /---- value 7  y
 *      value 5 ----> op 3: BATCH_NORM, attrs -------- value 8  save_mean
 *      value 6 ---/                             \---- value 9  save_inv_std
 *
 * Invariants: inputs precede their readers; value id 0 means absent; the first error of a graph
 * stays, and no operator is added after it. Passes (plan/passes/pass.h) read one graph and build
 * another. */
#ifndef TRMI_GRAPH_GRAPH_IR_H
#define TRMI_GRAPH_GRAPH_IR_H

#include "trireme/graph.h"

#include "base/memory.h"

/* Kinds of operators, from graph/ops.def. */
typedef enum trmi_op_kind {
    TRMI_OP_NONE = 0,
#define X(KIND, row) TRMI_OP_##KIND,
#define Y(KIND, row) X(KIND, row)
#include "graph/ops.def"
#undef Y
#undef X
    TRMI_OP_KINDS
} trmi_op_kind;

/* Outputs of an operator, at most. */
enum { TRMI_OP_OUTPUTS_MAX = 4 };

/* A box of elements of a tensor: [begin, end) in each dimension. rank -1: empty (a scalar has no
 * extents that could be empty). */
typedef struct trmi_box {
    int32_t rank;
    int64_t begin[TRM_MAX_RANK], end[TRM_MAX_RANK];
} trmi_box;

/* A record that a higher room attaches to an operator. Graph copies its bytes with the operator and
 * does not read them; the record must not point to memory of a graph. */
typedef struct trmi_attachment {
    size_t bytes; /* of the whole record, this member included */
} trmi_attachment;

/* Attributes of an operator; its kind determines the member of the union. */
typedef struct trmi_attrs {
    union {
        struct {
            trm_init init;  /* how first values are made */
            bool trainable; /* parameter: updated; else it is frozen */
            bool undecayed; /* parameter: without weight decay (trm_exclude_from_decay) */
            bool all_rows;  /* parameter: updated as a whole (trm_update_all_rows) */
            /* parameter: a parameter server fills it before each training step (graph/detach.h) */
            bool remote;
            /* rows of a table: name of the integer input that holds their ids; NULL = unknown */
            const char *keys;
        } leaf;
        struct {
            const void *data; /* in the graph's arena */
            int64_t bytes;
            bool seed; /* d(loss)/d(loss): the executor writes the loss scale here */
        } constant;
        struct {
            int64_t stride[2], dilation[2], pad[4], groups; /* pad: top, bottom, left, right */
            int64_t shape[4]; /* gradients: shape of the result (x or w) */
        } conv;
        struct {
            bool transpose_a, transpose_b;
            bool relu;         /* LINEAR: a fused ReLU follows */
            bool inputs_first; /* LINEAR: weights are [I, O] */
            /* MATMUL: all leading dimensions of a are its rows; with transpose_a those of b, too */
            bool rows;
            /* MATMUL: computes only these columns of B'; columns 0 = all */
            int64_t begin, columns;
        } matmul; /* LINEAR too */
        struct {
            double epsilon, momentum; /* momentum: weight of the new value */
            bool relu;                /* fused kinds */
            bool residual;            /* fused kinds */
            /* NORM_ACT_GRAD: the ReLU mask is computed from y, which is then an input */
            bool from_y;
        } norm;
        struct {
            double epsilon;
        } layer_norm; /* RMS_NORM too */
        struct {
            bool tanh; /* the approximation by tanh; else by erf */
        } gelu;
        struct {
            /* heads of queries; heads of keys and values, each read by heads / kv_heads of the
             * former */
            int64_t heads, kv_heads;
            bool causal;   /* a query reads only keys up to its own position */
            double scale;  /* factor of the scores */
            int64_t begin; /* position among the keys of query 0 */
        } attention;
        struct {
            int64_t columns, k; /* TOP_K: k; TOP_K_GRAD: columns of x */
        } top_k;
        struct {
            bool transposed; /* EXPERT_LINEAR: rows times w instead of w^T, a gradient */
            int64_t experts; /* EXPERT_GRAD_WEIGHTS: of the result */
        } expert;
        struct {
            double theta;  /* base of the angles */
            int64_t begin; /* position of row 0 */
            bool inverse;  /* gradient */
        } rotary;
        struct {
            /* height and width; pad: top, bottom, left, right */
            int64_t kernel[2], stride[2], pad[4];
            bool count_padding; /* AVG_POOL: means count pixels of the padding */
            int64_t shape[4];   /* gradients: the shape of x */
        } pool;
        struct {
            double factor; /* y = factor x */
        } scale;
        struct {
            double rate; /* share of the values that become zero */
            /* selects the stream of random masks: the number of the dropout in its graph */
            uint64_t key;
        } dropout;
        struct {
            trm_dtype dtype;
        } cast;
        struct {
            trm_shape shape;
            /* BROADCAST to samples, in graphs with blocks of samples: rows of one block; 0 =
             * none */
            int64_t block_rows;
        } shape; /* RESHAPE, BROADCAST, gradients that need a target */
        struct {
            int32_t order[TRM_MAX_RANK]; /* dimension i of y is dimension order[i] of x */
        } transpose;
        struct {
            int32_t axis;
        } concat;
        struct {
            int64_t begin[TRM_MAX_RANK], size[TRM_MAX_RANK];
        } slice;
        struct {
            int64_t before[TRM_MAX_RANK], after[TRM_MAX_RANK]; /* elements added */
            double value;
        } pad;
        struct {
            int64_t classes;
            double on, off; /* the value of the class, of all others */
        } one_hot;
        struct {
            uint32_t axes;  /* bit i: dimension i is reduced */
            bool keep_dims; /* reduced dimensions stay, with 1 element */
        } reduce;
        struct {
            double label_smoothing; /* share of the target for all classes */
            bool use_ignore_index;  /* rows of this label have no loss */
            int32_t ignore_index;
            bool predicts;        /* LINEAR_XENT: output 1 is the class with the largest logit */
            double counted_share; /* LINEAR_XENT: of the rows, as expected; 0: all */
        } xent;                   /* LINEAR_XENT too */
        struct {
            int64_t rows; /* EMBEDDING_GRAD: rows of the table */
        } embed;
        struct {
            trm_bag_pooling pooling;
            int64_t rows; /* BAG_POOL_GRAD: number of rows that were pooled */
            /* only `bags` bags are made; offsets and weights are those of more rows and bags */
            bool some;
            int64_t bags;
        } bag;
        struct {
            const trm_custom_op *op; /* the user's; its functions outlive the graph */
        } custom;
    };
    const trmi_attachment *attached; /* by a higher room; NULL = nothing */
} trmi_attrs;

/* Whether an operator was written by the user or by differentiation. */
typedef enum trmi_phase { TRMI_FORWARD, TRMI_BACKWARD } trmi_phase;

/* A value of a graph. */
typedef struct trmi_value {
    int32_t op;     /* operator that makes it */
    int32_t output; /* which of its outputs */
    trm_dtype dtype;
    trm_shape shape;
} trmi_value;

/* An operator of a graph. */
typedef struct trmi_op {
    trmi_op_kind kind;
    trmi_phase phase;
    const char *name;
    /* backward: name of the operator whose gradient this is a part of; or NULL */
    const char *origin;
    int32_t inputs_count, outputs_count;
    int32_t *inputs;                      /* value ids; 0 = absent optional input */
    int32_t outputs[TRMI_OP_OUTPUTS_MAX]; /* value ids */
    trm_dtype output_dtype;               /* dtype of output 0; NONE = by the shape rule */
    trmi_attrs attrs;
} trmi_op;

/* Scopes that are open at a time, at most. */
enum { TRMI_SCOPES_MAX = 32 };
/* A graph. Names, attributes and lists lie in its arena. */
struct trm_graph {
    const struct trmi_op_def *const *rows; /* [TRMI_OP_KINDS] what each operator means */
    bool training;
    trmi_arena arena;
    trmi_op *ops;
    int64_t ops_count, ops_capacity;
    trmi_value *values;
    int64_t values_count, values_capacity;
    trmi_phase phase;                 /* phase of operators that are added */
    char scope[256];                  /* prefix of names, "a.b." */
    uint16_t scopes[TRMI_SCOPES_MAX]; /* length of the scope before each push */
    int32_t scopes_count;
    /* scopes that are segments (trm_graph_mark_segment), each with its last point: "h.0." */
    const char **segments;
    int64_t segments_count, segments_capacity;
    int64_t unnamed[TRMI_OP_KINDS]; /* counters for default names */
    trm_error first_error;          /* status 0 = none */
};

/* Work of one operator: floating-point operations (2 per multiply-add) and compulsory memory
 * traffic. */
typedef struct trmi_cost {
    double flops, bytes;
    /* Part of bytes that a first pass reads and writes, which must end before the rest begins; 0 =
     * one pass. */
    double first_read, first_written;
} trmi_cost;

/* One row of the table of operators: its meaning on one device. How it is partitioned is in
 * plan/partition/operator_loops.c. */
typedef struct trmi_op_def {
    const char *name;
    /* Checks inputs; sets shape and dtype of graph->values[op->outputs[i]]. */
    trm_status (*infer)(trm_graph *graph, trmi_op *op, trm_error *err);
    /* Writes the gradient d_inputs[i] of each input, given the gradients of the outputs (id 0 =
     * zero; at least one is not). d_inputs is preset to TRM_NO_NODE. NULL: no gradient flows to any
     * input. */
    void (*gradient)(trm_graph *graph, const trmi_op *op, const trm_node *d_outputs,
                     trm_node *d_inputs);
    /* Returns the cost. NULL: no arithmetic; bytes = all inputs and outputs once. */
    trmi_cost (*cost)(const trm_graph *graph, const trmi_op *op);
} trmi_op_def;

extern const trmi_op_def *const trmi_op_table[TRMI_OP_KINDS];

/* Returns the table row of an operator. */
static inline const trmi_op_def *trmi_op_def_of(const trmi_op *op) {
    return trmi_op_table[op->kind];
}
/* Returns whether an operator is a leaf: its value comes from outside the graph. */
static inline bool trmi_is_leaf(const trmi_op *op) {
    return op->kind == TRMI_OP_INPUT || op->kind == TRMI_OP_PARAMETER ||
           op->kind == TRMI_OP_STATE || op->kind == TRMI_OP_CONSTANT;
}
/* Returns a value by its id. */
static inline const trmi_value *trmi_value_of(const trm_graph *graph, int32_t id) {
    return &graph->values[id];
}
/* Returns the operator that makes a value; for value 0 the unused operator 0. */
static inline const trmi_op *trmi_maker_of(const trm_graph *graph, int32_t value) {
    return &graph->ops[graph->values[value].op];
}
/* Returns the operator that makes a value if it is of this kind; else NULL. */
static inline const trmi_op *trmi_made_by(const trm_graph *graph, int32_t value,
                                          trmi_op_kind kind) {
    const trmi_op *op = trmi_maker_of(graph, value);
    return value != 0 && op->kind == kind ? op : NULL;
}
/* Returns the parameter that `value` is, directly or cast to another precision; NULL: it is not a
 * parameter. */
static inline const trmi_op *trmi_parameter_of(const trm_graph *graph, int32_t value) {
    const trmi_op *cast = trmi_made_by(graph, value, TRMI_OP_CAST);
    return trmi_made_by(graph, cast != NULL ? cast->inputs[0] : value, TRMI_OP_PARAMETER);
}
/* Returns the shape of a tensor as a matrix: all leading dimensions are rows. */
static inline trm_shape trmi_as_rows(const trm_shape *shape) {
    trm_shape matrix = {.rank = 2, .dim = {1, shape->rank > 0 ? shape->dim[shape->rank - 1] : 1}};
    for (int32_t i = 0; i < shape->rank - 1; i++) {
        matrix.dim[0] *= shape->dim[i];
    }
    return matrix;
}
/* Returns input i of an operator; NULL: absent. */
static inline const trmi_value *trmi_input_of(const trm_graph *graph, const trmi_op *op, int i) {
    return i < op->inputs_count && op->inputs[i] != 0 ? &graph->values[op->inputs[i]] : NULL;
}
/* Returns output i of an operator. */
static inline const trmi_value *trmi_output_of(const trm_graph *graph, const trmi_op *op, int i) {
    return &graph->values[op->outputs[i]];
}

/* Returns output i of the operator that trmi_graph_add has added; TRM_NO_NODE for index 0. */
static inline trm_node trmi_graph_node(const trm_graph *graph, int32_t index, int32_t i) {
    return index == 0 ? TRM_NO_NODE : (trm_node){graph->ops[index].outputs[i]};
}

/* Adds an operator and returns its index; 0 if an input is broken or a rule is violated: the graph
 * keeps the first error and accepts no further operators.
 *   name     NULL = "<row><counter>"; the scope is prefixed
 *   outputs  number of outputs
 *   attrs    copied; memory that it points to must be in the graph's arena; NULL = zeros */
int32_t trmi_graph_add(trm_graph *graph, trmi_op_kind kind, const char *name,
                       const trm_node *inputs, int32_t inputs_count, int32_t outputs,
                       const trmi_attrs *attrs);
/* Adds an operator with one output and returns its node; TRM_NO_NODE after an error. */
trm_node trmi_graph_add1(trm_graph *graph, trmi_op_kind kind, const char *name,
                         const trm_node *inputs, int32_t inputs_count, const trmi_attrs *attrs);
/* Adds a KEYED_LINEAR: y = [rows, dense] w^T + bias; dense and bias may be TRM_NO_NODE. Rows of a
 * field with equal ids must be equal; of their gradients only the sum is defined. */
trm_node trmi_graph_keyed_linear(trm_graph *graph, trm_node rows, trm_node ids, trm_node weights,
                                 trm_node dense, trm_node bias);
/* Returns whether the elements of a shape, and the bytes of several such values, fit into 64 bits.
 */
bool trmi_shape_possible(const trm_shape *shape);
/* Records an error in the graph; only the first one is kept. */
void trmi_graph_fail(trm_graph *graph, const trm_error *err);
/* Writes the error of a user's function: its message `why` (zeroed before the call), or that it
 * left none. Returns the status. */
trm_status trmi_custom_failed(const trm_custom_op *custom, const char *function, trm_status status,
                              const trm_error *why, trm_error *err);
/* Copies a graph completely.   owns  caller.   errors  NOMEM */
trm_status trmi_graph_clone(const trm_graph *graph, trm_graph **out, trm_error *err);
/* Returns the number of the innermost segment that an operator of this name belongs to, from 1; 0 =
 * none. */
int32_t trmi_segment_of(const trm_graph *graph, const char *name);
/* Copies the segments of a graph into one that has none. Errors are kept by `to`. */
void trmi_graph_copy_segments(const trm_graph *from, trm_graph *to);
/* Creates a graph of the operators in `rows`. trm_graph_create passes the table of all. */
trm_status trmi_graph_open(const trmi_op_def *const *rows, bool training, trm_graph **out,
                           trm_error *err);
/* Copies the memory that an operator's attributes point to (constants, names) into the graph's
 * arena, for an operator that is added. False: no memory. */
bool trmi_graph_own_attrs(trm_graph *graph, trmi_op_kind kind, trmi_attrs *attrs);
/* Sums x over the dimensions that broadcasting added, so that the result has `shape`. */
trm_node trmi_sum_to(trm_graph *graph, trm_node x, const trm_shape *shape);
/* Returns the cost of an operator, by its row or the default. */
trmi_cost trmi_op_cost(const trm_graph *graph, const trmi_op *op);

/* Sets dtype and shape of an output; for shape rules. */
void trmi_set_output(trm_graph *graph, trmi_op *op, int output, trm_dtype dtype, trm_shape shape);

/* Writes a value for messages: "conv1 [32, 64, 8, 8] float32". Returns text. */
const char *trmi_value_text(const trm_graph *graph, int32_t id, char *text, size_t size);

/* An initialiser as numbers: a constant `value`, or random numbers of `stream` times `scale`:
 * normal, or uniform in +-scale. Element i is number i % 4 of Philox block i / 4. */
typedef struct trmi_init_rule {
    enum { TRMI_INIT_CONSTANT, TRMI_INIT_UNIFORM, TRMI_INIT_NORMAL } kind;
    double value, scale; /* value: only of CONSTANT; scale: of the others */
    uint64_t stream;     /* from the name of the leaf (base/rng.h) */
} trmi_init_rule;
/* Returns the rule of an initialiser for a leaf of this name and shape. */
trmi_init_rule trmi_init_rule_of(trm_init init, const char *name, const trm_shape *shape);
/* Fills the part `box` of a leaf of shape `shape`: the same numbers as in the whole leaf. */
void trmi_init_fill_box(trm_init init, uint64_t seed, const char *name, const trm_shape *shape,
                        const trmi_box *box, trm_dtype dtype, void *data);
/* Fills `data` (plain layout) with the initial value of a leaf: a function of (seed, name,
 * element). */
void trmi_init_fill(trm_init init, uint64_t seed, const char *name, const trm_shape *shape,
                    trm_dtype dtype, void *data);

#endif
