/* SPDX-License-Identifier: Apache-2.0 */
/* The agent of a job over several hosts: takes its order from standard input, runs its ranks as on
 * one host, and sends what they write through standard output. The drawing is in launch_hosts.h. */
#define _GNU_SOURCE
#include "comm/launch/launch_hosts.h"

#include "base/error.h"
#include "base/os.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

extern char **environ;

typedef struct agent {
    int out;          /* to the launcher */
    bool gone;        /* it does not listen any more */
    char scratch[64]; /* logs, environments, the token */
    char token_file[96];
    char *order, **environment;
    const char *fields[TRMI_ORDER_FIELDS], **command;
    int32_t first_rank, ranks;
    off_t *sent;    /* [ranks] of each log */
    bool *env_sent; /* [ranks] */
} agent;

static void put(agent *a, uint32_t kind, int32_t rank, const char *data, size_t bytes) {
    trm_error ignored;
    do {
        size_t part = bytes < TRMI_AGENT_FRAME_MAX ? bytes : TRMI_AGENT_FRAME_MAX;
        trmi_agent_frame frame = {kind, rank, (uint32_t)part};
        a->gone =
            a->gone ||
            trmi_os_write_all(NULL, a->out, &frame, sizeof frame, "launcher", &ignored) != TRM_OK ||
            trmi_os_write_all(NULL, a->out, data, part, "launcher", &ignored) != TRM_OK;
        data += part;
        bytes -= part;
    } while (bytes > 0);
}

static void pass_on(void *context, trm_launch_stream stream, const char *data, size_t bytes) {
    agent *a = context;
    bool console = stream == TRM_LAUNCH_OUT || stream == TRM_LAUNCH_ERR;
    if (console && a->first_rank > 0) {
        return; /* only rank 0 is shown */
    }
    put(a,
        stream == TRM_LAUNCH_OUT     ? TRMI_AGENT_OUT
        : stream == TRM_LAUNCH_ERR   ? TRMI_AGENT_ERR
        : stream == TRM_LAUNCH_BLAME ? TRMI_AGENT_BLAME
                                     : TRMI_AGENT_SAY,
        -1, data, bytes);
}

/* What logs have grown by since the last time. */
static void send_logs(void *context) {
    agent *a = context;
    static char data[TRMI_AGENT_FRAME_MAX];
    for (int32_t i = 0; i < a->ranks && !a->gone; i++) {
        int32_t rank = a->first_rank + i;
        char path[128];
        for (int kind = 0; kind < 2; kind++) {
            snprintf(path, sizeof path, "%s/device%d/%s%d%s", a->scratch, rank,
                     kind == 0 ? "train.log" : "env", rank, kind == 0 ? "" : ".log");
            int fd = kind == 1 && a->env_sent[i] ? -1 : open(path, O_RDONLY | O_CLOEXEC);
            if (fd < 0) {
                continue;
            }
            off_t at = kind == 0 ? a->sent[i] : 0;
            for (ssize_t bytes; (bytes = pread(fd, data, sizeof data, at)) > 0; at += bytes) {
                put(a, kind == 0 ? TRMI_AGENT_LOG : TRMI_AGENT_ENV, rank, data, (size_t)bytes);
            }
            a->sent[i] = kind == 0 ? at : a->sent[i];
            a->env_sent[i] |= kind == 1;
            close(fd);
        }
    }
}

/* --- the order
 *  ------------------------------------------------------------------------------------ */
/* A port of this host that nobody has; somebody may take it before rank 0 does, who then says so.
 */
static int free_port(void) {
    struct sockaddr_in6 any = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_ANY_INIT};
    struct sockaddr_in any4 = {.sin_family = AF_INET};
    socklen_t bytes = sizeof any;
    int fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd >= 0 && (bind(fd, (struct sockaddr *)&any, sizeof any) != 0 ||
                    getsockname(fd, (struct sockaddr *)&any, &bytes) != 0)) {
        any.sin6_port = 0;
    }
    if (fd < 0 || any.sin6_port == 0) { /* no IPv6 here */
        int fd4 = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        bytes = sizeof any4;
        if (fd4 >= 0 && bind(fd4, (struct sockaddr *)&any4, sizeof any4) == 0 &&
            getsockname(fd4, (struct sockaddr *)&any4, &bytes) == 0) {
            any.sin6_port = any4.sin_port;
        }
        close(fd4);
    }
    close(fd);
    return ntohs(any.sin6_port);
}

static bool read_all(int fd, void *data, size_t bytes) {
    for (size_t have = 0; have < bytes;) {
        ssize_t got = read(fd, (char *)data + have, bytes - have);
        if (got <= 0 && !(got < 0 && errno == EINTR)) {
            return false;
        }
        have += got > 0 ? (size_t)got : 0;
    }
    return true;
}

static int32_t number(const agent *a, trmi_agent_field field) { return atoi(a->fields[field]); }

static trm_status bad_order(trm_error *err) {
    return TRMI_FAIL(err, TRM_INVALID,
                     "run --agent takes its order from a launcher (trireme run --hosts), "
                     "not from a person");
}

/* Reads the order; its texts stay in a->order. The launcher's variables win over this host's. */
static trm_status read_order(agent *a, trm_error *err) {
    uint32_t bytes = 0;
    if (!read_all(0, &bytes, sizeof bytes) || bytes < 2 || bytes > TRMI_AGENT_ORDER_MAX ||
        (a->order = trmi_alloc(bytes)) == NULL || !read_all(0, a->order, bytes) ||
        a->order[bytes - 1] != '\0') {
        return bad_order(err);
    }
    int64_t texts = 0, field = 0, own = 0;
    for (uint32_t i = 0; i < bytes; i++) {
        texts += a->order[i] == '\0';
    }
    char *at = a->order;
    for (; field < TRMI_ORDER_FIELDS && field < texts; field++, at += strlen(at) + 1) {
        a->fields[field] = at;
    }
    if (field < TRMI_ORDER_FIELDS) {
        return bad_order(err);
    }
    int64_t variables = number(a, TRMI_ORDER_ENVIRONMENT_COUNT),
            words = number(a, TRMI_ORDER_COMMAND_COUNT);
    a->first_rank = number(a, TRMI_ORDER_FIRST_RANK);
    a->ranks = number(a, TRMI_ORDER_RANKS);
    if (variables < 0 || words < 1 || TRMI_ORDER_FIELDS + variables + words != texts ||
        a->ranks < 1 || a->ranks > 4096) {
        return bad_order(err);
    }
    while (environ[own] != NULL) {
        own++;
    }
    a->environment = trmi_alloc((size_t)(own + variables + 1) * sizeof *a->environment);
    a->command = trmi_alloc((size_t)(words + 1) * sizeof *a->command);
    a->sent = trmi_alloc((size_t)a->ranks * sizeof *a->sent);
    a->env_sent = trmi_alloc((size_t)a->ranks * sizeof *a->env_sent);
    if (a->environment == NULL || a->command == NULL || a->sent == NULL || a->env_sent == NULL) {
        return TRMI_FAIL(err, TRM_NOMEM, "no memory for an order of %u bytes", bytes);
    }
    /* later ones replace them */
    memcpy(a->environment, environ, (size_t)own * sizeof *a->environment);
    for (int64_t i = 0; i < variables; i++, at += strlen(at) + 1) {
        a->environment[own + i] = at;
    }
    for (int64_t i = 0; i < words; i++, at += strlen(at) + 1) {
        a->command[i] = at;
    }
    return TRM_OK;
}

/* Its own directory for logs and the token; the guardian removes it however the agent ends. */
static trm_status make_scratch(agent *a, trm_error *err) {
    uint8_t token[TRM_TOKEN_BYTES];
    const char *hex = a->fields[TRMI_ORDER_TOKEN];
    snprintf(a->scratch, sizeof a->scratch, "/tmp/trireme-agent-%ld-XXXXXX", (long)getpid());
    if (mkdtemp(a->scratch) == NULL) {
        a->scratch[0] = '\0';
        return TRMI_FAIL_SYS(err, "no folder can be made in /tmp for the agent");
    }
    for (int i = 0; i < TRM_TOKEN_BYTES; i++) {
        unsigned byte;
        if (sscanf(hex + 2 * i, "%2x", &byte) != 1) {
            return bad_order(err);
        }
        token[i] = (uint8_t)byte;
    }
    snprintf(a->token_file, sizeof a->token_file, "%s/token", a->scratch);
    int fd = open(a->token_file, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0) {
        return TRMI_FAIL_SYS(err, "%s", a->token_file);
    }
    trm_status status = trmi_os_write_all(NULL, fd, token, sizeof token, a->token_file, err);
    close(fd);
    explicit_bzero(token, sizeof token);
    return status;
}

static trm_status obey(agent *a, int control, trm_launch_result *result, trm_error *err) {
    TRMI_TRY(read_order(a, err));
    const char *directory = a->fields[TRMI_ORDER_DIRECTORY];
    if (chdir(directory) != 0) {
        return TRMI_FAIL_SYS(
            err, "no directory %.150s here; the job was started in one of that name", directory);
    }
    TRMI_TRY(make_scratch(a, err));
    const trm_launch_options options = {.ranks = a->ranks,
                                        .world = number(a, TRMI_ORDER_WORLD),
                                        .first_rank = a->first_rank,
                                        .rendezvous = a->fields[TRMI_ORDER_RENDEZVOUS],
                                        .token_file = a->token_file,
                                        .threads = number(a, TRMI_ORDER_THREADS),
                                        .no_binding = number(a, TRMI_ORDER_NO_BINDING) != 0,
                                        .grace_seconds = atof(a->fields[TRMI_ORDER_GRACE]),
                                        .environment = (const char *const *)a->environment,
                                        .command = a->command,
                                        .directory = a->scratch,
                                        .scratch = a->scratch,
                                        .control_fd = control,
                                        .tick = send_logs,
                                        .write = pass_on,
                                        .context = a};
    return trm_launch(&options, result, err);
}

trm_status trm_launch_agent(int32_t *exit_code, trm_error *err) {
    agent a = {.out = fcntl(1, F_DUPFD_CLOEXEC, 10)};
    int control = fcntl(0, F_DUPFD_CLOEXEC, 10);
    char text[400];
    trm_launch_result result = {.failed_rank = -1};
    if (a.out < 0 || control < 0 || isatty(0)) {
        return bad_order(err);
    }
    signal(SIGPIPE, SIG_IGN); /* a launcher that is gone is noticed by the end of our input */
    dup2(2, 1);               /* nobody else's words between frames */
    int length = snprintf(text, sizeof text, "%d %d", TRMI_AGENT_VERSION, free_port());
    put(&a, TRMI_AGENT_HELLO, -1, text, (size_t)length);
    trm_status status = obey(&a, control, &result, err);
    if (status == TRM_OK) {
        length = snprintf(text, sizeof text, "%d %d %d %d", result.exit_code, result.failed_rank,
                          result.failed_signal, result.failed_code);
        put(&a, TRMI_AGENT_END, -1, text, (size_t)length);
    } else {
        length = snprintf(text, sizeof text, "%d %.300s", (int)status, err->message);
        put(&a, TRMI_AGENT_FAILED, -1, text, (size_t)length);
        if (a.scratch[0] != '\0') {
            trm_error ignored;
            (void)!trmi_os_remove_tree(NULL, a.scratch, &ignored);
        }
    }
    *exit_code = status == TRM_OK ? result.exit_code : trm_status_exit_code(status);
    trmi_free(a.order);
    trmi_free(a.environment);
    trmi_free(a.command);
    trmi_free(a.sent);
    trmi_free(a.env_sent);
    close(a.out);
    close(control);
    return TRM_OK;
}
