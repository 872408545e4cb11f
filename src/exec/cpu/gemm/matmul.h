/* SPDX-License-Identifier: Apache-2.0 */
/* exec/cpu/gemm/matmul.h: LINEAR and MATMUL in the back-end's table. */
#ifndef TRMI_EXEC_CPU_MATMUL_H
#define TRMI_EXEC_CPU_MATMUL_H

#include "exec/cpu/conv/conv.h"

/* The three functions of the table (exec/backend.h): makes the kernel of a step; returns whether
 * the back-end has one for an operator in a layout; returns the bytes of scratch that a step
 * needs. */
trm_status trmi_onednn_bind_matmul(trmi_backend *backend, trmi_kernel *kernel, trm_error *err);
bool trmi_onednn_matmul_supports(trmi_onednn *state, const trm_graph *graph, const trmi_op *op,
                                 trmi_layout layout);
int64_t trmi_onednn_matmul_scratch(trmi_onednn *state, const trm_program *program,
                                   const trmi_step *step);
/* Returns whether the kernel of a product rounds its matrix `input` as it packs it
 * (trmi_target). */
bool trmi_onednn_matmul_rounds(trmi_onednn *state, const trm_graph *graph, const trmi_op *op,
                               int input);
/* Sets *problem to the weight gradient of a 1x1 convolution (image A, result B) that equals the
 * product A^T B of a step. Returns false if the step is no such product. */
bool trmi_matmul_problem_of_step(const trm_program *program, const trmi_step *step,
                                 trmi_conv_problem *problem);

#endif
