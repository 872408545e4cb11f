/* SPDX-License-Identifier: Apache-2.0 */
/* The progress report of a training: a line or a JSON event per step, epoch, evaluation and
 * checkpoint. The functions are callbacks of the training (app_reporter); none of them changes
 * it. */
#include "app/app.h"
#include "app/output/record.h"

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
    app_tell(
        APP_PROGRESS, "event", "state", app_int(NULL, app_rank(r->app), "state: rank %d"),
        app_int(NULL, app_rank_count(r->app), " of %d"), app_int("epoch", p->epoch, ", epoch %d"),
        app_int("step", p->step, ", step %d"), app_int(NULL, p->epoch_steps, " of %d"),
        app_int("global_step", (int64_t)p->global_step, ", global step %d"),
        app_real("loss", (double)p->loss, ", loss %.8g"),
        app_real("step_seconds", p->step_seconds, ", last step %.1f{1e3} ms"),
        app_real(NULL, speed, ", %.0f "), app_text(NULL, app_unit(r->app), "%s/s"),
        app_real("wait_seconds", p->wait_seconds, ", %.3f s"),
        app_real("epoch_seconds", p->epoch_seconds, " of %.3f s of this epoch waited for data"),
        app_int("peak_bytes", trm_peak_bytes(), ", peak memory %b"));
}

/* Returns whether a step is reported: every --log-every steps, the first, and the last of an
 * epoch (*last) or of the run. */
static bool is_told(const app_report_state *r, const trm_progress *p, bool *last) {
    const app_options *o = &r->app->o;
    *last = p->step == p->epoch_steps || (o->steps > 0 && p->global_step == (uint64_t)o->steps);
    return *last || p->step % o->log_every == 0 || p->global_step == r->first_step + 1;
}

/* Mean seconds of a step since the previous report. */
typedef struct mean_step {
    double seconds, data_seconds, rank_seconds; /* of these: waiting for data, for other ranks */
} mean_step;

/* Returns the mean step since the report before, and begins anew. Only waiting of this epoch is known
 * for data. */
static mean_step take_mean_step(app_report_state *r, const trm_progress *p) {
    uint64_t before = r->reported_step > r->first_step ? r->reported_step : r->first_step;
    double steps = p->global_step > before ? (double)(p->global_step - before) : 1;
    double waited = p->wait_seconds - (r->waited_epoch == p->epoch ? r->waited_data : 0);
    trm_exec *exec = trm_model_exec(p->model);
    double ranks = exec != NULL ? trm_exec_waiting_seconds(exec) : 0;
    mean_step mean = {(p->busy_seconds - r->reported_seconds) / steps, waited / steps,
                      (ranks - r->waited_ranks) / steps};
    r->reported_step = p->global_step;
    r->reported_samples = p->samples;
    r->reported_seconds = p->busy_seconds;
    r->waited_epoch = p->epoch;
    r->waited_data = p->wait_seconds;
    r->waited_ranks = ranks;
    return mean;
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
    mean_step mean = take_mean_step(r, p);
    bool told = !app_out.terminal || last; /* a terminal has the progress line */
    app_begin(APP_PROGRESS, "event", "step");
    app_put(app_int("epoch", p->epoch, told ? "epoch: %d" : NULL),
            app_int("step", p->step, told ? " step: %d" : NULL),
            app_int("global_step", (int64_t)p->global_step, NULL),
            app_real("loss", (double)p->loss, told ? ", loss is %.8g" : NULL),
            app_real("step_seconds", mean.seconds, NULL),
            app_real("data_wait_seconds", mean.data_seconds, NULL),
            app_real("rank_wait_seconds", mean.rank_seconds, NULL),
            app_int("peak_bytes", trm_peak_bytes(), NULL),
            app_real(app_rate_key(r->app), speed, told ? ", %.0f " : NULL),
            app_text(NULL, app_unit(r->app), told ? "%s/s" : NULL),
            app_real("learning_rate", p->learning_rate, told ? ", learning rate %.4g" : NULL));
    if (p->loss_scale != NULL) {
        app_put(app_real("loss_scale", p->loss_scale->scale, NULL),
                app_int("skipped_updates", p->loss_scale->skipped, NULL));
    }
    app_end();
    return TRM_OK;
}

/* After each epoch: its time and the mean time of a step. */
static trm_status tell_epoch(void *context, const trm_progress *p, trm_error *err) {
    (void)err;
    app_report_state *r = context;
    r->last = *p;
    int64_t step_samples =
        app_elastic(r->app) != NULL
            ? p->step_samples
            : app_whole_batch(r->app) * (r->app->o.accumulate > 0 ? r->app->o.accumulate : 1);
    int64_t steps = step_samples > 0 ? p->epoch_samples / step_samples : 0;
    app_tell(APP_PROGRESS, "event", "epoch", app_int("epoch", p->epoch, NULL),
             app_int("steps", p->epoch_steps, NULL),
             app_int("global_step", (int64_t)p->global_step, NULL),
             app_real("loss", (double)p->loss, NULL),
             app_real("seconds", p->epoch_seconds, "epoch time: %5.3f{1e3} ms"),
             app_real(NULL, p->epoch_seconds / (double)(steps > 0 ? steps : 1),
                      ", per step time: %5.3f{1e3} ms"),
             app_real("wait_seconds", p->wait_seconds, NULL));
    return TRM_OK;
}

/* Contract in app.h. With generated clicks the best metrics that any model can reach stand
 * beside those of the model. */
void app_print_evaluation(app_context *app, int64_t epoch, int64_t global_step,
                          const trm_evaluation *e) {
    trm_clicks_bayes bayes;
    app_begin(APP_RESULT, "event", "eval");
    if (epoch > 0) {
        app_put(app_int("epoch", epoch, "epoch %d: "));
    }
    if (global_step > 0) {
        app_put(app_int("global_step", global_step, NULL));
    }
    app_put(app_real("loss", e->loss, "evaluation loss %.6f"));
    if (e->has_top) {
        app_put(app_real("top1", e->top1, ", top-1 %.4f"),
                app_real("top5", e->top5, ", top-5 %.4f"));
    }
    if (e->has_auc) {
        app_put(app_real("auc", e->auc, ", auc %.6f"),
                app_real("logloss", e->logloss, ", logloss %.6f"),
                app_real("calibration", e->calibration, ", calibration %.4f"));
    }
    if (e->has_tokens) {
        app_put(app_real("perplexity", e->perplexity, ", perplexity %.4f"),
                app_int("tokens", e->tokens, NULL));
    }
    if (e->has_accuracy) {
        app_put(app_real("accuracy", e->accuracy, ", accuracy %.4f"));
    }
    if (e->bits_per_byte > 0) {
        app_put(app_real("bits_per_byte", e->bits_per_byte, ", bits per byte %.4f"));
    }
    if (e->has_auc && app_click_bayes(app, &bayes)) { /* of the same rows as the model's */
        app_put(app_real("bayes_auc", bayes.realized_auc, "; nothing beats auc %.6f"),
                app_real("bayes_logloss", bayes.realized_logloss, ", logloss %.6f"));
    }
    app_put(app_int("samples", e->samples, " (%d samples"),
            app_real("seconds", e->seconds, ", %.1f s)"));
    app_end();
}

/* After an evaluation. */
static trm_status tell_evaluated(void *context, const trm_progress *p, trm_error *err) {
    (void)err;
    app_print_evaluation(((app_report_state *)context)->app, p->epoch, (int64_t)p->global_step,
                         p->evaluation);
    return TRM_OK;
}

/* After a checkpoint was written: its path. */
static trm_status tell_checkpoint(void *context, const trm_progress *p, trm_error *err) {
    (void)context;
    (void)err;
    app_tell(APP_PROGRESS, "event", "checkpoint", app_text("path", p->checkpoint, "saved %s"),
             app_int("global_step", (int64_t)p->global_step, NULL));
    return TRM_OK;
}

/* After the ranks of an elastic job have changed: which, and what it cost. The first rank of those that are
 * left shows its output; each rank goes on with the record of the rank that it is from now on. */
static trm_status tell_membership(void *context, const trm_progress *p, trm_error *err) {
    app_report_state *r = context;
    const trm_membership *m = p->membership;
    char lost[112], left[112], joined[112];
    snprintf(lost, sizeof lost, "[%s]", m->lost);
    snprintf(left, sizeof left, "[%s]", m->left);
    snprintf(joined, sizeof joined, "[%s]", m->joined);
    if (m->rank == 0) {
        app_output_show();
    }
    if (app_begin_rank_record(r->app, m->rank, err) != TRM_OK) {
        app_warn("%s; the run is not recorded any more", err->message);
    }
    r->is_spare = m->rank >= m->ranks - m->spare_ranks;
    app_begin(APP_PROGRESS, "event", "membership");
    app_put(app_int("epoch", m->epoch, "membership %d"), app_int("ranks", m->ranks, ": %d ranks"),
            app_int("spare", m->spare_ranks, m->spare_ranks > 0 ? ", %d of them spare" : NULL),
            app_raw("lost", lost), app_raw("left", left), app_raw("joined", joined),
            app_text(NULL, m->lost, m->lost_count > 0 ? ", lost: %s" : NULL),
            app_text(NULL, m->left, m->left_count > 0 ? ", left: %s" : NULL),
            app_text(NULL, m->joined, m->joined_count > 0 ? ", joined: %s" : NULL),
            app_int("redone_steps", m->redone_steps, ", %d step redone"),
            app_real("seconds", m->seconds, ", %.2f s"),
            app_int("global_step", (int64_t)trm_model_global_step(p->model), ", after step %d"));
    app_end();
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
                          .on_membership = tell_membership,
                          .on_end = keep_last,
                          .context = state};
}
