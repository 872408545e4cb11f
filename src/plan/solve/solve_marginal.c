/* SPDX-License-Identifier: Apache-2.0 */
/* Marginals: the eliminations of step 1 walked backwards, from the last eliminated node to the
 * first. D is a lower bound of the rest of the graph.
 *
 *      D[i][k] = M[i][k] - C[i][k]              M of the remaining pair, C what was added for node j
 *      M[i][j] = A[i][j] + u[j] + min_k (B[j][k] + D[i][k])
 *      M[j][k] = B[j][k] + u[j] + min_i (A[i][j] + D[i][k])          m[j] = min_k M[j][k]
 *
 * `rest` holds these D by step: the least cost of everything outside the subgraph that the step has
 * folded. solve_lists.c prunes its lists with it. Requires a graph of which no node is left. */
#include "plan/solve/solve_reduce.h"

#include "base/error.h"
#include "base/memory.h"

#include <math.h>
#include <string.h>

/* State of the backward walk. */
typedef struct backward_walk {
    const trmi_solve_work *work;
    float *const *marginal;
    float **pair; /* [slots][a][b] marginals M of pairs of nodes, NULL = not known yet */
    float **rest; /* [steps] results for the caller, or NULL */
} backward_walk;

static trm_status no_memory(trm_error *err) { return TRMI_NO_MEMORY(err, "to price other plans"); }

/* Allocates `count` floats; NULL = no memory. */
static float *alloc_floats(int64_t count) { return trmi_alloc((size_t)count * sizeof(float)); }

/* Returns a new transpose of data[rows][columns]; NULL = no memory. */
static float *new_transpose(const float *data, int32_t rows, int32_t columns) {
    float *out = alloc_floats((int64_t)rows * columns);
    for (int32_t i = 0; out != NULL && i < rows; i++) {
        for (int32_t k = 0; k < columns; k++) {
            out[(int64_t)k * rows + i] = data[(int64_t)i * columns + k];
        }
    }
    return out;
}

/* Stores `table` [row][column] as the marginals of a slot, transposed if `row` is not its first
 * node. Takes ownership of the table. */
static trm_status keep_marginals(backward_walk *b, int32_t slot, int32_t row, float *table,
                                 int32_t rows, int32_t columns, trm_error *err) {
    trmi_free(b->pair[slot]);
    b->pair[slot] = table;
    if (b->work->slots[slot].a != row) {
        b->pair[slot] = new_transpose(table, rows, columns);
        trmi_free(table);
    }
    return b->pair[slot] != NULL ? TRM_OK : no_memory(err);
}

/* Undoes an elimination with one neighbour: marginals of the node and of the pair from those of the
 * neighbour. */
static trm_status undo_one_neighbour(backward_walk *b, const trmi_reduced *step, trm_error *err) {
    const trmi_solve_work *w = b->work;
    int32_t i_states = w->states[step->near[0]], j_states = w->states[step->node];
    const float *a = trmi_tables_data(w->tables, step->table[0]),
                *u = trmi_tables_data(w->tables, step->unary);
    float *pair = alloc_floats((int64_t)i_states * j_states), *own = b->marginal[step->node];
    float *rest = b->rest != NULL ? alloc_floats(i_states) : NULL;
    if (pair == NULL || (b->rest != NULL && rest == NULL)) {
        trmi_free(pair);
        return no_memory(err);
    }
    if (b->rest != NULL) {
        b->rest[step - w->steps] = rest;
    }
    for (int32_t j = 0; j < j_states; j++) {
        own[j] = INFINITY;
    }
    /* replace the folded minimum by each entry that it was the minimum of */
    for (int32_t i = 0; i < i_states; i++) {
        const float *row = a + (int64_t)i * j_states;
        float least = INFINITY, total = b->marginal[step->near[0]][i];
        for (int32_t j = 0; j < j_states; j++) {
            least = row[j] + u[j] < least ? row[j] + u[j] : least;
        }
        if (rest != NULL) {
            rest[i] = least < INFINITY ? total - least : INFINITY;
        }
        for (int32_t j = 0; j < j_states; j++) {
            float cost = least < INFINITY ? total - least + row[j] + u[j] : INFINITY;
            pair[(int64_t)i * j_states + j] = cost;
            own[j] = cost < own[j] ? cost : own[j];
        }
    }
    return keep_marginals(b, step->slot[0], step->near[0], pair, i_states, j_states, err);
}

/* Computes the marginals of both pairs of an eliminated node, m0[i][j] and m1[j][k], and of the
 * node itself, from D [i][k]. b_t, a_t: transposes of its two tables. */
static void compute_pair_marginals(const backward_walk *b, const trmi_reduced *step, const float *d,
                                   const float *b_t, const float *a_t, float *m0, float *m1) {
    const trmi_solve_work *w = b->work;
    int32_t is = w->states[step->near[0]], js = w->states[step->node],
            ks = w->states[step->near[1]];
    const float *a = trmi_tables_data(w->tables, step->table[0]),
                *u = trmi_tables_data(w->tables, step->unary);
    const float *right = trmi_tables_data(w->tables, step->table[1]);
    float *own = b->marginal[step->node];
    w->tables->minplus(d, b_t, m0, is, ks, js);
    w->tables->minplus(a_t, d, m1, js, is, ks);
    for (int64_t i = 0; i < is; i++) {
        for (int64_t j = 0; j < js; j++) {
            m0[i * js + j] += a[i * js + j] + u[j];
        }
    }
    for (int64_t j = 0; j < js; j++) {
        own[j] = INFINITY;
        for (int64_t k = 0; k < ks; k++) {
            m1[j * ks + k] += right[j * ks + k] + u[j];
            own[j] = m1[j * ks + k] < own[j] ? m1[j * ks + k] : own[j];
        }
    }
}

/* Undoes an elimination with two neighbours: D of the remaining pair, then the marginals of the two
 * removed pairs. */
static trm_status undo_two_neighbours(backward_walk *b, const trmi_reduced *step, trm_error *err) {
    const trmi_solve_work *w = b->work;
    int32_t is = w->states[step->near[0]], js = w->states[step->node],
            ks = w->states[step->near[1]];
    const float *c = trmi_tables_data(w->tables, step->product), *both = b->pair[step->joined];
    float *d = alloc_floats((int64_t)is * ks), *m0 = alloc_floats((int64_t)is * js),
          *m1 = alloc_floats((int64_t)js * ks);
    float *a_t = new_transpose(trmi_tables_data(w->tables, step->table[0]), is, js);
    float *b_t = new_transpose(trmi_tables_data(w->tables, step->table[1]), js, ks);
    trm_status status;
    if (d != NULL && m0 != NULL && m1 != NULL && a_t != NULL && b_t != NULL) {
        /* D is the marginal of the joined pair without what this node has added to it. */
        for (int64_t i = 0; i < (int64_t)is * ks; i++) {
            d[i] = c[i] < INFINITY ? both[i] - c[i] : INFINITY;
        }
        compute_pair_marginals(b, step, d, b_t, a_t, m0, m1);
        status = keep_marginals(b, step->slot[0], step->near[0], m0, is, js, err);
        m0 = NULL;
        if (status == TRM_OK) {
            status = keep_marginals(b, step->slot[1], step->node, m1, js, ks, err);
            m1 = NULL;
        }
    } else {
        status = no_memory(err);
    }
    if (b->rest != NULL) {
        b->rest[step - w->steps] = d;
    } else {
        trmi_free(d);
    }
    trmi_free(m0);
    trmi_free(m1);
    trmi_free(a_t);
    trmi_free(b_t);
    return status;
}

/* Undoes the elimination of a node without neighbours, the last of a component of the graph.
 * constant: least cost of the whole graph. */
static trm_status undo_component(backward_walk *b, const trmi_reduced *step, float constant,
                                 trm_error *err) {
    const trmi_solve_work *w = b->work;
    const float *u = trmi_tables_data(w->tables, step->unary);
    float least = INFINITY, *own = b->marginal[step->node];
    for (int32_t j = 0; j < w->states[step->node]; j++) {
        least = u[j] < least ? u[j] : least;
    }
    for (int32_t j = 0; j < w->states[step->node]; j++) {
        own[j] = least < INFINITY ? u[j] - least + constant : INFINITY;
    }
    if (b->rest != NULL) {
        float *rest = b->rest[step - w->steps] = alloc_floats(1);
        if (rest == NULL) {
            return no_memory(err);
        }
        *rest = least < INFINITY ? constant - least : INFINITY;
    }
    return TRM_OK;
}

/* Walks all steps backwards. */
static trm_status walk_steps(backward_walk *b, trm_error *err) {
    const trmi_solve_work *w = b->work;
    float constant = (float)trmi_work_constant(w);
    for (int32_t s = w->steps_count - 1; s >= 0; s--) {
        const trmi_reduced *step = &w->steps[s];
        if (step->near_count == 0) {
            TRMI_TRY(undo_component(b, step, constant, err));
        } else if (step->near_count == 1) {
            TRMI_TRY(undo_one_neighbour(b, step, err));
        } else {
            TRMI_TRY(undo_two_neighbours(b, step, err));
        }
    }
    return TRM_OK;
}

trm_status trmi_work_marginals(const trmi_solve_work *work, float *const *marginal, float **rest,
                               trm_error *err) {
    backward_walk b = {.work = work, .marginal = marginal, .rest = rest};
    b.pair = trmi_alloc(((size_t)work->slots_count + 1) * sizeof *b.pair);
    trm_status status = b.pair != NULL ? walk_steps(&b, err) : no_memory(err);
    for (int64_t i = 0; b.pair != NULL && i < work->slots_count; i++) {
        trmi_free(b.pair[i]);
    }
    trmi_free(b.pair);
    return status;
}

/* Contract in solve.h. If step 1 alone cannot eliminate all nodes, marginals are unknown
 * (INFINITY), which is no error: they serve reports. */
trm_status trmi_solve_marginals(const trmi_cost_graph *g, float *const *marginal, trm_error *err) {
    trmi_tables tables;
    trmi_solve_work work;
    trmi_tables_open(&tables);
    trm_status status = trmi_work_open(&work, &tables, g, err);
    if (status == TRM_OK) {
        status = trmi_work_reduce(&work, 2, err);
    }
    if (status == TRM_OK && work.live_count > 0) {
        for (int32_t i = 0; i < g->nodes_count; i++) {
            for (int32_t j = 0; j < g->states[i]; j++) {
                marginal[i][j] = INFINITY;
            }
        }
    } else if (status == TRM_OK) {
        status = trmi_work_marginals(&work, marginal, NULL, err);
    }
    trmi_work_close(&work);
    trmi_tables_close(&tables);
    return status;
}
