/* SPDX-License-Identifier: Apache-2.0 */
/* base/trace.h: timelines in Chrome's trace format, which Perfetto (ui.perfetto.dev) displays.
 *
 *   trmi_trace_put_*            the writer: lines of JSON from processes, threads and events
 *   trmi_trace_create .. add    a recorder: events of a running program, written at its end
 *
 * A process of the file is a rank; a thread is one of its tracks. Events of one track are nested or
 * disjoint; they must not overlap partially. */
#ifndef TRMI_BASE_TRACE_H
#define TRMI_BASE_TRACE_H

#include "base/memory.h"

/* ---- the writer ---- */

/* One event; texts are borrowed until the call returns. */
typedef struct trmi_trace_event {
    const char *category, *name;
    const char *phase; /* "forward", "backward"; NULL = none is shown */
    double begin, end; /* seconds */
    double bytes;      /* < 0: none are shown */
    int32_t track;
} trmi_trace_event;

/* Append to a list the name of a process, of a track, and an event, in any order. Lists of several
 * ranks are joined by ",\n". */
void trmi_trace_put_process(trmi_text *text, int32_t process, const char *name);
void trmi_trace_put_track(trmi_text *text, int32_t process, int32_t track, const char *name);
void trmi_trace_put_event(trmi_text *text, int32_t process, const trmi_trace_event *event);
/* Writes a file with a list. A list for which memory was missing makes the file fail, too. */
void trmi_trace_put_file(trmi_text *file, const trmi_text *list);

/* ---- the recorder ---- */

typedef struct trmi_trace trmi_trace;

/* Creates a recorder for `most` events; later events are counted and dropped.
 *   owns    the caller: trmi_trace_destroy
 *   errors  NOMEM */
trm_status trmi_trace_create(int64_t most, trmi_trace **out, trm_error *err);
void trmi_trace_destroy(trmi_trace *trace);
/* Returns the track with this name; made by its first mention, track 0 first. At most 64 tracks;
 * further names share the last one.   threads  any */
int32_t trmi_trace_track(trmi_trace *trace, const char *name);
/* Records an event; times are those of trmi_os_now(). The category must outlive the trace; the name
 * is copied, up to 47 characters. A NULL trace records nothing.   threads  any */
void trmi_trace_add(trmi_trace *trace, const trmi_trace_event *event);
/* Records an event of track 0 that ends now and moved no bytes. */
void trmi_trace_add_since(trmi_trace *trace, const char *category, const char *name, double begin);
/* Returns the number of dropped events. */
int64_t trmi_trace_dropped(const trmi_trace *trace);
/* Writes all tracks and events as those of `process`, `shift` seconds later. */
void trmi_trace_put(const trmi_trace *trace, int32_t process, double shift, trmi_text *text);

#endif
