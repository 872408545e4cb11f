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
    trmi_text text;
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

/* Prints a scaling table. */
static void tell_points(trmi_text *t, const char *title, const point *points, int32_t count,
                        bool strong) {
    char mesh[48];
    trmi_text_printf(t, "\n%s\n%7s %-14s %8s %12s %12s %11s %12s %12s  %s\n", title, "ranks",
                     "mesh", "batch", "step ms", "bound ms", "samples/s", "efficiency",
                     "data par. ms", "plan");
    for (int32_t i = 0; i < count; i++) {
        const point *o = &points[i], *first = &points[0];
        double alone = strong ? first->step * first->ranks / ((double)o->ranks * o->step)
                              : first->step / o->step;
        double rate = (double)o->batch / o->step;
        trmi_text_printf(t, "%7d %-14s %8lld %12.3f %12.3f %11.*f %11.1f%% %12.3f  %s%s\n",
                         (int)o->ranks, trmi_mesh_text(&o->mesh, mesh, sizeof mesh),
                         (long long)o->batch, o->step * 1e3, o->bound * 1e3, rate < 100 ? 1 : 0,
                         rate, 100 * alone, o->data_parallel * 1e3, o->plan,
                         o->fits ? "" : "; does not fit");
    }
}

/* Prints the simulation as text. */
static void print_text(simulation *s) {
    trmi_text *t = &s->text;
    trm_planner_info info;
    trm_planner_get_info(s->p, &info);
    trmi_text_printf(t, "ranks         %d, mesh %s, global batch %lld\n", (int)info.ranks,
                     info.mesh, (long long)s->p->batch);
    char memory[TRMI_BYTES_TEXT];
    trmi_text_printf(t, "step          %.3f ms, no plan below %.3f ms; %.*f samples/s; %s a rank\n",
                     info.step_seconds * 1e3, info.lower_bound * 1e3,
                     info.samples_per_second < 100 ? 1 : 0, info.samples_per_second,
                     trmi_bytes_text(info.memory_bytes, memory));
    if (s->p->options.links == NULL) {
        const trmi_level *guess = &s->p->links.levels[0];
        trmi_text_printf(t,
                         "assuming      a device a rank, each as fast as this machine with %d "
                         "thread%s; messages are guessed, %.3g us and %.3g GB/s a rank: "
                         "--links FILE says what they are\n",
                         s->p->costs.threads, s->p->costs.threads == 1 ? "" : "s",
                         guess->alpha * 1e6, 1e-9 / guess->beta);
    }
    /* Print the tables. */
    tell_points(t, "weak scaling: the same samples a rank", s->weak, s->weak_count, false);
    tell_points(t, "strong scaling: the same global batch", s->strong, s->strong_count, true);
    trmi_text_printf(t, "\n%-40s %12s %9s %18s\n", "what if", "this plan ms", "",
                     "best plan there ms");
    for (int32_t i = 0; i < s->what_if_count; i++) {
        trmi_text_printf(
            t, "%-40s %12.3f %+8.1f%% %18.3f\n", s->what_if[i].what, s->what_if[i].step * 1e3,
            100 * (s->what_if[i].step / info.step_seconds - 1), s->what_if[i].searched * 1e3);
    }
    trmi_text_printf(t, "one rank %.3g times as slow                %11.3f %+8.1f%%\n",
                     fmax(1, s->slow), s->straggler * 1e3,
                     100 * (s->straggler / info.step_seconds - 1));
    trmi_text_printf(t, "\nsimulated in %.2f s\n", s->seconds);
}

/* Appends a scaling table as a JSON array. */
static void json_points(trmi_text *t, const char *key, const point *points, int32_t count) {
    char mesh[48];
    trmi_text_printf(t, ",\"%s\":[", key);
    for (int32_t i = 0; i < count; i++) {
        const point *o = &points[i];
        trmi_text_printf(t,
                         "%s{\"ranks\":%d,\"mesh\":\"%s\",\"global_batch\":%lld,\"step_seconds\":%."
                         "9g,\"lower_bound\":%.9g,"
                         "\"samples_per_second\":%.9g,\"data_parallel_seconds\":%.9g,\"exposed_"
                         "seconds\":%.9g,\"memory_bytes\":%.0f,\"fits\":%s}",
                         i ? "," : "", (int)o->ranks, trmi_mesh_text(&o->mesh, mesh, sizeof mesh),
                         (long long)o->batch, o->step, o->bound, (double)o->batch / o->step,
                         o->data_parallel, o->exposed, o->bytes, o->fits ? "true" : "false");
    }
    trmi_text_printf(t, "]");
}

/* Appends the simulation as one JSON object. */
static void tell_json(simulation *s) {
    trmi_text *t = &s->text;
    trm_planner_info info;
    trm_planner_get_info(s->p, &info);
    trmi_text_printf(t,
                     "{\"event\":\"simulate\",\"ranks\":%d,\"mesh\":\"%s\",\"global_batch\":%lld,"
                     "\"step_seconds\":%.9g,"
                     "\"samples_per_second\":%.9g,\"memory_bytes\":%.0f,\"certificate\":{"
                     "\"objective\":%.9g,\"lower_bound\":%.9g,"
                     "\"gap\":%.9g,\"solve_seconds\":%.9g},\"links\":\"%s\"",
                     (int)info.ranks, info.mesh, (long long)s->p->batch, info.step_seconds,
                     info.samples_per_second, info.memory_bytes, info.step_seconds,
                     info.lower_bound, info.gap, info.solve_seconds,
                     s->p->options.links == NULL ? "guessed" : "given");
    json_points(t, "weak", s->weak, s->weak_count);
    json_points(t, "strong", s->strong, s->strong_count);
    trmi_text_printf(t, ",\"what_if\":[");
    for (int32_t i = 0; i < s->what_if_count; i++) {
        trmi_text_printf(t, "%s{\"what\":\"%s\",\"step_seconds\":%.9g,\"best_plan_seconds\":%.9g}",
                         i ? "," : "", s->what_if[i].what, s->what_if[i].step,
                         s->what_if[i].searched);
    }
    trmi_text_printf(
        t, "],\"straggler\":{\"times\":%.9g,\"step_seconds\":%.9g},\"simulate_seconds\":%.9g",
        fmax(1, s->slow), s->straggler, s->seconds);
    trmi_planner_json_timeline(s->p, t);
    trmi_text_printf(t, "}");
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
    simulation *s = p->simulation;
    s->text = (trmi_text){0};
    (options->json ? tell_json : print_text)(s);
    if (s->text.failed) {
        trmi_text_free(&s->text);
        return TRMI_NO_MEMORY(err, "for the report");
    }
    *text = s->text.data;
    return TRM_OK;
}
