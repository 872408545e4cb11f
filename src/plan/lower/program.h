/* SPDX-License-Identifier: Apache-2.0 */
/* plan/lower/program.h: the compiled program, plain data: printable, diffable, testable without
 * running.
 *
 *      graph --passes--> rewritten graph --layouts--> --memory plan--> program
 *
 *      steps:    [0] norm  [1] conv2d  [2] norm_act ... [k] all_reduce bucket 3 ... [n] update
 *                   |          |  reads and writes buffers by index
 *      buffers:  [0 absent] [1] image: INPUT+0  [2] conv1.weight: PARAM+128  [3] conv1: ACTIVATION+0 ...
 *                                            |
 *      arenas:   INPUT  PARAM  GRAD  SLOT  STATE  CONSTANT  ACTIVATION  SCRATCH
 *
 * PARAM and GRAD have the same offsets for the same parameter, ordered by when backward finishes
 * each gradient, so that a gradient bucket, a slice of the optimiser and a message are ranges. An
 * executed step walks the array: no allocation, no parsing, no lookup by name.
 */
#ifndef TRMI_PLAN_PROGRAM_H
#define TRMI_PLAN_PROGRAM_H

#include "graph/graph_ir.h"

typedef enum trmi_arena_id {
    TRMI_ARENA_NONE,
    TRMI_ARENA_INPUT, /* fed by the caller before a step */
    TRMI_ARENA_PARAM, /* float32 masters; shared memory when ranks share a host */
    TRMI_ARENA_GRAD,  /* as PARAM */
    TRMI_ARENA_SLOT,  /* optimiser slots: k float32 copies of PARAM's extent */
    TRMI_ARENA_STATE, /* running statistics and the like; saved */
    TRMI_ARENA_CONSTANT,
    TRMI_ARENA_ACTIVATION, /* planned by liveness; values share bytes over time */
    TRMI_ARENA_SCRATCH,    /* inside one step */
    /* bfloat16 copies of PARAM that the ranks of a host share; empty as planned */
    TRMI_ARENA_CAST,
    /* activations of all ranks of a host, one rank's behind the other's: lower_joint.c */
    TRMI_ARENA_JOINT,
    TRMI_ARENAS
} trmi_arena_id;

/* How the elements of a buffer lie. The shape is always the mathematical one. */
typedef enum trmi_layout {
    TRMI_PLAIN,         /* row-major as the shape says: NCHW, OIHW */
    TRMI_CHANNELS_LAST, /* rank 4: images NHWC; conv weights HWIO (the matmul's right side) */
    TRMI_BLOCKED16,     /* rank 4: images nChw16c; conv weights OIhw16i16o; channels padded to 16 */
    TRMI_LAYOUTS
} trmi_layout;

typedef struct trmi_buffer {
    const char *name; /* of the value's operator; parameters: the checkpoint's name */
    trm_dtype dtype;
    trm_shape shape;
    trmi_layout layout;
    bool weights; /* rank 4 in the form of convolution weights */
    trmi_arena_id arena;
    int64_t offset, bytes;
    int32_t value;                 /* in the program's graph */
    int32_t first_step, last_step; /* liveness */
    /* shares the bytes of this buffer (reshape, in place); 0 = none */
    int32_t alias_of;
} trmi_buffer;

typedef enum trmi_step_kind {
    TRMI_STEP_OP,     /* an operator of the graph; `op` is its index there */
    TRMI_STEP_REORDER /* in[0] -> out[0]: the same value in another layout, or a copy */
} trmi_step_kind;

typedef struct trmi_step {
    trmi_step_kind kind;
    trmi_op_kind op_kind;
    trmi_phase phase;
    int32_t op;
    const char *name;
    const trmi_attrs *attrs;
    int32_t inputs_count, outputs_count;
    const int32_t *inputs;  /* buffer indices, 0 = absent */
    const int32_t *outputs; /* buffer indices, 0 = nobody reads it */
    trmi_cost cost;
    double predicted_seconds;
    int64_t scratch_bytes; /* as the backend asked when the plan was made */
    /* each rank makes a slice of its output, from all ranks' samples: lower_joint.c */
    bool joint;
    double work_flops; /* that must be done, where the back-end knows; else cost.flops */
    /* by the algorithm instead, in float32 whatever the types are; 0 = none */
    double work_float32;
    const char *algorithm; /* "winograd4x3", "matmul", ...: the backend's choice, for people */
} trmi_step;

/* Gradients of matrices stay in factors of at most so many rows, where they have at least so many
 * elements: a product of more rows is bound by arithmetic, and a small matrix by nothing. */
enum { TRMI_FACTORS_MOST = 32, TRMI_FACTORS_FROM = 1 << 16 };

/* A parameter's place in PARAM and GRAD. */
typedef struct trmi_param {
    const char *name;
    int32_t param_buffer; /* index in buffers */
    int32_t grad_buffer;  /* 0: not trained, or its gradient is sparse, or in factors */
    int32_t sparse_ids;   /* sparse gradient: buffer of ids ... */
    int32_t sparse_rows;  /* ... and of d(rows); 0 = dense */
    int32_t factor_left;  /* gradient in factors: left^T right, buffers [n, rows] ... */
    int32_t factor_right; /* ... and [n, columns]; 0 = not in factors */
    bool table;           /* an embedding table whose gradient is dense, but only of lookups */
    trm_init init;
    bool remote;        /* filled and updated by somebody else: no part of update and reduction */
    int32_t ready_step; /* the step after which its gradient is complete */
    uint32_t grad_axes; /* split programs: mesh axes over which it is still to be summed */
} trmi_param;

struct trmi_shard_plan;
struct trmi_shard_leaf;
struct trmi_shard_report;
struct trmi_prices;

struct trm_program {
    trmi_arena arena; /* owns names and the small arrays of steps */
    trm_graph *graph; /* after the passes; owned */
    bool training;
    trmi_step *steps;
    int32_t steps_count;
    trmi_buffer *buffers; /* [0] is unused: index 0 = absent */
    int32_t buffers_count;
    trmi_param *params; /* in PARAM order */
    int32_t params_count;
    int32_t *states; /* buffer indices */
    int32_t states_count;
    int32_t *inputs; /* buffer indices */
    int32_t inputs_count;
    int32_t *outputs; /* buffer indices in the order asked; they live to the end of the step */
    int32_t outputs_count;
    int64_t arena_bytes[TRMI_ARENAS];
    int64_t untouched_bytes; /* of GRAD, at its end: gradients that stay in factors */
    int32_t backward_begin;  /* first backward step; steps_count when there is none */
    /* first joint step, behind all others; steps_count when there is none */
    int32_t joint_begin;
    int32_t joint_ranks; /* that make them together, each with samples of its own */
    double plan_seconds;
    /* One rank's part of a graph that is split over a mesh (plan/shard/sharding.h); NULL and 0
     * otherwise. */
    struct trmi_shard_leaf *leaves; /* inputs, parameters and states: which part of the whole */
    int32_t leaves_count;
    /* every rank has an equal part of each input's samples, all else is whole: data parallel's
     * program */
    bool by_samples;
    /* ... and its loss is that of its own samples, until ranks agree on their mean */
    bool own_loss;
};
typedef struct trm_program trm_program;

/* What the plan asks of a back-end; the back-end fills it, plan never includes exec. Costs are
 * measured (and cached) by the back-end, or NULL for the built-in roofline. */
typedef struct trmi_target {
    void *context;
    const char *name;
    int threads;
    /* May the plan make these operators? */
    bool fuse_norm_act, fuse_conv_bias, recompute_norm_act, fuse_xent, fuse_product, fuse_keyed;
    bool channels_last, blocked16; /* layouts that its kernels know beside PLAIN */
    bool bf16;
    bool joint; /* has kernels for joint steps */
    /* Can this operator run with all its rank-4 tensors in `layout` (weights in the layout's form)?
     */
    bool (*supports)(void *context, const trm_graph *graph, const trmi_op *op, trmi_layout layout);
    /* Seconds of the operator in that layout; < 0 = unknown (the roofline is used). */
    double (*seconds)(void *context, const trm_graph *graph, const trmi_op *op, trmi_layout layout);
    /* Bytes of scratch that the step will need; NULL = 0 for all. */
    int64_t (*scratch)(void *context, const trm_program *program, const trmi_step *step);
    /* May output 0 share the bytes of input `input` when that input dies here? NULL = never. */
    bool (*in_place)(void *context, const trm_graph *graph, const trmi_op *op, int input);
    double flops_per_second, bytes_per_second; /* of this machine, for the roofline */
} trmi_target;

/* Bytes of a tensor in a layout (BLOCKED16 pads channels). */
int64_t trmi_layout_bytes(trm_dtype dtype, const trm_shape *shape, trmi_layout layout,
                          bool weights);
const char *trmi_layout_name(trmi_layout layout);

/* The buffer whose bytes this one has: itself, or the last of its aliases. */
int32_t trmi_buffer_root(const trm_program *program, int32_t buffer);
/* The number that backward begins with, where a loss scale and a mean over ranks are written; 0:
 * there is none. */
int32_t trmi_seed_buffer(const trm_program *program);

typedef struct trmi_plan_options {
    const trmi_target *target; /* NULL = the plain target of the reference back-end */
    /* its gradients are wanted when the graph trains; else TRM_NO_NODE */
    trm_node loss;
    const trm_node *outputs; /* values to keep to the end of the step */
    int32_t outputs_count;
    int32_t precision; /* trm_precision of trireme/plan.h */
    bool no_fusion, no_recompute;
    bool dense_gradients; /* embeddings too: gradients are to be accumulated */
    /* those of large matrices that are products of few rows stay in factors */
    bool factored_gradients;
    int32_t layout;      /* 0 = choose, else trmi_layout + 1 */
    int32_t joint_ranks; /* ranks of one host that may make gradients jointly; 0 = none */
    bool joint_products; /* those of matrix products, too */
    /* split: batch norm over each rank's samples, not over all (rows and columns of images stay
     * joined) */
    bool local_norms;
    /* Split over the plan's mesh: the program of `rank`. NULL = whole. */
    const struct trmi_shard_plan *shard;
    const struct trmi_prices *prices; /* NULL = built in */
    int32_t rank;
    struct trmi_shard_report *report; /* filled in; may be NULL */
} trmi_plan_options;

/* Compiles a copy of the graph: differentiate, rewrite, lay out, place.
 *   owns  caller destroys *out     error  INVALID (broken graph, loss not scalar), NOMEM     thread any
 */
trm_status trmi_plan_create(const trm_graph *graph, const trmi_plan_options *options,
                            trm_program **out, trm_error *err);
void trmi_plan_destroy(trm_program *program);

#endif
