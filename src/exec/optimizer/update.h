/* SPDX-License-Identifier: Apache-2.0 */
/* exec/optimizer/update.h: the optimiser: one fused pass over the contiguous PARAM, GRAD and slot
 * ranges.
 *
 *      PARAM [conv1.weight | bn1.weight | ...]      a segment for each parameter: weight decay,
 *      GRAD  [conv1.weight | bn1.weight | ...]      norms of LARS, table, factors
 *      slot0 [conv1.weight | bn1.weight | ...]      (momentum; Adam: m, v; FTRL: n, z)
 *
 * Where ranks may die in an update, the slots of a step must outlive it: runs then read one memory
 * of the slots and write another one, in turns (trmi_update_take_turns).
 *
 * The optimiser sends no messages. A rank may update a part of the blocks (trmi_update_share); LARS
 * and clipping need norms of whole tensors, which a callback of the caller adds over the ranks. */
#ifndef TRMI_EXEC_UPDATE_H
#define TRMI_EXEC_UPDATE_H

#include "trireme/exec.h"

#include "base/tree.h"

/* One parameter in the ranges. */
typedef struct trmi_update_segment {
    int64_t offset, count; /* float32 elements in the ranges */
    bool decay;            /* weight decay applies */
    bool sparse;           /* no dense gradient: trmi_update_run skips it (trmi_update_sparse) */
    int64_t rows;          /* sparse: ids a step, reserved at creation; 0 = reserved when used */
    int64_t width;         /* sparse: elements of a row; 0 = reserved when used */
    /* embedding table with a dense gradient: elements of a row. Rows whose gradient is all zero are
     * not updated, as with a sparse gradient; 0 = no table */
    int64_t table_width;
    /* gradient in factors: left^T right, of [factors, count / columns] and [factors, columns],
     * at the addresses of trmi_update_factors; 0 = dense gradient */
    int64_t factors;
    int64_t columns;
} trmi_update_segment;

typedef struct trmi_update trmi_update;

/* Makes an optimiser for ranges of `count` float32 and takes its slots, `count` float32 each: zero,
 * or the initial accumulator of ADAGRAD and FTRL.
 *   owns  copies options and segments
 *   errors  INVALID: an impossible option, with its value; NOMEM */
trm_status trmi_update_create(const trm_optimizer_options *options,
                              const trmi_update_segment *segments, int32_t segments_count,
                              int64_t count, trmi_update **out, trm_error *err);
void trmi_update_destroy(trmi_update *update);

/* Return the number of slots; name ("momentum"; "m", "v"; ...) of a slot, NULL if there is none;
 * bytes of all slots. */
int32_t trmi_update_slots(const trmi_update *update);
const char *trmi_update_slot_name(const trmi_update *update, int32_t slot);
int64_t trmi_update_bytes(const trmi_update *update);
/* Returns where a slot of element `at` of the ranges is now, followed by those of the other
 * elements of its segment; NULL if there is no such slot. With turns the address holds until the
 * next run. */
float *trmi_update_slot(const trmi_update *update, int32_t slot, int64_t at);

/* ---- an update ------------------------------------------------------------------------------- */

/* Sets the factor of all gradients, applied before norms and clipping: 1 / loss scale. */
void trmi_update_set_scale(trmi_update *update, double scale);
/* Samples lie in blocks (strict determinism): rows of equal ids are added in the order of the tree,
 * and rows whose gradient is zero do not change, as in a table whose gradient is dense. */
void trmi_update_set_blocks(trmi_update *update, const trmi_tree *tree);

/* Updates all dense segments. `step` is 1 for the first update (bias correction of Adam). OpenMP
 * inside; the same bits for any number of threads.
 *   errors  DIVERGED: a gradient is NaN or infinite; nothing has changed; INVALID: learning rate */
trm_status trmi_update_run(trmi_update *update, float *parameters, const float *gradients,
                           double learning_rate, uint64_t step, trm_error *err);
/* Returns the norm of all gradients in the last run, before clipping. */
double trmi_update_norm(const trmi_update *update);
/* The gradient of an embedding table: rows that the batch looked up. All arrays are borrowed. */
typedef struct trmi_table_gradient {
    int32_t segment;    /* the table */
    trm_dtype id_dtype; /* int32 or int64 */
    const void *ids;    /* [count] rows of the table, also equal ones */
    const float *rows;  /* [count, width] their gradients */
    int64_t count, width;
} trmi_table_gradient;
/* Groups the ids of a table, sums the rows of equal ids and adds their squares to the global norm
 * of the next run. Call it before trmi_update_run. Optional: otherwise trmi_update_sparse does it,
 * too late for the norm.
 *   errors  DIVERGED: a gradient is NaN or infinite; nothing has changed; INVALID: an id */
trm_status trmi_update_prepare(trmi_update *update, const trmi_table_gradient *gradient,
                               trm_error *err);
/* Updates the rows of one embedding table. Gradients of equal ids are summed, then the rule is
 * applied once a row; other rows do not change (lazy momentum and Adam). Clips by the factor of the
 * last run; the trust ratio of LARS is 1. Same bits for any number of threads. */
trm_status trmi_update_sparse(trmi_update *update, float *parameters,
                              const trmi_table_gradient *gradient, double learning_rate,
                              uint64_t step, trm_error *err);

/* Sets where each run finds the factors of a segment's gradient: float32 or bfloat16, row-major,
 * borrowed. */
void trmi_update_factors(trmi_update *update, int32_t segment, const void *left, const void *right,
                         trm_dtype dtype);
/* Writes the product of the factors, [segment count], as the update uses it. OpenMP inside. */
void trmi_update_product(const trmi_update *update, int32_t segment, float *out);
/* Writes the products of all factors to their places in the range `gradients`, where runs read them
 * from now on. */
void trmi_update_multiply(trmi_update *update, float *gradients);
/* Computes sum = scale * gradient (first) or sum += scale * gradient over `count` elements, with
 * OpenMP. */
void trmi_update_accumulate(float *sum, const float *gradient, int64_t count, float scale,
                            bool first);

/* ---- a part of the parameters: slices of the optimiser --------------------------------------- */

/* Returns the number of blocks. A block is the unit of work: a range of fixed length within one
 * segment; blocks are in the order of the segments. Norms are sums over blocks, so slices end where
 * blocks end. */
int64_t trmi_update_block_count(const trmi_update *update);
/* Returns the first element of block `index`; for index == count the end of the last block. */
int64_t trmi_update_block_offset(const trmi_update *update, int64_t index);
/* Returns the block that element `at` of the ranges lies in; -1: it is of no block. *end: the first
 * element after that block. */
int64_t trmi_update_find_block(const trmi_update *update, int64_t at, int64_t *end);
/* Adds sums over the ranks. Called in every run between norms and update: sums[count] has one value
 * for each block, 0 for those of other ranks. A failure ends the run before anything has
 * changed. */
typedef trm_status (*trmi_update_exchange)(void *context, double *sums, int64_t count,
                                           trm_error *err);
/* Measures and updates, from now on, only blocks with mine[index] != 0; unused slots of the other
 * blocks take no memory. `mine` and `context` are borrowed. */
void trmi_update_share(trmi_update *update, const uint8_t *mine, trmi_update_exchange exchange,
                       void *context);

/* Marks the blocks of parameters that only this rank has (own_blocks[index] != 0). Their sum of
 * squares is passed to `total` as sums[0], which adds those of all ranks. Only called if the global
 * norm clips. `own_blocks` and `context` are borrowed. */
void trmi_update_set_own_blocks(trmi_update *update, const uint8_t *own_blocks,
                                trmi_update_exchange total, void *context);

/* Other ranks update other parameters of the network: `total` adds their sums of squares to sums[0]
 * in every run, so that all clip alike and none updates if a gradient anywhere is not finite.
 * `context` is borrowed. */
void trmi_update_join(trmi_update *update, trmi_update_exchange total, void *context);

/* ---- slots that outlive a process ------------------------------------------------------------ */

/* Returns the bytes of the memory that trmi_update_lend_slots takes. */
size_t trmi_update_lent_bytes(const trmi_update *update);
/* Returns the beginning of that memory, where it was lent, or else of the own slots; NULL: none. */
const void *trmi_update_memory(const trmi_update *update);
/* Moves the slots, which no run has changed yet, to zeroed shared memory of the caller, and
 * allocates the pages of the blocks that this rank updates. The memory is borrowed, and has room
 * for the slots twice; the second half is not touched before trmi_update_take_turns. After
 * trmi_update_share. */
void trmi_update_lend_slots(trmi_update *update, void *memory);
/* on: from now on each run reads the slots of dense blocks in one half of the memory that was lent,
 * and writes them to the other, so that the slots before the run stay whole until the next one.
 * Slots of sparse segments and of gradients in factors stay in the first half. Without lent memory
 * nothing changes. false: brings all slots to the first half, where they stay. */
void trmi_update_take_turns(trmi_update *update, bool on);
/* Returns whether the slots that take turns are in the second half now. */
bool trmi_update_in_second(const trmi_update *update);
/* Returns the bytes from the slots of element `at` in the first half to those in the second; 0:
 * they take no turns. */
int64_t trmi_update_turn_bytes(const trmi_update *update, int64_t at);
/* Prepares the slots of blocks that this rank does not update, which the caller will write: gives
 * back the pages that it has written where the slots were before. */
void trmi_update_begin_gather(trmi_update *update);
/* Gives back the pages of the slots of those blocks, which the caller does not read any more. */
void trmi_update_drop_gathered(trmi_update *update);

/* ---- copies of what an update changes -------------------------------------------------------- */

/* Elements of a piece, at most. A piece is a part of a block whose ranges (8 KB of each) fit in the
 * nearest cache, so that a watcher that copies a piece costs little. */
enum { TRMI_UPDATE_PIECE = 2048 };
/* Returns the piece that element `at` of the ranges lies in; -1: it is of no block. Pieces of
 * different blocks have different numbers, in the order of the blocks. *end: the first element
 * after that piece. */
int64_t trmi_update_find_piece(const trmi_update *update, int64_t at, int64_t *end);
/* Where a run copies the parameters of a piece before it changes them. */
typedef struct trmi_update_old {
    float *place; /* a multiple of 64 bytes; NULL: the run copies nothing */
    /* set by the run: so many elements of the piece, the first ones, are in `place`, and no other
     * one has changed, at whichever instruction of the run the process dies */
    _Atomic int64_t *count;
} trmi_update_old;
/* A run calls it before it changes a piece of parameters and slots (trmi_update_find_piece), on the
 * thread that changes the piece. count: elements of the piece, which the run can copy while it
 * changes them; 0: it cannot. The watcher copies what it wants to keep, or returns where the run
 * copies the parameters. NULL: no watcher. `context` is borrowed. */
typedef trmi_update_old trmi_update_watcher(void *context, int64_t piece, int64_t count);
void trmi_update_watch(trmi_update *update, trmi_update_watcher *watcher, void *context);
/* Copies `count` values to memory that is not read soon, past the caches. `to` is a multiple of 64
 * bytes. Another CPU may see later writes of this thread before them; it sees all of them after
 * this thread was interrupted, has ended, or has made a locked operation. */
void trmi_update_copy_aside(float *to, const float *from, int64_t count);

#endif
