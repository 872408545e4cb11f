/* SPDX-License-Identifier: Apache-2.0 */
/* save/inspect/inspect.h: what the recognisers of `trireme inspect` share. Each kind of file is one
 * row in the table of inspect.c. */
#ifndef TRMI_SAVE_INSPECT_H
#define TRMI_SAVE_INSPECT_H

#include "trireme/io.h"

#include "base/memory.h"

/* Where a description goes: lines are passed on at once, a JSON object in one piece at the end. */
typedef struct trmi_inspect_report {
    const trm_probe *probe; /* the path and the mapped file */
    bool json;              /* one JSON object instead of lines */
    trm_line_sink sink;     /* receives lines or the object */
    void *context;          /* first argument of `sink` */
    trmi_text text;         /* the JSON object under construction */
} trmi_inspect_report;

/* Passes a line on (does nothing for JSON). */
void trmi_inspect_line(trmi_inspect_report *report, const char *format, ...) TRM_PRINTF(2, 3);
/* Build the JSON object (do nothing for text). trmi_inspect_begin starts it with kind and path; the
 * others append ,"key": and a value. */
void trmi_inspect_begin(trmi_inspect_report *report, const char *kind);
void trmi_inspect_key(trmi_inspect_report *report, const char *key);
void trmi_inspect_integer(trmi_inspect_report *report, const char *key, int64_t value);
void trmi_inspect_string(trmi_inspect_report *report, const char *key, const char *value);
void trmi_inspect_raw(trmi_inspect_report *report, const char *format, ...) TRM_PRINTF(2, 3);
/* Completes the object with "valid" and, after a failure, "error"; passes it on and frees it.
 * Returns `status`, or NOMEM. */
trm_status trmi_inspect_end(trmi_inspect_report *report, trm_status status, trm_error *err);

/* Appends "[64, 3, 7, 7]", for any rank. */
void trmi_put_dims(trmi_text *out, const int64_t *dims, int32_t rank);

/* Rows that are in other files than the table. */
extern const trm_recogniser trmi_inspect_checkpoint, trmi_inspect_checkpoint_dir,
    trmi_inspect_events, trmi_inspect_tfrecord, trmi_inspect_onnx;

#endif
