/* SPDX-License-Identifier: Apache-2.0 */
/* The passes of unique.h with AVX-512, sixteen lookups at a time; client_unique.c explains them and
 * has the same passes in plain C. Lanes beyond the last lookup are masked off when they are read;
 * stores of compressed vectors write all sixteen lanes, up to TRMI_UNIQUE_SLACK elements beyond the
 * end. Indices are signed 32-bit numbers, so the map has at most 2^31 places. */
#if defined(__AVX512F__)
#include "ps/client/unique.h"

#include "base/inline.h"

#include <immintrin.h>

/* Lookups of a vector. */
enum { TOGETHER = 16 };

/* Returns eight places before masking. */
static __m512i multiply_keys(__m512i key) {
    return _mm512_srli_epi64(_mm512_mullo_epi64(key, _mm512_set1_epi64((long long)TRMI_FIBONACCI)),
                             32);
}

/* Returns 0, 1, ..., 15. */
static __m512i lane_numbers(void) {
    return _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
}

/* Returns the low 32 bits of two vectors of eight numbers. */
static __m512i narrow_pair(__m512i low, __m512i high) {
    return _mm512_inserti64x4(_mm512_castsi256_si512(_mm512_cvtepi64_epi32(low)),
                              _mm512_cvtepi64_epi32(high), 1);
}

/* Returns the mask of the valid lanes with `left` lookups left. */
static __mmask16 valid_lanes(int64_t left) {
    return left >= TOGETHER ? 0xFFFF : (__mmask16)((1u << left) - 1);
}

/* Writes the place of each lookup's key to inverse[]. */
static void find_places(const trmi_lookups *l) {
    const int64_t count = l->count;
    const __m512i mask = _mm512_set1_epi32((int32_t)l->mask);
    for (int64_t i = 0; i < count; i += TOGETHER) {
        const __mmask16 m = valid_lanes(count - i);
        __m512i low = _mm512_maskz_loadu_epi64((__mmask8)m, l->keys + i);
        __m512i high = _mm512_maskz_loadu_epi64((__mmask8)(m >> 8), l->keys + i + 8);
        _mm512_mask_storeu_epi32(
            l->inverse + i, m,
            _mm512_and_si512(narrow_pair(multiply_keys(low), multiply_keys(high)), mask));
    }
}

/* Pass 2 for `some` lookups from `first` on: replaces each place by the lookup that lies there,
 * and returns the mask of those with another key. Scalar loads are used: two loads a cycle take
 * half the time of AMD's gathers (0.55 against 1.24 ns a lookup; not measured on Intel). */
TRMI_INLINE __mmask16 look_up(const trmi_lookups *l, int64_t first, int64_t some) {
    uint64_t keys[TOGETHER];
    uint32_t *inverse = l->inverse + first;
    const __mmask16 m = valid_lanes(some);
    for (int64_t k = 0; k < some; k++) {
        uint32_t last = l->map[inverse[k]];
        inverse[k] = last;
        keys[k] = l->keys[last];
    }
    __mmask8 low =
        _mm512_mask_cmpneq_epi64_mask((__mmask8)m, _mm512_maskz_loadu_epi64((__mmask8)m, keys),
                                      _mm512_maskz_loadu_epi64((__mmask8)m, l->keys + first));
    __mmask8 high = _mm512_mask_cmpneq_epi64_mask(
        (__mmask8)(m >> 8), _mm512_maskz_loadu_epi64((__mmask8)(m >> 8), keys + 8),
        _mm512_maskz_loadu_epi64((__mmask8)(m >> 8), l->keys + first + 8));
    return (__mmask16)(low | high << 8);
}

/* Passes 1 and 2. */
static int64_t meet_lookups(const trmi_lookups *l) {
    const int64_t count = l->count;
    find_places(l);
    for (int64_t i = 0; i < count; i++) {
        l->map[l->inverse[i]] = (uint32_t)i;
    }
    int64_t left = 0;
    for (int64_t i = 0; i < count; i += TOGETHER) {
        __mmask16 other =
            count - i >= TOGETHER ? look_up(l, i, TOGETHER) : look_up(l, i, count - i);
        __m512i index = _mm512_add_epi32(_mm512_set1_epi32((int32_t)i), lane_numbers());
        _mm512_storeu_si512(l->left + left, _mm512_maskz_compress_epi32(other, index));
        left += __builtin_popcount(other);
    }
    return left;
}

/* Passes 3 and 4. */
static uint32_t number_keys(const trmi_lookups *l, uint32_t first) {
    const int64_t count = l->count;
    const __m512i step = _mm512_set1_epi32(TOGETHER);
    __m512i index = lane_numbers();
    uint32_t next = 0;
    /* Pass 3: a lookup that refers to itself is the last of its key. It gets the next number, and
     * its key goes to the list of distinct keys. */
    for (int64_t i = 0; i < count; i += TOGETHER, index = _mm512_add_epi32(index, step)) {
        const __mmask16 m = valid_lanes(count - i);
        __m512i inverse = _mm512_maskz_loadu_epi32(m, l->inverse + i);
        __mmask16 own = _mm512_mask_cmpeq_epi32_mask(m, inverse, index);
        __m512i numbers =
            _mm512_add_epi32(_mm512_set1_epi32((int32_t)(first + next)), lane_numbers());
        _mm512_storeu_si512(l->number + i, _mm512_maskz_expand_epi32(own, numbers));
        __m512i low = _mm512_maskz_loadu_epi64((__mmask8)m, l->keys + i);
        __m512i high = _mm512_maskz_loadu_epi64((__mmask8)(m >> 8), l->keys + i + 8);
        _mm512_storeu_si512(l->distinct + next, _mm512_maskz_compress_epi64((__mmask8)own, low));
        next += (uint32_t)__builtin_popcount((__mmask8)own);
        _mm512_storeu_si512(l->distinct + next,
                            _mm512_maskz_compress_epi64((__mmask8)(own >> 8), high));
        next += (uint32_t)__builtin_popcount(own >> 8);
    }
    /* Pass 4: each lookup takes the number of the last lookup of its key. */
    for (int64_t i = 0; i < count; i += TOGETHER) {
        const __mmask16 m = valid_lanes(count - i);
        __m512i inverse = _mm512_maskz_loadu_epi32(m, l->inverse + i);
        _mm512_mask_storeu_epi32(
            l->inverse + i, m,
            _mm512_mask_i32gather_epi32(_mm512_setzero_si512(), m, inverse, l->number, 4));
    }
    return next;
}

const trmi_unique_kernels trmi_unique_avx512 = {meet_lookups, number_keys};
#else
typedef int trmi_not_empty;
#endif
