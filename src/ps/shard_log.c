/* The log of a shard: records of 64 + n bytes, each with the digest of its body.
 *
 *   | magic, kind, body bytes, digest, tick, ... | ids | marks | sections | keys | pad | values ...
 * |
 *
 * A record is written before its push is applied and answered. */
#include "ps/shard.h"

#include "base/checked.h"
#include "base/error.h"
#include "base/memory.h"

#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

static const uint32_t log_magic = 0x4C535054u; /* "TPSL" */
enum {
    RECORD_TABLE = 1,
    RECORD_PUSH, /* without marks */
    RECORD_MARKED,
    RECORD_STAGED, /* a push that waits for its step */
    RECORD_STEP    /* ids whose staged pushes are summed; no sections */
};
/* In marks of versions that let each server form the sums of lent samples on its own. */
enum { MARK_APART = 2 };

typedef struct record_head {
    uint32_t magic, kind;
    uint64_t body_bytes, digest; /* of the rest of this head and the body */
    uint32_t tick, time;
    float rate_scale, gradient_scale;
    uint32_t dtype, id_count, section_count, message_bytes;
    int64_t clock;
} record_head;
_Static_assert(sizeof(record_head) == 64, "a log record's head is one line");

static trm_status log_staged(trmi_shard *shard, trm_error *err);

/* What is staged goes into the new log, too. */
trm_status trmi_shard_log_open(trmi_shard *shard, const trmi_os *os, const char *path, bool sync,
                               trm_error *err) {
    os = os == NULL ? trmi_os_real() : os;
    int fd = os->open(os->context, path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (fd < 0) {
        return TRMI_FAIL_SYS(err, "%s: cannot open the log", path);
    }
    trmi_shard_log_close(shard);
    shard->log = (trmi_shard_log){.os = os, .fd = fd, .sync = sync};
    snprintf(shard->log.path, sizeof shard->log.path, "%s", path);
    for (uint32_t i = 0; i < shard->table_count; i++) {
        TRMI_TRY(trmi_shard_log_table(shard, &shard->tables[i]->options, err));
    }
    return log_staged(shard, err);
}

void trmi_shard_log_close(trmi_shard *shard) {
    if (shard->log.fd >= 0) {
        shard->log.os->close(shard->log.os->context, shard->log.fd);
        shard->log.fd = -1;
    }
}

static void digest_head(const record_head *head, XXH3_state_t *state) {
    XXH3_64bits_reset(state);
    XXH3_64bits_update(state, &head->tick, sizeof *head - offsetof(record_head, tick));
}

/* Writes a record of up to three pieces. A record that did not get out whole breaks the shard: what
 * follows it could not be read. */
static trm_status write_record(trmi_shard *shard, record_head *head, const void *const *pieces,
                               const size_t *sizes, int count, trm_error *err) {
    trmi_shard_log *log = &shard->log;
    XXH3_state_t state;
    digest_head(head, &state);
    head->magic = log_magic;
    head->body_bytes = 0;
    for (int i = 0; i < count; i++) {
        if (sizes[i] > 0) {
            XXH3_64bits_update(&state, pieces[i], sizes[i]);
        }
        head->body_bytes += sizes[i];
    }
    head->digest = XXH3_64bits_digest(&state);
    trm_status status = trmi_os_write_all(log->os, log->fd, head, sizeof *head, log->path, err);
    for (int i = 0; i < count && status == TRM_OK; i++) {
        status = trmi_os_write_all(log->os, log->fd, pieces[i], sizes[i], log->path, err);
    }
    if (status == TRM_OK && log->sync && log->os->fsync(log->os->context, log->fd) != 0) {
        status = TRMI_FAIL_SYS(err, "%s: cannot flush", log->path);
    }
    if (status != TRM_OK) {
        trm_error unheard = {0};
        shard->broken = err != NULL ? *err : unheard;
        shard->broken.status = status;
        return status;
    }
    log->bytes += (int64_t)(sizeof *head + head->body_bytes);
    return TRM_OK;
}

trm_status trmi_shard_log_table(trmi_shard *shard, const trm_table_options *options,
                                trm_error *err) {
    if (shard->log.fd < 0) {
        return TRM_OK;
    }
    uint8_t body[sizeof(trmi_ps_header) + sizeof(trmi_ps_note) + sizeof(trm_table_options)] = {0};
    trmi_ps_header header = {.kind = TRMI_PS_TABLE};
    trmi_ps_encode_note(&header, NULL, options, body);
    record_head head = {.kind = RECORD_TABLE};
    return write_record(shard, &head, (const void *[]){body}, (const size_t[]){sizeof body}, 1,
                        err);
}

trm_status trmi_shard_log_push(trmi_shard *shard, const trmi_push *push, trm_error *err) {
    if (shard->log.fd < 0) {
        return TRM_OK;
    }
    /* The sections as a message of their own: the codec reads it back, checks and all. */
    int32_t widths[TRMI_PS_TABLES_MAX];
    for (uint32_t i = 0; i < shard->table_count; i++) {
        widths[i] = shard->tables[i]->options.width;
    }
    size_t ids_bytes = push->id_count * sizeof *push->ids;
    uint32_t section_count = push->form == TRMI_PUSH_STEP ? 0 : push->section_count;
    size_t sections_bytes = section_count * sizeof *push->sections;
    size_t bytes = trmi_ps_size(TRMI_PS_PUSH, push->dtype, push->sections, section_count, widths);
    uint8_t *message = bytes == 0 ? NULL : trmi_alloc(bytes);
    trmi_ps_section *copy = trmi_alloc(sections_bytes);
    trm_status status = TRM_OK;
    if (message == NULL || copy == NULL) {
        status = TRMI_FAIL(err, TRM_NOMEM, "%s: no memory to log a push", shard->log.path);
        goto done;
    }
    if (sections_bytes > 0) {
        memcpy(copy, push->sections, sections_bytes);
    }
    trmi_ps_header header = {
        .kind = TRMI_PS_PUSH, .dtype = (uint16_t)push->dtype, .section_count = section_count};
    for (uint32_t i = 0; i < section_count; i++) {
        copy[i].shard = 0;
    }
    trmi_ps_encode(&header, copy, widths, message);
    for (uint32_t i = 0; i < section_count; i++) {
        size_t row = (size_t)widths[copy[i].table] * trm_dtype_bytes(push->dtype);
        memcpy(copy[i].keys, push->sections[i].keys, (size_t)copy[i].count * 8);
        memcpy(copy[i].values, push->sections[i].values, (size_t)copy[i].count * row);
    }
    size_t marks_bytes = push->marks == NULL ? 0 : push->id_count * sizeof *push->marks;
    uint32_t whole = push->marks == NULL ? RECORD_PUSH : RECORD_MARKED;
    record_head head = {.kind = push->form == TRMI_PUSH_STAGED ? RECORD_STAGED
                                : push->form == TRMI_PUSH_STEP ? RECORD_STEP
                                                               : whole,
                        .tick = shard->tick + trmi_push_counts(push),
                        .time = push->time,
                        .clock = push->clock,
                        .rate_scale = push->rate_scale,
                        .gradient_scale = push->gradient_scale,
                        .dtype = (uint32_t)push->dtype,
                        .id_count = push->id_count,
                        .section_count = section_count,
                        .message_bytes = (uint32_t)bytes};
    status = write_record(shard, &head, (const void *[]){push->ids, push->marks, message},
                          (const size_t[]){ids_bytes, marks_bytes, bytes}, 3, err);
done:
    trmi_free(message);
    trmi_free(copy);
    return status;
}

static trm_status log_staged(trmi_shard *shard, trm_error *err) {
    for (const trmi_staged *s = shard->staged; s != NULL; s = s->next) {
        trmi_push push = {.ids = &s->id,
                          .id_count = 1,
                          .rate_scale = s->rate_scale,
                          .dtype = s->dtype,
                          .sections = s->sections,
                          .section_count = s->section_count,
                          .form = TRMI_PUSH_STAGED};
        TRMI_TRY(trmi_shard_log_push(shard, &push, err));
    }
    return TRM_OK;
}

/* ---- reading back
 * ---------------------------------------------------------------------------------- */

static trm_status replay_table(trmi_shard *shard, const uint8_t *body, size_t bytes,
                               uint32_t number, trm_error *err) {
    trmi_ps_header header;
    trmi_ps_note note;
    trm_table_options options;
    TRMI_TRY(trmi_ps_decode_header(body, bytes, &header, err));
    TRMI_TRY(trmi_ps_decode_note(body, bytes, &header, &note, &options, err));
    options.staleness = 0; /* of a job, not of its files */
    return number < shard->table_count ? TRM_OK : trmi_shard_add_table(shard, &options, err);
}

/* Hands a record to what it was written by. */
static trm_status push_again(trmi_shard *shard, const trmi_push *push, bool *applied, trm_error *err) {
    for (uint32_t i = 0; push->marks != NULL && i < push->id_count; i++) {
        if ((push->marks[i].flags & MARK_APART) != 0) {
            return TRMI_FAIL(err, TRM_UNSUPPORTED,
                             "a log of synchronous training under leases by an older version: start once with that "
                             "version, take a checkpoint, then go on with this one");
        }
    }
    if (push->form == TRMI_PUSH_WHOLE) {
        return trmi_shard_push(shard, push, applied, err);
    }
    *applied = push->form == TRMI_PUSH_STEP && push->clock > shard->clock;
    return push->form == TRMI_PUSH_STEP ? trmi_shard_step(shard, push, err) : trmi_shard_stage(shard, push, err);
}

static trm_status replay_push(trmi_shard *shard, const record_head *head, const uint8_t *body,
                              bool *applied, trm_error *err) {
    const size_t mark_bytes = head->kind == RECORD_MARKED ? sizeof(trmi_push_mark) : 0;
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
    /* The mapping is only 8-aligned: kernels read any alignment, the codec copies its words. */
    trmi_ps_header header;
    trm_status status = TRM_OK;
    if (ids == NULL || marks == NULL || sections == NULL) {
        status = TRMI_FAIL(err, TRM_NOMEM, "no memory to replay a push");
        goto done;
    }
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
                      .form = head->kind == RECORD_STAGED ? TRMI_PUSH_STAGED
                              : head->kind == RECORD_STEP ? TRMI_PUSH_STEP
                                                          : TRMI_PUSH_WHOLE};
    status = push_again(shard, &push, applied, err);
    if (status == TRM_CANCELLED) {
        /* An older incarnation's push that the checkpoint's windows have forgotten: it is in. */
        *applied = false;
        status = TRM_OK;
    }
done:
    trmi_free(ids);
    trmi_free(marks);
    trmi_free(sections);
    return status;
}

static trm_status replay_one(trmi_shard *shard, const record_head *head, const uint8_t *body,
                             uint32_t *tables, int64_t *pushes, trm_error *err) {
    if (head->kind == RECORD_TABLE) {
        return replay_table(shard, body, head->body_bytes, (*tables)++, err);
    }
    bool applied = false;
    trm_status status = head->kind >= RECORD_PUSH && head->kind <= RECORD_STEP
                            ? replay_push(shard, head, body, &applied, err)
                            : TRMI_FAIL(err, TRM_CORRUPT, "a record of kind %u", head->kind);
    *pushes += applied;
    if (status == TRM_OK && applied && shard->tick != head->tick) {
        return TRMI_FAIL(err, TRM_CORRUPT, "push of tick %u after %u: a log before it is missing",
                         head->tick, shard->tick - 1);
    }
    return status;
}

bool trmi_shard_log_has_pushes(const char *path) {
    trmi_mapping map;
    if (trmi_os_map(path, &map, NULL) != TRM_OK) {
        return true; /* whoever reads it will say what is wrong */
    }
    bool found = false;
    size_t at = 0;
    while (!found && at + sizeof(record_head) <= map.bytes) {
        record_head head;
        memcpy(&head, map.data + at, sizeof head);
        /* What was only staged is lent again. */
        found = head.magic != log_magic ||
                (head.kind != RECORD_TABLE && head.kind != RECORD_STAGED) ||
                head.body_bytes > map.bytes - at - sizeof head;
        at += sizeof head + (found ? 0 : head.body_bytes);
    }
    trmi_os_unmap(&map);
    return found;
}

trm_status trmi_shard_replay(trmi_shard *shard, const char *path, int64_t *pushes,
                             int64_t *valid_bytes, trm_error *err) {
    trmi_mapping map;
    TRMI_TRY(trmi_os_map(path, &map, err));
    trm_status status = TRM_OK;
    uint32_t tables = 0;
    *valid_bytes = 0;
    for (size_t at = 0; at + sizeof(record_head) <= map.bytes && status == TRM_OK;) {
        record_head head;
        memcpy(&head, map.data + at, sizeof head);
        size_t left = map.bytes - at - sizeof head;
        if (head.magic != log_magic || head.body_bytes > left) {
            break;
        }
        const uint8_t *body = map.data + at + sizeof head;
        XXH3_state_t state;
        digest_head(&head, &state);
        XXH3_64bits_update(&state, body, head.body_bytes);
        if (XXH3_64bits_digest(&state) != head.digest) {
            break;
        }
        status = replay_one(shard, &head, body, &tables, pushes, err);
        if (status != TRM_OK) {
            trmi_error_append(err, " (%s, offset %zu)", path, at);
        }
        at += sizeof head + head.body_bytes;
        *valid_bytes = status == TRM_OK ? (int64_t)at : *valid_bytes;
    }
    trmi_os_unmap(&map);
    return status;
}
