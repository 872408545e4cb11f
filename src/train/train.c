/* SPDX-License-Identifier: Apache-2.0 */
/* The step loop.
 *
 *      for each epoch            on_epoch_begin
 *        for each step           next batch(es) -> feed -> forward_backward -> on_gradients -> update
 *                                on_step_end            (sink mode: only after the last step)
 *        position = next epoch   on_epoch_end
 *      on_end
 *
 * A stop (request, TRM_END of a hook, enough steps) takes effect between steps; the position then
 * says exactly what is done, so that a checkpoint written in on_end resumes with the next step.
 */
#include "train/estimator/dealt.h"
#include "train/diverge.h"
#include "train/job.h"
#include "train/model.h"
#include "train/profile.h"

#include "base/error.h"
#include "base/log.h"
#include "base/os.h"
#include "comm/rendezvous/pace.h"
#include "exec/distributed/parallel.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* One call of trm_model_train. */
typedef struct run {
    trm_model *model;
    const trm_train_options *options;
    trm_callback callbacks[TRM_MAX_CALLBACKS];
    int32_t callbacks_count;
    trm_learning_rate rate;
    trm_progress p;
    trm_evaluation evaluation;
    trm_loss_scale_state loss_scale;
    int64_t batch; /* of the epoch: the next to read */
    /* of steps: how many more batches the data's position counts (a job continued with other
     * workers) */
    int64_t ahead;
    double begin, epoch_begin;
    trmi_pace *pace; /* NULL with one rank */
    trmi_profile *profile;
    trmi_trace *trace; /* the profile's; NULL without one */
    trmi_divergence divergence;
    bool finish;  /* a hook asked to stop, or there were enough steps */
    bool used_up; /* leases: no batch is left */
} run;

/* ---- callbacks ------------------------------------------------------------------------------ */

static trm_hook hook_of(const trm_callback *c, size_t offset) {
    trm_hook hook;
    memcpy(&hook, (const char *)c + offset, sizeof hook);
    return hook;
}

static bool any_hook(const trm_callback *c) {
    return c->on_begin || c->on_epoch_begin || c->on_gradients || c->on_step_end ||
           c->on_epoch_end || c->on_evaluated || c->on_checkpoint || c->on_end;
}

static trm_status call_pass(run *r, size_t offset, bool last, trm_error *err) {
    for (int32_t i = 0; i < r->callbacks_count; i++) {
        const trm_callback *c = &r->callbacks[i];
        trm_hook hook = hook_of(c, offset);
        if (hook == NULL || c->last != last) {
            continue;
        }
        trm_status status = hook(c->context, &r->p, err);
        if (status == TRM_END) {
            r->finish = true;
        } else if (status != TRM_OK) {
            return status;
        }
    }
    return TRM_OK;
}

static trm_status call(run *r, size_t offset, trm_error *err) {
    TRMI_TRY(call_pass(r, offset, false, err));
    return call_pass(r, offset, true, err);
}
#define CALL(r, hook, err) call((r), offsetof(trm_callback, hook), (err))

/* Hooks that other callbacks cause; they find the run through the progress they were given. */
static run *run_of(const trm_progress *progress) {
    return (run *)((char *)progress - offsetof(run, p));
}

trm_status trmi_tell_evaluated(const trm_progress *progress, const trm_evaluation *evaluation,
                               trm_error *err) {
    run *r = run_of(progress);
    r->evaluation = *evaluation;
    r->p.evaluation = &r->evaluation;
    return CALL(r, on_evaluated, err);
}

trm_status trmi_tell_checkpoint(const trm_progress *progress, const char *path, trm_error *err) {
    run *r = run_of(progress);
    uint64_t own = r->p.global_step;
    r->p.checkpoint = path;
    /* other workers may have gone on since this one's step */
    r->p.global_step = trm_model_global_step(r->model);
    trm_status status = CALL(r, on_checkpoint, err);
    r->p.global_step = own;
    r->p.checkpoint = NULL;
    return status;
}

enum { NEAR_THE_END = 16 }; /* updates */

/* ---- a step ---------------------------------------------------------------------------------- */

/* Adds to the timeline, if there is one, what lasted from `begin` until now. */
static void record(const run *r, const char *category, const char *name, double begin) {
    trmi_trace_add(
        r->trace,
        &(trmi_trace_event){
            .category = category, .name = name, .begin = begin, .end = trmi_os_now(), .bytes = -1});
}

static trm_status read_batch(run *r, const trm_batch **batch, trm_error *err) {
    double before = trmi_os_now();
    TRMI_TRY(trmi_next_batch(r->options->data, batch, err));
    r->p.wait_seconds += trmi_os_now() - before;
    record(r, "waiting", "batch", before);
    return TRM_OK;
}

/* Counts a batch that is about to be used; it must be the one that is due. */
static trm_status use_batch(run *r, int64_t epoch, int64_t index, int64_t samples, trm_error *err) {
    if (epoch != r->model->epoch || index != r->batch) {
        return TRMI_FAIL(err, TRM_INTERNAL,
                         "the dataset gave batch %lld of epoch %lld, expected %lld "
                         "of %lld",
                         (long long)index, (long long)epoch, (long long)r->batch,
                         (long long)r->model->epoch);
    }
    r->batch++;
    r->p.step_samples += samples * trmi_model_shares(r->model);
    return TRM_OK;
}

/* Data lent by servers. When others still work on an epoch's last batches there is nothing to do
 * yet, but may be. */
static trm_status stage_lent(run *r, bool wait, trm_error *err) {
    trmi_remote *remote = r->model->remote;
    double before = trmi_os_now();
    trm_status status;
    while ((status = trmi_remote_stage_lent(remote, r->options->data, err)) == TRM_PENDING &&
           wait && !atomic_load(&r->model->stop)) {
        usleep(10000);
    }
    r->p.wait_seconds += trmi_os_now() - before;
    r->used_up = status == TRM_END;
    return status == TRM_END || status == TRM_PENDING ? TRM_OK : status;
}

/* Others may wait for the batch that is being computed here: then this one does not wait for them.
 */
static trm_status stage_next(run *r, bool wait, trm_error *err) {
    const trm_batch *batch;
    if (trmi_remote_leases(r->model->remote)) {
        return stage_lent(r, wait, err);
    }
    TRMI_TRY(read_batch(r, &batch, err));
    return trmi_remote_stage(r->model->remote, batch, NULL, err);
}

static bool is_last_step(const run *r) {
    int64_t steps = r->options->steps, epochs = r->options->epochs;
    return (steps > 0 && r->p.global_step + 1 >= (uint64_t)steps) ||
           (epochs > 0 && r->model->epoch + 1 >= epochs && r->p.step >= r->p.epoch_steps);
}

/* Parameters on servers: this batch's rows have been asked for, the next one's are before
 * computing. */
static trm_status one_remote_batch(run *r, trm_error *err) {
    trmi_remote *remote = r->model->remote;
    trmi_staged staged;
    if (!trmi_remote_is_staged(remote)) {
        TRMI_TRY(stage_next(r, true, err));
    }
    double before = trmi_os_now();
    TRMI_TRY(trmi_remote_begin(remote, &staged, err));
    record(r, "waiting", "rows and variables of the servers", before);
    if (trmi_remote_leases(remote)) {
        r->batch = staged.index; /* whatever was lent is due */
    }
    TRMI_TRY(use_batch(r, staged.epoch, staged.index, staged.samples, err));
    if (trmi_remote_reads_ahead(remote) && !is_last_step(r) && !atomic_load(&r->model->stop)) {
        TRMI_TRY(stage_next(r, false, err));
    }
    return trm_exec_forward_backward(r->model->train.exec, err);
}

static trm_status one_batch(run *r, trm_error *err) {
    trmi_compiled *c = &r->model->train;
    const trm_batch *batch;
    if (r->model->remote != NULL) {
        return one_remote_batch(r, err);
    }
    TRMI_TRY(read_batch(r, &batch, err));
    TRMI_TRY(use_batch(r, batch->epoch, batch->index, batch->samples, err));
    TRMI_TRY(trmi_feed(c, batch, err));
    return trm_exec_forward_backward(c->exec, err);
}

static trm_status diverged(const run *r, trm_error *err) {
    return TRMI_FAIL(err, TRM_DIVERGED,
                     "epoch %lld, step %lld: the loss is %g; a lower learning "
                     "rate or gradient clipping may help",
                     (long long)r->p.epoch, (long long)r->p.step, (double)r->p.loss);
}

/* Says that the loss runs away while something can be done about it; on servers others' steps make
 * it worse, and it ends where nothing can. */
static trm_status follow_loss(run *r, trm_error *err) {
    trmi_divergence *d = &r->divergence;
    const trmi_remote *remote = r->model->remote;
    trmi_course course =
        isfinite(r->p.loss) ? trmi_divergence_note(d, (double)r->p.loss) : TRMI_COURSE_FINE;
    if (course == TRMI_COURSE_GROWS) {
        trmi_log(TRM_LOG_WARN, "train",
                 "the loss was %.3g at first and is %.3g now: at batch size %lld a learning rate "
                 "of %g is too "
                 "high%s",
                 d->first, d->average, (long long)r->model->train.batch, r->p.learning_rate,
                 remote != NULL && trmi_remote_is_late(remote)
                     ? "; asynchronous gradients are late: --staleness-aware, a lower rate or "
                       "momentum, a larger batch or --mode sync help"
                     : "");
    }
    return course == TRMI_COURSE_LOST && remote != NULL
               ? TRMI_FAIL(err, TRM_DIVERGED,
                           "epoch %lld, step %lld: the loss was %g at first and is %g now; a lower "
                           "learning rate may "
                           "help",
                           (long long)r->p.epoch, (long long)r->p.step, d->first, d->average)
               : TRM_OK;
}

/* After a hybrid worker's death the dense parameters may have a batch more than the tables
 * (train/estimator/hybrid.c). */
static uint64_t steps_done(const run *r) {
    return r->model->options.ps.tables_only
               ? (uint64_t)(r->model->epoch * r->p.epoch_steps + r->model->epoch_step - r->ahead)
               : trm_model_global_step(r->model);
}

/* Dense parameters where they are, then what is on servers; the step is theirs. */
static trm_status update(run *r, trm_error *err) {
    trm_exec *exec = r->model->train.exec;
    trmi_remote *remote = r->model->remote;
    if (remote == NULL) {
        return trm_exec_update(exec, r->p.learning_rate, err);
    }
    if (!isfinite(r->p.loss)) {
        return diverged(r, err); /* nobody else is to learn from it */
    }
    if (r->model->options.ps.tables_only) {
        bool had = trm_exec_step(exec) > steps_done(r);
        TRMI_TRY(had ? TRM_OK : trm_exec_update(exec, r->p.learning_rate, err));
        return trmi_remote_push(remote, r->p.learning_rate, err);
    }
    TRMI_TRY(trmi_remote_push(remote, r->p.learning_rate, err));
    int64_t limit = r->options->steps;
    if (limit > 0 && trmi_remote_step(remote) + NEAR_THE_END >= (uint64_t)limit) {
        TRMI_TRY(trmi_remote_flush(remote, err)); /* to hear of the others in time */
    }
    trm_exec_set_step(exec, trmi_remote_step(remote));
    return TRM_OK;
}

static trm_status one_step(run *r, trm_error *err) {
    trm_exec *exec = r->model->train.exec;
    int32_t batches = trmi_accumulate(r->model);
    double begin = trmi_os_now(), waited = r->p.wait_seconds, loss = 0;
    r->p.step = r->model->epoch_step + 1;
    r->p.step_samples = 0;
    r->p.learning_rate = trm_learning_rate_at(&r->rate, trm_exec_step(exec));
    trmi_exec_set_flag(exec, atomic_load(&r->model->stop) != 0);
    for (int32_t i = 0; i < batches; i++) {
        TRMI_TRY(one_batch(r, err));
        loss += (double)trm_exec_loss(exec);
    }
    r->p.loss = (float)(loss / batches);
    TRMI_TRY(follow_loss(r, err));
    TRMI_TRY(CALL(r, on_gradients, err));
    double updating = trmi_os_now();
    TRMI_TRY(update(r, err));
    record(r, "compute", "optimizer", updating);
    r->p.loss_scale = trm_exec_loss_scale(exec, &r->loss_scale) ? &r->loss_scale : NULL;
    if (!isfinite(r->p.loss)) {
        return diverged(r, err);
    }
    r->model->epoch_step++;
    r->model->loss = r->p.loss;
    double now = trmi_os_now();
    r->p.global_step = trm_exec_step(exec);
    char name[32];
    snprintf(name, sizeof name, "step %llu", (unsigned long long)r->p.global_step);
    record(r, "step", name, begin);
    r->p.step_seconds = now - begin;
    r->p.busy_seconds += now - begin;
    r->p.epoch_seconds = now - r->epoch_begin;
    r->p.seconds = now - r->begin;
    r->p.epoch_samples += r->p.step_samples;
    r->p.samples += r->p.step_samples;
    return trmi_pace_step(r->pace, r->p.step_seconds, r->p.wait_seconds - waited, err);
}

/* ---- an epoch -------------------------------------------------------------------------------- */

/* With many ranks a request takes effect once a step has told all of them. */
static bool is_stopped(const run *r) {
    return trmi_model_comm(r->model) != NULL ? trmi_exec_flagged(r->model->train.exec)
                                             : atomic_load(&r->model->stop) != 0;
}

static bool must_stop(run *r) {
    int64_t limit = r->options->steps;
    if (limit > 0 && steps_done(r) >= (uint64_t)limit) {
        r->finish = true;
    }
    return r->finish || is_stopped(r);
}

/* Leases: an epoch ends here when the next batch lent is of another. */
static trm_status run_lent_steps(run *r, trm_error *err) {
    trmi_remote *remote = r->model->remote;
    while (!must_stop(r)) {
        if (!trmi_remote_is_staged(remote)) {
            TRMI_TRY(stage_next(r, true, err));
        }
        if (!trmi_remote_is_staged(remote) || trmi_remote_staged_epoch(remote) != r->model->epoch) {
            break;
        }
        TRMI_TRY(one_step(r, err));
        TRMI_TRY(CALL(r, on_step_end, err));
    }
    return TRM_OK;
}

static bool epoch_goes_on(const run *r) {
    const trmi_remote *remote = r->model->remote;
    if (remote == NULL || !trmi_remote_leases(remote)) {
        return r->model->epoch_step < r->p.epoch_steps;
    }
    return !r->used_up &&
           !(trmi_remote_is_staged(remote) && trmi_remote_staged_epoch(remote) != r->model->epoch);
}

static trm_status run_steps(run *r, trm_error *err) {
    int64_t first = r->model->epoch_step;
    while (r->model->epoch_step < r->p.epoch_steps && !must_stop(r)) {
        TRMI_TRY(one_step(r, err));
        if (!r->options->sink) {
            TRMI_TRY(CALL(r, on_step_end, err));
        }
    }
    /* also where the run ends inside the epoch */
    if (r->options->sink && r->model->epoch_step > first) {
        r->p.step_seconds = r->p.epoch_seconds / (double)(r->model->epoch_step - first);
        TRMI_TRY(CALL(r, on_step_end, err));
    }
    return TRM_OK;
}

/* Batches that fill no step are left out; the next epoch begins at its first batch. */
static trm_status next_epoch(run *r, trm_error *err) {
    r->model->epoch++;
    r->model->epoch_step = 0;
    if (r->model->remote != NULL && trmi_remote_leases(r->model->remote)) {
        return TRM_OK;
    }
    int64_t left = trm_dataset_epoch_batches(r->options->data) - r->batch;
    r->batch = 0;
    return left > 0 ? trm_dataset_seek(r->options->data, r->model->epoch, 0, err) : TRM_OK;
}

static trm_status one_epoch(run *r, trm_error *err) {
    r->epoch_begin = trmi_os_now();
    r->p.epoch = r->model->epoch + 1;
    r->p.epoch_samples = 0;
    r->p.wait_seconds = 0;
    r->p.epoch_seconds = 0;
    TRMI_TRY(CALL(r, on_epoch_begin, err));
    bool lent = r->model->remote != NULL && trmi_remote_leases(r->model->remote);
    TRMI_TRY(lent ? run_lent_steps(r, err) : run_steps(r, err));
    if (epoch_goes_on(r)) {
        return TRM_OK; /* stopped in the middle */
    }
    r->p.step = r->model->epoch_step;
    r->p.loss = r->model->loss;
    trm_status status = call_pass(r, offsetof(trm_callback, on_epoch_end), false, err);
    if (status == TRM_CANCELLED) {
        return TRM_OK; /* stopped while evaluating: a resume ends this epoch again */
    }
    TRMI_TRY(status);
    TRMI_TRY(next_epoch(r, err));
    return call_pass(r, offsetof(trm_callback, on_epoch_end), true, err);
}

/* ---- the call ---------------------------------------------------------------------------------
 */

static void take_callbacks(run *r) {
    while (r->callbacks_count < TRM_MAX_CALLBACKS &&
           any_hook(&r->options->callbacks[r->callbacks_count])) {
        r->callbacks[r->callbacks_count] = r->options->callbacks[r->callbacks_count];
        r->callbacks_count++;
    }
}

static trm_status check_options(const run *r, trm_error *err) {
    if (r->model->options.evaluation_only) {
        return TRMI_FAIL(err, TRM_INVALID, "the model was made with evaluation_only");
    }
    if (r->options->data == NULL || (r->options->epochs <= 0 && r->options->steps <= 0)) {
        return TRMI_FAIL(err, TRM_INVALID, "training needs a dataset and epochs or steps");
    }
    return TRM_OK;
}

/* Ranks may each have data of their own; rank 0 described the job that is resumed. */
static trm_status check_job(run *r, trm_error *err) {
    trm_model *model = r->model;
    trm_status status = TRM_OK;
    trmi_text_free(&model->job);
    model->data = r->options->data;
    model->wanted_epochs = r->options->epochs;
    model->wanted_steps = r->options->steps;
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

static trm_status check_data(run *r, trm_error *err) {
    trm_dataset *data = r->options->data;
    TRMI_TRY(trm_dataset_check(data, err));
    r->p.epoch_steps = trm_model_epoch_steps(r->model, data);
    if (r->p.epoch_steps <= 0) {
        return TRMI_FAIL(err, TRM_INVALID,
                         "an epoch of %lld samples has %lld batches, a step takes %d",
                         (long long)trm_dataset_sample_count(data),
                         (long long)trm_dataset_epoch_batches(data), trmi_accumulate(r->model));
    }
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

/* The servers know what this worker has done, in earlier lives too. */
static trm_status find_position(run *r, trm_error *err) {
    trm_model *model = r->model;
    int64_t done = trmi_remote_position(model->remote);
    trmi_stretch s = {.batches = r->p.epoch_steps};
    if (model->dealt != NULL) {
        int64_t joins = trmi_dealt_newcomer(model->dealt, done);
        if (joins > done) {
            trmi_remote_begin_at(model->remote, done = joins);
        }
        TRMI_TRY(
            trmi_dealt_begin(model->dealt, r->options->data, model->train.batch, done, &s, err));
    }
    trmi_stretch_at(&s, done, &model->epoch, &model->epoch_step);
    r->ahead = model->epoch * s.batches + model->epoch_step - done;
    return TRM_OK;
}

static trm_status begin(run *r, trm_error *err) {
    TRMI_TRY(check_data(r, err));
    const trm_train_options *o = r->options;
    bool lent = r->model->remote != NULL && trmi_remote_leases(r->model->remote);
    TRMI_TRY(r->model->remote != NULL && !lent ? find_position(r, err) : TRM_OK);
    r->rate = r->model->options.learning_rate;
    if (r->rate.total_steps == 0) {
        int64_t total = o->epochs > 0 ? o->epochs * r->p.epoch_steps - r->ahead : o->steps;
        r->rate.total_steps = o->steps > 0 && o->steps < total ? o->steps : total;
    }
    r->batch = r->model->epoch_step * trmi_accumulate(r->model);
    bool staged = r->model->remote != NULL && trmi_remote_is_staged(r->model->remote);
    if (lent) {
        trmi_remote_lend(r->model->remote, o->data, o->epochs, o->steps);
        TRMI_TRY(staged || must_stop(r) ? TRM_OK : stage_lent(r, true, err));
        r->model->epoch = trmi_remote_is_staged(r->model->remote)
                              ? trmi_remote_staged_epoch(r->model->remote)
                              : r->model->epoch;
    } else {
        TRMI_TRY(trm_dataset_seek(o->data, r->model->epoch, r->batch + staged, err));
    }
    r->p.model = r->model;
    r->p.epoch = r->model->epoch + 1;
    r->p.epochs = o->epochs;
    r->p.step = r->model->epoch_step;
    r->p.global_step = trm_model_global_step(r->model);
    r->p.loss = r->model->loss;
    r->begin = trmi_os_now();
    trmi_exec_forget_flag(r->model->train.exec);
    return CALL(r, on_begin, err);
}

static trm_status go(run *r, trm_error *err) {
    TRMI_TRY(check_options(r, err));
    TRMI_TRY(begin(r, err));
    while ((r->options->epochs <= 0 || r->model->epoch < r->options->epochs) && !r->used_up &&
           !must_stop(r)) {
        TRMI_TRY(one_epoch(r, err));
    }
    if (r->model->remote != NULL) {
        TRMI_TRY(trmi_remote_flush(r->model->remote, err));
    }
    r->p.stopping = is_stopped(r);
    r->p.seconds = trmi_os_now() - r->begin;
    TRMI_TRY(CALL(r, on_end, err));
    if (r->p.stopping) {
        return TRMI_FAIL(err, TRM_CANCELLED, "stopped on request after step %llu",
                         (unsigned long long)r->p.global_step);
    }
    return TRM_OK;
}

int64_t trm_model_epoch_steps(const trm_model *model, trm_dataset *data) {
    return trm_dataset_epoch_batches(data) / trmi_accumulate(model);
}

trm_status trm_model_train(trm_model *model, const trm_train_options *options, trm_error *err) {
    run r = {.model = model, .options = options};
    /* callbacks and the other ranks are told what the caller does not want to know */
    trm_error own;
    err = err != NULL ? err : &own;
    take_callbacks(&r);
    trm_status status = trmi_pace_create(trmi_model_comm(model), &r.pace, err);
    if (status == TRM_OK && options->profile != NULL) {
        status = trmi_profile_begin(model, options->data, options->profile, &r.profile, err);
    }
    r.trace = trmi_profile_trace(r.profile);
    status = status == TRM_OK ? go(&r, err) : status;
    status = trmi_profile_end(r.profile, status, err);
    trmi_pace_destroy(r.pace);
    bool alone = status != TRM_OK && status != TRM_CANCELLED && status != TRM_DIVERGED;
    if (alone && trmi_model_comm(model) != NULL) {
        trm_comm_abort(trmi_model_comm(model), err); /* the others stop too, and say why */
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
