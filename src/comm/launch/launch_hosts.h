/* SPDX-License-Identifier: Apache-2.0 */
/* comm/launch/launch_hosts.h: a job over several hosts: one agent on each, started by a remote
 * shell.
 *
 *   launcher                         agent ("trireme run --agent") on a host
 *     |<--------------- HELLO port --|   a port that is free there, for rank 0
 *     |-- ORDER -------------------->|   texts ended by 0: rendezvous, token, environment, program ...
 *     |<--- OUT ERR SAY LOG ENV -----|   what ranks write, as it comes
 *     |-- a byte: signal number ---->|
 *     |<----------- END or FAILED ---|
 *
 * All of it goes through the remote shell's standard input and output: no port is opened for it and
 * no secret is ever an argument. The end of its input tells the agent that the launcher is gone; it
 * then ends its ranks.
 */
#ifndef TRMI_COMM_LAUNCH_HOSTS_H
#define TRMI_COMM_LAUNCH_HOSTS_H

#include "comm/launch/launch.h"

enum { TRMI_AGENT_VERSION = 2, TRMI_AGENT_FRAME_MAX = 1 << 16, TRMI_AGENT_ORDER_MAX = 1 << 22 };

typedef enum trmi_agent_kind {
    TRMI_AGENT_HELLO = 0x74726d01, /* text: version, port */
    TRMI_AGENT_OUT = 0x74726d02,
    TRMI_AGENT_ERR = 0x74726d03,
    TRMI_AGENT_SAY = 0x74726d04,
    TRMI_AGENT_LOG = 0x74726d05,    /* rank's train.log, next part */
    TRMI_AGENT_ENV = 0x74726d06,    /* rank's env.log */
    TRMI_AGENT_END = 0x74726d07,    /* text: exit code, failed rank, signal, code */
    TRMI_AGENT_FAILED = 0x74726d08, /* text: status, message */
    TRMI_AGENT_BLAME = 0x74726d09
} trmi_agent_kind;

typedef struct trmi_agent_frame {
    uint32_t kind;
    int32_t rank;
    uint32_t bytes;
} trmi_agent_frame;

/* The texts of an order, in this order; then environment_count and command_count texts. */
typedef enum trmi_agent_field {
    TRMI_ORDER_DIRECTORY,
    TRMI_ORDER_WORLD,
    TRMI_ORDER_FIRST_RANK,
    TRMI_ORDER_RANKS,
    TRMI_ORDER_RENDEZVOUS,
    TRMI_ORDER_TOKEN, /* 64 hexadecimal digits */
    TRMI_ORDER_THREADS,
    TRMI_ORDER_NO_BINDING,
    TRMI_ORDER_GRACE,
    TRMI_ORDER_ENVIRONMENT_COUNT,
    TRMI_ORDER_COMMAND_COUNT,
    TRMI_ORDER_FIELDS
} trmi_agent_field;

/* trm_launch with hosts. */
trm_status trmi_launch_hosts(const trm_launch_options *options, trm_launch_result *result,
                             trm_error *err);

#endif
