/* SPDX-License-Identifier: Apache-2.0 */
/* The loops of data/image/pixels.h for AVX2 with FMA; pixels.c takes them where the CPU has both.
 * Pixels are interleaved bytes, red green blue.
 *
 * Each loop has a vector part and a scalar rest, which uses the same fused multiply-add, so that a
 * pixel's value does not depend on its position. The plain loops of pixels.c define the results,
 * and data_transform_test compares both. */
#if defined(__x86_64__)
#include "data/image/pixels.h"

#include <immintrin.h>

/* Loads 8 bytes as 8 floats. */
static inline __m256 load_bytes_as_floats(const uint8_t *in) {
    return _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)in)));
}

/* Computes out[i] = in[i] * scale + shift. */
static void affine_bytes(const uint8_t *in, int64_t count, float scale, float shift, float *out) {
    const __m256 scales = _mm256_set1_ps(scale), shifts = _mm256_set1_ps(shift);
    int64_t i = 0;
    for (; i + 8 <= count; i += 8) {
        _mm256_storeu_ps(out + i, _mm256_fmadd_ps(load_bytes_as_floats(in + i), scales, shifts));
    }
    for (; i < count; i++) {
        out[i] = __builtin_fmaf((float)in[i], scale, shift);
    }
}

/* Computes the mirrored row, out[i] = in[count - 1 - i] * scale + shift, eight values at a time. */
static void affine_mirror(const uint8_t *in, int64_t count, float scale, float shift, float *out) {
    const __m256 scales = _mm256_set1_ps(scale), shifts = _mm256_set1_ps(shift);
    const __m256i order = _mm256_setr_epi32(7, 6, 5, 4, 3, 2, 1, 0);
    int64_t i = 0;
    for (; i + 8 <= count; i += 8) {
        __m256 values = _mm256_fmadd_ps(load_bytes_as_floats(in + count - 8 - i), scales, shifts);
        _mm256_storeu_ps(out + i, _mm256_permutevar8x32_ps(values, order));
    }
    for (; i < count; i++) {
        out[i] = __builtin_fmaf((float)in[count - 1 - i], scale, shift);
    }
}

/* Splits interleaved pixels into three planes, with a scale and a shift for each. */
static void affine_split(const uint8_t *in, int64_t pixels, bool mirror, const float scale[3],
                         const float shift[3], float *red, float *green, float *blue) {
    /* Eight pixels are 24 bytes. The bytes of each channel come from the first 16 and from the last
     * 8 of them (loaded at offset 8, so that no byte past the row is read). */
    const char none = (char)0x80;
    __m128i low[3], high[3];
    for (int c = 0; c < 3; c++) {
        char from_low[16], from_high[16];
        for (int k = 0; k < 16; k++) {
            int at = 3 * k + c;
            from_low[k] = k < 8 && at < 16 ? (char)at : none;
            from_high[k] = k < 8 && at >= 16 ? (char)(at - 8) : none;
        }
        low[c] = _mm_loadu_si128((const __m128i *)from_low);
        high[c] = _mm_loadu_si128((const __m128i *)from_high);
    }
    float *out[3] = {red, green, blue};
    const __m256i backwards = _mm256_setr_epi32(7, 6, 5, 4, 3, 2, 1, 0);
    int64_t i = 0;
    /* A channel's bytes, gathered into the low 8 bytes; then as floats. */
    for (; i + 8 <= pixels; i += 8) {
        __m128i a = _mm_loadu_si128((const __m128i *)(in + 3 * i));
        __m128i b = _mm_loadu_si128((const __m128i *)(in + 3 * i + 8));
        for (int c = 0; c < 3; c++) {
            __m128i bytes = _mm_or_si128(_mm_shuffle_epi8(a, low[c]), _mm_shuffle_epi8(b, high[c]));
            __m256 values = _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(bytes));
            values = _mm256_fmadd_ps(values, _mm256_set1_ps(scale[c]), _mm256_set1_ps(shift[c]));
            /* mirrored: reverse the eight values and store them from the right end */
            if (mirror) {
                values = _mm256_permutevar8x32_ps(values, backwards);
            }
            _mm256_storeu_ps(out[c] + (mirror ? pixels - 8 - i : i), values);
        }
    }
    /* Write the last pixels, one by one. */
    for (; i < pixels; i++) {
        for (int c = 0; c < 3; c++) {
            out[c][mirror ? pixels - 1 - i : i] =
                __builtin_fmaf((float)in[3 * i + c], scale[c], shift[c]);
        }
    }
}

/* Writes interleaved pixels to interleaved floats, with a scale and a shift for each channel. */
static void affine_rgb(const uint8_t *in, int64_t pixels, const float scale[3],
                       const float shift[3], float *out) {
    /* 24 values are 8 pixels: three vectors in which the channels repeat. */
    float scales[24], shifts[24];
    for (int k = 0; k < 24; k++) {
        scales[k] = scale[k % 3];
        shifts[k] = shift[k % 3];
    }
    int64_t i = 0;
    for (; i + 24 <= 3 * pixels; i += 24) {
        for (int k = 0; k < 24; k += 8) {
            _mm256_storeu_ps(out + i + k, _mm256_fmadd_ps(load_bytes_as_floats(in + i + k),
                                                          _mm256_loadu_ps(scales + k),
                                                          _mm256_loadu_ps(shifts + k)));
        }
    }
    for (; i < 3 * pixels; i++) {
        out[i] = __builtin_fmaf((float)in[i], scale[i % 3], shift[i % 3]);
    }
}

/* Loads one pixel (and the byte after it) as 4 floats. */
static inline __m128 pixel_at(const uint8_t *in) {
    int32_t bytes;
    __builtin_memcpy(&bytes, in, 4);
    return _mm_cvtepi32_ps(_mm_cvtepu8_epi32(_mm_cvtsi32_si128(bytes)));
}

/* Resizes one row: out[i] = sum over taps of weight * pixel first[i] + t. Each result has 4 floats,
 * the last of which means nothing. */
static void resize_row(const uint8_t *in, const int32_t *first, const float *weights, int32_t taps,
                       int64_t pixels, float *out) {
    /* The usual case, two taps, without the inner loop. */
    if (taps == 2) {
        for (int64_t i = 0; i < pixels; i++) {
            const uint8_t *pixel = in + 3 * (int64_t)first[i];
            __m128 sum = _mm_mul_ps(_mm_set1_ps(weights[2 * i]), pixel_at(pixel));
            sum = _mm_fmadd_ps(_mm_set1_ps(weights[2 * i + 1]), pixel_at(pixel + 3), sum);
            _mm_storeu_ps(out + 4 * i, sum);
        }
        return;
    }
    /* Any number of taps. */
    for (int64_t i = 0; i < pixels; i++) {
        const uint8_t *pixel = in + 3 * (int64_t)first[i];
        __m128 sum = _mm_setzero_ps();
        for (int32_t t = 0; t < taps; t++) {
            sum = _mm_fmadd_ps(_mm_set1_ps(weights[i * taps + t]), pixel_at(pixel + 3 * t), sum);
        }
        _mm_storeu_ps(out + 4 * i, sum);
    }
}

/* Adds rows with weights and rounds to bytes. */
static void blend_rows(const float *const *rows, const float *weights, int32_t taps, int64_t pixels,
                       uint8_t *out) {
    /* Four pixels of four floats become sixteen bytes, of which twelve are kept. */
    const __m128i keep = _mm_setr_epi8(0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, -1, -1, -1, -1);
    int64_t i = 0;
    for (; i + 4 <= pixels; i += 4) {
        __m256 a = _mm256_setzero_ps(), b = a;
        for (int32_t t = 0; t < taps; t++) {
            __m256 weight = _mm256_set1_ps(weights[t]);
            a = _mm256_fmadd_ps(weight, _mm256_loadu_ps(rows[t] + 4 * i), a);
            b = _mm256_fmadd_ps(weight, _mm256_loadu_ps(rows[t] + 4 * i + 8), b);
        }
        __m256i words = _mm256_packs_epi32(_mm256_cvtps_epi32(a), _mm256_cvtps_epi32(b));
        /* the 256-bit pack works on 128-bit halves: put the quarters in order */
        words = _mm256_permute4x64_epi64(words, 0xD8);
        __m128i bytes =
            _mm_packus_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
        bytes = _mm_shuffle_epi8(bytes, keep);
        __builtin_memcpy(out + 3 * i, &bytes, 8);
        int32_t tail = _mm_extract_epi32(bytes, 2);
        __builtin_memcpy(out + 3 * i + 8, &tail, 4);
    }
    /* The rest, pixel by pixel, with the same operations. */
    for (; i < pixels; i++) {
        __m128 sum = _mm_setzero_ps();
        for (int32_t t = 0; t < taps; t++) {
            sum = _mm_fmadd_ps(_mm_set1_ps(weights[t]), _mm_loadu_ps(rows[t] + 4 * i), sum);
        }
        __m128i words = _mm_packs_epi32(_mm_cvtps_epi32(sum), _mm_setzero_si128());
        int32_t bytes = _mm_cvtsi128_si32(_mm_packus_epi16(words, words));
        __builtin_memcpy(out + 3 * i, &bytes, 2);
        out[3 * i + 2] = (uint8_t)(bytes >> 16);
    }
}

const trmi_pixels trmi_pixels_avx2 = {affine_bytes, affine_mirror, affine_split,
                                      affine_rgb,   resize_row,    blend_rows};
#else
typedef int trmi_pixels_avx2_unused;
#endif
