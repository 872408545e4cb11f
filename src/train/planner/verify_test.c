/* SPDX-License-Identifier: Apache-2.0 */
/* Split jobs held against one device through everything that training has: optimisers,
 * accumulation, clipping, loss scaling, schedules, mixed precision; and a job that is wrong by a
 * thousandth, which must be noticed. */
#include "check.h"

#include "trireme/train.h"
#include "trireme/plan.h"

#include "ranks.h"

#include <math.h>

enum { RANKS = 4, BATCH = 12, SIZE = 14, CLASSES = 9 };

typedef struct wrong {
    bool apply; /* rank 0's one-device jobs come after its split job */
    int made;
} wrong;

typedef struct trial {
    const char *name, *plan, *context;
    trm_optimizer_options optimizer;
    trm_learning_rate rate;
    trm_loss_scale_options scale;
    trm_precision precision;
    int32_t accumulate;
    bool wrong;
    /* of rank 0 */
    bool agrees;
    int32_t tensors, kinds[TRM_VERIFY_KINDS];
    char worst[160];
    double worst_error;
} trial;

static trm_node add_norm(trm_graph *g, trm_node x) {
    int64_t c = trm_node_shape(g, x).dim[1];
    return trm_relu(
        g, trm_batch_norm(g, x, trm_parameter(g, "weight", trm_shape_of(c), TRM_INIT_ONE),
                          trm_parameter(g, "bias", trm_shape_of(c), TRM_INIT_ZERO),
                          trm_state(g, "mean", TRM_FLOAT32, trm_shape_of(c), TRM_INIT_ZERO),
                          trm_state(g, "var", TRM_FLOAT32, trm_shape_of(c), TRM_INIT_ONE), NULL));
}

static trm_node add_conv(trm_graph *g, const char *name, trm_node x, int64_t out, int64_t kernel,
                         int64_t stride) {
    int64_t in = trm_node_shape(g, x).dim[1], pad = kernel / 2;
    trm_graph_push_scope(g, "%s", name);
    x = trm_conv2d(g, x,
                   trm_parameter(g, "kernel", trm_shape_of(out, in, kernel, kernel),
                                 TRM_INIT_HE_NORMAL_FAN_OUT),
                   TRM_NO_NODE,
                   &(trm_conv_options){.stride = {stride, stride}, .pad = {pad, pad, pad, pad}});
    x = add_norm(g, x);
    trm_graph_pop_scope(g);
    return x;
}

static trm_node build_network(trm_graph *g, const trm_inputs *inputs, void *context) {
    wrong *w = context;
    trm_node x = add_conv(g, "stem", trm_inputs_get(inputs, "image"), 8, 5, 2);
    x = trm_max_pool(g, x,
                     &(trm_pool_options){.kernel = {3, 3}, .stride = {1, 1}, .pad = {1, 1, 1, 1}});
    x = trm_add(g, add_conv(g, "block", x, 8, 3, 1), x);
    x = trm_global_avg_pool(g, add_conv(g, "last", x, 10, 3, 2));
    x = trm_scale(g, x, w->apply && w->made++ > 0 ? 1.001 : 0.999);
    return trm_linear(g, x,
                      trm_parameter(g, "fc.weight", trm_shape_of(CLASSES, 10), TRM_INIT_LINEAR),
                      trm_parameter(g, "fc.bias", trm_shape_of(CLASSES), TRM_INIT_ZERO));
}

static void keep_result(trial *t, const trm_verification *v) {
    t->agrees = v->agrees;
    t->tensors = v->count;
    for (int32_t i = 0; i < v->count; i++) {
        const trm_verify_tensor *x = &v->tensors[i];
        t->kinds[x->kind]++;
        if (!x->agrees && x->error > t->worst_error) {
            t->worst_error = x->error;
            snprintf(t->worst, sizeof t->worst, "%s %.100s: %.3g, rounding %.3g",
                     trm_verify_kind_name(x->kind), x->name, x->error, x->rounding);
        }
    }
}

static trm_status verify_plan(trial *t, trm_comm *comm, trm_error *err) {
    trm_dataset *data;
    trm_verification *v = NULL;
    trm_context *context = NULL;
    wrong w = {.apply = t->wrong};
    const trm_random_options random = {
        .count = BATCH * 8, .channels = 3, .height = SIZE, .width = SIZE, .classes = CLASSES};
    trm_status status = trm_dataset_random(&random, &data, err);
    status = status == TRM_OK ? trm_dataset_batch(data, BATCH, true, err) : status;
    trm_model_options model = {
        .network = build_network,
        .network_context = &w,
        .data = data,
        .exec.threads = 1,
        .exec.seed = 3,
        .exec.tuning_file = "",
        .exec.optimizer = t->optimizer,
        .learning_rate = t->rate,
        .exec.loss_scale = t->scale,
        .exec.precision = t->precision,
        .exec.accumulate = t->accumulate,
        .exec.parallel = {.comm = comm, .split.kind = TRM_SPLIT_PLANNED, .split.plan = t->plan}};
    if (t->context != NULL) {
        model.exec.parallel = (trm_parallel_options){.comm = comm, .split.plan = t->plan};
        model.exec.accumulate = 0;
        status = trm_context_create(&context, err);
        status =
            status == TRM_OK ? trm_context_set(context, "parallel_mode", t->context, err) : status;
        model.context = context;
    }
    status =
        status == TRM_OK ? trm_verify(&model, &(trm_verify_options){.steps = 4}, &v, err) : status;
    if (v != NULL) {
        keep_result(t, v);
    }
    trm_verification_destroy(v);
    trm_context_destroy(context);
    trm_dataset_destroy(data);
    return status;
}

static void rank_main(rank_context *context, trm_comm *comm) {
    trm_error err;
    trial own = *(const trial *)context->arg;
    EXPECT_OK(verify_plan(context->rank == 0 ? context->arg : &own, comm, &err), err);
}

static const char mixed_plan[] =
    "trireme-plan 1\nmesh 2x2\n"
    "op stem.conv2d0 nh\nop block.conv2d1 kn\nop last.conv2d2 cw\nop linear0 kc\n";

static void run_trial(trial *t) {
    ranks_run_joined(RANKS, false, rank_main, t, t->name);
    if (t->agrees == t->wrong) {
        fail_msg("%s: %s; worst: %s", t->name,
                 t->agrees ? "a wrong job agrees" : "the split differs", t->worst);
    }
    assert_int_equal(t->kinds[TRM_VERIFY_LOSS], 4);
    assert_int_equal(t->kinds[TRM_VERIFY_GRADIENT], 11);
    assert_true(t->kinds[TRM_VERIFY_FORWARD] >= 5 && t->kinds[TRM_VERIFY_VARIABLE] >= 17);
}

static const trm_optimizer_options momentum = {
    .kind = TRM_MOMENTUM, .momentum = 0.9, .weight_decay = 1e-3};
static const trm_learning_rate constant = {.base = 0.02};

static void all_that_training_has(void **state) {
    (void)state;
    trial trials[] = {
        {.name = "momentum", .optimizer = momentum, .rate = constant},
        {.name = "accumulation, clipping",
         .accumulate = 3,
         .rate = constant,
         .optimizer = {.kind = TRM_NESTEROV, .momentum = 0.9, .clip_norm = 0.3}},
        {.name = "LARS, warm-up, cosine",
         .optimizer = {.kind = TRM_LARS, .momentum = 0.9, .weight_decay = 1e-3},
         .rate = {.decay = TRM_DECAY_COSINE, .base = 0.5, .warmup_steps = 2}},
        {.name = "Adam with decoupled decay, clipping",
         .rate = {.base = 1e-3},
         .optimizer = {.kind = TRM_ADAM, .weight_decay = 1e-2, .decoupled = true, .clip_norm = 1}},
        /* begins with overflows */
        {.name = "dynamic loss scale",
         .optimizer = momentum,
         .rate = constant,
         .scale = {.on = true, .dynamic = true, .initial = 1e38}},
        {.name = "mixed precision",
         .optimizer = momentum,
         .rate = constant,
         .precision = TRM_PRECISION_MIXED,
         .scale = {.on = true, .initial = 1024}},
        {.name = "mixed precision, accumulation, clipping",
         .accumulate = 2,
         .rate = constant,
         .precision = TRM_PRECISION_MIXED,
         .optimizer = {.kind = TRM_MOMENTUM, .momentum = 0.9, .clip_norm = 0.5}},
        {.name = "Adagrad",
         .optimizer = {.kind = TRM_ADAGRAD, .initial_accumulator = 0.1},
         .rate = constant},
        {.name = "semi_auto_parallel of a context",
         .optimizer = momentum,
         .rate = constant,
         .context = "semi_auto_parallel"},
    };
    for (size_t i = 0; i < sizeof trials / sizeof trials[0]; i++) {
        trials[i].plan = mixed_plan;
        run_trial(&trials[i]);
    }
}

static void a_thousandth_is_noticed(void **state) {
    (void)state;
    trial t = {.name = "wrong",
               .plan = mixed_plan,
               .optimizer = momentum,
               .rate = constant,
               .wrong = true};
    run_trial(&t);
    assert_true(t.worst_error > 1e-4 && t.worst_error < 0.1);
}

static void one_rank_is_refused(void **state) {
    (void)state;
    trm_error err;
    trm_verification *v;
    assert_int_equal(trm_verify(&(trm_model_options){.network = build_network},
                                &(trm_verify_options){0}, &v, &err),
                     TRM_INVALID);
    assert_non_null(strstr(err.message, "at least 2 ranks"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_that_training_has),
        cmocka_unit_test(a_thousandth_is_noticed),
        cmocka_unit_test(one_rank_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
