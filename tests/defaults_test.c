/* SPDX-License-Identifier: Apache-2.0 */
/* Tests a model whose program sets no option about ranks: it uses the ranks that the process has
 * joined, shares its dataset among them, and takes a batch as one rank's in every mode. Two
 * processes with batches of 8 have the losses and the weights of one process with batches of 16. */
#include "check.h"
#include "folder.h"

#include "trireme/trireme.h"

#include "base/error.h"

#include <math.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { RANKS = 2, BATCH = 8, STEPS = 6, WEIGHTS = 32 };

/* What a rank has seen, in memory that it shares with the test. */
typedef struct record {
    double loss[STEPS], evaluated; /* evaluated: loss of the evaluation */
    float weight[WEIGHTS];         /* after the last step */
    int64_t epoch_steps, evaluated_samples;
    int64_t warnings, norm_lines, joined_lines; /* lines of the log: all warnings, of two kinds */
    char warning[256];                          /* the last one */
    trm_error err;
} record;

typedef enum way {
    ALONE,
    SILENT,
    BOOTSTRAP_ONLY,
    GIVEN_COMM,
    AUTO,
    WHOLE,
    STAND_ALONE,
    OWN_NORMS,
    NOT_JOINED
} way;

static trm_node build_network(trm_graph *g, const trm_inputs *inputs, void *context) {
    trm_node x = trm_inputs_get(inputs, "image");
    x = trm_avg_pool(g, x, &(trm_pool_options){.kernel = {8, 8}});
    x = trm_reshape(g, x, trm_shape_of(-1, 48));
    trm_shape c = trm_shape_of(48);
    x = trm_batch_norm(g, x, trm_parameter(g, "gamma", c, TRM_INIT_ONE),
                       trm_parameter(g, "beta", c, TRM_INIT_ZERO),
                       trm_state(g, "mean", TRM_FLOAT32, c, TRM_INIT_ZERO),
                       trm_state(g, "variance", TRM_FLOAT32, c, TRM_INIT_ONE), NULL);
    return trm_mlp(g, x, (int64_t[]){16}, 1, 10);
}

static trm_dataset *open_shapes(trm_usage usage, int64_t batch) {
    const trm_dataset_spec spec = {.path = "synth",
                                   .usage = usage,
                                   .batch_size = batch,
                                   .seed = 5,
                                   .augment = TRM_OFF,
                                   .shapes =
                                       &(trm_shapes_options){.train_count = 160, .test_count = 50}};
    trm_dataset *data = NULL;
    trm_error err;
    CHECK_OK(trm_dataset_open(&spec, &data, &err), err);
    return data;
}

static trm_status note_loss(void *context, const trm_progress *p, trm_error *err) {
    ((record *)context)->loss[p->global_step - 1] = (double)p->loss;
    return TRM_OK;
}

static void note_line(void *context, trm_log_level level, const char *room, const char *line) {
    record *r = context;
    if (level == TRM_LOG_INFO) {
        r->norm_lines += strstr(line, "8 samples a rank, 16 together; batch norm is over") != NULL;
        r->joined_lines += strstr(line, "batch norm is over all ranks' samples") != NULL;
        return;
    }
    r->warnings++;
    snprintf(r->warning, sizeof r->warning, "%s", line);
}

/* Runs this process's part of the job with the public API alone. */
static trm_status train_part(way how, record *r, trm_error *err) {
    trm_comm *comm = NULL;
    trm_cluster *cluster = NULL;
    trm_bootstrap *bootstrap = NULL;
    trm_log_set_sink(note_line, r, TRM_LOG_INFO);
    if (how == BOOTSTRAP_ONLY) {
        TRMI_TRY(trm_cluster_from_env(NULL, NULL, NULL, &cluster, err));
        TRMI_TRY(trm_cluster_join(cluster, NULL, &bootstrap, err));
        trm_cluster_destroy(cluster);
    } else if (how != ALONE && how != NOT_JOINED) {
        TRMI_TRY(trm_distribute_comm(NULL, &comm, err));
    }
    int64_t batch = how == ALONE || how == WHOLE ? RANKS * BATCH : BATCH;
    trm_dataset *data = open_shapes(TRM_USAGE_TRAIN, batch),
                *test = open_shapes(TRM_USAGE_TEST, BATCH);
    trm_context *context = NULL;
    trm_model_options options = {.network = build_network,
                                 .data = data,
                                 .exec.backend = "ref",
                                 .exec.seed = 3,
                                 .exec.optimizer = {.kind = TRM_MOMENTUM, .momentum = 0.9},
                                 .learning_rate = {.base = 0.05}};
    options.exec.parallel.comm = how == GIVEN_COMM ? comm : NULL;
    options.exec.parallel.stand_alone = how == STAND_ALONE;
    options.exec.parallel.sync_batch_norm = how == OWN_NORMS ? TRM_NORM_LOCAL : 0;
    if (how == AUTO || how == WHOLE) {
        TRMI_TRY(trm_context_create(&context, err));
        TRMI_TRY(trm_context_set(context, "parallel_mode", "semi_auto_parallel", err));
        options.context = context;
    }
    if (how == WHOLE) {
        TRMI_TRY(trm_context_set(context, "full_batch", "true", err));
    }
    trm_model *model;
    trm_evaluation result;
    TRMI_TRY(trm_model_create(&options, &model, err));
    r->epoch_steps = trm_model_epoch_steps(model, data);
    TRMI_TRY(trm_model_train(
        model,
        &(trm_train_options){.data = data,
                             .until_step = STEPS,
                             .callbacks = {{.on_step_end = note_loss, .context = r}}},
        err));
    TRMI_TRY(trm_model_evaluate(model, test, &result, err));
    r->evaluated = result.loss;
    r->evaluated_samples = result.samples;
    trm_exec *exec = trm_model_exec(model);
    TRMI_TRY(trm_exec_gather(exec, err));
    float weights[16 * 48];
    int32_t index = trm_exec_find(exec, "fc1.weight");
    index = index >= 0 ? index : 0;
    trm_exec_read(exec, index, weights);
    memcpy(r->weight, weights, sizeof r->weight);
    trm_model_destroy(model);
    trm_context_destroy(context);
    trm_dataset_destroy(data);
    trm_dataset_destroy(test);
    trm_cluster_leave(bootstrap);
    return TRM_OK;
}

/* Starts the processes as a launcher does. */
static record *run_ranks(way how) {
    record *all =
        mmap(NULL, RANKS * sizeof *all, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(all != MAP_FAILED);
    pid_t pids[RANKS];
    int ranks = how == ALONE ? 1 : RANKS;
    for (int rank = 0; rank < ranks; rank++) {
        pids[rank] = fork();
        if (pids[rank] == 0 && how == ALONE) {
            exit(train_part(how, &all[rank], &all[rank].err) == TRM_OK ? 0 : 1);
        }
        if (pids[rank] == 0) {
            char text[160];
            snprintf(text, sizeof text, "%d", rank);
            setenv("TRIREME_RANK", text, 1);
            setenv("TRIREME_LOCAL_RANK", text, 1);
            setenv("TRIREME_SIZE", "2", 1);
            setenv("TRIREME_LOCAL_SIZE", "2", 1);
            snprintf(text, sizeof text, "unix:%s/meet%d", folder, (int)how);
            setenv("TRIREME_RENDEZVOUS", text, 1);
            exit(train_part(how, &all[rank], &all[rank].err) == TRM_OK ? 0 : 1);
        }
    }
    for (int rank = 0; rank < ranks; rank++) {
        int status;
        waitpid(pids[rank], &status, 0);
        if (status != 0) {
            fail_msg("way %d, rank %d: %s", (int)how, rank, all[rank].err.message);
        }
    }
    return all;
}

static void assert_close(const record *one, const record *rank) {
    for (int i = 0; i < STEPS; i++) {
        if (fabs(one->loss[i] - rank->loss[i]) > 1e-4 * one->loss[i]) {
            fail_msg("step %d: loss %g, one process has %g", i + 1, rank->loss[i], one->loss[i]);
        }
    }
    for (int i = 0; i < WEIGHTS; i++) {
        assert_true(fabsf(one->weight[i] - rank->weight[i]) < 1e-4f);
    }
    assert_int_equal(rank->epoch_steps, one->epoch_steps);
    assert_int_equal(rank->evaluated_samples, one->evaluated_samples);
    assert_true(fabs(one->evaluated - rank->evaluated) < 1e-3 * one->evaluated);
}

static void ranks_have_the_results_of_one_process(void **state) {
    record *one = run_ranks(ALONE);
    assert_int_equal(one->epoch_steps, 10);
    assert_int_equal(one->evaluated_samples, 50);
    static const way ways[] = {SILENT, BOOTSTRAP_ONLY, GIVEN_COMM, AUTO, WHOLE};
    for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++) {
        record *all = run_ranks(ways[i]);
        for (int rank = 0; rank < RANKS; rank++) {
            assert_close(one, &all[rank]);
            assert_int_equal(all[rank].warnings, 0);
            assert_int_equal(all[rank].norm_lines, 1);
            assert_int_equal(all[rank].joined_lines, 1);
        }
        munmap(all, RANKS * sizeof *all);
    }
    /* The norms that the program asked for compute another function, and one warning says so. */
    record *own = run_ranks(OWN_NORMS);
    for (int rank = 0; rank < RANKS; rank++) {
        assert_true(own[rank].norm_lines == 1 && own[rank].joined_lines == 0);
        assert_true(fabs(own[rank].loss[STEPS - 1] - one->loss[STEPS - 1]) > 1e-3);
    }
    munmap(own, RANKS * sizeof *own);
    munmap(one, RANKS * sizeof *one);
}

/* A process that has not joined its ranks trains by itself, with one warning. If the program asks
 * for that, there is no warning. */
static void models_by_themselves_say_so(void **state) {
    record *all = run_ranks(NOT_JOINED);
    for (int rank = 0; rank < RANKS; rank++) {
        assert_int_equal(all[rank].warnings, 1);
        assert_non_null(strstr(all[rank].warning, "has not joined the others"));
        assert_int_equal(all[rank].epoch_steps, 20);
    }
    munmap(all, RANKS * sizeof *all);
    all = run_ranks(STAND_ALONE);
    for (int rank = 0; rank < RANKS; rank++) {
        assert_int_equal(all[rank].warnings, 0);
        assert_int_equal(all[rank].epoch_steps, 20);
    }
    munmap(all, RANKS * sizeof *all);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(ranks_have_the_results_of_one_process, make_folder,
                                        remove_folder),
        cmocka_unit_test_setup_teardown(models_by_themselves_say_so, make_folder, remove_folder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
