/* SPDX-License-Identifier: Apache-2.0 */
/* Jobs with parameter servers: starts all roles on this machine.
 *
 *      trireme train ... -n 2 --ps 1 --evaluator       starts itself as 2 workers, a server, an evaluator
 *        trireme train ... (TF_CONFIG)                 one role, to its end: role.c
 *      trireme train ... --job_name=ps --ps_hosts=...  the same, with guide 000's flags
 *      trireme train ... --job_name=evaluator          an evaluator of any job's checkpoints
 *
 * Everything that can be checked is checked before a process is started: flags, the strategy,
 * the output folder, the model. */
#include "app/jobs/ranks.h"
#include "app/jobs/role.h"

#include "trireme/base.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

extern char **environ;

/* ---- all roles ------------------------------------------------------------------------------- */

/* Refuses flags that jobs with servers do not read; the message gives the alternative. An evaluator
 * of a job without servers has the flags of that job: those of ranks and steps change nothing for
 * it.
 *   errors  INVALID */
static trm_status refuse_other_flags(const app_context *app, trm_error *err) {
    static const struct {
        const char *name, *instead;
    } names[] = {{"sink", "each step is reported (iterations_per_loop is 1)"},
                 {"early-stop",
                  "give --steps or --epochs; --export-best keeps the best evaluation's weights"},
                 {"metrics", "each process prints its own: --json, and --tensorboard"},
                 {"profile", "the timeline is that of a job without servers"},
                 {"histogram-epochs", "there are no histograms: parameters are on the servers"},
                 {"elastic", "a job survives the death of workers by itself: leave --elastic out; "
                             "--restarts starts dead workers again"},
                 {"global-batch", "each worker has a batch of its own: give --batch-size"},
                 {"loss-scale", "gradients are float32 where they are added"},
                 {"accumulate", "each batch is a step: use a larger --batch-size"}};
    const app_options *o = &app->o;
    const bool evaluates = o->job_name != NULL && strcmp(o->job_name, "evaluator") == 0 &&
                           o->ps_hosts == NULL && o->servers == 0;
    if (evaluates && app_given(&app->parsed, "early-stop")) {
        return app_fail(
            err, TRM_INVALID,
            "--early-stop: an evaluator ends after the checkpoint of step --steps, which "
            "a job that stops early may not have: leave it out");
    }
    for (size_t i = 0; i < sizeof names / sizeof names[0] && !evaluates; i++) {
        if (app_given(&app->parsed, names[i].name)) {
            return app_fail(err, TRM_INVALID, "--%s: with parameter servers %s", names[i].name,
                            names[i].instead);
        }
    }
    return TRM_OK;
}

/* Checks that no other job writes to the output folder, by taking its lock for a moment.
 * Otherwise the chief would wait for the end of that job. */
static trm_status check_output(const app_options *o, trm_error *err) {
    trm_checkpoint_writer *writer;
    struct stat info;
    if (o->output == NULL || o->dry_run || stat(o->output, &info) != 0) {
        return TRM_OK;
    }
    trm_status status = trm_checkpoint_writer_open(o->output, NULL, &writer, err);
    return status == TRM_OK ? trm_checkpoint_writer_close(writer, err) : status;
}

/* Checks flags, model and folders before roles are started. */
static trm_status check_launch(app_context *app, trm_error *err) {
    const app_options *o = &app->o;
    int64_t step;
    struct stat info;
    char path[4096];
    trm_ps_strategy ignored;
    if (o->evaluator && o->output == NULL) {
        return app_fail(err, TRM_INVALID,
                        "--evaluator needs --output: it evaluates the checkpoints there");
    }
    if (o->init != NULL && stat(o->init, &info) != 0) {
        return app_fail(
            err, TRM_INVALID,
            "--init %.200s: nothing is there; a checkpoint or a .safetensors file expected",
            o->init);
    }
    trm_status status = app_check_strategy(o, &ignored, err);
    status = status == TRM_OK ? app_check_job(app, err) : status;
    status = status == TRM_OK ? check_output(o, err) : status;
    if (status != TRM_OK || o->output == NULL || o->resume) {
        return status;
    }
    /* a new job must not mix its files with those of an earlier one */
    snprintf(path, sizeof path, "%s/ps", o->output);
    if (trm_checkpoint_latest(o->output, &step, NULL) == TRM_OK || stat(path, &info) == 0) {
        return app_fail(err, TRM_INVALID,
                        "%.100s has a job's files already: --resume continues it, another "
                        "--output starts afresh",
                        o->output);
    }
    return TRM_OK;
}

/* Prints the evaluations from the evaluator's log. */
static void show_evaluations(const app_context *app) {
    char path[4096], line[4096];
    const char *wanted = app->o.json ? "{\"event\":\"eval\"" : "evaluation loss";
    snprintf(path, sizeof path, "%s/evaluator0/train.log0", app_log_directory(app));
    FILE *log = fopen(path, "r");
    while (log != NULL && fgets(line, sizeof line, log) != NULL) {
        if (strstr(line, wanted) == line) {
            fputs(line, stdout);
        }
    }
    if (log != NULL) {
        fclose(log);
    }
}

/* Prints for each server how often its log has a warning, and the last one. */
static void show_warnings(const app_context *app) {
    static const char mark[] = "trireme: warning: ";
    char path[4096], line[4096], last[4096];
    for (int32_t s = 0; s < (int32_t)app->o.servers; s++) {
        int64_t count = 0;
        snprintf(path, sizeof path, "%s/ps%d/train.log%d", app_log_directory(app), s, s);
        FILE *log = fopen(path, "r");
        while (log != NULL && fgets(line, sizeof line, log) != NULL) {
            if (strncmp(line, mark, sizeof mark - 1) == 0) {
                count++;
                snprintf(last, sizeof last, "%s", line + sizeof mark - 1);
            }
        }
        if (log != NULL) {
            fclose(log);
        }
        if (count > 0) {
            last[strcspn(last, "\n")] = '\0';
            app_warn("ps %d has warned (times: %lld, all in %s), last: %s", s, (long long)count,
                     path, last);
        }
    }
}

/* Starts all roles on this machine and waits for them; *code is the job's exit code. Workers
 * share the cores; a server gets none of its own, which it would leave idle most of the time. */
static trm_status launch_roles(app_context *app, int *code, trm_error *err) {
    const app_options *o = &app->o;
    const char *const *command;
    trm_status status = app_self(app, &command, err);
    if (status != TRM_OK) {
        return status;
    }
    int32_t again = (int32_t)o->restarts, workers = (int32_t)(o->ranks > 0 ? o->ranks : 1);
    trm_machine machine;
    trm_machine_get(&machine);
    const trm_launch_role roles[] = {
        {.role = TRM_ROLE_WORKER, .count = workers, .restarts = again},
        {.role = TRM_ROLE_PS, .count = (int32_t)o->servers, .restarts = again},
        {.role = TRM_ROLE_EVALUATOR, .count = o->evaluator, .restarts = again}};
    const trm_launch_options options = {.command = command,
                                        .environment = (const char *const *)environ,
                                        .directory = app_log_directory(app),
                                        .roles = roles,
                                        .role_count = 3,
                                        /* cores are divided among the workers */
                                        .threads = o->threads > 0 ? (int32_t)o->threads
                                                   : getenv("OMP_NUM_THREADS") != NULL ? 0
                                                   : machine.cores > workers
                                                       ? machine.cores / workers
                                                       : 1,
                                        .bind = TRM_OFF,
                                        .timeout_seconds = o->timeout,
                                        .dry_run = o->dry_run,
                                        .write = app_write_through};
    trm_launch_result result;
    status = trm_launch(&options, &result, err);
    if (status == TRM_OK) {
        *code = result.exit_code;
        if (!options.dry_run) {
            show_warnings(app);
        }
        if (o->evaluator && !options.dry_run) {
            show_evaluations(app);
        }
    }
    return status;
}

/* Contract in app.h. A process with a TF_CONFIG or --job_name is one role; otherwise it is the
 * launcher. */
int app_run_job(app_context *app) {
    const app_options *o = &app->o;
    trm_error err;
    int code = 0;
    const char *text = getenv("TF_CONFIG");
    bool alone = (text == NULL || text[0] == '\0') && o->job_name == NULL;
    if (refuse_other_flags(app, &err) != TRM_OK) {
        return app_report(&err);
    }
    if (alone && o->evaluator && o->servers == 0) {
        (void)app_fail(&err, TRM_INVALID,
                       "--evaluator starts a process in a job with --ps; in any other job start it "
                       "beside the ranks: the same command with --job_name evaluator and the "
                       "job's --output");
        return app_report(&err);
    }
    if (!alone || o->servers == 0) {
        return app_run_role(app);
    }
    trm_status status = check_launch(app, &err);
    status = status == TRM_OK ? launch_roles(app, &code, &err) : status;
    return status == TRM_OK ? code : app_report(&err);
}
