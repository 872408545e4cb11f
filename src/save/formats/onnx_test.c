/* SPDX-License-Identifier: Apache-2.0 */
/* ONNX files: built, written, read back; large data beside the model; what a reader must
 * refuse. The checker of the onnx package is in tests/save_onnx_test.sh.
 *
 * A damaged model may be refused or read, but does no harm: it is shortened, and bits are
 * changed one by one. Paths of external data that leave the model's folder are refused. */
#include "folder.h"

#include "save/formats/onnx.h"
#include "base/format/proto.h"

#include <sys/stat.h>
#include <unistd.h>

static float weight[300 * 4];
static int64_t axes[2] = {2, 3};

/* x[N, 4] -> Gemm(w, b) -> Relu -> y[N, 300] */
static trmi_onnx_model *build_model(void) {
    trmi_onnx_model *model;
    trm_error err;
    CHECK_OK(trmi_onnx_create("mlp", &model, &err), err);
    trmi_onnx_add_input(model, &(trmi_onnx_value){.name = "x",
                                                  .dtype = TRM_FLOAT32,
                                                  .rank = 2,
                                                  .dims = {{.symbol = "N"}, {.size = 4}}});
    for (int i = 0; i < 1200; i++) {
        weight[i] = (float)i * 0.25f;
    }
    trm_tensor w = {weight, TRM_FLOAT32, trm_shape_of(300, 4)};
    trm_tensor b = {weight, TRM_FLOAT32, trm_shape_of(300)};
    trmi_onnx_add_initializer(model, "w", &w);
    trmi_onnx_add_initializer(model, "b", &b);
    trmi_onnx_attribute gemm[] = {trmi_onnx_int("transB", 1), trmi_onnx_float("alpha", 0.5f)};
    trmi_onnx_add_node(model, &(trmi_onnx_node){.op = "Gemm",
                                                .name = "fc",
                                                .inputs = (const char *[]){"x", "w", "b"},
                                                .input_count = 3,
                                                .outputs = (const char *[]){"h"},
                                                .output_count = 1,
                                                .attributes = gemm,
                                                .attribute_count = 2});
    trmi_onnx_attribute others[] = {trmi_onnx_ints("axes", axes, 2),
                                    trmi_onnx_string("mode", "a\"b"),
                                    {.name = "value", .kind = TRMI_ONNX_TENSOR, .tensor = b}};
    trmi_onnx_add_node(model, &(trmi_onnx_node){.op = "Relu",
                                                .inputs = (const char *[]){"h"},
                                                .input_count = 1,
                                                .outputs = (const char *[]){"y"},
                                                .output_count = 1,
                                                .attributes = others,
                                                .attribute_count = 3});
    trmi_onnx_add_output(model, &(trmi_onnx_value){.name = "y",
                                                   .dtype = TRM_FLOAT32,
                                                   .rank = 2,
                                                   .dims = {{.symbol = "N"}, {.size = 300}}});
    trmi_onnx_add_metadata(model, "author", "trireme");
    return model;
}

static void check_model(const trmi_onnx_model *model) {
    trm_error err;
    assert_string_equal(model->graph_name, "mlp");
    assert_string_equal(model->producer, "trireme");
    assert_int_equal(model->ir_version, 8);
    assert_int_equal(model->opset, 17);
    assert_int_equal(model->node_count, 2);
    const trmi_onnx_node *gemm = &model->nodes[0], *relu = &model->nodes[1];
    assert_string_equal(gemm->op, "Gemm");
    assert_string_equal(gemm->name, "fc");
    assert_int_equal(gemm->input_count, 3);
    assert_string_equal(gemm->inputs[2], "b");
    assert_int_equal(trmi_onnx_attribute_of(gemm, "transB")->integer, 1);
    assert_true(trmi_onnx_attribute_of(gemm, "alpha")->number == 0.5f);
    assert_null(trmi_onnx_attribute_of(gemm, "beta"));
    const trmi_onnx_attribute *ints = trmi_onnx_attribute_of(relu, "axes");
    assert_int_equal(ints->kind, TRMI_ONNX_INTS);
    assert_int_equal(ints->count, 2);
    assert_int_equal(ints->integers[1], 3);
    assert_string_equal(trmi_onnx_attribute_of(relu, "mode")->text, "a\"b");
    const trmi_onnx_attribute *tensor = trmi_onnx_attribute_of(relu, "value");
    assert_memory_equal(tensor->tensor.data, weight, 1200);
    assert_string_equal(model->inputs[0].dims[0].symbol, "N");
    assert_int_equal(model->outputs[0].dims[1].size, 300);
    assert_int_equal(model->outputs[0].dtype, TRM_FLOAT32);
    assert_string_equal(model->metadata[0].value, "trireme");
    static float copy[1200];
    trm_tensor into = {copy, TRM_FLOAT32, trm_shape_of(300, 4)};
    CHECK_OK(trmi_onnx_read(model, "w", &into, &err), err);
    assert_memory_equal(copy, weight, sizeof copy);
    into.shape = trm_shape_of(1200);
    CHECK_FAILS(trmi_onnx_read(model, "w", &into, &err), TRM_INVALID, err, "[300, 4]");
    CHECK_FAILS(trmi_onnx_read(model, "v", &into, &err), TRM_INVALID, err, "no initialiser v");
}

static void what_is_written_is_read(void **state) {
    trm_error err;
    trmi_onnx_model *model = build_model(), *back;
    CHECK_OK(trmi_onnx_write(model, in_folder("a.onnx"), NULL, &err), err);
    trmi_onnx_destroy(model);
    CHECK_OK(trmi_onnx_open(in_folder("a.onnx"), &back, &err), err);
    check_model(back);
    /* And what is read can be written again, to the same bytes. */
    CHECK_OK(trmi_onnx_write(back, in_folder("b.onnx"), NULL, &err), err);
    uint8_t *a, *b;
    size_t a_bytes, b_bytes;
    CHECK_OK(trmi_os_read_file(in_folder("a.onnx"), 1 << 20, &a, &a_bytes, &err), err);
    CHECK_OK(trmi_os_read_file(in_folder("b.onnx"), 1 << 20, &b, &b_bytes, &err), err);
    assert_int_equal(a_bytes, b_bytes);
    assert_memory_equal(a, b, a_bytes);
    trmi_free(a);
    trmi_free(b);
    trmi_onnx_destroy(back);
}

static void large_data_live_beside_the_model(void **state) {
    trm_error err;
    trmi_onnx_model *model = build_model(), *back;
    trmi_onnx_write_options options = {.external_from = 4000};
    CHECK_OK(trmi_onnx_write(model, in_folder("c.onnx"), &options, &err), err);
    trmi_onnx_destroy(model);
    struct stat info;
    assert_int_equal(stat(in_folder("c.onnx.data"), &info), 0);
    assert_int_equal(info.st_size, 8192 + 1200); /* w, a gap to the next page, b */
    assert_int_equal(stat(in_folder("c.onnx"), &info), 0);
    assert_true(info.st_size < 2500);
    CHECK_OK(trmi_onnx_open(in_folder("c.onnx"), &back, &err), err);
    check_model(back);
    trmi_onnx_destroy(back);
    assert_int_equal(truncate(in_folder("c.onnx.data"), 8192 + 1199), 0);
    CHECK_FAILS(trmi_onnx_open(in_folder("c.onnx"), &back, &err), TRM_CORRUPT, err,
                "1200 bytes at 8192 of c.onnx.data, which has 9391");
    assert_int_equal(rename(in_folder("c.onnx.data"), in_folder("elsewhere")), 0);
    CHECK_FAILS(trmi_onnx_open(in_folder("c.onnx"), &back, &err), TRM_IO, err,
                "data in c.onnx.data");
    assert_int_equal(symlink("elsewhere", in_folder("c.onnx.data")), 0);
    CHECK_FAILS(trmi_onnx_open(in_folder("c.onnx"), &back, &err), TRM_INVALID, err,
                "no plain file");
}

/* A model of one initialiser whose TensorProto is `tensor` (freed). */
static trm_status parse_tensor(trmi_text *tensor, trmi_onnx_model **out, trm_error *err) {
    trmi_text graph = {0}, model = {0};
    trmi_proto_message(&graph, 5, tensor);
    trmi_proto_varint(&model, 1, 8);
    trmi_proto_message(&model, 7, &graph);
    char path[300];
    snprintf(path, sizeof path, "%s/m.onnx", folder);
    trm_status status = trmi_onnx_parse((const uint8_t *)model.data, model.length, path, out, err);
    if (status == TRM_OK && (*out)->initializer_count != 1) {
        fail_msg("no initialiser");
    }
    trmi_text_free(&model);
    return status;
}

static trmi_text tensor_head(uint64_t type, int64_t dim) {
    trmi_text tensor = {0};
    trmi_proto_varint(&tensor, 1, (uint64_t)dim);
    trmi_proto_varint(&tensor, 2, type);
    trmi_proto_string(&tensor, 8, "t");
    return tensor;
}

static void data_outside_the_folder_are_refused(void **state) {
    static const char *const places[] = {"../up", "/etc/passwd", "a/../../b", "",   ".",
                                         "a//b",  "..",          "a\\b",      "./x"};
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        trmi_onnx_model *model;
        trm_error err;
        trmi_text tensor = tensor_head(1, 4), entry = {0};
        trmi_proto_string(&entry, 1, "location");
        trmi_proto_string(&entry, 2, places[i]);
        trmi_proto_message(&tensor, 13, &entry);
        trmi_proto_varint(&tensor, 14, 1);
        CHECK_FAILS(parse_tensor(&tensor, &model, &err), TRM_INVALID, err,
                    "only files beside the model are read");
    }
}

static void typed_data_are_read(void **state) {
    trmi_onnx_model *model;
    trm_error err;
    trmi_text tensor = tensor_head(7, 3); /* int64, one number a field and two packed */
    trmi_text packed = {0};
    trmi_proto_varint(&tensor, 7, (uint64_t)-5);
    trmi_proto_raw_varint(&packed, 300);
    trmi_proto_raw_varint(&packed, 1);
    trmi_proto_message(&tensor, 7, &packed);
    CHECK_OK(parse_tensor(&tensor, &model, &err), err);
    const int64_t *values = trmi_onnx_initializer(model, "t")->tensor.data;
    assert_true(values[0] == -5 && values[1] == 300 && values[2] == 1);
    trmi_onnx_destroy(model);
    float floats[2] = {1.5f, -2};
    tensor = tensor_head(1, 2);
    trmi_proto_bytes(&tensor, 4, floats, sizeof floats);
    CHECK_OK(parse_tensor(&tensor, &model, &err), err);
    assert_memory_equal(trmi_onnx_initializer(model, "t")->tensor.data, floats, sizeof floats);
    trmi_onnx_destroy(model);
    tensor = tensor_head(10, 1); /* a float16 lies in int32_data */
    trmi_proto_varint(&tensor, 5, 0x3C00);
    CHECK_OK(parse_tensor(&tensor, &model, &err), err);
    assert_memory_equal(trmi_onnx_initializer(model, "t")->tensor.data, "\x00\x3C", 2);
    trmi_onnx_destroy(model);
}

static void broken_tensors_are_refused(void **state) {
    trmi_onnx_model *model;
    trm_error err;
    uint8_t bytes[16] = {0};
    trmi_text tensor = tensor_head(1, 3);
    trmi_proto_bytes(&tensor, 9, bytes, 8);
    CHECK_FAILS(parse_tensor(&tensor, &model, &err), TRM_CORRUPT, err,
                "tensor t has 8 bytes, its type and shape take 12");
    tensor = tensor_head(1, -1);
    CHECK_FAILS(parse_tensor(&tensor, &model, &err), TRM_CORRUPT, err, "negative or too large");
    tensor = tensor_head(7, (int64_t)1 << 61);
    CHECK_FAILS(parse_tensor(&tensor, &model, &err), TRM_CORRUPT, err, "negative or too large");
    tensor = tensor_head(8, 1);
    CHECK_FAILS(parse_tensor(&tensor, &model, &err), TRM_UNSUPPORTED, err, "type 8");
    tensor = tensor_head(1, (int64_t)1 << 40); /* a terabyte that is not there */
    trmi_proto_float(&tensor, 4, 1);
    CHECK_FAILS(parse_tensor(&tensor, &model, &err), TRM_CORRUPT, err, "do not fit");
    tensor = tensor_head(7, 2);
    trmi_proto_varint(&tensor, 7, 1);
    CHECK_FAILS(parse_tensor(&tensor, &model, &err), TRM_CORRUPT, err, "fewer numbers");
    tensor = tensor_head(7, 1);
    trmi_proto_varint(&tensor, 7, 1);
    trmi_proto_varint(&tensor, 7, 1);
    CHECK_FAILS(parse_tensor(&tensor, &model, &err), TRM_CORRUPT, err, "more numbers");
    tensor = tensor_head(1, 1);
    trmi_proto_varint(&tensor, 7, 1);
    CHECK_FAILS(parse_tensor(&tensor, &model, &err), TRM_CORRUPT, err, "do not fit");
    CHECK_FAILS(trmi_onnx_parse((const uint8_t *)"\x08\x08", 2, "m", &model, &err), TRM_CORRUPT,
                err, "it has no graph");
    CHECK_FAILS(trmi_onnx_parse((const uint8_t *)"\x3A\x05", 2, "m", &model, &err), TRM_CORRUPT,
                err, "offset 0: a field that is cut off");
}

/* Every prefix and every flipped bit of a model: an error with a sentence, or a model. */
static void damaged_models_do_no_harm(void **state) {
    trm_error err;
    trmi_onnx_model *model = build_model(), *back;
    CHECK_OK(trmi_onnx_write(model, in_folder("d.onnx"), NULL, &err), err);
    trmi_onnx_destroy(model);
    uint8_t *data;
    size_t bytes;
    CHECK_OK(trmi_os_read_file(in_folder("d.onnx"), 1 << 20, &data, &bytes, &err), err);
    for (size_t i = 0; i < bytes; i++) {
        assert_int_equal(trmi_onnx_parse(data, i, "d", &back, &err), TRM_CORRUPT);
        if (i > 1700 && i + 100 < bytes) {
            continue; /* within the weights */
        }
        for (int bit = 0; bit < 8; bit++) {
            data[i] ^= (uint8_t)(1 << bit);
            if (trmi_onnx_parse(data, bytes, "d", &back, &err) == TRM_OK) {
                trmi_onnx_destroy(back);
            }
            data[i] ^= (uint8_t)(1 << bit);
        }
    }
    trmi_free(data);
}

static void graphs_that_cannot_run_are_not_written(void **state) {
    trm_error err;
    const char *x[] = {"x"}, *y[] = {"y"}, *z[] = {"z"};
    trmi_onnx_value in = {.name = "x", .dtype = TRM_FLOAT32};
    trmi_onnx_value out = {.name = "y", .dtype = TRM_FLOAT32};
    trmi_onnx_node relu = {
        .op = "Relu", .inputs = x, .input_count = 1, .outputs = y, .output_count = 1};
    for (int fault = 0; fault < 7; fault++) {
        static const char *const messages[] = {"node 0 (Relu) uses z, which no earlier",
                                               "value y is defined twice",
                                               "output z is not defined",
                                               "no output",
                                               "not UTF-8",
                                               "has no data",
                                               "has no type"};
        trmi_onnx_model *model;
        CHECK_OK(trmi_onnx_create("g", &model, &err), err);
        trmi_onnx_add_input(model, &in);
        trmi_onnx_node node = relu;
        node.inputs = fault == 0 ? z : x;
        trmi_onnx_add_node(model, &node);
        if (fault == 1) {
            trmi_onnx_add_node(model, &relu);
        }
        if (fault == 4) {
            trmi_onnx_add_metadata(model, "k", "\xFF");
        }
        if (fault == 5) {
            trm_tensor none = {NULL, TRM_FLOAT32, trm_shape_of(1)};
            trmi_onnx_add_initializer(model, "w", &none);
        }
        if (fault == 6) {
            trmi_onnx_add_input(model, &(trmi_onnx_value){.name = "u"});
        }
        trmi_onnx_value result = out;
        result.name = fault == 2 ? "z" : "y";
        if (fault != 3) {
            trmi_onnx_add_output(model, &result);
        }
        CHECK_FAILS(trmi_onnx_write(model, in_folder("never.onnx"), NULL, &err), TRM_INVALID, err,
                    messages[fault]);
        trmi_onnx_destroy(model);
    }
    assert_int_not_equal(access(in_folder("never.onnx"), F_OK), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_written_is_read),
        cmocka_unit_test(large_data_live_beside_the_model),
        cmocka_unit_test(data_outside_the_folder_are_refused),
        cmocka_unit_test(typed_data_are_read),
        cmocka_unit_test(broken_tensors_are_refused),
        cmocka_unit_test(damaged_models_do_no_harm),
        cmocka_unit_test(graphs_that_cannot_run_are_not_written),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
