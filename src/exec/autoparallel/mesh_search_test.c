/* SPDX-License-Identifier: Apache-2.0 */
/* The limit of memory over several meshes: the plan's program keeps it, a plan of any mesh is found
 * if only its programs do, and no plan whose program keeps it is below the bound. What a program
 * needs beyond what the search counts is made up here: it differs from plan to plan and from mesh
 * to mesh. */
#include "check.h"

#include "exec/autoparallel/auto_parallel.h"

#include "base/rng.h"

#include <math.h>

enum { MESHES = 3, TRIALS = 3000, LIMITS = 16 };

static trm_error err;
static const trmi_prices prices = {.alpha = {4e-6, 1e-6, 2e-6, 1e-6},
                                   .beta = {1e-9, 3e-10, 2e-10, 1e-10},
                                   .copy = 1e-11,
                                   .flop = 1e-11,
                                   .byte = 1e-10};

typedef struct trial {
    const trm_graph *graph; /* with gradients */
    double more[MESHES]; /* part of what is counted that programs of a mesh need beyond, at least */
    double spread;       /* ... and at most so much more */
    trmi_auto_mesh *meshes;
    int compiled;
} trial;

/* Bytes of the program of a plan, a function of the plan. */
static double program_bytes(const trial *t, const trmi_space *s, const trmi_choice *c,
                            double counted) {
    uint64_t key = 0;
    int32_t mesh = 0;
    for (int32_t n = 0; n < s->nodes_count; n++) {
        key = key * 1009 + (uint64_t)c->strategy[n] * 8 + c->stores[n] * 2u + c->again[n];
    }
    while (t->meshes[mesh].space != s) {
        mesh++;
    }
    double part = trmi_random_u32(7, TRMI_STREAM_TEST, key) / 4294967296.0;
    return counted * (1 + t->more[mesh] + t->spread * part);
}

static trm_status make_space(void *context, const trmi_mesh *mesh, trmi_space **out,
                             trm_error *error) {
    const trial *t = context;
    const trmi_search_costs costs = {.prices = &prices, .slots = 1, .shard_stores = true};
    return trmi_space_create(t->graph, mesh, &costs, NULL, out, error);
}

static trm_status compile_choice(void *context, const trmi_space *space, const trmi_choice *choice,
                                 double *bytes, trm_error *error) {
    trial *t = context;
    trmi_measure measure;
    t->compiled++;
    trm_status status = trmi_space_measure(space, choice, &measure, error);
    *bytes = status == TRM_OK ? program_bytes(t, space, choice, measure.bytes) : *bytes;
    return status;
}

/* Checks random plans of all meshes against the result; returns how many keep the limit. */
static int check_others(const trial *t, const trmi_plan_search *d, double bound) {
    int keep = 0;
    for (int32_t m = 0; m < MESHES; m++) {
        const trmi_space *s = d->meshes[m].space;
        trmi_arena arena = {0};
        trmi_choice c;
        assert_true(trmi_choice_open(&c, s, &arena));
        for (uint64_t i = 0; i < TRIALS; i++) {
            trmi_measure measure;
            for (int32_t n = 0; n < s->nodes_count; n++) {
                const trmi_space_class *of = trmi_space_class_of(s, n);
                uint32_t r =
                    trmi_random_u32(9, TRMI_STREAM_TEST, (i * 64 + (uint64_t)n) * 4 + (uint64_t)m);
                c.strategy[n] = (int32_t)trmi_bounded(r, (uint32_t)of->count);
                c.stores[n] = (uint8_t)(r % TRMI_STORES);
                c.again[n] = 0;
                const trmi_objective w = {.gradient = 1};
                if (!(trmi_space_node_cost(s, of, c.strategy[n], c.stores[n], &w).seconds <
                      INFINITY)) {
                    c.stores[n] = TRMI_STORE_AS_READ;
                }
            }
            CHECK_OK(trmi_space_measure(s, &c, &measure, &err), err);
            if (program_bytes(t, s, &c, measure.bytes) <= (double)d->memory_bytes) {
                assert_true(measure.step >= bound * (1 - 1e-5));
                keep++;
            }
        }
        trmi_arena_free(&arena);
    }
    return keep;
}

/* Returns the training graph of two layers. */
static trm_program *make_program(trm_graph **graph) {
    trm_program *program;
    CHECK_OK(trm_graph_create(&(trm_graph_options){.training = true}, graph, &err), err);
    trm_graph *g = *graph;
    trm_node x = trm_input(g, "x", TRM_FLOAT32, trm_shape_of(256, 96)),
             y = trm_input(g, "label", TRM_INT32, trm_shape_of(256));
    x = trm_relu(g, trm_linear(g, x, trm_parameter(g, "a", trm_shape_of(512, 96), TRM_INIT_LINEAR),
                               TRM_NO_NODE));
    trm_node z = trm_linear(g, x, trm_parameter(g, "b", trm_shape_of(300, 512), TRM_INIT_LINEAR),
                            trm_parameter(g, "c", trm_shape_of(300), TRM_INIT_ZERO));
    trm_node loss = trm_softmax_cross_entropy(g, z, y, NULL);
    CHECK_OK(trm_graph_check(g, &err), err);
    CHECK_OK(trmi_plan_create(g, &(trmi_plan_options){.loss = loss}, &program, &err), err);
    return program;
}

/* Searches within a limit; bytes 0: without one. *d: the search, to be freed by
 * trmi_auto_free_meshes. */
static void search_within(trial *t, int64_t bytes, trmi_auto_mesh *meshes, trmi_plan_search *d) {
    static const char *const texts[MESHES] = {"4", "2x2", "2"};
    *d = (trmi_plan_search){.memory_bytes = bytes,
                            .make_space = make_space,
                            .compile = compile_choice,
                            .context = t,
                            .meshes = meshes,
                            .meshes_count = MESHES};
    for (int i = 0; i < MESHES; i++) {
        meshes[i] = (trmi_auto_mesh){.space = NULL};
        CHECK_OK(trmi_mesh_parse(texts[i], &meshes[i].mesh, &err), err);
    }
    t->meshes = meshes;
    t->compiled = 0;
    CHECK_OK(trmi_auto_search_meshes(d, &err), err);
    CHECK_OK(trmi_auto_respect_limit(d, &err), err);
}

static void bounds_hold_for_all_meshes(void **state) {
    (void)state;
    static const trial trials[] = {{.spread = 0},
                                   {.spread = 0.3},
                                   {.more = {0.05, 0.05, 0.4}, .spread = 1},
                                   {.more = {4, 0, 4}, .spread = 0.1},
                                   {.more = {0, 3, 3}, .spread = 0.5},
                                   {.more = {-0.3, -0.3, -0.3}, .spread = 0.2}};
    trm_graph *graph;
    trm_program *program = make_program(&graph);
    int found = 0, none = 0, gaps = 0, keep = 0;
    for (size_t k = 0; k < sizeof trials / sizeof *trials; k++) {
        trial t = trials[k];
        trmi_auto_mesh meshes[MESHES];
        trmi_plan_search d;
        t.graph = program->graph;
        search_within(&t, 0, meshes, &d);
        double most = trmi_auto_best(&d)->found.best.measure.bytes;
        trmi_auto_free_meshes(&d);
        for (int i = 0; i < LIMITS; i++) {
            double limit = most * pow(8, 0.5 - (double)i / (LIMITS - 1));
            search_within(&t, (int64_t)limit, meshes, &d);
            const trmi_found *f = &trmi_auto_best(&d)->found;
            bool fits = d.compiled_bytes <= limit;
            assert_true(fits == !f->infeasible && f->best.fits == fits);
            assert_true(program_bytes(&t, trmi_auto_best(&d)->space, &f->best.choice,
                                      f->best.measure.bytes) == d.compiled_bytes);
            double bound = trmi_auto_bound(&d);
            if (!(bound <= f->objective && f->objective == f->best.measure.step)) {
                print_message("%zu %d: bound %g objective %g step %g, fits %d\n", k, i, bound,
                              f->objective, f->best.measure.step, fits);
            }
            assert_true(bound <= f->objective && f->objective == f->best.measure.step);
            if (fits) {
                keep += check_others(&t, &d, bound);
                gaps += bound < f->objective * (1 - 1e-6);
            } else { /* nor do the points of the curves */
                for (int m = 0; m < MESHES; m++) {
                    for (int32_t p = 0; p < meshes[m].found.frontier_count; p++) {
                        const trmi_candidate *c = &meshes[m].found.frontier[p];
                        assert_true(program_bytes(&t, meshes[m].space, &c->choice,
                                                  c->measure.bytes) > limit);
                    }
                }
            }
            found += fits;
            none += !fits;
            trmi_auto_free_meshes(&d);
        }
    }
    print_message("%d limits kept, %d impossible, %d gaps, %d other plans within the limit\n",
                  found, none, gaps, keep);
    assert_true(found >= 30 && none >= 5 && gaps >= 1 && keep > 1000);
    trmi_plan_destroy(program);
    trm_graph_destroy(graph);
}

/* Returns the step of the plan that is found where programs take `share` of what is counted;
 * INFINITY if nothing that is counted fits. *bytes: of its program. */
static double find_step(const trm_graph *graph, double share, double limit, double *bytes) {
    trial t = {.graph = graph, .more = {share - 1, share - 1, share - 1}};
    trmi_auto_mesh meshes[MESHES];
    trmi_plan_search d;
    search_within(&t, (int64_t)limit, meshes, &d);
    const trmi_found *f = &trmi_auto_best(&d)->found;
    double step = f->infeasible ? INFINITY : f->objective;
    *bytes = d.compiled_bytes;
    trmi_auto_free_meshes(&d);
    return step;
}

/* Programs that take less than the search counts: the plan is as fast as that of the limit that
 * they leave, but for the last interval. */
static void small_programs_have_faster_plans(void **state) {
    (void)state;
    const double share = 0.7, interval = 1.0 / 32;
    trm_graph *graph;
    trm_program *program = make_program(&graph);
    double most, bytes;
    int faster = 0, compared = 0;
    trial t = {.graph = program->graph};
    trmi_auto_mesh meshes[MESHES];
    trmi_plan_search d;
    search_within(&t, 0, meshes, &d);
    most = trmi_auto_best(&d)->found.best.measure.bytes;
    trmi_auto_free_meshes(&d);
    for (int i = 0; i < 2 * LIMITS; i++) {
        double limit = most * pow(8, 0.5 - (double)i / (2 * LIMITS - 1)),
               counted = find_step(program->graph, 1, limit, &bytes);
        if (counted < INFINITY) {
            double found = find_step(program->graph, share, limit, &bytes);
            assert_true(bytes <= limit);
            assert_true(found <= counted);
            assert_true(found <=
                        find_step(program->graph, 1, limit / share * (1 - interval), &bytes));
            faster += found < counted;
            compared++;
        }
    }
    t.more[0] = t.more[1] = t.more[2] = share - 1;
    search_within(&t, (int64_t)(2 * most), meshes, &d); /* a limit that does not bind */
    assert_true(d.took_less &&
                trmi_auto_bound(&d) >= trmi_auto_best(&d)->found.objective * (1 - 1e-6));
    trmi_auto_free_meshes(&d);
    print_message("%d of %d plans are faster\n", faster, compared);
    assert_true(faster >= 3);
    trmi_plan_destroy(program);
    trm_graph_destroy(graph);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(bounds_hold_for_all_meshes),
                                       cmocka_unit_test(small_programs_have_faster_plans)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
