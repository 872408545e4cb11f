#include "app/app.h"

#include "trireme/save_files.h"

#include <stdio.h>

static void print_line(void *context, const char *line) {
    (void)context;
    printf("%s\n", line);
}

int app_run_inspect(app_context *app) {
    trm_error err;
    const trm_inspect_options options = {.json = app_out.json};
    trm_status status = trm_inspect(app->parsed.arguments[0], &options, print_line, NULL, &err);
    return status == TRM_OK ? 0 : app_report(&err);
}
