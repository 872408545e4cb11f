/* SPDX-License-Identifier: Apache-2.0 */
/* `trireme inspect`: each kind of file is recognised by its content, described as text and as
 * JSON, and its first fault is named with its place.
 *
 * Files are written into the test's folder by the library itself; the real CIFAR-10 is read
 * where TRIREME_DATA has it. */
#include "folder.h"
#include "real_data.h"

#include "save/checkpoint/checkpoint.h"
#include "save/formats/npy.h"
#include "save/formats/onnx.h"
#include "base/format/tfrecord.h"

#include "trireme/io.h"

#include <sys/stat.h>
#include <unistd.h>

#include <jansson.h>

static char text[65536];

static void collect_line(void *context, const char *line) {
    size_t used = strlen(text);
    snprintf(text + used, sizeof text - used, "%s\n", line);
}

/* Text and JSON both; the text holds `words`, the JSON is one valid object of this kind. */
static void check_good(const char *path, const char *kind, const char *words) {
    trm_error err;
    text[0] = '\0';
    CHECK_OK(trm_inspect(path, NULL, collect_line, NULL, &err), err);
    if (strstr(text, words) == NULL) {
        fail_msg("'%s' is not in:\n%s", words, text);
    }
    text[0] = '\0';
    trm_inspect_options options = {.json = true};
    CHECK_OK(trm_inspect(path, &options, collect_line, NULL, &err), err);
    json_error_t problem;
    json_t *object = json_loads(text, JSON_REJECT_DUPLICATES, &problem);
    if (object == NULL) {
        fail_msg("%s at %d in %s", problem.text, problem.position, text);
    }
    assert_string_equal(json_string_value(json_object_get(object, "kind")), kind);
    assert_string_equal(json_string_value(json_object_get(object, "path")), path);
    assert_true(json_is_true(json_object_get(object, "valid")));
    json_decref(object);
}

static void check_bad(const char *path, trm_status status, const char *message) {
    trm_error err;
    trm_inspect_options options = {.json = true};
    CHECK_FAILS(trm_inspect(path, NULL, collect_line, NULL, &err), status, err, message);
    text[0] = '\0';
    CHECK_FAILS(trm_inspect(path, &options, collect_line, NULL, &err), status, err, message);
    if (strstr(message, "none of") != NULL) { /* of no kind: there is nothing to tell */
        assert_string_equal(text, "");
        return;
    }
    json_t *object = json_loads(text, 0, NULL);
    assert_true(json_is_false(json_object_get(object, "valid")));
    assert_string_equal(json_string_value(json_object_get(object, "error")), err.message);
    json_decref(object);
}

static void flip_byte(const char *path, long offset) {
    FILE *file = fopen(path, "r+b");
    fseek(file, offset, SEEK_SET);
    int c = fgetc(file);
    fseek(file, offset, SEEK_SET);
    fputc(c ^ 0x40, file);
    fclose(file);
}

static float values[6] = {1, 2, 3, 4, 5, 6};

static void tensors_and_arrays(void **state) {
    trm_error err;
    trm_named_tensor named = {"fc.\"w\"", {values, TRM_FLOAT32, trm_shape_of(2, 3)}};
    trm_text_pair pairs[] = {{"format", "pt"}, {"#note", "of a file"}};
    CHECK_OK(trm_safetensors_write(in_folder("w"), &named, 1, pairs, 2, &err), err);
    check_good(in_folder("w"), "safetensors", "F32    [2, 3]");
    assert_non_null(strstr(text, "\"#note\":\"of a file\"")); /* JSON has all names of a file */
    assert_int_equal(rename(in_folder("w"), in_folder("w.safetensors")), 0);
    flip_byte(in_folder("w.safetensors"), 3); /* recognised by its name now */
    check_bad(in_folder("w.safetensors"), TRM_CORRUPT, "a header of 1073741");
    CHECK_OK(trm_npz_write(in_folder("z"), &named, 1, &err), err);
    check_good(in_folder("z"), "npz", "<f4    [2, 3]");
    flip_byte(in_folder("z"), 200);
    check_bad(in_folder("z"), TRM_CORRUPT, "is damaged: crc32");
    CHECK_OK(trm_npy_write(in_folder("y"), &named.tensor, &err), err);
    check_good(in_folder("y"), "npy", "1 array");
    assert_int_equal(truncate(in_folder("y"), 140), 0);
    check_bad(in_folder("y"), TRM_CORRUPT, "12 bytes of data, its shape and type take 24");
}

static void checkpoints_are_shown(void **state) {
    trm_error err;
    trm_checkpoint_writer *writer;
    trm_named_tensor named = {"w", {values, TRM_FLOAT32, trm_shape_of(6)}};
    trm_checkpoint_part part = {.name = "model", .tensors = &named, .count = 1};
    CHECK_OK(trm_checkpoint_writer_open(in_folder("out"), NULL, &writer, &err), err);
    for (int step = 1; step <= 2; step++) {
        trm_checkpoint_info info = {.global_step = step, .config_json = "{\"a\": [1, \"x\"]}"};
        CHECK_OK(trm_checkpoint_save(writer, &info, &part, 1, &err), err);
    }
    CHECK_OK(trm_checkpoint_writer_close(writer, &err), err);
    check_good(in_folder("out"), "checkpoints", "  ckpt-2: verified\n  ckpt-1: verified\n");
    check_good(in_folder("out/ckpt-2"), "checkpoint",
               "  model.safetensors: 1 tensors, 24 bytes, verified\n");
    flip_byte(in_folder("out/ckpt-1/model.safetensors"), 20);
    check_bad(in_folder("out/ckpt-1"), TRM_CORRUPT, "block 0");
    check_bad(in_folder("out"), TRM_CORRUPT, "block 0");
    assert_non_null(strstr(text, "\"name\":\"ckpt-2\",\"global_step\":2,\"valid\":true"));
    assert_int_equal(mkdir(in_folder("plain"), 0777), 0);
    check_bad(in_folder("plain"), TRM_CORRUPT, "a directory, none of: checkpoint");
}

static void records_are_shown(void **state) {
    trm_error err;
    trm_events *events;
    CHECK_OK(trm_events_open(in_folder("ev"), NULL, &events, &err), err);
    trm_named_scalar scalars[] = {{"loss", 0.5}, {"a\"b", 1}};
    for (int step = 1; step <= 3; step++) {
        CHECK_OK(trm_events_scalars(events, step, scalars, 2, &err), err);
    }
    char path[300];
    snprintf(path, sizeof path, "%s", trm_events_path(events));
    CHECK_OK(trm_events_close(events, &err), err);
    check_good(path, "events", "  loss: 3 points, steps 1 to 3, last value 0.5\n");
    struct stat info;
    assert_int_equal(stat(path, &info), 0);
    assert_int_equal(truncate(path, info.st_size - 1), 0);
    check_bad(path, TRM_CORRUPT, "record 3 at offset ");
    assert_non_null(strstr(text, "\"last_step\":2")); /* what is whole is told */

    trmi_text file = {0};
    static const char example[] =
        "\x0a\x1d\x0a\x1b\x0a\x11image/class/label\x12\x06\x1a\x04\x0a\x02"
        "\x07\x08";
    trmi_tfrecord_append(&file, example, sizeof example - 1);
    trmi_tfrecord_append(&file, "x", 1);
    write_in_folder("r", file.data, file.length);
    check_good(in_folder("r"), "tfrecord",
               "2 good records of 1 to 31 bytes\n  image/class/label: int64");
    flip_byte(in_folder("r"), (long)file.length - 1);
    check_bad(in_folder("r"), TRM_CORRUPT, "record 1 at offset 47: the checksum of its data");
    trmi_text_free(&file);
}

static void models_are_shown(void **state) {
    trm_error err;
    trmi_onnx_model *model;
    CHECK_OK(trmi_onnx_create("g", &model, &err), err);
    trmi_onnx_value x = {
        .name = "x", .dtype = TRM_FLOAT32, .rank = 2, .dims = {{.symbol = "N"}, {.size = 3}}};
    trmi_onnx_add_input(model, &x);
    trmi_onnx_add_node(model, &(trmi_onnx_node){.op = "Relu",
                                                .inputs = (const char *[]){"x"},
                                                .input_count = 1,
                                                .outputs = (const char *[]){"y"},
                                                .output_count = 1});
    x.name = "y";
    trmi_onnx_add_output(model, &x);
    CHECK_OK(trmi_onnx_write(model, in_folder("m"), NULL, &err), err);
    trmi_onnx_destroy(model);
    check_good(in_folder("m"), "onnx", "  input x: float32 [N, 3]\n");
    assert_int_equal(rename(in_folder("m"), in_folder("m.onnx")), 0);
    assert_int_equal(truncate(in_folder("m.onnx"), 60), 0);
    check_bad(in_folder("m.onnx"), TRM_CORRUPT, "a field that is cut off");
}

static void cifar_batches(void **state) {
    static uint8_t batch[3073 * 20];
    for (int i = 0; i < 20; i++) {
        batch[i * 3073] = (uint8_t)(i % 10);
    }
    write_in_folder("data_batch_1.bin", batch, sizeof batch);
    check_good(in_folder("data_batch_1.bin"), "cifar10", "  label 9: 2\n");
    batch[3073 * 7] = 12;
    write_in_folder("data_batch_1.bin", batch, sizeof batch);
    check_bad(in_folder("data_batch_1.bin"), TRM_CORRUPT,
              "record 7 at offset 21511: label 12, at most 9 expected");
    assert_int_equal(truncate(in_folder("data_batch_1.bin"), 1000), 0);
    check_bad(in_folder("data_batch_1.bin"), TRM_CORRUPT, "a multiple of 3073 expected");
}

static void the_real_cifar_is_recognised(void **state) {
    const char *path = real_data("cifar-10-batches-bin/test_batch.bin");
    if (path == NULL) {
        skip();
    }
    check_good(path, "cifar10", "10000 images of 3x32x32\n  label 0: 1000\n");
}

static bool is_plan(const trm_probe *probe) {
    return probe->bytes >= 4 && memcmp(probe->data, "PLAN", 4) == 0;
}

static trm_status describe_plan(const trm_probe *probe, bool json, trm_line_sink sink,
                                void *context, trm_error *err) {
    sink(context, json ? "{\"kind\":\"plan\"}" : "a plan");
    return TRM_OK;
}

static void unknown_files_and_more_kinds(void **state) {
    trm_error err;
    write_in_folder("p", "PLAN 1", 6);
    check_bad(in_folder("p"), TRM_CORRUPT, "unknown content, none of: checkpoint, directory of");
    const trm_inspect_options others = {.other_kinds = "rank table"};
    CHECK_FAILS(trm_inspect(in_folder("p"), &others, collect_line, NULL, &err), TRM_CORRUPT, err,
                "cifar10, rank table");
    const trm_recogniser more = {"plan", NULL, is_plan, describe_plan};
    trm_inspect_options options = {.more = &more, .more_count = 1};
    text[0] = '\0';
    CHECK_OK(trm_inspect(in_folder("p"), &options, collect_line, NULL, &err), err);
    assert_string_equal(text, "a plan\n");
    write_in_folder("empty", "", 0);
    check_bad(in_folder("empty"), TRM_CORRUPT, "empty, none of");
    CHECK_FAILS(trm_inspect(in_folder("missing"), NULL, collect_line, NULL, &err), TRM_IO, err,
                "No such");
    CHECK_FAILS(trm_inspect("/dev/null", NULL, collect_line, NULL, &err), TRM_INVALID, err,
                "neither a file nor a directory");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tensors_and_arrays),
        cmocka_unit_test(checkpoints_are_shown),
        cmocka_unit_test(records_are_shown),
        cmocka_unit_test(models_are_shown),
        cmocka_unit_test(cifar_batches),
        cmocka_unit_test(the_real_cifar_is_recognised),
        cmocka_unit_test(unknown_files_and_more_kinds),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
