/* SPDX-License-Identifier: Apache-2.0 */
/* The report of runs as one object: what `report --json` prints, and what its page draws.
 *
 *      {"event":"report", "runs":[{name, state, figures, "curves":{step:[...], loss:[...]}, ...}],
 *       "differences":[{"option", "values":[of each run]}]}
 *
 * Times are seconds since the run began, so that nine digits are enough. */
#include "app/output/json.h"
#include "app/output/run.h"

#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { POINTS_MOST = 2000 }; /* of a curve in the report */

/* Names of the curves in the object; units are in the names. */
static const char *const CURVE_NAMES[APP_CURVES] = {"step",
                                                    "seconds",
                                                    "loss",
                                                    "learning_rate",
                                                    "rate",
                                                    "step_seconds",
                                                    "data_wait_seconds",
                                                    "rank_wait_seconds",
                                                    "peak_bytes"};

/* Returns a number; null for NaN and infinity. */
static json_t *json_number(double value) {
    return isfinite(value) ? json_real(value) : json_null();
}

/* Returns a whole number; null for NaN and for what no integer can be. */
static json_t *json_whole_number(double value) {
    return fabs(value) < 9e18 ? json_integer((json_int_t)value) : json_null();
}

/* Returns a text; null for NULL. What is not UTF-8 (names of files have any bytes) is U+FFFD. */
static json_t *json_text(const char *value) {
    json_t *text = value != NULL ? json_string(value) : json_null();
    char *quoted = NULL;
    size_t bytes;
    FILE *to = text == NULL ? open_memstream(&quoted, &bytes) : NULL;
    if (to != NULL) {
        app_put_json_string(to, value);
        text = fclose(to) == 0 ? json_loads(quoted, JSON_DECODE_ANY, NULL) : NULL;
        free(quoted);
    }
    return text != NULL ? text : json_null();
}

/* Returns an object, or an empty one in place of anything else. */
static json_t *json_members(json_t *value) {
    return json_is_object(value) ? json_incref(value) : json_object();
}

/* ---- curves ---------------------------------------------------------------------------------- */

/* Chooses the points of the report: of each of POINTS_MOST/2 equal parts the least and the greatest
 * loss, so that spikes stay. Returns how many. */
static int64_t choose_points(const app_run *run, int64_t *chosen) {
    int64_t n = run->point_count, parts = POINTS_MOST / 2, count = 0;
    for (int64_t i = 0; n <= POINTS_MOST && i < n; i++) {
        chosen[count++] = i;
    }
    for (int64_t p = 0; n > POINTS_MOST && p < parts; p++) {
        int64_t begin = p * n / parts, end = (p + 1) * n / parts, low = begin, high = begin;
        for (int64_t i = begin; i < end; i++) {
            double loss = run->points[i][APP_CURVE_LOSS];
            low = loss < run->points[low][APP_CURVE_LOSS] ? i : low;
            high = loss > run->points[high][APP_CURVE_LOSS] ? i : high;
        }
        if (p == parts - 1) {
            high = n - 1; /* the newest step is always there */
        }
        chosen[count++] = low < high ? low : high;
        if (low != high) {
            chosen[count++] = low < high ? high : low;
        }
    }
    return count;
}

/* Returns the curves; those without any value are left out. */
static json_t *curves_of(const app_run *run) {
    int64_t chosen[POINTS_MOST + 1], count = choose_points(run, chosen);
    json_t *curves = json_object();
    for (int c = 0; c < APP_CURVES; c++) {
        json_t *values = json_array();
        bool any = false;
        bool integer = c == APP_CURVE_STEP || c == APP_CURVE_PEAK_BYTES;
        for (int64_t i = 0; i < count; i++) {
            double value = run->points[chosen[i]][c];
            any |= isfinite(value) && (c != APP_CURVE_RANK_WAIT || value > 0);
            json_array_append_new(values, integer ? json_whole_number(value) : json_number(value));
        }
        if (any) {
            json_object_set_new(curves, CURVE_NAMES[c], values);
        } else {
            json_decref(values);
        }
    }
    return curves;
}

/* ---- figures --------------------------------------------------------------------------------- */

/* Sums over all points of the last attempt, weighted by the steps between reports. */
typedef struct means {
    double steps, step_seconds;        /* steps; seconds of all steps */
    double data_seconds, rank_seconds; /* of these, waiting for data, for other ranks */
    double samples;
    double least_loss, least_step; /* step of the least loss */
    double peak_bytes;             /* NaN: not recorded */
} means;

/* Sums the points of a run. A point without the seconds of a step counts for the least loss
 * only. */
static means mean_of(const app_run *run) {
    means m = {.least_loss = INFINITY, .least_step = NAN, .peak_bytes = NAN};
    double before = 0;
    for (int64_t i = 0; i < run->point_count; i++) {
        const double *p = run->points[i];
        double steps = p[APP_CURVE_STEP] - before;
        before = p[APP_CURVE_STEP];
        if (p[APP_CURVE_LOSS] < m.least_loss) {
            m.least_loss = p[APP_CURVE_LOSS];
            m.least_step = p[APP_CURVE_STEP];
        }
        m.peak_bytes = fmax(m.peak_bytes, p[APP_CURVE_PEAK_BYTES]);
        if (isfinite(p[APP_CURVE_STEP_SECONDS]) && isfinite(p[APP_CURVE_RATE])) {
            m.steps += steps;
            m.step_seconds += steps * p[APP_CURVE_STEP_SECONDS];
            m.data_seconds += steps * p[APP_CURVE_DATA_WAIT];
            m.rank_seconds += steps * p[APP_CURVE_RANK_WAIT];
            m.samples += steps * p[APP_CURVE_STEP_SECONDS] * p[APP_CURVE_RATE];
        }
    }
    return m;
}

/* Puts the figures of the run's head. Waiting for data is not part of a step's time; waiting for
 * ranks is. */
static void put_figures(const app_run *run, json_t *out) {
    means m = mean_of(run);
    const double *last = run->point_count > 0 ? run->points[run->point_count - 1] : NULL;
    const json_t *end = run->main != NULL ? run->main->end : NULL;
    double whole_seconds = m.step_seconds + m.data_seconds;
    double epoch_steps = app_run_number(run, "epoch_steps"), epochs = app_run_number(run, "epochs");
    double most = json_number_value(json_object_get(
        json_object_get(run->main != NULL ? run->main->options : NULL, "options"), "steps"));
    /* Training ends at --steps, or with the epochs. */
    double goal = most > 0 ? most : epoch_steps * epochs;
    json_object_set_new(out, "global_step",
                        json_whole_number(last != NULL ? last[APP_CURVE_STEP] : NAN));
    json_object_set_new(out, "goal_steps", json_whole_number(goal > 0 ? goal : NAN));
    json_object_set_new(out, "loss", json_number(last != NULL ? last[APP_CURVE_LOSS] : NAN));
    json_object_set_new(out, "least_loss", json_number(m.least_loss));
    json_object_set_new(out, "least_loss_step", json_whole_number(m.least_step));
    json_object_set_new(out, "learning_rate",
                        json_number(last != NULL ? last[APP_CURVE_LEARNING_RATE] : NAN));
    json_object_set_new(out, "rate", json_number(m.samples / m.step_seconds));
    json_object_set_new(out, "step_seconds", json_number(m.step_seconds / m.steps));
    json_object_set_new(out, "data_wait_fraction", json_number(m.data_seconds / whole_seconds));
    json_object_set_new(out, "rank_wait_fraction", json_number(m.rank_seconds / whole_seconds));
    json_object_set_new(
        out, "exposed_comm_fraction",
        json_number(json_is_real(json_object_get(end, "exposed_comm_fraction"))
                        ? json_real_value(json_object_get(end, "exposed_comm_fraction"))
                        : NAN));
    /* the process knows its peak at its end; before, the steps know it */
    double done_peak = json_number_value(json_object_get(end, "peak_bytes"));
    json_object_set_new(
        out, "peak_bytes",
        json_whole_number(done_peak > 0 ? fmax(done_peak, m.peak_bytes) : m.peak_bytes));
    json_object_set_new(out, "predicted_bytes",
                        json_whole_number(app_run_number(run, "predicted_bytes")));
    json_object_set_new(out, "parameters", json_whole_number(app_run_number(run, "parameters")));
}

/* ---- checkpoints ----------------------------------------------------------------------------- */

/* Returns the bytes of the files in a folder; -1 if there is no such folder. */
static int64_t folder_bytes(const char *path) {
    char file[4800];
    struct stat info;
    int64_t bytes = 0;
    DIR *dir = opendir(path);
    if (dir == NULL) {
        return -1;
    }
    for (struct dirent *e; (e = readdir(dir)) != NULL;) {
        snprintf(file, sizeof file, "%s/%s", path, e->d_name);
        if (stat(file, &info) == 0 && S_ISREG(info.st_mode)) {
            bytes += info.st_size;
        }
    }
    closedir(dir);
    return bytes;
}

/* Returns the recorded checkpoints with their size; null = deleted since. */
static json_t *checkpoints_of(const app_run *run) {
    json_t *list = json_deep_copy(run->checkpoints), *entry;
    size_t i;
    json_array_foreach(list, i, entry) {
        char path[4400];
        json_int_t step = json_integer_value(json_object_get(entry, "global_step"));
        snprintf(path, sizeof path, "%s/ckpt-%lld", run->path, (long long)step);
        int64_t bytes = folder_bytes(path);
        json_object_set_new(entry, "bytes", bytes >= 0 ? json_integer(bytes) : json_null());
    }
    return list;
}

/* ---- a run ----------------------------------------------------------------------------------- */

/* Appends a sentence. */
static void add_problem(json_t *list, const char *format, const char *path, int64_t count,
                        int64_t line) {
    char sentence[4400];
    snprintf(sentence, sizeof sentence, format, path, (long long)count, (long long)line);
    json_array_append_new(list, json_text(sentence));
}

/* Returns what the report cannot show, and why, in sentences. */
static json_t *problems_of(const app_run *run) {
    json_t *list = json_array();
    if (run->file_count == 0) {
        add_problem(list,
                    "%s: there is no run.jsonl; trireme train --output writes it, earlier versions "
                    "did not",
                    run->path, 0, 0);
    } else if (run->main == NULL) {
        add_problem(list, "%s: there is no run.jsonl of the chief yet, only files of other roles",
                    run->path, 0, 0);
    } else if (run->point_count == 0) {
        add_problem(list, "%s: no step is recorded yet", run->path, 0, 0);
    }
    /* lines that cannot be read */
    for (int i = 0; i < run->file_count; i++) {
        const app_run_file *f = run->files[i];
        if (f->damaged > 0) {
            add_problem(list, "%s: %lld damaged lines are left out, the first is line %lld",
                        f->path, f->damaged, f->first_damaged);
        }
        if (f->cut && app_run_file_state(run, f) != APP_RUN_TRAINING) {
            add_problem(list, "%s: the last line is not whole and is left out", f->path, 0, 0);
        }
    }
    if (run->more_files) {
        add_problem(list, "%s: only %lld files of roles are read", run->path, APP_RUN_FILES, 0);
    }
    return list;
}

/* Returns one object for each process that has a record. */
static json_t *roles_of(const app_run *run) {
    json_t *list = json_array();
    for (int i = 0; i < run->file_count; i++) {
        const app_run_file *f = run->files[i];
        const char *role = json_string_value(json_object_get(f->start, "role"));
        double seconds = f->last_time - run->begin, whole = f->time.steps + f->time.data;
        json_array_append_new(
            list,
            json_pack(
                "{s:s, s:s, s:s, s:o, s:o, s:o, s:o, s:o, s:o}", "who",
                *f->who != '\0' ? f->who
                : role != NULL  ? "chief"
                                : "rank 0",
                "state", app_run_state_name(app_run_file_state(run, f)), "host",
                json_is_string(json_object_get(f->options, "host"))
                    ? json_string_value(json_object_get(f->options, "host"))
                    : "",
                "last_seconds", json_number(seconds), "global_step",
                json_whole_number(json_is_integer(json_object_get(f->end, "global_step"))
                                      ? json_number_value(json_object_get(f->end, "global_step"))
                                      : NAN),
                "peak_bytes",
                json_whole_number(json_is_integer(json_object_get(f->end, "peak_bytes"))
                                      ? json_number_value(json_object_get(f->end, "peak_bytes"))
                                      : NAN),
                "data_wait_fraction", json_number(f->time.data / whole), "rank_wait_fraction",
                json_number(f->time.rank_wait / whole), "lines", json_integer(f->lines)));
    }
    return list;
}

/* Returns one run. */
static json_t *run_object(const app_run *run) {
    json_t *out = json_object();
    const json_t *options = run->main != NULL ? run->main->options : NULL;
    json_object_set_new(out, "name", json_text(run->name));
    json_object_set_new(out, "path", json_text(run->path));
    json_object_set_new(out, "model", json_text(app_run_text(run, "model")));
    json_object_set_new(out, "state",
                        json_text(app_run_state_name(app_run_file_state(run, run->main))));
    json_object_set_new(out, "version", json_text(app_run_text(run, "version")));
    json_object_set_new(out, "host",
                        json_text(json_string_value(json_object_get(options, "host"))));
    json_object_set_new(
        out, "unit",
        json_text(app_run_text(run, "unit") != NULL ? app_run_text(run, "unit") : "samples"));
    json_object_set_new(out, "ranks", json_whole_number(app_run_number(run, "ranks")));
    json_object_set_new(out, "begin", json_whole_number(run->begin > 0 ? run->begin : NAN));
    json_object_set_new(out, "seconds",
                        json_number(run->main != NULL ? run->main->last_time - run->begin : NAN));
    put_figures(run, out);
    json_object_set_new(out, "reported_steps", json_integer(run->point_count));
    json_object_set_new(out, "curves", curves_of(run));
    json_object_set(out, "evaluations", run->evaluations);
    json_object_set_new(out, "checkpoints", checkpoints_of(run));
    json_object_set(out, "events", run->events);
    json_object_set_new(out, "dropped_events", json_integer(run->dropped_events));
    json_object_set_new(out, "roles", roles_of(run));
    json_object_set_new(out, "problems", problems_of(run));
    /* list the flags of the command line, then all options with their defaults */
    json_object_set_new(out, "given", json_members(json_object_get(options, "given")));
    json_object_set_new(out, "options", json_members(json_object_get(options, "options")));
    return out;
}

/* ---- differences ----------------------------------------------------------------------------- */

/* Returns the options in which runs differ; of those that only some models have, the given ones.
 * Folders are always different, and are left out. */
static json_t *differences_of(const json_t *runs) {
    json_t *list = json_array(), *seen = json_object(), *run, *value;
    const char *key;
    size_t i, j;
    json_array_foreach(runs, i, run) {
        json_object_foreach(json_object_get(run, "options"), key, value) {
            /* values of this option in all runs; a run that does not have it differs if it was
             * given here */
            bool differs = false;
            json_t *values = json_array(), *other;
            json_array_foreach(runs, j, other) {
                json_t *o = json_object_get(json_object_get(other, "options"), key);
                differs |= o == NULL ? json_object_get(json_object_get(run, "given"), key) != NULL
                                     : !json_equal(o, value);
                json_array_append(values, o != NULL ? o : json_null());
            }
            bool folder = strcmp(key, "output") == 0 || strcmp(key, "model_dir") == 0;
            if (differs && !folder && json_object_get(seen, key) == NULL) {
                json_object_set_new(seen, key, json_true());
                json_array_append_new(list,
                                      json_pack("{s:s, s:O}", "option", key, "values", values));
            }
            json_decref(values);
        }
    }
    json_decref(seen);
    return list;
}

/* Contract in run.h. */
json_t *app_run_json(app_run *const *runs, int count) {
    json_t *list = json_array();
    for (int i = 0; i < count; i++) {
        json_array_append_new(list, run_object(runs[i]));
    }
    return json_pack("{s:s, s:s, s:o, s:o}", "event", "report", "version", trm_version(), "runs",
                     list, "differences", differences_of(list));
}

/* Returns a text without control characters, of ASCII and of UTF-8 (U+0080 to U+009F). */
static char *copy_plain(const char *text) {
    char *copy = strdup(text);
    for (unsigned char *c = (unsigned char *)copy; c != NULL && *c != '\0'; c++) {
        bool wide = c[0] == 0xC2 && c[1] >= 0x80 && c[1] < 0xA0;
        if (*c < 0x20 || *c == 0x7F || wide) {
            *c = ' ';
        }
        if (wide) {
            *++c = ' ';
        }
    }
    return copy;
}

/* Contract in run.h. */
json_t *app_run_plain(const json_t *report) {
    json_t *made, *value;
    const char *key;
    size_t i;
    if (json_is_string(report)) {
        char *text = copy_plain(json_string_value(report));
        made = json_string(text != NULL ? text : "");
        free(text);
    } else if (json_is_array(report)) {
        made = json_array();
        json_array_foreach(report, i, value) { json_array_append_new(made, app_run_plain(value)); }
    } else if (json_is_object(report)) {
        made = json_object();
        json_object_foreach((json_t *)report, key, value) {
            char *name = copy_plain(key);
            json_object_set_new(made, name != NULL ? name : "", app_run_plain(value));
            free(name);
        }
    } else {
        made = json_copy((json_t *)report);
    }
    return made;
}
