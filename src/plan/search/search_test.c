/* SPDX-License-Identifier: Apache-2.0 */
/* Tests of the search: prices against the router, plans against every other plan, bounds, memory
 * limits, pins, the other search modes. Small graphs are searched exhaustively, so that optimality
 * and bounds are checked, not assumed. */
#include "check.h"
#include "tests/lib/spreads.h"

#include "plan/search/search.h"

#include "base/rng.h"

#include <math.h>

static trm_error err;

typedef struct net {
    trm_graph *graph;
    trm_program *program;
} net;

/* Two convolutions with ReLU and a shortcut, pooling, a classifier over `classes`. */
static net make_net(int64_t batch, int64_t channels, int64_t image, int64_t classes) {
    net n;
    CHECK_OK(trm_graph_create(&(trm_graph_options){.training = true}, &n.graph, &err), err);
    trm_graph *g = n.graph;
    trm_node x = trm_input(g, "image", TRM_FLOAT32, trm_shape_of(batch, 3, image, image));
    trm_node y = trm_input(g, "label", TRM_INT32, trm_shape_of(batch));
    const trm_conv_options same = {.stride = {1, 1}, .pad = {1, 1, 1, 1}};
    trm_node a = trm_conv2d(
        g, x, trm_parameter(g, "w0", trm_shape_of(channels, 3, 3, 3), TRM_INIT_HE_NORMAL_FAN_OUT),
        TRM_NO_NODE, &same);
    trm_node b = trm_conv2d(
        g, trm_relu(g, a),
        trm_parameter(g, "w1", trm_shape_of(channels, channels, 3, 3), TRM_INIT_HE_NORMAL_FAN_OUT),
        TRM_NO_NODE, &same);
    trm_node c = trm_global_avg_pool(g, trm_relu(g, trm_add(g, a, b)));
    trm_node z =
        trm_linear(g, c, trm_parameter(g, "fc.w", trm_shape_of(classes, channels), TRM_INIT_LINEAR),
                   trm_parameter(g, "fc.b", trm_shape_of(classes), TRM_INIT_ZERO));
    trm_node loss = trm_softmax_cross_entropy(g, z, y, NULL);
    CHECK_OK(trm_graph_check(g, &err), err);
    CHECK_OK(trmi_plan_create(g, &(trmi_plan_options){.loss = loss}, &n.program, &err), err);
    return n;
}

static void free_net(net *n) {
    trmi_plan_destroy(n->program);
    trm_graph_destroy(n->graph);
}

static const trmi_prices prices = {.alpha = {4e-6, 1e-6, 2e-6, 1e-6},
                                   .beta = {1e-9, 3e-10, 2e-10, 1e-10},
                                   .copy = 1e-11,
                                   .flop = 1e-11,
                                   .byte = 1e-10};
static trmi_search_costs costs_of(double overlap) {
    return (trmi_search_costs){.prices = &prices,
                               .slots = 1,
                               .overlap = overlap,
                               .fuse = overlap > 0,
                               .shard_stores = true};
}
static trmi_space *space_of(const net *n, const char *mesh_text, double overlap,
                            const trmi_partition_plan *pins) {
    trmi_mesh mesh;
    trmi_space *s;
    trmi_search_costs costs = costs_of(overlap);
    CHECK_OK(trmi_mesh_parse(mesh_text, &mesh, &err), err);
    CHECK_OK(trmi_space_create(n->program->graph, &mesh, &costs, pins, &s, &err), err);
    return s;
}

/* Prices of random pairs of spreads agree with routes found by the router. */
static void prices_are_the_routers(void **state) {
    (void)state;
    static const char *const meshes[] = {"8", "2x4", "2x2x2", "3x2"};
    const trm_shape shapes[] = {trm_shape_of(16, 24), trm_shape_of(7), trm_shape_of(8, 6, 10, 9),
                                trm_shape_of(5, 12, 4)};
    int other = 0, all = 0;
    for (size_t m = 0; m < 4; m++) {
        trmi_mesh mesh;
        trmi_router *router;
        CHECK_OK(trmi_mesh_parse(meshes[m], &mesh, &err), err);
        CHECK_OK(trmi_router_create(&mesh, &prices, &router, &err), err);
        for (size_t k = 0; k < 4; k++) {
            trmi_arena arena = {0};
            trmi_price_table t = {.shape = shapes[k], .dtype = TRM_FLOAT32};
            trmi_spread *list;
            int32_t count;
            CHECK_OK(trmi_price_table_fill(&t, &mesh, &prices, &arena, &err), err);
            CHECK_OK(trmi_spread_list(&mesh, &shapes[k], true, false, &arena, &list, &count, &err),
                     err);
            for (int32_t i = 0; i < 400; i++) {
                const trmi_spread *a = &list[trmi_bounded(
                    trmi_random_u32(3, TRMI_STREAM_TEST, (uint64_t)(2 * i)), (uint32_t)count)];
                const trmi_spread *b = &list[trmi_bounded(
                    trmi_random_u32(3, TRMI_STREAM_TEST, (uint64_t)(2 * i + 1)), (uint32_t)count)];
                int32_t from = trmi_price_number(&t, &mesh, a),
                        to = trmi_price_number(&t, &mesh, b);
                assert_true(from >= 0 && to >= 0);
                double own = (double)t.seconds[(int64_t)from * t.count + to];
                double route = trmi_route_seconds(router, &shapes[k], TRM_FLOAT32, a, b);
                if (route == INFINITY) {
                    assert_true(own == INFINITY);
                    continue;
                }
                /* the router also uses other orders of axes; in the table, zeros can follow any
                 * exchange */
                assert_true(own >= route * 0.85 - 2e-7);
                other += fabs(own - route) > route * 1e-5;
                all++;
            }
            trmi_arena_free(&arena);
        }
        trmi_router_destroy(router);
    }
    print_message("%d of %d routes differ from the router's\n", other, all);
    assert_true(all > 4000 && other * 5 < all);
}

/* Returns B + w G and M of node n with strategy i; policy: a store, and whether the output is
 * recomputed. */
static trmi_node_cost node_cost(const trmi_space *s, int32_t n, int32_t i, int policy,
                                double gradient) {
    const trmi_space_class *c = trmi_space_class_of(s, n);
    const trmi_store_cost *t = &c->stores[TRMI_STORES * i + policy % TRMI_STORES];
    trmi_node_cost cost = {c->forward[i] + c->backward[i] + c->exchange[i] + t->blocking +
                               gradient * t->gradient,
                           c->kept[i] + t->bytes};
    if (policy >= TRMI_STORES) {
        cost.seconds = c->saved[i] > 0 ? cost.seconds + c->again[i] : INFINITY;
        cost.bytes -= c->saved[i];
    }
    return cost;
}

/* Returns seconds and bytes of all edges of a choice. */
static trmi_node_cost edges_cost(const trmi_space *s, const int32_t *strategy) {
    trmi_node_cost sum = {0, 0};
    for (int64_t e = 0; e < s->edges_count; e++) {
        const trmi_space_edge *edge = &s->edges[e];
        int64_t at = (int64_t)strategy[edge->from] * trmi_space_class_of(s, edge->to)->count +
                     strategy[edge->to];
        sum.seconds += (double)s->tables[edge->table][at];
        sum.bytes += s->bytes[edge->table] != NULL ? (double)s->bytes[edge->table][at] : 0;
    }
    return sum;
}

/* Returns B + w G + lambda M of a choice, summed from the parts of the space. */
static double cost_of(const trmi_space *s, const int32_t *strategy, const trmi_objective *w) {
    trmi_node_cost edges = edges_cost(s, strategy);
    double sum = edges.seconds + w->memory * edges.bytes;
    for (int32_t n = 0; n < s->nodes_count; n++) {
        double least = INFINITY;
        for (int k = 0; k < TRMI_POLICIES; k++) {
            trmi_node_cost policy = node_cost(s, n, strategy[n], k, w->gradient);
            least = fmin(least, policy.seconds + w->memory * policy.bytes);
        }
        sum += least;
    }
    return sum;
}

/* Random plans, half of them near the optimum, are never cheaper than the plan that the search
 * finds. */
static void no_other_plan_is_cheaper(void **state) {
    (void)state;
    net n = make_net(8, 6, 6, 40);
    static const trmi_objective weights[] = {{.gradient = 1},
                                             {.gradient = 0},
                                             {.gradient = 3, .memory = 1e-9},
                                             {.gradient = 1, .memory = 1e-7}};
    for (int k = 0; k < 4; k++) {
        trmi_space *s = space_of(&n, k % 2 ? "2x2" : "3", 0, NULL);
        trmi_arena arena = {0};
        trmi_choice choice;
        trmi_solution solution;
        assert_true(trmi_choice_open(&choice, s, &arena));
        CHECK_OK(trmi_space_solve(s, &weights[k], &choice, &solution, NULL, &arena, &err), err);
        double best = cost_of(s, choice.strategy, &weights[k]);
        CHECK_CLOSE(best / solution.objective, 1, 1e-5);
        assert_int_equal(solution.branches, 0);
        int32_t other[64];
        assert_true(s->nodes_count < 64);
        /* random plans and plans near the optimum, in turns */
        for (uint64_t i = 0; i < 60000; i++) {
            for (int32_t v = 0; v < s->nodes_count; v++) {
                uint32_t count = (uint32_t)trmi_space_class_of(s, v)->count;
                bool keep = i % 2 == 0 && trmi_random_u32(5, 1, i * 64 + (uint64_t)v) % 4 != 0;
                other[v] = keep ? choice.strategy[v]
                                : (int32_t)trmi_bounded(trmi_random_u32(6, 1, i * 64 + (uint64_t)v),
                                                        count);
            }
            assert_true(cost_of(s, other, &weights[k]) >= best * (1 - 1e-6));
        }
        trmi_arena_free(&arena);
        trmi_space_destroy(s);
    }
    free_net(&n);
}

/* A classifier of one or two layers with random sizes, some of two layers with one matrix: few
 * operators, so that every plan can be enumerated. */
static net small_net(uint64_t seed) {
    net n;
    uint32_t r[6];
    for (uint64_t i = 0; i < 6; i++) {
        r[i] = trmi_random_u32(11, TRMI_STREAM_TEST, seed * 6 + i);
    }
    bool wide = seed % 8 < 4; /* many classes and few samples, or the reverse */
    int64_t batch = wide ? 4 + r[0] % 61 : 4096 + r[0] % 8192,
            in = wide ? 4 + r[1] % 60 : 256 + r[1] % 256, hidden = 4 + r[2] % 500;
    int64_t classes = wide ? 4 + r[3] % 4000 : 64 + r[3] % 512;
    CHECK_OK(trm_graph_create(&(trm_graph_options){.training = true}, &n.graph, &err), err);
    trm_graph *g = n.graph;
    bool tied = seed % 5 == 2;
    in = tied ? 2 * in : in;
    hidden = tied ? in : hidden;
    classes = tied ? in : classes;
    trm_node x = trm_input(g, "x", TRM_FLOAT32, trm_shape_of(batch, in)),
             y = trm_input(g, "label", TRM_INT32, trm_shape_of(batch)), first = TRM_NO_NODE;
    if (tied || r[4] % 2 == 0) {
        first = trm_parameter(g, "a", trm_shape_of(hidden, in), TRM_INIT_LINEAR);
        x = trm_linear(g, x, first, TRM_NO_NODE);
        x = r[5] % 2 == 0 ? trm_relu(g, x) : x;
        in = hidden;
    }
    trm_node z = trm_linear(
        g, x, tied ? first : trm_parameter(g, "b", trm_shape_of(classes, in), TRM_INIT_LINEAR),
        trm_parameter(g, "c", trm_shape_of(classes), TRM_INIT_ZERO));
    trm_node loss = trm_softmax_cross_entropy(g, z, y, NULL);
    CHECK_OK(trm_graph_check(g, &err), err);
    CHECK_OK(trmi_plan_create(g, &(trmi_plan_options){.loss = loss}, &n.program, &err), err);
    return n;
}

/* What the plans of a test have. */
typedef struct seen {
    int64_t looked, parts, gathers; /* plans; operators in parts, of these gathered again */
    int64_t rings, heads, queries;  /* attentions by letter */
} seen;

/* Compares the exact search with every strategy of every operator, with parameters whole and in
 * parts. k: draws costs and the price of memory. */
static void compare_with_all(const net *n, const char *mesh, uint64_t k, seen *all) {
    trmi_space *s = space_of(n, mesh, (double)(k % 3) / 2, NULL);
    const trmi_objective w = {.gradient = (double)(k % 5) / 2,
                              .memory = k % 7 < 3 ? 0 : pow(10, -12 + (double)(k % 7))};
    trmi_arena arena = {0};
    trmi_choice choice;
    trmi_solution solution;
    assert_true(trmi_choice_open(&choice, s, &arena));
    CHECK_OK(trmi_space_solve(s, &w, &choice, &solution, NULL, &arena, &err), err);
    int32_t at[8] = {0}, v;
    double least = INFINITY;
    assert_true(s->nodes_count <= 5);
    do { /* cost_of() uses the cheaper form of storing each parameter */
        least = fmin(least, cost_of(s, at, &w));
        all->looked++;
        for (v = 0; v < s->nodes_count && ++at[v] == trmi_space_class_of(s, v)->count; v++) {
            at[v] = 0;
        }
    } while (v < s->nodes_count);
    CHECK_CLOSE(solution.objective / least, 1, 1e-5);
    CHECK_CLOSE(cost_of(s, choice.strategy, &w) / least, 1, 1e-5);
    assert_true(solution.lower_bound <= least * (1 + 1e-5));
    for (v = 0; v < s->nodes_count; v++) {
        all->parts += choice.stores[v] != TRMI_STORE_AS_READ;
        all->gathers += choice.stores[v] == TRMI_STORE_AGAIN;
        if (trmi_space_op(s, v)->kind == TRMI_OP_ATTENTION) {
            const char *letters = trmi_space_class_of(s, v)->strategies[choice.strategy[v]].letters;
            all->rings += strchr(letters, 'r') != NULL;
            all->heads += strchr(letters, 'g') != NULL;
            all->queries += strchr(letters, 'q') != NULL;
        }
    }
    trmi_arena_free(&arena);
    trmi_space_destroy(s);
}

/* 240 small graphs, meshes, costs and prices of memory. */
static void equal_to_brute_force(void **state) {
    (void)state;
    static const char *const meshes[] = {"2", "3", "4", "2x2"};
    seen all = {0};
    for (uint64_t k = 0; k < 240; k++) {
        net n = small_net(k);
        compare_with_all(&n, meshes[k % 4], k, &all);
        free_net(&n);
    }
    print_message("%lld plans looked at, %lld operators store in parts, %lld gather again\n",
                  (long long)all.looked, (long long)all.parts, (long long)all.gathers);
    assert_true(all.looked > 20000 && all.parts > 20 && all.gathers > 5);
}

/* One layer of an attention: packed as in GPT-2, or queries beside keys and values of fewer
 * heads. */
static net attention_net(uint64_t seed) {
    enum { WIDTH = 16 };
    net n;
    uint32_t r[5];
    for (uint64_t i = 0; i < 5; i++) {
        r[i] = trmi_random_u32(23, TRMI_STREAM_TEST, seed * 5 + i);
    }
    int64_t batch = 1 + r[0] % 4, tokens = 64 << r[1] % 6, heads = 1 + r[2] % 6,
            shared = heads % 2 == 0 && r[3] % 2 ? heads / 2 : heads;
    const trm_attention_options options = {.causal = r[4] % 2};
    CHECK_OK(trm_graph_create(&(trm_graph_options){.training = true}, &n.graph, &err), err);
    trm_graph *g = n.graph;
    trm_node x = trm_input(g, "x", TRM_FLOAT32, trm_shape_of(batch, tokens, WIDTH)), y;
    if (seed % 2) {
        trm_node w = trm_parameter(g, "w", trm_shape_of((heads + 2 * shared) * WIDTH, WIDTH),
                                   TRM_INIT_LINEAR);
        y = trm_attention_packed(g, trm_linear(g, x, w, TRM_NO_NODE), heads, shared, TRM_NO_NODE,
                                 &options);
    } else {
        trm_node keys = trm_input(g, "k", TRM_FLOAT32, trm_shape_of(batch, tokens, shared, WIDTH)),
                 q = trm_parameter(g, "q", trm_shape_of(batch, tokens, heads, WIDTH),
                                   TRM_INIT_LINEAR);
        y = trm_attention(g, trm_tanh(g, q), keys, keys, TRM_NO_NODE, &options);
    }
    trm_node loss = trm_reduce_mean(g, y, NULL, 0, false);
    CHECK_OK(trm_graph_check(g, &err), err);
    CHECK_OK(trmi_plan_create(g, &(trmi_plan_options){.loss = loss}, &n.program, &err), err);
    return n;
}

/* Attention in all its cuts: each is the best one for some sizes. */
static void attentions_equal_brute_force(void **state) {
    (void)state;
    static const char *const meshes[] = {"2", "3", "4", "2x2", "8"};
    seen all = {0};
    for (uint64_t k = 0; k < 120; k++) {
        net n = attention_net(k);
        compare_with_all(&n, meshes[k % 5], k, &all);
        free_net(&n);
    }
    print_message("%lld plans looked at; best: %lld rings, %lld by heads, %lld by queries\n",
                  (long long)all.looked, (long long)all.rings, (long long)all.heads,
                  (long long)all.queries);
    assert_true(all.rings > 0 && all.heads > 0);
}

/* Enumerates every policy of each operator for given strategies; finds the fastest within two
 * limits. */
static void fastest_policies(const trmi_space *s, const int32_t *strategy, double gradient,
                             const double limit[2], double best[2]) {
    trmi_node_cost policies[8][TRMI_POLICIES], edges = edges_cost(s, strategy);
    int32_t policy[8] = {0}, count[8] = {0}, v;
    for (v = 0; v < s->nodes_count; v++) {
        for (int k = 0; k < TRMI_POLICIES; k++) {
            policies[v][count[v]] = node_cost(s, v, strategy[v], k, gradient);
            count[v] += policies[v][count[v]].seconds < INFINITY;
        }
    }
    do {
        trmi_node_cost sum = edges;
        for (v = 0; v < s->nodes_count; v++) {
            sum.seconds += policies[v][policy[v]].seconds;
            sum.bytes += policies[v][policy[v]].bytes;
        }
        for (int i = 0; i < 2; i++) {
            best[i] =
                sum.bytes <= limit[i] * (1 + 1e-9) && sum.seconds < best[i] ? sum.seconds : best[i];
        }
        for (v = 0; v < s->nodes_count && ++policy[v] == count[v]; v++) {
            policy[v] = 0;
        }
    } while (v < s->nodes_count);
}

static void fastest_within(const trmi_space *s, double gradient, const double limit[2],
                           double best[2]) {
    int32_t at[8] = {0}, v;
    best[0] = best[1] = INFINITY;
    do {
        fastest_policies(s, at, gradient, limit, best);
        for (v = 0; v < s->nodes_count && ++at[v] == trmi_space_class_of(s, v)->count; v++) {
            at[v] = 0;
        }
    } while (v < s->nodes_count);
}

/* For limits between the smallest and the fastest plan of small graphs, the search finds the
 * fastest plan that fits. */
static void limits_equal_brute_force(void **state) {
    (void)state;
    static const char *const meshes[] = {"2", "3", "4"};
    int limits = 0, proved = 0, again = 0, parts = 0, gathers = 0;
    for (uint64_t k = 0; k < 210; k++) {
        net n = small_net(k);
        trmi_space *s = space_of(&n, meshes[k % 3], (double)(k % 3) / 2, NULL);
        trmi_arena arena = {0};
        trmi_front curve, within;
        trmi_choice *points, *point;
        double gradient = (double)(k % 4) / 2;
        assert_true(s->nodes_count <= 5);
        CHECK_OK(trmi_space_front(s, &(trmi_objective){.gradient = gradient}, 0, &arena, &curve,
                                  &points, &err),
                 err);
        double most = curve.points[0].memory, least = curve.least_memory, bests[2];
        const double limits_of[2] = {least + (most - least) * 0.15, least + (most - least) * 0.65};
        fastest_within(s, gradient, limits_of, bests);
        for (int i = 0; i < 2; i++) {
            double limit = limits_of[i], best = bests[i];
            CHECK_OK(trmi_space_front(s, &(trmi_objective){.gradient = gradient}, limit, &arena,
                                      &within, &point, &err),
                     err);
            assert_true(within.feasible && within.points[0].memory <= limit * (1 + 1e-9));
            assert_true(within.lower_bound <= best * (1 + 1e-5));
            assert_true(within.points[0].time >= best * (1 - 1e-5));
            if (within.open == 0) {
                CHECK_CLOSE(within.points[0].time / best, 1, 1e-5);
                double on_curve = INFINITY;
                for (int32_t p = 0; p < curve.count; p++) {
                    on_curve = curve.points[p].memory <= limit * (1 + 1e-9)
                                   ? fmin(on_curve, curve.points[p].time)
                                   : on_curve;
                }
                assert_true(curve.open > 0 || on_curve <= best * (1 + 1e-5) + curve.slack);
                proved++;
            }
            limits++;
            for (int32_t v = 0; v < s->nodes_count; v++) {
                parts += point[0].stores[v] != TRMI_STORE_AS_READ;
                gathers += point[0].stores[v] == TRMI_STORE_AGAIN;
                again += point[0].again[v];
            }
        }
        trmi_arena_free(&arena);
        trmi_space_destroy(s);
        free_net(&n);
    }
    print_message("%d limits, %d proved; in parts %d, gathered again %d, made again %d\n", limits,
                  proved, parts, gathers, again);
    assert_true(proved > limits * 9 / 10 && parts > 20 && gathers > 20 && again > 20);
}

/* Ranks of one host share one copy of whole parameters: no plan is faster than the one found, and
 * its bound is the step, whichever kind of plan is best. */
static void plans_in_slices_equal_brute_force(void **state) {
    (void)state;
    static const char *const meshes[] = {"2", "3", "4", "2x2"};
    int sliced = 0, cut = 0, gained = 0;
    for (uint64_t k = 0; k < 120; k++) {
        net n = small_net(k);
        trmi_space *s = space_of(&n, meshes[k % 4], 0, NULL);
        trmi_arena arena = {0};
        trmi_found f;
        trmi_choice at;
        trmi_measure m, before;
        int32_t v;
        double least = INFINITY;
        assert_true(trmi_choice_open(&at, s, &arena));
        assert_true(trmi_space_baseline(s, TRMI_BASELINE_SAMPLES, &at));
        CHECK_OK(trmi_space_measure(s, &at, &before, &err), err);
        s->costs.slices = true;
        CHECK_OK(trmi_space_measure(s, &at, &m, &err), err);
        gained += trmi_choice_sliced(s, &at) && m.update < before.update &&
                  m.slot_bytes < before.slot_bytes;
        CHECK_OK(trmi_search(s, NULL, &arena, &f, &err), err);
        memset(at.strategy, 0, (size_t)s->nodes_count * sizeof *at.strategy);
        do {
            CHECK_OK(trmi_space_measure(s, &at, &m, &err), err);
            least = fmin(least, m.step);
            for (v = 0; v < s->nodes_count && ++at.strategy[v] == trmi_space_class_of(s, v)->count;
                 v++) {
                at.strategy[v] = 0;
            }
        } while (v < s->nodes_count);
        assert_true(f.objective <= least * (1 + 1e-6) && f.lower_bound <= f.objective);
        /* where slices cost more than they save, the bound does not include the cost of their
         * barriers */
        assert_true(f.objective - f.lower_bound <= trmi_space_meetings(s) + 1e-3 * f.objective);
        sliced += trmi_choice_sliced(s, &f.best.choice);
        cut += !trmi_choice_sliced(s, &f.best.choice);
        trmi_arena_free(&arena);
        trmi_space_destroy(s);
        free_net(&n);
    }
    print_message("%d best in slices, %d not; data parallel gains in %d\n", sliced, cut, gained);
    assert_true(sliced > 5 && cut > 5 && gained > 60);
}

/* The search never predicts a slower step than data parallel, and its bound holds. */
static void never_slower_than_data_parallel(void **state) {
    (void)state;
    static const char *const meshes[] = {"2", "4", "8", "2x2", "2x4", "3", "2x2x2"};
    for (int k = 0; k < 21; k++) {
        net n = make_net(k % 3 == 0 ? 4 : 64, 8, k % 3 == 1 ? 24 : 8, k % 3 == 2 ? 5000 : 10);
        trmi_space *s = space_of(&n, meshes[k % 7], k % 2, NULL);
        for (int mode = 0; mode < 3; mode++) {
            trmi_arena arena = {0};
            trmi_found f;
            trmi_measure m;
            CHECK_OK(trmi_search(s, &(trmi_search_options){.mode = (trmi_search_mode)mode}, &arena,
                                 &f, &err),
                     err);
            assert_string_equal(f.baselines[0].name, "data parallel");
            assert_true(f.objective <= f.baselines[0].measure.step);
            assert_true(f.lower_bound <= f.objective);
            CHECK_OK(trmi_space_measure(s, &f.best.choice, &m, &err), err);
            CHECK_CLOSE(m.step, f.objective, 1e-9);
            if (mode == 0) {
                for (int b = 0; b < f.baselines_count; b++) {
                    assert_true(f.objective <= f.baselines[b].measure.step);
                    assert_true(f.lower_bound <= f.baselines[b].measure.step * (1 + 1e-6));
                }
                /* without overlap the sum of the parts is the step, and the optimum is proved */
                if (k % 2 == 0) {
                    CHECK_CLOSE(f.lower_bound / f.objective, 1, 1e-3);
                }
            }
            trmi_arena_free(&arena);
        }
        trmi_space_destroy(s);
        free_net(&n);
    }
}

static void an_axis_more_is_never_slower(void **state) {
    (void)state;
    net n = make_net(8, 8, 8, 100);
    const char *const meshes[] = {"2", "2x2", "2x2x2"};
    double before = INFINITY;
    for (int k = 0; k < 3; k++) {
        trmi_space *s = space_of(&n, meshes[k], 0, NULL);
        trmi_arena arena = {0};
        trmi_choice choice;
        trmi_solution solution;
        assert_true(trmi_choice_open(&choice, s, &arena));
        CHECK_OK(trmi_space_solve(s, &(trmi_objective){.gradient = 1}, &choice, &solution, NULL,
                                  &arena, &err),
                 err);
        assert_true(solution.objective <= before * (1 + 1e-6));
        before = solution.objective;
        trmi_arena_free(&arena);
        trmi_space_destroy(s);
    }
    free_net(&n);
}

/* Plans keep the memory limit; an impossible limit is reported; the curve is monotonic. */
static void memory_limits_are_kept_and_bounded(void **state) {
    (void)state;
    net n = make_net(32, 16, 12, 20000);
    trmi_space *s = space_of(&n, "4", 0, NULL);
    trmi_arena arena = {0};
    trmi_found free_run, f;
    CHECK_OK(trmi_search(s, &(trmi_search_options){.frontier = true}, &arena, &free_run, &err),
             err);
    double most = free_run.best.measure.bytes, least = free_run.least_memory.measure.bytes;
    assert_true(least < most);
    assert_true(free_run.frontier_count >= 2);
    for (int i = 1; i < free_run.frontier_count; i++) {
        assert_true(free_run.frontier[i].measure.bytes < free_run.frontier[i - 1].measure.bytes);
        assert_true(free_run.frontier[i].measure.step >= free_run.frontier[i - 1].measure.step);
    }
    /* computing the curve changes neither the plan nor the certificate */
    CHECK_OK(trmi_search(s, NULL, &arena, &f, &err), err);
    CHECK_CLOSE(free_run.lower_bound / f.lower_bound, 1, 1e-9);
    CHECK_CLOSE(free_run.objective / f.objective, 1, 1e-9);
    assert_true(free_run.weights.memory == 0);
    double before = free_run.objective;
    for (int i = 1; i <= 6; i++) {
        double limit = most - (most - least) * i / 6;
        CHECK_OK(trmi_search(s, &(trmi_search_options){.memory_bytes = limit * (1 + 1e-9)}, &arena,
                             &f, &err),
                 err);
        assert_false(f.infeasible);
        assert_true(f.best.measure.bytes <= limit * (1 + 1e-9));
        assert_true(f.objective >= before * (1 - 1e-6));
        assert_true(f.lower_bound <= f.objective);
        before = f.objective;
    }
    CHECK_OK(trmi_search(s, &(trmi_search_options){.memory_bytes = least * 0.9}, &arena, &f, &err),
             err);
    assert_true(f.infeasible);
    CHECK_CLOSE(f.least_memory.measure.bytes / least, 1, 1e-6);
    trmi_arena_free(&arena);
    trmi_space_destroy(s);
    free_net(&n);
}

/* Pinned operators keep their strategy; a plan written to text and read back is the same choice. */
static void pins_are_kept_and_plans_survive_their_file(void **state) {
    (void)state;
    net n = make_net(16, 8, 8, 50);
    trmi_space *s = space_of(&n, "2x2", 0, NULL);
    trmi_arena arena = {0};
    trmi_found f;
    CHECK_OK(trmi_search(s, NULL, &arena, &f, &err), err);
    trmi_partition_plan *plan, *again;
    CHECK_OK(trmi_space_plan(s, &f.best.choice, &plan, &err), err);
    char *text = trmi_partition_plan_text(plan);
    assert_non_null(text);
    CHECK_OK(trmi_partition_plan_parse(text, strlen(text), "test", &again, &err), err);
    CHECK_OK(trmi_partition_plan_check(again, n.program->graph, 4, &err), err);
    trmi_choice back;
    assert_true(trmi_choice_open(&back, s, &arena));
    CHECK_OK(trmi_space_choice(s, again, &back, &err), err);
    assert_memory_equal(back.strategy, f.best.choice.strategy,
                        (size_t)s->nodes_count * sizeof *back.strategy);
    /* an operator that is pinned to a bad strategy keeps it */
    const trmi_op *op = trmi_space_op(s, 0);
    CHECK_OK(trmi_partition_plan_set(again, op->name, "wk", true, NULL, &err), err);
    trmi_space *pinned = space_of(&n, "2x2", 0, again);
    trmi_found g;
    CHECK_OK(trmi_search(pinned, NULL, &arena, &g, &err), err);
    assert_string_equal(
        trmi_space_class_of(pinned, 0)->strategies[g.best.choice.strategy[0]].letters, "wk");
    assert_true(g.objective >= f.objective);
    trm_free(text);
    trmi_partition_plan_destroy(plan);
    trmi_partition_plan_destroy(again);
    trmi_arena_free(&arena);
    trmi_space_destroy(pinned);
    trmi_space_destroy(s);
    free_net(&n);
}

/* The partition accepts everything that the search can choose: each strategy of each operator with
 * its parameters in parts, and a bias that is added to a partial sum. */
static void the_partition_takes_every_strategy(void **state) {
    (void)state;
    net n = make_net(16, 8, 8, 48);
    static const char *const meshes[] = {"4", "2x2", "2x2x2"};
    int64_t stores = 0, partial = 0;
    for (size_t m = 0; m < sizeof meshes / sizeof *meshes; m++) {
        trmi_space *s = space_of(&n, meshes[m], 0, NULL);
        trmi_arena arena = {0};
        trmi_choice choice;
        assert_true(trmi_choice_open(&choice, s, &arena));
        memset(choice.stores, TRMI_STORE_PARTS, (size_t)s->nodes_count);
        int32_t most = 0;
        for (int32_t v = 0; v < s->nodes_count; v++) {
            most =
                trmi_space_class_of(s, v)->count > most ? trmi_space_class_of(s, v)->count : most;
        }
        for (int32_t i = 0; i < most; i++) {
            for (int32_t v = 0; v < s->nodes_count; v++) {
                const trmi_space_class *c = trmi_space_class_of(s, v);
                choice.strategy[v] = i % c->count;
                const trmi_op *op = trmi_space_op(s, v);
                bool sums = op->inputs_count > 2 && op->kind == TRMI_OP_LINEAR &&
                            trmi_spread_has_partial(&c->strategies[i % c->count].inputs[2]);
                trmi_spread stored;
                partial += sums && trmi_space_parts(s, v, 2, i % c->count, &stored);
            }
            trmi_partition_plan *plan;
            CHECK_OK(trmi_space_plan(s, &choice, &plan, &err), err);
            CHECK_OK(
                trmi_partition_plan_check(plan, n.program->graph, trmi_mesh_ranks(&s->mesh), &err),
                err);
            stores += plan->stores_count;
            trmi_partition_plan_destroy(plan);
        }
        trmi_arena_free(&arena);
        trmi_space_destroy(s);
    }
    print_message("%lld stores, %lld of a bias of a partial sum\n", (long long)stores,
                  (long long)partial);
    assert_true(stores > 100 && partial > 0);
    free_net(&n);
}

/* With many classes and few samples the best plan cuts the classifier by classes. */
static void many_classes_split_the_head(void **state) {
    (void)state;
    net n = make_net(16, 16, 8, 100000);
    trmi_space *s = space_of(&n, "4", 0, NULL);
    trmi_arena arena = {0};
    trmi_found f;
    CHECK_OK(trmi_search(s, NULL, &arena, &f, &err), err);
    CHECK_OK(trmi_search_runners(s, &f, &arena, &err), err);
    bool split = false;
    for (int32_t i = 0; i < s->nodes_count; i++) {
        if (trmi_space_op(s, i)->kind == TRMI_OP_LINEAR) {
            split =
                trmi_space_class_of(s, i)->strategies[f.best.choice.strategy[i]].letters[0] == 'k';
            assert_true(f.runners[i].strategy >= 0 && f.runners[i].price > 0);
        }
    }
    assert_true(split);
    assert_true(f.objective * 2 < f.baselines[0].measure.step);
    trmi_timeline timeline;
    trmi_router *router;
    trmi_measure m;
    CHECK_OK(trmi_router_create(&s->mesh, &prices, &router, &err), err);
    CHECK_OK(trmi_space_timeline(s, &f.best.choice, router, &timeline, &m, &err), err);
    CHECK_CLOSE(m.step, f.objective, 1e-9);
    double sum = 0;
    for (int64_t i = 0; i < timeline.count; i++) {
        sum += timeline.events[i].kind == TRMI_EVENT_BUCKET ? 0 : timeline.events[i].seconds;
    }
    CHECK_CLOSE(sum / m.blocking, 1, 1e-6);
    trmi_timeline_free(&timeline);
    trmi_router_destroy(router);
    trmi_arena_free(&arena);
    trmi_space_destroy(s);
    free_net(&n);
}

/* Returns how many EXCHANGE steps of rank 0's program, under a plan, have at least `elements`
 * numbers. */
static int32_t count_exchanges(const trm_graph *graph, trm_node loss,
                               const trmi_partition_plan *plan, int64_t elements) {
    trm_program *program;
    int32_t count = 0;
    CHECK_OK(trmi_plan_create(graph, &(trmi_plan_options){.loss = loss, .partition = plan},
                              &program, &err),
             err);
    for (int32_t i = 0; i < program->steps_count; i++) {
        const trmi_step *step = &program->steps[i];
        count += step->kind == TRMI_STEP_OP && step->op_kind == TRMI_OP_EXCHANGE &&
                 trm_shape_count(&program->buffers[step->inputs[0]].shape) >= elements;
    }
    trmi_plan_destroy(program);
    return count;
}

/* A table that an embedding and the output layer read (a tied parameter): moving it between two
 * cuts has a price, and the best plan cuts both readers alike, so that its program does not move
 * the table. */
static void readers_of_a_tied_parameter_are_cut_alike(void **state) {
    enum { ROWS = 20000, WIDTH = 16, SAMPLES = 8, RANKS = 4 };
    (void)state;
    net n;
    CHECK_OK(trm_graph_create(&(trm_graph_options){.training = true}, &n.graph, &err), err);
    trm_graph *g = n.graph;
    trm_node ids = trm_input(g, "ids", TRM_INT32, trm_shape_of(SAMPLES)),
             y = trm_input(g, "label", TRM_INT32, trm_shape_of(SAMPLES)),
             table = trm_parameter(g, "table", trm_shape_of(ROWS, WIDTH), TRM_INIT_LINEAR);
    trm_node loss =
        trm_linear_cross_entropy(g, trm_relu(g, trm_embedding(g, table, ids)), table, y, NULL);
    CHECK_OK(trm_graph_check(g, &err), err);
    CHECK_OK(trmi_plan_create(g, &(trmi_plan_options){.loss = loss}, &n.program, &err), err);
    trmi_space *s = space_of(&n, "4", 0, NULL);
    const trmi_space_edge *tied = NULL;
    for (int64_t e = 0; e < s->edges_count; e++) {
        tied = s->edges[e].tied > 0 ? &s->edges[e] : tied;
    }
    assert_non_null(tied);
    const trmi_space_class *from = trmi_space_class_of(s, tied->from),
                           *to = trmi_space_class_of(s, tied->to);
    /* the price, for each pair of cuts */
    int32_t moves = 0;
    for (int32_t i = 0; i < from->count; i++) {
        for (int32_t k = 0; k < to->count; k++) {
            trmi_spread source = trmi_space_source(s, tied, i);
            bool alike = trmi_spread_equal(&source, &to->strategies[k].inputs[tied->input]);
            float price = s->tables[tied->table][(size_t)i * (size_t)to->count + (size_t)k];
            assert_true(alike || price > 0);
            moves += !alike;
        }
    }
    assert_true(moves > 0);
    /* weights, gradient and slot are there once */
    trmi_choice whole;
    trmi_measure m;
    trmi_arena scratch = {0};
    assert_true(trmi_choice_open(&whole, s, &scratch));
    assert_true(trmi_space_baseline(s, TRMI_BASELINE_SAMPLES, &whole));
    CHECK_OK(trmi_space_measure(s, &whole, &m, &err), err);
    CHECK_CLOSE(m.weight_bytes / (4.0 * ROWS * WIDTH), 1, 1e-9);
    CHECK_CLOSE(m.gradient_bytes / (4.0 * ROWS * WIDTH), 1, 1e-9);
    CHECK_CLOSE(m.slot_bytes / (4.0 * ROWS * WIDTH), 1, 1e-9);
    assert_int_equal(m.messages, 1);
    trmi_arena_free(&scratch);
    /* the best plan, and the same with the embedding cut by columns */
    trmi_arena arena = {0};
    trmi_found f;
    trmi_partition_plan *plan;
    CHECK_OK(trmi_search(s, NULL, &arena, &f, &err), err);
    const char *letters = to->strategies[f.best.choice.strategy[tied->to]].letters;
    assert_string_equal(letters, "k");
    assert_string_equal(from->strategies[f.best.choice.strategy[tied->from]].letters, "v");
    CHECK_OK(trmi_space_plan(s, &f.best.choice, &plan, &err), err);
    assert_int_equal(count_exchanges(g, loss, plan, ROWS * WIDTH / RANKS), 0);
    trmi_partition_plan_destroy(plan);
    for (int32_t i = 0; i < from->count; i++) {
        f.best.choice.strategy[tied->from] =
            strcmp(from->strategies[i].letters, "d") == 0 ? i : f.best.choice.strategy[tied->from];
    }
    CHECK_OK(trmi_space_plan(s, &f.best.choice, &plan, &err), err);
    assert_true(count_exchanges(g, loss, plan, ROWS * WIDTH / RANKS) > 0);
    trmi_partition_plan_destroy(plan);
    trmi_arena_free(&arena);
    trmi_space_destroy(s);
    free_net(&n);
}

/* Two layers with one matrix, the first cut by columns and the second by inputs: the matrix is
 * stored in rows, the second layer's form of it is made, and the sum of both gradients is added
 * where the matrix is stored: the program moves the matrix once and a gradient once. */
static void sums_of_tied_gradients_are_added_in_the_store(void **state) {
    enum { WIDTH = 64, SAMPLES = 4, RANKS = 4 };
    (void)state;
    static const char *const letters[][2] = {{"k", "c"}, {"c", "k"}};
    for (int k = 0; k < 2; k++) {
        net n;
        CHECK_OK(trm_graph_create(&(trm_graph_options){.training = true}, &n.graph, &err), err);
        trm_graph *g = n.graph;
        trm_node x = trm_input(g, "x", TRM_FLOAT32, trm_shape_of(SAMPLES, WIDTH)),
                 y = trm_input(g, "label", TRM_INT32, trm_shape_of(SAMPLES)),
                 w = trm_parameter(g, "w", trm_shape_of(WIDTH, WIDTH), TRM_INIT_LINEAR);
        trm_node loss = trm_softmax_cross_entropy(
            g, trm_linear(g, trm_relu(g, trm_linear(g, x, w, TRM_NO_NODE)), w, TRM_NO_NODE), y,
            NULL);
        CHECK_OK(trm_graph_check(g, &err), err);
        CHECK_OK(trmi_plan_create(g, &(trmi_plan_options){.loss = loss}, &n.program, &err), err);
        trmi_space *s = space_of(&n, "4", 0, NULL);
        trmi_partition_plan *plan;
        CHECK_OK(trmi_partition_plan_create(&s->mesh, &plan, &err), err);
        for (int32_t v = 0, layer = 0; v < s->nodes_count; v++) {
            const trmi_op *op = trmi_space_op(s, v);
            if (op->kind == TRMI_OP_LINEAR) {
                CHECK_OK(
                    trmi_partition_plan_set(plan, op->name, letters[k][layer++], false, NULL, &err),
                    err);
            }
        }
        assert_int_equal(count_exchanges(g, loss, plan, WIDTH * WIDTH / RANKS), 2);
        trmi_partition_plan_destroy(plan);
        trmi_space_destroy(s);
        free_net(&n);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(prices_are_the_routers),
        cmocka_unit_test(no_other_plan_is_cheaper),
        cmocka_unit_test(equal_to_brute_force),
        cmocka_unit_test(attentions_equal_brute_force),
        cmocka_unit_test(limits_equal_brute_force),
        cmocka_unit_test(plans_in_slices_equal_brute_force),
        cmocka_unit_test(never_slower_than_data_parallel),
        cmocka_unit_test(an_axis_more_is_never_slower),
        cmocka_unit_test(memory_limits_are_kept_and_bounded),
        cmocka_unit_test(pins_are_kept_and_plans_survive_their_file),
        cmocka_unit_test(the_partition_takes_every_strategy),
        cmocka_unit_test(many_classes_split_the_head),
        cmocka_unit_test(readers_of_a_tied_parameter_are_cut_alike),
        cmocka_unit_test(sums_of_tied_gradients_are_added_in_the_store),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
