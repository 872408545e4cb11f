/* SPDX-License-Identifier: Apache-2.0 */
/* comm/shm/shared_buffers.h: shared memory for other rooms, beside trm_comm_alloc_shared: they
 * take it in two steps, where it is not used completely, and map rank 0's on all ranks. The
 * functions of a communicator are in comm/api, those of its memory here. */
#ifndef TRMI_COMM_SHARED_BUFFERS_H
#define TRMI_COMM_SHARED_BUFFERS_H

#include "trireme/dist.h"

/* Returns memory as trm_comm_alloc_shared does, but no page is allocated before it is used. */
void *trmi_comm_reserve_shared(trm_comm *comm, size_t bytes, trm_error *err);
/* Allocates the pages of a part that will be used, as huge pages where a whole one fits into the
 * part. The contents stay. */
void trmi_comm_fill_shared(void *part, size_t bytes);

/* Returns true if every rank can map rank 0's memory: all are processes of one host. The same on
 * all ranks. */
bool trmi_comm_can_map_root(const trm_comm *comm);
/* Maps rank 0's shared memory on every rank: one copy of values that are equal on all. Ranks order
 * their accesses themselves (trm_comm_barrier). Collective.
 *   param    memory: from trm_comm_alloc_shared; used on rank 0 only
 *            out: written; NULL on all ranks if they are on several hosts, or threads of one
 *            process
 *            bytes: length of what is mapped; equal on all ranks
 *   errors   INVALID (memory of another kind), IO (ranks of this host cannot open each other's
 *            memory)
 *   owns     rank 0; on other ranks valid until rank 0 frees it, or their last communicator is
 *            destroyed */
trm_status trmi_comm_map_root(trm_comm *comm, void *memory, size_t bytes, void **out,
                              trm_error *err);

#endif
