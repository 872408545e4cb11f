/* SPDX-License-Identifier: Apache-2.0 */
/* inspect: the kind and content of a file, determined by its content, never by its name alone.
 *
 *      rank table, plan, folder of servers   recognised here, described by their commands
 *      all other kinds                       trm_inspect and its recognisers
 *
 * Files come from anywhere: only their beginnings are read to recognise them, and nothing is
 * written. */
#include "app/app.h"

#include "trireme/dist.h"
#include "trireme/plan.h"
#include "trireme/io.h"

#include <dirent.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

/* Is a trm_line_sink that prints. */
static void print_line(void *context, const char *line) {
    (void)context;
    printf("%s\n", line);
}

/* Returns whether the file begins with `word` and is longer. */
static bool begins_with(const char *path, const char *word) {
    char begin[32] = "";
    FILE *file = fopen(path, "rb");
    size_t length = file != NULL ? fread(begin, 1, sizeof begin - 1, file) : 0;
    if (file != NULL) {
        fclose(file);
    }
    return length > strlen(word) && strncmp(begin, word, strlen(word)) == 0;
}

/* Prints a plan. */
static int tell_plan(const char *path) {
    trm_error err;
    trm_plan_info info;
    char *text = NULL, graph[32];
    if (trm_plan_read(path, &info, &text, &err) != TRM_OK) {
        return app_report(&err);
    }
    snprintf(graph, sizeof graph, "%016" PRIx64, info.graph);
    app_tell(
        APP_RESULT, "kind", "plan", app_text("path", path, NULL),
        app_text("mesh", info.mesh, "plan: mesh %s"), app_int("ranks", info.ranks, " (%d ranks)"),
        app_text("graph", graph,
                 info.graph != 0 ? ", made for graph %s" : ", made for graph (any)"),
        app_int("operators", info.operators, "; %d operators"),
        app_int("cut", info.cut, ", %d of them cut"), app_int("pinned", info.pinned, ", %d pinned"),
        app_int("stores", info.stores, "; %d stores\n"), app_text("text", text, "%s"));
    trm_free(text);
    return 0;
}

/* Returns whether a folder has a manifest of parameter servers (MANIFEST-N.json beside
 * snapshot-N/server-I-shard-J.full). */
static bool has_manifest(const char *folder) {
    DIR *dir = opendir(folder);
    bool found = false;
    for (struct dirent *entry; dir != NULL && !found && (entry = readdir(dir)) != NULL;) {
        found = strncmp(entry->d_name, "MANIFEST-", 9) == 0;
    }
    if (dir != NULL) {
        closedir(dir);
    }
    return found;
}

/* Finds the folder of parameter servers: `path` itself, or the one above a shard's file. Returns
 * false if it is neither. */
static bool table_folder(const char *path, char *folder, size_t size) {
    const char *file = strrchr(path, '/'), *name = file != NULL ? file + 1 : path;
    if (strncmp(name, "server-", 7) == 0 && strstr(name, "-shard-") != NULL) {
        snprintf(folder, size, "%.*s..", (int)(name - path), path); /* beside its snapshot */
    } else {
        snprintf(folder, size, "%s", path);
    }
    return has_manifest(folder);
}

/* Returns whether the file is JSON and its start has a key that only rank tables have. */
static bool is_rank_table(const char *path) {
    static const char *const keys[] = {"\"server_list\"", "\"server_count\"",   "\"group_list\"",
                                       "\"server_num\"",  "\"super_pod_list\"", "\"rank_list\"",
                                       "\"rank_count\""};
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

/* Runs `inspect`. It first tries the kinds that the library does not know: rank table, plan, folder
 * of servers. */
int app_run_inspect(app_context *app) {
    trm_error err;
    const char *path = app->parsed.arguments[0];
    struct stat info;
    bool regular = stat(path, &info) == 0 && S_ISREG(info.st_mode); /* reading a pipe would block */
    if (regular && is_rank_table(path)) {
        return app_print_rank_table(app, path, TRM_CORRUPT);
    }
    if (regular && begins_with(path, "trireme-plan ")) {
        return tell_plan(path);
    }
    static char folder[4096];
    if (table_folder(path, folder, sizeof folder)) {
        app->parsed.arguments[0] = folder;
        return app_run_ps_inspect(app);
    }
    const trm_inspect_options options = {.json = app_out.json,
                                         .other_kinds = "rank table, plan, tables of servers"};
    trm_status status = trm_inspect(path, &options, print_line, NULL, &err);
    return status == TRM_OK ? 0 : app_report(&err);
}
