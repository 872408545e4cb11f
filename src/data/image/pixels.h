/* SPDX-License-Identifier: Apache-2.0 */
/* data/image/pixels.h: the inner loops of the image transforms, one table for each instruction
 * set. */
#ifndef TRMI_DATA_PIXELS_H
#define TRMI_DATA_PIXELS_H

#include <stdbool.h>
#include <stdint.h>

/* The loops. The tables differ in the last bits only (fused multiply-add). */
typedef struct trmi_pixels {
    /* out[i] = in[i] * scale + shift; mirrored: out[i] = in[count - 1 - i] * scale + shift. */
    void (*affine)(const uint8_t *in, int64_t count, float scale, float shift, float *out);
    void (*affine_mirror)(const uint8_t *in, int64_t count, float scale, float shift, float *out);
    /* Interleaved RGB pixels to three rows of floats (mirrored or not), or to interleaved
     * floats. */
    void (*affine_split)(const uint8_t *in, int64_t pixels, bool mirror, const float scale[3],
                         const float shift[3], float *red, float *green, float *blue);
    void (*affine_rgb)(const uint8_t *in, int64_t pixels, const float scale[3],
                       const float shift[3], float *out);
    /* Resamples one row of interleaved RGB: out[i] = sum of `taps` weights times the pixels from
     * first[i] on. `in` must be readable 16 bytes past its end. `out` has 4 floats for each pixel,
     * of which the fourth is undefined. */
    void (*resize_row)(const uint8_t *in, const int32_t *first, const float *weights, int32_t taps,
                       int64_t pixels, float *out);
    /* Adds `taps` such rows by weight and rounds to uint8 RGB. */
    void (*blend_rows)(const float *const *rows, const float *weights, int32_t taps, int64_t pixels,
                       uint8_t *out);
} trmi_pixels;

/* The loops in plain C, for every machine. */
extern const trmi_pixels trmi_pixels_plain;
#if defined(__x86_64__)
extern const trmi_pixels trmi_pixels_avx2;
#endif
/* Returns the fastest table for this CPU. */
const trmi_pixels *trmi_pixels_best(void);

#endif
