/* SPDX-License-Identifier: Apache-2.0 */
/* train/export/onnx_map.h: what each operator of an evaluation graph is in ONNX (opset 17). */
#ifndef TRMI_TRAIN_ONNX_MAP_H
#define TRMI_TRAIN_ONNX_MAP_H

#include "trireme/save_onnx.h"

#include "base/memory.h"
#include "graph/graph_ir.h"

/* A model under construction. */
typedef struct trmi_onnx {
    const trm_graph *graph;
    trm_onnx_model *model;
    trmi_arena arena;   /* names and constants, until the model is written */
    const char **names; /* of values, by id; NULL: not needed for what is exported */
    int64_t batch;      /* first dimension of the input, symbolic in the file */
    int64_t constants;  /* counter for their names */
} trmi_onnx;

/* Adds the ONNX nodes of one operator.  error  UNSUPPORTED, NOMEM */
trm_status trmi_onnx_add_op(trmi_onnx *x, const trmi_op *op, trm_error *err);

#endif
