/* SPDX-License-Identifier: Apache-2.0 */
/* train/planner/planner_report.h: the report of a plan.
 *
 *        planner --planner_gather.c--> trmi_figures: timeline, rows, traffic
 *                --planner_values.c--> values of the report (base/format/report.h): JSON
 *                --planner_text.c----> lines about them: text
 *
 * planner_report.c calls them. The report simulates one training step of the best plan
 * (trmi_space_timeline) and adds up its events. */
#ifndef TRMI_TRAIN_PLANNER_REPORT_H
#define TRMI_TRAIN_PLANNER_REPORT_H

#include "train/planner/planner.h"

/* One line of the table of operators: operators of equal shape and cut. */
typedef struct trmi_figures_row {
    int32_t node, count;             /* index of the first one; how many there are */
    double forward, backward, moves; /* seconds of one of them */
} trmi_figures_row;

/* Messages of one kind over one set of mesh axes. */
typedef struct trmi_figures_traffic {
    trmi_move move;
    uint32_t axes;         /* of the groups, as bits */
    bool gradient;         /* messages of gradients, which may overlap with backward */
    bool ahead;            /* messages that begin ahead and travel beside operators */
    int32_t count;         /* messages of a step */
    double bytes, seconds; /* of all of them */
    double exposed;        /* seconds that no computation hides */
} trmi_figures_traffic;

/* Lines of the table of messages at most: kinds times sets of mesh axes. */
enum { TRMI_FIGURES_TRAFFIC = 96 };
/* The gathered figures, and the report under construction. */
typedef struct trmi_figures {
    const trm_planner *p;
    const trmi_auto_mesh *m; /* the best mesh: its space and what was found */
    trmi_timeline timeline;  /* events of one simulated step */
    trmi_measure measure;    /* sums over the events */
    double *moves;           /* [nodes] seconds in which messages block the operator */
    double statistics;       /* the part of it for batch norm over all ranks */
    int32_t norms;           /* messages of batch norms */
    trmi_figures_row *rows;  /* a row for each group of equal operators */
    int32_t rows_count;
    trmi_figures_traffic traffic[TRMI_FIGURES_TRAFFIC];
    int32_t traffic_count;
    trmi_report report; /* values and lines so far */
} trmi_figures;

/* Simulates a step of the planner's best plan and adds up its events.
 *   owns  the caller, trmi_figures_free, also after an error */
trm_status trmi_figures_gather(trmi_figures *figures, const trm_planner *planner, trm_error *err);
void trmi_figures_free(trmi_figures *figures);
/* Put the values of the report, and say its lines. */
void trmi_figures_put(trmi_figures *figures);
void trmi_figures_say(trmi_figures *figures);

/* planner_pipeline_report.c: put the stages of the plan and the other plans with stages, and say
 * lines about them; nothing if stages were not searched. */
void trmi_figures_put_stages(trmi_figures *figures);
void trmi_figures_say_stages(trmi_figures *figures);
/* Returns why the bound is below the step of the planner's plan with stages; "": it is not. */
const char *trmi_pipe_gap_reason(const trm_planner *planner);
/* Writes a shape in words, "2 stages x mesh 2, 4 micro-batches, 1f1b"; returns text. */
const char *trmi_pipe_words(const trmi_mesh *mesh, const trmi_pipe_shape *shape, char *text,
                            size_t size);

/* ---- functions of values and lines (planner_gather.c) ---------------------------------------- */

/* Returns the i-th assumption of the lower bound; NULL: there are no more. */
const char *trmi_figures_assumption(const trmi_figures *figures, int32_t i);
/* Returns why the lower bound is below the step of the plan; "": it is not, or there is no
 * bound. */
const char *trmi_figures_gap_reason(const trmi_figures *figures);
/* Writes a set of mesh axes with their sizes to `text`, "a(2)+b(4)", and returns it. */
const char *trmi_figures_axes(const trmi_mesh *mesh, uint32_t axes, char text[48]);
/* Returns the letters of a node's next best strategy; NULL: there is none. */
const char *trmi_figures_runner(const trmi_figures *figures, int32_t node);
/* trmi_figures_work: FLOP of the model in a step, forward and backward, without recomputation.
 * trmi_figures_peak: FLOP/s of one rank's cores. trmi_figures_utilisation: the share of the peak
 * that the step reaches. */
double trmi_figures_work(const trmi_figures *figures);
double trmi_figures_peak(const trmi_figures *figures);
double trmi_figures_utilisation(const trmi_figures *figures);
bool trmi_figures_has_norms(const trmi_figures *figures);
/* Writes the day on which the links were measured to `text`; "": given or guessed. */
const char *trmi_figures_links_day(const trmi_figures *figures, char text[12]);
/* trmi_figures_uncut: returns why an operator cannot be cut and runs whole on every rank; NULL:
 * it can be cut. trmi_figures_price_of_uncut: the seconds that cutting it among all ranks would
 * save, its messages included. */
const char *trmi_figures_uncut(const trmi_figures *figures, int32_t node);
double trmi_figures_price_of_uncut(const trmi_figures *figures, int32_t node);

#endif
