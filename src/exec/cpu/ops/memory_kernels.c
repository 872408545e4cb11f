/* SPDX-License-Identifier: Apache-2.0 */
/* exec/cpu/ops/memory_kernels.c: the table of memory_kernels.h, compiled for each instruction set
 * (base/simd/isa.h). The loops are in the headers named *_body.h. */
#include "exec/cpu/ops/memory_kernels.h"
#include "base/simd/isa.h"
#include "base/simd/vec.h"

#include "exec/cpu/ops/eltwise_body.h"
#include "exec/cpu/ops/click_body.h"
#include "exec/cpu/ops/loss_body.h"
#include "exec/cpu/ops/narrow_body.h"
#include "exec/cpu/ops/pool_body.h"
#include "exec/cpu/ops/row_body.h"

/* The table of this instruction set. */
const trmi_memory_kernels TRMI_FOR_ISA(trmi_memory_kernels) = {
    .unary = {[TRMI_UNARY_COPY] = copy_unary,
              [TRMI_UNARY_RELU] = relu_unary,
              [TRMI_UNARY_SIGMOID] = sigmoid_unary,
              [TRMI_UNARY_TANH] = tanh_unary,
              [TRMI_UNARY_EXP] = exp_unary,
              [TRMI_UNARY_LOG] = log_unary,
              [TRMI_UNARY_SQRT] = sqrt_unary,
              [TRMI_UNARY_SCALE] = scale_unary,
              [TRMI_UNARY_GELU] = gelu_unary,
              [TRMI_UNARY_GELU_TANH] = gelu_tanh_unary,
              [TRMI_UNARY_SILU] = silu_unary},
    .binary = {[TRMI_BINARY_ADD] = add_binary,
               [TRMI_BINARY_SUB] = sub_binary,
               [TRMI_BINARY_MUL] = mul_binary,
               [TRMI_BINARY_DIV] = div_binary,
               [TRMI_BINARY_RELU_GRAD] = relu_grad_binary,
               [TRMI_BINARY_SIGMOID_GRAD] = sigmoid_grad_binary,
               [TRMI_BINARY_TANH_GRAD] = tanh_grad_binary,
               [TRMI_BINARY_GELU_GRAD] = gelu_grad_binary,
               [TRMI_BINARY_GELU_TANH_GRAD] = gelu_tanh_grad_binary,
               [TRMI_BINARY_SILU_GRAD] = silu_grad_binary,
               [TRMI_BINARY_SWIGLU] = swiglu_binary},
    .scale_rows = scale_rows,
    .swiglu_grad = swiglu_grad,
    .rotate = rotate_row,
    .row_norm = row_norm,
    .row_norm_grad = row_norm_grad,
    .attend = attend_scores,
    .attend_grad = attend_grad,
    .dot = dot_run,
    .dropout = dropout_loop,
    .fold_rows = fold_rows,
    .sum_rows = sum_rows,
    .fold_run = fold_run,
    .softmax = softmax_row,
    .softmax_grad = softmax_grad_row,
    .log_sum_exp = log_sum_exp,
    .xent_grad = xent_grad_row,
    .bce = bce_run,
    .bce_grad = bce_grad_run,
    .max_pool = max_pool_row,
    .avg_pool = avg_pool_row,
    .max_pool_grad = max_pool_grad_row,
    .avg_pool_grad = avg_pool_grad_row,
    .pair_dots = pair_dots,
    .pair_dots_grad = pair_dots_grad,
    .add_scaled = add_scaled,
    .dot_rows = dot_rows,
    .add_rows = add_rows,
    .split_pairs = split_pairs,
    .join_pairs = join_pairs,
    .sum_groups = sum_groups,
    .add_to_groups = add_to_groups,
};
