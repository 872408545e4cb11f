/* SPDX-License-Identifier: Apache-2.0 */
/* base/format/proto.h: the wire form of protocol buffers: writes fields, and reads them with bounds
 * checks. https://protobuf.dev/programming-guides/encoding/
 *
 *      write   trmi_proto_string(&text, 1, "name"); trmi_proto_message(&text, 2, &inner);
 *      read    trmi_proto p = {data, bytes}; trmi_proto_field f;
 *              while (trmi_proto_next(&p, &f)) { switch (f.field) ... }
 *
 * There are no generated messages: the caller knows the numbers of the fields. A reader stops at
 * the first malformed field and says so in its state; it never reads past its end, and allocates
 * nothing. */
#ifndef TRMI_BASE_PROTO_H
#define TRMI_BASE_PROTO_H

#include "base/memory.h"

#include <string.h>

/* Wire types of fields; groups (3 and 4) are not used. */
enum {
    TRMI_PROTO_VARINT = 0,
    TRMI_PROTO_FIXED64 = 1,
    TRMI_PROTO_BYTES = 2,
    TRMI_PROTO_FIXED32 = 5
};

/* Append one field each. */
void trmi_proto_varint(trmi_text *out, uint32_t field, uint64_t value);
void trmi_proto_double(trmi_text *out, uint32_t field, double value);
void trmi_proto_float(trmi_text *out, uint32_t field, float value);
void trmi_proto_bytes(trmi_text *out, uint32_t field, const void *data, size_t bytes);
void trmi_proto_string(trmi_text *out, uint32_t field, const char *text);
/* Appends a nested message; frees `message`. */
void trmi_proto_message(trmi_text *out, uint32_t field, trmi_text *message);
/* Appends the tag and length of a bytes field only; the caller writes the bytes. */
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

/* A message that is being read. */
typedef struct trmi_proto {
    const uint8_t *data;
    size_t bytes, at;
    bool broken; /* stays set after an error; `broken_at` is the offset of the field */
    size_t broken_at;
} trmi_proto;

/* Reads a varint. False: cut off or longer than 64 bits. Reading is inline, because a tf.Example
 * has hundreds of fields of a few bytes. */
static inline bool trmi_proto_take_varint(trmi_proto *proto, uint64_t *value) {
    uint64_t result = 0;
    /* most varints have one byte */
    if (proto->at < proto->bytes && proto->data[proto->at] < 0x80) {
        *value = proto->data[proto->at++];
        return true;
    }
    for (int shift = 0; shift < 70 && proto->at < proto->bytes; shift += 7) {
        uint8_t byte = proto->data[proto->at++];
        if (shift == 63 && byte > 1) {
            return false;
        }
        result |= (uint64_t)(byte & 0x7F) << shift;
        if (byte < 0x80) {
            *value = result;
            return true;
        }
    }
    return false;
}

/* Reads a little-endian number of 4 or 8 bytes. False: cut off. */
static inline bool trmi_proto_take_fixed(trmi_proto *proto, size_t bytes, uint64_t *value) {
    if (proto->bytes - proto->at < bytes) {
        return false;
    }
    *value = 0;
    memcpy(value, proto->data + proto->at, bytes);
    proto->at += bytes;
    return true;
}

/* Reads the content of a field of known wire type. False: cut off, or a type that does not exist.
 */
static inline bool trmi_proto_take_content(trmi_proto *proto, trmi_proto_field *field) {
    switch (field->wire) {
    case TRMI_PROTO_VARINT: return trmi_proto_take_varint(proto, &field->value);
    case TRMI_PROTO_FIXED64: return trmi_proto_take_fixed(proto, 8, &field->value);
    case TRMI_PROTO_FIXED32: return trmi_proto_take_fixed(proto, 4, &field->value);
    case TRMI_PROTO_BYTES:
        if (!trmi_proto_take_varint(proto, &field->value) ||
            field->value > proto->bytes - proto->at) {
            return false;
        }
        field->bytes = (size_t)field->value;
        field->data = proto->data + proto->at;
        proto->at += field->bytes;
        return true;
    default: return false;
    }
}

/* Reads the next field; false at the end or after an error. Groups (deprecated) are errors. */
static inline bool trmi_proto_next(trmi_proto *proto, trmi_proto_field *field) {
    if (proto->broken || proto->at >= proto->bytes) {
        return false;
    }
    size_t start = proto->at;
    uint64_t tag = 0;
    *field = (trmi_proto_field){0};
    bool ok = trmi_proto_take_varint(proto, &tag) && tag >> 3 != 0 && tag >> 3 < 1u << 29;
    if (ok) {
        field->number = (uint32_t)(tag >> 3);
        field->wire = (int)(tag & 7);
        ok = trmi_proto_take_content(proto, field);
    }
    if (!ok) {
        proto->broken = true;
        proto->broken_at = start;
    }
    return ok;
}

/* Reads the next number of a packed array of varints; false at the end or after an error. */
static inline bool trmi_proto_packed(trmi_proto *proto, uint64_t *value) {
    if (proto->broken || proto->at >= proto->bytes) {
        return false;
    }
    size_t start = proto->at;
    if (!trmi_proto_take_varint(proto, value)) {
        proto->broken = true;
        proto->broken_at = start;
        return false;
    }
    return true;
}

/* Returns a reader of the fields within a bytes field. */
static inline trmi_proto trmi_proto_inside(const trmi_proto_field *field) {
    return (trmi_proto){.data = field->data, .bytes = field->bytes};
}

/* Convert fixed64 and fixed32 values to numbers. */
static inline double trmi_proto_to_double(uint64_t value) {
    double out;
    memcpy(&out, &value, sizeof out);
    return out;
}

/* Returns the float of a FIXED32 field. */
static inline float trmi_proto_to_float(uint64_t value) {
    uint32_t bits = (uint32_t)value;
    float out;
    memcpy(&out, &bits, sizeof out);
    return out;
}

#endif
