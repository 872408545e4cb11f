/* SPDX-License-Identifier: Apache-2.0 */
/* Reading tf.Example in its protobuf form, in place. The schema fixes the depth, so there is no
 * recursion. tfrecord.h shows the message.
 *
 * trmi_example_find finds named features; trmi_feature_begin and the functions after it go through
 * the list of one feature. A list of numbers may be packed (one block), unpacked (one field for
 * each), or a mixture. */
#include "base/format/endian.h"
#include "base/error.h"
#include "data/tfrecord/tfrecord.h"

#include <string.h>

/* Reads a Feature { oneof list }. As in protobuf, the last list counts. */
static bool read_feature(const trmi_proto_field *value, trmi_feature *out) {
    trmi_proto feature = trmi_proto_inside(value);
    trmi_proto_field f;
    while (trmi_proto_next(&feature, &f)) {
        if (f.number <= 3 && f.wire == TRMI_PROTO_BYTES) {
            *out = (trmi_feature){(trmi_feature_kind)f.number, f.data, f.bytes};
        }
    }
    return !feature.broken;
}

/* Reads a map entry { key: 1, value: 2 }; fills out[i] if its key is names[i]. Returns false if the
 * bytes are malformed. */
static bool read_entry(const trmi_proto_field *entry, const char *const *names, int32_t count,
                       trmi_feature *out) {
    trmi_proto pair = trmi_proto_inside(entry);
    trmi_proto_field key = {0}, value = {0}, f;
    while (trmi_proto_next(&pair, &f)) {
        if (f.wire == TRMI_PROTO_BYTES && f.number == 1) {
            key = f;
        } else if (f.wire == TRMI_PROTO_BYTES && f.number == 2) {
            value = f;
        }
    }
    for (int32_t i = 0; !pair.broken && i < count; i++) {
        /* A later entry with the same key replaces an earlier one, as in protobuf. */
        if (strlen(names[i]) == key.bytes &&
            (key.bytes == 0 || memcmp(names[i], key.data, key.bytes) == 0)) {
            out[i] = (trmi_feature){0};
            return value.data == NULL || read_feature(&value, &out[i]);
        }
    }
    return !pair.broken;
}

/* Contract in tfrecord.h. Features that are absent stay empty. In a message each field may occur
 * several times; of entries with one name the last one counts, as in protobuf maps. */
trm_status trmi_example_find(const uint8_t *data, size_t bytes, const char *const *names,
                             int32_t count, trmi_feature *out, trm_error *err) {
    trmi_proto example = {.data = data, .bytes = bytes};
    trmi_proto_field features, entry;
    bool good = true;
    for (int32_t i = 0; i < count; i++) {
        out[i] = (trmi_feature){0};
    }
    while (good && trmi_proto_next(&example, &features)) {
        /* Other fields of the message are skipped. */
        if (features.number != 1 || features.wire != TRMI_PROTO_BYTES) {
            continue;
        }
        trmi_proto map = trmi_proto_inside(&features);
        while (good && trmi_proto_next(&map, &entry)) {
            if (entry.number == 1 && entry.wire == TRMI_PROTO_BYTES) {
                good = read_entry(&entry, names, count, out);
            }
        }
        good = good && !map.broken;
    }
    if (!good || example.broken) {
        return TRMI_FAIL(err, TRM_CORRUPT, "a record of %zu bytes is no tf.Example", bytes);
    }
    return TRM_OK;
}

/* ---- lists ---------------------------------------------------------------------------------- */

trmi_feature_walk trmi_feature_begin(const trmi_feature *feature) {
    bool there = feature->kind != TRMI_FEATURE_ABSENT;
    return (trmi_feature_walk){
        .list = {.data = feature->data, .bytes = there ? feature->bytes : 0}};
}

/* Returns the next field 1 of the list's message; other fields are skipped. */
static bool next_value(trmi_feature_walk *walk, trmi_proto_field *out) {
    while (trmi_proto_next(&walk->list, out)) {
        if (out->number == 1) {
            return true;
        }
    }
    walk->malformed = walk->malformed || walk->list.broken;
    return false;
}

/* Contract in tfrecord.h. The bytes stay in the record. */
bool trmi_feature_next_bytes(trmi_feature_walk *walk, const uint8_t **data, size_t *bytes) {
    trmi_proto_field f;
    if (!next_value(walk, &f)) {
        return false;
    }
    if (f.wire != TRMI_PROTO_BYTES) {
        walk->malformed = true;
        return false;
    }
    *data = f.data;
    *bytes = f.bytes;
    return true;
}

/* Goes to the next number: *f is a value of its own, unless walk->packed has numbers left or
 * begins. */
static bool next_number(trmi_feature_walk *walk, trmi_proto_field *f) {
    while (!walk->malformed && walk->packed.at == walk->packed.bytes) {
        if (!next_value(walk, f)) {
            return false;
        }
        if (f->wire != TRMI_PROTO_BYTES) {
            return true;
        }
        walk->packed = trmi_proto_inside(f);
    }
    return !walk->malformed;
}

bool trmi_feature_next_float(trmi_feature_walk *walk, float *out) {
    trmi_proto_field f;
    trmi_proto *packed = &walk->packed;
    if (!next_number(walk, &f)) {
        return false;
    }
    /* An unpacked number has a field of its own. */
    if (packed->at == packed->bytes) {
        walk->malformed = f.wire != TRMI_PROTO_FIXED32;
        *out = trmi_proto_to_float(f.value);
    } else if (packed->bytes - packed->at < 4) {
        walk->malformed = true;
    } else {
        /* A packed one is the next 4 bytes of the block. */
        *out = trmi_proto_to_float(trmi_get32(packed->data + packed->at));
        packed->at += 4;
    }
    return !walk->malformed;
}

/* Contract in tfrecord.h. Negative numbers are stored as unsigned ones of 64 bits. */
bool trmi_feature_next_int64(trmi_feature_walk *walk, int64_t *out) {
    trmi_proto_field f;
    uint64_t value = 0;
    if (!next_number(walk, &f)) {
        return false;
    }
    if (walk->packed.at == walk->packed.bytes) {
        walk->malformed = f.wire != TRMI_PROTO_VARINT;
        value = f.value;
    } else {
        walk->malformed = !trmi_proto_packed(&walk->packed, &value);
    }
    *out = (int64_t)value;
    return !walk->malformed;
}
