/* SPDX-License-Identifier: Apache-2.0 */
/* train/planner/hardware_plan.h: the inside of trm_hardware_plan: what was asked for and what the
 * search has found (plan/hardware/parallelism.h). */
#ifndef TRMI_TRAIN_HARDWARE_PLAN_H
#define TRMI_TRAIN_HARDWARE_PLAN_H

#include "trireme/plan.h"

#include "base/format/report.h"
#include "plan/hardware/parallelism.h"

#include <math.h>

/* Filled once by trm_hardware_plan_create and read only afterwards. The names in model and hardware
 * are static or belong to this object. */
struct trm_hardware_plan {
    trmi_transformer model;
    trmi_hardware hardware;
    trmi_plan_problem problem;
    trmi_parallelism_found found;
    bool has_given;
    trmi_priced_plan given; /* options.plan */
    double played;          /* seconds of the best plan's step, its schedule played */
};

/* Returns tokens a second of one device for a step of `seconds`. */
static inline double trmi_hardware_plan_rate(const trm_hardware_plan *plan, double seconds) {
    return (double)plan->problem.batch * (double)plan->model.context / seconds /
           (double)plan->problem.devices;
}
/* Returns by what part of the step some plan may be faster than the best one; NAN: no plan fits. */
static inline double trmi_hardware_plan_gap(const trm_hardware_plan *plan) {
    return !plan->found.fits ? NAN : 1 - plan->found.bounds.all / plan->found.best.cost.seconds;
}
/* Puts a plan in numbers and in words, and its price (hardware_report.c). */
void trmi_hardware_put_plan(trmi_report *report, const trm_hardware_plan *plan,
                            const trmi_priced_plan *priced);
/* Points of the curve of memory against time, at most. */
enum { TRMI_CURVE_POINTS = 6 };
/* Finds the fastest plans within falling limits of memory, the chosen plan first; returns their
 * number. */
int trmi_hardware_curve(const trm_hardware_plan *plan, trmi_priced_plan points[TRMI_CURVE_POINTS]);
/* The module that applies a plan with PyTorch; CMake embeds torch_plan.py. */
extern const char trmi_torch_plan[];

#endif
