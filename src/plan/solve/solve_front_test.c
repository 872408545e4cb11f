/* SPDX-License-Identifier: Apache-2.0 */
/* Tests of the Pareto front: the whole curve and choices within limits, compared with every choice
 * of random graphs. */
#include "check.h"

#include "plan/solve/solve_front.h"

#include "base/rng.h"

#include <math.h>

enum { NODES = 7, STATES = 4, OPTIONS = 3, EDGES = 12, GRAPHS = 260 };

/* A graph with its arrays: `graph` points to the other members. */
typedef struct problem {
    trmi_front_graph graph;
    int32_t states[NODES];
    trmi_tradeoff options[NODES][STATES * OPTIONS];
    const trmi_tradeoff *nodes[NODES];
    trmi_front_edge edges[EDGES];
    float time[EDGES][STATES * STATES], memory[EDGES][STATES * STATES];
} problem;

static trm_error err;
static uint64_t counter;
static uint32_t draw_number(uint32_t bound) {
    return trmi_bounded(trmi_random_u32(17, TRMI_STREAM_TEST, counter++), bound);
}
/* Integers: sums are exact in float32; small ranges produce many ties. */
static double draw_cost(uint32_t range) { return (double)draw_number(range); }

static void connect_nodes(problem *p, int32_t a, int32_t b, uint32_t range, uint32_t illegal) {
    int32_t e = p->graph.edges_count++;
    p->edges[e] = (trmi_front_edge){a, b, p->time[e], draw_number(2) == 0 ? p->memory[e] : NULL};
    for (int32_t i = 0; i < p->states[a] * p->states[b]; i++) {
        p->time[e][i] = draw_number(100) < illegal ? INFINITY : (float)draw_cost(range);
        p->memory[e][i] = (float)draw_cost(range);
    }
}

/* kind 0: chain, 1: residual blocks, 2: a star, 3: dense (wider than two). */
static void make_problem(problem *p, int kind, int32_t nodes, uint32_t range, uint32_t illegal) {
    memset(p, 0, sizeof *p);
    p->graph = (trmi_front_graph){.nodes_count = nodes,
                                  .options = OPTIONS,
                                  .states = p->states,
                                  .nodes = p->nodes,
                                  .edges = p->edges};
    for (int32_t n = 0; n < nodes; n++) {
        p->states[n] = (int32_t)(1 + draw_number(STATES));
        p->nodes[n] = p->options[n];
        for (int32_t i = 0; i < STATES * OPTIONS; i++) {
            bool there = i % OPTIONS == 0 || draw_number(3) > 0;
            p->options[n][i] =
                (trmi_tradeoff){there ? draw_cost(range) : INFINITY, draw_cost(range)};
        }
    }
    for (int32_t n = 1; n < nodes && p->graph.edges_count < EDGES - 2; n++) {
        connect_nodes(p, kind == 2 ? 0 : n - 1, n, range, illegal);
        if (kind == 1 && n >= 2 && n % 2 == 0) {
            connect_nodes(p, n, n - 2, range, illegal);
        }
        for (int32_t a = 0; kind == 3 && a < n - 1 && p->graph.edges_count < EDGES - 1; a++) {
            connect_nodes(p, a, n, range, illegal);
        }
    }
}

enum { FRONT = 4000 };
/* Enumerates every choice: writes the points that no other beats, by rising memory. Returns their
 * number. */
static int brute_force(const problem *p, trmi_tradeoff front[FRONT]) {
    int32_t at[NODES] = {0}, choice[NODES] = {0}, n;
    uint8_t option[NODES] = {0};
    int count = 0;
    do {
        for (n = 0; n < p->graph.nodes_count; n++) {
            choice[n] = at[n] / OPTIONS;
            option[n] = (uint8_t)(at[n] % OPTIONS);
        }
        trmi_tradeoff c = trmi_front_cost(&p->graph, choice, option);
        bool beaten = !(c.time < INFINITY);
        for (int i = 0; i < count && !beaten; i++) {
            beaten = front[i].time <= c.time && front[i].memory <= c.memory;
        }
        if (!beaten) {
            int kept = 0;
            for (int i = 0; i < count; i++) {
                if (!(c.time <= front[i].time && c.memory <= front[i].memory)) {
                    front[kept++] = front[i];
                }
            }
            front[kept] = c;
            count = kept + 1;
            assert_true(count < FRONT);
        }
        for (n = 0; n < p->graph.nodes_count && ++at[n] == p->states[n] * OPTIONS; n++) {
            at[n] = 0;
        }
    } while (n < p->graph.nodes_count);
    return count;
}

static bool has_point(const trmi_front *f, double time, double memory) {
    for (int32_t i = 0; i < f->count; i++) {
        if (f->points[i].time <= time + 1e-6 && f->points[i].memory <= memory + 1e-6) {
            return true;
        }
    }
    return false;
}

static void check_point(const problem *p, const trmi_front_point *point) {
    trmi_tradeoff c = trmi_front_cost(&p->graph, point->choice, point->option);
    CHECK_CLOSE(c.time, point->time, 1e-12);
    CHECK_CLOSE(c.memory, point->memory, 1e-12);
}

static void check_curve(const problem *p, const trmi_tradeoff *every, int count) {
    trmi_arena arena = {0};
    trmi_front f;
    CHECK_OK(trmi_front_solve(&p->graph, NULL, &arena, &f, &err), err);
    for (int32_t i = 0; i < f.count; i++) {
        check_point(p, &f.points[i]);
        assert_true(i == 0 || (f.points[i].memory < f.points[i - 1].memory &&
                               f.points[i].time > f.points[i - 1].time));
    }
    assert_true(f.slack == 0);
    for (int i = 0; i < count && f.open == 0; i++) {
        assert_true(has_point(&f, every[i].time, every[i].memory));
    }
    assert_true(f.open == 0 || p->graph.edges_count > p->graph.nodes_count);
    trmi_arena_free(&arena);
}

/* Checks the solution within a limit against the enumerated points. */
static void check_limit(const problem *p, const trmi_tradeoff *every, int count, double limit,
                        int *exact) {
    trmi_arena arena = {0};
    trmi_front f;
    double best = INFINITY, least = INFINITY;
    for (int i = 0; i < count; i++) {
        best = every[i].memory <= limit && every[i].time < best ? every[i].time : best;
        least = fmin(least, every[i].memory);
    }
    CHECK_OK(trmi_front_solve(&p->graph, &(trmi_front_options){.limit = limit}, &arena, &f, &err),
             err);
    check_point(p, &f.points[0]);
    CHECK_CLOSE(f.least_memory, least, 1e-9);
    assert_int_equal(f.feasible, best < INFINITY);
    if (f.feasible) {
        assert_true(f.points[0].memory <= limit);
        assert_true(f.points[0].time >= best - 1e-9);
        assert_true(f.lower_bound <= best * (1 + 1e-5) + 1e-6);
        if (f.open == 0) {
            CHECK_CLOSE(f.points[0].time, best, 1e-9);
            CHECK_CLOSE(f.lower_bound, best, 1e-5);
            ++*exact;
        }
    } else {
        CHECK_CLOSE(f.points[0].memory, least, 1e-9);
    }
    trmi_arena_free(&arena);
}

/* The front of random graphs is the one found by enumeration. */
static void equal_to_brute_force(void **state) {
    (void)state;
    static problem p;
    static trmi_tradeoff every[FRONT];
    int graphs = 0, points = 0, exact = 0, limits = 0;
    for (int g = 0; g < GRAPHS; g++) {
        make_problem(&p, g % 4, (int32_t)(2 + draw_number(g % 4 == 3 ? 3 : 4)),
                     g % 3 == 0 ? 5 : 1000, g % 5 == 0 ? 15 : 0);
        int count = brute_force(&p, every);
        if (count == 0) {
            trmi_arena arena = {0};
            trmi_front f;
            CHECK_FAILS(trmi_front_solve(&p.graph, NULL, &arena, &f, &err), TRM_INVALID, err,
                        "no choice is legal");
            trmi_arena_free(&arena);
            continue;
        }
        graphs++;
        points += count;
        check_curve(&p, every, count);
        for (int i = 0; i < 4; i++) {
            double limit = every[draw_number((uint32_t)count)].memory + (double)draw_number(3) - 1;
            if (limit > 0) {
                check_limit(&p, every, count, limit, &exact);
                limits++;
            }
        }
    }
    print_message("%d graphs, %d points, %d limits, %d of them proved\n", graphs, points, limits,
                  exact);
    assert_true(graphs >= 200 && exact > limits / 2);
}

/* With short lists and little work the reported bounds still hold. */
static void what_is_cut_short_is_bounded(void **state) {
    (void)state;
    static problem p;
    static trmi_tradeoff every[FRONT];
    int thinned = 0, open = 0;
    for (int g = 0; g < 120; g++) {
        make_problem(&p, g % 3, 5, 1000, 0);
        int count = brute_force(&p, every);
        trmi_arena arena = {0};
        trmi_front f;
        const trmi_front_options o = {
            .list_limit = 2 + g % 4, .work_limit = g % 2 == 0 ? 0 : 60, .hull_limit = 4 + g % 5};
        CHECK_OK(trmi_front_solve(&p.graph, &o, &arena, &f, &err), err);
        thinned += f.slack > 0;
        open += f.open > 0;
        for (int i = 0; i < count; i++) {
            double late = f.slack > f.open_gap ? f.slack : f.open_gap;
            assert_true(has_point(&f, every[i].time + late, every[i].memory));
        }
        double limit = every[count / 2].memory + 0.5, best = INFINITY;
        for (int i = 0; i < count; i++) {
            best = every[i].memory <= limit && every[i].time < best ? every[i].time : best;
        }
        trmi_front_options within = o;
        within.limit = limit;
        CHECK_OK(trmi_front_solve(&p.graph, &within, &arena, &f, &err), err);
        assert_true(f.feasible && f.points[0].memory <= limit && f.points[0].time >= best - 1e-9);
        assert_true(f.lower_bound <= best * (1 + 1e-5) + 1e-6);
        trmi_arena_free(&arena);
    }
    print_message("%d of 120 thinned, %d left open\n", thinned, open);
    assert_true(thinned > 20 && open > 20);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equal_to_brute_force),
        cmocka_unit_test(what_is_cut_short_is_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
