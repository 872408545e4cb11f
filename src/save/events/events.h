/* SPDX-License-Identifier: Apache-2.0 */
/* save/events/events.h: the messages of TensorBoard's event files, with the time as an argument,
 * and a reader for them. The files are TFRecord files of
 *
 *   Event{wall_time 1, step 2, file_version 3 | graph_def 4 | summary 5 | session_log 7}
 */
#ifndef TRMI_SAVE_EVENTS_H
#define TRMI_SAVE_EVENTS_H

#include "trireme/io.h"

#include "base/memory.h"
#include "base/os.h"

/* Opens as trm_events_open does, on another platform (base/os.h), with which tests inject
 * failures. */
trm_status trmi_events_open_on(const trmi_os *os, const char *dir,
                               const trm_events_options *options, trm_events **out, trm_error *err);

/* The functions below append one framed record to `out`. A failure for memory is marked in
 * out->failed. wall_seconds: Unix time. */

/* Appends the version of the events, which must be the first record of a file. */
void trmi_event_put_version(trmi_text *out, double wall_seconds);
/* Appends one value for each name, all of one step. */
void trmi_event_put_scalars(trmi_text *out, double wall_seconds, int64_t step,
                            const trm_named_scalar *scalars, int64_t count);
/* Appends the start of a session. Readers drop what they have from `step` on (after a resume). */
void trmi_event_put_start(trmi_text *out, double wall_seconds, int64_t step);
/* Appends the distribution of a tensor's finite values.
 *   errors  INVALID (an element type that has no numbers), NOMEM */
trm_status trmi_event_put_histogram(trmi_text *out, double wall_seconds, int64_t step,
                                    const char *tag, const trm_tensor *values, trm_error *err);
/* Appends a graph, for TensorBoard's Graphs tab. */
void trmi_event_put_graph(trmi_text *out, double wall_seconds, const trm_graph_event_node *nodes,
                          int64_t count);

/* The content of an event, as far as this reader interprets it. Texts are borrowed from the
 * record. */
typedef struct trmi_record_event {
    double wall_seconds; /* Unix time */
    int64_t step;        /* of the training */
    enum {
        TRMI_EVENT_OTHER,
        TRMI_EVENT_VERSION,
        TRMI_EVENT_SCALAR,
        TRMI_EVENT_HISTOGRAM,
        TRMI_EVENT_GRAPH,
        TRMI_EVENT_SESSION
    } kind;
    const char *tag;    /* name of the curve; not terminated */
    size_t tag_bytes;   /* length of `tag` */
    double value;       /* of a scalar */
    int64_t node_count; /* of a graph */
} trmi_record_event;

/* Calls `visit` for each value of the record; a summary may have several. `path` and `number` (of
 * the record) are for messages.
 *   errors  CORRUPT */
typedef void (*trmi_event_visit)(void *context, const trmi_record_event *event);
trm_status trmi_event_decode(const uint8_t *data, size_t bytes, const char *path, int64_t number,
                             trmi_event_visit visit, void *context, trm_error *err);

#endif
