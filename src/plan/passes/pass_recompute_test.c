/* SPDX-License-Identifier: Apache-2.0 */
/* What the rules compute again in a block of a transformer: outputs of norms and GELU, not those of
 * layers. And which casts of its weights get no step. */
#include "check.h"

#include "plan/lower/program.h"
#include "plan/search/search.h"

#include "trireme/graph.h"

#include <string.h>

enum { ROWS = 64, WIDTH = 32, BLOCKS = 3 };

static trm_node add_layer(trm_graph *g, trm_node x, const char *name, int64_t outputs,
                          int64_t inputs) {
    trm_graph_push_scope(g, "%s", name);
    trm_node w = trm_parameter(g, "weight", trm_shape_of(outputs, inputs), TRM_INIT_NORMAL_001);
    trm_node y =
        trm_linear(g, x, w, trm_parameter(g, "bias", trm_shape_of(outputs), TRM_INIT_ZERO));
    trm_graph_pop_scope(g);
    return y;
}

/* x + layers(norm(x)), several times. */
static trm_graph *build_network(trm_node *loss) {
    trm_error err;
    trm_graph *g;
    CHECK_OK(trm_graph_create(&(trm_graph_options){.training = true}, &g, &err), err);
    trm_node x = trm_input(g, "x", TRM_FLOAT32, trm_shape_of(ROWS, WIDTH));
    for (int i = 0; i < BLOCKS; i++) {
        trm_graph_push_scope(g, "block%d", i);
        trm_node y =
            trm_layer_norm(g, x, trm_parameter(g, "norm.weight", trm_shape_of(WIDTH), TRM_INIT_ONE),
                           trm_parameter(g, "norm.bias", trm_shape_of(WIDTH), TRM_INIT_ZERO), 1e-5);
        y = trm_gelu(g, add_layer(g, y, "up", 4 * WIDTH, WIDTH), TRM_GELU_TANH);
        x = trm_add(g, x, add_layer(g, y, "down", WIDTH, 4 * WIDTH));
        trm_graph_pop_scope(g);
    }
    *loss = trm_reduce_mean(g, x, NULL, 0, false);
    return g;
}

static trm_program *compile_network(const trmi_target *target, trmi_plan_options options) {
    trm_error err;
    trm_program *program;
    trm_graph *g = build_network(&options.loss);
    options.target = target;
    CHECK_OK(trmi_plan_create(g, &options, &program, &err), err);
    trm_graph_destroy(g);
    return program;
}

/* Returns how many steps of a kind backward has. */
static int32_t steps_of(const trm_program *p, trmi_op_kind kind, trmi_phase phase) {
    int32_t count = 0;
    for (int32_t i = 0; i < p->steps_count; i++) {
        const trmi_step *step = &p->steps[i];
        count += step->kind == TRMI_STEP_OP && step->op_kind == kind && step->phase == phase;
    }
    return count;
}

/* GELU and norms run again in backward, layers do not, and no block's GELU lives on from
 * forward. */
static void cheap_values_are_recomputed(void **state) {
    (void)state;
    const trmi_target keeps = {.name = "test", .threads = 1},
                      repeats = {.name = "test", .threads = 1, .recompute_cheap = true};
    trm_program *kept = compile_network(&keeps, (trmi_plan_options){0}),
                *again = compile_network(&repeats, (trmi_plan_options){0});
    static const trmi_op_kind cheap[] = {TRMI_OP_GELU, TRMI_OP_LAYER_NORM};
    for (int i = 0; i < 2; i++) {
        assert_int_equal(steps_of(kept, cheap[i], TRMI_FORWARD), BLOCKS);
        assert_int_equal(steps_of(kept, cheap[i], TRMI_BACKWARD), 0);
        assert_int_equal(steps_of(again, cheap[i], TRMI_FORWARD), BLOCKS);
        assert_int_equal(steps_of(again, cheap[i], TRMI_BACKWARD), BLOCKS);
    }
    assert_int_equal(steps_of(again, TRMI_OP_LINEAR, TRMI_BACKWARD), 0);
    for (int32_t i = 1; i < again->buffers_count; i++) {
        const trmi_buffer *b = &again->buffers[i];
        const trmi_op *maker = trmi_maker_of(again->graph, b->value);
        if (maker->phase == TRMI_FORWARD && maker->kind == TRMI_OP_GELU) {
            assert_true(b->last_step < again->backward_begin);
        }
    }
    /* of each block GELU's output and the norm's: 5 of 11 widths */
    int64_t saved =
        kept->arena_bytes[TRMI_ARENA_ACTIVATION] - again->arena_bytes[TRMI_ARENA_ACTIVATION];
    assert_true(saved >= (int64_t)(BLOCKS - 1) * ROWS * 5 * WIDTH * (int64_t)sizeof(float));
    trmi_plan_destroy(kept);
    trmi_plan_destroy(again);
}

/* x + layer(tanh(layer(norm(x)))), several times: tanh's gradient reads its output. */
static trm_graph *build_sums(int64_t rows, trm_node *loss) {
    trm_error err;
    trm_graph *g;
    CHECK_OK(trm_graph_create(&(trm_graph_options){.training = true}, &g, &err), err);
    trm_node x = trm_input(g, "x", TRM_FLOAT32, trm_shape_of(rows, WIDTH));
    for (int i = 0; i < BLOCKS; i++) {
        trm_graph_push_scope(g, "block%d", i);
        trm_node y =
            trm_layer_norm(g, x, trm_parameter(g, "norm.weight", trm_shape_of(WIDTH), TRM_INIT_ONE),
                           trm_parameter(g, "norm.bias", trm_shape_of(WIDTH), TRM_INIT_ZERO), 1e-5);
        y = trm_tanh(g, add_layer(g, y, "in", WIDTH, WIDTH));
        x = trm_add(g, x, add_layer(g, y, "out", WIDTH, WIDTH));
        trm_graph_pop_scope(g);
    }
    *loss = trm_reduce_mean(g, trm_mul(g, x, x), NULL, 0, false);
    return g;
}

/* Returns how many layers run again in backward, in a program of so many rows. */
static int32_t layers_again(int64_t rows, trmi_plan_options options) {
    trm_error err;
    trm_program *program;
    const trmi_target target = {.name = "test", .threads = 1, .recompute_cheap = true};
    trm_graph *g = build_sums(rows, &options.loss);
    options.target = &target;
    CHECK_OK(trmi_plan_create(g, &options, &program, &err), err);
    int32_t layers = steps_of(program, TRMI_OP_LINEAR, TRMI_BACKWARD);
    trmi_plan_destroy(program);
    trm_graph_destroy(g);
    return layers;
}

/* A sum is made again, with the layer before it, where the summands stay: so of a chain every other
 * one is. Sums that are little memory beside the parameters are kept. */
static void sums_are_recomputed_where_they_are_large(void **state) {
    (void)state;
    enum { MANY = 64 * WIDTH };
    assert_int_equal(layers_again(MANY, (trmi_plan_options){0}), 2);
    assert_int_equal(layers_again(1, (trmi_plan_options){0}), 0);
    assert_int_equal(layers_again(MANY, (trmi_plan_options){.no_recompute = true}), 0);
}

static bool rounds_matrices(void *context, const trm_graph *graph, const trmi_op *op, int input) {
    (void)context;
    (void)graph;
    return input == 1 && (op->kind == TRMI_OP_LINEAR || op->kind == TRMI_OP_MATMUL);
}

/* In mixed precision a weight that all its readers round has no cast, and they read the parameter;
 * activations keep their casts. Without the option, or if one reader does not round, the cast is a
 * step. */
static void weights_need_no_casts(void **state) {
    (void)state;
    const trmi_target target = {.name = "test", .threads = 1, .rounds = rounds_matrices};
    const trmi_plan_options cast = {.precision = TRM_PRECISION_MIXED};
    trmi_plan_options rounded = cast;
    rounded.readers_round = true;
    trm_program *with = compile_network(&target, cast),
                *without = compile_network(&target, rounded);
    assert_int_equal(steps_of(with, TRMI_OP_CAST, TRMI_FORWARD) -
                         steps_of(without, TRMI_OP_CAST, TRMI_FORWARD),
                     2 * BLOCKS);
    int32_t readers = 0;
    for (int32_t i = 0; i < without->steps_count; i++) {
        const trmi_step *step = &without->steps[i];
        bool product = step->op_kind == TRMI_OP_LINEAR || step->op_kind == TRMI_OP_MATMUL;
        const trmi_buffer *b = product ? &without->buffers[step->inputs[1]] : &without->buffers[0];
        if (b->arena == TRMI_ARENA_PARAM) {
            assert_int_equal(b->dtype, TRM_FLOAT32);
            assert_int_equal(without->buffers[step->inputs[0]].dtype, TRM_BFLOAT16);
            readers++;
        }
    }
    assert_int_equal(readers, 2 * 2 * BLOCKS); /* forward, and the gradient of its input */
    trmi_plan_destroy(with);
    trmi_plan_destroy(without);
}

/* The search of what one device makes again counts the casts that the program has. */
static void search_counts_the_casts_that_are_made(void **state) {
    (void)state;
    trm_error err;
    const trmi_target target = {.name = "test", .threads = 1, .rounds = rounds_matrices};
    const trmi_mesh mesh = {.axes = 0};
    trmi_plan_options options = {.target = &target, .precision = TRM_PRECISION_MIXED};
    trm_graph *g = build_network(&options.loss), *training;
    trmi_arena arena = {0};
    trmi_roots roots;
    trmi_measure m[2];
    CHECK_OK(trmi_training_graph(g, &options, &training, &roots, &arena, &err), err);
    for (int i = 0; i < 2; i++) {
        const trmi_search_costs costs = {.slots = 1, .rounding = i == 1 ? &target : NULL};
        trmi_space *space;
        trmi_choice choice;
        CHECK_OK(trmi_space_create(training, &mesh, &costs, NULL, &space, &err), err);
        assert_true(trmi_choice_open(&choice, space, &arena));
        CHECK_OK(trmi_space_measure(space, &choice, &m[i], &err), err);
        trmi_space_destroy(space);
    }
    /* two matrices of 4 WIDTH x WIDTH bfloat16 in each block */
    assert_float_equal(m[0].bytes - m[1].bytes, BLOCKS * 2 * 4 * WIDTH * WIDTH * 2.0, 0.5);
    trm_graph_destroy(training);
    trm_graph_destroy(g);
    trmi_arena_free(&arena);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(cheap_values_are_recomputed),
                                       cmocka_unit_test(sums_are_recomputed_where_they_are_large),
                                       cmocka_unit_test(weights_need_no_casts),
                                       cmocka_unit_test(search_counts_the_casts_that_are_made)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
