/* SPDX-License-Identifier: Apache-2.0 */
/* comm/net/reserve.h: trm_comm_alloc_shared in two steps, for memory that is not used
 * completely. */
#ifndef TRMI_COMM_RESERVE_H
#define TRMI_COMM_RESERVE_H

#include "trireme/dist.h"

/* Returns memory as trm_comm_alloc_shared does, but no page is allocated before it is used. */
void *trmi_comm_reserve_shared(trm_comm *comm, size_t bytes, trm_error *err);
/* Allocates the pages of a part that will be used, as huge pages where a whole one fits into the
 * part. The contents stay. */
void trmi_comm_fill_shared(void *part, size_t bytes);

#endif
