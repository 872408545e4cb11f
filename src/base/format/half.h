/* SPDX-License-Identifier: Apache-2.0 */
/* base/format/half.h: scalar conversions between float and the 16-bit formats bfloat16 and float16,
 * rounding to nearest even. */
#ifndef TRMI_BASE_HALF_H
#define TRMI_BASE_HALF_H

#include <stdint.h>
#include <string.h>

/* Converts bfloat16 to float; exact. */
static inline float trmi_bf16_to_float(uint16_t value) {
    uint32_t bits = (uint32_t)value << 16;
    float out;
    memcpy(&out, &bits, 4);
    return out;
}

/* Rounds a float to bfloat16. */
static inline uint16_t trmi_float_to_bf16(float value) {
    uint32_t bits;
    memcpy(&bits, &value, 4);
    if ((bits & 0x7FFFFFFFu) > 0x7F800000u) {
        return (uint16_t)(bits >> 16 | 0x40); /* quiet NaN stays NaN */
    }
    return (uint16_t)((bits + 0x7FFFu + (bits >> 16 & 1)) >> 16);
}

/* Converts float16 to float (exact), and rounds a float to float16. */
float trmi_f16_to_float(uint16_t value);
uint16_t trmi_float_to_f16(float value);

#endif
