/* SPDX-License-Identifier: Apache-2.0 */
/* Routes for every pair of spreads on small meshes: the result of a route, played on all ranks in
 * memory (tests/lib/spreads.h), and its price, compared with a search over the graph of all
 * spreads.
 *
 * So a route is both right (each rank ends with its part) and cheapest. With a limit of memory the
 * cheapest route within the limit is expected. */
#include "check.h"
#include "tests/lib/spreads.h"

#include "plan/partition/partition.h"

#include "base/rng.h"

#include <math.h>

enum { RANKS = 8, ELEMENTS = 256 };

/* One tensor on all ranks of a mesh. */
typedef struct world {
    trmi_mesh mesh;
    trm_shape shape;
    int32_t ranks;
    uint8_t partial;              /* letter of partial axes: sum, maximum or minimum */
    double global[ELEMENTS];      /* the tensor, row-major */
    double part[RANKS][ELEMENTS]; /* row-major in the rank's box */
} world;

/* Returns the index in the tensor of element `local` of a box. */
static int64_t global_index(const trm_shape *s, const trmi_box *box, int64_t local) {
    int64_t index = 0, stride = 1;
    for (int32_t d = s->rank - 1; d >= 0; d--) {
        int64_t length = box->end[d] - box->begin[d];
        index += (box->begin[d] + local % length) * stride;
        local /= length;
        stride *= s->dim[d];
    }
    return index;
}

/* Returns the index of a global element in a box; -1 outside. */
static int64_t local_index(const trm_shape *s, const trmi_box *box, int64_t global) {
    int64_t at[TRM_MAX_RANK], index = 0;
    for (int32_t d = s->rank - 1; d >= 0; d--) {
        at[d] = global % s->dim[d];
        global /= s->dim[d];
    }
    for (int32_t d = 0; d < s->rank; d++) {
        if (at[d] < box->begin[d] || at[d] >= box->end[d]) {
            return -1;
        }
        index = index * (box->end[d] - box->begin[d]) + at[d] - box->begin[d];
    }
    return index;
}

/* Returns whether ranks a and b differ only on `axes`. */
static bool same_group(const trmi_mesh *m, uint32_t axes, int32_t a, int32_t b) {
    int32_t x[TRMI_MESH_AXES], y[TRMI_MESH_AXES];
    trmi_mesh_coordinates(m, a, x);
    trmi_mesh_coordinates(m, b, y);
    for (int32_t i = 0; i < m->axes; i++) {
        if (!(axes >> i & 1) && x[i] != y[i]) {
            return false;
        }
    }
    return true;
}

/* Returns whether a rank is the first one of its group over the partial axes. */
static bool first_of_partials(const world *w, const trmi_spread *s, int32_t rank) {
    int32_t at[TRMI_MESH_AXES];
    trmi_mesh_coordinates(&w->mesh, rank, at);
    bool first = true;
    for (int32_t i = 0; i < w->mesh.axes; i++) {
        first = first && (!trmi_is_partial(s->at[i]) || at[i] == 0);
    }
    return first;
}

/* Returns a and b combined as the partial axes of the test are: sum, maximum or minimum. */
static double combine_values(const world *w, double a, double b) {
    return w->partial == TRMI_PARTIAL_SUM   ? a + b
           : w->partial == TRMI_PARTIAL_MAX ? fmax(a, b)
                                            : fmin(a, b);
}

/* Returns a value for a maximum or minimum: one rank of each group, a different one for each
 * element, has the extreme; the others have less, or more. */
static double extreme_value(const world *w, uint32_t partial, int32_t rank, int64_t element,
                            double less) {
    int32_t place = 0;
    for (int32_t r = 0; r < rank; r++) {
        place += same_group(&w->mesh, partial, r, rank);
    }
    bool has = element % trmi_mesh_group(&w->mesh, partial) == place;
    return w->global[element] + (has ? 0 : w->partial == TRMI_PARTIAL_MAX ? -less : less);
}

/* Fills the parts: for sums every rank gets a random share and the first one the remainder (sums of
 * small integers are exact). */
static void fill_parts(world *w, const trmi_spread *s, uint64_t *counter) {
    uint32_t partial = 0;
    for (int32_t i = 0; i < w->mesh.axes; i++) {
        partial |= trmi_is_partial(s->at[i]) ? 1u << i : 0;
    }
    double share[RANKS][ELEMENTS];
    for (int32_t r = 0; r < w->ranks; r++) {
        for (int64_t i = 0; i < trm_shape_count(&w->shape); i++) {
            share[r][i] = (double)(trmi_random_u32(9, TRMI_STREAM_TEST, (*counter)++) % 64);
        }
    }
    for (int32_t r = 0; r < w->ranks; r++) {
        trmi_box box = trmi_spread_box(&w->mesh, &w->shape, s, r);
        for (int64_t i = 0; i < trmi_box_count(&box); i++) {
            int64_t g = global_index(&w->shape, &box, i);
            double value = partial == 0 ? w->global[g] : share[r][g];
            if (partial != 0 && w->partial != TRMI_PARTIAL_SUM) {
                value = extreme_value(w, partial, r, g, share[r][g] + 1);
            } else if (partial != 0 && first_of_partials(w, s, r)) {
                value = w->global[g];
                for (int32_t o = 0; o < w->ranks; o++) {
                    value -= o != r && same_group(&w->mesh, partial, r, o) ? share[o][g] : 0;
                }
            }
            w->part[r][i] = value;
        }
    }
}

/* Plays one move on all ranks: exchanges, reductions, local copies. */
static void play_move(world *w, const trmi_spread *from, const trmi_route_step *step) {
    static double next[RANKS][ELEMENTS];
    bool combines = step->move == TRMI_MOVE_ALL_REDUCE || step->move == TRMI_MOVE_REDUCE_SCATTER;
    for (int32_t r = 0; r < w->ranks; r++) {
        trmi_box wants = trmi_spread_box(&w->mesh, &w->shape, &step->to, r);
        /* S or R to P(sum): zeros, except where this rank holds the data */
        bool demoted = false;
        int32_t at[TRMI_MESH_AXES];
        trmi_mesh_coordinates(&w->mesh, r, at);
        for (int32_t i = 0; i < w->mesh.axes; i++) {
            demoted = demoted || (from->at[i] == TRMI_WHOLE && step->to.at[i] == TRMI_PARTIAL_SUM &&
                                  at[i] != 0);
        }
        for (int64_t i = 0; i < trmi_box_count(&wants); i++) {
            int64_t g = global_index(&w->shape, &wants, i);
            bool found = false;
            double value = 0;
            for (int32_t o = 0; o < w->ranks; o++) {
                trmi_box has = trmi_spread_box(&w->mesh, &w->shape, from, o);
                int64_t there =
                    same_group(&w->mesh, step->axes, r, o) ? local_index(&w->shape, &has, g) : -1;
                if (there >= 0) {
                    value = combines && found ? combine_values(w, value, w->part[o][there])
                                              : w->part[o][there];
                    found = true;
                }
            }
            assert_true(found || step->move == TRMI_MOVE_LOCAL);
            next[r][i] = demoted ? 0 : value;
        }
    }
    memcpy(w->part, next, sizeof next);
}

/* Checks that the parts, combined over the partial axes, are the tensor. */
static void check_parts(world *w, const trmi_spread *s) {
    uint32_t partial = 0;
    for (int32_t i = 0; i < w->mesh.axes; i++) {
        partial |= trmi_is_partial(s->at[i]) ? 1u << i : 0;
    }
    for (int32_t r = 0; r < w->ranks; r++) {
        trmi_box box = trmi_spread_box(&w->mesh, &w->shape, s, r);
        for (int64_t i = 0; i < trmi_box_count(&box); i++) {
            double value = w->part[r][i];
            for (int32_t o = 0; o < w->ranks; o++) {
                value = o != r && same_group(&w->mesh, partial, r, o)
                            ? combine_values(w, value, w->part[o][i])
                            : value;
            }
            assert_true(value == w->global[global_index(&w->shape, &box, i)]);
        }
    }
}

/* ---- price: brute force ---- */

/* Returns the price of one move from a to b, INFINITY if there is none. Written from the table of
 * moves, independently of the router. */
static double one_move(const world *w, const trmi_prices *prices, const trmi_spread *a,
                       const trmi_spread *b) {
    uint32_t sums = 0, made = 0, other = 0;
    int letters[TRMI_MESH_AXES], count = 0;
    for (int32_t i = 0; i < w->mesh.axes; i++) {
        bool was = a->at[i] == w->partial, is = b->at[i] == w->partial;
        if (was && !is) {
            sums |= 1u << i;
            letters[count++] = b->at[i];
        } else if (!was && is) {
            made |= 1u << i;
        } else if (a->at[i] != b->at[i] || a->place[i] != b->place[i]) {
            other |= 1u << i;
        }
    }
    double most_a = (double)trmi_spread_most(&w->mesh, &w->shape, a) * 4;
    double most_b = (double)trmi_spread_most(&w->mesh, &w->shape, b) * 4;
    if (sums != 0) {
        bool equal = made == 0 && other == 0;
        for (int i = 1; i < count; i++) {
            equal = equal && letters[i] == letters[0];
        }
        if (!equal || letters[0] == TRMI_WHOLE) {
            return equal ? trmi_price(prices, &w->mesh, TRMI_MOVE_ALL_REDUCE, sums, most_a)
                         : INFINITY;
        }
        /* new cuts are innermost, in mesh order */
        int32_t before = 0, place = 0;
        for (int32_t i = 0; i < w->mesh.axes; i++) {
            before += a->at[i] == letters[0];
        }
        for (int32_t i = 0; i < w->mesh.axes; i++) {
            if (sums >> i & 1 && b->place[i] != before + place++) {
                return INFINITY;
            }
        }
        return trmi_price(prices, &w->mesh, TRMI_MOVE_REDUCE_SCATTER, sums, most_a);
    }
    if (made != 0) {
        /* a maximum has no neutral padding */
        bool single = other == 0 && w->partial == TRMI_PARTIAL_SUM;
        /* a removed cut must have been innermost */
        for (int32_t i = 0; i < w->mesh.axes; i++) {
            for (int32_t j = 0; j < w->mesh.axes; j++) {
                single = single && !(made >> i & 1 && !(made >> j & 1) && a->at[i] >= TRMI_SPLIT &&
                                     a->at[j] == a->at[i] && a->place[j] > a->place[i]);
            }
        }
        return single ? trmi_price(prices, &w->mesh, TRMI_MOVE_LOCAL, 0, most_b) : INFINITY;
    }
    trmi_route_step step;
    assert_int_equal(trmi_route_direct(&w->mesh, prices, &w->shape, 4, a, b, &step), TRM_OK);
    return step.seconds;
}

/* Returns whether the same axes are partial in both spreads, so that a move only exchanges
 * boxes. */
static bool boxes_only(const world *w, const trmi_spread *a, const trmi_spread *b) {
    bool same = true;
    for (int32_t i = 0; i < w->mesh.axes; i++) {
        same = same && trmi_is_partial(a->at[i]) == trmi_is_partial(b->at[i]);
    }
    return same;
}

/* Returns 1 if the spreads differ on one axis only, with the order of the other axes unchanged;
 * else TRMI_MESH_AXES. */
static int axes_apart(const world *w, const trmi_spread *a, const trmi_spread *b) {
    int best = TRMI_MESH_AXES;
    for (int32_t moved = 0; moved < w->mesh.axes; moved++) {
        bool others = true;
        for (int32_t i = 0; i < w->mesh.axes; i++) {
            others = others && (i == moved || a->at[i] == b->at[i]);
            for (int32_t j = 0; j < w->mesh.axes; j++) {
                bool pair = i != moved && j != moved && i != j && a->at[i] >= TRMI_SPLIT &&
                            a->at[i] == a->at[j];
                others =
                    others && (!pair || (a->place[i] < a->place[j]) == (b->place[i] < b->place[j]));
            }
        }
        best = others ? 1 : best;
    }
    return best;
}

/* Returns whether a move leads towards the target: exchanges along several axes go to the target's
 * cuts, in its order. */
static bool leads_to(const world *w, const trmi_spread *a, const trmi_spread *b,
                     const trmi_spread *target) {
    bool same = true;
    for (int32_t i = 0; i < w->mesh.axes; i++) {
        same = same && (trmi_is_partial(a->at[i]) || b->at[i] == target->at[i]);
        for (int32_t j = 0; j < w->mesh.axes; j++) {
            bool pair = b->at[i] >= TRMI_SPLIT && b->at[i] == b->at[j] && i != j;
            same = same &&
                   (!pair || (b->place[i] < b->place[j]) == (target->place[i] < target->place[j]));
        }
    }
    return same;
}

/* Compares prices of the router with shortest paths over all spreads (Dijkstra's algorithm on the
 * whole table of moves). cost[a][b]: from spread a to spread b. */
static void compare_prices(const world *w, trmi_router *router, const trmi_prices *prices,
                           const trmi_spread *list, int32_t count) {
    assert_true(count > 0);
    double *cost = calloc((size_t)count * (size_t)count, sizeof *cost);
    double *edge = calloc((size_t)count * (size_t)count, sizeof *edge);
    bool *done = calloc((size_t)count, sizeof *done);
    assert_true(cost != NULL && edge != NULL && done != NULL);
    for (int32_t a = 0; a < count; a++) {
        for (int32_t b = 0; b < count; b++) {
            edge[a * count + b] = one_move(w, prices, &list[a], &list[b]);
            cost[a * count + b] = a == b ? 0 : INFINITY;
        }
    }
    /* shortest paths backwards from each target */
    for (int32_t target = 0; target < count; target++) {
        memset(done, 0, (size_t)count * sizeof *done);
        for (;;) {
            int32_t near = -1;
            for (int32_t k = 0; k < count; k++) {
                bool nearer = !done[k] && cost[k * count + target] < INFINITY;
                near =
                    nearer && (near < 0 || cost[k * count + target] < cost[near * count + target])
                        ? k
                        : near;
            }
            if (near < 0) {
                break;
            }
            done[near] = true;
            for (int32_t a = 0; a < count; a++) {
                bool allowed = !boxes_only(w, &list[a], &list[near]) ||
                               axes_apart(w, &list[a], &list[near]) == 1 ||
                               leads_to(w, &list[a], &list[near], &list[target]);
                /* zeros are allowed only where the target is partial */
                for (int32_t i = 0; i < w->mesh.axes; i++) {
                    bool made = list[near].at[i] == w->partial && list[a].at[i] != w->partial;
                    allowed = allowed && (!made || list[target].at[i] == w->partial);
                }
                double through = edge[a * count + near] + cost[near * count + target];
                if (allowed && through < cost[a * count + target]) {
                    cost[a * count + target] = through;
                }
            }
        }
    }
    for (int32_t a = 0; a < count; a++) {
        for (int32_t b = 0; b < count; b++) {
            double seconds = trmi_route_seconds(router, &w->shape, TRM_FLOAT32, &list[a], &list[b]);
            if (isinf(seconds) != isinf(cost[a * count + b]) ||
                fabs(seconds - cost[a * count + b]) > 1e-6 * cost[a * count + b] + 1e-12) {
                char x[64], y[64];
                fail_msg("%s -> %s: route %.9g, brute force %.9g",
                         trmi_spread_text(&w->mesh, &list[a], x, sizeof x),
                         trmi_spread_text(&w->mesh, &list[b], y, sizeof y), seconds,
                         cost[a * count + b]);
            }
        }
    }
    free(cost);
    free(edge);
    free(done);
}

/* Returns whether there is a route: a value that is not a partial maximum (or minimum) never
 * becomes one. */
static bool has_route(const world *w, const trmi_spread *from, const trmi_spread *to) {
    bool way = true;
    for (int32_t i = 0; i < w->mesh.axes && w->partial != TRMI_PARTIAL_SUM; i++) {
        way = way && (to->at[i] != w->partial || from->at[i] == w->partial);
    }
    return way;
}

/* Checks all pairs of spreads of one shape on one mesh. */
static void all_pairs_of(const char *mesh, trm_shape shape, bool latency, uint8_t partial) {
    static world w;
    trm_error err;
    trmi_arena arena = {0};
    trmi_router *router;
    trmi_spread *list;
    int32_t count;
    uint64_t counter = 0;
    /* local copies cost next to nothing, so that messages are compared */
    trmi_prices prices = {.alpha = {3e-6, 2e-6, 1e-6}, .beta = {1e-9, 5e-10, 2e-10}, .copy = 1e-18};
    for (int i = 0; latency && i < 3; i++) {
        prices.alpha[i] *= 100;
    }
    CHECK_OK(trmi_mesh_parse(mesh, &w.mesh, &err), err);
    w.shape = shape;
    w.partial = partial;
    w.ranks = trmi_mesh_ranks(&w.mesh);
    for (int64_t i = 0; i < trm_shape_count(&shape); i++) {
        w.global[i] = (double)(i * 7 % 101);
    }
    CHECK_OK(trmi_router_create(&w.mesh, &prices, &router, &err), err);
    CHECK_OK(trmi_spread_list(&w.mesh, &shape, true, true, &arena, &list, &count, &err), err);
    for (int32_t a = 0; a < count; a++) {
        for (int32_t i = 0; i < w.mesh.axes; i++) {
            list[a].at[i] = list[a].at[i] == TRMI_PARTIAL_SUM ? partial : list[a].at[i];
        }
    }
    for (int32_t a = 0; a < count; a++) {
        for (int32_t b = 0; b < count; b++) {
            trmi_route route;
            trmi_spread at = list[a];
            if (!has_route(&w, &list[a], &list[b])) {
                CHECK_FAILS(trmi_route_find(router, &shape, TRM_FLOAT32, &list[a], &list[b], 0,
                                            &route, &err),
                            TRM_INVALID, err, "no way");
                continue;
            }
            CHECK_OK(
                trmi_route_find(router, &shape, TRM_FLOAT32, &list[a], &list[b], 0, &route, &err),
                err);
            fill_parts(&w, &list[a], &counter);
            double seconds = 0;
            for (int32_t i = 0; i < route.count; i++) {
                play_move(&w, &at, &route.steps[i]);
                at = route.steps[i].to;
                seconds += route.steps[i].seconds;
            }
            assert_true(trmi_spread_equal(&at, &list[b]));
            CHECK_CLOSE(seconds, route.seconds, 1e-12);
            check_parts(&w, &list[b]);
        }
    }
    compare_prices(&w, router, &prices, list, count);
    trmi_router_destroy(router);
    trmi_arena_free(&arena);
}

static void all_pairs(const char *mesh, trm_shape shape, bool latency) {
    for (uint8_t partial = TRMI_PARTIAL_SUM; partial < TRMI_SPLIT; partial++) {
        all_pairs_of(mesh, shape, latency, partial);
    }
}

static void line_and_square(void **state) {
    (void)state;
    all_pairs("2", trm_shape_of(5, 4), false);
    all_pairs("3", trm_shape_of(4, 3, 5), false);
    all_pairs("2x2", trm_shape_of(5, 4, 3), false);
    all_pairs("2x3", trm_shape_of(7, 6), true);
}
static void routes_on_a_cube(void **state) {
    (void)state;
    all_pairs("2x2x2", trm_shape_of(7, 8), false);
    all_pairs("4x2", trm_shape_of(9, 8), true);
}

/* Routes respect the bound on intermediate parts. */
static void peak_is_bounded(void **state) {
    (void)state;
    trm_error err;
    trmi_mesh mesh;
    trmi_router *router;
    trmi_spread from, to;
    trmi_route route;
    CHECK_OK(trmi_mesh_parse("2x2x2", &mesh, &err), err);
    CHECK_OK(trmi_router_create(&mesh, NULL, &router, &err), err);
    /* the worst known case of XLA: (y,-,x) -> (-,(x,y),-) must not gather the whole tensor */
    trm_shape shape = trm_shape_of(16, 16, 16);
    CHECK_OK(trmi_spread_parse(&mesh, "S2,S0,R", &from, &err), err);
    CHECK_OK(trmi_spread_parse(&mesh, "S1,S1,R", &to, &err), err);
    CHECK_OK(trmi_route_find(router, &shape, TRM_FLOAT32, &from, &to, 4096 / 4, &route, &err), err);
    assert_true(route.peak_elements <= 4096 / 4);
    CHECK_FAILS(trmi_route_find(router, &shape, TRM_FLOAT32, &from, &to, 16, &route, &err),
                TRM_INVALID, err, "no way");
    /* partial in two ways: not a valid spread */
    CHECK_OK(trmi_spread_parse(&mesh, "Pmax,P+,R", &to, &err), err);
    assert_false(trmi_spread_fits(&mesh, &shape, &to));
    CHECK_FAILS(trmi_route_find(router, &shape, TRM_FLOAT32, &to, &from, 0, &route, &err),
                TRM_INVALID, err, "no way");
    CHECK_OK(trmi_spread_parse(&mesh, "Pmax,R,R", &to, &err), err);
    CHECK_FAILS(trmi_route_find(router, &shape, TRM_FLOAT32, &from, &to, 0, &route, &err),
                TRM_INVALID, err, "no way");
    trmi_router_destroy(router);
}

/* Texts of spreads are parsed back to the same spreads; bad texts are refused. */
static void texts_come_back(void **state) {
    (void)state;
    trm_error err;
    trmi_mesh mesh, list[TRMI_MESH_LIST];
    char text[64];
    CHECK_OK(trmi_mesh_parse("host=2xlocal=4", &mesh, &err), err);
    assert_string_equal(trmi_mesh_text(&mesh, text, sizeof text), "host=2xlocal=4");
    CHECK_OK(trmi_mesh_parse("1x2x1x4", &mesh, &err), err);
    assert_string_equal(trmi_mesh_text(&mesh, text, sizeof text), "2x4");
    CHECK_FAILS(trmi_mesh_parse("2y4", &mesh, &err), TRM_INVALID, err, "character 2");
    CHECK_FAILS(trmi_mesh_parse("2x0", &mesh, &err), TRM_INVALID, err, "character 3");
    CHECK_FAILS(trmi_mesh_parse("2x2x2x2x2", &mesh, &err), TRM_INVALID, err, "at most 4 axes");
    CHECK_FAILS(trmi_mesh_parse("a=2xa=2", &mesh, &err), TRM_INVALID, err,
                "two axes have the name");
    assert_int_equal(trmi_mesh_list(1, 8, list), 4);
    assert_int_equal(list[3].axes, 3);
    assert_int_equal(trmi_mesh_list(2, 4, list), 2);
    CHECK_OK(trmi_mesh_parse("2x2x2", &mesh, &err), err);
    trmi_arena arena = {0};
    trmi_spread *spreads, back;
    int32_t count;
    trm_shape shape = trm_shape_of(8, 8, 8);
    CHECK_OK(trmi_spread_list(&mesh, &shape, true, true, &arena, &spreads, &count, &err), err);
    for (int32_t i = 0; i < count; i++) {
        CHECK_OK(trmi_spread_parse(&mesh, trmi_spread_text(&mesh, &spreads[i], text, sizeof text),
                                   &back, &err),
                 err);
        assert_true(trmi_spread_equal(&back, &spreads[i]));
        for (int32_t j = 0; j < i; j++) {
            assert_true(trmi_spread_key(&spreads[i]) != trmi_spread_key(&spreads[j]));
        }
    }
    CHECK_FAILS(trmi_spread_parse(&mesh, "S0,R", &back, &err), TRM_INVALID, err, "3 letters");
    trmi_arena_free(&arena);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(line_and_square),
        cmocka_unit_test(routes_on_a_cube),
        cmocka_unit_test(peak_is_bounded),
        cmocka_unit_test(texts_come_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
