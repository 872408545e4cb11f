/* SPDX-License-Identifier: Apache-2.0 */
/* Chooses what a model does when the ranks of its job change (rank_changes.h), and has the table
 * for ranks that stay as they are: its functions do nothing, or give the answers of a job whose
 * ranks are those with which it began. So the training loop needs no test for elastic jobs. The
 * table of elastic jobs is in elastic.c.
 *
 * Invariant: the last row of `table` takes all options, so that one is always found. */
#include "train/rank_changes.h"

extern const trmi_rank_changes trmi_changes_elastic;

static bool takes_all(const trm_model_options *options) {
    (void)options;
    return true;
}

static trm_status settle_nothing(trm_model *model, trm_error *err) {
    (void)model;
    (void)err;
    return TRM_OK;
}

static trm_status open_nothing(trm_model *model, int32_t alone, trm_error *err) {
    (void)model;
    (void)alone;
    (void)err;
    return TRM_OK;
}

static void close_nothing(trm_model *model) { (void)model; }

static trm_status fail_together(const trm_model_options *options, trm_status status, int32_t *ranks,
                                trm_error *err) {
    (void)options;
    (void)ranks;
    (void)err;
    return status;
}

static bool put_nothing_off(trm_status status, const trm_error *why) {
    (void)status;
    (void)why;
    return false;
}

static bool refuse_leave(trm_model *model) {
    (void)model;
    return false;
}

static bool is_never_spare(const trm_model *model) {
    (void)model;
    return false;
}

static trm_status accept_run(const trmi_run *run, trm_error *err) {
    (void)run;
    (void)err;
    return TRM_OK;
}

static int64_t keep_steps(const trmi_run *run, int64_t steps) {
    (void)run;
    return steps;
}

static int64_t count_batch(const trm_model *model) {
    return model->train.batch * trmi_model_shares(model);
}

static int64_t count_rank_batch(const trm_model *model) { return model->train.batch; }

static int64_t count_schedule_steps(const trmi_run *run) { return run->progress.epoch_steps; }

static double rate_of_step(const trmi_run *run) {
    return trm_learning_rate_at(&run->rate, trm_exec_step(run->model->train.exec));
}

static void note_nothing(trmi_run *run) { (void)run; }

static bool is_never_due(const trmi_run *run) {
    (void)run;
    return false;
}

static trm_status change_nothing(trmi_run *run, trm_error *err) {
    (void)run;
    (void)err;
    return TRM_OK;
}

static trm_status finish_alone(trmi_run *run, trm_status *ended, trm_error *err) {
    (void)run;
    (void)ended;
    (void)err;
    return TRM_OK;
}

static trm_status end_run(trmi_run *run, trm_status status, trm_error *err) {
    (void)run;
    (void)err;
    return status;
}

static const trmi_rank_changes changes_none = {
    .name = "none",
    .stay = true,
    .takes = takes_all,
    .settle = settle_nothing,
    .open = open_nothing,
    .close = close_nothing,
    .go_alone = fail_together,
    .puts_off = put_nothing_off,
    .request_leave = refuse_leave,
    .is_spare = is_never_spare,
    .check_joined = change_nothing,
    .check_data = accept_run,
    .batch = count_batch,
    .rank_batch = count_rank_batch,
    .epoch_steps = keep_steps,
    .schedule_steps = count_schedule_steps,
    .deal_data = change_nothing,
    .learning_rate = rate_of_step,
    .begin_step = change_nothing,
    .end_step = change_nothing,
    .compare_times = trmi_model_compare_ranks,
    .note_hooks = note_nothing,
    .is_due = is_never_due,
    .begin_change = change_nothing,
    .finish = finish_alone,
    .go_on = end_run,
};

/* In the order of choice; the last one takes all options. */
static const trmi_rank_changes *const table[] = {
    &trmi_changes_elastic,
    &changes_none,
};

const trmi_rank_changes *trmi_rank_changes_of(const trm_model_options *options) {
    int32_t i = 0;
    while (!table[i]->takes(options)) {
        i++;
    }
    return table[i];
}
