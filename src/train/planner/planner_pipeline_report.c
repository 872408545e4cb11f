/* SPDX-License-Identifier: Apache-2.0 */
/* Prints the stages of a plan: as lines for people, and as the members "pipeline" of the JSON
 * report.
 *
 *   figures   where the seconds of a step go on the rank that ends last: work, waiting, update
 *   text      the user's plan and what is better; the chosen stages; other shapes with their bounds
 *   JSON      the same facts, with every action of the played schedule
 *
 * Text and JSON read the same structs (parts_of, compare_plans), so they cannot differ. Scripts
 * read the JSON: members are added, and never renamed. */
#include "train/planner/planner_report.h"

#include "base/format/json_member.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Rows of the text's table; actions that the JSON lists; other shapes that the JSON lists. */
enum { SHOWN = 8, ACTIONS = 8192, ALTERNATIVES = 64 };

/* ---- figures --------------------------------------------------------------------------------- */

/* Contract in planner_report.h. A text that does not fit is cut off, which a report survives. */
const char *trmi_pipe_words(const trmi_mesh *mesh, const trmi_pipe_shape *shape, char *text,
                            size_t size) {
    char inner[48];
    int used = snprintf(text, size, "%d stage%s x mesh %s, %d micro-batch%s, %s", shape->stages,
                        shape->stages == 1 ? "" : "s", trmi_mesh_text(mesh, inner, sizeof inner),
                        shape->micros, shape->micros == 1 ? "" : "es",
                        trmi_pipeline_order_name(shape->order));
    if (shape->chunks > 1 && used > 0 && (size_t)used < size) {
        used += snprintf(text + used, size - (size_t)used, " %d", shape->chunks);
    }
    if (shape->recompute && used > 0 && (size_t)used < size) {
        snprintf(text + used, size - (size_t)used, ", recompute block");
    }
    return text;
}

/* Writes seconds as milliseconds with four significant digits or so; returns text. */
static const char *milliseconds_text(double seconds, char text[24]) {
    snprintf(text, 24, "%.*f ms", seconds < 1e-2 ? 3 : seconds < 1 ? 2 : 1, seconds * 1e3);
    return text;
}

/* Returns why a row's bound is below the best plan where ranks share cores. */
static const char *crowded_reason(const trmi_pipe_row *row) {
    return row->plan.space == NULL
               ? "ranks share cores: plans whose bound is less than 0.1 % below the best plan are "
                 "not searched"
           : row->few_cuts ? "ranks share cores: of many cuts of stages a few are played, and the "
                             "bound of the others takes ranks to be busy all the time"
                           : "ranks share cores, and the bound takes them to be busy all the time";
}

/* Contract in planner_report.h. The reason is that of the row whose bound is the lower bound: only
 * this row keeps the proof open. */
const char *trmi_pipe_gap_reason(const trm_planner *p) {
    const trmi_pipe_found *f = &p->pipe.found;
    if (!p->pipe.chosen || p->pipe.lower_bound >= f->rows[0].plan.step * (1 - 1e-6)) {
        return "";
    }
    if (p->pipe.whole_limit) {
        return "the bound counts what is kept, and not what each program needs beyond";
    }
    for (int32_t i = 0; i < f->count; i++) {
        if (f->rows[i].bound <= p->pipe.lower_bound * (1 + 1e-9)) {
            return trmi_planner_crowding(p) > 1 ? crowded_reason(&f->rows[i])
                   : trmi_mesh_ranks(&f->rows[i].mesh) > 1
                       ? "the bound omits messages that no work hides, and the update of "
                         "stages after the first one"
                       : "the bound omits the memory of messages, or more cuts are below the "
                         "best plan than are tried";
        }
    }
    return "the bound is that of plans without stages";
}

/* Where the seconds of a step go on the rank that ends last. */
typedef struct step_parts {
    double step;        /* the whole step */
    double work, waits; /* computing micro-batches; waiting for those of other stages */
    double update;      /* optimiser and reduction of gradients */
} step_parts;

/* Returns the parts of a plan's step on the rank that ends last: ranks begin their updates
 * together, so that it has the longest one. */
static step_parts parts_of(const trmi_pipe_plan *plan, double overhead) {
    step_parts parts = {.step = plan->step};
    for (int32_t i = 0; i < plan->shape.stages; i++) {
        const trmi_pipe_stage *rank = &plan->ranks[i];
        if (rank->update >= parts.update) {
            parts.work = rank->busy;
            parts.waits = plan->step - overhead - rank->update - rank->busy;
            parts.update = rank->update;
        }
    }
    return parts;
}

/* Returns the parts of the planner's plan, with stages or without. */
static step_parts parts_of_chosen(const trm_planner *p) {
    const trmi_measure *m = &trmi_planner_best(p)->found.best.measure;
    return p->pipe.chosen
               ? parts_of(&p->pipe.found.rows[0].plan, p->links.overhead)
               : (step_parts){.step = m->step,
                              .work = m->step - m->overhead - m->update - m->exposed - m->gather,
                              .update = m->update + m->exposed + m->gather};
}

/* A comparison of two plans: a user's, and one that was searched. */
typedef struct comparison {
    const trmi_pipe_plan *own;
    step_parts mine, other;
} comparison;

/* Compares the user's plan or cut, if there is one, with what the search has found. */
static bool compare_plans(const trm_planner *p, comparison *out) {
    const trmi_planner_pipe *pipe = &p->pipe;
    double overhead = p->links.overhead;
    if (pipe->given.space != NULL) {
        *out = (comparison){&pipe->given, parts_of(&pipe->given, overhead), parts_of_chosen(p)};
        return true;
    }
    const trmi_pipe_plan *best = pipe->freed.count > 0 ? &pipe->freed.rows[0].plan : NULL;
    if (best == NULL || best->space == NULL || !pipe->chosen) {
        return false;
    }
    *out = (comparison){&pipe->found.rows[0].plan, parts_of_chosen(p), parts_of(best, overhead)};
    return true;
}

/* ---- text ------------------------------------------------------------------------------------ */

/* Appends one part of a difference between plans, with its sign in words; less than a microsecond
 * is left out. */
static void print_part(trmi_text *t, const char *what, double more, bool *any) {
    char a[24];
    if (fabs(more) >= 1e-6) {
        trmi_text_printf(t, "%s%s %s %s", *any ? ", " : "", what, milliseconds_text(fabs(more), a),
                         more > 0 ? "more" : "less");
        *any = true;
    }
}

/* Prints what is better than the user's plan, by how much and why. */
static void print_given(trmi_figures *r) {
    const trm_planner *p = r->p;
    trmi_text *t = &r->text;
    char a[24], b[24], words[128];
    comparison c;
    bool any = false;
    if (!compare_plans(p, &c)) {
        return;
    }
    bool file = p->pipe.given.space != NULL;
    double times = c.mine.step / c.other.step;
    trmi_pipe_words(&c.own->space->mesh, &c.own->shape, words, sizeof words);
    trmi_text_printf(t, "%-13s %s: %s, %s a rank%s; ", file ? "given plan" : "given cut", words,
                     milliseconds_text(c.mine.step, a), trmi_bytes_text(c.own->bytes, b),
                     c.own->fits ? "" : ", does not fit");
    if (times < 1 + 1e-6) {
        trmi_text_printf(t, "none that was searched is faster\n");
        return;
    }
    trmi_text_printf(t, "%.2f times as long as the best %s, %s\n", times,
                     file ? "plan" : "cut of this shape", milliseconds_text(c.other.step, a));
    if (!file) {
        const trmi_pipe_plan *best = &p->pipe.freed.rows[0].plan;
        trmi_text_printf(t, "%-13s stages that begin with", "better");
        for (int32_t v = 1; v < best->shape.stages * best->shape.chunks; v++) {
            trmi_text_printf(t, "%s%s", v > 1 ? "," : " ",
                             trmi_space_op(best->space, best->begins[v])->name);
        }
        trmi_text_printf(t, "\n");
    }
    trmi_text_printf(t, "%-13s on the rank that ends last ", "why");
    print_part(t, "operators take", c.mine.work - c.other.work, &any);
    print_part(t, "waiting for other stages takes", c.mine.waits - c.other.waits, &any);
    print_part(t, "gradients and update take", c.mine.update - c.other.update, &any);
    trmi_text_printf(t, "%s\n", any ? "" : "all takes as long");
}

/* Prints a line for each run of the plan: its stage, ranks, operators, times and memory. */
static void print_runs(trmi_figures *r, const trmi_pipe_plan *plan) {
    char a[24], b[24], c[24], d[24], ranks[32], name[48];
    int32_t inner = trmi_mesh_ranks(&plan->space->mesh);
    trmi_text_printf(&r->text, "\n%-6s %-9s %-34s %9s %10s %10s %9s %9s %s\n", "stage", "ranks",
                     "begins with", "operators", "forward", "backward", "update", "memory",
                     "in flight");
    for (int32_t v = 0; v < plan->shape.stages * plan->shape.chunks; v++) {
        const trmi_pipe_run *run = &plan->runs[v];
        int32_t stage = v % plan->shape.stages;
        const trmi_pipe_stage *rank = &plan->ranks[stage];
        snprintf(ranks, sizeof ranks, inner > 1 ? "%d-%d" : "%d", stage * inner,
                 (stage + 1) * inner - 1);
        const char *op = trmi_space_op(plan->space, run->begin)->name;
        size_t length = strlen(op);
        snprintf(name, sizeof name, "%s%.33s", length > 33 ? "..." : "",
                 length > 33 ? op + length - 30 : op);
        trmi_text_printf(&r->text, "%-6d %-9s %-34s %9d %10s %10s %9s %9s %d\n", stage, ranks, name,
                         run->end - run->begin, milliseconds_text(run->forward, a),
                         milliseconds_text(run->backward, b), milliseconds_text(rank->update, c),
                         trmi_bytes_text(rank->bytes, d), run->in_flight);
    }
}

/* Prints the plans with stages that were searched, best first, with their bounds. */
static void print_rows(trmi_figures *r) {
    const trm_planner *p = r->p;
    const trmi_pipe_found *f = &p->pipe.found;
    char a[24], b[24], words[128];
    double best = p->pipe.chosen ? f->rows[0].plan.step : trmi_planner_best(p)->found.objective;
    trmi_text_printf(&r->text, "\n%-60s %12s %8s %10s %12s\n", "plans with stages", "step", "",
                     "memory", "at least");
    for (int32_t i = 0; i < f->count && i < SHOWN; i++) {
        const trmi_pipe_row *row = &f->rows[i];
        bool has = row->plan.space != NULL;
        trmi_pipe_words(&row->mesh, &row->shape, words, sizeof words);
        if (row->bound == INFINITY) {
            continue;
        }
        trmi_text_printf(&r->text, "%-60s %12s ", words,
                         has ? milliseconds_text(row->plan.step, a) : "-");
        if (has) {
            trmi_text_printf(&r->text, "%7.2fx %10s ", row->plan.step / best,
                             trmi_bytes_text(row->plan.bytes, b));
        } else {
            trmi_text_printf(&r->text, "%8s %10s ", "", "");
        }
        trmi_text_printf(&r->text, "%12s%s\n", milliseconds_text(row->bound, a),
                         has && !row->plan.fits ? "  does not fit" : "");
    }
    if (f->count > SHOWN) {
        trmi_text_printf(&r->text, "and %d more\n", f->count - SHOWN);
    }
}

/* Contract in planner_report.h. The user's plan first, then the chosen shape, then the
 * alternatives. */
void trmi_figures_print_stages(trmi_figures *r) {
    const trm_planner *p = r->p;
    const trmi_pipe_found *f = &p->pipe.found;
    const trmi_found *plain = &trmi_planner_best(p)->found;
    const trmi_pipe_plan *plan = &f->rows[0].plan;
    char a[24], b[24], words[128];
    if (!p->pipe.searched) {
        return;
    }
    print_given(r);
    if (!p->pipe.chosen) {
        if (plan->space != NULL && plan->step < plain->objective && plan->fits) {
            trmi_text_printf(&r->text,
                             "stages        none is faster by %.0f %%, the least for which stages "
                             "are taken (--stages auto takes any): ",
                             100 * p->options.stages_gain);
        } else {
            trmi_text_printf(&r->text, "stages        none are better: ");
        }
        trmi_text_printf(&r->text, "%d plans with stages, none below %s\n", f->count,
                         milliseconds_text(f->lower_bound, a));
        print_rows(r);
        return;
    }
    trmi_pipe_words(&plan->space->mesh, &plan->shape, words, sizeof words);
    trmi_text_printf(&r->text,
                     "stages        %s of %lld samples; %.1f %% of the ranks' time is bubble\n",
                     words, (long long)(p->batch / plan->shape.micros), 100 * plan->bubble);
    if (plain->infeasible) {
        trmi_text_printf(&r->text, "without       no plan without stages fits\n");
    } else {
        trmi_text_printf(&r->text,
                         "without       the best plan without stages takes %s (%.2fx), %s a rank\n",
                         milliseconds_text(plain->objective, a), plain->objective / plan->step,
                         trmi_bytes_text(plain->best.measure.bytes, b));
    }
    if (*trmi_pipe_gap_reason(p) != '\0') {
        trmi_text_printf(&r->text, "gap           %s\n", trmi_pipe_gap_reason(p));
    }
    print_runs(r, plan);
    print_rows(r);
}

/* ---- JSON ------------------------------------------------------------------------------------ */

/* Appends the members that name a shape of pipeline: no braces, the caller has opened the
 * object. */
static void json_shape(trmi_text *t, const trmi_pipe_shape *shape, const trmi_mesh *mesh) {
    char inner[48];
    trmi_text_printf(t,
                     "\"stages\":%d,\"mesh\":\"%s\",\"ranks_a_stage\":%d,\"chunks\":%d,"
                     "\"micro_batches\":%d,\"schedule\":\"%s\",\"recompute\":\"%s\"",
                     shape->stages, trmi_mesh_text(mesh, inner, sizeof inner),
                     trmi_mesh_ranks(mesh), shape->chunks, shape->micros,
                     trmi_pipeline_order_name(shape->order), shape->recompute ? "block" : "off");
}

/* Appends the stages: of each its runs of operators, times and memory. */
static void json_stages(trmi_text *t, const trmi_pipe_plan *plan) {
    int32_t stages = plan->shape.stages, inner = trmi_mesh_ranks(&plan->space->mesh);
    trmi_text_printf(t, ",\"stage_list\":[");
    for (int32_t s = 0; s < stages; s++) {
        const trmi_pipe_stage *rank = &plan->ranks[s];
        trmi_text_printf(t, "%s{\"stage\":%d,\"first_rank\":%d,\"last_rank\":%d", s ? "," : "", s,
                         s * inner, (s + 1) * inner - 1);
        trmi_text_json_number_member(t, "busy_seconds", rank->busy);
        trmi_text_json_number_member(t, "ends_seconds", rank->ends);
        trmi_text_json_number_member(t, "update_begins_seconds", fmax(rank->ends, plan->met));
        trmi_text_json_number_member(t, "update_seconds", rank->update);
        trmi_text_json_number_member(t, "bubble_seconds", plan->step - rank->busy - rank->update);
        trmi_text_json_number_member(t, "memory_bytes", rank->bytes);
        trmi_text_printf(t,
                         ",\"memory\":{\"parameter_bytes\":%.0f,\"gradient_bytes\":%.0f,"
                         "\"slot_bytes\":%.0f,\"kept_bytes\":%.0f,\"staging_bytes\":%.0f}",
                         rank->weight_bytes, rank->gradient_bytes, rank->slot_bytes,
                         rank->kept_bytes, rank->staging_bytes);
        trmi_text_printf(t, ",\"runs\":[");
        for (int32_t c = 0; c < plan->shape.chunks; c++) {
            const trmi_pipe_run *run = &plan->runs[c * stages + s];
            trmi_text_printf(t, "%s{\"begin\":", c ? "," : "");
            trmi_text_json_string(t, trmi_space_op(plan->space, run->begin)->name);
            trmi_text_printf(t, ",\"end\":");
            trmi_text_json_string(t, trmi_space_op(plan->space, run->end - 1)->name);
            trmi_text_printf(t, ",\"operators\":%d,\"in_flight\":%d", run->end - run->begin,
                             run->in_flight);
            trmi_text_json_number_member(t, "forward_seconds", run->forward);
            trmi_text_json_number_member(t, "backward_seconds", run->backward);
            trmi_text_json_number_member(t, "sent_bytes", run->sent);
            trmi_text_printf(t, "}");
        }
        trmi_text_printf(t, "]}");
    }
    trmi_text_printf(t, "]");
}

/* Appends the played schedule: for each stage its actions with their ends, in order. */
static void json_actions(trmi_text *t, const trmi_pipe_plan *plan) {
    int32_t count = plan->pipeline.count, stages = plan->shape.stages;
    trmi_text_printf(t, ",\"actions\":[");
    for (int32_t s = 0; s < stages && count * stages <= ACTIONS; s++) {
        trmi_text_printf(t, "%s[", s ? "," : "");
        for (int32_t i = 0; i < count; i++) {
            const trmi_pipeline_action *a = &plan->pipeline.actions[s * count + i];
            trmi_text_printf(t, "%s{\"backward\":%s,\"chunk\":%d,\"micro_batch\":%d", i ? "," : "",
                             a->backward ? "true" : "false", a->chunk, a->micro);
            trmi_text_json_number_member(t, "begin", plan->starts[s * count + i]);
            trmi_text_json_number_member(t, "end", plan->ends[s * count + i]);
            trmi_text_printf(t, "}");
        }
        trmi_text_printf(t, "]");
    }
    trmi_text_printf(t, "]");
}

/* Appends "given_pipeline": the user's plan or cut beside the best one; null without one. */
static void json_given(const trm_planner *p, trmi_text *t) {
    comparison c;
    if (!compare_plans(p, &c)) {
        trmi_text_printf(t, ",\"given_pipeline\":null");
        return;
    }
    trmi_text_printf(t, ",\"given_pipeline\":{");
    json_shape(t, &c.own->shape, &c.own->space->mesh);
    trmi_text_printf(t, ",\"compared_with\":\"%s\",\"fits\":%s",
                     p->pipe.given.space != NULL ? "best plan" : "best cut",
                     c.own->fits ? "true" : "false");
    trmi_text_json_number_member(t, "memory_bytes", c.own->bytes);
    trmi_text_json_number_member(t, "step_seconds", c.mine.step);
    trmi_text_json_number_member(t, "best_step_seconds", c.other.step);
    trmi_text_json_number_member(t, "operators_more_seconds", c.mine.work - c.other.work);
    trmi_text_json_number_member(t, "waits_more_seconds", c.mine.waits - c.other.waits);
    trmi_text_json_number_member(t, "update_more_seconds", c.mine.update - c.other.update);
    trmi_text_printf(t, "}");
}

/* Contract in planner_report.h. The same facts for scripts; "pipeline" is null if no stages were
 * chosen. */
void trmi_figures_json_stages(trmi_figures *r) {
    const trm_planner *p = r->p;
    const trmi_pipe_found *f = &p->pipe.found;
    trmi_text *t = &r->text;
    if (!p->pipe.searched) {
        return;
    }
    trmi_text_printf(t, ",\"pipeline\":");
    if (!p->pipe.chosen) {
        trmi_text_printf(t, "null");
    } else {
        const trmi_pipe_plan *plan = &f->rows[0].plan;
        trmi_text_printf(t, "{");
        json_shape(t, &plan->shape, &plan->space->mesh);
        trmi_text_printf(t, ",\"micro_batch\":%lld", (long long)(p->batch / plan->shape.micros));
        trmi_text_json_number_member(t, "step_seconds", plan->step);
        trmi_text_json_number_member(t, "bubble", plan->bubble);
        trmi_text_json_number_member(t, "memory_bytes", plan->bytes);
        trmi_text_json_number_member(t, "compiled_bytes", p->pipe.compiled_bytes);
        trmi_text_printf(t, ",\"fits\":%s,\"gap_reason\":", plan->fits ? "true" : "false");
        trmi_text_json_string(t, trmi_pipe_gap_reason(p));
        json_stages(t, plan);
        json_actions(t, plan);
        trmi_text_printf(t, "}");
    }
    json_given(p, t);
    const trmi_found *plain = &trmi_planner_best(p)->found;
    trmi_text_printf(t, ",\"without_stages\":{\"fits\":%s", plain->infeasible ? "false" : "true");
    trmi_text_json_number_member(t, "step_seconds", plain->objective);
    trmi_text_json_number_member(t, "memory_bytes", plain->best.measure.bytes);
    trmi_text_json_number_member(t, "search_seconds", p->drive.search_seconds);
    trmi_text_printf(t, "},\"pipeline_solves\":%lld", (long long)f->solves);
    trmi_text_json_number_member(t, "pipeline_search_seconds", f->seconds);
    trmi_text_printf(t, ",\"pipelines\":[");
    for (int32_t i = 0; i < f->count && i < ALTERNATIVES; i++) {
        const trmi_pipe_row *row = &f->rows[i];
        trmi_text_printf(t, "%s{", i ? "," : "");
        json_shape(t, &row->shape, &row->mesh);
        trmi_text_json_number_member(t, "lower_bound", row->bound);
        trmi_text_json_number_member(t, "step_seconds",
                                     row->plan.space != NULL ? row->plan.step : NAN);
        trmi_text_json_number_member(t, "memory_bytes",
                                     row->plan.space != NULL ? row->plan.bytes : NAN);
        trmi_text_printf(t, ",\"fits\":%s}",
                         row->plan.space != NULL && row->plan.fits ? "true" : "false");
    }
    trmi_text_printf(t, "]");
}
