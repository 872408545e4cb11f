/* The launcher of a job over several hosts: starts an agent on each through a remote shell, gives the orders,
 * collects what ranks write, and ends all when one fails.
 *
 *   host:  started --HELLO--> ready --ORDER--> running --END, FAILED or end of input--> ended
 *
 * One thread; every wait has a deadline. A host that says nothing any more is given up with its shell. */
#define _GNU_SOURCE
#include "comm/launch_hosts.h"

#include "base/error.h"
#include "base/os.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

enum { HOSTS_MAX = 256, WORDS_MAX = 64, PEER_FAILED = 5 };
static const double hello_seconds = 60, culprit_seconds = 0.5, slack_seconds = 3;

typedef struct host {
    const char *name;
    int32_t ranks, first_rank;
    pid_t pid;            /* of the remote shell */
    int to, from;         /* its standard input and output; -1 once closed */
    bool ready, ended;
    int port;
    int32_t code, failed_rank, failed_signal, failed_code; /* what END said */
    bool told;            /* to end, before it ended by itself */
    double ended_time;
    char *input;          /* bytes of a frame that is not complete */
    size_t input_bytes;
} host;

typedef struct hosts_job {
    const trm_launch_options *options;
    trm_launch_result *result;
    host *hosts;
    int32_t count, world;
    int signal_fd, stop_signal;
    bool ending, killed, timed_out;
    double start_time, ending_time, failed_time;
    int32_t culprit; /* host, -1 */
} hosts_job;

static void say(const hosts_job *job, const char *format, ...) TRM_PRINTF(2, 3);
static void say(const hosts_job *job, const char *format, ...) {
    char line[1200];
    va_list args;
    if (job->options->write == NULL) {
        return;
    }
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    job->options->write(job->options->context, TRM_LAUNCH_SAY, line, strlen(line));
}

/* --- starting ------------------------------------------------------------------------------------- */
typedef struct word_list {
    char *words[WORDS_MAX + 1];
    int count;
    char text[2048];
} word_list;

/* The remote shell's words with the host's name in place, then the agent's. */
static trm_status make_words(const hosts_job *job, const host *h, word_list *out, trm_error *err) {
    const char *shell = job->options->remote_shell;
    bool here = shell == NULL && (strcmp(h->name, "localhost") == 0 || strcmp(h->name, "127.0.0.1") == 0);
    shell = shell != NULL ? shell : here ? "" : "ssh -T -o BatchMode=yes -o ConnectTimeout=10";
    size_t used = 0;
    bool named = here;
    out->count = 0;
    while (*shell != '\0') {
        size_t blank = strspn(shell, " "), length = strcspn(shell + blank, " ");
        shell += blank;
        const char *mark = memmem(shell, length, "{}", 2);
        int before = mark != NULL ? (int)(mark - shell) : (int)length;
        int after = mark != NULL ? (int)(length - (size_t)before - 2) : 0;
        if (length > 0 && out->count < WORDS_MAX && used + length + strlen(h->name) + 1 < sizeof out->text) {
            out->words[out->count++] = out->text + used;
            used += (size_t)snprintf(out->text + used, sizeof out->text - used, "%.*s%s%.*s", before, shell,
                                     mark != NULL ? h->name : "", after, shell + length - after) + 1;
            named |= mark != NULL;
        } else if (length > 0) {
            return TRMI_FAIL(err, TRM_INVALID, "--remote-shell: at most %d words", WORDS_MAX);
        }
        shell += length;
    }
    if (!named && out->count < WORDS_MAX) {
        out->words[out->count++] = (char *)(uintptr_t)h->name;
    }
    for (const char *const *word = job->options->agent; *word != NULL && out->count < WORDS_MAX; word++) {
        out->words[out->count++] = (char *)(uintptr_t)*word;
    }
    out->words[out->count] = NULL;
    return TRM_OK;
}

static trm_status start_host(hosts_job *job, host *h, trm_error *err) {
    word_list list;
    int in[2], out[2], report[2], problem = 0;
    pid_t parent = getpid();
    TRMI_TRY(make_words(job, h, &list, err));
    if (pipe2(in, O_CLOEXEC) != 0 || pipe2(out, O_CLOEXEC) != 0 || pipe2(report, O_CLOEXEC) != 0) {
        return TRMI_FAIL_SYS(err, "no pipe to host %.100s", h->name);
    }
    h->pid = fork();
    if (h->pid == 0) {
        sigset_t none;
        sigemptyset(&none);
        setpgid(0, 0); /* Ctrl-C is for the launcher, which tells the agents */
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        sigprocmask(SIG_SETMASK, &none, NULL);
        if (getppid() == parent && dup2(in[0], 0) >= 0 && dup2(out[1], 1) >= 0) {
            execvp(list.words[0], list.words);
        }
        problem = errno;
        ssize_t told = write(report[1], &problem, sizeof problem);
        (void)told;
        _exit(127);
    }
    close(in[0]);
    close(out[1]);
    close(report[1]);
    problem = h->pid < 0 ? errno : 0;
    h->to = in[1];
    h->from = out[0];
    if (h->pid < 0 || read(report[0], &problem, sizeof problem) == (ssize_t)sizeof problem) {
        if (h->pid > 0) {
            waitpid(h->pid, NULL, 0);
        }
        close(report[0]);
        close(h->from);
        h->from = -1;
        errno = problem;
        return TRMI_FAIL_SYS(err, "host %.100s: the remote shell \"%.60s\" cannot be started", h->name,
                             list.words[0]);
    }
    close(report[0]);
    fcntl(h->from, F_SETFL, O_NONBLOCK);
    return TRM_OK;
}

static bool travels(const char *variable) {
    static const char *const names[] = {"PATH=", "LD_LIBRARY_PATH=", "XDG_CACHE_HOME=", "OMP_", "TRIREME_",
                                        "HCCL_", "UCX_"};
    for (size_t n = 0; n < sizeof names / sizeof names[0]; n++) {
        if (strncmp(variable, names[n], strlen(names[n])) == 0) {
            return true;
        }
    }
    return false;
}

static void add(trmi_text *text, const char *value) { trmi_text_append(text, value, strlen(value) + 1); }
static void add_number(trmi_text *text, double value) {
    char digits[32];
    snprintf(digits, sizeof digits, "%.15g", value);
    add(text, digits);
}

static trm_status give_order(hosts_job *job, host *h, const char *token, trm_error *err) {
    const trm_launch_options *o = job->options;
    const trm_launch_host *first = &o->hosts[0];
    trmi_text text = {0};
    char directory[1024], place[320];
    int variables = 0, words = 0;
    if (getcwd(directory, sizeof directory) == NULL) {
        return TRMI_FAIL_SYS(err, "the working directory has no name");
    }
    for (const char *const *one = o->environment; one != NULL && *one != NULL; one++) {
        variables += travels(*one);
    }
    for (const char *const *one = o->extra; one != NULL && *one != NULL; one++) {
        variables++;
    }
    while (o->command[words] != NULL) {
        words++;
    }
    const char *address = first->address != NULL ? first->address : first->name;
    bool colons = strchr(address, ':') != NULL && address[0] != '[';
    snprintf(place, sizeof place, colons ? "[%.280s]:%d" : "%.280s:%d", address, job->hosts[0].port);
    add(&text, directory);
    add_number(&text, job->world);
    add_number(&text, h->first_rank);
    add_number(&text, h->ranks);
    add(&text, place);
    add(&text, token);
    add_number(&text, o->threads);
    add_number(&text, o->no_binding);
    add_number(&text, o->grace_seconds);
    add_number(&text, variables);
    add_number(&text, words);
    for (const char *const *one = o->environment; one != NULL && *one != NULL; one++) {
        if (travels(*one)) {
            add(&text, *one);
        }
    }
    for (const char *const *one = o->extra; one != NULL && *one != NULL; one++) {
        add(&text, *one);
    }
    for (int i = 0; i < words; i++) {
        add(&text, o->command[i]);
    }
    uint32_t bytes = (uint32_t)text.length;
    trm_status status = text.failed || text.length > TRMI_AGENT_ORDER_MAX
                            ? TRMI_FAIL(err, TRM_NOMEM, "host %.100s: the order is too long", h->name)
                            : TRM_OK;
    if (status == TRM_OK) {
        status = trmi_os_write_all(NULL, h->to, &bytes, sizeof bytes, h->name, err);
    }
    if (status == TRM_OK) {
        status = trmi_os_write_all(NULL, h->to, text.data, text.length, h->name, err);
    }
    trmi_text_free(&text);
    return status;
}

/* --- listening ------------------------------------------------------------------------------------ */
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
    snprintf(path, sizeof path, "%.200s/device%d/%s%d%s", base, frame->rank, log ? "train.log" : "env",
             frame->rank, log ? "" : ".log");
    int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, log ? 0644 : 0600);
    if (fd >= 0) {
        (void)!trmi_os_write_all(NULL, fd, data, frame->bytes, path, &ignored);
        close(fd);
    }
}

static void host_ended(hosts_job *job, host *h, int32_t code, int32_t rank, int32_t number, int32_t exit_code) {
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
    char text[TRMI_AGENT_FRAME_MAX < 1024 ? TRMI_AGENT_FRAME_MAX : 1024];
    int version = 0, code = 0, rank = -1, number = 0, exit_code = 0;
    snprintf(text, sizeof text, "%.*s", (int)(frame->bytes < 1000 ? frame->bytes : 1000), data);
    switch (frame->kind) {
    case TRMI_AGENT_HELLO:
        h->ready = sscanf(text, "%d %d", &version, &h->port) == 2 && version == TRMI_AGENT_VERSION;
        if (!h->ready) {
            say(job, "%s: the agent there speaks version %d, this one %d; install the same trireme", h->name,
                version, TRMI_AGENT_VERSION);
            host_ended(job, h, 2, -1, 0, 0);
        }
        return;
    case TRMI_AGENT_OUT:
    case TRMI_AGENT_ERR:
        if (o->write != NULL) {
            o->write(o->context, frame->kind == TRMI_AGENT_OUT ? TRM_LAUNCH_OUT : TRM_LAUNCH_ERR, data,
                     frame->bytes);
        }
        return;
    case TRMI_AGENT_SAY:
        say(job, "%s: %s", h->name, text);
        return;
    case TRMI_AGENT_LOG:
    case TRMI_AGENT_ENV:
        keep_log(job, frame, data);
        return;
    case TRMI_AGENT_END:
        if (sscanf(text, "%d %d %d %d", &code, &rank, &number, &exit_code) == 4) {
            host_ended(job, h, code, rank, number, exit_code);
        }
        return;
    case TRMI_AGENT_FAILED:
        say(job, "%s: %s", h->name, strchr(text, ' ') != NULL ? strchr(text, ' ') + 1 : text);
        host_ended(job, h, 2, -1, 0, 0);
        return;
    default:
        return;
    }
}

/* The shell has closed its end: reaps it; without an END before, that is a failure of the host. */
static void host_gone(hosts_job *job, host *h) {
    int status = 0;
    close(h->from);
    h->from = -1;
    kill(-h->pid, SIGKILL);
    waitpid(h->pid, &status, 0);
    if (!h->ended) {
        char how[64];
        snprintf(how, sizeof how, WIFSIGNALED(status) ? "died of signal %d" : "ended with code %d",
                 WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
        if (!h->ready) {
            say(job, "%s: the remote shell %s before trireme answered; can it be reached, and is %s there?",
                h->name, how, job->options->agent[0]);
        } else if (!job->killed) {
            say(job, "%s: the agent is lost (its remote shell %s)", h->name, how);
        }
        host_ended(job, h, 2, -1, 0, 0);
    }
}

static void listen_to(hosts_job *job, host *h) {
    enum { ROOM = sizeof(trmi_agent_frame) + TRMI_AGENT_FRAME_MAX };
    for (;;) {
        ssize_t got = read(h->from, h->input + h->input_bytes, ROOM - h->input_bytes);
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
            if (frame.kind < TRMI_AGENT_HELLO || frame.kind > TRMI_AGENT_FAILED ||
                frame.bytes > TRMI_AGENT_FRAME_MAX) {
                say(job, "%s: the remote shell prints something that is not trireme's: \"%.*s\"; its start-up "
                    "files must not print", h->name, 40, h->input + at);
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

/* --- the job -------------------------------------------------------------------------------------- */
static void tell_all(hosts_job *job, int number) {
    unsigned char byte = (unsigned char)number;
    for (int32_t i = 0; i < job->count; i++) {
        host *h = &job->hosts[i];
        if (!h->ended && h->to >= 0 && h->ready) {
            ssize_t told = write(h->to, &byte, 1);
            (void)told;
        } else if (!h->ended && !h->ready && h->pid > 0) {
            kill(-h->pid, SIGKILL); /* has no order yet, or never answered */
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
        say(job, "signal %d: all processes are told to end", number);
        begin_ending(job, number);
    }
}

/* One round: listens for at most 50 ms, keeps time. */
static void turn(hosts_job *job) {
    struct pollfd polls[HOSTS_MAX + 1];
    for (int32_t i = 0; i < job->count; i++) {
        polls[i] = (struct pollfd){.fd = job->hosts[i].from, .events = POLLIN};
    }
    polls[job->count] = (struct pollfd){.fd = job->signal_fd, .events = POLLIN};
    poll(polls, (nfds_t)job->count + 1, 50);
    take_signals(job);
    for (int32_t i = 0; i < job->count; i++) {
        if (polls[i].revents != 0 && job->hosts[i].from >= 0) {
            listen_to(job, &job->hosts[i]);
        }
    }
    const trm_launch_options *o = job->options;
    double now = trmi_os_now(), grace = o->grace_seconds > 0 ? o->grace_seconds : 10;
    if (o->timeout_seconds > 0 && now - job->start_time >= o->timeout_seconds && !job->ending) {
        job->timed_out = true;
        say(job, "the job still runs after %.0f s (--timeout)", o->timeout_seconds);
        begin_ending(job, SIGTERM);
    }
    if (job->failed_time > 0 && now - job->failed_time > culprit_seconds) {
        begin_ending(job, SIGTERM);
    }
    if (job->ending && !job->killed && now - job->ending_time >= grace + slack_seconds) {
        job->killed = true;
        for (int32_t i = 0; i < job->count; i++) {
            if (!job->hosts[i].ended) {
                say(job, "%s: no answer for %.0f s: given up", job->hosts[i].name, grace + slack_seconds);
            }
            if (job->hosts[i].from >= 0) {
                kill(-job->hosts[i].pid, SIGKILL);
            }
        }
    }
}

static bool all(const hosts_job *job, bool ready) {
    for (int32_t i = 0; i < job->count; i++) {
        const host *h = &job->hosts[i];
        if (ready ? !h->ready && !h->ended : h->from >= 0) {
            return false;
        }
    }
    return true;
}

/* All agents answer, or the first deadline names those that do not. */
static trm_status gather(hosts_job *job, trm_error *err) {
    double deadline = trmi_os_now() + hello_seconds;
    for (int32_t i = 0; i < job->count; i++) {
        TRMI_TRY(start_host(job, &job->hosts[i], err));
    }
    while (!all(job, true) && !job->ending && trmi_os_now() < deadline) {
        turn(job);
    }
    for (int32_t i = 0; i < job->count && !job->ending; i++) {
        if (!job->hosts[i].ready && !job->hosts[i].ended) {
            say(job, "%s: no answer for %.0f s", job->hosts[i].name, hello_seconds);
            job->failed_time = job->failed_time > 0 ? job->failed_time : trmi_os_now();
        }
    }
    return TRM_OK;
}

/* Who failed first: a death rather than an exit, an exit rather than a report about a peer. */
static int guilt(const host *h) {
    return h->code == 0 || h->told ? 0 : h->failed_signal != 0 ? 4 : h->failed_rank < 0 ? 2
           : h->failed_code == PEER_FAILED                     ? 1
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
            snprintf(how, sizeof how, worst->failed_signal != 0 ? "died of signal %d" : "ended with exit code %d",
                     worst->failed_signal != 0 ? worst->failed_signal : worst->failed_code);
            say(job, "the first to fail: rank %d on %s, which %s", worst->failed_rank, worst->name, how);
        }
    }
    result->exit_code = job->timed_out ? trm_status_exit_code(TRM_TIMEOUT) : result->exit_code;
    result->exit_code = job->stop_signal != 0 ? 128 + job->stop_signal : result->exit_code;
    say(job, result->exit_code == 0 ? "training success" : "training failed");
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
    for (int32_t i = 0; status == TRM_OK && i < job->count && job->failed_time == 0 && !job->ending; i++) {
        status = give_order(job, &job->hosts[i], token, err);
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
        return TRMI_FAIL(err, TRM_INVALID, "%d hosts; at most %d, and an agent's command, expected", o->host_count,
                         HOSTS_MAX);
    }
    if (o->role_count > 0 || o->rank_table != NULL || o->rendezvous != NULL) {
        return TRMI_FAIL(err, TRM_INVALID, "a job over several hosts is started with ranks alone: no roles, no "
                         "rank table, no rendezvous of its own");
    }
    if (o->command == NULL || o->command[0] == NULL) {
        return TRMI_FAIL(err, TRM_INVALID, "no program to run; give it after --");
    }
    for (int32_t i = 0; i < o->host_count; i++) {
        const trm_launch_host *h = &o->hosts[i];
        if (h->name == NULL || h->name[0] == '\0' || h->name[0] == '-' || strlen(h->name) > 255 || h->ranks < 1 ||
            h->ranks > 1024) {
            return TRMI_FAIL(err, TRM_INVALID, "host %d: a name and 1 to 1024 ranks expected", i);
        }
        for (int32_t k = 0; k < i; k++) {
            if (strcmp(o->hosts[k].name, h->name) == 0) {
                return TRMI_FAIL(err, TRM_INVALID, "host %.100s is listed twice; give it all its ranks at once",
                                 h->name);
            }
        }
    }
    const char *meet = o->hosts[0].name; /* whoever gives an address knows what it is good for */
    if (o->host_count > 1 && o->hosts[0].address == NULL && (strcmp(meet, "localhost") == 0 || strncmp(meet, "127.", 4) == 0)) {
        return TRMI_FAIL(err, TRM_INVALID, "the first host is \"%.60s\", where others cannot reach rank 0; give the "
                         "name by which they know it, as in localhost@ADDRESS:RANKS", meet);
    }
    return TRM_OK;
}

trm_status trmi_launch_hosts(const trm_launch_options *options, trm_launch_result *result, trm_error *err) {
    hosts_job job = {.options = options, .result = result, .count = options->host_count, .culprit = -1,
                     .start_time = trmi_os_now()};
    static const int numbers[] = {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGCHLD};
    sigset_t set, before;
    TRMI_TRY(check(options, err));
    job.hosts = trmi_alloc((size_t)job.count * sizeof *job.hosts);
    trm_status status = job.hosts != NULL ? TRM_OK : TRMI_FAIL(err, TRM_NOMEM, "no memory for hosts");
    for (int32_t i = 0; i < job.count && status == TRM_OK; i++) {
        job.hosts[i] = (host){.name = options->hosts[i].name, .ranks = options->hosts[i].ranks,
                              .first_rank = job.world, .to = -1, .from = -1, .failed_rank = -1,
                              .input = trmi_alloc(sizeof(trmi_agent_frame) + TRMI_AGENT_FRAME_MAX)};
        job.world += options->hosts[i].ranks;
        if (job.hosts[i].input == NULL) {
            status = TRMI_FAIL(err, TRM_NOMEM, "no memory for host %d", i);
        }
        word_list list;
        if (status == TRM_OK && options->dry_run && make_words(&job, &job.hosts[i], &list, err) == TRM_OK) {
            trmi_text text = {0};
            for (int w = 0; w < list.count; w++) {
                trmi_text_printf(&text, " %s", list.words[w]);
            }
            say(&job, "%s: ranks %d to %d by%.800s", job.hosts[i].name, job.hosts[i].first_rank, job.world - 1,
                text.data);
            trmi_text_free(&text);
        }
    }
    if (status == TRM_OK && !options->dry_run) {
        sigemptyset(&set);
        for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
            sigaddset(&set, numbers[i]);
        }
        sigprocmask(SIG_BLOCK, &set, &before);
        struct sigaction ignore = {.sa_handler = SIG_IGN}, pipe_before;
        sigaction(SIGPIPE, &ignore, &pipe_before);
        job.signal_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
        status = job.signal_fd >= 0 ? run_hosts(&job, err) : TRMI_FAIL_SYS(err, "no descriptor for signals");
        if (status == TRM_OK) {
            conclude(&job);
        }
        close(job.signal_fd);
        sigaction(SIGPIPE, &pipe_before, NULL);
        sigprocmask(SIG_SETMASK, &before, NULL);
    }
    for (int32_t i = 0; job.hosts != NULL && i < job.count; i++) {
        if (job.hosts[i].to >= 0) {
            close(job.hosts[i].to);
        }
        trmi_free(job.hosts[i].input);
    }
    trmi_free(job.hosts);
    return status;
}
