/* SPDX-License-Identifier: Apache-2.0 */
/* The launcher decides what happens to a job when a task ends (contracts in launch.h):
 *
 *   ended well ------------------------------------------------> noted
 *   restarts are left, and a restart may help -----------------> started again
 *   an elastic job that has ranks enough without it -----------> noted: the others may wait for it
 *   else ------------------------------------------------------> the job has failed
 *
 * Of several failures the more likely cause counts (trmi_launch_rate_failure). */
#define _GNU_SOURCE
#include "comm/launch/launch.h"

#include "base/os.h"
#include "comm/rendezvous/side_place.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

enum { JOB_FAILED = 1, WRONG_USE = 2, PEER_FAILED = 5 }; /* exit codes of `trireme` */

int trmi_launch_rate_failure(const trmi_task_process *task) {
    int status = task->wait_status;
    if (WIFSIGNALED(status)) {
        return 3;
    }
    return WEXITSTATUS(status) == 0 ? 0 : WEXITSTATUS(status) == PEER_FAILED ? 1 : 2;
}

/* Returns true for failures that a restart would repeat: a diverged loss, wrong use. */
static bool fails_again(const trmi_task_process *task) {
    const int code = WEXITSTATUS(task->wait_status);
    return WIFEXITED(task->wait_status) && (code == JOB_FAILED || code == WRONG_USE);
}

/* Returns true for a failure of the task's own, even after SIGTERM was sent to it (for instance, a
 * failed save). */
static bool has_own_failure(const trmi_task_process *task) {
    return WIFEXITED(task->wait_status) && trmi_launch_rate_failure(task) == 2 &&
           WEXITSTATUS(task->wait_status) < 128;
}

void trmi_launch_describe_end(const trmi_task_process *task, char text[64]) {
    if (WIFSIGNALED(task->wait_status)) {
        int number = WTERMSIG(task->wait_status);
        snprintf(text, 64, "died of signal %d (%.30s)", number, strsignal(number));
    } else {
        snprintf(text, 64, "ended with exit code %d", WEXITSTATUS(task->wait_status));
    }
}

const trmi_task_process *trmi_launch_trainer(const trmi_launch *launch) {
    for (int32_t t = 0; t < launch->count; t++) {
        if (launch->tasks[t].running && launch->tasks[t].trains) {
            return &launch->tasks[t];
        }
    }
    return NULL;
}

/* Returns how many ranks an elastic job has beside the dead one: those that run, and those that
 * have ended with the job. One that has left it is none. */
static int32_t count_left(const trmi_launch *launch, const trmi_task_process *dead) {
    int32_t running = 0, ended = 0;
    for (int32_t t = 0; t < launch->count; t++) {
        const trmi_task_process *task = &launch->tasks[t];
        const bool counts = task->trains && task != dead;
        running += counts && task->running;
        ended += counts && !task->running && task->pid > 0 && trmi_launch_rate_failure(task) == 0;
    }
    const int32_t left = ended > 0 ? trmi_place_count_left(launch->rendezvous_path) : 0;
    return running + (ended > left ? ended - left : 0);
}

/* Returns whether an elastic job would go on without the rank if enough others are left. A failure
 * of a rank's own, which is neither a death nor that of a peer, is one of the job. */
static bool may_lack(const trmi_launch *launch, const trmi_launch_job *job,
                     const trmi_task_process *dead) {
    return launch->options->elastic_least > 0 && !job->ending && job->first_failed < 0 &&
           dead->trains && trmi_launch_rate_failure(dead) != 2;
}

/* Returns whether an elastic job goes on, with or without starting the dead rank again. */
static bool goes_on_without(const trmi_launch *launch, const trmi_launch_job *job,
                            const trmi_task_process *dead) {
    return may_lack(launch, job, dead) &&
           count_left(launch, dead) >= launch->options->elastic_least;
}

void trmi_launch_note_end(trmi_launch *launch, trmi_launch_job *job, int32_t index) {
    trmi_task_process *task = &launch->tasks[index];
    char text[64];
    trm_error err;
    task->running = false;
    task->ended_time = trmi_os_now();
    trmi_launch_describe_end(task, text);
    trmi_launch_signal(launch, task, 0); /* sends nothing: checks whether the group is empty */
    /* A task that ends with the code of SIGUSR1 stops the job: all tasks have been warned
     * already. */
    if (job->passed_usr1 && !job->ending && WIFEXITED(task->wait_status) &&
        WEXITSTATUS(task->wait_status) == 128 + SIGUSR1) {
        job->stop_signal = SIGUSR1;
        job->ending = true; /* all tasks have the signal already */
        job->ending_time = task->ended_time;
    }
    bool was_signalled = job->ending || (job->drained && !task->trains);
    const bool elastic = launch->options->elastic_least > 0;
    if (trmi_launch_rate_failure(task) == 0) {
        if (elastic && task->trains) {
            trmi_place_add_ended(launch->rendezvous_path);
        }
        return;
    }
    /* a rank of an elastic job that is started again joins one that runs */
    const bool runs = trmi_launch_trainer(launch) != NULL;
    const bool is_needed = !elastic || (runs && goes_on_without(launch, job, task));
    if (!was_signalled && task->restarts_left > 0 && is_needed && !fails_again(task)) {
        task->restarts_left--;
        trmi_launch_signal(launch, task, SIGKILL); /* processes that it has left behind */
        trmi_launch_print(launch->options, "%s %s; started again (%d more times)", task->name, text,
                          task->restarts_left);
        if (trmi_launch_spawn(launch, task, &err) == TRM_OK) {
            return;
        }
        trmi_launch_print_failure(launch->options, "%s", err.message);
    }
    if (was_signalled && (job->stop_signal != 0 || job->timed_out || job->drained)) {
        if (job->stop_signal != 0 && has_own_failure(task)) {
            trmi_launch_print_failure(launch->options, "%s %s", task->name, text);
        }
        return; /* it ended because of the signal */
    }
    if (goes_on_without(launch, job, task)) {
        trmi_launch_print(launch->options, "%s %s; %s", task->name, text,
                          runs ? "the job goes on without it" : "the others have ended the job");
        trmi_place_add_lost(launch->rendezvous_path, task->index); /* the others may wait for it */
        return;
    }
    if (job->first_failed < 0) {
        const bool died = trmi_launch_rate_failure(task) == 3 && may_lack(launch, job, task);
        job->few_left = died ? count_left(launch, task) : -1;
        job->first_failed = index;
        job->first_failed_time = task->ended_time;
    } else if (!job->ending && trmi_launch_rate_failure(task) >
                                   trmi_launch_rate_failure(&launch->tasks[job->first_failed])) {
        job->first_failed = index; /* the earlier one may only have noticed this failure */
    }
    if (task->role == TRM_ROLE_EVALUATOR) {
        trmi_launch_print(launch->options, "%s %s; training goes on without it", task->name, text);
    }
}
