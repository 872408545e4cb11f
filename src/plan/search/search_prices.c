/* SPDX-License-Identifier: Apache-2.0 */
/* Computes the prices between all spreads of a shape at once, with the moves of the router
 * (plan/partition/spread_route.c). First single moves: one axis to another letter, or partial sums
 * to whole or cut. Then sequences of them, as (min,+) squares of that table. Last the direct
 * exchange of boxes, which can only end a route.
 *
 *      number of a spread = its letters as digits, the last axis fastest; letters: whole, P+, cut
 *      0, cut 1 ...,
 *      and Pmax for vectors and matrices, the only shapes where it occurs
 *
 * A table contains only spreads in mesh order. The test plan/search/search_test.c compares the
 * prices with the router's. */
#include "plan/search/search.h"

#include "base/cpu.h"
#include "base/error.h"

#include <math.h>
#include <string.h>

/* A quarter of the most spreads of a table; ranks that are examined; sets of axes. */
enum { SPREADS_MAX = 1300, LOOK = 16, MASKS = 1 << TRMI_MESH_AXES };

/* Lengths along one dimension on each examined rank, for the sets of axes that cut it. */
typedef struct lengths {
    int64_t own[MASKS][LOOK]; /* [axes after][rank] */
    /* [axes before][axes after][rank] overlap of both intervals */
    int64_t kept[MASKS][MASKS][LOOK];
} lengths;

/* State while a table is filled. */
typedef struct filling {
    trmi_price_table *t;
    const trmi_mesh *mesh;
    const trmi_prices *prices;
    trmi_spread *spreads; /* [count] */
    lengths *along;       /* [rank of the shape] */
    uint32_t *masks;      /* [count][rank of the shape]: axes that cut each dimension */
    int64_t *most;        /* [count] elements of the largest part */
    int32_t look;
    int64_t element;
} filling;

/* Returns the digit of a letter; -1: no such letter. */
static int32_t digit_of(const trmi_price_table *t, uint8_t letter) {
    return letter == TRMI_WHOLE         ? 0
           : letter == TRMI_PARTIAL_SUM ? 1
           : letter == TRMI_PARTIAL_MAX ? 2 + t->shape.rank
           : letter >= TRMI_SPLIT       ? 2 + letter - TRMI_SPLIT
                                        : -1;
}

/* Contract in search.h. -1: the table does not have this spread. */
int32_t trmi_price_number(const trmi_price_table *t, const trmi_mesh *mesh, const trmi_spread *s) {
    int32_t number = 0;
    for (int32_t i = 0; i < mesh->axes; i++) {
        int32_t digit = digit_of(t, s->at[i]), before = 0;
        for (int32_t j = 0; j < i; j++) {
            before += s->at[j] == s->at[i] && s->at[i] >= TRMI_SPLIT;
        }
        if (digit < 0 || digit >= t->letters || (s->at[i] >= TRMI_SPLIT && s->place[i] != before)) {
            return -1;
        }
        number = number * t->letters + digit;
    }
    return number;
}

/* Returns the seconds of the cheapest route between two spreads; INFINITY: none. */
static double price_between(const trmi_price_table *t, const trmi_mesh *mesh,
                            const trmi_spread *from, const trmi_spread *to) {
    int32_t a = trmi_price_number(t, mesh, from), b = trmi_price_number(t, mesh, to);
    return a < 0 || b < 0 ? INFINITY : (double)t->seconds[(int64_t)a * t->count + b];
}

/* Contract in search.h. All shapes between nodes have a table; others have no price. */
double trmi_space_move_seconds(const trmi_space *s, int32_t value, const trmi_spread *from,
                               const trmi_spread *to) {
    const trmi_value *v = &s->graph->values[value];
    for (int64_t i = 0; i < s->prices_count; i++) {
        if (s->prices_of[i].dtype == v->dtype &&
            trm_shape_equal(&s->prices_of[i].shape, &v->shape)) {
            return price_between(&s->prices_of[i], &s->mesh, from, to);
        }
    }
    return INFINITY;
}

/* Returns the spread of a number. */
static trmi_spread spread_of(const trmi_price_table *t, const trmi_mesh *mesh, int32_t number) {
    trmi_spread s = {{0}, {0}};
    for (int32_t i = mesh->axes - 1; i >= 0; i--) {
        int32_t digit = number % t->letters;
        number /= t->letters;
        s.at[i] = digit == 0                   ? TRMI_WHOLE
                  : digit == 1                 ? TRMI_PARTIAL_SUM
                  : digit == 2 + t->shape.rank ? TRMI_PARTIAL_MAX
                                               : (uint8_t)(TRMI_SPLIT + digit - 2);
    }
    for (int32_t i = 0; i < mesh->axes; i++) {
        for (int32_t j = 0; j < i && s.at[i] >= TRMI_SPLIT; j++) {
            s.place[i] = (uint8_t)(s.place[i] + (s.at[j] == s.at[i]));
        }
    }
    return s;
}

/* Returns the axes that have a letter, as bits. */
static uint32_t mask_of(const trmi_mesh *mesh, const trmi_spread *s, uint8_t letter) {
    uint32_t mask = 0;
    for (int32_t i = 0; i < mesh->axes; i++) {
        mask |= s->at[i] == letter ? 1u << i : 0;
    }
    return mask;
}

/* ---- lengths ---- */

/* Computes the interval [begin, end) of the rank at `at` when `length` is cut by the axes of `mask`
 * in mesh order, as trmi_spread_box() does. */
static void interval_of(const trmi_mesh *mesh, const int32_t *at, uint32_t mask, int64_t length,
                        int64_t *begin, int64_t *end) {
    *begin = 0;
    for (int32_t i = 0; i < mesh->axes; i++) {
        if (mask >> i & 1) {
            int64_t each = length / mesh->size[i], more = length % mesh->size[i], mine = at[i];
            *begin += mine * each + (mine < more ? mine : more);
            length = each + (mine < more);
        }
    }
    *end = *begin + length;
}

/* Computes all lengths for up to LOOK ranks, evenly spaced over the mesh. */
static void fill_lengths(filling *f) {
    int32_t ranks = trmi_mesh_ranks(f->mesh), at[TRMI_MESH_AXES];
    uint32_t masks = 1u << f->mesh->axes;
    f->look = ranks < LOOK ? ranks : LOOK;
    for (int32_t r = 0; r < f->look; r++) {
        trmi_mesh_coordinates(f->mesh, (int32_t)((int64_t)r * ranks / f->look), at);
        for (int32_t d = 0; d < f->t->shape.rank; d++) {
            for (uint32_t a = 0; a < masks; a++) {
                int64_t a0, a1, b0, b1;
                interval_of(f->mesh, at, a, f->t->shape.dim[d], &a0, &a1);
                f->along[d].own[a][r] = a1 - a0;
                for (uint32_t b = 0; b < masks; b++) {
                    interval_of(f->mesh, at, b, f->t->shape.dim[d], &b0, &b1);
                    int64_t from = a0 > b0 ? a0 : b0, to = a1 < b1 ? a1 : b1;
                    f->along[d].kept[a][b][r] = to > from ? to - from : 0;
                }
            }
        }
    }
}

/* Returns the bytes that the rank with most receives. *largest: bytes of the largest part
 * afterwards. before, after: axes that cut each dimension. */
static double received_bytes(const filling *f, const uint32_t *before, const uint32_t *after,
                             double *largest) {
    int64_t most = 0, part = 0;
    for (int32_t r = 0; r < f->look; r++) {
        int64_t own = 1, kept = 1;
        for (int32_t d = 0; d < f->t->shape.rank; d++) {
            own *= f->along[d].own[after[d]][r];
            kept *= f->along[d].kept[before[d]][after[d]][r];
        }
        most = own - kept > most ? own - kept : most;
        part = own > part ? own : part;
    }
    *largest = (double)part * (double)f->element;
    return (double)most * (double)f->element;
}

/* ---- single moves ---- */

/* Returns the axes whose ranks must communicate; the same as
 * communicating_axes() in plan/partition/spread_route.c for cuts in mesh order. */
static uint32_t talk_axes(const filling *f, const uint32_t *before, const uint32_t *after) {
    uint32_t mask = 0;
    for (int32_t d = 0; d < f->t->shape.rank; d++) {
        uint32_t a = before[d], b = after[d];
        while (a != 0 && b != 0 && (a & -a) == (b & -b)) {
            a &= a - 1;
            b &= b - 1;
        }
        mask |= a;
    }
    return mask;
}

/* Returns the seconds of moving boxes to boxes: a local copy, an all-gather, an all-to-all or a
 * general exchange. */
static double box_move(const filling *f, const trmi_spread *from, const trmi_spread *to,
                       const uint32_t *before, const uint32_t *after) {
    double largest, bytes = received_bytes(f, before, after, &largest);
    uint32_t mask = talk_axes(f, before, after);
    if (mask == 0) {
        return trmi_price(f->prices, f->mesh, TRMI_MOVE_LOCAL, 0, largest);
    }
    bool gather = true, swap = true;
    for (int32_t i = 0; i < f->mesh->axes; i++) {
        bool talks = mask >> i & 1;
        gather = gather && (talks ? to->at[i] == TRMI_WHOLE
                                  : to->at[i] == from->at[i] && to->place[i] == from->place[i]);
        swap = swap && (!talks || (to->at[i] >= TRMI_SPLIT && to->at[i] != from->at[i]));
    }
    trmi_move move = gather ? TRMI_MOVE_ALL_GATHER
                     : swap ? TRMI_MOVE_ALL_TO_ALL
                            : TRMI_MOVE_EXCHANGE;
    return trmi_price(f->prices, f->mesh, move, mask, gather ? largest : bytes);
}

/* Returns the seconds of reducing the partial axes that differ, all other axes unchanged; INFINITY
 * if the change is no such move. part: elements of the largest part. */
static double reduce_move(const filling *f, const trmi_spread *from, const trmi_spread *to,
                          int64_t part) {
    uint8_t target = 0xff, kind = 0;
    uint32_t mask = 0;
    /* all axes that differ must resolve the same kind of partial value in the same way */
    for (int32_t i = 0; i < f->mesh->axes; i++) {
        if (from->at[i] == to->at[i]) {
            continue;
        }
        bool resolves = trmi_is_partial(from->at[i]) && !trmi_is_partial(to->at[i]);
        if (!resolves || (mask != 0 && (to->at[i] != target || from->at[i] != kind))) {
            return INFINITY;
        }
        target = to->at[i];
        kind = from->at[i];
        mask |= 1u << i;
    }
    if (kind != TRMI_PARTIAL_SUM && target != TRMI_WHOLE) {
        return INFINITY;
    }
    /* a new cut must lie inside the existing cuts of that dimension */
    for (int32_t i = 0; target >= TRMI_SPLIT && i < f->mesh->axes; i++) {
        for (int32_t j = i + 1; j < f->mesh->axes; j++) {
            if ((mask >> i & 1) && !(mask >> j & 1) && to->at[j] == target) {
                return INFINITY;
            }
        }
    }
    trmi_move move = target == TRMI_WHOLE ? TRMI_MOVE_ALL_REDUCE : TRMI_MOVE_REDUCE_SCATTER;
    return trmi_price(f->prices, f->mesh, move, mask, (double)part * (double)f->element);
}

/* Returns whether no later axis cuts the same dimension as `axis`. */
static bool is_innermost(const filling *f, const trmi_spread *s, int32_t axis) {
    for (int32_t i = axis + 1; i < f->mesh->axes; i++) {
        if (s->at[axis] >= TRMI_SPLIT && s->at[i] == s->at[axis]) {
            return false;
        }
    }
    return true;
}

/* Returns the seconds of a move between boxes; partial axes do not change. */
static double price_boxes(const filling *f, const trmi_spread *from, const trmi_spread *to) {
    int32_t rank = f->t->shape.rank;
    return box_move(f, from, to, f->masks + (from - f->spreads) * rank,
                    f->masks + (to - f->spreads) * rank);
}

/* Returns the seconds of one direct exchange; INFINITY if it would change a partial axis. */
static double price_direct(const filling *f, int32_t a, int32_t b) {
    const trmi_spread *from = &f->spreads[a], *to = &f->spreads[b];
    for (int32_t i = 0; i < f->mesh->axes; i++) {
        if (from->at[i] != to->at[i] &&
            (trmi_is_partial(from->at[i]) || trmi_is_partial(to->at[i]))) {
            return INFINITY;
        }
    }
    return price_boxes(f, from, to);
}

/* Returns the seconds of a single move: reduction, or a change of one axis; INFINITY: no single
 * move. */
static double price_single(const filling *f, int32_t a, int32_t b) {
    const trmi_spread *from = &f->spreads[a], *to = &f->spreads[b];
    int32_t axis = -1, changed = 0;
    bool resolves = false;
    for (int32_t i = 0; i < f->mesh->axes; i++) {
        if (from->at[i] != to->at[i]) {
            axis = i;
            changed++;
            resolves = resolves || trmi_is_partial(from->at[i]);
        }
    }
    if (resolves) {
        return reduce_move(f, from, to, f->most[a]);
    }
    if (changed != 1 || !is_innermost(f, from, axis) || !is_innermost(f, to, axis)) {
        return INFINITY;
    }
    return trmi_is_partial(to->at[axis]) ? INFINITY : price_boxes(f, from, to);
}

/* A route to a spread with one partial sum more: to `before`, which is whole or cut on that axis,
 * then zeros elsewhere, which sends nothing. Numbers of live spreads. */
typedef struct zero_route {
    int32_t to, before;
    float local;
} zero_route;

/* Lists the routes to all spreads with `partials` partial sums; returns how many. */
static int64_t list_zeros(const filling *f, int32_t partials, int32_t live, const int32_t *of,
                          const int32_t *place, zero_route *routes) {
    int64_t found = 0;
    for (int32_t k = 0; k < live; k++) {
        const trmi_spread *to = &f->spreads[of[k]];
        /* spreads with so many partial sums */
        int32_t count = 0;
        for (int32_t i = 0; i < f->mesh->axes; i++) {
            count += to->at[i] == TRMI_PARTIAL_SUM;
        }
        if (count != partials) {
            continue;
        }
        double bytes = (double)f->most[of[k]] * (double)f->element;
        float local = (float)trmi_price(f->prices, f->mesh, TRMI_MOVE_LOCAL, 0, bytes);
        for (int32_t i = 0, step = 1; i < f->mesh->axes; i++) {
            int32_t axis = f->mesh->axes - 1 - i;
            for (int32_t d = -1; to->at[axis] == TRMI_PARTIAL_SUM && d < f->t->shape.rank; d++) {
                /* digit 1 is P+, 0 whole, 2 + d cut */
                int32_t before = of[k] + (d < 0 ? -step : (1 + d) * step);
                if (place[before] >= 0 && is_innermost(f, &f->spreads[before], axis)) {
                    routes[found++] = (zero_route){k, place[before], local};
                }
            }
            step *= f->t->letters;
        }
    }
    return found;
}

/* Adds routes to spreads with additional partial sums to all rows of a [live x live], each the
 * seconds from one spread to all. Spreads with more partial axes are derived from those with fewer.
 * False: no memory. */
static bool add_zeros(const filling *f, float *a, int32_t live, const int32_t *of,
                      const int32_t *place) {
    size_t most = (size_t)live * (size_t)f->mesh->axes * (size_t)(f->t->shape.rank + 1);
    zero_route *routes = trmi_alloc((most + 1) * sizeof *routes);
    int64_t count = 0;
    for (int32_t partials = 1; routes != NULL && partials <= f->mesh->axes; partials++) {
        count += list_zeros(f, partials, live, of, place, routes + count);
    }
    for (int32_t i = 0; i < live; i++) {
        float *row = a + (int64_t)i * live;
        for (int64_t w = 0; w < count; w++) {
            float sum = row[routes[w].before] + routes[w].local;
            row[routes[w].to] = sum < row[routes[w].to] ? sum : row[routes[w].to];
        }
    }
    bool ok = routes != NULL;
    trmi_free(routes);
    return ok;
}

/* ---- all ---- */

/* Returns the (min,+) product for this CPU. */
static trmi_minplus *minplus_kernel(void) { return TRMI_CPU_CHOICE(trmi_minplus); }

/* Computes all prices and writes them to the table. Works on the `live` spreads that fit the shape,
 * so that the products are small. of: live -> number; place: number -> live or -1. False: no
 * memory. */
static bool close_table(filling *f, int32_t live, const int32_t *of, const int32_t *place) {
    float *a = trmi_alloc((size_t)live * (size_t)live * sizeof *a),
          *b = trmi_alloc((size_t)live * (size_t)live * sizeof *b);
    bool ok = a != NULL && b != NULL;
    /* Enter single moves, ... */
    for (int32_t i = 0; ok && i < live; i++) {
        for (int32_t k = 0; k < live; k++) {
            a[(int64_t)i * live + k] = i == k ? 0 : (float)price_single(f, of[i], of[k]);
        }
    }
    float *c = trmi_alloc((size_t)live * (size_t)live * sizeof *c);
    ok = ok && c != NULL;
    /* ... then sequences of moves: the square of a table holds twice as many. */
    for (int32_t moves = 1; ok && moves < 2 * f->mesh->axes; moves *= 2) {
        minplus_kernel()(a, a, b, live, live, live);
        float *swap = a;
        a = b;
        b = swap;
    }
    /* A direct exchange may come last. */
    for (int32_t i = 0; ok && f->mesh->axes > 1 && i < live; i++) {
        for (int32_t k = 0; k < live; k++) {
            b[(int64_t)i * live + k] = i == k ? 0 : (float)price_direct(f, of[i], of[k]);
        }
    }
    if (ok && f->mesh->axes > 1) {
        minplus_kernel()(a, b, c, live, live, live);
        memcpy(a, c, (size_t)live * (size_t)live * sizeof *c);
    }
    /* routes to partial sums, then the prices go into the table */
    ok = ok && add_zeros(f, a, live, of, place);
    for (int32_t i = 0; ok && i < live; i++) {
        for (int32_t k = 0; k < live; k++) {
            f->t->seconds[(int64_t)of[i] * f->t->count + of[k]] = a[(int64_t)i * live + k];
        }
    }
    trmi_free(a);
    trmi_free(b);
    trmi_free(c);
    return ok;
}

/* Contract in search.h. Prices direct moves between all spreads that fit, then closes the table:
 * a move through other spreads may be cheaper than the direct one (shortest paths). */
trm_status trmi_price_table_fill(trmi_price_table *t, const trmi_mesh *mesh,
                                 const trmi_prices *prices, trmi_arena *arena, trm_error *err) {
    filling f = {
        .t = t, .mesh = mesh, .prices = prices, .element = (int64_t)trm_dtype_bytes(t->dtype)};
    t->letters = 2 + t->shape.rank + (t->shape.rank <= 2);
    t->count = 1;
    for (int32_t i = 0; i < mesh->axes; i++) {
        t->count *= t->letters;
    }
    if (t->count > SPREADS_MAX * 4) {
        return TRMI_FAIL(err, TRM_UNSUPPORTED,
                         "a tensor of %d dimensions on a mesh of %d axes has %d spreads, at "
                         "most %d are priced; take a mesh of fewer axes",
                         t->shape.rank, mesh->axes, t->count, SPREADS_MAX * 4);
    }
    /* memory for all pairs of spreads */
    size_t count = (size_t)t->count;
    t->seconds = trmi_arena_alloc(arena, count * count * sizeof *t->seconds);
    f.spreads = trmi_alloc(count * sizeof *f.spreads);
    f.along = trmi_alloc(((size_t)t->shape.rank + 1) * sizeof *f.along);
    f.masks = trmi_alloc((count * (size_t)t->shape.rank + 1) * sizeof *f.masks);
    f.most = trmi_alloc(count * sizeof *f.most);
    int32_t *of = trmi_alloc(2 * count * sizeof *of), *place = of + count, live = 0;
    bool ok = t->seconds != NULL && f.spreads != NULL && f.along != NULL && of != NULL &&
              f.masks != NULL && f.most != NULL;
    if (ok) {
        /* no route, until one is found; then the spreads that fit */
        for (size_t i = 0; i < count * count; i++) {
            t->seconds[i] = INFINITY;
        }
        for (int32_t i = 0; i < t->count; i++) {
            f.spreads[i] = spread_of(t, mesh, i);
            for (int32_t d = 0; d < t->shape.rank; d++) {
                f.masks[(int64_t)i * t->shape.rank + d] =
                    mask_of(mesh, &f.spreads[i], (uint8_t)(TRMI_SPLIT + d));
            }
            bool columns = t->no_columns && t->shape.rank == 4 &&
                           mask_of(mesh, &f.spreads[i], TRMI_SPLIT + 3) != 0;
            bool fits = !columns && trmi_spread_fits(mesh, &t->shape, &f.spreads[i]);
            f.most[i] = fits ? trmi_spread_most(mesh, &t->shape, &f.spreads[i]) : 0;
            of[live] = i;
            place[i] = fits ? live : -1;
            live += fits;
        }
        fill_lengths(&f);
        ok = close_table(&f, live, of, place);
    }
    trmi_free(f.spreads);
    trmi_free(f.along);
    trmi_free(f.masks);
    trmi_free(f.most);
    trmi_free(of);
    return ok ? TRM_OK : TRMI_NO_MEMORY(err, "for prices between spreads");
}
