/* SPDX-License-Identifier: Apache-2.0 */
/* exec/state_part.h: what one rank has of the state of a job (parameters, states, slots), so
 * described that ranks with other programs can read it.
 *
 *      memory of this rank   [ run 0 ][ run 1 ] ...         runs: words of one variable, as they lie
 *      segments              [ b, n, s, t ] ...             where words of a run belong in the whole variable
 *
 * Runs that no other rank has come first. A word has 4 bytes. In a blocked layout neighbouring
 * words of a run are equally far from each other in the whole variable: one segment describes all
 * of them.
 *
 * A run in place belongs to one piece of the optimiser, and only an update changes its words. The
 * words of two steps are there where the caller copies a piece before each update
 * (trmi_state_watch), and where an update reads one memory and writes another, in turns
 * (trmi_state_take_turns). */
#ifndef TRMI_EXEC_STATE_PART_H
#define TRMI_EXEC_STATE_PART_H

#include "trireme/exec.h"

#include "exec/optimizer/update.h"

/* Words of a variable in plain layout: `times` times `count` words, the first ones at begin, begin
 * + step, begin + 2 step, ...
 * TRMI_STATE_PADDING: no words of it. */
typedef struct trmi_state_words {
    uint32_t begin, count, step, times;
} trmi_state_words;
#define TRMI_STATE_PADDING UINT32_MAX

/* A run of words of one variable. */
typedef struct trmi_state_run {
    int64_t words, segments;
    int32_t variable;
    int32_t repeated; /* another rank has the same words */
    int64_t piece;    /* the optimiser's piece that the words are of; -1: not in place */
    int64_t offset;   /* in place: bytes from the beginning of `memory` to the first word */
    int64_t turn;     /* bytes from there to the words in their second place; 0: they have one */
    int32_t memory;   /* trmi_state_memory */
    int32_t spare;
} trmi_state_run;

/* Where runs in place lie. */
typedef enum trmi_state_memory {
    TRMI_STATE_PARAMETERS,
    TRMI_STATE_SLOTS,
    TRMI_STATE_MEMORIES
} trmi_state_memory;

/* The part of a state that one rank has. */
typedef struct trmi_state_part {
    trmi_state_run *runs;
    int64_t runs_count, runs_room;
    trmi_state_words *segments; /* of all runs, one after the other */
    int64_t segments_count, segments_room;
    /* [runs_count] in this rank's memory, the first place; NULL: the part is of another rank */
    const char **places;
    int64_t places_room;
    int64_t words, alone; /* of all runs; of those that no other rank has */
    int64_t in_place;     /* of all runs in place */
} trmi_state_part;

/* Returns the beginning of a memory of this rank, and its bytes; NULL: it has none. */
const void *trmi_state_memory_of(const trm_exec *exec, trmi_state_memory which, size_t *bytes);
/* on: from now on updates leave the slots of the step before them where they are, and write those
 * after them to another place, in turns. Slots that others than dense updates change have one
 * place, and so have all slots where their memory is not shared (trm_exec_options.share_slots).
 * false: all have one place. Before trmi_state_part_list. */
void trmi_state_take_turns(trm_exec *exec, bool on);
/* Returns whether the slots that take turns are in their second place now. */
bool trmi_state_in_second(const trm_exec *exec);
/* Gives back the memory of slots that were gathered from other ranks (trm_exec_gather), which are
 * not read any more. */
void trmi_state_drop_gathered(trm_exec *exec);
/* Functions that an executor calls during each of its updates. */
typedef struct trmi_state_watcher {
    void *context; /* borrowed */
    /* before a piece changes, on any thread of the update; NULL: not called */
    trmi_update_watcher *piece_changes;
    /* this rank has made all changes of the update after which the state is that of `step`, and
     * meets the others next; NULL: not called */
    void (*updated)(void *context, uint64_t step);
} trmi_state_watcher;
/* Calls *watcher until another call or until the executor is destroyed. */
void trmi_state_watch(trm_exec *exec, const trmi_state_watcher *watcher);
/* Returns whether all of `ranks` ranks have one copy of the parameters. Then they meet at the end
 * of each update that is not skipped. */
bool trmi_state_is_common(const trm_exec *exec, int32_t ranks);

/* Lists what this rank has. The list holds as long as the executor. `in_place`: words that only
 * updates change are runs in place, each within one piece.
 *   owns    trmi_state_part_free
 *   errors  NOMEM; INVALID: a variable has elements that are no words, or too many of them */
trm_status trmi_state_part_list(const trm_exec *exec, bool in_place, trmi_state_part *out,
                                trm_error *err);
void trmi_state_part_free(trmi_state_part *part);
/* Copies the words of the runs that are not in place to `memory`, one after the other. */
void trmi_state_part_read(const trmi_state_part *part, char *memory);
/* Copies the words of a run, which are at `memory`, to their places in `whole`: all variables in
 * plain layout, of which variable i begins at word begins[i]. Sets `covered` (NULL: none) of each
 * of these words. Returns the segments after those of the run. */
const trmi_state_words *trmi_state_run_place(const trmi_state_run *run,
                                             const trmi_state_words *segments, const char *memory,
                                             const int64_t *begins, char *whole, uint8_t *covered);
/* Copies the words of `whole` that are of the part to `places` (of each run). second: runs with two
 * places get them in the second. */
void trmi_state_part_fill(const trmi_state_part *part, const char *const *places, bool second,
                          const int64_t *begins, const char *whole);
/* Copies the words of the first `words` words of a part, which are in `memory`, to their places in
 * `whole`: all variables in plain layout, of which variable i begins at word begins[i]. Sets
 * `covered` of each of these words. */
void trmi_state_part_place(const trmi_state_part *part, int64_t words, const char *memory,
                           const int64_t *begins, char *whole, uint8_t *covered);

#endif
