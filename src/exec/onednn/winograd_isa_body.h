/* exec/onednn/winograd_isa_body.h: the functions of a trmi_winograd_isa, written once. Included by
 * winograd_isa_*.c, which define VL and NAME. Two-dimensional transforms are the one-dimensional one
 * along columns, then along rows. */
#include "exec/onednn/winograd_isa.h"

#include "exec/onednn/vec_body.h"

/* ---- one dimension ----------------------------------------------------------------------------- */

/* B': 6 -> 6. `s` is the distance between elements. */
INLINE void input_1d(vec *o, const vec *d, const int s) {
    vec d0 = d[0], d1 = d[s], d2 = d[2 * s], d3 = d[3 * s], d4 = d[4 * s], d5 = d[5 * s];
    vec a = d4 - 4.0f * d2, b = d3 - 4.0f * d1;
    vec c = d4 - d2, e = d3 - d1;
    o[0] = (4.0f * d0 - 5.0f * d2) + d4;
    o[s] = a + b;
    o[2 * s] = a - b;
    o[3 * s] = c + 2.0f * e;
    o[4 * s] = c - 2.0f * e;
    o[5 * s] = (4.0f * d1 - 5.0f * d3) + d5;
}

/* A': 6 -> 4. */
INLINE void output_1d(vec *o, const int so, const vec *m, const int s) {
    vec s1 = m[s] + m[2 * s], d1 = m[s] - m[2 * s];
    vec s2 = m[3 * s] + m[4 * s], d2 = m[3 * s] - m[4 * s];
    o[0] = m[0] + s1 + s2;
    o[so] = d1 + 2.0f * d2;
    o[2 * so] = s1 + 4.0f * s2;
    o[3 * so] = d1 + 8.0f * d2 + m[5 * s];
}

/* A: 4 -> 6. */
INLINE void gradient_1d(vec *o, const int so, const vec *y, const int s) {
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

/* G: 3 -> 6. */
INLINE void weights_1d(vec *o, const int so, const vec *g, const int s) {
    vec even = g[0] + g[2 * s], outer = g[0] + 4.0f * g[2 * s], mid = g[s], last = g[2 * s];
    o[0] = g[0] * 0.25f;
    o[so] = (even + mid) * (-1.0f / 6);
    o[2 * so] = (even - mid) * (-1.0f / 6);
    o[3 * so] = (outer + 2.0f * mid) * (1.0f / 24);
    o[4 * so] = (outer - 2.0f * mid) * (1.0f / 24);
    o[5 * so] = last;
}

/* G': 6 -> 3. */
INLINE void weights_gradient_1d(vec *o, const int so, const vec *s, const int st) {
    vec s1 = s[st] + s[2 * st], d1 = s[st] - s[2 * st];
    vec s2 = s[3 * st] + s[4 * st], d2 = s[3 * st] - s[4 * st];
    o[0] = 0.25f * s[0] - s1 * (1.0f / 6) + s2 * (1.0f / 24);
    o[so] = d2 * (1.0f / 12) - d1 * (1.0f / 6);
    o[2 * so] = s2 * (1.0f / 6) - s1 * (1.0f / 6) + s[5 * st];
}

/* ---- tiles --------------------------------------------------------------------------------------- */

INLINE void input_as(float *to, int64_t stride, const void *const pixels[TRMI_WINO_IN],
                     const trm_dtype type, int64_t first, int64_t count) {
    for (int64_t c = 0; c < count; c += VL) {
        vec d[36];
        for (int j = 0; j < 6; j++) {
            vec in[6], out[6];
            for (int i = 0; i < 6; i++) {
                in[i] = load_any(pixels[6 * i + j], type, first + c);
            }
            input_1d(out, in, 1);
            for (int i = 0; i < 6; i++) {
                d[6 * i + j] = out[i];
            }
        }
        for (int i = 0; i < 6; i++) {
            vec out[6];
            input_1d(out, d + 6 * i, 1);
            for (int j = 0; j < 6; j++) {
                *(vec_memory *)(to + (6 * i + j) * stride + c) = out[j];
            }
        }
    }
}

static void input(float *to, int64_t stride, const void *const pixels[TRMI_WINO_IN], trm_dtype type,
                  int64_t first, int64_t count) {
    if (type == TRM_BFLOAT16) {
        input_as(to, stride, pixels, TRM_BFLOAT16, first, count);
    } else {
        input_as(to, stride, pixels, TRM_FLOAT32, first, count);
    }
}

INLINE void gradient_as(float *to, int64_t stride, const void *const pixels[TRMI_WINO_OUT],
                        const trm_dtype type, int64_t first, int64_t count) {
    for (int64_t c = 0; c < count; c += VL) {
        vec d[24];
        for (int j = 0; j < 4; j++) {
            vec in[4];
            for (int i = 0; i < 4; i++) {
                in[i] = load_any(pixels[4 * i + j], type, first + c);
            }
            gradient_1d(d + j, 4, in, 1);
        }
        for (int i = 0; i < 6; i++) {
            vec out[6];
            gradient_1d(out, 1, d + 4 * i, 1);
            for (int j = 0; j < 6; j++) {
                *(vec_memory *)(to + (6 * i + j) * stride + c) = out[j];
            }
        }
    }
}

static void gradient(float *to, int64_t stride, const void *const pixels[TRMI_WINO_OUT],
                     trm_dtype type, int64_t first, int64_t count) {
    if (type == TRM_BFLOAT16) {
        gradient_as(to, stride, pixels, TRM_BFLOAT16, first, count);
    } else {
        gradient_as(to, stride, pixels, TRM_FLOAT32, first, count);
    }
}

INLINE void output_as(void *const pixels[TRMI_WINO_OUT], const trm_dtype type, int64_t first,
                      int64_t count, const float *m, int64_t stride, const float *bias) {
    for (int64_t c = 0; c < count; c += VL) {
        vec d[24], add = (vec){0};
        if (bias != NULL) {
            add = (vec) * (const vec_memory *)(bias + first + c);
        }
        for (int j = 0; j < 6; j++) {
            vec in[6];
            for (int i = 0; i < 6; i++) {
                in[i] = (vec) * (const vec_memory *)(m + (6 * i + j) * stride + c);
            }
            output_1d(d + j, 6, in, 1);
        }
        for (int i = 0; i < 4; i++) {
            vec out[4];
            output_1d(out, 1, d + 6 * i, 1);
            for (int j = 0; j < 4; j++) {
                void *pixel = pixels[4 * i + j];
                if (pixel == NULL) {
                    continue;
                }
                if (type == TRM_BFLOAT16) {
                    store_half((uint16_t *)pixel + first + c, out[j] + add);
                } else {
                    *(vec_memory *)((float *)pixel + first + c) = out[j] + add;
                }
            }
        }
    }
}

static void output(void *const pixels[TRMI_WINO_OUT], trm_dtype type, int64_t first, int64_t count,
                   const float *m, int64_t stride, const float *bias) {
    if (type == TRM_BFLOAT16) {
        output_as(pixels, TRM_BFLOAT16, first, count, m, stride, bias);
    } else {
        output_as(pixels, TRM_FLOAT32, first, count, m, stride, bias);
    }
}

/* ---- weights --------------------------------------------------------------------------------------- */

static void weights(float *to, int64_t stride, const float *from, int64_t tap, int64_t count) {
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

static void weights_gradient(float *to, int64_t tap, const float *s, int64_t stride, int64_t terms,
                             int64_t term, int64_t count) {
    for (int64_t c = 0; c < count; c += VL) {
        vec d[18];
        for (int j = 0; j < 6; j++) {
            vec in[6];
            for (int i = 0; i < 6; i++) {
                const float *at = s + (6 * i + j) * stride + c;
                in[i] = (vec) * (const vec_memory *)at;
                for (int64_t k = 1; k < terms; k++) {
                    in[i] += *(const vec_memory *)(at + k * term);
                }
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

const trmi_winograd_isa PASTE(trmi_winograd_, NAME) = {.name = STRING(NAME),
                                                       .channels = VL,
                                                       .input = input,
                                                       .gradient = gradient,
                                                       .output = output,
                                                       .weights = weights,
                                                       .weights_gradient = weights_gradient};
