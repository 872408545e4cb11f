/* SPDX-License-Identifier: Apache-2.0 */
/* The estimator (train/estimator/estimator.h): rules of its configuration, one process that trains
 * and evaluates in turn, and all roles of a job as threads of this process.
 *
 * Refused configurations are cases with the words that their message must have. A job has ended
 * when the threads of all roles have; its folder then has the checkpoints, evaluations and exports
 * that the configuration promises. */
#include "folder.h"

#include "trireme/data.h"
#include "trireme/train.h"

#include "train/estimator/estimator.h"

#include "base/error.h"
#include "base/os.h"

#include <arpa/inet.h>
#include <pthread.h>

#include <sys/socket.h>
#include <unistd.h>

/* ---- a model and its data -------------------------------------------------------------------- */

enum { ROWS = 640, BATCH = 32, VOCABULARY = 40 };

static trm_node build_network(trm_graph *g, const trm_inputs *inputs, void *context) {
    (void)context;
    trm_node keys = trm_inputs_get(inputs, "keys");
    int64_t n = trm_node_shape(g, keys).dim[0], fields = trm_node_shape(g, keys).dim[1];
    trm_node table = trm_parameter(g, "table", trm_shape_of(VOCABULARY, 4), TRM_INIT_NORMAL_001);
    trm_node x = trm_reshape(g, trm_embedding(g, table, keys), trm_shape_of(n, fields * 4));
    return trm_linear(g, x,
                      trm_parameter(g, "fc.weight", trm_shape_of(1, fields * 4), TRM_INIT_LINEAR),
                      trm_parameter(g, "fc.bias", trm_shape_of(1), TRM_INIT_ZERO));
}

static trm_status model_fn(trm_run_mode mode, trm_model_options *o, void *params, trm_error *err) {
    (void)mode;
    (void)params;
    (void)err;
    o->network = build_network;
    o->loss = trm_loss_logistic;
    o->exec.optimizer = (trm_optimizer_options){.kind = TRM_ADAGRAD, .initial_accumulator = 0.1};
    o->learning_rate = (trm_learning_rate){.base = 0.1};
    o->exec.backend = "ref";
    o->exec.threads = 1;
    return TRM_OK;
}

static trm_status input_fn(const trm_input_context *c, void *params, trm_dataset **out,
                           trm_error *err) {
    const trm_click_generator_options options = {.rows = ROWS,
                                                 .test_rows = 160,
                                                 .fields = 3,
                                                 .dense = -1,
                                                 .vocabulary = VOCABULARY,
                                                 .seed = 4};
    trm_dataset *data;
    (void)params;
    trm_usage usage = c->mode == TRM_MODE_TRAIN ? TRM_USAGE_TRAIN : TRM_USAGE_TEST;
    trm_status status = trm_dataset_clicks(&options, usage, &data, err);
    if (status == TRM_OK) {
        status = trm_dataset_shard(data, c->pipelines, c->index, TRM_SHARD_WRAP, err);
    }
    if (status == TRM_OK) {
        status = trm_dataset_batch(data, BATCH, c->mode == TRM_MODE_TRAIN, err);
    }
    *out = data;
    return status;
}

/* ---- rules ----------------------------------------------------------------------------------- */

static trm_cluster *cluster_of(const char *job, const char *index, const char *chief) {
    trm_cluster *cluster;
    trm_error err;
    const trm_cluster_flags flags = {.job_name = job,
                                     .task_index = index,
                                     .ps_hosts = "127.0.0.1:1",
                                     .worker_hosts = "127.0.0.1:2,127.0.0.1:3",
                                     .chief_hosts = chief,
                                     .evaluator_hosts = "127.0.0.1:4"};
    CHECK_OK(trm_cluster_create(&flags, &cluster, &err), err);
    return cluster;
}

/* Three processes of the job compute on this host; the one server works while they wait. */
static void roles_of_a_host_share_its_cpus(void **state) {
    trm_cluster *cluster = cluster_of("evaluator", "0", NULL);
    trm_estimator *e;
    trm_error err;
    CHECK_OK(trm_estimator_create(model_fn, NULL,
                                  &(trm_run_config){.cluster = cluster,
                                                    .model_dir = "/tmp/unused",
                                                    .distribute = &(trm_ps_strategy){0}},
                                  &e, &err),
             err);
    trm_model_options options;
    CHECK_OK(trmi_estimator_model(e, TRM_MODE_EVAL, NULL, &options, &err), err);
    assert_int_equal(options.exec.host_processes, 3);
    trm_estimator_destroy(e);
    trm_cluster_destroy(cluster);
}

static void configurations_are_held_against_themselves(void **state) {
    trm_cluster *cluster = cluster_of("worker", "1", NULL);
    static const trm_ps_strategy async = {0},
                                 sync3 = {.server.mode = TRM_PS_SYNC, .server.backup_workers = 2},
                                 backup = {.server.backup_workers = 1},
                                 hybrid_backup = {.server.mode = TRM_PS_SYNC,
                                                  .server.backup_workers = 1,
                                                  .training.tables_only = true},
                                 lent_hybrid = {.training.tables_only = true,
                                                .lend = TRM_PS_LEND_ALWAYS},
                                 old_rows = {.server.mode = TRM_PS_SYNC,
                                             .training.cache_rows = 100},
                                 older_rows = {.server.mode = TRM_PS_BOUNDED,
                                               .server.staleness = 2,
                                               .training.cache_rows = 100,
                                               .client.cache_staleness = 3},
                                 no_rows = {.client.cache_staleness = 3},
                                 less_rows = {.training.cache_rows = -1};
    const struct {
        trm_run_config config;
        const char *message;
    } cases[] = {
        {{.checkpoints.every_steps = 5, .checkpoints.every_seconds = 5}, "give one of the two"},
        {{.checkpoints.every_steps = -1}, "checkpoints.every_steps is -1"},
        {{.checkpoints.every_seconds = -0.5}, "checkpoints.every_seconds is -0.5"},
        {{.iterations_per_loop = -2}, "iterations_per_loop is -2"},
        {{.session_creation_timeout_secs = -1}, "session_creation_timeout_secs"},
        {{.checkpoints.writer.keep_every_hours = -1}, "checkpoints.writer.keep_every_hours is -1"},
        {{.model_dir = ""}, "model_dir is empty"},
        {{.precision_mode = "half"}, "precision_mode \"half\""},
        {{.cluster = cluster}, "the cluster lists 1 ps: set distribute"},
        {{.cluster = cluster, .distribute = &async, .iterations_per_loop = 4},
         "iterations_per_loop is 4: it must be 1"},
        {{.cluster = cluster, .distribute = &sync3}, "2 backup_workers of 2 workers"},
        {{.cluster = cluster, .distribute = &backup}, "1 backup_workers need the synchronous mode"},
        {{.cluster = cluster, .distribute = &hybrid_backup}, "none can be left out"},
        {{.cluster = cluster, .distribute = &lent_hybrid}, "the same number of batches"},
        {{.cluster = cluster, .distribute = &old_rows}, "the synchronous mode allows no age"},
        {{.cluster = cluster, .distribute = &older_rows}, "at most 2 batches old with staleness=2"},
        {{.cluster = cluster, .distribute = &no_rows}, "no rows are cached"},
        {{.cluster = cluster, .distribute = &less_rows}, "cache_rows -1"},
    };
    trm_error err;
    trm_estimator *e;
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        CHECK_FAILS(trm_estimator_create(model_fn, NULL, &cases[c].config, &e, &err), TRM_INVALID,
                    err, cases[c].message);
    }
    CHECK_FAILS(trm_estimator_create(NULL, NULL, &(trm_run_config){0}, &e, &err), TRM_INVALID, err,
                "model_fn");
    trm_cluster_destroy(cluster);
    cluster = cluster_of("evaluator", "0", NULL);
    CHECK_FAILS(trm_estimator_create(model_fn, NULL,
                                     &(trm_run_config){.cluster = cluster, .distribute = &async},
                                     &e, &err),
                TRM_INVALID, err, "an evaluator reads checkpoints from model_dir");
    trm_cluster_destroy(cluster);
    CHECK_OK(trm_estimator_create(model_fn, NULL, &(trm_run_config){0}, &e, &err), err);
    CHECK_FAILS(trm_train_and_evaluate(e, NULL, NULL, NULL, &err), TRM_INVALID, err, "TrainSpec");
    CHECK_FAILS(
        trm_train_and_evaluate(e, &(trm_train_spec){.input_fn = input_fn}, NULL, NULL, &err),
        TRM_INVALID, err, "one of them greater than 0");
    trm_estimator_destroy(e);
}

static void exporters_are_checked(void **state) {
    const struct {
        trm_exporter list[2];
        const char *dir, *message;
    } cases[] = {
        {{{TRM_EXPORT_LATEST, .name = "x"}}, NULL, "exporters write to model_dir/export"},
        {{{TRM_EXPORT_LATEST, .name = ""}}, "/m", "exporter 0 needs a name"},
        {{{TRM_EXPORT_LATEST, .name = "a/b"}}, "/m", "exporter 0 needs a name"},
        {{{TRM_EXPORT_LATEST, .name = "x", .format = "h5"}},
         "/m",
         "format \"h5\": safetensors, npz or onnx"},
        {{{TRM_EXPORT_BEST, .name = "x", .metric = "f1"}},
         "/m",
         "metric \"f1\": loss, logloss, auc"},
        {{{TRM_EXPORT_FINAL, .name = "x", .metric = "auc"}}, "/m", "only the best has one"},
        {{{TRM_EXPORT_FINAL, .name = "x"}, {TRM_EXPORT_BEST, .name = "x"}},
         "/m",
         "two exporters are called x"},
    };
    trm_error err;
    trm_estimator *e;
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        trm_eval_spec eval = {.input_fn = input_fn};
        memcpy(eval.exporters, cases[c].list, sizeof cases[c].list);
        CHECK_OK(trm_estimator_create(model_fn, NULL, &(trm_run_config){.model_dir = cases[c].dir},
                                      &e, &err),
                 err);
        CHECK_FAILS(trm_train_and_evaluate(e,
                                           &(trm_train_spec){.input_fn = input_fn, .max_steps = 1},
                                           &eval, NULL, &err),
                    TRM_INVALID, err, cases[c].message);
        trm_estimator_destroy(e);
    }
}

static void plans_say_who_is_who(void **state) {
    static const trm_ps_strategy sync = {.server.mode = TRM_PS_SYNC};
    trm_cluster *cluster = cluster_of("worker", "0", "127.0.0.1:9");
    trm_run_config config = {.cluster = cluster, .distribute = &sync, .model_dir = "/m"};
    trm_estimator *e;
    trm_error err;
    char *text;
    CHECK_OK(trm_estimator_create(model_fn, NULL, &config, &e, &err), err);
    CHECK_OK(trm_estimator_plan(e, true, &text, &err), err);
    assert_non_null(
        strstr(text, "\"role\": \"worker\", \"trainer\": 1, \"trainers\": 3, \"is_chief\": false"));
    assert_non_null(strstr(text, "\"mode\": \"synchronous\""));
    assert_non_null(strstr(text, "\"ps_folder\": \"/m/ps\", \"save_checkpoints_steps\": 100"));
    trm_free(text);
    trm_estimator_destroy(e);
    trm_cluster_destroy(cluster);
}

/* The defaults of unset options, by guide 000's names, are those of
 * docs/guides/from-guide-000.md. */
static void defaults_are_those_of_the_guide(void **state) {
    static const trm_ps_strategy async = {.server.mode = TRM_PS_ASYNC};
    static const char *const both[] = {"\"keep_checkpoint_max\": 5,",
                                       "\"keep_checkpoint_every_n_hours\": 10000,",
                                       "\"save_summary_steps\": 100,",
                                       "\"log_step_count_steps\": 100,",
                                       "\"tf_random_seed\": 1,",
                                       "\"iterations_per_loop\": 1,",
                                       "\"enable_data_pre_proc\": true,",
                                       "\"precision_mode\": null,",
                                       "\"session_creation_timeout_secs\": 7200,",
                                       "\"timeout_seconds\": 120,"};
    static const char *const saves[] = {
        "\"save_checkpoints_steps\": 100, \"save_checkpoints_secs\": 0,",
        "\"save_checkpoints_steps\": 0, \"save_checkpoints_secs\": 600,"};
    trm_cluster *cluster = cluster_of("worker", "0", "127.0.0.1:9");
    for (int alone = 0; alone < 2; alone++) {
        const trm_run_config config = {.cluster = alone ? NULL : cluster,
                                       .distribute = alone ? NULL : &async};
        trm_estimator *e;
        trm_error err;
        char *text;
        CHECK_OK(trm_estimator_create(model_fn, NULL, &config, &e, &err), err);
        CHECK_OK(trm_estimator_plan(e, true, &text, &err), err);
        for (size_t i = 0; i < sizeof both / sizeof both[0]; i++) {
            if (strstr(text, both[i]) == NULL) {
                fail_msg("no %s in %s", both[i], text);
            }
        }
        assert_non_null(strstr(text, saves[alone]));
        assert_non_null(
            strstr(text, alone ? "\"mix_compile_mode\": false" : "\"mix_compile_mode\": true"));
        trm_free(text);
        CHECK_OK(trm_estimator_plan(e, false, &text, &err), err);
        assert_non_null(strstr(text, alone ? "samples: all are this process's"
                                           : "samples: lent in ranges by server 0"));
        trm_free(text);
        trm_estimator_destroy(e);
    }
    trm_cluster_destroy(cluster);
}

/* ---- alone ----------------------------------------------------------------------------------- */

static int told;
static void count_evaluation(void *context, uint64_t step, const trm_evaluation *v) {
    (void)context;
    told += v->samples == 160 && step % 20 == 0;
}

static void alone_it_trains_and_evaluates_in_turn(void **state) {
    trm_estimator *e;
    trm_error err;
    char dir[96];
    trm_job_result result;
    snprintf(dir, sizeof dir, "%s/alone", folder);
    const trm_run_config config = {.model_dir = dir,
                                   .checkpoints.every_steps = 20,
                                   .checkpoints.writer.keep = 2,
                                   .on_evaluated = count_evaluation};
    const trm_eval_spec eval = {.input_fn = input_fn, .steps = -1, .throttle_secs = -1};
    trm_train_spec train = {.input_fn = input_fn, .max_steps = 40};
    /* the second continues the first */
    for (int round = 0; round < 2; round++, train.max_steps += 20) {
        told = 0;
        CHECK_OK(trm_estimator_create(model_fn, NULL, &config, &e, &err), err);
        CHECK_OK(trm_train_and_evaluate(e, &train, &eval, &result, &err), err);
        trm_estimator_destroy(e);
        assert_int_equal(result.global_step, 40 + 20 * round);
        assert_true(result.has_evaluation && result.evaluated_step == result.global_step);
        assert_int_equal(told, 2 - round);
        assert_true(result.evaluation.loss < 0.69);
    }
}

static bool file_exists(const char *dir, const char *file) {
    char path[512];
    snprintf(path, sizeof path, "%s/export/%s", dir, file);
    return access(path, R_OK) == 0;
}

static void what_was_evaluated_is_exported(void **state) {
    trm_estimator *e;
    trm_error err;
    char dir[96], path[256];
    snprintf(dir, sizeof dir, "%s/exports", folder);
    const trm_run_config config = {.model_dir = dir, .checkpoints.every_steps = 20};
    trm_eval_spec eval = {
        .input_fn = input_fn,
        .steps = -1,
        .throttle_secs = -1,
        .exporters = {{TRM_EXPORT_LATEST, .name = "latest", .format = "npz", .exports_to_keep = 2},
                      {TRM_EXPORT_BEST, .name = "best", .metric = "auc"},
                      {TRM_EXPORT_FINAL, .name = "final"}}};
    CHECK_OK(trm_estimator_create(model_fn, NULL, &config, &e, &err), err);
    CHECK_OK(trm_train_and_evaluate(e, &(trm_train_spec){.input_fn = input_fn, .max_steps = 60},
                                    &eval, NULL, &err),
             err);
    assert_true(!file_exists(dir, "latest/model-20.npz") &&
                file_exists(dir, "latest/model-40.npz") && file_exists(dir, "latest/model-60.npz"));
    assert_true(file_exists(dir, "final/model-60.safetensors") &&
                !file_exists(dir, "final/model-40.safetensors"));
    assert_true(file_exists(dir, "best/model-20.safetensors") &&
                file_exists(dir, "best/best.json"));
    /* An earlier best that no evaluation beats stays the best in the next run, too; an exporter
     * that had forgotten it would export.
     */
    snprintf(path, sizeof path, "%s/export/best/best.json", dir);
    const char *perfect = "{\"metric\": \"auc\", \"value\": 1.0, \"global_step\": 20}";
    CHECK_OK(trmi_os_replace_file(NULL, path, perfect, strlen(perfect), &err), err);
    CHECK_OK(trm_train_and_evaluate(e, &(trm_train_spec){.input_fn = input_fn, .max_steps = 80},
                                    &eval, NULL, &err),
             err);
    assert_true(file_exists(dir, "latest/model-80.npz") &&
                !file_exists(dir, "best/model-80.safetensors"));
    /* A metric that evaluations of this model do not have. */
    eval.exporters[1].metric = "accuracy";
    CHECK_FAILS(trm_train_and_evaluate(e, &(trm_train_spec){.input_fn = input_fn, .max_steps = 100},
                                       &eval, NULL, &err),
                TRM_INVALID, err, "exporter best: evaluations of this model have no accuracy");
    trm_estimator_destroy(e);
}

/* ---- together -------------------------------------------------------------------------------- */

static int free_port(void) {
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof a;
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&a, sizeof a), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&a, &bytes), 0);
    close(fd);
    return ntohs(a.sin_port);
}

/* One role of a job, on a thread of its own, and how it ended. */
typedef struct member {
    const char *job, *index, *dir; /* --job_name, --task_index, model_dir */
    char ps[64];                   /* --ps_hosts */
    trm_ps_mode mode;
    trm_status status;
    trm_error err;
    trm_job_result result;
    pthread_t thread;
} member;

static void *member_main(void *context) {
    member *m = context;
    trm_cluster *cluster;
    trm_estimator *e;
    const trm_cluster_flags flags = {.job_name = m->job,
                                     .task_index = m->index,
                                     .ps_hosts = m->ps,
                                     .worker_hosts = "127.0.0.1:2, 127.0.0.1:3",
                                     .evaluator_hosts = "127.0.0.1:4"};
    const trm_ps_strategy strategy = {
        .server.mode = m->mode, .server.shards = 1, .server.memory_bytes = 1 << 26};
    const trm_run_config config = {.model_dir = m->dir,
                                   .distribute = &strategy,
                                   .checkpoints.every_steps = 8,
                                   .checkpoints.writer.keep = 2,
                                   .cluster = NULL};
    m->status = trm_cluster_create(&flags, &cluster, &m->err);
    if (m->status != TRM_OK) {
        return NULL;
    }
    trm_run_config mine = config;
    mine.cluster = cluster;
    m->status = trm_estimator_create(model_fn, NULL, &mine, &e, &m->err);
    if (m->status == TRM_OK) {
        const trm_eval_spec eval = {
            .input_fn = input_fn,
            .steps = 3,
            .start_delay_secs = -1,
            .throttle_secs = -1,
            .name = "holdout",
            .exporters = {{TRM_EXPORT_FINAL, .name = "final", .format = "onnx"}}};
        m->status = trm_train_and_evaluate(e, &(trm_train_spec){.input_fn = input_fn, .epochs = 2},
                                           &eval, &m->result, &m->err);
        trm_estimator_destroy(e);
    }
    trm_cluster_destroy(cluster);
    return NULL;
}

static void all_roles_end_together(void **state) {
    static const trm_ps_mode modes[] = {TRM_PS_SYNC, TRM_PS_ASYNC, TRM_PS_BOUNDED};
    for (int k = 0; k < 3; k++) {
        char dir[96], path[256];
        trm_error err;
        int64_t newest;
        snprintf(dir, sizeof dir, "%s/job%d", folder, k);
        member m[] = {{.job = "ps", .index = "0"},
                      {.job = "worker", .index = "0"},
                      {.job = "worker", .index = "1"},
                      {.job = "evaluator", .index = "0"}};
        int port = free_port();
        for (int i = 0; i < 4; i++) {
            m[i].dir = dir;
            m[i].mode = modes[k];
            snprintf(m[i].ps, sizeof m[i].ps, "127.0.0.1:%d", port);
            assert_int_equal(pthread_create(&m[i].thread, NULL, member_main, &m[i]), 0);
        }
        for (int i = 0; i < 4; i++) {
            pthread_join(m[i].thread, NULL);
            CHECK_OK(m[i].status, m[i].err);
        }
        /* 20 batches of the whole data, twice; synchronous: two of them a step. */
        int64_t steps = modes[k] == TRM_PS_SYNC ? 20 : 40;
        assert_int_equal(m[1].result.global_step, steps);
        assert_int_equal(m[1].result.least_updates, steps);
        assert_int_equal(m[1].result.most_updates, steps);
        CHECK_OK(trm_checkpoint_latest(dir, &newest, &err), err);
        assert_int_equal(newest, steps);
        assert_true(m[3].result.has_evaluation && m[3].result.evaluated_step == (uint64_t)steps);
        assert_int_equal(m[3].result.evaluation.samples, 3 * BATCH);
        snprintf(path, sizeof path, "final/model-%d.onnx", (int)steps);
        assert_true(file_exists(dir, path));
        snprintf(path, sizeof path, "%s/eval_holdout", dir);
        assert_int_equal(access(path, R_OK), 0);
    }
}

/* The rest of a job, which ends while this worker is in its first step. */
typedef struct others {
    trm_ps_server *server;
    const char *dir;
} others;

static trm_status end_job(void *context, const trm_progress *p, trm_error *err) {
    others *o = context;
    char path[256];
    static const char done[] = "{\"state\": \"done\", \"global_step\": 40}";
    (void)p;
    if (o->server == NULL) {
        return TRM_OK;
    }
    snprintf(path, sizeof path, "%s/job.json", o->dir);
    TRMI_TRY(trmi_os_replace_file(NULL, path, done, sizeof done - 1, err));
    trm_ps_server_stop(o->server);
    o->server = NULL;
    return TRM_OK;
}

static void who_comes_back_as_the_job_ends_waits_for_no_server(void **state) {
    trm_error err;
    trm_cluster *cluster;
    trm_estimator *e;
    trm_job_result result = {0};
    others o = {.dir = folder};
    const trm_ps_server_options so = {
        .shards = 1, .memory_bytes = 1 << 24, .listen = "127.0.0.1:0", .workers = 2};
    CHECK_OK(trm_ps_server_start(&so, &o.server, &err), err);
    const trm_cluster_flags flags = {.job_name = "worker",
                                     .task_index = "1",
                                     .ps_hosts = trm_ps_server_address(o.server),
                                     .worker_hosts = "127.0.0.1:2,127.0.0.1:3"};
    /* for a server that may come again */
    const trm_ps_strategy strategy = {.client.timeout_seconds = 600};
    CHECK_OK(trm_cluster_create(&flags, &cluster, &err), err);
    const trm_run_config config = {
        .model_dir = folder, .cluster = cluster, .distribute = &strategy};
    CHECK_OK(trm_estimator_create(model_fn, NULL, &config, &e, &err), err);
    const trm_train_spec spec = {
        .input_fn = input_fn, .epochs = 2, .callbacks = {{.on_gradients = end_job, .context = &o}}};
    CHECK_OK(trm_train_and_evaluate(e, &spec, NULL, &result, &err), err);
    assert_int_equal(result.global_step, 40);
    trm_estimator_destroy(e);
    trm_cluster_destroy(cluster);
}

static void *stop_later(void *context) {
    usleep(200000);
    trm_estimator_request_stop(context);
    return NULL;
}

static void a_worker_without_servers_can_be_stopped(void **state) {
    char ps[64];
    trm_error err;
    trm_cluster *cluster;
    trm_estimator *e;
    pthread_t thread;
    snprintf(ps, sizeof ps, "127.0.0.1:%d", free_port());
    const trm_cluster_flags flags = {.job_name = "worker",
                                     .task_index = "1",
                                     .ps_hosts = ps,
                                     .worker_hosts = "127.0.0.1:2,127.0.0.1:3"};
    /* it is told of the stop while it waits */
    const trm_ps_strategy strategy = {.client.timeout_seconds = 600};
    CHECK_OK(trm_cluster_create(&flags, &cluster, &err), err);
    const trm_run_config config = {
        .cluster = cluster, .distribute = &strategy, .session_creation_timeout_secs = 600};
    CHECK_OK(trm_estimator_create(model_fn, NULL, &config, &e, &err), err);
    assert_int_equal(pthread_create(&thread, NULL, stop_later, e), 0);
    CHECK_FAILS(trm_train_and_evaluate(e, &(trm_train_spec){.input_fn = input_fn, .epochs = 1},
                                       NULL, NULL, &err),
                TRM_CANCELLED, err, "stopped on request while waiting for server");
    pthread_join(thread, NULL);
    trm_estimator_destroy(e);
    trm_cluster_destroy(cluster);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(roles_of_a_host_share_its_cpus),
        cmocka_unit_test(configurations_are_held_against_themselves),
        cmocka_unit_test(exporters_are_checked),
        cmocka_unit_test(plans_say_who_is_who),
        cmocka_unit_test(defaults_are_those_of_the_guide),
        cmocka_unit_test_setup_teardown(alone_it_trains_and_evaluates_in_turn, make_folder,
                                        remove_folder),
        cmocka_unit_test_setup_teardown(what_was_evaluated_is_exported, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(all_roles_end_together, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(who_comes_back_as_the_job_ends_waits_for_no_server,
                                        make_folder, remove_folder),
        cmocka_unit_test(a_worker_without_servers_can_be_stopped),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
