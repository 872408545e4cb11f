/* SPDX-License-Identifier: Apache-2.0 */
/* Lists and copies a rank's part of the state (contracts in state_part.h). Where an element of a
 * variable lies in this rank's memory is found by sending the numbers of the elements the way of
 * their values: whole variable, box of this rank, layout of the program. */
#include "exec/state_part.h"

#include "exec/box_walk.h"
#include "exec/convert.h"
#include "exec/exec.h"

#include "base/checked.h"
#include "base/error.h"
#include "base/memory.h"

#include <string.h>

enum { WORD = 4 };

/* Makes room for one more run and segment. */
static trm_status make_room(trmi_state_part *part, trm_error *err) {
    return trmi_grow((void **)&part->runs, &part->runs_room, part->runs_count + 1,
                     sizeof *part->runs) &&
                   trmi_grow((void **)&part->places, &part->places_room, part->runs_count + 1,
                             sizeof *part->places) &&
                   trmi_grow((void **)&part->segments, &part->segments_room,
                             part->segments_count + 1, sizeof *part->segments)
               ? TRM_OK
               : TRMI_NO_MEMORY(err, "to list a rank's part of the state");
}

/* Adds `count` words to a segment, if they continue it. */
static bool extend_segment(trmi_state_words *segment, uint32_t begin, uint32_t count) {
    if (segment->begin == TRMI_STATE_PADDING || begin == TRMI_STATE_PADDING ||
        segment->count != count ||
        (segment->times > 1 && begin != segment->begin + segment->times * segment->step)) {
        return false;
    }
    segment->step = segment->times > 1 ? segment->step : begin - segment->begin;
    segment->times++;
    return true;
}

/* Appends a run at `place`, of which words, variable, repeated and where it is in place are set in
 * `of`. numbers: of each word, that in the whole variable plus 1; 0 = none. */
static trm_status add_run(trmi_state_part *part, const trmi_state_run *of, const uint32_t *numbers,
                          const char *place, trm_error *err) {
    const int64_t words = of->words;
    TRMI_TRY(make_room(part, err));
    trmi_state_run *run = &part->runs[part->runs_count];
    *run = *of;
    for (int64_t i = 0, end; i < words; i = end) {
        for (end = i + 1;
             end < words && (numbers[i] == 0 ? numbers[end] == 0
                                             : numbers[end] == numbers[i] + (uint32_t)(end - i));) {
            end++;
        }
        const trmi_state_words piece = {numbers[i] - 1, (uint32_t)(end - i), 0, 1};
        if (run->segments == 0 ||
            !extend_segment(&part->segments[part->segments_count - 1], piece.begin, piece.count)) {
            TRMI_TRY(make_room(part, err));
            part->segments[part->segments_count++] = piece;
            run->segments++;
        }
    }
    part->places[part->runs_count++] = place;
    part->words += words;
    part->alone += of->repeated ? 0 : words;
    part->in_place += of->block >= 0 ? words : 0;
    return TRM_OK;
}

/* Writes the number of each word of a variable's memory on this rank to `numbers` (add_run). */
static void number_words(const trm_exec *exec, int32_t index, uint32_t *whole, uint32_t *own,
                         uint32_t *numbers) {
    const trmi_buffer *b = &exec->program->buffers[exec->variable_buffers[index]];
    const trmi_partition_leaf *leaf = trmi_exec_cut_of(exec, index);
    int64_t count = trm_shape_count(&exec->variables[index].shape);
    int64_t size = (int64_t)trm_dtype_bytes(b->dtype) / WORD;
    for (int64_t i = 0; i < count * size; i++) {
        whole[i] = (uint32_t)i + 1;
    }
    if (leaf != NULL) {
        trmi_copy_box(whole, &leaf->global, &leaf->box, own, (size_t)(size * WORD), false);
    }
    trmi_convert_layout(leaf != NULL ? own : whole, TRMI_PLAIN, numbers, b->layout, b->dtype,
                        &b->shape, b->weights);
}

const void *trmi_state_memory_of(const trm_exec *exec, trmi_state_memory which, size_t *bytes) {
    if (which == TRMI_STATE_PARAMETERS) {
        *bytes = (size_t)exec->program->arena_bytes[TRMI_ARENA_PARAM];
        return exec->env.arena[TRMI_ARENA_PARAM];
    }
    *bytes = (size_t)trmi_update_slots(exec->update) * trmi_update_slot_stride(exec->update);
    return trmi_update_slot(exec->update, 0);
}

void trmi_state_watch(trm_exec *exec, void (*watcher)(void *context, int64_t block),
                      void *context) {
    trmi_update_watch(exec->update, watcher, context);
}

/* Describes the run of a variable from word `at` on, up to word `end` at most: the words of one
 * block, or those that are of none. */
static trmi_state_run begin_run(const trm_exec *exec, int32_t index, bool in_place, int64_t at,
                                int64_t end) {
    const trmi_buffer *b = &exec->program->buffers[exec->variable_buffers[index]];
    trmi_state_run run = {.variable = index, .words = end - at, .block = -1};
    if (in_place && b->arena == TRMI_ARENA_PARAM) {
        int64_t behind;
        size_t bytes;
        run.block = trmi_update_find_block(exec->update, b->offset / WORD + at, &behind);
        run.memory = exec->variable_slots[index] < 0 ? TRMI_STATE_PARAMETERS : TRMI_STATE_SLOTS;
        run.offset = (const char *)trmi_exec_variable_address(exec, index) + at * WORD -
                     (const char *)trmi_state_memory_of(exec, run.memory, &bytes);
        run.words =
            run.block >= 0 ? trmi_min_i64(run.words, behind - b->offset / WORD - at) : run.words;
    }
    return run;
}

/* Lists the runs of one variable that other ranks have too (`repeated`), or have not. */
static trm_status list_variable(const trm_exec *exec, int32_t index, bool repeated, bool in_place,
                                trmi_state_part *part, trm_error *err) {
    const trmi_buffer *b = &exec->program->buffers[exec->variable_buffers[index]];
    int64_t all = trm_shape_count(&exec->variables[index].shape), words = b->bytes / WORD;
    int64_t size = (int64_t)trm_dtype_bytes(b->dtype);
    const char *place = trmi_exec_variable_address(exec, index);
    trmi_hold hold;
    bool any = false;
    for (int64_t at = 0; at < words; at = hold.end) {
        hold = trmi_distribution_hold(exec, index, at, words);
        any = any || (hold.mine && hold.repeated == repeated);
    }
    if (!any) {
        return TRM_OK;
    }
    if (size % WORD != 0 || all * (size / WORD) >= (int64_t)UINT32_MAX) {
        return TRMI_FAIL(err, TRM_INVALID,
                         "%s: no other rank can keep a copy of %lld elements of type %s",
                         exec->variables[index].name, (long long)all, trm_dtype_name(b->dtype));
    }
    uint32_t *whole = trmi_alloc((size_t)(all * size)), *own = trmi_alloc((size_t)(all * size));
    uint32_t *numbers = trmi_alloc((size_t)b->bytes + WORD);
    trm_status status = whole != NULL && own != NULL && numbers != NULL
                            ? TRM_OK
                            : TRMI_NO_MEMORY(err, "to list %s", exec->variables[index].name);
    if (status == TRM_OK) {
        number_words(exec, index, whole, own, numbers);
    }
    for (int64_t at = 0; status == TRM_OK && at < words; at = hold.end) {
        hold = trmi_distribution_hold(exec, index, at, words);
        for (int64_t next = at;
             status == TRM_OK && hold.mine && hold.repeated == repeated && next < hold.end;) {
            trmi_state_run run = begin_run(exec, index, in_place, next, hold.end);
            run.repeated = repeated;
            status = add_run(part, &run, numbers + next, place + next * WORD, err);
            next += run.words;
        }
    }
    trmi_free(whole);
    trmi_free(own);
    trmi_free(numbers);
    return status;
}

trm_status trmi_state_part_list(const trm_exec *exec, bool in_place, trmi_state_part *out,
                                trm_error *err) {
    memset(out, 0, sizeof *out);
    trm_status status = TRM_OK;
    for (int32_t turn = 0; turn < 2; turn++) {
        for (int32_t i = 0; status == TRM_OK && i < exec->variables_count; i++) {
            if (!trmi_exec_is_elsewhere(exec, i)) {
                status = list_variable(exec, i, turn == 1, in_place, out, err);
            }
        }
    }
    if (status != TRM_OK) {
        trmi_state_part_free(out);
    }
    return status;
}

void trmi_state_part_free(trmi_state_part *part) {
    trmi_free(part->runs);
    trmi_free(part->places);
    trmi_free(part->segments);
    memset(part, 0, sizeof *part);
}

void trmi_state_part_read(const trmi_state_part *part, char *memory) {
    for (int64_t i = 0; i < part->runs_count; i++) {
        if (part->runs[i].block < 0) {
            memcpy(memory, part->places[i], (size_t)part->runs[i].words * WORD);
            memory += part->runs[i].words * WORD;
        }
    }
}

void trmi_state_part_place(const trmi_state_part *part, int64_t words, const char *memory,
                           const int64_t *begins, char *whole, uint8_t *covered) {
    const trmi_state_words *segment = part->segments;
    int64_t at = 0;
    for (int64_t i = 0; i < part->runs_count && at < words; i++) {
        const trmi_state_run *run = &part->runs[i];
        for (int64_t s = 0; s < run->segments; s++, segment++) {
            for (uint32_t k = 0; k < segment->times; k++, at += segment->count) {
                if (segment->begin != TRMI_STATE_PADDING) {
                    int64_t to = begins[run->variable] + (segment->begin + k * segment->step);
                    memcpy(whole + to * WORD, memory + at * WORD, (size_t)segment->count * WORD);
                    memset(covered + to, 1, segment->count);
                }
            }
        }
    }
}
