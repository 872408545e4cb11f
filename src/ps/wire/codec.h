/* SPDX-License-Identifier: Apache-2.0 */
/* ps/wire/codec.h: the messages between worker and server. Pure functions: bytes to views and
 * back.
 *
 *     message   | header 64 | sections 16 each | pad | keys 8 each | pad | values | pad | values ...
 *
 * A section names keys of one table on one shard. A pull has sections and keys, its answer
 * (ROWS) only the values of the same sections, a push all three; the values of a section begin
 * at a multiple of 64 bytes. Control messages have one trmi_ps_note instead. Integers are
 * little-endian. Every size is checked before it is used: messages come from other machines. */
#ifndef TRMI_PS_CODEC_H
#define TRMI_PS_CODEC_H

#include "trireme/ps.h"

enum {
    /* 2: pushes name their samples; 3: rows with their last writers; 4: steps; 5: chief, staleness;
     * 6: the snapshot that is complete; 7: pushes that all servers have; 8: the proof of
     * base/net/net.h, rings in sealed memory; 9: frames of base/net/net_frame.h; 10: sums of blocks
     * of samples */
    TRMI_PS_VERSION = 10,
    TRMI_PS_TABLES_MAX = 4096,
    TRMI_PS_SHARDS_MAX = 1024,
    TRMI_PS_WORKERS_MAX = 65536,
    TRMI_PS_SECTIONS_MAX = 1 << 20,
    TRMI_PS_NOTE_TEXT = 256,
    TRMI_PS_NODES_MAX = 1 << 16, /* of a tree of sums */
    TRMI_PUSH_PARTIAL = 1,       /* flag of a synchronous push: other servers may lack it */
    /* flags of a pull: it takes the rows as they are, outside of training; its worker computes with
     * all others, so that a worker that says nothing may be waiting for it */
    TRMI_PULL_OUTSIDE = 1,
    TRMI_PULL_TOGETHER = 2
};
static const uint32_t trmi_ps_magic = 0x31507254u; /* "TrP1" */

/* Values are on the wire: append only. */
typedef enum trmi_ps_kind {
    TRMI_PS_HELLO = 1, /* note: see answer_hello in ps/server/server_link.c */
    TRMI_PS_TABLE,     /* note and a table's options */
    TRMI_PS_PULL,
    TRMI_PS_PUSH,
    TRMI_PS_ROWS,    /* answer to a pull */
    TRMI_PS_DONE,    /* answer to everything else: status, note */
    TRMI_PS_CONTROL, /* note: value[0] is a trmi_order */
    TRMI_PS_STAGE    /* a push that waits for its step: see ps/server/server_step.c */
} trmi_ps_kind;

/* The head of every message. */
typedef struct trmi_ps_header {
    uint32_t magic;
    uint16_t kind;
    uint16_t dtype; /* dtype of the values on the wire */
    uint32_t worker, incarnation;
    uint64_t sequence; /* of a push, per worker from 1; else the request's number */
    int64_t clock;     /* batches that the worker has finished pushing; STAGE: steps that all other
                          servers have finished */
    uint32_t section_count;
    float rate_scale;
    union {
        int32_t status;   /* status of an answer */
        uint32_t samples; /* of a push under a lease: its samples, up to extra[1] */
    };
    union {
        uint32_t flags;
        uint32_t book; /* of a push under a lease: book of the samples (trmi_push_mark) */
    };
    int64_t extra[2]; /* of a push: lease; samples of the book that are then used, without a lease
                         nodes of the tree of sums (0: none; trmi_ps_nodes). Of a pull: where steps
                         are staged, the last push of this worker that the rows must have */
} trmi_ps_header;
_Static_assert(sizeof(trmi_ps_header) == 64, "the header is one line");

/* A section on the wire; the members are those of trmi_ps_section. */
typedef struct trmi_ps_wire_section {
    uint32_t shard, table, count, node;
} trmi_ps_wire_section;

/* A section in memory: views into a message. */
typedef struct trmi_ps_section {
    uint32_t shard, table; /* numbers: of the server's shard; of the table, by declaration */
    /* strict determinism: 1 + the position of this sum in the tree of all workers' blocks
     * (base/tree.h); 0: a sum like any other */
    uint32_t node;
    int64_t count;
    uint64_t *keys;
    uint8_t *values;
} trmi_ps_section;

/* The body of a control message; the values' meaning depends on the order. */
typedef struct trmi_ps_note {
    int64_t value[16];
    char text[TRMI_PS_NOTE_TEXT];
} trmi_ps_note;

/* In a HELLO: which job its sender belongs to (job_id and job_origin of trm_ps_server_options). */
typedef struct trmi_job_mark {
    uint8_t id[32];
    char origin[TRMI_PS_NOTE_TEXT];
} trmi_job_mark;

/* Limits against which the decoder checks sections. */
typedef struct trmi_ps_shape {
    uint32_t shards; /* shards of this server */
    uint32_t tables;
    const int32_t *widths; /* [tables] */
} trmi_ps_shape;

/* Returns the nodes of the tree in which the sections of a push are added; 0: no tree. */
static inline int64_t trmi_ps_nodes(const trmi_ps_header *h) {
    return h->kind == TRMI_PS_PUSH && h->extra[0] == 0 ? h->extra[1] : 0;
}
/* Returns the bytes of a message with these sections (keys and values as the kind has them); 0
 * if it would be too large. Sections need shard, table and count. */
size_t trmi_ps_size(trmi_ps_kind kind, trm_dtype dtype, const trmi_ps_section *sections,
                    uint32_t count, const int32_t *widths);
/* Writes header and section table into data[trmi_ps_size] and points the sections' keys and values
 * (where the kind has them) into it, for the caller to fill. */
void trmi_ps_encode(const trmi_ps_header *header, trmi_ps_section *sections, const int32_t *widths,
                    uint8_t *data);
/* Decodes and checks the header of a message.
 *   errors  CORRUPT */
trm_status trmi_ps_decode_header(const uint8_t *data, size_t bytes, trmi_ps_header *out,
                                 trm_error *err);
/* Decodes the sections of a pull or push into out[header->section_count]; each is checked
 * against the shape and the bytes that are there. That the keys of a push are distinct is not
 * checked.
 *   errors  CORRUPT */
trm_status trmi_ps_decode(const uint8_t *data, size_t bytes, const trmi_ps_header *header,
                          const trmi_ps_shape *shape, trmi_ps_section *out, trm_error *err);
/* Sets the values of the sections, those of the pull that was sent, to their places in the
 * answer.
 *   errors  CORRUPT */
trm_status trmi_ps_decode_rows(const uint8_t *data, size_t bytes, const trmi_ps_header *header,
                               const int32_t *widths, trmi_ps_section *sections, uint32_t count,
                               trm_error *err);

/* Makes the mark that a process of these options sends. */
void trmi_ps_make_mark(const void *job_id, const char *origin, trmi_job_mark *out);
/* Writes the mark into the note of a HELLO: value[9] to value[12], and the text. */
void trmi_ps_put_mark(const trmi_job_mark *mark, trmi_ps_note *note);
void trmi_ps_get_mark(const trmi_ps_note *note, trmi_job_mark *out);
/* Returns the bytes of a control message without its trailer: header, note, and for TABLE the
 * options. The trailer of header->extra[0] bytes follows; the caller writes it. */
size_t trmi_ps_note_size(trmi_ps_kind kind);
/* Writes header, note (NULL: zeros) and, for TABLE, the options. */
void trmi_ps_encode_note(const trmi_ps_header *header, const trmi_ps_note *note,
                         const trm_table_options *table, uint8_t *data);
/* Decodes a control message; table->name points into note->text. `table` may be NULL unless the
 * kind is TABLE.
 *   errors  CORRUPT, UNSUPPORTED (a table from another build) */
trm_status trmi_ps_decode_note(const uint8_t *data, size_t bytes, const trmi_ps_header *header,
                               trmi_ps_note *note, trm_table_options *table, trm_error *err);

#endif
