/* SPDX-License-Identifier: Apache-2.0 */
/* One role of a job with parameter servers, to its end.
 *
 *      resolve_role: role and addresses (TF_CONFIG, guide 000's flags), the job's secret
 *      make_estimator: the strategy and the options of the run
 *      run_to_end: trm_train_and_evaluate, which runs the part of that role
 *
 * The same code runs `bench train` with servers: the data is then random and the steps after
 * WARM_STEPS are timed. */
#include "app/jobs/role.h"

#include "app/commands/bench.h"
#include "app/output/record.h"

#include "trireme/dist.h"
#include "trireme/train.h"
#include "trireme/base.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- flags ----------------------------------------------------------------------------------- */

/* Parses --mode: sync, async or staleness=K.
 *   errors  INVALID */
static trm_status parse_mode(const app_options *o, trm_ps_strategy *s, trm_error *err) {
    char *end;
    if (strcmp(o->mode, "sync") == 0) {
        s->server.mode = TRM_PS_SYNC;
        return TRM_OK;
    }
    if (strcmp(o->mode, "async") == 0) {
        s->server.mode = TRM_PS_ASYNC;
        return TRM_OK;
    }
    if (strncmp(o->mode, "staleness=", 10) == 0 && o->mode[10] >= '0' && o->mode[10] <= '9') {
        long k = strtol(o->mode + 10, &end, 10);
        if (*end == '\0' && k <= 1000000) {
            s->server.mode = TRM_PS_BOUNDED;
            s->server.staleness = (int32_t)k;
            return TRM_OK;
        }
    }
    return app_fail(err, TRM_INVALID,
                    "--mode %.40s: sync, async or staleness=K expected (staleness=0: all workers "
                    "finish a batch before the next begins)",
                    o->mode);
}

/* Adapts the strategy to tables with a bound of their own (--tables staleness=): an asynchronous
 * job becomes a bounded one without a bound for the rest, because servers must count batches.
 *   errors  INVALID */
static trm_status bind_tables(trm_ps_strategy *s, trm_error *err) {
    if (s->server.mode == TRM_PS_SYNC) {
        return app_fail(err, TRM_INVALID,
                        "--tables staleness: synchronous rows are never old; it is of --mode async "
                        "and staleness=K");
    }
    if (s->server.mode == TRM_PS_ASYNC) {
        s->server.mode = TRM_PS_BOUNDED;
        s->server.staleness = TRM_STALENESS_ANY;
        s->lend = s->lend == TRM_PS_LEND_AUTO ? TRM_PS_LEND_ALWAYS : s->lend;
    }
    return TRM_OK;
}

/* Contract in role.h. Which tables exist is known only later. */
trm_status app_check_strategy(const app_options *o, trm_ps_strategy *s, trm_error *err) {
    trm_table_options all = {0};
    uint64_t named = 0;
    trm_status status = parse_mode(o, s, err);
    status = status == TRM_OK ? app_table_flag(o->tables, &all, &named, err) : status;
    return status == TRM_OK && all.staleness != 0 ? bind_tables(s, err) : status;
}

/* ---- the role -------------------------------------------------------------------------------- */

/* The state of one role; destroyed by app_run_role. */
typedef struct role {
    app_context *app;
    const char *name;
    app_network network;
    trm_cluster *cluster;
    trm_estimator *estimator;
    app_report_state report;
    uint8_t token[TRM_TOKEN_BYTES];
    bool has_token;
    char token_path[4096];               /* model_dir/job.token; "": --token-file, or no token */
    char latest[32], best[64], last[32]; /* arguments of the exporters, split in place */
    /* bench: random batches; time of the updates of all workers from WARM_STEPS on */
    bool bench;
    uint64_t first_step, last_step;
    uint64_t tables_named; /* bits of the parts of --tables that were applied */
    double first_time, last_time, loss;
} role;

/* Steps of `bench train` that are not timed: the first batches create rows and buffers. */
enum { WARM_STEPS = 20 };

/* Opens the data of a role: a trm_train_spec.input_fn. The estimator determines the shard. */
static trm_status make_data(const trm_input_context *c, void *params, trm_dataset **out,
                            trm_error *err) {
    role *r = params;
    bool train = c->mode == TRM_MODE_TRAIN;
    if (r->bench) {
        return app_dataset_random(r->app, out, err);
    }
    /* the estimator says which part of the data is this role's */
    r->app->shards = c->pipelines;
    r->app->shard = c->index;
    const app_options *o = &r->app->o;
    trm_status status = app_dataset(r->app, train ? app_usage(o, TRM_USAGE_TRAIN) : TRM_USAGE_TEST,
                                    train, out, err);
    const trm_cluster_info *me = trm_cluster_get(r->cluster);
    if (status != TRM_OK || !train || !me->is_chief) {
        return status;
    }
    /* The chief writes the checkpoints. */
    status = app_language_keep_tokenizer(r->app, o->output != NULL ? o->output : me->model_dir,
                                         *out, err);
    if (status != TRM_OK) {
        trm_dataset_destroy(*out);
    }
    return status;
}

/* Fills in the model's options of a role: the model function of the estimator. */
static trm_status make_model(trm_run_mode mode, trm_model_options *options, void *params,
                             trm_error *err) {
    role *r = params;
    trm_dataset *data = options->data;
    return app_model_options(r->app, data, mode == TRM_MODE_EVAL, &r->network, options, err);
}

/* Checks, at the start of training, when all tables are declared, that each part of --tables was
 * applied. */
static trm_status check_tables(void *context, const trm_progress *p, trm_error *err) {
    (void)p;
    const role *r = context;
    return app_table_flag_used(r->app->o.tables, r->tables_named, err);
}

/* Keeps, after each step of a bench, time and step of the first one that counts, and of the
 * last. */
static trm_status time_step(void *context, const trm_progress *p, trm_error *err) {
    (void)err;
    role *r = context;
    r->last_step = p->global_step;
    r->last_time = trm_now_seconds();
    r->loss = (double)p->loss;
    if (r->first_time == 0 && p->global_step >= WARM_STEPS) {
        r->first_step = r->last_step;
        r->first_time = r->last_time;
    }
    return TRM_OK;
}

/* Prints the rate of all workers; only the chief does, because it sees the steps of all. */
static void tell_bench(const role *r) {
    const app_options *o = &r->app->o;
    double seconds = r->last_time - r->first_time;
    double updates = (double)(r->last_step - r->first_step) *
                     (strcmp(o->mode, "sync") == 0 ? (double)o->ranks : 1);
    double units = updates * (double)o->batch_size * app_units_a_sample(r->app);
    if (r->first_time == 0 || seconds <= 0 || !trm_cluster_get(r->cluster)->is_chief) {
        return;
    }
    app_begin(APP_RESULT, "bench", "train");
    app_put(app_text("model", r->name, "%s"), app_text("preset", o->click.preset, NULL),
            app_int("servers", o->servers, " through %d servers"),
            app_int("workers", o->ranks, ", %d workers"), app_text("mode", o->mode, ", %s"),
            app_real(app_rate_key(r->app), units / seconds, ": %.1f "),
            app_text(NULL, app_unit(r->app), "%s/s"), app_real(NULL, updates, " (%.0f batches"),
            app_int("batch_size", o->batch_size, " of %d"),
            app_real("seconds", seconds, " in %.2f s)"),
            app_int("samples", (int64_t)r->last_step * o->batch_size, NULL),
            app_real("loss", r->loss, NULL));
    app_put_machine(o->threads);
    app_end();
}

/* Prints a line of the estimator, and records it. */
static int print_line(const char *line) {
    app_record_log("info", "job", line);
    app_print_progress("%s\n", line);
    return 0;
}

/* Prints the result of an evaluation by the evaluator. */
static void tell_evaluation(void *context, uint64_t step, const trm_evaluation *v) {
    app_print_progress("evaluation at step %llu\n", (unsigned long long)step);
    app_print_evaluation(((role *)context)->app, 0, (int64_t)step, v);
}

/* Creates or reads the job's secret in model_dir if there is no --token-file and the cluster has
 * addresses beyond loopback. Roles of guide 000 share model_dir and nothing else; the first one
 * writes the file. */
static trm_status share_token(role *r, trm_error *err) {
    const app_options *o = &r->app->o;
    const trm_cluster_info *me = trm_cluster_get(r->cluster);
    const char *dir = o->output != NULL ? o->output : me->model_dir;
    if (me->token_file != NULL || dir == NULL || o->dry_run ||
        !trm_cluster_beyond_loopback(r->cluster)) {
        return TRM_OK;
    }
    snprintf(r->token_path, sizeof r->token_path, "%s/job.token", dir);
    return trm_token_share(r->token_path, r->token, err);
}

/* Determines role, addresses and secret. The cluster is resolved a second time if the secret was
 * found in model_dir, because its file is part of the options. */
static trm_status resolve_role(role *r, trm_error *err) {
    const app_options *o = &r->app->o;
    trm_cluster_flags flags = {.job_name = o->job_name,
                               .task_index = o->task_index,
                               .ps_hosts = o->ps_hosts,
                               .worker_hosts = o->worker_hosts,
                               .chief_hosts = o->chief_hosts,
                               .evaluator_hosts = o->evaluator_hosts,
                               .token_file = o->token_file,
                               .rank_table = o->rank_table,
                               .needs_ps = true};
    trm_status status = trm_cluster_from_env(&flags, NULL, NULL, &r->cluster, err);
    status = status == TRM_OK ? share_token(r, err) : status;
    if (status == TRM_OK && r->token_path[0] != '\0') { /* hybrid workers use the secret, too */
        flags.token_file = r->token_path;
        trm_cluster_destroy(r->cluster);
        r->cluster = NULL;
        status = trm_cluster_from_env(&flags, NULL, NULL, &r->cluster, err);
    }
    if (status != TRM_OK) {
        return status;
    }
    for (int32_t i = 0; i < trm_cluster_get(r->cluster)->warning_count; i++) {
        app_warn("%s", trm_cluster_get(r->cluster)->warnings[i]);
    }
    const char *token = trm_cluster_get(r->cluster)->token_file;
    r->has_token = token != NULL;
    return token != NULL ? trm_token_read(token, r->token, err) : TRM_OK;
}

/* Sets the options of a table that the model declares, from --tables. */
static void set_table(void *context, trm_table_options *options) {
    role *r = context;
    (void)!app_table_flag(r->app->o.tables, options, &r->tables_named, NULL);
}

/* Creates the estimator: the strategy of the servers and the configuration of the run from the
 * flags. */
static trm_status make_estimator(role *r, trm_error *err) {
    const app_options *o = &r->app->o;
    trm_ps_strategy strategy = {.training.tables_only = o->hybrid,
                                .server.staleness_aware = o->staleness_aware,
                                .server.backup_workers = (int32_t)o->backup_workers,
                                .lend = strcmp(o->lend, "always") == 0  ? TRM_PS_LEND_ALWAYS
                                        : strcmp(o->lend, "never") == 0 ? TRM_PS_LEND_NEVER
                                                                        : TRM_PS_LEND_AUTO,
                                .training.cache_rows = o->hot_rows,
                                .client.cache_staleness = (int32_t)o->hot_age,
                                .client.wire = strcmp(o->wire, "bf16") == 0   ? TRM_BFLOAT16
                                               : strcmp(o->wire, "fp16") == 0 ? TRM_FLOAT16
                                                                              : TRM_FLOAT32,
                                .training.placement =
                                    strcmp(o->placement, "round_robin") == 0 ? TRM_PLACE_ROUND_ROBIN
                                    : strcmp(o->placement, "by_size") == 0   ? TRM_PLACE_BY_SIZE
                                                                             : TRM_PLACE_BY_HASH,
                                .server.shards = (int32_t)o->ps_shards,
                                .server.memory_bytes = o->ps_memory,
                                .server.log_pushes = o->no_ps_log ? TRM_OFF : TRM_ON,
                                .client.timeout_seconds = o->role_timeout,
                                .server.spill_folder = o->ps_spill,
                                .training.table = set_table,
                                .training.context = r};
    trm_status status = app_check_strategy(o, &strategy, err);
    if (status != TRM_OK) {
        return status;
    }
    /* Write the configuration of the run, with TensorFlow's names. */
    const trm_run_config config = {.model_dir = o->output,
                                   .warm_start_from = o->init,
                                   .cluster = r->cluster,
                                   .distribute = &strategy,
                                   .token = r->has_token ? r->token : NULL,
                                   .tf_random_seed = (uint64_t)o->seed,
                                   .save_summary_steps = o->summary_every > 0 ? o->summary_every
                                                         : o->tensorboard     ? o->log_every
                                                                              : 0,
                                   .checkpoints.every_steps = o->save_every_steps,
                                   .checkpoints.every_seconds = o->save_every_seconds,
                                   .checkpoints.writer.keep = (int32_t)o->keep,
                                   .export_bytes = o->export_bytes,
                                   .checkpoints.writer.keep_every_hours = o->keep_every_hours,
                                   .log_step_count_steps = o->log_every,
                                   .iterations_per_loop = 1,
                                   .precision_mode = o->precision,
                                   .print = print_line,
                                   .on_evaluated = tell_evaluation,
                                   .context = r};
    return trm_estimator_create(make_model, r, &config, &r->estimator, err);
}

/* Prints the cluster and the estimator's plan for --dry-run. */
static int tell_plan(const role *r) {
    trm_error err;
    char *text;
    trm_status status = trm_cluster_text(r->cluster, app_out.json, &text, &err);
    if (status == TRM_OK) {
        printf("%s%s", text, text[strlen(text) - 1] == '\n' ? "" : "\n");
        trm_free(text);
        status = trm_estimator_plan(r->estimator, app_out.json, &text, &err);
    }
    if (status != TRM_OK) {
        return app_report(&err);
    }
    fputs(text, stdout);
    trm_free(text);
    return 0;
}

/* Prints a remark about generated data, and the JSON event "start" of a role. */
static void tell_start(const role *r) {
    const trm_cluster_info *me = trm_cluster_get(r->cluster);
    bool generated = app_generates(&r->app->o), remark = generated && me->role != TRM_ROLE_PS;
    app_tell(APP_PROGRESS, "event", "start", app_text("version", trm_version(), NULL),
             app_text("model", r->name, NULL), app_text("role", trm_role_name(me->role), NULL),
             app_int("task_index", me->task_index, NULL), app_bool("is_chief", me->is_chief, NULL),
             app_int("servers", trm_cluster_task_count(r->cluster, TRM_ROLE_PS), NULL),
             app_text("mode", r->app->o.mode, NULL),
             app_text("data", r->app->o.data,
                      remark ? "the data are generated (--data %.60s), not read" : NULL),
             app_bool("generated", generated, NULL));
}

/* Prints the last line and the JSON event "done" of a role. */
static void tell_done(const trm_job_result *result, double seconds) {
    app_begin(APP_RESULT, "event", "done");
    app_put(app_text("role", trm_role_name(result->role), NULL),
            app_int("global_step", (int64_t)result->global_step, "done: step %d"),
            app_real("seconds", seconds, ", %.1f s"));
    if (result->most_updates > 0) {
        app_put(app_int("least_updates", result->least_updates, NULL),
                app_int("most_updates", result->most_updates, NULL));
    }
    if (result->lookups > 0) {
        app_put(app_int("lookups", result->lookups, NULL),
                app_int("unique_keys", result->unique_keys, NULL),
                app_int("cached_keys", result->cached_keys, NULL));
    }
    app_put(app_int("peak_bytes", trm_peak_bytes(), NULL));
    app_end();
}

/* Opens the record of this role in the job's folder: run.jsonl is the chief's. */
static trm_status begin_record(const role *r, trm_error *err) {
    const trm_cluster_info *me = trm_cluster_get(r->cluster);
    const char *folder = r->app->o.output != NULL ? r->app->o.output : me->model_dir;
    const char *name = me->is_chief ? NULL : trm_role_name(me->role);
    return app_begin_record(r->app, folder, name, me->task_index, err);
}

/* Appends an exporter from FORMAT[:METRIC], split in place. */
static void take_exporter(trm_exporter_kind kind, const char *name, char *text, trm_eval_spec *eval,
                          int *count) {
    if (text == NULL) {
        return;
    }
    char *colon = strchr(text, ':');
    if (colon != NULL) {
        *colon = '\0';
    }
    eval->exporters[(*count)++] = (trm_exporter){
        .kind = kind, .name = name, .format = text, .metric = colon != NULL ? colon + 1 : NULL};
}

/* Appends the exporters of --export-latest, --export-best and --export-final. */
static void take_exporters(role *r, trm_eval_spec *eval) {
    const app_options *o = &r->app->o;
    int count = 0;
    snprintf(r->best, sizeof r->best, "%s", o->export_best != NULL ? o->export_best : "");
    snprintf(r->latest, sizeof r->latest, "%s", o->export_latest != NULL ? o->export_latest : "");
    snprintf(r->last, sizeof r->last, "%s", o->export_final != NULL ? o->export_final : "");
    take_exporter(TRM_EXPORT_LATEST, "latest", o->export_latest != NULL ? r->latest : NULL, eval,
                  &count);
    take_exporter(TRM_EXPORT_BEST, "best", o->export_best != NULL ? r->best : NULL, eval, &count);
    take_exporter(TRM_EXPORT_FINAL, "final", o->export_final != NULL ? r->last : NULL, eval,
                  &count);
}

/* Runs the role to its end and prints the result. Workers and the chief get the progress report,
 * a bench its timer. */
static int run_to_end(role *r) {
    const app_options *o = &r->app->o;
    trm_error err;
    trm_job_result result = {0};
    trm_train_spec train = {
        .input_fn = make_data, .params = r, .max_steps = o->steps, .epochs = o->epochs};
    trm_eval_spec eval = {.input_fn = make_data,
                          .params = r,
                          .steps = TRM_ALL,
                          .start_delay_secs = TRM_NONE,
                          .throttle_secs = TRM_NONE};
    take_exporters(r, &eval);
    trm_role me = trm_cluster_get(r->cluster)->role;
    double begin = trm_now_seconds();
    if (train.max_steps == 0 && train.epochs == 0) {
        train.epochs = 1;
    }
    /* Trainers report; servers and the evaluator have output of their own. */
    if (me == TRM_ROLE_WORKER || me == TRM_ROLE_CHIEF) {
        train.callbacks[0] = r->bench ? (trm_callback){.on_step_end = time_step, .context = r}
                                      : app_reporter(&r->report);
        train.callbacks[1] = (trm_callback){.on_begin = check_tables, .context = r};
    }
    /* a bench runs a fixed number of steps; a training has a record */
    if (r->bench) {
        train.max_steps = WARM_STEPS + o->repeats * (strcmp(o->mode, "sync") == 0 ? 1 : o->ranks);
        train.epochs = 0;
    } else {
        if (begin_record(r, &err) != TRM_OK) {
            return app_report(&err);
        }
        tell_start(r);
    }
    /* runs until the role ends: for a server until the chief stops it */
    app_signals_begin_job(r->estimator);
    const bool evaluates = me == TRM_ROLE_EVALUATOR || o->eval_every_epochs != 0;
    trm_status status = trm_train_and_evaluate(
        r->estimator, &train, evaluates && !r->bench ? &eval : NULL, &result, &err);
    app_signals_end();
    if (status == TRM_CANCELLED && app_signal_exit_code() != 0) {
        app_print_progress("%s\n", err.message);
        return app_signal_exit_code();
    }
    if (status != TRM_OK) {
        return app_report(&err);
    }
    if (r->bench) {
        tell_bench(r);
        return 0;
    }
    tell_done(&result, trm_now_seconds() - begin);
    return 0;
}

/* Contract in role.h. */
int app_run_role(app_context *app) {
    role r = {.app = app,
              .name = app->parsed.arguments[0],
              .bench = strncmp(app->command->name, "bench", 5) == 0,
              .report = {.app = app}};
    trm_error err;
    int code;
    bool is_folder;
    trm_status status = app_recall_folder(app, app->o.init, &is_folder, &err);
    app_recall_normalization(app);
    app_settle_data(app);
    status = status == TRM_OK ? app_set_context(app, &err) : status;
    status = status == TRM_OK ? resolve_role(&r, &err) : status;
    status = status == TRM_OK ? make_estimator(&r, &err) : status;
    code = status != TRM_OK ? app_report(&err) : app->o.dry_run ? tell_plan(&r) : run_to_end(&r);
    trm_estimator_destroy(r.estimator);
    trm_cluster_destroy(r.cluster);
    app_record_close();
    return code;
}
