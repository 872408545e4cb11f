/* SPDX-License-Identifier: Apache-2.0 */
/* save/inspect/inspect.h: what the recognisers of `trireme inspect` share. Each kind of file is one
 * row in the table of inspect.c. */
#ifndef TRMI_SAVE_INSPECT_H
#define TRMI_SAVE_INSPECT_H

#include "trireme/io.h"

#include "base/format/report.h"

/* A description under construction. It is passed on at its end: line by line, or one JSON object.
 * Names that come from files are made printable before they reach the terminal. */
typedef struct trmi_inspect_report {
    const trm_probe *probe; /* the path and the mapped file */
    trm_line_sink sink;     /* receives lines or the object */
    void *context;          /* first argument of `sink` */
    trmi_report report;     /* values, and lines about them */
} trmi_inspect_report;

/* Begins a description, with its kind and path. */
void trmi_inspect_begin(trmi_inspect_report *report, const char *kind, const trm_probe *probe,
                        bool json, trm_line_sink sink, void *context);
/* Completes it with "valid" and, after a failure, "error"; passes it on and frees it. Returns
 * `status`, or NOMEM. */
trm_status trmi_inspect_end(trmi_inspect_report *report, trm_status status, trm_error *err);

/* Rows that are in other files than the table. */
extern const trm_recogniser trmi_inspect_checkpoint, trmi_inspect_checkpoint_dir,
    trmi_inspect_events, trmi_inspect_tfrecord, trmi_inspect_onnx;

#endif
