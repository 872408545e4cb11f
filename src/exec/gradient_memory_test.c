/* SPDX-License-Identifier: Apache-2.0 */
/* Tests of the memory of gradients, in which activations lie until the gradients are made: forward
 * alone overwrites gradients, callers see zeros between them, and training computes the same bits
 * as with memory that nothing shares. */
#include "check.h"

#include "exec/exec.h"

#include "base/rng.h"

#include <math.h>

enum { BATCH = 6, WORDS = 50, WIDTH = 20, HIDDEN = 330, CLASSES = 9, SIZE = 6, STEPS = 4 };

/* A convolution whose channels fill no block, a table of words, layers whose gradients are not
 * whole cache lines, and one whose gradient stays in factors. */
static trm_node build_network(trm_graph *g) {
    trm_node x = trm_input(g, "image", TRM_FLOAT32, trm_shape_of(BATCH, 3, SIZE, SIZE));
    trm_node word = trm_input(g, "word", TRM_INT32, trm_shape_of(BATCH));
    trm_node label = trm_input(g, "label", TRM_INT32, trm_shape_of(BATCH));
    for (int i = 0; i < 3; i++) {
        trm_graph_push_scope(g, "layer%d", i);
        trm_node w = trm_parameter(g, "conv.weight", trm_shape_of(WIDTH, i ? WIDTH : 3, 3, 3),
                                   TRM_INIT_HE_NORMAL_FAN_OUT);
        x = trm_conv2d(g, x, w, TRM_NO_NODE, &(trm_conv_options){.pad = {1, 1, 1, 1}});
        x = trm_relu(g, x);
        trm_graph_pop_scope(g);
    }
    x = trm_global_avg_pool(g, x);
    trm_node table = trm_parameter(g, "table", trm_shape_of(WORDS, WIDTH), TRM_INIT_LINEAR);
    x = trm_add(g, x, trm_embedding(g, table, word));
    static const int widths[] = {HIDDEN, HIDDEN, 37, 53, CLASSES};
    for (int i = 0, from = WIDTH; i < 5; from = widths[i++]) {
        trm_graph_push_scope(g, "linear%d", i);
        x = trm_linear(g, x,
                       trm_parameter(g, "weight", trm_shape_of(widths[i], from), TRM_INIT_LINEAR),
                       trm_parameter(g, "bias", trm_shape_of(widths[i]), TRM_INIT_LINEAR));
        x = i < 4 ? trm_relu(g, x) : x;
        trm_graph_pop_scope(g);
    }
    return trm_softmax_cross_entropy(g, x, label, NULL);
}

static trm_exec *make_exec(trm_exec_options options) {
    trm_error err;
    trm_graph *g;
    trm_exec *exec;
    CHECK_OK(trm_graph_create(&(trm_graph_options){.training = true}, &g, &err), err);
    options.loss = build_network(g);
    options.backend = options.backend != NULL ? options.backend : "ref";
    options.seed = 5;
    options.tuning_file = "";
    CHECK_OK(trm_exec_create(g, &options, &exec, &err), err);
    trm_graph_destroy(g);
    return exec;
}

static void feed_batch(trm_exec *exec, int batch) {
    trm_error err;
    trm_tensor image, word, label;
    CHECK_OK(trm_exec_input(exec, "image", &image, &err), err);
    CHECK_OK(trm_exec_input(exec, "word", &word, &err), err);
    CHECK_OK(trm_exec_input(exec, "label", &label, &err), err);
    for (int64_t i = 0; i < trm_shape_count(&image.shape); i++) {
        uint32_t random = trmi_random_u32((uint64_t)(30 + batch), TRMI_STREAM_TEST, (uint64_t)i);
        ((float *)image.data)[i] = trmi_unit_float(random) - 0.5f;
    }
    for (int i = 0; i < BATCH; i++) {
        ((int32_t *)word.data)[i] = (7 * i + batch) % 11;
        ((int32_t *)label.data)[i] = (i + batch) % CLASSES;
    }
}

static void run_step(trm_exec *exec, int batch) {
    trm_error err;
    feed_batch(exec, batch);
    CHECK_OK(trm_exec_forward_backward(exec, &err), err);
}

static int32_t find_weight(const trm_exec *exec) {
    int32_t index = trm_exec_find(exec, "linear0.weight");
    assert_true(index >= 0);
    return index;
}

static void forward_overwrites_gradients(void **state) {
    (void)state;
    trm_error err;
    static float gradient[HIDDEN * HIDDEN];
    trm_exec *exec = make_exec((trm_exec_options){0});
    run_step(exec, 0);
    CHECK_OK(trm_exec_gradient(exec, find_weight(exec), gradient, &err), err);
    feed_batch(exec, 1);
    CHECK_OK(trm_exec_forward(exec, &err), err);
    CHECK_FAILS(trm_exec_gradient(exec, find_weight(exec), gradient, &err), TRM_INVALID, err,
                "trm_exec_forward has overwritten them");
    CHECK_FAILS(trm_exec_update(exec, 0.1, &err), TRM_INVALID, err,
                "trm_exec_forward has overwritten them");
    assert_int_equal(trm_exec_step(exec), 0);
    run_step(exec, 0);
    CHECK_OK(trm_exec_update(exec, 0.1, &err), err);
    assert_int_equal(trm_exec_step(exec), 1);
    /* a profile runs backward itself */
    const trm_profile_options options = {.update = true};
    trm_program_profile profile;
    CHECK_OK(trm_exec_forward(exec, &err), err);
    CHECK_OK(trm_exec_profile(exec, &options, &profile, &err), err);
    assert_true(profile.count > 0);
    /* a profile that is stopped gives nothing, and the next one is whole */
    int32_t stop = 1;
    const trm_profile_options stopped = {.repeats = 1000, .stop = &stop};
    CHECK_FAILS(trm_exec_profile(exec, &stopped, &profile, &err), TRM_CANCELLED, err,
                "stopped on request");
    stop = 0;
    const trm_profile_options again = {.stop = &stop};
    CHECK_OK(trm_exec_profile(exec, &again, &profile, &err), err);
    trm_exec_destroy(exec);
}

/* Accumulated gradients lie in memory of their own: forward between two batches and before the
 * update changes nothing. */
static void accumulated_gradients_stay(void **state) {
    (void)state;
    trm_error err;
    static float x[HIDDEN * HIDDEN], y[HIDDEN * HIDDEN];
    trm_exec *a = make_exec((trm_exec_options){.accumulate = 2, .whole_gradients = true}),
             *b = make_exec((trm_exec_options){.accumulate = 2});
    for (int batch = 0; batch < 2; batch++) {
        run_step(a, batch);
        run_step(b, batch);
        feed_batch(b, 9);
        CHECK_OK(trm_exec_forward(b, &err), err);
    }
    CHECK_OK(trm_exec_gradient(a, find_weight(a), x, &err), err);
    CHECK_OK(trm_exec_gradient(b, find_weight(b), y, &err), err);
    assert_memory_equal(x, y, HIDDEN * WIDTH * sizeof *x);
    CHECK_OK(trm_exec_update(b, 0.1, &err), err);
    trm_exec_destroy(a);
    trm_exec_destroy(b);
}

/* Words between gradients are 0 after each backward and in the first range that is handed out, so
 * that norms and searches for NaN may go over the whole range. */
static void ranges_have_zeros_between_gradients(void **state) {
    (void)state;
    float *parameters, *gradients;
    int64_t count;
    for (int accumulate = 1; accumulate <= 2; accumulate++) {
        trm_exec *exec = make_exec((trm_exec_options){.accumulate = accumulate});
        const trm_program *p = exec->program;
        assert_true(p->lent_bytes > 0);
        run_step(exec, 0);
        int64_t unused = 0;
        for (int batch = 1; batch < 3; batch++) {
            trm_exec_ranges(exec, &parameters, &gradients, &count);
            for (int32_t i = 0; i < p->trained_count; i++) {
                const trmi_buffer *b = &p->buffers[p->params[i].param_buffer];
                int64_t from = (b->offset + b->bytes) / 4;
                int64_t to = i + 1 < p->trained_count
                                 ? p->buffers[p->params[i + 1].param_buffer].offset / 4
                                 : count;
                for (int64_t j = from; j < to; j++, unused++) {
                    if (gradients[j] != 0) {
                        fail_msg("batch %d, parameter %d: %g", batch, i, (double)gradients[j]);
                    }
                }
            }
            if (batch >= accumulate) {
                trm_error err;
                CHECK_OK(trm_exec_update(exec, 0.1, &err), err);
            }
            run_step(exec, batch);
        }
        assert_true(unused > 0);
        trm_exec_destroy(exec);
    }
}

/* Returns where a parameter begins in the ranges, in elements. */
static int64_t find_offset(const trm_exec *exec, const char *name) {
    const trm_program *p = exec->program;
    for (int32_t i = 0; i < p->params_count; i++) {
        const trmi_buffer *b = &p->buffers[p->params[i].param_buffer];
        if (strcmp(b->name, name) == 0) {
            return b->offset / (int64_t)sizeof(float);
        }
    }
    fail_msg("no parameter %s", name);
    return -1;
}

/* With whole_gradients a program that sums the gradients of ranks itself sums those of tables, too:
 * the range has the rows of the batch, and the update uses what the program has written there, also
 * in a row that this rank's batch did not read. */
static void ranges_have_the_gradients_of_tables(void **state) {
    (void)state;
    enum { READ = 7, UNREAD = 40 };
    trm_error err;
    float *parameters, *gradients;
    int64_t count;
    static float gradient[WORDS][WIDTH], before[WORDS][WIDTH], after[WORDS][WIDTH];
    trm_exec *exec = make_exec((trm_exec_options){.whole_gradients = true});
    const int32_t table = trm_exec_find(exec, "table");
    const int64_t at = find_offset(exec, "table");
    trm_exec_ranges(exec, &parameters, &gradients, &count);
    run_step(exec, 0);
    CHECK_OK(trm_exec_gradient(exec, table, gradient[0], &err), err);
    assert_true(gradient[READ][0] != 0 && gradient[UNREAD][0] == 0);
    assert_memory_equal(gradients + at, gradient, sizeof gradient);
    trm_exec_read(exec, table, before);
    gradients[at + UNREAD * WIDTH] = 2; /* as the sum over ranks leaves it */
    CHECK_OK(trm_exec_update(exec, 0.25, &err), err);
    trm_exec_read(exec, table, after);
    assert_true(after[UNREAD][0] == before[UNREAD][0] - 0.5f);
    assert_true(after[READ][0] != before[READ][0]);
    assert_memory_equal(after[UNREAD + 1], before[UNREAD + 1], sizeof after[0]);
    trm_exec_destroy(exec);
}

/* A program that uses the index of a name that is not there (trm_exec_find gives -1) reads and
 * writes nothing. */
static void variables_that_are_not_there(void **state) {
    (void)state;
    trm_error err;
    float value = 3;
    static float before[WORDS][WIDTH], after[WORDS][WIDTH];
    trm_exec *exec = make_exec((trm_exec_options){0});
    const int32_t indices[] = {trm_exec_find(exec, "tabel"), trm_exec_variable_count(exec),
                               INT32_MIN, INT32_MAX};
    trm_exec_read(exec, trm_exec_find(exec, "table"), before);
    for (int i = 0; i < 4; i++) {
        trm_exec_read(exec, indices[i], &value);
        assert_true(value == 3);
        trm_exec_write(exec, indices[i], &value);
        CHECK_FAILS(trm_exec_gradient(exec, indices[i], &value, &err), TRM_INVALID, err,
                    "has no gradient");
        assert_null(trm_exec_variable(exec, indices[i]).name);
    }
    trm_exec_read(exec, trm_exec_find(exec, "table"), after);
    assert_memory_equal(before, after, sizeof before);
    trm_exec_destroy(exec);
}

/* A profile runs backward and update: for a caller that has the ranges, it completes them as
 * training does. */
static void profile_completes_handed_out_gradients(void **state) {
    (void)state;
    trm_error err;
    float *parameters, *gradients;
    int64_t count;
    const trm_profile_options options = {.update = true};
    trm_program_profile profile;
    trm_exec *a = make_exec((trm_exec_options){.optimizer = {.kind = TRM_MOMENTUM}}),
             *b = make_exec((trm_exec_options){.optimizer = {.kind = TRM_MOMENTUM}});
    trm_exec_ranges(a, &parameters, &gradients, &count);
    float *expected = malloc((size_t)count * sizeof *expected);
    run_step(a, 0);
    memcpy(expected, gradients, (size_t)count * sizeof *expected);
    trm_exec_ranges(b, &parameters, &gradients, &count);
    feed_batch(b, 0);
    CHECK_OK(trm_exec_profile(b, &options, &profile, &err), err);
    assert_memory_equal(expected, gradients, (size_t)count * sizeof *expected);
    free(expected);
    trm_exec_destroy(a);
    trm_exec_destroy(b);
}

/* ---- the same network with shared memory and without ----------------------------------------- */

/* Compares one variable, or its gradient, of both executors: bit by bit, where the tolerance is
 * 0. */
static void compare_variable(const trm_exec *a, const trm_exec *b, int32_t index, bool gradient,
                             double tolerance) {
    trm_error err;
    static float x[HIDDEN * HIDDEN], y[HIDDEN * HIDDEN];
    trm_variable variable = trm_exec_variable(a, index);
    int64_t count = trm_shape_count(&variable.shape);
    if (gradient && variable.kind != TRM_VARIABLE_PARAMETER) {
        return;
    }
    if (gradient) {
        CHECK_OK(trm_exec_gradient(a, index, x, &err), err);
        CHECK_OK(trm_exec_gradient(b, index, y, &err), err);
    } else {
        trm_exec_read(a, index, x);
        trm_exec_read(b, index, y);
    }
    for (int64_t i = 0; i < count; i++) {
        bool equal = tolerance > 0 ? fabs((double)x[i] - (double)y[i]) <= tolerance
                                   : memcmp(&x[i], &y[i], sizeof x[i]) == 0;
        if (!equal) {
            fail_msg("%s%s[%d]: %g where memory is shared, %g where it is not",
                     gradient ? "gradient of " : "", variable.name, (int)i, (double)x[i],
                     (double)y[i]);
        }
    }
}

static int count_factors(const trm_exec *exec) {
    int count = 0;
    for (int32_t i = 0; i < exec->program->params_count; i++) {
        count += exec->program->params[i].factor_left != 0;
    }
    return count;
}

/* Trains both, and compares the loss and all gradients of each step, then all variables. */
static void compare_training(trm_exec_options options, bool factors) {
    trm_error err;
    options.threads = 2;
    trm_exec *a = make_exec(options);
    options.whole_gradients = true;
    trm_exec *b = make_exec(options);
    assert_true(a->program->lent_bytes > 0);
    assert_true(b->program->lent_bytes == 0);
    assert_int_equal(count_factors(a) > 0, factors);
    assert_int_equal(count_factors(b), 0);
    /* a product inside the update adds in another order */
    double tolerance = factors ? 1e-5 : 0;
    int batches = options.accumulate > 1 ? options.accumulate : 1;
    int32_t variables = trm_exec_variable_count(a);
    for (int step = 0; step < STEPS; step++) {
        for (int i = 0; i < batches; i++) {
            run_step(a, step * batches + i);
            run_step(b, step * batches + i);
        }
        assert_true(fabs((double)trm_exec_loss(a) - (double)trm_exec_loss(b)) <= tolerance);
        for (int32_t v = 0; v < variables; v++) {
            compare_variable(a, b, v, true, tolerance);
        }
        CHECK_OK(trm_exec_update(a, 0.1, &err), err);
        CHECK_OK(trm_exec_update(b, 0.1, &err), err);
    }
    for (int32_t v = 0; v < variables; v++) {
        compare_variable(a, b, v, false, tolerance);
    }
    trm_exec_destroy(a);
    trm_exec_destroy(b);
}

/* Sums of batches, clipping, tables, a fixed loss scale, factors: each reads gradients in a way of
 * its own. */
static void training_is_the_same(void **state) {
    (void)state;
    static const char *const backends[] = {"ref", "onednn"};
    for (int i = 0; i < 2; i++) {
        /* both programs run the kernels that the first of them has chosen */
        char choices[] = "/tmp/gradient_memory_XXXXXX";
        int file = mkstemp(choices);
        assert_true(file >= 0);
        close(file);
        const trm_exec_options options = {
            .backend = backends[i],
            .choices_file = choices,
            .optimizer = {
                .kind = TRM_MOMENTUM, .momentum = 0.9, .weight_decay = 1e-3, .clip_norm = 0.5}};
        compare_training(options, true);
        trm_exec_options changed = options;
        changed.fusion = TRM_OFF; /* no factors */
        compare_training(changed, false);
        changed.loss_scale = (trm_loss_scale_options){.on = true, .initial = 1024};
        compare_training(changed, false);
        changed = options;
        changed.accumulate = 2;
        compare_training(changed, false);
        changed.loss_scale = (trm_loss_scale_options){.on = true, .initial = 1024};
        compare_training(changed, false);
        unlink(choices);
    }
}

/* A layer, then an output layer whose logits are 80 kB a row. */
enum { INNER = 5, WIDE = 20000 };
static trm_exec *make_output_layer(const char *backend, int64_t rows) {
    trm_error err;
    trm_graph *g;
    trm_exec *exec;
    CHECK_OK(trm_graph_create(&(trm_graph_options){.training = true}, &g, &err), err);
    trm_node x = trm_input(g, "x", TRM_FLOAT32, trm_shape_of(rows, INNER)),
             label = trm_input(g, "label", TRM_INT32, trm_shape_of(rows));
    x = trm_linear(g, x, trm_parameter(g, "w", trm_shape_of(INNER, INNER), TRM_INIT_LINEAR),
                   TRM_NO_NODE);
    x = trm_tanh(g, x);
    trm_exec_options options = {.backend = backend,
                                .seed = 5,
                                .threads = 2,
                                .tuning_file = "",
                                .optimizer = {.kind = TRM_SGD}};
    options.loss = trm_linear_cross_entropy(
        g, x, trm_parameter(g, "out", trm_shape_of(WIDE, INNER), TRM_INIT_LINEAR), label, NULL);
    CHECK_OK(trm_exec_create(g, &options, &exec, &err), err);
    trm_graph_destroy(g);
    trm_tensor in;
    CHECK_OK(trm_exec_input(exec, "x", &in, &err), err);
    for (int64_t i = 0; i < rows * INNER; i++) {
        ((float *)in.data)[i] =
            trmi_unit_float(trmi_random_u32(77, TRMI_STREAM_TEST, (uint64_t)i)) - 0.5f;
    }
    CHECK_OK(trm_exec_input(exec, "label", &in, &err), err);
    for (int64_t i = 0; i < rows; i++) {
        ((int32_t *)in.data)[i] = (int32_t)(i * 31 % WIDE);
    }
    CHECK_OK(trm_exec_forward_backward(exec, &err), err);
    return exec;
}

/* Returns the step with scratch of its own; NULL: none. */
static const trmi_step *find_scratch(const trm_program *p) {
    const trmi_step *found = NULL;
    for (int32_t s = 0; s < p->steps_count; s++) {
        found = p->steps[s].scratch != 0 ? &p->steps[s] : found;
    }
    return found;
}

/* Scratch shares bytes with values that do not live at its step, and is not in SCRATCH. */
static void check_scratch(int64_t rows) {
    trm_exec *fast = make_output_layer("onednn", rows), *slow = make_output_layer("ref", rows);
    const trm_program *p = fast->program;
    const trmi_step *step = find_scratch(p);
    assert_non_null(step);
    assert_null(find_scratch(slow->program));
    assert_int_equal(step->op_kind, TRMI_OP_LINEAR_XENT);
    assert_true(step->scratch_bytes >= 4 * rows * WIDE &&
                p->arena_bytes[TRMI_ARENA_SCRATCH] <= step->scratch_bytes / 4);
    const trmi_buffer *own = &p->buffers[step->scratch];
    assert_int_equal(own->bytes, step->scratch_bytes);
    for (int32_t i = 1; i < p->buffers_count; i++) {
        const trmi_buffer *b = &p->buffers[i];
        bool lives = b->first_step <= own->first_step && b->last_step >= own->first_step;
        bool apart = b->offset + b->bytes <= own->offset || own->offset + own->bytes <= b->offset;
        assert_true(b == own || b->arena != own->arena || !lives || apart);
    }
    assert_true(fabs((double)trm_exec_loss(fast) - (double)trm_exec_loss(slow)) <= 1e-5);
    for (int32_t v = 0; v < trm_exec_variable_count(fast); v++) {
        compare_variable(fast, slow, v, true, 1e-6);
    }
    trm_exec_destroy(fast);
    trm_exec_destroy(slow);
}

/* More than 32 MB, and less of which no other step needs a quarter. */
static void large_scratch_lies_among_activations(void **state) {
    (void)state;
    check_scratch(440);
    check_scratch(60);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(forward_overwrites_gradients),
        cmocka_unit_test(accumulated_gradients_stay),
        cmocka_unit_test(ranges_have_zeros_between_gradients),
        cmocka_unit_test(ranges_have_the_gradients_of_tables),
        cmocka_unit_test(variables_that_are_not_there),
        cmocka_unit_test(profile_completes_handed_out_gradients),
        cmocka_unit_test(training_is_the_same),
        cmocka_unit_test(large_scratch_lies_among_activations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
