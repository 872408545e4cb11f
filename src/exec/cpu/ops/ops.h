/* SPDX-License-Identifier: Apache-2.0 */
/* exec/cpu/ops/ops.h: the functions of the memory-bound kernels for the table in
 * backend_onednn.c, and helpers of their files. All are deterministic: work is divided by shape,
 * never by the number of threads.
 *
 *      eltwise.c  arithmetic, activations, cast, dropout       reorder.c  copies of any kind
 *      reduce.c   sums, means, maxima, global pooling          pool.c     windows
 *      loss.c     softmax, cross-entropies                     embed.c    rows of tables
 *      rows.c     layer norm, RMS norm, rotary                 bags_and_pairs.c    bags, pairs of rows
 *      linear_loss.c  output layer and loss                    attention*.c */
#ifndef TRMI_EXEC_OPS_H
#define TRMI_EXEC_OPS_H

#include "exec/cpu/dnnl/onednn.h"

#include "base/format/half.h"

#define TRMI_MEMORY_BIND(name)                                                                     \
    trm_status trmi_onednn_bind_##name(trmi_backend *backend, trmi_kernel *kernel, trm_error *err)
#define TRMI_MEMORY_SUPPORTS(name)                                                                 \
    bool trmi_onednn_##name##_supports(trmi_onednn *state, const trm_graph *graph,                 \
                                       const trmi_op *op, trmi_layout layout)
#define TRMI_MEMORY_SCRATCH(name)                                                                  \
    int64_t trmi_onednn_##name##_scratch(trmi_onednn *state, const trm_program *program,           \
                                         const trmi_step *step)
#define TRMI_MEMORY_IN_PLACE(name)                                                                 \
    bool trmi_onednn_##name##_in_place(trmi_onednn *state, const trm_graph *graph,                 \
                                       const trmi_op *op, int input)

TRMI_MEMORY_BIND(eltwise);
TRMI_MEMORY_SUPPORTS(eltwise);
TRMI_MEMORY_IN_PLACE(eltwise);
TRMI_MEMORY_BIND(dropout);
TRMI_MEMORY_BIND(move); /* TRANSPOSE, CONCAT, SLICE, PAD, BROADCAST, REORDER steps */
TRMI_MEMORY_BIND(one_hot);
TRMI_MEMORY_BIND(reduce); /* REDUCE_*, GLOBAL_AVG_POOL */
TRMI_MEMORY_SCRATCH(reduce);
TRMI_MEMORY_BIND(global_pool_grad);
TRMI_MEMORY_SUPPORTS(float); /* both layouts, where all is float32 or bfloat16 */
TRMI_MEMORY_BIND(pool);
TRMI_MEMORY_SUPPORTS(pool);
TRMI_MEMORY_BIND(pool_grad);
TRMI_MEMORY_SCRATCH(pool_grad);
TRMI_MEMORY_BIND(loss);
TRMI_MEMORY_SCRATCH(loss);
TRMI_MEMORY_IN_PLACE(loss);
TRMI_MEMORY_BIND(embedding);
TRMI_MEMORY_BIND(embedding_grad);
TRMI_MEMORY_IN_PLACE(embedding_grad);
TRMI_MEMORY_BIND(pairs); /* PAIR_DOTS and its gradient */
TRMI_MEMORY_BIND(bags);  /* BAG_POOL and its gradient */

TRMI_MEMORY_BIND(row_norm); /* LAYER_NORM, RMS_NORM and their gradients */
TRMI_MEMORY_SCRATCH(row_norm);
TRMI_MEMORY_IN_PLACE(row_norm);
TRMI_MEMORY_BIND(rotary);
TRMI_MEMORY_BIND(swiglu_grad);
TRMI_MEMORY_BIND(linear_loss); /* LINEAR_XENT */
TRMI_MEMORY_SCRATCH(linear_loss);
TRMI_MEMORY_BIND(experts); /* EXPERT_LINEAR, EXPERT_GRAD_WEIGHTS */
TRMI_MEMORY_SCRATCH(experts);
TRMI_MEMORY_BIND(attention);
TRMI_MEMORY_SCRATCH(attention);
TRMI_MEMORY_BIND(attention_grad);
TRMI_MEMORY_SCRATCH(attention_grad);
TRMI_MEMORY_BIND(attention_join);
TRMI_MEMORY_IN_PLACE(attention_join);

TRMI_MEMORY_SUPPORTS(plain); /* only TRMI_PLAIN */

/* ---- shared ---------------------------------------------------------------------------------- */

/* Returns whether every input and output is float32 or bfloat16. */
bool trmi_memory_fast_dtypes(const trm_graph *graph, const trmi_op *op);
/* Allocates kernel->state of `bytes`, zeroed, and sets kernel->destroy, which frees it. Returns it;
 * NULL with an error: no memory. */
void *trmi_memory_state(trmi_kernel *kernel, size_t bytes, trm_error *err);
void trmi_memory_destroy_state(trmi_kernel *kernel);
/* Returns UNSUPPORTED with a message; the caller's caller then binds the reference kernel. */
trm_status trmi_memory_unsupported(const trmi_kernel *kernel, trm_error *err);

/* Returns element i of an array of bfloat16 (`half`) or float32. */
static inline float trmi_load_float(const void *x, int64_t i, bool half) {
    return half ? trmi_bf16_to_float(((const uint16_t *)x)[i]) : ((const float *)x)[i];
}

#endif
