/* SPDX-License-Identifier: Apache-2.0 */
/* data/image/pixels.h: the inner loops of the image transforms, one table per instruction set. */
#ifndef TRMI_DATA_PIXELS_H
#define TRMI_DATA_PIXELS_H

#include <stdbool.h>
#include <stdint.h>

typedef struct trmi_pixels {
    /* out[i] = in[i] * scale + shift, or mirrored: out[i] = in[count - 1 - i] * scale + shift. */
    void (*affine)(const uint8_t *in, int64_t count, float scale, float shift, float *out);
    void (*affine_mirror)(const uint8_t *in, int64_t count, float scale, float shift, float *out);
    /* Interleaved RGB pixels to three rows (mirrored or not), or to interleaved floats. */
    void (*affine_split)(const uint8_t *in, int64_t pixels, bool mirror, const float scale[3],
                         const float shift[3], float *red, float *green, float *blue);
    void (*affine_rgb)(const uint8_t *in, int64_t pixels, const float scale[3],
                       const float shift[3], float *out);
    /* One row of interleaved RGB to `pixels` others: out[i] = sum of taps weights over in from
     * pixel first[i]. `in` is readable 16 bytes past its end; `out` takes 4 floats a pixel (the
     * fourth is anything). */
    void (*resize_row)(const uint8_t *in, const int32_t *first, const float *weights, int32_t taps,
                       int64_t pixels, float *out);
    /* Sum of `taps` such rows by weight, rounded to uint8 RGB. */
    void (*blend_rows)(const float *const *rows, const float *weights, int32_t taps, int64_t pixels,
                       uint8_t *out);
} trmi_pixels;

extern const trmi_pixels trmi_pixels_plain;
#if defined(__x86_64__)
extern const trmi_pixels trmi_pixels_avx2;
#endif
const trmi_pixels *trmi_pixels_best(void);

#endif
