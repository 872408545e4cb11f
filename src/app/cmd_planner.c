/* plan -n N and simulate: how a model is split over ranks. */
#include "app/planning.h"

#include "trireme/machine.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MEASURED_RANKS = 8 };

/* ---- links of this machine ------------------------------------------------------------------------------- */

static const char *const OPS[] = {"allreduce", "allgather", "reducescatter", "alltoall"};

/* "points OP RANKS bytes:us ..." from `bench comm` of so many ranks, appended to the file. Logs go to `folder`. */
static trm_status bench_op(const char *op, int64_t ranks, const char *folder, FILE *out, trm_error *err) {
    char self[512], command[1500], line[2048];
    trm_status status = app_own_path(self, sizeof self, err);
    if (status != TRM_OK) {
        return status;
    }
    snprintf(command, sizeof command, "cd '%s' && '%s' bench comm -n %lld --op %s --sizes 4K,64K,1M,8M,32M --json --quiet 2>/dev/null",
             folder, self, (long long)ranks, op);
    FILE *in = popen(command, "r");
    if (in == NULL) {
        return app_fail(err, TRM_IO, "bench comm cannot be started: %s", strerror(errno));
    }
    int points = 0;
    while (fgets(line, sizeof line, in) != NULL) {
        const char *bytes = strstr(line, "\"bytes\":"), *us = strstr(line, "\"microseconds\":");
        if (bytes != NULL && us != NULL) {
            if (points++ == 0) {
                fprintf(out, "points %s %lld", op, (long long)ranks);
            }
            fprintf(out, " %lld:%.3f", atoll(bytes + 8), strtod(us + 15, NULL));
        }
    }
    fputc('\n', out);
    if (pclose(in) != 0 || points < 2) {
        return app_fail(err, TRM_INTERNAL, "messages between %lld ranks could not be measured: try `trireme bench comm -n %lld`, "
                        "or --links guess", (long long)ranks, (long long)ranks);
    }
    return TRM_OK;
}

/* Measured once a machine and rank count, kept in the cache. */
static trm_status links_here(int64_t ranks, char **text, trm_error *err) {
    trm_machine machine;
    char path[400], fresh[430];
    trm_machine_ask(&machine);
    if (machine.cache[0] == '\0') {
        return TRM_OK; /* guesses */
    }
    snprintf(path, sizeof path, "%s/links-%s-%d-of-%lld.txt", machine.cache, machine.host, (int)machine.cores, (long long)ranks);
    if (access(path, R_OK) == 0) {
        return app_read_text(path, text, err);
    }
    app_note("measuring messages between ranks of this machine, once ...\n");
    snprintf(fresh, sizeof fresh, "%s.%ld", path, (long)getpid());
    FILE *out = fopen(fresh, "wb");
    if (out == NULL) {
        return app_fail(err, TRM_IO, "%.200s: %s", fresh, strerror(errno));
    }
    fprintf(out, "# messages of %lld ranks on %s, measured by trireme plan\nlevel host %lld 5 4\ncores %d\noverlap %d\n",
            (long long)ranks, machine.cpu, (long long)ranks, (int)machine.cores, ranks < machine.cores);
    trm_status status = TRM_OK;
    for (int64_t p = 2; p <= ranks; p++) {
        for (size_t i = 0; status == TRM_OK && ranks % p == 0 && i < sizeof OPS / sizeof OPS[0]; i++) {
            status = bench_op(OPS[i], p, machine.cache, out, err);
        }
    }
    bool ok = fclose(out) == 0;
    if (status == TRM_OK && (!ok || rename(fresh, path) != 0)) {
        status = app_fail(err, TRM_IO, "%.200s cannot be written: %s", path, strerror(errno));
    }
    if (status != TRM_OK) {
        remove(fresh);
        return status;
    }
    return app_read_text(path, text, err);
}

/* Of the mesh, if it is one: the library says what is wrong with it. */
static int64_t ranks_of(const app_options *o) {
    int64_t ranks = 1;
    if (o->plan_mesh == NULL) {
        return o->plan_ranks;
    }
    for (const char *at = o->plan_mesh;; at++) {
        size_t name = strcspn(at, "=x");
        at += at[name] == '=' ? name + 1 : 0;
        char *end;
        long size = strtol(at, &end, 10);
        if (end == at || size < 1 || size > 1 << 20 || ranks > 1 << 20 || (*end != 'x' && *end != '\0')) {
            return 0;
        }
        ranks *= size;
        at = end;
        if (*at == '\0') {
            return o->plan_ranks == 0 || o->plan_ranks == ranks ? ranks : 0;
        }
    }
}

/* ---- the planner ------------------------------------------------------------------------------------------- */

typedef struct planning {
    trm_dataset *data;
    app_network network;
    char description[1024];
    trm_model_options model;
    char *links, *given;
    trm_planner *planner;
} planning;

static void stop(planning *p) {
    trm_planner_destroy(p->planner);
    trm_dataset_destroy(p->data);
    free(p->links);
    free(p->given);
}

static trm_status begin(app_context *app, bool simulate, planning *p, trm_error *err) {
    const app_options *o = &app->o;
    memset(p, 0, sizeof *p);
    app_settle_data(app);
    trm_status status = app_dataset_random(app, &p->data, err);
    if (status == TRM_OK) {
        status = app_model_options(app, app->parsed.arguments[0], p->data, false, &p->network, p->description, &p->model, err);
    }
    if (status == TRM_OK && o->plan_given != NULL) {
        status = app_read_text(o->plan_given, &p->given, err);
    }
    int64_t ranks = ranks_of(o);
    bool guess = o->plan_links != NULL && strcmp(o->plan_links, "guess") == 0;
    if (status == TRM_OK && o->plan_links != NULL && !guess) {
        status = app_read_text(o->plan_links, &p->links, err);
    } else if (status == TRM_OK && !guess && !simulate && !o->plan_no_measure && ranks > 1 && ranks <= MEASURED_RANKS) {
        status = links_here(ranks, &p->links, err);
    }
    if (status != TRM_OK) {
        return status;
    }
    const trm_planner_options options = {.ranks = (int32_t)o->plan_ranks, .hosts = (int32_t)o->plan_hosts, .mesh = o->plan_mesh,
                                         .search = o->plan_search, .memory_bytes = o->plan_memory, .links = p->links,
                                         .plan = p->given, .no_measure = o->plan_no_measure, .no_frontier = simulate};
    return trm_planner_create(&p->model, &options, &p->planner, err);
}

static trm_status save(const app_options *o, const trm_planner *planner, trm_error *err) {
    trm_status status = o->plan_save != NULL ? trm_planner_save(planner, o->plan_save, err) : TRM_OK;
    if (status != TRM_OK || o->plan_picture == NULL) {
        return status;
    }
    size_t length = strlen(o->plan_picture);
    bool dot = length > 4 && strcmp(o->plan_picture + length - 4, ".dot") == 0;
    char *picture = dot ? trm_planner_dot(planner) : trm_planner_svg(planner);
    status = picture != NULL ? app_write_text(o->plan_picture, picture, err) : app_fail(err, TRM_NOMEM, "no memory for the picture");
    trm_string_free(picture);
    return status;
}

int app_run_planner(app_context *app) {
    trm_error err;
    planning p;
    trm_planner_info info = {.infeasible = false};
    trm_status status = begin(app, false, &p, &err);
    char *report = NULL;
    if (status == TRM_OK) {
        report = trm_planner_report(p.planner, app_out.json);
        status = report != NULL ? TRM_OK : app_fail(&err, TRM_NOMEM, "no memory for the report");
    }
    if (status == TRM_OK) {
        app_say("%s", report);
        app_json_line(report);
        trm_planner_describe(p.planner, &info);
        status = save(&app->o, p.planner, &err);
    }
    if (status == TRM_OK && app->o.plan_validate && info.ranks > 1 && !info.infeasible) {
        status = app_validate(app, p.planner, &err);
    }
    if (status == TRM_OK && info.infeasible) {
        status = app_fail(&err, TRM_NOMEM, "no plan fits %.3g GB a rank; the one of least memory takes %.3g GB",
                          (double)app->o.plan_memory / 1e9, info.memory_bytes / 1e9);
    }
    trm_string_free(report);
    stop(&p);
    return status == TRM_OK ? 0 : app_report(&err);
}

int app_run_simulate(app_context *app) {
    trm_error err;
    planning p;
    char *text = NULL;
    memset(&p, 0, sizeof p);
    trm_status status = TRM_OK;
    if (app->o.plan_mesh == NULL && !app_given(&app->parsed, "n")) {
        status = app_fail(&err, TRM_INVALID, "simulate: --mesh 64x8 (or -n 512) expected");
    }
    status = status == TRM_OK ? begin(app, true, &p, &err) : status;
    if (status == TRM_OK) {
        const trm_simulation_options options = {.largest = (int32_t)app->o.plan_largest, .straggler = app->o.plan_straggler,
                                                .json = app_out.json, .trace = app->o.plan_trace};
        status = trm_planner_simulate(p.planner, &options, &text, &err);
    }
    if (status == TRM_OK) {
        app_say("%s", text);
        app_json_line(text);
        status = save(&app->o, p.planner, &err);
    }
    trm_string_free(text);
    stop(&p);
    return status == TRM_OK ? 0 : app_report(&err);
}
