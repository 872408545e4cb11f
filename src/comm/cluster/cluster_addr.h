/* SPDX-License-Identifier: Apache-2.0 */
/* comm/cluster/cluster_addr.h: host names, IP addresses and "host:port" as users write them. */
#ifndef TRMI_COMM_CLUSTER_ADDR_H
#define TRMI_COMM_CLUSTER_ADDR_H

#include "trireme/base.h"

enum { TRMI_HOST_BYTES = 256 }; /* with the terminator; RFC 1035 allows 253 characters */

/* 4 or 6 for a valid address literal, 0 otherwise. */
int trmi_ip_family(const char *text);
/* True for 127.x, ::1 and "localhost". */
bool trmi_is_loopback(const char *host);
/* True when `host` (a literal) is an address of one of this machine's interfaces. */
bool trmi_is_local_ip(const char *host);

typedef struct trmi_host_port {
    char host[TRMI_HOST_BYTES];
    int32_t port;
} trmi_host_port;

/* "host:port", "1.2.3.4:5", "[::1]:2222"; port 1 to 65535 (0 too when `zero` is set).
 * Returns NULL, or what is wrong with it ("no port", ...) as a static string. */
const char *trmi_host_port_parse(const char *text, bool zero, trmi_host_port *out);

#endif
