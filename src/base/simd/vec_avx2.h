/* SPDX-License-Identifier: Apache-2.0 */
/* base/simd/vec_avx2.h: the vectors of vec.h with AVX2 and FMA: eight lanes of float32, four of 64
 * bits. vec.h says what each function does, and includes this file in kernels that are compiled
 * with these instructions.
 *
 * Parts of a vector use masked loads and stores, which touch no byte beyond; of bfloat16, for which
 * AVX2 has no masks, a copy of whole size on the stack. */
#include <immintrin.h>

#define VL 8
typedef __m256 vf;
typedef __m256 vm;

static inline __m256i vf_first_lanes(int n) {
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
static inline vf vf_set(float x) { return _mm256_set1_ps(x); }
static inline vf vf_load(const float *p) { return _mm256_loadu_ps(p); }
static inline vf vf_load_n(const float *p, int n) {
    return _mm256_maskload_ps(p, vf_first_lanes(n));
}
static inline void vf_store(float *p, vf v) { _mm256_storeu_ps(p, v); }
static inline void vf_store_n(float *p, int n, vf v) {
    _mm256_maskstore_ps(p, vf_first_lanes(n), v);
}
static inline vf vf_load_bf(const uint16_t *p) { return (vf)trmi_bf16_load(p); }
static inline vf vf_load_bf_n(const uint16_t *p, int n) {
    uint16_t whole[8] = {0};
    memcpy(whole, p, (size_t)n * sizeof *p);
    return vf_load_bf(whole);
}
static inline vf vf_fill(vf v, int n, float fill) {
    return _mm256_blendv_ps(_mm256_set1_ps(fill), v, (__m256)vf_first_lanes(n));
}
static inline void vf_store_bf(uint16_t *p, vf v) { trmi_bf16_store(p, (trmi_floats)v); }
static inline void vf_store_bf_n(uint16_t *p, int n, vf v) {
    uint16_t whole[8];
    vf_store_bf(whole, v);
    memcpy(p, whole, (size_t)n * sizeof *p);
}
static inline void vf_stream_float(float *p, vf v) { _mm256_stream_ps(p, v); }
static inline void vf_stream_bf(uint16_t *p, vf v) {
    _mm_stream_si128((__m128i *)p, (__m128i)trmi_bf16_narrow((trmi_floats)v));
}
static inline void vf_fence(void) { _mm_sfence(); }
static inline vf vf_add(vf a, vf b) { return _mm256_add_ps(a, b); }
static inline vf vf_sub(vf a, vf b) { return _mm256_sub_ps(a, b); }
static inline vf vf_mul(vf a, vf b) { return _mm256_mul_ps(a, b); }
static inline vf vf_div(vf a, vf b) { return _mm256_div_ps(a, b); }
static inline vf vf_fma(vf a, vf b, vf c) { return _mm256_fmadd_ps(a, b, c); }
static inline vf vf_max(vf a, vf b) { return _mm256_max_ps(a, b); }
static inline vf vf_min(vf a, vf b) { return _mm256_min_ps(a, b); }
static inline vf vf_sqrt(vf a) { return _mm256_sqrt_ps(a); }
static inline vf vf_abs(vf a) { return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), a); }
static inline vf vf_round(vf a) {
    return _mm256_round_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
static inline vm vf_gt(vf a, vf b) { return _mm256_cmp_ps(a, b, _CMP_GT_OQ); }
static inline vm vf_eq(vf a, vf b) { return _mm256_cmp_ps(a, b, _CMP_EQ_OQ); }
static inline vm vf_nan(vf a) { return _mm256_cmp_ps(a, a, _CMP_UNORD_Q); }
static inline vf vf_select(vm m, vf yes, vf no) { return _mm256_blendv_ps(no, yes, m); }
static inline vf vf_keep(vm m, vf a) { return _mm256_and_ps(m, a); }
static inline vf vf_scale(vf a, vf n) {
    __m256i power = _mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127));
    return _mm256_mul_ps(a, _mm256_castsi256_ps(_mm256_slli_epi32(power, 23)));
}
static inline vf vf_scale2(vf a, vf n) {
    __m256i whole = _mm256_cvtps_epi32(n);
    __m256i first = _mm256_srai_epi32(whole, 1), second = _mm256_sub_epi32(whole, first);
    __m256i bias = _mm256_set1_epi32(127);
    vf x = _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(first, bias), 23));
    vf y = _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(second, bias), 23));
    return _mm256_mul_ps(_mm256_mul_ps(a, x), y);
}
static inline vf vf_split(vf a, vf *exponent) {
    vf tiny = _mm256_cmp_ps(a, _mm256_set1_ps(0x1p-126f), _CMP_LT_OQ); /* denormal: made normal */
    a = _mm256_blendv_ps(a, _mm256_mul_ps(a, _mm256_set1_ps(0x1p24f)), tiny);
    __m256i bits = _mm256_castps_si256(a);
    vf e =
        _mm256_cvtepi32_ps(_mm256_sub_epi32(_mm256_srli_epi32(bits, 23), _mm256_set1_epi32(127)));
    *exponent = _mm256_sub_ps(e, _mm256_and_ps(tiny, _mm256_set1_ps(24.0f)));
    bits = _mm256_or_si256(_mm256_and_si256(bits, _mm256_set1_epi32(0x7FFFFF)),
                           _mm256_set1_epi32(127 << 23));
    return _mm256_castsi256_ps(bits);
}
static inline float vf_first(vf a) { return _mm256_cvtss_f32(a); }
static inline float vf_sum(vf a) {
    __m128 x = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    x = _mm_add_ps(x, _mm_movehl_ps(x, x));
    return _mm_cvtss_f32(_mm_add_ss(x, _mm_shuffle_ps(x, x, 1)));
}
static inline float vf_largest(vf a) {
    __m128 x = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    x = _mm_max_ps(x, _mm_movehl_ps(x, x));
    return _mm_cvtss_f32(_mm_max_ss(x, _mm_shuffle_ps(x, x, 1)));
}

/* Lanes of 64 bits for Philox: see vec.h. */
#define VQ 4
typedef __m256i vq;
static inline vq vq_set(uint64_t x) { return _mm256_set1_epi64x((long long)x); }
static inline vq vq_count(uint64_t first) {
    return _mm256_add_epi64(vq_set(first), _mm256_setr_epi64x(0, 1, 2, 3));
}
static inline vq vq_mul32(vq a, vq b) { return _mm256_mul_epu32(a, b); }
static inline vq vq_high(vq a) { return _mm256_srli_epi64(a, 32); }
static inline vq vq_xor(vq a, vq b) { return _mm256_xor_si256(a, b); }
static inline vq vq_pair(vq low, vq high) {
    return _mm256_blend_epi32(low, _mm256_slli_epi64(high, 32), 0xAA);
}
static inline void vq_store(uint64_t *p, vq a) { _mm256_storeu_si256((__m256i *)p, a); }
