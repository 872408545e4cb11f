/* SPDX-License-Identifier: Apache-2.0 */
/* --dry-run of commands that measure, search, compare or start processes: everything that can be
 * checked without doing so is checked (contracts in app.h). */
#include "app/app.h"

#include <string.h>

int app_print_dry_run(const app_context *app, const char *left_out) {
    app_tell(APP_RESULT, "event", "dry_run", app_text("command", app->command->name, NULL),
             app_bool("dry_run", true, "dry run: "), app_text(NULL, left_out, "%s"));
    return 0;
}

/* Checks the model's options on these batches; destroys `data`. */
static trm_status check_options(app_context *app, trm_dataset *data, trm_error *err) {
    app_network network;
    trm_model_options options;
    trm_status status = app_model_options(app, data, app->evaluates, &network, &options, err);
    trm_dataset_destroy(data);
    return status;
}

/* Contract in app.h. Random data stands in for the real one: only shapes matter. */
int app_dry_run_model(app_context *app, const char *left_out) {
    trm_error err;
    trm_dataset *data;
    app_settle_data(app);
    trm_status status = app_settle_batch(app, &err);
    status = status == TRM_OK ? app_dataset_random(app, &data, &err) : status;
    status = status == TRM_OK ? check_options(app, data, &err) : status;
    return status == TRM_OK ? app_print_dry_run(app, left_out) : app_report(&err);
}

/* Returns whether the command reads data from files. */
static bool reads_data(const app_context *app) {
    return strcmp(app->command->name, "train") == 0 || app->evaluates || app->o.data != NULL;
}

/* Contract in app.h. Order: the cheapest checks first; on a dry run the checkpoint comes before
 * the data, because it determines the image size. */
trm_status app_check_job(app_context *app, trm_error *err) {
    trm_dataset *data;
    const char *name = app->parsed.arguments[0];
    trm_status status = app_check_modes(app, err);
    status = status == TRM_OK ? app_settle_batch(app, err) : status;
    status = status == TRM_OK && reads_data(app) ? app_check_data(app, err) : status;
    if (status != TRM_OK || !app->o.dry_run) {
        return status;
    }
    if (app->o.checkpoint != NULL && (status = app_recall(app, name, err)) != TRM_OK) {
        return status;
    }
    app_settle_data(app);
    if ((status = app_settle_batch(app, err)) != TRM_OK) {
        return status;
    }
    status = reads_data(app)
                 ? app_dataset(
                       app, app_usage(&app->o, app->evaluates ? TRM_USAGE_TEST : TRM_USAGE_TRAIN),
                       !app->evaluates, &data, err)
                 : app_dataset_random(app, &data, err);
    return status == TRM_OK ? check_options(app, data, err) : status;
}
