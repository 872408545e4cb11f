/* --dry-run of the commands that measure, search or compare: what can be checked without that is. */
#include "app/app.h"

int app_tell_dry_run(const app_context *app, const char *left_out) {
    app_say("dry run: %s\n", left_out);
    app_json_open();
    app_json_text("event", "dry_run");
    app_json_text("command", app->command->name);
    app_json_bool("dry_run", true);
    app_json_close();
    return 0;
}

int app_dry_run_model(app_context *app, const char *left_out) {
    trm_error err;
    trm_dataset *data = NULL;
    app_network network;
    trm_model_options options;
    char description[APP_DESCRIPTION_BYTES];
    app_settle_data(app);
    trm_status status = app_dataset_random(app, &data, &err);
    if (status == TRM_OK) {
        status = app_model_options(app, app->parsed.arguments[0], data, false, &network, description, &options, &err);
    }
    trm_dataset_destroy(data);
    return status == TRM_OK ? app_tell_dry_run(app, left_out) : app_report(&err);
}
