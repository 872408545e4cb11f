/* SPDX-License-Identifier: Apache-2.0 */
/* Writes the log of a shard (format in shard_record.h). A record is a head with a digest over head
 * and body, then the body. A new log starts with the declared tables and the staged pushes, so that
 * it can be replayed without the log before it.
 *
 * Invariant: a push is in the log before its worker gets the answer. A record that was not written
 * whole breaks the shard, because no later record could be read. */
#include "ps/shard/shard.h"
#include "ps/shard/shard_record.h"
#include "ps/wire/table_wire.h"

#include "base/checked.h"
#include "base/error.h"
#include "base/hash/xxh3.h"
#include "base/memory.h"

#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

static trm_status log_staged(trmi_shard *shard, trm_error *err);

/* Contract in shard.h. */
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

/* Writes a record whose body consists of `count` pieces. A record that was not written
 * completely breaks the shard, because the records after it could not be read. */
static trm_status write_record(trmi_shard *shard, trmi_record_head *head, const void *const *pieces,
                               const size_t *sizes, int count, trm_error *err) {
    trmi_shard_log *log = &shard->log;
    /* the digest covers the head without the digest, and all pieces */
    XXH3_state_t state;
    trmi_record_begin_digest(head, &state);
    head->magic = trmi_record_magic;
    head->body_bytes = 0;
    for (int i = 0; i < count; i++) {
        if (sizes[i] > 0) {
            trmi_xxh3_update(&state, pieces[i], sizes[i]);
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
        trm_error unknown = {0};
        shard->broken = err != NULL ? *err : unknown;
        shard->broken.status = status;
        return status;
    }
    log->bytes += (int64_t)(sizeof *head + head->body_bytes);
    return TRM_OK;
}

/* Contract in shard.h. The declaration is logged as the message that declares a table. */
trm_status trmi_shard_log_table(trmi_shard *shard, const trm_table_options *options,
                                trm_error *err) {
    if (shard->log.fd < 0) {
        return TRM_OK;
    }
    uint8_t body[sizeof(trmi_ps_header) + sizeof(trmi_ps_note) + sizeof(trmi_ps_wire_table)] = {0};
    trmi_ps_header header = {.kind = TRMI_PS_TABLE};
    trmi_ps_encode_note(&header, NULL, options, body);
    trmi_record_head head = {.kind = TRMI_RECORD_TABLE};
    return write_record(shard, &head, (const void *[]){body}, (const size_t[]){sizeof body}, 1,
                        err);
}

trm_status trmi_shard_log_held(trmi_shard *shard, trm_error *err) {
    for (int64_t i = 0; i < shard->held_count && shard->log.fd >= 0; i++) {
        trmi_record_head head = shard->held[i].head;
        const size_t bytes = (size_t)head.body_bytes;
        TRMI_TRY(write_record(shard, &head, (const void *[]){shard->held[i].body}, &bytes, 1, err));
    }
    return TRM_OK;
}

trm_status trmi_shard_log_void(trmi_shard *shard, int64_t step, trm_error *err) {
    trmi_record_head head = {.kind = TRMI_RECORD_VOID, .clock = step};
    return shard->log.fd < 0 ? TRM_OK : write_record(shard, &head, NULL, NULL, 0, err);
}

/* Contract in shard.h. The body: ids, marks (if any), and the sections as an encoded message. A
 * step has no sections: its members are in the log as staged pushes, and the replay adds them
 * again. */
trm_status trmi_shard_log_push(trmi_shard *shard, const trmi_push *push, trm_error *err) {
    if (shard->log.fd < 0) {
        return TRM_OK;
    }
    /* the codec checks the sections when they are read back */
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
        status = TRMI_NO_MEMORY(err, "to log a push in %s", shard->log.path);
        goto done;
    }
    /* trmi_ps_encode points the copies of the sections into the message; their content is copied
     * there. The log belongs to one shard, so each section names shard 0. */
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
    /* ids, marks and message are written as three pieces */
    size_t marks_bytes = push->marks == NULL ? 0 : push->id_count * sizeof *push->marks;
    uint32_t whole = push->marks == NULL ? TRMI_RECORD_PUSH : TRMI_RECORD_MARKED;
    trmi_record_head head = {.kind = push->form == TRMI_PUSH_STAGED ? TRMI_RECORD_STAGED
                                     : push->form == TRMI_PUSH_STEP ? TRMI_RECORD_STEP
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

/* Logs the staged pushes again, at the start of a new log. */
static trm_status log_staged(trmi_shard *shard, trm_error *err) {
    for (const trmi_staged_push *s = shard->staged; s != NULL; s = s->next) {
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
