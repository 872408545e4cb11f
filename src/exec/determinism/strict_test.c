/* SPDX-License-Identifier: Apache-2.0 */
/* Strict determinism: any number of ranks and threads and any option has the same bits: losses,
 * parameters, slots and running statistics.
 *
 * The reference is one rank with one thread. Networks of images, tables and transformers run on
 * threads as ranks (tests/ranks.h). Blocks change the order of sums, so against a program without
 * blocks values agree only to the last digits. A NaN in any block must stop all ranks. */
#include "check.h"

#include "exec/exec.h"
#include "exec/distributed/ranks_state.h"

#include "base/rng.h"
#include "ranks.h"
#include "test_layers.h"

#include <math.h>

enum {
    SAMPLES = 12,
    STEPS = 3,
    CHANNELS = 8,
    CLASSES = 5,
    SIZE = 6,
    HIDDEN = 70,
    VALUES = 40000,
    RANKS = 6
};

typedef struct setup {
    trm_exec_options options;
    int64_t block; /* samples of a block; 0: no blocks */
    bool poison, dropout, clicks, mean, tokens, rms;
} setup;

/* Results of a rank: losses, and the values of all variables after the last step. */
typedef struct outcome {
    float loss[STEPS * 2];
    float values[VALUES];
    int64_t count;
    trm_status status;
    trm_error error;
} outcome;

typedef struct shared {
    setup setup;
    outcome of[RANKS];
} shared;

/* fc2 is used twice: its gradient is a sum that is written late. */
static trm_node build_network(trm_graph *g, int64_t batch, bool dropout) {
    trm_node x = trm_input(g, "image", TRM_FLOAT32, trm_shape_of(batch, 3, SIZE, SIZE));
    trm_node label = trm_input(g, "label", TRM_INT32, trm_shape_of(batch));
    x = residual_convs(g, x, CHANNELS, true);
    x = trm_relu(g, add_dense(g, "fc1", trm_global_avg_pool(g, x), HIDDEN));
    trm_graph_push_scope(g, "fc2");
    trm_node w = trm_parameter(g, "weight", trm_shape_of(HIDDEN, HIDDEN), TRM_INIT_LINEAR);
    trm_node b = trm_parameter(g, "bias", trm_shape_of(HIDDEN), TRM_INIT_LINEAR);
    trm_graph_pop_scope(g);
    x = trm_linear(g, trm_relu(g, trm_linear(g, x, w, b)), w, b);
    x = dropout ? trm_dropout(g, x, 0.3) : x;
    return trm_softmax_cross_entropy(g, add_dense(g, "fc3", x, CLASSES), label, NULL);
}

enum { FIELDS = 3, ROWS = 7, WIDTH = 5 };

/* A click model: two tables with equal ids, of which some come in several blocks, pairs, a dense
 * part and a logistic loss; or, for `mean`, a mean that nothing is fused into. */
static trm_node build_clicks(trm_graph *g, int64_t batch, bool mean) {
    trm_node ids = trm_input(g, "ids", TRM_INT32, trm_shape_of(batch, FIELDS));
    trm_node target = trm_input(g, "target", TRM_FLOAT32, trm_shape_of(batch, 1));
    trm_node table = trm_parameter(g, "deep.table", trm_shape_of(ROWS, WIDTH), TRM_INIT_LINEAR);
    trm_node wide = trm_parameter(g, "wide.table", trm_shape_of(ROWS, 1), TRM_INIT_LINEAR);
    trm_node rows = trm_embedding(g, table, ids), weights = trm_embedding(g, wide, ids);
    trm_node pairs = trm_pair_dots(g, rows);
    trm_node x = trm_concat(
        g, (trm_node[]){trm_reshape(g, rows, trm_shape_of(batch, FIELDS * WIDTH)), pairs}, 2, 1);
    x = trm_relu(g, add_dense(g, "fc1", x, HIDDEN));
    x = trm_add(g, add_dense(g, "fc2", x, 1),
                trm_reduce_sum(g, trm_reshape(g, weights, trm_shape_of(batch, FIELDS)),
                               (int32_t[]){1}, 1, true));
    if (!mean) {
        return trm_bce_with_logits(g, x, target);
    }
    x = trm_sub(g, trm_sigmoid(g, x), target);
    return trm_reduce_mean(g, trm_mul(g, x, x), NULL, 0, false);
}

enum { TOKENS = 4, HEADS = 2, MODEL = 8, WORDS = 11 };

/* A layer of a transformer: positions, norms, attention, experts, and a loss of which logits do not
 * exist. */
static trm_node build_transformer(trm_graph *g, int64_t batch, bool rms) {
    trm_node ids = trm_input(g, "ids", TRM_INT32, trm_shape_of(batch, TOKENS));
    trm_node next = trm_input(g, "label", TRM_INT32, trm_shape_of(batch, TOKENS));
    trm_node words = trm_parameter(g, "words", trm_shape_of(WORDS, MODEL), TRM_INIT_LINEAR);
    trm_node where = trm_parameter(g, "where", trm_shape_of(TOKENS, MODEL), TRM_INIT_LINEAR);
    trm_node gamma = trm_parameter(g, "norm.weight", trm_shape_of(MODEL), TRM_INIT_ONE);
    trm_node x = trm_add(g, trm_embedding(g, words, ids), where);
    trm_node y =
        rms ? trm_rms_norm(g, x, gamma, 0)
            : trm_layer_norm(g, x, gamma,
                             trm_parameter(g, "norm.bias", trm_shape_of(MODEL), TRM_INIT_ZERO), 0);
    y = trm_attention_packed(g, add_dense(g, "qkv", y, 3 * MODEL), HEADS, 0, TRM_NO_NODE,
                             &(trm_attention_options){.causal = true});
    x = trm_add(g, x, add_dense(g, "out", y, MODEL));
    const trm_experts e = {
        .router = trm_parameter(g, "router", trm_shape_of(4, MODEL), TRM_INIT_LINEAR),
        .up = trm_parameter(g, "experts.up", trm_shape_of(4, 6, MODEL), TRM_INIT_NORMAL_001),
        .down = trm_parameter(g, "experts.down", trm_shape_of(4, MODEL, 6), TRM_INIT_NORMAL_001),
        .top_k = 2};
    trm_node balance;
    x = trm_add(g, x, trm_mixture_of_experts(g, x, &e, &balance));
    x = trm_add(g, x, add_dense(g, "down", trm_silu(g, add_dense(g, "up", x, 16)), MODEL));
    return trm_linear_cross_entropy(g, x, words, next, NULL);
}

static trm_status make_exec(const setup *s, trm_comm *comm, int64_t batch, trm_exec **out,
                            trm_error *err) {
    trm_graph *g;
    trm_status status = trm_graph_create(&(trm_graph_options){.training = true}, &g, err);
    if (status != TRM_OK) {
        return status;
    }
    trm_exec_options options = s->options;
    options.loss = s->tokens   ? build_transformer(g, batch, s->rms)
                   : s->clicks ? build_clicks(g, batch, s->mean)
                               : build_network(g, batch, s->dropout);
    options.blocks = s->block > 0 ? (int32_t)(batch / s->block) : 0;
    options.seed = 7;
    options.tuning_file = "";
    options.parallel.comm = comm;
    status = trm_exec_create(g, &options, out, err);
    trm_graph_destroy(g);
    return status;
}

/* Sample i of a rank is sample rank + size * i of all: as datasets are dealt out. */
static trm_status feed_step(trm_exec *exec, int step, int rank, int size, trm_error *err) {
    static _Thread_local float image[SAMPLES * 3 * SIZE * SIZE];
    static _Thread_local int32_t label[SAMPLES];
    int64_t each = 3 * SIZE * SIZE, batch = SAMPLES / size;
    for (int64_t i = 0; i < batch; i++) {
        int64_t sample = (step * SAMPLES + rank) + size * i;
        for (int64_t k = 0; k < each; k++) {
            uint64_t place = (uint64_t)(sample * each + k);
            image[i * each + k] =
                trmi_unit_float(trmi_random_u32(1, TRMI_STREAM_TEST, place)) - 0.3f;
        }
        label[i] = (int32_t)((sample * 3 + step) % CLASSES);
    }
    const trm_tensor images = {image, TRM_FLOAT32, trm_shape_of(batch, 3, SIZE, SIZE)};
    const trm_tensor labels = {label, TRM_INT32, trm_shape_of(batch)};
    trm_status status = trm_exec_feed(exec, "image", &images, err);
    return status == TRM_OK ? trm_exec_feed(exec, "label", &labels, err) : status;
}

static trm_status feed_tokens(trm_exec *exec, int step, int rank, int size, trm_error *err) {
    int32_t ids[SAMPLES * TOKENS], next[SAMPLES * TOKENS];
    int64_t batch = SAMPLES / size;
    for (int64_t i = 0; i < batch * TOKENS; i++) {
        int64_t sample = (step * SAMPLES + rank) + size * (i / TOKENS), t = i % TOKENS;
        ids[i] = (int32_t)((sample * sample + 3 * t) % WORDS);
        next[i] = (int32_t)((sample * sample + 3 * t + 3) % WORDS);
    }
    const trm_tensor words = {ids, TRM_INT32, trm_shape_of(batch, TOKENS)};
    const trm_tensor labels = {next, TRM_INT32, trm_shape_of(batch, TOKENS)};
    trm_status status = trm_exec_feed(exec, "ids", &words, err);
    return status == TRM_OK ? trm_exec_feed(exec, "label", &labels, err) : status;
}

/* Ids of which each comes a few times. */
static trm_status feed_clicks(trm_exec *exec, int step, int rank, int size, trm_error *err) {
    int32_t ids[SAMPLES * FIELDS];
    float target[SAMPLES];
    int64_t batch = SAMPLES / size;
    for (int64_t i = 0; i < batch; i++) {
        int64_t sample = (step * SAMPLES + rank) + size * i;
        for (int64_t k = 0; k < FIELDS; k++) {
            ids[i * FIELDS + k] = (int32_t)((sample * sample + 3 * k + step) % ROWS);
        }
        target[i] = (float)(sample * 5 % 3 == 0);
    }
    const trm_tensor all = {ids, TRM_INT32, trm_shape_of(batch, FIELDS)};
    const trm_tensor targets = {target, TRM_FLOAT32, trm_shape_of(batch, 1)};
    trm_status status = trm_exec_feed(exec, "ids", &all, err);
    return status == TRM_OK ? trm_exec_feed(exec, "target", &targets, err) : status;
}

static trm_status run_steps(trm_exec *exec, const setup *s, int rank, int size, outcome *o,
                            trm_error *err) {
    int32_t accumulate = s->options.accumulate > 1 ? s->options.accumulate : 1;
    for (int step = 0; step < STEPS; step++) {
        for (int32_t a = 0; a < accumulate; a++) {
            trm_status status =
                (s->tokens   ? feed_tokens
                 : s->clicks ? feed_clicks
                             : feed_step)(exec, step * accumulate + a, rank, size, err);
            if (s->poison && rank == size - 1 && step == 1) {
                trm_tensor image;
                status = trm_exec_input(exec, "image", &image, err);
                ((float *)image.data)[5] = NAN;
            }
            status = status == TRM_OK ? trm_exec_forward_backward(exec, err) : status;
            if (status != TRM_OK) {
                return status;
            }
            o->loss[step * accumulate + a] = trm_exec_loss(exec);
        }
        trm_status status = trm_exec_update(exec, 0.05, err);
        if (status != TRM_OK) {
            return status;
        }
    }
    return trm_exec_gather(exec, err);
}

static void take_values(trm_exec *exec, outcome *o) {
    for (int32_t i = 0; i < trm_exec_variable_count(exec); i++) {
        trm_variable v = trm_exec_variable(exec, i);
        if (o->count + trm_shape_count(&v.shape) <= VALUES) {
            trm_exec_read(exec, i, o->values + o->count);
            o->count += trm_shape_count(&v.shape);
        }
    }
}

static void train_rank(const setup *s, trm_comm *comm, int rank, int size, outcome *o) {
    trm_exec *exec = NULL;
    *o = (outcome){0};
    o->status = make_exec(s, comm, SAMPLES / size, &exec, &o->error);
    o->status = o->status == TRM_OK ? run_steps(exec, s, rank, size, o, &o->error) : o->status;
    if (o->status == TRM_OK) {
        take_values(exec, o);
    }
    trm_exec_destroy(exec);
}

static void rank_main(rank_context *context, trm_comm *comm) {
    shared *all = context->arg;
    train_rank(&all->setup, comm, context->rank, context->size, &all->of[context->rank]);
}

static shared *play_job(setup s, int ranks) {
    shared *all =
        mmap(NULL, sizeof *all, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    all->setup = s;
    if (ranks == 1) {
        train_rank(&s, NULL, 0, 1, &all->of[0]);
    } else {
        ranks_run_joined(ranks, false, rank_main, all, "strict");
    }
    return all;
}
static void free_outcomes(shared *all) { munmap(all, sizeof *all); }

static shared *play_ok(setup s, int ranks) {
    shared *all = play_job(s, ranks);
    for (int r = 0; r < ranks; r++) {
        CHECK_OK(all->of[r].status, all->of[r].error);
    }
    return all;
}

static double largest_difference(const outcome *a, const outcome *b) {
    double worst = 0;
    assert_int_equal(a->count, b->count);
    for (int i = 0; i < STEPS * 2; i++) {
        worst = fmax(worst, fabs((double)(a->loss[i] - b->loss[i])));
    }
    for (int64_t i = 0; i < a->count; i++) {
        worst = fmax(worst, fabs((double)(a->values[i] - b->values[i])));
    }
    return worst;
}

static void same_bits(const shared *one, setup s, int ranks, const char *what) {
    shared *many = play_ok(s, ranks);
    for (int r = 0; r < ranks; r++) {
        const outcome *a = &one->of[0], *b = &many->of[r];
        if (memcmp(a->loss, b->loss, sizeof a->loss) != 0 || a->count != b->count ||
            memcmp(a->values, b->values, (size_t)a->count * sizeof(float)) != 0) {
            fail_msg("%s: rank %d of %d differs by %.3g", what, r, ranks, largest_difference(a, b));
        }
    }
    free_outcomes(many);
}

static setup setup_of_blocks(const char *backend, int64_t block) {
    setup s = {
        .block = block,
        .options = {.backend = backend,
                    .threads = 1,
                    .optimizer = {.kind = TRM_MOMENTUM, .momentum = 0.9, .weight_decay = 1e-3}}};
    return s;
}

/* ---- tests ----------------------------------------------------------------------------------- */

static void any_number_of_ranks_has_the_same_bits(void **state) {
    static const char *const backends[] = {"ref", NULL};
    for (int b = 0; b < 2; b++) {
        for (int64_t block = 1; block <= 2; block++) {
            setup s = setup_of_blocks(backends[b], block);
            shared *one = play_ok(s, 1);
            assert_true(one->of[0].count > 10000 &&
                        one->of[0].loss[0] != one->of[0].loss[STEPS - 1]);
            for (int n = 2; n <= (block == 1 ? 4 : 6); n++) {
                if (SAMPLES % (n * block) == 0) {
                    same_bits(one, s, n, b ? "fast" : "ref");
                }
            }
            free_outcomes(one);
        }
    }
}

static void any_number_of_threads_has_the_same_bits(void **state) {
    setup s = setup_of_blocks(NULL, 2);
    shared *one = play_ok(s, 1);
    for (int threads = 2; threads <= 4; threads++) {
        s.options.threads = threads;
        same_bits(one, s, 1, "threads");
    }
    same_bits(one, s, 2, "threads and ranks");
    free_outcomes(one);
}

/* Blocks change the last digits only: batch norm is over the whole batch, losses and gradients are
 * means. */
static void blocks_are_the_batch_to_the_last_digits(void **state) {
    setup s = setup_of_blocks(NULL, 0);
    shared *whole = play_ok(s, 1);
    for (int64_t block = 1; block <= SAMPLES; block *= 2) {
        if (SAMPLES % block == 0) {
            s.block = block;
            shared *cut = play_ok(s, 1);
            double worst = largest_difference(&whole->of[0], &cut->of[0]);
            printf("blocks of %ld: largest difference %.2g\n", (long)block, worst);
            assert_true(worst < 1e-5);
            free_outcomes(cut);
        }
    }
    free_outcomes(whole);
}

static void options_keep_the_bits(void **state) {
    setup s = setup_of_blocks(NULL, 2);
    shared *one = play_ok(s, 1);
    s.options.parallel.shard_optimizer = true;
    same_bits(one, s, 2, "sharded");
    same_bits(one, s, 3, "sharded");
    s.options.parallel = (trm_parallel_options){.bucket = TRM_BUCKET_OFF, .sync_batch_norm = 0};
    same_bits(one, s, 2, "bucket off");
    free_outcomes(one);
    static const trm_optimizer_options optimizers[] = {
        {.kind = TRM_ADAM, .weight_decay = 1e-2, .decoupled = true, .clip_norm = 0.1},
        {.kind = TRM_LARS, .momentum = 0.9, .weight_decay = 1e-3}};
    for (int i = 0; i < 2; i++) {
        s = setup_of_blocks(NULL, 1);
        s.options.optimizer = optimizers[i];
        s.options.accumulate = 2;
        s.options.precision = i == 0 ? TRM_PRECISION_FP32 : TRM_PRECISION_MIXED;
        s.dropout = true;
        one = play_ok(s, 1);
        same_bits(one, s, 2, "accumulated");
        s.options.parallel.shard_optimizer = true;
        same_bits(one, s, 4, "accumulated, sharded");
        free_outcomes(one);
    }
    s = setup_of_blocks(NULL, 2); /* half the rate on the sum of two ranks' means is the mean */
    s.options.optimizer = (trm_optimizer_options){.kind = TRM_SGD};
    one = play_ok(s, 2);
    s.options.parallel.sum = true;
    shared *sum = play_ok(s, 2);
    assert_true(one->of[0].loss[0] == sum->of[0].loss[0] &&
                one->of[0].loss[1] != sum->of[0].loss[1]);
    free_outcomes(one);
    free_outcomes(sum);
}

/* One rank updates the rows that it looked up, more ranks a dense table. */
static void tables_have_the_same_bits(void **state) {
    static const trm_optimizer_options optimizers[] = {{.kind = TRM_MOMENTUM, .momentum = 0.9},
                                                       {.kind = TRM_ADAM},
                                                       {.kind = TRM_SGD, .clip_norm = 0.01}};
    for (int i = 0; i < 6; i++) {
        setup s = setup_of_blocks(i == 5 ? "ref" : NULL, i % 2 + 1);
        s.clicks = true;
        s.mean = i >= 3;
        s.options.optimizer = optimizers[i % 3];
        shared *one = play_ok(s, 1);
        s.options.threads = 3;
        same_bits(one, s, 1, "tables, threads");
        s.options.threads = 1;
        for (int n = 2; n <= 6; n++) {
            if (SAMPLES % (n * s.block) == 0) {
                same_bits(one, s, n, "tables");
            }
        }
        free_outcomes(one);
    }
}

static void transformers_have_the_same_bits(void **state) {
    for (int i = 0; i < 4; i++) {
        setup s = setup_of_blocks(i == 3 ? "ref" : NULL, i % 2 + 1);
        s.tokens = true;
        s.rms = i == 2;
        shared *one = play_ok(s, 1);
        assert_true(one->of[0].loss[0] > one->of[0].loss[STEPS - 1]);
        s.options.threads = 3;
        same_bits(one, s, 1, "tokens, threads");
        s.options.threads = 1;
        for (int n = 2; n <= 6; n++) {
            if (SAMPLES % (n * s.block) == 0) {
                same_bits(one, s, n, "tokens");
            }
        }
        free_outcomes(one);
    }
}

static void a_nan_in_a_block_stops_all_ranks(void **state) {
    setup s = setup_of_blocks(NULL, 2);
    s.poison = true;
    for (int n = 1; n <= 3; n++) {
        shared *all = play_job(s, n);
        for (int r = 0; r < n; r++) {
            assert_int_equal(all->of[r].status, TRM_DIVERGED);
        }
        assert_non_null(strstr(all->of[n - 1].error.message, "input 'image'"));
        free_outcomes(all);
    }
}

static void impossible_options_are_refused(void **state) {
    static const char *const fc = "fc";
    setup s = setup_of_blocks(NULL, 2);
    trm_exec *exec;
    trm_error err;
    s.options.parallel.wire = TRM_BFLOAT16;
    CHECK_FAILS(make_exec(&s, NULL, SAMPLES, &exec, &err), TRM_INVALID, err,
                "wire must be float32");
    s = setup_of_blocks(NULL, 2);
    s.options.parallel.layerwise = &fc;
    s.options.parallel.layerwise_count = 1;
    CHECK_FAILS(make_exec(&s, NULL, SAMPLES, &exec, &err), TRM_INVALID, err,
                "keeps to itself (fc)");
    s = setup_of_blocks(NULL, 2);
    s.options.parallel.sync_batch_norm = 2;
    CHECK_FAILS(make_exec(&s, NULL, SAMPLES, &exec, &err), TRM_INVALID, err, "groups of 2");
    s.options.parallel.sync_batch_norm = TRM_NORM_LOCAL;
    CHECK_FAILS(make_exec(&s, NULL, SAMPLES, &exec, &err), TRM_INVALID, err,
                "over the whole batch");
    s.options.parallel.sync_batch_norm = TRM_NORM_LOCAL;
    CHECK_FAILS(make_exec(&s, NULL, SAMPLES, &exec, &err), TRM_INVALID, err,
                "over the whole batch");
    s = setup_of_blocks(NULL, 2);
    CHECK_OK(make_exec(&s, NULL, SAMPLES, &exec, &err), err);
    int32_t labels[2] = {0};
    const trm_tensor two = {labels, TRM_INT32, trm_shape_of(2)};
    CHECK_FAILS(trm_exec_feed(exec, "label", &two, &err), TRM_INVALID, err, "[12]");
    trm_exec_info info;
    trm_exec_get_info(exec, &info);
    assert_true(info.activation_bytes > 0 && info.flops > 0);
    trm_exec_destroy(exec);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_number_of_ranks_has_the_same_bits),
        cmocka_unit_test(any_number_of_threads_has_the_same_bits),
        cmocka_unit_test(blocks_are_the_batch_to_the_last_digits),
        cmocka_unit_test(options_keep_the_bits),
        cmocka_unit_test(tables_have_the_same_bits),
        cmocka_unit_test(transformers_have_the_same_bits),
        cmocka_unit_test(a_nan_in_a_block_stops_all_ranks),
        cmocka_unit_test(impossible_options_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
