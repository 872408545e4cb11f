/* SPDX-License-Identifier: Apache-2.0 */
/* Random networks cut in random ways, run on threads as ranks, against one device
 * (tests/partition_trial.h).
 *
 * images, clicks and tokens are the three families of networks; seeds are fixed. Plans that change
 * no order of sums must give the bits of one device (the _bit_for_bit tests), others the values up
 * to rounding. TRIREME_TEST_FILTER='clicks*' runs one family alone. */
#include "partition_trial.h"
#include "test_layers.h"

/* ---- networks -------------------------------------------------------------------------------- */

/* A convolution to `out` channels, padded so that stride 1 keeps the extent. Members that are zero:
 * a kernel of 1x1, stride, dilation and groups of 1. */
typedef struct conv_form {
    const char *name;
    int64_t out, kernel, stride, dilation, groups;
    bool bias;
} conv_form;

static trm_node add_conv(trm_graph *g, trm_node x, conv_form f) {
    const int64_t kernel = f.kernel > 0 ? f.kernel : 1, stride = f.stride > 0 ? f.stride : 1,
                  dilation = f.dilation > 0 ? f.dilation : 1, groups = f.groups > 0 ? f.groups : 1,
                  pad = dilation * (kernel - 1) / 2;
    trm_shape s = trm_node_shape(g, x);
    trm_graph_push_scope(g, "%s", f.name);
    trm_node y = trm_conv2d(
        g, x,
        trm_parameter(g, "weight", trm_shape_of(f.out, s.dim[1] / groups, kernel, kernel),
                      TRM_INIT_HE_NORMAL_FAN_OUT),
        f.bias ? trm_parameter(g, "bias", trm_shape_of(f.out), TRM_INIT_NORMAL_001) : TRM_NO_NODE,
        &(trm_conv_options){.stride = {stride, stride},
                            .dilation = {dilation, dilation},
                            .pad = {pad, pad, pad, pad},
                            .groups = groups});
    trm_graph_pop_scope(g);
    return y;
}

static trm_node add_norm(trm_graph *g, const char *name, trm_node x) {
    int64_t c = trm_node_shape(g, x).dim[1];
    trm_graph_push_scope(g, "%s", name);
    x = trm_batch_norm(g, x, trm_parameter(g, "weight", trm_shape_of(c), TRM_INIT_ONE),
                       trm_parameter(g, "bias", trm_shape_of(c), TRM_INIT_ZERO),
                       trm_state(g, "running_mean", TRM_FLOAT32, trm_shape_of(c), TRM_INIT_ZERO),
                       trm_state(g, "running_var", TRM_FLOAT32, trm_shape_of(c), TRM_INIT_ONE),
                       NULL);
    trm_graph_pop_scope(g);
    return x;
}

/* Stem, pool, a residual block with a projection, global pool, classes: sizes, strides and kernels
 * by variant. */
static trm_node build_images(trm_graph *g, uint64_t v) {
    int64_t batch = batch_of(v, 4, 6), size = pick_number(v, 1, 13, 19),
            classes = pick_number(v, 2, 8, 11);
    trm_node x = trm_input(g, "image", TRM_FLOAT32, trm_shape_of(batch, 3, size, size + 2));
    trm_node label = trm_input(g, "label", TRM_INT32, trm_shape_of(batch));
    const conv_form stem = {.name = "stem",
                            .out = 8,
                            .kernel = 2 * pick_number(v, 3, 0, 3) + 1,
                            .stride = pick_number(v, 4, 1, 2),
                            .bias = v % 2};
    const conv_form wide = {.name = "conv2",
                            .out = 8,
                            .kernel = 3,
                            .dilation = pick_number(v, 6, 1, 2),
                            .groups = v % 3 == 1 ? 4 : 1};
    const conv_form last = {.name = "conv5", .out = 8, .kernel = 3, .stride = 2, .bias = true};
    x = trm_relu(g, add_norm(g, "bn1", add_conv(g, x, stem)));
    const trm_pool_options pool = {.kernel = {3, 3},
                                   .stride = {pick_number(v, 5, 1, 2), 2},
                                   .pad = {1, 1, 1, 1},
                                   .count_padding = v % 3 == 0};
    x = v % 2 ? trm_avg_pool(g, x, &pool) : trm_max_pool(g, x, &pool);
    trm_node y = trm_relu(g, add_norm(g, "bn2", add_conv(g, x, wide)));
    y = add_norm(g, "bn3", add_conv(g, y, (conv_form){.name = "conv3", .out = 12}));
    trm_node side = add_norm(g, "bn4", add_conv(g, x, (conv_form){.name = "project", .out = 12}));
    y = trm_relu(g, trm_add(g, y, side));
    y = trm_relu(g, add_conv(g, y, last));
    trm_node logits = add_dense(g, "fc", trm_dropout(g, trm_global_avg_pool(g, y), 0.3), classes);
    return trm_softmax_cross_entropy(g, logits, label,
                                     &(trm_xent_options){.label_smoothing = v % 2 ? 0.1 : 0,
                                                         .use_ignore_index = v % 3 == 2,
                                                         .ignore_index = 1});
}

/* Tables, towers, a bottom of concatenated features, losses of both kinds, means and maxima. */
static trm_node build_clicks(trm_graph *g, uint64_t v) {
    int64_t batch = batch_of(v, 5, 9), fields = 3, width = 4, rows = pick_number(v, 1, 11, 17);
    trm_node ids = trm_input(g, "ids", TRM_INT32, trm_shape_of(batch, fields));
    trm_node x = trm_input(g, "dense", TRM_FLOAT32, trm_shape_of(batch, 6));
    trm_node label = trm_input(g, "target", TRM_FLOAT32, trm_shape_of(batch, 1));
    trm_node e = trm_embedding(
        g, trm_parameter(g, "table", trm_shape_of(rows, width), TRM_INIT_NORMAL_001), ids);
    e = trm_reshape(g, e, trm_shape_of(batch, fields * width));
    x = trm_tanh(g, add_dense(g, "bottom", x, 8));
    trm_node all = trm_concat(g, (trm_node[]){e, x}, 2, 1);
    trm_node h = trm_dropout(g, trm_relu(g, add_dense(g, "top1", all, 9)), 0.2);
    trm_node w = trm_parameter(g, "mix", trm_shape_of(9, 6), TRM_INIT_LINEAR);
    h = trm_sigmoid(g, trm_matmul(g, h, w, false, false));
    trm_node spread = trm_sub(g, h, trm_reduce_mean(g, h, (const int32_t[]){0}, 1, true));
    spread =
        trm_mul(g, spread,
                trm_exp(g, trm_scale(g,
                                     trm_transpose(g, trm_transpose(g, h, (const int32_t[]){1, 0}),
                                                   (const int32_t[]){1, 0}),
                                     -1)));
    trm_node soft = trm_softmax(g, spread);
    trm_node top = trm_reduce_max(g, spread, (const int32_t[]){1}, 1, true);
    trm_node z = trm_add(g, add_dense(g, "out", trm_add(g, spread, soft), 1), top);
    trm_node extra = trm_reduce_mean(g, trm_mul(g, soft, soft), NULL, 0, false);
    return trm_add(g, trm_bce_with_logits(g, z, label), extra);
}

/* Matrices whose gradients stay in factors, a half of them too, where no sum over ranks is due. */
static trm_node build_wide(trm_graph *g, uint64_t v) {
    int64_t batch = pick_number(v, 0, 4, 6), hidden = pick_number(v, 1, 300, 320),
            classes = pick_number(v, 2, 440, 460);
    trm_node x = trm_input(g, "dense", TRM_FLOAT32, trm_shape_of(batch, 9));
    trm_node label = trm_input(g, "label", TRM_INT32, trm_shape_of(batch));
    x = trm_relu(g, add_dense(g, "a", x, hidden));
    return trm_softmax_cross_entropy(g, add_dense(g, "b", x, classes), label, NULL);
}

/* A layer of a transformer with experts, tied words, and a loss of which logits do not exist. */
static trm_node build_tokens(trm_graph *g, uint64_t v) {
    enum { LENGTH = 5, WIDTH = 8, HEADS = 2, WORDS = 11 };
    int64_t batch = batch_of(v, 4, 6);
    trm_node ids = trm_input(g, "ids", TRM_INT32, trm_shape_of(batch, LENGTH));
    trm_node next = trm_input(g, "label", TRM_INT32, trm_shape_of(batch, LENGTH));
    trm_node words = trm_parameter(g, "words", trm_shape_of(WORDS, WIDTH), TRM_INIT_LINEAR);
    trm_node where = trm_parameter(g, "where", trm_shape_of(LENGTH, WIDTH), TRM_INIT_LINEAR);
    trm_node gamma = trm_parameter(g, "norm.weight", trm_shape_of(WIDTH), TRM_INIT_ONE);
    trm_node x = trm_add(g, trm_embedding(g, words, ids), where), balance;
    trm_node y =
        v % 2
            ? trm_rms_norm(g, x, gamma, 0)
            : trm_layer_norm(g, x, gamma,
                             trm_parameter(g, "norm.bias", trm_shape_of(WIDTH), TRM_INIT_ZERO), 0);
    y = trm_attention_packed(g, add_dense(g, "qkv", y, 3 * WIDTH), HEADS, 0, TRM_NO_NODE,
                             &(trm_attention_options){.causal = true});
    x = trm_add(g, x, add_dense(g, "out", y, WIDTH));
    const trm_experts e = {
        .router = trm_parameter(g, "router", trm_shape_of(4, WIDTH), TRM_INIT_LINEAR),
        .up = trm_parameter(g, "up", trm_shape_of(4, 6, WIDTH), TRM_INIT_NORMAL_001),
        .down = trm_parameter(g, "down", trm_shape_of(4, WIDTH, 6), TRM_INIT_NORMAL_001),
        .top_k = 2};
    x = trm_add(g, x, trm_mixture_of_experts(g, x, &e, &balance));
    x = trm_add(g, x,
                add_dense(g, "second",
                          trm_gelu(g, add_dense(g, "first", x, 12), (trm_gelu_form)(v % 2)),
                          WIDTH));
    return trm_linear_cross_entropy(g, x, words, next, NULL);
}

static trm_status twice_infer(const trm_custom_op *self, const trm_tensor *in, int32_t count,
                              trm_tensor *out, trm_error *err) {
    (void)self, (void)count, (void)err;
    out[0].shape = in[0].shape;
    out[0].dtype = in[0].dtype;
    return TRM_OK;
}
static trm_status twice_run(const trm_custom_op *self, const trm_tensor *in, int32_t count,
                            trm_tensor *out, trm_error *err) {
    (void)self, (void)count, (void)err;
    for (int64_t i = 0; i < trm_shape_count(&in[0].shape); i++) {
        ((float *)out[0].data)[i] = 2 * ((const float *)in[0].data)[i];
    }
    return TRM_OK;
}
static void twice_gradient(const trm_custom_op *self, trm_graph *g, const trm_node *in,
                           int32_t count, const trm_node *out, const trm_node *d_out,
                           trm_node *d_in) {
    (void)self, (void)in, (void)count, (void)out;
    d_in[0] = trm_scale(g, d_out[0], 2);
}
static const trm_custom_op twice = {.name = "twice",
                                    .outputs = 1,
                                    .infer = twice_infer,
                                    .run = twice_run,
                                    .gradient = twice_gradient};

/* An operator without a rule, between two that are cut. */
static trm_node build_strange(trm_graph *g, uint64_t v) {
    trm_node x = trm_input(g, "dense", TRM_FLOAT32, trm_shape_of(pick_number(v, 0, 5, 9), 6));
    trm_node label = trm_input(g, "label", TRM_INT32, trm_shape_of(trm_node_shape(g, x).dim[0]));
    trm_node h = trm_tanh(g, add_dense(g, "a", x, 9)), y;
    trm_custom(g, &twice, &h, 1, &y);
    return trm_softmax_cross_entropy(g, add_dense(g, "b", y, 8), label, NULL);
}

enum { STRICT_BATCH = 8 };

/* Processes that have one copy of the parameters and a slice of the optimiser each (`hosts`: ranks
 * of as many hosts, each with a copy of its own), and such that have all of it. */
static void compare_slices(network_function network, const char *mesh,
                           trm_optimizer_options optimizer, trm_precision precision, bool strict,
                           int32_t accumulate, bool hosts) {
    trm_error err;
    trmi_mesh parsed;
    shared *both =
        mmap(NULL, 2 * sizeof *both, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK_OK(trmi_mesh_parse(mesh, &parsed, &err), err);
    int ranks = trmi_mesh_ranks(&parsed);
    strict_batch = strict ? STRICT_BATCH : 0;
    for (int i = 0; i < 2; i++) {
        both[i].trial = (trial){.network = network,
                                .variant = 1,
                                .mesh = mesh,
                                .optimizer = optimizer,
                                .precision = precision,
                                .blocks = strict ? STRICT_BATCH : 0,
                                .accumulate = accumulate,
                                .slices = i == 1};
        joined_start start = {rank_main, &both[i]};
        ranks_run(ranks, hosts ? 1 : 0, !hosts, rank_joined, &start, "slices");
    }
    for (int r = 0; r < ranks; r++) {
        const outcome *whole = &both[0].of[r], *slices = &both[1].of[r];
        CHECK_OK(whole->status, whole->error);
        CHECK_OK(slices->status, slices->error);
        assert_true(slices->one_copy == !hosts && !whole->one_copy &&
                    slices->own_slots < whole->own_slots);
        assert_true((slices->casts > 0) == (precision == TRM_PRECISION_MIXED && !hosts));
        same_bits(&both[1].trial, r, 0, "losses", slices->loss, whole->loss, STEPS);
        same_bits(&both[1].trial, r, 0, "variables", slices->values, whole->values,
                  whole->values_count);
    }
    strict_batch = 0;
    munmap(both, 2 * sizeof *both);
}

/* Without a tuning file algorithms are guessed, by what pairs of bfloat16 gain; each process
 * measures that once, and where it lies between two answers (a sanitizer's build) ranks choose
 * differently. Ranks that are forked after this know it. */
static void measure_pairs_here(void) {
    const trial mixed = {.network = build_images,
                         .variant = 1,
                         .mesh = "1",
                         .optimizer = {.kind = TRM_SGD},
                         .precision = TRM_PRECISION_MIXED};
    static outcome once;
    trm_error err;
    CHECK_OK(run_trial(&mixed, NULL, &once, &err), err);
}

static void one_copy_in_slices_has_the_same_bits(void **state) {
    static const trm_optimizer_options optimizers[] = {
        {.kind = TRM_MOMENTUM, .momentum = 0.9, .weight_decay = 1e-3},
        {.kind = TRM_ADAM, .weight_decay = 1e-2, .decoupled = true, .clip_norm = 0.1},
        {.kind = TRM_LARS, .momentum = 0.9, .weight_decay = 1e-3, .clip_norm = 0.5}};
    (void)state;
    measure_pairs_here();
    for (int i = 0; i < 6; i++) {
        trm_precision precision = i % 2 ? TRM_PRECISION_MIXED : TRM_PRECISION_FP32;
        compare_slices(build_images, i % 3 == 1 ? "2x2" : "2", optimizers[i % 3], precision, false,
                       1 + i / 3, false);
        compare_slices(build_images, i % 3 == 1 ? "4" : "2", optimizers[i % 3], precision, true,
                       1 + i / 3, false);
    }
    for (int i = 0; i < 4; i++) {
        compare_slices(build_images, i == 1 ? "3" : "2", optimizers[i % 3],
                       i % 2 ? TRM_PRECISION_MIXED : TRM_PRECISION_FP32, i >= 2, 1 + i / 2, true);
    }
}

static int warned;
static void keep_warning(void *context, trm_log_level level, const char *room, const char *line) {
    (void)context, (void)room;
    warned += level == TRM_LOG_WARN && strstr(line, "runs whole on each of") != NULL &&
              strstr(line, "custom operator") != NULL;
}

static void images_cut_at_random(void **state) {
    (void)state;
    const char *first = getenv("TRIREME_SHARD_FIRST");
    try_all(build_images, first != NULL ? (uint64_t)atoll(first) : 1, (int)count_trials(6),
            "onednn", 1, 2e-4);
}
static void images_by_the_reference(void **state) {
    (void)state;
    try_all(build_images, 1000, (int)count_trials(2), "ref", 1, 2e-4);
}
static void clicks_cut_at_random(void **state) {
    (void)state;
    try_all(build_clicks, 2000, (int)count_trials(8), "onednn", 1, 2e-4);
}

static void wide_layers_cut_at_random(void **state) {
    (void)state;
    try_all(build_wide, 4000, (int)count_trials(6), "onednn", 1, 2e-4);
    try_all(build_wide, 4100, (int)count_trials(2), "ref", 1, 2e-4);
    try_all(build_wide, 4200, (int)count_trials(4), "onednn", 2,
            2e-4); /* micro-batches: gradients are whole */
}

/* Checks that rank 0's program of a plan keeps in factors the gradients that the search expects. */
static void check_factors(bool factored, int expected) {
    trm_error err;
    trm_graph *g, *training;
    trmi_arena arena = {0};
    trmi_roots roots;
    trmi_mesh mesh;
    trmi_backend *backend;
    trmi_partition_plan *plan;
    trm_program *program;
    CHECK_OK(trmi_backend_ref(1, &backend, &err), err);
    CHECK_OK(trm_graph_create(&(trm_graph_options){.training = true}, &g, &err), err);
    trmi_plan_options options = {.target = &backend->target,
                                 .loss = build_wide(g, 1),
                                 .dense_gradients = true,
                                 .factored_gradients = factored};
    CHECK_OK(trmi_training_graph(g, &options, &training, &roots, &arena, &err), err);
    CHECK_OK(trmi_mesh_parse("2", &mesh, &err), err);
    CHECK_OK(trmi_partition_plan_create(&mesh, &plan, &err), err);
    int assumed = 0, compiled = 0, layers = 0;
    for (int64_t i = 1; i < training->ops_count; i++) {
        const trmi_op *op = &training->ops[i];
        trmi_strategy strategy;
        if (op->kind == TRMI_OP_LINEAR) {
            const char *letters = layers++ == 0 ? "n" : "k";
            CHECK_OK(trmi_partition_plan_set(plan, op->name, letters, false, NULL, &err), err);
            assert_true(trmi_partition_strategy(training, op, &mesh, letters, &strategy));
            assumed += trmi_partition_in_factors(training, op, &strategy, 1);
        }
    }
    options.partition = plan;
    CHECK_OK(trmi_plan_create(g, &options, &program, &err), err);
    for (int32_t i = 0; i < program->params_count; i++) {
        compiled += program->params[i].factor_left != 0;
    }
    assert_int_equal(assumed, expected);
    assert_int_equal(compiled, expected);
    trmi_plan_destroy(program);
    trmi_partition_plan_destroy(plan);
    trm_graph_destroy(training);
    trm_graph_destroy(g);
    trmi_arena_free(&arena);
    backend->destroy(backend);
}

static void what_the_search_takes_for_factors_is_compiled_so(void **state) {
    (void)state;
    check_factors(true, 1); /* the layer that is cut by its columns */
    check_factors(false, 0);
}

/* ---- batch norm over each rank's samples ----------------------------------------------------- */

enum { NORM_BATCH = 8, NORM_WIDTH = 6, NORM_VALUES = 512 };
/* Two ranks in memory that they share with the test. */
typedef struct normed {
    bool split, local; /* by a plan, or data parallel; norm over each rank's samples, or all */
    double loss[2];
    float values[2][NORM_VALUES]; /* of all variables, by rank */
} normed;

static void norm_rank(rank_context *context, trm_comm *comm) {
    normed *all = context->arg;
    trm_error err;
    trm_graph *g;
    trm_exec *exec;
    trm_tensor t;
    int64_t rows = all->split ? NORM_BATCH : NORM_BATCH / 2,
            first = all->split ? 0 : context->rank * rows, at = 0;
    CHECK_OK(trm_graph_create(&(trm_graph_options){.training = true}, &g, &err), err);
    trm_node x = trm_input(g, "dense", TRM_FLOAT32, trm_shape_of(rows, NORM_WIDTH));
    trm_shape c = trm_shape_of(9);
    x = trm_batch_norm(g, add_dense(g, "a", x, 9), trm_parameter(g, "gamma", c, TRM_INIT_ONE),
                       trm_parameter(g, "beta", c, TRM_INIT_ZERO),
                       trm_state(g, "mean", TRM_FLOAT32, c, TRM_INIT_ZERO),
                       trm_state(g, "variance", TRM_FLOAT32, c, TRM_INIT_ONE), NULL);
    trm_node loss =
        trm_softmax_cross_entropy(g, add_dense(g, "b", trm_relu(g, x), 8),
                                  trm_input(g, "label", TRM_INT32, trm_shape_of(rows)), NULL);
    const trm_exec_options options = {
        .loss = loss,
        .threads = 1,
        .seed = 5,
        .tuning_file = "",
        .optimizer = {.kind = TRM_MOMENTUM, .momentum = 0.9},
        .parallel = {.comm = comm,
                     .split.kind = all->split ? TRM_SPLIT_PLANNED : TRM_SPLIT_NONE,
                     .sync_batch_norm = all->split && !all->local ? 0 : TRM_NORM_LOCAL}};
    CHECK_OK(trm_exec_create(g, &options, &exec, &err), err);
    trm_graph_destroy(g);
    for (int step = 0; step < STEPS; step++) {
        CHECK_OK(trm_exec_input(exec, "dense", &t, &err), err);
        for (int64_t i = 0; i < rows * NORM_WIDTH; i++) {
            uint64_t number = (uint64_t)(first * NORM_WIDTH + i);
            ((float *)t.data)[i] =
                trmi_unit_float(trmi_random_u32((uint64_t)step, TRMI_STREAM_TEST, number));
        }
        CHECK_OK(trm_exec_input(exec, "label", &t, &err), err);
        for (int64_t i = 0; i < rows; i++) {
            ((int32_t *)t.data)[i] = (int32_t)((first + i + step) % 8);
        }
        CHECK_OK(trm_exec_forward_backward(exec, &err), err);
        CHECK_OK(trm_exec_update(exec, 0.05, &err), err);
    }
    all->loss[context->rank] = trm_exec_loss(exec);
    for (int32_t i = 0; i < trm_exec_variable_count(exec); i++) {
        trm_variable v = trm_exec_variable(exec, i);
        if (v.kind == TRM_VARIABLE_PARAMETER) {
            trm_exec_read(exec, i, all->values[context->rank] + at);
            at += trm_shape_count(&v.shape);
        }
    }
    trm_exec_destroy(exec);
}

static double norms_apart(normed *a, normed *b) {
    ranks_run_joined(2, false, norm_rank, a, "norms");
    ranks_run_joined(2, false, norm_rank, b, "norms");
    return fmax(distance_of(a->values[0], b->values[0], NORM_VALUES),
                fabs(a->loss[0] - b->loss[0]));
}

static void norms_of_each_ranks_samples_are_those_of_data_parallel(void **state) {
    (void)state;
    normed *both =
        mmap(NULL, 2 * sizeof *both, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    both[0] = (normed){.split = false};
    both[1] = (normed){.split = true, .local = true};
    double same = norms_apart(&both[0], &both[1]);
    both[1] = (normed){.split = true};
    double joined = norms_apart(&both[0], &both[1]);
    if (!(same < 1e-5 && joined > 1e-3)) {
        fail_msg("each rank's: %g apart, all: %g", same, joined);
    }
    munmap(both, 2 * sizeof *both);
}

static const trm_optimizer_options momentum = {
    .kind = TRM_MOMENTUM, .momentum = 0.9, .weight_decay = 1e-3};

static const trm_optimizer_options lars = {
    .kind = TRM_LARS, .momentum = 0.9, .weight_decay = 1e-3, .clip_norm = 0.5};

static void images_bit_for_bit(void **state) {
    (void)state;
    try_bits(&(bits){build_images, 1, "ref", 8, 8, momentum, TRM_PRECISION_FP32},
             (int)count_trials(9));
    try_bits(&(bits){build_images, 1, "onednn", 8, 4, momentum, TRM_PRECISION_FP32},
             (int)count_trials(16));
    assert_true(plans_with_repeats > count_trials(25) / 2);
}
static void images_with_groups_and_ignored_labels_bit_for_bit(void **state) {
    (void)state;
    try_bits(&(bits){build_images, 4, "onednn", 12, 12, lars, TRM_PRECISION_FP32},
             (int)count_trials(9));
    try_bits(&(bits){build_images, 5, "onednn", 8, 8, momentum, TRM_PRECISION_MIXED},
             (int)count_trials(9));
}
static void clicks_bit_for_bit(void **state) {
    (void)state;
    const trm_optimizer_options adam = {.kind = TRM_ADAM, .clip_norm = 0.1};
    try_bits(&(bits){build_clicks, 2, "onednn", 8, 8, adam, TRM_PRECISION_FP32},
             (int)count_trials(9));
    try_bits(&(bits){build_clicks, 2, "ref", 16, 8, adam, TRM_PRECISION_FP32},
             (int)count_trials(9));
}

static void tokens_bit_for_bit(void **state) {
    (void)state;
    const trm_optimizer_options adam = {.kind = TRM_ADAM, .weight_decay = 1e-2, .decoupled = true};
    try_bits(&(bits){build_tokens, 2, "onednn", 8, 8, adam, TRM_PRECISION_FP32},
             (int)count_trials(12));
    try_bits(&(bits){build_tokens, 3, "ref", 8, 4, adam, TRM_PRECISION_FP32}, (int)count_trials(9));
}

static void an_operator_without_a_rule_runs_whole_and_says_its_price(void **state) {
    (void)state;
    trm_log_set_sink(keep_warning, NULL, TRM_LOG_WARN);
    try_all(build_strange, 3000, 3, "onednn", 1, 2e-4);
    trm_log_set_sink(NULL, NULL, TRM_LOG_WARN);
    assert_int_equal(warned, 3); /* rank 0 of each job */
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(images_bit_for_bit),
        cmocka_unit_test(images_with_groups_and_ignored_labels_bit_for_bit),
        cmocka_unit_test(clicks_bit_for_bit),
        cmocka_unit_test(tokens_bit_for_bit),
        cmocka_unit_test(one_copy_in_slices_has_the_same_bits),
        cmocka_unit_test(images_cut_at_random),
        cmocka_unit_test(clicks_cut_at_random),
        cmocka_unit_test(wide_layers_cut_at_random),
        cmocka_unit_test(what_the_search_takes_for_factors_is_compiled_so),
        cmocka_unit_test(norms_of_each_ranks_samples_are_those_of_data_parallel),
        cmocka_unit_test(an_operator_without_a_rule_runs_whole_and_says_its_price),
        cmocka_unit_test(images_by_the_reference),
    };
    cmocka_set_test_filter(getenv("TRIREME_TEST_FILTER")); /* NULL: all */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
