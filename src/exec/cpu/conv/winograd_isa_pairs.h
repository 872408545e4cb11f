/* SPDX-License-Identifier: Apache-2.0 */
/* exec/cpu/conv/winograd_isa_pairs.h: F(2x2, 3x3) of two tiles side by side, rounded to pairs of
 * bfloat16; the part of winograd_kernels.c for CPUs that multiply such pairs. The tiles' patches
 * have two columns in common, which are transformed once; all that lives at a time fits in the
 * registers. */

/* Multiplies 4 values of the input by the matrix B'. */
TRMI_INLINE void input_small_1d(vec o[4], vec d0, vec d1, vec d2, vec d3) {
    o[0] = d0 - d2;
    o[1] = d1 + d2;
    o[2] = d2 - d1;
    o[3] = d3 - d1;
}

/* Multiplies 2 values of the gradient by the matrix A; 4 result. */
TRMI_INLINE void gradient_small(vec o[4], vec y0, vec y1) {
    o[0] = y0;
    o[1] = y0 + y1;
    o[2] = y0 - y1;
    o[3] = y1;
}

/* Multiplies 4 values by the matrix G'; 3 values of the gradient of the weights result. */
TRMI_INLINE void weights_gradient_small_1d(vec o[3], vec s0, vec s1, vec s2, vec s3) {
    vec even = 0.5f * (s1 + s2);
    o[0] = s0 + even;
    o[1] = 0.5f * (s1 - s2);
    o[2] = even + s3;
}

/* Stores a row of the transforms of both tiles. */
TRMI_INLINE void leave_pairs(float *to, int64_t across, const vec left[4], const vec right[4]) {
    UNROLL for (int j = 0; j < 4; j++) {
        *(vec_memory *)(to + j * across) = round_pair(left[j], right[j]);
    }
}

/* Loads a patch and transforms its columns. */
TRMI_INLINE void input_columns(vec d[6][4], const void *const pixels[TRMI_WINO_IN],
                               int64_t channel) {
    UNROLL for (int j = 0; j < 6; j++) {
        vec in[4];
        UNROLL for (int i = 0; i < 4; i++) {
            in[i] = load_half((const uint16_t *)pixels[6 * i + j] + channel);
        }
        input_small_1d(d[j], in[0], in[1], in[2], in[3]);
    }
}

/* Makes V of two neighbouring 4x4 patches: columns first, which the patches share in part, then
 * rows. Point (i, j) goes to `to` + i * down + j * across, both tiles in one float. */
static void input_pair(float *to, int64_t down, int64_t across,
                       const void *const pixels[TRMI_WINO_IN], int64_t first, int64_t count) {
    for (int64_t c = 0; c < count; c += VL) {
        vec d[6][4], left[4], right[4];
        input_columns(d, pixels, first + c);
        UNROLL for (int i = 0; i < 4; i++) {
            input_small_1d(left, d[0][i], d[1][i], d[2][i], d[3][i]);
            input_small_1d(right, d[2][i], d[3][i], d[4][i], d[5][i]);
            leave_pairs(to + i * down + c, across, left, right);
        }
    }
}

/* Points 0, 1, -1, infinity among the six. */
TRMI_INLINE int point_of(int i) { return i == 3 ? 5 : i; }

/* Stores a row of points, rounded to bfloat16, at the places of F(4x4)'s points 0, 1, -1,
 * infinity. */
TRMI_INLINE void leave_row(uint16_t *to, int64_t stride, int i, const vec row[4]) {
    UNROLL for (int j = 0; j < 4; j++) {
        store_half(to + (6 * point_of(i) + point_of(j)) * stride, row[j]);
    }
}

/* Makes V of one tile, or of two neighbours (`right` not NULL), each in an array of its own: for
 * forward, whose products pair channels and not tiles. */
static void input_small(uint16_t *left, uint16_t *right, int64_t stride,
                        const void *const pixels[TRMI_WINO_IN], int64_t first, int64_t count) {
    for (int64_t c = 0; c < count; c += VL) {
        vec d[6][4], row[4];
        input_columns(d, pixels, first + c);
        UNROLL for (int i = 0; i < 4; i++) {
            input_small_1d(row, d[0][i], d[1][i], d[2][i], d[3][i]);
            leave_row(left + c, stride, i, row);
            if (right != NULL) {
                input_small_1d(row, d[2][i], d[3][i], d[4][i], d[5][i]);
                leave_row(right + c, stride, i, row);
            }
        }
    }
}

/* Multiplies 3 weights by the matrix G; 4 values result. */
TRMI_INLINE void weights_small_1d(vec o[4], vec g0, vec g1, vec g2) {
    vec even = 0.5f * (g0 + g2), mid = 0.5f * g1;
    o[0] = g0;
    o[1] = even + mid;
    o[2] = even - mid;
    o[3] = g2;
}

/* Transforms weights: G g G' of F(2x2, 3x3), in float32; the caller rounds. */
static void weights_small(float *to, int64_t stride, const float *from, int64_t tap,
                          int64_t count) {
    for (int64_t c = 0; c < count; c += VL) {
        vec d[3][4], in[3], row[4];
        UNROLL for (int j = 0; j < 3; j++) {
            UNROLL for (int i = 0; i < 3; i++) {
                in[i] = (vec) * (const vec_memory *)(from + (3 * i + j) * tap + c);
            }
            weights_small_1d(d[j], in[0], in[1], in[2]);
        }
        UNROLL for (int i = 0; i < 4; i++) {
            weights_small_1d(row, d[0][i], d[1][i], d[2][i]);
            UNROLL for (int j = 0; j < 4; j++) {
                *(vec_memory *)(to + (6 * point_of(i) + point_of(j)) * stride + c) = row[j];
            }
        }
    }
}

/* Makes Z of two neighbouring 2x2 tiles of dy: A dy A'. */
static void gradient_pair(float *to, int64_t down, int64_t across,
                          const void *const pixels[TRMI_WINO_OUT], int64_t first, int64_t count) {
    for (int64_t c = 0; c < count; c += VL) {
        vec d[4][4], left[4], right[4];
        UNROLL for (int j = 0; j < 4; j++) {
            gradient_small(d[j], load_half((const uint16_t *)pixels[j] + first + c),
                           load_half((const uint16_t *)pixels[4 + j] + first + c));
        }
        UNROLL for (int i = 0; i < 4; i++) {
            gradient_small(left, d[0][i], d[1][i]);
            gradient_small(right, d[2][i], d[3][i]);
            leave_pairs(to + i * down + c, across, left, right);
        }
    }
}

/* Transforms the sums back to the nine taps: G' S G of F(2x2, 3x3). */
static void weights_gradient_small(float *to, int64_t tap, const float *s, int64_t stride,
                                   int64_t count) {
    for (int64_t c = 0; c < count; c += VL) {
        vec d[4][3], in[4], out[3];
        UNROLL for (int j = 0; j < 4; j++) {
            UNROLL for (int i = 0; i < 4; i++) {
                in[i] = (vec) * (const vec_memory *)(s + (4 * i + j) * stride + c);
            }
            weights_gradient_small_1d(d[j], in[0], in[1], in[2], in[3]);
        }
        UNROLL for (int i = 0; i < 3; i++) {
            weights_gradient_small_1d(out, d[0][i], d[1][i], d[2][i], d[3][i]);
            UNROLL for (int j = 0; j < 3; j++) {
                *(vec_memory *)(to + (3 * i + j) * tap + c) = out[j];
            }
        }
    }
}
