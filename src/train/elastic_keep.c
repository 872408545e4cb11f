/* SPDX-License-Identifier: Apache-2.0 */
/* The state of one rank of an elastic job, outside of its executor (contracts in elastic_state.h):
 *
 *   begin_step: mark what forward changes --> forward, backward, update --> end_step: keep parts
 *   capture:    after a failure or a wish: the whole, from the executor and what was marked
 *   restore:    the kept state, into the model of the next epoch
 *
 * Invariant: `kept` and `at` are a state only while `valid`, and the parts of a step while their
 * generation has its number. */
#include "train/elastic_state.h"

#include "trireme/dist.h"

#include "base/error.h"
#include "base/memory.h"
#include "comm/rendezvous/elastic.h"
#include "exec/exec.h"

#include <string.h>

/* Copies variables between the executor and memory in which they lie one after the other, in the
 * order of their names: all, or those that a forward pass changes. */
static void copy_variables(const trmi_elastic_model *e, trm_exec *exec, bool states_only,
                           bool write, char *memory) {
    for (int32_t k = 0; k < e->variables; k++) {
        const int32_t i = e->sorted[k];
        trm_variable v = trm_exec_variable(exec, i);
        const trm_tensor t = {.dtype = v.dtype, .shape = v.shape};
        if (states_only && v.kind != TRM_VARIABLE_STATE) {
            continue;
        }
        if (write) {
            trm_exec_write(exec, i, memory);
        } else {
            trm_exec_read(exec, i, memory);
        }
        memory += trm_tensor_bytes(&t);
    }
}

/* Returns whether this rank has a part of the state only. */
static bool has_parts(const trm_model *model) {
    return trmi_model_comm(model) != NULL && trmi_elastic_has_parts(model);
}

/* Returns whether a step is under way: its position is not noted yet. */
static bool is_in_step(const trmi_run *r) {
    const trmi_elastic_model *e = r->model->elastic;
    return e->begun_epoch == r->model->epoch && e->begun_epoch_step == r->model->epoch_step;
}

/* Returns the steps whose updates this rank has applied. A step that it has marked counts, also
 * where a failure came before the executor has counted it. */
static uint64_t count_updates(const trmi_run *r) {
    const trmi_elastic_copies *c = &r->model->elastic->copies;
    const uint64_t counted = trm_exec_step(r->model->train.exec);
    const int64_t marked = c->on ? c->steps[c->newest] : -1;
    return marked > (int64_t)counted ? (uint64_t)marked : counted;
}

/* Notes the end of the last step, from which its hooks can be run again. */
static trmi_elastic_step_end note_end(const trmi_run *r, const trmi_elastic_position *at) {
    const trmi_elastic_model *e = r->model->elastic;
    return e->ended.step == at->step
               ? e->ended
               : (trmi_elastic_step_end){.step = at->step,
                                         .epoch = at->epoch,
                                         .epoch_step = at->epoch_step,
                                         .epoch_samples = at->epoch_samples,
                                         .samples = e->samples * trmi_accumulate(r->model),
                                         .rate = r->progress.learning_rate};
}

/* Notes where the training is: between two steps, or in one whose update was applied. */
static void note_position(const trmi_run *r, trmi_elastic_position *at) {
    const trm_model *model = r->model;
    const trmi_elastic_model *e = model->elastic;
    memset(at, 0, sizeof *at);
    at->step = count_updates(r);
    at->samples = e->samples;
    at->blocks = e->blocks;
    at->rank_samples = e->rank_samples;
    at->norm_groups = e->norm_groups;
    at->batch = (int32_t)e->asked.batch;
    at->first_ranks = model->first_ranks;
    const bool updated = is_in_step(r) && at->step > e->begun_step;
    at->epoch = model->epoch;
    at->epoch_step = model->epoch_step + updated;
    at->epoch_samples = model->epoch_samples + (updated ? e->samples * trmi_accumulate(model) : 0);
    at->loss = updated ? r->progress.loss : model->loss;
    at->ended = note_end(r, at);
    at->data_samples = model->data_samples;
    at->notes_count = model->notes_count;
    memcpy(at->notes, model->notes, sizeof at->notes);
    (void)trm_exec_get_loss_scale(model->train.exec, &at->scale);
}

trm_status trmi_elastic_keep_whole(trmi_run *r, trm_error *err) {
    trmi_elastic_model *e = r->model->elastic;
    if (e->kept == NULL) {
        TRMI_TRY(TRMI_NEW(err, e->kept, e->kept_bytes, "for a copy of the model"));
    }
    note_position(r, &e->at);
    copy_variables(e, r->model->train.exec, false, false, e->kept);
    e->valid = true;
    return TRM_OK;
}

trm_status trmi_elastic_gather_whole(trmi_run *r, trm_error *err) {
    TRMI_TRY(trm_exec_gather(r->model->train.exec, err));
    return trmi_elastic_keep_whole(r, err);
}

/* Keeps the parts of the state, where ranks have parts, unless this rank has done so after the last
 * step. Once all ranks have them, what was kept whole is not needed any more. */
static trm_status keep_parts(trmi_run *r, trm_error *err) {
    trmi_elastic_model *e = r->model->elastic;
    const uint64_t step = trm_exec_step(r->model->train.exec);
    if (!e->copies.on || trmi_copies_find(&e->copies, (int64_t)step) >= 0) {
        return TRM_OK;
    }
    TRMI_TRY(trmi_copies_keep(&e->copies, trmi_model_comm(r->model), step, err));
    trmi_elastic_drop_whole(e);
    return TRM_OK;
}

trm_status trmi_elastic_end_step(trmi_run *r, trm_error *err) {
    trmi_elastic_model *e = r->model->elastic;
    trmi_elastic_position now;
    e->ended.step = UINT64_MAX; /* of a step that is done again, too */
    note_position(r, &now);
    e->ended = now.ended;
    return keep_parts(r, err);
}

/* A rank that leaves does so after this step. One more step is made before a process joins: all
 * ranks learn with the first one that it waits, and make the memory for their states beside the
 * second one. */
static void raise_wishes(trmi_elastic_model *e, trm_exec *exec) {
    const bool leaves = trmi_elastic_count_leavers(e->job, 0) > 0;
    const bool joins = !leaves && trm_elastic_wants_change(e->job);
    const bool known = trmi_exec_flagged(exec, TRMI_FLAG_JOIN);
    if (known && !e->copies.on) { /* parts are kept with each step */
        trmi_elastic_prepare_copy(e);
    }
    trmi_exec_set_flag(exec, TRMI_FLAG_JOIN, joins);
    trmi_exec_set_flag(exec, TRMI_FLAG_RANKS, leaves || (joins && known));
}

trm_status trmi_elastic_begin_step(trmi_run *r, trm_error *err) {
    trmi_elastic_model *e = r->model->elastic;
    trm_exec *exec = r->model->train.exec;
    raise_wishes(e, exec);
    TRMI_TRY(keep_parts(r, err));
    e->begun_epoch = -1;
    note_position(r, &e->copies.at[e->copies.newest]);
    e->begun_step = trm_exec_step(exec);
    e->begun_epoch = r->model->epoch;
    e->begun_epoch_step = r->model->epoch_step;
    if (!e->copies.on) { /* parts have them */
        copy_variables(e, exec, true, false, e->marked);
    }
    return TRM_OK;
}

/* Contract in elastic_state.h. A step whose update was not applied leaves no trace: what its
 * forward pass changed is taken back. A step whose update was applied counts, also where the loop
 * has not noted it yet. Where ranks have parts, these are kept already; where a failure came after
 * the last of them, the position of that step may have moved on. */
trm_status trmi_elastic_capture(trmi_run *r, trm_error *err) {
    trm_model *model = r->model;
    trmi_elastic_model *e = model->elastic;
    trm_exec *exec = model->train.exec;
    trm_membership m;
    trm_elastic_get_membership(e->job, &m);
    const bool joins = m.epoch == 0; /* it has none */
    if (!joins && exec != NULL && !e->spare && trmi_model_rank(model) == 0) {
        e->told_step = e->hooked_step;
    }
    if (joins && exec != NULL && !e->valid) { /* before the others wait for it */
        trmi_elastic_prepare_copy(e);
    }
    trmi_elastic_await_copy(e);
    if (e->valid || exec == NULL || joins) {
        e->reached = e->valid ? (int64_t)e->at.step : 0;
        return TRM_OK;
    }
    const uint64_t step = count_updates(r);
    e->interrupted = is_in_step(r) && step == e->begun_step;
    e->reached = (int64_t)step + e->interrupted;
    if (e->copies.on) {
        const int32_t g = trmi_copies_find(&e->copies, (int64_t)step);
        if (g >= 0) {
            note_position(r, &e->copies.at[g]);
        }
        return TRM_OK;
    }
    if (e->interrupted) {
        copy_variables(e, exec, true, true, e->marked);
    }
    return trmi_elastic_keep_whole(r, err);
}

/* Contract in elastic_state.h. Where ranks have parts, trmi_elastic_open_parts writes the
 * variables. */
trm_status trmi_elastic_restore(trm_model *model, trm_error *err) {
    trmi_elastic_model *e = model->elastic;
    const trmi_elastic_position *at = &e->at;
    trm_loss_scale_state own;
    if (!has_parts(model)) {
        copy_variables(e, model->train.exec, false, true, e->kept);
    }
    trm_exec_set_step(model->train.exec, at->step);
    model->epoch = at->epoch;
    model->epoch_step = at->epoch_step;
    model->epoch_samples = at->epoch_samples;
    model->loss = at->loss;
    model->data_samples = at->data_samples;
    model->notes_count = at->notes_count;
    memcpy(model->notes, at->notes, sizeof at->notes);
    e->begun_epoch = -1;
    e->ended = at->ended;
    return trm_exec_get_loss_scale(model->train.exec, &own)
               ? trm_exec_set_loss_scale(model->train.exec, &at->scale, err)
               : TRM_OK;
}

/* Contract in elastic_state.h. The whole is kept until the first step begins. */
trm_status trmi_elastic_open_parts(trmi_run *r, trm_error *err) {
    trmi_elastic_model *e = r->model->elastic;
    trm_comm *comm = trmi_model_comm(r->model);
    trm_exec *exec = r->model->train.exec;
    trmi_copies_close(&e->copies);
    if (!has_parts(r->model)) {
        return TRM_OK;
    }
    if (!e->valid) {
        TRMI_TRY(trmi_elastic_gather_whole(r, err));
        return trmi_copies_open(&e->copies, exec, comm, e->order, err);
    }
    TRMI_TRY(trmi_copies_open(&e->copies, exec, comm, e->order, err));
    trmi_copies_fill(&e->copies, exec, e->order, e->begins, e->kept);
    return TRM_OK;
}
