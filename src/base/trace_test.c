/* SPDX-License-Identifier: Apache-2.0 */
/* Tests of the trace writer's JSON, and of a recorder that several threads fill up. */
#include "check.h"

#include "base/trace.h"

#include <jansson.h>
#include <pthread.h>

/* The text is valid JSON with the names and times of the events. */
static void names_and_events_are_json(void **state) {
    trmi_text list = {0}, text = {0};
    const trmi_trace_event event = {.category = "compute",
                                    .name = "a \"b\"\n",
                                    .phase = "forward",
                                    .bytes = 12,
                                    .begin = 1.0000000014,
                                    .end = 2.0000000016,
                                    .track = 3};
    trmi_trace_put_process(&list, 1, "rank 1");
    trmi_trace_put_track(&list, 1, 3, "steps");
    trmi_trace_put_event(&list, 1, &event);
    trmi_trace_put_file(&text, &list);
    json_t *root = json_loadb(text.data, text.length, JSON_REJECT_DUPLICATES, NULL);
    const json_t *events = json_object_get(root, "traceEvents"), *last = json_array_get(events, 2);
    assert_int_equal(json_array_size(events), 3);
    assert_string_equal(json_string_value(json_object_get(last, "name")), event.name);
    /* microseconds; begin and end are rounded to nanoseconds, not the length */
    assert_true(json_real_value(json_object_get(last, "ts")) == 1000000.001);
    assert_true(json_real_value(json_object_get(last, "dur")) == 1000000.001);
    assert_int_equal(json_integer_value(json_object_get(last, "tid")), 1000067);
    json_decref(root);
    trmi_text_free(&list);
    trmi_text_free(&text);
}

enum { THREADS = 4, EACH = 300, ROOM = 1000 };

static void *add_events(void *argument) {
    trmi_trace *trace = argument;
    char name[80];
    for (int i = 0; i < EACH; i++) {
        snprintf(name, sizeof name, "an event whose name has more letters than there is room, %d",
                 i);
        const trmi_trace_event event = {.category = "data",
                                        .name = name,
                                        .bytes = -1,
                                        .begin = i,
                                        .end = i + 0.5,
                                        .track = trmi_trace_track(trace, i % 2 ? "odd" : "even")};
        trmi_trace_add(trace, &event);
    }
    return NULL;
}

/* Events beyond the capacity are counted and dropped. */
static void later_events_are_counted(void **state) {
    trm_error err;
    trmi_trace *trace;
    pthread_t threads[THREADS];
    CHECK_OK(trmi_trace_create(ROOM, &trace, &err), err);
    assert_int_equal(trmi_trace_track(trace, "even"), 0);
    for (int i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, add_events, trace), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
    }
    assert_int_equal(trmi_trace_dropped(trace), THREADS * EACH - ROOM);
    trmi_text list = {0}, text = {0};
    trmi_trace_put(trace, 0, 5, &list);
    trmi_trace_put_file(&text, &list);
    json_t *root = json_loadb(text.data, text.length, 0, NULL);
    const json_t *events = json_object_get(root, "traceEvents");
    assert_int_equal(json_array_size(events), ROOM + 2); /* plus the names of two tracks */
    for (size_t i = 2; i < json_array_size(events); i++) {
        const json_t *e = json_array_get(events, i);
        double begin = json_real_value(json_object_get(e, "ts")) / 1e6 - 5;
        assert_int_equal(json_integer_value(json_object_get(e, "tid")), 1000000 + (int)begin % 2);
        assert_true(json_real_value(json_object_get(e, "dur")) == 500000);
    }
    json_decref(root);
    trmi_text_free(&list);
    trmi_text_free(&text);
    trmi_trace_add(NULL, NULL); /* without a recorder */
    trmi_trace_destroy(trace);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(names_and_events_are_json),
                                       cmocka_unit_test(later_events_are_counted)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
