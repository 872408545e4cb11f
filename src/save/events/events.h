/* SPDX-License-Identifier: Apache-2.0 */
/* save/events/events.h: the messages of event files, with the time given, and a reader of them.
 *   Event{wall_time 1, step 2, file_version 3 | graph_def 4 | summary 5 | session_log 7} */
#ifndef TRMI_SAVE_EVENTS_H
#define TRMI_SAVE_EVENTS_H

#include "trireme/save_events.h"

#include "base/memory.h"
#include "base/os.h"

/* trm_events_open on another platform (base/os.h), so that tests see failures. */
trm_status trmi_events_open_on(const trmi_os *os, const char *dir,
                               const trm_events_options *options, trm_events **out, trm_error *err);

/* Each appends one framed record. */
void trmi_event_put_version(trmi_text *out, double wall_seconds);
void trmi_event_put_scalars(trmi_text *out, double wall_seconds, int64_t step,
                            const trm_named_scalar *scalars, int64_t count);
void trmi_event_put_start(trmi_text *out, double wall_seconds, int64_t step);
trm_status trmi_event_put_histogram(trmi_text *out, double wall_seconds, int64_t step,
                                    const char *tag, const trm_tensor *values, trm_error *err);
void trmi_event_put_graph(trmi_text *out, double wall_seconds, const trm_graph_event_node *nodes,
                          int64_t count);

/* What an event says, as far as we know the fields. Text is borrowed from the record. */
typedef struct trmi_record_event {
    double wall_seconds;
    int64_t step;
    enum {
        TRMI_EVENT_OTHER,
        TRMI_EVENT_VERSION,
        TRMI_EVENT_SCALAR,
        TRMI_EVENT_HISTOGRAM,
        TRMI_EVENT_GRAPH,
        TRMI_EVENT_SESSION
    } kind;
    const char *tag; /* not terminated */
    size_t tag_bytes;
    double value;       /* of a scalar */
    int64_t node_count; /* of a graph */
} trmi_record_event;

/* Calls `visit` for each thing that the record says (a summary may hold several values).
 *   errors  TRM_CORRUPT naming record and offset */
typedef void (*trmi_event_visit)(void *context, const trmi_record_event *event);
trm_status trmi_event_decode(const uint8_t *data, size_t bytes, const char *path, int64_t number,
                             trmi_event_visit visit, void *context, trm_error *err);

#endif
