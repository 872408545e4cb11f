/* SPDX-License-Identifier: Apache-2.0 */
/* train/gradient_sink.h: where batches come from and where gradients go, behind one interface.
 *
 *      trm_model_create    takes  check  prepare  [the graph is compiled]  bind
 *      trm_model_train     find  seek
 *        each step         stage  begin  [forward, backward]  push
 *        each epoch        epoch_is_over  next_epoch
 *        the end           flush
 *
 * The optimiser of the executor is one sink (sink_local.c); parameter servers are others
 * (estimator/sink_servers.c). train.c and model.c know none of them by name: the table is
 * sinks.c. */
#ifndef TRMI_TRAIN_GRADIENT_SINK_H
#define TRMI_TRAIN_GRADIENT_SINK_H

#include "train/diverge.h"
#include "train/model.h"

struct trmi_pace;

/* One call of trm_model_train. */
typedef struct trmi_run {
    trm_model *model;
    const trm_train_options *options;
    const struct trmi_gradient_sink *sink;
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
    struct trmi_pace *pace; /* NULL with one rank */
    struct trmi_profile *profile;
    struct trmi_trace *trace; /* the profile's; NULL without one */
    trmi_divergence divergence;
    bool finish;  /* a hook asked to stop, or there were enough steps */
    bool used_up; /* no batch is left in any epoch */
} trmi_run;

typedef struct trmi_gradient_sink {
    const char *name;
    bool updates;       /* the optimiser is there, and the executor has none */
    bool others_suffer; /* gradients reach other workers: a run whose loss is lost must end */

    /* ---- a model ---- */

    /* Is this the sink of a model with these options? */
    bool (*takes)(const trm_model_options *options);
    /* NULL: nothing to check.   error  INVALID: options that this sink cannot serve */
    trm_status (*check)(const trm_model_options *options, trm_error *err);
    /* Before the training graph is compiled: may take parts of it out. NULL: as it is. */
    trm_status (*prepare)(trm_model *model, trm_graph *graph, trm_error *err);
    /* After it is compiled. NULL: nothing to do.   error  INVALID, PEER, TIMEOUT */
    trm_status (*bind)(trm_model *model, trm_error *err);
    void (*destroy)(trm_model *model);

    /* ---- a run ---- */

    /* Where the job is, if the sink knows: model->epoch, model->epoch_step, run->ahead. NULL: as
     * the model says. */
    trm_status (*find)(trmi_run *run, trm_error *err);
    /* Brings the data to the run's batch. */
    trm_status (*seek)(trmi_run *run, trm_error *err);
    /* Reads the next batch and asks for its rows, where that decides whether the epoch goes on.
     * NULL: `begin` reads. */
    trm_status (*stage)(trmi_run *run, trm_error *err);
    bool (*epoch_is_over)(const trmi_run *run);
    /* The next batch and all that its forward pass reads are in the program's memory. */
    trm_status (*begin)(trmi_run *run, trm_error *err);
    /* The step's gradients to the optimiser, and the executor's step to the job's.
     *   error  DIVERGED: a loss or gradient that is not finite */
    trm_status (*push)(trmi_run *run, trm_error *err);
    /* Waits until all pushes are applied. NULL: they are when `push` returns. */
    trm_status (*flush)(trmi_run *run, trm_error *err);
    /* model->epoch has begun: the data to its first batch. */
    trm_status (*next_epoch)(trmi_run *run, trm_error *err);
    uint64_t (*steps_done)(const trmi_run *run);
    /* May gradients be of older values than those that they change? NULL: no. */
    bool (*is_late)(const trm_model *model);
} trmi_gradient_sink;

/* sinks.c: the sink of a model with these options. */
const trmi_gradient_sink *trmi_gradient_sink_of(const trm_model_options *options);

/* ---- run.c: what sinks use of a run ---- */

/* The dataset's next batch; the time counts as waiting. */
trm_status trmi_run_read(trmi_run *run, const trm_batch **batch, trm_error *err);
/* Counts a batch that is about to be used.   error  INTERNAL: it is not the one that is due */
trm_status trmi_run_use(trmi_run *run, int64_t epoch, int64_t index, int64_t samples,
                        trm_error *err);
/* Adds to the timeline, if there is one, what lasted from `begin` until now. */
void trmi_run_record(const trmi_run *run, const char *category, const char *name, double begin);
/* DIVERGED, with the run's loss and step. */
trm_status trmi_run_diverged(const trmi_run *run, trm_error *err);

#endif
