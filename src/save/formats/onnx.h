/* SPDX-License-Identifier: Apache-2.0 */
/* save/formats/onnx.h: the model behind trm_onnx_*: built by calls or read from a file, the same
 * either way. Field numbers: https://github.com/onnx/onnx/blob/main/onnx/onnx.proto */
#ifndef TRMI_SAVE_ONNX_H
#define TRMI_SAVE_ONNX_H

#include "trireme/save_onnx.h"

#include "base/memory.h"
#include "base/mapping.h"

enum { TRMI_ONNX_ITEMS_MAX = 1000000 };

struct trm_onnx_model {
    trmi_arena arena;
    trm_error first; /* of the building calls; status TRM_OK while there is none */
    const char *graph_name, *producer;
    int64_t ir_version, opset;
    trm_onnx_node *nodes;
    int64_t node_count, node_capacity;
    trm_onnx_value *inputs, *outputs;
    int64_t input_count, input_capacity, output_count, output_capacity;
    trm_named_tensor *initializers;
    int64_t initializer_count, initializer_capacity;
    trm_text_pair *metadata;
    int64_t metadata_count, metadata_capacity;
    /* Of a model that was read. */
    trmi_mapping mapping;
    trmi_mapping *external; /* data files */
    const char **external_names;
    int64_t external_count, external_capacity, external_name_capacity;
};

/* TensorProto.DataType */
int trmi_onnx_type_of(trm_dtype dtype);
trm_dtype trmi_onnx_dtype_of(uint64_t type);
/* Bytes of an element of any ONNX type of fixed size; 0 for others (strings). */
int64_t trmi_onnx_type_bytes(uint64_t type);

/* Appends a copy; false when there is no memory. */
bool trmi_onnx_push_node(trm_onnx_model *model, const trm_onnx_node *node);

/* Reads a model in memory (borrowed). External data are looked for beside `path`. */
trm_status trmi_onnx_parse(const uint8_t *data, size_t bytes, const char *path,
                           trm_onnx_model **out, trm_error *err);

#endif
