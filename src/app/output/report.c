/* SPDX-License-Identifier: Apache-2.0 */
/* The progress report of a training: a line or a JSON event per step, epoch, evaluation and
 * checkpoint. The functions are callbacks of the training (app_reporter); none of them changes it.
 *
 *   step        every --log-every steps, the first one, the last of an epoch or of the run
 *   status line on a terminal, after every step, in place
 *   state       when SIGUSR2 asked for it
 *   membership  of an elastic job: which ranks are there now, and what the change cost
 *
 * Times are those since the report before, so that a pause for a checkpoint shows in one line only.
 */
#include "app/app.h"
#include "app/output/record.h"

#include "trireme/train.h"
#include "trireme/base.h"

#include <stdio.h>
#include <stdlib.h>

/* Begins the report of an event with the library's members of it, which the report for people
 * omits. */
static void begin_event(app_stream stream, trm_training_event event, const trm_progress *p,
                        const trm_mean_step *mean) {
    size_t bytes = trm_event_members(event, p, mean, NULL, 0) + 1;
    char *members = bytes > 1 ? malloc(bytes) : NULL;
    app_begin(stream, "event", trm_event_name(event));
    if (members != NULL && trm_event_members(event, p, mean, members, bytes) > 0) {
        app_put(app_members(members));
    }
    free(members);
}

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
    double seconds = p->busy_seconds - r->mark.seconds;
    double units = (double)(p->samples - r->mark.samples) * app_units_a_sample(r->app);
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

/* Prints, after each step, the progress line, a requested state, a skipped update, and the report
 * of the step if it is due. */
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
    trm_mean_step mean = trm_take_mean_step(&r->mark, p);
    begin_event(APP_PROGRESS, TRM_EVENT_STEP, p, &mean);
    app_put(app_real(app_rate_key(r->app), speed, NULL));
    if (!app_out.terminal || last) { /* a terminal has the progress line */
        app_put(app_int(NULL, p->epoch, "epoch: %d"), app_int(NULL, p->step, " step: %d"),
                app_real(NULL, (double)p->loss, ", loss is %.8g"), app_real(NULL, speed, ", %.0f "),
                app_text(NULL, app_unit(r->app), "%s/s"),
                app_real(NULL, p->learning_rate, ", learning rate %.4g"));
    }
    app_end();
    return TRM_OK;
}

/* Prints, after each epoch, its time and the mean time of a step. */
static trm_status tell_epoch(void *context, const trm_progress *p, trm_error *err) {
    (void)err;
    app_report_state *r = context;
    r->last = *p;
    int64_t step_samples =
        app_elastic(r->app) != NULL
            ? p->step_samples
            : app_whole_batch(r->app) * (r->app->o.accumulate > 0 ? r->app->o.accumulate : 1);
    int64_t steps = step_samples > 0 ? p->epoch_samples / step_samples : 0;
    begin_event(APP_PROGRESS, TRM_EVENT_EPOCH, p, NULL);
    app_put(app_real(NULL, p->epoch_seconds, "epoch time: %5.3f{1e3} ms"),
            app_real(NULL, p->epoch_seconds / (double)(steps > 0 ? steps : 1),
                     ", per step time: %5.3f{1e3} ms"));
    app_end();
    return TRM_OK;
}

/* Contract in app.h. With generated clicks the best metrics that any model can reach stand
 * beside those of the model. */
void app_print_evaluation(app_context *app, int64_t epoch, int64_t global_step,
                          const trm_evaluation *e) {
    trm_clicks_bayes bayes;
    begin_event(
        APP_RESULT, TRM_EVENT_EVALUATION,
        &(trm_progress){.epoch = epoch, .global_step = (uint64_t)global_step, .evaluation = e},
        NULL);
    if (epoch > 0) {
        app_put(app_int(NULL, epoch, "epoch %d: "));
    }
    app_put(app_real(NULL, e->loss, "evaluation loss %.6f"));
    /* print the figures that this kind of model has */
    if (e->has_top) {
        app_put(app_real(NULL, e->top1, ", top-1 %.4f"), app_real(NULL, e->top5, ", top-5 %.4f"));
    }
    if (e->has_auc) {
        app_put(app_real(NULL, e->auc, ", auc %.6f"), app_real(NULL, e->logloss, ", logloss %.6f"),
                app_real(NULL, e->calibration, ", calibration %.4f"));
    }
    if (e->has_tokens) {
        app_put(app_real(NULL, e->perplexity, ", perplexity %.4f"));
    }
    if (e->has_accuracy) {
        app_put(app_real(NULL, e->accuracy, ", accuracy %.4f"));
    }
    if (e->bits_per_byte > 0) {
        app_put(app_real(NULL, e->bits_per_byte, ", bits per byte %.4f"));
    }
    if (e->has_auc && app_click_bayes(app, &bayes)) { /* of the same rows as the model's */
        app_put(app_real("bayes_auc", bayes.realized_auc, "; nothing beats auc %.6f"),
                app_real("bayes_logloss", bayes.realized_logloss, ", logloss %.6f"));
    }
    app_put(app_int(NULL, e->samples, " (%d samples"), app_real(NULL, e->seconds, ", %.1f s)"));
    app_end();
}

/* Prints the result of an evaluation. */
static trm_status tell_evaluated(void *context, const trm_progress *p, trm_error *err) {
    (void)err;
    app_print_evaluation(((app_report_state *)context)->app, p->epoch, (int64_t)p->global_step,
                         p->evaluation);
    return TRM_OK;
}

/* Prints the path of a checkpoint after it was written. */
static trm_status tell_checkpoint(void *context, const trm_progress *p, trm_error *err) {
    (void)context;
    (void)err;
    begin_event(APP_PROGRESS, TRM_EVENT_CHECKPOINT, p, NULL);
    app_put(app_text(NULL, p->checkpoint, "saved %s"));
    app_end();
    return TRM_OK;
}

/* Prints, after the ranks of an elastic job have changed, which, and what it cost. The first rank
 * of those that are left shows its output; each rank goes on with the record of the rank that it is
 * from now on. */
static trm_status tell_membership(void *context, const trm_progress *p, trm_error *err) {
    app_report_state *r = context;
    const trm_membership *m = p->membership;
    if (m->rank == 0) {
        app_output_show();
    }
    if (app_begin_rank_record(r->app, m->rank, err) != TRM_OK) {
        app_warn("%s; the run is not recorded any more", err->message);
    }
    r->is_spare = m->rank >= m->ranks - m->spare_ranks;
    begin_event(APP_PROGRESS, TRM_EVENT_MEMBERSHIP, p, NULL);
    app_put(app_int(NULL, m->epoch, "membership %d"), app_int(NULL, m->ranks, ": %d ranks"),
            app_int(NULL, m->spare_ranks, m->spare_ranks > 0 ? ", %d of them spare" : NULL),
            app_text(NULL, m->lost, m->lost_count > 0 ? ", lost: %s" : NULL),
            app_text(NULL, m->left, m->left_count > 0 ? ", left: %s" : NULL),
            app_text(NULL, m->joined, m->joined_count > 0 ? ", joined: %s" : NULL),
            app_int(NULL, m->redone_steps, ", steps redone: %d"),
            app_int(NULL, m->restored_step, m->restored_step > 0 ? ", from checkpoint %d" : NULL),
            app_real(NULL, m->seconds, ", %.2f s"),
            app_int(NULL, (int64_t)p->global_step, ", after step %d"));
    app_end();
    return TRM_OK;
}

/* Keeps, at the end, the final progress for the last line. */
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
