/* SPDX-License-Identifier: Apache-2.0 */
/* save/formats/onnx.h: ONNX models, built node by node and written, or read. IR version 8, opset
 * 17. This is the file format; trm_export_onnx (train/export/export.c) exports a model. A model is
 * either built by calls or read from a file; the representation is the same. Field numbers are
 * those of https://github.com/onnx/onnx/blob/main/onnx/onnx.proto
 *
 *     trmi_onnx_model *model;
 *     trmi_onnx_create("mlp", &model, &err);
 *     trmi_onnx_add_input(model, &(trmi_onnx_value){.name = "x", .dtype = TRM_FLOAT32, .rank = 2,
 *                                                 .dims = {{.symbol = "N"}, {.size = 784}}});
 *     trmi_onnx_add_initializer(model, "w", &weights);
 *     trmi_onnx_attribute trans_b = trmi_onnx_int("transB", 1);
 *     trmi_onnx_add_node(model, &(trmi_onnx_node){.op = "Gemm", .inputs = (const char *[]){"x",
 *     "w"},
 *                       .input_count = 2, .outputs = (const char *[]){"y"}, .output_count = 1,
 *                       .attributes = &trans_b, .attribute_count = 1});
 *     trmi_onnx_add_output(model, &(trmi_onnx_value){.name = "y", ...});
 *     trmi_onnx_write(model, "mlp.onnx", NULL, &err);      the first error of any call above, if any
 *     trmi_onnx_destroy(model);
 *
 *   threads  one thread at a time per model
 *   source   https://onnx.ai/onnx/repo-docs/IR.html */
#ifndef TRMI_SAVE_ONNX_H
#define TRMI_SAVE_ONNX_H

#include "trireme/io.h"

#include "base/mapping.h"
#include "base/memory.h"

/* Versions that are written, and the largest rank of a value. */
enum { TRMI_ONNX_IR_VERSION = 8, TRMI_ONNX_OPSET = 17, TRMI_ONNX_RANK_MAX = 8 };

/* Types of attributes, with ONNX's numbers. */
typedef enum trmi_onnx_attribute_kind {
    TRMI_ONNX_FLOAT = 1,
    TRMI_ONNX_INT = 2,
    TRMI_ONNX_STRING = 3,
    TRMI_ONNX_TENSOR = 4,
    TRMI_ONNX_FLOATS = 6,
    TRMI_ONNX_INTS = 7,
    TRMI_ONNX_OTHER = 0 /* read from a file: a subgraph, strings, ...; without its value */
} trmi_onnx_attribute_kind;

/* An attribute of a node. The member that `kind` names is valid. */
typedef struct trmi_onnx_attribute {
    const char *name;              /* of the attribute */
    trmi_onnx_attribute_kind kind; /* of its value */
    int64_t integer;               /* INT */
    float number;                  /* FLOAT */
    const char *text;              /* STRING */
    const int64_t *integers;       /* INTS: [count] */
    const float *numbers;          /* FLOATS: [count] */
    int64_t count;                 /* of integers or numbers */
    trm_tensor tensor;             /* TENSOR */
} trmi_onnx_attribute;

/* Makes an integer attribute. Pointers in attributes are borrowed.
 *   threads  any */
trmi_onnx_attribute trmi_onnx_int(const char *name, int64_t value);
/* Makes an attribute of integers.
 *   param    values: [count]
 *   threads  any */
trmi_onnx_attribute trmi_onnx_ints(const char *name, const int64_t *values, int64_t count);
/* Makes a float attribute.
 *   threads  any */
trmi_onnx_attribute trmi_onnx_float(const char *name, float value);
/* Makes a string attribute.
 *   threads  any */
trmi_onnx_attribute trmi_onnx_string(const char *name, const char *value);

/* A node of the model. */
typedef struct trmi_onnx_node {
    const char *op;     /* "Conv" */
    const char *name;   /* NULL = none */
    const char *domain; /* NULL or "" = ONNX's own */
    /* [input_count] names of values; "" = an optional one that is absent */
    const char *const *inputs;
    int64_t input_count;                   /* number of inputs */
    const char *const *outputs;            /* [output_count] names of values */
    int64_t output_count;                  /* number of outputs */
    const trmi_onnx_attribute *attributes; /* [attribute_count] */
    int64_t attribute_count;               /* number of attributes */
} trmi_onnx_node;

/* A dimension: a size, or a name for a size that is known at run time only. */
typedef struct trmi_onnx_dim {
    int64_t size;       /* used when symbol is NULL */
    const char *symbol; /* "N"; NULL = a fixed size */
} trmi_onnx_dim;

/* An input or output of the model. */
typedef struct trmi_onnx_value {
    const char *name; /* of the value */
    trm_dtype dtype;  /* TRM_DTYPE_NONE when read from a file and trm_dtype lacks the type */
    int32_t rank;     /* -1 when read from a file without a shape */
    trmi_onnx_dim dims[TRMI_ONNX_RANK_MAX]; /* [rank] */
} trmi_onnx_value;

enum { TRMI_ONNX_ITEMS_MAX = 1000000 }; /* nodes, tensors, ... of a model, at most */

/* A model that is built or has been read. */
typedef struct trmi_onnx_model {
    trmi_arena arena; /* all texts and copied arrays */
    trm_error first;  /* first failure of a building call; trmi_onnx_write returns it */
    const char *graph_name, *producer; /* in the arena, or constant */
    int64_t ir_version, opset;         /* of the file, or those that are written */
    trmi_onnx_node *nodes;             /* [node_count] in the order of execution */
    int64_t node_count, node_capacity; /* length and capacity of `nodes` */
    trmi_onnx_value *inputs, *outputs; /* of the graph */
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
} trmi_onnx_model;

/* ---- building -------------------------------------------------------------------------- */

/* Creates an empty model.
 *   errors   NOMEM
 *   owns     caller: trmi_onnx_destroy(*out) */
trm_status trmi_onnx_create(const char *graph_name, trmi_onnx_model **out, trm_error *err);
/* Frees the model. NULL is accepted. */
void trmi_onnx_destroy(trmi_onnx_model *model);

/* Adds an input. This and the next four functions keep the first error for trmi_onnx_write and copy
 * all arguments, except the data of initialisers. */
void trmi_onnx_add_input(trmi_onnx_model *model, const trmi_onnx_value *value);
/* Adds an output. */
void trmi_onnx_add_output(trmi_onnx_model *model, const trmi_onnx_value *value);
/* Adds a tensor of weights.
 *   owns     the tensor's data are borrowed until the model has been written */
void trmi_onnx_add_initializer(trmi_onnx_model *model, const char *name, const trm_tensor *tensor);
/* Adds a node. Nodes come in an order in which they can run. */
void trmi_onnx_add_node(trmi_onnx_model *model, const trmi_onnx_node *node);
/* Adds a pair of metadata. */
void trmi_onnx_add_metadata(trmi_onnx_model *model, const char *key, const char *value);

/* Options of writing a model. Zero means the default. */
typedef struct trmi_onnx_write_options {
    /* a model of at least so many bytes keeps its large initialisers in a second file, <path>.data;
     * 0 = 2 GB, the limit of the format */
    int64_t external_from;
} trmi_onnx_write_options;

/* Checks the graph (each value made once and before it is used, outputs exist) and writes it, after
 * <path>.data, if there is one.
 *   param    options: NULL = defaults
 *   errors   INVALID (naming node and value, or the first error of the functions above),
 *            UNSUPPORTED (more than 2 GB without its data), IO, NOSPACE, NOMEM */
trm_status trmi_onnx_write(const trmi_onnx_model *model, const char *path,
                           const trmi_onnx_write_options *options, trm_error *err);

/* ---- reading --------------------------------------------------------------------------- */

/* Maps a model and reads all but the data of initialisers. Data in other files are looked for
 * beside it only.
 *   errors   CORRUPT (with the offset), UNSUPPORTED, INVALID (data outside of its folder), IO,
 *            NOMEM
 *   owns     caller: trmi_onnx_destroy(*out). The data of an initialiser may be unaligned; its
 *            dtype is TRM_DTYPE_NONE for types that trm_dtype lacks */
trm_status trmi_onnx_open(const char *path, trmi_onnx_model **out, trm_error *err);

/* Returns the attribute of a node by name; NULL if it has none. */
const trmi_onnx_attribute *trmi_onnx_attribute_of(const trmi_onnx_node *node, const char *name);
/* Returns the initialiser of this name, in linear time; NULL if there is none. */
const trm_named_tensor *trmi_onnx_initializer(const trmi_onnx_model *model, const char *name);
/* Copies an initialiser out.
 *   param    into: data, dtype and shape are set by the caller and must be the file's
 *   errors   INVALID (no initialiser of this name, other shape or type) */
trm_status trmi_onnx_read(const trmi_onnx_model *model, const char *name, const trm_tensor *into,
                          trm_error *err);

/* ---- parts that the files share ------------------------------------------------------------ */

/* Convert between trireme's types and TensorProto.DataType; 0 and TRM_DTYPE_NONE if there is no
 * equivalent. */
int trmi_onnx_type_of(trm_dtype dtype);
trm_dtype trmi_onnx_dtype_of(uint64_t type);
/* Returns the bytes of an element of any ONNX type of fixed size; 0 for others (strings). */
int64_t trmi_onnx_type_bytes(uint64_t type);

/* Appends a copy of the node struct. Returns false if there is no memory. */
bool trmi_onnx_push_node(trmi_onnx_model *model, const trmi_onnx_node *node);

/* Reads a model in memory, which is borrowed. External data are searched beside `path`.
 *   errors  CORRUPT, UNSUPPORTED, INVALID (a path that leaves the folder), NOMEM */
trm_status trmi_onnx_parse(const uint8_t *data, size_t bytes, const char *path,
                           trmi_onnx_model **out, trm_error *err);

#endif
