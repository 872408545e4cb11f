#include "exec/exec_memory.h"

#include "base/memory.h"
#include "exec/parallel.h"
#include "exec/shard.h"

/* Kernels' tables, code that is made at run time, the program itself: fitted to what processes grew by beyond their arenas, LeNet
 * (36 steps) 1.0 MB, multilayer perceptrons (20) 0.8 to 1.0, ResNet-18 (146) 2.0, ResNet-50 (354) 5.2. */
enum { BESIDE = 512 << 10, BESIDE_STEP = 12 << 10 };

int64_t trmi_program_arena_resident(const trm_program *program, int arena, bool ranks) {
    bool shared = ranks && (arena == TRMI_ARENA_PARAM || arena == TRMI_ARENA_GRAD || arena == TRMI_ARENA_CAST ||
                             arena == TRMI_ARENA_JOINT);
    size_t bytes = (size_t)program->arena_bytes[arena], untouched = arena == TRMI_ARENA_GRAD ? (size_t)program->untouched_bytes : 0;
    size_t taken = bytes == 0 ? 0 : shared ? trmi_shared_resident(bytes) : trmi_map_resident(bytes);
    return (int64_t)(taken - untouched);
}

int64_t trmi_program_fed_bytes(const trm_program *program, int32_t ranks, bool own_samples) {
    int64_t sum = 0;
    for (int32_t i = 0; program->leaves_count > 0 && i < program->inputs_count; i++) {
        const trmi_buffer *b = &program->buffers[program->inputs[i]];
        const trmi_shard_leaf *leaf = trmi_shard_leaf_named(program, b->name);
        int64_t whole = leaf != NULL ? trm_shape_count(&leaf->global) * (int64_t)trm_dtype_bytes(b->dtype) : 0;
        sum += whole + (own_samples ? whole / ranks : 0);
    }
    return sum;
}

/* Of a slot a rank touches its slices. Where ranks make most gradients together, which are one slice, the others are small buckets,
 * whose slices leave no huge page out. */
static size_t slot_touched(const trm_program *program, const trmi_training *t) {
    size_t whole = (size_t)program->arena_bytes[TRMI_ARENA_PARAM], joint = 0;
    for (int32_t i = 0; program->joint_ranks > 1 && i < program->params_count; i++) {
        const trmi_param *param = &program->params[i];
        joint += trmi_joint_makes(program, param) ? (size_t)program->buffers[param->param_buffer].bytes : 0;
    }
    size_t sliced = joint > 0 ? joint : whole;
    return t->sliced ? whole - sliced + sliced / (size_t)t->ranks : whole;
}

int64_t trmi_program_resident(const trm_program *program, const trmi_training *t) {
    bool ranks = t->ranks > 1;
    size_t slot = slot_touched(program, t);
    int64_t sum = (int64_t)trmi_map_resident(slot) * t->slots, gradients = trmi_program_arena_resident(program, TRMI_ARENA_GRAD, ranks);
    for (int a = 1; a < TRMI_ARENAS; a++) {
        sum += a == TRMI_ARENA_SLOT ? 0 : trmi_program_arena_resident(program, a, ranks);
    }
    int64_t send, recv;
    trmi_shard_staging(program, &send, &recv);
    sum += send + recv > 0 ? (int64_t)trmi_shared_resident((size_t)(send + recv)) : 0;
    sum += t->one_copy ? trmi_parallel_casts_bytes(program) : 0;
    sum += (t->accumulates ? gradients : 0) + (t->packs && ranks ? gradients / 2 : 0);
    return sum + BESIDE + (int64_t)program->steps_count * BESIDE_STEP + trmi_program_fed_bytes(program, t->ranks, t->own_samples);
}
