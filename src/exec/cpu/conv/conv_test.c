/* SPDX-License-Identifier: Apache-2.0 */
/* Convolution steps of the onednn back-end against the definition in double precision
 * (tests/conv_check.h): forward, gradients of the image and of the weights.
 *
 * Every algorithm that takes a shape runs, by its own name and as the back-end chooses. Shapes
 * are drawn from a fixed seed, with those of ResNet beside them. Other numbers of threads must
 * give the same bits. */
#define KERNEL_THREADS 2
#include "conv_check.h"
#include "kernel_run.h"

#include "base/cpu.h"

#include "exec/cpu/gemm/gemm_isa.h"
#include "exec/cpu/tuning/tuning.h"

#include <unistd.h>

/* oneDNN 2 has few bfloat16 convolutions for CPUs without AVX-512, and says so only when one is
 * made. The step then takes another algorithm, which check_conv() compares. */
static bool may_be_unsupported(const trmi_conv_problem *p, trm_status status) {
    return status == TRM_UNSUPPORTED && p->image_type == TRM_BFLOAT16 && !trmi_cpu()->avx512;
}

/* Every algorithm that says it can, by itself. */
static void check_algorithms(const trmi_conv_problem *p, double tolerance) {
    char key[256];
    trmi_conv_key(p, key, sizeof key);
    conv_data want = check_make(p);
    check_naive(p, &want);
    for (int i = 0; trmi_conv_algorithms[i] != NULL; i++) {
        const trmi_conv_algorithm *algorithm = trmi_conv_algorithms[i];
        trm_error err = {0};
        conv_memory m = check_memory(p, &want);
        if (!algorithm->can(p)) {
            check_memory_free(&m);
            continue;
        }
        trm_status status = check_run(trmi_onednn_of(backend), algorithm, p, &m, &err);
        double error = status == TRM_OK ? check_compare(p, &want, &m) : 0;
        if ((status != TRM_OK && !may_be_unsupported(p, status)) || !(error <= tolerance)) {
            fail_msg("%s by %s: status %d %s, relative error %g, at most %g", key, algorithm->name,
                     status, err.message, error, tolerance);
        }
        check_memory_free(&m);
    }
    check_free(&want);
}

static void check_conv(const trmi_conv_problem *p, double tolerance) {
    check_algorithms(p, tolerance);
    trm_error err = {0};
    char key[256];
    conv_data t = check_make(p);
    conv_memory m = check_memory(p, &t);
    trmi_conv_key(p, key, sizeof key);
    trm_status status = check_run_step(backend, p, &m, &err);
    /* oneDNN v2 lacks most bfloat16 convolutions without AVX-512. The executor then binds the
     * reference kernel (exec_create.c), which other tests compare. */
    bool half = p->image_type == TRM_BFLOAT16 || p->weights_type == TRM_BFLOAT16 ||
                p->result_type == TRM_BFLOAT16;
    if (status == TRM_UNSUPPORTED && half && !trmi_cpu()->avx512) {
        check_memory_free(&m);
        check_free(&t);
        return;
    }
    if (status != TRM_OK) {
        fail_msg("%s: %s", key, err.message);
    }
    check_naive(p, &t);
    double error = check_compare(p, &t, &m);
    if (!(error <= tolerance)) {
        fail_msg("%s: relative error %g, at most %g", key, error, tolerance);
    }
    check_memory_free(&m);
    check_free(&t);
}

static void random_shapes(void **state) {
    for (int i = 0; i < 120; i++) {
        trmi_conv_problem p = check_random_problem((trmi_conv_direction)(i % 3));
        p.layout = i / 3 % 2 ? TRMI_PLAIN : TRMI_CHANNELS_LAST;
        p.weights_layout = p.layout;
        check_conv(&p, 2e-6);
    }
}

/* The plan may leave weights plain becontrol channels-last images, and the reverse. */
static void mixed_layouts(void **state) {
    for (int i = 0; i < 24; i++) {
        trmi_conv_problem p = check_random_problem((trmi_conv_direction)(i % 3));
        p.layout = i / 3 % 2 ? TRMI_PLAIN : TRMI_CHANNELS_LAST;
        p.weights_layout = i / 3 % 2 ? TRMI_CHANNELS_LAST : TRMI_PLAIN;
        check_conv(&p, 2e-6);
    }
}

/* bfloat16 images with float32 master weights and float32 weight gradients, and bfloat16 weights.
 */
static void bfloat16_is_the_definition(void **state) {
    for (int i = 0; i < 48; i++) {
        trmi_conv_problem p = check_random_problem((trmi_conv_direction)(i % 3));
        p.image_type = p.result_type = TRM_BFLOAT16;
        p.weights_type = i / 3 % 2 ? TRM_BFLOAT16 : TRM_FLOAT32;
        p.layout = i / 6 % 2 ? TRMI_PLAIN : TRMI_CHANNELS_LAST;
        p.weights_layout = p.layout;
        check_conv(&p, 1e-2);
    }
}

static void resnet_kinds(void **state) {
    for (int d = 0; d < 3; d++) {
        static const int64_t shapes[][7] = {
            /* n, c, hw, o, k, s, pad */
            {2, 3, 32, 64, 7, 2, 3},
            {2, 64, 14, 64, 1, 1, 0},
            {3, 64, 14, 256, 1, 2, 0},
            {2, 64, 14, 64, 3, 1, 1},
            {2, 64, 13, 96, 3, 2, 1},
            {5, 128, 7, 64, 3, 1, 1},
            {16, 64, 2, 128, 3, 1, 1},
            {33, 128, 1, 64, 3, 1, 1},
            {40, 96, 1, 200, 1, 1, 0},
            {16, 64, 2, 64, 3, 2, 1},
            {6, 32, 4, 48, 3, 1, 1},
            /* images cut by few threads */
            {100, 64, 2, 96, 1, 1, 0},
            {111, 300, 2, 70, 1, 1, 0},
            {99, 40, 2, 48, 3, 1, 1},
            /* Winograd's edges: one to three outputs in the last tile, no whole tile, many channels
             */
            {4, 32, 3, 32, 3, 1, 1},
            {3, 16, 5, 48, 3, 1, 1},
            {2, 48, 10, 16, 3, 1, 1},
            {2, 16, 11, 32, 3, 1, 0},
            {2, 144, 6, 160, 3, 1, 1},
            {5, 16, 9, 144, 3, 1, 1},
            {200, 16, 5, 112, 3, 1, 1},
            {90, 80, 9, 16, 3, 1, 1},
            /* and in pairs */
            {2, 288, 7, 272, 3, 1, 1},
            {1, 560, 6, 256, 3, 1, 0},
            /* blocks of pairs that differ by a vector, of inputs and of outputs */
            {33, 608, 1, 40, 1, 1, 0},
            {3, 40, 4, 608, 3, 1, 1}};
        for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
            const int64_t *s = shapes[i];
            trmi_conv_problem p =
                check_problem((trmi_conv_direction)d, s[0], s[1], s[2], s[3], s[4], s[5], s[6]);
            check_conv(&p, 3e-5);
            p.image_type = p.result_type = TRM_BFLOAT16;
            check_conv(&p, 1e-2);
        }
    }
}

static void *output_of(const trmi_conv_problem *p, const conv_memory *m, size_t *bytes) {
    bool data = p->direction == TRMI_CONV_DATA, forward = p->direction == TRMI_CONV_FORWARD;
    int64_t count = forward ? trmi_conv_result_count(p)
                    : data  ? trmi_conv_image_count(p)
                            : trmi_conv_weights_count(p);
    *bytes = (size_t)count * trm_dtype_bytes(forward ? p->result_type
                                             : data  ? p->image_type
                                                     : p->weights_type);
    return forward ? m->result : data ? m->image : m->weights;
}

/* All of ours, by other numbers of threads than one, of which many share what few make for
 * themselves. */
static void check_bits(const trmi_conv_problem *p, trmi_backend *const *by_threads) {
    conv_data t = check_make(p);
    for (int i = 0; trmi_conv_algorithms[i] != NULL; i++) {
        const trmi_conv_algorithm *algorithm = trmi_conv_algorithms[i];
        conv_memory one = check_memory(p, &t);
        trm_error err = {0};
        size_t bytes;
        if (algorithm == &trmi_conv_dnnl || !algorithm->can(p) ||
            check_run(trmi_onednn_of(by_threads[0]), algorithm, p, &one, &err) != TRM_OK) {
            check_memory_free(&one);
            continue;
        }
        for (int n = 1; by_threads[n] != NULL; n++) {
            conv_memory other = check_memory(p, &t);
            CHECK_OK(check_run(trmi_onednn_of(by_threads[n]), algorithm, p, &other, &err), err);
            void *want = output_of(p, &one, &bytes);
            assert_memory_equal(output_of(p, &other, &bytes), want, bytes);
            check_memory_free(&other);
        }
        check_memory_free(&one);
    }
    check_free(&t);
}

static void threads_change_no_bit(void **state) {
    static const int64_t shapes[][7] = {/* n, c, hw, o, k, s, pad */
                                        {100, 64, 2, 96, 1, 1, 0}, {111, 300, 2, 70, 1, 1, 0},
                                        {99, 40, 2, 48, 3, 1, 1},  {40, 64, 4, 64, 3, 2, 1},
                                        {60, 96, 1, 200, 1, 1, 0}, {33, 96, 1, 64, 3, 1, 1},
                                        {80, 64, 6, 64, 3, 1, 1},  {70, 48, 8, 64, 1, 1, 0}};
    static const int threads[] = {1, 2, 3, 5};
    trmi_backend *by_threads[5] = {NULL};
    trm_error err;
    for (int n = 0; n < 4; n++) {
        CHECK_OK(trmi_backend_onednn(threads[n], NULL, &by_threads[n], &err), err);
    }
    for (size_t i = 0; i < 3 * sizeof shapes / sizeof shapes[0]; i++) {
        const int64_t *s = shapes[i / 3];
        trmi_conv_problem p =
            check_problem((trmi_conv_direction)(i % 3), s[0], s[1], s[2], s[3], s[4], s[5], s[6]);
        check_bits(&p, by_threads);
        p.image_type = p.result_type = TRM_BFLOAT16;
        check_bits(&p, by_threads);
    }
    for (int n = 0; n < 4; n++) {
        by_threads[n]->destroy(by_threads[n]);
    }
}

static void refuses_other_types(void **state) {
    trm_error err;
    trmi_conv_problem p = check_problem(TRMI_CONV_FORWARD, 1, 4, 4, 4, 1, 1, 0);
    conv_data t = check_make(&p);
    conv_memory m = check_memory(&p, &t);
    p.image_type = TRM_FLOAT64;
    CHECK_FAILS(check_run_step(backend, &p, &m, &err), TRM_UNSUPPORTED, err, "types or layouts");
    check_memory_free(&m);
    check_free(&t);
}

/* With a tuning file: choices are measured once, kept, and found again by the next back-end. */
static void choices_are_measured_once(void **state) {
    char path[64];
    snprintf(path, sizeof path, "/tmp/trireme_conv_tuning_%d", (int)getpid());
    unlink(path);
    trmi_backend *shared = backend;
    int64_t lines = 0, machine = trmi_gemm_pairs() != NULL ? 3 : 2; /* rates, pairs */
    for (int pass = 0; pass < 2; pass++) {
        trm_error err;
        CHECK_OK(trmi_backend_onednn(2, path, &backend, &err), err);
        if (pass > 0) {
            assert_int_equal(trmi_tuning_count(trmi_onednn_of(backend)->tuning), lines);
        }
        assert_true(backend->target.flops_per_second > 1e8);
        assert_true(backend->target.bytes_per_second > 1e8);
        for (int d = 0; d < 3; d++) {
            trmi_conv_problem p = check_problem((trmi_conv_direction)d, 9, 32, 9, 64, 3, 1, 1);
            check_conv(&p, 3e-5);
            p = check_problem((trmi_conv_direction)d, 9, 32, 9, 64, 1, 1, 0);
            check_conv(&p, 3e-5);
        }
        lines = trmi_tuning_count(trmi_onednn_of(backend)->tuning);
        /* beside the machine's; on a busy machine the trial time may be over before */
        assert_in_range(lines, machine + 1, machine + 6);
        assert_null(trmi_onednn_of(backend)->trial);
        backend->destroy(backend);
    }
    unlink(path);
    backend = shared;
}

/* Rows of dW are those of the whole, and no others are touched but neighbours up to the next
 * sixteenth. */
static void check_rows(const trmi_conv_problem *p, int64_t begin, int64_t end, double tolerance) {
    const trmi_conv_algorithm *algorithm;
    void *made;
    int64_t bytes, total = p->kh * p->kw * p->c;
    trm_error err = {0};
    conv_data want = check_make(p);
    check_naive(p, &want);
    conv_memory m = check_memory(p, &want), rows = check_memory(p, &want);
    int64_t wd[4] = {p->o, p->c, p->kh, p->kw};
    check_store(want.weights, m.weights, TRM_FLOAT32, wd, TRMI_CHANNELS_LAST, true);
    CHECK_OK(trmi_conv_gradw_rows(trmi_onednn_of(backend), p, begin, end, &algorithm, &made, &bytes,
                                  &err),
             err);
    char *scratch = trmi_alloc((size_t)bytes);
    trmi_conv_args args = check_args(&rows, scratch);
    CHECK_OK(algorithm->run(made, &args, &err), err);
    algorithm->destroy(made);
    trmi_free(scratch);
    double difference = 0, square = 0;
    for (int64_t r = 0; r < total; r++) {
        for (int64_t o = 0; o < p->o; o++) {
            double a = (double)((const float *)m.weights)[r * p->o + o],
                   b = (double)((const float *)rows.weights)[r * p->o + o];
            if (r >= begin && r < end) {
                difference += (a - b) * (a - b);
                square += a * a;
            } else if (p->c >= 64 && (r < begin - 15 || r >= end + 15)) {
                assert_true(isnan(b));
            }
        }
    }
    assert_true(sqrt(difference / (square > 0 ? square : 1)) <= tolerance);
    check_memory_free(&m);
    check_memory_free(&rows);
    check_free(&want);
}

static void some_rows(void **state) {
    static const int64_t shapes[][7] = {/* n, c, hw, o, k, s, pad */
                                        {40, 300, 1, 64, 1, 1, 0}, {5, 600, 3, 80, 1, 2, 0},
                                        {33, 128, 1, 64, 3, 1, 1}, {16, 64, 2, 128, 3, 1, 1},
                                        {70, 513, 2, 48, 1, 1, 0}, {2, 144, 6, 160, 3, 1, 1},
                                        {3, 16, 5, 48, 3, 1, 1}};
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        const int64_t *s = shapes[i];
        trmi_conv_problem p =
            check_problem(TRMI_CONV_WEIGHTS, s[0], s[1], s[2], s[3], s[4], s[5], s[6]);
        int64_t total = p.kh * p.kw * p.c;
        for (int turn = 0; turn < 6; turn++) {
            int64_t begin = turn == 0 ? 0 : check_random((uint32_t)total);
            int64_t end = turn == 1 ? total : check_between(begin + 1, total);
            p.image_type = p.result_type = TRM_FLOAT32;
            check_rows(&p, begin, end, 3e-5);
            p.image_type = p.result_type = TRM_BFLOAT16;
            check_rows(&p, begin, end, 1e-2);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_shapes),
        cmocka_unit_test(mixed_layouts),
        cmocka_unit_test(bfloat16_is_the_definition),
        cmocka_unit_test(resnet_kinds),
        cmocka_unit_test(some_rows),
        cmocka_unit_test(threads_change_no_bit),
        cmocka_unit_test(refuses_other_types),
        cmocka_unit_test(choices_are_measured_once),
    };
    return cmocka_run_group_tests(tests, make_backend, destroy_backend);
}
