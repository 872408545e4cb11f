/* exec/update_state.h: inside of trmi_update, shared by update.c and update_sparse.c. */
#ifndef TRMI_EXEC_UPDATE_STATE_H
#define TRMI_EXEC_UPDATE_STATE_H

#include "exec/update.h"
#include "exec/update_kernels.h"

enum { TRMI_UPDATE_SLOTS_MAX = 2 };

/* A stretch of one segment: the unit of work and of summation, so that sums have the same bits for
 * any number of threads. */
typedef struct trmi_update_block {
    int64_t offset, count;
    int32_t segment;
} trmi_update_block;

/* The rows of a step for one table, sorted by id: group i of equal ids is order[start[i]] ..
 * order[start[i + 1] - 1], in the order of the batch. */
typedef struct trmi_update_rows {
    int64_t capacity;
    int64_t count, groups;
    uint64_t *keys, *spare; /* id << 32 | position */
    int64_t *start;
    double *squares; /* by GROUPS groups */
    const void *ids; /* what is sorted now; NULL = nothing */
} trmi_update_rows;

struct trmi_update {
    trm_optimizer_options options; /* defaults filled in */
    const trmi_update_kernels *kernels;
    trmi_update_segment *segments;
    trmi_update_rows *rows; /* by segment; used where segment.sparse */
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
    double rows_squares; /* of the prepared rows of sparse segments, for the global norm */
    double norm;         /* global gradient norm of the last run, before clipping */
    double scale;        /* of all gradients */
    float clip;          /* factor of the last run, `scale` included */
};

/* Constants of this step for a segment. */
trmi_rule trmi_update_rule(const trmi_update *update, int32_t segment, double learning_rate,
                           uint64_t step);
trm_status trmi_update_rows_reserve(trmi_update_rows *rows, int64_t count, trm_error *err);
void trmi_update_rows_free(trmi_update_rows *rows);

#endif
