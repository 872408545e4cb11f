/* SPDX-License-Identifier: Apache-2.0 */
/* How an executor comes to be, and goes:
 *
 *      ranks      trmi_parallel_open   who computes with whom (nothing when alone)
 *      back-ends  make_backends        the fast one, and the reference for what it has no kernel for
 *      program    compile              a split graph's missing choices are searched for, then plan/lower/program.h
 *      memory     take_memory          a block an arena: its own, the training executor's (share), the host's, the caller's
 *      kernels    bind_kernels         a step's: communication of a split graph, exact twin, fast, reference
 *      state      create               outputs, optimiser, loss scale, variables and their first values
 *
 * Everything that a step needs is made here: a step allocates nothing.
 */
#include "exec/exec.h"
#include "exec/limit.h"
#include "exec/threads.h"
#include "exec/distributed/shard.h"

#include "exec/determinism/exact.h"

#include "base/error.h"
#include "base/memory.h"
#include "base/os.h"

#include <string.h>

static trm_status make_backends(trm_exec *exec, const trm_exec_options *options, trm_error *err) {
    TRMI_TRY(trmi_backend_ref(exec->env.threads, &exec->reference, err));
    const char *name = exec->env.exact ? "ref" : options->backend;
#ifdef TRIREME_ONEDNN
    if (name == NULL || strcmp(name, "onednn") == 0) {
        char path[512], *file = NULL;
        if (options->lanes > 0) {
            TRMI_TRY(trmi_backend_onednn(1, NULL, &exec->backend, err));
            /* never measured: the program depends on them */
            exec->backend->target.flops_per_second = 1e11;
            exec->backend->target.bytes_per_second = 1e10;
            return TRM_OK;
        }
        if (options->tuning_file != NULL) {
            file = options->tuning_file[0] == '\0'
                       ? NULL
                       : trmi_arena_strdup(&exec->memory, options->tuning_file);
        } else if (trmi_os_cache_dir(path, sizeof path)) {
            file = trmi_arena_printf(&exec->memory, "%s/tuning.txt", path);
        }
        TRMI_TRY(trmi_backend_onednn(exec->env.threads, file, &exec->backend, err));
        const trmi_parallel *ranks = exec->parallel; /* of a host the first one measures, for all */
        if (options->retune_seconds > 0 &&
            (ranks == NULL || ranks->shard != NULL || trm_comm_local_rank(ranks->comm) == 0)) {
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

static trm_status compile(trm_exec *exec, const trm_graph *graph, const trm_exec_options *options,
                          trm_error *err) {
    trmi_plan_options plan = {
        .target = &exec->backend->target,
        .loss = options->loss,
        .outputs = options->outputs,
        .outputs_count = options->outputs_count,
        .precision = options->precision,
        .no_fusion = options->no_fusion,
        .dense_gradients =
            exec->accumulate > 1 || exec->parallel != NULL || options->lanes > 0 || exec->env.exact,
        /* Sums over ranks, micro-batches or lanes need them whole, and so does who takes them
         * elsewhere. */
        .factored_gradients = !options->whole_gradients && exec->accumulate == 1 &&
                              options->lanes == 0 && !exec->env.exact && !exec->updated_elsewhere &&
                              options->arena_alloc == NULL &&
                              (exec->parallel == NULL || exec->parallel->shard != NULL),
        .local_norms = options->parallel.sync_batch_norm == TRM_NORM_LOCAL,
        .shard = exec->alone,
    };
    if (exec->parallel != NULL && exec->parallel->shard != NULL) {
        exec->parallel->shard->tuning_file = options->tuning_file;
        exec->parallel->shard->options = options;
        exec->parallel->shard->slices = trmi_shard_may_slice(exec, options);
        TRMI_TRY(trmi_shard_complete(exec, graph, &plan, err));
        TRMI_TRY(trmi_parallel_before_compile(exec, err));
        plan.shard = exec->parallel->shard->plan;
        plan.rank = exec->parallel->rank;
        exec->parallel->shard->plan->exact = exec->env.exact;
    } else if (exec->alone != NULL) {
        exec->alone->exact = true;
    } else if (exec->memory_bytes > 0 && exec->parallel == NULL && options->lanes == 0 &&
               options->loss.id != 0) {
        TRMI_TRY(trmi_limit_alone(exec, graph, &plan, &exec->alone, err));
        plan.shard = exec->alone;
    }
    plan.joint_ranks = trmi_joint_ranks(exec, options);
    plan.joint_products = options->parallel.joint == TRM_JOINT_ALL;
    trmi_shard_report report = {.work = NULL};
    bool tells =
        exec->parallel != NULL && exec->parallel->shard != NULL && exec->parallel->rank == 0;
    plan.report = tells ? &report : NULL;
    trm_status status = trmi_plan_create(graph, &plan, &exec->program, err);
    if (status == TRM_OK && tells) {
        trmi_shard_warn(exec, &report);
    }
    trmi_shard_report_free(&report);
    return status == TRM_OK ? trmi_limit_check(exec, err) : status;
}

/* An evaluation program keeps its parameters and states where the training program has them. */
static trm_status move_to_shared(trm_exec *exec, trm_error *err) {
    trm_program *p = exec->program;
    const trm_program *theirs = exec->share->program;
    for (int32_t i = 1; i < p->buffers_count; i++) {
        trmi_buffer *b = &p->buffers[i];
        if ((b->arena != TRMI_ARENA_PARAM && b->arena != TRMI_ARENA_STATE) || b->alias_of != 0) {
            continue;
        }
        const trmi_buffer *same = NULL;
        for (int32_t j = 1; j < theirs->buffers_count && same == NULL; j++) {
            const trmi_buffer *c = &theirs->buffers[j];
            same = c->arena == b->arena && c->alias_of == 0 && strcmp(c->name, b->name) == 0 ? c
                                                                                             : NULL;
        }
        if (same == NULL || !trm_shape_equal(&same->shape, &b->shape) ||
            same->layout != b->layout) {
            return TRMI_FAIL(err, TRM_INVALID,
                             "%s: the graph to share with has no such %s of this shape and layout",
                             b->name, b->arena == TRMI_ARENA_PARAM ? "parameter" : "state");
        }
        b->offset = same->offset;
    }
    for (int32_t i = 1; i < p->buffers_count; i++) {
        trmi_buffer *b = &p->buffers[i];
        b->offset = p->buffers[trmi_buffer_root(p, i)].offset;
    }
    return TRM_OK;
}

static trm_status take_memory(trm_exec *exec, const trm_exec_options *options, trm_error *err) {
    const trm_program *p = exec->program;
    int64_t needed = 0, present = trmi_os_memory_bytes();
    for (int a = 0; a < TRMI_ARENAS; a++) {
        bool each = options->lanes > 1 && (a == TRMI_ARENA_INPUT || a == TRMI_ARENA_ACTIVATION);
        needed += p->arena_bytes[a] * (each ? options->lanes : 1);
    }
    if (needed > present) {
        char a[TRMI_BYTES_TEXT], b[TRMI_BYTES_TEXT], c[TRMI_BYTES_TEXT];
        return TRMI_FAIL(err, TRM_NOMEM,
                         "the program needs %s (activations %s), this process may have %s; use a "
                         "smaller batch or image",
                         trmi_bytes_text((double)needed, a),
                         trmi_bytes_text((double)p->arena_bytes[TRMI_ARENA_ACTIVATION], b),
                         trmi_bytes_text((double)present, c));
    }
    for (int a = 1; a < TRMI_ARENAS; a++) {
        /* of rank 0 for all */
        bool first = a == TRMI_ARENA_PARAM || a == TRMI_ARENA_CAST || a == TRMI_ARENA_JOINT;
        bool ranks = first || a == TRMI_ARENA_GRAD;
        bool shared = exec->share != NULL && (a == TRMI_ARENA_PARAM || a == TRMI_ARENA_STATE);
        size_t bytes = (size_t)p->arena_bytes[a];
        if (shared) {
            exec->env.arena[a] = exec->share->env.arena[a];
        } else if ((a == TRMI_ARENA_CAST || a == TRMI_ARENA_JOINT) && bytes == 0) {
            continue;
        } else if (ranks && options->arena_alloc != NULL) {
            exec->env.arena[a] = options->arena_alloc(options->arena_context, bytes);
        } else if (first && options->lanes == 0 && trmi_parallel_waits_for_first(exec)) {
            continue;
        } else if (a == TRMI_ARENA_GRAD && exec->parallel != NULL) {
            exec->env.arena[a] = trmi_joint_gradients(exec, err);
        } else if (ranks && exec->parallel != NULL) {
            exec->env.arena[a] = trmi_parallel_memory(exec->parallel, bytes, err);
        } else {
            exec->env.arena[a] = exec->owned[a] = trmi_map(bytes);
        }
        if (exec->env.arena[a] == NULL) {
            return TRMI_FAIL(err, TRM_NOMEM, "no memory for %.1f MB of %.1f MB",
                             (double)bytes / 1e6, (double)needed / 1e6);
        }
        if (a == TRMI_ARENA_GRAD && p->untouched_bytes > 0) {
            size_t tail = (size_t)p->untouched_bytes;
            trmi_release_pages((char *)exec->env.arena[a] + bytes - tail, tail);
        }
    }
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

/* One kernel a step, into an array of as many. */
static trm_status bind_into(trm_exec *exec, trmi_kernel *kernels, trm_error *err) {
    trm_program *p = exec->program;
    for (int32_t i = 0; i < p->steps_count; i++) {
        trmi_kernel *kernel = &kernels[i];
        *kernel = (trmi_kernel){.program = p, .step = &p->steps[i]};
        if (p->steps[i].joint) {
            continue; /* once the ranks' slices are known: trmi_joint_bind */
        }
        trm_status status = trmi_shard_bind(kernel, err);
        if (status == TRM_UNSUPPORTED && exec->env.exact) {
            status = trmi_exact_bind(kernel, err);
        }
        if (status == TRM_UNSUPPORTED) {
            status = exec->backend->bind(exec->backend, kernel, err);
        }
        if (status == TRM_UNSUPPORTED && exec->backend != exec->reference) {
            status = exec->reference->bind(exec->reference, kernel, err);
        }
        TRMI_TRY(status);
    }
    return TRM_OK;
}

static trm_status bind_kernels(trm_exec *exec, const trm_exec_options *options, trm_error *err) {
    int32_t steps = exec->program->steps_count;
    exec->kernels = trmi_arena_alloc(&exec->memory, (size_t)(steps + 1) * sizeof *exec->kernels);
    if (exec->kernels == NULL) {
        return TRMI_FAIL(err, TRM_NOMEM, "no memory for %d kernels", steps);
    }
    TRMI_TRY(bind_into(exec, exec->kernels, err));
    return options->lanes > 0
               ? trmi_lanes_create(exec, options->lanes, exec->threads, bind_into, err)
               : TRM_OK;
}

static trm_status make_outputs(trm_exec *exec, trm_error *err) {
    const trm_program *p = exec->program;
    exec->outputs =
        trmi_arena_alloc(&exec->memory, (size_t)(p->outputs_count + 1) * sizeof *exec->outputs);
    if (exec->outputs == NULL) {
        return TRMI_FAIL(err, TRM_NOMEM, "no memory for outputs");
    }
    for (int32_t i = 0; i < p->outputs_count; i++) {
        const trmi_buffer *b = &p->buffers[p->outputs[i]];
        exec->outputs[i].buffer = p->outputs[i];
        if (p->outputs[i] != 0 && (b->dtype == TRM_BFLOAT16 || b->dtype == TRM_FLOAT16)) {
            exec->outputs[i].copy =
                trmi_arena_alloc(&exec->memory, (size_t)trm_shape_count(&b->shape) * sizeof(float));
            if (exec->outputs[i].copy == NULL) {
                return TRMI_FAIL(err, TRM_NOMEM, "no memory for outputs");
            }
        }
    }
    return TRM_OK;
}

/* Choosing kernels took memory for a moment. */
static void settle(trm_exec *exec) {
    int64_t before = trmi_os_resident_bytes();
    if (exec->backend->settle != NULL) {
        exec->backend->settle(exec->backend);
    }
    trmi_os_trim();
    exec->overhead_bytes += trmi_os_resident_bytes() - before;
}

static trm_status create(trm_exec *exec, const trm_graph *graph, const trm_exec_options *options,
                         trm_error *err) {
    TRMI_TRY(trm_graph_check(graph, err));
    TRMI_TRY(trmi_parallel_before_compile(exec, err));
    int64_t before = trmi_os_resident_bytes();
    TRMI_TRY(make_backends(exec, options, err));
    TRMI_TRY(compile(exec, graph, options, err));
    trmi_shard_settle_slices(exec);
    if (exec->share != NULL) {
        TRMI_TRY(move_to_shared(exec, err));
    }
    exec->overhead_bytes = trmi_os_resident_bytes() - before;
    if (options->lanes == 0 && options->arena_alloc == NULL) {
        TRMI_TRY(trmi_parallel_place_casts(exec, err));
        trmi_joint_place(exec);
    }
    TRMI_TRY(take_memory(exec, options, err));
    before = trmi_os_resident_bytes();
    TRMI_TRY(bind_kernels(exec, options, err));
    TRMI_TRY(make_outputs(exec, err));
    exec->overhead_bytes += trmi_os_resident_bytes() - before;
    TRMI_TRY(trmi_parallel_after_compile(exec, err));
    TRMI_TRY(trmi_shard_open(exec, err));
    TRMI_TRY(trmi_shard_save_groups(exec, err));
    TRMI_TRY(trmi_shard_make_inputs(exec, err));
    TRMI_TRY(trmi_parallel_share_parameters(exec, err));
    TRMI_TRY(trmi_exec_make_update(exec, err));
    TRMI_TRY(trmi_exec_make_scale(exec, &options->loss_scale, err));
    TRMI_TRY(trmi_exec_list_variables(exec, err));
    if (exec->share == NULL) {
        TRMI_TRY(trmi_exec_initialise(exec, err));
    }
    TRMI_TRY(trmi_parallel_begin(exec, err));
    settle(exec);
    return TRM_OK;
}

trm_status trmi_exec_create(const trm_graph *graph, const trm_exec_options *options,
                            trmi_exec_search *search, trm_exec **out, trm_error *err) {
    double begin = trmi_os_now();
    trm_exec *exec = trmi_alloc(sizeof *exec);
    if (exec == NULL) {
        return TRMI_FAIL(err, TRM_NOMEM, "no memory for an executor");
    }
    exec->search = search;
    exec->share = options->share;
    exec->updated_elsewhere = options->updated_elsewhere;
    exec->optimizer = options->optimizer;
    exec->memory_bytes = options->memory_bytes;
    exec->accumulate = options->accumulate > 1 ? options->accumulate : 1;
    exec->env.seed = options->seed;
    exec->env.exact = options->parallel.exact;
    exec->threads = exec->share != NULL ? exec->share->threads /* its layouts depend on them */
                                        : trmi_threads_choose(graph, options);
    exec->env.threads = options->lanes > 0 ? 1 : exec->threads; /* lanes are shared out */
    trmi_threads_use(exec->env.threads);
    trm_status status = trmi_lanes_check(options, err);
    status = status == TRM_OK ? trmi_parallel_open(exec, &options->parallel, err) : status;
    status = status == TRM_OK && exec->env.exact ? trmi_exact_prepare(exec, err) : status;
    status = status == TRM_OK ? create(exec, graph, options, err) : status;
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
    if (exec->parallel == NULL) {
        trmi_free(exec->accumulator);
    }
    trmi_lanes_destroy(exec);
    if (exec->parallel == NULL) {
        trmi_shard_free_wholes(exec);
    }
    trmi_parallel_close(exec);
    trmi_shard_plan_destroy(exec->alone);
    trmi_plan_destroy(exec->program);
    trmi_free(exec->profile);
    trmi_arena_free(&exec->memory);
    trmi_free(exec);
}
