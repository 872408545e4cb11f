/* SPDX-License-Identifier: Apache-2.0 */
/* Draws a plan for a machine that is not here, and finds its curve of memory against time
 * (contracts in trireme/plan.h and hardware_plan.h). */
#include "train/planner/hardware_plan.h"
#include "train/planner/picture.h"

#include "base/arguments.h"

#include <math.h>
#include <stdio.h>

/* The texts of a picture's head. */
typedef struct head_texts {
    char title[160], words[TRMI_PARALLELISM_TEXT], step[160];
} head_texts;

/* Writes the head. */
static void write_head(const trm_hardware_plan *p, const trmi_priced_plan *chosen, head_texts *h) {
    char bytes[TRMI_BYTES_TEXT], limit[TRMI_BYTES_TEXT];
    const double seconds = chosen->cost.seconds;
    snprintf(h->title, sizeof h->title, "%s on %lld x %s", p->model.name,
             (long long)p->problem.devices, p->hardware.name);
    trmi_parallelism_describe(&p->problem, &chosen->plan, h->words, sizeof h->words);
    snprintf(h->step, sizeof h->step,
             "step %.4g s, %.0f tokens/s a device, MFU %.1f %%; %s of %s a device", seconds,
             trmi_hardware_plan_rate(p, seconds), 100 * trmi_plan_utilisation(&p->problem, seconds),
             trmi_bytes_text(chosen->cost.bytes, bytes), trmi_bytes_text(p->problem.memory, limit));
}

/* Contract in trireme/plan.h. A schedule that is too long to be played is not drawn. */
char *trm_hardware_plan_svg(const trm_hardware_plan *p) {
    TRMI_NEED_OR(NULL, NULL, p);
    const trmi_priced_plan *chosen = p->has_given ? &p->given : &p->found.best;
    const trmi_parallelism *plan = &chosen->plan;
    const char *kinds[TRMI_MEMORY_PARTS + 1] = {"reserved"};
    double memory[TRMI_MEMORY_PARTS + 1] = {p->hardware.reserved};
    head_texts head;
    trmi_text t = {0};
    trmi_played_step step;
    trm_error ignored;
    write_head(p, chosen, &head);
    for (int i = 0; i < TRMI_MEMORY_PARTS; i++) {
        kinds[i + 1] = trmi_memory_part_name((trmi_memory_part)i);
        memory[i + 1] = chosen->cost.memory[i];
    }
    bool played = trmi_step_play(&p->problem, plan, &chosen->cost, &step, &ignored) == TRM_OK;
    trmi_stage_picture_draw(&t, &(trmi_stage_picture){.title = head.title,
                                                      .lines = {head.words, head.step},
                                                      .stages = (int32_t)plan->stages,
                                                      .copies = (int32_t)plan->data,
                                                      .ranks = plan->tensor * plan->context,
                                                      .pipeline = played ? &step.pipeline : NULL,
                                                      .starts = step.starts,
                                                      .ends = step.ends,
                                                      .after = step.after,
                                                      .step = step.seconds,
                                                      .bars = 1,
                                                      .kinds = TRMI_MEMORY_PARTS + 1,
                                                      .kind_names = kinds,
                                                      .memory = memory,
                                                      .limit = p->problem.memory});
    trmi_played_step_free(&step);
    if (t.failed) {
        trmi_text_free(&t);
    }
    return t.data;
}

/* Contract in hardware_plan.h. Limits fall by equal factors down to the plan of least memory;
 * limits with the same fastest plan make one point. */
int trmi_hardware_curve(const trm_hardware_plan *p, trmi_priced_plan points[TRMI_CURVE_POINTS]) {
    enum { LIMITS = TRMI_CURVE_POINTS - 1 };
    const double most = p->found.best.cost.bytes, least = p->found.least.cost.bytes;
    double limits[LIMITS];
    trmi_priced_plan found[LIMITS];
    trm_error ignored;
    int count = 0;
    points[count++] = p->found.best;
    for (int i = 0; i < LIMITS; i++) {
        limits[i] = most * pow(least / most, (double)(i + 1) / LIMITS) * (1 + 1e-9);
    }
    if (!p->found.fits ||
        trmi_parallelism_curve(&p->problem, limits, LIMITS, found, &ignored) != TRM_OK) {
        return count;
    }
    for (int i = 0; i < LIMITS && found[i].cost.seconds < INFINITY; i++) {
        if (found[i].cost.bytes < points[count - 1].cost.bytes) {
            points[count++] = found[i];
        }
    }
    return count;
}
