/* SPDX-License-Identifier: Apache-2.0 */
/* Elastic jobs whose ranks keep their batches (TRM_ELASTIC_BATCH_RANK), of real processes. Each
 * process writes down which samples it reads for which step, and the rate and the loss of the step:
 *
 *      processes: read sample, on_gradients --> board (shared memory) --> the test: each sample of an epoch at most
 *                                                                        once, and all but those of
 *                                                                        no whole step; rates,
 *                                                                        losses and weights are
 *                                                                        those of the same batches
 *                                                                        on one device
 *
 * The one device is a softmax regression in doubles, written below. A step that was interrupted is
 * computed again in a later epoch of the job: of a step counts the last epoch in which its
 * gradients were complete. */
#include "check.h"

#include "trireme/dist.h"
#include "trireme/train.h"

#include "base/os.h"

#include <math.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    RANKS = 3,
    RANKS_MAX = 4,
    BATCH = 4, /* of a rank; in a pipeline of the ranks that compute the same samples */
    SAMPLES = 96,
    INPUTS = 5,
    CLASSES = 3,
    EPOCHS = 4,
    STEPS_MAX = 100,
    CHANGES_MAX = 8, /* epochs of the job */
    DIES_AT = 4,     /* step in which rank 1 dies */
    JOINS_BY = 13,   /* step after which rank 0 waits for the process that joins */
    LEAVES_AT = 20,  /* step after which rank 2 leaves */
    SAVED_AT = 5,
    MICRO_BATCHES = 2 /* of a pipeline */
};

/* One step, as one epoch of the job has computed it. */
typedef struct attempt {
    int32_t parts; /* of its samples: one a rank, in a pipeline one for each rank of a stage */
    int32_t count[RANKS_MAX], samples[RANKS_MAX * BATCH];
    int64_t data_epoch;
    double rate, loss;
} attempt;

typedef struct board {
    struct {
        atomic_llong
            epoch; /* of the job: the last one in which the gradients were complete; 0: none */
        attempt of[CHANGES_MAX];
    } steps[STEPS_MAX];
    atomic_int bad; /* more samples, steps or epochs than can be, or less than no time */
    float weight[CLASSES * INPUTS], bias[CLASSES];
    uint64_t end; /* step after which the job has ended */
    char messages[RANKS_MAX][256];
} board;

/* What the processes of a job do. */
typedef struct plan {
    int32_t ranks;
    bool changes;       /* ranks die, join and leave */
    bool strict;        /* determinism */
    bool slices;        /* of the optimiser */
    int32_t stages;     /* of a pipeline; 0: none */
    bool split;         /* the graph of all ranks */
    bool whole;         /* each rank reads the samples of all */
    int64_t until_step; /* 0: all EPOCHS epochs */
    int64_t schedule;   /* steps of the schedule; 0: by the epochs */
    const char *folder; /* that they resume from, or save in; NULL: neither */
    bool resumes;
} plan;

/* What this process does. */
typedef struct process {
    const plan *plan;
    trm_elastic *job;
    trm_model *model;
    int64_t computing;    /* step whose samples are read; 0: none */
    trm_report_mark mark; /* at the step before */
    bool dies, waits, leaves, joined;
} process;

static const trm_learning_rate schedule = {.base = 0.3, .decay = TRM_DECAY_COSINE, .end = 0.05};

static board *seen;
static char directory[] = "/tmp/elasticbatchXXXXXX";

/* Returns the parts in which `ranks` ranks have a batch. */
static int32_t count_parts(const plan *p, int32_t ranks) {
    const int32_t stages = p->stages < ranks ? p->stages : ranks;
    return stages > 1 ? ranks / stages : ranks;
}

/* Returns the steps of an epoch of the first ranks. */
static int32_t count_first_steps(const plan *p) {
    return SAMPLES / (count_parts(p, p->ranks) * BATCH);
}

static int64_t count_schedule_steps(const plan *p) { return EPOCHS * count_first_steps(p); }

/* ---- a process of the job -------------------------------------------------------------------- */

static void make_sample(int64_t index, float *image, int32_t *label) {
    for (int i = 0; i < INPUTS; i++) {
        image[i] = (float)sin((double)index * 7 + i * 1.3);
    }
    *label = (int32_t)(index * index % CLASSES);
}

/* Returns the attempt of this process at the step that it computes, and its rank; NULL: there
 * cannot be such a one. */
static attempt *find_attempt(const process *me, trm_membership *m) {
    trm_elastic_get_membership(me->job, m);
    if (me->computing >= STEPS_MAX || m->epoch >= CHANGES_MAX || m->rank < 0 ||
        m->rank >= RANKS_MAX) {
        atomic_store(&seen->bad, 1);
        return NULL;
    }
    return &seen->steps[me->computing].of[m->epoch];
}

static trm_status read_sample(void *context, int64_t index, const trm_tensor *fields,
                              trm_error *err) {
    process *me = context;
    trm_membership m;
    (void)err;
    make_sample(index, fields[0].data, fields[1].data);
    attempt *a = me->computing > 0 ? find_attempt(me, &m) : NULL;
    if (a == NULL) {
        return TRM_OK;
    }
    if (me->dies && me->computing == DIES_AT) {
        raise(SIGKILL);
    }
    const int32_t parts = count_parts(me->plan, m.ranks);
    if (m.rank >= parts || (me->plan->whole && m.rank > 0)) {
        return TRM_OK; /* another rank reads the same ones */
    }
    if (a->count[m.rank] == (me->plan->whole ? parts * BATCH : BATCH)) {
        atomic_store(&seen->bad, 1);
        return TRM_OK;
    }
    a->samples[m.rank * BATCH + a->count[m.rank]++] = (int32_t)index;
    return TRM_OK;
}

/* on_begin: samples that are read from here on belong to the step after the model's. */
static trm_status note_beginning(void *context, const trm_progress *p, trm_error *err) {
    (void)err;
    ((process *)context)->computing = (int64_t)p->global_step + 1;
    return TRM_OK;
}

/* Writes the attempt down. Its gradients are complete: it replaces those of earlier epochs of the
 * job. */
static trm_status note_gradients(void *context, const trm_progress *p, trm_error *err) {
    const process *me = context;
    trm_membership m;
    attempt *a = find_attempt(me, &m);
    (void)err;
    if (a != NULL) {
        a->parts = count_parts(me->plan, m.ranks);
        a->data_epoch = p->epoch;
        a->rate = p->learning_rate;
        a->loss = (double)p->loss;
        atomic_llong *epoch = &seen->steps[me->computing].epoch;
        long long before = atomic_load(epoch);
        while (before < m.epoch && !atomic_compare_exchange_weak(epoch, &before, m.epoch)) {
        }
    }
    return TRM_OK;
}

/* After a step: rank 0 waits here for the process that joins, rank 2 asks to leave. */
static trm_status note_step(void *context, const trm_progress *p, trm_error *err) {
    process *me = context;
    me->computing = (int64_t)p->global_step + 1;
    (void)err;
    /* time goes on where an epoch begins again with other ranks */
    const trm_mean_step mean = trm_take_mean_step(&me->mark, p);
    if (mean.data_wait_seconds < 0 || mean.rank_wait_seconds < 0 || mean.step_seconds < 0) {
        atomic_store(&seen->bad, 1);
    }
    for (int32_t i = 0; me->waits && !me->joined && p->global_step == JOINS_BY; i++) {
        if (trm_elastic_wants_change(me->job)) {
            break;
        }
        if (i == 60000) {
            atomic_store(&seen->bad, 1);
            break;
        }
        usleep(1000);
    }
    if (me->leaves && p->global_step == LEAVES_AT) {
        trm_model_request_leave(me->model);
    }
    return TRM_OK;
}

static trm_status note_membership(void *context, const trm_progress *p, trm_error *err) {
    process *me = context;
    (void)err;
    me->joined = me->joined || p->membership->joined_count > 0;
    return TRM_OK;
}

static trm_node build_network(trm_graph *g, const trm_inputs *inputs, void *context) {
    (void)context;
    return trm_linear(g, trm_inputs_get(inputs, "image"),
                      trm_parameter(g, "weight", trm_shape_of(CLASSES, INPUTS), TRM_INIT_ZERO),
                      trm_parameter(g, "bias", trm_shape_of(CLASSES), TRM_INIT_ZERO));
}

static trm_status open_data(process *me, int64_t batch, trm_dataset **data, trm_error *err) {
    const trm_data_source source = {
        .samples = SAMPLES,
        .classes = CLASSES,
        .field_count = 2,
        .fields = {{"image", {.dtype = TRM_FLOAT32, .shape = trm_shape_of(INPUTS)}},
                   {"label", {.dtype = TRM_INT32, .shape = {.rank = 0}}}},
        .read = read_sample,
        .context = me};
    trm_status status = trm_dataset_callback(&source, data, err);
    status = status == TRM_OK ? trm_dataset_shuffle(*data, 0, err) : status;
    return status == TRM_OK ? trm_dataset_batch(*data, batch, true, err) : status;
}

static trm_model_options options_of(trm_dataset *data, trm_elastic *job, const plan *p) {
    trm_learning_rate rate = schedule;
    rate.total_steps = p->schedule;
    return (trm_model_options){
        .network = build_network,
        .data = data,
        .exec = {.threads = 1,
                 .tuning_file = "",
                 .accumulate = p->stages > 1 ? MICRO_BATCHES : 0,
                 .parallel = {.block = p->strict ? -1 : 0,
                              .shard_optimizer = p->slices,
                              .pipeline.stages = p->stages,
                              .batch = p->whole ? TRM_BATCH_OF_JOB : TRM_BATCH_DEFAULT,
                              .split.kind = p->split ? TRM_SPLIT_PLANNED : TRM_SPLIT_NONE},
                 .optimizer = {.kind = TRM_MOMENTUM, .momentum = 0.9}},
        .learning_rate = rate,
        .elastic = job,
        .elastic_batch = job != NULL ? TRM_ELASTIC_BATCH_RANK : TRM_ELASTIC_BATCH_GLOBAL};
}

/* Saves the model in the plan's folder. All ranks call it, the first one writes. */
static trm_status save_model(const process *me, trm_error *err) {
    trm_checkpoint_writer *writer = NULL;
    trm_membership m;
    trm_elastic_get_membership(me->job, &m);
    trm_status status =
        m.rank == 0 ? trm_checkpoint_writer_open(me->plan->folder, NULL, &writer, err) : TRM_OK;
    status = status == TRM_OK ? trm_model_save(me->model, writer, err) : status;
    trm_status closed = writer != NULL ? trm_checkpoint_writer_close(writer, err) : TRM_OK;
    return status == TRM_OK ? closed : status;
}

/* Trains the model of the job as the plan says. */
static trm_status train_model(process *me, trm_error *err) {
    const plan *p = me->plan;
    trm_train_options options = {.until_epoch = EPOCHS,
                                 .until_step = p->until_step,
                                 .callbacks = {{.on_begin = note_beginning,
                                                .on_gradients = note_gradients,
                                                .on_step_end = note_step,
                                                .on_membership = note_membership,
                                                .context = me}}};
    trm_dataset *data = NULL;
    const int64_t batch = p->stages > 1 ? BATCH / MICRO_BATCHES
                          : p->whole    ? count_parts(p, p->ranks) * BATCH
                                        : BATCH;
    trm_status status = open_data(me, batch, &data, err);
    if (status == TRM_OK) {
        const trm_model_options model = options_of(data, me->job, p);
        status = trm_model_create(&model, &me->model, err);
    }
    options.data = data;
    status = status == TRM_OK && p->resumes ? trm_model_resume(me->model, p->folder, err) : status;
    status = status == TRM_OK ? trm_model_train(me->model, &options, err) : status;
    status = status == TRM_OK && p->folder != NULL && !p->resumes ? save_model(me, err) : status;
    if (status == TRM_OK && (p->stages > 1 || p->split)) {
        status = trm_exec_gather(trm_model_exec(me->model), err);
    }
    if (status == TRM_OK) {
        trm_exec *exec = trm_model_exec(me->model);
        trm_exec_read(exec, trm_exec_find(exec, "weight"), seen->weight);
        trm_exec_read(exec, trm_exec_find(exec, "bias"), seen->bias);
        seen->end = trm_model_global_step(me->model);
    }
    trm_model_destroy(me->model);
    trm_dataset_destroy(data);
    return status == TRM_END && me->leaves ? TRM_OK : status;
}

static int run_process(const char *place, int32_t rank, const plan *p, bool first) {
    trm_error err;
    trm_cluster *cluster = NULL;
    process me = {.plan = p,
                  .dies = p->changes && rank == 1 && first,
                  .waits = p->changes && rank == 0,
                  .leaves = p->changes && rank == 2};
    const trm_cluster_flags flags = {.rank = rank, .size = p->ranks, .rendezvous = place};
    const trm_elastic_options options = {
        .join = {.timeout_seconds = 60, .heartbeat_seconds = 0.1, .insecure = true},
        .comm = {.deterministic = p->strict ? TRM_DETERMINISTIC_STRICT : TRM_DETERMINISTIC_FALSE}};
    trm_status status = trm_cluster_create(&flags, &cluster, &err);
    status = status == TRM_OK ? trm_elastic_create(cluster, &options, &me.job, &err) : status;
    status = status == TRM_OK ? train_model(&me, &err) : status;
    if (status != TRM_OK) {
        snprintf(seen->messages[rank], sizeof seen->messages[rank], "%s", err.message);
    }
    trm_elastic_destroy(me.job);
    trm_cluster_destroy(cluster);
    return status == TRM_OK ? 0 : 1;
}

/* ---- the test -------------------------------------------------------------------------------- */

static pid_t start_process(const char *place, int32_t rank, const plan *p, bool first) {
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        alarm(200);
        _exit(run_process(place, rank, p, first));
    }
    return pid;
}

/* Runs a job. Where its ranks change, rank 1 is started again after its death. */
static void run_job(const plan *p) {
    static int count;
    char place[128];
    pid_t pids[RANKS_MAX];
    int status;
    snprintf(place, sizeof place, "unix:%s/%d", directory, ++count);
    for (int32_t r = 0; r < p->ranks; r++) {
        pids[r] = start_process(place, r, p, true);
    }
    if (p->changes) {
        assert_int_equal(waitpid(pids[1], &status, 0), pids[1]);
        assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
        for (int32_t i = 0; i < 60000 && atomic_load(&seen->steps[DIES_AT].epoch) == 0; i++) {
            usleep(1000); /* the others have gone on without it */
        }
        pids[1] = start_process(place, 1, p, false);
    }
    for (int32_t r = 0; r < p->ranks; r++) {
        assert_int_equal(waitpid(pids[r], &status, 0), pids[r]);
        if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
            print_error("rank %d: %s\n", r, seen->messages[r]);
            fail();
        }
    }
    assert_int_equal(atomic_load(&seen->bad), 0);
}

/* Softmax regression with momentum, on one device. */
typedef struct regression {
    double weight[CLASSES][INPUTS + 1], speed[CLASSES][INPUTS + 1]; /* the last column: bias */
} regression;

/* Computes the gradient of the mean loss of `count` samples, and applies it. Returns the loss. */
static double take_step(regression *m, const int32_t *samples, int32_t count, double rate) {
    double gradient[CLASSES][INPUTS + 1] = {{0}}, loss = 0;
    for (int32_t s = 0; s < count; s++) {
        float image[INPUTS + 1];
        int32_t label;
        double logits[CLASSES], total = 0;
        make_sample(samples[s], image, &label);
        image[INPUTS] = 1;
        for (int c = 0; c < CLASSES; c++) {
            logits[c] = 0;
            for (int i = 0; i <= INPUTS; i++) {
                logits[c] += m->weight[c][i] * (double)image[i];
            }
            total += exp(logits[c]);
        }
        loss += (log(total) - logits[label]) / count;
        for (int c = 0; c < CLASSES; c++) {
            const double part = (exp(logits[c]) / total - (c == label)) / count;
            for (int i = 0; i <= INPUTS; i++) {
                gradient[c][i] += part * (double)image[i];
            }
        }
    }
    for (int c = 0; c < CLASSES; c++) {
        for (int i = 0; i <= INPUTS; i++) {
            m->speed[c][i] = 0.9 * m->speed[c][i] + gradient[c][i];
            m->weight[c][i] -= rate * m->speed[c][i];
        }
    }
    return loss;
}

/* The samples of an epoch so far. */
typedef struct pass {
    int64_t epoch; /* from 1 */
    int32_t used;
    bool has[SAMPLES];
} pass;

/* Adds the samples of a step to the pass; none of them may be in it. Those that the pass before has
 * left are too few for a step. */
static void add_samples(pass *pass, const plan *p, const attempt *a) {
    if (a->data_epoch != pass->epoch) {
        assert_true(pass->epoch == 0 || SAMPLES - pass->used < count_parts(p, p->ranks) * BATCH);
        assert_int_equal(a->data_epoch, pass->epoch + 1);
        memset(pass, 0, sizeof *pass);
        pass->epoch = a->data_epoch;
    }
    for (int32_t r = 0; r < (p->whole ? 1 : a->parts); r++) {
        assert_int_equal(a->count[r], p->whole ? a->parts * BATCH : BATCH);
    }
    for (int32_t i = 0; i < a->parts * BATCH; i++) {
        const int32_t sample = a->samples[i];
        assert_in_range(sample, 0, SAMPLES - 1);
        assert_false(pass->has[sample]);
        pass->has[sample] = true;
    }
    pass->used += a->parts * BATCH;
}

static void expect_near(double found, double expected, double most) {
    if (!(fabs(found - expected) <= most)) {
        print_error("%.9g instead of %.9g\n", found, expected);
        fail();
    }
}

/* Compares all that the processes wrote down with one device. first: how the job began. Returns how
 * often the number of parts has changed. */
static int32_t check_board(const plan *first) {
    const int32_t first_parts = count_parts(first, first->ranks);
    const int64_t step = first_parts * BATCH; /* samples of a step of the first ranks */
    static regression model;
    pass pass = {.epoch = 0};
    int32_t changes = 0, parts = first_parts;
    trm_learning_rate rate = schedule;
    rate.total_steps = count_schedule_steps(first);
    memset(&model, 0, sizeof model);
    assert_in_range(seen->end, 1, STEPS_MAX - 1);
    for (uint64_t s = 1; s <= seen->end; s++) {
        const attempt *a = &seen->steps[s].of[atomic_load(&seen->steps[s].epoch)];
        assert_in_range(a->parts, 1, RANKS_MAX);
        changes += a->parts != parts;
        parts = a->parts;
        const int64_t used = a->data_epoch == pass.epoch ? pass.used : 0;
        const int64_t at = (a->data_epoch - 1) * (SAMPLES / step) + used / step;
        add_samples(&pass, first, a);
        expect_near(a->rate,
                    trm_learning_rate_at(&rate, (uint64_t)at) * a->parts / (double)first_parts,
                    1e-12);
        expect_near(take_step(&model, a->samples, a->parts * BATCH, a->rate), a->loss, 1e-5);
    }
    for (int c = 0; c < CLASSES; c++) {
        expect_near(model.weight[c][INPUTS], (double)seen->bias[c], 1e-5);
        for (int i = 0; i < INPUTS; i++) {
            expect_near(model.weight[c][i], (double)seen->weight[c * INPUTS + i], 1e-5);
        }
    }
    return changes;
}

static void ranks_keep_their_batches_through_changes(void **state) {
    for (int way = 0; way < 4; way++) {
        const plan p = {
            .ranks = RANKS, .changes = true, .strict = way % 2 == 1, .slices = way / 2 == 1};
        memset(seen, 0, sizeof *seen);
        run_job(&p);
        assert_int_equal(check_board(&p), 3);
    }
    (void)state;
}

/* The graph of all ranks, of which each has its own samples or the samples of all. */
static void ranks_of_a_split_graph_keep_their_parts(void **state) {
    for (int way = 0; way < 4; way++) {
        const plan p = {.ranks = RANKS,
                        .changes = true,
                        .strict = way % 2 == 1,
                        .split = true,
                        .whole = way / 2 == 1};
        memset(seen, 0, sizeof *seen);
        run_job(&p);
        assert_int_equal(check_board(&p), 3);
    }
    (void)state;
}

/* Two stages of two ranks, with three ranks two stages of one and a spare rank: the ranks of a
 * stage keep their parts. */
static void stages_keep_their_parts(void **state) {
    for (int way = 0; way < 2; way++) {
        const plan p = {.ranks = 4, .changes = true, .strict = way == 1, .stages = 2};
        memset(seen, 0, sizeof *seen);
        run_job(&p);
        assert_int_equal(check_board(&p), 3);
    }
    (void)state;
}

/* The job goes on at the sample, with fewer ranks. A job that keeps the batch of all ranks cannot.
 */
static void a_job_is_resumed_at_the_sample(void **state) {
    char folder[64];
    trm_error err;
    trm_dataset *data;
    trm_model *model;
    process alone = {.computing = 0};
    plan p;
    for (int way = 0; way < 3; way++) { /* also of a split graph, whose ranks read all samples */
        p = (plan){.ranks = RANKS,
                   .until_step = SAVED_AT,
                   .folder = folder,
                   .split = way > 0,
                   .whole = way > 1};
        const plan first = p;
        p.schedule = count_schedule_steps(&first);
        memset(seen, 0, sizeof *seen);
        snprintf(folder, sizeof folder, "%s/run%d", directory, way);
        run_job(&p);
        assert_int_equal(seen->end, SAVED_AT);
        p.ranks = RANKS - 1;
        p.until_step = 0;
        p.resumes = true;
        run_job(&p);
        assert_int_equal(check_board(&first), 1);
    }

    p.split = p.whole = false;
    assert_int_equal(open_data(&alone, RANKS * BATCH, &data, &err), TRM_OK);
    const trm_model_options options = options_of(data, NULL, &p);
    assert_int_equal(trm_model_create(&options, &model, &err), TRM_OK);
    assert_int_equal(trm_model_resume(model, folder, &err), TRM_INVALID);
    assert_non_null(strstr(err.message, "kept their batches"));
    trm_model_destroy(model);
    trm_dataset_destroy(data);
    (void)state;
}

static int make_board(void **state) {
    (void)state;
    void *memory =
        mmap(NULL, sizeof *seen, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    seen = memory;
    return memory == MAP_FAILED || mkdtemp(directory) == NULL ? -1 : 0;
}

static int remove_directory(void **state) {
    (void)state;
    return trmi_os_remove_tree(NULL, directory, NULL) == TRM_OK ? 0 : -1;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_keep_their_batches_through_changes),
        cmocka_unit_test(ranks_of_a_split_graph_keep_their_parts),
        cmocka_unit_test(stages_keep_their_parts),
        cmocka_unit_test(a_job_is_resumed_at_the_sample),
    };
    return cmocka_run_group_tests(tests, make_board, remove_directory);
}
