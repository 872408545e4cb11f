/* SPDX-License-Identifier: Apache-2.0 */
/* comm/cluster/cluster_addr.h: parsing of host names, IP addresses and "host:port" as users write
 * them. No function resolves a name. */
#ifndef TRMI_COMM_CLUSTER_ADDR_H
#define TRMI_COMM_CLUSTER_ADDR_H

#include "trireme/base.h"

enum { TRMI_HOST_BYTES = 256 }; /* with the '\0'; RFC 1035 allows 253 characters */

/* Returns 4 or 6 for a valid address literal, 0 otherwise. */
int trmi_ip_family(const char *text);
/* Returns whether a host is 127.x.x.x, ::1 or "localhost". */
bool trmi_is_loopback(const char *host);
/* Returns whether `host` (an address literal) belongs to an interface of this machine, or is a
 * loopback address. */
bool trmi_is_local_ip(const char *host);

/* A parsed "host:port". */
typedef struct trmi_host_port {
    char host[TRMI_HOST_BYTES]; /* without brackets */
    int32_t port;
} trmi_host_port;

/* Parses "host:port", "1.2.3.4:5" or "[::1]:2222" with a port from 1 to 65535 (with `zero` also 0).
 * Returns NULL, or a static text that says what is wrong ("no port: ..."). */
const char *trmi_host_port_parse(const char *text, bool zero, trmi_host_port *out);

#endif
