/* SPDX-License-Identifier: Apache-2.0 */
/* comm/api/comm_trace.h: records the operations of a job's communicators in a timeline. */
#ifndef TRMI_COMM_TRACE_H
#define TRMI_COMM_TRACE_H

#include "trireme/dist.h"

#include "base/trace.h"

/* Records each operation of the root communicator and of its children in `trace`, and the time that
 * callers wait for asynchronous ones. NULL ends the recording. The trace must live until this has
 * been called with NULL and no operation is pending. */
void trmi_comm_set_trace(trm_comm *comm, trmi_trace *trace);

#endif
