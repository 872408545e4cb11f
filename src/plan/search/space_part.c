/* SPDX-License-Identifier: Apache-2.0 */
/* Makes a space of a run of another space's nodes: one stage of a pipeline.
 *
 *      nodes of the space    0 1 2 | 3 4 5 | 6 7       part [3, 6): nodes 0 1 2, edges within it
 *
 * Classes, tables and prices are those of the whole space. Only classes that read a parameter which
 * another stage updates are made anew, without its gradient and update. A sum that is sent to
 * another stage is not computed again: its edge has the other one of its two tables. */
#include "plan/search/search.h"

#include "base/error.h"

#include <string.h>

static trm_status no_memory(trm_error *err) {
    return TRMI_NO_MEMORY(err, "for a stage of a pipeline");
}

/* Returns whether an operator reads a parameter that another stage updates. */
static bool reads_foreign(const trmi_space *s, const trmi_op *op) {
    for (int32_t i = 0; i < op->inputs_count; i++) {
        const trmi_op *parameter = trmi_parameter_of(s->graph, op->inputs[i]);
        if (parameter != NULL && s->foreign[parameter->outputs[0]]) {
            return true;
        }
    }
    return false;
}

/* Replaces the costs of a class' parameters by those with `s->foreign`. */
static trm_status price_again(trmi_space *s, trmi_space_class *c, trm_error *err) {
    const trmi_op *op = &s->graph->ops[c->op];
    c->stores = trmi_arena_alloc(&s->arena, TRMI_STORES * (size_t)c->count * sizeof *c->stores);
    c->slices = trmi_arena_alloc(&s->arena, (size_t)c->count * sizeof *c->slices);
    if (c->stores == NULL || c->slices == NULL) {
        return no_memory(err);
    }
    for (int32_t i = 0; i < c->count; i++) {
        for (int32_t k = 0; k < op->inputs_count; k++) {
            if (trmi_parameter_of(s->graph, op->inputs[k]) != NULL) {
                trmi_space_add_parameter(s, op, k, c, i);
            }
        }
    }
    return TRM_OK;
}

/* Gives nodes that read foreign parameters classes of their own. */
static trm_status price_foreign(trmi_space *s, trm_error *err) {
    int64_t extra = 0;
    /* how many nodes need a class of their own */
    for (int32_t n = 0; n < s->nodes_count; n++) {
        extra += reads_foreign(s, trmi_space_op(s, n));
    }
    if (extra == 0) {
        return TRM_OK;
    }
    trmi_space_class *all =
        trmi_arena_alloc(&s->arena, (size_t)(s->classes_count + extra) * sizeof *all);
    if (all == NULL) {
        return no_memory(err);
    }
    memcpy(all, s->classes, (size_t)s->classes_count * sizeof *all);
    s->classes = all;
    for (int32_t n = 0; n < s->nodes_count; n++) {
        if (reads_foreign(s, trmi_space_op(s, n))) {
            trmi_space_class *own = &all[s->classes_count];
            *own = all[s->nodes[n].group];
            own->op = s->nodes[n].op;
            TRMI_TRY(price_again(s, own, err));
            s->nodes[n].group = (int32_t)s->classes_count++;
        }
    }
    return TRM_OK;
}

/* Gives edges to sums that operators behind the part read the table with `ends`. */
static trm_status end_sums(const trmi_space *s, int32_t begin, int32_t end, trmi_space *part,
                           trmi_arena *arena, trm_error *err) {
    bool *sent = trmi_arena_alloc(arena, (size_t)(end - begin) * sizeof *sent + 1);
    if (sent == NULL) {
        return no_memory(err);
    }
    for (int64_t e = 0; e < s->edges_count; e++) {
        const trmi_space_edge *edge = &s->edges[e];
        if (edge->from >= begin && edge->from < end && edge->to >= end && edge->tied == 0) {
            sent[edge->from - begin] = true;
        }
    }
    for (int64_t e = 0; e < part->edges_count; e++) {
        trmi_space_edge *edge = &part->edges[e];
        if (edge->sum && sent[edge->to]) {
            edge->ends = true;
            edge->table = edge->end_table;
        }
    }
    return TRM_OK;
}

/* Contract in search.h. The part shares classes and prices with the whole space; only nodes and
 * edges are copied. Operators that read parameters owned by another part (`foreign`) get classes of
 * their own, without the costs that the owner pays. */
trm_status trmi_space_part(const trmi_space *s, int32_t begin, int32_t end, const bool *foreign,
                           trmi_arena *arena, trmi_space *out, trm_error *err) {
    trmi_space part = *s;
    part.arena = (trmi_arena){0};
    part.foreign = foreign;
    bool sums = false;
    part.nodes_count = end - begin;
    part.edges_count = 0;
    part.costs.overhead = 0;
    part.nodes = trmi_arena_alloc(arena, ((size_t)(end - begin) + 1) * sizeof *part.nodes);
    part.edges = trmi_arena_alloc(arena, ((size_t)s->edges_count + 1) * sizeof *part.edges);
    if (part.nodes == NULL || part.edges == NULL) {
        return no_memory(err);
    }
    memcpy(part.nodes, s->nodes + begin, (size_t)(end - begin) * sizeof *part.nodes);
    /* Copy the edges inside the part, with the part's numbers. */
    for (int64_t e = 0; e < s->edges_count; e++) {
        const trmi_space_edge *edge = &s->edges[e];
        if (edge->from >= begin && edge->to < end) {
            trmi_space_edge *to = &part.edges[part.edges_count++];
            *to = *edge;
            to->from -= begin;
            to->to -= begin;
            sums = sums || to->sum;
        }
    }
    if (sums) {
        TRMI_TRY(end_sums(s, begin, end, &part, arena, err));
    }
    *out = part;
    if (foreign != NULL) {
        out->arena = *arena; /* classes of foreign parameters */
        trm_status status = price_foreign(out, err);
        *arena = out->arena;
        out->arena = (trmi_arena){0};
        return status;
    }
    return TRM_OK;
}
