/* SPDX-License-Identifier: Apache-2.0 */
/* Starting and signalling the processes of a job, and the guardian, a process that outlives the
 * launcher and then kills the job's process groups.
 *
 *   launcher --_Fork--> become --exec--> task (a process group of its own)
 *       |  socket: groups that start and end
 *       +--_Fork--> guard: when the socket closes, SIGKILL to the groups that are left
 *
 * A task ends with the launcher in two ways: PR_SET_PDEATHSIG kills the task itself, and the
 * guardian kills the processes that the task has started. */
#define _GNU_SOURCE
#include "comm/launch/launch.h"

#include "base/error.h"
#include "base/os.h"
#include "comm/cluster/cluster_json.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

/* Returns true for variables that look like secrets: their values are left out of env<i>.log. */
static bool is_secret(const char *variable) {
    static const char *const marks[] = {"SECRET",  "PASSWORD", "PASSWD",
                                        "_TOKEN=", "_KEY=",    "CREDENTIAL"};
    /* A mark counts only in the name, up to its "=". */
    size_t length = strcspn(variable, "=") + 1;
    for (size_t m = 0; m < sizeof marks / sizeof marks[0]; m++) {
        const char *found = strstr(variable, marks[m]);
        if (found != NULL && (size_t)(found - variable) < length) {
            return true;
        }
    }
    return false;
}

/* Writes the environment of a task to its env log (mode 0600). */
static trm_status write_environment(const trmi_task_process *task, trm_error *err) {
    trmi_text text = {0};
    for (char **one = task->env; *one != NULL; one++) {
        if (is_secret(*one)) {
            trmi_text_printf(&text, "%.*s=(not shown)\n", (int)strcspn(*one, "="), *one);
        } else {
            trmi_text_printf(&text, "%s\n", *one);
        }
    }
    int fd = open(task->env_log, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0) {
        trmi_text_free(&text);
        return TRMI_FAIL_SYS(err, "%s", task->env_log);
    }
    trm_status status = trmi_os_write_all(NULL, fd, text.data, text.length, task->env_log, err);
    close(fd);
    trmi_text_free(&text);
    return status;
}

trm_status trmi_launch_directories(trmi_launch *launch, trm_error *err) {
    for (int32_t t = 0; t < launch->count; t++) {
        trmi_task_process *task = &launch->tasks[t];
        TRMI_TRY(trmi_os_make_dirs(NULL, task->dir, err));
        TRMI_TRY(write_environment(task, err));
        int fd = open(task->log, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
        if (fd < 0) {
            return TRMI_FAIL_SYS(err, "%s", task->log);
        }
        close(fd);
    }
    return TRM_OK;
}

/* Turns the forked child into the task; calls only async-signal-safe functions. If exec fails it
 * writes errno to `report`. */
static _Noreturn void exec_task(const trmi_launch *launch, const trmi_task_process *task,
                                const int outputs[2], int report, pid_t parent) {
    sigset_t none;
    int null = open("/dev/null", O_RDONLY);
    /* The task leads a process group, so that a signal reaches its children too. */
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) {
        _exit(127); /* the launcher died before prctl: the signal will not come */
    }
    /* Signals as a program expects them. */
    for (int s = 1; s < NSIG; s++) {
        signal(s, SIG_DFL);
    }
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    /* Bind the task to its cores. */
    if (task->core_count > 0) {
        cpu_set_t set;
        CPU_ZERO(&set);
        for (int32_t c = 0; c < task->core_count; c++) {
            CPU_SET(launch->cores[task->first_core + c], &set);
        }
        sched_setaffinity(0, sizeof set, &set);
    }
    /* Redirect its input and outputs. */
    if (null >= 0) {
        dup2(null, 0);
    }
    /* Of an elastic job each rank may become the one whose output is shown. */
    if (launch->console_fd[0] >= 0) {
        dup2(launch->console_fd[0], TRMI_LAUNCH_CONSOLE_OUT);
        dup2(launch->console_fd[1], TRMI_LAUNCH_CONSOLE_ERR);
    }
    if (dup2(outputs[0], 1) >= 0 && dup2(outputs[1], 2) >= 0) {
        execvpe(task->command[0], (char *const *)(uintptr_t)task->command, task->env);
    }
    /* exec has failed: report why. */
    int problem = errno;
    ssize_t told = write(report, &problem, sizeof problem);
    (void)told;
    _exit(127);
}

/* Opens the outputs of a task: pipes to the launcher for the console task, otherwise the log
 * itself. */
static trm_status open_outputs(trmi_launch *launch, const trmi_task_process *task, int outputs[2],
                               trm_error *err) {
    int log = open(task->log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    if (log < 0) {
        return TRMI_FAIL_SYS(err, "%s", task->log);
    }
    outputs[0] = outputs[1] = log;
    /* A rank that comes back is not the first any more: its output goes to its log, until it is. */
    bool comes_back = launch->console_fd[0] >= 0;
    if (!task->console || comes_back) {
        return TRM_OK;
    }
    int pipes[2][2];
    if (pipe2(pipes[0], O_CLOEXEC) != 0 || pipe2(pipes[1], O_CLOEXEC) != 0) {
        close(log);
        return TRMI_FAIL_SYS(err, "no pipe for the output of %s", task->name);
    }
    /* The launcher's ends of the pipes. A restarted task gets new ones. */
    if (launch->out_log >= 0) { /* a restart */
        close(launch->out_log);
    }
    launch->out_log = log;
    for (int i = 0; i < 2; i++) {
        if (launch->out_fd[i] >= 0) {
            close(launch->out_fd[i]);
        }
        launch->out_fd[i] = pipes[i][0];
        fcntl(pipes[i][0], F_SETFL, O_NONBLOCK);
        outputs[i] = pipes[i][1];
        if (launch->options->elastic_least > 0) { /* above the numbers that the tasks get */
            launch->console_fd[i] = fcntl(pipes[i][1], F_DUPFD_CLOEXEC, 40);
        }
    }
    return TRM_OK;
}

/* Reports a process group to the guardian: positive when it starts, negative when it is empty. A
 * dead guardian is not noticed here: trmi_launch_guard_keep starts it again with all groups. */
static void tell_guard(const trmi_launch *launch, int32_t group) {
    if (launch->guard_fd >= 0) {
        (void)!send(launch->guard_fd, &group, sizeof group, MSG_NOSIGNAL);
    }
}

/* Contract in launch.h. Whether exec succeeded is known through a pipe that exec closes: an end
 * without data means success, four bytes are the child's errno. The guard learns of the child at
 * once, so that it ends it if the launcher dies. */
trm_status trmi_launch_spawn(trmi_launch *launch, trmi_task_process *task, trm_error *err) {
    int outputs[2] = {-1, -1}, report[2], problem = 0;
    char part[64];
    pid_t parent = getpid();
    TRMI_TRY(open_outputs(launch, task, outputs, err));
    /* A pipe through which the child reports a failure of exec. */
    if (pipe2(report, O_CLOEXEC) != 0) {
        report[0] = report[1] = -1;
        problem = errno;
    }
    /* _Fork, because handlers of fork() are for programs that continue in the child. */
    pid_t pid = problem == 0 ? _Fork() : -1;
    if (pid == 0) {
        exec_task(launch, task, outputs, report[1], parent);
    }
    /* The parent closes the child's ends, also after an error. */
    problem = pid < 0 && problem == 0 ? errno : problem;
    close(outputs[0]);
    if (outputs[1] != outputs[0]) {
        close(outputs[1]);
    }
    if (pid < 0) {
        if (report[0] >= 0) {
            close(report[0]);
            close(report[1]);
        }
        errno = problem;
        return TRMI_FAIL_SYS(err, "%s cannot be started", task->name);
    }
    setpgid(pid, pid); /* in parent and child, because either may run first */
    tell_guard(launch, (int32_t)pid);
    /* The pipe closes without data when exec succeeds. */
    close(report[1]);
    ssize_t bytes;
    do {
        bytes = read(report[0], &problem, sizeof problem);
    } while (bytes < 0 && errno == EINTR);
    close(report[0]);
    if (bytes == (ssize_t)sizeof problem) {
        waitpid(pid, NULL, 0);
        tell_guard(launch, -(int32_t)pid);
        return TRMI_FAIL(err, TRM_INVALID, "%s cannot run \"%s\" (%s)", task->name,
                         trmi_printable(task->command[0], part, sizeof part), strerror(problem));
    }
    task->pid = pid;
    task->running = task->group_alive = true;
    return TRM_OK;
}

void trmi_launch_signal(trmi_launch *launch, trmi_task_process *task, int signal_number) {
    if (!task->group_alive) {
        return;
    }
    if (kill(-task->pid, signal_number) != 0 && errno == ESRCH && !task->running) {
        task->group_alive = false; /* empty: the number may soon belong to other processes */
        tell_guard(launch, -(int32_t)task->pid);
    }
    if (signal_number == SIGTERM || signal_number == SIGINT) {
        kill(-task->pid, SIGCONT); /* a stopped process receives no other signal before */
    }
}

/* Removes the files that a rank 0 which was killed at the rendezvous leaves in /tmp. */
static void remove_meeting_files(const trmi_launch *launch) {
    static const char *const endings[] = {"", ".lock", ".lost"};
    char name[120];
    for (int i = 0; launch->rendezvous_path[0] != '\0' && i < 3; i++) {
        snprintf(name, sizeof name, "%s%s", launch->rendezvous_path, endings[i]);
        unlink(name);
    }
}

/* The guardian: reads groups (positive: started, negative: gone) until the launcher's end of the
 * socket is closed for any reason, then kills the groups that are left. */
static _Noreturn void guardian_main(int fd, const trmi_launch *launch) {
    enum { GROUPS = 4096 };
    static int32_t groups[GROUPS];
    int32_t count = 0, group;
    /* The guardian must survive what ends the launcher: signals, its terminal, its session. */
    setsid();
    for (int s = 1; s < NSIG; s++) {
        signal(s, SIG_IGN);
    }
    int null = open("/dev/null", O_RDWR);
    for (int i = 0; i < 3; i++) {
        dup2(null, i);
    }
    /* Keep only the socket, so that no pipe of a task stays open here. */
    dup2(fd, 3);
    closefrom(4);
    /* Keep the list of groups until the launcher ends. */
    while (read(3, &group, sizeof group) == (ssize_t)sizeof group) {
        if (group > 0 && count < GROUPS) {
            groups[count++] = group;
        }
        for (int32_t g = 0; group < 0 && g < count; g++) {
            if (groups[g] == -group) {
                groups[g] = groups[--count];
            }
        }
    }
    /* The launcher is gone: end the groups that it has not reported as gone. */
    for (int32_t g = 0; g < count; g++) {
        kill(-groups[g], SIGKILL);
    }
    remove_meeting_files(launch);
    _exit(0);
}

/* _Fork instead of fork: LLVM's OpenMP would initialise itself again in the child of a fork and
 * leave a file in /dev/shm. */
trm_status trmi_launch_guard(trmi_launch *launch, trm_error *err) {
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
        return TRMI_FAIL_SYS(err, "no socket for the guardian process");
    }
    launch->guard_pid = _Fork();
    if (launch->guard_pid == 0) {
        close(ends[1]);
        guardian_main(ends[0], launch);
    }
    close(ends[0]);
    if (launch->guard_pid < 0) {
        close(ends[1]);
        launch->guard_pid = 0;
        return TRMI_FAIL_SYS(err, "the guardian process cannot be started");
    }
    launch->guard_fd = ends[1];
    return TRM_OK;
}

/* Contract in launch.h. Called now and then: a guardian that was killed is replaced, because
 * without it the job would survive a kill -9 of the launcher. */
void trmi_launch_guard_keep(trmi_launch *launch) {
    trm_error err;
    if (launch->guard_pid <= 0 || waitpid(launch->guard_pid, NULL, WNOHANG) <= 0) {
        return;
    }
    close(launch->guard_fd);
    launch->guard_fd = -1;
    launch->guard_pid = 0;
    if (trmi_launch_guard(launch, &err) != TRM_OK) {
        trmi_launch_print(
            launch->options,
            "the guardian process has died: %s; should the launcher be killed, its processes "
            "stay",
            err.message);
        return;
    }
    /* The new guardian has no groups yet. */
    for (int32_t t = 0; t < launch->count; t++) {
        if (launch->tasks[t].group_alive) {
            tell_guard(launch, (int32_t)launch->tasks[t].pid);
        }
    }
    trmi_launch_print(launch->options, "the guardian process has died; started again");
}

void trmi_launch_guard_end(trmi_launch *launch) {
    if (launch->guard_fd >= 0) {
        close(launch->guard_fd);
        launch->guard_fd = -1;
    }
    if (launch->guard_pid > 0) {
        waitpid(launch->guard_pid, NULL, 0);
        launch->guard_pid = 0;
    }
}
