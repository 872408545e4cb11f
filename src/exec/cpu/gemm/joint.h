/* SPDX-License-Identifier: Apache-2.0 */
/* exec/cpu/gemm/joint.h: kernels of cooperative gradients: each rank of a host computes some rows,
 * from the samples of all ranks (plan/lower/lower_joint.c chooses the gradients). */
#ifndef TRMI_EXEC_ONEDNN_JOINT_H
#define TRMI_EXEC_ONEDNN_JOINT_H

#include "exec/cpu/dnnl/onednn.h"

/* Binds the kernel of a part of a cooperative gradient (trmi_backend.bind_joint). */
trm_status trmi_onednn_bind_joint(trmi_backend *backend, trmi_kernel *kernel,
                                  const trmi_joint_part *part, trm_error *err);
/* Returns the bytes of scratch that suffice for any part. */
int64_t trmi_onednn_joint_scratch(trmi_onednn *state, const trm_program *program,
                                  const trmi_step *step);

#endif
