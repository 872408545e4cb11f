#include "app/app.h"

#include "trireme/cluster.h"
#include "trireme/save_files.h"

#include <stdio.h>
#include <string.h>

static void print_line(void *context, const char *line) {
    (void)context;
    printf("%s\n", line);
}

/* A JSON file whose beginning has one of the keys that only rank tables have. */
static bool is_rank_table(const char *path) {
    static const char *const keys[] = {"\"server_list\"", "\"server_count\"", "\"group_list\"",
                                       "\"server_num\"", "\"super_pod_list\""};
    static char begin[8192];
    FILE *file = fopen(path, "rb");
    if (file == NULL) {
        return false;
    }
    size_t length = fread(begin, 1, sizeof begin - 1, file);
    fclose(file);
    begin[length] = '\0';
    const char *first = begin + strspn(begin, " \t\r\n");
    for (size_t i = 0; *first == '{' && i < sizeof keys / sizeof keys[0]; i++) {
        if (strstr(first, keys[i]) != NULL) {
            return true;
        }
    }
    return false;
}

int app_run_inspect(app_context *app) {
    trm_error err;
    const char *path = app->parsed.arguments[0];
    if (is_rank_table(path)) {
        return app_tell_rank_table(app, path);
    }
    const trm_inspect_options options = {.json = app_out.json};
    trm_status status = trm_inspect(path, &options, print_line, NULL, &err);
    return status == TRM_OK ? 0 : app_report(&err);
}
