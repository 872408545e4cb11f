/* SPDX-License-Identifier: Apache-2.0 */
/* The machine's samples: rates that a machine can have, and a median between the slowest and the
 * best. */
#include "check.h"

#include "exec/measure/peak.h"

static void rates_are_plausible(void **state) {
    (void)state;
    trm_meter *machine;
    trm_machine_peak middle, best;
    trm_error err;
    CHECK_OK(trm_meter_create(1, &machine, &err), err);
    trm_meter_get_peaks(machine, &middle, &best);
    assert_true(middle.float32_flops == 0 && best.float32_flops == 0); /* not sampled yet */
    trmi_meter_sample_arithmetic(machine);
    trm_meter_sample(machine);
    trm_meter_get_peaks(machine, &middle, &best);
    trm_meter_get_peaks(machine, NULL, NULL);
    trm_meter_destroy(machine);
    assert_int_equal(middle.threads, 1);
    assert_true(middle.float32_flops > 1e7 && middle.float32_flops <= best.float32_flops);
    assert_true(best.float32_flops < 1e13);
    assert_true(middle.bfloat16_flops <= best.bfloat16_flops);
    assert_in_range(middle.memory_count, 1, TRM_PEAK_SETS);
    for (int32_t i = 0; i < middle.memory_count; i++) {
        for (int mix = 0; mix < TRM_PEAK_MIXES; mix++) {
            assert_true(middle.memory[i].bytes_per_second[mix] > 1e6);
            assert_true(middle.memory[i].bytes_per_second[mix] <=
                        best.memory[i].bytes_per_second[mix]);
        }
        assert_true(i == 0 || middle.memory[i].bytes > middle.memory[i - 1].bytes);
    }
    trm_meter_destroy(NULL);
}

/* By hand: mixes between those that were measured, and working sets. */
static void memory_takes_what_its_loops_take(void **state) {
    (void)state;
    const trm_machine_peak p = {.memory_count = 2,
                                .memory = {{1000, {100, 60, 50, 25}}, {2000, {10, 6, 5, 2}}}};
    /* less than the smallest set */
    assert_float_equal(trm_machine_memory_seconds(&p, 600, 0, 100), 6, 1e-12);
    assert_float_equal(trm_machine_memory_seconds(&p, 600, 200, 1999), 10, 1e-12);
    assert_float_equal(trm_machine_memory_seconds(&p, 600, 300, 2000), 120, 1e-12);
    assert_float_equal(trm_machine_memory_seconds(&p, 600, 600, 9000), 300, 1e-12);
    /* half read, half triad */
    assert_float_equal(trm_machine_memory_seconds(&p, 600, 100, 1000), 3 + 5, 1e-12);
    /* half copy, half write */
    assert_float_equal(trm_machine_memory_seconds(&p, 600, 450, 1000), 6 + 12, 1e-12);
    assert_float_equal(trm_machine_memory_seconds(&p, 0, 0, 1000), 0, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(rates_are_plausible),
                                       cmocka_unit_test(memory_takes_what_its_loops_take)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
