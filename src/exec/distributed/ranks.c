/* SPDX-License-Identifier: Apache-2.0 */
/* The way `ranks`: creates and destroys what an executor needs with many ranks. Gradients are
 * summed by reduction.c. In order of use:
 *
 *      open      options, copied          await_turn, release_turn   one rank of a host measures kernels
 *      memory    that peers reach         begin                      same program? buckets; rank 0's values
 *      close     the memory goes back */
#include "exec/exec.h"
#include "exec/exec_memory.h"
#include "exec/distributed/ranks_state.h"
#include "exec/autoparallel/op_benchmark.h"
#include "exec/distributed/split.h"

#include "base/arguments.h"
#include "base/checked.h"
#include "base/error.h"
#include "base/hash/hash.h"
#include "base/memory.h"
#include "base/os.h"
#include "comm/shm/shared_buffers.h"

#include <string.h>

/* ---- open ------------------------------------------------------------------------------------ */

/* Checks options that do not depend on the program.   errors  INVALID */
static trm_status check_options(const trm_parallel_options *o, int32_t size, trm_error *err) {
    if (o->wire != 0 && o->wire != TRM_FLOAT32 && o->wire != TRM_BFLOAT16 &&
        o->wire != TRM_FLOAT16) {
        return TRMI_FAIL(err, TRM_INVALID,
                         "gradients cannot be sent as %s: float32, bfloat16 or float16 expected",
                         trm_dtype_name(o->wire));
    }
    if (o->bucket == TRM_BUCKET_SIZE && o->bucket_bytes <= 0) {
        return TRMI_FAIL(err, TRM_INVALID, "gradient buckets of %lld bytes: at least 1 expected",
                         (long long)o->bucket_bytes);
    }
    if (o->sync_batch_norm > 1 && (o->sync_batch_norm > size || size % o->sync_batch_norm != 0)) {
        return TRMI_FAIL(err, TRM_INVALID,
                         "batch norm over groups of %d ranks: a divisor of the %d ranks expected",
                         o->sync_batch_norm, size);
    }
    return TRM_OK;
}

/* Copies the lists of the options, which the caller may free. */
static trm_status copy_lists(trm_exec *exec, trmi_parallel *p, trm_error *err) {
    trm_parallel_options *o = &p->options;
    size_t bytes = (size_t)o->bucket_list_count * sizeof(int32_t);
    int32_t *list = trmi_arena_alloc(&exec->memory, bytes + 1);
    const char **names =
        trmi_arena_alloc(&exec->memory, (size_t)(o->layerwise_count + 1) * sizeof *names);
    if (list == NULL || names == NULL) {
        return TRMI_NO_MEMORY(err, "for parallel options");
    }
    if (bytes > 0) {
        memcpy(list, o->bucket_list, bytes);
    }
    for (int32_t i = 0; i < o->layerwise_count; i++) {
        names[i] = trmi_arena_strdup(&exec->memory, o->layerwise[i]);
        if (names[i] == NULL) {
            return TRMI_NO_MEMORY(err, "for parallel options");
        }
    }
    o->bucket_list = list;
    o->layerwise = names;
    return TRM_OK;
}

/* Finds the cores that the ranks of this host share, and whether the ranks' threads fill them, so
 * that the communicator's thread has no core of its own. All ranks get the answer of rank 0. */
static trm_status find_crowding(trm_exec *exec, trm_error *err) {
    trmi_parallel *p = trmi_parallel_of(exec);
    TRMI_TRY(trmi_op_benchmark_cores(p->comm, &p->cores, err));
    int32_t crowded =
        trm_comm_local_size(p->comm) == p->size && p->size * exec->env.threads >= p->cores;
    TRMI_TRY(trm_comm_broadcast(p->comm, &crowded, 1, TRM_INT32, 0, err));
    p->crowded = crowded != 0;
    return TRM_OK;
}

/* Makes the state of the ranks where the communicator has more than one. */
static trm_status open_ranks(trm_exec *exec, trm_exec_options *given, bool *active,
                             trm_error *err) {
    const trm_parallel_options *options = &given->parallel;
    if (options->comm == NULL || trm_comm_size(options->comm) == 1) {
        return TRM_OK;
    }
    int32_t size = trm_comm_size(options->comm);
    TRMI_TRY(check_options(options, size, err));
    trmi_parallel *p = trmi_arena_alloc(&exec->memory, sizeof *p);
    if (p == NULL) {
        return TRMI_NO_MEMORY(err, "for an executor of many ranks");
    }
    *p = (trmi_parallel){.options = *options,
                         .comm = options->comm,
                         .size = size,
                         .rank = trm_comm_rank(options->comm)};
    p->options.wire = options->wire == 0 ? TRM_FLOAT32 : options->wire;
    p->payload = (trmi_payload){.dtype = TRM_FLOAT32};
    /* A wire of 16 bits replaces the payload once its memory is taken (take_memory). */
    trmi_distribution_keep(exec, &trmi_ranks_key, p);
    *active = true;
    /* Of the ranks of a host the first measures for all; of split graphs each its own program. */
    exec->kernels_from.others_retune =
        options->split.kind == TRM_SPLIT_NONE && trm_comm_local_rank(p->comm) != 0;
    exec->kernels_from.await_turn = trmi_parallel_await_turn;
    exec->divided.ranks = size;
    exec->divided.sliced = options->shard_optimizer;
    exec->divided.one_copy = options->shard_optimizer && trm_comm_local_size(p->comm) == size;
    exec->divided.ordered = trm_comm_deterministic(p->comm) != TRM_DETERMINISTIC_FALSE;
    exec->divided.packs = p->options.wire != TRM_FLOAT32;
    TRMI_TRY(copy_lists(exec, p, err));
    return find_crowding(exec, err);
}

/* Sets whole gradients in the options of the compiler: sums over ranks need them. In split graphs
 * gradients that no sum needs may stay in factors (x and dy, multiplied inside the update), and
 * messages begin ahead where they travel while steps compute. */
static trm_status plan_ranks(trm_exec *exec, const trm_graph *graph,
                             const trm_exec_options *options, trmi_plan_options *plan,
                             trm_error *err) {
    (void)graph;
    (void)err;
    plan->dense_gradients = true;
    plan->factored_gradients =
        plan->factored_gradients && options->parallel.split.kind != TRM_SPLIT_NONE;
    plan->messages_ahead =
        !trmi_parallel_of(exec)->crowded && !plan->no_fusion && options->loss.id != 0;
    return TRM_OK;
}

/* Passes `turns` barriers. In split programs every rank has shapes of its own, so one rank after
 * the other measures kernels: each rank passes a barrier for each rank before it, and afterwards
 * one for each rank after it. */
static trm_status take_turns(const trm_exec *exec, int32_t turns, trm_error *err) {
    const trmi_parallel *p = trmi_parallel_of(exec);
    if (exec->fixed_bits) {
        return TRM_OK; /* nothing is measured */
    }
    for (int32_t i = 0; i < turns; i++) {
        TRMI_TRY(trm_comm_barrier(p->comm, err));
    }
    return TRM_OK;
}

trm_status trmi_parallel_await_turn(trm_exec *exec, trm_error *err) {
    const trmi_parallel *p = trmi_parallel_of(exec);
    if (p->split != NULL) { /* first the plan, together; then compile calls again */
        return exec->backend == NULL ? TRM_OK : take_turns(exec, p->rank, err);
    }
    if (trm_comm_local_rank(p->comm) == 0) {
        return TRM_OK;
    }
    return trm_comm_barrier(p->comm, err);
}

/* Lets the next rank measure: this rank's kernels are bound. */
static trm_status release_turn(trm_exec *exec, const trm_exec_options *options, trm_error *err) {
    (void)options;
    const trmi_parallel *p = trmi_parallel_of(exec);
    if (p->split != NULL) {
        return take_turns(exec, p->size - 1 - p->rank, err);
    }
    if (trm_comm_local_rank(p->comm) != 0) {
        return TRM_OK;
    }
    return trm_comm_barrier(p->comm, err);
}

/* ---- memory that peers reach ----------------------------------------------------------------- */

/* Reserves the arena of gradients, and takes memory for its first part only. Cooperative gradients
 * are at its end: of those this rank takes its slices later (cooperative.c). Gradients that stay in
 * factors take no memory. NULL without memory. */
static char *reserve_gradients(trm_exec *exec, trm_error *err) {
    const trm_program *p = exec->program;
    size_t bytes = (size_t)p->arena_bytes[TRMI_ARENA_GRAD];
    size_t used = bytes - (size_t)p->untouched_bytes;
    size_t end = used < bytes ? used : trmi_shared_resident(bytes);
    char *memory = trmi_parallel_reserve(trmi_parallel_of(exec), bytes, err);
    for (int32_t i = 0; i < p->params_count; i++) {
        size_t at = (size_t)p->buffers[p->params[i].param_buffer].offset;
        end = trmi_param_is_cooperative(p, &p->params[i]) && at < end ? at : end;
    }
    if (memory != NULL) {
        trmi_comm_fill_shared(memory, end);
    }
    return memory;
}

/* Takes memory that peers can reach: for the arenas of parameters, copies and gradients, and for
 * other uses. */
static trm_status take_reachable(trm_exec *exec, trmi_arena_id arena, size_t bytes, void **out,
                                 trm_error *err) {
    if (arena == TRMI_ARENA_GRAD) {
        *out = reserve_gradients(exec, err);
    } else if (arena == TRMI_ARENA_PARAM || arena == TRMI_ARENA_CAST ||
               arena == TRMI_ARENA_COOPERATIVE) {
        *out = trmi_parallel_memory(trmi_parallel_of(exec), bytes, err);
    } else if (arena == TRMI_ARENA_NONE) {
        *out = trmi_parallel_reserve(trmi_parallel_of(exec), bytes, err);
    } else {
        return TRM_UNSUPPORTED;
    }
    return *out != NULL ? TRM_OK : TRM_NOMEM;
}

/* Frees the memory and the communicators of the way. */
static void close_ranks(trm_exec *exec) {
    trmi_parallel *p = trmi_parallel_of(exec);
    trmi_parallel_leave_turns(exec);
    trm_comm_destroy(p->norm_comm);
    /* No peer reads this memory any more: without an error every operation on it has ended on all
     * ranks, and after an error the communicator is poisoned on all ranks. */
    for (int64_t i = 0; i < p->shared_count; i++) {
        trm_comm_free_shared(p->comm, p->shared[i]);
    }
    trmi_free(p->shared);
    trmi_free(p->items);
    trmi_free(p->cut);
    trmi_free(p->ranges);
    trmi_free(p->counts);
    trmi_free(p->step_end);
    trmi_free(p->mine);
    trmi_free(p->everyones);
    trmi_free(p->sums);
    trmi_free(p->own_blocks);
    trmi_free(p->norm_sync.values);
}

/* ---- the same program everywhere ------------------------------------------------------------- */

uint64_t trmi_hash_parallel(uint64_t hash, const trm_parallel_options *o) {
    const int64_t numbers[] = {(int64_t)o->split.kind,
                               o->pipeline.stages,
                               (int64_t)o->pipeline.schedule,
                               o->pipeline.chunks,
                               o->sum,
                               (int64_t)o->wire,
                               (int64_t)o->bucket,
                               o->bucket_bytes,
                               o->bucket_list_count,
                               o->shard_optimizer,
                               (int64_t)o->cooperative,
                               o->sync_batch_norm,
                               o->layerwise_count,
                               o->block};
    hash = trmi_hash(hash, numbers, sizeof numbers);
    hash = trmi_hash(hash, o->bucket_list, (size_t)o->bucket_list_count * sizeof *o->bucket_list);
    for (int32_t i = 0; i < o->layerwise_count; i++) {
        hash = trmi_hash(hash, o->layerwise[i], strlen(o->layerwise[i]) + 1);
    }
    return hash;
}

/* Computes a digest of all that must be equal on all ranks: parameters with their places and
 * layouts, and the parallel options. */
static uint64_t digest_of(const trm_exec *exec) {
    const trm_program *program = exec->program;
    const trm_parallel_options *o = &trmi_parallel_of(exec)->options;
    uint64_t hash = TRMI_HASH_BEGIN;
    for (int32_t i = 0; i < program->params_count; i++) {
        const trmi_buffer *b = &program->buffers[program->params[i].param_buffer];
        hash = trmi_hash(hash, b->name, strlen(b->name));
        /* In a split program parameters may have other places on each rank, unless slices of the
         * optimiser need the same. */
        if (trmi_parallel_of(exec)->split == NULL || o->shard_optimizer) {
            hash = trmi_hash(hash, &b->offset, sizeof b->offset);
            hash = trmi_hash(hash, &b->bytes, sizeof b->bytes);
        }
        int32_t form[2] = {(int32_t)b->layout, b->weights};
        hash = trmi_hash(hash, form, sizeof form);
    }
    hash = trmi_parallel_of(exec)->split != NULL ? trmi_split_mix(exec, hash) : hash;
    hash = trmi_hash_parallel(hash, o);
    const int32_t settings[] = {exec->accumulate, program->blocks, program->cooperative_ranks};
    hash = trmi_hash(hash, settings, sizeof settings);
    const trm_optimizer_options *rule = &exec->optimizer;
    const double numbers[15] = {(double)rule->kind,
                                rule->momentum,
                                rule->beta1,
                                rule->beta2,
                                rule->epsilon,
                                rule->weight_decay,
                                rule->decoupled,
                                rule->decay_all,
                                rule->decay_biases,
                                rule->trust_coefficient,
                                rule->initial_accumulator,
                                rule->l1,
                                rule->l2,
                                rule->beta,
                                rule->clip_norm};
    return trmi_hash(hash, numbers, sizeof numbers);
}

/* Compares the digests of all ranks' programs. Ranks with different programs would call
 * different collectives: they would wait for each other until a time limit, or add gradients of
 * different parameters. */
trm_status trmi_parallel_check_same(trm_exec *exec, trm_error *err) {
    trmi_parallel *p = trmi_parallel_of(exec);
    int64_t *all;
    TRMI_TRY(TRMI_NEW(err, all, p->size, "to compare programs"));
    int64_t mine = (int64_t)digest_of(exec);
    const trm_collective gather = {.kind = TRM_ALLGATHER,
                                   .send = &mine,
                                   .recv = all,
                                   .count = 1,
                                   .dtype = TRM_INT64,
                                   .tag = "program"};
    trm_status status = trm_comm_run(p->comm, &gather, err);
    for (int32_t r = 0; r < p->size && status == TRM_OK; r++) {
        if (all[r] != all[0]) {
            status = TRMI_FAIL(
                err, TRM_INVALID,
                "rank %d has another program than rank 0: parameters, their layouts, the "
                "optimiser or the parallel options differ (of a split graph: the plan, the seed)",
                r);
        }
    }
    trmi_free(all);
    return status;
}

/* ---- synchronised batch norm ----------------------------------------------------------------- */

/* Gathers the statistics of a norm, `count` numbers, from the ranks that share it
 * (trmi_norm_sync). */
static trm_status gather_norm(trmi_norm_sync *sync, const double *values, int64_t count,
                              const double **all, trm_error *err) {
    trmi_parallel *p = (trmi_parallel *)((char *)sync - offsetof(trmi_parallel, norm_sync));
    TRMI_ASSERT(count <= p->norm_capacity);
    int32_t rank = trm_comm_rank(p->norm_comm);
    memcpy(p->norm_all + rank * count, values, (size_t)count * sizeof *values);
    const trm_collective gather = {.kind = TRM_ALLGATHER,
                                   .recv = p->norm_all,
                                   .count = count,
                                   .dtype = TRM_FLOAT64,
                                   .tag = "batch norm"};
    TRMI_TRY(trm_comm_run(p->norm_comm, &gather, err));
    *all = p->norm_all;
    return TRM_OK;
}

/* Returns the most channels of a batch norm; 0: the program has none. */
static int64_t widest_norm(const trm_program *program) {
    int64_t widest = 0;
    for (int32_t i = 0; i < program->steps_count; i++) {
        const trmi_step *s = &program->steps[i];
        bool norm = s->kind == TRMI_STEP_OP &&
                    (s->op_kind == TRMI_OP_BATCH_NORM || s->op_kind == TRMI_OP_NORM_ACT);
        int64_t channels = norm ? program->buffers[s->inputs[0]].shape.dim[1] : 0;
        widest = channels > widest ? channels : widest;
    }
    return widest;
}

/* Prepares the exchange of statistics between the ranks whose samples a norm takes together. */
static trm_status begin_norm_sync(trm_exec *exec, trm_error *err) {
    trmi_parallel *p = trmi_parallel_of(exec);
    int32_t group = p->options.sync_batch_norm;
    int64_t widest = widest_norm(exec->program);
    /* strict determinism exchanges the statistics of its blocks itself */
    if (group == TRM_NORM_LOCAL || widest == 0 || p->size < 2 || exec->fixed_bits) {
        return TRM_OK;
    }
    /* norms have a communicator of their own, so that they need not wait for started gradients */
    group = group <= 0 ? p->size : group;
    TRMI_TRY(trm_comm_split(p->comm, p->rank / group, p->rank, &p->norm_comm, err));
    p->norm_capacity = 2 * widest + 1; /* and the count */
    p->norm_all = trmi_parallel_memory(p, (size_t)(group * p->norm_capacity) * sizeof(double), err);
    if (p->norm_all == NULL) {
        return err == NULL ? TRM_NOMEM : err->status;
    }
    p->norm_sync =
        (trmi_norm_sync){.size = group,
                         .gather = gather_norm,
                         .values = trmi_alloc((size_t)p->norm_capacity * sizeof(double))};
    if (p->norm_sync.values == NULL) {
        return TRMI_NO_MEMORY(err, "for synchronised batch norm");
    }
    exec->env.norm_sync = &p->norm_sync;
    return TRM_OK;
}

/* ---- all of rank 0 --------------------------------------------------------------------------- */

/* Copies rank 0's variable to all ranks. */
static trm_status broadcast_variable(trm_exec *exec, int32_t index, trm_error *err) {
    trmi_parallel *p = trmi_parallel_of(exec);
    const trmi_buffer *b = &exec->program->buffers[exec->variable_buffers[index]];
    const trm_collective op = {.kind = TRM_BROADCAST,
                               .recv = trmi_exec_variable_address(exec, index),
                               .count = b->bytes,
                               .dtype = TRM_UINT8,
                               .tag = exec->variables[index].name};
    return trm_comm_run(p->comm, &op, err);
}

/* Copies rank 0's variables of one kind to all ranks, except those that each rank keeps to
 * itself. */
static trm_status broadcast_kind(trm_exec *exec, trm_variable_kind kind, trm_error *err) {
    trmi_parallel *p = trmi_parallel_of(exec);
    for (int32_t i = 0; i < exec->variables_count; i++) {
        const trm_variable *v = &exec->variables[i];
        if (v->kind == kind && !trmi_exec_is_elsewhere(exec, i) &&
            !trmi_parallel_is_layerwise(p, v->name)) {
            TRMI_TRY(broadcast_variable(exec, i, err));
        }
    }
    return TRM_OK;
}

/* Copies rank 0's parameters and states to all ranks. Slots begin equal on all ranks and are not
 * touched here: memory is taken only where a rank uses its slices. */
static trm_status broadcast_initial(trm_exec *exec, trm_error *err) {
    if (!trmi_parallel_of(exec)->common) {
        TRMI_TRY(broadcast_kind(exec, TRM_VARIABLE_PARAMETER, err));
    }
    return broadcast_kind(exec, TRM_VARIABLE_STATE, err);
}

trm_status trmi_exec_broadcast_states(trm_exec *exec, trm_error *err) {
    return trmi_parallel_of(exec) == NULL || trmi_parallel_of(exec)->split != NULL
               ? TRM_OK
               : broadcast_kind(exec, TRM_VARIABLE_STATE, err);
}

trm_status trm_exec_broadcast(trm_exec *exec, trm_error *err) {
    TRMI_NEED(err, exec);
    trmi_parallel *p = trmi_parallel_of(exec);
    if (p == NULL || p->split != NULL) {
        return TRM_OK;
    }
    trmi_exec_parameters_changed(exec);
    TRMI_TRY(broadcast_initial(exec, err));
    TRMI_TRY(trm_exec_gather(exec, err));
    TRMI_TRY(broadcast_kind(exec, TRM_VARIABLE_SLOT, err));
    int64_t step = (int64_t)exec->env.step;
    TRMI_TRY(trm_comm_broadcast(p->comm, &step, 1, TRM_INT64, 0, err));
    exec->env.step = (uint64_t)step;
    return TRM_OK;
}

/* ---- begin ----------------------------------------------------------------------------------- */

/* Takes the memory of the reduction: agreement, wire, ranges and their slices.   errors  NOMEM */
static trm_status take_memory(trm_exec *exec, trm_error *err) {
    trmi_parallel *p = trmi_parallel_of(exec);
    const trm_program *program = exec->program;
    size_t params = (size_t)program->params_count + 1;
    int64_t count = program->arena_bytes[TRMI_ARENA_GRAD] / (int64_t)sizeof(float);
    p->agreed = trmi_parallel_memory(p, sizeof *p->agreed, err);
    if (p->agreed != NULL && p->options.wire != TRM_FLOAT32) {
        p->wire = trmi_parallel_memory(p, (size_t)count * sizeof *p->wire, err);
        p->payload = (trmi_payload){.data = (char *)p->wire,
                                    .dtype = p->options.wire,
                                    .arrived = trmi_parallel_wire_arrived};
    }
    if (p->agreed == NULL || (p->options.wire != TRM_FLOAT32 && p->wire == NULL)) {
        return err == NULL ? TRM_NOMEM : err->status;
    }
    /* Make arrays by parameter, by range and by block of the optimiser. */
    p->blocks = trmi_update_block_count(exec->update);
    size_t blocks = (size_t)p->blocks + 1;
    p->items = trmi_alloc(params * sizeof *p->items);
    p->cut = trmi_alloc(params * sizeof *p->cut);
    p->ranges = trmi_alloc(TRMI_RANGES_MOST * params * sizeof *p->ranges);
    p->counts = trmi_alloc(TRMI_RANGES_MOST * params * (size_t)p->size * sizeof *p->counts);
    p->step_end = trmi_alloc((size_t)(program->steps_count + 1) * sizeof *p->step_end);
    p->mine = trmi_alloc(blocks);
    p->everyones = trmi_alloc(blocks);
    p->sums = trmi_alloc(2 * blocks * sizeof *p->sums);
    if (p->items == NULL || p->cut == NULL || p->ranges == NULL || p->counts == NULL ||
        p->step_end == NULL || p->mine == NULL || p->everyones == NULL || p->sums == NULL) {
        return TRMI_NO_MEMORY(err, "for gradient buckets");
    }
    return TRM_OK;
}

/* Compares the programs of all ranks, cuts the gradients into buckets, adds their reductions to the
 * step, and makes the initial values equal. */
static trm_status begin_ranks(trm_exec *exec, trm_error *err) {
    trmi_parallel *p = trmi_parallel_of(exec);
    TRMI_TRY(trmi_parallel_check_same(exec, err));
    TRMI_TRY(trmi_parallel_check_layerwise(exec, err));
    trmi_parallel_take_turns(exec);
    if (exec->program->training) {
        TRMI_TRY(take_memory(exec, err));
        TRMI_TRY(trmi_parallel_measure_link(exec, err));
        TRMI_TRY(trmi_parallel_cut(exec, false, err));
        TRMI_TRY(begin_norm_sync(exec, err));
        TRMI_TRY(trmi_parallel_mark_own_blocks(exec, err));
        trmi_parallel_add_actions(exec);
    }
    if (p->split != NULL) {
        /* Initial values are a function of the seed; of one copy, each rank has made some. */
        return p->common ? trm_comm_barrier(p->comm, err) : TRM_OK;
    }
    const bool equal = p->options.broadcast == TRM_OFF || !exec->initialises;
    return equal ? TRM_OK : broadcast_initial(exec, err);
}

/* ---- what ranks have found, and what they hold ----------------------------------------------- */

/* Implements trmi_distribution.agree. Gradients are the same on all ranks where all of them are
 * summed, so that nothing needs to be asked. */
static trm_status agree_ranks(trm_exec *exec, bool of_gradients, int32_t *first, trm_error *err) {
    if (of_gradients && !trmi_parallel_norms_differ(exec)) {
        return TRM_OK;
    }
    int32_t rank = *first >= 0 ? trmi_parallel_of(exec)->rank : INT32_MAX;
    const trm_collective op = {.kind = TRM_ALLREDUCE,
                               .recv = &rank,
                               .count = 1,
                               .dtype = TRM_INT32,
                               .reduce = TRM_REDUCTION_MIN,
                               .tag = "whether a number is not finite"};
    TRMI_TRY(trm_comm_run(trmi_parallel_of(exec)->comm, &op, err));
    *first = rank == INT32_MAX ? -1 : rank;
    return TRM_OK;
}

/* Reports that this rank holds every variable whole: so does every rank. */
static void hold_everything(const trm_exec *exec, int32_t index, int64_t at, trmi_hold *hold) {
    (void)index;
    (void)at;
    hold->repeated = trmi_parallel_of(exec)->size > 1;
}

const trmi_distribution trmi_way_ranks = {
    .name = "ranks",
    .open = open_ranks,
    .plan = plan_ranks,
    .memory = take_reachable,
    .connect = release_turn,
    .begin = begin_ranks,
    .close = close_ranks,
    .before_step = trmi_parallel_before_step,
    .finish = trmi_parallel_finish,
    .agree = agree_ranks,
    .hold = hold_everything,
};
