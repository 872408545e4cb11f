/* SPDX-License-Identifier: Apache-2.0 */
/* The memory of an optimiser's slots: its own, or lent by the caller so that other ranks reach it.
 *
 *      lent memory    first half [slot0 | slot1]    second half [slot0 | slot1]
 *      no turns       read, written                 not touched
 *      turns, run 1   read ------------------------> written
 *      run 2          written <--------------------- read
 *
 * With turns no run changes a slot that it reads. A process that dies at any instruction of a run
 * leaves the slots from before the run whole, in the half that the run reads; the half that it
 * writes has words of both steps, and is not read until a run has completed it. Slots move
 * together: one flag tells in which half they are, and it changes when all blocks of this rank are
 * written. A run that returns before its blocks (a gradient is not finite; FTRL with a rate of
 * zero) leaves it.
 *
 * Other files get addresses of slots from trmi_update_slot, the pass over blocks from
 * trmi_update_find_turn; update_sparse.c and update_factors.c use those that take no turns. */
#include "exec/optimizer/update_state.h"

#include "base/checked.h"
#include "base/error.h"
#include "base/memory.h"
#include "comm/shm/shared_buffers.h"

#include <string.h>

/* ---- first values, and memory of the caller -------------------------------------------------- */

/* Writes the first values of slots that do not begin with zero, by all threads: of large tables the
 * first use of the pages takes longest. */
static void fill_slots(trmi_update *u) {
    bool accumulates = u->options.kind == TRM_ADAGRAD || u->options.kind == TRM_FTRL;
    const float first = (float)u->options.initial_accumulator;
    if (!accumulates || !(first > 0)) {
        return;
    }
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < u->count; i++) {
        u->slots[0][i] = first;
    }
}

trm_status trmi_update_make_slots(trmi_update *u, trm_error *err) {
    for (int32_t s = 0; s < u->slots_count; s++) {
        u->slots[s] = trmi_map((size_t)u->count * sizeof(float));
        if (u->slots[s] == NULL) {
            return TRMI_NO_MEMORY(err, "for %.1f MB of optimiser slots",
                                  (double)u->count * 4 * u->slots_count / 1e6);
        }
    }
    fill_slots(u);
    return TRM_OK;
}

/* Returns the bytes from one slot to the next in memory that the caller lends. */
static size_t slot_stride(const trmi_update *u) {
    return trmi_map_resident((size_t)u->count * sizeof(float));
}
size_t trmi_update_lent_bytes(const trmi_update *u) {
    return 2 * (size_t)u->slots_count * slot_stride(u);
}

/* Visits the slots of this rank's blocks, or of the others, in ranges as long as possible: so whole
 * huge pages fit in. With turns only those of blocks that take them. */
static void visit_ranges(trmi_update *u, bool own, bool second,
                         void (*visit)(trmi_update *u, float *slots, int64_t count)) {
    for (int64_t i = 0, end; i < u->blocks_count; i = end + 1) {
        for (end = i; end < u->blocks_count && trmi_update_is_mine(u, end) == own &&
                      (!u->takes_turns || trmi_update_is_in_turns(u, u->blocks[end].segment));) {
            end++;
        }
        for (int32_t s = 0; s < u->slots_count && end > i; s++) {
            const int64_t from = u->blocks[i].offset,
                          count = u->blocks[end - 1].offset + u->blocks[end - 1].count - from;
            visit(u, trmi_update_half(u, second)[s] + from, count);
        }
    }
}

/* Allocates the pages of a range. */
static void fill_range(trmi_update *u, float *slots, int64_t count) {
    (void)u;
    trmi_comm_fill_shared(slots, (size_t)count * sizeof(float));
}

/* Contract in update.h. The own memory of the slots is given back first. */
void trmi_update_lend_slots(trmi_update *u, void *memory) {
    for (int32_t s = 0; s < u->slots_count; s++) {
        trmi_unmap(u->slots[s], (size_t)u->count * sizeof(float));
        u->slots[s] = (float *)(void *)((char *)memory + (size_t)s * slot_stride(u));
        u->seconds[s] =
            (float *)(void *)((char *)memory + (size_t)(u->slots_count + s) * slot_stride(u));
    }
    u->borrows_slots = true;
    visit_ranges(u, true, false, fill_range);
    fill_slots(u);
}

/* ---- slots that take turns ------------------------------------------------------------------- */

const void *trmi_update_memory(const trmi_update *u) { return u->slots[0]; }

bool trmi_update_in_second(const trmi_update *u) { return u->in_second; }

/* Gives the pages of a range back. */
static void release_range(trmi_update *u, float *slots, int64_t count) {
    (void)u;
    trmi_release_pages(slots, (size_t)count * sizeof(float));
}

/* Copies a range of the second half to its place in the first. */
static void bring_range(trmi_update *u, float *slots, int64_t count) {
    memcpy(u->slots[0] + (slots - u->seconds[0]), slots, (size_t)count * sizeof(float));
}

void trmi_update_take_turns(trmi_update *u, bool on) {
    if (on && u->seconds[0] != NULL && !u->takes_turns) {
        u->takes_turns = true;
        visit_ranges(u, true, true, fill_range);
    } else if (!on && u->takes_turns) {
        if (u->in_second) {
            visit_ranges(u, true, true, bring_range);
        }
        visit_ranges(u, true, true, release_range);
        visit_ranges(u, false, true, release_range);
        u->takes_turns = u->in_second = u->gathered[1] = false;
    }
}

/* Gives back the pages of gathered slots in one half. */
static void drop_gathered(trmi_update *u, bool second) {
    if (u->gathered[second]) {
        visit_ranges(u, false, second, release_range);
        u->gathered[second] = false;
    }
}

void trmi_update_begin_gather(trmi_update *u) {
    if (u->takes_turns) {
        drop_gathered(u, !u->in_second);
    }
    u->gathered[u->in_second] = true;
}

void trmi_update_drop_gathered(trmi_update *u) {
    drop_gathered(u, false);
    drop_gathered(u, true);
}

trmi_slot_turn trmi_update_find_turn(const trmi_update *u, int64_t offset) {
    float *const *from = trmi_update_half(u, u->in_second), *const *to =
                                                                trmi_update_half(u, !u->in_second);
    trmi_slot_turn turn = {0};
    for (int32_t s = 0; s < u->slots_count && u->takes_turns; s++) {
        turn.from[s] = from[s] + offset;
        turn.to[s] = to[s] + offset;
    }
    return turn;
}
