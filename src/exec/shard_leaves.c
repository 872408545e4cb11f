/* The plan of a split executor, and variables and inputs as the caller sees them: whole. */
#include "exec/exec.h"
#include "exec/shard.h"

#include "base/error.h"
#include "base/log.h"
#include "base/memory.h"

#include <stdio.h>
#include <string.h>

/* ---- the plan ------------------------------------------------------------------------------------------------------ */

trm_status trmi_shard_prepare(trm_exec *exec, trm_error *err) {
    trmi_parallel *p = exec->parallel;
    const trm_parallel_options *o = &p->options;
    trmi_mesh mesh;
    char text[32];
    trmi_shard_run *run = trmi_arena_alloc(&exec->memory, sizeof *run);
    if (run == NULL) {
        return TRMI_FAIL(err, TRM_NOMEM, "no memory to split a graph");
    }
    if (o->shard_optimizer || o->layerwise_count > 0 || o->sync_batch_norm != 0) {
        return TRMI_FAIL(err, TRM_INVALID,
                         "a split graph has its own optimiser shards and batch norm: shard_optimizer, layerwise "
                         "parameters and sync_batch_norm are for data parallel");
    }
    run->world = p->comm;
    p->options.sum = true;
    if (o->plan != NULL) {
        TRMI_TRY(trmi_shard_plan_parse(o->plan, strlen(o->plan), "plan", &run->plan, err));
        p->shard = run;
    }
    snprintf(text, sizeof text, "%d", p->size);
    TRMI_TRY(trmi_mesh_parse(o->mesh != NULL ? o->mesh : text, &mesh, err));
    if (run->plan == NULL) {
        TRMI_TRY(trmi_shard_plan_create(&mesh, &run->plan, err));
        p->shard = run;
    } else if (o->mesh != NULL && memcmp(&mesh, &run->plan->mesh, sizeof mesh) != 0) {
        char a[64], b[64];
        return TRMI_FAIL(err, TRM_INVALID, "mesh %s was asked for, the plan is for mesh %s",
                         trmi_mesh_text(&mesh, a, sizeof a), trmi_mesh_text(&run->plan->mesh, b, sizeof b));
    }
    if (trmi_mesh_ranks(&run->plan->mesh) != p->size) {
        return TRMI_FAIL(err, TRM_INVALID, "mesh %s has %d ranks, this job has %d",
                         trmi_mesh_text(&run->plan->mesh, text, sizeof text), trmi_mesh_ranks(&run->plan->mesh), p->size);
    }
    return TRM_OK;
}

/* What reads the batch, and is not pinned, is cut by samples on every axis. */
static trm_status default_samples(trmi_shard_plan *plan, const trm_graph *graph, trm_error *err) {
    char all[TRMI_MESH_AXES + 1] = "";
    memset(all, 'n', (size_t)plan->mesh.axes);
    for (int64_t i = 1; i < graph->ops_count; i++) {
        const trmi_op *op = &graph->ops[i];
        bool reads = false;
        for (int32_t j = 0; j < op->inputs_count; j++) {
            const trmi_value *v = trmi_input_of(graph, op, j);
            reads = reads || (v != NULL && graph->ops[v->op].kind == TRMI_OP_INPUT && v->shape.rank >= 2);
        }
        trmi_strategy strategy;
        if (reads && op->phase == TRMI_FORWARD && trmi_shard_plan_find(plan, op->name) == NULL &&
            trmi_shard_strategy(graph, op, &plan->mesh, all, &strategy)) {
            TRMI_TRY(trmi_shard_plan_set(plan, op->name, all, false, NULL, err));
        }
    }
    return TRM_OK;
}

trm_status trmi_shard_complete(trm_exec *exec, const trm_graph *graph, const trmi_plan_options *options,
                               trm_error *err) {
    trmi_shard_run *run = exec->parallel->shard;
    bool pinned = run->plan->choices_count > 0;
    trmi_arena arena = {0};
    trmi_roots roots;
    trm_graph *training;
    trm_status status = trmi_shard_graph(graph, options, &training, &roots, &arena, err);
    if (status == TRM_OK) {
        if (exec->parallel->options.split == TRM_SPLIT_SEARCHED) {
            status = trmi_shard_search(exec, training, err);
        } else if (!pinned && run->plan->stores_count == 0) {
            trmi_shard_plan *samples;
            status = trmi_shard_plan_samples(training, &run->plan->mesh, &samples, err);
            if (status == TRM_OK) {
                trmi_shard_plan_destroy(run->plan);
                run->plan = samples;
            }
        } else {
            status = trmi_shard_plan_check(run->plan, training, exec->parallel->size, err);
            status = status == TRM_OK ? default_samples(run->plan, training, err) : status;
        }
        run->plan->digest = status == TRM_OK ? trmi_shard_digest(training) : 0;
        trm_graph_destroy(training);
    }
    trmi_arena_free(&arena);
    const char *file = exec->parallel->options.save_plan;
    if (status == TRM_OK && file != NULL && exec->parallel->rank == 0) {
        status = trmi_shard_plan_save(run->plan, file, err);
    }
    return status;
}

void trmi_shard_warn(const trm_exec *exec, const trmi_shard_report *report) {
    const trmi_target *target = &exec->backend->target;
    double flops = target->flops_per_second > 0 ? target->flops_per_second : 1e11;
    double bytes = target->bytes_per_second > 0 ? target->bytes_per_second : 2e10;
    int32_t ranks = exec->parallel->size, passes = exec->program->training ? 3 : 1;
    for (int64_t i = 0; i < report->work_count; i++) {
        const trmi_shard_work *w = &report->work[i];
        double compute = w->cost.flops / flops, traffic = w->cost.bytes / bytes;
        double seconds = (compute > traffic ? compute : traffic) * passes * (1 - 1.0 / ranks);
        if (w->phase == TRMI_FORWARD && w->warning != NULL && w->cost.bytes > 0) {
            trmi_log(TRM_LOG_WARN, "plan", "%s runs whole on each of %d ranks: %s; about %.3g ms of a step that they could share, "
                     "and its input gathered", w->op, ranks, w->warning, seconds * 1e3);
        }
    }
}

static uint64_t mix(uint64_t hash, const void *data, size_t bytes) {
    const uint8_t *byte = data;
    for (size_t i = 0; i < bytes; i++) {
        hash = (hash ^ byte[i]) * 0x100000001B3ull; /* FNV-1a */
    }
    return hash;
}

uint64_t trmi_shard_mix(const trm_exec *exec, uint64_t hash) {
    const trm_program *p = exec->program;
    char *text = trmi_shard_plan_text(exec->parallel->shard->plan);
    hash = text != NULL ? mix(hash, text, strlen(text)) : hash;
    trm_string_free(text);
    for (int32_t i = 0; i < p->steps_count; i++) {
        const trmi_step *s = &p->steps[i];
        bool talks = s->kind == TRMI_STEP_OP && (s->op_kind == TRMI_OP_EXCHANGE || s->op_kind == TRMI_OP_ALL_REDUCE);
        if (talks) { /* both ends must lay their parts out alike */
            int32_t form[3] = {(int32_t)s->op_kind, (int32_t)p->buffers[s->inputs[0]].layout,
                               (int32_t)p->buffers[s->outputs[0]].layout};
            hash = mix(hash, form, sizeof form);
            hash = mix(hash, s->name, strlen(s->name));
        }
    }
    for (int32_t i = 0; i < p->params_count; i++) {
        hash = mix(hash, &p->params[i].grad_axes, sizeof p->params[i].grad_axes);
    }
    return hash;
}

/* ---- variables ------------------------------------------------------------------------------------------------------- */

const trmi_shard_leaf *trmi_shard_leaf_named(const trm_program *program, const char *name) {
    for (int32_t i = 0; i < program->leaves_count; i++) {
        if (strcmp(program->leaves[i].name, name) == 0) {
            return &program->leaves[i];
        }
    }
    return NULL;
}

const trmi_shard_leaf *trmi_shard_cut(const trm_exec *exec, int32_t variable) {
    const trmi_buffer *b = &exec->program->buffers[exec->variable_buffers[variable]];
    const trmi_shard_leaf *leaf = trmi_shard_leaf_named(exec->program, b->name);
    if (leaf == NULL) {
        return NULL;
    }
    trmi_box whole = trmi_box_whole(&leaf->global);
    return trmi_box_equal(&whole, &leaf->box) ? NULL : leaf;
}

trm_status trmi_shard_assemble(trm_exec *exec, const trmi_shard_leaf *leaf, trm_dtype dtype, const void *part,
                               void *whole, trm_error *err) {
    trmi_parallel *p = exec->parallel;
    size_t element = trm_dtype_bytes(dtype);
    int64_t *counts = trmi_alloc((size_t)p->size * sizeof *counts), total = 0;
    for (int32_t r = 0; counts != NULL && r < p->size; r++) {
        trmi_box box = trmi_spread_box(&p->shard->plan->mesh, &leaf->global, &leaf->spread, r);
        counts[r] = trmi_box_count(&box);
        total += counts[r];
    }
    char *all = trmi_alloc((size_t)total * element);
    trm_status status = counts == NULL || all == NULL ? TRMI_FAIL(err, TRM_NOMEM, "no memory to gather %s", leaf->name)
                                                      : TRM_OK;
    if (status == TRM_OK) {
        const trm_collective op = {.kind = TRM_ALLGATHERV, .send = part, .recv = all, .dtype = dtype,
                                   .counts = counts, .tag = leaf->name};
        status = trm_comm_run(p->comm, &op, err);
    }
    int64_t at = 0;
    for (int32_t r = 0; status == TRM_OK && r < p->size; r++) {
        trmi_box box = trmi_spread_box(&p->shard->plan->mesh, &leaf->global, &leaf->spread, r);
        trmi_shard_copy_box(whole, &leaf->global, &box, all + (size_t)at * element, element, true);
        at += counts[r];
    }
    trmi_free(counts);
    trmi_free(all);
    return status;
}

trm_status trmi_shard_gather(trm_exec *exec, trm_error *err) {
    for (int32_t i = 0; i < exec->variables_count; i++) {
        const trmi_shard_leaf *leaf = trmi_shard_cut(exec, i);
        if (leaf == NULL) {
            continue;
        }
        trm_dtype dtype = exec->variables[i].dtype;
        void *part = trmi_alloc((size_t)trmi_box_count(&leaf->box) * trm_dtype_bytes(dtype));
        if (exec->wholes[i] == NULL) {
            exec->wholes[i] = trmi_alloc((size_t)trm_shape_count(&leaf->global) * trm_dtype_bytes(dtype));
        }
        if (part == NULL || exec->wholes[i] == NULL) {
            trmi_free(part);
            return TRMI_FAIL(err, TRM_NOMEM, "no memory to gather %s", exec->variables[i].name);
        }
        trmi_exec_read_part(exec, i, part);
        trm_status status = trmi_shard_assemble(exec, leaf, dtype, part, exec->wholes[i], err);
        trmi_free(part);
        TRMI_TRY(status);
    }
    return TRM_OK;
}

/* ---- norms over cut parameters ---------------------------------------------------------------------------------------- */

/* Does this rank speak for its part: the first of those that hold the same. */
static bool speaks(const trm_exec *exec, const trmi_shard_leaf *leaf) {
    int32_t at[TRMI_MESH_AXES];
    const trmi_mesh *mesh = &exec->parallel->shard->plan->mesh;
    trmi_mesh_coordinates(mesh, exec->parallel->rank, at);
    bool first = true;
    for (int32_t i = 0; i < mesh->axes; i++) {
        first = first && (leaf->spread.at[i] >= TRMI_SPLIT || at[i] == 0);
    }
    return first;
}

trm_status trmi_shard_norms(void *context, double *sums, int64_t count, trm_error *err) {
    trm_exec *exec = context;
    const trm_program *p = exec->program;
    int64_t blocks = trmi_update_block_count(exec->update), sets = blocks > 0 ? count / blocks : 0;
    double *totals = trmi_alloc((size_t)(sets * p->params_count + 1) * sizeof *totals);
    if (totals == NULL) {
        return TRMI_FAIL(err, TRM_NOMEM, "no memory for the optimiser's norms");
    }
    trm_status status = TRM_OK;
    for (int turn = 0; turn < 2 && status == TRM_OK; turn++) {
        int64_t block = 0;
        for (int32_t i = 0; i < p->params_count; i++) {
            const trmi_buffer *b = &p->buffers[p->params[i].param_buffer];
            int64_t end = (b->offset + b->bytes) / (int64_t)sizeof(float), first = block;
            const trmi_shard_leaf *leaf = trmi_shard_leaf_named(p, b->name);
            for (; block < blocks && trmi_update_block_offset(exec->update, block) < end; block++) {
                for (int64_t set = 0; set < sets; set++) {
                    double *sum = &sums[set * blocks + block], *total = &totals[set * p->params_count + i];
                    if (turn == 0) {
                        *total += leaf != NULL && speaks(exec, leaf) ? *sum : 0;
                    } else {
                        *sum = block == first ? *total : 0;
                    }
                }
            }
        }
        if (turn == 0) {
            status = trm_comm_allreduce(exec->parallel->comm, totals, sets * p->params_count, TRM_FLOAT64,
                                        TRM_REDUCE_SUM, err);
        }
    }
    trmi_free(totals);
    return status;
}

/* ---- inputs --------------------------------------------------------------------------------------------------------- */

static bool feeds_own(const trm_exec *exec) { return exec->parallel != NULL && exec->parallel->options.own_samples; }

trm_shape trmi_shard_fed_shape(const trm_exec *exec, const trm_shape *global) {
    trm_shape shape = *global;
    if (feeds_own(exec) && shape.rank > 0) {
        shape.dim[0] /= exec->parallel->size;
    }
    return shape;
}

static trm_status make_own(trm_exec *exec, trmi_shard_input *in, const trmi_buffer *b, trm_error *err) {
    if (!feeds_own(exec)) {
        return TRM_OK;
    }
    const trm_shape *global = &in->leaf->global;
    if (global->rank < 1 || global->dim[0] % exec->parallel->size != 0) {
        return TRMI_FAIL(err, TRM_INVALID, "input '%s': %lld samples do not divide among %d ranks that feed their own; let "
                         "every rank feed the whole batch (full_batch)", b->name,
                         (long long)(global->rank < 1 ? 1 : global->dim[0]), exec->parallel->size);
    }
    trm_shape shape = trmi_shard_fed_shape(exec, global);
    in->own = trmi_alloc((size_t)trm_shape_count(&shape) * trm_dtype_bytes(b->dtype));
    return in->own != NULL ? TRM_OK : TRMI_FAIL(err, TRM_NOMEM, "no memory for the batch");
}

/* Samples of all ranks, dealt in turn. */
static trm_status join_samples(trm_exec *exec, const trmi_shard_input *in, trm_dtype dtype, trm_error *err) {
    const trmi_parallel *p = exec->parallel;
    int64_t rows = in->leaf->global.dim[0] / p->size, count = trm_shape_count(&in->leaf->global) / p->size;
    size_t each = (size_t)(count / (rows > 0 ? rows : 1)) * trm_dtype_bytes(dtype);
    char *all = trmi_alloc((size_t)(count * p->size) * trm_dtype_bytes(dtype));
    if (all == NULL) {
        return TRMI_FAIL(err, TRM_NOMEM, "no memory for the batch");
    }
    const trm_collective op = {.kind = TRM_ALLGATHER, .send = in->own, .recv = all, .count = count, .dtype = dtype,
                               .tag = "samples"};
    trm_status status = trm_comm_run(p->comm, &op, err);
    for (int64_t i = 0; status == TRM_OK && i < rows * p->size; i++) {
        memcpy((char *)in->data + (size_t)i * each, all + (size_t)(i % p->size * rows + i / p->size) * each, each);
    }
    trmi_free(all);
    return status;
}

trm_status trmi_shard_make_inputs(trm_exec *exec, trm_error *err) {
    const trm_program *p = exec->program;
    if (p->leaves_count == 0) {
        return TRM_OK;
    }
    exec->whole_inputs = trmi_arena_alloc(&exec->memory, (size_t)(p->inputs_count + 1) * sizeof *exec->whole_inputs);
    for (int32_t i = 0; exec->whole_inputs != NULL && i < p->inputs_count; i++) {
        const trmi_buffer *b = &p->buffers[p->inputs[i]];
        const trmi_shard_leaf *leaf = trmi_shard_leaf_named(p, b->name);
        void *data = leaf == NULL ? NULL : trmi_alloc((size_t)trm_shape_count(&leaf->global) * trm_dtype_bytes(b->dtype));
        if (data == NULL) {
            return TRMI_FAIL(err, TRM_NOMEM, "no memory for the batch");
        }
        exec->whole_inputs[i] = (trmi_shard_input){.data = data, .leaf = leaf};
        TRMI_TRY(make_own(exec, &exec->whole_inputs[i], b, err));
    }
    return exec->whole_inputs != NULL ? TRM_OK : TRMI_FAIL(err, TRM_NOMEM, "no memory for the batch");
}

trm_status trmi_shard_take_inputs(trm_exec *exec, trm_error *err) {
    const trm_program *p = exec->program;
    for (int32_t i = 0; exec->whole_inputs != NULL && i < p->inputs_count; i++) {
        const trmi_buffer *b = &p->buffers[p->inputs[i]];
        const trmi_shard_input *in = &exec->whole_inputs[i];
        if (in->own != NULL) {
            TRMI_TRY(join_samples(exec, in, b->dtype, err));
        }
        trmi_shard_copy_box(in->data, &in->leaf->global, &in->leaf->box, exec->env.arena[b->arena] + b->offset,
                            trm_dtype_bytes(b->dtype), false);
    }
    return TRM_OK;
}
