/* SPDX-License-Identifier: Apache-2.0 */
/* ps/table/apply_kernels.c: the rules on whole rows, and conversions of values; compiled for each
 * instruction set (base/simd/isa.h). The rules themselves are in base/simd/optimizer_rules.h, which
 * the optimiser of ranks (exec/optimizer/update_kernels.c) uses, too: same rule, same bits.
 *
 *   a row in a table   load_ (float32, bfloat16, float16) -> rule -> store_, with rounding that the
 *                      table asks for (to nearest, or by a random number of the row and the update)
 *
 * Invariant: sums over a row have 16 partial sums that are added by halves, in every instruction
 * set, so that servers on different CPUs hold equal rows. */
#include "ps/table/apply.h"
#include "ps/table/lookup_loop.h"

#include "base/format/half.h"
#include "base/simd/isa.h"
#include "base/simd/optimizer_rules.h"

#include <math.h>

/* Adds up 16 partial sums by halves, in the same order in every instruction set. */
static inline float add_halves(float part[16]) {
    for (int32_t half = 8; half > 0; half /= 2) {
        for (int32_t i = 0; i < half; i++) {
            part[i] += part[i + half];
        }
    }
    return part[0];
}

/* Returns the sum of squares of the row's gradient with scale and decay, from 16 partial sums:
 * element i belongs to sum i % 16. */
static inline float sum_of_squares(const trmi_rule *r, const float *w, const float *g,
                                   int64_t width) {
    enum { SUMS = 16 / VL };
    vf sum[SUMS];
    for (int j = 0; j < SUMS; j++) {
        sum[j] = vf_zero();
    }
    int64_t i = 0;
    for (; i + 16 <= width; i += 16) {
        for (int j = 0; j < SUMS; j++) {
            vf x = scaled_gradient(r, vf_load(w + i + j * VL), vf_load(g + i + j * VL));
            sum[j] = vf_fma(x, x, sum[j]);
        }
    }
    float part[16];
    for (int j = 0; j < SUMS; j++) {
        vf_store(part + j * VL, sum[j]);
    }
    for (int k = 0; i < width; i++, k++) {
        vf x = scaled_gradient(r, vf_set(w[i]), vf_set(g[i]));
        part[k] = vf_first(vf_fma(x, x, vf_set(part[k])));
    }
    return add_halves(part);
}

/* Applies row-wise Adagrad (as in PyTorch's FBGEMM): a row has one accumulator, of the mean squared
 * gradient. */
TRMI_INLINE void rowwise_pass(const trmi_rule *r, float *w, const float *g, float *s0, float *s1,
                              int64_t width) {
    (void)s1;
    s0[0] += sum_of_squares(r, w, g, width) / (float)width;
    trmi_rule sgd = *r;
    sgd.lr = r->lr / (sqrtf(s0[0]) + r->epsilon);
    sgd_pass(&sgd, w, g, NULL, NULL, width);
}

#define APPLY(name)                                                                                \
    static void apply_##name(const trmi_rule *r, float *w, const float *g, float *slot0,           \
                             float *slot1, int64_t width) {                                        \
        name##_pass(r, w, g, slot0, slot1, width);                                                 \
    }
APPLY(sgd)
APPLY(momentum)
APPLY(nesterov)
APPLY(adagrad)
APPLY(rowwise)
APPLY(adam)
APPLY(ftrl)

#include "ps/table/apply_update.h"

/* Conversions between stored values and floats. `noise` 0: round to nearest; else
 * stochastically. */
static void load_float32(const void *values, int32_t width, float *out) {
    memcpy(out, values, (size_t)width * sizeof *out);
}
/* Conversions of a row: float32 is copied; the half types are widened, and rounded when they are
 * stored. `noise`: random bits for stochastic rounding, of the row and the update. */
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

/* Converts a row of float16 gradients to float32. */
static void load_float16(const void *values, int32_t width, float *out) {
    const uint16_t *in = values;
    int32_t i = 0;
#if defined(__F16C__)
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
#if defined(__F16C__)
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

/* The table of this instruction set. Rules without an `update` go row by row. */
const trmi_apply_kernels TRMI_FOR_ISA(trmi_apply) = {
    .apply = {[TRM_SGD] = apply_sgd,
              [TRM_MOMENTUM] = apply_momentum,
              [TRM_ADAGRAD] = apply_adagrad,
              [TRM_ROWWISE_ADAGRAD] = apply_rowwise,
              [TRM_ADAM] = apply_adam,
              [TRM_LAZY_ADAM] = apply_adam,
              [TRM_FTRL] = apply_ftrl,
              [TRM_NESTEROV] = apply_nesterov},
    .update = {[TRM_SGD] = update_sgd,
               [TRM_MOMENTUM] = update_momentum,
               [TRM_ADAGRAD] = update_adagrad,
               [TRM_ROWWISE_ADAGRAD] = update_rowwise,
               [TRM_LAZY_ADAM] = update_adam,
               [TRM_FTRL] = update_ftrl,
               [TRM_NESTEROV] = update_nesterov},
    .load = {[TRM_FLOAT32] = load_float32,
             [TRM_BFLOAT16] = load_bfloat16,
             [TRM_FLOAT16] = load_float16},
    .store = {[TRM_FLOAT32] = store_float32,
              [TRM_BFLOAT16] = store_bfloat16,
              [TRM_FLOAT16] = store_float16},
    .add_scaled = add_scaled,
    .name = TRMI_ISA_NAME,
};
