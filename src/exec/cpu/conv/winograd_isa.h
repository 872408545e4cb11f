/* SPDX-License-Identifier: Apache-2.0 */
/* exec/cpu/conv/winograd_isa.h: the transforms of Winograd's F(4x4, 3x3) (Lavin & Gray, CVPR 2016)
 * with the points 0, 1, -1, 2, -2, infinity; vectorised over channels, one table per instruction
 * set.
 *
 *   y = A' [ (G g G') . (B' d B) ] A       d 6x6 input patch, g 3x3 weights, y 4x4 outputs
 *   gradient of g: G' [ (B' d B) . (A dy A') ] G
 *
 * The 36 products are called xi = 0 .. 35 (row-major in the 6x6). A tile at the lower or right edge
 * of an image may have only ry x rx outputs, each of 2 to 4, and then uses (ry + 2) x (rx + 2)
 * pixels and xi: in each dimension the points 0 .. r and 5. */
#ifndef TRMI_EXEC_CPU_WINOGRAD_ISA_H
#define TRMI_EXEC_CPU_WINOGRAD_ISA_H

#include "trireme/base.h"

enum {
    TRMI_WINO_XI = 36,
    TRMI_WINO_IN = 36, /* pixels of an input patch */
    TRMI_WINO_OUT = 16 /* pixels of an output tile */
};

/* The transforms of one instruction set. `first`, `count`: channels; count is a multiple of
 * `channels`. */
typedef struct trmi_winograd_isa {
    const char *name;
    int channels; /* counts below are multiples of this */
    /* B' d B: to[xi * stride + c] from pixel i's channels first .. first + count - 1. */
    void (*input)(float *to, int64_t stride, const void *const pixels[TRMI_WINO_IN], trm_dtype type,
                  int64_t first, int64_t count, int ry, int rx);
    /* A dy A': the same from the 4x4 pixels of an output tile's gradient. */
    void (*gradient)(float *to, int64_t stride, const void *const pixels[TRMI_WINO_OUT],
                     trm_dtype type, int64_t first, int64_t count, int ry, int rx);
    /* A' m A: pixel i's channels from m[xi * stride + c], plus bias; NULL pixels are outside. With
     * `stream` float32 pixels, each at a 64-byte boundary, pass the caches where a vector is a
     * line; end with trmi_gemm's fence. */
    void (*output)(void *const pixels[TRMI_WINO_OUT], trm_dtype type, int64_t first, int64_t count,
                   const float *m, int64_t stride, const float *bias, int ry, int rx, bool stream);
    /* G g G': to[xi * stride + i] from tap t's from[t * tap + i], i < count. */
    void (*weights)(float *to, int64_t stride, const float *from, int64_t tap, int64_t count);
    /* G' s G: to[t * tap + i] from s[xi * stride + i]. */
    void (*weights_gradient)(float *to, int64_t tap, const float *s, int64_t stride, int64_t count);
    /* F(2x2, 3x3), by the points 0, 1, -1, infinity, of two tiles side by side, bfloat16 only; NULL
     * where the CPU has no pairs. B' d B of the patches' rows 0 .. 3, columns 0 .. 3 and 2 .. 5:
     * to[i * down + j * across + c], i, j < 4, are two bfloat16, the left tile's in the low half. A
     * dy A' of the rows 0, 1, columns 0, 1 and 2, 3. G' s G of s[(4 * i + j) * stride + c]. */
    void (*input_pair)(float *to, int64_t down, int64_t across,
                       const void *const pixels[TRMI_WINO_IN], int64_t first, int64_t count);
    void (*gradient_pair)(float *to, int64_t down, int64_t across,
                          const void *const pixels[TRMI_WINO_OUT], int64_t first, int64_t count);
    void (*weights_gradient_small)(float *to, int64_t tap, const float *s, int64_t stride,
                                   int64_t count);
    /* The same B' d B to left[xi * stride + c] and right[...] (NULL: nowhere), rounded; and G g G',
     * of those 16 xi that a tile of 2 x 2 outputs has. */
    void (*input_small)(uint16_t *left, uint16_t *right, int64_t stride,
                        const void *const pixels[TRMI_WINO_IN], int64_t first, int64_t count);
    void (*weights_small)(float *to, int64_t stride, const float *from, int64_t tap, int64_t count);
} trmi_winograd_isa;

extern const trmi_winograd_isa trmi_winograd_plain;
#if defined(__x86_64__)
extern const trmi_winograd_isa trmi_winograd_avx2, trmi_winograd_avx512, trmi_winograd_avx512bf16;
#endif
const trmi_winograd_isa *trmi_winograd(void);

#endif
