/* SPDX-License-Identifier: Apache-2.0 */
/* Tests of what the search knows of transformers: the tensor parallel plan that people write by
 * hand, and what a ring of keys waits for. */
#include "check.h"

#include "plan/search/search.h"

#include <math.h>

enum { BATCH = 2, TOKENS = 64, WIDTH = 16, HEADS = 4 };

static trm_error err;

typedef struct net {
    trm_graph *graph;
    trm_program *program;
} net;

static trm_node weight(trm_graph *g, const char *name, int64_t rows, int64_t columns) {
    return trm_parameter(g, name, trm_shape_of(rows, columns), TRM_INIT_LINEAR);
}

/* A block: an attention between two products, a GELU between two others. pairs: false = one product
 * only. */
static net make_net(bool pairs, bool causal) {
    net n;
    CHECK_OK(trm_graph_create(&(trm_graph_options){.training = true}, &n.graph, &err), err);
    trm_graph *g = n.graph;
    trm_node x = trm_input(g, "x", TRM_FLOAT32, trm_shape_of(BATCH, TOKENS, WIDTH));
    trm_node y = trm_linear(g, x, weight(g, "qkv", 3 * WIDTH, WIDTH), TRM_NO_NODE);
    if (pairs) {
        y = trm_attention_packed(g, y, HEADS, HEADS, TRM_NO_NODE,
                                 &(trm_attention_options){.causal = causal});
        y = trm_add(g, x, trm_linear(g, y, weight(g, "out", WIDTH, WIDTH), TRM_NO_NODE));
        y = trm_linear(g, y, weight(g, "up", 4 * WIDTH, WIDTH), TRM_NO_NODE);
        y = trm_linear(g, trm_gelu(g, y, TRM_GELU_TANH), weight(g, "down", WIDTH, 4 * WIDTH),
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

/* Returns the space of a mesh. compute: seconds of an operation and of a byte; ahead: of the
 * costs. */
static trmi_space *space_of(const net *n, const char *mesh_text, double compute, double ahead) {
    trmi_mesh mesh;
    trmi_space *s;
    const trmi_prices prices = {.alpha = {4e-6, 1e-6},
                                .beta = {1e-9, 3e-10},
                                .copy = 1e-11,
                                .flop = compute,
                                .byte = compute};
    const trmi_search_costs costs = {
        .prices = &prices, .slots = 1, .overlap = 1, .ahead = ahead, .fuse = true};
    CHECK_OK(trmi_mesh_parse(mesh_text, &mesh, &err), err);
    CHECK_OK(trmi_space_create(n->program->graph, &mesh, &costs, NULL, &s, &err), err);
    return s;
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

/* A ring of two passes two blocks in forward and four in backward. Two of the four, the gradients of
 * the last turn, wait for that turn; the others travel while the first turn attends. */
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

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tensor_parallel_pairs_products),
        cmocka_unit_test(rings_wait_for_what_attention_does_not_hide),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
