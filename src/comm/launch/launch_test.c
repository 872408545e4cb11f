/* SPDX-License-Identifier: Apache-2.0 */
/* The launcher (trm_launch) with small shell programs as ranks: how a job ends, failures, signals,
 * time limits, orphans, roles.
 *
 * launch_script runs a job in this process and collects what ranks and launcher write;
 * launcher_under_signal gives the launcher a process of its own. Tests look at exit codes, at
 * these texts and at /proc: no process of the job may be left. All files are in one temporary
 * folder. */
#include "check.h"

#include "trireme/dist.h"

#include "base/memory.h"
#include "base/os.h"

#include <dirent.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

static char directory[] = "/tmp/launchtestXXXXXX";

typedef struct spoken {
    trmi_text out, err, say;
} spoken;

static void collect_output(void *context, trm_launch_stream stream, const char *data,
                           size_t bytes) {
    spoken *all = context;
    trmi_text *text = stream == TRM_LAUNCH_OUT   ? &all->out
                      : stream == TRM_LAUNCH_ERR ? &all->err
                                                 : &all->say;
    trmi_text_append(text, data, bytes);
    if (stream == TRM_LAUNCH_NOTE || stream == TRM_LAUNCH_FAILURE) {
        trmi_text_append(text, "\n", 1);
    }
}

static void free_output(spoken *all) {
    trmi_text_free(&all->out);
    trmi_text_free(&all->err);
    trmi_text_free(&all->say);
    memset(all, 0, sizeof *all);
}

static const char *const path_only[] = {"PATH=/usr/bin:/bin", NULL};
#define SHELL(text) ((const char *const[]){"sh", "-c", (text), NULL})

static trm_launch_result launch_script(const char *script, int ranks, spoken *all,
                                       const trm_launch_options *more) {
    trm_launch_options options = more ? *more : (trm_launch_options){0};
    trm_launch_result result;
    trm_error err;
    options.command = SHELL(script);
    options.ranks = ranks;
    options.environment = options.environment ? options.environment : path_only;
    options.directory = directory;
    options.write = options.write ? options.write : collect_output;
    options.context = all;
    memset(all, 0, sizeof *all);
    CHECK_OK(trm_launch(&options, &result, &err), err);
    return result;
}

static char *read_text(const char *name) {
    static char text[65536];
    char path[128];
    snprintf(path, sizeof path, "%s/%s", directory, name);
    FILE *file = fopen(path, "r");
    if (file == NULL) {
        fail_msg("%s is missing", path);
    }
    size_t bytes = fread(text, 1, sizeof text - 1, file);
    text[bytes] = '\0';
    fclose(file);
    return text;
}

static bool has_part(const trmi_text *text, const char *part) {
    return text->data != NULL && strstr(text->data, part) != NULL;
}

static const char servers_ended[] = "all parameter servers have ended, but worker 0 still runs";

/* Collects output (collect_output), and makes the file DIRECTORY/told when the launcher has said
 * that only the worker still runs. */
static void tell_worker(void *context, trm_launch_stream stream, const char *data, size_t bytes) {
    char path[128];
    collect_output(context, stream, data, bytes);
    if (has_part(&((const spoken *)context)->say, servers_ended)) {
        snprintf(path, sizeof path, "%s/told", directory);
        const int file = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
        assert_true(file >= 0);
        close(file);
    }
}

static void log_path(int rank, char path[128]) {
    snprintf(path, 128, "%s/device%d/train.log%d", directory, rank, rank);
}

/* Removes the logs of the test before. */
static void forget_logs(int ranks) {
    char path[128];
    for (int r = 0; r < ranks; r++) {
        log_path(r, path);
        unlink(path);
    }
}

static void wait_until_ready(int ranks) {
    char path[128], line[16] = "";
    double deadline = trmi_os_now() + 20;
    for (int r = 0; r < ranks; r++) {
        log_path(r, path);
        do {
            FILE *file = fopen(path, "r");
            if (file == NULL || fgets(line, sizeof line, file) == NULL) {
                usleep(5000);
            }
            if (file != NULL) {
                fclose(file);
            }
        } while (strcmp(line, "ready\n") != 0 && trmi_os_now() < deadline);
        line[0] = '\0';
    }
}

static void ranks_run_as_in_guide_002(void **state) {
    spoken all;
    trm_launch_options more = {
        .environment = (const char *const[]){"PATH=/usr/bin:/bin", "RANK=9",
                                             "OMPI_COMM_WORLD_RANK=4", "SLURM_PROCID=3",
                                             "TF_CONFIG=x", "MY_PASSWORD=hush", "KEPT=yes", NULL},
        .extra = (const char *const[]){"MORE=1", "KEPT=no", NULL}};
    trm_launch_result result =
        launch_script("echo out of $RANK_ID; echo err of $RANK_ID >&2; echo see "
                      "$RANK_ID,$RANK_SIZE,$DEVICE_ID,$RANK,$OMPI_COMM_WORLD_RANK,$SLURM_PROCID,"
                      "$TF_CONFIG,$KEPT,$MORE,$TRIREME_RANK/$TRIREME_SIZE,$OMP_WAIT_POLICY,"
                      "$OMP_NUM_THREADS",
                      8, &all, &more);
    assert_int_equal(result.exit_code, 0);
    assert_int_equal(result.failed_rank, -1);
    assert_true(has_part(&all.say, "start training for device 7\n"));
    assert_true(has_part(&all.say, "training success\n"));
    assert_string_equal(all.err.data, "err of 0\n"); /* rank 0 on the console, the others not */
    assert_memory_equal(all.out.data, "out of 0\nsee 0,8,0,", 19);
    assert_null(strstr(all.out.data, "out of 1"));
    const char *policy = trmi_os_cpu_count() < 8 ? "passive" : "";
    char expected[128];
    sprintf(expected, "out of 3\nerr of 3\nsee 3,8,3,,,,,no,1,3/8,%s,%d\n", policy,
            trmi_os_cpu_count() < 16 ? 1 : trmi_os_cpu_count() / 8);
    assert_string_equal(read_text("device3/train.log3"), expected);
    assert_non_null(strstr(read_text("device0/train.log0"), "out of 0"));
    const char *env = read_text("device5/env5.log");
    assert_non_null(strstr(env, "RANK_ID=5\n"));
    assert_non_null(strstr(env, "TRIREME_RENDEZVOUS=unix:/tmp/trireme-"));
    assert_non_null(strstr(env, "MY_PASSWORD=(not shown)\n"));
    assert_null(strstr(env, "hush"));
    free_output(&all);
}

static void failures_end_the_others_and_are_named(void **state) {
    spoken all;
    trm_launch_result result = launch_script(
        "if [ $RANK_ID = 2 ]; then echo the disk is gone >&2; exit 3; fi; sleep 30", 4, &all, NULL);
    assert_int_equal(result.exit_code, 2);
    assert_int_equal(result.failed_rank, 2);
    assert_int_equal(result.failed_code, 3);
    assert_true(result.seconds < 8);
    assert_true(has_part(&all.say, "rank 2 ended with exit code 3"));
    assert_true(has_part(&all.say, "device2/train.log2:\n| the disk is gone\n"));
    assert_true(has_part(&all.say, "training failed\n"));
    free_output(&all);
    /* guide 002 looked at rank 0 only and never waited for the others */
    result = launch_script("if [ $RANK_ID = 0 ]; then exit 0; fi; sleep 0.2; exit $RANK_ID", 2,
                           &all, NULL);
    assert_int_equal(result.exit_code, 2);
    assert_int_equal(result.failed_rank, 1);
    free_output(&all);
    result = launch_script("[ $RANK_ID = 1 ] && kill -9 $$; sleep 30", 3, &all, NULL);
    assert_int_equal(result.exit_code, 128 + SIGKILL);
    assert_int_equal(result.failed_rank, 1);
    assert_int_equal(result.failed_signal, SIGKILL);
    assert_true(has_part(&all.say, "rank 1 died of signal 9 (Killed)"));
    free_output(&all);
    /* the rank that caused the failure, not the ranks that noticed it (exit code 5: a peer
     * failed) */
    char script[400];
    snprintf(script, sizeof script,
             "if [ $RANK_ID = 2 ]; then touch %s/about; sleep 0.03; exit 7; fi; "
             "if [ $RANK_ID = 0 ]; then until [ -e %s/about ]; do sleep 0.01; done; exit 5; fi; "
             "sleep 30",
             directory, directory);
    result = launch_script(script, 3, &all, NULL);
    assert_int_equal(result.failed_rank, 2);
    assert_int_equal(result.failed_code, 7);
    free_output(&all);
}

static void wrong_programs_are_refused(void **state) {
    trm_launch_options options = {.ranks = 2,
                                  .command = (const char *const[]){"/no/such/program", NULL},
                                  .environment = path_only,
                                  .directory = directory};
    trm_launch_result result;
    trm_error err;
    CHECK_FAILS(trm_launch(&options, &result, &err), TRM_INVALID, err,
                "rank 0 cannot run \"/no/such/program\" (No such file or directory)");
    options.ranks = 0;
    CHECK_FAILS(trm_launch(&options, &result, &err), TRM_INVALID, err, "0 processes; 1 to 1024");
    options = (trm_launch_options){.ranks = 2};
    CHECK_FAILS(trm_launch(&options, &result, &err), TRM_INVALID, err, "no program to run");
    trm_launch_role twice[] = {{.role = TRM_ROLE_PS, .count = 1},
                               {.role = TRM_ROLE_PS, .count = 1}};
    options = (trm_launch_options){.roles = twice, .role_count = 2, .command = SHELL("true")};
    CHECK_FAILS(trm_launch(&options, &result, &err), TRM_INVALID, err, "role ps is given twice");
    trm_launch_role chiefs[] = {{.role = TRM_ROLE_CHIEF, .count = 2}};
    options.roles = chiefs;
    options.role_count = 1;
    CHECK_FAILS(trm_launch(&options, &result, &err), TRM_INVALID, err, "at most 1 expected");
}

/* Returns whether no process "sleep MARK" exists. */
static bool nobody_left(const char *mark) {
    DIR *proc = opendir("/proc");
    bool found = false;
    assert_non_null(proc);
    for (struct dirent *one; (one = readdir(proc)) != NULL && !found;) {
        char path[300], line[64] = "";
        snprintf(path, sizeof path, "/proc/%s/cmdline", one->d_name);
        FILE *file = fopen(path, "r");
        if (file != NULL) {
            size_t bytes = fread(line, 1, sizeof line - 1, file);
            line[bytes] = '\0';
            found = strcmp(line, "sleep") == 0 && strcmp(line + 6, mark) == 0;
            fclose(file);
        }
    }
    closedir(proc);
    return !found;
}

static void the_look_for_orphans_finds_them(void **state) {
    char mark[32];
    sprintf(mark, "6%d", getpid());
    pid_t pid = fork();
    if (pid == 0) {
        execlp("sleep", "sleep", mark, NULL);
        _exit(1);
    }
    for (int i = 0; i < 100 && nobody_left(mark); i++) {
        usleep(10000);
    }
    assert_false(nobody_left(mark));
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    assert_true(nobody_left(mark));
}

static void grandchildren_do_not_outlive_the_job(void **state) {
    spoken all;
    char script[400];
    sprintf(script, "sleep 7%d & setsid sleep 7%d & sleep 0.1; exit 0", getpid(), getpid());
    char mark[32];
    sprintf(mark, "7%d", getpid());
    trm_launch_result result = launch_script(script, 3, &all, NULL);
    assert_int_equal(result.exit_code, 0);
    assert_true(nobody_left(mark));
    free_output(&all);
    /* those that ignore SIGTERM are killed after the grace */
    snprintf(script, sizeof script,
             "trap '' TERM; if [ $RANK_ID = 1 ]; then until [ -e %s/deaf ]; do sleep 0.01; done; "
             "exit 1; fi; touch %s/deaf; sleep 7%d; sleep 7%d",
             directory, directory, getpid(), getpid());
    result = launch_script(script, 2, &all, &(trm_launch_options){.grace_seconds = 0.3});
    assert_int_equal(result.exit_code, 2);
    assert_true(result.seconds < 8);
    assert_true(has_part(&all.say, "killed"));
    assert_true(nobody_left(mark));
    free_output(&all);
}

static void time_limits_end_the_job(void **state) {
    spoken all;
    trm_launch_result result = launch_script("[ $RANK_ID = 0 ] && exit 0; sleep 30", 2, &all,
                                             &(trm_launch_options){.timeout_seconds = 1.5});
    assert_int_equal(result.exit_code, 5);
    assert_true(result.seconds < 8);
    assert_true(has_part(&all.say, "rank 1 still runs after"));
    assert_false(has_part(&all.say, "rank 0 still runs"));
    free_output(&all);
}

/* Runs the launcher in a process of its own and sends it `first` (and `second`) once both ranks
 * have said "ready". */
static int launcher_under_signal(const char *script, int first, int second, double *seconds) {
    double start = trmi_os_now();
    int status;
    forget_logs(2);
    pid_t pid = fork();
    if (pid == 0) {
        spoken all;
        alarm(30);
        trm_launch_result result = launch_script(script, 2, &all, NULL);
        _exit(result.exit_code);
    }
    wait_until_ready(2);
    kill(pid, first);
    if (second != 0) {
        usleep(200000);
        kill(pid, second);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    *seconds = trmi_os_now() - start;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

static void signals_are_forwarded(void **state) {
    char script[256], mark[32];
    double seconds;
    sprintf(mark, "8%d", getpid());
    sprintf(script, "trap 'echo saved; exit 0' INT TERM; echo ready; sleep 8%d & wait", getpid());
    assert_int_equal(launcher_under_signal(script, SIGINT, 0, &seconds), 130);
    assert_true(seconds < 8); /* the grace is 10 */
    assert_non_null(strstr(read_text("device1/train.log1"), "saved"));
    assert_int_equal(launcher_under_signal(script, SIGTERM, 0, &seconds), 143);
    /* the second signal does not wait for the grace */
    sprintf(script, "trap '' INT TERM; echo ready; while :; do sleep 0.05; done");
    assert_int_equal(launcher_under_signal(script, SIGINT, SIGINT, &seconds), 130);
    assert_true(seconds < 8); /* the grace is 10 */
    sprintf(script, "trap 'echo user' USR1; echo ready; for i in 1 2 3 4 5 6 7 8 9; do sleep 0.1; "
                    "done; exit 0");
    assert_int_equal(launcher_under_signal(script, SIGUSR1, 0, &seconds), 0);
    assert_non_null(strstr(read_text("device1/train.log1"), "user"));
    assert_true(nobody_left(mark));
}

/* The child that leads a session of its own: the guardian. */
static pid_t guardian_of(pid_t launcher) {
    char path[64];
    int pid;
    snprintf(path, sizeof path, "/proc/%d/task/%d/children", (int)launcher, (int)launcher);
    for (double deadline = trmi_os_now() + 20; trmi_os_now() < deadline; usleep(5000)) {
        FILE *file = fopen(path, "r");
        while (file != NULL && fscanf(file, "%d", &pid) == 1) {
            if (getsid((pid_t)pid) == (pid_t)pid) {
                fclose(file);
                return (pid_t)pid;
            }
        }
        if (file != NULL) {
            fclose(file);
        }
    }
    fail_msg("no guardian");
    return -1;
}

static void a_dead_guardian_is_started_again(void **state) {
    char script[256], mark[32];
    int status;
    sprintf(mark, "7%d", getpid());
    sprintf(script, "trap 'exit 0' TERM; echo ready; sleep 7%d & wait", getpid());
    for (int round = 0; round < 2;
         round++) { /* the launcher goes on, and the new guardian guards */
        forget_logs(2);
        pid_t launcher = fork();
        if (launcher == 0) {
            spoken all;
            trm_launch_result result = launch_script(script, 2, &all, NULL);
            _exit(has_part(&all.say, "guardian process has died; started again\n") &&
                          has_part(&all.say, "training stopped by signal 15 (Terminated)\n") &&
                          !has_part(&all.say, "training failed")
                      ? result.exit_code
                      : 99);
        }
        wait_until_ready(2);
        pid_t guardian = guardian_of(launcher);
        kill(guardian, SIGKILL);
        double deadline = trmi_os_now() + 20;
        while (guardian_of(launcher) == guardian && trmi_os_now() < deadline) {
            usleep(5000);
        }
        assert_true(guardian_of(launcher) != guardian);
        usleep(200000); /* it has been told of the groups */
        kill(launcher, round == 0 ? SIGTERM : SIGKILL);
        waitpid(launcher, &status, 0);
        assert_true(round == 0 ? WIFEXITED(status) && WEXITSTATUS(status) == 143
                               : WIFSIGNALED(status));
        for (int i = 0; i < 200 && !nobody_left(mark); i++) {
            usleep(20000);
        }
        assert_true(nobody_left(mark));
    }
}

static void a_killed_launcher_leaves_no_orphans(void **state) {
    char script[256], mark[32];
    double seconds;
    sprintf(mark, "9%d", getpid());
    sprintf(script, "trap '' TERM INT HUP; echo ready; sleep 9%d & sleep 9%d & wait", getpid(),
            getpid());
    assert_int_equal(launcher_under_signal(script, SIGKILL, 0, &seconds), 1000 + SIGKILL);
    for (int i = 0; i < 100 && !nobody_left(mark); i++) {
        usleep(20000);
    }
    assert_true(nobody_left(mark));
}

static void roles_get_their_tf_config(void **state) {
    spoken all;
    trm_launch_role roles[] = {
        {.role = TRM_ROLE_PS, .count = 2, .command = SHELL("echo $TF_CONFIG; sleep 60")},
        {.role = TRM_ROLE_WORKER, .count = 3},
        {.role = TRM_ROLE_EVALUATOR, .count = 1, .command = SHELL("exit 4")}};
    trm_launch_options more = {.roles = roles, .role_count = 3, .drain_seconds = 0.2};
    trm_launch_result result = launch_script("echo $TF_CONFIG; sleep 0.3", 0, &all, &more);
    /* the launcher ends the server when the workers are done, which is success. The evaluator's
     * failure ends no process, but the job has failed. */
    assert_int_equal(result.exit_code, 2);
    assert_int_equal(result.failed_role, TRM_ROLE_EVALUATOR);
    assert_true(has_part(&all.say, "training goes on without it"));
    assert_true(has_part(&all.say, "sending SIGTERM to the parameter servers"));
    trm_cluster *cluster;
    trm_error err;
    for (int i = 0; i < 3; i++) {
        char name[64], value[4096];
        sprintf(name, "device%d/train.log%d", i, i);
        snprintf(value, sizeof value, "%s", read_text(name));
        setenv("TF_CONFIG", value, 1);
        CHECK_OK(trm_cluster_from_env(NULL, NULL, NULL, &cluster, &err), err);
        assert_int_equal(trm_cluster_get(cluster)->rank, i);
        assert_int_equal(trm_cluster_get(cluster)->size, 3);
        assert_int_equal(trm_cluster_task_count(cluster, TRM_ROLE_PS), 2);
        trm_cluster_destroy(cluster);
    }
    unsetenv("TF_CONFIG");
    assert_non_null(
        strstr(read_text("ps1/train.log1"), "\"task\": {\"type\": \"ps\", \"index\": 1}"));
    free_output(&all);
    more.role_count = 2;
    result = launch_script("sleep 0.1", 0, &all, &more);
    assert_int_equal(result.exit_code, 0);
    free_output(&all);
}

static void servers_are_started_again(void **state) {
    spoken all;
    char server[256], worker[256];
    sprintf(server, "[ -e %s/once ] && { touch %s/again; sleep 60; }; touch %s/once; kill -9 $$",
            directory, directory, directory);
    sprintf(worker, "until [ -e %s/again ]; do sleep 0.02; done", directory);
    trm_launch_role roles[] = {
        {.role = TRM_ROLE_PS, .count = 1, .command = SHELL(server), .restarts = 2},
        {.role = TRM_ROLE_WORKER, .count = 1}};
    trm_launch_options more = {
        .roles = roles, .role_count = 2, .drain_seconds = 0.1, .timeout_seconds = 60};
    trm_launch_result result = launch_script(worker, 0, &all, &more);
    assert_int_equal(result.exit_code, 0);
    assert_true(has_part(&all.say, "ps 0 died of signal 9 (Killed); started again (1 more times)"));
    free_output(&all);
    /* A process whose loss diverged is not started again, because it would diverge again; a process
     * that ended because a peer failed is. */
    roles[1].restarts = 2;
    more.roles = roles;
    result = launch_script("exit 1", 0, &all, &more);
    assert_int_equal(result.exit_code, 2);
    assert_int_equal(result.failed_code, 1);
    assert_false(has_part(&all.say, "worker 0 ended with exit code 1; started again"));
    free_output(&all);
    launch_script("exit 2", 0, &all, &more);
    assert_false(has_part(&all.say, "started again"));
    free_output(&all);
    sprintf(worker, "[ -e %s/peer ] && exit 0; touch %s/peer; exit 5", directory, directory);
    result = launch_script(worker, 0, &all, &more);
    assert_int_equal(result.exit_code, 0);
    assert_true(
        has_part(&all.say, "worker 0 ended with exit code 5; started again (1 more times)"));
    free_output(&all);
}

/* Rank 1 of an elastic job of two ends well, then rank 0 dies. If rank 1 has ended with the job,
 * the job is good, and rank 0 has no job to join again; if it had left, the job has failed. */
static void the_last_rank_of_an_elastic_job_dies(void **state) {
    static const char script[] = "list=${TRIREME_RENDEZVOUS#unix:}.lost\n"
                                 "if [ $RANK_ID = 1 ]; then %s exit 0; fi\n"
                                 "until grep -q ended $list; do sleep 0.02; done\n"
                                 "kill -9 $$";
    for (int leaves = 0; leaves < 2; leaves++) {
        spoken all;
        char text[512];
        snprintf(text, sizeof text, script, leaves ? "echo left >> $list;" : "");
        forget_logs(2);
        trm_launch_result result =
            launch_script(text, 2, &all,
                          &(trm_launch_options){
                              .elastic_least = 1, .elastic_restarts = 3, .timeout_seconds = 60});
        assert_int_equal(result.exit_code, leaves ? 128 + SIGKILL : 0);
        assert_false(has_part(&all.say, "started again"));
        assert_true(has_part(&all.say, leaves ? "0 ranks are left, the job needs 1"
                                              : "the others have ended the job"));
        free_output(&all);
    }
    (void)state;
}

/* A server that ends with code 0 while the job runs is an error that names it, or it is started
 * again. */
static void servers_that_leave_early_are_missed(void **state) {
    (void)state;
    spoken all;
    char server[256], worker[256];
    trm_launch_role roles[] = {
        {.role = TRM_ROLE_PS,
         .count = 2,
         .command = SHELL("case $TF_CONFIG in *'\"ps\", \"index\": 1'*) exit 0;; esac; sleep 60")},
        {.role = TRM_ROLE_WORKER, .count = 1}};
    trm_launch_options more = {.roles = roles, .role_count = 2, .drain_seconds = 0.3};
    double begun = trmi_os_now();
    trm_launch_result result = launch_script("sleep 60", 0, &all, &more);
    assert_true(trmi_os_now() - begun < 30);
    assert_int_equal(result.exit_code, 2);
    assert_int_equal(result.failed_role, TRM_ROLE_PS);
    assert_int_equal(result.failed_rank, 1);
    assert_true(has_part(&all.say, "ps 1 ended with exit code 0 before the job was over"));
    free_output(&all);

    sprintf(server, "[ -e %s/left ] && { touch %s/back; sleep 60; }; touch %s/left", directory,
            directory, directory);
    sprintf(worker, "until [ -e %s/back ]; do sleep 0.02; done", directory);
    roles[0] =
        (trm_launch_role){.role = TRM_ROLE_PS, .count = 1, .command = SHELL(server), .restarts = 1};
    more.timeout_seconds = 60;
    result = launch_script(worker, 0, &all, &more);
    assert_int_equal(result.exit_code, 0);
    assert_true(has_part(&all.say, "ps 0 ended with exit code 0, but worker 0 still runs"));
    assert_true(has_part(&all.say, "started again (0 more times)"));
    free_output(&all);

    roles[0].command = SHELL("exit 0");
    roles[0].restarts = 0;
    more.write = tell_worker;
    sprintf(worker, "until [ -e %s/told ]; do sleep 0.02; done", directory);
    result = launch_script(worker, 0, &all, &more);
    assert_int_equal(result.exit_code, 0);
    assert_true(has_part(&all.say, servers_ended));
    free_output(&all);
}

static void dry_runs_change_nothing(void **state) {
    spoken all;
    trm_error err;
    assert_int_equal(trmi_os_remove_tree(NULL, directory, &err), TRM_OK);
    trm_launch_result result =
        launch_script("touch /tmp/never", 2, &all, &(trm_launch_options){.dry_run = true});
    assert_int_equal(result.exit_code, 0);
    assert_true(has_part(&all.say, "rank 1  log"));
    assert_true(has_part(&all.say, "env   RANK_ID=1"));
    assert_true(has_part(&all.say, "runs  sh -c touch /tmp/never"));
    assert_int_equal(access(directory, F_OK), -1);
    assert_int_equal(access("/tmp/never", F_OK), -1);
    assert_int_equal(trmi_os_make_dirs(NULL, directory, &err), TRM_OK);
    free_output(&all);
}

static void tables_give_the_devices(void **state) {
    spoken all;
    trm_error err;
    char path[96], *json;
    trm_rank_table_host host = {.host = "127.0.0.1", .devices = 2};
    snprintf(path, sizeof path, "%s/table.json", directory);
    CHECK_OK(trm_rank_table_make(&host, 1, TRM_RANK_TABLE_V1, &json, &err), err);
    FILE *file = fopen(path, "w");
    for (const char *c = json; *c != '\0'; c++) { /* device 1 becomes 6 */
        fputc(strncmp(c - 14 < json ? c : c - 14, "\"device_id\": \"1", 15) == 0 && *c == '1' ? '6'
                                                                                              : *c,
              file);
    }
    fclose(file);
    trm_free(json);
    trm_launch_result result = launch_script("echo $RANK_TABLE_FILE $DEVICE_ID", 2, &all,
                                             &(trm_launch_options){.rank_table = path});
    assert_int_equal(result.exit_code, 0);
    char expected[128];
    snprintf(expected, sizeof expected, "%s 6\n", path);
    assert_string_equal(read_text("device1/train.log1"), expected);
    free_output(&all);
    trm_launch_options wrong = {
        .ranks = 3, .command = SHELL("true"), .rank_table = path, .directory = directory};
    CHECK_FAILS(trm_launch(&wrong, &result, &err), TRM_INVALID, err,
                "has 2 ranks, but 3 are to be started");
}

/* The ranks that the launcher starts find each other: this program as the rank. */
static int rank_main(void) {
    trm_error err = {0};
    trm_cluster *cluster;
    trm_bootstrap *bootstrap;
    if (trm_cluster_from_env(NULL, NULL, NULL, &cluster, &err) != TRM_OK ||
        trm_cluster_join(cluster, NULL, &bootstrap, &err) != TRM_OK) {
        fprintf(stderr, "%s\n", err.message);
        return 1;
    }
    printf("%s: rank %d of %d\n", trm_cluster_get(cluster)->source, trm_cluster_get(cluster)->rank,
           trm_cluster_get(cluster)->size);
    trm_cluster_leave(bootstrap);
    trm_cluster_destroy(cluster);
    return 0;
}

static void launched_ranks_meet(void **state) {
    spoken all;
    trm_launch_result result;
    trm_error err;
    trm_launch_options options = {.ranks = 8,
                                  .command = (const char *const[]){"/proc/self/exe", "rank", NULL},
                                  .environment = path_only,
                                  .directory = directory,
                                  .write = collect_output,
                                  .context = &all};
    char self[256];
    ssize_t bytes = readlink("/proc/self/exe", self, sizeof self - 1);
    self[bytes > 0 ? bytes : 0] = '\0';
    options.command = (const char *const[]){self, "rank", NULL};
    memset(&all, 0, sizeof all);
    CHECK_OK(trm_launch(&options, &result, &err), err);
    if (result.exit_code != 0) {
        fail_msg("%s%s", all.say.data, all.err.data ? all.err.data : "");
    }
    assert_string_equal(read_text("device7/train.log7"), "trireme run: rank 7 of 8\n");
    print_message("8 ranks started, met and left in %.2f s\n", result.seconds);
    free_output(&all);
}

static void cores_are_shared_out(void **state) {
    spoken all;
    cpu_set_t set;
    CPU_ZERO(&set);
    sched_getaffinity(0, sizeof set, &set);
    if (CPU_COUNT(&set) < 2 || trmi_os_cpu_count() < CPU_COUNT(&set)) {
        print_message("skipped: one core, or a quota below the cores\n");
        skip();
    }
    trm_launch_result result =
        launch_script("grep Cpus_allowed_list /proc/self/status", 2, &all, NULL);
    assert_int_equal(result.exit_code, 0);
    char first[256];
    snprintf(first, sizeof first, "%s", read_text("device0/train.log0"));
    assert_string_not_equal(first, read_text("device1/train.log1"));
    free_output(&all);
    result = launch_script("grep Cpus_allowed_list /proc/self/status", 2, &all,
                           &(trm_launch_options){.bind = TRM_OFF});
    snprintf(first, sizeof first, "%s", read_text("device0/train.log0"));
    assert_string_equal(first, read_text("device1/train.log1"));
    free_output(&all);
}

static int make_directory(void **state) { return mkdtemp(directory) == NULL; }
static int remove_directory(void **state) {
    trm_error err;
    return trmi_os_remove_tree(NULL, directory, &err) != TRM_OK;
}

int main(int argc, char **argv) {
    if (argc > 1 && strcmp(argv[1], "rank") == 0) {
        return rank_main();
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_run_as_in_guide_002),
        cmocka_unit_test(failures_end_the_others_and_are_named),
        cmocka_unit_test(wrong_programs_are_refused),
        cmocka_unit_test(the_look_for_orphans_finds_them),
        cmocka_unit_test(grandchildren_do_not_outlive_the_job),
        cmocka_unit_test(time_limits_end_the_job),
        cmocka_unit_test(signals_are_forwarded),
        cmocka_unit_test(a_dead_guardian_is_started_again),
        cmocka_unit_test(a_killed_launcher_leaves_no_orphans),
        cmocka_unit_test(roles_get_their_tf_config),
        cmocka_unit_test(servers_are_started_again),
        cmocka_unit_test(the_last_rank_of_an_elastic_job_dies),
        cmocka_unit_test(servers_that_leave_early_are_missed),
        cmocka_unit_test(dry_runs_change_nothing),
        cmocka_unit_test(tables_give_the_devices),
        cmocka_unit_test(launched_ranks_meet),
        cmocka_unit_test(cores_are_shared_out),
    };
    return cmocka_run_group_tests(tests, make_directory, remove_directory);
}
