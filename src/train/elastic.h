/* SPDX-License-Identifier: Apache-2.0 */
/* train/elastic.h: a model that goes on training when ranks die, leave or join (docs/internals/elastic.md).
 *
 *   step s:  mark --> forward, backward, update (commit of s on this rank) --> hooks
 *   a failure anywhere:  capture -> next epoch of the job -> hand over the newest state -> compile
 *                        for the new number of ranks -> write the state -> go on
 *   a wish to leave, or a process that waits to join:
 *                        all ranks learn of it with the loss of a step -> the same, after that step
 *   a process that joins compiles the model for itself -> next epoch -> as above, without a state
 *
 * Each rank holds the whole state: parameters, slots, running statistics, position. A step is
 * committed once one survivor has applied its update: gradients are complete on a rank that updates,
 * so its state is that of the step. The newest state of the survivors is everybody's.
 *
 * *Active* ranks share the samples of a step in equal parts. Where the number of ranks does not divide
 * the samples (strict determinism: the blocks), the last ranks are *spare*: they wait, and take part
 * again when a later epoch has a place for them. */
#ifndef TRMI_TRAIN_ELASTIC_H
#define TRMI_TRAIN_ELASTIC_H

#include "train/gradient_sink.h"

/* Sets the ranks of an elastic model, and checks its options; does nothing for other models.
 *   error  INVALID: a way of training that cannot change its number of ranks */
trm_status trmi_elastic_attach(trm_model *model, trm_error *err);
/* Makes the state of an elastic model, once it is compiled. `alone`: by this process alone, after
 * trmi_elastic_go_alone, in a job of so many ranks; else 0. */
trm_status trmi_elastic_open(trm_model *model, int32_t alone, trm_error *err);
/* A rank has died while the ranks made their models, which failed with `status`: this process leaves the epoch
 * and can make the model for itself. The ranks meet when they train (trmi_elastic_check_joined); their
 * models have the same initial values. *ranks: of the epoch.
 *   error  `status`, with err as it is: the job is not elastic, or the failure is none of a rank; those of
 *          trm_comm_create */
trm_status trmi_elastic_go_alone(const trm_model_options *options, trm_status status,
                                 int32_t *ranks, trm_error *err);
/* A collective in which the ranks of the model compare what each of them has read failed with `status`: returns
 * whether this rank goes on with what it has read, because a rank of the elastic job has died. The ranks that
 * are left compare their states when they train. */
bool trmi_elastic_puts_off(const trm_model *model, trm_status status, const trm_error *why);
void trmi_elastic_close(trm_model *model);

/* Before a step: keeps the variables that a forward pass changes, and the position. */
void trmi_elastic_mark(trmi_run *run);
/* After the on_step_end hooks of a step. */
void trmi_elastic_note_hooks(trmi_run *run);
/* Checks that the dataset can be dealt out to another number of ranks.   error  INVALID */
trm_status trmi_elastic_check_data(const trmi_run *run, trm_error *err);
/* Returns the steps of an epoch: `steps`, but in an elastic job at most those of whole batches of all
 * ranks, so that the number does not depend on how many ranks share the data. */
int64_t trmi_elastic_epoch_steps(const trmi_run *run, int64_t steps);
/* Makes this rank leave after the step. Returns false if the model is of no elastic job. Called by
 * signal handlers. */
bool trmi_elastic_request_leave(trm_model *model);
/* Before a run.   error  PEER: this process has come to a job that runs, or has made its model alone; it
 * begins with trmi_elastic_go_on */
trm_status trmi_elastic_check_joined(const trmi_run *run, trm_error *err);
/* Before a step: tells the other ranks, with the step, whether a rank wants to leave or to join. */
void trmi_elastic_raise_wish(trmi_run *run);
/* Returns whether a rank wanted to leave or to join in the last step; all ranks get the same answer. */
bool trmi_elastic_is_change_due(const trmi_run *run);
/* Between two steps, when a change is due. OK: fewer ranks would be left than the job needs, so the run
 * stops (run->stop).   error  PEER: the run goes on with other ranks (trmi_elastic_go_on) */
trm_status trmi_elastic_begin_change(trmi_run *run, trm_error *err);
/* Returns whether this rank waits without samples. */
bool trmi_elastic_is_spare(const trm_model *model);
/* After a failure `err`, or when ranks leave or join: returns OK when the run can go on from its beginning
 * (begin_run). Repeats itself while ranks die.   error  the failure, if it is none of a rank; those of
 * trm_elastic_recover; END: this rank has left, its model has the state for itself */
trm_status trmi_elastic_go_on(trmi_run *run, trm_status status, trm_error *err);
/* After the run: the ranks meet, and spare ranks get the final state. A spare rank waits here while
 * the others train. *ended: status of the run, on a spare rank that of the others.
 *   error  PEER, TIMEOUT: the run must go on (trmi_elastic_go_on) */
trm_status trmi_elastic_finish(trmi_run *run, trm_status *ended, trm_error *err);

#endif
