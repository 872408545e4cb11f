/* SPDX-License-Identifier: Apache-2.0 */
/* ps/table/apply_kernels.c: the rules on whole rows, and conversions of values; compiled for each
 * instruction set (base/simd/isa.h).
 *
 * A row is processed by the widest vectors, then by 8 lanes, then by single floats. */
#include "ps/table/apply.h"
#include "ps/table/lookup_loop.h"

#include "base/half.h"
#include "base/simd/isa.h"

#include <math.h>

#if TRMI_VECTOR_BYTES > 16
#define ISA_LANES (TRMI_VECTOR_BYTES / 4)
#endif

#if defined(ISA_LANES) && ISA_LANES == 16
#define V __m512
#define LOAD(p) _mm512_loadu_ps(p)
#define STORE(p, v) _mm512_storeu_ps(p, v)
#define SQRT(v) _mm512_sqrt_ps(v)
#define MINIMUM(a, b) _mm512_min_ps(a, b)
#define MAXIMUM(a, b) _mm512_max_ps(a, b)
#define SET(x) _mm512_set1_ps(x)
#define MADD(a, b, c) _mm512_fmadd_ps(a, b, c)
#define RULE(name) name##_16
#include "ps/table/apply_rules.h"
#endif
#if defined(ISA_LANES)
#define V __m256
#define LOAD(p) _mm256_loadu_ps(p)
#define STORE(p, v) _mm256_storeu_ps(p, v)
#define SQRT(v) _mm256_sqrt_ps(v)
#define MINIMUM(a, b) _mm256_min_ps(a, b)
#define MAXIMUM(a, b) _mm256_max_ps(a, b)
#define SET(x) _mm256_set1_ps(x)
#define MADD(a, b, c) _mm256_fmadd_ps(a, b, c)
#define RULE(name) name##_8
#include "ps/table/apply_rules.h"
#endif
#if defined(ISA_LANES)
#define MADD_1(a, b, c) __builtin_fmaf(a, b, c)
#else
#define MADD_1(a, b, c) ((a) * (b) + (c))
#endif
#define V float
#define LOAD(p) (*(p))
#define STORE(p, v) (*(p) = (v))
#define SQRT(v) sqrtf(v)
#define MINIMUM(a, b) ((a) < (b) ? (a) : (b))
#define MAXIMUM(a, b) ((a) > (b) ? (a) : (b))
#define SET(x) (x)
#define MADD(a, b, c) MADD_1(a, b, c)
#define RULE(name) name##_1
#include "ps/table/apply_rules.h"

#if defined(ISA_LANES) && ISA_LANES == 16
#define LOOP_16(rule)                                                                              \
    for (; i + 16 <= width; i += 16) {                                                             \
        rule##_16(w + i, s + i, g + i, width, a);                                                  \
    }
#else
#define LOOP_16(rule)
#endif
#if defined(ISA_LANES)
#define LOOP_8(rule)                                                                               \
    for (; i + 8 <= width; i += 8) {                                                               \
        rule##_8(w + i, s + i, g + i, width, a);                                                   \
    }
#else
#define LOOP_8(rule)
#endif

/* A whole row by a rule: the loops share `i`, so that each continues where the wider one ended. */
#define ROW(rule)                                                                                  \
    TRMI_ALWAYS void row_##rule(float *w, float *s, const float *g, int32_t width,                 \
                                const trmi_apply_args *a) {                                        \
        int32_t i = 0;                                                                             \
        LOOP_16(rule)                                                                              \
        LOOP_8(rule)                                                                               \
        for (; i < width; i++) {                                                                   \
            rule##_1(w + i, s + i, g + i, width, a);                                               \
        }                                                                                          \
    }
ROW(sgd)
ROW(momentum)
ROW(adagrad)
ROW(adam)
ROW(ftrl)

/* Adds up 16 partial sums by halves, in the same order in every instruction set. */
static inline float halves(float part[16]) {
    for (int32_t half = 8; half > 0; half /= 2) {
        for (int32_t lane = 0; lane < half; lane++) {
            part[lane] += part[lane + half];
        }
    }
    return part[0];
}

/* Returns the sum of squares of (gradient * scale + decay * w), for row-wise Adagrad. */
static inline float squares(const float *w, const float *g, int32_t width, float scale,
                            float decay) {
    float part[16] = {0};
    int32_t i = 0;
#if defined(ISA_LANES) && ISA_LANES == 16
    /* 16 partial sums; below they are added in the order of `halves` */
    __m512 sum = _mm512_setzero_ps();
    for (; i + 16 <= width; i += 16) {
        __m512 x = _mm512_fmadd_ps(_mm512_loadu_ps(w + i), _mm512_set1_ps(decay),
                                   _mm512_loadu_ps(g + i) * scale);
        sum += x * x;
    }
    if (i == width) {
        __m256 eight = _mm512_castps512_ps256(sum) + _mm512_extractf32x8_ps(sum, 1);
        __m128 four = _mm256_castps256_ps128(eight) + _mm256_extractf128_ps(eight, 1);
        __m128 two = four + _mm_movehl_ps(four, four);
        return _mm_cvtss_f32(two + _mm_shuffle_ps(two, two, 1));
    }
    _mm512_storeu_ps(part, sum);
#elif defined(ISA_LANES)
    __m256 low = _mm256_setzero_ps(), high = _mm256_setzero_ps();
    for (; i + 16 <= width; i += 16) {
        __m256 x = _mm256_fmadd_ps(_mm256_loadu_ps(w + i), _mm256_set1_ps(decay),
                                   _mm256_loadu_ps(g + i) * scale);
        __m256 y = _mm256_fmadd_ps(_mm256_loadu_ps(w + i + 8), _mm256_set1_ps(decay),
                                   _mm256_loadu_ps(g + i + 8) * scale);
        low += x * x;
        high += y * y;
    }
    _mm256_storeu_ps(part, low);
    _mm256_storeu_ps(part + 8, high);
#else
    for (; i + 16 <= width; i += 16) {
        for (int32_t lane = 0; lane < 16; lane++) {
            float x = MADD_1(w[i + lane], decay, g[i + lane] * scale);
            part[lane] += x * x;
        }
    }
#endif
    for (int32_t lane = 0; i < width; i++, lane++) {
        float x = MADD_1(w[i], decay, g[i] * scale);
        part[lane] += x * x;
    }
    return halves(part);
}

/* Returns the square root without setting errno. */
static inline float root(float x) {
#if defined(ISA_LANES)
    return _mm_cvtss_f32(_mm_sqrt_ss(_mm_set_ss(x))); /* no errno, no branch */
#else
    return sqrtf(x);
#endif
}

/* Row-wise Adagrad: one accumulator for each row, the mean of its squared gradients. */
TRMI_ALWAYS void row_rowwise(float *w, float *s, const float *g, int32_t width,
                             const trmi_apply_args *a) {
    const float scale = a->gradient_scale, decay = a->optimizer.weight_decay;
    s[0] += squares(w, g, width, scale, decay) / (float)width;
    float rate = a->rate / (root(s[0]) + a->optimizer.epsilon);
    int32_t i = 0;
#if defined(ISA_LANES) && ISA_LANES == 16
    for (; i + 16 <= width; i += 16) {
        __m512 old = _mm512_loadu_ps(w + i);
        __m512 x = _mm512_fmadd_ps(old, _mm512_set1_ps(decay), _mm512_loadu_ps(g + i) * scale);
        _mm512_storeu_ps(w + i, old - x * rate);
    }
#elif defined(ISA_LANES)
    for (; i + 8 <= width; i += 8) {
        __m256 old = _mm256_loadu_ps(w + i);
        __m256 x = _mm256_fmadd_ps(old, _mm256_set1_ps(decay), _mm256_loadu_ps(g + i) * scale);
        _mm256_storeu_ps(w + i, old - x * rate);
    }
#endif
    for (; i < width; i++) {
        w[i] -= MADD_1(w[i], decay, g[i] * scale) * rate;
    }
}

#include "ps/table/apply_update.h"

/* Conversions between stored values and floats. `noise` 0: round to nearest; else
 * stochastically. */
static void load_float32(const void *values, int32_t width, float *out) {
    memcpy(out, values, (size_t)width * sizeof *out);
}
static void store_float32(const float *in, int32_t width, uint64_t noise, void *values) {
    (void)noise;
    memcpy(values, in, (size_t)width * sizeof *in);
}

static void load_bfloat16(const void *values, int32_t width, float *out) {
    const uint16_t *in = values;
    for (int32_t i = 0; i < width; i++) {
        out[i] = trmi_bf16_to_float(in[i]);
    }
}
/* Rounds to bfloat16, to nearest even or stochastically; NaN and infinity stay what they are. */
static void store_bfloat16(const float *in, int32_t width, uint64_t noise, void *values) {
    uint16_t *out = values;
    for (int32_t i = 0; i < width; i++) {
        uint32_t bits;
        memcpy(&bits, in + i, 4);
        uint32_t nearest = 0x7FFFu + (bits >> 16 & 1);
        uint32_t add = noise == 0 ? nearest : trmi_rounding_bits(noise, (uint32_t)i) & 0xFFFFu;
        bool finite = (bits & 0x7F800000u) != 0x7F800000u;
        bool nan = (bits & 0x7FFFFFFFu) > 0x7F800000u;
        out[i] = (uint16_t)((finite ? bits + add : bits) >> 16 | (nan ? 0x40u : 0u));
    }
}

/* Returns the neighbour of x on the grid of float16 that `random` selects, as a float. */
static inline float float16_grid(float x, uint32_t random) {
    uint32_t bits;
    memcpy(&bits, &x, 4);
    uint32_t magnitude = bits & 0x7FFFFFFFu;
    float positive, out;
    memcpy(&positive, &magnitude, 4);
    /* Below 2^-14 the grid is 2^-24 apart. */
    float tiny = positive < 0x1p-14f ? positive : 0.0f;
    float whole = (float)(int32_t)(tiny * 0x1p24f + (float)(random >> 8) * 0x1p-24f);
    tiny = whole * 0x1p-24f;
    uint32_t normal_bits = (magnitude + (random & 0x1FFFu)) & ~0x1FFFu;
    normal_bits = normal_bits > 0x477FE000u ? 0x477FE000u : normal_bits; /* 65504 */
    uint32_t tiny_bits;
    memcpy(&tiny_bits, &tiny, 4);
    uint32_t result = positive < 0x1p-14f ? tiny_bits : normal_bits;
    result = magnitude >= 0x7F800000u ? magnitude : result;
    result |= bits & 0x80000000u;
    memcpy(&out, &result, 4);
    return out;
}

static void load_float16(const void *values, int32_t width, float *out) {
    const uint16_t *in = values;
    int32_t i = 0;
#if defined(ISA_LANES)
    for (; i + 8 <= width; i += 8) {
        _mm256_storeu_ps(out + i,
                         _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)(in + i))));
    }
#endif
    for (; i < width; i++) {
        out[i] = trmi_f16_to_float(in[i]);
    }
}
/* Stores float16. Stochastic rounding first moves the floats to the grid of float16, so that the
 * conversion is exact. */
static void store_float16(const float *in, int32_t width, uint64_t noise, void *values) {
    uint16_t *out = values;
    for (int32_t first = 0; first < width; first += 64) {
        int32_t count = width - first < 64 ? width - first : 64, i = 0;
        float grid[64];
        memcpy(grid, in + first, (size_t)count * sizeof *grid);
        for (int32_t k = 0; noise != 0 && k < count; k++) {
            grid[k] = float16_grid(grid[k], trmi_rounding_bits(noise, (uint32_t)(first + k)));
        }
#if defined(ISA_LANES)
        for (; i + 8 <= count; i += 8) {
            _mm_storeu_si128((__m128i *)(void *)(out + first + i),
                             _mm256_cvtps_ph(_mm256_loadu_ps(grid + i), 0));
        }
#endif
        for (; i < count; i++) {
            out[first + i] = trmi_float_to_f16(grid[i]);
        }
    }
}

/* Adds a scaled row. */
static void add_scaled(float *out, const float *in, float scale, int32_t width) {
    for (int32_t i = 0; i < width; i++) {
        out[i] += scale * in[i];
    }
}

const trmi_apply_kernels TRMI_FOR_ISA(trmi_apply) = {
    .apply = {[TRM_ROW_SGD] = row_sgd,
              [TRM_ROW_MOMENTUM] = row_momentum,
              [TRM_ROW_ADAGRAD] = row_adagrad,
              [TRM_ROW_ROWWISE_ADAGRAD] = row_rowwise,
              [TRM_ROW_ADAM] = row_adam,
              [TRM_ROW_LAZY_ADAM] = row_adam,
              [TRM_ROW_FTRL] = row_ftrl},
    .update = {[TRM_ROW_SGD] = update_sgd,
               [TRM_ROW_MOMENTUM] = update_momentum,
               [TRM_ROW_ADAGRAD] = update_adagrad,
               [TRM_ROW_ROWWISE_ADAGRAD] = update_rowwise,
               [TRM_ROW_LAZY_ADAM] = update_adam,
               [TRM_ROW_FTRL] = update_ftrl},
    .load = {[TRM_FLOAT32] = load_float32,
             [TRM_BFLOAT16] = load_bfloat16,
             [TRM_FLOAT16] = load_float16},
    .store = {[TRM_FLOAT32] = store_float32,
              [TRM_BFLOAT16] = store_bfloat16,
              [TRM_FLOAT16] = store_float16},
    .add_scaled = add_scaled,
    .name = TRMI_ISA_NAME,
};
