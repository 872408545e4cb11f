/* plan --validate: the best plans and the baselines are run for a few steps, and the predictions held against them. */
#include "app/app.h"
#include "app/planning.h"

#include "trireme/machine.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PLANS_MAX = 24 };

typedef struct trial {
    char name[64], path[300];
    double predicted, measured, bytes;
} trial;

/* The plans as files in `folder`; how many. */
static int write_plans(const trm_planner *planner, const char *folder, trial *trials, trm_error *err) {
    int count = 0;
    for (; count < PLANS_MAX; count++) {
        const char *name;
        char *text = trm_planner_plan(planner, count, &trials[count].predicted, &name);
        if (text == NULL) {
            break;
        }
        trial *t = &trials[count];
        snprintf(t->name, sizeof t->name, "%s", name);
        snprintf(t->path, sizeof t->path, "%s/plan%d.txt", folder, count);
        FILE *file = fopen(t->path, "wb");
        bool ok = file != NULL && fputs(text, file) >= 0;
        ok = file != NULL && fclose(file) == 0 && ok;
        trm_string_free(text);
        if (!ok) {
            (void)app_fail(err, TRM_IO, "%.200s: %s", t->path, strerror(errno));
            return -1;
        }
    }
    return count;
}

/* The flags of the network and the back-end, for the ranks. */
static void shape_flags(const app_context *app, int threads, char *text, size_t size) {
    const app_options *o = &app->o;
    size_t used = (size_t)snprintf(text, size, "--batch-size %lld --image-size %lld --stem %s --loss %s --precision %s --optimizer %s "
                                   "--threads %d", (long long)o->batch_size, (long long)o->image_size, o->stem, o->loss,
                                   o->precision, o->optimizer, threads);
    if (o->classes > 0 && used < size) {
        used += (size_t)snprintf(text + used, size - used, " --classes %lld", (long long)o->classes);
    }
    if (o->backend != NULL && used < size) {
        snprintf(text + used, size - used, " --backend %s", o->backend);
    }
}

static trm_status run(app_context *app, const char *folder, int64_t ranks, trial *trials, int count, trm_error *err) {
    char self[512], flags[512], line[4096];
    static char command[16384];
    trm_machine machine;
    trm_machine_ask(&machine);
    int64_t threads = app->o.threads > 0 ? app->o.threads : machine.cores / ranks;
    trm_status status = app_own_path(self, sizeof self, err);
    if (status != TRM_OK) {
        return status;
    }
    shape_flags(app, (int)(threads < 1 ? 1 : threads), flags, sizeof flags);
    size_t used = (size_t)snprintf(command, sizeof command, "cd '%s' && '%s' bench split '%s' -n %lld %s --repeats %lld --json --quiet --plans ",
                                   folder, self, app->parsed.arguments[0], (long long)ranks, flags, (long long)app->o.repeats);
    for (int i = 0; i < count && used < sizeof command; i++) {
        used += (size_t)snprintf(command + used, sizeof command - used, "%s%s", i ? "," : "", trials[i].path);
    }
    FILE *in = popen(command, "r");
    if (in == NULL) {
        return app_fail(err, TRM_IO, "bench split cannot be started: %s", strerror(errno));
    }
    int done = 0;
    while (fgets(line, sizeof line, in) != NULL) {
        const char *seconds = strstr(line, "\"median_seconds\":"), *bytes = strstr(line, "\"total_bytes\":");
        if (seconds != NULL && bytes != NULL && done < count) {
            trials[done].measured = strtod(seconds + 17, NULL);
            trials[done++].bytes = strtod(bytes + 14, NULL);
            app_status_line("ran %d of %d plans", done, count);
        }
    }
    int code = pclose(in);
    return code == 0 && done == count ? TRM_OK
                                      : app_fail(err, TRM_INTERNAL, "%d of %d plans ran; try `trireme bench split`: its message is above",
                                                 done, count);
}

/* Pairs that both orders agree on, less those they do not, over all. */
static double kendall(const trial *t, int count) {
    int agree = 0, pairs = 0;
    for (int i = 0; i < count; i++) {
        for (int k = 0; k < i; k++) {
            double p = t[i].predicted - t[k].predicted, m = t[i].measured - t[k].measured;
            agree += p * m > 0 ? 1 : p * m < 0 ? -1 : 0;
            pairs++;
        }
    }
    return pairs > 0 ? (double)agree / pairs : 1;
}

static void tell(const trial *t, int count, const trm_planner_info *info) {
    double error = 0, best = t[0].measured;
    app_say("\n%-40s %14s %14s %8s\n", "as it runs", "predicted ms", "measured ms", "error");
    for (int i = 0; i < count; i++) {
        double off = t[i].predicted / t[i].measured - 1;
        error += fabs(off) / count;
        best = fmin(best, t[i].measured);
        app_say("%-40s %14.3f %14.3f %+7.1f%%\n", i == 0 ? "the chosen plan" : t[i].name, t[i].predicted * 1e3, t[i].measured * 1e3, 100 * off);
    }
    double regret = t[0].measured / best - 1, tau = kendall(t, count);
    app_say("mean error %.1f %%, Kendall's tau %.3f, regret of the chosen plan %.1f %%, %d plans\n", 100 * error, tau, 100 * regret, count);
    app_say("memory of the chosen plan: %.1f MB compiled, %.1f MB as it ran (%+.1f%%), libraries and page ends included\n",
            info->compiled_bytes / 1e6, t[0].bytes / 1e6, 100 * (t[0].bytes / info->compiled_bytes - 1));
    app_json_open();
    app_json_text("event", "validate");
    app_json_real("compiled_bytes", info->compiled_bytes);
    app_json_real("measured_bytes", t[0].bytes);
    app_json_int("plans", count);
    app_json_real("mape", error);
    app_json_real("kendall_tau", tau);
    app_json_real("regret", regret);
    app_json_open_array("runs");
    for (int i = 0; i < count; i++) {
        app_json_open_item();
        app_json_text("name", i == 0 ? "the chosen plan" : t[i].name);
        app_json_real("predicted_seconds", t[i].predicted);
        app_json_real("measured_seconds", t[i].measured);
        app_json_real("measured_bytes", t[i].bytes);
        app_json_close_item();
    }
    app_json_close_array();
    app_json_close();
}

trm_status app_validate(app_context *app, const trm_planner *planner, trm_error *err) {
    trial trials[PLANS_MAX];
    trm_planner_info info;
    char folder[] = "/tmp/trireme-validate.XXXXXX", remove_all[64];
    memset(trials, 0, sizeof trials);
    trm_planner_describe(planner, &info);
    if (mkdtemp(folder) == NULL) {
        return app_fail(err, TRM_IO, "%s: %s", folder, strerror(errno));
    }
    int count = write_plans(planner, folder, trials, err);
    trm_status status = count < 0 ? (trm_status)err->status : TRM_OK;
    status = status == TRM_OK ? run(app, folder, info.ranks, trials, count, err) : status;
    if (status == TRM_OK) {
        tell(trials, count, &info);
    }
    snprintf(remove_all, sizeof remove_all, "rm -rf '%s'", folder);
    if (system(remove_all) != 0) {
        app_warn("%s could not be removed", folder);
    }
    return status;
}
