/* SPDX-License-Identifier: Apache-2.0 */
/* Timelines (base/trace.h): the writer, which formats events as JSON, and the recorder, which keeps
 * the events of a running program until its end. A written timeline is a list, then a file:
 *
 *     put_process   process 0 is called "rank 0"
 *     put_track     its track 0 is called "forward"
 *     put_event     an interval of that track, with begin and length
 *     put_file      {"displayTimeUnit":"ms","traceEvents":[ the list ]}
 *
 * The recorder allocates at creation only, so that recording does not disturb what it measures:
 * when it is full, events are counted and dropped, and names are cut to NAME_BYTES. One lock
 * protects it, except in the functions that read it (trmi_trace_put, trmi_trace_dropped), which are
 * called when nothing records any more. */
#include "base/trace.h"

#include "base/format/report.h"
#include "base/os.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

/* bytes of a kept name with its end, and tracks of a process, at most */
enum { NAME_BYTES = 48, TRACKS_MAX = 64 };

/* ---- the writer ---- */

/* Begins an object of the list, after a comma if there is one before it. */
static void begin_object(trmi_text *text, trmi_report *object) {
    if (text->length > 0) {
        trmi_text_append(text, ",\n", 2);
    }
    trmi_report_begin_json(object, text);
}

/* Returns the number of a track's thread. Numbers of threads are unique among all processes, and
 * none is a process's number: Perfetto takes threads of two processes with one number for one
 * thread, and drops what overlaps on it. */
static int64_t thread_number(int32_t process, int32_t track) {
    enum { FIRST_THREAD = 1000000 }; /* more than the number of any process (rank) */
    return FIRST_THREAD + (int64_t)process * TRACKS_MAX + track;
}

/* Appends the name of a process, or of its track if `track` is not negative. */
static void put_name(trmi_text *text, const char *kind, int32_t process, int32_t track,
                     const char *name) {
    trmi_report r;
    begin_object(text, &r);
    trmi_report_put(&r, trmi_string("name", kind), trmi_string("ph", "M"),
                    trmi_int("pid", process));
    if (track >= 0) {
        trmi_report_put(&r, trmi_int("tid", thread_number(process, track)));
    }
    trmi_report_open_object(&r, "args");
    trmi_report_put(&r, trmi_string("name", name));
    (void)trmi_report_end(&r);
}

void trmi_trace_put_process(trmi_text *text, int32_t process, const char *name) {
    put_name(text, "process_name", process, -1, name);
}

void trmi_trace_put_track(trmi_text *text, int32_t process, int32_t track, const char *name) {
    put_name(text, "thread_name", process, track, name);
}

/* Rounds to nanoseconds. Begin and end are rounded, not the length: trace viewers drop an event
 * that begins before the end of the previous one. */
static double round_to_nanoseconds(double seconds) { return round(seconds * 1e9); }

/* Contract in trace.h. Chrome's trace event format, phase X: complete events, times in
 * microseconds. */
void trmi_trace_put_event(trmi_text *text, int32_t process, const trmi_trace_event *event) {
    double begin = round_to_nanoseconds(event->begin), end = round_to_nanoseconds(event->end);
    char starts[32], lasts[32];
    snprintf(starts, sizeof starts, "%.3f", begin / 1e3);
    snprintf(lasts, sizeof lasts, "%.3f", (end - begin) / 1e3);
    trmi_report r;
    begin_object(text, &r);
    trmi_report_put(&r, trmi_string("ph", "X"), trmi_int("pid", process),
                    trmi_int("tid", thread_number(process, event->track)),
                    trmi_json_value("ts", starts), trmi_json_value("dur", lasts),
                    trmi_string("cat", event->category), trmi_string("name", event->name));
    trmi_report_open_object(&r, "args");
    if (event->bytes >= 0) {
        trmi_report_put(&r, trmi_whole("bytes", event->bytes));
    }
    if (event->phase != NULL) {
        trmi_report_put(&r, trmi_string("phase", event->phase));
    }
    (void)trmi_report_end(&r);
}

void trmi_trace_put_file(trmi_text *file, const trmi_text *list) {
    trmi_report r;
    trmi_report_begin_json(&r, file);
    trmi_report_put(&r, trmi_string("displayTimeUnit", "ms"));
    trmi_report_open_array(&r, "traceEvents");
    if (list->length > 0) {
        trmi_report_break(&r, 0);
        trmi_report_put(&r, trmi_json_value(NULL, list->data));
    }
    (void)trmi_report_end(&r);
    trmi_text_append(file, "\n", 1);
    file->failed = file->failed || list->failed;
}

/* ---- the recorder ---- */

/* A recorded event with a copy of its name. */
typedef struct record {
    trmi_trace_event event; /* its name is in `name` */
    char name[NAME_BYTES];
} record;

/* A recorder: records of fixed size, and the names of tracks. */
struct trmi_trace {
    pthread_mutex_t lock;
    record *records;
    int64_t count, capacity, dropped; /* events kept, at most kept, and not kept */
    char tracks[TRACKS_MAX][NAME_BYTES];
    int32_t track_count;
};

trm_status trmi_trace_create(int64_t capacity, trmi_trace **out, trm_error *err) {
    trmi_trace *trace = trmi_alloc(sizeof *trace);
    record *records = trmi_alloc((size_t)capacity * sizeof *records);
    if (trace == NULL || records == NULL) {
        trmi_free(trace);
        trmi_free(records);
        return TRMI_NO_MEMORY(err, "for a timeline of %lld events", (long long)capacity);
    }
    pthread_mutex_init(&trace->lock, NULL);
    trace->records = records;
    trace->capacity = capacity;
    *out = trace;
    return TRM_OK;
}

void trmi_trace_destroy(trmi_trace *trace) {
    if (trace != NULL) {
        pthread_mutex_destroy(&trace->lock);
        trmi_free(trace->records);
        trmi_free(trace);
    }
}

/* Contract in trace.h. Tracks are found by name, so that several parts of the library share one. */
int32_t trmi_trace_track(trmi_trace *trace, const char *name) {
    int32_t track = 0;
    pthread_mutex_lock(&trace->lock);
    while (track < trace->track_count && strncmp(trace->tracks[track], name, NAME_BYTES - 1) != 0) {
        track++;
    }
    /* There is no room for another track: use the last one. */
    if (track == TRACKS_MAX) {
        track--;
    } else if (track == trace->track_count) {
        snprintf(trace->tracks[track], NAME_BYTES, "%s", name);
        trace->track_count++;
    }
    pthread_mutex_unlock(&trace->lock);
    return track;
}

/* Contract in trace.h. When it is full, events are counted and dropped; `trace` NULL: nothing is
 * recorded. */
void trmi_trace_add(trmi_trace *trace, const trmi_trace_event *event) {
    if (trace == NULL) {
        return;
    }
    pthread_mutex_lock(&trace->lock);
    if (trace->count == trace->capacity) {
        trace->dropped++;
    } else {
        record *r = &trace->records[trace->count++];
        r->event = *event;
        snprintf(r->name, NAME_BYTES, "%s", event->name);
    }
    pthread_mutex_unlock(&trace->lock);
}

void trmi_trace_add_since(trmi_trace *trace, const char *category, const char *name, double begin) {
    trmi_trace_add(
        trace,
        &(trmi_trace_event){
            .category = category, .name = name, .begin = begin, .end = trmi_os_now(), .bytes = -1});
}

int64_t trmi_trace_dropped(const trmi_trace *trace) { return trace->dropped; }

/* Contract in trace.h. `shift` moves the times to the clock of rank 0. */
void trmi_trace_put(const trmi_trace *trace, int32_t process, double shift, trmi_text *text) {
    for (int32_t i = 0; i < trace->track_count; i++) {
        trmi_trace_put_track(text, process, i, trace->tracks[i]);
    }
    for (int64_t i = 0; i < trace->count; i++) {
        trmi_trace_event event = trace->records[i].event;
        event.name = trace->records[i].name;
        event.begin += shift;
        event.end += shift;
        trmi_trace_put_event(text, process, &event);
    }
}
