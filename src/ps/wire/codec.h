/* SPDX-License-Identifier: Apache-2.0 */
/* ps/wire/codec.h: what worker and server say to each other. Pure: bytes to views and back.
 *
 *   message   | header 64 | sections 16 each | pad | keys 8 each | pad | values | pad | values ...
 *
 * A section names keys of one table on one shard. A pull has sections and keys, its answer (ROWS)
 * only the values of the same sections, a push all three; values of a section start on 64 bytes.
 * Control messages carry one trmi_ps_note instead. Integers are little-endian. */
#ifndef TRMI_PS_CODEC_H
#define TRMI_PS_CODEC_H

#include "trireme/ps.h"

enum {
    /* 2: pushes name their samples; 3: rows with their last writers; 4: steps; 5: chief, staleness;
     * 6: the cut that is complete; 7: pushes that all servers have; 8: the proof of
     * base/net.h, rings in sealed memory; 9: frames of base/net_frame.h */
    TRMI_PS_VERSION = 9,
    TRMI_PS_TABLES_MAX = 4096,
    TRMI_PS_SHARDS_MAX = 1024,
    TRMI_PS_WORKERS_MAX = 65536,
    TRMI_PS_SECTIONS_MAX = 1 << 20,
    TRMI_PS_NOTE_TEXT = 256,
    TRMI_PUSH_PARTIAL = 1 /* flags of a synchronous push: other servers may not have it yet */
};
static const uint32_t trmi_ps_magic = 0x31507254u; /* "TrP1" */

/* Values are on the wire: append only. */
typedef enum trmi_ps_kind {
    TRMI_PS_HELLO = 1, /* note: see ps/server/server.c, welcome() */
    TRMI_PS_TABLE,     /* note and a table's options */
    TRMI_PS_PULL,
    TRMI_PS_PUSH,
    TRMI_PS_ROWS,    /* answer to a pull */
    TRMI_PS_DONE,    /* answer to everything else: status, note */
    TRMI_PS_CONTROL, /* note: value[0] is a trmi_order */
    TRMI_PS_STAGE    /* a push that waits for its step: see ps/server/server_step.c */
} trmi_ps_kind;

typedef struct trmi_ps_header {
    uint32_t magic;
    uint16_t kind;
    uint16_t dtype; /* of the values on the wire */
    uint32_t worker, incarnation;
    uint64_t sequence; /* of a push, per worker from 1; else the request's number */
    int64_t clock;     /* batches that the worker has finished pushing; STAGE: steps that all other
                          servers have finished */
    uint32_t section_count;
    float rate_scale;
    union {
        int32_t status;   /* of an answer */
        uint32_t samples; /* of a push under a lease: how many, up to extra[1] */
    };
    union {
        uint32_t flags;
        uint32_t book; /* of a push under a lease: whose samples, see trmi_push_mark */
    };
    int64_t extra[2]; /* of a push: lease; samples of the book that are then used. Of a pull: where
                         steps are staged, the last push of this worker that the rows must have */
} trmi_ps_header;
_Static_assert(sizeof(trmi_ps_header) == 64, "the header is one line");

typedef struct trmi_ps_wire_section {
    uint32_t shard, table, count, zero;
} trmi_ps_wire_section;

/* A section in memory: views into a message. */
typedef struct trmi_ps_section {
    uint32_t shard, table;
    int64_t count;
    uint64_t *keys;
    uint8_t *values;
} trmi_ps_section;

typedef struct trmi_ps_note {
    int64_t value[16];
    char text[TRMI_PS_NOTE_TEXT];
} trmi_ps_note;

/* What a decoder must know of the job. */
typedef struct trmi_ps_shape {
    uint32_t shards; /* of this server */
    uint32_t tables;
    const int32_t *widths; /* [tables] */
} trmi_ps_shape;

/* Bytes of a message with these sections (keys and values as the kind has them); 0 if it would not
 * fit a message. Sections need shard, table and count. */
size_t trmi_ps_size(trmi_ps_kind kind, trm_dtype dtype, const trmi_ps_section *sections,
                    uint32_t count, const int32_t *widths);
/* Writes header and section table into data[trmi_ps_size] and points the sections' keys and values
 * (where the kind has them) into it, for the caller to fill. */
void trmi_ps_encode(const trmi_ps_header *header, trmi_ps_section *sections, const int32_t *widths,
                    uint8_t *data);
/* Header of a message, checked.   errors  CORRUPT */
trm_status trmi_ps_decode_header(const uint8_t *data, size_t bytes, trmi_ps_header *out,
                                 trm_error *err);
/* Sections of a pull or push into out[header->section_count], every one checked against the shape
 * and against the bytes that are there. Keys of a push are the caller's to trust.
 *   errors  CORRUPT */
trm_status trmi_ps_decode(const uint8_t *data, size_t bytes, const trmi_ps_header *header,
                          const trmi_ps_shape *shape, trmi_ps_section *out, trm_error *err);
/* Points values of the sections (of the pull that was sent) into its answer.   errors  CORRUPT */
trm_status trmi_ps_decode_rows(const uint8_t *data, size_t bytes, const trmi_ps_header *header,
                               const int32_t *widths, trmi_ps_section *sections, uint32_t count,
                               trm_error *err);

/* Control messages: header, note, for TABLE the options, then a trailer of header->extra[0] bytes
 * that the caller writes at data + trmi_ps_note_size. */
size_t trmi_ps_note_size(trmi_ps_kind kind);
void trmi_ps_encode_note(const trmi_ps_header *header, const trmi_ps_note *note,
                         const trm_table_options *table, uint8_t *data);
/* `table->name` points into `note->text`. `table` may be NULL unless the kind is TABLE.
 *   errors  CORRUPT, UNSUPPORTED (a table from another build) */
trm_status trmi_ps_decode_note(const uint8_t *data, size_t bytes, const trmi_ps_header *header,
                               trmi_ps_note *note, trm_table_options *table, trm_error *err);

#endif
