/* SPDX-License-Identifier: Apache-2.0 */
/* ps/shard/shard.h: one share-nothing part of a server: its rows of all tables, who has pushed
 * what, its log. One thread, the owner, calls.
 *
 *   push (worker, incarnation, sequence)
 *     seen before?  --> nothing happens
 *     its batch was applied by somebody else's push?  --> only its window is filled
 *     log it        --> survives the death of the process
 *     apply it      --> tick + 1
 *
 * A worker that dies while it pushes may have reached some shards only, and somebody makes its
 * batch again: so a batch has a name of its own, beside the push's. It is the samples that a lease
 * lent (trmi_span), or, where workers keep step and nobody lends, the worker and its clock.
 *
 * State = checkpoint at cut n + log since cut n; both carry windows and spans, so that a push that
 * comes again after any restart is known. */
#ifndef TRMI_PS_SHARD_H
#define TRMI_PS_SHARD_H

#include "trireme/ps_tools.h"

#include "base/os.h"
#include "ps/wire/codec.h"
#include "ps/shard/merge.h"
#include "ps/table/table.h"

/* Pushes of one worker that have been applied: all up to `base`, and base + 1 + i for each bit i.
 */
typedef struct trmi_window {
    uint32_t worker, incarnation;
    uint64_t base, bits;
    int64_t clock;  /* batches that this worker has finished here */
    int64_t before; /* of them, those of earlier incarnations */
} trmi_window;

/* Samples [begin, end) of the book of leases whose batches have been applied: sorted, apart. The
 * samples of all epochs lie on one line, so that a job needs a few of these, ever. */
typedef struct trmi_span {
    int64_t begin, end;
} trmi_span;

enum { TRMI_WINDOW_PUSHES = 64, TRMI_RECENT_WRITERS = 2048 };

typedef struct trmi_push_id {
    uint32_t worker, incarnation;
    uint64_t sequence;
} trmi_push_id;

enum {
    TRMI_MARK_FILLS = 1 /* only window, clock and span: no gradients, no tick */
};

/* Which batch an id's push is. */
typedef struct trmi_push_mark {
    int64_t begin, end; /* samples; equal = not under a lease */
    uint32_t book;      /* a later book begins anew: what it says of samples is no repetition */
    uint32_t flags;
} trmi_push_mark;

/* How a push comes: at once, or (synchronous, of samples that were lent) in two parts. */
typedef enum trmi_push_form {
    TRMI_PUSH_WHOLE,
    TRMI_PUSH_STAGED, /* kept until its step */
    TRMI_PUSH_STEP    /* the sum of what its ids had staged */
} trmi_push_form;

/* One push, or the sum of several workers' (synchronous mode): then all ids are marked. */
typedef struct trmi_push {
    const trmi_push_id *ids;
    uint32_t id_count;
    uint32_t time;
    int64_t clock; /* batches that are finished with this push (synchronous: by all) */
    float rate_scale, gradient_scale;
    trm_dtype dtype;
    const trmi_ps_section *sections;
    uint32_t section_count;
    const trmi_push_mark *marks; /* [id_count], NULL = none */
    bool clocked; /* clocks name batches: a new incarnation makes again what it does not know of */
    trmi_push_form form;
} trmi_push;

/* A push that waits for its step: with its own copy of the sections, in one piece of memory. */
typedef struct trmi_staged_push {
    trmi_push_id id;
    trm_dtype dtype;
    float rate_scale;
    trmi_ps_section *sections;
    uint32_t section_count;
    struct trmi_staged_push *next;
} trmi_staged_push;

/* Sections of one member of a sum. */
typedef struct trmi_sum_part {
    const trmi_ps_section *sections;
    uint32_t count;
} trmi_sum_part;

typedef struct trmi_sum {
    trmi_ps_section *sections; /* float32, one a table */
    uint8_t **held;            /* their memory */
    uint32_t count;
} trmi_sum;

/* Who changed one row: filled while a log is replayed for an audit. */
typedef struct trmi_watch {
    const char *table;
    uint64_t key;
    int64_t count; /* of all; the last TRM_PS_WRITERS are kept */
    trm_ps_writer last[TRM_PS_WRITERS];
} trmi_watch;

typedef struct trmi_shard_log {
    const trmi_os *os;
    int fd;    /* -1 = no log */
    bool sync; /* fsync after each push: survives the host, too */
    char path[256];
    int64_t bytes;
} trmi_shard_log;

typedef struct trmi_held trmi_held;

typedef struct trmi_shard {
    trmi_account account;
    trmi_row_table_place place;
    uint32_t number; /* of this server's */
    trmi_row_table **tables;
    uint32_t table_count;
    trmi_window *windows;
    int64_t window_count, window_capacity;
    trmi_span *spans;
    int64_t span_count, span_capacity;
    uint32_t book; /* that the spans are of */
    uint32_t tick; /* pushes applied since the job began: its global step */
    int64_t clock;
    int64_t applied, repeated; /* pushes, by this process */
    trmi_staged_push *staged;
    trmi_merge *merge;
    trmi_shard_log log;
    trmi_held *held; /* records of the log that the rows do not have: the last step, and what is
                        behind it */
    int64_t held_count, held_capacity;
    trmi_watch *watch;     /* NULL = nobody looks */
    trm_ps_writer *recent; /* the last TRMI_RECENT_WRITERS that changed anything; NULL = no room */
    int64_t recent_count;  /* of all */
    trm_error broken;      /* status TRM_OK, or why this shard serves no more */
} trmi_shard;

/* errors  NOMEM */
trm_status trmi_shard_create(int64_t memory_bytes, const trmi_row_table_place *place,
                             uint32_t number, trmi_shard **out, trm_error *err);
void trmi_shard_destroy(trmi_shard *shard);
/* Table number table_count; logged. */
trm_status trmi_shard_add_table(trmi_shard *shard, const trm_table_options *options,
                                trm_error *err);
/* Fills the sections' values. */
trm_status trmi_shard_pull(trmi_shard *shard, const trmi_ps_section *sections, uint32_t count,
                           trm_dtype dtype, trm_error *err);
/* *applied = false if it had been applied before.
 *   errors  CANCELLED (an older incarnation of the worker), INVALID (too far ahead), IO, NOSPACE */
trm_status trmi_shard_push(trmi_shard *shard, const trmi_push *push, bool *applied, trm_error *err);
/* A sum whose step this shard has: fills the windows of members that are not in it. */
trm_status trmi_shard_fill(trmi_shard *shard, const trmi_push *push, trm_error *err);
/* False for a push that only fills its window: it is no tick. */
static inline bool trmi_push_counts(const trmi_push *push) {
    bool fills = push->marks != NULL && (push->marks[0].flags & TRMI_MARK_FILLS) != 0;
    return !fills && (push->section_count > 0 || push->clock > 0);
}
/* Whether these samples have been applied here (TRM_END), not yet (TRM_OK), or some of them:
 * INVALID. */
trm_status trmi_spans_check(const trmi_shard *shard, const trmi_push_mark *mark, trm_error *err);
/* Notes that they have.   errors  NOMEM */
trm_status trmi_spans_add(trmi_shard *shard, const trmi_push_mark *mark, trm_error *err);
/* Whether a push would be applied (TRM_OK), has been (TRM_END), or is refused. */
trm_status trmi_window_check(const trmi_shard *shard, const trmi_push_id *id, trm_error *err);
/* Whose push was tick number `tick` (several: their sum was), as far as is remembered; how many. */
int32_t trmi_shard_writers(const trmi_shard *shard, uint32_t tick,
                           trm_ps_writer out[TRM_PS_WRITERS]);
/* NULL: this worker has pushed nothing here. */
trmi_window *trmi_shard_window(const trmi_shard *shard, uint32_t worker);
/* Puts a window from a checkpoint in place. */
trm_status trmi_shard_set_window(trmi_shard *shard, const trmi_window *window, trm_error *err);

/* --- steps ------------------------------------------------------------------------------------ */

/* Keeps a push (of one id) until its step; one that is here already, or that a step has had, is no
 * error.
 *   errors  CANCELLED (an older incarnation), NOMEM, IO, NOSPACE */
trm_status trmi_shard_stage(trmi_shard *shard, const trmi_push *push, trm_error *err);
/* Applies the sum of what the ids have staged as step `push->clock`, unless it had that step, and
 * drops what these
 * workers staged before. The first id's rate_scale counts.   errors  CORRUPT (one is not here: the shard is broken), as push
 */
trm_status trmi_shard_step(trmi_shard *shard, const trmi_push *push, trm_error *err);

/* --- sums (shard_sum.c) ----------------------------------------------------------------------- */

/* Sums the parts' sections by table, in order of the parts.   ownership  trmi_sum_free, also after an error
 */
trm_status trmi_shard_sum(trmi_shard *shard, const trmi_sum_part *parts, uint32_t count,
                          trm_dtype dtype, trmi_sum *out, trm_error *err);
void trmi_sum_free(trmi_sum *sum);

/* --- the log (shard_log.c; read back: shard_replay.c) ----------------------------------------- */

/* Appends to a new file from here on, which begins with the tables and what is staged (the old one is closed and stays).   errors  IO, NOSPACE
 */
trm_status trmi_shard_log_open(trmi_shard *shard, const trmi_os *os, const char *path, bool sync,
                               trm_error *err);
void trmi_shard_log_close(trmi_shard *shard);
trm_status trmi_shard_log_table(trmi_shard *shard, const trm_table_options *options,
                                trm_error *err);
trm_status trmi_shard_log_push(trmi_shard *shard, const trmi_push *push, trm_error *err);
/* False for a log of tables only: whoever leaves it out loses nothing. */
bool trmi_shard_log_has_pushes(const char *path);
/* The step before this record does not count. */
trm_status trmi_shard_log_void(trmi_shard *shard, int64_t step, trm_error *err);
/* Applies what a log holds and the shard does not, but for its last step, which is held. A torn
 * last record ends it: nobody was told that it had been applied; *valid_bytes is where (cut the
 * file there before appending to it). *pushes counts those applied.   errors  IO, CORRUPT, NOMEM */
trm_status trmi_shard_replay(trmi_shard *shard, const char *path, int64_t *pushes,
                             int64_t *valid_bytes, trm_error *err);
/* The step that is held; 0 = none. */
int64_t trmi_shard_held_step(const trmi_shard *shard);
/* Its members, as far as there is room.   returns how many there are */
uint32_t trmi_shard_held_ids(const trmi_shard *shard, trmi_push_id *ids, uint32_t room);
/* Applies it; *pushes (NULL: not wanted) counts on.   errors  CORRUPT, NOMEM */
trm_status trmi_shard_apply_held(trmi_shard *shard, int64_t *pushes, trm_error *err);
/* Forgets the held records without a record in the log; `forget` also frees the list itself. */
void trmi_shard_drop_held(trmi_shard *shard);
void trmi_shard_forget_held(trmi_shard *shard);
/* Logs that it does not count, and forgets it: its pushes come again.   errors  IO, NOSPACE */
trm_status trmi_shard_void_held(trmi_shard *shard, trm_error *err);

#endif
