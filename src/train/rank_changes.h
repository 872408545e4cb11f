/* SPDX-License-Identifier: Apache-2.0 */
/* train/rank_changes.h: what a model does when the ranks of its job die, leave or join, behind one
 * interface.
 *
 *        trm_model_create          takes  settle  [the graph is compiled]  open     where that fails: go_alone
 *        trm_model_load, _resume   puts_off  batch  rank_batch
 *        trm_model_save            rank_batch
 *        trm_model_train           check_joined  check_data  schedule_steps  deal_data
 *          each epoch              epoch_steps
 *          each step               learning_rate  begin_step  compare_times  end_step  [hooks]  note_hooks  is_due
 *          between two steps       begin_change
 *          the end                 finish
 *          a failure               go_on
 *
 * One table is for ranks that stay as they are (rank_changes.c): a death ends the job. The other
 * one is for elastic jobs (elastic.c). train.c and model.c name neither. All functions are there. A
 * table has no state of its own: an elastic job keeps it in model->elastic. */
#ifndef TRMI_TRAIN_RANK_CHANGES_H
#define TRMI_TRAIN_RANK_CHANGES_H

#include "train/gradient_sink.h"

/* The interface; no member is NULL. */
typedef struct trmi_rank_changes {
    const char *name;
    bool stay; /* all ranks stay to the end of a run */

    /* ---- a model ---- */

    /* Returns whether this table serves a model with these options. The first one that does is
     * used. */
    bool (*takes)(const trm_model_options *options);
    /* Checks the options of the model, and settles those that depend on its ranks.
     *   errors  INVALID: a way of training that cannot change its number of ranks; NOMEM */
    trm_status (*settle)(trm_model *model, trm_error *err);
    /* Makes the state of the model, once it is compiled. `alone`: by this process alone, after
     * go_alone, in a job of so many ranks; else 0.   errors  INVALID, NOMEM */
    trm_status (*open)(trm_model *model, int32_t alone, trm_error *err);
    void (*close)(trm_model *model);
    /* The ranks have not made their models, because of `status`. OK: a rank has died; this process
     * leaves the others and can make the model for itself. The ranks meet when they train
     * (check_joined); their models have the same initial values. *ranks: of the job.
     *   errors  `status`, with err as it is: the failure is none of a rank; those of
     *          trm_comm_create */
    trm_status (*go_alone)(const trm_model_options *options, trm_status status, int32_t *ranks,
                           trm_error *err);
    /* A collective in which the ranks compare what each of them has read failed with `status`:
     * returns whether this rank goes on with what it has read, because a rank has died. The ranks
     * that are left compare their states when they train. */
    bool (*puts_off)(trm_status status, const trm_error *why);
    /* Makes this rank leave after the step. Returns false if it cannot leave the others. Called by
     * signal handlers. */
    bool (*request_leave)(trm_model *model);
    /* Returns the samples of a batch of all ranks. */
    int64_t (*batch)(const trm_model *model);
    /* Returns those of them that a rank keeps where the others change. */
    int64_t (*rank_batch)(const trm_model *model);
    /* Returns whether this rank waits without samples. */
    bool (*is_spare)(const trm_model *model);

    /* ---- a run ---- */

    /* Before a run.   errors  PEER: this process has come to a job that runs, or has made its model
     * alone, or for fewer ranks than the job was to begin with; it begins with go_on */
    trm_status (*check_joined)(trmi_run *run, trm_error *err);
    /* Checks that the dataset can be dealt out to another number of ranks.   errors  INVALID */
    trm_status (*check_data)(const trmi_run *run, trm_error *err);
    /* Returns the steps of the current epoch: `steps`, those of ranks that stay as they are, or
     * another number where ranks change. */
    int64_t (*epoch_steps)(const trmi_run *run, int64_t steps);
    /* Returns the steps of an epoch as the schedule of the learning rate counts them. */
    int64_t (*schedule_steps)(const trmi_run *run);
    /* Deals the samples out that the current epoch has left, where other numbers of ranks have used
     * the first ones: run->batch becomes the batch of the data that comes next.   errors  those of
     * trmi_dataset_deal */
    trm_status (*deal_data)(trmi_run *run, trm_error *err);
    /* Returns the learning rate of the next step. */
    double (*learning_rate)(const trmi_run *run);
    /* Before a step: tells the other ranks, with the step, whether a rank wants to leave or to
     * join, and keeps what a forward pass changes.   errors  those of a collective */
    trm_status (*begin_step)(trmi_run *run, trm_error *err);
    /* After a step, in which this rank waited for data for `data_seconds`: the ranks compare their
     * times.
     *   errors  those of trm_comm_run */
    trm_status (*compare_times)(trm_model *model, double step_seconds, double data_seconds,
                                trm_error *err);
    /* After a step, before its hooks: keeps what only this rank has.   errors  those of a collective
     */
    trm_status (*end_step)(trmi_run *run, trm_error *err);
    /* After the on_step_end hooks of a step. */
    void (*note_hooks)(trmi_run *run);
    /* Returns whether a rank wanted to leave or to join in the last step; all ranks get the same
     * answer. */
    bool (*is_due)(const trmi_run *run);
    /* Between two steps, when a change is due. OK: fewer ranks would be left than the job needs, so
     * the run stops (run->stop).   errors  PEER: the run goes on with other ranks (go_on) */
    trm_status (*begin_change)(trmi_run *run, trm_error *err);
    /* After the run: the ranks meet, and spare ranks get the final state. A spare rank waits here
     * while the others train. *ended: status of the run, on a spare rank that of the others.
     *   errors  PEER, TIMEOUT: the run must go on (go_on) */
    trm_status (*finish)(trmi_run *run, trm_status *ended, trm_error *err);
    /* After a failure `status`, `err`, or when ranks leave or join: returns OK when the run can go
     * on from its beginning. Repeats itself while ranks die.   errors  the failure, if it is none
     * that other ranks remove; those of trm_elastic_recover; END: this rank has left, its model has
     * the state for itself */
    trm_status (*go_on)(trmi_run *run, trm_status status, trm_error *err);
} trmi_rank_changes;

/* rank_changes.c: returns the table of a model with these options; never NULL. */
const trmi_rank_changes *trmi_rank_changes_of(const trm_model_options *options);

#endif
