/* SPDX-License-Identifier: Apache-2.0 */
/* `trireme inspect` of event files and TFRecord files, which have the same framing: length,
 * checksum of the length, data, checksum of the data. The checksums are compared, so a damaged
 * record ends the report with an error.
 *
 * The records before a damaged one are reported first. Memory is limited: at most TAGS_MAX
 * curves are listed, more are only counted, and of TFRecords the features of the first record are
 * shown. */
#include "save/inspect/inspect.h"

#include "base/checked.h"
#include "base/error.h"
#include "save/events/events.h"
#include "save/path.h"
#include "base/format/proto.h"
#include "base/format/tfrecord.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { TAGS_MAX = 1000 }; /* curves that are listed; more are only counted */

/* ---- events ---------------------------------------------------------------------------- */

/* One curve of an event file. */
typedef struct tag_summary {
    char name[128];                        /* cut if it is longer */
    bool histogram;                        /* otherwise scalars */
    int64_t points, first_step, last_step; /* number of values, and their steps */
    double last_value;                     /* of a scalar */
} tag_summary;

/* The contents of an event file, summed up. */
typedef struct event_summary {
    tag_summary *tags; /* [tag_count] in the order of their first values */
    /* tags_left_out: values of curves beyond TAGS_MAX */
    int64_t tag_count, tag_capacity, tags_left_out;
    /* records, graphs, nodes of the last graph, sessions */
    int64_t events, graphs, graph_nodes, starts;
    bool has_version;             /* the version of the events is known */
    double first_time, last_time; /* Unix seconds; 0: no event yet */
} event_summary;

/* Adds a value to its curve, which is created for the first one. */
static void add_point(event_summary *s, const trmi_record_event *event) {
    tag_summary *tag = NULL;
    /* A long name is cut, so the search compares only its beginning. */
    size_t length =
        event->tag_bytes < sizeof tag->name - 1 ? event->tag_bytes : sizeof tag->name - 1;
    for (int64_t i = 0; i < s->tag_count && tag == NULL; i++) {
        bool same =
            strncmp(s->tags[i].name, event->tag, length) == 0 && s->tags[i].name[length] == '\0';
        tag = same ? &s->tags[i] : NULL;
    }
    /* Begin a new curve. */
    if (tag == NULL) {
        if (s->tag_count == TAGS_MAX ||
            !trmi_grow((void **)&s->tags, &s->tag_capacity, s->tag_count + 1, sizeof *s->tags)) {
            s->tags_left_out++;
            return;
        }
        tag = &s->tags[s->tag_count++];
        memset(tag, 0, sizeof *tag);
        if (length > 0) {
            memcpy(tag->name, event->tag, length);
        }
        tag->histogram = event->kind == TRMI_EVENT_HISTOGRAM;
        tag->first_step = event->step;
    }
    /* Its points so far. */
    tag->points++;
    tag->last_step = event->step;
    tag->last_value = event->value;
}

/* Receives each value of a record from trmi_event_decode. */
static void count_event(void *context, const trmi_record_event *event) {
    event_summary *s = context;
    s->first_time = s->first_time == 0 ? event->wall_seconds : s->first_time;
    s->last_time = event->wall_seconds;
    switch (event->kind) {
    case TRMI_EVENT_VERSION:
        s->has_version = event->tag_bytes == 13 && memcmp(event->tag, "brain.Event:2", 13) == 0;
        break;
    case TRMI_EVENT_GRAPH:
        s->graphs++;
        s->graph_nodes = event->node_count;
        break;
    case TRMI_EVENT_SESSION: s->starts++; break;
    case TRMI_EVENT_SCALAR:
    case TRMI_EVENT_HISTOGRAM: add_point(s, event); break;
    case TRMI_EVENT_OTHER: break;
    }
}

/* Returns whether the first record's checksum of its length is right. */
static bool is_tfrecord(const trm_probe *probe) {
    return probe->bytes > 0 && trmi_tfrecord_starts(probe->data, (size_t)probe->bytes);
}

/* Returns a reader of the mapped file. */
static trmi_tfrecord_reader reader_of(const trm_probe *probe) {
    return (trmi_tfrecord_reader){
        .name = trmi_path_tail(probe->path), .file = probe->data, .bytes = (size_t)probe->bytes};
}

/* An event file begins with a record that states the version of the events. */
static bool is_events(const trm_probe *probe) {
    event_summary s = {0};
    const uint8_t *data;
    size_t bytes;
    trmi_tfrecord_reader reader = reader_of(probe);
    return is_tfrecord(probe) && trmi_tfrecord_next(&reader, &data, &bytes, NULL) == TRM_OK &&
           trmi_event_decode(data, bytes, probe->path, 0, count_event, &s, NULL) == TRM_OK &&
           s.has_version;
}

/* Reports the curves in the order of their first values: name, number of points, steps, last
 * value. */
static void put_tags(trmi_report *r, const event_summary *s) {
    trmi_report_open_array(r, "tags");
    for (int64_t i = 0; i < s->tag_count; i++) {
        const tag_summary *tag = &s->tags[i];
        trmi_report_open_object(r, NULL);
        trmi_report_put(r, trmi_string("tag", tag->name),
                        trmi_string("type", tag->histogram ? "histogram" : "scalar"),
                        trmi_int("points", tag->points), trmi_int("first_step", tag->first_step),
                        trmi_int("last_step", tag->last_step),
                        trmi_real("last_value", tag->last_value));
        trmi_report_say_of(
            r, trmi_report_close(r),
            tag->histogram
                ? "  [tag]%s: [points]%d histograms, steps [first_step]%d to [last_step]%d\n"
                : "  [tag]%s: [points]%d points, steps [first_step]%d to [last_step]%d, last value "
                  "[last_value]%.9g\n");
    }
    trmi_report_close(r);
}

/* Describes an event file: number of records, curves, and graph. */
static trm_status describe_events(const trm_probe *probe, bool json, trm_line_sink sink,
                                  void *context, trm_error *err) {
    trmi_inspect_report report;
    trmi_report *r = &report.report;
    event_summary s = {0};
    const uint8_t *data;
    size_t bytes;
    trmi_tfrecord_reader reader = reader_of(probe);
    trm_status status;
    trmi_inspect_begin(&report, "events", probe, json, sink, context);
    /* Read all records. */
    while ((status = trmi_tfrecord_next(&reader, &data, &bytes, err)) == TRM_OK) {
        status = trmi_event_decode(data, bytes, probe->path, s.events, count_event, &s, err);
        if (status != TRM_OK) {
            break;
        }
        s.events++;
    }
    status = status == TRM_END ? TRM_OK : status;
    /* Report what was found, also before a damaged record. */
    trmi_report_put(r, trmi_int("records", s.events), trmi_int("session_starts", s.starts),
                    trmi_int("graph_nodes", s.graph_nodes));
    trmi_report_tell(r,
                     "event file: [records]%d records over [seconds]%.0f s, [curves]%d "
                     "curves[more]?{ shown, and more|}, [session_starts]%d session starts\n",
                     trmi_real("seconds", s.last_time - s.first_time),
                     trmi_int("curves", s.tag_count), trmi_bool("more", s.tags_left_out > 0));
    trmi_report_say(r, s.graphs > 0 ? "  graph of [graph_nodes]%d nodes\n" : "");
    put_tags(r, &s);
    trmi_free(s.tags);
    return trmi_inspect_end(&report, status, err);
}

/* ---- TFRecord -------------------------------------------------------------------------- */

/* Returns "bytes", "float" or "int64": which of the fields 1, 2, 3 a tf.train.Feature has. */
static const char *feature_kind(const trmi_proto_field *feature) {
    static const char *const kinds[] = {"empty", "bytes", "float", "int64"};
    trmi_proto proto = trmi_proto_inside(feature);
    trmi_proto_field field;
    return trmi_proto_next(&proto, &field) && field.number <= 3 ? kinds[field.number] : kinds[0];
}

/* Reports names and kinds of the features if the record is a tf.Example{features 1{feature 1{key 1,
 * Feature 2}}}. */
static void put_features(trmi_report *r, const uint8_t *data, size_t bytes) {
    trmi_proto example = {.data = data, .bytes = bytes};
    trmi_proto_field features, entry, field;
    trmi_report_open_array(r, "features");
    /* Field 1 of an Example is the map of features; each entry has a key (1) and a value (2). */
    if (trmi_proto_next(&example, &features) && features.number == 1 && features.data != NULL) {
        trmi_proto map = trmi_proto_inside(&features);
        while (trmi_proto_next(&map, &entry) && entry.number == 1 && entry.data != NULL) {
            trmi_proto pair = trmi_proto_inside(&entry);
            char key[128] = "";
            const char *kind = "empty";
            /* Read key and value of one feature. */
            while (trmi_proto_next(&pair, &field) && field.data != NULL) {
                if (field.number == 1) {
                    snprintf(key, sizeof key, "%.*s", (int)trmi_min_i64(120, (int64_t)field.bytes),
                             (const char *)field.data);
                } else if (field.number == 2) {
                    kind = feature_kind(&field);
                }
            }
            trmi_report_open_object(r, NULL);
            trmi_report_put(r, trmi_string("name", key), trmi_string("type", kind));
            trmi_report_say_of(r, trmi_report_close(r), "  [name]%s: [type]%s\n");
        }
    }
    trmi_report_close(r);
}

/* Reports number and sizes of the records, and the features of the first one. */
static trm_status describe_tfrecord(const trm_probe *probe, bool json, trm_line_sink sink,
                                    void *context, trm_error *err) {
    trmi_inspect_report report;
    trmi_report *r = &report.report;
    const uint8_t *data, *first = NULL;
    size_t bytes, first_bytes = 0;
    trmi_tfrecord_reader reader = reader_of(probe);
    int64_t records = 0, smallest = INT64_MAX, largest = 0;
    trm_status status;
    trmi_inspect_begin(&report, "tfrecord", probe, json, sink, context);
    /* Read all records, and keep the first. */
    while ((status = trmi_tfrecord_next(&reader, &data, &bytes, err)) == TRM_OK) {
        if (records++ == 0) {
            first = data;
            first_bytes = bytes;
        }
        smallest = trmi_min_i64(smallest, (int64_t)bytes);
        largest = trmi_max_i64(largest, (int64_t)bytes);
    }
    status = status == TRM_END ? TRM_OK : status;
    smallest = records == 0 ? 0 : smallest;
    trmi_report_put(r, trmi_int("records", records), trmi_int("smallest_bytes", smallest),
                    trmi_int("largest_bytes", largest));
    trmi_report_say(r, "TFRecord file: [records]%d good records of [smallest_bytes]%d to "
                       "[largest_bytes]%d bytes\n");
    if (first != NULL) {
        put_features(r, first, first_bytes);
    }
    return trmi_inspect_end(&report, status, err);
}

const trm_recogniser trmi_inspect_events = {"events", "tfevents", is_events, describe_events};
const trm_recogniser trmi_inspect_tfrecord = {"tfrecord", "tfrecord", is_tfrecord,
                                              describe_tfrecord};
