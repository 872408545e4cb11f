/* SPDX-License-Identifier: Apache-2.0 */
/* Exchanges files with readers and writers of other projects: the scripts tests/save_files_test.sh
 * and tests/save_onnx_test.sh run this with "write DIR" and "read DIR". Without arguments it writes
 * and reads back what it wrote. */
#include "check.h"

#include "base/os.h"
#include "save/formats/npy.h"
#include "save/formats/onnx.h"

#include "trireme/io.h"

#include <math.h>
#include <unistd.h>

static char dir[256];

static const char *in_dir(const char *name) {
    static char path[4][512];
    static int turn;
    turn = (turn + 1) % 4;
    snprintf(path[turn], sizeof path[turn], "%s/%s", dir, name);
    return path[turn];
}

/* The values that both sides know: element i is i / 2 - 3. */
static float f32[24];
static double f64[6];
static int64_t i64 = 1234567890123;
static int32_t i32[4] = {-2, -1, 0, 2147483647};
static uint16_t bf16[3] = {0x3F80, 0xC000, 0x7F80}; /* 1, -2, infinity */
static uint16_t f16[3] = {0x3C00, 0xC000, 0x7C00};
static int8_t i8[2] = {-128, 127};
static uint8_t u8[3] = {0, 1, 255};

enum { NAMED = 8 };
static trm_named_tensor named[NAMED];

static void make_values(void) {
    for (int i = 0; i < 24; i++) {
        f32[i] = (float)i / 2 - 3;
    }
    for (int i = 0; i < 6; i++) {
        f64[i] = (double)i / 2 - 3;
    }
    const trm_named_tensor all[NAMED] = {
        {"conv1.weight", {f32, TRM_FLOAT32, trm_shape_of(2, 3, 2, 2)}},
        {"wide", {f64, TRM_FLOAT64, trm_shape_of(6)}},
        {"bn1.num_batches_tracked", {&i64, TRM_INT64, {0}}},
        {"index", {i32, TRM_INT32, trm_shape_of(2, 2)}},
        {"brain", {bf16, TRM_BFLOAT16, trm_shape_of(3)}},
        {"half", {f16, TRM_FLOAT16, trm_shape_of(3)}},
        {"small", {i8, TRM_INT8, trm_shape_of(2)}},
        {"\xC3\xBC.bytes", {u8, TRM_UINT8, trm_shape_of(1, 3)}}};
    memcpy(named, all, sizeof all);
}

static void write_tensors(void **state) {
    trm_error err;
    trm_text_pair metadata = {"format", "pt"};
    CHECK_OK(trm_safetensors_write(in_dir("c.safetensors"), named, NAMED, &metadata, 1, &err), err);
    CHECK_OK(trm_npz_write(in_dir("c.npz"), named, NAMED, &err), err);
    CHECK_OK(trmi_npz_write(in_dir("c64.npz"), named, NAMED, 0, &err), err);
    CHECK_OK(trm_npy_write(in_dir("c.npy"), &named[0].tensor, &err), err);
    CHECK_OK(trm_npy_write(in_dir("scalar.npy"), &named[2].tensor, &err), err);
    trm_checkpoint_writer *writer;
    trm_checkpoint_part parts[] = {{.name = "model", .tensors = named, .count = NAMED},
                                   {.name = "optimizer", .tensors = named, .count = 1}};
    trm_checkpoint_info info = {.global_step = 7, .epoch = 1, .seed = 42, .world_size = 1};
    CHECK_OK(trm_checkpoint_writer_open(in_dir("out"), NULL, &writer, &err), err);
    CHECK_OK(trm_checkpoint_save(writer, &info, parts, 2, &err), err);
    CHECK_OK(trm_checkpoint_writer_close(writer, &err), err);
}

static void write_events(void **state) {
    trm_error err;
    trm_events *events;
    CHECK_OK(trm_events_open(in_dir("tb"), NULL, &events, &err), err);
    for (int step = 1; step <= 10; step++) {
        trm_named_scalar scalars[] = {{"loss", 1.0 / step}, {"accuracy/top1", step / 10.0}};
        CHECK_OK(trm_events_scalars(events, step, scalars, 2, &err), err);
    }
    CHECK_OK(trm_events_histogram(events, 10, "conv1.weight", &named[0].tensor, &err), err);
    trm_shape shape = trm_shape_of(32, 10);
    const char *const inputs[] = {"image"};
    trm_graph_event_node nodes[] = {{.name = "image", .op = "Input", .output_shape = &shape},
                                    {"layer1/conv", "Conv2D", inputs, 1, "rank:0", &shape}};
    CHECK_OK(trm_events_graph(events, nodes, 2, &err), err);
    CHECK_OK(trm_events_close(events, &err), err);
    /* The run that goes on from step 6: the points 7 to 10 come again. */
    sleep(1); /* readers order the files by the second in their names */
    trm_events_options resumed = {.resumed = true, .resume_step = 6};
    CHECK_OK(trm_events_open(in_dir("tb"), &resumed, &events, &err), err);
    for (int step = 7; step <= 8; step++) {
        trm_named_scalar loss = {"loss", 100.0 + step};
        CHECK_OK(trm_events_scalars(events, step, &loss, 1, &err), err);
    }
    CHECK_OK(trm_events_close(events, &err), err);
}

static void add_node(trmi_onnx_model *model, const char *op, const char *const *inputs,
                     int64_t input_count, const char *output, const trmi_onnx_attribute *attributes,
                     int64_t attribute_count) {
    trmi_onnx_add_node(model, &(trmi_onnx_node){.op = op,
                                                .name = output,
                                                .inputs = inputs,
                                                .input_count = input_count,
                                                .outputs = &output,
                                                .output_count = 1,
                                                .attributes = attributes,
                                                .attribute_count = attribute_count});
}

/* Conv, BatchNormalization, Relu, MaxPool, GlobalAveragePool, Flatten, Gemm: a small ResNet's
 * words. */
static trmi_onnx_model *small_network(void) {
    static float ones[4] = {1, 1, 1, 1}, zeros[4];
    static float kernel[4 * 3 * 3 * 3], dense[10 * 4];
    static const int64_t kernel_shape[] = {3, 3}, pads[] = {1, 1, 1, 1}, strides[] = {2, 2};
    trmi_onnx_model *model;
    trm_error err;
    for (int i = 0; i < 108; i++) {
        kernel[i] = (float)(i % 7) - 3;
    }
    for (int i = 0; i < 40; i++) {
        dense[i] = (float)i / 40;
    }
    CHECK_OK(trmi_onnx_create("small", &model, &err), err);
    trmi_onnx_add_input(
        model,
        &(trmi_onnx_value){.name = "image",
                           .dtype = TRM_FLOAT32,
                           .rank = 4,
                           .dims = {{.symbol = "N"}, {.size = 3}, {.size = 8}, {.size = 8}}});
    trmi_onnx_add_initializer(model, "conv.weight",
                              &(trm_tensor){kernel, TRM_FLOAT32, trm_shape_of(4, 3, 3, 3)});
    static const char *const ones_names[] = {"bn.weight", "bn.running_var"};
    static const char *const zeros_names[] = {"bn.bias", "bn.running_mean"};
    for (int i = 0; i < 2; i++) {
        trmi_onnx_add_initializer(model, ones_names[i],
                                  &(trm_tensor){ones, TRM_FLOAT32, trm_shape_of(4)});
        trmi_onnx_add_initializer(model, zeros_names[i],
                                  &(trm_tensor){zeros, TRM_FLOAT32, trm_shape_of(4)});
    }
    trmi_onnx_add_initializer(model, "fc.weight",
                              &(trm_tensor){dense, TRM_FLOAT32, trm_shape_of(10, 4)});
    trmi_onnx_attribute conv[] = {trmi_onnx_ints("kernel_shape", kernel_shape, 2),
                                  trmi_onnx_ints("pads", pads, 4),
                                  trmi_onnx_ints("strides", strides, 2), trmi_onnx_int("group", 1)};
    trmi_onnx_attribute norm = trmi_onnx_float("epsilon", 1e-5f), gemm = trmi_onnx_int("transB", 1);
    add_node(model, "Conv", (const char *[]){"image", "conv.weight"}, 2, "c", conv, 4);
    add_node(model, "BatchNormalization",
             (const char *[]){"c", "bn.weight", "bn.bias", "bn.running_mean", "bn.running_var"}, 5,
             "n", &norm, 1);
    add_node(model, "Relu", (const char *[]){"n"}, 1, "r", NULL, 0);
    add_node(model, "MaxPool", (const char *[]){"r"}, 1, "m", conv, 3);
    add_node(model, "GlobalAveragePool", (const char *[]){"m"}, 1, "g", NULL, 0);
    add_node(model, "Flatten", (const char *[]){"g"}, 1, "f", NULL, 0);
    add_node(model, "Gemm", (const char *[]){"f", "fc.weight"}, 2, "logits", &gemm, 1);
    trmi_onnx_add_output(model, &(trmi_onnx_value){.name = "logits",
                                                   .dtype = TRM_FLOAT32,
                                                   .rank = 2,
                                                   .dims = {{.symbol = "N"}, {.size = 10}}});
    trmi_onnx_add_metadata(model, "made_by", "a test");
    return model;
}

static void write_models(void **state) {
    trm_error err;
    trmi_onnx_model *model = small_network();
    trmi_onnx_write_options external = {.external_from = 100};
    CHECK_OK(trmi_onnx_write(model, in_dir("c.onnx"), NULL, &err), err);
    static float big[600];
    trmi_onnx_add_initializer(model, "unused", &(trm_tensor){big, TRM_FLOAT32, trm_shape_of(600)});
    CHECK_OK(trmi_onnx_write(model, in_dir("external.onnx"), &external, &err), err);
    trmi_onnx_destroy(model);
    CHECK_OK(trmi_onnx_create("types", &model, &err), err);
    for (int i = 0; i < NAMED; i++) {
        trmi_onnx_add_initializer(model, named[i].name, &named[i].tensor);
    }
    add_node(model, "Identity", (const char *[]){"conv1.weight"}, 1, "y", NULL, 0);
    trmi_onnx_add_output(
        model, &(trmi_onnx_value){.name = "y",
                                  .dtype = TRM_FLOAT32,
                                  .rank = 4,
                                  .dims = {{.size = 2}, {.size = 3}, {.size = 2}, {.size = 2}}});
    CHECK_OK(trmi_onnx_write(model, in_dir("types.onnx"), NULL, &err), err);
    trmi_onnx_destroy(model);
}

/* Named tensors that must be in the file with these very bytes; bfloat16 is not NumPy's to write.
 */
static void read_tensors(void **state) {
    const char *path = access(in_dir("py.safetensors"), R_OK) == 0 ? in_dir("py.safetensors")
                                                                   : in_dir("c.safetensors");
    trm_error err;
    trm_safetensors *file;
    CHECK_OK(trm_safetensors_open(path, &file, &err), err);
    assert_string_equal(trm_safetensors_metadata(file, "format"), "pt");
    for (int i = 0; i < NAMED; i++) {
        const trm_safetensors_entry *entry = trm_safetensors_find(file, named[i].name);
        assert_non_null(entry);
        assert_int_equal(entry->tensor.dtype, named[i].tensor.dtype);
        assert_true(trm_shape_equal(&entry->tensor.shape, &named[i].tensor.shape));
        assert_memory_equal(entry->tensor.data, named[i].tensor.data, entry->bytes);
    }
    trm_safetensors_close(file);
    path = access(in_dir("py.npz"), R_OK) == 0 ? in_dir("py.npz") : in_dir("c.npz");
    trm_npz *arrays;
    CHECK_OK(trm_npz_open(path, &arrays, &err), err);
    for (int i = 0; i < NAMED; i++) {
        if (named[i].tensor.dtype == TRM_BFLOAT16) {
            continue;
        }
        const trm_npz_entry *entry = trm_npz_find(arrays, named[i].name);
        assert_non_null(entry);
        assert_int_equal(entry->tensor.dtype, named[i].tensor.dtype);
        assert_true(trm_shape_equal(&entry->tensor.shape, &named[i].tensor.shape));
        assert_memory_equal(entry->tensor.data, named[i].tensor.data, entry->bytes);
    }
    trm_npz_close(arrays);
    if (access(in_dir("py_compressed.npz"), R_OK) == 0) {
        CHECK_FAILS(trm_npz_open(in_dir("py_compressed.npz"), &arrays, &err), TRM_UNSUPPORTED, err,
                    "is compressed (method 8): save with numpy.savez");
        CHECK_FAILS(trm_npz_open(in_dir("py_object.npy"), &arrays, &err), TRM_UNSUPPORTED, err,
                    "pickle");
        CHECK_OK(trm_npz_open(in_dir("py_fortran.npy"), &arrays, &err), err);
        assert_true(trm_npz_at(arrays, 0)->fortran_order);
        assert_int_equal(trm_npz_at(arrays, 0)->tensor.dtype, TRM_DTYPE_NONE);
        trm_npz_close(arrays);
    }
}

static void read_models(void **state) {
    trm_error err;
    trmi_onnx_model *model;
    bool theirs = access(in_dir("py.onnx"), R_OK) == 0;
    CHECK_OK(trmi_onnx_open(in_dir(theirs ? "py.onnx" : "types.onnx"), &model, &err), err);
    int found = 0;
    for (int i = 0; i < NAMED; i++) {
        const trm_named_tensor *tensor = trmi_onnx_initializer(model, named[i].name);
        if (tensor == NULL) {
            continue;
        }
        assert_int_equal(tensor->tensor.dtype, named[i].tensor.dtype);
        assert_true(trm_shape_equal(&tensor->tensor.shape, &named[i].tensor.shape));
        assert_memory_equal(tensor->tensor.data, named[i].tensor.data,
                            trm_tensor_bytes(&named[i].tensor));
        found++;
    }
    assert_true(found >= 7);
    if (theirs) {
        const trmi_onnx_node *node = &model->nodes[0];
        assert_string_equal(node->op, "Conv");
        assert_int_equal(trmi_onnx_attribute_of(node, "pads")->integers[3], 4);
        assert_string_equal(model->inputs[0].dims[0].symbol, "batch");
        assert_int_equal(model->opset, 17);
    }
    trmi_onnx_destroy(model);
}

static void line_is_fine(void *context, const char *line) { assert_non_null(line); }

static void everything_can_be_inspected(void **state) {
    static const char *const files[] = {"c.safetensors", "c.npz", "c64.npz", "c.npy",        "out",
                                        "out/ckpt-7",    "tb",    "c.onnx",  "external.onnx"};
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        trm_error err;
        if (strcmp(files[i], "tb") != 0) {
            CHECK_OK(trm_inspect(in_dir(files[i]), NULL, line_is_fine, NULL, &err), err);
        }
    }
}

int main(int argc, char **argv) {
    const struct CMUnitTest writing[] = {cmocka_unit_test(write_tensors),
                                         cmocka_unit_test(write_events),
                                         cmocka_unit_test(write_models)};
    const struct CMUnitTest reading[] = {cmocka_unit_test(read_tensors),
                                         cmocka_unit_test(read_models),
                                         cmocka_unit_test(everything_can_be_inspected)};
    make_values();
    if (argc == 3) {
        snprintf(dir, sizeof dir, "%s", argv[2]);
        return strcmp(argv[1], "write") == 0 ? cmocka_run_group_tests(writing, NULL, NULL)
                                             : cmocka_run_group_tests(reading, NULL, NULL);
    }
    strcpy(dir, "/tmp/trireme_interop_XXXXXX");
    if (mkdtemp(dir) == NULL) {
        return 1;
    }
    int failed = cmocka_run_group_tests(writing, NULL, NULL);
    failed += cmocka_run_group_tests(reading, NULL, NULL);
    return trmi_os_remove_tree(NULL, dir, NULL) == TRM_OK ? failed : 1;
}
