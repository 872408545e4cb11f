/* SPDX-License-Identifier: Apache-2.0 */
/* Draws a plan with stages (contract in picture.h):
 *
 *      title, figures
 *      stage 0   [ranks 0-3] [ranks 4-7]        the mesh: a cell for each copy of a stage
 *      stage 1   [ranks 8-11] [ranks 12-15]
 *      stage 0   FFFF  BBBB MU                  one step: forward, backward, meeting, update
 *      stage 1     FBFBFBFB MU                  grey: waiting
 *      stage 0   [parameters][gradients][...]   memory of a rank
 *
 * Of long schedules, of more than DRAWN_MOST actions, the beginning is drawn. */
#include "train/planner/picture.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Sizes in units of the picture, and how much of a plan is drawn. */
enum {
    NAMES = 110,       /* x of what stands behind the names of rows */
    CELL = 26,         /* height of a row of the mesh */
    ROW = 24,          /* height of a row of the step, and of the memory */
    ROWS_MOST = 32,    /* stages; a page with thousands of rows could not be read */
    COPIES_MOST = 8,   /* copies of a stage */
    DRAWN_MOST = 12000 /* actions of all stages */
};
static const double letter = 6.6; /* width of a letter of TRMI_FORM_NAME, about */

/* Colours of kinds, in order: of actions (forward, backward, update) and of kinds of memory. */
static const char *const colours[] = {"#2f6fc4", "#d7642a", "#2e8b57", "#8650b8",
                                      "#c13a5f", "#a67c00", "#16919e", "#6b7480"};
enum { COLOURS = sizeof colours / sizeof colours[0] };
static const char *const idle = "#e3e7ec";

/* Returns the width of what stands behind the names of rows. */
static double width_of_rows(void) { return TRMI_PICTURE_WIDTH - TRMI_PICTURE_MARGIN - NAMES; }

/* Returns how many of `count` stages are drawn. */
static int32_t count_rows(int32_t count) { return count < ROWS_MOST ? count : ROWS_MOST; }

/* Returns how many seconds of the step are drawn. */
static double find_horizon(const trmi_stage_picture *p) {
    const int32_t count = p->pipeline->count, most = DRAWN_MOST / p->stages;
    double horizon = p->step;
    for (int32_t s = 0; s < p->stages && count > most; s++) {
        horizon = fmin(horizon, p->ends[(int64_t)s * count + most - 1]);
    }
    return horizon;
}

/* Draws a legend at `y`: a box in the colour of each kind, in the order of `colours`, and its name
 * beside it. */
static void draw_legend(trmi_text *t, double y, const char *const *names, int32_t count) {
    double x = NAMES;
    for (int32_t i = 0; i < count; i++) {
        trmi_picture_box(t, (double[4]){x, y, 12, 12}, colours[i % COLOURS], names[i]);
        trmi_picture_text(t, x + 17, y + 10.5, TRMI_FORM_NAME, names[i]);
        x += 17 + letter * (double)strlen(names[i]) + 18;
    }
}

/* Draws the mesh; returns the y below it. */
static double draw_mesh(trmi_text *t, const trmi_stage_picture *p, double y) {
    int32_t rows = count_rows(p->stages),
            copies = p->copies < COPIES_MOST ? p->copies : COPIES_MOST;
    double width = width_of_rows() / copies;
    char line[96];
    trmi_picture_text(t, TRMI_PICTURE_MARGIN, y, TRMI_FORM_HEAD, "Stages and meshes");
    if (rows < p->stages || copies < p->copies) {
        snprintf(line, sizeof line, "%d of %d stages and %d of %d copies are shown", (int)rows,
                 (int)p->stages, (int)copies, (int)p->copies);
        trmi_picture_text(t, NAMES + 60, y, TRMI_FORM_SMALL, line);
    }
    y += 12;
    for (int32_t s = 0; s < rows; s++, y += CELL) {
        snprintf(line, sizeof line, "stage %d", (int)s);
        trmi_picture_text(t, TRMI_PICTURE_MARGIN, y + 15, TRMI_FORM_NAME, line);
        for (int32_t c = 0; c < copies; c++) {
            const int64_t first = ((int64_t)s * p->copies + c) * p->ranks;
            snprintf(line, sizeof line, p->ranks > 1 ? "%lld-%lld" : "%lld", (long long)first,
                     (long long)(first + p->ranks - 1));
            const double box[4] = {NAMES + c * width, y, width - 4, CELL - 4};
            trmi_picture_box(t, box, "#dbe7f7", line);
            trmi_picture_text(t, box[0] + box[2] / 2, y + 15, TRMI_FORM_MIDDLE, line);
        }
    }
    return y + 22;
}

/* Draws the actions of stage `s` before `horizon` (seconds), at `scale` units a second; with the
 * whole step also its update and meetings. */
static void draw_actions(trmi_text *t, const trmi_stage_picture *p, int32_t s, double y,
                         double scale, double horizon) {
    const trmi_pipeline *pipeline = p->pipeline;
    const double *starts = &p->starts[(int64_t)s * pipeline->count],
                 *ends = &p->ends[(int64_t)s * pipeline->count];
    char line[96];
    trmi_picture_box(t, (double[4]){NAMES, y, horizon * scale, ROW - 6}, idle, "waiting");
    for (int32_t i = 0; i < pipeline->count; i++) {
        const trmi_pipeline_action *a = &pipeline->actions[(int64_t)s * pipeline->count + i];
        const int32_t v = a->chunk * p->stages + s;
        const double begin = starts[i], wide = (fmin(ends[i], horizon) - begin) * scale;
        const double box[4] = {NAMES + begin * scale, y, wide - (wide > 3), ROW - 6};
        if (begin >= horizon) {
            break;
        }
        snprintf(line, sizeof line, "%s of micro-batch %d, run %d: %.4g ms",
                 a->backward ? "backward" : "forward", (int)a->micro, (int)v,
                 (ends[i] - begin) * 1e3);
        trmi_picture_box(t, box, colours[a->backward], line);
        if (wide > 18) {
            snprintf(line, sizeof line, "%d", (int)a->micro);
            trmi_picture_text(t, box[0] + box[2] / 2, y + 13,
                              "font-size=\"10\" fill=\"#fff\" text-anchor=\"middle\"", line);
        }
    }
    if (p->after[s] > 0 && horizon == p->step) {
        snprintf(line, sizeof line, "gradients and update: %.4g ms", p->after[s] * 1e3);
        trmi_picture_box(t,
                         (double[4]){NAMES + fmax(ends[pipeline->count - 1], p->met) * scale, y,
                                     p->after[s] * scale, ROW - 6},
                         colours[2], line);
    }
    for (int32_t i = 0; i < p->meetings && horizon == p->step; i++) {
        const double seconds = p->meeting[i][1] - p->meeting[i][0];
        snprintf(line, sizeof line, "meeting of all stages: %.4g ms", seconds * 1e3);
        trmi_picture_box(t,
                         (double[4]){NAMES + p->meeting[i][0] * scale, y, seconds * scale, ROW - 6},
                         colours[3], line);
    }
}

/* Draws one step; returns the y below it. */
static double draw_step(trmi_text *t, const trmi_stage_picture *p, double y) {
    static const char *const names[] = {"forward", "backward", "gradients and update", "meetings"};
    char line[64];
    int32_t rows = count_rows(p->stages);
    const double horizon = find_horizon(p);
    trmi_picture_text(t, TRMI_PICTURE_MARGIN, y, TRMI_FORM_HEAD, "One step");
    if (horizon < p->step) {
        snprintf(line, sizeof line, "the first %.3g of %.3g s", horizon, p->step);
        trmi_picture_text(t, NAMES + 690, y, TRMI_FORM_SMALL, line);
    }
    draw_legend(t, y - 10.5, names, 3 + (p->meetings > 0));
    trmi_picture_box(t, (double[4]){NAMES + 410, y - 10.5, 12, 12}, idle, "waiting");
    trmi_picture_text(t, NAMES + 427, y, TRMI_FORM_NAME, "waiting; numbers are micro-batches");
    y += 32;
    double scale = trmi_picture_scale(
        t, (double[4]){NAMES, y - 4, width_of_rows() - 30, rows * (double)ROW}, horizon);
    for (int32_t s = 0; s < rows; s++, y += ROW) {
        snprintf(line, sizeof line, "stage %d", (int)s);
        trmi_picture_text(t, TRMI_PICTURE_MARGIN, y + 13, TRMI_FORM_NAME, line);
        draw_actions(t, p, s, y, scale, horizon);
    }
    return y + 22;
}

/* Draws the memory; returns the y below it. */
static double draw_memory(trmi_text *t, const trmi_stage_picture *p, double y) {
    double most = p->limit;
    char line[128], bytes[TRMI_BYTES_TEXT];
    int32_t rows = count_rows(p->bars);
    for (int32_t b = 0; b < p->bars; b++) {
        double sum = 0;
        for (int32_t k = 0; k < p->kinds; k++) {
            sum += p->memory[b * p->kinds + k];
        }
        most = fmax(most, sum);
    }
    trmi_picture_text(t, TRMI_PICTURE_MARGIN, y, TRMI_FORM_HEAD, "Memory");
    draw_legend(t, y - 10.5, p->kind_names, p->kinds);
    y += 14;
    double scale = (width_of_rows() - 80) / fmax(most, 1), top = y;
    for (int32_t b = 0; b < rows; b++, y += ROW) {
        double x = NAMES;
        snprintf(line, sizeof line, p->bars > 1 ? "stage %d" : "a rank", (int)b);
        trmi_picture_text(t, TRMI_PICTURE_MARGIN, y + 13, TRMI_FORM_NAME, line);
        double sum = 0;
        for (int32_t k = 0; k < p->kinds; k++) {
            const double own = p->memory[b * p->kinds + k];
            snprintf(line, sizeof line, "%s: %s", p->kind_names[k], trmi_bytes_text(own, bytes));
            if (own > 0) {
                trmi_picture_box(t, (double[4]){x, y, own * scale, ROW - 6}, colours[k % COLOURS],
                                 line);
            }
            x += own * scale;
            sum += own;
        }
        trmi_picture_text(t, x + 6, y + 13, TRMI_FORM_SMALL, trmi_bytes_text(sum, bytes));
    }
    if (p->limit > 0) {
        double x = NAMES + p->limit * scale;
        trmi_text_printf(t,
                         "<line x1=\"%.1f\" x2=\"%.1f\" y1=\"%.1f\" y2=\"%.1f\" stroke=\"#1b2027\" "
                         "stroke-dasharray=\"4 3\"><title>the limit</title></line>\n",
                         x, x, top - 4, y);
    }
    return y;
}

/* Contract in picture.h. The picture is drawn first, because its height follows from its rows. */
void trmi_stage_picture_draw(trmi_text *t, const trmi_stage_picture *p) {
    trmi_text inner = {0};
    double y = TRMI_PICTURE_MARGIN + 14;
    trmi_picture_text(&inner, TRMI_PICTURE_MARGIN, y, TRMI_FORM_TITLE, p->title);
    y += 4;
    for (int i = 0; i < 3 && p->lines[i] != NULL; i++) {
        y += 18;
        trmi_picture_text(&inner, TRMI_PICTURE_MARGIN, y, TRMI_FORM_LINE, p->lines[i]);
    }
    y = draw_mesh(&inner, p, y + 34);
    y = p->pipeline != NULL ? draw_step(&inner, p, y + 8) : y;
    y = draw_memory(&inner, p, y + 8);
    trmi_picture_begin(t, y + TRMI_PICTURE_MARGIN);
    if (inner.failed) {
        t->failed = true;
    } else {
        trmi_text_append(t, inner.data, inner.length);
    }
    trmi_text_free(&inner);
    trmi_picture_end(t);
}
