/* SPDX-License-Identifier: Apache-2.0 */
/* plan: the program of one process, with its memory and its predicted time. With -n, --mesh or
 * --plan it is the planner, cmd_planner.c. */
#include "app/app.h"

#include <stdio.h>
#include <string.h>

/* Prints the summary for people. */
static void tell_summary(const app_context *app, const char *name, const trm_exec_info *info) {
    const app_options *o = &app->o;
    char size[48] = "", a[32], b[32], c[32], d[32], e[32];
    app_print_input(app, size, sizeof size);
    app_print("%s, batch %lld%s, %s\n", name, (long long)o->batch_size, size, o->precision);
    app_print("parameters   %.3f million in %d steps of the program\n",
              (double)info->parameter_count / 1e6, (int)info->steps);
    app_print("memory       %s: parameters %s, gradients %s, slots %s, activations %s\n",
              app_bytes((double)info->total_bytes, a, sizeof a),
              app_bytes((double)info->parameter_bytes, b, sizeof b),
              app_bytes((double)info->gradient_bytes, c, sizeof c),
              app_bytes((double)info->slot_bytes, d, sizeof d),
              app_bytes((double)info->activation_bytes, e, sizeof e));
    app_print("work         %.2f GFLOP a step\n", info->flops / 1e9);
    if (info->predicted_seconds > 0) {
        app_print("time         %.1f ms a step predicted, %.0f %s/s\n",
                  info->predicted_seconds * 1e3,
                  (double)o->batch_size * app_units_a_sample(app) / info->predicted_seconds,
                  app_unit(app));
    }
    app_print("compiled in  %.3f s\n", info->create_seconds);
}

/* Prints the JSON event "plan"; `program`: that of --explain, or NULL. */
static void tell_json(const app_context *app, const char *name, const trm_exec_info *info,
                      const char *program) {
    const app_options *o = &app->o;
    app_json_open();
    app_json_text("event", "plan");
    app_json_text("model", name);
    app_json_int("batch_size", o->batch_size);
    app_json_input(app);
    app_json_text("precision", o->precision);
    app_json_int("parameters", info->parameter_count);
    app_json_int("steps", info->steps);
    app_json_open_object("memory");
    app_json_int("parameter_bytes", info->parameter_bytes);
    app_json_int("gradient_bytes", info->gradient_bytes);
    app_json_int("slot_bytes", info->slot_bytes);
    app_json_int("activation_bytes", info->activation_bytes);
    app_json_int("other_bytes", info->other_bytes);
    app_json_int("overhead_bytes", info->overhead_bytes);
    app_json_int("total_bytes", info->total_bytes);
    app_json_close_object();
    app_json_real("flops", info->flops);
    app_json_real("predicted_seconds", info->predicted_seconds);
    app_json_real("compile_seconds", info->create_seconds);
    if (program != NULL) {
        app_json_raw("program", program);
    }
    app_json_close();
}

/* plan: compiles the model for one process, or passes on to the planner. */
int app_run_plan(app_context *app) {
    trm_error err;
    bool many =
        app_given(&app->parsed, "n") || app->o.plan_mesh != NULL || app->o.plan_given != NULL;
    if (app_refuse_idle_flags(app, APP_STAGE_PLAN, &err) != TRM_OK) {
        return app_report(&err);
    }
    if (many) {
        return app_run_planner(app);
    }
    /* one process: compile, then explain or summarise */
    trm_dataset *data = NULL;
    trm_model *model = NULL;
    app_network network;
    const char *name = app->parsed.arguments[0];
    char *text = NULL;
    if (app->o.dry_run) {
        return app_dry_run_model(app, "nothing was compiled");
    }
    app_settle_data(app);
    trm_status status = app_dataset_random(app, &data, &err);
    if (status == TRM_OK) {
        status = app_make_model(app, name, data, false, &network, &model, &err);
    }
    if (status == TRM_OK && app->o.explain) {
        text = trm_exec_explain(trm_model_exec(model), app_out.json);
        status = text != NULL ? TRM_OK : app_fail(&err, TRM_NOMEM, "no memory for the explanation");
    }
    if (status == TRM_OK) {
        trm_exec_info info;
        trm_exec_get_info(trm_model_exec(model), &info);
        if (text != NULL) {
            app_print("%s", text);
        } else {
            tell_summary(app, name, &info);
        }
        tell_json(app, name, &info, text);
    }
    trm_free(text);
    trm_model_destroy(model);
    trm_dataset_destroy(data);
    return status == TRM_OK ? 0 : app_report(&err);
}
