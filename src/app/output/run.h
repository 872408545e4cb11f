/* SPDX-License-Identifier: Apache-2.0 */
/* app/output/run.h: what the record of a run says (record.h), read while the run goes on.
 *
 *      FOLDER/run.jsonl, run-ROLE.jsonl --> app_run_read --> app_run --> report, top
 *
 * Rank 0 and the other ranks (run-rank-N.jsonl) report the same steps: curves, evaluations and
 * events are those of rank 0, of the others only warnings, the end, and where the time goes are
 * read.
 *
 * app_run_read continues after the last whole line of each file, so that top reads each line once.
 * A step that was computed again after a resume replaces the earlier one. */
#ifndef TRIREME_APP_RUN_H
#define TRIREME_APP_RUN_H

#include "trireme/base.h"

#include <jansson.h>

/* The values of a reported step; NaN = not recorded. */
typedef enum app_curve {
    APP_CURVE_STEP,    /* global step */
    APP_CURVE_SECONDS, /* since the run began */
    APP_CURVE_LOSS,
    APP_CURVE_LEARNING_RATE,
    APP_CURVE_RATE, /* images, samples or tokens a second */
    APP_CURVE_STEP_SECONDS,
    APP_CURVE_DATA_WAIT, /* seconds of a step */
    APP_CURVE_RANK_WAIT, /* seconds of a step */
    APP_CURVE_PEAK_BYTES,
    APP_CURVES
} app_curve;

/* How a process of the run ended. */
typedef enum app_run_state {
    APP_RUN_EMPTY,    /* nothing is recorded */
    APP_RUN_TRAINING, /* its newest line is fresh */
    APP_RUN_SILENT,   /* it neither ended nor wrote a line of late */
    APP_RUN_LEFT,     /* an elastic job has fewer ranks now: none of them has this number */
    APP_RUN_STOPPED,  /* by a signal */
    APP_RUN_FAILED,
    APP_RUN_DONE
} app_run_state;
const char *app_run_state_name(app_run_state state);

/* Where the time of a process goes: seconds over all steps since it was started. */
typedef struct app_run_time {
    double step;                   /* newest reported one */
    double steps, data, rank_wait; /* of steps, without waiting for data; of these for ranks */
} app_run_time;

/* One file: of rank 0 or the chief, or of another role. */
typedef struct app_run_file {
    char path[4096];
    char who[64]; /* "ps-0", "rank 1"; "" for the first file */
    int64_t offset, lines;
    int64_t damaged, first_damaged; /* lines that are no JSON object; number of the first one */
    bool cut;                       /* the last line is not whole yet */
    int32_t rank;                   /* of a rank other than 0: its number, else 0 */
    app_run_time time;
    double last_time;        /* of the newest line, in seconds since 1970 */
    double longest_gap;      /* seconds between two lines */
    json_t *options, *start; /* newest events; NULL = none */
    json_t *end;             /* event done or error after the newest start; NULL = none */
} app_run_file;

/* Files of a folder that are read (ranks and roles) and events that are kept, at most. */
enum { APP_RUN_FILES = 256, APP_RUN_EVENTS = 1000 };
/* Steps, ranks and seconds since 1970 of a record, at most: a larger number is damage. */
#define APP_RUN_COUNT_MOST 1e15

/* A run. */
typedef struct app_run {
    char path[4096];
    const char *name; /* last part of the path */
    app_run_file *files[APP_RUN_FILES];
    app_run_file *main; /* the one that has the curves; NULL = not there yet */
    int file_count;
    bool more_files; /* there are more than APP_RUN_FILES */
    double begin;    /* time of the first line, in seconds since 1970; 0 = none */
    double ranks;    /* of an elastic job, after the newest change; 0 = they have not changed */
    double (*points)[APP_CURVES];
    int64_t point_count, point_room;
    /* arrays of objects with "seconds" and "global_step"; events also with "who", "level",
     * "text" */
    json_t *evaluations, *checkpoints, *events;
    int64_t dropped_events; /* older ones than the newest APP_RUN_EVENTS */
} app_run;

/* Opens the record of a folder, or one file of JSON lines, and reads it.
 *   errors  INVALID if nothing is there, IO, NOMEM
 *   owns   *out: caller, app_run_close */
TRM_MUST_USE trm_status app_run_open(const char *path, app_run **out, trm_error *err);
void app_run_close(app_run *run);
/* Reads the lines that were added since the last call.
 *   errors  IO, NOMEM */
TRM_MUST_USE trm_status app_run_read(app_run *run, trm_error *err);
/* Returns the state of a file of the run (NULL: APP_RUN_EMPTY). */
app_run_state app_run_file_state(const app_run *run, const app_run_file *file);
/* Return the value of a member of the newest start or options event of the run; NULL or NAN without
 * it. */
const char *app_run_text(const app_run *run, const char *key);
double app_run_number(const app_run *run, const char *key);

/* Returns the report of runs as one object (run_report.c); NULL without memory. Caller:
 * json_decref. */
json_t *app_run_json(app_run *const *runs, int count);
/* Returns a copy of a report for a terminal: its texts and names of members have no characters that
 * control one. Caller: json_decref. */
json_t *app_run_plain(const json_t *report);

#endif
