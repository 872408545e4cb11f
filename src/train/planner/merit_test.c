/* SPDX-License-Identifier: Apache-2.0 */
/* Tests of the measures of quality (top-k, AUC) against counting and known values. */
#include "check.h"

#include "trireme/train.h"

#include "base/rng.h"

#include <math.h>

static void top_k_counts_ranks(void **state) {
    const float logits[3][6] = {{0, 1, 2, 3, 4, 5}, {5, 4, 3, 2, 1, 0}, {1, 1, 1, 1, 1, 1}};
    const int32_t labels[3] = {5, 4, 5}; /* best; fifth; equal but last of six */
    trm_top_k top = {0};
    trm_top_k_add(&top, logits[0], labels, 3, 6);
    assert_int_equal(top.samples, 3);
    CHECK_CLOSE(trm_top_k_value(&top, 1), 1.0 / 3, 1e-15);
    CHECK_CLOSE(trm_top_k_value(&top, 4), 1.0 / 3, 1e-15);
    CHECK_CLOSE(trm_top_k_value(&top, 5), 2.0 / 3, 1e-15);
}

static void padding_and_nan_are_not_right(void **state) {
    const float logits[3][2] = {{1, 0}, {NAN, 0}, {0, 1}};
    const int32_t labels[3] = {-1, 0, 1};
    trm_top_k top = {0}, none = {0};
    trm_top_k_add(&top, logits[0], labels, 3, 2);
    assert_int_equal(top.samples, 2);
    CHECK_CLOSE(trm_top_k_value(&top, 5), 0.5, 1e-15);
    CHECK_CLOSE(trm_top_k_value(&none, 1), 0, 0);
}

enum { SAMPLES = 400 };

static void random_predictions(uint64_t seed, float *logits, float *labels) {
    for (uint64_t i = 0; i < SAMPLES; i++) {
        uint32_t r[4];
        trmi_philox(seed, TRMI_STREAM_TEST, i, r);
        /* halves in -8 .. 8: exact in bfloat16, with many ties */
        logits[i] = (float)((int)trmi_bounded(r[0], 33) - 16) * 0.5f;
        labels[i] = trmi_unit_float(r[1]) < 1 / (1 + expf(-logits[i])) ? 1 : 0;
    }
}

static double brute_auc(const float *logits, const float *labels) {
    double wins = 0, pairs = 0;
    for (int i = 0; i < SAMPLES; i++) {
        for (int j = 0; j < SAMPLES; j++) {
            if (labels[i] > labels[j]) {
                pairs++;
                wins += logits[i] > logits[j] ? 1 : logits[i] == logits[j] ? 0.5 : 0;
            }
        }
    }
    return wins / pairs;
}

static trm_auc_values values_of(const trm_auc *auc) {
    trm_auc_values values;
    trm_auc_get(auc, &values);
    return values;
}

static void auc_equals_counting_pairs_and_merges(void **state) {
    trm_error err;
    trm_auc *whole, *first, *second;
    CHECK_OK(trm_auc_create(&whole, &err), err);
    CHECK_OK(trm_auc_create(&first, &err), err);
    CHECK_OK(trm_auc_create(&second, &err), err);
    float logits[SAMPLES], labels[SAMPLES];
    random_predictions(7, logits, labels);
    trm_auc_add(whole, logits, labels, SAMPLES);
    CHECK_CLOSE(values_of(whole).auc, brute_auc(logits, labels), 1e-12);
    trm_auc_add(first, logits, labels, 150);
    trm_auc_add(second, logits + 150, labels + 150, SAMPLES - 150);
    trm_auc_merge(first, second);
    assert_true(values_of(first).auc == values_of(whole).auc);
    assert_int_equal(values_of(first).samples, SAMPLES);

    double loss = 0, mean = 0, positives = 0;
    for (int i = 0; i < SAMPLES; i++) {
        double p = 1 / (1 + exp(-(double)logits[i]));
        loss -= log(labels[i] > 0 ? p : 1 - p) / SAMPLES;
        mean += p;
        positives += labels[i];
    }
    CHECK_CLOSE(values_of(first).logloss, loss, 1e-12);
    CHECK_CLOSE(values_of(first).calibration, mean / positives, 1e-12);
    trm_auc_destroy(whole);
    trm_auc_destroy(first);
    trm_auc_destroy(second);
}

static void auc_of_extremes(void **state) {
    trm_error err;
    trm_auc *auc;
    CHECK_OK(trm_auc_create(&auc, &err), err);
    CHECK_CLOSE(values_of(auc).auc, 0.5, 0);
    const float logits[5] = {-INFINITY, -0.0f, 0.0f, 1000, NAN};
    const float labels[5] = {0, 0, 1, 1, 1};
    trm_auc_add(auc, logits, labels, 5);
    CHECK_CLOSE(values_of(auc).auc, (1 + 1 + 1 + 0.5) / 4, 1e-15); /* -0 and 0 tie */
    assert_int_equal(values_of(auc).nans, 1);
    assert_true(isfinite(values_of(auc).logloss));
    trm_auc_reset(auc);
    assert_int_equal(values_of(auc).samples, 0);
    trm_auc_destroy(auc);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(top_k_counts_ranks),
        cmocka_unit_test(padding_and_nan_are_not_right),
        cmocka_unit_test(auc_equals_counting_pairs_and_merges),
        cmocka_unit_test(auc_of_extremes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
