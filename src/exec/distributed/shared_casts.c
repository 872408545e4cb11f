/* SPDX-License-Identifier: Apache-2.0 */
/* Mixed precision on the ranks of one host: one bfloat16 copy of the parameters for all of them.
 *
 *      update       [slice][slice][slice]      each rank its slice of PARAM
 *      barrier
 *      casts        [conv1, fc] [layer4] ...   each rank some of the parameters, whole
 *      barrier
 *      forward      skips those steps
 *
 * Otherwise each rank converts all parameters before each batch, which takes an eighth of a
 * step with 8 ranks and small batches. The kernels and their inputs are the same, and so are
 * the bits. */
#include "exec/exec.h"
#include "exec/distributed/ranks_state.h"

#include "base/checked.h"
#include "base/error.h"
#include "base/hash/hash.h"
#include "base/memory.h"
#include "base/os.h"

#include <string.h>

/* Contract in ranks_state.h. Moves the bfloat16 copies of parameters, which are equal on all
 * ranks, to the arena CAST that the ranks of a host share. Each cast is made by one rank: the
 * one with the fewest bytes so far, so that all ranks have about the same work. All ranks
 * compute the same assignment. */
trm_status trmi_parallel_place_casts(trm_exec *exec, trm_error *err) {
    trm_program *p = exec->program;
    trmi_parallel *ranks = trmi_parallel_of(exec);
    int64_t bytes = 0;
    if (!trmi_parallel_may_share(exec)) {
        return TRM_OK;
    }
    ranks->casts = trmi_arena_alloc(&exec->memory, (size_t)p->steps_count + 1);
    int64_t *loads = trmi_arena_alloc(&exec->memory, (size_t)ranks->size * sizeof *loads);
    if (ranks->casts == NULL || loads == NULL) {
        return TRMI_NO_MEMORY(err, "for the casts of %d ranks", ranks->size);
    }
    memset(ranks->casts, TRMI_CAST_NONE, (size_t)p->steps_count);
    memset(loads, 0, (size_t)ranks->size * sizeof *loads);
    for (int32_t i = 0; i < p->steps_count; i++) {
        if (!trmi_is_parameter_cast(p, &p->steps[i])) {
            continue;
        }
        trmi_buffer *to = &p->buffers[p->steps[i].outputs[0]];
        /* The rank with the fewest bytes makes this cast. */
        int32_t least = 0;
        for (int32_t r = 1; r < ranks->size; r++) {
            least = loads[r] < loads[least] ? r : least;
        }
        loads[least] += to->bytes;
        ranks->casts[i] = least == ranks->rank ? TRMI_CAST_MINE : TRMI_CAST_OTHERS;
        ranks->casts_count++;
        to->arena = TRMI_ARENA_CAST;
        to->offset = bytes;
        bytes += trmi_round_up(to->bytes, TRMI_BUFFER_ALIGNMENT);
    }
    p->arena_bytes[TRMI_ARENA_CAST] = bytes;
    return TRM_OK;
}

/* Contract in ranks_state.h. Ranks compare a hash of the places and layouts of their casts: its
 * largest and its smallest value are equal only if all are. One reduction of maxima gives both. */
trm_status trmi_parallel_compare_casts(trm_exec *exec, bool *alike, trm_error *err) {
    const trm_program *p = exec->program;
    trmi_parallel *ranks = trmi_parallel_of(exec);
    uint64_t hash = TRMI_HASH_BEGIN;
    for (int32_t i = 0; i < p->steps_count; i++) {
        if (ranks->casts[i] != TRMI_CAST_NONE) {
            const trmi_buffer *to = &p->buffers[p->steps[i].outputs[0]];
            const int64_t form[4] = {i, to->offset, (int64_t)to->layout, to->weights};
            hash = trmi_hash(hash, form, sizeof form);
        }
    }
    int64_t ends[2] = {(int64_t)(hash >> 1), -(int64_t)(hash >> 1)};
    TRMI_TRY(trm_comm_allreduce(ranks->comm, ends, 2, TRM_INT64, TRM_REDUCTION_MAX, err));
    *alike = ends[0] == -ends[1];
    if (!*alike) {
        memset(ranks->casts, TRMI_CAST_NONE, (size_t)p->steps_count);
        ranks->casts_count = 0;
    }
    return TRM_OK;
}

/* Contract in ranks_state.h. The meeting comes before any rank reads a cast that another one has
 * made. */
trm_status trmi_parallel_run_casts(trm_exec *exec, trm_error *err) {
    trmi_parallel *p = trmi_parallel_of(exec);
    if (exec->program->arena_bytes[TRMI_ARENA_CAST] == 0) {
        return TRM_OK;
    }
    for (int32_t i = 0; i < exec->program->steps_count; i++) {
        if (p->casts[i] == TRMI_CAST_MINE) {
            TRMI_TRY(exec->kernels[i].run(&exec->kernels[i], &exec->env, err));
        }
    }
    TRMI_TRY(trmi_parallel_meet(p, "casts of parameters", err));
    exec->made = exec->parameters_handed_out ? NULL : p->casts; /* a rank alone may know that */
    return TRM_OK;
}
