/* SPDX-License-Identifier: Apache-2.0 */
/* exec/optimizer/update_state.h: inside of trmi_update, shared by update.c, update_sparse.c,
 * update_group.c and update_factors.c. */
#ifndef TRMI_EXEC_UPDATE_STATE_H
#define TRMI_EXEC_UPDATE_STATE_H

#include "exec/optimizer/update.h"
#include "exec/optimizer/update_kernels.h"

enum { TRMI_UPDATE_SLOTS_MAX = 2 };

/* A stretch of one segment: the unit of work and of summation, so that sums have the same bits for
 * any number of threads. */
typedef struct trmi_update_block {
    int64_t offset, count;
    int32_t segment;
} trmi_update_block;

enum {
    TRMI_UPDATE_GROUPS = 64,  /* that are updated together */
    TRMI_UPDATE_BUCKETS = 256 /* of ids, by their high bits */
};

/* The rows of a step for one table, their ids in buckets: keys[begin[b]] .. keys[begin[b + 1] - 1]
 * are those of bucket b in the order of the batch, of groups[b] different ids: that of group g is
 * id[begin[b] + g], its summed gradient sums[begin[b] + g]. */
typedef struct trmi_update_rows trmi_update_rows;
struct trmi_update_rows {
    int64_t capacity, sums_capacity, count;
    uint64_t *keys;  /* id << 32 | position */
    uint32_t *group; /* by key: in its bucket */
    uint32_t *id;
    uint32_t *cells; /* of the buckets' tables */
    int64_t begin[TRMI_UPDATE_BUCKETS + 1], groups[TRMI_UPDATE_BUCKETS];
    float *sums; /* [count][width], with gaps between buckets */
    double squares[TRMI_UPDATE_BUCKETS];
    /* whose count, groups, keys and so on hold: a table before this one that is read by the same
     * ids is not grouped twice */
    const trmi_update_rows *order;
    /* blocks of samples: the places of a bucket's keys, those of a group side by side */
    uint32_t *sorted;
    const void *ids; /* what is prepared now; NULL = nothing */
    uint64_t sweep;  /* trmi_update.sweeps when it was prepared */
};

/* The gradient of a matrix in factors (update_factors.c). */
typedef struct trmi_update_pair {
    const float *left, *right; /* of this step */
    float *copy;               /* room for both in float32; owned */
} trmi_update_pair;

struct trmi_update {
    trm_optimizer_options options; /* defaults filled in */
    const trmi_update_kernels *kernels;
    trmi_update_segment *segments;
    trmi_update_rows *rows;  /* by segment; used where segment.sparse */
    trmi_update_pair *pairs; /* by segment; used where segment.factors */
    int32_t segments_count, slots_count;
    int64_t count;
    float *slots[TRMI_UPDATE_SLOTS_MAX];
    trmi_update_block *blocks;
    int64_t blocks_count;
    double *block_gradient, *block_weight; /* sums of squares by block, one behind the other */
    double *segment_gradient, *segment_weight;
    const uint8_t *mine; /* by block; NULL = all are */
    trmi_update_exchange exchange;
    void *exchange_context;
    const uint8_t *apart; /* by block: of parameters that are this rank's alone; NULL = none are */
    trmi_update_exchange total;
    void *total_context;
    double rows_squares; /* of the prepared rows of sparse segments, for the global norm */
    uint64_t sweeps;     /* runs so far */
    double norm;         /* global gradient norm of the last run, before clipping */
    double scale;        /* of all gradients */
    trmi_tree tree;      /* of the blocks of samples in sparse gradients; classes 0 = no blocks */
    float clip;          /* factor of the last run, `scale` included */
};

/* update_blocks.c: the sums of a bucket's groups, `sums`, in the order of the blocks of samples; rows
 * of the whole batch, `count` of them. */
void trmi_update_sum_blocks(const trmi_tree *tree, const trmi_update_rows *rows, int64_t bucket,
                            const float *gradients, int64_t width, float *sums);
/* update_factors.c: room for factors of 16 bits. */
trm_status trmi_update_product_reserve(trmi_update *update, int32_t segment, trm_error *err);
void trmi_update_product_free(trmi_update *update, int32_t segment);
/* Sum of squares of the product, from the inner products of the factors' rows: |L^T R|^2 is the sum
 * of (L L^T) * (R R^T). Not finite where an element of the product may not be. */
double trmi_update_product_squares(const trmi_update *update, int32_t segment);
/* The rule on elements [offset, offset + count) of the ranges, all of the segment. */
void trmi_update_product_rule(const trmi_update *update, int32_t segment, const trmi_rule *rule,
                              float *parameters, int64_t offset, int64_t count);

/* Constants of this step for a segment. */
trmi_rule trmi_update_rule(const trmi_update *update, int32_t segment, double learning_rate,
                           uint64_t step);
/* update_group.c: room for `count` ids and rows of `width`. */
trm_status trmi_update_rows_reserve(trmi_update_rows *rows, int64_t count, int64_t width,
                                    trm_error *err);
void trmi_update_rows_free(trmi_update_rows *rows);
/* Fills keys, group, id, begin and groups; the room is there. `rows` of the table.
 *   error  INVALID: an id outside of it */
trm_status trmi_update_group(trmi_update_rows *rows, const void *ids, trm_dtype id_dtype,
                             int64_t count, int64_t table_rows, trm_error *err);

#endif
