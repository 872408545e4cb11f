/* SPDX-License-Identifier: Apache-2.0 */
/* A shard: windows of applied pushes, pushing, and staged pushes (drawing and contracts in
 * shard.h).
 *
 * trmi_shard_push calls check_applied (is the push, or its batch, applied already?), then
 * log_and_apply: log record, rows, window. If one of them fails the shard is broken: only a restart
 * from snapshot and log restores it. */
#include "ps/shard/shard.h"

#include "base/checked.h"
#include "base/error.h"
#include "base/memory.h"

/* Contract in shard.h. */
trm_status trmi_shard_create(int64_t memory_bytes, const trmi_row_table_place *place,
                             uint32_t number, trmi_shard **out, trm_error *err) {
    trmi_shard *shard;
    TRMI_TRY(TRMI_NEW(err, shard, 1, "for a shard"));
    shard->account.limit = memory_bytes;
    shard->place = *place;
    shard->number = number;
    shard->log.fd = -1;
    shard->tables = trmi_account_alloc(&shard->account, TRMI_PS_TABLES_MAX * sizeof *shard->tables);
    if (shard->tables == NULL) {
        trmi_shard_destroy(shard);
        return TRMI_FAIL(err, TRM_NOMEM, "shard %u: a budget of %lld bytes is too small", number,
                         (long long)memory_bytes);
    }
    trm_status status = trmi_merge_create(&shard->account, &shard->merge, err);
    if (status != TRM_OK) {
        trmi_shard_destroy(shard);
        return status;
    }
    *out = shard;
    return TRM_OK;
}

/* Frees all staged pushes. */
static void drop_staged(trmi_shard *shard) {
    while (shard->staged != NULL) {
        trmi_staged_push *s = shard->staged;
        shard->staged = s->next;
        trmi_free(s);
    }
}

/* Contract in shard.h. Everything that was charged to the account is given back to it. */
void trmi_shard_destroy(trmi_shard *shard) {
    if (shard == NULL) {
        return;
    }
    trmi_shard_log_close(shard);
    drop_staged(shard);
    trmi_shard_forget_held(shard);
    trmi_merge_destroy(shard->merge);
    for (uint32_t i = 0; i < shard->table_count; i++) {
        trmi_row_table_destroy(shard->tables[i]);
    }
    trmi_account_free(&shard->account, shard->tables, TRMI_PS_TABLES_MAX * sizeof *shard->tables);
    trmi_account_free(&shard->account, shard->windows,
                      (size_t)shard->window_capacity * sizeof *shard->windows);
    trmi_account_free(&shard->account, shard->recent, TRMI_RECENT_WRITERS * sizeof *shard->recent);
    trmi_account_free(&shard->account, shard->spans,
                      (size_t)shard->span_capacity * sizeof *shard->spans);
    trmi_free(shard);
}

/* Contract in shard.h. The declaration is logged, so that a replay has the table before its
 * rows. */
trm_status trmi_shard_add_table(trmi_shard *shard, const trm_table_options *options,
                                trm_error *err) {
    if (shard->table_count == TRMI_PS_TABLES_MAX) {
        return TRMI_FAIL(err, TRM_INVALID, "table '%.40s': at most %d tables", options->name,
                         TRMI_PS_TABLES_MAX);
    }
    trmi_row_table *table;
    TRMI_TRY(trmi_row_table_create(options, &shard->place, &shard->account, &table, err));
    trm_status status = trmi_shard_log_table(shard, options, err);
    if (status != TRM_OK) {
        trmi_row_table_destroy(table);
        return status;
    }
    shard->tables[shard->table_count++] = table;
    return TRM_OK;
}

trm_status trmi_shard_pull(trmi_shard *shard, const trmi_ps_section *sections, uint32_t count,
                           trm_dtype dtype, trm_error *err) {
    if (shard->broken.status != TRM_OK) {
        *err = shard->broken;
        return (trm_status)shard->broken.status;
    }
    for (uint32_t i = 0; i < count; i++) {
        TRMI_TRY(trmi_row_table_read(shard->tables[sections[i].table], sections[i].keys,
                                     sections[i].count, dtype, sections[i].values, err));
    }
    return TRM_OK;
}

/* ---- windows --------------------------------------------------------------------------------- */

trmi_window *trmi_shard_window(const trmi_shard *shard, uint32_t worker) {
    for (int64_t i = 0; i < shard->window_count; i++) {
        if (shard->windows[i].worker == worker) {
            return &shard->windows[i];
        }
    }
    return NULL;
}

/* Contract in shard.h. Order of checks: an older life of the worker, a push too far ahead, a
 * push that was applied. A later life starts with an empty window. */
trm_status trmi_window_check(const trmi_shard *shard, const trmi_push_id *id, trm_error *err) {
    const trmi_window *w = trmi_shard_window(shard, id->worker);
    trmi_window fresh = {.worker = id->worker, .incarnation = id->incarnation};
    if (w != NULL && id->incarnation < w->incarnation) {
        return TRMI_FAIL(err, TRM_CANCELLED,
                         "worker %u: push %llu of incarnation %u, but incarnation %u has taken "
                         "over: end this process",
                         id->worker, (unsigned long long)id->sequence, id->incarnation,
                         w->incarnation);
    }
    if (w == NULL || id->incarnation > w->incarnation) {
        w = &fresh;
    }
    if (id->sequence == 0 || id->sequence > w->base + TRMI_WINDOW_PUSHES) {
        return TRMI_FAIL(err, TRM_INVALID,
                         "worker %u: push %llu while %llu is the last of those before: at most "
                         "%d ahead",
                         id->worker, (unsigned long long)id->sequence, (unsigned long long)w->base,
                         TRMI_WINDOW_PUSHES);
    }
    /* All pushes up to `base` are applied; bit i stands for push base + 1 + i. */
    bool seen = id->sequence <= w->base || (w->bits >> (id->sequence - w->base - 1) & 1) != 0;
    return seen ? TRM_END : TRM_OK;
}

/* Contract in shard.h. */
trm_status trmi_shard_set_window(trmi_shard *shard, const trmi_window *window, trm_error *err) {
    trmi_window *w = trmi_shard_window(shard, window->worker);
    if (w != NULL) {
        *w = *window;
        return TRM_OK;
    }
    if (shard->window_count == shard->window_capacity) {
        int64_t capacity = trmi_max_i64(16, 2 * shard->window_capacity);
        trmi_window *larger =
            trmi_account_alloc(&shard->account, (size_t)capacity * sizeof *larger);
        if (larger == NULL) {
            return TRMI_FAIL(err, TRM_NOMEM, "shard %u: the budget has no room for worker %u",
                             shard->number, window->worker);
        }
        if (shard->window_count > 0) {
            memcpy(larger, shard->windows, (size_t)shard->window_count * sizeof *larger);
        }
        trmi_account_free(&shard->account, shard->windows,
                          (size_t)shard->window_capacity * sizeof *larger);
        shard->windows = larger;
        shard->window_capacity = capacity;
    }
    shard->windows[shard->window_count++] = *window;
    return TRM_OK;
}

/* Adds one applied push to its worker's window, and advances the window's base over all bits that
 * are set. */
static void add_to_window(trmi_shard *shard, const trmi_push_id *id, int64_t clock,
                          trmi_push_form form) {
    trmi_window *w = trmi_shard_window(shard, id->worker);
    if (id->incarnation == w->incarnation && id->sequence <= w->base) {
        return; /* the shard has applied this member's push before it applied the sum */
    }
    if (id->incarnation > w->incarnation) {
        *w = (trmi_window){.worker = id->worker,
                           .incarnation = id->incarnation,
                           .clock = w->clock,
                           .before = w->clock};
    }
    w->clock = trmi_max_i64(w->clock, clock);
    /* steps contain a worker's pushes in order: no earlier push will come */
    if (form == TRMI_PUSH_STEP) {
        uint64_t by = id->sequence - w->base;
        w->bits = by < TRMI_WINDOW_PUSHES ? w->bits >> by : 0;
        w->base = id->sequence;
    } else {
        w->bits |= (uint64_t)1 << (id->sequence - w->base - 1);
    }
    while ((w->bits & 1) != 0) {
        w->bits >>= 1;
        w->base++;
    }
}

/* ---- pushing --------------------------------------------------------------------------------- */

/* Audit: notes the push if it changes the watched row. */
static void note_watched_row(trmi_shard *shard, const trmi_push *push) {
    trmi_watch *w = shard->watch;
    for (uint32_t i = 0; i < push->section_count; i++) {
        const trmi_ps_section *s = &push->sections[i];
        bool mine = strcmp(shard->tables[s->table]->name, w->table) == 0;
        for (int64_t k = 0; mine && k < s->count; k++) {
            uint64_t key;
            memcpy(&key, s->keys + k, sizeof key);
            for (uint32_t m = 0; key == w->key && m < push->id_count; m++) {
                const trmi_push_id *id = &push->ids[m];
                w->last[w->count++ % TRM_PS_WRITERS] = (trm_ps_writer){
                    id->worker, id->incarnation, id->sequence, shard->tick, push->time};
            }
        }
    }
}

/* Remembers which pushes made the current tick. A row has the tick of its last change, so that
 * this list serves all rows. */
static void note_recent(trmi_shard *shard, const trmi_push *push) {
    if (shard->recent == NULL) {
        shard->recent =
            trmi_account_alloc(&shard->account, TRMI_RECENT_WRITERS * sizeof *shard->recent);
    }
    for (uint32_t i = 0; i < push->id_count && shard->recent != NULL; i++) {
        const trmi_push_id *id = &push->ids[i];
        shard->recent[shard->recent_count++ % TRMI_RECENT_WRITERS] =
            (trm_ps_writer){id->worker, id->incarnation, id->sequence, shard->tick, push->time};
    }
}

/* Contract in shard.h. From the latest push backwards. */
int32_t trmi_shard_writers(const trmi_shard *shard, uint32_t tick,
                           trm_ps_writer out[TRM_PS_WRITERS]) {
    int32_t count = 0;
    for (int64_t back = 1; back <= shard->recent_count && back <= TRMI_RECENT_WRITERS; back++) {
        const trm_ps_writer *w = &shard->recent[(shard->recent_count - back) % TRMI_RECENT_WRITERS];
        if (w->tick == tick && count < TRM_PS_WRITERS) {
            out[count++] = *w;
        }
    }
    return count;
}

/* Applies a push to the rows: advances clock and tick, updates each section's table. */
static trm_status apply_to_rows(trmi_shard *shard, const trmi_push *push, trm_error *err) {
    shard->clock = trmi_max_i64(shard->clock, push->clock);
    if (!trmi_push_counts(push)) {
        return TRM_OK;
    }
    /* The tables have one tick for each push that counts. */
    trmi_tick tick = {shard->tick + 1, push->time, push->rate_scale, push->gradient_scale};
    shard->tick++;
    note_recent(shard, push);
    if (shard->watch != NULL) {
        note_watched_row(shard, push);
    }
    for (uint32_t i = 0; i < push->section_count; i++) {
        const trmi_ps_section *s = &push->sections[i];
        TRMI_TRY(trmi_row_table_update(shard->tables[s->table], s->keys, s->count, push->dtype,
                                       s->values, &tick, err));
    }
    return TRM_OK;
}

/* Contract in shard.h. The other members' gradients are dropped, as those of late backup workers
 * are; their windows must not have a hole. */
trm_status trmi_shard_fill(trmi_shard *shard, const trmi_push *push, trm_error *err) {
    const trmi_push_mark fills = {.flags = TRMI_MARK_FILLS};
    for (uint32_t i = 0; i < push->id_count; i++) {
        if (trmi_window_check(shard, &push->ids[i], NULL) == TRM_OK) {
            trmi_push only = {.ids = &push->ids[i],
                              .id_count = 1,
                              .time = push->time,
                              .clock = push->clock,
                              .dtype = TRM_FLOAT32,
                              .marks = &fills};
            bool applied;
            TRMI_TRY(trmi_shard_push(shard, &only, &applied, err));
        }
    }
    return TRM_OK;
}

/* Returns TRM_END if this push was applied, or its batch by another push; TRM_OK if not; else
 * the error. Three records are consulted: the window (pushes), the spans (leased samples), the
 * clock before the worker's current life (batches). */
static trm_status check_applied(const trmi_shard *shard, const trmi_push *push, uint32_t i,
                                trm_error *err) {
    const trmi_push_mark *m = push->marks == NULL ? NULL : &push->marks[i];
    trm_status status = trmi_window_check(shard, &push->ids[i], err);
    if (status != TRM_OK) {
        return status;
    }
    if (m != NULL && m->flags != 0) {
        return TRM_OK;
    }
    if (m != NULL && m->begin < m->end) {
        return trmi_spans_check(shard, m, err);
    }
    const trmi_window *w = trmi_shard_window(shard, push->ids[i].worker);
    if (!push->clocked || w == NULL) {
        return TRM_OK;
    }
    int64_t before = push->ids[i].incarnation > w->incarnation ? w->clock : w->before;
    return push->clock > 0 && push->clock <= before ? TRM_END : TRM_OK;
}

/* Notes that a push is applied: its ids in the windows of their workers, its samples in the
 * spans. */
static trm_status note_applied(trmi_shard *shard, const trmi_push *push, trm_error *err) {
    for (uint32_t i = 0; i < push->id_count; i++) {
        add_to_window(shard, &push->ids[i], push->clock, push->form);
        if (push->marks != NULL) {
            TRMI_TRY(trmi_spans_add(shard, &push->marks[i], err));
        }
    }
    return TRM_OK;
}

/* Makes a window for each worker of a push that has none. */
static trm_status add_windows(trmi_shard *shard, const trmi_push *push, trm_error *err) {
    for (uint32_t i = 0; i < push->id_count; i++) {
        if (trmi_shard_window(shard, push->ids[i].worker) == NULL) {
            trmi_window fresh = {.worker = push->ids[i].worker,
                                 .incarnation = push->ids[i].incarnation};
            TRMI_TRY(trmi_shard_set_window(shard, &fresh, err));
        }
    }
    return TRM_OK;
}

/* Logs and applies a push that is new. */
static trm_status log_and_apply(trmi_shard *shard, const trmi_push *push, trm_error *err) {
    trm_status status = add_windows(shard, push, err);
    /* Write the log first: a process that dies after this line loses nothing. */
    status = status == TRM_OK ? trmi_shard_log_push(shard, push, err) : status;
    status = status == TRM_OK ? apply_to_rows(shard, push, err) : status;
    status = status == TRM_OK ? note_applied(shard, push, err) : status;
    if (status != TRM_OK) {
        /* the rows contain half a push, or lack one that other shards may have; only a restart from
         * snapshot and log restores them */
        trm_error unreported = {0};
        shard->broken = err != NULL ? *err : unreported;
        shard->broken.status = status;
    }
    return status;
}

/* Contract in shard.h. A push of several members is applied whole or not at all: if one member
 * was applied before, the others are filled (trmi_shard_fill). */
trm_status trmi_shard_push(trmi_shard *shard, const trmi_push *push, bool *applied,
                           trm_error *err) {
    if (shard->broken.status != TRM_OK) {
        *err = shard->broken;
        return (trm_status)shard->broken.status;
    }
    /* Count the members that were applied before: a worker repeats a push whose answer was lost. */
    uint32_t seen = 0;
    for (uint32_t i = 0; i < push->id_count; i++) {
        trm_status status = check_applied(shard, push, i, err);
        if (status != TRM_OK && status != TRM_END) {
            return status;
        }
        seen += status == TRM_END;
    }
    if (seen > 0) {
        shard->repeated++;
        *applied = false;
        return trmi_shard_fill(shard, push, err);
    }
    *applied = push->marks == NULL || (push->marks[0].flags & TRMI_MARK_FILLS) == 0;
    TRMI_TRY(log_and_apply(shard, push, err));
    shard->applied += *applied;
    return TRM_OK;
}

/* ---- pushes that wait ------------------------------------------------------------------------ */

/* Returns a staged push; NULL: it is not here. */
static trmi_staged_push *find_staged(const trmi_shard *shard, const trmi_push_id *id) {
    trmi_staged_push *s = shard->staged;
    while (s != NULL && (s->id.worker != id->worker || s->id.incarnation != id->incarnation ||
                         s->id.sequence != id->sequence)) {
        s = s->next;
    }
    return s;
}

/* Copies a push with keys and values into one block of memory; values are padded to 8 bytes.
 * NULL without memory. */
static trmi_staged_push *copy_push(const trmi_shard *shard, const trmi_push *push) {
    /* The block holds the head and the sections, then the keys and values of each section. */
    size_t bytes = sizeof(trmi_staged_push) + push->section_count * sizeof *push->sections;
    for (uint32_t i = 0; i < push->section_count; i++) {
        const trmi_ps_section *s = &push->sections[i];
        size_t row = (size_t)shard->tables[s->table]->options.width * trm_dtype_bytes(push->dtype);
        bytes += (size_t)s->count * (sizeof *s->keys + row) + 8;
    }
    trmi_staged_push *out = trmi_alloc(bytes);
    if (out == NULL) {
        return NULL;
    }
    *out = (trmi_staged_push){.id = push->ids[0],
                              .dtype = push->dtype,
                              .rate_scale = push->rate_scale,
                              .sections = (trmi_ps_section *)(void *)(out + 1),
                              .section_count = push->section_count};
    uint8_t *at = (uint8_t *)(out->sections + out->section_count);
    for (uint32_t i = 0; i < push->section_count; i++) {
        const trmi_ps_section *from = &push->sections[i];
        size_t row =
            (size_t)shard->tables[from->table]->options.width * trm_dtype_bytes(push->dtype);
        size_t key_bytes = (size_t)from->count * sizeof *from->keys,
               value_bytes = (size_t)from->count * row;
        trmi_ps_section *to = &out->sections[i];
        *to = *from;
        to->keys = (uint64_t *)(void *)at;
        to->values = at + key_bytes;
        if (from->count > 0) {
            memcpy(to->keys, from->keys, key_bytes);
            memcpy(to->values, from->values, value_bytes);
        }
        at += key_bytes + value_bytes + (-value_bytes & 7);
    }
    return out;
}

/* Contract in shard.h. The push is logged before it is kept. */
trm_status trmi_shard_stage(trmi_shard *shard, const trmi_push *push, trm_error *err) {
    if (shard->broken.status != TRM_OK) {
        *err = shard->broken;
        return (trm_status)shard->broken.status;
    }
    /* A push too far ahead is accepted: a refused push is in no step and would leave a hole in
     * the window. */
    trm_status status = trmi_window_check(shard, &push->ids[0], err);
    if (status == TRM_END || find_staged(shard, &push->ids[0]) != NULL) {
        return TRM_OK;
    }
    if (status == TRM_CANCELLED) {
        return status;
    }
    trmi_staged_push *staged = copy_push(shard, push);
    if (staged == NULL) {
        return TRMI_NO_MEMORY(err, "to keep a push in shard %u", shard->number);
    }
    status = trmi_shard_log_push(shard, push, err);
    if (status != TRM_OK) {
        trmi_free(staged);
        return status;
    }
    staged->next = shard->staged;
    shard->staged = staged;
    return TRM_OK;
}

/* Removes a worker's staged pushes up to this one, those of earlier lives included: they are in
 * this step or in none. */
static void drop_until(trmi_shard *shard, const trmi_push_id *id) {
    for (trmi_staged_push **at = &shard->staged; *at != NULL;) {
        trmi_staged_push *s = *at;
        bool over = s->id.worker == id->worker &&
                    (s->id.incarnation < id->incarnation ||
                     (s->id.incarnation == id->incarnation && s->id.sequence <= id->sequence));
        if (!over) {
            at = &s->next;
            continue;
        }
        *at = s->next;
        trmi_free(s);
    }
}

/* Breaks the shard: a member of a decided step is not staged here, so the log was lost. */
static trm_status break_missing_member(trmi_shard *shard, const trmi_push_id *id, int64_t step,
                                       trm_error *err) {
    TRMI_FAIL(&shard->broken, TRM_CORRUPT,
              "shard %u: push %llu of worker %u belongs to step %lld and is missing: staged pushes "
              "were lost with the log; "
              "stop the job and resume from its last checkpoint",
              shard->number, (unsigned long long)id->sequence, id->worker, (long long)step);
    if (err != NULL) {
        *err = shard->broken;
    }
    return TRM_CORRUPT;
}

/* Contract in shard.h. Steps are applied in order of their numbers (clock); one that was applied
 * is ignored. */
trm_status trmi_shard_step(trmi_shard *shard, const trmi_push *push, trm_error *err) {
    if (shard->broken.status != TRM_OK) {
        *err = shard->broken;
        return (trm_status)shard->broken.status;
    }
    if (push->clock <= shard->clock) {
        return TRM_OK;
    }
    trmi_sum_part *parts;
    TRMI_TRY(TRMI_NEW(err, parts, push->id_count, "for a step"));
    /* collect the members' gradients; all must be staged here */
    trmi_push step = *push;
    trmi_sum sum = {0};
    trm_status status = TRM_OK;
    for (uint32_t i = 0; i < push->id_count; i++) {
        const trmi_staged_push *s = find_staged(shard, &push->ids[i]);
        if (s == NULL) {
            status = break_missing_member(shard, &push->ids[i], push->clock, err);
            goto done;
        }
        parts[i] = (trmi_sum_part){s->sections, s->section_count, 0};
        if (i == 0) {
            step.dtype = s->dtype;
            step.rate_scale = s->rate_scale;
        }
    }
    /* add them in the order of members, apply the sum as one push, drop the members */
    TRMI_TRY_GOTO(status, trmi_shard_sum(shard, parts, push->id_count, step.dtype, &sum, err),
                  done);
    step.dtype = TRM_FLOAT32;
    step.sections = sum.sections;
    step.section_count = sum.count;
    step.form = TRMI_PUSH_STEP;
    TRMI_TRY_GOTO(status, log_and_apply(shard, &step, err), done);
    shard->applied++;
    for (uint32_t i = 0; i < push->id_count; i++) {
        drop_until(shard, &push->ids[i]);
    }
done:
    trmi_sum_free(&sum);
    trmi_free(parts);
    return status;
}
