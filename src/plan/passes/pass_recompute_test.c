/* SPDX-License-Identifier: Apache-2.0 */
/* Recompute in a block of a transformer: the rules compute outputs of norms and GELU again, not
 * those of layers; and some casts of its weights get no step. The search must count the same. */
#include "check.h"

#include "plan/lower/program.h"
#include "plan/pipeline/stages.h"
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

/* Returns the plan of two ranks that this text has. */
static trmi_partition_plan *parse_plan(const char *text) {
    trm_error err;
    trmi_partition_plan *plan;
    CHECK_OK(trmi_partition_plan_parse(text, strlen(text), "test", &plan, &err), err);
    return plan;
}

/* Returns the name of the first operator of a kind in block `block`. */
static void find_name(trmi_op_kind kind, int block, char *name, size_t size) {
    trm_node loss;
    trm_graph *g = build_sums(1, &loss);
    name[0] = '\0';
    for (int64_t i = 1; i < g->ops_count && name[0] == '\0'; i++) {
        char scope[16];
        snprintf(scope, sizeof scope, "block%d.", block);
        bool found = g->ops[i].kind == kind && strncmp(g->ops[i].name, scope, strlen(scope)) == 0;
        snprintf(name, size, "%s", found ? g->ops[i].name : "");
    }
    assert_true(name[0] != '\0');
    trm_graph_destroy(g);
}

/* Writes the plan of two ranks that cuts all operators by rows; `columns`: but the layers of the
 * first block, the first one by columns and the second one by inputs, so that a message lies
 * between it and the sum. */
static void write_plan(bool columns, char *text, size_t size) {
    trm_node loss;
    trm_graph *g = build_sums(ROWS, &loss);
    size_t used = (size_t)snprintf(text, size, "trireme-plan 1\nmesh 2\n");
    int layers = 0;
    for (int64_t i = 1; i < g->ops_count && used < size; i++) {
        char letters[TRMI_PARTITION_LETTERS];
        trmi_partition_loops(g, &g->ops[i], letters, NULL);
        layers += g->ops[i].kind == TRMI_OP_LINEAR;
        bool first = columns && g->ops[i].kind == TRMI_OP_LINEAR && layers <= 2;
        if (letters[0] != '\0') {
            used += (size_t)snprintf(text + used, size - used, "op %s %c\n", g->ops[i].name,
                                     !first        ? letters[0]
                                     : layers == 1 ? 'k'
                                                   : 'c');
        }
    }
    trm_graph_destroy(g);
}

/* Under a plan the rule is the same: samples cut by two ranks, each with half of the rows. A
 * message between a layer and its sum keeps the sum. Whether sums are large is decided for a
 * rank's part. */
static void plans_recompute_the_same_sums(void **state) {
    (void)state;
    enum { MANY = 64 * WIDTH };
    char text[4096];
    write_plan(false, text, sizeof text);
    trmi_partition_plan *samples = parse_plan(text);
    assert_int_equal(layers_again(MANY, (trmi_plan_options){.partition = samples}), 2);
    assert_int_equal(layers_again(2, (trmi_plan_options){.partition = samples}), 0);
    trmi_partition_plan_destroy(samples);
    /* the first block's sum is kept behind a message, and so the second one's need not be */
    write_plan(true, text, sizeof text);
    trmi_partition_plan *columns = parse_plan(text);
    assert_int_equal(layers_again(MANY, (trmi_plan_options){.partition = columns}), 1);
    trmi_partition_plan_destroy(columns);
}

/* A sum behind which a pipeline is cut is kept: the next stage would need the layer's
 * parameters. */
static void stages_keep_the_sum_at_their_cut(void **state) {
    (void)state;
    enum { MANY = 64 * WIDTH };
    char first[2][64];
    for (int block = 1; block < BLOCKS; block++) {
        find_name(TRMI_OP_LAYER_NORM, block, first[block - 1], sizeof first[0]);
    }
    for (int stage = 0; stage < 2; stage++) {
        /* cut behind the sum of the first block, which is recomputed without stages */
        const trmi_stage_options cut = {
            .stages = 2, .chunks = 1, .micros = 2, .stage = stage, .begins = first[0]};
        const trmi_plan_options options = {.stages = &cut, .dense_gradients = true};
        /* stage 0 has the first block; in stage 1 the sum behind the third block is recomputed
         * from what the second one keeps */
        assert_int_equal(layers_again(MANY, options), stage == 0 ? 0 : 1);
        /* cut behind the second block, whose sum is kept anyway */
        const trmi_stage_options behind = {
            .stages = 2, .chunks = 1, .micros = 2, .stage = stage, .begins = first[1]};
        const trmi_plan_options other = {.stages = &behind, .dense_gradients = true};
        assert_int_equal(layers_again(MANY, other), 1);
    }
}

/* Measures the plan of two ranks with `text`, with a rule of sums or without: the first `blocks`
 * blocks of it, as the first stage of a pipeline. */
static trmi_measure measure_blocks(int64_t rows, bool sums, const char *text, int blocks) {
    trm_error err;
    const trmi_target target = {.name = "test", .threads = 1, .recompute_cheap = true};
    const trmi_mesh mesh = {.axes = 1, .size = {2}};
    const trmi_search_costs costs = {.slots = 1, .rules = {.cheap = true, .sums = sums}};
    trmi_plan_options options = {.target = &target};
    trm_graph *g = build_sums(rows, &options.loss), *training;
    trmi_partition_plan *plan = parse_plan(text);
    trmi_arena arena = {0};
    trmi_roots roots;
    trmi_space *space, part;
    trmi_choice choice;
    trmi_measure m;
    CHECK_OK(trmi_training_graph(g, &options, &training, &roots, &arena, &err), err);
    CHECK_OK(trmi_space_create(training, &mesh, &costs, NULL, &space, &err), err);
    assert_true(trmi_choice_open(&choice, space, &arena));
    CHECK_OK(trmi_space_choice(space, plan, &choice, &err), err);
    int32_t end = 0;
    for (char next[16]; end < space->nodes_count; end++) {
        snprintf(next, sizeof next, "block%d.", blocks);
        if (blocks < BLOCKS && strncmp(trmi_space_op(space, end)->name, next, strlen(next)) == 0) {
            break;
        }
    }
    CHECK_OK(trmi_space_part(space, 0, end, NULL, &arena, &part, &err), err);
    CHECK_OK(trmi_space_measure(&part, &choice, &m, &err), err);
    trmi_space_destroy(space);
    trmi_partition_plan_destroy(plan);
    trm_graph_destroy(training);
    trm_graph_destroy(g);
    trmi_arena_free(&arena);
    return m;
}

static trmi_measure measure_plan(int64_t rows, bool sums, const char *text) {
    return measure_blocks(rows, sums, text, BLOCKS);
}

/* The search counts what programs do: without the sums, in the time of their layers, where sums are
 * large and no message lies between. */
static void search_counts_the_sums(void **state) {
    (void)state;
    enum { MANY = 64 * WIDTH };
    const double sum = MANY / 2 * WIDTH * sizeof(float);
    char samples[4096], columns[4096];
    write_plan(false, samples, sizeof samples);
    write_plan(true, columns, sizeof columns);
    trmi_measure kept = measure_plan(MANY, false, samples),
                 again = measure_plan(MANY, true, samples);
    assert_float_equal(kept.kept_bytes - again.kept_bytes, 2 * sum, 0.5);
    assert_true(again.again > 0 && kept.again == 0);
    assert_true(again.step > kept.step);
    kept = measure_plan(2, false, samples);
    again = measure_plan(2, true, samples);
    assert_float_equal(kept.kept_bytes, again.kept_bytes, 0.5);
    assert_float_equal(kept.step, again.step, 1e-12);
    /* the first block's sum is kept behind a message, the third one's is not */
    kept = measure_plan(MANY, false, columns);
    again = measure_plan(MANY, true, columns);
    assert_float_equal(kept.kept_bytes - again.kept_bytes, sum, 0.5);
}

/* The search counts what the program of a stage does (stages_keep_the_sum_at_their_cut): the sum
 * behind which it ends is not computed again, nor kept. */
static void search_counts_the_sum_of_a_cut(void **state) {
    (void)state;
    enum { MANY = 64 * WIDTH };
    const double sum = MANY / 2 * WIDTH * sizeof(float);
    char samples[4096];
    write_plan(false, samples, sizeof samples);
    for (int blocks = 1; blocks <= BLOCKS; blocks++) {
        const trmi_measure kept = measure_blocks(MANY, false, samples, blocks),
                           again = measure_blocks(MANY, true, samples, blocks);
        /* the sums of the first and of the third block are computed again in one process */
        const int dropped = blocks == BLOCKS ? 2 : 1, made = blocks == 1 ? 0 : dropped;
        assert_float_equal(kept.kept_bytes - again.kept_bytes, dropped * sum, 0.5);
        assert_true(made > 0 ? again.again > 0 : again.again == 0);
        assert_true(made > 0 ? again.step > kept.step : again.step == kept.step);
    }
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
                                       cmocka_unit_test(plans_recompute_the_same_sums),
                                       cmocka_unit_test(stages_keep_the_sum_at_their_cut),
                                       cmocka_unit_test(search_counts_the_sums),
                                       cmocka_unit_test(search_counts_the_sum_of_a_cut),
                                       cmocka_unit_test(weights_need_no_casts),
                                       cmocka_unit_test(search_counts_the_casts_that_are_made)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
