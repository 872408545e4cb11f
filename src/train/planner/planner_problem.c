/* SPDX-License-Identifier: Apache-2.0 */
/* Builds what the planner searches: the training graph of a batch, the search space on a mesh, and
 * the program of a plan.
 *
 *   model --trmi_planner_forward--> graph --differentiate_graph--> training graph
 *         --trmi_planner_space--> space --search--> choice --trmi_planner_compiled--> bytes
 *
 * Everything here answers one question: what would the job do? So the graph is fused as the back-
 * end of the job fuses, ranks have slices of the optimiser where the job gives them slices, and
 * memory is that of the compiled program. A rule of the executor that changes must change here,
 * too; planner_share_test and the tests of memory compare the two. */
#include "train/planner/planner.h"

#include "base/error.h"
#include "comm/shm/shared_buffers.h"
#include "exec/backend.h"
#include "exec/distributed/batches.h"
#include "exec/exec_memory.h"
#include "plan/pipeline/stages.h"
#include "train/model.h"

#include <math.h>
#include <string.h>

/* ---- properties of the planned job ----------------------------------------------------------- */

/* Returns whether the planned ranks do not share this host. */
static bool has_hosts(const trm_planner *p) {
    return p->options.links != NULL || p->options.hosts > 1 || p->options.own_devices;
}

/* Returns whether each rank updates a slice of the parameters, as the job would
 * (exec/distributed/split.h): on one host always, on several hosts if the option is set. */
static bool has_slices(const trm_planner *p, int32_t ranks) {
    return ranks > 1 && (!has_hosts(p) || p->model.exec.parallel.shard_optimizer);
}

/* Contract in planner.h. As the job would: on one host, with slices, without accumulation and
 * memory limit. */
trm_cooperative trmi_planner_cooperative(const trm_planner *p) {
    bool once = p->model.exec.accumulate <= 1 && p->model.exec.memory_bytes == 0 &&
                p->model.exec.parallel.block == 0;
    bool here =
        p->model.exec.parallel.comm == NULL || trmi_comm_can_map_root(p->model.exec.parallel.comm);
    return here && once && has_slices(p, p->ranks) && !has_hosts(p)
               ? p->model.exec.parallel.cooperative
               : TRM_COOPERATIVE_OFF;
}

trm_status trmi_planner_blocks(const trm_planner *p, int64_t batch, int32_t *blocks,
                               trm_error *err) {
    const trm_parallel_options alone = {.block = p->model.exec.parallel.block};
    return trmi_batches_blocks(&alone, batch, blocks, err);
}

/* ---- graph ----------------------------------------------------------------------------------- */

/* Copies the dataset's fields into `inputs` with `batch` samples. */
static trm_status take_fields(const trm_planner *p, int64_t batch, trm_inputs *inputs,
                              trm_error *err) {
    TRMI_TRY(trm_dataset_check(p->model.data, err));
    while (inputs->count < TRM_MAX_BATCH_FIELDS &&
           trm_dataset_field(p->model.data, inputs->count, &inputs->fields[inputs->count])) {
        trm_shape *shape = &inputs->fields[inputs->count].tensor.shape;
        if (shape->rank < 1) {
            return TRMI_FAIL(err, TRM_INVALID, "field '%s' has no dimension of samples",
                             inputs->fields[inputs->count].name);
        }
        shape->dim[0] = batch;
        inputs->count++;
    }
    return inputs->count > 0 ? TRM_OK : TRMI_FAIL(err, TRM_INVALID, "the dataset has no fields");
}

/* Fuses the graph as the back-end would and differentiates it: the graph that the executor would
 * cut. */
static trm_status differentiate_graph(const trm_planner *p, const trm_graph *graph, trm_node loss,
                                      int64_t batch, bool once, trm_graph **out, trm_error *err) {
    trmi_target target = {.name = "planner", .threads = p->costs.threads};
    bool fast = p->model.exec.backend == NULL || strcmp(p->model.exec.backend, "ref") != 0;
#ifdef TRIREME_ONEDNN
    target.fuse_norm_act = target.fuse_xent = fast;
#endif
    trmi_plan_options options = {.target = &target,
                                 .loss = loss,
                                 .precision = (int32_t)p->model.exec.precision,
                                 .no_fusion = p->model.exec.fusion == TRM_OFF || !fast,
                                 .dense_gradients = true,
                                 .factored_gradients = once,
                                 .local_norms = trmi_planner_local_norms(p)};
    trmi_arena arena = {0};
    trmi_roots roots;
    TRMI_TRY(trmi_planner_blocks(p, batch, &options.blocks, err));
    trm_status status = trmi_training_graph(graph, &options, out, &roots, &arena, err);
    trmi_arena_free(&arena);
    return status;
}

/* Returns whether the job would run in one process without ways of training, in which activations
 * lie in the bytes of gradients (exec/exec_create.c). */
static bool runs_alone(const trm_planner *p, const trmi_mesh *mesh, bool staged) {
    return !staged && trmi_mesh_ranks(mesh) == 1 && p->model.exec.parallel.block == 0;
}

/* Returns trmi_readers_round of the job. */
static bool readers_round(const trm_planner *p, const trmi_mesh *mesh, bool staged) {
    return trmi_readers_round(p->model.exec.accumulate, runs_alone(p, mesh, staged));
}

/* Makes the back-end that would run the job, without a tuning file. */
static trm_status make_backend(const trm_planner *p, trmi_backend **out, trm_error *err) {
#ifdef TRIREME_ONEDNN
    if (p->model.exec.backend == NULL || strcmp(p->model.exec.backend, "ref") != 0) {
        return trmi_backend_onednn(p->costs.threads, NULL, out, err);
    }
#endif
    return trmi_backend_ref(p->costs.threads, out, err);
}

/* Compiles rank 0's program of a plan for the back-end that would run it. */
static trm_status compile_part(const trm_planner *p, const trm_graph *graph, trm_node loss,
                               trmi_partition_plan *plan, const trmi_stage_options *stages,
                               trm_program **out, trm_error *err) {
    trmi_backend *backend;
    TRMI_TRY(make_backend(p, &backend, err));
    trmi_plan_options options = {
        .target = &backend->target,
        .loss = loss,
        .precision = (int32_t)p->model.exec.precision,
        .no_fusion = p->model.exec.fusion == TRM_OFF,
        .recompute = stages != NULL ? plan->staged.recompute : p->model.exec.recompute,
        .stages = stages,
        .dense_gradients = true,
        .readers_round = readers_round(p, &plan->mesh, stages != NULL),
        .reuse_gradients = runs_alone(p, &plan->mesh, stages != NULL),
        .factored_gradients = stages == NULL && p->model.exec.accumulate <= 1,
        .partition = plan,
        .cooperative_ranks =
            stages == NULL && trmi_planner_cooperative(p) != TRM_COOPERATIVE_OFF ? p->ranks : 0,
        .cooperative_products = trmi_planner_cooperative(p) == TRM_COOPERATIVE_ALL,
        .messages_ahead = p->links.overlap > 0 && p->model.exec.fusion != TRM_OFF,
        .local_norms = trmi_planner_local_norms(p)};
    trm_status status = trmi_planner_blocks(p, p->batch / (stages != NULL ? stages->micros : 1),
                                            &options.blocks, err);
    status = status == TRM_OK ? trmi_plan_create(graph, &options, out, err) : status;
    backend->destroy(backend);
    return status;
}

/* Contract in planner.h. If the number of classes changes, the graph is rebuilt by
 * planner_classes.c. */
trm_status trmi_planner_forward(const trm_planner *p, int64_t batch, int64_t classes,
                                trm_graph **out, trm_node *loss, trm_error *err) {
    trm_inputs *inputs;
    trm_graph *graph = NULL;
    TRMI_TRY(TRMI_NEW(err, inputs, 1, "to plan"));
    trm_status status = trm_graph_create(&(trm_graph_options){.training = true}, &graph, err);
    if (status == TRM_OK) {
        inputs->graph = graph;
        status = take_fields(p, batch, inputs, err);
    }
    if (status == TRM_OK) {
        /* The network and the loss of the model, on inputs of the planned batch. */
        trm_node logits = p->model.network(graph, inputs, p->model.network_context);
        trm_loss make = p->model.loss != NULL ? p->model.loss : trm_loss_softmax;
        *loss = make(graph, logits, inputs, p->model.loss_context);
        status = trm_graph_check(graph, err);
        trm_graph *other = NULL;
        if (status == TRM_OK && classes > 0) {
            status = trmi_planner_rescale_classes(graph, classes, loss, &other, err);
        }
        if (other != NULL) {
            trm_graph_destroy(graph);
            graph = other;
        }
    }
    trmi_free(inputs);
    if (status != TRM_OK) {
        trm_graph_destroy(graph);
        return status;
    }
    *out = graph;
    return TRM_OK;
}

trm_status trmi_planner_graph(const trm_planner *p, int64_t batch, int64_t classes, trm_graph **out,
                              trm_error *err) {
    trm_graph *forward;
    trm_node loss;
    TRMI_TRY(trmi_planner_forward(p, batch, classes, &forward, &loss, err));
    trm_status status =
        differentiate_graph(p, forward, loss, batch, p->model.exec.accumulate <= 1, out, err);
    trm_graph_destroy(forward);
    return status;
}

trm_status trmi_planner_micro_graph(const trm_planner *p, int32_t micros, trmi_micro_graph *out,
                                    trm_error *err) {
    TRMI_TRY(trmi_planner_forward(p, p->batch / micros, 0, &out->forward, &out->loss, err));
    out->micros = micros;
    return differentiate_graph(p, out->forward, out->loss, p->batch / micros, false, &out->training,
                               err);
}

/* Returns how the job's ranks, or the `ranks` of a stage, train a program, as their executors would
 * say (trm_exec.divided). */
static trmi_training training_of(const trm_planner *p, int32_t ranks, bool sliced,
                                 bool accumulates) {
    const trm_parallel_options *o = &p->model.exec.parallel;
    const trm_deterministic order =
        o->comm != NULL ? trm_comm_deterministic(o->comm) : p->options.deterministic;
    bool feeds_parts = o->batch == TRM_BATCH_OF_RANK || o->split.input_cuts != NULL;
    return (trmi_training){.slots = p->slots,
                           .ranks = ranks,
                           .own_samples = ranks > 1 && feeds_parts,
                           .sliced = sliced,
                           .one_copy = sliced && !has_hosts(p),
                           .accumulates = accumulates,
                           .packs = trmi_wire_part(o->wire) < 1,
                           .ordered = order != TRM_DETERMINISTIC_FALSE || o->block != 0};
}

/* Contract in planner.h: compiles the plan and computes the resident bytes with the job's
 * optimiser, slices and buffers. */
trm_status trmi_planner_compiled(const trm_planner *p, const trmi_space *space,
                                 const trmi_choice *choice, double *bytes, trm_error *err) {
    trm_program *program = NULL;
    trmi_partition_plan *plan;
    TRMI_TRY(trmi_space_plan(space, choice, &plan, err));
    trm_status status = compile_part(p, p->whole, p->whole_options.loss, plan, NULL, &program, err);
    if (status == TRM_OK) {
        const trmi_training how = training_of(p, p->ranks, trmi_choice_sliced(space, choice),
                                              p->model.exec.accumulate > 1);
        *bytes = (double)trmi_program_resident(program, &how);
    }
    trmi_plan_destroy(program);
    trmi_partition_plan_destroy(plan);
    return status;
}

/* Contract in planner.h. The plan of operators, and the names of the operators with which stages
 * begin. */
trm_status trmi_planner_staged_plan(const trm_planner *p, const trmi_pipe_plan *from,
                                    trmi_partition_plan **out, trm_error *err) {
    (void)p;
    trmi_partition_plan *plan;
    trmi_text begins = {0};
    TRMI_TRY(trmi_space_plan(from->space, &from->choice, &plan, err));
    for (int32_t v = 1; v < from->shape.stages * from->shape.chunks; v++) {
        trmi_text_printf(&begins, "%s%s", v > 1 ? "," : "",
                         trmi_space_op(from->space, from->begins[v])->name);
    }
    const trmi_plan_stages stages = {.stages = from->shape.stages,
                                     .chunks = from->shape.chunks,
                                     .micros = from->shape.micros,
                                     .order = from->shape.order,
                                     .recompute = from->shape.recompute,
                                     .begins = begins.data};
    trm_status status = begins.failed ? TRMI_NO_MEMORY(err, "for a plan")
                                      : trmi_partition_plan_stage(plan, &stages, err);
    trmi_text_free(&begins);
    if (status != TRM_OK) {
        trmi_partition_plan_destroy(plan);
        return status;
    }
    *out = plan;
    return TRM_OK;
}

/* Contract in planner.h. Ranks that share cores slow each other's operators. */
double trmi_planner_crowding(const trm_planner *p) {
    const trmi_links *l = &p->links;
    return l->cores > 0 ? fmax(1, (double)p->ranks * p->costs.threads / l->cores) : 1;
}

/* Contract in planner.h. */
trm_status trmi_planner_stage_compiled(const trm_planner *p, const trmi_micro_graph *graph,
                                       const trmi_pipe_plan *from, int32_t stage, double *bytes,
                                       trm_error *err) {
    trm_program *program = NULL;
    trmi_partition_plan *plan;
    int32_t inner = trmi_mesh_ranks(&from->space->mesh);
    TRMI_TRY(trmi_planner_staged_plan(p, from, &plan, err));
    const trmi_stage_options options = {.stages = from->shape.stages,
                                        .chunks = from->shape.chunks,
                                        .micros = from->shape.micros,
                                        .order = from->shape.order,
                                        .stage = stage,
                                        .begins = plan->staged.begins};
    trm_status status = compile_part(p, graph->forward, graph->loss, plan, &options, &program, err);
    if (status == TRM_OK) {
        bool sliced = inner > 1 && trmi_choice_sliced(from->space, &from->choice);
        const trmi_training how = training_of(p, inner, sliced, from->shape.micros > 1);
        *bytes = (double)trmi_program_resident(program, &how);
    }
    trmi_plan_destroy(program);
    trmi_partition_plan_destroy(plan);
    return status;
}

/* ---- spaces ---------------------------------------------------------------------------------- */

/* Contract in planner.h. Mesh and links are copied into the planner's arena, because the space
 * refers to them for as long as the planner lives. */
trm_status trmi_planner_space(trm_planner *p, const trm_graph *graph, const trmi_mesh *mesh,
                              trmi_space **out, trm_error *err) {
    const trmi_planner_stage plain = {.micros = p->model.exec.accumulate,
                                      .recompute = p->model.exec.recompute};
    return trmi_planner_stage_space(p, graph, mesh, &plain, out, err);
}

/* Returns the samples of a graph: the rows of its first input. */
static int64_t batch_of(const trm_graph *graph) {
    for (int64_t i = 1; i < graph->ops_count; i++) {
        if (graph->ops[i].kind == TRMI_OP_INPUT) {
            return trmi_output_of(graph, &graph->ops[i], 0)->shape.dim[0];
        }
    }
    return 1;
}

/* Returns the seconds a byte of adding the gradients of a micro-batch to their sum, for the
 * gradients of one of `stages` stages: as measured on all ranks at once. Where only the optimiser
 * was measured, by what both move: a sum reads two arrays and writes one; an update reads the
 * gradients for their norm, and again with parameters and slots, and writes the latter two.
 * otherwise: a byte of memory traffic, where neither was measured. */
static double accumulate_seconds(const trm_planner *p, const trm_graph *graph, int32_t stages,
                                 double otherwise) {
    const trmi_links *l = &p->links;
    const trmi_curve *curve = l->sums.count > 0 ? &l->sums : &l->update;
    double bytes = 0, part = l->sums.count > 0 ? 1 : 3.0 / (4 + 2 * p->slots);
    if (curve->count == 0) {
        return 3 * otherwise;
    }
    for (int64_t i = 1; i < graph->ops_count; i++) {
        if (graph->ops[i].kind == TRMI_OP_PARAMETER && graph->ops[i].attrs.leaf.trainable) {
            bytes += (double)trm_shape_count(&trmi_output_of(graph, &graph->ops[i], 0)->shape) *
                     sizeof(float);
        }
    }
    bytes = fmax(curve->bytes[0], bytes / stages);
    return trmi_curve_at(curve, bytes) / bytes * part;
}

/* Contract in planner.h. A stage has neither cooperative gradients nor factors, and sums the
 * gradients of its micro-batches. */
trm_status trmi_planner_stage_space(trm_planner *p, const trm_graph *graph, const trmi_mesh *mesh,
                                    const trmi_planner_stage *stage, trmi_space **out,
                                    trm_error *err) {
    trmi_mesh *own = trmi_arena_alloc(&p->arena, sizeof *own);
    trmi_links *links = trmi_arena_alloc(&p->arena, sizeof *links);
    if (own == NULL || links == NULL) {
        return TRMI_NO_MEMORY(err, "to plan");
    }
    *own = *mesh;
    *links = p->links;
    links->mesh = own;
    bool given = p->links.flops > 0;
    double flop = given ? 1 / p->links.flops : p->costs.flop,
           byte = p->links.bytes > 0 ? 1 / p->links.bytes : p->costs.byte;
    /* given rates apply to operators and updates; otherwise costs are measured and scaled */
    const trmi_prices prices = {
        .seconds = trmi_links_seconds, .context = links, .flop = flop, .byte = byte};
    trmi_search_costs costs = {
        .seconds = given ? NULL : trmi_costs_seconds,
        .context = &p->costs,
        .prices = &prices,
        .slots = p->slots,
        .done = &p->probe.done,
        .stop = p->options.stop,
        .gradients = stage->micros > 1 ? 2 : 1,
        .overlap = p->links.overlap,
        .slowdown = p->links.slowdown,
        .ahead = stage->staged || p->model.exec.fusion == TRM_OFF ? 0 : p->links.overlap,
        .fuse = true,
        .rules = {.cheap = p->model.exec.fusion != TRM_OFF,
                  .segments = stage->recompute,
                  .sums = true},
        .shard_stores = true,
        .slices = has_slices(p, trmi_mesh_ranks(mesh)),
        .gathers = has_hosts(p),
        .cooperative = !stage->staged && trmi_planner_cooperative(p) != TRM_COOPERATIVE_OFF,
        .accumulate_byte =
            stage->staged && stage->micros > 1
                ? accumulate_seconds(p, graph, p->ranks / trmi_mesh_ranks(mesh),
                                     byte * (given ? 1 : p->costs.factor * p->costs.share))
                : 0,
        .overhead = p->links.overhead,
        .wire = trmi_wire_part(p->model.exec.parallel.wire),
        .update = links->update.count > 0 ? &links->update : NULL,
        .sliced = links->sliced.count > 0 ? &links->sliced : NULL,
        .update_flop = flop * (given ? 1 : p->costs.factor),
        .update_byte = 5 * byte * (given ? 1 : p->costs.factor * p->costs.share)};
    TRMI_TRY(trmi_planner_blocks(p, batch_of(graph), &costs.blocks, err));
    /* Pinned operators of a given plan hold on the plan's mesh only: letters mean axes of that
     * mesh. */
    bool pinned =
        !stage->staged && p->given != NULL && memcmp(mesh, &p->given->mesh, sizeof *mesh) == 0;
    trmi_backend *backend = NULL;
    if (readers_round(p, mesh, stage->staged)) {
        TRMI_TRY(make_backend(p, &backend, err));
        costs.rounding = &backend->target;
    }
    trm_status status = trmi_space_open(graph, mesh, &costs, pinned ? p->given : NULL, out, err);
    if (backend != NULL) {
        backend->destroy(backend);
    }
    if (status == TRM_OK && !stage->staged && (status = trmi_space_connect(*out, err)) != TRM_OK) {
        trmi_space_destroy(*out);
        *out = NULL;
    }
    return status;
}
