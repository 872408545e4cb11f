/* SPDX-License-Identifier: Apache-2.0 */
/* Tests of the schedules of the learning rate against values computed by hand. */
#include "check.h"

#include "trireme/train.h"

static void constant_has_no_surprise(void **state) {
    trm_learning_rate r = {.base = 0.01};
    CHECK_CLOSE(trm_learning_rate_at(&r, 0), 0.01, 0);
    CHECK_CLOSE(trm_learning_rate_at(&r, 1000000), 0.01, 0);
}

static void warmup_is_linear_and_ends_at_base(void **state) {
    trm_learning_rate r = {.base = 0.1, .warmup_steps = 5, .warmup_start = 0.05};
    CHECK_CLOSE(trm_learning_rate_at(&r, 0), 0.06, 1e-15);
    CHECK_CLOSE(trm_learning_rate_at(&r, 3), 0.09, 1e-15);
    CHECK_CLOSE(trm_learning_rate_at(&r, 4), 0.10, 1e-15);
    CHECK_CLOSE(trm_learning_rate_at(&r, 5), 0.10, 1e-15);
}

static void steps_multiply_by_gamma(void **state) {
    trm_learning_rate r = {.decay = TRM_DECAY_STEP, .base = 1, .every_steps = 10};
    CHECK_CLOSE(trm_learning_rate_at(&r, 9), 1, 1e-15);
    CHECK_CLOSE(trm_learning_rate_at(&r, 10), 0.1, 1e-15);
    CHECK_CLOSE(trm_learning_rate_at(&r, 25), 0.01, 1e-15);
    trm_learning_rate thirds = {.decay = TRM_DECAY_STEP, .base = 1, .gamma = 0.5, .total_steps = 9};
    CHECK_CLOSE(trm_learning_rate_at(&thirds, 2), 1, 1e-15);
    CHECK_CLOSE(trm_learning_rate_at(&thirds, 3), 0.5, 1e-15);
    CHECK_CLOSE(trm_learning_rate_at(&thirds, 8), 0.25, 1e-15);
}

static void cosine_runs_from_base_to_end(void **state) {
    trm_learning_rate r = {
        .decay = TRM_DECAY_COSINE, .base = 1, .end = 0.2, .total_steps = 110, .warmup_steps = 10};
    CHECK_CLOSE(trm_learning_rate_at(&r, 10), 1, 1e-15);
    CHECK_CLOSE(trm_learning_rate_at(&r, 60), 0.6, 1e-15);
    CHECK_CLOSE(trm_learning_rate_at(&r, 110), 0.2, 1e-15);
    CHECK_CLOSE(trm_learning_rate_at(&r, 9999), 0.2, 1e-15);
}

/* The model zoo's recipe for CIFAR-10: 0.01 -> 0.1 in 5 epochs, then quadratically to 1e-5. */
static void polynomial_is_the_zoo_recipe(void **state) {
    trm_learning_rate r = {.decay = TRM_DECAY_POLYNOMIAL,
                           .base = 0.1,
                           .end = 1e-5,
                           .power = 2,
                           .warmup_start = 0.01,
                           .warmup_steps = 975,
                           .total_steps = 17550};
    CHECK_CLOSE(trm_learning_rate_at(&r, 974), 0.1, 1e-15);
    double half = 1e-5 + (0.1 - 1e-5) * 0.25;
    CHECK_CLOSE(trm_learning_rate_at(&r, 975 + (17550 - 975) / 2), half, 1e-5);
    CHECK_CLOSE(trm_learning_rate_at(&r, 17550), 1e-5, 1e-15);
}

static void stable_rate_decays_at_the_end(void **state) {
    trm_learning_rate r = {.decay = TRM_DECAY_WSD,
                           .base = 1,
                           .end = 0.2,
                           .every_steps = 20,
                           .warmup_steps = 10,
                           .total_steps = 110};
    CHECK_CLOSE(trm_learning_rate_at(&r, 4), 0.5, 1e-15);
    CHECK_CLOSE(trm_learning_rate_at(&r, 10), 1, 1e-15);
    CHECK_CLOSE(trm_learning_rate_at(&r, 90), 1, 1e-15);
    CHECK_CLOSE(trm_learning_rate_at(&r, 100), 0.6, 1e-15);
    CHECK_CLOSE(trm_learning_rate_at(&r, 110), 0.2, 1e-15);
    CHECK_CLOSE(trm_learning_rate_at(&r, 9999), 0.2, 1e-15);
    r.every_steps = 0; /* 11 steps */
    CHECK_CLOSE(trm_learning_rate_at(&r, 99), 1, 1e-15);
    CHECK_CLOSE(trm_learning_rate_at(&r, 104), 0.2 + 0.8 * 6 / 11, 1e-15);
}

/* A schedule shorter than its warm-up, or without a length, must still give a rate. */
static void odd_lengths_are_finite(void **state) {
    for (int decay = 0; decay <= TRM_DECAY_WSD; decay++) {
        for (int64_t total = 0; total < 6; total++) {
            trm_learning_rate r = {.decay = (trm_decay)decay,
                                   .base = 0.5,
                                   .end = 0.25,
                                   .total_steps = total,
                                   .warmup_steps = 3,
                                   .warmup_start = 0.1};
            for (uint64_t step = 0; step < 10; step++) {
                double rate = trm_learning_rate_at(&r, step);
                assert_true(rate > 0 && rate <= 0.5 + 1e-12);
            }
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(constant_has_no_surprise),
        cmocka_unit_test(warmup_is_linear_and_ends_at_base),
        cmocka_unit_test(steps_multiply_by_gamma),
        cmocka_unit_test(cosine_runs_from_base_to_end),
        cmocka_unit_test(polynomial_is_the_zoo_recipe),
        cmocka_unit_test(stable_rate_decays_at_the_end),
        cmocka_unit_test(odd_lengths_are_finite),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
