/* SPDX-License-Identifier: Apache-2.0 */
/* Tests of what the search knows of transformers: the tensor parallel plan that people write by
 * hand, and what a ring of keys and gathers of parameters in parts wait for. */
#include "check.h"

#include "base/rng.h"
#include "plan/search/search.h"

#include <math.h>
#include <stdio.h>

enum { BATCH = 2, TOKENS = 64, WIDTH = 16, HEADS = 4 };

static trm_error err;

typedef struct net {
    trm_graph *graph;
    trm_program *program;
} net;

static trm_node add_weight(trm_graph *g, const char *name, int64_t rows, int64_t columns) {
    return trm_parameter(g, name, trm_shape_of(rows, columns), TRM_INIT_LINEAR);
}

/* A block: an attention between two products, a GELU between two others. pairs: false = one product
 * only. */
static net make_net(bool pairs, bool causal) {
    net n;
    CHECK_OK(trm_graph_create(&(trm_graph_options){.training = true}, &n.graph, &err), err);
    trm_graph *g = n.graph;
    trm_node x = trm_input(g, "x", TRM_FLOAT32, trm_shape_of(BATCH, TOKENS, WIDTH));
    trm_node y = trm_linear(g, x, add_weight(g, "qkv", 3 * WIDTH, WIDTH), TRM_NO_NODE);
    if (pairs) {
        y = trm_attention_packed(g, y, HEADS, HEADS, TRM_NO_NODE,
                                 &(trm_attention_options){.causal = causal});
        y = trm_add(g, x, trm_linear(g, y, add_weight(g, "out", WIDTH, WIDTH), TRM_NO_NODE));
        y = trm_linear(g, y, add_weight(g, "up", 4 * WIDTH, WIDTH), TRM_NO_NODE);
        y = trm_linear(g, trm_gelu(g, y, TRM_GELU_TANH), add_weight(g, "down", WIDTH, 4 * WIDTH),
                       TRM_NO_NODE);
    }
    trm_node loss = trm_reduce_mean(g, y, NULL, 0, false);
    CHECK_OK(trm_graph_check(g, &err), err);
    CHECK_OK(trmi_plan_create(g, &(trmi_plan_options){.loss = loss}, &n.program, &err), err);
    return n;
}

static void free_net(net *n) {
    trmi_plan_destroy(n->program);
    trm_graph_destroy(n->graph);
}

/* Returns the space of a mesh. compute: seconds of an operation and of a byte; overlap, ahead: of
 * the costs; parts: parameters may be stored in parts. */
static trmi_space *space_with(const net *n, const char *mesh_text, double compute, double overlap,
                              double ahead, bool parts) {
    trmi_mesh mesh;
    trmi_space *s;
    const trmi_prices prices = {.alpha = {4e-6, 1e-6},
                                .beta = {1e-9, 3e-10},
                                .copy = 1e-11,
                                .flop = compute,
                                .byte = compute};
    const trmi_search_costs costs = {.prices = &prices,
                                     .slots = 1,
                                     .overlap = overlap,
                                     .ahead = ahead,
                                     .fuse = true,
                                     .shard_stores = parts};
    CHECK_OK(trmi_mesh_parse(mesh_text, &mesh, &err), err);
    CHECK_OK(trmi_space_create(n->program->graph, &mesh, &costs, NULL, &s, &err), err);
    return s;
}

static trmi_space *space_of(const net *n, const char *mesh_text, double compute, double ahead) {
    return space_with(n, mesh_text, compute, 1, ahead, false);
}

/* The first product of a pair is cut by columns, the second by its inputs. A graph without pairs
 * has no tensor parallel plan. */
static void tensor_parallel_pairs_products(void **state) {
    (void)state;
    static const char *const meshes[] = {"2", "2x2"};
    net n = make_net(true, true), one = make_net(false, true);
    for (int m = 0; m < 2; m++) {
        trmi_space *s = space_of(&n, meshes[m], 1e-11, 0),
                   *other = space_of(&one, meshes[m], 1e-11, 0);
        trmi_arena arena = {0};
        trmi_choice choice, none;
        assert_true(trmi_choice_open(&choice, s, &arena) && trmi_choice_open(&none, other, &arena));
        assert_true(trmi_space_baseline(s, TRMI_BASELINE_TENSOR, &choice));
        assert_false(trmi_space_baseline(other, TRMI_BASELINE_TENSOR, &none));
        int products = 0;
        for (int32_t v = 0; v < s->nodes_count; v++) {
            if (trmi_space_op(s, v)->kind == TRMI_OP_LINEAR) {
                const char *wanted = products++ % 2 == 0 ? "kk" : "cc";
                assert_string_equal(
                    trmi_space_class_of(s, v)->strategies[choice.strategy[v]].letters,
                    wanted + 1 - m);
            }
        }
        assert_int_equal(products, 4);
        trmi_arena_free(&arena);
        trmi_space_destroy(s);
        trmi_space_destroy(other);
    }
    free_net(&n);
    free_net(&one);
}

/* Returns the seconds that a rank waits for exchanges of the attention cut as a ring of two.
 * *seconds: forward and backward of its operator. */
static double ring_waits(const net *n, double compute, double ahead, trmi_node_seconds *seconds) {
    trmi_space *s = space_of(n, "2", compute, ahead);
    double waits = -1;
    for (int32_t v = 0; v < s->nodes_count; v++) {
        const trmi_space_class *c = trmi_space_class_of(s, v);
        for (int32_t i = 0; trmi_space_op(s, v)->kind == TRMI_OP_ATTENTION && i < c->count; i++) {
            if (strcmp(c->strategies[i].letters, "r") == 0) {
                *seconds =
                    (trmi_node_seconds){.forward = c->forward[i], .backward = c->backward[i]};
                waits = c->exchange[i];
            }
        }
    }
    trmi_space_destroy(s);
    assert_true(waits >= 0);
    return waits;
}

/* A ring of two passes two blocks in forward and four in backward. Two of the four, the gradients
 * of the last turn, wait for that turn; the others travel while the first turn attends. */
static void rings_wait_for_what_attention_does_not_hide(void **state) {
    (void)state;
    for (int causal = 0; causal < 2; causal++) {
        net n = make_net(true, causal);
        trmi_node_seconds slow, fast;
        double all = ring_waits(&n, 1e-3, 0, &slow), least = ring_waits(&n, 1e-3, 1, &slow),
               half = ring_waits(&n, 1e-3, 0.5, &slow), some = ring_waits(&n, 1e-15, 1, &fast);
        double copies = all - (all - least) * 6 / 4; /* of what is joined and taken apart */
        assert_true(least < all && copies > 0);
        CHECK_CLOSE(half / ((all + least) / 2), 1, 1e-9);
        CHECK_CLOSE(some / (all - (fast.forward + fast.backward) / 2), 1, 1e-9);
        free_net(&n);
    }
}

/* Products of WIDTH x WIDTH, one behind the other. */
static net make_stack(int products) {
    net n;
    char name[16];
    CHECK_OK(trm_graph_create(&(trm_graph_options){.training = true}, &n.graph, &err), err);
    trm_graph *g = n.graph;
    trm_node y = trm_input(g, "x", TRM_FLOAT32, trm_shape_of(BATCH * TOKENS, WIDTH));
    for (int i = 0; i < products; i++) {
        snprintf(name, sizeof name, "w%d", i);
        y = trm_linear(g, y, add_weight(g, name, WIDTH, WIDTH), TRM_NO_NODE);
    }
    trm_node loss = trm_reduce_mean(g, y, NULL, 0, false);
    CHECK_OK(trm_graph_check(g, &err), err);
    CHECK_OK(trmi_plan_create(g, &(trmi_plan_options){.loss = loss}, &n.program, &err), err);
    return n;
}

/* Measures the plan of a space that cuts samples only and gathers all parameters twice. */
static trmi_measure measure_gathers(const trmi_space *s, trmi_timeline *timeline) {
    trmi_arena arena = {0};
    trmi_choice choice;
    trmi_measure m;
    assert_true(trmi_choice_open(&choice, s, &arena));
    assert_true(trmi_space_baseline(s, TRMI_BASELINE_OPTIMIZER, &choice));
    for (int32_t v = 0; v < s->nodes_count; v++) {
        choice.stores[v] =
            choice.stores[v] == TRMI_STORE_AS_READ ? TRMI_STORE_AS_READ : TRMI_STORE_AGAIN;
    }
    CHECK_OK(trmi_space_timeline(s, &choice, NULL, timeline, &m, &err), err);
    trmi_arena_free(&arena);
    return m;
}

/* Gathers travel beside operators: two at a time are under way, and a rank waits only for what the
 * operators in front do not hide. Without overlap it waits for all of them; with half of it for the
 * mean of both. */
static void gathers_wait_for_what_operators_do_not_hide(void **state) {
    (void)state;
    enum { PRODUCTS = 5 };
    net n = make_stack(PRODUCTS);
    static const double slow = 1e-8, fast = 1e-16, overlaps[] = {0, 1, 0.5};
    trmi_measure m[3], quick;
    for (int i = 0; i < 3; i++) {
        trmi_space *s = space_with(&n, "2", slow, 1, overlaps[i], true);
        trmi_timeline timeline;
        m[i] = measure_gathers(s, &timeline);
        double first = 0, last = 0;
        int gathers = 0;
        for (int64_t k = 0; k < timeline.count; k++) {
            const trmi_simulated_event *e = &timeline.events[k];
            if (e->kind == TRMI_EVENT_AHEAD) {
                first = gathers++ == 0 ? e->seconds : first;
                assert_true(e->begin >= last * (1 - 1e-9));
                last = e->begin + e->seconds;
            }
        }
        assert_int_equal(gathers, i == 0 ? 0 : 2 * PRODUCTS);
        if (i == 1) { /* nothing is in front of the first one */
            CHECK_CLOSE(m[i].waited / first, 1, 1e-9);
        }
        trmi_timeline_free(&timeline);
        trmi_space_destroy(s);
    }
    assert_true(m[1].step < m[0].step && m[1].ahead > 5 * m[1].waited);
    CHECK_CLOSE((m[0].step - m[1].step) / (m[1].ahead - m[1].waited), 1, 1e-9);
    CHECK_CLOSE(m[2].step / ((m[0].step + m[1].step) / 2), 1, 1e-9);
    /* operators without time hide nothing */
    trmi_space *s = space_with(&n, "2", fast, 1, 1, true);
    trmi_timeline timeline;
    quick = measure_gathers(s, &timeline);
    assert_true(quick.waited > 0.5 * quick.ahead && quick.step >= quick.ahead);
    trmi_timeline_free(&timeline);
    trmi_space_destroy(s);
    free_net(&n);
}

/* No plan, stored in any way, is faster than the bound that the search computes from one of its
 * solves. */
static void bounds_hold_for_gathers_that_begin_ahead(void **state) {
    (void)state;
    static const struct {
        double overlap, ahead, compute;
    } cases[] = {{1, 1, 1e-9},   {1, 1, 1e-11},   {0.5, 0.5, 1e-9}, {0.5, 0.5, 1e-11},
                 {1, 0.5, 1e-9}, {1, 0.5, 1e-11}, {0.5, 1, 1e-10},  {1, 0, 1e-10}};
    net n = make_stack(4);
    uint64_t drawn = 0;
    int plans = 0, gathered = 0;
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        const double o = cases[k].overlap;
        trmi_space *s =
            space_with(&n, k % 2 == 0 ? "4" : "2x2", cases[k].compute, o, cases[k].ahead, true);
        trmi_arena arena = {0};
        trmi_choice choice;
        double bound = 0;
        assert_true(trmi_choice_open(&choice, s, &arena));
        for (int i = 0; i < 5; i++) {
            const double part = fmin(o * i / 4, 0.999);
            trmi_solution solution;
            CHECK_OK(trmi_space_solve(s, &(trmi_objective){.gradient = (1 - o + part) / (1 - part)},
                                      &choice, &solution, NULL, &arena, &err),
                     err);
            bound = fmax(bound, (1 - part) * solution.lower_bound);
        }
        for (int i = 0; i < 200; i++) {
            trmi_measure m;
            for (int32_t v = 0; v < s->nodes_count; v++) {
                const trmi_space_class *c = trmi_space_class_of(s, v);
                uint32_t draw = trmi_random_u32(11, TRMI_STREAM_TEST, drawn++);
                choice.strategy[v] = (int32_t)(draw % (uint32_t)c->count);
                int policy = (int)(draw >> 16) % TRMI_STORES;
                trmi_node_cost cost = trmi_space_node_cost(s, c, choice.strategy[v], policy,
                                                           &(trmi_objective){.gradient = 1});
                choice.stores[v] = cost.seconds < INFINITY ? (uint8_t)policy : TRMI_STORE_AS_READ;
                choice.again[v] = 0;
            }
            CHECK_OK(trmi_space_measure(s, &choice, &m, &err), err);
            assert_true(m.step >= bound * (1 - 1e-5));
            plans += m.step < INFINITY;
            gathered += m.ahead > 0;
        }
        trmi_arena_free(&arena);
        trmi_space_destroy(s);
    }
    print_message("%d plans, %d with gathers ahead\n", plans, gathered);
    assert_true(plans > 500 && gathered > 100);
    free_net(&n);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tensor_parallel_pairs_products),
        cmocka_unit_test(rings_wait_for_what_attention_does_not_hide),
        cmocka_unit_test(gathers_wait_for_what_operators_do_not_hide),
        cmocka_unit_test(bounds_hold_for_gathers_that_begin_ahead),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
