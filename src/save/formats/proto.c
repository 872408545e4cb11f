/* SPDX-License-Identifier: Apache-2.0 */
#include "save/formats/proto.h"

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

/* ---- reading --------------------------------------------------------------------------- */

static bool take_varint(trmi_proto *proto, uint64_t *value) {
    uint64_t result = 0;
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

static bool take_fixed(trmi_proto *proto, size_t bytes, uint64_t *value) {
    if (proto->bytes - proto->at < bytes) {
        return false;
    }
    *value = 0;
    memcpy(value, proto->data + proto->at, bytes);
    proto->at += bytes;
    return true;
}

static bool take_content(trmi_proto *proto, trmi_proto_field *field) {
    switch (field->wire) {
    case TRMI_PROTO_VARINT: return take_varint(proto, &field->value);
    case TRMI_PROTO_FIXED64: return take_fixed(proto, 8, &field->value);
    case TRMI_PROTO_FIXED32: return take_fixed(proto, 4, &field->value);
    case TRMI_PROTO_BYTES:
        if (!take_varint(proto, &field->value) || field->value > proto->bytes - proto->at) {
            return false;
        }
        field->bytes = (size_t)field->value;
        field->data = proto->data + proto->at;
        proto->at += field->bytes;
        return true;
    default: return false;
    }
}

bool trmi_proto_next(trmi_proto *proto, trmi_proto_field *field) {
    if (proto->broken || proto->at >= proto->bytes) {
        return false;
    }
    size_t start = proto->at;
    uint64_t tag = 0;
    *field = (trmi_proto_field){0};
    bool ok = take_varint(proto, &tag) && tag >> 3 != 0 && tag >> 3 < 1u << 29;
    if (ok) {
        field->number = (uint32_t)(tag >> 3);
        field->wire = (int)(tag & 7);
        ok = take_content(proto, field);
    }
    if (!ok) {
        proto->broken = true;
        proto->broken_at = start;
    }
    return ok;
}

bool trmi_proto_packed(trmi_proto *proto, uint64_t *value) {
    if (proto->broken || proto->at >= proto->bytes) {
        return false;
    }
    size_t start = proto->at;
    if (!take_varint(proto, value)) {
        proto->broken = true;
        proto->broken_at = start;
        return false;
    }
    return true;
}

double trmi_proto_to_double(uint64_t value) {
    double out;
    memcpy(&out, &value, sizeof out);
    return out;
}

float trmi_proto_to_float(uint64_t value) {
    uint32_t bits = (uint32_t)value;
    float out;
    memcpy(&out, &bits, sizeof out);
    return out;
}
