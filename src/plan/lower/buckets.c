/* SPDX-License-Identifier: Apache-2.0 */
/* Divides gradients into buckets, each of which is one allreduce. Items are the gradients in the
 * order in which the backward pass completes them; a bucket is a range of them and can start when
 * its last one is ready and the bucket before it is reduced:
 *
 *     backward   |--g0--|--g1--|--g2--|--g3--|
 *     network                  |-- g0 g1 --|---- g2 g3 ----|
 *                                                          end: what is minimised
 *
 * A bucket of b bytes takes alpha + beta * b seconds: few large buckets start late, many small ones
 * pay alpha often. There are three ways to divide: optimally, by dynamic programming over the ends
 * of the buckets (quadratic in their number, which is a few hundred); as soon as a limit of bytes
 * is reached; and at indices that a user gives. Skipped items (nothing to send) separate buckets.
 * Pure functions. */
#include "plan/lower/buckets.h"

#include "base/error.h"
#include "base/memory.h"

/* Returns the later of two times. */
static double later_time(double a, double b) { return a > b ? a : b; }

/* Contract in buckets.h. The network sends one bucket at a time, in order. */
double trmi_buckets_end(const trmi_bucket_item *items, const trmi_bucket *buckets, int32_t count,
                        double alpha, double beta) {
    double end = 0;
    for (int32_t i = 0; i < count; i++) {
        double ready = items[buckets[i].first + buckets[i].count - 1].ready_seconds;
        end = later_time(end, ready) + alpha + beta * (double)buckets[i].bytes;
    }
    return end;
}

/* Computes finish[j], the earliest time at which the first j items are reduced, and from[j], the
 * first item of the last bucket among them, or j if item j - 1 is skipped. */
static void solve_buckets(const trmi_bucket_item *items, int32_t n, double alpha, double beta,
                          double *finish, int32_t *from) {
    finish[0] = 0;
    for (int32_t j = 1; j <= n; j++) {
        if (items[j - 1].skip) {
            finish[j] = finish[j - 1];
            from[j] = j;
            continue;
        }
        double best = -1, bytes = 0;
        for (int32_t i = j - 1; i >= 0 && !items[i].skip; i--) {
            bytes += (double)items[i].bytes;
            double end = later_time(finish[i], items[j - 1].ready_seconds) + alpha + beta * bytes;
            if (best < 0 || end <= best) {
                best = end;
                from[j] = i;
            }
        }
        finish[j] = best;
    }
}

/* Returns the bytes of a range of items. */
static int64_t bytes_of(const trmi_bucket_item *items, int32_t first, int32_t count) {
    int64_t bytes = 0;
    for (int32_t i = first; i < first + count; i++) {
        bytes += items[i].bytes;
    }
    return bytes;
}

/* Collects the buckets by following from[] from the end, then reverses the list. */
static int32_t collect_buckets(const trmi_bucket_item *items, int32_t n, const int32_t *from,
                               trmi_bucket *out) {
    int32_t count = 0;
    for (int32_t j = n; j > 0;) {
        if (from[j] == j) {
            j--;
            continue;
        }
        int32_t size = j - from[j];
        out[count++] = (trmi_bucket){from[j], size, bytes_of(items, from[j], size)};
        j = from[j];
    }
    for (int32_t i = 0; i < count / 2; i++) {
        trmi_bucket kept = out[i];
        out[i] = out[count - 1 - i];
        out[count - 1 - i] = kept;
    }
    return count;
}

/* Contract in buckets.h. A few hundred gradients need a table of as many places: all divisions are
 * compared in effect. */
int32_t trmi_buckets_optimal(const trmi_bucket_item *items, int32_t items_count, double alpha,
                             double beta, trmi_bucket *out, double *end_seconds) {
    size_t places = (size_t)items_count + 1;
    double *finish = trmi_alloc(places * sizeof *finish);
    int32_t *from = trmi_alloc(places * sizeof *from);
    int32_t count = -1;
    if (finish != NULL && from != NULL) {
        solve_buckets(items, items_count, alpha, beta, finish, from);
        count = collect_buckets(items, items_count, from, out);
        if (end_seconds != NULL) {
            *end_seconds = finish[items_count];
        }
    }
    trmi_free(finish);
    trmi_free(from);
    return count;
}

/* Divides before the items in `ends` or, if ends is NULL, as soon as limit_bytes are reached; and
 * around skipped items. */
static int32_t cut_greedily(const trmi_bucket_item *items, int32_t n, int64_t limit_bytes,
                            const int32_t *ends, int32_t ends_count, trmi_bucket *out) {
    int32_t count = 0, end = 0;
    bool open = false;
    for (int32_t i = 0; i < n; i++) {
        /* a cut before this item closes the open bucket */
        while (end < ends_count && ends[end] <= i) {
            open = open && ends[end] != i;
            end++;
        }
        if (items[i].skip) {
            open = false;
            continue;
        }
        if (!open) {
            out[count++] = (trmi_bucket){.first = i};
            open = true;
        }
        trmi_bucket *b = &out[count - 1];
        b->count++;
        b->bytes += items[i].bytes;
        open = ends != NULL || b->bytes < limit_bytes;
    }
    return count;
}

int32_t trmi_buckets_fixed(const trmi_bucket_item *items, int32_t items_count, int64_t limit_bytes,
                           trmi_bucket *out) {
    return cut_greedily(items, items_count, limit_bytes, NULL, 0, out);
}

/* Contract in buckets.h. Indices come from a user's options. */
trm_status trmi_buckets_list(const trmi_bucket_item *items, int32_t items_count,
                             const int32_t *indices, int32_t indices_count, trmi_bucket *out,
                             int32_t *count, trm_error *err) {
    static const int32_t none[1] = {0};
    /* Check the user's indices. */
    for (int32_t i = 0; i < indices_count; i++) {
        if (indices[i] < (i == 0 ? 1 : indices[i - 1] + 1)) {
            return TRMI_FAIL(
                err, TRM_INVALID,
                "gradient buckets: index %d at place %d; indices start at 1 and ascend", indices[i],
                i);
        }
        if (indices[i] > items_count) {
            return TRMI_FAIL(
                err, TRM_INVALID,
                "gradient buckets: a cut before gradient %d, but there are %d: 1 to %d expected",
                indices[i], items_count, items_count);
        }
    }
    *count =
        cut_greedily(items, items_count, 0, indices_count > 0 ? indices : none, indices_count, out);
    return TRM_OK;
}
