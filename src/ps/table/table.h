/* SPDX-License-Identifier: Apache-2.0 */
/* ps/table/table.h: the part of one table that one shard holds. All functions are called by the
 * shard's owner thread.
 *
 *     key --> rows (in memory, ps/table/rows.h)     hot
 *         \-> spilled --> place in the file         cold; a push brings the row back
 *         \-> absent                                a pull reads the initial value; a push goes through admission
 *
 * A snapshot saves the records while updates go on: a record that is about to change and
 * has not been saved is saved first.
 *
 *   table.c        options, creation, reading, snapshots      rows.c     records by key
 *   table_write.c  updates, eviction, expiry                  spill.c    cold rows in a file
 *   admit.c        which new keys get a row                   apply*.c   rules      lookup*.c   many keys at a time */
#ifndef TRMI_PS_TABLE_H
#define TRMI_PS_TABLE_H

#include "ps/table/admit.h"
#include "ps/table/apply.h"
#include "ps/table/lookup.h"
#include "ps/table/spill.h"

/* Letters of a table's name, and columns of a row, at most. */
enum { TRMI_TABLE_NAME_MAX = 63, TRMI_TABLE_WIDTH_MAX = 1 << 20 };

/* Receives records as they were at the snapshot; NULL: a spilled record could not be read. */
typedef struct trmi_snapshot_sink {
    void (*save)(void *context, const void *record);
    void *context;
    uint32_t since; /* only records that changed in this generation or later; 0: all */
} trmi_snapshot_sink;

/* The part of a spilled row that stays in memory: its place in the file, and the figures on
 * which its expiry depends. Tables without expiry and cap keep only place and key, without a
 * gap. */
typedef struct trmi_cold {
    uint32_t slot;                 /* place in the spill file */
    uint32_t last_tick, last_time; /* of the row's last change: tick of the shard, second */
    float score;                   /* that expiry compares (trm_expiry.min_score) */
    uint64_t key;
} trmi_cold;

/* A table on one shard. */
typedef struct trmi_row_table {
    trm_table_options options; /* defaults filled in; name points to `name` */
    char name[TRMI_TABLE_NAME_MAX + 1];
    trmi_row_layout layout;
    trmi_account *account;
    trmi_rows rows;
    trmi_admitter admitter;
    trmi_spill *spill; /* NULL: cold rows are evicted */
    trmi_rows spilled; /* the index of spilled rows: its records are trmi_cold */
    const trmi_apply_kernels *kernels;
    const trmi_lookup *lookup;
    trmi_row_apply apply; /* the kernel of this table's rule */
    trm_ps_source initial;
    bool special;     /* updates need more than `apply`: see update_row_special */
    int64_t rows_max; /* largest number of rows on this shard; INT64_MAX: no limit */

    uint32_t generation;                /* number of the latest snapshot */
    const trmi_snapshot_sink *snapshot; /* NULL unless a snapshot is under way */
    uint32_t snapshot_page;             /* pages below have been saved */
    uint64_t *removed;                  /* keys removed in this generation */
    int64_t removed_count, removed_capacity;
    bool removed_lost; /* the list did not fit: a differential file is impossible */
    bool track_removed;

    uint32_t sweep_page, sweep_place;
    uint32_t cold_page, cold_place; /* position of the sweep in `spilled` */
    uint64_t samples;               /* counter of random samples */
    int64_t pressed;                /* rows evicted since the admission level last rose */
    void *record;                   /* one scratch record */
    float *values, *gradient;       /* scratch rows */
    int32_t *missing;               /* scratch list of positions, TRMI_LOOKUP_KEYS */
    trm_table_stats stats;
} trmi_row_table;

/* The surroundings of a table. */
typedef struct trmi_row_table_place {
    uint32_t shards;          /* shards of the whole job; caps and capacities are divided by it */
    const char *spill_folder; /* NULL: no spilling */
    int64_t spill_bytes;      /* 0: no limit */
    trm_ps_source initial;
} trmi_row_table_place;

/* Checks the options of a table and fills in defaults.
 *   errors  INVALID */
trm_status trmi_row_table_check(const trm_table_options *in, trm_table_options *out,
                                trm_error *err);
/* Room for the value of an option as text. */
enum { TRMI_TABLE_VALUE_TEXT = 32 };
/* table_difference.c: returns the name of the first option in which two checked declarations
 * differ ("optimizer.momentum"), and writes both values; NULL: they agree in all but, perhaps, name
 * and staleness. */
const char *trmi_row_table_difference(const trm_table_options *a, const trm_table_options *b,
                                      char value_a[TRMI_TABLE_VALUE_TEXT],
                                      char value_b[TRMI_TABLE_VALUE_TEXT]);
/* Creates an empty table.
 *   errors  INVALID, NOMEM (memory or budget), IO (spill file) */
trm_status trmi_row_table_create(const trm_table_options *options,
                                 const trmi_row_table_place *place, trmi_account *account,
                                 trmi_row_table **out, trm_error *err);
/* Frees a table. NULL is accepted. */
void trmi_row_table_destroy(trmi_row_table *table);

/* Reads the rows of keys[count] to out[count][width] of `dtype`; absent keys read their initial
 * value. Changes nothing but counters.
 *   errors  IO (spill file) */
trm_status trmi_row_table_read(trmi_row_table *table, const uint64_t *keys, int64_t count,
                               trm_dtype dtype, void *out, trm_error *err);
/* Applies one push: updates the rows of the distinct keys[count] with gradients[count][width] of
 * `dtype`. Without room in the budget gradients are dropped and counted, which is no error.
 *   errors  IO (spill file) */
trm_status trmi_row_table_update(trmi_row_table *table, const uint64_t *keys, int64_t count,
                                 trm_dtype dtype, const void *gradients, const trmi_tick *tick,
                                 trm_error *err);
/* Stores a record from a file (layout->record_bytes); replaces the key's row unless there is
 * none for certain (`fresh`). Returns false without room. */
bool trmi_row_table_restore(trmi_row_table *table, const void *record, bool fresh);
/* Removes a row, also a spilled one; returns whether it existed. */
bool trmi_row_table_remove(trmi_row_table *table, uint64_t key);
/* Copies the row of a key (values and slots as float32; either may be NULL). Returns false if
 * absent. */
bool trmi_row_table_peek(trmi_row_table *table, uint64_t key, trm_row_info *info, float *values,
                         float *slots);
/* Copies the statistics. */
void trmi_row_table_get_stats(const trmi_row_table *table, trm_table_stats *out);

/* --- snapshots -------------------------------------------------------------------------------- */

/* Begins snapshot and generation `number` (larger than the latest). `sink` (kept; NULL: none)
 * receives every record as it is now, some in trmi_row_table_walk_snapshot, some when they are
 * about to change. */
void trmi_row_table_begin_snapshot(trmi_row_table *table, uint32_t number,
                                   const trmi_snapshot_sink *sink);
/* Saves about `rows` records. Returns true when all are saved; the sink is then released. */
bool trmi_row_table_walk_snapshot(trmi_row_table *table, int64_t rows);
/* Returns the keys that were removed since the latest call, and empties the list. Returns false
 * (and no list) if it was incomplete for lack of budget.
 *   owns  the caller, by trmi_account_free(table->account, *keys, *capacity * 8) */
bool trmi_row_table_take_removed(trmi_row_table *table, uint64_t **keys, int64_t *count,
                                 int64_t *capacity);

/* --- between the files of the table ----------------------------------------------------------- */

/* Saves a record for the snapshot under way, if it has not been saved: called before it changes
 * or leaves. */
void trmi_row_table_save_first(trmi_row_table *table, const char *record);
/* Saves a record for a snapshot under way, and marks it as changed in this generation, before it
 * changes. */
static inline void trmi_row_table_touch(trmi_row_table *table, char *record) {
    trmi_row_header *header = trmi_row_header_of(&table->layout, record);
    if (table->snapshot != NULL && header->generation < table->generation) {
        trmi_row_table_save_first(table, record);
    }
    header->generation = table->generation;
}
/* Computes the initial values of a key's row in table->values: from the warm start, or the
 * initialiser. */
static inline void trmi_row_table_initial(trmi_row_table *table, uint64_t key) {
    const trm_table_options *o = &table->options;
    if (table->initial.read == NULL ||
        !table->initial.read(table->initial.context, table->name, key, o->width, table->values)) {
        trmi_row_init_values(&o->init, o->seed, key, o->width, table->values);
    }
}

#endif
