/* SPDX-License-Identifier: Apache-2.0 */
/* The launcher of a job over several hosts: starts an agent on each through a remote shell, gives
 * the orders, collects what ranks write, and ends all when one fails.
 *
 *   host:  started --HELLO--> ready --order taken--> running --END, FAILED or end of input--> ended
 *
 * One thread, which never blocks but in poll; every wait has a deadline. A host that says nothing
 * any more is given up with its shell. */
#define _GNU_SOURCE
#include "comm/launch/launch_hosts.h"

#include "base/error.h"
#include "base/os.h"
#include "comm/cluster/cluster_addr.h"
#include "comm/launch/launch_host_start.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

enum { HOSTS_MAX = 256, PEER_FAILED = 5 };
static const double hello_seconds = 60, order_seconds = 60, culprit_seconds = 0.5,
                    slack_seconds = 3;

typedef struct host {
    const char *name;
    int32_t ranks, first_rank;
    trmi_host_shell shell; /* its ends are -1 once closed */
    trmi_text order;       /* empty until all are ready */
    size_t order_taken;
    bool ready, ended;
    int port;
    int32_t code, failed_rank, failed_signal, failed_code; /* what END said */
    bool told;                                             /* to end, before it ended by itself */
    double ended_time;
    char *input; /* bytes of a frame that is not complete */
    size_t input_bytes;
} host;

typedef struct hosts_job {
    const trm_launch_options *options;
    trm_launch_result *result;
    host *hosts;
    int32_t count, world;
    int signal_fd, stop_signal;
    bool ending, killed, timed_out;
    double start_time, order_time, ending_time, failed_time;
} hosts_job;

/* --- listening ---------------------------------------------------------------------------------
 */
/* Directories and empty logs, as on one host; what an earlier job left is gone. */
static trm_status make_logs(const hosts_job *job, trm_error *err) {
    const char *base = job->options->directory != NULL ? job->options->directory : ".";
    for (int32_t r = 0; r < job->world; r++) {
        char path[400];
        snprintf(path, sizeof path, "%.200s/device%d", base, r);
        TRMI_TRY(trmi_os_make_dirs(NULL, path, err));
        snprintf(path, sizeof path, "%.200s/device%d/env%d.log", base, r, r);
        unlink(path);
        snprintf(path, sizeof path, "%.200s/device%d/train.log%d", base, r, r);
        int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
        if (fd < 0) {
            return TRMI_FAIL_SYS(err, "%s", path);
        }
        close(fd);
    }
    return TRM_OK;
}

static void keep_log(const hosts_job *job, const trmi_agent_frame *frame, const char *data) {
    char path[400];
    trm_error ignored; /* a full disk must not stop the job */
    const char *base = job->options->directory != NULL ? job->options->directory : ".";
    if (frame->rank < 0 || frame->rank >= job->world) {
        return;
    }
    bool log = frame->kind == TRMI_AGENT_LOG;
    snprintf(path, sizeof path, "%.200s/device%d/%s%d%s", base, frame->rank,
             log ? "train.log" : "env", frame->rank, log ? "" : ".log");
    int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, log ? 0644 : 0600);
    if (fd >= 0) {
        (void)!trmi_os_write_all(NULL, fd, data, frame->bytes, path, &ignored);
        close(fd);
    }
}

static void host_ended(hosts_job *job, host *h, int32_t code, int32_t rank, int32_t number,
                       int32_t exit_code) {
    h->ended = true;
    h->told = job->ending;
    h->ended_time = trmi_os_now();
    h->code = code;
    h->failed_rank = rank;
    h->failed_signal = number;
    h->failed_code = exit_code;
    if (code != 0 && job->failed_time == 0) {
        job->failed_time = h->ended_time;
    }
}

static void take_frame(hosts_job *job, host *h, const trmi_agent_frame *frame, char *data) {
    const trm_launch_options *o = job->options;
    char text[1001];
    int version = 0, code = 0, rank = -1, number = 0, exit_code = 0;
    snprintf(text, sizeof text, "%.*s", (int)frame->bytes, data);
    switch (frame->kind) {
    case TRMI_AGENT_HELLO:
        h->ready = sscanf(text, "%d %d", &version, &h->port) == 2 && version == TRMI_AGENT_VERSION;
        if (!h->ready) {
            trmi_launch_blame(
                job->options,
                "%s: the agent there speaks version %d, this one %d; install the same trireme",
                h->name, version, TRMI_AGENT_VERSION);
            host_ended(job, h, 2, -1, 0, 0);
        }
        return;
    case TRMI_AGENT_OUT:
    case TRMI_AGENT_ERR:
        if (o->write != NULL) {
            o->write(o->context, frame->kind == TRMI_AGENT_OUT ? TRM_LAUNCH_OUT : TRM_LAUNCH_ERR,
                     data, frame->bytes);
        }
        return;
    case TRMI_AGENT_SAY: trmi_launch_say(job->options, "%s: %s", h->name, text); return;
    case TRMI_AGENT_BLAME: trmi_launch_blame(job->options, "%s: %s", h->name, text); return;
    case TRMI_AGENT_LOG:
    case TRMI_AGENT_ENV: keep_log(job, frame, data); return;
    case TRMI_AGENT_END:
        if (sscanf(text, "%d %d %d %d", &code, &rank, &number, &exit_code) == 4) {
            host_ended(job, h, code, rank, number, exit_code);
        }
        return;
    case TRMI_AGENT_FAILED:
        trmi_launch_blame(job->options, "%s: %s", h->name,
                          strchr(text, ' ') != NULL ? strchr(text, ' ') + 1 : text);
        host_ended(job, h, 2, -1, 0, 0);
        return;
    default: return;
    }
}

/* The shell has closed its end: reaps it; without an END before, that is a failure of the host. */
static void host_gone(hosts_job *job, host *h) {
    int status = 0;
    close(h->shell.from);
    h->shell.from = -1;
    kill(-h->shell.pid, SIGKILL);
    waitpid(h->shell.pid, &status, 0);
    if (!h->ended) {
        char how[64];
        snprintf(how, sizeof how, WIFSIGNALED(status) ? "died of signal %d" : "ended with code %d",
                 WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
        if (!h->ready) {
            trmi_launch_blame(
                job->options,
                "%s: the remote shell %s before trireme answered; can it be reached, and is %s "
                "there?",
                h->name, how, job->options->agent[0]);
        } else if (!job->killed) {
            trmi_launch_blame(job->options, "%s: the agent is lost (its remote shell %s)", h->name,
                              how);
        }
        host_ended(job, h, 2, -1, 0, 0);
    }
}

static void listen_to(hosts_job *job, host *h) {
    enum { ROOM = sizeof(trmi_agent_frame) + TRMI_AGENT_FRAME_MAX };
    for (;;) {
        ssize_t got = read(h->shell.from, h->input + h->input_bytes, ROOM - h->input_bytes);
        if (got < 0 && (errno == EAGAIN || errno == EINTR)) {
            return;
        }
        if (got <= 0) {
            host_gone(job, h);
            return;
        }
        h->input_bytes += (size_t)got;
        trmi_agent_frame frame;
        size_t at = 0;
        while (h->input_bytes - at >= sizeof frame) {
            memcpy(&frame, h->input + at, sizeof frame);
            if (frame.kind < TRMI_AGENT_HELLO || frame.kind > TRMI_AGENT_BLAME ||
                frame.bytes > TRMI_AGENT_FRAME_MAX) {
                trmi_launch_blame(
                    job->options,
                    "%s: the remote shell prints something that is not trireme's: \"%.*s\"; "
                    "its start-up files must not print",
                    h->name, 40, h->input + at);
                host_ended(job, h, 2, -1, 0, 0);
                host_gone(job, h);
                return;
            }
            if (h->input_bytes - at < sizeof frame + frame.bytes) {
                break;
            }
            take_frame(job, h, &frame, h->input + at + sizeof frame);
            at += sizeof frame + frame.bytes;
        }
        memmove(h->input, h->input + at, h->input_bytes - at);
        h->input_bytes -= at;
    }
}

/* --- orders ------------------------------------------------------------------------------------
 */
static bool running(const host *h) {
    return h->order.length > 0 && h->order_taken == h->order.length;
}

static bool order_waits(const host *h) { return !h->ended && h->order_taken < h->order.length; }

/* As much as the pipe takes. A shell that is gone is noticed by the end of its output. */
static void give_order(host *h) {
    while (order_waits(h)) {
        ssize_t taken =
            write(h->shell.to, h->order.data + h->order_taken, h->order.length - h->order_taken);
        if (taken < 0 && errno != EINTR) {
            return;
        }
        h->order_taken += taken > 0 ? (size_t)taken : 0;
    }
}

static trm_status make_orders(hosts_job *job, const char *token, trm_error *err) {
    job->order_time = trmi_os_now();
    for (int32_t i = 0; i < job->count; i++) {
        host *h = &job->hosts[i];
        trmi_host_part part = {h->name,  job->world,         h->first_rank,
                               h->ranks, job->hosts[0].port, token};
        TRMI_TRY(trmi_host_order_make(job->options, &part, &h->order, err));
    }
    return TRM_OK;
}

static void check_orders(hosts_job *job, double now) {
    for (int32_t i = 0; i < job->count; i++) {
        host *h = &job->hosts[i];
        if (order_waits(h) && !job->ending && now - job->order_time >= order_seconds) {
            trmi_launch_blame(job->options, "%s: its agent takes no order for %.0f s", h->name,
                              order_seconds);
            job->failed_time = job->failed_time > 0 ? job->failed_time : now;
        }
    }
}

/* --- the job -----------------------------------------------------------------------------------
 */
static void tell_all(hosts_job *job, int number) {
    unsigned char byte = (unsigned char)number;
    for (int32_t i = 0; i < job->count; i++) {
        host *h = &job->hosts[i];
        if (!h->ended && running(h)) {
            (void)!write(h->shell.to, &byte, 1);
        } else if (!h->ended && h->shell.pid > 0 && job->ending) {
            /* without a whole order, of which a byte would be a part */
            kill(-h->shell.pid, SIGKILL);
        }
    }
}

static void begin_ending(hosts_job *job, int number) {
    if (!job->ending) {
        job->ending = true;
        job->ending_time = trmi_os_now();
        tell_all(job, number);
    }
}

static void take_signals(hosts_job *job) {
    struct signalfd_siginfo info;
    while (read(job->signal_fd, &info, sizeof info) == (ssize_t)sizeof info) {
        int number = (int)info.ssi_signo;
        if (number == SIGCHLD) {
            continue;
        }
        if (number == SIGUSR1 || number == SIGUSR2 || job->stop_signal != 0) {
            tell_all(job, number); /* the second SIGTERM ends at once */
            continue;
        }
        job->stop_signal = number;
        trmi_launch_say(job->options, "signal %d: all processes are told to end", number);
        begin_ending(job, number);
    }
}

/* What no agent ends by itself. */
static void give_up(hosts_job *job, double seconds) {
    job->killed = true;
    for (int32_t i = 0; i < job->count; i++) {
        if (!job->hosts[i].ended) {
            trmi_launch_blame(job->options, "%s: no answer for %.0f s: given up",
                              job->hosts[i].name, seconds);
        }
        if (job->hosts[i].shell.from >= 0) {
            kill(-job->hosts[i].shell.pid, SIGKILL);
        }
    }
}

static void keep_time(hosts_job *job) {
    const trm_launch_options *o = job->options;
    double now = trmi_os_now(),
           patience = (o->grace_seconds > 0 ? o->grace_seconds : 10) + slack_seconds;
    if (o->timeout_seconds > 0 && now - job->start_time >= o->timeout_seconds && !job->ending) {
        job->timed_out = true;
        trmi_launch_blame(job->options, "the job still runs after %.0f s (--timeout)",
                          o->timeout_seconds);
        begin_ending(job, SIGTERM);
    }
    check_orders(job, now);
    if (job->failed_time > 0 && now - job->failed_time > culprit_seconds) {
        begin_ending(job, SIGTERM);
    }
    if (job->ending && !job->killed && now - job->ending_time >= patience) {
        give_up(job, patience);
    }
}

/* One round: listens for at most 50 ms, gives what is left of orders, keeps time. */
static void turn(hosts_job *job) {
    struct pollfd polls[2 * HOSTS_MAX + 1];
    for (int32_t i = 0; i < job->count; i++) {
        const host *h = &job->hosts[i];
        polls[i] = (struct pollfd){.fd = h->shell.from, .events = POLLIN};
        polls[job->count + i] =
            (struct pollfd){.fd = order_waits(h) ? h->shell.to : -1, .events = POLLOUT};
    }
    polls[2 * job->count] = (struct pollfd){.fd = job->signal_fd, .events = POLLIN};
    poll(polls, 2 * (nfds_t)job->count + 1, 50);
    take_signals(job);
    for (int32_t i = 0; i < job->count; i++) {
        if (polls[i].revents != 0 && job->hosts[i].shell.from >= 0) {
            listen_to(job, &job->hosts[i]);
        }
        give_order(&job->hosts[i]);
    }
    keep_time(job);
}

static bool all(const hosts_job *job, bool ready) {
    for (int32_t i = 0; i < job->count; i++) {
        const host *h = &job->hosts[i];
        if (ready ? !h->ready && !h->ended : h->shell.from >= 0) {
            return false;
        }
    }
    return true;
}

/* All agents answer, or the first deadline names those that do not. */
static trm_status gather(hosts_job *job, trm_error *err) {
    double deadline = trmi_os_now() + hello_seconds;
    for (int32_t i = 0; i < job->count; i++) {
        TRMI_TRY(
            trmi_host_shell_start(job->options, job->hosts[i].name, &job->hosts[i].shell, err));
    }
    while (!all(job, true) && !job->ending && trmi_os_now() < deadline) {
        turn(job);
    }
    for (int32_t i = 0; i < job->count && !job->ending; i++) {
        if (!job->hosts[i].ready && !job->hosts[i].ended) {
            trmi_launch_blame(job->options, "%s: no answer for %.0f s", job->hosts[i].name,
                              hello_seconds);
            job->failed_time = job->failed_time > 0 ? job->failed_time : trmi_os_now();
        }
    }
    return TRM_OK;
}

/* Who failed first: a death rather than an exit, an exit rather than a report about a peer. */
static int guilt(const host *h) {
    return h->code == 0 || h->told         ? 0
           : h->failed_signal != 0         ? 4
           : h->failed_rank < 0            ? 2
           : h->failed_code == PEER_FAILED ? 1
                                           : 3;
}

static void conclude(hosts_job *job) {
    trm_launch_result *result = job->result;
    const host *worst = NULL;
    bool bad = job->ending;
    for (int32_t i = 0; i < job->count; i++) {
        const host *h = &job->hosts[i];
        bad |= h->code != 0;
        if (guilt(h) > (worst != NULL ? guilt(worst) : 0)) {
            worst = h;
        }
    }
    result->seconds = trmi_os_now() - job->start_time;
    result->exit_code = bad ? 2 : 0;
    if (worst != NULL) {
        result->failed_rank = worst->failed_rank;
        result->failed_signal = worst->failed_signal;
        result->failed_code = worst->failed_code;
        result->exit_code = worst->code != 0 ? worst->code : 2; /* as on one host */
        if (worst->failed_rank >= 0) {
            char how[48];
            snprintf(how, sizeof how,
                     worst->failed_signal != 0 ? "died of signal %d" : "ended with exit code %d",
                     worst->failed_signal != 0 ? worst->failed_signal : worst->failed_code);
            trmi_launch_blame(job->options, "the first to fail: rank %d on %s, which %s",
                              worst->failed_rank, worst->name, how);
        }
    }
    result->exit_code = job->timed_out ? trm_status_exit_code(TRM_TIMEOUT) : result->exit_code;
    result->exit_code = job->stop_signal != 0 ? 128 + job->stop_signal : result->exit_code;
    trmi_launch_conclude(job->options, result, job->stop_signal != 0);
}

static trm_status run_hosts(hosts_job *job, trm_error *err) {
    uint8_t random[TRM_TOKEN_BYTES];
    char token[2 * TRM_TOKEN_BYTES + 1];
    if (getrandom(random, sizeof random, 0) != (ssize_t)sizeof random) {
        return TRMI_FAIL_SYS(err, "no random bytes for the job's token");
    }
    for (int i = 0; i < TRM_TOKEN_BYTES; i++) {
        snprintf(token + 2 * i, 3, "%02x", random[i]);
    }
    TRMI_TRY(make_logs(job, err));
    trm_status status = gather(job, err);
    if (status == TRM_OK && job->failed_time == 0 && !job->ending) {
        status = make_orders(job, token, err);
    }
    explicit_bzero(token, sizeof token);
    if (status != TRM_OK) {
        begin_ending(job, SIGTERM);
    }
    while (!all(job, false)) {
        turn(job);
    }
    return status;
}

static trm_status check(const trm_launch_options *o, trm_error *err) {
    if (o->host_count > HOSTS_MAX || o->agent == NULL || o->agent[0] == NULL) {
        return TRMI_FAIL(err, TRM_INVALID, "%d hosts; at most %d, and an agent's command, expected",
                         o->host_count, HOSTS_MAX);
    }
    if (o->role_count > 0 || o->rank_table != NULL || o->rendezvous != NULL) {
        return TRMI_FAIL(err, TRM_INVALID,
                         "a job over several hosts is started with ranks alone: no roles, no "
                         "rank table, no rendezvous of its own");
    }
    if (o->command == NULL || o->command[0] == NULL) {
        return TRMI_FAIL(err, TRM_INVALID, "no program to run; give it after --");
    }
    for (int32_t i = 0; i < o->host_count; i++) {
        const trm_launch_host *h = &o->hosts[i];
        if (h->name == NULL || h->name[0] == '\0' || h->name[0] == '-' || strlen(h->name) > 255 ||
            h->ranks < 1 || h->ranks > 1024) {
            return TRMI_FAIL(err, TRM_INVALID, "host %d: a name and 1 to 1024 ranks expected", i);
        }
        for (int32_t k = 0; k < i; k++) {
            if (strcmp(o->hosts[k].name, h->name) == 0) {
                return TRMI_FAIL(err, TRM_INVALID,
                                 "host %.100s is listed twice; give it all its ranks at once",
                                 h->name);
            }
        }
    }
    const char *meet = o->hosts[0].name; /* whoever gives an address knows what it is good for */
    if (o->host_count > 1 && o->hosts[0].address == NULL && trmi_is_loopback(meet)) {
        return TRMI_FAIL(err, TRM_INVALID,
                         "the first host is \"%.60s\", where others cannot reach rank 0; give the "
                         "name by which they know it, as in localhost@ADDRESS:RANKS",
                         meet);
    }
    return TRM_OK;
}

static trm_status prepare_hosts(hosts_job *job, trm_error *err) {
    const trm_launch_options *o = job->options;
    job->hosts = trmi_alloc((size_t)o->host_count * sizeof *job->hosts);
    if (job->hosts == NULL) {
        return TRMI_FAIL(err, TRM_NOMEM, "no memory for %d hosts", o->host_count);
    }
    for (; job->count < o->host_count; job->count++) {
        host *h = &job->hosts[job->count];
        *h = (host){.name = o->hosts[job->count].name,
                    .ranks = o->hosts[job->count].ranks,
                    .first_rank = job->world,
                    .shell = {.to = -1, .from = -1},
                    .failed_rank = -1,
                    .input = trmi_alloc(sizeof(trmi_agent_frame) + TRMI_AGENT_FRAME_MAX)};
        job->world += h->ranks;
        if (h->input == NULL) {
            return TRMI_FAIL(err, TRM_NOMEM, "no memory for host %d", job->count);
        }
    }
    return TRM_OK;
}

static trm_status show_hosts(const hosts_job *job, trm_error *err) {
    for (int32_t i = 0; i < job->count; i++) {
        const host *h = &job->hosts[i];
        trmi_host_words list;
        trmi_text text = {0};
        TRMI_TRY(trmi_host_words_make(job->options, h->name, &list, err));
        for (int w = 0; w < list.count; w++) {
            trmi_text_printf(&text, " %s", list.words[w]);
        }
        trmi_launch_say(job->options, "%s: ranks %d to %d by%.800s", h->name, h->first_rank,
                        h->first_rank + h->ranks - 1, text.data);
        trmi_text_free(&text);
    }
    return TRM_OK;
}

/* The job, with this process's signals taken through a descriptor while it runs. */
static trm_status run_with_signals(hosts_job *job, trm_error *err) {
    static const int numbers[] = {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGCHLD};
    struct sigaction ignore = {.sa_handler = SIG_IGN}, pipe_before;
    sigset_t set, before;
    sigemptyset(&set);
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        sigaddset(&set, numbers[i]);
    }
    sigprocmask(SIG_BLOCK, &set, &before);
    sigaction(SIGPIPE, &ignore, &pipe_before);
    job->signal_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    trm_status status =
        job->signal_fd >= 0 ? run_hosts(job, err) : TRMI_FAIL_SYS(err, "no descriptor for signals");
    if (status == TRM_OK) {
        conclude(job);
    }
    if (job->signal_fd >= 0) {
        close(job->signal_fd);
    }
    sigaction(SIGPIPE, &pipe_before, NULL);
    sigprocmask(SIG_SETMASK, &before, NULL);
    return status;
}

static void release_hosts(hosts_job *job) {
    for (int32_t i = 0; i < job->count; i++) {
        if (job->hosts[i].shell.to >= 0) {
            close(job->hosts[i].shell.to);
        }
        trmi_text_free(&job->hosts[i].order);
        trmi_free(job->hosts[i].input);
    }
    trmi_free(job->hosts);
}

trm_status trmi_launch_hosts(const trm_launch_options *options, trm_launch_result *result,
                             trm_error *err) {
    hosts_job job = {.options = options, .result = result, .start_time = trmi_os_now()};
    TRMI_TRY(check(options, err));
    trm_status status = prepare_hosts(&job, err);
    if (status == TRM_OK) {
        status = options->dry_run ? show_hosts(&job, err) : run_with_signals(&job, err);
    }
    release_hosts(&job);
    return status;
}
