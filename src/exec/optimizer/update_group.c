/* SPDX-License-Identifier: Apache-2.0 */
/* Groups the ids of a step by equal ids, with all threads:
 *
 *      ids [7 2 7 9]  --- by their high bits ----->  [2] [7 7] [9]     a bucket is one thread's, small enough for
 *      group          --a table of hashes------->     0   0 0   0      the first-level cache with all it needs
 *
 * A key is id << 32 | position. Within its bucket it keeps the order of the batch for any number of
 * threads (a counting sort over SLICES fixed slices of the batch), so sums have the same bits.
 * Groups are numbered by bucket, in the order in which their ids first occur.
 */
#include "exec/optimizer/update_state.h"

#include "base/error.h"
#include "base/hash/key_numbers.h"
#include "base/memory.h"

#include <string.h>

enum {
    BUCKETS = TRMI_UPDATE_BUCKETS,
    SLICES = 16,
    ALONE = 2048, /* up to so many keys one thread is faster */
    LEAST_CELLS = 16
};

/* ---- room ------------------------------------------------------------------------------------ */

/* Returns how many cells all buckets need for `count` ids: a power of two of at least twice the
 * keys of each. */
static int64_t cells_of(int64_t count) { return 4 * count + BUCKETS * LEAST_CELLS; }

void trmi_update_rows_free(trmi_update_rows *rows) {
    trmi_free(rows->keys);
    trmi_free(rows->group);
    trmi_free(rows->id);
    trmi_free(rows->cells);
    trmi_free(rows->sums);
    trmi_free(rows->sorted);
    *rows = (trmi_update_rows){0};
}

/* Contract in update_state.h. What was there is lost, unless there is room already. */
trm_status trmi_update_rows_reserve(trmi_update_rows *rows, int64_t count, int64_t width,
                                    trm_error *err) {
    if (count <= rows->capacity && count * width <= rows->sums_capacity) {
        return TRM_OK;
    }
    trmi_update_rows_free(rows);
    rows->keys = trmi_alloc((size_t)count * sizeof *rows->keys);
    rows->group = trmi_alloc((size_t)count * sizeof *rows->group);
    rows->id = trmi_alloc((size_t)count * sizeof *rows->id);
    rows->sorted = trmi_alloc((size_t)(2 * count + 1) * sizeof *rows->sorted);
    rows->cells = trmi_alloc((size_t)cells_of(count) * sizeof *rows->cells);
    rows->sums = trmi_alloc((size_t)(count * width) * sizeof *rows->sums);
    if (rows->keys == NULL || rows->group == NULL || rows->id == NULL || rows->cells == NULL ||
        rows->sums == NULL || rows->sorted == NULL) {
        trmi_update_rows_free(rows);
        return TRMI_NO_MEMORY(err, "to group %lld embedding ids", (long long)count);
    }
    rows->capacity = count;
    rows->sums_capacity = count * width;
    return TRM_OK;
}

/* ---- groups ---------------------------------------------------------------------------------- */

/* One distribution of ids to buckets. `wide`: ids are int64, else int32. */
typedef struct deal {
    const void *ids;
    bool wide;
    int64_t count;
    int shift; /* bucket = id >> shift */
    int64_t at[SLICES][BUCKETS];
} deal;

/* Returns id i. Negative ids become large numbers, which the check against the rows of the table
 * refuses. */
static uint64_t id_of(const deal *d, int64_t i) {
    return d->wide ? (uint64_t)((const int64_t *)d->ids)[i]
                   : (uint64_t)(int64_t)((const int32_t *)d->ids)[i];
}

/* Returns where a slice begins; slices depend on the number of ids only, not on that of threads. */
static int64_t slice_begin(const deal *d, int64_t slice) { return d->count * slice / SLICES; }

/* Counts ids by slice and bucket, then turns the counts into positions: d->at[s][b] is where slice
 * s writes its first key of bucket b, begin[b] where bucket b begins. Returns false if an id is
 * outside the table. */
static bool count_buckets(deal *d, uint64_t table_rows, int64_t *begin) {
    int64_t outside = 0;
    memset(d->at, 0, sizeof d->at);
#pragma omp parallel for schedule(static) reduction(+ : outside) if (d->count > ALONE)
    for (int64_t s = 0; s < SLICES; s++) {
        for (int64_t i = slice_begin(d, s); i < slice_begin(d, s + 1); i++) {
            uint64_t id = id_of(d, i);
            bool inside = id < table_rows;
            outside += !inside;
            d->at[s][inside ? id >> d->shift : 0]++;
        }
    }
    int64_t sum = 0;
    for (int64_t b = 0; b < BUCKETS; b++) {
        begin[b] = sum;
        for (int64_t s = 0; s < SLICES; s++) {
            int64_t here = d->at[s][b];
            d->at[s][b] = sum;
            sum += here;
        }
    }
    begin[BUCKETS] = sum;
    return outside == 0;
}

/* Writes each id as a key to its place in its bucket. */
static void sort_keys(deal *d, uint64_t *keys) {
#pragma omp parallel for schedule(static) if (d->count > ALONE)
    for (int64_t s = 0; s < SLICES; s++) {
        for (int64_t i = slice_begin(d, s); i < slice_begin(d, s + 1); i++) {
            uint64_t id = id_of(d, i);
            keys[d->at[s][id >> d->shift]++] = id << 32 | (uint64_t)i;
        }
    }
}

/* Groups the keys of one bucket. There are at least twice as many cells as keys. */
static void group_bucket(trmi_update_rows *r, int64_t bucket) {
    int64_t begin = r->begin[bucket], count = r->begin[bucket + 1] - begin;
    const uint64_t *keys = r->keys + begin;
    uint32_t *group = r->group + begin, bits = 4;
    while (((int64_t)1 << bits) < 2 * count) {
        bits++;
    }
    trmi_key_numbers numbers = {.cells = r->cells + 4 * begin + bucket * LEAST_CELLS,
                                .mask = ((uint64_t)1 << bits) - 1,
                                .keys = r->id + begin};
    memset(numbers.cells, 0, (numbers.mask + 1) * sizeof *numbers.cells);
    for (int64_t i = 0; i < count; i++) {
        uint64_t id = keys[i] >> 32;
        bool fresh;
        group[i] = trmi_number_key(&numbers, 4, id, id * TRMI_FIBONACCI >> (64 - bits), &fresh);
    }
    r->groups[bucket] = numbers.count;
}

/* Contract in update_state.h. A two-pass sort: ids are counted and moved into BUCKETS ranges of
 * the table, then each bucket is grouped by itself. */
trm_status trmi_update_group(trmi_update_rows *r, const void *ids, trm_dtype id_dtype,
                             int64_t count, int64_t table_rows, trm_error *err) {
    deal d = {.ids = ids, .wide = id_dtype == TRM_INT64, .count = count};
    if (count > (int64_t)1 << 30 || table_rows > (int64_t)1 << 32) {
        return TRMI_FAIL(
            err, TRM_UNSUPPORTED,
            "%lld embedding ids in a step, %lld rows of a table: at most 2^30 and 2^32",
            (long long)count, (long long)table_rows);
    }
    /* Buckets are ranges of ids: all threads write to disjoint rows of the table later. */
    while (((table_rows - 1) >> d.shift) >= BUCKETS) {
        d.shift++;
    }
    if (!count_buckets(&d, (uint64_t)table_rows, r->begin)) {
        return TRMI_FAIL(err, TRM_INVALID, "an embedding id is outside its table of %lld rows",
                         (long long)table_rows);
    }
    sort_keys(&d, r->keys);
#pragma omp parallel for schedule(dynamic) if (count > ALONE)
    for (int64_t b = 0; b < BUCKETS; b++) {
        group_bucket(r, b);
    }
    r->count = count;
    return TRM_OK;
}
