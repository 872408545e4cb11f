/* SPDX-License-Identifier: Apache-2.0 */
/* plan/passes/pass.h: passes over graphs. A pass reads one graph and writes the next. It emits
 * operators in order, so the result is in topological order again; map[v] is the new value of value
 * v of the old graph.
 *
 *      clone -> fuse (forward) -> precision -> differentiate -> tidy -> fuse (backward)
 *      -> recompute -> dead code
 *
 * A pass sets map[] for every value that a later operator reads. plan.c runs the passes through
 * trmi_pass_run(). */
#ifndef TRMI_PLAN_PASS_H
#define TRMI_PLAN_PASS_H

#include "plan/lower/program.h"

/* State of a pass. */
typedef struct trmi_pass {
    const trm_graph *from;
    trm_graph *to;
    int32_t *map;  /* value of `from` -> value of `to`; 0 = not emitted (yet) */
    int32_t *uses; /* value of `from` -> number of operators that read it */
} trmi_pass;

/* Starts a pass: an empty graph `to`, an empty map, the number of readers of each value.
 *   errors  NOMEM; there is then nothing to free */
trm_status trmi_pass_begin(trmi_pass *pass, const trm_graph *from, trm_error *err);
/* Copies an operator with mapped inputs and maps its outputs. Returns its index in `to`; 0 after an
 * error, which the graph keeps. */
int32_t trmi_pass_copy(trmi_pass *pass, const trmi_op *op);
/* Emits a new operator whose inputs are values of `to`. Returns its index; 0 after an error. Maps
 * nothing. */
int32_t trmi_pass_emit(trmi_pass *pass, trmi_op_kind kind, trmi_phase phase, const char *name,
                       const int32_t *inputs, int32_t inputs_count, int32_t outputs,
                       const trmi_attrs *attrs);
/* Emits an operator of one input and one output. Returns the output; 0 after an error. */
int32_t trmi_pass_emit_unary(trmi_pass *pass, trmi_op_kind kind, trmi_phase phase, const char *name,
                             int32_t input, const trmi_attrs *attrs);
/* Emits an operator like `op`, with other inputs and attributes: kind, phase, name, origin, number
 * and dtype of its outputs are those of `op`. Returns its index; 0 after an error. */
int32_t trmi_pass_emit_like(trmi_pass *pass, const trmi_op *op, const int32_t *inputs,
                            int32_t inputs_count, const trmi_attrs *attrs);
/* Records the forward operator that operator `index` of `to` is a gradient, or a repetition, of.
 * Does nothing for index 0 and for NULL. */
void trmi_pass_set_origin(trmi_pass *pass, int32_t index, const char *origin);
/* Gives a started pass up: frees its map, uses and graph. */
void trmi_pass_cancel(trmi_pass *pass);
/* Frees map and uses. On success *out is the new graph; on error it is destroyed and the error of
 * the graph is returned. */
trm_status trmi_pass_end(trmi_pass *pass, trm_graph **out, trm_error *err);

/* Values that must survive the passes; each pass renumbers them. */
typedef struct trmi_roots {
    int32_t loss;
    int32_t *outputs;
    int32_t outputs_count;
    int32_t *params; /* value ids of parameters */
    int32_t *grads;  /* their gradients, 0 = none */
    /* of a partitioned graph: mesh axes over which gradients are still to be summed */
    uint32_t *grad_axes;
    int32_t params_count;
} trmi_roots;

/* The function of a pass. trmi_pass_run() runs it, replaces *graph by the result and renumbers the
 * roots; after an error *graph is unchanged. */
typedef trm_status (*trmi_pass_function)(trmi_pass *pass, const trmi_plan_options *options,
                                         const trmi_roots *roots, trm_error *err);
trm_status trmi_pass_run(trmi_pass_function function, const trmi_plan_options *options,
                         trm_graph **graph, trmi_roots *roots, trm_error *err);

/* ---- the passes, each in its file, plan/passes/pass_NAME.c; most fuse before differentiation, so
 * that the gradient is one operator, too ---- */

/* Replaces batch norm, addition of a residual and ReLU by NORM_ACT. */
trm_status trmi_pass_fuse_norm(trmi_pass *pass, const trmi_plan_options *options,
                               const trmi_roots *roots, trm_error *err);
/* Replaces a softmax cross-entropy of small operators by SOFTMAX_XENT. */
trm_status trmi_pass_fuse_loss(trmi_pass *pass, const trmi_plan_options *options,
                               const trmi_roots *roots, trm_error *err);
/* Strict determinism: replaces means over samples by sums, divided by the samples of all
 * ranks. */
trm_status trmi_pass_block_means(trmi_pass *pass, const trmi_plan_options *options,
                                 const trmi_roots *roots, trm_error *err);
/* Replaces a linear layer on looked-up rows by KEYED_LINEAR, which computes once an id. */
trm_status trmi_pass_fuse_keyed(trmi_pass *pass, const trmi_plan_options *options,
                                const trmi_roots *roots, trm_error *err);
/* Makes queries, keys and values of packed attention a dimension, so that ranks can cut heads. */
trm_status trmi_pass_fold_heads(trmi_pass *pass, const trmi_plan_options *options,
                                const trmi_roots *roots, trm_error *err);
/* Mixed precision: inserts casts around operators that compute in bfloat16. */
trm_status trmi_pass_precision(trmi_pass *pass, const trmi_plan_options *options,
                               const trmi_roots *roots, trm_error *err);
/* After differentiation: removes casts of gradients of weights, which are then made in float32. */
trm_status trmi_pass_tidy(trmi_pass *pass, const trmi_plan_options *options,
                          const trmi_roots *roots, trm_error *err);
/* Replaces the addition of two gradients and the operator beside it by that operator. */
trm_status trmi_pass_fuse_grad_add(trmi_pass *pass, const trmi_plan_options *options,
                                   const trmi_roots *roots, trm_error *err);
/* Puts ReLU, its gradient and slices of columns into the product before them. */
trm_status trmi_pass_fuse_product(trmi_pass *pass, const trmi_plan_options *options,
                                  const trmi_roots *roots, trm_error *err);
/* Computes some activations again in backward instead of keeping them. */
trm_status trmi_pass_recompute(trmi_pass *pass, const trmi_plan_options *options,
                               const trmi_roots *roots, trm_error *err);
/* Removes operators of which no root needs an output. */
trm_status trmi_pass_dead(trmi_pass *pass, const trmi_plan_options *options,
                          const trmi_roots *roots, trm_error *err);

/* Blocks of samples in a graph (mark_blocks.c): what strict determinism must know of it. */
typedef struct trmi_block_marks {
    int64_t *rows;      /* [values] rows that one block has; 0 = no samples */
    uint8_t *dimension; /* [values] of these rows */
    bool *over_samples; /* [operators] it sums over samples */
} trmi_block_marks;
/* Reads how many samples a block has, 0 = no inputs.   errors  INVALID: inputs without one row a
 * sample, or without `blocks` equal blocks */
trm_status trmi_block_samples(const trm_graph *graph, int32_t blocks, int64_t *samples,
                              trm_error *err);
/* Marks the BROADCASTs to samples of a graph that is not partitioned.   errors  NOMEM */
trm_status trmi_spread_blocks(trm_graph *graph, int32_t blocks, int64_t samples, trm_error *err);
/* Finds values with samples and operators that sum over them; the graph may be partitioned. The
 * arrays are in the arena.   errors  INVALID: an operator mixes samples in another way; NOMEM */
trm_status trmi_mark_blocks(const trm_graph *graph, int64_t samples, trmi_arena *arena,
                            trmi_block_marks *out, trm_error *err);

/* ---- lowering a program that has its graph, in this order ---- */

/* Chooses layouts, adds reorders between them and lists the steps. */
trm_status trmi_lower_steps(trm_program *program, const trmi_plan_options *options,
                            const trmi_roots *roots, trm_error *err);
/* Finds the steps that sum over samples, and their blocks, in programs whose samples lie in blocks.
 *   errors  INVALID: an operator mixes samples in another way */
trm_status trmi_lower_blocks(trm_program *program, const trmi_plan_options *options,
                             trm_error *err);
/* Recognises a partitioned program that cuts nothing but samples (by_samples), whose loss needs no
 * messages (own_loss). */
void trmi_lower_samples(trm_program *program, const trmi_plan_options *options);
/* Returns whether a gradient of `gradient` bytes, computed from `factors` bytes on a rank, is worth
 * computing cooperatively. */
bool trmi_cooperative_is_worth_it(int64_t gradient, int64_t factors);
/* Selects the cooperative gradients and moves their steps after all others.   errors  NOMEM */
trm_status trmi_lower_cooperative(trm_program *program, const trmi_plan_options *options,
                                  trm_error *err);
/* Gathers of parameters that are under way at the same time, at most: a program needs the memory of
 * as many results more. With two, the messages of a large parameter have the time of a small one's
 * product, too. */
enum { TRMI_GATHERS_AHEAD = 2 };
/* Decides how many steps before its place each gather of a parameter and each message of a ring
 * begins (trmi_step.ahead). Not for the stages of a pipeline, whose steps run once for each
 * micro-batch. */
void trmi_lower_ahead(trm_program *program);
trm_status trmi_lower_memory(trm_program *program, const trmi_plan_options *options,
                             const trmi_roots *roots, trm_error *err); /* arenas and offsets */
/* Computes the offsets of the activations from their lifetimes: the fewest bytes that greedy
 * placement finds and, within these, offsets whose lines are in the caches of `threads` threads
 * that divide images alike. reuse_gradients: also in GRAD, whose parameters are placed, until the
 * gradients there are made.   errors  NOMEM */
trm_status trmi_lower_places(trm_program *program, int threads, bool reuse_gradients,
                             trm_error *err);

#endif
