/* SPDX-License-Identifier: Apache-2.0 */
/* ps/shard/shard.h: one share-nothing part of a server: its rows of all tables, the record of
 * applied pushes, and its log. All functions are called by the shard's owner thread, or before
 * that thread starts.
 *
 *     push (worker, incarnation, sequence)
 *       applied before?               --> nothing happens
 *       its batch applied by another push?  --> only the worker's window is filled
 *       log it        --> survives the death of the process
 *       apply it      --> tick + 1
 *
 * A worker that dies while it pushes may have reached only some shards, and its batch is then
 * computed again by another push. So a batch has a name beside the push's: the samples of its
 * lease (trmi_span), or, where synchronous workers read shards of the data, the worker and its
 * clock.
 *
 * State = snapshot at snapshot n + log since snapshot n. Both contain windows and spans, so that a
 * repeated push is recognised after any restart. */
#ifndef TRMI_PS_SHARD_H
#define TRMI_PS_SHARD_H

#include "trireme/ps.h"

#include "base/os.h"
#include "ps/wire/codec.h"
#include "ps/shard/merge.h"
#include "ps/table/table.h"

/* The applied pushes of one worker: all up to `base`, and base + 1 + i for each bit i. */
typedef struct trmi_window {
    uint32_t worker, incarnation;
    uint64_t base, bits;
    int64_t clock;  /* batches of this worker that are applied here */
    int64_t before; /* of these, those of earlier incarnations */
} trmi_window;

/* Samples [begin, end) whose batches have been applied; the list is sorted and disjoint. Samples
 * are numbered through all epochs, so that a job needs only a few spans. */
typedef struct trmi_span {
    int64_t begin, end;
} trmi_span;

/* Pushes of a window (bits of 64), and last writers that a shard remembers. */
enum { TRMI_WINDOW_PUSHES = 64, TRMI_RECENT_WRITERS = 2048 };

/* The name of a push. */
typedef struct trmi_push_id {
    uint32_t worker, incarnation;
    uint64_t sequence;
} trmi_push_id;

/* What a mark of a push asks for. */
enum {
    TRMI_MARK_FILLS = 1 /* fills window, clock and span only: no gradients, no tick */
};

/* The batch of a push, by its samples. */
typedef struct trmi_push_mark {
    int64_t begin, end; /* samples; equal: not under a lease */
    uint32_t book;      /* book of the lease: samples of a later book are other samples */
    uint32_t flags;
} trmi_push_mark;

/* Forms of a push: at once, or (synchronous with leased samples) in two parts. */
typedef enum trmi_push_form {
    TRMI_PUSH_WHOLE,
    TRMI_PUSH_STAGED, /* kept until its step */
    TRMI_PUSH_STEP    /* the sum of the staged pushes of its ids */
} trmi_push_form;

/* One push, or the sum of several workers' pushes (synchronous mode), which marks all ids as
 * applied. */
typedef struct trmi_push {
    const trmi_push_id *ids;
    uint32_t id_count;
    uint32_t time;
    int64_t clock; /* batches that are finished with this push (synchronous: the step) */
    float rate_scale, gradient_scale;
    trm_dtype dtype;
    const trmi_ps_section *sections;
    uint32_t section_count;
    const trmi_push_mark *marks; /* [id_count], NULL: none */
    bool
        clocked; /* clocks identify batches: a new incarnation repeats batches whose fate it does not know */
    trmi_push_form form;
} trmi_push;

/* A push that waits for its step, with a copy of its sections in one block of memory. */
typedef struct trmi_staged_push {
    trmi_push_id id;
    trm_dtype dtype;           /* of the gradients */
    float rate_scale;          /* factor of the tables' learning rates */
    trmi_ps_section *sections; /* [section_count]; keys and values lie in the same block */
    uint32_t section_count;
    struct trmi_staged_push *next; /* list of the shard */
} trmi_staged_push;

/* The sections of one member of a sum. */
typedef struct trmi_sum_part {
    const trmi_ps_section *sections;
    uint32_t count;
    int64_t
        nodes; /* of the tree in which the sections are added, the same of all members; 0: none */
} trmi_sum_part;

/* The sum of several pushes. */
typedef struct trmi_sum {
    trmi_ps_section *sections; /* float32, one for each table */
    uint8_t **held;            /* [count] memory of the sections */
    uint32_t count;
} trmi_sum;

/* The pushes that changed one row; filled while a log is replayed for an audit. */
typedef struct trmi_watch {
    const char *table;
    uint64_t key;
    int64_t count; /* number of changes; the last TRM_PS_WRITERS are kept */
    trm_ps_writer last[TRM_PS_WRITERS];
} trmi_watch;

/* The log that is being written. */
typedef struct trmi_shard_log {
    const trmi_os *os;
    int fd;    /* -1: no log */
    bool sync; /* fsync after each push: survives a crash of the host */
    char path[256];
    int64_t bytes;
} trmi_shard_log;

typedef struct trmi_held trmi_held;

/* A shard. All memory of rows is counted in `account` against the shard's budget. */
typedef struct trmi_shard {
    trmi_account account;
    trmi_row_table_place place;
    uint32_t number; /* number within this server */
    trmi_row_table **tables;
    uint32_t table_count;
    trmi_window *windows;
    int64_t window_count, window_capacity;
    trmi_span *spans;
    int64_t span_count, span_capacity;
    uint32_t book; /* book that the spans belong to */
    uint32_t tick; /* pushes applied since the job began (global step) */
    int64_t clock;
    int64_t applied, repeated; /* pushes applied, and repeated ones, in this process */
    trmi_staged_push *staged;
    trmi_merge *merge;
    trmi_shard_log log;
    trmi_held *
        held; /* Records of the log that the rows do not contain: the last step, and the records after it. */
    int64_t held_count, held_capacity;
    trmi_watch *watch;     /* NULL: no audit */
    trm_ps_writer *recent; /* ring of the latest pushes; NULL: no room */
    int64_t recent_count;  /* pushes ever put into the ring */
    trm_error broken;      /* status TRM_OK, or the error with which all requests are refused */
} trmi_shard;

/* errors  NOMEM */
trm_status trmi_shard_create(int64_t memory_bytes, const trmi_row_table_place *place,
                             uint32_t number, trmi_shard **out, trm_error *err);
void trmi_shard_destroy(trmi_shard *shard);
/* Adds a table, which gets the number table_count, and logs it. */
trm_status trmi_shard_add_table(trmi_shard *shard, const trm_table_options *options,
                                trm_error *err);
/* Reads the rows of the sections into the sections' values. Rows that do not exist are created. */
trm_status trmi_shard_pull(trmi_shard *shard, const trmi_ps_section *sections, uint32_t count,
                           trm_dtype dtype, trm_error *err);
/* Logs and applies a push. *applied: false if it had been applied before.
 *   errors  CANCELLED: an older incarnation; INVALID: too far ahead; IO, NOSPACE */
trm_status trmi_shard_push(trmi_shard *shard, const trmi_push *push, bool *applied, trm_error *err);
/* Fills the windows of a push's ids without gradients: for a sum whose step this shard has
 * already. */
trm_status trmi_shard_fill(trmi_shard *shard, const trmi_push *push, trm_error *err);
/* Returns false for a push that only fills its window: it does not count as a tick. */
static inline bool trmi_push_counts(const trmi_push *push) {
    bool fills = push->marks != NULL && (push->marks[0].flags & TRMI_MARK_FILLS) != 0;
    return !fills && (push->section_count > 0 || push->clock > 0);
}
/* Returns TRM_END if these samples have been applied here, TRM_OK if not, INVALID if only some
 * of them have. */
trm_status trmi_spans_check(const trmi_shard *shard, const trmi_push_mark *mark, trm_error *err);
/* Notes that these samples have been applied.
 *   errors  NOMEM */
trm_status trmi_spans_add(trmi_shard *shard, const trmi_push_mark *mark, trm_error *err);
/* Returns TRM_OK if the push is new, TRM_END if it has been applied, or the error with which it
 * is refused. */
trm_status trmi_window_check(const trmi_shard *shard, const trmi_push_id *id, trm_error *err);
/* Writes the pushes of tick `tick` (several: their sum) to `out`, if they are still remembered;
 * returns how many. */
int32_t trmi_shard_writers(const trmi_shard *shard, uint32_t tick,
                           trm_ps_writer out[TRM_PS_WRITERS]);
/* Returns the window of a worker; NULL: it has pushed nothing here. */
trmi_window *trmi_shard_window(const trmi_shard *shard, uint32_t worker);
/* Adds or replaces a window, for instance one from a snapshot. */
trm_status trmi_shard_set_window(trmi_shard *shard, const trmi_window *window, trm_error *err);

/* --- steps ------------------------------------------------------------------------------------ */

/* Logs a push of one id and keeps it until its step. A push that is here already, or was in a
 * step, is no error.
 *   errors  CANCELLED: an older incarnation; NOMEM, IO, NOSPACE */
trm_status trmi_shard_stage(trmi_shard *shard, const trmi_push *push, trm_error *err);
/* Applies the sum of the ids' staged pushes as step push->clock, unless the shard has that step,
 * and discards what these workers staged before. The rate_scale of the first id is used.
 *   errors  CORRUPT: a staged push is missing, and the shard is broken; those of trmi_shard_push */
trm_status trmi_shard_step(trmi_shard *shard, const trmi_push *push, trm_error *err);

/* --- sums (shard_sum.c) ----------------------------------------------------------------------- */

/* Sums the parts' sections by table, in the order of the parts, or of the tree.
 *   owns  trmi_sum_free, also after an error */
trm_status trmi_shard_sum(trmi_shard *shard, const trmi_sum_part *parts, uint32_t count,
                          trm_dtype dtype, trmi_sum *out, trm_error *err);
void trmi_sum_free(trmi_sum *sum);

/* --- the log (shard_log.c; read back: shard_replay.c) ----------------------------------------- */

/* Begins a new log file, with all tables and staged pushes; the old file is closed and kept.
 *   errors  IO, NOSPACE */
trm_status trmi_shard_log_open(trmi_shard *shard, const trmi_os *os, const char *path, bool sync,
                               trm_error *err);
void trmi_shard_log_close(trmi_shard *shard);
trm_status trmi_shard_log_table(trmi_shard *shard, const trm_table_options *options,
                                trm_error *err);
trm_status trmi_shard_log_push(trmi_shard *shard, const trmi_push *push, trm_error *err);
/* *has: false for a log that only declares tables, which may be left out.
 *   errors  those of trmi_mapping_open */
trm_status trmi_shard_log_has_pushes(const char *path, bool *has, trm_error *err);
/* Logs the held records again, at the start of the log of a snapshot: the snapshot's rows do not
 * contain them, and older logs are not read after it. */
trm_status trmi_shard_log_held(trmi_shard *shard, trm_error *err);
/* Logs that step `step`, which precedes this record, is void. */
trm_status trmi_shard_log_void(trmi_shard *shard, int64_t step, trm_error *err);
/* Applies the records of a log that the shard does not have, except for the last step, which is
 * held. A torn last record ends the log: its push was never answered. *valid_bytes: where the
 * log ends (cut the file off there before appending). *pushes is increased by those applied.
 *   errors  IO, CORRUPT, NOMEM */
trm_status trmi_shard_replay(trmi_shard *shard, const char *path, int64_t *pushes,
                             int64_t *valid_bytes, trm_error *err);
/* Returns the step that is held; 0: none. */
int64_t trmi_shard_held_step(const trmi_shard *shard);
/* Copies its members to `ids` if there is room; returns how many there are. If a later life of a
 * member's worker has pushed the batch again after the step, the log says so (a fill), and `ids`
 * has that push. */
uint32_t trmi_shard_held_ids(const trmi_shard *shard, trmi_push_id *ids, uint32_t room);
/* Applies the held step; *pushes (may be NULL) is increased.
 *   errors  CORRUPT, NOMEM */
trm_status trmi_shard_apply_held(trmi_shard *shard, int64_t *pushes, trm_error *err);
/* trmi_shard_drop_held forgets the held records without logging that; trmi_shard_forget_held
 * also frees the list. */
void trmi_shard_drop_held(trmi_shard *shard);
void trmi_shard_forget_held(trmi_shard *shard);
/* Logs that the held step is void and forgets it: its pushes come again.
 *   errors  IO, NOSPACE */
trm_status trmi_shard_void_held(trmi_shard *shard, trm_error *err);

#endif
