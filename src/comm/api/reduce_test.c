/* SPDX-License-Identifier: Apache-2.0 */
/* Every type x reduction x instruction set against one obvious loop. */
#include "check.h"

#include "base/cpu.h"
#include "base/format/half.h"
#include "base/rng.h"
#include "comm/api/reduce.h"

#include <math.h>

enum { MAX_SOURCES = 9, MAX_COUNT = 1000 };

static void fill_values(void *data, trm_dtype dtype, int64_t count, uint64_t seed) {
    for (int64_t i = 0; i < count; i++) {
        uint32_t bits = trmi_random_u32(seed, TRMI_STREAM_TEST, (uint64_t)i);
        float value = trmi_unit_float(bits) * 4 - 2;
        switch (dtype) {
        case TRM_FLOAT32: ((float *)data)[i] = value; break;
        case TRM_FLOAT64: ((double *)data)[i] = value + (double)bits * 1e-12; break;
        case TRM_BFLOAT16: ((uint16_t *)data)[i] = trmi_float_to_bf16(value); break;
        case TRM_FLOAT16: ((uint16_t *)data)[i] = trmi_float_to_f16(value); break;
        case TRM_INT32: ((int32_t *)data)[i] = (int32_t)bits; break;
        case TRM_INT64: ((int64_t *)data)[i] = (int64_t)((uint64_t)bits << 31); break;
        default: ((uint8_t *)data)[i] = (uint8_t)bits;
        }
    }
}

#define COMBINE(a, b)                                                                              \
    (reduce == TRM_REDUCTION_PROD  ? (a) * (b)                                                     \
     : reduce == TRM_REDUCTION_MAX ? ((a) > (b) || (a) != (a) ? (a) : (b))                         \
     : reduce == TRM_REDUCTION_MIN ? ((a) < (b) || (a) != (a) ? (a) : (b))                         \
                                   : (a) + (b))
#define FLOAT_REFERENCE(type, acc, from, to)                                                       \
    for (int64_t i = 0; i < count; i++) {                                                          \
        acc sum = from(((const type *)sources[0])[i]);                                             \
        for (int s = 1; s < n; s++) {                                                              \
            acc next = from(((const type *)sources[s])[i]);                                        \
            sum = COMBINE(sum, next);                                                              \
        }                                                                                          \
        ((type *)out)[i] = to(reduce == TRM_REDUCTION_MEAN ? sum / (acc)n : sum);                  \
    }
/* unsigned arithmetic for sum and product, signed comparison for the rest */
#define INT_REFERENCE(type)                                                                        \
    for (int64_t i = 0; i < count; i++) {                                                          \
        int64_t pick = ((const type *)sources[0])[i];                                              \
        uint64_t total = (uint64_t)pick, product = (uint64_t)pick;                                 \
        for (int s = 1; s < n; s++) {                                                              \
            int64_t next = ((const type *)sources[s])[i];                                          \
            total += (uint64_t)next, product *= (uint64_t)next;                                    \
            bool better = reduce == TRM_REDUCTION_MAX ? next > pick : next < pick;                 \
            pick = better ? next : pick;                                                           \
        }                                                                                          \
        ((type *)out)[i] = reduce == TRM_REDUCTION_SUM    ? (type)total                            \
                           : reduce == TRM_REDUCTION_PROD ? (type)product                          \
                           : reduce == TRM_REDUCTION_MEAN ? (type)((int64_t)total / n)             \
                                                          : (type)pick;                            \
    }

static void reduce_plainly(void *out, const void *const *sources, int n, int64_t count,
                           trm_dtype dtype, trm_reduction reduce) {
    switch (dtype) {
    case TRM_FLOAT32: FLOAT_REFERENCE(float, float, , ) break;
    case TRM_FLOAT64: FLOAT_REFERENCE(double, double, , ) break;
    case TRM_BFLOAT16:
        FLOAT_REFERENCE(uint16_t, float, trmi_bf16_to_float, trmi_float_to_bf16) break;
    case TRM_FLOAT16: FLOAT_REFERENCE(uint16_t, float, trmi_f16_to_float, trmi_float_to_f16) break;
    case TRM_INT8: INT_REFERENCE(int8_t) break;
    case TRM_UINT8: INT_REFERENCE(uint8_t) break;
    case TRM_INT32: INT_REFERENCE(int32_t) break;
    default: INT_REFERENCE(int64_t)
    }
}

static void check_table(const trmi_reduce_table *table, const char *name) {
    static uint8_t data[MAX_SOURCES][MAX_COUNT * 8 + 64], expected[MAX_COUNT * 8];
    static uint8_t other[MAX_COUNT * 8 + 64];
    const int64_t counts[] = {0, 1, 7, 15, 16, 17, 63, 127, 128, 129, 512, 1000};
    for (int dtype = 1; dtype <= TRMI_REDUCE_DTYPES; dtype++) {
        size_t bytes = trm_dtype_bytes(dtype);
        for (int reduce = 1; reduce <= TRMI_REDUCE_OPS; reduce++) {
            for (int n = 1; n <= MAX_SOURCES; n += n < 3 ? 1 : 3) {
                for (size_t c = 0; c < sizeof counts / sizeof *counts; c++) {
                    int64_t count = counts[c];
                    const void *sources[MAX_SOURCES];
                    size_t shift = c % 2 ? bytes : 0; /* unaligned, too */
                    for (int s = 0; s < n; s++) {
                        sources[s] = data[s] + shift;
                        fill_values(data[s] + shift, dtype, count, (uint64_t)(s + 10 * n));
                    }
                    reduce_plainly(expected, sources, n, count, dtype, reduce);
                    void *targets[2] = {other + shift, data[0] + shift}; /* the second in place */
                    (*table)[dtype - 1][reduce - 1](targets, 2, sources, n, count, n);
                    for (int t = 0; t < 2; t++) {
                        if (memcmp(targets[t], expected, (size_t)count * bytes) != 0) {
                            fail_msg("%s %s %s of %d x %lld differs in target %d", name,
                                     trm_dtype_name(dtype), trm_reduction_name(reduce), n,
                                     (long long)count, t);
                        }
                    }
                }
            }
        }
    }
}

static void every_instruction_set(void **state) {
    check_table(&trmi_reduce_plain, "plain");
#if defined(__x86_64__)
    if (trmi_cpu()->avx2) {
        check_table(&trmi_reduce_avx2, "avx2");
    }
    if (trmi_cpu()->avx512) {
        check_table(&trmi_reduce_avx512, "avx512");
    }
#endif
}

/* In blocks, a few vectors at a time: the kernel's bits, in place. */
static void far_vectors_are_summed_alike(void **state) {
    enum { COUNT = 40001 };
    static uint8_t data[MAX_SOURCES][COUNT * 8], expected[COUNT * 8];
    const int64_t counts[] = {1, 4099, COUNT};
    int tried = 0;
    for (int dtype = 1; dtype <= TRMI_REDUCE_DTYPES; dtype++) {
        for (int reduce = 1; reduce <= TRMI_REDUCE_OPS; reduce++) {
            if (trmi_reduce_partial_dtype(dtype, reduce) != (trm_dtype)dtype) {
                continue;
            }
            for (int n = 1; n <= MAX_SOURCES; n += 2, tried++) {
                int64_t count = counts[tried % 3];
                trmi_reduction what = {dtype, reduce, n};
                const void *sources[MAX_SOURCES];
                void *target = expected, *targets[MAX_SOURCES];
                for (int s = 0; s < n; s++) {
                    sources[s] = targets[s] = data[s];
                    fill_values(data[s], dtype, count, (uint64_t)(s + 10 * n));
                }
                trmi_reduce_find(dtype, reduce)(&target, 1, sources, n, count, n);
                trmi_reduce_in_blocks(&what, targets, n, sources, n, count);
                for (int t = 0; t < n; t++) {
                    assert_memory_equal(targets[t], expected,
                                        (size_t)count * trm_dtype_bytes(dtype));
                }
            }
        }
    }
    trmi_reduction floats = {TRM_FLOAT32, TRM_REDUCTION_SUM, 1},
                   halves = {TRM_BFLOAT16, TRM_REDUCTION_SUM, 1};
    assert_true(trmi_reduce_needs_blocks(&floats, 8, 25500000));
    assert_false(trmi_reduce_needs_blocks(&floats, 8, 2097152));
    assert_false(trmi_reduce_needs_blocks(&floats, 6, 25500000));
    assert_false(trmi_reduce_needs_blocks(&halves, 8, 51000000)); /* partial sums are floats */
}

static void nan_wins(void **state) {
    for (int reduce = TRM_REDUCTION_MAX; reduce <= TRM_REDUCTION_MIN; reduce++) {
        for (int place = 0; place < 3; place++) {
            float data[3][40], out[40];
            const void *sources[3] = {data[0], data[1], data[2]};
            for (int i = 0; i < 40; i++) {
                data[0][i] = 1, data[1][i] = 2, data[2][i] = 3;
                data[place][i] = NAN;
            }
            void *target = out;
            trmi_reduce_find(TRM_FLOAT32, reduce)(&target, 1, sources, 3, 40, 3);
            for (int i = 0; i < 40; i++) {
                assert_true(isnan(out[i]));
            }
        }
    }
}

/* 256 ones in bf16: adding one by one in bf16 would stop at 256, and 8-bit sums pass through wider
 * partials when they are means. */
static void partials_are_wide(void **state) {
    uint16_t one[4], out[4];
    float wide[4], sum[4] = {0};
    for (int i = 0; i < 4; i++) {
        one[i] = trmi_float_to_bf16(1);
    }
    assert_int_equal(trmi_reduce_partial_dtype(TRM_BFLOAT16, TRM_REDUCTION_SUM), TRM_FLOAT32);
    assert_int_equal(trmi_reduce_partial_dtype(TRM_BFLOAT16, TRM_REDUCTION_MAX), TRM_BFLOAT16);
    assert_int_equal(trmi_reduce_partial_dtype(TRM_INT8, TRM_REDUCTION_MEAN), TRM_INT64);
    trmi_reduce_widen(one, TRM_BFLOAT16, wide, TRM_FLOAT32, 4);
    for (int k = 0; k < 384; k++) {
        void *target = sum;
        const void *sources[2] = {sum, wide};
        trmi_reduce_find(TRM_FLOAT32, TRM_REDUCTION_SUM)(&target, 1, sources, 2, 4, 1);
    }
    trmi_reduce_finish(sum, TRM_FLOAT32, out, TRM_BFLOAT16, 4, 1);
    assert_true(trmi_bf16_to_float(out[3]) == 384);
    trmi_reduce_finish(sum, TRM_FLOAT32, out, TRM_BFLOAT16, 4, 384);
    assert_true(trmi_bf16_to_float(out[0]) == 1);
    int64_t total[2] = {-7, 300};
    int8_t small[2];
    trmi_reduce_finish(total, TRM_INT64, small, TRM_INT8, 2, 3);
    assert_int_equal(small[0], -2);
    assert_int_equal(small[1], 100);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_instruction_set),
        cmocka_unit_test(far_vectors_are_summed_alike),
        cmocka_unit_test(nan_wins),
        cmocka_unit_test(partials_are_wide),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
