/* SPDX-License-Identifier: Apache-2.0 */
/* Functions that all roles of an estimator use: model and data from the user's functions, waiting,
 * lines for the user, and job.json.
 *
 * job.json, in the model's directory, is how roles that have no connection learn of each other: the
 * chief writes the job's state (running, done, failed) and how samples were dealt out; evaluators
 * and workers that come late read it. It is replaced atomically, because the other roles poll it.
 */
#include "train/estimator/estimator.h"

#include "train/job/job.h"
#include "train/model.h"

#include "base/error.h"
#include "base/format/report.h"
#include "base/log.h"
#include "base/os.h"

#include <jansson.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SHOWN_BYTES = 44 }; /* of a path in a message */

/* Contract in estimator.h. Asynchronous workers advance at different speeds, so fixed shards
 * would be read unevenly; the servers then lend samples, and each is used exactly once per
 * epoch. */
bool trmi_estimator_lends(const trm_estimator *e) {
    const trm_ps_strategy *s = &e->strategy;
    bool wanted = s->lend == TRM_PS_LEND_ALWAYS ||
                  (s->lend == TRM_PS_LEND_AUTO &&
                   (s->server.mode == TRM_PS_ASYNC || s->server.backup_workers > 0));
    return e->has_roles && wanted && !s->training.tables_only;
}

bool trmi_estimator_deals(const trm_estimator *e) {
    return e->has_roles && !trmi_estimator_lends(e) &&
           (e->strategy.training.tables_only || e->strategy.server.mode != TRM_PS_ASYNC);
}

bool trmi_estimator_joins(const trm_estimator *e) {
    return e->strategy.training.tables_only || e->strict;
}

bool trmi_estimator_keeps_states(const trm_estimator *e) {
    return e->strategy.server.mode == TRM_PS_SYNC && !e->strategy.training.tables_only &&
           trmi_estimator_deals(e) && e->config.model_dir != NULL;
}

bool trmi_estimator_stopped(const trm_estimator *e) { return atomic_load(&e->stop) != 0; }

/* Contract in estimator.h. Sleeps in short pieces, so that a stop is noticed. */
void trmi_estimator_sleep(const trm_estimator *e, double seconds) {
    double end = trmi_os_now() + seconds;
    for (double left = seconds; left > 0 && !trmi_estimator_stopped(e);
         left = end - trmi_os_now()) {
        usleep(left < 0.05 ? (useconds_t)(left * 1e6) + 1 : 50000);
    }
}

/* Contract in estimator.h. Lines that begin with "waiting" are warnings in the log. */
void trmi_estimator_say(const trm_estimator *e, const char *format, ...) {
    char line[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    if (e->config.print != NULL) {
        e->config.print(line);
    } else {
        trmi_log(strncmp(line, "waiting ", 8) == 0 ? TRM_LOG_WARN : TRM_LOG_INFO, "train", "%s",
                 line);
    }
}

void trmi_estimator_ps_folder(const trm_estimator *e, char *path, size_t size) {
    path[0] = '\0';
    if (e->strategy.server.folder != NULL) {
        snprintf(path, size, "%s", e->strategy.server.folder);
    } else if (e->config.model_dir != NULL) {
        snprintf(path, size, "%s/ps", e->config.model_dir);
    }
}

/* Contract in estimator.h. Of a long path the end is shown, which is where folders of one job
 * differ. */
void trmi_estimator_read_job_id(trm_estimator *e) {
    const trm_cluster_info *me = trm_cluster_get(e->config.cluster);
    const char *dir = e->config.model_dir;
    char path[4096], host[64] = "", full[PATH_MAX];
    trm_error err;
    memset(e->job_id, 0, sizeof e->job_id);
    e->job_origin[0] = '\0';
    if (dir != NULL) {
        snprintf(path, sizeof path, "%.4000s/job.id", dir);
        if (trmi_os_make_dirs(NULL, dir, &err) != TRM_OK ||
            trm_token_share(path, e->job_id, &err) != TRM_OK) {
            trmi_log(TRM_LOG_DEBUG, "train", "model_dir is not compared: %s", err.message);
            return;
        }
    } else if (e->role == TRM_ROLE_PS && e->strategy.server.folder != NULL) {
        return;
    }
    /* the text that tells a reader of an error where the other job comes from */
    const char *shown = dir == NULL ? "" : realpath(dir, full) != NULL ? full : dir;
    const size_t length = strlen(shown);
    const bool is_long = length > SHOWN_BYTES;
    shown += is_long ? length - SHOWN_BYTES : 0;
    if (trm_cluster_beyond_loopback(e->config.cluster)) {
        char name[48] = "";
        gethostname(name, sizeof name - 1);
        snprintf(host, sizeof host, " on %s", name);
    }
    snprintf(e->job_origin, sizeof e->job_origin, "%s %d%s has %s%s%.*s", trm_role_name(me->role),
             (int)me->task_index, host, dir != NULL ? "model_dir " : "no model_dir",
             is_long ? "..." : "", SHOWN_BYTES, shown);
}

/* Returns the length of the host in "host:port". */
static size_t host_length(const char *address) {
    const char *colon = strrchr(address, ':');
    return colon != NULL ? (size_t)(colon - address) : strlen(address);
}

/* Returns how many processes of the job compute on this host: chief, workers, and an evaluator
 * that is this process. They share the CPUs. Servers are not counted: they work while workers
 * wait for them. */
static int32_t count_host_processes(const trm_estimator *e) {
    static const trm_role trainers[] = {TRM_ROLE_CHIEF, TRM_ROLE_WORKER};
    const trm_cluster *cluster = e->config.cluster;
    const trm_cluster_info *me = e->has_roles ? trm_cluster_get(cluster) : NULL;
    const char *own =
        me != NULL ? trm_cluster_task_address(cluster, me->role, me->task_index) : NULL;
    int32_t count = me != NULL && me->role == TRM_ROLE_EVALUATOR;
    for (int i = 0; i < 2 && own != NULL; i++) {
        for (int32_t t = 0; t < trm_cluster_task_count(cluster, trainers[i]); t++) {
            const char *other = trm_cluster_task_address(cluster, trainers[i], t);
            size_t length = host_length(own);
            count +=
                other != NULL && host_length(other) == length && memcmp(own, other, length) == 0;
        }
    }
    return count;
}

/* Contract in estimator.h. The configuration overrules precision and seed of model_fn; servers
 * are added by build_model. */
trm_status trmi_estimator_model(trm_estimator *e, trm_run_mode mode, trm_dataset *data,
                                trm_model_options *out, trm_error *err) {
    trm_precision precision;
    *out = (trm_model_options){.data = data};
    TRMI_TRY(e->model_fn(mode, out, e->params, err));
    if (e->config.precision_mode != NULL) {
        TRMI_TRY(trmi_estimator_precision(&e->config, &precision, err));
        out->exec.precision = precision;
    }
    out->exec.seed = e->config.tf_random_seed;
    out->data = data;
    out->evaluation_only = mode == TRM_MODE_EVAL;
    out->ps = (trm_ps_training){.client = NULL};
    out->exec.parallel.stand_alone = out->exec.parallel.comm == NULL;
    out->exec.host_processes = count_host_processes(e);
    return TRM_OK;
}

/* Contract in estimator.h. A trainer gets a shard of the data unless servers lend samples. */
trm_status trmi_estimator_data(const trm_estimator *e, trm_run_mode mode, trm_input_fn input_fn,
                               void *params, trm_dataset **out, trm_error *err) {
    trm_input_context context = {.mode = mode, .pipelines = 1, .seed = e->config.tf_random_seed};
    if (mode == TRM_MODE_TRAIN && e->trainer >= 0 && !trmi_estimator_lends(e)) {
        context.pipelines = e->trainers;
        context.index = e->trainer;
    }
    return input_fn(&context, params, out, err);
}

/* ---- job.json -------------------------------------------------------------------------------- */

/* Words of the states in job.json, by trmi_job_state. */
static const char *const state_words[] = {"none", "running", "done", "failed"};

/* Contract in estimator.h. The file is replaced atomically, because other roles poll it. */
trm_status trmi_job_write(const trm_estimator *e, trmi_job_state state, uint64_t global_step,
                          trm_error *err) {
    char path[4096], *text;
    if (e->config.model_dir == NULL) {
        return TRM_OK;
    }
    snprintf(path, sizeof path, "%s/job.json", e->config.model_dir);
    TRMI_TRY(trmi_os_make_dirs(NULL, e->config.model_dir, err));
    trmi_report r;
    trmi_report_begin(&r, true);
    r.spaced = true;
    trmi_report_put(&r, trmi_string("state", state_words[state]),
                    trmi_unsigned("global_step", global_step), trmi_int("pid", getpid()),
                    trmi_json_value("job", e->job.length > 0 ? e->job.data : "{}"));
    /* how samples were dealt out, for a resume with other numbers */
    trmi_report_open_array(&r, "dealt");
    for (int32_t i = 0; i < e->dealt.count; i++) {
        const trmi_stretch *s = &e->dealt.list[i];
        trmi_report_open_array(&r, NULL);
        trmi_report_put(&r, trmi_int(NULL, s->step), trmi_int(NULL, s->epoch),
                        trmi_int(NULL, s->used), trmi_int(NULL, s->workers),
                        trmi_int(NULL, s->batch), trmi_int(NULL, s->batches),
                        trmi_int(NULL, s->first));
        trmi_report_close(&r);
    }
    trmi_report_close(&r);
    TRMI_TRY(trmi_report_give(&r, "for job.json", &text, err));
    trm_status status = trmi_os_replace_file(NULL, path, text, strlen(text), err);
    trm_free(text);
    return status;
}

/* Returns the parsed job.json, NULL if there is none; the caller releases it. */
static json_t *load_job(const trm_estimator *e) {
    char path[4096];
    json_error_t why;
    snprintf(path, sizeof path, "%s/job.json",
             e->config.model_dir != NULL ? e->config.model_dir : "");
    return e->config.model_dir != NULL ? json_load_file(path, 0, &why) : NULL;
}

/* Contract in estimator.h. Each stretch is an array of its seven members in the order of
 * trmi_stretch. */
trm_status trmi_job_read_dealt(const trm_estimator *e, trmi_dealt *out, trm_error *err) {
    json_t *root = load_job(e), *list = json_object_get(root, "dealt");
    size_t count = json_array_size(list);
    bool good = count <= TRMI_STRETCHES;
    out->count = 0;
    for (size_t i = 0; good && i < count; i++) {
        json_int_t v[7] = {0};
        good = json_unpack(json_array_get(list, i), "[IIIIIII!]", &v[0], &v[1], &v[2], &v[3], &v[4],
                           &v[5], &v[6]) == 0;
        for (int k = 0; k < 7; k++) {
            good = good && v[k] >= (k >= 3 && k <= 5);
        }
        out->list[i] = (trmi_stretch){v[0], v[1], v[2], v[3], v[4], v[5], v[6]};
    }
    json_decref(root);
    out->count = good ? (int32_t)count : 0;
    return good ? TRM_OK
                : TRMI_FAIL(err, TRM_CORRUPT,
                            "%s/job.json: \"dealt\" is no list of at most %d stretches",
                            e->config.model_dir, TRMI_STRETCHES);
}

/* Contract in estimator.h. Only the chief compares. */
trm_status trmi_job_check(trm_estimator *e, trm_model *model, const trm_dataset *data,
                          trm_error *err) {
    char where[4096];
    trmi_text_free(&e->job);
    if (e->is_chief && trm_model_global_step(model) > 0) {
        json_t *root = load_job(e);
        char *saved = json_dumps(json_object_get(root, "job"), JSON_COMPACT);
        snprintf(where, sizeof where, "%s/job.json",
                 e->config.model_dir != NULL ? e->config.model_dir : "");
        trm_status status = trmi_job_compare(model, data, saved, where, err);
        free(saved);
        json_decref(root);
        TRMI_TRY(status);
    }
    return trmi_job_describe(model, data, &e->job, err);
}

/* Contract in estimator.h. A file that is absent or damaged counts as no job: it is read while
 * others replace it. */
trmi_job_state trmi_job_read(const trm_estimator *e, uint64_t *global_step) {
    const char *word = "";
    json_int_t step = 0;
    trmi_job_state state = TRMI_JOB_NONE;
    json_t *root = load_job(e);
    if (root != NULL && json_unpack(root, "{s:s,s:I}", "state", &word, "global_step", &step) == 0) {
        for (int i = TRMI_JOB_RUNNING; i <= TRMI_JOB_FAILED; i++) {
            state = strcmp(word, state_words[i]) == 0 ? (trmi_job_state)i : state;
        }
    }
    json_decref(root);
    *global_step = (uint64_t)step;
    return state;
}
