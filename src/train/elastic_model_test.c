/* SPDX-License-Identifier: Apache-2.0 */
/* Models of elastic jobs, of real processes: a rank dies before any of them has trained, while the
 * ranks make their models or before they agree on the checkpoint that they resume. The others train
 * without it, with the bits of the undisturbed job. */
#include "check.h"

#include "trireme/elastic.h"
#include "trireme/train.h"

#include "base/os.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { RANKS = 3, BATCH = 24, SIZE = 32, CLASSES = 10, STEPS = 6, INPUTS = 3 * SIZE * SIZE };

/* The results of a rank, in memory that it shares with the test. */
typedef struct outcome {
    volatile int32_t done; /* 1: the other members are written */
    float weights[CLASSES * INPUTS];
    trm_membership membership; /* the last one */
    char message[256];         /* of its error; "": none */
} outcome;

/* When a rank dies. */
typedef enum moment { NEVER, MAKES_MODEL, RESUMES } moment;

/* What the ranks of a job do. */
typedef struct plan {
    int32_t dies; /* the rank that dies; -1: none */
    moment when;
    int64_t steps;       /* until which they train */
    const char *folder;  /* that they resume and save in; NULL: neither */
    bool resumes, saves; /* from it, in it */
} plan;

static outcome *seen; /* [RANKS] */
static char directory[] = "/tmp/elasticmodelXXXXXX";

/* Builds one linear layer. A rank of which *context is MAKES_MODEL dies here: its peers are
 * compiling, or soon will be. */
static trm_node build_network(trm_graph *g, const trm_inputs *inputs, void *context) {
    const moment *dies = context;
    trm_node x = trm_inputs_get(inputs, "image");
    x = trm_reshape(g, x, trm_shape_of(trm_node_shape(g, x).dim[0], INPUTS));
    if (*dies == MAKES_MODEL) {
        raise(SIGKILL);
    }
    return trm_linear(g, x,
                      trm_parameter(g, "weight", trm_shape_of(CLASSES, INPUTS), TRM_INIT_LINEAR),
                      trm_parameter(g, "bias", trm_shape_of(CLASSES), TRM_INIT_ZERO));
}

static trm_status open_data(trm_dataset **data, trm_error *err) {
    const trm_dataset_spec spec = {.kind = "auto",
                                   .path = "synth",
                                   .usage = TRM_USAGE_TRAIN,
                                   .seed = 3,
                                   .batch_size = BATCH / RANKS,
                                   .augment = TRM_OFF,
                                   .prefetch_depth = -1,
                                   .shapes = &(trm_shapes_options){.train_count = BATCH * 8}};
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

/* Trains the model, and writes down its weights. */
static trm_status finish_training(const plan *p, trm_elastic *job, trm_model *model,
                                  trm_dataset *data, outcome *out, trm_error *err) {
    trm_train_options options = {.data = data, .until_step = p->steps};
    if (p->saves) { /* trm_model_train takes it */
        options.callbacks[0] = trm_model_checkpoint(
            &(trm_model_checkpoint_options){.directory = p->folder, .every_steps = 1});
    }
    trm_status status = trm_model_train(model, &options, err);
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
    trm_status status = open_data(&data, err);
    if (status == TRM_OK) {
        const trm_model_options options = {
            .network = build_network,
            .network_context = &dies,
            .data = data,
            .exec = {.threads = 1,
                     .seed = 5,
                     .tuning_file = "",
                     .parallel = {.block = -1},
                     .optimizer = {.kind = TRM_MOMENTUM, .momentum = 0.9}},
            .learning_rate = {.base = 0.05},
            .elastic = job};
        status = trm_model_create(&options, &model, err);
    }
    status = status == TRM_OK ? resume_model(p, dies, model, err) : status;
    status = status == TRM_OK ? finish_training(p, job, model, data, out, err) : status;
    trm_model_destroy(model);
    trm_dataset_destroy(data);
    return status;
}

/* One process of the job. */
static int run_rank(const char *place, int32_t rank, const plan *p) {
    trm_error err;
    trm_cluster *cluster = NULL;
    trm_elastic *job = NULL;
    const trm_cluster_flags flags = {.rank = rank, .size = RANKS, .rendezvous = place};
    const trm_elastic_options options = {
        .join = {.timeout_seconds = 60, .heartbeat_seconds = 0.1, .insecure = true},
        .comm = {.deterministic = TRM_DETERMINISTIC_STRICT}};
    trm_status status = trm_cluster_create(&flags, &cluster, &err);
    status = status == TRM_OK ? trm_elastic_create(cluster, &options, &job, &err) : status;
    const moment dies = rank == p->dies ? p->when : NEVER;
    status = status == TRM_OK ? train_model(p, job, dies, &seen[rank], &err) : status;
    if (status != TRM_OK) {
        snprintf(seen[rank].message, sizeof seen[rank].message, "%s", err.message);
    }
    trm_elastic_destroy(job);
    trm_cluster_destroy(cluster);
    return status == TRM_OK ? 0 : 1;
}

static void run_job(const plan *p) {
    static int count;
    char place[128];
    pid_t pids[RANKS];
    memset(seen, 0, RANKS * sizeof *seen);
    snprintf(place, sizeof place, "unix:%s/%d", directory, ++count);
    for (int32_t r = 0; r < RANKS; r++) {
        pids[r] = fork();
        assert_true(pids[r] >= 0);
        if (pids[r] == 0) {
            alarm(200);
            _exit(run_rank(place, r, p));
        }
    }
    for (int32_t r = 0; r < RANKS; r++) {
        int status;
        assert_int_equal(waitpid(pids[r], &status, 0), pids[r]);
        if (r == p->dies) {
            assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
        } else if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
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

static int make_board(void **state) {
    (void)state;
    void *memory =
        mmap(NULL, RANKS * sizeof *seen, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    seen = memory;
    return memory == MAP_FAILED || mkdtemp(directory) == NULL ? -1 : 0;
}

static int remove_directory(void **state) {
    (void)state;
    return trmi_os_remove_tree(NULL, directory, NULL) == TRM_OK ? 0 : -1;
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_rank_dies_before_the_first_step)};
    return cmocka_run_group_tests(tests, make_board, remove_directory);
}
