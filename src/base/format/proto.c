/* SPDX-License-Identifier: Apache-2.0 */
/* Writes fields in the wire form of protocol buffers (base/format/proto.h). */
#include "base/format/proto.h"

#include <string.h>

void trmi_proto_raw_varint(trmi_text *out, uint64_t value) {
    char bytes[10];
    size_t count = 0;
    while (value >= 0x80) {
        bytes[count++] = (char)(value | 0x80);
        value >>= 7;
    }
    bytes[count++] = (char)value;
    trmi_text_append(out, bytes, count);
}

/* Appends the tag of a field. */
static void put_tag(trmi_text *out, uint32_t field, int wire) {
    trmi_proto_raw_varint(out, (uint64_t)field << 3 | (uint64_t)wire);
}

void trmi_proto_varint(trmi_text *out, uint32_t field, uint64_t value) {
    put_tag(out, field, TRMI_PROTO_VARINT);
    trmi_proto_raw_varint(out, value);
}

void trmi_proto_double(trmi_text *out, uint32_t field, double value) {
    put_tag(out, field, TRMI_PROTO_FIXED64);
    trmi_text_append(out, (const char *)&value, sizeof value);
}

void trmi_proto_float(trmi_text *out, uint32_t field, float value) {
    put_tag(out, field, TRMI_PROTO_FIXED32);
    trmi_text_append(out, (const char *)&value, sizeof value);
}

void trmi_proto_header(trmi_text *out, uint32_t field, uint64_t bytes) {
    put_tag(out, field, TRMI_PROTO_BYTES);
    trmi_proto_raw_varint(out, bytes);
}

void trmi_proto_bytes(trmi_text *out, uint32_t field, const void *data, size_t bytes) {
    trmi_proto_header(out, field, bytes);
    if (bytes > 0) {
        trmi_text_append(out, data, bytes);
    }
}

void trmi_proto_string(trmi_text *out, uint32_t field, const char *text) {
    trmi_proto_bytes(out, field, text, strlen(text));
}

void trmi_proto_message(trmi_text *out, uint32_t field, trmi_text *message) {
    out->failed = out->failed || message->failed;
    trmi_proto_bytes(out, field, message->data, message->length);
    trmi_text_free(message);
}
