/* SPDX-License-Identifier: Apache-2.0 */
/* comm/api/world.h: the jobs that this process has joined (trm_cluster_join), each with the first
 * communicator made over it. What a model uses whose program names no communicator.
 *   thread  any */
#ifndef TRMI_COMM_API_WORLD_H
#define TRMI_COMM_API_WORLD_H

#include "trireme/comm.h"

/* A job of more than one rank was joined; more than 16 are not remembered. */
void trmi_world_add(trm_bootstrap *bootstrap);
/* It was left.   owns  the communicator returned (NULL: none) is the caller's: trmi_world_own */
trm_comm *trmi_world_remove(trm_bootstrap *bootstrap);
/* A communicator over all ranks of the job was made, or is gone. */
void trmi_world_note(trm_bootstrap *bootstrap, trm_comm *comm);
void trmi_world_forget(const trm_comm *comm);
/* The job's communicator belongs to the job: trm_cluster_leave destroys it. */
void trmi_world_own(trm_bootstrap *bootstrap);
/* How many jobs this process has joined. If it is one: *bootstrap, and *comm (NULL: none yet). */
int32_t trmi_world_find(trm_bootstrap **bootstrap, trm_comm **comm);

#endif
