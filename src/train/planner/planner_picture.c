/* SPDX-License-Identifier: Apache-2.0 */
/* Draws a plan: as SVG, with the mesh, a legend, and a row for each forward operator that has its
 * cut and its time, or with its stages (stage_picture.c); and as a DOT graph.
 *
 *   head   title, figures, mesh, legend
 *   rows   name | a chip for each axis, coloured by its letter | bar of computing and of messages
 *
 * Nothing is measured or searched here: the picture is that of the planner's chosen plan, and the
 * longest bar fills the page. Messages of backward belong to the bar of their forward operator. */
#include "train/planner/picture.h"
#include "train/planner/planner.h"
#include "train/planner/planner_report.h"

#include "base/arguments.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Returns the colour of a cut. */
static const char *colour_of(char letter) {
    switch (letter) {
    case 'n': return "#4e79a7";
    case 'k': return "#e15759";
    case 'c': return "#f28e2b";
    case 'h': return "#59a14f";
    case 'w': return "#76b7b2";
    case '.': return "#bab0ac";
    default: return "#b07aa1";
    }
}

/* ---- SVG ------------------------------------------------------------------------------------- */

/* Columns of the picture, in pixels: names, cuts (a chip for each axis), times. */
enum {
    PAGE = TRMI_PICTURE_WIDTH,
    MARGIN = TRMI_PICTURE_MARGIN,
    CUTS = 330,
    CHIP = 22,
    LINE = 18,
    HEAD = 128
};

/* Draws the mesh at the right of the head: a cell for each rank, at most 8 x 8 of them. */
static void draw_mesh(trmi_text *t, const trmi_mesh *mesh) {
    int32_t ranks = trmi_mesh_ranks(mesh),
            columns = mesh->axes > 0 ? mesh->size[mesh->axes - 1] : 1;
    int32_t rows = ranks / columns, wide = columns < 8 ? columns : 8, high = rows < 8 ? rows : 8;
    double cell = 8, left = PAGE - MARGIN - wide * (cell + 2);
    char title[64];
    for (int32_t r = 0; r < high; r++) {
        for (int32_t c = 0; c < wide; c++) {
            snprintf(title, sizeof title, "rank %d", (int)(r * columns + c));
            trmi_picture_box(
                t, (double[4]){left + c * (cell + 2), MARGIN + r * (cell + 2), cell, cell},
                "#9db8dd", title);
        }
    }
    snprintf(title, sizeof title, "%d rank%s%s", (int)ranks, ranks == 1 ? "" : "s",
             wide < columns || high < rows ? ", some shown" : "");
    trmi_picture_text(t, left - 8, MARGIN + 10,
                      "font-size=\"12\" fill=\"#5a6472\" text-anchor=\"end\"", title);
}

/* Draws title, figures, the mesh, and the legend: each cut that the plan has, and the two
 * shades. */
static void draw_head(trmi_text *t, const trm_planner *p, const trmi_auto_mesh *m) {
    char mesh[48], line[200], memory[TRMI_BYTES_TEXT];
    const trmi_space *s = m->space;
    snprintf(line, sizeof line, "Plan for mesh %s, batch %lld",
             trmi_mesh_text(&m->mesh, mesh, sizeof mesh), (long long)p->batch);
    trmi_picture_text(t, MARGIN, MARGIN + 14,
                      "font-size=\"20\" font-weight=\"600\" fill=\"#1b2027\"", line);
    snprintf(line, sizeof line, "step %.3f ms, no plan below %.3f ms; %s a rank",
             m->found.objective * 1e3, m->found.lower_bound * 1e3,
             trmi_bytes_text(m->found.best.measure.bytes, memory));
    trmi_picture_text(t, MARGIN, MARGIN + 36, "font-size=\"13\" fill=\"#5a6472\"", line);
    draw_mesh(t, &m->mesh);
    /* Draw a legend of the letters, each with the first loop that it names. */
    char known[32] = "";
    double x = MARGIN;
    for (int32_t n = 0; n < s->nodes_count; n++) {
        const char *letters =
            trmi_space_class_of(s, n)->strategies[m->found.best.choice.strategy[n]].letters;
        for (int32_t a = 0; a < m->mesh.axes; a++) {
            size_t used = strlen(known);
            if (strchr(known, letters[a]) != NULL || used + 1 >= sizeof known) {
                continue;
            }
            known[used] = letters[a];
            known[used + 1] = '\0';
            snprintf(line, sizeof line, "%c: %s", letters[a],
                     trmi_partition_loop_name(s->graph, trmi_space_op(s, n), letters[a]));
            trmi_picture_box(t, (double[4]){x, MARGIN + 54, 12, 12}, colour_of(letters[a]), line);
            trmi_picture_text(t, x + 17, MARGIN + 64.5, "font-size=\"12\" fill=\"#1b2027\"", line);
            x += 17 + 7.2 * (double)strlen(line) + 16;
        }
    }
    trmi_picture_text(
        t, MARGIN, MARGIN + 86, "font-size=\"12\" fill=\"#5a6472\"",
        "a chip for each axis of the mesh shows the cut; bars: forward (dark), backward and its "
        "messages (light)");
}

/* Draws one operator: name, the chips of its cut, its times. */
static void draw_operator(trmi_text *t, const trmi_auto_mesh *m, int32_t n, double scale) {
    const trmi_space *s = m->space;
    const trmi_space_class *c = trmi_space_class_of(s, n);
    const trmi_op *op = trmi_space_op(s, n);
    int32_t i = m->found.best.choice.strategy[n], y = HEAD + 8 + n * LINE;
    const char *letters = c->strategies[i].letters;
    /* Messages of the backward pass belong to its bar. */
    double later = c->backward[i] + c->exchange[i], left = CUTS + CHIP * m->mesh.axes + 10;
    char line[200];
    size_t length = strlen(op->name);
    snprintf(line, sizeof line, "%s%.*s", length > 46 ? "..." : "", 46,
             length > 46 ? op->name + length - 43 : op->name);
    trmi_picture_text(t, MARGIN, y + 11, "font-size=\"11.5\" fill=\"#1b2027\"", line);
    for (int32_t a = 0; a < m->mesh.axes; a++) {
        snprintf(line, sizeof line, "%s along axis %s of %d ranks",
                 trmi_partition_loop_name(s->graph, op, letters[a]), m->mesh.name[a],
                 (int)m->mesh.size[a]);
        double x = CUTS + a * CHIP;
        trmi_picture_box(t, (double[4]){x, y, CHIP - 3, 14}, colour_of(letters[a]), line);
        trmi_text_printf(t,
                         "<text x=\"%.1f\" y=\"%d\" font-size=\"11\" fill=\"#fff\" "
                         "text-anchor=\"middle\" pointer-events=\"none\">%c</text>\n",
                         x + (CHIP - 3) / 2.0, y + 11, letters[a]);
    }
    snprintf(line, sizeof line, "forward %.4g ms", c->forward[i] * 1e3);
    trmi_picture_box(t, (double[4]){left, y + 1, c->forward[i] * scale, 12}, "#2f6fc4", line);
    snprintf(line, sizeof line, "backward %.4g ms", later * 1e3);
    trmi_picture_box(t, (double[4]){left + c->forward[i] * scale, y + 1, later * scale, 12},
                     "#a9c5ea", line);
    snprintf(line, sizeof line, "%.3g ms", (c->forward[i] + later) * 1e3);
    trmi_picture_text(t, left + (c->forward[i] + later) * scale + 6, y + 11,
                      "font-size=\"11\" fill=\"#5a6472\"", line);
}

/* Draws a plan without stages: a head, then a row for each forward operator. */
static void draw_operators(trmi_text *t, const trm_planner *p) {
    const trmi_auto_mesh *m = trmi_planner_best(p);
    const trmi_space *s = m->space;
    /* The longest bar fits the page. */
    double longest = 1e-12, left = CUTS + CHIP * m->mesh.axes + 10;
    for (int32_t n = 0; n < s->nodes_count; n++) {
        const trmi_space_class *c = trmi_space_class_of(s, n);
        int32_t i = m->found.best.choice.strategy[n];
        longest = fmax(longest, c->forward[i] + c->backward[i] + c->exchange[i]);
    }
    int32_t height = HEAD + 8 + s->nodes_count * LINE + MARGIN;
    trmi_picture_begin(t, height);
    draw_head(t, p, m);
    double scale = trmi_picture_scale(
        t, (double[4]){left, HEAD + 4, PAGE - MARGIN - 64 - left, height - MARGIN - HEAD}, longest);
    for (int32_t n = 0; n < s->nodes_count; n++) {
        draw_operator(t, m, n, scale);
    }
    trmi_picture_end(t);
}

/* ---- stages ---------------------------------------------------------------------------------- */

/* Draws a plan with stages. False: no memory. */
static bool draw_stages(trmi_text *t, const trm_planner *p) {
    static const char *const kinds[] = {"parameters", "gradients", "slots", "kept for backward",
                                        "messages"};
    enum { KINDS = sizeof kinds / sizeof kinds[0] };
    const trmi_pipe_plan *plan = &p->pipe.found.rows[0].plan;
    const int32_t stages = plan->shape.stages;
    char words[128], bytes[TRMI_BYTES_TEXT], lines[2][200];
    double meeting[TRMI_STAGE_MEETINGS][2],
        *numbers = trmi_alloc((size_t)stages * (1 + KINDS) * sizeof *numbers);
    if (numbers == NULL) {
        return false;
    }
    double *after = numbers, *memory = after + stages;
    for (int32_t s = 0; s < stages; s++) {
        const trmi_pipe_stage *rank = &plan->ranks[s];
        const double own[KINDS] = {rank->weight_bytes, rank->gradient_bytes, rank->slot_bytes,
                                   rank->kept_bytes, rank->staging_bytes};
        after[s] = rank->update;
        memcpy(&memory[s * KINDS], own, sizeof own);
    }
    snprintf(lines[0], sizeof lines[0], "%s of %lld samples",
             trmi_pipe_words(&plan->space->mesh, &plan->shape, words, sizeof words),
             (long long)(p->batch / plan->shape.micros));
    snprintf(lines[1], sizeof lines[1],
             "step %.3f ms, no plan below %.3f ms; %.1f %% of the ranks' time is bubble; %s a rank",
             plan->step * 1e3, p->pipe.lower_bound * 1e3, 100 * plan->bubble,
             trmi_bytes_text(plan->bytes, bytes));
    char title[64];
    snprintf(title, sizeof title, "Plan of %d stages for %d ranks, batch %lld", (int)stages,
             (int)p->ranks, (long long)p->batch);
    trmi_stage_picture_draw(t, &(trmi_stage_picture){.title = title,
                                                     .lines = {lines[0], lines[1]},
                                                     .stages = stages,
                                                     .copies = trmi_mesh_ranks(&plan->space->mesh),
                                                     .ranks = 1,
                                                     .pipeline = &plan->pipeline,
                                                     .starts = plan->starts,
                                                     .ends = plan->ends,
                                                     .after = after,
                                                     .met = plan->met,
                                                     .meeting = meeting,
                                                     .meetings = trmi_pipe_meetings(plan, meeting),
                                                     .step = plan->step,
                                                     .bars = stages,
                                                     .kinds = KINDS,
                                                     .kind_names = kinds,
                                                     .memory = memory,
                                                     .limit = (double)p->model.exec.memory_bytes});
    trmi_free(numbers);
    return true;
}

/* Contract in trireme/plan.h. */
char *trm_planner_svg(const trm_planner *p) {
    TRMI_NEED_OR(NULL, NULL, p);
    trmi_text t = {0};
    bool ok = true;
    if (p->pipe.chosen) {
        ok = draw_stages(&t, p);
    } else {
        draw_operators(&t, p);
    }
    if (t.failed || !ok) {
        trmi_text_free(&t);
    }
    return t.data;
}

/* ---- DOT ------------------------------------------------------------------------------------- */

/* Appends text with DOT's special characters escaped. */
static void dot_string(trmi_text *t, const char *text) {
    for (; *text != '\0'; text++) {
        trmi_text_printf(t, *text == '"' || *text == '\\' ? "\\%c" : "%c", *text);
    }
}

/* Contract in trireme/plan.h. Edges with redistribution are red and have its time. Of a plan with
 * stages: the cuts within its stages. */
char *trm_planner_dot(const trm_planner *p) {
    TRMI_NEED_OR(NULL, NULL, p);
    const trmi_auto_mesh *m = p->pipe.chosen ? &p->pipe.mesh : trmi_planner_best(p);
    const trmi_space *s = m->space;
    trmi_text t = {0};
    /* Draw operators, then edges. */
    trmi_text_printf(&t, "digraph plan {\n  node [shape=box, style=filled, fontname=monospace];\n");
    for (int32_t n = 0; n < s->nodes_count; n++) {
        const trmi_space_class *c = trmi_space_class_of(s, n);
        int32_t i = m->found.best.choice.strategy[n];
        trmi_text_printf(&t, "  n%d [label=\"", n);
        dot_string(&t, trmi_space_op(s, n)->name);
        trmi_text_printf(&t, "\\n%s  %.3f ms\", fillcolor=\"%s\"];\n", c->strategies[i].letters,
                         (c->forward[i] + c->backward[i]) * 1e3,
                         colour_of(c->strategies[i].letters[0]));
    }
    for (int64_t e = 0; e < s->edges_count; e++) {
        const trmi_space_edge *o = &s->edges[e];
        int64_t a = m->found.best.choice.strategy[o->from],
                b = m->found.best.choice.strategy[o->to];
        double seconds = (double)s->tables[o->table][a * trmi_space_class_of(s, o->to)->count + b],
               again; /* what is computed twice is no message */
        (void)trmi_space_sum(s, o, (int32_t)a, (int32_t)b, &again);
        seconds -= again;
        trmi_text_printf(&t, "  n%d -> n%d", o->from, o->to);
        if (seconds > 1e-9) {
            trmi_text_printf(&t, " [label=\"%.1f us\", color=red]", seconds * 1e6);
        }
        trmi_text_printf(&t, ";\n");
    }
    trmi_text_printf(&t, "}\n");
    if (t.failed) {
        trmi_text_free(&t);
    }
    return t.data;
}
