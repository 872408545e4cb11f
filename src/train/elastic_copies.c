/* SPDX-License-Identifier: Apache-2.0 */
/* Parts of a state, kept where other ranks can reach them (contracts in elastic_copies.h;
 * elastic_whole.c makes a whole of them).
 *
 *   update, on one host, for each piece:  mark it with its step, no word of it in `old`
 *                                         -> a few words -> `old` -> count them -> change them
 *                                         -> the next ones; slots that take turns: read in one
 *                                         place, written to the other (update_slots.c of exec)
 *   keep:  mark the older generation as incomplete -> copy what is not in place -> several hosts: send it
 *          -> mark it with the step -> barrier
 *   join:  elastic_whole.c
 *
 * In memory of all ranks each rank writes its own mark and part only, and no rank reads a part
 * before all ranks that live have left the epoch. Why a run of one place is whole after step s, at
 * whichever instruction of the update that follows s its rank is killed: a process that is killed
 * has made its writes in the order of the program, so only the compiler must not change it.
 *   1. The mark has another step: no word has changed, because the mark comes before the changes.
 *   2. It has s: the count was written in this update, because it became 0 before the mark. The
 *      first `count` words are in `old`, because they were copied before they were counted; the
 *      others have not changed, because words change after they are counted.
 * Earlier steps are not asked for: all ranks have marked s before one begins this update. */
#include "train/elastic_copies.h"

#include "base/checked.h"
#include "base/error.h"
#include "base/memory.h"
#include "comm/api/communicator.h"
#include "comm/shm/shared_buffers.h"
#include "exec/exec.h"
#include "exec/optimizer/update.h"

#include <string.h>

/* Returns whether the words of a run go to `old` before an update changes them. */
static bool has_old(const trmi_state_run *run) { return run->piece >= 0 && run->turn == 0; }

int64_t trmi_run_old_bytes(const trmi_state_run *run) {
    return has_old(run) ? trmi_round_up(run->words * TRMI_STATE_WORD, 64) : 0;
}

trmi_part_size trmi_part_measure(const trmi_state_part *part, bool alone) {
    trmi_part_size size = {.words = alone ? part->alone : part->words, .in_place = part->in_place};
    while (size.runs < part->runs_count && !(alone && part->runs[size.runs].repeated)) {
        size.old_bytes += trmi_run_old_bytes(&part->runs[size.runs]);
        size.segments += part->runs[size.runs++].segments;
    }
    return size;
}

trm_status trmi_elastic_gather(trm_comm *comm, const void *mine, size_t bytes, void **out,
                               trm_error *err) {
    char *all;
    *out = NULL;
    TRMI_TRY(TRMI_NEW(err, all, bytes * (size_t)trm_comm_size(comm), "for the ranks of a job"));
    trm_status status = trmi_comm_allgather(comm, mine, bytes, all, err);
    if (status != TRM_OK) {
        trmi_free(all);
        return status;
    }
    *out = all;
    return TRM_OK;
}

trm_status trmi_part_make(const trmi_part_size *size, trmi_state_part *part, trm_error *err) {
    TRMI_TRY(TRMI_NEW(err, part->runs, size->runs + 1, "for the part of another rank"));
    TRMI_TRY(TRMI_NEW(err, part->segments, size->segments + 1, "for the part of another rank"));
    part->runs_count = size->runs;
    part->segments_count = size->segments;
    part->words = part->alone = size->words;
    return TRM_OK;
}

/* ---- on one host: the parts lie in memory of all --------------------------------------------- */

/* Takes `bytes` bytes after *end; returns where they begin. */
static size_t take_bytes(size_t *end, int64_t bytes) {
    const size_t begin = (*end + 63) / 64 * 64;
    *end = begin + (size_t)bytes;
    return begin;
}

/* Takes the place of one part after *end; out->part and out->data are set where there is memory.
 */
static void place_part(const trmi_part_size *size, char *memory, size_t *end, trmi_kept_part *out) {
    const size_t runs = take_bytes(end, size->runs * (int64_t)sizeof *out->part.runs);
    const size_t segments = take_bytes(end, size->segments * (int64_t)sizeof *out->part.segments);
    const size_t old_words = take_bytes(end, size->runs * (int64_t)sizeof *out->old_words);
    const int64_t copied = (size->words - size->in_place) * TRMI_STATE_WORD;
    const size_t data[2] = {take_bytes(end, copied), take_bytes(end, copied)};
    const size_t old = take_bytes(end, size->old_bytes);
    if (memory != NULL) {
        out->part = (trmi_state_part){.runs = (trmi_state_run *)(void *)(memory + runs),
                                      .segments = (trmi_state_words *)(void *)(memory + segments),
                                      .runs_count = size->runs,
                                      .segments_count = size->segments,
                                      .words = size->words,
                                      .alone = size->words,
                                      .in_place = size->in_place};
        out->old_words = (trmi_old_words *)(void *)(memory + old_words);
        out->data[0] = memory + data[0];
        out->data[1] = memory + data[1];
        out->old = memory + old;
    }
}

/* Maps the memories of all ranks in which runs in place lie. */
static trm_status map_memories(trmi_elastic_copies *c, const trm_exec *exec, trm_comm *comm,
                               trm_error *err) {
    for (int m = 0; m < TRMI_STATE_MEMORIES; m++) {
        size_t bytes;
        const void *own = trmi_state_memory_of(exec, (trmi_state_memory)m, &bytes);
        TRMI_TRY(TRMI_NEW(err, c->memory[m], c->ranks, "for the memory of %d ranks", c->ranks));
        TRMI_TRY(
            trmi_comm_map_each(comm, c->own.in_place > 0 ? own : NULL, bytes, c->memory[m], err));
        for (int32_t r = 0; r < c->ranks; r++) {
            c->kept[(r + c->ranks - c->rank) % c->ranks].memory[m] = c->memory[m][r].data;
        }
    }
    return TRM_OK;
}

/* Lists the runs that have old words by piece. */
static trm_status list_pieces(trmi_elastic_copies *c, trm_error *err) {
    const trmi_state_part *part = &c->kept[0].part;
    int64_t begin = 0;
    for (int64_t i = 0; i < part->runs_count; i++) {
        const trmi_state_run *run = &part->runs[i];
        c->pieces = has_old(run) && run->piece >= c->pieces ? run->piece + 1 : c->pieces;
    }
    TRMI_TRY(TRMI_NEW(err, c->old_begins, part->runs_count + 1, "for the runs of a part"));
    TRMI_TRY(TRMI_NEW(err, c->next_runs, part->runs_count + 1, "for the runs of a part"));
    TRMI_TRY(TRMI_NEW(err, c->first_runs, c->pieces + 1, "for the pieces of a part"));
    for (int64_t p = 0; p < c->pieces; p++) {
        c->first_runs[p] = -1;
    }
    for (int64_t i = 0; i < part->runs_count; i++) {
        const trmi_state_run *run = &part->runs[i];
        if (has_old(run)) {
            c->old_begins[i] = begin;
            begin += trmi_run_old_bytes(run);
            c->next_runs[i] = c->first_runs[run->piece];
            c->first_runs[run->piece] = i;
        }
    }
    return TRM_OK;
}

/* Sets a value of a mark after the writes before it and before those that follow, in the order of
 * the program: fences of the CPU, which take time, are not needed. */
static void set_mark(_Atomic int64_t *value, int64_t to) {
    atomic_signal_fence(memory_order_seq_cst);
    atomic_store_explicit(value, to, memory_order_relaxed);
    atomic_signal_fence(memory_order_seq_cst);
}

/* Contract in elastic_copies.h. The update copies a piece that is one run of the parameters. */
trmi_update_old trmi_copies_keep_piece(void *copies, int64_t piece, int64_t count) {
    trmi_elastic_copies *c = copies;
    const trmi_kept_part *mine = c->kept;
    if (!c->on || piece >= c->pieces) {
        return (trmi_update_old){0};
    }
    const int64_t step = c->steps[c->newest];
    for (int64_t i = c->first_runs[piece]; i >= 0; i = c->next_runs[i]) {
        const trmi_state_run *run = &c->own.runs[i];
        float *old = (float *)(void *)(mine->old + c->old_begins[i]);
        set_mark(&mine->old_words[i].count, 0);
        set_mark(&mine->old_words[i].step, step + 1);
        if (run->words == count && run->memory == TRMI_STATE_PARAMETERS && c->next_runs[i] < 0) {
            return (trmi_update_old){old, &mine->old_words[i].count};
        }
        trmi_update_copy_aside(old, (const float *)(const void *)c->own.places[i], run->words);
        set_mark(&mine->old_words[i].count, run->words);
    }
    return (trmi_update_old){0};
}

/* Returns what rank `rank` has written. */
static trmi_copies_mark *find_mark(const trmi_elastic_copies *c, int32_t rank) {
    return (trmi_copies_mark *)(void *)c->shared.data + rank;
}

/* Allocates the pages of the part of this rank, from `begin` to `end`. A huge page in which a part
 * of a neighbour begins or ends counts, too: all of the memory is used. */
static void fill_part(const trmi_elastic_copies *c, char *begin, char *end) {
    char *const last = c->shared.data + c->shared.memory_bytes;
    begin -= (uintptr_t)begin % TRMI_HUGE_PAGE_BYTES;
    end += TRMI_HUGE_PAGE_BYTES - (uintptr_t)end % TRMI_HUGE_PAGE_BYTES;
    begin = begin > c->shared.data ? begin : c->shared.data;
    trmi_comm_fill_shared(begin, (size_t)((end < last ? end : last) - begin));
}

/* Makes the memory of all ranks. Afterwards shared.data is NULL where the ranks cannot have any.
 * sizes: of all ranks. */
static trm_status share_parts(trmi_elastic_copies *c, trm_exec *exec, trm_comm *comm,
                              const trmi_part_size *sizes, trm_error *err) {
    trmi_kept_part unused;
    size_t end = (size_t)c->ranks * sizeof(trmi_copies_mark);
    for (int32_t r = 0; r < c->ranks; r++) {
        place_part(&sizes[r], NULL, &end, &unused);
    }
    TRMI_TRY(trmi_comm_make_segment(comm, end, &c->shared, err));
    if (c->shared.data == NULL) {
        return TRM_OK;
    }
    TRMI_TRY(TRMI_NEW(err, c->kept, c->ranks, "for the parts of %d ranks", c->ranks));
    c->reach = c->ranks;
    end = (size_t)c->ranks * sizeof(trmi_copies_mark);
    for (int32_t r = 0; r < c->ranks; r++) {
        trmi_kept_part *kept = &c->kept[(r + c->ranks - c->rank) % c->ranks];
        place_part(&sizes[r], c->shared.data, &end, kept);
        kept->mark = find_mark(c, r);
    }
    const trmi_kept_part *mine = &c->kept[0];
    memcpy(mine->part.runs, c->own.runs, (size_t)c->own.runs_count * sizeof *c->own.runs);
    memcpy(mine->part.segments, c->own.segments,
           (size_t)c->own.segments_count * sizeof *c->own.segments);
    trmi_free(c->own.segments);
    c->own.segments = NULL;
    fill_part(c, (char *)mine->part.runs, mine->old + sizes[c->rank].old_bytes);
    TRMI_TRY(map_memories(c, exec, comm, err));
    return list_pieces(c, err);
}

/* Tells the other ranks that generation `g` of the own part is that of `step`; -1: it is being
 * written. */
static void mark_generation(trmi_elastic_copies *c, int32_t g, int64_t step) {
    c->steps[g] = step;
    if (c->shared.data != NULL) {
        trmi_copies_mark *mark = find_mark(c, c->rank);
        if (step >= 0) {
            atomic_store(&mark->second[g], trmi_state_in_second(c->exec));
        }
        atomic_store(&mark->steps[g], step + 1);
    }
}

/* Returns whether the parts of a step, of which this rank has its own, are complete. */
static bool is_complete(const trmi_elastic_copies *c, int64_t step) {
    bool complete = step >= 0;
    for (int32_t r = 0; r < c->ranks && c->shared.data != NULL; r++) {
        const trmi_copies_mark *mark = find_mark(c, r);
        complete = complete && (atomic_load(&mark->steps[0]) == step + 1 ||
                                atomic_load(&mark->steps[1]) == step + 1);
    }
    return complete;
}

/* ---- on several hosts: copies travel as messages --------------------------------------------- */

/* Sends bytes to the previous rank and receives others from the next one. */
static trm_status pass_back(const trmi_elastic_copies *c, trm_comm *comm, const void *send,
                            int64_t send_bytes, void *receive, int64_t receive_bytes,
                            trm_error *err) {
    trm_message messages[2];
    int32_t count = 0;
    if (send_bytes > 0) {
        messages[count++] = (trm_message){.peer = (c->rank + c->ranks - 1) % c->ranks,
                                          .buffer = (void *)(uintptr_t)send,
                                          .count = send_bytes,
                                          .dtype = TRM_UINT8,
                                          .tag = "copy of this rank's part"};
    }
    if (receive_bytes > 0) {
        messages[count++] = (trm_message){.receive = true,
                                          .peer = (c->rank + 1) % c->ranks,
                                          .buffer = receive,
                                          .count = receive_bytes,
                                          .dtype = TRM_UINT8,
                                          .tag = "copy of the next rank's part"};
    }
    return count > 0 ? trm_comm_exchange(comm, messages, count, err) : TRM_OK;
}

/* Tells the previous rank what this rank's part is, and learns it of the next one. */
static trm_status exchange_lists(trmi_elastic_copies *c, trm_comm *comm, trm_error *err) {
    const trmi_part_size mine = trmi_part_measure(&c->own, true);
    trmi_part_size theirs;
    TRMI_TRY(pass_back(c, comm, &mine, (int64_t)sizeof mine, &theirs, (int64_t)sizeof theirs, err));
    trmi_state_part *next = &c->kept[1].part;
    TRMI_TRY(trmi_part_make(&theirs, next, err));
    TRMI_TRY(pass_back(c, comm, c->own.runs, mine.runs * (int64_t)sizeof *c->own.runs, next->runs,
                       theirs.runs * (int64_t)sizeof *next->runs, err));
    return pass_back(c, comm, c->own.segments, mine.segments * (int64_t)sizeof *c->own.segments,
                     next->segments, theirs.segments * (int64_t)sizeof *next->segments, err);
}

/* Makes the memory of the own part and of the next one's. */
static trm_status make_copies(trmi_elastic_copies *c, trm_comm *comm, trm_error *err) {
    TRMI_TRY(TRMI_NEW(err, c->kept, 2, "for the parts of two ranks"));
    c->reach = 2;
    c->kept[0].part = c->own;
    TRMI_TRY(exchange_lists(c, comm, err));
    for (int k = 0; k < 2; k++) {
        for (int g = 0; g < 2; g++) {
            TRMI_TRY(TRMI_NEW(err, c->kept[k].data[g], c->kept[k].part.words * TRMI_STATE_WORD + 1,
                              "for a copy of the state"));
        }
    }
    return TRM_OK;
}

/* ---- after an update ------------------------------------------------------------------------- */

/* Copies the runs that are not in place over the older generation, which is returned. */
static int32_t copy_rest(trmi_elastic_copies *c) {
    const int32_t g = 1 - c->newest;
    mark_generation(c, g, -1);
    trmi_state_part_read(&c->own, c->kept[0].data[g]);
    return g;
}

/* Marks the state after an update, before all ranks meet (trmi_state_watcher.updated). */
static void mark_update(void *context, uint64_t step) {
    trmi_elastic_copies *c = context;
    if (c->steps[c->newest] >= 0) { /* else the ranks have not kept any yet */
        const int32_t g = copy_rest(c);
        mark_generation(c, g, (int64_t)step);
        c->newest = g;
    }
}

/* ---- the life of an epoch -------------------------------------------------------------------- */

/* Returns whether the other ranks can map the memories in which runs in place lie. */
static bool is_reachable(const trm_exec *exec, trm_comm *comm) {
    bool reachable = true;
    for (int m = 0; m < TRMI_STATE_MEMORIES; m++) {
        size_t bytes;
        const void *memory = trmi_state_memory_of(exec, (trmi_state_memory)m, &bytes);
        reachable = reachable && (memory == NULL || trmi_comm_reaches(comm, memory, bytes));
    }
    return reachable;
}

/* Contract in elastic_copies.h. Ranks exchange the sizes of their parts first; runs are numbered by
 * the order of variables that all programs of the job have. */
trm_status trmi_copies_open(trmi_elastic_copies *c, trm_exec *exec, trm_comm *comm,
                            const int32_t *order, trm_error *err) {
    trmi_copies_close(c);
    c->rank = trm_comm_rank(comm);
    c->ranks = trm_comm_size(comm);
    c->exec = exec;
    const bool in_place = is_reachable(exec, comm);
    trmi_state_take_turns(exec, in_place);
    TRMI_TRY(trmi_state_part_list(exec, in_place, &c->own, err));
    for (int64_t i = 0; i < c->own.runs_count; i++) {
        c->own.runs[i].variable = order[c->own.runs[i].variable];
    }
    void *sizes; /* trmi_part_size[ranks] */
    const trmi_part_size mine = trmi_part_measure(&c->own, false);
    TRMI_TRY(trmi_elastic_gather(comm, &mine, sizeof mine, &sizes, err));
    trm_status status = share_parts(c, exec, comm, sizes, err);
    trmi_free(sizes);
    TRMI_TRY(status);
    TRMI_TRY(c->shared.data == NULL ? make_copies(c, comm, err) : TRM_OK);
    c->on = true;
    const bool marks = c->shared.data != NULL && trmi_state_is_common(exec, c->ranks);
    trmi_state_watch(
        exec, &(trmi_state_watcher){.context = c,
                                    .piece_changes = c->pieces > 0 ? trmi_copies_keep_piece : NULL,
                                    .updated = marks ? mark_update : NULL});
    return TRM_OK;
}

/* Contract in elastic_copies.h. Variables that every rank has whole are written by name, those in
 * parts run by run. */
void trmi_copies_fill(const trmi_elastic_copies *c, trm_exec *exec, const int32_t *order,
                      const int64_t *begins, const char *whole) {
    const bool common = trmi_state_is_common(exec, c->ranks);
    for (int32_t i = 0; i < trm_exec_variable_count(exec); i++) {
        const trm_variable_kind kind = trm_exec_variable(exec, i).kind;
        if (kind == TRM_VARIABLE_STATE || (kind == TRM_VARIABLE_PARAMETER && !common)) {
            trm_exec_write(exec, i, whole + begins[order[i]] * TRMI_STATE_WORD);
        }
    }
    trmi_exec_parameters_changed(exec);
    trmi_state_part_fill(c->shared.data != NULL ? &c->kept[0].part : &c->own, c->own.places,
                         trmi_state_in_second(exec), begins, whole);
}

/* Contract in elastic_copies.h. Where memory is shared, its owner is c->shared. */
void trmi_copies_close(trmi_elastic_copies *c) {
    for (int32_t k = 0; k < c->reach && c->shared.data == NULL; k++) {
        trmi_free(c->kept[k].data[0]);
        trmi_free(c->kept[k].data[1]);
        if (k > 0) {
            trmi_state_part_free(&c->kept[k].part);
        }
    }
    for (int m = 0; m < TRMI_STATE_MEMORIES; m++) {
        for (int32_t r = 0; c->memory[m] != NULL && r < c->ranks; r++) {
            trmi_shm_segment_release(&c->memory[m][r]);
        }
        trmi_free(c->memory[m]);
    }
    trmi_free(c->old_begins);
    trmi_free(c->next_runs);
    trmi_free(c->first_runs);
    trmi_free(c->kept);
    trmi_state_part_free(&c->own);
    trmi_shm_segment_release(&c->shared);
    memset(c, 0, sizeof *c);
    c->steps[0] = c->steps[1] = -1;
}

trm_status trmi_copies_keep(trmi_elastic_copies *c, trm_comm *comm, uint64_t step, trm_error *err) {
    const int32_t g = copy_rest(c);
    if (c->shared.data == NULL) {
        TRMI_TRY(pass_back(c, comm, c->kept[0].data[g], c->own.alone * TRMI_STATE_WORD,
                           c->kept[1].data[g], c->kept[1].part.words * TRMI_STATE_WORD, err));
    }
    mark_generation(c, g, (int64_t)step);
    c->newest = g;
    trmi_state_drop_gathered(c->exec);
    return trm_comm_barrier(comm, err);
}

int32_t trmi_copies_find(const trmi_elastic_copies *c, int64_t step) {
    return c->on && step >= 0 && c->steps[c->newest] == step       ? c->newest
           : c->on && step >= 0 && c->steps[1 - c->newest] == step ? 1 - c->newest
                                                                   : -1;
}

trmi_copies_owner trmi_copies_describe(const trmi_elastic_copies *c) {
    trmi_copies_owner owner = {.newest = -1, .older = -1};
    if (c->on) {
        const int64_t newest = c->steps[c->newest], older = c->steps[1 - c->newest];
        const bool whole = is_complete(c, newest);
        owner = (trmi_copies_owner){.rank = c->rank, .ranks = c->ranks, .reach = c->reach};
        owner.newest = whole ? newest : is_complete(c, older) ? older : -1;
        /* On one host all ranks see the same marks, and `old` has words of one step only. */
        owner.older = whole && c->shared.data == NULL && is_complete(c, older) ? older : -1;
    }
    return owner;
}
