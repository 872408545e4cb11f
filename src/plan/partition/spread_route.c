/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the cheapest sequence of moves from one spread to another, by Dijkstra's algorithm over
 * spreads. The moves from a spread and their prices do not depend on the target, so they are
 * computed once for each shape, and only for spreads that searches reach.
 *
 *      P+,S0 --all-reduce a--> R,S0 --exchange b--> R,S1        or        P+,S0 --reduce-scatter a--> S1,S0 ...
 *
 * Moves: one axis at a time; all subsets of the partial axes reduced at once, into whole or cut
 * tensors; and the direct exchange of boxes between any two spreads without partials, which
 * changing the order of axes needs. The bytes of a move are counted from the boxes of the ranks.
 *
 * Invariant: a route does not depend on earlier searches (ties go to the smallest key of a spread),
 * so all ranks find the same route whatever the history of their routers. */
#include "plan/partition/partition.h"

#include "base/error.h"
#include "base/hash/hash.h"
#include "base/hash/hash_index.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Names of moves, for reports. */
static const char *const move_names[TRMI_MOVES] = {
    "local",    "all-reduce", "all-gather", "reduce-scatter", "all-to-all",
    "exchange", "all-reduce", "all-gather", "reduce-scatter", "reduce-scatter"};
const char *trmi_move_name(trmi_move move) { return move < TRMI_MOVES ? move_names[move] : "?"; }

/* ---- prices ---- */

/* Contract in partition.h. `bytes`: of an all-reduce, a gather or a scatter those of the whole
 * vector; of an exchange those that one rank receives. */
double trmi_price(const trmi_prices *prices, const trmi_mesh *mesh, trmi_move move, uint32_t axes,
                  double bytes) {
    if (prices != NULL && prices->seconds != NULL) {
        return prices->seconds(prices->context, move, axes, bytes);
    }
    /* In the built-in model the slowest axis determines start-up and bandwidth; algorithms are
     * rings. */
    double alpha = 0, beta = 0, n = trmi_mesh_group(mesh, axes);
    for (int32_t i = 0; i < mesh->axes; i++) {
        if (axes >> i & 1) {
            double a = prices != NULL && prices->alpha[i] > 0 ? prices->alpha[i] : 20e-6;
            double b = prices != NULL && prices->beta[i] > 0 ? prices->beta[i] : 1 / 5e9;
            alpha = a > alpha ? a : alpha;
            beta = b > beta ? b : beta;
        }
    }
    switch (move) {
    case TRMI_MOVE_ALL_REDUCE:
    case TRMI_MOVE_GRADIENTS: return 2 * (n - 1) * alpha + 2 * (n - 1) / n * bytes * beta;
    case TRMI_MOVE_ALL_GATHER:
    case TRMI_MOVE_REDUCE_SCATTER:
    case TRMI_MOVE_GATHER_STORE:
    case TRMI_MOVE_SCATTER_STORE:
    case TRMI_MOVE_SLICES: return (n - 1) * alpha + (n - 1) / n * bytes * beta;
    case TRMI_MOVE_ALL_TO_ALL:
    case TRMI_MOVE_EXCHANGE: return (n - 1) * alpha + bytes * beta;
    default: return bytes * (prices != NULL && prices->copy > 0 ? prices->copy : 1 / 5e9);
    }
}

/* ---- single moves ---- */

/* Returns the axes whose groups must communicate to change one spread into another (partials
 * unchanged); 0: a local copy. On each dimension these are the old cuts that are not a common
 * prefix with the new ones. */
static uint32_t communicating_axes(const trmi_mesh *mesh, const trm_shape *shape,
                                   const trmi_spread *from, const trmi_spread *to) {
    uint32_t mask = 0;
    for (int32_t d = 0; d < shape->rank; d++) {
        int32_t a[TRMI_MESH_AXES], b[TRMI_MESH_AXES], same = 0;
        int32_t na = trmi_spread_cuts(mesh, from, d, a), nb = trmi_spread_cuts(mesh, to, d, b);
        while (same < na && same < nb && a[same] == b[same]) {
            same++;
        }
        for (int32_t k = same; k < na; k++) {
            mask |= 1u << a[k];
        }
    }
    return mask;
}

/* Returns the bytes that the busiest rank receives when boxes go from `from` to `to`. Balanced cuts
 * are symmetric and the first ranks have the largest parts, so up to 16 ranks are examined. */
static double count_received_bytes(const trmi_mesh *mesh, const trm_shape *shape, int64_t element,
                                   const trmi_spread *from, const trmi_spread *to) {
    double most = 0;
    int32_t ranks = trmi_mesh_ranks(mesh), examined = ranks < 16 ? ranks : 16;
    for (int32_t i = 0; i < examined; i++) {
        int32_t rank = (int32_t)((int64_t)i * ranks / examined);
        trmi_box has = trmi_spread_box(mesh, shape, from, rank),
                 wants = trmi_spread_box(mesh, shape, to, rank);
        trmi_box own;
        int64_t kept = trmi_box_intersect(&has, &wants, &own) ? trmi_box_count(&own) : 0;
        double bytes = (double)(trmi_box_count(&wants) - kept) * (double)element;
        most = bytes > most ? bytes : most;
    }
    return most;
}

/* Contract in partition.h. Recognises all-gather and all-to-all, which engines run faster than
 * an exchange of boxes; everything else is an exchange. */
trm_status trmi_route_direct(const trmi_mesh *mesh, const trmi_prices *prices,
                             const trm_shape *shape, int64_t element, const trmi_spread *from,
                             const trmi_spread *to, trmi_route_step *out) {
    uint32_t mask = communicating_axes(mesh, shape, from, to);
    double full = (double)trmi_spread_most(mesh, shape, to) * (double)element;
    *out = (trmi_route_step){.axes = mask, .to = *to, .bytes = full};
    if (mask == 0) {
        out->move = TRMI_MOVE_LOCAL;
    } else {
        bool gather = true; /* every communicating axis becomes whole, nothing else moves */
        bool swap = true;   /* every communicating axis cuts another dimension */
        for (int32_t i = 0; i < mesh->axes; i++) {
            bool talks = mask >> i & 1;
            gather = gather && (talks ? to->at[i] == TRMI_WHOLE
                                      : to->at[i] == from->at[i] && to->place[i] == from->place[i]);
            swap = swap && (!talks || (to->at[i] >= TRMI_SPLIT && to->at[i] != from->at[i]));
        }
        out->move = gather ? TRMI_MOVE_ALL_GATHER
                    : swap ? TRMI_MOVE_ALL_TO_ALL
                           : TRMI_MOVE_EXCHANGE;
        if (!gather) {
            out->bytes = count_received_bytes(mesh, shape, element, from, to);
        }
    }
    out->seconds = trmi_price(prices, mesh, out->move, out->axes, out->bytes);
    return TRM_OK;
}

/* ---- the map of a tensor's spreads ---- */

/* A move to another place. zeros: axes on which it creates zeros; the target must be partial there.
 */
typedef struct edge {
    int32_t to;
    uint32_t zeros;
    trmi_route_step step;
} edge;

/* A growing array of moves. */
typedef struct edges {
    edge *list;
    int64_t count, capacity;
} edges;

/* A spread of the map. */
typedef struct place {
    trmi_spread spread;
    int64_t most;  /* elements of the largest part */
    bool explored; /* `moves` is complete */
    edges moves;   /* moves of single axes, of partial axes, to zero-padded sums */
    edges direct;  /* direct exchanges to targets of searches so far */
    /* state of the search numbered `search`: */
    uint32_t search;
    bool settled;
    double seconds;
    int32_t previous;
    const trmi_route_step *step; /* move that leads here */
} place;

/* The map of one shape and element size. Grows with the searches. */
typedef struct map {
    trm_shape shape;
    int64_t element;
    place *places;
    int64_t count, capacity;
    trmi_hash_index by_spread; /* index of `places` by the key of the spread */
    uint32_t searches;
} map;

/* A router: one map for each shape, and a cache of answers. */
struct trmi_router {
    trmi_mesh mesh;
    trmi_prices prices;
    map *maps;
    int64_t maps_count, maps_capacity;
    struct entry *entries; /* cached answers */
    int64_t count, capacity;
    trmi_hash_index by_query; /* index of `entries` by the hash of the query */
};

/* Returns the place of a spread that fits the shape, made if it is new; -1: no memory. Pointers to
 * places become invalid. */
static int32_t place_of(const trmi_router *r, map *m, const trmi_spread *spread) {
    uint64_t hash = trmi_spread_key(spread) * UINT64_C(0x9E3779B97F4A7C15), probe = 0;
    int64_t i;
    do {
        i = trmi_hash_index_next(&m->by_spread, hash, &probe);
    } while (i >= 0 && !trmi_spread_equal(&m->places[i].spread, spread));
    if (i >= 0) {
        return (int32_t)i;
    }
    if (!trmi_grow((void **)&m->places, &m->capacity, m->count + 1, sizeof *m->places) ||
        !trmi_hash_index_add(&m->by_spread, hash, m->count)) {
        return -1;
    }
    m->places[m->count] =
        (place){.spread = *spread, .most = trmi_spread_most(&r->mesh, &m->shape, spread)};
    return (int32_t)m->count++;
}

/* ---- moves from a place ---- */

/* State while moves from a place are listed. */
typedef struct explorer {
    const trmi_router *router;
    map *map;         /* the spreads of one shape; grows by the targets of the moves */
    trmi_spread from; /* the place whose moves are listed */
    edges *into;      /* receives the moves */
    bool failed;      /* there was no memory */
} explorer;

/* Appends a move if its target fits the shape. */
static void add_edge(explorer *e, const trmi_route_step *step, uint32_t zeros) {
    if (!trmi_spread_fits(&e->router->mesh, &e->map->shape, &step->to)) {
        return;
    }
    int32_t to = place_of(e->router, e->map, &step->to);
    if (to < 0 || !trmi_grow((void **)&e->into->list, &e->into->capacity, e->into->count + 1,
                             sizeof *e->into->list)) {
        e->failed = true;
        return;
    }
    e->into->list[e->into->count++] = (edge){.to = to, .zeros = zeros, .step = *step};
}

/* Returns the bytes of the largest part in a spread. */
static double bytes_of(const explorer *e, const trmi_spread *spread) {
    return (double)trmi_spread_most(&e->router->mesh, &e->map->shape, spread) *
           (double)e->map->element;
}

/* Returns how many axes have a letter. */
static int32_t cuts_count(const trmi_mesh *mesh, const trmi_spread *s, uint8_t letter) {
    int32_t count = 0;
    for (int32_t i = 0; i < mesh->axes; i++) {
        count += s->at[i] == letter;
    }
    return count;
}

/* Adds the reductions of all subsets of the axes that are partial in one way: to whole (d < 0), or
 * to a cut of dimension d. New cuts are innermost, in mesh order. */
static void add_partials(explorer *e, uint8_t letter) {
    const trmi_mesh *mesh = &e->router->mesh;
    uint32_t all = 0;
    for (int32_t i = 0; i < mesh->axes; i++) {
        all |= e->from.at[i] == letter ? 1u << i : 0;
    }
    double before = bytes_of(e, &e->from);
    for (uint32_t mask = all; mask != 0; mask = (mask - 1) & all) {
        for (int32_t d = -1; d < e->map->shape.rank; d++) {
            trmi_route_step step = {.axes = mask, .to = e->from, .bytes = before};
            step.move = d < 0 ? TRMI_MOVE_ALL_REDUCE : TRMI_MOVE_REDUCE_SCATTER;
            for (int32_t i = 0; i < mesh->axes; i++) {
                if (mask >> i & 1) {
                    step.to.at[i] = TRMI_WHOLE;
                }
            }
            for (int32_t i = 0; i < mesh->axes && d >= 0; i++) {
                if (mask >> i & 1) {
                    step.to.place[i] =
                        (uint8_t)cuts_count(mesh, &step.to, (uint8_t)(TRMI_SPLIT + d));
                    step.to.at[i] = (uint8_t)(TRMI_SPLIT + d);
                }
            }
            step.seconds = trmi_price(&e->router->prices, mesh, step.move, mask, before);
            add_edge(e, &step, 0);
        }
    }
}

/* Adds the direct exchange of boxes to a spread. */
static void add_box_move(explorer *e, const trmi_spread *to) {
    const trmi_router *r = e->router;
    trmi_route_step step;
    if (trmi_spread_fits(&r->mesh, &e->map->shape, to) &&
        trmi_route_direct(&r->mesh, &r->prices, &e->map->shape, e->map->element, &e->from, to,
                          &step) == TRM_OK) {
        add_edge(e, &step, 0);
    }
}

/* Adds all changes of one axis that is not partial: to whole, or to a cut of any dimension at any
 * place among the cuts there. */
static void add_axis(explorer *e, int32_t axis) {
    const trmi_mesh *mesh = &e->router->mesh;
    trmi_spread from = e->from, bare = from;
    if (trmi_is_partial(from.at[axis])) {
        return;
    }
    /* `bare` is the spread without the cut of this axis, places closed up. */
    bare.at[axis] = TRMI_WHOLE;
    bare.place[axis] = 0;
    for (int32_t i = 0; i < mesh->axes && from.at[axis] >= TRMI_SPLIT; i++) {
        bare.place[i] = (uint8_t)(bare.place[i] - (from.at[i] == from.at[axis] &&
                                                   from.place[i] > from.place[axis]));
    }
    if (from.at[axis] >= TRMI_SPLIT) {
        add_box_move(e, &bare);
    }
    /* To each dimension, at each place among the cuts that are there. */
    for (int32_t d = 0; d < e->map->shape.rank; d++) {
        int32_t cuts = cuts_count(mesh, &bare, (uint8_t)(TRMI_SPLIT + d));
        for (int32_t at = 0; at <= cuts; at++) {
            trmi_spread to = bare;
            for (int32_t i = 0; i < mesh->axes; i++) {
                to.place[i] =
                    (uint8_t)(to.place[i] + (to.at[i] == TRMI_SPLIT + d && to.place[i] >= at));
            }
            to.place[axis] = (uint8_t)at;
            to.at[axis] = (uint8_t)(TRMI_SPLIT + d);
            if (!trmi_spread_equal(&to, &from)) {
                add_box_move(e, &to);
            }
        }
    }
}

/* Adds local moves that make axes partial: zeros where this rank holds nothing. A cut that is
 * removed must be the innermost of its dimension. */
static void add_zeros(explorer *e) {
    const trmi_mesh *mesh = &e->router->mesh;
    uint32_t all = 0;
    for (int32_t i = 0; i < mesh->axes; i++) {
        all |= !trmi_is_partial(e->from.at[i]) ? 1u << i : 0;
    }
    for (uint32_t mask = all; mask != 0; mask = (mask - 1) & all) {
        trmi_route_step step = {.move = TRMI_MOVE_LOCAL, .to = e->from};
        /* the axes of mask become partial; their cuts must be innermost */
        bool innermost = true;
        for (int32_t i = 0; i < mesh->axes; i++) {
            if (mask >> i & 1) {
                for (int32_t j = 0; j < mesh->axes; j++) {
                    innermost = innermost && (mask >> j & 1 || e->from.at[i] < TRMI_SPLIT ||
                                              e->from.at[j] != e->from.at[i] ||
                                              e->from.place[j] < e->from.place[i]);
                }
                step.to.at[i] = TRMI_PARTIAL_SUM;
                step.to.place[i] = 0;
            }
        }
        if (innermost) {
            step.bytes = bytes_of(e, &step.to);
            step.seconds = trmi_price(&e->router->prices, mesh, step.move, 0, step.bytes);
            add_edge(e, &step, mask);
        }
    }
}

/* Computes all moves from a place, except the direct one to the target; false: no memory. */
static bool explore_place(const trmi_router *r, map *m, int32_t at) {
    edges moves = {NULL, 0, 0}; /* the array of places may be reallocated during the call */
    explorer e = {.router = r, .map = m, .from = m->places[at].spread, .into = &moves};
    for (uint8_t letter = TRMI_PARTIAL_SUM; letter < TRMI_SPLIT; letter++) {
        add_partials(&e, letter);
    }
    for (int32_t axis = 0; axis < r->mesh.axes; axis++) {
        add_axis(&e, axis);
    }
    add_zeros(&e);
    m->places[at].moves = moves;
    m->places[at].explored = true;
    return !e.failed;
}

/* Finds the direct exchange from a place to the target, with axes that are still partial unchanged:
 * *out, NULL if there is no such move; false: no memory. */
static bool find_direct(const trmi_router *r, map *m, int32_t at, const trmi_spread *target,
                        const edge **out) {
    trmi_spread from = m->places[at].spread, to = *target;
    *out = NULL;
    for (int32_t i = 0; i < r->mesh.axes; i++) {
        /* axes that are still partial stay so; other places close up */
        if (trmi_is_partial(from.at[i])) {
            for (int32_t j = 0; j < r->mesh.axes; j++) {
                to.place[j] =
                    (uint8_t)(to.place[j] - (to.at[i] >= TRMI_SPLIT && to.at[j] == to.at[i] &&
                                             to.place[j] > to.place[i]));
            }
            to.at[i] = from.at[i];
            to.place[i] = 0;
        } else if (trmi_is_partial(to.at[i])) {
            return true;
        }
    }
    if (!trmi_spread_fits(&r->mesh, &m->shape, &to) || trmi_spread_equal(&to, &from)) {
        return true;
    }
    /* The move may have been priced for an earlier target. */
    edges direct = m->places[at].direct;
    int32_t there = place_of(r, m, &to);
    for (int64_t i = 0; i < direct.count; i++) {
        if (direct.list[i].to == there) {
            *out = &direct.list[i];
            return true;
        }
    }
    explorer e = {.router = r, .map = m, .from = from, .into = &direct};
    add_box_move(&e, &to);
    m->places[at].direct = direct;
    *out = direct.count > 0 ? &direct.list[direct.count - 1] : NULL;
    return !e.failed && there >= 0;
}

/* ---- Dijkstra ---- */

/* State of one search. */
typedef struct search {
    const trmi_router *router;
    map *map;
    const trmi_spread *target;
    /* axes on which the target is a partial sum: only there zeros are allowed */
    uint32_t sums;
    int64_t bound;
    int32_t *open; /* places that the search has reached */
    int64_t count, capacity;
    bool failed;
} search;

/* Records a way to a place if it is the cheapest so far. */
static void reach_place(search *s, int32_t at, double seconds, int32_t previous,
                        const trmi_route_step *step) {
    place *p = &s->map->places[at];
    if (p->search != s->map->searches) {
        if (!trmi_grow((void **)&s->open, &s->capacity, s->count + 1, sizeof *s->open)) {
            s->failed = true;
            return;
        }
        s->open[s->count++] = at;
        p->search = s->map->searches;
        p->settled = false;
        p->seconds = INFINITY;
    }
    if (!p->settled && seconds < p->seconds) {
        p->seconds = seconds;
        p->previous = previous;
        p->step = step;
    }
}

/* Follows a move, unless it creates zeros that the target does not have or exceeds the bound on
 * parts. */
static void follow_move(search *s, int32_t at, const edge *e) {
    if ((e->zeros & ~s->sums) == 0 && (s->bound <= 0 || s->map->places[e->to].most <= s->bound)) {
        reach_place(s, e->to, s->map->places[at].seconds + e->step.seconds, at, &e->step);
    }
}

/* Returns the nearest place that is not settled, -1: none. Ties go to the smallest key, so that the
 * result does not depend on the history of the map. */
static int32_t nearest_place(const search *s) {
    int32_t best = -1;
    for (int64_t i = 0; i < s->count; i++) {
        const place *p = &s->map->places[s->open[i]], *b = best >= 0 ? &s->map->places[best] : NULL;
        bool nearer = b == NULL || p->seconds < b->seconds ||
                      (!(p->seconds > b->seconds) &&
                       trmi_spread_key(&p->spread) < trmi_spread_key(&b->spread));
        best = !p->settled && nearer ? s->open[i] : best;
    }
    return best;
}

/* Writes the route that ends at a place. */
static trm_status trace_route(const search *s, int32_t at, trmi_route *out, trm_error *err) {
    const place *places = s->map->places;
    *out = (trmi_route){.seconds = places[at].seconds, .peak_elements = places[at].most};
    for (int32_t i = at; places[i].previous >= 0; i = places[i].previous) {
        out->count++;
    }
    if (out->count > TRMI_ROUTE_STEPS) {
        return TRMI_FAIL(err, TRM_INTERNAL, "a route of %d moves, at most %d expected", out->count,
                         TRMI_ROUTE_STEPS);
    }
    for (int32_t i = at, step = out->count; places[i].previous >= 0; i = places[i].previous) {
        const place *before = &places[places[i].previous];
        out->steps[--step] = *places[i].step;
        out->peak_elements = before->most > out->peak_elements ? before->most : out->peak_elements;
    }
    return TRM_OK;
}

/* Reports that there is no route. */
static trm_status no_route(const search *s, const trm_shape *of, const trmi_spread *from,
                           trm_error *err) {
    char shape[96], a[64], b[64];
    return TRMI_FAIL(err, TRM_INVALID, "no way from %s to %s for a tensor of %s%s",
                     trmi_spread_text(&s->router->mesh, from, a, sizeof a),
                     trmi_spread_text(&s->router->mesh, s->target, b, sizeof b),
                     trm_shape_format(of, shape, sizeof shape),
                     s->bound > 0 ? " within the bound on intermediate parts" : "");
}

/* Finds the cheapest route from `from` to the target by Dijkstra's algorithm. */
static trm_status search_shortest(search *s, const trmi_spread *from, trmi_route *out,
                                  trm_error *err) {
    map *m = s->map;
    m->searches++;
    int32_t start = place_of(s->router, m, from);
    if (start < 0) {
        return TRMI_NO_MEMORY(err, "to find a route");
    }
    reach_place(s, start, 0, -1, NULL);
    for (int32_t at = nearest_place(s); at >= 0 && !s->failed; at = nearest_place(s)) {
        m->places[at].settled = true;
        if (trmi_spread_equal(&m->places[at].spread, s->target)) {
            return trace_route(s, at, out, err);
        }
        /* From a settled place: all moves of one kind, and the direct exchange to the target, which
         * would be too many to list for all targets. */
        const edge *last;
        s->failed = s->failed || (!m->places[at].explored && !explore_place(s->router, m, at)) ||
                    !find_direct(s->router, m, at, s->target, &last);
        for (int64_t i = 0; !s->failed && i < m->places[at].moves.count; i++) {
            follow_move(s, at, &m->places[at].moves.list[i]);
        }
        if (!s->failed && last != NULL) {
            follow_move(s, at, last);
        }
    }
    return s->failed ? TRMI_NO_MEMORY(err, "to find a route") : no_route(s, &m->shape, from, err);
}

/* Finds or makes the map of a shape. */
static trm_status map_of(trmi_router *r, const trm_shape *shape, int64_t element, map **out,
                         trm_error *err) {
    for (int64_t i = 0; i < r->maps_count; i++) {
        if (r->maps[i].element == element && trm_shape_equal(&r->maps[i].shape, shape)) {
            *out = &r->maps[i];
            return TRM_OK;
        }
    }
    TRMI_TRY(TRMI_GROW(err, r->maps, r->maps_capacity, r->maps_count + 1, "to find a route"));
    *out = &r->maps[r->maps_count++];
    **out = (map){.shape = *shape, .element = element};
    return TRM_OK;
}

/* Searches a route that is not in the cache. */
static trm_status search_route(trmi_router *r, const trm_shape *shape, int64_t element,
                               const trmi_spread *from, const trmi_spread *to, int64_t bound,
                               trmi_route *out, trm_error *err) {
    search s = {.router = r, .target = to, .bound = bound};
    for (int32_t i = 0; i < r->mesh.axes; i++) {
        s.sums |= to->at[i] == TRMI_PARTIAL_SUM ? 1u << i : 0;
    }
    if (!trmi_spread_fits(&r->mesh, shape, from) || !trmi_spread_fits(&r->mesh, shape, to)) {
        return no_route(&s, shape, from, err);
    }
    TRMI_TRY(map_of(r, shape, element, &s.map, err));
    trm_status status = search_shortest(&s, from, out, err);
    free(s.open);
    return status;
}

/* ---- the router remembers ---- */

typedef struct entry { /* A cached query and its answer; none: there is no route. */
    trm_shape shape;
    int64_t element, bound;
    uint32_t from, to;
    trmi_route route;
    bool none;
} entry;

trm_status trmi_router_create(const trmi_mesh *mesh, const trmi_prices *prices, trmi_router **out,
                              trm_error *err) {
    trmi_router *r;
    TRMI_TRY(TRMI_NEW(err, r, 1, "for routes"));
    r->mesh = *mesh;
    r->prices = prices != NULL ? *prices : (trmi_prices){0};
    *out = r;
    return TRM_OK;
}

void trmi_router_destroy(trmi_router *r) {
    if (r != NULL) {
        for (int64_t i = 0; i < r->maps_count; i++) {
            for (int64_t k = 0; k < r->maps[i].count; k++) {
                free(r->maps[i].places[k].moves.list);
                free(r->maps[i].places[k].direct.list);
            }
            free(r->maps[i].places);
            trmi_hash_index_free(&r->maps[i].by_spread);
        }
        free(r->maps);
        free(r->entries);
        trmi_hash_index_free(&r->by_query);
        trmi_free(r);
    }
}

/* Returns the hash of a query. */
static uint64_t hash_query(const entry *e) {
    uint64_t h = TRMI_HASH_BEGIN;
    for (int32_t i = 0; i < e->shape.rank; i++) {
        h = trmi_hash_number(h, (uint64_t)e->shape.dim[i]);
    }
    h = trmi_hash_number(h, e->from);
    h = trmi_hash_number(h, e->to);
    h = trmi_hash_number(h, (uint64_t)e->element ^ (uint64_t)e->bound << 8);
    return h ^ h >> 29;
}

/* Returns whether two entries are the same query. */
static bool same_query(const entry *a, const entry *b) {
    return a->from == b->from && a->to == b->to && a->element == b->element &&
           a->bound == b->bound && trm_shape_equal(&a->shape, &b->shape);
}

/* Contract in partition.h. Routes are cached by shape, spreads and memory bound, also the answer
 * that there is none: the operators of a network ask for the same few routes again and again. */
trm_status trmi_route_find(trmi_router *r, const trm_shape *shape, trm_dtype dtype,
                           const trmi_spread *from, const trmi_spread *to, int64_t peak_elements,
                           trmi_route *out, trm_error *err) {
    if (trmi_spread_equal(from, to)) {
        *out = (trmi_route){.peak_elements = trmi_spread_most(&r->mesh, shape, from)};
        return TRM_OK;
    }
    entry query = {.shape = *shape,
                   .element = (int64_t)trm_dtype_bytes(dtype),
                   .bound = peak_elements,
                   .from = trmi_spread_key(from),
                   .to = trmi_spread_key(to)};
    uint64_t hash = hash_query(&query), probe = 0;
    int64_t i;
    do {
        i = trmi_hash_index_next(&r->by_query, hash, &probe);
    } while (i >= 0 && !same_query(&r->entries[i], &query));
    if (i >= 0 && !r->entries[i].none) {
        *out = r->entries[i].route;
        return TRM_OK;
    }
    /* Answer from the cache, also with "no route"; otherwise search. */
    const search known = {.router = r, .target = to, .bound = peak_elements};
    trm_status status =
        i >= 0 ? no_route(&known, shape, from, err)
               : search_route(r, shape, query.element, from, to, peak_elements, &query.route, err);
    query.none = status != TRM_OK;
    if (i < 0 && status != TRM_NOMEM) {
        if (!trmi_grow((void **)&r->entries, &r->capacity, r->count + 1, sizeof *r->entries) ||
            !trmi_hash_index_add(&r->by_query, hash, r->count)) {
            return TRMI_NO_MEMORY(err, "for routes");
        }
        r->entries[r->count++] = query;
    }
    if (status == TRM_OK) {
        *out = query.route;
    }
    return status;
}

double trmi_route_seconds(trmi_router *r, const trm_shape *shape, trm_dtype dtype,
                          const trmi_spread *from, const trmi_spread *to) {
    trmi_route route;
    trm_error err;
    return trmi_route_find(r, shape, dtype, from, to, 0, &route, &err) == TRM_OK ? route.seconds
                                                                                 : INFINITY;
}
