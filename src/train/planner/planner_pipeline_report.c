/* SPDX-License-Identifier: Apache-2.0 */
/* Reports the stages of a plan.
 *
 *   figures   where the seconds of a step go on the rank that ends last: work, waiting, meetings,
 *             update
 *   values    the chosen stages with every action of the played schedule, the user's plan, others
 *   lines     the user's plan and what is better; the chosen stages; other shapes with their bounds
 *
 * Values and lines read the same structs (parts_of, compare_plans), so they cannot differ. Scripts
 * read the JSON: members are added, and never renamed. */
#include "train/planner/planner_report.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Rows of the table; actions that JSON lists; other shapes that JSON lists. */
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
    double meetings;    /* of all stages, before and after updates */
    double update;      /* optimiser and reduction of gradients */
} step_parts;

/* Returns the seconds of a step in which the ranks of all stages meet. */
static double meeting_seconds(const trmi_pipe_plan *plan) {
    return (TRMI_MEETINGS_BEFORE + TRMI_MEETINGS_AFTER) * plan->meeting;
}

/* Returns the parts of a plan's step on the rank that ends last: ranks begin their updates
 * together, so that it has the longest one. */
static step_parts parts_of(const trmi_pipe_plan *plan, double overhead) {
    step_parts parts = {.step = plan->step, .meetings = meeting_seconds(plan)};
    for (int32_t i = 0; i < plan->shape.stages; i++) {
        const trmi_pipe_stage *rank = &plan->ranks[i];
        if (rank->update >= parts.update) {
            parts.work = rank->busy;
            parts.waits = plan->step - overhead - parts.meetings - rank->update - rank->busy;
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

/* ---- lines ----------------------------------------------------------------------------------- */

/* Writes one part of a difference between plans, with its sign in words; less than a microsecond is
 * left out. */
static void say_part(trmi_report *t, const char *what, double more, bool *any) {
    if (fabs(more) >= 1e-6) {
        trmi_report_tell(t, "[any]?{, |}[what]%s [seconds]%m [more]?{more|less}",
                         trmi_bool("any", *any), trmi_string("what", what),
                         trmi_real("seconds", fabs(more)), trmi_bool("more", more > 0));
        *any = true;
    }
}

/* Writes what is better than the user's plan, by how much and why. */
static void say_given(trmi_figures *r) {
    const trm_planner *p = r->p;
    trmi_report *t = &r->report;
    char words[128];
    comparison c;
    bool any = false;
    if (!compare_plans(p, &c)) {
        return;
    }
    bool file = p->pipe.given.space != NULL;
    double times = c.mine.step / c.other.step;
    trmi_pipe_words(&c.own->space->mesh, &c.own->shape, words, sizeof words);
    trmi_report_tell(t,
                     "[file]?{given plan   |given cut    } [words]%s: [step]%m, [bytes]%b a "
                     "rank[fits]?{|, does not fit}; ",
                     trmi_bool("file", file), trmi_string("words", words),
                     trmi_real("step", c.mine.step), trmi_real("bytes", c.own->bytes),
                     trmi_bool("fits", c.own->fits));
    if (times < 1 + 1e-6) {
        trmi_report_say(t, "none that was searched is faster\n");
        return;
    }
    trmi_report_tell(t,
                     "[times]%.2f times as long as the best [file]?{plan|cut of this shape}, "
                     "[step]%m\n",
                     trmi_real("times", times), trmi_bool("file", file),
                     trmi_real("step", c.other.step));
    if (!file) {
        const trmi_pipe_plan *best = &p->pipe.freed.rows[0].plan;
        trmi_report_say(t, "better        stages that begin with");
        for (int32_t v = 1; v < best->shape.stages * best->shape.chunks; v++) {
            trmi_report_tell(
                t, "[more]?{,| }[name]%s", trmi_bool("more", v > 1),
                trmi_string("name", trmi_space_op(best->space, best->begins[v])->name));
        }
        trmi_report_say(t, "\n");
    }
    trmi_report_say(t, "why           on the rank that ends last ");
    say_part(t, "operators take", c.mine.work - c.other.work, &any);
    say_part(t, "waiting for other stages takes", c.mine.waits - c.other.waits, &any);
    say_part(t, "meetings of all stages take", c.mine.meetings - c.other.meetings, &any);
    say_part(t, "gradients and update take", c.mine.update - c.other.update, &any);
    trmi_report_say(t, any ? "\n" : "all takes as long\n");
}

/* Writes a line for each run of the plan: its stage, ranks, operators, times and memory. */
static void say_runs(trmi_report *t, const trmi_pipe_plan *plan) {
    char ranks[32], name[48];
    int32_t inner = trmi_mesh_ranks(&plan->space->mesh);
    trmi_report_say(t, "\nstage  ranks     begins with                        operators    forward "
                       "  backward    update    memory in flight\n");
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
        trmi_report_tell(t,
                         "[stage]%-6d [ranks]%-9s [name]%-34s [operators]%9d [forward]%10m "
                         "[backward]%10m [update]%9m [bytes]%9b [in_flight]%d\n",
                         trmi_int("stage", stage), trmi_string("ranks", ranks),
                         trmi_string("name", name), trmi_int("operators", run->end - run->begin),
                         trmi_real("forward", run->forward), trmi_real("backward", run->backward),
                         trmi_real("update", rank->update), trmi_real("bytes", rank->bytes),
                         trmi_int("in_flight", run->in_flight));
    }
}

/* Writes the plans with stages that were searched, best first, with their bounds. */
static void say_rows(trmi_figures *r) {
    const trm_planner *p = r->p;
    trmi_report *t = &r->report;
    const trmi_pipe_found *f = &p->pipe.found;
    char words[128];
    double best = p->pipe.chosen ? f->rows[0].plan.step : trmi_planner_best(p)->found.objective;
    trmi_report_say(t, "\nplans with stages                                                    "
                       "step              memory     at least\n");
    for (int32_t i = 0; i < f->count && i < SHOWN; i++) {
        const trmi_pipe_row *row = &f->rows[i];
        bool has = row->plan.space != NULL;
        trmi_pipe_words(&row->mesh, &row->shape, words, sizeof words);
        if (row->bound == INFINITY) {
            continue;
        }
        trmi_report_tell(t,
                         has ? "[words]%-60s [step]%12m [times]%7.2fx [bytes]%10b [bound]%12m"
                               "[fits]?{|  does not fit}\n"
                             : "[words]%-60s            -                     [bound]%12m\n",
                         trmi_string("words", words), trmi_real("step", row->plan.step),
                         trmi_real("times", row->plan.step / best),
                         trmi_real("bytes", row->plan.bytes), trmi_real("bound", row->bound),
                         trmi_bool("fits", row->plan.fits));
    }
    trmi_report_tell(t, f->count > SHOWN ? "and [more]%d more\n" : "",
                     trmi_int("more", f->count - SHOWN));
}

/* Contract in planner_report.h. The user's plan first, then the chosen shape, then the
 * alternatives. */
void trmi_figures_say_stages(trmi_figures *r) {
    const trm_planner *p = r->p;
    trmi_report *t = &r->report;
    const trmi_pipe_found *f = &p->pipe.found;
    const trmi_found *plain = &trmi_planner_best(p)->found;
    const trmi_pipe_plan *plan = &f->rows[0].plan;
    char words[128];
    if (!p->pipe.searched) {
        return;
    }
    say_given(r);
    if (!p->pipe.chosen) {
        bool faster = plan->space != NULL && plan->step < plain->objective && plan->fits;
        trmi_report_tell(
            t,
            faster ? "stages        none is faster by [gain]%.0f %%, the least for which stages "
                     "are taken (--stages auto takes any): "
                   : "stages        none are better: ",
            trmi_real("gain", 100 * p->options.stages_gain));
        trmi_report_tell(t, "[count]%d plans with stages, none below [bound]%m\n",
                         trmi_int("count", f->count), trmi_real("bound", f->lower_bound));
        say_rows(r);
        return;
    }
    trmi_pipe_words(&plan->space->mesh, &plan->shape, words, sizeof words);
    trmi_report_tell(t,
                     "stages        [words]%s of [samples]%d samples; [bubble]%.1f{1e2} %% of the "
                     "ranks' time is bubble\n",
                     trmi_string("words", words),
                     trmi_int("samples", p->batch / plan->shape.micros),
                     trmi_real("bubble", plan->bubble));
    trmi_report_tell(
        t,
        plain->infeasible ? "without       no plan without stages fits\n"
                          : "without       the best plan without stages takes [step]%m "
                            "([times]%.2fx), [bytes]%b a rank\n",
        trmi_real("step", plain->objective), trmi_real("times", plain->objective / plan->step),
        trmi_real("bytes", plain->best.measure.bytes));
    if (plan->meeting > 0) {
        trmi_report_tell(t,
                         "meetings      [seconds]%m of the step: all stages meet [before]%d times "
                         "before their updates and [after]%d after\n",
                         trmi_real("seconds", meeting_seconds(plan)),
                         trmi_int("before", TRMI_MEETINGS_BEFORE),
                         trmi_int("after", TRMI_MEETINGS_AFTER));
    }
    if (*trmi_pipe_gap_reason(p) != '\0') {
        trmi_report_tell(t, "gap           [reason]%s\n",
                         trmi_string("reason", trmi_pipe_gap_reason(p)));
    }
    say_runs(t, plan);
    say_rows(r);
}

/* ---- values ---------------------------------------------------------------------------------- */

/* Puts the shape of a pipeline. */
static void put_shape(trmi_report *t, const trmi_pipe_shape *shape, const trmi_mesh *mesh) {
    char inner[48];
    trmi_report_put(t, trmi_int("stages", shape->stages),
                    trmi_string("mesh", trmi_mesh_text(mesh, inner, sizeof inner)),
                    trmi_int("ranks_a_stage", trmi_mesh_ranks(mesh)),
                    trmi_int("chunks", shape->chunks), trmi_int("micro_batches", shape->micros),
                    trmi_string("schedule", trmi_pipeline_order_name(shape->order)),
                    trmi_string("recompute", shape->recompute ? "block" : "off"));
}

/* Puts the runs of operators of stage `s`. */
static void put_runs(trmi_report *t, const trmi_pipe_plan *plan, int32_t s) {
    trmi_report_open_array(t, "runs");
    for (int32_t c = 0; c < plan->shape.chunks; c++) {
        const trmi_pipe_run *run = &plan->runs[c * plan->shape.stages + s];
        trmi_report_open_object(t, NULL);
        trmi_report_put(
            t, trmi_string("begin", trmi_space_op(plan->space, run->begin)->name),
            trmi_string("end", trmi_space_op(plan->space, run->end - 1)->name),
            trmi_int("operators", run->end - run->begin), trmi_int("in_flight", run->in_flight),
            trmi_real("forward_seconds", run->forward),
            trmi_real("backward_seconds", run->backward), trmi_real("sent_bytes", run->sent));
        trmi_report_close(t);
    }
    trmi_report_close(t);
}

/* Puts the stages: of each its runs of operators, times and memory. */
static void put_stages(trmi_report *t, const trmi_pipe_plan *plan) {
    int32_t inner = trmi_mesh_ranks(&plan->space->mesh);
    trmi_report_open_array(t, "stage_list");
    for (int32_t s = 0; s < plan->shape.stages; s++) {
        const trmi_pipe_stage *rank = &plan->ranks[s];
        trmi_report_open_object(t, NULL);
        trmi_report_put(t, trmi_int("stage", s), trmi_int("first_rank", s * inner),
                        trmi_int("last_rank", (s + 1) * inner - 1),
                        trmi_real("busy_seconds", rank->busy),
                        trmi_real("ends_seconds", rank->ends),
                        trmi_real("update_begins_seconds", fmax(rank->ends, plan->met)),
                        trmi_real("update_seconds", rank->update),
                        trmi_real("meeting_seconds", meeting_seconds(plan)),
                        trmi_real("bubble_seconds",
                                  plan->step - rank->busy - rank->update - meeting_seconds(plan)),
                        trmi_real("memory_bytes", rank->bytes));
        trmi_report_open_object(t, "memory");
        trmi_report_put(t, trmi_whole("parameter_bytes", rank->weight_bytes),
                        trmi_whole("gradient_bytes", rank->gradient_bytes),
                        trmi_whole("slot_bytes", rank->slot_bytes),
                        trmi_whole("kept_bytes", rank->kept_bytes),
                        trmi_whole("staging_bytes", rank->staging_bytes));
        trmi_report_close(t);
        put_runs(t, plan, s);
        trmi_report_close(t);
    }
    trmi_report_close(t);
}

/* Puts the played schedule: for each stage its actions with their ends, in order. */
static void put_actions(trmi_report *t, const trmi_pipe_plan *plan) {
    int32_t count = plan->pipeline.count, stages = plan->shape.stages;
    trmi_report_open_array(t, "actions");
    for (int32_t s = 0; s < stages && count * stages <= ACTIONS; s++) {
        trmi_report_open_array(t, NULL);
        for (int32_t i = s * count; i < (s + 1) * count; i++) {
            const trmi_pipeline_action *a = &plan->pipeline.actions[i];
            trmi_report_open_object(t, NULL);
            trmi_report_put(t, trmi_bool("backward", a->backward), trmi_int("chunk", a->chunk),
                            trmi_int("micro_batch", a->micro), trmi_real("begin", plan->starts[i]),
                            trmi_real("end", plan->ends[i]));
            trmi_report_close(t);
        }
        trmi_report_close(t);
    }
    trmi_report_close(t);
}

/* Puts when the ranks of all stages meet in a step: before and after their updates. */
static void put_meetings(trmi_report *t, const trmi_pipe_plan *plan) {
    double times[TRMI_STAGE_MEETINGS][2];
    trmi_report_open_array(t, "meetings");
    for (int32_t i = 0; i < trmi_pipe_meetings(plan, times); i++) {
        trmi_report_open_object(t, NULL);
        trmi_report_put(t, trmi_real("begin", times[i][0]), trmi_real("end", times[i][1]));
        trmi_report_close(t);
    }
    trmi_report_close(t);
}

/* Puts the user's plan or cut beside the best one; null without one. */
static void put_given(trmi_report *t, const trm_planner *p) {
    comparison c;
    if (!compare_plans(p, &c)) {
        trmi_report_put(t, trmi_string("given_pipeline", NULL));
        return;
    }
    trmi_report_open_object(t, "given_pipeline");
    put_shape(t, &c.own->shape, &c.own->space->mesh);
    trmi_report_put(
        t, trmi_string("compared_with", p->pipe.given.space != NULL ? "best plan" : "best cut"),
        trmi_bool("fits", c.own->fits), trmi_real("memory_bytes", c.own->bytes),
        trmi_real("step_seconds", c.mine.step), trmi_real("best_step_seconds", c.other.step),
        trmi_real("operators_more_seconds", c.mine.work - c.other.work),
        trmi_real("waits_more_seconds", c.mine.waits - c.other.waits),
        trmi_real("meetings_more_seconds", c.mine.meetings - c.other.meetings),
        trmi_real("update_more_seconds", c.mine.update - c.other.update));
    trmi_report_close(t);
}

/* Puts the chosen stages; null: none were chosen. */
static void put_chosen(trmi_report *t, const trm_planner *p) {
    const trmi_pipe_plan *plan = &p->pipe.found.rows[0].plan;
    if (!p->pipe.chosen) {
        trmi_report_put(t, trmi_string("pipeline", NULL));
        return;
    }
    trmi_report_open_object(t, "pipeline");
    put_shape(t, &plan->shape, &plan->space->mesh);
    trmi_report_put(
        t, trmi_int("micro_batch", p->batch / plan->shape.micros),
        trmi_real("step_seconds", plan->step), trmi_real("bubble", plan->bubble),
        trmi_real("memory_bytes", plan->bytes), trmi_real("compiled_bytes", p->pipe.compiled_bytes),
        trmi_bool("fits", plan->fits), trmi_string("gap_reason", trmi_pipe_gap_reason(p)));
    put_stages(t, plan);
    put_actions(t, plan);
    put_meetings(t, plan);
    trmi_report_close(t);
}

/* Contract in planner_report.h. */
void trmi_figures_put_stages(trmi_figures *r) {
    const trm_planner *p = r->p;
    const trmi_pipe_found *f = &p->pipe.found;
    trmi_report *t = &r->report;
    if (!p->pipe.searched) {
        return;
    }
    put_chosen(t, p);
    put_given(t, p);
    const trmi_found *plain = &trmi_planner_best(p)->found;
    trmi_report_open_object(t, "without_stages");
    trmi_report_put(t, trmi_bool("fits", !plain->infeasible),
                    trmi_real("step_seconds", plain->objective),
                    trmi_real("memory_bytes", plain->best.measure.bytes),
                    trmi_real("search_seconds", p->drive.search_seconds));
    trmi_report_close(t);
    trmi_report_put(t, trmi_int("pipeline_solves", f->solves),
                    trmi_real("pipeline_search_seconds", f->seconds));
    trmi_report_open_array(t, "pipelines");
    for (int32_t i = 0; i < f->count && i < ALTERNATIVES; i++) {
        const trmi_pipe_row *row = &f->rows[i];
        const bool has = row->plan.space != NULL;
        trmi_report_open_object(t, NULL);
        put_shape(t, &row->shape, &row->mesh);
        trmi_report_put(t, trmi_real("lower_bound", row->bound),
                        trmi_real("step_seconds", has ? row->plan.step : NAN),
                        trmi_real("memory_bytes", has ? row->plan.bytes : NAN),
                        trmi_bool("fits", has && row->plan.fits));
        trmi_report_close(t);
    }
    trmi_report_close(t);
}
