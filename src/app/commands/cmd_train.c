/* SPDX-License-Identifier: Apache-2.0 */
/* train: the path of one rank from the options to the last line of output.
 *
 *      prepare_job:   context -> join the ranks -> open the data -> make the model -> restore a checkpoint
 *      train_model:   trm_model_train with the callbacks that the flags request
 *      report_end:    the last line and the exit code
 *
 * With -n the process starts itself N times (ranks.c) and waits; each of the started processes
 * takes this path. Jobs with parameter servers branch off to role.c and roles.c. The order in
 * prepare_job is fixed: wrong flags are reported before ranks meet, the data before the model is
 * compiled. */
#include "app/models/models.h"
#include "app/output/record.h"

#include "trireme/train.h"
#include "trireme/base.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

/* The state of one run; destroyed by app_run_train. */
typedef struct job {
    app_context *app;
    const char *name;
    trm_dataset *train, *test;
    app_network network;
    trm_model *model;
    bool resumed;
    double ready_seconds; /* trm_now_seconds when training began */
    app_report_state report;
} job;

/* ---- output (of steps: report.c) ------------------------------------------------------------- */

/* Prints the model, the data and the step from which training starts: a line and the JSON event
 * "start". */
static void tell_start(const job *j) {
    const app_options *o = &j->app->o;
    trm_exec_info info;
    trm_exec_get_info(trm_model_exec(j->model), &info);
    int64_t samples = trm_dataset_sample_count(j->train);
    app_begin(APP_PROGRESS, "event", "start");
    app_put(app_text("version", trm_version(), NULL), app_text("model", j->name, "%s: "),
            app_int("parameters", info.parameter_count, NULL),
            app_real(NULL, (double)info.parameter_count / 1e6, "%.2f million parameters"),
            app_int("predicted_bytes", info.total_bytes, ", %b"),
            app_int("samples", samples, "; data: %d samples"),
            app_int("batch_size", o->batch_size, ", batch %d"));
    j->network.model->kind->put_sizes(j->app, &j->network);
    app_put(
        app_int("epochs", o->epochs, NULL),
        app_int("epoch_steps", trm_model_epoch_steps(j->model, j->train), ", %d steps an epoch"),
        app_text("data", o->data,
                 app_generates(o) ? "\nthe data are generated (--data %.60s), not read" : NULL),
        app_bool("generated", app_generates(o), NULL), app_text("precision", o->precision, NULL),
        app_int("seed", o->seed, NULL), app_bool("resumed", j->resumed, "\nresumed"),
        app_int("global_step", (int64_t)j->report.first_step,
                j->resumed ? " after step %d" : NULL));
    if (j->app->ranks != NULL) {
        app_put(app_int("rank", app_rank(j->app), NULL),
                app_int("ranks", app_rank_count(j->app), NULL));
    }
    app_put(app_real("compile_seconds", info.create_seconds, NULL));
    app_end();
}

/* Prints the JSON event of the plan that auto_parallel has chosen; the library has already
 * logged it for people. */
static void tell_plan(const job *j) {
    trm_searched_plan plan;
    trm_exec_get_searched_plan(trm_model_exec(j->model), &plan);
    if (!plan.searched) {
        return;
    }
    app_tell(APP_PROGRESS, "event", "plan", app_text("plan", plan.text, NULL),
             app_real("predicted_step_seconds", plan.step_seconds, NULL),
             app_real("data_parallel_step_seconds", plan.data_parallel_step_seconds, NULL),
             app_real("measured_step_seconds", plan.measured_step_seconds, NULL),
             app_real("search_seconds", plan.search_seconds, NULL));
}

/* Prints the last line and the JSON event "done": steps, rate, memory, waiting. Collective with
 * many ranks. */
static void tell_done(const job *j, bool stopped) {
    const trm_progress *p = &j->report.last;
    double units = (double)p->samples * app_units_a_sample(j->app);
    double speed = p->busy_seconds > 0 ? units / p->busy_seconds : 0;
    double seconds = trm_now_seconds() - j->ready_seconds;
    trm_waiting waiting;
    app_waiting(j->app, trm_model_exec(j->model), &waiting);
    app_begin(APP_RESULT, "event", "done");
    app_put(app_int("global_step", (int64_t)trm_model_global_step(j->model), "done: step %d"),
            app_real("seconds", seconds, ", %t"), app_real(app_rate_key(j->app), speed, ", %.0f "),
            app_text(NULL, app_unit(j->app), "%s/s"),
            app_int("peak_bytes", trm_peak_bytes(), ", peak memory %b"));
    app_put_parallel(j->app, trm_model_exec(j->model), &waiting);
    if (stopped) {
        app_put(app_bool("stopped", true, NULL));
    }
    app_end();
}

/* ---- preparing ------------------------------------------------------------------------------- */

/* Returns an error if `wrong`: a flag without the flag that it needs.
 *   errors  INVALID */
static trm_status require_flag(bool wrong, const char *flag, const char *other, trm_error *err) {
    return wrong ? app_fail(err, TRM_INVALID, "--%s needs --%s", flag, other) : TRM_OK;
}

/* Checks flags against each other and fills in the values that follow from others.
 *   errors  INVALID */
static trm_status check_flags(app_context *app, trm_error *err) {
    app_options *o = &app->o;
    const app_parsed *p = &app->parsed;
    static const char *const with_output[] = {
        "resume", "tensorboard",     "save-every-steps", "save-every-seconds",
        "keep",   "keep-every-hours"};
    /* flags about checkpoints need a folder for them */
    for (size_t i = 0; i < sizeof with_output / sizeof with_output[0]; i++) {
        trm_status status = require_flag(app_given(p, with_output[i]) && o->output == NULL,
                                         with_output[i], "output", err);
        if (status != TRM_OK) {
            return status;
        }
    }
    /* early stop needs evaluations, by default one per epoch */
    if (o->early_stop > 0 && o->eval_every_epochs == 0) {
        return app_fail(err, TRM_INVALID,
                        "--early-stop needs evaluations; --eval-every-epochs is 0");
    }
    if (o->early_stop > 0 && o->eval_every_epochs < 0) {
        o->eval_every_epochs = 1;
    }
    if (o->label_smoothing > 0 && strcmp(o->loss, "expand") == 0) {
        return app_fail(err, TRM_INVALID, "--label-smoothing is for --loss fused");
    }
    if (o->epochs == 0 && o->steps == 0) {
        o->epochs = 1;
    }
    if (o->metrics != NULL && !app_ends_in(o->metrics, ".csv") &&
        !app_ends_in(o->metrics, ".jsonl")) {
        return app_fail(err, TRM_INVALID,
                        "--metrics %.150s: a name that ends in .csv or .jsonl is expected",
                        o->metrics);
    }
    return require_flag(o->histogram_epochs > 0 && !o->tensorboard, "histogram-epochs",
                        "tensorboard", err);
}

/* Opens the test set. If it is missing and no flag requests evaluations, warns and continues
 * without them. */
static trm_status open_test_data(job *j, trm_error *err) {
    app_options *o = &j->app->o;
    trm_status status = app_dataset(j->app, TRM_USAGE_TEST, false, &j->test, err);
    bool asked = app_given(&j->app->parsed, "eval-every-epochs") || o->early_stop > 0;
    if (status == TRM_OK || asked || (status != TRM_INVALID && status != TRM_IO)) {
        return status;
    }
    app_warn("the model is not evaluated: %s", err->message);
    o->eval_every_epochs = 0;
    return TRM_OK;
}

/* Opens the training set and, unless evaluations are off, the test set. */
static trm_status open_data(job *j, trm_error *err) {
    app_options *o = &j->app->o;
    trm_usage usage = app_usage(o, TRM_USAGE_TRAIN);
    trm_status status = app_dataset(j->app, usage, true, &j->train, err);
    if (status != TRM_OK || o->eval_every_epochs == 0) {
        return status;
    }
    if (usage != TRM_USAGE_TRAIN || o->fixed_recipe || app_has_one_folder(o, j->train)) {
        app_warn("the test set is trained on: the evaluation says nothing about new data");
    }
    return open_test_data(j, err);
}

/* Loads the weights of --init where name and shape match. At least one tensor must match; a warning
 * counts those that do not. Of a Hugging Face folder all must match. Adapters are not counted: they
 * begin with their own values. */
static trm_status load_initial(job *j, trm_error *err) {
    int32_t skipped = 0, total = 0;
    trm_exec *exec = trm_model_exec(j->model);
    trm_status status = trm_model_load(j->model, j->app->o.init,
                                       !app_is_huggingface(j->app->o.init), &skipped, err);
    if (status != TRM_OK) {
        return status;
    }
    for (int32_t i = 0; i < trm_exec_variable_count(exec); i++) {
        trm_variable v = trm_exec_variable(exec, i);
        total += v.kind != TRM_VARIABLE_SLOT && strstr(v.name, ".lora_") == NULL;
    }
    if (skipped == total) {
        return app_fail(err, TRM_INVALID, "--init %.100s has no tensor of %s", j->app->o.init,
                        j->name);
    }
    if (skipped > 0) {
        app_warn(
            "%s: %d of %d tensors are missing or of another shape and keep their initial values",
            j->app->o.init, skipped, total);
    }
    return TRM_OK;
}

/* Resumes from --output, or loads --init. Without --resume a folder that already has a
 * checkpoint is refused, so that a run cannot overwrite another. */
static trm_status restore_model(job *j, trm_error *err) {
    const app_options *o = &j->app->o;
    if (app_is_newcomer(j->app)) {
        return TRM_OK; /* the other ranks hand their state over */
    }
    if (o->resume) {
        trm_status status = trm_model_resume(j->model, o->output, err);
        if (status != TRM_END) {
            j->resumed = status == TRM_OK;
            return status;
        }
        app_print_progress("%s has no checkpoint yet: starting afresh\n", o->output);
    } else if (o->output != NULL) {
        int64_t step;
        if (trm_checkpoint_latest(o->output, &step, NULL) == TRM_OK) {
            return app_fail(err, TRM_INVALID,
                            "%.100s has a checkpoint of step %lld already: --resume "
                            "continues it, another --output starts afresh",
                            o->output, (long long)step);
        }
    }
    return o->init != NULL ? load_initial(j, err) : TRM_OK;
}

/* Sets the file of chosen algorithms: in --output, one per rank. A resumed run then uses the
 * same algorithms and gets the same bits. */
static void keep_choices(app_context *app) {
    static char path[4096];
    app_options *o = &app->o;
    if (o->output != NULL && !o->dry_run && !app_is_newcomer(app)) {
        if (app_rank(app) == 0) {
            snprintf(path, sizeof path, "%s/choices.txt", o->output);
        } else {
            snprintf(path, sizeof path, "%s/choices-%lld.txt", o->output, (long long)app_rank(app));
        }
        o->choices_file = path;
    }
}

/* Builds everything that training needs, in the order of the file's opening comment. */
static trm_status prepare_job(job *j, trm_error *err) {
    bool is_folder;
    trm_status status = app_recall_folder(j->app, j->app->o.init, &is_folder, err);
    if (status != TRM_OK) {
        return status;
    }
    /* the options, then ranks, stages and data */
    app_recall_normalization(j->app);
    app_settle_data(j->app);
    if ((status = app_set_context(j->app, err)) != TRM_OK) {
        return status;
    }
    if ((status = check_flags(j->app, err)) != TRM_OK ||
        (status = app_join(j->app, err)) != TRM_OK ||
        (status = app_settle_batch(j->app, err)) != TRM_OK ||
        (status = app_search_stages(j->app, err)) != TRM_OK ||
        (status = open_data(j, err)) != TRM_OK) {
        return status;
    }
    if ((status = app_language_keep_tokenizer(
             j->app, app_rank(j->app) == 0 ? j->app->o.output : NULL, j->train, err)) != TRM_OK) {
        return status;
    }
    /* the choices of algorithms and the record, then the model and its state */
    keep_choices(j->app);
    if (!app_is_newcomer(j->app) &&
        (status = app_begin_rank_record(j->app, app_rank(j->app), err)) != TRM_OK) {
        return status;
    }
    app_warn_idle_flags(j->app, APP_STAGE_RANKS);
    if ((status = app_make_model(j->app, j->train, false, &j->network, &j->model, err)) != TRM_OK ||
        (status = restore_model(j, err)) != TRM_OK) {
        return status;
    }
    j->report.first_step = j->report.mark.step = trm_model_global_step(j->model);
    j->report.last.model = j->model;
    return TRM_OK;
}

/* ---- running --------------------------------------------------------------------------------- */

/* Appends the callbacks of --metrics and --tensorboard to the list. */
static void add_records(const app_options *o, trm_callback *list, int *count) {
    if (o->metrics != NULL) {
        list[(*count)++] = trm_metrics_recorder(o->metrics, o->log_every);
    }
    if (o->tensorboard) {
        list[(*count)++] =
            trm_tensorboard(&(trm_tensorboard_options){.directory = o->output,
                                                       .every_steps = o->log_every,
                                                       .histogram_epochs = o->histogram_epochs,
                                                       .graph = true});
    }
}

/* Trains with the callbacks that the flags request, then evaluates if no evaluation ran during
 * training. Callbacks run in the order of the list: the report first, the checkpoint last. */
static trm_status train_model(job *j, trm_error *err) {
    const app_options *o = &j->app->o;
    trm_train_options options = {.data = j->train,
                                 .until_epoch = o->epochs,
                                 .until_step = o->steps,
                                 .sink = o->sink,
                                 .profile = o->profile};
    /* List the callbacks in the order in which they run. */
    trm_callback *list = options.callbacks;
    int count = 0;
    list[count++] = app_reporter(&j->report);
    add_records(o, list, &count);
    if (o->early_stop > 0) {
        list[count++] = trm_early_stop(&(trm_early_stop_options){.patience = o->early_stop});
    }
    if (o->eval_every_epochs > 0) {
        list[count++] = trm_evaluate_every(j->test, o->eval_every_epochs);
    }
    if (o->output != NULL) {
        list[count++] = trm_model_checkpoint(
            &(trm_model_checkpoint_options){.directory = o->output,
                                            .writer.keep = (int32_t)o->keep,
                                            .writer.keep_every_hours = o->keep_every_hours,
                                            .every_steps = o->save_every_steps,
                                            .every_seconds = o->save_every_seconds});
    }
    /* from here on signals stop after a step */
    app_signals_begin(j->model);
    trm_status status = trm_model_train(j->model, &options, err);
    /* No evaluation ran during training. */
    if (status == TRM_OK && o->eval_every_epochs < 0 && !j->report.is_spare) {
        trm_evaluation evaluation;
        status = trm_model_evaluate(j->model, j->test, &evaluation, err);
        if (status == TRM_OK) {
            app_print_evaluation(j->app, j->report.last.epoch,
                                 (int64_t)trm_model_global_step(j->model), &evaluation);
        }
    }
    app_signals_end();
    return status;
}

/* Prints the end of the run and returns its exit code. A signal to one rank stops all ranks after
 * the same step; a rank that received none ends as if by SIGTERM. A rank that has left an elastic
 * job has ended well. */
static int report_end(const job *j, trm_status status, const trm_error *err) {
    if (status == TRM_END) {
        app_tell(APP_PROGRESS, "event", "left",
                 app_int("global_step", (int64_t)trm_model_global_step(j->model),
                         "left the job after step %d"));
        return 0;
    }
    if (status == TRM_CANCELLED) {
        int code = app_signal_exit_code();
        app_print_progress("stopped after step %llu%s%s\n",
                           (unsigned long long)trm_model_global_step(j->model),
                           code == 0 ? " because another rank received a signal" : "",
                           j->app->o.output != NULL ? "; --resume continues" : "");
        tell_done(j, true);
        return code != 0 ? code : 128 + SIGTERM;
    }
    if (status != TRM_OK) {
        return app_report(err);
    }
    tell_done(j, false);
    return 0;
}

/* Runs `train`: a role of a job with servers, the launcher of many ranks, or one rank. */
int app_run_train(app_context *app) {
    trm_error err;
    job j = {.app = app, .name = app->parsed.arguments[0], .report = {.app = app}};
    int code = 0;
    bool launched;
    app->o.dry_run |= app->o.check; /* --check is a dry run, too */
    if (app_is_job(app)) {
        return app_run_job(app);
    }
    if (app_refuse_job_flags(app, &err) != TRM_OK) {
        return app_report(&err);
    }
    trm_status status = app_launch_self(app, app_check_job, &launched, &code, &err);
    /* this process was the launcher: the ranks have done the work */
    if (launched && status == TRM_OK) {
        return code;
    }
    status = status == TRM_OK ? prepare_job(&j, &err) : status;
    if (status != TRM_OK) {
        code = app_report(&err);
    } else {
        tell_start(&j);
        tell_plan(&j);
        j.ready_seconds = trm_now_seconds();
        if (app->o.dry_run) {
            app_print("dry run: nothing was trained\n");
            code = 0;
        } else {
            status = train_model(&j, &err);
            code = report_end(&j, status, &err);
        }
    }
    trm_model_destroy(j.model);
    trm_dataset_destroy(j.train);
    trm_dataset_destroy(j.test);
    app_record_close();
    app_leave(app);
    return code;
}
