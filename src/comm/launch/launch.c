/* SPDX-License-Identifier: Apache-2.0 */
/* The life of a job: start all tasks, wait for all, end all when one fails.
 *
 *   running --all that train ended well--> draining --servers ended (or SIGTERM sent)--> success
 *      \--a failure, a signal, the timeout--> ending: SIGTERM, grace, SIGKILL --> failed
 *
 * The launcher is single-threaded: one loop polls signals (signalfd), the console task's output and
 * the time. Every task has its own process group, and the launcher is a subreaper, so that no
 * process of the job survives it. */
#define _GNU_SOURCE
#include "comm/launch/launch.h"

#include "base/arguments.h"
#include "base/error.h"
#include "base/os.h"
#include "comm/rendezvous/side_place.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    /* the end of a failed task's log that is shown: its last lines, as far as they fit */
    TAIL_BYTES = 4096,
    TAIL_LINES = 20,
    CHILDREN_MAX = 1024 /* child processes that kill_adopted() handles */
};

/* Shows the command of a task (--dry-run). */
static void print_command(const trmi_launch *launch, const trmi_task_process *task) {
    trmi_text text = {0};
    for (const char *const *word = task->command; *word != NULL; word++) {
        trmi_text_printf(&text, "%s%s", word == task->command ? "" : " ", *word);
    }
    trmi_launch_print(launch->options, "  runs  %.900s", text.data ? text.data : "?");
    trmi_text_free(&text);
}

/* Shows what would be started (--dry-run): log, cores, variables, command. */
static void show_plan(const trmi_launch *launch) {
    static const char *const shown[] = {
        "RANK_ID=",   "RANK_SIZE=",          "DEVICE_ID=", "RANK_TABLE_FILE=",
        "TF_CONFIG=", "TRIREME_RENDEZVOUS=", "OMP_"};
    for (int32_t t = 0; t < launch->count; t++) {
        const trmi_task_process *task = &launch->tasks[t];
        trmi_launch_print(launch->options, "%s  log %s", task->name, task->log);
        if (task->core_count > 0) {
            trmi_launch_print(launch->options, "  cores %d to %d", launch->cores[task->first_core],
                              launch->cores[task->first_core + task->core_count - 1]);
        }
        for (char **one = task->env; *one != NULL; one++) {
            for (size_t s = 0; s < sizeof shown / sizeof shown[0]; s++) {
                if (strncmp(*one, shown[s], strlen(shown[s])) == 0) {
                    trmi_launch_print(launch->options, "  env   %.900s", *one);
                }
            }
        }
        print_command(launch, task);
    }
}

/* Passes on what the console task has written to stream `which` (0 stdout, 1 stderr), to its log
 * and to the launcher's output. Returns false when the stream has ended. */
static bool copy_output(trmi_launch *launch, int which) {
    char data[16384];
    for (int round = 0; round < 16; round++) {
        ssize_t bytes = read(launch->out_fd[which], data, sizeof data);
        if (bytes < 0 && errno == EINTR) {
            continue;
        }
        if (bytes < 0) {
            return true;
        }
        if (bytes == 0) {
            close(launch->out_fd[which]);
            launch->out_fd[which] = -1;
            return false;
        }
        /* a full disk must not stop the job: the console still shows the output */
        trm_error ignored;
        if (launch->out_log >= 0 && trmi_os_write_all(NULL, launch->out_log, data, (size_t)bytes,
                                                      "log", &ignored) != TRM_OK) {
            close(launch->out_log);
            launch->out_log = -1;
        }
        if (launch->options->write != NULL) {
            launch->options->write(launch->options->context,
                                   which == 0 ? TRM_LAUNCH_OUT : TRM_LAUNCH_ERR, data,
                                   (size_t)bytes);
        }
    }
    return true;
}

/* Sends a signal to all tasks. */
static void signal_all(trmi_launch *launch, int signal_number) {
    for (int32_t t = 0; t < launch->count; t++) {
        trmi_launch_signal(launch, &launch->tasks[t], signal_number);
    }
}

/* Returns the signal that ends the job where the launcher has got `signal_number`: SIGTERM asks one
 * rank of an elastic job to leave, SIGINT ends the job. */
static int ending_signal(const trmi_launch *launch, int signal_number) {
    return launch->options->elastic_least > 0 && signal_number == SIGTERM ? SIGINT : signal_number;
}

/* Begins to end the job, once. */
static void begin_ending(trmi_launch *launch, trmi_launch_job *job, int signal_number) {
    if (!job->ending) {
        job->ending = true;
        job->ending_time = trmi_os_now();
        signal_all(launch, ending_signal(launch, signal_number));
    }
}

/* Collects ended processes. */
static void collect_ended(trmi_launch *launch, trmi_launch_job *job) {
    for (int32_t t = 0; t < launch->count; t++) {
        trmi_task_process *task = &launch->tasks[t];
        int status;
        pid_t pid = task->running ? waitpid(task->pid, &status, WNOHANG) : 0;
        /* Processes that a task had started and left came to the launcher (subreaper). The task
         * itself may end at this moment and be among them. */
        while (pid <= 0 && task->group_alive && (pid = waitpid(-task->pid, &status, WNOHANG)) > 0) {
            pid = pid == task->pid && task->running ? pid : 0;
        }
        if (pid > 0) {
            task->wait_status = status;
            trmi_launch_note_end(launch, job, t); /* a restarted task has another group */
        }
    }
}

/* An evaluator's failure does not stop the training. */
static bool only_evaluator_failed(const trmi_launch *launch, const trmi_launch_job *job) {
    return job->first_failed >= 0 && launch->tasks[job->first_failed].role == TRM_ROLE_EVALUATOR;
}

/* Acts on a signal to the launcher: passes SIGUSR1 and SIGUSR2 on; a first SIGINT, SIGTERM or
 * SIGHUP ends the job, a second one kills it. */
static void handle_signal(trmi_launch *launch, trmi_launch_job *job, int number) {
    if (number == SIGCHLD) {
        return; /* collect_ended() runs in every round */
    }
    if (number == SIGUSR1 || number == SIGUSR2) {
        job->passed_usr1 |= number == SIGUSR1;
        signal_all(launch, number);
        return;
    }
    if (job->stop_signal == 0) {
        job->stop_signal = number;
        trmi_launch_print(launch->options, "signal %d: sending signal %d to all processes", number,
                          ending_signal(launch, number));
        begin_ending(launch, job, number);
    } else {
        job->killed = true;
        signal_all(launch, SIGKILL);
    }
}

/* Acts on a parameter server that has ended with code 0 while workers, which cannot go on without
 * it, still run `seconds` later. It is started again if restarts are left. Otherwise, if other
 * servers still run, the job fails and names this server. If all servers have ended, the chief may
 * have ended the job and a worker may be about to end, so that is only reported. */
static void replace_missing_server(trmi_launch *launch, trmi_launch_job *job, int32_t index,
                                   double seconds) {
    trmi_task_process *task = &launch->tasks[index];
    bool others = false;
    trm_error err;
    for (int32_t t = 0; t < launch->count; t++) {
        others |= launch->tasks[t].running && launch->tasks[t].role == TRM_ROLE_PS;
    }
    task->ended_time = trmi_os_now();
    if (task->restarts_left > 0) {
        task->restarts_left--;
        trmi_launch_print(
            launch->options,
            "%s ended with exit code 0, but %s still runs %.0f s later; started again "
            "(%d more times)",
            task->name, trmi_launch_trainer(launch)->name, seconds, task->restarts_left);
        if (trmi_launch_spawn(launch, task, &err) == TRM_OK) {
            return;
        }
        trmi_launch_print_failure(launch->options, "%s", err.message);
    }
    if (others && job->first_failed < 0) {
        trmi_launch_print_failure(launch->options,
                                  "%s ended with exit code 0 before the job was over", task->name);
        job->first_failed = index;
        job->first_failed_time = task->ended_time;
    } else if (!others) {
        trmi_launch_print(launch->options, "all parameter servers have ended, but %s still runs",
                          trmi_launch_trainer(launch)->name);
    }
}

/* Finds servers that ended with code 0 at least `seconds` ago although workers still run. */
static void find_missing_servers(trmi_launch *launch, trmi_launch_job *job, double now,
                                 double seconds) {
    for (int32_t t = 0; t < launch->count; t++) {
        const trmi_task_process *task = &launch->tasks[t];
        if (task->role == TRM_ROLE_PS && task->pid > 0 && !task->running &&
            trmi_launch_rate_failure(task) == 0 && now - task->ended_time >= seconds &&
            trmi_launch_trainer(launch) != NULL) {
            replace_missing_server(launch, job, t, seconds);
        }
    }
}

/* Enforces the time limits: the job's timeout, the grace after SIGTERM, the drain of the
 * servers. */
static void enforce_limits(trmi_launch *launch, trmi_launch_job *job, double now) {
    const trm_launch_options *options = launch->options;
    double grace = options->grace_seconds > 0 ? options->grace_seconds : 10;
    double drain = options->drain_seconds > 0 ? options->drain_seconds : 10;
    bool all_but_ps = true, ps = false;
    for (int32_t t = 0; t < launch->count; t++) {
        all_but_ps &= !launch->tasks[t].running || launch->tasks[t].role == TRM_ROLE_PS;
        ps |= launch->tasks[t].running && launch->tasks[t].role == TRM_ROLE_PS;
    }
    /* The job's time is up. */
    if (options->timeout_seconds > 0 && now - job->start_time >= options->timeout_seconds &&
        !job->ending) {
        job->timed_out = true;
        for (int32_t t = 0; t < launch->count; t++) {
            if (launch->tasks[t].running) {
                trmi_launch_print_failure(launch->options, "%s still runs after %.0f s (--timeout)",
                                          launch->tasks[t].name, options->timeout_seconds);
            }
        }
        begin_ending(launch, job, SIGTERM);
    }
    if (!job->ending) {
        find_missing_servers(launch, job, now, drain);
    }
    /* Wait 0.1 s for the real cause to show before the other tasks are ended. */
    if (job->first_failed >= 0 && !job->ending && !only_evaluator_failed(launch, job) &&
        now - job->first_failed_time > 0.1) {
        begin_ending(launch, job, SIGTERM);
    }
    if (job->ending && !job->killed && now - job->ending_time >= grace) {
        job->killed = true;
        trmi_launch_print(launch->options, "still running after %.0f s: killed", grace);
        signal_all(launch, SIGKILL);
    }
    /* All workers have ended: the servers get `drain` seconds, then SIGTERM, then SIGKILL. */
    if (all_but_ps && ps && !job->ending) {
        job->drain_time = job->drain_time > 0 ? job->drain_time : now;
        if (now - job->drain_time >= drain && !job->drained) {
            job->drained = true;
            trmi_launch_print(launch->options,
                              "all workers have ended; sending SIGTERM to the parameter servers");
            for (int32_t t = 0; t < launch->count; t++) {
                trmi_launch_signal(launch, &launch->tasks[t], SIGTERM);
            }
        } else if (job->drained && now - job->drain_time >= drain + grace && !job->killed) {
            job->killed = true;
            signal_all(launch, SIGKILL);
        }
    }
}

/* Returns whether a task runs. */
static bool any_running(const trmi_launch *launch) {
    for (int32_t t = 0; t < launch->count; t++) {
        if (launch->tasks[t].running) {
            return true;
        }
    }
    return false;
}

/* Waits until no task runs, then collects the rest of the output and of the processes. */
static void wait_for_end(trmi_launch *launch, trmi_launch_job *job) {
    while (any_running(launch)) {
        struct pollfd polls[3] = {{.fd = launch->signal_fd, .events = POLLIN},
                                  {.fd = launch->out_fd[0], .events = POLLIN},
                                  {.fd = launch->out_fd[1], .events = POLLIN}};
        poll(polls, 3, 50);
        struct signalfd_siginfo info;
        while (read(launch->signal_fd, &info, sizeof info) == (ssize_t)sizeof info) {
            handle_signal(launch, job, (int)info.ssi_signo);
        }
        for (int i = 0; i < 2; i++) {
            if (polls[1 + i].revents != 0) {
                copy_output(launch, i);
            }
        }
        collect_ended(launch, job);
        trmi_launch_guard_keep(launch);
        enforce_limits(launch, job, trmi_os_now());
    }
    for (int i = 0; i < 2; i++) {
        if (launch->console_fd[i] >= 0) {
            close(launch->console_fd[i]);
            launch->console_fd[i] = -1;
        }
    }
    /* Kill grandchildren that have outlived their rank, then read what is left in the pipes. */
    signal_all(launch, SIGKILL);
    for (int i = 0; i < 2; i++) {
        struct pollfd last = {.fd = launch->out_fd[i], .events = POLLIN};
        while (launch->out_fd[i] >= 0 && poll(&last, 1, 200) > 0 && copy_output(launch, i)) {
        }
    }
    /* Wait up to 2 s until all groups are empty. */
    double deadline = trmi_os_now() + 2;
    for (bool left = true; left && trmi_os_now() < deadline;) {
        left = false;
        for (int32_t t = 0; t < launch->count; t++) {
            trmi_task_process *task = &launch->tasks[t];
            while (task->group_alive && waitpid(-task->pid, NULL, WNOHANG) > 0) {
            }
            trmi_launch_signal(launch, task, SIGKILL);
            left |= task->group_alive;
        }
        if (left) {
            poll(NULL, 0, 10);
        }
    }
}

/* Lists the children of this process, at most `room`; returns their number. */
static int list_children(pid_t *pids, int room) {
    char path[64];
    int count = 0, pid;
    snprintf(path, sizeof path, "/proc/self/task/%d/children", (int)getpid());
    FILE *file = fopen(path, "re");
    while (file != NULL && count < room && fscanf(file, "%d", &pid) == 1) {
        pids[count++] = (pid_t)pid;
    }
    if (file != NULL) {
        fclose(file);
    }
    return count;
}

/* Kills processes that left their group and lost their parent: the launcher, as subreaper, has
 * adopted them. Children from before the job (`before`) are left alone. */
static void kill_adopted(const trmi_launch *launch, const pid_t *before, int before_count) {
    pid_t now[CHILDREN_MAX];
    for (int round = 0; round < 50; round++) {
        int count = list_children(now, CHILDREN_MAX), adopted = 0;
        for (int c = 0; c < count; c++) {
            bool is_known = now[c] == launch->guard_pid;
            for (int b = 0; b < before_count; b++) {
                is_known |= now[c] == before[b];
            }
            if (!is_known) {
                adopted++;
                kill(now[c], SIGKILL);
                waitpid(now[c], NULL, WNOHANG);
            }
        }
        if (adopted == 0) {
            return;
        }
        poll(NULL, 0, 10);
    }
}

/* Shows the last lines of a task's log, because the console shows one task only. */
static void print_log_tail(const trmi_launch *launch, const trmi_task_process *task) {
    char data[TAIL_BYTES + 1];
    int fd = open(task->log, O_RDONLY | O_CLOEXEC);
    struct stat info;
    if (fd < 0) {
        return;
    }
    info.st_size = fstat(fd, &info) == 0 ? info.st_size : 0;
    off_t from = info.st_size > TAIL_BYTES ? info.st_size - TAIL_BYTES : 0;
    ssize_t bytes = pread(fd, data, TAIL_BYTES, from);
    close(fd);
    if (bytes <= 0) {
        trmi_launch_print_failure(launch->options, "%s is empty", task->log);
        return;
    }
    data[bytes] = '\0';
    /* go back TAIL_LINES lines */
    char *start = data + bytes;
    for (int lines = 0; start > data; start--) {
        if (start[-1] == '\n' && start - data < bytes && ++lines == TAIL_LINES) {
            break;
        }
    }
    trmi_launch_print_failure(launch->options, "the end of %s:", task->log);
    for (char *line; (line = strsep(&start, "\n")) != NULL;) {
        if (line[0] != '\0' || start != NULL) {
            trmi_launch_print_failure(launch->options, "| %.900s", line);
        }
    }
}

/* Fills the result and shows the end of the job. */
static void fill_result(trmi_launch *launch, trmi_launch_job *job) {
    trm_launch_result *result = job->result;
    result->seconds = trmi_os_now() - job->start_time;
    if (job->first_failed >= 0) {
        const trmi_task_process *task = &launch->tasks[job->first_failed];
        char text[64];
        trmi_launch_describe_end(task, text);
        result->failed_rank = task->index;
        result->failed_role = task->role;
        result->failed_signal = WIFSIGNALED(task->wait_status) ? WTERMSIG(task->wait_status) : 0;
        result->failed_code = WIFSIGNALED(task->wait_status) ? 0 : WEXITSTATUS(task->wait_status);
        /* Codes such as 143 say that the task ended after a signal, or that a shell reports its
         * child's death by one. */
        bool after_signal = result->failed_code > 128 && result->failed_code < 128 + NSIG;
        result->exit_code = result->failed_signal ? 128 + result->failed_signal
                            : after_signal        ? result->failed_code
                                                  : 2;
        trmi_launch_print_failure(launch->options, "%s %s", task->name, text);
        if (job->few_left >= 0) { /* the console may be that of a rank that has died */
            trmi_launch_print_failure(
                launch->options,
                "%d rank%s left, the job needs %d (--elastic); ranks that were started elsewhere "
                "are not counted, and go on if they are enough",
                job->few_left, job->few_left == 1 ? " is" : "s are",
                launch->options->elastic_least);
        }
        if (!task->console || launch->options->write == NULL) {
            print_log_tail(launch, task);
        }
    }
    if (job->timed_out) {
        result->exit_code = trm_status_exit_code(TRM_TIMEOUT);
    }
    if (job->stop_signal != 0) {
        result->exit_code = 128 + job->stop_signal;
    }
    trmi_launch_print_result(launch->options, result, job->stop_signal);
}

/* Blocks signals and receives them through a descriptor while the job runs. *before: the old
 * mask. */
static trm_status take_signals(trmi_launch *launch, sigset_t *before, trm_error *err) {
    static const int numbers[] = {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGCHLD};
    sigset_t set;
    sigemptyset(&set);
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        sigaddset(&set, numbers[i]);
    }
    sigprocmask(SIG_BLOCK, &set, before);
    launch->signal_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    return launch->signal_fd >= 0 ? TRM_OK : TRMI_FAIL_SYS(err, "no descriptor for signals");
}

/* Runs the job: folders, guardian, tasks, wait, end. */
static trm_status run_job(trmi_launch *launch, trmi_launch_job *job, trm_error *err) {
    TRMI_TRY(trmi_launch_directories(launch, err));
    TRMI_TRY(trmi_launch_guard(launch, err)); /* removes the list at the end */
    if (launch->options->elastic_least > 0) {
        trmi_place_begin_list(launch->rendezvous_path);
    }
    /* Become the reaper of orphaned descendants while the job runs. */
    int subreaper = 0;
    pid_t before[CHILDREN_MAX];
    int before_count = list_children(before, CHILDREN_MAX);
    prctl(PR_GET_CHILD_SUBREAPER, &subreaper);
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    trm_status status = TRM_OK;
    /* Start all tasks. If one cannot be started, the others end at once. */
    for (int32_t t = 0; t < launch->count && status == TRM_OK; t++) {
        if (launch->tasks[t].role == TRM_ROLE_WORKER && launch->options->role_count == 0) {
            trmi_launch_print(launch->options, "start training for device %d",
                              launch->tasks[t].index);
        }
        status = trmi_launch_spawn(launch, &launch->tasks[t], err);
    }
    if (status != TRM_OK) {
        job->ending = job->killed = true;
        signal_all(launch, SIGKILL);
    }
    /* Wait, then collect processes that the tasks have left. */
    wait_for_end(launch, job);
    kill_adopted(launch, before, before_count);
    if (status == TRM_OK) {
        fill_result(launch, job);
    }
    trmi_launch_guard_end(launch);
    prctl(PR_SET_CHILD_SUBREAPER, (unsigned long)subreaper);
    return status;
}

/* Contract in trireme/dist.h. Planning has no effect on the system, so --dry-run ends after it. */
trm_status trm_launch(const trm_launch_options *options, trm_launch_result *result,
                      trm_error *err) {
    TRMI_NEED(err, options, result);
    trmi_launch launch = {.options = options,
                          .guard_fd = -1,
                          .signal_fd = -1,
                          .out_fd = {-1, -1},
                          .out_log = -1,
                          .console_fd = {-1, -1}};
    *result = (trm_launch_result){.failed_rank = -1};
    trmi_launch_job job = {
        .result = result, .start_time = trmi_os_now(), .first_failed = -1, .few_left = -1};
    sigset_t before;
    /* Plan the job, which has no effect yet. */
    trm_status status = trmi_launch_plan(&launch, err);
    if (status != TRM_OK) {
        goto done;
    }
    if (options->dry_run) {
        show_plan(&launch);
        goto done;
    }
    /* Run it. */
    status = take_signals(&launch, &before, err);
    if (status == TRM_OK) {
        trmi_launch_print(options, "%d process%s, %d thread%s each%s", launch.count,
                          launch.count == 1 ? "" : "es", launch.threads,
                          launch.threads == 1 ? "" : "s",
                          launch.shared_cores ? ", cores shared: waiting ranks sleep" : "");
        status = run_job(&launch, &job, err);
    }
    /* Give everything back. */
    if (launch.signal_fd >= 0) {
        close(launch.signal_fd);
    }
    sigprocmask(SIG_SETMASK, &before, NULL);
    for (int i = 0; i < 2; i++) {
        if (launch.out_fd[i] >= 0) {
            close(launch.out_fd[i]);
        }
    }
    if (launch.out_log >= 0) {
        close(launch.out_log);
    }
done:
    trmi_launch_free(&launch);
    return status;
}
