/* The optimiser on the rows of an embedding table that a batch used:
 *
 *      ids  [7 2 7 9]  --stable radix sort-->  2 | 7 7 | 9     groups of equal ids
 *      rows [a b c d]                          b | a+c | d     summed in the batch's order
 *                                              rule once per group, in place in the table
 */
#include "exec/update_state.h"

#include "base/error.h"
#include "base/memory.h"

#include <math.h>
#include <string.h>

enum {
    DIGIT_BITS = 11,
    DIGITS = 1 << DIGIT_BITS,
    COLUMNS = 256, /* a row is worked on in pieces of this width */
    GROUPS = 64,   /* groups per partial sum of squares and per unit of work */
    AHEAD = 8      /* groups to prefetch */
};

void trmi_update_rows_free(trmi_update_rows *rows) {
    trmi_free(rows->keys);
    trmi_free(rows->spare);
    trmi_free(rows->start);
    trmi_free(rows->squares);
    *rows = (trmi_update_rows){0};
}

trm_status trmi_update_rows_reserve(trmi_update_rows *rows, int64_t count, trm_error *err) {
    if (count <= rows->capacity) {
        return TRM_OK;
    }
    trmi_update_rows_free(rows);
    rows->keys = trmi_alloc((size_t)count * sizeof *rows->keys);
    rows->spare = trmi_alloc((size_t)count * sizeof *rows->spare);
    rows->start = trmi_alloc((size_t)(count + 1) * sizeof *rows->start);
    rows->squares = trmi_alloc((size_t)(count / GROUPS + 1) * sizeof *rows->squares);
    if (rows->keys == NULL || rows->spare == NULL || rows->start == NULL || rows->squares == NULL) {
        trmi_update_rows_free(rows);
        return TRMI_FAIL(err, TRM_NOMEM, "no memory to sort %lld embedding ids", (long long)count);
    }
    rows->capacity = count;
    return TRM_OK;
}

static void radix_sort(trmi_update_rows *r, uint64_t largest) {
    for (int shift = 32; largest != 0; shift += DIGIT_BITS, largest >>= DIGIT_BITS) {
        int64_t at[DIGITS] = {0};
        for (int64_t i = 0; i < r->count; i++) {
            at[r->keys[i] >> shift & (DIGITS - 1)]++;
        }
        int64_t sum = 0;
        for (int d = 0; d < DIGITS; d++) {
            int64_t here = at[d];
            at[d] = sum;
            sum += here;
        }
        for (int64_t i = 0; i < r->count; i++) {
            r->spare[at[r->keys[i] >> shift & (DIGITS - 1)]++] = r->keys[i];
        }
        uint64_t *sorted = r->spare;
        r->spare = r->keys;
        r->keys = sorted;
    }
}

static trm_status sort_ids(trmi_update_rows *r, const void *ids, trm_dtype id_dtype, int64_t count,
                           trm_error *err) {
    if (count > UINT32_MAX) {
        return TRMI_FAIL(err, TRM_UNSUPPORTED, "%lld embedding ids in a step, at most %lld",
                         (long long)count, (long long)UINT32_MAX);
    }
    TRMI_TRY(trmi_update_rows_reserve(r, count, err));
    uint64_t largest = 0;
    for (int64_t i = 0; i < count; i++) {
        uint64_t id = id_dtype == TRM_INT64 ? (uint64_t)((const int64_t *)ids)[i]
                                            : (uint64_t)((const int32_t *)ids)[i];
        largest = id > largest ? id : largest;
        r->keys[i] = id << 32 | (uint64_t)i;
    }
    if (largest > UINT32_MAX) {
        return TRMI_FAIL(err, TRM_UNSUPPORTED, "embedding id %lld: tables have at most %lld rows",
                         (long long)largest, (long long)UINT32_MAX);
    }
    r->count = count;
    r->groups = 0;
    radix_sort(r, largest);
    for (int64_t i = 0; i < count; i++) {
        if (i == 0 || r->keys[i] >> 32 != r->keys[i - 1] >> 32) {
            r->start[r->groups++] = i;
        }
    }
    r->start[r->groups] = count;
    r->ids = ids;
    return TRM_OK;
}

/* Columns [column, column + n) of a group's summed gradient: the row itself, or `sum`. */
static const float *group_gradient(const trmi_update_rows *r, int64_t group, const float *rows,
                                   int64_t width, int64_t column, int64_t n, float *sum) {
    int64_t begin = r->start[group], end = r->start[group + 1];
    const float *first = rows + (int64_t)(uint32_t)r->keys[begin] * width + column;
    if (end - begin == 1) {
        return first;
    }
    memcpy(sum, first, (size_t)n * sizeof *sum);
    for (int64_t i = begin + 1; i < end; i++) {
        const float *row = rows + (int64_t)(uint32_t)r->keys[i] * width + column;
        for (int64_t j = 0; j < n; j++) {
            sum[j] += row[j];
        }
    }
    return sum;
}

static double chunk_squares(const trmi_update *u, const trmi_update_rows *r, int64_t chunk,
                            const float *rows, int64_t width) {
    float sum[COLUMNS];
    double squares = 0;
    int64_t end = (chunk + 1) * GROUPS < r->groups ? (chunk + 1) * GROUPS : r->groups;
    for (int64_t group = chunk * GROUPS; group < end; group++) {
        for (int64_t column = 0; column < width; column += COLUMNS) {
            int64_t n = width - column < COLUMNS ? width - column : COLUMNS;
            const float *g = group_gradient(r, group, rows, width, column, n, sum);
            float part = u->kernels->squares(g, n);
            if (isfinite(part)) {
                squares += (double)part;
                continue;
            }
            for (int64_t j = 0; j < n; j++) { /* too large for float, or not finite */
                squares += (double)g[j] * (double)g[j];
            }
        }
    }
    return squares;
}

trm_status trmi_update_prepare(trmi_update *u, int32_t segment, const void *ids, trm_dtype id_dtype,
                               const float *rows, int64_t count, int64_t width, trm_error *err) {
    trmi_update_rows *r = &u->rows[segment];
    r->ids = NULL;
    TRMI_TRY(sort_ids(r, ids, id_dtype, count, err));
    int64_t chunks = (r->groups + GROUPS - 1) / GROUPS;
#pragma omp parallel for schedule(static)
    for (int64_t chunk = 0; chunk < chunks; chunk++) {
        r->squares[chunk] = chunk_squares(u, r, chunk, rows, width);
    }
    double squares = 0;
    for (int64_t chunk = 0; chunk < chunks; chunk++) {
        squares += r->squares[chunk];
    }
    if (!isfinite(squares)) {
        r->ids = NULL;
        u->rows_squares = 0;
        return TRMI_FAIL(err, TRM_DIVERGED, "a gradient of table segment %d is NaN or infinite",
                         segment);
    }
    u->rows_squares += squares;
    return TRM_OK;
}

static void update_chunk(const trmi_update *u, const trmi_rule *rule, const trmi_update_rows *r,
                         int64_t chunk, float *parameters, int64_t offset, const float *rows,
                         int64_t width) {
    float sum[COLUMNS];
    trmi_rule_pass pass = u->kernels->rule[u->options.kind];
    int64_t end = (chunk + 1) * GROUPS < r->groups ? (chunk + 1) * GROUPS : r->groups;
    for (int64_t group = chunk * GROUPS; group < end; group++) {
        if (group + AHEAD < end) {
            int64_t next = offset + (int64_t)(r->keys[r->start[group + AHEAD]] >> 32) * width;
            __builtin_prefetch(parameters + next, 1);
            for (int32_t s = 0; s < u->slots_count; s++) {
                __builtin_prefetch(u->slots[s] + next, 1);
            }
        }
        int64_t row = offset + (int64_t)(r->keys[r->start[group]] >> 32) * width;
        for (int64_t column = 0; column < width; column += COLUMNS) {
            int64_t n = width - column < COLUMNS ? width - column : COLUMNS, at = row + column;
            const float *g = group_gradient(r, group, rows, width, column, n, sum);
            pass(rule, parameters + at, g, u->slots[0] == NULL ? NULL : u->slots[0] + at,
                 u->slots[1] == NULL ? NULL : u->slots[1] + at, n);
        }
    }
}

trm_status trmi_update_sparse(trmi_update *u, float *parameters, int32_t segment, const void *ids,
                              trm_dtype id_dtype, const float *rows, int64_t count, int64_t width,
                              double learning_rate, uint64_t step, trm_error *err) {
    trmi_update_rows *r = &u->rows[segment];
    if (r->ids != ids || r->count != count) {
        TRMI_TRY(trmi_update_prepare(u, segment, ids, id_dtype, rows, count, width, err));
        u->rows_squares = 0; /* too late for this step's norm */
    }
    r->ids = NULL;
    if (u->options.kind == TRM_FTRL && learning_rate == 0) {
        return TRM_OK;
    }
    trmi_rule rule = trmi_update_rule(u, segment, learning_rate, step);
    int64_t offset = u->segments[segment].offset;
#pragma omp parallel for schedule(static)
    for (int64_t chunk = 0; chunk < (r->groups + GROUPS - 1) / GROUPS; chunk++) {
        update_chunk(u, &rule, r, chunk, parameters, offset, rows, width);
    }
    return TRM_OK;
}
