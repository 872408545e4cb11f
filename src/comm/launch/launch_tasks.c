/* SPDX-License-Identifier: Apache-2.0 */
/* Plans the tasks of a job with their environments, logs and cores. This file starts no process and
 * writes no file.
 *
 *   check_options -> choose_meeting -> plan_ranks: `ranks` equal processes, RANK_ID and TRIREME_*
 *                                   -> plan_roles: a TF_CONFIG for each task
 *   both: name_files -> find_cores -> make_environment
 *
 * One of the tasks is the console task, whose output the launcher copies to its own. Texts belong
 * to the arena of `launch`. */
#define _GNU_SOURCE
#include "comm/launch/launch.h"

#include "base/error.h"
#include "base/format/report.h"
#include "base/os.h"
#include "comm/cluster/cluster_json.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

enum { TASKS_MAX = 1024 }; /* processes of one job, at most */

static trm_status no_memory(trm_error *err) {
    return TRMI_NO_MEMORY(err, "for the processes of the job");
}

/* Returns true for variables that another launcher has left: they would contradict this launcher's.
 * A name that ends in _ stands for all variables that begin with it. */
static bool is_launchers(const char *variable) {
    static const char *const names[] = {"RANK",
                                        "WORLD_SIZE",
                                        "LOCAL_RANK",
                                        "LOCAL_WORLD_SIZE",
                                        "GROUP_",
                                        "ROLE_",
                                        "MASTER_ADDR",
                                        "MASTER_PORT",
                                        "TORCHELASTIC_",
                                        "PET_",
                                        "OMPI_COMM_WORLD_",
                                        "OMPI_MCA_ess_",
                                        "OMPI_MCA_orte_",
                                        "PMIX_",
                                        "PMI_",
                                        "MPI_LOCALRANKID",
                                        "MPI_LOCALNRANKS",
                                        "HYDI_",
                                        "MV2_",
                                        "SLURM_PROCID",
                                        "SLURM_LOCALID",
                                        "SLURM_NODEID",
                                        "SLURM_STEP_",
                                        "SLURM_STEPID",
                                        "SLURM_PTY_PORT",
                                        "MS_",
                                        "CM_",
                                        "RANK_ID",
                                        "RANK_SIZE",
                                        "RANK_TABLE_FILE",
                                        "DEVICE_ID",
                                        "ASCEND_DEVICE_ID",
                                        "TF_CONFIG",
                                        "POD_NAME",
                                        "TRIREME_RANK",
                                        "TRIREME_SIZE",
                                        "TRIREME_LOCAL_",
                                        "TRIREME_RENDEZVOUS",
                                        "TRIREME_TOKEN_FILE"};
    /* Compare up to the "=" of the variable. */
    size_t length = strcspn(variable, "=");
    for (size_t n = 0; n < sizeof names / sizeof names[0]; n++) {
        size_t name = strlen(names[n]);
        bool prefix = names[n][name - 1] == '_';
        if (strncmp(variable, names[n], name) == 0 && (prefix || length == name)) {
            return true;
        }
    }
    return false;
}

/* Returns whether two "NAME=value" texts have the same name. */
static bool same_name(const char *a, const char *b) {
    size_t length = strcspn(a, "=");
    return strncmp(a, b, length) == 0 && b[length] == '=';
}

/* Returns the value of a variable of the launcher's environment, or NULL. */
static const char *inherited_value(const trm_launch_options *options, const char *name) {
    for (const char *const *one = options->environment; one != NULL && *one != NULL; one++) {
        if (strncmp(*one, name, strlen(name)) == 0 && (*one)[strlen(name)] == '=') {
            return *one + strlen(name) + 1;
        }
    }
    return NULL;
}

/* An environment under construction. */
typedef struct env_list {
    char **items;            /* "NAME=value" texts, ended by NULL */
    int64_t capacity, count; /* length and capacity of `items` */
    bool failed;             /* there was no memory for a text */
    trmi_arena *arena;       /* holds the texts */
} env_list;

/* Adds a variable, or replaces the one with the same name. `text` is in the arena. */
static void put_text(env_list *list, char *text) {
    if (text == NULL || list->failed) {
        list->failed = true;
        return;
    }
    /* A later value replaces an earlier one, so that --env can override everything. */
    for (int64_t i = 0; i < list->count; i++) {
        if (same_name(text, list->items[i])) {
            list->items[i] = text;
            return;
        }
    }
    if (!trmi_grow((void **)&list->items, &list->capacity, list->count + 2, sizeof(char *))) {
        list->failed = true;
        return;
    }
    list->items[list->count++] = text;
    list->items[list->count] = NULL;
}

#define PUT(list, ...) put_text((list), trmi_arena_printf((list)->arena, __VA_ARGS__))

/* Adds OpenMP's variables. Where threads share CPUs, waiting threads must sleep. */
static void put_threads(trmi_launch *launch, env_list *list) {
    const trm_launch_options *options = launch->options;
    if (options->threads > 0 || inherited_value(options, "OMP_NUM_THREADS") == NULL) {
        PUT(list, "OMP_NUM_THREADS=%d", launch->threads);
    }
    if (launch->shared_cores && inherited_value(options, "OMP_WAIT_POLICY") == NULL) {
        PUT(list, "OMP_WAIT_POLICY=passive");
        PUT(list, "GOMP_SPINCOUNT=0");
    }
}

/* Builds a task's environment: the launcher's without other launchers' variables, then the job's,
 * then --env. local: number of the task among those that train on this host. */
static trm_status make_environment(trmi_launch *launch, trmi_task_process *task, int32_t local,
                                   const char *tf_config, trm_error *err) {
    const trm_launch_options *options = launch->options;
    env_list list = {.arena = &launch->arena};
    /* Inherited variables. */
    for (const char *const *one = options->environment; one != NULL && *one != NULL; one++) {
        if (!is_launchers(*one)) {
            put_text(&list, trmi_arena_strdup(list.arena, *one));
        }
    }
    put_threads(launch, &list);
    /* Set role or rank of the task. */
    if (tf_config != NULL) {
        PUT(&list, "TF_CONFIG=%s", tf_config);
        PUT(&list, "DEVICE_ID=%d", task->trains ? local : 0);
    } else {
        PUT(&list, "RANK_ID=%d", task->index);
        PUT(&list, "RANK_SIZE=%d", options->ranks);
        PUT(&list, "DEVICE_ID=%d", local);
        PUT(&list, "TRIREME_RANK=%d", task->index);
        PUT(&list, "TRIREME_SIZE=%d", options->ranks);
        PUT(&list, "TRIREME_LOCAL_RANK=%d", local);
        PUT(&list, "TRIREME_LOCAL_SIZE=%d", options->ranks);
    }
    if (launch->rendezvous_path[0] != '\0') {
        PUT(&list, "TRIREME_RENDEZVOUS=unix:%s", launch->rendezvous_path);
    }
    if (options->elastic_least > 0) {
        PUT(&list, "TRIREME_CONSOLE=%d,%d", TRMI_LAUNCH_CONSOLE_OUT, TRMI_LAUNCH_CONSOLE_ERR);
    }
    /* Set the variables of --env. */
    for (const char *const *one = options->extra; one != NULL && *one != NULL; one++) {
        put_text(&list, trmi_arena_strdup(list.arena, *one));
    }
    task->env = list.items;
    return list.failed ? no_memory(err) : TRM_OK;
}

/* Checks that the given rank table has as many ranks as the job, and sets RANK_TABLE_FILE and
 * DEVICE_ID of each task to fit it. */
static trm_status apply_table(trmi_launch *launch, trm_error *err) {
    const trm_launch_options *options = launch->options;
    trm_rank_table *table;
    char name[48];
    /* The tasks may run in other folders, so the path must be absolute. */
    char *path = realpath(options->rank_table, NULL);
    TRMI_TRY(trm_rank_table_read(options->rank_table, &table, err));
    trm_status status = TRM_OK;
    if (trm_rank_table_size(table) != options->ranks) {
        status = TRMI_FAIL(err, TRM_INVALID,
                           "%s has %d ranks, but %d are to be started; make them "
                           "equal",
                           trmi_short_name(options->rank_table, name), trm_rank_table_size(table),
                           options->ranks);
    }
    for (int32_t t = 0; t < launch->count && status == TRM_OK; t++) {
        trmi_task_process *task = &launch->tasks[t];
        trm_rank_entry entry = trm_rank_table_entry(table, task->index);
        /* Take the finished environment as a list again, and add to it. */
        env_list list = {.arena = &launch->arena, .items = task->env};
        while (task->env[list.count] != NULL) {
            list.count++;
        }
        list.capacity = list.count + 1;
        PUT(&list, "RANK_TABLE_FILE=%s", path ? path : options->rank_table);
        PUT(&list, "DEVICE_ID=%d", entry.device_id);
        task->env = list.items;
        status = list.failed ? no_memory(err) : TRM_OK;
    }
    trm_rank_table_destroy(table);
    free(path);
    return status;
}

/* Finds the usable CPUs, divides them among the tasks, and decides the number of threads. */
static trm_status find_cores(trmi_launch *launch, trm_error *err) {
    cpu_set_t set;
    int32_t usable = trmi_os_cpu_count(), tasks = launch->count;
    CPU_ZERO(&set);
    sched_getaffinity(0, sizeof set, &set);
    launch->cores = trmi_alloc(CPU_SETSIZE * sizeof *launch->cores);
    if (launch->cores == NULL) {
        return no_memory(err);
    }
    /* The CPUs that this process may use. */
    for (int c = 0; c < CPU_SETSIZE; c++) {
        if (CPU_ISSET(c, &set)) {
            launch->cores[launch->core_count++] = c;
        }
    }
    /* A CPU quota limits time, not cores: tasks are bound to cores only if all cores can be used
     * fully. */
    bool bind = launch->options->bind != TRM_OFF && usable >= launch->core_count &&
                tasks <= launch->core_count;
    launch->shared_cores = tasks > usable;
    /* Each task has as many threads as CPUs, at least one. */
    launch->threads = launch->options->threads > 0 ? launch->options->threads
                      : usable / tasks > 1         ? usable / tasks
                                                   : 1;
    launch->shared_cores |= launch->threads * tasks > usable;
    /* Cores in nearly equal parts of neighbours. */
    for (int32_t t = 0; bind && t < tasks; t++) {
        int32_t first = t * launch->core_count / tasks;
        launch->tasks[t].first_core = first;
        launch->tasks[t].core_count = (t + 1) * launch->core_count / tasks - first;
    }
    return TRM_OK;
}

/* Sets the paths of a task's folder, log and env log: device0/train.log0, device0/env0.log. */
static trm_status name_files(trmi_launch *launch, trmi_task_process *task, const char *kind,
                             trm_error *err) {
    const char *base = launch->options->directory ? launch->options->directory : ".";
    task->dir = trmi_arena_printf(&launch->arena, "%s/%s%d", base, kind, task->index);
    task->log = trmi_arena_printf(&launch->arena, "%s/%s%d/train.log%d", base, kind, task->index,
                                  task->index);
    task->env_log = trmi_arena_printf(&launch->arena, "%s/%s%d/env%d.log", base, kind, task->index,
                                      task->index);
    return task->dir != NULL && task->log != NULL && task->env_log != NULL ? TRM_OK
                                                                           : no_memory(err);
}

/* Checks the options.
 *   errors  INVALID */
static trm_status check_options(const trm_launch_options *options, trm_error *err) {
    bool seen[4] = {false};
    int64_t total = options->role_count > 0 ? 0 : options->ranks;
    /* Each role must come once, and with a program. */
    for (int32_t r = 0; r < options->role_count; r++) {
        const trm_launch_role *role = &options->roles[r];
        if (role->role < TRM_ROLE_WORKER || role->role > TRM_ROLE_EVALUATOR || seen[role->role]) {
            return TRMI_FAIL(err, TRM_INVALID, "role %s is given twice or cannot be started",
                             trm_role_name(role->role));
        }
        seen[role->role] = true;
        bool single = role->role == TRM_ROLE_CHIEF || role->role == TRM_ROLE_EVALUATOR;
        if (role->count < 0 || (single && role->count > 1)) {
            return TRMI_FAIL(err, TRM_INVALID, "%d processes of role %s; %s expected", role->count,
                             trm_role_name(role->role), single ? "at most 1" : "0 or more");
        }
        if (role->count > 0 && role->command == NULL && options->command == NULL) {
            return TRMI_FAIL(err, TRM_INVALID, "role %s has no program to run",
                             trm_role_name(role->role));
        }
        total += role->count;
    }
    if (total < 1 || total > TASKS_MAX) {
        return TRMI_FAIL(err, TRM_INVALID, "%lld processes; 1 to %d expected", (long long)total,
                         TASKS_MAX);
    }
    if (options->role_count == 0 && (options->command == NULL || options->command[0] == NULL)) {
        return TRMI_FAIL(err, TRM_INVALID, "no program to run; give it after --");
    }
    return TRM_OK;
}

/* Chooses a unix socket where the ranks of this job meet. The random name keeps jobs apart. */
static trm_status choose_meeting(trmi_launch *launch, trm_error *err) {
    uint32_t random;
    if (getrandom(&random, sizeof random, 0) != (ssize_t)sizeof random) {
        return TRMI_FAIL_SYS(err, "no random bytes for the job");
    }
    snprintf(launch->rendezvous_path, sizeof launch->rendezvous_path, "/tmp/trireme-%u/run-%d-%08x",
             (unsigned)geteuid(), (int)getpid(), random);
    return TRM_OK;
}

/* Plans a job of equal ranks. Rank 0 is the console task. */
static trm_status plan_ranks(trmi_launch *launch, trm_error *err) {
    const trm_launch_options *options = launch->options;
    for (int32_t i = 0; i < launch->count; i++) {
        trmi_task_process *task = &launch->tasks[i];
        /* The number of the process is its rank. */
        task->index = i;
        task->command = options->command;
        task->trains = true;
        task->console = i == 0;
        task->restarts_left = options->elastic_least > 0 ? options->elastic_restarts : 0;
        snprintf(task->name, sizeof task->name, "rank %d", task->index);
        TRMI_TRY(name_files(launch, task, "device", err));
    }
    TRMI_TRY(find_cores(launch, err));
    for (int32_t i = 0; i < launch->count; i++) {
        TRMI_TRY(make_environment(launch, &launch->tasks[i], i, NULL, err));
    }
    return options->rank_table != NULL ? apply_table(launch, err) : TRM_OK;
}

/* Finds `count` different free ports. It keeps the sockets open until all ports are known. */
static trm_status free_ports(int32_t *ports, int32_t count, trm_error *err) {
    int *held = trmi_alloc((size_t)count * sizeof *held);
    trm_status status = held != NULL ? TRM_OK : no_memory(err);
    int32_t open = 0;
    /* Port 0 lets the kernel choose. A socket that stays open keeps its port from being chosen
     * again. */
    for (; status == TRM_OK && open < count; open++) {
        struct sockaddr_in address = {.sin_family = AF_INET,
                                      .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
        socklen_t bytes = sizeof address;
        held[open] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (held[open] < 0 || bind(held[open], (struct sockaddr *)&address, sizeof address) != 0 ||
            getsockname(held[open], (struct sockaddr *)&address, &bytes) != 0) {
            status = TRMI_FAIL_SYS(err, "no free port for process %d", open);
        }
        ports[open] = ntohs(address.sin_port);
    }
    for (int32_t i = 0; held != NULL && i < open; i++) {
        if (held[i] >= 0) {
            close(held[i]);
        }
    }
    trmi_free(held);
    return status;
}

/* The first task in this order is the console task: the chief, or worker 0. */
static const trm_role role_order[] = {TRM_ROLE_CHIEF, TRM_ROLE_WORKER, TRM_ROLE_PS,
                                      TRM_ROLE_EVALUATOR};

/* Returns the TF_CONFIG of one task, in the arena; NULL without memory. ports: [count] port of each
 * task on this host. */
static char *tf_config(trmi_launch *launch, const int32_t *ports, const trmi_task_process *own) {
    trmi_report r;
    trmi_report_begin(&r, true);
    r.spaced = true;
    trmi_report_open_object(&r, "cluster");
    /* List the addresses by role, in the order of role_order. */
    for (int o = 0; o < 4; o++) {
        bool open = false;
        for (int32_t t = 0; t < launch->count; t++) {
            char address[32];
            if (launch->tasks[t].role == role_order[o]) {
                if (!open) {
                    trmi_report_open_array(&r, trm_role_name(role_order[o]));
                }
                open = true;
                snprintf(address, sizeof address, "127.0.0.1:%d", ports[t]);
                trmi_report_put(&r, trmi_string(NULL, address));
            }
        }
        if (open) {
            trmi_report_close(&r);
        }
    }
    trmi_report_close(&r);
    trmi_report_open_object(&r, "task");
    trmi_report_put(&r, trmi_string("type", trm_role_name(own->role)),
                    trmi_int("index", own->index));
    trmi_report_close(&r);
    char *json = trmi_report_end(&r); /* ends with a new line */
    char *copy = json == NULL
                     ? NULL
                     : trmi_arena_printf(&launch->arena, "%.*s", (int)strcspn(json, "\n"), json);
    trm_free(json);
    return copy;
}

/* Plans a job with roles: tasks in the order of role_order, each with a port of its own. A worker's
 * files are in deviceN, those of other roles in a folder of the role's name.
 *   errors  NOMEM, IO */
static trm_status plan_roles(trmi_launch *launch, trm_error *err) {
    const trm_launch_options *options = launch->options;
    int32_t *ports = trmi_alloc((size_t)launch->count * sizeof *ports), filled = 0, trainers = 0;
    trm_status status = TRM_OK;
    if (ports == NULL) {
        return no_memory(err);
    }
    /* Tasks in the order of role_order, so that the console task is the first. */
    for (int o = 0; o < 4; o++) {
        for (int32_t r = 0; r < options->role_count; r++) {
            const trm_launch_role *role = &options->roles[r];
            for (int32_t i = 0; role->role == role_order[o] && i < role->count; i++) {
                trmi_task_process *task = &launch->tasks[filled++];
                task->role = role->role;
                task->index = i;
                task->command = role->command ? role->command : options->command;
                task->restarts_left = role->restarts;
                task->trains = role->role == TRM_ROLE_WORKER || role->role == TRM_ROLE_CHIEF;
                task->console = filled == 1; /* the chief, otherwise worker 0 */
                snprintf(task->name, sizeof task->name, "%s %d", trm_role_name(task->role), i);
                status = status == TRM_OK
                             ? name_files(launch, task,
                                          task->role == TRM_ROLE_WORKER ? "device"
                                                                        : trm_role_name(task->role),
                                          err)
                             : status;
            }
        }
    }
    /* Cores and ports, and then the environments, which contain both. */
    status = status == TRM_OK ? find_cores(launch, err) : status;
    if (status == TRM_OK) {
        status = free_ports(ports, launch->count, err);
    }
    for (int32_t t = 0; t < launch->count && status == TRM_OK; t++) {
        trmi_task_process *task = &launch->tasks[t];
        char *config = tf_config(launch, ports, task);
        status =
            config == NULL ? no_memory(err) : make_environment(launch, task, trainers, config, err);
        trainers += task->trains;
    }
    trmi_free(ports);
    return status;
}

/* Counts the tasks, then plans them.
 *   errors  INVALID (options), NOMEM, IO (no port, no random bytes)
 *   owns    the caller frees `launch` in any case */
trm_status trmi_launch_plan(trmi_launch *launch, trm_error *err) {
    const trm_launch_options *options = launch->options;
    TRMI_TRY(check_options(options, err));
    for (int32_t r = 0; r < options->role_count; r++) {
        launch->count += options->roles[r].count;
    }
    launch->count = options->role_count > 0 ? launch->count : options->ranks;
    launch->tasks = trmi_alloc((size_t)launch->count * sizeof *launch->tasks);
    if (launch->tasks == NULL) {
        return no_memory(err);
    }
    TRMI_TRY(choose_meeting(launch, err));
    return options->role_count > 0 ? plan_roles(launch, err) : plan_ranks(launch, err);
}

void trmi_launch_free(trmi_launch *launch) {
    for (int32_t t = 0; launch->tasks != NULL && t < launch->count; t++) {
        trmi_free(launch->tasks[t].env);
    }
    trmi_free(launch->tasks);
    trmi_free(launch->cores);
    trmi_arena_free(&launch->arena);
}
