/* SPDX-License-Identifier: Apache-2.0 */
/* Reads event records (TensorBoard's format): time and step, then each value of the event is
 * passed to a function of the caller. `trireme inspect` and the tests of event files use it; the
 * caller has found the record and checked its checksum (record.c).
 *
 * Field numbers are those of tensorflow/core/util/event.proto and framework/summary.proto; other
 * fields are skipped. As the checksum is right, a message that cannot be parsed was written
 * wrongly: CORRUPT. */
#include "save/events/events.h"

#include "base/error.h"
#include "save/path.h"
#include "base/format/proto.h"

/* The event under construction, and the function that receives it. */
typedef struct decoder {
    trmi_record_event event; /* time and step stay, the rest changes with each value */
    trmi_event_visit visit;  /* the caller's */
    void *context;           /* first argument of `visit` */
} decoder;

/* Reads one value of a summary: a scalar, a histogram or another kind, and passes it to the
 * visitor. Values are 32-bit floats in the file. Returns false if the message is malformed. */
static bool decode_value(decoder *d, trmi_proto proto) {
    trmi_proto_field field;
    trmi_record_event *event = &d->event;
    event->kind = TRMI_EVENT_OTHER;
    event->tag = NULL;
    event->tag_bytes = 0;
    /* 1 tag, 2 simple_value, 5 histo */
    while (trmi_proto_next(&proto, &field)) {
        if (field.number == 1 && field.wire == TRMI_PROTO_BYTES) {
            event->tag = (const char *)field.data;
            event->tag_bytes = field.bytes;
        } else if (field.number == 2 && field.wire == TRMI_PROTO_FIXED32) {
            event->kind = TRMI_EVENT_SCALAR;
            event->value = (double)trmi_proto_to_float(field.value);
        } else if (field.number == 5) {
            event->kind = TRMI_EVENT_HISTOGRAM;
        }
    }
    if (!proto.broken) {
        d->visit(d->context, event);
    }
    return !proto.broken;
}

/* Reads a summary: a list of values. */
static bool decode_summary(decoder *d, trmi_proto proto) {
    trmi_proto_field field;
    while (trmi_proto_next(&proto, &field)) {
        if (field.number == 1 && field.wire == TRMI_PROTO_BYTES &&
            !decode_value(d, trmi_proto_inside(&field))) {
            return false;
        }
    }
    return !proto.broken;
}

/* Reads a graph: counts its nodes. */
static bool decode_graph(decoder *d, trmi_proto proto) {
    trmi_proto_field field;
    d->event.kind = TRMI_EVENT_GRAPH;
    d->event.node_count = 0;
    while (trmi_proto_next(&proto, &field)) {
        d->event.node_count += field.number == 1;
    }
    if (!proto.broken) {
        d->visit(d->context, &d->event);
    }
    return !proto.broken;
}

/* Reads one member of the event. */
static bool decode_content(decoder *d, const trmi_proto_field *field) {
    bool bytes = field->wire == TRMI_PROTO_BYTES;
    d->event.tag = NULL;
    d->event.tag_bytes = 0;
    /* 3 file_version, 4 graph_def, 5 summary, 7 session_log */
    switch (bytes ? field->number : 0) {
    case 3:
        d->event.kind = TRMI_EVENT_VERSION;
        d->event.tag = (const char *)field->data;
        d->event.tag_bytes = field->bytes;
        break;
    case 4: return decode_graph(d, trmi_proto_inside(field));
    case 5: return decode_summary(d, trmi_proto_inside(field));
    case 7: d->event.kind = TRMI_EVENT_SESSION; break;
    default: return true;
    }
    d->visit(d->context, &d->event);
    return true;
}

/* Contract in events.h. Two passes over the fields: values are passed on with the time and step of
 * their event, which may stand behind them. */
trm_status trmi_event_decode(const uint8_t *data, size_t bytes, const char *path, int64_t number,
                             trmi_event_visit visit, void *context, trm_error *err) {
    decoder d = {.visit = visit, .context = context};
    trmi_proto_field field;
    /* Time and step first, because the fields may come in any order. */
    for (trmi_proto proto = {.data = data, .bytes = bytes}; trmi_proto_next(&proto, &field);) {
        if (field.number == 1 && field.wire == TRMI_PROTO_FIXED64) {
            d.event.wall_seconds = trmi_proto_to_double(field.value);
        } else if (field.number == 2 && field.wire == TRMI_PROTO_VARINT) {
            d.event.step = (int64_t)field.value;
        }
    }
    /* Describe the contents. */
    trmi_proto proto = {.data = data, .bytes = bytes};
    bool ok = true;
    while (ok && trmi_proto_next(&proto, &field)) {
        ok = decode_content(&d, &field);
    }
    if (ok && !proto.broken) {
        return TRM_OK;
    }
    return TRMI_FAIL(err, TRM_CORRUPT, "%s: record %lld is framed well but is no event",
                     trmi_path_tail(path), (long long)number);
}
