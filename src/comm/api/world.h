/* SPDX-License-Identifier: Apache-2.0 */
/* comm/api/world.h: a list of the jobs that this process has joined (trm_cluster_join), each with
 * the first communicator made over it. A model whose program names no communicator uses it. All
 * functions may be called by any thread. */
#ifndef TRMI_COMM_API_WORLD_H
#define TRMI_COMM_API_WORLD_H

#include "trireme/dist.h"

/* Adds a job of more than one rank. At most 16 are kept; further ones are ignored. */
void trmi_world_add(trm_bootstrap *bootstrap);
/* Removes a job that the process leaves. Returns the communicator that belongs to the job
 * (trmi_world_own), which the caller then destroys, or NULL. */
trm_comm *trmi_world_remove(trm_bootstrap *bootstrap);
/* Stores a communicator over all ranks of the job, if it is the first one. */
void trmi_world_note(trm_bootstrap *bootstrap, trm_comm *comm);
/* Removes a communicator that is being destroyed. */
void trmi_world_forget(const trm_comm *comm);
/* Makes the job the owner of its communicator: trm_cluster_leave destroys it. */
void trmi_world_own(trm_bootstrap *bootstrap);
/* Returns the number of jobs that this process has joined. If it is one, *bootstrap is that job and
 * *comm its communicator (NULL: none has been created yet). */
int32_t trmi_world_find(trm_bootstrap **bootstrap, trm_comm **comm);

#endif
