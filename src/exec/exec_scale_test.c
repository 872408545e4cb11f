/* SPDX-License-Identifier: Apache-2.0 */
/* Loss scaling end to end: the scale leaves no trace where nothing overflows; an overflow skips
 * the update, is reported, and the scale recovers.
 *
 * Scales are powers of two, so that a scaled run must have the bits of one without a scale. */
#include "check.h"

#include "exec/exec.h"

#include "base/format/half.h"
#include "base/rng.h"

#include <math.h>

enum {
    BATCH = 4,
    IN = 6,
    HIDDEN = 8,
    CLASSES = 3,
    PARAMETERS = IN * HIDDEN + HIDDEN * CLASSES + CLASSES
};

/* Makes an executor whose network has its loss in a type. */
static trm_exec *make_exec_with(trm_exec_options options, trm_dtype dtype) {
    trm_error err;
    trm_graph *g;
    trm_exec *exec;
    CHECK_OK(trm_graph_create(&(trm_graph_options){.training = true}, &g, &err), err);
    trm_node x = trm_input(g, "x", TRM_FLOAT32, trm_shape_of(BATCH, IN));
    trm_node label = trm_input(g, "label", TRM_INT32, trm_shape_of(BATCH));
    x = trm_relu(g,
                 trm_linear(g, x, trm_parameter(g, "a", trm_shape_of(HIDDEN, IN), TRM_INIT_LINEAR),
                            TRM_NO_NODE));
    x = trm_linear(g, x, trm_parameter(g, "b", trm_shape_of(CLASSES, HIDDEN), TRM_INIT_LINEAR),
                   trm_parameter(g, "c", trm_shape_of(CLASSES), TRM_INIT_ZERO));
    options.loss = trm_cast(g, trm_softmax_cross_entropy(g, x, label, NULL), dtype);
    options.seed = 3;
    options.threads = 2;
    options.tuning_file = "";
    CHECK_OK(trm_exec_create(g, &options, &exec, &err), err);
    trm_graph_destroy(g);
    return exec;
}

static trm_exec *make_exec(trm_exec_options options) {
    return make_exec_with(options, TRM_FLOAT32);
}

static void feed_step(trm_exec *exec, int step, float size) {
    trm_error err;
    float x[BATCH * IN];
    int32_t label[BATCH];
    for (int i = 0; i < BATCH * IN; i++) {
        x[i] = size * (trmi_unit_float(trmi_random_u32(5, TRMI_STREAM_TEST,
                                                       (uint64_t)(step * BATCH * IN + i))) -
                       0.5f);
    }
    for (int i = 0; i < BATCH; i++) {
        label[i] = (i + step) % CLASSES;
    }
    CHECK_OK(trm_exec_feed(exec, "x", &(trm_tensor){x, TRM_FLOAT32, trm_shape_of(BATCH, IN)}, &err),
             err);
    CHECK_OK(
        trm_exec_feed(exec, "label", &(trm_tensor){label, TRM_INT32, trm_shape_of(BATCH)}, &err),
        err);
}

static void one_step(trm_exec *exec, int step, float size) {
    trm_error err;
    feed_step(exec, step, size);
    CHECK_OK(trm_exec_forward_backward(exec, &err), err);
    CHECK_OK(trm_exec_update(exec, 0.1, &err), err);
}

/* All variables, slots too. */
static int read_all(const trm_exec *exec, float *out) {
    int n = 0;
    for (int32_t i = 0; i < trm_exec_variable_count(exec); i++) {
        trm_variable v = trm_exec_variable(exec, i);
        trm_exec_read(exec, i, out + n);
        n += (int)trm_shape_count(&v.shape);
    }
    return n;
}

/* A power of two changes exponents only: the same bits with and without, clipping and LARS
 * included. */
static void a_scale_leaves_no_trace(void **state) {
    static const trm_optimizer_options kinds[] = {
        {.kind = TRM_MOMENTUM, .momentum = 0.9, .clip_norm = 0.05, .weight_decay = 1e-3},
        {.kind = TRM_LARS, .momentum = 0.9, .weight_decay = 1e-3},
        {.kind = TRM_ADAM}};
    for (int k = 0; k < 3; k++) {
        for (int accumulate = 1; accumulate <= 2; accumulate++) {
            trm_exec_options o = {.optimizer = kinds[k], .accumulate = accumulate};
            trm_exec *plain = make_exec(o);
            o.loss_scale = (trm_loss_scale_options){.on = true, .initial = 1024};
            trm_exec *fixed = make_exec(o);
            o.loss_scale = (trm_loss_scale_options){.on = true, .dynamic = true, .grow_every = 3};
            trm_exec *dynamic = make_exec(o);
            trm_exec *all[] = {plain, fixed, dynamic};
            float want[4 * PARAMETERS], got[4 * PARAMETERS], gradient[PARAMETERS],
                other[PARAMETERS];
            for (int step = 0; step < 8; step++) {
                for (int e = 0; e < 3; e++) {
                    trm_error err;
                    for (int a = 0; a < accumulate; a++) {
                        feed_step(all[e], step * accumulate + a, 2);
                        CHECK_OK(trm_exec_forward_backward(all[e], &err), err);
                    }
                    CHECK_OK(trm_exec_gradient(all[e], 0, e == 0 ? gradient : other, &err), err);
                    assert_true(e == 0 ||
                                memcmp(gradient, other, IN * HIDDEN * sizeof(float)) == 0);
                    CHECK_OK(trm_exec_update(all[e], 0.1, &err), err);
                }
            }
            int count = read_all(plain, want);
            for (int e = 1; e < 3; e++) {
                assert_int_equal(read_all(all[e], got), count);
                assert_memory_equal(got, want, (size_t)count * sizeof(float));
            }
            trm_loss_scale_state s;
            assert_false(trm_exec_get_loss_scale(plain, &s));
            assert_true(trm_exec_get_loss_scale(fixed, &s) && s.scale == 1024 && s.skipped == 0);
            assert_true(trm_exec_get_loss_scale(dynamic, &s) && s.scale == 65536 * 4 &&
                        s.good == 2 && s.skipped == 0);
            for (int e = 0; e < 3; e++) {
                trm_exec_destroy(all[e]);
            }
        }
    }
}

static void an_overflow_skips_the_update(void **state) {
    trm_loss_scale_state s;
    float before[4 * PARAMETERS], after[4 * PARAMETERS];
    trm_exec *exec = make_exec((trm_exec_options){
        .optimizer = {.kind = TRM_MOMENTUM, .momentum = 0.9},
        .loss_scale = {.on = true, .dynamic = true, .initial = 0x1p126, .grow_every = 4}});
    one_step(exec, 0, 1e-3f); /* small enough for any scale */
    int count = read_all(exec, before);
    int skipped = 0;
    for (int step = 1; step < 20; step++) {
        one_step(exec, step, 1e4f);
        assert_true(trm_exec_get_loss_scale(exec, &s));
        if (!s.overflow) {
            break;
        }
        skipped++;
        assert_int_equal(s.skipped, skipped);
        assert_true(s.scale == ldexp(1, 126 - skipped));
        read_all(exec, after);
        assert_memory_equal(before, after, (size_t)count * sizeof(float));
        assert_int_equal(trm_exec_step(exec), 1 + skipped); /* it counts as a step */
    }
    assert_true(skipped > 3 && skipped < 19);
    read_all(exec, after);
    assert_true(memcmp(before, after, (size_t)count * sizeof(float)) != 0);
    trm_exec_destroy(exec);
}

/* Where no scale helps the step fails as it does without one; a fixed scale skips and says so. */
static void what_is_not_finite_at_scale_one_has_diverged(void **state) {
    trm_error err;
    trm_loss_scale_state s;
    trm_exec *exec =
        make_exec((trm_exec_options){.loss_scale = {.on = true, .dynamic = true, .initial = 4}});
    for (int step = 0; step < 2; step++) {
        one_step(exec, step, NAN);
        assert_true(trm_exec_get_loss_scale(exec, &s) && s.overflow &&
                    s.scale == (step == 0 ? 2 : 1));
    }
    feed_step(exec, 2, NAN);
    CHECK_OK(trm_exec_forward_backward(exec, &err), err);
    CHECK_FAILS(trm_exec_update(exec, 0.1, &err), TRM_DIVERGED, err, "");
    trm_exec_destroy(exec);
    exec = make_exec((trm_exec_options){.loss_scale = {.on = true, .initial = 8}});
    one_step(exec, 0, NAN);
    assert_true(trm_exec_get_loss_scale(exec, &s) && s.overflow && s.scale == 8 && s.skipped == 1);
    one_step(exec, 1, 1);
    assert_true(trm_exec_get_loss_scale(exec, &s) && !s.overflow && s.skipped == 1);
    trm_exec_destroy(exec);
}

static void a_run_goes_on_with_its_scale(void **state) {
    trm_error err;
    trm_loss_scale_state s = {.scale = 512, .good = 1, .skipped = 7};
    trm_exec *exec =
        make_exec((trm_exec_options){.loss_scale = {.on = true, .dynamic = true, .grow_every = 2}});
    CHECK_OK(trm_exec_set_loss_scale(exec, &s, &err), err);
    one_step(exec, 0, 1);
    assert_true(trm_exec_get_loss_scale(exec, &s) && s.scale == 1024 && s.good == 0 &&
                s.skipped == 7);
    s.scale = 0.5;
    CHECK_FAILS(trm_exec_set_loss_scale(exec, &s, &err), TRM_INVALID, err, "0.5");
    trm_exec_destroy(exec);
    exec = make_exec((trm_exec_options){0});
    CHECK_FAILS(trm_exec_set_loss_scale(exec, &s, &err), TRM_INVALID, err, "scales no loss");
    trm_exec_destroy(exec);
}

/* A loss in 16 bits is read in float32, rounded, and can be scaled. */
static void a_loss_in_16_bits_is_scaled(void **state) {
    (void)state;
    trm_error err;
    const trm_exec_options options = {.optimizer = {.kind = TRM_SGD},
                                      .loss_scale = {.on = true, .initial = 1024}};
    trm_exec *whole = make_exec(options), *half = make_exec_with(options, TRM_BFLOAT16);
    static float a[2 * PARAMETERS], b[2 * PARAMETERS];
    for (int step = 0; step < 3; step++) {
        feed_step(whole, step, 1);
        feed_step(half, step, 1);
        CHECK_OK(trm_exec_forward_backward(whole, &err), err);
        CHECK_OK(trm_exec_forward_backward(half, &err), err);
        const float loss = trm_exec_loss(whole);
        assert_true(loss > 0.5f);
        assert_true(trm_exec_loss(half) == trmi_bf16_to_float(trmi_float_to_bf16(loss)));
        CHECK_OK(trm_exec_update(whole, 0.1, &err), err);
        CHECK_OK(trm_exec_update(half, 0.1, &err), err);
    }
    assert_int_equal(read_all(whole, a), read_all(half, b));
    assert_memory_equal(a, b, PARAMETERS * sizeof *a); /* the seed of backward is 1024 in both */
    trm_exec_destroy(whole);
    trm_exec_destroy(half);
}

/* Makes an executor whose output layer and loss are one operator, which makes gradients for a seed
 * of 1. */
static trm_exec *make_output_layer(trm_exec_options options) {
    trm_error err;
    trm_graph *g;
    trm_exec *exec;
    CHECK_OK(trm_graph_create(&(trm_graph_options){.training = true}, &g, &err), err);
    trm_node x = trm_input(g, "x", TRM_FLOAT32, trm_shape_of(BATCH, IN)),
             label = trm_input(g, "label", TRM_INT32, trm_shape_of(BATCH)),
             weight = trm_parameter(g, "a", trm_shape_of(CLASSES, IN), TRM_INIT_LINEAR);
    options.loss = trm_linear_cross_entropy(g, x, weight, label, NULL);
    options.threads = 2;
    options.tuning_file = "";
    CHECK_OK(trm_exec_create(g, &options, &exec, &err), err);
    trm_graph_destroy(g);
    return exec;
}

/* Returns the bytes that a profile counts for products of backward; *operations: the floating point
 * operations. */
static double profiled_products(trm_exec *exec, double *operations) {
    trm_error err;
    trm_program_profile profile;
    int32_t products = 0;
    double bytes = 0;
    *operations = 0;
    feed_step(exec, 0, 1);
    CHECK_OK(trm_exec_profile(exec, NULL, &profile, &err), err);
    for (int32_t i = 0; i < profile.count; i++) {
        const trm_step_profile *step = &profile.steps[i];
        if (strcmp(step->kind, "mul") == 0) {
            bytes += step->bytes + step->written_bytes;
            *operations += step->flops + step->work_flops;
            products++;
        }
    }
    assert_int_equal(products, 1);
    return bytes;
}

/* The gradient of the weights times the seed is no work where the seed is 1, and a pass over all of
 * them where it is not. */
static void a_profile_counts_what_is_done(void **state) {
    (void)state;
    double done, scaled_done;
    trm_exec *one = make_output_layer((trm_exec_options){.optimizer = {.kind = TRM_SGD}}),
             *scaled = make_output_layer((trm_exec_options){
                 .optimizer = {.kind = TRM_SGD}, .loss_scale = {.on = true, .initial = 1024}});
    assert_true(profiled_products(one, &done) == 0);
    assert_true(done == 0);
    assert_true(profiled_products(scaled, &scaled_done) >= 3 * CLASSES * IN * sizeof(float));
    assert_true(scaled_done >= CLASSES * IN);
    trm_exec_destroy(one);
    trm_exec_destroy(scaled);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_scale_leaves_no_trace),
        cmocka_unit_test(an_overflow_skips_the_update),
        cmocka_unit_test(what_is_not_finite_at_scale_one_has_diverged),
        cmocka_unit_test(a_run_goes_on_with_its_scale),
        cmocka_unit_test(a_loss_in_16_bits_is_scaled),
        cmocka_unit_test(a_profile_counts_what_is_done),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
