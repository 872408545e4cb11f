/* SPDX-License-Identifier: Apache-2.0 */
/* exec/optimizer/update.h: the optimiser: one fused pass over the contiguous PARAM, GRAD and slot
 * ranges.
 *
 *      PARAM [conv1.weight | bn1.weight | ...]      segments know what differs per parameter:
 *      GRAD  [conv1.weight | bn1.weight | ...]      decay or not, LARS norms
 *      slot0 [conv1.weight | bn1.weight | ...]      (momentum; Adam: m, v; FTRL: n, z)
 *
 * Pure with respect to ranks: any sub-range of segments may be updated by itself (optimiser-state
 * sharding), except that LARS and clipping need the norms of whole tensors first. */
#ifndef TRMI_EXEC_UPDATE_H
#define TRMI_EXEC_UPDATE_H

#include "trireme/exec.h"

#include "exec/determinism/tree.h"

typedef struct trmi_update_segment {
    int64_t offset, count; /* float32 elements in the ranges */
    bool decay;            /* weight decay applies */
    bool sparse;           /* no dense gradient: skipped by run, see trmi_update_sparse */
    int64_t rows;          /* sparse: ids of a step, so that steps take no memory; 0 = grow then */
    int64_t width;         /* sparse: of a row; 0 = grow then */
    /* the dense gradient of an embedding table with such rows: those that are all zero rest, as
     * rows that a sparse gradient does not name do; 0 = no table */
    int64_t table_width;
    /* the gradient is left^T right, [factors, count / columns] and [factors, columns], given to
     * trmi_update_factors before each run; 0 = it is dense */
    int64_t factors;
    int64_t columns;
} trmi_update_segment;

typedef struct trmi_update trmi_update;

/* Takes the slots: `count` float32 each (zero, or ADAGRAD's initial accumulator).
 *   owns  copies options and segments    error  INVALID: an impossible option, with its value; NOMEM
 */
trm_status trmi_update_create(const trm_optimizer_options *options,
                              const trmi_update_segment *segments, int32_t segments_count,
                              int64_t count, trmi_update **out, trm_error *err);
void trmi_update_destroy(trmi_update *update);

/* Number of slots, their names ("momentum"; "m", "v"; ...) and memory. */
int32_t trmi_update_slots(const trmi_update *update);
const char *trmi_update_slot_name(const trmi_update *update, int32_t slot);
float *trmi_update_slot(const trmi_update *update, int32_t slot);
int64_t trmi_update_bytes(const trmi_update *update);
/* Gradients are multiplied by this first, before norms and clipping (1 / loss scale). */
void trmi_update_set_scale(trmi_update *update, double scale);
/* Samples lie in blocks (strict determinism): rows of equal ids are added in the order of the tree,
 * and rows whose gradient is zero do not change, as in a table whose gradient is dense. */
void trmi_update_set_blocks(trmi_update *update, const trmi_tree *tree);
/* Norm of all gradients in the last run, before clipping. */
double trmi_update_norm(const trmi_update *update);

/* One update. `step` is 1 for the first (Adam's bias correction). OpenMP inside; the same bits for
 * any number of threads. NaN or infinity in a gradient: TRM_DIVERGED and nothing is changed (for
 * options that need no norm this is checked in a read-only sweep first). */
trm_status trmi_update_run(trmi_update *update, float *parameters, const float *gradients,
                           double learning_rate, uint64_t step, trm_error *err);
/* Before trmi_update_run, for each sparse segment: sorts the ids, looks for NaN and infinity (then
 * TRM_DIVERGED, and nothing has changed) and lets the rows count in the global norm of the next
 * run. Optional: without it trmi_update_sparse does it, too late for the norm. */
trm_status trmi_update_prepare(trmi_update *update, int32_t segment, const void *ids,
                               trm_dtype id_dtype, const float *rows, int64_t count, int64_t width,
                               trm_error *err);
/* The rows of one embedding table (segment index): ids of `id_dtype` (int32 or int64), rows of
 * d(row) [count, width]. Duplicate ids are summed before the rule is applied once per row; rows not
 * named are untouched (lazy momentum and Adam). In range by contract: the gather checked. Clipped
 * by the last run's factor; LARS takes trust ratio 1 here. Same bits for any number of threads. */
trm_status trmi_update_sparse(trmi_update *update, float *parameters, int32_t segment,
                              const void *ids, trm_dtype id_dtype, const float *rows, int64_t count,
                              int64_t width, double learning_rate, uint64_t step, trm_error *err);

/* Before trmi_update_run, for each segment with factors: float32 or bfloat16, row-major, borrowed
 * until the run is over. NULL: the gradient is dense after all. */
void trmi_update_factors(trmi_update *update, int32_t segment, const void *left, const void *right,
                         trm_dtype dtype);
/* Their product, [segment count], as the update would use it. OpenMP inside. */
void trmi_update_product(const trmi_update *update, int32_t segment, float *out);

/* --- a part of the parameters: optimiser-state sharding ------------------------------------------
 * The work is done in blocks, stretches of one segment of fixed length, in the order of the
 * segments.
 * Their sums of squares are what norms are made of, so slices end where blocks do. */
int64_t trmi_update_block_count(const trmi_update *update);
/* First element of block `index`; the end of the last one for index == count. */
int64_t trmi_update_block_offset(const trmi_update *update, int64_t index);
/* Called in every run between measuring and updating: sums[count] of the blocks that are not `mine`
 * are 0 and are to be filled in. A failure ends the run before anything has changed. */
typedef trm_status (*trmi_update_exchange)(void *context, double *sums, int64_t count,
                                           trm_error *err);
/* From now on only blocks with mine[index] != 0 are measured and updated, and of slots that were
 * not used yet only those take memory. Both borrowed. */
void trmi_update_share(trmi_update *update, const uint8_t *mine, trmi_update_exchange exchange,
                       void *context);

/* Blocks with apart[index] != 0 are of parameters that this rank alone has: their squares, added
 * up, are sums[0] of a call of `total`, which adds those of all ranks. Only the global norm needs
 * it, and only where it clips. `apart` and `context` are borrowed. */
void trmi_update_set_apart(trmi_update *update, const uint8_t *apart, trmi_update_exchange total,
                           void *context);

/* sum = scale * gradient (first) or sum += scale * gradient, `count` elements, OpenMP. */
void trmi_update_accumulate(float *sum, const float *gradient, int64_t count, float scale,
                            bool first);

#endif
