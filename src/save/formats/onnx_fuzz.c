/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes as an ONNX model. */
#include "fuzz_seed.h"

#include "base/os.h"
#include "save/formats/onnx.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void make_file(uint8_t **file, size_t *bytes) {
    char path[64];
    float weight[6] = {1, 2, 3, 4, 5, 6};
    int64_t axes[2] = {0, 1};
    trm_tensor w = {weight, TRM_FLOAT32, trm_shape_of(2, 3)};
    trmi_onnx_model *model;
    if (trmi_onnx_create("fuzz", &model, NULL) != TRM_OK) {
        abort();
    }
    /* Build a model with each kind of part: input, weights, node with attributes, output,
     * metadata. */
    trmi_onnx_value x = {
        .name = "x", .dtype = TRM_FLOAT32, .rank = 2, .dims = {{.symbol = "N"}, {.size = 3}}};
    trmi_onnx_attribute attributes[] = {trmi_onnx_int("transB", 1),
                                        trmi_onnx_ints("axes", axes, 2),
                                        trmi_onnx_string("mode", "linear"),
                                        {.name = "value", .kind = TRMI_ONNX_TENSOR, .tensor = w}};
    trmi_onnx_node node = {.op = "Gemm",
                           .name = "fc",
                           .inputs = (const char *[]){"x", "w"},
                           .input_count = 2,
                           .outputs = (const char *[]){"y"},
                           .output_count = 1,
                           .attributes = attributes,
                           .attribute_count = 4};
    trmi_onnx_add_input(model, &x);
    trmi_onnx_add_initializer(model, "w", &w);
    trmi_onnx_add_node(model, &node);
    x.name = "y";
    trmi_onnx_add_output(model, &x);
    trmi_onnx_add_metadata(model, "k", "v");
    snprintf(path, sizeof path, "/tmp/trireme_onnx_fuzz_%ld", (long)getpid());
    if (trmi_onnx_write(model, path, NULL, NULL) != TRM_OK ||
        trmi_os_read_file(path, 60000, file, bytes, NULL) != TRM_OK) {
        abort();
    }
    unlink(path);
    trmi_onnx_destroy(model);
}

size_t trireme_fuzz_seed(int index, uint8_t *data, size_t capacity) {
    static uint8_t *file;
    static size_t bytes;
    (void)index;
    (void)capacity;
    if (file == NULL) {
        make_file(&file, &bytes);
    }
    memcpy(data, file, bytes);
    return bytes;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    trmi_onnx_model *model;
    trm_error err = {0};
    /* A folder that does not exist: data in other files are never found. */
    if (trmi_onnx_parse(data, bytes, "/nonexistent/fuzz.onnx", &model, &err) != TRM_OK) {
        if (err.message[0] == '\0') {
            abort();
        }
        return 0;
    }
    unsigned sum = 0;
    for (int64_t i = 0; i < model->initializer_count; i++) {
        const trm_named_tensor *named = &model->initializers[i];
        int64_t length = trm_tensor_bytes(&named->tensor);
        for (int64_t b = 0; named->tensor.dtype != TRM_DTYPE_NONE && b < length; b++) {
            sum += ((const uint8_t *)named->tensor.data)[b];
        }
    }
    for (int64_t i = 0; i < model->node_count; i++) {
        const trmi_onnx_node *node = &model->nodes[i];
        sum += (unsigned)strlen(node->op);
        for (int64_t k = 0; k < node->input_count; k++) {
            sum += (unsigned)strlen(node->inputs[k]);
        }
    }
    *(volatile unsigned *)&sum = sum;
    trmi_onnx_destroy(model);
    return 0;
}
