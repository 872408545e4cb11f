/* SPDX-License-Identifier: Apache-2.0 */
/* Gradients that stay in factors (exec/optimizer/update_factors.c): a product dy^T x that no rank
 * sums is never written; the optimiser multiplies the factors.
 *
 * The optimiser is compared with its dense form for every rule, and a network with itself when a
 * caller reads its gradients, which makes the products. A gradient that is not finite must be
 * found in the factors of the same batch. */
#include "check.h"
#include "optimizer_case.h"

#include "exec/exec.h"
#include "exec/optimizer/update_state.h"

#include "base/format/half.h"
#include "base/rng.h"

#include <math.h>
#include <stdlib.h>

enum { ROWS = 210, COLUMNS = 333, COUNT = ROWS * COLUMNS, MOST = TRMI_FACTORS_MOST, STEPS = 3 };

static float random_value(uint64_t stream, int64_t i) {
    return trmi_unit_float(trmi_random_u32(stream, TRMI_STREAM_TEST, (uint64_t)i)) - 0.5f;
}

/* ---- the optimiser --------------------------------------------------------------------------- */

/* The factors of a gradient: left [factors, ROWS], right [factors, COLUMNS], in both types. */
typedef struct pair {
    float left[MOST * ROWS], right[MOST * COLUMNS];
    uint16_t left_half[MOST * ROWS], right_half[MOST * COLUMNS];
} pair;

static void draw_factors(pair *p, int factors, uint64_t step) {
    for (int i = 0; i < factors * ROWS; i++) {
        p->left_half[i] = trmi_float_to_bf16(random_value(10 + step, i));
        p->left[i] = trmi_bf16_to_float(p->left_half[i]); /* the same numbers in both types */
    }
    for (int i = 0; i < factors * COLUMNS; i++) {
        p->right_half[i] = trmi_float_to_bf16(random_value(20 + step, i));
        p->right[i] = trmi_bf16_to_float(p->right_half[i]);
    }
}

static void multiply_factors(const pair *p, int factors, float *out) {
    for (int r = 0; r < ROWS; r++) {
        for (int c = 0; c < COLUMNS; c++) {
            double sum = 0;
            for (int s = 0; s < factors; s++) {
                sum += (double)p->left[s * ROWS + r] * (double)p->right[s * COLUMNS + c];
            }
            out[r * COLUMNS + c] = (float)sum;
        }
    }
}

static void equals_dense(trm_optimizer_kind kind, int factors, bool half) {
    trm_error err;
    const trm_optimizer_options options = optimizer_case(kind, 50);
    const trmi_update_segment dense[] = {{.count = COUNT, .decay = true},
                                         {.offset = COUNT, .count = 7}};
    trmi_update_segment apart[] = {dense[0], dense[1]};
    apart[0].factors = factors;
    apart[0].columns = COLUMNS;
    trmi_update *a, *b;
    CHECK_OK(trmi_update_create(&options, dense, 2, COUNT + 7, &a, &err), err);
    CHECK_OK(trmi_update_create(&options, apart, 2, COUNT + 7, &b, &err), err);
    static pair p;
    float *wa = malloc((COUNT + 7) * sizeof *wa), *wb = malloc((COUNT + 7) * sizeof *wb);
    float *g = malloc((COUNT + 7) * sizeof *g), *product = malloc(COUNT * sizeof *product);
    for (int i = 0; i < COUNT + 7; i++) {
        wa[i] = wb[i] = random_value(1, i);
        g[i] = random_value(2, i);
    }
    for (uint64_t t = 1; t <= STEPS; t++) {
        draw_factors(&p, factors, t);
        multiply_factors(&p, factors, g);
        trmi_update_factors(b, 0, half ? (const void *)p.left_half : p.left,
                            half ? (const void *)p.right_half : p.right,
                            half ? TRM_BFLOAT16 : TRM_FLOAT32);
        trmi_update_product(b, 0, product);
        CHECK_OK(trmi_update_run(a, wa, g, 0.1, t, &err), err);
        CHECK_OK(trmi_update_run(b, wb, g, 0.1, t, &err), err);
        assert_true(fabs(trmi_update_norm(a) - trmi_update_norm(b)) < 1e-5 * trmi_update_norm(a));
        for (int i = 0; i < COUNT; i++) {
            assert_true(fabsf(product[i] - g[i]) < 1e-5f);
        }
    }
    double difference = 0;
    for (int i = 0; i < COUNT + 7; i++) {
        difference = fmax(difference, fabs((double)wa[i] - (double)wb[i]));
    }
    /* these divide by small numbers */
    if (!(difference < (kind == TRM_ADAM || kind == TRM_ADAGRAD ? 1e-3 : 1e-5))) {
        fail_msg("optimiser %d, %d factors: %g apart", (int)kind, factors, difference);
    }
    free(wa);
    free(wb);
    free(g);
    free(product);
    trmi_update_destroy(a);
    trmi_update_destroy(b);
}

static void every_optimiser_takes_factors(void **state) {
    (void)state;
    for (int kind = 0; kind < TRMI_OPTIMIZERS; kind++) {
        if (!trmi_optimizer_of((trm_optimizer_kind)kind)->of_models) {
            continue;
        }
        equals_dense((trm_optimizer_kind)kind, 1, false);
        equals_dense((trm_optimizer_kind)kind, 4, kind % 2 == 0);
        equals_dense((trm_optimizer_kind)kind, MOST, kind % 2 == 1);
    }
}

static void what_is_not_finite_changes_nothing(void **state) {
    (void)state;
    trm_error err;
    const trmi_update_segment segment = {.count = COUNT, .factors = 2, .columns = COLUMNS};
    trmi_update *u;
    CHECK_OK(
        trmi_update_create(&(trm_optimizer_options){.kind = TRM_SGD}, &segment, 1, COUNT, &u, &err),
        err);
    static pair p;
    static float w[COUNT];
    /* the last one's product is infinite */
    const float bad[][2] = {{NAN, 1}, {INFINITY, 1}, {1e30f, 1e30f}};
    for (int i = 0; i < 3; i++) {
        draw_factors(&p, 2, 0);
        p.left[ROWS + 5] = bad[i][0];
        p.right[COLUMNS + 7] = bad[i][1];
        trmi_update_factors(u, 0, p.left, p.right, TRM_FLOAT32);
        CHECK_FAILS(trmi_update_run(u, w, NULL, 0.1, 1, &err), TRM_DIVERGED, err,
                    "NaN or infinite");
        assert_true(w[5 * COLUMNS + 7] == 0);
    }
    draw_factors(&p, 2, 0); /* large times small is neither */
    p.left[5] = 1e25f;
    memset(p.right, 0, COLUMNS * sizeof *p.right);
    p.right[7] = 1e-25f;
    trmi_update_factors(u, 0, p.left, p.right, TRM_FLOAT32);
    CHECK_OK(trmi_update_run(u, w, NULL, 0.1, 1, &err), err);
    assert_true(w[5 * COLUMNS + 7] != 0);
    trmi_update_destroy(u);
}

/* ---- a network ------------------------------------------------------------------------------- */

static trm_exec *make_exec(trm_exec_options options) {
    enum { BATCH = 5, WIDTH = 300, HIDDEN = 420 };
    trm_error err;
    trm_graph *g;
    trm_exec *exec;
    CHECK_OK(trm_graph_create(&(trm_graph_options){.training = true}, &g, &err), err);
    trm_node x = trm_input(g, "x", TRM_FLOAT32, trm_shape_of(BATCH, WIDTH));
    trm_node h = trm_relu(
        g,
        trm_linear(g, x, trm_parameter(g, "a.weight", trm_shape_of(HIDDEN, WIDTH), TRM_INIT_LINEAR),
                   trm_parameter(g, "a.bias", trm_shape_of(HIDDEN), TRM_INIT_LINEAR)));
    h = trm_linear(g, h,
                   trm_parameter(g, "b.weight", trm_shape_of(HIDDEN, HIDDEN), TRM_INIT_LINEAR),
                   TRM_NO_NODE);
    h = trm_linear(g, h, trm_parameter(g, "c.weight", trm_shape_of(9, HIDDEN), TRM_INIT_LINEAR),
                   TRM_NO_NODE);
    options.loss = trm_softmax_cross_entropy(
        g, h, trm_input(g, "label", TRM_INT32, trm_shape_of(BATCH)), NULL);
    options.seed = 3;
    options.tuning_file = "";
    options.optimizer = (trm_optimizer_options){
        .kind = TRM_MOMENTUM, .momentum = 0.9, .weight_decay = 1e-3, .clip_norm = 1};
    CHECK_OK(trm_exec_create(g, &options, &exec, &err), err);
    trm_graph_destroy(g);
    return exec;
}

static int in_factors(const trm_exec *exec) {
    int count = 0;
    for (int32_t i = 0; i < exec->program->params_count; i++) {
        count += exec->program->params[i].factor_left != 0;
    }
    return count;
}

static void feed_step(trm_exec *exec, int step) {
    trm_error err;
    trm_tensor x, label;
    CHECK_OK(trm_exec_input(exec, "x", &x, &err), err);
    CHECK_OK(trm_exec_input(exec, "label", &label, &err), err);
    for (int64_t i = 0; i < trm_shape_count(&x.shape); i++) {
        ((float *)x.data)[i] = random_value((uint64_t)(40 + step), i);
    }
    for (int64_t i = 0; i < label.shape.dim[0]; i++) {
        ((int32_t *)label.data)[i] = (int32_t)((i + step) % 9);
    }
}

/* Gradients of each step, then the parameters. */
static void compare_execs(trm_exec *a, trm_exec *b, double tolerance) {
    trm_error err;
    static float x[420 * 420], y[420 * 420];
    for (int step = 0; step < STEPS; step++) {
        feed_step(a, step);
        feed_step(b, step);
        CHECK_OK(trm_exec_forward_backward(a, &err), err);
        CHECK_OK(trm_exec_forward_backward(b, &err), err);
        for (int32_t v = 0; v < trm_exec_variable_count(a); v++) {
            trm_variable variable = trm_exec_variable(a, v);
            if (variable.kind == TRM_VARIABLE_PARAMETER) {
                CHECK_OK(trm_exec_gradient(a, v, x, &err), err);
                CHECK_OK(trm_exec_gradient(b, v, y, &err), err);
                for (int64_t i = 0; i < trm_shape_count(&variable.shape); i++) {
                    assert_true(fabs((double)x[i] - (double)y[i]) < tolerance);
                }
            }
        }
        CHECK_OK(trm_exec_update(a, 0.5, &err), err);
        CHECK_OK(trm_exec_update(b, 0.5, &err), err);
    }
    for (int32_t v = 0; v < trm_exec_variable_count(a); v++) { /* slots too */
        trm_variable variable = trm_exec_variable(a, v);
        trm_exec_read(a, v, x);
        trm_exec_read(b, v, y);
        for (int64_t i = 0; i < trm_shape_count(&variable.shape); i++) {
            assert_true(fabs((double)x[i] - (double)y[i]) < tolerance);
        }
    }
    trm_exec_destroy(a);
    trm_exec_destroy(b);
}

static void training_is_the_same(void **state) {
    (void)state;
    static const char *const backends[] = {"ref", "onednn"};
    for (int i = 0; i < 2; i++) {
        for (int mixed = 0; mixed < 2; mixed++) {
            const trm_exec_options options = {.backend = backends[i],
                                              .precision =
                                                  mixed ? TRM_PRECISION_MIXED : TRM_PRECISION_FP32};
            trm_exec_options plain = options;
            plain.fusion = TRM_OFF;
            trm_exec *a = make_exec(options), *b = make_exec(plain);
            assert_int_equal(in_factors(a), 2); /* c.weight is small */
            assert_int_equal(in_factors(b), 0);
            assert_true(a->program->untouched_bytes >= (420 * 420 + 420 * 300) * 4);
            compare_execs(a, b, mixed ? 2e-3 : 1e-6);
        }
    }
}

/* The ranges of trm_exec_ranges hold all gradients, and the optimiser takes the values that a
 * caller writes there.
 */
static void ranges_show_all_gradients(void **state) {
    (void)state;
    trm_error err;
    float *parameters, *gradients;
    int64_t count;
    trm_exec *a = make_exec((trm_exec_options){.backend = "ref"}),
             *b = make_exec((trm_exec_options){.backend = "ref"});
    trm_exec_ranges(b, &parameters, &gradients, &count);
    compare_execs(a, b, 1e-6);
    trm_exec *c = make_exec((trm_exec_options){.backend = "ref"});
    feed_step(c, 0);
    CHECK_OK(trm_exec_forward_backward(c, &err), err);
    trm_exec_ranges(c, &parameters, &gradients, &count); /* only now */
    double sum = 0;
    for (int64_t i = 0; i < count; i++) {
        sum += fabs((double)gradients[i]);
    }
    assert_true(sum > 0);
    static float before[420 * 420], after[420 * 420];
    int32_t b_weight = trm_exec_find(c, "b.weight");
    trm_exec_read(c, b_weight, before);
    memset(gradients, 0, (size_t)count * sizeof *gradients);
    CHECK_OK(trm_exec_update(c, 0.5, &err), err);
    trm_exec_read(c, b_weight, after);
    for (int i = 0; i < 420 * 420; i++) { /* decay only */
        assert_true(fabs((double)after[i] - (double)before[i] * (1 - 0.5e-3)) < 1e-7);
    }
    trm_exec_destroy(c);
}

/* The second call between backward and update leaves what the caller has written since the first:
 * two callbacks may each ask for the ranges. */
static void ranges_keep_what_the_caller_wrote(void **state) {
    (void)state;
    trm_error err;
    static float before[420 * 420], after[420 * 420];
    float *parameters, *gradients;
    int64_t count;
    trm_exec *exec = make_exec((trm_exec_options){.backend = "ref"});
    int32_t weight = trm_exec_find(exec, "b.weight");
    for (int step = 0; step < 2; step++) { /* the ranges are handed out in the first */
        feed_step(exec, step);
        CHECK_OK(trm_exec_forward_backward(exec, &err), err);
        trm_exec_ranges(exec, &parameters, &gradients, &count);
        memset(gradients, 0, (size_t)count * sizeof *gradients);
        trm_exec_ranges(exec, &parameters, &gradients, &count);
        for (int64_t i = 0; i < count; i++) {
            assert_true(gradients[i] == 0);
        }
        trm_exec_read(exec, weight, before);
        CHECK_OK(trm_exec_update(exec, 0.5, &err), err);
        trm_exec_read(exec, weight, after);
        for (int i = 0; i < 420 * 420 && step == 0; i++) { /* decay only: no momentum yet */
            assert_true(fabs((double)after[i] - (double)before[i] * (1 - 0.5e-3)) < 1e-7);
        }
    }
    trm_exec_destroy(exec);
}

/* ---- leaves that the update reads ------------------------------------------------------------ */

enum { LEAF_BATCH = 5, LEAF_WIDTH = 300, LEAF_ROWS = 40 };

/* The input is a factor of a layer's gradient, its reshape the ids of two tables, and a parameter
 * that is trained is a factor, too. */
static trm_exec *make_exec_of_leaves(const char *backend) {
    trm_error err;
    trm_graph *g;
    trm_exec *exec;
    CHECK_OK(trm_graph_create(&(trm_graph_options){.training = true}, &g, &err), err);
    trm_node x = trm_input(g, "x", TRM_FLOAT32, trm_shape_of(LEAF_BATCH, LEAF_WIDTH));
    trm_node ids = trm_input(g, "ids", TRM_INT64, trm_shape_of(LEAF_BATCH, 1));
    trm_node flat = trm_reshape(g, ids, trm_shape_of(LEAF_BATCH));
    trm_node queries =
        trm_parameter(g, "queries", trm_shape_of(LEAF_BATCH, LEAF_WIDTH), TRM_INIT_NORMAL_002);
    trm_node h = TRM_NO_NODE;
    static const char *const names[] = {"x.weight", "queries.weight"};
    for (int i = 0; i < 2; i++) {
        trm_node weight =
            trm_parameter(g, names[i], trm_shape_of(LEAF_WIDTH, LEAF_WIDTH), TRM_INIT_LINEAR);
        trm_node y = trm_linear(g, i ? queries : x, weight, TRM_NO_NODE);
        h = i ? trm_add(g, h, y) : y;
    }
    for (int i = 0; i < 2; i++) {
        trm_node table = trm_parameter(g, i ? "table.b" : "table.a",
                                       trm_shape_of(LEAF_ROWS, LEAF_WIDTH), TRM_INIT_NORMAL_002);
        trm_node rows = trm_embedding(g, table, i ? flat : ids);
        h = trm_add(g, h, trm_reshape(g, rows, trm_shape_of(LEAF_BATCH, LEAF_WIDTH)));
    }
    trm_node label = trm_input(g, "label", TRM_INT32, trm_shape_of(LEAF_BATCH));
    const trm_exec_options options = {.loss = trm_softmax_cross_entropy(g, h, label, NULL),
                                      .backend = backend,
                                      .seed = 3,
                                      .tuning_file = "",
                                      .optimizer = {.kind = TRM_SGD}};
    CHECK_OK(trm_exec_create(g, &options, &exec, &err), err);
    trm_graph_destroy(g);
    return exec;
}

static void feed_leaves(trm_exec *exec, int step) {
    trm_error err;
    trm_tensor ids;
    feed_step(exec, step);
    CHECK_OK(trm_exec_input(exec, "ids", &ids, &err), err);
    for (int i = 0; i < LEAF_BATCH; i++) { /* beyond the table after the last step */
        ((int64_t *)ids.data)[i] = step < STEPS ? (7 * step + 3 * i) % LEAF_ROWS : 1 << 30;
    }
}

/* The next batch may be fed between backward and update, and gradients be read then. */
static void update_is_of_the_batch_of_backward(void **state) {
    (void)state;
    static const char *const backends[] = {"ref", "onednn"};
    static float x[LEAF_WIDTH * LEAF_WIDTH], y[LEAF_WIDTH * LEAF_WIDTH];
    for (int i = 0; i < 2; i++) {
        trm_error err;
        trm_exec *late = make_exec_of_leaves(backends[i]),
                 *early = make_exec_of_leaves(backends[i]);
        assert_int_equal(in_factors(late), 2);
        feed_leaves(early, 0);
        for (int step = 0; step < STEPS; step++) {
            feed_leaves(late, step);
            CHECK_OK(trm_exec_forward_backward(late, &err), err);
            CHECK_OK(trm_exec_forward_backward(early, &err), err);
            feed_leaves(early, step + 1);
            for (int32_t v = 0; v < trm_exec_variable_count(late); v++) {
                CHECK_OK(trm_exec_gradient(late, v, x, &err), err);
                CHECK_OK(trm_exec_gradient(early, v, y, &err), err);
                trm_variable variable = trm_exec_variable(late, v);
                assert_memory_equal(x, y, trm_shape_count(&variable.shape) * sizeof *x);
            }
            CHECK_OK(trm_exec_update(late, 0.5, &err), err);
            CHECK_OK(trm_exec_update(early, 0.5, &err), err);
        }
        for (int32_t v = 0; v < trm_exec_variable_count(late); v++) {
            trm_exec_read(late, v, x);
            trm_exec_read(early, v, y);
            trm_variable variable = trm_exec_variable(late, v);
            assert_memory_equal(x, y, trm_shape_count(&variable.shape) * sizeof *x);
        }
        trm_exec_destroy(late);
        trm_exec_destroy(early);
    }
}

/* The update of a parameter that is a factor of another one's gradient comes before the product of
 * that gradient: the product has the values of backward. */
static void update_takes_factors_of_backward(void **state) {
    (void)state;
    trm_error err;
    static float gradient[LEAF_WIDTH * LEAF_WIDTH], before[LEAF_WIDTH * LEAF_WIDTH],
        after[LEAF_WIDTH * LEAF_WIDTH];
    trm_exec *exec = make_exec_of_leaves("ref");
    int32_t weight = trm_exec_find(exec, "queries.weight");
    feed_leaves(exec, 0);
    CHECK_OK(trm_exec_forward_backward(exec, &err), err);
    CHECK_OK(trm_exec_gradient(exec, weight, gradient, &err), err);
    trm_exec_read(exec, weight, before);
    CHECK_OK(trm_exec_update(exec, 0.5, &err), err);
    trm_exec_read(exec, weight, after);
    for (int i = 0; i < LEAF_WIDTH * LEAF_WIDTH; i++) {
        assert_true(fabs((double)before[i] - 0.5 * (double)gradient[i] - (double)after[i]) < 1e-6);
    }
    trm_exec_destroy(exec);
}

/* Writes NaN to the gradient of a parameter: to its rows, a factor, or the gradient itself. Returns
 * the name of the first parameter with the same values there: both tables have the same rows. */
static const char *poison_gradient(const trm_exec *exec, int32_t which) {
    const trm_program *p = exec->program;
    float *at[8];
    assert_true(p->trained_count <= 8);
    for (int32_t i = 0; i <= which; i++) {
        const trmi_param *param = &p->params[i];
        const trmi_buffer *b = &p->buffers[param->sparse_rows != 0    ? param->sparse_rows
                                           : param->factor_right != 0 ? param->factor_right
                                                                      : param->grad_buffer];
        at[i] = (float *)(void *)(exec->env.arena[b->arena] + b->offset);
    }
    int32_t first = 0;
    while (at[first] != at[which]) {
        first++;
    }
    *at[which] = NAN;
    return p->params[first].name;
}

/* Where the next batch is here at the update, a search for NaN names the parameter whose gradient
 * is not finite, in whichever form it is, and neither repeats the step nor blames the next
 * batch. */
static void nan_is_of_the_batch_of_backward(void **state) {
    (void)state;
    trm_error err;
    trm_tensor x;
    int32_t count = 1;
    for (int32_t i = 0; i < count; i++) {
        char expected[100];
        trm_exec *exec = make_exec_of_leaves("ref");
        count = exec->program->trained_count;
        feed_leaves(exec, 0);
        CHECK_OK(trm_exec_forward_backward(exec, &err), err);
        snprintf(expected, sizeof expected, "in the gradient of '%s'", poison_gradient(exec, i));
        feed_leaves(exec, 1);
        CHECK_OK(trm_exec_input(exec, "x", &x, &err), err);
        ((float *)x.data)[3] = NAN;
        CHECK_FAILS(trm_exec_update(exec, 0.5, &err), TRM_DIVERGED, err, expected);
        /* the next backward is of the inputs that are here */
        CHECK_OK(trm_exec_forward_backward(exec, &err), err);
        CHECK_FAILS(trm_exec_update(exec, 0.5, &err), TRM_DIVERGED, err, "input 'x'");
        trm_exec_destroy(exec);
    }
    assert_int_equal(count, 5); /* in factors, of lookups, dense */
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nan_is_of_the_batch_of_backward),
        cmocka_unit_test(update_is_of_the_batch_of_backward),
        cmocka_unit_test(update_takes_factors_of_backward),
        cmocka_unit_test(every_optimiser_takes_factors),
        cmocka_unit_test(what_is_not_finite_changes_nothing),
        cmocka_unit_test(training_is_the_same),
        cmocka_unit_test(ranges_show_all_gradients),
        cmocka_unit_test(ranges_keep_what_the_caller_wrote),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
