/* SPDX-License-Identifier: Apache-2.0 */
/* Draws a plan: as SVG, one bar for each forward operator, as long as its time and coloured by
 * its cut; and as a DOT graph. */
#include "train/planner/planner.h"

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

/* Appends text with XML's special characters escaped. */
static void xml(trmi_text *t, const char *text) {
    for (; *text != '\0'; text++) {
        if (*text == '<' || *text == '>' || *text == '&' || *text == '"') {
            trmi_text_printf(t, "&#%d;", *text);
        } else if ((unsigned char)*text >= 32) {
            trmi_text_printf(t, "%c", *text);
        }
    }
}

/* Contract in trireme/plan.h. Each bar has a part for each axis of the mesh. */
char *trm_planner_svg(const trm_planner *p) {
    TRMI_NEED_OR(NULL, NULL, p);
    const trmi_auto_mesh *m = trmi_planner_best(p);
    const trmi_space *s = m->space;
    trmi_text t = {0};
    char mesh[48];
    /* scale: the longest operator has the full width */
    double longest = 1e-12;
    enum { LINE = 15, LEFT = 260, WIDE = 520 };
    for (int32_t n = 0; n < s->nodes_count; n++) {
        const trmi_space_class *c = trmi_space_class_of(s, n);
        int32_t i = m->found.best.choice.strategy[n];
        longest = fmax(longest, c->forward[i] + c->backward[i] + c->exchange[i]);
    }
    trmi_text_printf(&t,
                     "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" "
                     "font-family=\"monospace\" "
                     "font-size=\"11\">\n<text x=\"4\" y=\"14\">mesh %s, step %.3f ms, bound %.3f "
                     "ms; one row an operator: "
                     "cut by axis, forward and backward time</text>\n",
                     LEFT + WIDE + 120, (s->nodes_count + 3) * LINE,
                     trmi_mesh_text(&m->mesh, mesh, sizeof mesh), m->found.objective * 1e3,
                     m->found.lower_bound * 1e3);
    for (int32_t n = 0; n < s->nodes_count; n++) {
        const trmi_space_class *c = trmi_space_class_of(s, n);
        int32_t i = m->found.best.choice.strategy[n], y = (n + 2) * LINE;
        const char *letters = c->strategies[i].letters;
        double seconds = c->forward[i] + c->backward[i] + c->exchange[i],
               width = seconds / longest * WIDE;
        trmi_text_printf(&t, "<text x=\"4\" y=\"%d\">", y + 11);
        xml(&t, trmi_space_op(s, n)->name);
        trmi_text_printf(&t, " %s</text>\n", letters);
        for (int32_t a = 0; a < m->mesh.axes; a++) {
            trmi_text_printf(
                &t, "<rect x=\"%.1f\" y=\"%d\" width=\"%.1f\" height=\"%d\" fill=\"%s\"><title>",
                LEFT + width * a / m->mesh.axes, y, fmax(width / m->mesh.axes, 0.5), LINE - 3,
                colour_of(letters[a]));
            xml(&t, trmi_partition_loop_name(s->graph, trmi_space_op(s, n), letters[a]));
            trmi_text_printf(&t, ", axis %s of %d: %.3f ms</title></rect>\n", m->mesh.name[a],
                             (int)m->mesh.size[a], seconds * 1e3);
        }
    }
    trmi_text_printf(&t, "</svg>\n");
    if (t.failed) {
        trmi_text_free(&t);
    }
    return t.data;
}

/* Appends text with DOT's special characters escaped. */
static void dot_string(trmi_text *t, const char *text) {
    for (; *text != '\0'; text++) {
        trmi_text_printf(t, *text == '"' || *text == '\\' ? "\\%c" : "%c", *text);
    }
}

/* Contract in trireme/plan.h. Edges with redistribution are red and have its time. */
char *trm_planner_dot(const trm_planner *p) {
    TRMI_NEED_OR(NULL, NULL, p);
    const trmi_auto_mesh *m = trmi_planner_best(p);
    const trmi_space *s = m->space;
    trmi_text t = {0};
    /* operators, then edges */
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
        double seconds = (double)s->tables[o->table][a * trmi_space_class_of(s, o->to)->count + b];
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
