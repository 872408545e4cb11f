/* SPDX-License-Identifier: Apache-2.0 */
/* Puts the values of a plan's report: figures of the head, proof, messages, warnings, other plans.
 * JSON has them all; planner_text.c says lines about them. What only JSON has, because it is long,
 * is put for JSON only: every operator with its cut and runner-up, and the timeline.
 *
 * Units are in the names: seconds of one step, bytes of one rank. Numbers that are infinite or
 * unknown become null. Scripts read the object: members are added, and never renamed. */
#include "train/planner/planner_report.h"

#include <math.h>
#include <stdio.h>

/* Puts the parts of the step's time and memory. operator_seconds: kernels. redistribution_,
 * exchange_ and gather_seconds: messages that operators wait for. gradient_seconds: reductions of
 * gradients, of which exposed_seconds are hidden by no computation. again_seconds:
 * recomputation. */
static void put_measure(trmi_report *t, const trmi_measure *m) {
    trmi_report_put(t, trmi_real("step_seconds", m->step), trmi_real("memory_bytes", m->bytes));
    trmi_report_open_object(t, "memory");
    trmi_report_put(t, trmi_whole("parameter_bytes", m->weight_bytes),
                    trmi_whole("gradient_bytes", m->gradient_bytes),
                    trmi_whole("slot_bytes", m->slot_bytes),
                    trmi_whole("kept_bytes", m->kept_bytes));
    trmi_report_close(t);
    trmi_report_put(
        t, trmi_real("operator_seconds", m->compute),
        trmi_real("redistribution_seconds", m->redistribute),
        trmi_real("exchange_seconds", m->exchange), trmi_real("gather_seconds", m->gather),
        trmi_real("again_seconds", m->again), trmi_real("update_seconds", m->update),
        trmi_real("gradient_seconds", m->gradient), trmi_real("exposed_seconds", m->exposed),
        trmi_real("ahead_seconds", m->ahead), trmi_real("waited_seconds", m->waited),
        trmi_int("buckets", m->buckets), trmi_int("gradients", m->messages));
}

/* Puts one plan: name, step, memory, cuts. For lines also its step over that of the
 * report's plan. */
static void put_candidate(trmi_report *t, const trmi_space *s, const trmi_candidate *c,
                          const char *name, double objective) {
    char plan[200];
    trmi_planner_summary(s, &c->choice, plan, sizeof plan);
    trmi_report_open_object(t, NULL);
    trmi_report_put(t, trmi_string("name", name), trmi_real("step_seconds", c->measure.step),
                    trmi_real("memory_bytes", c->measure.bytes), trmi_bool("fits", c->fits),
                    trmi_string("cuts", plan), trmi_real("#times", c->measure.step / objective));
    trmi_report_close(t);
}

/* Puts all operators, with the cut and the next best one. */
static void put_operators(trmi_figures *r) {
    trmi_report *t = &r->report;
    const trmi_space *s = r->m->space;
    char shape[96];
    trmi_report_open_array(t, "operators");
    for (int32_t n = 0; n < s->nodes_count; n++) {
        const trmi_space_class *k = trmi_space_class_of(s, n);
        const trmi_choice *choice = &r->m->found.best.choice;
        const int32_t i = choice->strategy[n];
        const trmi_op *op = trmi_space_op(s, n);
        const char *other = trmi_figures_runner(r, n);
        trm_shape_format(&trmi_output_of(s->graph, op, 0)->shape, shape, sizeof shape);
        trmi_report_open_object(t, NULL);
        trmi_report_put(t, trmi_string("name", op->name),
                        trmi_string("kind", trmi_op_def_of(op)->name), trmi_string("output", shape),
                        trmi_string("strategy", k->strategies[i].letters),
                        trmi_bool("in_parts", choice->stores[n] != TRMI_STORE_AS_READ),
                        trmi_bool("gathered_again", choice->stores[n] == TRMI_STORE_AGAIN),
                        trmi_bool("again", choice->again[n]), trmi_bool("repeats", k->repeats),
                        trmi_real("forward_seconds", k->forward[i]),
                        trmi_real("backward_seconds", k->backward[i]),
                        trmi_real("message_seconds", r->moves[n]));
        if (other != NULL) {
            trmi_report_put(t, trmi_string("runner_up", other),
                            trmi_real("runner_up_price_seconds", r->m->found.runners[n].price));
        }
        trmi_report_close(t);
    }
    trmi_report_close(t);
}

/* Puts the plans that were run to choose between them, because their predicted times are too close
 * for a prediction to decide. behind: share by which a plan is slower than the fastest; resolution:
 * the smallest difference that the turns can show. */
static void put_trial(trmi_figures *r) {
    const trmi_near_ties *o = &r->p->drive.trial;
    trmi_report *t = &r->report;
    trmi_report_put(t, trmi_string("chosen_by", o->turns > 0 ? "measurement" : "prediction"),
                    trmi_int("tried_turns", o->turns));
    trmi_report_open_array(t, "tried");
    for (int32_t i = 0; o->turns > 0 && i < o->count; i++) {
        const trmi_tied_plan *p = &o->list[i];
        trmi_report_open_object(t, NULL);
        trmi_report_put(
            t, trmi_string("name", p->name), trmi_real("predicted_seconds", p->predicted),
            trmi_real("measured_seconds", p->measured), trmi_real("behind", p->behind),
            trmi_real("resolution", p->resolution), trmi_bool("chosen", i == o->chosen));
        trmi_report_close(t);
    }
    trmi_report_close(t);
}

/* Puts the proof; null where the search has no bound. */
static void put_certificate(trmi_figures *r, const trm_planner_info *info) {
    trmi_report *t = &r->report;
    bool optimal = r->p->drive.mode == TRMI_SEARCH_OPTIMAL;
    trmi_report_open_object(t, "certificate");
    trmi_report_put(t, trmi_real("objective", info->step_seconds),
                    trmi_real("lower_bound", optimal ? info->lower_bound : NAN),
                    trmi_real("gap", optimal ? info->gap : NAN),
                    trmi_string("gap_reason", trmi_figures_gap_reason(r)),
                    trmi_real("solve_seconds", info->solve_seconds),
                    trmi_real("search_seconds", r->p->drive.search_seconds));
    if (r->p->model.exec.memory_bytes > 0) {
        trmi_report_put(t, trmi_real("limit_bytes", trmi_auto_limit(&r->p->drive)),
                        trmi_bool("limit_exact", trmi_auto_exact(r->m)));
    }
    put_trial(r);
    trmi_report_put(t, trmi_int("solves", r->m->found.solves),
                    trmi_int("branches", r->m->found.solution.branches));
    trmi_report_open_array(t, "assumptions");
    for (int32_t i = 0; trmi_figures_assumption(r, i) != NULL; i++) {
        trmi_report_put(t, trmi_string(NULL, trmi_figures_assumption(r, i)));
    }
    trmi_report_close(t);
    trmi_report_close(t);
}

/* Puts the messages of a step by kind. */
static void put_messages(trmi_figures *r) {
    trmi_report *t = &r->report;
    char axes[48];
    trmi_report_open_array(t, "communication");
    for (int32_t i = 0; i < r->traffic_count; i++) {
        const trmi_figures_traffic *o = &r->traffic[i];
        trmi_report_open_object(t, NULL);
        trmi_report_put(t, trmi_string("axes", trmi_figures_axes(&r->m->mesh, o->axes, axes)),
                        trmi_string("kind", trmi_move_name(o->move)), trmi_int("count", o->count),
                        trmi_whole("bytes", o->bytes), trmi_real("seconds", o->seconds),
                        trmi_real("exposed_seconds", o->exposed),
                        trmi_bool("gradients", o->gradient), trmi_bool("ahead", o->ahead),
                        trmi_string("#manner", o->gradient ? "gradients"
                                               : o->ahead  ? "ahead"
                                                           : "blocking"));
        trmi_report_close(t);
    }
    trmi_report_close(t);
}

/* Puts the operators that no plan can cut. */
static void put_warnings(trmi_figures *r) {
    trmi_report *t = &r->report;
    trmi_report_open_array(t, "warnings");
    for (int32_t n = 0, told = 0; n < r->m->space->nodes_count; n++) {
        const char *why = trmi_figures_uncut(r, n);
        if (why != NULL && r->p->ranks > 1) {
            trmi_report_open_object(t, NULL);
            trmi_report_put(t, trmi_string("operator", trmi_space_op(r->m->space, n)->name),
                            trmi_string("reason", why),
                            trmi_real("seconds", trmi_figures_price_of_uncut(r, n)),
                            trmi_bool("#first", told++ == 0));
            trmi_report_close(t);
        }
    }
    trmi_report_close(t);
}

/* Puts the other plans: baselines, the best of each mesh, and the curve of memory against time,
 * whose plans no other one beats in both. */
static void put_plans(trmi_figures *r) {
    trmi_report *t = &r->report;
    const trmi_auto_mesh *plain = trmi_planner_best(r->p); /* the list of plans without stages */
    const trmi_found *f = &plain->found;
    const double objective = r->m->found.objective;
    char mesh[48];
    trmi_report_open_array(t, "baselines");
    for (int32_t i = 0; i < f->baselines_count; i++) {
        const trmi_candidate *c = &f->baselines[i];
        put_candidate(t, plain->space, c, c->name, objective);
    }
    trmi_report_close(t);
    trmi_report_open_array(t, "meshes");
    for (int32_t i = 0; i < r->p->drive.meshes_count; i++) {
        const trmi_auto_mesh *o = &r->p->drive.meshes[i];
        put_candidate(t, o->space, &o->found.best, trmi_mesh_text(&o->mesh, mesh, sizeof mesh),
                      objective);
    }
    trmi_report_close(t);
    trmi_report_open_array(t, "frontier");
    for (int32_t i = 0; i < f->frontier_count; i++) {
        const trmi_candidate *c = &f->frontier[i];
        put_candidate(t, plain->space, c, c->name, objective);
    }
    trmi_report_close(t);
    trmi_report_put(t, trmi_int("frontier_points", f->front.count),
                    trmi_bool("frontier_exact", f->front.open == 0 && f->front.slack == 0),
                    trmi_real("frontier_slack_seconds", f->front.slack),
                    trmi_real("frontier_open_seconds", f->front.open_gap));
}

/* Puts the factors from which another plan is better; without one, the factor up to which the
 * search went. */
static void put_flips(trmi_figures *r) {
    trmi_report *t = &r->report;
    trmi_report_open_array(t, "flips");
    for (int32_t i = 0; i < r->p->flips_count; i++) {
        const trmi_flip *o = &r->p->flips[i];
        trmi_report_open_object(t, NULL);
        trmi_report_put(t, trmi_string("what", o->what), trmi_bool("changes", o->at > 0),
                        trmi_real(o->at > 0 ? "factor" : "looked_to", o->at > 0     ? o->at
                                                                      : o->high > 1 ? o->high
                                                                                    : o->low),
                        trmi_string("to", o->to));
        trmi_report_close(t);
    }
    trmi_report_close(t);
}

/* Contract in planner_report.h. */
void trmi_figures_put(trmi_figures *r) {
    trmi_report *t = &r->report;
    trm_planner_info info;
    char plan[200], day[12];
    static const char *const modes[] = {"optimal", "recursive", "propagation"};
    trm_planner_get_info(r->p, &info);
    trmi_planner_summary(r->m->space, &r->m->found.best.choice, plan, sizeof plan);
    trmi_report_put(t, trmi_string("event", "plan"), trmi_int("ranks", info.ranks),
                    trmi_string("mesh", info.mesh), trmi_int("global_batch", r->p->batch),
                    trmi_string("search", modes[r->p->drive.mode]),
                    trmi_bool("infeasible", info.infeasible), trmi_string("cuts", plan));
    put_measure(t, &r->measure);
    trmi_report_put(t, trmi_real("compiled_bytes", info.compiled_bytes),
                    trmi_real("samples_per_second", info.samples_per_second),
                    trmi_real("data_parallel_seconds", info.data_parallel_seconds),
                    trmi_real("utilisation", trmi_figures_utilisation(r)),
                    trmi_real("model_flops", trmi_figures_work(r)),
                    trmi_real("peak_flops", trmi_figures_peak(r)));
    if (trmi_figures_has_norms(r)) {
        trmi_report_put(t,
                        trmi_string("norms", trmi_planner_local_norms(r->p) ? "local" : "joined"),
                        trmi_real("norm_seconds", r->statistics));
    }
    trmi_report_put(t, trmi_string("links_measured", trmi_figures_links_day(r, day)),
                    trmi_string("oldest_cost", r->p->costs.oldest));
    put_certificate(r, &info);
    trmi_report_put(t, trmi_int("measured_operators", info.measured),
                    trmi_int("measured_now", r->p->costs.measured),
                    trmi_int("rounds", r->p->drive.rounds),
                    trmi_real("measured_share", trmi_costs_share_known(&r->p->costs, r->m->space,
                                                                       &r->m->found.best.choice)));
    put_messages(r);
    put_warnings(r);
    put_plans(r);
    put_flips(r);
    if (t->json) {
        put_operators(r);
        trmi_planner_put_timeline(r->p, t);
        trmi_figures_put_stages(r);
    }
}
