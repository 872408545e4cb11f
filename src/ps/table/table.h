/* SPDX-License-Identifier: Apache-2.0 */
/* ps/table/table.h: the part of one table that one shard holds. One thread, the shard's owner,
 * calls.
 *
 *   key --> rows (in memory, ps/table/rows.h)     hot
 *       \-> spilled --> place in the file    cold; a push brings the row back
 *       \-> absent                           a pull reads the initial value; a push asks admission
 *
 * A snapshot (cut) walks the records while updates go on: a record that is about to change, and
 * that the walk has not reached, is saved first. */
#ifndef TRMI_PS_TABLE_H
#define TRMI_PS_TABLE_H

#include "ps/table/admit.h"
#include "ps/table/apply.h"
#include "ps/table/lookup.h"
#include "ps/table/spill.h"

enum { TRMI_TABLE_NAME_MAX = 63, TRMI_TABLE_WIDTH_MAX = 1 << 20 };

/* Receives records as they were at the cut; NULL says that a spilled one could not be read. */
typedef struct trmi_cut_sink {
    void (*save)(void *context, const void *record);
    void *context;
    uint32_t since; /* only records changed in this generation or later; 0 = all */
} trmi_cut_sink;

/* What memory keeps of a spilled row: its place, and what its expiry depends on. Tables without
 * expiry and cap keep place and key alone, with nothing between them. */
typedef struct trmi_cold {
    uint32_t slot, last_tick, last_time;
    float score;
    uint64_t key;
} trmi_cold;

typedef struct trmi_row_table {
    trm_table_options options; /* defaults filled in; name points to `name` */
    char name[TRMI_TABLE_NAME_MAX + 1];
    trmi_row_layout layout;
    trmi_account *account;
    trmi_rows rows;
    trmi_admitter admitter;
    trmi_spill *spill; /* NULL = cold rows are evicted */
    trmi_rows spilled; /* of records that are a trmi_cold */
    const trmi_apply_kernels *kernels;
    const trmi_lookup *lookup;
    void (*apply)(float *w, float *slots, const float *g, int32_t width,
                  const trmi_apply_args *args); /* of this table's rule */
    trm_ps_source initial;
    bool special;     /* rows need more than `apply` */
    int64_t rows_max; /* of this shard, by the cap; INT64_MAX = none */

    uint32_t generation;      /* number of the last cut */
    const trmi_cut_sink *cut; /* NULL unless a walk is under way */
    uint32_t cut_page;        /* pages below have been walked */
    uint64_t *removed;        /* keys that left in this generation */
    int64_t removed_count, removed_capacity;
    bool removed_lost; /* the list did not fit: a differential file cannot be made */
    bool track_removed;

    uint32_t sweep_page, sweep_place;
    uint32_t cold_page, cold_place; /* of `spilled` */
    uint64_t samples;               /* counter of random picks */
    int64_t pressed;                /* rows that had to go since the level last rose */
    void *record;                   /* one scratch record */
    float *values, *gradient;       /* scratch rows */
    int32_t *missing;               /* scratch list of positions, TRMI_LOOKUP_KEYS */
    trm_table_stats stats;
} trmi_row_table;

typedef struct trmi_row_table_place {
    uint32_t shards;          /* of the whole job; caps and capacities are divided by it */
    const char *spill_folder; /* NULL = none */
    int64_t spill_bytes;      /* 0 = no limit */
    trm_ps_source initial;
} trmi_row_table_place;

/* Checks options and fills in their defaults.   errors  INVALID */
trm_status trmi_row_table_check(const trm_table_options *in, trm_table_options *out,
                                trm_error *err);
/* errors  INVALID, NOMEM (memory or budget), IO (spill file) */
trm_status trmi_row_table_create(const trm_table_options *options,
                                 const trmi_row_table_place *place, trmi_account *account,
                                 trmi_row_table **out, trm_error *err);
void trmi_row_table_destroy(trmi_row_table *table);

/* out[count][width] of `dtype` = the rows of these keys; absent keys read their initial value.
 *   errors  IO (spill file)    changes nothing but counters */
trm_status trmi_row_table_read(trmi_row_table *table, const uint64_t *keys, int64_t count,
                               trm_dtype dtype, void *out, trm_error *err);
/* One push: rows[keys[i]] learn from gradients[i][width] of `dtype`. Keys are distinct.
 *   errors  IO (spill file); lack of budget is none: gradients are then dropped and counted */
trm_status trmi_row_table_update(trmi_row_table *table, const uint64_t *keys, int64_t count,
                                 trm_dtype dtype, const void *gradients, const trmi_tick *tick,
                                 trm_error *err);
/* A whole record from a file (layout->record_bytes); replaces the key's row, unless it is known
 * that there is none (`fresh`). False: no room. */
bool trmi_row_table_restore(trmi_row_table *table, const void *record, bool fresh);
bool trmi_row_table_remove(trmi_row_table *table, uint64_t key);
/* Copies the row of a key (values and slots as float32; either may be NULL). False if absent. */
bool trmi_row_table_peek(trmi_row_table *table, uint64_t key, trm_row_info *info, float *values,
                         float *slots);
void trmi_row_table_get_stats(const trmi_row_table *table, trm_table_stats *out);

/* --- cuts ------------------------------------------------------------------------------------ */

/* Starts generation `number` (larger than the last); `sink` (kept) receives every record as it is
 * now, some in trmi_row_table_cut_walk, some when they are about to change. NULL: nobody wants
 * them. */
void trmi_row_table_cut(trmi_row_table *table, uint32_t number, const trmi_cut_sink *sink);
/* Walks about `rows` records. True when all are saved; the sink is then released. */
bool trmi_row_table_cut_walk(trmi_row_table *table, int64_t rows);
/* The keys that left since the last call here or cut of another kind; the list is emptied.
 * False (and no list) when it was incomplete for lack of budget.
 *   owns  caller, by trmi_account_free(table->account, *keys, *capacity * 8) */
bool trmi_row_table_take_removed(trmi_row_table *table, uint64_t **keys, int64_t *count,
                                 int64_t *capacity);

/* --- between the files of the table ----------------------------------------------------------- */

/* Before a record of this key changes or leaves while a cut is under way. */
void trmi_row_table_save_first(trmi_row_table *table, const char *record);
static inline void trmi_row_table_touch(trmi_row_table *table, char *record) {
    trmi_row_header *header = trmi_row_header_of(&table->layout, record);
    if (table->cut != NULL && header->generation < table->generation) {
        trmi_row_table_save_first(table, record);
    }
    header->generation = table->generation;
}
/* What a row of this key begins with: in table->values. */
static inline void trmi_row_table_initial(trmi_row_table *table, uint64_t key) {
    const trm_table_options *o = &table->options;
    if (table->initial.read == NULL ||
        !table->initial.read(table->initial.context, table->name, key, o->width, table->values)) {
        trmi_row_init_values(&o->init, o->seed, key, o->width, table->values);
    }
}
/* A record for a new row, its contents undefined, making room within the budget and the cap; NULL
 * if there is none. */
char *trmi_row_table_take_row(trmi_row_table *table, uint64_t key, uint32_t tick);
/* One row leaves if the cap says that the table is full. False if none can. */
bool trmi_row_table_keep_cap(trmi_row_table *table, uint32_t tick);

#endif
