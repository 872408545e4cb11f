/* SPDX-License-Identifier: Apache-2.0 */
/* ONNX models in memory: types, the building calls and the getters. The building calls copy
 * everything but the data of initialisers, which must live until the model is written. They return
 * no status: the first failure is stored in the model, and trmi_onnx_write returns it.
 *
 * Texts and the arrays of nodes belong to the arena of the model; the lists of the model itself
 * grow and are allocated separately. */
#include "save/formats/onnx.h"

#include "base/error.h"
#include "base/format/utf8.h"
#include "save/path.h"

#include <stdlib.h>
#include <string.h>

/* ---- types ----------------------------------------------------------------------------- */

/* TensorProto.DataType: its number, bytes of an element, and Trireme's type. TRM_DTYPE_NONE marks
 * types that can be listed but not read: uint16 (4), int16 (5), bool (9), uint32 (12), uint64 (13)
 * and complex numbers (14, 15). 8, strings, is absent, because they have no fixed size. */
static const struct {
    int type;
    int64_t bytes;
    trm_dtype dtype;
} types[] = {{1, 4, TRM_FLOAT32},     {2, 1, TRM_UINT8},        {3, 1, TRM_INT8},
             {4, 2, TRM_DTYPE_NONE},  {5, 2, TRM_DTYPE_NONE},   {6, 4, TRM_INT32},
             {7, 8, TRM_INT64},       {9, 1, TRM_DTYPE_NONE},   {10, 2, TRM_FLOAT16},
             {11, 8, TRM_FLOAT64},    {12, 4, TRM_DTYPE_NONE},  {13, 8, TRM_DTYPE_NONE},
             {14, 8, TRM_DTYPE_NONE}, {15, 16, TRM_DTYPE_NONE}, {16, 2, TRM_BFLOAT16}};
enum { TYPE_COUNT = sizeof types / sizeof types[0] };

int trmi_onnx_type_of(trm_dtype dtype) {
    for (int i = 0; i < TYPE_COUNT; i++) {
        if (types[i].dtype == dtype && dtype != TRM_DTYPE_NONE) {
            return types[i].type;
        }
    }
    return 0;
}

trm_dtype trmi_onnx_dtype_of(uint64_t type) {
    for (int i = 0; i < TYPE_COUNT; i++) {
        if ((uint64_t)types[i].type == type) {
            return types[i].dtype;
        }
    }
    return TRM_DTYPE_NONE;
}

int64_t trmi_onnx_type_bytes(uint64_t type) {
    for (int i = 0; i < TYPE_COUNT; i++) {
        if ((uint64_t)types[i].type == type) {
            return types[i].bytes;
        }
    }
    return 0;
}

/* ---- building -------------------------------------------------------------------------- */

/* Stores the first failure. */
static void keep_first(trmi_onnx_model *model, const trm_error *err) {
    if (model->first.status == TRM_OK) {
        model->first = *err;
    }
}

/* Stores the failure of an allocation. */
static void no_memory(trmi_onnx_model *model) {
    trm_error err;
    TRMI_NO_MEMORY(&err, "for an ONNX model");
    keep_first(model, &err);
}

/* Returns a copy of the text, which must be UTF-8; "" for NULL or after a failure. */
static const char *copy_text(trmi_onnx_model *model, const char *text) {
    text = text == NULL ? "" : text;
    if (!trmi_utf8_valid(text, strlen(text))) {
        trm_error err;
        TRMI_FAIL(&err, TRM_INVALID, "ONNX model %s: a name that is not UTF-8", model->graph_name);
        keep_first(model, &err);
        return "";
    }
    const char *kept = trmi_arena_strdup(&model->arena, text);
    if (kept == NULL) {
        no_memory(model);
        return "";
    }
    return kept;
}

/* Returns a copy of an array, NULL without memory. */
static void *copy_array(trmi_onnx_model *model, const void *items, int64_t count,
                        size_t item_bytes) {
    if (count > 0 && items == NULL) {
        trm_error err;
        TRMI_FAIL(&err, TRM_INVALID, "ONNX model %s: an array of %lld items is NULL",
                  model->graph_name, (long long)count);
        keep_first(model, &err);
        return NULL;
    }
    /* One byte more, so that an empty array is not NULL. */
    void *kept = trmi_arena_alloc(&model->arena, (size_t)count * item_bytes + 1);
    if (kept == NULL) {
        no_memory(model);
        return NULL;
    }
    if (count > 0) {
        memcpy(kept, items, (size_t)count * item_bytes);
    }
    return kept;
}

/* Copies a list of names. *count becomes 0 without memory. */
static const char *const *copy_names(trmi_onnx_model *model, const char *const *names,
                                     int64_t *count) {
    /* The copies of the pointers are replaced by copies of the texts. */
    const char **kept = copy_array(model, names, *count, sizeof *kept);
    for (int64_t i = 0; kept != NULL && i < *count; i++) {
        kept[i] = copy_text(model, names[i]);
    }
    *count = kept == NULL ? 0 : *count;
    return kept;
}

/* Replaces what the attribute points to by copies. */
static void copy_attribute(trmi_onnx_model *model, trmi_onnx_attribute *attribute) {
    attribute->name = copy_text(model, attribute->name);
    if (attribute->kind == TRMI_ONNX_STRING) {
        attribute->text = copy_text(model, attribute->text);
    } else if (attribute->kind == TRMI_ONNX_INTS) {
        attribute->integers =
            copy_array(model, attribute->integers, attribute->count, sizeof(int64_t));
    } else if (attribute->kind == TRMI_ONNX_FLOATS) {
        attribute->numbers = copy_array(model, attribute->numbers, attribute->count, sizeof(float));
    } else if (attribute->kind == TRMI_ONNX_TENSOR) {
        int64_t bytes = trm_tensor_bytes(&attribute->tensor);
        attribute->tensor.data =
            copy_array(model, attribute->tensor.data, bytes < 0 ? 0 : bytes, 1);
    }
}

/* Contract in onnx.h. Everything is copied, so callers can build a node from arrays on their
 * stack. */
void trmi_onnx_add_node(trmi_onnx_model *model, const trmi_onnx_node *node) {
    /* Texts and lists, then the attributes with what they point to. */
    trmi_onnx_node kept = *node;
    kept.op = copy_text(model, node->op);
    kept.name = copy_text(model, node->name);
    kept.domain = copy_text(model, node->domain);
    kept.inputs = copy_names(model, node->inputs, &kept.input_count);
    kept.outputs = copy_names(model, node->outputs, &kept.output_count);
    trmi_onnx_attribute *attributes =
        copy_array(model, node->attributes, node->attribute_count, sizeof *attributes);
    for (int64_t i = 0; attributes != NULL && i < node->attribute_count; i++) {
        copy_attribute(model, &attributes[i]);
    }
    kept.attributes = attributes;
    kept.attribute_count = attributes == NULL ? 0 : node->attribute_count;
    if (!trmi_onnx_push_node(model, &kept)) {
        no_memory(model);
    }
}

/* Appends a node whose texts and lists are in the arena already. Returns false without memory. */
bool trmi_onnx_push_node(trmi_onnx_model *model, const trmi_onnx_node *node) {
    if (!trmi_grow((void **)&model->nodes, &model->node_capacity, model->node_count + 1,
                   sizeof *model->nodes)) {
        return false;
    }
    model->nodes[model->node_count++] = *node;
    return true;
}

/* Adds an input or output with a copy of its texts. A value without type, or with too many
 * dimensions, is stored as the model's first failure. */
static void add_value(trmi_onnx_model *model, const trmi_onnx_value *value,
                      trmi_onnx_value **values, int64_t *count, int64_t *capacity) {
    trmi_onnx_value kept = *value;
    kept.name = copy_text(model, value->name);
    if (value->rank < 0 || value->rank > TRMI_ONNX_RANK_MAX ||
        trmi_onnx_type_of(value->dtype) == 0) {
        trm_error err;
        TRMI_FAIL(&err, TRM_INVALID,
                  "ONNX model %s: value %.80s has no type or too many dimensions",
                  model->graph_name, kept.name);
        keep_first(model, &err);
        kept.rank = 0;
    }
    /* Names of dimensions. */
    for (int32_t i = 0; i < kept.rank; i++) {
        kept.dims[i].symbol =
            kept.dims[i].symbol == NULL ? NULL : copy_text(model, kept.dims[i].symbol);
    }
    if (!trmi_grow((void **)values, capacity, *count + 1, sizeof **values)) {
        no_memory(model);
        return;
    }
    (*values)[(*count)++] = kept;
}

void trmi_onnx_add_input(trmi_onnx_model *model, const trmi_onnx_value *value) {
    add_value(model, value, &model->inputs, &model->input_count, &model->input_capacity);
}

void trmi_onnx_add_output(trmi_onnx_model *model, const trmi_onnx_value *value) {
    add_value(model, value, &model->outputs, &model->output_count, &model->output_capacity);
}

/* Contract in onnx.h. Data are not copied: weights may be as large as memory. */
void trmi_onnx_add_initializer(trmi_onnx_model *model, const char *name, const trm_tensor *tensor) {
    trm_named_tensor kept = {copy_text(model, name), *tensor};
    int64_t bytes = trm_tensor_bytes(tensor);
    /* The data must exist now, because they are used when the model is written. */
    if (tensor->shape.rank < 0 || tensor->shape.rank > TRM_MAX_RANK || bytes < 0 ||
        trmi_onnx_type_of(tensor->dtype) == 0 || (bytes > 0 && tensor->data == NULL)) {
        trm_error err;
        TRMI_FAIL(&err, TRM_INVALID, "ONNX model %s: initialiser %.80s has no data, type or size",
                  model->graph_name, kept.name);
        keep_first(model, &err);
        return;
    }
    if (!trmi_grow((void **)&model->initializers, &model->initializer_capacity,
                   model->initializer_count + 1, sizeof *model->initializers)) {
        no_memory(model);
        return;
    }
    model->initializers[model->initializer_count++] = kept;
}

void trmi_onnx_add_metadata(trmi_onnx_model *model, const char *key, const char *value) {
    trm_text_pair kept = {copy_text(model, key), copy_text(model, value)};
    if (!trmi_grow((void **)&model->metadata, &model->metadata_capacity, model->metadata_count + 1,
                   sizeof *model->metadata)) {
        no_memory(model);
        return;
    }
    model->metadata[model->metadata_count++] = kept;
}

trm_status trmi_onnx_create(const char *graph_name, trmi_onnx_model **out, trm_error *err) {
    trmi_onnx_model *model;
    TRMI_TRY(TRMI_NEW(err, model, 1, "for an ONNX model"));
    /* `copy` uses the name in its message, so it must not be NULL. */
    model->graph_name = "";
    model->graph_name = copy_text(model, graph_name);
    model->producer = "trireme";
    model->ir_version = TRMI_ONNX_IR_VERSION;
    model->opset = TRMI_ONNX_OPSET;
    if (model->first.status != TRM_OK) {
        trm_status status = (trm_status)model->first.status;
        if (err != NULL) {
            *err = model->first;
        }
        trmi_onnx_destroy(model);
        return status;
    }
    *out = model;
    return TRM_OK;
}

void trmi_onnx_destroy(trmi_onnx_model *model) {
    if (model == NULL) {
        return;
    }
    /* The data of a model that was read are in these files. */
    for (int64_t i = 0; i < model->external_count; i++) {
        trmi_mapping_close(&model->external[i]);
    }
    trmi_mapping_close(&model->mapping);
    trmi_free(model->external);
    trmi_free(model->external_names);
    trmi_free(model->nodes);
    trmi_free(model->inputs);
    trmi_free(model->outputs);
    trmi_free(model->initializers);
    trmi_free(model->metadata);
    trmi_arena_free(&model->arena);
    trmi_free(model);
}

trmi_onnx_attribute trmi_onnx_int(const char *name, int64_t value) {
    return (trmi_onnx_attribute){.name = name, .kind = TRMI_ONNX_INT, .integer = value};
}
trmi_onnx_attribute trmi_onnx_ints(const char *name, const int64_t *values, int64_t count) {
    return (trmi_onnx_attribute){
        .name = name, .kind = TRMI_ONNX_INTS, .integers = values, .count = count};
}
trmi_onnx_attribute trmi_onnx_float(const char *name, float value) {
    return (trmi_onnx_attribute){.name = name, .kind = TRMI_ONNX_FLOAT, .number = value};
}
trmi_onnx_attribute trmi_onnx_string(const char *name, const char *value) {
    return (trmi_onnx_attribute){.name = name, .kind = TRMI_ONNX_STRING, .text = value};
}

/* ---- finding --------------------------------------------------------------------------- */

const trm_named_tensor *trmi_onnx_initializer(const trmi_onnx_model *model, const char *name) {
    for (int64_t i = 0; i < model->initializer_count; i++) {
        if (strcmp(model->initializers[i].name, name) == 0) {
            return &model->initializers[i];
        }
    }
    return NULL;
}

const trmi_onnx_attribute *trmi_onnx_attribute_of(const trmi_onnx_node *node, const char *name) {
    for (int64_t i = 0; i < node->attribute_count; i++) {
        if (strcmp(node->attributes[i].name, name) == 0) {
            return &node->attributes[i];
        }
    }
    return NULL;
}

/* Contract in onnx.h. The data may be in the mapped file or beside it, so all mappings are
 * checked. */
trm_status trmi_onnx_read(const trmi_onnx_model *model, const char *name, const trm_tensor *into,
                          trm_error *err) {
    const trm_named_tensor *found = trmi_onnx_initializer(model, name);
    if (found == NULL) {
        return TRMI_FAIL(err, TRM_INVALID, "ONNX model %.60s: no initialiser %.80s",
                         model->graph_name, name);
    }
    /* Nothing is converted: type and shape must be equal. */
    if (found->tensor.dtype != into->dtype ||
        !trm_shape_equal(&found->tensor.shape, &into->shape)) {
        char theirs[48], ours[48];
        return TRMI_FAIL(err, TRM_INVALID, "ONNX initialiser %.60s is %s %s, %s %s expected", name,
                         trm_dtype_name(found->tensor.dtype),
                         trm_shape_format(&found->tensor.shape, theirs, sizeof theirs),
                         trm_dtype_name(into->dtype),
                         trm_shape_format(&into->shape, ours, sizeof ours));
    }
    int64_t bytes = trm_tensor_bytes(into);
    if (bytes > 0) {
        memcpy(into->data, found->tensor.data, (size_t)bytes);
    }
    /* A page that could not be read makes the data invalid (base/mapping.h). */
    trm_status status = trmi_mapping_check(&model->mapping, TRM_OK, err);
    for (int64_t i = 0; i < model->external_count; i++) {
        status = trmi_mapping_check(&model->external[i], status, err);
    }
    return status;
}
