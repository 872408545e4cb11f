/* SPDX-License-Identifier: Apache-2.0 */
/* trireme/launch.h: starts the processes of a job on this host, one per rank or one per role, and
 * ends them together. Over several hosts another launcher starts them: docs/guides/launchers.md.
 *
 *     trm_launch_options options = {.ranks = 8, .command = argv + 3, .environment = environ,
 *                                   .write = print, .directory = "."};
 *     trm_launch_result result;
 *     trm_launch(&options, &result, &err);
 *     return result.exit_code;
 *
 * Each rank i has a directory device<i> with train.log<i> (its output) and
 * env<i>.log (its environment). All ranks are waited for, one that fails ends the
 * others, and nothing is left behind, even if the launcher is killed.
 */
#ifndef TRIREME_LAUNCH_H
#define TRIREME_LAUNCH_H

#include "trireme/base.h"
#include "trireme/cluster.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum trm_launch_stream {
    TRM_LAUNCH_OUT = 1,  /* standard output of rank 0 (chief or worker 0), as it comes */
    TRM_LAUNCH_ERR = 2,  /* its standard error */
    TRM_LAUNCH_SAY = 3,  /* a line of the launcher itself, without newline */
    TRM_LAUNCH_BLAME = 4 /* such a line about a failure: who, how, the end of its log */
} trm_launch_stream;

typedef void (*trm_launch_write)(void *context, trm_launch_stream stream, const char *data,
                                 size_t bytes);

/* Processes of one role. */
typedef struct trm_launch_role {
    trm_role role;              /* chief, worker, ps or evaluator, each at most once */
    int32_t count;              /* chief and evaluator: at most 1 */
    const char *const *command; /* NULL = the command of the options */
    /* so often a failed process of this role is started again; not one that ended with exit code 1:
     * the job has failed, its loss diverged */
    int32_t restarts;
} trm_launch_role;

typedef struct trm_launch_options {
    int32_t ranks;                  /* processes here; ignored with roles */
    const char *const *command;     /* program and arguments, ended by NULL; looked up in PATH */
    const char *const *environment; /* what the processes inherit, ended by NULL; NULL = nothing.
                                       What other launchers left in it is not passed on */
    const char *const *extra;       /* "NAME=value" added last, ended by NULL; may be NULL */
    const char *directory;          /* where device<i> are made; NULL = "." */
    const char *rank_table;         /* becomes RANK_TABLE_FILE; must be for `ranks` ranks */
    const trm_launch_role *roles;   /* instead of ranks: each process gets its TF_CONFIG */
    int32_t role_count;
    int32_t threads;        /* OMP_NUM_THREADS of each; 0 = the cores shared out evenly, unless
                                   the environment has OMP_NUM_THREADS */
    bool no_binding;        /* leave the affinity alone */
    double timeout_seconds; /* 0 = none; the job is then ended and has failed */
    double grace_seconds;   /* from SIGTERM to SIGKILL; 0 = 10 */
    /* ps still running after all others have ended get SIGTERM; 0 = 10 */
    double drain_seconds;
    bool dry_run;           /* say what would run, start nothing, make no directory */
    trm_launch_write write; /* NULL = silent */
    void *context;
} trm_launch_options;

typedef struct trm_launch_result {
    int32_t exit_code;   /* 0 all succeeded; 2 a process failed; 128 + n: it died of signal n, ended
                            with that code itself, or the
                            launcher was asked to stop by signal n; 5 timeout */
    int32_t failed_rank; /* rank or task index of the first failure, -1 if there is none */
    trm_role failed_role;
    int32_t failed_signal; /* 0 if it exited */
    int32_t failed_code;
    double seconds;
} trm_launch_result;

/* Runs the job to its end. The last line is "training success", "training failed", or "training
 * stopped by signal N" where the launcher was told to end.
 *   error   INVALID (options, program not found, table of another size), IO, NOMEM: the job could
 *           not be started, nothing is left running. A job that failed is TRM_OK with an exit code
 *   thread  from the main thread, before other threads are started: it takes SIGINT, SIGTERM,
 *           SIGHUP, SIGUSR1, SIGUSR2 (forwarded; the first two also end the job, the second time at
 *           once) and SIGCHLD while it runs */
TRM_API TRM_MUST_USE trm_status trm_launch(const trm_launch_options *options,
                                           trm_launch_result *result, trm_error *err);

#ifdef __cplusplus
}
#endif
#endif
