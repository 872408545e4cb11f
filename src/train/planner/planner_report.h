/* SPDX-License-Identifier: Apache-2.0 */
/* train/planner/planner_report.h: the planner's report, in three files:
 *
 *      planner --planner_gather.c--> report: timeline, rows of operators, traffic --> planner_text.c  for people
 *                                                                                 --> planner_json.c  one JSON object
 *
 * planner_report.c conducts.
 */
#ifndef TRMI_TRAIN_PLANNER_REPORT_H
#define TRMI_TRAIN_PLANNER_REPORT_H

#include "train/planner/planner.h"

/* A line of the table of operators: equal operators with equal cuts. */
typedef struct trmi_report_row {
    int32_t node, count;             /* the first of them */
    double forward, backward, moves; /* of one */
} trmi_report_row;

/* Messages of one kind over one set of axes. */
typedef struct trmi_report_traffic {
    trmi_move move;
    uint32_t axes;
    bool gradient;
    int32_t count;
    double bytes, seconds, exposed;
} trmi_report_traffic;

enum { TRMI_REPORT_TRAFFIC = 96 };
typedef struct trmi_report {
    const trm_planner *p;
    const trmi_drive_mesh *m;
    trmi_timeline timeline;
    trmi_measure measure;
    double *moves;     /* [nodes] blocking seconds of messages */
    double statistics; /* ... of joined norms */
    int32_t norms;
    trmi_report_row *rows;
    int32_t rows_count;
    trmi_report_traffic traffic[TRMI_REPORT_TRAFFIC];
    int32_t traffic_count;
    trmi_text text;
} trmi_report;

/* Plays the step of the planner's best plan, and adds up what happens in it.   owns: trmi_report_free
 */
trm_status trmi_report_gather(trmi_report *report, const trm_planner *planner, trm_error *err);
void trmi_report_free(trmi_report *report);
/* To report->text. */
void trmi_report_tell(trmi_report *report);
void trmi_report_tell_json(trmi_report *report);

/* ---- what both tell (planner_gather.c) ---- */

/* The i-th thing that the proof takes for granted; NULL: there are no more. */
const char *trmi_report_assumption(const trmi_report *report, int32_t i);
/* "2 of a, 4 of b" -> "a(2)+b(4)". Returns text. */
const char *trmi_report_axes(const trmi_mesh *mesh, uint32_t axes, char text[48]);
/* Letters of the next best strategy of a node; NULL: there is none. */
const char *trmi_report_runner(const trmi_report *report, int32_t node);
/* Arithmetic of the model in a step, forward and backward: nothing that is done twice counts. What
 * a rank's cores can do a second. The part of that which the step reaches. */
double trmi_report_work(const trmi_report *report);
double trmi_report_peak(const trmi_report *report);
double trmi_report_utilisation(const trmi_report *report);
bool trmi_report_has_norms(const trmi_report *report);
/* The day in the first line of measured links; "": given or guessed. */
const char *trmi_report_links_day(const trmi_report *report, char text[12]);
/* Why an operator runs whole on every rank; NULL: it need not. What the step would be shorter by,
 * could it be cut among all ranks: its work, and what it waits for. */
const char *trmi_report_uncut(const trmi_report *report, int32_t node);
double trmi_report_price_of_uncut(const trmi_report *report, int32_t node);

#endif
