/* SPDX-License-Identifier: Apache-2.0 */
/* Roles and their addresses, from TF_CONFIG or from flags. The text comes from users: every member
 * is checked, and a message names its path (TF_CONFIG: cluster.worker[3]).
 *
 *   {"cluster": {"chief": ["host:2222"], "worker": [...], "ps": [...]},
 *    "task": {"type": "worker", "index": 0}, "model_dir": "..."}
 *
 *   TF_CONFIG --> trmi_tfconfig_parse --+
 *                                       +--> trmi_tfconfig --> trmi_tfconfig_check
 *   flags -----> trmi_tfconfig_flags ---+
 *
 * Parsing accepts what one source may leave to another; trmi_tfconfig_check decides whether the
 * whole makes sense. Tasks of a role are sorted by index, in a list without gaps, except in the
 * sparse form: TFJob gives a dynamic worker only some of the addresses. */
#include "comm/cluster/tfconfig.h"

#include "base/error.h"
#include "comm/cluster/cluster_addr.h"
#include "comm/cluster/cluster_json.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* roles that TF_CONFIG knows: worker, chief, ps, evaluator */
enum { ROLES = TRM_ROLE_EVALUATOR + 1 };
/* a larger text is not a TF_CONFIG */
static const trmi_cjson_limits tf_limits = {.bytes = 4 << 20, .values = 200000, .depth = 8};
/* names of the roles, by trm_role */
static const char *const role_words[] = {"worker", "chief", "ps", "evaluator"};

static trm_status fail_no_memory(trm_error *err) {
    return TRMI_NO_MEMORY(err, "for the cluster description");
}

/* Binary search, because the tasks of a role are sorted by index. */
const trmi_task *trmi_tfconfig_task(const trmi_tfconfig *config, trm_role role, int32_t index) {
    const trmi_job_tasks *job = &config->jobs[role];
    for (int32_t low = 0, high = job->count; low < high;) {
        int32_t middle = low + (high - low) / 2;
        if (job->tasks[middle].index == index) {
            return &job->tasks[middle];
        }
        if (job->tasks[middle].index < index) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return NULL;
}

/* Adds one task from a text of `length` bytes, which may have blanks around it. `place` leads
 * messages. index < 0: the next one. An empty address is ignored with a warning. */
static trm_status add_task(trmi_tfconfig *config, trm_role role, const char *place,
                           const char *text, size_t length, int64_t index, trm_error *err) {
    trmi_job_tasks *job = &config->jobs[role];
    char copy[TRMI_HOST_BYTES + 64], part[64];
    /* Leave out blanks at both ends. */
    while (length > 0 && isspace((unsigned char)text[0])) {
        text++;
        length--;
    }
    while (length > 0 && isspace((unsigned char)text[length - 1])) {
        length--;
    }
    if (length == 0) {
        trmi_warnings_add(&config->warnings, &config->arena, "%s: an empty address is ignored",
                          place);
        return TRM_OK;
    }
    if (length >= sizeof copy) {
        return TRMI_FAIL(err, TRM_INVALID, "%s: an address of %zu characters; host:port expected",
                         place, length);
    }
    /* Check the address, as a text of its own that ends with 0. */
    memcpy(copy, text, length);
    copy[length] = '\0';
    trmi_host_port parsed;
    const char *problem = trmi_host_port_parse(copy, false, &parsed);
    if (problem != NULL) {
        return TRMI_FAIL(err, TRM_INVALID, "%s: \"%s\": %s", place,
                         trmi_printable(copy, part, sizeof part), problem);
    }
    if (job->count == TRMI_TASKS_MAX) {
        return TRMI_FAIL(err, TRM_INVALID, "%s: more than %d tasks in one job", place,
                         TRMI_TASKS_MAX);
    }
    /* Store it. Texts belong to the arena of `config`. */
    if (!trmi_grow((void **)&job->tasks, &job->capacity, job->count + 1, sizeof *job->tasks)) {
        return fail_no_memory(err);
    }
    trmi_task *task = &job->tasks[job->count];
    task->address = trmi_arena_strdup(&config->arena, copy);
    task->host = trmi_arena_strdup(&config->arena, parsed.host);
    task->index = index >= 0 ? (int32_t)index : job->count;
    if (task->address == NULL || task->host == NULL) {
        return fail_no_memory(err);
    }
    job->count++;
    return TRM_OK;
}

/* Compare tasks by index, and addresses with their roles, so that equal ones are neighbours. */
static int compare_indices(const void *a, const void *b) {
    return ((const trmi_task *)a)->index - ((const trmi_task *)b)->index;
}

/* Reads TFJob's sparse map, {"1": "host:2222"}, and keeps the tasks sorted. */
static trm_status read_sparse_map(trmi_tfconfig *config, const char *place, json_t *map,
                                  trm_error *err) {
    const char *key;
    json_t *value;
    char here[136], found[64], part[40];
    config->sparse = true;
    json_object_foreach(map, key, value) {
        int64_t index;
        snprintf(here, sizeof here, "%s[\"%s\"]", place, trmi_printable(key, part, 24));
        if (!trmi_decimal(key, &index) || index >= TRMI_TASKS_MAX) {
            return TRMI_FAIL(err, TRM_INVALID, "%s: a task index from 0 to %d expected as the key",
                             here, TRMI_TASKS_MAX - 1);
        }
        if (trmi_tfconfig_task(config, TRM_ROLE_WORKER, (int32_t)index) != NULL) {
            return TRMI_FAIL(err, TRM_INVALID, "%s: worker %d is given twice", here, (int)index);
        }
        if (!json_is_string(value)) {
            return TRMI_FAIL(err, TRM_INVALID, "%s: \"host:port\" expected, found %s", here,
                             trmi_cjson_found(value, found, sizeof found));
        }
        TRMI_TRY(add_task(config, TRM_ROLE_WORKER, here, json_string_value(value),
                          json_string_length(value), index, err));
        /* Sort after each task, because the search for the next one relies on the order. */
        trmi_job_tasks *job = &config->jobs[TRM_ROLE_WORKER];
        qsort(job->tasks, (size_t)job->count, sizeof *job->tasks, compare_indices);
    }
    return TRM_OK;
}

/* Reads the addresses of one role: a list, or for workers TFJob's sparse map.
 *   errors  INVALID, NOMEM */
static trm_status read_job(trmi_tfconfig *config, const char *name, trm_role role, json_t *value,
                           trm_error *err) {
    char place[96], found[64];
    snprintf(place, sizeof place, "TF_CONFIG: cluster.%s", name);
    if (json_is_object(value) && role == TRM_ROLE_WORKER) {
        return read_sparse_map(config, place, value, err);
    }
    if (json_is_object(value)) {
        return TRMI_FAIL(err, TRM_INVALID,
                         "%s: only worker may be a map of indices; a list of \"host:port\" "
                         "expected",
                         place);
    }
    if (!json_is_array(value)) {
        return TRMI_FAIL(err, TRM_INVALID, "%s: a list of \"host:port\" expected, found %s", place,
                         trmi_cjson_found(value, found, sizeof found));
    }
    for (size_t i = 0; i < json_array_size(value); i++) {
        json_t *item = json_array_get(value, i);
        snprintf(place, sizeof place, "TF_CONFIG: cluster.%s[%zu]", name, i);
        if (!json_is_string(item)) {
            return TRMI_FAIL(err, TRM_INVALID, "%s: \"host:port\" expected, found %s", place,
                             trmi_cjson_found(item, found, sizeof found));
        }
        TRMI_TRY(add_task(config, role, place, json_string_value(item), json_string_length(item),
                          -1, err));
    }
    return TRM_OK;
}

/* Returns the role of a name; *master: it was TF1's name of the chief. */
static trm_status parse_role(const char *place, const char *name, trm_role *role, bool *master,
                             trm_error *err) {
    char part[40];
    for (int r = 0; r < ROLES; r++) {
        if (strcmp(name, role_words[r]) == 0) {
            *role = (trm_role)r;
            *master = false;
            return TRM_OK;
        }
    }
    if (strcmp(name, "master") == 0) {
        *role = TRM_ROLE_CHIEF;
        *master = true;
        return TRM_OK;
    }
    return TRMI_FAIL(err, TRM_INVALID,
                     "%s: \"%s\" is no job; chief, worker, ps, evaluator or master expected%s",
                     place, trmi_printable(name, part, sizeof part),
                     strcasecmp(name, "parameter_server") == 0 ? " (write ps)" : "");
}

/* Reads "cluster", which has a list of addresses for each role.
 *   errors  INVALID, NOMEM */
static trm_status read_cluster(trmi_tfconfig *config, json_t *cluster, trm_error *err) {
    const char *name;
    json_t *value;
    char found[64];
    if (!json_is_object(cluster)) {
        return TRMI_FAIL(err, TRM_INVALID,
                         "TF_CONFIG: cluster: an object of jobs expected, found %s",
                         trmi_cjson_found(cluster, found, sizeof found));
    }
    /* Both names mean the same role, so the two lists would become one. */
    if (json_object_get(cluster, "chief") != NULL && json_object_get(cluster, "master") != NULL) {
        return TRMI_FAIL(err, TRM_INVALID,
                         "TF_CONFIG: cluster: chief and master together; master is TF1's name of "
                         "the chief, give one of them");
    }
    config->has_cluster = json_object_size(cluster) > 0;
    json_object_foreach(cluster, name, value) {
        trm_role role;
        bool master;
        TRMI_TRY(parse_role("TF_CONFIG: cluster", name, &role, &master, err));
        config->master |= master;
        TRMI_TRY(read_job(config, name, role, value, err));
    }
    return TRM_OK;
}

/* Reads task.index: a number, or digits in quotes. */
static trm_status read_index(const json_t *value, int32_t *out, trm_error *err) {
    int64_t index = -1;
    char found[64];
    if (json_is_integer(value)) {
        index = json_integer_value(value);
        if (index < 0) {
            return TRMI_FAIL(err, TRM_INVALID,
                             "TF_CONFIG: task.index: 0 or more expected, found %lld",
                             (long long)index);
        }
    } else if (!json_is_string(value) || !trmi_decimal(json_string_value(value), &index)) {
        return TRMI_FAIL(err, TRM_INVALID,
                         "TF_CONFIG: task.index: a whole number expected, found %s",
                         trmi_cjson_found(value, found, sizeof found));
    }
    if (index >= TRMI_TASKS_MAX) {
        return TRMI_FAIL(err, TRM_INVALID, "TF_CONFIG: task.index: at most %d expected, found %lld",
                         TRMI_TASKS_MAX - 1, (long long)index);
    }
    *out = (int32_t)index;
    return TRM_OK;
}

/* Reads "task". An empty object counts as missing, as TFJob writes it for local jobs. */
static trm_status read_task(trmi_tfconfig *config, json_t *task, trm_error *err) {
    char found[64];
    bool master;
    if (!json_is_object(task)) {
        return TRMI_FAIL(err, TRM_INVALID,
                         "TF_CONFIG: task: an object with type and index expected, found %s",
                         trmi_cjson_found(task, found, sizeof found));
    }
    if (json_object_size(task) == 0) {
        return TRM_OK;
    }
    const json_t *type = json_object_get(task, "type"), *index = json_object_get(task, "index");
    if (type == NULL) {
        return TRMI_FAIL(
            err, TRM_INVALID,
            "TF_CONFIG: task.type is missing; chief, worker, ps or evaluator expected");
    }
    if (!json_is_string(type)) {
        return TRMI_FAIL(err, TRM_INVALID, "TF_CONFIG: task.type: a string expected, found %s",
                         trmi_cjson_found(type, found, sizeof found));
    }
    if (index == NULL) {
        return TRMI_FAIL(err, TRM_INVALID,
                         "TF_CONFIG: task.index is missing; this task's place in cluster.%.32s "
                         "expected",
                         trmi_printable(json_string_value(type), found, 32));
    }
    TRMI_TRY(
        parse_role("TF_CONFIG: task.type", json_string_value(type), &config->role, &master, err));
    /* TF1's name and today's name of the chief must not be mixed between cluster and task. */
    if (master && config->has_cluster && !config->master) {
        return TRMI_FAIL(err, TRM_INVALID,
                         "TF_CONFIG: task.type is master, but cluster lists no master");
    }
    if (config->role == TRM_ROLE_CHIEF && !master && config->master) {
        return TRMI_FAIL(err, TRM_INVALID,
                         "TF_CONFIG: task.type is chief, but cluster lists a master and no chief");
    }
    TRMI_TRY(read_index(index, &config->index, err));
    config->has_task = true;
    return TRM_OK;
}

/* Reads the other members: checks their types, keeps model_dir, and warns about unknown ones.
 *   errors  INVALID, NOMEM */
static trm_status read_others(trmi_tfconfig *config, const json_t *root, trm_error *err) {
    static const char *const known[] = {"cluster",        "task",     "model_dir",
                                        "session_master", "service",  "eval_session_master",
                                        "environment",    "rpc_layer"};
    trmi_cjson_at top = {.name = "TF_CONFIG"};
    const char *model_dir, *environment, *key;
    json_t *value;
    char part[40];
    /* These members must be strings; only model_dir is used. */
    TRMI_TRY(trmi_cjson_string(&top, root, "environment", false, &environment, err));
    TRMI_TRY(trmi_cjson_string(&top, root, "model_dir", false, &model_dir, err));
    if (model_dir != NULL && model_dir[0] == '\0') {
        return TRMI_FAIL(err, TRM_INVALID,
                         "TF_CONFIG: model_dir is empty; a directory expected (or leave it out)");
    }
    if (model_dir != NULL) {
        config->model_dir = trmi_arena_strdup(&config->arena, model_dir);
        if (config->model_dir == NULL) {
            return fail_no_memory(err);
        }
    }
    /* Unknown members may be spelling mistakes, so each gets a warning. */
    json_object_foreach((json_t *)(uintptr_t)root, key, value) {
        bool found = false;
        for (size_t k = 0; k < sizeof known / sizeof known[0]; k++) {
            found |= strcmp(key, known[k]) == 0;
        }
        if (!found) {
            trmi_warnings_add(&config->warnings, &config->arena,
                              "TF_CONFIG: \"%s\" is not known and ignored",
                              trmi_printable(key, part, sizeof part));
        }
    }
    if (json_object_get(root, "session_master") != NULL) {
        trmi_warnings_add(&config->warnings, &config->arena,
                          "TF_CONFIG: session_master is ignored; there are no sessions here");
    }
    return TRM_OK;
}

/* A member's path as text. It is returned by value, so that a call of write_path can stand inside
 * the arguments of a message. */
typedef struct path_buffer {
    char text[96];
} path_buffer;
/* Writes "TF_CONFIG: task.index"; flags have no paths, so they stand alone. */
static path_buffer write_path(const char *source, const char *path) {
    path_buffer s;
    bool json = strncmp(source, "TF_CONFIG", 9) == 0;
    snprintf(s.text, sizeof s.text, "%s%s%s", source, json ? ": " : "", json ? path : "");
    return s;
}

/* A task with its role, for sorting. */
typedef struct role_task {
    const trmi_task *task; /* borrowed from the description */
    int role;              /* a trm_role */
} role_task;

static int compare_addresses(const void *a, const void *b) {
    const role_task *x = a, *y = b;
    int order = strcmp(x->task->address, y->task->address);
    return order != 0           ? order
           : x->role != y->role ? x->role - y->role
                                : x->task->index - y->task->index;
}

/* Checks that no host:port is used by two tasks of any roles.
 *   errors  INVALID, NOMEM */
static trm_status check_duplicates(const trmi_tfconfig *config, const char *source,
                                   trm_error *err) {
    size_t total = 0, filled = 0;
    char part[64];
    /* Sort the tasks of all roles by address; equal addresses are then neighbours. */
    for (int r = 0; r < ROLES; r++) {
        total += (size_t)config->jobs[r].count;
    }
    role_task *all = trmi_alloc((total + 1) * sizeof *all);
    if (all == NULL) {
        return fail_no_memory(err);
    }
    for (int r = 0; r < ROLES; r++) {
        for (int32_t t = 0; t < config->jobs[r].count; t++) {
            all[filled++] = (role_task){&config->jobs[r].tasks[t], r};
        }
    }
    qsort(all, total, sizeof *all, compare_addresses);
    trm_status status = TRM_OK;
    for (size_t i = 1; i < total && status == TRM_OK; i++) {
        if (strcmp(all[i].task->address, all[i - 1].task->address) == 0) {
            char path[48];
            snprintf(path, sizeof path, "cluster.%s[%d]", role_words[all[i].role],
                     all[i].task->index);
            status = TRMI_FAIL(err, TRM_INVALID,
                               "%s: \"%s\" is both %s %d and %s %d; each task needs its own "
                               "host:port",
                               write_path(source, path).text,
                               trmi_printable(all[i].task->address, part, sizeof part),
                               role_words[all[i - 1].role], all[i - 1].task->index,
                               role_words[all[i].role], all[i].task->index);
        }
    }
    trmi_free(all);
    return status;
}

/* TFJob gives a ps of a sparse cluster only its own address: the one entry has this task's
 * index. */
static void place_sparse_ps(trmi_tfconfig *config) {
    trmi_job_tasks *job = &config->jobs[TRM_ROLE_PS];
    if (config->sparse && config->has_task && config->role == TRM_ROLE_PS && job->count == 1) {
        job->tasks[0].index = config->index;
    }
}

/* Contract in tfconfig.h. Members that are absent stay empty: another source may give them. */
trm_status trmi_tfconfig_parse(const char *text, trmi_tfconfig *out, trm_error *err) {
    memset(out, 0, sizeof *out);
    json_t *root, *part;
    TRMI_TRY(trmi_cjson_load("TF_CONFIG", text, strlen(text), &tf_limits, &root, err));
    trm_status status = TRM_OK;
    if ((part = json_object_get(root, "cluster")) != NULL) {
        status = read_cluster(out, part, err);
    }
    if (status == TRM_OK && (part = json_object_get(root, "task")) != NULL) {
        status = read_task(out, part, err);
    }
    if (status == TRM_OK) {
        status = read_others(out, root, err);
    }
    json_decref(root);
    place_sparse_ps(out);
    return status;
}

/* Reads one flag: addresses separated by commas. */
static trm_status read_hosts(trmi_tfconfig *config, trm_role role, const char *flag,
                             const char *hosts, trm_error *err) {
    char where[64];
    if (hosts == NULL) {
        return TRM_OK;
    }
    for (int32_t i = 0;; i++) {
        /* The next address ends at a comma or at the end of the text. */
        size_t length = strcspn(hosts, ",");
        snprintf(where, sizeof where, "--%s, address %d", flag, i + 1);
        /* An empty flag has no addresses; an empty part of a list gets a warning. */
        bool blank = strspn(hosts, " \t") >= length;
        if (!blank) {
            TRMI_TRY(add_task(config, role, where, hosts, length, -1, err));
            config->has_cluster = true;
        } else if (i > 0 || hosts[length] == ',') {
            trmi_warnings_add(&config->warnings, &config->arena, "%s: an empty address is ignored",
                              where);
        }
        if (hosts[length] == '\0') {
            return TRM_OK;
        }
        hosts += length + 1;
    }
}

trm_status trmi_tfconfig_flags(const trm_cluster_flags *flags, trmi_tfconfig *out, trm_error *err) {
    memset(out, 0, sizeof *out);
    int64_t index = 0;
    char part[40];
    /* Read the addresses of each role. */
    TRMI_TRY(read_hosts(out, TRM_ROLE_PS, "ps_hosts", flags->ps_hosts, err));
    TRMI_TRY(read_hosts(out, TRM_ROLE_WORKER, "worker_hosts", flags->worker_hosts, err));
    TRMI_TRY(read_hosts(out, TRM_ROLE_CHIEF, "chief_hosts", flags->chief_hosts, err));
    TRMI_TRY(read_hosts(out, TRM_ROLE_EVALUATOR, "evaluator_hosts", flags->evaluator_hosts, err));
    /* Read the task of this process. */
    if (flags->task_index != NULL &&
        (!trmi_decimal(flags->task_index, &index) || index >= TRMI_TASKS_MAX)) {
        return TRMI_FAIL(err, TRM_INVALID,
                         "--task_index: a whole number from 0 expected, found "
                         "\"%s\"",
                         trmi_printable(flags->task_index, part, sizeof part));
    }
    /* The training script of guide 000 (docs/guides/from-guide-000.md) passes an empty job_name by
     * default: it counts as not given. */
    bool named = flags->job_name != NULL && flags->job_name[0] != '\0';
    if (named) {
        TRMI_TRY(parse_role("--job_name", flags->job_name, &out->role, &out->master, err));
        out->index = (int32_t)index;
        out->has_task = true;
    } else if (flags->task_index != NULL) {
        return TRMI_FAIL(err, TRM_INVALID,
                         "--task_index without --job_name; add --job_name=ps, worker, chief or "
                         "evaluator");
    }
    return TRM_OK;
}

/* Checks a task without a cluster. That is local mode, in which only worker 0 can run. */
static trm_status check_local(const trmi_tfconfig *config, const char *source, trm_error *err) {
    /* An evaluator only reads checkpoints, so it needs no addresses. */
    if (config->has_task && config->role == TRM_ROLE_EVALUATOR && config->index == 0) {
        return TRM_OK;
    }
    if (config->has_task && config->role != TRM_ROLE_WORKER && !config->master) {
        return TRMI_FAIL(err, TRM_INVALID,
                         "%s: the task is %s %d, but there is no cluster; without one only worker "
                         "0 and an evaluator can run",
                         write_path(source, "task.type").text, role_words[config->role],
                         config->index);
    }
    if (config->has_task && config->index != 0) {
        return TRMI_FAIL(err, TRM_INVALID,
                         "%s: the task is worker %d, but there is no cluster; without one only "
                         "worker 0 can run",
                         write_path(source, "task.index").text, config->index);
    }
    return TRM_OK;
}

/* Checks how many tasks the roles have: at most one chief and evaluator, at least one that
 * trains. */
static trm_status check_counts(const trmi_tfconfig *config, const char *source, trm_error *err) {
    static const trm_role single[] = {TRM_ROLE_CHIEF, TRM_ROLE_EVALUATOR};
    for (size_t s = 0; s < 2; s++) {
        if (config->jobs[single[s]].count > 1) {
            return TRMI_FAIL(
                err, TRM_INVALID, "%s: %d %ss; at most one is possible",
                write_path(source, s == 0 ? config->master ? "cluster.master" : "cluster.chief"
                                          : "cluster.evaluator")
                    .text,
                config->jobs[single[s]].count,
                single[s] == TRM_ROLE_CHIEF && config->master ? "master" : role_words[single[s]]);
        }
    }
    if (config->jobs[TRM_ROLE_CHIEF].count + config->jobs[TRM_ROLE_WORKER].count == 0 &&
        !config->sparse) {
        return TRMI_FAIL(
            err, TRM_INVALID,
            "%s: neither a worker nor a chief is listed; at least one of them must train",
            write_path(source, "cluster").text);
    }
    return TRM_OK;
}

/* Contract in tfconfig.h. Without a cluster the job is this process. Otherwise the task of this
 * process must be one of the listed ones; only an evaluator may be missing, because no other
 * task connects to it. */
trm_status trmi_tfconfig_check(const trmi_tfconfig *config, const char *source, trm_error *err) {
    /* Without a cluster, the job is this process alone. */
    if (!config->has_cluster) {
        return check_local(config, source, err);
    }
    TRMI_TRY(check_counts(config, source, err));
    TRMI_TRY(check_duplicates(config, source, err));
    if (!config->has_task) {
        return TRMI_FAIL(err, TRM_INVALID,
                         "%s: a cluster without task; say which task this process is "
                         "(task.type and task.index, or --job_name and --task_index)",
                         write_path(source, "task").text);
    }
    const trmi_job_tasks *job = &config->jobs[config->role];
    /* The evaluator does not train. No other task needs its address, so it need not be listed. */
    if (config->role == TRM_ROLE_EVALUATOR) {
        if (config->master) {
            return TRMI_FAIL(err, TRM_INVALID,
                             "%s: the task is evaluator, but the cluster has a master, which "
                             "evaluates itself; write chief instead of master",
                             write_path(source, "task.type").text);
        }
        if (config->index != 0) {
            return TRMI_FAIL(err, TRM_INVALID,
                             "%s: the task is evaluator %d, but there is at most one; index 0 "
                             "expected",
                             write_path(source, "task.index").text, config->index);
        }
        return TRM_OK; /* listed or not */
    }
    /* Every other task must be listed, under the name that the user wrote. */
    const char *word =
        config->master && config->role == TRM_ROLE_CHIEF ? "master" : role_words[config->role];
    if (job->count == 0) {
        return TRMI_FAIL(
            err, TRM_INVALID,
            "%s: the task is %s %d, but the cluster lists no %s; add its address: "
            "--%s_hosts, or cluster.%s in TF_CONFIG%s",
            write_path(source, "task.type").text, word, config->index, word, word, word,
            config->role == TRM_ROLE_CHIEF ? "; or leave it out, and worker 0 is chief" : "");
    }
    if (trmi_tfconfig_task(config, config->role, config->index) == NULL) {
        return config->sparse && config->role == TRM_ROLE_WORKER
                   ? TRMI_FAIL(err, TRM_INVALID,
                               "%s: the task is worker %d, which the worker map does not have",
                               write_path(source, "task.index").text, config->index)
                   : TRMI_FAIL(err, TRM_INVALID,
                               "%s: the task is %s %d, but the cluster lists %d (0 to %d)",
                               write_path(source, "task.index").text, word, config->index,
                               job->count, job->count - 1);
    }
    return TRM_OK;
}

void trmi_tfconfig_free(trmi_tfconfig *config) {
    for (int r = 0; r < ROLES; r++) {
        trmi_free(config->jobs[r].tasks);
    }
    trmi_arena_free(&config->arena);
    memset(config, 0, sizeof *config);
}
