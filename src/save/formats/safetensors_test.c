/* SPDX-License-Identifier: Apache-2.0 */
/* Safetensors files: the layout on disk, each rule of the reader, conversions.
 *
 * build_file builds a file in memory from a header, so that each broken rule is one line with
 * the words that its error must have. What the writer writes must be read back, and be what the
 * format prescribes to the byte. */
#include "folder.h"

#include "save/formats/safetensors.h"

#include <unistd.h>

/* A file in memory: length, header, `data_bytes` of data counting up. */
static size_t build_file(uint8_t *out, const char *header, size_t data_bytes) {
    uint64_t length = strlen(header);
    memcpy(out, &length, 8);
    memcpy(out + 8, header, length);
    for (size_t i = 0; i < data_bytes; i++) {
        out[8 + length + i] = (uint8_t)i;
    }
    return 8 + length + data_bytes;
}

static void what_is_written_is_read(void **state) {
    float weight[6] = {1, -2, 3.5f, 0, 1e-30f, 7};
    int64_t batches = 42;
    double pi = 3.14159265358979;
    uint8_t bytes[3] = {1, 2, 255};
    uint16_t half[2] = {0x3F80, 0xC000};
    trm_named_tensor tensors[] = {
        {"z.bytes", {bytes, TRM_UINT8, trm_shape_of(3)}},
        {"fc.weight", {weight, TRM_FLOAT32, trm_shape_of(2, 3)}},
        {"bn.num_batches_tracked", {&batches, TRM_INT64, {0}}},
        {"empty", {NULL, TRM_FLOAT32, trm_shape_of(0, 4)}},
        {"a.pi", {&pi, TRM_FLOAT64, trm_shape_of(1)}},
        {"quote\"\\\xC3\xA9", {half, TRM_BFLOAT16, trm_shape_of(2)}},
    };
    trm_text_pair metadata[] = {{"format", "pt"}, {"note", "line\nend"}};
    trm_error err;
    CHECK_OK(trm_safetensors_write(in_folder("a"), tensors, 6, metadata, 2, &err), err);
    trm_safetensors *file;
    CHECK_OK(trm_safetensors_open(in_folder("a"), &file, &err), err);
    assert_int_equal(trm_safetensors_count(file), 6);
    static const char *order[] = {"a.pi",      "bn.num_batches_tracked", "empty",
                                  "fc.weight", "quote\"\\\xC3\xA9",      "z.bytes"};
    for (int64_t i = 0; i < 6; i++) { /* widest first, then by name */
        const trm_safetensors_entry *entry = trm_safetensors_at(file, i);
        assert_string_equal(entry->name, order[i]);
        assert_int_equal((uintptr_t)entry->tensor.data % trm_dtype_bytes(entry->tensor.dtype), 0);
        assert_ptr_equal(trm_safetensors_find(file, order[i]), entry);
    }
    assert_null(trm_safetensors_at(file, 6));
    assert_null(trm_safetensors_find(file, "fc"));
    for (int i = 0; i < 6; i++) {
        const trm_safetensors_entry *entry = trm_safetensors_find(file, tensors[i].name);
        assert_int_equal(entry->tensor.dtype, tensors[i].tensor.dtype);
        assert_true(trm_shape_equal(&entry->tensor.shape, &tensors[i].tensor.shape));
        assert_int_equal(entry->bytes, trm_tensor_bytes(&tensors[i].tensor));
        if (entry->bytes > 0) {
            assert_memory_equal(entry->tensor.data, tensors[i].tensor.data, entry->bytes);
        }
    }
    assert_string_equal(trm_safetensors_metadata(file, "note"), "line\nend");
    assert_null(trm_safetensors_metadata(file, "other"));
    assert_int_equal(trm_safetensors_metadata_count(file), 2);
    trm_safetensors_close(file);
    assert_int_equal(access(in_folder("a"), R_OK), 0);
}

static void header_is_padded_and_exact(void **state) {
    float one = 1;
    trm_named_tensor tensor = {"a", {&one, TRM_FLOAT32, trm_shape_of(1)}};
    trm_error err;
    CHECK_OK(trm_safetensors_write(in_folder("b"), &tensor, 1, NULL, 0, &err), err);
    uint8_t *data;
    size_t bytes;
    CHECK_OK(trmi_os_read_file(in_folder("b"), 1000, &data, &bytes, &err), err);
    static const char header[] =
        "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}  ";
    assert_int_equal((sizeof header - 1) % 8, 0);
    assert_int_equal(bytes, 8 + sizeof header - 1 + 4);
    assert_int_equal(data[0], sizeof header - 1);
    assert_memory_equal(data + 8, header, sizeof header - 1);
    assert_memory_equal(data + bytes - 4, "\0\0\x80\x3F", 4);
    trmi_free(data);
}

/* The file is mapped until it is closed (base/mapping.h). */
static void a_shortened_file_is_an_error(void **state) {
    enum { COUNT = 10000 };
    static float values[COUNT], read[COUNT];
    const trm_tensor into = {read, TRM_FLOAT32, trm_shape_of(COUNT)};
    trm_named_tensor tensor = {"a", {values, TRM_FLOAT32, trm_shape_of(COUNT)}};
    trm_safetensors *file;
    trm_error err;
    CHECK_OK(trm_safetensors_write(in_folder("d"), &tensor, 1, NULL, 0, &err), err);
    CHECK_OK(trm_safetensors_open(in_folder("d"), &file, &err), err);
    CHECK_OK(trm_safetensors_read(file, "a", &into, &err), err);
    assert_int_equal(truncate(in_folder("d"), 5000), 0);
    CHECK_FAILS(trm_safetensors_read(file, "a", &into, &err), TRM_IO, err, "found 5000 bytes");
    trm_safetensors_close(file);
}

static void writer_refuses_bad_input(void **state) {
    float one = 1;
    trm_named_tensor good = {"a", {&one, TRM_FLOAT32, trm_shape_of(1)}};
    trm_named_tensor two[] = {good, good};
    trm_error err;
    CHECK_FAILS(trm_safetensors_write(in_folder("c"), two, 2, NULL, 0, &err), TRM_INVALID, err,
                "two tensors are called a");
    two[0].name = "\xFF";
    CHECK_FAILS(trm_safetensors_write(in_folder("c"), two, 2, NULL, 0, &err), TRM_INVALID, err,
                "UTF-8");
    two[0].name = "__metadata__";
    CHECK_FAILS(trm_safetensors_write(in_folder("c"), two, 1, NULL, 0, &err), TRM_INVALID, err,
                "__metadata__");
    two[0] = good;
    two[0].tensor.shape = trm_shape_of(-1);
    CHECK_FAILS(trm_safetensors_write(in_folder("c"), two, 1, NULL, 0, &err), TRM_INVALID, err,
                "no data or no size");
    trm_text_pair twice[] = {{"k", "1"}, {"k", "2"}};
    CHECK_FAILS(trm_safetensors_write(in_folder("c"), &good, 1, twice, 2, &err), TRM_INVALID, err,
                "two metadata values");
    CHECK_FAILS(trm_safetensors_write("/nowhere/x", &good, 1, NULL, 0, &err), TRM_IO, err,
                "cannot create");
    assert_int_not_equal(access(in_folder("c"), F_OK), 0);
}

static void reader_accepts_what_the_format_allows(void **state) {
    static const char *const headers[] = {
        "{}",
        "{ }   ",
        "  {\"a\":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[0,1]}} \n",
        "{\"a\":{\"data_offsets\":[0,1],\"shape\":[2],\"dtype\":\"F4\"}}",
        "{\"a\":{\"dtype\":\"F6_E2M3\",\"shape\":[4],\"data_offsets\":[0,3]}}",
        ("{\"a\":{\"dtype\":\"F64\",\"shape\":[0,9],\"data_offsets\":[0,0]},"
         "\"b\":{\"dtype\":\"BOOL\",\"shape\":[1,1,1,1,1,1,1,2],\"data_offsets\":[0,2]}}"),
        "{\"\\u00e9\\ud83d\\ude00\":{\"dtype\":\"I8\",\"shape\":[1],\"data_offsets\":[0,1]}}",
    };
    static const size_t data_bytes[] = {0, 0, 1, 1, 3, 2, 1};
    for (size_t i = 0; i < sizeof headers / sizeof headers[0]; i++) {
        uint8_t bytes[512];
        trm_safetensors *file;
        trm_error err;
        size_t size = build_file(bytes, headers[i], data_bytes[i]);
        CHECK_OK(trmi_safetensors_parse(bytes, size, "memory", &file, &err), err);
        if (i == 5) { /* rank 8: known to the file, not to trm_tensor */
            const trm_safetensors_entry *entry = trm_safetensors_find(file, "b");
            assert_int_equal(entry->rank, 8);
            assert_int_equal(entry->dims[7], 2);
            assert_int_equal(entry->tensor.dtype, TRM_DTYPE_NONE);
        }
        if (i == 6) {
            assert_non_null(trm_safetensors_find(file, "\xC3\xA9\xF0\x9F\x98\x80"));
        }
        trm_safetensors_close(file);
    }
}

#define ENTRY(name, dtype, shape, offsets)                                                         \
    "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":[" shape "],\"data_offsets\":[" offsets "]}"

static void reader_refuses_each_broken_rule(void **state) {
    static const struct {
        const char *header;
        size_t data_bytes;
        const char *message;
    } cases[] = {
        {"{" ENTRY("a", "U8", "1", "0,1") "}", 2, "2 bytes of data, 1 belong"},
        {"{" ENTRY("a", "U8", "4", "0,4") "}", 3, "ends at data offset 4, the file at 3"},
        {"{" ENTRY("a", "U8", "1", "1,2") "}", 2, "begins at data offset 1, 0 expected"},
        {"{" ENTRY("a", "U8", "2", "0,2") "," ENTRY("b", "U8", "2", "1,3") "}", 3, "overlap"},
        {"{" ENTRY("a", "U8", "1", "0,1") "," ENTRY("b", "U8", "1", "2,3") "}", 3, "hole"},
        {"{" ENTRY("a", "U8", "1", "0,1") "," ENTRY("a", "U8", "1", "1,2") "}", 2, "two tensors"},
        {"{" ENTRY("a", "U8", "1", "0,1") "," ENTRY("\\u0061", "U8", "1", "1,2") "}", 2,
         "two tensors"},
        {"{" ENTRY("a", "U8", "2", "0,1") "}", 1, "do not agree"},
        {"{" ENTRY("a", "U8", "1", "1,0") "}", 1, "do not agree"},
        {"{" ENTRY("a", "F4", "3", "0,1") "}", 1, "whole bytes"},
        {"{" ENTRY("a", "X8", "1", "0,1") "}", 1, "unknown dtype"},
        {"{" ENTRY("a", "U8", "-1", "0,1") "}", 1, "without sign"},
        {"{" ENTRY("a", "U8", "1.0", "0,1") "}", 1, "integer"},
        {"{" ENTRY("a", "U8", "1e0", "0,1") "}", 1, "integer"},
        {"{" ENTRY("a", "U8", "01", "0,1") "}", 1, "leading zero"},
        {"{" ENTRY("a", "U8", "99999999999999999999", "0,1") "}", 1, "too large"},
        {"{" ENTRY("a", "F64", "4611686018427387904,4", "0,1") "}", 1, "too large"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1]}}", 1, "',' expected"},
        {"{\"a\":{\"dtype\":\"U8\",\"dtype\":\"U8\",\"shape\":[1]}}", 1, "once each"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1],\"x\":0}}", 1,
         "'}' expected"},
        {"{\"__metadata__\":{\"a\":1}}", 0, "a string expected"},
        {"{\"__metadata__\":{\"a\":\"1\",\"a\":\"2\"}}", 0, "metadata has a twice"},
        {"{\"__metadata__\":{},\"__metadata__\":{}}", 0, "__metadata__ twice"},
        {"{\"\xFF\":0}", 0, "not UTF-8"},
        {"{\"\\ud800\":0}", 0, "surrogate"},
        {"{\"\\u0000\":0}", 0, "NUL"},
        {"{\"\\x\":0}", 0, "unknown escape"},
        {"{\"a\n\":0}", 0, "control character"},
        {"{\"a", 0, "without its end"},
        {"{} x", 0, "nothing more"},
        {"[]", 0, "'{' expected"},
        {"", 0, "'{' expected"},
        {"{}", 1, "belong to no tensor"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        uint8_t bytes[512];
        trm_safetensors *file;
        trm_error err;
        size_t size = build_file(bytes, cases[i].header, cases[i].data_bytes);
        CHECK_FAILS(trmi_safetensors_parse(bytes, size, "memory", &file, &err), TRM_CORRUPT, err,
                    cases[i].message);
    }
    uint8_t bytes[16] = {0};
    trm_safetensors *file;
    trm_error err;
    CHECK_FAILS(trmi_safetensors_parse(bytes, 7, "m", &file, &err), TRM_CORRUPT, err, "7 bytes");
    memset(bytes, 0xFF, 8);
    CHECK_FAILS(trmi_safetensors_parse(bytes, 16, "m", &file, &err), TRM_CORRUPT, err,
                "a header of 18446744073709551615 bytes");
    CHECK_FAILS(trm_safetensors_open(in_folder("missing"), &file, &err), TRM_IO, err,
                "cannot open");
}

static void reading_converts_floating_types_only(void **state) {
    float values[4] = {1.0f, -2.5f, 65504.0f, 3.0e-8f};
    int32_t integer = 7;
    trm_named_tensor tensors[] = {{"f", {values, TRM_FLOAT32, trm_shape_of(4)}},
                                  {"i", {&integer, TRM_INT32, trm_shape_of(1)}}};
    trm_error err;
    CHECK_OK(trm_safetensors_write(in_folder("d"), tensors, 2, NULL, 0, &err), err);
    trm_safetensors *file;
    CHECK_OK(trm_safetensors_open(in_folder("d"), &file, &err), err);
    double wide[4];
    uint16_t half[4], brain[4];
    trm_tensor into = {wide, TRM_FLOAT64, trm_shape_of(4)};
    CHECK_OK(trm_safetensors_read(file, "f", &into, &err), err);
    assert_true(wide[1] == -2.5 && wide[3] == (double)3.0e-8f);
    into = (trm_tensor){half, TRM_FLOAT16, trm_shape_of(4)};
    CHECK_OK(trm_safetensors_read(file, "f", &into, &err), err);
    assert_int_equal(half[0], 0x3C00);
    assert_int_equal(half[2], 0x7BFF);
    into = (trm_tensor){brain, TRM_BFLOAT16, trm_shape_of(4)};
    CHECK_OK(trm_safetensors_read(file, "f", &into, &err), err);
    assert_int_equal(brain[1], 0xC020);
    CHECK_FAILS(trm_safetensors_read(file, "i", &into, &err), TRM_INVALID, err,
                "is I32, bfloat16 expected");
    into.shape = trm_shape_of(2, 2);
    CHECK_FAILS(trm_safetensors_read(file, "f", &into, &err), TRM_INVALID, err,
                "is [4], [2, 2] expected");
    CHECK_FAILS(trm_safetensors_read(file, "g", &into, &err), TRM_INVALID, err, "no tensor g");
    trm_safetensors_close(file);

    /* 1 + 2^-8 + 2^-40 is above the middle of two bfloat16; rounded to float first it would be it.
     */
    double tricky[3] = {1.0 + 0x1p-8 + 0x1p-40, -(1.0 + 0x1p-8 + 0x1p-40), 1.0 + 0x1p-8 - 0x1p-40};
    trm_named_tensor exact = {"t", {tricky, TRM_FLOAT64, trm_shape_of(3)}};
    CHECK_OK(trm_safetensors_write(in_folder("e"), &exact, 1, NULL, 0, &err), err);
    CHECK_OK(trm_safetensors_open(in_folder("e"), &file, &err), err);
    into = (trm_tensor){brain, TRM_BFLOAT16, trm_shape_of(3)};
    CHECK_OK(trm_safetensors_read(file, "t", &into, &err), err);
    assert_int_equal(brain[0], 0x3F81);
    assert_int_equal(brain[1], 0xBF81);
    assert_int_equal(brain[2], 0x3F80);
    trm_safetensors_close(file);
}

/* Each allocation of the reader fails once: an error, no leak, no crash. */
static void lack_of_memory_is_an_error(void **state) {
    uint8_t bytes[512];
    size_t size =
        build_file(bytes, "{\"__metadata__\":{\"a\":\"b\"}," ENTRY("a", "U8", "1", "0,1") "}", 1);
    trm_error err;
    bool failed = true;
    for (int64_t k = 1; failed && k < 100; k++) {
        trm_safetensors *file = NULL;
        trmi_alloc_fail_after(k);
        trm_status status = trmi_safetensors_parse(bytes, size, "memory", &file, &err);
        trmi_alloc_fail_after(0);
        failed = status != TRM_OK;
        if (!failed) {
            trm_safetensors_close(file);
        }
    }
    assert_false(failed);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_written_is_read),
        cmocka_unit_test(header_is_padded_and_exact),
        cmocka_unit_test(a_shortened_file_is_an_error),
        cmocka_unit_test(writer_refuses_bad_input),
        cmocka_unit_test(reader_accepts_what_the_format_allows),
        cmocka_unit_test(reader_refuses_each_broken_rule),
        cmocka_unit_test(reading_converts_floating_types_only),
        cmocka_unit_test(lack_of_memory_is_an_error),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
