/* SPDX-License-Identifier: Apache-2.0 */
/* bench split: runs plans of a split on ranks of this machine and prints time and memory of
 * each. It is one plan at a time, without the comparison of plan --validate.
 *
 * The launcher only checks the plans, so that an error is reported once; the ranks run them, all in
 * the same order. Every rank measures; rank 0 prints. */
#include "app/app.h"
#include "app/commands/bench.h"
#include "app/commands/planning.h"
#include "app/jobs/ranks.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Copies the next of FILE,FILE,...; false at the end. */
static bool next_path(const char **at, char path[512]) {
    size_t length = strcspn(*at, ",");
    snprintf(path, 512, "%.*s", (int)length, *at);
    *at += length + ((*at)[length] == ',');
    return path[0] != '\0';
}

/* Checks the files of --plans before ranks are started, so that an error is reported once.
 *   errors  INVALID, IO */
static trm_status check_plans(const char *list, trm_error *err) {
    char path[512];
    trm_plan_info info;
    trm_status status = list != NULL
                            ? TRM_OK
                            : app_fail(err, TRM_INVALID, "bench split: --plans FILE,... expected");
    for (const char *at = list; status == TRM_OK && next_path(&at, path);) {
        status = trm_plan_read(path, &info, NULL, err);
    }
    return status;
}

/* Prints one plan; rank 0 does. */
static void print_result(const app_context *app, const char *path,
                         const trm_planner_run_result *r) {
    if (app_rank(app) != 0) {
        return;
    }
    app_begin(APP_RESULT, "bench", "split");
    app_put(app_text("plan", path, "%-40s"), app_int("ranks", app_rank_count(app), NULL),
            app_real("seconds", r->seconds, " %10.3f{1e3} ms"),
            app_real("median_seconds", r->median_seconds, NULL),
            app_int("repeats", app->o.repeats, NULL),
            app_int("parameter_bytes", r->parameter_bytes, NULL),
            app_int("gradient_bytes", r->gradient_bytes, NULL),
            app_int("slot_bytes", r->slot_bytes, NULL),
            app_int("activation_bytes", r->activation_bytes, NULL),
            app_int("total_bytes", r->total_bytes, NULL),
            app_int("resident_bytes", r->resident_bytes, " %12b"),
            app_real("loss", (double)r->loss, ", loss %.6g"));
    app_put_machine(0);
    app_end();
}

/* Prints one operator of --profile. */
static void tell_step(void *context, const char *phase, const char *name, const char *kind,
                      double seconds) {
    (void)context;
    app_print("  %-9s %-56.56s %-22s %10.1f us\n", phase, name, kind, seconds * 1e6);
}
/* Prints nothing: other ranks than 0 must measure, too, but do not print. */
static void skip_step(void *context, const char *phase, const char *name, const char *kind,
                      double seconds) {
    (void)context, (void)phase, (void)name, (void)kind, (void)seconds;
}

/* Runs all plans. Collective. */
static trm_status measure_plans(app_context *app, trm_error *err) {
    trm_dataset *data = NULL;
    app_network network;
    trm_model_options model;
    app_settle_data(app);
    app->o.retune_seconds = 1;
    trm_status status = app_dataset_random(app, &data, err);
    if (status == TRM_OK) {
        status = app_model_options(app, data, false, &network, &model, err);
    }
    app_split_options(app, &model);
    char path[512];
    /* rank 0 prints the program steps, the other ranks measure them, too */
    for (const char *at = app->o.plan_given; status == TRM_OK && next_path(&at, path);) {
        char *plan = NULL;
        trm_planner_run_result result;
        status = app_read_plan(path, &plan, err);
        trm_planner_run_options run = {
            .plan = plan, .steps = (int32_t)app->o.repeats, .context = app};
        if (app->o.plan_profile) {
            run.profile = app_rank(app) == 0 ? tell_step : skip_step;
        }
        status =
            status == TRM_OK ? trm_planner_run(&model, app_comm(app), &run, &result, err) : status;
        trm_free(plan);
        if (status == TRM_OK) {
            print_result(app, path, &result);
        }
    }
    trm_dataset_destroy(data);
    return status;
}

/* Runs `bench split`: the launcher checks the plans; the ranks run them. */
int app_run_bench_split(app_context *app) {
    trm_error err;
    bool launched = false;
    int code = 0;
    trm_status status = check_plans(app->o.plan_given, &err);
    status =
        status == TRM_OK ? app_launch_self(app, app_check_job, &launched, &code, &err) : status;
    if (launched && status == TRM_OK) {
        return code;
    }
    status = status == TRM_OK ? app_join(app, &err) : status;
    status = status == TRM_OK ? measure_plans(app, &err) : status;
    app_leave(app);
    return status == TRM_OK ? 0 : app_report(&err);
}
