/* SPDX-License-Identifier: Apache-2.0 */
/* Replays a shard's log: records that the shard does not have are applied, except the last step.
 *
 *     record   step 6    step 7   fill   VOID 7                      step 7   fill
 *     effect   applied   held     held   step 7 dropped, fill used   held     held
 *
 * A fill marks a push as done without its gradients. One that repeats a push of a void step is
 * dropped with it: the push comes again and forms the step.
 *
 * Each shard of each server applies a synchronous step on its own. When all processes of a job
 * die, some logs may have the last step and others not. The replay therefore holds the last step
 * back; the caller then applies it or logs that it is void (server/server_last_step.c). */
#include "ps/shard/shard.h"
#include "ps/shard/shard_record.h"

#include "base/error.h"
#include "base/hash/xxh3.h"
#include "base/mapping.h"
#include "base/memory.h"

#include <stdlib.h>

/* mark flag of older versions, in which each server formed the sums of leased samples by itself */
enum { MARK_OWN_SUMS = 2 };

/* Returns whether the shard has a table of this name. */
static bool has_table(const trmi_shard *shard, const char *name) {
    uint32_t i = 0;
    while (i < shard->table_count && strcmp(shard->tables[i]->name, name) != 0) {
        i++;
    }
    return i < shard->table_count;
}

/* Declares the table of a record unless it exists: every log file begins with all tables. */
static trm_status replay_table(trmi_shard *shard, const uint8_t *body, size_t bytes,
                               trm_error *err) {
    trmi_ps_header header;
    trmi_ps_note note;
    trm_table_options options;
    TRMI_TRY(trmi_ps_decode_header(body, bytes, &header, err));
    TRMI_TRY(trmi_ps_decode_note(body, bytes, &header, &note, &options, err));
    options.staleness = 0; /* staleness belongs to the job, not to its files */
    return has_table(shard, options.name) ? TRM_OK : trmi_shard_add_table(shard, &options, err);
}

/* Passes a push to the function that wrote its record. */
static trm_status repeat_push(trmi_shard *shard, const trmi_push *push, bool *applied,
                              trm_error *err) {
    for (uint32_t i = 0; push->marks != NULL && i < push->id_count; i++) {
        if ((push->marks[i].flags & MARK_OWN_SUMS) != 0) {
            return TRMI_FAIL(err, TRM_UNSUPPORTED,
                             "a log of synchronous training under leases by an older version: "
                             "start once with that "
                             "version, take a checkpoint, then go on with this one");
        }
    }
    if (push->form == TRMI_PUSH_WHOLE) {
        return trmi_shard_push(shard, push, applied, err);
    }
    *applied = push->form == TRMI_PUSH_STEP && push->clock > shard->clock;
    return push->form == TRMI_PUSH_STEP ? trmi_shard_step(shard, push, err)
                                        : trmi_shard_stage(shard, push, err);
}

/* Decodes the record of a push and applies it.
 *   errors  CORRUPT: sizes do not fit */
static trm_status replay_push(trmi_shard *shard, const trmi_record_head *head, const uint8_t *body,
                              bool *applied, trm_error *err) {
    /* The sizes in the head must add up before memory is allocated by them. */
    const size_t mark_bytes = head->kind == TRMI_RECORD_MARKED ? sizeof(trmi_push_mark) : 0;
    if (head->message_bytes > head->body_bytes ||
        head->body_bytes - head->message_bytes !=
            head->id_count * (sizeof(trmi_push_id) + mark_bytes) ||
        head->id_count == 0 ||
        head->section_count > head->message_bytes / sizeof(trmi_ps_wire_section)) {
        return TRMI_FAIL(err, TRM_CORRUPT, "a push of %u ids and %u bytes in a record of %llu",
                         head->id_count, head->message_bytes, (unsigned long long)head->body_bytes);
    }
    int32_t widths[TRMI_PS_TABLES_MAX];
    for (uint32_t i = 0; i < shard->table_count; i++) {
        widths[i] = shard->tables[i]->options.width;
    }
    trmi_ps_shape shape = {1, shard->table_count, widths};
    size_t ids_bytes = head->id_count * sizeof(trmi_push_id);
    trmi_push_id *ids = trmi_alloc(ids_bytes);
    trmi_push_mark *marks = trmi_alloc(head->id_count * mark_bytes + 1);
    trmi_ps_section *sections = trmi_alloc(head->section_count * sizeof *sections);
    /* The mapping is only 8-byte aligned: kernels read any alignment, the codec copies its
     * words. */
    trmi_ps_header header;
    trm_status status = TRM_OK;
    if (ids == NULL || marks == NULL || sections == NULL) {
        status = TRMI_NO_MEMORY(err, "to replay a push");
        goto done;
    }
    /* The body has ids, marks, and the sections as an encoded message (trmi_shard_log_push). */
    memcpy(ids, body, ids_bytes);
    body += ids_bytes;
    memcpy(marks, body, head->id_count * mark_bytes);
    body += head->id_count * mark_bytes;
    TRMI_TRY_GOTO(status, trmi_ps_decode_header(body, head->message_bytes, &header, err), done);
    if (header.section_count != head->section_count || header.dtype != head->dtype) {
        status = TRMI_FAIL(err, TRM_CORRUPT, "a push of %u sections in a record of %u",
                           header.section_count, head->section_count);
        goto done;
    }
    TRMI_TRY_GOTO(status, trmi_ps_decode(body, head->message_bytes, &header, &shape, sections, err),
                  done);
    /* The push as it was when it was logged; the shard applies it as it did then. */
    trmi_push push = {.ids = ids,
                      .id_count = head->id_count,
                      .time = head->time,
                      .clock = head->clock,
                      .rate_scale = head->rate_scale,
                      .gradient_scale = head->gradient_scale,
                      .dtype = (trm_dtype)head->dtype,
                      .sections = sections,
                      .section_count = head->section_count,
                      .marks = mark_bytes == 0 ? NULL : marks,
                      .form = head->kind == TRMI_RECORD_STAGED ? TRMI_PUSH_STAGED
                              : head->kind == TRMI_RECORD_STEP ? TRMI_PUSH_STEP
                                                               : TRMI_PUSH_WHOLE};
    status = repeat_push(shard, &push, applied, err);
    if (status == TRM_CANCELLED) {
        /* a push of an older incarnation, which the snapshot's windows do not list any more: it
         * is in the rows */
        *applied = false;
        status = TRM_OK;
    }
done:
    trmi_free(ids);
    trmi_free(marks);
    trmi_free(sections);
    return status;
}

/* ---- the last step --------------------------------------------------------------------------- */

/* Applies one record and checks that ticks are consecutive. */
static trm_status use_record(trmi_shard *shard, const trmi_record_head *head, const uint8_t *body,
                             int64_t *pushes, trm_error *err) {
    bool applied = false;
    trm_status status = head->kind >= TRMI_RECORD_PUSH && head->kind <= TRMI_RECORD_STEP
                            ? replay_push(shard, head, body, &applied, err)
                            : TRMI_FAIL(err, TRM_CORRUPT, "a record of kind %u", head->kind);
    *pushes += applied;
    if (status == TRM_OK && applied && shard->tick != head->tick) {
        return TRMI_FAIL(err, TRM_CORRUPT, "push of tick %u after %u: a log before it is missing",
                         head->tick, shard->tick - 1);
    }
    return status;
}

/* Returns whether held record `number`, which only fills a window, is of a push that repeats one of
 * the held step: a new life of its worker has sent it when the step counted. */
static bool repeats_the_step(const trmi_shard *shard, int64_t number) {
    const trmi_held *step = &shard->held[0], *fill = &shard->held[number];
    trmi_push_id id, member;
    bool repeats = false;
    if (fill->head.body_bytes < sizeof id ||
        step->head.body_bytes < step->head.id_count * sizeof member) {
        return false; /* a damaged record: using it gives the error */
    }
    memcpy(&id, fill->body, sizeof id);
    for (uint32_t i = 0; i < step->head.id_count && fill->head.clock == step->head.clock; i++) {
        memcpy(&member, step->body + i * sizeof member, sizeof member);
        repeats = repeats || (member.worker == id.worker && member.incarnation < id.incarnation);
    }
    return repeats;
}

/* Applies the held records and forgets all of them. They are not logged again. is_void: without the
 * step, and without what marks pushes that repeat it as done, because they form it again. */
static trm_status use_held(trmi_shard *shard, bool is_void, int64_t *pushes, trm_error *err) {
    const int fd = shard->log.fd;
    trm_status status = TRM_OK;
    shard->log.fd = -1;
    for (int64_t i = is_void; i < shard->held_count && status == TRM_OK; i++) {
        if (!is_void || !repeats_the_step(shard, i)) {
            status = use_record(shard, &shard->held[i].head, shard->held[i].body, pushes, err);
        }
    }
    shard->log.fd = fd;
    trmi_shard_drop_held(shard);
    return status;
}

/* Returns whether a record is among the held ones. A log begins with copies of what was held when
 * its snapshot began (trmi_shard_log_held), and follows the log with the records themselves if that
 * snapshot was given up. */
static bool is_copy(const trmi_shard *shard, const trmi_record_head *head) {
    int64_t i = 0;
    while (i < shard->held_count && memcmp(&shard->held[i].head, head, sizeof *head) != 0) {
        i++;
    }
    return i < shard->held_count;
}

/* Appends a record to the held ones. */
static trm_status keep_record(trmi_shard *shard, const trmi_record_head *head, const uint8_t *body,
                              trm_error *err) {
    TRMI_TRY(TRMI_GROW(err, shard->held, shard->held_capacity, shard->held_count + 1,
                       "to keep a step of the log"));
    shard->held[shard->held_count++] = (trmi_held){.head = *head, .body = body};
    return TRM_OK;
}

/* Copies the held records, before the log's mapping is closed. */
static trm_status copy_held(trmi_shard *shard, trm_error *err) {
    for (int64_t i = 0; i < shard->held_count; i++) {
        trmi_held *h = &shard->held[i];
        if (h->copy != NULL) {
            continue;
        }
        h->copy = trmi_alloc(h->head.body_bytes + 1);
        if (h->copy == NULL) {
            return TRMI_NO_MEMORY(err, "to keep a step of the log");
        }
        memcpy(h->copy, h->body, h->head.body_bytes);
        h->body = h->copy;
    }
    return TRM_OK;
}

int64_t trmi_shard_held_step(const trmi_shard *shard) {
    return shard->held_count == 0 ? 0 : shard->held[0].head.clock;
}

/* Replaces the id of the member whose batch a fill repeats, if the fill is of a later life. */
static void take_later_life(const trmi_held *fill, trmi_push_id *ids, uint32_t count) {
    trmi_push_id id;
    memcpy(&id, fill->body, sizeof id);
    for (uint32_t i = 0; i < count; i++) {
        ids[i] = ids[i].worker == id.worker && ids[i].incarnation < id.incarnation ? id : ids[i];
    }
}

uint32_t trmi_shard_held_ids(const trmi_shard *shard, trmi_push_id *ids, uint32_t room) {
    const uint32_t count = shard->held_count == 0 ? 0 : shard->held[0].head.id_count;
    if (ids == NULL || count > room) {
        return count;
    }
    memcpy(ids, shard->held[0].body, count * sizeof *ids);
    for (int64_t i = 1; i < shard->held_count; i++) {
        if (repeats_the_step(shard, i)) {
            take_later_life(&shard->held[i], ids, count);
        }
    }
    return count;
}

trm_status trmi_shard_apply_held(trmi_shard *shard, int64_t *pushes, trm_error *err) {
    int64_t unused = 0;
    return use_held(shard, false, pushes == NULL ? &unused : pushes, err);
}

trm_status trmi_shard_void_held(trmi_shard *shard, trm_error *err) {
    int64_t unused = 0;
    if (shard->held_count == 0) {
        return TRM_OK;
    }
    TRMI_TRY(trmi_shard_log_void(shard, trmi_shard_held_step(shard), err));
    return use_held(shard, true, &unused, err);
}

/* ---- one log --------------------------------------------------------------------------------- */

/* Returns whether a record changes rows; others only fill a window or stage a push. */
static bool changes_rows(const trmi_record_head *head, const uint8_t *body) {
    const size_t ids_bytes = head->id_count * sizeof(trmi_push_id);
    trmi_push_mark mark = {0};
    if (head->kind == TRMI_RECORD_MARKED && head->body_bytes >= ids_bytes + sizeof mark) {
        memcpy(&mark, body + ids_bytes, sizeof mark);
    }
    return head->kind != TRMI_RECORD_STAGED && (mark.flags & TRMI_MARK_FILLS) == 0;
}

/* Handles one record: a step is held, and the step held before it is applied. A copy of the held
 * step does not decide it. */
static trm_status replay_one(trmi_shard *shard, const trmi_record_head *head, const uint8_t *body,
                             int64_t *pushes, trm_error *err) {
    if (head->kind == TRMI_RECORD_TABLE) {
        return replay_table(shard, body, head->body_bytes, err);
    }
    if (is_copy(shard, head)) {
        return TRM_OK;
    }
    if (head->kind == TRMI_RECORD_VOID) {
        return use_held(shard, trmi_shard_held_step(shard) >= head->clock, pushes, err);
    }
    if (changes_rows(head, body)) {
        TRMI_TRY(use_held(shard, false, pushes, err));
    }
    return head->kind == TRMI_RECORD_PUSH || shard->held_count > 0
               ? keep_record(shard, head, body, err)
               : use_record(shard, head, body, pushes, err);
}

/* Contract in shard.h. Reads heads only. */
trm_status trmi_shard_log_has_pushes(const char *path, bool *has, trm_error *err) {
    trmi_mapping map;
    TRMI_TRY(trmi_mapping_open(path, &map, err));
    bool found = false;
    size_t at = 0;
    while (!found && at + sizeof(trmi_record_head) <= map.bytes) {
        trmi_record_head head;
        memcpy(&head, map.data + at, sizeof head);
        /* staged pushes do not count: their samples are leased again */
        found = head.magic != trmi_record_magic ||
                (head.kind != TRMI_RECORD_TABLE && head.kind != TRMI_RECORD_STAGED) ||
                head.body_bytes > map.bytes - at - sizeof head;
        at += sizeof head + (found ? 0 : head.body_bytes);
    }
    trmi_mapping_close(&map);
    *has = found;
    return TRM_OK;
}

/* Contract in shard.h. Stops at the first record that is not intact. */
trm_status trmi_shard_replay(trmi_shard *shard, const char *path, int64_t *pushes,
                             int64_t *valid_bytes, trm_error *err) {
    trmi_mapping map;
    TRMI_TRY(trmi_mapping_open(path, &map, err));
    trm_status status = TRM_OK;
    *valid_bytes = 0;
    for (size_t at = 0; at + sizeof(trmi_record_head) <= map.bytes && status == TRM_OK;) {
        trmi_record_head head;
        memcpy(&head, map.data + at, sizeof head);
        size_t left = map.bytes - at - sizeof head;
        if (head.magic != trmi_record_magic || head.body_bytes > left) {
            break;
        }
        const uint8_t *body = map.data + at + sizeof head;
        /* a wrong digest is a torn end: the process died while it wrote */
        XXH3_state_t state;
        trmi_record_begin_digest(&head, &state);
        trmi_xxh3_update(&state, body, head.body_bytes);
        if (XXH3_64bits_digest(&state) != head.digest) {
            break;
        }
        status = replay_one(shard, &head, body, pushes, err);
        if (status != TRM_OK) {
            trmi_error_append(err, " (%s, offset %zu)", path, at);
        }
        at += sizeof head + head.body_bytes;
        /* appending continues after the last record that was applied */
        *valid_bytes = status == TRM_OK ? (int64_t)at : *valid_bytes;
    }
    status = status == TRM_OK ? copy_held(shard, err) : status;
    status = trmi_mapping_check(&map, status, err);
    trmi_mapping_close(&map);
    return status;
}
