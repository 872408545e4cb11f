/* SPDX-License-Identifier: Apache-2.0 */
/* ps/client/life.h: a worker's process goes on after it has lost what it worked with, as if it had
 * died and come back. */
#ifndef TRMI_PS_LIFE_H
#define TRMI_PS_LIFE_H

#include "trireme/ps.h"

/* Before its first batch: which that is. Servers that had it from an earlier life drop its push. */
void trmi_client_begin_at(trm_ps_client *client, int64_t batch);
/* Destroys it as if its process had died: no server is told that it ends, each waits for its next
 * life. Pushes that are under way have a second to arrive. */
void trmi_client_vanish(trm_ps_client *client);
/* From now on every wait is so long (timeout_seconds of its options). */
void trmi_client_patience(trm_ps_client *client, double timeout_seconds);

/* Of a server: how many clients are connected now, and have ever been.   thread any */
int64_t trmi_server_connections(trm_ps_server *server, int64_t *ever);

#endif
