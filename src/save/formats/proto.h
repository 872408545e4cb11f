/* SPDX-License-Identifier: Apache-2.0 */
/* save/formats/proto.h: the wire form of protocol buffers: fields to bytes, and a bounded reader of
 * fields. https://protobuf.dev/programming-guides/encoding/ */
#ifndef TRMI_SAVE_PROTO_H
#define TRMI_SAVE_PROTO_H

#include "base/memory.h"

enum {
    TRMI_PROTO_VARINT = 0,
    TRMI_PROTO_FIXED64 = 1,
    TRMI_PROTO_BYTES = 2,
    TRMI_PROTO_FIXED32 = 5
};

/* Writing: each appends one field. */
void trmi_proto_varint(trmi_text *out, uint32_t field, uint64_t value);
void trmi_proto_double(trmi_text *out, uint32_t field, double value);
void trmi_proto_float(trmi_text *out, uint32_t field, float value);
void trmi_proto_bytes(trmi_text *out, uint32_t field, const void *data, size_t bytes);
void trmi_proto_string(trmi_text *out, uint32_t field, const char *text);
/* A nested message; frees `message`. */
void trmi_proto_message(trmi_text *out, uint32_t field, trmi_text *message);
/* Only the tag and length of a bytes field; the bytes follow by other means. */
void trmi_proto_header(trmi_text *out, uint32_t field, uint64_t bytes);
void trmi_proto_raw_varint(trmi_text *out, uint64_t value);

/* Reading. Bytes are borrowed from what is read. */
typedef struct trmi_proto_field {
    uint32_t number;
    int wire;
    uint64_t value;      /* varint, fixed64, fixed32 */
    const uint8_t *data; /* bytes; NULL for the other kinds */
    size_t bytes;
} trmi_proto_field;

typedef struct trmi_proto {
    const uint8_t *data;
    size_t bytes, at;
    bool broken; /* sticks; `broken_at` is the offset of the field */
    size_t broken_at;
} trmi_proto;

/* The next field; false at the end or when broken. Groups (deprecated) are broken. */
bool trmi_proto_next(trmi_proto *proto, trmi_proto_field *field);
/* The fields of a bytes field. */
static inline trmi_proto trmi_proto_inside(const trmi_proto_field *field) {
    return (trmi_proto){.data = field->data, .bytes = field->bytes};
}
/* The next number of a packed array of varints. */
bool trmi_proto_packed(trmi_proto *proto, uint64_t *value);

double trmi_proto_to_double(uint64_t value);
float trmi_proto_to_float(uint64_t value);

#endif
