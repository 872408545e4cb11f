/* SPDX-License-Identifier: Apache-2.0 */
/* Prints the report of a plan as lines for people. trmi_figures_print calls one function for each
 * part of the report, in the order in which the parts appear: head, infeasible, uncut, time,
 * operators, traffic, others, flips. Figures are formatted only here; planner_gather.c computes
 * them. */
#include "train/planner/planner_report.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- formatting ------------------------------------------------------------------------------ */

/* Formats seconds with three significant digits and a unit; returns `text`. */
static const char *time_text(double seconds, char text[24]) {
    const char *unit = seconds < 1e-3 ? "us" : seconds < 1 ? "ms" : "s";
    double value = seconds < 1e-3 ? seconds * 1e6 : seconds < 1 ? seconds * 1e3 : seconds;
    snprintf(text, 24, "%.*f %s",
             value == 0    ? 0
             : value < 10  ? 3
             : value < 100 ? 2
                           : 1,
             value, unit);
    return text;
}

/* Formats samples per second; returns `text`. */
static const char *rate_text(double samples_per_second, char text[32]) {
    snprintf(text, 32, "%.*f samples/s", samples_per_second < 100 ? 1 : 0, samples_per_second);
    return text;
}

/* Returns the letters of the strategy that the best plan gives a node. */
static const char *letters_of(const trmi_figures *r, int32_t node) {
    return trmi_space_class_of(r->m->space, node)
        ->strategies[r->m->found.best.choice.strategy[node]]
        .letters;
}

/* ---- the report ------------------------------------------------------------------------------ */

/* Prints the memory limit and what it means for the bound: not reached, exact, or Lagrangian. */
static void print_limit(trmi_figures *r) {
    char a[24], b[24];
    const double beyond = r->p->drive.beyond;
    if (r->p->model.exec.memory_bytes > 0 && !r->m->found.infeasible) {
        trmi_text_printf(
            &r->text, "limit         %s a rank, %s %s; %s\n",
            trmi_bytes_text((double)r->p->model.exec.memory_bytes, a),
            trmi_bytes_text(fabs(beyond), b),
            beyond < 0 ? "more for what the search counts and programs do not take"
                       : "of it for what the search does not count",
            r->m->found.bound == TRMI_BOUND_FREE ? "it does not bind"
            : r->p->drive.took_less ? "programs take less than the search counts: no bound is known"
            : r->m->found.bound == TRMI_BOUND_EXACT
                ? "exact: every plan within it was compared, by lists of time and memory"
            : r->m->found.bound == TRMI_BOUND_WHOLE_LIMIT
                ? "the bound counts what is kept, not what each program needs beyond"
                : "the bound is Lagrange's");
    }
}

/* Prints the plans that were tried in turns because their predictions were too close, with
 * measured and predicted times. */
static void print_trial(trmi_figures *r) {
    const trmi_near_ties *t = &r->p->drive.trial;
    char a[24], b[24];
    if (t->turns == 0) {
        return;
    }
    trmi_text_printf(&r->text,
                     "chosen        by measurement among %d plans within %.1f %%%s:", (int)t->count,
                     100 * (t->list[t->count - 1].predicted / t->list[0].predicted - 1),
                     t->kept ? ", run earlier" : "");
    for (int32_t i = 0; i < t->count; i++) {
        const trmi_tied_plan *o = &t->list[i];
        trmi_text_printf(&r->text, "%s %s%s %s (%s predicted", i > 0 ? "," : "", o->name,
                         i == t->chosen ? ", this one," : "", time_text(o->measured, a),
                         time_text(o->predicted, b));
        if (o->behind != 0 || o->resolution != 0) { /* the fastest is beside itself */
            trmi_text_printf(&r->text,
                             "; %.1f %% slower than the fastest, of which %.1f %% may be chance",
                             100 * o->behind, 100 * o->resolution);
        }
        trmi_text_printf(&r->text, ")");
    }
    trmi_text_printf(&r->text,
                     "; %d turns; of what may be as fast data parallel is taken, or what was "
                     "predicted to be the fastest\n",
                     (int)t->turns);
}

/* Prints where the costs come from: measured, scaled or given, and how old they are. */
static void print_costs(trmi_figures *r) {
    char a[24], day[12];
    trmi_text *t = &r->text;
    trm_planner_info info;
    const trmi_costs *c = &r->p->costs;
    trm_planner_get_info(r->p, &info);
    if (info.measured == 0) {
        trmi_text_printf(t, "costs         operators by this machine's rates, none measured");
    } else {
        trmi_text_printf(t,
                         "costs         %d operator shapes measured (%d now, in %s): %.0f %% of "
                         "the operators' time, the rest is scaled from "
                         "the nearest of its kind",
                         (int)info.measured, (int)c->measured, time_text(c->spent_seconds, a),
                         100 * trmi_costs_share_known(c, r->m->space, &r->m->found.best.choice));
    }
    if (c->factor != 1) {
        trmi_text_printf(t, "; operators x %.2f: %s", c->factor,
                         r->p->options.links == NULL ? "ranks share cores"
                                                     : "cores and speed of the links' file");
    }
    if (c->oldest[0] != '\0') {
        trmi_text_printf(t, "; the oldest of %s", c->oldest);
    }
    trmi_text_printf(t, "; links %s%s; searched %d time%s\n",
                     r->p->links.curves_count > 0  ? "measured "
                     : r->p->options.links == NULL ? "guessed"
                                                   : "given",
                     trmi_figures_links_day(r, day), (int)r->p->drive.rounds,
                     r->p->drive.rounds == 1 ? "" : "s");
}

/* Prints the verdict: that no plan can be much faster than data parallel, or how much slower than
 * that are stages of which the user gave the number. */
static void print_verdict(trmi_figures *r, const trm_planner_info *info) {
    char a[24];
    double parallel = info->data_parallel_seconds;
    if (r->p->drive.mode != TRMI_SEARCH_OPTIMAL || parallel <= 0 || info->ranks < 2) {
        return;
    }
    if (r->p->pipe.searched && r->p->options.stages != TRM_ALL) {
        trmi_text_printf(&r->text,
                         "verdict       data parallel without stages takes %s: these stages are "
                         "%.1f %% %s\n",
                         time_text(parallel, a), 100 * fabs(info->step_seconds / parallel - 1),
                         info->step_seconds > parallel ? "slower" : "faster");
    } else if (1 - info->lower_bound / parallel < 0.02) {
        trmi_text_printf(&r->text,
                         "verdict       data parallel is as good as optimal: no plan%s is faster "
                         "by more than %.2f %%\n",
                         r->p->model.exec.memory_bytes > 0 ? " that fits" : "",
                         100 * fmax(0, 1 - info->lower_bound / parallel));
    }
}

/* Prints the head: ranks, plan, step, memory, bound with its assumptions, batch norm,
 * utilisation, costs. */
static void print_head(trmi_figures *r) {
    trm_planner_info info;
    char a[24], b[24], c[24], d[24], rate[32], plan[200];
    trmi_text *t = &r->text;
    const trmi_measure *m = &r->measure;
    trm_planner_get_info(r->p, &info);
    trmi_planner_summary(r->m->space, &r->m->found.best.choice, plan, sizeof plan);
    if (info.infeasible) {
        trmi_text_printf(t, "NOTHING FITS  %s a rank: the plan of least memory follows\n",
                         trmi_bytes_text((double)r->p->model.exec.memory_bytes, a));
    }
    trmi_text_printf(t, "ranks         %d, mesh %s (%d searched), global batch %lld\n",
                     (int)info.ranks, info.mesh, (int)info.meshes, (long long)r->p->batch);
    trmi_text_printf(t, "plan          %s\n", plan);
    trmi_text_printf(t,
                     "%-13s (a letter for each axis of the mesh: n samples, k outputs, c inputs, h "
                     "rows, w columns are cut, . repeated, + partial "
                     "sums; share of the time)\n",
                     "");
    trmi_text_printf(t, "step          %s predicted, %s; data parallel %s (%.2fx)\n",
                     time_text(info.step_seconds, a), rate_text(info.samples_per_second, rate),
                     time_text(info.data_parallel_seconds, b),
                     info.data_parallel_seconds / info.step_seconds);
    print_trial(r);
    trmi_text_printf(
        t, "memory        %s a rank: parameters %s, gradients %s, slots %s, kept for backward %s\n",
        trmi_bytes_text(m->bytes, a), trmi_bytes_text(m->weight_bytes, b),
        trmi_bytes_text(m->gradient_bytes, c), trmi_bytes_text(m->slot_bytes, d),
        trmi_bytes_text(m->kept_bytes, plan));
    if (info.compiled_bytes > 0) {
        trmi_text_printf(
            t, "compiled      %s on rank 0: the whole program, by which its process grows\n",
            trmi_bytes_text(info.compiled_bytes, a));
    }
    /* Print the proof: a lower bound with its assumptions, only by the optimal search. */
    if (r->p->drive.mode == TRMI_SEARCH_OPTIMAL) {
        trmi_text_printf(t,
                         "proof         no plan of these meshes%s takes less than %s by these "
                         "costs: gap %.3f %%; %d "
                         "operators, %d solves in %s\n",
                         r->p->model.exec.memory_bytes > 0 ? " that fits" : "",
                         time_text(info.lower_bound, a), 100 * info.gap, (int)info.operators,
                         (int)r->m->found.solves, time_text(info.solve_seconds, b));
        if (!r->p->pipe.chosen && *trmi_figures_gap_reason(r) != '\0') {
            trmi_text_printf(t, "gap           %s\n", trmi_figures_gap_reason(r));
        }
        for (int32_t i = 0; trmi_figures_assumption(r, i) != NULL; i++) {
            trmi_text_printf(t, "%-13s %s\n", i == 0 ? "assuming" : "",
                             trmi_figures_assumption(r, i));
        }
        print_limit(r);
    } else {
        trmi_text_printf(t,
                         "proof         none: this search has no bound (--search optimal has)\n");
    }
    print_verdict(r, &info);
    /* which samples batch norms see: it changes the function of the network */
    if (trmi_figures_has_norms(r) && info.ranks > 1 && trmi_planner_local_norms(r->p)) {
        trmi_text_printf(t, "norms         over each rank's own samples (--sync-batch-norm off): "
                            "not the function of one device\n");
    } else if (trmi_figures_has_norms(r) && info.ranks > 1) {
        trmi_text_printf(
            t,
            "norms         over the samples of all ranks, as on one device, in every plan here: %d "
            "messages, %s of the step. "
            "--sync-batch-norm off plans norms over each rank's own samples\n",
            (int)r->norms, time_text(r->statistics, a));
    }
    trmi_text_printf(
        t, "utilisation   %.1f %%: %.4g GFLOP a step of the model, %d ranks of %.4g GFLOP/s\n",
        100 * trmi_figures_utilisation(r), trmi_figures_work(r) / 1e9, (int)info.ranks,
        trmi_figures_peak(r) / 1e9);
    print_costs(r);
}

/* Prints how the step's time is divided. */
static void print_time(trmi_figures *r) {
    char a[24], b[24], c[24], d[24], e[24], f[24], g[24];
    const trmi_measure *m = &r->measure;
    trmi_text_printf(
        &r->text,
        "\ntime          operators %s, redistribution %s, halo and statistics %s, gathering "
        "parameters %s, made again %s, optimiser %s\n",
        time_text(m->compute, a), time_text(m->redistribute, b), time_text(m->exchange, c),
        time_text(m->gather, d), time_text(m->again, f), time_text(m->update, e));
    trmi_text_printf(
        &r->text, "gradients     %s in %d buckets of %d gradients: %s exposed after backward",
        time_text(m->gradient, f), (int)m->buckets, (int)m->messages, time_text(m->exposed, g));
    if (m->ahead > 0) {
        trmi_text_printf(&r->text, "; parameters %s gathered ahead: %s waited for",
                         time_text(m->ahead, f), time_text(m->waited, g));
    }
    if (m->cooperative_bytes > 0) {
        trmi_text_printf(
            &r->text, "; %s more are made by all ranks together, each its slice from all samples",
            trmi_bytes_text(m->cooperative_bytes, f));
    }
    trmi_text_printf(&r->text, "\n");
}

/* Returns whether an operator reads parameters. */
static bool has_parameters(const trmi_figures *r, int32_t node) {
    const trm_graph *g = r->m->space->graph;
    const trmi_op *op = trmi_space_op(r->m->space, node);
    for (int32_t i = 0; i < op->inputs_count; i++) {
        if (trmi_parameter_of(g, op->inputs[i]) != NULL) {
            return true;
        }
    }
    return false;
}

/* Prints the table of operators, one line for each row of the report. */
static void print_operators(trmi_figures *r) {
    char a[24], b[24], c[24], d[24], shape[96], name[64], cut[16];
    const trmi_space *s = r->m->space;
    trmi_text_printf(&r->text, "\n%-34s %3s %-22s %-7s %10s %10s %10s  %s\n", "operator", "x",
                     "output", "cut", "forward", "backward", "messages",
                     "runner-up, and what the step would cost more (p: parameters in parts, g: "
                     "gathered again, a: made again)");
    for (int32_t i = 0; i < r->rows_count; i++) {
        const trmi_figures_row *o = &r->rows[i];
        const trmi_op *op = trmi_space_op(s, o->node);
        const char *other = trmi_figures_runner(r, o->node);
        double price = r->m->found.runners[o->node].price;
        /* long names keep their end, which differs most */
        size_t length = strlen(op->name);
        snprintf(name, sizeof name, "%s%s", length > 33 ? "..." : "",
                 length > 33 ? op->name + length - 30 : op->name);
        trm_shape_format(&trmi_output_of(s->graph, op, 0)->shape, shape, sizeof shape);
        const trmi_choice *choice = &r->m->found.best.choice;
        static const char *const in_parts[TRMI_STORES] = {"", " p", " p g"};
        snprintf(cut, sizeof cut, "%s%s%s", letters_of(r, o->node),
                 has_parameters(r, o->node) ? in_parts[choice->stores[o->node]] : "",
                 choice->again[o->node] ? " a" : "");
        trmi_text_printf(&r->text, "%-34s %3d %-22.22s %-7s %10s %10s %10s  ", name, (int)o->count,
                         shape, cut, time_text(o->forward, a), time_text(o->backward, b),
                         time_text(o->moves, c));
        /* Print the next best strategy of this operator alone, and its price. */
        if (other == NULL || !(price < INFINITY)) {
            trmi_text_printf(&r->text, "none\n");
        } else {
            trmi_text_printf(&r->text, "%s +%s\n", other, time_text(fmax(0, price), d));
        }
    }
}

/* Prints the table of messages. */
static void print_traffic(trmi_figures *r) {
    char a[24], b[24], c[24], axes[48];
    trmi_text_printf(&r->text, "\n%-16s %-18s %6s %10s %12s %12s\n", "messages over", "kind",
                     "count", "bytes", "time", "exposed");
    for (int32_t i = 0; i < r->traffic_count; i++) {
        const trmi_figures_traffic *o = &r->traffic[i];
        trmi_text_printf(&r->text, "%-16s %-18s %6d %10s %12s %12s  %s\n",
                         trmi_figures_axes(&r->m->mesh, o->axes, axes), trmi_move_name(o->move),
                         (int)o->count, trmi_bytes_text(o->bytes, a), time_text(o->seconds, b),
                         time_text(o->exposed, c),
                         o->gradient ? "gradients"
                         : o->ahead  ? "ahead"
                                     : "blocking");
    }
    if (r->traffic_count == 0) {
        trmi_text_printf(&r->text, "none\n");
    }
}

/* Prints what is proved about the curve of memory against time. */
static void print_curve(trmi_figures *r) {
    char a[24];
    const trmi_front *front = &trmi_planner_best(r->p)->found.front;
    trmi_text_printf(
        &r->text, "\nmemory against time (kept, a rank): of %d plans that no other beats in both; ",
        (int)front->count);
    if (front->open > 0) {
        trmi_text_printf(&r->text,
                         "in %d stretches plans between them may be up to %s faster than the next "
                         "one that fits\n",
                         (int)front->open, time_text(front->open_gap, a));
    } else if (front->slack > 0) {
        trmi_text_printf(&r->text, "a plan within a point's memory is faster by at most %s\n",
                         time_text(front->slack, a));
    } else {
        trmi_text_printf(&r->text, "exact\n");
    }
}

/* Prints the other plans: baselines, the best plans of other meshes, and the curve of memory
 * against time. */
static void print_others(trmi_figures *r) {
    char a[24], b[24], plan[200];
    const trmi_auto_mesh *plain = trmi_planner_best(r->p);
    const trmi_found *f = &plain->found;
    trmi_text_printf(&r->text, "\n%-36s %12s %8s %10s\n", "other plans", "step", "", "memory");
    for (int32_t i = 0; i < f->baselines_count; i++) {
        const trmi_candidate *c = &f->baselines[i];
        trmi_text_printf(&r->text, "%-36s %12s %7.2fx %10s%s\n", c->name,
                         time_text(c->measure.step, a), c->measure.step / r->m->found.objective,
                         trmi_bytes_text(c->measure.bytes, b), c->fits ? "" : "  does not fit");
    }
    for (int32_t i = 0; i < r->p->drive.meshes_count; i++) {
        /* the best plan of each other mesh */
        char mesh[48], name[80];
        const trmi_found *o = &r->p->drive.meshes[i].found;
        if (i != r->p->drive.best || r->p->pipe.chosen) {
            snprintf(name, sizeof name, "best on mesh %s",
                     trmi_mesh_text(&r->p->drive.meshes[i].mesh, mesh, sizeof mesh));
            trmi_text_printf(&r->text, "%-36s %12s %7.2fx %10s%s\n", name,
                             time_text(o->objective, a), o->objective / r->m->found.objective,
                             trmi_bytes_text(o->best.measure.bytes, b),
                             o->infeasible ? "  does not fit" : "");
        }
    }
    if (f->frontier_count > 1) {
        print_curve(r);
    }
    for (int32_t i = 0; i < f->frontier_count && f->frontier_count > 1; i++) {
        const trmi_candidate *c = &f->frontier[i];
        trmi_planner_summary(plain->space, &c->choice, plan, sizeof plan);
        trmi_text_printf(&r->text, "%12s %12s  %s\n", trmi_bytes_text(c->measure.bytes, a),
                         time_text(c->measure.step, b), plan);
    }
}

/* Prints from which factor on another plan is better. */
static void print_flips(trmi_figures *r) {
    if (r->p->flips_count > 0) {
        trmi_text_printf(&r->text, "\nwhen another plan is better by 2 %%\n");
    }
    for (int32_t i = 0; i < r->p->flips_count; i++) {
        const trmi_flip *f = &r->p->flips[i];
        char from[24] = "";
        if (f->at > 0 && f->now > 0) {
            snprintf(from, sizeof from, " (%s %.0f)", f->at > 1 ? "from" : "to",
                     f->at > 1 ? ceil(f->now * f->at) : floor(f->now * f->at));
        }
        if (f->at > 0) {
            trmi_text_printf(&r->text, "%-10s x %.3g%s: %s\n", f->what, f->at, from, f->to);
        } else if (f->low < 1 || f->high > 1) {
            trmi_text_printf(
                &r->text, f->high > 1 ? "%-10s not up to x %.0f\n" : "%-10s not down to x 1/%.0f\n",
                f->what, fmax(f->high, 1 / f->low));
        }
    }
}

/* Prints a warning for each operator that runs whole on every rank. */
static void print_uncut(trmi_figures *r) {
    char a[24];
    for (int32_t n = 0, told = 0; n < r->m->space->nodes_count; n++) {
        const char *why = trmi_figures_uncut(r, n);
        if (why != NULL && r->p->ranks > 1) {
            trmi_text_printf(&r->text,
                             "%swarning       %s runs whole on every rank, which costs up to %s of "
                             "the step: %s\n",
                             told++ ? "" : "\n", trmi_space_op(r->m->space, n)->name,
                             time_text(trmi_figures_price_of_uncut(r, n), a), why);
        }
    }
}

/* Returns the bytes that a node keeps for backward under choice `c`. */
static double held_bytes(const trmi_space_class *k, const trmi_choice *c, int32_t n) {
    return k->kept[c->strategy[n]] - (c->again[n] ? k->saved[c->strategy[n]] : 0);
}

/* Returns the bytes of a node's parameters, their gradients and slots under choice `c`. */
static double stored_bytes(const trmi_space_class *k, const trmi_choice *c, int32_t n) {
    return k->stores[TRMI_STORES * c->strategy[n] + c->stores[n]].bytes;
}

/* Prints what would make a plan fit, the cheapest first: a smaller batch, more ranks, a higher
 * limit. */
static void print_way_out(trmi_figures *r) {
    char a[24], rate[32];
    const trmi_way_out *w = &r->p->way_out;
    trmi_text *t = &r->text;
    double needed =
        fmax(r->p->drive.compiled_bytes, r->m->found.best.measure.bytes + r->p->drive.beyond);
    trmi_text_printf(t, "cheapest way out: ");
    if (w->batch > 0) {
        trmi_text_printf(t, "a batch of %lld (%lld a rank), %s; ", (long long)w->batch,
                         (long long)(w->batch / r->p->ranks),
                         rate_text((double)w->batch / w->batch_step, rate));
    }
    if (w->ranks > 0) {
        trmi_text_printf(t, "%d ranks, %s; ", (int)w->ranks,
                         rate_text((double)r->p->batch / w->ranks_step, rate));
    }
    trmi_text_printf(t, "a limit of %s\n", trmi_bytes_text(needed, a));
}

/* Prints the six operators with most memory where no plan fits. */
static void print_infeasible(trmi_figures *r) {
    const trmi_space *s = r->m->space;
    const trmi_choice *c = &r->m->found.best.choice;
    char a[24], b[24];
    if (!r->m->found.infeasible) {
        return;
    }
    trmi_text_printf(&r->text,
                     "\nwhat does not fit: the largest operators of the plan of least memory\n");
    /* the largest six, by repeated search */
    bool *done = trmi_alloc((size_t)s->nodes_count + 1);
    for (int32_t shown = 0; done != NULL && shown < 6; shown++) {
        int32_t most = -1;
        double most_bytes = 0;
        for (int32_t n = 0; n < s->nodes_count; n++) {
            const trmi_space_class *k = trmi_space_class_of(s, n);
            double bytes = held_bytes(k, c, n) + stored_bytes(k, c, n);
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
        trmi_text_printf(&r->text, "  %-36s %s kept for backward, %s parameters and state\n",
                         trmi_space_op(s, most)->name, trmi_bytes_text(held_bytes(k, c, most), a),
                         trmi_bytes_text(stored_bytes(k, c, most), b));
    }
    trmi_free(done);
    print_way_out(r);
}

/* Contract in planner_report.h. The order is that of a reader's questions: what is the plan and how
 * fast is it; does it fit; what is in its way; where do time and messages go; what else is
 * there. */
void trmi_figures_print(trmi_figures *r) {
    print_head(r);
    trmi_figures_print_stages(r);
    print_infeasible(r);
    print_uncut(r);
    if (!r->p->pipe.chosen) {
        print_time(r);
    }
    print_operators(r);
    print_traffic(r);
    print_others(r);
    print_flips(r);
}
