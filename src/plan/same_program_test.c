/* SPDX-License-Identifier: Apache-2.0 */
/* Test: a plan that cuts samples only, as a search writes it, is compiled to the program of data
 * parallel training: the same program steps on the same shapes, the same bytes in every arena. */
#include "check.h"

#include "trireme/graph.h"

#include "plan/lower/program.h"
#include "plan/search/search.h"

#include <string.h>

enum { SAMPLES = 4, RANKS = 2 };

static trm_node add_norm(trm_graph *g, trm_node x, int n, const char *name, bool relu) {
    char scale[32], shift[32], mean[32], variance[32];
    snprintf(scale, sizeof scale, "%s.weight", name);
    snprintf(shift, sizeof shift, "%s.bias", name);
    snprintf(mean, sizeof mean, "%s.mean", name);
    snprintf(variance, sizeof variance, "%s.variance", name);
    trm_node y =
        trm_batch_norm(g, x, trm_parameter(g, scale, trm_shape_of(n), TRM_INIT_ONE),
                       trm_parameter(g, shift, trm_shape_of(n), TRM_INIT_ZERO),
                       trm_state(g, mean, TRM_FLOAT32, trm_shape_of(n), TRM_INIT_ZERO),
                       trm_state(g, variance, TRM_FLOAT32, trm_shape_of(n), TRM_INIT_ONE), NULL);
    return relu ? trm_relu(g, y) : y;
}

static trm_node add_conv(trm_graph *g, trm_node x, int in, int out, const char *name) {
    trm_node w = trm_parameter(g, name, trm_shape_of(out, in, 3, 3), TRM_INIT_HE_NORMAL_FAN_OUT);
    return trm_conv2d(g, x, w, TRM_NO_NODE,
                      &(trm_conv_options){.stride = {1, 1}, .pad = {1, 1, 1, 1}});
}

/* A stem and three residual blocks, so that some outputs of a chain are kept. */
static trm_graph *build_network(int64_t samples, trm_node *loss) {
    trm_graph *g;
    trm_error err;
    CHECK_OK(trm_graph_create(&(trm_graph_options){.training = true}, &g, &err), err);
    trm_node x =
        add_norm(g,
                 add_conv(g, trm_input(g, "image", TRM_FLOAT32, trm_shape_of(samples, 3, 8, 8)), 3,
                          16, "stem"),
                 16, "bn", true);
    for (int b = 0; b < 3; b++) {
        char name[4][16];
        for (int k = 0; k < 4; k++) {
            snprintf(name[k], sizeof name[k], "b%d.%d", b, k);
        }
        trm_node y = add_norm(g, add_conv(g, x, 16, 16, name[0]), 16, name[1], true);
        x = trm_relu(
            g, trm_add(g, add_norm(g, add_conv(g, y, 16, 16, name[2]), 16, name[3], false), x));
    }
    trm_node logits =
        trm_linear(g, trm_global_avg_pool(g, x),
                   trm_parameter(g, "fc", trm_shape_of(10, 16), TRM_INIT_LINEAR), TRM_NO_NODE);
    *loss = trm_softmax_cross_entropy(
        g, logits, trm_input(g, "label", TRM_INT32, trm_shape_of(samples)), NULL);
    CHECK_OK(trm_graph_check(g, &err), err);
    return g;
}

static void are_equal(const trm_program *a, const trm_program *b) {
    assert_int_equal(a->steps_count, b->steps_count);
    int32_t again = 0;
    for (int32_t i = 0; i < a->steps_count; i++) {
        const trmi_step *s = &a->steps[i], *t = &b->steps[i];
        assert_int_equal(s->kind, t->kind);
        assert_int_equal(s->op_kind, t->op_kind);
        assert_int_equal(s->phase, t->phase);
        assert_string_equal(s->name, t->name);
        again += s->op_kind == TRMI_OP_NORM_ACT_APPLY;
        const trmi_buffer *x = &a->buffers[s->outputs[0]], *y = &b->buffers[t->outputs[0]];
        assert_true(trm_shape_equal(&x->shape, &y->shape));
        assert_int_equal(x->arena, y->arena);
        assert_int_equal(x->offset, y->offset);
    }
    assert_true(again > 2); /* outputs of norms, recomputed by the rule */
    for (int arena = 1; arena < TRMI_ARENAS; arena++) {
        assert_int_equal(a->arena_bytes[arena], b->arena_bytes[arena]);
    }
}

/* Compiles the batch of all ranks with the plan "by samples", and one rank's batch without a plan;
 * the programs must be equal. */
static void by_samples_is_data_parallel(void **state) {
    (void)state;
    trm_error err;
    trm_node alone, together;
    trm_graph *own = build_network(SAMPLES, &alone),
              *all = build_network(RANKS * SAMPLES, &together), *training;
    const trmi_target target = {.name = "test",
                                .threads = 1,
                                .fuse_norm_act = true,
                                .recompute_cheap = true,
                                .fuse_xent = true};
    trmi_plan_options options = {.target = &target,
                                 .loss = together,
                                 .dense_gradients = true,
                                 .factored_gradients = true,
                                 .local_norms = true};
    trmi_arena arena = {0};
    trmi_roots roots;
    trmi_mesh mesh;
    trmi_space *space;
    trmi_choice choice;
    trmi_partition_plan *plan;
    trm_program *data_parallel, *split;
    CHECK_OK(trmi_training_graph(all, &options, &training, &roots, &arena, &err), err);
    CHECK_OK(trmi_mesh_parse("2", &mesh, &err), err);
    const trmi_search_costs costs = {
        .slots = 1, .overlap = 1, .fuse = true, .rules = {.cheap = true}, .slices = true};
    CHECK_OK(trmi_space_create(training, &mesh, &costs, NULL, &space, &err), err);
    assert_true(trmi_choice_open(&choice, space, &arena) &&
                trmi_space_baseline(space, TRMI_BASELINE_SAMPLES, &choice));
    CHECK_OK(trmi_space_plan(space, &choice, &plan, &err), err);
    options.partition = plan;
    CHECK_OK(trmi_plan_create(all, &options, &split, &err), err);
    const trmi_plan_options mode = {.target = &target, .loss = alone, .dense_gradients = true};
    CHECK_OK(trmi_plan_create(own, &mode, &data_parallel, &err), err);
    are_equal(data_parallel, split);
    trmi_plan_destroy(data_parallel);
    trmi_plan_destroy(split);
    trmi_partition_plan_destroy(plan);
    trmi_space_destroy(space);
    trm_graph_destroy(training);
    trm_graph_destroy(own);
    trm_graph_destroy(all);
    trmi_arena_free(&arena);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(by_samples_is_data_parallel)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
