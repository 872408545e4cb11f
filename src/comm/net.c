#include "comm/net.h"

#include "base/error.h"

#include <stdio.h>
#include <string.h>

trm_status trmi_net_choose(trm_comm *comm, const trmi_exchange *exchange, trm_error *err) {
    (void)exchange;
    bool automatic = strcmp(comm->engine_name, "auto") == 0;
    bool shm = strcmp(comm->engine_name, "shm") == 0;
    if (comm->host_count == 1 && (automatic || shm)) {
        snprintf(comm->engine_text, sizeof comm->engine_text, "shm");
        return TRM_OK;
    }
    return TRMI_FAIL(err, TRM_UNSUPPORTED, "engine %s over %d hosts is not there yet",
                     comm->engine_name, comm->host_count);
}

void trmi_net_release(trm_comm *comm) { (void)comm; }

trm_status trmi_net_run(trm_comm *comm, const trmi_op *op, bool background, trm_error *err) {
    (void)op, (void)background;
    return TRMI_FAIL(err, TRM_UNSUPPORTED, "engine %s is not there yet", comm->engine_name);
}
