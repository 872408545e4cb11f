/* SPDX-License-Identifier: Apache-2.0 */
/* plan/lower/buckets.h: which gradients travel together. Gradients are ranges of one array in the
 * order in which backward finishes them; a bucket is a run of neighbours, sent when its last one is
 * ready.
 *
 *      ready     r0 r1    r2 r3        r4          one channel; a bucket costs alpha + beta * bytes
 *      backward  --+--+----+--+---------+---|
 *      channel         [0 1]  [2 3]      [4]       what lies behind | is exposed
 *
 * The optimal cut, exact in O(n^2):  f(j) = min over i < j of  max(f(i), r_j) + alpha + beta (B_j - B_i).
 * Pure: the same numbers give the same buckets on every rank.
 */
#ifndef TRMI_PLAN_BUCKETS_H
#define TRMI_PLAN_BUCKETS_H

#include "trireme/base.h"

typedef struct trmi_bucket_item {
    int64_t bytes;
    double ready_seconds; /* not decreasing */
    bool skip;            /* stays on its rank: in no bucket, and no bucket spans it */
} trmi_bucket_item;

/* Items [first, first + count). */
typedef struct trmi_bucket {
    int32_t first, count;
    int64_t bytes;
} trmi_bucket;

/* Each function fills out[items_count] (room for the finest cut) and returns the number of buckets.
 *   thread any */

/* The cut that ends first; of equal ones, one with few buckets. *end_seconds (may be NULL) is its
 * f(n).
 * -1 when there is no memory. */
int32_t trmi_buckets_optimal(const trmi_bucket_item *items, int32_t items_count, double alpha,
                             double beta, trmi_bucket *out, double *end_seconds);
/* A bucket ends once it holds `limit_bytes` or more; 0 = every item by itself. */
int32_t trmi_buckets_fixed(const trmi_bucket_item *items, int32_t items_count, int64_t limit_bytes,
                           trmi_bucket *out);
/* MindSpore's all_reduce_fusion_config: [20, 35] makes items 0-19, 20-34 and the rest.
 *   error  INVALID: not ascending, below 1, or beyond the items (their number, as the end of the last, is none)
 */
trm_status trmi_buckets_list(const trmi_bucket_item *items, int32_t items_count,
                             const int32_t *indices, int32_t indices_count, trmi_bucket *out,
                             int32_t *count, trm_error *err);
/* When the last bucket is through, for any cut. */
double trmi_buckets_end(const trmi_bucket_item *items, const trmi_bucket *buckets, int32_t count,
                        double alpha, double beta);

#endif
