/* SPDX-License-Identifier: Apache-2.0 */
/* comm/launch/launch.h: the processes of a job.
 *
 *   options -> tasks (role, index, environment, log, cores) -> spawned, each its own process group
 *        waiting --spawn--> running --ends--> ended        (restarts: back to running)
 *   launcher --pids over a socket--> guardian: kills what is left when the launcher itself dies
 */
#ifndef TRMI_COMM_LAUNCH_H
#define TRMI_COMM_LAUNCH_H

#include "trireme/launch.h"

#include "base/memory.h"

#include <sys/types.h>

typedef struct trmi_task_process {
    trm_role role;
    int32_t index;                   /* within the role; without roles the rank */
    char name[24];                   /* "rank 3", "ps 0" */
    const char *log, *env_log, *dir; /* in the launch's arena */
    const char *const *command;
    char **env;                     /* ended by NULL */
    int32_t first_core, core_count; /* indices into the launcher's cores; 0 = not bound */
    int32_t restarts_left;
    bool trains;  /* the job is over when all that train have ended */
    bool console; /* its output is passed on */
    pid_t pid;    /* 0: not started */
    bool running;
    bool group_alive; /* its process group may have members */
    int wait_status;
    double ended_time;
} trmi_task_process;

typedef struct trmi_launch {
    const trm_launch_options *options;
    trmi_arena arena;
    trmi_task_process *tasks;
    int32_t count;
    int *cores; /* CPU numbers this process may run on */
    int32_t core_count;
    int32_t threads; /* per task, for the announcement */
    bool shared_cores;
    char meet[108]; /* path of the unix socket, "" if there is none */
    int guard_fd;   /* socket to the guardian, -1 */
    pid_t guard_pid;
    int signal_fd;
    int out_fd[2]; /* read ends of the console task's stdout and stderr */
    int out_log;   /* its log */
} trmi_launch;

/* launch_tasks.c: tasks, environments, cores; nothing is started.   error INVALID, NOMEM */
trm_status trmi_launch_plan(trmi_launch *launch, trm_error *err);
void trmi_launch_free(trmi_launch *launch);

/* launch_spawn.c */
trm_status trmi_launch_directories(trmi_launch *launch, trm_error *err);
trm_status trmi_launch_spawn(trmi_launch *launch, trmi_task_process *task, trm_error *err);
trm_status trmi_launch_guard(trmi_launch *launch, trm_error *err);
/* Starts the guardian again if it has died. */
void trmi_launch_guard_keep(trmi_launch *launch);
void trmi_launch_guard_end(trmi_launch *launch);
/* Signals a task's process group. */
void trmi_launch_signal(trmi_launch *launch, trmi_task_process *task, int signal_number);

/* launch_say.c: a line of the launcher itself; blame: of a failure, which is told where others are
 * not (--quiet, --json). */
void trmi_launch_say(const trm_launch_options *options, const char *format, ...) TRM_PRINTF(2, 3);
void trmi_launch_blame(const trm_launch_options *options, const char *format, ...) TRM_PRINTF(2, 3);
/* stop_signal: by which the launcher was told to end; 0: it was not. */
void trmi_launch_conclude(const trm_launch_options *options, const trm_launch_result *result,
                          int stop_signal);

#endif
