/* SPDX-License-Identifier: Apache-2.0 */
/* Callbacks that record a run: metrics as CSV or JSON lines, and TensorBoard event files. Rank 0
 * writes.
 *
 * An error of opening a file fails training in on_begin. After that an error of writing (a full
 * disk) is logged once and training goes on, because hours of training are worth more than a
 * record of them. */
#include "trireme/train.h"
#include "trireme/io.h"

#include "train/callbacks/callback.h"
#include "train/export/graph_events.h"
#include "train/model.h"

#include "base/arguments.h"
#include "base/error.h"
#include "base/log.h"
#include "base/os.h"
#include "exec/distributed/batches.h"

#include <stdio.h>
#include <string.h>

/* Returns a copy of a text; NULL: no memory. */
static char *copy_text(const char *text) {
    char *copy = trmi_alloc(strlen(text) + 1);
    return copy == NULL ? NULL : strcpy(copy, text);
}

/* Logs a failed write once and returns OK. */
static trm_status warn_once(bool *warned, trm_status status, const trm_error *err) {
    if (status != TRM_OK && !*warned) {
        trmi_log(TRM_LOG_WARN, "train", "%s; training goes on", err->message);
        *warned = true;
    }
    return TRM_OK;
}

/* Returns samples per second of training, without the time spent in callbacks. */
static double speed_of(const trm_progress *p) {
    return p->busy_seconds > 0 ? (double)p->samples / p->busy_seconds : 0;
}

/* ---- CSV and JSON lines ---------------------------------------------------------------------- */

/* State of trm_metrics_recorder. */
typedef struct metrics_file {
    char *path;           /* owned */
    int64_t every;        /* steps between lines; the last step of an epoch has one, too */
    trm_metrics *metrics; /* NULL before training begins, and on ranks other than 0 */
    bool warned;          /* a failed write has been reported */
} metrics_file;

/* Columns of the file; the model's own metrics follow. */
static const char *const COLUMNS[] = {"epoch", "step", "loss", "learning_rate", "images_per_second",
                                      "top1",  "top5", "auc",  "logloss",       "seconds"};
enum { COLUMNS_COUNT = sizeof COLUMNS / sizeof COLUMNS[0] };

/* Opens the file on rank 0, with a column for each of the model's own metrics. After a resume
 * the lines of steps that will be repeated are dropped (trm_metrics_open). */
static trm_status metrics_begin(void *context, const trm_progress *p, trm_error *err) {
    metrics_file *m = context;
    if (trmi_model_rank(p->model) != 0 || m->metrics != NULL) {
        return TRM_OK; /* rank 0 writes */
    }
    TRMI_TRY(trmi_os_make_parent(NULL, m->path, err));
    const char *columns[COLUMNS_COUNT + TRM_MAX_METRICS];
    int64_t count = COLUMNS_COUNT;
    memcpy(columns, COLUMNS, sizeof COLUMNS);
    for (const trm_metric *o = p->model->options.metrics;
         count < COLUMNS_COUNT + TRM_MAX_METRICS && o->add != NULL; o++) {
        columns[count++] = o->name;
    }
    const trm_metrics_options options = {.columns = columns,
                                         .column_count = count,
                                         .resumed = p->global_step > 0,
                                         .resume_step = (int64_t)p->global_step};
    return trm_metrics_open(m->path, &options, &m->metrics, err);
}

/* Writes one line of loss, learning rate and speed every `every` steps and at the end of an
 * epoch. */
static trm_status metrics_step(void *context, const trm_progress *p, trm_error *err) {
    metrics_file *m = context;
    if (m->metrics == NULL || (p->step % m->every != 0 && p->step != p->epoch_steps)) {
        return TRM_OK;
    }
    const trm_named_scalar values[] = {{"epoch", (double)p->epoch},
                                       {"step", (double)p->step},
                                       {"loss", (double)p->loss},
                                       {"learning_rate", p->learning_rate},
                                       {"images_per_second", speed_of(p)}};
    return warn_once(&m->warned,
                     trm_metrics_write(m->metrics, "step", (int64_t)p->global_step, values, 5, err),
                     err);
}

/* Writes one line of an evaluation: loss, the figures that this kind of model has, the user's
 * metrics. */
static trm_status metrics_evaluated(void *context, const trm_progress *p, trm_error *err) {
    metrics_file *m = context;
    const trm_evaluation *e = p->evaluation;
    if (m->metrics == NULL) {
        return TRM_OK;
    }
    trm_named_scalar values[8 + TRM_MAX_METRICS] = {
        {"epoch", (double)p->epoch}, {"loss", e->loss}, {"seconds", e->seconds}};
    int64_t count = 3;
    if (e->has_top) {
        values[count++] = (trm_named_scalar){"top1", e->top1};
        values[count++] = (trm_named_scalar){"top5", e->top5};
    }
    if (e->has_auc) {
        values[count++] = (trm_named_scalar){"auc", e->auc};
        values[count++] = (trm_named_scalar){"logloss", e->logloss};
    }
    if (e->has_tokens) {
        values[count++] = (trm_named_scalar){"perplexity", e->perplexity};
        values[count++] = (trm_named_scalar){"bits_per_byte", e->bits_per_byte};
    }
    if (e->has_accuracy) {
        values[count++] = (trm_named_scalar){"accuracy", e->accuracy};
    }
    for (int32_t i = 0; i < e->metric_count; i++) {
        values[count++] = e->metrics[i];
    }
    return warn_once(
        &m->warned,
        trm_metrics_write(m->metrics, "eval", (int64_t)p->global_step, values, count, err), err);
}

/* Closes the file; only now a full disk may be noticed. */
static trm_status metrics_end(void *context, const trm_progress *p, trm_error *err) {
    (void)p;
    metrics_file *m = context;
    trm_metrics *metrics = m->metrics;
    m->metrics = NULL;
    return warn_once(&m->warned, trm_metrics_close(metrics, err), err);
}

/* Closes the file of metrics. An error is dropped: training has ended already. */
static void metrics_destroy(void *context) {
    metrics_file *m = context;
    (void)!trm_metrics_close(m->metrics, NULL);
    trmi_free(m->path);
    trmi_free(m);
}

/* Contract in trireme/train.h. */
trm_callback trm_metrics_recorder(const char *path, int64_t every) {
    if (path == NULL || every < 0) {
        return trmi_callback_unusable();
    }
    metrics_file *m = trmi_alloc(sizeof *m);
    char *copy = copy_text(path);
    if (m == NULL || copy == NULL) {
        trmi_free(m);
        trmi_free(copy);
        return trmi_callback_no_memory();
    }
    *m = (metrics_file){.path = copy, .every = every > 0 ? every : 1};
    return (trm_callback){.on_begin = metrics_begin,
                          .on_step_end = metrics_step,
                          .on_evaluated = metrics_evaluated,
                          .on_end = metrics_end,
                          .destroy = metrics_destroy,
                          .context = m};
}

/* ---- TensorBoard ----------------------------------------------------------------------------- */

/* State of trm_tensorboard. */
typedef struct board {
    trm_tensorboard_options options; /* directory: a copy */
    char *directory, together[64];
    trm_events *events;
    bool warned;
} board;

/* Opens an event file on rank 0 and writes the graph into it, except after a resume. */
static trm_status board_begin(void *context, const trm_progress *p, trm_error *err) {
    board *b = context;
    if (trmi_model_rank(p->model) != 0 || b->events != NULL) {
        return TRM_OK; /* rank 0 writes */
    }
    const trm_events_options options = {.resumed = p->global_step > 0,
                                        .resume_step = (int64_t)p->global_step};
    TRMI_TRY(trm_events_open(b->directory, &options, &b->events, err));
    if (!b->options.graph || p->global_step > 0) {
        return TRM_OK;
    }
    return warn_once(&b->warned, trmi_graph_event(trm_model_graph(p->model, NULL), b->events, err),
                     err);
}

/* Writes loss, learning rate and speed every `every_steps` steps and at the end of an epoch. */
static trm_status board_step(void *context, const trm_progress *p, trm_error *err) {
    board *b = context;
    if (b->events == NULL ||
        (p->global_step % (uint64_t)b->options.every_steps != 0 && p->step != p->epoch_steps)) {
        return TRM_OK;
    }
    const trm_named_scalar values[] = {{"train/loss", (double)p->loss},
                                       {"train/learning_rate", p->learning_rate},
                                       {"train/images_per_second", speed_of(p)}};
    return warn_once(&b->warned,
                     trm_events_scalars(b->events, (int64_t)p->global_step, values, 3, err), err);
}

/* Writes the figures of an evaluation as scalars "eval/...". */
static trm_status board_evaluated(void *context, const trm_progress *p, trm_error *err) {
    board *b = context;
    const trm_evaluation *e = p->evaluation;
    if (b->events == NULL) {
        return TRM_OK;
    }
    trm_named_scalar values[4 + TRM_MAX_METRICS] = {{"eval/loss", e->loss}};
    char names[TRM_MAX_METRICS][80];
    int64_t count = 1;
    if (e->has_top) {
        values[count++] = (trm_named_scalar){"eval/top1", e->top1};
        values[count++] = (trm_named_scalar){"eval/top5", e->top5};
    }
    if (e->has_auc) {
        values[count++] = (trm_named_scalar){"eval/auc", e->auc};
    }
    if (e->has_tokens) {
        values[count++] = (trm_named_scalar){"eval/perplexity", e->perplexity};
    }
    if (e->has_accuracy) {
        values[count++] = (trm_named_scalar){"eval/accuracy", e->accuracy};
    }
    for (int32_t i = 0; i < e->metric_count; i++) {
        snprintf(names[i], sizeof names[i], "eval/%s", e->metrics[i].name);
        values[count++] = (trm_named_scalar){names[i], e->metrics[i].value};
    }
    return warn_once(&b->warned,
                     trm_events_scalars(b->events, (int64_t)p->global_step, values, count, err),
                     err);
}

/* Writes the histogram of one parameter, which is copied in plain layout first. */
static trm_status write_histogram(board *b, const trm_progress *p, int32_t index, trm_error *err) {
    trm_exec *exec = trm_model_exec(p->model);
    trm_variable v = trm_exec_variable(exec, index);
    trm_tensor t = {.dtype = v.dtype, .shape = v.shape};
    t.data = trmi_alloc((size_t)trm_tensor_bytes(&t));
    if (t.data == NULL) {
        return TRMI_NO_MEMORY(err, "for a histogram of %s", v.name);
    }
    trm_exec_read(exec, index, t.data);
    trm_status status = trm_events_histogram(b->events, (int64_t)p->global_step, v.name, &t, err);
    trmi_free(t.data);
    return status;
}

/* Writes the histograms of all parameters every `histogram_epochs` epochs. Where a plan cuts
 * parameters, all ranks take part in gathering them, also those that write nothing. */
static trm_status board_epoch(void *context, const trm_progress *p, trm_error *err) {
    board *b = context;
    if (b->options.histogram_epochs <= 0 || p->epoch % b->options.histogram_epochs != 0) {
        return TRM_OK;
    }
    trm_exec *exec = trm_model_exec(p->model);
    if (trmi_batch_form_of(&p->model->options.exec.parallel).graph_ranks > 1) {
        TRMI_TRY(trm_exec_gather(exec, err));
    }
    if (b->events == NULL) {
        return TRM_OK;
    }
    trm_status status = TRM_OK;
    for (int32_t i = 0; status == TRM_OK && i < trm_exec_variable_count(exec); i++) {
        if (trm_exec_variable(exec, i).kind == TRM_VARIABLE_PARAMETER) {
            status = write_histogram(b, p, i, err);
        }
    }
    return warn_once(&b->warned, status, err);
}

/* Closes the event file at the end of training; an error is logged as others are. */
static trm_status board_end(void *context, const trm_progress *p, trm_error *err) {
    (void)p;
    board *b = context;
    trm_events *events = b->events;
    b->events = NULL;
    return warn_once(&b->warned, trm_events_close(events, err), err);
}

static void board_destroy(void *context) {
    board *b = context;
    (void)!trm_events_close(b->events, NULL);
    trmi_free(b->directory);
    trmi_free(b);
}

/* Contract in trireme/train.h. */
trm_callback trm_tensorboard(const trm_tensorboard_options *options) {
    TRMI_NEED_OR(trmi_callback_unusable(), NULL, options);
    if (options->directory == NULL || options->every_steps < 0 || options->histogram_epochs < 0) {
        return trmi_callback_unusable();
    }
    board *b = trmi_alloc(sizeof *b);
    char *copy = copy_text(options->directory);
    if (b == NULL || copy == NULL) {
        trmi_free(b);
        trmi_free(copy);
        return trmi_callback_no_memory();
    }
    b->options = *options;
    b->options.every_steps = options->every_steps > 0 ? options->every_steps : 100;
    b->directory = copy;
    snprintf(b->together, sizeof b->together, "histograms every %lld epochs",
             (long long)options->histogram_epochs);
    return (trm_callback){.on_begin = board_begin,
                          .on_step_end = board_step,
                          .on_epoch_end = board_epoch,
                          .on_evaluated = board_evaluated,
                          .on_end = board_end,
                          .destroy = board_destroy,
                          .context = b,
                          .together = options->histogram_epochs > 0 ? b->together : NULL};
}
