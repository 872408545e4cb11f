/* SPDX-License-Identifier: Apache-2.0 */
/* bench train: training steps on random batches that cost nothing to make, by one process or by
 * the ranks and roles of a job. The first WARM_STEPS are not timed; the statistics are of the
 * steps after them. */
#include "app/models.h"
#include "app/bench.h"

#include "trireme/base.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WARM_STEPS = 2, LOSSES = 40, WINDOW = 10 };

/* Times and losses of the run, filled in by note_step. */
typedef struct stopwatch {
    double *seconds; /* [count]: of each step after the warm ones */
    int64_t count, room;
    double first_step, first_step_done; /* its start and end, in seconds since the start of main */
    double program_begin;
    /* the last losses; end of the warm steps; samples per second since then */
    double loss[LOSSES], warm_seconds, overall;
    int64_t samples;
    /* seconds of WINDOW steps including the time between them, as TensorFlow's global_step/sec */
    double *windows, window_begin;
    int64_t windows_count;
    /* shared memory before the model: every rank's resident size counts the pages that it has
     * touched */
    int64_t shared_bytes;
} stopwatch;

/* After each step: keeps its time. At the end of the warm steps it starts the measurement of
 * waiting. */
static trm_status note_step(void *context, const trm_progress *p, trm_error *err) {
    (void)err;
    stopwatch *w = context;
    if (p->global_step == 1) {
        w->first_step_done = trm_now_seconds() - w->program_begin;
        w->first_step = w->first_step_done - p->step_seconds;
        w->shared_bytes = trm_shared_bytes();
    }
    w->loss[p->global_step % LOSSES] = (double)p->loss;
    w->samples = p->samples;
    if (p->global_step >= WARM_STEPS && (int64_t)(p->global_step - WARM_STEPS) % WINDOW == 0) {
        if (p->global_step > WARM_STEPS && w->windows_count < w->room / WINDOW) {
            w->windows[w->windows_count++] = p->seconds - w->window_begin;
        }
        w->window_begin = p->seconds;
    }
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

/* Prints how long ranks waited for each other, with many ranks. */
static void tell_waiting(const app_context *app, const trm_waiting *w) {
    double step = w->step_seconds > 0 ? w->step_seconds : 1;
    if (app_rank_count(app) > 1) {
        app_print("%d ranks wait for each other for %.1f %% of a step: %.1f %% for communication, "
                  "%.1f %% for those that come later\n",
                  (int)app_rank_count(app),
                  100 * (w->communication_seconds + w->imbalance_seconds) / step,
                  100 * w->communication_seconds / step, 100 * w->imbalance_seconds / step);
    }
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
    app_waiting(app, exec, &waiting);
    if (app_rank(app) != 0) {
        return;
    }
    trm_parallel_info ranks;
    trm_exec_get_parallel_info(exec, &ranks);
    /* where all ranks have one copy of the parameters, the prediction counts it for each rank */
    int64_t peak = trm_peak_bytes() - (ranks.one_copy ? 0 : w->shared_bytes),
            predicted = before + info->total_bytes;
    char a[32], b[32];
    char size[48] = "";
    app_print_input(app, size, sizeof size);
    app_print("%s, batch %lld%s, %s: %.1f %s/s (median of %lld steps: %.2f ms; %.2f to %.2f ms)\n"
              "first step begins after %.2f s, ends after %.2f s; peak memory %s, predicted %s\n",
              name, (long long)o->batch_size, size, o->precision, units / s.median, app_unit(app),
              (long long)s.repeats, s.median * 1e3, s.minimum * 1e3, s.maximum * 1e3, w->first_step,
              w->first_step_done, app_bytes((double)peak, a, sizeof a),
              app_bytes((double)predicted, b, sizeof b));
    tell_waiting(app, &waiting);
    app_json_open();
    app_json_text("bench", "train");
    app_json_text("model", name);
    app_json_int("batch_size", o->batch_size);
    if (app->model->kind->bench_loss) {
        app_json_text("preset", o->click.preset);
        app_json_int("samples", w->samples);
        double loss = 0;
        for (int i = 0; i < LOSSES; i++) {
            loss += w->loss[i] / LOSSES;
        }
        app_json_real("mean_loss", loss); /* of the last 40 steps: each batch five times */
        if (w->windows_count > 0) {
            app_json_real("window_samples_per_second",
                          units * WINDOW / app_summarise(w->windows, w->windows_count).median);
        }
    } else {
        app_json_input(app);
    }
    app_json_text("precision", o->precision);
    app_json_text("backend", info->backend);
    app_json_real(app_rate_key(app), units / s.median);
    /* All steps, and what is between them: steps of ranks that share cores are uneven, their sum is
     * not. */
    char overall[48];
    snprintf(overall, sizeof overall, "overall_%s", app_rate_key(app));
    app_json_real(overall, w->overall * app_units_a_sample(app));
    app_json_sample(&s);
    app_json_real("first_step_seconds", w->first_step);
    app_json_real("first_step_done_seconds", w->first_step_done);
    app_json_int("peak_bytes", peak);
    app_json_int("predicted_peak_bytes", predicted);
    app_json_int("program_bytes", info->total_bytes);
    app_json_real("flops", info->flops);
    app_json_real("gflops_per_second", info->flops * (double)batches / s.median / 1e9);
    app_json_parallel(app, exec, &waiting);
    app_json_machine(info->threads);
    app_json_close();
}

/* Refuses --epochs and --steps.
 *   error  INVALID */
static trm_status check_flags(const app_context *app, trm_error *err) {
    if (app_given(&app->parsed, "epochs") || app_given(&app->parsed, "steps")) {
        return app_fail(err, TRM_INVALID, "bench train takes --repeats, not --epochs or --steps");
    }
    return TRM_OK;
}

/* bench train. */
int app_run_bench_train(app_context *app) {
    trm_error err;
    const char *name = app->parsed.arguments[0];
    stopwatch w = {.room = app->o.repeats, .program_begin = app->begin};
    trm_dataset *data = NULL;
    trm_model *model = NULL;
    app_network network;
    int64_t before = 0;
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
    w.seconds = calloc((size_t)w.room, sizeof *w.seconds);
    w.windows = calloc((size_t)(w.room / WINDOW + 1), sizeof *w.windows);
    app_settle_data(app);
    app->o.retune_seconds = 0.3; /* as in training: the first step is measured, too */
    bool launched;
    int code = 0;
    trm_status status = app_launch_self(app, app_check_job, &launched, &code, &err);
    if (launched && status == TRM_OK) {
        free(w.seconds);
        free(w.windows);
        return code;
    }
    if (status == TRM_OK) {
        status = w.seconds != NULL && w.windows != NULL ? app_join(app, &err)
                                                        : app_fail(&err, TRM_NOMEM, "no memory");
    }
    if (status == TRM_OK) {
        app_warn_idle_flags(app, APP_STAGE_RANKS);
        status = app_dataset_random(app, &data, &err);
    }
    if (status == TRM_OK) {
        /* bytes of the process without the model, with the batches to come */
        before = trm_resident_bytes() + trm_dataset_buffer_bytes(data);
        status = app_make_model(app, name, data, false, &network, &model, &err);
    }
    if (status == TRM_OK) {
        const trm_train_options options = {
            .data = data,
            .until_step = WARM_STEPS + w.room,
            .callbacks = {{.on_step_end = note_step, .context = &w}}};
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
