/* SPDX-License-Identifier: Apache-2.0 */
/* comm/api/reduce_kernels.c: the reduction loops, written once over vectors of TRMI_VECTOR_BYTES
 * and compiled for each instruction set (base/simd/isa.h).
 *
 * A block of UNROLL vectors stays in registers while the loop runs over the sources. It is stored
 * after all sources were read, so a target may be one of the sources.
 *
 * Naming: memory types (bf16, i8, ...) have load_, store_, get_ and put_ functions; accumulator
 * types ("math": f32, i64, ...) have sum_, prod_, max_ and min_ for vectors and one_sum_ ... for
 * elements. */
#include "comm/api/reduce.h"

#include "base/format/half.h"
#include "base/simd/bf16.h"

#include <string.h>
#if defined(__F16C__)
#include <immintrin.h>
#endif

/* vectors of a block; elements of 4 and of 8 bytes in a vector */
enum { UNROLL = 8, LANES32 = TRMI_VECTOR_BYTES / 4, LANES64 = TRMI_VECTOR_BYTES / 8 };
typedef float vec_f32 __attribute__((vector_size(TRMI_VECTOR_BYTES)));
typedef double vec_f64 __attribute__((vector_size(TRMI_VECTOR_BYTES)));
typedef int32_t vec_i32 __attribute__((vector_size(TRMI_VECTOR_BYTES)));
typedef int64_t vec_i64 __attribute__((vector_size(TRMI_VECTOR_BYTES)));
typedef int8_t vec_i8 __attribute__((vector_size(TRMI_VECTOR_BYTES)));
typedef uint8_t vec_u8 __attribute__((vector_size(TRMI_VECTOR_BYTES)));
typedef uint32_t vec_u32 __attribute__((vector_size(TRMI_VECTOR_BYTES)));
typedef uint64_t vec_u64 __attribute__((vector_size(TRMI_VECTOR_BYTES)));
/* as many elements as vec_f32 */
typedef uint16_t vec_u16 __attribute__((vector_size(TRMI_VECTOR_BYTES / 2)));

/* LONG_BYTES: bytes of all sources above which they cannot be in a core's own cache, and are
 * prefetched AHEAD_BYTES ahead. The hardware's prefetchers stop at page boundaries and follow only
 * some of 2 x n streams. Measured with 102 MB: 2 ranks 6.6 to 4.4 ms, 8 ranks 29.6 to 26.4 ms.
 * Shorter vectors (64 KB to 2 MB) take the same time either way. */
enum { LONG_BYTES = 192 << 10, AHEAD_BYTES = 3072 };
/* Prefetches `ahead` bytes further on; 0: the data are near already. */
TRMI_INLINE void prefetch_ahead(const char *at, int ahead) {
    if (ahead > 0) {
        __builtin_prefetch(at + ahead, 0, 3);
    }
}

/* --- load and store: from the memory type to the accumulator type and back --- */
#define PLAIN_MEMORY(name, vec, element)                                                           \
    TRMI_INLINE vec load_##name(const void *from) {                                                \
        vec v;                                                                                     \
        memcpy(&v, from, sizeof v);                                                                \
        return v;                                                                                  \
    }                                                                                              \
    TRMI_INLINE void store_##name(void *to, vec v) { memcpy(to, &v, sizeof v); }                   \
    TRMI_INLINE element get_##name(const void *from) {                                             \
        element v;                                                                                 \
        memcpy(&v, from, sizeof v);                                                                \
        return v;                                                                                  \
    }                                                                                              \
    TRMI_INLINE void put_##name(void *to, element v) { memcpy(to, &v, sizeof v); }
PLAIN_MEMORY(f32, vec_f32, float)
PLAIN_MEMORY(f64, vec_f64, double)
PLAIN_MEMORY(i8, vec_i8, int8_t)
PLAIN_MEMORY(u8, vec_u8, uint8_t)
PLAIN_MEMORY(i32, vec_i32, int32_t)
PLAIN_MEMORY(i64, vec_i64, int64_t)

/* Loads and stores of the half types: vectors, then single elements. */
TRMI_INLINE vec_f32 load_bf16(const void *from) { return trmi_bf16_load(from); }
TRMI_INLINE void store_bf16(void *to, vec_f32 v) { trmi_bf16_store(to, v); }
TRMI_INLINE float get_bf16(const void *from) {
    uint16_t half;
    memcpy(&half, from, sizeof half);
    return trmi_bf16_to_float(half);
}
TRMI_INLINE void put_bf16(void *to, float v) {
    uint16_t half = trmi_float_to_bf16(v);
    memcpy(to, &half, sizeof half);
}

TRMI_INLINE float get_f16(const void *from) {
    uint16_t half;
    memcpy(&half, from, sizeof half);
    return trmi_f16_to_float(half);
}
TRMI_INLINE void put_f16(void *to, float v) {
    uint16_t half = trmi_float_to_f16(v);
    memcpy(to, &half, sizeof half);
}
#if TRMI_VECTOR_BYTES == 64
TRMI_INLINE vec_f32 load_f16(const void *from) {
    return (vec_f32)_mm512_cvtph_ps(_mm256_loadu_si256(from));
}
TRMI_INLINE void store_f16(void *to, vec_f32 v) {
    _mm256_storeu_si256(to, _mm512_cvtps_ph((__m512)v, _MM_FROUND_TO_NEAREST_INT));
}
#elif TRMI_VECTOR_BYTES == 32
TRMI_INLINE vec_f32 load_f16(const void *from) {
    return (vec_f32)_mm256_cvtph_ps(_mm_loadu_si128(from));
}
TRMI_INLINE void store_f16(void *to, vec_f32 v) {
    _mm_storeu_si128(to, _mm256_cvtps_ph((__m256)v, _MM_FROUND_TO_NEAREST_INT));
}
#else
TRMI_INLINE vec_f32 load_f16(const void *from) {
    vec_f32 v;
    for (int i = 0; i < LANES32; i++) {
        v[i] = get_f16((const char *)from + 2 * i);
    }
    return v;
}
TRMI_INLINE void store_f16(void *to, vec_f32 v) {
    for (int i = 0; i < LANES32; i++) {
        put_f16((char *)to + 2 * i, v[i]);
    }
}
#endif

/* --- the reductions, on vectors and on single elements --- */

/* Integers are added and multiplied as unsigned: overflow wraps around, without undefined
 * behaviour. max and min keep the first operand if it is NaN (a != a). */
#define ARITHMETIC(name, vec, wrap_vec, mask_vec, element, wrap)                                   \
    TRMI_INLINE vec sum_##name(vec a, vec b) { return (vec)((wrap_vec)a + (wrap_vec)b); }          \
    TRMI_INLINE vec prod_##name(vec a, vec b) { return (vec)((wrap_vec)a * (wrap_vec)b); }         \
    TRMI_INLINE vec max_##name(vec a, vec b) {                                                     \
        mask_vec keep = (mask_vec)((a > b) | (a != a));                                            \
        return (vec)((keep & (mask_vec)a) | (~keep & (mask_vec)b));                                \
    }                                                                                              \
    TRMI_INLINE vec min_##name(vec a, vec b) {                                                     \
        mask_vec keep = (mask_vec)((a < b) | (a != a));                                            \
        return (vec)((keep & (mask_vec)a) | (~keep & (mask_vec)b));                                \
    }                                                                                              \
    TRMI_INLINE element one_sum_##name(element a, element b) {                                     \
        return (element)((wrap)a + (wrap)b);                                                       \
    }                                                                                              \
    TRMI_INLINE element one_prod_##name(element a, element b) {                                    \
        return (element)((wrap)a * (wrap)b);                                                       \
    }                                                                                              \
    TRMI_INLINE element one_max_##name(element a, element b) { return a > b || a != a ? a : b; }   \
    TRMI_INLINE element one_min_##name(element a, element b) { return a < b || a != a ? a : b; }
ARITHMETIC(f32, vec_f32, vec_f32, vec_i32, float, float)
ARITHMETIC(f64, vec_f64, vec_f64, vec_i64, double, double)
ARITHMETIC(i8, vec_i8, vec_u8, vec_i8, int8_t, uint32_t)
ARITHMETIC(u8, vec_u8, vec_u8, vec_i8, uint8_t, uint32_t)
ARITHMETIC(i32, vec_i32, vec_u32, vec_i32, int32_t, uint32_t)
ARITHMETIC(i64, vec_i64, vec_u64, vec_i64, int64_t, uint64_t)

/* The operation on a finished element: none, or the division of a mean. For a divisor that is a
 * power of two, the product with the inverse has the same bits as the quotient and is much
 * faster. */
#define NOTHING(v) (v)
#define DIVIDE_BY(v) (is_power_of_two ? (v)*inverse : (v) / by)

/* The body for UNROLL vectors at element i: reads them from every source into registers, combines
 * them, and stores them to every target. AHEAD: prefetch distance in bytes, 0 for none. */
#define BLOCK(memory, math, vec, lanes, bytes, op, FINISH, AHEAD)                                  \
    vec a[UNROLL];                                                                                 \
    const char *from = (const char *)sources[0] + i * bytes;                                       \
    _Pragma("GCC unroll 8") for (int k = 0; k < UNROLL; k++) {                                     \
        prefetch_ahead(from + k * lanes * bytes, AHEAD);                                           \
        a[k] = load_##memory(from + k * lanes * bytes);                                            \
    }                                                                                              \
    for (int32_t s = 1; s < source_count; s++) {                                                   \
        from = (const char *)sources[s] + i * bytes;                                               \
        _Pragma("GCC unroll 8") for (int k = 0; k < UNROLL; k++) {                                 \
            prefetch_ahead(from + k * lanes * bytes, AHEAD);                                       \
            a[k] = op##_##math(a[k], load_##memory(from + k * lanes * bytes));                     \
        }                                                                                          \
    }                                                                                              \
    _Pragma("GCC unroll 8") for (int k = 0; k < UNROLL; k++) { a[k] = FINISH(a[k]); }              \
    for (int32_t t = 0; t < target_count; t++) {                                                   \
        char *to = (char *)targets[t] + i * bytes;                                                 \
        _Pragma("GCC unroll 8") for (int k = 0; k < UNROLL; k++) {                                 \
            store_##memory(to + k * lanes * bytes, a[k]);                                          \
        }                                                                                          \
    }

/* Defines one trmi_reduce_fn. memory: name of the load and store functions; math: name of the
 * arithmetic; vec, element: accumulator types; lanes: elements of a vec; bytes: size of an element
 * in memory; op: sum, prod, max or min; FINISH: NOTHING or DIVIDE_BY. Three loops: blocks of UNROLL
 * vectors (with prefetch if the sources are long), single vectors, single elements. */
#define KERNEL(function, memory, math, vec, element, lanes, bytes, op, FINISH)                     \
    static void function(void *const *targets, int32_t target_count, const void *const *sources,   \
                         int32_t source_count, int64_t count, int32_t divisor) {                   \
        const element by = (element)divisor;                                                       \
        const element inverse = (element)1 / (by != 0 ? by : 1);                                   \
        const bool is_power_of_two = (divisor & (divisor - 1)) == 0;                               \
        (void)by, (void)inverse, (void)is_power_of_two;                                            \
        const bool is_long = source_count * count * bytes > LONG_BYTES;                            \
        int64_t i = 0;                                                                             \
        for (; is_long && i + UNROLL * lanes <= count; i += UNROLL * lanes) {                      \
            BLOCK(memory, math, vec, lanes, bytes, op, FINISH, AHEAD_BYTES)                        \
        }                                                                                          \
        for (; i + UNROLL * lanes <= count; i += UNROLL * lanes) {                                 \
            BLOCK(memory, math, vec, lanes, bytes, op, FINISH, 0)                                  \
        }                                                                                          \
        for (; i + lanes <= count; i += lanes) {                                                   \
            vec a = load_##memory((const char *)sources[0] + i * bytes);                           \
            for (int32_t s = 1; s < source_count; s++) {                                           \
                a = op##_##math(a, load_##memory((const char *)sources[s] + i * bytes));           \
            }                                                                                      \
            a = FINISH(a);                                                                         \
            for (int32_t t = 0; t < target_count; t++) {                                           \
                store_##memory((char *)targets[t] + i * bytes, a);                                 \
            }                                                                                      \
        }                                                                                          \
        for (; i < count; i++) {                                                                   \
            element a = get_##memory((const char *)sources[0] + i * bytes);                        \
            for (int32_t s = 1; s < source_count; s++) {                                           \
                a = one_##op##_##math(a, get_##memory((const char *)sources[s] + i * bytes));      \
            }                                                                                      \
            a = FINISH(a);                                                                         \
            for (int32_t t = 0; t < target_count; t++) {                                           \
                put_##memory((char *)targets[t] + i * bytes, a);                                   \
            }                                                                                      \
        }                                                                                          \
    }

/* The kernels of one memory type; the mean of floating-point types is separate. */
#define KERNELS(memory, math, vec, element, lanes, bytes)                                          \
    KERNEL(memory##_sum, memory, math, vec, element, lanes, bytes, sum, NOTHING)                   \
    KERNEL(memory##_prod, memory, math, vec, element, lanes, bytes, prod, NOTHING)                 \
    KERNEL(memory##_max, memory, math, vec, element, lanes, bytes, max, NOTHING)                   \
    KERNEL(memory##_min, memory, math, vec, element, lanes, bytes, min, NOTHING)
#define MEAN_KERNEL(memory, math, vec, element, lanes, bytes)                                      \
    KERNEL(memory##_mean, memory, math, vec, element, lanes, bytes, sum, DIVIDE_BY)

KERNELS(f32, f32, vec_f32, float, LANES32, 4)
KERNELS(f64, f64, vec_f64, double, LANES64, 8)
KERNELS(bf16, f32, vec_f32, float, LANES32, 2)
KERNELS(f16, f32, vec_f32, float, LANES32, 2)
KERNELS(i8, i8, vec_i8, int8_t, TRMI_VECTOR_BYTES, 1)
KERNELS(u8, u8, vec_u8, uint8_t, TRMI_VECTOR_BYTES, 1)
KERNELS(i32, i32, vec_i32, int32_t, LANES32, 4)
KERNELS(i64, i64, vec_i64, int64_t, LANES64, 8)
MEAN_KERNEL(f32, f32, vec_f32, float, LANES32, 4)
MEAN_KERNEL(f64, f64, vec_f64, double, LANES64, 8)
MEAN_KERNEL(bf16, f32, vec_f32, float, LANES32, 2)
MEAN_KERNEL(f16, f32, vec_f32, float, LANES32, 2)

/* Means of integers are rare: a plain loop that sums in 64 bits. */
#define INTEGER_MEAN(memory, element)                                                              \
    static void memory##_mean(void *const *targets, int32_t target_count,                          \
                              const void *const *sources, int32_t source_count, int64_t count,     \
                              int32_t divisor) {                                                   \
        for (int64_t i = 0; i < count; i++) {                                                      \
            uint64_t sum = 0;                                                                      \
            for (int32_t s = 0; s < source_count; s++) {                                           \
                sum += (uint64_t)(int64_t)get_##memory((const element *)sources[s] + i);           \
            }                                                                                      \
            for (int32_t t = 0; t < target_count; t++) {                                           \
                put_##memory((element *)targets[t] + i, (element)((int64_t)sum / divisor));        \
            }                                                                                      \
        }                                                                                          \
    }
INTEGER_MEAN(i8, int8_t)
INTEGER_MEAN(u8, uint8_t)
INTEGER_MEAN(i32, int32_t)
INTEGER_MEAN(i64, int64_t)

/* The table, in the order of trm_reduction: sum, mean, prod, max, min. */
#define ROW(memory)                                                                                \
    { memory##_sum, memory##_mean, memory##_prod, memory##_max, memory##_min }
const trmi_reduce_table TRMI_FOR_ISA(trmi_reduce) = {
    [TRM_FLOAT32 - 1] = ROW(f32), [TRM_FLOAT64 - 1] = ROW(f64), [TRM_BFLOAT16 - 1] = ROW(bf16),
    [TRM_FLOAT16 - 1] = ROW(f16), [TRM_INT8 - 1] = ROW(i8),     [TRM_UINT8 - 1] = ROW(u8),
    [TRM_INT32 - 1] = ROW(i32),   [TRM_INT64 - 1] = ROW(i64),
};
