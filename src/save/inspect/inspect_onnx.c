/* SPDX-License-Identifier: Apache-2.0 */
/* `trireme inspect` of an ONNX model: number of nodes by operator, inputs, outputs, weights. Its
 * row of the table of kinds (inspect.c) has is_onnx, which recognises a model, and the function
 * that describes it.
 *
 * The file is parsed whole, but no operator is interpreted, so models of other programs can be
 * looked at. ONNX has no signature: a file is taken for one if it begins with a version and all of
 * it parses. */
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

/* Reports inputs or outputs with their shapes, in which symbols may stand for sizes. `line` is said
 * of each. */
static void put_values(trmi_report *r, const char *key, const trmi_onnx_value *values,
                       int64_t count, const char *line) {
    trmi_report_open_array(r, key);
    for (int64_t v = 0; v < count; v++) {
        trmi_text shape = {0};
        for (int32_t i = 0; i < values[v].rank; i++) {
            trmi_text_printf(&shape, i > 0 ? ", " : "");
            if (values[v].dims[i].symbol != NULL) {
                trmi_text_printf(&shape, "%s", values[v].dims[i].symbol);
            } else {
                trmi_text_printf(&shape, "%" PRId64, values[v].dims[i].size);
            }
        }
        /* A scalar has no dimensions and thus no text. */
        const char *text = shape.length > 0 && !shape.failed ? shape.data : "";
        trmi_report_open_object(r, NULL);
        trmi_report_put(r, trmi_string("name", values[v].name),
                        trmi_string("dtype", trm_dtype_name(values[v].dtype)),
                        trmi_string("shape", text));
        trmi_report_say_of(r, trmi_report_close(r), line);
        trmi_text_free(&shape);
    }
    trmi_report_close(r);
}

/* Counts the nodes of each operator and reports the counts. */
static void put_operators(trmi_report *r, const trmi_onnx_model *model) {
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
    trmi_report_open_object(r, "operators");
    for (int64_t i = 0; i < count; i++) {
        trmi_report_put(r, trmi_int(ops[i], counts[i]));
    }
    trmi_report_close(r);
    trmi_report_say_each(r, "operators", "  []%6d [@]%s\n", NULL);
}

/* Describes the model: versions, number of nodes and weights, inputs, outputs, operators. */
static trm_status describe_onnx(const trm_probe *probe, bool json, trm_line_sink sink,
                                void *context, trm_error *err) {
    trmi_inspect_report report;
    trmi_report *r = &report.report;
    trmi_onnx_model *model = NULL;
    trm_status status =
        trmi_onnx_parse(probe->data, (size_t)probe->bytes, probe->path, &model, err);
    trmi_inspect_begin(&report, "onnx", probe, json, sink, context);
    if (status != TRM_OK) {
        return trmi_inspect_end(&report, status, err);
    }
    /* Count the elements of all weights; a shape that is unknown counts as none. */
    int64_t elements = 0;
    for (int64_t i = 0; i < model->initializer_count; i++) {
        int64_t count = trm_shape_count(&model->initializers[i].tensor.shape);
        elements += count > 0 ? count : 0;
    }
    trmi_report_put(
        r, trmi_string("graph", model->graph_name), trmi_string("producer", model->producer),
        trmi_int("ir_version", model->ir_version), trmi_int("opset", model->opset),
        trmi_int("node_count", model->node_count),
        trmi_int("initializer_count", model->initializer_count), trmi_int("elements", elements));
    trmi_report_say(r, "ONNX model [graph]%s: IR version [ir_version]%d, opset [opset]%d, by "
                       "[producer]%s; [node_count]%d nodes, [initializer_count]%d initialisers of "
                       "[elements]%d elements\n");
    put_values(r, "inputs", model->inputs, model->input_count,
               "  input [name]%s: [dtype]%s [[[shape]%s]\n");
    put_values(r, "outputs", model->outputs, model->output_count,
               "  output [name]%s: [dtype]%s [[[shape]%s]\n");
    put_operators(r, model);
    status = trmi_inspect_end(&report, TRM_OK, err); /* names of operators are the model's */
    trmi_onnx_destroy(model);
    return status;
}

const trm_recogniser trmi_inspect_onnx = {"onnx", ".onnx", is_onnx, describe_onnx};
