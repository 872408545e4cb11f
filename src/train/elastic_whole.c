/* SPDX-License-Identifier: Apache-2.0 */
/* Makes a whole state of the parts that the ranks have kept (contracts in elastic_copies.h).
 *
 *   one host:       each rank copies the parts that it can read to their places in one memory of all
 *   several hosts:  for each part: a rank that can read it broadcasts it -> its words go to their
 *                   places in the whole of each rank
 *
 * The words of a run in place are read from `old` as far as an update has changed them (the reason
 * why that is right, at whichever instruction a rank is killed, is in elastic_copies.c). Where
 * several ranks have the same words, those of the lowest count. */
#include "train/elastic_copies.h"

#include "base/error.h"
#include "base/memory.h"
#include "comm/api/communicator.h"
#include "exec/exec.h"
#include "exec/optimizer/update.h"

#include <string.h>

/* Finds the rank of `comm` that can read the part of rank `rank` of the old program, and how far
 * behind it that rank is (*ahead; 0: the part is its own). -1: none. */
static int32_t find_holder(const trmi_copies_owner *owners, int32_t size, int32_t rank,
                           int32_t *ahead) {
    bool any = true;
    for (*ahead = 0; any; (*ahead)++) {
        any = false;
        for (int32_t i = 0; i < size; i++) {
            const trmi_copies_owner *o = &owners[i];
            const bool reaches = trmi_copies_has_parts(o) && *ahead < o->reach;
            any = any || reaches;
            if (reaches && (o->rank + *ahead) % o->ranks == rank) {
                return i;
            }
        }
    }
    return -1;
}

/* Returns the ranks of the old program. */
static int32_t count_parts(const trmi_copies_owner *owners, int32_t size) {
    int32_t ranks = 0;
    for (int32_t i = 0; i < size; i++) {
        ranks = trmi_copies_has_parts(&owners[i]) ? owners[i].ranks : ranks;
    }
    return ranks;
}

bool trmi_copies_has_all(const trmi_copies_owner *owners, int32_t size) {
    const int32_t ranks = count_parts(owners, size);
    bool all = ranks > 0;
    for (int32_t rank = 0; rank < ranks; rank++) {
        int32_t ahead;
        all = all && find_holder(owners, size, rank, &ahead) >= 0;
    }
    return all;
}

/* Where the next run of a part is, in the order of the runs. */
typedef struct run_reader {
    const trmi_kept_part *kept;
    int64_t step;
    const char *copied, *old;
    bool second; /* the slots of the step are in their second place */
    char put_together[TRMI_UPDATE_PIECE *
                      TRMI_STATE_WORD]; /* a run of which only a part is in `old` */
} run_reader;

/* Returns a reader of one generation of a part. */
static run_reader begin_reading(const trmi_kept_part *kept, int32_t generation, int64_t step) {
    const bool second = kept->mark != NULL && atomic_load(&kept->mark->second[generation]);
    return (run_reader){kept, step, kept->data[generation], kept->old, second, {0}};
}

/* Returns the words of run `i` of one place, which is at `place`. */
static const char *read_old(run_reader *reader, int64_t i, const char *place) {
    const trmi_old_words *old = &reader->kept->old_words[i];
    const int64_t words = reader->kept->part.runs[i].words;
    const int64_t count =
        atomic_load(&old->step) == reader->step + 1 ? atomic_load(&old->count) : 0;
    if (count == 0 || count >= words) {
        return count == 0 ? place : reader->old;
    }
    memcpy(reader->put_together, reader->old, (size_t)(count * TRMI_STATE_WORD));
    memcpy(reader->put_together + count * TRMI_STATE_WORD, place + count * TRMI_STATE_WORD,
           (size_t)((words - count) * TRMI_STATE_WORD));
    return reader->put_together;
}

/* Returns the words of run `i` after the step, which hold until the next call. Called for each run
 * in turn. */
static const char *read_run(run_reader *reader, int64_t i) {
    const trmi_kept_part *kept = reader->kept;
    const trmi_state_run *run = &kept->part.runs[i];
    const char *from = reader->copied;
    if (run->piece >= 0) {
        const char *place = kept->memory[run->memory] + run->offset;
        from =
            run->turn != 0 ? place + (reader->second ? run->turn : 0) : read_old(reader, i, place);
        reader->old += trmi_run_old_bytes(run);
    } else {
        reader->copied += run->words * TRMI_STATE_WORD;
    }
    return from;
}

/* Copies the words of a part after `step`, of generation `g`, to `out`, one run after the other. */
static void read_part(const trmi_kept_part *kept, int32_t g, int64_t step, char *out) {
    run_reader reader = begin_reading(kept, g, step);
    for (int64_t i = 0; i < kept->part.runs_count; i++) {
        const int64_t bytes = kept->part.runs[i].words * TRMI_STATE_WORD;
        memcpy(out, read_run(&reader, i), (size_t)bytes);
        out += bytes;
    }
}

/* Copies those words of a part to their places in the whole that other ranks have too
 * (`repeated`), or have not. */
static void place_runs(const trmi_kept_part *kept, int32_t g, bool repeated,
                       const trmi_whole_state *whole) {
    run_reader reader = begin_reading(kept, g, whole->step);
    const trmi_state_words *segments = kept->part.segments;
    for (int64_t i = 0; i < kept->part.runs_count; i++) {
        const trmi_state_run *run = &kept->part.runs[i];
        const char *from = read_run(&reader, i);
        if ((run->repeated != 0) == repeated) {
            (void)trmi_state_run_place(run, segments, from, whole->begins, whole->data, NULL);
        }
        segments += run->segments;
    }
}

/* Puts all parts together in one memory of all ranks: first, at the same time, words of one rank
 * only; then those of several, one rank after the other, so that the lowest counts. */
static trm_status place_parts(const trmi_elastic_copies *c, trm_comm *comm,
                              const trmi_copies_owner *owners, const trmi_whole_state *whole,
                              trm_error *err) {
    const int32_t ranks = count_parts(owners, trm_comm_size(comm));
    for (int turn = 0; turn < 2; turn++) {
        for (int32_t rank = ranks - 1; rank >= 0; rank--) {
            int32_t ahead;
            if (find_holder(owners, trm_comm_size(comm), rank, &ahead) == trm_comm_rank(comm)) {
                place_runs(&c->kept[ahead], trmi_copies_find(c, whole->step), turn == 1, whole);
            }
            TRMI_TRY(turn == 1 || rank == 0 ? trm_comm_barrier(comm, err) : TRM_OK);
        }
    }
    return TRM_OK;
}

/* Broadcasts the part of a rank from the rank `holder`, which has it as part number `ahead`, and
 * copies its words to their places. */
static trm_status join_part(const trmi_elastic_copies *c, trm_comm *comm, int32_t holder,
                            int32_t ahead, const trmi_whole_state *whole, uint8_t *covered,
                            trm_error *err) {
    const bool gives = trm_comm_rank(comm) == holder;
    const trmi_state_part *part = NULL;
    trmi_state_part other = {0};
    char *data = NULL;
    trmi_part_size size = {0};
    trm_status status = TRM_OK;
    if (gives) {
        part = &c->kept[ahead].part;
        size = trmi_part_measure(part, false);
    }
    TRMI_TRY(trm_comm_broadcast(comm, &size, (int64_t)sizeof size, TRM_UINT8, holder, err));
    TRMI_TRY(TRMI_NEW(err, data, size.words * TRMI_STATE_WORD + 1, "for a part of the state"));
    if (gives) {
        read_part(&c->kept[ahead], trmi_copies_find(c, whole->step), whole->step, data);
    } else {
        TRMI_TRY_GOTO(status, trmi_part_make(&size, &other, err), done);
        part = &other;
    }
    const struct {
        void *data;
        int64_t bytes;
    } parcels[] = {{part->runs, size.runs * (int64_t)sizeof *part->runs},
                   {part->segments, size.segments * (int64_t)sizeof *part->segments},
                   {data, size.words * TRMI_STATE_WORD}};
    for (int i = 0; i < 3; i++) {
        if (parcels[i].bytes > 0) {
            TRMI_TRY_GOTO(
                status,
                trm_comm_broadcast(comm, parcels[i].data, parcels[i].bytes, TRM_UINT8, holder, err),
                done);
        }
    }
    trmi_state_part_place(part, size.words, data, whole->begins, whole->data, covered);
done:
    trmi_state_part_free(&other);
    trmi_free(data);
    return status;
}

/* Contract in elastic_copies.h. Parts that lie in memory of this host are read in place; others are
 * broadcast by a rank that has them. `covered` marks the words that have come. */
trm_status trmi_copies_join(const trmi_elastic_copies *c, trm_comm *comm,
                            const trmi_copies_owner *owners, const trmi_whole_state *whole,
                            bool *complete, trm_error *err) {
    const int32_t size = trm_comm_size(comm), ranks = count_parts(owners, size);
    uint8_t *covered;
    if (whole->shared) {
        *complete = true;
        return place_parts(c, comm, owners, whole, err);
    }
    TRMI_TRY(TRMI_NEW(err, covered, whole->words + 1, "for the parts of a state"));
    trm_status status = TRM_OK;
    for (int32_t rank = ranks - 1; status == TRM_OK && rank >= 0; rank--) {
        int32_t ahead;
        int32_t holder = find_holder(owners, size, rank, &ahead);
        if (holder >= 0) {
            status = join_part(c, comm, holder, ahead, whole, covered, err);
        }
    }
    int64_t at = 0;
    while (at < whole->words && covered[at] != 0) {
        at++;
    }
    *complete = at == whole->words;
    trmi_free(covered);
    return status;
}
