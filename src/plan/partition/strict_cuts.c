/* SPDX-License-Identifier: Apache-2.0 */
/* Strict determinism of plans: every operator computes the bits that one device computes
 * (docs/internals/determinism.md). The samples of the batch lie in blocks, by position in their
 * tree (base/tree.h), so that equal parts of 2^k ranks are nodes of the tree. A cut is allowed
 *
 *      along a loop that all outputs have         each number is made whole on one rank
 *      along the samples, at nodes of the tree    the ranks' sums over samples are added in the
 *                                                 tree's order (ALL_REDUCE, TRMI_COMBINE_TREE);
 *                                                 norms and losses exchange their blocks'
 *                                                 statistics
 *      along the rows of a table, or experts      one rank has the number, the others add zeros
 *
 * Every other sum is made whole: where a plan, or the forward operator of a gradient, asks for
 * another cut, the operator takes the cheapest cut that is allowed. Images are not cut by rows and
 * columns where operators have windows, because kernels sum the windows at a border otherwise. */
#include "plan/partition/partition_state.h"

#include "base/error.h"

#include <stdio.h>
#include <string.h>

/* Returns the loop of the samples; '\0': the operator reads none. */
static char samples_of(const trmi_block_marks *marks, const trmi_op *op, const trmi_loops *loops) {
    for (int32_t i = 0; i < op->inputs_count; i++) {
        const char *dims = loops->in[i < TRMI_LOOP_TENSORS ? i : TRMI_LOOP_TENSORS - 1];
        char letter = op->inputs[i] != 0 && marks->rows[op->inputs[i]] > 0
                          ? dims[marks->dimension[op->inputs[i]]]
                          : '-';
        if (letter != '-') {
            return letter;
        }
    }
    return '\0';
}

/* Returns whether all but one rank have zeros along this loop. */
static bool has_one_term(const trmi_op *op, char letter) {
    return (op->kind == TRMI_OP_EMBEDDING && letter == 'v') ||
           (op->kind == TRMI_OP_EXPERT_LINEAR && letter == 'e');
}

/* Returns whether ranks may cut this loop. `samples`: the loop of the samples. `nodes`: its parts
 * are nodes of the tree. */
static bool allows_cut(const trmi_op *op, const trmi_loops *loops, bool over_samples, char letter,
                       char samples, bool nodes) {
    bool image = letter == 'h' || letter == 'w', joins = letter == samples && nodes;
    if (letter == '.' || has_one_term(op, letter)) {
        return true;
    }
    switch (op->kind) {
    case TRMI_OP_BATCH_NORM:
    case TRMI_OP_NORM_ACT:
    case TRMI_OP_BATCH_NORM_GRAD:
    case TRMI_OP_NORM_ACT_GRAD: return letter == 'c' || joins;
    case TRMI_OP_SOFTMAX_XENT:
    case TRMI_OP_LINEAR_XENT: return joins;
    case TRMI_OP_BCE_LOGITS:
    case TRMI_OP_BAG_POOL:
    case TRMI_OP_BAG_POOL_GRAD: return false;
    case TRMI_OP_GLOBAL_AVG_POOL_GRAD: return !image;
    default: break;
    }
    /* In other operators the loop must be in every output, so that no sum is cut. A maximum has no
     * order, and sums over samples are added in the tree. */
    bool fine = letter != '+' && !(image && loops->windows);
    for (int32_t i = 0; i < op->outputs_count && fine; i++) {
        fine = strchr(loops->out[i], letter) != NULL || loops->without[i] == TRMI_PARTIAL_MAX ||
               (over_samples && joins);
    }
    return fine;
}

/* Contract in partition.h. Ranks must be a power of two that divides the blocks, so that each
 * rank has a node of the tree. */
bool trmi_partition_is_strict(const trm_graph *g, const trmi_block_marks *marks, int32_t blocks,
                              const trmi_op *op, const trmi_mesh *mesh, const char *letters) {
    trmi_loops loops;
    trmi_loops_of(g, op, &loops);
    char samples = samples_of(marks, op, &loops);
    uint32_t axes = samples != '\0' ? trmi_letters_mask(letters, (char[]){samples, '\0'}) : 0;
    bool nodes = (blocks & -blocks) % trmi_mesh_group(mesh, axes) == 0;
    /* one group by itself is a convolution of another kernel */
    bool image = op->kind == TRMI_OP_CONV2D || op->kind == TRMI_OP_CONV2D_GRAD_DATA ||
                 op->kind == TRMI_OP_CONV2D_GRAD_WEIGHTS;
    bool fine = !image || loops.groups <= 1 ||
                trmi_mesh_group(mesh, trmi_letters_mask(letters, "g")) < loops.groups;
    for (const char *at = letters; *at != '\0' && fine; at++) {
        fine = allows_cut(op, &loops, marks->over_samples[op - g->ops], *at, samples, nodes);
    }
    return fine;
}

/* Contract in partition_state.h. Partial sums that have more than one term a number would be added
 * in an order that depends on the ranks, so they are made whole at once. */
bool trmi_partition_settle(const trmi_partitioner *s, const trmi_op *op, trmi_strategy *strategy) {
    if (s->plan->blocks == 0) {
        return true;
    }
    for (int32_t i = 0; i < op->outputs_count; i++) {
        for (int axis = 0; axis < s->mesh->axes; axis++) {
            uint8_t *at = &strategy->outputs[i].at[axis];
            bool sum = *at == TRMI_PARTIAL_SUM && !has_one_term(op, strategy->letters[axis]);
            *at = sum ? TRMI_WHOLE : *at;
        }
    }
    return trmi_partition_is_strict(s->from, &s->marks, s->plan->blocks, op, s->mesh,
                                    strategy->letters);
}

/* Emits the sum of one output over the ranks of `axes`. */
static trm_status emit_tree(trmi_partitioner *s, const trmi_op *op, uint32_t axes, int32_t *value,
                            trm_error *err) {
    char name[300];
    const trmi_box_exchange sum = {
        .head = {.bytes = sizeof sum}, .axes = axes, .combine = TRMI_COMBINE_TREE};
    const trmi_attrs attrs = {.attached = &sum.head};
    snprintf(name, sizeof name, "%.200s sum of samples", op->name);
    *value = trmi_pass_emit_unary(&s->pass, TRMI_OP_ALL_REDUCE, op->phase, name, *value, &attrs);
    TRMI_TRY(trm_graph_check(s->pass.to, err));
    double bytes = (double)trm_shape_count(&s->pass.to->values[*value].shape) * sizeof(float);
    trmi_partition_note(
        s, &(trmi_partition_message){
               .op = op->name,
               .what = "sum of samples",
               .phase = op->phase,
               .move = TRMI_MOVE_ALL_REDUCE,
               .axes = axes,
               .bytes = bytes,
               .seconds = trmi_price(s->prices, s->mesh, TRMI_MOVE_ALL_REDUCE, axes, bytes)});
    return TRM_OK;
}

/* Contract in partition_state.h. Outputs that have no dimension of samples are sums over them. */
trm_status trmi_partition_add_samples(trmi_partitioner *s, const trmi_op *op,
                                      const trmi_strategy *strategy, int32_t *locals,
                                      trm_error *err) {
    trmi_loops loops;
    if (s->plan->blocks == 0 || !s->marks.over_samples[op - s->from->ops]) {
        return TRM_OK;
    }
    trmi_loops_of(s->from, op, &loops);
    char samples = samples_of(&s->marks, op, &loops);
    uint32_t axes =
        samples != '\0' ? trmi_letters_mask(strategy->letters, (char[]){samples, '\0'}) : 0;
    for (int32_t i = 0; i < op->outputs_count && axes != 0; i++) {
        if (strchr(loops.out[i], samples) == NULL) {
            TRMI_TRY(emit_tree(s, op, axes, &locals[i], err));
        }
    }
    return TRM_OK;
}
