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
#include "base/format/json_member.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- members --------------------------------------------------------------------------------- */

/* Appends an integer member. */
static void put_whole(trmi_text *to, const char *key, int64_t value) {
    trmi_text_printf(to, ",\"%s\":%lld", key, (long long)value);
}

/* Puts 9 significant digits: equal bits of a float print equal. */
static void put_real(trmi_text *to, const char *key, double value) {
    trmi_text_printf(to, isfinite(value) ? ",\"%s\":%.9g" : ",\"%s\":null", key, value);
}

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
static void put_step(trmi_text *to, const trm_progress *p, const trm_mean_step *mean) {
    put_whole(to, "epoch", p->epoch);
    put_whole(to, "step", p->step);
    put_whole(to, "global_step", (int64_t)p->global_step);
    put_real(to, "loss", (double)p->loss);
    if (mean != NULL) {
        put_real(to, "step_seconds", mean->step_seconds);
        put_real(to, "data_wait_seconds", mean->data_wait_seconds);
        put_real(to, "rank_wait_seconds", mean->rank_wait_seconds);
    }
    put_whole(to, "peak_bytes", trm_peak_bytes());
    put_real(to, "learning_rate", p->learning_rate);
    if (p->loss_scale != NULL) {
        put_real(to, "loss_scale", p->loss_scale->scale);
        put_whole(to, "skipped_updates", p->loss_scale->skipped);
    }
}

/* Appends the members of the end of an epoch. */
static void put_epoch(trmi_text *to, const trm_progress *p) {
    put_whole(to, "epoch", p->epoch);
    put_whole(to, "steps", p->epoch_steps);
    put_whole(to, "global_step", (int64_t)p->global_step);
    put_real(to, "loss", (double)p->loss);
    put_real(to, "seconds", p->epoch_seconds);
    put_real(to, "wait_seconds", p->wait_seconds);
}

/* Puts the figures that this kind of model has, and the user's metrics. */
static void put_evaluation(trmi_text *to, const trm_progress *p) {
    const trm_evaluation *e = p->evaluation;
    if (e == NULL) {
        return;
    }
    if (p->epoch > 0) {
        put_whole(to, "epoch", p->epoch);
    }
    if (p->global_step > 0) {
        put_whole(to, "global_step", (int64_t)p->global_step);
    }
    put_real(to, "loss", e->loss);
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
            put_real(to, figures[i].key, figures[i].value);
        }
    }
    for (int32_t i = 0; i < e->metric_count; i++) {
        trmi_text_append(to, ",", 1);
        trmi_text_json_string(to, e->metrics[i].name);
        trmi_text_append(to, ":", 1);
        trmi_text_json_number(to, e->metrics[i].value);
    }
    if (e->has_tokens) {
        put_whole(to, "tokens", e->tokens);
    }
    put_whole(to, "samples", e->samples);
    put_real(to, "seconds", e->seconds);
}

/* Puts the ranks that were lost, have left and have joined. */
static void put_membership(trmi_text *to, const trm_progress *p) {
    const trm_membership *m = p->membership;
    if (m == NULL) {
        return;
    }
    put_whole(to, "epoch", m->epoch);
    put_whole(to, "ranks", m->ranks);
    put_whole(to, "spare", m->spare_ranks);
    trmi_text_printf(to, ",\"lost\":[%s],\"left\":[%s],\"joined\":[%s]", m->lost, m->left,
                     m->joined);
    put_whole(to, "redone_steps", m->redone_steps);
    if (m->restored_step > 0) {
        trmi_text_printf(to, ",\"restored\":\"checkpoint step %lld\"", (long long)m->restored_step);
    }
    put_real(to, "seconds", m->seconds);
    put_whole(to, "global_step", (int64_t)p->global_step);
}

/* Contract in event.h. */
void trmi_text_event(trmi_text *to, trm_training_event event, const trm_progress *p,
                     const trm_mean_step *mean) {
    switch (event) {
    case TRM_EVENT_STEP: put_step(to, p, mean); break;
    case TRM_EVENT_EPOCH: put_epoch(to, p); break;
    case TRM_EVENT_EVALUATION: put_evaluation(to, p); break;
    case TRM_EVENT_CHECKPOINT:
        trmi_text_json_string_member(to, "path", p->checkpoint != NULL ? p->checkpoint : "");
        put_whole(to, "global_step", (int64_t)p->global_step);
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
    trmi_text members = {0};
    TRMI_NEED_OR(0, NULL, progress);
    trmi_text_event(&members, event, progress, mean);
    size_t length = members.failed || members.length == 0 ? 0 : members.length - 1;
    if (text != NULL && size > 0) { /* without the first comma */
        snprintf(text, size, "%s", length > 0 ? members.data + 1 : "");
    }
    trmi_text_free(&members);
    return length;
}
