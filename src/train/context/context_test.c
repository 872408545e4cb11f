/* SPDX-License-Identifier: Apache-2.0 */
/* The options of a context (train/context/context.h): set, get and reset; combinations that
 * exclude each other, each a case with the words that its message must have; and what the
 * options mean for a model (trm_context_resolve).
 *
 * Each test gets a context of its own. Cases with several ranks run on threads (tests/ranks.h). */
#include "check.h"

#include "trireme/train.h"

#include "ranks.h"

static trm_context *context;
static trm_error err;

static int begin_test(void **state) { return trm_context_create(&context, &err) != TRM_OK; }
static int end_test(void **state) {
    trm_context_destroy(context);
    return 0;
}
static void set_option(const char *name, const char *value) {
    CHECK_OK(trm_context_set(context, name, value, &err), err);
}

static trm_parallel_options resolve_options(int32_t *accumulate) {
    trm_parallel_options o;
    CHECK_OK(trm_context_resolve(context, NULL, &o, accumulate, &err), err);
    return o;
}
static void expect_refusal(trm_status status, const char *text) {
    trm_parallel_options o;
    int32_t accumulate;
    CHECK_FAILS(trm_context_resolve(context, NULL, &o, &accumulate, &err), status, err, text);
}

/* ---- one process ----------------------------------------------------------------------------- */

static void every_option_has_a_default_and_goes_back_to_it(void **state) {
    trm_context_option o;
    int32_t count = 0;
    for (; trm_context_option_at(count, &o); count++) {
        assert_non_null(trm_context_get(context, o.name));
        assert_false(trm_context_is_set(context, o.name));
        assert_true(o.alias == NULL ||
                    trm_context_get(context, o.alias) == trm_context_get(context, o.name));
        if (o.fallback[0] != '\0') {
            assert_string_equal(trm_context_get(context, o.name), o.fallback);
            set_option(o.name, o.fallback);
            assert_true(trm_context_is_set(context, o.name));
        }
    }
    assert_int_equal(count, 30);
    assert_false(trm_context_option_at(-1, &o));
    set_option("mirror_mean", "True");
    assert_string_equal(trm_context_get(context, "gradients_mean"), "true");
    set_option("parallel_mode", "DATA_PARALLEL");
    assert_string_equal(trm_context_get(context, "parallel_mode"), "data_parallel");
    assert_string_equal(trm_context_get(context, "parameter_broadcast"), "true");
    trm_context_reset(context);
    assert_string_equal(trm_context_get(context, "parallel_mode"), "stand_alone");
    assert_string_equal(trm_context_get(context, "parameter_broadcast"), "false");
    assert_string_equal(trm_context_get(context, "mirror_mean"), "false");
    assert_string_equal(trm_context_get(context, "device_num"), "1");
    assert_false(trm_context_is_set(context, "parallel_mode"));
    assert_null(trm_context_get(context, "nothing"));
}

static void values_outside_of_their_range_are_refused(void **state) {
    static const char *const wrong[][3] = {
        {"parallel_mod", "data_parallel", "nearest is parallel_mode"},
        {"nothing", "1", "help context lists them"},
        {"parallel_mode", "data", "stand_alone|data_parallel"},
        {"parallel_mode", "", "parallel_mode"},
        {"device_num", "0", "from 1 to 4096"},
        {"device_num", "4097", "from 1 to 4096"},
        {"global_rank", "-1", "from 0 to 4095"},
        {"global_rank", "2x", "from 0 to 4095"},
        {"gradients_mean", "maybe", "true or false"},
        {"all_reduce_fusion_config", "35,20", "ascending"},
        {"all_reduce_fusion_config", "0", "ascending"},
        {"comm_fusion", "size:", "size:MB"},
        {"comm_fusion", "index:3,x", "ascending"},
        {"sync_batch_norm", "1", "a group"},
        {"grad_accumulation_step", "0", "from 1"},
        {"search_mode", "magic", "recursive_programming"}};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        CHECK_FAILS(trm_context_set(context, wrong[i][0], wrong[i][1], &err), TRM_INVALID, err,
                    wrong[i][2]);
        assert_false(trm_context_is_set(context, wrong[i][0]));
    }
    CHECK_FAILS(trm_context_set(context, "pipeline_result_broadcast", "false", &err),
                TRM_UNSUPPORTED, err, "always true");
    CHECK_FAILS(trm_context_set(context, "parallel_optimizer_threshold", "64", &err),
                TRM_UNSUPPORTED, err, "always 0");
    char text[600];
    memset(text, 'a', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    CHECK_FAILS(trm_context_set(context, "strategy_ckpt_load_file", text, &err), TRM_INVALID, err,
                "at most 511");
}

static void options_that_exclude_each_other_are_named(void **state) {
    set_option("gradients_mean", "true");
    expect_refusal(TRM_INVALID, "the mode is stand_alone");
    set_option("parallel_mode", "data_parallel");
    set_option("search_mode", "recursive_programming");
    expect_refusal(TRM_INVALID, "search_mode is for parallel_mode auto_parallel");
    trm_context_reset(context);
    set_option("parallel_mode", "data_parallel");
    set_option("layerwise_parameters", "fc");
    expect_refusal(TRM_INVALID, "hybrid_parallel");
    set_option("parallel_mode", "hybrid_parallel");
    set_option("full_batch", "true");
    expect_refusal(TRM_INVALID, "full_batch is for");
    trm_context_reset(context);
    set_option("parallel_mode", "data_parallel");
    set_option("all_reduce_fusion_config", "20,35");
    set_option("comm_fusion", "auto");
    expect_refusal(TRM_INVALID, "one of them");
    trm_context_reset(context);
    set_option("parallel_mode", "data_parallel");
    set_option("gradient_fp32_sync", "true");
    set_option("gradient_wire", "bf16");
    expect_refusal(TRM_INVALID, "gradient_wire is bf16");
    trm_context_reset(context);
    set_option("deterministic_block", "4");
    expect_refusal(TRM_INVALID, "deterministic strict");
    trm_context_reset(context);
    set_option("device_num", "8");
    set_option("parallel_mode", "data_parallel");
    expect_refusal(TRM_INVALID, "device_num is 8, but the job has 1 ranks");
    trm_context_reset(context);
    set_option("parallel_mode", "auto_parallel");
    set_option("full_batch", "true");
    set_option("dataset_strategy", "((1,8),(8))");
    expect_refusal(TRM_INVALID, "dataset_strategy is ((1,8),(8))");
    trm_context_reset(context);
    set_option("parallel_mode", "semi_auto_parallel");
    set_option("dataset_strategy", "((2,8),(8))");
    expect_refusal(TRM_INVALID, "at most one is cut");
    trm_context_reset(context);
    set_option("parallel_mode", "auto_parallel");
    set_option("strategy_ckpt_only_trainable_params", "false");
    expect_refusal(TRM_UNSUPPORTED, "plans name operators");
    static const char *const unlike[][3] = {{"gradients_mean", "false", "one device's"},
                                            {"loss_repeated_mean", "false", "counts once"},
                                            {"enable_alltoall", "false", "cheapest route"}};
    for (size_t i = 0; i < sizeof unlike / sizeof unlike[0]; i++) {
        trm_context_reset(context);
        set_option("parallel_mode", i % 2 == 0 ? "semi_auto_parallel" : "auto_parallel");
        set_option(unlike[i][0], unlike[i][1]);
        expect_refusal(TRM_UNSUPPORTED, unlike[i][2]);
    }
    trm_context_reset(context);
    set_option("parallel_mode", "semi_auto_parallel");
    set_option("deterministic", "strict");
    set_option("deterministic_block", "4");
    int32_t accumulate;
    assert_int_equal(resolve_options(&accumulate).block, 4);
    trm_context_reset(context);
    set_option("parallel_mode", "auto_parallel");
    set_option("deterministic", "strict");
    assert_int_equal(resolve_options(&accumulate).block, -1); /* follows from the global batch */
}

static void options_become_those_of_an_executor(void **state) {
    int32_t accumulate;
    trm_parallel_options o = resolve_options(&accumulate);
    assert_true(o.comm == NULL && o.bucket == TRM_BUCKET_AUTO && o.wire == TRM_FLOAT32 &&
                accumulate == 1);
    set_option("parallel_mode", "data_parallel");
    assert_int_equal(resolve_options(&accumulate).cooperative, TRM_COOPERATIVE_OFF);
    set_option("cooperative_gradients", "conv");
    assert_int_equal(resolve_options(&accumulate).cooperative, TRM_COOPERATIVE_CONV);
    set_option("cooperative_gradients", "all");
    assert_int_equal(resolve_options(&accumulate).cooperative, TRM_COOPERATIVE_ALL);
    trm_context_reset(context);
    static const char *const modes[] = {"data_parallel", "hybrid_parallel", "semi_auto_parallel",
                                        "auto_parallel"};
    for (size_t i = 0; i < sizeof modes / sizeof modes[0]; i++) { /* one rule for batch norm */
        set_option("parallel_mode", modes[i]);
        assert_int_equal(resolve_options(&accumulate).sync_batch_norm, 0);
        set_option("sync_batch_norm", "off");
        assert_int_equal(resolve_options(&accumulate).sync_batch_norm, TRM_NORM_LOCAL);
        set_option("sync_batch_norm", "on");
        assert_int_equal(resolve_options(&accumulate).sync_batch_norm, 0);
        trm_context_reset(context);
    }
    set_option("parallel_mode", "hybrid_parallel");
    o = resolve_options(&accumulate);
    assert_true(o.sum && o.broadcast == TRM_ON && !o.shard_optimizer && !o.cooperative &&
                o.sync_batch_norm == 0 && o.block == 0);
    set_option("gradients_mean", "true");
    set_option("parameter_broadcast", "false");
    set_option("all_reduce_fusion_config", "20,35");
    set_option("enable_parallel_optimizer", "true");
    set_option("grad_accumulation_step", "3");
    set_option("sync_batch_norm", "2");
    set_option("gradient_fp32_sync", "false");
    set_option("layerwise_parameters", "fc, layer4.1");
    set_option("deterministic", "strict");
    o = resolve_options(&accumulate);
    assert_true(!o.sum && o.broadcast == TRM_OFF && o.shard_optimizer && o.sync_batch_norm == 2 &&
                o.block == -1);
    assert_true(o.wire == TRM_BFLOAT16 && accumulate == 3 && o.bucket == TRM_BUCKET_LIST);
    assert_true(o.bucket_list_count == 2 && o.bucket_list[0] == 20 && o.bucket_list[1] == 35);
    assert_int_equal(o.layerwise_count, 2);
    assert_string_equal(o.layerwise[0], "fc");
    assert_string_equal(o.layerwise[1], "layer4.1");
    trm_context_reset(context);
    set_option("parallel_mode", "data_parallel");
    set_option("comm_fusion", "size:2.5");
    o = resolve_options(&accumulate);
    assert_true(o.bucket == TRM_BUCKET_SIZE && o.bucket_bytes == 2500000);
    set_option("comm_fusion", "off");
    assert_int_equal(resolve_options(&accumulate).bucket, TRM_BUCKET_OFF);
    set_option("deterministic", "strict");
    set_option("deterministic_block", "4");
    assert_int_equal(resolve_options(&accumulate).block, 4);
    set_option("gradient_wire", "fp16");
    assert_int_equal(resolve_options(&accumulate).wire, TRM_FLOAT16);
    set_option("comm_fusion", "index:7");
    assert_int_equal(resolve_options(&accumulate).bucket_list[0], 7);
}

/* ---- ranks ----------------------------------------------------------------------------------- */

/* A training of two ranks with one option set, in memory that they share with the test. */
typedef struct play {
    const char *option, *value;
    float loss[2][4]; /* by rank and step */
    int32_t buckets;  /* of gradients */
    int64_t epoch_steps;
} play;

static trm_node build_network(trm_graph *g, const trm_inputs *inputs, void *unused) {
    trm_node x = trm_reshape(g, trm_inputs_get(inputs, "image"), trm_shape_of(-1, 3 * 8 * 8));
    trm_node w = trm_parameter(g, "fc.weight", trm_shape_of(10, 3 * 8 * 8), TRM_INIT_LINEAR);
    return trm_linear(g, x, w, trm_parameter(g, "fc.bias", trm_shape_of(10), TRM_INIT_ZERO));
}

static trm_status watch_step(void *to, const trm_progress *p, trm_error *e) {
    (void)e;
    ((float *)to)[p->global_step - 1] = p->loss;
    return TRM_OK;
}

static void train_rank(rank_context *context, trm_comm *comm, play *p) {
    int rank = context->rank;
    trm_context *c;
    trm_dataset *data;
    trm_model *model;
    trm_error e;
    EXPECT_OK(trm_context_create(&c, &e), e);
    EXPECT_OK(trm_context_set(c, "parallel_mode", "data_parallel", &e), e);
    EXPECT_OK(trm_context_set(c, "device_num", "2", &e), e);
    EXPECT_OK(trm_context_set(c, p->option, p->value, &e), e);
    const trm_random_options random = {
        .count = 64, .channels = 3, .height = 8, .width = 8, .classes = 10};
    EXPECT_OK(trm_dataset_random(&random, &data, &e), e);
    EXPECT_OK(trm_dataset_shard(data, 2, rank, TRM_SHARD_WRAP, &e), e);
    EXPECT_OK(trm_dataset_batch(data, 8, true, &e), e);
    const trm_model_options options = {.network = build_network,
                                       .data = data,
                                       .exec.backend = "ref",
                                       .exec.threads = 1,
                                       .learning_rate = {.base = 0.1},
                                       .exec.parallel = {.comm = comm},
                                       .context = c,
                                       .exec.seed = (uint64_t)rank};
    EXPECT_OK(trm_model_create(&options, &model, &e), e);
    EXPECT(strcmp(trm_context_get(c, "global_rank"), rank == 0 ? "0" : "1") == 0, "global_rank");
    trm_train_options t = {.data = data,
                           .until_step = 4,
                           .callbacks = {{.on_step_end = watch_step, .context = p->loss[rank]}}};
    EXPECT_OK(trm_model_train(model, &t, &e), e);
    trm_parallel_info info;
    trm_exec_get_parallel_info(trm_model_exec(model), &info);
    if (rank == 0) {
        p->buckets = info.buckets;
        p->epoch_steps = trm_model_epoch_steps(model, data);
    }
    trm_model_destroy(model);
    trm_dataset_destroy(data);
    trm_context_destroy(c);
}

static void rank_main(rank_context *context, trm_comm *comm) {
    train_rank(context, comm, context->arg);
}

static play train_with(const char *option, const char *value) {
    play *shared =
        mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    *shared = (play){.option = option, .value = value};
    ranks_run_joined(2, false, rank_main, shared, "context");
    play copy = *shared;
    munmap(shared, sizeof *shared);
    return copy;
}

/* Each option changes what it names, and nothing else. */
static void a_model_follows_its_context(void **state) {
    play sum = train_with("gradients_mean", "false"), mean = train_with("gradients_mean", "true");
    assert_true(sum.loss[0][0] == mean.loss[0][0] && sum.loss[0][1] != mean.loss[0][1]);
    for (int i = 0; i < 4; i++) {
        assert_true(sum.loss[0][i] == sum.loss[1][i]); /* of all ranks together */
    }
    play off = train_with("comm_fusion", "off"), half = train_with("gradient_fp32_sync", "false");
    assert_int_equal(off.buckets, 2);
    assert_int_equal(train_with("all_reduce_fusion_config", "1").buckets, 2);
    assert_int_equal(train_with("comm_fusion", "size:100").buckets, 1);
    play slices = train_with("enable_parallel_optimizer", "true");
    assert_memory_equal(off.loss, sum.loss, sizeof sum.loss);
    assert_memory_equal(slices.loss, sum.loss, sizeof sum.loss);
    assert_true(half.loss[0][3] != sum.loss[0][3]);
    play apart = train_with("parameter_broadcast", "false"); /* the ranks' seeds differ */
    assert_true(apart.loss[0][0] != sum.loss[0][0]);
    play more = train_with("grad_accumulation_step", "2");
    assert_int_equal(sum.epoch_steps, 4);
    assert_int_equal(more.epoch_steps, 2);
}

static void a_model_takes_one_or_the_other(void **state) {
    trm_dataset *data;
    trm_model *model;
    const trm_random_options random = {
        .count = 8, .channels = 3, .height = 8, .width = 8, .classes = 10};
    CHECK_OK(trm_dataset_random(&random, &data, &err), err);
    CHECK_OK(trm_dataset_batch(data, 8, true, &err), err);
    trm_model_options options = {.network = build_network,
                                 .data = data,
                                 .learning_rate = {.base = 0.1},
                                 .context = context,
                                 .exec.parallel = {.shard_optimizer = true}};
    CHECK_FAILS(trm_model_create(&options, &model, &err), TRM_INVALID, err,
                "only comm, mesh and plan");
    options.exec.parallel.shard_optimizer = false;
    set_option("device_num", "2");
    CHECK_FAILS(trm_model_create(&options, &model, &err), TRM_INVALID, err, "device_num is 2");
    trm_dataset_destroy(data);
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, begin_test, end_test)
    const struct CMUnitTest tests[] = {
        TEST(every_option_has_a_default_and_goes_back_to_it),
        TEST(values_outside_of_their_range_are_refused),
        TEST(options_that_exclude_each_other_are_named),
        TEST(options_become_those_of_an_executor),
        TEST(a_model_follows_its_context),
        TEST(a_model_takes_one_or_the_other),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
