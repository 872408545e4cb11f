/* SPDX-License-Identifier: Apache-2.0 */
/* Callbacks that come with the library: loss and time monitors, checkpoints, evaluation, early
 * stop.
 *
 * Each maker allocates its state, which the callback's `destroy` frees at the end of the
 * training call. A maker cannot return an error: without memory or with a missing argument it
 * returns a callback that fails in on_begin. Hooks run on the thread of the training loop, on
 * every rank; what must be equal on all ranks (is a save due?) is agreed on. */
#include "trireme/train.h"

#include "train/callbacks/callback.h"
#include "train/model.h"

#include "base/arguments.h"
#include "base/error.h"
#include "base/log.h"
#include "base/os.h"
#include "comm/api/communicator.h"
#include "save/checkpoint/checkpoint.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- helpers --------------------------------------------------------------------------------- */

/* The on_begin of callbacks that could not be made: they report it when training begins, since
 * their makers have no way to. */
static trm_status no_memory(void *context, const trm_progress *progress, trm_error *err) {
    (void)context;
    (void)progress;
    return TRMI_NO_MEMORY(err, "for a callback");
}

trm_callback trmi_callback_no_memory(void) { return (trm_callback){.on_begin = no_memory}; }

static trm_status fail_unusable(void *context, const trm_progress *progress, trm_error *err) {
    (void)context;
    (void)progress;
    return TRMI_FAIL(
        err, TRM_INVALID,
        "a callback was made with NULL for its directory, path, function, dataset or options, or "
        "with a number of steps, epochs or seconds below 0");
}

trm_callback trmi_callback_unusable(void) { return (trm_callback){.on_begin = fail_unusable}; }

/* ---- loss and time monitors ------------------------------------------------------------------ */

/* State of a loss or time monitor. */
typedef struct monitor {
    trm_print print;
    int64_t every;
    bool owed; /* the last step has not been printed */
} monitor;

/* Prints the line that MindSpore's LossMonitor prints, which scripts of the guides parse. */
static void print_loss(const monitor *m, const trm_progress *p) {
    char line[96];
    snprintf(line, sizeof line, "epoch: %lld step: %lld, loss is %.8g", (long long)p->epoch,
             (long long)p->step, (double)p->loss);
    m->print(line);
}

/* Prints the loss every `every` steps and after the last step of an epoch; in sink mode this
 * hook runs only then. */
static trm_status loss_step(void *context, const trm_progress *p, trm_error *err) {
    (void)err;
    monitor *m = context;
    bool end = p->step == p->epoch_steps;
    bool due = m->every > 0 ? (p->step % m->every == 0 || end) : end;
    if (due) {
        print_loss(m, p);
    }
    m->owed = !due;
    return TRM_OK;
}

/* Prints the last loss of a training that ends inside an epoch, if the monitor prints once an
 * epoch. */
static trm_status loss_end(void *context, const trm_progress *p, trm_error *err) {
    (void)err;
    const monitor *m = context;
    if (m->owed && m->every == 0) {
        print_loss(m, p);
    }
    return TRM_OK;
}

/* Prints the time of the epoch and of a step. Steps are counted by samples, because a resumed
 * epoch has fewer of them. */
static trm_status time_epoch(void *context, const trm_progress *p, trm_error *err) {
    (void)err;
    const monitor *m = context;
    char line[96];
    double ms = p->epoch_seconds * 1e3;
    int64_t steps = p->epoch_samples > 0 && p->step_samples > 0
                        ? (p->epoch_samples + p->step_samples - 1) / p->step_samples
                        : p->epoch_steps;
    snprintf(line, sizeof line, "epoch time: %5.3f ms, per step time: %5.3f ms", ms,
             ms / (double)(steps > 0 ? steps : 1));
    m->print(line);
    return TRM_OK;
}

/* Makes a callback that prints a line every so many steps. */
static trm_callback make_monitor(trm_print print, int64_t every) {
    if (print == NULL || every < 0) {
        return trmi_callback_unusable();
    }
    monitor *m = trmi_alloc(sizeof *m);
    if (m == NULL) {
        return trmi_callback_no_memory();
    }
    *m = (monitor){.print = print, .every = every};
    return (trm_callback){.destroy = trmi_free, .context = m};
}

trm_callback trm_loss_monitor(int64_t every, trm_print print) {
    trm_callback c = make_monitor(print, every);
    if (c.context != NULL) {
        c.on_step_end = loss_step;
        c.on_end = loss_end;
    }
    return c;
}

trm_callback trm_time_monitor(trm_print print) {
    trm_callback c = make_monitor(print, 0);
    if (c.context != NULL) {
        c.on_epoch_end = time_epoch;
    }
    return c;
}

/* ---- checkpoints ----------------------------------------------------------------------------- */

/* Seconds for which the last save waits for the lock of a rank 0 that has died on another host:
 * longer than the 60 s after which such a lock counts as left. */
static const double LEFT_LOCK_SECONDS = 100;

/* State of trm_model_checkpoint. All ranks have it and decide alike; only rank 0 has a writer. */
typedef struct checkpoints {
    trm_model_checkpoint_options options; /* directory is a copy */
    const trmi_os *os;
    char *directory;
    trm_checkpoint_writer *writer;
    double saved_at;
    uint64_t asked_at; /* global step at the latest call of is_due */
    bool left_out;     /* rank 0: the newest save failed for lack of disk space, or of the lock */
    /* Position that the newest checkpoint holds; epoch -1 before the first. */
    int64_t epoch, epoch_step;
    char together[96];
} checkpoints;

/* Opens the writer on rank 0, which locks the directory. `outwait`: true when the job begins, since
 * its last host may have died with the lock; false when ranks change, because training must not
 * wait. The other ranks wait meanwhile, so the limit of their start is that of the lock, too. */
static trm_status open_writer(checkpoints *c, const trm_progress *p, double patience, bool outwait,
                              trm_error *err) {
    if (trmi_model_rank(p->model) != 0 || c->writer != NULL) {
        return TRM_OK; /* rank 0 writes */
    }
    trm_checkpoint_options options = c->options.writer;
    options.lock_wait_seconds = patience > 0 ? patience : options.lock_wait_seconds;
    options.outwait_lock = options.outwait_lock || outwait;
    trm_comm *comm = trmi_model_comm(p->model);
    const double start = comm != NULL ? trmi_comm_start_seconds(comm) : 0;
    if (start > 0 && (options.outwait_seconds <= 0 || start < options.outwait_seconds)) {
        options.outwait_seconds = start;
    }
    return trmi_checkpoint_writer_open_on(c->os, c->directory, &options, &c->writer, err);
}

/* Refuses an elastic job that begins at step 0 a directory with checkpoints. Its ranks may be those
 * of a job that has ended, which a launcher has started again, and they would replace what that job
 * has saved. Where ranks change before the first step, the earlier rank 0 of this job may have
 * saved step 1: that step is allowed.
 *   errors  INVALID; those of trm_checkpoint_latest, but for END */
static trm_status refuse_other_run(const checkpoints *c, const trm_progress *p, trm_error *err) {
    const int64_t own = trmi_run_is_again(p) ? 1 : 0;
    int64_t step;
    trm_error why = {0};
    if (trmi_model_rank(p->model) != 0 || p->model->elastic == NULL || p->global_step > 0) {
        return TRM_OK;
    }
    trm_status status = trm_checkpoint_latest(c->directory, &step, &why);
    if (status == TRM_END || (status == TRM_OK && step <= own)) {
        return TRM_OK;
    }
    if (status == TRM_OK) {
        status =
            TRMI_FAIL(&why, TRM_INVALID,
                      "%.100s has a checkpoint of step %lld already: --resume (trm_model_resume) "
                      "continues it, another directory starts afresh",
                      c->directory, (long long)step);
    }
    if (err != NULL) {
        *err = why;
    }
    return status;
}

/* Notes the position at which the run begins, which after a resume is saved already; rank 0
 * opens the writer. When ranks of an elastic job have changed, the directory may still be locked
 * by the earlier rank 0, which leaves, or was on another host: the next save opens the writer
 * then. */
static trm_status checkpoint_begin(void *context, const trm_progress *p, trm_error *err) {
    checkpoints *c = context;
    trmi_run_set_checkpoints(p, c->directory);
    c->saved_at = trmi_os_now();
    c->asked_at = p->global_step;
    c->epoch = p->model->epoch;
    c->epoch_step = p->global_step > 0 ? p->model->epoch_step : -1;
    /* The rank that wrote may be gone, with a checkpoint half written: what is due is saved
     * again. */
    if (trmi_run_is_again(p)) {
        c->epoch = -1;
        c->asked_at = p->global_step > 0 ? p->global_step - 1 : 0;
    }
    trm_error why = {0};
    TRMI_TRY(refuse_other_run(c, p, err));
    trm_status status = open_writer(c, p, 0, !trmi_run_is_again(p), &why);
    if (trmi_run_is_again(p) && (status == TRM_INVALID || status == TRM_NOSPACE)) {
        trmi_log(TRM_LOG_WARN, "train", "checkpoints wait: %s", why.message);
        return TRM_OK;
    }
    if (status != TRM_OK && err != NULL) {
        *err = why;
    }
    return status;
}

/* Sets *saved if the current position is in a checkpoint already. All ranks have the position;
 * only rank 0 can tell whether the disk had room, so its answer is broadcast at the end of
 * training. */
static trm_status is_saved(const checkpoints *c, const trm_progress *p, bool last, bool *saved,
                           trm_error *err) {
    bool left_out = c->left_out;
    *saved = c->epoch == p->model->epoch && c->epoch_step == p->model->epoch_step;
    if (*saved && last) {
        TRMI_TRY(trmi_model_broadcast_answer(p->model, &left_out, err));
        *saved = !left_out;
    }
    return TRM_OK;
}

/* Saves the model unless its position is saved already. Without room on the disk, or without the
 * lock of the directory, training goes on with a warning and the next save tries again; at the
 * end of training (`last`) that is an error too. Afterwards the other callbacks are called with
 * the checkpoint's path (rank 0). */
static trm_status checkpoint_save(checkpoints *c, const trm_progress *p, bool last,
                                  trm_error *err) {
    const trm_model *model = p->model;
    trm_error why = {0};
    bool saved;
    TRMI_TRY(is_saved(c, p, last, &saved, err));
    if (saved) {
        return TRM_OK;
    }
    trm_error unopened = {0};
    const trm_status opened = open_writer(c, p, last ? LEFT_LOCK_SECONDS : 0, false, &unopened);
    trm_status status = trm_model_save(p->model, c->writer, &why); /* all ranks bring their parts */
    if (opened != TRM_OK && status == TRM_INVALID) {               /* INVALID: there is no writer */
        status = opened;
        why = unopened;
    }
    c->left_out = status == TRM_NOSPACE || (status == TRM_INVALID && opened == TRM_INVALID);
    if (status != TRM_OK && (last || !c->left_out)) {
        if (err != NULL) {
            *err = why;
        }
        return trmi_error_append(err, " (while saving step %llu)",
                                 (unsigned long long)p->global_step);
    }
    /* The position counts as saved, also if there was no room: the next save is due an interval
     * later. */
    c->epoch = model->epoch;
    c->epoch_step = model->epoch_step;
    c->saved_at = trmi_os_now();
    if (c->left_out) {
        trmi_log(TRM_LOG_WARN, "train",
                 "step %llu is not saved: %s; training goes on, the next save tries again",
                 (unsigned long long)p->global_step, why.message);
    }
    if (c->left_out || trmi_model_rank(model) != 0) {
        return TRM_OK;
    }
    char path[4096];
    snprintf(path, sizeof path, "%s/ckpt-%llu", c->directory, (unsigned long long)p->global_step);
    return trmi_call_checkpoint(p, path, err);
}

/* Returns whether a save is due by steps or by seconds. Steps are compared by multiples passed
 * since the latest call, because sink mode calls this once an epoch. */
static bool is_due(checkpoints *c, const trm_progress *p) {
    const trm_model_checkpoint_options *o = &c->options;
    uint64_t every = (uint64_t)o->every_steps, before = c->asked_at;
    c->asked_at = p->global_step;
    return (every > 0 && p->global_step / every > before / every) ||
           (o->every_seconds > 0 && trmi_os_now() - c->saved_at >= o->every_seconds);
}

/* Saves if a save is due after this step. */
static trm_status checkpoint_step(void *context, const trm_progress *p, trm_error *err) {
    checkpoints *c = context;
    bool due = is_due(c, p);
    if (c->options.every_seconds > 0) { /* rank 0 decides: the clocks of ranks differ */
        TRMI_TRY(trmi_model_broadcast_answer(p->model, &due, err));
    }
    return due ? checkpoint_save(c, p, false, err) : TRM_OK;
}

/* Saves at the end of an epoch, by default every epoch if no other interval is set. */
static trm_status checkpoint_epoch(void *context, const trm_progress *p, trm_error *err) {
    checkpoints *c = context;
    int64_t every = c->options.every_epochs;
    if (every == 0 && c->options.every_steps == 0 && c->options.every_seconds == 0) {
        every = 1;
    }
    return every > 0 && p->epoch % every == 0 ? checkpoint_save(c, p, false, err) : TRM_OK;
}

/* Saves the final state and closes the writer, which reports errors of writes still under way. */
static trm_status checkpoint_end(void *context, const trm_progress *p, trm_error *err) {
    checkpoints *c = context;
    TRMI_TRY(checkpoint_save(c, p, true, err));
    if (c->writer == NULL) {
        return TRM_OK;
    }
    trm_checkpoint_writer *writer = c->writer;
    c->writer = NULL;
    return trm_checkpoint_writer_close(writer, err);
}

static void checkpoint_destroy(void *context) {
    checkpoints *c = context;
    (void)!trm_checkpoint_writer_close(
        c->writer, NULL); /* after an error of training: its own would hide that */
    trmi_free(c->directory);
    trmi_free(c);
}

trm_callback trm_model_checkpoint(const trm_model_checkpoint_options *options) {
    TRMI_NEED_OR(trmi_callback_unusable(), NULL, options);
    return trmi_model_checkpoint_on(NULL, options);
}

/* Contract in callback.h. `last`: it runs after all other callbacks, so that a checkpoint has
 * their effects. */
trm_callback trmi_model_checkpoint_on(const trmi_os *os,
                                      const trm_model_checkpoint_options *options) {
    if (options->directory == NULL || options->every_steps < 0 || options->every_epochs < 0 ||
        !(options->every_seconds >= 0)) {
        return trmi_callback_unusable();
    }
    checkpoints *c = trmi_alloc(sizeof *c);
    char *directory = trmi_alloc(strlen(options->directory) + 1);
    if (c == NULL || directory == NULL) {
        trmi_free(c);
        trmi_free(directory);
        return trmi_callback_no_memory();
    }
    strcpy(directory, options->directory);
    c->options = *options;
    c->os = os;
    c->directory = directory;
    c->epoch = -1;
    snprintf(c->together, sizeof c->together,
             "checkpoints every %lld steps, %lld epochs, %g s and at the end",
             (long long)options->every_steps, (long long)options->every_epochs,
             options->every_seconds);
    return (trm_callback){.on_begin = checkpoint_begin,
                          .on_step_end = checkpoint_step,
                          .on_epoch_end = checkpoint_epoch,
                          .on_end = checkpoint_end,
                          .destroy = checkpoint_destroy,
                          .context = c,
                          .last = true,
                          .together = c->together};
}

/* ---- evaluation ------------------------------------------------------------------------------ */

/* State of trm_evaluate_every. */
typedef struct evaluator {
    trm_dataset *data;
    int64_t every;
    char together[96];
} evaluator;

/* Evaluates the model at the end of every `every`-th epoch and passes the result to all
 * callbacks (on_evaluated). */
static trm_status evaluate_epoch(void *context, const trm_progress *p, trm_error *err) {
    const evaluator *e = context;
    if (p->epoch % e->every != 0) {
        return TRM_OK;
    }
    trm_evaluation evaluation;
    TRMI_TRY(trm_model_evaluate(p->model, e->data, &evaluation, err));
    return trmi_call_evaluated(p, &evaluation, err);
}

/* Contract in trireme/train.h. 0 epochs stand for every epoch. */
trm_callback trm_evaluate_every(trm_dataset *data, int64_t every_epochs) {
    if (data == NULL || every_epochs < 0) {
        return trmi_callback_unusable();
    }
    evaluator *e = trmi_alloc(sizeof *e);
    if (e == NULL) {
        return trmi_callback_no_memory();
    }
    *e = (evaluator){.data = data, .every = every_epochs > 0 ? every_epochs : 1};
    snprintf(e->together, sizeof e->together, "evaluations of %lld samples every %lld epochs",
             (long long)trm_dataset_sample_count(data), (long long)e->every);
    return (trm_callback){.on_epoch_end = evaluate_epoch,
                          .destroy = trmi_free,
                          .context = e,
                          .together = e->together};
}

/* ---- early stop ------------------------------------------------------------------------------ */

/* State of trm_early_stop. */
typedef struct early_stop {
    trm_early_stop_options options;
    char together[96];
} early_stop;

#define NOTE_BEST "early_stop.best"
#define NOTE_BAD "early_stop.without_improvement"

/* Compares `value` with the best one so far and returns TRM_END after `patience` values without
 * an improvement. Best value and count are notes of the model, so that they are saved in
 * checkpoints and survive a resume. */
static trm_status compare_with_best(const trm_early_stop_options *o, const trm_progress *p,
                                    double value, trm_error *err) {
    double best, bad = 0;
    bool first = !trm_model_get_note(p->model, NOTE_BEST, &best);
    (void)trm_model_get_note(p->model, NOTE_BAD, &bad);
    double gain = o->watch == TRM_WATCH_TOP1 ? value - best : best - value;
    if (first || gain > o->min_delta) {
        TRMI_TRY(trm_model_set_note(p->model, NOTE_BEST, value, err));
        return trm_model_set_note(p->model, NOTE_BAD, 0, err);
    }
    TRMI_TRY(trm_model_set_note(p->model, NOTE_BAD, bad + 1, err));
    int64_t patience = o->patience > 0 ? o->patience : 1;
    return bad + 1 >= (double)patience ? TRM_END : TRM_OK;
}

/* Compares the epoch's loss with the best one, where the training loss is watched. */
static trm_status stop_epoch(void *context, const trm_progress *p, trm_error *err) {
    return compare_with_best(&((const early_stop *)context)->options, p, (double)p->loss, err);
}

/* Refuses to watch evaluations where no callback evaluates.
 *   errors  INVALID */
static trm_status need_evaluations(void *context, const trm_progress *p, trm_error *err) {
    (void)context;
    return trmi_run_has_epoch_end(p, evaluate_epoch)
               ? TRM_OK
               : TRMI_FAIL(err, TRM_INVALID,
                           "early stop watches evaluations: no callback evaluates; add "
                           "trm_evaluate_every (Python: EvaluateEvery), or let it watch the loss");
}

/* Watches an evaluation.
 *   errors  INVALID: top-1 is watched and the model has none */
static trm_status stop_evaluated(void *context, const trm_progress *p, trm_error *err) {
    const trm_early_stop_options *o = &((const early_stop *)context)->options;
    if (o->watch == TRM_WATCH_TOP1 && !p->evaluation->has_top) {
        return TRMI_FAIL(
            err, TRM_INVALID,
            "early stop watches top-1: evaluations of this model have none; let it watch the loss");
    }
    return compare_with_best(
        o, p, o->watch == TRM_WATCH_TOP1 ? p->evaluation->top1 : p->evaluation->loss, err);
}

/* Contract in trireme/train.h. The loss is watched at the end of epochs, the other figures
 * after evaluations. */
trm_callback trm_early_stop(const trm_early_stop_options *options) {
    TRMI_NEED_OR(trmi_callback_unusable(), NULL, options);
    if (options->patience < 0 || (unsigned)options->watch > TRM_WATCH_LOSS) {
        return trmi_callback_unusable();
    }
    static const char *const watched[] = {[TRM_WATCH_EVALUATION_LOSS] = "loss of evaluations",
                                          [TRM_WATCH_TOP1] = "top-1",
                                          [TRM_WATCH_LOSS] = "loss"};
    early_stop *e = trmi_alloc(sizeof *e);
    if (e == NULL) {
        return trmi_callback_no_memory();
    }
    *e = (early_stop){.options = *options};
    snprintf(e->together, sizeof e->together, "early stop: %s, %lld without a gain of %g",
             watched[options->watch], (long long)options->patience, options->min_delta);
    trm_callback c = {.destroy = trmi_free, .context = e, .together = e->together};
    if (options->watch == TRM_WATCH_LOSS) {
        c.on_epoch_end = stop_epoch;
    } else {
        c.on_begin = need_evaluations;
        c.on_evaluated = stop_evaluated;
    }
    return c;
}
