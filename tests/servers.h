/* SPDX-License-Identifier: Apache-2.0 */
/* tests/servers.h: parameter servers in a test's own process. */
#ifndef TRIREME_TESTS_SERVERS_H
#define TRIREME_TESTS_SERVERS_H

#include "check.h"

#include "trireme/ps.h"

#include <unistd.h>

/* Starts a server with these options, and 64 MB if they set no memory. The port of its previous
 * life may be in use for a moment. */
static inline trm_ps_server *server_start(trm_ps_server_options o) {
    trm_ps_server *server;
    trm_error err;
    trm_status status;
    o.memory_bytes = o.memory_bytes == 0 ? 1 << 26 : o.memory_bytes;
    while ((status = trm_ps_server_start(&o, &server, &err)) == TRM_IO && o.listen != NULL) {
        usleep(10000);
    }
    CHECK_OK(status, err);
    return server;
}

/* Starts servers[count] of one job, equal except for their numbers. */
static inline void servers_start(trm_ps_server **servers, int32_t count, trm_ps_server_options o) {
    o.servers = count;
    for (o.server = 0; o.server < count; o.server++) {
        servers[o.server] = server_start(o);
    }
}

#endif
