/* SPDX-License-Identifier: Apache-2.0 */
/* Readers of click data: keys, Criteo, Avazu, CSV, libsvm, slots, tf.Example, vocabularies, the
 * generator.
 *
 * Files are written into the test's folder; real samples of Criteo and Avazu are read where
 * TRIREME_DATA has them. Keys of texts are frozen, because servers' tables and checkpoints contain
 * them. Rows of the generator are functions of their index and the seed; its best possible AUC is
 * compared with an integral. */
#include "folder.h"
#include "real_data.h"

#include "base/format/crc32c.h"
#include "base/memory.h"
#include "base/os.h"
#include "data/click/click.h"

#include <math.h>
#include <unistd.h>

static const char *text_file(const char *name, const char *text) {
    return write_in_folder(name, text, strlen(text));
}

static trm_error err;

static const trm_batch *first_batch(trm_dataset *data, int64_t size) {
    const trm_batch *batch;
    CHECK_OK(trm_dataset_batch(data, size, false, &err), err);
    CHECK_OK(trm_dataset_next(data, &batch, &err), err);
    return batch;
}

static const void *field_of(const trm_batch *batch, const char *name) {
    const trm_tensor *tensor = trm_batch_tensor(batch, name);
    assert_non_null(tensor);
    return tensor->data;
}

static int64_t key_of(int32_t f, const char *text, int64_t buckets) {
    trmi_keyer keyer = {.buckets = buckets};
    return trmi_key_of_text(&keyer, f, text, strlen(text));
}

/* ---- numbers and keys ------------------------------------------------------------------------ */

static void numbers_are_parsed(void **state) {
    static const struct {
        const char *text;
        double value;
    } good[] = {{"0", 0},
                {"-3", -3},
                {"+17", 17},
                {"1.5", 1.5},
                {".25", 0.25},
                {"2.", 2},
                {"1e3", 1000},
                {"-1.25E-2", -0.0125},
                {"123456789012345678901234", 123456789012345678901234.0},
                {"0.000000000000000000000000001", 1e-27},
                {"9223372036854775807", 9223372036854775807.0}};
    double value;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        assert_true(trmi_parse_number(good[i].text, good[i].text + strlen(good[i].text), &value));
        if (fabs(value - good[i].value) > 1e-13 * fabs(good[i].value)) {
            fail_msg("%s: %.17g", good[i].text, value);
        }
    }
    static const char *const bad[] = {"",    "-",  "+",  ".",    "e5",    "1e",  "1e999", "nan",
                                      "inf", "1 ", " 1", "0x10", "1.2.3", "--1", "1e5x"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_false(trmi_parse_number(bad[i], bad[i] + strlen(bad[i]), &value));
    }
}

static void keys_are_frozen(void **state) {
    /* A saved table means these numbers: they must never change. (From a few lines of Python.) */
    assert_int_equal(trmi_key_hash(0, 0, "68fd1e64", 8), 0x26A1742D70008E1Du);
    assert_int_equal(trmi_key_hash(0, 1, "68fd1e64", 8), 0x2FF8EA569AFE1BB3u);
    assert_int_equal(trmi_key_hash(7, 25, "a longer value", 14), 0xF8058DC676BC5AD0u);
    assert_int_equal(trmi_key_hash(0, 3, "", 0), 0x0FE49EE3DED54739u);
}

static void keys_are_bounded_and_missing_is_zero(void **state) {
    trmi_keyer keyer = {.buckets = 100};
    int seen[100] = {0};
    for (int i = 0; i < 5000; i++) {
        char text[16];
        snprintf(text, sizeof text, "%d", i);
        int64_t k = trmi_key_of_text(&keyer, 3, text, strlen(text));
        assert_in_range(k, 1, 99);
        seen[k]++;
        int64_t n = trmi_key_of_number(&keyer, 3, i);
        assert_in_range(n, 1, 99);
    }
    for (int i = 1; i < 100; i++) {
        assert_in_range(seen[i], 15, 100);
    }
    assert_int_equal(trmi_key_of_text(&keyer, 3, "", 0), 0);
    keyer.shared = true;
    assert_int_equal(trmi_key_of_text(&keyer, 3, "", 0), 300);
    assert_int_equal(trmi_key_of_text(&keyer, 3, "5", 1), 300 + key_of(3, "5", 100));
    keyer = (trmi_keyer){0};
    assert_true(trmi_key_missing(&keyer, 0) != trmi_key_missing(&keyer, 1));
    assert_true(trmi_key_of_text(&keyer, 0, "x", 1) >= 0);
    assert_true(key_of(0, "x", 0) != key_of(1, "x", 0));
    assert_int_equal(trmi_key_of_number(&keyer, 1, 77), 77);
}

/* Fields 0 and 2 are of one kind: shops, say. */
static void fields_are_keyed_alike(void **state) {
    static const int32_t same[] = {0, 1, 0}, wrong[] = {0, 2, 0};
    trmi_keyer keyer = {.buckets = 100, .same_as = same, .same_as_count = 3};
    assert_int_equal(trmi_key_of_text(&keyer, 2, "x", 1), key_of(0, "x", 100));
    assert_int_equal(trmi_key_of_number(&keyer, 2, 5), trmi_key_of_number(&keyer, 0, 5));
    assert_int_equal(trmi_key_of_text(&keyer, 1, "x", 1), key_of(1, "x", 100));
    assert_int_equal(trmi_key_of_text(&keyer, 3, "x", 1), key_of(3, "x", 100));
    keyer.shared = true;
    assert_int_equal(trmi_key_of_text(&keyer, 2, "x", 1), key_of(0, "x", 100));
    const char *path = text_file("same.csv", "label,a,b,c\n1,x,y,z\n0,z,y,x\n");
    trm_click_options options = {.same_as = same, .same_as_count = 3};
    trm_vocabulary *v;
    trm_dataset *data;
    CHECK_OK(trm_vocabulary_build("csv", path, &options, 1, &v, &err), err);
    assert_int_equal(trm_vocabulary_rows(v, 0), 3); /* 0, x, z */
    assert_int_equal(trm_vocabulary_rows(v, 2), 1);
    options.vocabulary = v;
    CHECK_OK(trm_dataset_click_file("csv", path, &options, &data, &err), err);
    const int64_t *keys = field_of(first_batch(data, 2), "keys");
    assert_true(keys[0] == 1 && keys[2] == 2 && keys[3] == 2 && keys[5] == 1);
    trm_dataset_destroy(data);
    trm_vocabulary_destroy(v);
    options = (trm_click_options){.same_as = wrong, .same_as_count = 3};
    CHECK_FAILS(trm_dataset_click_file("csv", path, &options, &data, &err), TRM_INVALID, err,
                "field 1 as 2");
}

/* ---- Criteo and Avazu ------------------------------------------------------------------------ */

#define C26 "a\tb\tc\td\te\tf\tg\th\ti\tj\tk\tl\tm\tn\to\tp\tq\tr\ts\tt\tu\tv\t\tx\ty\tz"

static void criteo_rows_are_parsed(void **state) {
    trm_dataset *data;
    const char *path = text_file("c.tsv", "1\t1\t-3\t\t5\t0\t1382\t4\t15\t2\t181\t1\t2\t10000\t" C26
                                          "\n\n0\t\t\t\t\t\t\t\t\t\t\t\t\t\t" C26 "\r\n");
    CHECK_OK(trm_dataset_click_file("criteo", path, &(trm_click_options){.missing_dense = -1},
                                    &data, &err),
             err);
    assert_int_equal(trm_dataset_sample_count(data), 2);
    const trm_batch *batch = first_batch(data, 4);
    assert_int_equal(batch->samples, 2);
    const float *label = field_of(batch, "label"), *dense = field_of(batch, "dense");
    const int64_t *keys = field_of(batch, "keys");
    assert_true(label[0] == 1 && label[1] == 0 && label[2] == 0);
    CHECK_CLOSE(dense[0], log(2), 1e-6);
    assert_true(dense[1] == 0 && dense[2] == -1 && dense[13] == -1);
    CHECK_CLOSE(dense[12], log(10001), 1e-6);
    char one[2] = "a";
    for (int c = 0; c < 26; c++) {
        one[0] = (char)('a' + c);
        assert_int_equal(keys[c], c == 22 ? key_of(22, "", 0) : key_of(c, one, 0));
        assert_int_equal(keys[26 + c], keys[c]);
        assert_int_equal(keys[52 + c], 0);
    }
    trm_dataset_destroy(data);
    /* Raw dense, buckets. */
    trm_click_options raw = {.dense = TRM_DENSE_RAW, .buckets = 1000};
    CHECK_OK(trm_dataset_click_file("criteo", path, &raw, &data, &err), err);
    batch = first_batch(data, 1);
    dense = field_of(batch, "dense");
    keys = field_of(batch, "keys");
    assert_true(dense[1] == -3 && dense[5] == 1382 && dense[2] == 0);
    assert_true(keys[22] == 0 && keys[0] == key_of(0, "a", 1000));
    trm_dataset_destroy(data);
    /* Line and column in messages. */
    static const struct {
        const char *text, *message;
    } bad[] = {{"1\t1\t2\n", "line 1: 3 columns, 40 expected"},
               {"2\t\t\t\t\t\t\t\t\t\t\t\t\t\t" C26, "line 1, column 1 (label): '2', label 0 or 1"},
               {"1\t\t\t\t\t\t\t\t\t\t\t\t\t\t" C26 "\n\n0\t1\tx7\t\t\t\t\t\t\t\t\t\t\t\t" C26,
                "line 3, column 3 (I2): 'x7', a number"}};
    for (int i = 0; i < 3; i++) {
        CHECK_OK(
            trm_dataset_click_file("criteo", text_file("b.tsv", bad[i].text), NULL, &data, &err),
            err);
        const trm_batch *none;
        CHECK_OK(trm_dataset_batch(data, 2, false, &err), err);
        CHECK_FAILS(trm_dataset_next(data, &none, &err), TRM_CORRUPT, err, bad[i].message);
        assert_non_null(strstr(err.message, "b.tsv"));
        trm_dataset_destroy(data);
    }
    CHECK_FAILS(trm_dataset_click_file("criteo", text_file("e.tsv", ""), NULL, &data, &err),
                TRM_CORRUPT, err, "empty file");
    CHECK_FAILS(trm_dataset_click_file("criteo", "/not/there", NULL, &data, &err), TRM_IO, err,
                "/not/there");
    CHECK_FAILS(
        trm_dataset_click_file("criteo", path, &(trm_click_options){.buckets = 1}, &data, &err),
        TRM_INVALID, err, "buckets");
    CHECK_FAILS(trm_dataset_click_file("criteo", path, &(trm_click_options){.shared_table = true},
                                       &data, &err),
                TRM_INVALID, err, "bounded keys");
}

static void real_criteo_and_avazu_are_read(void **state) {
    static const struct {
        const char *path;
        trm_usage usage;
        int64_t rows, dense, keys;
    } sets[] = {{"criteo-8k", TRM_USAGE_TRAIN, 7200, 13, 26},
                {"criteo-8k", TRM_USAGE_TEST, 391, 13, 26},
                {"avazu-9k", TRM_USAGE_TRAIN, 8087, 0, 22},
                {"avazu-9k", TRM_USAGE_TEST, 432, 0, 22}};
    for (int i = 0; i < 4; i++) {
        const char *path = real_data(sets[i].path);
        if (path == NULL) {
            skip();
        }
        trm_dataset *data;
        const trm_batch *batch;
        trm_dataset_spec spec = {.path = path,
                                 .usage = sets[i].usage,
                                 .batch_size = 128,
                                 .threads = 2,
                                 .augment = TRM_OFF};
        CHECK_OK(trm_dataset_open(&spec, &data, &err), err);
        assert_int_equal(trm_dataset_sample_count(data), sets[i].rows);
        int64_t rows = 0;
        double clicks = 0;
        trm_status status;
        while ((status = trm_dataset_next(data, &batch, &err)) == TRM_OK) {
            const float *label = field_of(batch, "label");
            assert_int_equal(trm_batch_tensor(batch, "keys")->shape.dim[1], sets[i].keys);
            assert_int_equal(trm_batch_tensor(batch, "dense") != NULL, sets[i].dense > 0);
            for (int64_t k = 0; k < batch->samples; k++) {
                clicks += (double)label[k];
            }
            rows += batch->samples;
        }
        assert_int_equal(status, TRM_END);
        assert_int_equal(rows, sets[i].rows);
        assert_true(clicks / (double)rows > 0.1 && clicks / (double)rows < 0.3);
        trm_dataset_destroy(data);
    }
    /* Ratings: MovieLens' u.data, a click from four stars on. */
    const char *path = real_data("ml-100k/u.data");
    if (path != NULL) {
        trm_column columns[] = {{"user", TRM_COLUMN_KEY, 0},
                                {"item", TRM_COLUMN_KEY, 0},
                                {"rating", TRM_COLUMN_LABEL, 0},
                                {"time", TRM_COLUMN_SKIP, 0}};
        trm_click_options options = {
            .columns = columns, .column_count = 4, .separator = '\t', .label_threshold = 4};
        trm_dataset *data;
        CHECK_OK(trm_dataset_click_file("csv", path, &options, &data, &err), err);
        assert_int_equal(trm_dataset_sample_count(data), 100000);
        const trm_batch *batch = first_batch(data, 100000);
        const float *label = field_of(batch, "label");
        double clicks = 0;
        for (int i = 0; i < 100000; i++) {
            clicks += (double)label[i];
        }
        assert_int_equal((int)clicks, 55375);
        trm_dataset_destroy(data);
    }
}

/* ---- CSV ------------------------------------------------------------------------------------- */

static void csv_with_header_quotes_and_bags(void **state) {
    trm_dataset *data;
    trm_column columns[] = {{"tags", TRM_COLUMN_BAG, 0},
                            {"click", TRM_COLUMN_LABEL, 0},
                            {"price", TRM_COLUMN_DENSE, 0},
                            {"hour", TRM_COLUMN_KEY, 2}};
    trm_click_options options = {.columns = columns, .column_count = 4, .bag_max = 3};
    const char *path = text_file("a.csv", "hour,other,click,price,tags\n"
                                          "14102107,x,1,2.5,red|green\n"
                                          "14102108,\"a,\"\"b\",0,,\n"
                                          "07,x,1,\"-1e1\",\"x|y|z\"\n");
    CHECK_OK(trm_dataset_click_file("csv", path, &options, &data, &err), err);
    assert_int_equal(trm_dataset_sample_count(data), 3);
    const trm_batch *batch = first_batch(data, 4);
    const float *dense = field_of(batch, "dense"), *label = field_of(batch, "label");
    const int64_t *keys = field_of(batch, "keys"), *offsets = field_of(batch, "offsets");
    static const int64_t expected[] = {0, 1, 3, 4, 4, 5, 8, 8, 8};
    assert_memory_equal(offsets, expected, sizeof expected);
    assert_int_equal(trm_batch_tensor(batch, "keys")->shape.dim[0], 8);
    assert_true(label[0] == 1 && label[1] == 0 && label[2] == 1);
    assert_true(dense[0] == 2.5f && dense[1] == 0 && dense[2] == -10);
    assert_int_equal(keys[0], key_of(0, "07", 0));
    assert_int_equal(keys[3], key_of(0, "08", 0));
    assert_int_equal(keys[4], keys[0]);
    assert_int_equal(keys[1], key_of(1, "red", 0));
    assert_int_equal(keys[2], key_of(1, "green", 0));
    assert_int_equal(keys[7], key_of(1, "z", 0));
    trm_dataset_destroy(data);
    static const struct {
        const char *text, *message;
    } bad[] = {
        {"hour,other,click,price,tags\n1,x,1,abc,q\n", "line 2, column 4 (price): 'abc', a number"},
        {"hour,other,click,price,tags\n1,x,,1,q\n", "line 2, column 3 (click): ''"},
        {"hour,other,click,price,tags\n1,x,1,1,a|b|c|d\n", "line 2, column 5 (tags): 'a|b|c|d', at "
                                                           "most 3"},
        {"hour,other,click,price,tags\n1,\"x,1,1,a\n", "line 2, column 2 (other)"},
        {"hour,other,click,price,tags\n1,x,1,1,a\n1,x,0,1\n", "line 3: 4 columns, 5 expected"}};
    for (int i = 0; i < 5; i++) {
        const trm_batch *none;
        CHECK_OK(
            trm_dataset_click_file("csv", text_file("b.csv", bad[i].text), &options, &data, &err),
            err);
        CHECK_OK(trm_dataset_batch(data, 2, false, &err), err);
        CHECK_FAILS(trm_dataset_next(data, &none, &err), TRM_CORRUPT, err, bad[i].message);
        trm_dataset_destroy(data);
    }
    CHECK_FAILS(trm_dataset_click_file("csv", text_file("b.csv", "hour,click\n1,1\n"), &options,
                                       &data, &err),
                TRM_INVALID, err, "no column tags");
    CHECK_FAILS(trm_dataset_click_file("csv", text_file("b.csv", "1,2\n1,1\n"), NULL, &data, &err),
                TRM_INVALID, err, "no header line");
    CHECK_FAILS(trm_dataset_click_file("csv", text_file("b.csv", "a,b\nx,y\n"), NULL, &data, &err),
                TRM_INVALID, err, "0 label columns");
    CHECK_FAILS(trm_dataset_click_file("csv", text_file("b.csv", "y,b\n"), NULL, &data, &err),
                TRM_CORRUPT, err, "no rows");
    /* Without columns: label and keys. */
    CHECK_OK(trm_dataset_click_file("csv", text_file("b.csv", "y,b,c\n1,p,q\n"), NULL, &data, &err),
             err);
    batch = first_batch(data, 1);
    assert_int_equal(((const int64_t *)field_of(batch, "keys"))[1], key_of(1, "q", 0));
    trm_dataset_destroy(data);
}

static void many_lines_are_indexed(void **state) {
    trmi_text text = {0};
    trm_dataset *data;
    trm_column columns[] = {{NULL, TRM_COLUMN_LABEL, 0}, {NULL, TRM_COLUMN_DENSE, 0}};
    trm_click_options options = {.columns = columns, .column_count = 2};
    for (int i = 0; i < 1000; i++) {
        trmi_text_printf(&text, "%d,%d\n%s", i & 1, i, i % 7 == 0 ? "\n\r\n" : "");
    }
    CHECK_OK(trm_dataset_click_file("csv", write_in_folder("m.csv", text.data, text.length),
                                    &options, &data, &err),
             err);
    trmi_text_free(&text);
    assert_int_equal(trm_dataset_sample_count(data), 1000);
    CHECK_OK(trm_dataset_shuffle(data, 0, &err), err);
    CHECK_OK(trm_dataset_prefetch(data, 4, 3, &err), err);
    bool seen[1000] = {false};
    const trm_batch *batch = first_batch(data, 1000);
    const float *dense = field_of(batch, "dense"), *label = field_of(batch, "label");
    for (int i = 0; i < 1000; i++) {
        int value = (int)dense[i];
        assert_false(seen[value]);
        seen[value] = true;
        assert_true(label[i] == (float)(value & 1));
    }
    trm_dataset_destroy(data);
}

/* ---- libsvm ---------------------------------------------------------------------------------- */

static void libsvm_and_libffm_are_read(void **state) {
    trm_dataset *data;
    CHECK_OK(trm_dataset_click_file(
                 "libsvm", text_file("a.svm", "+1 3:0.5 10:2 # note\n-1 7:1\n0\n1 1:1 2:1 3:1\n"),
                 NULL, &data, &err),
             err);
    const trm_batch *batch = first_batch(data, 5);
    static const int64_t offsets[] = {0, 2, 3, 3, 6, 6}, keys[] = {3, 10, 7, 1, 2, 3};
    assert_memory_equal(field_of(batch, "offsets"), offsets, sizeof offsets);
    assert_memory_equal(field_of(batch, "keys"), keys, sizeof keys);
    const float *values = field_of(batch, "values"), *label = field_of(batch, "label");
    assert_true(values[0] == 0.5f && values[1] == 2 && values[5] == 1);
    assert_true(label[0] == 1 && label[1] == 0 && label[2] == 0 && label[3] == 1);
    assert_null(trm_batch_tensor(batch, "dense"));
    trm_dataset_destroy(data);
    CHECK_OK(trm_dataset_click_file("libsvm",
                                    text_file("a.ffm", "1 0:3:1 2:9:0.5\n0 1:4:1 1:5:1\n"), NULL,
                                    &data, &err),
             err);
    batch = first_batch(data, 2);
    static const int64_t field_offsets[] = {0, 1, 1, 2, 2, 4, 4};
    assert_memory_equal(field_of(batch, "offsets"), field_offsets, sizeof field_offsets);
    trm_dataset_destroy(data);
    static const char *const bad[][2] = {{"1 3:x\n", "line 1, column 3: '3:x', index:value"},
                                         {"1 1:1\nabc 3:1\n", "line 2, column 1: 'abc', label"},
                                         {"1 3:1 -4:1\n", "'-4:1'"},
                                         {"1 0:3:1 2:9\n", "field:index:value"},
                                         {"1 2:3:1 1:9:1\n", "ascending"}};
    for (int i = 0; i < 5; i++) {
        const trm_batch *none;
        CHECK_OK(trm_dataset_click_file("libsvm", text_file("b.svm", bad[i][0]), NULL, &data, &err),
                 err);
        CHECK_OK(trm_dataset_batch(data, 2, false, &err), err);
        CHECK_FAILS(trm_dataset_next(data, &none, &err), TRM_CORRUPT, err, bad[i][1]);
        trm_dataset_destroy(data);
    }
    CHECK_FAILS(trm_dataset_click_file("libsvm", text_file("b.svm", "1\n0\n"), NULL, &data, &err),
                TRM_CORRUPT, err, "no libsvm file");
}

/* ---- slots ----------------------------------------------------------------------------------- */

static void slots_are_read_in_any_order(void **state) {
    trm_dataset *data;
    const char *text = "click:0 dense_feature:0.5 dense_feature:2 10:7 2:x 2:y\n2:y click:1 "
                       "dense_feature:1 10:8 dense_feature:-1\n";
    CHECK_OK(trm_dataset_click_file("slots", text_file("s.txt", text), NULL, &data, &err), err);
    const trm_batch *batch = first_batch(data, 2);
    /* Fields 2 and 10: by number, not by letter. */
    static const int64_t offsets[] = {0, 2, 3, 4, 5};
    assert_memory_equal(field_of(batch, "offsets"), offsets, sizeof offsets);
    const int64_t *keys = field_of(batch, "keys");
    assert_true(keys[0] != keys[1] && keys[1] == keys[3] && keys[2] != keys[4]);
    const float *dense = field_of(batch, "dense"), *label = field_of(batch, "label");
    assert_true(dense[0] == 0.5f && dense[1] == 2 && dense[2] == 1 && dense[3] == -1 &&
                label[0] == 0 && label[1] == 1);
    trm_dataset_destroy(data);
    /* Slots that the caller chooses, in its order; others are skipped. */
    static const trm_column columns[] = {
        {"10", TRM_COLUMN_BAG, 0}, {"2", TRM_COLUMN_KEY, 0}, {"click", TRM_COLUMN_LABEL, 0}};
    CHECK_OK(trm_dataset_click_file("slots", text_file("s.txt", text),
                                    &(trm_click_options){.columns = columns, .column_count = 3},
                                    &data, &err),
             err);
    batch = first_batch(data, 2);
    static const int64_t chosen[] = {0, 1, 3, 4, 5};
    assert_memory_equal(field_of(batch, "offsets"), chosen, sizeof chosen);
    assert_null(trm_batch_tensor(batch, "dense"));
    trm_dataset_destroy(data);
    static const char *const bad[][2] = {
        {"click:0 1:2\nclick:0 word\n", "line 2, column 9: 'word', slot:value"},
        {"click:2 1:2\n", "column 1: 'click:2', one label, 0 or 1"},
        {"click:0 click:1 1:2\n", "column 9: 'click:1', one label"},
        {"click:0 1:2\n1:3\n", "line 2: 0 labels and 0 numbers, 1 and 0 expected"},
        {"click:0 dense:1 1:2\nclick:0 1:2\n", "1 labels and 0 numbers, 1 and 1"},
        {"click:0 dense:1 1:2\nclick:0 dense:1 dense:2\n", "no more numbers than in the first row"},
        {"click:0 dense:x 1:2\n", "'dense:x', a number expected"}};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        const trm_batch *none;
        CHECK_OK(trm_dataset_click_file("slots", text_file("b.txt", bad[i][0]), NULL, &data, &err),
                 err);
        CHECK_OK(trm_dataset_batch(data, 2, false, &err), err);
        trm_status status;
        do {
            status = trm_dataset_next(data, &none, &err);
        } while (status == TRM_OK);
        assert_int_equal(status, TRM_CORRUPT);
        assert_non_null(strstr(err.message, bad[i][1]));
        trm_dataset_destroy(data);
    }
    CHECK_FAILS(trm_dataset_click_file("slots", text_file("b.txt", "0 1:2\n"), NULL, &data, &err),
                TRM_CORRUPT, err, "words without a slot");
    CHECK_FAILS(
        trm_dataset_click_file("slots", text_file("b.txt", "click:0 dense:2\n"), NULL, &data, &err),
        TRM_CORRUPT, err, "0 slots of keys");
    CHECK_FAILS(trm_dataset_click_file("slots", text_file("b.txt", "x:0 1:2\n"), NULL, &data, &err),
                TRM_CORRUPT, err, "0 label slots");
}

/* ---- tf.Example ------------------------------------------------------------------------------ */

/* One example, by hand: label int64 1, price float 2.5, user bytes "ann", tags int64 {5, 300}. */
static const uint8_t example[] = {
    10, 71, 10, 14,  10,  5,   'l', 'a', 'b', 'e', 'l', 18, 5,  26,  3,    10,  1,    1,    10,
    17, 10, 5,  'p', 'r', 'i', 'c', 'e', 18,  8,   18,  6,  10, 4,   0,    0,   0x20, 0x40, 10,
    17, 10, 4,  'u', 's', 'e', 'r', 18,  9,   10,  7,   10, 5,  'a', 'n',  'n', 'a',  'h',  10,
    15, 10, 4,  't', 'a', 'g', 's', 18,  7,   26,  5,   8,  5,  8,   0xAC, 2};

static size_t frame_record(uint8_t *out, const uint8_t *data, uint64_t bytes) {
    uint32_t crc = trmi_crc32c_mask(trmi_crc32c(0, &bytes, 8));
    memcpy(out, &bytes, 8);
    memcpy(out + 8, &crc, 4);
    memcpy(out + 12, data, bytes);
    crc = trmi_crc32c_mask(trmi_crc32c(0, data, bytes));
    memcpy(out + 12 + bytes, &crc, 4);
    return bytes + 16;
}

static void examples_are_read(void **state) {
    trm_dataset *data;
    uint8_t file[512];
    trm_column columns[] = {{"label", TRM_COLUMN_LABEL, 0},  {"price", TRM_COLUMN_DENSE, 0},
                            {"absent", TRM_COLUMN_DENSE, 0}, {"user", TRM_COLUMN_KEY, 0},
                            {"tags", TRM_COLUMN_BAG, 0},     {"nobody", TRM_COLUMN_KEY, 0}};
    trm_click_options options = {.columns = columns, .column_count = 6, .missing_dense = 9};
    size_t bytes = frame_record(file, example, sizeof example);
    bytes += frame_record(file + bytes, example, sizeof example);
    const char *path = write_in_folder("x.tfrecord", file, bytes);
    CHECK_OK(trm_dataset_click_file("tfrecord-clicks", path, &options, &data, &err), err);
    assert_int_equal(trm_dataset_sample_count(data), 2);
    const trm_batch *batch = first_batch(data, 2);
    static const int64_t offsets[] = {0, 1, 3, 4, 5, 7, 8};
    assert_memory_equal(field_of(batch, "offsets"), offsets, sizeof offsets);
    const int64_t *keys = field_of(batch, "keys");
    const float *dense = field_of(batch, "dense");
    assert_true(dense[0] == 2.5f && dense[1] == 9);
    assert_int_equal(keys[0], key_of(0, "annah", 0));
    assert_true(keys[1] == 5 && keys[2] == 300 && keys[3] == key_of(2, "", 0));
    trm_dataset_destroy(data);
    /* A key feature with two values; a label that is bytes; no columns. */
    columns[4].role = TRM_COLUMN_KEY;
    CHECK_OK(trm_dataset_click_file("tfrecord-clicks", path, &options, &data, &err), err);
    CHECK_FAILS(trm_dataset_next(data, &batch, &err), TRM_CORRUPT, err,
                "x.tfrecord: record 0, feature tags: one key");
    trm_dataset_destroy(data);
    trm_column wrong[] = {{"user", TRM_COLUMN_LABEL, 0}, {"tags", TRM_COLUMN_BAG, 0}};
    options = (trm_click_options){.columns = wrong, .column_count = 2};
    CHECK_OK(trm_dataset_click_file("tfrecord-clicks", path, &options, &data, &err), err);
    CHECK_FAILS(trm_dataset_next(data, &batch, &err), TRM_CORRUPT, err, "feature user: one label");
    trm_dataset_destroy(data);
    CHECK_FAILS(trm_dataset_click_file("tfrecord-clicks", path, NULL, &data, &err), TRM_INVALID,
                err, "name the features");
}

/* ---- vocabularies ---------------------------------------------------------------------------- */

static void vocabularies_number_values(void **state) {
    trm_vocabulary *v, *loaded;
    trm_dataset *data;
    char path[128], saved[160];
    snprintf(path, sizeof path, "%s",
             text_file("v.csv", "y,b,c\n1,p,x\n0,q,x\n1,p,\n0,r,z\n1,q,p\n"));
    snprintf(saved, sizeof saved, "%s.vocabulary", path);
    CHECK_OK(trm_vocabulary_build("csv", path, NULL, 2, &v, &err), err);
    assert_int_equal(trm_vocabulary_fields(v), 2);
    assert_int_equal(trm_vocabulary_rows(v, 0), 3); /* p, q */
    assert_int_equal(trm_vocabulary_rows(v, 1), 2); /* x */
    CHECK_OK(trm_vocabulary_save(v, saved, &err), err);
    CHECK_OK(trm_vocabulary_load(saved, &loaded, &err), err);
    for (int shared = 0; shared < 2; shared++) {
        trm_click_options options = {.vocabulary = shared ? loaded : v, .shared_table = shared};
        static const int64_t expected[2][10] = {{1, 1, 2, 1, 1, 0, 0, 0, 2, 0},
                                                {1, 4, 2, 4, 1, 3, 0, 3, 2, 3}};
        CHECK_OK(trm_dataset_click_file("csv", path, &options, &data, &err), err);
        const trm_batch *batch = first_batch(data, 5);
        assert_memory_equal(field_of(batch, "keys"), expected[shared], sizeof expected[0]);
        trm_dataset_destroy(data);
    }
    trm_click_options other = {.vocabulary = v};
    CHECK_FAILS(
        trm_dataset_click_file("csv", text_file("w.csv", "y,b\n1,p\n"), &other, &data, &err),
        TRM_INVALID, err, "1 key fields, but a vocabulary of 2");
    trm_vocabulary_destroy(loaded);
    trm_vocabulary_destroy(v);
    static const char *const bad[] = {"",
                                      "hello\n",
                                      "trireme-vocabulary 1 0 0\n",
                                      "trireme-vocabulary 1 1 0\n0 12 3\n",
                                      "trireme-vocabulary 1 1 0\n5 12\n",
                                      "trireme-vocabulary 1 1 0\n0 12\n0 12\n"};
    for (int i = 0; i < 6; i++) {
        CHECK_FAILS(trm_vocabulary_load(text_file("bad.v", bad[i]), &v, &err), TRM_CORRUPT, err,
                    "bad.v");
    }
}

static void a_large_vocabulary_grows(void **state) {
    trm_vocabulary *v;
    CHECK_OK(trmi_vocabulary_create(2, 0, &v, &err), err);
    for (int round = 0; round < 2; round++) {
        for (uint64_t i = 0; i < 20000; i++) {
            assert_true(trmi_vocabulary_count(v, (int32_t)(i & 1), i));
        }
    }
    CHECK_OK(trmi_vocabulary_number(v, 2, &err), err);
    for (uint64_t i = 0; i < 20000; i++) {
        assert_int_equal(trmi_vocabulary_id(v, (int32_t)(i & 1), i), i / 2 + 1);
    }
    assert_int_equal(trmi_vocabulary_id(v, 0, 20001), 0);
    assert_int_equal(trmi_vocabulary_id(v, 5, 1), 0);
    trm_vocabulary_destroy(v);
}

/* ---- the generator --------------------------------------------------------------------------- */

static void generated_rows_are_functions_of_their_index(void **state) {
    trm_click_generator_options options = {
        .rows = 1000, .fields = 5, .dense = 6, .vocabulary = 50000, .seed = 4};
    trm_dataset *a, *b, *test;
    CHECK_OK(trm_dataset_clicks(&options, TRM_USAGE_TRAIN, &a, &err), err);
    CHECK_OK(trm_dataset_clicks(&options, TRM_USAGE_TRAIN, &b, &err), err);
    CHECK_OK(trm_dataset_clicks(&options, TRM_USAGE_TEST, &test, &err), err);
    assert_int_equal(trm_dataset_sample_count(test), 100);
    CHECK_OK(trm_dataset_shard(b, 4, 3, 0, &err), err);
    CHECK_OK(trm_dataset_prefetch(b, 3, 2, &err), err);
    const trm_batch *x = first_batch(a, 1000), *y = first_batch(b, 250);
    const float *dense_x = field_of(x, "dense"), *dense_y = field_of(y, "dense");
    const int64_t *keys_x = field_of(x, "keys"), *keys_y = field_of(y, "keys");
    const float *label_x = field_of(x, "label"), *label_y = field_of(y, "label");
    int tail = 0;
    for (int i = 0; i < 250; i++) {
        assert_memory_equal(dense_y + i * 6, dense_x + (i * 4 + 3) * 6, 24);
        assert_memory_equal(keys_y + i * 5, keys_x + (i * 4 + 3) * 5, 40);
        assert_true(label_y[i] == label_x[i * 4 + 3]);
        tail += keys_y[i * 5] >= 4096;
    }
    assert_true(tail > 5); /* keys beyond the tabulated ones */
    const float *other = field_of(first_batch(test, 100), "dense");
    assert_true(memcmp(other, dense_x, 24) != 0);
    trm_dataset_destroy(a);
    trm_dataset_destroy(b);
    trm_dataset_destroy(test);
    CHECK_FAILS(trm_dataset_clicks(&(trm_click_generator_options){.rows = -4}, 0, &a, &err),
                TRM_INVALID, err, "-4 rows");
    CHECK_FAILS(trm_dataset_clicks(&(trm_click_generator_options){.click_rate = 2}, 0, &a, &err),
                TRM_INVALID, err, "click rate 2");
}

static void keys_follow_zipf(void **state) {
    enum { N = 60000 };
    for (int e = 0; e < 2; e++) {
        double s = e == 0 ? 1.0 : 1.3, top = 1001;
        trm_click_generator_options options = {
            .rows = N, .fields = 1, .dense = -1, .vocabulary = 1000, .zipf = s};
        trm_dataset *data;
        CHECK_OK(trm_dataset_clicks(&options, 0, &data, &err), err);
        const trm_batch *batch = first_batch(data, N);
        assert_null(trm_batch_tensor(batch, "dense"));
        const int64_t *keys = field_of(batch, "keys");
        int counts[1000] = {0};
        for (int i = 0; i < N; i++) {
            assert_in_range(keys[i], 0, 999);
            counts[keys[i]]++;
        }
        double whole = e == 0 ? log(top) : (1 - pow(top, 1 - s)) / (s - 1);
        for (int k = 0; k < 20; k++) {
            double part = e == 0 ? log((k + 2.0) / (k + 1))
                                 : (pow(k + 1, 1 - s) - pow(k + 2, 1 - s)) / (s - 1);
            double p = part / whole;
            assert_true(fabs(counts[k] / (double)N - p) < 5 * sqrt(p / N));
        }
        trm_dataset_destroy(data);
    }
}

/* With one dense input the truth is a logistic curve over a normal: its AUC is an integral. */
static void bayes_auc_equals_the_integral(void **state) {
    enum { N = 200000, STEPS = 2000 };
    trm_click_generator_options options = {.rows = 10,
                                           .test_rows = N,
                                           .fields = -1,
                                           .dense = 1,
                                           .dense_scale = 2,
                                           .click_rate = 0.3,
                                           .seed = 11};
    trm_dataset *data;
    trm_clicks_bayes bayes;
    CHECK_OK(trm_clicks_measure(&options, 0, &bayes, &err), err);
    CHECK_OK(trm_dataset_clicks(&options, TRM_USAGE_TEST, &data, &err), err);
    const trm_batch *batch = first_batch(data, N);
    const float *x = field_of(batch, "dense"), *label = field_of(batch, "label");
    /* Bias and slope from the data, by Newton's method. */
    double bias = 0, slope = 0, mean = 0;
    for (int round = 0; round < 20; round++) {
        double g0 = 0, g1 = 0, h00 = 0, h01 = 0, h11 = 0;
        mean = 0;
        for (int i = 0; i < N; i++) {
            double p = 1 / (1 + exp(-(bias + slope * (double)x[i]))), w = p * (1 - p);
            double residual = (double)label[i] - p, xi = (double)x[i];
            g0 += residual;
            g1 += residual * xi;
            h00 += w;
            h01 += w * xi;
            h11 += w * xi * xi;
            mean += (double)label[i] / N;
        }
        double determinant = h00 * h11 - h01 * h01;
        bias += (h11 * g0 - h01 * g1) / determinant;
        slope += (h00 * g1 - h01 * g0) / determinant;
    }
    assert_true(fabs(mean - 0.3) < 0.015 && fabs(bayes.click_rate - mean) < 0.005);
    /* The integral: walk along increasing probability. */
    double below = 0, won = 0, clicked = 0;
    for (int i = 0; i < STEPS; i++) {
        double z = -6 + 12 * (i + 0.5) / STEPS, at = slope > 0 ? z : -z;
        double density = exp(-at * at / 2) / sqrt(2 * M_PI) * 12 / STEPS;
        double p = 1 / (1 + exp(-(bias + slope * at)));
        won += density * p * (below + density * (1 - p) / 2);
        below += density * (1 - p);
        clicked += density * p;
    }
    double integral = won / (clicked * below);
    CHECK_CLOSE(bayes.auc, integral, 0.004);
    CHECK_CLOSE(bayes.realized_auc, bayes.auc, 0.004);
    CHECK_CLOSE(bayes.realized_logloss, bayes.logloss, 0.01);
    assert_true(bayes.auc > 0.6 && bayes.logloss < 0.62);
    trm_dataset_destroy(data);
    CHECK_FAILS(trm_clicks_measure(&options, N + 1, &bayes, &err), TRM_INVALID, err,
                "measure over");
}

/* Logits of thousands: most probabilities round to 0 or 1, whose logarithms are infinite. */
static void certain_clicks_have_a_finite_loss(void **state) {
    trm_clicks_bayes bayes;
    const trm_click_generator_options options = {.rows = 10000,
                                                 .fields = 1,
                                                 .dense = 4,
                                                 .key_scale = 99,
                                                 .dense_scale = 99,
                                                 .pair_scale = -1};
    CHECK_OK(trm_clicks_measure(&options, 0, &bayes, &err), err);
    assert_true(bayes.logloss >= 0 && bayes.logloss < 0.1);
    assert_true(bayes.realized_logloss >= 0 && bayes.realized_logloss < 0.1);
    assert_true(bayes.auc > 0.99 && bayes.realized_auc > 0.99);
}

static void the_default_model_is_worth_learning(void **state) {
    trm_clicks_bayes bayes;
    CHECK_OK(
        trm_clicks_measure(&(trm_click_generator_options){.rows = 500000}, 50000, &bayes, &err),
        err);
    print_message("default clicks: AUC %.4f, logloss %.4f, rate %.3f; on these rows %.4f, %.4f\n",
                  bayes.auc, bayes.logloss, bayes.click_rate, bayes.realized_auc,
                  bayes.realized_logloss);
    assert_true(bayes.auc > 0.75 && bayes.auc < 0.9);
    CHECK_CLOSE(bayes.click_rate, 0.25, 0.02);
    CHECK_CLOSE(bayes.realized_auc, bayes.auc, 0.01);
}

static void lack_of_memory_is_an_error(void **state) {
    char path[128];
    snprintf(path, sizeof path, "%s", text_file("l.csv", "y,b,c\n1,p,x\n0,q,x\n1,p,\n"));
    for (int way = 0; way < 4; way++) {
        trm_status status = TRM_NOMEM;
        int64_t k = 0;
        while (status != TRM_OK) {
            assert_true(++k < 500);
            trm_dataset *data = NULL;
            trm_vocabulary *v = NULL;
            const trm_batch *batch;
            trmi_alloc_fail_after(k);
            status = way == 0   ? trm_dataset_click_file("csv", path, NULL, &data, &err)
                     : way == 1 ? trm_vocabulary_build("csv", path, NULL, 1, &v, &err)
                     : way == 2 ? trm_dataset_clicks(NULL, 0, &data, &err)
                                : trm_dataset_click_file("libsvm", path, NULL, &data, &err);
            if (status == TRM_OK && data != NULL) {
                status = trm_dataset_next(data, &batch, &err);
            }
            trmi_alloc_fail_after(0);
            trm_dataset_destroy(data);
            trm_vocabulary_destroy(v);
            if (way == 3 && status == TRM_CORRUPT) {
                break; /* it is no libsvm file: seen once there was memory to look */
            }
            assert_true(status == TRM_OK || status == TRM_NOMEM);
        }
        assert_true(k > 2);
    }
}

static void random_rows_do_not_depend_on_threads(void **state) {
    (void)state;
    const int threads[] = {1, 3, 0};
    trm_dataset *data[3];
    const trm_batch *batch[3];
    for (int i = 0; i < 3; i++) {
        const trm_click_random_options options = {.count = 50, .seed = 7, .threads = threads[i]};
        CHECK_OK(trm_dataset_random_clicks(&options, &data[i], &err), err);
        batch[i] = first_batch(data[i], 50);
        assert_int_equal(batch[i]->field_count, 3);
        for (int f = 0; f < 3; f++) {
            const trm_tensor *rows = &batch[i]->fields[f].tensor;
            assert_memory_equal(rows->data, batch[0]->fields[f].tensor.data,
                                (size_t)trm_tensor_bytes(rows));
        }
    }
    for (int i = 0; i < 3; i++) {
        trm_dataset_destroy(data[i]);
    }
    CHECK_FAILS(trm_dataset_random_clicks(&(trm_click_random_options){.threads = -1}, data, &err),
                TRM_INVALID, err, "-1 threads (expected 0 to 1024)");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_are_parsed),
        cmocka_unit_test(keys_are_frozen),
        cmocka_unit_test(keys_are_bounded_and_missing_is_zero),
        cmocka_unit_test_setup_teardown(fields_are_keyed_alike, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(criteo_rows_are_parsed, make_folder, remove_folder),
        cmocka_unit_test(real_criteo_and_avazu_are_read),
        cmocka_unit_test_setup_teardown(csv_with_header_quotes_and_bags, make_folder,
                                        remove_folder),
        cmocka_unit_test_setup_teardown(many_lines_are_indexed, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(libsvm_and_libffm_are_read, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(slots_are_read_in_any_order, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(examples_are_read, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(vocabularies_number_values, make_folder, remove_folder),
        cmocka_unit_test(a_large_vocabulary_grows),
        cmocka_unit_test_setup_teardown(lack_of_memory_is_an_error, make_folder, remove_folder),
        cmocka_unit_test(generated_rows_are_functions_of_their_index),
        cmocka_unit_test(keys_follow_zipf),
        cmocka_unit_test(random_rows_do_not_depend_on_threads),
        cmocka_unit_test(bayes_auc_equals_the_integral),
        cmocka_unit_test(certain_clicks_have_a_finite_loss),
        cmocka_unit_test(the_default_model_is_worth_learning),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
