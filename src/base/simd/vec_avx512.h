/* SPDX-License-Identifier: Apache-2.0 */
/* base/simd/vec_avx512.h: sixteen lanes; see vec.h. Comparisons give mask registers (vm is an
 * integer), and parts of a vector use them for loads and stores. */
#include <immintrin.h>

#define VL 16
typedef __m512 vf;
typedef __mmask16 vm;

static inline vm vf_first_lanes(int n) { return (vm)((1u << n) - 1); }
static inline vf vf_set(float x) { return _mm512_set1_ps(x); }
static inline vf vf_load(const float *p) { return _mm512_loadu_ps(p); }
static inline vf vf_load_n(const float *p, int n) {
    return _mm512_maskz_loadu_ps(vf_first_lanes(n), p);
}
static inline void vf_store(float *p, vf v) { _mm512_storeu_ps(p, v); }
static inline void vf_store_n(float *p, int n, vf v) {
    _mm512_mask_storeu_ps(p, vf_first_lanes(n), v);
}
static inline vf vf_load_bf(const uint16_t *p) { return (vf)trmi_bf16_load(p); }
static inline vf vf_load_bf_n(const uint16_t *p, int n) {
    return (vf)trmi_bf16_widen((trmi_halves)_mm256_maskz_loadu_epi16(vf_first_lanes(n), p));
}
static inline __m256i vf_to_bf(vf v) { return (__m256i)trmi_bf16_narrow((trmi_floats)v); }
static inline vf vf_fill(vf v, int n, float fill) {
    return _mm512_mask_blend_ps(vf_first_lanes(n), _mm512_set1_ps(fill), v);
}
static inline void vf_store_bf(uint16_t *p, vf v) { trmi_bf16_store(p, (trmi_floats)v); }
static inline void vf_store_bf_n(uint16_t *p, int n, vf v) {
    _mm256_mask_storeu_epi16(p, vf_first_lanes(n), vf_to_bf(v));
}
static inline void vf_stream_float(float *p, vf v) { _mm512_stream_ps(p, v); }
static inline void vf_stream_bf(uint16_t *p, vf v) {
    _mm256_stream_si256((__m256i *)p, vf_to_bf(v));
}
/* Streamed stores of this thread are seen by all before what comes next. */
static inline void vf_fence(void) { _mm_sfence(); }
static inline vf vf_add(vf a, vf b) { return _mm512_add_ps(a, b); }
static inline vf vf_sub(vf a, vf b) { return _mm512_sub_ps(a, b); }
static inline vf vf_mul(vf a, vf b) { return _mm512_mul_ps(a, b); }
static inline vf vf_div(vf a, vf b) { return _mm512_div_ps(a, b); }
static inline vf vf_fma(vf a, vf b, vf c) { return _mm512_fmadd_ps(a, b, c); }
static inline vf vf_max(vf a, vf b) { return _mm512_max_ps(a, b); }
static inline vf vf_min(vf a, vf b) { return _mm512_min_ps(a, b); }
static inline vf vf_sqrt(vf a) { return _mm512_sqrt_ps(a); }
static inline vf vf_abs(vf a) { return _mm512_abs_ps(a); }
static inline vf vf_round(vf a) {
    return _mm512_roundscale_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
static inline vm vf_gt(vf a, vf b) { return _mm512_cmp_ps_mask(a, b, _CMP_GT_OQ); }
static inline vm vf_eq(vf a, vf b) { return _mm512_cmp_ps_mask(a, b, _CMP_EQ_OQ); }
static inline vm vf_nan(vf a) { return _mm512_cmp_ps_mask(a, a, _CMP_UNORD_Q); }
static inline vf vf_select(vm m, vf yes, vf no) { return _mm512_mask_blend_ps(m, no, yes); }
static inline vf vf_keep(vm m, vf a) { return _mm512_maskz_mov_ps(m, a); }
static inline vf vf_scale(vf a, vf n) { return _mm512_scalef_ps(a, n); }
static inline vf vf_scale2(vf a, vf n) { return _mm512_scalef_ps(a, n); }
static inline vf vf_split(vf a, vf *exponent) {
    *exponent = _mm512_getexp_ps(a);
    return _mm512_getmant_ps(a, _MM_MANT_NORM_1_2, _MM_MANT_SIGN_zero);
}
static inline float vf_first(vf a) { return _mm512_cvtss_f32(a); }
static inline float vf_sum(vf a) { return _mm512_reduce_add_ps(a); }
static inline float vf_largest(vf a) { return _mm512_reduce_max_ps(a); }

/* Lanes of 64 bits for Philox: see vec.h. */
#define VQ 8
typedef __m512i vq;
static inline vq vq_set(uint64_t x) { return _mm512_set1_epi64((long long)x); }
static inline vq vq_count(uint64_t first) {
    return _mm512_add_epi64(vq_set(first), _mm512_setr_epi64(0, 1, 2, 3, 4, 5, 6, 7));
}
static inline vq vq_mul32(vq a, vq b) { return _mm512_mul_epu32(a, b); }
static inline vq vq_high(vq a) { return _mm512_srli_epi64(a, 32); }
static inline vq vq_xor(vq a, vq b) { return _mm512_xor_si512(a, b); }
static inline vq vq_pair(vq low, vq high) {
    return _mm512_mask_blend_epi32(0xAAAA, low, _mm512_slli_epi64(high, 32));
}
static inline void vq_store(uint64_t *p, vq a) { _mm512_storeu_si512(p, a); }
