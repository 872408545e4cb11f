/* SPDX-License-Identifier: Apache-2.0 */
/* Steps that sum over samples: the blocks of this rank, then the ranks, in the order of the tree.
 *
 *      kernel sums all blocks         out ---------------------------> exchange
 *      kernel sums one block a run    out -> levels (a stack) -> out -> exchange
 *      ... and ranks are apart        out -> levels (all blocks) ----> exchange of all blocks
 *
 * Every addition is one of two float32 numbers whose place in the tree is fixed. */
#include "exec/exec.h"
#include "exec/determinism/strict.h"

#include "base/checked.h"
#include "base/error.h"

#include <string.h>

enum { PIECE = TRMI_STRICT_PIECE, PART = 1024 };

static void add(float *to, const float *from, int64_t count) {
    for (int64_t i = 0; i < count; i++) {
        to[i] += from[i];
    }
}

/* ---- the blocks of this rank ---- */

/* The sum of the block at `position` joins the nodes that wait; returns how many wait then. */
static int64_t push_block(const trmi_strict *s, int64_t position, int64_t depth, const float *sum,
                          int64_t count) {
    if (trmi_tree_begins(&s->tree, position)) {
        memcpy(s->levels + depth++ * s->level_floats, sum, (size_t)count * sizeof *sum);
    } else {
        add(s->levels + (depth - 1) * s->level_floats, sum, count);
    }
    for (int64_t joins = trmi_tree_joins(&s->tree, position); joins > 0; joins--, depth--) {
        float *to = s->levels + (depth - 2) * s->level_floats;
        add(to, to + s->level_floats, count);
    }
    return depth;
}

static trm_status sum_blocks(trm_exec *exec, int32_t step, float *out, int64_t count,
                             trm_error *err) {
    trmi_strict *s = exec->strict;
    trm_status status = TRM_OK;
    for (int64_t p = 0, depth = 0; p < s->count && status == TRM_OK; p++) {
        exec->env.block = (int32_t)p;
        status = trmi_exec_run(exec, step, step + 1, err);
        if (s->apart) {
            memcpy(s->levels + p * s->level_floats, out, (size_t)count * sizeof *out);
        } else {
            depth = push_block(s, p, depth, out, count);
        }
    }
    exec->env.block = 0;
    if (status == TRM_OK && !s->apart) {
        memcpy(out, s->levels, (size_t)count * sizeof *out);
    }
    return status;
}

/* ---- the ranks ---- */

/* Floats [at, at + count) of a piece of `each`, of all nodes, to `out`. */
static void add_nodes(const trmi_strict *s, int64_t each, int64_t at, int64_t count, float *out) {
    float levels[TRMI_TREE_LEVELS][PART];
    for (int64_t p = 0, depth = 0; p < trmi_tree_blocks(&s->exchanged); p++) {
        const float *node = s->pieces + s->slots[p] * each + at;
        if (trmi_tree_begins(&s->exchanged, p)) {
            memcpy(levels[depth++], node, (size_t)count * sizeof *node);
        } else {
            add(levels[depth - 1], node, count);
        }
        for (int64_t joins = trmi_tree_joins(&s->exchanged, p); joins > 0; joins--, depth--) {
            add(levels[depth - 2], levels[depth - 1], count);
        }
    }
    memcpy(out, levels[0], (size_t)count * sizeof *out);
}

/* The sum of all ranks in place of this rank's own. */
static trm_status exchange(trm_exec *exec, float *out, int64_t count, const char *tag,
                           trm_error *err) {
    trmi_strict *s = exec->strict;
    int64_t nodes = s->apart ? s->count : 1;
    for (int64_t begin = 0; begin < count; begin += PIECE) {
        int64_t each = trmi_min_i64(PIECE, count - begin);
        for (int64_t i = 0; i < nodes; i++) {
            const float *from = s->apart ? s->levels + i * s->level_floats : out;
            memcpy(s->pieces + (s->rank * nodes + i) * each, from + begin,
                   (size_t)each * sizeof *from);
        }
        const trm_collective op = {.kind = TRM_ALLGATHER,
                                   .recv = s->pieces,
                                   .count = nodes * each,
                                   .dtype = TRM_FLOAT32,
                                   .tag = tag};
        TRMI_TRY(trm_comm_run(s->comm, &op, err));
#pragma omp parallel for schedule(static)
        for (int64_t at = 0; at < each; at += PART) {
            add_nodes(s, each, at, trmi_min_i64(PART, each - at), out + begin + at);
        }
    }
    return TRM_OK;
}

static trm_status run_sum(trm_exec *exec, int32_t step, trm_error *err) {
    const trmi_strict *s = exec->strict;
    const trmi_step *of = &exec->program->steps[step];
    const trmi_buffer *b = &exec->program->buffers[of->outputs[0]];
    float *out = (float *)(void *)(exec->env.arena[b->arena] + b->offset);
    int64_t count = b->bytes / (int64_t)sizeof(float);
    if (exec->kernels[step].by_block) {
        TRMI_TRY(sum_blocks(exec, step, out, count, err));
    } else {
        TRMI_TRY(trmi_exec_run(exec, step, step + 1, err));
    }
    return s->comm != NULL ? exchange(exec, out, count, of->name, err) : TRM_OK;
}

trm_status trmi_strict_walk(trm_exec *exec, int32_t begin, int32_t end, trm_error *err) {
    const trmi_step *steps = exec->program->steps;
    for (int32_t i = begin; i < end;) {
        int32_t first = i;
        while (i < end && (!steps[i].over_samples || steps[i].outputs[0] == 0)) {
            i++;
        }
        if (i > first) {
            TRMI_TRY(trmi_exec_run(exec, first, i, err));
        }
        if (i < end) {
            TRMI_TRY(run_sum(exec, i++, err));
        }
    }
    return TRM_OK;
}
