/* Ids of a step in groups of equal ones, by all threads:
 *
 *      ids [7 2 7 9]  --dealt by their high bits-->  [2] [7 7] [9]  --each bucket sorted-->  2 | 7 7 | 9
 *
 * A key is id << 32 | position, so that equal ids keep the batch's order, whatever the threads do. */
#include "exec/update_state.h"

#include "base/error.h"

#include <string.h>

enum {
    BUCKET_BITS = 8,
    BUCKETS = 1 << BUCKET_BITS,
    SLICES = 16,
    DIGITS = 256,
    INSERTION = 32, /* keys that are sorted by insertion */
    ALONE = 2048    /* keys that are not worth waking threads for */
};

typedef struct deal {
    const void *ids;
    bool wide;
    int64_t count;
    int shift; /* bucket = id >> shift */
    int64_t at[SLICES][BUCKETS];
    int64_t begin[BUCKETS + 1]; /* of buckets, in keys */
    int64_t groups[BUCKETS + 1];
} deal;

static uint64_t id_of(const deal *d, int64_t i) {
    return d->wide ? (uint64_t)((const int64_t *)d->ids)[i]
                   : (uint64_t)(int64_t)((const int32_t *)d->ids)[i];
}

static int64_t slice_begin(const deal *d, int64_t slice) { return d->count * slice / SLICES; }

/* False when an id is outside the table. */
static bool count_buckets(deal *d, uint64_t table_rows) {
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
        d->begin[b] = sum;
        for (int64_t s = 0; s < SLICES; s++) {
            int64_t here = d->at[s][b];
            d->at[s][b] = sum;
            sum += here;
        }
    }
    d->begin[BUCKETS] = sum;
    return outside == 0;
}

static void deal_keys(deal *d, uint64_t *keys) {
#pragma omp parallel for schedule(static) if (d->count > ALONE)
    for (int64_t s = 0; s < SLICES; s++) {
        for (int64_t i = slice_begin(d, s); i < slice_begin(d, s + 1); i++) {
            uint64_t id = id_of(d, i);
            keys[d->at[s][id >> d->shift]++] = id << 32 | (uint64_t)i;
        }
    }
}

static void insertion_sort(uint64_t *keys, int64_t count) {
    for (int64_t i = 1; i < count; i++) {
        uint64_t key = keys[i];
        int64_t at = i;
        for (; at > 0 && keys[at - 1] > key; at--) {
            keys[at] = keys[at - 1];
        }
        keys[at] = key;
    }
}

/* The `bits` lowest bits of the ids of a bucket, by digits from the lowest. */
static void radix_sort(uint64_t *keys, uint64_t *spare, int64_t count, int bits) {
    uint64_t *from = keys, *to = spare;
    int passes = (bits + 7) / 8, digit = passes > 0 ? (bits + passes - 1) / passes : 0;
    for (int shift = 32; passes > 0; shift += digit, passes--) {
        int64_t at[DIGITS] = {0}, sum = 0, mask = ((int64_t)1 << digit) - 1;
        for (int64_t i = 0; i < count; i++) {
            at[from[i] >> shift & (uint64_t)mask]++;
        }
        for (int64_t v = 0; v <= mask; v++) {
            int64_t here = at[v];
            at[v] = sum;
            sum += here;
        }
        for (int64_t i = 0; i < count; i++) {
            to[at[from[i] >> shift & (uint64_t)mask]++] = from[i];
        }
        uint64_t *swap = from;
        from = to;
        to = swap;
    }
    if (from != keys) {
        memcpy(keys, from, (size_t)count * sizeof *keys);
    }
}

static bool begins_group(const uint64_t *keys, int64_t i, int64_t begin) {
    return i == begin || keys[i] >> 32 != keys[i - 1] >> 32;
}

trm_status trmi_update_sort(trmi_update_rows *r, const void *ids, trm_dtype id_dtype, int64_t count,
                            int64_t table_rows, trm_error *err) {
    deal d = {.ids = ids, .wide = id_dtype == TRM_INT64, .count = count};
    if (count > UINT32_MAX || table_rows > (int64_t)1 << 32) {
        return TRMI_FAIL(err, TRM_UNSUPPORTED,
                         "%lld embedding ids in a step, %lld rows of a table: at most 2^32 - 1 and 2^32",
                         (long long)count, (long long)table_rows);
    }
    while (((table_rows - 1) >> d.shift) >= BUCKETS) {
        d.shift++;
    }
    if (!count_buckets(&d, (uint64_t)table_rows)) {
        return TRMI_FAIL(err, TRM_INVALID, "an embedding id is outside its table of %lld rows",
                         (long long)table_rows);
    }
    deal_keys(&d, r->keys);
#pragma omp parallel for schedule(dynamic) if (count > ALONE)
    for (int64_t b = 0; b < BUCKETS; b++) {
        int64_t begin = d.begin[b], n = d.begin[b + 1] - begin, groups = 0;
        if (n <= INSERTION) {
            insertion_sort(r->keys + begin, n);
        } else {
            radix_sort(r->keys + begin, r->spare + begin, n, d.shift);
        }
        for (int64_t i = begin; i < begin + n; i++) {
            groups += begins_group(r->keys, i, begin);
        }
        d.groups[b] = groups;
    }
    int64_t groups = 0;
    for (int64_t b = 0; b < BUCKETS; b++) {
        int64_t here = d.groups[b];
        d.groups[b] = groups;
        groups += here;
    }
#pragma omp parallel for schedule(static) if (count > ALONE)
    for (int64_t b = 0; b < BUCKETS; b++) {
        for (int64_t i = d.begin[b], at = d.groups[b]; i < d.begin[b + 1]; i++) {
            if (begins_group(r->keys, i, d.begin[b])) {
                r->start[at++] = i;
            }
        }
    }
    r->start[groups] = count;
    r->count = count;
    r->groups = groups;
    return TRM_OK;
}
