/* The machine's samples: rates that a machine can have, and a median between the slowest and the best. */
#include "check.h"

#include "exec/peak.h"

static void rates_are_plausible(void **state) {
    (void)state;
    trm_machine *machine;
    trm_machine_peak middle, best;
    trm_error err;
    CHECK_OK(trm_machine_create(1, &machine, &err), err);
    trm_machine_describe(machine, &middle, &best);
    assert_true(middle.float32_flops == 0 && best.float32_flops == 0); /* not sampled yet */
    trmi_machine_sample_arithmetic(machine);
    trm_machine_sample(machine);
    trm_machine_describe(machine, &middle, &best);
    trm_machine_describe(machine, NULL, NULL);
    trm_machine_destroy(machine);
    assert_int_equal(middle.threads, 1);
    assert_true(middle.float32_flops > 1e7 && middle.float32_flops <= best.float32_flops);
    assert_true(best.float32_flops < 1e13);
    assert_true(middle.bfloat16_flops <= best.bfloat16_flops);
    assert_in_range(middle.memory_count, 1, TRM_PEAK_SETS);
    for (int32_t i = 0; i < middle.memory_count; i++) {
        assert_true(middle.memory[i].bytes_per_second > 1e6);
        assert_true(middle.memory[i].bytes_per_second <= best.memory[i].bytes_per_second);
        assert_true(i == 0 || middle.memory[i].bytes > middle.memory[i - 1].bytes);
    }
    trm_machine_destroy(NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(rates_are_plausible)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
