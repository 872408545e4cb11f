/* SPDX-License-Identifier: Apache-2.0 */
/* cluster check, show, make, merge: rank tables and the environment, before a job is started.
 *
 *      check FILE   read the table, describe it                     trm_rank_table_read, _text
 *      show, check  describe the place of this process in its job   trm_cluster_from_env, _text
 *      make         a table from --hosts                            trm_rank_table_make
 *      merge        one table from those of the hosts               trm_rank_table_merge
 *
 * No command starts a process or joins a job. A file that exists is never overwritten; without
 * --output a table goes to stdout. A text of the library belongs to the function that prints it. */
#include "app/app.h"

#include "trireme/dist.h"
#include "trireme/io.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Hosts of a rank table that is made from a list, at most. */
enum { HOSTS_MAX = 256 };

/* Prints a text, ended by a newline, or the error. Frees `text`. Returns the exit code. */
static int print_result(char *text, trm_status status, const trm_error *err) {
    if (status != TRM_OK) {
        return app_report(err);
    }
    fputs(text, stdout);
    size_t length = strlen(text);
    if (length == 0 || text[length - 1] != '\n') {
        putchar('\n');
    }
    trm_free(text);
    return 0;
}

/* Prints the rank of this process and its source. */
static int tell_cluster(app_context *app) {
    trm_error err;
    trm_cluster *cluster;
    char *text = NULL;
    const trm_cluster_flags flags = {.rank_table = app->o.rank_table,
                                     .any_address = app->o.any_address};
    trm_status status = trm_cluster_from_env(&flags, NULL, NULL, &cluster, &err);
    if (status != TRM_OK) {
        return app_report(&err);
    }
    status = trm_cluster_text(cluster, app->o.json, &text, &err);
    trm_cluster_destroy(cluster);
    return print_result(text, status, &err);
}

int app_run_cluster_show(app_context *app) { return tell_cluster(app); }

/* Runs `cluster check` on a file, or without one on the environment. */
int app_run_cluster_check(app_context *app) {
    return app->parsed.arguments_count == 0
               ? tell_cluster(app)
               : app_print_rank_table(app, app->parsed.arguments[0], TRM_INVALID);
}

/* Contract in app.h. An unfinished table (PENDING) is as wrong as a damaged one here. */
int app_print_rank_table(app_context *app, const char *path, trm_status wrong) {
    trm_error err;
    trm_rank_table *table;
    char *text = NULL;
    trm_status status = trm_rank_table_read(path, &table, &err);
    if (status != TRM_OK) {
        err.status = status == TRM_INVALID || status == TRM_PENDING ? wrong : status;
        return app_report(&err);
    }
    status = trm_rank_table_text(table, app->o.json, &text, &err);
    trm_rank_table_destroy(table);
    return print_result(text, status, &err);
}

/* Joins the lines of JSON in place: with --json an object is one line. */
static void join_lines(char *json) {
    char *to = json;
    for (const char *from = json; *from != '\0';) {
        if (*from == '\n') {
            from += 1 + strspn(from + 1, " ");
        } else {
            *to++ = *from++;
        }
    }
    *to++ = '\n';
    *to = '\0';
}

/* Writes a rank table to --output, which must not exist, or to stdout. Frees `json`. Returns the
 * exit code. */
static int put_table(const app_context *app, char *json) {
    trm_error err;
    trm_status status = TRM_OK;
    if (app->o.json && app->o.output == NULL) {
        join_lines(json);
    }
    if (app->o.output == NULL) {
        fputs(json, stdout);
    } else if (access(app->o.output, F_OK) == 0) {
        status = app_fail(&err, TRM_IO, "%.150s is there already", app->o.output);
    } else {
        status = trm_file_write(app->o.output, json, strlen(json), &err);
    }
    trm_free(json);
    return status == TRM_OK ? 0 : app_report(&err);
}

/* Parses --hosts; the names point into `text`.
 *   errors  INVALID */
static trm_status read_hosts(char *text, trm_rank_table_host *hosts, int32_t *count,
                             trm_error *err) {
    for (char *host = strtok(text, ", "); host != NULL; host = strtok(NULL, ", ")) {
        char *colon = strrchr(host, ':'), *end = NULL;
        long devices = colon != NULL ? strtol(colon + 1, &end, 10) : 0;
        if (colon == NULL || end == colon + 1 || *end != '\0' || devices < 1 || devices > 4096 ||
            *count == HOSTS_MAX) {
            return app_fail(err, TRM_INVALID,
                            "--hosts: '%.60s'; host:devices expected, at most %d of them", host,
                            HOSTS_MAX);
        }
        *colon = '\0';
        hosts[(*count)++] = (trm_rank_table_host){.host = host, .devices = (int32_t)devices};
    }
    return TRM_OK;
}

/* Runs `cluster make`: writes a table in the form of --to. */
int app_run_cluster_make(app_context *app) {
    trm_error err;
    static trm_rank_table_host hosts[HOSTS_MAX];
    int32_t count = 0;
    char *json = NULL, *text = NULL;
    trm_status status = TRM_OK;
    if (app->o.hosts == NULL || (text = strdup(app->o.hosts)) == NULL) {
        status = app_fail(&err, TRM_INVALID, "cluster make needs --hosts host:devices,...");
    }
    status = status == TRM_OK ? read_hosts(text, hosts, &count, &err) : status;
    if (status == TRM_OK) {
        bool v1 = app->o.to != NULL && strcmp(app->o.to, "v1") == 0;
        status = trm_rank_table_make(hosts, count, v1 ? TRM_RANK_TABLE_V1 : TRM_RANK_TABLE_GROUPS,
                                     &json, &err);
    }
    int code = status == TRM_OK ? put_table(app, json) : app_report(&err);
    free(text);
    return code;
}

int app_run_cluster_merge(app_context *app) {
    trm_error err;
    char *json;
    trm_status status =
        trm_rank_table_merge(app->parsed.arguments, app->parsed.arguments_count, &json, &err);
    return status == TRM_OK ? put_table(app, json) : app_report(&err);
}
