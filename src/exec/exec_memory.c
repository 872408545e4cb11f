/* SPDX-License-Identifier: Apache-2.0 */
/* Predicts how many bytes a process grows by when it makes an executor of a program and trains.
 *
 *      arenas, in whole pages + slots + packed gradients + staging of exchanges + fed batches
 *                             + messages between stages + heap beside the arenas (CHUNKS,
 *                             EACH_STEP)
 *
 * Callers: memory_limit.c, the planner, exec_explain.c. Nothing is allocated here. */
#include "exec/exec_memory.h"

#include "base/checked.h"
#include "base/memory.h"
#include "exec/exchange_form.h"
#include "exec/exec.h"
#include "plan/pipeline/stages.h"

/* Heap beside the arenas, from a heap trace. CHUNKS: the first chunk of each of six allocators
 * (base/memory.h): user graph, compiled graph, program, executor, plan, names of variables.
 * EACH_STEP: the program step takes 1.5 KB, the operator in its graph 0.5 KB, the kernel's tables
 * 2.6 KB (1.7 in networks with few convolutions, at most 3.8), optimiser and buckets 0.4 KB. */
enum { CHUNKS = 6 * (64 << 10), EACH_STEP = 5 << 10 };

int64_t trmi_program_arena_resident(const trm_program *program, int arena, bool ranks) {
    bool shared = ranks && (arena == TRMI_ARENA_PARAM || arena == TRMI_ARENA_GRAD ||
                            arena == TRMI_ARENA_CAST || arena == TRMI_ARENA_COOPERATIVE);
    size_t bytes = (size_t)program->arena_bytes[arena],
           used = bytes - (arena == TRMI_ARENA_GRAD ? (size_t)program->untouched_bytes : 0);
    /* The untouched tail of GRAD is never resident; its first page may be a huge page. */
    if (used < bytes) {
        size_t page =
            !shared && used < trmi_map_huge(bytes) ? TRMI_HUGE_PAGE_BYTES : trmi_map_resident(1);
        return trmi_round_up((int64_t)used, (int64_t)page);
    }
    return bytes == 0 ? 0
                      : (int64_t)(shared ? trmi_shared_resident(bytes) : trmi_map_resident(bytes));
}

int64_t trmi_program_fed_bytes(const trm_program *program, int32_t ranks, bool own_samples) {
    int64_t sum = 0;
    for (int32_t i = 0; own_samples && i < program->inputs_count; i++) {
        const trmi_buffer *b = &program->buffers[program->inputs[i]];
        const trmi_partition_leaf *leaf = trmi_program_leaf(program, b->name);
        int64_t whole =
            leaf != NULL ? trm_shape_count(&leaf->global) * (int64_t)trm_dtype_bytes(b->dtype) : 0;
        sum += whole + whole / ranks;
    }
    return sum;
}

/* Returns the bytes of the parameters that have cooperative gradients. */
static size_t cooperative_gradient_bytes(const trm_program *program) {
    size_t bytes = 0;
    for (int32_t i = 0; program->cooperative_ranks > 1 && i < program->params_count; i++) {
        const trmi_param *param = &program->params[i];
        bytes += trmi_param_is_cooperative(program, param)
                     ? (size_t)program->buffers[param->param_buffer].bytes
                     : 0;
    }
    return bytes;
}

/* Returns the bytes of the float32 copies that the optimiser makes of gradient factors in other
 * types. */
static int64_t factors_bytes(const trm_program *program) {
    int64_t bytes = 0;
    for (int32_t i = 0; i < program->params_count; i++) {
        const trmi_param *param = &program->params[i];
        const trmi_buffer *left = &program->buffers[param->factor_left],
                          *right = &program->buffers[param->factor_right];
        if (param->factor_left != 0 && left->dtype != TRM_FLOAT32) {
            bytes += (trm_shape_count(&left->shape) + trm_shape_count(&right->shape)) *
                     (int64_t)sizeof(float);
        }
    }
    return bytes;
}

/* Returns how many of `bytes` lie in the slices of the other ranks. */
static int64_t bytes_of_other_ranks(size_t bytes, int32_t ranks) {
    return (int64_t)(bytes - bytes / (size_t)ranks);
}

/* Small pages of which a byte's page of ACTIVATION consists, and the first of them: its beginning
 * is in huge pages. */
static int64_t page_of(int64_t at, int64_t huge, int64_t *first) {
    enum { PAGE = 4096, EACH = TRMI_HUGE_PAGE_BYTES / PAGE };
    *first = at < huge ? at / TRMI_HUGE_PAGE_BYTES * EACH : at / PAGE;
    return at < huge ? EACH : 1;
}

/* Contract in exec_memory.h. Moving the casts out of the activations frees only those pages on
 * which no other activation lies. The pages that remain are counted by marking the pages of
 * every buffer that stays. */
int64_t trmi_program_shared_casts(const trm_program *p) {
    int64_t bytes = p->arena_bytes[TRMI_ARENA_ACTIVATION],
            huge = (int64_t)trmi_map_huge((size_t)bytes), casts = 0, first;
    int64_t page = (int64_t)trmi_map_resident(1),
            pages = (int64_t)trmi_map_resident((size_t)bytes) / page, left = pages;
    bool *moves = trmi_alloc((size_t)p->buffers_count), *used = trmi_alloc((size_t)pages + 1);
    /* Find which buffers move, ... */
    for (int32_t i = 0; moves != NULL && i < p->steps_count; i++) {
        if (trmi_is_parameter_cast(p, &p->steps[i])) {
            moves[p->steps[i].outputs[0]] = true;
            casts += trmi_round_up(p->buffers[p->steps[i].outputs[0]].bytes, TRMI_BUFFER_ALIGNMENT);
        }
    }
    /* ... and which pages the others keep: `left` counts those without a buffer. */
    for (int32_t i = 1; moves != NULL && used != NULL && i < p->buffers_count; i++) {
        const trmi_buffer *b = &p->buffers[i];
        bool stays = b->arena == TRMI_ARENA_ACTIVATION && b->alias_of == 0 && !moves[i];
        for (int64_t at = b->offset, end = at + b->bytes; stays && at < end;) {
            int64_t count = page_of(at, huge, &first);
            left -= used[first] ? 0 : count;
            used[first] = true;
            at = (first + count) * page;
        }
    }
    trmi_free(moves);
    trmi_free(used);
    return casts > 0 ? (int64_t)trmi_shared_resident((size_t)casts) - left * page : 0;
}

/* Contract in exec_memory.h. Sizes are of whole pages, because these become resident. */
int64_t trmi_program_resident(const trm_program *program, const trmi_training *t) {
    bool ranks = t->ranks > 1;
    size_t params = (size_t)program->arena_bytes[TRMI_ARENA_GRAD]; /* those that have slots */
    /* Count the slots. A rank with slices also leaves out the other ranks' share of cooperative
     * gradients. */
    int64_t slot = (int64_t)trmi_map_resident(params) -
                   (t->sliced ? bytes_of_other_ranks(params, t->ranks) : 0);
    int64_t sum =
        slot * t->slots -
        (t->sliced ? bytes_of_other_ranks(cooperative_gradient_bytes(program), t->ranks) : 0);
    /* Count the arenas, without the slots, which are counted above. */
    int64_t gradients = trmi_program_arena_resident(program, TRMI_ARENA_GRAD, ranks);
    for (int a = 1; a < TRMI_ARENAS; a++) {
        sum += a == TRMI_ARENA_SLOT ? 0 : trmi_program_arena_resident(program, a, ranks);
    }
    /* Staging of exchanges, shared casts, accumulated and packed gradients, heap, fed batches. */
    int64_t send, recv;
    trmi_exchange_staging(program, t->ordered, &send, &recv);
    sum += send + recv > 0 ? (int64_t)trmi_shared_resident((size_t)(send + recv)) : 0;
    sum += t->one_copy ? trmi_program_shared_casts(program) : 0;
    sum += (t->accumulates ? gradients : 0) + (t->packs && ranks ? gradients / 2 : 0);
    sum += CHUNKS + (int64_t)program->steps_count * EACH_STEP + factors_bytes(program);
    return sum + trmi_program_fed_bytes(program, t->ranks, t->own_samples) +
           trmi_staged_bytes(program);
}
