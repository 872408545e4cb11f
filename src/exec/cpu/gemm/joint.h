/* SPDX-License-Identifier: Apache-2.0 */
/* exec/cpu/gemm/joint.h: slices of gradients that all ranks of a host make together
 * (plan/lower/lower_joint.c says which). */
#ifndef TRMI_EXEC_ONEDNN_JOINT_H
#define TRMI_EXEC_ONEDNN_JOINT_H

#include "exec/cpu/dnnl/onednn.h"

trm_status trmi_onednn_bind_joint(trmi_backend *backend, trmi_kernel *kernel,
                                  const trmi_joint_part *part, trm_error *err);
/* Enough for any part. */
int64_t trmi_onednn_joint_scratch(trmi_onednn *state, const trm_program *program,
                                  const trmi_step *step);

#endif
