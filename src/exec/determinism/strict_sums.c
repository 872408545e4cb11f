/* SPDX-License-Identifier: Apache-2.0 */
/* Steps that sum over samples: the blocks of this rank, then the ranks, in the order of the tree.
 *
 *      kernel sums all blocks         out ---------------------------> exchange
 *      kernel sums one block a run    out -> levels (a stack) -> out -> exchange
 *      ... and single_blocks          out -> levels (all blocks) ----> exchange of all blocks
 *
 * Every addition is one of two float32 numbers whose place in the tree is fixed. */
#include "exec/exec.h"
#include "exec/determinism/strict.h"

#include "base/checked.h"
#include "base/error.h"

#include <string.h>

const char trmi_strict_key = 0;

/* Adds from[count] to to[count]. */
static void add_floats(float *to, const float *from, int64_t count) {
    for (int64_t i = 0; i < count; i++) {
        to[i] += from[i];
    }
}

/* ---- the blocks of this rank ---- */

/* A sum over samples that a step makes. */
typedef struct strict_sum {
    float *out;        /* the step's output */
    int64_t count, at; /* number of floats; offset within a level */
} strict_sum;

/* Lists the outputs of a step that are sums over samples; returns how many there are. */
static int32_t find_sums(const trm_exec *exec, int32_t step, strict_sum sums[TRMI_OP_OUTPUTS_MAX]) {
    const trmi_step *s = &exec->program->steps[step];
    int32_t found = 0;
    int64_t at = 0;
    for (int32_t i = 0; i < s->outputs_count; i++) {
        const trmi_buffer *b = &exec->program->buffers[s->outputs[i]];
        if (s->outputs[i] != 0 && s->block_out_stride[i] == 0) {
            int64_t count = b->bytes / (int64_t)sizeof(float);
            float *out = (float *)(void *)(exec->env.arena[b->arena] + b->offset);
            sums[found++] = (strict_sum){.out = out, .count = count, .at = at};
            at += count;
        }
    }
    return found;
}

/* Adds the sum of the block at `position` to the stack of `depth` tree nodes whose sibling has not
 * come yet, and adds up the nodes that are complete with it. */
static void push_block(const trmi_strict *s, const trmi_tree *tree, int64_t position, int64_t depth,
                       const strict_sum *sum) {
    float *levels = s->levels + sum->at;
    if (trmi_tree_begins(tree, position)) {
        memcpy(levels + depth++ * s->level_floats, sum->out, (size_t)sum->count * sizeof *levels);
    } else {
        add_floats(levels + (depth - 1) * s->level_floats, sum->out, sum->count);
    }
    for (int64_t joins = trmi_tree_joins(tree, position); joins > 0; joins--, depth--) {
        float *to = levels + (depth - 2) * s->level_floats;
        add_floats(to, to + s->level_floats, sum->count);
    }
}

/* Runs a step once for each block and adds the blocks' outputs in the order of the tree. With
 * s->single_blocks it keeps them for the exchange instead. */
static trm_status sum_blocks(trm_exec *exec, int32_t step, const strict_sum *sums, int32_t count,
                             trm_error *err) {
    trmi_strict *s = trmi_strict_of(exec);
    const trmi_tree tree = trmi_tree_of(exec->program->steps[step].blocks);
    trm_status status = TRM_OK;
    for (int64_t p = 0, depth = 0; p < trmi_tree_blocks(&tree) && status == TRM_OK; p++) {
        exec->env.block = (int32_t)p;
        status = trmi_exec_run(exec, step, step + 1, err);
        for (int32_t i = 0; i < count; i++) {
            if (s->single_blocks) {
                memcpy(s->levels + p * s->level_floats + sums[i].at, sums[i].out,
                       (size_t)sums[i].count * sizeof *sums[i].out);
            } else {
                push_block(s, &tree, p, depth, &sums[i]);
            }
        }
        depth += trmi_tree_begins(&tree, p) - trmi_tree_joins(&tree, p);
    }
    /* The last sum on the stack is that of all blocks. */
    exec->env.block = 0;
    for (int32_t i = 0; i < count && !s->single_blocks; i++) {
        memcpy(sums[i].out, s->levels + sums[i].at, (size_t)sums[i].count * sizeof *sums[i].out);
    }
    return status;
}

/* ---- the ranks ---- */

/* Runs a step that sums over samples: the blocks of this rank, then the exchange with the
 * others. */
static trm_status run_sum(trm_exec *exec, int32_t step, trm_error *err) {
    strict_sum sums[TRMI_OP_OUTPUTS_MAX];
    int32_t count = find_sums(exec, step, sums);
    if (exec->kernels[step].by_block) {
        TRMI_TRY(sum_blocks(exec, step, sums, count, err));
    } else {
        TRMI_TRY(trmi_exec_run(exec, step, step + 1, err));
    }
    const trmi_strict *s = trmi_strict_of(exec);
    for (int32_t i = 0; i < count && s->sum.comm != NULL; i++) {
        TRMI_TRY(trmi_tree_sum_run(&s->sum, s->single_blocks ? s->levels + sums[i].at : sums[i].out,
                                   s->level_floats, sums[i].out, sums[i].count,
                                   exec->program->steps[step].name, err));
    }
    return TRM_OK;
}

/* Contract in strict.h. Steps between two sums run as without blocks. */
trm_status trmi_strict_walk(trm_exec *exec, int32_t begin, int32_t end, trm_error *err) {
    const trmi_step *steps = exec->program->steps;
    for (int32_t i = begin; i < end;) {
        int32_t first = i;
        while (i < end && !steps[i].over_samples) {
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
