/* SPDX-License-Identifier: Apache-2.0 */
/* comm/net/reserve.h: trm_comm_alloc_shared in two steps, for memory of which not all will be used.
 */
#ifndef TRMI_COMM_RESERVE_H
#define TRMI_COMM_RESERVE_H

#include "trireme/comm.h"

/* As trm_comm_alloc_shared, but no page is there before it is used. */
void *trmi_comm_reserve_shared(trm_comm *comm, size_t bytes, trm_error *err);
/* A part of it will be used: its pages are taken, huge ones as far as they fit into the part. What
 * is there stays as it is. */
void trmi_comm_fill_shared(void *part, size_t bytes);

#endif
