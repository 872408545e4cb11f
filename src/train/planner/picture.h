/* SPDX-License-Identifier: Apache-2.0 */
/* train/planner/picture.h: drawings of plans as SVG: what the pictures of operators
 * (planner_picture.c), of stages (stage_picture.c) and of clusters (hardware_picture.c) share. */
#ifndef TRMI_TRAIN_PICTURE_H
#define TRMI_TRAIN_PICTURE_H

#include "base/memory.h"
#include "plan/pipeline/stage_schedule.h"

/* Width of a picture, and its margin, in pixels. */
enum { TRMI_PICTURE_WIDTH = 1000, TRMI_PICTURE_MARGIN = 24 };

/* Forms of a text: attributes of its element. */
#define TRMI_FORM_TITLE "font-size=\"20\" font-weight=\"600\" fill=\"#1b2027\""
#define TRMI_FORM_HEAD "font-size=\"14\" font-weight=\"600\" fill=\"#1b2027\""
#define TRMI_FORM_LINE "font-size=\"13\" fill=\"#5a6472\""
#define TRMI_FORM_NAME "font-size=\"11.5\" fill=\"#1b2027\""
#define TRMI_FORM_SMALL "font-size=\"11\" fill=\"#5a6472\""
#define TRMI_FORM_MIDDLE TRMI_FORM_SMALL " text-anchor=\"middle\""

/* Appends the begin of a picture of that height; its end. */
void trmi_picture_begin(trmi_text *text, double height);
void trmi_picture_end(trmi_text *text);
/* Appends a line of text. */
void trmi_picture_text(trmi_text *text, double x, double y, const char *form, const char *line);
/* Appends a rectangle {left, top, width, height} with a title, which browsers show at the
 * pointer. */
void trmi_picture_box(trmi_text *text, const double box[4], const char *fill, const char *title);
/* Draws a scale of seconds over {left, top, width, height}: rules with numbers above them. Returns
 * the pixels of a second. */
double trmi_picture_scale(trmi_text *text, const double box[4], double longest);

/* A plan with stages, to be drawn: its ranks, one step, and its memory. */
typedef struct trmi_stage_picture {
    const char *title, *lines[3]; /* lines: NULL where there are fewer */
    /* cells of the mesh: a row for each stage, and in it `copies` cells of so many ranks */
    int32_t stages, copies;
    int64_t ranks;
    /* the schedule as it was played; NULL: it is not drawn. Arrays: seconds at which actions begin
     * and end [stages][count]; seconds of gradients and update after them, or after `met`, the
     * second at which the ranks have met [stages]; begin and end of meetings of all ranks */
    const trmi_pipeline *pipeline;
    const double *starts, *ends, *after;
    double met;
    double (*meeting)[2];
    int32_t meetings;
    double step; /* seconds */
    /* memory [bars][kinds] in bytes: a bar for each stage, or one for all; limit 0: none */
    int32_t bars, kinds;
    const char *const *kind_names;
    const double *memory;
    double limit;
} trmi_stage_picture;

/* Draws the picture. */
void trmi_stage_picture_draw(trmi_text *text, const trmi_stage_picture *picture);

#endif
