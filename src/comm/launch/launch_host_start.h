/* SPDX-License-Identifier: Apache-2.0 */
/* comm/launch/launch_host_start.h: how a host is reached: the remote shell that starts an agent
 * there, and the order that the agent is to get. Part of the launcher of several hosts
 * (launch_hosts.h). */
#ifndef TRMI_COMM_LAUNCH_HOST_START_H
#define TRMI_COMM_LAUNCH_HOST_START_H

#include "base/memory.h"
#include "comm/launch/launch_hosts.h"

#include <sys/types.h>

enum { TRMI_HOST_WORDS_MAX = 64 };

typedef struct trmi_host_words {
    char *words[TRMI_HOST_WORDS_MAX + 1]; /* for execvp; in text or in what the options hold */
    int count;
    char text[2048];
} trmi_host_words;

/* The remote shell's words with the host's name in place, then the agent's. A shell that is not
 * named is ssh, and none at all for this machine.
 *   error   INVALID: too many or too long */
trm_status trmi_host_words_make(const trm_launch_options *options, const char *host,
                                trmi_host_words *out, trm_error *err);

typedef struct trmi_host_shell {
    pid_t pid;    /* leads a process group of its own */
    int to, from; /* its standard input and output, neither of which blocks */
} trmi_host_shell;

/* Starts it; the caller closes and reaps.
 *   error   IO: what stood in the way; nothing is left running or open */
trm_status trmi_host_shell_start(const trm_launch_options *options, const char *host,
                                 trmi_host_shell *out, trm_error *err);

/* What is for one host alone. */
typedef struct trmi_host_part {
    const char *name;
    int32_t world, first_rank, ranks;
    int port;          /* where rank 0 waits, on the first host */
    const char *token; /* hexadecimal */
} trmi_host_part;

/* Appends an order as it goes over the wire: its length in four bytes, then its texts.
 *   error   NOMEM: it is too long */
trm_status trmi_host_order_make(const trm_launch_options *options, const trmi_host_part *part,
                                trmi_text *out, trm_error *err);

#endif
