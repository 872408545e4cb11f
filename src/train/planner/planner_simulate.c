/* SPDX-License-Identifier: Apache-2.0 */
/* Simulates training steps for other numbers of ranks and other machines (trm_planner_simulate).
 *
 * A balanced cut makes all ranks of a mesh alike, so the rank with the largest parts stands for
 * all of them, however many there are. A slow rank is simulated by its own operators' time: all
 * other ranks wait for it.
 *
 *        for P = 1, 2, 4 ... largest:  mesh grows at its outermost axis --> space --> search --> event simulation
 *        for one change at a time:     links, operators, start-ups scaled   --> the same plan, simulated again */
#include "train/planner/planner.h"

#include "base/arguments.h"
#include "base/error.h"
#include "base/os.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* One row of a scaling table: ranks, and the best plan there. Times in seconds, bytes of one
 * rank. */
typedef struct point {
    int32_t ranks;
    trmi_mesh mesh;       /* of the best plan */
    int64_t batch;        /* samples of all ranks */
    double step, bound;   /* of the best plan; no plan is faster than the bound */
    double data_parallel; /* a step of the data parallel plan */
    double exposed;       /* communication of the step that no computation hides */
    double bytes;         /* memory */
    bool fits;            /* within the memory limit */
    char plan[96];        /* the plan in words */
} point;

/* Numbers of ranks that one simulation has, at most; they double from point to point. */
enum { POINTS = 24 };
/* Everything that is simulated, before it is printed. The planner keeps it, so that a second report
 * of the same simulation costs nothing. */
struct trmi_simulation {
    trm_planner *p;
    int32_t largest; /* of the options */
    double slow;
    point weak[POINTS], strong[POINTS];
    int32_t weak_count, strong_count;
    struct {
        const char *what;
        double step, searched; /* seconds of the chosen plan, and of the best plan there */
    } what_if[8];
    int32_t what_if_count;
    double straggler, seconds;
};
typedef struct trmi_simulation simulation;

/* ---- one point of a scaling table ------------------------------------------------------------ */

/* Sets *out to the mesh for `ranks` ranks: the inner axes stay, the outermost one grows or
 * shrinks, and vanishes at 1. Returns false if no such mesh exists. */
static bool mesh_for(const trm_planner *p, int32_t ranks, trmi_mesh *out) {
    *out = trmi_planner_best(p)->mesh;
    while (out->axes > 0) {
        int32_t inner = trmi_mesh_ranks(out) / out->size[0];
        if (ranks % inner == 0 && ranks / inner >= 2) {
            out->size[0] = ranks / inner;
            return true;
        }
        if (ranks == inner) {
            memmove(&out->size[0], &out->size[1], (size_t)(out->axes - 1) * sizeof out->size[0]);
            memmove(&out->name[0], &out->name[1], (size_t)(out->axes - 1) * sizeof out->name[0]);
            out->axes--;
            return true;
        }
        memmove(&out->size[0], &out->size[1], (size_t)(out->axes - 1) * sizeof out->size[0]);
        memmove(&out->name[0], &out->name[1], (size_t)(out->axes - 1) * sizeof out->name[0]);
        out->axes--;
    }
    return ranks == 1;
}

/* Searches for the best plan of `batch` on `ranks` ranks and notes its figures in *out. */
static trm_status run_point(simulation *s, int32_t ranks, int64_t batch, point *out,
                            trm_error *err) {
    trm_planner *p = s->p;
    trm_graph *graph = NULL;
    trmi_space *space = NULL;
    trmi_arena arena = {0};
    trmi_found *found = trmi_alloc(sizeof *found);
    *out = (point){.ranks = ranks, .batch = batch};
    mesh_for(p, ranks, &out->mesh);
    trm_status status = found != NULL ? trmi_planner_graph(p, batch, 0, &graph, err)
                                      : TRMI_NO_MEMORY(err, "to simulate");
    status = status == TRM_OK ? trmi_planner_space(p, graph, &out->mesh, &space, err) : status;
    const trmi_search_options options = {.mode = p->drive.mode,
                                         .memory_bytes = trmi_auto_limit(&p->drive)};
    status = status == TRM_OK ? trmi_search(space, &options, &arena, found, err) : status;
    /* `exposed`: all messages that computation does not hide. */
    if (status == TRM_OK) {
        out->step = found->objective;
        out->bound = found->lower_bound;
        out->exposed = found->best.measure.exposed + found->best.measure.redistribute +
                       found->best.measure.exchange + found->best.measure.gather;
        out->bytes = found->best.measure.bytes;
        out->fits = !found->infeasible;
        out->data_parallel = found->baselines_count > 0 ? found->baselines[0].measure.step : 0;
        if (out->ranks == 1) {
            snprintf(out->plan, sizeof out->plan, "one device");
        } else {
            trmi_planner_summary(space, &found->best.choice, out->plan, sizeof out->plan);
        }
    }
    trmi_space_destroy(space);
    trm_graph_destroy(graph);
    trmi_arena_free(&arena);
    trmi_free(found);
    return status;
}

/* Fills the tables: weak scaling (same samples a rank) and strong scaling (same global batch),
 * for powers of two. */
static trm_status fill_scaling(simulation *s, trm_error *err) {
    const trm_planner *p = s->p;
    int64_t per_rank = p->batch / p->ranks;
    int32_t largest = s->largest > 0 ? s->largest : p->ranks;
    for (int32_t ranks = 1; ranks <= largest && s->weak_count < POINTS; ranks *= 2) {
        trmi_mesh mesh;
        if (!mesh_for(p, ranks, &mesh)) {
            continue;
        }
        TRMI_TRY(run_point(s, ranks, per_rank * ranks, &s->weak[s->weak_count], err));
        s->weak_count++;
        TRMI_TRY(run_point(s, ranks, p->batch, &s->strong[s->strong_count], err));
        s->strong_count++;
        /* long tables begin 1, 8, 16 ... */
        ranks = ranks == 1 && largest > 2048 ? 4 : ranks;
    }
    return TRM_OK;
}

/* ---- changed conditions ---------------------------------------------------------------------- */

/* Adds a row to what_if: the step of the chosen plan, and of the best plan, with the planner's
 * present costs. */
static trm_status measure_changed(simulation *s, const char *what, trm_error *err) {
    trm_planner *p = s->p;
    const trmi_auto_mesh *m = trmi_planner_best(p);
    trmi_space *space = NULL;
    trmi_arena arena = {0};
    trmi_measure measure;
    trmi_found *found = trmi_alloc(sizeof *found);
    trm_status status = found != NULL ? trmi_planner_space(p, p->graph, &m->mesh, &space, err)
                                      : TRMI_NO_MEMORY(err, "to simulate");
    status =
        status == TRM_OK ? trmi_space_measure(space, &m->found.best.choice, &measure, err) : status;
    /* The chosen plan is one of the candidates, so the best plan there is never worse. */
    const trmi_search_options options = {.mode = p->drive.mode,
                                         .memory_bytes = trmi_auto_limit(&p->drive),
                                         .own = &m->found.best.choice};
    status = status == TRM_OK ? trmi_search(space, &options, &arena, found, err) : status;
    if (status == TRM_OK) {
        s->what_if[s->what_if_count].what = what;
        s->what_if[s->what_if_count].step = measure.step;
        s->what_if[s->what_if_count++].searched = found->objective;
    }
    trmi_space_destroy(space);
    trmi_arena_free(&arena);
    trmi_free(found);
    return status;
}

/* Scales links and operators one at a time, simulates again, and restores the costs. */
static trm_status what_if(simulation *s, trm_error *err) {
    trm_planner *p = s->p;
    trmi_links links = p->links;
    double factor = p->costs.factor;
    /* factors of the seconds of a byte, of a message's latency, of operators */
    static const struct {
        const char *what;
        double beta, alpha, operators;
    } tries[] = {{"links of half the bandwidth", 2, 1, 1},
                 {"links of twice the bandwidth", 0.5, 1, 1},
                 {"messages that start twice as slowly", 1, 2, 1},
                 {"messages that start twice as fast", 1, 0.5, 1},
                 {"operators twice as slow", 1, 1, 2},
                 {"operators twice as fast", 1, 1, 0.5}};
    trm_status status = TRM_OK;
    for (int i = 0; status == TRM_OK && i < 6; i++) {
        p->links.scale_beta = tries[i].beta;
        p->links.scale_alpha = tries[i].alpha;
        p->links.flops = links.flops / tries[i].operators;
        p->links.bytes = links.flops > 0 ? links.bytes / tries[i].operators : links.bytes;
        p->costs.factor = factor * tries[i].operators;
        status = measure_changed(s, tries[i].what, err);
    }
    p->links = links;
    p->costs.factor = factor;
    /* All ranks wait for a slow rank at its messages, at the latest for its gradients. */
    const trmi_measure *m = &trmi_planner_best(p)->found.best.measure;
    s->straggler = m->step + (fmax(1, s->slow) - 1) * (m->compute + m->update);
    return status;
}

/* ---- report ---------------------------------------------------------------------------------- */

/* Puts a scaling table. "#efficiency" and "#plan" are for its lines. */
static void put_points(trmi_report *t, const char *key, const point *points, int32_t count,
                       bool strong) {
    char mesh[48];
    trmi_report_open_array(t, key);
    for (int32_t i = 0; i < count; i++) {
        const point *o = &points[i], *first = &points[0];
        double alone = strong ? first->step * first->ranks / ((double)o->ranks * o->step)
                              : first->step / o->step;
        trmi_report_open_object(t, NULL);
        trmi_report_put(t, trmi_int("ranks", o->ranks),
                        trmi_string("mesh", trmi_mesh_text(&o->mesh, mesh, sizeof mesh)),
                        trmi_int("global_batch", o->batch), trmi_nine("step_seconds", o->step),
                        trmi_nine("lower_bound", o->bound),
                        trmi_nine("samples_per_second", (double)o->batch / o->step),
                        trmi_nine("data_parallel_seconds", o->data_parallel),
                        trmi_nine("exposed_seconds", o->exposed),
                        trmi_whole("memory_bytes", o->bytes), trmi_bool("fits", o->fits),
                        trmi_real("#efficiency", alone), trmi_string("#plan", o->plan));
        trmi_report_close(t);
    }
    trmi_report_close(t);
}

/* Puts the simulation. */
static void put_simulation(const simulation *s, trmi_report *t) {
    trm_planner_info info;
    trm_planner_get_info(s->p, &info);
    trmi_report_put(t, trmi_string("event", "simulate"), trmi_int("ranks", info.ranks),
                    trmi_string("mesh", info.mesh), trmi_int("global_batch", s->p->batch),
                    trmi_nine("step_seconds", info.step_seconds),
                    trmi_nine("samples_per_second", info.samples_per_second),
                    trmi_whole("memory_bytes", info.memory_bytes));
    trmi_report_open_object(t, "certificate");
    trmi_report_put(t, trmi_nine("objective", info.step_seconds),
                    trmi_nine("lower_bound", info.lower_bound), trmi_nine("gap", info.gap),
                    trmi_nine("solve_seconds", info.solve_seconds));
    trmi_report_close(t);
    trmi_report_put(t, trmi_string("links", s->p->options.links == NULL ? "guessed" : "given"));
    put_points(t, "weak", s->weak, s->weak_count, false);
    put_points(t, "strong", s->strong, s->strong_count, true);
    trmi_report_open_array(t, "what_if");
    for (int32_t i = 0; i < s->what_if_count; i++) {
        trmi_report_open_object(t, NULL);
        trmi_report_put(t, trmi_string("what", s->what_if[i].what),
                        trmi_nine("step_seconds", s->what_if[i].step),
                        trmi_nine("best_plan_seconds", s->what_if[i].searched),
                        trmi_real("#more", 100 * (s->what_if[i].step / info.step_seconds - 1)));
        trmi_report_close(t);
    }
    trmi_report_close(t);
    trmi_report_open_object(t, "straggler");
    trmi_report_put(t, trmi_nine("times", fmax(1, s->slow)),
                    trmi_nine("step_seconds", s->straggler),
                    trmi_real("#more", 100 * (s->straggler / info.step_seconds - 1)));
    trmi_report_close(t);
    trmi_report_put(t, trmi_nine("simulate_seconds", s->seconds));
    if (t->json) {
        trmi_planner_put_timeline(s->p, t);
    }
}

/* Writes the head, the tables and what would change the step. */
static void say_simulation(const simulation *s, trmi_report *t) {
    static const char row[] = "[ranks]%7d [mesh]%-14s [global_batch]%8d [step_seconds]%12.3f{1e3} "
                              "[lower_bound]%12.3f{1e3} [samples_per_second]%11r "
                              "[#efficiency]%11.1f{1e2}%% [data_parallel_seconds]%12.3f{1e3}  "
                              "[#plan]%s[fits]?{|; does not fit}\n";
    static const char head[] = "  ranks mesh              batch      step ms     bound ms   "
                               "samples/s   efficiency data par. ms  plan\n";
    const trmi_level *guess = &s->p->links.levels[0];
    trmi_report_say(t, "ranks         [ranks]%d, mesh [mesh]%s, global batch [global_batch]%d\n"
                       "step          [step_seconds]%.3f{1e3} ms, no plan below "
                       "[certificate.lower_bound]%.3f{1e3} ms; [samples_per_second]%r samples/s; "
                       "[memory_bytes]%b a rank\n");
    if (s->p->options.links == NULL) {
        trmi_report_tell(t,
                         "assuming      a device a rank, each as fast as this machine with "
                         "[threads]%d thread[one]?{|s}; messages are guessed, [alpha]%.3g{1e6} "
                         "us and [rate]%.3g GB/s a rank: --links FILE says what they are\n",
                         trmi_int("threads", s->p->costs.threads),
                         trmi_bool("one", s->p->costs.threads == 1),
                         trmi_real("alpha", guess->alpha), trmi_real("rate", 1e-9 / guess->beta));
    }
    trmi_report_say(t, "\nweak scaling: the same samples a rank\n");
    trmi_report_say(t, head);
    trmi_report_say_each(t, "weak", row, NULL);
    trmi_report_say(t, "\nstrong scaling: the same global batch\n");
    trmi_report_say(t, head);
    trmi_report_say_each(t, "strong", row, NULL);
    trmi_report_say(
        t,
        "\nwhat if                                  this plan ms           best plan there ms\n");
    trmi_report_say_each(t, "what_if",
                         "[what]%-40s [step_seconds]%12.3f{1e3} [#more]%+8.1f%% "
                         "[best_plan_seconds]%18.3f{1e3}\n",
                         NULL);
    trmi_report_say(t, "one rank [straggler.times]%.3g times as slow                "
                       "[straggler.step_seconds]%11.3f{1e3} [straggler.#more]%+8.1f%%\n"
                       "\nsimulated in [simulate_seconds]%.2f s\n");
}

/* Fills the tables of these options, unless the planner has them. */
static trm_status fill_tables(trm_planner *p, const trm_simulation_options *options,
                              trm_error *err) {
    simulation *s = p->simulation;
    double begin = trmi_os_now();
    if (s != NULL && s->largest == options->largest && s->slow == options->straggler) {
        return TRM_OK;
    }
    trmi_planner_forget_simulation(p);
    TRMI_TRY(TRMI_NEW(err, s, 1, "to simulate"));
    s->p = p;
    s->largest = options->largest;
    s->slow = options->straggler;
    trm_status status = fill_scaling(s, err);
    status = status == TRM_OK ? what_if(s, err) : status;
    if (status != TRM_OK) {
        trmi_free(s);
        return status;
    }
    s->seconds = trmi_os_now() - begin;
    p->simulation = s;
    return TRM_OK;
}

/* Contract in trireme/plan.h: tables, what-if, trace, text. */
trm_status trm_planner_simulate(trm_planner *p, const trm_simulation_options *options, char **text,
                                trm_error *err) {
    TRMI_NEED(err, p, options, text);
    TRMI_TRY(fill_tables(p, options, err));
    TRMI_TRY(options->trace != NULL ? trmi_planner_write_trace(p, options->trace, err) : TRM_OK);
    trmi_report report;
    trmi_report_begin(&report, options->json);
    put_simulation(p->simulation, &report);
    say_simulation(p->simulation, &report);
    return trmi_report_give(&report, "for the report", text, err);
}
