/* SPDX-License-Identifier: Apache-2.0 */
/* report: what the records of one or several runs say, as a short text, as one JSON object, or as a
 * page with curves. Works on a run that is still training.
 *
 * All forms are made from the one object of app_run_json (run_report.c), so they cannot disagree:
 * the text prints members of it, --json prints it, the page contains it. */
#include "app/app.h"
#include "app/output/page.h"
#include "app/output/run.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* ---- text ------------------------------------------------------------------------------------ */

/* Prints ", NAME VALUE" if the run has that number. */
static void print_number(const json_t *run, const char *key, const char *format) {
    const json_t *value = json_object_get(run, key);
    if (json_is_number(value)) {
        app_print(format, json_number_value(value));
    }
}

/* Prints the newest evaluation. */
static void print_evaluation(const json_t *run) {
    const json_t *list = json_object_get(run, "evaluations"), *value;
    json_t *last = json_array_get(list, json_array_size(list) - 1);
    const char *key;
    if (last == NULL) {
        return;
    }
    app_print("  evaluation");
    print_number(last, "global_step", " at step %.0f");
    print_number(last, "loss", ": loss %.6g");
    json_object_foreach(last, key, value) {
        if (json_is_real(value) && strcmp(key, "loss") != 0 && strcmp(key, "seconds") != 0) {
            app_print(", %s %.6g", key, json_real_value(value));
        }
    }
    app_print("\n");
}

/* Prints the number of checkpoints, and the newest one. */
static void print_checkpoints(const json_t *run) {
    const json_t *list = json_object_get(run, "checkpoints");
    size_t count = json_array_size(list);
    const json_t *last = json_array_get(list, count - 1), *bytes = json_object_get(last, "bytes");
    char size[32];
    if (count > 0) {
        app_print(
            "  %zu checkpoint%s, the newest %s%s%s\n", count, count > 1 ? "s" : "",
            json_string_value(json_object_get(last, "path")), json_is_integer(bytes) ? ", " : "",
            json_is_integer(bytes) ? app_bytes((double)json_integer_value(bytes), size, sizeof size)
                                   : "");
    }
}

/* Prints of each process of a job what it waited for. */
static void print_processes(const json_t *run) {
    const json_t *roles = json_object_get(run, "roles"), *role;
    size_t i;
    json_array_foreach(roles, i, role) {
        const json_t *data = json_object_get(role, "data_wait_fraction");
        if (json_array_size(roles) > 1 && json_is_real(data)) {
            app_print("    %s: data %.1f %%, other ranks %.1f %%\n",
                      json_string_value(json_object_get(role, "who")), 100 * json_real_value(data),
                      100 * json_number_value(json_object_get(role, "rank_wait_fraction")));
        }
    }
}

/* Prints one run in some lines. */
static void print_run(const json_t *run) {
    char text[32];
    const json_t *model = json_object_get(run, "model"), *problem;
    const json_t *peak = json_object_get(run, "peak_bytes");
    const json_t *seconds = json_object_get(run, "seconds");
    size_t i;
    app_print("%s: %s, %s", json_string_value(json_object_get(run, "name")),
              json_is_string(model) ? json_string_value(model) : "unknown model",
              json_string_value(json_object_get(run, "state")));
    print_number(run, "global_step", ", step %.0f");
    print_number(run, "goal_steps", " of %.0f");
    if (json_is_number(seconds)) {
        app_print(", %s", app_time(json_number_value(seconds), text, sizeof text));
    }
    app_print("\n");
    json_array_foreach(json_object_get(run, "problems"), i, problem) {
        app_print("  %s\n", json_string_value(problem));
    }
    /* a run that has made steps */
    if (json_is_real(json_object_get(run, "loss"))) {
        print_number(run, "loss", "  loss %.6g");
        print_number(run, "least_loss", " (least %.6g");
        print_number(run, "least_loss_step", " at step %.0f)");
        print_number(run, "learning_rate", ", learning rate %.4g");
        print_number(run, "rate", ", %.4g ");
        app_print("%s/s", json_string_value(json_object_get(run, "unit")));
        if (json_is_integer(peak)) {
            app_print(", peak memory %s", app_bytes(json_number_value(peak), text, sizeof text));
        }
        app_print("\n  waiting:");
        app_print(" data %.1f %%,",
                  100 * json_number_value(json_object_get(run, "data_wait_fraction")));
        app_print(" other ranks %.1f %% of the time\n",
                  100 * json_number_value(json_object_get(run, "rank_wait_fraction")));
        print_processes(run);
    }
    print_evaluation(run);
    print_checkpoints(run);
}

/* Prints the options in which the runs differ. */
static void print_differences(const json_t *report) {
    const json_t *difference, *value;
    size_t i, j;
    if (json_array_size(json_object_get(report, "runs")) < 2) {
        return;
    }
    app_print("options that differ:%s\n",
              json_array_size(json_object_get(report, "differences")) > 0 ? "" : " none");
    json_array_foreach(json_object_get(report, "differences"), i, difference) {
        app_print("  %s:", json_string_value(json_object_get(difference, "option")));
        json_array_foreach(json_object_get(difference, "values"), j, value) {
            char *shown = json_dumps(value, JSON_ENCODE_ANY | JSON_REAL_PRECISION(9));
            app_print("%s %s", j > 0 ? "," : "", shown != NULL ? shown : "?");
            free(shown);
        }
        app_print("\n");
    }
}

/* ---- the command ----------------------------------------------------------------------------- */

/* Prints the report, and writes its page. */
static trm_status print_report(const app_context *app, app_run **runs, int count, trm_error *err) {
    json_t *report = app_run_json(runs, count), *run;
    size_t i;
    char *json = json_dumps(report, JSON_COMPACT | JSON_REAL_PRECISION(9));
    if (json == NULL) {
        json_decref(report);
        return app_no_memory(err, "for the report");
    }
    if (app_out.json) {
        app_print_report(json);
    }
    json_t *plain = app_run_plain(report);
    json_array_foreach(json_object_get(plain, "runs"), i, run) { print_run(run); }
    print_differences(plain);
    json_decref(plain);
    trm_status status = TRM_OK;
    if (app->o.html != NULL) {
        char title[256];
        snprintf(title, sizeof title, count > 1 ? "%s and others" : "%s", runs[0]->name);
        status = app_write_page(app->o.html, APP_PAGE_RUN, title, json, err);
    }
    free(json);
    json_decref(report);
    return status;
}

/* Refuses to write the page in the place of a record.
 *   errors  INVALID */
static trm_status check_page(const char *html, app_run *const *runs, int count, trm_error *err) {
    struct stat page, record;
    bool there = html != NULL && stat(html, &page) == 0;
    for (int i = 0; there && i < count; i++) {
        for (int f = 0; f < runs[i]->file_count; f++) {
            const char *path = runs[i]->files[f]->path;
            if (stat(path, &record) == 0 && page.st_ino == record.st_ino &&
                page.st_dev == record.st_dev) {
                return app_fail(
                    err, TRM_INVALID,
                    "--html %.100s: it is the record of the run, and would be lost; give "
                    "another file",
                    html);
            }
        }
    }
    return TRM_OK;
}

/* Runs `report`: reads all runs, then prints. */
int app_run_report(app_context *app) {
    app_run *runs[APP_ARGUMENTS_MAX] = {NULL};
    trm_error err;
    int count = app->parsed.arguments_count;
    trm_status status = TRM_OK;
    for (int i = 0; status == TRM_OK && i < count; i++) {
        status = app_run_open(app->parsed.arguments[i], &runs[i], &err);
    }
    status = status == TRM_OK ? check_page(app->o.html, runs, count, &err) : status;
    status = status == TRM_OK ? print_report(app, runs, count, &err) : status;
    for (int i = 0; i < count; i++) {
        app_run_close(runs[i]);
    }
    return status == TRM_OK ? 0 : app_report(&err);
}
