/* SPDX-License-Identifier: Apache-2.0 */
/* The newest state of the ranks becomes the state of all (contracts in elastic_state.h):
 *
 *   each rank declares   its step, which parts it has, its position in the data
 *   some rank is whole   it sends its state to the others
 *   none is whole        parts of the newest step are put together (join_parts)
 *   parts are missing    the newest step that is complete counts
 *
 * The declarations are exchanged first, so all ranks decide alike without a leader; what takes a
 * communicator is a collective of the new set of ranks. Memory for a copy of the whole state is
 * taken by a thread beside the computation (make_copy), because its pages take long to come. */
#include "train/elastic_state.h"

#include "base/error.h"
#include "base/memory.h"
#include "comm/api/communicator.h"

/* Contract in elastic_state.h. Declarations are plain structs; all ranks run the same program. */
trm_status trmi_elastic_declare(trm_comm *comm, const trmi_declaration *mine,
                                trmi_declaration **out, trm_error *err) {
    void *all;
    trm_status status = trmi_elastic_gather(comm, mine, sizeof *mine, &all, err);
    *out = all;
    return status;
}

void trmi_elastic_drop_whole(trmi_elastic_model *e) {
    if (e->shared.data != NULL) {
        trmi_shm_segment_release(&e->shared);
    } else {
        trmi_free(e->kept);
    }
    e->kept = NULL;
    e->valid = false;
}

void trmi_elastic_unshare_whole(trmi_elastic_model *e) {
    if (e->shared.data != NULL) {
        trmi_elastic_drop_whole(e);
    }
}

/* Runs the thread that takes the memory. */
static void *make_copy(void *context) {
    trmi_elastic_model *e = context;
    e->kept = trmi_alloc((size_t)e->kept_bytes);
    return NULL;
}

void trmi_elastic_prepare_copy(trmi_elastic_model *e) {
    if (!e->making && e->kept == NULL) {
        e->making = pthread_create(&e->maker, NULL, make_copy, e) == 0;
    }
}

void trmi_elastic_await_copy(trmi_elastic_model *e) {
    if (e->making) {
        pthread_join(e->maker, NULL);
        e->making = false;
    }
}

/* Contract in elastic_state.h. A rank receives into new memory while it has a state of its own: if
 * the giver dies in the middle, the old one is still whole. */
trm_status trmi_elastic_hand_over(trmi_elastic_model *e, trm_comm *comm, int32_t source,
                                  trm_error *err) {
    const bool gives = trm_comm_rank(comm) == source;
    trmi_elastic_position at = e->at;
    char *kept = e->kept;
    if (kept == NULL || (e->valid && !gives)) {
        TRMI_TRY(TRMI_NEW(err, kept, e->kept_bytes, "for a copy of the model"));
    }
    trm_status status = trm_comm_broadcast(comm, &at, (int64_t)sizeof at, TRM_UINT8, source, err);
    status = status == TRM_OK
                 ? trm_comm_broadcast(comm, kept, e->kept_bytes, TRM_UINT8, source, err)
                 : status;
    if (status == TRM_OK && kept != e->kept) {
        trmi_elastic_drop_whole(e);
        e->kept = kept;
    }
    if (status == TRM_OK) {
        e->at = at;
        e->valid = true;
    } else if (kept != e->kept) {
        trmi_free(kept);
    }
    return status;
}

/* Puts the whole state together where the ranks have parts of a newer one than any has whole.
 * Leaves everything as it is where parts are missing. `all`: of all ranks. */
static trm_status join_parts(trmi_elastic_model *e, trm_comm *comm, const trmi_declaration *all,
                             trm_error *err) {
    const int32_t size = trm_comm_size(comm);
    int64_t step = -1, whole = -1;
    int32_t source = -1;
    bool complete = false;
    for (int32_t i = 0; i < size; i++) {
        const trmi_copies_owner *parts = &all[i].parts;
        whole = all[i].step > whole ? all[i].step : whole;
        step = trmi_copies_has_parts(parts) && (step < 0 || parts->newest < step) ? parts->newest
                                                                                  : step;
    }
    bool all_have_it = step > whole;
    for (int32_t i = 0; i < size; i++) {
        const trmi_copies_owner *parts = &all[i].parts;
        all_have_it = all_have_it && (!trmi_copies_has_parts(parts) || parts->newest == step ||
                                      parts->older == step);
    }
    if (!all_have_it) {
        return TRM_OK;
    }
    trmi_copies_owner *owners;
    char *kept = NULL;
    trmi_shm_segment shared = {0};
    trmi_elastic_position at = {0};
    TRMI_TRY(TRMI_NEW(err, owners, size, "for %d ranks", size));
    for (int32_t i = 0; i < size; i++) {
        owners[i] = all[i].parts;
        source = source < 0 && trmi_copies_has_parts(&owners[i]) ? i : source;
    }
    trm_status status = TRM_OK;
    if (trmi_copies_has_all(owners, size)) {
        status = trmi_comm_make_segment(comm, (size_t)e->kept_bytes + 1, &shared, err);
        kept = (char *)(void *)shared.data;
    }
    if (status == TRM_OK && kept == NULL) {
        status = TRMI_NEW(err, kept, e->kept_bytes + 1, "for a copy of the model");
    }
    const trmi_whole_state state = {.step = step,
                                    .begins = e->begins,
                                    .words = e->kept_bytes / 4,
                                    .data = kept,
                                    .shared = shared.data != NULL};
    status = status == TRM_OK ? trmi_copies_join(&e->copies, comm, owners, &state, &complete, err)
                              : status;
    if (status == TRM_OK && complete) {
        const int32_t mine = trmi_copies_find(&e->copies, step);
        at = mine >= 0 ? e->copies.at[mine] : at;
        status = trm_comm_broadcast(comm, &at, (int64_t)sizeof at, TRM_UINT8, source, err);
        at = mine >= 0 ? e->copies.at[mine] : at; /* trmi_elastic_take_newest compares them */
    }
    trmi_free(owners);
    if (status == TRM_OK && complete) {
        trmi_elastic_drop_whole(e);
        e->kept = kept;
        e->shared = shared;
        e->at = at;
        e->valid = true;
    } else if (shared.data != NULL) {
        trmi_shm_segment_release(&shared);
    } else {
        trmi_free(kept);
    }
    return status;
}

/* Returns whether any rank keeps parts. */
static bool has_any_parts(const trmi_declaration *all, int32_t size) {
    bool any = false;
    for (int32_t i = 0; i < size; i++) {
        any = any || trmi_copies_has_parts(&all[i].parts);
    }
    return any;
}

/* Declares what this rank has.   owns  caller: trmi_free(*out) */
static trm_status declare_state(const trmi_elastic_model *e, trm_comm *comm, trmi_declaration **out,
                                trm_error *err) {
    const trmi_declaration mine = {.step = e->valid ? (int64_t)e->at.step : -1,
                                   .epoch = e->at.epoch,
                                   .epoch_step = e->at.epoch_step,
                                   .epoch_samples = e->at.epoch_samples,
                                   .bytes = e->kept_bytes,
                                   .hooked = (int64_t)e->hooked_step,
                                   .told = (int64_t)e->told_step,
                                   .reached = e->reached,
                                   .parts = trmi_copies_describe(&e->copies)};
    return trmi_elastic_declare(comm, &mine, out, err);
}

/* Returns whether the hooks of step `step`, the newest of the ranks, are to run again. A rank that
 * comes anew, or was spare, has not reached the step and had no hooks to run. */
static bool are_hooks_due(const trmi_declaration *all, int32_t size, int64_t step) {
    bool told = false, missed = false;
    for (int32_t i = 0; i < size; i++) {
        told = told || all[i].told == step;
        missed = missed || (all[i].reached >= step && all[i].hooked != step);
    }
    return !told || missed;
}

/* Contract in elastic_state.h. Every rank declares the step of its state, and a rank with the
 * newest one sends it to the others. Ranks with the newest step may differ in their position in
 * the data; the earliest position counts. */
trm_status trmi_elastic_take_newest(trmi_elastic_model *e, trm_comm *comm, bool *hooks_due,
                                    int64_t *newest, trm_error *err) {
    trmi_declaration *all;
    TRMI_TRY(declare_state(e, comm, &all, err));
    if (has_any_parts(all, trm_comm_size(comm))) {
        trm_status status = join_parts(e, comm, all, err);
        trmi_free(all);
        TRMI_TRY(status);
        TRMI_TRY(declare_state(e, comm, &all, err));
    }
    int32_t source = 0, size = trm_comm_size(comm);
    bool equal = true;
    for (int32_t i = 0; i < size; i++) {
        equal = equal && all[i].step == all[0].step && all[i].bytes == all[0].bytes;
        source = all[i].step > all[source].step ? i : source;
    }
    /* `best` is the state that counts. Its position in the data is taken from the rank that has
     * come least far into the epoch, so that no sample of it is left out. */
    const trmi_declaration best = all[source];
    trmi_declaration first = best;
    for (int32_t i = 0; i < size; i++) {
        if (all[i].step == best.step &&
            (all[i].epoch < first.epoch ||
             (all[i].epoch == first.epoch && all[i].epoch_step < first.epoch_step))) {
            first = all[i];
        }
    }
    *hooks_due = best.step > 0 && are_hooks_due(all, size, best.step);
    bool same_size = best.bytes == e->kept_bytes;
    trmi_free(all);
    *newest = best.step;
    if (best.step < 0) {
        return TRM_OK;
    }
    if (!same_size) {
        return TRMI_FAIL(
            err, TRM_IO,
            "the ranks have other variables; --resume continues the job from its newest "
            "checkpoint");
    }
    if (!equal) {
        TRMI_TRY(trmi_elastic_hand_over(e, comm, source, err));
    }
    /* hooks of the step run again from the position at which the step ended, which is part of the
     * state */
    e->at.epoch = *hooks_due ? e->at.ended.epoch : first.epoch;
    e->at.epoch_step = *hooks_due ? e->at.ended.epoch_step : first.epoch_step;
    e->at.epoch_samples = *hooks_due ? e->at.ended.epoch_samples : first.epoch_samples;
    e->samples = e->at.samples;
    e->blocks = e->at.blocks;
    e->rank_samples = e->at.rank_samples;
    e->asked.batch = (trm_batch_scope)e->at.batch;
    e->norm_groups = e->at.norm_groups;
    return TRM_OK;
}
