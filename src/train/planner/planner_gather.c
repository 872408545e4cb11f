/* SPDX-License-Identifier: Apache-2.0 */
/* Gathers the figures of a plan's report: simulates its step, folds equal operators into rows, and
 * adds up messages by kind and axes. Contracts in planner_report.h.
 *
 *   events of the simulated step --first pass---> end of backward
 *                                --second pass--> rows of operators, lines of messages
 *
 * The texts of the certificate's assumptions stand here, because text and JSON print the same ones.
 * Functions of both reports follow at the end; they compute figures and print nothing. */
#include "train/planner/planner_report.h"

#include "base/error.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Assumptions of the lower bound; docs/internals/planner.md explains them. */
static const char *const assumptions[] = {
    "costs of operators and messages are as listed; no message of a rank slows another",
    "a rank waits for its messages, but not for gradients, rings and gathers that begin ahead",
    "memory is what is kept: parameters, gradients, slots, and values that backward reads",
    "of a chain of operators every other one may be made again",
};
enum { ASSUMPTIONS = sizeof assumptions / sizeof *assumptions };
/* Assumptions of plans with stages, in addition to those above. */
static const char *const staged[] = {
    "stages begin where one value crosses",
    "micro-batches are powers of 2, at most 16 a stage, or the given number",
    "messages between stages do not slow operators",
    "gradients and updates of a stage follow its last backward",
    "ranks that wait leave shared cores to others",
};
enum { STAGED = sizeof staged / sizeof *staged };
static const char bounded[] = "of four axes: plans that cut columns of images, or samples by an "
                              "axis inside of one that cuts anything else, were not looked at";

const char *trmi_figures_assumption(const trmi_figures *r, int32_t i) {
    int32_t more = r->p->pipe.searched ? STAGED : 0;
    return i < ASSUMPTIONS                                   ? assumptions[i]
           : i < ASSUMPTIONS + more                          ? staged[i - ASSUMPTIONS]
           : i == ASSUMPTIONS + more && r->m->space->bounded ? bounded
                                                             : NULL;
}

/* Contract in planner_report.h. Without a reason that the search knows, the optimiser's curve is
 * above the line that the bound takes in its place. */
const char *trmi_figures_gap_reason(const trmi_figures *r) {
    const trm_planner *p = r->p;
    const trmi_found *found = &r->m->found;
    const trmi_near_ties *trial = &p->drive.trial;
    trm_planner_info info;
    trm_planner_get_info(p, &info);
    if (p->drive.mode != TRMI_SEARCH_OPTIMAL || info.infeasible || info.gap <= 1e-6) {
        return "";
    }
    if (p->pipe.chosen) {
        return trmi_pipe_gap_reason(p);
    }
    if (trial->turns > 0 && trial->chosen > 0) {
        return "another plan has the best prediction, and this one ran fastest";
    }
    if (p->pipe.searched && p->pipe.lower_bound < found->lower_bound * (1 - 1e-6)) {
        return "the bound is that of plans with stages, none of which was found fast enough";
    }
    if (p->drive.took_less && found->bound == TRMI_BOUND_WHOLE_LIMIT) {
        return "programs take less than the search counts, so that no bound is known";
    }
    if (found->bound == TRMI_BOUND_WHOLE_LIMIT) {
        return "the bound counts what is kept, and not what each program needs beyond";
    }
    if (found->bound == TRMI_BOUND_LAGRANGE) {
        return "lists of time and memory are too long here, and the bound is Lagrange's";
    }
    if (!p->pipe.searched && info.lower_bound < found->lower_bound * (1 - 1e-6)) {
        return "the bound is that of another mesh, of which no faster plan was found";
    }
    return r->m->space->costs.overlap > 0
               ? "the bound takes all messages that operators can hide as ready in time"
               : "the bound takes a line below the optimiser's measured curve";
}

/* ---- gathering ------------------------------------------------------------------------------- */

/* Returns by how many seconds a message lengthens the step. A message of an operator blocks; a
 * gradient bucket counts as far as it does not overlap with backward, and a gather that begins
 * ahead as far as the rank waits for it. */
static double exposed_of(const trmi_figures *r, const trmi_simulated_event *e,
                         double backward_end) {
    double overlap = r->m->space->costs.overlap,
           behind = fmax(0, e->begin + e->seconds - fmax(e->begin, backward_end));
    return e->kind == TRMI_EVENT_BUCKET  ? overlap * behind + (1 - overlap) * e->seconds
           : e->kind == TRMI_EVENT_AHEAD ? e->waited
                                         : e->seconds;
}

/* Adds a message to the line of its kind, axes and purpose. */
static void add_traffic(trmi_figures *r, const trmi_simulated_event *e, double backward_end) {
    bool gradient = e->kind == TRMI_EVENT_BUCKET, ahead = e->kind == TRMI_EVENT_AHEAD;
    int32_t i = 0;
    while (i < r->traffic_count &&
           (r->traffic[i].move != e->move || r->traffic[i].axes != e->axes ||
            r->traffic[i].gradient != gradient || r->traffic[i].ahead != ahead)) {
        i++;
    }
    if (i == TRMI_FIGURES_TRAFFIC) {
        return;
    }
    if (i == r->traffic_count) {
        r->traffic[r->traffic_count++] = (trmi_figures_traffic){
            .move = e->move, .axes = e->axes, .gradient = gradient, .ahead = ahead};
    }
    r->traffic[i].count++;
    r->traffic[i].bytes += e->bytes;
    r->traffic[i].seconds += e->seconds;
    r->traffic[i].exposed += exposed_of(r, e, backward_end);
}

/* Folds operators of the same group with the same cut into one row each, if their messages take
 * the same time within 2 %. */
static void fold_rows(trmi_figures *r) {
    const trmi_space *s = r->m->space;
    const trmi_choice *c = &r->m->found.best.choice;
    for (int32_t n = 0; n < s->nodes_count; n++) {
        int32_t i = 0;
        /* Find a row of equal operators. */
        for (; i < r->rows_count; i++) {
            int32_t o = r->rows[i].node;
            double off = fabs(r->moves[o] - r->moves[n]);
            if (s->nodes[o].group == s->nodes[n].group && c->strategy[o] == c->strategy[n] &&
                c->stores[o] == c->stores[n] && c->again[o] == c->again[n] &&
                off <= 0.02 * r->moves[o] + 1e-9) {
                break;
            }
        }
        if (i == r->rows_count) {
            const trmi_space_class *k = trmi_space_class_of(s, n);
            double again = c->again[n] ? k->again[c->strategy[n]] : 0;
            r->rows[r->rows_count++] =
                (trmi_figures_row){.node = n,
                                   .forward = k->forward[c->strategy[n]],
                                   .backward = k->backward[c->strategy[n]] + again,
                                   .moves = r->moves[n]};
        }
        r->rows[i].count++;
    }
}

/* Replaces the step and the memory of one micro-batch on all stages by those of the plan. */
static void count_stages(trmi_figures *r) {
    const trmi_pipe_plan *plan = &r->p->pipe.found.rows[0].plan;
    const trmi_pipe_stage *most = &plan->ranks[0];
    for (int32_t s = 1; s < plan->shape.stages; s++) {
        most = plan->ranks[s].bytes > most->bytes ? &plan->ranks[s] : most;
    }
    r->measure.step = plan->step;
    r->measure.bytes = plan->bytes;
    r->measure.weight_bytes = most->weight_bytes;
    r->measure.gradient_bytes = most->gradient_bytes;
    r->measure.slot_bytes = most->slot_bytes;
    r->measure.kept_bytes = most->kept_bytes + most->staging_bytes;
}

/* Contract in planner_report.h. First pass over the events: the end of backward; second pass:
 * messages. */
trm_status trmi_figures_gather(trmi_figures *r, const trm_planner *p, trm_error *err) {
    r->p = p;
    r->m = p->pipe.chosen ? &p->pipe.mesh : trmi_planner_best(p);
    const trmi_space *s = r->m->space;
    /* simulate the step of the chosen plan */
    trmi_router *router;
    TRMI_TRY(trmi_router_create(&s->mesh, &s->prices, &router, err));
    trm_status status =
        trmi_space_timeline(s, &r->m->found.best.choice, router, &r->timeline, &r->measure, err);
    trmi_router_destroy(router);
    r->moves = trmi_alloc(((size_t)s->nodes_count + 1) * sizeof *r->moves);
    r->rows = trmi_alloc(((size_t)s->nodes_count + 1) * sizeof *r->rows);
    if (status == TRM_OK && (r->moves == NULL || r->rows == NULL)) {
        status = TRMI_NO_MEMORY(err, "for the report");
    }
    /* first pass: the end of backward */
    double backward_end = 0;
    for (int64_t i = 0; status == TRM_OK && i < r->timeline.count; i++) {
        const trmi_simulated_event *e = &r->timeline.events[i];
        bool serial = e->kind == TRMI_EVENT_OP || e->kind == TRMI_EVENT_MOVE;
        backward_end = serial ? fmax(backward_end, e->begin + e->seconds) : backward_end;
    }
    for (int64_t i = 0; status == TRM_OK && i < r->timeline.count; i++) {
        const trmi_simulated_event *e = &r->timeline.events[i];
        const bool ahead = e->kind == TRMI_EVENT_AHEAD;
        if ((e->kind == TRMI_EVENT_MOVE || ahead) && e->node >= 0) {
            /* Count the messages of each operator, and those of batch norms' statistics; messages
             * between ranks count by kind and axes. */
            bool norm = e->what != NULL && strcmp(e->what, "statistics") == 0;
            r->moves[e->node] += ahead ? e->waited : e->seconds;
            r->statistics += norm ? e->seconds : 0;
            r->norms += norm;
        }
        if ((e->kind == TRMI_EVENT_MOVE || e->kind == TRMI_EVENT_BUCKET || ahead) &&
            e->move != TRMI_MOVE_LOCAL) {
            add_traffic(r, e, backward_end);
        }
    }
    if (status == TRM_OK) {
        fold_rows(r);
    }
    if (status == TRM_OK && p->pipe.chosen) {
        count_stages(r);
    }
    return status;
}

/* ---- functions of both reports --------------------------------------------------------------- */

/* Contract in planner_report.h. */
const char *trmi_figures_axes(const trmi_mesh *mesh, uint32_t axes, char text[48]) {
    size_t used = 0;
    text[0] = '\0';
    for (int32_t i = 0; i < mesh->axes; i++) {
        if (axes >> i & 1) {
            used += (size_t)snprintf(text + used, 48 - used, "%s%s(%d)", used > 0 ? "+" : "",
                                     mesh->name[i], mesh->size[i]);
        }
    }
    return text;
}

const char *trmi_figures_runner(const trmi_figures *r, int32_t node) {
    int32_t i = r->m->found.runners[node].strategy;
    return i < 0 ? NULL : trmi_space_class_of(r->m->space, node)->strategies[i].letters;
}

double trmi_figures_work(const trmi_figures *r) {
    const trm_graph *g = r->m->space->graph;
    double flops = 0;
    for (int64_t i = 1; i < g->ops_count; i++) {
        flops += trmi_op_cost(g, &g->ops[i]).flops;
    }
    return flops * (r->p->pipe.chosen ? r->p->pipe.found.rows[0].plan.shape.micros : 1);
}

/* Contract in planner_report.h. Without a rate in the links file: the machine's measured rate,
 * of which operators reach the share TRMI_COSTS_REACHED. */
double trmi_figures_peak(const trmi_figures *r) {
    const trm_planner *p = r->p;
    return p->links.flops > 0 ? p->links.flops
                              : 1 / (TRMI_COSTS_REACHED * p->costs.flop * p->costs.factor);
}

double trmi_figures_utilisation(const trmi_figures *r) {
    return trmi_figures_work(r) / (r->p->ranks * r->measure.step * trmi_figures_peak(r));
}

bool trmi_figures_has_norms(const trmi_figures *r) {
    for (int32_t n = 0; n < r->m->space->nodes_count; n++) {
        trmi_op_kind kind = trmi_space_op(r->m->space, n)->kind;
        if (kind == TRMI_OP_BATCH_NORM || kind == TRMI_OP_NORM_ACT) {
            return true;
        }
    }
    return false;
}

const char *trmi_figures_links_day(const trmi_figures *r, char text[12]) {
    const char *at = r->p->links_text != NULL ? strstr(r->p->links_text, "measured ") : NULL;
    snprintf(text, 12, "%.10s", at != NULL ? at + strlen("measured ") : "");
    return text;
}

const char *trmi_figures_uncut(const trmi_figures *r, int32_t node) {
    char letters[TRMI_PARTITION_LETTERS];
    const char *reason = NULL;
    trmi_partition_loops(r->m->space->graph, trmi_space_op(r->m->space, node), letters, &reason);
    return letters[0] == '\0' ? reason : NULL;
}

/* Contract in planner_report.h. An upper bound: the time that a perfect cut would save, and the
 * messages of the operator. */
double trmi_figures_price_of_uncut(const trmi_figures *r, int32_t node) {
    const trmi_space_class *k = trmi_space_class_of(r->m->space, node);
    int32_t i = r->m->found.best.choice.strategy[node];
    return (k->forward[i] + k->backward[i]) * (1 - 1.0 / r->p->ranks) + r->moves[node];
}

void trmi_figures_free(trmi_figures *r) {
    trmi_timeline_free(&r->timeline);
    trmi_free(r->moves);
    trmi_free(r->rows);
}
