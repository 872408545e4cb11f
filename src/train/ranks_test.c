/* SPDX-License-Identifier: Apache-2.0 */
/* Models on several ranks: the same run as on one, saved by rank 0, stopped and resumed by all.
 *
 * Ranks are threads (tests/ranks.h) that write what they have seen into memory shared
 * with the test. Each rank reads its share of every batch of GLOBAL_BATCH samples, so that
 * losses must equal those of one rank to rounding. */
#include "folder.h"

#include "trireme/train.h"

#include "base/os.h"
#include "ranks.h"

#include <math.h>

enum { GLOBAL_BATCH = 16, EPOCH_STEPS = 16, LOSSES = 64, SEED = 11 };

/* What a rank has seen, in memory that it shares with the test. */
typedef struct outcome {
    float loss[LOSSES]; /* step s at s % LOSSES */
    int32_t steps;
    trm_evaluation evaluation;
    trm_status status; /* of training, with its error */
    trm_error error;
    float weights[2048];
    int32_t checkpoints; /* that it was told of */
} outcome;

typedef struct plan {
    char folder[64];
    int64_t epochs;
    int64_t stop_at; /* this rank-1 step asks to stop */
    bool shard, resume, lonely;
    uint64_t ends_at; /* rank 1's hook ends the training after this step, and no other rank's */
    outcome of[4];
} plan;

static trm_node build_network(trm_graph *g, const trm_inputs *inputs, void *context) {
    trm_node x =
        trm_avg_pool(g, trm_inputs_get(inputs, "image"), &(trm_pool_options){.kernel = {8, 8}});
    x = trm_reshape(g, x, trm_shape_of(-1, 48));
    trm_node w = trm_parameter(g, "fc.weight", trm_shape_of(10, 48), TRM_INIT_LINEAR);
    return trm_linear(g, x, w, trm_parameter(g, "fc.bias", trm_shape_of(10), TRM_INIT_ZERO));
}

static trm_status open_shapes(trm_usage usage, int size, int rank, trm_dataset **out,
                              trm_error *err) {
    const trm_dataset_spec spec = {.kind = "auto",
                                   .path = "synth",
                                   .usage = usage,
                                   .seed = SEED,
                                   .batch_size = GLOBAL_BATCH / size,
                                   .shard_count = size,
                                   .shard_index = rank,
                                   .augment = TRM_OFF,
                                   .prefetch_depth = -1,
                                   .shapes =
                                       &(trm_shapes_options){.train_count = 256, .test_count = 70}};
    return trm_dataset_open(&spec, out, err);
}

/* Context of a rank's callbacks. */
typedef struct watcher {
    plan *p;
    outcome *o;
    trm_model *model;
    int rank;
} watcher;

static trm_status saw_step(void *context, const trm_progress *p, trm_error *err) {
    watcher *w = context;
    w->o->loss[w->o->steps++ % LOSSES] = p->loss;
    if (p->samples != (int64_t)p->epoch_samples && p->epoch == 1) {
        return TRM_INTERNAL;
    }
    if (w->p->stop_at > 0 && w->rank == 1 && (int64_t)p->global_step == w->p->stop_at) {
        trm_model_request_stop(w->model);
    }
    if (w->p->lonely && w->rank == 1 && p->global_step == 5) {
        snprintf(err->message, sizeof err->message, "a callback of rank 1 fails");
        err->status = TRM_IO;
        return TRM_IO;
    }
    return w->p->ends_at > 0 && w->rank == 1 && p->global_step == w->p->ends_at ? TRM_END : TRM_OK;
}

static trm_status saw_checkpoint(void *context, const trm_progress *p, trm_error *err) {
    ((watcher *)context)->o->checkpoints++;
    return TRM_OK;
}

/* Metrics of the program's own: top-1 again, as a mean and as a value of its own. */
static trm_status add_hits(void *context, const trm_tensor *logits, int64_t samples,
                           const trm_batch *batch, double *sums, trm_error *err) {
    const int32_t *labels = trm_batch_tensor(batch, "label")->data;
    for (int64_t i = 0; i < samples; i++) {
        const float *l = (const float *)logits->data + 10 * i;
        int32_t best = 0;
        for (int32_t k = 1; k < 10; k++) {
            best = l[k] > l[best] ? k : best;
        }
        sums[0] += best == labels[i];
        sums[1] += 1;
    }
    return TRM_OK;
}

static double percent_of(void *context, const double *sums) { return 100 * sums[0] / sums[1]; }

static trm_status train_rank(plan *p, trm_comm *comm, int size, int rank, outcome *o,
                             trm_error *err) {
    trm_dataset *train = NULL, *test = NULL;
    trm_model *model = NULL;
    trm_status status = open_shapes(TRM_USAGE_TRAIN, size, rank, &train, err);
    status = status == TRM_OK ? open_shapes(TRM_USAGE_TEST, size, rank, &test, err) : status;
    const trm_model_options options = {
        .network = build_network,
        .data = train,
        .exec.backend = "ref",
        .exec.seed = SEED,
        .exec.threads = 1,
        .learning_rate = {.base = 0.03},
        .exec.optimizer = {.kind = TRM_MOMENTUM, .momentum = 0.9},
        .metrics = {{"hits", 2, add_hits, NULL, NULL}, {"percent", 2, add_hits, percent_of, NULL}},
        .exec.parallel = {.comm = comm, .shard_optimizer = p->shard}};
    status = status == TRM_OK ? trm_model_create(&options, &model, err) : status;
    if (status == TRM_OK && p->resume) {
        status = trm_model_resume(model, p->folder, err);
    }
    watcher w = {p, o, model, rank};
    trm_train_options training = {
        .data = train,
        .until_epoch = p->epochs,
        .callbacks = {{.on_step_end = saw_step, .on_checkpoint = saw_checkpoint, .context = &w}}};
    if (status == TRM_OK && p->folder[0] != '\0') { /* trm_model_train takes it */
        training.callbacks[1] = trm_model_checkpoint(&(trm_model_checkpoint_options){
            .directory = p->folder, .every_seconds = 1000, .every_steps = 10});
    }
    status = status == TRM_OK ? trm_model_train(model, &training, err) : status;
    if (status == TRM_OK) {
        status = trm_model_evaluate(model, test, &o->evaluation, err);
    }
    for (int32_t i = 0, at = 0; model != NULL && i < 2; i++) {
        trm_variable v = trm_exec_variable(trm_model_exec(model), i);
        trm_exec_read(trm_model_exec(model), i, o->weights + at);
        at += (int32_t)trm_shape_count(&v.shape);
    }
    trm_model_destroy(model);
    trm_dataset_destroy(train);
    trm_dataset_destroy(test);
    return status;
}

static void rank_main(rank_context *context, trm_comm *comm) {
    plan *p = context->arg;
    outcome *o = &p->of[context->rank];
    o->status = train_rank(p, comm, context->size, context->rank, o, &o->error);
}

static plan *play_plan(const plan *given, int ranks) {
    plan *p = mmap(NULL, sizeof *p, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    *p = *given;
    if (ranks == 1) {
        p->of[0].status = train_rank(p, NULL, 1, 0, &p->of[0], &p->of[0].error);
    } else {
        ranks_run_joined(ranks, false, rank_main, p, "ranks");
    }
    return p;
}
static void free_plan(plan *p) { munmap(p, sizeof *p); }

/* ---- tests ----------------------------------------------------------------------------------- */

static void ranks_train_and_evaluate_as_one(void **state) {
    const plan given = {.epochs = 2};
    plan *one = play_plan(&given, 1);
    CHECK_OK(one->of[0].status, one->of[0].error);
    assert_int_equal(one->of[0].steps, 2 * EPOCH_STEPS);
    for (int n = 2; n <= 4; n += 2) {
        plan *many = play_plan(&given, n);
        for (int r = 0; r < n; r++) {
            CHECK_OK(many->of[r].status, many->of[r].error);
            assert_int_equal(many->of[r].steps, one->of[0].steps);
            for (int i = 0; i < one->of[0].steps; i++) {
                CHECK_CLOSE(many->of[r].loss[i], one->of[0].loss[i], 1e-5);
            }
            assert_int_equal(many->of[r].evaluation.samples, 70);
            CHECK_CLOSE(many->of[r].evaluation.loss, one->of[0].evaluation.loss, 1e-5);
            CHECK_CLOSE(many->of[r].evaluation.top1, one->of[0].evaluation.top1, 1e-9);
            const trm_evaluation *e = &many->of[r].evaluation;
            assert_int_equal(e->metric_count, 2);
            CHECK_CLOSE(e->metrics[0].value, e->top1, 1e-12);
            CHECK_CLOSE(e->metrics[1].value, 100 * e->top1, 1e-12);
        }
        free_plan(many);
    }
    free_plan(one);
}

/* Rank 1 asks; all stop after the same step, rank 0 has saved, and all go on with the same bits. */
static void ranks_stop_and_resume_together(void **state) {
    for (int shard = 0; shard < 2; shard++) {
        make_folder(NULL);
        plan given = {.epochs = 2, .shard = shard};
        plan *straight = play_plan(&given, 2);
        CHECK_OK(straight->of[0].status, straight->of[0].error);
        strcpy(given.folder, folder);
        given.stop_at = 20;
        plan *stopped = play_plan(&given, 2);
        for (int r = 0; r < 2; r++) {
            assert_int_equal(stopped->of[r].status, TRM_CANCELLED);
            assert_int_equal(stopped->of[r].steps, 21);
            assert_int_equal(stopped->of[r].checkpoints, r == 0 ? 3 : 0); /* 10, 20, 21 */
        }
        given.stop_at = 0;
        given.resume = true;
        plan *resumed = play_plan(&given, 2);
        for (int r = 0; r < 2; r++) {
            CHECK_OK(resumed->of[r].status, resumed->of[r].error);
            assert_int_equal(resumed->of[r].steps, 2 * EPOCH_STEPS - 21);
            assert_memory_equal(resumed->of[r].weights, straight->of[r].weights,
                                490 * sizeof(float));
        }
        free_plan(stopped);
        free_plan(resumed);
        /* One rank with the whole batch goes on from what two have saved. */
        given.epochs = 3;
        plan *alone = play_plan(&given, 1);
        CHECK_OK(alone->of[0].status, alone->of[0].error);
        assert_int_equal(alone->of[0].steps, EPOCH_STEPS);
        free_plan(alone);
        free_plan(straight);
        remove_folder(NULL);
    }
}

static void a_failing_rank_stops_the_others(void **state) {
    const plan given = {.epochs = 2, .lonely = true};
    plan *all = play_plan(&given, 3);
    assert_int_equal(all->of[1].status, TRM_IO);
    for (int r = 0; r < 3; r += 2) {
        assert_true(all->of[r].status != TRM_OK);
        assert_non_null(strstr(all->of[r].error.message, "a callback of rank 1 fails"));
    }
    free_plan(all);
}

/* A hook of one rank alone ends its training, in the middle of an epoch or at the end of one: all
 * ranks read which rank it was, after which step, and that all have to stop there. */
static void a_rank_that_stops_alone_is_named(void **state) {
    for (uint64_t step = 5; step <= EPOCH_STEPS; step += EPOCH_STEPS - 5) {
        const plan given = {.epochs = 2, .ends_at = step};
        char words[64];
        snprintf(words, sizeof words, "rank 1 has stopped after step %d, but rank", (int)step);
        plan *all = play_plan(&given, 3);
        for (int r = 0; r < 3; r++) {
            const char *found = all->of[r].error.message;
            assert_int_equal(all->of[r].status, TRM_INVALID);
            assert_true(strstr(found, words) != NULL &&
                        strstr(found, "all ranks must stop after the same step") != NULL);
            assert_int_equal(all->of[r].steps, step);
        }
        free_plan(all);
    }
}

static void a_checkpoint_that_one_rank_lacks_is_refused(void **state) {
    plan given = {.epochs = 1, .resume = true};
    strcpy(given.folder, "/tmp/trireme-no-such-folder");
    plan *all = play_plan(&given, 2);
    assert_true(all->of[0].status == all->of[1].status && all->of[0].status != TRM_OK);
    free_plan(all);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_train_and_evaluate_as_one),
        cmocka_unit_test(ranks_stop_and_resume_together),
        cmocka_unit_test(a_failing_rank_stops_the_others),
        cmocka_unit_test(a_rank_that_stops_alone_is_named),
        cmocka_unit_test(a_checkpoint_that_one_rank_lacks_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
