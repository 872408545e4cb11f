/* SPDX-License-Identifier: Apache-2.0 */
/* Reads from the options of the ranks how batches reach them (contracts in batches.h). */
#include "exec/distributed/batches.h"
#include "exec/distributed/input_cuts.h"

#include "exec/determinism/strict.h"

#include "trireme/dist.h"

#include "base/error.h"

trmi_batch_form trmi_batch_form_of(const trm_parallel_options *o) {
    bool pipeline = o->pipeline.stages > 1;
    int32_t all = o->comm != NULL ? trm_comm_size(o->comm) : 1;
    /* numbers that do not divide are refused when the executor is made */
    int32_t ranks = pipeline && all >= o->pipeline.stages ? all / o->pipeline.stages : all;
    bool cut = o->split.kind != TRM_SPLIT_NONE;
    return (trmi_batch_form){.ranks = ranks,
                             .graph_ranks = cut ? ranks : 1,
                             .reads = cut && o->batch != TRM_BATCH_OF_RANK ? 1 : ranks,
                             .weights_in_place = !cut && !pipeline,
                             .together = pipeline};
}

void trmi_batches_settle(trm_parallel_options *o) {
    if (o->split.input_cuts != NULL && o->batch == TRM_BATCH_DEFAULT) {
        o->batch = TRM_BATCH_OF_JOB;
    }
    if (o->batch != TRM_BATCH_OF_JOB) {
        o->batch = trmi_batch_form_of(o).graph_ranks > 1 ? TRM_BATCH_OF_RANK : TRM_BATCH_DEFAULT;
    }
}

trm_status trmi_batches_check(const trm_parallel_options *o, const trm_graph *graph,
                              trm_error *err) {
    return o->split.input_cuts != NULL
               ? trmi_input_cuts_check(o->split.input_cuts, graph, trmi_batch_form_of(o).ranks, err)
               : TRM_OK;
}

/* Returns the number of samples of one block in strict determinism: the largest power of 2
 * that divides the global batch into at least 8 blocks, from 32 samples a block on into at least
 * 64. It depends on the global batch only, so that every number of ranks cuts the same blocks. */
static int64_t choose_block(int64_t global_batch) {
    enum { SMALL = 16, FEW = 8, MANY = 64 };
    int64_t block = 1;
    while (global_batch % (2 * block) == 0 &&
           global_batch / (2 * block) >= (2 * block > SMALL ? MANY : FEW)) {
        block *= 2;
    }
    return block;
}

trm_status trmi_batches_blocks(const trm_parallel_options *o, int64_t batch, int32_t *blocks,
                               trm_error *err) {
    const trmi_batch_form form = trmi_batch_form_of(o);
    int64_t block = o->block < 0 ? choose_block(batch * (form.ranks / form.graph_ranks)) : o->block;
    if (block > 0 && (batch % block != 0 || batch / block > INT16_MAX)) {
        return TRMI_FAIL(
            err, TRM_INVALID,
            "strict determinism computes blocks of %lld samples, which do not divide "
            "a batch of %lld: set deterministic_block to a divisor, on any number of ranks "
            "the same",
            (long long)block, (long long)batch);
    }
    *blocks = block > 0 ? (int32_t)(batch / block) : 0;
    return TRM_OK;
}

/* Returns the tree of the sums that ranks have: of their nodes or, where a rank's blocks are no
 * node, of all blocks. */
static trmi_tree tree_of(const trmi_strict *s) {
    return trmi_tree_of(s->single_blocks ? s->total : s->ranks);
}

trmi_batch_blocks trmi_batches_of_exec(const trm_exec *exec) {
    const trmi_strict *s = trmi_strict_of(exec);
    if (s == NULL || s->split) {
        return (trmi_batch_blocks){0};
    }
    const trmi_tree tree = tree_of(s);
    return (trmi_batch_blocks){.count = s->count,
                               .ranks = s->ranks,
                               .rank = s->rank,
                               .nodes = s->single_blocks ? s->count : 1,
                               .total = (int32_t)trmi_tree_blocks(&tree)};
}

int32_t trmi_batches_node(const trm_exec *exec, int32_t node) {
    const trmi_strict *s = trmi_strict_of(exec);
    const trmi_tree tree = tree_of(s);
    return (int32_t)trmi_tree_position(&tree, s->single_blocks ? s->numbers[node] : s->rank);
}

int64_t trmi_batches_row(const trm_exec *exec, int64_t sample, int64_t samples) {
    return trmi_strict_row(trmi_strict_of(exec), sample, samples);
}
