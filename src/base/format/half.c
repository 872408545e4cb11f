/* SPDX-License-Identifier: Apache-2.0 */
/* Scalar conversions of float16 with integer arithmetic; subnormal numbers and NaN included. */
#include "base/format/half.h"

/* Contract in half.h. Exact: every float16 is a float. */
float trmi_f16_to_float(uint16_t value) {
    uint32_t sign = (uint32_t)(value & 0x8000u) << 16;
    uint32_t exponent = value >> 10 & 0x1F, mantissa = value & 0x3FFu;
    uint32_t bits;
    if (exponent == 0x1F) {
        bits = sign | 0x7F800000u | mantissa << 13;
    } else if (exponent != 0) {
        bits = sign | (exponent + 112) << 23 | mantissa << 13;
    } else {
        /* A subnormal number is mantissa * 2^-24, exact in float. */
        float magnitude = (float)mantissa * 0x1p-24f;
        memcpy(&bits, &magnitude, 4);
        bits |= sign;
    }
    float out;
    memcpy(&out, &bits, 4);
    return out;
}

/* Contract in half.h. Rounds to nearest even; NaN stays NaN and is made quiet. */
uint16_t trmi_float_to_f16(float value) {
    uint32_t bits;
    memcpy(&bits, &value, 4);
    uint16_t sign = (uint16_t)(bits >> 16 & 0x8000u);
    bits &= 0x7FFFFFFFu;
    if (bits > 0x7F800000u) {
        return (uint16_t)(sign | 0x7E00u | (bits >> 13 & 0x3FFu));
    }
    if (bits >= 0x477FF000u) { /* 65520 and more round to infinity */
        return (uint16_t)(sign | 0x7C00u);
    }
    if (bits < 0x38800000u) { /* below 2^-14: the float adder rounds to the subnormal grid */
        float magnitude, grid = 0.5f;
        memcpy(&magnitude, &bits, 4);
        magnitude += grid;
        uint32_t rounded;
        memcpy(&rounded, &magnitude, 4);
        return (uint16_t)(sign | (rounded - 0x3F000000u));
    }
    bits += 0xC8000FFFu + (bits >> 13 & 1);
    return (uint16_t)(sign | bits >> 13);
}
