/* SPDX-License-Identifier: Apache-2.0 */
/* train/elastic_state.h: what a model of an elastic job keeps (elastic.c).
 *
 *      mark -> forward, backward, update -> hooks         begun_*, marked, hooked_step, told_step
 *      a failure or a wish -> capture                     kept, at, valid
 *      next epoch -> hand over -> compile -> write        asked, samples, blocks, rank_samples
 *
 * `kept` and `at` are a state only while `valid`. Samples and blocks are those of the batch of all
 * ranks; the part of one rank follows from their number. One thread uses the struct, except
 * `maker`, which makes the memory of `kept` while `making`. */
#ifndef TRMI_TRAIN_ELASTIC_STATE_H
#define TRMI_TRAIN_ELASTIC_STATE_H

#include "trireme/dist.h"

#include "base/memory.h"
#include "train/elastic_copies.h"
#include "train/gradient_sink.h"
#include "train/model.h"

#include <pthread.h>

/* The state of an elastic job beside that of the model. */
typedef struct trmi_elastic_model {
    trm_elastic *job;
    trm_parallel_options
        asked; /* of the user; those of the model fit the present number of ranks */
    /* of the variables: their numbers in the order of their names, and the other way round; the
     * word of `kept` with which each begins, in that order. Programs of other ways of training may
     * list them in another order */
    int32_t *sorted, *order;
    int64_t *begins;
    int32_t variables;
    trm_comm *active; /* of the active ranks, where there are spare ones; NULL: all */
    /* of a batch of all ranks. Where each rank keeps its batch (trm_model.first_ranks): of the
     * present number of ranks */
    int64_t samples;
    int64_t blocks;       /* of it (strict determinism); 0: none */
    int64_t rank_samples; /* of a rank's part of it when the training began */
    /* of batch norm (sync_batch_norm of several ranks), where the batch of all ranks stays: they
     * keep their samples; 0: none */
    int32_t norm_groups;
    bool spare, interrupted; /* interrupted: the failure came before the update of its step */
    bool stale; /* this rank has been spare since the ranks began to change, or has just come */
    /* of the step under way */
    uint64_t begun_step;
    int64_t begun_epoch, begun_epoch_step;
    bool alone; /* a member made its model for itself, and meets the others when it trains */
    bool comes; /* this process has come to a job that runs, and is not admitted yet */
    trmi_text described;  /* the job of this process, for those that come (elastic_admit.c) */
    uint64_t hooked_step; /* the last step whose on_step_end hooks have returned */
    /* the last step of which this rank knows that the hooks have returned on rank 0, which reports
     * and saves, also those at the end of its epoch */
    uint64_t told_step;
    trmi_elastic_step_end ended; /* the last step that this rank has counted */
    char *marked; /* the variables that a forward pass changes, one after the other */
    int64_t marked_bytes;
    /* the whole state, between capture and the next step. Where all ranks are on one host, they put
     * it together in one memory (`shared`), else data is NULL and each rank has its own */
    char *kept;
    int64_t kept_bytes;
    trmi_shm_segment shared;
    pthread_t maker; /* makes the memory of `kept` while the ranks train */
    bool making;     /* it has been started; then `kept` is its own until it has ended */
    bool valid;      /* `kept` and `at` are a state */
    trmi_elastic_position at;
    trmi_elastic_copies
        copies; /* where no rank has the whole state, from the first step of an epoch on */
    /* steps that this rank had done or begun at the failure; step of the checkpoint that served; 0
     * = none */
    int64_t reached, restored;
} trmi_elastic_model;

/* A rank's declaration to the others after a membership change, and at the end of a run. */
typedef struct trmi_declaration {
    int64_t step; /* -1: this rank has no state */
    int64_t epoch, epoch_step, epoch_samples, bytes;
    int64_t hooked, told, reached; /* as in trmi_elastic_model */
    int32_t ended;                 /* status of the run; 1: it has not ended */
    trmi_copies_owner parts;
} trmi_declaration;

/* elastic_handover.c: gathers the declarations of all ranks.   owns  caller: trmi_free(*out) */
trm_status trmi_elastic_declare(trm_comm *comm, const trmi_declaration *mine,
                                trmi_declaration **out, trm_error *err);
/* Broadcasts the state of `source`. A rank keeps what it has until all of the new state is here:
 * when `source` dies in between, the ranks that had a state still have one. */
trm_status trmi_elastic_hand_over(trmi_elastic_model *elastic, trm_comm *comm, int32_t source,
                                  trm_error *err);
/* Makes the newest state of the ranks the state of all. *hooks_due: the on_step_end hooks of its
 * step have not returned on some rank that has begun it, or no rank knows that they have on the
 * rank 0 of that time, which may have died before. Then the position is that at the end of the
 * step, else the earliest of the ranks with that state: what follows a step (report, evaluation,
 * checkpoint) is repeated rather than left out. Where ranks have parts of a newer state, it is made
 * of them if they are complete. *newest: its step; -1: the state is lost.
 *   errors  IO: the ranks have other variables; those of the collectives */
trm_status trmi_elastic_take_newest(trmi_elastic_model *elastic, trm_comm *comm, bool *hooks_due,
                                    int64_t *newest, trm_error *err);

/* elastic_admit.c: describes the job of this process before a run, for those that come later.
 * errors  NOMEM, those of trmi_dataset_fingerprint */
trm_status trmi_elastic_describe(trm_model *model, const trm_dataset *data, trm_error *err);
/* elastic_admit.c: compares the processes that have come with the ranks of the job, before any
 * state is handed over. One that has another model, other data or other options than the job would
 * train wrong. Collective.
 *   errors  INVALID: this process has come and does not fit; PEER: another one does not, and the
 *          ranks go on without it (err->rank) */
trm_status trmi_elastic_admit(trm_model *model, const trm_train_options *run, trm_comm *comm,
                              trm_error *err);

/* elastic_keep.c: marks the state before a step, from which an interrupted step is done again. */
trm_status trmi_elastic_begin_step(trmi_run *run, trm_error *err);
/* Notes where the step has ended, and keeps the parts that no rank has whole. */
trm_status trmi_elastic_end_step(trmi_run *run, trm_error *err);
/* Keeps the state of this rank outside of the executor, before the ranks change. */
trm_status trmi_elastic_capture(trmi_run *run, trm_error *err);
/* Keeps the whole state outside of the executor, which has it; where ranks have parts, of all of
 * them, between two steps (gather). The second is collective. */
trm_status trmi_elastic_keep_whole(trmi_run *run, trm_error *err);
trm_status trmi_elastic_gather_whole(trmi_run *run, trm_error *err);
/* Writes the kept state into the model; of parts of a state the position only. */
trm_status trmi_elastic_restore(trm_model *model, trm_error *err);
/* Prepares the ranks of a program of which each has parts only: lists the parts, and writes the
 * values of the own one where there is a whole. Collective. */
trm_status trmi_elastic_open_parts(trmi_run *run, trm_error *err);

/* elastic_handover.c: frees the whole state that is kept. */
void trmi_elastic_drop_whole(trmi_elastic_model *elastic);
/* Does so where it is in memory of other ranks, too. */
void trmi_elastic_unshare_whole(trmi_elastic_model *elastic);
/* elastic_handover.c: makes the memory for a copy of the state in the background: pages that are
 * touched for the first time are most of the time that it costs to keep a state. No error: the copy
 * is then made when it is needed. */
void trmi_elastic_prepare_copy(trmi_elastic_model *elastic);
/* Waits until that memory is there, or could not be made. */
void trmi_elastic_await_copy(trmi_elastic_model *elastic);

/* elastic_model.c implements these functions of the table of elastic jobs (rank_changes.h). */
bool trmi_elastic_takes(const trm_model_options *options);
trm_status trmi_elastic_settle(trm_model *model, trm_error *err);
trm_status trmi_elastic_open(trm_model *model, int32_t alone, trm_error *err);
void trmi_elastic_close(trm_model *model);
trm_status trmi_elastic_go_alone(const trm_model_options *options, trm_status status,
                                 int32_t *ranks, trm_error *err);
bool trmi_elastic_puts_off(trm_status status, const trm_error *why);
bool trmi_elastic_request_leave(trm_model *model);
bool trmi_elastic_is_spare(const trm_model *model);
/* elastic_fit.c: sets the options of the model's ways of training to those for `ranks` ranks: as
 * the user has asked where that is possible, else with fewer stages, another mesh, a plan that is
 * searched. */
trm_status trmi_elastic_fit(trm_model *model, int32_t ranks, trm_error *err);
/* Returns how many of `ranks` ranks share a step: the most whose stages have equal ranks that
 * divide its samples and its blocks and have whole groups of batch norm; where each keeps its
 * batch, whose stages have equal ranks. */
int32_t trmi_elastic_count_active(const trm_model *model, int32_t ranks);
/* Returns the parts of a batch that `ranks` active ranks have: one each, in a pipeline one for each
 * rank of a stage. */
int32_t trmi_elastic_parts(const trmi_elastic_model *elastic, int32_t ranks);
/* Returns in how many parts `ranks` ranks read a batch. */
int32_t trmi_elastic_reads(const trmi_elastic_model *elastic, int32_t ranks);
/* Finds the groups of batch norm of the ranks with which the job was to begin.
 *   errors  INVALID: groups that do not divide them, or more than the job has ranks at least */
trm_status trmi_elastic_settle_norms(trm_model *model, trm_error *err);
/* Makes groups of batch norm keep their samples in `data`, which `ranks` ranks share. */
void trmi_elastic_group_data(const trm_model *model, trm_dataset *data, int32_t ranks);
/* Chooses how the ranks of parallel.comm hold the state: in slices where all are processes of one
 * host, else as the user has asked. */
void trmi_elastic_share_state(trm_model *model);
/* Returns whether the ranks of the present program have parts of the state only. */
bool trmi_elastic_has_parts(const trm_model *model);
/* elastic_model.c: finds the order of the variables of a program (trmi_elastic_model.sorted).
 * errors  IO: it has others than the programs before; NOMEM */
trm_status trmi_elastic_sort(trmi_elastic_model *elastic, const trm_exec *exec, trm_error *err);

#endif
