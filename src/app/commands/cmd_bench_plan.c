/* SPDX-License-Identifier: Apache-2.0 */
/* bench plan: time of the search for a split by mesh: the whole search and its exact solves.
 * Costs are given (LINKS), not measured, so that the figures are those of the search alone. */
#include "app/app.h"
#include "app/commands/bench.h"

#include "trireme/plan.h"

#include <string.h>

static const char LINKS[] =
    "level host 8 5 100\nlevel network 1048576 15 12.5 shared\nflops 5e13\nbytes 8e11\n";

/* Searches one mesh --repeats times and prints the result. */
static trm_status measure_search(app_context *app, const trm_model_options *model, const char *mesh,
                                 trm_error *err) {
    enum { REPEATS_MAX = 101 };
    double search[REPEATS_MAX], solve[REPEATS_MAX];
    trm_planner_info info;
    int64_t repeats = app->o.repeats < REPEATS_MAX ? app->o.repeats : REPEATS_MAX;
    const trm_planner_options options = {.links = LINKS, .measure = TRM_OFF, .frontier = TRM_OFF};
    trm_model_options meshed = *model;
    meshed.exec.parallel.split.mesh = mesh;
    for (int64_t i = 0; i < repeats; i++) {
        trm_planner *planner;
        trm_status status = trm_planner_create(&meshed, &options, &planner, err);
        if (status != TRM_OK) {
            return status;
        }
        trm_planner_get_info(planner, &info);
        trm_planner_destroy(planner);
        search[i] = info.search_seconds;
        solve[i] = info.solve_seconds;
    }
    /* the whole search, and its exact solves alone */
    app_sample whole = app_summarise(search, repeats), exact = app_summarise(solve, repeats);
    app_begin(APP_RESULT, "bench", "plan");
    app_put(app_text("model", app->parsed.arguments[0], NULL), app_text("mesh", mesh, "%-14s"),
            app_int("ranks", info.ranks, " %8d"));
    app_put_sample(&whole, NULL, " %10.2f{1e3}", " %10.2f{1e3}", " %10.2f{1e3}");
    app_put(app_real("solve_seconds", exact.median, " %10.2f{1e3}"),
            app_real("step_seconds", info.step_seconds, " %12.3f{1e3}"),
            app_real("lower_bound", info.lower_bound, NULL),
            app_real("gap", info.gap, " %8.3f{100}%%"));
    app_put_machine(0);
    app_end();
    return TRM_OK;
}

/* Runs `bench plan` for --mesh, or for a list of meshes from 8 to 4,096 ranks. */
int app_run_bench_plan(app_context *app) {
    static const char *const meshes[] = {"8", "2x4", "8x8", "8x16x32"};
    trm_error err;
    trm_dataset *data = NULL;
    app_network network;
    trm_model_options model;
    if (app->o.dry_run) {
        return app_dry_run_model(app, "nothing was measured");
    }
    app_settle_data(app);
    trm_status status = app_dataset_random(app, &data, &err);
    if (status == TRM_OK) {
        status = app_model_options(app, data, false, &network, &model, &err);
    }
    if (status == TRM_OK) {
        app_print("%-14s %8s %10s %10s %10s %10s %12s %8s\n", "mesh", "ranks", "search ms", "min",
                  "max", "solves ms", "step ms", "gap");
    }
    if (status == TRM_OK && app->o.plan_mesh != NULL) {
        status = measure_search(app, &model, app->o.plan_mesh, &err);
    }
    for (size_t i = 0;
         status == TRM_OK && app->o.plan_mesh == NULL && i < sizeof meshes / sizeof meshes[0];
         i++) {
        status = measure_search(app, &model, meshes[i], &err);
    }
    trm_dataset_destroy(data);
    return status == TRM_OK ? 0 : app_report(&err);
}
