/* SPDX-License-Identifier: Apache-2.0 */
/* The training loop on a small network over the generated shapes, with the reference back-end:
 * epochs, sink mode, callbacks, checkpoints, resuming, refusals.
 * A `job` is a model with the data that it trains on and is evaluated with. Two ways to the same
 * training (in one or in two calls, in sink mode, after a resume) must give the same bits in all
 * variables (compare_variables). Failures of the disk come from tests/fault_os.h. */
#include "fault_os.h"
#include "folder.h"

#include "trireme/train.h"

#include "base/error.h"
#include "train/callbacks/callback.h"
#include "train/job/job.h"
#include "base/os.h"

#include <math.h>
#include <unistd.h>

/* ---- a small problem ------------------------------------------------------------------------- */

static trm_node add_dense(trm_graph *g, const char *name, trm_node x, int64_t in, int64_t out) {
    trm_graph_push_scope(g, "%s", name);
    trm_node w = trm_parameter(g, "weight", trm_shape_of(out, in), TRM_INIT_LINEAR);
    trm_node b = trm_parameter(g, "bias", trm_shape_of(out), TRM_INIT_ZERO);
    trm_node y = trm_linear(g, x, w, b);
    trm_graph_pop_scope(g);
    return y;
}

/* 3 x 32 x 32 -> pool 8 -> 48 -> 24 -> 10, with dropout when `context` is not NULL. */
static trm_node build_network(trm_graph *g, const trm_inputs *inputs, void *context) {
    trm_node x = trm_inputs_get(inputs, "image");
    x = trm_avg_pool(g, x, &(trm_pool_options){.kernel = {8, 8}});
    x = trm_reshape(g, x, trm_shape_of(-1, 48));
    x = trm_relu(g, add_dense(g, "fc1", x, 48, 24));
    if (context != NULL) {
        x = trm_dropout(g, x, 0.25);
    }
    return add_dense(g, "fc2", x, 24, 10);
}

static trm_dataset *open_shapes(trm_usage usage, int64_t batch, uint64_t seed) {
    static const double mean[3] = {0.5, 0.5, 0.5}, std[3] = {0.25, 0.25, 0.25};
    const trm_shapes_options options = {.train_count = 260, .test_count = 70, .seed = 3};
    trm_error err;
    trm_dataset *data;
    CHECK_OK(trm_dataset_shapes(&options, usage, &data, &err), err);
    CHECK_OK(trm_dataset_seed(data, seed, &err), err);
    if (usage == TRM_USAGE_TRAIN) {
        CHECK_OK(trm_dataset_shuffle(data, 0, &err), err);
    }
    CHECK_OK(trm_dataset_map(data,
                             (trm_transform[]){trm_transform_rescale(1 / 255.0, 0),
                                               trm_transform_normalize(mean, std),
                                               trm_transform_hwc2chw()},
                             3, &err),
             err);
    CHECK_OK(trm_dataset_batch(data, batch, usage == TRM_USAGE_TRAIN, &err), err);
    return data;
}

enum { BATCH = 16, EPOCH_STEPS = 16, SEED = 11 }; /* 260 / 16: four samples left out */

/* A model with the data that it trains on and is evaluated with. */
typedef struct job {
    trm_dataset *train, *test;
    trm_model *model;
    trm_model_options options; /* that the model was made with */
} job;

static job begin_with(trm_model_options options, int64_t batch) {
    trm_error err;
    job j = {.train = open_shapes(TRM_USAGE_TRAIN, batch, SEED),
             .test = open_shapes(TRM_USAGE_TEST, 32, SEED)};
    options.network = build_network;
    options.data = j.train;
    options.exec.backend = "ref";
    options.exec.seed = options.exec.seed == 0 ? SEED : options.exec.seed;
    if (options.learning_rate.base == 0) {
        options.learning_rate = (trm_learning_rate){.decay = TRM_DECAY_COSINE, .base = 0.03};
        options.exec.optimizer = (trm_optimizer_options){.kind = TRM_MOMENTUM, .momentum = 0.9};
    }
    j.options = options;
    CHECK_OK(trm_model_create(&options, &j.model, &err), err);
    return j;
}
static job begin_job(void) { return begin_with((trm_model_options){0}, BATCH); }

static void end_job(job *j) {
    trm_model_destroy(j->model);
    trm_dataset_destroy(j->train);
    trm_dataset_destroy(j->test);
}

/* All variables of both, bit for bit. */
static void compare_variables(const job *a, const job *b) {
    trm_exec *x = trm_model_exec(a->model), *y = trm_model_exec(b->model);
    assert_int_equal(trm_exec_step(x), trm_exec_step(y));
    for (int32_t i = 0; i < trm_exec_variable_count(x); i++) {
        trm_variable v = trm_exec_variable(x, i);
        trm_tensor t = {.dtype = v.dtype, .shape = v.shape};
        size_t bytes = (size_t)trm_tensor_bytes(&t);
        void *p = malloc(bytes), *q = malloc(bytes);
        trm_exec_read(x, i, p);
        trm_exec_read(y, i, q);
        if (memcmp(p, q, bytes) != 0) {
            fail_msg("%s differs", v.name);
        }
        free(p);
        free(q);
    }
}

/* ---- learning -------------------------------------------------------------------------------- */

static void it_learns_and_evaluates(void **state) {
    trm_error err;
    job j = begin_job();
    trm_evaluation before, after, other;
    trm_dataset *learned =
        open_shapes(TRM_USAGE_TRAIN, 20, SEED); /* so few can be learnt by heart */
    CHECK_OK(trm_model_evaluate(j.model, learned, &before, &err), err);
    CHECK_OK(
        trm_model_train(j.model, &(trm_train_options){.data = j.train, .until_epoch = 40}, &err),
        err);
    CHECK_OK(trm_model_evaluate(j.model, learned, &after, &err), err);
    CHECK_OK(trm_model_evaluate(j.model, j.test, &other, &err), err);
    assert_int_equal(trm_model_global_step(j.model), 40 * EPOCH_STEPS);
    assert_int_equal(after.samples, 260);
    assert_int_equal(other.samples, 70);
    assert_true(after.has_top && !after.has_auc);
    print_message("loss %g -> %g, top-1 %g -> %g\n", before.loss, after.loss, before.top1,
                  after.top1);
    assert_true(after.top1 > 0.6 && after.top5 > after.top1);
    assert_true(after.loss < 0.6 * before.loss);
    trm_dataset_destroy(learned);
    end_job(&j);
}

/* Predictions do not depend on the labels, and need none. */
enum { IMAGES = 8, PIXELS = 3 * 32 * 32 };
static trm_status keep_logits(void *context, const trm_tensor *logits, int64_t samples,
                              const trm_batch *batch, trm_error *err) {
    assert_int_equal(samples, IMAGES);
    memcpy(context, logits->data, (size_t)trm_tensor_bytes(logits));
    return TRM_OK;
}
static void predictions_need_no_labels(void **state) {
    static float images[IMAGES * PIXELS];
    const int32_t labels[IMAGES] = {0, 9, 1, 8, 2, 7, 3, 6};
    const trm_batch_field fields[] = {
        {"image", {images, TRM_FLOAT32, trm_shape_of(IMAGES, 3, 32, 32)}},
        {"label", {(void *)(uintptr_t)labels, TRM_INT32, trm_shape_of(IMAGES)}}};
    trm_error err;
    for (int i = 0; i < IMAGES * PIXELS; i++) {
        images[i] = (float)(i % 97) / 97 - 0.5f;
    }
    for (int first = 0; first < 2; first++) { /* the fields of which the program is made */
        job j = begin_job();
        float logits[2][IMAGES * 10];
        trm_evaluation figures;
        for (int i = 0; i < 2; i++) {
            int count = first == 0 ? 1 + i : 2 - i;
            trm_dataset *data;
            CHECK_OK(trm_dataset_arrays(fields, count, 0, &data, &err), err);
            CHECK_OK(trm_dataset_batch(data, IMAGES, true, &err), err);
            CHECK_OK(trm_model_predict(j.model, data, keep_logits, logits[i], NULL, &err), err);
            if (count == 1) { /* figures do need them */
                CHECK_FAILS(
                    trm_model_predict(j.model, data, keep_logits, logits[i], &figures, &err),
                    TRM_INVALID, err, "no field 'label'");
                CHECK_FAILS(trm_model_evaluate(j.model, data, &figures, &err), TRM_INVALID, err,
                            "no field 'label'");
            } else {
                CHECK_OK(trm_model_evaluate(j.model, data, &figures, &err), err);
                assert_true(figures.has_top && figures.loss > 0);
            }
            trm_dataset_destroy(data);
        }
        assert_memory_equal(logits[0], logits[1], sizeof logits[0]);
        end_job(&j);
    }
}

/* 70 samples in batches of 32, 7 and 1: the padding of the last batch must not count. */
static void padding_does_not_count(void **state) {
    trm_error err;
    job j = begin_job();
    trm_evaluation padded, exact;
    trm_dataset *sevens = open_shapes(TRM_USAGE_TEST, 7, SEED);
    CHECK_OK(trm_model_evaluate(j.model, j.test, &padded, &err), err);
    CHECK_OK(trm_model_evaluate(j.model, sevens, &exact, &err), err);
    CHECK_CLOSE(padded.loss, exact.loss, 1e-6);
    assert_true(padded.top1 == exact.top1 && padded.top5 == exact.top5);
    trm_dataset_destroy(sevens);
    end_job(&j);
}

static void accumulation_is_a_larger_batch(void **state) {
    trm_error err;
    job whole = begin_with((trm_model_options){0}, 32);
    job parts = begin_with((trm_model_options){.exec.accumulate = 4}, 8);
    assert_int_equal(trm_model_epoch_steps(parts.model, parts.train), 8);
    CHECK_OK(trm_model_train(whole.model,
                             &(trm_train_options){.data = whole.train, .until_step = 6}, &err),
             err);
    CHECK_OK(trm_model_train(parts.model,
                             &(trm_train_options){.data = parts.train, .until_step = 6}, &err),
             err);
    trm_evaluation a, b;
    CHECK_OK(trm_model_evaluate(whole.model, whole.test, &a, &err), err);
    CHECK_OK(trm_model_evaluate(parts.model, parts.test, &b, &err), err);
    CHECK_CLOSE(a.loss, b.loss, 1e-4);
    end_job(&whole);
    end_job(&parts);
}

/* ---- sink mode and callbacks ----------------------------------------------------------------- */

static void sink_mode_gives_the_same_bits(void **state) {
    trm_error err;
    job a = begin_job(), b = begin_job();
    CHECK_OK(
        trm_model_train(a.model, &(trm_train_options){.data = a.train, .until_epoch = 3}, &err),
        err);
    CHECK_OK(trm_model_train(b.model,
                             &(trm_train_options){.data = b.train, .until_epoch = 3, .sink = true},
                             &err),
             err);
    compare_variables(&a, &b);
    end_job(&a);
    end_job(&b);
}

static char lines[64][128];
static int lines_count;
static int keep_line(const char *line) {
    snprintf(lines[lines_count++ % 64], sizeof lines[0], "%s", line);
    return 0;
}

static void monitors_print_the_guides_lines(void **state) {
    trm_error err;
    job j = begin_job();
    lines_count = 0;
    CHECK_OK(trm_model_train(j.model,
                             &(trm_train_options){.data = j.train,
                                                  .until_epoch = 2,
                                                  .sink = true,
                                                  .callbacks = {trm_loss_monitor(1, keep_line),
                                                                trm_time_monitor(keep_line)}},
                             &err),
             err);
    assert_int_equal(lines_count, 4);
    long epoch, step;
    float loss;
    double total, each;
    assert_int_equal(sscanf(lines[0], "epoch: %ld step: %ld, loss is %f", &epoch, &step, &loss), 3);
    assert_true(epoch == 1 && step == EPOCH_STEPS && loss > 0);
    assert_int_equal(sscanf(lines[1], "epoch time: %lf ms, per step time: %lf ms", &total, &each),
                     2);
    CHECK_CLOSE(total / each, EPOCH_STEPS, 0.02);
    assert_int_equal(sscanf(lines[2], "epoch: %ld", &epoch), 1);
    assert_int_equal(epoch, 2);
    end_job(&j);
}

/* An epoch of 16 steps that ends after 5: the run's last step is printed. */
static void the_loss_of_the_last_step_is_printed(void **state) {
    for (int sink = 0; sink < 2; sink++) {
        trm_error err;
        job j = begin_job();
        lines_count = 0;
        const trm_train_options options = {.data = j.train,
                                           .until_step = EPOCH_STEPS + 5,
                                           .sink = sink == 1,
                                           .callbacks = {trm_loss_monitor(0, keep_line)}};
        CHECK_OK(trm_model_train(j.model, &options, &err), err);
        assert_int_equal(lines_count, 2);
        assert_non_null(strstr(lines[0], "epoch: 1 step: 16,"));
        assert_non_null(strstr(lines[1], "epoch: 2 step: 5,"));
        end_job(&j);
    }
}

static trm_node scoped_network(trm_graph *g, const trm_inputs *inputs, void *context) {
    trm_graph_push_scope(g, "body.%d", 1);
    trm_node x = trm_inputs_get(inputs, "image");
    x = trm_avg_pool(g, x, &(trm_pool_options){.kernel = {8, 8}});
    x = add_dense(g, "fc", trm_reshape(g, x, trm_shape_of(-1, 48)), 48, 10);
    trm_graph_pop_scope(g);
    return x;
}

/* An input keeps its field's name in every open scope. */
static void inputs_are_asked_for_inside_a_scope(void **state) {
    trm_error err;
    trm_model *model;
    job j = begin_job();
    trm_model_options options = j.options;
    options.network = scoped_network;
    CHECK_OK(trm_model_create(&options, &model, &err), err);
    CHECK_OK(trm_model_train(model, &(trm_train_options){.data = j.train, .until_step = 2}, &err),
             err);
    assert_true(trm_exec_find(trm_model_exec(model), "body.1.fc.weight") >= 0);
    trm_model_destroy(model);
    end_job(&j);
}

typedef struct witness {
    int begins, epochs, gradients, steps, epoch_ends, evaluated, ends, destroyed;
    int stop_at;  /* TRM_END at this step, 0 = never */
    bool request; /* by trm_model_request_stop instead */
    int fail_at;
} witness;
#define COUNT(name, member)                                                                        \
    static trm_status name(void *context, const trm_progress *p, trm_error *err) {                 \
        ((witness *)context)->member++;                                                            \
        return TRM_OK;                                                                             \
    }
COUNT(on_begin, begins)
COUNT(on_epoch_begin, epochs)
COUNT(on_gradients, gradients)
COUNT(on_epoch_end, epoch_ends)
COUNT(on_evaluated, evaluated)
COUNT(on_end, ends)
static trm_status on_step_end(void *context, const trm_progress *p, trm_error *err) {
    witness *w = context;
    w->steps++;
    if (w->fail_at == w->steps) {
        return TRM_TIMEOUT;
    }
    if (w->stop_at == w->steps && w->request) {
        trm_model_request_stop(p->model);
    } else if (w->stop_at == w->steps) {
        return TRM_END;
    }
    return TRM_OK;
}
static void on_destroy(void *context) { ((witness *)context)->destroyed++; }
static trm_callback watch_with(witness *w) {
    return (trm_callback){
        on_begin, on_epoch_begin, on_gradients, on_step_end, on_epoch_end, on_evaluated, NULL,
        NULL,     on_end,         on_destroy,   w,           false,        NULL};
}

static void callbacks_are_called_in_turn(void **state) {
    trm_error err;
    job j = begin_job();
    witness w = {0};
    CHECK_OK(trm_model_train(
                 j.model,
                 &(trm_train_options){.data = j.train,
                                      .until_epoch = 2,
                                      .callbacks = {watch_with(&w), trm_evaluate_every(j.test, 2)}},
                 &err),
             err);
    assert_int_equal(w.begins, 1);
    assert_int_equal(w.epochs, 2);
    assert_int_equal(w.gradients, 2 * EPOCH_STEPS);
    assert_int_equal(w.steps, 2 * EPOCH_STEPS);
    assert_int_equal(w.epoch_ends, 2);
    assert_int_equal(w.evaluated, 1);
    assert_int_equal(w.ends, 1);
    assert_int_equal(w.destroyed, 1);
    end_job(&j);
}

static void callbacks_stop_and_fail(void **state) {
    trm_error err;
    job j = begin_job();
    witness stop = {.stop_at = 5}, request = {.stop_at = 2, .request = true}, fail = {.fail_at = 1};
    CHECK_OK(trm_model_train(j.model,
                             &(trm_train_options){.data = j.train,
                                                  .until_epoch = 9,
                                                  .callbacks = {watch_with(&stop)}},
                             &err),
             err);
    assert_int_equal(trm_model_global_step(j.model), 5);
    CHECK_FAILS(trm_model_train(j.model,
                                &(trm_train_options){.data = j.train,
                                                     .until_epoch = 9,
                                                     .sink = false,
                                                     .callbacks = {watch_with(&request)}},
                                &err),
                TRM_CANCELLED, err, "step 7");
    assert_int_equal(request.ends, 1);
    /* a request that ended an evaluation is not one for the next training */
    trm_evaluation out;
    trm_model_request_stop(j.model);
    CHECK_FAILS(trm_model_evaluate(j.model, j.test, &out, &err), TRM_CANCELLED, err,
                "in batch 1 of an evaluation");
    CHECK_OK(trm_model_evaluate(j.model, j.test, &out, &err), err);
    assert_int_equal(trm_model_train(j.model,
                                     &(trm_train_options){.data = j.train,
                                                          .until_epoch = 9,
                                                          .callbacks = {watch_with(&fail)}},
                                     &err),
                     TRM_TIMEOUT);
    assert_int_equal(fail.ends, 0);
    assert_int_equal(fail.destroyed, 1);
    end_job(&j);
}

/* Two calls that stop in the middle are one call. */
static void training_continues_where_it_was(void **state) {
    trm_error err;
    const trm_model_options fixed = {
        .learning_rate = {.decay = TRM_DECAY_POLYNOMIAL, .base = 0.05, .total_steps = 40}};
    job a = begin_with(fixed, BATCH), b = begin_with(fixed, BATCH);
    CHECK_OK(
        trm_model_train(a.model, &(trm_train_options){.data = a.train, .until_step = 40}, &err),
        err);
    for (int64_t until = 7; until < 47; until += 11) {
        int64_t steps = until < 40 ? until : 40;
        CHECK_OK(trm_model_train(b.model,
                                 &(trm_train_options){.data = b.train, .until_step = steps}, &err),
                 err);
    }
    compare_variables(&a, &b);
    end_job(&a);
    end_job(&b);
}

static void divergence_is_named(void **state) {
    trm_error err;
    job j = begin_with((trm_model_options){.learning_rate = {.base = 1e30}}, BATCH);
    CHECK_FAILS(
        trm_model_train(j.model, &(trm_train_options){.data = j.train, .until_epoch = 3}, &err),
        TRM_DIVERGED, err, "");
    assert_true(strstr(err.message, "fc") != NULL);
    end_job(&j);
}

static void early_stop_ends_training(void **state) {
    trm_error err;
    job j = begin_with((trm_model_options){.learning_rate = {.base = 1e-12}}, BATCH);
    CHECK_OK(
        trm_model_train(j.model,
                        &(trm_train_options){.data = j.train,
                                             .until_epoch = 50,
                                             .callbacks = {trm_early_stop(&(trm_early_stop_options){
                                                               .patience = 2, .min_delta = 1e-3}),
                                                           trm_evaluate_every(j.test, 1)}},
                        &err),
        err);
    assert_int_equal(trm_model_global_step(j.model), 3 * EPOCH_STEPS);
    double bad;
    assert_true(trm_model_get_note(j.model, "early_stop.without_improvement", &bad) && bad == 2);
    const trm_callback alone = trm_early_stop(&(trm_early_stop_options){.watch = TRM_WATCH_TOP1});
    assert_int_equal(
        trm_model_train(
            j.model, &(trm_train_options){.data = j.train, .until_epoch = 50, .callbacks = {alone}},
            &err),
        TRM_INVALID);
    assert_non_null(strstr(err.message, "no callback evaluates"));
    assert_int_equal(trm_model_global_step(j.model), 3 * EPOCH_STEPS);
    end_job(&j);
}

/* Callbacks have an error to write to, whether the caller wants it or not; and are destroyed,
 * however early training fails. */
static trm_status fail_at_once(void *context, const trm_progress *p, trm_error *err) {
    assert_non_null(err);
    return TRMI_FAIL(err, TRM_IO, "as asked");
}
static void count_destroyed(void *context) { ++*(int *)context; }
static void callbacks_are_served_without_an_error_record(void **state) {
    job j = begin_job();
    int destroyed = 0;
    trm_callback c = {.on_begin = fail_at_once, .destroy = count_destroyed, .context = &destroyed};
    assert_int_equal(
        trm_model_train(j.model,
                        &(trm_train_options){.data = j.train, .until_epoch = 1, .callbacks = {c}},
                        NULL),
        TRM_IO);
    assert_int_equal(
        trm_model_train(j.model, &(trm_train_options){.data = j.train, .callbacks = {c}}, NULL),
        TRM_INVALID);
    assert_int_equal(destroyed, 2);
    end_job(&j);
}

static trm_status add_none(void *context, const trm_tensor *logits, int64_t samples,
                           const trm_batch *batch, double *sums, trm_error *err) {
    return TRM_OK;
}
static void wrong_use_is_refused(void **state) {
    trm_error err;
    trm_model *model;
    job j = begin_job();
    trm_model_options o = j.options;
    o.network = NULL;
    CHECK_FAILS(trm_model_create(&o, &model, &err), TRM_INVALID, err, "network");
    o = j.options;
    o.learning_rate.base = 0;
    CHECK_FAILS(trm_model_create(&o, &model, &err), TRM_INVALID, err, "learning rate");
    o = j.options;
    o.learning_rate.decay = (trm_decay)42;
    CHECK_FAILS(trm_model_create(&o, &model, &err), TRM_INVALID, err, "decay 42");
    o = j.options;
    o.exec.precision = (trm_precision)7;
    CHECK_FAILS(trm_model_create(&o, &model, &err), TRM_INVALID, err, "precision 7");
    o = j.options;
    o.exec.accumulate = -1;
    CHECK_FAILS(trm_model_create(&o, &model, &err), TRM_INVALID, err, "accumulate -1 (0");
    o = j.options;
    o.exec.threads = -1;
    CHECK_FAILS(trm_model_create(&o, &model, &err), TRM_INVALID, err, "-1 threads");
    for (int i = 0; i < 2; i++) {
        o = j.options;
        o.metrics[0] = o.metrics[1] =
            (trm_metric){i == 0 ? "loss" : "own", 1, add_none, NULL, NULL};
        CHECK_FAILS(trm_model_create(&o, &model, &err), TRM_INVALID, err, "already");
    }
    o = j.options;
    o.description = "[1]"; /* or the first checkpoint would fail */
    CHECK_FAILS(trm_model_create(&o, &model, &err), TRM_INVALID, err, "a JSON object expected");
    o = j.options;
    o.loss = trm_loss_logistic; /* int labels */
    assert_int_equal(trm_model_create(&o, &model, &err), TRM_INVALID);
    CHECK_FAILS(trm_model_train(j.model, &(trm_train_options){.data = j.train}, &err), TRM_INVALID,
                err, "epochs or steps");
    const trm_callback nowhere[] = {trm_loss_monitor(1, NULL),
                                    trm_time_monitor(NULL),
                                    trm_evaluate_every(NULL, 1),
                                    trm_metrics_recorder(NULL, 1),
                                    trm_run_recorder(NULL, 1),
                                    trm_model_checkpoint(&(trm_model_checkpoint_options){0}),
                                    trm_tensorboard(&(trm_tensorboard_options){0})};
    for (size_t i = 0; i < sizeof nowhere / sizeof nowhere[0]; i++) {
        CHECK_FAILS(
            trm_model_train(
                j.model,
                &(trm_train_options){.data = j.train, .until_epoch = 1, .callbacks = {nowhere[i]}},
                &err),
            TRM_INVALID, err, "NULL for its directory");
    }
    trm_dataset *wide = open_shapes(TRM_USAGE_TRAIN, 64, SEED);
    CHECK_FAILS(
        trm_model_train(j.model, &(trm_train_options){.data = wide, .until_epoch = 1}, &err),
        TRM_INVALID, err, "compiled for");
    trm_dataset_destroy(wide);
    end_job(&j);
}

static trm_node build_greedy(trm_graph *g, const trm_inputs *inputs, void *context) {
    return trm_inputs_get(inputs, "sound");
}
static void unknown_field_is_named(void **state) {
    trm_error err;
    trm_model *model;
    job j = begin_job();
    trm_model_options o = j.options;
    o.network = build_greedy;
    CHECK_FAILS(trm_model_create(&o, &model, &err), TRM_INVALID, err, "image, label");
    end_job(&j);
}

/* ---- checkpoints ----------------------------------------------------------------------------- */

static trm_callback make_saver(int64_t every) {
    return trm_model_checkpoint(&(trm_model_checkpoint_options){
        .directory = folder, .writer.keep = 3, .every_steps = every});
}

static int64_t saved_at[8];
static int saved_count;
static trm_status note_saved(void *context, const trm_progress *p, trm_error *err) {
    saved_at[saved_count++ % 8] = (int64_t)p->global_step;
    return TRM_OK;
}

/* No epoch of 16 steps ends at a multiple of 20 before the fifth. */
static void sink_mode_saves_in_the_epoch_in_which_it_is_due(void **state) {
    trm_error err;
    job j = begin_job();
    saved_count = 0;
    CHECK_OK(trm_model_train(
                 j.model,
                 &(trm_train_options){.data = j.train,
                                      .until_epoch = 4,
                                      .sink = true,
                                      .callbacks = {make_saver(20), {.on_checkpoint = note_saved}}},
                 &err),
             err);
    assert_true(saved_count >= 3 && saved_at[0] == 2 * EPOCH_STEPS &&
                saved_at[1] == 3 * EPOCH_STEPS && saved_at[2] == 4 * EPOCH_STEPS);
    end_job(&j);
}

/* The disk is full from the third step on, for one call or for ever. */
static fault_os disk;
static trm_status fill_disk(void *kind, const trm_progress *p, trm_error *err) {
    if (p->global_step == 3) {
        disk.kind = *(fault_kind *)kind;
        disk.at = disk.calls + 1;
        disk.error = ENOSPC;
    }
    return TRM_OK;
}

static trm_status train_and_save(fault_kind kind, trm_error *err) {
    job j = begin_job();
    const trm_model_checkpoint_options options = {.directory = folder, .every_steps = 4};
    const trmi_os *os = fault_arm(&disk, FAULT_NONE, 0, "");
    const trm_train_options training = {.data = j.train,
                                        .until_step = 8,
                                        .callbacks = {{.on_step_end = fill_disk, .context = &kind},
                                                      trmi_model_checkpoint_on(os, &options),
                                                      {.on_checkpoint = note_saved}}};
    saved_count = 0;
    trm_status status = trm_model_train(j.model, &training, err);
    assert_int_equal(trm_model_global_step(j.model), 8);
    end_job(&j);
    return status;
}

static void a_save_without_room_is_tried_again(void **state) {
    trm_error err;
    CHECK_OK(train_and_save(FAULT_ONCE, &err), err);
    assert_int_equal(saved_count, 1);
    assert_int_equal(saved_at[0], 8);
}

/* No step was trained between the save that is left out and the last one. */
static void the_last_save_needs_room(void **state) {
    trm_error err;
    CHECK_FAILS(train_and_save(FAULT_FROM_THEN_ON, &err), TRM_NOSPACE, err, "while saving step 8");
    assert_int_equal(saved_count, 0);
}

/* Dropout, momentum, cosine, accumulation; stopped at every kind of place. */
static void resumed_equals_uninterrupted(void **state) {
    trm_error err;
    static int dropout;
    const trm_model_options o = {.exec.accumulate = 3, .network_context = &dropout};
    job straight = begin_with(o, 8); /* 32 batches, 10 steps an epoch, two batches left out */
    const trm_train_options all = {.data = straight.train, .until_epoch = 3};
    CHECK_OK(trm_model_train(straight.model, &all, &err), err);
    static const int stops[] = {1, 9, 10, 11, 20, 29};
    for (size_t i = 0; i < sizeof stops / sizeof stops[0]; i++) {
        job first = begin_with(o, 8), second = begin_with(o, 8);
        witness w = {.stop_at = stops[i], .request = i % 2 == 0};
        trm_status status =
            trm_model_train(first.model,
                            &(trm_train_options){.data = first.train,
                                                 .until_epoch = 3,
                                                 .callbacks = {watch_with(&w), make_saver(1000)}},
                            &err);
        assert_int_equal(status, w.request ? TRM_CANCELLED : TRM_OK);
        CHECK_OK(trm_model_resume(second.model, folder, &err), err);
        compare_variables(&first, &second);
        CHECK_OK(trm_model_train(second.model,
                                 &(trm_train_options){.data = second.train, .until_epoch = 3},
                                 &err),
                 err);
        compare_variables(&straight, &second);
        end_job(&first);
        end_job(&second);
        CHECK_OK(trmi_os_remove_tree(NULL, folder, &err), err);
    }
    end_job(&straight);
}

static void epoch_end_is_done_once(void **state) {
    trm_error err;
    job first = begin_job(), second = begin_job();
    witness a = {0}, b = {0};
    CHECK_OK(trm_model_train(
                 first.model,
                 &(trm_train_options){.data = first.train,
                                      .until_epoch = 1,
                                      .callbacks = {make_saver(EPOCH_STEPS), watch_with(&a)}},
                 &err),
             err);
    /* Saved after the last step, and again after on_epoch_end with the next epoch's position. */
    CHECK_OK(trm_model_resume(second.model, folder, &err), err);
    CHECK_OK(trm_model_train(second.model,
                             &(trm_train_options){.data = second.train,
                                                  .until_epoch = 2,
                                                  .callbacks = {watch_with(&b)}},
                             &err),
             err);
    assert_int_equal(a.epoch_ends, 1);
    assert_int_equal(b.epoch_ends, 1);
    assert_int_equal(b.steps, EPOCH_STEPS);
    end_job(&first);
    end_job(&second);
}

static void refuses_to_resume(trm_model_options o, const char *text) {
    trm_error err;
    trm_model *model;
    CHECK_OK(trm_model_create(&o, &model, &err), err);
    CHECK_FAILS(trm_model_resume(model, folder, &err), TRM_INVALID, err, text);
    trm_model_destroy(model);
    o.accept_changes = true;
    CHECK_OK(trm_model_create(&o, &model, &err), err);
    CHECK_OK(trm_model_resume(model, folder, &err), err);
    trm_model_destroy(model);
}

/* Other data have the same shapes and counts. */
static void another_job_is_refused(void **state) {
    trm_error err;
    job j = begin_job(), same = begin_job();
    CHECK_OK(trm_model_train(j.model,
                             &(trm_train_options){
                                 .data = j.train, .until_epoch = 1, .callbacks = {make_saver(0)}},
                             &err),
             err);
    trm_model_options o = j.options;
    o.exec.backend = "onednn";
    refuses_to_resume(o, "backend differs (found ref, expected onednn)");
    o = j.options;
    o.exec.precision = TRM_PRECISION_ORIGIN;
    refuses_to_resume(o, "precision differs (found fp32, expected origin)");

    const trm_shapes_options other = {.train_count = 260, .test_count = 70, .seed = 4};
    static const double mean[3] = {0.5, 0.5, 0.5}, std[3] = {0.25, 0.25, 0.25};
    trm_dataset *data;
    CHECK_OK(trm_dataset_shapes(&other, TRM_USAGE_TRAIN, &data, &err), err);
    CHECK_OK(trm_dataset_map(data,
                             (trm_transform[]){trm_transform_rescale(1 / 255.0, 0),
                                               trm_transform_normalize(mean, std),
                                               trm_transform_hwc2chw()},
                             3, &err),
             err);
    CHECK_OK(trm_dataset_batch(data, BATCH, true, &err), err);
    const trm_train_options training = {.data = data, .until_epoch = 2};
    CHECK_OK(trm_model_resume(same.model, folder, &err), err);
    CHECK_FAILS(trm_model_train(same.model, &training, &err), TRM_INVALID, err, "data differs");
    assert_int_equal(trm_model_global_step(same.model), EPOCH_STEPS);
    CHECK_OK(trm_model_train(same.model, &(trm_train_options){.data = same.train, .until_epoch = 2},
                             &err),
             err);
    job meant = begin_with((trm_model_options){.accept_changes = true}, BATCH);
    CHECK_OK(trm_model_resume(meant.model, folder, &err), err);
    CHECK_OK(trm_model_train(meant.model, &training, &err), err);
    trm_dataset_destroy(data);
    end_job(&j);
    end_job(&same);
    end_job(&meant);
}

/* Checkpoints of version 0.2.0 name the optimiser by a number. */
static void optimizers_of_older_checkpoints_are_known(void **state) {
    trm_error err;
    job j = begin_job(); /* momentum */
    CHECK_OK(trmi_job_compare(j.model, NULL, "{\"optimizer\":\"kind 1\"}", "old", &err), err);
    CHECK_FAILS(
        trmi_job_compare(j.model, NULL, "{\"optimizer\":\"kind 3 decoupled\"}", "old", &err),
        TRM_INVALID, err, "optimizer differs (found adam decoupled, expected momentum)");
    CHECK_FAILS(trmi_job_compare(j.model, NULL, "{\"optimizer\":\"kind 7\"}", "old", &err),
                TRM_INVALID, err, "found kind 7, expected momentum");
    end_job(&j);
}

static void other_runs_are_refused(void **state) {
    trm_error err;
    job j = begin_job();
    CHECK_FAILS(trm_model_resume(j.model, folder, &err), TRM_END, err, "");
    CHECK_OK(trm_model_set_note(j.model, "mine", 0.1, &err), err);
    CHECK_OK(trm_model_train(j.model,
                             &(trm_train_options){
                                 .data = j.train, .until_epoch = 1, .callbacks = {make_saver(0)}},
                             &err),
             err);
    job seed = begin_with((trm_model_options){.exec.seed = 12}, BATCH);
    CHECK_FAILS(trm_model_resume(seed.model, folder, &err), TRM_INVALID, err,
                "seed 11, this run has 12");
    job batch = begin_with((trm_model_options){0}, 8);
    CHECK_FAILS(trm_model_resume(batch.model, folder, &err), TRM_INVALID, err, "batch size 16");
    job sgd = begin_with((trm_model_options){.learning_rate = {.base = 1}}, BATCH);
    CHECK_FAILS(trm_model_resume(sgd.model, folder, &err), TRM_INVALID, err, "slots");
    job same = begin_job();
    CHECK_OK(trm_model_resume(same.model, folder, &err), err);
    double note;
    assert_true(trm_model_get_note(same.model, "mine", &note) && note == 0.1);
    assert_false(trm_model_get_note(same.model, "yours", &note));
    end_job(&j);
    end_job(&seed);
    end_job(&batch);
    end_job(&sgd);
    end_job(&same);
}

static void weights_load_into_an_evaluation_model(void **state) {
    trm_error err;
    job j = begin_job();
    trm_evaluation trained, loaded;
    CHECK_OK(trm_model_train(j.model,
                             &(trm_train_options){
                                 .data = j.train, .until_epoch = 2, .callbacks = {make_saver(0)}},
                             &err),
             err);
    CHECK_OK(trm_model_evaluate(j.model, j.test, &trained, &err), err);
    trm_model_options o = j.options;
    o.evaluation_only = true;
    o.data = j.test;
    o.exec.seed = 99;
    trm_model *model;
    CHECK_OK(trm_model_create(&o, &model, &err), err);
    int32_t skipped;
    char path[160];
    CHECK_OK(trm_model_load(model, folder, false, &skipped, &err), err);
    CHECK_OK(trm_model_evaluate(model, j.test, &loaded, &err), err);
    assert_true(loaded.loss == trained.loss && loaded.top1 == trained.top1 && skipped == 0);
    snprintf(path, sizeof path, "%s/ckpt-32/model.safetensors", folder);
    CHECK_OK(trm_model_load(model, path, false, NULL, &err), err);
    CHECK_FAILS(trm_model_resume(model, folder, &err), TRM_INVALID, err, "evaluation_only");
    snprintf(path, sizeof path, "%s/nowhere", folder);
    CHECK_FAILS(trm_model_load(model, path, false, NULL, &err), TRM_IO, err, "no checkpoint");
    trm_model_destroy(model);
    end_job(&j);
}

#define IN_FOLDER(test) cmocka_unit_test_setup_teardown(test, make_folder, remove_folder)
int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_learns_and_evaluates),
        cmocka_unit_test(predictions_need_no_labels),
        cmocka_unit_test(padding_does_not_count),
        cmocka_unit_test(accumulation_is_a_larger_batch),
        cmocka_unit_test(sink_mode_gives_the_same_bits),
        cmocka_unit_test(monitors_print_the_guides_lines),
        cmocka_unit_test(the_loss_of_the_last_step_is_printed),
        cmocka_unit_test(inputs_are_asked_for_inside_a_scope),
        cmocka_unit_test(callbacks_are_called_in_turn),
        cmocka_unit_test(callbacks_stop_and_fail),
        cmocka_unit_test(training_continues_where_it_was),
        cmocka_unit_test(divergence_is_named),
        cmocka_unit_test(early_stop_ends_training),
        cmocka_unit_test(callbacks_are_served_without_an_error_record),
        cmocka_unit_test(wrong_use_is_refused),
        cmocka_unit_test(unknown_field_is_named),
        IN_FOLDER(sink_mode_saves_in_the_epoch_in_which_it_is_due),
        IN_FOLDER(a_save_without_room_is_tried_again),
        IN_FOLDER(the_last_save_needs_room),
        IN_FOLDER(resumed_equals_uninterrupted),
        IN_FOLDER(epoch_end_is_done_once),
        cmocka_unit_test(optimizers_of_older_checkpoints_are_known),
        IN_FOLDER(other_runs_are_refused),
        IN_FOLDER(another_job_is_refused),
        IN_FOLDER(weights_load_into_an_evaluation_model),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
