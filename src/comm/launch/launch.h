/* SPDX-License-Identifier: Apache-2.0 */
/* comm/launch/launch.h: internals of `trireme run`, which starts the processes of a job on one
 * host.
 *
 *   options -> tasks (role, index, environment, log, cores) -> spawned, each in its own process group
 *   task:      waiting --spawn--> running --ends--> ended        (a restart: back to running)
 *   launcher --pids over a socket--> guardian: kills the remaining processes when the launcher dies
 *
 * Files: launch_tasks.c (what to start), launch_spawn.c (starting, signals, guardian), launch.c
 * (the life of a job), launch_end.c (what the end of a task means), launch_say.c (output). */
#ifndef TRMI_COMM_LAUNCH_H
#define TRMI_COMM_LAUNCH_H

#include "trireme/dist.h"

#include "base/memory.h"

#include <sys/types.h>

/* Descriptors of the console in the ranks of an elastic job; TRIREME_CONSOLE=30,31 says so. */
enum { TRMI_LAUNCH_CONSOLE_OUT = 30, TRMI_LAUNCH_CONSOLE_ERR = 31 };

/* One process of the job. */
typedef struct trmi_task_process {
    trm_role role;                   /* WORKER without roles */
    int32_t index;                   /* number within the role; without roles the rank */
    char name[24];                   /* "rank 3", "ps 0" */
    const char *log, *env_log, *dir; /* paths and folder, in the launch's arena */
    const char *const *command;      /* program and arguments, ended by NULL */
    char **env;                      /* environment, ended by NULL */
    /* indices into the launcher's `cores`; core_count 0: not bound */
    int32_t first_core, core_count;
    int32_t restarts_left; /* number of times that it may be started again */
    bool trains;           /* worker or chief: the job is over when all of these have ended */
    bool console;          /* its output is passed on to the launcher's output */
    pid_t pid;             /* 0: not started */
    bool running;          /* started, and not collected with waitpid yet */
    bool group_alive;      /* its process group may have members */
    int wait_status;       /* from waitpid, once it has ended */
    double ended_time;     /* trmi_os_now */
} trmi_task_process;

/* One job. */
typedef struct trmi_launch {
    const trm_launch_options *options; /* the caller's */
    trmi_arena arena;                  /* texts of the tasks */
    trmi_task_process *tasks;          /* [count] */
    int32_t count;                     /* number of tasks */
    int *cores;                        /* numbers of the CPUs that the launcher may run on */
    int32_t core_count;                /* length of `cores` */
    int32_t threads;                   /* for each task (OMP_NUM_THREADS) */
    bool shared_cores;                 /* more threads than CPUs: waiting ranks sleep */
    char rendezvous_path[108];         /* path of the unix socket where the ranks meet; "": none */
    int guard_fd;                      /* socket to the guardian, -1: none */
    pid_t guard_pid;                   /* of the guardian, 0: none */
    int signal_fd;                     /* signalfd, -1: none */
    int out_fd[2];                     /* pipes: stdout and stderr of the console task */
    int out_log;                       /* the log file of the console task */
    int console_fd
        [2]; /* elastic: the tasks' ends of those pipes, for the tasks that follow; else -1 */
} trmi_launch;

/* The state of a running job. */
typedef struct trmi_launch_job {
    trm_launch_result *result; /* the caller's */
    double start_time;         /* trmi_os_now */
    bool ending;               /* SIGTERM was sent to all tasks */
    bool killed;               /* SIGKILL was sent to all tasks */
    double ending_time;        /* of the first signal */
    int stop_signal;           /* the signal that stopped the launcher, or 0 */
    /* SIGUSR1 was passed on: a task that ends with that signal's code has not failed */
    bool passed_usr1;
    bool timed_out;           /* the job's timeout has passed */
    int32_t first_failed;     /* index of the task that caused the failure; -1: none */
    double first_failed_time; /* of its end */
    int32_t few_left;  /* ranks beside it, if it died and an elastic job needs more; else -1 */
    double drain_time; /* when only servers were left; 0: not yet */
    bool drained;      /* SIGTERM was sent to the remaining servers */
} trmi_launch_job;

/* launch_tasks.c: computes tasks, environments and cores; starts nothing.
 *   errors  INVALID, NOMEM */
trm_status trmi_launch_plan(trmi_launch *launch, trm_error *err);
void trmi_launch_free(trmi_launch *launch);

/* launch_spawn.c: makes the folders, the files env<i>.log and empty logs. */
trm_status trmi_launch_directories(trmi_launch *launch, trm_error *err);
/* Starts a task.
 *   errors  INVALID if its program cannot be run */
trm_status trmi_launch_spawn(trmi_launch *launch, trmi_task_process *task, trm_error *err);
/* Starts the guardian process. */
trm_status trmi_launch_guard(trmi_launch *launch, trm_error *err);
/* Starts the guardian again if it has died. */
void trmi_launch_guard_keep(trmi_launch *launch);
/* Ends the guardian, which must have no groups left to kill. */
void trmi_launch_guard_end(trmi_launch *launch);
/* Sends a signal to the process group of a task. With signal 0 only notices that the group is
 * empty. */
void trmi_launch_signal(trmi_launch *launch, trmi_task_process *task, int signal_number);

/* launch_end.c: acts on the end of a task, which was waited for: starts it again, or notes the
 * failure of the job. An end that follows a signal of the launcher is neither. */
void trmi_launch_note_end(trmi_launch *launch, trmi_launch_job *job, int32_t index);
/* Returns 0 for a good end. Larger values mean that the task is more likely to be the cause of a
 * failure than to have failed in consequence: 1 a peer failed, 2 another exit code, 3 a signal. */
int trmi_launch_rate_failure(const trmi_task_process *task);
/* Describes the end of a task. */
void trmi_launch_describe_end(const trmi_task_process *task, char text[64]);
/* Returns a worker or chief that still runs, or NULL. */
const trmi_task_process *trmi_launch_trainer(const trmi_launch *launch);

/* launch_say.c: print lines of the launcher itself. trmi_launch_print_failure is for failures,
 * which are shown even where other lines are not (--quiet, --json). */
void trmi_launch_print(const trm_launch_options *options, const char *format, ...) TRM_PRINTF(2, 3);
void trmi_launch_print_failure(const trm_launch_options *options, const char *format, ...)
    TRM_PRINTF(2, 3);
/* Prints the last line. stop_signal: the signal that stopped the launcher, or 0. */
void trmi_launch_print_result(const trm_launch_options *options, const trm_launch_result *result,
                              int stop_signal);

#endif
