/* SPDX-License-Identifier: Apache-2.0 */
/* The elements of pictures (contracts in picture.h). */
#include "train/planner/picture.h"

#include <math.h>
#include <stdio.h>

/* Appends text with XML's special characters escaped. */
static void append_xml(trmi_text *t, const char *text) {
    for (; *text != '\0'; text++) {
        if (*text == '<' || *text == '>' || *text == '&' || *text == '"') {
            trmi_text_printf(t, "&#%d;", *text);
        } else if ((unsigned char)*text >= 32) {
            trmi_text_printf(t, "%c", *text);
        }
    }
}

void trmi_picture_begin(trmi_text *t, double height) {
    enum { WIDTH = TRMI_PICTURE_WIDTH };
    trmi_text_printf(t,
                     "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %.0f\" "
                     "width=\"%d\" height=\"%.0f\" font-family=\"system-ui, sans-serif\">\n"
                     "<rect width=\"%d\" height=\"%.0f\" fill=\"#ffffff\"/>\n",
                     WIDTH, height, WIDTH, height, WIDTH, height);
}

void trmi_picture_end(trmi_text *t) { trmi_text_printf(t, "</svg>\n"); }

void trmi_picture_text(trmi_text *t, double x, double y, const char *form, const char *line) {
    trmi_text_printf(t, "<text x=\"%.1f\" y=\"%.1f\" %s>", x, y, form);
    append_xml(t, line);
    trmi_text_printf(t, "</text>\n");
}

void trmi_picture_box(trmi_text *t, const double box[4], const char *fill, const char *title) {
    trmi_text_printf(t,
                     "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" fill=\"%s\" "
                     "rx=\"2\"><title>",
                     box[0], box[1], fmax(box[2], 0.5), box[3], fill);
    append_xml(t, title);
    trmi_text_printf(t, "</title></rect>\n");
}

/* Contract in picture.h. Lines stand at 2, 5 or 10 times a power of ten seconds, three to eight of
 * them, because such numbers can be read without arithmetic. */
double trmi_picture_scale(trmi_text *t, const double box[4], double longest) {
    double scale = box[2] / longest, power = pow(10, floor(log10(longest / 4)));
    double step = longest / 4 / power <= 2   ? 2 * power
                  : longest / 4 / power <= 5 ? 5 * power
                                             : 10 * power;
    char line[32];
    for (int i = 0; i * step <= longest * 1.0001; i++) {
        double x = box[0] + i * step * scale;
        trmi_text_printf(t,
                         "<line x1=\"%.1f\" x2=\"%.1f\" y1=\"%.1f\" y2=\"%.1f\" "
                         "stroke=\"#e6e9ee\"/>\n",
                         x, x, box[1], box[1] + box[3]);
        snprintf(line, sizeof line,
                 i == 0         ? "0"
                 : longest >= 2 ? "%.4g s"
                                : "%.4g ms",
                 i * step * (longest >= 2 ? 1 : 1e3));
        trmi_picture_text(t, x, box[1] - 6, TRMI_FORM_MIDDLE, line);
    }
    return scale;
}
