/* SPDX-License-Identifier: Apache-2.0 */
/* Slots that take turns: the bits of an optimiser that updates in place, and the slots from before
 * a run stay where they were until the next one. Old parameters that a run copies while it changes
 * them are complete at every instruction. */
#include "check.h"
#include "optimizer_case.h"

#include "exec/optimizer/update_state.h"

#include "base/cpu.h"
#include "base/memory.h"
#include "base/rng.h"

#include <math.h>
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

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

/* Lists the kernels that this CPU runs. */
static int list_kernels(const trmi_update_kernels **kernels) {
    int count = 0;
    kernels[count++] = &trmi_update_kernels_plain;
#if defined(__x86_64__)
    if (trmi_cpu()->avx2) {
        kernels[count++] = &trmi_update_kernels_avx2;
    }
    if (trmi_cpu()->avx512) {
        kernels[count++] = &trmi_update_kernels_avx512;
    }
#endif
    return count;
}

static pair both;

static void turns_have_the_bits_of_updates_in_place(void **state) {
    (void)state;
    const trm_optimizer_kind kinds[] = {TRM_MOMENTUM, TRM_NESTEROV, TRM_ADAM,
                                        TRM_LARS,     TRM_ADAGRAD,  TRM_FTRL};
    const trmi_update_kernels *kernels[3];
    const int kernels_count = list_kernels(kernels);
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
    trmi_update_drop_gathered(both.turns);
    assert_true(*places[STEPS - 1] == 0 && *places[STEPS - 2] == 0);
    assert_memory_equal(trmi_update_slot(both.plain, 0, 0), trmi_update_slot(both.turns, 0, 0),
                        16384 * sizeof(float));
    free_pair(&both);
}

/* ---- a pass that ends at any instruction ----------------------------------------------------- */

/* Elements of the pass: vectors, and a rest. */
enum { PASS = 1003 };

static sigjmp_buf interrupted;

static void leave_pass(int number) {
    (void)number;
    siglongjmp(interrupted, 1);
}

/* The memory of a pass; `from` and `to` lie equally to multiples of 64 bytes. */
typedef struct pass {
    _Alignas(64) float w[PASS + 16], from[2][PASS + 21], to[2][PASS + 21];
    _Atomic int64_t count;
    const float *gradients;
    float *old;
} pass;

/* Returns the address behind a page that can be used: use of it sends a signal. Elements of the
 * pass fit before it. */
static float *map_before_gap(void) {
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    char *memory = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(memory != MAP_FAILED && mprotect(memory + page, page, PROT_NONE) == 0);
    for (int64_t i = 0; i < (int64_t)(page / sizeof(float)); i++) {
        ((float *)(void *)memory)[i] = random_value(8, i);
    }
    return (float *)(void *)(memory + page);
}

static void unmap_before_gap(float *behind) {
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    munmap((char *)behind - page, 2 * page);
}

/* Runs a pass that a signal leaves. at: the place of the first slot beside a multiple of 64 bytes.
 * Returns the count of old values, after a check that one is there of each element that has
 * changed. */
static int64_t interrupt_pass(pass *p, const trmi_update_kernels *kernels, trm_optimizer_kind kind,
                              int64_t at) {
    const trm_optimizer_options options = {.kind = kind, .momentum = 0.9};
    trm_optimizer_options checked;
    trm_error err;
    CHECK_OK(trmi_optimizer_check(&options, false, "optimizer", &checked, &err), err);
    const trmi_rule rule = trmi_rule_of(
        &checked, &(trmi_rule_step){.rate = 0.1, .scale = 1, .decays = true, .number = 3});
    const trmi_slot_turn slots = {.from = {p->from[0] + at, p->from[1] + at},
                                  .to = {p->to[0] + at, p->to[1] + at}};
    atomic_store(&p->count, 0);
    for (int64_t i = 0; i < PASS; i++) {
        p->w[i] = random_value(6, i);
        p->from[0][i] = p->from[1][i] = 1 + random_value(7, i);
    }
    if (sigsetjmp(interrupted, 1) == 0) {
        kernels->turn[kind](&rule, p->w, p->gradients, &slots,
                            &(trmi_update_old){p->old, &p->count}, PASS);
        fail_msg("the pass has ended");
    }
    const int64_t count = atomic_load(&p->count);
    for (int64_t i = 0; i < PASS; i++) {
        const float before = random_value(6, i), now = i < count ? p->old[i] : p->w[i];
        if (memcmp(&now, &before, sizeof now) != 0) {
            fail_msg("element %d, %d are counted: %g, expected %g", (int)i, (int)count, (double)now,
                     (double)before);
        }
    }
    return count;
}

/* Leaves passes where their gradients end, and where the memory of the old values ends. */
static void old_values_are_there_at_any_instruction(void **state) {
    (void)state;
    static pass p;
    const trm_optimizer_kind kinds[] = {TRM_SGD,  TRM_MOMENTUM, TRM_NESTEROV, TRM_ADAM,
                                        TRM_LARS, TRM_ADAGRAD,  TRM_FTRL};
    const int64_t ends[] = {0, 1, 15, 16, 17, 64, 65, 128, 256, 512, 768, 960, 1000, 1002};
    const trmi_update_kernels *kernels[3];
    const int kernels_count = list_kernels(kernels);
    float *gradients = map_before_gap(), *old = map_before_gap();
    struct sigaction before[2], leave = {.sa_handler = leave_pass};
    sigaction(SIGSEGV, &leave, &before[0]);
    sigaction(SIGBUS, &leave, &before[1]);
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0] * (sizeof ends / sizeof ends[0]); i++) {
        const trm_optimizer_kind kind = kinds[i % (sizeof kinds / sizeof kinds[0])];
        const int64_t end = ends[i / (sizeof kinds / sizeof kinds[0])];
        for (int k = 0; k < 2 * kernels_count; k++) {
            const int64_t at = k % 2 * 5; /* 5: all old values are copied first */
            p.gradients = gradients - end;
            p.old = old - 1024;
            const int64_t copied = interrupt_pass(&p, kernels[k / 2], kind, at);
            assert_true(copied >= end && (at != 0 || copied <= end + 16 * 16));
            p.gradients = gradients - 1024;
            p.old = old - end / 16 * 16;
            assert_true(interrupt_pass(&p, kernels[k / 2], kind, at) <= end);
        }
    }
    sigaction(SIGSEGV, &before[0], NULL);
    sigaction(SIGBUS, &before[1], NULL);
    unmap_before_gap(gradients);
    unmap_before_gap(old);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(turns_have_the_bits_of_updates_in_place),
        cmocka_unit_test(runs_without_a_change_are_no_turns),
        cmocka_unit_test(turns_can_end),
        cmocka_unit_test(own_slots_stay),
        cmocka_unit_test(gathered_slots_lie_in_one_half),
        cmocka_unit_test(old_values_are_there_at_any_instruction),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
