/* SPDX-License-Identifier: Apache-2.0 */
/* Encodes and decodes messages (format and contracts in codec.h):
 *
 *   header | table of sections (shard, table, count) | keys | values      each at a multiple of 64
 *
 * Everything that arrives is checked here before it is used: kinds, counts and sizes, shard and
 * table numbers, the order of sections. The size follows from the sections and must be exactly that
 * of the message. After decoding, keys and values point into the message; nothing is copied, so the
 * message must live as long as they are used. */
#include "ps/wire/codec.h"

#include "base/checked.h"
#include "base/error.h"
#include "ps/wire/table_wire.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "the wire format is written by little-endian machines only"
#endif

enum {
    LINE_BYTES = 64,             /* header, sections, keys, values begin at multiples of it */
    MESSAGE_BYTES_MAX = 1 << 30, /* a longer message is refused */
    /* places in trmi_ps_note.value */
    MARK_AT = 9,    /* first of the four of a job's mark */
    OPTIONS_AT = 15 /* bytes of trmi_ps_wire_table */
};

/* Return whether a message is a push, and whether it has keys and values. */
static bool is_push(trmi_ps_kind kind) { return kind == TRMI_PS_PUSH || kind == TRMI_PS_STAGE; }
/* Return what a message of a kind has. */
static bool has_keys(trmi_ps_kind kind) { return kind == TRMI_PS_PULL || is_push(kind); }
static bool has_values(trmi_ps_kind kind) { return kind == TRMI_PS_ROWS || is_push(kind); }

/* Returns the bytes of the section table. */
static int64_t count_table_bytes(trmi_ps_kind kind, uint32_t count) {
    return has_keys(kind) ? trmi_round_up((int64_t)sizeof(trmi_ps_wire_section) * count, LINE_BYTES)
                          : 0;
}

/* Returns the padded bytes of a section's values. */
static int64_t count_value_bytes(const trmi_ps_section *s, trm_dtype dtype, const int32_t *widths) {
    return trmi_round_up(s->count * widths[s->table] * (int64_t)trm_dtype_bytes(dtype), LINE_BYTES);
}

/* Contract in codec.h. Limits are checked in each round, so that sums never overflow. */
size_t trmi_ps_size(trmi_ps_kind kind, trm_dtype dtype, const trmi_ps_section *sections,
                    uint32_t count, const int32_t *widths) {
    int64_t keys = 0, values = 0;
    if (count > TRMI_PS_SECTIONS_MAX) {
        return 0;
    }
    for (uint32_t i = 0; i < count; i++) {
        if (sections[i].count > MESSAGE_BYTES_MAX) {
            return 0;
        }
        keys += 8 * sections[i].count;
        values += has_values(kind) ? count_value_bytes(&sections[i], dtype, widths) : 0;
        if (keys + values > MESSAGE_BYTES_MAX) {
            return 0;
        }
    }
    int64_t bytes = LINE_BYTES + count_table_bytes(kind, count) +
                    (has_keys(kind) ? trmi_round_up(keys, LINE_BYTES) : 0) + values;
    return bytes > MESSAGE_BYTES_MAX ? 0 : (size_t)bytes;
}

/* Sets keys and values of the sections to their places in a message whose size has been checked. */
static void set_pointers(trmi_ps_kind kind, trm_dtype dtype, trmi_ps_section *sections,
                         uint32_t count, const int32_t *widths, uint8_t *data) {
    uint8_t *at = data + LINE_BYTES + count_table_bytes(kind, count);
    int64_t keys = 0;
    for (uint32_t i = 0; has_keys(kind) && i < count; i++) {
        sections[i].keys = (uint64_t *)(void *)(at + 8 * keys);
        keys += sections[i].count;
    }
    at += has_keys(kind) ? trmi_round_up(8 * keys, LINE_BYTES) : 0;
    for (uint32_t i = 0; has_values(kind) && i < count; i++) {
        sections[i].values = at;
        at += count_value_bytes(&sections[i], dtype, widths);
    }
}

/* Contract in codec.h. */
void trmi_ps_encode(const trmi_ps_header *header, trmi_ps_section *sections, const int32_t *widths,
                    uint8_t *data) {
    trmi_ps_header h = *header;
    h.magic = trmi_ps_magic;
    memcpy(data, &h, sizeof h);
    for (uint32_t i = 0; has_keys((trmi_ps_kind)h.kind) && i < h.section_count; i++) {
        trmi_ps_wire_section wire = {sections[i].shard, sections[i].table,
                                     (uint32_t)sections[i].count, sections[i].node};
        memcpy(data + LINE_BYTES + i * sizeof wire, &wire, sizeof wire);
    }
    set_pointers((trmi_ps_kind)h.kind, (trm_dtype)h.dtype, sections, h.section_count, widths, data);
}

/* Contract in codec.h. */
trm_status trmi_ps_decode_header(const uint8_t *data, size_t bytes, trmi_ps_header *out,
                                 trm_error *err) {
    trmi_ps_header h;
    if (bytes < sizeof h) {
        return TRMI_FAIL(err, TRM_CORRUPT, "message of %zu bytes, at least %zu expected", bytes,
                         sizeof h);
    }
    memcpy(&h, data, sizeof h);
    if (h.magic != trmi_ps_magic || h.kind < TRMI_PS_HELLO || h.kind > TRMI_PS_STAGE) {
        return TRMI_FAIL(err, TRM_CORRUPT, "message of unknown kind %u (magic %08x)", h.kind,
                         h.magic);
    }
    bool rows = has_keys((trmi_ps_kind)h.kind) || h.kind == TRMI_PS_ROWS;
    if (rows && (h.dtype < TRM_FLOAT32 || h.dtype > TRM_FLOAT16 || h.dtype == TRM_FLOAT64)) {
        return TRMI_FAIL(err, TRM_CORRUPT, "message with values of dtype %u", h.dtype);
    }
    if (h.worker >= TRMI_PS_WORKERS_MAX || h.section_count > TRMI_PS_SECTIONS_MAX) {
        return TRMI_FAIL(err, TRM_CORRUPT, "message of worker %u with %u sections", h.worker,
                         h.section_count);
    }
    *out = h;
    return TRM_OK;
}

/* Contract in codec.h. Sections must be in ascending order of shards, because the server gives
 * each shard one range of them. */
trm_status trmi_ps_decode(const uint8_t *data, size_t bytes, const trmi_ps_header *header,
                          const trmi_ps_shape *shape, trmi_ps_section *out, trm_error *err) {
    trmi_ps_kind kind = (trmi_ps_kind)header->kind;
    uint32_t count = header->section_count;
    if (!has_keys(kind) || (uint64_t)count_table_bytes(kind, count) > bytes - LINE_BYTES) {
        return TRMI_FAIL(err, TRM_CORRUPT, "message of %zu bytes cannot hold %u sections", bytes,
                         count);
    }
    const int64_t nodes = trmi_ps_nodes(header);
    if (nodes < 0 || nodes > TRMI_PS_NODES_MAX) {
        return TRMI_FAIL(err, TRM_CORRUPT, "push with %lld nodes, 0 to %d expected",
                         (long long)nodes, TRMI_PS_NODES_MAX);
    }
    /* Read the list of sections; a number from the wire is checked before it is used. */
    uint32_t shard_before = 0;
    for (uint32_t i = 0; i < count; i++) {
        trmi_ps_wire_section wire;
        memcpy(&wire, data + LINE_BYTES + i * sizeof wire, sizeof wire);
        if (wire.shard >= shape->shards || wire.table >= shape->tables ||
            wire.shard < shard_before) {
            return TRMI_FAIL(err, TRM_CORRUPT,
                             "section %u names shard %u of %u, table %u of %u, after shard %u", i,
                             wire.shard, shape->shards, wire.table, shape->tables, shard_before);
        }
        if (wire.node > nodes) {
            return TRMI_FAIL(err, TRM_CORRUPT, "section %u names node %u of %lld", i, wire.node,
                             (long long)nodes);
        }
        shard_before = wire.shard;
        out[i] = (trmi_ps_section){
            .shard = wire.shard, .table = wire.table, .node = wire.node, .count = wire.count};
    }
    /* the size follows from the sections: it must be exactly that of the message */
    size_t expected = trmi_ps_size(kind, (trm_dtype)header->dtype, out, count, shape->widths);
    if (expected != bytes) {
        return TRMI_FAIL(err, TRM_CORRUPT, "message of %zu bytes, its sections need %zu", bytes,
                         expected);
    }
    set_pointers(kind, (trm_dtype)header->dtype, out, count, shape->widths,
                 (uint8_t *)(uintptr_t)data);
    return TRM_OK;
}

trm_status trmi_ps_decode_rows(const uint8_t *data, size_t bytes, const trmi_ps_header *header,
                               const int32_t *widths, trmi_ps_section *sections, uint32_t count,
                               trm_error *err) {
    size_t expected = trmi_ps_size(TRMI_PS_ROWS, (trm_dtype)header->dtype, sections, count, widths);
    if (header->kind != TRMI_PS_ROWS || expected != bytes) {
        return TRMI_FAIL(err, TRM_CORRUPT, "answer of %zu bytes to a pull of %zu", bytes, expected);
    }
    set_pointers(TRMI_PS_ROWS, (trm_dtype)header->dtype, sections, count, widths,
                 (uint8_t *)(uintptr_t)data);
    return TRM_OK;
}

size_t trmi_ps_note_size(trmi_ps_kind kind) {
    return sizeof(trmi_ps_header) + sizeof(trmi_ps_note) +
           (kind == TRMI_PS_TABLE ? sizeof(trmi_ps_wire_table) : 0);
}

/* Contract in codec.h. The size of a table's options goes along; it detects a peer of another
 * version. */
void trmi_ps_encode_note(const trmi_ps_header *header, const trmi_ps_note *note,
                         const trm_table_options *table, uint8_t *data) {
    trmi_ps_header h = *header;
    trmi_ps_note n = {0};
    h.magic = trmi_ps_magic;
    if (note != NULL) {
        n = *note;
    }
    if (table != NULL) {
        trmi_ps_wire_table wire;
        trmi_ps_put_table(table, &wire);
        strncpy(n.text, table->name, sizeof n.text - 1);
        n.value[OPTIONS_AT] = (int64_t)sizeof wire;
        memcpy(data + sizeof h + sizeof n, &wire, sizeof wire);
    }
    memcpy(data, &h, sizeof h);
    memcpy(data + sizeof h, &n, sizeof n);
}

/* Contract in codec.h. */
trm_status trmi_ps_decode_note(const uint8_t *data, size_t bytes, const trmi_ps_header *header,
                               trmi_ps_note *note, trm_table_options *table, trm_error *err) {
    trmi_ps_kind kind = (trmi_ps_kind)header->kind;
    if (has_keys(kind) || kind == TRMI_PS_ROWS || bytes < trmi_ps_note_size(kind) ||
        header->extra[0] < 0 || (uint64_t)header->extra[0] != bytes - trmi_ps_note_size(kind)) {
        return TRMI_FAIL(err, TRM_CORRUPT, "control message of kind %u with %zu bytes", kind,
                         bytes);
    }
    memcpy(note, data + sizeof *header, sizeof *note);
    note->text[sizeof note->text - 1] = '\0';
    if (kind == TRMI_PS_TABLE) {
        trmi_ps_wire_table wire;
        if (note->value[OPTIONS_AT] != (int64_t)sizeof wire) {
            return TRMI_FAIL(err, TRM_UNSUPPORTED,
                             "table options of %lld bytes, %zu expected: the peer is another "
                             "version of trireme",
                             (long long)note->value[OPTIONS_AT], sizeof wire);
        }
        memcpy(&wire, data + sizeof *header + sizeof *note, sizeof wire);
        trmi_ps_get_table(&wire, table);
        table->name = note->text;
    }
    return TRM_OK;
}

void trmi_ps_make_mark(const void *job_id, const char *origin, trmi_job_mark *out) {
    *out = (trmi_job_mark){{0}, ""};
    if (origin != NULL) {
        snprintf(out->origin, sizeof out->origin, "%s", origin);
    }
    if (origin != NULL && job_id != NULL) {
        memcpy(out->id, job_id, sizeof out->id);
    }
}

void trmi_ps_put_mark(const trmi_job_mark *mark, trmi_ps_note *note) {
    memcpy(&note->value[MARK_AT], mark->id, sizeof mark->id);
    memcpy(note->text, mark->origin, sizeof note->text);
}

void trmi_ps_get_mark(const trmi_ps_note *note, trmi_job_mark *out) {
    memcpy(out->id, &note->value[MARK_AT], sizeof out->id);
    memcpy(out->origin, note->text, sizeof out->origin);
    out->origin[sizeof out->origin - 1] = '\0';
}
