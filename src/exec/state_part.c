/* SPDX-License-Identifier: Apache-2.0 */
/* Lists and copies a rank's part of the state (contracts in state_part.h). Where an element of a
 * variable lies in this rank's memory is found by sending the numbers of the elements the way of
 * their values: whole variable, box of this rank, layout of the program. So no formula of a layout
 * is repeated here, and a new layout or cut needs no change:
 *
 *   1 2 3 4 5 6 ...  whole variable, plain layout
 *       2 3   5 6    box of this rank
 *       5 2 6 3 0 0  layout of the program; 0: padding     -> segments {begin, count, step, times}
 *
 * Slots of the optimiser lie as their parameter does, so they take its numbers. Listing allocates
 * and is done once for a set of ranks; reading and placing copy words and allocate nothing. */
#include "exec/state_part.h"

#include "exec/box_walk.h"
#include "exec/convert.h"
#include "exec/exec.h"

#include "base/checked.h"
#include "base/error.h"
#include "base/memory.h"

#include <string.h>

/* Bytes of a word. */
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

/* Appends the run *of, whose segments are the last ones of the part. There is room. */
static void append_run(trmi_state_part *part, const trmi_state_run *of, const char *place) {
    part->runs[part->runs_count] = *of;
    part->places[part->runs_count++] = place;
    part->words += of->words;
    part->alone += of->repeated ? 0 : of->words;
    part->in_place += of->piece >= 0 ? of->words : 0;
}

/* Appends a run at `place`, of which words, variable, repeated and where it is in place are set in
 * `of`. numbers: of each word, that in the whole variable plus 1; 0 = none. */
static trm_status add_run(trmi_state_part *part, const trmi_state_run *of, const uint32_t *numbers,
                          const char *place, trm_error *err) {
    const int64_t words = of->words;
    TRMI_TRY(make_room(part, err));
    trmi_state_run run = *of;
    for (int64_t i = 0, end; i < words; i = end) {
        for (end = i + 1;
             end < words && (numbers[i] == 0 ? numbers[end] == 0
                                             : numbers[end] == numbers[i] + (uint32_t)(end - i));) {
            end++;
        }
        const trmi_state_words piece = {numbers[i] - 1, (uint32_t)(end - i), 0, 1};
        if (run.segments == 0 ||
            !extend_segment(&part->segments[part->segments_count - 1], piece.begin, piece.count)) {
            TRMI_TRY(make_room(part, err));
            part->segments[part->segments_count++] = piece;
            run.segments++;
        }
    }
    append_run(part, &run, place);
    return TRM_OK;
}

/* The runs that are listed of a variable. Its slots mostly have runs of the same words of it, whose
 * segments are then copied: to make them costs much more. */
typedef struct listed_runs {
    int64_t run, end;    /* the next one, and behind the last */
    int64_t segment;     /* the first one of `run` */
    const char *address; /* of the variable */
} listed_runs;

/* Returns whether the next one of these runs has the words of the run *of at word `at` of a
 * variable. */
static bool is_alike(const trmi_state_part *part, const listed_runs *like, const trmi_state_run *of,
                     int64_t at) {
    return like->run < like->end && part->runs[like->run].words == of->words &&
           part->places[like->run] == like->address + at * WORD;
}

/* Appends the run *of at `place`, with the segments of the next one of these runs. */
static trm_status add_alike(trmi_state_part *part, listed_runs *like, const trmi_state_run *of,
                            const char *place, trm_error *err) {
    trmi_state_run run = *of;
    run.segments = part->runs[like->run++].segments;
    for (int64_t i = 0; i < run.segments; i++) {
        TRMI_TRY(make_room(part, err));
        part->segments[part->segments_count++] = part->segments[like->segment++];
    }
    TRMI_TRY(make_room(part, err));
    append_run(part, &run, place);
    return TRM_OK;
}

/* The numbers of a variable's words, and the memory for them, which serves all variables: pages
 * that are touched for the first time would take longer than the numbers. */
typedef struct numbering {
    uint32_t *whole, *own, *numbers; /* [room] each; whole: 1, 2, ... */
    int64_t room;
    int32_t buffer;     /* whose words have `of`; slots have the numbers of their parameter */
    const uint32_t *of; /* the number of each word of the memory on this rank (add_run) */
    listed_runs like;   /* of the first variable of the buffer that has any; end 0: none yet */
} numbering;

/* Frees the numbers of a variable. */
static void free_numbering(numbering *n) {
    trmi_free(n->whole);
    trmi_free(n->own);
    trmi_free(n->numbers);
    *n = (numbering){.buffer = -1};
}

/* Makes room for the numbers of `words` words. */
static trm_status grow_numbering(numbering *n, int64_t words, trm_error *err) {
    const int64_t room = trmi_max_i64(words, 2 * n->room);
    if (words <= n->room) {
        return TRM_OK;
    }
    free_numbering(n);
    TRMI_TRY(TRMI_NEW(err, n->whole, room, "to list a rank's part of the state"));
    TRMI_TRY(TRMI_NEW(err, n->own, room, "to list a rank's part of the state"));
    TRMI_TRY(TRMI_NEW(err, n->numbers, room, "to list a rank's part of the state"));
    n->room = room;
    for (int64_t i = 0; i < room; i++) {
        n->whole[i] = (uint32_t)i + 1;
    }
    return TRM_OK;
}

/* Finds the number of each word of a variable's memory on this rank. */
static trm_status number_words(const trm_exec *exec, int32_t index, numbering *n, trm_error *err) {
    const trmi_buffer *b = &exec->program->buffers[exec->variable_buffers[index]];
    const trmi_partition_leaf *leaf = trmi_exec_cut_of(exec, index);
    const int64_t size = (int64_t)trm_dtype_bytes(b->dtype) / WORD,
                  all = trm_shape_count(&exec->variables[index].shape) * size;
    if (n->buffer == exec->variable_buffers[index]) {
        return TRM_OK;
    }
    TRMI_TRY(grow_numbering(n, trmi_max_i64(all, b->bytes / WORD + 1), err));
    n->buffer = exec->variable_buffers[index];
    n->of = n->whole;
    if (leaf == NULL && b->layout == TRMI_PLAIN && b->bytes == all * WORD) {
        return TRM_OK;
    }
    if (leaf != NULL) {
        trmi_copy_box(n->whole, &leaf->global, &leaf->box, n->own, (size_t)(size * WORD), false);
    }
    memset(n->numbers, 0, (size_t)b->bytes + WORD);
    trmi_convert_from_plain(b, leaf != NULL ? n->own : n->whole, n->numbers);
    n->of = n->numbers;
    return TRM_OK;
}

/* Returns the beginning of a memory of this rank. */
static const char *begin_of(const trm_exec *exec, trmi_state_memory which) {
    return which == TRMI_STATE_PARAMETERS ? exec->env.arena[TRMI_ARENA_PARAM]
                                          : (const char *)trmi_update_memory(exec->update);
}

void trmi_state_take_turns(trm_exec *exec, bool on) { trmi_update_take_turns(exec->update, on); }

bool trmi_state_in_second(const trm_exec *exec) { return trmi_update_in_second(exec->update); }

void trmi_state_drop_gathered(trm_exec *exec) { trmi_update_drop_gathered(exec->update); }

/* Returns the bytes from the first place of a variable's words to the second; 0: they have one. */
static int64_t find_turn(const trm_exec *exec, int32_t index) {
    const trmi_buffer *b = &exec->program->buffers[exec->variable_buffers[index]];
    return exec->variable_slots[index] < 0 ? 0
                                           : trmi_update_turn_bytes(exec->update, b->offset / WORD);
}

/* Returns the first place of a variable's words. */
static const char *find_place(const trm_exec *exec, int32_t index) {
    return (const char *)trmi_exec_variable_address(exec, index) -
           (trmi_state_in_second(exec) ? find_turn(exec, index) : 0);
}

const void *trmi_state_memory_of(const trm_exec *exec, trmi_state_memory which, size_t *bytes) {
    *bytes = which == TRMI_STATE_PARAMETERS ? (size_t)exec->program->arena_bytes[TRMI_ARENA_PARAM]
                                            : trmi_update_lent_bytes(exec->update);
    return begin_of(exec, which);
}

void trmi_state_watch(trm_exec *exec, const trmi_state_watcher *watcher) {
    exec->watcher = *watcher;
    trmi_update_watch(exec->update, watcher->piece_changes, watcher->context);
}

bool trmi_state_is_common(const trm_exec *exec, int32_t ranks) {
    trm_parallel_info info;
    trm_exec_get_parallel_info(exec, &info);
    return info.one_copy && info.size == ranks;
}

/* Describes the run of a variable from word `at` on, up to word `end` at most: the words of one
 * piece, or those that are of none. */
static trmi_state_run begin_run(const trm_exec *exec, int32_t index, bool in_place, int64_t at,
                                int64_t end) {
    const trmi_buffer *b = &exec->program->buffers[exec->variable_buffers[index]];
    trmi_state_run run = {.variable = index, .words = end - at, .piece = -1};
    if (in_place && b->arena == TRMI_ARENA_PARAM) {
        int64_t behind;
        run.piece = trmi_update_find_piece(exec->update, b->offset / WORD + at, &behind);
        run.memory = exec->variable_slots[index] < 0 ? TRMI_STATE_PARAMETERS : TRMI_STATE_SLOTS;
        run.offset =
            find_place(exec, index) + at * WORD - begin_of(exec, (trmi_state_memory)run.memory);
        run.turn = find_turn(exec, index);
        run.words =
            run.piece >= 0 ? trmi_min_i64(run.words, behind - b->offset / WORD - at) : run.words;
    }
    return run;
}

/* Lists the runs of one variable that other ranks have too (`repeated`), or have not. */
static trm_status list_variable(const trm_exec *exec, int32_t index, bool repeated, bool in_place,
                                numbering *n, trmi_state_part *part, trm_error *err) {
    const trmi_buffer *b = &exec->program->buffers[exec->variable_buffers[index]];
    int64_t all = trm_shape_count(&exec->variables[index].shape), words = b->bytes / WORD;
    int64_t size = (int64_t)trm_dtype_bytes(b->dtype);
    const char *place = find_place(exec, index);
    listed_runs like = n->like;
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
    TRMI_TRY(number_words(exec, index, n, err));
    for (int64_t at = 0; at < words; at = hold.end) {
        hold = trmi_distribution_hold(exec, index, at, words);
        for (int64_t next = at; hold.mine && hold.repeated == repeated && next < hold.end;) {
            trmi_state_run run = begin_run(exec, index, in_place, next, hold.end);
            run.repeated = repeated;
            TRMI_TRY(is_alike(part, &like, &run, next)
                         ? add_alike(part, &like, &run, place + next * WORD, err)
                         : add_run(part, &run, n->of + next, place + next * WORD, err));
            next += run.words;
        }
    }
    return TRM_OK;
}

/* Lists the runs of a variable and of its slots, which have the same numbers. */
static trm_status list_with_slots(const trm_exec *exec, int32_t index, bool repeated, bool in_place,
                                  numbering *n, trmi_state_part *part, trm_error *err) {
    n->like = (listed_runs){0};
    for (int32_t i = index; i < exec->variables_count; i++) {
        const bool of_it =
            i == index || (exec->variable_slots[i] >= 0 &&
                           exec->variable_buffers[i] == exec->variable_buffers[index]);
        if (of_it && !trmi_exec_is_elsewhere(exec, i)) {
            const listed_runs first = {.run = part->runs_count,
                                       .segment = part->segments_count,
                                       .address = find_place(exec, i)};
            TRMI_TRY(list_variable(exec, i, repeated, in_place, n, part, err));
            if (n->like.end == 0 && part->runs_count > first.run) {
                n->like = first;
                n->like.end = part->runs_count;
            }
        }
    }
    return TRM_OK;
}

trm_status trmi_state_part_list(const trm_exec *exec, bool in_place, trmi_state_part *out,
                                trm_error *err) {
    memset(out, 0, sizeof *out);
    numbering n = {.buffer = -1};
    trm_status status = TRM_OK;
    for (int32_t turn = 0; turn < 2; turn++) { /* what no other rank has comes first */
        for (int32_t i = 0; status == TRM_OK && i < exec->variables_count; i++) {
            if (exec->variable_slots[i] < 0 && !trmi_exec_is_elsewhere(exec, i)) {
                status = list_with_slots(exec, i, turn == 1, in_place, &n, out, err);
            }
        }
    }
    free_numbering(&n);
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
        if (part->runs[i].piece < 0) {
            memcpy(memory, part->places[i], (size_t)part->runs[i].words * WORD);
            memory += part->runs[i].words * WORD;
        }
    }
}

/* Copies the words of a segment between `own`, where they lie one after the other, and the
 * variable, which begins at `variable`. */
static void move_segment(const trmi_state_words *segment, char *own, char *variable, bool to_own) {
    if (segment->count == 1) { /* as blocked layouts have them */
        for (uint32_t k = 0; k < segment->times; k++) {
            char *at = variable + (size_t)(segment->begin + k * segment->step) * WORD;
            memcpy(to_own ? own + (size_t)k * WORD : at, to_own ? at : own + (size_t)k * WORD,
                   WORD);
        }
        return;
    }
    const size_t bytes = (size_t)segment->count * WORD;
    for (uint32_t k = 0; k < segment->times; k++, own += bytes) {
        char *at = variable + (size_t)(segment->begin + k * segment->step) * WORD;
        memcpy(to_own ? own : at, to_own ? at : own, bytes);
    }
}

const trmi_state_words *trmi_state_run_place(const trmi_state_run *run,
                                             const trmi_state_words *segments, const char *memory,
                                             const int64_t *begins, char *whole, uint8_t *covered) {
    const int64_t begin = begins[run->variable];
    for (int64_t s = 0; s < run->segments; s++, segments++) {
        if (segments->begin != TRMI_STATE_PADDING) {
            move_segment(segments, (char *)(uintptr_t)memory, whole + begin * WORD, false);
            for (uint32_t k = 0; covered != NULL && k < segments->times; k++) {
                memset(covered + begin + segments->begin + k * segments->step, 1, segments->count);
            }
        }
        memory += (size_t)segments->count * segments->times * WORD;
    }
    return segments;
}

void trmi_state_part_place(const trmi_state_part *part, int64_t words, const char *memory,
                           const int64_t *begins, char *whole, uint8_t *covered) {
    const trmi_state_words *segments = part->segments;
    int64_t at = 0;
    for (int64_t i = 0; i < part->runs_count && at < words; at += part->runs[i++].words) {
        segments = trmi_state_run_place(&part->runs[i], segments, memory + at * WORD, begins, whole,
                                        covered);
    }
}

void trmi_state_part_fill(const trmi_state_part *part, const char *const *places, bool second,
                          const int64_t *begins, const char *whole) {
    const trmi_state_words *segment = part->segments;
    for (int64_t i = 0; i < part->runs_count; i++) {
        const trmi_state_run *run = &part->runs[i];
        char *to = (char *)(uintptr_t)places[i] + (second ? run->turn : 0);
        for (int64_t s = 0; s < run->segments; s++, segment++) {
            if (segment->begin != TRMI_STATE_PADDING) {
                move_segment(segment, to, (char *)(uintptr_t)whole + begins[run->variable] * WORD,
                             true);
            }
            to += (size_t)segment->count * segment->times * WORD;
        }
    }
}
