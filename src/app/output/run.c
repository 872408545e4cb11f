/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the record of a run (contract in run.h).
 *
 *      app_run_read --> find_files: names of the folder
 *                   --> read_file: each new whole line --> take_event
 *                                                          --> a point, an evaluation, ...
 *
 * Lines come from a process that may be killed at any moment: a damaged line is counted and left
 * out, the last line is read once it is whole. Events that this program does not know become
 * text. */
#include "app/output/run.h"

#include "app/options/flags.h"

#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

/* Bytes of a line, at most; a longer one is counted as damaged. */
enum { LINE_MOST = 1 << 20 };

/* ---- files ----------------------------------------------------------------------------------- */

/* Adds a file unless it is known.
 *   errors  NOMEM */
static trm_status add_file(app_run *run, const char *path, const char *who, trm_error *err) {
    for (int i = 0; i < run->file_count; i++) {
        if (strcmp(run->files[i]->path, path) == 0) {
            return TRM_OK;
        }
    }
    if (run->file_count == APP_RUN_FILES) {
        run->more_files = true;
        return TRM_OK;
    }
    app_run_file *file = calloc(1, sizeof *file);
    if (file == NULL) {
        return app_no_memory(err, "for %.100s", path);
    }
    snprintf(file->path, sizeof file->path, "%s", path);
    snprintf(file->who, sizeof file->who, "%s", who);
    file->rank = strncmp(who, "rank-", 5) == 0 ? (int32_t)strtol(who + 5, NULL, 10) : 0;
    if (file->rank > 0) {
        file->who[4] = ' '; /* as people name it */
    }
    run->files[run->file_count++] = file;
    run->main = *who == '\0' ? file : run->main;
    return TRM_OK;
}

/* Returns whether `name` is run-WHO.jsonl, and copies WHO. */
static bool is_role_file(const char *name, char *who, size_t size) {
    size_t length = strlen(name);
    if (length < 11 || strncmp(name, "run-", 4) != 0 || strcmp(name + length - 6, ".jsonl") != 0) {
        return false;
    }
    snprintf(who, size, "%.*s", (int)(length - 10), name + 4);
    for (char *c = who; *c != '\0'; c++) {
        *c = *c >= ' ' && *c <= '~' ? *c : '?';
    }
    return true;
}

/* Compares names of files, so that ranks and roles have a fixed order. */
static int compare_names(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Adds the files of a folder: run.jsonl, or else another record of metrics, first; then those of
 * roles, by name. */
static trm_status find_files(app_run *run, trm_error *err) {
    enum { NAMES = 4 * APP_RUN_FILES };
    char path[4400], who[64], *names[NAMES];
    int count = 0;
    struct stat info;
    if (stat(run->path, &info) == 0 && !S_ISDIR(info.st_mode)) {
        return add_file(run, run->path, "", err);
    }
    /* Read, of a folder, the main record first. */
    snprintf(path, sizeof path, "%s/run.jsonl", run->path);
    bool has_record = stat(path, &info) == 0;
    trm_status status = has_record ? add_file(run, path, "", err) : TRM_OK;
    DIR *dir = opendir(run->path);
    for (struct dirent *e; dir != NULL && count < NAMES && (e = readdir(dir)) != NULL;) {
        size_t length = strlen(e->d_name);
        bool lines = length > 6 && strcmp(e->d_name + length - 6, ".jsonl") == 0;
        names[count] = lines && strcmp(e->d_name, "run.jsonl") != 0 ? strdup(e->d_name) : NULL;
        count += names[count] != NULL;
    }
    if (dir != NULL) {
        closedir(dir);
    }
    qsort(names, (size_t)count, sizeof *names, compare_names);
    /* records of roles; without run.jsonl the first other file is the main one */
    for (int i = 0; i < count; i++) {
        bool role = is_role_file(names[i], who, sizeof who);
        snprintf(path, sizeof path, "%s/%s", run->path, names[i]);
        if (status == TRM_OK && (role || (!has_record && run->main == NULL))) {
            status = add_file(run, path, role ? who : "", err);
        }
        free(names[i]);
    }
    return status;
}

/* ---- events ---------------------------------------------------------------------------------- */

/* Returns a number of ordinary size, else NAN: a damaged line may hold any, and sums and curves of
 * them must stay finite. */
static double read_number(const json_t *value) {
    double number = json_is_number(value) ? json_number_value(value) : NAN;
    return !(fabs(number) < 1e100) ? NAN : fabs(number) < 1e-100 ? 0 : number;
}

/* Returns a member that is a number, else NAN. */
static double number_of(const json_t *object, const char *key) {
    return read_number(json_object_get(object, key));
}

/* Returns a member that counts (steps, ranks) or is a time, else NAN. */
static double count_of(const json_t *object, const char *key) {
    double number = number_of(object, key);
    return number >= 0 && number <= APP_RUN_COUNT_MOST ? number : NAN;
}

/* Adds the steps since the line before to the time of the process. The event has means of a
 * step. */
static void add_time(app_run_time *time, const json_t *event) {
    double step = count_of(event, "global_step"), seconds = number_of(event, "step_seconds");
    double data = number_of(event, "data_wait_seconds");
    double rank_wait = number_of(event, "rank_wait_seconds");
    if (isnan(step + seconds)) {
        return;
    }
    double count = step > time->step ? step - time->step : 1;
    time->step = step;
    time->steps += count * seconds;
    time->data += isfinite(data) ? count * data : 0;
    time->rank_wait += isfinite(rank_wait) ? count * rank_wait : 0;
}

/* Appends a point. Points of this step and later ones are of an attempt that was resumed before
 * them, and go. */
static trm_status add_point(app_run *run, const json_t *event, double seconds, trm_error *err) {
    static const char *const rates[] = {"images_per_second", "samples_per_second",
                                        "tokens_per_second"};
    double step = count_of(event, "global_step");
    if (isnan(step)) {
        return TRM_OK;
    }
    while (run->point_count > 0 && run->points[run->point_count - 1][APP_CURVE_STEP] >= step) {
        run->point_count--;
    }
    if (run->point_count == run->point_room) {
        int64_t room = run->point_room > 0 ? 2 * run->point_room : 256;
        void *larger = realloc(run->points, (size_t)room * sizeof *run->points);
        if (larger == NULL) {
            return app_no_memory(err, "for %lld steps of %.100s", (long long)room, run->path);
        }
        run->points = larger;
        run->point_room = room;
    }
    double *p = run->points[run->point_count++];
    p[APP_CURVE_STEP] = step;
    p[APP_CURVE_SECONDS] = seconds;
    p[APP_CURVE_LOSS] = number_of(event, "loss");
    p[APP_CURVE_LEARNING_RATE] = number_of(event, "learning_rate");
    p[APP_CURVE_RATE] = NAN;
    for (int i = 0; i < 3 && isnan(p[APP_CURVE_RATE]); i++) {
        p[APP_CURVE_RATE] = number_of(event, rates[i]);
    }
    p[APP_CURVE_STEP_SECONDS] = number_of(event, "step_seconds");
    p[APP_CURVE_DATA_WAIT] = number_of(event, "data_wait_seconds");
    p[APP_CURVE_RANK_WAIT] = number_of(event, "rank_wait_seconds");
    p[APP_CURVE_PEAK_BYTES] = number_of(event, "peak_bytes");
    return TRM_OK;
}

/* Appends a copy of the event, with its time since the run began, to an array. Entries of this step
 * and later ones, of the same array, are of an attempt that was resumed before them, and go. */
static void add_entry(json_t *array, const json_t *event, double seconds) {
    double step = count_of(event, "global_step");
    for (size_t i = json_array_size(array); !isnan(step) && i > 0; i--) {
        if (count_of(json_array_get(array, i - 1), "global_step") >= step) {
            json_array_remove(array, i - 1);
        }
    }
    json_t *copy = json_object(), *value;
    const char *key;
    json_object_foreach((json_t *)event, key, value) {
        bool own = strcmp(key, "time") == 0 || strcmp(key, "event") == 0;
        bool odd = json_is_number(value)
                       ? isnan(strcmp(key, "global_step") == 0 ? step : read_number(value))
                       : !json_is_string(value) && !json_is_boolean(value);
        if (!own && !odd) {
            json_object_set(copy, key, value);
        }
    }
    json_object_set_new(copy, "seconds", json_real(seconds));
    json_array_append_new(array, copy);
}

/* Appends an event that people read. Of very many the oldest go. */
static void add_text(app_run *run, const app_run_file *file, double seconds, const char *level,
                     const char *text) {
    json_array_append_new(run->events, json_pack("{s:f, s:s, s:s, s:s}", "seconds", seconds, "who",
                                                 file->who, "level", level, "text", text));
    if (json_array_size(run->events) > 2 * APP_RUN_EVENTS) {
        for (int i = 0; i < APP_RUN_EVENTS; i++) {
            json_array_remove(run->events, 0);
        }
        run->dropped_events += APP_RUN_EVENTS;
    }
}

/* Gives the newest event for people the step at which it happened, which pages mark on curves. */
static void mark_step(app_run *run, const json_t *event) {
    double step = count_of(event, "global_step");
    json_t *newest = json_array_get(run->events, json_array_size(run->events) - 1);
    if (isfinite(step)) {
        json_object_set_new(newest, "global_step", json_integer((json_int_t)step));
    }
}

/* Appends an event without a form of its own as "name: member value, member value". */
static void add_other(app_run *run, const app_run_file *file, double seconds, const char *name,
                      json_t *event) {
    char *text = NULL;
    size_t bytes;
    const char *key, *between = ": ";
    json_t *value;
    FILE *to = open_memstream(&text, &bytes);
    if (to == NULL) {
        return;
    }
    fputs(name, to);
    json_object_foreach(event, key, value) {
        char *shown = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT | JSON_REAL_PRECISION(6));
        bool wanted = strcmp(key, "time") != 0 && strcmp(key, "event") != 0 && shown != NULL;
        if (wanted) {
            fprintf(to, "%s%s %s", between, key,
                    json_is_string(value) ? json_string_value(value) : shown);
            between = ", ";
        }
        free(shown);
    }
    if (fclose(to) == 0) {
        add_text(run, file, seconds, "event", text);
        mark_step(run, event);
    }
    free(text);
}

/* Replaces the newest event of a kind. */
static void keep_event(json_t **place, json_t *event) {
    json_decref(*place);
    *place = event != NULL ? json_incref(event) : NULL;
}

/* Takes a line of the log. The lines of each step are points already. */
static void take_log(app_run *run, const app_run_file *file, double seconds, json_t *event) {
    const char *text = json_string_value(json_object_get(event, "text"));
    const char *level = json_string_value(json_object_get(event, "level"));
    if (text == NULL || level == NULL) {
        return;
    }
    bool alarms = strcmp(level, "warning") == 0 || strcmp(level, "error") == 0;
    if (file->rank > 0 ? alarms : strncmp(text, "loss = ", 7) != 0) {
        add_text(run, file, seconds, level, text);
    }
}

/* Takes the start of a process: of a resumed one, an event for people. */
static void take_start(app_run *run, app_run_file *file, double seconds, json_t *event) {
    char text[96];
    keep_event(&file->start, event);
    keep_event(&file->end, NULL);
    double step = count_of(event, "global_step");
    file->time = (app_run_time){.step = isfinite(step) ? step : 0};
    if (json_is_true(json_object_get(event, "resumed")) && file->rank == 0) {
        snprintf(text, sizeof text, "resumed after step %.0f", file->time.step);
        add_text(run, file, seconds, "event", text);
        mark_step(run, event);
    }
}

/* Takes the end of a process. */
static void take_end(app_run *run, app_run_file *file, double seconds, json_t *event) {
    const char *message = json_string_value(json_object_get(event, "message"));
    keep_event(&file->end, event);
    if (message != NULL) {
        add_text(run, file, seconds, "error", message);
    }
}

/* Takes one event. Evaluations may come from any role, points from the main file only, and nothing
 * that rank 0 records from another rank. */
static trm_status take_event(app_run *run, app_run_file *file, json_t *event, trm_error *err) {
    const char *name = json_string_value(json_object_get(event, "event"));
    double time = count_of(event, "time");
    if (name == NULL || isnan(time)) {
        return TRM_OK;
    }
    /* times of the report begin with the first event of any file */
    run->begin = run->begin == 0 ? time : run->begin;
    if (file->last_time > 0) {
        file->longest_gap = fmax(file->longest_gap, time - file->last_time);
    }
    file->last_time = time;
    double seconds = time - run->begin;
    if (strcmp(name, "step") == 0) {
        add_time(&file->time, event);
        return file == run->main ? add_point(run, event, seconds, err) : TRM_OK;
    }
    if (strcmp(name, "options") == 0) {
        keep_event(&file->options, event);
        keep_event(&file->end, NULL);
        file->longest_gap = 0; /* not the pause before a resume */
        run->ranks = file == run->main ? 0 : run->ranks;
    } else if (strcmp(name, "start") == 0) {
        take_start(run, file, seconds, event);
    } else if (strcmp(name, "log") == 0) {
        take_log(run, file, seconds, event);
    } else if (strcmp(name, "done") == 0 || strcmp(name, "error") == 0) {
        take_end(run, file, seconds, event);
    } else if (file->rank > 0) {
        return TRM_OK;
    } else if (strcmp(name, "eval") == 0) {
        add_entry(run->evaluations, event, seconds);
    } else if (strcmp(name, "checkpoint") == 0 && json_is_string(json_object_get(event, "path"))) {
        add_entry(run->checkpoints, event, seconds);
    } else if (strcmp(name, "epoch") != 0 && strcmp(name, "state") != 0) {
        add_other(run, file, seconds, name, event);
        if (file == run->main && strcmp(name, "membership") == 0) {
            run->ranks = fmax(count_of(event, "ranks"), 0); /* fmax: 0 where it is no number */
        }
    }
    return TRM_OK;
}

/* ---- reading --------------------------------------------------------------------------------- */

/* Reads the new whole lines of one file. A shorter file than before was written anew: only its new
 * lines are read. */
static trm_status read_file(app_run *run, app_run_file *file, trm_error *err) {
    struct stat info;
    /* the bytes of a pipe or a device come later, or never end */
    if (stat(file->path, &info) == 0 && !S_ISREG(info.st_mode)) {
        return app_fail(err, TRM_INVALID, "%.180s is no file; a record of JSON lines is expected",
                        file->path);
    }
    FILE *from = fopen(file->path, "rb");
    if (from == NULL) {
        return app_fail(err, TRM_IO, "%.180s cannot be read: %s", file->path, strerror(errno));
    }
    trm_status status = TRM_OK;
    char *line = NULL;
    size_t room = 0;
    ssize_t length;
    file->cut = false;
    if (fseeko(from, file->offset, SEEK_SET) != 0) {
        status = app_fail(err, TRM_IO, "%.180s cannot be read: %s", file->path, strerror(errno));
    }
    while (status == TRM_OK && (length = getline(&line, &room, from)) > 0) {
        /* the process is writing this line, or died in it */
        if (line[length - 1] != '\n') {
            file->cut = true;
            break;
        }
        file->offset += length;
        file->lines++;
        json_t *event = length < LINE_MOST ? json_loadb(line, (size_t)length, 0, NULL) : NULL;
        if (json_is_object(event)) {
            status = take_event(run, file, event, err);
        } else if (length > 1) {
            file->first_damaged = file->damaged++ == 0 ? file->lines : file->first_damaged;
        }
        json_decref(event);
    }
    free(line);
    fclose(from);
    return status;
}

/* Contract in run.h. Roles start one after the other, so the folder is looked through each time. */
trm_status app_run_read(app_run *run, trm_error *err) {
    trm_status status = find_files(run, err);
    for (int i = 0; status == TRM_OK && i < run->file_count; i++) {
        status = read_file(run, run->files[i], err);
    }
    return status;
}

/* Contract in run.h. A folder without a record yet is no error: a training may just be starting. */
trm_status app_run_open(const char *path, app_run **out, trm_error *err) {
    struct stat info;
    size_t length = strlen(path);
    if (stat(path, &info) != 0) {
        return app_fail(err, TRM_INVALID,
                        "%.180s: there is no such folder; the --output of a training is expected",
                        path);
    }
    if (length >= sizeof((app_run *)NULL)->path) {
        return app_fail(err, TRM_INVALID, "%.100s: the path is too long", path);
    }
    app_run *run = calloc(1, sizeof *run);
    if (run == NULL) {
        return app_no_memory(err, "for the run of %.100s", path);
    }
    memcpy(run->path, path, length + 1);
    /* the name of the run is the last part of its path */
    while (length > 1 && run->path[length - 1] == '/') {
        run->path[--length] = '\0';
    }
    const char *slash = strrchr(run->path, '/');
    run->name = slash != NULL && slash[1] != '\0' ? slash + 1 : run->path;
    run->evaluations = json_array();
    run->checkpoints = json_array();
    run->events = json_array();
    trm_status status = app_run_read(run, err);
    if (status != TRM_OK) {
        app_run_close(run);
        return status;
    }
    *out = run;
    return TRM_OK;
}

void app_run_close(app_run *run) {
    if (run == NULL) {
        return;
    }
    for (int i = 0; i < run->file_count; i++) {
        json_decref(run->files[i]->options);
        json_decref(run->files[i]->start);
        json_decref(run->files[i]->end);
        free(run->files[i]);
    }
    json_decref(run->evaluations);
    json_decref(run->checkpoints);
    json_decref(run->events);
    free(run->points);
    free(run);
}

/* ---- questions ------------------------------------------------------------------------------- */

const char *app_run_state_name(app_run_state state) {
    static const char *const names[] = {"empty",   "training", "silent", "left",
                                        "stopped", "failed",   "done"};
    return names[state];
}

/* Contract in run.h. A line is fresh for a minute, or three times the longest pause of the run. */
app_run_state app_run_file_state(const app_run *run, const app_run_file *file) {
    if (file == NULL || file->last_time == 0) {
        return APP_RUN_EMPTY;
    }
    if (file->end != NULL) {
        return json_object_get(file->end, "message") != NULL         ? APP_RUN_FAILED
               : json_is_true(json_object_get(file->end, "stopped")) ? APP_RUN_STOPPED
                                                                     : APP_RUN_DONE;
    }
    if (run->ranks > 0 && file->rank >= run->ranks) {
        return APP_RUN_LEFT;
    }
    return (double)time(NULL) - file->last_time < fmax(60, 3 * file->longest_gap) ? APP_RUN_TRAINING
                                                                                  : APP_RUN_SILENT;
}

/* Returns the member of the newest start, or else of the options. */
static const json_t *member_of(const app_run *run, const char *key) {
    if (run->main == NULL) {
        return NULL;
    }
    const json_t *value = json_object_get(run->main->start, key);
    return value != NULL ? value : json_object_get(run->main->options, key);
}

const char *app_run_text(const app_run *run, const char *key) {
    return json_string_value(member_of(run, key));
}

double app_run_number(const app_run *run, const char *key) {
    return read_number(member_of(run, key));
}
