/* SPDX-License-Identifier: Apache-2.0 */
/* Top-k accuracy from counts: hits[i] counts the samples whose own class has exactly i better
 * classes, i < 5. Ties go to the lower class, so that the value depends on no order of
 * computation. A NaN logit never counts as a hit. */
#include "trireme/train.h"

#include "base/arguments.h"

#include <math.h>

/* Contract in trireme/train.h. Rows with a label outside of the classes are not counted. */
void trm_top_k_add(trm_top_k *top, const float *logits, const int32_t *labels, int64_t rows,
                   int64_t classes) {
    TRMI_NEED_OR(, NULL, top);
    if (rows > 0) {
        TRMI_NEED_OR(, NULL, logits, labels);
    }
    for (int64_t r = 0; r < rows; r++) {
        const float *row = logits + r * classes;
        int32_t label = labels[r];
        if (label < 0 || label >= classes) {
            continue;
        }
        top->samples++;
        float mine = row[label];
        if (isnan(mine)) {
            continue;
        }
        /* The label's place counts classes with a larger logit, or an equal one and a smaller
         * number. A NaN counts as wrong. */
        int64_t better = 0;
        for (int64_t c = 0; c < classes; c++) {
            better += row[c] > mine || (row[c] == mine && c < label);
        }
        if (better < 5) {
            top->hits[better]++;
        }
    }
}

double trm_top_k_value(const trm_top_k *top, int k) {
    TRMI_NEED_OR(0, NULL, top);
    int64_t hits = 0;
    for (int i = 0; i < k && i < 5; i++) {
        hits += top->hits[i];
    }
    return top->samples ? (double)hits / (double)top->samples : 0;
}
