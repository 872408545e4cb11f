/* SPDX-License-Identifier: Apache-2.0 */
/* comm/cluster/tfconfig.h: roles and their addresses, from TF_CONFIG or from the flags of guide
 * 000. All dialects of TF_CONFIG are read: with and without a chief, evaluator listed or not, TF1's
 * master, and TFJob's sparse worker map {"worker": {"1": "host:2222"}}. */
#ifndef TRMI_COMM_TFCONFIG_H
#define TRMI_COMM_TFCONFIG_H

#include "trireme/dist.h"

#include "base/memory.h"
#include "comm/cluster/warnings.h"

enum { TRMI_TASKS_MAX = 65536 }; /* of a role, at most */

/* One task of a role. */
typedef struct trmi_task {
    const char *address; /* "host:port" */
    const char *host;    /* the host of `address`, without port and brackets */
    int32_t index;       /* equal to its position, except in a sparse map */
} trmi_task;

/* All tasks of one role. */
typedef struct trmi_job_tasks {
    trmi_task *tasks; /* in ascending order of index */
    int32_t count;    /* length of `tasks` */
    int64_t capacity; /* capacity of `tasks` */
} trmi_job_tasks;

/* A description by roles. */
typedef struct trmi_tfconfig {
    trmi_arena arena;       /* all texts */
    trmi_job_tasks jobs[4]; /* by trm_role: worker, chief (or master), ps, evaluator */
    bool has_cluster;       /* some task is listed */
    bool has_task;          /* role and index of this process are known */
    bool master;            /* the chief was listed under TF1's name, master */
    bool sparse;            /* the workers were listed as TFJob's map */
    /* this process */
    trm_role role;
    int32_t index;          /* of the task in its role */
    const char *model_dir;  /* from TF_CONFIG, or NULL */
    trmi_warnings warnings; /* in the arena */
} trmi_tfconfig;

/* Parses the text of TF_CONFIG. A cluster without a task is accepted here, because flags may name
 * the task. The caller frees *out with trmi_tfconfig_free, also after an error.
 *   errors  INVALID, NOMEM */
trm_status trmi_tfconfig_parse(const char *text, trmi_tfconfig *out, trm_error *err);
/* Reads the same from --ps_hosts and the related flags. Without any, has_cluster and has_task stay
 * false. */
trm_status trmi_tfconfig_flags(const trm_cluster_flags *flags, trmi_tfconfig *out, trm_error *err);
/* Checks the rules between cluster and task; called once both are known. `source` leads
 * messages. */
trm_status trmi_tfconfig_check(const trmi_tfconfig *config, const char *source, trm_error *err);
void trmi_tfconfig_free(trmi_tfconfig *config);
/* Returns the task with this index, or NULL. */
const trmi_task *trmi_tfconfig_task(const trmi_tfconfig *config, trm_role role, int32_t index);

#endif
