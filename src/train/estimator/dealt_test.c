/* SPDX-License-Identifier: Apache-2.0 */
/* Jobs that are continued with other workers and batches: each sample is used once an epoch, but
 * for what fills no step. */
#include "check.h"

#include "trireme/data.h"

#include "base/rng.h"
#include "train/estimator/dealt.h"

enum { ROWS = 1000, EPOCHS = 6 };

/* Worker `index`'s data; the first dense input of each sample tells them apart. */
static trm_dataset *open_shard(int64_t workers, int64_t index, int64_t batch) {
    const trm_click_generator_options options = {
        .rows = ROWS, .test_rows = 10, .fields = 1, .dense = 1, .vocabulary = 10, .seed = 4};
    trm_dataset *data;
    trm_error err;
    CHECK_OK(trm_dataset_clicks(&options, TRM_USAGE_TRAIN, &data, &err), err);
    CHECK_OK(trm_dataset_shuffle(data, 0, &err), err);
    CHECK_OK(trm_dataset_shard(data, workers, index, TRM_SHARD_WRAP, &err), err);
    CHECK_OK(trm_dataset_batch(data, batch, true, &err), err);
    return data;
}

/* Steps of one worker from `begin` to `end`, as the loop makes them. */
static void make_steps(trmi_dealt *dealt, int64_t index, int64_t batch, int64_t begin, int64_t end,
                       float used[EPOCHS][2 * ROWS], int count[EPOCHS]) {
    trm_error err;
    trmi_stretch s;
    trm_dataset *data = open_shard(dealt->workers, index, batch);
    CHECK_OK(trmi_dealt_begin(dealt, data, batch, begin, &s, &err), err);
    for (int64_t step = begin; step < end; step++) {
        int64_t epoch, at;
        const trm_batch *b;
        trmi_stretch_at(&s, step, &epoch, &at);
        if (step == begin || at == 0) {
            CHECK_OK(trm_dataset_seek(data, epoch, at, &err), err);
        }
        CHECK_OK(trm_dataset_next(data, &b, &err), err);
        assert_int_equal(b->epoch, epoch);
        assert_int_equal(b->index, at);
        const float *dense = trm_batch_tensor(b, "dense")->data;
        for (int64_t i = 0; i < batch && epoch < EPOCHS; i++) {
            assert_true(count[epoch] < 2 * ROWS);
            used[epoch][count[epoch]++] = dense[i];
        }
    }
    trm_dataset_destroy(data);
}

static int by_value(const void *a, const void *b) {
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

static void each_sample_is_used_once_an_epoch_whoever_goes_on(void **state) {
    static float used[EPOCHS][2 * ROWS];
    for (uint64_t seed = 1; seed <= 8; seed++) {
        trmi_dealt dealt = {0};
        int64_t step = 0, epoch = 0, at;
        /* most: samples of a step, of the first that did not fit, too */
        int count[EPOCHS] = {0}, most[EPOCHS] = {0};
        for (uint64_t life = 0; epoch < EPOCHS; life++) {
            const uint64_t bits = trmi_mix(seed, life);
            const int64_t batch = 4 + (int64_t)(bits >> 8 & 7),
                          steps = 1 + (int64_t)(bits >> 16 & 31);
            dealt.workers = 1 + (int64_t)(bits & 3);
            for (int64_t w = 0, workers = dealt.workers; w < workers; w++) {
                make_steps(&dealt, w, batch, step, step + steps, used, count);
            }
            step += steps;
            for (int64_t last; epoch < EPOCHS; epoch++) {
                most[epoch] = batch * dealt.workers > most[epoch] ? (int)(batch * dealt.workers)
                                                                  : most[epoch];
                trmi_stretch_at(&dealt.list[dealt.count - 1], step, &last, &at);
                if (epoch >= last) {
                    break;
                }
            }
        }
        for (int e = 0; e < EPOCHS; e++) {
            qsort(used[e], (size_t)count[e], sizeof **used, by_value);
            int twice = 0;
            for (int i = 1; i < count[e]; i++) {
                twice += used[e][i] == used[e][i - 1];
            }
            /* shards of equal length: the first ones of the order come again */
            assert_true(twice < 4);
            assert_true(count[e] <= ROWS + 3 && count[e] > ROWS - most[e]);
        }
    }
}

static void who_comes_back_goes_on_where_it_was(void **state) {
    trm_error err;
    trmi_stretch a, b;
    trmi_dealt dealt = {.workers = 2}, before;
    trm_dataset *data = open_shard(2, 0, 10);
    CHECK_OK(trmi_dealt_begin(&dealt, data, 10, 0, &a, &err), err);
    trm_dataset_destroy(data);
    dealt.workers = 3;
    data = open_shard(3, 0, 10);
    /* 400 of 1000 used: 20 of 33 steps are left */
    CHECK_OK(trmi_dealt_begin(&dealt, data, 10, 20, &a, &err), err);
    assert_int_equal(dealt.count, 2);
    assert_int_equal(a.used, 400);
    assert_int_equal(a.batches, 33);
    assert_int_equal(a.first, 13);
    before = dealt;
    CHECK_OK(trmi_dealt_begin(&dealt, data, 10, 31, &b, &err), err); /* killed, started again */
    assert_memory_equal(&before, &dealt, sizeof dealt);
    assert_memory_equal(&a, &b, sizeof a);
    /* a job without a log, back at a checkpoint */
    CHECK_OK(trmi_dealt_begin(&dealt, data, 10, 7, &b, &err), err);
    assert_int_equal(dealt.count, 2);
    assert_int_equal(b.step, 7);
    assert_int_equal(b.used, 140);
    trm_dataset_destroy(data);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_sample_is_used_once_an_epoch_whoever_goes_on),
        cmocka_unit_test(who_comes_back_goes_on_where_it_was),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
