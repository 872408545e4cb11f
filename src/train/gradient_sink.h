/* SPDX-License-Identifier: Apache-2.0 */
/* train/gradient_sink.h: where a training run gets its batches and puts its gradients, behind
 * one interface.
 *
 *        trm_model_create    takes  check  prepare  [the graph is compiled]  bind
 *        trm_model_train     find  seek
 *          each step         stage  begin  [forward, backward]  push
 *          each epoch        epoch_is_over  next_epoch
 *          the end           flush
 *
 * One sink is the optimiser of the executor (sink_local.c); the other sinks use parameter
 * servers (estimator/sink_servers.c, estimator/hybrid.c). train.c and model.c name no particular
 * sink: sinks.c holds the table.
 *
 * A sink has no state of its own. All calls of one run come from the thread that called
 * trm_model_train; a sink keeps its state in the model (model->remote, model->dealt) and in the
 * run. */
#ifndef TRMI_TRAIN_GRADIENT_SINK_H
#define TRMI_TRAIN_GRADIENT_SINK_H

#include "train/diverge.h"
#include "train/model.h"

/* The state of one call of trm_model_train; lives on its stack. */
typedef struct trmi_run {
    trm_model *model;
    const trm_train_options *options; /* the caller's */
    const struct trmi_gradient_sink *sink;
    const struct trmi_rank_changes *changes;
    trm_callback callbacks[TRM_MAX_CALLBACKS];
    int32_t callbacks_count;
    trm_learning_rate rate;    /* the schedule, with its length settled */
    trm_progress progress;     /* what callbacks receive */
    trm_evaluation evaluation; /* the latest; progress.evaluation points to it */
    int64_t batch;             /* index within the epoch of the next batch to read */
    /* Batches by which the data's position is ahead of the steps of this worker: the job was
     * continued with another number of workers. */
    int64_t ahead;
    double begin, epoch_begin; /* clock at the begin of the run, of the epoch */
    struct trmi_profile *profile;
    struct trmi_trace *trace; /* the profile's; NULL without one */
    trmi_divergence divergence;
    bool finish;  /* a hook returned TRM_END, or the step limit is reached */
    bool used_up; /* the servers have no samples left in any epoch */
    /* The ranks of an elastic job have changed: the run has begun again, and the hooks of the last
     * step are to be called once more. */
    bool again, hooks_due;
    bool stop;                 /* ranks want to leave, and too few would be left */
    trm_membership membership; /* of the last change */
    const char *checkpoints;   /* directory in which a callback saves the run; NULL: none does */
    /* trm_model_resume: with it a table of changes makes the model that of a checkpoint */
    trm_status (*resume)(trm_model *model, const char *path, trm_error *err);
} trmi_run;

/* The table of functions of one kind of sink; static and constant (sinks.c). */
typedef struct trmi_gradient_sink {
    const char *name;
    bool updates; /* the sink updates parameters; the executor is made without an optimiser */
    /* each worker was given its samples: no ranks are looked for, the dataset is not shared out */
    bool has_own_data;
    bool others_suffer; /* gradients reach other workers: a run whose loss is lost must end */

    /* ---- a model ---- */

    /* Returns whether this sink serves a model with these options. The first sink of the table
     * that does is used. */
    bool (*takes)(const trm_model_options *options);
    /* Checks the options further. NULL: nothing to check.   errors  INVALID: options that this
     * sink cannot serve */
    trm_status (*check)(const trm_model_options *options, trm_error *err);
    /* Changes the training graph before it is compiled: sinks on servers detach the embedding
     * tables. NULL: no change. */
    trm_status (*prepare)(trm_model *model, trm_graph *graph, trm_error *err);
    /* Connects the compiled program to the sink: tables and variables are declared on the
     * servers. NULL: nothing to do.
     *   errors  INVALID, PEER, TIMEOUT */
    trm_status (*bind)(trm_model *model, trm_error *err);
    void (*destroy)(trm_model *model);
    /* Writes name and size (rows, width) of table `index` of those that the sink holds of the
     * network; false: there are no more. NULL: it holds none. */
    bool (*table)(const trm_model *model, int32_t index, const char **name, int64_t size[2]);

    /* ---- a run ---- */

    /* Sets model->epoch, model->epoch_step and run->ahead to the job's position, where servers
     * keep it. NULL: the model's own position holds. */
    trm_status (*find)(trmi_run *run, trm_error *err);
    /* Moves the dataset to batch run->batch of epoch model->epoch. */
    trm_status (*seek)(trmi_run *run, trm_error *err);
    /* Reads the next batch and requests its rows from the servers, in sinks where reading
     * decides whether the epoch goes on. NULL: `begin` reads the batch. */
    trm_status (*stage)(trmi_run *run, trm_error *err);
    /* Returns whether all steps of the current epoch are done. */
    bool (*epoch_is_over)(const trmi_run *run);
    /* Puts the next batch, and all rows and variables that its forward pass reads, into the
     * program's memory. */
    trm_status (*begin)(trmi_run *run, trm_error *err);
    /* Passes the step's gradients to the optimiser and sets the executor's step number to the
     * job's.
     *   errors  DIVERGED: a loss or gradient that is not finite */
    trm_status (*push)(trmi_run *run, trm_error *err);
    /* Waits until the servers have applied all pushes. NULL: they are applied when `push`
     * returns. */
    trm_status (*flush)(trmi_run *run, trm_error *err);
    /* Moves the dataset to the first batch of epoch model->epoch. */
    trm_status (*next_epoch)(trmi_run *run, trm_error *err);
    /* Returns how many steps the job has made, on all workers. */
    uint64_t (*steps_done)(const trmi_run *run);
    /* Returns whether gradients may be computed from older parameters than those they are
     * applied to (asynchronous servers). NULL: never. */
    bool (*is_late)(const trm_model *model);
} trmi_gradient_sink;

/* sinks.c: returns the sink of a model with these options; never NULL. */
const trmi_gradient_sink *trmi_gradient_sink_of(const trm_model_options *options);

/* ---- feed.c: what sinks use of a run ---- */

/* Returns the dataset's next batch in *batch (borrowed until the next read) and adds the time it
 * took to the seconds of waiting.   errors  those of trm_dataset_next */
trm_status trmi_run_read(trmi_run *run, const trm_batch **batch, trm_error *err);
/* Counts the time since `since` as waiting for data: of the epoch, and of the run. */
void trmi_run_waited(trmi_run *run, double since);
/* Advances run->batch and adds the batch's samples, over all ranks, to the step's.
 *   errors  INTERNAL: batch `index` of `epoch` is not the one that is due */
trm_status trmi_run_use(trmi_run *run, int64_t epoch, int64_t index, int64_t samples,
                        trm_error *err);

#endif
