/* SPDX-License-Identifier: Apache-2.0 */
/* Solves runs of nodes, each once (contracts in pipeline_runs.h).
 *
 *      trmi_runs_least --> key_of: solved before, here or for equal operators?
 *                      --> search_part: a space of the run's nodes, solved once with whole updates
 *                          and, if all its parameters can be whole, once with updates in slices
 *                          (solve_part); the faster one is kept under the key
 *
 * measure_cut and list_shared find, for each cut, the values that cross it and the parameters that
 * operators on both sides read. */
#include "plan/search/pipeline_runs.h"

#include "base/error.h"
#include "base/hash/hash.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static trm_status no_memory(trm_error *err) { return TRMI_NO_MEMORY(err, "to search stages"); }

/* Measures cut i, over the values that nodes before it make and nodes after it read: the bytes of
 * the smallest, and the seconds of copying all. A rank is taken to have the smallest part of each:
 * one of as many as the mesh has ranks. */
static void measure_cut(trmi_runs *r, int32_t i) {
    const trmi_space *s = r->space;
    int32_t node = r->cuts[i], last = 0;
    for (int64_t e = 0; e < s->edges_count; e++) {
        const trmi_space_edge *edge = &s->edges[e];
        if (edge->tied == 0 && edge->from < node && edge->to >= node && edge->value != last) {
            const trmi_value *v = &s->graph->values[edge->value];
            double bytes = (double)trm_shape_count(&v->shape) * (double)trm_dtype_bytes(v->dtype) /
                           trmi_mesh_ranks(&s->mesh);
            last = edge->value;
            r->crossing[i] = r->crossing[i] > 0 ? fmin(r->crossing[i], bytes) : bytes;
            r->returns[i] = r->returns[i] || edge->gradient;
            double copy = trmi_price(&s->prices, &s->mesh, TRMI_MOVE_LOCAL, 0, bytes) + r->handover;
            r->copied[i] += (1 + edge->gradient) * copy;
            r->given[i] += copy;
        }
    }
}

/* Lists the parameters that several nodes read: their gradients are copied if a cut lies between.
 */
static trm_status list_shared(trmi_runs *r, trm_error *err) {
    const trmi_space *s = r->space;
    int32_t *first = trmi_arena_alloc(r->arena, (size_t)s->graph->values_count * sizeof *first);
    r->shared = trmi_arena_alloc(r->arena, ((size_t)s->nodes_count + 1) * sizeof *r->shared);
    if (first == NULL || r->shared == NULL) {
        return no_memory(err);
    }
    for (int32_t n = 0; n < s->nodes_count; n++) {
        const trmi_op *op = trmi_space_op(s, n);
        for (int32_t i = 0; i < op->inputs_count; i++) {
            const trmi_op *parameter = trmi_parameter_of(s->graph, op->inputs[i]);
            if (parameter == NULL || !parameter->attrs.leaf.trainable) {
                continue;
            }
            int32_t *at = &first[parameter->outputs[0]];
            const trmi_value *v = trmi_output_of(s->graph, parameter, 0);
            double bytes = (double)trm_shape_count(&v->shape) * (double)trm_dtype_bytes(v->dtype) /
                           trmi_mesh_ranks(&s->mesh);
            if (*at > 0 && *at - 1 != n && r->shared_count < s->nodes_count) {
                double copy =
                    trmi_price(&s->prices, &s->mesh, TRMI_MOVE_LOCAL, 0, bytes) + r->handover;
                r->shared[r->shared_count++] = (trmi_shared_reader){*at - 1, n, bytes, copy};
            }
            *at = *at > 0 ? *at : n + 1;
        }
    }
    return TRM_OK;
}

/* Contract in pipeline_runs.h. A parameter that is read in the run and outside of it costs a copy
 * of its gradient; copies in one direction, to the run or from it, count once. */
double trmi_runs_copied(const trmi_runs *r, int32_t a, int32_t b, bool shared) {
    double seconds = r->copied[a] + r->copied[b];
    bool owns = false, gives = false;
    for (int32_t i = 0; shared && i < r->shared_count; i++) {
        const trmi_shared_reader *of = &r->shared[i];
        bool first = of->first >= r->cuts[a] && of->first < r->cuts[b],
             here = of->node >= r->cuts[a] && of->node < r->cuts[b];
        seconds += (first && !here && !owns) || (here && !first && !gives) ? of->seconds : 0;
        owns = owns || (first && !here);
        gives = gives || (here && !first);
    }
    return seconds;
}

/* Contract in pipeline_runs.h. Lists the cuts, the places where a run may begin, and measures
 * what crosses each of them. */
trm_status trmi_runs_open(trmi_runs *r, const int32_t *begins, int32_t begins_count,
                          trmi_arena *arena, trm_error *err) {
    const trmi_space *s = r->space;
    r->arena = arena;
    r->cuts = trmi_arena_alloc(arena, ((size_t)s->nodes_count + 2) * sizeof *r->cuts);
    if (r->cuts == NULL) {
        return no_memory(err);
    }
    int32_t inner = begins_count;
    if (begins == NULL) {
        inner = trmi_pipe_cuts(s, r->cuts + 1);
    } else {
        memcpy(r->cuts + 1, begins, (size_t)begins_count * sizeof *begins);
    }
    r->cuts_count = inner + 2;
    r->cuts[inner + 1] = s->nodes_count;
    r->copied = trmi_arena_alloc(arena, (size_t)r->cuts_count * sizeof *r->copied);
    r->given = trmi_arena_alloc(arena, (size_t)r->cuts_count * sizeof *r->given);
    r->crossing = trmi_arena_alloc(arena, (size_t)r->cuts_count * sizeof *r->crossing);
    r->returns = trmi_arena_alloc(arena, (size_t)r->cuts_count * sizeof *r->returns);
    if (r->copied == NULL || r->given == NULL || r->crossing == NULL || r->returns == NULL) {
        return no_memory(err);
    }
    for (int32_t i = 1; i <= inner; i++) {
        measure_cut(r, i);
    }
    return list_shared(r, err);
}

void trmi_runs_close(trmi_runs *r) {
    free(r->list);
    r->list = NULL;
}

/* Returns a number that equal runs have in common. */
static uint64_t key_of(const trmi_runs *r, const trmi_space *part, const trmi_run_ask *ask) {
    uint64_t key = TRMI_HASH_BEGIN;
    const int32_t head[] = {(int32_t)ask->least, ask->memory.flight, part->nodes_count};
    key = trmi_hash(key, head, sizeof head);
    key = trmi_hash(key, &ask->memory.limit, sizeof ask->memory.limit);
    for (int32_t n = 0; n < part->nodes_count; n++) {
        bool own = part->nodes[n].group >= r->space->classes_count; /* reads a foreign parameter */
        const int32_t of[] = {own ? -1 : part->nodes[n].group, own ? part->nodes[n].op : 0};
        key = trmi_hash(key, of, sizeof of);
    }
    for (int64_t e = 0; e < part->edges_count; e++) {
        const int32_t of[] = {part->edges[e].from, part->edges[e].to, part->edges[e].table};
        key = trmi_hash(key, of, sizeof of);
    }
    return key;
}

/* Returns whether every operator of a part can leave its parameters whole. */
static bool has_slices(const trmi_space *part) {
    for (int32_t n = 0; part->costs.slices && n < part->nodes_count; n++) {
        const trmi_space_class *c = trmi_space_class_of(part, n);
        bool can = false;
        for (int32_t i = 0; i < c->count && !can; i++) {
            can = c->slices[i].blocking < INFINITY;
        }
        if (!can) {
            return false;
        }
    }
    return part->costs.slices;
}

/* Returns the weights of memory and gradients with which strategies minimise `least`. */
static trmi_objective weights_of(const trmi_runs *r, trmi_least least, int32_t flight) {
    double exposed = 1 - r->space->costs.overlap;
    trmi_objective w = {.others_kept = flight - 1};
    if (least == TRMI_LEAST_MICRO) {
        w.away = 1;
    } else if (least == TRMI_LEAST_STEP) {
        w.away = 1 - 1.0 / r->micros;
        w.gradient = exposed / r->micros;
    } else {
        w.gradient = exposed;
    }
    return w;
}

/* Solves one side of a part: *bound for one micro-batch, and the choice; INFINITY: nothing fits. */
static trm_status solve_part(trmi_runs *r, const trmi_space *part, const trmi_objective *w,
                             double limit, trmi_choice *choice, double *bound, trm_error *err) {
    trmi_solution solution;
    trmi_measure m;
    if (!trmi_choice_open(choice, part, r->arena)) {
        return no_memory(err);
    }
    r->solves++;
    TRMI_TRY(trmi_space_solve(part, w, choice, &solution, NULL, r->arena, err));
    *bound = solution.lower_bound;
    if (limit <= 0) {
        return TRM_OK;
    }
    TRMI_TRY(trmi_space_measure(part, choice, &m, err));
    if (m.bytes + w->others_kept * m.flight_bytes <= limit) {
        return TRM_OK;
    }
    trmi_front front;
    trmi_choice *points;
    r->solves++;
    TRMI_TRY(trmi_space_front(part, w, limit, r->arena, &front, &points, err));
    *bound = front.feasible ? front.lower_bound : INFINITY;
    trmi_choice_copy(choice, &points[0], part);
    return TRM_OK;
}

/* Finds the least seconds of a part, over updates of whole parameters and of slices. */
static trm_status search_part(trmi_runs *r, const trmi_space *part, const trmi_run_ask *ask,
                              trmi_least_run *out, trm_error *err) {
    trmi_least least = ask->least;
    double times = least == TRMI_LEAST_STEP ? r->micros : 1;
    trmi_objective w = weights_of(r, least, ask->memory.flight);
    int sides = has_slices(part) ? 2 : 1;
    out->seconds = INFINITY;
    for (int side = 0; side < sides; side++) {
        trmi_choice choice;
        double bound = INFINITY, once = side == 0 ? part->update.offset
                                                  : part->sliced.offset + trmi_space_meetings(part);
        w.sliced = side == 1;
        TRMI_TRY(solve_part(r, part, &w, ask->memory.limit, &choice, &bound, err));
        double seconds = times * bound + (least == TRMI_LEAST_MICRO ? 0 : once);
        if (seconds < out->seconds || side == 0) {
            out->seconds = seconds;
            out->choice = choice;
        }
    }
    return TRM_OK;
}

/* Finds the seconds of forward, of backward and of what follows on a mesh of one rank, where all
 * plans of a part have the same, but those that recompute. */
static trm_status find_halves(const trmi_space *part, trmi_least_run *run, trm_error *err) {
    trmi_measure m;
    TRMI_TRY(trmi_space_measure(part, &run->choice, &m, err));
    run->forward = m.forward;
    run->backward = m.blocking - m.forward - m.once;
    run->after = m.once + m.exposed;
    return TRM_OK;
}

/* Contract in pipeline_runs.h. Equal runs (the repeated blocks of a network) have one key and
 * are searched once. */
trm_status trmi_runs_least(trmi_runs *r, const trmi_run_ask *from, const trmi_least_run **out,
                           trm_error *err) {
    trmi_space part;
    const trmi_space *s = r->space;
    trmi_run_ask ask = *from;
    ask.memory.flight = ask.memory.limit > 0 ? ask.memory.flight : 1; /* it changes memory only */
    bool *foreign = trmi_alloc((size_t)s->graph->values_count * sizeof *foreign);
    trmi_arena scratch = {0};
    if (foreign == NULL) {
        return no_memory(err);
    }
    bool any = trmi_pipe_foreign(s, r->cuts[ask.a], foreign);
    trm_status status = trmi_space_part(s, r->cuts[ask.a], r->cuts[ask.b], any ? foreign : NULL,
                                        &scratch, &part, err);
    uint64_t key = status == TRM_OK ? key_of(r, &part, &ask) : 0;
    for (int64_t i = 0; status == TRM_OK && i < r->count; i++) {
        if (r->list[i].key == key) {
            *out = &r->list[i];
            trmi_arena_free(&scratch);
            trmi_free(foreign);
            return TRM_OK;
        }
    }
    trmi_least_run found = {.key = key};
    status = status == TRM_OK ? search_part(r, &part, &ask, &found, err) : status;
    if (status == TRM_OK && ask.least == TRMI_LEAST_MICRO && found.seconds < INFINITY &&
        trmi_mesh_ranks(&s->mesh) == 1) {
        status = find_halves(&part, &found, err);
    }
    if (status == TRM_OK &&
        !trmi_grow((void **)&r->list, &r->capacity, r->count + 1, sizeof *r->list)) {
        status = no_memory(err);
    }
    if (status == TRM_OK) {
        r->list[r->count] = found;
        *out = &r->list[r->count++];
    }
    trmi_arena_free(&scratch);
    trmi_free(foreign);
    return status;
}
