/* SPDX-License-Identifier: Apache-2.0 */
/* run: any program on many ranks; the launcher is part of the library (trireme/dist.h). */
#include "app/jobs/ranks.h"

#include "trireme/dist.h"

/* Runs `run`. Everything after "--" is the program with its arguments. */
int app_run_run(app_context *app) {
    trm_error err;
    int code = 0;
    trm_status status;
    if (app->parsed.rest == NULL || app->parsed.rest[0] == NULL) {
        status =
            app_fail(&err, TRM_INVALID, "trireme run needs a program after --; for example: %s",
                     app->command->example);
    } else {
        app_warn_idle_flags(app, APP_STAGE_MODEL);
        status = app_launch(app, (const char *const *)app->parsed.rest, &code, &err);
    }
    return status == TRM_OK ? code : app_report(&err);
}
