/* SPDX-License-Identifier: Apache-2.0 */
/* train/export/onnx_nodes.h: the nodes, constants and names of an ONNX file, from which onnx_map.c
 * and onnx_map_transformers.c put the translations of operators together.
 *
 * Names and constants live in the arena of the export. Where memory is missing they are NULL, and
 * the arena has failed: a function that makes several checks the arena once (TRMI_CHECK_MEMORY). */
#ifndef TRMI_TRAIN_ONNX_NODES_H
#define TRMI_TRAIN_ONNX_NODES_H

#include "train/export/onnx_map.h"

/* Returns the name of the operator's input `i`, "" for one that is absent (ONNX's mark for
 * optional inputs). */
const char *trmi_onnx_input_name(const trmi_onnx *x, const trmi_op *op, int i);
/* Adds a node that stands for the operator: its output has the name of the operator's first output.
 * ONNX omits optional inputs at the end, so those are removed. */
void trmi_onnx_add_named_node(trmi_onnx *x, const trmi_op *op, trmi_onnx_node *node);
/* Adds such a node of kind `kind` whose inputs are the operator's first `inputs` inputs. */
void trmi_onnx_add_op_node(trmi_onnx *x, const trmi_op *op, const char *kind, int inputs,
                           const trmi_onnx_attribute *attributes, int attribute_count);
/* Adds a constant (a copy of `data`) to the model and returns its name; NULL without memory. */
const char *trmi_onnx_add_constant(trmi_onnx *x, trm_dtype dtype, const trm_shape *shape,
                                   const void *data);
/* Adds a constant vector of int64, for shapes and axes. */
const char *trmi_onnx_add_integers(trmi_onnx *x, const int64_t *values, int64_t count);
/* Adds a constant float scalar. */
const char *trmi_onnx_add_number(trmi_onnx *x, double value);
/* Adds a node with one input of the operator and the constants `extra`.
 *   errors  NOMEM: a constant is NULL */
trm_status trmi_onnx_add_with_constants(trmi_onnx *x, const trmi_op *op, const char *kind,
                                        const char *const *extra, int count, trm_error *err);
/* Fails with UNSUPPORTED: the operator has no translation. */
trm_status trmi_onnx_fail_unsupported(const trmi_op *op, trm_error *err);
/* Returns a name for a value between the nodes of one operator; NULL without memory. */
const char *trmi_onnx_name_between(trmi_onnx *x, const trmi_op *op, const char *what);
/* Adds one node of several that make up an operator. Its inputs are `a` and, unless it is NULL,
 * `b`. */
void trmi_onnx_add_step(trmi_onnx *x, const char *kind, const char *a, const char *b,
                        const char *output, const trmi_onnx_attribute *attribute);
/* Adds the transpose of an input's last two dimensions and returns its name; NULL without
 * memory. */
const char *trmi_onnx_transpose_input(trmi_onnx *x, const trmi_op *op, int input, const char *what);

/* onnx_map_transformers.c: add the nodes of the layers of transformers. */
trm_status trmi_onnx_add_rms_norm(trmi_onnx *x, const trmi_op *op, trm_error *err);
trm_status trmi_onnx_add_gelu(trmi_onnx *x, const trmi_op *op, trm_error *err);
trm_status trmi_onnx_add_silu(trmi_onnx *x, const trmi_op *op, trm_error *err);
trm_status trmi_onnx_add_rotary(trmi_onnx *x, const trmi_op *op, trm_error *err);
trm_status trmi_onnx_add_attention(trmi_onnx *x, const trmi_op *op, trm_error *err);
trm_status trmi_onnx_add_top_k(trmi_onnx *x, const trmi_op *op, trm_error *err);
trm_status trmi_onnx_add_expert_linear(trmi_onnx *x, const trmi_op *op, trm_error *err);

#endif
