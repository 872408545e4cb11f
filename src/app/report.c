/* SPDX-License-Identifier: Apache-2.0 */
/* The progress report of a training: a line or a JSON event per step, epoch, evaluation and
 * checkpoint. The functions are callbacks of the training (app_reporter); none of them changes
 * it. */
#include "app/app.h"

#include "trireme/train.h"
#include "trireme/base.h"

#include <stdio.h>

/* Refreshes the progress line of a terminal, with the remaining time at the mean rate so far. */
static void status_line(const app_report_state *r, const trm_progress *p, double speed) {
    if (!app_out.terminal) {
        return;
    }
    char left[32] = "?";
    int64_t epochs = p->epochs > 0 ? p->epochs : 1;
    double steps_left = (double)((epochs - p->epoch) * p->epoch_steps + p->epoch_steps - p->step);
    double done = (double)(p->global_step - r->first_step);
    if (p->epochs > 0 && done > 0) {
        app_time(steps_left * p->busy_seconds / done, left, sizeof left);
    }
    app_status_line("epoch %lld/%lld  step %lld/%lld  loss %.5f  %.0f %s/s  %s left",
                    (long long)p->epoch, (long long)epochs, (long long)p->step,
                    (long long)p->epoch_steps, (double)p->loss, speed, app_unit(r->app), left);
}

/* Returns units (app_unit) per second since the last report. */
static double speed_since_report(const app_report_state *r, const trm_progress *p) {
    double seconds = p->busy_seconds - r->reported_seconds;
    double units = (double)(p->samples - r->reported_samples) * app_units_a_sample(r->app);
    return seconds > 0 ? units / seconds : 0;
}

/* Prints the state of the run, requested by SIGUSR2: a line and the JSON event "state". */
static void tell_state(const app_report_state *r, const trm_progress *p, double speed) {
    char memory[32];
    app_print_progress(
        "state: rank %d of %d, epoch %lld, step %lld of %lld, global step %llu, loss %.8g, "
        "last step %.1f ms, "
        "%.0f %s/s, %.3f s of %.3f s of this epoch waited for data, peak memory %s\n",
        (int)app_rank(r->app), (int)app_rank_count(r->app), (long long)p->epoch, (long long)p->step,
        (long long)p->epoch_steps, (unsigned long long)p->global_step, (double)p->loss,
        p->step_seconds * 1e3, speed, app_unit(r->app), p->wait_seconds, p->epoch_seconds,
        app_bytes((double)trm_peak_bytes(), memory, sizeof memory));
    app_json_open();
    app_json_text("event", "state");
    app_json_int("epoch", p->epoch);
    app_json_int("step", p->step);
    app_json_int("global_step", (int64_t)p->global_step);
    app_json_real("loss", (double)p->loss);
    app_json_real("step_seconds", p->step_seconds);
    app_json_real("epoch_seconds", p->epoch_seconds);
    app_json_real("wait_seconds", p->wait_seconds);
    app_json_int("peak_bytes", trm_peak_bytes());
    app_json_close();
}

/* Returns whether a step is reported: every --log-every steps, the first, and the last of an
 * epoch (*last) or of the run. */
static bool is_told(const app_report_state *r, const trm_progress *p, bool *last) {
    const app_options *o = &r->app->o;
    *last = p->step == p->epoch_steps || (o->steps > 0 && p->global_step == (uint64_t)o->steps);
    return *last || p->step % o->log_every == 0 || p->global_step == r->first_step + 1;
}

/* After each step: the progress line, a requested state, a skipped update, and the report of the
 * step if it is due. */
static trm_status tell_step(void *context, const trm_progress *p, trm_error *err) {
    (void)err;
    app_report_state *r = context;
    r->last = *p;
    double speed = speed_since_report(r, p);
    status_line(r, p, speed);
    if (app_signal_wants_state()) {
        tell_state(r, p, speed);
    }
    if (p->loss_scale != NULL && p->loss_scale->overflow) {
        app_print_progress(
            "epoch: %lld step: %lld, a gradient overflowed: update skipped (%lld so far), "
            "loss scale %g\n",
            (long long)p->epoch, (long long)p->step, (long long)p->loss_scale->skipped,
            p->loss_scale->scale);
    }
    /* the report of the step, with the rate since the report before */
    bool last;
    if (!is_told(r, p, &last)) {
        return TRM_OK;
    }
    r->reported_samples = p->samples;
    r->reported_seconds = p->busy_seconds;
    if (!app_out.terminal || last) {
        app_print_progress("epoch: %lld step: %lld, loss is %.8g, %.0f %s/s, learning rate %.4g\n",
                           (long long)p->epoch, (long long)p->step, (double)p->loss, speed,
                           app_unit(r->app), p->learning_rate);
    }
    app_json_open();
    app_json_text("event", "step");
    app_json_int("epoch", p->epoch);
    app_json_int("step", p->step);
    app_json_int("global_step", (int64_t)p->global_step);
    app_json_real("loss", (double)p->loss);
    app_json_real(app_rate_key(r->app), speed);
    app_json_real("learning_rate", p->learning_rate);
    if (p->loss_scale != NULL) {
        app_json_real("loss_scale", p->loss_scale->scale);
        app_json_int("skipped_updates", p->loss_scale->skipped);
    }
    app_json_close();
    return TRM_OK;
}

/* After each epoch: its time and the mean time of a step. */
static trm_status tell_epoch(void *context, const trm_progress *p, trm_error *err) {
    (void)err;
    app_report_state *r = context;
    r->last = *p;
    int64_t steps = p->epoch_samples / app_whole_batch(r->app) /
                    (r->app->o.accumulate > 0 ? r->app->o.accumulate : 1);
    double ms = p->epoch_seconds * 1e3;
    app_print_progress("epoch time: %5.3f ms, per step time: %5.3f ms\n", ms,
                       ms / (double)(steps > 0 ? steps : 1));
    app_json_open();
    app_json_text("event", "epoch");
    app_json_int("epoch", p->epoch);
    app_json_int("steps", p->epoch_steps);
    app_json_int("global_step", (int64_t)p->global_step);
    app_json_real("loss", (double)p->loss);
    app_json_real("seconds", p->epoch_seconds);
    app_json_real("wait_seconds", p->wait_seconds);
    app_json_close();
    return TRM_OK;
}

/* Contract in app.h. With generated clicks the best metrics that any model can reach stand
 * beside those of the model. */
void app_print_evaluation(app_context *app, int64_t epoch, const trm_evaluation *e) {
    trm_clicks_bayes bayes;
    bool known = e->has_auc && app_click_bayes(app, &bayes);
    if (epoch > 0) {
        app_print("epoch %lld: ", (long long)epoch);
    }
    app_print("evaluation loss %.6f", e->loss);
    if (e->has_top) {
        app_print(", top-1 %.4f, top-5 %.4f", e->top1, e->top5);
    }
    if (e->has_auc) {
        app_print(", auc %.6f, logloss %.6f, calibration %.4f", e->auc, e->logloss, e->calibration);
    }
    if (e->has_tokens) {
        app_print(", perplexity %.4f", e->perplexity);
    }
    if (e->bits_per_byte > 0) {
        app_print(", bits per byte %.4f", e->bits_per_byte);
    }
    if (known) {
        app_print("; nothing beats auc %.6f, logloss %.6f", bayes.realized_auc,
                  bayes.realized_logloss);
    }
    app_print(" (%lld samples, %.1f s)\n", (long long)e->samples, e->seconds);
    app_json_open();
    app_json_text("event", "eval");
    if (epoch > 0) {
        app_json_int("epoch", epoch);
    }
    app_json_real("loss", e->loss);
    if (e->has_top) {
        app_json_real("top1", e->top1);
        app_json_real("top5", e->top5);
    }
    if (e->has_auc) {
        app_json_real("auc", e->auc);
        app_json_real("logloss", e->logloss);
        app_json_real("calibration", e->calibration);
    }
    if (e->has_tokens) {
        app_json_real("perplexity", e->perplexity);
        if (e->bits_per_byte > 0) {
            app_json_real("bits_per_byte", e->bits_per_byte);
        }
        app_json_int("tokens", e->tokens);
    }
    if (known) { /* of the same rows as the model's, to compare them */
        app_json_real("bayes_auc", bayes.realized_auc);
        app_json_real("bayes_logloss", bayes.realized_logloss);
    }
    app_json_int("samples", e->samples);
    app_json_real("seconds", e->seconds);
    app_json_close();
}

/* After an evaluation. */
static trm_status tell_evaluated(void *context, const trm_progress *p, trm_error *err) {
    (void)err;
    app_print_evaluation(((app_report_state *)context)->app, p->epoch, p->evaluation);
    return TRM_OK;
}

/* After a checkpoint was written: its path. */
static trm_status tell_checkpoint(void *context, const trm_progress *p, trm_error *err) {
    (void)context;
    (void)err;
    app_print_progress("saved %s\n", p->checkpoint);
    app_json_open();
    app_json_text("event", "checkpoint");
    app_json_text("path", p->checkpoint);
    app_json_int("global_step", (int64_t)p->global_step);
    app_json_close();
    return TRM_OK;
}

/* At the end: keeps the final progress for the last line. */
static trm_status keep_last(void *context, const trm_progress *p, trm_error *err) {
    (void)err;
    ((app_report_state *)context)->last = *p;
    return TRM_OK;
}

trm_callback app_reporter(app_report_state *state) {
    return (trm_callback){.on_step_end = tell_step,
                          .on_epoch_end = tell_epoch,
                          .on_evaluated = tell_evaluated,
                          .on_checkpoint = tell_checkpoint,
                          .on_end = keep_last,
                          .context = state};
}
