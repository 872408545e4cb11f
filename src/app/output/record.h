/* SPDX-License-Identifier: Apache-2.0 */
/* app/output/record.h: the record of a run: FOLDER/run.jsonl, the events of its training as JSON
 * lines.
 *
 *      train --output FOLDER: report (values.h) --> a line of stdout (--json)
 *                                               --> a line of the record, with the time in front
 *      report, top (run.h) <-- FOLDER/run*.jsonl
 *
 * Rank 0 of a job writes run.jsonl, each other rank run-rank-N.jsonl; of a job with parameter
 * servers each role writes a file of its own (run-ps-0.jsonl). Lines are only ever appended: a
 * resumed run continues the file, and its event "start" has the step from which it continues. A
 * line is written by one call, so that a reader sees whole lines, except the last one of a process
 * that was killed. */
#ifndef TRIREME_APP_RECORD_H
#define TRIREME_APP_RECORD_H

#include "trireme/base.h"

#include <stdio.h>

/* Creates the folder and opens the record for appending. A second call closes the first record.
 *   param  role, number: as in trm_record_open
 *   errors  those of trm_record_open */
TRM_MUST_USE trm_status app_record_open(const char *folder, const char *role, int32_t number,
                                        trm_error *err);
void app_record_close(void);
bool app_record_is_open(void);
/* Returns whether a record is open, and is that of this task of the process's role. */
bool app_record_is_of(int32_t number);
/* Appends a JSON object, which is not empty. Does nothing without a record. Returns false the first
 * time that a line cannot be written; the run goes on without it.
 *   threads  any */
bool app_record_line(const char *json, size_t bytes);
/* Appends the event "log": a line of the log, or a warning.
 *   threads  any */
void app_record_log(const char *level, const char *room, const char *text);

#endif
