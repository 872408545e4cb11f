/* SPDX-License-Identifier: Apache-2.0 */
/* Step 2 of plan/solve/solve.h: bucket elimination. A node is eliminated together with all tables
 * (factors) that contain it; one new table over its neighbours remains.
 *
 *      f(v,a) g(v,b,c) h(v)   --sum, min over v-->   m(a,b,c)
 *
 * The elimination order is min-fill; ties go to the node with the fewest table entries, then to the
 * lowest node. The order is computed before any table is made: if a table would exceed the limit,
 * the call returns UNSUPPORTED and has changed nothing. trmi_solve() calls this once, branch and
 * bound once for each node of its tree. A factor never has more than SCOPE_MAX nodes. */
#include "plan/solve/solve_reduce.h"

#include "base/error.h"
#include "base/memory.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Nodes of a factor and factors of a node, at most. */
enum { SCOPE_MAX = 16, FACTORS_MAX = 64 };

/* A table over one or more nodes. */
typedef struct factor {
    int32_t nodes[SCOPE_MAX], count;
    const float *data; /* row-major in the order of nodes */
    /* memory that this file allocated; NULL: borrowed from trmi_tables */
    float *own;
    /* already part of a bucket */
    bool used;
} factor;

/* The elimination of one node: its factors and its neighbours (scope, ascending). */
typedef struct bucket {
    int32_t node;
    int32_t scope[SCOPE_MAX], scope_count;
    int32_t factors[FACTORS_MAX], factors_count; /* each with `node` as its last */
} bucket;

/* The state of one elimination. */
typedef struct core {
    trmi_solve_work *work;
    trmi_arena memory;
    int32_t *order;    /* [live nodes] elimination order */
    uint8_t *adjacent; /* [nodes][nodes] 1: the nodes share a table, fill-in included */
    factor *factors;
    int64_t factors_count, factors_capacity;
    bucket *buckets;
} core;

static trm_status no_memory(trm_error *err) { return TRMI_NO_MEMORY(err, "to search a plan"); }

/* ---- order ---- */

/* Returns how many pairs of v's neighbours are not adjacent yet: the edges that eliminating v adds.
 * *entries: size of the table that remains, times the states of v; *degree: number of neighbours.
 */
static int64_t count_fill(const core *c, const bool *gone, int32_t v, double *entries,
                          int32_t *degree) {
    int32_t n = c->work->nodes_count;
    const uint8_t *row = c->adjacent + (int64_t)v * n;
    int64_t fill = 0;
    *entries = c->work->states[v];
    *degree = 0;
    for (int32_t a = 0; a < n; a++) {
        if (!row[a] || gone[a]) {
            continue;
        }
        *entries *= c->work->states[a];
        ++*degree;
        for (int32_t b = a + 1; b < n; b++) {
            fill += row[b] && !gone[b] && !c->adjacent[(int64_t)a * n + b];
        }
    }
    return fill;
}

/* Makes all remaining neighbours of v adjacent to each other. */
static void connect_neighbours(core *c, const bool *gone, int32_t v) {
    int32_t n = c->work->nodes_count;
    for (int32_t a = 0; a < n; a++) {
        for (int32_t b = 0; b < n; b++) {
            bool both = c->adjacent[(int64_t)v * n + a] && c->adjacent[(int64_t)v * n + b];
            if (a != b && both && !gone[a] && !gone[b]) {
                c->adjacent[(int64_t)a * n + b] = 1;
            }
        }
    }
}

/* Computes the elimination order into c->order and raises *width to its largest number of
 * neighbours.   errors  UNSUPPORTED if a table would have more than `limit` entries, NOMEM */
static trm_status find_order(core *c, int64_t limit, int32_t *width, trm_error *err) {
    int32_t n = c->work->nodes_count, most = 0;
    bool *gone = trmi_arena_alloc(&c->memory, (size_t)n);
    c->adjacent = trmi_arena_alloc(&c->memory, (size_t)n * (size_t)n);
    c->order = trmi_arena_alloc(&c->memory, (size_t)n * sizeof *c->order);
    if (gone == NULL || c->adjacent == NULL || c->order == NULL) {
        return no_memory(err);
    }
    /* adjacency of the live nodes */
    for (int32_t i = 0; i < n; i++) {
        gone[i] = !c->work->live[i];
    }
    for (int64_t i = 0; i < c->work->slots_count; i++) {
        const trmi_solve_edge *s = &c->work->slots[i];
        if (s->live) {
            c->adjacent[(int64_t)s->a * n + s->b] = c->adjacent[(int64_t)s->b * n + s->a] = 1;
        }
    }
    /* The next node has the least fill-in, then the fewest entries, then the lowest number. */
    for (int32_t k = 0; k < c->work->live_count; k++) {
        int32_t best = -1, best_degree = 0;
        int64_t best_fill = 0;
        double best_entries = 0;
        for (int32_t v = 0; v < n; v++) {
            double entries;
            int32_t degree;
            int64_t fill = gone[v] ? 0 : count_fill(c, gone, v, &entries, &degree);
            if (!gone[v] &&
                (best < 0 || fill < best_fill || (fill == best_fill && entries < best_entries))) {
                best = v;
                best_fill = fill;
                best_entries = entries;
                best_degree = degree;
            }
        }
        /* Make the table of this elimination. */
        if (best_entries > (double)limit || best_degree > SCOPE_MAX - 1) {
            return TRMI_FAIL(err, TRM_UNSUPPORTED, "a table of %.3g entries", best_entries);
        }
        most = best_degree > most ? best_degree : most;
        connect_neighbours(c, gone, best);
        gone[best] = true;
        c->order[k] = best;
    }
    *width = most > *width ? most : *width;
    return TRM_OK;
}

/* ---- factors ---- */

/* Appends a zeroed factor. Pointers to earlier factors become invalid. NULL: no memory. */
static factor *add_factor(core *c) {
    if (!trmi_grow((void **)&c->factors, &c->factors_capacity, c->factors_count + 1,
                   sizeof *c->factors)) {
        return NULL;
    }
    factor *f = &c->factors[c->factors_count++];
    memset(f, 0, sizeof *f);
    return f;
}

/* Makes a factor of each live node's costs and of each live slot's table. */
static trm_status make_first_factors(core *c, trm_error *err) {
    const trmi_solve_work *w = c->work;
    for (int32_t i = 0; i < w->nodes_count; i++) {
        if (w->live[i]) {
            factor *f = add_factor(c);
            if (f == NULL) {
                return no_memory(err);
            }
            *f = (factor){
                .nodes = {i}, .count = 1, .data = trmi_tables_data(w->tables, w->unary[i])};
        }
    }
    for (int64_t i = 0; i < w->slots_count; i++) {
        const trmi_solve_edge *s = &w->slots[i];
        if (s->live) {
            factor *f = add_factor(c);
            if (f == NULL) {
                return no_memory(err);
            }
            *f = (factor){
                .nodes = {s->a, s->b}, .count = 2, .data = trmi_tables_data(w->tables, s->table)};
        }
    }
    return TRM_OK;
}

/* Returns the number of entries of a table over `count` nodes. */
static int64_t entries_of(const core *c, const int32_t *nodes, int32_t count) {
    int64_t entries = 1;
    for (int32_t i = 0; i < count; i++) {
        entries *= c->work->states[nodes[i]];
    }
    return entries;
}

/* Returns the position of a node in a factor; -1 = not in it. */
static int32_t place_of(const factor *f, int32_t node) {
    for (int32_t i = 0; i < f->count; i++) {
        if (f->nodes[i] == node) {
            return i;
        }
    }
    return -1;
}

/* Returns the number of a factor with the entries of factor `index` in which `node` comes last: the
 * factor itself or a transposed copy. Then sum_at() reads contiguous rows. -1 = no memory. */
static int32_t move_last(core *c, int32_t index, int32_t node) {
    int32_t place = place_of(&c->factors[index], node), count = c->factors[index].count;
    if (place == count - 1) {
        return index;
    }
    factor *to = add_factor(c);
    const factor *from = &c->factors[index];
    int64_t entries = entries_of(c, from->nodes, count);
    float *own = to != NULL ? trmi_alloc((size_t)entries * sizeof(float)) : NULL;
    if (own == NULL) {
        return -1;
    }
    *to = *from;
    to->data = to->own = own;
    to->used = true;
    memmove(&to->nodes[place], &to->nodes[place + 1],
            (size_t)(count - 1 - place) * sizeof *to->nodes);
    to->nodes[count - 1] = node;
    /* entries [outer][node][inner] become [outer][inner][node] */
    int64_t inner = entries_of(c, from->nodes + place + 1, count - 1 - place);
    int64_t states = c->work->states[node], outer = entries / (inner * states);
    for (int64_t o = 0; o < outer; o++) {
        for (int64_t s = 0; s < states; s++) {
            const float *row = from->data + (o * states + s) * inner;
            for (int64_t i = 0; i < inner; i++) {
                own[(o * inner + i) * states + s] = row[i];
            }
        }
    }
    return (int32_t)c->factors_count - 1;
}

/* ---- elimination ---- */

/* Inserts the nodes of a factor, except `node`, into the bucket's sorted scope. */
static void add_scope(bucket *b, const factor *f, int32_t node) {
    for (int32_t i = 0; i < f->count; i++) {
        int32_t at = 0;
        while (at < b->scope_count && b->scope[at] < f->nodes[i]) {
            at++;
        }
        if (f->nodes[i] != node && (at == b->scope_count || b->scope[at] != f->nodes[i])) {
            memmove(&b->scope[at + 1], &b->scope[at],
                    (size_t)(b->scope_count - at) * sizeof *b->scope);
            b->scope[at] = f->nodes[i];
            b->scope_count++;
        }
    }
}

/* Collects all unused factors that contain `node` into bucket b.   errors  UNSUPPORTED (too many
 * factors), NOMEM */
static trm_status gather_factors(core *c, bucket *b, int32_t node, trm_error *err) {
    b->node = node;
    for (int64_t i = 0, end = c->factors_count; i < end; i++) {
        if (c->factors[i].used || place_of(&c->factors[i], node) < 0) {
            continue;
        }
        if (b->factors_count == FACTORS_MAX) {
            return TRMI_FAIL(err, TRM_UNSUPPORTED, "more than %d tables at a node", FACTORS_MAX);
        }
        c->factors[i].used = true;
        add_scope(b, &c->factors[i], node);
        int32_t number = move_last(c, (int32_t)i, node);
        if (number < 0) {
            return no_memory(err);
        }
        b->factors[b->factors_count++] = number;
    }
    return TRM_OK;
}

/* Computes sums[j], the sum of all factors of the bucket with its scope in the states of `choice`
 * and its node in state j. */
static void sum_at(const core *c, const bucket *b, const int32_t *choice, float *sums) {
    int32_t states = c->work->states[b->node];
    memset(sums, 0, (size_t)states * sizeof *sums);
    for (int32_t k = 0; k < b->factors_count; k++) {
        const factor *f = &c->factors[b->factors[k]];
        int64_t at = 0;
        for (int32_t i = 0; i < f->count - 1; i++) {
            at = at * c->work->states[f->nodes[i]] + choice[f->nodes[i]];
        }
        const float *row = f->data + at * states;
        for (int32_t j = 0; j < states; j++) {
            sums[j] += row[j];
        }
    }
}

/* Adds the factor m(scope) = min over the node's states of the bucket's sum. `choice` counts
 * through all combinations of the scope's states; its content is lost. */
static trm_status eliminate_bucket(core *c, bucket *b, int32_t *choice, float *sums,
                                   trm_error *err) {
    int32_t states = c->work->states[b->node];
    int64_t entries = entries_of(c, b->scope, b->scope_count);
    factor *made = add_factor(c);
    float *data = made != NULL ? trmi_alloc((size_t)entries * sizeof *data) : NULL;
    if (data == NULL) {
        return no_memory(err);
    }
    made->count = b->scope_count;
    memcpy(made->nodes, b->scope, (size_t)b->scope_count * sizeof *b->scope);
    made->data = made->own = data;
    made->used = b->scope_count == 0;
    /* all combinations of the neighbours' states, from the first on */
    for (int32_t i = 0; i < b->scope_count; i++) {
        choice[b->scope[i]] = 0;
    }
    for (int64_t e = 0; e < entries; e++) {
        sum_at(c, b, choice, sums);
        float least = INFINITY;
        for (int32_t j = 0; j < states; j++) {
            least = sums[j] < least ? sums[j] : least;
        }
        data[e] = least;
        /* Take the next combination of states: the last node of the scope counts fastest. */
        for (int32_t i = b->scope_count - 1; i >= 0; i--) {
            if (++choice[b->scope[i]] < c->work->states[b->scope[i]]) {
                break;
            }
            choice[b->scope[i]] = 0;
        }
    }
    return TRM_OK;
}

/* Eliminates all live nodes in order, then finds their states in the reverse order. */
static trm_status run_elimination(core *c, int64_t limit, int32_t *choice, int32_t *width,
                                  trm_error *err) {
    TRMI_TRY(find_order(c, limit, width, err));
    TRMI_TRY(make_first_factors(c, err));
    int32_t count = c->work->live_count, most = 1;
    for (int32_t i = 0; i < count; i++) {
        most = c->work->states[c->order[i]] > most ? c->work->states[c->order[i]] : most;
    }
    float *sums;
    TRMI_TRY(TRMI_NEW_IN(err, &c->memory, sums, most, "to search a plan"));
    TRMI_TRY(TRMI_NEW_IN(err, &c->memory, c->buckets, count, "to search a plan"));
    for (int32_t i = 0; i < count; i++) {
        TRMI_TRY(gather_factors(c, &c->buckets[i], c->order[i], err));
        TRMI_TRY(eliminate_bucket(c, &c->buckets[i], choice, sums, err));
    }
    /* Go backwards: the scope of each bucket has its states already; ties go to the lowest
     * state. */
    for (int32_t i = count - 1; i >= 0; i--) {
        const bucket *b = &c->buckets[i];
        sum_at(c, b, choice, sums);
        int32_t best = 0;
        for (int32_t j = 1; j < c->work->states[b->node]; j++) {
            best = sums[j] < sums[best] ? j : best;
        }
        choice[b->node] = best;
    }
    return TRM_OK;
}

trm_status trmi_core_eliminate(trmi_solve_work *work, int64_t limit, int32_t *choice,
                               int32_t *width, trm_error *err) {
    core c = {.work = work};
    trm_status status = run_elimination(&c, limit, choice, width, err);
    for (int64_t i = 0; i < c.factors_count; i++) {
        trmi_free(c.factors[i].own);
    }
    free(c.factors);
    trmi_arena_free(&c.memory);
    return status;
}
