/* SPDX-License-Identifier: Apache-2.0 */
/* Compiles a graph to a program: runs the passes in order, lowers the result, and predicts the
 * seconds of each step.
 *
 *      clone --fuse, precision, differentiate--> training graph --partition (with a plan)--> graph of a rank
 *            --fuse, recompute, dead code--> lower_steps, lower_samples, lower_cooperative, lower_memory --> program
 *
 * trmi_plan_create() does all of it; trmi_training_graph() stops at the training graph, which the
 * search for a plan works on. Passes replace the graph; roots are renumbered each time. */
#include "plan/passes/pass.h"
#include "plan/partition/partition.h"
#include "plan/pipeline/stages.h"

#include "trireme/graph.h"

#include "base/error.h"
#include "base/os.h"

#include <stdlib.h>
#include <string.h>

/* Target without a back-end: plain layouts, no fusion. */
static const trmi_target plain_target = {.name = "plain", .threads = 1};

/* Collects loss (0: none), outputs and parameters. A loss in another type is cast to float32, so
 * that the executor reads one type.   errors  INVALID: not a node of this graph */
static trm_status roots_of(trm_graph *graph, const trmi_plan_options *options, trmi_roots *roots,
                           trmi_arena *arena, trm_error *err) {
    int32_t outputs = options->outputs_count;
    *roots = (trmi_roots){.loss = options->loss.id, .outputs_count = outputs};
    TRMI_TRY(TRMI_NEW_IN(err, arena, roots->outputs, outputs + 1, "to plan"));
    TRMI_TRY(TRMI_NEW_IN(err, arena, roots->params, graph->ops_count, "to plan"));
    TRMI_TRY(TRMI_NEW_IN(err, arena, roots->grads, graph->ops_count, "to plan"));
    TRMI_TRY(TRMI_NEW_IN(err, arena, roots->grad_axes, graph->ops_count, "to plan"));
    for (int32_t i = 0; i < outputs; i++) {
        roots->outputs[i] = options->outputs[i].id;
    }
    if (roots->loss < 0 || roots->loss >= graph->values_count) {
        return TRMI_FAIL(err, TRM_INVALID,
                         "the loss is not a node of this graph (node %d, expected 1 to %lld)",
                         roots->loss, (long long)graph->values_count - 1);
    }
    for (int32_t i = 0; i < outputs; i++) {
        if (roots->outputs[i] <= 0 || roots->outputs[i] >= graph->values_count) {
            return TRMI_FAIL(err, TRM_INVALID,
                             "output %d is not a node of this graph (node %d, expected 1 to %lld)",
                             i, roots->outputs[i], (long long)graph->values_count - 1);
        }
    }
    for (int64_t i = 1; i < graph->ops_count; i++) {
        if (graph->ops[i].kind == TRMI_OP_PARAMETER) {
            roots->params[roots->params_count++] = graph->ops[i].outputs[0];
        }
    }
    if (roots->loss != 0) {
        roots->loss = trm_cast(graph, (trm_node){roots->loss}, TRM_FLOAT32).id;
    }
    return trm_graph_check(graph, err);
}

/* Adds the gradients of all parameters that are not frozen; errors are recorded in the graph. */
static void add_gradients(trm_graph *graph, trmi_roots *roots, trmi_arena *arena) {
    size_t bytes = (size_t)(roots->params_count + 1) * sizeof(trm_node);
    trm_node *nodes = trmi_arena_alloc(arena, bytes), *grads = trmi_arena_alloc(arena, bytes);
    if (nodes == NULL || grads == NULL) {
        trm_error err;
        TRMI_NO_MEMORY(&err, "to differentiate");
        trmi_graph_fail(graph, &err);
        return;
    }
    int32_t trained = 0;
    for (int32_t i = 0; i < roots->params_count; i++) {
        if (trmi_maker_of(graph, roots->params[i])->attrs.leaf.trainable) {
            nodes[trained++] = (trm_node){roots->params[i]};
        }
    }
    trm_gradients(graph, (trm_node){roots->loss}, nodes, trained, grads);
    for (int32_t i = 0, next = 0; i < roots->params_count; i++) {
        bool has = next < trained && nodes[next].id == roots->params[i];
        roots->grads[i] = has ? grads[next++].id : 0;
    }
}

/* Copies names and list of the leaves into the program, because later passes replace the graph that
 * owns them. Callers see the shapes of their own graph. */
static trm_status own_leaves(trm_program *program, const trm_graph *given, trm_error *err) {
    size_t bytes = (size_t)program->leaves_count * sizeof *program->leaves;
    trmi_partition_leaf *copy = trmi_arena_alloc(&program->arena, bytes + 1);
    if (copy == NULL) {
        return TRMI_NO_MEMORY(err, "to plan");
    }
    memcpy(copy, program->leaves, bytes);
    for (int32_t i = 0; i < program->leaves_count; i++) {
        for (int64_t k = 1; k < given->ops_count; k++) {
            const trmi_op *op = &given->ops[k];
            if (trmi_is_leaf(op) && strcmp(op->name, copy[i].name) == 0) {
                copy[i].shape = trmi_output_of(given, op, 0)->shape;
            }
        }
        copy[i].name = trmi_arena_strdup(&program->arena, copy[i].name);
        TRMI_TRY(TRMI_CHECK_MEMORY(err, &program->arena, "to plan"));
    }
    program->leaves = copy;
    return TRM_OK;
}

/* Runs the passes up to the training graph: fusion in forward, precision, differentiation. cut: the
 * graph is for ranks, which cut its operators. */
static trm_status make_training(trm_graph **graph, const trmi_plan_options *options, bool cut,
                                trmi_roots *roots, trmi_arena *arena, trm_error *err) {
    const trmi_target *target = options->target;
    bool train = roots->loss != 0 && (*graph)->training;
    if (cut) {
        TRMI_TRY(trmi_pass_run(trmi_pass_fold_heads, options, graph, roots, err));
    }
    if (!options->no_fusion && target->fuse_xent) {
        TRMI_TRY(trmi_pass_run(trmi_pass_fuse_loss, options, graph, roots, err));
    }
    if (options->blocks > 0) {
        TRMI_TRY(trmi_pass_run(trmi_pass_block_means, options, graph, roots, err));
    }
    if (!options->no_fusion && target->fuse_norm_act) {
        TRMI_TRY(trmi_pass_run(trmi_pass_fuse_norm, options, graph, roots, err));
    }
    if (options->precision == TRM_PRECISION_MIXED) {
        TRMI_TRY(trmi_pass_run(trmi_pass_precision, options, graph, roots, err));
    }
    if (train) {
        add_gradients(*graph, roots, arena);
        TRMI_TRY(trm_graph_check(*graph, err));
        TRMI_TRY(trmi_pass_run(trmi_pass_tidy, options, graph, roots, err));
    }
    if (options->blocks > 0) {
        int64_t samples;
        TRMI_TRY(trmi_block_samples(*graph, options->blocks, &samples, err));
        TRMI_TRY(trmi_spread_blocks(*graph, options->blocks, samples, err));
    }
    return TRM_OK;
}

/* Gives outputs the shapes that they have in the caller's graph. */
static trm_status unfold_outputs(trm_graph *graph, const trm_graph *given,
                                 const trmi_plan_options *options, trmi_roots *roots,
                                 trm_error *err) {
    for (int32_t i = 0; i < roots->outputs_count; i++) {
        trm_node local = {roots->outputs[i]};
        trm_shape have = trm_node_shape(graph, local),
                  wanted = trm_node_shape(given, options->outputs[i]);
        if (!trm_shape_equal(&have, &wanted)) {
            roots->outputs[i] = trm_reshape(graph, local, wanted).id;
        }
    }
    return trm_graph_check(graph, err);
}

/* Runs all passes, with the partition if there is a plan. */
static trm_status run_passes(trm_program *program, const trm_graph *given,
                             const trmi_plan_options *options, trmi_roots *roots, trm_error *err) {
    const trmi_target *target = options->target;
    trm_graph **graph = &program->graph;
    bool train = roots->loss != 0 && (*graph)->training;
    bool recomputes_cheap = !options->no_recompute && target->recompute_cheap;
    if (options->partition == NULL && options->precision != TRM_PRECISION_MIXED &&
        !options->no_fusion && target->fuse_keyed && options->blocks == 0) {
        TRMI_TRY(trmi_pass_run(trmi_pass_fuse_keyed, options, graph, roots, err));
    }
    TRMI_TRY(
        make_training(graph, options, options->partition != NULL, roots, &program->arena, err));
    if (options->blocks > 0) {
        TRMI_TRY(trmi_block_samples(*graph, options->blocks, &program->block_samples, err));
    }
    /* The stages of a pipeline are found in the whole graph, before a plan cuts its operators. */
    trmi_stage_map stages = {.count = 0};
    trmi_plan_options found = *options; /* with what the whole graph decides */
    if (options->stages != NULL) {
        TRMI_TRY(trmi_stage_cut(*graph, options->stages, &program->arena, &stages, err));
        found.runs = &stages;
    }
    if (options->partition != NULL) {
        trm_graph *local;
        TRMI_TRY(trmi_pass_run(trmi_pass_dead, options, graph, roots, err));
        found.large_sums = train && recomputes_cheap &&
                           trmi_partition_sums(*graph, trmi_mesh_ranks(&options->partition->mesh));
        trmi_part_mark(*graph, options->local_norms, false);
        TRMI_TRY(trmi_partition_graph(*graph, options->partition, options->prices, options->rank,
                                      roots, &local, &program->leaves, &program->leaves_count,
                                      options->report, err));
        program->mesh_axes = options->partition->mesh.axes;
        trm_graph_destroy(*graph);
        *graph = local;
        TRMI_TRY(own_leaves(program, given, err));
        TRMI_TRY(unfold_outputs(*graph, given, options, roots, err));
    }
    /* The following fusions work on the graph of a rank and so depend on the plan. With blocks of
     * samples they must not change a bit: a sum of two gradients in 16 bits would not be rounded.
     */
    bool rounds_sums = options->blocks > 0 && options->precision == TRM_PRECISION_MIXED;
    if (train && !rounds_sums && !options->no_fusion && target->fuse_norm_act) {
        TRMI_TRY(trmi_pass_run(trmi_pass_fuse_grad_add, options, graph, roots, err));
    }
    if (!options->no_fusion && target->fuse_product) {
        /* remove dead readers, which would prevent fusion */
        TRMI_TRY(trmi_pass_run(trmi_pass_dead, options, graph, roots, err));
        TRMI_TRY(trmi_pass_run(trmi_pass_fuse_product, options, graph, roots, err));
    }
    /* A plan, and the caller, may name operators that are to be recomputed. */
    bool recomputes_named = options->partition != NULL || options->recompute;
    if (train && (recomputes_cheap || recomputes_named)) {
        TRMI_TRY(trmi_pass_run(trmi_pass_recompute, &found, graph, roots, err));
    }
    TRMI_TRY(trmi_pass_run(trmi_pass_dead, options, graph, roots, err));
    return options->stages != NULL ? trmi_stage_graph(program, options, &stages, roots, err)
                                   : TRM_OK;
}

/* Contract in partition.h. Works on a copy, so the user's graph can be planned several times. */
trm_status trmi_training_graph(const trm_graph *graph, const trmi_plan_options *given,
                               trm_graph **out, trmi_roots *roots, trmi_arena *arena,
                               trm_error *err) {
    TRMI_TRY(trm_graph_check(graph, err));
    trmi_plan_options options = *given;
    options.target = given->target != NULL ? given->target : &plain_target;
    trm_graph *copy;
    TRMI_TRY(trmi_graph_clone(graph, &copy, err));
    trm_status status = roots_of(copy, &options, roots, arena, err);
    status = status == TRM_OK ? make_training(&copy, &options, true, roots, arena, err) : status;
    status = status == TRM_OK ? trmi_pass_run(trmi_pass_dead, &options, &copy, roots, err) : status;
    if (status != TRM_OK) {
        trm_graph_destroy(copy);
        return status;
    }
    trmi_part_mark(copy, options.local_norms, options.factored_gradients && !options.no_fusion);
    *out = copy;
    return TRM_OK;
}

/* Returns the roofline seconds of a cost. */
static double roofline_seconds(const trmi_target *target, const trmi_cost *cost) {
    double flops = target->flops_per_second > 0 ? target->flops_per_second : 1e11;
    double bytes = target->bytes_per_second > 0 ? target->bytes_per_second : 2e10;
    double compute = cost->flops / flops, traffic = cost->bytes / bytes;
    return compute > traffic ? compute : traffic;
}

/* Sets predicted_seconds of all steps and the begin of backward. A program without a loss has no
 * backward: gradients in it were added by the caller (trm_gradients) and are values as all
 * others. */
static void predict_steps(trm_program *p, const trmi_target *target, bool has_loss) {
    p->backward_begin = p->steps_count;
    for (int32_t i = p->steps_count - 1; i >= 0; i--) {
        trmi_step *step = &p->steps[i];
        if (step->phase == TRMI_BACKWARD && has_loss) {
            p->backward_begin = i;
        }
        double seconds = -1;
        if (step->kind == TRMI_STEP_OP && !step->cooperative && target->seconds != NULL) {
            trmi_layout layout =
                step->outputs[0] != 0 ? p->buffers[step->outputs[0]].layout : TRMI_PLAIN;
            seconds = target->seconds(target->context, p->graph, &p->graph->ops[step->op], layout);
        }
        step->predicted_seconds = seconds >= 0 ? seconds : roofline_seconds(target, &step->cost);
    }
}

/* Contract in plan/lower/program.h. First passes over the graph (run_passes), then the lowering
 * to program steps, then memory. Each stage needs the one before to be complete: steps need
 * final types and fusions, memory needs the final order of steps. */
trm_status trmi_plan_create(const trm_graph *graph, const trmi_plan_options *given,
                            trm_program **out, trm_error *err) {
    double begin = trmi_os_now();
    TRMI_TRY(trm_graph_check(graph, err));
    trmi_plan_options options = *given;
    options.target = given->target != NULL ? given->target : &plain_target;
    trm_program *program;
    TRMI_TRY(TRMI_NEW(err, program, 1, "to plan"));
    trmi_roots roots;
    trm_status status = trmi_graph_clone(graph, &program->graph, err);
    TRMI_TRY_GOTO(status, status, failed);
    TRMI_TRY_GOTO(status, roots_of(program->graph, &options, &roots, &program->arena, err), failed);
    program->training = graph->training && roots.loss != 0;
    TRMI_TRY_GOTO(status, run_passes(program, graph, &options, &roots, err), failed);
    TRMI_TRY_GOTO(status, trmi_lower_steps(program, &options, &roots, err), failed);
    trmi_lower_samples(program, &options);
    TRMI_TRY_GOTO(status, trmi_lower_blocks(program, &options, err), failed);
    TRMI_TRY_GOTO(status, trmi_lower_cooperative(program, &options, err), failed);
    if (options.messages_ahead && program->staged == NULL) {
        trmi_lower_ahead(program);
    }
    TRMI_TRY_GOTO(status, trmi_lower_memory(program, &options, &roots, err), failed);
    predict_steps(program, options.target, roots.loss != 0 || program->staged != NULL);
    program->plan_seconds = trmi_os_now() - begin;
    *out = program;
    return TRM_OK;
failed:
    trmi_plan_destroy(program);
    return status;
}

/* Contract in program.h. The caller must have destroyed the kernels, which point into steps and
 * buffers. */
void trmi_plan_destroy(trm_program *program) {
    if (program == NULL) {
        return;
    }
    trm_graph_destroy(program->graph);
    trmi_staged_free(program->staged);
    free(program->steps);
    free(program->buffers);
    trmi_arena_free(&program->arena);
    trmi_free(program);
}
