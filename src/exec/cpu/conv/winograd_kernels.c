/* SPDX-License-Identifier: Apache-2.0 */
/* exec/cpu/conv/winograd_kernels.c: the functions of a trmi_winograd_isa, compiled for each
 * instruction set (base/simd/isa.h). Two-dimensional transforms are the one-dimensional one along
 * columns, then along rows:
 *
 *   inputs     B' d B    tile of (ry + 2) x (rx + 2) pixels -> points
 *   weights    G g G'    3 x 3 weights -> points
 *   outputs    A' m A    products at the points -> ry x rx pixels
 *   backward   the transposed matrices: A of gradients of outputs, G' of gradients of weights
 *
 * Between the transforms, each point is a matrix product of its own over all tiles and channels
 * (winograd.h), which does most of the work. Channels are the vector lanes: VL of them at a time,
 * so that no transform mixes lanes. */
#include "exec/cpu/conv/winograd_isa.h"

#include "base/simd/tile.h"

/* ---- one dimension -----------------------------------------------------------------------------
 *
 * A tile of r = 4, 3 or 2 outputs takes r + 2 inputs and uses r + 2 of the six points: 0, 1, -1, 2,
 * -2 and infinity without the last finite ones. Its transforms are those of F(r, 3) at these
 * points, scaled so that the weights' transform of F(4, 3) serves all (Toom and Cook: the weights'
 * value at a point is divided by the product of its distances from the other points). */

/* Tiles of r pixels use the first r + 1 points and the last one (infinity). */
TRMI_INLINE bool is_used_point(const int r, const int point) { return point == 5 || point <= r; }

/* Multiplies r + 2 values by the matrix B': one result for each used point. `s` is the distance
 * between elements. */
TRMI_INLINE void input_1d(vec *o, const vec *d, const int s, const int r) {
    vec d0 = d[0], d1 = d[s], d2 = d[2 * s], d3 = d[3 * s];
    if (r == 2) {
        o[0] = 4.0f * (d0 - d2);
        o[s] = -3.0f * (d1 + d2);
        o[2 * s] = 3.0f * (d1 - d2);
        o[5 * s] = d3 - d1;
        return;
    }
    vec d4 = d[4 * s];
    if (r == 3) {
        o[0] = 4.0f * (d0 - d2) + 2.0f * (d3 - d1);
        o[s] = 3.0f * (d3 - d2) - 6.0f * d1;
        o[2 * s] = (d3 - 3.0f * d2) + 2.0f * d1;
        o[3 * s] = 4.0f * (d3 - d1);
        o[5 * s] = (d4 - d2) - 2.0f * (d3 - d1);
        return;
    }
    vec d5 = d[5 * s];
    vec a = d4 - 4.0f * d2, b = d3 - 4.0f * d1;
    vec c = d4 - d2, e = d3 - d1;
    o[0] = (4.0f * d0 - 5.0f * d2) + d4;
    o[s] = a + b;
    o[2 * s] = a - b;
    o[3 * s] = c + 2.0f * e;
    o[4 * s] = c - 2.0f * e;
    o[5 * s] = (4.0f * d1 - 5.0f * d3) + d5;
}

/* Multiplies the values at the used points by the matrix A'; r results. */
TRMI_INLINE void output_1d(vec *o, const int so, const vec *m, const int s, const int r) {
    vec s1 = m[s] + m[2 * s], d1 = m[s] - m[2 * s];
    if (r == 2) {
        o[0] = m[0] + s1;
        o[so] = d1 + m[5 * s];
        return;
    }
    if (r == 3) {
        o[0] = m[0] + s1 + m[3 * s];
        o[so] = d1 + 2.0f * m[3 * s];
        o[2 * so] = s1 + 4.0f * m[3 * s] + m[5 * s];
        return;
    }
    vec s2 = m[3 * s] + m[4 * s], d2 = m[3 * s] - m[4 * s];
    o[0] = m[0] + s1 + s2;
    o[so] = d1 + 2.0f * d2;
    o[2 * so] = s1 + 4.0f * s2;
    o[3 * so] = d1 + 8.0f * d2 + m[5 * s];
}

/* Multiplies r values by the matrix A: one result for each used point. */
TRMI_INLINE void gradient_1d(vec *o, const int so, const vec *y, const int s, const int r) {
    if (r == 2) {
        vec first = y[0], last = y[s];
        o[0] = first;
        o[so] = first + last;
        o[2 * so] = first - last;
        o[5 * so] = last;
        return;
    }
    if (r == 3) {
        vec first = y[0], mid = y[s], last = y[2 * s];
        o[0] = first;
        o[so] = (first + last) + mid;
        o[2 * so] = (first + last) - mid;
        o[3 * so] = first + 2.0f * mid + 4.0f * last;
        o[5 * so] = last;
        return;
    }
    vec e1 = y[0] + y[2 * s], o1 = y[s] + y[3 * s];
    vec e2 = y[0] + 4.0f * y[2 * s], o2 = 2.0f * y[s] + 8.0f * y[3 * s];
    vec first = y[0], last = y[3 * s];
    o[0] = first;
    o[so] = e1 + o1;
    o[2 * so] = e1 - o1;
    o[3 * so] = e2 + o2;
    o[4 * so] = e2 - o2;
    o[5 * so] = last;
}

/* Multiplies 3 weights by the matrix G; 6 values result. */
TRMI_INLINE void weights_1d(vec *o, const int so, const vec *g, const int s) {
    vec even = g[0] + g[2 * s], outer = g[0] + 4.0f * g[2 * s], mid = g[s], last = g[2 * s];
    o[0] = g[0] * 0.25f;
    o[so] = (even + mid) * (-1.0f / 6);
    o[2 * so] = (even - mid) * (-1.0f / 6);
    o[3 * so] = (outer + 2.0f * mid) * (1.0f / 24);
    o[4 * so] = (outer - 2.0f * mid) * (1.0f / 24);
    o[5 * so] = last;
}

/* Multiplies 6 values by the matrix G'; 3 values of the gradient of the weights result. */
TRMI_INLINE void weights_gradient_1d(vec *o, const int so, const vec *s, const int st) {
    vec s1 = s[st] + s[2 * st], d1 = s[st] - s[2 * st];
    vec s2 = s[3 * st] + s[4 * st], d2 = s[3 * st] - s[4 * st];
    o[0] = 0.25f * s[0] - s1 * (1.0f / 6) + s2 * (1.0f / 24);
    o[so] = d2 * (1.0f / 12) - d1 * (1.0f / 6);
    o[2 * so] = s2 * (1.0f / 6) - s1 * (1.0f / 6) + s[5 * st];
}

/* ---- tiles ----------------------------------------------------------------------------------- */

/* Transforms one input tile of (ry + 2) x (rx + 2) pixels, VL channels at a time: columns first,
 * then rows. Point (i, j) of the result goes to to[(6 i + j) * stride]; smaller tiles leave out
 * the points that they do not use. `type`, `ry` and `rx` are constants after inlining. */
TRMI_INLINE void input_as(float *to, int64_t stride, const void *const pixels[TRMI_WINO_IN],
                          const trm_dtype type, int64_t first, int64_t count, const int ry,
                          const int rx) {
    for (int64_t c = 0; c < count; c += VL) {
        vec d[36];
        for (int j = 0; j < rx + 2; j++) {
            vec in[6], out[6];
            for (int i = 0; i < ry + 2; i++) {
                in[i] = load_any(pixels[6 * i + j], type, first + c);
            }
            input_1d(out, in, 1, ry);
            for (int i = 0; i < 6; i++) {
                if (is_used_point(ry, i)) {
                    d[6 * i + j] = out[i];
                }
            }
        }
        for (int i = 0; i < 6; i++) {
            if (!is_used_point(ry, i)) {
                continue;
            }
            vec out[6];
            input_1d(out, d + 6 * i, 1, rx);
            for (int j = 0; j < 6; j++) {
                if (is_used_point(rx, j)) {
                    *(vec_memory *)(to + (6 * i + j) * stride + c) = out[j];
                }
            }
        }
    }
}

/* Each size of tile as a function of its own. */
#define EACH_SIZE(DO)                                                                              \
    switch (ry * 8 + rx) {                                                                         \
    case 4 * 8 + 4: DO(4, 4); break;                                                               \
    case 4 * 8 + 3: DO(4, 3); break;                                                               \
    case 4 * 8 + 2: DO(4, 2); break;                                                               \
    case 3 * 8 + 4: DO(3, 4); break;                                                               \
    case 3 * 8 + 3: DO(3, 3); break;                                                               \
    case 3 * 8 + 2: DO(3, 2); break;                                                               \
    case 2 * 8 + 4: DO(2, 4); break;                                                               \
    case 2 * 8 + 3: DO(2, 3); break;                                                               \
    default: DO(2, 2); break;                                                                      \
    }

static void transform_input(float *to, int64_t stride, const void *const pixels[TRMI_WINO_IN],
                            trm_dtype type, int64_t first, int64_t count, int ry, int rx){
#define DO_INPUT(y, x)                                                                             \
    type == TRM_BFLOAT16 ? input_as(to, stride, pixels, TRM_BFLOAT16, first, count, y, x)          \
                         : input_as(to, stride, pixels, TRM_FLOAT32, first, count, y, x)
    EACH_SIZE(DO_INPUT)}

/* Transforms the gradient of one output tile, ry x rx pixels, to the points of the product, as
 * input_as does for inputs. */
TRMI_INLINE void gradient_as(float *to, int64_t stride, const void *const pixels[TRMI_WINO_OUT],
                             const trm_dtype type, int64_t first, int64_t count, const int ry,
                             const int rx) {
    for (int64_t c = 0; c < count; c += VL) {
        vec d[24];
        for (int j = 0; j < rx; j++) {
            vec in[4];
            for (int i = 0; i < ry; i++) {
                in[i] = load_any(pixels[4 * i + j], type, first + c);
            }
            gradient_1d(d + j, 4, in, 1, ry);
        }
        for (int i = 0; i < 6; i++) {
            if (!is_used_point(ry, i)) {
                continue;
            }
            vec out[6];
            gradient_1d(out, 1, d + 4 * i, 1, rx);
            for (int j = 0; j < 6; j++) {
                if (is_used_point(rx, j)) {
                    *(vec_memory *)(to + (6 * i + j) * stride + c) = out[j];
                }
            }
        }
    }
}

/* Calls gradient_as with constants for type and size of the tile. */
static void transform_gradient(float *to, int64_t stride, const void *const pixels[TRMI_WINO_OUT],
                               trm_dtype type, int64_t first, int64_t count, int ry, int rx) {
#define DO_GRADIENT(y, x)                                                                          \
    type == TRM_BFLOAT16 ? gradient_as(to, stride, pixels, TRM_BFLOAT16, first, count, y, x)       \
                         : gradient_as(to, stride, pixels, TRM_FLOAT32, first, count, y, x)
    EACH_SIZE(DO_GRADIENT)
}

#if defined(__AVX512F__)
#define STREAM(to, value) stream_vec(to, value)
#else /* a vector is less than a cache line */
#define STREAM(to, value) (*(vec_memory *)(to) = (value))
#endif

/* Transforms the products of one tile back to ry x rx pixels, adds the bias and stores them. A
 * NULL pixel lies outside of the image. `stream`: non-temporal stores, for an output that the
 * caches cannot hold. */
TRMI_INLINE void output_as(void *const pixels[TRMI_WINO_OUT], const trm_dtype type,
                           const bool stream, int64_t first, int64_t count, const float *m,
                           int64_t stride, const float *bias, const int ry, const int rx) {
    for (int64_t c = 0; c < count; c += VL) {
        vec d[24], add = (vec){0};
        if (bias != NULL) {
            add = (vec) * (const vec_memory *)(bias + first + c);
        }
        for (int j = 0; j < 6; j++) {
            if (!is_used_point(rx, j)) {
                continue;
            }
            vec in[6];
            for (int i = 0; i < 6; i++) {
                if (is_used_point(ry, i)) {
                    in[i] = (vec) * (const vec_memory *)(m + (6 * i + j) * stride + c);
                }
            }
            output_1d(d + j, 6, in, 1, ry);
        }
        for (int i = 0; i < ry; i++) {
            vec out[4];
            output_1d(out, 1, d + 6 * i, 1, rx);
            for (int j = 0; j < rx; j++) {
                void *pixel = pixels[4 * i + j];
                if (pixel == NULL) {
                    continue;
                }
                if (type == TRM_BFLOAT16) {
                    store_half((uint16_t *)pixel + first + c, out[j] + add);
                } else if (stream) {
                    STREAM((float *)pixel + first + c, out[j] + add);
                } else {
                    *(vec_memory *)((float *)pixel + first + c) = out[j] + add;
                }
            }
        }
    }
}

/* Calls output_as with constants; streaming is for float32 only, where outputs are largest. */
static void transform_output(void *const pixels[TRMI_WINO_OUT], trm_dtype type, int64_t first,
                             int64_t count, const float *m, int64_t stride, const float *bias,
                             int ry, int rx, bool stream) {
#define DO_OUTPUT(y, x)                                                                            \
    type == TRM_BFLOAT16                                                                           \
        ? output_as(pixels, TRM_BFLOAT16, false, first, count, m, stride, bias, y, x)              \
    : stream ? output_as(pixels, TRM_FLOAT32, true, first, count, m, stride, bias, y, x)           \
             : output_as(pixels, TRM_FLOAT32, false, first, count, m, stride, bias, y, x)
    EACH_SIZE(DO_OUTPUT)
}

/* ---- weights --------------------------------------------------------------------------------- */

/* G g G': writes the 6x6 points of 3x3 weights for `count` output channels. from: tap (i, j) begins
 * at (3 i + j) * tap; to: point (i, j) at (6 i + j) * stride. */
static void transform_weights(float *to, int64_t stride, const float *from, int64_t tap,
                              int64_t count) {
    for (int64_t c = 0; c < count; c += VL) {
        vec d[18];
        for (int j = 0; j < 3; j++) {
            vec in[3];
            for (int i = 0; i < 3; i++) {
                in[i] = (vec) * (const vec_memory *)(from + (3 * i + j) * tap + c);
            }
            weights_1d(d + j, 3, in, 1);
        }
        for (int i = 0; i < 6; i++) {
            vec out[6];
            weights_1d(out, 1, d + 3 * i, 1);
            for (int j = 0; j < 6; j++) {
                *(vec_memory *)(to + (6 * i + j) * stride + c) = out[j];
            }
        }
    }
}

/* Transforms the other way round: writes the gradients of the 3x3 weights from sums at the 6x6
 * points. */
static void weights_gradient(float *to, int64_t tap, const float *s, int64_t stride,
                             int64_t count) {
    for (int64_t c = 0; c < count; c += VL) {
        vec d[18];
        for (int j = 0; j < 6; j++) {
            vec in[6];
            for (int i = 0; i < 6; i++) {
                in[i] = (vec) * (const vec_memory *)(s + (6 * i + j) * stride + c);
            }
            weights_gradient_1d(d + j, 6, in, 1);
        }
        for (int i = 0; i < 3; i++) {
            vec out[3];
            weights_gradient_1d(out, 1, d + 6 * i, 1);
            for (int j = 0; j < 3; j++) {
                *(vec_memory *)(to + (3 * i + j) * tap + c) = out[j];
            }
        }
    }
}

#if defined(__AVX512BF16__)
#include "exec/cpu/conv/winograd_isa_pairs.h"
#endif

/* The table of this instruction set. Functions of pairs are absent where the CPU multiplies
 * none. */
const trmi_winograd_isa TRMI_FOR_ISA(trmi_winograd) = {
    .name = TRMI_ISA_NAME,
    .channels = VL,
    .input = transform_input,
    .gradient = transform_gradient,
    .output = transform_output,
    .weights = transform_weights,
#if defined(__AVX512BF16__)
    .input_pair = input_pair,
    .gradient_pair = gradient_pair,
    .weights_gradient_small = weights_gradient_small,
    .input_small = input_small,
    .weights_small = weights_small,
#endif
    .weights_gradient = weights_gradient};
