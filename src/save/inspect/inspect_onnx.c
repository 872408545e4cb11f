/* SPDX-License-Identifier: Apache-2.0 */
/* `trireme inspect` of an ONNX model: number of nodes by operator, inputs, outputs, weights. The
 * file is parsed whole, but no operator is interpreted, so models of other programs can be looked
 * at. */
#include "save/inspect/inspect.h"
#include "save/formats/onnx.h"

#include "base/memory.h"

#include <inttypes.h>
#include <string.h>

enum { OPS_MAX = 256 }; /* operators that are listed */

/* The format has no signature: the first field is the IR version (a varint, 8 for models of
 * trireme), and the rest must parse. */
static bool is_onnx(const trm_probe *probe) {
    trmi_onnx_model *model;
    if (probe->bytes < 4 || probe->data[0] != 0x08 || probe->data[1] < 3 || probe->data[1] > 63 ||
        trmi_onnx_parse(probe->data, (size_t)probe->bytes, probe->path, &model, NULL) != TRM_OK) {
        return false;
    }
    trmi_onnx_destroy(model);
    return true;
}

/* Reports an input or output with its shape, in which symbols may stand for sizes. */
static void put_value(trmi_inspect_report *report, const char *what, const trmi_onnx_value *value,
                      bool first) {
    trmi_text shape = {0};
    for (int32_t i = 0; i < value->rank; i++) {
        if (value->dims[i].symbol != NULL) {
            trmi_text_printf(&shape, "%s%s", i > 0 ? ", " : "", value->dims[i].symbol);
        } else {
            trmi_text_printf(&shape, "%s%" PRId64, i > 0 ? ", " : "", value->dims[i].size);
        }
    }
    /* A scalar has no dimensions and thus no text. */
    const char *text = shape.length > 0 && !shape.failed ? shape.data : "";
    trmi_inspect_line(report, "  %s %s: %s [%s]", what, value->name, trm_dtype_name(value->dtype),
                      text);
    if (report->json) {
        trmi_inspect_raw(report, "%s{\"name\":", first ? "" : ",");
        trmi_text_json_string(&report->text, value->name);
        trmi_inspect_raw(report, ",\"dtype\":\"%s\",\"shape\":", trm_dtype_name(value->dtype));
        trmi_text_json_string(&report->text, text);
        trmi_inspect_raw(report, "}");
    }
    trmi_text_free(&shape);
}

/* Reports all inputs and outputs. */
static void put_values(trmi_inspect_report *report, const trmi_onnx_model *model) {
    trmi_inspect_key(report, "inputs");
    trmi_inspect_raw(report, "[");
    for (int64_t i = 0; i < model->input_count; i++) {
        put_value(report, "input", &model->inputs[i], i == 0);
    }
    trmi_inspect_raw(report, "]");
    trmi_inspect_key(report, "outputs");
    trmi_inspect_raw(report, "[");
    for (int64_t i = 0; i < model->output_count; i++) {
        put_value(report, "output", &model->outputs[i], i == 0);
    }
    trmi_inspect_raw(report, "]");
}

/* Counts the nodes of each operator and reports the counts. */
static void put_operators(trmi_inspect_report *report, const trmi_onnx_model *model) {
    const char *ops[OPS_MAX];
    int64_t counts[OPS_MAX], count = 0;
    /* Count the operators. Models have few different ones, so the list is searched. */
    for (int64_t n = 0; n < model->node_count; n++) {
        const char *op = model->nodes[n].op;
        int64_t i = 0;
        while (i < count && strcmp(ops[i], op) != 0) {
            i++;
        }
        if (i == count && count < OPS_MAX) {
            ops[count] = op;
            counts[count++] = 0;
        }
        if (i < count) {
            counts[i]++;
        }
    }
    /* Report, in the order of first use. */
    trmi_inspect_key(report, "operators");
    trmi_inspect_raw(report, "{");
    for (int64_t i = 0; i < count; i++) {
        trmi_inspect_line(report, "  %6" PRId64 " %s", counts[i], ops[i]);
        if (report->json) {
            trmi_inspect_raw(report, "%s", i > 0 ? "," : "");
            trmi_text_json_string(&report->text, ops[i]);
            trmi_inspect_raw(report, ":%" PRId64, counts[i]);
        }
    }
    trmi_inspect_raw(report, "}");
}

/* Describes the model: versions, number of nodes and weights, inputs, outputs, operators. */
static trm_status describe_onnx(const trm_probe *probe, bool json, trm_line_sink sink,
                                void *context, trm_error *err) {
    trmi_inspect_report report = {.probe = probe, .json = json, .sink = sink, .context = context};
    trmi_onnx_model *model = NULL;
    trm_status status =
        trmi_onnx_parse(probe->data, (size_t)probe->bytes, probe->path, &model, err);
    trmi_inspect_begin(&report, "onnx");
    if (status != TRM_OK) {
        return trmi_inspect_end(&report, status, err);
    }
    /* Count the elements of all weights; a shape that is unknown counts as none. */
    int64_t elements = 0;
    for (int64_t i = 0; i < model->initializer_count; i++) {
        int64_t count = trm_shape_count(&model->initializers[i].tensor.shape);
        elements += count > 0 ? count : 0;
    }
    trmi_inspect_line(&report,
                      "ONNX model %s: IR version %" PRId64 ", opset %" PRId64 ", by %s; %" PRId64
                      " nodes, %" PRId64 " initialisers of %" PRId64 " elements",
                      model->graph_name, model->ir_version, model->opset, model->producer,
                      model->node_count, model->initializer_count, elements);
    trmi_inspect_string(&report, "graph", model->graph_name);
    trmi_inspect_string(&report, "producer", model->producer);
    trmi_inspect_integer(&report, "ir_version", model->ir_version);
    trmi_inspect_integer(&report, "opset", model->opset);
    trmi_inspect_integer(&report, "node_count", model->node_count);
    trmi_inspect_integer(&report, "initializer_count", model->initializer_count);
    trmi_inspect_integer(&report, "elements", elements);
    put_values(&report, model);
    put_operators(&report, model);
    trmi_onnx_destroy(model);
    return trmi_inspect_end(&report, TRM_OK, err);
}

const trm_recogniser trmi_inspect_onnx = {"onnx", ".onnx", is_onnx, describe_onnx};
