/* SPDX-License-Identifier: Apache-2.0 */
/* train/export/onnx_map.h: translates the operators of an evaluation graph into ONNX nodes
 * (opset 17). */
#ifndef TRMI_TRAIN_ONNX_MAP_H
#define TRMI_TRAIN_ONNX_MAP_H

#include "trireme/io.h"

#include "base/memory.h"
#include "graph/graph_ir.h"
#include "save/formats/onnx.h"

/* The state of one export. */
typedef struct trmi_onnx {
    const trm_graph *graph;
    trmi_onnx_model *model;
    trmi_arena arena;   /* owns names and constants until the file is written */
    const char **names; /* names of values, by id; NULL: not exported */
    int64_t batch;      /* batch size of the graph; the symbol N in the file */
    int64_t constants;  /* number of constants, for their names */
} trmi_onnx;

/* Adds the ONNX nodes that compute operator `op`.
 *   errors  UNSUPPORTED: no translation exists, NOMEM */
trm_status trmi_onnx_add_op(trmi_onnx *x, const trmi_op *op, trm_error *err);

#endif
