/* SPDX-License-Identifier: Apache-2.0 */
/* The optimiser (update.h) against PyTorch's trajectories (tests/golden/optimizers.h), against
 * itself for every instruction set and thread count, and sparse against dense; loss scaling.
 *
 * A trajectory is several steps with gradients of the golden file; each value must agree to
 * rounding. For instruction sets and threads every bit must agree. A gradient that is not finite
 * must change nothing. Slots in shared memory are in update_slots_test.c. */
#include "check.h"
#include "optimizer_case.h"

#include "exec/optimizer/loss_scale.h"
#include "exec/optimizer/update_state.h"

#include "base/cpu.h"
#include "base/memory.h"
#include "base/rng.h"
#include "golden/optimizers.h"

#include <math.h>
#include <string.h>
#ifdef _OPENMP
#include <omp.h>
#endif

enum { STEPS = 6 };

static float start_value(int i) { return (float)((i * 3) % 7 - 3) / 4 + 0.125f; }
static float gradient_value(int t, int i) { return (float)((t * 7 + i * 5) % 13 - 6) / 8; }

static void check_close(const char *name, const float *w, const double *expected, int count) {
    for (int i = 0; i < count; i++) {
        if (fabs((double)w[i] - expected[i]) > 2e-6 * (1 + fabs(expected[i]))) {
            fail_msg("%s[%d]: %.9g, expected %.9g", name, i, (double)w[i], expected[i]);
        }
    }
}

static void follow_steps(const char *name, trm_optimizer_options options, double rate,
                         const double *expected) {
    trm_error err;
    const trmi_update_segment segments[] = {{.offset = 0, .count = 6, .decay = true},
                                            {.offset = 6, .count = 3}};
    trmi_update *update;
    CHECK_OK(trmi_update_create(&options, segments, 2, 9, &update, &err), err);
    float w[9], g[9];
    for (int i = 0; i < 9; i++) {
        w[i] = start_value(i);
    }
    for (int t = 0; t < STEPS; t++) {
        for (int i = 0; i < 9; i++) {
            g[i] = gradient_value(t, i);
        }
        CHECK_OK(trmi_update_run(update, w, g, rate, (uint64_t)t + 1, &err), err);
    }
    check_close(name, w, expected, 9);
    trmi_update_destroy(update);
}

static void trajectories_are_pytorchs(void **state) {
    follow_steps("sgd", (trm_optimizer_options){.kind = TRM_SGD, .weight_decay = 0.01}, 0.1,
                 golden_sgd);
    follow_steps(
        "momentum",
        (trm_optimizer_options){.kind = TRM_MOMENTUM, .momentum = 0.9, .weight_decay = 0.01}, 0.1,
        golden_momentum);
    follow_steps(
        "momentum_clip",
        (trm_optimizer_options){
            .kind = TRM_MOMENTUM, .momentum = 0.9, .weight_decay = 0.01, .clip_norm = 0.75},
        0.1, golden_momentum_clip);
    follow_steps(
        "nesterov",
        (trm_optimizer_options){.kind = TRM_NESTEROV, .momentum = 0.9, .weight_decay = 0.01}, 0.1,
        golden_nesterov);
    follow_steps(
        "adam",
        (trm_optimizer_options){
            .kind = TRM_ADAM, .beta1 = 0.8, .beta2 = 0.95, .epsilon = 1e-6, .weight_decay = 0.05},
        0.02, golden_adam);
    follow_steps("adamw",
                 (trm_optimizer_options){.kind = TRM_ADAM, .weight_decay = 0.05, .decoupled = true},
                 0.02, golden_adamw);
    follow_steps("adagrad",
                 (trm_optimizer_options){
                     .kind = TRM_ADAGRAD, .weight_decay = 0.01, .initial_accumulator = 0.1},
                 0.1, golden_adagrad);
    follow_steps(
        "lars",
        (trm_optimizer_options){
            .kind = TRM_LARS, .momentum = 0.9, .weight_decay = 0.01, .trust_coefficient = 0.02},
        0.5, golden_lars);
    follow_steps("ftrl",
                 (trm_optimizer_options){
                     .kind = TRM_FTRL, .l1 = 0.2, .l2 = 0.05, .initial_accumulator = 0.1},
                 0.1, golden_ftrl);
}

/* elements of the larger segment: several blocks; pieces, also of whole blocks */
enum { WATCHED = 40000, PIECE = TRMI_UPDATE_PIECE, PIECES = 32 };

/* What a watcher has seen of an update with one slot. */
typedef struct watched {
    const trmi_update *update;
    const float *parameters;
    /* parameters, then the slot, before their pieces change; parameters by piece */
    float old[2 * (WATCHED + 100)];
    _Alignas(64) float aside[PIECES][PIECE];
    int64_t begins[PIECES]; /* of pieces; -1: there is none of this number */
    int32_t calls[PIECES];
} watched;

static trmi_update_old keep_piece(void *context, int64_t piece, int64_t count) {
    watched *seen = context;
    assert_int_equal(count, 0); /* the slots take no turns */
    const int64_t begin = seen->begins[piece];
    int64_t end;
    assert_true(begin >= 0);
    assert_int_equal(trmi_update_find_piece(seen->update, begin, &end), piece);
    trmi_update_copy_aside(seen->aside[piece], seen->parameters + begin, end - begin);
    memcpy(seen->old + begin, seen->aside[piece], (size_t)(end - begin) * sizeof(float));
    memcpy(seen->old + WATCHED + 100 + begin, trmi_update_slot(seen->update, 0, begin),
           (size_t)(end - begin) * sizeof(float));
    seen->calls[piece]++;
    return (trmi_update_old){0};
}

/* Lists the pieces of the segments [0, 80) and [100, 100 + WATCHED). */
static void list_pieces(watched *seen) {
    memset(seen->begins, -1, sizeof seen->begins);
    for (int64_t at = 0, end; at < WATCHED + 100; at = end) {
        const int64_t piece = trmi_update_find_piece(seen->update, at, &end);
        assert_true(at < 80 || at >= 100 ? piece >= 0 && piece < PIECES && end - at <= PIECE
                                         : piece == -1);
        if (piece < 0) {
            end = 100;
            continue;
        }
        seen->begins[piece] = at;
    }
}

/* A watcher sees the values before each piece changes; slots in memory of the caller have the same
 * bits. */
static void old_values_of_blocks_can_be_kept(void **state) {
    trm_error err;
    const trm_optimizer_options options = {.kind = TRM_ADAGRAD, .initial_accumulator = 0.1};
    /* a gap between the segments is of no block */
    const trmi_update_segment segments[] = {{.count = 80}, {.offset = 100, .count = WATCHED}};
    static float w[2][WATCHED + 100], g[WATCHED + 100], before[WATCHED + 100];
    static watched seen;
    trmi_update *plain, *other;
    CHECK_OK(trmi_update_create(&options, segments, 2, WATCHED + 100, &plain, &err), err);
    CHECK_OK(trmi_update_create(&options, segments, 2, WATCHED + 100, &other, &err), err);
    void *memory = trmi_map(trmi_update_lent_bytes(other));
    trmi_update_lend_slots(other, memory);
    assert_ptr_equal(trmi_update_slot(other, 0, 0), memory);
    seen.update = other;
    seen.parameters = w[1];
    list_pieces(&seen);
    trmi_update_watch(other, keep_piece, &seen);
    for (int t = 0; t < 3; t++) {
        for (int i = 0; i < WATCHED + 100; i++) {
            w[0][i] = w[1][i] = t == 0 ? start_value(i) : w[1][i];
            g[i] = gradient_value(t, i);
        }
        memcpy(before, w[1], sizeof before);
        memset(seen.old, 0, sizeof seen.old);
        memset(seen.calls, 0, sizeof seen.calls);
        CHECK_OK(trmi_update_run(plain, w[0], g, 0.1, (uint64_t)t + 1, &err), err);
        const float *slot = trmi_update_slot(plain, 0, 0);
        CHECK_OK(trmi_update_run(other, w[1], g, 0.1, (uint64_t)t + 1, &err), err);
        assert_memory_equal(w[0], w[1], sizeof before);
        assert_memory_equal(slot, memory, sizeof before);
        for (int p = 0; p < PIECES; p++) {
            assert_int_equal(seen.calls[p], seen.begins[p] >= 0);
        }
        assert_memory_equal(seen.old, before, 80 * sizeof(float));
        assert_memory_equal(seen.old + 100, before + 100, WATCHED * sizeof(float));
        assert_true(t > 0 || seen.old[WATCHED + 100] == 0.1F);
    }
    int64_t end;
    assert_int_equal(trmi_update_find_block(other, 90, &end), -1);
    assert_int_equal(trmi_update_find_block(other, WATCHED + 100, &end), -1);
    const size_t bytes = trmi_update_lent_bytes(other);
    trmi_update_destroy(plain);
    trmi_update_destroy(other);
    trmi_unmap(memory, bytes);
}

static void follow_rows(const char *name, trm_optimizer_options options, double rate,
                        const double *expected, bool prepare, trm_dtype id_dtype) {
    trm_error err;
    const trmi_update_segment segment = {.count = 10, .sparse = true, .rows = 3};
    trmi_update *update;
    CHECK_OK(trmi_update_create(&options, &segment, 1, 10, &update, &err), err);
    const int32_t short_ids[] = {3, 1, 3};
    const int64_t long_ids[] = {3, 1, 3};
    const void *ids = id_dtype == TRM_INT64 ? (const void *)long_ids : short_ids;
    float w[10], g[10] = {0}, rows[6];
    const trmi_table_gradient gradient = {
        .ids = ids, .id_dtype = id_dtype, .rows = rows, .count = 3, .width = 2};
    for (int i = 0; i < 10; i++) {
        w[i] = start_value(i);
    }
    for (int t = 0; t < STEPS; t++) {
        for (int i = 0; i < 6; i++) {
            rows[i] = gradient_value(t, i);
        }
        if (prepare) {
            CHECK_OK(trmi_update_prepare(update, &gradient, &err), err);
        }
        CHECK_OK(trmi_update_run(update, w, g, rate, (uint64_t)t + 1, &err), err);
        CHECK_OK(trmi_update_sparse(update, w, &gradient, rate, (uint64_t)t + 1, &err), err);
    }
    check_close(name, w, expected, 10);
    trmi_update_destroy(update);
}

static void sparse_trajectories_are_pytorchs(void **state) {
    for (int prepare = 0; prepare < 2; prepare++) {
        trm_dtype id = prepare ? TRM_INT32 : TRM_INT64;
        follow_rows("sgd", (trm_optimizer_options){.kind = TRM_SGD}, 0.1, golden_sparse_sgd,
                    prepare, id);
        follow_rows("adam", (trm_optimizer_options){.kind = TRM_ADAM}, 0.02, golden_sparse_adam,
                    prepare, id);
        follow_rows("adagrad",
                    (trm_optimizer_options){.kind = TRM_ADAGRAD, .initial_accumulator = 0.1}, 0.1,
                    golden_sparse_adagrad, prepare, id);
    }
}

/* ---- random ranges --------------------------------------------------------------------------- */

enum { COUNT = 100003 };

static float random_value(uint64_t stream, int64_t i) {
    return 2 * trmi_unit_float(trmi_random_u32(11, stream, (uint64_t)i)) - 1;
}

static float *random_range(uint64_t stream) {
    float *x = malloc(COUNT * sizeof *x);
    for (int64_t i = 0; i < COUNT; i++) {
        x[i] = random_value(stream, i);
    }
    return x;
}

static float *run_random(trm_optimizer_kind kind, const trmi_update_kernels *kernels, int threads) {
    trm_error err;
    trm_optimizer_options options = optimizer_case(kind, 50);
    const trmi_update_segment segments[] = {
        {.count = 1, .decay = true},
        {.offset = 17, .count = 70001, .decay = true},
        {.offset = 70020, .count = 5},
        {.offset = 70032, .count = COUNT - 70032, .decay = true}};
    trmi_update *update;
    CHECK_OK(trmi_update_create(&options, segments, 4, COUNT, &update, &err), err);
    update->kernels = kernels;
#ifdef _OPENMP
    omp_set_num_threads(threads);
#endif
    float *w = random_range(1), *g = random_range(2);
    for (uint64_t t = 1; t <= 3; t++) {
        CHECK_OK(trmi_update_run(update, w, g, 0.05, t, &err), err);
    }
    assert_true(w[10] == random_value(1, 10)); /* between segments: untouched */
    free(g);
    trmi_update_destroy(update);
    return w;
}

static void every_instruction_set_and_thread_count_agree(void **state) {
    const trmi_update_kernels *tables[3] = {&trmi_update_kernels_plain};
    int tables_count = 1;
#if defined(__x86_64__)
    if (trmi_cpu()->avx2) {
        tables[tables_count++] = &trmi_update_kernels_avx2;
    }
    if (trmi_cpu()->avx512) {
        tables[tables_count++] = &trmi_update_kernels_avx512;
    }
#endif
    for (int kind = 0; kind < TRMI_OPTIMIZERS; kind++) {
        if (!trmi_optimizer_of((trm_optimizer_kind)kind)->of_models) {
            continue;
        }
        float *plain = run_random((trm_optimizer_kind)kind, tables[0], 1);
        for (int i = 0; i < tables_count; i++) {
            float *one = run_random((trm_optimizer_kind)kind, tables[i], 1);
            float *three = run_random((trm_optimizer_kind)kind, tables[i], 3);
            assert_memory_equal(one, three, COUNT * sizeof *one);
            for (int64_t j = 0; j < COUNT; j++) {
                if (fabsf(one[j] - plain[j]) > 2e-5f) {
                    fail_msg("kind %d, table %d, element %d: %g, plain %g", kind, i, (int)j,
                             (double)one[j], (double)plain[j]);
                }
            }
            free(one);
            free(three);
        }
        free(plain);
    }
}

/* Two batches that name `used` of the rows, not the same ones; `dense` gets the same sums. */
static void sparse_equals(trm_optimizer_kind kind, trmi_update_segment dense, int used) {
    enum { ROWS = 300, WIDTH = 333, REPEATS = 2 };
    trm_error err;
    trm_optimizer_options options = optimizer_case(kind, 50);
    options.epsilon = dense.table_width == 0 && kind == TRM_ADAM ? 1e-30 : options.epsilon;
    const trmi_update_segment sparse = {.count = ROWS * WIDTH, .sparse = true};
    dense.count = sparse.count;
    trmi_update *a, *b;
    CHECK_OK(trmi_update_create(&options, &dense, 1, ROWS * WIDTH, &a, &err), err);
    CHECK_OK(trmi_update_create(&options, &sparse, 1, ROWS * WIDTH, &b, &err), err);
    float *wa = random_range(1), *wb = random_range(1), *rows = malloc(2 * COUNT * sizeof *rows);
    float *g = malloc(COUNT * sizeof *g);
    int32_t ids[ROWS * REPEATS];
    const trmi_table_gradient gradient = {
        .ids = ids, .id_dtype = TRM_INT32, .rows = rows, .count = used * REPEATS, .width = WIDTH};
    for (uint64_t t = 1; t <= 3; t++) {
        memset(g, 0, COUNT * sizeof *g);
        for (int i = 0; i < used * REPEATS; i++) {
            ids[i] = (int32_t)((trmi_permute(3, 4, (uint64_t)used, (uint64_t)(i % used)) + 50 * t) %
                               ROWS);
            for (int j = 0; j < WIDTH; j++) {
                rows[i * WIDTH + j] = random_value(7 + t, (int64_t)i * WIDTH + j);
                g[ids[i] * WIDTH + j] += rows[i * WIDTH + j];
            }
        }
        CHECK_OK(trmi_update_run(a, wa, g, 0.1, t, &err), err);
        CHECK_OK(trmi_update_prepare(b, &gradient, &err), err);
        CHECK_OK(trmi_update_run(b, wb, g, 0.1, t, &err), err);
        CHECK_OK(trmi_update_sparse(b, wb, &gradient, 0.1, t, &err), err);
        assert_true(fabs(trmi_update_norm(a) - trmi_update_norm(b)) < 1e-4);
    }
    for (int i = 0; i < ROWS * WIDTH; i++) {
        assert_true(fabsf(wa[i] - wb[i]) < 1e-5f);
    }
    free(wa);
    free(wb);
    free(g);
    free(rows);
    trmi_update_destroy(a);
    trmi_update_destroy(b);
}

/* Rows by themselves = the dense rule where every row is named, for rules that decay nothing. Adam
 * on rows is SparseAdam, which differs from Adam by the place of epsilon only. */
static void sparse_is_dense_where_all_rows_are_named(void **state) {
    for (int kind = 0; kind < TRMI_OPTIMIZERS; kind++) {
        if (!trmi_optimizer_of((trm_optimizer_kind)kind)->of_models) {
            continue;
        }
        sparse_equals((trm_optimizer_kind)kind, (trmi_update_segment){.decay = false}, 300);
    }
    (void)state;
}

/* Where gradients of tables are dense (many ranks, accumulation), as on one device. */
static void rows_that_nobody_names_rest_in_dense_tables_too(void **state) {
    for (int kind = 0; kind < TRMI_OPTIMIZERS; kind++) {
        if (!trmi_optimizer_of((trm_optimizer_kind)kind)->of_models) {
            continue;
        }
        sparse_equals((trm_optimizer_kind)kind, (trmi_update_segment){.table_width = 333}, 120);
    }
    (void)state;
}

static void nothing_changes_when_a_gradient_is_not_finite(void **state) {
    trm_error err;
    trm_optimizer_options options = optimizer_case(TRM_ADAM, 50);
    const trmi_update_segment segments[] = {{.count = 50000, .decay = true},
                                            {.offset = 50000, .count = 40, .sparse = true}};
    trmi_update *update;
    CHECK_OK(trmi_update_create(&options, segments, 2, COUNT, &update, &err), err);
    float *w = random_range(1), *before = random_range(1), *g = random_range(2);
    const float bad[] = {NAN, INFINITY, -INFINITY};
    for (int i = 0; i < 3; i++) {
        g[40000 + i * 7] = bad[i];
        CHECK_FAILS(trmi_update_run(update, w, g, 0.1, 1, &err), TRM_DIVERGED, err, "NaN or inf");
        g[40000 + i * 7] = 0;
        const int64_t ids[] = {1, 2};
        float rows[] = {0, 0, 0, bad[i]};
        const trmi_table_gradient gradient = {
            .segment = 1, .ids = ids, .id_dtype = TRM_INT64, .rows = rows, .count = 2, .width = 2};
        CHECK_FAILS(trmi_update_prepare(update, &gradient, &err), TRM_DIVERGED, err,
                    "NaN or infinite");
    }
    assert_memory_equal(w, before, COUNT * sizeof *w);
    assert_true(*trmi_update_slot(update, 0, 40000) == 0);
    /* Finite but too large to square in float: an ordinary step. */
    g[3] = 1e30f;
    CHECK_OK(trmi_update_run(update, w, g, 0.1, 1, &err), err);
    assert_true(fabs(trmi_update_norm(update) / 1e30 - 1) < 1e-6);
    CHECK_FAILS(trmi_update_run(update, w, g, NAN, 1, &err), TRM_INVALID, err, "learning rate nan");
    free(w);
    free(before);
    free(g);
    trmi_update_destroy(update);
}

static void impossible_options_are_named(void **state) {
    trm_error err;
    trmi_update *update = NULL;
    trm_optimizer_options o = {.kind = TRM_MOMENTUM, .momentum = 1.5};
    CHECK_FAILS(trmi_update_create(&o, NULL, 0, 0, &update, &err), TRM_INVALID, err,
                "momentum is 1.5");
    o = (trm_optimizer_options){.kind = TRM_SGD, .weight_decay = -1};
    CHECK_FAILS(trmi_update_create(&o, NULL, 0, 0, &update, &err), TRM_INVALID, err,
                "weight_decay is -1");
    o = (trm_optimizer_options){.kind = (trm_optimizer_kind)77};
    CHECK_FAILS(trmi_update_create(&o, NULL, 0, 0, &update, &err), TRM_INVALID, err, "rule 77");
    o = (trm_optimizer_options){.kind = TRM_ADAM};
    trmi_update_segment outside = {.offset = 5, .count = 6};
    CHECK_FAILS(trmi_update_create(&o, &outside, 1, 10, &update, &err), TRM_INVALID, err,
                "segment 0 is [5, +6)");
    outside.offset = 4;
    outside.sparse = true;
    outside.rows = 5;
    for (int64_t k = 1; k < 20; k++) {
        trmi_alloc_fail_after(k);
        trm_status status = trmi_update_create(&o, &outside, 1, 10, &update, &err);
        trmi_alloc_fail_after(0);
        if (status == TRM_OK) {
            assert_true(k > 8);
            trmi_update_destroy(update);
            return;
        }
        assert_int_equal(status, TRM_NOMEM);
    }
    fail_msg("creation takes more than 20 allocations");
}

static void gradients_accumulate(void **state) {
    float *sum = random_range(1), *a = random_range(2), *b = random_range(3);
    trmi_update_accumulate(sum, a, COUNT, 0.5f, true);
    trmi_update_accumulate(sum, b, COUNT, 0.5f, false);
    for (int i = 0; i < COUNT; i++) {
        assert_true(fabsf(sum[i] - (a[i] + b[i]) / 2) < 1e-6f);
    }
    free(sum);
    free(a);
    free(b);
}

static void ftrl_ignores_a_step_of_no_length(void **state) {
    trm_error err;
    trm_optimizer_options o = optimizer_case(TRM_FTRL, 50);
    const trmi_update_segment segment = {.count = 3};
    trmi_update *update;
    CHECK_OK(trmi_update_create(&o, &segment, 1, 3, &update, &err), err);
    float w[] = {1, 2, 3}, g[] = {1, 1, 1};
    CHECK_OK(trmi_update_run(update, w, g, 0, 1, &err), err);
    assert_true(w[0] == 1 && w[1] == 2 && w[2] == 3);
    assert_string_equal(trmi_update_slot_name(update, 1), "z");
    assert_int_equal(trmi_update_slots(update), 2);
    assert_int_equal(trmi_update_bytes(update), 24);
    trmi_update_destroy(update);
}

/* ---- loss scaling ---------------------------------------------------------------------------- */

static void loss_scale_follows_its_state_machine(void **state) {
    trm_error err;
    trmi_loss_scale s;
    CHECK_OK(trmi_loss_scale_start(&s, &(trm_loss_scale_options){.dynamic = true}, &err), err);
    assert_true(s.state.scale == 65536);
    for (int i = 0; i < 1999; i++) {
        assert_true(trmi_loss_scale_step(&s, false));
    }
    assert_true(s.state.scale == 65536);
    assert_false(trmi_loss_scale_step(&s, true)); /* the good steps are forgotten */
    assert_true(s.state.scale == 32768 && s.state.skipped == 1);
    for (int i = 0; i < 2000; i++) {
        assert_true(trmi_loss_scale_step(&s, false));
    }
    assert_true(s.state.scale == 65536);
    for (int i = 0; i < 100; i++) {
        assert_false(trmi_loss_scale_step(&s, true));
    }
    assert_true(s.state.scale == 1); /* the floor */

    trm_loss_scale_options npu = TRMI_LOSS_SCALE_EXPONENTIAL(1024, 3);
    CHECK_OK(trmi_loss_scale_start(&s, &npu, &err), err);
    assert_false(trmi_loss_scale_step(&s, true));
    assert_true(s.state.scale == 1024); /* one bad step is forgiven */
    assert_true(trmi_loss_scale_step(&s, false));
    assert_false(trmi_loss_scale_step(&s, true));
    assert_true(fabs(s.state.scale - 1024 * 0.8) < 1e-9);
    for (int i = 0; i < 3; i++) {
        assert_true(trmi_loss_scale_step(&s, false));
    }
    assert_true(fabs(s.state.scale - 2048 * 0.8) < 1e-9);
    for (int i = 0; i < 3000; i++) {
        trmi_loss_scale_step(&s, false);
    }
    assert_true(isfinite((float)s.state.scale) && s.state.scale > 1e38); /* the cap */
}

static void fixed_loss_scale_stays(void **state) {
    trm_error err;
    trmi_loss_scale s;
    CHECK_OK(trmi_loss_scale_start(&s, &(trm_loss_scale_options){.initial = 1024}, &err), err);
    assert_false(trmi_loss_scale_step(&s, true));
    assert_true(trmi_loss_scale_step(&s, false));
    assert_true(s.state.scale == 1024 && s.state.skipped == 1);
    CHECK_FAILS(trmi_loss_scale_start(&s, &(trm_loss_scale_options){.initial = 0.5}, &err),
                TRM_INVALID, err, "0.5");
    CHECK_FAILS(trmi_loss_scale_start(&s, &(trm_loss_scale_options){.shrink_by = 2}, &err),
                TRM_INVALID, err, "shrinks by 2");
    CHECK_FAILS(trmi_loss_scale_start(&s, &(trm_loss_scale_options){.grow_every = -3}, &err),
                TRM_INVALID, err, "-3");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(trajectories_are_pytorchs),
        cmocka_unit_test(old_values_of_blocks_can_be_kept),
        cmocka_unit_test(sparse_trajectories_are_pytorchs),
        cmocka_unit_test(every_instruction_set_and_thread_count_agree),
        cmocka_unit_test(sparse_is_dense_where_all_rows_are_named),
        cmocka_unit_test(rows_that_nobody_names_rest_in_dense_tables_too),
        cmocka_unit_test(nothing_changes_when_a_gradient_is_not_finite),
        cmocka_unit_test(impossible_options_are_named),
        cmocka_unit_test(gradients_accumulate),
        cmocka_unit_test(ftrl_ignores_a_step_of_no_length),
        cmocka_unit_test(loss_scale_follows_its_state_machine),
        cmocka_unit_test(fixed_loss_scale_stays),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
