/* SPDX-License-Identifier: Apache-2.0 */
/* comm/cluster/tfconfig.h: roles and their addresses, from TF_CONFIG or from guide 000's flags.
 * Both dialects of TF_CONFIG are read (with and without chief, evaluator listed or not, TF1's
 * master) and TFJob's sparse worker map {"worker": {"1": "host:2222"}}. */
#ifndef TRMI_COMM_TFCONFIG_H
#define TRMI_COMM_TFCONFIG_H

#include "trireme/cluster.h"

#include "base/memory.h"

enum { TRMI_TASKS_MAX = 65536, TRMI_TF_WARNINGS_MAX = 8 };

typedef struct trmi_task {
    const char *address; /* "host:port" */
    const char *host;    /* without port and brackets */
    int32_t index;
} trmi_task;

typedef struct trmi_job_tasks {
    trmi_task *tasks; /* by ascending index */
    int32_t count;
    int64_t capacity;
} trmi_job_tasks;

typedef struct trmi_tfconfig {
    trmi_arena arena;
    trmi_job_tasks jobs[4]; /* by trm_role: worker, chief (or master), ps, evaluator */
    bool has_cluster;
    bool has_task;
    bool master; /* the chief is TF1's master */
    bool sparse; /* TFJob's worker map */
    trm_role role;
    int32_t index;
    const char *model_dir;
    const char *warnings[TRMI_TF_WARNINGS_MAX];
    int32_t warning_count;
} trmi_tfconfig;

/* Reads TF_CONFIG's text. A cluster without task is accepted here (flags may name the task).
 *   owns   caller calls trmi_tfconfig_free, also after an error    error INVALID, NOMEM */
trm_status trmi_tfconfig_parse(const char *text, trmi_tfconfig *out, trm_error *err);
/* The same from --ps_hosts and its sisters; nothing given: has_cluster and has_task stay false. */
trm_status trmi_tfconfig_flags(const trm_cluster_flags *flags, trmi_tfconfig *out, trm_error *err);
/* The rules between cluster and task; call when both are known. `source` leads the message. */
trm_status trmi_tfconfig_check(const trmi_tfconfig *config, const char *source, trm_error *err);
void trmi_tfconfig_free(trmi_tfconfig *config);
/* The task of `index`, NULL if there is none. */
const trmi_task *trmi_tfconfig_task(const trmi_tfconfig *config, trm_role role, int32_t index);

#endif
