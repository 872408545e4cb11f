/* SPDX-License-Identifier: Apache-2.0 */
/* The elements of schedules: appending steps, and the blocks that steps move. Used by the
 * generators. A step without elements is left out, on the sender as on the receiver. */
#include "comm/schedule/schedule.h"

#include "base/checked.h"
#include "base/error.h"
#include "base/memory.h"

/* --- steps --- */
/* Appends a step to the present round. Without memory, the schedule is marked as failed and later
 * steps are ignored. */
static void add_step(trmi_builder *b, trmi_schedule_step step) {
    trmi_schedule *out = b->out;
    if (step.count == 0 || out->failed) {
        return;
    }
    if (!trmi_grow((void **)&out->steps, &out->capacity, out->count + 1, sizeof *out->steps)) {
        out->failed = true;
        return;
    }
    step.round = b->round;
    out->steps[out->count++] = step;
}

void trmi_add_send(trmi_builder *b, int32_t peer, trmi_schedule_range from) {
    add_step(b, (trmi_schedule_step){.kind = TRMI_SEND,
                                     .peer = peer,
                                     .from_place = from.place,
                                     .from = from.at,
                                     .count = from.count});
}

void trmi_add_receive(trmi_builder *b, int32_t peer, trmi_schedule_range to) {
    add_step(b, (trmi_schedule_step){.kind = TRMI_RECEIVE,
                                     .peer = peer,
                                     .to_place = to.place,
                                     .to = to.at,
                                     .count = to.count});
}

void trmi_add_reduce(trmi_builder *b, trmi_schedule_range to, trmi_schedule_place from_place,
                     int64_t from) {
    add_step(b, (trmi_schedule_step){.kind = TRMI_REDUCE,
                                     .peer = -1,
                                     .to_place = to.place,
                                     .to = to.at,
                                     .from_place = from_place,
                                     .from = from,
                                     .count = to.count});
}

void trmi_add_sum(trmi_builder *b, trmi_schedule_range to, trmi_schedule_place from_place,
                  int64_t from, int32_t sources, int64_t stride) {
    add_step(b, (trmi_schedule_step){.kind = TRMI_REDUCE,
                                     .peer = -1,
                                     .to_place = to.place,
                                     .to = to.at,
                                     .from_place = from_place,
                                     .from = from,
                                     .count = to.count,
                                     .sources = sources,
                                     .stride = stride});
}

void trmi_add_copy(trmi_builder *b, trmi_schedule_range to, trmi_schedule_place from_place,
                   int64_t from) {
    add_step(b, (trmi_schedule_step){.kind = TRMI_COPY,
                                     .peer = -1,
                                     .to_place = to.place,
                                     .to = to.at,
                                     .from_place = from_place,
                                     .from = from,
                                     .count = to.count});
}

int64_t trmi_take_temp(trmi_builder *b, int64_t count) {
    /* Only the position is known now; the runner allocates the memory. */
    int64_t at = b->out->temp_count;
    b->out->temp_count += count;
    return at;
}

/* --- blocks --- */
/* Returns whether the caller's vector has one block for each rank. */
static bool is_divided(trm_collective_kind kind) {
    return kind != TRM_ALLREDUCE && kind != TRM_REDUCE && kind != TRM_BROADCAST;
}

int64_t trmi_block_at(const trmi_builder *b, int32_t block) {
    const trmi_schedule_request *r = b->request;
    if (!is_divided(r->kind)) { /* n nearly equal parts, the longer ones first */
        int64_t each = r->count / r->size, longer = r->count % r->size;
        return each * block + trmi_min_i64(block, longer);
    }
    if (block >= r->size) {
        return r->total;
    }
    return r->offsets != NULL ? r->offsets[block] : r->count * block;
}

int64_t trmi_block_count(const trmi_builder *b, int32_t block) {
    const trmi_schedule_request *r = b->request;
    if (!is_divided(r->kind)) {
        return trmi_block_at(b, block + 1) - trmi_block_at(b, block);
    }
    return r->counts != NULL ? r->counts[block] : r->count;
}

trmi_schedule_range trmi_blocks(const trmi_builder *b, trmi_schedule_place place, int64_t base,
                                int32_t first, int32_t blocks) {
    int64_t at = trmi_block_at(b, first);
    return (trmi_schedule_range){place, base + at, trmi_block_at(b, first + blocks) - at};
}
