/* SPDX-License-Identifier: Apache-2.0 */
/* Random small networks, cut into random stages, with random schedules and micro-batches, against
 * one device (tests/partition_trial.h): stages alone, stages of data parallel ranks, stages of
 * graphs that a plan splits. TRIREME_SHARD_TRIALS=100 tries more. */
#include "partition_trial.h"
#include "test_layers.h"

#include "plan/pipeline/stages.h"

/* ---- networks -------------------------------------------------------------------------------- */

/* Layers of random widths, some with dropout, and a value that the last layer reads again. */
static trm_node build_layers(trm_graph *g, uint64_t v) {
    int64_t batch = batch_of(v, 4, 6), depth = pick_number(v, 1, 5, 9);
    trm_node x = trm_input(g, "dense", TRM_FLOAT32, trm_shape_of(batch, 6));
    trm_node label = trm_input(g, "label", TRM_INT32, trm_shape_of(batch));
    trm_node first = TRM_NO_NODE;
    for (int64_t i = 0; i < depth; i++) {
        bool last = i + 1 == depth;
        char name[24];
        snprintf(name, sizeof name, "layer%d", (int)i);
        x = add_dense(g, name, x, last || i == 0 ? 9 : pick_number(v, (uint64_t)(10 + i), 5, 14));
        x = pick_number(v, (uint64_t)(30 + i), 0, 2) == 0 ? trm_tanh(g, x) : trm_relu(g, x);
        x = pick_number(v, (uint64_t)(50 + i), 0, 3) == 0 ? trm_dropout(g, x, 0.2) : x;
        first = i == 0 ? x : first;
    }
    x = pick_number(v, 2, 0, 1) == 1 ? trm_add(g, x, first) : x;
    return trm_softmax_cross_entropy(g, add_dense(g, "out", x, 8), label,
                                     &(trm_xent_options){.label_smoothing = v % 2 ? 0.1 : 0});
}

/* A transformer: blocks of attention and two layers; the words of the first operator are those of
 * the loss. */
static trm_node blocks_of_tokens(trm_graph *g, uint64_t v) {
    enum { LENGTH = 5, WIDTH = 8, HEADS = 2, WORDS = 11 };
    int64_t batch = batch_of(v, 4, 6), depth = pick_number(v, 1, 2, 4);
    trm_node ids = trm_input(g, "ids", TRM_INT32, trm_shape_of(batch, LENGTH));
    trm_node next = trm_input(g, "label", TRM_INT32, trm_shape_of(batch, LENGTH));
    trm_node words = trm_parameter(g, "words", trm_shape_of(WORDS, WIDTH), TRM_INIT_LINEAR);
    trm_node where = trm_parameter(g, "where", trm_shape_of(LENGTH, WIDTH), TRM_INIT_LINEAR);
    trm_node x = trm_add(g, trm_embedding(g, words, ids), where);
    for (int64_t i = 0; i < depth; i++) {
        trm_graph_push_scope(g, "h%d", (int)i);
        trm_node gamma = trm_parameter(g, "norm.weight", trm_shape_of(WIDTH), TRM_INIT_ONE);
        trm_node y =
            v % 2
                ? trm_rms_norm(g, x, gamma, 0)
                : trm_layer_norm(g, x, gamma,
                                 trm_parameter(g, "norm.bias", trm_shape_of(WIDTH), TRM_INIT_ZERO),
                                 0);
        y = trm_attention_packed(g, add_dense(g, "qkv", y, 3 * WIDTH), HEADS, 0, TRM_NO_NODE,
                                 &(trm_attention_options){.causal = true});
        x = trm_add(g, x, add_dense(g, "out", y, WIDTH));
        y = trm_gelu(g, add_dense(g, "first", x, 12), (trm_gelu_form)(v % 2));
        x = trm_add(g, x, trm_dropout(g, add_dense(g, "second", y, WIDTH), v % 3 ? 0.1 : 0));
        trm_graph_pop_scope(g);
    }
    return trm_linear_cross_entropy(g, x, words, next, NULL);
}

/* Convolutions with norms over the samples of a micro-batch, and a residual. */
static trm_node build_images(trm_graph *g, uint64_t v) {
    int64_t batch = batch_of(v, 4, 6), size = pick_number(v, 1, 9, 12);
    trm_node x = trm_input(g, "image", TRM_FLOAT32, trm_shape_of(batch, 3, size, size));
    trm_node label = trm_input(g, "label", TRM_INT32, trm_shape_of(batch));
    trm_node before = TRM_NO_NODE;
    for (int i = 0; i < 4; i++) {
        int64_t channels = trm_node_shape(g, x).dim[1];
        trm_graph_push_scope(g, "conv%d", i);
        x = trm_conv2d(
            g, x,
            trm_parameter(g, "weight", trm_shape_of(8, channels, 3, 3), TRM_INIT_HE_NORMAL_FAN_OUT),
            TRM_NO_NODE, &(trm_conv_options){.stride = {1, 1}, .pad = {1, 1, 1, 1}, .groups = 1});
        x = trm_batch_norm(
            g, x, trm_parameter(g, "gamma", trm_shape_of(8), TRM_INIT_ONE),
            trm_parameter(g, "beta", trm_shape_of(8), TRM_INIT_ZERO),
            trm_state(g, "running_mean", TRM_FLOAT32, trm_shape_of(8), TRM_INIT_ZERO),
            trm_state(g, "running_var", TRM_FLOAT32, trm_shape_of(8), TRM_INIT_ONE), NULL);
        x = trm_relu(g, i == 2 ? trm_add(g, x, before) : x);
        before = i == 0 ? x : before;
        trm_graph_pop_scope(g);
    }
    return trm_softmax_cross_entropy(g, add_dense(g, "fc", trm_global_avg_pool(g, x), 8), label,
                                     NULL);
}

/* ---- stages ---------------------------------------------------------------------------------- */

/* Draws where the runs of operators begin: any forward operators of the training graph. */
static void draw_begins(trial *t, uint64_t seed, int32_t runs) {
    trm_error err;
    trm_graph *g, *training;
    trmi_arena arena = {0};
    trmi_roots roots;
    trmi_backend *backend;
    int32_t forward[256], count = 0;
    CHECK_OK(trmi_backend_onednn(1, NULL, &backend, &err), err);
    CHECK_OK(trm_graph_create(&(trm_graph_options){.training = true}, &g, &err), err);
    trmi_plan_options options = {.target = &backend->target,
                                 .loss = t->network(g, t->variant),
                                 .precision = (int32_t)t->precision,
                                 .blocks = t->blocks,
                                 .block_ranks = 1,
                                 .dense_gradients = true};
    CHECK_OK(trmi_training_graph(g, &options, &training, &roots, &arena, &err), err);
    for (int64_t i = 1; i < training->ops_count && count < 256; i++) {
        if (training->ops[i].phase == TRMI_FORWARD && !trmi_is_leaf(&training->ops[i])) {
            forward[count++] = (int32_t)i;
        }
    }
    assert_true(count > runs);
    t->begins[0] = '\0';
    for (int32_t left = runs - 1, at = 1; left > 0; left--, at++) {
        at += (int32_t)(trmi_random_u32(seed, TRMI_STREAM_TEST, (uint64_t)left) %
                        (uint32_t)(count - at - left + 1));
        sprintf(t->begins + strlen(t->begins), "%s%s", t->begins[0] != '\0' ? "," : "",
                training->ops[forward[at]].name);
    }
    trm_graph_destroy(training);
    trm_graph_destroy(g);
    trmi_arena_free(&arena);
    backend->destroy(backend);
}

typedef enum mode { ALONE, DATA, PLAN, MODES } mode;

/* One network in one pipeline against one device. */
static void try_one(trial *t, uint64_t seed, mode how, double tolerance) {
    trm_error err;
    static outcome one;
    shared *all =
        mmap(NULL, sizeof *all, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    int inner = how == ALONE ? 1 : 2;
    int32_t most = how == ALONE ? 4 : 2;
    t->pipeline.schedule = (trm_schedule)(seed % 3);
    t->pipeline.stages = (int32_t)pick_number(seed, 90, 2, most);
    t->pipeline.chunks = t->pipeline.schedule == TRM_SCHEDULE_INTERLEAVED ? 2 : 0;
    t->accumulate = (int32_t)pick_number(seed, 91, 1, 5);
    t->mesh = how == PLAN ? "2" : NULL;
    t->whole_graphs = how != PLAN;
    int32_t runs = t->pipeline.stages * (t->pipeline.chunks > 0 ? t->pipeline.chunks : 1);
    if (seed % 4 != 0) {
        draw_begins(t, seed, runs);
    }
    memset(&one, 0, sizeof one);
    if (how == PLAN) {
        draw_plan(t, seed);
    }
    all->trial = *t;
    CHECK_OK(run_trial(t, NULL, &one, &err), err);
    assert_true(isfinite(one.loss[STEPS - 1]) && one.loss[0] != one.loss[STEPS - 1]);
    ranks_run_joined(t->pipeline.stages * inner, false, rank_main, all, "ranks");
    if (t->blocks > 0) {
        compare_bits(all, &one, t->pipeline.stages * inner, seed);
    } else {
        compare_outcomes(all, &one, t->pipeline.stages * inner, seed, tolerance);
    }
    munmap(all, sizeof *all);
}

static void try_network(network_function network, uint64_t first, int64_t count, mode how) {
    static trial t;
    for (uint64_t seed = first; seed < first + (uint64_t)count; seed++) {
        t = (trial){.network = network,
                    .variant = seed / 2,
                    .backend = "onednn",
                    .optimizer = {.kind = seed % 2 && how != PLAN ? TRM_ADAM : TRM_MOMENTUM,
                                  .momentum = 0.9,
                                  .weight_decay = 1e-3,
                                  .clip_norm = seed % 5 == 0 ? 0.05 : 0}};
        try_one(&t, seed, how, 1e-5);
    }
}

static void stages_alone(void **state) {
    (void)state;
    try_network(build_layers, 1, count_trials(9), ALONE);
    try_network(blocks_of_tokens, 300, count_trials(9), ALONE);
    try_network(build_images, 600, count_trials(3), ALONE);
}

static void stages_of_data_parallel_ranks(void **state) {
    (void)state;
    try_network(build_layers, 1000, count_trials(4), DATA);
    try_network(blocks_of_tokens, 1300, count_trials(6), DATA);
}

static void stages_of_split_graphs(void **state) {
    (void)state;
    try_network(build_layers, 2000, count_trials(4), PLAN);
    try_network(blocks_of_tokens, 2300, count_trials(6), PLAN);
}

static void strict_stages(void **state) {
    static trial t;
    (void)state;
    strict_batch = 8;
    for (uint64_t seed = 1; seed <= (uint64_t)count_trials(12); seed++) {
        t = (trial){.network = seed % 2 ? build_layers : blocks_of_tokens,
                    .variant = seed / 2,
                    .backend = "onednn",
                    .blocks = 8,
                    .optimizer = {.kind = TRM_ADAM,
                                  .weight_decay = 1e-3,
                                  .clip_norm = seed % 5 == 0 ? 0.05 : 0}};
        try_one(&t, seed + 3000, seed % 3 == 0 ? PLAN : ALONE, 0);
    }
    strict_batch = 0;
}

/* Ids outside of the table: stage 0 finds them, and every rank of every stage fails with its
 * sentence. */
static trm_node wrong_ids(trm_graph *g, uint64_t v) {
    (void)v;
    trm_node ids = trm_input(g, "ids", TRM_INT32, trm_shape_of(4, 3));
    trm_node label = trm_input(g, "label", TRM_INT32, trm_shape_of(4));
    trm_node table = trm_parameter(g, "table", trm_shape_of(2, 6), TRM_INIT_LINEAR);
    trm_node x = trm_reshape(g, trm_embedding(g, table, ids), trm_shape_of(4, 18));
    x = trm_relu(g, add_dense(g, "first", x, 12));
    return trm_softmax_cross_entropy(g, add_dense(g, "second", x, 8), label, NULL);
}

static void a_failure_ends_all_stages(void **state) {
    (void)state;
    shared *all =
        mmap(NULL, sizeof *all, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    all->trial = (trial){.network = wrong_ids,
                         .backend = "onednn",
                         .optimizer = {.kind = TRM_SGD},
                         .accumulate = 3,
                         .whole_graphs = true,
                         .pipeline = {.stages = 3}};
    ranks_run_joined(6, false, rank_main, all, "ranks");
    for (int r = 0; r < 6; r++) {
        assert_int_not_equal(all->of[r].status, TRM_OK);
        if (strstr(all->of[r].error.message, "0 to 1 expected") == NULL) {
            fail_msg("rank %d: %s", r, all->of[r].error.message);
        }
    }
    munmap(all, sizeof *all);
}

typedef struct refusal {
    trm_exec_options options;
    const char *sentence;
} refusal;

/* Options that do not fit a pipeline, on two ranks. */
static void refuse_options(rank_context *context, trm_comm *comm) {
    const refusal *r = context->arg;
    trm_error err;
    trm_graph *g;
    trm_exec *exec = NULL;
    CHECK_OK(trm_graph_create(&(trm_graph_options){.training = true}, &g, &err), err);
    trm_exec_options options = r->options;
    options.loss = build_layers(g, 1);
    options.optimizer.kind = TRM_SGD;
    options.tuning_file = "";
    options.threads = 1;
    options.parallel.comm = comm;
    CHECK_FAILS(trm_exec_create(g, &options, &exec, &err), TRM_INVALID, err, r->sentence);
    trm_graph_destroy(g);
}

static void what_does_not_fit_is_refused(void **state) {
    static refusal cases[] = {
        {{.parallel.pipeline = {.stages = 3}}, "3 stages: 2 ranks found"},
        {{.parallel = {.pipeline = {.stages = 2}, .split.kind = TRM_SPLIT_SEARCHED}},
         "searched without stages"},
        {{.parallel.pipeline = {.stages = 2, .chunks = 2}}, "one chunk a rank (found 2)"},
        {{.parallel.pipeline = {.stages = 2, .begins = "nothing"}}, "'nothing' is no forward"},
        {{.parallel.pipeline = {.stages = 2, .chunks = 90, .schedule = TRM_SCHEDULE_INTERLEAVED}},
         "at least 180 are needed"}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        ranks_run_joined(2, false, refuse_options, &cases[i], "ranks");
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(stages_alone),
                                       cmocka_unit_test(stages_of_data_parallel_ranks),
                                       cmocka_unit_test(stages_of_split_graphs),
                                       cmocka_unit_test(strict_stages),
                                       cmocka_unit_test(a_failure_ends_all_stages),
                                       cmocka_unit_test(what_does_not_fit_is_refused)};
    cmocka_set_test_filter(getenv("TRIREME_TEST_FILTER"));
    return cmocka_run_group_tests(tests, NULL, NULL);
}
