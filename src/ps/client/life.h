/* SPDX-License-Identifier: Apache-2.0 */
/* ps/client/life.h: a worker's process that continues after losing its job, as if it had died
 * and come back (hybrid training, train/estimator/estimator_roles.c). */
#ifndef TRMI_PS_LIFE_H
#define TRMI_PS_LIFE_H

#include "trireme/ps.h"

/* Returns the mode of the servers. */
trm_ps_mode trmi_client_mode(const trm_ps_client *client);
/* Sets the number of the first batch, before it. Servers that have that batch from an earlier life
 * drop its push. */
void trmi_client_begin_at(trm_ps_client *client, int64_t batch);
/* Destroys the client as if its process had died: it does not sign off, and the servers wait for
 * its next life. Pushes under way get a second to arrive. NULL is accepted. */
void trmi_client_vanish(trm_ps_client *client);
/* Sets the limit of every wait from now on (timeout_seconds of its options). */
void trmi_client_set_timeout(trm_ps_client *client, double timeout_seconds);

/* Returns how many clients are connected to a server now; *ever: how many have been.
 *   threads  any */
int64_t trmi_server_connections(trm_ps_server *server, int64_t *ever);

#endif
