/* SPDX-License-Identifier: Apache-2.0 */
/* plan: the program of one process, with its memory and its predicted time. With -n, --mesh or
 * --plan it is the planner, cmd_planner.c. */
#include "app/models/models.h"
#include "app/commands/planning.h"

#include <stdio.h>
#include <string.h>

/* Prints the summary, or the JSON event "plan"; `program`: that of --explain, or NULL. */
static void tell_plan(const app_context *app, const char *name, const trm_exec_info *info,
                      const char *program) {
    const app_options *o = &app->o;
    double seconds = info->predicted_seconds,
           rate = (double)o->batch_size * app_units_a_sample(app) / seconds;
    app_begin(APP_RESULT, "event", "plan");
    app_put(app_text("model", name, "%s"), app_int("batch_size", o->batch_size, ", batch %d"));
    app_put_input(app);
    app_put(app_text("precision", o->precision, ", %s"),
            app_int("parameters", info->parameter_count, NULL),
            app_real(NULL, (double)info->parameter_count, "\nparameters   %.3f{1e-6} million"),
            app_int("steps", info->steps, " in %d steps of the program"));
    app_open_object("memory");
    app_put(app_int("total_bytes", info->total_bytes, "\nmemory       %b"),
            app_int("parameter_bytes", info->parameter_bytes, ": parameters %b"),
            app_int("gradient_bytes", info->gradient_bytes, ", gradients %b"),
            app_int("slot_bytes", info->slot_bytes, ", slots %b"),
            app_int("activation_bytes", info->activation_bytes, ", activations %b"),
            app_int("other_bytes", info->other_bytes, NULL),
            app_int("overhead_bytes", info->overhead_bytes, NULL));
    app_close();
    app_put(app_real("flops", info->flops, "\nwork         %.2f{1e-9} GFLOP a step"),
            app_real("predicted_seconds", seconds,
                     seconds > 0 ? "\ntime         %.1f{1e3} ms a step predicted" : NULL),
            app_real(NULL, rate, seconds > 0 ? ", %.0f " : NULL),
            app_text(NULL, app_unit(app), seconds > 0 ? "%s/s" : NULL),
            app_real("compile_seconds", info->create_seconds, "\ncompiled in  %.3f s"));
    if (program != NULL) {
        app_put(app_raw("program", program));
    }
    app_end();
}

/* Runs `plan`: compiles the model for one process, or passes on to the planner. */
int app_run_plan(app_context *app) {
    trm_error err;
    bool many =
        app_given(&app->parsed, "n") || app->o.plan_mesh != NULL || app->o.plan_given != NULL;
    if (app_refuse_idle_flags(app, APP_STAGE_PLAN, &err) != TRM_OK ||
        app_check_preset(app, &err) != TRM_OK) {
        return app_report(&err);
    }
    if (app->o.plan_hardware != NULL && app->model->kind == &app_language_kind) {
        return app_run_hardware(app, false);
    }
    if (many) {
        return app_run_planner(app);
    }
    /* In one process: compile, then explain or summarise. */
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
        status = app_make_model(app, data, false, &network, &model, &err);
    }
    if (status == TRM_OK && app->o.explain) {
        text = trm_exec_explain(trm_model_exec(model), app_out.json);
        status = text != NULL ? TRM_OK : app_no_memory(&err, "for the explanation");
    }
    if (status == TRM_OK) {
        trm_exec_info info;
        trm_exec_get_info(trm_model_exec(model), &info);
        if (text != NULL && !app_out.json) {
            app_print_report(text);
        } else {
            tell_plan(app, name, &info, text);
        }
    }
    trm_free(text);
    trm_model_destroy(model);
    trm_dataset_destroy(data);
    return status == TRM_OK ? 0 : app_report(&err);
}
