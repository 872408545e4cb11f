/* SPDX-License-Identifier: Apache-2.0 */
/* Models of elastic jobs, of real processes: a rank dies before any of them has trained, while the
 * ranks make their models or before they agree on the checkpoint that they resume. The others train
 * without it, with the bits of the undisturbed job; where batch norm is over groups of ranks, with
 * its weights. Rank 0 dies before its hooks have reported a step that counts: the next one reports
 * it. The ranks of an ended job do not begin it anew. A process that comes and cannot make its
 * model for the ranks ends alone. */
#include "check.h"

#include "trireme/dist.h"
#include "trireme/io.h"
#include "trireme/train.h"

#include "base/os.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    RANKS = 3,
    RANKS_MAX = 4,
    BATCH = 24,
    SIZE = 32,
    CLASSES = 10,
    HIDDEN = 6, /* features behind batch norm */
    STEPS = 6,
    EPOCH_STEPS = 8,
    STEPS_MAX = 10,
    INPUTS = 3 * SIZE * SIZE
};

/* The results of a rank, in memory that it shares with the test. */
typedef struct outcome {
    volatile int32_t done; /* 1: the other members are written */
    float weights[CLASSES * INPUTS];
    trm_membership membership; /* the last one */
    /* of on_step_end and on_epoch_end; 1: it has been called, 2: on rank 0 of that time */
    volatile int32_t step_hooks[STEPS_MAX + 1], epoch_hooks[STEPS_MAX / EPOCH_STEPS + 1];
    volatile int32_t wrong;  /* calls that saw another rate or number of samples */
    volatile int32_t misled; /* changes of the ranks that told another step than the model's */
    char message[256];       /* of its error; "": none */
} outcome;

/* When a rank dies. JOINS: it fails when it makes its model for the ranks that it has joined. */
typedef enum moment { NEVER, MAKES_MODEL, RESUMES, TRAINS, ENDS_STEP, ENDS_EPOCH, JOINS } moment;

/* What the ranks of a job do. */
typedef struct plan {
    int32_t ranks; /* 0: RANKS */
    int32_t least; /* ranks with which the job goes on; 0: 1 */
    int32_t group; /* ranks whose samples batch norm is over; 0: no batch norm */
    int32_t dies;  /* the rank that dies; -1: none */
    moment when;
    int64_t at;          /* ENDS_STEP: the step */
    int64_t steps;       /* until which they train */
    bool sink;           /* an epoch runs without hooks for each step */
    const char *folder;  /* that they resume and save in; NULL: neither */
    bool resumes, saves; /* from it, in it */
    bool refused;        /* no rank can make its model */
    bool late;           /* one more process comes after step 1, and fails; then the job stops */
} plan;

static outcome *seen; /* [RANKS_MAX] */
static const trm_learning_rate schedule = {
    .decay = TRM_DECAY_POLYNOMIAL, .base = 0.05, .total_steps = 100};
static char directory[] = "/tmp/elasticmodelXXXXXX";

static int32_t count_ranks(const plan *p) { return p->ranks > 0 ? p->ranks : RANKS; }

/* The task of a rank while it makes its model. */
typedef struct maker {
    moment dies;
    bool norm;      /* features, and batch norm of them */
    int32_t builds; /* calls of build_network */
} maker;

/* Adds HIDDEN features with batch norm. */
static trm_node add_norm(trm_graph *g, trm_node x, int64_t samples) {
    const trm_shape of = trm_shape_of(HIDDEN);
    x = trm_linear(g, x,
                   trm_parameter(g, "features", trm_shape_of(HIDDEN, INPUTS), TRM_INIT_LINEAR),
                   TRM_NO_NODE);
    x = trm_batch_norm(g, trm_reshape(g, x, trm_shape_of(samples, HIDDEN, 1, 1)),
                       trm_parameter(g, "gamma", of, TRM_INIT_ONE),
                       trm_parameter(g, "beta", of, TRM_INIT_ZERO),
                       trm_state(g, "mean", TRM_FLOAT32, of, TRM_INIT_ZERO),
                       trm_state(g, "var", TRM_FLOAT32, of, TRM_INIT_ONE), NULL);
    return trm_reshape(g, x, trm_shape_of(samples, HIDDEN));
}

/* Builds one linear layer. A rank that dies as it makes its model dies here: its peers are
 * compiling, or soon will be. */
static trm_node build_network(trm_graph *g, const trm_inputs *inputs, void *context) {
    maker *how = context;
    trm_node x = trm_inputs_get(inputs, "image");
    const int64_t samples = trm_node_shape(g, x).dim[0];
    x = trm_reshape(g, x, trm_shape_of(samples, INPUTS));
    if (how->dies == MAKES_MODEL) {
        raise(SIGKILL);
    }
    if (how->dies == JOINS && ++how->builds == 2) { /* it has built the network for itself first */
        return TRM_NO_NODE;
    }
    x = how->norm ? add_norm(g, x, samples) : x;
    const int64_t width = trm_node_shape(g, x).dim[1];
    return trm_linear(g, x,
                      trm_parameter(g, "weight", trm_shape_of(CLASSES, width), TRM_INIT_LINEAR),
                      trm_parameter(g, "bias", trm_shape_of(CLASSES), TRM_INIT_ZERO));
}

static trm_status open_data(const plan *p, trm_dataset **data, trm_error *err) {
    const trm_dataset_spec spec = {.kind = "auto",
                                   .path = "synth",
                                   .usage = TRM_USAGE_TRAIN,
                                   .seed = 3,
                                   .batch_size = BATCH / count_ranks(p),
                                   .augment = TRM_OFF,
                                   .prefetch_depth = -1,
                                   .shapes =
                                       &(trm_shapes_options){.train_count = BATCH * EPOCH_STEPS}};
    return trm_dataset_open(&spec, data, err);
}

/* Resumes the model from the folder of the job. A rank that dies does so in place of it: its peers
 * wait for it when they have read the checkpoint. */
static trm_status resume_model(const plan *p, moment dies, trm_model *model, trm_error *err) {
    if (!p->resumes) {
        return TRM_OK;
    }
    if (dies == RESUMES) {
        raise(SIGKILL);
    }
    return trm_model_resume(model, p->folder, err);
}

/* A rank dies between forward and update of a step. */
static trm_status die_in_training(void *context, const trm_progress *p, trm_error *err) {
    (void)err;
    if (*(const moment *)context == TRAINS && p->step == STEPS / 2) {
        raise(SIGKILL);
    }
    return TRM_OK;
}

/* What hooks need to know. */
typedef struct hook_task {
    const plan *plan;
    trm_elastic *job;
    moment dies;
    outcome *own;
    trm_model *model;
} hook_task;

/* Waits until the hooks of the step have been called on the other ranks, and those of the epoch
 * that ends with it; then dies. The others cannot end the next step without it. */
static trm_status die_alone(const hook_task *task, int64_t step, trm_error *err) {
    for (int64_t i = 0; i < 60000; i++) {
        bool all = true;
        for (int32_t r = 0; r < count_ranks(task->plan); r++) {
            const outcome *other = &seen[r];
            all = all && (other == task->own ||
                          ((task->plan->sink || other->step_hooks[step] > 0) &&
                           (step % EPOCH_STEPS > 0 || other->epoch_hooks[step / EPOCH_STEPS] > 0)));
        }
        if (all) {
            raise(SIGKILL);
        }
        usleep(1000);
    }
    snprintf(err->message, sizeof err->message, "waited 60 s for hooks of the other ranks");
    return TRM_INTERNAL;
}

static void note_hook(const hook_task *task, volatile int32_t *hook) {
    trm_membership m;
    trm_elastic_get_membership(task->job, &m);
    *hook = m.rank == 0 || *hook == 2 ? 2 : 1;
}

static trm_status note_step(void *context, const trm_progress *p, trm_error *err) {
    const hook_task *task = context;
    const int64_t step = (int64_t)p->global_step;
    if (task->plan->late && seen[count_ranks(task->plan)].message[0] != '\0') {
        trm_model_request_stop(task->model);
    }
    if (step > STEPS_MAX) {
        return TRM_OK;
    }
    if (task->dies == ENDS_STEP && step == task->plan->at) {
        return die_alone(task, step, err);
    }
    const double rate = trm_learning_rate_at(&schedule, (uint64_t)step - 1);
    task->own->wrong += fabs(p->learning_rate - rate) > 1e-12 || p->step_samples != BATCH ||
                        p->step != (step - 1) % EPOCH_STEPS + 1;
    note_hook(task, &task->own->step_hooks[step]);
    return TRM_OK;
}

/* The step after which the ranks go on is the same on all of them, on spare ones and newcomers,
 * too. */
static trm_status note_membership(void *context, const trm_progress *p, trm_error *err) {
    const hook_task *task = context;
    (void)err;
    task->own->misled += p->global_step != trm_exec_step(trm_model_exec(task->model));
    return TRM_OK;
}

static trm_status note_epoch(void *context, const trm_progress *p, trm_error *err) {
    const hook_task *task = context;
    if (p->epoch > STEPS_MAX / EPOCH_STEPS) {
        return TRM_OK;
    }
    if (task->dies == ENDS_EPOCH) {
        return die_alone(task, (int64_t)p->global_step, err);
    }
    note_hook(task, &task->own->epoch_hooks[p->epoch]);
    return TRM_OK;
}

/* Trains the model, and writes down its weights. */
static trm_status finish_training(const plan *p, trm_elastic *job, moment dies, trm_model *model,
                                  trm_dataset *data, outcome *out, trm_error *err) {
    hook_task task = {.plan = p, .job = job, .dies = dies, .own = out, .model = model};
    trm_train_options options = {.data = data, .until_step = p->steps, .sink = p->sink};
    if (p->saves) { /* trm_model_train takes it */
        options.callbacks[0] = trm_model_checkpoint(
            &(trm_model_checkpoint_options){.directory = p->folder, .every_steps = 1});
    }
    options.callbacks[p->saves ? 1 : 0] =
        (trm_callback){.on_gradients = die_in_training, .context = &dies};
    options.callbacks[p->saves ? 2 : 1] = (trm_callback){.on_step_end = note_step,
                                                         .on_epoch_end = note_epoch,
                                                         .on_membership = note_membership,
                                                         .context = &task};
    trm_status status = trm_model_train(model, &options, err);
    status = status == TRM_CANCELLED && p->late ? TRM_OK : status;
    if (status == TRM_OK) {
        trm_exec *exec = trm_model_exec(model);
        trm_exec_read(exec, trm_exec_find(exec, "weight"), out->weights);
        trm_elastic_get_membership(job, &out->membership);
        out->done = 1;
    }
    return status;
}

/* Makes a model in the job, and trains it as `p` says. */
static trm_status train_model(const plan *p, trm_elastic *job, moment dies, outcome *out,
                              trm_error *err) {
    trm_dataset *data = NULL;
    trm_model *model = NULL;
    maker how = {.dies = dies, .norm = p->group > 0};
    trm_status status = open_data(p, &data, err);
    if (status == TRM_OK) {
        const trm_model_options options = {
            .network = build_network,
            .network_context = &how,
            .data = data,
            .exec = {.threads = 1,
                     .seed = 5,
                     .tuning_file = "",
                     .parallel = {.block = p->group > 0 ? 0 : -1, .sync_batch_norm = p->group},
                     .optimizer = {.kind = TRM_MOMENTUM, .momentum = 0.9}},
            .learning_rate = schedule,
            .elastic = job};
        status = trm_model_create(&options, &model, err);
    }
    status = status == TRM_OK ? resume_model(p, dies, model, err) : status;
    status = status == TRM_OK ? finish_training(p, job, dies, model, data, out, err) : status;
    trm_model_destroy(model);
    trm_dataset_destroy(data);
    return status;
}

/* One process of the job. late: it comes with the number of rank `rank` when the job runs. */
static int run_rank(const char *place, int32_t rank, const plan *p, bool late) {
    outcome *own = &seen[late ? count_ranks(p) : rank];
    trm_error err;
    trm_cluster *cluster = NULL;
    trm_elastic *job = NULL;
    const trm_cluster_flags flags = {.rank = rank, .size = count_ranks(p), .rendezvous = place};
    const trm_elastic_options options = {
        .join = {.timeout_seconds = 60, .heartbeat_seconds = 0.1, .insecure = true},
        .comm = {.deterministic =
                     p->group > 0 ? TRM_DETERMINISTIC_FALSE : TRM_DETERMINISTIC_STRICT},
        .least = p->least};
    trm_status status = trm_cluster_create(&flags, &cluster, &err);
    status = status == TRM_OK ? trm_elastic_create(cluster, &options, &job, &err) : status;
    const moment dies = late ? JOINS : rank == p->dies ? p->when : NEVER;
    status = status == TRM_OK ? train_model(p, job, dies, own, &err) : status;
    trm_elastic_destroy(job);
    trm_cluster_destroy(cluster);
    if (status != TRM_OK) {
        snprintf(own->message, sizeof own->message, "%s", err.message);
    }
    return status == TRM_OK ? 0 : 1;
}

/* Runs one more process of the job, which fails, when the others have made a step. */
static void run_late(const char *place, const plan *p) {
    int status;
    for (int32_t i = 0; seen[0].step_hooks[1] == 0 && i < 60000; i++) {
        usleep(1000);
    }
    const pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        alarm(200);
        _exit(run_rank(place, 1, p, true));
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 1);
}

static void run_job(const plan *p) {
    static int count;
    char place[128];
    pid_t pids[RANKS_MAX];
    memset(seen, 0, RANKS_MAX * sizeof *seen);
    snprintf(place, sizeof place, "unix:%s/%d", directory, ++count);
    for (int32_t r = 0; r < count_ranks(p); r++) {
        pids[r] = fork();
        assert_true(pids[r] >= 0);
        if (pids[r] == 0) {
            alarm(200);
            _exit(run_rank(place, r, p, false));
        }
    }
    if (p->late) {
        run_late(place, p);
    }
    for (int32_t r = 0; r < count_ranks(p); r++) {
        int status;
        assert_int_equal(waitpid(pids[r], &status, 0), pids[r]);
        if (r == p->dies) {
            assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
        } else if (!WIFEXITED(status) || (WEXITSTATUS(status) != 0) != p->refused) {
            print_error("rank %d: %s\n", r, seen[r].message);
            fail();
        }
    }
}

/* Runs the job of `p` once for each rank, which dies at p->when. The others end with `weights`. */
static void expect_weights_without_a_rank(plan p, const float *weights) {
    for (p.dies = 0; p.dies < RANKS; p.dies++) {
        run_job(&p);
        for (int32_t r = 0; r < RANKS; r++) {
            if (r != p.dies) {
                assert_int_equal(seen[r].done, 1);
                assert_int_equal(seen[r].misled, 0);
                assert_int_equal(seen[r].membership.ranks, RANKS - 1);
                assert_memory_equal(seen[r].weights, weights, sizeof seen[r].weights);
            }
        }
    }
}

static void a_rank_dies_before_the_first_step(void **state) {
    static float undisturbed[CLASSES * INPUTS];
    char folder[64];
    plan p = {.dies = -1, .steps = STEPS};
    run_job(&p);
    memcpy(undisturbed, seen[0].weights, sizeof undisturbed);
    p.when = MAKES_MODEL;
    expect_weights_without_a_rank(p, undisturbed);

    snprintf(folder, sizeof folder, "%s/run", directory);
    run_job(&(plan){.dies = -1, .steps = STEPS / 2, .folder = folder, .saves = true});
    assert_memory_not_equal(seen[0].weights, undisturbed, sizeof undisturbed);
    p = (plan){.steps = STEPS, .folder = folder, .resumes = true};
    for (p.when = MAKES_MODEL; p.when <= RESUMES; p.when++) {
        expect_weights_without_a_rank(p, undisturbed);
    }
    (void)state;
}

/* Returns whether rank 0 of some time has called a hook. */
static bool has_reported(const plan *p, int64_t step, int64_t epoch) {
    bool any = false;
    for (int32_t r = 0; r < count_ranks(p); r++) {
        any = any || (step > 0 ? seen[r].step_hooks[step] : seen[r].epoch_hooks[epoch]) == 2;
    }
    return any;
}

/* Rank 0 dies before it calls the hooks of a step or an epoch, which the others have called: the
 * next rank 0 calls them again, and they see what they saw after the step. */
static void the_next_rank_0_reports_the_step(void **state) {
    static float undisturbed[CLASSES * INPUTS];
    static const plan cases[] = {
        {.when = ENDS_STEP, .at = 5},
        {.when = ENDS_STEP, .at = EPOCH_STEPS},
        {.when = ENDS_EPOCH},
        {.when = ENDS_STEP, .at = STEPS_MAX},
        {.when = ENDS_STEP, .at = EPOCH_STEPS, .sink = true},
    };
    plan p = {.dies = -1, .steps = STEPS_MAX};
    run_job(&p);
    memcpy(undisturbed, seen[0].weights, sizeof undisturbed);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        p = cases[i];
        p.steps = STEPS_MAX;
        run_job(&p);
        for (int64_t step = 1; step <= STEPS_MAX; step++) {
            const bool called = !p.sink || step == EPOCH_STEPS || step == STEPS_MAX;
            if (has_reported(&p, step, 0) != called) {
                fail_msg("case %zu: step %lld", i, (long long)step);
            }
        }
        assert_true(has_reported(&p, 0, 1));
        for (int32_t r = 1; r < RANKS; r++) {
            assert_int_equal(seen[r].wrong, 0);
            assert_int_equal(seen[r].misled, 0);
            assert_memory_equal(seen[r].weights, undisturbed, sizeof undisturbed);
        }
    }
    (void)state;
}

/* The ranks of a job that has ended begin it anew, as those that a launcher has started again: they
 * are refused its folder, whose checkpoints stay. Where they resume, nothing is left to do. */
static void an_ended_job_does_not_begin_anew(void **state) {
    static float ended[CLASSES * INPUTS];
    char folder[64];
    int64_t step = 0;
    trm_error err;
    snprintf(folder, sizeof folder, "%s/ended", directory);
    plan p = {.dies = -1, .steps = STEPS, .folder = folder, .saves = true};
    run_job(&p);
    memcpy(ended, seen[0].weights, sizeof ended);
    p.refused = true;
    run_job(&p);
    for (int32_t r = 0; r < RANKS; r++) {
        if (strstr(seen[r].message, "/ended has a checkpoint of st") == NULL) {
            fail_msg("rank %d: %s", r, seen[r].message);
        }
    }
    p.refused = false;
    p.resumes = true;
    run_job(&p);
    for (int32_t r = 0; r < RANKS; r++) {
        assert_memory_equal(seen[r].weights, ended, sizeof ended);
    }
    CHECK_OK(trm_checkpoint_latest(folder, &step, &err), err);
    assert_int_equal(step, STEPS);
    (void)state;
}

/* Returns the largest distance between the weights that rank `rank` has and `weights`. */
static double find_distance(int32_t rank, const float *weights) {
    double most = 0;
    for (int32_t i = 0; i < CLASSES * HIDDEN; i++) {
        most = fmax(most, fabs((double)(seen[rank].weights[i] - weights[i])));
    }
    return most;
}

/* Of two groups of two ranks one loses a rank: each of the others then normalises the samples of
 * its group alone, and the third one is spare. Other groups have other weights. */
static void groups_of_batch_norm_keep_their_samples(void **state) {
    static float undisturbed[CLASSES * HIDDEN];
    plan p = {.ranks = 4, .least = 2, .group = 2, .dies = -1, .steps = STEPS};
    run_job(&p);
    memcpy(undisturbed, (const void *)seen[0].weights, sizeof undisturbed);
    assert_true(find_distance(3, undisturbed) == 0);
    static const moment moments[] = {MAKES_MODEL, TRAINS};
    for (int i = 0; i < 2 * p.ranks; i++) {
        p.when = moments[i / p.ranks];
        p.dies = i % p.ranks;
        run_job(&p);
        for (int32_t r = 0; r < p.ranks; r++) {
            assert_true(r == p.dies || (seen[r].done == 1 && seen[r].membership.ranks == 3));
            assert_true(r == p.dies || find_distance(r, undisturbed) < 1e-5);
        }
    }
    p = (plan){.ranks = 4, .group = 4, .dies = -1, .steps = STEPS};
    run_job(&p);
    assert_true(find_distance(0, undisturbed) > 1e-3);
    (void)state;
}

/* A job that may go on with fewer ranks than it has groups is refused. */
static void more_groups_than_ranks_are_refused(void **state) {
    const plan p = {.ranks = 4, .least = 1, .group = 2, .dies = -1, .refused = true};
    run_job(&p);
    for (int32_t r = 0; r < p.ranks; r++) {
        assert_non_null(
            strstr(seen[r].message, "batch norm over groups of 2 of 4 ranks: 2 groups need 2"));
    }
    (void)state;
}

/* A process that has come and cannot make its model for the ranks of the job ends alone: the others
 * go on. */
static void a_process_that_cannot_train_ends_alone(void **state) {
    const plan p = {.ranks = 2, .dies = -1, .steps = 1000000, .late = true};
    run_job(&p);
    for (int32_t r = 0; r < p.ranks; r++) {
        assert_int_equal(seen[r].done, 1);
        assert_int_equal(seen[r].membership.ranks, p.ranks);
        assert_true(seen[r].membership.epoch > 1); /* it had been let in */
    }
    (void)state;
}

static int make_board(void **state) {
    (void)state;
    void *memory = mmap(NULL, RANKS_MAX * sizeof *seen, PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    seen = memory;
    return memory == MAP_FAILED || mkdtemp(directory) == NULL ? -1 : 0;
}

static int remove_directory(void **state) {
    (void)state;
    return trmi_os_remove_tree(NULL, directory, NULL) == TRM_OK ? 0 : -1;
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_rank_dies_before_the_first_step),
                                       cmocka_unit_test(the_next_rank_0_reports_the_step),
                                       cmocka_unit_test(an_ended_job_does_not_begin_anew),
                                       cmocka_unit_test(groups_of_batch_norm_keep_their_samples),
                                       cmocka_unit_test(more_groups_than_ranks_are_refused),
                                       cmocka_unit_test(a_process_that_cannot_train_ends_alone)};
    return cmocka_run_group_tests(tests, make_board, remove_directory);
}
