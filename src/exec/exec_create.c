/* SPDX-License-Identifier: Apache-2.0 */
/* Makes and destroys executors. trmi_exec_create calls, in this order:
 *
 *      ways       open           the active ways of training (exec/distributed/distribution.h)
 *      back-ends  make_backends  the fast one; the reference one for steps it has no kernel for
 *      program    compile        the graph as the options and the ways want it (plan/lower/program.h)
 *      memory     take_memory    one block for each arena: the executor's own, the training
 *                                executor's (share), a way's, the caller's
 *      kernels    bind_kernels   one for each step
 *      state      create         outputs, optimiser, loss scale, variables and their first values
 *
 * All memory of a step is taken here: a training step allocates nothing. On any error the executor
 * is destroyed, and the communicator aborts so that other ranks do not wait for this one. */
#include "exec/exec.h"
#include "exec/distributed/batches.h"
#include "exec/distributed/ways.h"
#include "exec/memory_limit.h"
#include "exec/threads.h"

#include "plan/partition/partition.h"

#include "base/error.h"
#include "base/memory.h"
#include "base/os.h"

#include <string.h>

/* Makes the reference back-end and the fast one, with its tuning cache: tuning_file if given ("":
 * no file), else tuning.txt in the cache directory. Where kernels sum by blocks of samples
 * (kernels_from.blocks), nothing measured decides, and rates are fixed. */
static trm_status make_backends(trm_exec *exec, const trm_exec_options *options, trm_error *err) {
    TRMI_TRY(trmi_backend_ref(exec->env.threads, &exec->reference, err));
    const trmi_kernel_source *from = &exec->kernels_from;
    const char *name = from->backend;
#ifdef TRIREME_ONEDNN
    if (name == NULL || strcmp(name, "onednn") == 0) {
        char path[512], *file = NULL;
        if (from->blocks > 0) {
            TRMI_TRY(trmi_backend_onednn(exec->env.threads, NULL, &exec->backend, err));
            trmi_backend_onednn_blocks(exec->backend, from->single_blocks);
            return TRM_OK;
        }
        /* Read the tuning file, which later processes share. */
        if (options->tuning_file != NULL) {
            file = options->tuning_file[0] == '\0'
                       ? NULL
                       : trmi_arena_strdup(&exec->memory, options->tuning_file);
        } else if (trmi_os_cache_dir(path, sizeof path)) {
            file = trmi_arena_printf(&exec->memory, "%s/tuning.txt", path);
        }
        TRMI_TRY(trmi_backend_onednn(exec->env.threads, file, &exec->backend, err));
        if (options->retune_seconds > 0 && !from->others_retune) {
            trmi_backend_onednn_retune(exec->backend, options->retune_seconds);
        }
        return options->choices_file == NULL
                   ? TRM_OK
                   : trmi_backend_onednn_keep(exec->backend, options->choices_file, err);
    }
#endif
    if (name == NULL || strcmp(name, "ref") == 0) {
        exec->backend = exec->reference;
        return TRM_OK;
    }
#ifdef TRIREME_ONEDNN
    return TRMI_FAIL(err, TRM_INVALID, "back-end '%s': there are onednn and ref", name);
#else
    return TRMI_FAIL(err, TRM_INVALID, "back-end '%s': this build has only ref", name);
#endif
}

/* Gives parameters and states of an evaluation program the offsets that they have in the training
 * executor (exec->share), whose arenas it uses. Fails with INVALID unless each is there with the
 * same name, shape and layout. */
static trm_status move_to_shared(trm_exec *exec, trm_error *err) {
    trm_program *p = exec->program;
    const trm_program *theirs = exec->share->program;
    for (int32_t i = 1; i < p->buffers_count; i++) {
        trmi_buffer *b = &p->buffers[i];
        if ((b->arena != TRMI_ARENA_PARAM && b->arena != TRMI_ARENA_STATE) || b->alias_of != 0) {
            continue;
        }
        /* Find the buffer of the training program with the same name. */
        const trmi_buffer *same = NULL;
        for (int32_t j = 1; j < theirs->buffers_count && same == NULL; j++) {
            const trmi_buffer *c = &theirs->buffers[j];
            same = c->arena == b->arena && c->alias_of == 0 && strcmp(c->name, b->name) == 0 ? c
                                                                                             : NULL;
        }
        if (same == NULL || !trm_shape_equal(&same->shape, &b->shape) ||
            same->layout != b->layout) {
            return TRMI_FAIL(err, TRM_INVALID,
                             "%s: the graph to share with has no such %s of this shape and layout; "
                             "build both graphs with the same parameters",
                             b->name, b->arena == TRMI_ARENA_PARAM ? "parameter" : "state");
        }
        b->offset = same->offset;
    }
    /* Aliases follow the buffers that they share. */
    for (int32_t i = 1; i < p->buffers_count; i++) {
        trmi_buffer *b = &p->buffers[i];
        b->offset = p->buffers[trmi_buffer_root(p, i)].offset;
    }
    return TRM_OK;
}

/* Compiles the graph to a program, by the options as active ways have changed them. One device that
 * exceeds its memory limit gets a plan that recomputes activations. Then places shared buffers, and
 * ways may move buffers between arenas. */
static trm_status compile_program(trm_exec *exec, const trm_graph *graph,
                                  const trm_exec_options *options, trm_error *err) {
    trmi_plan_options plan = {
        .target = &exec->backend->target,
        .loss = options->loss,
        .outputs = options->outputs,
        .outputs_count = options->outputs_count,
        .precision = options->precision,
        .no_fusion = options->fusion == TRM_OFF,
        .recompute = options->recompute,
        .dense_gradients = exec->accumulate > 1 || options->whole_gradients,
        .readers_round =
            !options->keep_casts && trmi_readers_round(exec->accumulate, exec->ways_count == 0),
        .reuse_gradients =
            exec->ways_count == 0 && !exec->updated_elsewhere && !options->whole_gradients,
        /* Gradients may stay in factors only if the local optimiser alone reads them: not if
         * micro-batches are summed, or servers or the caller take gradients. */
        .factored_gradients =
            !options->whole_gradients && exec->accumulate == 1 && !exec->updated_elsewhere,
    };
    if (options->recompute && graph->training && graph->segments_count == 0) {
        return TRMI_FAIL(
            err, TRM_INVALID,
            "recompute: the network has no segments; trm_graph_mark_segment marks them");
    }
    TRMI_TRY(trmi_distribution_plan(exec, graph, options, &plan, err));
    /* One device over its limit gets a plan that recomputes activations. Ways of training have
     * their own plans. */
    if (exec->memory_bytes > 0 && exec->ways_count == 0 && options->loss.id != 0) {
        TRMI_TRY(trmi_limit_single_device(exec, graph, &plan, &exec->alone, err));
        plan.partition = exec->alone;
    }
    TRMI_TRY(trmi_plan_create(graph, &plan, &exec->program, err));
    if (exec->program->training && trmi_program_is_frozen(exec->program)) {
        return TRMI_FAIL(err, TRM_INVALID, "all %d parameters are frozen: there is none to train",
                         exec->program->params_count);
    }
    TRMI_TRY(trmi_limit_check(exec, err));
    if (exec->share != NULL) {
        TRMI_TRY(move_to_shared(exec, err));
    }
    if (options->keep_casts && !exec->program->training) {
        TRMI_TRY(trmi_exec_keep_casts(exec, err));
    }
    return trmi_distribution_place(exec, err);
}

/* Takes memory for one arena: of the training executor (share), of a way of training, or a new
 * mapping, which the executor owns. A way may return OK and give the
 * memory later, in its `connect`. */
static trm_status take_arena(trm_exec *exec, trmi_arena_id a, trm_error *err) {
    size_t bytes = (size_t)exec->program->arena_bytes[a];
    char **memory = &exec->env.arena[a];
    if (exec->share != NULL && (a == TRMI_ARENA_PARAM || a == TRMI_ARENA_STATE)) {
        *memory = exec->share->env.arena[a];
        return TRM_OK;
    }
    if (exec->casts_of != NULL && a == TRMI_ARENA_CAST) {
        *memory = exec->casts_of->env.arena[a];
        return TRM_OK;
    }
    if ((a == TRMI_ARENA_CAST || a == TRMI_ARENA_COOPERATIVE || a == TRMI_ARENA_KEPT) &&
        bytes == 0) {
        return TRM_OK;
    }
    void *taken = NULL;
    trm_status status = trmi_distribution_memory(exec, a, bytes, &taken, err);
    if (status != TRM_UNSUPPORTED) {
        *memory = taken;
        return status;
    }
    *memory = exec->owned[a] = trmi_map(bytes);
    return *memory != NULL
               ? TRM_OK
               : TRMI_NO_MEMORY(err, "for %.1f MB of arena %d", (double)bytes / 1e6, (int)a);
}

/* Takes memory for all arenas and writes the constants. Refuses with NOMEM, before any memory is
 * taken, a program that exceeds the memory that this process may have. */
static trm_status take_memory(trm_exec *exec, trm_error *err) {
    const trm_program *p = exec->program;
    /* Compare with the memory there is, before the first mapping. */
    int64_t needed = 0, present = trmi_os_memory_bytes();
    for (int a = 0; a < TRMI_ARENAS; a++) {
        needed += p->arena_bytes[a];
    }
    if (needed > present) {
        char a[TRMI_BYTES_TEXT], b[TRMI_BYTES_TEXT], c[TRMI_BYTES_TEXT];
        return TRMI_FAIL(err, TRM_NOMEM,
                         "the program needs %s (activations %s), this process may have %s; use a "
                         "smaller batch, context, image or network",
                         trmi_bytes_text((double)needed, a),
                         trmi_bytes_text((double)trmi_program_activations(p), b),
                         trmi_bytes_text((double)present, c));
    }
    for (int a = 1; a < TRMI_ARENAS; a++) {
        TRMI_TRY(take_arena(exec, (trmi_arena_id)a, err));
        /* Gradients that stay in factors are never written: their pages go back to the system. */
        if (a == TRMI_ARENA_GRAD && p->untouched_bytes > 0) {
            size_t tail = (size_t)p->untouched_bytes, bytes = (size_t)p->arena_bytes[a];
            trmi_release_pages(exec->env.arena[a] + bytes - tail, tail);
        }
    }
    /* Constants are written once; the seed of the loss scale is one of them (exec_scale.c). */
    for (int32_t i = 1; i < p->buffers_count; i++) {
        const trmi_buffer *b = &p->buffers[i];
        if (b->arena == TRMI_ARENA_CONSTANT && b->alias_of == 0) {
            const trmi_op *op = &p->graph->ops[p->graph->values[b->value].op];
            memcpy(exec->env.arena[b->arena] + b->offset, op->attrs.constant.data,
                   (size_t)b->bytes);
        }
    }
    return TRM_OK;
}

/* Binds the kernel of one step. Three sources are tried in this order, until one does not return
 * UNSUPPORTED: the active ways of training, the fast back-end, the reference back-end. */
static trm_status bind_step(trm_exec *exec, trmi_kernel *kernel, trm_error *err) {
    trm_status status = trmi_distribution_bind(exec, kernel, err);
    if (status == TRM_UNSUPPORTED) {
        status = exec->backend->bind(exec->backend, kernel, err);
    }
    if (status == TRM_UNSUPPORTED && exec->backend != exec->reference) {
        status = exec->reference->bind(exec->reference, kernel, err);
    }
    return status;
}

/* Binds a kernel to each step of the program. */
static trm_status bind_kernels(trm_exec *exec, trm_error *err) {
    trm_program *p = exec->program;
    TRMI_TRY(TRMI_NEW_IN(err, &exec->memory, exec->kernels, p->steps_count + 1, "for %d kernels",
                         p->steps_count));
    for (int32_t i = 0; i < p->steps_count; i++) {
        exec->kernels[i] = (trmi_kernel){.program = p, .step = &p->steps[i]};
        TRMI_TRY(bind_step(exec, &exec->kernels[i], err));
    }
    return TRM_OK;
}

/* Returns whether a step of the program reads a buffer. */
static bool is_read(const trm_program *p, int32_t buffer) {
    const int32_t root = trmi_buffer_root(p, buffer);
    for (int32_t i = 0; i < p->steps_count; i++) {
        const trmi_step *step = &p->steps[i];
        for (int32_t k = 0; k < step->inputs_count; k++) {
            if (step->inputs[k] != 0 && trmi_buffer_root(p, step->inputs[k]) == root) {
                return true;
            }
        }
    }
    return false;
}

/* Records the buffers of loss and outputs, and that inputs which are read have no values yet.
 * Outputs in 16 bits get a float32 copy for the caller. */
static trm_status make_inputs_outputs(trm_exec *exec, trm_error *err) {
    const trm_program *p = exec->program;
    TRMI_TRY(
        TRMI_NEW_IN(err, &exec->memory, exec->inputs_known, p->inputs_count + 1, "for inputs"));
    for (int32_t i = 0; i < p->inputs_count; i++) {
        exec->inputs_known[i] = !is_read(p, p->inputs[i]);
        exec->inputs_unknown += !exec->inputs_known[i];
    }
    TRMI_TRY(TRMI_NEW_IN(err, &exec->memory, exec->outputs, p->outputs_count + 1, "for outputs"));
    for (int32_t i = 0; i < p->outputs_count; i++) {
        const trmi_buffer *b = &p->buffers[p->outputs[i]];
        exec->outputs[i].buffer = p->outputs[i];
        if (p->outputs[i] != 0 && (b->dtype == TRM_BFLOAT16 || b->dtype == TRM_FLOAT16)) {
            exec->outputs[i].copy =
                trmi_arena_alloc(&exec->memory, (size_t)trm_shape_count(&b->shape) * sizeof(float));
            if (exec->outputs[i].copy == NULL) {
                return TRMI_NO_MEMORY(err, "for outputs");
            }
        }
    }
    return TRM_OK;
}

/* Returns the resident bytes of the process without its code. */
static int64_t taken_bytes(void) { return trmi_os_resident_bytes() - trmi_os_file_bytes(); }

/* Frees memory that the back-end used only to choose kernels, and counts it out of
 * overhead_bytes. */
static void release_planning_memory(trm_exec *exec) {
    int64_t before = taken_bytes();
    if (exec->backend->settle != NULL) {
        exec->backend->settle(exec->backend);
    }
    trmi_os_trim();
    exec->overhead_bytes += taken_bytes() - before;
}

/* Makes an executor whose ways are open. overhead_bytes becomes the growth of the resident memory
 * beside the arenas, measured around the stages that allocate it. */
static trm_status create_stages(trm_exec *exec, const trm_graph *graph,
                                const trm_exec_options *options, trm_error *err) {
    TRMI_TRY(trm_graph_check(graph, err));
    if (exec->kernels_from.await_turn != NULL) {
        TRMI_TRY(exec->kernels_from.await_turn(exec, err));
    }
    int64_t before = taken_bytes();
    TRMI_TRY(make_backends(exec, options, err));
    TRMI_TRY(compile_program(exec, graph, options, err));
    exec->overhead_bytes = taken_bytes() - before;
    TRMI_TRY(take_memory(exec, err));
    before = taken_bytes();
    TRMI_TRY(bind_kernels(exec, err));
    TRMI_TRY(make_inputs_outputs(exec, err));
    exec->overhead_bytes += taken_bytes() - before;
    TRMI_TRY(trmi_distribution_connect(exec, options, err));
    TRMI_TRY(trmi_exec_make_update(exec, err));
    exec->forward_overwrites = trmi_exec_forward_overwrites(exec);
    TRMI_TRY(trmi_exec_make_scale(exec, &options->loss_scale, err));
    TRMI_TRY(trmi_exec_list_variables(exec, err));
    if (exec->share == NULL && exec->initialises) {
        TRMI_TRY(trmi_exec_initialise(exec, err));
    }
    TRMI_TRY(trmi_distribution_begin(exec, err));
    trmi_exec_schedule(exec);
    TRMI_TRY(trmi_exec_share_slots(exec, err));
    release_planning_memory(exec);
    return TRM_OK;
}

/* Contract in exec.h. The order matters: options that later calls read, then the ways of
 * training (which choose threads and the sources of kernels), then the programs of this rank's
 * stages. A rank that fails aborts the communicator, so that the others do not wait for it. */
trm_status trmi_exec_create(const trm_graph *graph, const trm_exec_options *options,
                            trmi_exec_search *search, const trmi_kernel_source *from,
                            trm_exec **out, trm_error *err) {
    double begin = trmi_os_now();
    trm_exec *exec;
    if (options->threads < 0) {
        return TRMI_FAIL(err, TRM_INVALID,
                         "%d threads: 0 (as many as a step needs) or a number of them expected",
                         options->threads);
    }
    if (options->accumulate < 0 || options->memory_bytes < 0) {
        return TRMI_FAIL(err, TRM_INVALID,
                         "%d accumulated batches and %lld bytes of memory: no number below 0 "
                         "expected",
                         options->accumulate, (long long)options->memory_bytes);
    }
    TRMI_TRY(TRMI_NEW(err, exec, 1, "for an executor"));
    exec->file_bytes = trmi_os_file_bytes();
    /* Copy the options that later calls read. */
    exec->search = search;
    exec->share = options->parameters_of;
    exec->updated_elsewhere = options->updated_elsewhere;
    exec->lends_state = options->share_slots == TRM_ON;
    exec->initialises = options->initialise != TRM_OFF;
    exec->optimizer = options->optimizer;
    exec->memory_bytes = options->memory_bytes;
    exec->accumulate = options->accumulate > 1 ? options->accumulate : 1;
    exec->env.seed = options->seed;
    int32_t parts = trmi_batch_form_of(&options->parallel).graph_ranks;
    exec->threads = exec->share != NULL ? exec->share->threads /* its layouts depend on them */
                                        : trmi_threads_choose(graph, options, parts);
    exec->env.threads = exec->threads;
    exec->kernels_from = from != NULL ? *from : (trmi_kernel_source){.backend = options->backend};
    exec->walk = trmi_exec_run;
    exec->walk_program = trmi_exec_walk_program;
    exec->seed_share = 1;
    exec->parameter_seed = options->seed;
    exec->divided = (trmi_training){
        .slots = exec->updated_elsewhere ? 0 : trmi_optimizer_slots(&exec->optimizer),
        .ranks = 1,
        .accumulates = exec->accumulate > 1,
    };
    /* The ways of a stage see its ranks. They may change threads and kernels_from, so back-ends are
     * made afterwards. */
    trm_exec_options own = *options;
    trm_status status = trmi_distribution_open(exec, trmi_ways, trmi_ways_count, &own, err);
    trmi_threads_use(exec->env.threads);
    status = status == TRM_OK ? create_stages(exec, graph, &own, err) : status;
    if (status != TRM_OK) {
        if (options->parallel.comm != NULL && err != NULL) {
            trm_comm_abort(options->parallel.comm, err);
        }
        trm_exec_destroy(exec);
        return status;
    }
    exec->create_seconds = trmi_os_now() - begin;
    *out = exec;
    return TRM_OK;
}

/* Contract in trireme/exec.h. owned[] has no entry for an arena that a way of training or another
 * executor owns, so that it stays. */
void trm_exec_destroy(trm_exec *exec) {
    if (exec == NULL) {
        return;
    }
    for (int32_t i = 0; exec->kernels != NULL && i < exec->program->steps_count; i++) {
        if (exec->kernels[i].destroy != NULL) {
            exec->kernels[i].destroy(&exec->kernels[i]);
        }
    }
    trmi_update_destroy(exec->update);
    if (exec->backend != NULL && exec->backend != exec->reference) {
        exec->backend->destroy(exec->backend);
    }
    if (exec->reference != NULL) {
        exec->reference->destroy(exec->reference);
    }
    for (int a = 0; a < TRMI_ARENAS; a++) {
        if (exec->owned[a] != NULL) {
            trmi_unmap(exec->owned[a], (size_t)exec->program->arena_bytes[a]);
        }
    }
    if (exec->owns_accumulator) {
        trmi_free(exec->accumulator);
    }
    trmi_distribution_close(exec);
    for (int32_t i = 0; exec->wholes != NULL && i < exec->variables_count; i++) {
        trmi_free(exec->wholes[i]);
    }
    trmi_partition_plan_destroy(exec->alone);
    trmi_plan_destroy(exec->program);
    trmi_free(exec->profile);
    trmi_arena_free(&exec->memory);
    trmi_free(exec);
}
