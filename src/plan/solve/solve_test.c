/* SPDX-License-Identifier: Apache-2.0 */
/* Tests of the solver against enumeration of all choices: chains, residual blocks, dense graphs,
 * illegal states, ties. */
#include "check.h"

#include "plan/solve/solve.h"

#include "base/rng.h"

#include <math.h>

enum { NODES = 9, STATES = 7, EDGES = 40 };

/* A graph with its arrays: `graph` points to the other members. */
typedef struct problem {
    trmi_cost_graph graph;
    int32_t states[NODES];
    float unary[NODES][STATES];
    const float *nodes[NODES];
    trmi_cost_edge edges[EDGES];
    float tables[EDGES][STATES * STATES];
} problem;

static uint64_t counter;
static uint32_t draw_number(uint32_t bound) {
    return trmi_bounded(trmi_random_u32(11, TRMI_STREAM_TEST, counter++), bound);
}
/* Small integers in some problems: many ties. */
static float draw_cost(bool ties, uint32_t illegal) {
    if (draw_number(100) < illegal) {
        return INFINITY;
    }
    return ties ? (float)draw_number(4) : (float)draw_number(1000000) * 1e-3f;
}

static void connect_nodes(problem *p, int32_t a, int32_t b, bool ties, uint32_t illegal) {
    int32_t e = p->graph.edges_count++;
    p->edges[e] = (trmi_cost_edge){a, b, p->tables[e]};
    for (int32_t i = 0; i < p->states[a] * p->states[b]; i++) {
        p->tables[e][i] = draw_cost(ties, illegal);
    }
}

/* kind 0: chain, 1: residual blocks, 2: every pair, 3: anything, some pairs twice */
static void make_problem(problem *p, int kind, int32_t nodes, uint32_t states, bool ties,
                         uint32_t illegal) {
    memset(p, 0, sizeof *p);
    p->graph = (trmi_cost_graph){
        .nodes_count = nodes, .states = p->states, .nodes = p->nodes, .edges = p->edges};
    for (int32_t i = 0; i < nodes; i++) {
        p->states[i] = (int32_t)(1 + draw_number(states));
        p->nodes[i] = p->unary[i];
        for (int32_t j = 0; j < p->states[i]; j++) {
            p->unary[i][j] = draw_cost(ties, illegal);
        }
    }
    for (int32_t i = 1; kind < 2 && i < nodes; i++) {
        connect_nodes(p, i - 1, i, ties, illegal);
        if (kind == 1 && i >= 3 && i % 2 == 1) {
            connect_nodes(p, i, i - 3, ties, illegal);
        }
    }
    for (int32_t a = 0; kind >= 2 && a < nodes; a++) {
        for (int32_t b = 0; b < a && p->graph.edges_count < EDGES - 1; b++) {
            if (kind == 2 || draw_number(2) == 0) {
                connect_nodes(p, a, b, ties, illegal);
                if (kind == 3 && draw_number(4) == 0) {
                    connect_nodes(p, b, a, ties, illegal);
                }
            }
        }
    }
}

/* Returns the least cost of all assignments; least[i][j]: with node i in state j. */
static double brute_force(const problem *p, float least[NODES][STATES]) {
    int32_t choice[NODES] = {0};
    double best = INFINITY;
    for (int32_t i = 0; i < NODES; i++) {
        for (int32_t j = 0; j < STATES; j++) {
            least[i][j] = INFINITY;
        }
    }
    for (;;) {
        double sum = trmi_solve_cost(&p->graph, choice);
        best = sum < best ? sum : best;
        int32_t at = 0;
        for (int32_t i = 0; i < p->graph.nodes_count; i++) {
            float *entry = &least[i][choice[i]];
            *entry = (float)sum < *entry ? (float)sum : *entry;
        }
        while (at < p->graph.nodes_count && ++choice[at] == p->states[at]) {
            choice[at++] = 0;
        }
        if (at == p->graph.nodes_count) {
            return best;
        }
    }
}

static void check_solution(const problem *p, double best, const trmi_solve_options *o) {
    int32_t choice[NODES];
    trmi_solution s;
    trm_error err;
    CHECK_OK(trmi_solve(&p->graph, o, choice, &s, &err), err);
    if (best == INFINITY) {
        assert_true(s.objective == INFINITY);
        return;
    }
    CHECK_CLOSE(s.objective, best, 1e-6);
    CHECK_CLOSE(trmi_solve_cost(&p->graph, choice), s.objective, 1e-12);
    assert_true(s.lower_bound <= s.objective);
    CHECK_CLOSE(s.lower_bound, s.objective, 1e-5);
}

static void equals_brute_force(void **state) {
    (void)state;
    static problem p;
    static float least[NODES][STATES];
    int illegal_ones = 0;
    for (int i = 0; i < 320; i++) {
        int kind = i % 4;
        make_problem(&p, kind, (int32_t)(2 + draw_number(kind >= 2 ? 4 : 6)), kind >= 2 ? 5 : 4,
                     i % 5 == 0, i % 3 == 0 ? 15 : 0);
        double best = brute_force(&p, least);
        illegal_ones += best == INFINITY;
        int32_t start[NODES];
        for (int32_t n = 0; n < p.graph.nodes_count; n++) {
            start[n] = (int32_t)draw_number((uint32_t)p.states[n]);
        }
        check_solution(&p, best, NULL);
        check_solution(&p, best, &(trmi_solve_options){.last_first = true});
        /* branch and bound only */
        check_solution(&p, best, &(trmi_solve_options){.table_limit = 4});
        check_solution(&p, best, &(trmi_solve_options){.table_limit = 30, .start = start});
    }
    assert_true(illegal_ones < 60);
}

static void marginals_equal_brute_force(void **state) {
    (void)state;
    static problem p;
    static float least[NODES][STATES], rows[NODES][STATES];
    float *marginal[NODES];
    trm_error err;
    for (int i = 0; i < NODES; i++) {
        marginal[i] = rows[i];
    }
    for (int i = 0; i < 120; i++) {
        make_problem(&p, i % 2, (int32_t)(2 + draw_number(6)), 4, false, i % 3 == 0 ? 10 : 0);
        brute_force(&p, least);
        CHECK_OK(trmi_solve_marginals(&p.graph, marginal, &err), err);
        for (int32_t n = 0; n < p.graph.nodes_count; n++) {
            for (int32_t j = 0; j < p.states[n]; j++) {
                if (least[n][j] == INFINITY) {
                    assert_true(marginal[n][j] == INFINITY);
                } else {
                    CHECK_CLOSE(marginal[n][j], least[n][j], 1e-4);
                }
            }
        }
    }
}

static void a_search_cut_short_keeps_its_bound(void **state) {
    (void)state;
    static problem p;
    static float least[NODES][STATES];
    trm_error err;
    for (int i = 0; i < 40; i++) {
        make_problem(&p, 2, 6, 5, false, 0);
        double best = brute_force(&p, least);
        int32_t choice[NODES];
        trmi_solution s;
        trmi_solve_options o = {.table_limit = 4, .branch_limit = 1 + i % 3};
        CHECK_OK(trmi_solve(&p.graph, &o, choice, &s, &err), err);
        assert_true(s.lower_bound <= best * (1 + 1e-6));
        assert_true(s.objective >= best * (1 - 1e-6) && s.objective < INFINITY);
        assert_true(s.branches > 0);
    }
}

/* The vector versions of the (min,+) product give the bits of the plain one. */
static void vectors_give_the_same_bits(void **state) {
    (void)state;
    enum { M = 37, J = 41, N = 71 };
    static float a[M * J], b[J * N], c[3][M * N];
    for (int i = 0; i < M * J; i++) {
        a[i] = draw_cost(false, 10);
    }
    for (int i = 0; i < J * N; i++) {
        b[i] = draw_cost(false, 10);
    }
    trmi_minplus_plain(a, b, c[0], M, J, N);
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx2")) {
        trmi_minplus_avx2(a, b, c[1], M, J, N);
        assert_memory_equal(c[0], c[1], sizeof c[0]);
    }
    if (__builtin_cpu_supports("avx512f")) {
        trmi_minplus_avx512(a, b, c[2], M, J, N);
        assert_memory_equal(c[0], c[2], sizeof c[0]);
    }
#endif
    for (int i = 0; i < M; i++) {
        for (int k = 0; k < N; k++) {
            float best = INFINITY;
            for (int j = 0; j < J; j++) {
                best = fminf(best, a[i * J + j] + b[j * N + k]);
            }
            assert_true(best == c[0][i * N + k]);
        }
    }
}

/* Equal blocks share their products: more products are reused than computed. */
static void equal_blocks_are_multiplied_once(void **state) {
    (void)state;
    enum { BLOCKS = 16, LONG = BLOCKS * 3 + 1 };
    static problem p;
    make_problem(&p, 1, 4, 4, false, 0);
    int32_t states[LONG];
    const float *nodes[LONG];
    trmi_cost_edge edges[BLOCKS * 4];
    static float tables[4][16], unary[4];
    for (int i = 0; i < 4; i++) {
        unary[i] = draw_cost(false, 0);
        for (int j = 0; j < 16; j++) {
            tables[i][j] = draw_cost(false, 0);
        }
    }
    for (int i = 0; i < LONG; i++) {
        states[i] = 4;
        nodes[i] = unary;
    }
    for (int32_t b = 0, e = 0; b < BLOCKS; b++) {
        int32_t at = 3 * b;
        edges[e++] = (trmi_cost_edge){at, at + 1, tables[0]};
        edges[e++] = (trmi_cost_edge){at + 1, at + 2, tables[1]};
        edges[e++] = (trmi_cost_edge){at + 2, at + 3, tables[2]};
        edges[e++] = (trmi_cost_edge){at, at + 3, tables[3]};
    }
    trmi_cost_graph g = {LONG, BLOCKS * 4, states, nodes, edges};
    int32_t choice[LONG];
    trmi_solution s;
    trm_error err;
    CHECK_OK(trmi_solve(&g, NULL, choice, &s, &err), err);
    CHECK_CLOSE(s.lower_bound, s.objective, 1e-5);
    assert_true(s.products + s.shared >= 2 * BLOCKS);
    assert_true(s.shared > s.products);
}

static void bad_graphs_are_refused(void **state) {
    (void)state;
    int32_t states[2] = {2, 2}, choice[2];
    float zero[4] = {0};
    const float *nodes[2] = {zero, zero};
    trmi_cost_edge edge = {0, 2, zero};
    trmi_cost_graph g = {2, 1, states, nodes, &edge};
    trmi_solution s;
    trm_error err;
    CHECK_FAILS(trmi_solve(&g, NULL, choice, &s, &err), TRM_INVALID, err,
                "edge 0 joins nodes 0 and 2 of 2");
    edge.b = 0;
    CHECK_FAILS(trmi_solve(&g, NULL, choice, &s, &err), TRM_INVALID, err, "edge 0");
    edge.b = 1;
    int32_t start[2] = {0, 5};
    CHECK_FAILS(trmi_solve(&g, &(trmi_solve_options){.start = start}, choice, &s, &err),
                TRM_INVALID, err, "state 5 of 2");
    states[0] = 0;
    CHECK_FAILS(trmi_solve(&g, NULL, choice, &s, &err), TRM_INVALID, err, "no states");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equals_brute_force),
        cmocka_unit_test(marginals_equal_brute_force),
        cmocka_unit_test(a_search_cut_short_keeps_its_bound),
        cmocka_unit_test(vectors_give_the_same_bits),
        cmocka_unit_test(equal_blocks_are_multiplied_once),
        cmocka_unit_test(bad_graphs_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
