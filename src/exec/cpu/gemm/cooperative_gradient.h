/* SPDX-License-Identifier: Apache-2.0 */
/* exec/cpu/gemm/cooperative_gradient.h: kernels of cooperative gradients: each rank of a host
 * computes some rows, from the samples of all ranks (plan/lower/lower_cooperative.c chooses the
 * gradients). */
#ifndef TRMI_EXEC_CPU_COOPERATIVE_GRADIENT_H
#define TRMI_EXEC_CPU_COOPERATIVE_GRADIENT_H

#include "exec/cpu/dnnl/onednn.h"

/* Binds the kernel of a part of a cooperative gradient (trmi_backend.bind_cooperative). */
trm_status trmi_onednn_bind_cooperative(trmi_backend *backend, trmi_kernel *kernel,
                                        const trmi_cooperative_part *part, trm_error *err);
/* Returns the bytes of scratch that suffice for any part. */
int64_t trmi_onednn_cooperative_scratch(trmi_onednn *state, const trm_program *program,
                                        const trmi_step *step);

#endif
