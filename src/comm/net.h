/* comm/net.h: which engines a communicator gets, and what it does with them together. */
#ifndef TRMI_COMM_NET_H
#define TRMI_COMM_NET_H

#include "comm/communicator.h"

/* Decides by options and hosts; makes comm->net if one is needed and fills comm->engine_text.
 * Collective over the communicator.   error INVALID, UNSUPPORTED, IO, TIMEOUT, PEER */
trm_status trmi_net_choose(trm_comm *comm, const trmi_exchange *exchange, trm_error *err);
void trmi_net_release(trm_comm *comm);
/* A collective of a communicator that has a network engine. */
trm_status trmi_net_run(trm_comm *comm, const trmi_op *op, bool background, trm_error *err);

#endif
