/* SPDX-License-Identifier: Apache-2.0 */
/* Runs the evaluator, and a job of one process that trains and evaluates in turn.
 *
 *       evaluator    look every 0.2 s for a new checkpoint -> load -> evaluate -> summary, exporters
 *                    until the job is done and its last checkpoint is evaluated
 *       local        train; after a checkpoint, at most once in throttle_secs, evaluate
 *
 * The evaluator shares nothing with the trainers but model_dir; it may start, die and come back
 * at any time. */
#include "train/estimator/estimator.h"

#include "trireme/io.h"

#include "train/callbacks/callback.h"
#include "train/model.h"

#include "base/error.h"
#include "base/log.h"
#include "base/os.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

static const double say_seconds = 600; /* seconds between repeated warnings, as in TensorFlow */

/* ---- one evaluation -------------------------------------------------------------------------- */

/* State of an evaluation: model, data and event file, which are created when first needed. */
typedef struct evaluator {
    trm_estimator *e; /* borrowed, like spec */
    const trm_eval_spec *spec;
    trm_dataset *data; /* owned, like model and events; NULL until needed */
    trm_model *model;
    trm_events *events;
} evaluator;

/* Destroys the model and the data, and closes the event file, as far as they exist. */
static void destroy_evaluator(evaluator *j) {
    atomic_store(&j->e->model, NULL);
    (void)!trm_events_close(j->events, NULL);
    trm_model_destroy(j->model);
    trm_dataset_destroy(j->data);
}

/* Creates data and model for evaluation, once. */
static trm_status create_evaluation_model(evaluator *j, trm_error *err) {
    trm_model_options options;
    if (j->model != NULL) {
        return TRM_OK;
    }
    TRMI_TRY(trmi_estimator_data(j->e, TRM_MODE_EVAL, j->spec->input_fn, j->spec->params, &j->data,
                                 err));
    TRMI_TRY(trmi_estimator_model(j->e, TRM_MODE_EVAL, j->data, &options, err));
    TRMI_TRY(trm_model_create(&options, &j->model, err));
    atomic_store(&j->e->model, j->model);
    return TRM_OK;
}

/* Writes the figures of an evaluation to the event file model_dir/eval[_NAME]. Errors are only
 * logged. */
static void write_figures(evaluator *j, uint64_t step, const trm_evaluation *v) {
    char dir[4096];
    trm_error err;
    trm_status status = TRM_OK;
    if (j->events == NULL) {
        snprintf(dir, sizeof dir, "%s/eval%s%s", j->e->config.model_dir,
                 j->spec->name != NULL ? "_" : "", j->spec->name != NULL ? j->spec->name : "");
        status = trm_events_open(dir, NULL, &j->events, &err);
    }
    /* only what this kind of model has */
    trm_named_scalar values[7] = {{"loss", v->loss}};
    int64_t count = 1;
    if (v->has_top) {
        values[count++] = (trm_named_scalar){"accuracy", v->top1};
        values[count++] = (trm_named_scalar){"top5", v->top5};
    }
    if (v->has_auc) {
        values[count++] = (trm_named_scalar){"auc", v->auc};
        values[count++] = (trm_named_scalar){"logloss", v->logloss};
        values[count++] = (trm_named_scalar){"calibration", v->calibration};
    }
    if (v->has_tokens) {
        values[count++] = (trm_named_scalar){"perplexity", v->perplexity};
    }
    if (v->has_accuracy) {
        values[count++] = (trm_named_scalar){"accuracy", v->accuracy};
    }
    if (status == TRM_OK) {
        status = trm_events_scalars(j->events, (int64_t)step, values, count, &err);
    }
    if (status == TRM_OK) {
        status = trm_events_flush(j->events, &err);
    }
    if (status != TRM_OK) {
        trmi_log(TRM_LOG_WARN, "train", "%s; the evaluation goes on", err.message);
    }
}

/* Stores the figures of an evaluation in *out, prints them, writes them to the event file if there
 * is a model_dir, and calls the configuration's on_evaluated. */
static void record_evaluation(evaluator *j, uint64_t step, const trm_evaluation *v,
                              trm_job_result *out) {
    const trm_run_config *config = &j->e->config;
    out->has_evaluation = true;
    out->evaluation = *v;
    out->evaluated_step = step;
    trmi_estimator_say(j->e, "Saving dict for global step %llu: global_step = %llu, loss = %.6g",
                       (unsigned long long)step, (unsigned long long)step, v->loss);
    if (config->model_dir != NULL) {
        write_figures(j, step, v);
    }
    if (config->on_evaluated != NULL) {
        config->on_evaluated(config->context, step, v);
    }
}

/* Evaluates a model on at most spec->steps batches (0: 100, negative: all). */
static trm_status evaluate_model(const trm_eval_spec *spec, trm_model *model, trm_dataset *data,
                                 trm_evaluation *out, trm_error *err) {
    int64_t steps = spec->steps == 0 ? 100 : spec->steps;
    return trm_model_evaluate_steps(model, data, steps > 0 ? steps : INT64_MAX, out, err);
}

/* Returns the inode of a checkpoint's directory; 0: it is gone. */
static uint64_t find_inode(const trm_checkpoint *checkpoint) {
    struct stat info;
    return stat(trm_checkpoint_get_info(checkpoint)->path, &info) == 0 ? (uint64_t)info.st_ino : 0;
}

/* Loads the newest checkpoint into the model, and keeps it open, marked in use so that its writer
 * does not remove it meanwhile. A writer that has looked for marks just before may still remove or
 * replace it: then the newest is looked for again, ten times at most.
 *   errors  TRM_END: there is no checkpoint */
static trm_status load_newest(evaluator *j, trm_checkpoint **out, trm_error *err) {
    const trm_checkpoint_open_options mark = {.mark_in_use = true};
    for (int rounds = 10;; rounds--) {
        TRMI_TRY(trm_checkpoint_open(j->e->config.model_dir, &mark, out, err));
        const uint64_t inode = find_inode(*out);
        trm_status status = create_evaluation_model(j, err);
        if (status == TRM_OK) {
            status =
                trm_model_load(j->model, trm_checkpoint_get_info(*out)->path, false, NULL, err);
        }
        if (status == TRM_OK) {
            return TRM_OK;
        }
        /* a checkpoint that is still there has failed for another reason */
        const bool stays = inode != 0 && find_inode(*out) == inode;
        trm_checkpoint_close(*out);
        if (stays || rounds == 1) {
            return status;
        }
    }
}

/* Loads and evaluates the newest checkpoint. Stores the figures in *out, prints them, and runs the
 * exporters.
 *   errors  TRM_END: there is no checkpoint */
static trm_status evaluate_newest(evaluator *j, trm_job_result *out, trm_error *err) {
    trm_checkpoint *found;
    TRMI_TRY(load_newest(j, &found, err));
    uint64_t step = (uint64_t)trm_checkpoint_get_info(found)->global_step;
    trm_evaluation v;
    trm_status status = evaluate_model(j->spec, j->model, j->data, &v, err);
    trm_checkpoint_close(found);
    TRMI_TRY(status);
    out->global_step = out->global_step > step ? out->global_step : step;
    record_evaluation(j, step, &v, out);
    return trmi_export(j->e, j->spec, false, j->model, step, &v, err);
}

/* Runs the exporters of the last evaluation, whose weights are still in the model. */
static trm_status export_last(evaluator *j, const trm_job_result *out, trm_error *err) {
    return out->has_evaluation && j->model != NULL
               ? trmi_export(j->e, j->spec, true, j->model, out->evaluated_step, &out->evaluation,
                             err)
               : TRM_OK;
}

trm_status trmi_evaluate_latest(trm_estimator *e, const trm_eval_spec *eval, trm_job_result *out,
                                trm_error *err) {
    evaluator j = {.e = e, .spec = eval};
    trm_status status = evaluate_newest(&j, out, err);
    status = status == TRM_OK ? export_last(&j, out, err) : status;
    destroy_evaluator(&j);
    return status;
}

/* ---- the evaluator's loop -------------------------------------------------------------------- */

/* Returns whether the evaluator has finished: the last step is evaluated, or the job is over and
 * its newest checkpoint is evaluated. */
static bool is_over(const trm_estimator *e, const trm_train_spec *train,
                    const trm_job_result *out) {
    uint64_t last = 0;
    int64_t newest = 0;
    trmi_job_state state = trmi_job_read(e, &last);
    bool seen = trm_checkpoint_latest(e->config.model_dir, &newest, NULL) != TRM_OK ||
                (out->has_evaluation && out->evaluated_step == (uint64_t)newest);
    bool enough = train->max_steps > 0 && out->has_evaluation &&
                  out->evaluated_step >= (uint64_t)train->max_steps;
    return enough || (seen && (state == TRMI_JOB_DONE || state == TRMI_JOB_FAILED));
}

/* Evaluates the newest checkpoint if it has not been evaluated.
 *   errors  TRM_END: nothing new; logged every `say_seconds` */
static trm_status evaluate_if_new(evaluator *j, trm_job_result *out, double *said, trm_error *err) {
    int64_t step;
    trm_status status = trm_checkpoint_latest(j->e->config.model_dir, &step, err);
    bool same = status == TRM_OK && out->has_evaluation && out->evaluated_step == (uint64_t)step;
    if (status == TRM_END || same) {
        if (trmi_os_now() - *said > say_seconds) {
            *said = trmi_os_now();
            trmi_estimator_say(j->e,
                               same ? "no new checkpoint since the last evaluation"
                                    : "no checkpoint yet in %s",
                               j->e->config.model_dir);
        }
        return TRM_END;
    }
    TRMI_TRY(status);
    return evaluate_newest(j, out, err);
}

/* Compares the model_dir of the servers with this evaluator's, with a request at most every two
 * seconds until the servers have answered once.   errors  INVALID: it is another one */
static trm_status compare_folder(trm_estimator *e, bool *met, double *asked, trm_error *err) {
    double now = trmi_os_now();
    if (*met || now - *asked < 2) {
        return TRM_OK;
    }
    *asked = now;
    return trmi_estimator_meet_servers(e, met, err);
}

/* Waits start_delay_secs, then evaluates each new checkpoint, at most one in throttle_secs,
 * until the job is over. A job that is done ends both waits. */
trm_status trmi_run_evaluator(trm_estimator *e, const trm_train_spec *train,
                              const trm_eval_spec *eval, trm_job_result *out, trm_error *err) {
    evaluator j = {.e = e, .spec = eval};
    double said = -1e9, asked = -1e9;
    bool met = false;
    double delay = eval->start_delay_secs == 0 ? 120 : eval->start_delay_secs;
    double throttle = eval->throttle_secs == 0 ? 600 : eval->throttle_secs;
    uint64_t step;
    trm_status status = TRM_OK;
    /* Wait for the first time. */
    for (double end = trmi_os_now() + delay;
         status == TRM_OK && trmi_os_now() < end && !trmi_estimator_stopped(e);) {
        if (trmi_job_read(e, &step) == TRMI_JOB_DONE) {
            break; /* the last checkpoint exists: no reason to wait */
        }
        status = compare_folder(e, &met, &asked, err);
        trmi_estimator_sleep(e, 0.2);
    }
    /* Evaluate a checkpoint at a time, until the last step. */
    while (status == TRM_OK && !trmi_estimator_stopped(e)) {
        double begin = trmi_os_now();
        trm_status found = evaluate_if_new(&j, out, &said, err);
        status = found == TRM_END ? TRM_OK : found;
        if (status != TRM_OK || is_over(e, train, out)) {
            break;
        }
        /* Wait for the throttle, unless the job is done. */
        double until = begin + (found == TRM_OK ? throttle : 0);
        do {
            trmi_estimator_sleep(e, 0.2);
            status = found == TRM_END ? compare_folder(e, &met, &asked, err) : TRM_OK;
        } while (status == TRM_OK && trmi_os_now() < until && !trmi_estimator_stopped(e) &&
                 trmi_job_read(e, &step) != TRMI_JOB_DONE);
    }
    /* Run the exporters that run at the end. */
    if (status == TRM_OK && !trmi_estimator_stopped(e)) {
        status = export_last(&j, out, err);
    }
    destroy_evaluator(&j);
    if (status == TRM_OK && trmi_estimator_stopped(e)) {
        return TRMI_FAIL(err, TRM_CANCELLED, "stopped on request");
    }
    return status;
}

/* ---- one process ----------------------------------------------------------------------------- */

/* State of a job of one process. */
typedef struct local {
    trm_estimator *e;
    const trm_eval_spec *eval;
    trm_dataset *test;
    double evaluated_at;
    uint64_t evaluated_step;
    evaluator writer; /* event file, and the model for exporters */
    trm_job_result *out;
} local;

/* Runs the exporters after an evaluation. They need a model made for evaluation, which is loaded
 * from the checkpoint that has just been written. create_evaluation_model makes its model the one
 * that a stop request reaches; the training model is put back. */
static trm_status local_export(local *l, bool last, uint64_t step, const trm_evaluation *v,
                               trm_error *err) {
    evaluator *j = &l->writer;
    if (trmi_exporter_count(l->eval) == 0) {
        return TRM_OK;
    }
    trm_model *trains = atomic_load(&l->e->model);
    trm_status status = create_evaluation_model(j, err);
    atomic_store(&l->e->model, trains);
    TRMI_TRY(status);
    TRMI_TRY(trm_model_load(j->model, l->e->config.model_dir, false, NULL, err));
    return trmi_export(l->e, l->eval, last, j->model, step, v, err);
}

/* Evaluates the model that trains, prints and records the figures, and runs the exporters. */
static trm_status local_evaluate(local *l, trm_model *model, uint64_t step, trm_error *err) {
    trm_evaluation v;
    TRMI_TRY(evaluate_model(l->eval, model, l->test, &v, err));
    l->evaluated_at = trmi_os_now();
    l->evaluated_step = step;
    record_evaluation(&l->writer, step, &v, l->out);
    return local_export(l, false, step, &v, err);
}

/* Evaluates after a checkpoint (hook on_checkpoint), at most once in throttle_secs. */
static trm_status local_saved(void *context, const trm_progress *p, trm_error *err) {
    local *l = context;
    double throttle = l->eval->throttle_secs == 0 ? 600 : l->eval->throttle_secs;
    bool same = l->out->has_evaluation && l->evaluated_step == p->global_step;
    if (same || trmi_os_now() - l->evaluated_at < throttle) {
        return TRM_OK;
    }
    return local_evaluate(l, p->model, p->global_step, err);
}

/* Trains with the spec's callbacks and those of the configuration: log, evaluation, TensorBoard,
 * checkpoints. */
static trm_status local_train(trm_estimator *e, const trm_train_spec *spec, trm_model *model,
                              trm_dataset *data, local *l, trm_error *err) {
    trm_train_options options = {.data = data,
                                 .until_step = spec->max_steps,
                                 .until_epoch = spec->epochs,
                                 .sink = e->config.iterations_per_loop > 1};
    /* callbacks run in this order: the user's, log, evaluation, TensorBoard, checkpoints */
    int32_t count = 0, room = (int32_t)(sizeof spec->callbacks / sizeof spec->callbacks[0]);
    for (int32_t i = 0; i < room; i++) {
        if (spec->callbacks[i].on_step_end || spec->callbacks[i].on_epoch_end ||
            spec->callbacks[i].on_end || spec->callbacks[i].on_checkpoint ||
            spec->callbacks[i].on_begin) {
            options.callbacks[count++] = spec->callbacks[i];
        }
    }
    if (e->config.log_step_count_steps > 0) {
        options.callbacks[count++] = trmi_step_log(e);
    }
    if (l->test != NULL) {
        options.callbacks[count++] = (trm_callback){.on_checkpoint = local_saved, .context = l};
    }
    if (e->config.model_dir != NULL) {
        if (e->config.save_summary_steps > 0) {
            options.callbacks[count++] = trm_tensorboard(
                &(trm_tensorboard_options){.directory = e->config.model_dir,
                                           .every_steps = e->config.save_summary_steps,
                                           .graph = true});
        }
        trm_model_checkpoint_options checkpoints = e->config.checkpoints;
        checkpoints.directory = e->config.model_dir;
        options.callbacks[count++] = trm_model_checkpoint(&checkpoints);
    }
    return trm_model_train(model, &options, err);
}

/* Resumes from the newest checkpoint in model_dir, if there is one. */
static trm_status local_restore(const trm_estimator *e, trm_model *model, trm_error *err) {
    if (e->config.model_dir == NULL) {
        return TRM_OK;
    }
    trm_status status = trm_model_resume(model, e->config.model_dir, err);
    return status == TRM_END ? TRM_OK : status;
}

/* Trains and evaluates in this process alone, and writes job.json at the end. */
trm_status trmi_run_local(trm_estimator *e, const trm_train_spec *spec, const trm_eval_spec *eval,
                          trm_job_result *out, trm_error *err) {
    trm_dataset *data = NULL;
    trm_model *model = NULL;
    trm_model_options options;
    local l = {
        .e = e, .eval = eval, .out = out, .evaluated_at = -1e9, .writer = {.e = e, .spec = eval}};
    trm_status status =
        trmi_estimator_data(e, TRM_MODE_TRAIN, spec->input_fn, spec->params, &data, err);
    if (status == TRM_OK && eval != NULL) {
        status = trmi_estimator_data(e, TRM_MODE_EVAL, eval->input_fn, eval->params, &l.test, err);
    }
    status =
        status == TRM_OK ? trmi_estimator_model(e, TRM_MODE_TRAIN, data, &options, err) : status;
    if (status == TRM_OK) {
        status = trm_model_create(&options, &model, err);
    }
    status = status == TRM_OK ? local_restore(e, model, err) : status;
    if (status == TRM_OK) {
        /* a stop request from now on reaches the model; one from before is handed on */
        atomic_store(&e->model, model);
        if (trmi_estimator_stopped(e)) {
            trm_model_request_stop(model);
        }
        status = local_train(e, spec, model, data, &l, err);
        out->global_step = trm_model_global_step(model);
    }
    if (status == TRM_OK && eval != NULL &&
        (!out->has_evaluation || out->evaluated_step != out->global_step)) {
        status = local_evaluate(&l, model, out->global_step,
                                err); /* the last step is always evaluated */
    }
    if (status == TRM_OK && eval != NULL) {
        status = local_export(&l, true, out->global_step, &out->evaluation, err);
    }
    if (status == TRM_OK) {
        status = trmi_job_write(e, TRMI_JOB_DONE, out->global_step, err);
    }
    destroy_evaluator(&l.writer);
    trm_model_destroy(model);
    trm_dataset_destroy(data);
    trm_dataset_destroy(l.test);
    return status;
}
