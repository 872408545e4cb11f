/* Random networks cut in random ways, run on threads as ranks, against one device: losses, gradients of the
 * first step, parameters and states after all steps. TRIREME_SHARD_TRIALS=200 tries more (of each kind), from
 * TRIREME_SHARD_FIRST on; TRIREME_SHARD_ONLY=OPERATOR pins that line only, to find who is wrong;
 * TRIREME_TEST_FILTER='clicks*' runs these alone. */
#include "check.h"

#include "exec/exec.h"
#include "exec/shard.h"

#include "base/error.h"

#include "base/rng.h"
#include "comm/ranks.h"

#include <math.h>
#include <sys/mman.h>

enum { STEPS = 3, VALUES = 60000, RANKS = 8, TEXT = 16384 };

typedef trm_node (*network_function)(trm_graph *g, uint64_t variant);

typedef struct trial {
    network_function network;
    uint64_t variant;
    const char *mesh;
    const char *backend;
    char plan[TEXT];
    trm_optimizer_options optimizer;
    trm_precision precision;
    bool exact; /* bit for bit */
    int32_t accumulate;
} trial;

typedef struct outcome {
    float loss[STEPS];
    float gradients[VALUES], values[VALUES];
    int64_t gradients_count, values_count;
    trm_status status;
    trm_error error;
} outcome;

typedef struct shared {
    trial trial;
    outcome of[RANKS];
} shared;

/* ---- networks ------------------------------------------------------------------------------------------------------- */

static int64_t pick(uint64_t variant, uint64_t what, int64_t from, int64_t to) {
    return from + (int64_t)(trmi_random_u32(variant, TRMI_STREAM_TEST, what) % (uint32_t)(to - from + 1));
}

static trm_node conv(trm_graph *g, const char *name, trm_node x, int64_t out, int64_t kernel, int64_t stride,
                     int64_t dilation, int64_t groups, bool bias) {
    trm_shape s = trm_node_shape(g, x);
    trm_graph_push_scope(g, "%s", name);
    int64_t pad = dilation * (kernel - 1) / 2;
    trm_node y = trm_conv2d(g, x, trm_parameter(g, "weight", trm_shape_of(out, s.dim[1] / groups, kernel, kernel),
                                                TRM_INIT_HE_NORMAL_FAN_OUT),
                            bias ? trm_parameter(g, "bias", trm_shape_of(out), TRM_INIT_NORMAL_001) : TRM_NO_NODE,
                            &(trm_conv_options){.stride = {stride, stride}, .dilation = {dilation, dilation},
                                                .pad = {pad, pad, pad, pad}, .groups = groups});
    trm_graph_pop_scope(g);
    return y;
}

static trm_node norm(trm_graph *g, const char *name, trm_node x) {
    int64_t c = trm_node_shape(g, x).dim[1];
    trm_graph_push_scope(g, "%s", name);
    x = trm_batch_norm(g, x, trm_parameter(g, "weight", trm_shape_of(c), TRM_INIT_ONE),
                       trm_parameter(g, "bias", trm_shape_of(c), TRM_INIT_ZERO),
                       trm_state(g, "running_mean", TRM_FLOAT32, trm_shape_of(c), TRM_INIT_ZERO),
                       trm_state(g, "running_var", TRM_FLOAT32, trm_shape_of(c), TRM_INIT_ONE), NULL);
    trm_graph_pop_scope(g);
    return x;
}

static trm_node dense(trm_graph *g, const char *name, trm_node x, int64_t out) {
    trm_shape s = trm_node_shape(g, x);
    trm_graph_push_scope(g, "%s", name);
    x = trm_linear(g, x, trm_parameter(g, "weight", trm_shape_of(out, s.dim[s.rank - 1]), TRM_INIT_LINEAR),
                   trm_parameter(g, "bias", trm_shape_of(out), TRM_INIT_LINEAR));
    trm_graph_pop_scope(g);
    return x;
}

/* Stem, pool, a residual block with a projection, global pool, classes: sizes, strides and kernels by variant. */
static trm_node images(trm_graph *g, uint64_t v) {
    int64_t batch = pick(v, 0, 4, 6), size = pick(v, 1, 13, 19), classes = pick(v, 2, 8, 11);
    trm_node x = trm_input(g, "image", TRM_FLOAT32, trm_shape_of(batch, 3, size, size + 2));
    trm_node label = trm_input(g, "label", TRM_INT32, trm_shape_of(batch));
    x = trm_relu(g, norm(g, "bn1", conv(g, "stem", x, 8, 2 * pick(v, 3, 0, 3) + 1, pick(v, 4, 1, 2), 1, 1, v % 2)));
    const trm_pool_options pool = {.kernel = {3, 3}, .stride = {pick(v, 5, 1, 2), 2}, .pad = {1, 1, 1, 1},
                                   .count_padding = v % 3 == 0};
    x = v % 2 ? trm_avg_pool(g, x, &pool) : trm_max_pool(g, x, &pool);
    trm_node y = trm_relu(g, norm(g, "bn2", conv(g, "conv2", x, 8, 3, 1, pick(v, 6, 1, 2), v % 3 == 1 ? 4 : 1, false)));
    y = norm(g, "bn3", conv(g, "conv3", y, 12, 1, 1, 1, 1, false));
    trm_node side = norm(g, "bn4", conv(g, "project", x, 12, 1, 1, 1, 1, false));
    y = trm_relu(g, trm_add(g, y, side));
    y = trm_relu(g, conv(g, "conv5", y, 8, 3, 2, 1, 1, true));
    trm_node logits = dense(g, "fc", trm_dropout(g, trm_global_avg_pool(g, y), 0.3), classes);
    return trm_softmax_cross_entropy(g, logits, label,
                                     &(trm_xent_options){.label_smoothing = v % 2 ? 0.1 : 0,
                                                         .use_ignore_index = v % 3 == 2, .ignore_index = 1});
}

/* Tables, towers, a bottom of concatenated features, losses of both kinds, means and maxima. */
static trm_node clicks(trm_graph *g, uint64_t v) {
    int64_t batch = pick(v, 0, 5, 9), fields = 3, width = 4, rows = pick(v, 1, 11, 17);
    trm_node ids = trm_input(g, "ids", TRM_INT32, trm_shape_of(batch, fields));
    trm_node x = trm_input(g, "dense", TRM_FLOAT32, trm_shape_of(batch, 6));
    trm_node label = trm_input(g, "target", TRM_FLOAT32, trm_shape_of(batch, 1));
    trm_node e = trm_embedding(g, trm_parameter(g, "table", trm_shape_of(rows, width), TRM_INIT_NORMAL_001), ids);
    e = trm_reshape(g, e, trm_shape_of(batch, fields * width));
    x = trm_tanh(g, dense(g, "bottom", x, 8));
    trm_node all = trm_concat(g, (trm_node[]){e, x}, 2, 1);
    trm_node h = trm_dropout(g, trm_relu(g, dense(g, "top1", all, 9)), 0.2);
    trm_node w = trm_parameter(g, "mix", trm_shape_of(9, 6), TRM_INIT_LINEAR);
    h = trm_sigmoid(g, trm_matmul(g, h, w, false, false));
    trm_node spread = trm_sub(g, h, trm_reduce_mean(g, h, (const int32_t[]){0}, 1, true));
    spread = trm_mul(g, spread, trm_exp(g, trm_scale(g, trm_transpose(g, trm_transpose(g, h, (const int32_t[]){1, 0}),
                                                                     (const int32_t[]){1, 0}), -1)));
    trm_node soft = trm_softmax(g, spread);
    trm_node top = trm_reduce_max(g, spread, (const int32_t[]){1}, 1, true);
    trm_node z = trm_add(g, dense(g, "out", trm_add(g, spread, soft), 1), top);
    trm_node extra = trm_reduce_mean(g, trm_mul(g, soft, soft), NULL, 0, false);
    return trm_add(g, trm_bce_with_logits(g, z, label), extra);
}

static trm_status twice_infer(const trm_custom_op *self, const trm_tensor *in, int32_t count, trm_tensor *out, trm_error *err) {
    (void)self, (void)count, (void)err;
    out[0].shape = in[0].shape;
    out[0].dtype = in[0].dtype;
    return TRM_OK;
}
static trm_status twice_run(const trm_custom_op *self, const trm_tensor *in, int32_t count, trm_tensor *out, trm_error *err) {
    (void)self, (void)count, (void)err;
    for (int64_t i = 0; i < trm_shape_count(&in[0].shape); i++) {
        ((float *)out[0].data)[i] = 2 * ((const float *)in[0].data)[i];
    }
    return TRM_OK;
}
static void twice_gradient(const trm_custom_op *self, trm_graph *g, const trm_node *in, int32_t count, const trm_node *out,
                           const trm_node *d_out, trm_node *d_in) {
    (void)self, (void)in, (void)count, (void)out;
    d_in[0] = trm_scale(g, d_out[0], 2);
}
static const trm_custom_op twice = {.name = "twice", .outputs = 1, .infer = twice_infer, .run = twice_run, .gradient = twice_gradient};

/* An operator that nobody has a rule for, between two that are cut. */
static trm_node strange(trm_graph *g, uint64_t v) {
    trm_node x = trm_input(g, "dense", TRM_FLOAT32, trm_shape_of(pick(v, 0, 5, 9), 6));
    trm_node label = trm_input(g, "label", TRM_INT32, trm_shape_of(trm_node_shape(g, x).dim[0]));
    trm_node h = trm_tanh(g, dense(g, "a", x, 9)), y;
    trm_custom(g, &twice, &h, 1, &y);
    return trm_softmax_cross_entropy(g, dense(g, "b", y, 8), label, NULL);
}

/* ---- one job ---------------------------------------------------------------------------------------------------------- */

static void feed(trm_exec *exec, int step) {
    trm_error err;
    static const char *const names[] = {"image", "label", "ids", "dense", "target"};
    for (int n = 0; n < 5; n++) {
        trm_tensor t;
        if (trm_exec_input(exec, names[n], &t, &err) != TRM_OK) {
            continue;
        }
        for (int64_t i = 0; i < trm_shape_count(&t.shape); i++) {
            uint32_t bits = trmi_random_u32((uint64_t)(step * 8 + n), TRMI_STREAM_TEST, (uint64_t)i);
            if (t.dtype == TRM_INT32) {
                ((int32_t *)t.data)[i] = (int32_t)(bits % (n == 1 ? 8 : 11));
            } else {
                ((float *)t.data)[i] = n == 4 ? (float)(bits & 1) : 2 * trmi_unit_float(bits) - 1;
            }
        }
    }
}

static trm_status run(const trial *t, trm_comm *comm, outcome *o, trm_error *err) {
    trm_graph *g;
    trm_exec *exec = NULL;
    TRMI_TRY(trm_graph_create(&(trm_graph_options){.training = true}, &g, err));
    trm_exec_options options = {.loss = t->network(g, t->variant), .optimizer = t->optimizer, .backend = t->backend,
                                .threads = 1, .seed = 5, .tuning_file = "", .precision = t->precision,
                                .parallel = {.exact = t->exact}};
    if (comm != NULL) {
        options.parallel = (trm_parallel_options){.comm = comm, .split = TRM_SPLIT_PLANNED, .mesh = t->mesh, .exact = t->exact,
                                                  .plan = t->plan[0] != '\0' ? t->plan : NULL};
    }
    trm_status status = trm_exec_create(g, &options, &exec, err);
    trm_graph_destroy(g);
    for (int step = 0; status == TRM_OK && step < STEPS; step++) {
        feed(exec, step);
        status = trm_exec_forward_backward(exec, err);
        o->loss[step] = status == TRM_OK ? trm_exec_loss(exec) : NAN;
        for (int32_t i = 0; status == TRM_OK && step == 0 && i < trm_exec_variable_count(exec); i++) {
            trm_variable v = trm_exec_variable(exec, i);
            if (v.kind == TRM_VARIABLE_PARAMETER && o->gradients_count + trm_shape_count(&v.shape) <= VALUES) {
                status = trm_exec_gradient(exec, i, o->gradients + o->gradients_count, err);
                o->gradients_count += trm_shape_count(&v.shape);
            }
        }
        status = status == TRM_OK ? trm_exec_update(exec, 0.05, err) : status;
    }
    status = status == TRM_OK ? trm_exec_gather_slots(exec, err) : status;
    for (int32_t i = 0; status == TRM_OK && i < trm_exec_variable_count(exec); i++) {
        trm_variable v = trm_exec_variable(exec, i);
        if (o->values_count + trm_shape_count(&v.shape) <= VALUES) {
            trm_exec_read(exec, i, o->values + o->values_count);
            o->values_count += trm_shape_count(&v.shape);
        }
    }
    trm_exec_destroy(exec);
    return status;
}

static void rank_main(rank_context *context, trm_comm *comm) {
    shared *all = context->arg;
    outcome *o = &all->of[context->rank];
    o->status = run(&all->trial, comm, o, &o->error);
}

/* A legal strategy for every forward operator, drawn at random. */
static void draw_plan(trial *t, uint64_t seed) {
    trm_error err;
    trm_graph *g, *training;
    trmi_arena arena = {0};
    trmi_roots roots;
    trmi_mesh mesh;
    trmi_backend *backend;
    trmi_shard_plan *plan;
    CHECK_OK(trmi_backend_ref(1, &backend, &err), err);
    CHECK_OK(trm_graph_create(&(trm_graph_options){.training = true}, &g, &err), err);
    trm_node loss = t->network(g, t->variant);
    trmi_plan_options options = {.target = &backend->target, .loss = loss, .precision = (int32_t)t->precision,
                                 .dense_gradients = true};
    CHECK_OK(trmi_shard_graph(g, &options, &training, &roots, &arena, &err), err);
    CHECK_OK(trmi_mesh_parse(t->mesh, &mesh, &err), err);
    CHECK_OK(trmi_shard_plan_create(&mesh, &plan, &err), err);
    plan->digest = trmi_shard_digest(training);
    uint64_t counter = 0;
    for (int64_t i = 1; i < training->ops_count; i++) {
        const trmi_op *op = &training->ops[i];
        trmi_strategy *list;
        int32_t count;
        if (op->phase != TRMI_FORWARD || op->outputs_count == 0 || op->inputs_count == 0) {
            continue;
        }
        CHECK_OK(trmi_shard_strategies(training, op, &mesh, &arena, &list, &count, &err), err);
        uint32_t bits = trmi_random_u32(seed, TRMI_STREAM_TEST, counter++);
        const char *only = getenv("TRIREME_SHARD_ONLY"); /* one operator's line, to find who is wrong */
        if (only != NULL ? strcmp(only, op->name) == 0 : bits % 8 != 0) { /* the rest follows */
            CHECK_OK(trmi_shard_plan_set(plan, op->name, list[(bits >> 8) % (uint32_t)count].letters, false, NULL, &err), err);
        }
    }
    char *text = trmi_shard_plan_text(plan);
    assert_true(text != NULL && strlen(text) < TEXT);
    strcpy(t->plan, text);
    trm_string_free(text);
    trmi_shard_plan_destroy(plan);
    trm_graph_destroy(training);
    trm_graph_destroy(g);
    trmi_arena_free(&arena);
    backend->destroy(backend);
}

static double apart(const float *a, const float *b, int64_t count) {
    double difference = 0, size = 0;
    for (int64_t i = 0; i < count; i++) {
        difference += ((double)a[i] - (double)b[i]) * ((double)a[i] - (double)b[i]);
        size += (double)b[i] * (double)b[i];
    }
    return sqrt(difference / (size > 0 ? size : 1));
}

/* The first element that is not the same, as a sentence. */
static void same_bits(const trial *t, int rank, uint64_t seed, const char *what, const float *a, const float *b, int64_t count) {
    for (int64_t i = 0; i < count; i++) {
        if (memcmp(&a[i], &b[i], sizeof *a) != 0) {
            fail_msg("layout %d, mesh %s, rank %d: element %d of %d of the %s is %.9g, on one device %.9g\n%s", (int)seed,
                     t->mesh, rank, (int)i, (int)count, what, (double)a[i], (double)b[i], t->plan);
        }
    }
}

static void compare_bits(const shared *all, const outcome *one, int ranks, uint64_t seed) {
    for (int r = 0; r < ranks; r++) {
        const outcome *o = &all->of[r];
        if (o->status != TRM_OK) {
            fail_msg("layout %d, mesh %s: rank %d: %s (%s:%d)\n%s", (int)seed, all->trial.mesh, r, o->error.message,
                     o->error.file, o->error.line, all->trial.plan);
        }
        assert_int_equal(o->values_count, one->values_count);
        assert_int_equal(o->gradients_count, one->gradients_count);
        same_bits(&all->trial, r, seed, "losses", o->loss, one->loss, STEPS);
        same_bits(&all->trial, r, seed, "gradients", o->gradients, one->gradients, one->gradients_count);
        same_bits(&all->trial, r, seed, "variables", o->values, one->values, one->values_count);
    }
}

static void compare(const shared *all, const outcome *one, int ranks, uint64_t seed, double tolerance) {
    for (int r = 0; r < ranks; r++) {
        const outcome *o = &all->of[r];
        const char *where = "losses";
        double worst = apart(o->loss, one->loss, STEPS);
        if (o->status != TRM_OK) {
            fail_msg("seed %d, mesh %s: rank %d: %s (%s:%d)\n%s", (int)seed, all->trial.mesh, r, o->error.message,
                     o->error.file, o->error.line, all->trial.plan);
        }
        assert_int_equal(o->values_count, one->values_count);
        assert_int_equal(o->gradients_count, one->gradients_count);
        double gradients = apart(o->gradients, one->gradients, one->gradients_count);
        double values = apart(o->values, one->values, one->values_count);
        where = gradients > worst ? "gradients" : where;
        worst = fmax(worst, gradients);
        where = values > worst ? "variables" : where;
        worst = fmax(worst, values);
        if (!(worst <= tolerance)) {
            fail_msg("seed %d, mesh %s, %s, rank %d: %s differ by %.3g (losses %.9g %.9g %.9g, one device %.9g %.9g %.9g)\n%s",
                     (int)seed, all->trial.mesh, all->trial.backend, r, where, worst, (double)o->loss[0],
                     (double)o->loss[1], (double)o->loss[2], (double)one->loss[0], (double)one->loss[1],
                     (double)one->loss[2], all->trial.plan);
        }
    }
}

static void try_all(network_function network, uint64_t first, int count, const char *backend, trm_precision precision,
                    double tolerance) {
    static const char *const meshes[] = {"2", "2x2", "3", "4", "2x2x2", "2x3"}; /* the larger ones in long runs */
    trm_error err;
    shared *all = mmap(NULL, sizeof *all, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    static outcome one;
    for (uint64_t seed = first; seed < first + (uint64_t)count; seed++) {
        memset(all, 0, sizeof *all);
        memset(&one, 0, sizeof one);
        all->trial = (trial){.network = network, .variant = seed / 3, .mesh = meshes[seed % (count > 20 ? 6 : 4)], .backend = backend,
                             .precision = precision,
                             .optimizer = {.kind = TRM_MOMENTUM, .momentum = 0.9, .weight_decay = 1e-3,
                                           .clip_norm = seed % 4 == 0 ? 0.5 : 0}};
        trmi_mesh mesh;
        CHECK_OK(trmi_mesh_parse(all->trial.mesh, &mesh, &err), err);
        draw_plan(&all->trial, seed);
        CHECK_OK(run(&all->trial, NULL, &one, &err), err);
        ranks_run_joined(trmi_mesh_ranks(&mesh), false, rank_main, all, "ranks");
        compare(all, &one, trmi_mesh_ranks(&mesh), seed, tolerance);
    }
    munmap(all, sizeof *all);
}

/* One network under many layouts of 1 to 8 ranks: the same bits. */
static void try_bits(network_function network, uint64_t variant, int layouts, trm_optimizer_options optimizer,
                     trm_precision precision) {
    /* Three axes take long to partition: in long runs. */
    static const char *const meshes[] = {"2", "2x2", "3", "4", "2x3", "5", "4x2", "7", "8", "2x2x2"};
    trm_error err;
    shared *all = mmap(NULL, sizeof *all, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    static outcome one;
    memset(&one, 0, sizeof one);
    const trial plain = {.network = network, .variant = variant, .mesh = "1", .backend = "ref", .precision = precision,
                         .exact = true, .optimizer = optimizer};
    CHECK_OK(run(&plain, NULL, &one, &err), err);
    assert_true(isfinite(one.loss[STEPS - 1]) && one.loss[0] != one.loss[STEPS - 1]);
    for (int layout = 0; layout < layouts; layout++) {
        memset(all, 0, sizeof *all);
        all->trial = plain;
        all->trial.mesh = meshes[layout % (layouts > 20 ? 10 : 9)];
        trmi_mesh mesh;
        CHECK_OK(trmi_mesh_parse(all->trial.mesh, &mesh, &err), err);
        draw_plan(&all->trial, (uint64_t)layout + 77);
        ranks_run_joined(trmi_mesh_ranks(&mesh), false, rank_main, all, "ranks");
        compare_bits(all, &one, trmi_mesh_ranks(&mesh), (uint64_t)layout);
    }
    munmap(all, sizeof *all);
}

static int warned;
static void listen(void *context, trm_log_level level, const char *room, const char *line) {
    (void)context, (void)room;
    warned += level == TRM_LOG_WARN && strstr(line, "runs whole on each of") != NULL && strstr(line, "custom operator") != NULL;
}

static int64_t trials(int64_t usual) {
    const char *more = getenv("TRIREME_SHARD_TRIALS");
    return more != NULL ? atoll(more) : usual;
}

static void images_cut_at_random(void **state) {
    (void)state;
    const char *first = getenv("TRIREME_SHARD_FIRST");
    try_all(images, first != NULL ? (uint64_t)atoll(first) : 1, (int)trials(6), "onednn", TRM_PRECISION_FP32, 2e-4);
}
static void images_by_the_reference(void **state) {
    (void)state;
    try_all(images, 1000, (int)trials(2), "ref", TRM_PRECISION_FP32, 2e-4);
}
static void clicks_cut_at_random(void **state) {
    (void)state;
    try_all(clicks, 2000, (int)trials(8), "onednn", TRM_PRECISION_FP32, 2e-4);
}

static const trm_optimizer_options momentum = {.kind = TRM_MOMENTUM, .momentum = 0.9, .weight_decay = 1e-3};

static void images_bit_for_bit(void **state) {
    (void)state;
    try_bits(images, 1, (int)trials(16), momentum, TRM_PRECISION_FP32);
}
static void images_with_groups_and_ignored_labels_bit_for_bit(void **state) {
    (void)state;
    try_bits(images, 4, (int)trials(4), (trm_optimizer_options){.kind = TRM_LARS, .momentum = 0.9, .weight_decay = 1e-3, .clip_norm = 0.5},
             TRM_PRECISION_FP32);
    try_bits(images, 5, (int)trials(3), momentum, TRM_PRECISION_MIXED);
}
static void clicks_bit_for_bit(void **state) {
    (void)state;
    try_bits(clicks, 2, (int)trials(9), (trm_optimizer_options){.kind = TRM_ADAM, .clip_norm = 0.1}, TRM_PRECISION_FP32);
}

static void an_operator_without_a_rule_runs_whole_and_says_its_price(void **state) {
    (void)state;
    trm_log_set_sink(listen, NULL, TRM_LOG_WARN);
    try_all(strange, 3000, 3, "onednn", TRM_PRECISION_FP32, 2e-4);
    trm_log_set_sink(NULL, NULL, TRM_LOG_WARN);
    assert_int_equal(warned, 3); /* rank 0 of each job */
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(images_bit_for_bit),
        cmocka_unit_test(images_with_groups_and_ignored_labels_bit_for_bit),
        cmocka_unit_test(clicks_bit_for_bit),
        cmocka_unit_test(images_cut_at_random),
        cmocka_unit_test(clicks_cut_at_random),
        cmocka_unit_test(an_operator_without_a_rule_runs_whole_and_says_its_price),
        cmocka_unit_test(images_by_the_reference),
    };
    cmocka_set_test_filter(getenv("TRIREME_TEST_FILTER")); /* NULL: all */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
