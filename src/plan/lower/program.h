/* SPDX-License-Identifier: Apache-2.0 */
/* plan/lower/program.h: the compiled program. It is plain data: it can be printed, compared and
 * tested without running it.
 *
 *      graph --passes--> rewritten graph --layouts--> --memory plan--> program
 *
 *      steps:    [0] norm  [1] conv2d  [2] norm_act ... [k] all_reduce bucket 3 ... [n] update
 *                   |          |  read and write buffers by index
 *      buffers:  [0 absent] [1] image: INPUT+0  [2] conv1.weight: PARAM+128  [3] conv1: ACTIVATION+0 ...
 *                                            |
 *      arenas:   INPUT  PARAM  GRAD  SLOT  STATE  CONSTANT  ACTIVATION  SCRATCH
 *
 * Invariants: a parameter has the same offset in PARAM and GRAD, and parameters are ordered by the
 * time at which backward finishes their gradients, frozen ones last; so a gradient bucket, a slice
 * of the optimiser and a message are ranges of bytes. To run a training step the executor walks the
 * array of program steps; it allocates nothing, parses nothing and looks up no names. */
#ifndef TRMI_PLAN_PROGRAM_H
#define TRMI_PLAN_PROGRAM_H

#include "plan/partition/part.h"

/* Bytes to a multiple of which buffers begin in their arena: a cache line. */
enum { TRMI_BUFFER_ALIGNMENT = 64 };

/* Arenas: one block of memory for all buffers of one lifetime. */
typedef enum trmi_arena_id {
    TRMI_ARENA_NONE,
    TRMI_ARENA_INPUT, /* written by the caller before a training step */
    TRMI_ARENA_PARAM, /* float32 masters; shared memory when ranks share a host */
    TRMI_ARENA_GRAD,  /* gradients, at the offsets of PARAM; before them activations */
    TRMI_ARENA_SLOT,  /* optimiser slots: k float32 arrays of the size of PARAM */
    TRMI_ARENA_STATE, /* running statistics and similar state; saved in checkpoints */
    TRMI_ARENA_CONSTANT,
    /* values of a training step; values whose lifetimes do not overlap share bytes */
    TRMI_ARENA_ACTIVATION,
    TRMI_ARENA_SCRATCH, /* work memory of one program step; all steps use the same bytes */
    /* bfloat16 copies of PARAM that the ranks of a host share; 0 bytes in a new program */
    TRMI_ARENA_CAST,
    /* activations of all ranks of a host, one rank after another, for cooperative gradients
     * (lower_cooperative.c) */
    TRMI_ARENA_COOPERATIVE,
    /* stages of a pipeline: values that live from forward to backward, one copy for each
     * micro-batch in flight (plan/pipeline/stage_lower.c) */
    TRMI_ARENA_KEPT,
    TRMI_ARENAS
} trmi_arena_id;

/* Order of the elements of a buffer in memory. The shape of a buffer is independent of it. */
typedef enum trmi_layout {
    TRMI_PLAIN,         /* row-major in the order of the shape: NCHW, OIHW */
    TRMI_CHANNELS_LAST, /* rank 4: images NHWC; conv weights HWIO (the matmul's right side) */
    TRMI_BLOCKED16,     /* rank 4: images nChw16c; conv weights OIhw16i16o; channels padded to 16 */
    TRMI_LAYOUTS
} trmi_layout;

/* A value in memory, in one layout. */
typedef struct trmi_buffer {
    /* name of the value's operator; of a parameter: its name in checkpoints */
    const char *name;
    trm_dtype dtype;
    trm_shape shape;
    trmi_layout layout;
    bool weights; /* has the form of convolution weights (rank 4) */
    trmi_arena_id arena;
    int64_t offset, bytes;
    int32_t value;                 /* value in the program's graph */
    int32_t first_step, last_step; /* first and last program step that uses it */
    /* shares the bytes of buffer alias_of (reshape, in place); 0 = own bytes */
    int32_t alias_of;
} trmi_buffer;

/* Kinds of program steps. */
typedef enum trmi_step_kind {
    TRMI_STEP_OP,     /* an operator of the graph; `op` is its index there */
    TRMI_STEP_REORDER /* copies in[0] to out[0], usually into another layout */
} trmi_step_kind;

/* A program step: a kernel call or a copy. */
typedef struct trmi_step {
    trmi_step_kind kind;
    trmi_op_kind op_kind; /* of the operator */
    trmi_phase phase;
    int32_t op;
    const char *name;
    const trmi_attrs *attrs;
    int32_t inputs_count, outputs_count;
    const int32_t *inputs;    /* buffer indices, 0 = absent */
    const int32_t *outputs;   /* buffer indices, 0 = not read by any step */
    trmi_cost cost;           /* FLOPs and bytes by definition */
    double predicted_seconds; /* by the back-end's model, or measured */
    int64_t scratch_bytes;    /* bytes of scratch that the back-end needs for it */
    /* buffer among the activations in which its scratch lies, where that is large; 0: in SCRATCH */
    int32_t scratch;
    /* its messages start so many steps before it, and it waits for them; 0: at its place
     * (lower_ahead.c) */
    int32_t ahead;
    /* cooperative gradient: each rank computes a slice of the output from the samples of all ranks
     * (lower_cooperative.c) */
    bool cooperative;
    /* floating point operations that the kernel must do, if the back-end reports them; else
     * cost.flops */
    double work_flops;
    /* operations of the chosen algorithm that are done in float32 whatever the types are; 0 = none
     */
    double work_float32;
    const char *algorithm; /* algorithm of the back-end, for reports */
    /* blocks of samples (lower_blocks.c): whole ones in the inputs, 0 = none; rows of one */
    int32_t blocks;
    int64_t block_rows;
    bool over_samples; /* ... the output is a sum over samples */
    /* ... then, for each input, the bytes from one block to the next, 0 = no samples in it */
    const int64_t *block_stride;
    /* ... and for each output; 0 = its sum over samples */
    const int64_t *block_out_stride;
} trmi_step;

/* The gradient of a matrix stays in factors if these have at most TRMI_FACTORS_MOST rows and the
 * matrix has at least TRMI_FACTORS_FROM elements: products of more rows are bound by arithmetic,
 * and small matrices gain nothing. */
enum { TRMI_FACTORS_MOST = 32, TRMI_FACTORS_FROM = 1 << 16 };

/* A parameter and the form of its gradient. */
typedef struct trmi_param {
    const char *name;
    int32_t param_buffer; /* index in buffers */
    int32_t grad_buffer;  /* 0: not trained, or the gradient is sparse or in factors */
    int32_t sparse_ids;   /* sparse gradient: buffer of ids ... */
    int32_t sparse_rows;  /* ... and of d(rows); 0 = dense */
    int32_t factor_left;  /* gradient in factors: left^T right, buffers [n, rows] ... */
    int32_t factor_right; /* ... and [n, columns]; 0 = not in factors */
    bool table;           /* an embedding table whose gradient is dense, but only of lookups */
    trm_init init;
    bool undecayed; /* without weight decay, whatever its rank */
    bool frozen; /* never changed here: no gradient, no slots; in a pipeline its owner updates it */
    /* filled and updated by a parameter server; excluded from update and reduction */
    bool remote;
    int32_t ready_step; /* program step after which its gradient is complete */
    /* partitioned programs: mesh axes over which the gradient is still to be summed */
    uint32_t grad_axes;
} trmi_param;

struct trmi_partition_plan;
struct trmi_partition_leaf;
struct trmi_partition_report;
struct trmi_prices;

/* A compiled program. The executor reads it; only the planner writes it. */
struct trm_program {
    trmi_arena arena; /* memory of names and of the arrays of steps */
    trm_graph *graph; /* graph after the passes; owned */
    bool training;
    trmi_step *steps; /* in the order in which they run */
    int32_t steps_count;
    trmi_buffer *buffers; /* [0] is unused: index 0 = absent */
    int32_t buffers_count;
    trmi_param *params; /* in PARAM order */
    int32_t params_count;
    /* of them, the first ones: GRAD and slots end where the frozen ones begin */
    int32_t trained_count;
    int32_t *states; /* buffer indices */
    int32_t states_count;
    int32_t *inputs; /* buffer indices */
    int32_t inputs_count;
    /* buffer indices: the loss, then the outputs in the given order; live until the end of the
     * training step */
    int32_t *outputs;
    int32_t outputs_count;
    int64_t arena_bytes[TRMI_ARENAS]; /* by arena, alignment included */
    /* bytes at the end of GRAD that are never written: gradients that stay in factors */
    int64_t untouched_bytes;
    /* bytes at the begin of GRAD in which activations lie until gradients are made there; 0 =
     * none */
    int64_t lent_bytes;
    int32_t backward_begin; /* first backward step; steps_count when there is none */
    /* first cooperative step; these come after all other steps; steps_count when there is none */
    int32_t cooperative_begin;
    /* ranks that take part in cooperative gradients, each with its own samples; 1 = none */
    int32_t cooperative_ranks;
    double plan_seconds; /* that the compiler took */
    /* Members of a program that is one rank's part of a partitioned graph
     * (plan/partition/partition.h); otherwise NULL and 0. leaves: which part of the global tensor
     * each input, parameter and state is */
    struct trmi_partition_leaf *leaves;
    int32_t leaves_count;
    int32_t mesh_axes; /* of the ranks among which it is divided */
    /* every rank has an equal part of the samples and everything else is whole: the program of data
     * parallel training */
    bool by_samples;
    /* ... and each rank computes the loss of its own samples; the executor averages it over ranks
     */
    bool own_loss;
    /* strict determinism: blocks of samples in the graph's inputs, before they are partitioned; 0 =
     * no blocks; samples of one */
    int32_t blocks;
    int64_t block_samples;
    struct trmi_staged *staged; /* one stage of a pipeline (plan/pipeline/stages.h); NULL = all */
};
typedef struct trm_program trm_program;

/* Capabilities of a back-end. The back-end fills this in; plan never includes exec. Costs are
 * measured and cached by the back-end; NULL = built-in roofline. */
typedef struct trmi_target {
    void *context;
    const char *name;
    int threads;
    /* fused operators and rewrites that the back-end supports */
    bool fuse_norm_act, fuse_conv_bias, recompute_cheap, fuse_xent, fuse_product, fuse_keyed;
    bool channels_last, blocked16; /* layouts that its kernels support beside PLAIN */
    bool bf16;
    bool cooperative; /* has kernels for cooperative gradients */
    /* Returns whether this operator can run with all its rank-4 tensors in `layout` (weights in the
     * form of the layout). */
    bool (*supports)(void *context, const trm_graph *graph, const trmi_op *op, trmi_layout layout);
    /* Returns the seconds of the operator in that layout; < 0 = unknown (the roofline is used). */
    double (*seconds)(void *context, const trm_graph *graph, const trmi_op *op, trmi_layout layout);
    /* Returns the bytes of scratch that the step needs; NULL = 0 for all. */
    int64_t (*scratch)(void *context, const trm_program *program, const trmi_step *step);
    /* Returns whether output 0 may share the bytes of input `input` if this is its last use; NULL =
     * never. */
    bool (*in_place)(void *context, const trm_graph *graph, const trmi_op *op, int input);
    /* Returns whether the operator's kernel can read `input`, a CAST of a float32 matrix to
     * bfloat16, from the matrix itself, which it rounds as the CAST does; NULL = never. */
    bool (*rounds)(void *context, const trm_graph *graph, const trmi_op *op, int input);
    /* of this machine, for the roofline; 0 = 1e11, 2e10 */
    double flops_per_second, bytes_per_second;
} trmi_target;

/* Finds the casts of parameters to bfloat16 that need no step, because all their readers round the
 * parameter (trmi_target.rounds). out rounded[graph->values_count] */
void trmi_plan_rounded(const trm_graph *graph, const trmi_target *target, bool *rounded);

/* Returns the bytes of a tensor in a layout (BLOCKED16 pads channels). */
int64_t trmi_layout_bytes(trm_dtype dtype, const trm_shape *shape, trmi_layout layout,
                          bool weights);
/* Returns the name of a layout; static. */
const char *trmi_layout_name(trmi_layout layout);

/* Returns the bytes in which activations lie, those that they share with gradients included. */
static inline int64_t trmi_program_activations(const trm_program *program) {
    return program->arena_bytes[TRMI_ARENA_ACTIVATION] + program->lent_bytes;
}
/* Returns the buffer that owns the bytes of `buffer`: itself, or the end of its chain of aliases.
 */
int32_t trmi_buffer_root(const trm_program *program, int32_t buffer);
/* Returns the buffer of the scalar with which backward starts; the executor writes loss scale and
 * the mean over ranks into it. 0: none. */
int32_t trmi_seed_buffer(const trm_program *program);
/* Returns which part of a leaf a partitioned program has; NULL: not partitioned, or no such leaf.
 */
const struct trmi_partition_leaf *trmi_program_leaf(const trm_program *program, const char *name);
/* Returns whether a partitioned training program leaves every parameter whole on every rank, with
 * its whole gradient: summed over all ranks, or computed whole. Each rank may then update a slice
 * of it. */
bool trmi_program_is_whole(const trm_program *program);
/* Returns whether all parameters are frozen; in a pipeline those of all stages. */
bool trmi_program_is_frozen(const trm_program *program);
/* Returns whether all ranks of a host make the parameter's gradient together (lower_cooperative.c).
 */
bool trmi_param_is_cooperative(const trm_program *program, const trmi_param *param);

/* Returns whether readers of a parameter round it: not where several batches read a cast, nor where
 * a way of training, of which `alone` is false, shares casts or reads them. */
static inline bool trmi_readers_round(int32_t accumulate, bool alone) {
    return alone && accumulate <= 1;
}

/* Options of trmi_plan_create(). Zero members mean the stated defaults. */
typedef struct trmi_plan_options {
    const trmi_target *target; /* NULL = the plain target of the reference back-end */
    /* the loss to differentiate if the graph trains; else TRM_NO_NODE */
    trm_node loss;
    const trm_node *outputs; /* values to keep until the end of the training step */
    int32_t outputs_count;
    int32_t precision; /* trm_precision of trireme/graph.h */
    bool no_fusion, no_recompute;
    bool recompute; /* segments of the graph are computed again in backward */
    /* gradients of embeddings are dense, too: sums over batches, over ranks, and programs that read
     * the range of gradients need that */
    bool dense_gradients;
    /* gradients of large matrices that are products of few rows stay in factors */
    bool factored_gradients;
    /* in training, readers of a parameter round it (trmi_target.rounds) and it gets no cast:
     * trmi_readers_round */
    bool readers_round;
    /* activations may lie in GRAD until the gradients there are made: where nothing but the update
     * reads gradients, and only before the next forward */
    bool reuse_gradients;
    int32_t layout; /* 0 = choose, else trmi_layout + 1 */
    /* ranks of one host that may compute cooperative gradients; 0 = none */
    int32_t cooperative_ranks;
    bool cooperative_products; /* cooperative gradients of matrix products, too */
    /* partitioned: gathers of parameters and messages of rings begin before their place, where
     * messages travel while steps compute (trmi_step.ahead) */
    bool messages_ahead;
    /* partitioned: batch norm over the samples of each rank, not of all ranks (rows and columns of
     * images are still combined) */
    bool local_norms;
    /* Plan by which the graph is partitioned; the program is that of `rank`. NULL = not
     * partitioned. */
    const struct trmi_partition_plan *partition;
    /* strict determinism: blocks of samples in the graph's inputs, and ranks with as many; 0 = no
     * blocks */
    int32_t blocks, block_ranks;
    const struct trmi_prices *prices; /* NULL = built in */
    int32_t rank;
    struct trmi_partition_report *report;    /* out: report of the partition; may be NULL */
    const struct trmi_stage_options *stages; /* the program is that of one stage; NULL = of all */
    /* set by trmi_plan_create itself, for its passes: what it has found in the whole graph before a
     * plan cuts it. Sums are recomputed (trmi_partition_sums); the runs of operators of stages */
    bool large_sums;
    const struct trmi_stage_map *runs;
} trmi_plan_options;

/* Compiles a copy of the graph: differentiates, rewrites, chooses layouts, places buffers.
 *   owns    caller destroys *out
 *   errors  INVALID (broken graph, loss not scalar, plan does not fit), NOMEM
 *   threads  any */
trm_status trmi_plan_create(const trm_graph *graph, const trmi_plan_options *options,
                            trm_program **out, trm_error *err);
/* Frees a program and its graph; NULL is fine. */
void trmi_plan_destroy(trm_program *program);

#endif
