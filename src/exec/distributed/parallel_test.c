/* SPDX-License-Identifier: Apache-2.0 */
/* Data parallel: n ranks with b samples each against one rank with n * b, and the ways to reduce
 * gradients against each other.
 *
 * play_job runs a network on ranks, as threads or as forked processes (tests/ranks.h), and gives
 * losses, parameters and slots of each rank. Where sums have the same order the bits must be
 * equal; elsewhere the difference is bounded by rounding. "Still" gradients are those of
 * convolution taps that meet only padding (exec/distributed/zero_gradients.c): they must neither
 * travel nor miss their update. */
#include "check.h"

#include "exec/exec.h"
#include "exec/distributed/ranks_state.h"

#include "base/rng.h"
#include "ranks.h"
#include "test_layers.h"

#include <math.h>

enum {
    SAMPLES = 12,
    STEPS = 4,
    CHANNELS = 8,
    CLASSES = 5,
    SIZE = 6,
    HIDDEN = 200,
    WIDE = 136,
    LARGE = 128,
    VALUES = 400000,
    RANKS = 4
};

typedef struct setup {
    trm_exec_options options;
    const char *layerwise;
    double rate;  /* 0 = 0.05 */
    int steps;    /* 0 = STEPS */
    int32_t only; /* a single process: rank `only` - 1's samples of two, and no others */
    bool own_seeds, poison, no_norm;
    bool ahead; /* rank 2 feeds the next batch before the update */
    bool small; /* images become one pixel, which a 3x3 convolution with padding sees */
    bool large; /* weights larger than what their gradients are made of, of all kinds */
} setup;

/* Shared with the ranks: what each of them saw. */
typedef struct outcome {
    float loss[STEPS * 4];
    float values[VALUES];
    int64_t count;
    trm_status status;
    trm_error error;
    trm_parallel_info info;
    int64_t gradient_bytes;
} outcome;

typedef struct shared {
    setup setup;
    outcome of[RANKS];
} shared;

static trm_node build_network(trm_graph *g, int64_t batch, bool norm) {
    trm_node x = trm_input(g, "image", TRM_FLOAT32, trm_shape_of(batch, 3, SIZE, SIZE));
    trm_node label = trm_input(g, "label", TRM_INT32, trm_shape_of(batch));
    x = residual_convs(g, x, CHANNELS, norm);
    x = trm_global_avg_pool(g, x);
    x = trm_relu(g, add_dense(g, "fc1", x, HIDDEN));
    x = trm_relu(g, add_dense(g, "fc2", x, HIDDEN));
    return trm_softmax_cross_entropy(g, add_dense(g, "fc3", x, CLASSES), label, NULL);
}

static trm_node small_network(trm_graph *g, int64_t batch) {
    trm_node x = trm_input(g, "image", TRM_FLOAT32, trm_shape_of(batch, 3, SIZE, SIZE));
    trm_node label = trm_input(g, "label", TRM_INT32, trm_shape_of(batch));
    x = trm_conv2d(g, x,
                   trm_parameter(g, "whole.weight", trm_shape_of(WIDE, 3, SIZE, SIZE),
                                 TRM_INIT_HE_NORMAL_FAN_OUT),
                   TRM_NO_NODE, NULL);
    x = trm_conv2d(g, trm_relu(g, x),
                   trm_parameter(g, "pixel.weight", trm_shape_of(WIDE, WIDE, 3, 3),
                                 TRM_INIT_HE_NORMAL_FAN_OUT),
                   TRM_NO_NODE, &(trm_conv_options){.pad = {1, 1, 1, 1}});
    x = trm_global_avg_pool(g, trm_relu(g, x));
    return trm_softmax_cross_entropy(g, add_dense(g, "fc", x, CLASSES), label, NULL);
}

/* The weights of pixels, fc1 and fc2 are made jointly; the input of fc1 is a view of what pooling
 * made. */
static trm_node large_network(trm_graph *g, int64_t batch) {
    trm_node x = trm_input(g, "image", TRM_FLOAT32, trm_shape_of(batch, 3, SIZE, SIZE));
    trm_node label = trm_input(g, "label", TRM_INT32, trm_shape_of(batch));
    x = trm_relu(g, norm_conv(g, x, CHANNELS, true));
    x = trm_conv2d(g, x,
                   trm_parameter(g, "wide.weight", trm_shape_of(LARGE, CHANNELS, 3, 3),
                                 TRM_INIT_HE_NORMAL_FAN_OUT),
                   TRM_NO_NODE, &(trm_conv_options){.stride = {3, 3}});
    x = trm_conv2d(g, trm_relu(g, x),
                   trm_parameter(g, "pixels.weight", trm_shape_of(LARGE, LARGE, 3, 3),
                                 TRM_INIT_HE_NORMAL_FAN_OUT),
                   TRM_NO_NODE, &(trm_conv_options){.pad = {1, 1, 1, 1}});
    x = trm_global_avg_pool(g, trm_relu(g, x));
    x = trm_relu(g, add_dense(g, "fc1", x, 4 * LARGE));
    x = trm_relu(g, add_dense(g, "fc2", x, LARGE));
    return trm_softmax_cross_entropy(g, add_dense(g, "fc3", x, CLASSES), label, NULL);
}

static trm_status make_exec(const setup *s, trm_comm *comm, int rank, int64_t batch, trm_exec **out,
                            trm_error *err) {
    trm_graph *g;
    trm_status status = trm_graph_create(&(trm_graph_options){.training = true}, &g, err);
    if (status != TRM_OK) {
        return status;
    }
    trm_exec_options options = s->options;
    options.loss = s->large   ? large_network(g, batch)
                   : s->small ? small_network(g, batch)
                              : build_network(g, batch, !s->no_norm);
    options.seed = s->own_seeds ? (uint64_t)(7 + rank) : 7;
    options.threads = 1;
    options.tuning_file = "";
    options.parallel.comm = comm;
    options.parallel.layerwise = s->layerwise != NULL ? &s->layerwise : NULL;
    options.parallel.layerwise_count = s->layerwise != NULL;
    status = trm_exec_create(g, &options, out, err);
    trm_graph_destroy(g);
    return status;
}

/* Samples [first, first + batch) of step `step`. */
static void feed_samples(trm_exec *exec, int step, int64_t first, int64_t batch) {
    trm_tensor image, label;
    trm_error err;
    if (trm_exec_input(exec, "image", &image, &err) != TRM_OK ||
        trm_exec_input(exec, "label", &label, &err) != TRM_OK) {
        return;
    }
    int64_t each = 3 * SIZE * SIZE;
    for (int64_t i = 0; i < batch * each; i++) {
        uint64_t place = (uint64_t)(step * SAMPLES * each + first * each + i);
        ((float *)image.data)[i] =
            trmi_unit_float(trmi_random_u32(1, TRMI_STREAM_TEST, place)) - 0.3f;
    }
    for (int64_t i = 0; i < batch; i++) {
        ((int32_t *)label.data)[i] = (int32_t)((first + i + step) % CLASSES);
    }
}

static trm_status step_all(trm_exec *exec, const setup *s, int rank, int64_t batch, outcome *o,
                           trm_error *err) {
    int32_t accumulate = s->options.accumulate > 1 ? s->options.accumulate : 1;
    for (int step = 0; step < (s->steps > 0 ? s->steps : STEPS); step++) {
        for (int32_t a = 0; a < accumulate; a++) {
            feed_samples(exec, step * accumulate + a, rank * batch, batch);
            if (s->poison && rank == 1 && step == 2) {
                trm_tensor image;
                (void)!trm_exec_input(exec, "image", &image, err);
                ((float *)image.data)[5] = NAN;
            }
            trm_status status = trm_exec_forward_backward(exec, err);
            if (status != TRM_OK) {
                return status;
            }
            o->loss[step * accumulate + a] = trm_exec_loss(exec);
        }
        if (s->ahead && rank == 2) {
            feed_samples(exec, step + 1, rank * batch, batch);
        }
        trm_status status = trm_exec_update(exec, s->rate > 0 ? s->rate : 0.05, err);
        if (status != TRM_OK) {
            return status;
        }
    }
    return trm_exec_gather(exec, err);
}

/* Parameters and slots; running statistics only where they are the same on all ranks. */
static void take_values(trm_exec *exec, bool states, outcome *o) {
    for (int32_t i = 0; i < trm_exec_variable_count(exec); i++) {
        trm_variable v = trm_exec_variable(exec, i);
        if ((v.kind != TRM_VARIABLE_STATE || states) &&
            o->count + trm_shape_count(&v.shape) <= VALUES) {
            trm_exec_read(exec, i, o->values + o->count);
            o->count += trm_shape_count(&v.shape);
        }
    }
}

static void train_rank(const setup *s, trm_comm *comm, int rank, int64_t batch, outcome *o) {
    trm_exec *exec = NULL;
    *o = (outcome){0};
    o->status = make_exec(s, comm, rank, batch, &exec, &o->error);
    if (o->status == TRM_OK) {
        o->status = step_all(exec, s, rank, batch, o, &o->error);
    }
    if (o->status == TRM_OK) {
        take_values(exec, comm == NULL || s->options.parallel.sync_batch_norm != TRM_NORM_LOCAL, o);
        trm_exec_get_parallel_info(exec, &o->info);
        trm_exec_info about;
        trm_exec_get_info(exec, &about);
        o->gradient_bytes = about.gradient_bytes;
    }
    trm_exec_destroy(exec);
}

static void rank_main(rank_context *context, trm_comm *comm) {
    shared *all = context->arg;
    /* every rank feeds the whole batch */
    bool split = all->setup.options.parallel.split.kind != TRM_SPLIT_NONE;
    train_rank(&all->setup, comm, split ? 0 : context->rank,
               split ? SAMPLES : SAMPLES / context->size, &all->of[context->rank]);
}

/* The outcomes of `ranks`; freed by drop. */
static shared *play_job(setup s, int ranks, bool forked) {
    shared *all =
        mmap(NULL, sizeof *all, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    all->setup = s;
    if (ranks == 1) {
        train_rank(&s, NULL, s.only > 0 ? s.only - 1 : 0, s.only > 0 ? SAMPLES / 2 : SAMPLES,
                   &all->of[0]);
    } else {
        ranks_run_joined(ranks, forked, rank_main, all, "ranks");
    }
    return all;
}
static void free_outcomes(shared *all) { munmap(all, sizeof *all); }

static shared *play_ok(setup s, int ranks) {
    shared *all = play_job(s, ranks, false);
    for (int r = 0; r < ranks; r++) {
        CHECK_OK(all->of[r].status, all->of[r].error);
    }
    return all;
}

static void same_bits(const shared *a, const shared *b, int ranks, const char *what) {
    for (int r = 0; r < ranks; r++) {
        for (int i = 0; i < STEPS * 4; i++) {
            if (a->of[0].loss[i] != b->of[r].loss[i]) {
                fail_msg("%s: loss %d of rank %d: %.9g and %.9g", what, i, r,
                         (double)a->of[0].loss[i], (double)b->of[r].loss[i]);
            }
        }
        assert_int_equal(a->of[0].count, b->of[r].count);
        for (int64_t i = 0; i < a->of[0].count; i++) {
            if (a->of[0].values[i] != b->of[r].values[i]) {
                fail_msg("%s: value %ld of rank %d: %.9g and %.9g", what, (long)i, r,
                         (double)a->of[0].values[i], (double)b->of[r].values[i]);
            }
        }
    }
}

static double largest_difference(const shared *a, const shared *b, int ranks) {
    double worst = 0;
    for (int r = 0; r < ranks; r++) {
        for (int i = 0; i < STEPS * 4; i++) {
            worst = fmax(worst, fabs((double)(a->of[0].loss[i] - b->of[r].loss[i])));
        }
        assert_int_equal(a->of[0].count, b->of[r].count);
        for (int64_t i = 0; i < a->of[0].count; i++) {
            worst = fmax(worst, fabs((double)(a->of[0].values[i] - b->of[r].values[i])));
        }
    }
    return worst;
}

static setup setup_of_momentum(const char *backend) {
    setup s = {.options = {
                   .backend = backend,
                   .optimizer = {.kind = TRM_MOMENTUM, .momentum = 0.9, .weight_decay = 1e-3},
               }};
    return s;
}

/* ---- tests ----------------------------------------------------------------------------------- */

static void ranks_are_one_big_batch(void **state) {
    static const char *const backends[] = {"ref", NULL};
    for (int b = 0; b < 2; b++) {
        setup s = setup_of_momentum(backends[b]);
        shared *one = play_ok(s, 1);
        assert_true(one->of[0].loss[0] > 0.5f && one->of[0].loss[STEPS - 1] != one->of[0].loss[0]);
        for (int n = 2; n <= RANKS; n++) {
            shared *many = play_ok(s, n);
            double worst = largest_difference(one, many, n);
            printf("%s, %d ranks: largest difference %.2g\n", b ? "fast" : "ref", n, worst);
            assert_true(worst < 1e-5);
            free_outcomes(many);
        }
        free_outcomes(one);
    }
}

static void processes_and_groups_and_sums(void **state) {
    setup s = setup_of_momentum(NULL);
    shared *one = play_ok(s, 1);
    shared *many = play_job(s, 2, true);
    CHECK_OK(many->of[0].status, many->of[0].error);
    CHECK_OK(many->of[1].status, many->of[1].error);
    assert_true(largest_difference(one, many, 2) < 1e-5);
    free_outcomes(many);
    free_outcomes(one);
    /* Two groups of two ranks normalise as two ranks of twice the batch do by themselves. */
    s.options.parallel.sync_batch_norm = 2;
    many = play_ok(s, 4);
    s.options.parallel.sync_batch_norm = TRM_NORM_LOCAL;
    shared *pairs = play_ok(s, 2);
    for (int r = 0; r < 4; r++) { /* running means and variances are in many only */
        for (int i = 0; i < STEPS; i++) {
            assert_true(fabs((double)(many->of[r].loss[i] - pairs->of[0].loss[i])) < 1e-5);
        }
    }
    shared *apart = play_ok(s, 4);
    assert_true(fabs((double)(apart->of[0].loss[STEPS - 1] - pairs->of[0].loss[STEPS - 1])) > 1e-5);
    free_outcomes(apart);
    free_outcomes(pairs);
    free_outcomes(many);
    /* Summed gradients of two ranks at half the rate are their mean, to the bit. */
    s.options.optimizer.weight_decay = 0;
    shared *mean = play_ok(s, 2);
    s.options.parallel.sum = true;
    shared *sum = play_ok(s, 2);
    assert_true(mean->of[0].loss[0] == sum->of[0].loss[0] &&
                mean->of[0].loss[1] != sum->of[0].loss[1]);
    free_outcomes(sum);
    s.rate = 0.05 / 2;
    sum = play_ok(s, 2);
    assert_memory_equal(mean->of[0].loss, sum->of[0].loss, sizeof sum->of[0].loss);
    free_outcomes(mean);
    free_outcomes(sum);
}

static void a_sharded_optimizer_has_the_same_bits(void **state) {
    static const trm_optimizer_options optimizers[] = {
        {.kind = TRM_MOMENTUM, .momentum = 0.9, .weight_decay = 1e-3},
        {.kind = TRM_ADAM, .weight_decay = 1e-2, .decoupled = true, .clip_norm = 0.1},
        {.kind = TRM_LARS, .momentum = 0.9, .weight_decay = 1e-3},
        {.kind = TRM_ADAGRAD, .initial_accumulator = 0.1, .clip_norm = 0.5}};
    for (size_t i = 0; i < sizeof optimizers / sizeof optimizers[0]; i++) {
        for (int n = 2; n <= RANKS; n++) {
            setup s = setup_of_momentum(NULL);
            s.options.optimizer = optimizers[i];
            s.options.parallel.bucket = i % 2 ? TRM_BUCKET_OFF : TRM_BUCKET_AUTO;
            shared *whole = play_ok(s, n);
            s.options.parallel.shard_optimizer = true;
            shared *slices = play_ok(s, n);
            same_bits(whole, slices, n, "sharded");
            free_outcomes(whole);
            free_outcomes(slices);
        }
    }
}

/* Processes have one copy of the parameters, which threads have not: neither changes a bit. */
static void processes_share_parameters(void **state) {
    setup s = setup_of_momentum(NULL);
    s.options.optimizer.clip_norm = 0.3;
    s.options.accumulate = 2;
    shared *whole = play_ok(s, 3);
    s.options.parallel.shard_optimizer = true;
    s.own_seeds = true; /* rank 0's values count */
    shared *slices = play_job(s, 3, true);
    for (int r = 0; r < 3; r++) {
        CHECK_OK(slices->of[r].status, slices->of[r].error);
    }
    assert_true(slices->of[2].info.one_copy && !whole->of[0].info.one_copy);
    same_bits(whole, slices, 3, "one copy");
    free_outcomes(slices);
    s.poison = true;
    slices = play_job(s, 2, true);
    assert_int_equal(slices->of[0].status, TRM_DIVERGED);
    assert_int_equal(slices->of[1].status, TRM_DIVERGED);
    free_outcomes(slices);
    free_outcomes(whole);
}

/* In mixed precision processes share one bfloat16 copy of the parameters, too, which all make
 * together behind the update. */
static void processes_share_casts(void **state) {
    static const trm_optimizer_options optimizers[] = {
        {.kind = TRM_MOMENTUM, .momentum = 0.9, .weight_decay = 1e-3},
        {.kind = TRM_ADAM, .weight_decay = 1e-2, .decoupled = true, .clip_norm = 0.1},
        {.kind = TRM_LARS, .momentum = 0.9, .weight_decay = 1e-3}};
    for (int i = 0; i < 6; i++) {
        setup s = setup_of_momentum(NULL);
        s.options.optimizer = optimizers[i % 3];
        s.options.precision = TRM_PRECISION_MIXED;
        s.options.accumulate = 1 + i / 3;
        shared *whole = play_ok(s, 3);
        s.options.parallel.shard_optimizer = true;
        s.own_seeds = true;
        shared *slices = play_job(s, 3, true);
        for (int r = 0; r < 3; r++) {
            CHECK_OK(slices->of[r].status, slices->of[r].error);
        }
        assert_true(slices->of[1].info.casts >= 3 && whole->of[1].info.casts == 0);
        same_bits(whole, slices, 3, "one copy of the casts");
        free_outcomes(slices);
        free_outcomes(whole);
    }
}

static void every_cut_has_the_same_bits(void **state) {
    static const int32_t list[] = {2, 3, 7};
    for (int n = 2; n <= 3; n++) {
        setup s = setup_of_momentum(NULL);
        shared *automatic = play_ok(s, n);
        assert_true(automatic->of[0].info.buckets >= 1);
        assert_int_equal(automatic->of[0].info.size, n);
        const trm_parallel_options cuts[] = {
            {.bucket = TRM_BUCKET_OFF},
            {.bucket = TRM_BUCKET_SIZE, .bucket_bytes = 50000},
            {.bucket = TRM_BUCKET_SIZE, .bucket_bytes = 1 << 30},
            {.bucket = TRM_BUCKET_LIST, .bucket_list = list, .bucket_list_count = 3}};
        static const int32_t buckets[] = {15, 0, 1, 4};
        for (int i = 0; i < 4; i++) {
            s.options.parallel = cuts[i];
            shared *other = play_ok(s, n);
            same_bits(automatic, other, n, "cut");
            assert_true(buckets[i] == 0 || other->of[0].info.buckets == buckets[i]);
            free_outcomes(other);
        }
        free_outcomes(automatic);
    }
}

/* Taps that meet only padding have no gradient to send; they are updated (decay) and saved as
 * others are. */
static void still_gradients_do_not_travel(void **state) {
    setup s = setup_of_momentum(NULL);
    s.small = true;
    shared *one = play_ok(s, 1);
    for (int n = 2; n <= 3; n++) {
        s.options.accumulate = n == 3 ? 2 : 1;
        shared *whole = play_ok(s, n);
        int64_t still = whole->of[0].info.always_zero_bytes, all = whole->of[0].info.bytes + still;
        assert_true(still >= 2 * (1 << 16) * 4 && all >= (int64_t)sizeof(float) * 9 * WIDE * WIDE);
        assert_true(n == 3 || largest_difference(one, whole, n) < 1e-5);
        s.options.parallel.shard_optimizer = true;
        shared *slices = play_job(s, n, true);
        CHECK_OK(slices->of[0].status, slices->of[0].error);
        assert_true(slices->of[0].info.always_zero_bytes == still && slices->of[0].info.one_copy);
        same_bits(whole, slices, n, "still");
        s.options.parallel.shard_optimizer = false;
        free_outcomes(slices);
        free_outcomes(whole);
    }
    free_outcomes(one);
}

/* Trains as one device does, and as summed gradients do, twice and with any divisor of the
 * gradients. */
static void ranks_make_gradients_jointly(void **state) {
    static const trm_optimizer_options optimizers[] = {
        {.kind = TRM_MOMENTUM, .momentum = 0.9, .weight_decay = 1e-3},
        {.kind = TRM_ADAM,
         .weight_decay = 1e-2,
         .decoupled = true,
         .clip_norm = 0.1,
         .epsilon = 1e-3},
        {.kind = TRM_LARS, .momentum = 0.9, .weight_decay = 1e-3}};
    for (int i = 0; i < 12; i++) {
        int n = 2 + i % 3;
        setup s = setup_of_momentum(NULL);
        s.large = true;
        s.options.optimizer = optimizers[i / 2 % 3];
        s.options.precision = i < 6 ? TRM_PRECISION_FP32 : TRM_PRECISION_MIXED;
        s.options.parallel.sum = i % 4 == 3;
        s.options.loss_scale = (trm_loss_scale_options){.on = i % 6 == 5, .dynamic = true};
        s.options.parallel.shard_optimizer = true;
        shared *summed = play_job(s, n, true), *one = play_ok(s, 1);
        s.options.parallel.cooperative = TRM_COOPERATIVE_ALL;
        shared *cooperative = play_job(s, n, true), *again = play_job(s, n, true);
        for (int r = 0; r < n; r++) {
            CHECK_OK(summed->of[r].status, summed->of[r].error);
            CHECK_OK(cooperative->of[r].status, cooperative->of[r].error);
        }
        int64_t most = (int64_t)sizeof(float) * LARGE * LARGE * (9 + 4 + 4);
        assert_true(summed->of[0].info.cooperative_bytes == 0);
        assert_true(cooperative->of[0].info.cooperative_bytes == most &&
                    cooperative->of[0].gradient_bytes < summed->of[0].gradient_bytes - most / 3);
        double close = s.options.precision == TRM_PRECISION_FP32 ? 1e-5 : 2e-2;
        double differs = largest_difference(summed, cooperative, n),
               worst = s.options.parallel.sum ? 0 : largest_difference(one, cooperative, n);
        printf("%d ranks: largest difference to sums %.2g, to one device %.2g\n", n, differs,
               worst);
        assert_true(differs > 0 && differs < close && worst < close);
        same_bits(cooperative, again, n, "once more");
        free_outcomes(summed);
        free_outcomes(cooperative);
        free_outcomes(again);
        free_outcomes(one);
    }
}

/* Taps that meet only padding have no gradient to make. */
static void cooperative_gradients_may_be_still(void **state) {
    setup s = setup_of_momentum(NULL);
    s.small = true;
    shared *one = play_ok(s, 1);
    s.options.parallel.shard_optimizer = true;
    s.options.parallel.cooperative = TRM_COOPERATIVE_CONV;
    for (int n = 2; n <= 3; n++) {
        shared *cooperative = play_job(s, n, true);
        CHECK_OK(cooperative->of[0].status, cooperative->of[0].error);
        assert_true(cooperative->of[0].info.always_zero_bytes >= 2 * (1 << 16) * 4 &&
                    cooperative->of[0].info.cooperative_bytes > 0);
        assert_true(largest_difference(one, cooperative, n) < 1e-5);
        free_outcomes(cooperative);
    }
    free_outcomes(one);
}

/* Where a plan cuts samples only. */
static void split_graphs_make_gradients_jointly(void **state) {
    setup s = setup_of_momentum(NULL);
    s.large = true;
    shared *one = play_ok(s, 1);
    s.options.parallel.split.kind = TRM_SPLIT_PLANNED;
    s.options.parallel.shard_optimizer = true;
    s.options.parallel.cooperative = TRM_COOPERATIVE_ALL;
    for (int n = 2; n <= 4; n++) {
        shared *cooperative = play_job(s, n, true);
        for (int r = 0; r < n; r++) {
            CHECK_OK(cooperative->of[r].status, cooperative->of[r].error);
        }
        double worst = largest_difference(one, cooperative, n);
        printf("%d ranks: largest difference %.2g, %lld bytes\n", n, worst,
               (long long)cooperative->of[0].info.cooperative_bytes);
        assert_true(worst < 1e-5 && cooperative->of[0].info.cooperative_bytes ==
                                        (int64_t)sizeof(float) * LARGE * LARGE * (9 + 4 + 4));
        free_outcomes(cooperative);
    }
    free_outcomes(one);
}

/* In split graphs, too, taps that meet only padding send nothing and get the same updates. */
static void split_graphs_have_still_gradients(void **state) {
    setup s = setup_of_momentum(NULL);
    s.small = true;
    shared *one = play_ok(s, 1);
    s.options.parallel.split.kind = TRM_SPLIT_PLANNED;
    for (int i = 0; i < 6; i++) {
        int n = 2 + i % 2;
        s.options.parallel.shard_optimizer = i >= 2;
        s.options.parallel.cooperative = i >= 4 ? TRM_COOPERATIVE_CONV : TRM_COOPERATIVE_OFF;
        shared *split = play_job(s, n, true);
        for (int r = 0; r < n; r++) {
            CHECK_OK(split->of[r].status, split->of[r].error);
        }
        assert_true(split->of[0].info.always_zero_bytes >= 2 * (1 << 16) * 4 &&
                    (split->of[0].info.cooperative_bytes > 0) == (i >= 4));
        assert_true(largest_difference(one, split, n) < 1e-5);
        free_outcomes(split);
    }
    free_outcomes(one);
}

static void cooperative_gradients_that_are_not_finite_stop_all_ranks(void **state) {
    setup s = setup_of_momentum(NULL);
    s.large = s.poison = true;
    s.options.parallel.shard_optimizer = true;
    s.options.parallel.cooperative = TRM_COOPERATIVE_CONV;
    s.options.parallel.sync_batch_norm = TRM_NORM_LOCAL;
    for (int ahead = 0; ahead < 2; ahead++) {
        s.ahead = ahead;
        shared *all = play_job(s, 3, true);
        for (int r = 0; r < 3; r++) {
            assert_int_equal(all->of[r].status, TRM_DIVERGED);
        }
        assert_non_null(strstr(all->of[1].error.message, ahead ? "gradient of" : "input 'image'"));
        assert_true(ahead || strstr(all->of[2].error.message, "rank 1") != NULL);
        free_outcomes(all);
    }
}

static void half_precision_travels_nearly_as_well(void **state) {
    setup s = setup_of_momentum(NULL);
    shared *full = play_ok(s, 2);
    for (int i = 0; i < 4; i++) {
        s.options.parallel.wire = i % 2 ? TRM_FLOAT16 : TRM_BFLOAT16;
        s.options.parallel.shard_optimizer = i >= 2;
        shared *half = play_ok(s, 2);
        double worst = 0;
        for (int k = 0; k < STEPS; k++) {
            worst = fmax(worst, fabs((double)(full->of[0].loss[k] - half->of[0].loss[k])));
        }
        assert_true(worst < 0.02 && worst > 0);
        assert_int_equal(half->of[0].info.bytes * 2, full->of[0].info.bytes);
        same_bits(half, half, 2, "ranks agree");
        free_outcomes(half);
    }
    free_outcomes(full);
}

static void accumulated_gradients_travel_once(void **state) {
    setup s = setup_of_momentum(NULL);
    s.options.accumulate = 3;
    shared *one = play_ok(s, 1), *many = play_ok(s, 2);
    assert_true(largest_difference(one, many, 2) < 1e-5);
    s.options.parallel.shard_optimizer = true;
    shared *slices = play_ok(s, 2);
    same_bits(many, slices, 2, "sharded");
    free_outcomes(one);
    free_outcomes(many);
    free_outcomes(slices);
}

static void ranks_begin_as_rank_0(void **state) {
    setup s = setup_of_momentum(NULL);
    shared *same = play_ok(s, 2);
    s.own_seeds = true;
    shared *seeds = play_ok(s, 2);
    same_bits(same, seeds, 2, "broadcast");
    s.options.parallel.broadcast = TRM_OFF;
    shared *apart = play_ok(s, 2);
    assert_true(memcmp(apart->of[0].values, apart->of[1].values, 1000 * sizeof(float)) != 0);
    free_outcomes(same);
    free_outcomes(seeds);
    free_outcomes(apart);
}

/* fc3 is each rank's own; everything else stays equal. */
static void layerwise_parameters_stay(void **state) {
    setup s = setup_of_momentum(NULL);
    s.layerwise = "fc3";
    s.own_seeds = true;
    for (int shard = 0; shard < 2; shard++) {
        s.options.parallel.shard_optimizer = shard;
        shared *all = play_ok(s, 2);
        int64_t first = (int64_t)CHANNELS * 3 * 9; /* layer0.conv.weight comes first in the graph */
        assert_true(memcmp(all->of[0].values, all->of[1].values, (size_t)first * sizeof(float)) ==
                    0);
        int64_t different = 0;
        for (int64_t i = 0; i < all->of[0].count; i++) {
            different += all->of[0].values[i] != all->of[1].values[i];
        }
        int64_t own = 2 * (HIDDEN * CLASSES + CLASSES); /* parameters and momentum */
        assert_true(different > own / 2 && different <= own);
        free_outcomes(all);
    }
}

/* After one step fc3 of each rank is what its own samples alone make of it; all else is the mean's.
 */
static void layerwise_gradients_are_the_ranks_own(void **state) {
    setup s = setup_of_momentum(NULL);
    s.options.optimizer = (trm_optimizer_options){.kind = TRM_SGD};
    s.options.parallel.sync_batch_norm = TRM_NORM_LOCAL;
    s.no_norm = true;
    s.steps = 1;
    int64_t own = HIDDEN * CLASSES + CLASSES;
    for (int shard = 0; shard < 2; shard++) {
        s.options.parallel.shard_optimizer = shard;
        shared *all = play_ok(s, 2);
        s.layerwise = "fc3";
        shared *hybrid = play_ok(s, 2);
        s.layerwise = NULL;
        for (int r = 0; r < 2; r++) {
            setup lonely = s;
            lonely.only = r + 1;
            shared *alone = play_ok(lonely, 1);
            int64_t count = alone->of[0].count, rest = count - own;
            assert_true(count > own && hybrid->of[r].count == count && all->of[r].count == count);
            assert_memory_equal(hybrid->of[r].values, all->of[r].values,
                                (size_t)rest * sizeof(float));
            assert_memory_equal(hybrid->of[r].values + rest, alone->of[0].values + rest,
                                (size_t)own * sizeof(float));
            assert_memory_not_equal(all->of[r].values + rest, alone->of[0].values + rest,
                                    (size_t)own * sizeof(float));
            free_outcomes(alone);
        }
        free_outcomes(all);
        free_outcomes(hybrid);
    }
}

/* The values after one step of SGD at rate 1 without a limit: where it began, less the gradient. */
static void take_gradient(setup s, int32_t only, const float *from, int64_t begin, int64_t end,
                          double *out) {
    s.only = only;
    s.layerwise = NULL;
    s.options.optimizer.clip_norm = 0;
    shared *one = play_ok(s, 1);
    for (int64_t i = begin; i < end; i++) {
        out[i] = (double)from[i] - (double)one->of[0].values[i];
    }
    free_outcomes(one);
}

/* One device has all gradients: those of what is shared by the whole batch, those of fc3 by each
 * half of it. The norm is of the shared ones once and of fc3's twice, and cuts all of them. */
static void one_norm_clips_what_is_shared_and_what_is_not(void **state) {
    setup s = setup_of_momentum(NULL);
    s.options.optimizer = (trm_optimizer_options){.kind = TRM_SGD};
    s.options.parallel.sync_batch_norm = TRM_NORM_LOCAL;
    s.no_norm = true;
    s.steps = 1;
    s.rate = 1e-30; /* nothing moves */
    shared *start = play_ok(s, 1);
    s.rate = 1;
    const float *from = start->of[0].values;
    int64_t count = start->of[0].count, own = HIDDEN * CLASSES + CLASSES;
    double *gradient[2], squares = 0;
    for (int r = 0; r < 2; r++) {
        gradient[r] = calloc((size_t)count, sizeof(double));
        take_gradient(s, 0, from, 0, count - own, gradient[r]);
        take_gradient(s, r + 1, from, count - own, count, gradient[r]);
        for (int64_t i = r == 0 ? 0 : count - own; i < count; i++) {
            squares += gradient[r][i] * gradient[r][i];
        }
    }
    s.layerwise = "fc3";
    for (int turn = 0; turn < 8; turn++) {
        double limit = (turn < 4 ? 0.25 : 4) * sqrt(squares); /* cuts, or does not */
        s.options.optimizer.clip_norm = limit;
        s.options.parallel.shard_optimizer = turn & 1;
        shared *many = play_job(s, 2, turn & 2);
        double worst = 0, factor = fmin(1, limit / sqrt(squares));
        for (int r = 0; r < 2; r++) {
            CHECK_OK(many->of[r].status, many->of[r].error);
            for (int64_t i = 0; i < count; i++) {
                double moved = (double)from[i] - (double)many->of[r].values[i];
                worst = fmax(worst, fabs(moved - factor * gradient[r][i]));
            }
        }
        printf("norm %.4g, limit %.4g: largest difference %.2g\n", sqrt(squares), limit, worst);
        assert_true(worst < 2e-6);
        assert_memory_equal(many->of[0].values, many->of[1].values,
                            (size_t)(count - own) * sizeof(float));
        free_outcomes(many);
    }
    free(gradient[0]);
    free(gradient[1]);
    free_outcomes(start);
}

/* All ranks repeat the step, or none does: where one of them has the next batch already. */
static void a_nan_stops_all_ranks(void **state) {
    for (int turn = 0; turn < 4; turn++) {
        const int shard = turn & 1, ahead = turn / 2;
        setup s = setup_of_momentum(NULL);
        s.poison = true;
        s.ahead = ahead;
        s.options.parallel.shard_optimizer = shard;
        s.options.parallel.sync_batch_norm = shard ? 0 : TRM_NORM_LOCAL;
        shared *all = play_job(s, 3, false);
        for (int r = 0; r < 3; r++) {
            assert_int_equal(all->of[r].status, TRM_DIVERGED);
        }
        assert_non_null(strstr(all->of[1].error.message, ahead ? "gradient of" : "input 'image'"));
        assert_true(shard || ahead || strstr(all->of[0].error.message, "rank 1") != NULL);
        free_outcomes(all);
    }
}

static void impossible_options_are_refused(void **state) {
    setup s = setup_of_momentum(NULL);
    s.options.parallel.sync_batch_norm = 3;
    shared *all = play_job(s, 2, false);
    assert_int_equal(all->of[0].status, TRM_INVALID);
    assert_non_null(strstr(all->of[0].error.message, "groups of 3"));
    free_outcomes(all);
    s = setup_of_momentum(NULL);
    s.layerwise = "fc3";
    s.layerwise = "fc";
    all = play_job(s, 2, false);
    assert_int_equal(all->of[1].status, TRM_INVALID);
    assert_non_null(strstr(all->of[1].error.message, "layerwise parameter 'fc'"));
    free_outcomes(all);
    s = setup_of_momentum(NULL);
    s.options.parallel.wire = TRM_INT32;
    all = play_job(s, 2, false);
    assert_int_equal(all->of[1].status, TRM_INVALID);
    free_outcomes(all);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_are_one_big_batch),
        cmocka_unit_test(processes_and_groups_and_sums),
        cmocka_unit_test(a_sharded_optimizer_has_the_same_bits),
        cmocka_unit_test(processes_share_parameters),
        cmocka_unit_test(processes_share_casts),
        cmocka_unit_test(every_cut_has_the_same_bits),
        cmocka_unit_test(still_gradients_do_not_travel),
        cmocka_unit_test(ranks_make_gradients_jointly),
        cmocka_unit_test(cooperative_gradients_may_be_still),
        cmocka_unit_test(split_graphs_make_gradients_jointly),
        cmocka_unit_test(split_graphs_have_still_gradients),
        cmocka_unit_test(cooperative_gradients_that_are_not_finite_stop_all_ranks),
        cmocka_unit_test(half_precision_travels_nearly_as_well),
        cmocka_unit_test(accumulated_gradients_travel_once),
        cmocka_unit_test(ranks_begin_as_rank_0),
        cmocka_unit_test(layerwise_parameters_stay),
        cmocka_unit_test(layerwise_gradients_are_the_ranks_own),
        cmocka_unit_test(one_norm_clips_what_is_shared_and_what_is_not),
        cmocka_unit_test(a_nan_stops_all_ranks),
        cmocka_unit_test(impossible_options_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
