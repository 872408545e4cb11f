/* SPDX-License-Identifier: Apache-2.0 */
/* A small convolutional network (build_network: every pattern of a residual network) through plan
 * and exec.
 *
 * Gradients are compared with finite differences, the fast back-end with the reference, fused with
 * unfused programs, recomputed with kept values, accumulated with larger batches, mixed precision
 * with float32. compare_training runs ten steps of two executors and compares every loss and, at
 * the end, every variable. Further tests: memory without overlaps, frozen parameters, and errors
 * that name the input or the value at fault. */
#include "check.h"

#include "exec/exec.h"

#include "base/rng.h"

#include <math.h>

enum { BATCH = 3, CHANNELS = 4, CLASSES = 5, SIZE = 6, LAYERS = 4 };

/* conv-bn-relu, conv-bn + skip, relu, pool, linear: every pattern of a residual network. */
static trm_node build_network(trm_graph *g, bool expanded) {
    trm_node x = trm_input(g, "image", TRM_FLOAT32, trm_shape_of(BATCH, 3, SIZE, SIZE));
    trm_node label = trm_input(g, "label", TRM_INT32, trm_shape_of(BATCH));
    trm_node skip = TRM_NO_NODE;
    for (int i = 0; i < LAYERS; i++) {
        trm_graph_push_scope(g, "layer%d", i);
        trm_graph_mark_segment(g);
        trm_node w = trm_parameter(g, "conv.weight", trm_shape_of(CHANNELS, i ? CHANNELS : 3, 3, 3),
                                   TRM_INIT_HE_NORMAL_FAN_OUT);
        x = trm_conv2d(g, x, w, TRM_NO_NODE, &(trm_conv_options){.pad = {1, 1, 1, 1}});
        x = trm_batch_norm(
            g, x, trm_parameter(g, "bn.weight", trm_shape_of(CHANNELS), TRM_INIT_ONE),
            trm_parameter(g, "bn.bias", trm_shape_of(CHANNELS), TRM_INIT_ZERO),
            trm_state(g, "bn.running_mean", TRM_FLOAT32, trm_shape_of(CHANNELS), TRM_INIT_ZERO),
            trm_state(g, "bn.running_var", TRM_FLOAT32, trm_shape_of(CHANNELS), TRM_INIT_ONE),
            NULL);
        x = i == 0 ? x : trm_add(g, x, skip);
        x = trm_relu(g, x);
        skip = x;
        trm_graph_pop_scope(g);
    }
    x = trm_max_pool(g, x, &(trm_pool_options){.kernel = {2, 2}});
    x = trm_global_avg_pool(g, x);
    trm_node logits = trm_linear(
        g, x, trm_parameter(g, "fc.weight", trm_shape_of(CLASSES, CHANNELS), TRM_INIT_LINEAR),
        trm_parameter(g, "fc.bias", trm_shape_of(CLASSES), TRM_INIT_LINEAR));
    if (!expanded) {
        return trm_softmax_cross_entropy(g, logits, label, NULL);
    }
    int32_t last = -1;
    trm_node e = trm_exp(g, trm_sub(g, logits, trm_reduce_max(g, logits, &last, 1, true)));
    trm_node softmax = trm_div(g, e, trm_reduce_sum(g, e, &last, 1, true));
    trm_node hot = trm_one_hot(g, label, CLASSES, 1, 0);
    trm_node row = trm_reduce_sum(g, trm_mul(g, trm_log(g, softmax), hot), &last, 1, false);
    return trm_reduce_mean(g, trm_mul(g, trm_scalar(g, -1), row), &last, 1, false);
}

static trm_exec *make_exec(bool expanded, trm_exec_options options) {
    trm_error err;
    trm_graph *g;
    trm_exec *exec;
    CHECK_OK(trm_graph_create(&(trm_graph_options){.training = true}, &g, &err), err);
    options.loss = build_network(g, expanded);
    options.backend = options.backend ? options.backend : "ref";
    options.seed = 7;
    CHECK_OK(trm_graph_check(g, &err), err);
    CHECK_OK(trm_exec_create(g, &options, &exec, &err), err);
    trm_graph_destroy(g);
    trm_tensor image, label;
    CHECK_OK(trm_exec_input(exec, "image", &image, &err), err);
    CHECK_OK(trm_exec_input(exec, "label", &label, &err), err);
    for (int i = 0; i < BATCH * 3 * SIZE * SIZE; i++) {
        ((float *)image.data)[i] =
            trmi_unit_float(trmi_random_u32(1, TRMI_STREAM_TEST, (uint64_t)i)) - 0.5f;
    }
    for (int i = 0; i < BATCH; i++) {
        ((int32_t *)label.data)[i] = i % CLASSES;
    }
    return exec;
}

static void gradients_match_finite_differences(void **state) {
    trm_error err;
    trm_exec *exec = make_exec(false, (trm_exec_options){0});
    CHECK_OK(trm_exec_forward_backward(exec, &err), err);
    float analytic[512], values[512];
    for (int32_t v = 0; v < trm_exec_variable_count(exec); v++) {
        trm_variable variable = trm_exec_variable(exec, v);
        if (variable.kind != TRM_VARIABLE_PARAMETER) {
            continue;
        }
        CHECK_OK(trm_exec_forward_backward(exec, &err), err);
        CHECK_OK(trm_exec_gradient(exec, v, analytic, &err), err);
        trm_exec_read(exec, v, values);
        int64_t count = trm_shape_count(&variable.shape);
        for (int64_t i = 0; i < count; i += 1 + count / 5) {
            /* A step may cross a kink of ReLU or of the maximum: the best of three must agree. */
            static const float steps[] = {1e-3f, 3e-4f, 2e-4f};
            double best = INFINITY;
            float kept = values[i];
            for (int s = 0; s < 3; s++) {
                double loss[2];
                for (int side = 0; side < 2; side++) {
                    values[i] = kept + (side ? steps[s] : -steps[s]);
                    trm_exec_write(exec, v, values);
                    CHECK_OK(trm_exec_forward(exec, &err), err);
                    loss[side] = trm_exec_loss(exec);
                }
                best = fmin(best, fabs((loss[1] - loss[0]) / (2 * steps[s]) - analytic[i]));
            }
            values[i] = kept;
            trm_exec_write(exec, v, values);
            if (!(best < 2e-3)) {
                fail_msg("%s[%ld]: gradient %g is off by %g", variable.name, (long)i, analytic[i],
                         best);
            }
        }
    }
    trm_exec_destroy(exec);
}

/* Ten steps of both; every loss and finally every variable agree. */
static void compare_training(trm_exec *a, trm_exec *b, double tolerance) {
    trm_error err;
    for (int step = 0; step < 10; step++) {
        CHECK_OK(trm_exec_forward_backward(a, &err), err);
        CHECK_OK(trm_exec_forward_backward(b, &err), err);
        CHECK_CLOSE(trm_exec_loss(a), trm_exec_loss(b), tolerance);
        CHECK_OK(trm_exec_update(a, 0.05, &err), err);
        CHECK_OK(trm_exec_update(b, 0.05, &err), err);
    }
    assert_int_equal(trm_exec_variable_count(a), trm_exec_variable_count(b));
    float x[512], y[512];
    for (int32_t v = 0; v < trm_exec_variable_count(a); v++) {
        trm_variable variable = trm_exec_variable(a, v);
        int32_t other = trm_exec_find(b, variable.name);
        assert_true(other >= 0);
        trm_exec_read(a, v, x);
        trm_exec_read(b, other, y);
        for (int64_t i = 0; i < trm_shape_count(&variable.shape); i++) {
            CHECK_CLOSE(x[i], y[i], tolerance);
        }
    }
    trm_exec_destroy(a);
    trm_exec_destroy(b);
}

static const trm_optimizer_options momentum = {
    .kind = TRM_MOMENTUM, .momentum = 0.9, .weight_decay = 1e-3};

static void fusion_changes_nothing(void **state) {
    compare_training(make_exec(false, (trm_exec_options){.optimizer = momentum}),
                     make_exec(false, (trm_exec_options){.optimizer = momentum, .fusion = TRM_OFF}),
                     2e-5);
}

/* Lists the kinds of a program's steps in their order. */
static int32_t kinds_of(trm_exec *exec, const char *kinds[64]) {
    trm_error err;
    trm_program_profile profile;
    CHECK_OK(trm_exec_profile(exec, NULL, &profile, &err), err);
    assert_in_range(profile.count, 1, 64);
    for (int32_t i = 0; i < profile.count; i++) {
        kinds[i] = profile.steps[i].kind;
    }
    return profile.count;
}

/* Guide 002's loss of small operators becomes the fused one: the same steps, so the same time, and
 * the same bits. */
static void expanded_loss_equals_fused(void **state) {
    trm_exec *fused = make_exec(true, (trm_exec_options){.optimizer = momentum});
    char *text = trm_exec_explain(fused, false);
    assert_non_null(strstr(text, "softmax_xent"));
    trm_free(text);
    const char *small[64], *whole[64];
    trm_exec *written_fused = make_exec(false, (trm_exec_options){.optimizer = momentum});
    int32_t count = kinds_of(fused, small);
    assert_int_equal(count, kinds_of(written_fused, whole));
    for (int32_t i = 0; i < count; i++) {
        assert_string_equal(small[i], whole[i]);
    }
    trm_exec_destroy(written_fused);
    trm_exec_destroy(fused);
    fused = make_exec(true, (trm_exec_options){.optimizer = momentum});
    compare_training(
        fused, make_exec(true, (trm_exec_options){.optimizer = momentum, .fusion = TRM_OFF}), 2e-5);
    compare_training(make_exec(true, (trm_exec_options){.optimizer = momentum}),
                     make_exec(false, (trm_exec_options){.optimizer = momentum}), 0);
}

/* Layers 0, 1 and 3 are made again, 1 from what was made again of 0; 2 is kept. */
static void every_third_output_is_kept(void **state) {
    trm_exec *exec = make_exec(false, (trm_exec_options){.optimizer = momentum});
    const char *kinds[64];
    int32_t count = kinds_of(exec, kinds), again = 0;
    for (int32_t i = 0; i < count; i++) {
        again += strcmp(kinds[i], "norm_act_apply") == 0;
    }
    assert_int_equal(again, LAYERS - 1);
    trm_exec_destroy(exec);
}

#ifdef TRIREME_ONEDNN
static void fast_backend_equals_reference(void **state) {
    trm_exec_options fast = {.optimizer = momentum, .backend = "onednn", .tuning_file = ""};
    compare_training(make_exec(false, fast),
                     make_exec(false, (trm_exec_options){.optimizer = momentum}), 1e-4);
}
#endif

/* Every gradient of the mixed program is the fp32 one to a few roundings of bfloat16. */
static void mixed_gradients_are_close(const char *backend) {
    trm_error err;
    trm_exec *full = make_exec(false, (trm_exec_options){.backend = backend, .tuning_file = ""});
    trm_exec *mixed = make_exec(false, (trm_exec_options){.backend = backend,
                                                          .tuning_file = "",
                                                          .precision = TRM_PRECISION_MIXED});
    CHECK_OK(trm_exec_forward_backward(full, &err), err);
    CHECK_OK(trm_exec_forward_backward(mixed, &err), err);
    CHECK_CLOSE(trm_exec_loss(mixed), trm_exec_loss(full), 2e-2);
    char *text = trm_exec_explain(mixed, false);
    assert_non_null(strstr(text, "bfloat16"));
    trm_free(text);
    float x[512], y[512];
    for (int32_t v = 0; v < trm_exec_variable_count(full); v++) {
        trm_variable variable = trm_exec_variable(full, v);
        if (variable.kind != TRM_VARIABLE_PARAMETER) {
            continue;
        }
        CHECK_OK(trm_exec_gradient(full, v, x, &err), err);
        CHECK_OK(trm_exec_gradient(mixed, trm_exec_find(mixed, variable.name), y, &err), err);
        double largest = 0, apart = 0;
        for (int64_t i = 0; i < trm_shape_count(&variable.shape); i++) {
            largest = fmax(largest, fabs((double)x[i]));
            apart = fmax(apart, fabs((double)x[i] - (double)y[i]));
        }
        if (!(apart <= 0.1 * largest + 1e-3)) {
            fail_msg("%s of %s: mixed is off by %g, largest %g", backend, variable.name, apart,
                     largest);
        }
    }
    trm_exec_destroy(full);
    trm_exec_destroy(mixed);
}

static void mixed_precision_keeps_the_gradients(void **state) {
    mixed_gradients_are_close("ref");
#ifdef TRIREME_ONEDNN
    mixed_gradients_are_close("onednn");
#endif
}

static void accumulation_averages(void **state) {
    trm_error err;
    trm_exec *exec = make_exec(false, (trm_exec_options){.accumulate = 2});
    trm_exec *single = make_exec(false, (trm_exec_options){0});
    int32_t v = trm_exec_find(exec, "fc.weight");
    float twice[CLASSES * CHANNELS], once[CLASSES * CHANNELS];
    CHECK_OK(trm_exec_forward_backward(exec, &err), err);
    CHECK_FAILS(trm_exec_update(exec, 0.1, &err), TRM_INVALID, err, "1 of 2");
    CHECK_OK(trm_exec_forward_backward(exec, &err), err);
    CHECK_OK(trm_exec_forward_backward(single, &err), err);
    CHECK_OK(trm_exec_gradient(exec, v, twice, &err), err);
    CHECK_OK(trm_exec_gradient(single, v, once, &err), err);
    for (int i = 0; i < CLASSES * CHANNELS; i++) {
        CHECK_CLOSE(twice[i], once[i], 1e-6);
    }
    CHECK_OK(trm_exec_update(exec, 0.1, &err), err);
    trm_exec_destroy(exec);
    trm_exec_destroy(single);
}

/* The batches that an update sums have masks of their own: an element that one of two drops has
 * half the gradient. */
static void accumulated_batches_drop_other_elements(void **state) {
    static const char *const backends[] = {"ref",
#ifdef TRIREME_ONEDNN
                                           "onednn"
#endif
    };
    enum { N = 256 };
    for (size_t b = 0; b < sizeof backends / sizeof *backends; b++) {
        trm_error err;
        trm_graph *g;
        trm_exec *exec;
        CHECK_OK(trm_graph_create(&(trm_graph_options){.training = true}, &g, &err), err);
        trm_node p = trm_parameter(g, "p", trm_shape_of(N), TRM_INIT_ONE);
        trm_node loss = trm_reduce_sum(g, trm_dropout(g, p, 0.5), (int32_t[]){0}, 1, false);
        CHECK_OK(trm_exec_create(
                     g, &(trm_exec_options){.loss = loss, .backend = backends[b], .accumulate = 2},
                     &exec, &err),
                 err);
        CHECK_OK(trm_exec_forward_backward(exec, &err), err);
        CHECK_OK(trm_exec_forward_backward(exec, &err), err);
        float gradient[N];
        CHECK_OK(trm_exec_gradient(exec, trm_exec_find(exec, "p"), gradient, &err), err);
        int halves = 0;
        for (int i = 0; i < N; i++) {
            halves += gradient[i] > 0.9f && gradient[i] < 1.1f;
        }
        assert_in_range(halves, N / 3, 2 * N / 3);
        trm_exec_destroy(exec);
        trm_graph_destroy(g);
    }
}

/* Weights always decay, biases and norms as the options say: seen in the first update. */
static void decay_takes_what_it_is_told(void **state) {
    static const struct {
        trm_optimizer_options options;
        bool bias, norm;
    } cases[] = {{{.kind = TRM_SGD, .weight_decay = 0.5}, false, false},
                 {{.kind = TRM_SGD, .weight_decay = 0.5, .decay_biases = true}, true, false},
                 {{.kind = TRM_SGD, .weight_decay = 0.5, .decay_all = true}, true, true}};
    trm_error err;
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        trm_exec *exec = make_exec(c == 1, (trm_exec_options){.optimizer = cases[c].options});
        for (int32_t v = 0; v < trm_exec_variable_count(exec); v++) {
            trm_variable variable = trm_exec_variable(exec, v);
            float ones[512], gradient[512];
            for (int i = 0; i < 512; i++) {
                ones[i] = 1;
            }
            if (variable.kind == TRM_VARIABLE_PARAMETER) {
                trm_exec_write(exec, v, ones);
                CHECK_OK(trm_exec_forward_backward(exec, &err), err);
                CHECK_OK(trm_exec_gradient(exec, v, gradient, &err), err);
                CHECK_OK(trm_exec_update(exec, 0.1, &err), err);
                trm_exec_read(exec, v, ones);
                bool norm = variable.shape.rank == 1 && strncmp(variable.name, "fc", 2) != 0;
                bool decays = variable.shape.rank > 1 || (norm ? cases[c].norm : cases[c].bias);
                CHECK_CLOSE(ones[0], 1 - 0.1 * ((double)gradient[0] + (decays ? 0.5 : 0)), 1e-6);
            }
        }
        trm_exec_destroy(exec);
    }
}

/* Segments that are computed again in backward: the same losses, gradients and variables, with the
 * rule for norms and without it; less memory. */
static void recomputed_segments_keep_the_bits(void **state) {
    static const char *const backends[] = {"ref", "onednn"};
    (void)state;
#ifdef TRIREME_ONEDNN
    int backends_count = 2;
#else
    int backends_count = 1;
#endif
    for (int k = 0; k < 2 * backends_count; k++) {
        trm_exec_options options = {.backend = backends[k / 2],
                                    .threads = 1,
                                    .tuning_file = "",
                                    .precision = k % 2 ? TRM_PRECISION_MIXED : TRM_PRECISION_FP32,
                                    .optimizer = {.kind = TRM_MOMENTUM, .momentum = 0.9}};
        trm_exec *kept = make_exec(false, options);
        options.recompute = true;
        trm_exec *again = make_exec(false, options);
        int32_t repeated = 0;
        for (int32_t i = 0; i < again->program->steps_count; i++) {
            const char *name = again->program->steps[i].name;
            repeated += strstr(name, ".again") != NULL && strncmp(name, "layer", 5) == 0;
        }
        assert_true(repeated >= LAYERS);
        assert_true(again->program->arena_bytes[TRMI_ARENA_ACTIVATION] <=
                    kept->program->arena_bytes[TRMI_ARENA_ACTIVATION]);
        compare_training(again, kept, 0);
    }
    trm_error err;
    trm_graph *g;
    trm_exec *exec = NULL;
    CHECK_OK(trm_graph_create(&(trm_graph_options){.training = true}, &g, &err), err);
    trm_node x = trm_parameter(g, "x", trm_shape_of(4), TRM_INIT_ONE);
    const trm_exec_options wrong = {
        .loss = trm_reduce_sum(g, x, NULL, 0, false), .backend = "ref", .recompute = true};
    CHECK_FAILS(trm_exec_create(g, &wrong, &exec, &err), TRM_INVALID, err, "has no segments");
    trm_graph_mark_segment(g);
    CHECK_FAILS(trm_graph_check(g, &err), TRM_INVALID, err, "no scope is open");
    trm_graph_destroy(g);
}

/* Freezes every second parameter of the network. */
static trm_exec *make_frozen(bool all, trm_exec_options options, trm_error *err) {
    trm_graph *g;
    trm_exec *exec = NULL;
    CHECK_OK(trm_graph_create(&(trm_graph_options){.training = true}, &g, err), *err);
    options.loss = build_network(g, false);
    options.backend = "ref";
    options.seed = 7;
    for (int64_t i = 1, n = 0; i < g->ops_count; i++) {
        if (g->ops[i].kind == TRMI_OP_PARAMETER && (n++ % 2 == 0 || all)) {
            (void)trm_freeze(g, (trm_node){g->ops[i].outputs[0]});
        }
    }
    trm_status status = trm_exec_create(g, &options, &exec, err);
    trm_graph_destroy(g);
    assert_true((status == TRM_OK) == (exec != NULL));
    return exec;
}

/* Frozen parameters keep their bits and have neither gradients nor slots; the gradients of the
 * others are those of a network that trains all. */
static void frozen_parameters_stay(void **state) {
    trm_error err;
    trm_exec_info info[2];
    trm_exec *all = make_exec(false, (trm_exec_options){.optimizer = {.kind = TRM_ADAM}}),
             *half = make_frozen(false, (trm_exec_options){.optimizer = {.kind = TRM_ADAM}}, &err);
    (void)state;
    trm_tensor from, to;
    for (int k = 0; k < 2; k++) {
        const char *name = k ? "label" : "image";
        CHECK_OK(trm_exec_input(all, name, &from, &err), err);
        CHECK_OK(trm_exec_input(half, name, &to, &err), err);
        memcpy(to.data, from.data, (size_t)trm_tensor_bytes(&from));
    }
    CHECK_OK(trm_exec_forward_backward(all, &err), err);
    CHECK_OK(trm_exec_forward_backward(half, &err), err);
    assert_true(trm_exec_loss(all) == trm_exec_loss(half));
    float before[64][512], values[512], gradient[512];
    int32_t frozen = 0, slots = 0, n = 0;
    for (int32_t v = 0; v < trm_exec_variable_count(half); v++) {
        trm_variable variable = trm_exec_variable(half, v);
        slots += variable.kind == TRM_VARIABLE_SLOT;
        if (variable.kind == TRM_VARIABLE_PARAMETER) {
            size_t bytes = (size_t)trm_shape_count(&variable.shape) * sizeof(float);
            trm_exec_read(half, v, before[v]);
            CHECK_OK(trm_exec_gradient(half, v, values, &err), err);
            CHECK_OK(trm_exec_gradient(all, v, gradient, &err), err);
            if (n++ % 2 == 0) {
                memset(gradient, 0, bytes);
                frozen++;
            }
            assert_memory_equal(values, gradient, bytes);
        }
    }
    assert_int_equal(slots, 2 * (n - frozen));
    for (int i = 0; i < 3; i++) {
        CHECK_OK(trm_exec_update(half, 0.1, &err), err);
        CHECK_OK(trm_exec_forward_backward(half, &err), err);
    }
    for (int32_t v = 0, k = 0; v < n; v++, k++) {
        trm_variable variable = trm_exec_variable(half, v);
        size_t bytes = (size_t)trm_shape_count(&variable.shape) * sizeof(float);
        trm_exec_read(half, v, values);
        assert_true((memcmp(values, before[v], bytes) == 0) == (k % 2 == 0));
    }
    trm_exec_get_info(all, &info[0]);
    trm_exec_get_info(half, &info[1]);
    assert_int_equal(info[0].parameter_bytes, info[1].parameter_bytes);
    assert_int_equal(info[1].slot_bytes, 2 * info[1].gradient_bytes);
    assert_true(info[1].gradient_bytes < info[0].gradient_bytes);
    trm_exec_destroy(all);
    trm_exec_destroy(half);
    assert_null(make_frozen(true, (trm_exec_options){0}, &err));
    assert_non_null(strstr(err.message, "parameters are frozen"));
}

/* No two buffers that live at the same time share bytes, unless one is the other's alias. */
static void buffers_do_not_overlap(void **state) {
    trm_exec *exec = make_exec(false, (trm_exec_options){0});
    const trm_program *p = exec->program;
    for (int32_t i = 1; i < p->buffers_count; i++) {
        for (int32_t j = i + 1; j < p->buffers_count; j++) {
            const trmi_buffer *a = &p->buffers[i], *b = &p->buffers[j];
            bool apart = a->arena != b->arena || a->offset + a->bytes <= b->offset ||
                         b->offset + b->bytes <= a->offset;
            bool other_time = a->last_step < b->first_step || b->last_step < a->first_step;
            bool used = a->last_step >= 0 && b->last_step >= 0;
            if (used && !apart && !other_time && a->alias_of == 0 && b->alias_of == 0) {
                fail_msg("%s and %s overlap", a->name, b->name);
            }
        }
    }
    trm_exec_destroy(exec);
}

/* A program without a loss computes the gradients that its graph has, with all other outputs. */
static void gradients_of_the_caller_are_outputs(void **state) {
    for (int fast = 0; fast < 2; fast++) {
        const float values[3] = {1, -2, 3};
        trm_error err;
        trm_graph *g;
        trm_exec *exec;
        trm_node outputs[2];
        trm_tensor out;
        CHECK_OK(trm_graph_create(NULL, &g, &err), err);
        trm_node x = trm_input(g, "x", TRM_FLOAT32, trm_shape_of(3));
        trm_gradients(g, trm_reduce_sum(g, trm_mul(g, x, x), NULL, 0, false), &x, 1, &outputs[0]);
        outputs[1] = trm_scale(g, outputs[0], 2);
        CHECK_OK(trm_graph_check(g, &err), err);
        const trm_exec_options options = {
            .backend = fast ? NULL : "ref", .outputs = outputs, .outputs_count = 2};
        CHECK_OK(trm_exec_create(g, &options, &exec, &err), err);
        trm_graph_destroy(g);
        CHECK_OK(trm_exec_feed(exec, "x",
                               &(trm_tensor){(void *)values, TRM_FLOAT32, trm_shape_of(3)}, &err),
                 err);
        CHECK_OK(trm_exec_forward(exec, &err), err);
        for (int k = 0; k < 2; k++) {
            CHECK_OK(trm_exec_output(exec, k, &out, &err), err);
            for (int i = 0; i < 3; i++) {
                assert_float_equal(((float *)out.data)[i], (k + 1) * 2 * values[i], 0);
            }
        }
        trm_exec_destroy(exec);
    }
}

static void wrong_feeds_are_named(void **state) {
    trm_error err;
    trm_exec *exec = make_exec(false, (trm_exec_options){0});
    float pixel = 0;
    trm_tensor small = {.data = &pixel, .dtype = TRM_FLOAT32, .shape = trm_shape_of(1)};
    CHECK_FAILS(trm_exec_feed(exec, "picture", &small, &err), TRM_INVALID, err, "image, label");
    CHECK_FAILS(trm_exec_feed(exec, "image", &small, &err), TRM_INVALID, err, "[3, 3, 6, 6]");
    trm_exec_destroy(exec);
}

/* An input that was never fed, and whose memory was never given out, would be zeros. */
static void inputs_without_values_are_named(void **state) {
    trm_error err;
    trm_graph *g;
    CHECK_OK(trm_graph_create(&(trm_graph_options){.training = true}, &g, &err), err);
    trm_node x = trm_input(g, "x", TRM_FLOAT32, trm_shape_of(2, 3)),
             y = trm_input(g, "y", TRM_FLOAT32, trm_shape_of(2, 3)),
             w = trm_parameter(g, "w", trm_shape_of(3), TRM_INIT_ONE),
             unread = trm_input(g, "unread", TRM_FLOAT32, trm_shape_of(2, 3)),
             error = trm_sub(g, trm_mul(g, x, w), y),
             loss = trm_reduce_mean(g, trm_mul(g, error, error), NULL, 0, false);
    trm_exec *exec;
    (void)unread;
    CHECK_OK(trm_exec_create(g, &(trm_exec_options){.loss = loss}, &exec, &err), err);
    CHECK_FAILS(trm_exec_forward(exec, &err), TRM_INVALID, err, "input 'x' has no values; feed it");
    float values[6] = {1, 2, 3, 4, 5, 6};
    trm_tensor given = {.data = values, .dtype = TRM_FLOAT32, .shape = trm_shape_of(3, 2)};
    CHECK_FAILS(trm_exec_feed(exec, "x", &given, &err), TRM_INVALID, err, "input 'x': ");
    CHECK_FAILS(trm_exec_forward(exec, &err), TRM_INVALID, err, "input 'x' has no values");
    given.shape = trm_shape_of(2, 3);
    CHECK_OK(trm_exec_feed(exec, "x", &given, &err), err);
    CHECK_FAILS(trm_exec_forward_backward(exec, &err), TRM_INVALID, err,
                "input 'y' has no values; feed it");
    trm_tensor place;
    CHECK_OK(trm_exec_input(exec, "y", &place, &err), err);
    memcpy(place.data, values, sizeof values);
    for (int step = 0; step < 2; step++) { /* the second with the values of the first */
        CHECK_OK(trm_exec_forward_backward(exec, &err), err);
        assert_float_equal(trm_exec_loss(exec), 0, 0);
    }
    trm_exec_destroy(exec);
    trm_graph_destroy(g);
}

static void nan_names_the_input(void **state) {
    trm_error err;
    trm_exec *exec = make_exec(false, (trm_exec_options){0});
    trm_tensor image;
    CHECK_OK(trm_exec_input(exec, "image", &image, &err), err);
    ((float *)image.data)[5] = NAN;
    CHECK_OK(trm_exec_forward_backward(exec, &err), err);
    CHECK_FAILS(trm_exec_update(exec, 0.1, &err), TRM_DIVERGED, err, "image");
    trm_exec_destroy(exec);
}

static void evaluation_shares_parameters(void **state) {
    trm_error err;
    trm_exec *train = make_exec(false, (trm_exec_options){.optimizer = momentum});
    trm_graph *g;
    trm_exec *eval;
    CHECK_OK(trm_graph_create(NULL, &g, &err), err);
    trm_node loss = build_network(g, false);
    CHECK_OK(trm_exec_create(
                 g, &(trm_exec_options){.loss = loss, .backend = "ref", .parameters_of = train},
                 &eval, &err),
             err);
    trm_graph_destroy(g);
    trm_tensor from, to;
    for (int i = 0; i < 2; i++) {
        const char *name = i ? "label" : "image";
        CHECK_OK(trm_exec_input(train, name, &from, &err), err);
        CHECK_OK(trm_exec_input(eval, name, &to, &err), err);
        memcpy(to.data, from.data, (size_t)trm_tensor_bytes(&from));
    }
    CHECK_OK(trm_exec_forward(eval, &err), err);
    float before = trm_exec_loss(eval);
    for (int step = 0; step < 30; step++) {
        CHECK_OK(trm_exec_forward_backward(train, &err), err);
        CHECK_OK(trm_exec_update(train, 0.1, &err), err);
    }
    CHECK_OK(trm_exec_forward(eval, &err), err);
    assert_true(trm_exec_loss(eval) < before);
    CHECK_FAILS(trm_exec_forward_backward(eval, &err), TRM_INVALID, err, "training graph");
    trm_exec_destroy(eval);
    trm_exec_destroy(train);
}

#ifdef TRIREME_ONEDNN
/* y = x w, or x w v; `base`: the executor whose parameters it uses. */
static trm_exec *cast_product(int64_t rows, bool is_larger, trm_precision precision,
                              const trm_exec *base) {
    trm_error err;
    trm_graph *g;
    trm_exec *exec;
    CHECK_OK(trm_graph_create(NULL, &g, &err), err);
    trm_node x = trm_input(g, "x", TRM_FLOAT32, trm_shape_of(rows, 32));
    trm_node y =
        trm_linear(g, x, trm_parameter(g, "w", trm_shape_of(48, 32), TRM_INIT_LINEAR), TRM_NO_NODE);
    if (is_larger) {
        y = trm_linear(g, y, trm_parameter(g, "v", trm_shape_of(32, 48), TRM_INIT_LINEAR),
                       TRM_NO_NODE);
    }
    CHECK_OK(trm_exec_create(g,
                             &(trm_exec_options){.outputs = &y,
                                                 .outputs_count = 1,
                                                 .precision = precision,
                                                 .tuning_file = "",
                                                 .keep_casts = true,
                                                 .parameters_of = base},
                             &exec, &err),
             err);
    trm_graph_destroy(g);
    trm_tensor input;
    CHECK_OK(trm_exec_input(exec, "x", &input, &err), err);
    for (int64_t i = 0; i < rows * 32; i++) {
        ((float *)input.data)[i] = (float)(i % 7) - 3;
    }
    return exec;
}

static float first_output(trm_exec *exec) {
    trm_error err;
    trm_tensor y;
    CHECK_OK(trm_exec_forward(exec, &err), err);
    CHECK_OK(trm_exec_output(exec, 0, &y, &err), err);
    return ((float *)y.data)[0];
}

/* Casts that another executor keeps are read, not made again; before it has run, this one makes
 * them in its memory. An executor whose casts are not all there has its own. */
static void kept_casts_are_shared(void **state) {
    (void)state;
    const size_t bytes = 48 * 32 * sizeof(uint16_t);
    const trm_precision mixed = TRM_PRECISION_MIXED;
    trm_exec *whole = cast_product(4, true, mixed, NULL);
    trm_exec *second = cast_product(8, true, mixed, whole);
    trm_exec *first = cast_product(1, false, mixed, whole);
    assert_ptr_equal(second->env.arena[TRMI_ARENA_CAST], whole->env.arena[TRMI_ARENA_CAST]);
    assert_ptr_equal(first->env.arena[TRMI_ARENA_CAST], whole->env.arena[TRMI_ARENA_CAST]);
    assert_int_equal(first->program->arena_bytes[TRMI_ARENA_CAST], 0);
    float expected = first_output(first), y = first_output(second);
    assert_true(expected != 0 && y != 0);
    assert_float_equal(first_output(whole), y, 0);
    trmi_exec_parameters_changed(first);
    /* the first executor reads the casts of `whole`, which are overwritten, instead of making its
     * own */
    memset(whole->env.arena[TRMI_ARENA_CAST], 0, 2 * bytes);
    assert_float_equal(first_output(first), 0, 0);
    trmi_exec_parameters_changed(first);
    trmi_exec_parameters_changed(whole);
    assert_float_equal(first_output(first), expected, 0);
    trm_exec *none = cast_product(4, true, TRM_PRECISION_FP32, whole);
    trm_exec *own = cast_product(1, false, mixed, none);
    assert_int_equal(none->program->arena_bytes[TRMI_ARENA_CAST], 0);
    assert_true(own->program->arena_bytes[TRMI_ARENA_CAST] >= (int64_t)bytes);
    assert_float_equal(first_output(own), expected, 0);
    trm_exec_destroy(own);
    trm_exec_destroy(none);
    trm_exec_destroy(first);
    trm_exec_destroy(second);
    trm_exec_destroy(whole);
}
#endif

/* Without initial values all variables are zero until they are written; written ones train as
 * usual. */
static void variables_begin_as_zeros_on_request(void **state) {
    trm_error err;
    (void)state;
    trm_exec *usual = make_exec(false, (trm_exec_options){.optimizer = momentum});
    trm_exec *empty =
        make_exec(false, (trm_exec_options){.optimizer = momentum, .initialise = TRM_OFF});
    float values[4096], zeros[4096] = {0};
    const int32_t count = trm_exec_variable_count(usual);
    assert_int_equal(trm_exec_variable_count(empty), count);
    for (int32_t i = 0; i < count; i++) {
        const trm_variable v = trm_exec_variable(usual, i);
        const size_t bytes = (size_t)trm_shape_count(&v.shape) * sizeof(float);
        assert_true(bytes <= sizeof values);
        trm_exec_read(empty, i, values);
        assert_memory_equal(values, zeros, bytes);
        trm_exec_read(usual, i, values);
        trm_exec_write(empty, i, values);
    }
    for (int step = 0; step < 3; step++) {
        CHECK_OK(trm_exec_forward_backward(usual, &err), err);
        CHECK_OK(trm_exec_update(usual, 0.1, &err), err);
        CHECK_OK(trm_exec_forward_backward(empty, &err), err);
        CHECK_OK(trm_exec_update(empty, 0.1, &err), err);
        assert_float_equal(trm_exec_loss(usual), trm_exec_loss(empty), 0);
    }
    trm_exec_destroy(usual);
    trm_exec_destroy(empty);
}

/* A pool or a norm that comes first does not stay in the plain layout, which only the reference
 * computes in. */
static void image_operators_run_channels_last(void **state) {
#ifdef TRIREME_ONEDNN
    trm_error err;
    trm_graph *g;
    trm_exec *exec;
    CHECK_OK(trm_graph_create(&(trm_graph_options){.training = true}, &g, &err), err);
    trm_node x = trm_input(g, "image", TRM_FLOAT32, trm_shape_of(BATCH, CHANNELS, SIZE, SIZE));
    x = trm_batch_norm(
        g, x, trm_parameter(g, "bn.weight", trm_shape_of(CHANNELS), TRM_INIT_ONE),
        trm_parameter(g, "bn.bias", trm_shape_of(CHANNELS), TRM_INIT_ZERO),
        trm_state(g, "bn.running_mean", TRM_FLOAT32, trm_shape_of(CHANNELS), TRM_INIT_ZERO),
        trm_state(g, "bn.running_var", TRM_FLOAT32, trm_shape_of(CHANNELS), TRM_INIT_ONE), NULL);
    x = trm_avg_pool(g, x, &(trm_pool_options){.kernel = {2, 2}});
    x = trm_max_pool(g, x, &(trm_pool_options){.kernel = {2, 2}});
    int32_t all[] = {0, 1, 2, 3};
    trm_exec_options options = {
        .loss = trm_reduce_mean(g, x, all, 4, false), .backend = "onednn", .tuning_file = ""};
    CHECK_OK(trm_exec_create(g, &options, &exec, &err), err);
    int seen = 0;
    for (int32_t i = 0; i < exec->program->steps_count; i++) {
        const trmi_step *step = &exec->program->steps[i];
        bool image = step->op_kind == TRMI_OP_BATCH_NORM ||
                     step->op_kind == TRMI_OP_BATCH_NORM_GRAD ||
                     step->op_kind == TRMI_OP_NORM_ACT || step->op_kind == TRMI_OP_NORM_ACT_GRAD ||
                     step->op_kind == TRMI_OP_AVG_POOL || step->op_kind == TRMI_OP_AVG_POOL_GRAD ||
                     step->op_kind == TRMI_OP_MAX_POOL || step->op_kind == TRMI_OP_MAX_POOL_GRAD;
        if (step->kind == TRMI_STEP_OP && image) {
            assert_int_equal(exec->program->buffers[step->inputs[0]].layout, TRMI_CHANNELS_LAST);
            seen++;
        }
    }
    assert_int_equal(seen, 6);
    trm_tensor image;
    CHECK_OK(trm_exec_input(exec, "image", &image, &err), err); /* of zeros */
    CHECK_OK(trm_exec_forward_backward(exec, &err), err);
    trm_exec_destroy(exec);
    trm_graph_destroy(g);
#else
    skip();
#endif
}

/* must_keep_origin_dtype makes no cast; allow_mix_precision computes in bfloat16 and keeps
 * parameters. */
static void precisions_are_what_they_say(void **state) {
    static const trm_precision precisions[] = {TRM_PRECISION_FP32, TRM_PRECISION_ORIGIN,
                                               TRM_PRECISION_MIXED};
    trm_error err;
    float loss[3];
    for (int i = 0; i < 3; i++) {
        trm_exec *exec = make_exec(false, (trm_exec_options){.precision = precisions[i]});
        int halves = 0, casts = 0;
        for (int32_t b = 1; b < exec->program->buffers_count; b++) {
            const trmi_buffer *buffer = &exec->program->buffers[b];
            halves += buffer->dtype == TRM_BFLOAT16;
            assert_false(buffer->dtype == TRM_BFLOAT16 && buffer->arena == TRMI_ARENA_PARAM);
        }
        for (int32_t p = 0; p < exec->program->params_count; p++) {
            const trmi_param *param = &exec->program->params[p];
            assert_int_equal(exec->program->buffers[param->grad_buffer].dtype, TRM_FLOAT32);
        }
        for (int32_t s = 0; s < exec->program->steps_count; s++) {
            casts += exec->program->steps[s].op_kind == TRMI_OP_CAST;
        }
        assert_int_equal(halves > 0, precisions[i] == TRM_PRECISION_MIXED);
        assert_int_equal(casts > 0, precisions[i] == TRM_PRECISION_MIXED);
        CHECK_OK(trm_exec_forward_backward(exec, &err), err);
        loss[i] = trm_exec_loss(exec);
        trm_exec_destroy(exec);
    }
    assert_true(loss[0] == loss[1]);
    CHECK_CLOSE(loss[2], loss[0], 0.05);
}

/* A large variable is made by all threads in pieces and in vectors; each element by itself has the
 * same bits. Rows of 257 begin everywhere in the blocks of four random numbers. */
static void large_variables_have_the_bits_of_single_elements(void **state) {
    (void)state;
    static const trm_init inits[] = {TRM_INIT_NORMAL_001, TRM_INIT_LINEAR};
    const trm_shape shape = trm_shape_of(4099, 257);
    float *values = malloc((size_t)trm_shape_count(&shape) * sizeof *values);
    trm_error err;
    assert_non_null(values);
    for (size_t k = 0; k < sizeof inits / sizeof inits[0]; k++) {
        trm_graph *g;
        trm_exec *exec;
        CHECK_OK(trm_graph_create(&(trm_graph_options){.training = true}, &g, &err), err);
        trm_node loss = trm_reduce_mean(g, trm_relu(g, trm_parameter(g, "table", shape, inits[k])),
                                        NULL, 0, false);
        const trm_exec_options options = {.loss = loss, .seed = 9, .threads = 2, .tuning_file = ""};
        CHECK_OK(trm_exec_create(g, &options, &exec, &err), err);
        trm_exec_read(exec, trm_exec_find(exec, "table"), values);
        for (int64_t i = 0; i < trm_shape_count(&shape); i++) {
            const int64_t row = i / 257, column = i % 257;
            const trmi_box one = {.begin = {row, column}, .end = {row + 1, column + 1}, .rank = 2};
            float value;
            trmi_init_fill_box(inits[k], 9, "table", &shape, &one, TRM_FLOAT32, &value);
            if (memcmp(&value, &values[i], sizeof value) != 0) {
                fail_msg("init %d, element %ld: %.9g, alone %.9g", (int)k, (long)i,
                         (double)values[i], (double)value);
            }
        }
        trm_exec_destroy(exec);
        trm_graph_destroy(g);
    }
    free(values);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(large_variables_have_the_bits_of_single_elements),
        cmocka_unit_test(precisions_are_what_they_say),
        cmocka_unit_test(image_operators_run_channels_last),
        cmocka_unit_test(gradients_match_finite_differences),
        cmocka_unit_test(fusion_changes_nothing),
        cmocka_unit_test(every_third_output_is_kept),
        cmocka_unit_test(expanded_loss_equals_fused),
#ifdef TRIREME_ONEDNN
        cmocka_unit_test(fast_backend_equals_reference),
#endif
        cmocka_unit_test(mixed_precision_keeps_the_gradients),
        cmocka_unit_test(accumulation_averages),
        cmocka_unit_test(accumulated_batches_drop_other_elements),
        cmocka_unit_test(decay_takes_what_it_is_told),
        cmocka_unit_test(recomputed_segments_keep_the_bits),
        cmocka_unit_test(frozen_parameters_stay),
        cmocka_unit_test(buffers_do_not_overlap),
        cmocka_unit_test(gradients_of_the_caller_are_outputs),
        cmocka_unit_test(wrong_feeds_are_named),
        cmocka_unit_test(inputs_without_values_are_named),
        cmocka_unit_test(nan_names_the_input),
        cmocka_unit_test(evaluation_shares_parameters),
#ifdef TRIREME_ONEDNN
        cmocka_unit_test(kept_casts_are_shared),
#endif
        cmocka_unit_test(variables_begin_as_zeros_on_request),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
