/* SPDX-License-Identifier: Apache-2.0 */
/* The training loop: trm_model_train, its epochs, its steps and the calls of the callbacks.
 *
 *        for each epoch            on_epoch_begin
 *          for each step           one_step: forward_backward -> on_gradients -> push -> record_progress
 *                                  on_step_end            (sink mode: only after the last step)
 *          position = next epoch   on_epoch_end
 *        on_end
 *
 * The loop reads batches from the run's gradient sink and hands gradients back to it
 * (gradient_sink.h), so that it is the same for a local optimiser and for parameter servers. What a
 * change of the job's ranks means is in the run's table of changes (rank_changes.h).
 * With many ranks, every rank runs this loop in step with the other ranks: the collectives are
 * inside trm_exec_forward_backward and the sink's push.
 *
 * Invariants: a stop (request, TRM_END of a hook, step limit) takes effect between steps only.
 * model->epoch and model->epoch_step then state exactly which steps are done, so a checkpoint
 * that on_end writes resumes with the next step. A status other than OK, CANCELLED and DIVERGED
 * ends the run of all ranks (trm_comm_abort). */
#include "train/gradient_sink.h"
#include "train/job/job.h"
#include "train/callbacks/profile.h"
#include "train/rank_changes.h"

#include "base/arguments.h"
#include "base/error.h"
#include "base/hash/hash.h"
#include "base/log.h"
#include "base/os.h"
#include "base/trace.h"
#include "exec/exec.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- callbacks ------------------------------------------------------------------------------ */

/* Returns the hook of `c` that lies `offset` bytes into trm_callback. One loop in call_pass then
 * serves all hooks. */
static trm_hook hook_of(const trm_callback *c, size_t offset) {
    trm_hook hook;
    memcpy(&hook, (const char *)c + offset, sizeof hook);
    return hook;
}

/* Returns whether `c` has a hook; a callback without hooks ends the list of trm_train_options. */
static bool any_hook(const trm_callback *c) {
    return c->on_begin || c->on_epoch_begin || c->on_gradients || c->on_step_end ||
           c->on_epoch_end || c->on_evaluated || c->on_checkpoint || c->on_membership || c->on_end;
}

/* Calls one hook of all callbacks whose member `last` equals `last`, in their order. TRM_END of
 * a hook sets r->finish; any other status but OK is returned at once, and the remaining
 * callbacks are not called. */
static trm_status call_pass(trmi_run *r, size_t offset, bool last, trm_error *err) {
    for (int32_t i = 0; i < r->callbacks_count; i++) {
        const trm_callback *c = &r->callbacks[i];
        trm_hook hook = hook_of(c, offset);
        if (hook == NULL || c->last != last) {
            continue;
        }
        trm_status status = hook(c->context, &r->progress, err);
        if (status == TRM_END) {
            r->finish = true;
        } else if (status != TRM_OK) {
            return status;
        }
    }
    return TRM_OK;
}

/* Calls one hook of all callbacks: first the ordinary ones, then those marked `last`.
 * ModelCheckpoint is marked so that it saves the notes that the other callbacks have just
 * written. */
static trm_status call_hooks(trmi_run *r, size_t offset, trm_error *err) {
    TRMI_TRY(call_pass(r, offset, false, err));
    return call_pass(r, offset, true, err);
}
#define CALL(r, hook, err) call_hooks((r), offsetof(trm_callback, hook), (err))

/* Returns the run of which `progress` is a member. A built-in callback that evaluates or saves uses
 * it to call hooks of the other callbacks in the same run. */
static trmi_run *run_of(const trm_progress *progress) {
    return (trmi_run *)((char *)progress - offsetof(trmi_run, progress));
}

bool trmi_run_is_again(const trm_progress *progress) { return run_of(progress)->again; }

bool trmi_run_has_epoch_end(const trm_progress *progress, trm_hook hook) {
    const trmi_run *r = run_of(progress);
    for (int32_t i = 0; i < r->callbacks_count; i++) {
        if (r->callbacks[i].on_epoch_end == hook) {
            return true;
        }
    }
    return false;
}

void trmi_run_set_checkpoints(const trm_progress *progress, const char *directory) {
    run_of(progress)->checkpoints = directory;
}

trm_status trmi_call_evaluated(const trm_progress *progress, const trm_evaluation *evaluation,
                               trm_error *err) {
    trmi_run *r = run_of(progress);
    r->evaluation = *evaluation;
    r->progress.evaluation = &r->evaluation;
    return CALL(r, on_evaluated, err);
}

trm_status trmi_call_checkpoint(const trm_progress *progress, const char *path, trm_error *err) {
    trmi_run *r = run_of(progress);
    uint64_t own = r->progress.global_step;
    r->progress.checkpoint = path;
    /* report the step of the saved parameters: other workers may have pushed since this worker's
     * own step */
    r->progress.global_step = trm_model_global_step(r->model);
    trm_status status = CALL(r, on_checkpoint, err);
    r->progress.global_step = own;
    r->progress.checkpoint = NULL;
    return status;
}

/* ---- a step ---------------------------------------------------------------------------------- */

/* Compares the step's loss with the first losses of the run (diverge.h). A loss that has grown
 * is logged once, with the remedies that apply. A lost loss ends the run with DIVERGED if the
 * sink passes gradients on to other workers, because those gradients would spoil their
 * parameters too; otherwise record_progress reports a loss that is not finite. */
static trm_status check_loss(trmi_run *r, trm_error *err) {
    trmi_divergence *d = &r->divergence;
    /* A loss that is not finite is left to record_progress, so that it is reported once. */
    trmi_course course = isfinite(r->progress.loss)
                             ? trmi_divergence_note(d, (double)r->progress.loss)
                             : TRMI_COURSE_FINE;
    if (course == TRMI_COURSE_GROWS) {
        trmi_log(TRM_LOG_WARN, "train",
                 "the loss was %.3g at first and is %.3g now: at batch size %lld a learning rate "
                 "of %g is too high%s",
                 d->first, d->average, (long long)r->model->train.batch, r->progress.learning_rate,
                 r->sink->is_late != NULL && r->sink->is_late(r->model)
                     ? "; asynchronous gradients are late: --staleness-aware, a lower rate or "
                       "momentum, a larger batch or --mode sync help"
                     : "");
    }
    return course == TRMI_COURSE_LOST && r->sink->others_suffer
               ? TRMI_FAIL(err, TRM_DIVERGED,
                           "epoch %lld, step %lld: the loss was %g at first and is %g now; a lower "
                           "learning rate may help",
                           (long long)r->progress.epoch, (long long)r->progress.step, d->first,
                           d->average)
               : TRM_OK;
}

/* Computes the gradients of one step: reads each batch of the accumulation through the sink, runs
 * forward and backward, and sets the progress's loss to the mean loss of the batches. The executor
 * adds the gradients up. */
static trm_status forward_backward(trmi_run *r, trm_error *err) {
    trm_exec *exec = r->model->train.exec;
    double loss = 0;
    for (int32_t i = 0; i < exec->accumulate; i++) {
        TRMI_TRY(r->sink->begin(r, err));
        TRMI_TRY(trm_exec_forward_backward(exec, err));
        loss += (double)trm_exec_loss(exec);
    }
    /* where the last batch runs all of them, its loss is that of all */
    r->progress.loss = exec->together ? trm_exec_loss(exec) : (float)(loss / exec->accumulate);
    return check_loss(r, err);
}

/* Moves the model's position to after this step and fills in what callbacks see of it
 * (trm_progress). `begin`: time at which the step began; `waited`: seconds of this epoch that
 * were spent waiting for data before it. Returns DIVERGED for a loss that is not finite, else
 * the error of compare_times. */
static trm_status record_progress(trmi_run *r, double begin, double waited, trm_error *err) {
    trm_exec *exec = r->model->train.exec;
    if (!isfinite(r->progress.loss)) {
        return trmi_divergence_fail(&r->progress, err);
    }
    r->model->epoch_step++;
    r->model->epoch_samples += r->progress.step_samples;
    r->model->loss = r->progress.loss;
    double now = trmi_os_now();
    r->progress.global_step = trm_exec_step(exec);
    char name[32];
    snprintf(name, sizeof name, "step %llu", (unsigned long long)r->progress.global_step);
    trmi_trace_add_since(r->trace, "step", name, begin);
    r->progress.step_seconds = now - begin;
    r->progress.busy_seconds += now - begin;
    r->progress.epoch_seconds = now - r->epoch_begin;
    r->progress.seconds = now - r->begin;
    r->progress.epoch_samples += r->progress.step_samples;
    r->progress.samples += r->progress.step_samples;
    return r->changes->compare_times(r->model, r->progress.step_seconds,
                                     r->progress.wait_seconds - waited, err);
}

/* Runs one training step. The stop flag of this rank is handed to the executor first, because it
 * travels to the other ranks with the step's gradients: all ranks then stop after the same step.
 * r->changes is the table of what happens where ranks die, leave or join (rank_changes.h): it keeps
 * what a change needs before and after each step. */
static trm_status one_step(trmi_run *r, trm_error *err) {
    trm_exec *exec = r->model->train.exec;
    double begin = trmi_os_now(), waited = r->progress.wait_seconds;
    r->progress.step = r->model->epoch_step + 1;
    r->progress.step_samples = 0;
    r->progress.learning_rate = r->changes->learning_rate(r);
    trmi_exec_set_flag(exec, TRMI_FLAG_STOP, atomic_load(&r->model->stop) != 0);
    TRMI_TRY(r->changes->begin_step(r, err));
    TRMI_TRY(forward_backward(r, err));
    TRMI_TRY(CALL(r, on_gradients, err));
    double updating = trmi_os_now();
    TRMI_TRY(r->sink->push(r, err));
    trmi_trace_add_since(r->trace, "compute", "optimizer", updating);
    TRMI_TRY(record_progress(r, begin, waited, err));
    return r->changes->end_step(r, err);
}

/* ---- an epoch -------------------------------------------------------------------------------- */

/* Returns whether a stop was requested. With many ranks only the flag that the last step reduced
 * over all ranks counts, so that every rank gives the same answer. */
static bool is_stopped(const trmi_run *r) {
    return r->stop || (trmi_model_comm(r->model) != NULL
                           ? trmi_exec_flagged(r->model->train.exec, TRMI_FLAG_STOP)
                           : atomic_load(&r->model->stop) != 0);
}

/* Returns whether the run ends before the next step; the step limit counts the steps of the
 * whole job (sink->steps_done). */
static bool is_over(trmi_run *r) {
    int64_t limit = r->options->until_step;
    if (limit > 0 && r->sink->steps_done(r) >= (uint64_t)limit) {
        r->finish = true;
    }
    return r->finish || is_stopped(r);
}

/* Returns whether no step follows at once: the run ends, or begins again with other ranks. */
static bool must_stop(trmi_run *r) { return is_over(r) || r->changes->is_due(r); }

/* Returns whether epochs are left to train. */
static bool has_epochs(const trmi_run *r) {
    return (r->options->until_epoch <= 0 || r->model->epoch < r->options->until_epoch) &&
           !r->used_up;
}

/* Runs the remaining steps of the current epoch, or until the run must stop. Where the sink
 * stages batches, staging decides whether the epoch has one left, and it may wait for other
 * workers; the stop is checked again after it. */
static trm_status run_steps(trmi_run *r, trm_error *err) {
    const int64_t first = r->model->epoch_step;
    const bool due = r->hooks_due; /* a membership change has interrupted the hooks, perhaps on a
                                    * rank that died */
    r->hooks_due = false;
    if (due && !r->options->sink) {
        TRMI_TRY(CALL(r, on_step_end, err));
        r->changes->note_hooks(r);
    }
    while (!must_stop(r)) {
        if (r->sink->stage != NULL) {
            TRMI_TRY(r->sink->stage(r, err));
        }
        if (r->sink->epoch_is_over(r) || must_stop(r)) {
            break;
        }
        TRMI_TRY(one_step(r, err));
        if (!r->options->sink) {
            TRMI_TRY(CALL(r, on_step_end, err));
            r->changes->note_hooks(r);
        }
    }
    /* Sink mode calls on_step_end once, with the mean step time, also if the run ends inside the
     * epoch. */
    const int64_t steps = r->model->epoch_step - first;
    if (r->options->sink && (steps > 0 || due)) {
        r->progress.step_seconds =
            steps > 0 ? r->progress.epoch_seconds / (double)steps : r->progress.step_seconds;
        TRMI_TRY(CALL(r, on_step_end, err));
        r->changes->note_hooks(r);
    }
    return TRM_OK;
}

/* Moves the position, and the sink's data, to the first batch of the next epoch. */
static trm_status next_epoch(trmi_run *r, trm_error *err) {
    r->model->epoch++;
    r->model->epoch_step = 0;
    r->model->epoch_samples = 0;
    return r->sink->next_epoch(r, err);
}

/* Returns the steps of the current epoch. */
static int64_t count_epoch_steps(const trmi_run *r) {
    return r->changes->epoch_steps(r, trm_model_epoch_steps(r->model, r->options->data));
}

/* Runs one epoch from the model's position. Ordinary on_epoch_end hooks see the position at the
 * end of the epoch; the hooks marked `last` (checkpoints) see the beginning of the next one, so
 * that a resume does not repeat the epoch's end. */
static trm_status one_epoch(trmi_run *r, trm_error *err) {
    r->epoch_begin = trmi_os_now();
    r->progress.epoch = r->model->epoch + 1;
    r->progress.epoch_steps = count_epoch_steps(r);
    r->progress.epoch_samples = 0;
    r->progress.wait_seconds = 0;
    r->progress.epoch_seconds = 0;
    TRMI_TRY(CALL(r, on_epoch_begin, err));
    TRMI_TRY(run_steps(r, err));
    if (!r->sink->epoch_is_over(r)) {
        return TRM_OK; /* stopped in the middle */
    }
    r->progress.step = r->model->epoch_step;
    r->progress.loss = r->model->loss;
    trm_status status = call_pass(r, offsetof(trm_callback, on_epoch_end), false, err);
    if (status == TRM_CANCELLED) {
        return TRM_OK; /* stopped while evaluating: a resume ends this epoch again */
    }
    TRMI_TRY(status);
    TRMI_TRY(next_epoch(r, err));
    return call_pass(r, offsetof(trm_callback, on_epoch_end), true, err);
}

/* ---- entry points ---------------------------------------------------------------------------- */

/* Copies the callbacks of the options, up to the first without a hook, into the run, which
 * destroys them at its end. */
static void take_callbacks(trmi_run *r) {
    while (r->callbacks_count < TRM_MAX_CALLBACKS &&
           any_hook(&r->options->callbacks[r->callbacks_count])) {
        r->callbacks[r->callbacks_count] = r->options->callbacks[r->callbacks_count];
        r->callbacks_count++;
    }
}

/* Checks the options that do not depend on the dataset.   errors  INVALID */
static trm_status check_options(const trmi_run *r, trm_error *err) {
    if (r->model->options.evaluation_only) {
        return TRMI_FAIL(err, TRM_INVALID, "the model was made with evaluation_only");
    }
    if (r->options->data == NULL) {
        return TRMI_FAIL(err, TRM_INVALID, "training: no dataset (found NULL); set data");
    }
    if (r->options->until_epoch <= 0 && r->options->until_step <= 0) {
        return TRMI_FAIL(err, TRM_INVALID,
                         "training: no end in epochs or steps (found %lld and %lld); set "
                         "until_epoch or until_step",
                         (long long)r->options->until_epoch, (long long)r->options->until_step);
    }
    return TRM_OK;
}

/* Records the data and limits of this call in the model and, after a resume, compares the job
 * with the one of the checkpoint (job.h). Only rank 0 compares, because rank 0 wrote the
 * description and each rank may read its own part of the data; trmi_model_agree gives every rank
 * the result.   errors  INVALID: another job */
static trm_status check_job(trmi_run *r, trm_error *err) {
    trm_model *model = r->model;
    trm_status status = TRM_OK;
    trmi_text_free(&model->job);
    model->data = r->options->data;
    model->wanted_epochs = r->options->until_epoch;
    model->wanted_steps = r->options->until_step;
    if (model->resumed_job.length == 0) {
        return TRM_OK;
    }
    if (trmi_model_rank(model) == 0) {
        status =
            trmi_job_compare(model, model->data, model->resumed_job.data, "the checkpoint", err);
    }
    TRMI_TRY(trmi_model_agree(model, status, 0, "the resumed job", err));
    trmi_text_free(&model->resumed_job);
    return TRM_OK;
}

/* Compares what must be equal on all ranks of this call: they would train on with other numbers of
 * steps, or with other weights. Ranks of an elastic job come and go, workers of servers have no
 * steps in common.   errors  INVALID: the ranks differ */
static trm_status check_ranks_agree(const trmi_run *r, trm_error *err) {
    enum { COUNT = 5 };
    static const char *const names[COUNT] = {"until_epoch", "until_step", "the steps of an epoch",
                                             "the samples of a batch", "the learning rate"};
    if (trmi_model_comm(r->model) == NULL || !r->changes->stay || r->sink->has_own_data) {
        return TRM_OK;
    }
    const trm_learning_rate *rate = &r->model->options.learning_rate;
    const double numbers[10] = {(double)rate->decay,
                                rate->base,
                                rate->end,
                                rate->gamma,
                                (double)rate->every_steps,
                                rate->power,
                                (double)rate->warmup_steps,
                                rate->warmup_start,
                                (double)rate->total_steps};
    const int64_t values[COUNT] = {
        r->options->until_epoch, r->options->until_step, r->progress.epoch_steps,
        r->model->train.batch, (int64_t)(trmi_hash(TRMI_HASH_BEGIN, numbers, sizeof numbers) >> 1)};
    trmi_rank_range ranges[COUNT];
    TRMI_TRY(trmi_model_compare_numbers(r->model, values, COUNT, "training", ranges, err));
    for (int32_t i = 0; i < COUNT - 1; i++) {
        if (ranges[i].least != ranges[i].most) {
            return TRMI_FAIL(
                err, TRM_INVALID,
                "training: the ranks differ in %s (found %lld to %lld); give all ranks "
                "the same",
                names[i], (long long)ranges[i].least, (long long)ranges[i].most);
        }
    }
    return ranges[COUNT - 1].least == ranges[COUNT - 1].most
               ? TRM_OK
               : TRMI_FAIL(err, TRM_INVALID,
                           "training: the ranks differ in %s; give all ranks the same",
                           names[COUNT - 1]);
}

/* Prepares the dataset: gives this rank its share, checks the pipeline, and holds its size
 * against the resumed run's. Sets r->progress.epoch_steps.   errors  INVALID: no full step in an epoch,
 * another number of samples, another job; those of trm_dataset_check */
static trm_status check_data(trmi_run *r, trm_error *err) {
    trm_dataset *data = r->options->data;
    TRMI_TRY(r->changes->check_data(r, err));
    TRMI_TRY(trmi_model_share_data(r->model, data, true, err));
    TRMI_TRY(trm_dataset_check(data, err));
    r->progress.epoch_steps = count_epoch_steps(r);
    if (r->progress.epoch_steps <= 0) {
        return TRMI_FAIL(err, TRM_INVALID,
                         "an epoch of %lld samples has %lld batches, a step takes %d; use smaller "
                         "batches, less accumulation or more samples",
                         (long long)trm_dataset_sample_count(data),
                         (long long)trm_dataset_epoch_batches(data), trmi_accumulate(r->model));
    }
    TRMI_TRY(check_ranks_agree(r, err));
    int64_t samples = trm_dataset_sample_count(data);
    if (r->model->resumed_samples != 0 && r->model->resumed_samples != samples) {
        return TRMI_FAIL(err, TRM_INVALID,
                         "the resumed run's dataset had %lld samples, this one has %lld",
                         (long long)r->model->resumed_samples, (long long)samples);
    }
    r->model->resumed_samples = 0;
    TRMI_TRY(check_job(r, err));
    r->model->data_samples = samples;
    return TRM_OK;
}

/* Prepares the run up to its first step: data, position (the sink may correct it), learning-rate
 * schedule, and the fields of trm_progress. A schedule without a length of its own gets the
 * number of steps of this call. */
static trm_status begin_run(trmi_run *r, trm_error *err) {
    TRMI_TRY(check_data(r, err));
    const trm_train_options *o = r->options;
    trmi_match_fields(&r->model->train, o->data);
    /* Servers know the position of their job, which may be ahead of this model's. */
    TRMI_TRY(r->sink->find != NULL ? r->sink->find(r, err) : TRM_OK);
    r->rate = r->model->options.learning_rate;
    if (r->rate.total_steps == 0) {
        int64_t total = o->until_epoch > 0
                            ? o->until_epoch * r->changes->schedule_steps(r) - r->ahead
                            : o->until_step;
        r->rate.total_steps = o->until_step > 0 && o->until_step < total ? o->until_step : total;
    }
    r->batch = r->model->epoch_step * trmi_accumulate(r->model);
    TRMI_TRY(r->changes->deal_data(r, err));
    TRMI_TRY(r->sink->seek(r, err));
    r->progress.model = r->model;
    r->progress.loss_scale = trmi_exec_loss_scale(r->model->train.exec);
    r->progress.epoch = r->model->epoch + 1;
    r->progress.epochs = o->until_epoch;
    r->progress.step = r->model->epoch_step;
    r->progress.global_step = trm_model_global_step(r->model);
    r->progress.loss = r->model->loss;
    r->begin = r->again ? r->begin : trmi_os_now();
    trmi_exec_forget_flags(r->model->train.exec);
    return CALL(r, on_begin, err);
}

/* Meets the other ranks at the end of the training. Where a hook of this rank alone has stopped it,
 * the others go on with the next step: then all ranks are told which rank has stopped. After a
 * requested stop, which travels with a step, all ranks are here. Workers of servers have no steps
 * in common.
 *   errors  INVALID: another rank goes on; those of trm_comm_run */
static trm_status meet_at_end(const trmi_run *r, trm_error *err) {
    return r->changes->stay && !r->sink->has_own_data && !is_stopped(r)
               ? trmi_model_meet_at_end(r->model, err)
               : TRM_OK;
}

/* Runs the whole call but for cleanup: begin, epochs, meeting of the ranks, flush of the sink,
 * on_end.
 *   errors  CANCELLED: after a requested stop (on_end has been called); those of the parts */
static trm_status run_and_finish(trmi_run *r, trm_error *err) {
    TRMI_TRY(check_options(r, err));
    TRMI_TRY(begin_run(r, err));
    while (has_epochs(r) && (r->hooks_due || !must_stop(r))) {
        TRMI_TRY(one_epoch(r, err));
    }
    if (has_epochs(r) && !is_over(r)) {
        TRMI_TRY(r->changes->begin_change(r, err));
    }
    TRMI_TRY(meet_at_end(r, err));
    TRMI_TRY(r->sink->flush != NULL ? r->sink->flush(r, err) : TRM_OK);
    r->progress.stopping = is_stopped(r);
    r->progress.seconds = trmi_os_now() - r->begin;
    TRMI_TRY(CALL(r, on_end, err));
    if (r->progress.stopping) {
        return TRMI_FAIL(err, TRM_CANCELLED, "stopped on request after step %llu",
                         (unsigned long long)r->progress.global_step);
    }
    return TRM_OK;
}

/* Runs the call, and begins again at the position of the newest step whenever ranks of an elastic
 * job have died, left or joined. A spare rank waits in trmi_rank_changes.finish. An active rank
 * that has trained to its end does not fail because the others are gone. */
static trm_status run_with_changes(trmi_run *r, trm_error *err) {
    trm_status status = r->changes->check_joined(r, err);
    status = status == TRM_OK ? run_and_finish(r, err) : status;
    for (;;) {
        /* These three statuses occur on all ranks alike, so the ranks can meet in `finish`. After
         * another one go_on decides whether the run can continue with other ranks. */
        bool whole = status == TRM_OK || status == TRM_CANCELLED || status == TRM_DIVERGED;
        bool spare = r->changes->is_spare(r->model);
        trm_status ended = status;
        trm_error why = *err;
        status = whole ? r->changes->finish(r, &ended, &why) : status;
        if (whole && status == TRM_OK) {
            return ended == TRM_OK || !spare
                       ? ended
                       : TRMI_FAIL(err, ended, "the other ranks have ended the training");
        }
        status = r->changes->go_on(r, status, &why);
        if (status != TRM_OK && whole && !spare) {
            return ended; /* the message of `ended` is still in err */
        }
        if (status != TRM_OK) {
            *err = why;
            return status;
        }
        /* The set of ranks has changed, and so the executor. Callbacks learn of it, then the run
         * begins again; a spare rank has no samples and goes to `finish` at once. */
        r->progress.loss_scale = NULL;
        trmi_profile_attach(r->profile);
        status = CALL(r, on_membership, err);
        if (status == TRM_OK && !r->changes->is_spare(r->model)) {
            status = run_and_finish(r, err);
        }
    }
}

int64_t trm_model_epoch_steps(const trm_model *model, trm_dataset *data) {
    TRMI_NEED_OR(0, NULL, model, data);
    (void)!trmi_model_share_data(model, data, true, NULL); /* 0 batches where it fails */
    return trm_dataset_epoch_batches(data) / trmi_accumulate(model);
}

/* Trains `model` (contract: trireme/train.h). Creates the profile, runs run_and_finish(), and
 * releases everything whatever the outcome. An error that only this rank has aborts the
 * communicator, so that the other ranks end with this error instead of waiting for a time limit.
 * CANCELLED and DIVERGED occur on all ranks alike, END on one that has left the others. */
trm_status trm_model_train(trm_model *model, const trm_train_options *options, trm_error *err) {
    TRMI_NEED(err, model, options);
    trmi_run r = {.model = model,
                  .options = options,
                  .sink = model->sink,
                  .changes = model->changes,
                  .resume = trm_model_resume,
                  .begin = trmi_os_now()};
    /* callbacks and the abort of the other ranks need the message even if the caller passed no
     * error record */
    trm_error own;
    err = err != NULL ? err : &own;
    take_callbacks(&r);
    trm_status status =
        options->profile != NULL
            ? trmi_profile_begin(model, options->data, options->profile, &r.profile, err)
            : TRM_OK;
    r.trace = trmi_profile_trace(r.profile);
    status = status == TRM_OK ? run_with_changes(&r, err) : status;
    status = trmi_profile_end(r.profile, status, err);
    bool alone = status != TRM_OK && status != TRM_CANCELLED && status != TRM_DIVERGED;
    if (alone && trmi_model_comm(model) != NULL) {
        trm_comm_abort(trmi_model_comm(model),
                       err); /* the other ranks end with this rank's error */
    }
    for (int32_t i = 0; i < r.callbacks_count; i++) {
        if (r.callbacks[i].destroy != NULL) {
            r.callbacks[i].destroy(r.callbacks[i].context);
        }
    }
    atomic_store(&model->stop, 0);
    model->data = NULL;
    return status;
}
