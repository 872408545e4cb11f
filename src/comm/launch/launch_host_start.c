/* SPDX-License-Identifier: Apache-2.0 */
/* Reaching a host: the words of the remote shell, its process, and the order for the agent that it
 * starts. */
#define _GNU_SOURCE
#include "comm/launch/launch_host_start.h"

#include "base/error.h"
#include "comm/cluster/cluster_addr.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

/* --- the remote shell --------------------------------------------------------------------------
 */
/* One word of the shell, with the host's name in the place of {}. */
static bool add_word(trmi_host_words *out, size_t *used, const char *word, size_t length,
                     const char *host, bool *named) {
    const char *mark = memmem(word, length, "{}", 2);
    size_t before = mark != NULL ? (size_t)(mark - word) : length,
           after = mark != NULL ? length - before - 2 : 0;
    if (out->count == TRMI_HOST_WORDS_MAX || *used + length + strlen(host) + 1 > sizeof out->text) {
        return false;
    }
    out->words[out->count++] = out->text + *used;
    *used +=
        (size_t)snprintf(out->text + *used, sizeof out->text - *used, "%.*s%s%.*s", (int)before,
                         word, mark != NULL ? host : "", (int)after, word + length - after) +
        1;
    *named |= mark != NULL;
    return true;
}

static bool add_fixed_word(trmi_host_words *out, const char *word) {
    if (out->count == TRMI_HOST_WORDS_MAX) {
        return false;
    }
    out->words[out->count++] = (char *)(uintptr_t)word;
    return true;
}

trm_status trmi_host_words_make(const trm_launch_options *options, const char *host,
                                trmi_host_words *out, trm_error *err) {
    const char *shell = options->remote_shell;
    bool named = shell == NULL && trmi_is_loopback(host),
         fits = true; /* this machine needs no shell */
    shell = shell != NULL ? shell : named ? "" : "ssh -T -o BatchMode=yes -o ConnectTimeout=10";
    size_t used = 0;
    out->count = 0;
    for (shell += strspn(shell, " "); *shell != '\0' && fits; shell += strspn(shell, " ")) {
        size_t length = strcspn(shell, " ");
        fits = add_word(out, &used, shell, length, host, &named);
        shell += length;
    }
    fits = fits && (named || add_fixed_word(out, host));
    for (const char *const *word = options->agent; *word != NULL && fits; word++) {
        fits = add_fixed_word(out, *word);
    }
    out->words[out->count] = NULL;
    return fits ? TRM_OK
                : TRMI_FAIL(err, TRM_INVALID,
                            "host %.100s: --remote-shell and the agent's command have more than %d "
                            "words or %zu bytes",
                            host, TRMI_HOST_WORDS_MAX, sizeof out->text);
}

/* In the child: becomes the shell, or tells errno and ends. */
static _Noreturn void become_shell(const trmi_host_words *list, pid_t parent, int input, int output,
                                   int report) {
    sigset_t none;
    sigemptyset(&none);
    setpgid(0, 0); /* Ctrl-C is for the launcher, which tells the agents */
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    sigprocmask(SIG_SETMASK, &none, NULL);
    if (getppid() == parent && dup2(input, 0) >= 0 && dup2(output, 1) >= 0) {
        execvp(list->words[0], list->words);
    }
    int problem = errno != 0 ? errno : ESRCH; /* ESRCH: the launcher is gone */
    (void)!write(report, &problem, sizeof problem);
    _exit(127);
}

static void close_pipe(const int pipe[2]) {
    for (int end = 0; end < 2; end++) {
        if (pipe[end] >= 0) {
            close(pipe[end]);
        }
    }
}

trm_status trmi_host_shell_start(const trm_launch_options *options, const char *host,
                                 trmi_host_shell *out, trm_error *err) {
    trmi_host_words list;
    int in[2] = {-1, -1}, back[2] = {-1, -1}, report[2] = {-1, -1}, problem = 0;
    pid_t parent = getpid(), child = -1;
    TRMI_TRY(trmi_host_words_make(options, host, &list, err));
    if (pipe2(in, O_CLOEXEC) == 0 && pipe2(back, O_CLOEXEC) == 0 && pipe2(report, O_CLOEXEC) == 0) {
        child = fork();
    }
    problem = child < 0 ? errno : 0;
    if (child == 0) {
        become_shell(&list, parent, in[0], back[1], report[1]);
    } else if (child > 0) {
        close(report[1]); /* the child's end closes when it becomes the shell */
        report[1] = -1;
        if (read(report[0], &problem, sizeof problem) == (ssize_t)sizeof problem) {
            waitpid(child, NULL, 0);
        }
    }
    if (problem == 0) {
        *out = (trmi_host_shell){child, in[1], back[0]};
        in[1] = back[0] = -1;
        fcntl(out->to, F_SETFL, O_NONBLOCK);
        fcntl(out->from, F_SETFL, O_NONBLOCK);
    }
    close_pipe(in);
    close_pipe(back);
    close_pipe(report);
    errno = problem;
    return problem == 0
               ? TRM_OK
               : TRMI_FAIL_SYS(err, "host %.100s: the remote shell \"%.60s\" cannot be started",
                               host, list.words[0]);
}

/* --- the order ---------------------------------------------------------------------------------
 */
static bool travels(const char *variable) {
    static const char *const names[] = {
        "PATH=", "LD_LIBRARY_PATH=", "XDG_CACHE_HOME=", "OMP_", "TRIREME_", "HCCL_", "UCX_"};
    for (size_t n = 0; n < sizeof names / sizeof names[0]; n++) {
        if (strncmp(variable, names[n], strlen(names[n])) == 0) {
            return true;
        }
    }
    return false;
}

static void add(trmi_text *text, const char *value) {
    trmi_text_append(text, value, strlen(value) + 1);
}

static void add_number(trmi_text *text, double value) {
    char digits[32];
    snprintf(digits, sizeof digits, "%.15g", value);
    add(text, digits);
}

/* The variables that travel, then the added ones; NULL counts them only. */
static int add_variables(const trm_launch_options *options, trmi_text *text) {
    int count = 0;
    for (const char *const *one = options->environment; one != NULL && *one != NULL; one++) {
        if (travels(*one)) {
            count++;
            if (text != NULL) {
                add(text, *one);
            }
        }
    }
    for (const char *const *one = options->extra; one != NULL && *one != NULL; one++) {
        count++;
        if (text != NULL) {
            add(text, *one);
        }
    }
    return count;
}

static void add_rendezvous(const trm_launch_options *options, int port, trmi_text *text) {
    const trm_launch_host *first = &options->hosts[0];
    const char *address = first->address != NULL ? first->address : first->name;
    bool colons = strchr(address, ':') != NULL && address[0] != '[';
    char place[320];
    snprintf(place, sizeof place, colons ? "[%.280s]:%d" : "%.280s:%d", address, port);
    add(text, place);
}

/* In the order of trmi_agent_field. */
static void add_texts(const trm_launch_options *o, const trmi_host_part *part,
                      const char *directory, trmi_text *text) {
    int words = 0;
    while (o->command[words] != NULL) {
        words++;
    }
    add(text, directory);
    add_number(text, part->world);
    add_number(text, part->first_rank);
    add_number(text, part->ranks);
    add_rendezvous(o, part->port, text);
    add(text, part->token);
    add_number(text, o->threads);
    add_number(text, o->no_binding);
    add_number(text, o->grace_seconds);
    add_number(text, add_variables(o, NULL));
    add_number(text, words);
    add_variables(o, text);
    for (int i = 0; i < words; i++) {
        add(text, o->command[i]);
    }
}

trm_status trmi_host_order_make(const trm_launch_options *options, const trmi_host_part *part,
                                trmi_text *out, trm_error *err) {
    char directory[1024];
    uint32_t bytes = 0;
    if (getcwd(directory, sizeof directory) == NULL) {
        return TRMI_FAIL_SYS(err, "the working directory has no name");
    }
    trmi_text_append(out, (const char *)&bytes, sizeof bytes);
    add_texts(options, part, directory, out);
    if (out->failed || out->length - sizeof bytes > TRMI_AGENT_ORDER_MAX) {
        return TRMI_FAIL(
            err, TRM_NOMEM,
            "host %.100s: the order is too long: %d MiB of environment and arguments at most",
            part->name, TRMI_AGENT_ORDER_MAX >> 20);
    }
    bytes = (uint32_t)(out->length - sizeof bytes);
    memcpy(out->data, &bytes, sizeof bytes);
    return TRM_OK;
}
