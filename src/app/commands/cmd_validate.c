/* SPDX-License-Identifier: Apache-2.0 */
/* plan --validate: runs the best plans, the baselines and other plans for a few steps and
 * compares predictions with measurements.
 *
 *      run_all        every plan in several rounds, back and forth; with --refresh the costs are measured again between rounds
 *      settle_trials  predicted and measured times of each plan
 *      find_regret    the chosen plan and those that seemed nearly as fast, in turns
 *      print_result   the table, mean error, Kendall's tau, regret
 *
 * Rank 0 decides what is next (asked) and sends it to all ranks; every rank that measured costs
 * runs every plan. Rounds and measurements of costs are spread over the same minutes, so that both
 * see the machine in the same states. Regret is measured in turns, because times that were measured
 * minutes apart on a shared machine are not comparable within a few per cent. */
#include "app/app.h"
#include "app/commands/bench.h"
#include "app/commands/planning.h"

#include "trireme/base.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Plans of a validation at most; rounds at least and as a rule; steps of a comparison in turns. */
enum { PLANS_MAX = 96, ROUNDS_LEAST = 3, ROUNDS = 7, COMPARED_STEPS = 300 };
/* seconds that rounds take at least, so that good and bad moments of the machine are in all of
 * them */
static const double span = 20;
static const double near = 0.1; /* of the chosen plan's time; slower plans are not near */
/* seconds of turns: the time of COMPARED_STEPS steps, within these bounds */
static const double shortest = 12, longest = 60;
static const double long_step = 0.02; /* seconds; of longer steps a turn has fewer */

/* One plan: predicted and measured seconds and bytes. */
typedef struct trial {
    char name[64];
    char *text; /* of its plan file; owned */
    /* first: the prediction before any run */
    double predicted, first, measured, predicted_bytes, bytes;
    double seen[ROUNDS]; /* settle_trials sorts them */
    int runs;
} trial;

/* One validation, on each rank. */
typedef struct validation {
    app_context *app;
    trm_planner *planner;
    const trm_model_options *model;
    trial trials[PLANS_MAX]; /* rank 0: the plans that were run */
    int count;
} validation;

/* The result of the turns: how much slower the chosen plan is than the fastest. */
typedef struct regret {
    /* relative to the fastest; to the next one if the chosen plan is the fastest */
    double value, resolution;
    int turns, plans, than; /* index of the faster plan; 0: none is faster */
} regret;

/* ---- running plans --------------------------------------------------------------------------- */

/* The next action of all ranks: end, run a plan, measure costs again. */
typedef enum asked { DONE, RUN, LOOK } asked;

/* Broadcasts rank 0's decision and, to run a plan, its text. *text is allocated on the other
 * ranks. */
static trm_status share_decision(app_context *app, asked *what, char **text, trm_error *err) {
    int64_t head[2] = {*what, *text != NULL ? (int64_t)strlen(*text) : 0};
    trm_comm *comm = app_comm(app);
    trm_status status =
        comm != NULL ? trm_comm_broadcast(comm, head, 2, TRM_INT64, 0, err) : TRM_OK;
    *what = (asked)head[0];
    if (status != TRM_OK || *what != RUN || comm == NULL) {
        return status;
    }
    if (app_rank(app) != 0) {
        *text = calloc((size_t)head[1] + 1, 1);
    }
    if (*text == NULL) {
        return app_no_memory(err, "for a plan");
    }
    return trm_comm_broadcast(comm, *text, head[1], TRM_UINT8, 0, err);
}

/* Carries out the action that rank 0 has decided; every rank calls it. Frees `text`, the plan to
 * run on rank 0. */
static trm_status take_part(validation *v, asked *what, char *text, trm_planner_run_result *result,
                            trm_error *err) {
    trm_status status = share_decision(v->app, what, &text, err);
    if (status == TRM_OK && *what == RUN) {
        const trm_planner_run_options run = {.plan = text, .steps = (int32_t)v->app->o.repeats};
        status = trm_planner_run(v->model, app_comm(v->app), &run, result, err);
    } else if (status == TRM_OK && *what == LOOK) {
        status = trm_planner_remeasure(v->planner, err);
    }
    trm_free(text);
    return status;
}

/* Runs plan `index`; called by rank 0. *done: there is no such plan. */
static trm_status run_trial(validation *v, int index, bool *done, trm_error *err) {
    trm_planner_run_result result;
    asked what = RUN;
    trial *t = &v->trials[index];
    char *text = trm_planner_plan(v->planner, index, NULL);
    *done = text == NULL;
    if (*done) {
        return TRM_OK;
    }
    trm_status status = take_part(v, &what, text, &result, err);
    if (status != TRM_OK) {
        return status;
    }
    t->bytes = t->runs == 0 ? (double)result.resident_bytes : t->bytes;
    t->seen[t->runs++] = result.median_seconds;
    app_status_line("ran %d plans", index + 1);
    return TRM_OK;
}

/* Fills in the predictions, which may have changed with new costs, and the median of the runs. */
static void settle_trials(validation *v) {
    for (int i = 0; i < v->count; i++) {
        trial *t = &v->trials[i];
        trm_planner_candidate about;
        t->text = trm_planner_plan(v->planner, i, &about);
        snprintf(t->name, sizeof t->name, "%s", about.name);
        t->predicted = about.step_seconds;
        t->first = about.first_seconds;
        t->predicted_bytes = about.bytes;
        t->measured = app_summarise(t->seen, t->runs).median;
    }
}

/* Runs all plans in rounds, in alternating order; called by rank 0. With --refresh the costs are
 * measured again between rounds and at the end. */
static trm_status run_all(validation *v, trm_error *err) {
    bool done = false;
    double begin = trm_now_seconds();
    asked look = LOOK;
    trm_status status = TRM_OK;
    /* the first round also counts the plans */
    for (int i = 0; status == TRM_OK && i < PLANS_MAX && !done; i++) {
        status = run_trial(v, i, &done, err);
        v->count = done ? i : i + 1;
    }
    bool looks = v->app->o.plan_refresh;
    int rounds = looks ? ROUNDS : ROUNDS_LEAST;
    for (int round = 1;
         round < rounds && (round < ROUNDS_LEAST || trm_now_seconds() - begin < span); round++) {
        if (status == TRM_OK && looks) {
            status = take_part(v, &look, NULL, NULL, err);
        }
        for (int i = 0; status == TRM_OK && i < v->count; i++) {
            int index = round % 2 == 0 ? i : v->count - 1 - i;
            status = run_trial(v, index, &done, err);
        }
    }
    if (status == TRM_OK && looks) { /* measured before the first round, so also after the last */
        status = take_part(v, &look, NULL, NULL, err);
    }
    v->count = status == TRM_OK ? v->count : 0;
    settle_trials(v);
    return status;
}

/* Runs all plans: rank 0 leads, the other ranks take part until it ends. */
static trm_status run_trials(validation *v, trm_error *err) {
    bool leads = app_rank(v->app) == 0;
    trm_planner_run_result result;
    asked what = leads ? DONE : RUN;
    trm_status status = leads ? run_all(v, err) : TRM_OK;
    do { /* the other ranks stay here; rank 0 only sends DONE */
        status = status == TRM_OK ? take_part(v, &what, NULL, &result, err) : status;
    } while (status == TRM_OK && what != DONE);
    return status;
}

/* ---- regret ---------------------------------------------------------------------------------- */

/* Lists the chosen plan and the fastest of those near it, at most TRM_COMPARED_PLANS. Returns
 * their number. */
static int list_near(const trial *t, int count, int list[TRM_COMPARED_PLANS]) {
    int some = 1;
    list[0] = 0;
    while (some < TRM_COMPARED_PLANS) {
        int next = 0;
        for (int i = 1; i < count; i++) {
            bool taken = false;
            for (int k = 1; k < some; k++) {
                taken = taken || list[k] == i;
            }
            next = !taken && t[i].measured < t[0].measured * (1 + near) &&
                           (next == 0 || t[i].measured < t[next].measured)
                       ? i
                       : next;
        }
        if (next == 0) {
            break;
        }
        list[some++] = next;
    }
    return some;
}

/* Runs the chosen plan and those near it in turns and determines the regret. Collective. */
static trm_status find_regret(const validation *v, regret *out, trm_error *err) {
    app_context *app = v->app;
    int list[TRM_COMPARED_PLANS];
    char *plans[TRM_COMPARED_PLANS] = {NULL};
    bool leads = app_rank(app) == 0;
    double head[2] = {leads ? list_near(v->trials, v->count, list) : 0, v->trials[0].measured};
    trm_planner_comparison c;
    *out = (regret){.plans = 1};
    trm_status status = trm_comm_broadcast(app_comm(app), head, 2, TRM_FLOAT64, 0, err);
    int32_t some = (int32_t)head[0];
    if (status != TRM_OK || some < 2) {
        return status;
    }
    const trm_planner_compare_options turns = {
        .plans = (const char *const *)plans,
        .count = some,
        .steps = head[1] > long_step ? 2 : 4,
        .seconds = fmin(longest, fmax(shortest, COMPARED_STEPS * head[1]))};
    for (int32_t i = 0; leads && i < some; i++) {
        plans[i] = trm_planner_plan(v->planner, list[i], NULL);
        status = plans[i] == NULL ? app_no_memory(err, "for a plan") : status;
    }
    app_status_line("%d plans in turns", (int)some);
    status =
        status == TRM_OK ? trm_planner_compare(v->model, app_comm(app), &turns, &c, err) : status;
    for (int32_t i = 0; i < some; i++) {
        trm_free(plans[i]);
    }
    /* only rank 0 knows all plans, and prints */
    if (status != TRM_OK || !leads || c.turns == 0) {
        return status;
    }
    /* the plan to compare with: the fastest, or the one that comes next */
    int32_t next = c.fastest != 0 ? c.fastest : 1;
    for (int32_t i = 1; c.fastest == 0 && i < some; i++) {
        next = c.ahead[i] > c.ahead[next] ? i : next;
    }
    *out = (regret){.value = c.fastest != 0 ? c.ahead[next] : 0,
                    .resolution = c.resolution[next],
                    .turns = c.turns,
                    .plans = some,
                    .than = list[c.fastest]};
    return TRM_OK;
}

/* ---- figures --------------------------------------------------------------------------------- */

/* Returns Kendall's tau: the pairs that predictions and measurements order alike, minus those
 * that they do not, over all pairs. */
static double compute_kendall(const trial *t, int count) {
    int agree = 0, pairs = 0;
    for (int i = 0; i < count; i++) {
        for (int k = 0; k < i; k++) {
            double p = t[i].predicted - t[k].predicted, m = t[i].measured - t[k].measured;
            agree += p * m > 0 ? 1 : p * m < 0 ? -1 : 0;
            pairs++;
        }
    }
    return pairs > 0 ? (double)agree / pairs : 1;
}

/* Prints the table of all plans and the summary, or the JSON event "validate". */
static void print_result(const trial *t, int count, const regret *r, int ranks,
                         const trm_planner_info *info) {
    double error = 0, memory = 0;
    app_print("\n%-36s %13s %13s %8s %12s %12s %8s\n", "as it runs", "predicted ms", "measured ms",
              "error", "predicted MB", "measured MB", "error");
    app_begin(APP_RESULT, "event", "validate");
    app_open_array("runs");
    for (int i = 0; i < count; i++) {
        double off = t[i].predicted / t[i].measured - 1,
               bytes = t[i].predicted_bytes / t[i].bytes - 1;
        int quarter = t[i].runs / 4;
        error += fabs(off) / count;
        memory = fmax(memory, fabs(bytes));
        app_open_item();
        app_put(app_text("name", t[i].name, "%-36s"),
                app_real("predicted_seconds", t[i].predicted, " %13.3f{1e3}"),
                app_real("first_predicted_seconds", t[i].first, NULL),
                app_real("measured_seconds", t[i].measured, " %13.3f{1e3}"),
                app_real("lower_seconds", t[i].seen[quarter], NULL),
                app_real("upper_seconds", t[i].seen[t[i].runs - 1 - quarter], NULL),
                app_real(NULL, off, " %+7.1f{100}%%"),
                app_real("predicted_bytes", t[i].predicted_bytes, " %12.1f{1e-6}"),
                app_real("measured_bytes", t[i].bytes, " %12.1f{1e-6}"),
                app_real(NULL, bytes, " %+7.1f{100}%%\n"),
                app_text("plan", t[i].text != NULL ? t[i].text : "", NULL));
        app_close();
    }
    app_close();
    app_put(app_int("ranks", ranks, NULL), app_real("mape", error, "mean error %.1f{100} %%"),
            app_real("kendall_tau", compute_kendall(t, count), ", Kendall's tau %.3f"),
            app_real("memory_error", memory, ", memory at most %.1f{100} %% off"),
            app_int("plans", count, "; %d plans\n"),
            app_int("looks", info->measurements,
                    info->measurements > 1
                        ? "predictions are of the median of %d looks at each cost, before, between "
                          "and after the runs\n"
                        : NULL),
            app_real("regret", r->value, "regret of the chosen plan %.1f{100} %%"),
            app_real("regret_resolution", r->resolution, ", below %.1f{100} %% it is chance"),
            app_int(NULL, r->plans, " (%d plans"),
            app_int("regret_turns", r->turns, " in %d turns"),
            app_text(NULL, t[r->than].name, r->than > 0 ? "; ahead: %s)" : ")"));
    app_end();
}

/* Contract in planning.h. */
trm_status app_validate(app_context *app, trm_planner *planner, const trm_model_options *model,
                        trm_error *err) {
    validation *v = calloc(1, sizeof *v);
    if (v == NULL) {
        return app_no_memory(err, "to run plans");
    }
    v->app = app;
    v->planner = planner;
    v->model = model;
    regret found;
    trm_status status = run_trials(v, err);
    status = status == TRM_OK ? find_regret(v, &found, err) : status;
    if (status == TRM_OK && app_rank(app) == 0 && v->count > 0) {
        trm_planner_info info;
        trm_planner_get_info(planner, &info);
        print_result(v->trials, v->count, &found, app_rank_count(app), &info);
    }
    for (int i = 0; i < v->count; i++) {
        trm_free(v->trials[i].text);
    }
    free(v);
    return status;
}
