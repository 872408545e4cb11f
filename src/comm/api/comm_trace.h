/* SPDX-License-Identifier: Apache-2.0 */
/* comm/api/comm_trace.h: the operations of a job's communicators in a timeline. */
#ifndef TRMI_COMM_TRACE_H
#define TRMI_COMM_TRACE_H

#include "trireme/comm.h"

#include "base/trace.h"

/* Records each operation of this job's communicators, and what callers wait for them; NULL: no more.
 * The trace lives until it is NULL again and no operation is pending. */
void trmi_comm_set_trace(trm_comm *comm, trmi_trace *trace);

#endif
