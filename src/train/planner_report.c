/* The planner's report: for people, and as one JSON object. */
#include "train/planner.h"

#include "base/error.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A line of the table of operators: equal operators with equal cuts. */
typedef struct row {
    int32_t node, count; /* the first of them */
    double forward, backward, moves; /* of one */
} row;

/* Messages of one kind over one set of axes. */
typedef struct traffic {
    trmi_move move;
    uint32_t axes;
    bool gradient;
    int32_t count;
    double bytes, seconds, exposed;
} traffic;

enum { TRAFFIC_MAX = 96 };
typedef struct report {
    const trm_planner *p;
    const trmi_planned_mesh *m;
    trmi_timeline timeline;
    trmi_measure measure;
    double *moves; /* [nodes] blocking seconds of messages */
    double statistics; /* ... of joined norms */
    int32_t norms;
    row *rows;
    int32_t rows_count;
    traffic traffic[TRAFFIC_MAX];
    int32_t traffic_count;
    trmi_text text;
} report;

/* What the bound takes for granted; docs/auto-parallel.md says more. */
static const char *const assumptions[] = {
    "costs of operators and messages are as listed, and no two messages of a rank slow each other down",
    "messages block the rank that waits for them, gradients do not",
    "memory is what is kept: parameters, gradients, slots, and values that backward reads",
    "of a chain of operators every other one may be made again",
};
enum { ASSUMPTIONS = sizeof assumptions / sizeof *assumptions };
static const char bounded[] = "of four axes: plans that cut columns of images, or samples by an axis inside of one that cuts anything else, were not looked at";

/* The i-th that this proof makes; NULL: there are no more. */
static const char *assumption(const report *r, int32_t i) {
    return i < ASSUMPTIONS ? assumptions[i] : i == ASSUMPTIONS && r->m->space->bounded ? bounded : NULL;
}

/* ---- gathering -------------------------------------------------------------------------------------------- */

/* Seconds of a message that the step is longer by: a bucket's, as far as it does not run beside operators. */
static double exposed_of(const report *r, const trmi_event *e, double backward_end) {
    double overlap = r->m->space->costs.overlap, behind = fmax(0, e->begin + e->seconds - fmax(e->begin, backward_end));
    return e->kind == TRMI_EVENT_BUCKET ? overlap * behind + (1 - overlap) * e->seconds : e->seconds;
}

static void add_traffic(report *r, const trmi_event *e, double backward_end) {
    bool gradient = e->kind == TRMI_EVENT_BUCKET;
    int32_t i = 0;
    while (i < r->traffic_count && (r->traffic[i].move != e->move || r->traffic[i].axes != e->axes ||
                                    r->traffic[i].gradient != gradient)) {
        i++;
    }
    if (i == TRAFFIC_MAX) {
        return;
    }
    if (i == r->traffic_count) {
        r->traffic[r->traffic_count++] = (traffic){.move = e->move, .axes = e->axes, .gradient = gradient};
    }
    r->traffic[i].count++;
    r->traffic[i].bytes += e->bytes;
    r->traffic[i].seconds += e->seconds;
    r->traffic[i].exposed += exposed_of(r, e, backward_end);
}

static void fold_rows(report *r) {
    const trmi_space *s = r->m->space;
    const trmi_choice *c = &r->m->found.best.choice;
    for (int32_t n = 0; n < s->nodes_count; n++) {
        int32_t i = 0;
        for (; i < r->rows_count; i++) {
            int32_t o = r->rows[i].node;
            double off = fabs(r->moves[o] - r->moves[n]);
            if (s->nodes[o].group == s->nodes[n].group && c->strategy[o] == c->strategy[n] &&
                c->parts[o] == c->parts[n] && c->again[o] == c->again[n] && off <= 0.02 * r->moves[o] + 1e-9) {
                break;
            }
        }
        if (i == r->rows_count) {
            const trmi_space_class *k = trmi_space_class_of(s, n);
            r->rows[r->rows_count++] = (row){.node = n, .forward = k->forward[c->strategy[n]],
                                             .backward = k->backward[c->strategy[n]] + (c->again[n] ? k->again[c->strategy[n]] : 0), .moves = r->moves[n]};
        }
        r->rows[i].count++;
    }
}

static trm_status gather(report *r, trm_error *err) {
    const trmi_space *s = r->m->space;
    trmi_router *router;
    TRMI_TRY(trmi_router_create(&s->mesh, &s->prices, &router, err));
    trm_status status = trmi_space_timeline(s, &r->m->found.best.choice, router, &r->timeline, &r->measure, err);
    trmi_router_destroy(router);
    r->moves = trmi_alloc(((size_t)s->nodes_count + 1) * sizeof *r->moves);
    r->rows = trmi_alloc(((size_t)s->nodes_count + 1) * sizeof *r->rows);
    if (status == TRM_OK && (r->moves == NULL || r->rows == NULL)) {
        status = TRMI_FAIL(err, TRM_NOMEM, "no memory for the report");
    }
    double backward_end = 0;
    for (int64_t i = 0; status == TRM_OK && i < r->timeline.count; i++) {
        const trmi_event *e = &r->timeline.events[i];
        bool serial = e->kind == TRMI_EVENT_OP || e->kind == TRMI_EVENT_MOVE;
        backward_end = serial ? fmax(backward_end, e->begin + e->seconds) : backward_end;
    }
    for (int64_t i = 0; status == TRM_OK && i < r->timeline.count; i++) {
        const trmi_event *e = &r->timeline.events[i];
        if (e->kind == TRMI_EVENT_MOVE && e->node >= 0) {
            bool norm = e->what != NULL && strcmp(e->what, "statistics") == 0;
            r->moves[e->node] += e->seconds;
            r->statistics += norm ? e->seconds : 0;
            r->norms += norm;
        }
        if ((e->kind == TRMI_EVENT_MOVE || e->kind == TRMI_EVENT_BUCKET) && e->move != TRMI_MOVE_LOCAL) {
            add_traffic(r, e, backward_end);
        }
    }
    if (status == TRM_OK) {
        fold_rows(r);
    }
    return status;
}

/* ---- words -------------------------------------------------------------------------------------------------- */

static const char *size_text(double bytes, char text[24]) {
    static const char *const units[] = {"B", "KB", "MB", "GB", "TB", "PB"};
    int u = 0;
    while (bytes >= 999.5 && u < 5) {
        bytes /= 1000;
        u++;
    }
    snprintf(text, 24, "%.*f %s", u == 0 || bytes >= 100 ? 0 : bytes < 10 ? 2 : 1, bytes, units[u]);
    return text;
}

static const char *time_text(double seconds, char text[24]) {
    const char *unit = seconds < 1e-3 ? "us" : seconds < 1 ? "ms" : "s";
    double value = seconds < 1e-3 ? seconds * 1e6 : seconds < 1 ? seconds * 1e3 : seconds;
    snprintf(text, 24, "%.*f %s", value < 10 ? 3 : value < 100 ? 2 : 1, value, unit);
    return text;
}

/* "2 of a, 4 of b" -> "a b": names of axes. */
static const char *axes_text(const trmi_mesh *mesh, uint32_t axes, char text[48]) {
    size_t used = 0;
    text[0] = '\0';
    for (int32_t i = 0; i < mesh->axes; i++) {
        if (axes >> i & 1) {
            used += (size_t)snprintf(text + used, 48 - used, "%s%s(%d)", used > 0 ? "+" : "", mesh->name[i], mesh->size[i]);
        }
    }
    return text;
}

static const char *letters_of(const report *r, int32_t node) {
    return trmi_space_class_of(r->m->space, node)->strategies[r->m->found.best.choice.strategy[node]].letters;
}

static const char *runner_of(const report *r, int32_t node) {
    int32_t i = r->m->found.runners[node].strategy;
    return i < 0 ? NULL : trmi_space_class_of(r->m->space, node)->strategies[i].letters;
}

/* Arithmetic of the model, forward and backward, a second and rank, of what a rank's cores can do; nothing that is done twice
 * counts. */
static double work_of(const report *r) {
    const trm_graph *g = r->m->space->graph;
    double flops = 0;
    for (int64_t i = 1; i < g->ops_count; i++) {
        flops += trmi_op_cost(g, &g->ops[i]).flops;
    }
    return flops;
}

static double peak_of(const report *r) {
    const trm_planner *p = r->p;
    return p->links.flops > 0 ? p->links.flops : 1 / (TRMI_COSTS_REACHED * p->costs.flop * p->costs.factor);
}

static double utilisation_of(const report *r) { return work_of(r) / (r->p->ranks * r->measure.step * peak_of(r)); }

static bool has_norms(const report *r) {
    for (int32_t n = 0; n < r->m->space->nodes_count; n++) {
        trmi_op_kind kind = trmi_space_op(r->m->space, n)->kind;
        if (kind == TRMI_OP_BATCH_NORM || kind == TRMI_OP_NORM_ACT) {
            return true;
        }
    }
    return false;
}

/* The day in the first line of measured links; "": given or guessed. */
static const char *links_day(const report *r, char text[12]) {
    const char *at = r->p->links_text != NULL ? strstr(r->p->links_text, "measured ") : NULL;
    snprintf(text, 12, "%.10s", at != NULL ? at + strlen("measured ") : "");
    return text;
}

/* ---- for people ----------------------------------------------------------------------------------------------- */

/* What a limit of memory does to the proof. */
static void tell_limit(report *r) {
    char a[24], b[24];
    if (r->p->options.memory_bytes > 0 && !r->m->found.infeasible) {
        trmi_text_printf(&r->text, "limit         %s a rank, %s of it for what the search does not count; %s\n",
                         size_text((double)r->p->options.memory_bytes, a), size_text(r->p->beyond, b),
                         r->m->found.bound == TRMI_BOUND_FREE    ? "it does not bind"
                         : r->m->found.bound == TRMI_BOUND_EXACT ? "exact: every plan within it was compared, by lists of time and memory"
                                                                 : "the bound is Lagrange's");
    }
}

/* What predictions could not tell apart, as it ran. */
static void tell_trial(report *r) {
    const trmi_trial *t = &r->p->trial;
    char a[24], b[24];
    if (t->turns == 0) {
        return;
    }
    trmi_text_printf(&r->text, "chosen        by measurement among %d plans within %.1f %%%s:", (int)t->count,
                     100 * (t->list[t->count - 1].predicted / t->list[0].predicted - 1), t->kept ? ", run earlier" : "");
    for (int32_t i = 0; i < t->count; i++) {
        const trmi_trial_plan *o = &t->list[i];
        trmi_text_printf(&r->text, "%s %s%s %s (%s predicted", i > 0 ? "," : "", o->name, i == t->chosen ? ", this one," : "",
                         time_text(o->measured, a), time_text(o->predicted, b));
        if (o->behind != 0 || o->resolution != 0) { /* the fastest is beside itself */
            trmi_text_printf(&r->text, "; %.1f %% behind, of which %.1f %% may be chance", 100 * o->behind, 100 * o->resolution);
        }
        trmi_text_printf(&r->text, ")");
    }
    trmi_text_printf(&r->text, "; %d turns; of what may be as fast data parallel is taken, or what was predicted to be the fastest\n",
                     (int)t->turns);
}

static void tell_head(report *r) {
    trm_planner_info info;
    char a[24], b[24], c[24], d[24], plan[200];
    trmi_text *t = &r->text;
    const trmi_measure *m = &r->measure;
    trm_planner_describe(r->p, &info);
    trmi_planner_summary(r->m->space, &r->m->found.best.choice, plan, sizeof plan);
    if (info.infeasible) {
        trmi_text_printf(t, "NOTHING FITS  %s a rank: the plan of least memory follows\n",
                         size_text((double)r->p->options.memory_bytes, a));
    }
    trmi_text_printf(t, "ranks         %d, mesh %s (%d searched), global batch %lld\n", (int)info.ranks, info.mesh,
                     (int)info.meshes, (long long)r->p->batch);
    trmi_text_printf(t, "plan          %s\n", plan);
    trmi_text_printf(t, "step          %s predicted, %.4g samples/s; data parallel %s (%.2fx)\n",
                     time_text(info.step_seconds, a), info.samples_per_second, time_text(info.data_parallel_seconds, b),
                     info.data_parallel_seconds / info.step_seconds);
    tell_trial(r);
    trmi_text_printf(t, "memory        %s a rank: parameters %s, gradients %s, slots %s, kept for backward %s\n",
                     size_text(m->bytes, a), size_text(m->weight_bytes, b), size_text(m->gradient_bytes, c),
                     size_text(m->slot_bytes, d), size_text(m->kept_bytes, plan));
    if (info.compiled_bytes > 0) {
        trmi_text_printf(t, "compiled      %s on rank 0: the whole program, by which its process grows\n", size_text(info.compiled_bytes, a));
    }
    if (r->p->mode == TRMI_SEARCH_OPTIMAL) {
        trmi_text_printf(t, "proof         no plan of these meshes%s takes less than %s by these costs: gap %.3f %%; %d "
                         "operators, %d solves in %s\n", r->p->options.memory_bytes > 0 ? " that fits" : "",
                         time_text(info.lower_bound, a), 100 * info.gap, (int)info.operators, (int)r->m->found.solves,
                         time_text(info.solve_seconds, b));
        for (int32_t i = 0; assumption(r, i) != NULL; i++) {
            trmi_text_printf(t, "%-13s %s\n", i == 0 ? "assuming" : "", assumption(r, i));
        }
        tell_limit(r);
    } else {
        trmi_text_printf(t, "proof         none: this search has no bound (--search optimal has)\n");
    }
    double gain = info.data_parallel_seconds > 0 ? 1 - info.lower_bound / info.data_parallel_seconds : 1;
    if (r->p->mode == TRMI_SEARCH_OPTIMAL && gain < 0.02 && info.ranks > 1) {
        trmi_text_printf(t, "verdict       data parallel is as good as optimal: no plan%s is faster by more than %.2f %%\n",
                         r->p->options.memory_bytes > 0 ? " that fits" : "", 100 * fmax(0, gain));
    }
    if (has_norms(r) && info.ranks > 1 && trmi_planner_local_norms(r->p)) {
        trmi_text_printf(t, "norms         over each rank's own samples (--sync-batch-norm off): the function of data_parallel, not that of one device\n");
    } else if (has_norms(r) && info.ranks > 1) {
        trmi_text_printf(t, "norms         over the samples of all ranks, as on one device, in every plan here: %d messages, %s of the step. "
                         "The mode data_parallel takes each rank's own: --sync-batch-norm off plans that\n", (int)r->norms,
                         time_text(r->statistics, a));
    }
    trmi_text_printf(t, "utilisation   %.1f %%: %.4g GFLOP a step of the model, %d ranks of %.4g GFLOP/s\n", 100 * utilisation_of(r),
                     work_of(r) / 1e9, (int)info.ranks, peak_of(r) / 1e9);
    char day[12];
    trmi_text_printf(t, "costs         %d operator shapes measured (%d now, in %s), %d rounds of search; links %s%s; operators x "
                     "%.2f%s%s\n", (int)info.measured, (int)r->p->costs.measured, time_text(r->p->costs.measure_seconds, a),
                     (int)r->p->rounds, r->p->links.curves_count > 0 ? "measured " : r->p->options.links == NULL ? "guessed" : "given",
                     links_day(r, day)[0] != '\0' ? day : "", r->p->costs.factor, r->p->costs.oldest[0] != '\0' ? "; the oldest of " : "",
                     r->p->costs.oldest);
}

static void tell_time(report *r) {
    char a[24], b[24], c[24], d[24], e[24], f[24], g[24];
    const trmi_measure *m = &r->measure;
    trmi_text_printf(&r->text, "\ntime          operators %s, redistribution %s, halo and statistics %s, gathering "
                     "parameters %s, made again %s, optimiser %s\n", time_text(m->compute, a), time_text(m->redistribute, b),
                     time_text(m->exchange, c), time_text(m->gather, d), time_text(m->again, f), time_text(m->update, e));
    trmi_text_printf(&r->text, "gradients     %s in %d buckets of %d gradients: %s exposed behind backward", time_text(m->gradient, f), (int)m->buckets,
                     (int)m->messages, time_text(m->exposed, g));
    if (m->joint_bytes > 0) {
        trmi_text_printf(&r->text, "; %s more are made by all ranks together, each its slice from all samples", size_text(m->joint_bytes, f));
    }
    trmi_text_printf(&r->text, "\n");
}

static bool has_parameters(const report *r, int32_t node) {
    const trm_graph *g = r->m->space->graph;
    const trmi_op *op = trmi_space_op(r->m->space, node);
    for (int32_t i = 0; i < op->inputs_count; i++) {
        if (trmi_parameter_of(g, op->inputs[i]) != NULL) {
            return true;
        }
    }
    return false;
}

static void tell_operators(report *r) {
    char a[24], b[24], c[24], d[24], shape[96], name[64], cut[16];
    const trmi_space *s = r->m->space;
    trmi_text_printf(&r->text, "\n%-34s %3s %-22s %-7s %10s %10s %10s  %s\n", "operator", "x", "output", "cut", "forward",
                     "backward", "messages", "runner-up, and what the step would cost more (p: parameters in parts, a: made again)");
    for (int32_t i = 0; i < r->rows_count; i++) {
        const row *o = &r->rows[i];
        const trmi_op *op = trmi_space_op(s, o->node);
        const char *other = runner_of(r, o->node);
        double price = r->m->found.runners[o->node].price;
        size_t length = strlen(op->name);
        snprintf(name, sizeof name, "%s%s", length > 33 ? "..." : "", length > 33 ? op->name + length - 30 : op->name);
        trm_shape_format(&trmi_output_of(s->graph, op, 0)->shape, shape, sizeof shape);
        const trmi_choice *choice = &r->m->found.best.choice;
        snprintf(cut, sizeof cut, "%s%s%s", letters_of(r, o->node), choice->parts[o->node] && has_parameters(r, o->node) ? " p" : "",
                 choice->again[o->node] ? " a" : "");
        trmi_text_printf(&r->text, "%-34s %3d %-22.22s %-7s %10s %10s %10s  ", name, (int)o->count, shape, cut,
                         time_text(o->forward, a), time_text(o->backward, b), time_text(o->moves, c));
        if (other == NULL || !(price < INFINITY)) {
            trmi_text_printf(&r->text, "none\n");
        } else {
            trmi_text_printf(&r->text, "%s +%s\n", other, time_text(fmax(0, price), d));
        }
    }
}

static void tell_traffic(report *r) {
    char a[24], b[24], c[24], axes[48];
    trmi_text_printf(&r->text, "\n%-16s %-18s %6s %10s %12s %12s\n", "messages over", "kind", "count", "bytes", "time", "exposed");
    for (int32_t i = 0; i < r->traffic_count; i++) {
        const traffic *o = &r->traffic[i];
        trmi_text_printf(&r->text, "%-16s %-18s %6d %10s %12s %12s  %s\n", axes_text(&r->m->mesh, o->axes, axes),
                         trmi_move_name(o->move), (int)o->count, size_text(o->bytes, a), time_text(o->seconds, b),
                         time_text(o->exposed, c), o->gradient ? "gradients" : "blocking");
    }
    if (r->traffic_count == 0) {
        trmi_text_printf(&r->text, "none\n");
    }
}

/* What is proved about the curve. */
static void tell_curve(report *r) {
    char a[24];
    const trmi_front *front = &r->m->found.front;
    trmi_text_printf(&r->text, "\nmemory against time (kept, a rank): of %d plans that no other beats in both; ", (int)front->count);
    if (front->open > 0) {
        trmi_text_printf(&r->text, "in %d stretches plans between them may be up to %s faster than the next one that fits\n",
                         (int)front->open, time_text(front->open_gap, a));
    } else if (front->slack > 0) {
        trmi_text_printf(&r->text, "a plan within a point's memory is faster by at most %s\n", time_text(front->slack, a));
    } else {
        trmi_text_printf(&r->text, "exact\n");
    }
}

static void tell_others(report *r) {
    char a[24], b[24], plan[200];
    const trmi_found *f = &r->m->found;
    trmi_text_printf(&r->text, "\n%-36s %12s %8s %10s\n", "other plans", "step", "", "memory");
    for (int32_t i = 0; i < f->baselines_count; i++) {
        const trmi_candidate *c = &f->baselines[i];
        trmi_text_printf(&r->text, "%-36s %12s %7.2fx %10s%s\n", c->name, time_text(c->measure.step, a),
                         c->measure.step / f->objective, size_text(c->measure.bytes, b), c->fits ? "" : "  does not fit");
    }
    for (int32_t i = 0; i < r->p->meshes_count; i++) {
        char mesh[48], name[80];
        const trmi_found *o = &r->p->meshes[i].found;
        if (i != r->p->best) {
            snprintf(name, sizeof name, "best on mesh %s", trmi_mesh_text(&r->p->meshes[i].mesh, mesh, sizeof mesh));
            trmi_text_printf(&r->text, "%-36s %12s %7.2fx %10s%s\n", name, time_text(o->objective, a), o->objective / f->objective,
                             size_text(o->best.measure.bytes, b), o->infeasible ? "  does not fit" : "");
        }
    }
    if (f->frontier_count > 1) {
        tell_curve(r);
    }
    for (int32_t i = 0; i < f->frontier_count && f->frontier_count > 1; i++) {
        const trmi_candidate *c = &f->frontier[i];
        trmi_planner_summary(r->m->space, &c->choice, plan, sizeof plan);
        trmi_text_printf(&r->text, "%12s %12s  %s\n", size_text(c->measure.bytes, a), time_text(c->measure.step, b), plan);
    }
}

static void tell_flips(report *r) {
    if (r->p->flips_count > 0) {
        trmi_text_printf(&r->text, "\nwhen another plan is better by 2 %%\n");
    }
    for (int32_t i = 0; i < r->p->flips_count; i++) {
        const trmi_flip *f = &r->p->flips[i];
        char from[24] = "";
        if (f->at > 0 && f->now > 0) {
            snprintf(from, sizeof from, " (%s %.0f)", f->at > 1 ? "from" : "to", f->at > 1 ? ceil(f->now * f->at) : floor(f->now * f->at));
        }
        if (f->at > 0) {
            trmi_text_printf(&r->text, "%-10s x %.3g%s: %s\n", f->what, f->at, from, f->to);
        } else if (f->low < 1 || f->high > 1) {
            trmi_text_printf(&r->text, "%-10s not from x %.3g to x %.3g\n", f->what, f->low, f->high);
        }
    }
}

/* Why an operator runs whole on every rank; NULL: it need not. */
static const char *uncut(const report *r, int32_t node) {
    char letters[TRMI_SHARD_LETTERS];
    const char *reason = NULL;
    trmi_shard_loops(r->m->space->graph, trmi_space_op(r->m->space, node), letters, &reason);
    return letters[0] == '\0' ? reason : NULL;
}

/* What the step would be shorter by, could it be cut among all ranks: its work, and what it waits for. */
static double price_of_uncut(const report *r, int32_t node) {
    const trmi_space_class *k = trmi_space_class_of(r->m->space, node);
    int32_t i = r->m->found.best.choice.strategy[node];
    return (k->forward[i] + k->backward[i]) * (1 - 1.0 / r->p->ranks) + r->moves[node];
}

static void tell_uncut(report *r) {
    char a[24];
    for (int32_t n = 0, told = 0; n < r->m->space->nodes_count; n++) {
        const char *why = uncut(r, n);
        if (why != NULL && r->p->ranks > 1) {
            trmi_text_printf(&r->text, "%swarning       %s runs whole on every rank, which costs up to %s of the step: %s\n", told++ ? "" : "\n",
                             trmi_space_op(r->m->space, n)->name, time_text(price_of_uncut(r, n), a), why);
        }
    }
}

/* Bytes that a node keeps for backward. */
static double held(const trmi_space_class *k, const trmi_choice *c, int32_t n) {
    return k->kept[c->strategy[n]] - (c->again[n] ? k->saved[c->strategy[n]] : 0);
}

/* The cheapest first: a smaller batch costs nothing, ranks do. */
static void tell_way_out(report *r) {
    char a[24];
    const trmi_way_out *w = &r->p->way_out;
    trmi_text *t = &r->text;
    double needed = fmax(r->p->compiled_bytes, r->m->found.best.measure.bytes + r->p->beyond);
    trmi_text_printf(t, "cheapest way out: ");
    if (w->batch > 0) {
        trmi_text_printf(t, "a batch of %lld (%lld a rank), %.4g samples/s; ", (long long)w->batch, (long long)(w->batch / r->p->ranks),
                         (double)w->batch / w->batch_step);
    }
    if (w->ranks > 0) {
        trmi_text_printf(t, "%d ranks, %.4g samples/s; ", (int)w->ranks, (double)r->p->batch / w->ranks_step);
    }
    trmi_text_printf(t, "a limit of %s\n", size_text(needed, a));
}

/* Operators that hold most memory; what helps. */
static void tell_infeasible(report *r) {
    const trmi_space *s = r->m->space;
    const trmi_choice *c = &r->m->found.best.choice;
    char a[24], b[24];
    if (!r->m->found.infeasible) {
        return;
    }
    trmi_text_printf(&r->text, "\nwhat does not fit: the largest operators of the plan of least memory\n");
    bool *done = trmi_alloc((size_t)s->nodes_count + 1);
    for (int32_t shown = 0; done != NULL && shown < 6; shown++) {
        int32_t most = -1;
        double most_bytes = 0;
        for (int32_t n = 0; n < s->nodes_count; n++) {
            const trmi_space_class *k = trmi_space_class_of(s, n);
            double bytes = held(k, c, n) + k->stores[2 * c->strategy[n] + c->parts[n]].bytes;
            if (!done[n] && bytes > most_bytes) {
                most = n;
                most_bytes = bytes;
            }
        }
        if (most < 0) {
            break;
        }
        done[most] = true;
        const trmi_space_class *k = trmi_space_class_of(s, most);
        trmi_text_printf(&r->text, "  %-36s %s kept for backward, %s parameters and state\n", trmi_space_op(s, most)->name,
                         size_text(held(k, c, most), a),
                         size_text(k->stores[2 * c->strategy[most] + c->parts[most]].bytes, b));
    }
    trmi_free(done);
    tell_way_out(r);
}

static void tell(report *r) {
    tell_head(r);
    tell_infeasible(r);
    tell_uncut(r);
    tell_time(r);
    tell_operators(r);
    tell_traffic(r);
    tell_others(r);
    tell_flips(r);
}

/* ---- JSON --------------------------------------------------------------------------------------------------------- */

static void number(trmi_text *t, const char *key, double value) {
    trmi_text_printf(t, ",\"%s\":", key);
    trmi_text_json_number(t, value);
}

static void string(trmi_text *t, const char *key, const char *value) {
    trmi_text_printf(t, ",\"%s\":", key);
    trmi_text_json_string(t, value);
}

static void json_measure(trmi_text *t, const trmi_measure *m) {
    number(t, "step_seconds", m->step);
    number(t, "memory_bytes", m->bytes);
    trmi_text_printf(t, ",\"memory\":{\"parameter_bytes\":%.0f,\"gradient_bytes\":%.0f,\"slot_bytes\":%.0f,\"kept_bytes\":%.0f}",
                     m->weight_bytes, m->gradient_bytes, m->slot_bytes, m->kept_bytes);
    number(t, "operator_seconds", m->compute);
    number(t, "redistribution_seconds", m->redistribute);
    number(t, "exchange_seconds", m->exchange);
    number(t, "gather_seconds", m->gather);
    number(t, "again_seconds", m->again);
    number(t, "update_seconds", m->update);
    number(t, "gradient_seconds", m->gradient);
    number(t, "exposed_seconds", m->exposed);
    trmi_text_printf(t, ",\"buckets\":%d,\"gradients\":%d", (int)m->buckets, (int)m->messages);
}

static void json_candidate(trmi_text *t, const trmi_space *s, const trmi_candidate *c, const char *name, bool first) {
    char plan[200];
    trmi_planner_summary(s, &c->choice, plan, sizeof plan);
    trmi_text_printf(t, "%s{\"name\":", first ? "" : ",");
    trmi_text_json_string(t, name);
    number(t, "step_seconds", c->measure.step);
    number(t, "memory_bytes", c->measure.bytes);
    trmi_text_printf(t, ",\"fits\":%s", c->fits ? "true" : "false");
    string(t, "cuts", plan);
    trmi_text_printf(t, "}");
}

static void json_operators(report *r) {
    trmi_text *t = &r->text;
    const trmi_space *s = r->m->space;
    char shape[96];
    trmi_text_printf(t, ",\"operators\":[");
    for (int32_t n = 0; n < s->nodes_count; n++) {
        const trmi_space_class *k = trmi_space_class_of(s, n);
        int32_t i = r->m->found.best.choice.strategy[n];
        const trmi_op *op = trmi_space_op(s, n);
        const char *other = runner_of(r, n);
        trmi_text_printf(t, "%s{\"name\":", n > 0 ? "," : "");
        trmi_text_json_string(t, op->name);
        string(t, "kind", trmi_op_def_of(op)->name);
        string(t, "output", trm_shape_format(&trmi_output_of(s->graph, op, 0)->shape, shape, sizeof shape));
        string(t, "strategy", k->strategies[i].letters);
        trmi_text_printf(t, ",\"in_parts\":%s", r->m->found.best.choice.parts[n] ? "true" : "false");
        trmi_text_printf(t, ",\"again\":%s,\"repeats\":%s", r->m->found.best.choice.again[n] ? "true" : "false", k->repeats ? "true" : "false");
        number(t, "forward_seconds", k->forward[i]);
        number(t, "backward_seconds", k->backward[i]);
        number(t, "message_seconds", r->moves[n]);
        if (other != NULL) {
            string(t, "runner_up", other);
            number(t, "runner_up_price_seconds", r->m->found.runners[n].price);
        }
        trmi_text_printf(t, "}");
    }
    trmi_text_printf(t, "]");
}

static void json_trial(report *r) {
    const trmi_trial *o = &r->p->trial;
    trmi_text *t = &r->text;
    string(t, "chosen_by", o->turns > 0 ? "measurement" : "prediction");
    trmi_text_printf(t, ",\"tried_turns\":%d,\"tried\":[", (int)o->turns);
    for (int32_t i = 0; o->turns > 0 && i < o->count; i++) {
        const trmi_trial_plan *p = &o->list[i];
        trmi_text_printf(t, "%s{\"name\":", i > 0 ? "," : "");
        trmi_text_json_string(t, p->name);
        number(t, "predicted_seconds", p->predicted);
        number(t, "measured_seconds", p->measured);
        number(t, "behind", p->behind);
        number(t, "resolution", p->resolution);
        trmi_text_printf(t, ",\"chosen\":%s}", i == o->chosen ? "true" : "false");
    }
    trmi_text_printf(t, "]");
}

static void json_lists(report *r) {
    trmi_text *t = &r->text;
    const trmi_found *f = &r->m->found;
    char axes[48], mesh[48], name[80];
    trmi_text_printf(t, ",\"communication\":[");
    for (int32_t i = 0; i < r->traffic_count; i++) {
        const traffic *o = &r->traffic[i];
        trmi_text_printf(t, "%s{\"axes\":\"%s\",\"kind\":\"%s\",\"count\":%d,\"bytes\":%.0f", i ? "," : "",
                         axes_text(&r->m->mesh, o->axes, axes), trmi_move_name(o->move), (int)o->count, o->bytes);
        number(t, "seconds", o->seconds);
        number(t, "exposed_seconds", o->exposed);
        trmi_text_printf(t, ",\"gradients\":%s}", o->gradient ? "true" : "false");
    }
    trmi_text_printf(t, "],\"warnings\":[");
    for (int32_t n = 0, told = 0; n < r->m->space->nodes_count; n++) {
        const char *why = uncut(r, n);
        if (why != NULL && r->p->ranks > 1) {
            trmi_text_printf(t, "%s{\"operator\":", told++ ? "," : "");
            trmi_text_json_string(t, trmi_space_op(r->m->space, n)->name);
            trmi_text_printf(t, ",\"reason\":");
            trmi_text_json_string(t, why);
            number(t, "seconds", price_of_uncut(r, n));
            trmi_text_printf(t, "}");
        }
    }
    trmi_text_printf(t, "],\"baselines\":[");
    for (int32_t i = 0; i < f->baselines_count; i++) {
        json_candidate(t, r->m->space, &f->baselines[i], f->baselines[i].name, i == 0);
    }
    trmi_text_printf(t, "],\"meshes\":[");
    for (int32_t i = 0; i < r->p->meshes_count; i++) {
        trmi_mesh_text(&r->p->meshes[i].mesh, mesh, sizeof mesh);
        snprintf(name, sizeof name, "%s", mesh);
        json_candidate(t, r->p->meshes[i].space, &r->p->meshes[i].found.best, name, i == 0);
    }
    trmi_text_printf(t, "],\"frontier\":[");
    for (int32_t i = 0; i < f->frontier_count; i++) {
        json_candidate(t, r->m->space, &f->frontier[i], f->frontier[i].name, i == 0);
    }
    trmi_text_printf(t, "],\"frontier_points\":%d,\"frontier_exact\":%s", (int)f->front.count, f->front.open == 0 && f->front.slack == 0 ? "true" : "false");
    number(t, "frontier_slack_seconds", f->front.slack);
    number(t, "frontier_open_seconds", f->front.open_gap);
    trmi_text_printf(t, ",\"flips\":[");
    for (int32_t i = 0; i < r->p->flips_count; i++) {
        const trmi_flip *o = &r->p->flips[i];
        trmi_text_printf(t, "%s{\"what\":\"%s\",\"changes\":%s", i ? "," : "", o->what, o->at > 0 ? "true" : "false");
        number(t, o->at > 0 ? "factor" : "looked_to", o->at > 0 ? o->at : o->high > 1 ? o->high : o->low);
        string(t, "to", o->to);
        trmi_text_printf(t, "}");
    }
    trmi_text_printf(t, "]");
}

static void tell_json(report *r) {
    trmi_text *t = &r->text;
    trm_planner_info info;
    char plan[200];
    static const char *const modes[] = {"optimal", "recursive", "propagation"};
    trm_planner_describe(r->p, &info);
    trmi_planner_summary(r->m->space, &r->m->found.best.choice, plan, sizeof plan);
    trmi_text_printf(t, "{\"event\":\"plan\",\"ranks\":%d,\"mesh\":\"%s\",\"global_batch\":%lld,\"search\":\"%s\",\"infeasible\":%s",
                     (int)info.ranks, info.mesh, (long long)r->p->batch, modes[r->p->mode], info.infeasible ? "true" : "false");
    string(t, "cuts", plan);
    json_measure(t, &r->measure);
    number(t, "compiled_bytes", info.compiled_bytes);
    number(t, "samples_per_second", info.samples_per_second);
    number(t, "data_parallel_seconds", info.data_parallel_seconds);
    number(t, "utilisation", utilisation_of(r));
    number(t, "model_flops", work_of(r));
    number(t, "peak_flops", peak_of(r));
    if (has_norms(r)) {
        string(t, "norms", trmi_planner_local_norms(r->p) ? "local" : "joined");
        number(t, "norm_seconds", r->statistics);
    }
    char day[12];
    string(t, "links_measured", links_day(r, day));
    string(t, "oldest_cost", r->p->costs.oldest);
    trmi_text_printf(t, ",\"certificate\":{\"objective\":");
    trmi_text_json_number(t, info.step_seconds);
    number(t, "lower_bound", r->p->mode == TRMI_SEARCH_OPTIMAL ? info.lower_bound : NAN);
    number(t, "gap", r->p->mode == TRMI_SEARCH_OPTIMAL ? info.gap : NAN);
    number(t, "solve_seconds", info.solve_seconds);
    number(t, "search_seconds", r->p->search_seconds);
    if (r->p->options.memory_bytes > 0) {
        number(t, "limit_bytes", trmi_planner_limit(r->p));
        trmi_text_printf(t, ",\"limit_exact\":%s", r->m->found.bound != TRMI_BOUND_LAGRANGE ? "true" : "false");
    }
    json_trial(r);
    trmi_text_printf(t, ",\"solves\":%d,\"branches\":%lld,\"assumptions\":[", (int)r->m->found.solves,
                     (long long)r->m->found.solution.branches);
    for (int32_t i = 0; assumption(r, i) != NULL; i++) {
        trmi_text_append(t, ",", i > 0);
        trmi_text_json_string(t, assumption(r, i));
    }
    trmi_text_printf(t, "]}");
    trmi_text_printf(t, ",\"measured_operators\":%d,\"measured_now\":%lld,\"rounds\":%d", (int)info.measured,
                     (long long)r->p->costs.measured, (int)r->p->rounds);
    json_lists(r);
    json_operators(r);
    trmi_text_printf(t, "}");
}

char *trm_planner_report(const trm_planner *p, bool json) {
    report *r = trmi_alloc(sizeof *r);
    trm_error err;
    if (r == NULL) {
        return NULL;
    }
    r->p = p;
    r->m = trmi_planner_best(p);
    bool ok = gather(r, &err) == TRM_OK;
    if (ok) {
        (json ? tell_json : tell)(r);
    }
    trmi_timeline_free(&r->timeline);
    trmi_free(r->moves);
    trmi_free(r->rows);
    char *text = ok && !r->text.failed ? r->text.data : NULL;
    if (text == NULL) {
        trmi_text_free(&r->text);
    }
    trmi_free(r);
    return text;
}
