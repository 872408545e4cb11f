/* SPDX-License-Identifier: Apache-2.0 */
/* The events of a training as JSON: one function names their members, for trm_run_recorder and for
 * the program, which adds members of its own and what people read. So a record and `train --json`
 * have the same members.
 *
 *   step, epoch, eval, checkpoint, membership      names and members: trireme help events
 *
 * Losses have 9 significant digits, so that equal bits print equal. Members are added, and never
 * renamed: scripts read them. */
#include "train/callbacks/event.h"

#include "base/arguments.h"

#include <stdio.h>
#include <string.h>

/* ---- events ---------------------------------------------------------------------------------- */

/* Contract in train.h. Waiting for ranks is counted anew by the executor of each membership epoch,
 * so that between the mark and a change of ranks is unknown. */
trm_mean_step trm_take_mean_step(trm_report_mark *mark, const trm_progress *p) {
    TRMI_NEED_OR((trm_mean_step){0}, NULL, mark, p);
    double steps = p->global_step > mark->step ? (double)(p->global_step - mark->step) : 1;
    double seconds = p->busy_seconds - mark->seconds;
    trm_exec *exec = p->model != NULL ? trm_model_exec(p->model) : NULL;
    int64_t epoch = p->membership != NULL ? p->membership->epoch : 0;
    double ranks = exec != NULL ? trm_exec_waiting_seconds(exec) : 0;
    double before = mark->membership_epoch == epoch ? mark->rank_seconds : 0;
    trm_mean_step mean = {.step_seconds = seconds / steps,
                          .data_wait_seconds = (p->data_seconds - mark->data_seconds) / steps,
                          .rank_wait_seconds = (ranks - before) / steps,
                          .samples_per_second =
                              seconds > 0 ? (double)(p->samples - mark->samples) / seconds : 0};
    *mark = (trm_report_mark){.step = p->global_step,
                              .samples = p->samples,
                              .membership_epoch = epoch,
                              .seconds = p->busy_seconds,
                              .data_seconds = p->data_seconds,
                              .rank_seconds = ranks};
    return mean;
}

/* Puts the members of a step; means since the report before (`mean`) where they are known. */
static void put_step(trmi_report *to, const trm_progress *p, const trm_mean_step *mean) {
    trmi_report_put(to, trmi_int("epoch", p->epoch), trmi_int("step", p->step),
                    trmi_int("global_step", (int64_t)p->global_step),
                    trmi_nine("loss", (double)p->loss));
    if (mean != NULL) {
        trmi_report_put(to, trmi_nine("step_seconds", mean->step_seconds),
                        trmi_nine("data_wait_seconds", mean->data_wait_seconds),
                        trmi_nine("rank_wait_seconds", mean->rank_wait_seconds));
    }
    trmi_report_put(to, trmi_int("peak_bytes", trm_peak_bytes()),
                    trmi_nine("learning_rate", p->learning_rate));
    if (p->loss_scale != NULL) {
        trmi_report_put(to, trmi_nine("loss_scale", p->loss_scale->scale),
                        trmi_int("skipped_updates", p->loss_scale->skipped));
    }
}

/* Appends the members of the end of an epoch. */
static void put_epoch(trmi_report *to, const trm_progress *p) {
    trmi_report_put(to, trmi_int("epoch", p->epoch), trmi_int("steps", p->epoch_steps),
                    trmi_int("global_step", (int64_t)p->global_step),
                    trmi_nine("loss", (double)p->loss), trmi_nine("seconds", p->epoch_seconds),
                    trmi_nine("wait_seconds", p->wait_seconds));
}

/* Puts the figures that this kind of model has, and the user's metrics. */
static void put_evaluation(trmi_report *to, const trm_progress *p) {
    const trm_evaluation *e = p->evaluation;
    if (e == NULL) {
        return;
    }
    if (p->epoch > 0) {
        trmi_report_put(to, trmi_int("epoch", p->epoch));
    }
    if (p->global_step > 0) {
        trmi_report_put(to, trmi_int("global_step", (int64_t)p->global_step));
    }
    trmi_report_put(to, trmi_nine("loss", e->loss));
    /* Key and value of each figure, and whether this kind of model has it. */
    const struct {
        bool is_there;
        const char *key;
        double value;
    } figures[] = {{e->has_top, "top1", e->top1},
                   {e->has_top, "top5", e->top5},
                   {e->has_auc, "auc", e->auc},
                   {e->has_auc, "logloss", e->logloss},
                   {e->has_auc, "calibration", e->calibration},
                   {e->has_tokens, "perplexity", e->perplexity},
                   {e->has_accuracy, "accuracy", e->accuracy},
                   {e->bits_per_byte > 0, "bits_per_byte", e->bits_per_byte}};
    for (size_t i = 0; i < sizeof figures / sizeof figures[0]; i++) {
        if (figures[i].is_there) {
            trmi_report_put(to, trmi_nine(figures[i].key, figures[i].value));
        }
    }
    for (int32_t i = 0; i < e->metric_count; i++) {
        trmi_report_put(to, trmi_real(e->metrics[i].name, e->metrics[i].value));
    }
    if (e->has_tokens) {
        trmi_report_put(to, trmi_int("tokens", e->tokens));
    }
    trmi_report_put(to, trmi_int("samples", e->samples), trmi_nine("seconds", e->seconds));
}

/* Puts a list of ranks, whose numbers are separated by commas already. */
static void put_ranks(trmi_report *to, const char *key, const char *numbers) {
    trmi_report_open_array(to, key);
    trmi_report_put(to, trmi_json_value(NULL, numbers));
    trmi_report_close(to);
}

/* Puts the ranks that were lost, have left and have joined. */
static void put_membership(trmi_report *to, const trm_progress *p) {
    const trm_membership *m = p->membership;
    if (m == NULL) {
        return;
    }
    trmi_report_put(to, trmi_int("epoch", m->epoch), trmi_int("ranks", m->ranks),
                    trmi_int("spare", m->spare_ranks));
    put_ranks(to, "lost", m->lost);
    put_ranks(to, "left", m->left);
    put_ranks(to, "joined", m->joined);
    trmi_report_put(to, trmi_int("redone_steps", m->redone_steps));
    if (m->restored_step > 0) {
        char from[48];
        snprintf(from, sizeof from, "checkpoint step %lld", (long long)m->restored_step);
        trmi_report_put(to, trmi_string("restored", from));
    }
    trmi_report_put(to, trmi_nine("seconds", m->seconds),
                    trmi_int("global_step", (int64_t)p->global_step));
}

/* Contract in event.h. */
void trmi_report_event(trmi_report *to, trm_training_event event, const trm_progress *p,
                       const trm_mean_step *mean) {
    switch (event) {
    case TRM_EVENT_STEP: put_step(to, p, mean); break;
    case TRM_EVENT_EPOCH: put_epoch(to, p); break;
    case TRM_EVENT_EVALUATION: put_evaluation(to, p); break;
    case TRM_EVENT_CHECKPOINT:
        trmi_report_put(to, trmi_string("path", p->checkpoint != NULL ? p->checkpoint : ""),
                        trmi_int("global_step", (int64_t)p->global_step));
        break;
    case TRM_EVENT_MEMBERSHIP: put_membership(to, p); break;
    }
}

/* Contract in train.h. */
const char *trm_event_name(trm_training_event event) {
    static const char *const names[] = {[TRM_EVENT_STEP] = "step",
                                        [TRM_EVENT_EPOCH] = "epoch",
                                        [TRM_EVENT_EVALUATION] = "eval",
                                        [TRM_EVENT_CHECKPOINT] = "checkpoint",
                                        [TRM_EVENT_MEMBERSHIP] = "membership"};
    return (size_t)event < sizeof names / sizeof names[0] ? names[event] : "?";
}

/* Contract in train.h. */
size_t trm_event_members(trm_training_event event, const trm_progress *progress,
                         const trm_mean_step *mean, char *text, size_t size) {
    trmi_report members;
    TRMI_NEED_OR(0, NULL, progress);
    trmi_report_begin(&members, true);
    members.foreign = true;
    trmi_report_event(&members, event, progress, mean);
    char *object = trmi_report_end(&members); /* the members between braces; NULL: no memory */
    size_t length = object != NULL ? strlen(object) - 2 : 0;
    if (text != NULL && size > 0) {
        snprintf(text, size, "%.*s", (int)length, object != NULL ? object + 1 : "");
    }
    trm_free(object);
    return length;
}
