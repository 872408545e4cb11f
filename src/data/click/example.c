/* SPDX-License-Identifier: Apache-2.0 */
/* The protobuf wire form of tf.Example, read in place. Depth is fixed by the schema: no recursion.
 */
#include "base/error.h"
#include "data/click/tfrecord.h"

#include <string.h>

enum { WIRE_VARINT = 0, WIRE_FIXED64 = 1, WIRE_BYTES = 2, WIRE_FIXED32 = 5 };

typedef struct field {
    uint32_t number, wire;
    uint64_t value;      /* varint */
    const uint8_t *data; /* bytes, or the fixed value */
    size_t bytes;
} field;

static bool read_varint(const uint8_t **at, const uint8_t *end, uint64_t *out) {
    uint64_t value = 0;
    for (int shift = 0; shift < 70; shift += 7) {
        if (*at == end) {
            return false;
        }
        uint8_t byte = *(*at)++;
        value |= shift < 64 ? (uint64_t)(byte & 0x7F) << shift : 0;
        if (byte < 0x80) {
            *out = value;
            return true;
        }
    }
    return false;
}

/* The next field of a message; false when malformed. Call only while *at < end. */
static bool read_field(const uint8_t **at, const uint8_t *end, field *out) {
    uint64_t key;
    if (!read_varint(at, end, &key) || key >> 3 == 0 || key >> 3 > UINT32_MAX) {
        return false;
    }
    *out = (field){.number = (uint32_t)(key >> 3), .wire = (uint32_t)(key & 7)};
    uint64_t length;
    switch (out->wire) {
    case WIRE_VARINT: return read_varint(at, end, &out->value);
    case WIRE_FIXED64: length = 8; break;
    case WIRE_FIXED32: length = 4; break;
    case WIRE_BYTES:
        if (!read_varint(at, end, &length)) {
            return false;
        }
        break;
    default: return false;
    }
    if (length > (uint64_t)(end - *at)) {
        return false;
    }
    out->data = *at;
    out->bytes = (size_t)length;
    *at += length;
    return true;
}

/* Feature { oneof list }: the last list wins, as in protobuf. */
static bool read_feature(const uint8_t *at, size_t bytes, trmi_feature *out) {
    const uint8_t *end = at + bytes;
    while (at < end) {
        field f;
        if (!read_field(&at, end, &f)) {
            return false;
        }
        if (f.number <= 3 && f.wire == WIRE_BYTES) {
            *out = (trmi_feature){(trmi_feature_kind)f.number, f.data, f.bytes};
        }
    }
    return true;
}

/* One map entry { key: 1, value: 2 }. */
static bool read_entry(const uint8_t *at, size_t bytes, const char *const *names, int32_t count,
                       trmi_feature *out) {
    const uint8_t *end = at + bytes;
    field key = {0}, value = {0};
    while (at < end) {
        field f;
        if (!read_field(&at, end, &f)) {
            return false;
        }
        if (f.wire == WIRE_BYTES && f.number == 1) {
            key = f;
        } else if (f.wire == WIRE_BYTES && f.number == 2) {
            value = f;
        }
    }
    for (int32_t i = 0; i < count; i++) {
        if (strlen(names[i]) == key.bytes &&
            (key.bytes == 0 || memcmp(names[i], key.data, key.bytes) == 0)) {
            out[i] = (trmi_feature){0};
            return value.data == NULL || read_feature(value.data, value.bytes, &out[i]);
        }
    }
    return true;
}

trm_status trmi_example_find(const uint8_t *data, size_t bytes, const char *const *names,
                             int32_t count, trmi_feature *out, trm_error *err) {
    for (int32_t i = 0; i < count; i++) {
        out[i] = (trmi_feature){0};
    }
    const uint8_t *at = data, *end = data + bytes;
    bool good = true;
    while (good && at < end) {
        field features;
        good = read_field(&at, end, &features);
        if (!good || features.number != 1 || features.wire != WIRE_BYTES) {
            continue;
        }
        const uint8_t *entry_at = features.data, *entry_end = features.data + features.bytes;
        while (good && entry_at < entry_end) {
            field entry;
            good = read_field(&entry_at, entry_end, &entry);
            if (good && entry.number == 1 && entry.wire == WIRE_BYTES) {
                good = read_entry(entry.data, entry.bytes, names, count, out);
            }
        }
    }
    if (!good) {
        return TRMI_FAIL(err, TRM_CORRUPT, "malformed tf.Example of %zu bytes", bytes);
    }
    return TRM_OK;
}

/* ---- lists ---------------------------------------------------------------------------------- */

trmi_feature_walk trmi_feature_begin(const trmi_feature *feature) {
    trmi_feature_walk walk = {.at = feature->data, .end = feature->data};
    if (feature->kind != TRMI_FEATURE_ABSENT) {
        walk.end = feature->data + feature->bytes;
    }
    return walk;
}

/* The next field 1 of the list's message, others skipped. */
static bool next_value(trmi_feature_walk *walk, field *out) {
    while (walk->at < walk->end) {
        if (!read_field(&walk->at, walk->end, out)) {
            walk->malformed = true;
            walk->at = walk->end;
            return false;
        }
        if (out->number == 1) {
            return true;
        }
    }
    return false;
}

bool trmi_feature_next_bytes(trmi_feature_walk *walk, const uint8_t **data, size_t *bytes) {
    field f;
    if (!next_value(walk, &f)) {
        return false;
    }
    if (f.wire != WIRE_BYTES) {
        walk->malformed = true;
        return false;
    }
    *data = f.data;
    *bytes = f.bytes;
    return true;
}

/* A packed run is walked by moving `at` inside it and remembering the list's true end. */
static bool enter_packed(trmi_feature_walk *walk, field *f) {
    while (walk->packed_end == NULL) {
        if (!next_value(walk, f)) {
            return false;
        }
        if (f->wire != WIRE_BYTES) {
            return true;
        }
        if (f->bytes > 0) {
            walk->packed_end = walk->at;
            walk->at = f->data;
        }
    }
    return true;
}

bool trmi_feature_next_float(trmi_feature_walk *walk, float *out) {
    field f;
    if (walk->malformed || !enter_packed(walk, &f)) {
        return false;
    }
    const uint8_t *value;
    if (walk->packed_end == NULL) {
        walk->malformed = f.wire != WIRE_FIXED32;
        value = f.data;
    } else {
        walk->malformed = walk->packed_end - walk->at < 4;
        value = walk->at;
        walk->at += walk->malformed ? 0 : 4;
        walk->packed_end = walk->at == walk->packed_end ? NULL : walk->packed_end;
    }
    if (!walk->malformed) {
        memcpy(out, value, 4);
    }
    return !walk->malformed;
}

bool trmi_feature_next_int64(trmi_feature_walk *walk, int64_t *out) {
    field f;
    if (walk->malformed || !enter_packed(walk, &f)) {
        return false;
    }
    uint64_t value = 0;
    if (walk->packed_end == NULL) {
        walk->malformed = f.wire != WIRE_VARINT;
        value = f.value;
    } else {
        walk->malformed = !read_varint(&walk->at, walk->packed_end, &value);
        walk->packed_end = walk->at == walk->packed_end ? NULL : walk->packed_end;
    }
    *out = (int64_t)value;
    return !walk->malformed;
}
