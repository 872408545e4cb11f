/* SPDX-License-Identifier: Apache-2.0 */
/* Tests of the search for plans with stages against complete enumeration: every shape, every cut
 * into stages, every strategy of every operator, parameters in parts and recompute, with and
 * without limits of memory; and against the programs of stages, whose messages are those that the
 * search counts. */
#include "check.h"

#include "plan/pipeline/stages.h"
#include "plan/search/pipeline_search.h"

#include "base/rng.h"

#include <math.h>

static trm_error err;

typedef struct net {
    int64_t batch, widths[8];
    int32_t layers;
    int32_t tied; /* the layer that has the first one's matrix; 0 = none */
    bool shared, parts;
    double overlap;
    trm_graph *graphs[8]; /* by the logarithm of the micro-batches */
    trm_node losses[8];
    trm_program *programs[8];
} net;

static const trmi_prices prices = {.alpha = {4e-6, 1e-6, 2e-6, 1e-6},
                                   .beta = {1e-9, 3e-10, 2e-10, 1e-10},
                                   .copy = 1e-11,
                                   .flop = 1e-11,
                                   .byte = 1e-10};

/* Makes the network of one micro-batch: linear operators with ReLU between them, and a loss. */
static const trm_graph *graph_of(net *n, int32_t micros) {
    int at = 0;
    while (1 << at < micros) {
        at++;
    }
    if (n->graphs[at] != NULL) {
        return n->programs[at]->graph;
    }
    CHECK_OK(trm_graph_create(&(trm_graph_options){.training = true}, &n->graphs[at], &err), err);
    trm_graph *g = n->graphs[at];
    int64_t batch = n->batch / micros;
    trm_node x = trm_input(g, "x", TRM_FLOAT32, trm_shape_of(batch, n->widths[0]));
    trm_node y = trm_input(g, "y", TRM_INT32, trm_shape_of(batch)), first = {0};
    for (int32_t i = 0; i < n->layers; i++) {
        char name[16];
        snprintf(name, sizeof name, "w%d", (int)i);
        bool again = i > 0 && i == n->tied;
        trm_node w = again ? first
                           : trm_parameter(g, name, trm_shape_of(n->widths[i + 1], n->widths[i]),
                                           TRM_INIT_LINEAR);
        first = i == 0 ? w : first;
        x = trm_linear(g, x, w, TRM_NO_NODE);
        x = i + 1 < n->layers ? trm_relu(g, x) : x;
    }
    trm_node loss = n->losses[at] = trm_softmax_cross_entropy(g, x, y, NULL);
    CHECK_OK(trm_graph_check(g, &err), err);
    CHECK_OK(trmi_plan_create(g, &(trmi_plan_options){.loss = loss, .dense_gradients = true},
                              &n->programs[at], &err),
             err);
    return n->programs[at]->graph;
}

static void free_net(net *n) {
    for (int i = 0; i < 8; i++) {
        trmi_plan_destroy(n->programs[i]);
        trm_graph_destroy(n->graphs[i]);
    }
}

static trm_status make_space(void *context, const trmi_mesh *mesh, int32_t micros, bool recompute,
                             trmi_space **out, trm_error *e) {
    net *n = context;
    const trmi_search_costs costs = {.prices = &prices,
                                     .slots = 1,
                                     .overlap = n->overlap,
                                     .fuse = n->overlap > 0,
                                     .shard_stores = n->parts,
                                     .slices = n->shared && trmi_mesh_ranks(mesh) > 1,
                                     .gradients = micros > 1 ? 2 : 1,
                                     .rules = {.segments = recompute},
                                     .accumulate_byte = micros > 1 ? 3e-10 : 0};
    return trmi_space_create(graph_of(n, micros), mesh, &costs, NULL, out, e);
}

static double message_seconds(void *context, int32_t stages, int32_t from, int32_t to,
                              double bytes) {
    (void)context;
    (void)stages;
    (void)from;
    (void)to;
    return 1e-6 + 5e-10 * bytes;
}

static double meeting_seconds(void *context, int32_t stages) {
    (void)context;
    return 1e-6 * stages;
}

/* The fastest plan by enumeration. */
typedef struct optimum {
    double step;
    int64_t plans;
} optimum;

/* Prices every choice of strategies and policies of the nodes from `n` on. */
static void price_choices(const trmi_pipe_options *o, trmi_pipe_plan *plan, int32_t n,
                          optimum *out) {
    const trmi_space *s = plan->space;
    trmi_choice *c = &plan->choice;
    if (n == s->nodes_count) {
        trmi_arena arena = {0};
        CHECK_OK(trmi_pipe_measure(&o->costs, plan, &arena, &err), err);
        out->step = plan->fits ? fmin(out->step, plan->step) : out->step;
        out->plans++;
        trmi_arena_free(&arena);
        return;
    }
    const trmi_space_class *k = trmi_space_class_of(s, n);
    for (int32_t i = 0; i < k->count * TRMI_POLICIES; i++) {
        int policy = i % TRMI_POLICIES;
        c->strategy[n] = i / TRMI_POLICIES;
        c->stores[n] = (uint8_t)trmi_policy_store(policy);
        c->again[n] = trmi_policy_again(policy);
        if (trmi_space_node_cost(s, k, c->strategy[n], policy, &(trmi_objective){0}).seconds <
            INFINITY) {
            price_choices(o, plan, n + 1, out);
        }
    }
}

/* Prices every cut into stages of one shape, from run `v` on. */
static void price_cuts(const trmi_pipe_options *o, trmi_pipe_plan *plan, const int32_t *cuts,
                       int32_t cuts_count, int32_t v, optimum *out) {
    if (v == plan->shape.stages * plan->shape.chunks) {
        price_choices(o, plan, 0, out);
        return;
    }
    for (int32_t i = 0; i < cuts_count; i++) {
        if (cuts[i] > plan->begins[v - 1]) {
            plan->begins[v] = cuts[i];
            price_cuts(o, plan, cuts, cuts_count, v + 1, out);
        }
    }
}

/* Prices all plans of each row, of which none may be below the row's bound. Where a stage is one
 * rank and memory has no limit, it is not below the row's fastest plan and all rows' fastest plan,
 * either. *proven: such rows with chunks. */
static void price_all(const trmi_pipe_options *o, const trmi_pipe_found *found, optimum *out,
                      int *proven) {
    double fastest = found->rows[0].plan.space != NULL ? found->rows[0].plan.step : INFINITY;
    for (int32_t i = 0; i < found->count; i++) {
        const trmi_pipe_row *row = &found->rows[i];
        optimum best = {.step = INFINITY};
        trmi_space *s;
        trmi_arena arena = {0};
        int32_t cuts[64], begins[64] = {0};
        CHECK_OK(
            make_space(o->context, &row->mesh, row->shape.micros, row->shape.recompute, &s, &err),
            err);
        trmi_pipe_plan plan = {.shape = row->shape, .space = s, .begins = begins};
        assert_true(trmi_choice_open(&plan.choice, s, &arena));
        price_cuts(o, &plan, cuts, trmi_pipe_cuts(s, cuts), 1, &best);
        assert_true(best.step == INFINITY || row->bound <= best.step * (1 + 1e-6));
        if (trmi_mesh_ranks(&row->mesh) == 1 && o->costs.memory_bytes == 0 &&
            best.step < INFINITY && o->costs.crowding <= 1) {
            assert_true(row->bound >= fmin(best.step, fastest) * (1 - 1e-6));
            *proven += row->shape.chunks > 1;
        }
        out->step = fmin(out->step, best.step);
        out->plans += best.plans;
        trmi_arena_free(&arena);
        trmi_space_destroy(s);
    }
}

static int64_t draw_bounded(int64_t k, uint64_t what, int64_t least, int64_t most) {
    return least +
           (int64_t)trmi_bounded(trmi_random_u32(11, TRMI_STREAM_TEST, (uint64_t)k * 64 + what),
                                 (uint32_t)(most - least + 1));
}

/* Lets a layer have the first one's matrix. */
static void tie_layer(net *n, int32_t layer) {
    n->tied = layer;
    n->widths[layer] = n->widths[0];
    n->widths[layer + 1] = n->widths[1];
}

static void finds_the_optimum_of_small_cases(void **state) {
    (void)state;
    int exact = 0, limited = 0, proven = 0;
    double worst = 0;
    enum { CASES = 72 };
    for (int64_t k = 0; k < CASES; k++) {
        bool meshes = k % 6 == 0; /* 4 ranks: stages of 2 ranks; few operators */
        net n = {.batch = 8,
                 .layers = meshes ? 2 - (k % 4 == 0) : (int32_t)draw_bounded(k, 1, 3, 5),
                 .tied = 0,
                 .parts = meshes && k % 4 == 0,
                 .overlap = k % 5 == 0 ? 0.5 : 0,
                 .shared = k % 2 == 1};
        for (int32_t i = 0; i <= n.layers; i++) {
            n.widths[i] = draw_bounded(k, 2 + (uint64_t)i, 8, 400);
        }
        if (k % 4 == 1) {
            tie_layer(&n, n.layers - 1);
        }
        trmi_pipe_options o = {.ranks = meshes ? 4 : 2 + 2 * (int32_t)(k % 2),
                               .batch = n.batch,
                               .stages = meshes ? 2 : 0,
                               .micros = meshes ? 2 + 2 * (int32_t)(k % 2) : 0,
                               .chunks = 0,
                               .one_order = meshes || k % 2 == 0,
                               .costs = {.message = message_seconds,
                                         .meeting = k % 4 < 2 ? meeting_seconds : NULL,
                                         .overhead = 1e-5,
                                         .handover = k % 2 == 1 ? 2e-6 : 0,
                                         .crowding = k % 3 == 2 ? 2 : 0},
                               .make_space = make_space,
                               .context = &n};
        trmi_mesh one = {0};
        o.mesh = meshes ? NULL : &one;
        o.stages = meshes ? 2 : o.ranks;
        for (int limit = 0; limit < 2; limit++) {
            trmi_arena arena = {0};
            trmi_pipe_found found;
            optimum best = {.step = INFINITY};
            CHECK_OK(trmi_pipe_search(&o, &arena, &found, &err), err);
            price_all(&o, &found, &best, &proven);
            bool has =
                found.count > 0 && found.rows[0].plan.space != NULL && found.rows[0].plan.fits;
            double step = has ? found.rows[0].plan.step : INFINITY;
            /* parts of ranks differ in the room for messages, which is reserved in steps: under a
             * limit that the messages decide there may be a better plan */
            bool exactly = !limit || !meshes;
            assert_true(!has || best.step < INFINITY);
            assert_true(!exactly || has == (best.step < INFINITY));
            if (has) {
                assert_true(found.lower_bound <= best.step * (1 + 1e-6));
                assert_true(step >= best.step * (1 - 1e-6));
                if (exactly) {
                    CHECK_CLOSE(step / best.step, 1, 1e-6);
                }
                worst = fmax(worst, 1 - found.lower_bound / step);
                exact += exactly;
                limited += limit && exactly;
            }
            o.costs.memory_bytes =
                has ? found.rows[0].plan.bytes * (1 - 0.008 * (double)(1 + k % 5)) : 0;
            trmi_pipe_found_free(&found);
            trmi_arena_free(&arena);
            if (!has) {
                break;
            }
        }
        free_net(&n);
    }
    print_message(
        "%d cases, %d of them with a limit of memory; largest gap of a bound %.1f %%, none of %d "
        "interleaved rows\n",
        exact, limited, 100 * worst, proven);
    assert_true(exact >= 60 && limited >= 8 && proven >= 20);
}

/* Returns whether the two layers of one matrix are chunks of one rank. */
static bool is_within_rank(const trmi_pipe_plan *plan, const net *n) {
    int32_t layer = 0, of[2] = {-1, -1};
    for (int32_t v = 0; v < plan->shape.stages * plan->shape.chunks; v++) {
        for (int32_t i = plan->runs[v].begin; i < plan->runs[v].end; i++) {
            bool linear = trmi_space_op(plan->space, i)->kind == TRMI_OP_LINEAR;
            of[0] = linear && layer == 0 ? v : of[0];
            of[1] = linear && layer == n->tied ? v : of[1];
            layer += linear;
        }
    }
    return of[0] != of[1] && of[0] % plan->shape.stages == of[1] % plan->shape.stages;
}

/* Compiles one stage of a plan that cuts no operator, and returns the bytes of its messages. */
static int64_t compiled_messages(const net *n, const trmi_pipe_plan *plan, int32_t stage) {
    const trmi_pipe_shape *shape = &plan->shape;
    int at = 0;
    char begins[128] = "";
    trm_program *program;
    trmi_partition_plan *cuts;
    while (1 << at < shape->micros) {
        at++;
    }
    for (int32_t v = 1; v < shape->stages * shape->chunks; v++) {
        size_t used = strlen(begins);
        snprintf(begins + used, sizeof begins - used, "%s%s", v > 1 ? "," : "",
                 trmi_space_op(plan->space, plan->begins[v])->name);
    }
    const trmi_stage_options stages = {.stages = shape->stages,
                                       .chunks = shape->chunks,
                                       .micros = shape->micros,
                                       .order = shape->order,
                                       .stage = stage,
                                       .begins = begins};
    CHECK_OK(trmi_space_plan(plan->space, &plan->choice, &cuts, &err), err);
    const trmi_plan_options options = {
        .loss = n->losses[at], .dense_gradients = true, .partition = cuts, .stages = &stages};
    CHECK_OK(trmi_plan_create(n->graphs[at], &options, &program, &err), err);
    int64_t bytes =
        trmi_staged_bytes(program) - program->arena_bytes[TRMI_ARENA_INPUT] * shape->micros;
    trmi_plan_destroy(program);
    trmi_partition_plan_destroy(cuts);
    return bytes;
}

/* The search counts the messages of a stage as its program takes memory for them: each schedule,
 * with a matrix of two layers in every place, between the chunks of one rank, too. */
static void programs_have_the_messages_that_are_counted(void **state) {
    (void)state;
    enum { LAYERS = 6, BATCH = 8 };
    static const trmi_pipe_shape shapes[] = {{2, 1, 4, TRMI_ORDER_1F1B, false},
                                             {3, 1, 8, TRMI_ORDER_GPIPE, false},
                                             {2, 2, 4, TRMI_ORDER_INTERLEAVED, false},
                                             {2, 3, 2, TRMI_ORDER_INTERLEAVED, false},
                                             {3, 2, 8, TRMI_ORDER_INTERLEAVED, false}};
    const trmi_pipe_costs costs = {.message = message_seconds};
    int within = 0;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        for (int32_t tied = 0; tied < LAYERS; tied++) {
            net n = {.batch = BATCH, .layers = LAYERS, .widths = {24, 16, 40, 8, 32, 48, 16}};
            if (tied > 0) {
                tie_layer(&n, tied);
            }
            const trmi_pipe_shape *shape = &shapes[i];
            int32_t cuts[64], runs = shape->stages * shape->chunks, begins[LAYERS] = {0};
            trmi_arena arena = {0};
            trmi_space *s;
            const trmi_mesh one = {0};
            CHECK_OK(make_space(&n, &one, shape->micros, false, &s, &err), err);
            /* one cut is a layer or its ReLU */
            int32_t count = trmi_pipe_cuts(s, cuts);
            for (int32_t v = 1; v < runs; v++) {
                begins[v] = cuts[v * (count + 1) / runs - 1];
            }
            trmi_pipe_plan plan = {.shape = *shape, .space = s, .begins = begins};
            assert_true(trmi_choice_open(&plan.choice, s, &arena));
            CHECK_OK(trmi_pipe_measure(&costs, &plan, &arena, &err), err);
            double inputs = BATCH / shape->micros * (n.widths[0] + 1) * 4.0 * (shape->micros + 1);
            for (int32_t r = 0; r < shape->stages; r++) {
                double counted = plan.ranks[r].staging_bytes - inputs;
                assert_int_equal((int64_t)counted, compiled_messages(&n, &plan, r));
            }
            within += tied > 0 && is_within_rank(&plan, &n);
            trmi_arena_free(&arena);
            trmi_space_destroy(s);
            free_net(&n);
        }
    }
    assert_true(within >= 4);
}

/* A batch of 8 on 4 ranks: a rank that is the whole stage reads all 8 samples, one of 4 ranks of a
 * stage reads 2. */
static void micro_batches_divide_what_a_rank_reads(void **state) {
    (void)state;
    trm_error err;
    net n = {.layers = 4, .batch = 8, .widths = {16, 16, 16, 16, 16}};
    trmi_pipe_options o = {.ranks = 4,
                           .batch = 8,
                           .one_order = true,
                           .costs = {.message = message_seconds, .overhead = 1e-5},
                           .make_space = make_space,
                           .context = &n};
    int larger[2] = {0};
    for (int own = 0; own < 2; own++) {
        trmi_arena arena = {0};
        trmi_pipe_found found;
        o.own_samples = own;
        CHECK_OK(trmi_pipe_search(&o, &arena, &found, &err), err);
        for (int32_t i = 0; i < found.count; i++) {
            int32_t of_stage = trmi_mesh_ranks(&found.rows[i].mesh);
            larger[own] += 8 % (found.rows[i].shape.micros * of_stage) != 0;
        }
        trmi_pipe_found_free(&found);
        trmi_arena_free(&arena);
    }
    assert_true(larger[0] > 0);
    assert_int_equal(larger[1], 0);
    trmi_arena arena = {0};
    trmi_pipe_found found;
    o.stages = 1;
    o.micros = 4;
    assert_int_equal(trmi_pipe_search(&o, &arena, &found, &err), TRM_INVALID);
    assert_non_null(strstr(err.message, "that each rank of a stage reads"));
    trmi_arena_free(&arena);
    free_net(&n);
}

/* 4,096 ranks have 13,634 rows. A row that is left out has no bound, and the least bound of the
 * others would be none of its plans. */
static void every_shape_has_a_row(void **state) {
    (void)state;
    /* meshes of 2^6 ranks with three axes at most, 1 to 128 micro-batches, with and without
     * recompute; 1F1B, GPipe, interleaved with 2 and with 4 chunks */
    enum { DEEPEST = 64, MESHES = 16, MICROS = 8, AGAIN = 2, ORDERS = 4 };
    trm_error err;
    net n = {.layers = 2, .batch = 128, .widths = {4, 4, 4}};
    trmi_pipe_options o = {.ranks = 4096,
                           .batch = 128,
                           .costs = {.message = message_seconds, .overhead = 1e-5},
                           .make_space = make_space,
                           .context = &n};
    trmi_arena arena = {0};
    trmi_pipe_found found;
    CHECK_OK(trmi_pipe_search(&o, &arena, &found, &err), err);
    int32_t deepest = 0;
    for (int32_t i = 0; i < found.count; i++) {
        deepest += found.rows[i].shape.stages == DEEPEST;
    }
    assert_int_equal(deepest, MESHES * MICROS * AGAIN * ORDERS);
    trmi_pipe_found_free(&found);
    trmi_arena_free(&arena);
    free_net(&n);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(finds_the_optimum_of_small_cases),
        cmocka_unit_test(every_shape_has_a_row),
        cmocka_unit_test(programs_have_the_messages_that_are_counted),
        cmocka_unit_test(micro_batches_divide_what_a_rank_reads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
