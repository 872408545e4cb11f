/* SPDX-License-Identifier: Apache-2.0 */
/* Changes of a table's rows: updates, creation, spilling, eviction, expiry.
 * trmi_row_table_update at the end applies one push.
 *
 *       present rows   one loop of lookup and rule (simple tables), or row by row
 *       absent rows    from the spill file, or new: admission, cap, budget
 *       sweep          a few places after each push, for expiry
 *
 * When the budget is exhausted, the coldest of a row's neighbours is spilled or evicted, and
 * admission becomes stricter. */
#include "ps/table/table.h"

#include "base/checked.h"
#include "base/error.h"
#include "base/inline.h"
#include "base/log.h"
#include "base/rng.h"

#include <math.h>

/* Rows of a sample from which the coldest is evicted, strictest level of admission, places that a
 * sweep looks at beyond a quarter of the keys of a push, and keys that are updated at a time. */
enum { SAMPLES = 16, LEVEL_MAX = 7, SWEEP_MINIMUM = 32, LEARN_KEYS = 256 };

/* ---- updating a row -------------------------------------------------------------------------- */

/* Updates a row in the cases that few tables need: Adam's decay over ticks without an update,
 * 16-bit rows, scores. */
static __attribute__((noinline)) void update_row_special(trmi_row_table *table, char *record,
                                                         const float *gradient, trmi_rule *rule,
                                                         const trmi_tick *tick) {
    const trmi_row_layout *layout = &table->layout;
    const trm_table_options *o = &table->options;
    trmi_row_header *h = trmi_row_header_of(layout, record);
    /* ticks since the last update: Adam's averages decay over each of them */
    uint32_t rested = h->count == 0 ? 0 : tick->tick - h->last_tick;
    if (o->optimizer.kind == TRM_ADAM) {
        float skipped = rested > 1 ? (float)(rested - 1) : 0;
        const float beta1 = (float)o->optimizer.beta1, beta2 = (float)o->optimizer.beta2;
        rule->keep1 = skipped == 0 ? beta1 : powf(beta1, skipped + 1);
        rule->keep2 = skipped == 0 ? beta2 : powf(beta2, skipped + 1);
    }
    /* 16-bit rows are updated as float32 and rounded back */
    float *slots = trmi_row_slots_of(layout, record);
    if (layout->dtype == TRM_FLOAT32) {
        table->apply(rule, (float *)(void *)record, gradient, slots, slots + layout->width,
                     layout->width);
    } else {
        uint64_t noise =
            o->round_to_nearest ? 0 : trmi_mix(o->seed ^ trmi_key_hash(h->key), h->version) | 1;
        table->kernels->load[layout->dtype](record, layout->width, table->values);
        table->apply(rule, table->values, gradient, slots, slots + layout->width, layout->width);
        table->kernels->store[layout->dtype](table->values, layout->width, noise, record);
    }
    /* the score decays over the same ticks and counts this update */
    if (o->expiry.min_score > 0) {
        h->score =
            1 + h->score *
                    (o->expiry.score_decay == 1 ? 1 : powf(o->expiry.score_decay, (float)rested));
    }
}

/* Updates one row and its header; a snapshot saves the old row first. */
TRMI_INLINE void update_row(trmi_row_table *table, char *record, const float *gradient,
                            trmi_rule *rule, const trmi_tick *tick) {
    const trmi_row_layout *layout = &table->layout;
    trmi_row_header *h = trmi_row_header_of(layout, record);
    trmi_row_table_touch(table, record);
    if (__builtin_expect(table->special, 0)) {
        update_row_special(table, record, gradient, rule, tick);
    } else {
        float *slots = trmi_row_slots_of(layout, record);
        table->apply(rule, (float *)(void *)record, gradient, slots, slots + layout->width,
                     layout->width);
    }
    h->last_tick = tick->tick;
    h->last_time = tick->time;
    h->count += h->count < UINT32_MAX;
    h->version += h->version == UINT32_MAX ? 2 : 1;
}

/* ---- removing rows --------------------------------------------------------------------------- */

/* Notes a removed key for the next differential snapshot. Without room the list is lost, and
 * that snapshot must be full. */
static void note_removed(trmi_row_table *table, uint64_t key) {
    if (!table->track_removed || table->removed_lost) {
        return;
    }
    if (table->removed_count == table->removed_capacity) {
        int64_t capacity = trmi_max_i64(256, 2 * table->removed_capacity);
        uint64_t *larger = trmi_account_alloc(table->account, (size_t)capacity * sizeof *larger);
        if (larger == NULL) {
            table->removed_lost = true;
            return;
        }
        if (table->removed_count > 0) {
            memcpy(larger, table->removed, (size_t)table->removed_count * sizeof *larger);
        }
        trmi_account_free(table->account, table->removed,
                          (size_t)table->removed_capacity * sizeof *larger);
        table->removed = larger;
        table->removed_capacity = capacity;
    }
    table->removed[table->removed_count++] = key;
}

/* Returns whether a key has a spilled row; *slot: its place in the file. */
static bool spilled_place(const trmi_row_table *table, uint64_t key, uint32_t *slot) {
    const char *place = table->spill == NULL || table->spilled.count == 0
                            ? NULL
                            : trmi_rows_find(&table->spilled, key);
    if (place != NULL) {
        memcpy(slot, place, sizeof *slot);
    }
    return place != NULL;
}

/* Contract in table.h. A snapshot saves the row first, from the spill file if necessary. */
bool trmi_row_table_remove(trmi_row_table *table, uint64_t key) {
    char *record = trmi_rows_find(&table->rows, key);
    uint32_t slot;
    if (record != NULL) {
        trmi_row_table_touch(table, record);
        trmi_rows_erase(&table->rows, key);
    } else if (spilled_place(table, key, &slot)) {
        if (table->snapshot != NULL &&
            trmi_spill_get(table->spill, slot, table->record, NULL) == TRM_OK) {
            trmi_row_table_touch(table, table->record);
        }
        trmi_rows_erase(&table->spilled, key);
        trmi_spill_drop(table->spill, slot);
    } else {
        return false;
    }
    note_removed(table, key);
    return true;
}

/* Returns whether row `a` should leave before row `b`: fewer updates (LFU), or an older update. */
static bool leaves_before(const trmi_row_table *table, const trmi_row_header *a,
                          const trmi_row_header *b) {
    if (table->options.expiry.cap == TRM_CAP_LFU && a->count != b->count) {
        return a->count < b->count;
    }
    return a->last_tick < b->last_tick;
}

/* Returns the row that should leave first among these records and `best`, rows of the current
 * tick excepted; NULL: none. */
static trmi_row_header *worst_of(const trmi_row_table *table, char **records, int count,
                                 uint32_t tick, trmi_row_header *best) {
    for (int i = 0; i < count; i++) {
        trmi_row_header *h = trmi_row_header_of(&table->layout, records[i]);
        if (h->last_tick != tick && (best == NULL || leaves_before(table, h, best))) {
            best = h;
        }
    }
    return best;
}

/* Returns the row that should leave first of about 16 random ones. */
static trmi_row_header *random_victim(trmi_row_table *table, uint32_t tick) {
    trmi_row_header *best = NULL;
    for (int seen = 0, tries = 0; seen < SAMPLES && tries < 8 * SAMPLES; tries++) {
        uint32_t bits[4];
        char *records[TRMI_SAMPLE_PLACES];
        trmi_philox(table->options.seed, TRMI_STREAM_ROW_INIT | 1 << 7, table->samples++, bits);
        int count = trmi_rows_sample(&table->rows, bits, records);
        best = worst_of(table, records, count, tick, best);
        seen += count;
    }
    return best;
}

/* Moves a row to the spill file; returns false if the file or the budget has no room. */
static bool spill_row(trmi_row_table *table, char *record) {
    uint64_t key = trmi_row_header_of(&table->layout, record)->key;
    uint32_t slot;
    trmi_row_table_touch(table, record);
    if (trmi_spill_put(table->spill, record, &slot, NULL) != TRM_OK) {
        return false;
    }
    /* An index in memory says where in the file the row lies. */
    char *place = trmi_rows_insert(&table->spilled, key);
    if (place == NULL) {
        trmi_spill_drop(table->spill, slot);
        return false;
    }
    /* If rows can expire or a cap removes them, the index also has what these rules read, so that
     * they need not read the file. */
    if (table->spilled.guide_offset == sizeof(trmi_cold)) {
        const trmi_row_header *h = trmi_row_header_of(&table->layout, record);
        trmi_cold cold = {slot, h->last_tick, h->last_time, h->score, key};
        memcpy(place, &cold, sizeof cold);
    } else {
        memcpy(place, &slot, sizeof slot);
    }
    trmi_rows_erase(&table->rows, key);
    table->stats.spilled++;
    return true;
}

/* Makes admission stricter when the budget is exhausted: one level more each time that an eighth
 * of the rows had to leave. */
static void raise_admission_level(trmi_row_table *table) {
    if (table->pressed++ <= table->rows.count / 8 && table->admitter.level > 0) {
        return;
    }
    table->pressed = 0;
    if (table->admitter.level == LEVEL_MAX) {
        return;
    }
    table->admitter.level++;
    trmi_log(TRM_LOG_WARN, "ps",
             "table '%s': the budget of %lld bytes is used up at %lld rows: admission now asks %d "
             "times as much of new keys, cold rows are %s",
             table->name, (long long)table->account->limit,
             (long long)(table->rows.count + table->spilled.count), 1 << table->admitter.level,
             table->spill != NULL ? "spilled to the file" : "evicted");
}

/* Returns whether the norm of a row's values is below expiry.min_norm. */
static bool has_small_norm(const trmi_row_table *table, const char *record) {
    enum { SOME = 64 };
    const float least = table->options.expiry.min_norm;
    const size_t element = trm_dtype_bytes(table->options.dtype);
    float values[SOME];
    double squares = 0, enough = (double)least * (double)least;
    for (int32_t i = 0; least > 0 && i < table->options.width && squares < enough; i += SOME) {
        int32_t n = table->options.width - i < SOME ? table->options.width - i : SOME;
        table->kernels->load[table->options.dtype](record + (size_t)i * element, n, values);
        for (int32_t k = 0; k < n; k++) {
            squares += (double)values[k] * (double)values[k];
        }
    }
    return squares < enough;
}

/* Makes room for a key whose page is full and cannot grow: removes a faint neighbour, or spills
 * or evicts the coldest one. */
static bool make_room(trmi_row_table *table, uint64_t key, uint32_t tick) {
    char *records[TRMI_WINDOW_PLACES];
    int count = trmi_rows_window(&table->rows, key, records);
    trmi_row_header *h = worst_of(table, records, count, tick, NULL);
    if (h == NULL) {
        return false;
    }
    char *record = (char *)(void *)h - table->layout.header_offset;
    if (has_small_norm(table, record)) {
        trmi_row_table_remove(table, h->key);
        table->stats.expired++;
        return true;
    }
    raise_admission_level(table);
    if (table->spill != NULL && spill_row(table, record)) {
        return true;
    }
    trmi_row_table_remove(table, h->key);
    table->stats.evicted++;
    return true;
}

/* Chooses the coldest of about 16 random spilled rows: every one of them is colder than those in
 * memory. */
static bool cold_victim(trmi_row_table *table, uint64_t *key) {
    trmi_cold best = {0};
    int seen = 0;
    for (int tries = 0; seen < SAMPLES && tries < 8 * SAMPLES; tries++) {
        uint32_t bits[4];
        char *places[TRMI_SAMPLE_PLACES];
        trmi_philox(table->options.seed, TRMI_STREAM_ROW_INIT | 1 << 7, table->samples++, bits);
        int count = trmi_rows_sample(&table->spilled, bits, places);
        for (int i = 0; i < count; i++) {
            trmi_cold cold;
            memcpy(&cold, places[i], sizeof cold);
            best = seen + i == 0 || cold.last_tick < best.last_tick ? cold : best;
        }
        seen += count;
    }
    *key = best.key;
    return seen > 0;
}

/* Removes one row if the table has reached its cap. Returns false if none can be removed. Spilled
 * rows leave first: every one of them is colder than those in memory. */
static bool keep_cap(trmi_row_table *table, uint32_t tick) {
    int64_t cold = table->spill == NULL ? 0 : table->spilled.count;
    if (table->rows.count + cold < table->rows_max) {
        return true;
    }
    uint64_t key;
    if (cold == 0 || !cold_victim(table, &key)) {
        const trmi_row_header *h = random_victim(table, tick);
        if (h == NULL) {
            return false;
        }
        key = h->key;
    }
    trmi_row_table_remove(table, key);
    table->stats.evicted++;
    return true;
}

/* Returns a record for a new row (contents undefined), making room within the budget; NULL
 * without room. */
static char *take_row(trmi_row_table *table, uint64_t key, uint32_t tick) {
    char *record = trmi_rows_insert(&table->rows, key);
    if (record == NULL && make_room(table, key, tick)) {
        record = trmi_rows_insert(&table->rows, key);
    }
    return record;
}

/* ---- new rows -------------------------------------------------------------------------------- */

/* Creates a row for a key that admission lets in; NULL if it is refused or there is no room. */
static char *create_row(trmi_row_table *table, uint64_t key, const trmi_tick *tick) {
    const trm_table_options *o = &table->options;
    if (!trmi_admit(&table->admitter, key, tick->tick)) {
        table->stats.refused++;
        return NULL;
    }
    /* At the cap on rows another row leaves first. */
    char *record = keep_cap(table, tick->tick) ? take_row(table, key, tick->tick) : NULL;
    if (record == NULL) {
        table->stats.no_room++;
        return NULL;
    }
    /* Write initial values, then slots: accumulators start at the rule's value, everything else at
     * 0. */
    memset(record, 0, table->layout.record_bytes);
    trmi_row_table_initial(table, key);
    table->kernels->store[o->dtype](table->values, o->width, 0, record);
    bool sums = o->optimizer.kind == TRM_ADAGRAD || o->optimizer.kind == TRM_ROWWISE_ADAGRAD ||
                o->optimizer.kind == TRM_FTRL;
    int32_t filled = !sums ? 0 : o->optimizer.kind == TRM_ROWWISE_ADAGRAD ? 1 : o->width;
    float *slots = trmi_row_slots_of(&table->layout, record);
    for (int32_t i = 0; i < filled; i++) {
        slots[i] = (float)o->optimizer.initial_accumulator;
    }
    *trmi_row_header_of(&table->layout, record) = (trmi_row_header){
        .key = key, .last_tick = tick->tick, .version = 1, .generation = table->generation};
    table->stats.created++;
    return record;
}

/* Contract in table.h. Order matters: an older version of the row is removed before room is made
 * for the new one. */
bool trmi_row_table_restore(trmi_row_table *table, const void *record, bool fresh) {
    trmi_row_header header;
    memcpy(&header, (const char *)record + table->layout.header_offset, sizeof header);
    if (!fresh) {
        trmi_row_table_remove(table, header.key);
    }
    char *to =
        keep_cap(table, header.last_tick) ? take_row(table, header.key, header.last_tick) : NULL;
    if (to == NULL) {
        table->stats.no_room++;
        return false;
    }
    memcpy(to, record, table->layout.record_bytes);
    return true;
}

/* Brings a spilled row back into memory. *out: NULL if there is no room; its gradient is then
 * dropped. */
static trm_status unspill_row(trmi_row_table *table, uint64_t key, uint32_t slot,
                              const trmi_tick *tick, char **out, trm_error *err) {
    TRMI_TRY(trmi_spill_get(table->spill, slot, table->record, err));
    trmi_row_table_touch(table, table->record);
    char *record = take_row(table, key, tick->tick);
    *out = record;
    if (record == NULL) {
        table->stats.no_room++;
        return TRM_OK;
    }
    memcpy(record, table->record, table->layout.record_bytes);
    trmi_rows_erase(&table->spilled, key);
    trmi_spill_drop(table->spill, slot);
    table->stats.unspilled++;
    return TRM_OK;
}

/* Updates the keys listed in table->missing: spilled rows come back, other keys may get a new
 * row. */
static trm_status update_missing(trmi_row_table *table, const uint64_t *keys, int64_t missing,
                                 trm_dtype dtype, const char *gradients, trmi_rule *rule,
                                 const trmi_tick *tick, trm_error *err) {
    size_t bytes = trm_dtype_bytes(dtype) * (size_t)table->options.width;
    for (int64_t m = 0; m < missing; m++) {
        /* Search again: an earlier key of this list may be the same, or may have moved rows. */
        int64_t i = table->missing[m];
        char *record = trmi_rows_find(&table->rows, keys[i]);
        uint32_t slot;
        if (record == NULL && spilled_place(table, keys[i], &slot)) {
            TRMI_TRY(unspill_row(table, keys[i], slot, tick, &record, err));
        } else if (record == NULL) {
            record = create_row(table, keys[i], tick);
        }
        if (record != NULL) {
            table->kernels->load[dtype](gradients + (size_t)i * bytes, table->options.width,
                                        table->gradient);
            update_row(table, record, table->gradient, rule, tick);
            table->stats.updates++;
        }
    }
    return TRM_OK;
}

/* Updates the rows that are in memory and lists the positions of the other keys in
 * table->missing; returns how many. At most TRMI_LOOKUP_KEYS keys. */
static int64_t update_present(trmi_row_table *table, const uint64_t *keys, int64_t count,
                              trm_dtype dtype, const char *gradients, trmi_rule *rule,
                              const trmi_tick *tick) {
    const trmi_row_layout *layout = &table->layout;
    const size_t bytes = trm_dtype_bytes(dtype) * (size_t)table->options.width;
    /* In the simple case one loop does lookup and rule. */
    if (dtype == TRM_FLOAT32 && !table->special && table->snapshot == NULL) {
        trmi_row_update update = {layout, rule, tick, table->generation, table->record};
        return table->kernels->update[table->options.optimizer.kind](
            &table->rows, &update, keys, count, (const float *)(const void *)gradients,
            table->missing);
    }
    /* otherwise look up a block of keys, with prefetching, then update row by row */
    const uint32_t lines = (layout->record_bytes + 63) / 64;
    char *records[LEARN_KEYS];
    int64_t missing = 0;
    for (int64_t first = 0; first < count; first += LEARN_KEYS) {
        int64_t some = trmi_min_i64(count - first, LEARN_KEYS);
        table->lookup->find(&table->rows, lines, keys + first, some, records);
        for (int64_t k = 0; k < some; k++) {
            const char *gradient = gradients + (size_t)(first + k) * bytes;
            if (records[k] == NULL) {
                table->missing[missing++] = (int32_t)(first + k);
            } else if (dtype == TRM_FLOAT32) {
                update_row(table, records[k], (const float *)(const void *)gradient, rule, tick);
            } else {
                table->kernels->load[dtype](gradient, table->options.width, table->gradient);
                update_row(table, records[k], table->gradient, rule, tick);
            }
        }
    }
    return missing;
}

/* ---- expiry ---------------------------------------------------------------------------------- */

/* Returns whether a row has expired: by ticks, by time, or by its decayed score. */
static bool has_expired(const trmi_row_table *table, uint32_t last_tick, uint32_t last_time,
                        float score, const trmi_tick *tick) {
    const trm_expiry *e = &table->options.expiry;
    uint32_t rested = tick->tick - last_tick;
    if (e->after_ticks > 0 && (int64_t)rested > e->after_ticks) {
        return true;
    }
    if (e->after_seconds > 0 && (double)tick->time - (double)last_time > e->after_seconds) {
        return true;
    }
    return e->min_score > 0 && rested > 0 &&
           score * powf(e->score_decay, (float)rested) < e->min_score;
}

/* Expires spilled rows, as sweep_places(), by what memory keeps of them. Faint rows are never
 * spilled. */
static void sweep_cold(trmi_row_table *table, int64_t rows, const trmi_tick *tick) {
    if (table->spill == NULL || table->spilled.count == 0) {
        return;
    }
    for (int64_t places = rows + 1; places > 0; places--) {
        if (table->cold_page >= table->spilled.page_count) {
            table->cold_page = table->cold_place = 0;
        }
        const trmi_rows_page *page = &table->spilled.pages[table->cold_page];
        if (table->cold_place >= page->places) {
            trmi_rows_shrink(&table->spilled, table->cold_page++);
            table->cold_place = 0;
            continue;
        }
        const char *place = trmi_rows_at(&table->spilled, page, table->cold_place++);
        trmi_cold cold;
        if (place == NULL) {
            continue;
        }
        memcpy(&cold, place, sizeof cold);
        if (has_expired(table, cold.last_tick, cold.last_time, cold.score, tick)) {
            trmi_row_table_remove(table, cold.key);
            table->stats.expired++;
        }
    }
}

/* Checks the rows of a few places for expiry, continuing where the call before ended. A page
 * that has lost most of its rows shrinks. */
static void sweep_places(trmi_row_table *table, int64_t rows, const trmi_tick *tick) {
    const trm_expiry *e = &table->options.expiry;
    if (e->after_ticks == 0 && e->after_seconds == 0 && e->min_score == 0 && e->min_norm == 0) {
        return;
    }
    sweep_cold(table, rows, tick);
    for (int64_t places = rows + 1; places > 0; places--) {
        if (table->sweep_page >= table->rows.page_count) {
            table->sweep_page = table->sweep_place = 0;
        }
        const trmi_rows_page *page = &table->rows.pages[table->sweep_page];
        if (table->sweep_place >= page->places) {
            if (table->snapshot == NULL) {
                trmi_rows_shrink(&table->rows, table->sweep_page);
            }
            table->sweep_page++;
            table->sweep_place = 0;
            continue;
        }
        char *record = trmi_rows_at(&table->rows, page, table->sweep_place++);
        if (record == NULL) {
            continue;
        }
        const trmi_row_header *h = trmi_row_header_of(&table->layout, record);
        if (has_expired(table, h->last_tick, h->last_time, h->score, tick) ||
            (h->last_tick != tick->tick && has_small_norm(table, record))) {
            trmi_row_table_remove(table, h->key);
            table->stats.expired++;
        }
    }
}

/* ---- a push -------------------------------------------------------------------------------- */

/* Contract in table.h: updates in blocks of TRMI_LOOKUP_KEYS keys, then sweeps. */
trm_status trmi_row_table_update(trmi_row_table *table, const uint64_t *keys, int64_t count,
                                 trm_dtype dtype, const void *gradients, const trmi_tick *tick,
                                 trm_error *err) {
    size_t bytes = trm_dtype_bytes(dtype) * (size_t)table->options.width;
    trmi_rule rule =
        trmi_row_rule_of(&table->options.optimizer, (float)table->options.learning_rate, tick);
    for (int64_t begin = 0; begin < count; begin += TRMI_LOOKUP_KEYS) {
        int64_t some = trmi_min_i64(count - begin, TRMI_LOOKUP_KEYS);
        const char *from = (const char *)gradients + (size_t)begin * bytes;
        int64_t missing = update_present(table, keys + begin, some, dtype, from, &rule, tick);
        table->stats.updates += some - missing;
        TRMI_TRY(update_missing(table, keys + begin, missing, dtype, from, &rule, tick, err));
    }
    sweep_places(table, count / 4 + SWEEP_MINIMUM, tick);
    return TRM_OK;
}
