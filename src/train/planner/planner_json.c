/* SPDX-License-Identifier: Apache-2.0 */
/* Prints the report of a plan as one JSON object, with the figures of planner_text.c and some more:
 * every operator with its cut and runner-up, all candidates, the curve of memory against time.
 *
 * Units are in the names: seconds of one step, bytes of one rank. Numbers that are infinite or
 * unknown become null (trmi_text_json_number). Scripts read the object: members are added, and
 * never renamed. */
#include "train/planner/planner_report.h"

#include "base/format/json_member.h"

#include <math.h>
#include <stdio.h>

/* Appends the parts of the step's time and memory. operator_seconds: kernels. redistribution_,
 * exchange_ and gather_seconds: messages that operators wait for. gradient_seconds: reductions of
 * gradients, of which exposed_seconds are hidden by no computation. again_seconds:
 * recomputation. */
static void json_measure(trmi_text *t, const trmi_measure *m) {
    trmi_text_json_number_member(t, "step_seconds", m->step);
    trmi_text_json_number_member(t, "memory_bytes", m->bytes);
    trmi_text_printf(t,
                     ",\"memory\":{\"parameter_bytes\":%.0f,\"gradient_bytes\":%.0f,\"slot_bytes\":"
                     "%.0f,\"kept_bytes\":%.0f}",
                     m->weight_bytes, m->gradient_bytes, m->slot_bytes, m->kept_bytes);
    trmi_text_json_number_member(t, "operator_seconds", m->compute);
    trmi_text_json_number_member(t, "redistribution_seconds", m->redistribute);
    trmi_text_json_number_member(t, "exchange_seconds", m->exchange);
    trmi_text_json_number_member(t, "gather_seconds", m->gather);
    trmi_text_json_number_member(t, "again_seconds", m->again);
    trmi_text_json_number_member(t, "update_seconds", m->update);
    trmi_text_json_number_member(t, "gradient_seconds", m->gradient);
    trmi_text_json_number_member(t, "exposed_seconds", m->exposed);
    trmi_text_json_number_member(t, "ahead_seconds", m->ahead);
    trmi_text_json_number_member(t, "waited_seconds", m->waited);
    trmi_text_printf(t, ",\"buckets\":%d,\"gradients\":%d", (int)m->buckets, (int)m->messages);
}

/* Appends one plan: name, step, memory, cuts. */
static void json_candidate(trmi_text *t, const trmi_space *s, const trmi_candidate *c,
                           const char *name, bool first) {
    char plan[200];
    trmi_planner_summary(s, &c->choice, plan, sizeof plan);
    trmi_text_printf(t, "%s{\"name\":", first ? "" : ",");
    trmi_text_json_string(t, name);
    trmi_text_json_number_member(t, "step_seconds", c->measure.step);
    trmi_text_json_number_member(t, "memory_bytes", c->measure.bytes);
    trmi_text_printf(t, ",\"fits\":%s", c->fits ? "true" : "false");
    trmi_text_json_string_member(t, "cuts", plan);
    trmi_text_printf(t, "}");
}

/* Appends the list of all operators, with the cut and the next best one. */
static void json_operators(trmi_figures *r) {
    trmi_text *t = &r->text;
    const trmi_space *s = r->m->space;
    char shape[96];
    trmi_text_printf(t, ",\"operators\":[");
    for (int32_t n = 0; n < s->nodes_count; n++) {
        const trmi_space_class *k = trmi_space_class_of(s, n);
        int32_t i = r->m->found.best.choice.strategy[n];
        const trmi_op *op = trmi_space_op(s, n);
        const char *other = trmi_figures_runner(r, n);
        trmi_text_printf(t, "%s{\"name\":", n > 0 ? "," : "");
        trmi_text_json_string(t, op->name);
        trmi_text_json_string_member(t, "kind", trmi_op_def_of(op)->name);
        trmi_text_json_string_member(
            t, "output",
            trm_shape_format(&trmi_output_of(s->graph, op, 0)->shape, shape, sizeof shape));
        trmi_text_json_string_member(t, "strategy", k->strategies[i].letters);
        const uint8_t store = r->m->found.best.choice.stores[n];
        trmi_text_printf(t, ",\"in_parts\":%s,\"gathered_again\":%s",
                         store != TRMI_STORE_AS_READ ? "true" : "false",
                         store == TRMI_STORE_AGAIN ? "true" : "false");
        trmi_text_printf(t, ",\"again\":%s,\"repeats\":%s",
                         r->m->found.best.choice.again[n] ? "true" : "false",
                         k->repeats ? "true" : "false");
        trmi_text_json_number_member(t, "forward_seconds", k->forward[i]);
        trmi_text_json_number_member(t, "backward_seconds", k->backward[i]);
        trmi_text_json_number_member(t, "message_seconds", r->moves[n]);
        if (other != NULL) {
            trmi_text_json_string_member(t, "runner_up", other);
            trmi_text_json_number_member(t, "runner_up_price_seconds",
                                         r->m->found.runners[n].price);
        }
        trmi_text_printf(t, "}");
    }
    trmi_text_printf(t, "]");
}

/* Appends the plans that were run to choose between them, because their predicted times are too
 * close for a prediction to decide. behind: share by which a plan is slower than the fastest;
 * resolution: the smallest difference that the turns can show. */
static void json_trial(trmi_figures *r) {
    const trmi_near_ties *o = &r->p->drive.trial;
    trmi_text *t = &r->text;
    trmi_text_json_string_member(t, "chosen_by", o->turns > 0 ? "measurement" : "prediction");
    trmi_text_printf(t, ",\"tried_turns\":%d,\"tried\":[", (int)o->turns);
    for (int32_t i = 0; o->turns > 0 && i < o->count; i++) {
        const trmi_tied_plan *p = &o->list[i];
        trmi_text_printf(t, "%s{\"name\":", i > 0 ? "," : "");
        trmi_text_json_string(t, p->name);
        trmi_text_json_number_member(t, "predicted_seconds", p->predicted);
        trmi_text_json_number_member(t, "measured_seconds", p->measured);
        trmi_text_json_number_member(t, "behind", p->behind);
        trmi_text_json_number_member(t, "resolution", p->resolution);
        trmi_text_printf(t, ",\"chosen\":%s}", i == o->chosen ? "true" : "false");
    }
    trmi_text_printf(t, "]");
}

/* Appends messages, warnings, baselines, meshes, the curve of memory against time, and flips. */
static void json_lists(trmi_figures *r) {
    trmi_text *t = &r->text;
    const trmi_auto_mesh *plain = trmi_planner_best(r->p); /* the list of plans without stages */
    const trmi_found *f = &plain->found;
    char axes[48], mesh[48], name[80];
    trmi_text_printf(t, ",\"communication\":[");
    for (int32_t i = 0; i < r->traffic_count; i++) {
        const trmi_figures_traffic *o = &r->traffic[i];
        trmi_text_printf(t, "%s{\"axes\":\"%s\",\"kind\":\"%s\",\"count\":%d,\"bytes\":%.0f",
                         i ? "," : "", trmi_figures_axes(&r->m->mesh, o->axes, axes),
                         trmi_move_name(o->move), (int)o->count, o->bytes);
        trmi_text_json_number_member(t, "seconds", o->seconds);
        trmi_text_json_number_member(t, "exposed_seconds", o->exposed);
        trmi_text_printf(t, ",\"gradients\":%s,\"ahead\":%s}", o->gradient ? "true" : "false",
                         o->ahead ? "true" : "false");
    }
    /* operators that no plan can cut */
    trmi_text_printf(t, "],\"warnings\":[");
    for (int32_t n = 0, told = 0; n < r->m->space->nodes_count; n++) {
        const char *why = trmi_figures_uncut(r, n);
        if (why != NULL && r->p->ranks > 1) {
            trmi_text_printf(t, "%s{\"operator\":", told++ ? "," : "");
            trmi_text_json_string(t, trmi_space_op(r->m->space, n)->name);
            trmi_text_printf(t, ",\"reason\":");
            trmi_text_json_string(t, why);
            trmi_text_json_number_member(t, "seconds", trmi_figures_price_of_uncut(r, n));
            trmi_text_printf(t, "}");
        }
    }
    trmi_text_printf(t, "],\"baselines\":[");
    for (int32_t i = 0; i < f->baselines_count; i++) {
        json_candidate(t, plain->space, &f->baselines[i], f->baselines[i].name, i == 0);
    }
    trmi_text_printf(t, "],\"meshes\":[");
    for (int32_t i = 0; i < r->p->drive.meshes_count; i++) {
        trmi_mesh_text(&r->p->drive.meshes[i].mesh, mesh, sizeof mesh);
        snprintf(name, sizeof name, "%s", mesh);
        json_candidate(t, r->p->drive.meshes[i].space, &r->p->drive.meshes[i].found.best, name,
                       i == 0);
    }
    /* Write the curve: no other plan has both less memory and less time. */
    trmi_text_printf(t, "],\"frontier\":[");
    for (int32_t i = 0; i < f->frontier_count; i++) {
        json_candidate(t, plain->space, &f->frontier[i], f->frontier[i].name, i == 0);
    }
    trmi_text_printf(t, "],\"frontier_points\":%d,\"frontier_exact\":%s", (int)f->front.count,
                     f->front.open == 0 && f->front.slack == 0 ? "true" : "false");
    trmi_text_json_number_member(t, "frontier_slack_seconds", f->front.slack);
    trmi_text_json_number_member(t, "frontier_open_seconds", f->front.open_gap);
    /* factors from which another plan is better; without one, the factor up to which the search
     * went */
    trmi_text_printf(t, ",\"flips\":[");
    for (int32_t i = 0; i < r->p->flips_count; i++) {
        const trmi_flip *o = &r->p->flips[i];
        trmi_text_printf(t, "%s{\"what\":\"%s\",\"changes\":%s", i ? "," : "", o->what,
                         o->at > 0 ? "true" : "false");
        trmi_text_json_number_member(t, o->at > 0 ? "factor" : "looked_to",
                                     o->at > 0     ? o->at
                                     : o->high > 1 ? o->high
                                                   : o->low);
        trmi_text_json_string_member(t, "to", o->to);
        trmi_text_printf(t, "}");
    }
    trmi_text_printf(t, "]");
}

/* Appends the whole object; members are added to the end only, since scripts read it. */
void trmi_figures_print_json(trmi_figures *r) {
    trmi_text *t = &r->text;
    trm_planner_info info;
    char plan[200];
    static const char *const modes[] = {"optimal", "recursive", "propagation"};
    trm_planner_get_info(r->p, &info);
    trmi_planner_summary(r->m->space, &r->m->found.best.choice, plan, sizeof plan);
    trmi_text_printf(t,
                     "{\"event\":\"plan\",\"ranks\":%d,\"mesh\":\"%s\",\"global_batch\":%lld,"
                     "\"search\":\"%s\",\"infeasible\":%s",
                     (int)info.ranks, info.mesh, (long long)r->p->batch, modes[r->p->drive.mode],
                     info.infeasible ? "true" : "false");
    trmi_text_json_string_member(t, "cuts", plan);
    json_measure(t, &r->measure);
    /* Write the figures of the head. */
    trmi_text_json_number_member(t, "compiled_bytes", info.compiled_bytes);
    trmi_text_json_number_member(t, "samples_per_second", info.samples_per_second);
    trmi_text_json_number_member(t, "data_parallel_seconds", info.data_parallel_seconds);
    trmi_text_json_number_member(t, "utilisation", trmi_figures_utilisation(r));
    trmi_text_json_number_member(t, "model_flops", trmi_figures_work(r));
    trmi_text_json_number_member(t, "peak_flops", trmi_figures_peak(r));
    if (trmi_figures_has_norms(r)) {
        trmi_text_json_string_member(t, "norms",
                                     trmi_planner_local_norms(r->p) ? "local" : "joined");
        trmi_text_json_number_member(t, "norm_seconds", r->statistics);
    }
    char day[12];
    trmi_text_json_string_member(t, "links_measured", trmi_figures_links_day(r, day));
    trmi_text_json_string_member(t, "oldest_cost", r->p->costs.oldest);
    /* Write the proof; null where the search has no bound. */
    trmi_text_printf(t, ",\"certificate\":{\"objective\":");
    trmi_text_json_number(t, info.step_seconds);
    trmi_text_json_number_member(t, "lower_bound",
                                 r->p->drive.mode == TRMI_SEARCH_OPTIMAL ? info.lower_bound : NAN);
    trmi_text_json_number_member(t, "gap",
                                 r->p->drive.mode == TRMI_SEARCH_OPTIMAL ? info.gap : NAN);
    trmi_text_json_string_member(t, "gap_reason", trmi_figures_gap_reason(r));
    trmi_text_json_number_member(t, "solve_seconds", info.solve_seconds);
    trmi_text_json_number_member(t, "search_seconds", r->p->drive.search_seconds);
    if (r->p->model.exec.memory_bytes > 0) {
        trmi_text_json_number_member(t, "limit_bytes", trmi_auto_limit(&r->p->drive));
        trmi_text_printf(t, ",\"limit_exact\":%s", trmi_auto_exact(r->m) ? "true" : "false");
    }
    json_trial(r);
    trmi_text_printf(t, ",\"solves\":%d,\"branches\":%lld,\"assumptions\":[",
                     (int)r->m->found.solves, (long long)r->m->found.solution.branches);
    for (int32_t i = 0; trmi_figures_assumption(r, i) != NULL; i++) {
        trmi_text_append(t, ",", i > 0);
        trmi_text_json_string(t, trmi_figures_assumption(r, i));
    }
    trmi_text_printf(t, "]}");
    trmi_text_printf(t, ",\"measured_operators\":%d,\"measured_now\":%lld,\"rounds\":%d",
                     (int)info.measured, (long long)r->p->costs.measured, (int)r->p->drive.rounds);
    trmi_text_json_number_member(
        t, "measured_share",
        trmi_costs_share_known(&r->p->costs, r->m->space, &r->m->found.best.choice));
    json_lists(r);
    json_operators(r);
    trmi_planner_json_timeline(r->p, t);
    trmi_figures_json_stages(r);
    trmi_text_printf(t, "}");
}
