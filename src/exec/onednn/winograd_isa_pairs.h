/* exec/onednn/winograd_isa_pairs.h: F(2x2, 3x3) of two tiles side by side, rounded to pairs of bfloat16; the part of
 * winograd_isa_body.h for CPUs that multiply such pairs. The tiles' patches have two columns in common, which are transformed
 * once; all that lives at a time fits in the registers. */

/* B': 4 -> 4. */
INLINE void input_small(vec o[4], vec d0, vec d1, vec d2, vec d3) {
    o[0] = d0 - d2;
    o[1] = d1 + d2;
    o[2] = d2 - d1;
    o[3] = d3 - d1;
}

/* A: 2 -> 4. */
INLINE void gradient_small(vec o[4], vec y0, vec y1) {
    o[0] = y0;
    o[1] = y0 + y1;
    o[2] = y0 - y1;
    o[3] = y1;
}

/* G': 4 -> 3. */
INLINE void weights_gradient_small_1d(vec o[3], vec s0, vec s1, vec s2, vec s3) {
    vec even = 0.5f * (s1 + s2);
    o[0] = s0 + even;
    o[1] = 0.5f * (s1 - s2);
    o[2] = even + s3;
}

/* A row of the transforms of both tiles. */
INLINE void leave_pairs(float *to, int64_t across, const vec left[4], const vec right[4]) {
    UNROLL for (int j = 0; j < 4; j++) {
        *(vec_memory *)(to + j * across) = round_pair(left[j], right[j]);
    }
}

static void input_pair(float *to, int64_t down, int64_t across, const void *const pixels[TRMI_WINO_IN], int64_t first,
                       int64_t count) {
    for (int64_t c = 0; c < count; c += VL) {
        vec d[6][4], left[4], right[4];
        UNROLL for (int j = 0; j < 6; j++) {
            vec in[4];
            UNROLL for (int i = 0; i < 4; i++) {
                in[i] = load_half((const uint16_t *)pixels[6 * i + j] + first + c);
            }
            input_small(d[j], in[0], in[1], in[2], in[3]);
        }
        UNROLL for (int i = 0; i < 4; i++) {
            input_small(left, d[0][i], d[1][i], d[2][i], d[3][i]);
            input_small(right, d[2][i], d[3][i], d[4][i], d[5][i]);
            leave_pairs(to + i * down + c, across, left, right);
        }
    }
}

static void gradient_pair(float *to, int64_t down, int64_t across, const void *const pixels[TRMI_WINO_OUT], int64_t first,
                          int64_t count) {
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

static void weights_gradient_small(float *to, int64_t tap, const float *s, int64_t stride, int64_t count) {
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
