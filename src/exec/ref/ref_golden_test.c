/* SPDX-License-Identifier: Apache-2.0 */
/* The reference kernels against PyTorch's numbers (tests/golden/operators.h, made by
 * tests/golden/operators.py), and guide 002's SoftmaxCrossEntropyExpand of small operators against
 * the fused loss.
 *
 * An operator runs in the interpreter (tests/lib/interpret.h), forward and backward, with the
 * inputs of the golden file. These numbers define what an operator computes; all faster kernels
 * are compared with the reference. */
#include "check.h"

#include "tests/lib/interpret.h"

#include "golden/operators.h"

#include <math.h>

static double value_of(int k, int64_t i) { return (double)((i * 7 + k * 5) % 31 - 15) / 16; }

static trm_graph *graph;
static trm_node fed[8];
static int fed_count;

static trm_node add_input(trm_shape shape) {
    char name[8];
    snprintf(name, sizeof name, "x%d", fed_count);
    return fed[fed_count++] = trm_input(graph, name, TRM_FLOAT32, shape);
}

static void begin_graph(bool training) {
    trm_error err;
    CHECK_OK(trm_graph_create(&(trm_graph_options){.training = training}, &graph, &err), err);
    fed_count = 0;
}

static void compare_node(const char *name, trmi_interpreter *run, trm_node node,
                         const double *expected, int64_t count) {
    assert_int_equal(trm_shape_count(&trmi_interpreter_value(run, node)->shape), count);
    for (int64_t i = 0; i < count; i++) {
        double got = trmi_interpreter_get(run, node, i);
        if (!(fabs(got - expected[i]) <= 1e-10 * (1 + fabs(expected[i])))) {
            fail_msg("%s[%d]: %.12g, PyTorch %.12g", name, (int)i, got, expected[i]);
        }
    }
}

typedef struct golden {
    const char *name;
    const double *data;
    int64_t count;
} golden;
#define G(name)                                                                                    \
    { #name, golden_##name, (int64_t)(sizeof golden_##name / sizeof golden_##name[0]) }

/* Differentiates sum(value(9) * y), feeds by formula, runs in double; expected[0] is y, then the
 * gradients of the first inputs. `labels`: integer inputs, fed as given. */
static trmi_interpreter *finish_graph(trm_node y, const golden *expected, int count,
                                      trm_node labels, const int32_t *label_values) {
    trm_error err;
    int inputs = fed_count;
    trm_node r = add_input(trm_node_shape(graph, y)), grads[8];
    trm_node loss = trm_reduce_sum(graph, trm_mul(graph, y, r), NULL, 0, false);
    trm_gradients(graph, loss, fed, inputs, grads);
    trmi_interpreter *run;
    CHECK_OK(
        trmi_interpreter_create(graph, &(trmi_interpret_options){.in_double = true}, &run, &err),
        err);
    for (int k = 0; k < fed_count; k++) {
        int64_t elements = trm_shape_count(&trmi_interpreter_value(run, fed[k])->shape);
        for (int64_t i = 0; i < elements; i++) {
            trmi_interpreter_set(run, fed[k], i, value_of(k == inputs ? 9 : k, i));
        }
    }
    if (labels.id != 0) {
        int64_t elements = trm_shape_count(&trmi_interpreter_value(run, labels)->shape);
        for (int64_t i = 0; i < elements; i++) {
            trmi_interpreter_set(run, labels, i, label_values[i]);
        }
    }
    bool batch_norm = strncmp(expected[0].name, "norm", 4) == 0;
    for (int64_t i = 0; i < 2 && batch_norm; i++) { /* its variances: positive */
        trmi_interpreter_set(run, fed[4], i, value_of(4, i) + 2);
    }
    CHECK_OK(trmi_interpreter_run(run, &err), err);
    for (int k = 0; k < count; k++) {
        compare_node(expected[k].name, run, k == 0 ? y : grads[k - 1], expected[k].data,
                     expected[k].count);
    }
    return run;
}

static void free_graph(trmi_interpreter *run) {
    trmi_interpreter_destroy(run);
    trm_graph_destroy(graph);
}
#define COUNT(list) ((int)(sizeof(list) / sizeof(list)[0]))

static void convolution_is_pytorchs(void **state) {
    begin_graph(true);
    trm_node a = add_input(trm_shape_of(2, 4, 5, 6)), w = add_input(trm_shape_of(4, 2, 3, 2)),
             b = add_input(trm_shape_of(4));
    const golden one[] = {G(conv), G(conv_d0), G(conv_d1), G(conv_d2)};
    trm_conv_options o = {.stride = {2, 1}, .dilation = {1, 2}, .pad = {1, 1, 2, 2}, .groups = 2};
    free_graph(finish_graph(trm_conv2d(graph, a, w, b, &o), one, COUNT(one), TRM_NO_NODE, NULL));
    begin_graph(true);
    a = add_input(trm_shape_of(1, 2, 4, 4));
    w = add_input(trm_shape_of(3, 2, 3, 3));
    const golden two[] = {G(conv_same), G(conv_same_d0), G(conv_same_d1)};
    o = (trm_conv_options){.pad = {1, 0, 0, 2}}; /* top, bottom, left, right */
    free_graph(
        finish_graph(trm_conv2d(graph, a, w, TRM_NO_NODE, &o), two, COUNT(two), TRM_NO_NODE, NULL));
}

static void linear_is_pytorchs(void **state) {
    begin_graph(true);
    trm_node a = add_input(trm_shape_of(3, 4)), w = add_input(trm_shape_of(2, 4)),
             b = add_input(trm_shape_of(2));
    const golden all[] = {G(linear), G(linear_d0), G(linear_d1), G(linear_d2)};
    free_graph(finish_graph(trm_linear(graph, a, w, b), all, COUNT(all), TRM_NO_NODE, NULL));
}

static void batch_norm_is_pytorchs(void **state) {
    trm_shape c = trm_shape_of(2);
    for (int training = 0; training < 2; training++) {
        begin_graph(training);
        trm_node a = add_input(trm_shape_of(3, 2, 2, 3)), g = add_input(c), b = add_input(c),
                 mean = add_input(c), variance = add_input(c);
        const golden train[] = {G(norm), G(norm_d0), G(norm_d1), G(norm_d2)};
        const golden infer[] = {G(norm_infer), G(norm_infer_d0), G(norm_infer_d1),
                                G(norm_infer_d2)};
        trmi_interpreter *run = finish_graph(trm_batch_norm(graph, a, g, b, mean, variance, NULL),
                                             training ? train : infer, 4, TRM_NO_NODE, NULL);
        if (training) {
            compare_node("running mean", run, mean, golden_norm_mean, 2);
            compare_node("running variance", run, variance, golden_norm_variance, 2);
        }
        free_graph(run);
    }
}

static void pooling_is_pytorchs(void **state) {
    trm_pool_options o = {.kernel = {3, 3}, .stride = {2, 2}, .pad = {1, 1, 1, 1}};
    begin_graph(true);
    const golden most[] = {G(max_pool), G(max_pool_d0)};
    free_graph(finish_graph(trm_max_pool(graph, add_input(trm_shape_of(2, 2, 5, 5)), &o), most, 2,
                            TRM_NO_NODE, NULL));
    begin_graph(true);
    const golden inside[] = {G(avg_pool_inside), G(avg_pool_inside_d0)};
    free_graph(finish_graph(trm_avg_pool(graph, add_input(trm_shape_of(2, 2, 5, 5)), &o), inside, 2,
                            TRM_NO_NODE, NULL));
    begin_graph(true);
    o.count_padding = true;
    const golden average[] = {G(avg_pool), G(avg_pool_d0)};
    free_graph(finish_graph(trm_avg_pool(graph, add_input(trm_shape_of(2, 2, 5, 5)), &o), average,
                            2, TRM_NO_NODE, NULL));
    begin_graph(true);
    const golden all[] = {G(global_pool), G(global_pool_d0)};
    free_graph(finish_graph(trm_global_avg_pool(graph, add_input(trm_shape_of(2, 2, 5, 5))), all, 2,
                            TRM_NO_NODE, NULL));
}

static void losses_are_pytorchs(void **state) {
    const int32_t labels[] = {3, 1, 0, 1, 2};
    begin_graph(true);
    trm_node z = add_input(trm_shape_of(5, 4)),
             t = trm_input(graph, "t", TRM_INT32, trm_shape_of(5));
    const golden plain[] = {G(xent), G(xent_d0)};
    free_graph(finish_graph(trm_softmax_cross_entropy(graph, z, t, NULL), plain, 2, t, labels));
    begin_graph(true);
    z = add_input(trm_shape_of(5, 4));
    t = trm_input(graph, "t", TRM_INT32, trm_shape_of(5));
    const golden smooth[] = {G(xent_smooth), G(xent_smooth_d0)};
    trm_xent_options o = {.label_smoothing = 0.1, .use_ignore_index = true, .ignore_index = 1};
    free_graph(finish_graph(trm_softmax_cross_entropy(graph, z, t, &o), smooth, 2, t, labels));
    begin_graph(true);
    z = add_input(trm_shape_of(5, 4));
    trm_node half = trm_scale(graph, add_input(trm_shape_of(5, 4)), 0.5);
    const golden bce[] = {G(bce), G(bce_d0)};
    trm_node targets = trm_add(graph, half, trm_scalar(graph, 0.5));
    free_graph(finish_graph(trm_bce_with_logits(graph, z, targets), bce, 2, TRM_NO_NODE, NULL));
    begin_graph(true);
    const golden softmax[] = {G(softmax), G(softmax_d0)};
    free_graph(finish_graph(trm_softmax(graph, add_input(trm_shape_of(5, 4))), softmax, 2,
                            TRM_NO_NODE, NULL));
}

static void embedding_is_pytorchs(void **state) {
    begin_graph(true);
    trm_node table = add_input(trm_shape_of(5, 3)),
             t = trm_input(graph, "t", TRM_INT32, trm_shape_of(4));
    const golden all[] = {G(embedding), G(embedding_d0)};
    const int32_t ids[] = {4, 1, 4, 0};
    free_graph(finish_graph(trm_embedding(graph, table, t), all, 2, t, ids));
}

static void norms_and_activations_are_pytorchs(void **state) {
    trm_shape rows = trm_shape_of(3, 4), channels = trm_shape_of(4);
    begin_graph(true);
    trm_node a = add_input(rows), gamma = add_input(channels), beta = add_input(channels);
    const golden layer[] = {G(layer_norm), G(layer_norm_d0), G(layer_norm_d1), G(layer_norm_d2)};
    free_graph(finish_graph(trm_layer_norm(graph, a, gamma, beta, 0), layer, COUNT(layer),
                            TRM_NO_NODE, NULL));
    begin_graph(true);
    a = add_input(rows), gamma = add_input(channels);
    const golden rms[] = {G(rms_norm), G(rms_norm_d0), G(rms_norm_d1)};
    free_graph(finish_graph(trm_rms_norm(graph, a, gamma, 0), rms, COUNT(rms), TRM_NO_NODE, NULL));
    begin_graph(true);
    const golden erf_form[] = {G(gelu), G(gelu_d0)};
    trm_node y = trm_gelu(graph, trm_scale(graph, add_input(rows), 3), TRM_GELU_ERF);
    free_graph(finish_graph(y, erf_form, 2, TRM_NO_NODE, NULL));
    begin_graph(true);
    const golden tanh_form[] = {G(gelu_tanh), G(gelu_tanh_d0)};
    y = trm_gelu(graph, trm_scale(graph, add_input(rows), 3), TRM_GELU_TANH);
    free_graph(finish_graph(y, tanh_form, 2, TRM_NO_NODE, NULL));
    begin_graph(true);
    const golden silu[] = {G(silu), G(silu_d0)};
    free_graph(finish_graph(trm_silu(graph, trm_scale(graph, add_input(rows), 3)), silu, 2,
                            TRM_NO_NODE, NULL));
    begin_graph(true);
    trm_node gate = add_input(rows), up = add_input(rows);
    const golden swiglu[] = {G(swiglu), G(swiglu_d0), G(swiglu_d1)};
    free_graph(finish_graph(trm_swiglu(graph, gate, up), swiglu, COUNT(swiglu), TRM_NO_NODE, NULL));
}

static void products_of_any_rank_are_pytorchs(void **state) {
    begin_graph(true);
    trm_node a = add_input(trm_shape_of(2, 3, 2, 4)), b = add_input(trm_shape_of(3, 4, 2));
    const golden product[] = {G(matmul), G(matmul_d0), G(matmul_d1)};
    free_graph(finish_graph(trm_matmul(graph, a, b, false, false), product, COUNT(product),
                            TRM_NO_NODE, NULL));
    begin_graph(true);
    a = add_input(trm_shape_of(2, 3, 4));
    trm_node w = add_input(trm_shape_of(4, 2)), bias = add_input(trm_shape_of(2));
    const golden linear[] = {G(linear_by_inputs), G(linear_by_inputs_d0), G(linear_by_inputs_d1),
                             G(linear_by_inputs_d2)};
    free_graph(finish_graph(trm_linear_by_inputs(graph, a, w, bias), linear, COUNT(linear),
                            TRM_NO_NODE, NULL));
}

static void attention_is_pytorchs(void **state) {
    trm_shape kv = trm_shape_of(2, 4, 2, 2);
    begin_graph(true);
    trm_node q = add_input(trm_shape_of(2, 3, 4, 2)), k = add_input(kv), v = add_input(kv);
    const golden causal[] = {G(attention), G(attention_d0), G(attention_d1), G(attention_d2)};
    trm_attention_options o = {.causal = true};
    free_graph(finish_graph(trm_attention(graph, q, k, v, TRM_NO_NODE, &o), causal, COUNT(causal),
                            TRM_NO_NODE, NULL));
    begin_graph(true);
    q = add_input(trm_shape_of(2, 3, 4, 2)), k = add_input(kv), v = add_input(kv);
    trm_node mask = trm_input(graph, "mask", TRM_INT32, trm_shape_of(2, 4));
    const golden masked[] = {G(attention_masked), G(attention_masked_d0), G(attention_masked_d1),
                             G(attention_masked_d2)};
    const int32_t read[] = {1, 1, 0, 1, 0, 1, 1, 0};
    free_graph(
        finish_graph(trm_attention(graph, q, k, v, mask, NULL), masked, COUNT(masked), mask, read));
    begin_graph(true);
    const golden packed[] = {G(attention_packed), G(attention_packed_d0)};
    free_graph(finish_graph(
        trm_attention_packed(graph, add_input(trm_shape_of(2, 3, 8)), 2, 1, TRM_NO_NODE, &o),
        packed, 2, TRM_NO_NODE, NULL));
    begin_graph(true);
    const golden rotary[] = {G(rotary), G(rotary_d0)};
    free_graph(finish_graph(trm_rotary(graph, add_input(trm_shape_of(2, 3, 2, 4)), 100, 5), rotary,
                            2, TRM_NO_NODE, NULL));
}

static void experts_are_pytorchs(void **state) {
    for (int i = 0; i < 2; i++) {
        begin_graph(true);
        trm_node a = add_input(trm_shape_of(4, 2)), balance;
        trm_shape w = trm_shape_of(3, 2, 2);
        trm_experts e = {.router = add_input(trm_shape_of(3, 2))};
        e.gate = add_input(w), e.up = add_input(w), e.down = add_input(w);
        trm_node y = trm_mixture_of_experts(graph, a, &e, &balance);
        const golden mixture[] = {G(experts),    G(experts_d0), G(experts_d1),
                                  G(experts_d2), G(experts_d3), G(experts_d4)};
        const golden load[] = {G(balance), G(balance_d0), G(balance_d1)};
        if (i == 0) {
            free_graph(finish_graph(y, mixture, COUNT(mixture), TRM_NO_NODE, NULL));
        } else {
            free_graph(finish_graph(balance, load, COUNT(load), TRM_NO_NODE, NULL));
        }
    }
}

static void output_layer_and_loss_are_pytorchs(void **state) {
    begin_graph(true);
    trm_node a = add_input(trm_shape_of(2, 3, 4)), w = add_input(trm_shape_of(5, 4)),
             t = trm_input(graph, "t", TRM_INT32, trm_shape_of(2, 3));
    const golden loss[] = {G(linear_xent), G(linear_xent_d0), G(linear_xent_d1)};
    const int32_t labels[] = {3, 1, 0, 1, 2, 4};
    const trm_xent_options o = {.use_ignore_index = true, .ignore_index = 1};
    free_graph(
        finish_graph(trm_linear_cross_entropy(graph, a, w, t, &o), loss, COUNT(loss), t, labels));
    begin_graph(true);
    trm_node table = add_input(trm_shape_of(5, 3));
    t = trm_input(graph, "t", TRM_INT32, trm_shape_of(4));
    const golden tied[] = {G(tied), G(tied_d0)};
    const int32_t ids[] = {4, 1, 4, 0};
    free_graph(finish_graph(
        trm_linear_cross_entropy(graph, trm_embedding(graph, table, t), table, t, NULL), tied, 2, t,
        ids));
}

/* Guide 002, step 6: exp, sum, div, log, one-hot, mean by hand. In float32, as users run it. */
static void loss_written_with_small_operators_is_the_fused_one(void **state) {
    enum { ROWS = 32, CLASSES = 10 };
    trm_error err;
    begin_graph(true);
    trm_node z = add_input(trm_shape_of(ROWS, CLASSES)),
             t = trm_input(graph, "t", TRM_INT32, trm_shape_of(ROWS));
    int32_t last = -1, zero = 0;
    trm_node most = trm_reduce_max(graph, z, &last, 1, true);
    trm_node e = trm_exp(graph, trm_sub(graph, z, most));
    trm_node softmax = trm_div(graph, e, trm_reduce_sum(graph, e, &last, 1, true));
    trm_node hot = trm_one_hot(graph, t, CLASSES, 1, 0);
    trm_node picked =
        trm_reduce_sum(graph, trm_mul(graph, trm_log(graph, softmax), hot), &last, 1, false);
    trm_node expand = trm_reduce_mean(graph, trm_scale(graph, picked, -1), &zero, 1, false);
    trm_node fused = trm_softmax_cross_entropy(graph, z, t, NULL), d_expand, d_fused;
    trm_gradients(graph, expand, &z, 1, &d_expand);
    trm_gradients(graph, fused, &z, 1, &d_fused);
    trmi_interpreter *run;
    CHECK_OK(trmi_interpreter_create(graph, NULL, &run, &err), err);
    for (int64_t i = 0; i < ROWS * CLASSES; i++) {
        trmi_interpreter_set(run, z, i, 6 * value_of(0, i * i));
    }
    for (int64_t i = 0; i < ROWS; i++) {
        trmi_interpreter_set(run, t, i, (double)(i * 3 % CLASSES));
    }
    CHECK_OK(trmi_interpreter_run(run, &err), err);
    assert_true(fabs(trmi_interpreter_get(run, expand, 0) - trmi_interpreter_get(run, fused, 0)) <
                1e-6);
    for (int64_t i = 0; i < ROWS * CLASSES; i++) {
        assert_true(fabs(trmi_interpreter_get(run, d_expand, i) -
                         trmi_interpreter_get(run, d_fused, i)) < 1e-6);
    }
    free_graph(run);
}

static void values_out_of_range_stop_the_step(void **state) {
    trm_error err;
    begin_graph(true);
    trm_node table = add_input(trm_shape_of(5, 3)),
             ids = trm_input(graph, "ids", TRM_INT64, trm_shape_of(2));
    trm_embedding(graph, table, ids);
    trmi_interpreter *run;
    CHECK_OK(trmi_interpreter_create(graph, NULL, &run, &err), err);
    trmi_interpreter_set(run, ids, 1, 5);
    CHECK_FAILS(trmi_interpreter_run(run, &err), TRM_INVALID, err, "id 5 at position 1, 0 to 4");
    trmi_interpreter_set(run, ids, 1, -1);
    CHECK_FAILS(trmi_interpreter_run(run, &err), TRM_INVALID, err, "id -1");
    free_graph(run);
    begin_graph(true);
    trm_node t = trm_input(graph, "t", TRM_INT32, trm_shape_of(3));
    trm_softmax_cross_entropy(graph, add_input(trm_shape_of(3, 10)), t, NULL);
    CHECK_OK(trmi_interpreter_create(graph, NULL, &run, &err), err);
    trmi_interpreter_set(run, t, 2, 10);
    CHECK_FAILS(trmi_interpreter_run(run, &err), TRM_INVALID, err, "label 10 of sample 2: 0 to 9");
    trmi_interpreter_set(run, t, 2, -1);
    CHECK_FAILS(trmi_interpreter_run(run, &err), TRM_INVALID, err, "-1 marks a row that fills up");
    free_graph(run);
}

static void an_interpreter_without_memory_says_so(void **state) {
    trm_error err;
    begin_graph(true);
    trm_relu(graph, add_input(trm_shape_of(3)));
    for (int64_t k = 1; k <= 5; k++) {
        trmi_interpreter *run = NULL;
        trmi_alloc_fail_after(k);
        trm_status status = trmi_interpreter_create(graph, NULL, &run, &err);
        trmi_alloc_fail_after(0);
        assert_int_equal(status, TRM_NOMEM);
        assert_null(run);
    }
    trm_graph_destroy(graph);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(convolution_is_pytorchs),
        cmocka_unit_test(linear_is_pytorchs),
        cmocka_unit_test(batch_norm_is_pytorchs),
        cmocka_unit_test(pooling_is_pytorchs),
        cmocka_unit_test(losses_are_pytorchs),
        cmocka_unit_test(embedding_is_pytorchs),
        cmocka_unit_test(norms_and_activations_are_pytorchs),
        cmocka_unit_test(products_of_any_rank_are_pytorchs),
        cmocka_unit_test(attention_is_pytorchs),
        cmocka_unit_test(experts_are_pytorchs),
        cmocka_unit_test(output_layer_and_loss_are_pytorchs),
        cmocka_unit_test(loss_written_with_small_operators_is_the_fused_one),
        cmocka_unit_test(values_out_of_range_stop_the_step),
        cmocka_unit_test(an_interpreter_without_memory_says_so),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
