/* SPDX-License-Identifier: Apache-2.0 */
/* Variables and inputs of a split executor as the caller sees them: whole.
 *
 *   read   parts of all ranks --gather--> each copied to its box --> exec->wholes --> trm_exec_read
 *   feed   whole batch, samples or a part --> where kernels read it; parts are joined first
 *   norms  squares of each parameter, each part counted by its first owner, summed over all ranks
 *
 * Gathers and joins are collectives: all ranks make them in the order of the variables, whether or
 * not they need the result. Ranks that hold copies of a part write equal values. */
#include "exec/exec.h"
#include "exec/distributed/ranks_state.h"
#include "exec/distributed/split.h"
#include "exec/box_walk.h"
#include "exec/determinism/strict.h"

#include "base/error.h"
#include "base/memory.h"

#include <string.h>

/* ---- variables ------------------------------------------------------------------------------- */

/* Contract in split.h. Gathers the parts of all ranks and copies each to its place. Where ranks
 * hold copies of one part, each copy writes the same values. */
trm_status trmi_split_gather(trm_exec *exec, int32_t index, const void *part, void *whole,
                             trm_error *err) {
    const trmi_parallel *p = trmi_parallel_of(exec);
    const trmi_partition_leaf *leaf = trmi_exec_cut_of(exec, index);
    if (part == NULL || leaf == NULL) {
        return TRM_OK; /* not cut */
    }
    trm_dtype dtype = exec->variables[index].dtype;
    size_t element = trm_dtype_bytes(dtype);
    int64_t *counts = trmi_alloc((size_t)p->size * sizeof *counts), total = 0;
    for (int32_t r = 0; counts != NULL && r < p->size; r++) {
        trmi_box box = trmi_spread_box(&p->split->plan->mesh, &leaf->global, &leaf->spread, r);
        counts[r] = trmi_box_count(&box);
        total += counts[r];
    }
    char *all = trmi_alloc((size_t)total * element);
    trm_status status =
        counts == NULL || all == NULL ? TRMI_NO_MEMORY(err, "to gather %s", leaf->name) : TRM_OK;
    if (status == TRM_OK) {
        const trm_collective op = {.kind = TRM_ALLGATHERV,
                                   .send = part,
                                   .recv = all,
                                   .dtype = dtype,
                                   .counts = counts,
                                   .tag = leaf->name};
        status = trm_comm_run(p->comm, &op, err);
    }
    /* The gathered parts lie in the order of the ranks. */
    int64_t at = 0;
    for (int32_t r = 0; status == TRM_OK && r < p->size; r++) {
        trmi_box box = trmi_spread_box(&p->split->plan->mesh, &leaf->global, &leaf->spread, r);
        trmi_copy_box(whole, &leaf->global, &box, all + (size_t)at * element, element, true);
        at += counts[r];
    }
    trmi_free(counts);
    trmi_free(all);
    return status;
}

void trmi_split_hold(const trm_exec *exec, int32_t index, int64_t at, trmi_hold *hold) {
    const trmi_partition_leaf *leaf = trmi_exec_cut_of(exec, index);
    const trmi_mesh *mesh = &trmi_parallel_of(exec)->split->plan->mesh;
    bool repeated = leaf == NULL;
    (void)at;
    for (int32_t i = 0; leaf != NULL && i < mesh->axes; i++) {
        repeated = repeated || leaf->spread.at[i] < TRMI_SPLIT;
    }
    hold->repeated = hold->repeated && repeated;
}

/* ---- norms over cut parameters --------------------------------------------------------------- */

/* Returns whether this rank is the first of those that hold the same part. */
static bool is_first_owner(const trm_exec *exec, const trmi_partition_leaf *leaf) {
    int32_t at[TRMI_MESH_AXES];
    const trmi_mesh *mesh = &trmi_parallel_of(exec)->split->plan->mesh;
    trmi_mesh_coordinates(mesh, trmi_parallel_of(exec)->rank, at);
    bool first = true;
    for (int32_t i = 0; i < mesh->axes; i++) {
        first = first && (leaf->spread.at[i] >= TRMI_SPLIT || at[i] == 0);
    }
    return first;
}

/* Contract in split.h. Sums the squares of each parameter over all ranks that have different
 * parts of it. The first turn adds up this rank's blocks by parameter, each part counted by its
 * first owner only; after the all-reduce the second turn stores a parameter's total in its first
 * block, and zeros in the others. */
trm_status trmi_split_norms(void *context, double *sums, int64_t count, trm_error *err) {
    trm_exec *exec = context;
    const trm_program *p = exec->program;
    int64_t blocks = trmi_update_block_count(exec->update), sets = blocks > 0 ? count / blocks : 0;
    double *totals;
    TRMI_TRY(TRMI_NEW(err, totals, sets * p->trained_count + 1, "for the optimiser's norms"));
    trm_status status = TRM_OK;
    for (int turn = 0; turn < 2 && status == TRM_OK; turn++) {
        int64_t block = 0;
        for (int32_t i = 0; i < p->trained_count; i++) {
            /* Parameters and blocks are in one order, so the blocks up to the parameter's end are
             * its own. */
            const trmi_buffer *b = &p->buffers[p->params[i].param_buffer];
            int64_t end = (b->offset + b->bytes) / (int64_t)sizeof(float), first = block;
            const trmi_partition_leaf *leaf = trmi_program_leaf(p, b->name);
            for (; block < blocks && trmi_update_block_offset(exec->update, block) < end; block++) {
                for (int64_t set = 0; set < sets; set++) {
                    double *sum = &sums[set * blocks + block],
                           *total = &totals[set * p->trained_count + i];
                    if (turn == 0) {
                        *total += leaf != NULL && is_first_owner(exec, leaf) ? *sum : 0;
                    } else {
                        *sum = block == first ? *total : 0;
                    }
                }
            }
        }
        if (turn == 0) {
            status =
                trm_comm_allreduce(trmi_parallel_of(exec)->comm, totals, sets * p->trained_count,
                                   TRM_FLOAT64, TRM_REDUCTION_SUM, err);
        }
    }
    trmi_free(totals);
    return status;
}

/* ---- inputs ---------------------------------------------------------------------------------- */

/* Returns the shape that a caller feeds: of the whole batch, or of this rank's samples. */
static trm_shape fed_shape(const trmi_split_input *in) {
    return trmi_input_cut_shape(&in->cut, &in->leaf->global);
}

/* Finds the part of input `index` that this rank feeds: all, its samples, or that of input_cuts. */
static trm_status find_cut(const trm_exec *exec, int32_t index, const char *name,
                           trmi_split_input *in, trm_error *err) {
    const trm_parallel_options *o = &trmi_parallel_of(exec)->options;
    const trm_shape *global = &in->leaf->global;
    int32_t ranks = trmi_parallel_of(exec)->size;
    in->cut = (trmi_input_cut){.dimensions = global->rank, .parts = 1};
    if (o->split.input_cuts != NULL) { /* trmi_input_cuts_check has seen it */
        trmi_input_cuts cuts;
        TRMI_TRY(trmi_input_cuts_parse(o->split.input_cuts, &cuts, err));
        in->cut = cuts.inputs[index];
        return TRM_OK;
    }
    /* Every rank feeds the whole batch. */
    if (o->batch != TRM_BATCH_OF_RANK) {
        return TRM_OK;
    }
    if (global->rank < 1 || global->dim[0] % ranks != 0) {
        return TRMI_FAIL(
            err, TRM_INVALID,
            "input '%s': %lld samples found, a multiple of the %d ranks that feed their own "
            "expected; or let every rank feed the whole batch (full_batch)",
            name, (long long)(global->rank < 1 ? 1 : global->dim[0]), ranks);
    }
    /* Each rank feeds its samples: the batch is cut along dimension 0. */
    in->cut.parts = ranks;
    return TRM_OK;
}

/* Makes memory for the part that this rank feeds; none where it feeds the whole. */
static trm_status make_own(trmi_split_input *in, trm_dtype dtype, trm_error *err) {
    trm_shape shape = fed_shape(in);
    char *own = NULL;
    if (in->cut.parts > 1) {
        TRMI_TRY(TRMI_NEW(err, own, (size_t)trm_shape_count(&shape) * trm_dtype_bytes(dtype),
                          "for the batch"));
    }
    in->own = own;
    return TRM_OK;
}

/* Assembles the whole batch on every rank from the parts that all ranks have fed. */
static trm_status join_parts(trm_exec *exec, const trmi_split_input *in, trm_dtype dtype,
                             trm_error *err) {
    const trmi_parallel *p = trmi_parallel_of(exec);
    trm_shape part = fed_shape(in);
    int64_t count = trm_shape_count(&part);
    char *all;
    TRMI_TRY(
        TRMI_NEW(err, all, (size_t)(count * p->size) * trm_dtype_bytes(dtype), "for the batch"));
    const trm_collective op = {.kind = TRM_ALLGATHER,
                               .send = in->own,
                               .recv = all,
                               .count = count,
                               .dtype = dtype,
                               .tag = "samples"};
    trm_status status = trm_comm_run(p->comm, &op, err);
    if (status == TRM_OK) {
        trmi_input_cut_join(&in->cut, &in->leaf->global, trm_dtype_bytes(dtype), p->size, all,
                            in->data);
    }
    trmi_free(all);
    return status;
}

/* Contract in split.h. Makes the memory into which the program feeds whole batches, and finds
 * for each input how this rank's part is cut from it. */
trm_status trmi_split_make_inputs(trm_exec *exec, trm_error *err) {
    const trm_program *p = exec->program;
    if (p->leaves_count == 0) {
        return TRM_OK;
    }
    trmi_parallel_of(exec)->split->whole_inputs =
        trmi_arena_alloc(&exec->memory, (size_t)(p->inputs_count + 1) *
                                            sizeof *trmi_parallel_of(exec)->split->whole_inputs);
    for (int32_t i = 0; trmi_parallel_of(exec)->split->whole_inputs != NULL && i < p->inputs_count;
         i++) {
        const trmi_buffer *b = &p->buffers[p->inputs[i]];
        const trmi_partition_leaf *leaf = trmi_program_leaf(p, b->name);
        size_t bytes =
            leaf == NULL ? 0 : (size_t)trm_shape_count(&leaf->global) * trm_dtype_bytes(b->dtype);
        /* a batch that is fed goes straight to where kernels read it */
        void *data = leaf == NULL ? NULL : trmi_map(bytes);
        if (data == NULL) {
            return TRMI_NO_MEMORY(err, "for the batch");
        }
        trmi_parallel_of(exec)->split->whole_inputs[i] =
            (trmi_split_input){.data = data, .bytes = bytes, .leaf = leaf};
        TRMI_TRY(find_cut(exec, i, b->name, &trmi_parallel_of(exec)->split->whole_inputs[i], err));
        TRMI_TRY(make_own(&trmi_parallel_of(exec)->split->whole_inputs[i], b->dtype, err));
    }
    return trmi_parallel_of(exec)->split->whole_inputs != NULL
               ? TRM_OK
               : TRMI_NO_MEMORY(err, "for the batch");
}

/* Strict determinism: the rows of a batch lie by the positions of their blocks. */
static void take_rows(const trm_exec *exec, const trmi_partition_leaf *leaf, char *whole,
                      char *part, size_t element) {
    int64_t samples = leaf->global.dim[0] / trmi_strict_of(exec)->total;
    trmi_box row = leaf->box;
    for (int64_t r = leaf->box.begin[0]; r < leaf->box.end[0]; r++) {
        row.begin[0] = trmi_strict_sample(trmi_strict_of(exec), r, samples);
        row.end[0] = row.begin[0] + 1;
        trmi_copy_box(whole, &leaf->global, &row, part, element, false);
        part += (size_t)trmi_box_count(&row) * element;
    }
}

/* Copies this rank's part of a whole batch to where its kernels read it. */
static void take_part(trm_exec *exec, int32_t input, const void *whole) {
    const trmi_buffer *b = &exec->program->buffers[exec->program->inputs[input]];
    const trmi_partition_leaf *leaf = trmi_parallel_of(exec)->split->whole_inputs[input].leaf;
    char *part = exec->env.arena[b->arena] + b->offset;
    size_t element = trm_dtype_bytes(b->dtype);
    if (trmi_strict_of(exec) != NULL) {
        take_rows(exec, leaf, (char *)(uintptr_t)whole, part, element);
    } else {
        trmi_copy_box((void *)(uintptr_t)whole, &leaf->global, &leaf->box, part, element, false);
    }
}

/* Contract in split.h. A caller that writes gets the memory of the whole batch, or of the samples
 * that this rank feeds; these are joined with those of the other ranks before they are taken. */
bool trmi_split_feed(trm_exec *exec, int32_t index, trm_tensor *place, const void *whole) {
    trmi_split_input *in = trmi_parallel_of(exec)->split->whole_inputs;
    if (in == NULL) {
        return false;
    }
    in += index;
    in->taken = whole != NULL && in->own == NULL;
    if (in->taken) {
        take_part(exec, index, whole);
    } else if (whole == NULL) {
        place->data = in->own != NULL ? in->own : in->data;
        place->shape = fed_shape(in);
    }
    return in->taken;
}

trm_status trmi_split_take_inputs(trm_exec *exec, trm_error *err) {
    const trm_program *p = exec->program;
    for (int32_t i = 0; trmi_parallel_of(exec)->split->whole_inputs != NULL && i < p->inputs_count;
         i++) {
        const trmi_buffer *b = &p->buffers[p->inputs[i]];
        const trmi_split_input *in = &trmi_parallel_of(exec)->split->whole_inputs[i];
        if (in->own != NULL) {
            TRMI_TRY(join_parts(exec, in, b->dtype, err));
        }
        if (!in->taken) {
            take_part(exec, i, in->data);
        }
    }
    return TRM_OK;
}
