/* SPDX-License-Identifier: Apache-2.0 */
/* The optimiser on the rows of an embedding table that a batch used:
 *
 *      ids  [7 2 7 9]  --groups-->  2 | 7 7 | 9      groups of equal ids, by bucket (update_group.c)
 *      rows [a b c d]               b | a+c | d      summed in the batch's order
 *
 * The rule runs over 64 groups at a time: over each row, or, where rows are narrow, over all of
 * them gathered in one array. trmi_update_prepare sums and measures before the dense pass;
 * trmi_update_sparse applies the rule after it. A bucket is one thread's, so no row has two
 * writers.
 */
#include "exec/optimizer/update_state.h"

#include "base/error.h"

#include <math.h>
#include <string.h>

enum {
    GROUPS = TRMI_UPDATE_GROUPS,
    BUCKETS = TRMI_UPDATE_BUCKETS,
    NARROW = 16, /* rows with fewer elements are gathered */
    FIRST = 16,  /* rows that kernels do not prefetch, at the beginning of a chunk */
    ALONE = 512  /* up to so many ids one thread is faster */
};

/* ---- before the update: sums and squares ----------------------------------------------------- */

/* Returns the groups of an earlier table that was read with the same ids in this step; NULL: none.
 * Such tables (two embeddings of one feature) share one grouping. */
static const trmi_update_rows *same_order(const trmi_update *u, const trmi_table_gradient *g,
                                          int64_t table_rows) {
    for (int32_t i = 0; i < g->segment; i++) {
        const trmi_update_rows *r = &u->rows[i];
        if (r->ids == g->ids && r->sweep == u->sweeps && r->order->count == g->count &&
            g->width > 0 && u->segments[i].width > 0 &&
            u->segments[i].count / u->segments[i].width == table_rows) {
            return r->order;
        }
    }
    return NULL;
}

/* Contract in update.h. Sums the gradients of equal ids, so that the update visits each row
 * once. The bucket's sums, and the order in which squares of buckets are added, do not depend on
 * the number of threads. */
trm_status trmi_update_prepare(trmi_update *u, const trmi_table_gradient *g, trm_error *err) {
    trmi_update_rows *r = &u->rows[g->segment];
    int64_t width = g->width, table_rows = u->segments[g->segment].count / width;
    r->ids = NULL;
    TRMI_TRY(trmi_update_rows_reserve(r, g->count, width, err));
    /* Group the ids, unless an earlier table of this step has the same. */
    r->order = same_order(u, g, table_rows);
    if (r->order == NULL) {
        TRMI_TRY(trmi_update_group(r, g->ids, g->id_dtype, g->count, table_rows, err));
        r->order = r;
    }
    const trmi_update_rows *order = r->order;
#pragma omp parallel for schedule(dynamic, 4) if (g->count > ALONE)
    for (int64_t b = 0; b < BUCKETS; b++) {
        int64_t begin = order->begin[b];
        float *sums = r->sums + begin * width;
        if (u->tree.classes > 0) {
            trmi_update_sum_blocks(&u->tree, order, b, g->rows, width, sums);
        } else {
            u->kernels->sum_rows(g->rows, order->keys + begin, order->group + begin,
                                 order->begin[b + 1] - begin, width, sums);
        }
        r->squares[b] = trmi_update_squares(u->kernels, sums, order->groups[b] * width);
    }
    /* Add the squares in the order of buckets, and check them before any row is updated. */
    double squares = 0;
    for (int64_t b = 0; b < BUCKETS; b++) {
        squares += r->squares[b];
    }
    if (!isfinite(squares)) {
        u->rows_squares = 0;
        return TRMI_FAIL(err, TRM_DIVERGED, "a gradient of table segment %d is NaN or infinite",
                         g->segment);
    }
    r->ids = g->ids;
    r->sweep = u->sweeps;
    u->rows_squares += squares;
    return TRM_OK;
}

/* ---- the update ------------------------------------------------------------------------------ */

/* The update of one table, the same for all its buckets. */
typedef struct table_update {
    const trmi_update *u;
    const trmi_rule *rule;
    float *parameters;     /* of all segments */
    int64_t offset, width; /* of the table among them; elements of a row */
} table_update;

/* Copies narrow rows, which begin at at[i] of `from`, side by side to `block`; scatter copies them
 * back. */
static void gather_rows(const float *from, const int64_t *at, int64_t rows, int64_t width,
                        float *block) {
    for (int64_t i = 0; i < rows; i++) {
        for (int64_t j = 0; j < width; j++) {
            block[i * width + j] = from[at[i] + j];
        }
    }
}
/* Writes gathered rows back to their places. */
static void scatter_rows(const float *block, const int64_t *at, int64_t rows, int64_t width,
                         float *to) {
    for (int64_t i = 0; i < rows; i++) {
        for (int64_t j = 0; j < width; j++) {
            to[at[i] + j] = block[i * width + j];
        }
    }
}

/* Updates rows that are shorter than a vector: gathers parameters and slots, so that the rule runs
 * over one long array, and scatters the results. */
static void update_narrow(const table_update *t, const float *sums, const int64_t *at,
                          int64_t rows) {
    const trmi_update *u = t->u;
    int64_t width = t->width;
    float w[GROUPS * NARROW], slot[TRMI_SLOTS_MAX][GROUPS * NARROW];
    gather_rows(t->parameters, at, rows, width, w);
    for (int32_t s = 0; s < u->slots_count; s++) {
        gather_rows(u->slots[s], at, rows, width, slot[s]);
    }
    u->kernels->rule[u->options.kind](t->rule, w, sums, slot[0], slot[1], rows * width);
    scatter_rows(w, at, rows, width, t->parameters);
    for (int32_t s = 0; s < u->slots_count; s++) {
        scatter_rows(slot[s], at, rows, width, u->slots[s]);
    }
}

/* Updates up to GROUPS different rows, with their summed gradients. Prefetches first: the rows are
 * scattered over a table that is larger than the caches. */
static void update_groups(const table_update *t, const float *sums, const uint32_t *id,
                          int64_t rows) {
    const trmi_update *u = t->u;
    int64_t at[GROUPS];
    for (int64_t i = 0; i < rows; i++) {
        at[i] = t->offset + (int64_t)id[i] * t->width;
        if (t->width < NARROW || i < FIRST) {
            __builtin_prefetch(t->parameters + at[i], 1);
            for (int32_t s = 0; s < u->slots_count; s++) {
                __builtin_prefetch(u->slots[s] + at[i], 1);
            }
        }
    }
    if (t->width < NARROW) {
        update_narrow(t, sums, at, rows);
    } else {
        u->kernels->rows[u->options.kind](t->rule, t->parameters, sums, u->slots[0], u->slots[1],
                                          at, rows, t->width);
    }
}

/* Returns whether the sum of a row is zero. */
static bool is_zero(const float *sum, int64_t width) {
    for (int64_t i = 0; i < width; i++) {
        if (sum[i] != 0) {
            return false;
        }
    }
    return true;
}

/* Returns how many groups from `first` on are updated together; 0: group `first` has a row that is
 * not updated. With blocks of samples these are the rows whose gradient is zero: with another
 * number of ranks their sums lie in a dense table, which does not record which rows were looked
 * up. */
static int64_t run_of_groups(const trmi_update *u, const float *sums, int64_t first, int64_t groups,
                             int64_t width) {
    int64_t most = groups - first < GROUPS ? groups - first : GROUPS, rows = 0;
    while (rows < most && !(u->tree.classes > 0 && is_zero(sums + (first + rows) * width, width))) {
        rows++;
    }
    return rows;
}

/* Updates all rows of one bucket. */
static void update_bucket(const table_update *t, const trmi_update_rows *r, int64_t bucket) {
    int64_t width = t->width;
    int64_t begin = r->order->begin[bucket], groups = r->order->groups[bucket];
    for (int64_t first = 0; first < groups;) {
        int64_t rows = run_of_groups(t->u, r->sums + begin * width, first, groups, width);
        if (rows > 0) {
            update_groups(t, r->sums + (begin + first) * width, r->order->id + begin + first, rows);
        }
        first += rows > 0 ? rows : 1;
    }
}

/* Contract in update.h. Sums that trmi_update_prepare made for the same ids are used. */
trm_status trmi_update_sparse(trmi_update *u, float *parameters, const trmi_table_gradient *g,
                              double learning_rate, uint64_t step, trm_error *err) {
    trmi_update_rows *r = &u->rows[g->segment];
    if (r->ids != g->ids || r->order->count != g->count) {
        TRMI_TRY(trmi_update_prepare(u, g, err));
        u->rows_squares = 0; /* too late for this step's norm */
    }
    /* The sums are used once; the next step prepares again. */
    r->ids = NULL;
    if (u->options.kind == TRM_FTRL && learning_rate == 0) {
        return TRM_OK;
    }
    const trmi_rule rule = trmi_update_rule(u, g->segment, learning_rate, step);
    const table_update t = {.u = u,
                            .rule = &rule,
                            .parameters = parameters,
                            .offset = u->segments[g->segment].offset,
                            .width = g->width};
#pragma omp parallel for schedule(dynamic, 4) if (g->count > ALONE)
    for (int64_t b = 0; b < BUCKETS; b++) {
        update_bucket(&t, r, b);
    }
    return TRM_OK;
}
