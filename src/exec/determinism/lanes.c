/* SPDX-License-Identifier: Apache-2.0 */
/* Lanes: their memory and kernels. */
#include "exec/exec.h"
#include "exec/determinism/lanes.h"
#include "exec/distributed/ranks_state.h"

#include "base/checked.h"
#include "base/error.h"
#include "base/memory.h"

#include <string.h>

enum { CHUNK = TRMI_LANES_CHUNK };

static trm_status check_options(const trm_exec_options *o, trm_error *err) {
    const trm_parallel_options *p = &o->parallel;
    if (o->outputs_count > 0 || o->share != NULL) {
        return TRMI_FAIL(err, TRM_INVALID,
                         "lanes are for training programs without outputs of their own");
    }
    if (p->wire != 0 && p->wire != TRM_FLOAT32) {
        return TRMI_FAIL(err, TRM_INVALID,
                         "strict determinism sends sums as they are: the wire must be float32, "
                         "not %s",
                         trm_dtype_name(p->wire));
    }
    if (p->layerwise_count > 0) {
        return TRMI_FAIL(err, TRM_INVALID,
                         "strict determinism makes any number of ranks one big batch; parameters "
                         "that each rank keeps to itself (%.60s) cannot be part of it",
                         p->layerwise[0]);
    }
    if (p->sync_batch_norm == TRM_NORM_LOCAL) {
        return TRMI_FAIL(err, TRM_INVALID,
                         "strict determinism normalises over the whole batch; each rank's own "
                         "samples (sync_batch_norm off) would depend on the number of ranks");
    }
    if (p->sync_batch_norm > 0) {
        return TRMI_FAIL(err, TRM_INVALID,
                         "strict determinism normalises over the whole batch; groups of %d ranks "
                         "would depend on their number",
                         p->sync_batch_norm);
    }
    return TRM_OK;
}

/* ---- what the program asks for
 *  ---------------------------------------------------------------------- */

static bool is_norm(const trmi_step *s) {
    return s->kind == TRMI_STEP_OP &&
           (s->op_kind == TRMI_OP_BATCH_NORM || s->op_kind == TRMI_OP_NORM_ACT);
}

static int64_t widest_exchange(const trm_program *program) {
    int64_t widest = 1;
    for (int32_t i = 0; i < program->steps_count; i++) {
        const trmi_step *s = &program->steps[i];
        widest =
            is_norm(s) ? trmi_max_i64(widest, program->buffers[s->inputs[0]].shape.dim[1]) : widest;
    }
    return 3 * widest; /* the reference asks by channel: two sums and the count */
}

/* The step after which the gradient with this buffer is complete. */
static int32_t ready_of(const trm_program *program, int32_t buffer) {
    for (int32_t i = 0; i < program->params_count; i++) {
        if (program->params[i].grad_buffer == buffer) {
            return program->params[i].ready_step;
        }
    }
    return -1;
}

/* Where each step writes gradients; `whole` where one of them is read or written again later. */
static void find_gradients(const trm_program *program, trmi_lanes *l) {
    for (int32_t i = 0; i < program->steps_count; i++) {
        const trmi_step *s = &program->steps[i];
        int64_t low = INT64_MAX, high = 0;
        for (int32_t j = 0; j < s->outputs_count; j++) {
            const trmi_buffer *b = &program->buffers[s->outputs[j]];
            if (s->outputs[j] != 0 && b->arena == TRMI_ARENA_GRAD) {
                low = trmi_min_i64(low, b->offset);
                high = trmi_max_i64(high, b->offset + b->bytes);
                l->whole |= b->alias_of != 0 || ready_of(program, s->outputs[j]) != i;
            }
        }
        for (int32_t j = 0; j < s->inputs_count; j++) {
            l->whole |=
                s->inputs[j] != 0 && program->buffers[s->inputs[j]].arena == TRMI_ARENA_GRAD;
        }
        l->low[i] = high > 0 ? low : 0;
        l->stride = trmi_max_i64(l->stride, high - l->low[i]);
    }
    if (l->whole) {
        memset(l->low, 0, (size_t)program->steps_count * sizeof *l->low);
        l->stride = program->arena_bytes[TRMI_ARENA_GRAD];
    }
    l->stride = trmi_round_up(l->stride, 4096);
}

/* Parameters are in the order in which backward finishes their gradients. */
static void find_ready(const trm_program *program, int32_t *ready) {
    int32_t param = 0;
    for (int32_t i = 0; i <= program->steps_count; i++) {
        while (param < program->params_count && program->params[param].ready_step < i) {
            param++;
        }
        ready[i] = param;
    }
}

static int64_t count_chunks(const trm_program *program) {
    int64_t chunks = 0;
    for (int32_t i = 0; i < program->params_count; i++) {
        int64_t count =
            program->buffers[program->params[i].param_buffer].bytes / (int64_t)sizeof(float);
        chunks += (count + CHUNK - 1) / CHUNK;
    }
    return chunks;
}

/* ---- memory
 *  ------------------------------------------------------------------------------------------- */

/* Where peers reach it, with many ranks. */
static void *reachable(trm_exec *exec, size_t bytes, trm_error *err) {
    void *memory = NULL;
    return trmi_distribution_memory(exec, bytes, &memory, err) == TRM_UNSUPPORTED ? trmi_map(bytes)
                                                                                  : memory;
}

static trm_status take_shared(trm_exec *exec, trmi_lanes *l, trm_error *err) {
    const trm_program *program = exec->program;
    size_t elements = (size_t)(program->arena_bytes[TRMI_ARENA_GRAD] / (int64_t)sizeof(float));
    l->chunks = count_chunks(program);
    l->sums_bytes = (elements + 1) * sizeof *l->sums;
    l->gathered_bytes = (size_t)(l->total * (l->capacity + 1)) * sizeof *l->gathered;
    l->largest_bytes = (size_t)(l->chunks + 1) * sizeof *l->largest;
    l->sums = reachable(exec, l->sums_bytes, err);
    l->gathered = l->sums != NULL ? reachable(exec, l->gathered_bytes, err) : NULL;
    l->largest = l->gathered != NULL ? reachable(exec, l->largest_bytes, err) : NULL;
    return l->largest != NULL
               ? TRM_OK
               : TRMI_FAIL(err, TRM_NOMEM, "no memory for %.1f MB of sums of gradients",
                           (double)l->sums_bytes / 1e6);
}

static trm_status take_own(const trm_program *program, trmi_lanes *l, trm_error *err) {
    l->answers_bytes = (size_t)(l->total * l->capacity) * sizeof *l->answers;
    l->stage_bytes = (size_t)(l->count * l->stride);
    l->answers = trmi_map(l->answers_bytes);
    l->stage = trmi_map(l->stage_bytes + 1);
    l->answer_begin = trmi_alloc((size_t)(l->capacity + 1) * sizeof *l->answer_begin);
    l->scratch = trmi_alloc((size_t)l->workers * sizeof *l->scratch);
    l->kernels = trmi_alloc((size_t)l->workers * sizeof *l->kernels);
    bool fine = l->answers != NULL && l->stage != NULL && l->answer_begin != NULL &&
                l->scratch != NULL && l->kernels != NULL;
    for (int32_t w = 1; w < l->workers && fine; w++) {
        l->scratch[w] = trmi_map((size_t)program->arena_bytes[TRMI_ARENA_SCRATCH] + 1);
        fine = l->scratch[w] != NULL;
    }
    return fine ? TRM_OK : TRMI_FAIL(err, TRM_NOMEM, "no memory for %d lanes", l->count);
}

static trm_status gather(trmi_norm_sync *sync, const double *values, int64_t count,
                         const double **all, trm_error *err);

static trm_status take_lane(trm_exec *exec, trmi_lanes *l, int32_t index, trm_error *err) {
    static const trmi_arena_id own[] = {TRMI_ARENA_INPUT, TRMI_ARENA_ACTIVATION, TRMI_ARENA_STATE};
    trmi_lane *lane = &l->lanes[index];
    *lane = (trmi_lane){.env = exec->env, .lanes = l, .index = index};
    lane->sync = (trmi_norm_sync){.size = l->total,
                                  .gather = gather,
                                  .values = trmi_alloc((size_t)l->capacity * sizeof(double))};
    lane->env.norm_sync = &lane->sync;
    /* Random numbers of a step (dropout) belong to the lane, wherever it is. */
    lane->env.seed =
        exec->env.seed + 0x9E3779B97F4A7C15ull * (uint64_t)(index * l->ranks + l->rank);
    bool fine = lane->sync.values != NULL;
    for (int i = 0; i < 3 && fine; i++) {
        /* lane 0 lies where one program would */
        bool first = index == 0 && own[i] != TRMI_ARENA_STATE;
        if (!first) {
            lane->owned[own[i]] = trmi_map((size_t)exec->program->arena_bytes[own[i]] + 1);
            lane->env.arena[own[i]] = lane->owned[own[i]];
            fine = lane->owned[own[i]] != NULL;
        }
    }
    return fine ? TRM_OK
                : TRMI_FAIL(err, TRM_NOMEM, "no memory for %d lanes of %.1f MB of activations",
                            l->count,
                            (double)exec->program->arena_bytes[TRMI_ARENA_ACTIVATION] / 1e6);
}

static trm_status fill(trm_exec *exec, trmi_lanes *l, trm_error *err) {
    const trm_program *program = exec->program;
    l->lanes = trmi_alloc((size_t)l->count * sizeof *l->lanes);
    l->low = trmi_alloc((size_t)(program->steps_count + 1) * sizeof *l->low);
    l->ready = trmi_alloc((size_t)(program->steps_count + 1) * sizeof *l->ready);
    if (l->lanes == NULL || l->low == NULL || l->ready == NULL) {
        return TRMI_FAIL(err, TRM_NOMEM, "no memory for %d lanes", l->count);
    }
    l->capacity = widest_exchange(program);
    find_gradients(program, l);
    find_ready(program, l->ready);
    TRMI_TRY(take_own(program, l, err));
    TRMI_TRY(take_shared(exec, l, err));
    l->scratch[0] = exec->env.arena[TRMI_ARENA_SCRATCH];
    l->kernels[0] = exec->kernels;
    for (int32_t w = 1; w < l->workers; w++) {
        l->kernels[w] = trmi_alloc((size_t)(program->steps_count + 1) * sizeof **l->kernels);
        if (l->kernels[w] == NULL) {
            return TRMI_FAIL(err, TRM_NOMEM, "no memory for %d kernels", program->steps_count);
        }
        TRMI_TRY(trmi_exec_bind(exec, l->kernels[w], err));
    }
    for (int32_t i = 0; i < l->count; i++) {
        TRMI_TRY(take_lane(exec, l, i, err));
    }
    return TRM_OK;
}

trm_status trmi_lanes_create(trm_exec *exec, trm_error *err) {
    trmi_lanes *l = exec->lanes;
    l->ranks = exec->parallel != NULL ? exec->parallel->size : 1;
    l->rank = exec->parallel != NULL ? exec->parallel->rank : 0;
    l->total = l->count * l->ranks;
    l->workers = l->workers < l->count ? l->workers : l->count;
    return fill(exec, l, err);
}

static void unmap(void *memory, size_t bytes) {
    if (memory != NULL) {
        trmi_unmap(memory, bytes);
    }
}

static void destroy_kernels(const trm_exec *exec, trmi_kernel *kernels) {
    for (int32_t i = 0; kernels != NULL && i < exec->program->steps_count; i++) {
        if (kernels[i].destroy != NULL) {
            kernels[i].destroy(&kernels[i]);
        }
    }
    trmi_free(kernels);
}

static void close_blocks(trm_exec *exec) {
    trmi_lanes *l = exec->lanes;
    const int64_t none[TRMI_ARENAS] = {0};
    const int64_t *bytes = exec->program != NULL ? exec->program->arena_bytes : none;
    for (int32_t i = 0; l->lanes != NULL && i < l->count; i++) {
        for (int a = 0; a < TRMI_ARENAS; a++) {
            unmap(l->lanes[i].owned[a], (size_t)bytes[a] + 1);
        }
        trmi_free(l->lanes[i].sync.values);
    }
    for (int32_t w = 1; w < l->workers; w++) {
        if (l->kernels != NULL) {
            destroy_kernels(exec, l->kernels[w]);
        }
        if (l->scratch != NULL) {
            unmap(l->scratch[w], (size_t)bytes[TRMI_ARENA_SCRATCH] + 1);
        }
    }
    trm_comm_destroy(l->comm);
    if (l->ranks == 1) { /* else freed with the communicator's memory */
        unmap(l->sums, l->sums_bytes);
        unmap(l->gathered, l->gathered_bytes);
        unmap(l->largest, l->largest_bytes);
    }
    unmap(l->answers, l->answers_bytes);
    unmap(l->stage, l->stage_bytes + 1);
    trmi_free(l->answer_begin);
    trmi_free(l->scratch);
    trmi_free(l->kernels);
    trmi_free(l->low);
    trmi_free(l->ready);
    trmi_free(l->lanes);
    trmi_free(l);
    exec->lanes = NULL;
}

int64_t trmi_lanes_bytes(const trmi_lanes *l) {
    const trm_program *program = l->kernels[0][0].program;
    const int64_t *bytes = program->arena_bytes;
    int64_t each = bytes[TRMI_ARENA_INPUT] + bytes[TRMI_ARENA_ACTIVATION];
    return (l->count - 1) * each + l->count * bytes[TRMI_ARENA_STATE] +
           (l->workers - 1) * bytes[TRMI_ARENA_SCRATCH] +
           (int64_t)(l->sums_bytes + l->gathered_bytes + l->largest_bytes + l->answers_bytes +
                     l->stage_bytes);
}

/* ---- what kernels of lanes tell each other
 *  -------------------------------------------------------------- */

/* A kernel asks in the middle of its work. The first time it is sent home (TRM_PENDING); when all
 * lanes have asked, what they said is exchanged, and the kernel is run again and finds the answer.
 */
static trm_status gather(trmi_norm_sync *sync, const double *values, int64_t count,
                         const double **all, trm_error *err) {
    trmi_lane *lane = (trmi_lane *)((char *)sync - offsetof(trmi_lane, sync));
    trmi_lanes *l = lane->lanes;
    if (lane->asked < l->answered) {
        *all = l->answers + l->answer_begin[lane->asked++];
        return TRM_OK;
    }
    TRMI_ASSERT(l->answers_used + count * l->total <= l->capacity * l->total);
    memcpy(l->gathered + (l->rank * l->count + lane->index) * count, values,
           (size_t)count * sizeof *values);
    if (lane->index == 0) {
        l->asked_count = count;
    }
    return TRMI_FAIL(err, TRM_PENDING, "waits for other lanes");
}

/* ---- the way of training --------------------------------------------------------------------- */

static trm_status open_blocks(trm_exec *exec, const trm_exec_options *options, bool *active,
                              trm_error *err) {
    if (options->lanes <= 0) {
        return TRM_OK;
    }
    TRMI_TRY(check_options(options, err));
    exec->lanes = trmi_alloc(sizeof *exec->lanes);
    if (exec->lanes == NULL) {
        return TRMI_FAIL(err, TRM_NOMEM, "no memory for %d lanes", options->lanes);
    }
    *active = true;
    exec->lanes->count = exec->blocks = options->lanes;
    exec->lanes->workers = exec->env.threads;
    exec->env.threads = 1; /* lanes share threads out themselves */
    exec->kernels_from.unmeasured = true;
    exec->fixed_bits = true;
    exec->walk = trmi_lanes_walk;
    return TRM_OK;
}

static trm_status plan_blocks(trm_exec *exec, const trm_graph *graph,
                              const trm_exec_options *options, trmi_plan_options *plan,
                              trm_error *err) {
    (void)exec;
    (void)graph;
    (void)options;
    (void)err;
    plan->dense_gradients = true; /* sums over lanes need them whole */
    plan->factored_gradients = false;
    return TRM_OK;
}

static trm_status connect_blocks(trm_exec *exec, const trm_exec_options *options, trm_error *err) {
    (void)options;
    TRMI_TRY(trmi_lanes_create(exec, err));
    if (exec->parallel != NULL) {
        exec->parallel->payload = (trmi_payload){.data = (char *)exec->lanes->sums,
                                                 .dtype = TRM_FLOAT64,
                                                 .arrived = trmi_lanes_conclude,
                                                 .of_blocks = true};
    }
    return TRM_OK;
}

static trm_status begin_blocks(trm_exec *exec, trm_error *err) {
    const trmi_parallel *p = exec->parallel;
    return p != NULL ? trm_comm_split(p->comm, 0, p->rank, &exec->lanes->comm, err) : TRM_OK;
}

static void schedule_blocks(trm_exec *exec) {
    trmi_distribution_add(
        exec, (trmi_action){.before = exec->program->backward_begin, .run = trmi_lanes_agree});
}

static void describe_blocks(const trm_exec *exec, trm_exec_info *info) {
    info->activation_bytes += trmi_lanes_bytes(exec->lanes);
}

const trmi_distribution trmi_way_strict_blocks = {
    .name = "strict_blocks",
    .open = open_blocks,
    .plan = plan_blocks,
    .connect = connect_blocks,
    .begin = begin_blocks,
    .close = close_blocks,
    .schedule = schedule_blocks,
    .before_step = trmi_lanes_before_step,
    .finish_forward = trmi_lanes_finish_forward,
    .finish_backward = trmi_lanes_finish_backward,
    .feed = trmi_lanes_feed,
    .environment = trmi_lanes_env,
    .describe = describe_blocks,
};
