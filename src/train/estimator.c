/* The configuration, its checks, and what all roles need of it. */
#include "train/estimator.h"

#include "train/model.h"

#include "base/error.h"
#include "base/log.h"
#include "base/os.h"

#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* ---- checks ------------------------------------------------------------------------------------ */

static trm_status check_numbers(const trm_run_config *c, trm_error *err) {
    if (c->save_checkpoints_steps > 0 && c->save_checkpoints_secs > 0) {
        return TRMI_FAIL(err, TRM_INVALID,
                         "save_checkpoints_steps %lld and save_checkpoints_secs %g: give one of the two",
                         (long long)c->save_checkpoints_steps, c->save_checkpoints_secs);
    }
    const struct {
        const char *name;
        double value;
    } counts[] = {{"save_checkpoints_steps", (double)c->save_checkpoints_steps},
                  {"save_checkpoints_secs", c->save_checkpoints_secs},
                  {"iterations_per_loop", (double)c->iterations_per_loop},
                  {"keep_checkpoint_every_n_hours", c->keep_checkpoint_every_n_hours},
                  {"session_creation_timeout_secs", c->session_creation_timeout_secs},
                  {"export_bytes", (double)c->export_bytes}};
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        if (!(counts[i].value >= 0)) {
            return TRMI_FAIL(err, TRM_INVALID, "%s is %g: 0 (the default) or more expected", counts[i].name,
                             counts[i].value);
        }
    }
    if (c->model_dir != NULL && c->model_dir[0] == '\0') {
        return TRMI_FAIL(err, TRM_INVALID, "model_dir is empty; a directory that all roles share expected");
    }
    return TRM_OK;
}

static trm_status check_precision(const trm_run_config *c, trm_precision *out, trm_error *err) {
    static const struct {
        const char *name;
        trm_precision precision;
    } names[] = {{"allow_mix_precision", TRM_PRECISION_MIXED},
                 {"mixed", TRM_PRECISION_MIXED},
                 {"must_keep_origin_dtype", TRM_PRECISION_ORIGIN},
                 {"origin", TRM_PRECISION_ORIGIN},
                 {"force_fp32", TRM_PRECISION_FP32},
                 {"fp32", TRM_PRECISION_FP32}};
    *out = TRM_PRECISION_FP32;
    for (size_t i = 0; c->precision_mode != NULL && i < sizeof names / sizeof names[0]; i++) {
        if (strcmp(c->precision_mode, names[i].name) == 0) {
            *out = names[i].precision;
            return TRM_OK;
        }
    }
    return c->precision_mode == NULL
               ? TRM_OK
               : TRMI_FAIL(err, TRM_INVALID,
                           "precision_mode \"%.40s\": allow_mix_precision, must_keep_origin_dtype or "
                           "force_fp32 expected", c->precision_mode);
}

/* How data and hot rows are shared, against how far workers may run apart. */
static trm_status check_sharing(const trm_estimator *e, trm_error *err) {
    const trm_ps_strategy *s = &e->strategy;
    int32_t age = s->cache_staleness == 0 ? 1 : s->cache_staleness;
    if (s->lend == TRM_PS_LEND_ALWAYS && (s->hybrid || s->backup_workers > 0)) {
        return TRMI_FAIL(err, TRM_INVALID, "lent samples: %s; leave lend as it is",
                         s->hybrid ? "hybrid workers need as many batches as the others"
                                   : "what a backup worker does too late is dropped, and its samples with it");
    }
    if (s->cache_rows < 0 || s->cache_staleness < 0) {
        return TRMI_FAIL(err, TRM_INVALID, "cache_rows %lld, cache_staleness %d: 0 or more expected",
                         (long long)s->cache_rows, s->cache_staleness);
    }
    if (s->cache_staleness > 0 && s->cache_rows == 0) {
        return TRMI_FAIL(err, TRM_INVALID, "cache_staleness %d: no rows are cached; set cache_rows too", s->cache_staleness);
    }
    if (s->cache_rows > 0 && s->mode == TRM_PS_SYNC) {
        return TRMI_FAIL(err, TRM_INVALID, "cache_rows %lld: a cached row is old, and the synchronous mode allows no age: use "
                         "async or staleness=K", (long long)s->cache_rows);
    }
    if (s->cache_rows > 0 && s->mode == TRM_PS_BOUNDED && age > s->staleness) {
        return TRMI_FAIL(err, TRM_INVALID, "cache_staleness %d: rows may be at most %d batches old with staleness=%d", age,
                         s->staleness, s->staleness);
    }
    return TRM_OK;
}

static trm_status check_roles(const trm_estimator *e, trm_error *err) {
    const trm_run_config *c = &e->config;
    if (!e->has_roles) {
        return c->distribute == NULL || c->cluster == NULL
                   ? TRM_OK
                   : TRMI_FAIL(err, TRM_INVALID, "distribute is set, but there is no cluster: set TF_CONFIG, or "
                               "leave it out to train in this process alone");
    }
    if (e->servers > 0 && c->distribute == NULL) {
        return TRMI_FAIL(err, TRM_INVALID, "the cluster lists %d ps: set distribute to a trm_ps_strategy",
                         e->servers);
    }
    if (e->servers == 0) {
        return TRMI_FAIL(err, TRM_INVALID, "the cluster lists %d workers and no ps; list at least one ps (or "
                         "train with all-reduce: trireme train -n)", e->trainers);
    }
    if (!c->mix_compile_mode) {
        return TRMI_FAIL(err, TRM_INVALID, "mix_compile_mode must be true with parameter servers: part of "
                         "the model is not on the device");
    }
    if (c->iterations_per_loop > 1) {
        return TRMI_FAIL(err, TRM_INVALID, "iterations_per_loop is %lld: it must be 1 with mix_compile_mode",
                         (long long)c->iterations_per_loop);
    }
    bool sparse = trm_cluster_get(c->cluster)->sparse_workers;
    if (sparse && e->strategy.mode != TRM_PS_ASYNC) {
        return TRMI_FAIL(err, TRM_INVALID, "a sparse worker map does not say how many workers there are; only "
                         "the asynchronous mode can do without");
    }
    if (e->strategy.backup_workers > 0 && e->strategy.mode != TRM_PS_SYNC) {
        return TRMI_FAIL(err, TRM_INVALID, "backup_workers are for the synchronous mode");
    }
    if (e->strategy.backup_workers < 0 || (e->strategy.backup_workers >= e->trainers && !sparse)) {
        return TRMI_FAIL(err, TRM_INVALID, "%d backup_workers of %d workers: fewer expected",
                         e->strategy.backup_workers, e->trainers);
    }
    TRMI_TRY(check_sharing(e, err));
    if (e->role == TRM_ROLE_EVALUATOR && c->model_dir == NULL) {
        return TRMI_FAIL(err, TRM_INVALID, "an evaluator reads checkpoints from model_dir; set it");
    }
    return TRM_OK;
}

/* ---- making ------------------------------------------------------------------------------------ */

static void fill_defaults(trm_estimator *e) {
    trm_run_config *c = &e->config;
    bool servers = e->servers > 0;
    if (c->save_checkpoints_steps == 0 && c->save_checkpoints_secs == 0) {
        c->save_checkpoints_steps = servers ? 100 : 0;
        c->save_checkpoints_secs = servers ? 0 : 600;
    }
    c->tf_random_seed = c->tf_random_seed == 0 ? 1 : c->tf_random_seed;
    c->save_summary_steps = c->save_summary_steps == 0 ? 100 : c->save_summary_steps;
    c->log_step_count_steps = c->log_step_count_steps == 0 ? 100 : c->log_step_count_steps;
    c->keep_checkpoint_max = c->keep_checkpoint_max == 0 ? 5 : c->keep_checkpoint_max;
    c->keep_checkpoint_every_n_hours = c->keep_checkpoint_every_n_hours == 0 ? 10000 : c->keep_checkpoint_every_n_hours;
    c->session_creation_timeout_secs =
        c->session_creation_timeout_secs == 0 ? 7200 : c->session_creation_timeout_secs;
    e->strategy.timeout_seconds = e->strategy.timeout_seconds > 0 ? e->strategy.timeout_seconds : 120;
    c->export_bytes = c->export_bytes == 0 ? (int64_t)4 << 30 : c->export_bytes;
}

static void place(trm_estimator *e) {
    const trm_cluster *cluster = e->config.cluster;
    e->trainers = 1;
    e->is_chief = true;
    if (cluster == NULL || !trm_cluster_get(cluster)->has_roles) {
        return;
    }
    const trm_cluster_info *me = trm_cluster_get(cluster);
    int32_t chiefs = trm_cluster_task_count(cluster, TRM_ROLE_CHIEF);
    e->has_roles = true;
    e->role = me->role;
    e->trainers = chiefs + trm_cluster_task_count(cluster, TRM_ROLE_WORKER);
    e->trainer = me->role == TRM_ROLE_CHIEF    ? 0
                 : me->role == TRM_ROLE_WORKER ? me->task_index + chiefs
                                               : -1;
    e->is_chief = me->is_chief;
    e->servers = trm_cluster_task_count(cluster, TRM_ROLE_PS);
    e->has_evaluator = trm_cluster_task_count(cluster, TRM_ROLE_EVALUATOR) > 0;
    /* One task without servers runs as if there were no cluster (TensorFlow's rule). */
    if (e->servers == 0 && e->trainers == 1 && e->trainer == 0) {
        e->has_roles = false;
    }
}

static trm_status copy_text(trm_estimator *e, const char **text, trm_error *err) {
    if (*text != NULL && (*text = trmi_arena_strdup(&e->arena, *text)) == NULL) {
        return TRMI_FAIL(err, TRM_NOMEM, "no memory for a configuration");
    }
    return TRM_OK;
}

static trm_status take_config(trm_estimator *e, const trm_run_config *config, trm_error *err) {
    trm_run_config *c = &e->config;
    trm_precision precision;
    *c = *config;
    if (c->distribute != NULL) {
        e->strategy = *c->distribute;
        c->distribute = &e->strategy;
    }
    if (c->token != NULL) {
        memcpy(e->token, c->token, sizeof e->token);
        c->token = e->token;
    }
    if (c->cluster != NULL && c->model_dir != NULL && trm_cluster_get(c->cluster)->model_dir != NULL &&
        strcmp(c->model_dir, trm_cluster_get(c->cluster)->model_dir) != 0) {
        return TRMI_FAIL(err, TRM_INVALID, "model_dir is \"%.80s\" here and \"%.80s\" in TF_CONFIG; make them "
                         "equal, or give one", c->model_dir, trm_cluster_get(c->cluster)->model_dir);
    }
    if (c->model_dir == NULL && c->cluster != NULL) {
        c->model_dir = trm_cluster_get(c->cluster)->model_dir;
    }
    TRMI_TRY(check_numbers(c, err));
    TRMI_TRY(check_precision(c, &precision, err));
    TRMI_TRY(copy_text(e, &c->model_dir, err));
    TRMI_TRY(copy_text(e, &c->precision_mode, err));
    TRMI_TRY(copy_text(e, &e->strategy.folder, err));
    TRMI_TRY(copy_text(e, &e->strategy.spill_folder, err));
    place(e);
    TRMI_TRY(check_roles(e, err));
    fill_defaults(e);
    return TRM_OK;
}

trm_status trm_estimator_create(trm_model_fn model_fn, void *params, const trm_run_config *config,
                                trm_estimator **out, trm_error *err) {
    if (model_fn == NULL) {
        return TRMI_FAIL(err, TRM_INVALID, "an estimator needs a model_fn");
    }
    trm_estimator *e = trmi_alloc(sizeof *e);
    if (e == NULL) {
        return TRMI_FAIL(err, TRM_NOMEM, "no memory for an estimator");
    }
    e->model_fn = model_fn;
    e->params = params;
    trm_status status = take_config(e, config, err);
    if (status != TRM_OK) {
        trm_estimator_destroy(e);
        return status;
    }
    *out = e;
    return TRM_OK;
}

void trm_estimator_destroy(trm_estimator *e) {
    if (e != NULL) {
        trmi_arena_free(&e->arena);
        trmi_free(e);
    }
}

void trm_estimator_request_stop(trm_estimator *e) {
    atomic_store(&e->stop, 1);
    trm_model *model = atomic_load(&e->model);
    if (model != NULL) {
        trm_model_request_stop(model);
    }
}

/* Without a common pace the servers say who reads what, so that nothing is read twice or not at all. */
bool trmi_estimator_lends(const trm_estimator *e) {
    const trm_ps_strategy *s = &e->strategy;
    bool wanted = s->lend == TRM_PS_LEND_ALWAYS || (s->lend == TRM_PS_LEND_AUTO && s->mode == TRM_PS_ASYNC);
    return e->has_roles && wanted && !s->hybrid;
}

/* ---- for the roles ------------------------------------------------------------------------------ */

bool trmi_estimator_stopped(const trm_estimator *e) { return atomic_load(&e->stop) != 0; }

void trmi_estimator_sleep(const trm_estimator *e, double seconds) {
    double end = trmi_os_now() + seconds;
    for (double left = seconds; left > 0 && !trmi_estimator_stopped(e); left = end - trmi_os_now()) {
        usleep(left < 0.05 ? (useconds_t)(left * 1e6) + 1 : 50000);
    }
}

void trmi_estimator_say(const trm_estimator *e, const char *format, ...) {
    char line[1024];
    if (e->config.print == NULL) {
        return;
    }
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    e->config.print(line);
}

void trmi_estimator_ps_folder(const trm_estimator *e, char *path, size_t size) {
    path[0] = '\0';
    if (e->strategy.folder != NULL) {
        snprintf(path, size, "%s", e->strategy.folder);
    } else if (e->config.model_dir != NULL) {
        snprintf(path, size, "%s/ps", e->config.model_dir);
    }
}

trm_status trmi_estimator_model(trm_estimator *e, trm_run_mode mode, trm_dataset *data,
                                trm_model_options *out, trm_error *err) {
    trm_precision precision;
    *out = (trm_model_options){.data = data};
    TRMI_TRY(e->model_fn(mode, out, e->params, err));
    if (e->config.precision_mode != NULL) {
        TRMI_TRY(check_precision(&e->config, &precision, err));
        out->precision = precision;
    }
    out->seed = e->config.tf_random_seed;
    out->data = data;
    out->evaluation_only = mode == TRM_MODE_EVAL;
    out->ps = (trm_ps_training){.client = NULL};
    return TRM_OK;
}

trm_status trmi_estimator_data(const trm_estimator *e, trm_run_mode mode, trm_input_fn input_fn, void *params,
                               trm_dataset **out, trm_error *err) {
    trm_input_context context = {.mode = mode, .pipelines = 1, .seed = e->config.tf_random_seed};
    if (mode == TRM_MODE_TRAIN && e->trainer >= 0 && !trmi_estimator_lends(e)) {
        context.pipelines = e->trainers;
        context.index = e->trainer;
    }
    return input_fn(&context, params, out, err);
}

/* ---- job.json ------------------------------------------------------------------------------------- */

static const char *const state_words[] = {"none", "running", "done", "failed"};

trm_status trmi_job_write(const trm_estimator *e, trmi_job_state state, uint64_t global_step, trm_error *err) {
    char path[4096], text[160];
    if (e->config.model_dir == NULL) {
        return TRM_OK;
    }
    snprintf(path, sizeof path, "%s/job.json", e->config.model_dir);
    int length = snprintf(text, sizeof text, "{\"state\": \"%s\", \"global_step\": %llu, \"pid\": %d}\n",
                          state_words[state], (unsigned long long)global_step, (int)getpid());
    TRMI_TRY(trmi_os_make_dirs(NULL, e->config.model_dir, err));
    return trmi_os_replace_file(NULL, path, text, (size_t)length, err);
}

trmi_job_state trmi_job_read(const trm_estimator *e, uint64_t *global_step) {
    char path[4096];
    json_error_t why;
    const char *word = "";
    json_int_t step = 0;
    trmi_job_state state = TRMI_JOB_NONE;
    snprintf(path, sizeof path, "%s/job.json", e->config.model_dir != NULL ? e->config.model_dir : "");
    json_t *root = e->config.model_dir != NULL ? json_load_file(path, 0, &why) : NULL;
    if (root != NULL && json_unpack(root, "{s:s,s:I}", "state", &word, "global_step", &step) == 0) {
        for (int i = TRMI_JOB_RUNNING; i <= TRMI_JOB_FAILED; i++) {
            state = strcmp(word, state_words[i]) == 0 ? (trmi_job_state)i : state;
        }
    }
    json_decref(root);
    *global_step = (uint64_t)step;
    return state;
}

/* ---- dispatch --------------------------------------------------------------------------------------- */

static trm_status check_specs(const trm_estimator *e, const trm_train_spec *train, const trm_eval_spec *eval,
                              trm_error *err) {
    if (e->has_roles && e->role == TRM_ROLE_PS) {
        return TRM_OK;
    }
    if (train == NULL || train->input_fn == NULL) {
        return TRMI_FAIL(err, TRM_INVALID, "training needs a TrainSpec with an input_fn");
    }
    if (train->max_steps < 0 || train->epochs < 0 || (train->max_steps == 0 && train->epochs == 0)) {
        return TRMI_FAIL(err, TRM_INVALID, "TrainSpec: max_steps %lld, epochs %lld: one of them greater than 0 "
                         "expected", (long long)train->max_steps, (long long)train->epochs);
    }
    if (eval != NULL && eval->input_fn == NULL) {
        return TRMI_FAIL(err, TRM_INVALID, "EvalSpec: an input_fn expected");
    }
    if (eval == NULL && e->has_roles && e->role == TRM_ROLE_EVALUATOR) {
        return TRMI_FAIL(err, TRM_INVALID, "an evaluator needs an EvalSpec");
    }
    return trmi_exporters_check(e, eval, err);
}

trm_status trm_train_and_evaluate(trm_estimator *e, const trm_train_spec *train, const trm_eval_spec *eval,
                                  trm_job_result *out, trm_error *err) {
    trm_job_result result = {.role = e->has_roles ? e->role : TRM_ROLE_WORKER};
    TRMI_TRY(check_specs(e, train, eval, err));
    if (e->has_roles && e->is_chief && trmi_estimator_stopped(e)) {
        return TRMI_FAIL(err, TRM_CANCELLED, "stopped on request before it began");
    }
    trm_status status = !e->has_roles                     ? trmi_run_local(e, train, eval, &result, err)
                        : e->role == TRM_ROLE_PS          ? trmi_run_server(e, err)
                        : e->role == TRM_ROLE_EVALUATOR   ? trmi_run_evaluator(e, train, eval, &result, err)
                                                          : trmi_run_trainer(e, train, eval, &result, err);
    atomic_store(&e->model, NULL);
    if ((status == TRM_OK || status == TRM_CANCELLED) && out != NULL) {
        *out = result;
    }
    return status;
}

/* ---- the plan ------------------------------------------------------------------------------------------ */

static const char *mode_text(const trm_estimator *e, char *text, size_t size) {
    if (e->strategy.mode == TRM_PS_BOUNDED) {
        snprintf(text, size, "staleness %d", e->strategy.staleness);
        return text;
    }
    return e->strategy.mode == TRM_PS_SYNC ? "synchronous" : "asynchronous";
}

static void plan_lines(const trm_estimator *e, trmi_text *text) {
    char mode[32], folder[4096];
    trmi_estimator_ps_folder(e, folder, sizeof folder);
    trmi_text_printf(text, "this process: %s", e->has_roles ? trm_role_name(e->role) : "local");
    if (e->trainer > 0 || (e->has_roles && e->role <= TRM_ROLE_CHIEF)) {
        trmi_text_printf(text, ", trainer %d of %d%s", e->trainer, e->trainers,
                         e->is_chief ? " (saves, writes summaries, ends the servers)" : "");
    }
    trmi_text_printf(text, "\n");
    if (e->has_roles) {
        trmi_text_printf(text, "servers: %d, updates %s%s; files in %s\n", e->servers,
                         mode_text(e, mode, sizeof mode), e->strategy.hybrid ? ", dense part by all-reduce" : "",
                         folder[0] != '\0' ? folder : "(none: nothing is saved)");
        trmi_text_printf(text, "evaluator: %s\n", e->has_evaluator ? "listed" : "none listed; the chief "
                         "evaluates at the end");
    }
    const trm_run_config *c = &e->config;
    trmi_text_printf(text, "model_dir: %s", c->model_dir != NULL ? c->model_dir : "(none)");
    if (c->model_dir != NULL && c->save_checkpoints_steps > 0) {
        trmi_text_printf(text, ", a checkpoint every %lld steps, %d kept",
                         (long long)c->save_checkpoints_steps, c->keep_checkpoint_max);
    } else if (c->model_dir != NULL) {
        trmi_text_printf(text, ", a checkpoint every %g s, %d kept", c->save_checkpoints_secs,
                         c->keep_checkpoint_max);
    }
    trmi_text_printf(text, "\n");
}

static void plan_json(const trm_estimator *e, trmi_text *text) {
    char mode[32], folder[4096];
    trmi_estimator_ps_folder(e, folder, sizeof folder);
    trmi_text_printf(text, "{\"event\": \"plan\", \"role\": \"%s\", \"trainer\": %d, \"trainers\": %d, "
                     "\"is_chief\": %s, \"servers\": %d, \"mode\": \"%s\", \"hybrid\": %s, \"evaluator\": %s",
                     e->has_roles ? trm_role_name(e->role) : "local", e->trainer, e->trainers,
                     e->is_chief ? "true" : "false", e->servers, mode_text(e, mode, sizeof mode),
                     e->strategy.hybrid ? "true" : "false", e->has_evaluator ? "true" : "false");
    trmi_text_printf(text, ", \"model_dir\": ");
    if (e->config.model_dir != NULL) {
        trmi_text_json_string(text, e->config.model_dir);
    } else {
        trmi_text_printf(text, "null");
    }
    trmi_text_printf(text, ", \"ps_folder\": ");
    trmi_text_json_string(text, folder);
    trmi_text_printf(text, ", \"save_checkpoints_steps\": %lld, \"save_checkpoints_secs\": %g, "
                     "\"keep_checkpoint_max\": %d, \"keep_checkpoint_every_n_hours\": %g, \"save_summary_steps\": %lld, \"log_step_count_steps\": "
                     "%lld}\n", (long long)e->config.save_checkpoints_steps, e->config.save_checkpoints_secs,
                     e->config.keep_checkpoint_max, e->config.keep_checkpoint_every_n_hours,
                     (long long)e->config.save_summary_steps,
                     (long long)e->config.log_step_count_steps);
}

trm_status trm_estimator_plan(const trm_estimator *e, bool json, char **out, trm_error *err) {
    trmi_text text = {0};
    if (json) {
        plan_json(e, &text);
    } else {
        plan_lines(e, &text);
    }
    if (text.failed || text.data == NULL) {
        trmi_text_free(&text);
        return TRMI_FAIL(err, TRM_NOMEM, "no memory for a plan");
    }
    *out = text.data;
    return TRM_OK;
}
