/* SPDX-License-Identifier: Apache-2.0 */
/* graph/graph_ir.h: the graph as the other rooms read it.
 *
 *      ops:    [0 unused] [1] [2] ...          in topological order, always
 *      values: [0 broken] [1] [2] ...          op 3's outputs are consecutive values
 *
 *                   inputs (value ids)                outputs (value ids)
 *      value 4 ---\                             /---- value 7  y
 *      value 5 ----> op 3: BATCH_NORM, attrs -------- value 8  save_mean
 *      value 6 ---/                             \---- value 9  save_inv_std
 */
#ifndef TRMI_GRAPH_GRAPH_IR_H
#define TRMI_GRAPH_GRAPH_IR_H

#include "trireme/graph.h"

#include "base/memory.h"

typedef enum trmi_op_kind {
    TRMI_OP_NONE = 0,
#define X(KIND, row) TRMI_OP_##KIND,
#include "graph/ops.def"
#undef X
    TRMI_OP_KINDS
} trmi_op_kind;

enum { TRMI_OP_OUTPUTS_MAX = 4 };

/* A part of a tensor: [begin, end) in each dimension. rank -1: nothing of it (a scalar has no
 * extents). */
typedef struct trmi_box {
    int32_t rank;
    int64_t begin[TRM_MAX_RANK], end[TRM_MAX_RANK];
} trmi_box;

typedef enum trmi_combine {
    TRMI_COMBINE_NONE,
    TRMI_COMBINE_SUM,
    TRMI_COMBINE_MAX,
    TRMI_COMBINE_MIN
} trmi_combine;

/* EXCHANGE: what each member of a group of ranks has and wants of one global tensor. Elements that
 * nobody has are zero. Boxes are in coordinates of the global tensor; empty boxes are allowed. */
typedef struct trmi_exchange_attrs {
    uint32_t axes; /* mesh axes in which the members differ; 0: this rank by itself */
    int32_t members, self;
    /* what several have is put together, in the order of the members; NONE: equal copies; MAX, MIN:
     * each has all that anyone wants */
    trmi_combine combine;
    trmi_box held;               /* the input tensor of this rank; has[self] lies inside */
    const trmi_box *has, *wants; /* [members]; in the graph's arena */
} trmi_exchange_attrs;

/* Attributes of every kind that has some; the kind says which member holds. */
typedef union trmi_attrs {
    struct {
        trm_init init;
        bool trainable;
        /* parameter: filled before each step by its owner elsewhere (graph/detach.h) */
        bool remote;
        /* rows of a table: the integer input that names them, of one shape; NULL = unknown */
        const char *keys;
    } leaf;
    struct {
        const void *data; /* in the graph's arena */
        int64_t bytes;
        bool seed; /* d(loss)/d(loss): where a loss scale is written */
    } constant;
    struct {
        int64_t stride[2], dilation[2], pad[4], groups; /* pad: top, bottom, left, right */
        int64_t shape[4]; /* gradients: the shape of what is produced (x or w) */
    } conv;
    struct {
        bool transpose_a, transpose_b;
        bool relu;              /* LINEAR: fused behind it */
        int64_t begin, columns; /* MATMUL: only these columns of B'; columns 0 = all */
    } matmul;                   /* LINEAR too */
    struct {
        double epsilon, momentum;
        bool relu;     /* fused kinds */
        bool residual; /* fused kinds */
        bool from_y;   /* NORM_ACT_GRAD: the mask comes from y, which is then an input */
        uint32_t sync; /* mesh axes over which the statistics are taken together; 0 = this rank's */
    } norm;
    struct {
        int64_t kernel[2], stride[2], pad[4];
        bool count_padding;
        int64_t shape[4]; /* gradients: the shape of x */
        int64_t pixels;   /* GLOBAL_AVG_POOL_GRAD: that the mean was over, 0 = those here */
    } pool;
    struct {
        double factor;
    } scale;
    struct {
        double rate;
        uint64_t key; /* mask stream: a function of the operator's name */
        bool part;    /* of a global tensor: its shape, and where this part begins */
        int64_t begin[TRM_MAX_RANK], global[TRM_MAX_RANK];
    } dropout;
    struct {
        trm_dtype dtype;
    } cast;
    struct {
        trm_shape shape;
    } shape; /* RESHAPE, BROADCAST, gradients that need a target */
    struct {
        int32_t order[TRM_MAX_RANK];
    } transpose;
    struct {
        int32_t axis;
    } concat;
    struct {
        int64_t begin[TRM_MAX_RANK], size[TRM_MAX_RANK];
    } slice;
    struct {
        int64_t before[TRM_MAX_RANK], after[TRM_MAX_RANK];
        double value;
    } pad;
    struct {
        int64_t classes;
        double on, off;
        int64_t begin; /* the label of column 0 */
    } one_hot;
    struct {
        uint32_t axes; /* bit i: dimension i is reduced */
        bool keep_dims;
    } reduce;
    struct {
        double label_smoothing;
        bool use_ignore_index;
        int32_t ignore_index;
        /* Logits of a part of the classes, or of the samples: */
        uint32_t sync_classes, sync_samples; /* mesh axes that hold the other parts */
        /* label of column 0; all classes, 0 = the columns here */
        int64_t begin, classes;
        /* of all ranks, where that is known: the loss is then that of those here; 0 = as they say
         */
        int64_t samples;
    } xent;
    struct {
        int64_t rows; /* EMBEDDING_GRAD: rows of the table */
        bool part;    /* rows [begin, begin + rows of the table) only: other ids give zeros */
        int64_t begin, global; /* ... of `global` rows */
    } embed;
    struct {
        uint32_t axes;        /* of the mesh */
        trmi_combine combine; /* not NONE */
    } all_reduce;
    struct {
        const trmi_exchange_attrs *what;
    } exchange;
    struct {
        const struct trmi_exact *what; /* EXACT_SUM, EXACT_ROUND */
    } exact;
    struct {
        int64_t count; /* BCE_LOGITS_GRAD: elements of the mean, 0 = those here */
    } bce;
    struct {
        trm_bag_pooling pooling;
        int64_t rows; /* BAG_POOL_GRAD: of what was pooled */
        /* offsets and weights are those of all `global` rows; here are bags [bag, bag + bags) of
         * the rows */
        bool part;
        int64_t bag, bags, begin, global; /* ... from `begin` on */
    } bag;
    struct {
        const trm_custom_op *op;
    } custom;
} trmi_attrs;

/* EXACT_SUM: what an operator adds up, in integers of a unit that the largest inputs of all ranks
 * decide, so that no order of additions and no cut changes a bit. EXACT_ROUND: from there to
 * numbers. */
typedef struct trmi_exact {
    trmi_op_kind kind; /* the operator whose sums these are */
    trmi_attrs attrs;  /* its attributes, of this rank's part */
    trm_shape shape;   /* of the output here */
    int64_t terms;     /* that the whole operator adds up for one output, at most */
    double divide;     /* ROUND: a mean's count, else 1 */
    trm_dtype dtype;   /* ROUND: of the output */
} trmi_exact;

typedef enum trmi_phase { TRMI_FORWARD, TRMI_BACKWARD } trmi_phase;

typedef struct trmi_value {
    int32_t op;     /* the operator that makes it */
    int32_t output; /* which of its outputs */
    trm_dtype dtype;
    trm_shape shape;
} trmi_value;

typedef struct trmi_op {
    trmi_op_kind kind;
    trmi_phase phase;
    const char *name;
    /* backward: the name of the operator whose gradient this is part of; or NULL */
    const char *origin;
    int32_t inputs_count, outputs_count;
    int32_t *inputs;                      /* value ids; 0 = absent optional input */
    int32_t outputs[TRMI_OP_OUTPUTS_MAX]; /* value ids */
    trm_dtype output_dtype; /* output 0 is made in this dtype; NONE = as the shape rule says */
    trmi_attrs attrs;
} trmi_op;

enum { TRMI_SCOPES_MAX = 32 };
struct trm_graph {
    bool training;
    bool local_norms; /* of a graph that is to be cut: batch norm over each rank's samples */
    /* of a graph that is to be cut (trmi_shard_graph): large matrices' gradients may stay in
     * factors */
    bool factored_gradients;
    trmi_arena arena;
    trmi_op *ops;
    int64_t ops_count, ops_capacity;
    trmi_value *values;
    int64_t values_count, values_capacity;
    trmi_phase phase;                 /* of operators being added */
    char scope[256];                  /* of names, "a.b." */
    uint16_t scopes[TRMI_SCOPES_MAX]; /* length of the scope before each push */
    int32_t scopes_count;
    int64_t unnamed[TRMI_OP_KINDS]; /* counters for default names */
    trm_error first_error;          /* status 0 = none */
};

/* Work of one operator: floating-point operations (2 per multiply-add) and compulsory traffic. */
typedef struct trmi_cost {
    double flops, bytes;
    /* Of bytes: what a first pass reads and writes that must end before the rest begins; 0 = there
     * is one pass. */
    double first_read, first_written;
} trmi_cost;

/* One row of the op table: everything that the operator means on one device. How it is cut over
 * ranks is its row in plan/shard/shard_loops.c. */
typedef struct trmi_op_def {
    const char *name;
    /* Checks inputs, sets shape and dtype of graph->values[op->outputs[i]] (and outputs_count). */
    trm_status (*infer)(trm_graph *graph, trmi_op *op, trm_error *err);
    /* Writes d_inputs[i] for each input from the op's values and d_outputs (id 0 = zero; at least
     * one is not). Pre-set to TRM_NO_NODE. NULL: no gradient flows to any input. */
    void (*gradient)(trm_graph *graph, const trmi_op *op, const trm_node *d_outputs,
                     trm_node *d_inputs);
    /* NULL: no arithmetic; bytes = all inputs and outputs once. */
    trmi_cost (*cost)(const trm_graph *graph, const trmi_op *op);
} trmi_op_def;

extern const trmi_op_def *const trmi_op_table[TRMI_OP_KINDS];

static inline const trmi_op_def *trmi_op_def_of(const trmi_op *op) {
    return trmi_op_table[op->kind];
}
/* Its value comes from outside the graph, not from inputs. */
static inline bool trmi_is_leaf(const trmi_op *op) {
    return op->kind == TRMI_OP_INPUT || op->kind == TRMI_OP_PARAMETER ||
           op->kind == TRMI_OP_STATE || op->kind == TRMI_OP_CONSTANT;
}
static inline const trmi_value *trmi_value_of(const trm_graph *graph, int32_t id) {
    return &graph->values[id];
}
/* The operator that makes a value; of 0, the NONE at the graph's beginning. */
static inline const trmi_op *trmi_maker_of(const trm_graph *graph, int32_t value) {
    return &graph->ops[graph->values[value].op];
}
/* The same, if it is of this kind; else NULL. */
static inline const trmi_op *trmi_made_by(const trm_graph *graph, int32_t value,
                                          trmi_op_kind kind) {
    const trmi_op *op = trmi_maker_of(graph, value);
    return value != 0 && op->kind == kind ? op : NULL;
}
/* The parameter that `value` is, as it lies or cast to another precision; NULL: it is something
 * else. */
static inline const trmi_op *trmi_parameter_of(const trm_graph *graph, int32_t value) {
    const trmi_op *cast = trmi_made_by(graph, value, TRMI_OP_CAST);
    return trmi_made_by(graph, cast != NULL ? cast->inputs[0] : value, TRMI_OP_PARAMETER);
}
static inline const trmi_value *trmi_input_of(const trm_graph *graph, const trmi_op *op, int i) {
    return i < op->inputs_count && op->inputs[i] != 0 ? &graph->values[op->inputs[i]] : NULL;
}
static inline const trmi_value *trmi_output_of(const trm_graph *graph, const trmi_op *op, int i) {
    return &graph->values[op->outputs[i]];
}

/* Adds an operator; returns its index, 0 when an input is broken or a rule is violated (the first
 * error is then kept). `name` NULL = "<row><counter>"; the scope is prefixed. `outputs` is how many
 * outputs it has. */
int32_t trmi_graph_add(trm_graph *graph, trmi_op_kind kind, const char *name,
                       const trm_node *inputs, int32_t inputs_count, int32_t outputs,
                       const trmi_attrs *attrs);
/* The usual case: one output, its node (TRM_NO_NODE when broken). */
trm_node trmi_graph_add1(trm_graph *graph, trmi_op_kind kind, const char *name,
                         const trm_node *inputs, int32_t inputs_count, const trmi_attrs *attrs);
/* KEYED_LINEAR: y = [rows, dense] w^T + bias; dense and bias may be TRM_NO_NODE. Rows of a field
 * whose ids are equal must be equal, and only the sum of their gradients is right. */
trm_node trmi_graph_keyed_linear(trm_graph *graph, trm_node rows, trm_node ids, trm_node weights,
                                 trm_node dense, trm_node bias);
/* Can its elements be counted, and bytes of several such values be added up? */
bool trmi_shape_possible(const trm_shape *shape);
/* Keeps the first error. */
void trmi_graph_fail(trm_graph *graph, const trm_error *err);
/* What a user's function said in `why`, which was zero before, or that it said nothing. Returns the
 * status. */
trm_status trmi_custom_failed(const trm_custom_op *custom, const char *function, trm_status status,
                              const trm_error *why, trm_error *err);
/* A full copy, for passes that rewrite. */
trm_status trmi_graph_clone(const trm_graph *graph, trm_graph **out, trm_error *err);
/* Copies what an operator's attributes point at (constants, boxes) into the graph's arena. */
bool trmi_graph_own_attrs(trm_graph *graph, trmi_op_kind kind, trmi_attrs *attrs);
/* Sum over the dimensions that broadcasting added, so that the result has `shape`. */
trm_node trmi_sum_to(trm_graph *graph, trm_node x, const trm_shape *shape);
/* Cost of any operator, by its row or the default. */
trmi_cost trmi_op_cost(const trm_graph *graph, const trmi_op *op);

void trmi_set_output(trm_graph *graph, trmi_op *op, int output, trm_dtype dtype, trm_shape shape);

/* A value's full text for messages: "conv1 [32, 64, 8, 8] float32". */
const char *trmi_value_text(const trm_graph *graph, int32_t id, char *text, size_t size);

/* An initialiser as numbers: constant `value`, or drawn from `stream` and times `scale`: normal, or
 * uniform in +-scale. Element i is number i % 4 of Philox block i / 4. */
typedef struct trmi_init_rule {
    enum { TRMI_INIT_CONSTANT, TRMI_INIT_UNIFORM, TRMI_INIT_NORMAL } kind;
    double value, scale;
    uint64_t stream;
} trmi_init_rule;
trmi_init_rule trmi_init_rule_of(trm_init init, const char *name, const trm_shape *shape);
/* The same for a part of the leaf, whose whole has `shape`. */
void trmi_init_fill_box(trm_init init, uint64_t seed, const char *name, const trm_shape *shape,
                        const trmi_box *box, trm_dtype dtype, void *data);
/* Fills `data` (plain layout) with the initial value of a leaf: a function of (seed, name,
 * element). */
void trmi_init_fill(trm_init init, uint64_t seed, const char *name, const trm_shape *shape,
                    trm_dtype dtype, void *data);

#endif
