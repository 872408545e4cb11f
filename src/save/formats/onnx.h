/* SPDX-License-Identifier: Apache-2.0 */
/* save/formats/onnx.h: the model behind trm_onnx_*. It is either built by calls or read from a
 * file; the representation is the same. Field numbers are those of
 * https://github.com/onnx/onnx/blob/main/onnx/onnx.proto */
#ifndef TRMI_SAVE_ONNX_H
#define TRMI_SAVE_ONNX_H

#include "trireme/io.h"

#include "base/memory.h"
#include "base/mapping.h"

enum { TRMI_ONNX_ITEMS_MAX = 1000000 }; /* nodes, tensors, ... of a model, at most */

/* A model. */
struct trm_onnx_model {
    trmi_arena arena; /* all texts and copied arrays */
    trm_error first;  /* first failure of a building call; trm_onnx_write returns it */
    const char *graph_name, *producer; /* in the arena, or constant */
    int64_t ir_version, opset;         /* of the file, or those that are written */
    trm_onnx_node *nodes;              /* [node_count] in the order of execution */
    int64_t node_count, node_capacity; /* length and capacity of `nodes` */
    trm_onnx_value *inputs, *outputs;  /* of the graph */
    int64_t input_count, input_capacity, output_count,
        output_capacity; /* lengths and capacities of the two lists */
    /* weights; their data are borrowed from the caller or from the file */
    trm_named_tensor *initializers;
    int64_t initializer_count, initializer_capacity; /* length and capacity of `initializers` */
    trm_text_pair *metadata;                         /* metadata_props */
    int64_t metadata_count, metadata_capacity;       /* length and capacity of `metadata` */
    /* Only of a model that was read: the file, and the files with external data. */
    trmi_mapping mapping;
    trmi_mapping *external;      /* data files */
    const char **external_names; /* [external_count] locations, in the arena */
    int64_t external_count, external_capacity,
        external_name_capacity; /* lengths and capacities of the two lists */
};

/* Convert between trireme's types and TensorProto.DataType; 0 and TRM_DTYPE_NONE if there is no
 * equivalent. */
int trmi_onnx_type_of(trm_dtype dtype);
trm_dtype trmi_onnx_dtype_of(uint64_t type);
/* Returns the bytes of an element of any ONNX type of fixed size; 0 for others (strings). */
int64_t trmi_onnx_type_bytes(uint64_t type);

/* Appends a copy of the node struct. Returns false if there is no memory. */
bool trmi_onnx_push_node(trm_onnx_model *model, const trm_onnx_node *node);

/* Reads a model in memory, which is borrowed. External data are searched beside `path`. Errors:
 * CORRUPT, UNSUPPORTED, INVALID (a path that leaves the folder), NOMEM. */
trm_status trmi_onnx_parse(const uint8_t *data, size_t bytes, const char *path,
                           trm_onnx_model **out, trm_error *err);

#endif
