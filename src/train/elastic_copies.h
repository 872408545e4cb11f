/* SPDX-License-Identifier: Apache-2.0 */
/* train/elastic_copies.h: the state of a model that no rank has whole (slices of the optimiser,
 * split graphs, pipelines), kept so that a death loses nothing (docs/internals/elastic.md).
 *
 *      rank          0            1            2
 *      own part      A            B            C           after step s and after s - 1
 *      one host:     the parts of all ranks lie in memory that all map: each reads those of ranks that have died
 *      several:      B            C            A           a copy of the part of the next rank, of the same steps
 *
 * Two generations of a part:
 *
 *      slots that take turns               two places: an update reads one and writes the other
 *        (exec/state_part.h)
 *      other runs in place                 where the program has them, and `old`: the first words
 *                                          of each run before the last update that has begun to
 *                                          change it, as many as it has changed
 *      other runs, and on several hosts    data[g]: copies of them, one a generation
 *
 * A rank keeps step s by copying the runs that are not in place, noting in which place the slots of
 * s are, marking the generation with s, and waiting until all have done so. Where all ranks meet at
 * the end of an update anyway (slices with one copy of the parameters), they do so in the update,
 * before that meeting. Only then does the next update change a piece, and before that its words go
 * to `old`. So whenever ranks die, there is a step of which all that are left have what they need:
 * the least of their newest ones. At most one step is done again.
 *
 * Why the slots of that step s are whole, at whichever instruction a rank dies: the mark of s names
 * their place. The update that follows s writes only the other place, and until all ranks have
 * marked s + 1 no rank begins the update that writes the place of s again; when one begins it,
 * s + 1 is complete and s is not asked for any more. An update that returns before its blocks (an
 * overflow of the loss scale; FTRL with a rate of zero) leaves the slots in their place, and the
 * mark of the next step names the same one. */
#ifndef TRMI_TRAIN_ELASTIC_COPIES_H
#define TRMI_TRAIN_ELASTIC_COPIES_H

#include "comm/shm/shm.h"
#include "exec/state_part.h"

#include "train/elastic_position.h"

/* Which words of a run are in `old`. In the memory of all ranks. */
typedef struct trmi_old_words {
    _Atomic int64_t step;  /* the step before the last update of the run, plus 1; 0: none */
    _Atomic int64_t count; /* the run's first words are there; the update has changed no others */
} trmi_old_words;

/* A part that this process can read. */
typedef struct trmi_kept_part {
    trmi_state_part part;      /* its description */
    char *data[2];             /* words of runs that are not in place, by generation */
    char *old;                 /* words of runs in place, before the last update of each */
    trmi_old_words *old_words; /* [runs] */
    const char *memory[TRMI_STATE_MEMORIES]; /* the rank's memory in which runs in place lie */
    const struct trmi_copies_mark *mark;     /* of the rank; NULL: it has no runs in place */
} trmi_kept_part;

/* The generations that a rank has written: their steps plus 1, 0 = none; whether its slots of that
 * step are in their second place. In the memory of all ranks. */
typedef struct trmi_copies_mark {
    _Alignas(64) _Atomic int64_t steps[2];
    atomic_bool second[2];
} trmi_copies_mark;

/* What this rank keeps in one epoch of the job. */
typedef struct trmi_elastic_copies {
    bool on;             /* the program of this epoch has parts */
    int32_t rank, ranks; /* of that program */
    trm_exec *exec;      /* the program; borrowed */
    trmi_state_part own;
    /* of the runs in place that have one place: where each begins in `old` (bytes), the next run
     * of the same piece; by piece: its first run. -1: none */
    int64_t *old_begins, *next_runs, *first_runs;
    int64_t pieces;
    trmi_kept_part *kept;    /* [reach] parts of this rank, the next one, ... */
    int32_t reach;           /* all ranks on one host, else 2 */
    trmi_shm_segment shared; /* one host: marks and parts of all ranks */
    /* [ranks] one host: the memory of all ranks, which stays when a rank dies */
    trmi_shm_segment *memory[TRMI_STATE_MEMORIES];
    trmi_elastic_position at[2];
    int64_t steps[2]; /* -1: this generation is not complete */
    int32_t newest;
} trmi_elastic_copies;

enum { TRMI_STATE_WORD = 4 }; /* bytes: states are copied in units of so many */

/* How large the description of a part is, and its data. */
typedef struct trmi_part_size {
    int64_t runs, segments, words, in_place;
    int64_t old_bytes; /* of the old words of runs in place that have one place */
} trmi_part_size;
/* Returns the size of the runs that no other rank has (`alone`), or of all. */
trmi_part_size trmi_part_measure(const trmi_state_part *part, bool alone);
/* Takes memory for the description of a part of another rank.   errors  NOMEM */
trm_status trmi_part_make(const trmi_part_size *size, trmi_state_part *part, trm_error *err);
/* Returns the bytes of a run's old words: each begins at a multiple of 64 bytes. */
int64_t trmi_run_old_bytes(const trmi_state_run *run);

/* Gathers `bytes` bytes of each rank, in the order of the ranks.
 *   owns    caller: trmi_free(*out)
 *   errors  NOMEM, those of collectives; *out is then NULL */
trm_status trmi_elastic_gather(trm_comm *comm, const void *mine, size_t bytes, void **out,
                               trm_error *err);
/* Lists the part of this rank, and lets others reach it. Collective. `order`: the position of each
 * variable among all (trmi_elastic_model.order). Updates of `exec` use *copies.
 *   errors  NOMEM, INVALID (trmi_state_part_list), those of trm_comm_exchange */
trm_status trmi_copies_open(trmi_elastic_copies *copies, trm_exec *exec, trm_comm *comm,
                            const int32_t *order, trm_error *err);
void trmi_copies_close(trmi_elastic_copies *copies);
/* Writes what the program of this rank needs of `whole` (trmi_copies_join) into it: variables that
 * each rank has, and its part of the others. All ranks have done so before one of them uses the
 * values. `order`: as for trmi_copies_open. */
void trmi_copies_fill(const trmi_elastic_copies *copies, trm_exec *exec, const int32_t *order,
                      const int64_t *begins, const char *whole);
/* Keeps the words of a piece before an update changes it, or says where the update copies them
 * (trmi_state_watcher.piece_changes). */
trmi_update_old trmi_copies_keep_piece(void *copies, int64_t piece, int64_t count);
/* Keeps the state after `step` in place of the older generation, and waits until all ranks have
 * done so. Collective. */
trm_status trmi_copies_keep(trmi_elastic_copies *copies, trm_comm *comm, uint64_t step,
                            trm_error *err);
/* Returns the generation of a step; -1: this rank has none. */
int32_t trmi_copies_find(const trmi_elastic_copies *copies, int64_t step);

/* What each of the ranks that are left has of the parts: generations that are complete in all parts
 * that it can read. */
typedef struct trmi_copies_owner {
    int64_t newest, older; /* steps; -1 = none */
    int32_t rank, ranks;   /* of the program whose parts these are; ranks 0: it has none */
    int64_t reach;         /* trmi_elastic_copies.reach */
} trmi_copies_owner;
/* Returns whether a rank keeps parts of a complete step. */
static inline bool trmi_copies_has_parts(const trmi_copies_owner *owner) {
    return owner->ranks > 0 && owner->newest >= 0;
}
trmi_copies_owner trmi_copies_describe(const trmi_elastic_copies *copies);

/* Returns whether ranks that are left can read every part. */
bool trmi_copies_has_all(const trmi_copies_owner *owners, int32_t size);
/* The state of all ranks after one step: all variables in plain layout. */
typedef struct trmi_whole_state {
    int64_t step;
    const int64_t *begins; /* variable i begins at word begins[i] */
    int64_t words;         /* of all variables */
    char *data;            /* memory for the words */
    /* `data` is one memory of all ranks, into which each rank writes those parts that it reads
     * (trmi_copies_has_all) */
    bool shared;
} trmi_whole_state;
/* Puts the parts of a step together in `whole`. A part of a rank that has died comes from another
 * that can read it; where several ranks have the same words, those of the lowest count. *complete:
 * all words were there. Collective.
 *   param   owners: of all ranks of `comm`
 *   errors  NOMEM, those of trm_comm_broadcast */
trm_status trmi_copies_join(const trmi_elastic_copies *copies, trm_comm *comm,
                            const trmi_copies_owner *owners, const trmi_whole_state *whole,
                            bool *complete, trm_error *err);

#endif
