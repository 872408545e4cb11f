/* SPDX-License-Identifier: Apache-2.0 */
/* Writes the lines of a plan's report for people. trmi_figures_say calls one function for each
 * part, in the order in which the parts appear:
 *
 *       head         plan, times, memory, proof, where the costs come from      say_head and say_*
 *       infeasible   where no plan fits: the largest operators, and a way out   say_infeasible
 *       uncut        operators that every rank computes as a whole              say_uncut
 *       time         how the step's seconds are divided                         say_time
 *       tables       operators, messages, other plans, what would change them   say_operators ...
 *
 * The figures are values of the report, put by planner_values.c, so that --json has the same ones:
 * "[memory_bytes]%b" is a path and a conversion (base/format/report.h). A line may add values of
 * its own where a number only helps to read the sentence. Nothing here computes a plan or a
 * price. */
#include "train/planner/planner_report.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Returns the letters of the strategy that the best plan gives a node. */
static const char *letters_of(const trmi_figures *r, int32_t node) {
    return trmi_space_class_of(r->m->space, node)
        ->strategies[r->m->found.best.choice.strategy[node]]
        .letters;
}

/* ---- head ------------------------------------------------------------------------------------ */

/* Writes the memory limit and what it means for the bound: not reached, exact, or Lagrangian. */
static void say_limit(trmi_figures *r) {
    /* beyond: bytes a rank that programs take more than the search counts; negative: less */
    const double beyond = r->p->drive.beyond;
    if (r->p->model.exec.memory_bytes > 0 && !r->m->found.infeasible) {
        trmi_report_tell(
            &r->report, "limit         [limit]%b a rank, [beyond]%b [which]%s; [bound]%s\n",
            trmi_int("limit", r->p->model.exec.memory_bytes), trmi_real("beyond", fabs(beyond)),
            trmi_string("which", beyond < 0
                                     ? "more for what the search counts and programs do not take"
                                     : "of it for what the search does not count"),
            trmi_string(
                "bound",
                r->m->found.bound == TRMI_BOUND_FREE ? "it does not bind"
                : r->p->drive.took_less
                    ? "programs take less than the search counts: no bound is known"
                : r->m->found.bound == TRMI_BOUND_EXACT
                    ? "exact: every plan within it was compared, by lists of time and memory"
                : r->m->found.bound == TRMI_BOUND_WHOLE_LIMIT
                    ? "the bound counts what is kept, not what each program needs beyond"
                    : "the bound is Lagrange's"));
    }
}

/* Writes the plans that were tried in turns because their predictions were too close, with measured
 * and predicted times. */
static void say_trial(trmi_figures *r) {
    const trmi_near_ties *o = &r->p->drive.trial;
    trmi_report *t = &r->report;
    /* no two plans were predicted to be equally fast */
    if (o->turns == 0) {
        return;
    }
    trmi_report_tell(
        t,
        "chosen        by measurement among [count]%d plans within [within]%.1f %%"
        "[kept]?{, run earlier|}:",
        trmi_int("count", o->count),
        trmi_real("within", 100 * (o->list[o->count - 1].predicted / o->list[0].predicted - 1)),
        trmi_bool("kept", o->kept));
    for (int32_t i = 0; i < o->count; i++) {
        const trmi_tied_plan *p = &o->list[i];
        trmi_report_tell(t,
                         "[more]?{,|} [name]%s[chosen]?{, this one,|} [measured]%t "
                         "([predicted]%t predicted",
                         trmi_bool("more", i > 0), trmi_string("name", p->name),
                         trmi_bool("chosen", i == o->chosen), trmi_real("measured", p->measured),
                         trmi_real("predicted", p->predicted));
        if (p->behind != 0 || p->resolution != 0) { /* the fastest is beside itself */
            trmi_report_tell(t,
                             "; [behind]%.1f{1e2} %% slower than the fastest, of which "
                             "[resolution]%.1f{1e2} %% may be chance",
                             trmi_real("behind", p->behind),
                             trmi_real("resolution", p->resolution));
        }
        trmi_report_say(t, ")");
    }
    trmi_report_say(t, "; [certificate.tried_turns]%d turns; of what may be as fast data parallel "
                       "is taken, or what was predicted to be the fastest\n");
}

/* Writes where the costs come from: measured, scaled or given, and how old they are. */
static void say_costs(trmi_figures *r, const trm_planner_info *info) {
    trmi_report *t = &r->report;
    const trmi_costs *c = &r->p->costs;
    if (info->measured == 0) {
        trmi_report_say(t, "costs         operators by this machine's rates, none measured");
    } else {
        trmi_report_tell(t,
                         "costs         [measured_operators]%d operator shapes measured "
                         "([measured_now]%d now, in [spent]%t): [measured_share]%.0f{1e2} %% of "
                         "the operators' time, the rest is scaled from the nearest of its kind",
                         trmi_real("spent", c->spent_seconds));
    }
    if (c->factor != 1) {
        trmi_report_tell(t, "; operators x [factor]%.2f: [why]%s", trmi_real("factor", c->factor),
                         trmi_string("why", r->p->options.links == NULL
                                                ? "ranks share cores"
                                                : "cores and speed of the links' file"));
    }
    trmi_report_tell(
        t,
        "[oldest_cost]?{; the oldest of |}[oldest]%s; links [from]%s[links_measured]%s; "
        "searched [rounds]%d time[once]?{|s}\n",
        trmi_string("oldest", c->oldest),
        trmi_string("from", r->p->links.curves_count > 0  ? "measured "
                            : r->p->options.links == NULL ? "guessed"
                                                          : "given"),
        trmi_bool("once", r->p->drive.rounds == 1));
}

/* Writes the verdict: that no plan can be much faster than data parallel, or how much slower than
 * that are stages of which the user gave the number. */
static void say_verdict(trmi_figures *r, const trm_planner_info *info) {
    double parallel = info->data_parallel_seconds;
    if (r->p->drive.mode != TRMI_SEARCH_OPTIMAL || parallel <= 0 || info->ranks < 2) {
        return;
    }
    if (r->p->pipe.searched && r->p->options.stages != TRM_ALL) {
        trmi_report_tell(
            &r->report,
            "verdict       data parallel without stages takes [data_parallel_seconds]%t: these "
            "stages are [percent]%.1f %% [slower]?{slower|faster}\n",
            trmi_real("percent", 100 * fabs(info->step_seconds / parallel - 1)),
            trmi_bool("slower", info->step_seconds > parallel));
    } else if (1 - info->lower_bound / parallel < 0.02) {
        trmi_report_tell(&r->report,
                         "verdict       data parallel is as good as optimal: no "
                         "plan[limited]?{ that fits|} is faster by more than [percent]%.2f %%\n",
                         trmi_bool("limited", r->p->model.exec.memory_bytes > 0),
                         trmi_real("percent", 100 * fmax(0, 1 - info->lower_bound / parallel)));
    }
}

/* Writes the proof: a lower bound with its assumptions, only by the optimal search. */
static void say_proof(trmi_figures *r, const trm_planner_info *info) {
    trmi_report *t = &r->report;
    if (r->p->drive.mode != TRMI_SEARCH_OPTIMAL) {
        trmi_report_say(t, "proof         none: this search has no bound (--search optimal has)\n");
        return;
    }
    trmi_report_tell(t,
                     "proof         no plan of these meshes[limited]?{ that fits|} takes less "
                     "than [certificate.lower_bound]%t by these costs: gap "
                     "[certificate.gap]%.3f{1e2} %%; [count]%d operators, "
                     "[certificate.solves]%d solves in [certificate.solve_seconds]%t\n",
                     trmi_bool("limited", r->p->model.exec.memory_bytes > 0),
                     trmi_int("count", info->operators));
    if (!r->p->pipe.chosen && *trmi_figures_gap_reason(r) != '\0') {
        trmi_report_say(t, "gap           [certificate.gap_reason]%s\n");
    }
    trmi_report_say(t, "assuming      ");
    trmi_report_say_each(t, "certificate.assumptions", "[]%s\n", "              ");
    say_limit(r);
}

/* Writes the head: ranks, plan, step, memory, bound with its assumptions, batch norm, utilisation,
 * costs. */
static void say_head(trmi_figures *r) {
    trm_planner_info info;
    trmi_report *t = &r->report;
    trm_planner_get_info(r->p, &info);
    if (info.infeasible) {
        trmi_report_tell(t, "NOTHING FITS  [limit]%b a rank: the plan of least memory follows\n",
                         trmi_int("limit", r->p->model.exec.memory_bytes));
    }
    trmi_report_tell(
        t,
        "ranks         [ranks]%d, mesh [mesh]%s ([searched]%d searched), global batch "
        "[global_batch]%d\n"
        "plan          [cuts]%s\n"
        "              (a letter for each axis of the mesh: n samples, k outputs, c inputs, h "
        "rows, w columns are cut, . repeated, + partial sums; share of the time)\n"
        "step          [certificate.objective]%t predicted, [samples_per_second]%r samples/s; "
        "data parallel [data_parallel_seconds]%t ([times]%.2fx)\n",
        trmi_int("searched", info.meshes),
        trmi_real("times", info.data_parallel_seconds / info.step_seconds));
    say_trial(r);
    trmi_report_say(t, "memory        [memory_bytes]%b a rank: parameters "
                       "[memory.parameter_bytes]%b, gradients [memory.gradient_bytes]%b, slots "
                       "[memory.slot_bytes]%b, kept for backward [memory.kept_bytes]%b\n");
    if (info.compiled_bytes > 0) {
        trmi_report_say(t, "compiled      [compiled_bytes]%b on rank 0: the whole program, by "
                           "which its process grows\n");
    }
    say_proof(r, &info);
    say_verdict(r, &info);
    /* which samples batch norms see: it changes the function of the network */
    if (trmi_figures_has_norms(r) && info.ranks > 1 && trmi_planner_local_norms(r->p)) {
        trmi_report_say(t, "norms         over each rank's own samples (--sync-batch-norm off): "
                           "not the function of one device\n");
    } else if (trmi_figures_has_norms(r) && info.ranks > 1) {
        trmi_report_tell(t,
                         "norms         over the samples of all ranks, as on one device, in "
                         "every plan here: [count]%d messages, [norm_seconds]%t of the step. "
                         "--sync-batch-norm off plans norms over each rank's own samples\n",
                         trmi_int("count", r->norms));
    }
    trmi_report_say(t, "utilisation   [utilisation]%.1f{1e2} %%: [model_flops]%.4g{/1e9} GFLOP a "
                       "step of the model, [ranks]%d ranks of [peak_flops]%.4g{/1e9} GFLOP/s\n");
    say_costs(r, &info);
}

/* Writes how the step's time is divided. */
static void say_time(trmi_figures *r) {
    const trmi_measure *m = &r->measure;
    trmi_report *t = &r->report;
    trmi_report_say(
        t, "\ntime          operators [operator_seconds]%t, redistribution "
           "[redistribution_seconds]%t, halo and statistics [exchange_seconds]%t, gathering "
           "parameters [gather_seconds]%t, made again [again_seconds]%t, optimiser "
           "[update_seconds]%t\n"
           "gradients     [gradient_seconds]%t in [buckets]%d buckets of [gradients]%d gradients: "
           "[exposed_seconds]%t exposed after backward");
    if (m->ahead > 0) {
        trmi_report_say(t, "; parameters [ahead_seconds]%t gathered ahead: [waited_seconds]%t "
                           "waited for");
    }
    if (m->cooperative_bytes > 0) {
        trmi_report_tell(t,
                         "; [bytes]%b more are made by all ranks together, each its slice from "
                         "all samples",
                         trmi_real("bytes", m->cooperative_bytes));
    }
    trmi_report_say(t, "\n");
}

/* ---- tables ---------------------------------------------------------------------------------- */

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

/* Writes the table of operators, one line for each row of the report. */
static void say_operators(trmi_figures *r) {
    char shape[96], name[64], cut[16];
    const trmi_space *s = r->m->space;
    trmi_report *t = &r->report;
    trmi_report_say(t, "\noperator                             x output                 cut        "
                       "forward   backward   messages  "
                       "runner-up, and what the step would cost more (p: parameters in parts, g: "
                       "gathered again, a: made again)\n");
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
        trmi_report_tell(t,
                         "[name]%-34s [count]%3d [shape]%-22.22s [cut]%-7s [forward]%10t "
                         "[backward]%10t [moves]%10t  ",
                         trmi_string("name", name), trmi_int("count", o->count),
                         trmi_string("shape", shape), trmi_string("cut", cut),
                         trmi_real("forward", o->forward), trmi_real("backward", o->backward),
                         trmi_real("moves", o->moves));
        /* the next best strategy of this operator alone, and its price */
        if (other == NULL || !(price < INFINITY)) {
            trmi_report_say(t, "none\n");
        } else {
            trmi_report_tell(t, "[other]%s +[price]%t\n", trmi_string("other", other),
                             trmi_real("price", fmax(0, price)));
        }
    }
}

/* Writes the table of messages. */
static void say_messages(trmi_figures *r) {
    trmi_report_say(
        &r->report,
        "\nmessages over    kind                count      bytes         time      exposed\n");
    trmi_report_say_each(&r->report, "communication",
                         "[axes]%-16s [kind]%-18s [count]%6d [bytes]%10b [seconds]%12t "
                         "[exposed_seconds]%12t  [#manner]%s\n",
                         NULL);
    trmi_report_say(&r->report, r->traffic_count == 0 ? "none\n" : "");
}

/* Writes the curve of memory against time and what is proved about it. */
static void say_curve(trmi_figures *r) {
    trmi_report *t = &r->report;
    const trmi_found *f = &trmi_planner_best(r->p)->found;
    if (f->frontier_count <= 1) {
        return;
    }
    trmi_report_say(t, "\nmemory against time (kept, a rank): of [frontier_points]%d plans that no "
                       "other beats in both; ");
    trmi_report_tell(
        t,
        f->front.open > 0 ? "in [open]%d stretches plans between them may be up to "
                            "[frontier_open_seconds]%t faster than the next one that fits\n"
        : f->front.slack > 0
            ? "a plan within a point's memory is faster by at most [frontier_slack_seconds]%t\n"
            : "exact\n",
        trmi_int("open", f->front.open));
    trmi_report_say_each(t, "frontier", "[memory_bytes]%12b [step_seconds]%12t  [cuts]%s\n", NULL);
}

/* Writes the other plans: baselines, the best plans of other meshes, and the curve. */
static void say_others(trmi_figures *r) {
    trmi_report *t = &r->report;
    char mesh[48], name[80];
    trmi_report_say(t, "\nother plans                                  step              memory\n");
    trmi_report_say_each(t, "baselines",
                         "[name]%-36s [step_seconds]%12t [#times]%7.2fx "
                         "[memory_bytes]%10b[fits]?{|  does not fit}\n",
                         NULL);
    for (int32_t i = 0; i < r->p->drive.meshes_count; i++) {
        const trmi_found *o = &r->p->drive.meshes[i].found;
        if (i != r->p->drive.best || r->p->pipe.chosen) {
            snprintf(name, sizeof name, "best on mesh %s",
                     trmi_mesh_text(&r->p->drive.meshes[i].mesh, mesh, sizeof mesh));
            trmi_report_tell(t,
                             "[name]%-36s [seconds]%12t [times]%7.2fx "
                             "[bytes]%10b[infeasible]?{  does not fit|}\n",
                             trmi_string("name", name), trmi_real("seconds", o->objective),
                             trmi_real("times", o->objective / r->m->found.objective),
                             trmi_real("bytes", o->best.measure.bytes),
                             trmi_bool("infeasible", o->infeasible));
        }
    }
    say_curve(r);
}

/* Writes from which factor on another plan is better. */
static void say_flips(trmi_figures *r) {
    trmi_report *t = &r->report;
    trmi_report_say(t, r->p->flips_count > 0 ? "\nwhen another plan is better by 2 %%\n" : "");
    for (int32_t i = 0; i < r->p->flips_count; i++) {
        const trmi_flip *f = &r->p->flips[i];
        char from[24] = "";
        if (f->at > 0 && f->now > 0) {
            snprintf(from, sizeof from, " (%s %.0f)", f->at > 1 ? "from" : "to",
                     f->at > 1 ? ceil(f->now * f->at) : floor(f->now * f->at));
        }
        const char *line = f->at > 0     ? "[what]%-10s x [at]%.3g[from]%s: [to]%s\n"
                           : f->high > 1 ? "[what]%-10s not up to x [end]%.0f\n"
                           : f->low < 1  ? "[what]%-10s not down to x 1/[end]%.0f\n"
                                         : "";
        trmi_report_tell(t, line, trmi_string("what", f->what), trmi_real("at", f->at),
                         trmi_string("from", from), trmi_string("to", f->to),
                         trmi_real("end", fmax(f->high, 1 / f->low)));
    }
}

/* Writes a warning for each operator that runs whole on every rank. */
static void say_uncut(trmi_figures *r) {
    trmi_report_say_each(&r->report, "warnings",
                         "[#first]?{\n|}warning       [operator]%s runs whole on every rank, which "
                         "costs up to [seconds]%t of the step: [reason]%s\n",
                         NULL);
}

/* Returns the bytes that a node keeps for backward under choice `c`. */
static double held_bytes(const trmi_space_class *k, const trmi_choice *c, int32_t n) {
    return k->kept[c->strategy[n]] - (c->again[n] ? k->saved[c->strategy[n]] : 0);
}

/* Returns the bytes of a node's parameters, their gradients and slots under choice `c`. */
static double stored_bytes(const trmi_space_class *k, const trmi_choice *c, int32_t n) {
    return k->stores[TRMI_STORES * c->strategy[n] + c->stores[n]].bytes;
}

/* Writes what would make a plan fit, the cheapest first: a smaller batch, more ranks, a higher
 * limit. */
static void say_way_out(trmi_figures *r) {
    const trmi_way_out *w = &r->p->way_out;
    trmi_report *t = &r->report;
    double needed =
        fmax(r->p->drive.compiled_bytes, r->m->found.best.measure.bytes + r->p->drive.beyond);
    trmi_report_say(t, "cheapest way out: ");
    if (w->batch > 0) {
        trmi_report_tell(t, "a batch of [batch]%d ([each]%d a rank), [rate]%r samples/s; ",
                         trmi_int("batch", w->batch), trmi_int("each", w->batch / r->p->ranks),
                         trmi_real("rate", (double)w->batch / w->batch_step));
    }
    if (w->ranks > 0) {
        trmi_report_tell(t, "[more]%d ranks, [rate]%r samples/s; ", trmi_int("more", w->ranks),
                         trmi_real("rate", (double)r->p->batch / w->ranks_step));
    }
    trmi_report_tell(t, "a limit of [needed]%b\n", trmi_real("needed", needed));
}

/* Writes the six operators with most memory where no plan fits. */
static void say_infeasible(trmi_figures *r) {
    const trmi_space *s = r->m->space;
    const trmi_choice *c = &r->m->found.best.choice;
    if (!r->m->found.infeasible) {
        return;
    }
    trmi_report_say(&r->report,
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
        trmi_report_tell(
            &r->report,
            "  [name]%-36s [held]%b kept for backward, [stored]%b parameters and state\n",
            trmi_string("name", trmi_space_op(s, most)->name),
            trmi_real("held", held_bytes(k, c, most)),
            trmi_real("stored", stored_bytes(k, c, most)));
    }
    trmi_free(done);
    say_way_out(r);
}

/* Contract in planner_report.h. The order is that of a reader's questions: what is the plan and how
 * fast is it; does it fit; what is in its way; where do time and messages go; what else is
 * there. */
void trmi_figures_say(trmi_figures *r) {
    say_head(r);
    trmi_figures_say_stages(r);
    say_infeasible(r);
    say_uncut(r);
    if (!r->p->pipe.chosen) {
        say_time(r);
    }
    say_operators(r);
    say_messages(r);
    say_others(r);
    say_flips(r);
}
