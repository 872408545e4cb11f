/* SPDX-License-Identifier: Apache-2.0 */
/* exec/exchange_form.h: how an EXCHANGE step moves its boxes between ranks. The kernel
 * (distributed/communication.c) and the prediction of memory (exec_memory.c) decide it by these
 * functions. They depend only on their arguments. */
#ifndef TRMI_EXEC_EXCHANGE_FORM_H
#define TRMI_EXEC_EXCHANGE_FORM_H

#include "trireme/dist.h"

#include "plan/lower/program.h"

/* Returns the collective that moves the tensors as they lie in memory: ALLGATHERV, REDUCE_SCATTERV,
 * or ALLTOALLV of whole tensors (a ring). NONE: boxes are packed into staging and sent by
 * ALLTOALLV. The same on all members of the exchange. */
trm_collective_kind trmi_exchange_collective(const trmi_box_exchange *what, const trmi_buffer *in,
                                             const trmi_buffer *out);
/* Returns the bytes of staging, for packed and for received boxes, that the largest EXCHANGE of a
 * program needs. `ordered`: sums are packed and added in the order of the members, so that their
 * bits do not depend on which message came first. */
void trmi_exchange_staging(const trm_program *program, bool ordered, int64_t *send, int64_t *recv);

#endif
