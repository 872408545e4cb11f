/* SPDX-License-Identifier: Apache-2.0 */
/* trireme/save_onnx.h: ONNX models, built node by node and written, or read. IR version 8, opset
 * 17. What a graph of ours means in ONNX is its caller's knowledge; this is the file.
 *
 *     trm_onnx_model *model;
 *     trm_onnx_create("mlp", &model, &err);
 *     trm_onnx_add_input(model, &(trm_onnx_value){.name = "x", .dtype = TRM_FLOAT32, .rank = 2,
 *                                                 .dims = {{.symbol = "N"}, {.size = 784}}});
 *     trm_onnx_add_initializer(model, "w", &weights);
 *     trm_onnx_attribute trans_b = trm_onnx_int("transB", 1);
 *     trm_onnx_add_node(model, &(trm_onnx_node){.op = "Gemm", .inputs = (const char *[]){"x", "w"},
 *                       .input_count = 2, .outputs = (const char *[]){"y"}, .output_count = 1,
 *                       .attributes = &trans_b, .attribute_count = 1});
 *     trm_onnx_add_output(model, &(trm_onnx_value){.name = "y", ...});
 *     trm_onnx_write(model, "mlp.onnx", NULL, &err);       the first error of any call above, if any
 *     trm_onnx_destroy(model);
 *
 *   thread  one at a time per model
 */
#ifndef TRIREME_SAVE_ONNX_H
#define TRIREME_SAVE_ONNX_H

#include "trireme/base.h"
#include "trireme/save.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { TRM_ONNX_IR_VERSION = 8, TRM_ONNX_OPSET = 17, TRM_ONNX_RANK_MAX = 8 };

typedef struct trm_onnx_model trm_onnx_model;

typedef enum trm_onnx_attribute_kind {
    TRM_ONNX_FLOAT = 1,
    TRM_ONNX_INT = 2,
    TRM_ONNX_STRING = 3,
    TRM_ONNX_TENSOR = 4,
    TRM_ONNX_FLOATS = 6,
    TRM_ONNX_INTS = 7,
    TRM_ONNX_OTHER = 0 /* read from a file: a subgraph, strings, ...; without its value */
} trm_onnx_attribute_kind;

typedef struct trm_onnx_attribute {
    const char *name;
    trm_onnx_attribute_kind kind;
    int64_t integer;
    float number;
    const char *text;
    const int64_t *integers;
    const float *numbers;
    int64_t count; /* of integers or numbers */
    trm_tensor tensor;
} trm_onnx_attribute;

/* Attributes of one line each. Borrowed pointers, no copies. */
TRM_API trm_onnx_attribute trm_onnx_int(const char *name, int64_t value);
TRM_API trm_onnx_attribute trm_onnx_ints(const char *name, const int64_t *values, int64_t count);
TRM_API trm_onnx_attribute trm_onnx_float(const char *name, float value);
TRM_API trm_onnx_attribute trm_onnx_string(const char *name, const char *value);

typedef struct trm_onnx_node {
    const char *op;            /* "Conv" */
    const char *name;          /* may be NULL */
    const char *domain;        /* NULL or "": ONNX's own */
    const char *const *inputs; /* names of values; "" for an optional one left out */
    int64_t input_count;
    const char *const *outputs;
    int64_t output_count;
    const trm_onnx_attribute *attributes;
    int64_t attribute_count;
} trm_onnx_node;

/* A dimension: a size, or a name for one that is known at run time only. */
typedef struct trm_onnx_dim {
    int64_t size;
    const char *symbol; /* "N"; NULL: `size` counts */
} trm_onnx_dim;

/* An input or output of the model. */
typedef struct trm_onnx_value {
    const char *name;
    trm_dtype dtype; /* TRM_DTYPE_NONE when read and none of ours */
    int32_t rank;    /* -1 when read without a shape */
    trm_onnx_dim dims[TRM_ONNX_RANK_MAX];
} trm_onnx_value;

/* ---- building -------------------------------------------------------------------------- */

/* owns  caller, trm_onnx_destroy    errors  TRM_NOMEM */
TRM_API TRM_MUST_USE trm_status trm_onnx_create(const char *graph_name, trm_onnx_model **out,
                                                trm_error *err);
TRM_API void trm_onnx_destroy(trm_onnx_model *model);

/* These keep the first error for trm_onnx_write. Everything is copied but the data of initialisers,
 * which must stay until the model has been written. Nodes are added in an order in which they can
 * run. */
TRM_API void trm_onnx_add_input(trm_onnx_model *model, const trm_onnx_value *value);
TRM_API void trm_onnx_add_output(trm_onnx_model *model, const trm_onnx_value *value);
TRM_API void trm_onnx_add_initializer(trm_onnx_model *model, const char *name,
                                      const trm_tensor *tensor);
TRM_API void trm_onnx_add_node(trm_onnx_model *model, const trm_onnx_node *node);
TRM_API void trm_onnx_add_metadata(trm_onnx_model *model, const char *key, const char *value);

typedef struct trm_onnx_write_options {
    int64_t external_from; /* a model of this many bytes and more keeps its large initialisers in a
                              second file, <path>.data; 0 = 2 GB, the limit of the format */
} trm_onnx_write_options;

/* Checks the graph (each value made once and before it is used, outputs exist) and writes it. The
 * file appears complete or not at all and is on the disk when the call returns; <path>.data, if
 * any, before it.
 *   errors  TRM_INVALID naming the node and value; TRM_IO, TRM_NOSPACE */
TRM_API TRM_MUST_USE trm_status trm_onnx_write(const trm_onnx_model *model, const char *path,
                                               const trm_onnx_write_options *options,
                                               trm_error *err);

/* ---- reading --------------------------------------------------------------------------- */

/* Maps a model and reads all but the data. Data in other files are looked for beside it only.
 *   errors  TRM_CORRUPT with the offset; TRM_UNSUPPORTED; TRM_INVALID for data outside its folder
 *   owns    trm_onnx_destroy; everything asked for below lives until then */
TRM_API TRM_MUST_USE trm_status trm_onnx_open(const char *path, trm_onnx_model **out,
                                              trm_error *err);

TRM_API const char *trm_onnx_graph_name(const trm_onnx_model *model);
TRM_API const char *trm_onnx_producer(const trm_onnx_model *model);
TRM_API int64_t trm_onnx_ir_version(const trm_onnx_model *model);
TRM_API int64_t trm_onnx_opset(const trm_onnx_model *model); /* of ONNX's own domain */
TRM_API int64_t trm_onnx_node_count(const trm_onnx_model *model);
TRM_API const trm_onnx_node *trm_onnx_node_at(const trm_onnx_model *model, int64_t index);
TRM_API int64_t trm_onnx_input_count(const trm_onnx_model *model);
TRM_API const trm_onnx_value *trm_onnx_input_at(const trm_onnx_model *model, int64_t index);
TRM_API int64_t trm_onnx_output_count(const trm_onnx_model *model);
TRM_API const trm_onnx_value *trm_onnx_output_at(const trm_onnx_model *model, int64_t index);
TRM_API int64_t trm_onnx_metadata_count(const trm_onnx_model *model);
TRM_API trm_text_pair trm_onnx_metadata_at(const trm_onnx_model *model, int64_t index);
TRM_API const trm_onnx_attribute *trm_onnx_attribute_of(const trm_onnx_node *node,
                                                        const char *name); /* NULL: has none */
TRM_API int64_t trm_onnx_initializer_count(const trm_onnx_model *model);
/* The tensor's data may be unaligned; dtype TRM_DTYPE_NONE for types that trm_dtype lacks. */
TRM_API const trm_named_tensor *trm_onnx_initializer_at(const trm_onnx_model *model, int64_t index);
TRM_API const trm_named_tensor *trm_onnx_initializer(
    const trm_onnx_model *model, const char *name); /* NULL: none. Linear time */
/* Copies initialiser `name` into `into`, whose data, dtype and shape are set and must agree.   errors  TRM_INVALID
 */
TRM_API TRM_MUST_USE trm_status trm_onnx_read(const trm_onnx_model *model, const char *name,
                                              const trm_tensor *into, trm_error *err);

#ifdef __cplusplus
}
#endif
#endif
