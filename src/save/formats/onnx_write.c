/* SPDX-License-Identifier: Apache-2.0 */
/* Writing ONNX models. The model is checked first: names are defined once and before their use. If
 * the model exceeds the 2 GB of a protobuf message (or a given limit), large weights go to
 * PATH.data.
 *
 *   PATH        model head | length of the graph | nodes, inputs, outputs | weight 1 | weight 2 ...
 *   PATH.data   data of large weights, each at a multiple of 4096
 *
 * Messages are built in memory without the data of weights, which go directly from where they are
 * to the file. So a model takes no second copy of its weights, but the lengths must be computed in
 * advance. */
#include "save/formats/onnx.h"

#include "base/checked.h"
#include "base/error.h"
#include "save/file_out.h"
#include "base/format/proto.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* weights smaller than this stay in the model; alignment in the data file */
enum { EXTERNAL_FROM_BYTES = 1024, EXTERNAL_ALIGNMENT = 4096 };
#define MODEL_BYTES_MAX ((int64_t)INT32_MAX - (1 << 20))

/* ---- is it a graph? -------------------------------------------------------------------- */

/* A value and where it is defined: -1 before the first node, else the node that makes it. */
typedef struct definition {
    const char *name; /* borrowed from the model */
    int64_t node;     /* index of the node */
} definition;

/* Compares definitions by name, so that a name that is defined twice stands beside itself. */
static int by_name(const void *a, const void *b) {
    return strcmp(((const definition *)a)->name, ((const definition *)b)->name);
}

/* Finds a name in the sorted definitions; NULL if it is not defined. */
static const definition *look_up(const definition *all, int64_t count, const char *name) {
    definition key = {name, 0};
    return bsearch(&key, all, (size_t)count, sizeof *all, by_name);
}

/* Collects the definitions of all values; `all` has room for them. Returns their number. */
static int64_t collect_definitions(const trmi_onnx_model *model, definition *all) {
    int64_t count = 0;
    for (int64_t i = 0; i < model->input_count; i++) {
        all[count++] = (definition){model->inputs[i].name, -1};
    }
    for (int64_t i = 0; i < model->initializer_count; i++) {
        all[count++] = (definition){model->initializers[i].name, -1};
    }
    for (int64_t n = 0; n < model->node_count; n++) {
        for (int64_t i = 0; i < model->nodes[n].output_count; i++) {
            if (model->nodes[n].outputs[i][0] != '\0') {
                all[count++] = (definition){model->nodes[n].outputs[i], n};
            }
        }
    }
    return count;
}

/* Checks that every use refers to an earlier definition, and that the graph's outputs are
 * defined. */
static trm_status check_uses(const trmi_onnx_model *model, const definition *all, int64_t count,
                             trm_error *err) {
    for (int64_t n = 0; n < model->node_count; n++) {
        const trmi_onnx_node *node = &model->nodes[n];
        if (node->op[0] == '\0') {
            return TRMI_FAIL(err, TRM_INVALID, "ONNX model %.40s: node %" PRId64 " has no operator",
                             model->graph_name, n);
        }
        /* "" stands for an optional input that is left out. */
        for (int64_t i = 0; i < node->input_count; i++) {
            const definition *found = look_up(all, count, node->inputs[i]);
            if (node->inputs[i][0] != '\0' && (found == NULL || found->node >= n)) {
                return TRMI_FAIL(err, TRM_INVALID,
                                 "ONNX model %.40s: node %" PRId64
                                 " (%.30s) uses %.60s, which no earlier node defines",
                                 model->graph_name, n, node->op, node->inputs[i]);
            }
        }
    }
    /* Write the graph's outputs. */
    for (int64_t i = 0; i < model->output_count; i++) {
        if (look_up(all, count, model->outputs[i].name) == NULL) {
            return TRMI_FAIL(err, TRM_INVALID, "ONNX model %.40s: output %.60s is not defined",
                             model->graph_name, model->outputs[i].name);
        }
    }
    return model->output_count > 0
               ? TRM_OK
               : TRMI_FAIL(err, TRM_INVALID, "ONNX model %.40s: no output", model->graph_name);
}

/* Checks that everything can be written: a model that was read may contain kinds that trireme does
 * not interpret. */
static trm_status check_known(const trmi_onnx_model *model, trm_error *err) {
    /* Write the attributes. */
    for (int64_t n = 0; n < model->node_count; n++) {
        const trmi_onnx_node *node = &model->nodes[n];
        for (int64_t i = 0; i < node->attribute_count; i++) {
            const trmi_onnx_attribute *a = &node->attributes[i];
            if (a->kind == TRMI_ONNX_OTHER ||
                (a->kind == TRMI_ONNX_TENSOR && trmi_onnx_type_of(a->tensor.dtype) == 0)) {
                return TRMI_FAIL(err, TRM_UNSUPPORTED,
                                 "ONNX model %.40s: node %" PRId64
                                 " (%.30s): attribute %.40s is of "
                                 "a kind that cannot be written",
                                 model->graph_name, n, node->op, a->name);
            }
        }
    }
    /* Write the weights. */
    for (int64_t i = 0; i < model->initializer_count; i++) {
        if (trmi_onnx_type_of(model->initializers[i].tensor.dtype) == 0) {
            return TRMI_FAIL(err, TRM_UNSUPPORTED,
                             "ONNX model %.40s: initialiser %.60s is of a type "
                             "that cannot be written",
                             model->graph_name, model->initializers[i].name);
        }
    }
    /* Check inputs and outputs. */
    for (int64_t i = 0; i < model->input_count + model->output_count; i++) {
        const trmi_onnx_value *value =
            i < model->input_count ? &model->inputs[i] : &model->outputs[i - model->input_count];
        if (value->rank < 0 || trmi_onnx_type_of(value->dtype) == 0) {
            return TRMI_FAIL(
                err, TRM_UNSUPPORTED,
                "ONNX model %.40s: value %.60s has no shape or type that can be written",
                model->graph_name, value->name);
        }
    }
    return TRM_OK;
}

/* Checks the graph: kinds that can be written, names that are defined once, uses after definitions.
 * Takes O(n log n) for n names.
 *   errors  INVALID, UNSUPPORTED, NOMEM */
static trm_status check_graph(const trmi_onnx_model *model, trm_error *err) {
    TRMI_TRY(check_known(model, err));
    /* The definitions, sorted by name. */
    int64_t most = model->input_count + model->initializer_count;
    for (int64_t n = 0; n < model->node_count; n++) {
        most += model->nodes[n].output_count;
    }
    definition *all;
    TRMI_TRY(TRMI_NEW(err, all, most, "to check an ONNX model"));
    int64_t count = collect_definitions(model, all);
    trm_status status = TRM_OK;
    qsort(all, (size_t)count, sizeof *all, by_name);
    /* Empty names and duplicates. */
    for (int64_t i = 0; i < count && status == TRM_OK; i++) {
        if (all[i].name[0] == '\0') {
            status = TRMI_FAIL(err, TRM_INVALID, "ONNX model %.40s: a value without a name",
                               model->graph_name);
        } else if (i > 0 && strcmp(all[i - 1].name, all[i].name) == 0) {
            status = TRMI_FAIL(err, TRM_INVALID, "ONNX model %.40s: value %.80s is defined twice",
                               model->graph_name, all[i].name);
        }
    }
    /* Uses. */
    if (status == TRM_OK) {
        status = check_uses(model, all, count, err);
    }
    trmi_free(all);
    return status;
}

/* ---- messages -------------------------------------------------------------------------- */

/* Writes a TensorProto without its data. */
static void put_tensor_head(trmi_text *out, const char *name, const trm_tensor *tensor) {
    /* 1 dims, 2 data_type, 8 name */
    for (int32_t i = 0; i < tensor->shape.rank; i++) {
        trmi_proto_varint(out, 1, (uint64_t)tensor->shape.dim[i]);
    }
    trmi_proto_varint(out, 2, (uint64_t)trmi_onnx_type_of(tensor->dtype));
    if (name[0] != '\0') {
        trmi_proto_string(out, 8, name);
    }
}

/* Write an AttributeProto, a NodeProto, a ValueInfoProto. The numbers are those of onnx.proto. */
static void put_attribute(trmi_text *node, const trmi_onnx_attribute *attribute) {
    trmi_text out = {0}, tensor = {0};
    trmi_proto_string(&out, 1, attribute->name);
    /* each kind has a field of its own; field 20 names the kind */
    switch (attribute->kind) {
    case TRMI_ONNX_FLOAT: trmi_proto_float(&out, 2, attribute->number); break;
    case TRMI_ONNX_INT: trmi_proto_varint(&out, 3, (uint64_t)attribute->integer); break;
    case TRMI_ONNX_STRING: trmi_proto_string(&out, 4, attribute->text); break;
    case TRMI_ONNX_TENSOR:
        put_tensor_head(&tensor, "", &attribute->tensor);
        trmi_proto_bytes(&tensor, 9, attribute->tensor.data,
                         (size_t)trm_tensor_bytes(&attribute->tensor));
        trmi_proto_message(&out, 5, &tensor);
        break;
    case TRMI_ONNX_FLOATS:
        for (int64_t i = 0; i < attribute->count; i++) {
            trmi_proto_float(&out, 7, attribute->numbers[i]);
        }
        break;
    case TRMI_ONNX_INTS:
        for (int64_t i = 0; i < attribute->count; i++) {
            trmi_proto_varint(&out, 8, (uint64_t)attribute->integers[i]);
        }
        break;
    case TRMI_ONNX_OTHER: break;
    }
    trmi_proto_varint(&out, 20, (uint64_t)attribute->kind);
    trmi_proto_message(node, 5, &out);
}

/* Appends a NodeProto to a graph; empty names are left out. */
static void put_node(trmi_text *graph, const trmi_onnx_node *node) {
    trmi_text out = {0};
    for (int64_t i = 0; i < node->input_count; i++) {
        trmi_proto_string(&out, 1, node->inputs[i]);
    }
    for (int64_t i = 0; i < node->output_count; i++) {
        trmi_proto_string(&out, 2, node->outputs[i]);
    }
    if (node->name[0] != '\0') {
        trmi_proto_string(&out, 3, node->name);
    }
    trmi_proto_string(&out, 4, node->op);
    for (int64_t i = 0; i < node->attribute_count; i++) {
        put_attribute(&out, &node->attributes[i]);
    }
    if (node->domain[0] != '\0') {
        trmi_proto_string(&out, 7, node->domain);
    }
    trmi_proto_message(graph, 1, &out);
}

/* Appends a ValueInfoProto as field `field` of a graph. */
static void put_value(trmi_text *graph, uint32_t field, const trmi_onnx_value *value) {
    trmi_text out = {0}, type = {0}, tensor = {0}, shape = {0};
    /* Write the shape: a symbol or a size for each dimension. */
    for (int32_t i = 0; i < value->rank; i++) {
        trmi_text dim = {0};
        if (value->dims[i].symbol != NULL) {
            trmi_proto_string(&dim, 2, value->dims[i].symbol);
        } else {
            trmi_proto_varint(&dim, 1, (uint64_t)value->dims[i].size);
        }
        trmi_proto_message(&shape, 1, &dim);
    }
    /* Write type and shape inside a TypeProto, and the name. */
    trmi_proto_varint(&tensor, 1, (uint64_t)trmi_onnx_type_of(value->dtype));
    trmi_proto_message(&tensor, 2, &shape);
    trmi_proto_message(&type, 1, &tensor);
    trmi_proto_string(&out, 1, value->name);
    trmi_proto_message(&out, 2, &type);
    trmi_proto_message(graph, field, &out);
}

/* Writes the fields of the model in front of the graph. */
static void put_model_head(trmi_text *out, const trmi_onnx_model *model) {
    trmi_text opset = {0};
    trmi_proto_varint(out, 1, TRMI_ONNX_IR_VERSION);
    trmi_proto_string(out, 2, "trireme");
    trmi_proto_string(out, 3, trm_version());
    trmi_proto_string(&opset, 1, "");
    trmi_proto_varint(&opset, 2, TRMI_ONNX_OPSET);
    trmi_proto_message(out, 8, &opset);
    for (int64_t i = 0; i < model->metadata_count; i++) {
        trmi_text pair = {0};
        trmi_proto_string(&pair, 1, model->metadata[i].key);
        trmi_proto_string(&pair, 2, model->metadata[i].value);
        trmi_proto_message(out, 14, &pair);
    }
}

/* ---- the file -------------------------------------------------------------------------- */

/* A file under construction. The messages are small and are kept in memory; weights are not
 * copied. */
typedef struct onnx_file {
    const trmi_onnx_model *model;    /* borrowed */
    char data_path[TRMI_PATH_BYTES]; /* path of the data file; "": none */
    trmi_text head, graph;           /* message before the graph; graph without weights */
    trmi_text *tensors; /* [initializer_count] messages of the weights, without their data */
    /* [initializer_count] bytes of data that follow the message; 0: in the data file, or none */
    int64_t *here;
    int64_t *external_at; /* [initializer_count] offset in the data file; -1: not there */
    int64_t graph_bytes;  /* length of the graph message with its weights */
} onnx_file;

/* Appends a pair of external_data. */
static void put_entry(trmi_text *tensor, const char *key, const char *value) {
    trmi_text entry = {0};
    trmi_proto_string(&entry, 1, key);
    trmi_proto_string(&entry, 2, value);
    trmi_proto_message(tensor, 13, &entry);
}

/* Appends where a weight is in the data file. */
static void put_external(trmi_text *tensor, const char *data_path, int64_t offset, int64_t bytes) {
    char number[24];
    const char *slash = strrchr(data_path, '/');
    put_entry(tensor, "location", slash == NULL ? data_path : slash + 1);
    snprintf(number, sizeof number, "%" PRId64, offset);
    put_entry(tensor, "offset", number);
    snprintf(number, sizeof number, "%" PRId64, bytes);
    put_entry(tensor, "length", number);
    trmi_proto_varint(tensor, 14, 1); /* EXTERNAL */
}

/* Returns the length of a varint. */
static int64_t varint_bytes(uint64_t value) {
    int64_t bytes = 1;
    while (value >= 0x80) {
        value >>= 7;
        bytes++;
    }
    return bytes;
}

/* Builds the messages of the weights, decides where their data go, and computes the graph's length,
 * which must be written before the graph. */
static trm_status prepare_tensors(onnx_file *file, trm_error *err) {
    const trmi_onnx_model *model = file->model;
    int64_t next = 0;
    file->graph_bytes = (int64_t)file->graph.length;
    for (int64_t i = 0; i < model->initializer_count; i++) {
        const trm_named_tensor *named = &model->initializers[i];
        trmi_text *head = &file->tensors[i];
        int64_t bytes = trm_tensor_bytes(&named->tensor);
        put_tensor_head(head, named->name, &named->tensor);
        file->external_at[i] = -1;
        /* Large data go to the data file; the message gets their place. */
        if (file->data_path[0] != '\0' && bytes >= EXTERNAL_FROM_BYTES) {
            file->external_at[i] = next;
            put_external(head, file->data_path, next, bytes);
            next = trmi_round_up(next + bytes, EXTERNAL_ALIGNMENT);
        } else {
            /* Otherwise the message ends with the head of raw_data, and the data follow in the
             * file. */
            trmi_proto_header(head, 9, (uint64_t)bytes);
            file->here[i] = bytes;
        }
        TRMI_TRY(TRMI_CHECK_MEMORY(err, head, "to write an ONNX model"));
        /* A weight in the graph takes a byte for field 5, the length, the message. */
        int64_t whole = (int64_t)head->length + file->here[i];
        file->graph_bytes += 1 + varint_bytes((uint64_t)whole) + whole;
    }
    return TRM_OK;
}

/* Builds all messages in memory, except for the data of weights.
 *   errors  NOMEM */
static trm_status prepare_messages(onnx_file *file, trm_error *err) {
    const trmi_onnx_model *model = file->model;
    size_t count = (size_t)model->initializer_count;
    /* Write the parts without weights. */
    put_model_head(&file->head, model);
    for (int64_t i = 0; i < model->node_count; i++) {
        put_node(&file->graph, &model->nodes[i]);
    }
    trmi_proto_string(&file->graph, 2, model->graph_name);
    for (int64_t i = 0; i < model->input_count; i++) {
        put_value(&file->graph, 11, &model->inputs[i]);
    }
    for (int64_t i = 0; i < model->output_count; i++) {
        put_value(&file->graph, 12, &model->outputs[i]);
    }
    /* The weights, whose number is known now. */
    file->tensors = trmi_alloc(count * sizeof *file->tensors);
    file->here = trmi_alloc(count * sizeof *file->here);
    file->external_at = trmi_alloc(count * sizeof *file->external_at);
    if (file->head.failed || file->graph.failed || file->tensors == NULL || file->here == NULL ||
        file->external_at == NULL) {
        return TRMI_NO_MEMORY(err, "to write an ONNX model");
    }
    return prepare_tensors(file, err);
}

/* Writes the data file: the large weights at their offsets, zeros between them. An existing file is
 * replaced when the new one is complete. */
static trm_status write_data_file(const onnx_file *file, trm_error *err) {
    const trmi_onnx_model *model = file->model;
    trmi_file_out out;
    TRMI_TRY(trmi_file_out_open_replacing(&out, NULL, file->data_path, err));
    trm_status status = TRM_OK;
    for (int64_t i = 0; i < model->initializer_count && status == TRM_OK; i++) {
        const trm_tensor *tensor = &model->initializers[i].tensor;
        if (file->external_at[i] < 0) {
            continue;
        }
        /* Fill the gap up to the next multiple of the alignment. */
        status = trmi_file_out_zeros(&out, (size_t)(file->external_at[i] - out.bytes), err);
        if (status == TRM_OK) {
            status = trmi_file_out_write(&out, tensor->data, (size_t)trm_tensor_bytes(tensor), err);
        }
    }
    if (status != TRM_OK) {
        trmi_file_out_abort(&out);
        return status;
    }
    return trmi_file_out_close(&out, err);
}

/* Writes the weights that are in the model file: message, then data. */
static trm_status write_tensors(const onnx_file *file, trmi_file_out *out, trm_error *err) {
    for (int64_t i = 0; i < file->model->initializer_count; i++) {
        /* Write the head of field 5 of the graph. */
        trmi_text frame = {0};
        trmi_proto_header(&frame, 5, (uint64_t)((int64_t)file->tensors[i].length + file->here[i]));
        trm_status status = frame.failed ? TRMI_NO_MEMORY(err, "to write an ONNX model")
                                         : trmi_file_out_write(out, frame.data, frame.length, err);
        trmi_text_free(&frame);
        TRMI_TRY(status);
        TRMI_TRY(trmi_file_out_write(out, file->tensors[i].data, file->tensors[i].length, err));
        TRMI_TRY(trmi_file_out_write(out, file->model->initializers[i].tensor.data,
                                     (size_t)file->here[i], err));
    }
    return TRM_OK;
}

/* Writes the model file. The graph's message is the head, the nodes and values, then the
 * weights. */
static trm_status write_model_file(onnx_file *file, const char *path, trm_error *err) {
    trmi_file_out out;
    trmi_proto_header(&file->head, 7, (uint64_t)file->graph_bytes);
    TRMI_TRY(TRMI_CHECK_MEMORY(err, &file->head, "to write an ONNX model"));
    TRMI_TRY(trmi_file_out_open_replacing(&out, NULL, path, err));
    trm_status status = trmi_file_out_write(&out, file->head.data, file->head.length, err);
    if (status == TRM_OK) {
        status = trmi_file_out_write(&out, file->graph.data, file->graph.length, err);
    }
    if (status == TRM_OK) {
        status = write_tensors(file, &out, err);
    }
    if (status != TRM_OK) {
        trmi_file_out_abort(&out);
        return status;
    }
    return trmi_file_out_close(&out, err);
}

/* Returns the bytes of all weights. */
static int64_t data_bytes_of(const trmi_onnx_model *model) {
    int64_t bytes = 0;
    for (int64_t i = 0; i < model->initializer_count; i++) {
        if (!trmi_add_i64(bytes, trm_tensor_bytes(&model->initializers[i].tensor), &bytes)) {
            return INT64_MAX;
        }
    }
    return bytes;
}

/* Frees what was prepared for a file. */
static void free_file(onnx_file *file) {
    for (int64_t i = 0; file->tensors != NULL && i < file->model->initializer_count; i++) {
        trmi_text_free(&file->tensors[i]);
    }
    trmi_free(file->tensors);
    trmi_free(file->here);
    trmi_free(file->external_at);
    trmi_text_free(&file->head);
    trmi_text_free(&file->graph);
    trmi_free(file);
}

/* Contract in onnx.h. A model that protobuf cannot hold (2 GB) gets its weights in a file of their
 * own beside it. */
trm_status trmi_onnx_write(const trmi_onnx_model *model, const char *path,
                           const trmi_onnx_write_options *options, trm_error *err) {
    if (model->first.status != TRM_OK) {
        if (err != NULL) {
            *err = model->first;
        }
        return (trm_status)model->first.status;
    }
    TRMI_TRY(check_graph(model, err));
    onnx_file *file;
    TRMI_TRY(TRMI_NEW(err, file, 1, "to write an ONNX model"));
    file->model = model;
    /* A data file is necessary if all weights together exceed the limit. */
    int64_t external_from =
        options != NULL && options->external_from > 0 ? options->external_from : MODEL_BYTES_MAX;
    bool external = data_bytes_of(model) >= external_from;
    trm_status status = TRM_OK;
    if (external) {
        int length = snprintf(file->data_path, sizeof file->data_path, "%s.data", path);
        status =
            length < 0 || (size_t)length >= sizeof file->data_path
                ? TRMI_FAIL(err, TRM_INVALID, "...%s: the path is too long", trmi_path_tail(path))
                : TRM_OK;
    }
    TRMI_TRY_GOTO(status, status, done);
    TRMI_TRY_GOTO(status, prepare_messages(file, err), done);
    /* Nodes and small weights alone may be too large. */
    if ((int64_t)file->head.length + file->graph_bytes > MODEL_BYTES_MAX) {
        status = TRMI_FAIL(err, TRM_UNSUPPORTED,
                           "%s: %" PRId64 " bytes without its data, ONNX holds at most 2 GB",
                           trmi_path_tail(path), file->graph_bytes);
        goto done;
    }
    /* Write the data file first: a model that exists has its data. */
    if (external) {
        TRMI_TRY_GOTO(status, write_data_file(file, err), done);
    }
    status = write_model_file(file, path, err);
done:
    free_file(file);
    return status;
}
