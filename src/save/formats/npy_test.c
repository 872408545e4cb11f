/* SPDX-License-Identifier: Apache-2.0 */
/* Tests of .npy and .npz: bytes, round trips, every broken rule. NumPy itself:
 * tests/save_files_test.sh. */
#include "folder.h"

#include "save/formats/npy.h"

#include <unistd.h>

static void an_array_has_numpys_bytes(void **state) {
    float values[6] = {0, 1, 2, 3, 4, 5};
    trm_tensor array = {values, TRM_FLOAT32, trm_shape_of(2, 3)};
    trm_error err;
    CHECK_OK(trm_npy_write(in_folder("a.npy"), &array, &err), err);
    uint8_t *data;
    size_t bytes;
    CHECK_OK(trmi_os_read_file(in_folder("a.npy"), 1000, &data, &bytes, &err), err);
    assert_int_equal(bytes, 128 + 24);
    static const char head[] = "\x93NUMPY\x01\x00v\x00{'descr': '<f4', 'fortran_order': False, "
                               "'shape': (2, 3), }";
    assert_memory_equal(data, head, sizeof head - 1);
    assert_int_equal(data[127], '\n');
    assert_memory_equal(data + 128, values, 24);
    trmi_free(data);
    trm_npz *file;
    CHECK_OK(trm_npz_open(in_folder("a.npy"), &file, &err), err);
    assert_int_equal(trm_npz_count(file), 1);
    assert_string_equal(trm_npz_at(file, 0)->name, "");
    assert_true(trm_shape_equal(&trm_npz_at(file, 0)->tensor.shape, &array.shape));
    trm_npz_close(file);
}

static void archives_round_trip(void **state) {
    float f[4] = {1, 2, 3, 4};
    int64_t scalar = 9;
    uint16_t brain[3] = {0x3F80, 0xC000, 0x7F80};
    uint8_t bytes[2] = {7, 8};
    trm_named_tensor arrays[] = {{"layer1.0.conv1.weight", {f, TRM_FLOAT32, trm_shape_of(4)}},
                                 {"n", {&scalar, TRM_INT64, {0}}},
                                 {"brain", {brain, TRM_BFLOAT16, trm_shape_of(3)}},
                                 {"\xC3\xA9", {bytes, TRM_UINT8, trm_shape_of(1, 2)}},
                                 {"none", {NULL, TRM_FLOAT64, trm_shape_of(0, 2)}}};
    static const int64_t wide_from[] = {UINT32_MAX, 0,
                                        200}; /* none, all, some with 64-bit records */
    for (int w = 0; w < 3; w++) {
        trm_error err;
        trm_npz *file;
        CHECK_OK(trmi_npz_write(in_folder("a.npz"), arrays, 5, wide_from[w], &err), err);
        CHECK_OK(trm_npz_open(in_folder("a.npz"), &file, &err), err);
        assert_int_equal(trm_npz_count(file), 5);
        for (int i = 0; i < 5; i++) {
            const trm_npz_entry *entry = trm_npz_find(file, arrays[i].name);
            assert_non_null(entry);
            assert_int_equal(entry->offset % 64, 0);
            assert_true(trm_shape_equal(&entry->tensor.shape, &arrays[i].tensor.shape));
        }
        float wide[3];
        trm_tensor into = {wide, TRM_FLOAT32, trm_shape_of(3)};
        CHECK_OK(trm_npz_read(file, "brain", &into, &err), err);
        assert_true(wide[0] == 1 && wide[1] == -2 && wide[2] > 1e38f);
        CHECK_FAILS(trm_npz_read(file, "n", &into, &err), TRM_INVALID, err,
                    "array n is <i8 [], float32 [3] expected");
        CHECK_FAILS(trm_npz_read(file, "x", &into, &err), TRM_INVALID, err, "no array x");
        trm_npz_close(file);
    }
    trm_error err;
    arrays[1].name = "brain";
    CHECK_FAILS(trm_npz_write(in_folder("b.npz"), arrays, 5, &err), TRM_INVALID, err,
                "two arrays are called brain");
    arrays[1].name = "";
    CHECK_FAILS(trm_npz_write(in_folder("b.npz"), arrays, 5, &err), TRM_INVALID, err,
                "needs a name");
    assert_int_not_equal(access(in_folder("b.npz"), F_OK), 0);
}

/* Every byte of an archive counts: flipped bits are refused or change nothing that is read. */
static void damaged_archives_are_refused(void **state) {
    float f[4] = {1, 2, 3, 4};
    trm_named_tensor arrays[] = {{"a", {f, TRM_FLOAT32, trm_shape_of(4)}},
                                 {"b", {f, TRM_FLOAT32, trm_shape_of(2, 2)}}};
    for (int wide = 0; wide < 2; wide++) {
        trm_error err;
        uint8_t *data;
        size_t bytes;
        CHECK_OK(trmi_npz_write(in_folder("d.npz"), arrays, 2, wide ? 0 : UINT32_MAX, &err), err);
        CHECK_OK(trmi_os_read_file(in_folder("d.npz"), 10000, &data, &bytes, &err), err);
        int refused = 0;
        for (size_t bit = 0; bit < bytes * 8; bit++) {
            trm_npz *file;
            data[bit / 8] ^= (uint8_t)(1 << (bit % 8));
            memset(&err, 0, sizeof err);
            if (trmi_npz_parse(data, bytes, "d.npz", &file, &err) == TRM_OK) {
                const trm_npz_entry *a = trm_npz_find(file, "a"), *b = trm_npz_find(file, "b");
                assert_true(a == NULL || memcmp(a->tensor.data, f, 16) == 0);
                assert_true(b == NULL || memcmp(b->tensor.data, f, 16) == 0);
                trm_npz_close(file);
            } else {
                assert_int_not_equal(err.message[0], 0);
                refused++;
            }
            data[bit / 8] ^= (uint8_t)(1 << (bit % 8));
        }
        assert_true(refused > 0.6 * 8 * (double)bytes);
        for (size_t cut = 0; cut < bytes; cut++) {
            trm_npz *file;
            assert_int_equal(trmi_npz_parse(data, cut, "d.npz", &file, &err), TRM_CORRUPT);
        }
        trmi_free(data);
    }
}

static trm_status parse_header(const char *dict, size_t data_bytes, trmi_npy *out, trm_error *err) {
    uint8_t bytes[400] = "\x93NUMPY\x01\x00";
    size_t length = strlen(dict);
    bytes[8] = (uint8_t)length;
    bytes[9] = (uint8_t)(length >> 8);
    memcpy(bytes + 10, dict, length);
    return trmi_npy_parse(bytes, 10 + length + data_bytes, "x", out, err);
}

static void headers_are_read_strictly(void **state) {
    trmi_npy array;
    trm_error err;
    CHECK_OK(
        parse_header("{'shape': (), 'fortran_order': True, 'descr': '|b1'}\n", 1, &array, &err),
        err);
    assert_int_equal(array.dtype, TRM_DTYPE_NONE);
    CHECK_OK(parse_header("{\"descr\": \"<c16\", 'fortran_order': False, 'shape': (2,), }", 32,
                          &array, &err),
             err);
    assert_int_equal(array.dims[0], 2);
    static const struct {
        const char *dict, *message;
        size_t data_bytes;
        trm_status status;
    } cases[] = {
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }", "4 bytes of data", 4,
         TRM_CORRUPT},
        {"{'descr': '|O', 'fortran_order': False, 'shape': (2,), }", "pickle", 16, TRM_UNSUPPORTED},
        {"{'descr': '>f4', 'fortran_order': False, 'shape': (1,), }", "big-endian", 4,
         TRM_UNSUPPORTED},
        {"{'descr': '<U5', 'fortran_order': False, 'shape': (1,), }", "is not supported", 20,
         TRM_UNSUPPORTED},
        {"{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,), }", "no records", 4,
         TRM_CORRUPT},
        {"{'descr': '<f4', 'fortran_order': 0, 'shape': (1,), }", "a dict of", 4, TRM_CORRUPT},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (1), }", "a tuple", 4, TRM_CORRUPT},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (-1,), }", "a tuple", 4, TRM_CORRUPT},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (9223372036854775808,), }", "a tuple",
         4, TRM_CORRUPT},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (4611686018427387904, 4), }",
         "too large", 4, TRM_CORRUPT},
        {"{'descr': '<f4', 'fortran_order': False, }", "a dict of", 4, TRM_CORRUPT},
        {"{'descr': '<f4', 'descr': '<f4', 'shape': (1,), }", "a dict of", 4, TRM_CORRUPT},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (1,), } import os", "a dict of", 4,
         TRM_CORRUPT},
        {"", "a dict of", 4, TRM_CORRUPT},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        CHECK_FAILS(parse_header(cases[i].dict, cases[i].data_bytes, &array, &err), cases[i].status,
                    err, cases[i].message);
    }
    CHECK_FAILS(trmi_npy_parse((const uint8_t *)"\x93NUMPY\x09\x00", 8, "x", &array, &err),
                TRM_UNSUPPORTED, err, "version 9.0");
    CHECK_FAILS(trmi_npy_parse((const uint8_t *)"\x93NUMPY\x01\x00\xFF", 9, "x", &array, &err),
                TRM_CORRUPT, err, "a header of");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_array_has_numpys_bytes),
        cmocka_unit_test(archives_round_trip),
        cmocka_unit_test(damaged_archives_are_refused),
        cmocka_unit_test(headers_are_read_strictly),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
