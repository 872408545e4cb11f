/* SPDX-License-Identifier: Apache-2.0 */
/* Event files (trireme/io.h), which TensorBoard reads: one file for each run, whose records are
 * appended one by one and are complete after each call.
 *
 *         trm_events_*  -->  events_encode.c: a record in memory  -->  append.c: one write
 *
 * A resumed run begins a new file in the same folder. Its first records say from which step on
 * readers are to drop what older files have. */
#include "save/events/events.h"

#include "base/arguments.h"
#include "base/error.h"
#include "save/append.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* An open event file. */
struct trm_events {
    trmi_append file;
    trmi_text record; /* the record under construction; reused */
};

/* Appends the record under construction to the file. */
static trm_status write_record(trm_events *events, trm_error *err) {
    /* After an error too, the next record starts empty. */
    trm_status status =
        events->record.failed
            ? TRMI_NO_MEMORY(err, "for an event of %s", trmi_path_tail(events->file.path))
            : trmi_append_record(&events->file, events->record.data, events->record.length, err);
    events->record.length = 0;
    events->record.failed = false;
    return status;
}

/* Creates the file. Its name is TensorFlow's form; the serial number makes it unique in a
 * process. */
static trm_status open_file(trm_events *events, const char *dir, const trmi_os *os,
                            trm_error *err) {
    static atomic_uint serial;
    char host[65] = "", name[160], path[TRMI_PATH_BYTES];
    if (gethostname(host, sizeof host - 1) != 0 || strchr(host, '/') != NULL || host[0] == '\0') {
        snprintf(host, sizeof host, "localhost");
    }
    snprintf(name, sizeof name, "events.out.tfevents.%010lld.%s.%ld.%u", (long long)time(NULL),
             host, (long)getpid(), atomic_fetch_add(&serial, 1u));
    TRMI_TRY(trmi_os_make_dirs(os, dir, err));
    TRMI_TRY(trmi_path_join(path, dir, name, err));
    return trmi_append_open(&events->file, os, path, true, 0, err);
}

trm_status trm_events_open(const char *folder, const trm_events_options *options, trm_events **out,
                           trm_error *err) {
    TRMI_NEED(err, folder, out);
    return trmi_events_open_on(NULL, folder, options, out, err);
}

/* Contract in events.h. Files begin with the version record, without which readers ignore them. */
trm_status trmi_events_open_on(const trmi_os *os, const char *dir,
                               const trm_events_options *options, trm_events **out,
                               trm_error *err) {
    trm_events_options none = {0};
    options = options != NULL ? options : &none;
    trm_events *events;
    TRMI_TRY(TRMI_NEW(err, events, 1, "for an event file"));
    trm_status status = open_file(events, dir, os, err);
    if (status != TRM_OK) {
        trmi_free(events);
        return status;
    }
    /* the first record is the version */
    trmi_event_put_version(&events->record, trmi_os_wall());
    status = write_record(events, err);
    if (status == TRM_OK && options->resumed) {
        /* Readers drop what they have from this step on, so it is the first step that is to
         * come. */
        trmi_event_put_start(&events->record, trmi_os_wall(), options->resume_step + 1);
        status = write_record(events, err);
    }
    if (status != TRM_OK) {
        (void)!trm_events_close(events, NULL);
        return status;
    }
    *out = events;
    return TRM_OK;
}

const char *trm_events_path(const trm_events *events) {
    TRMI_NEED_OR(NULL, NULL, events);
    return events->file.path;
}

trm_status trm_events_scalars(trm_events *events, int64_t step, const trm_named_scalar *scalars,
                              int64_t count, trm_error *err) {
    TRMI_NEED(err, events);
    if (count > 0) {
        TRMI_NEED(err, scalars);
    }
    trmi_event_put_scalars(&events->record, trmi_os_wall(), step, scalars, count);
    return write_record(events, err);
}

trm_status trm_events_histogram(trm_events *events, int64_t step, const char *tag,
                                const trm_tensor *values, trm_error *err) {
    TRMI_NEED(err, events, tag, values);
    TRMI_TRY(trmi_event_put_histogram(&events->record, trmi_os_wall(), step, tag, values, err));
    return write_record(events, err);
}

trm_status trm_events_graph(trm_events *events, const trm_graph_event_node *nodes, int64_t count,
                            trm_error *err) {
    TRMI_NEED(err, events);
    if (count > 0) {
        TRMI_NEED(err, nodes);
    }
    trmi_event_put_graph(&events->record, trmi_os_wall(), nodes, count);
    return write_record(events, err);
}

trm_status trm_events_flush(trm_events *events, trm_error *err) {
    TRMI_NEED(err, events);
    return trmi_append_flush(&events->file, err);
}

trm_status trm_events_close(trm_events *events, trm_error *err) {
    if (events == NULL) {
        return TRM_OK;
    }
    trm_status status = trmi_append_close(&events->file, err);
    trmi_text_free(&events->record);
    trmi_free(events);
    return status;
}
