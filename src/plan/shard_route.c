/* Cheapest sequence of moves from one spread to another: Dijkstra's algorithm over spreads.
 *
 *      P+,S0 --all-reduce a--> R,S0 --exchange b--> R,S1        or        P+,S0 --reduce-scatter a--> S1,S0 ...
 *
 * Moves: one axis at a time; all subsets of the partial axes summed at once, into whole or into cut
 * tensors; and the direct exchange of boxes between any two spreads without partials, which is what
 * axes in another order need. What a move really sends is counted from the boxes of the ranks. */
#include "plan/shard.h"

#include "base/error.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char *const move_names[TRMI_MOVES] = {"local",          "all-reduce", "all-gather",
                                                   "reduce-scatter", "all-to-all", "exchange",
                                                   "all-reduce",     "all-gather", "reduce-scatter"};
const char *trmi_move_name(trmi_move move) { return move < TRMI_MOVES ? move_names[move] : "?"; }

/* ---- prices ------------------------------------------------------------------------------------------ */

double trmi_price(const trmi_prices *prices, const trmi_mesh *mesh, trmi_move move, uint32_t axes, double bytes) {
    if (prices != NULL && prices->seconds != NULL) {
        return prices->seconds(prices->context, move, axes, bytes);
    }
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
    case TRMI_MOVE_GRADIENTS:
        return 2 * (n - 1) * alpha + 2 * (n - 1) / n * bytes * beta;
    case TRMI_MOVE_ALL_GATHER:
    case TRMI_MOVE_REDUCE_SCATTER:
    case TRMI_MOVE_GATHER_STORE:
    case TRMI_MOVE_SCATTER_STORE:
        return (n - 1) * alpha + (n - 1) / n * bytes * beta;
    case TRMI_MOVE_ALL_TO_ALL:
    case TRMI_MOVE_EXCHANGE:
        return (n - 1) * alpha + bytes * beta;
    default:
        return bytes * (prices != NULL && prices->copy > 0 ? prices->copy : 1 / 5e9);
    }
}

/* ---- single moves ---------------------------------------------------------------------------------------- */

uint32_t trmi_spread_talk(const trmi_mesh *mesh, const trm_shape *shape, const trmi_spread *from,
                          const trmi_spread *to) {
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

/* Bytes that the rank with most receives from others when boxes go from `from` to `to`. By symmetry of
 * balanced cuts the first ranks have the largest parts; a few ranks are looked at. */
static double received(const trmi_mesh *mesh, const trm_shape *shape, int64_t element, const trmi_spread *from,
                       const trmi_spread *to) {
    double most = 0;
    int32_t ranks = trmi_mesh_ranks(mesh), look = ranks < 16 ? ranks : 16;
    for (int32_t i = 0; i < look; i++) {
        int32_t rank = (int32_t)((int64_t)i * ranks / look);
        trmi_box has = trmi_spread_box(mesh, shape, from, rank), wants = trmi_spread_box(mesh, shape, to, rank);
        trmi_box own;
        int64_t kept = trmi_box_intersect(&has, &wants, &own) ? trmi_box_count(&own) : 0;
        double bytes = (double)(trmi_box_count(&wants) - kept) * (double)element;
        most = bytes > most ? bytes : most;
    }
    return most;
}

trm_status trmi_route_direct(const trmi_mesh *mesh, const trmi_prices *prices, const trm_shape *shape,
                             int64_t element, const trmi_spread *from, const trmi_spread *to,
                             trmi_route_step *out) {
    uint32_t mask = trmi_spread_talk(mesh, shape, from, to);
    double full = (double)trmi_spread_most(mesh, shape, to) * (double)element;
    *out = (trmi_route_step){.axes = mask, .to = *to, .bytes = full};
    if (mask == 0) {
        out->move = TRMI_MOVE_LOCAL;
    } else {
        bool gather = true; /* every talking axis becomes whole, nothing else moves */
        bool swap = true;   /* every talking axis goes on cutting */
        for (int32_t i = 0; i < mesh->axes; i++) {
            bool talks = mask >> i & 1;
            gather = gather && (talks ? to->at[i] == TRMI_WHOLE
                                      : to->at[i] == from->at[i] && to->place[i] == from->place[i]);
            swap = swap && (!talks || (to->at[i] >= TRMI_SPLIT && to->at[i] != from->at[i]));
        }
        out->move = gather ? TRMI_MOVE_ALL_GATHER : swap ? TRMI_MOVE_ALL_TO_ALL : TRMI_MOVE_EXCHANGE;
        if (!gather) {
            out->bytes = received(mesh, shape, element, from, to);
        }
    }
    out->seconds = trmi_price(prices, mesh, out->move, out->axes, out->bytes);
    return TRM_OK;
}

/* ---- Dijkstra ---------------------------------------------------------------------------------------------- */

typedef struct node {
    trmi_spread spread;
    double seconds;
    int32_t previous;
    trmi_route_step step; /* that leads here */
    bool settled;
} node;

typedef struct search {
    const trmi_mesh *mesh;
    const trmi_prices *prices;
    const trm_shape *shape;
    const trmi_spread *target;
    int64_t element, bound;
    node *nodes;
    int64_t count, capacity;
    bool failed;
} search;

static void relax(search *s, int32_t from, const trmi_route_step *step) {
    if (!trmi_spread_fits(s->mesh, s->shape, &step->to) ||
        (s->bound > 0 && trmi_spread_most(s->mesh, s->shape, &step->to) > s->bound)) {
        return;
    }
    double seconds = s->nodes[from].seconds + step->seconds;
    int64_t at = 0;
    while (at < s->count && !trmi_spread_equal(&s->nodes[at].spread, &step->to)) {
        at++;
    }
    if (at == s->count) {
        if (!trmi_grow((void **)&s->nodes, &s->capacity, s->count + 1, sizeof *s->nodes)) {
            s->failed = true;
            return;
        }
        s->nodes[s->count++] = (node){.spread = step->to, .seconds = INFINITY};
    }
    node *n = &s->nodes[at];
    if (!n->settled && seconds < n->seconds) {
        n->seconds = seconds;
        n->previous = from;
        n->step = *step;
    }
}

static int32_t cuts_count(const trmi_mesh *mesh, const trmi_spread *s, uint8_t letter) {
    int32_t count = 0;
    for (int32_t i = 0; i < mesh->axes; i++) {
        count += s->at[i] == letter;
    }
    return count;
}

/* All subsets of the partial axes of one kind, to whole (dimension < 0) or to a cut of one dimension. */
static void relax_partials(search *s, int32_t at, uint8_t letter) {
    trmi_spread from = s->nodes[at].spread;
    uint32_t all = 0;
    for (int32_t i = 0; i < s->mesh->axes; i++) {
        all |= from.at[i] == letter ? 1u << i : 0;
    }
    double before = (double)trmi_spread_most(s->mesh, s->shape, &from) * (double)s->element;
    for (uint32_t mask = all; mask != 0; mask = (mask - 1) & all) {
        for (int32_t d = -1; d < (letter == TRMI_PARTIAL_SUM ? s->shape->rank : 0); d++) {
            trmi_route_step step = {.axes = mask, .to = from, .bytes = before};
            step.move = d < 0 ? TRMI_MOVE_ALL_REDUCE : TRMI_MOVE_REDUCE_SCATTER;
            for (int32_t i = 0; i < s->mesh->axes; i++) {
                if (mask >> i & 1) {
                    step.to.at[i] = TRMI_WHOLE;
                }
            }
            for (int32_t i = 0; i < s->mesh->axes && d >= 0; i++) {
                if (mask >> i & 1) {
                    step.to.place[i] = (uint8_t)cuts_count(s->mesh, &step.to, (uint8_t)(TRMI_SPLIT + d));
                    step.to.at[i] = (uint8_t)(TRMI_SPLIT + d);
                }
            }
            step.seconds = trmi_price(s->prices, s->mesh, step.move, mask, before);
            relax(s, at, &step);
        }
    }
}

static void relax_box_move(search *s, int32_t at, const trmi_spread *to) {
    trmi_spread from = s->nodes[at].spread;
    trmi_route_step step;
    if (trmi_spread_fits(s->mesh, s->shape, to) &&
        trmi_route_direct(s->mesh, s->prices, s->shape, s->element, &from, to, &step) == TRM_OK) {
        relax(s, at, &step);
    }
}

/* One axis, not partial: whole, or a cut of any dimension at any place among the cuts there. */
static void relax_axis(search *s, int32_t at, int32_t axis) {
    trmi_spread from = s->nodes[at].spread, bare = from;
    if (trmi_is_partial(from.at[axis])) {
        return;
    }
    bare.at[axis] = TRMI_WHOLE;
    bare.place[axis] = 0;
    for (int32_t i = 0; i < s->mesh->axes && from.at[axis] >= TRMI_SPLIT; i++) {
        bare.place[i] = (uint8_t)(bare.place[i] - (from.at[i] == from.at[axis] && from.place[i] > from.place[axis]));
    }
    if (from.at[axis] >= TRMI_SPLIT) {
        relax_box_move(s, at, &bare);
    }
    for (int32_t d = 0; d < s->shape->rank; d++) {
        int32_t cuts = cuts_count(s->mesh, &bare, (uint8_t)(TRMI_SPLIT + d));
        for (int32_t place = 0; place <= cuts; place++) {
            trmi_spread to = bare;
            for (int32_t i = 0; i < s->mesh->axes; i++) {
                to.place[i] = (uint8_t)(to.place[i] + (to.at[i] == TRMI_SPLIT + d && to.place[i] >= place));
            }
            to.place[axis] = (uint8_t)place;
            to.at[axis] = (uint8_t)(TRMI_SPLIT + d);
            if (!trmi_spread_equal(&to, &from)) {
                relax_box_move(s, at, &to);
            }
        }
    }
}

/* Any of the axes that the target has partial: zeros where this rank holds nothing. Cuts that go must be the
 * innermost of their dimension. */
static void relax_demoted(search *s, int32_t at) {
    trmi_spread from = s->nodes[at].spread;
    uint32_t all = 0;
    for (int32_t i = 0; i < s->mesh->axes; i++) {
        all |= s->target->at[i] == TRMI_PARTIAL_SUM && !trmi_is_partial(from.at[i]) ? 1u << i : 0;
    }
    for (uint32_t mask = all; mask != 0; mask = (mask - 1) & all) {
        trmi_route_step step = {.move = TRMI_MOVE_LOCAL, .to = from};
        bool innermost = true;
        for (int32_t i = 0; i < s->mesh->axes; i++) {
            if (mask >> i & 1) {
                for (int32_t j = 0; j < s->mesh->axes; j++) {
                    innermost = innermost && (mask >> j & 1 || from.at[i] < TRMI_SPLIT || from.at[j] != from.at[i] ||
                                              from.place[j] < from.place[i]);
                }
                step.to.at[i] = TRMI_PARTIAL_SUM;
                step.to.place[i] = 0;
            }
        }
        step.bytes = (double)trmi_spread_most(s->mesh, s->shape, &step.to) * (double)s->element;
        step.seconds = trmi_price(s->prices, s->mesh, step.move, 0, step.bytes);
        if (innermost) {
            relax(s, at, &step);
        }
    }
}

/* Straight to the target, but for axes that are still partial. */
static void relax_direct(search *s, int32_t at) {
    const trmi_spread *from = &s->nodes[at].spread;
    trmi_spread to = *s->target;
    for (int32_t i = 0; i < s->mesh->axes; i++) {
        if (trmi_is_partial(from->at[i])) {
            for (int32_t j = 0; j < s->mesh->axes; j++) {
                to.place[j] = (uint8_t)(to.place[j] - (to.at[i] >= TRMI_SPLIT && to.at[j] == to.at[i] &&
                                                       to.place[j] > to.place[i]));
            }
            to.at[i] = from->at[i];
            to.place[i] = 0;
        } else if (trmi_is_partial(to.at[i])) {
            return;
        }
    }
    relax_box_move(s, at, &to);
}

static trm_status trace(const search *s, int32_t at, trmi_route *out, trm_error *err) {
    *out = (trmi_route){.seconds = s->nodes[at].seconds};
    for (int32_t i = at; i != 0; i = s->nodes[i].previous) {
        out->count++;
    }
    if (out->count > TRMI_ROUTE_STEPS) {
        return TRMI_FAIL(err, TRM_INTERNAL, "a route of %d moves, at most %d expected", out->count, TRMI_ROUTE_STEPS);
    }
    int32_t place = out->count;
    for (int32_t i = at; i != 0; i = s->nodes[i].previous) {
        out->steps[--place] = s->nodes[i].step;
        int64_t part = trmi_spread_most(s->mesh, s->shape, &s->nodes[i].spread);
        out->peak_elements = part > out->peak_elements ? part : out->peak_elements;
    }
    int64_t part = trmi_spread_most(s->mesh, s->shape, &s->nodes[0].spread);
    out->peak_elements = part > out->peak_elements ? part : out->peak_elements;
    return TRM_OK;
}

static trm_status no_route(const search *s, const trmi_spread *from, trm_error *err) {
    char shape[96], a[64], b[64];
    return TRMI_FAIL(err, TRM_INVALID, "no way from %s to %s for a tensor of %s%s",
                     trmi_spread_text(s->mesh, from, a, sizeof a), trmi_spread_text(s->mesh, s->target, b, sizeof b),
                     trm_shape_format(s->shape, shape, sizeof shape),
                     s->bound > 0 ? " within the bound on intermediate parts" : "");
}

static trm_status find(search *s, const trmi_spread *from, trmi_route *out, trm_error *err) {
    if (!trmi_spread_fits(s->mesh, s->shape, from) || !trmi_spread_fits(s->mesh, s->shape, s->target) ||
        !trmi_grow((void **)&s->nodes, &s->capacity, 64, sizeof *s->nodes)) {
        return no_route(s, from, err);
    }
    s->nodes[s->count++] = (node){.spread = *from, .previous = -1};
    for (;;) {
        int32_t best = -1;
        for (int32_t i = 0; i < s->count; i++) {
            if (!s->nodes[i].settled && s->nodes[i].seconds < INFINITY &&
                (best < 0 || s->nodes[i].seconds < s->nodes[best].seconds)) {
                best = i;
            }
        }
        if (best < 0 || s->failed) {
            return s->failed ? TRMI_FAIL(err, TRM_NOMEM, "no memory to find a route") : no_route(s, from, err);
        }
        s->nodes[best].settled = true;
        if (trmi_spread_equal(&s->nodes[best].spread, s->target)) {
            return trace(s, best, out, err);
        }
        for (uint8_t letter = TRMI_PARTIAL_SUM; letter < TRMI_SPLIT; letter++) {
            relax_partials(s, best, letter);
        }
        for (int32_t axis = 0; axis < s->mesh->axes; axis++) {
            relax_axis(s, best, axis);
        }
        relax_demoted(s, best);
        relax_direct(s, best);
    }
}

/* ---- the router remembers -------------------------------------------------------------------------------- */

typedef struct entry {
    trm_shape shape;
    int64_t element, bound;
    uint32_t from, to;
    trmi_route route;
    bool none;
} entry;

struct trmi_router {
    trmi_mesh mesh;
    trmi_prices prices;
    entry *entries;
    int64_t count, capacity;
    int64_t *table; /* hash -> entry + 1 */
    int64_t slots;
};

trm_status trmi_router_create(const trmi_mesh *mesh, const trmi_prices *prices, trmi_router **out, trm_error *err) {
    trmi_router *r = trmi_alloc(sizeof *r);
    if (r == NULL) {
        return TRMI_FAIL(err, TRM_NOMEM, "no memory for routes");
    }
    r->mesh = *mesh;
    r->prices = prices != NULL ? *prices : (trmi_prices){0};
    *out = r;
    return TRM_OK;
}

void trmi_router_destroy(trmi_router *r) {
    if (r != NULL) {
        free(r->entries);
        free(r->table);
        trmi_free(r);
    }
}

const trmi_mesh *trmi_router_mesh(const trmi_router *r) { return &r->mesh; }

static uint64_t hash_of(const entry *e) {
    uint64_t h = 0xCBF29CE484222325ull;
    for (int32_t i = 0; i < e->shape.rank; i++) {
        h = (h ^ (uint64_t)e->shape.dim[i]) * 0x100000001B3ull;
    }
    h = (h ^ e->from) * 0x100000001B3ull;
    h = (h ^ e->to) * 0x100000001B3ull;
    h = (h ^ (uint64_t)e->element ^ (uint64_t)e->bound << 8) * 0x100000001B3ull;
    return h ^ h >> 29;
}

static bool same_query(const entry *a, const entry *b) {
    return a->from == b->from && a->to == b->to && a->element == b->element && a->bound == b->bound &&
           trm_shape_equal(&a->shape, &b->shape);
}

static int64_t *slot_of(const trmi_router *r, const entry *e) {
    uint64_t at = hash_of(e) & (uint64_t)(r->slots - 1);
    while (r->table[at] != 0 && !same_query(&r->entries[r->table[at] - 1], e)) {
        at = (at + 1) & (uint64_t)(r->slots - 1);
    }
    return &r->table[at];
}

static bool make_room(trmi_router *r) {
    if (!trmi_grow((void **)&r->entries, &r->capacity, r->count + 1, sizeof *r->entries)) {
        return false;
    }
    if (r->slots >= 2 * (r->count + 1)) {
        return true;
    }
    int64_t slots = r->slots == 0 ? 256 : 2 * r->slots;
    int64_t *table = calloc((size_t)slots, sizeof *table);
    if (table == NULL) {
        return false;
    }
    free(r->table);
    r->table = table;
    r->slots = slots;
    for (int64_t i = 0; i < r->count; i++) {
        *slot_of(r, &r->entries[i]) = i + 1;
    }
    return true;
}

trm_status trmi_route_find(trmi_router *r, const trm_shape *shape, trm_dtype dtype, const trmi_spread *from,
                           const trmi_spread *to, int64_t peak_elements, trmi_route *out, trm_error *err) {
    if (trmi_spread_equal(from, to)) {
        *out = (trmi_route){.peak_elements = trmi_spread_most(&r->mesh, shape, from)};
        return TRM_OK;
    }
    entry query = {.shape = *shape, .element = (int64_t)trm_dtype_bytes(dtype), .bound = peak_elements,
                   .from = trmi_spread_key(from), .to = trmi_spread_key(to)};
    if (!make_room(r)) {
        return TRMI_FAIL(err, TRM_NOMEM, "no memory for routes");
    }
    int64_t *slot = slot_of(r, &query);
    if (*slot != 0 && !r->entries[*slot - 1].none) {
        *out = r->entries[*slot - 1].route;
        return TRM_OK;
    }
    search s = {.mesh = &r->mesh, .prices = &r->prices, .shape = shape, .target = to, .element = query.element,
                .bound = peak_elements};
    trm_status status = *slot != 0 ? no_route(&s, from, err) : find(&s, from, &query.route, err);
    free(s.nodes);
    query.none = status != TRM_OK;
    if (*slot == 0 && status != TRM_NOMEM) {
        r->entries[r->count++] = query;
        *slot = r->count;
    }
    if (status == TRM_OK) {
        *out = query.route;
    }
    return status;
}

double trmi_route_seconds(trmi_router *r, const trm_shape *shape, trm_dtype dtype, const trmi_spread *from,
                          const trmi_spread *to) {
    trmi_route route;
    trm_error err;
    return trmi_route_find(r, shape, dtype, from, to, 0, &route, &err) == TRM_OK ? route.seconds : INFINITY;
}
