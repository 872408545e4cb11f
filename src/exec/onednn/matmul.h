/* exec/onednn/matmul.h: LINEAR and MATMUL in the back-end's table. */
#ifndef TRMI_EXEC_ONEDNN_MATMUL_H
#define TRMI_EXEC_ONEDNN_MATMUL_H

#include "exec/onednn/onednn.h"

trm_status trmi_onednn_bind_matmul(trmi_backend *backend, trmi_kernel *kernel, trm_error *err);
bool trmi_onednn_matmul_supports(trmi_onednn *state, const trm_graph *graph, const trmi_op *op,
                                 trmi_layout layout);
int64_t trmi_onednn_matmul_scratch(trmi_onednn *state, const trm_program *program,
                                   const trmi_step *step);

#endif
