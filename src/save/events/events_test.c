/* SPDX-License-Identifier: Apache-2.0 */
/* Event files, CSV, JSON lines and records of runs: the bytes that TensorBoard's own writer makes,
 * what readers see, faults while appending.
 *
 * A file must consist of whole records after every failed write: the failing disk is
 * tests/fault_os.h. Event files are read back by events_decode.c. */
#include "folder.h"
#include "fault_os.h"

#include "save/append.h"
#include "save/events/events.h"
#include "base/format/tfrecord.h"

#include <dirent.h>
#include <math.h>

static fault_os os;

static void check_hex(trmi_text *text, const char *hex) {
    assert_false(text->failed);
    assert_int_equal(text->length * 2, strlen(hex));
    for (size_t i = 0; i < text->length; i++) {
        char digits[3];
        snprintf(digits, sizeof digits, "%02x", (uint8_t)text->data[i]);
        assert_memory_equal(digits, hex + 2 * i, 2);
    }
    trmi_text_free(text);
}

/* The bytes that TensorBoard's own writer makes (ecosystem.md 1.5). */
static void golden_bytes(void **state) {
    trmi_text text = {0};
    trmi_event_put_version(&text, 1.0);
    check_hex(&text, "1800000000000000a37f4b2209000000000000f03f1a0d627261696e2e4576656e743a32"
                     "86bf577a");
    trm_named_scalar loss = {"loss", 0.5};
    trmi_event_put_scalars(&text, 2.0, 7, &loss, 1);
    check_hex(&text, "1a00000000000000129bd82d09000000000000004010072a0d0a0b0a046c6f7373150000003f"
                     "c33fc24a");
}

/* The events that a reader has found in a file. */
typedef struct seen {
    int count, versions, scalars, histograms, graphs, sessions; /* events: all, of each kind */
    int64_t last_step;                                          /* step of the last event */
    int64_t session_step; /* step at which a resumed session begins */
    int64_t node_count;   /* nodes of the graph */
    double last_value;    /* of the last scalar, like its tag */
    char last_tag[64];
} seen;

static void count_event(void *context, const trmi_record_event *event) {
    seen *s = context;
    s->count++;
    s->versions += event->kind == TRMI_EVENT_VERSION;
    s->scalars += event->kind == TRMI_EVENT_SCALAR;
    s->histograms += event->kind == TRMI_EVENT_HISTOGRAM;
    s->graphs += event->kind == TRMI_EVENT_GRAPH;
    s->sessions += event->kind == TRMI_EVENT_SESSION;
    s->last_step = event->step;
    if (event->kind == TRMI_EVENT_SCALAR) {
        s->last_value = event->value;
        snprintf(s->last_tag, sizeof s->last_tag, "%.*s", (int)event->tag_bytes, event->tag);
    }
    if (event->kind == TRMI_EVENT_SESSION) {
        s->session_step = event->step;
    }
    if (event->kind == TRMI_EVENT_GRAPH) {
        s->node_count = event->node_count;
    }
}

static seen read_back(const char *path) {
    seen s = {0};
    uint8_t *data;
    size_t bytes, record_bytes;
    const uint8_t *record;
    trm_error err;
    trm_status status;
    CHECK_OK(trmi_os_read_file(path, 1 << 24, &data, &bytes, &err), err);
    trmi_tfrecord_reader reader = {.name = path, .file = data, .bytes = bytes};
    while ((status = trmi_tfrecord_next(&reader, &record, &record_bytes, &err)) == TRM_OK) {
        CHECK_OK(
            trmi_event_decode(record, record_bytes, path, reader.number - 1, count_event, &s, &err),
            err);
    }
    if (status != TRM_END) {
        CHECK_OK(status, err);
    }
    trmi_free(data);
    return s;
}

static void a_run_reads_back(void **state) {
    trm_error err;
    trm_events *events;
    trm_events_options options = {.resumed = true, .resume_step = 41};
    CHECK_OK(trm_events_open(in_folder("run/train"), &options, &events, &err), err);
    assert_non_null(strstr(trm_events_path(events), "/run/train/events.out.tfevents.1"));
    trm_named_scalar scalars[] = {{"loss", 1.25}, {"accuracy/top1", 0.5}};
    CHECK_OK(trm_events_scalars(events, 42, scalars, 2, &err), err);
    float values[5] = {-1, 0, 0.5f, INFINITY, NAN};
    trm_tensor tensor = {values, TRM_FLOAT32, trm_shape_of(5)};
    CHECK_OK(trm_events_histogram(events, 42, "fc.weight", &tensor, &err), err);
    trm_shape shape = trm_shape_of(32, 10);
    const char *const inputs[] = {"image", "fc/weight"};
    trm_graph_event_node nodes[] = {{.name = "image", .op = "Input", .output_shape = &shape},
                                    {.name = "fc/weight", .op = "Parameter", .device = "rank:0"},
                                    {"fc/matmul", "MatMul", inputs, 2, NULL, &shape}};
    CHECK_OK(trm_events_graph(events, nodes, 3, &err), err);
    CHECK_OK(trm_events_flush(events, &err), err);
    seen s = read_back(trm_events_path(events));
    assert_int_equal(s.versions, 1);
    assert_int_equal(s.session_step, 42); /* the first step that comes again */
    assert_int_equal(s.scalars, 2);
    assert_string_equal(s.last_tag, "accuracy/top1");
    assert_true(s.last_value == 0.5);
    assert_int_equal(s.histograms, 1);
    assert_int_equal(s.node_count, 3);
    /* A second file of the same second has another name. */
    trm_events *second;
    CHECK_OK(trm_events_open(in_folder("run/train"), NULL, &second, &err), err);
    CHECK_OK(trm_events_close(second, &err), err);
    CHECK_OK(trm_events_close(events, &err), err);
}

/* Reads the tag, which must be `tag`, and the length of a field of a protobuf message. Returns the
 * content of the field; *bytes: its length. */
static const uint8_t *enter_field(const uint8_t *at, uint8_t tag, size_t *bytes) {
    assert_int_equal(at[0], tag);
    size_t length = 0, shift = 0;
    at++;
    do {
        length |= (size_t)(*at & 0x7F) << shift;
        shift += 7;
    } while (*at++ & 0x80);
    *bytes = length;
    return at;
}

static void histogram_counts_every_value(void **state) {
    enum { COUNT = 10000 };
    static double values[COUNT];
    double sum = 0, squares = 0;
    for (int i = 0; i < COUNT; i++) {
        values[i] = ((i * 7919) % 20001 - 10000) / 1000.0;
        sum += values[i];
        squares += values[i] * values[i];
    }
    trmi_text text = {0};
    trm_tensor tensor = {values, TRM_FLOAT64, trm_shape_of(COUNT)};
    trm_error err;
    CHECK_OK(trmi_event_put_histogram(&text, 2, 1, "h", &tensor, &err), err);
    size_t bytes;
    const uint8_t *at = (const uint8_t *)text.data + 12 + 9 + 2; /* frame, time, step */
    at = enter_field(at, 5 << 3 | 2, &bytes);                    /* summary */
    at = enter_field(at, 1 << 3 | 2, &bytes);                    /* value */
    at += 3;                                                     /* tag "h" */
    at = enter_field(at, 5 << 3 | 2, &bytes);                    /* histo */
    double scalar[5];
    for (int i = 0; i < 5; i++) {
        assert_int_equal(at[0], (i + 1) << 3 | 1);
        memcpy(&scalar[i], at + 1, 8);
        at += 9;
    }
    CHECK_CLOSE(scalar[2], COUNT, 0);
    CHECK_CLOSE(scalar[3], sum, 1e-9);
    CHECK_CLOSE(scalar[4], squares, 1e-9);
    size_t limit_bytes, count_bytes;
    const uint8_t *limits = enter_field(at, 6 << 3 | 2, &limit_bytes);
    const uint8_t *counts = enter_field(limits + limit_bytes, 7 << 3 | 2, &count_bytes);
    assert_int_equal(limit_bytes, count_bytes);
    assert_in_range(limit_bytes / 8, 10, 400); /* empty runs are one bucket */
    double total = 0, previous = -INFINITY;
    for (size_t i = 0; i < limit_bytes / 8; i++) {
        double limit, count, expected = 0;
        memcpy(&limit, limits + 8 * i, 8);
        memcpy(&count, counts + 8 * i, 8);
        assert_true(limit > previous);
        for (int k = 0; k < COUNT; k++) {
            expected += values[k] >= previous && values[k] < limit;
        }
        assert_true(count == expected);
        total += count;
        previous = limit;
    }
    CHECK_CLOSE(total, COUNT, 0);
    trmi_text_free(&text);
    tensor.dtype = TRM_UINT8;
    CHECK_FAILS(trmi_event_put_histogram(&text, 2, 1, "h", &tensor, &err), TRM_INVALID, err,
                "uint8");
}

/* Opening a FIFO that no process reads would block the job, and SIGTERM would not end it. */
static void only_regular_files_are_appended_to(void **state) {
    trm_error err;
    trmi_append file;
    assert_int_equal(mkfifo(in_folder("fifo.csv"), 0600), 0);
    CHECK_FAILS(trmi_append_open(&file, NULL, in_folder("fifo.csv"), false, 0, &err), TRM_INVALID,
                err, "a regular file expected (found a FIFO)");
    CHECK_FAILS(trmi_append_open(&file, NULL, in_folder("."), false, 0, &err), TRM_INVALID, err,
                "(found a directory)");
}

/* On a full disk records are lost, but the file keeps only whole ones and stays readable. */
static void a_failed_write_leaves_whole_records(void **state) {
    for (int at = 2; at < 6; at++) {
        trm_error err;
        trm_events *events;
        const trmi_os *table = fault_arm(&os, FAULT_ONCE, 0, "");
        CHECK_OK(trmi_events_open_on(table, in_folder("full"), NULL, &events, &err), err);
        trm_named_scalar loss = {"loss", 1};
        os.calls = 1;
        os.at = at;
        os.error = ENOSPC;
        int failures = 0;
        for (int step = 1; step <= 4; step++) {
            trm_status status = trm_events_scalars(events, step, &loss, 1, &err);
            failures += status == TRM_NOSPACE;
            assert_true(status == TRM_OK || status == TRM_NOSPACE);
        }
        assert_int_equal(failures, 1);
        assert_int_equal(read_back(trm_events_path(events)).scalars, 3);
        CHECK_OK(trm_events_close(events, &err), err);
    }
    /* Short writes are taken back. */
    trm_error err;
    trmi_append file;
    CHECK_OK(trmi_append_open(&file, fault_arm(&os, FAULT_SHORT_WRITES, 0, ""), in_folder("short"),
                              true, 0, &err),
             err);
    os.calls = 0;
    CHECK_OK(trmi_append_record(&file, "1234567", 7, &err), err);
    CHECK_FAILS(trmi_append_record(&file, "12345678", 8, &err), TRM_NOSPACE, err,
                "cannot append 8 bytes at offset 7");
    CHECK_OK(trmi_append_record(&file, "abc", 3, &err), err);
    CHECK_OK(trmi_append_close(&file, &err), err);
    uint8_t *data;
    size_t bytes;
    CHECK_OK(trmi_os_read_file(in_folder("short"), 100, &data, &bytes, &err), err);
    assert_string_equal((char *)data, "1234567abc");
    trmi_free(data);
}

static void records_are_checked(void **state) {
    trmi_text text = {0};
    trmi_tfrecord_append(&text, "hello", 5);
    trmi_tfrecord_append(&text, "", 0);
    uint8_t *file = (uint8_t *)text.data;
    const uint8_t *data;
    size_t bytes;
    trm_error err;
    trmi_tfrecord_reader all = {.name = "f", .file = file, .bytes = text.length}, reader = all;
    CHECK_OK(trmi_tfrecord_next(&reader, &data, &bytes, &err), err);
    assert_memory_equal(data, "hello", 5);
    CHECK_OK(trmi_tfrecord_next(&reader, &data, &bytes, &err), err);
    assert_int_equal(bytes, 0);
    assert_int_equal(reader.number, 2);
    assert_int_equal(trmi_tfrecord_next(&reader, &data, &bytes, &err), TRM_END);
    for (size_t cut = 1; cut < 21; cut++) { /* the first record, torn anywhere */
        reader = all;
        reader.bytes = cut;
        CHECK_FAILS(trmi_tfrecord_next(&reader, &data, &bytes, &err), TRM_CORRUPT, err,
                    "record 0 at offset 0");
        assert_int_equal(reader.offset, 0);
    }
    for (size_t bit = 0; bit < 21 * 8; bit++) { /* any bit of it flipped */
        file[bit / 8] ^= (uint8_t)(1 << (bit % 8));
        reader = all;
        CHECK_FAILS(trmi_tfrecord_next(&reader, &data, &bytes, &err), TRM_CORRUPT, err,
                    "checksum of its");
        file[bit / 8] ^= (uint8_t)(1 << (bit % 8));
    }
    trmi_text_free(&text);
}

static char *read_text(const char *path) {
    static char text[4096];
    uint8_t *data;
    size_t bytes;
    trm_error err;
    CHECK_OK(trmi_os_read_file(path, sizeof text - 1, &data, &bytes, &err), err);
    memcpy(text, data, bytes + 1);
    trmi_free(data);
    return text;
}

static void csv_lines(void **state) {
    trm_error err;
    trm_metrics *metrics;
    const char *const columns[] = {"loss", "top1"};
    trm_metrics_options options = {.columns = columns, .column_count = 2};
    CHECK_OK(trm_metrics_open(in_folder("m.csv"), &options, &metrics, &err), err);
    trm_named_scalar loss = {"loss", (double)2.0084016f}, both[] = {{"top1", 0.1}, {"loss", NAN}};
    trm_named_scalar other = {"other", 1};
    CHECK_OK(trm_metrics_write(metrics, "step", 1, &loss, 1, &err), err);
    CHECK_OK(trm_metrics_write(metrics, "eval", 2, both, 2, &err), err);
    CHECK_FAILS(trm_metrics_write(metrics, "step", 3, &other, 1, &err), TRM_INVALID, err,
                "1 of 1 values have no column");
    CHECK_OK(trm_metrics_close(metrics, &err), err);
    assert_string_equal(read_text(in_folder("m.csv")), "global_step,event,loss,top1\n"
                                                       "1,step,2.00840163,\n"
                                                       "2,eval,nan,0.1\n");
    /* Resumed at step 1 after a crash in the middle of a line. */
    FILE *file = fopen(in_folder("m.csv"), "a");
    fputs("3,step,1.", file);
    fclose(file);
    options.resumed = true;
    options.resume_step = 2;
    CHECK_OK(trm_metrics_open(in_folder("m.csv"), &options, &metrics, &err), err);
    CHECK_OK(trm_metrics_close(metrics, &err), err);
    assert_non_null(strstr(read_text(in_folder("m.csv")), "2,eval,nan,0.1\n"));
    assert_null(strstr(read_text(in_folder("m.csv")), "3,step"));
    options.resume_step = 1;
    CHECK_OK(trm_metrics_open(in_folder("m.csv"), &options, &metrics, &err), err);
    CHECK_OK(trm_metrics_write(metrics, "step", 2, &loss, 1, &err), err);
    CHECK_OK(trm_metrics_close(metrics, &err), err);
    assert_string_equal(read_text(in_folder("m.csv")), "global_step,event,loss,top1\n"
                                                       "1,step,2.00840163,\n"
                                                       "2,step,2.00840163,\n");
    options.column_count = 1;
    CHECK_FAILS(trm_metrics_open(in_folder("m.csv"), &options, &metrics, &err), TRM_INVALID, err,
                "other columns");
    options.resumed = false;
    options.column_count = 0;
    CHECK_FAILS(trm_metrics_open(in_folder("m.csv"), &options, &metrics, &err), TRM_INVALID, err,
                "columns named");
    CHECK_FAILS(trm_metrics_open(in_folder("m.txt"), NULL, &metrics, &err), TRM_INVALID, err,
                ".jsonl");
}

static void json_lines(void **state) {
    trm_error err;
    trm_metrics *metrics;
    CHECK_OK(trm_metrics_open(in_folder("m.jsonl"), NULL, &metrics, &err), err);
    trm_named_scalar values[] = {{"lo\"ss", INFINITY}, {"rate", 0.1}, {"exact", (double)0.1f}};
    for (int step = 1; step <= 3; step++) {
        CHECK_OK(trm_metrics_write(metrics, NULL, step, values, 3, &err), err);
    }
    CHECK_OK(trm_metrics_close(metrics, &err), err);
    char *text = read_text(in_folder("m.jsonl"));
    assert_memory_equal(text, "{\"time\":", 8);
    assert_non_null(strstr(text,
                           ",\"event\":\"step\",\"global_step\":1,\"lo\\\"ss\":null,\"rate\":0.1,"
                           "\"exact\":0.100000001}\n"));
    trm_metrics_options options = {.resumed = true, .resume_step = 2};
    CHECK_OK(trm_metrics_open(in_folder("m.jsonl"), &options, &metrics, &err), err);
    CHECK_OK(trm_metrics_close(metrics, &err), err);
    text = read_text(in_folder("m.jsonl"));
    assert_non_null(strstr(text, "\"global_step\":2"));
    assert_null(strstr(text, "\"global_step\":3"));
}

/* Returns the text of the record of this process, after one line was appended to it. */
static char *record_of(const char *role, int32_t number, const char *file) {
    trm_error err;
    trm_record *record;
    CHECK_OK(trm_record_open(in_folder("run"), role, number, &record, &err), err);
    CHECK_OK(trm_record_line(record, "{\"a\":1}", 7, &err), err);
    CHECK_FAILS(trm_record_line(record, "[]", 2, &err), TRM_INVALID, err, "run/run");
    CHECK_FAILS(trm_record_line(record, "{\"a\":1", 6, &err), TRM_INVALID, err, "a JSON object");
    trm_record_close(record);
    return read_text(in_folder(file));
}

static void each_process_has_a_record(void **state) {
    assert_non_null(strstr(record_of(NULL, 7, "run/run.jsonl"), ",\"a\":1}\n"));
    char *twice = record_of("rank", 0, "run/run.jsonl"); /* rank 0 goes on with the same file */
    assert_non_null(strstr(strchr(twice, '\n'), ",\"a\":1}\n"));
    assert_memory_equal(record_of("rank", 12, "run/run-rank-12.jsonl"), "{\"time\":", 8);
    assert_memory_equal(record_of("ps", 0, "run/run-ps-0.jsonl"), "{\"time\":", 8);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(golden_bytes),
        cmocka_unit_test(a_run_reads_back),
        cmocka_unit_test(histogram_counts_every_value),
        cmocka_unit_test(only_regular_files_are_appended_to),
        cmocka_unit_test(a_failed_write_leaves_whole_records),
        cmocka_unit_test(records_are_checked),
        cmocka_unit_test(csv_lines),
        cmocka_unit_test(json_lines),
        cmocka_unit_test(each_process_has_a_record),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
