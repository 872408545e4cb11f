/* SPDX-License-Identifier: Apache-2.0 */
/* The events of a training as JSON, and the means of steps between reports. */
#include "check.h"

#include "trireme/train.h"

#include <math.h>
#include <string.h>

/* Compares the members of an event, and what comes into a text that is too short. */
static void check_event(trm_training_event event, const trm_progress *p, const trm_mean_step *mean,
                        const char *expected) {
    char text[600], cut[10];
    assert_int_equal(trm_event_members(event, p, mean, text, sizeof text), strlen(expected));
    assert_string_equal(text, expected);
    assert_int_equal(trm_event_members(event, p, mean, cut, sizeof cut), strlen(expected));
    assert_memory_equal(cut, expected, strlen(cut));
    assert_int_equal(strlen(cut), expected[0] != '\0' ? sizeof cut - 1 : 0);
}

static void events_are_written_as_members(void **state) {
    const trm_loss_scale_state scale = {.scale = 1024, .skipped = 2};
    trm_evaluation e = {.loss = (double)NAN,
                        .samples = 8,
                        .seconds = 0.5,
                        .has_tokens = true,
                        .tokens = 64,
                        .perplexity = 7.25,
                        .metric_count = 1};
    e.metrics[0] = (trm_named_scalar){.name = "a\"b", .value = 0.1};
    trm_membership m = {.epoch = 2, .ranks = 3, .lost = "1, 4", .redone_steps = 1, .seconds = 2};
    trm_progress p = {.epoch = 1,
                      .step = 5,
                      .epoch_steps = 9,
                      .global_step = 14,
                      .loss = 0.1F,
                      .learning_rate = 0.01,
                      .loss_scale = &scale,
                      .epoch_seconds = 3,
                      .wait_seconds = 1};
    check_event(TRM_EVENT_EPOCH, &p, NULL,
                "\"epoch\":1,\"steps\":9,\"global_step\":14,\"loss\":0.100000001,"
                "\"seconds\":3,\"wait_seconds\":1");
    check_event(TRM_EVENT_EVALUATION, &p, NULL, "");
    p.evaluation = &e;
    check_event(TRM_EVENT_EVALUATION, &p, NULL,
                "\"epoch\":1,\"global_step\":14,\"loss\":null,\"perplexity\":7.25,"
                "\"a\\\"b\":0.1,\"tokens\":64,\"samples\":8,\"seconds\":0.5");
    p.checkpoint = "run/ckpt-14";
    check_event(TRM_EVENT_CHECKPOINT, &p, NULL, "\"path\":\"run/ckpt-14\",\"global_step\":14");
    p.membership = &m;
    check_event(TRM_EVENT_MEMBERSHIP, &p, NULL,
                "\"epoch\":2,\"ranks\":3,\"spare\":0,\"lost\":[1, 4],\"left\":[],"
                "\"joined\":[],\"redone_steps\":1,\"seconds\":2,\"global_step\":14");
    m.restored_step = 10;
    m.redone_steps = 4;
    check_event(
        TRM_EVENT_MEMBERSHIP, &p, NULL,
        "\"epoch\":2,\"ranks\":3,\"spare\":0,\"lost\":[1, 4],\"left\":[],"
        "\"joined\":[],\"redone_steps\":4,\"restored\":\"checkpoint step 10\",\"seconds\":2,"
        "\"global_step\":14");
    char text[600];
    trm_event_members(TRM_EVENT_STEP, &p, &(trm_mean_step){.step_seconds = 0.25}, text,
                      sizeof text);
    assert_non_null(strstr(text, "\"loss\":0.100000001,\"step_seconds\":0.25,"));
    assert_non_null(
        strstr(text, ",\"learning_rate\":0.01,\"loss_scale\":1024,\"skipped_updates\":2"));
    assert_string_equal(trm_event_name(TRM_EVENT_EVALUATION), "eval");
}

/* Steps 1 and 2, then two steps of the next epoch; then the ranks change, and the epoch goes on
 * with what it waited counted anew. */
static void means_are_those_since_the_mark(void **state) {
    trm_report_mark mark = {0};
    trm_progress p = {
        .epoch = 1, .global_step = 2, .samples = 64, .data_seconds = 1, .busy_seconds = 4};
    trm_mean_step mean = trm_take_mean_step(&mark, &p);
    assert_true(mean.step_seconds == 2 && mean.data_wait_seconds == 0.5);
    assert_true(mean.samples_per_second == 16 && mean.rank_wait_seconds == 0);
    p = (trm_progress){
        .epoch = 2, .global_step = 4, .samples = 128, .data_seconds = 4, .busy_seconds = 5};
    mean = trm_take_mean_step(&mark, &p);
    assert_true(mean.step_seconds == 0.5 && mean.data_wait_seconds == 1.5);
    assert_true(mean.samples_per_second == 64);
    p.global_step++;
    p.wait_seconds = 0;
    p.data_seconds++;
    assert_true(trm_take_mean_step(&mark, &p).data_wait_seconds == 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(events_are_written_as_members),
        cmocka_unit_test(means_are_those_since_the_mark),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
