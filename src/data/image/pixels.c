/* SPDX-License-Identifier: Apache-2.0 */
/* The loops of pixels.h in plain C, and the choice of a table. These loops define what the others
 * compute; vectorised ones may differ in the last bit of a float, because they use fused
 * multiply-add. */
#include "data/image/pixels.h"

#include "base/cpu.h"

#include <math.h>

/* Computes out[i] = in[i] * scale + shift. */
static void affine_bytes(const uint8_t *in, int64_t count, float scale, float shift, float *out) {
    for (int64_t i = 0; i < count; i++) {
        out[i] = (float)in[i] * scale + shift;
    }
}

/* Computes out[i] = in[count - 1 - i] * scale + shift: the mirrored row. */
static void affine_mirror(const uint8_t *in, int64_t count, float scale, float shift, float *out) {
    for (int64_t i = 0; i < count; i++) {
        out[i] = (float)in[count - 1 - i] * scale + shift;
    }
}

/* Writes interleaved pixels to three planes. */
static void affine_split(const uint8_t *in, int64_t pixels, bool mirror, const float scale[3],
                         const float shift[3], float *red, float *green, float *blue) {
    for (int64_t i = 0; i < pixels; i++) {
        int64_t to = mirror ? pixels - 1 - i : i;
        red[to] = (float)in[3 * i] * scale[0] + shift[0];
        green[to] = (float)in[3 * i + 1] * scale[1] + shift[1];
        blue[to] = (float)in[3 * i + 2] * scale[2] + shift[2];
    }
}

/* Writes interleaved pixels to interleaved floats. */
static void affine_rgb(const uint8_t *in, int64_t pixels, const float scale[3],
                       const float shift[3], float *out) {
    for (int64_t i = 0; i < 3 * pixels; i += 3) {
        for (int c = 0; c < 3; c++) {
            out[i + c] = (float)in[i + c] * scale[c] + shift[c];
        }
    }
}

/* Resizes one row: 4 floats for each pixel, of which the last is 0. */
static void resize_row(const uint8_t *in, const int32_t *first, const float *weights, int32_t taps,
                       int64_t pixels, float *out) {
    for (int64_t i = 0; i < pixels; i++) {
        const uint8_t *pixel = in + 3 * (int64_t)first[i];
        float sum[3] = {0, 0, 0};
        for (int32_t t = 0; t < taps; t++) {
            for (int c = 0; c < 3; c++) {
                sum[c] += weights[i * taps + t] * (float)pixel[3 * t + c];
            }
        }
        out[4 * i] = sum[0];
        out[4 * i + 1] = sum[1];
        out[4 * i + 2] = sum[2];
        out[4 * i + 3] = 0;
    }
}

/* Adds rows with weights, and rounds to bytes. */
static void blend_rows(const float *const *rows, const float *weights, int32_t taps, int64_t pixels,
                       uint8_t *out) {
    for (int64_t i = 0; i < pixels; i++) {
        for (int c = 0; c < 3; c++) {
            float sum = 0;
            for (int32_t t = 0; t < taps; t++) {
                sum += weights[t] * rows[t][4 * i + c];
            }
            float clamped = sum < 0 ? 0 : sum > 255 ? 255 : sum;
            out[3 * i + c] = (uint8_t)lrintf(clamped);
        }
    }
}

const trmi_pixels trmi_pixels_plain = {affine_bytes, affine_mirror, affine_split,
                                       affine_rgb,   resize_row,    blend_rows};

const trmi_pixels *trmi_pixels_best(void) {
#if defined(__x86_64__)
    if (trmi_cpu()->avx2) {
        return &trmi_pixels_avx2;
    }
#endif
    return &trmi_pixels_plain;
}
