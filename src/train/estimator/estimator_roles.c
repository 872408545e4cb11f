/* SPDX-License-Identifier: Apache-2.0 */
/* Runs the roles of a PS-Worker job: servers, workers and the chief.
 *
 *       server     serve until the chief stops it
 *       trainer    describe_model -> trmi_estimator_connect -> create_workers_comm -> build_model
 *                  -> begin_warm -> train_model -> end_job
 *                  hybrid, strict: after another worker's death release_trainer() and once more
 *                  from the start (run_lives)
 *
 * The order matters: model and data come first, because the size of the shared-memory rings depends
 * on a batch; hybrid and strict workers join before the model is built, because the model needs
 * their communicator.
 *
 * Every wait has a limit: session_creation_timeout_secs for servers that come up,
 * timeout_seconds for the rest. Every wait ends on a stop request, and waits of a worker also
 * end when job.json shows that the job is over. */
#include "train/estimator/estimator.h"

#include "train/estimator/hybrid.h"
#include "train/model.h"
#include "train/estimator/warm_start.h"
#include "train/estimator/remote.h"
#include "train/estimator/states_file.h"

#include "base/error.h"
#include "base/log.h"
#include "base/os.h"
#include "ps/client/life.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const double say_seconds = 10;
enum { RESTART_WAITS = 10 }; /* seconds, for the port of a server that starts again */
enum {
    RING_BYTES = 32 << 20,
    RING_MAX = 1 << 30
}; /* smallest and largest shared-memory ring, each way */
/* leases of a worker in an epoch (a slow worker takes fewer); batches of a lease at most */
enum { LEASES = 10, LEASE_MAX = 64 };

/* ---- a server -------------------------------------------------------------------------------- */

/* Starts the server. After another life in this process its port may be in use for a moment. */
static trm_status start_server(const trm_ps_server_options *options, bool again,
                               trm_ps_server **out, trm_error *err) {
    const double deadline = trmi_os_now() + RESTART_WAITS;
    trm_status status;
    while ((status = trm_ps_server_start(options, out, err)) == TRM_IO && again &&
           trmi_os_now() < deadline) {
        usleep(20000);
    }
    return status;
}

/* Starts a server and waits for its end. A stop request takes effect when no worker is connected
 * any more, at the latest after 8 s: the chief, which is stopped at the same time, must still
 * save through this server.
 *   errors  CANCELLED: stopped before the job had ended */
static trm_status serve_once(const trm_estimator *e, const trm_ps_server_options *options,
                             bool again, trm_error *err) {
    trm_ps_server *server;
    TRMI_TRY(start_server(options, again, &server, err));
    trmi_estimator_say(e, "ps %d of %d serves at %s", options->server, e->servers,
                       trm_ps_server_address(server));
    trm_status status = TRM_TIMEOUT;
    /* A server that receives the order to end lets the chief save first, while a worker is
     * connected. */
    for (double patience = 8; status == TRM_TIMEOUT && patience > 0;) {
        int64_t ever;
        status = trm_ps_server_wait(server, 0.1);
        if (trmi_estimator_stopped(e)) {
            patience = trmi_server_connections(server, &ever) == 0 ? 0 : patience - 0.1;
        }
    }
    trm_ps_server_stop(server);
    if (status == TRM_PENDING) {
        trmi_estimator_say(e, "ps %d starts again, with the rows of the step before",
                           options->server);
        return status;
    }
    if (status == TRM_TIMEOUT) {
        return TRMI_FAIL(err, TRM_CANCELLED, "stopped on request before the job had ended");
    }
    trmi_estimator_say(e, "ps %d ends: the job is over", options->server);
    return TRM_OK;
}

/* Runs the server to the end of the job. It starts again in this process when its rows have to go
 * back by a step (trm_ps_server_wait). */
static trm_status run_server(const trm_estimator *e, const trm_ps_server_options *options,
                             trm_error *err) {
    trm_status status = serve_once(e, options, false, err);
    while (status == TRM_PENDING) {
        status = serve_once(e, options, true, err);
    }
    return status;
}

/* Runs the server of this process: its folder, the weights that a warm start begins with, its
 * options. */
trm_status trmi_run_server(trm_estimator *e, trm_error *err) {
    const trm_ps_strategy *s = &e->strategy;
    const trm_cluster *cluster = e->config.cluster;
    int32_t index = trm_cluster_get(cluster)->task_index;
    char folder[4096];
    trmi_warm_start *warm;
    trmi_estimator_ps_folder(e, folder, sizeof folder);
    trmi_estimator_read_job_id(e);
    if (folder[0] != '\0') {
        TRMI_TRY(trmi_os_make_dirs(NULL, folder, err));
    }
    TRMI_TRY(trmi_warm_start_of_job(e, folder, &warm, err));
    /* whether servers count batches of hybrid workers, see .mode */
    bool counts = s->training.tables_only && s->server.mode == TRM_PS_ASYNC;
    const trm_ps_server_options options = {
        .server = index,
        .servers = e->servers,
        .shards = s->server.shards,
        .memory_bytes = s->server.memory_bytes,
        .listen = trm_cluster_task_address(cluster, TRM_ROLE_PS, index),
        .folder = folder[0] != '\0' ? folder : NULL,
        .log_pushes = folder[0] != '\0' && s->server.log_pushes != TRM_OFF ? TRM_ON : TRM_OFF,
        .spill_folder = s->server.spill_folder,
        /* Hybrid workers keep in step through their all-reduce. The servers run in bounded mode
         * without a bound, because there they count each worker's batches: after a death that
         * count decides which batch is repeated. */
        .mode = counts ? TRM_PS_BOUNDED : s->server.mode,
        .workers = e->trainers,
        .staleness = counts ? TRM_STALENESS_ANY : s->server.staleness,
        .backup_workers = s->server.backup_workers,
        .staleness_aware = s->server.staleness_aware,
        .initial = {warm == NULL ? NULL : trmi_warm_start_row, warm},
        /* No hybrid step is possible without all workers, so a silent worker is given time to
         * come back. */
        .worker_timeout_seconds =
            s->training.tables_only ? 2 * s->client.timeout_seconds : s->client.timeout_seconds / 2,
        .token = e->config.token,
        .job_id = e->job_id,
        .job_origin = e->job_origin};
    trm_status status = run_server(e, &options, err);
    trmi_warm_start_close(warm);
    return status;
}

/* ---- a trainer ------------------------------------------------------------------------------- */

/* State of a chief or worker. */
typedef struct trainer {
    trm_estimator *e;
    trm_ps_client *client;
    trm_dataset *data;
    trm_model_options options;
    trm_model *model;
    trm_bootstrap *bootstrap;
    trm_comm *comm; /* hybrid, strict: the workers' communicator */
    /* hybrid: dense parameters, kept after another worker's death */
    trmi_dense dense[TRMI_DENSE_KEPT];
    double alive;      /* time of its beginning or of its latest step */
    int32_t callbacks; /* callbacks of the spec that are in use */
} trainer;

/* Releases everything but the kept dense parameters. With `comes_back` the client disappears
 * without signing off, so that the servers wait for this worker's next life. */
static void release_trainer(trainer *t, bool comes_back) {
    atomic_store(&t->e->model, NULL);
    t->e->workers = NULL;
    trm_model_destroy(t->model);
    trm_dataset_destroy(t->data);
    comes_back ? trmi_client_vanish(t->client) : trm_ps_client_destroy(t->client);
    trm_comm_destroy(t->comm);
    trm_cluster_leave(t->bootstrap);
    t->model = NULL;
    t->data = NULL;
    t->client = NULL;
    t->comm = NULL;
    t->bootstrap = NULL;
}

/* Hybrid, strict: joins the other workers and creates the communicator for dense gradients. */
static trm_status create_workers_comm(trainer *t, trm_error *err) {
    if (!trmi_estimator_joins(t->e) || t->e->trainers == 1) {
        return TRM_OK;
    }
    const trm_join_options options = {.timeout_seconds = t->e->strategy.client.timeout_seconds};
    TRMI_TRY(trm_cluster_join(t->e->config.cluster, &options, &t->bootstrap, err));
    TRMI_TRY(trm_comm_create(t->bootstrap, NULL, &t->comm, err));
    t->e->workers = t->comm;
    return TRM_OK;
}

/* Returns whether the model's options or their context ask for strict determinism. */
static bool is_strict(const trm_model_options *o) {
    return o->context != NULL ? strcmp(trm_context_get(o->context, "deterministic"), "strict") == 0
                              : o->exec.parallel.block != 0;
}

/* Opens the data, gets the model's options, and computes the size of the shared-memory rings: a
 * ring must hold two messages of a batch, one that is sent while the other is read. */
static trm_status describe_model(trainer *t, const trm_train_spec *spec, trm_error *err) {
    trm_estimator *e = t->e;
    int64_t bytes, ring = RING_BYTES;
    TRMI_TRY(trmi_estimator_data(e, TRM_MODE_TRAIN, spec->input_fn, spec->params, &t->data, err));
    TRMI_TRY(trmi_estimator_model(e, TRM_MODE_TRAIN, t->data, &t->options, err));
    e->strict = is_strict(&t->options);
    TRMI_TRY(trmi_model_traffic(&t->options, &bytes, err));
    while (ring < 2 * (bytes + bytes / 8) + RING_BYTES / 4 && ring < RING_MAX) {
        ring *= 2;
    }
    e->ring_bytes = (size_t)ring;
    return TRM_OK;
}

/* Reads the stretches of the job. In a job that is continued with another number of workers, a
 * worker waits until the chief has begun and written job.json: stretches of the old number would
 * give it wrong samples. Workers that compute together begin with the chief, and all with the same
 * step (trmi_workers_begin): each makes the new stretch itself.
 *   errors  TIMEOUT, CANCELLED */
static trm_status learn_dealt(trm_estimator *e, trm_error *err) {
    const double begin = trmi_os_now();
    double said = begin;
    TRMI_TRY(trmi_job_read_dealt(e, &e->dealt, err));
    while (!e->is_chief && e->workers == NULL && e->dealt.count > 0 &&
           e->dealt.list[e->dealt.count - 1].workers != e->trainers) {
        double now = trmi_os_now();
        if (trmi_estimator_stopped(e) || now - begin > e->strategy.client.timeout_seconds) {
            return TRMI_FAIL(err, trmi_estimator_stopped(e) ? TRM_CANCELLED : TRM_TIMEOUT,
                             "%s/job.json is of a job with %lld workers, this one "
                             "has %d: the chief has not begun for %.0f s",
                             e->config.model_dir,
                             (long long)e->dealt.list[e->dealt.count - 1].workers, e->trainers,
                             now - begin);
        }
        if (now - said > say_seconds) {
            said = now;
            trmi_estimator_say(e, "waiting for the chief to begin since %.0f s", now - begin);
        }
        trmi_estimator_sleep(e, 0.1);
        TRMI_TRY(trmi_job_read_dealt(e, &e->dealt, err));
    }
    e->dealt.workers = e->trainers;
    return TRM_OK;
}

/* Writes how servers apply gradients into the model, for the description of the job. */
static void describe_servers(const trm_estimator *e, trm_model *model) {
    const trm_ps_server_options *s = &e->strategy.server;
    char mode[64];
    snprintf(model->servers, sizeof model->servers, "%s%s%s%s",
             trmi_estimator_mode_text(e, mode, sizeof mode),
             s->staleness_aware ? ", rate by staleness" : "", s->sum_gradients ? ", sums" : "",
             e->strategy.training.tables_only ? ", tables only" : "");
}

/* Creates the model with the servers behind it, reads the stretches, and makes the model
 * reachable for stop requests. */
static trm_status build_model(trainer *t, trm_error *err) {
    trm_estimator *e = t->e;
    trm_model_options options = t->options;
    options.exec.parallel.comm = t->comm;
    int64_t batches =
        trm_dataset_epoch_batches(t->data) / (LEASES * (e->trainers > 0 ? e->trainers : 1));
    batches = batches < 1 ? 1 : batches > LEASE_MAX ? LEASE_MAX : batches;
    options.ps = e->strategy.training;
    options.ps.client = t->client;
    options.ps.lease_batches = trmi_estimator_lends(e) ? batches : 0;
    options.ps.lease_seconds = e->strategy.client.timeout_seconds;
    TRMI_TRY(trm_model_create(&options, &t->model, err));
    describe_servers(e, t->model);
    if (trmi_estimator_deals(e)) {
        TRMI_TRY(learn_dealt(e, err));
        t->model->dealt = &e->dealt;
    }
    atomic_store(&e->model, t->model);
    if (trmi_estimator_stopped(e)) {
        trm_model_request_stop(t->model);
    }
    return TRM_OK;
}

/* Returns whether the model has running statistics, which belong to workers and not to servers. */
static bool has_states(const trm_model *model) {
    bool any = false;
    for (int32_t i = 0; i < trm_exec_variable_count(model->train.exec); i++) {
        any = any || trm_exec_variable(model->train.exec, i).kind == TRM_VARIABLE_STATE;
    }
    return any;
}

/* Loads running statistics (batch norm) after a restart: of a synchronous chief those of its latest
 * batch (states_file.h), else those of the newest checkpoint. Servers do not hold them. An error is
 * only logged, because training corrects them; so is that the servers' logs go further than the
 * checkpoint. */
static void restore_states(const trainer *t) {
    trm_error err;
    int32_t skipped;
    int64_t step;
    const char *dir = t->e->config.model_dir;
    const bool step_found = dir != NULL && trm_checkpoint_latest(dir, &step, NULL) == TRM_OK;
    if (step_found && trm_model_load(t->model, dir, true, &skipped, &err) != TRM_OK) {
        trmi_log(TRM_LOG_WARN, "train", "running statistics begin anew: %s", err.message);
    } else if (t->e->is_chief && trmi_estimator_keeps_states(t->e) &&
               trmi_states_load(dir, t->model->train.exec,
                                trmi_remote_position(t->model->remote))) {
        return; /* those of the batch that the servers have */
    } else if (step_found && t->e->is_chief && has_states(t->model) &&
               (uint64_t)step < trm_model_global_step(t->model)) {
        trmi_log(
            TRM_LOG_WARN, "train",
            "running statistics of batch norm are of step %lld (the newest checkpoint), weights "
            "of step %llu: evaluations differ a little from those of an undisturbed job",
            (long long)step, (unsigned long long)trm_model_global_step(t->model));
    }
}

/* Warm start of a new job: checks that the file fits the model and loads the running statistics.
 * Weights and rows are read by the servers (warm_start.c). A job that has begun before is left
 * as it is. */
static trm_status begin_warm(const trainer *t, trm_error *err) {
    const trm_run_config *c = &t->e->config;
    trmi_warm_start *warm;
    int32_t skipped;
    uint64_t step;
    if (c->warm_start_from == NULL || trm_model_global_step(t->model) > 0 ||
        trmi_job_read(t->e, &step) != TRMI_JOB_NONE) {
        return TRM_OK;
    }
    TRMI_TRY(trmi_warm_start_open(c->warm_start_from, &warm, err));
    trm_status status = trmi_warm_start_check(warm, t->model, err);
    trmi_warm_start_close(warm);
    return status == TRM_OK ? trm_model_load(t->model, c->warm_start_from, true, &skipped, err)
                            : status;
}

/* Notes the time of a step (callback of run_lives). */
static trm_status note_step(void *context, const trm_progress *p, trm_error *err) {
    (void)p;
    (void)err;
    ((trainer *)context)->alive = trmi_os_now();
    return TRM_OK;
}

/* Trains with the spec's callbacks and those of the configuration: log, TensorBoard and
 * checkpoints of the chief. The spec's callbacks are destroyed in trmi_run_trainer, because a
 * worker may train several lives with them. */
static trm_status train_model(trainer *t, const trm_train_spec *spec, trm_error *err) {
    trm_estimator *e = t->e;
    trm_train_options options = {
        .data = t->data, .until_step = spec->max_steps, .until_epoch = spec->epochs};
    int32_t count = 0, room = (int32_t)(sizeof spec->callbacks / sizeof spec->callbacks[0]);
    while (count < room &&
           (spec->callbacks[count].on_begin || spec->callbacks[count].on_step_end ||
            spec->callbacks[count].on_epoch_end || spec->callbacks[count].on_end ||
            spec->callbacks[count].on_gradients || spec->callbacks[count].on_epoch_begin ||
            spec->callbacks[count].on_checkpoint || spec->callbacks[count].on_evaluated)) {
        options.callbacks[count] = spec->callbacks[count];
        options.callbacks[count++].destroy = NULL;
    }
    /* the length of training is part of the job's description */
    t->callbacks = count;
    t->model->wanted_epochs = spec->epochs;
    t->model->wanted_steps = spec->max_steps;
    TRMI_TRY(trmi_job_check(e, t->model, t->data, err));
    options.callbacks[count++] = (trm_callback){.on_step_end = note_step, .context = t};
    if (e->config.log_step_count_steps > 0) {
        options.callbacks[count++] = trmi_step_log(e);
    }
    /* the chief's duties, also for a trainer that may become chief later */
    if (e->is_chief || trmi_duty_is_shared(e)) {
        if (e->config.model_dir != NULL && e->config.save_summary_steps > 0) {
            options.callbacks[count++] =
                trmi_while_chief(e, trm_tensorboard(&(trm_tensorboard_options){
                                        .directory = e->config.model_dir,
                                        .every_steps = e->config.save_summary_steps,
                                        .graph = true}));
        }
        options.callbacks[count++] = trmi_ps_saver(e, t->client);
    }
    return trm_model_train(t->model, &options, err);
}

/* Ends the job if this process is the chief: writes the state to job.json and stops the servers.
 * A job that was stopped on request stays "running" so that it can be continued. Errors other
 * than stop and divergence leave the servers up for a restart of this process. */
static trm_status end_job(trainer *t, trm_status status, uint64_t step, trm_error *err) {
    trm_error own;
    bool over = status == TRM_OK || status == TRM_CANCELLED || status == TRM_DIVERGED;
    if (!t->e->acts || !over) {
        return status;
    }
    trmi_chief_role duty = {.estimator = t->e, .client = t->client};
    if (trmi_chief_role_query(&duty, true, &own) == TRM_OK && !duty.mine) {
        return status; /* another worker has taken over as chief and will end the job */
    }
    /* Write the state first: a role that finds no server reads it there. */
    trmi_job_state state = status == TRM_OK         ? TRMI_JOB_DONE
                           : status == TRM_DIVERGED ? TRMI_JOB_FAILED
                                                    : TRMI_JOB_RUNNING;
    trm_status last = trmi_job_write(t->e, state, step, &own);
    if (last == TRM_OK) {
        last = trm_ps_stop_servers(t->client, &own);
    }
    if (last != TRM_OK && status == TRM_OK && last != TRM_PEER) {
        *err = own;
        return last;
    }
    return status;
}

/* Hybrid, strict: waits in a barrier until all workers, the chief included, have ended well. Before
 * it this worker signs off from the servers, since the chief waits for that. A worker that dies
 * here makes the barrier fail, and the job goes on. */
static trm_status wait_for_all(const trainer *t, trm_error *err) {
    trm_error why;
    if (!t->e->acts) {
        /* errors are ignored: the server may have ended */
        (void)!trm_ps_leave(t->client, &why);
    }
    return trm_comm_barrier(t->comm, err);
}

/* Returns the result of a job that ended without this worker.
 *   errors  DIVERGED: the job failed */
static trm_status result_of_ended_job(const trm_estimator *e, trm_job_result *out, trm_error *err) {
    if (trmi_job_read(e, &out->global_step) == TRMI_JOB_FAILED) {
        return TRMI_FAIL(err, TRM_DIVERGED,
                         "the job has failed already, after step %llu, and its servers have ended",
                         (unsigned long long)out->global_step);
    }
    trmi_estimator_say(e, "the job has ended already, after step %llu",
                       (unsigned long long)out->global_step);
    return TRM_OK;
}

/* Runs one life of a trainer, from the description of the model to the end of the job. */
static trm_status run_life(trainer *t, const trm_train_spec *spec, trm_job_result *out,
                           trm_error *err) {
    trm_estimator *e = t->e;
    TRMI_TRY(describe_model(t, spec, err));
    trm_status status = trmi_estimator_connect(e, &t->client, err);
    if (status == TRM_END) {
        return result_of_ended_job(e, out, err);
    }
    TRMI_TRY(status);
    /* workers that compute together join; then the model, whose tables the servers create */
    TRMI_TRY(create_workers_comm(t, err));
    TRMI_TRY(build_model(t, err));
    TRMI_TRY(begin_warm(t, err));
    if (e->strategy.training.tables_only) {
        TRMI_TRY(trmi_dense_begin(t->model, t->dense, e->config.model_dir, err));
    } else if (t->comm != NULL) {
        TRMI_TRY(trmi_workers_begin(t->model, err));
    }
    if (!e->strategy.training.tables_only && (e->is_chief || trmi_duty_is_shared(e))) {
        restore_states(t);
    }
    trmi_estimator_say(e, "%s %d begins at step %llu", trm_role_name(e->role),
                       trm_cluster_get(e->config.cluster)->task_index,
                       (unsigned long long)trm_model_global_step(t->model));
    status = train_model(t, spec, err);
    out->global_step = trm_model_global_step(t->model);
    /* the figures of the result; the chief adds those of the servers */
    trm_ps_client_stats stats;
    trm_ps_client_get_stats(t->client, &stats);
    out->lookups = stats.lookups;
    out->unique_keys = stats.unique_keys;
    out->cached_keys = stats.cached_keys;
    if (status == TRM_OK && e->acts) {
        TRMI_TRY(
            trmi_remote_counters(t->model->remote, &out->least_updates, &out->most_updates, err));
    }
    /* the chief ends the job; workers that compute together leave together */
    status = end_job(t, status, out->global_step, err);
    return status == TRM_OK && t->comm != NULL ? wait_for_all(t, err) : status;
}

/* Returns whether a worker that computes with others starts another life after `status`: another
 * worker has died or the servers were away, and this worker has made a step within
 * timeout_seconds. */
static bool starts_again(const trainer *t, trm_status status) {
    const trm_ps_strategy *s = &t->e->strategy;
    return trmi_estimator_joins(t->e) && t->e->trainers > 1 &&
           (status == TRM_PEER || status == TRM_TIMEOUT) && !trmi_estimator_stopped(t->e) &&
           t->e->over_since == 0 && trmi_os_now() - t->alive < s->client.timeout_seconds;
}

/* Hybrid: keeps the dense parameters of a life that ends, because a worker that comes back needs
 * them from another worker. An update that the end of the life has interrupted (strict) is made on
 * a second copy: which of the two the job continues with depends on whether the servers have
 * applied the step. */
static void keep_dense(trainer *t) {
    if (t->model == NULL || !t->e->strategy.training.tables_only) {
        return;
    }
    trm_error err;
    double rate = t->model->owed_rate;
    trmi_dense_keep(&t->dense[0], t->model);
    trmi_dense_free(&t->dense[1]);
    if (rate > 0 && trm_exec_update(t->model->train.exec, rate, &err) == TRM_OK) {
        trmi_dense_keep(&t->dense[1], t->model);
    }
}

/* Runs lives of a trainer until one ends for good. */
static trm_status run_lives(trainer *t, const trm_train_spec *spec, trm_job_result *out,
                            trm_error *err) {
    trm_error own = {0};
    err = err == NULL ? &own : err;
    t->alive = trmi_os_now();
    trm_status status = run_life(t, spec, out, err);
    while (starts_again(t, status)) {
        keep_dense(t);
        trmi_estimator_say(t->e, "%s: this worker waits for all others, and goes on with them",
                           err->message);
        release_trainer(t, true);
        trmi_estimator_sleep(t->e, 0.2);
        status = run_life(t, spec, out, err);
    }
    return status == TRM_PEER && t->e->over_since != 0 && !t->e->acts
               ? result_of_ended_job(t->e, out, err)
               : status;
}

/* Runs a chief or worker to its end. Without an evaluator in the cluster the chief evaluates the
 * last checkpoint itself. */
trm_status trmi_run_trainer(trm_estimator *e, const trm_train_spec *spec, const trm_eval_spec *eval,
                            trm_job_result *out, trm_error *err) {
    trainer t = {.e = e};
    trm_status status = run_lives(&t, spec, out, err);
    bool over = status == TRM_OK || status == TRM_CANCELLED || status == TRM_DIVERGED;
    /* Synchronous servers wait for the next life of a worker that failed. */
    release_trainer(
        &t, (e->strategy.training.tables_only || e->strategy.server.mode == TRM_PS_SYNC) && !over);
    trmi_dense_free(&t.dense[0]);
    trmi_dense_free(&t.dense[1]);
    for (int32_t i = 0; i < t.callbacks; i++) {
        if (spec->callbacks[i].destroy != NULL) {
            spec->callbacks[i].destroy(spec->callbacks[i].context);
        }
    }
    /* a connection that broke after a stop request is part of the stop */
    if (status == TRM_PEER && trmi_estimator_stopped(e)) {
        return trmi_error_append(err, " (stopped on request)"), TRM_CANCELLED;
    }
    bool evaluate = e->acts && !e->has_evaluator && eval != NULL && e->config.model_dir != NULL;
    if (status == TRM_OK && evaluate) {
        status = trmi_evaluate_latest(e, eval, out, err);
    }
    return status;
}
