/* exec/onednn/dnnl_compat.h: the little of oneDNN that we call, the same for its C API v2 and v3.
 * Only dnnl_compat*.c include dnnl.h. */
#ifndef TRMI_EXEC_ONEDNN_DNNL_COMPAT_H
#define TRMI_EXEC_ONEDNN_DNNL_COMPAT_H

#include "trireme/base.h"

/* Engine and stream of the CPU.
 *   owns  caller destroys      thread  one thread at a time; primitives use OpenMP inside */
typedef struct trmi_dnnl trmi_dnnl;
trm_status trmi_dnnl_create(trmi_dnnl **out, trm_error *err);
void trmi_dnnl_destroy(trmi_dnnl *dnnl);
/* "oneDNN 2.6.3": part of the tuning key. owns: static */
const char *trmi_dnnl_version(void);

#endif
