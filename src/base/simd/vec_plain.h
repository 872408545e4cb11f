/* SPDX-License-Identifier: Apache-2.0 */
/* base/simd/vec_plain.h: one lane in plain C; see vec.h. It is what runs on CPUs without AVX2, and
 * what other instruction sets are compared with. */
#define VL 1
typedef float vf;
typedef int vm;

static inline vf vf_set(float x) { return x; }
static inline vf vf_load(const float *p) { return *p; }
static inline vf vf_load_n(const float *p, int n) { return n > 0 ? *p : 0.0f; }
static inline void vf_store(float *p, vf v) { *p = v; }
static inline void vf_store_n(float *p, int n, vf v) {
    if (n > 0) {
        *p = v;
    }
}
static inline vf vf_load_bf(const uint16_t *p) { return trmi_bf16_to_float(*p); }
static inline vf vf_load_bf_n(const uint16_t *p, int n) {
    return n > 0 ? trmi_bf16_to_float(*p) : 0.0f;
}
static inline vf vf_fill(vf v, int n, float fill) { return n > 0 ? v : fill; }
static inline void vf_store_bf(uint16_t *p, vf v) { *p = trmi_float_to_bf16(v); }
static inline void vf_store_bf_n(uint16_t *p, int n, vf v) {
    if (n > 0) {
        *p = trmi_float_to_bf16(v);
    }
}
static inline void vf_stream_float(float *p, vf v) { *p = v; }
static inline void vf_stream_bf(uint16_t *p, vf v) { vf_store_bf(p, v); }
static inline void vf_fence(void) {}
static inline vf vf_add(vf a, vf b) { return a + b; }
static inline vf vf_sub(vf a, vf b) { return a - b; }
static inline vf vf_mul(vf a, vf b) { return a * b; }
static inline vf vf_div(vf a, vf b) { return a / b; }
static inline vf vf_fma(vf a, vf b, vf c) { return a * b + c; }
/* Returns, as the instruction does, the second operand when either is NaN. */
static inline vf vf_max(vf a, vf b) { return a > b ? a : b; }
static inline vf vf_min(vf a, vf b) { return a < b ? a : b; }
static inline vf vf_sqrt(vf a) { return sqrtf(a); }
static inline vf vf_abs(vf a) { return fabsf(a); }
static inline vf vf_round(vf a) { return nearbyintf(a); }
static inline vm vf_gt(vf a, vf b) { return a > b; }
static inline vm vf_eq(vf a, vf b) { return a == b; }
static inline vm vf_nan(vf a) { return a != a; }
static inline vf vf_select(vm m, vf yes, vf no) { return m ? yes : no; }
static inline vf vf_keep(vm m, vf a) { return m ? a : 0.0f; }
/* Computes a * 2^n for whole n in [-126, 127]. */
static inline vf vf_scale(vf a, vf n) {
    uint32_t bits = (uint32_t)((int)n + 127) << 23;
    float power;
    memcpy(&power, &bits, sizeof power);
    return a * power;
}
/* Computes a * 2^n for whole n in [-127, 128] where the result is 0, normal, or infinite. */
static inline vf vf_scale2(vf a, vf n) {
    int whole = (int)n, first = whole / 2, second = whole - first;
    uint32_t bits[2] = {(uint32_t)(first + 127) << 23, (uint32_t)(second + 127) << 23};
    float power[2];
    memcpy(power, bits, sizeof power);
    return a * power[0] * power[1];
}
/* Splits a positive finite a = m * 2^e with m in [1, 2). */
static inline vf vf_split(vf a, vf *exponent) {
    int e;
    float m = frexpf(a, &e);
    *exponent = (float)(e - 1);
    return 2 * m;
}
static inline float vf_first(vf a) { return a; }
static inline float vf_sum(vf a) { return a; }
static inline float vf_largest(vf a) { return a; }

/* Lanes of 64 bits for Philox: see vec.h. */
#define VQ 1
typedef uint64_t vq;
static inline vq vq_set(uint64_t x) { return x; }
static inline vq vq_count(uint64_t first) { return first; }
static inline vq vq_mul32(vq a, vq b) { return (a & 0xFFFFFFFFu) * (b & 0xFFFFFFFFu); }
static inline vq vq_high(vq a) { return a >> 32; }
static inline vq vq_xor(vq a, vq b) { return a ^ b; }
static inline vq vq_pair(vq low, vq high) { return (low & 0xFFFFFFFFu) | high << 32; }
static inline void vq_store(uint64_t *p, vq a) { *p = a; }
