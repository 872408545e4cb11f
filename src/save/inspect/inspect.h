/* SPDX-License-Identifier: Apache-2.0 */
/* save/inspect/inspect.h: what the recognisers share. One row each in the table of inspect.c. */
#ifndef TRMI_SAVE_INSPECT_H
#define TRMI_SAVE_INSPECT_H

#include "trireme/save_files.h"

#include "base/memory.h"

/* Where a description goes: lines at once, JSON in one piece at the end. */
typedef struct trmi_inspect_report {
    const trm_probe *probe;
    bool json;
    trm_line_sink sink;
    void *context;
    trmi_text text; /* the line or object under construction */
} trmi_inspect_report;

/* A line for people (nothing in JSON mode). */
void trmi_report_line(trmi_inspect_report *report, const char *format, ...) TRM_PRINTF(2, 3);
/* Members of the JSON object (nothing in text mode). `key` as ,"key": and then a value. */
void trmi_report_begin(trmi_inspect_report *report, const char *kind);
void trmi_report_key(trmi_inspect_report *report, const char *key);
void trmi_report_integer(trmi_inspect_report *report, const char *key, int64_t value);
void trmi_report_string(trmi_inspect_report *report, const char *key, const char *value);
void trmi_report_raw(trmi_inspect_report *report, const char *format, ...) TRM_PRINTF(2, 3);
/* Writes the object, with "valid" and, if not, "error". Frees the text. Returns `status`. */
trm_status trmi_report_end(trmi_inspect_report *report, trm_status status, trm_error *err);

/* "[64, 3, 7, 7]" of any rank, appended. */
void trmi_put_dims(trmi_text *out, const int64_t *dims, int32_t rank);

extern const trm_recogniser trmi_inspect_checkpoint, trmi_inspect_checkpoint_dir,
    trmi_inspect_events, trmi_inspect_tfrecord, trmi_inspect_onnx;

#endif
