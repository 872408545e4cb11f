/* SPDX-License-Identifier: Apache-2.0 */
/* A table of rows on one shard: options, creation, reading, restoring and snapshots; table_write.c
 * changes rows (contracts in table.h).
 *
 *      rows        records in memory (rows.c)
 *      spilled     for each row in the spill file: its place there
 *      snapshot    the snapshot that is being taken, or NULL
 *
 * A snapshot does not stop the table. Each record carries the generation of its last change. When
 * one begins, the table's generation becomes its number; a walk saves the records place by place,
 * and a change saves a record first if the walk has not reached it. So the snapshot has every row
 * as it was when it began. */
#include "ps/table/table.h"

#include "trireme/ps.h"

#include "base/checked.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/optimizer_rule.h"
#include "base/rng.h"

#include <stddef.h>
#include <stdio.h>

/* Checks the expiry options.
 *   errors  INVALID */
static trm_status check_expiry(const trm_table_options *o, trm_error *err) {
    const trm_expiry *e = &o->expiry;
    if (!(e->after_seconds >= 0) || e->after_ticks < 0 || e->max_rows < 0 || !(e->min_score >= 0) ||
        !(e->score_decay >= 0 && e->score_decay <= 1) || !(e->min_norm >= 0)) {
        return TRMI_FAIL(err, TRM_INVALID,
                         "table '%.40s': expiry wants numbers >= 0 and score_decay at most 1",
                         o->name);
    }
    if (e->min_score > 0 && e->min_score <= 1 && (e->score_decay == 0 || e->score_decay == 1)) {
        return TRMI_FAIL(err, TRM_INVALID,
                         "table '%.40s': min_score %g has no effect: each update counts 1 and "
                         "nothing decays; give a "
                         "score_decay below 1, or a min_score above 1",
                         o->name, (double)e->min_score);
    }
    return e->cap == TRM_CAP_LRU || e->cap == TRM_CAP_LFU
               ? TRM_OK
               : TRMI_FAIL(err, TRM_INVALID,
                           "table '%.40s': cap policy %d, TRM_CAP_LRU or TRM_CAP_LFU expected",
                           o->name, (int)e->cap);
}

/* Checks the rule of the rows and fills in its defaults. The learning rate is kept in float32, as
 * the other options of the rule. */
static trm_status check_optimizer(trm_table_options *o, trm_error *err) {
    char owner[TRMI_TABLE_NAME_MAX + 16];
    snprintf(owner, sizeof owner, "table '%.40s'", o->name);
    o->learning_rate = (double)(float)(o->learning_rate == 0 ? 0.01 : o->learning_rate);
    if (!(o->learning_rate >= 0 && o->learning_rate <= 1e6)) {
        return TRMI_FAIL(err, TRM_INVALID, "%s: learning_rate is %g, 0 to 1e6 expected", owner,
                         o->learning_rate);
    }
    return trmi_optimizer_check(&o->optimizer, true, owner, &o->optimizer, err);
}

/* Contract in table.h. */
trm_status trmi_row_table_check(const trm_table_options *in, trm_table_options *out,
                                trm_error *err) {
    trm_table_options o = *in;
    size_t length = o.name == NULL ? 0 : strnlen(o.name, TRMI_TABLE_NAME_MAX + 1);
    if (length == 0 || length > TRMI_TABLE_NAME_MAX) {
        return TRMI_FAIL(err, TRM_INVALID, "a table needs a name of 1 to %d bytes, found %zu",
                         TRMI_TABLE_NAME_MAX, length);
    }
    if (o.width < 1 || o.width > TRMI_TABLE_WIDTH_MAX) {
        return TRMI_FAIL(err, TRM_INVALID, "table '%s': width is %d, 1 to %d expected", o.name,
                         o.width, TRMI_TABLE_WIDTH_MAX);
    }
    o.dtype = o.dtype == TRM_DTYPE_NONE ? TRM_FLOAT32 : o.dtype;
    if (o.dtype != TRM_FLOAT32 && o.dtype != TRM_BFLOAT16 && o.dtype != TRM_FLOAT16) {
        return TRMI_FAIL(err, TRM_INVALID,
                         "table '%s': rows of %s are not offered: float32, bfloat16 or float16",
                         o.name, trm_dtype_name(o.dtype));
    }
    if (o.init.kind < TRM_ROW_INIT_CONSTANT || o.init.kind > TRM_ROW_INIT_NORMAL) {
        return TRMI_FAIL(err, TRM_INVALID, "table '%s': initialiser %d, %d to %d expected", o.name,
                         (int)o.init.kind, TRM_ROW_INIT_CONSTANT, TRM_ROW_INIT_NORMAL);
    }
    if (o.staleness < TRM_STALENESS_NONE) {
        return TRMI_FAIL(
            err, TRM_INVALID,
            "table '%s': staleness %d: batches, 0 (as the job's) or TRM_STALENESS_NONE expected",
            o.name, o.staleness);
    }
    /* rules of their own files; then defaults */
    TRMI_TRY(check_optimizer(&o, err));
    TRMI_TRY(check_expiry(&o, err));
    TRMI_TRY(trmi_placement_check(&o.placement, o.name, err));
    o.expiry.score_decay = o.expiry.score_decay == 0 ? 1 : o.expiry.score_decay;
    *out = o;
    return TRM_OK;
}

/* Allocates the scratch rows and the first page. */
static trm_status take_scratch(trmi_row_table *table, trm_error *err) {
    size_t row = (size_t)table->options.width * sizeof(float);
    table->record = trmi_account_alloc(table->account, table->layout.stride);
    table->values = trmi_account_alloc(table->account, row);
    table->gradient = trmi_account_alloc(table->account, row);
    table->missing = trmi_account_alloc(table->account, TRMI_LOOKUP_KEYS * sizeof *table->missing);
    bool ok = table->missing != NULL && table->record != NULL && table->values != NULL &&
              table->gradient != NULL &&
              trmi_rows_init(&table->rows, table->account, &table->layout);
    return ok ? TRM_OK
              : TRMI_FAIL(err, TRM_NOMEM,
                          "table '%s': the budget of %lld bytes has no room for an empty table (%u "
                          "bytes a row): give the server "
                          "more memory",
                          table->name, (long long)table->account->limit, table->layout.stride);
}

/* ---- snapshots ------------------------------------------------------------------------------- */

/* Passes a record to the snapshot if it has changed since `since` and not since the snapshot. */
static void save_record(trmi_row_table *table, const char *record) {
    const trmi_row_header *h = trmi_row_header_of(&table->layout, (void *)(uintptr_t)record);
    if (h->generation < table->generation && h->generation >= table->snapshot->since) {
        table->snapshot->save(table->snapshot->context, record);
    }
}

/* Saves the records of a page up to place `end`. */
static void walk_places(trmi_row_table *table, trmi_rows_page *page, uint32_t end) {
    for (; page->walked < end; page->walked++) {
        const char *record = trmi_rows_at(&table->rows, page, page->walked);
        if (record != NULL) {
            save_record(table, record);
        }
    }
}

/* Saves all records of a page that is about to be moved (rows.before_move). */
static void walk_page(void *context, trmi_rows_page *page) {
    trmi_row_table *table = context;
    if (table->snapshot != NULL) {
        walk_places(table, page, page->places);
    }
}

/* Contract in table.h. From here on a change of a record of an older generation saves it first. */
void trmi_row_table_begin_snapshot(trmi_row_table *table, uint32_t number,
                                   const trmi_snapshot_sink *sink) {
    table->generation = number;
    table->snapshot = sink;
    table->snapshot_page = 0;
    table->track_removed = true;
    for (uint32_t i = 0; i < table->rows.page_count; i++) {
        table->rows.pages[i].walked = 0;
    }
    for (uint32_t i = 0; i < table->spilled.page_count; i++) {
        table->spilled.pages[i].walked = 0;
    }
}

/* Contract in table.h. Nothing to do if the walk has passed the record. */
void trmi_row_table_save_first(trmi_row_table *table, const char *record) {
    uint64_t key = trmi_row_header_of(&table->layout, (void *)(uintptr_t)record)->key;
    const trmi_rows_page *page = trmi_rows_page_of(&table->rows, key);
    /* A record outside of its page was read from the spill file, whose rows are saved last. */
    bool inside =
        record >= page->base && record < page->base + page->places * (size_t)table->rows.stride;
    if (!inside || trmi_rows_place_of(&table->rows, page, record) >= page->walked) {
        save_record(table, record);
    }
}

/* Saves all spilled rows, at the end of a snapshot. */
static void save_spilled(trmi_row_table *table) {
    for (uint32_t p = 0; p < table->spilled.page_count; p++) {
        const trmi_rows_page *page = &table->spilled.pages[p];
        for (uint32_t i = 0; i < page->places; i++) {
            const char *place = trmi_rows_at(&table->spilled, page, i);
            uint32_t slot;
            if (place == NULL) {
                continue;
            }
            memcpy(&slot, place, sizeof slot);
            if (trmi_spill_get(table->spill, slot, table->record, NULL) == TRM_OK) {
                save_record(table, table->record);
            } else {
                table->snapshot->save(table->snapshot->context, NULL);
            }
        }
    }
}

/* Contract in table.h. Spilled rows are saved at the end, in one go: a spilled row cannot be
 * changed without being saved (trmi_row_table_touch). */
bool trmi_row_table_walk_snapshot(trmi_row_table *table, int64_t rows) {
    if (table->snapshot == NULL) {
        return true;
    }
    uint32_t places = (uint32_t)rows + 1;
    while (table->snapshot_page < table->rows.page_count && places > 0) {
        trmi_rows_page *page = &table->rows.pages[table->snapshot_page];
        uint32_t left = page->walked < page->places ? page->places - page->walked : 0;
        uint32_t some = left < places ? left : places;
        walk_places(table, page, page->walked + some);
        places -= some;
        table->snapshot_page += page->walked >= page->places;
    }
    if (table->snapshot_page < table->rows.page_count) {
        return false;
    }
    save_spilled(table);
    table->snapshot = NULL;
    return true;
}

/* ---- creation -------------------------------------------------------------------------------- */

/* Contract in table.h. All memory is charged to the account; a budget without room for an empty
 * table is an error here, not later. */
trm_status trmi_row_table_create(const trm_table_options *options,
                                 const trmi_row_table_place *place, trmi_account *account,
                                 trmi_row_table **out, trm_error *err) {
    trm_table_options checked;
    TRMI_TRY(trmi_row_table_check(options, &checked, err));
    trmi_row_table *table = trmi_account_alloc(account, sizeof *table);
    if (table == NULL) {
        return TRMI_NO_MEMORY(err, "for table '%s'", checked.name);
    }
    table->account = account;
    table->options = checked;
    memcpy(table->name, checked.name, strlen(checked.name) + 1);
    table->options.name = table->name;
    table->initial = place->initial;
    /* Take the kernels of this CPU; `special` tables cannot use the fused loop of lookup and
     * rule. */
    table->kernels = trmi_apply_kernels_here();
    table->lookup = trmi_lookup_here();
    table->apply = table->kernels->apply[checked.optimizer.kind];
    table->special = checked.optimizer.kind == TRM_ADAM || checked.dtype != TRM_FLOAT32 ||
                     checked.expiry.min_score > 0;
    /* each shard gets an equal part of the cap */
    int64_t cap = checked.expiry.max_rows;
    table->rows_max = cap == 0 ? INT64_MAX : (cap + place->shards - 1) / place->shards;
    trmi_row_layout_make(&checked, &table->layout);
    trm_status status;
    TRMI_TRY_GOTO(status, take_scratch(table, err), failed);
    /* a page that is moved is saved first, because the walk counts places */
    table->rows.before_move = walk_page;
    table->rows.context = table;
    TRMI_TRY_GOTO(status,
                  trmi_admitter_init(&table->admitter, account, &checked.admission,
                                     trmi_mix(checked.seed, 0xAD), place->shards, table->name, err),
                  failed);
    if (place->spill_folder != NULL) {
        TRMI_TRY_GOTO(status,
                      trmi_spill_create(place->spill_folder, table->layout.record_bytes,
                                        place->spill_bytes, account, &table->spill, err),
                      failed);
        /* The list of spilled rows keeps the place in the file. With expiry or a cap it also
         * keeps what they need (trmi_cold), so that they never read the file. */
        const trm_expiry *e = &checked.expiry;
        bool plain =
            e->after_ticks == 0 && e->after_seconds == 0 && e->min_score == 0 && e->max_rows == 0;
        enum { GUIDE = sizeof(uint64_t), KEY = sizeof(uint64_t), SLOT = sizeof(uint32_t) };
        trmi_row_layout cold = {.header_offset = offsetof(trmi_cold, key),
                                .guide_offset = sizeof(trmi_cold)};
        trmi_row_layout place_of_row =
            plain ? (trmi_row_layout){.header_offset = SLOT, .guide_offset = SLOT + KEY} : cold;
        place_of_row.stride = place_of_row.guide_offset + GUIDE;
        if (!trmi_rows_init(&table->spilled, account, &place_of_row)) {
            status = TRMI_FAIL(err, TRM_NOMEM, "table '%s': no room for its list of spilled rows",
                               table->name);
            goto failed;
        }
    }
    *out = table;
    return TRM_OK;
failed:
    trmi_row_table_destroy(table);
    return status;
}

/* Contract in table.h. Accepts a table that was made in part. */
void trmi_row_table_destroy(trmi_row_table *table) {
    if (table == NULL) {
        return;
    }
    trmi_account *account = table->account;
    size_t row = (size_t)table->options.width * sizeof(float);
    trmi_spill_destroy(table->spill);
    trmi_admitter_free(&table->admitter);
    if (table->rows.account != NULL) {
        trmi_rows_free(&table->rows);
    }
    if (table->spilled.account != NULL) {
        trmi_rows_free(&table->spilled);
    }
    trmi_account_free(account, table->record, table->layout.stride);
    trmi_account_free(account, table->values, row);
    trmi_account_free(account, table->gradient, row);
    trmi_account_free(account, table->missing, TRMI_LOOKUP_KEYS * sizeof *table->missing);
    trmi_account_free(account, table->removed,
                      (size_t)table->removed_capacity * sizeof *table->removed);
    trmi_account_free(account, table, sizeof *table);
}

/* ---- reading --------------------------------------------------------------------------------- */

/* Keys that are read at a time. */
enum { READ_AS_KEYS = 256 };

/* Copies a row; the fixed sizes become vector moves. */
static inline void copy_bytes(char *out, const char *in, uint32_t bytes) {
    uint32_t at = 0;
    for (; at + 64 <= bytes; at += 64) {
        memcpy(out + at, in + at, 64);
    }
    for (; at + 16 <= bytes; at += 16) {
        memcpy(out + at, in + at, 16);
    }
    for (; at < bytes; at += 2) {
        memcpy(out + at, in + at, 2);
    }
}

/* Writes a row's values to `out` as `dtype`. */
static void emit_values(trmi_row_table *table, const void *values, trm_dtype dtype, char *out) {
    if (dtype == table->options.dtype) {
        copy_bytes(out, values, table->layout.value_bytes);
    } else if (dtype == TRM_FLOAT32) {
        table->kernels->load[table->options.dtype](values, table->options.width,
                                                   (float *)(void *)out);
    } else {
        table->kernels->load[table->options.dtype](values, table->options.width, table->values);
        table->kernels->store[dtype](table->values, table->options.width, 0, out);
    }
}

/* Reads the record of a spilled row into table->record.
 *   errors  TRM_END: the key has none */
static trm_status read_spilled(trmi_row_table *table, uint64_t key, trm_error *err) {
    const char *place = table->spill == NULL || table->spilled.count == 0
                            ? NULL
                            : trmi_rows_find(&table->spilled, key);
    if (place == NULL) {
        return TRM_END;
    }
    uint32_t slot;
    memcpy(&slot, place, sizeof slot);
    return trmi_spill_get(table->spill, slot, table->record, err);
}

/* Reads a key without a row in memory: from the spill file, or its initial value. */
static trm_status read_cold(trmi_row_table *table, uint64_t key, trm_dtype dtype, char *out,
                            trm_error *err) {
    const trm_table_options *o = &table->options;
    trm_status status = read_spilled(table, key, err);
    if (status == TRM_END) {
        trmi_row_table_initial(table, key);
        table->kernels->store[o->dtype](table->values, o->width, 0, table->record);
        table->stats.read_misses++;
        status = TRM_OK;
    }
    if (status == TRM_OK) {
        emit_values(table, table->record, dtype, out);
    }
    return status;
}

/* Reads rows as another dtype than they are stored in. */
static trm_status read_as(trmi_row_table *table, const uint64_t *keys, int64_t count,
                          trm_dtype dtype, char *out, trm_error *err) {
    const uint32_t lines = (table->layout.value_bytes + 63) / 64;
    const size_t bytes = trm_dtype_bytes(dtype) * (size_t)table->options.width;
    char *records[READ_AS_KEYS];
    for (int64_t first = 0; first < count; first += READ_AS_KEYS) {
        int64_t some = trmi_min_i64(count - first, READ_AS_KEYS);
        table->lookup->find(&table->rows, lines, keys + first, some, records);
        for (int64_t i = 0; i < some; i++, out += bytes) {
            if (records[i] == NULL) {
                TRMI_TRY(read_cold(table, keys[first + i], dtype, out, err));
            } else {
                emit_values(table, records[i], dtype, out);
            }
        }
    }
    return TRM_OK;
}

/* Contract in table.h. The lookup copies the rows in memory and lists the other keys, which are
 * read one by one. */
trm_status trmi_row_table_read(trmi_row_table *table, const uint64_t *keys, int64_t count,
                               trm_dtype dtype, void *out, trm_error *err) {
    const uint32_t bytes = table->layout.value_bytes;
    table->stats.reads += count;
    if (dtype != table->options.dtype) {
        return read_as(table, keys, count, dtype, out, err);
    }
    for (int64_t first = 0; first < count; first += TRMI_LOOKUP_KEYS) {
        int64_t some = trmi_min_i64(count - first, TRMI_LOOKUP_KEYS);
        char *to = (char *)out + (size_t)first * bytes;
        int64_t absent =
            table->lookup->read(&table->rows, bytes, keys + first, some, to, table->missing);
        for (int64_t k = 0; k < absent; k++) {
            int64_t i = table->missing[k];
            TRMI_TRY(read_cold(table, keys[first + i], dtype, to + (size_t)i * bytes, err));
        }
    }
    return TRM_OK;
}

/* Contract in table.h; a spilled row is read from the file. */
bool trmi_row_table_peek(trmi_row_table *table, uint64_t key, trm_row_info *info, float *values,
                         float *slots) {
    char *record = trmi_rows_find(&table->rows, key);
    bool spilled = record == NULL;
    if (spilled) {
        if (read_spilled(table, key, NULL) != TRM_OK) {
            return false;
        }
        record = table->record;
    }
    /* Copy the parts that the caller wants. */
    const trmi_row_header *h = trmi_row_header_of(&table->layout, record);
    if (info != NULL) {
        *info = (trm_row_info){.key = key,
                               .last_tick = h->last_tick,
                               .last_time = h->last_time,
                               .count = h->count,
                               .version = h->version,
                               .score = h->score,
                               .spilled = spilled};
    }
    if (values != NULL) {
        table->kernels->load[table->options.dtype](record, table->options.width, values);
    }
    if (slots != NULL && table->layout.slot_count > 0) {
        memcpy(slots, trmi_row_slots_of(&table->layout, record),
               (size_t)table->layout.slot_count * sizeof *slots);
    }
    return true;
}

void trmi_row_table_get_stats(const trmi_row_table *table, trm_table_stats *out) {
    *out = table->stats;
    out->rows = table->rows.count + table->spilled.count;
    out->spilled_rows = table->spilled.count;
    out->bytes = trmi_rows_bytes(&table->rows) + trmi_admitter_bytes(&table->admitter) +
                 (table->spill == NULL ? 0 : trmi_rows_bytes(&table->spilled));
    out->admission_level = table->admitter.level;
}

/* ---- removed rows ---------------------------------------------------------------------------- */

/* Contract in table.h. A lost list is returned as incomplete and starts anew. */
bool trmi_row_table_take_removed(trmi_row_table *table, uint64_t **keys, int64_t *count,
                                 int64_t *capacity) {
    bool complete = !table->removed_lost;
    *keys = table->removed;
    *count = complete ? table->removed_count : 0;
    *capacity = table->removed_capacity;
    table->removed = NULL;
    table->removed_count = table->removed_capacity = 0;
    table->removed_lost = false;
    return complete;
}
