/* SPDX-License-Identifier: Apache-2.0 */
/* Measures costs again between runs of plans, which are compared with predictions
 * (trm_planner_remeasure).
 *
 *        the search's costs --> plans, from now on fixed
 *        runs | measure | runs | measure ...   predictions: the same plans, by the median of each cost
 *
 * The state of a shared machine changes; measuring costs between the runs brings the same state
 * into both. exec/autoparallel/search_costs.h keeps the measurements of operators, this file
 * those of message curves. */
#include "train/planner/planner.h"

#include "base/arguments.h"
#include "base/error.h"

#include <math.h>

/* Begins with the search's costs as the first measurement, and fixes the list of plans. */
static trm_status open_measurements(trm_planner *p, trm_error *err) {
    trmi_measurements *l;
    TRMI_TRY(TRMI_NEW(err, l, 1, "for measurements of costs"));
    l->links[l->count++] = p->links;
    l->plans_count = trmi_auto_list(&p->drive, l->plans);
    for (int32_t i = 0; i < l->plans_count; i++) {
        l->first[i] = l->now[i] = l->plans[i].candidate->measure.step;
    }
    p->measurements = l;
    return TRM_OK;
}

/* ---- measuring ------------------------------------------------------------------------------- */

/* Measures the message curves once more; keeps the old ones if they were given or guessed. */
static trm_status measure_links_again(trm_planner *p, trmi_links *out, trm_error *err) {
    trmi_text text = {0};
    *out = p->links;
    if (p->links_text == NULL) { /* given or guessed: not measured */
        return TRM_OK;
    }
    trm_status status = trmi_link_benchmark(&p->probe, &text, err);
    status = status == TRM_OK ? trmi_links_parse(text.data, out, err) : status;
    trmi_text_free(&text);
    return status;
}

/* Measures the operators of all listed plans once more. */
static trm_status measure_operators_again(trm_planner *p, trm_error *err) {
    const trmi_measurements *l = p->measurements;
    int32_t news = 0;
    p->costs.round++;
    p->costs.spent_seconds = 0; /* restart the time limit */
    for (int32_t i = 0; i < l->plans_count; i++) {
        const trmi_ranked *r = &l->plans[i];
        TRMI_TRY(trmi_costs_measure(&p->costs, p->drive.meshes[r->mesh].space,
                                    &r->candidate->choice, &news, err));
    }
    return TRM_OK;
}

/* Measures links and operators once, in the brief form. */
static trm_status measure_costs(trm_planner *p, trm_error *err) {
    trmi_measurements *l = p->measurements;
    TRMI_TRY(trmi_op_benchmark_load(&p->probe, err));
    p->probe.brief = true;
    p->probe.reach = trmi_op_benchmark_longest(p->graph);
    TRMI_TRY(measure_links_again(p, &l->links[l->count], err));
    TRMI_TRY(measure_operators_again(p, err));
    l->count++;
    return TRM_OK;
}

/* ---- predictions ----------------------------------------------------------------------------- */

/* Predicts all listed plans with the medians of the costs. */
static trm_status predict_plans(trm_planner *p, trm_error *err) {
    trmi_measurements *l = p->measurements;
    trm_status status = TRM_OK;
    trmi_links_middle(l->links, l->count, &p->links);
    trmi_planner_settle_factor(p);
    for (int32_t m = 0; status == TRM_OK && m < p->drive.meshes_count; m++) {
        trmi_space *space = NULL;
        trmi_measure measure;
        status = trmi_planner_space(p, p->graph, &p->drive.meshes[m].mesh, &space, err);
        for (int32_t i = 0; status == TRM_OK && i < l->plans_count; i++) {
            if (l->plans[i].mesh == m) {
                status = trmi_space_measure(space, &l->plans[i].candidate->choice, &measure, err);
                l->now[i] = status == TRM_OK ? measure.step : l->now[i];
            }
        }
        trmi_space_destroy(space);
    }
    return status;
}

/* Contract in trireme/plan.h. Ranks other than 0 serve the measurements of rank 0. */
trm_status trm_planner_remeasure(trm_planner *p, trm_error *err) {
    TRMI_NEED(err, p);
    trmi_planner_forget_simulation(p);
    if (p->model.exec.parallel.comm != NULL && trm_comm_rank(p->model.exec.parallel.comm) != 0) {
        trm_status served = trmi_op_benchmark_serve(&p->probe, err);
        trmi_op_benchmark_close(&p->probe);
        return served;
    }
    trm_error later;
    trm_status status = p->measurements == NULL ? open_measurements(p, err) : TRM_OK;
    bool measures =
        status == TRM_OK && p->costs.probe != NULL && p->costs.round + 1 < TRMI_COSTS_MEASUREMENTS;
    status = measures ? measure_costs(p, err) : status;
    if (p->model.exec.parallel.comm != NULL) {
        trm_status ended = trmi_op_benchmark_end(&p->probe, status == TRM_OK ? err : &later);
        status = status == TRM_OK ? ended : status;
    }
    trmi_op_benchmark_close(&p->probe);
    return status == TRM_OK && measures ? predict_plans(p, err) : status;
}
