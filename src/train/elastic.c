/* SPDX-License-Identifier: Apache-2.0 */
/* A model that goes on training when ranks die, leave or join: the table of elastic jobs (contracts
 * in rank_changes.h; docs/internals/elastic.md).
 *
 *   step s:  mark --> forward, backward, update (commit of s on this rank) --> hooks
 *   a failure anywhere:  capture -> next epoch of the job -> hand over the newest state -> compile
 *                        for the new number of ranks -> write the state -> go on
 *   a wish to leave, or a process that waits to join:
 *                        all ranks learn of it with the loss of a step -> the same, after that step
 *   a process that joins compiles the model for itself -> next epoch -> as above, without a state
 *
 * Data parallel each rank holds the whole state: parameters, slots, running statistics, position. A
 * step is committed once one survivor has applied its update: gradients are complete on a rank that
 * updates, so its state is that of the step. The newest state of the survivors is that of all.
 * Other ways of training have parts of it on each rank; these are kept after each step, here and on
 * another rank (elastic_copies.h). Where a part is lost with both, the newest checkpoint serves.
 *
 * *Active* ranks share the samples of a step in equal parts. Where the number of ranks does not
 * divide the samples (strict determinism: the blocks), the last ranks are *spare*: they wait, and
 * take part again when a later epoch has a place for them. */
#include "train/elastic_state.h"
#include "train/rank_changes.h"

#include "trireme/dist.h"

#include "base/error.h"
#include "base/kept_mappings.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/os.h"
#include "comm/api/communicator.h"
#include "comm/rendezvous/elastic.h"
#include "data/pipeline/dataset.h"
#include "exec/distributed/batches.h"
#include "exec/exec.h"

#include <stdio.h>
#include <string.h>

/* The functions of the table of elastic jobs (contracts in rank_changes.h). Notes that the hooks of
 * this step have run, so that a step which is done again does not run them twice. */
static void note_hooks(trmi_run *r) {
    r->model->elastic->hooked_step = trm_exec_step(r->model->train.exec);
}

/* The hooks of the step with which the run begins, if any, were those of another run. */
static void note_all_hooks(trmi_run *r) {
    note_hooks(r);
    r->model->elastic->told_step = r->model->elastic->hooked_step;
}

/* Checks that the data can be divided anew when ranks change. */
static trm_status check_data(const trmi_run *r, trm_error *err) {
    trm_dataset *data = r->options->data;
    trmi_elastic_group_data(r->model, data, trmi_model_size(r->model));
    return !data->sharded && data->order.window <= 1
               ? TRM_OK
               : TRMI_FAIL(
                     err, TRM_INVALID,
                     "the data of an elastic model are dealt out anew when ranks die: leave %s "
                     "out",
                     data->sharded ? "trm_dataset_shard"
                                   : "the window of trm_dataset_shuffle, which mixes the "
                                     "samples of one rank,");
}

/* ---- samples and rates ----------------------------------------------------------------------- */

static int64_t count_batch(const trm_model *model) { return model->elastic->samples; }

static int64_t count_rank_batch(const trm_model *model) { return model->elastic->rank_samples; }

/* Returns the steps that are done, and those of whole batches of all ranks in what is left. The
 * number does not depend on how many ranks share a batch. */
static int64_t count_epoch_steps(const trmi_run *r, int64_t steps) {
    const trm_model *model = r->model;
    const int64_t left = trm_dataset_sample_count(r->options->data) - model->epoch_samples;
    (void)steps;
    return model->epoch_step + left / (model->elastic->samples * trmi_accumulate(model));
}

/* Divides what is left of the epoch among the ranks that are there now. */
static trm_status deal_data(trmi_run *r, trm_error *err) {
    const trm_model *model = r->model;
    return model->first_ranks == 0 ? TRM_OK
                                   : trmi_dataset_deal(r->options->data, model->epoch,
                                                       model->epoch_samples, &r->batch, err);
}

/* Returns the samples of a step of the ranks with which the training began. */
static int64_t first_step_samples(const trm_model *model) {
    const trmi_elastic_model *e = model->elastic;
    return trmi_accumulate(model) *
           (model->first_ranks > 0 ? e->rank_samples * model->first_ranks : e->samples);
}

/* Returns the steps of an epoch by which the learning rate is scheduled: those of the first
 * ranks. */
static int64_t count_schedule_steps(const trmi_run *r) {
    return trm_dataset_sample_count(r->options->data) / first_step_samples(r->model);
}

/* Where each rank keeps its batch, the rate grows with the samples of a step (the linear scaling
 * rule of Goyal et al., arXiv 1706.02677), and the schedule goes on with the samples. A sum of the
 * ranks' gradients grows by itself. */
static double rate_of_step(const trmi_run *r) {
    const trm_model *model = r->model;
    if (model->first_ranks == 0) {
        return trm_learning_rate_at(&r->rate, trm_exec_step(model->train.exec));
    }
    const int64_t at =
        model->epoch * count_schedule_steps(r) + model->epoch_samples / first_step_samples(model);
    const double scale = model->options.exec.parallel.sum
                             ? 1
                             : (double)(model->elastic->samples * trmi_accumulate(model)) /
                                   (double)first_step_samples(model);
    return scale * trm_learning_rate_at(&r->rate, (uint64_t)at);
}

/* ---- ranks that leave or join ---------------------------------------------------------------- */

/* Checks that the ranks that have met are those for which the model was made; else their common
 * part must be divided anew, as after a death. */
static trm_status check_joined(trmi_run *r, trm_error *err) {
    trm_membership m;
    trm_elastic_get_membership(r->model->elastic->job, &m);
    const trm_model *model = r->model;
    TRMI_TRY(trmi_elastic_describe(r->model, r->options->data, err));
    if (m.rank >= 0) {
        note_all_hooks(r);
    }
    const bool whole = model->elastic->samples == model->train.batch * trmi_model_shares(model);
    const bool met = m.rank >= 0 && !model->elastic->alone;
    if (met && whole) {
        return trmi_elastic_open_parts(r, err);
    }
    if (met && trmi_model_comm(model) != NULL &&
        trmi_elastic_has_parts(model)) { /* no rank leaves before all have the whole */
        TRMI_TRY(trmi_elastic_gather_whole(r, err));
        TRMI_TRY(trm_comm_barrier(trmi_model_comm(model), err));
    }
    trm_status status =
        TRMI_FAIL(err, TRM_PEER, "%s",
                  m.rank < 0 ? "this process is in no epoch of the job"
                             : "ranks have died before the job began: the others share their part");
    err->rank = -1;
    return status;
}

/* Returns whether ranks change after this step. With other ranks the answer came with their loss,
 * so that all ranks have the same one. */
static bool is_due(const trmi_run *r) {
    return trmi_model_comm(r->model) != NULL
               ? trmi_exec_flagged(r->model->train.exec, TRMI_FLAG_RANKS)
               : trm_elastic_wants_change(r->model->elastic->job);
}

/* No rank leaves the epoch before all have come to the end of the step: the sum is a barrier. */
static trm_status begin_change(trmi_run *r, trm_error *err) {
    trmi_elastic_model *e = r->model->elastic;
    trm_comm *comm = trmi_model_comm(r->model);
    /* spare ranks have told rank 0 */
    int64_t leavers = trmi_elastic_count_leavers(e->job, comm != NULL ? trm_comm_size(comm) : 1);
    const trm_collective sum = {.kind = TRM_ALLREDUCE,
                                .recv = &leavers,
                                .count = 1,
                                .dtype = TRM_INT64,
                                .reduce = TRM_REDUCTION_SUM,
                                .tag = "ranks that leave"};
    TRMI_TRY(comm != NULL ? trm_comm_run(comm, &sum, err) : TRM_OK);
    note_all_hooks(r);
    if (!trmi_elastic_may_lose(e->job, leavers)) {
        r->stop = true;
        return TRM_OK;
    }
    /* a rank that leaves keeps the model; else the parts of one host are whole together */
    const bool whole = leavers > 0 || e->copies.shared.data == NULL;
    TRMI_TRY(e->copies.on && whole ? trmi_elastic_gather_whole(r, err) : TRM_OK);
    trm_status status = TRMI_FAIL(err, TRM_PEER, "the ranks change after step %llu",
                                  (unsigned long long)trm_exec_step(r->model->train.exec));
    err->rank = -1; /* of none */
    return status;
}

/* ---- a new number of ranks ------------------------------------------------------------------- */

/* Frees what belongs to the ranks of the old epoch. */
static void drop_programs(trmi_run *r) {
    trm_model *model = r->model;
    trmi_elastic_model *e = model->elastic;
    trmi_compiled_free(&model->evaluate);
    trmi_compiled_free(&model->train);
    trm_comm_destroy(e->active);
    e->active = NULL;
    model->options.exec.parallel.comm = NULL;
}

/* Makes the batch and the blocks of all ranks those of `active` ranks, where each keeps its own. */
static void follow_ranks(trm_model *model, int32_t active) {
    trmi_elastic_model *e = model->elastic;
    if (model->first_ranks > 0) {
        const int64_t block = e->blocks > 0 ? e->samples / e->blocks : 0;
        e->samples = e->rank_samples * trmi_elastic_parts(e, active);
        e->blocks = block > 0 ? e->samples / block : 0;
        /* else it is chosen anew for the batch of all ranks, and need not divide a rank's */
        model->options.exec.parallel.block = block;
    }
}

/* Compiles the model for the ranks of `comm`; NULL: for this process alone. active: the ranks of
 * the job that share a step. */
static trm_status compile_model(trmi_run *r, trm_comm *comm, int32_t active, trm_error *err) {
    trm_model *model = r->model;
    trmi_elastic_model *e = model->elastic;
    trm_parallel_options *p = &model->options.exec.parallel;
    const int32_t ranks = comm != NULL ? trm_comm_size(comm) : 1;
    follow_ranks(model, active);
    p->comm = comm;
    p->batch = e->asked.batch;
    TRMI_TRY(trmi_elastic_fit(model, ranks, err));
    trmi_batches_settle(p);
    model->options.exec.choices_file = NULL; /* of programs of another batch */
    model->options.exec.initialise = e->valid ? TRM_OFF : TRM_DEFAULT;
    TRMI_TRY(trmi_dataset_rebatch(r->options->data, e->samples / trmi_model_shares(model), err));
    trmi_elastic_group_data(model, r->options->data, ranks);
    TRMI_TRY(trmi_model_share_data(model, r->options->data, true, err));
    TRMI_TRY(trmi_compile(model, r->options->data, true, &model->train, err));
    TRMI_TRY(trmi_elastic_sort(e, model->train.exec, err));
    return e->valid ? trmi_elastic_restore(model, err) : TRM_OK;
}

/* Compiles the model for the ranks of the present epoch. A spare rank compiles it for itself: it
 * has the state and computes nothing. */
static trm_status compile_epoch(trmi_run *r, trm_error *err) {
    trmi_elastic_model *e = r->model->elastic;
    trm_comm *all = trm_elastic_comm(e->job);
    int32_t active = trmi_elastic_count_active(r->model, trm_comm_size(all));
    e->alone = false;
    e->spare = trm_comm_rank(all) >= active;
    e->stale = e->stale || e->spare; /* also where it fails before it knows that all have begun */
    if (active < trm_comm_size(all)) {
        TRMI_TRY(trm_comm_split(all, e->spare ? -1 : 0, 0, &e->active, err));
        trmi_comm_wait_long(all); /* spare ranks wait in it until the others have trained */
    }
    return compile_model(r, e->spare ? NULL : e->active != NULL ? e->active : all, active, err);
}

/* The parts of the way to the next epoch, and where each ended (trmi_os_now). */
enum { MEETING, STATE, PROGRAM, PARTS, CHANGE_PARTS };
/* When the parts of a change ended, for the report. */
typedef struct change_times {
    double begin, ends[CHANGE_PARTS];
} change_times;

/* Reports the new epoch to callbacks and log. */
static void report_epoch(trmi_run *r, int64_t newest, const change_times *times) {
    trmi_elastic_model *e = r->model->elastic;
    trm_elastic_get_membership(e->job, &r->membership);
    r->membership.seconds = trmi_os_now() - times->begin;
    r->membership.redone_steps = e->reached > newest ? (int32_t)(e->reached - newest) : 0;
    r->membership.restored_step = e->restored;
    r->membership.spare_ranks =
        r->membership.ranks - trmi_elastic_count_active(r->model, r->membership.ranks);
    r->progress.membership = &r->membership;
    r->progress.global_step = (uint64_t)newest; /* a spare rank or a newcomer has not made it */
    trmi_log(TRM_LOG_INFO, "train",
             "epoch %lld of the job: rank %d of %d%s, lost [%s], left [%s], joined [%s]; goes on "
             "after step %llu "
             "(%.2f s: decide and meet until %.2f, state %.2f, program %.2f, parts %.2f)",
             (long long)r->membership.epoch, r->membership.rank, r->membership.ranks,
             e->spare ? " (spare)" : "", r->membership.lost, r->membership.left,
             r->membership.joined, (unsigned long long)newest, r->membership.seconds,
             times->ends[MEETING] - times->begin, times->ends[STATE] - times->begin,
             times->ends[PROGRAM] - times->begin, times->ends[PARTS] - times->begin);
}

/* What a rank knows of the checkpoints of the job. Sent as bytes. */
typedef struct checkpoints {
    char directory[4096]; /* empty: nothing */
    int64_t step;         /* of the newest; -1: there is none, -2: no directory is known */
    int64_t samples, blocks, rank_samples;
    int32_t norm_groups, batch; /* as in trmi_elastic_position */
} checkpoints;

/* Finds the directory of the job's checkpoints for all ranks: the lowest of those that know the
 * newest checkpoint tells the others. Collective. */
static trm_status find_checkpoints(trmi_run *r, checkpoints *out, trm_error *err) {
    const trmi_elastic_model *e = r->model->elastic;
    trm_comm *comm = trm_elastic_comm(e->job);
    const char *own = r->checkpoints != NULL && strlen(r->checkpoints) < sizeof out->directory
                          ? r->checkpoints
                          : "";
    *out = (checkpoints){.samples = e->samples,
                         .blocks = e->blocks,
                         .rank_samples = e->rank_samples,
                         .norm_groups = e->norm_groups,
                         .batch = (int32_t)e->asked.batch};
    snprintf(out->directory, sizeof out->directory, "%s", own);
    if (own[0] == '\0') {
        out->step = -2;
    } else if (trm_checkpoint_latest(own, &out->step, NULL) != TRM_OK) {
        out->step = -1;
    }
    int64_t newest = out->step;
    TRMI_TRY(trm_comm_allreduce(comm, &newest, 1, TRM_INT64, TRM_REDUCTION_MAX, err));
    int32_t rank = out->step == newest ? trm_comm_rank(comm) : INT32_MAX;
    TRMI_TRY(trm_comm_allreduce(comm, &rank, 1, TRM_INT32, TRM_REDUCTION_MIN, err));
    return trm_comm_broadcast(comm, out, (int64_t)sizeof *out, TRM_UINT8, rank, err);
}

/* Takes the batches of a job whose state is lost.
 *   errors  IO: no rank knows checkpoints */
static trm_status take_batches(trmi_elastic_model *e, const checkpoints *from, trm_error *err) {
    if (from->step == -2) {
        return TRMI_FAIL(
            err, TRM_IO,
            "no rank that is left has the state of the model, or knows checkpoints of it; "
            "--resume continues the job from its newest checkpoint");
    }
    e->samples = from->samples;
    e->blocks = from->blocks;
    e->rank_samples = from->rank_samples;
    e->norm_groups = from->norm_groups;
    e->asked.batch = (trm_batch_scope)from->batch;
    return TRM_OK;
}

/* Sets *out if only spare ranks and new ones are left: their state is that with which the epoch
 * began, and a checkpoint may be newer. Collective. */
static trm_status are_all_stale(const trmi_elastic_model *e, bool *out, trm_error *err) {
    int32_t active = !e->stale;
    TRMI_TRY(trm_comm_allreduce(trm_elastic_comm(e->job), &active, 1, TRM_INT32, TRM_REDUCTION_MAX,
                                err));
    *out = active == 0;
    return TRM_OK;
}

/* Notes that the model has the state of a checkpoint of step *newest. */
static void note_restored(trmi_elastic_model *e, int64_t newest) {
    e->begun_epoch = -1;
    e->ended.step = UINT64_MAX;
    e->restored = newest;
}

/* The newest checkpoint of the job serves for a state that is lost. *newest: its step. */
static trm_status resume_epoch(trmi_run *r, const checkpoints *from, int64_t *newest,
                               trm_error *err) {
    trm_status status = r->resume(r->model, from->directory, err);
    if (status == TRM_END) {
        return TRMI_FAIL(
            err, TRM_IO,
            "no rank that is left has the state of the model, and %s has no checkpoint "
            "yet; start the job again",
            from->directory);
    }
    TRMI_TRY(status);
    *newest = (int64_t)trm_exec_step(r->model->train.exec);
    note_restored(r->model->elastic, *newest);
    return TRM_OK;
}

/* Reads a checkpoint that is newer than the state of step *newest which the ranks have. Where not
 * all can read it, that state is written again. Collective. */
static trm_status prefer_checkpoint(trmi_run *r, const checkpoints *from, int64_t *newest,
                                    bool *hooks_due, trm_error *err) {
    trm_model *model = r->model;
    trmi_elastic_model *e = model->elastic;
    trm_error why = {.message = "another rank cannot read it"};
    const int64_t samples = model->resumed_samples;
    trm_status status = r->resume(model, from->directory, &why);
    const int64_t step = status == TRM_OK ? (int64_t)trm_exec_step(model->train.exec) : -1;
    int64_t least_most[2] = {step, -step};
    TRMI_TRY(trm_comm_allreduce(trm_elastic_comm(e->job), least_most, 2, TRM_INT64,
                                TRM_REDUCTION_MIN, err));
    if (least_most[0] > *newest && least_most[0] == -least_most[1]) {
        trmi_elastic_drop_whole(e);
        *newest = step;
        *hooks_due = false;
        note_restored(e, step);
        return TRM_OK;
    }
    trmi_log(TRM_LOG_WARN, "train",
             "the ranks go on with their state of step %lld, not the checkpoint of step %lld: %s",
             (long long)*newest, (long long)from->step, why.message);
    model->resumed_samples = samples;
    model->first_ranks = e->at.first_ranks;
    return trmi_elastic_restore(model, err);
}

/* Tries once to begin the next epoch of the job, and the model in it. */
static trm_status begin_epoch(trmi_run *r, const trm_error *cause, bool *hooks_due, int64_t *newest,
                              change_times *times, trm_error *err) {
    trmi_elastic_model *e = r->model->elastic;
    checkpoints from;
    drop_programs(r);
    TRMI_TRY(trm_elastic_recover(e->job, cause, err));
    trm_membership now;
    trm_elastic_get_membership(e->job, &now);
    if (now.stays) { /* the next step then ends the job (begin_change) */
        trm_elastic_request_leave(e->job);
    }
    times->ends[MEETING] = trmi_os_now();
    TRMI_TRY(trmi_elastic_admit(r->model, r->options, trm_elastic_comm(e->job), err));
    TRMI_TRY(trmi_elastic_take_newest(e, trm_elastic_comm(e->job), hooks_due, newest, err));
    const bool lost = *newest < 0;
    bool stale = lost;
    TRMI_TRY(lost ? TRM_OK : are_all_stale(e, &stale, err));
    TRMI_TRY(stale ? find_checkpoints(r, &from, err) : TRM_OK);
    times->ends[STATE] = trmi_os_now();
    e->restored = 0;
    TRMI_TRY(lost ? take_batches(e, &from, err) : TRM_OK);
    r->model->first_ranks = lost ? r->model->first_ranks : e->at.first_ranks;
    TRMI_TRY(compile_epoch(r, err));
    if (lost) {
        TRMI_TRY(resume_epoch(r, &from, newest, err));
    } else if (stale && from.step > *newest) {
        TRMI_TRY(prefer_checkpoint(r, &from, newest, hooks_due, err));
    }
    times->ends[PROGRAM] = trmi_os_now();
    TRMI_TRY(trmi_elastic_open_parts(r, err));
    times->ends[PARTS] = trmi_os_now();
    return trm_comm_barrier(trm_elastic_comm(e->job), err);
}

/* Makes the run begin with the hooks of step `newest`, which see what they saw after the step, or
 * notes that they have run. Where the run begins at the end of an epoch, the hooks of the epoch are
 * still to come. */
static void set_hooks_due(trmi_run *r, bool due, uint64_t newest) {
    trmi_elastic_model *e = r->model->elastic;
    const trmi_elastic_step_end *ended = &e->ended;
    const bool over = count_epoch_steps(r, 0) <= r->model->epoch_step;
    r->hooks_due = due;
    e->hooked_step = due && !e->spare ? newest - 1 : newest;
    e->told_step = due || over ? newest - 1 : newest;
    if (due) {
        r->progress.learning_rate = ended->rate;
        r->progress.step_samples = ended->samples;
    }
}

/* Contract in rank_changes.h. Captures this rank's state, then meets the other ranks until an epoch
 * begins: a rank that dies meanwhile makes the meeting fail, and it begins again without that
 * rank. Other errors end the training; those of a process that comes, for want of memory or
 * descriptors, end this process alone: the others lose it, as if it had died. */
static trm_status go_on(trmi_run *r, trm_status status, trm_error *err) {
    trmi_elastic_model *e = r->model->elastic;
    if (!trm_elastic_can_recover(status)) {
        return status;
    }
    change_times times = {.begin = trmi_os_now()};
    bool hooks_due = false;
    int64_t newest = 0;
    trm_error cause = *err;
    trm_membership before;
    trm_elastic_get_membership(e->job, &before);
    e->stale = e->spare || before.epoch == 0;
    e->comes = before.epoch == 0;
    TRMI_TRY(trmi_elastic_capture(r, err));
    TRMI_TRY(trmi_elastic_begin_change(e->job, err));
    trmi_keep_mappings(true); /* of the old programs, for the new ones */
    do {
        status = begin_epoch(r, &cause, &hooks_due, &newest, &times, err);
        status = trmi_elastic_excuse_newcomer(e->job, status, err);
        cause = *err;
    } while (trm_elastic_can_recover(status) && trm_elastic_comm(e->job) != NULL);
    trmi_keep_mappings(false);
    trmi_elastic_end_change(e->job);
    if (status != TRM_OK && before.epoch == 0) {
        drop_programs(r); /* so that trm_model_train ends no communicator of the others */
    }
    if (status == TRM_END) { /* this rank has left: the model is its own from now on */
        trm_error why = *err;
        TRMI_TRY(compile_model(r, NULL, 1, err));
        *err = why;
    }
    if (status == TRM_OK) {
        /* With parts the whole is valid until the ranks have kept them. A spare rank trains
         * nothing, so its copy stays right until the ranks change again, and need not be made then
         * while the others wait. */
        if (!e->copies.on && !e->spare) {
            e->valid = false;
            trmi_elastic_unshare_whole(e);
        }
        r->again = true;
        r->stop = false;
        set_hooks_due(r, hooks_due, (uint64_t)newest);
        r->finish = false;
        report_epoch(r, newest, &times);
    }
    return status;
}

/* ---- the end --------------------------------------------------------------------------------- */

/* Ends training on all ranks together: all learn how rank 0 ended, and spare ranks, which have not
 * trained, receive its state. */
static trm_status finish_run(trmi_run *r, trm_status *ended, trm_error *err) {
    trmi_elastic_model *e = r->model->elastic;
    trmi_elastic_await_copy(e);
    trm_comm *comm = trm_elastic_comm(e->job);
    trmi_declaration *all, mine = {.step = -1, .ended = e->spare ? 1 : (int32_t)*ended};
    if (comm == NULL || trm_comm_size(comm) == 1) {
        return TRM_OK;
    }
    TRMI_TRY(e->spare ? TRM_OK : trmi_model_meet_at_end(r->model, err));
    TRMI_TRY(trmi_elastic_declare(comm, &mine, &all, err));
    e->valid = false; /* of a spare rank: the caller may change the model now */
    if (e->spare) {
        trmi_elastic_unshare_whole(e); /* other spare ranks map the same memory */
    }
    *ended = (trm_status)all[0].ended; /* rank 0 is active */
    bool spares = all[trm_comm_size(comm) - 1].ended == 1;
    trmi_free(all);
    if (!spares || (*ended != TRM_OK && *ended != TRM_CANCELLED)) {
        return TRM_OK;
    }
    TRMI_TRY(e->copies.on ? trm_exec_gather(r->model->train.exec, err) : TRM_OK);
    if (trm_comm_rank(comm) == 0) {
        TRMI_TRY(trmi_elastic_keep_whole(r, err));
    }
    TRMI_TRY(trmi_elastic_hand_over(e, comm, 0, err));
    trm_status status = e->spare ? trmi_elastic_restore(r->model, err) : TRM_OK;
    e->valid = false;
    return status;
}

extern const trmi_rank_changes trmi_changes_elastic;
const trmi_rank_changes trmi_changes_elastic = {
    .name = "elastic",
    .takes = trmi_elastic_takes,
    .settle = trmi_elastic_settle,
    .open = trmi_elastic_open,
    .close = trmi_elastic_close,
    .go_alone = trmi_elastic_go_alone,
    .puts_off = trmi_elastic_puts_off,
    .request_leave = trmi_elastic_request_leave,
    .is_spare = trmi_elastic_is_spare,
    .check_joined = check_joined,
    .check_data = check_data,
    .batch = count_batch,
    .rank_batch = count_rank_batch,
    .epoch_steps = count_epoch_steps,
    .schedule_steps = count_schedule_steps,
    .deal_data = deal_data,
    .learning_rate = rate_of_step,
    .begin_step = trmi_elastic_begin_step,
    .end_step = trmi_elastic_end_step,
    .compare_times = trmi_model_compare_ranks,
    .note_hooks = note_hooks,
    .is_due = is_due,
    .begin_change = begin_change,
    .finish = finish_run,
    .go_on = go_on,
};
