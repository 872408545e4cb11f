/* SPDX-License-Identifier: Apache-2.0 */
/* Runs the exporters of an EvalSpec: after an evaluation the evaluated weights are written to
 * files for other programs.
 *
 *        model_dir/export/<name>/model-<step>.safetensors     the newest exports_to_keep of them
 *        model_dir/export/<name>/best.json                    of BEST: the value to beat, also after a restart */
#include "train/estimator/estimator.h"

#include "trireme/train.h"

#include "base/error.h"
#include "base/format/report.h"
#include "base/log.h"
#include "base/os.h"

#include <dirent.h>
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Exports that stay unless the exporter says otherwise. */
enum { KEEP_DEFAULT = 5 };

typedef trm_status (*write_function)(trm_model *model, const char *path, trm_error *err);
static const struct {
    const char *name;
    write_function write;
} formats[] = {
    {"safetensors", trm_export_safetensors}, {"npz", trm_export_npz}, {"onnx", trm_export_onnx}};

static const struct {
    const char *name;
    bool more; /* greater values are better */
} metrics[] = {
    {"loss", false}, {"logloss", false}, {"auc", true}, {"accuracy", true}, {"top5", true}};

/* Return format and metric of an exporter, or their defaults. */
static const char *format_of(const trm_exporter *x) {
    return x->format != NULL ? x->format : "safetensors";
}
static const char *metric_of(const trm_exporter *x) {
    return x->metric != NULL ? x->metric : "loss";
}

/* Returns the index of a format by name, -1 if unknown. */
static int format_index(const char *name) {
    for (int i = 0; i < (int)(sizeof formats / sizeof formats[0]); i++) {
        if (strcmp(formats[i].name, name) == 0) {
            return i;
        }
    }
    return -1;
}

/* Returns the index of a metric by name, -1 if unknown. */
static int metric_index(const char *name) {
    for (int i = 0; i < (int)(sizeof metrics / sizeof metrics[0]); i++) {
        if (strcmp(metrics[i].name, name) == 0) {
            return i;
        }
    }
    return -1;
}

int32_t trmi_exporter_count(const trm_eval_spec *eval) {
    int32_t count = 0;
    while (eval != NULL && count < TRM_MAX_EXPORTERS &&
           eval->exporters[count].kind != TRM_EXPORT_NONE) {
        count++;
    }
    return count;
}

/* Contract in estimator.h: checks names, formats and metrics, and that no two exporters write to
 * the same folder. */
trm_status trmi_exporters_check(const trm_estimator *e, const trm_eval_spec *eval, trm_error *err) {
    int32_t count = trmi_exporter_count(eval);
    if (count > 0 && e->config.model_dir == NULL) {
        return TRMI_FAIL(err, TRM_INVALID,
                         "EvalSpec: exporters write to model_dir/export; set model_dir");
    }
    for (int32_t i = 0; i < count; i++) {
        const trm_exporter *x = &eval->exporters[i];
        if (x->name == NULL || x->name[0] == '\0' || x->name[0] == '.' ||
            strchr(x->name, '/') != NULL) {
            return TRMI_FAIL(err, TRM_INVALID,
                             "EvalSpec: exporter %d needs a name that can be a folder's", i);
        }
        /* Check format and metric. */
        if (format_index(format_of(x)) < 0) {
            return TRMI_FAIL(err, TRM_INVALID,
                             "exporter %s: format \"%.40s\": safetensors, npz or onnx expected",
                             x->name, x->format);
        }
        if (metric_index(metric_of(x)) < 0 || (x->metric != NULL && x->kind != TRM_EXPORT_BEST)) {
            return TRMI_FAIL(err, TRM_INVALID,
                             x->kind != TRM_EXPORT_BEST
                                 ? "exporter %s: metric \"%.40s\": only the best has one"
                                 : "exporter %s: metric \"%.40s\": loss, logloss, auc, accuracy "
                                   "or top5 expected",
                             x->name, x->metric);
        }
        for (int32_t j = 0; j < i; j++) {
            if (strcmp(eval->exporters[j].name, x->name) == 0) {
                return TRMI_FAIL(
                    err, TRM_INVALID,
                    "EvalSpec: two exporters are called %s; each needs a name of its own", x->name);
            }
        }
    }
    return TRM_OK;
}

/* ---- the best evaluation --------------------------------------------------------------------- */

/* Sets *out to the exporter's metric in evaluation `v`.
 *   errors  INVALID: this model's evaluations do not have it */
static trm_status value_of(const trm_exporter *x, const trm_evaluation *v, double *out,
                           trm_error *err) {
    const char *name = metric_of(x);
    bool top = strcmp(name, "accuracy") == 0 || strcmp(name, "top5") == 0;
    bool clicks = strcmp(name, "auc") == 0 || strcmp(name, "logloss") == 0;
    if ((top && !v->has_top) || (clicks && !v->has_auc)) {
        return TRMI_FAIL(err, TRM_INVALID, "exporter %s: evaluations of this model have no %s",
                         x->name, name);
    }
    *out = strcmp(name, "auc") == 0        ? v->auc
           : strcmp(name, "logloss") == 0  ? v->logloss
           : strcmp(name, "accuracy") == 0 ? v->top1
           : strcmp(name, "top5") == 0     ? v->top5
                                           : v->loss;
    return TRM_OK;
}

/* Returns whether `value` is finite and better than the one in best.json; true if that has none
 * of this metric. */
static bool is_better(const trm_exporter *x, const char *folder, double value) {
    char path[4400];
    json_error_t why;
    const char *name = "";
    double best = 0;
    snprintf(path, sizeof path, "%s/best.json", folder);
    json_t *root = json_load_file(path, 0, &why);
    bool known = root != NULL &&
                 json_unpack(root, "{s:s,s:F}", "metric", &name, "value", &best) == 0 &&
                 strcmp(name, metric_of(x)) == 0;
    json_decref(root);
    return isfinite(value) &&
           (!known || (metrics[metric_index(metric_of(x))].more ? value > best : value < best));
}

/* Replaces best.json. */
static trm_status write_best(const trm_exporter *x, const char *folder, double value, uint64_t step,
                             trm_error *err) {
    char path[4400], number[32], *text;
    trmi_report r;
    snprintf(path, sizeof path, "%s/best.json", folder);
    snprintf(number, sizeof number, "%.17g", value);
    trmi_report_begin(&r, true);
    r.spaced = true;
    trmi_report_put(&r, trmi_string("metric", metric_of(x)), trmi_json_value("value", number),
                    trmi_unsigned("global_step", step));
    TRMI_TRY(trmi_report_give(&r, "for best.json", &text, err));
    trm_status status = trmi_os_replace_file(NULL, path, text, strlen(text), err);
    trm_free(text);
    return status;
}

/* ---- files ----------------------------------------------------------------------------------- */

/* Orders steps for qsort, largest first. */
static int newest_first(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x > y ? -1 : x < y;
}

/* Removes all but the newest exports_to_keep files. A file that cannot be removed is tried again
 * at the next export. */
static void remove_old_exports(const trm_exporter *x, const char *folder) {
    uint64_t steps[256];
    int32_t count = 0, keep = x->exports_to_keep == 0 ? KEEP_DEFAULT : x->exports_to_keep;
    char path[4400], form[32];
    snprintf(form, sizeof form, ".%s", format_of(x));
    /* list the steps of this format */
    DIR *stream = keep < 0 ? NULL : opendir(folder);
    for (struct dirent *entry;
         stream != NULL && count < 256 && (entry = readdir(stream)) != NULL;) {
        char *end;
        bool ours = strncmp(entry->d_name, "model-", 6) == 0;
        uint64_t step = ours ? strtoull(entry->d_name + 6, &end, 10) : 0;
        if (ours && strcmp(end, form) == 0) {
            steps[count++] = step;
        }
    }
    if (stream != NULL) {
        closedir(stream);
    }
    qsort(steps, (size_t)count, sizeof *steps, newest_first);
    for (int32_t i = keep; keep >= 0 && i < count; i++) {
        snprintf(path, sizeof path, "%s/model-%" PRIu64 "%s", folder, steps[i], form);
        (void)unlink(path);
    }
}

/* Writes one exporter's file for `step`, if it is due: BEST only an improvement, other kinds
 * only a step without a file. */
static trm_status export_one(const trm_estimator *e, const trm_exporter *x, trm_model *model,
                             uint64_t step, const trm_evaluation *v, trm_error *err) {
    char folder[4096], path[4400];
    double value = 0;
    struct stat info;
    snprintf(folder, sizeof folder, "%s/export/%s", e->config.model_dir, x->name);
    /* whether it is due */
    if (x->kind == TRM_EXPORT_BEST) {
        TRMI_TRY(value_of(x, v, &value, err));
        if (!is_better(x, folder, value)) {
            return TRM_OK;
        }
    }
    snprintf(path, sizeof path, "%s/model-%" PRIu64 ".%s", folder, step, format_of(x));
    if (x->kind != TRM_EXPORT_BEST && stat(path, &info) == 0) {
        return TRM_OK; /* written by an earlier run of the evaluator */
    }
    /* write the file, then note that it is the best, then remove old ones */
    TRMI_TRY(trmi_os_make_dirs(NULL, folder, err));
    TRMI_TRY(formats[format_index(format_of(x))].write(model, path, err));
    if (x->kind == TRM_EXPORT_BEST) {
        TRMI_TRY(write_best(x, folder, value, step, err));
    }
    trmi_estimator_say(e, "exported step %" PRIu64 " to %s", step, path);
    remove_old_exports(x, folder);
    return TRM_OK;
}

/* Contract in estimator.h. FINAL exporters run at the end of the job only, the others after each
 * evaluation. */
trm_status trmi_export(const trm_estimator *e, const trm_eval_spec *eval, bool last,
                       trm_model *model, uint64_t step, const trm_evaluation *v, trm_error *err) {
    for (int32_t i = 0; i < trmi_exporter_count(eval); i++) {
        const trm_exporter *x = &eval->exporters[i];
        if ((x->kind == TRM_EXPORT_FINAL) == last) {
            TRMI_TRY(export_one(e, x, model, step, v, err));
        }
    }
    return TRM_OK;
}
