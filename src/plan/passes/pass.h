/* SPDX-License-Identifier: Apache-2.0 */
/* plan/passes/pass.h: a pass reads one graph and writes the next. Operators are emitted in order,
 * so the result is in topological order again; map[v] is where value v of the old graph went.
 *
 *      clone -> fuse (forward) -> precision -> differentiate -> tidy -> fuse (backward)
 *      -> recompute -> dead code */
#ifndef TRMI_PLAN_PASS_H
#define TRMI_PLAN_PASS_H

#include "plan/lower/program.h"

typedef struct trmi_pass {
    const trm_graph *from;
    trm_graph *to;
    int32_t *map;  /* value of `from` -> value of `to`; 0 = not emitted (yet) */
    int32_t *uses; /* value of `from` -> number of operators that read it */
} trmi_pass;

trm_status trmi_pass_begin(trmi_pass *pass, const trm_graph *from, trm_error *err);
/* Copies the operator with mapped inputs; returns its index in `to` (0 after an error). */
int32_t trmi_pass_copy(trmi_pass *pass, const trmi_op *op);
/* Emits a new operator whose inputs are values of `to`. */
int32_t trmi_pass_emit(trmi_pass *pass, trmi_op_kind kind, trmi_phase phase, const char *name,
                       const int32_t *inputs, int32_t inputs_count, int32_t outputs,
                       const trmi_attrs *attrs);
/* Frees the working arrays; on success *out is the new graph, on error it is destroyed. */
trm_status trmi_pass_end(trmi_pass *pass, trm_graph **out, trm_error *err);

/* What must survive the passes, renumbered by each of them. */
typedef struct trmi_roots {
    int32_t loss;
    int32_t *outputs;
    int32_t outputs_count;
    int32_t *params; /* value ids of trainable parameters */
    int32_t *grads;  /* their gradients, 0 = none */
    /* of a graph split over ranks: mesh axes over which they are still to be summed */
    uint32_t *grad_axes;
    int32_t params_count;
} trmi_roots;

/* A rewriting pass: replaces *graph by the rewritten one and renumbers the roots. */
typedef trm_status (*trmi_pass_function)(trmi_pass *pass, const trmi_plan_options *options,
                                         const trmi_roots *roots, trm_error *err);
trm_status trmi_pass_run(trmi_pass_function function, const trmi_plan_options *options,
                         trm_graph **graph, trmi_roots *roots, trm_error *err);

/* The passes. */
trm_status trmi_pass_fuse_norm(trmi_pass *pass, const trmi_plan_options *options,
                               const trmi_roots *roots, trm_error *err);
trm_status trmi_pass_fuse_loss(trmi_pass *pass, const trmi_plan_options *options,
                               const trmi_roots *roots, trm_error *err);
trm_status trmi_pass_fuse_keyed(trmi_pass *pass, const trmi_plan_options *options,
                                const trmi_roots *roots, trm_error *err);
trm_status trmi_pass_precision(trmi_pass *pass, const trmi_plan_options *options,
                               const trmi_roots *roots, trm_error *err);
trm_status trmi_pass_tidy(trmi_pass *pass, const trmi_plan_options *options,
                          const trmi_roots *roots, trm_error *err);
trm_status trmi_pass_fuse_grad_add(trmi_pass *pass, const trmi_plan_options *options,
                                   const trmi_roots *roots, trm_error *err);
trm_status trmi_pass_fuse_product(trmi_pass *pass, const trmi_plan_options *options,
                                  const trmi_roots *roots, trm_error *err);
trm_status trmi_pass_recompute(trmi_pass *pass, const trmi_plan_options *options,
                               const trmi_roots *roots, trm_error *err);
trm_status trmi_pass_dead(trmi_pass *pass, const trmi_plan_options *options,
                          const trmi_roots *roots, trm_error *err);

/* Lowering, in this order, on a program that has its graph. */
trm_status trmi_lower_steps(trm_program *program, const trmi_plan_options *options,
                            /* layouts, reorders, steps */
                            const trmi_roots *roots, trm_error *err);
/* Does a split program cut nothing but samples? Then its loss need not ask other ranks. */
void trmi_lower_samples(trm_program *program, const trmi_plan_options *options);
/* Is a gradient of so many bytes, made of inputs of so many on a rank, worth making jointly? */
bool trmi_joint_is_worth_it(int64_t gradient, int64_t factors);
/* Which gradients are made jointly; their steps go behind all others. */
trm_status trmi_lower_joint(trm_program *program, const trmi_plan_options *options, trm_error *err);
trm_status trmi_lower_memory(trm_program *program, const trmi_plan_options *options,
                             const trmi_roots *roots, trm_error *err); /* arenas and offsets */
/* Offsets of the activations, whose lives are known: the fewest bytes that greedy placing finds,
 * and within them places whose lines `threads` threads that cut images alike have in their own
 * caches. */
trm_status trmi_lower_places(trm_program *program, int threads, trm_error *err);

#endif
