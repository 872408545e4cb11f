/* SPDX-License-Identifier: Apache-2.0 */
/* Building event records: protobuf messages without a protobuf library, framed as TFRecords. Field
 * numbers are those of tensorflow/core/util/event.proto and framework/summary.proto.
 *
 *   record   length | checksum | Event {1 wall_time, 2 step, 3 file_version or 5 summary or ...}
 *   scalars  Summary {1 Value {1 tag, 2 simple_value}}
 *   histogram, graph: the field numbers stand beside the code that writes them
 *
 * Histograms have TensorFlow's bucket limits, and runs of empty buckets are written as one, as
 * TensorFlow does. Memory that is missing is kept by the text and reported by the caller. */
#include "save/events/events.h"

#include "base/element.h"
#include "base/error.h"
#include "base/format/proto.h"
#include "base/format/tfrecord.h"

#include <float.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* Begins an event with time and step. */
static trmi_text begin_event(double wall_seconds, int64_t step) {
    trmi_text event = {0};
    trmi_proto_double(&event, 1, wall_seconds);
    if (step != 0) {
        /* 0 is the default of protobuf and is left out. */
        trmi_proto_varint(&event, 2, (uint64_t)step);
    }
    return event;
}

/* Frames the event, appends it to `out` and frees it. */
static void end_event(trmi_text *out, trmi_text *event) {
    out->failed = out->failed || event->failed;
    if (!out->failed) {
        trmi_tfrecord_append(out, event->data, event->length);
    }
    trmi_text_free(event);
}

void trmi_event_put_version(trmi_text *out, double wall_seconds) {
    trmi_text event = begin_event(wall_seconds, 0);
    trmi_proto_string(&event, 3, "brain.Event:2");
    end_event(out, &event);
}

/* Contract in events.h. All scalars of a step are one event, so that readers see them together. */
void trmi_event_put_scalars(trmi_text *out, double wall_seconds, int64_t step,
                            const trm_named_scalar *scalars, int64_t count) {
    trmi_text event = begin_event(wall_seconds, step), summary = {0};
    for (int64_t i = 0; i < count; i++) {
        trmi_text value = {0};
        trmi_proto_string(&value, 1, scalars[i].name);
        trmi_proto_float(&value, 2, (float)scalars[i].value);
        trmi_proto_message(&summary, 1, &value);
    }
    trmi_proto_message(&event, 5, &summary);
    end_event(out, &event);
}

void trmi_event_put_start(trmi_text *out, double wall_seconds, int64_t step) {
    trmi_text event = begin_event(wall_seconds, step), session = {0};
    trmi_proto_varint(&session, 1, 1); /* START */
    trmi_proto_message(&event, 7, &session);
    end_event(out, &event);
}

/* ---- histograms ------------------------------------------------------------------------ */

/* TensorFlow's bucket limits: 0 and +-1e-12 * 1.1^k below 1e20, and the largest double at both
 * ends. */
enum { LIMITS_MAX = 1600 };
static double limits[LIMITS_MAX];
static int limit_count;
static pthread_once_t limits_once = PTHREAD_ONCE_INIT;

/* Computes the limits, once for the process. */
static void make_limits(void) {
    double positive[LIMITS_MAX / 2];
    int count = 0;
    for (double v = 1e-12; v < 1e20; v *= 1.1) {
        positive[count++] = v;
    }
    positive[count++] = DBL_MAX;
    for (int i = count - 1; i >= 0; i--) {
        limits[limit_count++] = -positive[i];
    }
    limits[limit_count++] = 0.0;
    for (int i = 0; i < count; i++) {
        limits[limit_count++] = positive[i];
    }
}

/* Returns the index of the first limit above `value`. */
static int bucket_of(double value) {
    int low = 0, high = limit_count - 1;
    while (low < high) {
        int middle = (low + high) / 2;
        if (limits[middle] > value) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    return low;
}

/* The distribution of a tensor's finite values. */
typedef struct histogram {
    double minimum, maximum, count, sum, sum_of_squares;
    double *buckets; /* [limit_count] number of values in each bucket */
} histogram;

/* Sums up the finite values; NaN and infinities are left out. */
static void collect_values(histogram *h, const trm_tensor *values) {
    int64_t count = trm_shape_count(&values->shape);
    for (int64_t i = 0; i < count; i++) {
        double value = trmi_element(values->data, values->dtype, i);
        if (!isfinite(value)) {
            continue;
        }
        h->minimum = h->count == 0 || value < h->minimum ? value : h->minimum;
        h->maximum = h->count == 0 || value > h->maximum ? value : h->maximum;
        h->count += 1;
        h->sum += value;
        h->sum_of_squares += value * value;
        h->buckets[bucket_of(value)] += 1;
    }
}

/* Writes the buckets; a run of empty buckets is written as one. */
static void put_buckets(trmi_text *out, const histogram *h) {
    trmi_text ends = {0}, counts = {0};
    for (int i = 0; i < limit_count;) {
        double limit = limits[i], count = h->buckets[i++];
        while (i < limit_count && count == 0 && h->buckets[i] == 0) {
            limit = limits[i++];
        }
        trmi_text_append(&ends, (const char *)&limit, sizeof limit);
        trmi_text_append(&counts, (const char *)&count, sizeof count);
    }
    trmi_proto_message(out, 6, &ends);
    trmi_proto_message(out, 7, &counts);
}

/* Contract in events.h. Values that are not finite are counted in no bucket. */
trm_status trmi_event_put_histogram(trmi_text *out, double wall_seconds, int64_t step,
                                    const char *tag, const trm_tensor *values, trm_error *err) {
    if (values->dtype == TRM_DTYPE_NONE || values->dtype == TRM_INT8 ||
        values->dtype == TRM_UINT8 || trm_tensor_bytes(values) < 0) {
        return TRMI_FAIL(err, TRM_INVALID, "histogram %.80s: a tensor of %s cannot be shown", tag,
                         trm_dtype_name(values->dtype));
    }
    /* The buckets of the finite values. */
    pthread_once(&limits_once, make_limits);
    histogram h = {.buckets = trmi_alloc((size_t)limit_count * sizeof(double))};
    if (h.buckets == NULL) {
        return TRMI_NO_MEMORY(err, "for histogram %.80s", tag);
    }
    collect_values(&h, values);
    /* HistogramProto: 1 min, 2 max, 3 num, 4 sum, 5 sum_squares, 6 bucket_limit, 7 bucket */
    trmi_text event = begin_event(wall_seconds, step), summary = {0}, value = {0}, message = {0};
    trmi_proto_double(&message, 1, h.minimum);
    trmi_proto_double(&message, 2, h.maximum);
    trmi_proto_double(&message, 3, h.count);
    trmi_proto_double(&message, 4, h.sum);
    trmi_proto_double(&message, 5, h.sum_of_squares);
    put_buckets(&message, &h);
    /* Summary.Value: 1 tag, 5 histo; Summary: 1 value; Event: 5 summary */
    trmi_proto_string(&value, 1, tag);
    trmi_proto_message(&value, 5, &message);
    trmi_proto_message(&summary, 1, &value);
    trmi_proto_message(&event, 5, &summary);
    end_event(out, &event);
    trmi_free(h.buckets);
    return TRM_OK;
}

/* ---- the graph ------------------------------------------------------------------------- */

/* Writes the output shape of a node: attr {"_output_shapes": list { shape { dim { size } ... }
 * }}. */
static void put_shape(trmi_text *node, const trm_shape *shape) {
    trmi_text dims = {0}, list = {0}, value = {0}, entry = {0};
    for (int32_t d = 0; d < shape->rank && d < TRM_MAX_RANK; d++) {
        trmi_text dim = {0};
        trmi_proto_varint(&dim, 1, (uint64_t)shape->dim[d]);
        trmi_proto_message(&dims, 2, &dim);
    }
    trmi_proto_message(&list, 7, &dims);
    trmi_proto_message(&value, 1, &list);
    trmi_proto_string(&entry, 1, "_output_shapes");
    trmi_proto_message(&entry, 2, &value);
    trmi_proto_message(node, 5, &entry);
}

/* Contract in events.h. TensorBoard's graph page reads TensorFlow's GraphDef; the version says
 * which form of it. */
void trmi_event_put_graph(trmi_text *out, double wall_seconds, const trm_graph_event_node *nodes,
                          int64_t count) {
    trmi_text event = begin_event(wall_seconds, 0), graph = {0}, versions = {0};
    for (int64_t i = 0; i < count; i++) {
        /* NodeDef: 1 name, 2 op, 3 input, 4 device, 5 attr */
        trmi_text node = {0};
        trmi_proto_string(&node, 1, nodes[i].name);
        trmi_proto_string(&node, 2, nodes[i].op);
        for (int64_t k = 0; k < nodes[i].input_count; k++) {
            trmi_proto_string(&node, 3, nodes[i].inputs[k]);
        }
        if (nodes[i].device != NULL) {
            trmi_proto_string(&node, 4, nodes[i].device);
        }
        if (nodes[i].output_shape != NULL) {
            put_shape(&node, nodes[i].output_shape);
        }
        trmi_proto_message(&graph, 1, &node);
    }
    /* VersionDef: 1 producer */
    trmi_proto_varint(&versions, 1, 22);
    trmi_proto_message(&graph, 4, &versions);
    trmi_proto_message(&event, 4, &graph);
    end_event(out, &event);
}
