/* SPDX-License-Identifier: Apache-2.0 */
/* exec/optimizer/update_state.h: inside of trmi_update, shared by update.c, update_slots.c,
 * update_sparse.c, update_group.c, update_blocks.c and update_factors.c.
 *
 *      ranges of dense parameters   blocks: the unit of work, and of sums of squares
 *      rows of tables               buckets of ids -> groups of equal ids -> summed gradients
 *      matrices in factors          left^T right, multiplied in tiles while the rule is applied
 *
 * Blocks, buckets and groups depend on sizes and ids only, so that sums have the same bits for any
 * number of threads. */
#ifndef TRMI_EXEC_UPDATE_STATE_H
#define TRMI_EXEC_UPDATE_STATE_H

#include "exec/optimizer/update.h"
#include "exec/optimizer/update_kernels.h"

/* A range of elements of one segment: the unit of work and of summation, so that sums have the same
 * bits for any number of threads. */
typedef struct trmi_update_block {
    int64_t offset, count;
    int32_t segment;
} trmi_update_block;

enum {
    TRMI_UPDATE_GROUPS = 64,  /* groups that are updated together */
    TRMI_UPDATE_BUCKETS = 256 /* buckets of ids, by their high bits */
};

/* The rows of one table in a step, by buckets of ids. Bucket b has keys[begin[b]] ..
 * keys[begin[b + 1] - 1], in the order of the batch, with groups[b] different ids. Group g of
 * bucket b has id[begin[b] + g] and the summed gradient sums[begin[b] + g]. */
typedef struct trmi_update_rows trmi_update_rows;
struct trmi_update_rows {
    int64_t capacity, sums_capacity, count;
    uint64_t *keys;  /* id << 32 | position */
    uint32_t *group; /* group of each key, in its bucket */
    uint32_t *id;
    uint32_t *cells; /* hash tables of the buckets */
    int64_t begin[TRMI_UPDATE_BUCKETS + 1], groups[TRMI_UPDATE_BUCKETS];
    float *sums; /* [count][width], with gaps between buckets */
    double squares[TRMI_UPDATE_BUCKETS];
    /* whose keys, groups and counts are valid: this, or an earlier table with the same ids, so that
     * they are grouped once */
    const trmi_update_rows *order;
    /* blocks of samples: the places of a bucket's keys, those of a group side by side */
    uint32_t *sorted;
    const void *ids; /* ids that are prepared now; NULL = none */
    uint64_t sweep;  /* trmi_update.sweeps at that time */
};

/* The gradient of a matrix in factors (update_factors.c). */
typedef struct trmi_update_pair {
    const void *given_left, *given_right; /* factors of `dtype` */
    trm_dtype dtype;
    const float *left, *right; /* factors in float32: those given, or in `copy` */
    float *copy;               /* memory for both in float32; owned */
} trmi_update_pair;

/* One optimiser: the rule, its segments of the range of parameters, their slots, and what the last
 * run has found. Owned arrays are those that trmi_update_create has made; `mine`, `own_blocks` and
 * the contexts are the caller's. */
struct trmi_update {
    trm_optimizer_options options;      /* defaults filled in */
    const trmi_update_kernels *kernels; /* for this CPU */
    trmi_update_segment *segments;      /* ranges of parameters, ascending */
    trmi_update_rows *rows;             /* by segment; used where segment.sparse */
    trmi_update_pair *pairs;            /* by segment; used where segment.factors */
    bool multiplied;                    /* products of all factors are in the range of gradients */
    int32_t segments_count, slots_count;
    int64_t count; /* elements of the range of parameters */
    float *slots[TRMI_SLOTS_MAX];
    bool borrows_slots; /* the slots are memory of the caller */
    /* with takes_turns: where blocks have their slots after every second run; NULL where the caller
     * has lent no memory */
    float *seconds[TRMI_SLOTS_MAX];
    bool takes_turns;             /* trmi_update_is_in_turns tells which */
    bool in_second;               /* the slots of these blocks are in `seconds` now */
    bool gathered[2];             /* slots of other ranks may be in `slots`; in `seconds` */
    trmi_update_watcher *watcher; /* NULL: none */
    void *watcher_context;
    trmi_update_block *blocks; /* the segments in pieces: one thread's work */
    int64_t blocks_count;
    double *block_gradient, *block_weight; /* sums of squares by block, in one array */
    double *segment_gradient, *segment_weight;
    const uint8_t *mine; /* by block: this rank updates it; NULL = all */
    trmi_update_exchange exchange;
    void *exchange_context;
    const uint8_t *own_blocks; /* by block: only this rank has the parameter; NULL = none */
    trmi_update_exchange total;
    void *total_context;
    trmi_update_exchange joined; /* trmi_update_join; NULL = none */
    void *joined_context;
    double rows_squares; /* sum of squares of prepared sparse rows, for the global norm */
    uint64_t sweeps;     /* runs so far */
    double norm;         /* global gradient norm of the last run, before clipping */
    double scale;        /* factor of all gradients: 1 / loss scale */
    trmi_tree tree;      /* of the blocks of samples in sparse gradients; classes 0 = no blocks */
    float clip;          /* factor of gradients in the last run: clipping times `scale` */
};

/* Returns whether this rank updates the block; without sharing it updates all. */
static inline bool trmi_update_is_mine(const trmi_update *update, int64_t block) {
    return update->mine == NULL || update->mine[block] != 0;
}

/* Returns whether the slots of a segment take turns: those that only the pass over blocks changes.
 * Rows of sparse tables change one by one, and the loops for gradients in factors update in
 * place. */
static inline bool trmi_update_is_in_turns(const trmi_update *update, int32_t segment) {
    const trmi_update_segment *s = &update->segments[segment];
    return update->takes_turns && !s->sparse && s->factors == 0;
}

/* Returns where the slots begin in the second half of the lent memory, or in the first. */
static inline float *const *trmi_update_half(const trmi_update *update, bool second) {
    return second ? update->seconds : update->slots;
}

/* update_slots.c: takes the memory of the slots, which begins as zero; accumulators begin with
 * their option. */
trm_status trmi_update_make_slots(trmi_update *update, trm_error *err);
/* Returns where a run reads and writes the slots of elements from `offset` on, which take turns. */
trmi_slot_turn trmi_update_find_turn(const trmi_update *update, int64_t offset);
/* update_blocks.c: computes `sums`, those of a bucket's groups, in the order of the blocks of
 * samples; rows of the whole batch, `count` of them. */
void trmi_update_sum_blocks(const trmi_tree *tree, const trmi_update_rows *rows, int64_t bucket,
                            const float *gradients, int64_t width, float *sums);
/* update_factors.c: reserves, or frees, memory for float32 copies of a segment's factors. */
trm_status trmi_update_product_reserve(trmi_update *update, int32_t segment, trm_error *err);
void trmi_update_product_free(trmi_update *update, int32_t segment);
/* Converts the given factors of a segment to float32, if they are in 16 bits. */
void trmi_update_load_factors(const trmi_update *update, int32_t segment);
/* Returns whether a run reads the gradient of a segment from its factors. */
static inline bool trmi_update_in_factors(const trmi_update *update, int32_t segment) {
    return update->segments[segment].factors > 0 && !update->multiplied;
}
/* Returns the sum of squares of the product, from inner products of the factors' rows: |L^T R|^2 is
 * the sum of (L L^T) * (R R^T). Infinite if an element of the product may overflow. */
double trmi_update_product_squares(const trmi_update *update, int32_t segment);
/* Applies the rule to elements [offset, offset + count) of the ranges, which lie in the segment. */
void trmi_update_product_rule(const trmi_update *update, int32_t segment, const trmi_rule *rule,
                              float *parameters, int64_t offset, int64_t count);

/* update.c: returns the sum of squares of an array. Kernels sum in float32; if that overflows,
 * the sum is computed again in double, so that only values that are not finite give an infinite
 * norm. */
double trmi_update_squares(const trmi_update_kernels *kernels, const float *x, int64_t count);
/* Returns the rule's constants of this step for a segment. */
trmi_rule trmi_update_rule(const trmi_update *update, int32_t segment, double learning_rate,
                           uint64_t step);
/* update_group.c: reserves memory for `count` ids and rows of `width`. */
trm_status trmi_update_rows_reserve(trmi_update_rows *rows, int64_t count, int64_t width,
                                    trm_error *err);
void trmi_update_rows_free(trmi_update_rows *rows);
/* Groups `count` ids: sets keys, group, id, begin and groups. Needs trmi_update_rows_reserve
 * before.
 *   errors  INVALID: an id outside of it */
trm_status trmi_update_group(trmi_update_rows *rows, const void *ids, trm_dtype id_dtype,
                             int64_t count, int64_t table_rows, trm_error *err);

#endif
