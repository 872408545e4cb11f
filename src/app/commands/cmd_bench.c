/* SPDX-License-Identifier: Apache-2.0 */
/* bench train: training steps on random batches that cost nothing to make, by one process or by
 * the ranks and roles of a job.
 *
 *     app_run_bench_train --> trains with the callback note_step --> tell_train prints on rank 0
 *
 * The first WARM_STEPS are not timed; times, waiting and throughput are of the steps after them. A
 * step's seconds are those that the training loop reports (trm_progress.step_seconds). Scripts of
 * bench/ read the JSON event "bench". */
#include "app/models/models.h"
#include "app/commands/bench.h"

#include "trireme/base.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Steps that are not timed, because kernels are chosen and pages touched in them; last losses,
 * whose mean is printed; steps of a window of the throughput. */
enum { WARM_STEPS = 2, LOSSES = 40, WINDOW = 10 };

/* Times and losses of the run, filled in by note_step. */
typedef struct stopwatch {
    double *seconds; /* [count]: of each step after the warm ones */
    int64_t count, room;
    double first_step, first_step_done; /* its start and end, in seconds since the start of main */
    double program_begin;
    double cpu_before; /* CPU seconds of all threads until the training begins */
    /* the last losses; end of the warm steps; samples per second since then */
    double loss[LOSSES], warm_seconds, overall;
    int64_t samples;
    /* seconds of WINDOW steps including the time between them, as TensorFlow's global_step/sec */
    double *windows, window_begin;
    int64_t windows_count;
} stopwatch;

/* Keeps the time of each step, after it. At the end of the warm steps it starts the measurement of
 * waiting. */
static trm_status note_step(void *context, const trm_progress *p, trm_error *err) {
    (void)err;
    stopwatch *w = context;
    /* the time to the first step begins with the program */
    if (p->global_step == 1) {
        w->first_step_done = trm_now_seconds() - w->program_begin;
        w->first_step = w->first_step_done - p->step_seconds;
    }
    w->loss[p->global_step % LOSSES] = (double)p->loss;
    w->samples = p->samples;
    /* Note the time of each WINDOW steps in a row. */
    if (p->global_step >= WARM_STEPS && (int64_t)(p->global_step - WARM_STEPS) % WINDOW == 0) {
        if (p->global_step > WARM_STEPS && w->windows_count < w->room / WINDOW) {
            w->windows[w->windows_count++] = p->seconds - w->window_begin;
        }
        w->window_begin = p->seconds;
    }
    /* Note the rate of all steps after the warm ones, and the time of each. */
    if (p->global_step == WARM_STEPS) {
        w->warm_seconds = p->seconds;
        trm_exec_begin_waiting(trm_model_exec(p->model));
    } else if (p->global_step > WARM_STEPS) {
        w->overall =
            (double)(p->samples - p->step_samples * WARM_STEPS) / (p->seconds - w->warm_seconds);
    }
    if (p->global_step > WARM_STEPS && w->count < w->room) {
        w->seconds[w->count++] = p->step_seconds;
    }
    return TRM_OK;
}

/* Prints the result; rank 0 does. `before`: bytes of the process without the model. Collective. */
static void tell_train(const app_context *app, const char *name, const stopwatch *w, trm_exec *exec,
                       int64_t before) {
    trm_exec_info about, *info = &about;
    trm_exec_get_info(exec, info);
    const app_options *o = &app->o;
    app_sample s = app_summarise(w->seconds, w->count);
    int64_t batches = o->accumulate > 1 ? o->accumulate : 1;
    double units = (double)(app_whole_batch((app_context *)(uintptr_t)app) * batches) *
                   app_units_a_sample(app);
    trm_waiting waiting;
    /* A resident size counts the shared pages that this rank has touched. Those of other ranks
     * count where they were allocated; all ranks still have them. */
    int64_t shared = trm_shared_bytes();
    app_waiting(app, exec, &waiting);
    if (app_rank(app) != 0) {
        return;
    }
    int64_t peak = trm_peak_bytes() - shared, predicted = before + info->total_bytes;
    char overall[48];
    snprintf(overall, sizeof overall, "overall_%s", app_rate_key(app));
    app_begin(APP_RESULT, "bench", "train");
    app_put(app_text("model", name, "%s"), app_int("batch_size", o->batch_size, ", batch %d"));
    app_put_input(app);
    if (app->model->kind->bench_loss) {
        double loss = 0;
        for (int i = 0; i < LOSSES; i++) {
            loss += w->loss[i] / LOSSES;
        }
        app_put(
            app_text("preset", o->click.preset, NULL), app_int("samples", w->samples, NULL),
            app_real("mean_loss", loss, NULL)); /* of the last 40 steps: each batch five times */
        if (w->windows_count > 0) {
            app_sample windows = app_summarise(w->windows, w->windows_count);
            app_put(app_real("window_samples_per_second", units * WINDOW / windows.median, NULL));
        }
    }
    app_put(app_text("precision", o->precision, ", %s"), app_text("backend", info->backend, NULL),
            app_real(app_rate_key(app), units / s.median, ": %.1f "),
            app_text(NULL, app_unit(app), "%s/s"),
            /* all steps, and what is between them: steps of ranks that share cores are uneven,
             * their sum is not */
            app_real(overall, w->overall * app_units_a_sample(app), NULL));
    app_put_sample(&s, " (median of %d steps", ": %.2f{1e3} ms", "; %.2f{1e3}",
                   " to %.2f{1e3} ms)");
    app_put(app_real("first_step_seconds", w->first_step, "\nfirst step begins after %.2f s"),
            app_real("first_step_cpu_seconds", w->cpu_before, " (%.2f s of CPU time)"),
            app_real("first_step_done_seconds", w->first_step_done, ", ends after %.2f s"),
            app_int("peak_bytes", peak, "; peak memory %b"),
            app_int("predicted_peak_bytes", predicted, ", predicted %b"),
            app_int("program_bytes", info->total_bytes, NULL), app_real("flops", info->flops, NULL),
            app_real("gflops_per_second", info->flops * (double)batches / s.median / 1e9, NULL));
    app_put_parallel(app, exec, &waiting);
    app_put_machine(info->threads);
    app_end();
}

/* Refuses --epochs and --steps.
 *   errors  INVALID */
static trm_status check_flags(const app_context *app, trm_error *err) {
    if (app_given(&app->parsed, "epochs") || app_given(&app->parsed, "steps")) {
        return app_fail(err, TRM_INVALID, "bench train takes --repeats, not --epochs or --steps");
    }
    return TRM_OK;
}

/* Runs `bench train`. */
int app_run_bench_train(app_context *app) {
    trm_error err;
    const char *name = app->parsed.arguments[0];
    stopwatch w = {.room = app->o.repeats, .program_begin = app->begin};
    trm_dataset *data = NULL;
    trm_model *model = NULL;
    app_network network;
    int64_t before = 0;
    /* A job with servers runs its roles, which measure; a dry run only prints what it would do. */
    app->o.dry_run |= app->o.check;
    if (app_is_job(app)) {
        return app_run_job(app);
    }
    if (app_refuse_job_flags(app, &err) != TRM_OK || check_flags(app, &err) != TRM_OK) {
        return app_report(&err);
    }
    if (app->o.dry_run && app->o.ranks <= 1) {
        return app_dry_run_model(app, "nothing was measured");
    }
    /* Take memory for the times, then make the ranks, the data, the model, the steps. */
    w.seconds = calloc((size_t)w.room, sizeof *w.seconds);
    w.windows = calloc((size_t)(w.room / WINDOW + 1), sizeof *w.windows);
    app_settle_data(app);
    app->o.retune_seconds = 0.3; /* as in training: the first step is measured, too */
    /* With -n this process starts the ranks, which run this function again, and ends with them. */
    bool launched;
    int code = 0;
    trm_status status = app_launch_self(app, app_check_job, &launched, &code, &err);
    if (launched && status == TRM_OK) {
        free(w.seconds);
        free(w.windows);
        return code;
    }
    if (status == TRM_OK) {
        status = w.seconds != NULL && w.windows != NULL
                     ? app_join(app, &err)
                     : app_no_memory(&err, "for the times of %lld steps", (long long)w.room);
    }
    status = status == TRM_OK ? app_settle_batch(app, &err) : status;
    if (status == TRM_OK) {
        status = app_search_stages(app, &err);
    }
    if (status == TRM_OK) {
        app_warn_idle_flags(app, APP_STAGE_RANKS);
        status = app_dataset_random(app, &data, &err);
    }
    if (status == TRM_OK) {
        /* bytes of the process without the model, with the batches to come */
        before = trm_resident_bytes() + trm_dataset_buffer_bytes(data);
        status = app_make_model(app, data, false, &network, &model, &err);
    }
    if (status == TRM_OK) {
        const trm_train_options options = {
            .data = data,
            .until_step = WARM_STEPS + w.room,
            .callbacks = {{.on_step_end = note_step, .context = &w}}};
        w.cpu_before = (double)clock() / CLOCKS_PER_SEC;
        status = trm_model_train(model, &options, &err);
    }
    if (status == TRM_OK) {
        tell_train(app, name, &w, trm_model_exec(model), before);
    }
    trm_model_destroy(model);
    trm_dataset_destroy(data);
    free(w.seconds);
    free(w.windows);
    app_leave(app);
    return status == TRM_OK ? 0 : app_report(&err);
}
