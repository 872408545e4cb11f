/* SPDX-License-Identifier: Apache-2.0 */
/* plan/lower/buckets.h: divides gradients into buckets. Gradients are ranges of one array, in the
 * order in which backward finishes them; a bucket is a run of neighbours and is sent when its last
 * gradient is ready.
 *
 *      ready     r0 r1    r2 r3        r4          one channel; a bucket costs alpha + beta * bytes
 *      backward  --+--+----+--+---------+---|
 *      channel         [0 1]  [2 3]      [4]       time after | is exposed
 *
 * The optimal division, exact in O(n^2):  f(j) = min over i < j of  max(f(i), r_j) + alpha + beta
 * (B_j - B_i). Used by the executor for its buckets and by the planner's simulation
 * (plan/search/search_measure.c). The result depends on the arguments only, so every rank has the
 * same buckets. */
#ifndef TRMI_PLAN_BUCKETS_H
#define TRMI_PLAN_BUCKETS_H

#include "trireme/base.h"

/* One gradient. */
typedef struct trmi_bucket_item {
    int64_t bytes;
    double ready_seconds; /* not decreasing */
    /* not reduced: in no bucket, and no bucket contains it in its range */
    bool skip;
} trmi_bucket_item;

/* A bucket: items [first, first + count). */
typedef struct trmi_bucket {
    int32_t first, count;
    int64_t bytes;
} trmi_bucket;

/* Each function writes out[items_count] (room for one bucket per item) and returns the number of
 * buckets. Thread-safe. */

/* Divides so that the last bucket ends first; of equal divisions, one with few buckets.
 * *end_seconds (may be NULL): time at which it ends. Returns -1 without memory. */
int32_t trmi_buckets_optimal(const trmi_bucket_item *items, int32_t items_count, double alpha,
                             double beta, trmi_bucket *out, double *end_seconds);
/* Ends a bucket as soon as it holds `limit_bytes` or more; 0 = every item by itself. */
int32_t trmi_buckets_fixed(const trmi_bucket_item *items, int32_t items_count, int64_t limit_bytes,
                           trmi_bucket *out);
/* Divides at given indices, as MindSpore's all_reduce_fusion_config: [20, 35] makes items 0-19,
 * 20-34 and the rest.
 *   errors  INVALID: indices not ascending, below 1, or beyond the number of items (an index
 *           equal to it is allowed) */
trm_status trmi_buckets_list(const trmi_bucket_item *items, int32_t items_count,
                             const int32_t *indices, int32_t indices_count, trmi_bucket *out,
                             int32_t *count, trm_error *err);
/* Returns the time at which the last bucket is done, for any division. */
double trmi_buckets_end(const trmi_bucket_item *items, const trmi_bucket *buckets, int32_t count,
                        double alpha, double beta);

#endif
