/* SPDX-License-Identifier: Apache-2.0 */
/* Slots that take turns: the bits of an optimiser that updates in place, and the slots from before
 * a run stay where they were until the next one. */
#include "check.h"
#include "optimizer_case.h"

#include "exec/optimizer/update_state.h"

#include "base/cpu.h"
#include "base/memory.h"
#include "base/rng.h"

#include <math.h>
#include <string.h>

/* Elements of the ranges. Segments in their order: several blocks; a table whose rows begin between
 * the places of vectors; a gradient in factors; a sparse table; a few elements. */
enum { DENSE = 40000, TABLE = 7 * 3001, ROWS = 20, COLUMNS = 33, SPARSE = 40, COUNT = 70000 };
enum { AT_TABLE = DENSE + 16, AT_FACTORS = AT_TABLE + 21024, AT_SPARSE = AT_FACTORS + 672 };
enum { AT_LAST = AT_SPARSE + 48, STEPS = 5, SEGMENTS = 5, FACTORS = 2 };

static const trmi_update_segment segments[SEGMENTS] = {
    {.count = DENSE, .decay = true},
    {.offset = AT_TABLE, .count = TABLE, .table_width = 7},
    {.offset = AT_FACTORS, .count = ROWS * COLUMNS, .factors = FACTORS, .columns = COLUMNS},
    {.offset = AT_SPARSE, .count = SPARSE, .sparse = true, .rows = 3, .width = 4},
    {.offset = AT_LAST, .count = 5}};

/* Two optimisers with the same gradients: one in place, one with turns. */
typedef struct pair {
    trmi_update *plain, *turns;
    void *memory;
    size_t bytes;
    float w[2][COUNT], g[COUNT], left[FACTORS * ROWS], right[FACTORS * COLUMNS];
} pair;

static float random_value(uint64_t stream, int64_t i) {
    return 2 * trmi_unit_float(trmi_random_u32(5, stream, (uint64_t)i)) - 1;
}

static void make_pair(pair *p, trm_optimizer_kind kind, const trmi_update_kernels *kernels,
                      const uint8_t *mine) {
    trm_error err;
    const trm_optimizer_options options = optimizer_case(kind, 0);
    memset(p, 0, sizeof *p);
    CHECK_OK(trmi_update_create(&options, segments, SEGMENTS, COUNT, &p->plain, &err), err);
    CHECK_OK(trmi_update_create(&options, segments, SEGMENTS, COUNT, &p->turns, &err), err);
    p->plain->kernels = p->turns->kernels = kernels;
    trmi_update_share(p->plain, mine, NULL, NULL);
    trmi_update_share(p->turns, mine, NULL, NULL);
    p->bytes = trmi_update_lent_bytes(p->turns);
    p->memory = trmi_map(p->bytes);
    trmi_update_lend_slots(p->turns, p->memory);
    trmi_update_take_turns(p->turns, true);
    for (int32_t i = 0; i < FACTORS * ROWS; i++) {
        p->left[i] = random_value(3, i);
    }
    for (int32_t i = 0; i < FACTORS * COLUMNS; i++) {
        p->right[i] = random_value(4, i);
    }
    for (int64_t i = 0; i < COUNT; i++) {
        p->w[0][i] = p->w[1][i] = random_value(1, i);
    }
    trmi_update_factors(p->plain, 2, p->left, p->right, TRM_FLOAT32);
    trmi_update_factors(p->turns, 2, p->left, p->right, TRM_FLOAT32);
}

static void free_pair(pair *p) {
    trmi_update_destroy(p->plain);
    trmi_update_destroy(p->turns);
    trmi_unmap(p->memory, p->bytes);
}

/* Makes the gradients of step `t`: those of some rows of the table are zero. */
static void fill_gradients(pair *p, int t) {
    for (int64_t i = 0; i < COUNT; i++) {
        const int64_t row = (i - AT_TABLE) / 7;
        const bool rests = i >= AT_TABLE && i < AT_TABLE + TABLE && (row + t) % 3 == 0;
        p->g[i] = rests ? 0 : random_value(10 + (uint64_t)t, i);
    }
}

static void run_step(pair *p, trmi_update *u, float *w, int t) {
    trm_error err;
    const int32_t ids[] = {t, 9, t};
    const trmi_table_gradient table = {
        .segment = 3, .id_dtype = TRM_INT32, .ids = ids, .rows = p->g, .count = 3, .width = 4};
    CHECK_OK(trmi_update_run(u, w, p->g, 0.05, (uint64_t)t + 1, &err), err);
    CHECK_OK(trmi_update_sparse(u, w, &table, 0.05, (uint64_t)t + 1, &err), err);
}

/* Compares parameters and slots of all segments. */
static void check_equal(const pair *p) {
    assert_memory_equal(p->w[0], p->w[1], sizeof p->w[0]);
    for (int32_t i = 0; i < SEGMENTS; i++) {
        for (int32_t s = 0; s < trmi_update_slots(p->plain); s++) {
            assert_memory_equal(trmi_update_slot(p->plain, s, segments[i].offset),
                                trmi_update_slot(p->turns, s, segments[i].offset),
                                (size_t)segments[i].count * sizeof(float));
        }
    }
}

/* Runs steps, and checks that each leaves the slots before it alone, but for those that have one
 * place. */
static void follow_steps(pair *p) {
    static float before[TRMI_SLOTS_MAX][COUNT];
    for (int t = 0; t < STEPS; t++) {
        const float *place[TRMI_SLOTS_MAX];
        assert_int_equal(trmi_update_in_second(p->turns), t % 2);
        for (int32_t s = 0; s < trmi_update_slots(p->turns); s++) {
            place[s] = trmi_update_slot(p->turns, s, 0);
            assert_ptr_equal(place[s] + 100, trmi_update_slot(p->turns, s, 100));
            memcpy(before[s], place[s], sizeof before[s]);
        }
        fill_gradients(p, t);
        run_step(p, p->plain, p->w[0], t);
        run_step(p, p->turns, p->w[1], t);
        check_equal(p);
        for (int32_t s = 0; s < trmi_update_slots(p->turns); s++) {
            assert_memory_equal(before[s], place[s], (AT_TABLE + TABLE) * sizeof(float));
            assert_memory_equal(before[s] + AT_LAST, place[s] + AT_LAST, 5 * sizeof(float));
            assert_ptr_not_equal(place[s], trmi_update_slot(p->turns, s, 0));
            assert_ptr_equal((const char *)trmi_update_slot(p->turns, s, AT_SPARSE),
                             (const char *)p->memory +
                                 (size_t)s * p->bytes / 2 / (size_t)trmi_update_slots(p->turns) +
                                 AT_SPARSE * sizeof(float));
        }
    }
}

static pair both;

static void turns_have_the_bits_of_updates_in_place(void **state) {
    (void)state;
    const trm_optimizer_kind kinds[] = {TRM_MOMENTUM, TRM_NESTEROV, TRM_ADAM,
                                        TRM_LARS,     TRM_ADAGRAD,  TRM_FTRL};
    const trmi_update_kernels *kernels[3] = {&trmi_update_kernels_plain};
    int kernels_count = 1;
#if defined(__x86_64__)
    if (trmi_cpu()->avx2) {
        kernels[kernels_count++] = &trmi_update_kernels_avx2;
    }
    if (trmi_cpu()->avx512) {
        kernels[kernels_count++] = &trmi_update_kernels_avx512;
    }
#endif
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        for (int k = 0; k < kernels_count; k++) {
            make_pair(&both, kinds[i], kernels[k], NULL);
            follow_steps(&both);
            free_pair(&both);
        }
    }
}

/* A run that changes nothing leaves the slots where they are; so does one for which the gradients
 * in factors were multiplied. */
static void runs_without_a_change_are_no_turns(void **state) {
    (void)state;
    trm_error err;
    make_pair(&both, TRM_FTRL, trmi_update_kernels_best(), NULL);
    fill_gradients(&both, 0);
    run_step(&both, both.plain, both.w[0], 0);
    run_step(&both, both.turns, both.w[1], 0);
    assert_true(trmi_update_in_second(both.turns));
    both.g[5] = NAN;
    CHECK_FAILS(trmi_update_run(both.turns, both.w[1], both.g, 0.05, 2, &err), TRM_DIVERGED, err,
                "NaN");
    assert_true(trmi_update_in_second(both.turns));
    both.g[5] = 1;
    CHECK_OK(trmi_update_run(both.turns, both.w[1], both.g, 0, 2, &err), err);
    assert_true(trmi_update_in_second(both.turns));
    check_equal(&both);
    trmi_update_multiply(both.plain, both.g);
    trmi_update_multiply(both.turns, both.g);
    CHECK_OK(trmi_update_run(both.plain, both.w[0], both.g, 0.05, 3, &err), err);
    CHECK_OK(trmi_update_run(both.turns, both.w[1], both.g, 0.05, 3, &err), err);
    assert_false(trmi_update_in_second(both.turns));
    check_equal(&both);
    free_pair(&both);
}

/* Slots come back to the first half when the turns end, after an odd number of runs, too. */
static void turns_can_end(void **state) {
    (void)state;
    for (int runs = 1; runs <= 2; runs++) {
        make_pair(&both, TRM_ADAM, trmi_update_kernels_best(), NULL);
        for (int t = 0; t < STEPS; t++) {
            if (t == runs) {
                trmi_update_take_turns(both.turns, false);
                assert_ptr_equal(trmi_update_slot(both.turns, 0, 0), both.memory);
                assert_int_equal(trmi_update_turn_bytes(both.turns, 0), 0);
                /* the pages of the second half have gone back */
                const float *second = (const float *)both.memory + both.bytes / 2 / sizeof(float);
                assert_true(second[10000] == 0 && second[30000] == 0);
            }
            fill_gradients(&both, t);
            run_step(&both, both.plain, both.w[0], t);
            run_step(&both, both.turns, both.w[1], t);
            check_equal(&both);
        }
        free_pair(&both);
    }
}

/* Without memory that was lent there are no turns. */
static void own_slots_stay(void **state) {
    (void)state;
    make_pair(&both, TRM_ADAM, trmi_update_kernels_best(), NULL);
    trmi_update_take_turns(both.plain, true);
    fill_gradients(&both, 0);
    run_step(&both, both.plain, both.w[0], 0);
    run_step(&both, both.turns, both.w[1], 0);
    assert_false(trmi_update_in_second(both.plain));
    assert_int_equal(trmi_update_turn_bytes(both.plain, 0), 0);
    check_equal(&both);
    free_pair(&both);
}

/* Slots of other ranks, which are gathered for a checkpoint, take memory in one half only. */
static void gathered_slots_lie_in_one_half(void **state) {
    (void)state;
    static uint8_t mine[64];
    memset(mine, 1, sizeof mine);
    mine[1] = 0; /* the second block: elements from 16384 on */
    make_pair(&both, TRM_MOMENTUM, trmi_update_kernels_best(), mine);
    float *places[STEPS];
    for (int t = 0; t < STEPS; t++) {
        fill_gradients(&both, t);
        run_step(&both, both.plain, both.w[0], t);
        run_step(&both, both.turns, both.w[1], t);
        trmi_update_begin_gather(both.turns);
        places[t] = trmi_update_slot(both.turns, 0, 20000);
        *places[t] = 7; /* as the gather writes it */
        assert_ptr_equal(trmi_update_slot(both.turns, 0, 0) + 20000, places[t]);
        assert_true(t == 0 || places[t] != places[t - 1]);
        assert_true(t == 0 || *places[t - 1] == 0);
        assert_memory_equal(trmi_update_slot(both.plain, 0, 0), trmi_update_slot(both.turns, 0, 0),
                            16384 * sizeof(float));
        assert_memory_equal(trmi_update_slot(both.plain, 0, 0) + 32768,
                            trmi_update_slot(both.turns, 0, 0) + 32768,
                            (DENSE - 32768) * sizeof(float));
    }
    free_pair(&both);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(turns_have_the_bits_of_updates_in_place),
        cmocka_unit_test(runs_without_a_change_are_no_turns),
        cmocka_unit_test(turns_can_end),
        cmocka_unit_test(own_slots_stay),
        cmocka_unit_test(gathered_slots_lie_in_one_half),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
